"""Isotonic and centered isotonic regression against scikit-learn, plain loops and by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from bayescal.calibrators import CenteredIsotonic, Isotonic
from bayescal.calibrators.binary.monotone.pooling import interpolate, pool
from bayescal.data.order import ranking as _ranking
from bayescal.data.rows import Rows

HUGE = 1.7e308
rows = st.lists(
    st.tuples(st.integers(-6, 6), st.integers(0, 1), st.integers(1, 4)), min_size=1, max_size=25
)


def arrays(data: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scores, y, weights = np.array(data).T
    return scores / 3, y, weights.astype(float)


@pytest.fixture(params=["sorted at once", "in cells"])
def sorted_or_in_cells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with all rows sorted, and with small data counted in cells first."""
    if request.param == "in cells":
        monkeypatch.setattr(_ranking, "_MAX_SORTED_ROWS", 30)
        monkeypatch.setattr(_ranking, "_ROWS_PER_CELL", 7)


@pytest.mark.parametrize("kind", ["spread", "ties", "skewed", "normal", "separated"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [2, 31, 2500])
@pytest.mark.usefixtures("sorted_or_in_cells")
def test_isotonic_equals_scikit_learn(n: int, weighted: bool, kind: str) -> None:
    rng = np.random.default_rng(n)
    scores = {
        "spread": rng.uniform(size=n),
        "ties": rng.integers(0, 12, n) / 12,
        # Rounded because scikit-learn treats scores as tied that differ by less than 1e-15.
        "skewed": rng.beta(0.1, 0.2, size=n).round(12),
        "normal": rng.normal(size=n) * 5,
        "separated": rng.uniform(size=n),
    }[kind]
    noise = rng.normal(size=n) * (0 if kind == "separated" else 0.5)
    y = (scores + noise > 0.5).astype(float)
    weights = rng.uniform(0.1, 4, n) if weighted else np.ones(n)
    expected = IsotonicRegression(out_of_bounds="clip").fit(scores, y, weights)
    state = Isotonic()._fit(Rows(scores, y, weights), 0)
    at = np.concatenate([scores, rng.uniform(scores.min() - 1, scores.max() + 1, 500)])
    np.testing.assert_allclose(Isotonic().apply(state, at)[:, 1], expected.predict(at), atol=1e-12)


def test_many_rows_equal_scikit_learn_with_the_package_as_it_is() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=60_000)
    y = (rng.uniform(size=60_000) < 1 / (1 + np.exp(-scores))).astype(float)
    assert len(scores) > _ranking._MAX_SORTED_ROWS
    expected = IsotonicRegression(out_of_bounds="clip").fit(scores, y)
    state = Isotonic()._fit(Rows(scores, y, np.ones(60_000)), 0)
    np.testing.assert_allclose(
        Isotonic().apply(state, scores)[:, 1], expected.predict(scores), atol=1e-12
    )


@pytest.mark.usefixtures("sorted_or_in_cells")
def test_scores_may_be_as_close_as_floats_are() -> None:
    steps = np.arange(60)
    scores, y = steps * 5e-324, (steps > 20) & (steps % 3 > 0)
    state = Isotonic()._fit(Rows(scores, y, np.ones(60)), 0)
    expected = Isotonic()._fit(Rows(steps.astype(float), y, np.ones(60)), 0)
    np.testing.assert_array_equal(state["thresholds"], expected["thresholds"] * 5e-324)
    np.testing.assert_array_equal(state["values"], expected["values"])


