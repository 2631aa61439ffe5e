"""Replicates, intervals and differences against repeated rows, closed forms and simulations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from bayescal import metrics
from bayescal._core.binning import equal_mass_sums
from bayescal.data.predictions import Predictions
from bayescal.metrics.calibration.mass_many import mass_sums_many
from bayescal.metrics.registry import METRICS
from bayescal.metrics.sums import collect_many, compute
from bayescal.metrics.uncertainty import intervals
from bayescal.metrics.uncertainty import replicates as _replicates
from bayescal.metrics.uncertainty.measured import _moments, prepare
from bayescal.metrics.uncertainty.replicates import resample

Array = np.ndarray
CASES: list[tuple[str, dict[str, Any]]] = [
    ("log_loss", {}),
    ("brier_score", {}),
    ("accuracy", {}),
    ("ece", {}),
    ("ece", {"kind": "classwise", "bins": 5}),
    ("ece", {"kind": "top_label", "binning": "equal_mass", "bins": 4}),
    ("ece", {"kind": "classwise", "binning": "equal_mass", "norm": 2}),
    ("debiased_ece", {"bins": 5}),
    ("debiased_ece", {"bins": 3, "binning": "equal_mass", "kind": "classwise"}),
    ("smooth_ece", {}),
    ("smooth_ece", {"bandwidth": 0.1}),
    ("kde_ece", {}),
    ("kde_ece", {"kernel": "gaussian", "norm": 2}),
    ("loss_gap", {}),
    ("canonical_ece", {"bins": 3}),
    ("skce", {"bandwidth": 0.3}),
    ("skce", {"bandwidth": 0.3, "estimator": "biased"}),
]


def make_probs(n: int, k: int = 3, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, k))
    y = np.argmax(0.6 * z + rng.gumbel(size=z.shape), axis=1)
    # Rounded to create ties.
    probs = np.round(np.exp(z) / np.exp(z).sum(axis=1, keepdims=True), 2) + 0.01
    return probs / probs.sum(axis=1, keepdims=True), y


@pytest.mark.parametrize("weighted", ["counts", "shares"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_replicate_is_the_metric_of_the_rows_drawn(
    name: str, options: dict[str, Any], weighted: str
) -> None:
    probs, y = make_probs(60)
    rng = np.random.default_rng(1)
    weights = rng.integers(1, 4, 60) * (1.0 if weighted == "counts" else 0.37)
    result = metrics.bootstrap(name, probs, y, replicates=7, seed=3, weights=weights, **options)
    data, _ = prepare(name, probs, y, weights, options)
    ((_, factors),) = resample(data, 7, 3, 7)
    cases = weights.sum() if weighted == "counts" else 60
    np.testing.assert_allclose(factors.sum(axis=0), cases)
    function = getattr(metrics, name)
    for value, factor in zip(result, factors.T, strict=True):
        rows = np.repeat(np.arange(60), factor.astype(int))
        drawn_weights = weights[rows] if weighted == "shares" else None
        expected = function(probs[rows], y[rows], weights=drawn_weights, **options)
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("ties", ["none", "some", "many", "one"])
def test_bins_of_equal_mass_of_many_weights(ties: str, whole: bool) -> None:
    rng = np.random.default_rng(4)
    predicted = rng.random(400)
    if ties == "some":
        predicted = np.round(predicted, 2)
    if ties == "many":
        predicted[rng.random(400) < 0.7] = 0.25
    if ties == "one":
        predicted[:] = 0.5
    observed = (rng.random(400) < predicted).astype(float)
    rows = rng.permutation(500)[:400]
    weights = rng.poisson(1, (500, 6)) * (1.0 if whole else 0.37)
    weights[:, 5] *= np.arange(500) < 250
    result = mass_sums_many(predicted, observed, rows, weights, 7, whole)
    for drawn_weights, sums in zip(weights[rows].T, result, strict=True):
        expected = equal_mass_sums(predicted, observed, drawn_weights, 7, whole, np)
        np.testing.assert_allclose(sums, expected, rtol=1e-9, atol=1e-9)


def test_smooth_errors_that_are_tiny() -> None:
    p, y = np.repeat([0.25, 0.5], 4), np.array([1, 0, 0, 0, 1, 1, 0, 0])
    metric = METRICS["smooth_ece"].make(None)  # type: ignore[misc]
    data = Predictions(np.tile(p, 500), np.tile(y, 500), np.ones(4000), 0.0)
    factors = np.ones((4000, 3))
    factors[:1, 1], factors[:40, 2] = 2, 2
    result = metric.values(collect_many(metric, data, factors))  # type: ignore[attr-defined]
    expected = [compute(metric, data._replace(weights=factor)) for factor in factors.T]
    assert expected[0] < 1e-6 and expected[1] < 1e-3
    np.testing.assert_allclose(result, expected, atol=1e-9)


def test_a_loss_that_is_infinite() -> None:
    result = metrics.bootstrap("log_loss", [0.0, 0.5, 0.5], [1, 1, 1], replicates=50, eps=0)
    assert np.isinf(result).any()
    np.testing.assert_allclose(result[np.isfinite(result)], np.log(2))
    rows = [0.0, 1.0, *np.linspace(0.1, 0.9, 10)], [1, 0] * 6
    interval = metrics.interval("log_loss", *rows, eps=0)
    assert (interval.value, interval.lower, interval.upper) == (np.inf, 0, np.inf)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    probs, y = make_probs(50)
    whole = metrics.bootstrap("ece", probs, y, replicates=20)
    monkeypatch.setattr(_replicates, "_ELEMENTS", 150)
    np.testing.assert_allclose(metrics.bootstrap("ece", probs, y, replicates=20), whole)


def hall_interval(x: Array, level: float) -> tuple[float, float]:
    """Return the union of Student's interval of a mean and that of Hall's transformation."""
    n = len(x)
    skew, scale = stats.skew(x), x.std(ddof=1)

    def moved(mean: float) -> float:
        w = (x.mean() - mean) / scale
        return n**0.5 * (w + skew * w**2 / 3 + skew**2 * w**3 / 27 + skew / (6 * n))

    t, far = stats.t.ppf((1 + level) / 2, n - 1), 10 * scale
    low, high = x.mean() - far, x.mean() + far
    lower = optimize.brentq(lambda mean: moved(mean) - t, low, high, xtol=1e-13)
    upper = optimize.brentq(lambda mean: moved(mean) + t, low, high, xtol=1e-13)
    plain = t * scale / n**0.5
    return min(lower, x.mean() - plain), max(upper, x.mean() + plain)


def test_intervals_of_means() -> None:
    probs, y = make_probs(400)
    loss = -np.log(probs[np.arange(400), y])
    assert stats.skew(loss) > 1
    expected = loss.std(ddof=1) / 20
    result = metrics.interval("log_loss", probs, y, level=0.8)
    assert result.standard_error == pytest.approx(expected, rel=1e-9)
    assert (result.lower, result.upper) == pytest.approx(hall_interval(loss, 0.8), rel=1e-9)
    drawn = metrics.interval("log_loss", probs, y, method="bootstrap", replicates=4000)
    assert drawn.standard_error == pytest.approx(expected, rel=5 / np.sqrt(2 * 4000))
    assert drawn.value == drawn.estimate == result.value
    # A weight of three means three rows; halving all weights changes nothing.
    thrice = metrics.interval("log_loss", probs, y, weights=np.full(400, 3))
    repeated = metrics.interval("log_loss", np.repeat(probs, 3, axis=0), np.repeat(y, 3))
    assert thrice[:5] == pytest.approx(repeated[:5], rel=1e-9)
    half = metrics.interval("log_loss", probs, y, weights=np.full(400, 0.5), level=0.8)
    assert half[:5] == pytest.approx(result[:5], rel=1e-9)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("name", ["brier_score", "accuracy", "roc_auc"])
def test_intervals_cover_if_a_few_weights_are_large(name: str, rows: int) -> None:
    """Check 30 rows, or clusters of rows, whose weights are worth about five equal ones."""
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[Array, Array]:
        p = rng.beta(2, 2, (n, 1)) * 0.8 + rng.beta(2, 2, (n, rows)) * 0.2
        return p.ravel(), (rng.random((n, 1)) < 0.2 + 0.6 * p).astype(int).ravel()

    truth = getattr(metrics, name)(*draw(400_000 // rows))
    covered = []
    for _ in range(300):
        p, y = draw(30)
        groups = np.repeat(np.arange(30), rows)
        weights = np.exp(rng.normal(0, 2, 30))[groups]
        result = metrics.interval(name, p, y, weights=weights, groups=None if rows == 1 else groups)
        covered.append(result.lower <= truth <= result.upper)
    assert np.mean(covered) > 0.85


@pytest.mark.parametrize("name", ["brier_score", "log_loss"])
@pytest.mark.parametrize("n", [12, 30])
def test_rows_with_equal_losses_are_no_certainty(name: str, n: int) -> None:
    """Compare two constants of equal expected loss, of which one wins wherever no event happens."""
    first, second = np.full(n, 0.05), np.full(n, 0.1)
    measure = getattr(metrics, name)
    losses = np.array([[measure(p[:1], [y]) for y in (0, 1)] for p in (first, second)])
    gaps = losses[0] - losses[1]
    rate = gaps[0] / (gaps[0] - gaps[1])
    truth = losses[0] @ [1 - rate, rate]
    rejected, covered = [], []
    for events in range(n + 1):
        y = np.arange(n) < events
        rejected.append(metrics.difference(name, first, second, y).p_value <= 0.05)
        result = metrics.interval(name, first, y)
        covered.append(result.lower <= truth <= result.upper)
    chance = stats.binom(n, rate).pmf(np.arange(n + 1))
    assert chance @ rejected <= 0.05
    assert chance @ covered >= 0.9


@pytest.mark.parametrize("name", ["ece", "ecce"])
@pytest.mark.parametrize("probability", [None, 0.02])
def test_errors_of_rare_events_may_be_zero(name: str, probability: float | None) -> None:
    """Check calibrated predictions of 30 rows, half of which have no event."""
    rng = np.random.default_rng(0)
    contained = []
    for _ in range(60):
        p = rng.beta(1, 40, 30) if probability is None else np.full(30, probability)
        result = metrics.interval(name, p, (rng.random(30) < p).astype(int), replicates=50)
        contained.append(result.lower == 0)
    assert np.mean(contained) > 0.85


def test_counts_beyond_memory() -> None:
    probs, y = make_probs(40)
    loss, many = -np.log(probs[np.arange(40), y]), np.random.default_rng(0).integers(1, 9, 40)
    expected = np.sqrt(np.cov(loss, fweights=many) / (1e9 * many.sum()))
    result = metrics.interval("log_loss", probs, y, method="bootstrap", weights=1e9 * many)
    assert result.standard_error == pytest.approx(expected, rel=5 / np.sqrt(2 * 1000))
    error = metrics.interval("ece", probs, y, weights=1e9 * many)
    assert error.value * 0.99 < error.lower < error.estimate < error.upper < error.value * 1.01


@pytest.mark.parametrize(("right", "n"), [(0, 1), (2, 2), (30, 30), (17, 40)])
def test_shares_have_wilsons_interval(right: int, n: int) -> None:
    probs, y = np.full(n, 0.75), (np.arange(n) < right).astype(int)
    expected = stats.binomtest(right, n).proportion_ci(0.9, "wilson")
    for weights in (None, np.full(n, 0.5)):
        result = metrics.interval("accuracy", probs, y, weights=weights)
        ends = (result.lower, result.upper)
        assert ends == pytest.approx((expected.low, expected.high), abs=1e-12)
        assert result.value == result.estimate == right / n


def test_differences_are_paired() -> None:
    probs, y = make_probs(300)
    blunt = 0.9 * probs + 0.1 / 3
    result = metrics.difference("brier_score", probs, blunt, y, replicates=20_000)
    score = ((probs - np.eye(3)[y]) ** 2).sum(axis=1) - ((blunt - np.eye(3)[y]) ** 2).sum(axis=1)
    assert result.value == pytest.approx(score.mean(), rel=1e-9)
    error = score.std(ddof=1) / np.sqrt(300)
    assert result.standard_error == pytest.approx(error, rel=5 / np.sqrt(2 * 20_000))
    # The skewness of replicates has a standard error of sqrt(6 / b), and the transformation slope
    # 1/2.
    assert (result.lower, result.upper) == pytest.approx(
        hall_interval(score, 0.9), abs=0.06 * error
    )
    same = metrics.difference("ece", probs, probs, y, replicates=50)
    assert same[:5] == (0, 0, 0, 0, 0) and same.p_value == 1
    with pytest.raises(ValueError, match="one shape"):
        metrics.difference("accuracy", probs, probs[:, 0], (y == 0).astype(int))


@pytest.mark.parametrize("name", ["ece", "debiased_ece", "ecce"])
def test_exchanged_models_exchange_the_ends_of_a_difference(name: str) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        p = rng.random(60)
        y, other = (rng.random(60) < p).astype(int), np.clip(p + 0.1 * rng.normal(size=60), 0, 1)
        gap, back = (
            metrics.difference(name, *pair, y, replicates=100) for pair in ((p, other), (other, p))
        )
        # In units of the interval; the greatest difference along an ellipse is found in steps.
        ends = np.array([gap.lower + back.upper, gap.upper + back.lower])
        assert np.abs(ends).max() < 1e-4 * (gap.upper - gap.lower)
        assert gap.p_value == pytest.approx(back.p_value, abs=1e-4)


@pytest.mark.parametrize("name", ["log_loss", "brier_score", "ece", "ecce", "debiased_ece"])
def test_models_that_are_equal_up_to_rounding_do_not_differ(name: str) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        p = rng.dirichlet([1, 1, 1], 100)
        again, y = p * 3 / (p * 3).sum(axis=1, keepdims=True), rng.integers(0, 3, 100)
        for first, second in ((p, again), (again, p)):
            gap = metrics.difference(name, first, second, y, replicates=50)
            assert gap.p_value == 1 and gap.value == gap.lower == gap.upper == 0
    other = metrics.difference(name, p, p ** (1 + 1e-6) / (p ** (1 + 1e-6)).sum(axis=1)[:, None], y)
    assert other.upper > other.lower


def test_few_cases_tell_nothing() -> None:
    p, y = np.linspace(0, 1, 29), np.arange(29) % 2
    for name in ("log_loss", "ece", "skce"):
        for n in (9, 10):
            interval = metrics.interval(name, p[:n], y[:n])
            gap = metrics.difference(name, p[:n], p[:n] ** 2, y[:n])
            low, high = RANGES.get(name, (0, 1))
            assert ((interval.lower, interval.upper) == (low, high)) == (n < 10)
            assert ((gap.lower, gap.upper) == (low - high, high - low)) == (n < 10)
            assert (gap.p_value == 1) == (n < 10)
    assert metrics.interval("debiased_ece", p, y).upper < 1


#: Ranges of the metrics, for two classes where it matters.
RANGES = {
    "log_loss": (0, np.inf),
    "skce": (-2, 2),
    "multilabel_ece": (0, 3),
    "multilabel_ecce": (0, 3),
    "loss_gap": (0, 9),
}


@pytest.mark.parametrize("n", [1, 2, 12])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("kde_ece", "smooth_ece") else ())
        for name, entry in METRICS.items()
        if entry.best and (entry.make or name == "skce")
    ],
)
def test_intervals_end_within_the_range(name: str, n: int) -> None:
    if name == "skce" and n == 1:
        pytest.skip("needs two cases")
    low, high = RANGES.get(name, (0, 1))
    p, y = np.full(n, 0.99), (np.arange(n) > 0).astype(int)
    pairs = [(p, p / 2, y), (np.linspace(0, 1, n), np.full(n, 0.5), 1 - y)]
    if "multilabel" in METRICS[name].shapes:
        pairs = [tuple(np.stack([values] * 3, axis=1) for values in pair) for pair in pairs]  # type: ignore[misc]
    for first, second, labels in pairs:
        interval = metrics.interval(name, first, labels, replicates=20)
        gap = metrics.difference(name, first, second, labels, replicates=20)
        assert low <= interval.lower <= interval.upper <= high
        assert low - high <= gap.lower <= gap.upper <= high - low
        if high < 9:
            assert np.isfinite([interval.lower, interval.upper, gap.lower, gap.upper]).all()


@pytest.mark.parametrize("name", ["brier_score", "ece", "debiased_ece"])
def test_a_p_value_is_that_of_the_interval_that_ends_at_zero(name: str) -> None:
    probs, y = make_probs(100)
    sharp = probs**3 / (probs**3).sum(axis=1, keepdims=True)
    gap = metrics.difference(name, sharp, probs, y, replicates=100)
    assert 1e-8 < gap.p_value < 1
    again = metrics.difference(name, sharp, probs, y, replicates=100, level=1 - gap.p_value)
    # The square root magnifies rounding near zero.
    assert min(abs(again.lower), abs(again.upper)) < (1e-9 if name == "brier_score" else 1e-4)


def test_what_cannot_be_is_said() -> None:
    probs, y = make_probs(30)
    with pytest.raises(ValueError, match="no metric named 'eco'"):
        metrics.interval("eco", probs, y)
    with pytest.raises(ValueError, match="must be one of"):
        metrics.bootstrap("corp", probs, y)
    for refuse in (metrics.bootstrap, metrics.consistency_test):
        with pytest.raises(ValueError, match="must not be 'roc_auc' here; interval, difference"):
            refuse("roc_auc", probs, y)
    with pytest.raises(ValueError, match="bootstrap"):
        metrics.interval("ece", probs, y, binning="equal_mass", method="analytic")
    with pytest.raises(ValueError, match="level"):
        metrics.interval("ece", probs, y, level=1.0)
    with pytest.raises(ValueError, match="replicates"):
        metrics.bootstrap("ece", probs, y, replicates=0)


def test_scores_of_rows_end_at_two() -> None:
    rows = np.tile([[0.01, 0.98, 0.01]], (9, 1))
    p, y = rows[:, 1], np.zeros(9, int)
    for probs, end in ((rows, 2), (p, 1), (np.stack([1 - p, p], axis=1), 1)):
        result = metrics.interval("brier_score", probs, y)
        assert (result.lower, result.upper) == (0, end)


def test_an_infinite_replicate_has_no_moments() -> None:
    assert _moments(np.array([1.0, np.inf])) == (np.inf, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method", "options"),
    [
        ("log_loss", "auto", {}),
        ("brier_score", "auto", {}),
        ("brier_score", "bootstrap", {}),
        ("accuracy", "auto", {}),
        ("debiased_ece", "bootstrap", {"bins": 10, "binning": "equal_width"}),
        ("debiased_ece", "analytic", {"bins": 10, "binning": "equal_width"}),
    ],
)
def test_coverage(name: str, method: str, options: dict[str, Any]) -> None:
    """Check that 90 % intervals cover the population value in 87 to 93 % of samples.

    Coverage is higher when the upper end of a bootstrap of debiased errors is raised to that of a
    test.
    """
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[Array, Array]:
        p = rng.beta(1.2, 0.8, n)
        true = 1 / (1 + np.exp(-(0.5 * np.log(p / (1 - p)) - 0.3)))
        return p, (rng.random(n) < true).astype(int)

    truth = getattr(metrics, name)(*draw(4_000_000), **options)
    covered = 0
    runs = 1000 if method == "analytic" else 500
    for run in range(runs):
        p, y = draw(500)
        how: dict[str, Any] = {"method": method, "replicates": 200, "seed": run, **options}
        result = metrics.interval(name, p, y, **how)
        covered += result.lower <= truth <= result.upper
    raised = name == "debiased_ece" and method == "bootstrap"
    assert 0.87 <= covered / runs <= (0.96 if raised else 0.93)


def test_replicates_of_many_rows_come_from_sums_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check replicates against row resampling; metrics without sums still resample rows."""
    rng = np.random.default_rng(0)
    p = rng.random(2000)
    y = (rng.random(2000) < p).astype(int)
    for name, options in (("brier_score", {}), ("skce", {"estimator": "linear", "bandwidth": 0.2})):
        rows = metrics.bootstrap(name, p, y, replicates=400, **options)
        with monkeypatch.context() as patch:
            patch.setattr(intervals, "MANY", 1000)
            many = metrics.bootstrap(name, p, y, replicates=400, **options)
        if name == "skce":
            np.testing.assert_array_equal(many, rows)
            continue
        assert not np.array_equal(many, rows)
        error = np.std(rows, ddof=1) / np.sqrt(400)
        assert many.mean() == pytest.approx(rows.mean(), abs=5 * error)
        assert np.std(many) == pytest.approx(np.std(rows), rel=5 / np.sqrt(2 * 64))
