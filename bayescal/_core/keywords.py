"""Keywords of other libraries, such as ``n_bins=`` for ``bins=``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cache, wraps
from typing import Self, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., object])

#: Names of this package for keywords of other libraries.
_SYNONYMS = {
    "n_bins": ("bins",),
    "strategy": ("binning",),
    "seed": ("random_state", "key"),
    "random_state": ("seed", "key"),
    "key": ("seed", "random_state"),
    "method": ("calibrator",),
    "tol": ("tolerance",),
    "priors": ("class_prior",),
    "Y": ("y",),
}
_BINNINGS = {"uniform": "equal_width", "quantile": "equal_mass"}


def translated(options: Mapping[str, object], known: Collection[str]) -> dict[str, object]:
    """Rename keywords of other libraries to the ``known`` keywords of this package.

    Examples
    --------
    >>> translated({"n_bins": 5, "strategy": "quantile"}, ("bins", "binning"))
    {'bins': 5, 'binning': 'equal_mass'}
    """
    result: dict[str, object] = {}
    for keyword, value in options.items():
        name = keyword
        if keyword not in known:
            name = next((s for s in _SYNONYMS.get(keyword, ()) if s in known), keyword)
        if name in result or (name != keyword and name in options):
            raise TypeError(f"{keyword} is another word for {name}: pass one of them")
        if name != keyword == "strategy" and isinstance(value, str):
            value = _BINNINGS.get(value, value)
        result[name] = value
    return result


def other_words(function: Function) -> Function:
    """Let a function accept keywords of other libraries; its signature is unchanged."""

    @wraps(function)
    def renamed(*args: object, **options: object) -> object:
        if not _SYNONYMS.keys().isdisjoint(options):
            options = translated(options, _parameters(function))
        return function(*args, **options)

    return cast(Function, renamed)


class ConstructorSignature:
    """The signature of a class, read from ``__init__`` where ``__new__`` takes any arguments.

    Assigned to ``__signature__`` of a base class, it serves ``help``, editors and documentation.
    """

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        signature = inspect.signature(owner.__init__)
        return signature.replace(parameters=[*signature.parameters.values()][1:])


class AcceptsOtherWords:
    """A class whose constructor accepts keywords of other libraries, such as ``n_bins``."""

    __signature__ = ConstructorSignature()

    def __new__(cls, *_: object, **options: object) -> Self:
        """Create an instance; the first keyword of another library makes ``__init__`` rename."""
        others = _SYNONYMS.keys() & options.keys()
        if others and not hasattr(cls.__init__, "_other_words"):
            if others - _parameters(cls.__init__):
                renaming = other_words(cls.__init__)
                vars(renaming)["_other_words"] = True
                cls.__init__ = renaming
        return super().__new__(cls)


@cache
def _parameters(function: Callable[..., object]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)
