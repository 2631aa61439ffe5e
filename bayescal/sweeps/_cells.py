"""Configurations of a sweep, the random keys of their data sets, and the data drawn from them."""

from __future__ import annotations

import hashlib
import inspect
import json
from functools import partial
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyModel, Array
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal.models import Family, Prior
from bayescal.models.prior import draw, is_distribution
from bayescal.sweeps._identity import describe_array, digest_of_captured, digest_of_value

#: Attributes of distributions that contain other distributions.
_INSIDE = "base_dist", "transforms", "mixing_distribution", "component_distribution"
#: Attributes of transforms that contain other transforms.
_TRANSFORMS_INSIDE = "parts", "base_transform"


class Cell(NamedTuple):
    """One configuration: the prior of the data, and the numbers of rows.

    ``class_ratio`` is the proportion of class 1 in the training data; test data are balanced.
    """

    prior: Prior
    n_train: int
    class_ratio: float
    n_test: int

    @property
    def sizes(self) -> str:
        """What distinguishes training sets of this configuration from others with its prior."""
        return f"{self.n_train} {self.class_ratio!r}"


class DataSetKeys(NamedTuple):
    """Random keys of data sets, each of shape (b,)."""

    parameters: jax.Array
    train: jax.Array
    test: jax.Array


def digest_of(prior: Prior) -> str:
    """Compute a digest of everything that defines a prior, the same in every process."""
    facts = [type(prior.family).__name__, *prior.family.parameters, _described(prior.values)]
    model = prior.model
    if model is not None:
        try:
            source = inspect.getsource(model.__code__)  # not that of a function it wraps
            if source.count("lambda") > 1:
                source += digest_of_value(model)  # all of them have this source
        except (AttributeError, OSError, TypeError):
            # An object with __call__, a partial function, or a function that was typed in.
            source = digest_of_value(model)
        facts += [source, digest_of_captured(model)]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _described(value: object) -> object:
    """Describe a number, a distribution or a transform by names and numbers."""
    if isinstance(value, dict):
        return {str(name): _described(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_described(part) for part in value]
    if is_distribution(value):
        # Not all attributes, because distributions cache computed values there.
        names = [*getattr(value, "arg_constraints", {}), *_INSIDE]
        inside = {name: getattr(value, name, None) for name in names}
        if parts := getattr(value, "component_distributions", None):
            inside["component_distributions"] = parts
        shapes = list(value.batch_shape), list(value.event_shape)
        return [type(value).__name__, *shapes, _described(inside)]
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "tree_flatten"):
        kind, leaves = type(value).__name__, [_described(leaf) for leaf in jax.tree.leaves(value)]
        # The numbers of transforms inside another one do not tell of which kind they are.
        inside = {name: getattr(value, name) for name in _TRANSFORMS_INSIDE if hasattr(value, name)}
        if kind == "_InverseTransform":
            inside = {"inv": value.inv}  # type: ignore[attr-defined]
        return [kind, leaves, _described(inside)] if inside else [kind, leaves]
    return np.asarray(value, np.float64).tolist()


def keys_of(cell: Cell, key: jax.Array, first: int, count: int) -> DataSetKeys:
    """Make the keys of the data sets from number ``first`` on.

    They depend on the configuration and the number, not on the position among other configurations,
    so that a larger sweep contains the numbers of a smaller one. For a given number, parameters and
    test data are the same for all sizes and ratios of training sets, which removes noise from their
    comparison.
    """
    prior_key = fold_in_text(key, digest_of(cell.prior))

    def keys_of_number(number: Array) -> DataSetKeys:
        parameters, train, test = jax.random.split(jax.random.fold_in(prior_key, number), 3)
        return DataSetKeys(parameters, fold_in_text(train, cell.sizes), test)

    with float64():
        return jax.vmap(keys_of_number)(np.arange(first, first + count))


def fold_in_text(key: jax.Array, text: str) -> jax.Array:
    """Make a key from another key and a text."""
    return jax.random.fold_in(key, int(hashlib.sha256(text.encode()).hexdigest()[:7], 16))


def class_counts(n: int, ratio: float) -> tuple[int, int]:
    """Return the numbers of both classes among n rows, at least one of each."""
    ones = int(np.clip(round(n * ratio), 1, n - 1))
    return n - ones, ones


class DataSetBlock(NamedTuple):
    """Data sets of a configuration: scores (b, n) and (b, m), labels (n,) and (m,).

    All have the same labels, since class counts are fixed and the rows of a class exchangeable.
    Only the first ``wanted`` data sets count; the others fill the block.
    """

    x: jax.Array
    y: np.ndarray
    test_x: jax.Array
    test_y: np.ndarray
    #: Arrays (b, ...) of the parameters of the data sets.
    parameters: dict[str, jax.Array]
    wanted: int


def draw_block(cell: Cell, keys: DataSetKeys, wanted: int | None = None) -> DataSetBlock:
    """Draw a data set for each key; the result depends on nothing else."""
    y = np.repeat([0, 1], class_counts(cell.n_train, cell.class_ratio))
    test_y = np.repeat([0, 1], class_counts(cell.n_test, 0.5))
    with float64():
        parameters = _parameters(cell.prior, keys.parameters)
        x = _observe(cell.prior.family, parameters, keys.train, jnp.asarray(y))
        test_x = _observe(cell.prior.family, parameters, keys.test, jnp.asarray(test_y))
    return DataSetBlock(x, y, test_x, test_y, parameters, len(x) if wanted is None else wanted)


@jax.jit
def _parameters(prior: Prior, keys: jax.Array) -> dict[str, jax.Array]:
    def draw_parameters(key: jax.Array) -> dict[str, jax.Array]:
        return {name: value[0] for name, value in draw(prior, key, 1)[0].items()}

    return jax.vmap(draw_parameters)(keys)


@partial(jax.jit, static_argnums=0)
def _observe(
    family: Family, parameters: dict[str, jax.Array], keys: jax.Array, y: jax.Array
) -> jax.Array:
    return jax.lax.map(lambda item: family.sample(item[0], y, item[1]), (parameters, keys))


def describe(value: object) -> object:
    """Convert options to a form that JSON can represent and that differs if they do."""
    if isinstance(value, dict):
        return {str(key): describe(inside) for key, inside in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [describe(inside) for inside in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_distribution(value):
        return _described(value)
    if isinstance(value, np.ndarray | jax.Array) and value.dtype != object:
        return describe_array(np.asarray(value))
    if hasattr(value, "get_params") and not isinstance(value, type):
        return describe_estimator(value)
    if isinstance(value, complex | np.generic):
        return repr(value)
    return [type(value).__qualname__, digest_of_value(value)]


def describe_estimator(estimator: AnyModel) -> list[object]:
    """Describe an estimator by its class and its options, as :func:`describe` does."""
    cls = type(estimator)
    return [f"{cls.__module__}.{cls.__qualname__}", describe(estimator.get_params())]
