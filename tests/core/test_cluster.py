"""Fits on a Dask cluster equal in-memory fits, also when workers are lost."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bayescal as bc

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
array = pytest.importorskip("dask.array")
frames = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(280),
    # Killed processes leak semaphores.
    pytest.mark.filterwarnings("ignore:.*leaked semaphore:UserWarning"),
]

MB = 1 << 20
#: Memory limit of a worker; bayescal's libraries take about 400 MB of it.
LIMIT = 700 * MB
#: A chunk of 16 MB has few score columns; all chunks together have 768 MB.
ROWS, COLUMNS, CHUNKS = 10_000, 200, 48
#: Number of different chunks, so that the in-memory fit needs few rows with large weights.
KINDS = 6


def make_rows(seed: int, classes: int = 2) -> np.ndarray:
    """Draw an array (ROWS, COLUMNS) of score columns, a label column, and unused columns."""
    rng = np.random.default_rng(seed)
    rows = np.full((ROWS, COLUMNS), float(seed))
    z = 2 * rng.normal(size=(ROWS, classes))
    rows[:, :classes] = z
    rows[:, classes] = np.argmax(0.5 * z + rng.gumbel(size=z.shape) + np.arange(classes), axis=1)
    return rows


def make_probs(seed: int) -> np.ndarray:
    """Draw an array (ROWS, COLUMNS) of probabilities, binary labels, and unused columns."""
    rows = make_rows(seed)
    rows[:, 0] = 1 / (1 + np.exp(rows[:, 0] - rows[:, 1]))
    rows[:, 1] = rows[:, 2]
    return rows


def make_frame(seed: int) -> Any:
    rows = make_probs(seed)
    return pd.DataFrame(rows, columns=["p", "y", *(f"other{j}" for j in range(COLUMNS - 2))])


def make_lazy(make: Any, chunks: int = CHUNKS) -> Any:
    parts = [dask.delayed(make)(number % KINDS) for number in range(chunks)]
    return array.concatenate([array.from_delayed(part, (ROWS, COLUMNS), float) for part in parts])


def in_memory(make: Any) -> np.ndarray:
    return np.concatenate([make(seed) for seed in range(KINDS)])


def repeated_weights(n: int) -> np.ndarray:
    return np.full(n, CHUNKS / KINDS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2,
            processes=True,
            threads_per_worker=1,
            memory_limit=LIMIT,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=str(tmp_path_factory.mktemp("workers")),
        ) as made,
    ):
        yield made


@pytest.fixture
def client(cluster: Any, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    caplog.set_level(logging.CRITICAL)
    with distributed.Client(cluster) as made:
        made.wait_for_workers(2, timeout=60)
        yield made
        # No futures remain after a fit, once errors and reference cycles are gone. Dask's own
        # thread releases the future of an error slightly later.
        end = time.monotonic() + 10
        while made.futures and time.monotonic() < end:
            gc.collect()
            time.sleep(0.05)
        assert not made.futures
    deadline = time.monotonic() + 20
    while cluster.scheduler.tasks and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not cluster.scheduler.tasks


class Watch(threading.Thread):
    """Records the peak memory of workers."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__(daemon=True)
        self.pids, self.most, self.over = pids, 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            for pid in self.pids:
                self.most = max(self.most, resident(pid))

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()


def resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    result = [line for line in lines if line.startswith("VmRSS")]
    return int(result[0].split()[1]) * 1024 if result else 0


AT = np.linspace(0, 1, 101)


def test_more_rows_than_a_worker_can_hold(client: Any) -> None:
    rows = make_lazy(make_probs)
    assert rows.nbytes > LIMIT
    steps: list[tuple[int, int, int | None]] = []
    blocks = bc.Blocks.of(rows[:, 0], rows[:, 1], progress=lambda *step: steps.append(step))
    with Watch([*client.run(os.getpid).values()]) as watch:
        cut = bc.Beta().fit(blocks)
    local = in_memory(make_probs)
    whole = bc.Beta().fit(local[:, 0], local[:, 1], repeated_weights(len(local)))
    np.testing.assert_allclose(cut.predict_proba(AT), whole.predict_proba(AT), atol=1e-9, rtol=0)
    assert steps == [(number, CHUNKS, CHUNKS) for number in range(blocks.passes)]
    if Path("/proc/self/status").exists():
        assert 100 * MB < watch.most < LIMIT


