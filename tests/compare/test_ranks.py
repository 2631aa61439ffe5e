"""Average ranks and the tests of Friedman and Nemenyi, against SciPy and a published example."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from bayescal.compare import average_ranks, cliques, friedman, nemenyi
from tests.compare.published import CORRECTION, TUNED_TREES


def test_published_example() -> None:
    ranks = average_ranks(TUNED_TREES, lower_is_better=False)
    np.testing.assert_allclose(ranks, [3.143, 2.000, 2.893, 1.964], atol=5e-4)
    result = friedman(TUNED_TREES, lower_is_better=False)
    # The publication does not correct for ties.
    plain = result.statistic * CORRECTION
    assert plain == pytest.approx(9.28, abs=5e-3)
    assert 13 * plain / (14 * 3 - plain) == pytest.approx(3.69, abs=5e-3)
    assert result.dof == (3, 39)
    assert result.p_value < 0.05
    assert result.f_p_value < 0.05
    for level, critical in ((0.05, 1.25), (0.10, 1.12)):
        actual = nemenyi(TUNED_TREES, level, lower_is_better=False)
        assert actual.critical_difference == pytest.approx(critical, abs=5e-3)
    significant = nemenyi(TUNED_TREES).p_value <= 0.10
    # At level 0.10, C4.5 differs from the versions with tuned m and with both tuned.
    assert np.argwhere(np.triu(significant)).tolist() == [[0, 1], [0, 3]]
    assert cliques(ranks, significant) == [(3, 1, 2), (2, 0)]


@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_ranks_and_friedman_agree_with_scipy(decimals: int) -> None:
    scores = np.random.default_rng(decimals).normal(size=(17, 5)).round(decimals)
    expected = scipy.stats.rankdata(scores, axis=1).mean(axis=0)
    np.testing.assert_allclose(average_ranks(scores), expected, rtol=1e-14)
    np.testing.assert_allclose(average_ranks(-scores, lower_is_better=False), expected, rtol=1e-14)
    result, truth = friedman(scores), scipy.stats.friedmanchisquare(*scores.T)
    assert result.statistic == pytest.approx(truth.statistic, rel=1e-12)
    assert result.p_value == pytest.approx(truth.pvalue, rel=1e-10)


@pytest.mark.parametrize("decimals", [0, 8])
def test_f_version_is_the_analysis_of_variance_of_ranks(decimals: int) -> None:
    scores = np.random.default_rng(2).normal(size=(9, 4)).round(decimals)
    ranks = scipy.stats.rankdata(scores, axis=1)
    between = 9 * np.square(ranks.mean(axis=0) - 2.5).sum()
    within = np.square(ranks - ranks.mean(axis=0)).sum()
    result = friedman(scores)
    assert result.f_statistic == pytest.approx((between / 3) / (within / 24), rel=1e-12)
    assert result.f_p_value == pytest.approx(scipy.stats.f.sf(result.f_statistic, 3, 24), rel=1e-10)
    chi = result.statistic
    assert result.f_statistic == pytest.approx(8 * chi / (9 * 3 - chi), rel=1e-12)


def test_friedman_at_the_borders() -> None:
    assert friedman(np.ones((5, 3))) == (0, 1, 0, 1, (2, 8))
    agree = friedman(np.tile([1.0, 2, 3], (6, 1)))
    assert agree.statistic == pytest.approx(6 * 2)
    assert agree.f_statistic == np.inf
    assert agree.f_p_value == 0
    single = friedman([[3.0, 1, 2]])
    assert single.statistic == pytest.approx(2)
    assert np.isnan(single.f_statistic)
    assert np.isnan(single.f_p_value)
    assert friedman([[1.0, 1]]).p_value == 1


def test_infinities_are_ranked() -> None:
    np.testing.assert_array_equal(average_ranks([[np.inf, 1, -np.inf, np.inf]]), [3.5, 2, 1, 3.5])


@pytest.mark.parametrize("methods", [2, 20])
def test_nemenyi_agrees_with_the_integral(methods: int) -> None:
    """Compare with the probability that the range of k standard normals is at most q."""
    n = 11
    scores = np.random.default_rng(methods).normal(size=(n, methods))
    result = nemenyi(scores, 0.1)
    norm = scipy.stats.norm

    def beyond(q: float) -> float:
        def inside(z: float) -> float:
            return methods * norm.pdf(z) * (norm.cdf(z) - norm.cdf(z - q)) ** (methods - 1)

        return 1 - scipy.integrate.quad(inside, -9, 9 + q, epsabs=1e-11, limit=200)[0]

    unit = np.sqrt(methods * (methods + 1) / (6 * n))
    assert beyond(np.sqrt(2) * result.critical_difference / unit) == pytest.approx(0.1, abs=1e-7)
    ranks = average_ranks(scores)
    for i, j in ((0, 1), (1, 0), (0, methods - 1)):
        expected = beyond(np.sqrt(2) * abs(ranks[i] - ranks[j]) / unit)
        assert result.p_value[i, j] == pytest.approx(expected, abs=1e-7)
    np.testing.assert_array_equal(np.diag(result.p_value), 1)


def test_published_quantiles() -> None:
    """Compare with J. Demšar (2006), table 5a: quantiles divided by the square root of two."""
    published = {2: 1.960, 3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 10: 3.164}
    for k, quantile in published.items():
        actual = nemenyi(np.arange(k)[None]).critical_difference / np.sqrt(k * (k + 1) / 6)
        assert actual == pytest.approx(quantile, abs=1.1e-3)


def test_cliques_by_hand() -> None:
    def matrix(*pairs: tuple[int, int]) -> np.ndarray:
        actual = np.zeros((4, 4), bool)
        for i, j in pairs:
            actual[i, j] = actual[j, i] = True
        return actual

    ranks = [4.0, 3.0, 2.0, 1.0]
    assert cliques(ranks, matrix()) == [(3, 2, 1, 0)]
    assert cliques(ranks, ~matrix()) == []
    assert cliques(ranks, matrix((0, 3))) == [(3, 2, 1), (2, 1, 0)]
    # The outer two methods do not differ, but one in between differs from an outer one.
    assert cliques(ranks, matrix((3, 2))) == [(2, 1, 0)]
    assert cliques(ranks, matrix((3, 1), (2, 0))) == [(3, 2), (2, 1), (1, 0)]
    assert cliques(ranks, matrix((2, 1))) == [(3, 2), (1, 0)]
    assert cliques([1, 1, 1, 1], matrix((0, 1))) == [(1, 2, 3)]


@pytest.mark.parametrize(
    ("ranks", "significant", "error", "message"),
    [
        ([[1, 2]], np.eye(2) > 0, ValueError, "ranks must have shape"),
        ([1, np.nan], np.eye(2) > 0, ValueError, "ranks must be finite"),
        ([1, 2], np.eye(3) > 0, ValueError, "significant must have shape"),
        ([1, 2], np.triu(np.ones((2, 2))) > 0, ValueError, "significant must be symmetric"),
        ([1, 2], np.eye(2), TypeError, "significant must be boolean"),
    ],
)
def test_bad_input_of_cliques(ranks, significant, error, message) -> None:
    with pytest.raises(error, match=message):
        cliques(ranks, significant)
