"""The table of metrics against the functions that compute them."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import bayescal as bc
from bayescal import metrics


def make_probs(n: int = 200, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(n, k))
    y = np.argmax(0.6 * z + rng.gumbel(size=z.shape), axis=1)
    probs = np.exp(z)
    return probs / probs.sum(axis=1, keepdims=True), y


def test_one_model() -> None:
    probs, y = make_probs()
    result = metrics.report(probs, y, replicates=50)
    assert list(result.intervals) == ["model"] and not result.differences
    intervals = result.intervals["model"]
    assert intervals["log loss"] == metrics.interval("log_loss", probs, y)
    expected = metrics.interval("ece", probs, y, replicates=50, kind="classwise")
    assert intervals["class-wise ECE"] == expected
    assert result.tests["model"] == metrics.spiegelhalter_test(probs, y)
    assert result.cases == 200
    text = repr(result)
    assert "200 cases" in text and f"{intervals['accuracy'].value:.4f} [" in text
    assert max(len(line) for line in text.splitlines()) <= 100
    test = result.tests["model"]
    for shown in (text, result._repr_html_(), result.to_markdown()):
        assert "Spiegelhalter" in shown and f"{test.statistic:.2f} (p " in shown


def test_models_side_by_side() -> None:
    probs, y = make_probs()
    w = np.random.default_rng(1).uniform(0.5, 2, 200)
    flat = np.full_like(probs, 1 / 3)
    models = {"<raw>": probs, "flat": flat, "same": probs}
    result = metrics.report(models, y, metrics=["brier_score"], replicates=99, weights=w, level=0.8)
    gap = metrics.difference("brier_score", flat, probs, y, replicates=99, weights=w, level=0.8)
    assert result.differences["flat"]["brier_score"] == gap
    assert result.differences["same"]["brier_score"].value == 0
    assert "<raw>" not in result.differences
    page = result._repr_html_()
    assert "&lt;raw&gt;" in page and "<raw>" not in page and f"{gap.value:+.4f}" in page
    assert "80% intervals" in repr(result)


def test_metrics_with_options_and_errors() -> None:
    probs, y = make_probs()
    chosen = {"coarse": ("ece", {"bins": 3})}
    result = metrics.report(probs[:, 1], (y == 1).astype(int), metrics=chosen, replicates=20)
    value = metrics.ece(probs[:, 1], (y == 1).astype(int), bins=3)
    assert result.intervals["model"]["coarse"].value == pytest.approx(value, rel=1e-12)
    assert (
        "class-wise ECE"
        not in metrics.report(probs[:, 1], y == 1, replicates=20).intervals["model"]
    )
    with pytest.raises(TypeError, match="names in a sequence"):
        metrics.report(probs, y, metrics="ece")
    with pytest.raises(ValueError, match="empty mapping"):
        metrics.report({}, y)
    with pytest.raises(ValueError, match="no metric named"):
        metrics.report(probs, y, metrics=["eco"])


def test_guards_of_transfers_are_for_the_callers_own() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(size=60)
    y = rng.uniform(size=60) < p
    wanted = str(metrics.report(p, y, replicates=20))
    with jax.transfer_guard("disallow"):
        assert str(metrics.report(p, y, replicates=20)) == wanted
        assert jax.config.jax_transfer_guard == "disallow"  # pyright: ignore


def test_data_frame_and_markdown() -> None:
    probs, y = make_probs()
    result = metrics.report({"a|b": probs, "flat": np.full_like(probs, 1 / 3)}, y, replicates=30)
    frame = result.to_frame()
    interval, gap = result.intervals["flat"]["ECE"], result.differences["flat"]["ECE"]
    row = frame.loc[("flat", "ECE")]
    assert row[["value", "estimate", "lower", "upper"]].tolist() == list(interval[:4])
    assert (row["difference"], row["p_value"]) == (gap.estimate, gap.p_value)
    assert len(frame) == 2 * len(result.intervals["flat"])
    assert np.isnan(frame.loc[("a|b", "ECE"), "difference"])
    lines = result.to_markdown().splitlines()
    assert lines[0] == "**200 cases**" and lines[2] == "| metric | a\\|b | flat |"
    assert lines[3] == "|---|---:|---:|" and "90% intervals" in lines[-1]
    titled = metrics.report(probs, y, replicates=30, title="Test set")
    assert "Test set (200 cases)" in repr(titled)
    assert titled.to_markdown().startswith("**Test set (200 cases)**")


def test_evaluations_have_them_too() -> None:
    probs, y = make_probs()
    result = bc.evaluate(probs, y, replicates=30, title="Of <May>")
    assert result.to_frame().equals(result.report.to_frame())
    assert result.to_markdown().startswith("- **model**: ")
    assert "<title>Of &lt;May&gt;</title>" in result.to_html()
    assert "<title>Calibration report</title>" in bc.evaluate(probs, y, replicates=30).to_html()
