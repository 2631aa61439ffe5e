"""Near-isotonic regression against its dual, solved by SciPy, and by hand."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear
from scipy.special import xlogy

import bayescal as bc

ROWS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 1), st.integers(1, 4)), min_size=1, max_size=25
)


def solve_dual(weight: np.ndarray, share: np.ndarray, strength: float) -> np.ndarray:
    """Solve the dual for the forces between neighbors, which lie between 0 and the strength."""
    if len(share) == 1 or strength == 0:
        return share
    differences = np.eye(len(share))[:-1] - np.eye(len(share))[1:]
    root = np.sqrt(weight)
    result = lsq_linear(
        differences.T / root[:, None], root * share, (0, strength), method="bvls", tol=1e-14
    )
    assert result.success
    return share - differences.T @ result.x / weight


def group_rows(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    s, y, w = np.array(rows, float).T
    at = np.unique(s)
    weight = np.array([w[s == a].sum() for a in at])
    return at, weight, np.array([(w * y)[s == a].sum() for a in at])


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.3, 7.0, 1e6]))
def test_solution_of_any_strength_is_the_dual_s(rows, strength):
    s, y, w = np.array(rows, float).T
    at, weight, positive = group_rows(rows)
    result = bc.NearIsotonic(strength, inputs="scores", classes=[0, 1]).fit(s, y, sample_weight=w)
    expected = solve_dual(weight, positive / weight, strength)
    np.testing.assert_allclose(result.predict_proba(at)[:, 1], expected, atol=1e-7)


@settings(max_examples=40, deadline=None)
@given(ROWS)
def test_average_is_that_of_duals_by_bic(rows):
    s, y, w = np.array(rows, float).T
    at, weight, positive = group_rows(rows)
    result = bc.NearIsotonic(inputs="scores", classes=[0, 1]).fit(s, y, sample_weight=w)
    solutions, criteria = [], []
    for strength in result.strengths_:
        solution = np.clip(solve_dual(weight, positive / weight, strength), 0, 1).round(9)
        fit = np.sum(xlogy(positive, solution) + xlogy(weight - positive, 1 - solution))
        different = 1 + np.count_nonzero(np.diff(solution))
        criteria.append(-2 * fit + different * np.log(weight.sum()))
        solutions.append(solution)
    shares = np.exp(-(np.array(criteria) - min(criteria)) / 2)
    expected = shares @ np.array(solutions) / shares.sum()
    np.testing.assert_allclose(result.predict_proba(at)[:, 1], expected, atol=1e-6)
    # Values merge where the number of distinct values falls.
    assert result.strengths_[0] == 0
    assert np.all(np.diff(result.strengths_) > 0)


def test_meetings_by_hand():
    # Two of class 1 above one of class 0: they meet where 1 - a = 2 a, at a = 1/3 for each unit.
    result = bc.NearIsotonic().fit([0.2, 0.2, 0.7], [1, 1, 0])
    np.testing.assert_allclose(result.strengths_, [0, 2 / 3])
    # Both likelihoods are known: 1 at two values, (2/3)^2 / 3 at one.
    separate, together = 3.0**-1, (4 / 27) * 3.0**-0.5
    weights = np.array([separate, together]) / (separate + together)
    np.testing.assert_allclose(result.model_weights_, weights)
    np.testing.assert_allclose(
        result.predict_proba([0.2, 0.7])[:, 1], weights @ [[1, 0], [2 / 3, 2 / 3]]
    )


def test_large_strength_is_isotonic_and_zero_is_the_data():
    rng = np.random.default_rng(0)
    p = rng.random(2000)
    y = (rng.random(2000) < p**2).astype(int)
    isotonic = bc.Isotonic().fit(p, y).predict_proba(p)
    np.testing.assert_allclose(bc.NearIsotonic(1e5).fit(p, y).predict_proba(p), isotonic, atol=1e-9)
    np.testing.assert_array_equal(bc.NearIsotonic(0.0).fit(p, y).predict_proba(p)[:, 1], y)
