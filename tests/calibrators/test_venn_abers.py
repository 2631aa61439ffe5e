"""Venn-Abers prediction against isotonic regression with the new score, and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from bayescal.calibrators.binary.monotone.venn_abers import VennAbers
from bayescal.data.rows import Rows

rows = st.lists(
    st.tuples(st.integers(-6, 6), st.integers(0, 1), st.integers(1, 4)), min_size=1, max_size=20
)


def brute_force(
    scores: np.ndarray, y: np.ndarray, weights: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Run isotonic regression for every score with each of its labels added."""
    values = np.empty((2, len(at)))
    for label in (0, 1):
        for j, score in enumerate(at):
            _, index = np.unique(np.append(scores, score), return_inverse=True)
            weight = np.bincount(index, np.append(weights, 1.0))
            positive = np.bincount(index, np.append(weights * y, label))
            fitted = isotonic_regression(positive / weight, weights=weight)
            values[label, j] = fitted.x[index[-1]]
    return values[0], values[1]


def scores_and_midpoints(scores: np.ndarray) -> np.ndarray:
    """Return the scores, points in between and points outside, in ascending order."""
    s = np.unique(scores)
    return np.sort(np.concatenate([s, (s[:-1] + s[1:]) / 2, [s[0] - 1, s[-1] + 1]]))


@pytest.mark.parametrize("kind", ["good", "noise", "reversed", "separated"])
@pytest.mark.parametrize("weighting", ["ones", "counts", "shares", "light", "heavy"])
def test_both_values_equal_brute_force(kind: str, weighting: str) -> None:
    rng = np.random.default_rng(7)
    for n in (3, 12, 60):
        scores = rng.integers(0, n, n) / n
        chance = {"good": scores, "noise": 0.4, "reversed": 1 - scores, "separated": scores > 0.5}
        y = (rng.uniform(size=n) < chance[kind]).astype(float)
        weights = {
            "ones": np.ones(n),
            "counts": rng.integers(1, 6, n).astype(float),
            "shares": rng.uniform(0.01, 3, n),
            "light": rng.uniform(1e-4, 1e-3, n),
            "heavy": rng.uniform(1e3, 1e4, n),
        }[weighting]
        at = scores_and_midpoints(scores)
        low, high = VennAbers()._ends(VennAbers()._fit(Rows(scores, y, weights), 0), at)
        expected_low, expected_high = brute_force(scores, y, weights, at)
        np.testing.assert_allclose(low, expected_low, atol=1e-13)
        np.testing.assert_allclose(high, expected_high, atol=1e-13)


@given(rows)
@settings(max_examples=60)
def test_small_data_equal_brute_force(data: list[tuple[int, int, int]]) -> None:
    scores, y, count = np.array(data).T
    scores, weights = scores / 3, count.astype(float)
    at = scores_and_midpoints(scores)
    state = VennAbers()._fit(Rows(scores, y, weights), 0)
    low, high = VennAbers()._ends(state, at)
    expected_low, expected_high = brute_force(scores, y, weights, at)
    np.testing.assert_allclose(low, expected_low, atol=1e-14)
    np.testing.assert_allclose(high, expected_high, atol=1e-14)
    np.testing.assert_allclose(
        VennAbers().apply(state, at)[:, 1],
        expected_high / (1 - expected_low + expected_high),
        rtol=1e-13,
    )


def test_a_thousand_rows_equal_brute_force_at_some_scores() -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=1000)
    y = (rng.uniform(size=1000) < 1 / (1 + np.exp(-scores))).astype(float)
    at = np.concatenate([rng.choice(scores, 30), rng.normal(size=30)])
    low, high = VennAbers()._ends(VennAbers()._fit(Rows(scores, y, np.ones(1000)), 0), at)
    expected_low, expected_high = brute_force(scores, y, np.ones(1000), at)
    np.testing.assert_allclose(low, expected_low, atol=1e-14)
    np.testing.assert_allclose(high, expected_high, atol=1e-14)


def test_state_holds_a_score_only_where_a_value_changes() -> None:
    rng = np.random.default_rng(5)
    scores = rng.uniform(size=5000)
    y = (rng.uniform(size=5000) < scores).astype(float)
    state = VennAbers()._fit(Rows(scores, y, np.ones(5000)), 0)
    steps = (np.diff(state["lower"]) > 0) | (np.diff(state["upper"]) > 0)
    assert steps.all()
    assert len(state["lower"]) == len(state["upper"]) == len(state["thresholds"]) + 1
    assert len(state["thresholds"]) < 1000


def test_merged_value_does_not_decrease_by_rounding() -> None:
    upper = np.random.default_rng(0).uniform(0.3, 1, 1000)
    steps = []
    for value in upper:
        state = {
            "thresholds": np.array([0.0]),
            "lower": np.full(2, 0.2),
            "upper": np.array([value, np.nextafter(value, 2)]),
        }
        steps.append(np.diff(VennAbers().apply(state, np.array([-1.0, 1.0]))[:, 1])[0])
    assert min(steps) >= 0
    assert max(steps) > 0


def test_a_level_is_an_error_that_says_why() -> None:
    fitted = VennAbers().fit([0.1, 0.4, 0.6, 0.9], [0, 0, 1, 1])
    with pytest.raises(TypeError, match="with scores alone, got a level"):
        fitted.predict_interval([0.5], 0.9)
    with pytest.raises(TypeError, match="no credible interval"):
        fitted.predict_interval([0.5], level=0.9)


def test_exchanged_classes_have_the_same_ties() -> None:
    """Check scores near those of the fit, from far below to above one single-precision step."""
    distances = np.array([1e-300, 1e-17, 1e-12, 1e-9, 2.0**-25, 2.0**-24, 1e-7, 1e-5])
    for values in ([0, 0.25, 0.5, 0.75, 1], [0, 1e-6, 0.5, 1 - 1e-6, 1], [0, 1e-10, 1 - 1e-10, 1]):
        for seed in range(20):
            rng = np.random.default_rng(seed)
            p, y = rng.choice(values, 40), rng.integers(0, 2, 40)
            plain = VennAbers().fit(np.stack([1 - p, p], axis=1), y)
            exchanged = VennAbers().fit(np.stack([p, 1 - p], axis=1), 1 - y)
            at = np.concatenate([[v - distances, v + distances] for v in values]).ravel()
            at = at[(at >= 0) & (at <= 1)]
            result = exchanged.predict_proba(np.stack([at, 1 - at], axis=1))[:, ::-1]
            expected = plain.predict_proba(np.stack([1 - at, at], axis=1))
            np.testing.assert_allclose(result, expected, atol=1e-14)


def test_probabilities_that_single_precision_of_either_class_rounds_are_ties() -> None:
    p, y = np.array([0, 0, 0, 0.5, 0.5, 1, 1, 1]), np.array([0, 1, 0, 1, 0, 1, 0, 1])
    fitted, tiny = VennAbers().fit(p, y), np.array([1e-300, 1e-12, 1e-8])
    at_ends = np.transpose(brute_force(p, y.astype(float), np.ones(8), np.array([0.0, 1.0])))
    for score, expected in zip((tiny, 1 - tiny), at_ends, strict=True):
        np.testing.assert_allclose(
            np.transpose(fitted.predict_interval(score))[[0, 1, 2]], [expected] * 3
        )
    # Raw scores have no upper end at 1.
    raw = VennAbers(inputs="scores").fit(p, y)
    assert (np.stack(raw.predict_interval(tiny)) != at_ends[0][:, None]).any()