def test_data_frames(client: Any) -> None:
    frame = frames.from_delayed(
        [dask.delayed(make_frame)(number % KINDS) for number in range(CHUNKS)],
        meta=make_frame(0).iloc[:0],
    )
    cut = bc.Temperature().fit(frame[["p", "y"]], "y")
    local = in_memory(make_probs)
    whole = bc.Temperature().fit(local[:, 0], local[:, 1], repeated_weights(len(local)))
    result = cut.predict_proba(pd.DataFrame({"p": AT}))
    np.testing.assert_allclose(result, whole.predict_proba(AT), atol=1e-9, rtol=0)


def make_or_die(flag: Path, number: int) -> np.ndarray:
    """Return rows, but kill the worker once for one of the chunks."""
    if number == 9 and flag.exists():
        flag.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return make_probs(number % KINDS)


def test_a_worker_is_killed(client: Any, tmp_path: Path) -> None:
    flag, workers = tmp_path / "flag", {*client.run(os.getpid).values()}
    chunks = [dask.delayed(make_or_die)(flag, number) for number in range(12)]
    rows = array.concatenate(
        [array.from_delayed(chunk, (ROWS, COLUMNS), float) for chunk in chunks]
    )
    # The local array exists only on the workers once it is sent.
    y = np.concatenate([make_probs(number % KINDS)[:, 1] for number in range(12)])
    undisturbed = bc.Beta().fit(rows[:, 0], y)

    def endanger(passed: int, done: int, count: int | None) -> None:
        if passed == 0:
            flag.touch()

    killed = bc.Beta().fit(bc.Blocks.of(rows[:, 0], y, progress=endanger))
    assert not flag.exists()
    client.wait_for_workers(2, timeout=60)
    assert len(workers & {*client.run(os.getpid).values()}) < 2
    np.testing.assert_array_equal(killed.state_["theta"], undisturbed.state_["theta"])


def test_persisted_collections_and_lazy_predictions(client: Any) -> None:
    rows = make_lazy(make_probs, KINDS)[:, :2].persist()
    cut = bc.Beta().fit(rows[:, 0], rows[:, 1])
    local = in_memory(make_probs)
    whole = bc.Beta().fit(local[:, 0], local[:, 1])
    np.testing.assert_allclose(cut.predict_proba(AT), whole.predict_proba(AT), atol=1e-9, rtol=0)
    kept = len(client.futures)
    result = cut.predict_proba(rows[:, 0])
    assert isinstance(result, array.Array) and result.shape == (KINDS * ROWS, 2)
    assert len(client.futures) == kept  # nothing is computed yet
    # Results stay on the workers that compute them.
    persisted = result.persist()
    distributed.wait(persisted)
    assert all(client.who_has(persisted).values())
    np.testing.assert_array_equal(persisted.compute(), cut.predict_proba(local[:, 0]))


def fail(number: int) -> np.ndarray:
    rows = make_probs(number)
    if number == 4:
        rows[7, 0] = 1.5
    return rows


def test_a_failing_block_says_its_number(client: Any) -> None:
    rows = make_lazy(fail, KINDS)
    with pytest.raises(ValueError, match=r"block 4: .*must lie in"):
        bc.Beta().fit(rows[:, 0], rows[:, 1])
    fitted = bc.Beta().fit(make_probs(0)[:, 0], make_probs(0)[:, 1])
    with pytest.raises(ValueError, match=r"block 4: .*must lie in"):
        fitted.predict_proba(rows[:, 0]).compute()
