"""A cache of facts that depend only on the structure of a pytree, not on its numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TypeVar, TypeVarTuple

import numpy as np

from bayescal._core.lazy import jax

_MAX_ENTRIES = 256

Tree = TypeVar("Tree")
Out = TypeVar("Out")
Rest = TypeVarTuple("Rest")


def cached_by_structure(function: Callable[[Tree, *Rest], Out]) -> Callable[[Tree, *Rest], Out]:
    """Cache ``function(tree, *static)`` by the tree's structure, shapes and dtypes.

    Use it for facts obtained by abstract tracing, which costs milliseconds each time.
    """
    results: dict[Hashable, Out] = {}

    @functools.wraps(function)
    def wrapper(tree: Tree, *static: *Rest) -> Out:
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple((np.shape(leaf), str(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves)
        key = structure, shapes, static
        if key not in results:
            if len(results) >= _MAX_ENTRIES:
                results.clear()
            results[key] = function(tree, *static)
        return results[key]

    return wrapper
