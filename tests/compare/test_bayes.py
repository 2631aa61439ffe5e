"""The Bayesian signed-rank test against closed forms and sums over all pairs of differences."""

import numpy as np
import pytest
import scipy.stats

from bayescal.compare import _bayes as bayes
from bayescal.compare import bayesian_signed_rank, bayesian_signed_rank_matrix

SIGMAS = 4.5


def check(actual: float, expected: float, error: float) -> None:
    assert abs(actual - expected) <= SIGMAS * error


@pytest.mark.parametrize(("n", "strength"), [(1, 2.0), (2, 0.5), (9, 0.1)])
def test_equal_differences_have_a_closed_form(n: int, strength: float) -> None:
    """Check that the prior's weight is Beta(s, n), and its square the share of equal pairs."""
    result = bayesian_signed_rank(
        np.zeros(n), np.full(n, 0.3), prior_strength=strength, margin=0.1, draws=40_000, seed=n
    )
    prior = scipy.stats.beta(strength, n)
    check(result.better, prior.cdf(np.sqrt(0.5)), result.error)
    check(result.equal, prior.sf(np.sqrt(0.5)), result.error)
    assert result.worse == 0
    assert result.better + result.equal == 1
    # With a larger margin, the mean of a difference and the pseudo-observation counts as equal too.
    result = bayesian_signed_rank(
        np.zeros(n), np.full(n, 0.3), prior_strength=strength, margin=0.2, draws=40_000, seed=n
    )
    check(result.better, prior.cdf(1 - np.sqrt(0.5)), result.error)


@pytest.mark.parametrize("margin", [0.01, 0.002])
def test_differences_at_the_margin_are_equal(margin: float) -> None:
    b = np.round(np.linspace(0.1, 0.9, 17), 3)
    a = np.round(b - margin, 3)
    assert (b - a > margin).any()
    assert bayesian_signed_rank(a, b, margin=margin).equal == 1


@pytest.mark.parametrize(("margin", "decimals"), [(0.0, 0), (0.0, 9), (0.3, 1), (1.0, 0)])
def test_agrees_with_sums_over_all_pairs(margin: float, decimals: int) -> None:
    """Compare each draw with the definition, using the test's own weights."""
    rng = np.random.default_rng(3)
    n, draws = 8, 500
    difference = rng.normal(loc=0.3, size=n).round(decimals)
    actual = bayesian_signed_rank(
        np.zeros(n), difference, margin=margin, prior_strength=0.7, draws=draws, seed=4
    )
    weights = np.concatenate(list(bayes._weights(n, 0.7, draws, 4)), axis=1)
    z = np.append(difference, 0)
    wins = np.zeros(3)
    for w in (weights / weights.sum(axis=0)).T:
        share = np.zeros(3)
        for i in range(n + 1):
            for j in range(n + 1):
                mean = (z[i] + z[j]) / 2
                side = 0 if mean > margin + 1e-12 else 2 if mean < -margin - 1e-12 else 1
                share[side] += w[i] * w[j]
        wins[np.argmax(share)] += 1
    np.testing.assert_array_equal(actual[:3], wins / draws)


def test_weights_are_dirichlet() -> None:
    strength, n = 0.5, 6
    weights = np.concatenate(list(bayes._weights(n, strength, 20_000, 0)), axis=1)
    weights /= weights.sum(axis=0)
    for row, alone in ((0, 1.0), (3, 1.0), (n, strength)):
        marginal = scipy.stats.beta(alone, n + strength - alone)
        assert scipy.stats.kstest(weights[row], marginal.cdf).pvalue > 1e-4


def test_exchanging_methods_or_direction_exchanges_the_sides() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.normal(size=(2, 15)).round(1)
    one = bayesian_signed_rank(a, b, margin=0.2, draws=3000)
    for other in (
        bayesian_signed_rank(b, a, margin=0.2, draws=3000),
        bayesian_signed_rank(a, b, margin=0.2, draws=3000, lower_is_better=False),
    ):
        assert other.better == one.worse
        assert other.worse == one.better


def test_matrix_holds_the_pairs() -> None:
    scores = np.random.default_rng(1).normal(size=(12, 4)).round(1)
    scores[:, 3] = scores[:, 0]
    result = bayesian_signed_rank_matrix(scores, margin=0.1, draws=1000, seed=5)
    for i in range(4):
        for j in range(i + 1, 4):
            single = bayesian_signed_rank(
                scores[:, i], scores[:, j], margin=0.1, draws=1000, seed=5
            )
            assert single == tuple(matrix[i, j] for matrix in result)
    np.testing.assert_array_equal(result.worse, result.better.T)
    np.testing.assert_allclose(result.better + result.equal + result.worse, 1, rtol=1e-15)
    assert result.equal[0, 3] == 1
    np.testing.assert_array_equal(np.diag(result.equal), 1)


def test_error_is_that_of_repeated_runs() -> None:
    a, b = np.random.default_rng(2).normal(size=(2, 10))
    runs = [bayesian_signed_rank(a, b, draws=400, seed=seed) for seed in range(200)]
    share = [run.better for run in runs]
    spread, stated = np.std(share, ddof=1), np.mean([run.error for run in runs])
    # Two hundred runs determine a standard deviation to 5 %; the test reports the largest of three.
    assert 0.8 * spread <= stated
    assert runs[0] == bayesian_signed_rank(a, b, draws=400, seed=0)
    certain = bayesian_signed_rank(np.zeros(50), np.ones(50), draws=100)
    assert certain.better == 1
    assert certain.error > 0


def test_blocks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.random.default_rng(2).normal(size=(2, 10))
    whole = bayesian_signed_rank(a, b, draws=1000)
    monkeypatch.setattr(bayes, "_BLOCK", 300)
    assert bayesian_signed_rank(a, b, draws=1000) == whole


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"margin": -1}, ValueError, "margin must be finite and not negative"),
        ({"margin": np.nan}, ValueError, "margin must be finite"),
        ({"prior_strength": 0}, ValueError, "prior_strength must be finite and positive"),
        ({"draws": 0}, ValueError, "draws must be at least 1"),
        ({"draws": 1.5}, TypeError, "draws must be an integer"),
        ({"a": [1.0, np.nan]}, ValueError, "a must be finite, got NaN at position 1"),
        ({"b": [[1.0], [2]]}, ValueError, "b must have shape"),
        ({"b": [1.0]}, ValueError, "a and b must have one length, got 2 and 1"),
        ({"b": ["x", "y"]}, TypeError, "b must be numeric"),
    ],
)
def test_bad_input(change: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bayesian_signed_rank(**{"a": [1.0, 2], "b": [2.0, 3], **change})
