"""Scaling by weights and temperatures: searches, repeats, unspecified choices, both studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, softmax
from typer.testing import CliRunner

import bayescal as bc
from bayescal import metrics
from benchmarks.studies import _binwise_variants, _published_weights, kull, losses, weight_scaling
from benchmarks.studies._networks import read_network
from benchmarks.studies._repeats import mean_and_error
from benchmarks.studies._scaling_grid import (
    TEMPERATURES,
    WEIGHTS,
    best_temperature,
    best_weight,
    confidence_errors,
    scaled_by_weight,
)
from benchmarks.studies.app import app
from tests.cli.printed import cells

Array = np.ndarray


def draw(seed: int, n: int, k: int = 3, factor: float = 2.0) -> tuple[Array, Array]:
    """Draw over-confident logits (n, k) and labels (n,)."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=(n, k))
    return factor * z, (z + rng.gumbel(size=(n, k))).argmax(axis=1)


# --- searches -----------------------------------------------------------------------------------


def test_errors_of_a_grid_are_those_of_the_metric() -> None:
    z, y = draw(0, 200)
    probs = softmax(z, axis=1)
    probs[:3] = [[0.2, 0.4, 0.4], [0.6, 0.2, 0.2], [0.0, 1.0, 0.0]]  # on borders of bins
    right = probs.argmax(axis=1) == y
    mixed = [scaled_by_weight(probs, alpha) for alpha in (1.0, 0.5, 0.001)]
    actual = confidence_errors(np.stack([mixture.max(axis=1) for mixture in mixed]), right)
    expected = [metrics.ece(mixture, y) for mixture in mixed]
    np.testing.assert_allclose(actual, expected, atol=1e-14)


def test_searches_find_the_least_error() -> None:
    z, y = draw(1, 300)
    probs = softmax(z, axis=1)
    by_weight = [metrics.ece(scaled_by_weight(probs, alpha), y) for alpha in WEIGHTS[::10]]
    error = metrics.ece(scaled_by_weight(probs, best_weight(probs, y)), y)
    assert error <= min(by_weight) + 1e-12
    by_temperature = [metrics.ece(softmax(z / t, axis=1), y) for t in TEMPERATURES]
    error = metrics.ece(softmax(z / best_temperature(z, y), axis=1), y)
    assert error == pytest.approx(min(by_temperature), abs=1e-12)
    assert 1.5 < best_temperature(z, y) < 3


def test_weights_cannot_help_an_underconfident_network() -> None:
    z, y = draw(2, 4000, factor=0.5)
    assert best_weight(softmax(z, axis=1), y) == 1
    assert best_temperature(z, y) == pytest.approx(0.5, abs=0.11)


# --- repeats ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_standard_errors_of_halves_of_the_same_rows_are_not_too_small() -> None:
    sets, repeats, n = 100, 5, 600
    actual = np.empty((sets, 2, 3))  # mean, standard error, and that of rows of their own
    for seed in range(sets):
        z, y = draw(seed, n, factor=3.0)
        probs, rng = softmax(z, axis=1), np.random.default_rng(seed)
        values = np.empty((2, repeats))
        for repeat in range(repeats):
            one, two = rng.permutation(n).reshape(2, -1)
            by_bins = [bc.WeightScaling(bins).fit(probs[one], y[one]) for bins in (5, 25)]
            few, many = (metrics.ece(model.predict_proba(probs[two]), y[two]) for model in by_bins)
            values[:, repeat] = metrics.ece(probs[two], y[two]), few - many
        for index, sample in enumerate(values):
            both = mean_and_error(sample, 1.0), mean_and_error(sample)
            actual[seed, index] = both[0]["mean"], both[0]["error"], both[1]["error"]
    off = np.abs(actual[:, :, 0] - actual[:, :, 0].mean(axis=0)) / stats.t.ppf(0.975, repeats - 1)
    assert (np.mean(off < actual[:, :, 1], axis=0) > 0.93).all()
    # An error shared by all halves of a data set does not average out.
    assert np.mean(off[:, 0] < actual[:, 0, 2]) < 0.8


