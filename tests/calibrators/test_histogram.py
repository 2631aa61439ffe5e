"""Histogram binning and bins of equal mass against plain loops and hand computations."""

import itertools
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from bayescal import metrics
from bayescal._core.binning import equal_mass_cuts
from bayescal.calibrators.binary.histogram import Histogram
from bayescal.calibrators.binary.scaling_binning import ScalingBinning
from bayescal.data.order import ranking as _ranking
from bayescal.data.order.ranking import Ranking, distinct_scores, middles
from bayescal.data.rows import Rows


def loop_place(score: float, bins: int) -> int:
    """Find the bin (b / bins, (b + 1) / bins] of a score by comparing it with every border."""
    for b in range(bins):
        if score <= (b + 1) / bins:
            return b
    raise ValueError(f"{score} is no probability")


def loop_cuts(mass: np.ndarray, bins: int, whole: bool) -> list[int]:
    """Cut groups at the end nearest to each border, at the upper one of two equally near."""
    total, cuts, border = mass[-1], [], 0.0
    for b in range(bins):
        if whole:
            border += total // bins + (b < total % bins)
        else:
            border = (b + 1) / bins * total
        distance = np.abs(mass - border).round(9)
        cuts.append(int(np.flatnonzero(distance == distance.min())[-1]))
    return cuts


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 10, 15, 49, 100, 997])
def test_places_agree_with_comparisons_at_every_border(bins: int) -> None:
    borders = np.array([b / bins for b in range(bins + 1)])
    rng = np.random.default_rng(bins)
    scores = np.concatenate(
        [borders, np.nextafter(borders[1:], 0), np.nextafter(borders[:-1], 1), rng.uniform(size=99)]
    )
    # Scores within rounding errors of a border count as on it. The value of a bin identifies it,
    # since labels are positive in one bin at a time.
    places = np.array([loop_place(score - 2.0**-49, bins) for score in scores])
    for b in {0, 1 % bins, bins // 2, bins - 1}:
        state = Histogram(bins)._fit(Rows(scores, places == b, np.ones(len(scores))), 0)
        np.testing.assert_array_equal(np.flatnonzero(state["values"] == 1), [b])
        np.testing.assert_array_equal(Histogram(bins).apply(state, scores)[:, 1] == 1, places == b)
        np.testing.assert_array_equal(state["bin_weights"], np.bincount(places, minlength=bins))


@pytest.mark.parametrize("bins", [1, 4, 15, 333])
def test_equal_width_holds_what_the_reliability_curve_shows(bins: int) -> None:
    rng = np.random.default_rng(bins)
    scores, y = rng.beta(0.4, 0.4, size=700), rng.integers(0, 2, 700)
    weights = rng.uniform(0.2, 3, 700)
    curve = metrics.reliability_curve(scores, y, bins=bins, weights=weights)
    state = Histogram(bins)._fit(Rows(scores, y, weights), 0)
    filled = state["bin_weights"] > 0
    np.testing.assert_allclose(state["values"][filled], curve.observed, atol=1e-14)
    np.testing.assert_allclose(state["bin_weights"][filled], curve.weight)
    empty = np.flatnonzero(~filled)
    np.testing.assert_allclose(state["values"][empty], [(b + 0.5) / bins for b in empty])


@pytest.mark.parametrize(("n", "bins"), [(60, 6), (61, 6), (65, 6), (7, 7), (1000, 15)])
def test_equal_mass_without_ties_are_equal_parts_of_the_order(n: int, bins: int) -> None:
    rng = np.random.default_rng(n)
    scores, y = rng.normal(size=n), rng.integers(0, 2, n)
    parts = np.array_split(np.argsort(scores), bins)
    chosen = Histogram(bins, "equal_mass")
    state = chosen._fit(Rows(scores, y, np.ones(n)), 0)
    np.testing.assert_array_equal(state["bin_weights"], [len(part) for part in parts])
    np.testing.assert_allclose(state["values"], [y[part].mean() for part in parts])
    borders = [(scores[a].max() + scores[b].min()) / 2 for a, b in itertools.pairwise(parts)]
    np.testing.assert_allclose(state["edges"], borders, rtol=2.0**-22)
    for part, value in zip(parts, state["values"], strict=True):
        np.testing.assert_array_equal(chosen.apply(state, scores[part])[:, 1], value)


def test_equal_mass_with_ties_by_hand() -> None:
    # Counts 1, 5, 1, 1: borders at 4 of 8 for two bins lie 3 above 1 and 2 below 6.
    scores = np.array([1.0, 2, 2, 2, 2, 2, 3, 4])
    y = np.array([0, 0, 1, 0, 1, 0, 1, 1])
    state = Histogram(2, "equal_mass")._fit(Rows(scores, y, np.ones(8)), 0)
    np.testing.assert_array_equal(state["edges"], [2.5])
    np.testing.assert_allclose(state["values"], [1 / 3, 1])
    # For four bins the borders 2, 4, 6 move to 1, 6, 6: the bin between the last two is dropped.
    state = Histogram(4, "equal_mass")._fit(Rows(scores, y, np.ones(8)), 0)
    np.testing.assert_array_equal(state["edges"], [1.5, 2.5])
    np.testing.assert_array_equal(state["bin_weights"], [1, 5, 2])


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=30),
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.sampled_from([1.0, 0.1, 0.3]),
)
def test_cuts_are_at_the_nearest_end(weights: list[int], bins: list[int], unit: float) -> None:
    mass = np.concatenate([[0.0], np.cumsum(np.array(weights) * unit)])
    cuts = equal_mass_cuts(mass, np.array(bins), unit == 1)
    assert cuts.tolist() == [cut for b in bins for cut in loop_cuts(mass, b, unit == 1)]


