"""Scores of a linear SVM on real tables: calibration must lower the log loss."""

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "benchmarks" / "real_scores.py"
RECORDED = ROOT / "benchmarks" / "results" / "real_scores.json"
METHODS = ("uncalibrated", "predictive")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("real_scores", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.realdata
@pytest.mark.slow
def test_predictive_beats_uncalibrated_scores(script: ModuleType, shared_data: Path) -> None:
    paths = script.tables(shared_data)
    assert len(paths) == 19
    # Faster than the quadrature of the recorded results, and an independent check.
    options = {"integrator": "importance", "num_samples": 20_000}
    results = [script.evaluate(path, METHODS, **options) for path in paths]
    summary = script.summarize(results, METHODS)
    wins = summary["lower_log_loss_than"]["uncalibrated"]["predictive"]
    losers = [
        result["table"]
        for result in results
        if result["log_loss"]["predictive"] >= result["log_loss"]["uncalibrated"]
    ]
    assert wins == len(paths) - len(losers)
    assert wins >= math.ceil(0.9 * len(paths)), losers
    for metric, means in summary["mean"].items():
        assert means["predictive"] < means["uncalibrated"], metric

    # The recorded results match this code: 1e-3 is far above the Monte Carlo error.
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert [result["table"] for result in recorded["results"]] == [r["table"] for r in results]
    for old, new in zip(recorded["results"], results, strict=True):
        for method in METHODS:
            assert new["log_loss"][method] == pytest.approx(old["log_loss"][method], abs=1e-3)


def test_platt_minimizes_the_cross_entropy_to_its_targets(script: ModuleType) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [30, 12])
    scores, points = rng.normal(y, 1.0), np.linspace(-3, 3, 7)
    low, high = script.platt_targets(y)
    assert (low, high) == (1 / 32, 13 / 14)
    target = np.where(y == 1, high, low)

    def loss(c: np.ndarray) -> float:
        z = c[0] * scores + c[1]
        return float(np.sum(np.logaddexp(0, z) - target * z))

    best = minimize(loss, [1.0, 0.0], options={"gtol": 1e-9}).x
    split = script.Split(scores, y, points, y[:7], 0.3)
    actual = script.logistic(split, (low, high))
    np.testing.assert_allclose(actual, expit(best[0] * points + best[1]), atol=1e-3)