# --- ways left open -----------------------------------------------------------------------------


def test_ways_left_open_hold_those_of_the_library() -> None:
    (z, y), (test, test_y) = draw(3, 400), draw(4, 300)
    actual = _binwise_variants.errors(z, y, test, test_y)
    assert len(actual) == len({tuple(way.values())[:-1] for way in actual}) == 7 * 2 * 3 * 2 * 7
    way = {"bins": 13, "ties": "together", "border": "middle", "dtype": "float64", "step": 0.0}
    options: dict[str, Any] = {"inputs": "logits", "classes": (0, 1, 2)}
    models = {
        "CWS": bc.WeightScaling(13, **options),
        "BTS": bc.BinwiseTemperature("log_loss", 13, **options),
        "CTS": bc.BinwiseTemperature("confidence", 13, **options),
    }
    for method, model in models.items():
        (error,) = [
            entry["ece_25"]
            for entry in actual
            if entry == {"method": method, **way, "ece_25": entry["ece_25"]}
        ]
        probs = model.fit(z, y).predict_proba(test)
        assert error == pytest.approx(metrics.ece(probs, test_y, bins=25), abs=1e-9)
    # Without ties, all ways of sharing ties agree, except for rows between two bins.
    errors = [
        entry["ece_25"]
        for entry in actual
        if entry["method"] == "CWS" and entry["bins"] == 13 and entry["dtype"] == "float64"
    ]
    assert np.ptp(errors) < 0.01


def test_rows_that_are_exchanged() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.uniform(size=(2, 1200))
    order = np.argsort(before)
    inversions = sum((after[order[:i]] > after[row]).sum() for i, row in enumerate(order))
    actual = weight_scaling.exchanged(before, after)
    assert actual == pytest.approx(inversions / (1200 * 1199 / 2), rel=1e-12)
    assert weight_scaling.exchanged(before, 0.3 * before + 0.1) == 0


# --- losses of training -------------------------------------------------------------------------


def test_losses_are_those_of_the_paper() -> None:
    rng = np.random.default_rng(5)
    z, y = rng.normal(size=(8, 10)), rng.integers(0, 10, 8)
    logs, q = log_softmax(z, axis=1), np.eye(10)[y]
    p, label_losses = np.exp(logs), -logs[np.arange(8), y]
    gap = (p.argmax(axis=1) == y) - p.max(axis=1)
    kernel = np.exp(-np.abs(np.subtract.outer(p.max(axis=1), p.max(axis=1))) / 0.4)
    smoothed = 0.95 * q + 0.05 * (1 - q) / 9
    expected = (
        label_losses.mean(),
        ((p - q) ** 2).sum(axis=1).mean(),
        label_losses.mean() + 2 * np.sqrt(gap @ kernel @ gap) / 8,
        -(smoothed * logs).sum(axis=1).mean(),
        ((1 - np.exp(-label_losses)) ** 3 * label_losses).mean(),
    )
    given = jnp.asarray(z, jnp.float32), jnp.asarray(y), jnp.ones(8, jnp.float32)
    actual = [float(objective(*given)) for objective in losses.objectives()]
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


def test_what_is_measured_of_a_network() -> None:
    (z, y), (test, test_y) = draw(6, 1500), draw(7, 1500)
    actual = losses.measure(z, y, test, test_y)
    probs = softmax(test, axis=1)
    assert actual["ece"] == metrics.ece(probs, test_y)
    assert actual["ece_temperature"] < actual["ece"]
    assert actual["ece_weight"] < actual["ece"]
    assert 0.5 < actual["weight"] < 1 < actual["temperature"]
    closed = bc.WeightScaling(norm=2).fit(softmax(z, axis=1), y).predict_proba(probs)
    assert actual["ece_weight_squares"] == pytest.approx(metrics.ece(closed, test_y), abs=1e-12)


