"""Calibrators by name, as users write them in a string."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from bayescal.calibrators._base import Calibrator
from bayescal.calibrators.auto import Auto

__all__ = ["calibrator_names", "make_calibrator"]

#: What scikit-learn calls by another name: Platt's method, with his targets.
_ALIASES: dict[str, tuple[str, dict[str, Any]]] = {"sigmoid": ("Logistic", {"smoothing": "platt"})}


def calibrator_names() -> list[str]:
    """Return the names of the classes of which :func:`make_calibrator` makes calibrators, sorted.

    Examples
    --------
    >>> from bayescal.calibrators.names import calibrator_names
    >>> "Beta" in calibrator_names()
    True
    """
    return sorted(_classes())


def make_calibrator(name: str, *, argument: str = "calibrator", **options: Any) -> Any:
    """Return a calibrator, not fitted, by the name of its class.

    Parameters
    ----------
    name : str
        In any case, with or without underscores: "Beta", "venn_abers", "vennabers". "sigmoid" is
        ``Logistic(smoothing="platt")``.
    argument : str
        What an error calls the name.
    **options
        Of the calibrator.

    Raises
    ------
    ValueError
        For other names; the message lists what there is.

    Examples
    --------
    >>> from bayescal.calibrators.names import make_calibrator
    >>> make_calibrator("structured_vector", inputs="logits")
    StructuredVector(inputs='logits')
    """
    classes, plain = _classes(), _plain(name)
    known = {_plain(own): (own, {}) for own in classes} | _ALIASES
    if plain not in known:
        raise ValueError(
            f"{argument} must be one of {', '.join([*sorted(classes), *_ALIASES])}, got {name!r}"
        )
    found, own = known[plain]
    return classes[found](**{**own, **options})


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _classes() -> dict[str, Any]:
    """Return what the package exports, has been imported, and can be made by its name alone."""
    exported = vars(sys.modules[__name__.rpartition(".")[0]])
    kinds = {n: k for n, k in exported.items() if isinstance(k, type) and issubclass(k, Calibrator)}
    return {n: k for n, k in kinds.items() if not inspect.isabstract(k)} | {"Auto": Auto}
