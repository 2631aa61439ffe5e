"""Bayesian binning into quantiles against plain loops and values computed by hand."""

import math

import numpy as np
import pytest

from bayescal.calibrators.binary.bbq import BBQ
from bayescal.data.rows import Rows

Model = tuple[float, list[tuple[float, float]]]


def loop_bins(rows: list[tuple[float, float, float]], number: int) -> list[list[int]]:
    """Split the distinct scores of (score, weight, positive) into bins of equal count."""
    mass = np.cumsum([0.0] + [weight for _, weight, _ in rows])
    bins, start, border = [], 0, 0
    for b in range(number):
        border += mass[-1] // number + (b < mass[-1] % number)
        distance = np.abs(mass - border)
        end = int(np.flatnonzero(distance == distance.min())[-1])
        if end > start:
            bins.append(list(range(start, end)))
        start = max(start, end)
    return bins


def loop_model(rows: list[tuple[float, float, float]], number: int, prior: float) -> Model:
    """Compute the log evidence of one model, and the upper border and the value of each bin."""
    bins = loop_bins(rows, number)
    evidence, steps, lower = 0.0, [], 0.0
    for indices in bins:
        last = indices[-1]
        upper = 1.0 if last == len(rows) - 1 else (rows[last][0] + rows[last + 1][0]) / 2
        count, positive = sum(rows[i][1] for i in indices), sum(rows[i][2] for i in indices)
        whole = prior / len(bins)
        alpha = whole * (lower + upper) / 2
        beta = whole - alpha
        evidence += math.lgamma(whole) - math.lgamma(count + whole)
        evidence += math.lgamma(positive + alpha) - math.lgamma(alpha)
        evidence += math.lgamma(count - positive + beta) - math.lgamma(beta)
        steps.append((upper, (positive + alpha) / (count + whole)))
        lower = upper
    return evidence, steps


def loop_average(
    scores: np.ndarray, y: np.ndarray, at: np.ndarray, factor: float = 10, prior: float = 2
) -> list[float]:
    """Average the predictions of all models for rows of unit weight."""
    distinct = sorted(set(scores.tolist()))
    rows = [(s, float((scores == s).sum()), float(y[scores == s].sum())) for s in distinct]
    n = len(scores)
    least = max(1, math.floor(round(n ** (1 / 3) / factor, 9)))
    most = max(1, min(math.floor(round(n ** (1 / 3) * factor, 9)), len(distinct)))
    models = [loop_model(rows, b, prior) for b in range(min(least, most), most + 1)]
    best = max(evidence for evidence, _ in models)
    total = sum(math.exp(evidence - best) for evidence, _ in models)
    result = []
    for score in at:
        value = 0.0
        for evidence, steps in models:
            step_value = next(value for upper, value in steps if score <= upper)
            value += math.exp(evidence - best) / total * step_value
        result.append(value)
    return result


@pytest.mark.parametrize("n", [1, 2, 5, 27, 64, 300])
def test_average_equals_loops(n: int) -> None:
    rng = np.random.default_rng(n)
    scores, at = rng.uniform(size=n), rng.uniform(size=40)
    y = (rng.uniform(size=n) < scores).astype(int)
    values = BBQ().apply(BBQ()._fit(Rows(scores, y, np.ones(n)), 0), at)[:, 1]
    np.testing.assert_allclose(values, loop_average(scores, y, at), rtol=1e-10)


@pytest.mark.parametrize(("factor", "prior"), [(1.0, 2.0), (3.0, 0.5), (100.0, 40.0)])
def test_options_equal_loops_with_ties(factor: float, prior: float) -> None:
    rng = np.random.default_rng(0)
    scores, at = rng.integers(0, 15, 200) / 14, np.linspace(0, 1, 60)
    y = (rng.uniform(size=200) < scores**2).astype(int)
    chosen = BBQ(factor, prior)
    values = chosen.apply(chosen._fit(Rows(scores, y, np.ones(200)), 0), at)[:, 1]
    np.testing.assert_allclose(values, loop_average(scores, y, at, factor, prior), rtol=1e-10)


def test_two_rows_by_hand() -> None:
    # One bin: G(2)/G(4) G(2)/G(1) G(2)/G(1) = 1/6, mean 1/2. Two bins with middles 1/4 and 3/4:
    # G(1)/G(2) G(7/4)/G(3/4) = 3/4 each, means 1/8 and 7/8. Weights 8 : 27.
    state = BBQ()._fit(Rows(np.array([0.2, 0.8]), np.array([0, 1]), np.ones(2)), 0)
    np.testing.assert_array_equal(state["bins"], [1, 2])
    np.testing.assert_allclose(state["model_weights"], [8 / 35, 27 / 35])
    np.testing.assert_array_equal(state["edges"], [0.5])
    low = (8 / 2 + 27 / 8) / 35
    np.testing.assert_allclose(state["values"], [low, 1 - low])
    np.testing.assert_allclose(
        BBQ().apply(state, np.array([0, 0.5, 0.51, 1]))[:, 1], [low] * 2 + [1 - low] * 2
    )


@pytest.mark.parametrize(
    ("n", "least", "most"), [(1, 1, 1), (8, 1, 8), (999, 1, 99), (1000, 1, 100), (8000, 2, 200)]
)
def test_numbers_of_bins(n: int, least: int, most: int) -> None:
    rng = np.random.default_rng(n)
    state = BBQ()._fit(Rows(rng.uniform(size=n), rng.integers(0, 2, n), np.ones(n)), 0)
    np.testing.assert_array_equal(state["bins"], np.arange(least, most + 1))
    assert state["model_weights"].sum() == pytest.approx(1)


def test_bins_that_ties_leave_empty_are_dropped() -> None:
    # Counts 1, 98 and 1: the border of two bins moves to 99, those of three to 1 or 99.
    scores = np.array([0.1] + [0.5] * 98 + [0.9])
    y = np.arange(100) % 2
    state = BBQ()._fit(Rows(scores, y, np.ones(100)), 0)
    np.testing.assert_array_equal(state["bins"], [1, 2, 3])
    np.testing.assert_allclose(state["edges"], [0.3, 0.7])


def test_shares_as_weights() -> None:
    # Halving all weights halves every sum, and n is the sum of weights.
    rng = np.random.default_rng(0)
    scores, y = rng.uniform(size=64).repeat(2), rng.integers(0, 2, 64).repeat(2)
    state = BBQ()._fit(Rows(scores, y, np.full(128, 0.5)), 0)
    whole = BBQ()._fit(Rows(scores[::2], y[::2], np.ones(64)), 0)
    np.testing.assert_array_equal(state["bins"], np.arange(1, 41))
    np.testing.assert_array_equal(whole["bins"], np.arange(1, 41))
    ratio = state["model_weights"][0] / state["model_weights"][1]
    assert ratio == pytest.approx(whole["model_weights"][0] / whole["model_weights"][1])


def test_numbers_of_bins_survive_rounding_of_the_total() -> None:
    weights = np.full(80, 0.1)
    assert 10 * np.cbrt(np.cumsum(weights)[-1]) < 20
    state = BBQ()._fit(Rows(np.linspace(0, 1, 80), np.arange(80) % 2, weights), 0)
    np.testing.assert_array_equal(state["bins"], np.arange(1, 21))