def test_thresholds_are_the_ends_of_blocks() -> None:
    # Shares by score: 0, 0, 1/2, then 1 and 0 that pool with weights 4 and 3, then 1.
    scores = np.array([1.0, 2, 3, 3, 4, 5, 6])
    y = np.array([0, 0, 0, 1, 1, 0, 1])
    weights = np.array([1.0, 1, 2, 2, 4, 3, 1])
    state = Isotonic()._fit(Rows(scores, y, weights), 0)
    np.testing.assert_array_equal(state["thresholds"], [1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(state["values"], [0, 0, 1 / 2, 4 / 7, 4 / 7, 1], rtol=1e-15)
    at = np.array([0.0, 1.5, 2.5, 3.5, 5.5, 9.0])
    expected = [0, 0, 1 / 4, (1 / 2 + 4 / 7) / 2, (4 / 7 + 1) / 2, 1]
    np.testing.assert_allclose(Isotonic().apply(state, at)[:, 1], expected, rtol=1e-15)


def test_centered_by_hand() -> None:
    # Blocks: 0 on [1, 2], 2/3 on [3, 5] with weights 1, 3, 2 (center 25/6), 1 on [6, 8].
    scores = np.array([1.0, 2, 3, 4, 5, 6, 8])
    y = np.array([0, 0, 1, 1, 0, 1, 1])
    weights = np.array([1.0, 5, 1, 3, 2, 1, 1])
    state = CenteredIsotonic()._fit(Rows(scores, y, weights), 0)
    np.testing.assert_allclose(state["thresholds"], [1, 2, 25 / 6, 6, 8], rtol=1e-15)
    np.testing.assert_allclose(state["values"], [0, 0, 2 / 3, 1, 1], rtol=1e-15)
    at = np.array([0, 1.5, 2 + 13 / 12, 7, 9])
    values = CenteredIsotonic().apply(state, at)[:, 1]
    np.testing.assert_allclose(values, [0, 0, 1 / 3, 1, 1], rtol=1e-14)


def test_centered_collapses_first_and_last_block_inside_the_limits() -> None:
    state = CenteredIsotonic()._fit(
        Rows(np.array([0.0, 1, 2, 4]), np.array([1, 0, 1, 0]), np.ones(4)), 0
    )
    assert state["thresholds"].tolist() == [1.75]
    assert state["values"].tolist() == [0.5]
    scores, y = np.array([0.0, 1, 2, 3, 4, 8]), np.array([1, 0, 0, 1, 0, 1])
    state = CenteredIsotonic()._fit(Rows(scores, y, np.array([1.0, 1, 1, 3, 1, 2])), 0)
    np.testing.assert_allclose(state["thresholds"], [1, 13 / 4, 8])
    np.testing.assert_allclose(state["values"], [1 / 3, 3 / 4, 1])


@pytest.mark.parametrize("seed", range(5))
def test_centered_equals_points_taken_from_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, weights = rng.integers(0, 150, 300) / 10, rng.integers(1, 4, 300).astype(float)
    y = (rng.uniform(size=300) < 1 / (1 + np.exp(7 - scores))).astype(float)
    fitted = IsotonicRegression().fit(scores, y, weights).predict(scores).round(13)
    points = []
    for value in np.unique(fitted):
        inside = fitted == value
        if value in (0, 1):
            points += [(scores[inside].min(), value), (scores[inside].max(), value)]
        else:
            points.append((np.average(scores[inside], weights=weights[inside]), value))
    x, values = np.array(points).T
    assert {0, 1} <= set(values)
    at = np.linspace(-1, 16, 999)
    state = CenteredIsotonic()._fit(Rows(scores, y, weights), 0)
    np.testing.assert_allclose(
        CenteredIsotonic().apply(state, at)[:, 1], np.interp(at, x, values), atol=1e-12
    )


def test_laplace_by_hand() -> None:
    # 0 on three rows becomes 1/5, 1 on two becomes 3/4: nothing to pool.
    scores, y = np.array([1.0, 2, 3, 4, 5, 6, 7]), np.array([0, 0, 0, 1, 0, 1, 1])
    state = Isotonic("laplace")._fit(Rows(scores, y, np.ones(7)), 0)
    np.testing.assert_allclose(state["values"], [1 / 5, 1 / 5, 1 / 2, 1 / 2, 3 / 4, 3 / 4])
    # 0 on one row becomes 1/3, above the 1/5 that follows: pooled, (1 + 1) / (3 + 5).
    scores, y = np.arange(7.0), np.array([0, 1, 0, 0, 0, 0, 1])
    state = Isotonic("laplace")._fit(Rows(scores, y, np.ones(7)), 0)
    assert state["thresholds"].tolist() == [0, 5, 6]
    np.testing.assert_allclose(state["values"], [1 / 4, 1 / 4, 2 / 3])
    centered = CenteredIsotonic("laplace")._fit(Rows(scores, y, np.ones(7)), 0)
    assert centered["thresholds"].tolist() == [2.5, 6]


@given(rows)
def test_laplace_equals_two_steps_of_scikit_learn(data: list[tuple[int, int, int]]) -> None:
    scores, y, weights = arrays(data)
    fitted = IsotonicRegression().fit(scores, y, weights).predict(scores).round(13)
    value, block = np.unique(fitted, return_inverse=True)
    weight = np.bincount(block, weights)
    pure = (value == 0) | (value == 1)
    again = IsotonicRegression().fit(
        np.arange(len(value)),
        (value * weight + pure) / (weight + 2 * pure),
        sample_weight=weight + 2 * pure,
    )
    state = Isotonic("laplace")._fit(Rows(scores, y, weights), 0)
    expected = again.predict(block)
    np.testing.assert_allclose(Isotonic("laplace").apply(state, scores)[:, 1], expected, atol=1e-12)
    assert 0 < state["values"].min() <= state["values"].max() < 1


def test_pool_joins_shares_that_differ_by_rounding_only() -> None:
    weight = np.array([0.1, 0.3, 0.7, 0.9])
    starts, values = pool(weight, weight * np.array([0.1, 0.1, 0.1 + 1e-17, 0.2]))
    assert starts.tolist() == [0, 3]
    np.testing.assert_allclose(values, [0.1, 0.2])


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300, HUGE])
def test_interpolation_equals_numpy_and_is_exact_at_thresholds(scale: float) -> None:
    rng = np.random.default_rng(0)
    x, values = np.sort(rng.uniform(-1, 1, 40)), np.sort(rng.uniform(0, 1, 40))
    at = rng.uniform(-1, 1, 1000)
    result = interpolate(at * scale, x * scale, values)
    np.testing.assert_allclose(result, np.interp(at, x, values), atol=1e-13)
    np.testing.assert_array_equal(interpolate(x * scale, x * scale, values), values)


def test_interpolation_over_a_range_that_overflows() -> None:
    at, thresholds = np.array([-HUGE, -HUGE / 2, 0, HUGE / 2, HUGE]), np.array([-HUGE, HUGE])
    values = interpolate(at, thresholds, np.array([0.0, 1.0]))
    np.testing.assert_allclose(values, [0, 0.25, 0.5, 0.75, 1], rtol=1e-15)


def test_interpolation_between_all_pairs_never_leaves_the_values() -> None:
    levels = np.array([0.0, 0.1, 1 / 3, 0.7, 1 - 2**-53, 1.0])
    for low, high in itertools.combinations(levels, 2):
        for x in (0.1, 1 / 3, 0.7):
            at = np.concatenate([np.linspace(0, x, 97), np.nextafter([0, x], [1, 0])])
            values = interpolate(np.sort(at), np.array([0, x]), np.array([low, high]))
            assert values[0] == low and values[-1] == high
            assert (np.diff(values) >= 0).all()
