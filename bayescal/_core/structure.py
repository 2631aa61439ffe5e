"""Remembering what depends on the structure of a pytree alone, not on its numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TypeVar, TypeVarTuple

import jax
import numpy as np

_MAX_ENTRIES = 256

Tree = TypeVar("Tree")
Found = TypeVar("Found")
Static = TypeVarTuple("Static")


def cached_by_structure(
    function: Callable[[Tree, *Static], Found],
) -> Callable[[Tree, *Static], Found]:
    """Cache ``function(tree, *static)`` by the tree's structure, shapes and dtypes.

    For facts found by abstract tracing, which costs milliseconds each time.
    """
    found: dict[Hashable, Found] = {}

    @functools.wraps(function)
    def wrapper(tree: Tree, *static: *Static) -> Found:
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple((np.shape(leaf), str(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves)
        key = structure, shapes, static
        if key not in found:
            if len(found) >= _MAX_ENTRIES:
                found.clear()
            found[key] = function(tree, *static)
        return found[key]

    return wrapper