@pytest.mark.parametrize("kind", ["spread", "ties", "skewed", "outlier"])
@pytest.mark.parametrize("unit", [1.0, 0.1])
def test_counting_in_cells_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, unit: float, kind: str
) -> None:
    rng = np.random.default_rng(3)
    scores = {
        "spread": rng.normal(size=3000),
        "ties": rng.integers(0, 20, 3000) / 7,
        "skewed": rng.beta(0.1, 0.2, size=3000),
        "outlier": np.append(rng.normal(size=2999), 1e300),
    }[kind]
    y, weights = rng.integers(0, 2, 3000), unit * rng.integers(1, 5, 3000)
    chosen = Histogram(11, "equal_mass")
    expected = chosen._fit(Rows(scores, y, weights), 0)
    monkeypatch.setattr(_ranking, "_MAX_SORTED_ROWS", 100)
    monkeypatch.setattr(_ranking, "_ROWS_PER_CELL", 9)
    assert Ranking(Rows(scores, y, weights)).groups.whole.any()
    state = chosen._fit(Rows(scores, y, weights), 0)
    for name, value in expected.items():
        np.testing.assert_allclose(state[name], value, rtol=1e-12)


def test_refining_sorts_the_cells_that_are_marked_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_ranking, "_MAX_SORTED_ROWS", 5)
    monkeypatch.setattr(_ranking, "_ROWS_PER_CELL", 2)
    # Three cells over [0, 3]; only the last one includes its upper end.
    scores = np.array([3.0, 0.1, 1.5, 0.0, 1.2, 1.5])
    y, weights = np.array([1, 0, 1, 0, 0, 0]), np.array([1.0, 2, 3, 4, 5, 6])
    ranking = Ranking(Rows(scores, y, weights))
    np.testing.assert_array_equal(ranking.groups.weight, [6, 14, 1])
    np.testing.assert_array_equal(ranking.groups.positive, [0, 3, 1])
    assert ranking.groups.whole.all()
    ranking.refine(np.array([False, True, False]))
    np.testing.assert_array_equal(ranking.groups.whole, [True, False, False, True])
    np.testing.assert_array_equal(ranking.groups.lowest, [np.nan, 1.2, 1.5, np.nan])
    np.testing.assert_array_equal(ranking.groups.weight, [6, 5, 9, 1])
    np.testing.assert_array_equal(ranking.groups.positive, [0, 0, 3, 1])
    ranking.refine(ranking.groups.whole)
    np.testing.assert_array_equal(ranking.groups.lowest, [0, 0.1, 1.2, 1.5, 3])
    np.testing.assert_array_equal(ranking.groups.highest, [0, 0.1, 1.2, 1.5, 3])
    np.testing.assert_array_equal(ranking.groups.weight, [4, 2, 5, 9, 1])


