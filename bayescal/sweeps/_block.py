"""Work of a sweep by blocks: the task sent to a worker, and the result that it returns."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import Array
from bayescal._core.execution.hosts import alone
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.optimize import Status
from bayescal.data.predictions import Predictions
from bayescal.metrics.registry import METRICS, OTHER_NAMES, Choices, did_you_mean, find_metric
from bayescal.metrics.sums import Metric, compute
from bayescal.sweeps._cells import Cell, draw_block, fold_in_text, keys_of
from bayescal.sweeps._methods import Recipe

#: Number of data sets in a block. Programs are compiled for this number, which may change results
#: only in the last digits of float64.
SIZE = 125
#: Precision of probabilities, for metrics that take logarithms; log_loss is computed from log odds.
_EPS = 0.0


class Task(NamedTuple):
    """A block of data sets of one configuration, and what to compute for them."""

    cell: Cell
    #: Data and algorithm of the JAX key of the whole sweep.
    key: np.ndarray
    key_impl: str
    #: Index of the first data set, number of them in the block, and number of those that count.
    first: int
    size: int
    wanted: int
    recipes: dict[str, Recipe]
    #: Names and options by title.
    metrics: dict[str, tuple[str, dict[str, object]]]


class Result(NamedTuple):
    """Values (size, metrics) and statuses (size,) by method, and seconds by stage."""

    values: dict[str, np.ndarray]
    status: dict[str, np.ndarray]
    seconds: dict[str, float]


def run_block(task: Task) -> Result:
    """Draw the data of a block; fit, predict and measure each method."""
    seconds: defaultdict[str, float] = defaultdict(float)
    start = time.perf_counter()

    def stop(stage: str) -> None:
        nonlocal start
        now = time.perf_counter()
        seconds[stage] += now - start
        start = now

    values, status, shared = {}, {}, {}
    # The user's setting would change the random numbers, and workers do not know it. Blocks are
    # divided among processes, so within a block nothing is shared between them.
    with jax.threefry_partitionable(True), alone():
        key = jax.random.wrap_key_data(jnp.asarray(task.key), impl=task.key_impl)
        keys = keys_of(task.cell, key, task.first, task.size)
        block = draw_block(task.cell, keys, task.wanted)
        block.test_x.block_until_ready()
        stop("data")
        draws = fold_in_text(key, f"draws {task.cell.sizes}")
        for name, recipe in task.recipes.items():
            answer = recipe.answer(task.cell, block, draws, shared)
            jax.block_until_ready(answer.log_odds)
            stop(name)
            values[name] = measure(task.metrics, answer.log_odds, block.test_y)
            wrong = np.isnan(answer.log_odds).any(axis=1)
            status[name] = np.where(wrong, Status.INVALID, answer.status).astype(np.int8)
            stop("metrics")
    return Result(values, status, dict(seconds))


def make_metric(name: str, options: Mapping[str, object]) -> Metric:
    """Make the metric of one column of probabilities."""
    if name in OTHER_NAMES:
        name, options = find_metric(name, options)
    able = [key for key, entry in METRICS.items() if entry.make and "binary" in entry.shapes]
    if name not in able:
        hint = did_you_mean(name)
        raise ValueError(f"metrics must be among {', '.join(able)}, got {name!r}{hint}")
    make = METRICS[name].make
    assert make is not None
    return make(None, **options)


def measure(chosen: Choices, log_odds: Array, y: np.ndarray) -> np.ndarray:
    """Compute metrics (b, metrics) of log odds (b, m) with labels (m,)."""
    # Compiled programs are distinguished by the metrics.
    made = tuple(
        name if name == "log_loss" and not options else make_metric(name, options)
        for name, options in chosen.values()
    )
    with float64():
        return np.asarray(_measure(made, jnp.asarray(log_odds, float), jnp.asarray(y)))


@partial(jax.jit, static_argnums=0)
def _measure(made: tuple[Metric | str, ...], log_odds: jax.Array, y: jax.Array) -> jax.Array:
    def measure_row(row: jax.Array) -> jax.Array:
        data = Predictions(jax.nn.sigmoid(row), y, jnp.ones(len(y)), _EPS)
        values = [
            jax.nn.softplus(jnp.where(y == 1, -row, row)).mean()
            if isinstance(metric, str)
            else jnp.asarray(compute(metric, data, jnp), float)
            for metric in made
        ]
        # NaN lies in no bin, and would count as no error.
        return jnp.where(jnp.isnan(row).any(), jnp.nan, jnp.stack(values))

    return jax.lax.map(measure_row, log_odds)


def key_data(key: jax.Array) -> np.ndarray:
    """Return the numbers of a key."""
    with float64():
        return np.asarray(jax.random.key_data(key))
