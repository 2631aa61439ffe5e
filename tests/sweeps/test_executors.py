"""Sweeps on executors: equal numbers on all of them, and recovery from lost workers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import transforms

import bayescal as bc
from bayescal.sweeps import _run
from bayescal.sweeps._block import Task, run_block
from bayescal.sweeps._cells import digest_of
from tests.core.processes import run_together

SCALE = dist.TransformedDistribution(
    dist.Normal(0.0, 0.1), [transforms.AffineTransform(0.5, 1.0), transforms.ExpTransform()]
)
PRIOR = bc.GaussianPrior(mu0=dist.Uniform(-1, 0), mu1=dist.Uniform(0, 1), sigma=SCALE)


class Inline(Executor):
    """Runs each task where it is submitted, with the settings of the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class LostError(Exception):
    """The error that :class:`Losing` raises."""


class Losing(Executor):
    """Loses the worker of the first task when all but the last are done."""

    def __init__(self) -> None:
        self.begun = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.begun += 1
        if self.begun == 1:
            future.set_exception(LostError("worker 7 is gone"))
        elif self.begun < 20:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "SIZE", 4)


def sweep(**options: Any) -> np.ndarray:
    given = {"n_train": 8, "methods": ["optimal"], "num_datasets": 14, "n_test": 40, **options}
    return bc.sweep(PRIOR, **{"progress": False, **given}).value.values


def zeros(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
    return np.zeros(len(points))


CALLS = []


def deadly(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Kill this process once, at its third block."""
    CALLS.append(len(CALLS))
    flag = Path(os.environ["BAYESCAL_TEST_FLAG"])
    if len(CALLS) > 8 and flag.exists():
        flag.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return points - y.mean()


def spawn_pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.slow
def test_settings_of_jax_change_nothing() -> None:
    """Check other settings than promotion, whose default tests/sweeps/test_devices.py covers."""
    options: dict[str, Any] = {"methods": ["optimal", "normal", "preds"], "num_datasets": 4}
    expected = sweep(**options)
    with jax.enable_x64(True), jax.threefry_partitionable(False):
        np.testing.assert_array_equal(sweep(executor=Inline(), **options), expected)


@pytest.mark.slow
def test_priors_are_the_same_elsewhere(compilations: Callable[[], Any]) -> None:
    """Check that a copy from another process has an equal digest and shares programs."""
    copied = pickle.loads(pickle.dumps(PRIOR))
    assert digest_of(copied) == digest_of(PRIOR)
    assert jax.tree.structure(copied) == jax.tree.structure(PRIOR)
    sent: list[Task] = []

    class Sending(Inline):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            sent.append(args[0])
            return super().submit(fn, *args, **kwargs)

    sweep(methods=["optimal", "normal", "preds"], num_datasets=4, executor=Sending())
    with compilations() as result:
        run_block(pickle.loads(pickle.dumps(sent[0])))
    assert not result


@pytest.mark.slow
def test_pool_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    monkeypatch.setenv("BAYESCAL_TEST_FLAG", str(flag))
    options: dict[str, Any] = {"methods": {"optimal": "optimal", "deadly": deadly}}
    with spawn_pool() as pool, pytest.raises(BrokenExecutor, match="run again with the same") as e:
        sweep(executor=pool, store=tmp_path / "store", **options)
    assert "lost a worker" in str(e.value) and str(tmp_path / "store") in str(e.value)
    # Blocks that the lost worker finished are kept.
    assert len(list((tmp_path / "store").glob("*.npz"))) == 4
    done: list[int] = []
    with spawn_pool() as pool:
        result = sweep(
            executor=pool,
            store=tmp_path / "store",
            progress=lambda *a: done.append(a[1]),
            **options,
        )
    assert done[0] == 2
    np.testing.assert_array_equal(result, sweep(**options))


def test_what_cannot_be_sent() -> None:
    methods = {"zeros": zeros, "ours": lambda x, y, points: points}
    with (
        spawn_pool() as pool,
        pytest.raises(TypeError, match="method 'ours' must be picklable .* top of a module"),
    ):
        sweep(methods=methods, executor=pool)


def test_forked_processes_are_refused() -> None:
    fork = multiprocessing.get_context("fork")
    with (
        ProcessPoolExecutor(1, mp_context=fork) as pool,
        pytest.raises(ValueError, match="must not fork .*spawn"),
    ):
        sweep(executor=pool)


@pytest.mark.slow
def test_errors_of_an_executor_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(BrokenExecutor, match="LostError: worker 7 is gone.*nothing was kept"):
        sweep(executor=Losing())
    options: dict[str, Any] = {"num_datasets": 80, "store": tmp_path}
    with pytest.raises(BrokenExecutor, match="run again with the same store"):
        sweep(executor=Losing(), **options)
    # Blocks that other workers finished are kept.
    done: list[int] = []
    sweep(progress=lambda *a: done.append(a[1]), **options)
    assert done[0] == 18


def test_processes_take_blocks_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = sweep()
    begun: list[tuple[int, int]] = []
    real = _run.run_block

    def counted(task: Task) -> Any:
        begun.append((jax.process_index(), task.first))
        return real(task)

    monkeypatch.setattr(_run, "run_block", counted)
    results = run_together(monkeypatch, lambda _: sweep())
    for result in results:
        np.testing.assert_array_equal(result, expected)
    # 14 data sets in blocks of four; each simulated process runs twice.
    assert sorted(begun) == sorted([(0, 0), (0, 12), (1, 4), (2, 8)] * 2)


def test_errors_of_a_method_are_its_own(tmp_path: Path) -> None:
    def fail(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
        raise ArithmeticError("too hard")

    for executor in (None, Inline()):
        with pytest.raises(ArithmeticError, match="too hard"):
            sweep(methods={"fail": fail}, executor=executor)


def test_interrupted_runs_begin_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    real = _run.run_block

    def counted(task: Task) -> Any:
        begun.append(task.first)
        return real(task)

    def interrupt(name: str, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(_run, "run_block", counted)
    monkeypatch.setattr(_run, "core_count", lambda: 1)
    options: dict[str, Any] = {"num_datasets": 400, "store": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        sweep(progress=interrupt, **options)
    first = len(begun)
    assert first < 100
    result = sweep(**options)
    # At most one block in progress was lost.
    assert 100 <= len(begun) <= 101
    np.testing.assert_array_equal(result, sweep(num_datasets=400))


@pytest.mark.slow
# The killed process leaks semaphores.
@pytest.mark.filterwarnings("ignore:.*leaked semaphore:UserWarning")
def test_dask_loses_a_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    distributed = pytest.importorskip("distributed")
    caplog.set_level(logging.CRITICAL)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path)
    )
    with cluster, distributed.Client(cluster) as client:
        workers = list(client.run(os.getpid).values())

        def kill(name: str, done: int, total: int) -> None:
            if done == 3:
                os.kill(workers[0], signal.SIGKILL)

        options: dict[str, Any] = {"num_datasets": 200}
        result = sweep(executor=client.get_executor(), progress=kill, **options)
        assert workers[0] not in client.run(os.getpid).values()
    np.testing.assert_array_equal(result, sweep(**options))
