"""Wilcoxon's test with Holm's correction, against SciPy, enumeration and hand computations."""

import itertools

import numpy as np
import pytest
import scipy.stats

from bayescal._core.numerics import holm
from bayescal.compare import wilcoxon
from bayescal.compare._wilcoxon import EXACT
from bayescal.compare.table import differences
from tests.compare.published import TUNED_TREES

EPS = float(np.finfo(np.float64).eps)


def paired_table(difference: np.ndarray) -> np.ndarray:
    """Return a table with ``difference`` in its first column and zeros in the second."""
    return np.stack([difference, np.zeros(len(difference))], axis=1)


@pytest.mark.parametrize("n", [1, 2, 5, 12, 40, EXACT, EXACT + 1, 300])
def test_p_values_without_ties_agree_with_scipy(n: int) -> None:
    difference = np.random.default_rng(n).normal(loc=0.2, size=n)
    method = "exact" if n <= EXACT else "asymptotic"
    expected = scipy.stats.wilcoxon(difference, method=method)
    result = wilcoxon(paired_table(difference))
    assert result.p_value[0, 1] == pytest.approx(expected.pvalue, rel=1e-10)
    assert result.better[[0, 1], [1, 0]].min() == expected.statistic


@pytest.mark.parametrize("zero_method", ["pratt", "zsplit"])
@pytest.mark.parametrize("seed", range(3))
def test_ties_and_zeros_agree_with_scipys_permutations(seed: int, zero_method: str) -> None:
    difference = np.random.default_rng(seed).integers(-3, 6, size=9).astype(float)
    expected = scipy.stats.wilcoxon(
        difference, zero_method=zero_method, method=scipy.stats.PermutationMethod(n_resamples=1000)
    )
    assert wilcoxon(paired_table(difference)).p_value[0, 1] == pytest.approx(
        expected.pvalue, rel=1e-12
    )


def test_ties_and_zeros_agree_with_all_signs() -> None:
    difference = np.array([0, 0, 0.5, 0.5, -0.5, 1, 2, 2, -2, 3, 0.25])
    ranks = scipy.stats.rankdata(np.abs(difference))[difference != 0]
    smaller = min(ranks[np.sign(difference[difference != 0]) == side].sum() for side in (-1, 1))
    sums = [np.dot(signs, ranks) for signs in itertools.product([0, 1], repeat=len(ranks))]
    expected = 2 * np.mean(np.array(sums) <= smaller)
    result = wilcoxon(paired_table(difference))
    assert result.p_value[0, 1] == pytest.approx(expected, rel=1e-12)


def test_many_ties_and_zeros_of_many_data_sets_agree_with_scipy() -> None:
    difference = np.random.default_rng(1).integers(-2, 4, size=250).astype(float)
    expected = scipy.stats.wilcoxon(difference, zero_method="pratt", method="asymptotic")
    assert wilcoxon(paired_table(difference)).p_value[0, 1] == pytest.approx(
        expected.pvalue, rel=1e-10
    )


def test_published_example() -> None:
    """Compare with J. Demšar (2006), table 2: rank sums 93 and 12 with and without tuned m."""
    result = wilcoxon(TUNED_TREES[:, :2], lower_is_better=False)
    assert result.better[1, 0] == 93
    assert result.better[0, 1] == 12
    assert result.p_value[0, 1] <= 0.05


def test_all_equal_differences() -> None:
    for n in (2, 10, 20):
        result = wilcoxon(paired_table(np.full(n, 0.1)))
        assert result.p_value[0, 1] == pytest.approx(2 * 0.5**n, rel=1e-12)


def test_identical_methods_and_one_data_set_do_not_differ() -> None:
    scores = np.random.default_rng(0).normal(size=(30, 2))[:, [0, 0, 1]]
    result = wilcoxon(scores)
    assert result.p_value[0, 1] == 1
    assert result.p_value[0, 2] == result.p_value[1, 2] < 1
    np.testing.assert_array_equal(wilcoxon([[1.0, 2, 3]]).p_value, 1)
    np.testing.assert_array_equal(wilcoxon(np.ones((200, 3))).adjusted, 1)


def test_decimal_scores_tie_as_on_paper() -> None:
    a, b = np.array([0.8, 0.7, 0.3, 0.5]), np.array([0.7, 0.6, 0.4, 0.5])
    actual = differences(a, b, EPS)
    assert len(set(np.abs(a - b))) > 2
    assert set(np.abs(actual)) == {0, np.abs(actual).max()}
    np.testing.assert_allclose(actual, a - b, atol=1e-15)
    # Data sets may have different scales, so rounding is judged relative to each score.
    a, b = np.array([1e6, 1e-12, 3e-12]), np.array([1e6 + 1, 0, 0])
    np.testing.assert_array_equal(differences(a, b, EPS), a - b)


def test_matrices_are_symmetric_and_holm_covers_each_pair_once() -> None:
    scores = np.random.default_rng(5).normal(size=(12, 5)) + np.arange(5) / 3
    result = wilcoxon(scores)
    upper = np.triu_indices(5, 1)
    for matrix in (result.p_value, result.adjusted):
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_array_equal(np.diag(matrix), 1)
    np.testing.assert_array_equal(result.better + result.better.T, 12 * 13 / 2)
    np.testing.assert_array_equal(result.adjusted[upper], holm(result.p_value[upper]))
    flipped = wilcoxon(scores, lower_is_better=False)
    np.testing.assert_array_equal(flipped.p_value, result.p_value)
    np.testing.assert_array_equal(flipped.better, result.better.T)


def test_holm_by_hand() -> None:
    # Sorted: .005 * 5, .01 * 4, .02 * 3, .025 * 2 (below the last), .4 * 1.
    actual = holm(np.array([0.02, 0.005, 0.4, 0.01, 0.025]))
    np.testing.assert_allclose(actual, [0.06, 0.025, 0.4, 0.04, 0.06], rtol=1e-14)
    np.testing.assert_array_equal(holm(np.array([0.6, 0.7])), [1, 1])
    np.testing.assert_array_equal(holm(np.array([0.6])), [0.6])
