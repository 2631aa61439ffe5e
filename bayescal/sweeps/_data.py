"""Training and test data of many data sets, drawn in one program."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.precision import float64
from bayescal.models import Family, Prior
from bayescal.models.prior import draw
from bayescal.sweeps._cells import Cell, Keys, class_counts


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
