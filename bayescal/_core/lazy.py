"""JAX, imported when one of its names is first used.

Importing JAX takes half a second and much memory, which a fit of NumPy arrays that compiles nothing
does not need. Therefore all modules take ``jax`` and ``jnp`` from here. Three things work without
an import: ``jax.Array``, of which no object is an instance before the import; the decorators
``jax.jit`` and ``jax.custom_jvp``, which wait for the first call; and :func:`registered` classes.

``jnp`` is a proxy of the module; functions of users get the module itself, ``jax.numpy``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from bayescal._core.keywords import ConstructorSignature

if TYPE_CHECKING:
    import jax as jax
    import jax.numpy as jnp
    import jax.scipy.special as special


T = TypeVar("T", bound=type)
Function: TypeAlias = Callable[..., object]


class _Registrations(MetaPathFinder, Loader):
    """A finder and loader of JAX that registers classes with it after the import."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []
        self.loader: Loader  # the one that would load JAX

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "jax" or not self.waiting:
            return None
        finders = [f for f in sys.meta_path if f is not self and hasattr(f, "find_spec")]
        found = (finder.find_spec(name, None) for finder in finders)
        spec = next((spec for spec in found if spec and spec.loader), None)
        if spec is not None and spec.loader is not None:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        while self.waiting:
            self.waiting.pop()()


_REGISTRATIONS = _Registrations()


def registered(register: Callable[[type], object]) -> Callable[[T], T]:
    """Make a decorator of a class that is registered with JAX before JAX meets its objects.

    If the first object is made before JAX is imported, a finder in ``sys.meta_path`` registers the
    class after the import.
    """

    @functools.cache
    def register_once(cls: type) -> None:
        if "jax" in sys.modules:
            register(cls)
            return
        _REGISTRATIONS.waiting.append(functools.partial(register, cls))
        if _REGISTRATIONS not in sys.meta_path:
            sys.meta_path.insert(0, _REGISTRATIONS)

    def new(cls: type, *_args: object, **_options: object) -> Any:
        register_once(cls)
        return object.__new__(cls)

    def decorate(cls: T) -> T:
        cls.__new__ = new
        cls.__signature__ = ConstructorSignature()
        return cls

    return decorate


def is_traced(array: object) -> bool:
    """Return whether an array stands for the unknown values of a program that JAX compiles."""
    return "jax" in sys.modules and isinstance(array, import_module("jax.core").Tracer)


class _Deferred:
    """A function that JAX makes from another when it is first called."""

    def __init__(self, function: Function, make: Callable[[Function], Function]) -> None:
        functools.update_wrapper(self, function)
        self.__make = make

    @functools.cached_property
    def __made(self) -> Function:
        return self.__make(self.__wrapped__)  # pyright: ignore[reportAttributeAccessIssue]

    def __call__(self, *args: object, **options: object) -> object:
        return self.__made(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_Deferred" in name:
            raise AttributeError(name)
        return getattr(self.__made, name)

    def __reduce__(self) -> str:
        return self.__qualname__  # pyright: ignore[reportAttributeAccessIssue]


class _WithRule(_Deferred):
    """A function whose derivative is given by ``defjvp`` before JAX is imported."""

    def __init__(self, function: Function) -> None:
        super().__init__(function, self._make_with_rule)

    def defjvp(self, rule: Function) -> Function:
        self._rule = rule
        return rule

    def _make_with_rule(self, function: Function) -> Function:
        made = import_module("jax").custom_jvp(function)
        made.defjvp(self._rule)
        return made


class _Lazy:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


class _NoArray:
    """Stands for the type of JAX's arrays while there are none."""


class _LazyJax(_Lazy):
    @property
    def Array(self) -> type:
        return getattr(sys.modules.get("jax"), "Array", _NoArray)

    def jit(self, function: Function, **options: object) -> Function:
        if "jax" in sys.modules:
            return import_module("jax").jit(function, **options)
        return _Deferred(function, lambda f: import_module("jax").jit(f, **options))

    def custom_jvp(self, function: Function) -> Function:
        if "jax" in sys.modules:
            return import_module("jax").custom_jvp(function)
        return _WithRule(function)


if not TYPE_CHECKING:
    jax, jnp, special = _LazyJax("jax"), _Lazy("jax.numpy"), _Lazy("jax.scipy.special")
