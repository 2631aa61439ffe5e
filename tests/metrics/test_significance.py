"""Tests of calibration against hand computations, and their rejection rates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayescal import metrics
from bayescal.data.blocks.predictions import as_predictions
from bayescal.metrics.uncertainty.replicates import draw_labels, redraw

Array = np.ndarray


def make_probs(n: int, k: int, seed: int) -> Array:
    z = 1.5 * np.random.default_rng(seed).normal(size=(n, k))
    probs = np.exp(z)
    return probs / probs.sum(axis=1, keepdims=True)


def test_spiegelhalter_by_hand() -> None:
    p, y = np.array([0.1, 0.4, 0.8]), np.array([0, 1, 1])
    top = ((y - p) * (1 - 2 * p)).sum()
    z = top / np.sqrt(((1 - 2 * p) ** 2 * p * (1 - p)).sum())
    result = metrics.spiegelhalter_test(p, y)
    assert result.statistic == pytest.approx(z, rel=1e-12)
    cubes = ((1 - 2 * p) ** 4 * p * (1 - p)).sum() / ((1 - 2 * p) ** 2 * p * (1 - p)).sum() ** 1.5
    tail = stats.pearson3.sf(z, cubes) if z > 0 else stats.norm.cdf(z)
    assert result.p_value == pytest.approx(2 * tail, rel=1e-9)
    both = metrics.spiegelhalter_test(np.stack([1 - p, p], axis=1), y)
    assert both.statistic == pytest.approx(z, rel=1e-12)
    twice = metrics.spiegelhalter_test(p, y, weights=[2, 2, 2])
    repeated = metrics.spiegelhalter_test(np.tile(p, 2), np.tile(y, 2))
    assert twice.statistic == pytest.approx(repeated.statistic, rel=1e-12)
    shares = metrics.spiegelhalter_test(p, y, weights=[0.5, 0.5, 0.5])
    assert shares.statistic == pytest.approx(z, rel=1e-12)


def test_spiegelhalter_of_several_classes_by_all_outcomes() -> None:
    """Compare with mean and variance of the Brier score by definition."""
    probs = make_probs(50, 4, 0)
    y = np.random.default_rng(1).integers(0, 4, 50)
    scores = ((probs[:, None, :] - np.eye(4)) ** 2).sum(axis=2)
    mean = (probs * scores).sum(axis=1)
    variance = (probs * scores**2).sum(axis=1) - mean**2
    w = np.random.default_rng(2).uniform(0.1, 2, 50)
    z = (w * (scores[np.arange(50), y] - mean)).sum() / np.sqrt((w**2 * variance).sum())
    assert metrics.spiegelhalter_test(probs, y, weights=w).statistic == pytest.approx(z, rel=1e-9)


def test_p_values_of_spiegelhalter_allow_for_skewness() -> None:
    """Compute the skewness of the Brier score of several classes by definition."""
    probs = make_probs(5, 3, 0) ** 3
    probs /= probs.sum(axis=1, keepdims=True)
    y = probs.argmin(axis=1)
    scores = ((probs[:, None, :] - np.eye(3)) ** 2).sum(axis=2)
    above = scores - (probs * scores).sum(axis=1, keepdims=True)
    for w in (np.ones(5), np.array([0.3, 1.5, 1.0, 0.7, 0.2])):
        variance, cubes = ((w**m * (probs * above**m).sum(axis=1)).sum() for m in (2, 3))
        z = (w * above[np.arange(5), y]).sum() / np.sqrt(variance)
        assert z > 3
        result = metrics.spiegelhalter_test(probs, y, weights=w)
        expected = 2 * stats.pearson3.sf(z, cubes / variance**1.5)
        assert result == pytest.approx((z, expected), rel=1e-9)


@pytest.mark.parametrize("expected", [0.01, 0.1, 0.3, 1, 3, 10])
def test_spiegelhalter_rejects_few_expected_errors_rarely(expected: float) -> None:
    """Add up the binomial probabilities of all numbers of events that are rejected."""
    n, events = 200, np.arange(40)
    p = np.full(n, expected / n)
    tests = [metrics.spiegelhalter_test(p, np.arange(n) < m, classes=[0, 1]) for m in events]
    p_values = np.array([test.p_value for test in tests])
    for level in (0.1, 0.05, 0.01, 0.001):
        wrong = stats.binom.pmf(events, n, expected / n)[p_values <= level].sum()
        assert wrong <= 1.05 * level


def test_certain_and_indifferent_predictions() -> None:
    assert metrics.spiegelhalter_test([0.0, 1.0], [0, 1]) == (0, 1)
    assert metrics.spiegelhalter_test([0.0, 1.0], [1, 1]) == (np.inf, 0)
    assert metrics.spiegelhalter_test([0.5, 0.5], [0, 0]) == (0, 1)
    assert metrics.consistency_test("ece", [0.0, 1.0], [0, 1], resamples=9) == (0, 1)
    assert metrics.consistency_test("ece", [0.0, 1.0], [1, 1], resamples=9) == (0.5, 0.1)


@pytest.mark.parametrize("k", [2, 4])
def test_labels_are_drawn_with_their_probabilities(k: int) -> None:
    probs = np.tile(make_probs(1, k, 3), (40_000, 1))
    data = as_predictions(probs if k > 2 else probs[:, 1], np.zeros(40_000, int))
    counts = np.bincount(draw_labels(data, np.random.default_rng(0)), minlength=k)
    assert stats.chisquare(counts, 40_000 * probs[0]).pvalue > 1e-3


@pytest.mark.parametrize("k", [2, 3])
def test_labels_of_counts_are_drawn_case_by_case(k: int) -> None:
    """Check that label counts are multinomial, as for repeated rows."""
    probs = make_probs(2, k, 3)
    given = probs if k > 2 else probs[:, 1]
    data = as_predictions(given, np.zeros(2, int), [3, 1])
    rng = np.random.default_rng(0)
    tables = np.zeros((4000, 2, k))
    for table in tables:
        drawn = redraw(data, rng)
        assert set(drawn.weights) <= {1.0, 2.0, 3.0}
        row = np.argmax(
            np.isclose(
                drawn.probs.reshape(len(drawn.y), -1)[:, [0]], data.probs.reshape(2, -1)[:, 0]
            ),
            axis=1,
        )
        np.add.at(table, (row, drawn.y), drawn.weights)
    assert (tables.sum(axis=2) == [3, 1]).all()
    first, at = tables[:, 0], stats.multinomial(3, probs[0])
    result, counts = np.unique(first, axis=0, return_counts=True)
    assert stats.chisquare(counts, 4000 * at.pmf(result) / at.pmf(result).sum()).pvalue > 1e-3


def test_p_values_of_counts_are_uniform_and_those_of_repeated_rows() -> None:
    rng = np.random.default_rng(6)
    p, weights = np.linspace(0.05, 0.95, 7), np.array([1, 2, 3, 5, 8, 13, 21])
    rows = np.tile(p, 2), np.repeat([0, 1], 7)
    values = []
    for run in range(200):
        happened = rng.binomial(weights, p)
        counts = np.concatenate([weights - happened, happened])
        options = {"resamples": 39, "seed": run}
        values.append(metrics.consistency_test("ece", *rows, weights=counts, **options).p_value)
    counts = np.bincount(np.round(np.array(values) * 40).astype(int) - 1, minlength=40)
    assert stats.chisquare(counts.reshape(8, 5).sum(axis=1)).pvalue > 0.01
    options = {"resamples": 2000, "seed": 1}
    repeats = np.concatenate([weights - 1, np.ones(7, int)])
    ours = metrics.consistency_test("ece", *rows, weights=repeats, **options)
    theirs = metrics.consistency_test("ece", *(row.repeat(repeats) for row in rows), **options)
    assert ours.statistic == pytest.approx(theirs.statistic, abs=1e-12)
    q = theirs.p_value
    assert ours.p_value == pytest.approx(q, abs=4 * np.sqrt(2 * q * (1 - q) / 2000) + 1e-3)


@pytest.mark.parametrize(("test", "runs"), [("spiegelhalter", 200), ("ece", 100), ("skce", 60)])
def test_p_values_are_uniform_for_calibrated_predictions(test: str, runs: int) -> None:
    rng = np.random.default_rng(5)
    values = []
    for run in range(runs):
        probs = make_probs(60, 3, run)
        y = np.array([rng.choice(3, p=p) for p in probs])
        if test == "spiegelhalter":
            values.append(metrics.spiegelhalter_test(probs, y).p_value)
        else:
            options = {"bandwidth": 0.3} if test == "skce" else {}
            values.append(
                metrics.consistency_test(test, probs, y, resamples=39, seed=run, **options).p_value
            )
    if test == "spiegelhalter":
        assert stats.kstest(values, "uniform").pvalue > 0.01
    else:
        # Multiples of 1 / 40, equally probable.
        counts = np.bincount(np.round(np.array(values) * 40).astype(int) - 1, minlength=40)
        assert stats.chisquare(counts.reshape(8, 5).sum(axis=1)).pvalue > 0.01
    over = make_probs(300, 3, 0) ** 3
    over /= over.sum(axis=1, keepdims=True)
    y = np.array([rng.choice(3, p=p) for p in make_probs(300, 3, 0)])
    assert metrics.spiegelhalter_test(over, y).p_value < 1e-3
    assert metrics.consistency_test("ece", over, y, resamples=99).p_value == 0.01


def test_only_errors_of_calibration_are_tested() -> None:
    for name in ("log_loss", "accuracy", "hamming_loss"):
        with pytest.raises(ValueError, match="calibration error"):
            metrics.consistency_test(name, [0.5, 0.2], [0, 1])
    with pytest.raises(ValueError, match="no metric named"):
        metrics.consistency_test("none", [0.5, 0.2], [0, 1])
