"""Functions decorated before JAX is imported, and caching by the structure of data."""

from __future__ import annotations

import os
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayescal._core import lazy
from bayescal._core.execution import structure, threads


@pytest.fixture
def before_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the decorators act as if JAX had not been imported yet."""
    monkeypatch.setattr(lazy, "sys", SimpleNamespace(modules={}))


@pytest.mark.usefixtures("before_import")
def test_functions_compile_when_they_are_first_called() -> None:
    traced = []

    def square(x: jax.Array, power: int) -> jax.Array:
        """Square."""
        traced.append(power)
        return x**power

    waiting = lazy.jax.jit(square, static_argnames="power")
    assert waiting.__doc__ == "Square." and not traced
    for x in (2.0, 3.0):
        assert float(waiting(jnp.float32(x), power=2)) == x**2
    assert traced == [2]
    # The lazy function also has the attributes that JAX adds to a compiled one.
    assert waiting.lower(jnp.float32(2.0), power=3).out_info.shape == ()
    with pytest.raises(AttributeError, match="__len__"):
        waiting.__len__  # noqa: B018


@pytest.mark.usefixtures("before_import")
def test_rules_of_derivatives_wait_with_their_function() -> None:
    @lazy.jax.custom_jvp
    def sine(x: jax.Array) -> jax.Array:
        return jnp.sin(x)

    @sine.defjvp
    def rule(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
        # A slope ten times too large shows that the rule is used.
        return jnp.sin(primals[0]), 10 * jnp.cos(primals[0]) * tangents[0]

    value, slope = jax.value_and_grad(sine)(0.5)
    np.testing.assert_allclose([value, slope], [np.sin(0.5), 10 * np.cos(0.5)], rtol=1e-6)


@pytest.mark.usefixtures("before_import")
def test_no_object_is_an_array_before_jax_is_imported() -> None:
    assert not isinstance(jnp.zeros(2), lazy.jax.Array)


def test_facts_of_structures_are_kept_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "_MAX_ENTRIES", 3)
    computed = []

    @structure.cached_by_structure
    def size(tree: dict[str, np.ndarray], factor: int) -> int:
        computed.append(factor)
        return factor * sum(leaf.size for leaf in tree.values())

    def ask(n: int, factor: int = 1, fill: float = 0.0) -> int:
        return size({"a": np.full(n, fill), "b": np.zeros((2, n))}, factor)

    assert [ask(1), ask(2), ask(2, 5), ask(2, 5, fill=7.0), ask(1)] == [3, 6, 30, 30, 3]
    assert computed == [1, 1, 5]
    assert [ask(4), ask(4), ask(1)] == [12, 12, 3]
    assert computed == [1, 1, 5, 1, 1]  # The fourth structure replaced the three before it.


@pytest.mark.parametrize(("count", "expected"), [(6, 6), (None, 1)])
def test_cores_where_the_system_does_not_say_which_ones(
    monkeypatch: pytest.MonkeyPatch, count: int | None, expected: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert threads.core_count() == expected
