"""The work of a sweep, block by block: what a worker is sent, and what it sends back."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.precision import float64
from bayescal.sweeps._cells import Cell, keys_of
from bayescal.sweeps._data import draw_block
from bayescal.sweeps._measure import of_lines, of_log_odds
from bayescal.sweeps._methods import Recipe

#: Data sets of a block. Programs are compiled for this number, and results never depend on it.
SIZE = 125


class Task(NamedTuple):
    """A block of data sets of one configuration, and what is to be computed for them.

    Attributes
    ----------
    cell : Cell
    key : array
        Data of a JAX key, that of the whole sweep.
    first, count : int
        Which data sets.
    recipes : dict of Recipe
    metrics : dict
        Names and options by title.
    """

    cell: Cell
    key: np.ndarray
    first: int
    count: int
    recipes: dict[str, Recipe]
    metrics: dict[str, tuple[str, dict[str, Any]]]


class Result(NamedTuple):
    """What came out.

    Attributes
    ----------
    values : dict of arrays of shape (count, metrics)
        By method.
    status : dict of integer arrays of shape (count,)
        By method.
    seconds : dict of float
        By stage: "data", each method, "metrics".
    """

    values: dict[str, np.ndarray]
    status: dict[str, np.ndarray]
    seconds: dict[str, float]


def run_block(task: Task) -> Result:
    """Draw the data of a block, let each method learn and predict, and measure that.

    The last block of a configuration is filled up with data sets that are then left out: so all
    share the same compiled programs, and a data set's numbers do not depend on how many there are.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    start = time.perf_counter()

    def stop(stage: str) -> None:
        nonlocal start
        now = time.perf_counter()
        seconds[stage] += now - start
        start = now

    key = jax.random.wrap_key_data(jnp.asarray(task.key))
    block = draw_block(task.cell, keys_of(task.cell, key, task.first, SIZE))
    block.test_x.block_until_ready()
    stop("data")
    values, status, shared = {}, {}, {}
    draws = jax.random.fold_in(key, int(task.cell.identity[7:14], 16))
    for name, recipe in task.recipes.items():
        found = recipe.answer(task.cell, block, draws, shared)
        jax.block_until_ready((found.lines, found.log_odds))
        stop(name)
        if found.lines is not None:
            measured = of_lines(task.metrics, found.lines, block.test_x, block.test_y)
        else:
            measured = of_log_odds(task.metrics, found.log_odds, block.test_y)
        values[name] = measured[: task.count]
        status[name] = np.asarray(found.status[: task.count], np.int8)
        stop("metrics")
    return Result(values, status, dict(seconds))


def key_data(key: jax.Array) -> np.ndarray:
    """Return the numbers of a key."""
    with float64():
        return np.asarray(jax.random.key_data(key))