def test_ties_are_merged_as_by_numpy_unique() -> None:
    rng = np.random.default_rng(0)
    scores, y, weights = (
        rng.integers(-9, 9, 200) / 4,
        rng.integers(0, 2, 200),
        rng.uniform(size=200),
    )
    distinct, index = np.unique(scores, return_inverse=True)
    groups = distinct_scores(Rows(scores, y, weights), "Isotonic")
    np.testing.assert_array_equal(groups.lowest, distinct)
    np.testing.assert_allclose(groups.weight, np.bincount(index, weights))
    np.testing.assert_allclose(groups.positive, np.bincount(index, weights * y), atol=1e-15)


def test_middles_stay_below_the_upper_score() -> None:
    below = np.array([1.0, -1.7e308, -1e308, 0.0, 5e-324, 1 - 2**-53])
    above = np.array([2.0, 1.7e308, 1.5e308, 5e-324, 1e-323, 1.0])
    middle = middles(below, above)
    assert ((middle >= below) & (middle < above)).all()
    np.testing.assert_array_equal(middle[:3], [1.5, 0, 0.25e308])


def test_equal_mass_takes_scores_of_any_size() -> None:
    scores, y = np.array([-1.7e308, -1.0, 0.0, 1e-300, 5.0, 1.7e308]), np.array([0, 0, 0, 1, 1, 1])
    chosen = Histogram(3, "equal_mass")
    state = chosen._fit(Rows(scores, y, np.ones(6)), 0)
    assert chosen.apply(state, scores)[:, 1].tolist() == [0, 0, 0.5, 0.5, 1, 1]


@pytest.mark.parametrize("prior", [0.5, 1.0, 20.0])
def test_the_prior_is_a_beta_distribution_for_each_bin(prior: float) -> None:
    rng = np.random.default_rng(0)
    p, w = rng.beta(0.5, 2, 60), rng.uniform(0.5, 2, 60)
    y = rng.random(60) < p
    width = Histogram(8, prior_weight=prior)._fit(Rows(p, y, w), 0)
    mass = Histogram(4, "equal_mass", prior_weight=prior)._fit(Rows(p, y, w), 0)
    for state, bins, centers in ((width, 8, (np.arange(8) + 0.5) / 8), (mass, 4, [0.5] * 4)):
        bin_index = np.searchsorted(state["edges"], p)
        ones, zeros = (np.bincount(bin_index, w * indicator, bins) for indicator in (y, ~y))
        assert (ones * zeros == 0).any() or bins == 4
        for b, center in enumerate(centers):
            posterior = stats.beta(prior * center + ones[b], prior * (1 - center) + zeros[b])
            assert state["values"][b] == pytest.approx(posterior.mean(), rel=1e-12)


@pytest.mark.parametrize("binning", ["equal_width", "equal_mass"])
@pytest.mark.parametrize("prior", [0.0, 2.0])
def test_intervals_are_quantiles_of_beta_posteriors(
    binning: Literal["equal_width", "equal_mass"], prior: float
) -> None:
    rng = np.random.default_rng(0)
    p = rng.random(200)
    y = (rng.random(200) < p).astype(int)
    weights = rng.integers(1, 4, 200)
    fitted = Histogram(5, binning, prior_weight=prior).fit(p, y, weights)
    bin_index = np.searchsorted(fitted.edges_, p)
    lower, upper = fitted.predict_interval(p, level=0.8)
    for b in range(5):
        inside = bin_index == b
        positive, total = (weights * y)[inside].sum(), weights[inside].sum()
        center = (b + 0.5) / 5 if binning == "equal_width" else 0.5
        a, c = (prior * center, prior * (1 - center)) if prior else (0.5, 0.5)
        posterior = stats.beta(a + positive, c + total - positive)
        np.testing.assert_allclose(lower[inside], posterior.ppf(0.1), rtol=1e-9)
        np.testing.assert_allclose(upper[inside], posterior.ppf(0.9), rtol=1e-9)
    # Integer weights count as repeated rows, and equal fractional weights as one row each.
    again = Histogram(5, binning, prior_weight=prior).fit(p.repeat(weights), y.repeat(weights))
    np.testing.assert_allclose(again.predict_interval(p, level=0.8)[0], lower, rtol=1e-9)
    if not prior:
        ones, halves = (
            Histogram(5, binning).fit(p, y, w).predict_interval(p)
            for w in (None, np.full(200, 0.3))
        )
        np.testing.assert_allclose(halves, ones, rtol=1e-9)


