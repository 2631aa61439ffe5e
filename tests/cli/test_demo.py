"""The demonstration: its table, its figure, and how it splits the data."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import bayescal as bc
from bayescal import metrics
from bayescal.cli import app
from bayescal.cli.commands import demo as _demo


def test_demo_prints_the_metrics_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "new" / "folder"
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--seed", "3"])
    assert result.exit_code == 0, result.stderr
    assert os.listdir(out) == ["reliability.png"]
    assert (out / "reliability.png").read_bytes().startswith(b"\x89PNG")
    rows = {
        cells[0]: cells[1:]
        for text in result.stdout.splitlines()
        if len(cells := text.replace("│", " ").split()) == 5
    }
    assert {"Auto", "Beta", "Isotonic", "posterior", "uncalibrated"} <= set(rows)
    scores = _demo._svm_scores(3)
    probs = 1 / (1 + np.exp(-scores.test))
    y = scores.test_labels
    values = [metrics.log_loss(probs, y), metrics.brier_score(probs, y)]
    values += [metrics.ece(probs, y, bins=10), roc_auc_score(y, probs)]
    assert rows["uncalibrated"] == [f"{value:.4f}" for value in values]
    best = min(float(rows[name][0]) for name in ("Auto", "Beta", "posterior"))
    assert best < values[0]
    assert "reliability diagram" in result.stdout


def test_the_drawn_curve_is_nearer_to_the_diagonal_after_calibration() -> None:
    scores = _demo._svm_scores(0)
    auto = bc.Auto(inputs="logits").fit(scores.calibration, scores.calibration_labels)
    before, after = (
        metrics.ece(p, scores.test_labels, bins=_demo._DRAWN_BINS, binning="equal_mass")
        for p in (1 / (1 + np.exp(-scores.test)), auto.predict_proba(scores.test)[:, 1])
    )
    assert after < 0.8 * before


def test_demo_parts_are_disjoint_stratified_and_seeded() -> None:
    scores = _demo._svm_scores(0)
    assert (len(scores.calibration), len(scores.test)) == (99, 300)
    shares = scores.calibration_labels.mean(), scores.test_labels.mean()
    assert shares == pytest.approx([357 / 569] * 2, abs=0.01)
    np.testing.assert_array_equal(scores.test, _demo._svm_scores(0).test)
    assert not np.array_equal(scores.test, _demo._svm_scores(1).test)
