"""What all calibrators that average over a neighborhood have in common."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from bayescal.calibrators import KNN, Calibrator, Forest, Kernel
from bayescal.calibrators.neighborhood.base import crop_floor, merge
from bayescal.data.order.equal_rows import distinct_rows
from bayescal.data.rows import Rows
from tests.calibrators.brute import example, log_loss, split_into_folds

CROSS_VALIDATED: tuple[Calibrator, ...] = (
    KNN(),
    KNN(distance="euclidean", assumption="labels"),
    Kernel(),
    Kernel("dirichlet_mixture", assumption="labels"),
    Kernel("rbf"),
    Forest(trees=5),
    Forest(trees=5, assumption="labels"),
)


@pytest.mark.parametrize("chosen", CROSS_VALIDATED, ids=repr)
def test_one_row_has_its_own_loss(chosen: Calibrator) -> None:
    state = chosen._fit(Rows(np.array([[0.2, 0.5, 0.3]]), np.array([1]), np.array([2.5])), seed=0)
    np.testing.assert_allclose(state["cv_losses"], -np.log(0.5))
    widest = {"KNN": ("k", 32), "Kernel": ("bandwidth", 102.4), "Forest": ("bins", 1)}
    name, value = widest[type(chosen).__name__]
    assert state[name] == value


@pytest.mark.parametrize("chosen", CROSS_VALIDATED[:5], ids=repr)
def test_cross_validation_is_that_of_refits(chosen: Any) -> None:
    name = "k" if isinstance(chosen, KNN) else "bandwidth"
    p, y, weights = example(180, 3, digits=9)
    state = chosen._fit(Rows(p, y, weights), seed=5)
    candidates, losses = state["candidates"], state["cv_losses"]
    if name == "k":
        assert candidates.tolist() == [32, 64, 128, 256] and 256 <= weights.sum() < 512
    else:
        np.testing.assert_allclose(candidates, 1.6 * 2.0 ** np.arange(6, -10, -1))
    p, y, weights, fold = split_into_folds(p, y, weights)
    for value, loss in list(zip(candidates, losses, strict=True))[:: 1 if name == "k" else 5]:
        refit, result = clone(chosen).set_params(**{name: value.item()}), np.empty_like(p)
        for f in range(10):
            kept = fold != f
            fitted = refit._fit(Rows(p[kept], y[kept], weights[kept]), seed=0)
            result[~kept] = refit.apply(fitted, p[~kept])
        assert loss == pytest.approx(log_loss(result, y, weights), abs=1e-9)
    assert state[name] == candidates[np.argmin(losses)]


def test_crop_by_hand() -> None:
    for classes, crop in ((10, 1e-4), (100, 1e-6), (2, 0.0025)):
        assert crop_floor(None, classes) == pytest.approx(crop)
    # The mean error of the only row moves (0.9, 0.06, 0.04) to (1.5, -0.44, -0.06).
    chosen = KNN(1, crop=0.1)
    state = chosen._fit(Rows(np.array([[0.4, 0.5, 0.1]]), np.array([0]), np.ones(1)), seed=0)
    result = chosen.apply(state, np.array([[0.9, 0.06, 0.04]]))
    np.testing.assert_allclose(result[0], np.array([0.9, 0.1, 0.1]) / 1.1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_are_distinct_as_by_numpy(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (500, 4)).astype(dtype) / 2
    rows[0] = -0.0
    first, index = distinct_rows(rows)
    expected = np.unique(rows, axis=0)
    assert len(first) == len(expected)
    np.testing.assert_array_equal(rows[first][index], rows)
    np.testing.assert_array_equal(np.unique(rows[first], axis=0), expected)
    # The order depends only on the contents of the rows.
    turned, _ = distinct_rows(rows[::-1].copy())
    np.testing.assert_array_equal(rows[::-1][turned], rows[first])


def test_merged_rows_hold_weights_and_shares() -> None:
    p = np.array([[0.5, 0.5], [0.2, 0.8], [0.5, 0.5]])
    points = merge(p, np.array([0, 1, 1]), np.array([1.0, 2, 3]))
    index = int(np.flatnonzero(points.probabilities[:, 0] == 0.5)[0])
    np.testing.assert_allclose(points.weights[index], 4)
    np.testing.assert_allclose(points.observed[index], [0.25, 0.75])
    np.testing.assert_allclose(points.values("errors")[index], [0.25, -0.25])
    np.testing.assert_allclose(points.values("labels")[1 - index], [0, 1])


PROGRAM = """
import numpy as np
from bayescal.calibrators import KNN, Forest, Kernel
from bayescal.data.rows import Rows

rng = np.random.default_rng(0)
p = rng.dirichlet(np.full(50, 0.1), 15_000).astype(np.float32)
y = rng.integers(0, 50, 15_000)
queries = rng.dirichlet(np.full(50, 0.1), 15_000).astype(np.float32)
for chosen in (KNN(512), Kernel(bandwidth=0.1), Forest(64)):
    state = chosen._fit(Rows(p, y, np.ones(15_000)), seed=0)
    assert chosen.apply(state, queries).shape == queries.shape
    (peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(type(chosen).__name__, int(peak.split()[1]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_is_that_of_input_and_output() -> None:
    # All pairs of rows and queries would take 1.8 GB, or half of that in single precision; input
    # and output take 12 MB. A single process suffices, since its peak memory is the maximum over
    # fits.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["KNN", "Kernel", "Forest"]
    assert max(int(line.split()[1]) for line in done.stdout.splitlines()) < 800, done.stdout