def test_intervals_contain_the_value_and_know_bins_without_rows() -> None:
    fitted = Histogram(4).fit([0.1, 0.2, 0.9], [0, 0, 1])
    lower, upper = fitted.predict_interval([0.1, 0.4, 0.9])
    assert (lower[0], upper[2]) == (0, 1)
    np.testing.assert_allclose(upper[0], stats.beta(0.5, 2.5).ppf(0.95))
    np.testing.assert_allclose([lower[1], upper[1]], stats.beta(0.5, 0.5).ppf([0.05, 0.95]))
    del fitted.state_["unit"]  # files of the first version lack it
    with pytest.raises(ValueError, match="the file of this calibrator has no intervals"):
        fitted.predict_interval([0.1])


def test_intervals_of_scaling_binning_do_not_trust_the_logistic_map() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(500)
    y = (rng.random(500) < 0.5 + 0.4 * np.sin(12 * p)).astype(int)
    fitted = ScalingBinning(5).fit(p, y)
    expected = Histogram(5, "equal_mass").fit(p, y).predict_interval(p)
    values = fitted.predict_proba(p)[:, 1]
    lower, upper = fitted.predict_interval(p)
    np.testing.assert_allclose(lower, np.minimum(expected[0], values), rtol=1e-9)
    np.testing.assert_allclose(upper, np.maximum(expected[1], values), rtol=1e-9)
    assert (lower == values).any() and (upper == values).any()
    del fitted.state_["unit"]  # files of the first version lack it
    with pytest.raises(ValueError, match="the file of this calibrator has no intervals"):
        fitted.predict_interval([0.1])


BINNINGS = {
    "equal width": lambda: Histogram(10, "equal_width", classes=[0, 1]),
    "equal mass": lambda: Histogram(10, "equal_mass", classes=[0, 1]),
    "scaling": lambda: ScalingBinning(10, classes=[0, 1]),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ScalingBinning. the scores separate")
@pytest.mark.parametrize("n", [10, 50, 200, 1000, 5000])
@pytest.mark.parametrize("binning", BINNINGS)
def test_intervals_cover_the_means_of_bins(n: int, binning: str) -> None:
    """Check coverage for calibrated, bent, constant and rare truths, with and without ties."""
    truths = [lambda p: p, lambda p: 0.2 + p**2 / 2, lambda p: 0 * p + 0.1, lambda p: 0.02 * p]
    for truth, tied in itertools.product(truths, (False, True)):
        covered = []
        for seed in range(200):
            rng = np.random.default_rng(seed)
            p = 1 / (1 + np.exp(-rng.normal(0, 2, n)))
            p = np.round(p, 1) if tied else p
            y = (rng.random(n) < truth(p)).astype(int)
            fitted = BINNINGS[binning]().fit(p, y)
            lower, upper = fitted.predict_interval(p)
            bin_index = np.searchsorted(
                fitted.edges_, special.logit(p) if binning == "scaling" else p
            )
            mean = np.bincount(bin_index, truth(p)) / np.maximum(np.bincount(bin_index), 1)
            _, first = np.unique(bin_index, return_index=True)
            inside = (lower <= mean[bin_index]) & (mean[bin_index] <= upper)
            covered.append(inside[first].mean())
        assert 0.8 < np.mean(covered) <= 1, (truth(0.5), tied)
