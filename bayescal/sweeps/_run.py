"""Blocks run by an executor, kept in a store, and resumed."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from bayescal.sweeps._block import SIZE, Result, Task, key_data, run_block
from bayescal.sweeps._cells import Cell, describe, digest_of
from bayescal.sweeps._methods import Recipe
from bayescal.sweeps._store import Store

Report = Callable[[str, int, int], None]


class Run:
    """All blocks of some configurations.

    Parameters
    ----------
    cells : dict of Cell
        By any name.
    recipes : dict of Recipe
    metrics : dict
        Names and options by title.
    num_datasets : int
        For each configuration.
    key : JAX key
    """

    def __init__(
        self,
        cells: Mapping[Any, Cell],
        recipes: Mapping[str, Recipe],
        metrics: Mapping[str, tuple[str, dict[str, Any]]],
        num_datasets: int,
        key: jax.Array,
    ) -> None:
        self._recipes, self._metrics = dict(recipes), dict(metrics)
        self._key = key_data(key)
        shape = num_datasets, len(self._metrics)
        self.values = {
            name: {method: np.full(shape, np.nan) for method in recipes} for name in cells
        }
        self.status = {
            name: {method: np.full(num_datasets, -1, np.int8) for method in recipes}
            for name in cells
        }
        self.seconds: defaultdict[str, float] = defaultdict(float)
        starts = range(0, num_datasets, SIZE)
        self._blocks = [
            (name, cell, first, min(SIZE, num_datasets - first))
            for name, cell in cells.items()
            for first in starts
        ]

    def finish(self, executor: Executor | None, store: Store | None, report: Report | None) -> None:
        """Compute what the store does not hold."""
        todo = []
        for number, block in enumerate(self._blocks):
            task = self._task(block, self._recall(block, store))
            # Processes of one computation share the work by turns.
            if task.recipes and number % jax.process_count() == jax.process_index():
                todo.append((block, task))
        done, total = len(self._blocks) - len(todo), len(self._blocks)
        if report:
            report("data sets", done, total)
        with _workers(executor) as submit:
            waiting = {submit(task): block for block, task in todo}
            try:
                for future in as_completed(waiting):
                    block = waiting.pop(future)
                    self._keep(block, future.result(), store)
                    done += 1
                    if report:
                        report(f"{block[0]}", done, total)
            except BaseException:
                for future in waiting:
                    future.cancel()
                raise
        if jax.process_count() > 1:
            self._gather()

    def _task(self, block: Any, missing: Sequence[str]) -> Task:
        _, cell, first, count = block
        recipes = {name: self._recipes[name] for name in missing}
        return Task(cell, self._key, first, count, recipes, self._metrics)

    def _recall(self, block: Any, store: Store | None) -> list[str]:
        """Take what the store has of a block; return the methods it lacks."""
        missing = []
        for method in self._recipes:
            kept = None if store is None else store.get(self._question(block, method))
            if kept is None:
                missing.append(method)
            else:
                self._set(block, method, kept["values"], kept["status"])
        return missing

    def _keep(self, block: Any, found: Result, store: Store | None) -> None:
        for method, values in found.values.items():
            status = found.status[method]
            self._set(block, method, values, status)
            if store is not None:
                store.put(self._question(block, method), {"values": values, "status": status})
        for stage, seconds in found.seconds.items():
            self.seconds[stage] += seconds

    def _set(self, block: Any, method: str, values: np.ndarray, status: np.ndarray) -> None:
        name, _, first, count = block
        part = slice(first, first + count)
        self.values[name][method][part] = values
        self.status[name][method][part] = status

    def _question(self, block: Any, method: str) -> dict[str, Any]:
        _, cell, first, count = block
        return {
            "bayescal": version("bayescal"),
            "prior": digest_of(cell.prior),
            "n_train": cell.n_train,
            "class_ratio": cell.class_ratio,
            "n_test": cell.n_test,
            "key": self._key.tolist(),
            "data sets": [first, count],
            "method": self._recipes[method].identity,
            "metrics": describe(list(self._metrics.values())),
        }

    def _gather(self) -> None:
        """Bring together what the processes of one computation have found."""
        from jax.experimental.multihost_utils import process_allgather

        for name, methods in self.values.items():
            for method, values in methods.items():
                # Whole words of single bits, since JAX would narrow float64.
                every = process_allgather(values.view(np.uint32))
                parts = np.asarray(every).view(np.float64).reshape(-1, *values.shape)
                status = np.asarray(process_allgather(self.status[name][method]))
                for own, ended in zip(parts, status.reshape(-1, len(values)), strict=True):
                    there = ended >= 0
                    values[there] = own[there]
                    self.status[name][method][there] = ended[there]


@contextlib.contextmanager
def _workers(executor: Executor | None) -> Iterator[Callable[[Task], Future[Result]]]:
    """Yield a function that starts a task: on the user's executor, or on all devices here."""
    if executor is not None:
        yield partial(executor.submit, run_block)
        return
    devices = jax.local_devices()
    lanes = os.cpu_count() or 1 if len(devices) == 1 and devices[0].platform == "cpu" else 1
    pools = [ThreadPoolExecutor(lanes) for _ in devices]
    turn = 0

    def submit(task: Task) -> Future[Result]:
        nonlocal turn
        place = turn % len(devices)
        turn += 1
        return pools[place].submit(_on_device, devices[place], task)

    try:
        yield submit
    finally:
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)


def _on_device(device: Any, task: Task) -> Result:
    with jax.default_device(device):
        return run_block(task)
