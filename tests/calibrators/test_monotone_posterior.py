"""Credible intervals of isotonic regression."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

import bayescal as bc
from bayescal.data.order import ranking

MAPS = [bc.Isotonic, bc.CenteredIsotonic]
Array = np.ndarray


def draw(n: int, seed: int, levels: int | None = None) -> tuple[Array, Array]:
    """Draw scores, rounded to ``levels`` values, and labels with these probabilities."""
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    if levels:
        p = (np.floor(p * levels) + 0.5) / levels
    return p, (rng.random(n) < p).astype(int)


def isotonic(rows: Array, weights: Array) -> Array:
    """Compute the isotonic regression of each row with the max-min formula.

    A cell's value is the mean of cells ``a`` to ``b`` around it, minimized over ``b`` and then
    maximized over ``a``.
    """
    k = rows.shape[1]
    means = {
        (a, b): np.average(rows[:, a : b + 1], axis=1, weights=weights[a : b + 1])
        for a in range(k)
        for b in range(a, k)
    }
    columns = [
        np.max([np.min([means[a, b] for b in range(i, k)], axis=0) for a in range(i + 1)], axis=0)
        for i in range(k)
    ]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("make", MAPS)
@pytest.mark.parametrize(
    ("counts", "positive", "atol"),
    [
        ([30, 50, 20], [9, 14, 11], 0.03),
        # Weights matter where rates decrease, and the prior where rows are few.
        ([80, 8, 12], [64, 2, 10], 0.04),
        ([2, 3, 2], [0, 1, 2], 0.06),
    ],
)
def test_quantiles_of_projected_beta_posteriors(
    make: Any, counts: list[int], positive: list[int], atol: float
) -> None:
    """Compare with SciPy's draws for three scores, which make three cells."""
    scores, rows = np.array([0.2, 0.5, 0.8]), np.array(counts)
    p = np.repeat(scores, rows)
    y = np.concatenate([np.arange(n) < k for n, k in zip(counts, positive, strict=True)])
    prior = 2 / 3
    beta = stats.beta(prior + np.array(positive), prior + rows - np.array(positive))
    maps = isotonic(beta.rvs((20_000, 3), random_state=1), rows)
    expected = np.quantile(maps, [0.025, 0.975], axis=0)
    result = make().fit(p, y.astype(int)).predict_interval(scores, level=0.9)
    # Interval ends of 1,000 draws have a standard error of about a tenth of their distance.
    np.testing.assert_allclose(result, expected, atol=atol)


# Mean coverage over scores for each true curve; the last two do not increase.
TRUTHS: dict[str, tuple[Any, float]] = {
    "calibrated": (lambda p: p, 0.88),
    "too confident": (lambda p: 1 / (1 + np.exp(-np.log(p / (1 - p)) / 2)), 0.88),
    "constant": (lambda p: 0 * p + 0.3, 0.78),
    "rare and constant": (lambda p: 0 * p + 0.02, 0.7),
}


@pytest.mark.slow
@pytest.mark.parametrize("truth", TRUTHS)
def test_intervals_contain_the_truth(truth: str) -> None:
    curve, least = TRUTHS[truth]
    rng = np.random.default_rng(3)
    for n in (30, 1000):
        for levels in (None, 10):
            inside = []
            for _ in range(40):
                p = draw(n, int(rng.integers(1 << 30)), levels)[0]
                y = (rng.random(n) < curve(p)).astype(int)
                at = np.linspace(0.03, 0.97, 17) if levels is None else np.unique(p)
                lower, upper = bc.Isotonic(classes=[0, 1]).fit(p, y).predict_interval(at)
                inside.append(((lower <= curve(at)) & (curve(at) <= upper)).mean())
            # The mean is at most two standard errors below its bound.
            error = np.std(inside, ddof=1) / len(inside) ** 0.5
            assert np.mean(inside) > least - 2 * error, (n, levels)


