"""Runs of a sweep's blocks by an executor, with a store from which they can be resumed."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from functools import partial
from importlib.metadata import version
from queue import SimpleQueue

import numpy as np

from bayescal._core.display.progress import Progress
from bayescal._core.execution.hosts import are_shared, gather
from bayescal._core.execution.threads import core_count
from bayescal._core.lazy import jax
from bayescal.sweeps._block import SIZE, Result, Task, key_data, run_block
from bayescal.sweeps._cells import Cell, describe, digest_of
from bayescal.sweeps._methods import Recipe
from bayescal.sweeps._store import Store

Folder = str | os.PathLike[str]
#: A configuration by prior, training size and proportion of class 1.
Name = tuple[str, int, float]
#: Name and configuration, and the index of the first data set.
_Block = tuple[Name, Cell, int]
#: Arrays by configuration and method.
_ByName = dict[Name, dict[str, np.ndarray]]


class Run:
    """All blocks of some configurations, with ``num_datasets`` data sets each."""

    def __init__(
        self,
        cells: Mapping[Name, Cell],
        recipes: Mapping[str, Recipe],
        metrics: Mapping[str, tuple[str, dict[str, object]]],
        num_datasets: int,
        key: jax.Array,
    ) -> None:
        self._recipes, self._metrics = dict(recipes), dict(metrics)
        self._version, self._num_datasets = version("bayescal"), num_datasets
        self._key, self._key_impl = key_data(key), str(jax.random.key_impl(key))

        def filled(value: float | np.int8, *shape: int) -> _ByName:
            return {name: {method: np.full(shape, value) for method in recipes} for name in cells}

        self.values = filled(np.nan, num_datasets, len(self._metrics))
        self.status = filled(np.int8(-1), num_datasets)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        # All blocks are full, even the last of a configuration. Thus they share compiled programs,
        # numbers do not depend on the number of data sets, and longer runs reuse the blocks of
        # shorter ones. Methods that work one by one skip the data sets that only fill a block.
        self._blocks = [
            (name, cell, first)
            for name, cell in cells.items()
            for first in range(0, num_datasets, SIZE)
        ]

    def finish(
        self, executor: Executor | None, folder: Folder | None, report: Progress | None
    ) -> None:
        """Compute what the store does not contain; errors are those of :func:`bayescal.sweep`."""
        if not are_shared():
            self._finish(self._blocks, executor, folder, report)
            return
        # Processes of one computation take blocks in turns.
        local = self._blocks[jax.process_index() :: jax.process_count()]

        def compute() -> tuple[_ByName, _ByName]:
            self._finish(local, executor, folder, report)
            return self.values, self.status

        # Compare only the names of methods and metrics, since their definitions may not compare.
        names = list(self.values), list(self._recipes), list(self._metrics)
        for values, status in gather(compute, (names, self._key, self._num_datasets)):
            for name, method in itertools.product(values, self._recipes):
                computed = status[name][method] >= 0
                self.values[name][method][computed] = values[name][method][computed]
                self.status[name][method][computed] = status[name][method][computed]

    def _finish(
        self,
        blocks: Sequence[_Block],
        executor: Executor | None,
        folder: Folder | None,
        report: Progress | None,
    ) -> None:
        todo, store = [], None if folder is None else Store(folder)
        for block in blocks:
            recipes = {name: self._recipes[name] for name in self._recall(block, store)}
            if recipes:
                _, cell, first = block
                wanted = min(SIZE, self._num_datasets - first)
                key = self._key, self._key_impl
                task = Task(cell, *key, first, SIZE, wanted, recipes, self._metrics)
                todo.append((block, task))
        _check(executor, [task for _, task in todo])
        if todo and store is not None:
            store.prepare()
        done, total = len(blocks) - len(todo), len(blocks)
        if report:
            report("data sets", done, total)
        waiting: dict[Future[Result], _Block] = {}
        with _workers(executor) as submit:
            try:
                for block, task in todo:
                    waiting[submit(task)] = block
                for future in as_completed(tuple(waiting)):
                    block = waiting.pop(future)
                    self._keep(block, future.result(), store)
                    done += 1
                    if report:
                        report(f"{block[0]}", done, total)
            except BaseException as error:
                # Cancel what has not begun, the last first, before writing anything, because
                # workers go on meanwhile. Keep the blocks that finished.
                begun = [pair for pair in reversed(waiting.items()) if not pair[0].cancel()]
                for future, block in begun:
                    if future.done() and not future.exception():
                        kept_in = None if isinstance(error, OSError) else store
                        self._keep(block, future.result(), kept_in)
                if _is_lost(error, executor):
                    raise BrokenExecutor(_remedy(error, store)) from error
                raise

    def _recall(self, block: _Block, store: Store | None) -> list[str]:
        """Read stored results of a block; return the methods without any."""
        missing = []
        for method in self._recipes:
            kept = None if store is None else store.get(self._question(block, method))
            if kept is None:
                missing.append(method)
            else:
                self._set(block, method, kept["values"], kept["status"])
        return missing

    def _keep(self, block: _Block, result: Result, store: Store | None) -> None:
        for method, values in result.values.items():
            status = result.status[method]
            self._set(block, method, values, status)
            if store is not None:
                store.put(self._question(block, method), {"values": values, "status": status})
        for stage, seconds in result.seconds.items():
            self.seconds[stage] += seconds

    def _set(self, block: _Block, method: str, values: np.ndarray, status: np.ndarray) -> None:
        name, _, first = block
        for all_, array in ((self.values, values), (self.status, status)):
            part = all_[name][method][first : first + SIZE]
            part[:] = array[: len(part)]

    def _question(self, block: _Block, method: str) -> dict[str, object]:
        _, cell, first = block
        recipe = self._recipes[method]
        count = min(SIZE, self._num_datasets - first) if recipe.one_by_one else SIZE
        return {
            "bayescal": self._version,
            "prior": digest_of(cell.prior),
            "n_train": cell.n_train,
            "class_ratio": cell.class_ratio,
            "n_test": cell.n_test,
            "key": [self._key_impl, self._key.tolist()],
            "data sets": [first, count],
            "method": recipe.identity,
            "metrics": describe(list(self._metrics.values())),
        }


@contextlib.contextmanager
def _workers(executor: Executor | None) -> Iterator[Callable[[Task], Future[Result]]]:
    """Yield a function that starts a task on the user's executor, or on all local devices."""
    if executor is not None:
        yield partial(executor.submit, run_block)
        return
    devices = jax.local_devices()
    # Fits on the host and small programs leave a processor's other cores idle.
    per_device = max(1, core_count() // len(devices)) if devices[0].platform == "cpu" else 1
    free: SimpleQueue[object] = SimpleQueue()
    for device in devices * per_device:
        free.put(device)

    def on_free_device(task: Task) -> Result:
        device = free.get()
        try:
            with jax.default_device(device):
                return run_block(task)
        finally:
            free.put(device)

    pool = ThreadPoolExecutor(len(devices) * per_device)
    try:
        yield partial(pool.submit, on_free_device)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _check(executor: Executor | None, tasks: Sequence[Task]) -> None:
    """Reject pools of processes that would hang or cannot be sent the tasks."""
    if not isinstance(executor, ProcessPoolExecutor):
        return
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        # JAX uses threads, which a fork does not copy.
        raise ValueError(
            "executor must not fork processes, as JAX has threads: pass "
            'ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"))'
        )
    for task in tasks:
        parts = {f"method {name!r}": recipe for name, recipe in task.recipes.items()}
        for name, part in {"the prior": task.cell.prior, **parts}.items():
            try:
                pickle.dumps(part)
            except Exception as error:
                raise TypeError(
                    f"{name} must be picklable to be sent to other processes, got {error}; define "
                    "its functions at the top of a module, not as lambdas or inside others"
                ) from error


def _is_lost(error: BaseException, executor: Executor | None) -> bool:
    """Whether a worker failed, rather than the work; then the executor's package raised."""

    def home(value: object) -> str:
        return type(value).__module__.partition(".")[0]

    if isinstance(error, BrokenExecutor | CancelledError):
        return True
    return executor is not None and home(error) == home(executor) != "__main__"


def _remedy(error: BaseException, store: Store | None) -> str:
    kept = (
        "nothing was kept; pass store=<folder>, and a later run goes on from where one ended"
        if store is None
        else f"finished blocks are in {store.folder}: run again with the same store to go on"
    )
    return (
        f"executor lost a worker ({type(error).__name__}: {error}). It was killed, perhaps for "
        "lack of memory; or it could not start or import what it was sent, as happens to functions "
        f'that are not in a module, and to scripts without `if __name__ == "__main__":`. {kept}'
    )
