"""The best smoothing factor: fits against the estimator's, losses against sums over a grid."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import bayescal as bc
from bayescal._core.execution.precision import float64
from benchmarks.studies import factors

GRID = np.linspace(-12, 12, 4001)


def expected_loss(line: tuple[float, float], m: float) -> float:
    """Compute the expected log loss with a plain sum."""
    step, odds = GRID[1] - GRID[0], line[0] + line[1] * GRID
    zero, one = (np.exp(-0.5 * (GRID - mean) ** 2) for mean in (-m, m))
    total = zero @ np.logaddexp(0, odds) + one @ np.logaddexp(0, -odds)
    return 0.5 * step * total / np.sqrt(2 * np.pi)


def test_losses_are_those_of_the_estimator() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 10)[None].repeat(3, axis=0)
    x = rng.normal(size=y.shape) + 2 * y - 1
    with float64():
        losses, moved = (np.asarray(array) for array in factors._losses(x, y, 1.0))
    assert losses.shape == (len(factors.FACTORS) + 2, 3)
    for i in range(3):
        kinds = {5: float(factors.FACTORS[5]), -2: "platt"}
        for row, smoothing in kinds.items():
            model = bc.LogisticRegression(smoothing=smoothing).fit(x[i][:, None], y[i])  # type: ignore[arg-type]
            line = float(model.intercept_[0]), float(model.coef_[0, 0])
            assert losses[row, i] == pytest.approx(expected_loss(line, 1.0), rel=1e-6)
        targets = bc.smoothing.instance_targets(x[i], y[i], scale="pooled")
        assert moved[i] == pytest.approx(np.abs(targets - y[i]).mean(), rel=1e-6)
        rows, labels = np.r_[x[i], x[i]][:, None], np.repeat([1, 0], 20)
        model = bc.LogisticRegression()
        model.fit(rows, labels, sample_weight=np.r_[targets, 1 - targets])
        line = float(model.intercept_[0]), float(model.coef_[0, 0])
        assert losses[-1, i] == pytest.approx(expected_loss(line, 1.0), rel=1e-5)


@pytest.mark.slow
def test_run_writes_figures(tmp_path: Path) -> None:
    result = factors.run(tmp_path, datasets=40, sizes=[20], separations=[1.0, 2.0], seed=1)
    assert sorted(os.listdir(tmp_path)) == [f"figure_15.{end}" for end in ("csv", "json", "svg")]
    assert json.loads((tmp_path / "figure_15.json").read_text()) == result
    with (tmp_path / "figure_15.csv").open(newline="") as stream:
        assert [float(row["best"]) for row in csv.DictReader(stream)] == [
            row["best"] for row in result["rows"]
        ]
    near, far = result["rows"]
    for row in result["rows"]:
        assert row["floor"] < row["loss_best"] <= min(row["loss_platt"], row["loss_instance"])
        assert row["least"] <= row["best"] <= row["greatest"]
        assert row["platt"] == pytest.approx(1 / 12)
        assert row["instance"] < row["platt"]
    # Better separated classes need less smoothing, and instance-based smoothing needs more.
    assert far["best"] < near["best"] < near["platt"]
    assert far["instance"] > near["instance"]
    words = re.findall(r">([^<>]+)<", (tmp_path / "figure_15.svg").read_text())
    assert "Best constant factor" in words and "m = 2" in words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"datasets": 1}, "datasets must be at least 2"),
        ({"sizes": [21]}, "sizes must be even"),
        ({"separations": [-1.0]}, "separations must be positive"),
        ({"separations": []}, "separations must be positive"),
    ],
)
def test_wrong_arguments_are_said(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        factors.run(tmp_path, **options)
