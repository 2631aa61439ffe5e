"""Configurations of a sweep, the random keys of their data sets, and these, drawn at once."""

from __future__ import annotations

import hashlib
import inspect
import json
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.precision import float64
from bayescal.models import Family, Prior
from bayescal.models.prior import draw, is_distribution
from bayescal.sweeps._identity import digest_of_captured

#: Attributes of distributions that are made of others.
_INSIDE = "base_dist", "transforms", "mixing_distribution", "component_distribution"


class Cell(NamedTuple):
    """One configuration: where data come from, and how many of them there are.

    ``class_ratio`` is the share of class 1 among the training data; test data have as many of both.
    """

    prior: Prior
    n_train: int
    class_ratio: float
    n_test: int

    @property
    def sizes(self) -> str:
        """What distinguishes training sets of this configuration from others of its prior."""
        return f"{self.n_train} {self.class_ratio!r}"


class Keys(NamedTuple):
    """Random keys of data sets, each of shape (b,)."""

    parameters: jax.Array
    train: jax.Array
    test: jax.Array


def digest_of(prior: Prior) -> str:
    """Return a digest of all that a prior is made of, the same in every process."""
    facts = [type(prior.family).__name__, *prior.family.parameters, _described(prior.values)]
    model = prior.model
    if model is not None:
        try:
            source = inspect.getsource(model)
        except (OSError, TypeError):
            source = f"{model.__module__}.{getattr(model, '__qualname__', '')}"
        facts += [source, digest_of_captured(model)]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _described(value: Any) -> object:
    """Return a number, a distribution or a transform as names and numbers."""
    if isinstance(value, dict):
        return {str(name): _described(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_described(each) for each in value]
    if is_distribution(value):
        # Not all attributes: distributions keep there what was once computed.
        names = [*getattr(value, "arg_constraints", {}), *_INSIDE]
        inside = {name: getattr(value, name, None) for name in names}
        shapes = list(value.batch_shape), list(value.event_shape)
        return [type(value).__name__, *shapes, _described(inside)]
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "tree_flatten"):
        return [type(value).__name__, [_described(leaf) for leaf in jax.tree.leaves(value)]]
    return np.asarray(value, np.float64).tolist()


def keys_of(cell: Cell, key: jax.Array, first: int, count: int) -> Keys:
    """Return the keys of data sets ``first`` and on.

    They depend on the configuration itself, not on its place among others, and each on its number:
    so a larger sweep holds the numbers of a smaller one. Parameters and test data of one number are
    the same for all sizes and ratios of training sets, which are thus compared without noise.
    """
    own = fold_in_text(key, digest_of(cell.prior))

    def one(number: Any) -> Keys:
        parameters, train, test = jax.random.split(jax.random.fold_in(own, number), 3)
        return Keys(parameters, fold_in_text(train, cell.sizes), test)

    with float64():
        return jax.vmap(one)(np.arange(first, first + count))


def fold_in_text(key: jax.Array, text: str) -> jax.Array:
    """Return a key made from another and a text."""
    return jax.random.fold_in(key, int(hashlib.sha256(text.encode()).hexdigest()[:7], 16))


def class_counts(n: int, ratio: float) -> tuple[int, int]:
    """Return the numbers of both classes among n: at least one of each."""
    ones = int(np.clip(round(n * ratio), 1, n - 1))
    return n - ones, ones


class Block(NamedTuple):
    """Some data sets of a configuration: scores (b, n) and (b, m), labels (n,) and (m,).

    All have the same labels: class counts are fixed, and the rows of a class exchangeable. Of the
    data sets the first ``wanted`` count; the others only fill the block.
    """

    x: jax.Array
    y: np.ndarray
    test_x: jax.Array
    test_y: np.ndarray
    #: Arrays (b, ...) that the data were drawn with.
    parameters: dict[str, jax.Array]
    wanted: int


def draw_block(cell: Cell, keys: Keys, wanted: int | None = None) -> Block:
    """Draw a data set for each of the keys, which alone decide about it."""
    y = _labels(*class_counts(cell.n_train, cell.class_ratio))
    test_y = _labels(*class_counts(cell.n_test, 0.5))
    with float64():
        parameters = _parameters(cell.prior, keys.parameters)
        x = _observe(cell.prior.family, parameters, keys.train, jnp.asarray(y))
        test_x = _observe(cell.prior.family, parameters, keys.test, jnp.asarray(test_y))
    return Block(x, y, test_x, test_y, parameters, len(x) if wanted is None else wanted)


def _labels(zeros: int, ones: int) -> np.ndarray:
    return np.repeat([0, 1], [zeros, ones])


@jax.jit
def _parameters(prior: Prior, keys: jax.Array) -> dict[str, jax.Array]:
    def one(key: jax.Array) -> dict[str, jax.Array]:
        return {name: value[0] for name, value in draw(prior, key, 1)[0].items()}

    return jax.vmap(one)(keys)


@partial(jax.jit, static_argnums=0)
def _observe(
    family: Family, parameters: dict[str, jax.Array], keys: jax.Array, y: jax.Array
) -> jax.Array:
    def one(item: tuple[dict[str, jax.Array], jax.Array]) -> jax.Array:
        return family.sample(item[0], y, item[1])

    return jax.lax.map(one, (parameters, keys))


def describe(value: object) -> object:
    """Return options in a form that JSON can hold and that differs where they do."""
    if isinstance(value, dict):
        return {str(key): describe(inside) for key, inside in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [describe(inside) for inside in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)