@pytest.mark.slow
def test_losses_from_the_command_line(tmp_path: Path) -> None:
    line = ["losses", "--out", str(tmp_path), "--repeats", "2", "--epochs", "3"]
    line += ["--data", "digits", "--network", "dense"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    actual = json.loads((tmp_path / "losses.json").read_text())
    assert actual["rows"] == {"digits": [449, 449, 899]}
    assert [case["loss"] for case in actual["cases"]] == list(losses.LOSSES)
    record = actual["cases"][0]
    values, mean = record["values"]["ece"], record["measures"]["ece"]
    assert len(set(values)) == 2
    assert mean["mean"] == pytest.approx(np.mean(values))
    assert mean["error"] == pytest.approx(np.std(values, ddof=1) * np.sqrt(1 / 2 + 1))
    gap = record["differences"]["weight less temperature"]["mean"]
    both = (np.mean(record["values"][key]) for key in ("ece_weight", "ece_temperature"))
    assert gap == pytest.approx(np.subtract(*both))
    assert len(cells(result.stdout, "digits, dense")) == 5
    # Existing results are not trained again.
    before = (tmp_path / "losses.json").read_bytes()
    assert CliRunner().invoke(app, line).exit_code == 0
    assert (tmp_path / "losses.json").read_bytes() == before


# --- predictions of networks --------------------------------------------------------------------


@pytest.mark.slow
def test_weight_scaling_from_the_command_line(tmp_path: Path) -> None:
    (z, y), (test, test_y) = draw(8, 500), draw(9, 400)
    name = weight_scaling.VARIANTS_OF
    np.savez(tmp_path / f"{name}.npz", logits_val=z, y_val=y, logits_test=test, y_test=test_y)
    np.savez(tmp_path / "halved.npz", probs_test=softmax(test, axis=1), y_test=test_y)
    out = tmp_path / "out"
    line = ["weight_scaling", "--data", str(tmp_path), "--out", str(out), "--splits", "3"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    actual = json.loads((out / "weight_scaling.json").read_text())
    whole, halved = actual["networks"][name], actual["networks"]["halved"]
    assert (whole["splits"], halved["splits"]) == (1, 3)
    model = bc.WeightScaling(25, "equal_width", inputs="logits").fit(z, y)
    expected = metrics.ece(model.predict_proba(test), test_y, bins=25)
    assert whole["means"]["equal_width 25"] == {"mean": pytest.approx(expected), "error": None}
    spline = bc.CDFSpline(7).fit(softmax(z, axis=1).max(axis=1), z.argmax(axis=1) == y)
    calibrated = spline.predict_proba(softmax(test, axis=1).max(axis=1))[:, 1]
    expected = metrics.ece(calibrated, test.argmax(axis=1) == test_y, bins=25)
    assert whole["means"]["spline 7"]["mean"] == pytest.approx(expected)
    answers = [
        weight_scaling.evaluate(read_network("halved", tmp_path / "halved.npz", seed))
        for seed in range(3)
    ]
    for key in ("equal_mass 13", "pass 5", "grid, ece", "exchanged by temperature"):
        values = [answer[key] for answer in answers]
        assert halved["means"][key]["mean"] == pytest.approx(np.mean(values))
        error = np.std(values, ddof=1) * np.sqrt(1 / 3 + 1)
        assert halved["means"][key]["error"] == pytest.approx(error)
    assert halved["means"]["pass 1"]["mean"] == halved["means"]["equal_mass 13"]["mean"]
    assert halved["means"]["classes changed"]["mean"] == 0
    for answer in answers:
        assert answer["squares, L2"] <= answer["absolute, L2"] + 1e-12
        assert answer["absolute, L1"] <= answer["squares, L1"] + 1e-12
    bins = whole["bins"]
    room = np.array(bins["confidence"]) - 1 / 3
    alpha = np.clip((np.array(bins["accuracy"]) - 1 / 3) / room, 1e-9, 1)
    np.testing.assert_allclose(bins["weight"], alpha, rtol=1e-12)
    assert set(actual["variants"]) == {"CWS", "CTS", "BTS"}
    assert len(cells(result.stdout, "halved")) == 1


# --- published ----------------------------------------------------------------------------------


def test_published_tables_are_whole() -> None:
    one, two, three = (getattr(_published_weights, f"TABLE_{n}") for n in (1, 2, 3))
    assert (len(one), len(two), len(three)) == (9, 13, 5)
    assert one[0]["losses"]["label_smoothing"] == {
        "ece": 7.81,
        "ece_temperature": 4.01,
        "ece_weight": 4.0,
        "weight": 95.4,
    }
    assert (one[-1]["network"], one[-1]["losses"]["mmce"]["weight"]) == ("ResNet-50", 75.7)
    # Table 3 repeats table 2 for 13 bins of equal mass and before calibration.
    for row in three:
        (same,) = [r for r in two if (r["data"], r["network"]) == (row["data"], row["network"])]
        assert row["uncalibrated"] == same["methods"]["uncalibrated"]
        assert row["equal_mass"]["13"] == same["methods"]["weight_scaling_bins"]


# --- published fits -----------------------------------------------------------------------------


@pytest.mark.slow
def test_kull_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (z, y), (test, test_y) = draw(10, 300, 10), draw(11, 300, 10)
    for name in kull.SCTL:
        np.savez(tmp_path / f"{name}.npz", logits_val=z, y_val=y, logits_test=test, y_test=test_y)
    out = tmp_path / "out"
    monkeypatch.setattr(kull, "_STEPS", 40)
    line = ["kull", "--data", str(tmp_path), "--out", str(out), "--repeats", "2"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    actual = json.loads((out / "kull.json").read_text())
    model = bc.Matrix(off_diagonal=250, intercept=1e-4, inputs="logits").fit(z, y)
    probs = model.predict_proba(test)
    method = actual["methods"]["matrix_odir"]
    expected = {
        "accuracy": np.mean(probs.argmax(axis=1) == test_y),
        "log_loss": -np.log(probs[np.arange(len(test_y)), test_y]).mean(),
        "brier_score": ((probs - np.eye(10)[test_y]) ** 2).sum(axis=1).mean(),
    }
    for key, value in expected.items():
        assert method["whole"][key] == pytest.approx(value, abs=1e-6)
    bin_index = np.ceil(14 * probs).astype(int)
    hits = np.eye(10)[test_y]
    by_class = [
        np.abs(np.bincount(bin_index[:, k], hits[:, k] - probs[:, k], 15)).sum() for k in range(10)
    ]
    assert method["whole"]["class_wise_ece"] == pytest.approx(np.sum(by_class) / 300, abs=1e-6)
    assert len(method["folds"]) == 2
    assert method["folds"][0] != method["folds"][1]
    assert sum(actual["sctl"][kull.NETWORK]["whole"]["mixture"]) == pytest.approx(1)
    assert len(cells(result.stdout, "matrix_odir")) == 6


def test_steps_of_the_gradient_end_at_the_minimum(tmp_path: Path) -> None:
    (z, y), (test, test_y) = draw(12, 300, 4), draw(13, 300, 4)
    np.savez(tmp_path / "n.npz", logits_val=z, y_val=y, logits_test=test, y_test=test_y)
    actual = kull._stopped(read_network("n", tmp_path / "n.npz"), "vector")
    probs = bc.Vector(inputs="logits").fit(z, y).predict_proba(test)
    expected = metrics.log_loss(probs, test_y)
    assert actual["least_log_loss"] == pytest.approx(expected, abs=1e-4)
    assert actual["excess"] >= 0