@pytest.mark.parametrize("make", MAPS)
def test_order_of_rows_classes_and_weights(make: Any) -> None:
    p, y = draw(300, 0, 40)
    at = np.linspace(0, 1, 101)
    fitted = make().fit(p, y)
    lower, upper = fitted.predict_interval(at)
    assert ((lower >= 0) & (upper <= 1)).all()
    assert (np.diff(lower) >= 0).all() and (np.diff(upper) >= 0).all()
    probs = fitted.predict_proba(at)[:, 1]
    assert ((lower <= probs) & (probs <= upper)).all()
    narrow = fitted.predict_interval(at, level=0.5)
    assert ((lower <= narrow[0]) & (narrow[1] <= upper)).all()
    order = np.random.default_rng(1).permutation(300)
    np.testing.assert_array_equal(make().fit(p[order], y[order]).predict_interval(at)[0], lower)
    twice = make().fit(np.tile(p, 2), np.tile(y, 2)).predict_interval(at)
    double = make().fit(p, y, sample_weight=np.full(300, 2.0)).predict_interval(at)
    np.testing.assert_allclose(double, twice, rtol=1e-12)
    # Equal fractional weights count as one row each.
    equal = make().fit(p, y, sample_weight=np.full(300, 0.3)).predict_interval(at)
    np.testing.assert_allclose(equal, (lower, upper), rtol=1e-9)


@pytest.mark.parametrize("make", MAPS)
def test_exchanged_classes_exchange_intervals(make: Any) -> None:
    for seed in range(5):
        p, y = draw(200, seed, 20)
        # Half of the scores are in the gaps between two ties.
        at = np.linspace(0.025, 0.975, 39)
        lower, upper = make().fit(p, y).predict_interval(at)
        low, high = make().fit(1 - p, 1 - y).predict_interval(1 - at)
        np.testing.assert_allclose((1 - high, 1 - low), (lower, upper), atol=1e-12)


@pytest.mark.parametrize("make", MAPS)
def test_rows_that_are_counted_in_cells(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check cells of unsorted rows, which end where the next cell begins."""
    p, y = draw(50_000, 0)
    at = np.linspace(0.01, 0.99, 99)
    result = make().fit(p, y).predict_interval(at)
    monkeypatch.setattr(ranking, "_MAX_SORTED_ROWS", 100_000)
    exact = make().fit(p, y).predict_interval(at)
    np.testing.assert_allclose(result, exact, atol=0.01)
    monkeypatch.setattr(ranking, "_MAX_SORTED_ROWS", 20_000)
    parts = [(p[i : i + 7000], y[i : i + 7000]) for i in range(0, len(p), 7000)]
    blocks = bc.Blocks(parts)
    np.testing.assert_allclose(make().fit(blocks).predict_interval(at), exact, atol=0.01)


@pytest.mark.parametrize(
    ("scores", "y", "weights"),
    [
        ([0.2, 0.7], [0, 1], [1, 1]),
        ([0.4, 0.4], [0, 1], [1, 1]),
        ([0.1, 0.4, 0.9], [0, 0, 0], [1, 1, 1]),
        ([0.1, 0.4, 0.9], [0, 1, 0], [1e-12, 1e12, 1]),
        ([0.1, 0.4, 0.9], [0, 1, 0], [1e300, 1e300, 1e300]),
    ],
)
def test_odd_rows(scores: list[float], y: list[int], weights: list[float]) -> None:
    fitted = bc.Isotonic(classes=[0, 1]).fit(scores, y, sample_weight=weights)
    lower, upper = fitted.predict_interval([0.0, 0.3, 0.5, 1.0])
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()


def test_cells_hold_about_equally_many_rows() -> None:
    counts = bc.Isotonic().fit(*draw(1000, 0)).state_["cell_counts"]
    assert counts.shape == (2, int(np.ceil(1.5 * 1000**0.4)))
    np.testing.assert_allclose(counts.sum(axis=0), 1000 / counts.shape[1], atol=1)


def test_a_file_without_counts_says_so() -> None:
    fitted = bc.Isotonic().fit(*draw(50, 0))
    for name in ("cell_ends", "cell_counts"):
        del fitted.state_[name]
    with pytest.raises(ValueError, match="fit it again"):
        fitted.predict_interval([0.5])
