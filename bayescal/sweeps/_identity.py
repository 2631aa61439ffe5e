"""Digests of functions, from their code and the values that they carry, and of other values."""

from __future__ import annotations

import functools
import hashlib
import json
import pickle
import uuid
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, MethodType, ModuleType

import numpy as np

#: Values that are described by their address, kept so that no other value gets it.
_KEPT: dict[int, object] = {}
#: What distinguishes addresses of this process from those of others.
_PROCESS = uuid.uuid4().hex


def digest_of_value(value: object) -> str:
    """Compute a digest of a value, the same in every process with the same version of Python.

    That of a function covers code, defaults, and variables of enclosing functions, so that
    functions made in a loop differ; but neither global variables nor the code of functions that it
    calls. Values that cannot be pickled equal only themselves, in this process.
    """
    return hashlib.sha256(json.dumps(_described(value, ())).encode()).hexdigest()


def digest_of_captured(function: Callable[..., object]) -> str:
    """Compute a digest of the values that a function carries, without its code."""
    return hashlib.sha256(json.dumps(_described(_captured(function), ())).encode()).hexdigest()


def describe_array(array: np.ndarray) -> list[object]:
    """Describe an array of numbers or texts by its type, its shape and a digest of its content."""
    return [array.dtype.str, list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]


def _captured(function: object) -> list[object]:
    cells = []
    for cell in getattr(function, "__closure__", None) or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:
            # The variable has no value yet.
            cells.append(None)
    names = "__defaults__", "__kwdefaults__", "__self__", "func", "args", "keywords"
    return [*cells, *(getattr(function, name, None) for name in names)]


def _described(value: object, around: tuple[int, ...]) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return [type(value).__name__, repr(value)]
    if id(value) in around:
        # The function calls itself.
        return "itself"
    inside = (*around, id(value))

    def many(values: Iterable[object]) -> list[object]:
        return [_described(part, inside) for part in values]

    if isinstance(value, list | tuple):
        return [type(value).__name__, *many(value)]
    if isinstance(value, dict):
        return ["dict", *many(value.items())]
    if isinstance(value, set | frozenset):
        return ["set", *sorted(many(value), key=repr)]
    if isinstance(value, FunctionType):
        made_of = value.__code__, _captured(value)
        return [value.__module__, value.__qualname__, *many(made_of)]
    if isinstance(value, CodeType):
        return [value.co_code.hex(), *many((value.co_consts, value.co_names))]
    if isinstance(value, MethodType):
        return ["method", *many((value.__func__, value.__self__))]
    if isinstance(value, functools.partial):
        return ["partial", *many(_captured(value))]
    if isinstance(value, type | ModuleType):
        return [getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__)]
    if isinstance(value, np.ndarray) and value.dtype != object:
        return describe_array(value)
    try:
        content: object = hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:
        # An address alone would also describe another object that is made when this one is gone.
        _KEPT[id(value)] = value
        content = [_PROCESS, id(value), _described(getattr(value, "__dict__", None), inside)]
    return [type(value).__qualname__, content]
