"""Adam, for parameters in any structure and under strict promotion of types."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from bayescal._core.arrays import Array

#: Parameters, or what has their structure.
Tree = TypeVar("Tree")

_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8


class Memory(NamedTuple, Generic[Tree]):
    """Running means of the gradients and of their squares, and what these still lack to one."""

    mean: Tree
    square: Tree
    lacks_first: jax.Array
    lacks_second: jax.Array


def begin(parameters: Tree) -> Memory[Tree]:
    """Return the memory before the first step."""
    nothing = jax.tree.map(jnp.zeros_like, parameters)
    one = jnp.ones((), jax.tree.leaves(parameters)[0].dtype)
    return Memory(nothing, nothing, one, one)


def step(
    parameters: Tree, gradient: Tree, memory: Memory[Tree], rate: Array | float
) -> tuple[Tree, Memory[Tree]]:
    """Return parameters one step downhill, by about ``rate`` in each of them, and the memory.

    D. Kingma and J. Ba (2015), Adam: a method for stochastic optimization.
    """
    first, second = memory.lacks_first * _FIRST, memory.lacks_second * _SECOND
    mean = jax.tree.map(lambda m, g: _FIRST * m + (1 - _FIRST) * g, memory.mean, gradient)
    square = jax.tree.map(lambda v, g: _SECOND * v + (1 - _SECOND) * g * g, memory.square, gradient)

    def moved(x: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return x - rate * (m / (1 - first)) / (jnp.sqrt(v / (1 - second)) + _TINY)

    return jax.tree.map(moved, parameters, mean, square), Memory(mean, square, first, second)
