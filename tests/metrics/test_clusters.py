"""Clustered rows: sums by cluster computed by hand, repeated rows, and labels of all kinds."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit

import bayescal as bc
from bayescal import metrics
from bayescal._core.random.keys import generator
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.predictions import Reading
from bayescal.metrics.registry import METRICS
from bayescal.metrics.uncertainty import measured as _measured
from bayescal.metrics.uncertainty.groups import GroupedSums, in_clusters

Array = np.ndarray
SMOOTH = pytest.param("smooth_ece", marks=pytest.mark.slow)
NAMES = ["log_loss", "brier_score", "accuracy", "ece", SMOOTH, "loss_gap"]


def make_clusters(clusters: int = 24, size: int = 3, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return probabilities rounded to hundredths, labels and clusters, in random order."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(clusters), size)
    p = np.round(np.clip(rng.random(clusters)[groups] + rng.normal(0, 0.1, len(groups)), 0, 1), 2)
    y = (np.where(rng.random(len(groups)) < 0.7, rng.random(clusters)[groups], 0.5) < p).astype(int)
    order = rng.permutation(len(groups))
    return p[order], y[order], groups[order]


def approx_ends(result: metrics.Interval) -> Any:
    return pytest.approx(result[:6], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("weights", ["halves", "counts"])
@pytest.mark.parametrize("name", NAMES)
def test_equal_rows_of_a_cluster_are_one_row(name: str, weights: str) -> None:
    p, y, _ = make_clusters()
    n = len(p)
    choices = {"halves": np.repeat([0.3, 0.7], n), "counts": np.repeat([1.0, 3.0], n)}
    twice: dict[str, Any] = {"weights": choices[weights], "groups": np.tile(np.arange(n), 2)}
    few: dict[str, Any] = {"replicates": 100}
    result = metrics.interval(name, np.tile(p, 2), np.tile(y, 2), **twice, **few)
    assert result[:6] == approx_ends(metrics.interval(name, p, y, **few))
    pair = np.tile(p, 2), np.tile(p**2, 2)
    gap = metrics.difference(name, *pair, np.tile(y, 2), **twice, **few)
    expected = metrics.difference(name, p, p**2, y, **few)
    assert gap[:6] == approx_ends(expected)
    assert gap.p_value == pytest.approx(expected.p_value, rel=1e-9)
    test = metrics.spiegelhalter_test(np.tile(p, 2), np.tile(y, 2), **twice)
    assert test == pytest.approx(metrics.spiegelhalter_test(p, y))


@pytest.mark.parametrize("name", ["brier_score", "accuracy"])
def test_general_clusters_of_equal_rows_are_one_row_but_for_rounding(name: str) -> None:
    """Check clusters of equal rows of which one differs by rounding, so none is merged."""
    p, y, _ = make_clusters()
    near = np.tile(p, 2)
    near[0] += 1e-12
    groups = np.tile(np.arange(len(p)), 2)
    result = metrics.interval(name, near, np.tile(y, 2), groups=groups)
    assert result[:6] == pytest.approx(metrics.interval(name, p, y)[:6], rel=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_standard_errors_are_of_sums_by_cluster(weighted: bool) -> None:
    p, y, groups = make_clusters()
    w = np.random.default_rng(1).gamma(2, size=len(p)) if weighted else np.ones(len(p))
    cost = (p - y) ** 2
    value = w @ cost / w.sum()
    sums = np.array([w[groups == g] @ (cost[groups == g] - value) for g in range(24)]) / w.sum()
    result = metrics.interval("brier_score", p, y, weights=w, groups=groups)
    # Unequal clusters are worth fewer equal ones.
    masses = np.bincount(groups, w)
    count = w.sum() ** 2 / (masses @ masses)
    factor = count / (count - 1)
    assert result.standard_error == pytest.approx(np.sqrt(factor * sums @ sums), rel=1e-9)
    assert result.lower <= value - stats.t(count - 1).ppf(0.95) * result.standard_error + 1e-12
    other = (p**2 - y) ** 2 - cost
    sums = np.array(
        [w[groups == g] @ (other - w @ other / w.sum())[groups == g] for g in range(24)]
    )
    gap = metrics.difference("brier_score", p**2, p, y, weights=w, groups=groups)
    expected = np.sqrt(factor * sums @ sums) / w.sum()
    assert gap.standard_error == pytest.approx(expected, rel=1e-9)


def test_an_accuracy_has_wilsons_interval_of_as_many_rows_as_its_error_is_worth() -> None:
    p, y, groups = make_clusters(30, 6)
    right = ((p > 0.5) == y).astype(float)
    share = metrics.accuracy(p, y)
    error = np.bincount(groups, right - share) / len(p)
    size = share * (1 - share) / (error @ error)
    size *= (stats.t(size - 1).ppf(0.95) / stats.t(29).ppf(0.95)) ** 2
    z = stats.norm.ppf(0.95)
    middle, half = (
        share + z**2 / (2 * size),
        z * np.sqrt(share * (1 - share) / size + (z / size / 2) ** 2),
    )
    result = metrics.interval("accuracy", p, y, groups=groups)
    expected = (np.array([-half, half]) + middle) / (1 + z**2 / size)
    np.testing.assert_allclose(result[2:4], expected, rtol=1e-9)
    # Where all predictions are right, the rows of a cluster count as equal.
    result = metrics.interval("accuracy", y * 0.8 + 0.1, y, groups=groups)
    assert result.lower == pytest.approx(30 / (30 + z**2))


@pytest.mark.parametrize("weighted", ["none", "counts", "shares"])
@pytest.mark.parametrize(
    ("name", "options"),
    [("ece", {"bins": 5}), ("ece", {"binning": "equal_mass", "bins": 4}), ("log_loss", {})],
)
def test_whole_clusters_are_drawn(name: str, options: dict[str, Any], weighted: str) -> None:
    p, y, groups = make_clusters()
    rng = np.random.default_rng(1)
    weights = {"none": None, "counts": rng.integers(1, 4, 72), "shares": rng.gamma(2, size=72)}
    w: Any = weights[weighted]
    result = metrics.bootstrap(
        name, p, y, replicates=5, seed=3, groups=groups, weights=w, **options
    )
    # In order of appearance.
    members = [np.flatnonzero(groups == g) for g in pd.unique(groups)]
    for value, drawn in zip(result, generator(3).integers(0, 24, (5, 24)), strict=True):
        rows = np.concatenate([members[g] for g in drawn])
        drawn_weights = None if w is None else w[rows]
        expected = getattr(metrics, name)(p[rows], y[rows], weights=drawn_weights, **options)
        assert value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("many", [False, True])
def test_labels_of_any_kind(many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if many:
        monkeypatch.setattr(_measured, "MANY", 1)
    p, y, groups = make_clusters()
    names = [f"race {g}" for g in groups]
    kinds: list[Any] = [
        names,
        np.array(names),
        pd.Series(names),
        pd.Categorical(names),
        pd.array(groups, dtype="Int64"),
        groups - 12.5,
        [(g % 5, g // 5) for g in groups.tolist()],
        pd.date_range("2020-01-01", periods=24)[groups],
    ]
    expected = metrics.interval("ece", p, y, groups=groups)
    assert all(metrics.interval("ece", p, y, groups=labels) == expected for labels in kinds)
    assert expected != metrics.interval("ece", p, y)


def test_rows_of_weight_zero_need_no_group() -> None:
    p, y, groups = make_clusters()
    weights = np.arange(72) % 3 / 7
    labels = [None if w == 0 else f"g{g}" for g, w in zip(groups, weights, strict=True)]
    kept = weights > 0
    result = metrics.interval("ece", p, y, weights=weights, groups=labels)
    expected = metrics.interval("ece", p[kept], y[kept], weights=weights[kept], groups=groups[kept])
    assert result == expected


def test_clusters_of_single_rows_with_weights_are_none() -> None:
    p, y, _ = make_clusters()
    weights = np.random.default_rng(0).uniform(0.5, 2, 72)
    result = metrics.interval("ece", p, y, weights=weights, groups=np.arange(72), replicates=50)
    assert result == metrics.interval("ece", p, y, weights=weights, replicates=50)


@pytest.mark.parametrize("name", ["brier_score", "accuracy"])
def test_counts_of_clusters_of_single_rows_are_copies_in_a_cluster(name: str) -> None:
    p, y, _ = make_clusters()
    counts = np.random.default_rng(0).integers(1, 4, 72)
    result = metrics.interval(name, p, y, weights=counts, groups=np.arange(72))
    copies = metrics.interval(
        name,
        *(np.repeat(part, counts, axis=0) for part in (p, y)),
        groups=np.repeat(np.arange(72), counts),
    )
    np.testing.assert_allclose(result[:6], copies[:6], rtol=1e-9)
    alone = metrics.interval(name, p, y, weights=counts)
    assert result.standard_error > 1.1 * alone.standard_error


def test_reports_of_labels_that_exclude_each_other_may_count_errors_of_all() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 60)
    rows = np.eye(3, dtype=int)[rng.integers(0, 3, 60)]
    how: dict[str, Any] = {"groups": np.arange(60) // 2, "replicates": 20}
    result = metrics.report(p, rows, metrics=["multilabel_ece"], **how)
    (intervals,) = result.intervals.values()
    assert intervals["multilabel_ece"] == metrics.interval("multilabel_ece", p, rows, **how)


def test_more_clusters_than_groups_stay_whole() -> None:
    """Check that grouped sums add up to all rows and that each cluster is in a single group."""
    p, y, clusters = make_clusters(clusters=1500)
    checked = in_clusters(as_predictions(p, y, None, Reading()), clusters, None)
    metric = METRICS["brier_score"].make(None)
    result = GroupedSums.of(metric, checked, 0, whole=True)
    assert len(result.sums) < 1500
    alone = GroupedSums.of(metric, checked._replace(clusters=None), 0, whole=True)
    np.testing.assert_allclose(result.sums.sum(axis=0), alone.sums.sum(axis=0))
    # When a single cluster has weight, all other groups are empty.
    for cluster in (0, 7):
        one = checked._replace(weights=(checked.clusters == cluster).astype(float))
        sums = GroupedSums.of(metric, one, 0, whole=True).sums
        assert (np.abs(sums).sum(axis=(1, 2)) > 0).sum() == 1


def test_one_model_may_have_equal_rows_alone() -> None:
    _, y, groups = make_clusters()
    y, p = np.zeros(72, int), groups / 24
    q = np.clip(p + np.random.default_rng(1).normal(0, 0.1, 72), 0, 1)
    gap = metrics.difference("brier_score", p, q, y, groups=groups)
    sums = np.bincount(groups, p**2 - q**2)
    expected = np.sqrt(24 / 23 * np.sum((sums - sums.mean()) ** 2)) / 72
    assert gap.standard_error == pytest.approx(expected, rel=1e-9)
    assert 0 <= metrics.difference("ece", p, q, y, groups=groups).p_value <= 1  # type: ignore[operator]


def test_spiegelhalter_by_cluster_by_hand() -> None:
    p, y, groups = make_clusters()
    sums = np.bincount(groups, (y - p) * (1 - 2 * p))
    statistic = sums.sum() / np.sqrt(sums @ sums)
    free = (sums @ sums) ** 2 / np.sum(sums**4)
    result = metrics.spiegelhalter_test(p, y, groups=groups)
    assert result == pytest.approx((statistic, 2 * stats.t(free).sf(abs(statistic))))
    # Clusters whose errors cancel do not vary less than independent rows.
    alone = metrics.spiegelhalter_test([0.3] * 8 + [0.7] * 8, [0, 1] * 8)
    paired = metrics.spiegelhalter_test(
        [0.3] * 8 + [0.7] * 8, [0, 1] * 8, groups=np.arange(16) // 2
    )
    assert paired.statistic == pytest.approx(alone.statistic)
    assert metrics.spiegelhalter_test(p, y, groups=["all"] * 72).p_value == 1


def test_consistency_by_the_signs_of_clusters() -> None:
    """Compare with all 256 signs of eight clusters."""
    groups = np.repeat(np.arange(8), 10)
    p = np.tile([0.25, 0.75], 40)
    y = np.repeat([1, 1, 1, 1, 1, 1, 0, 1], 10)
    sums = np.stack([np.bincount(groups, (y - p) * (p == level)) for level in (0.25, 0.75)])
    signs = np.array(list(product([-1, 1], repeat=8)))
    errors = np.abs(signs @ sums.T).sum(axis=1) / 80
    expected = np.mean(errors >= errors[-1] - 1e-12)
    result = metrics.consistency_test("ece", p, y, groups=groups, resamples=4000)
    assert result.statistic == pytest.approx(errors[-1])
    assert result.p_value == pytest.approx(expected, abs=4 * np.sqrt(expected / 4000))
    assert metrics.consistency_test("ece", p, y).p_value < 0.01 < result.p_value


@pytest.mark.slow
def test_reports_and_evaluations_by_cluster() -> None:
    p, y, groups = make_clusters()
    result = bc.evaluate({"raw": p, "flat": p / 2 + 0.25}, y, groups=groups, replicates=50)
    assert result.to_dict()["groups"] == result.report.clusters == 24
    expected = metrics.interval("ece", p, y, groups=groups, replicates=50, bins=15)
    assert result.report.intervals["raw"]["ECE"] == expected
    assert "72 cases in 24 groups" in repr(result)
    assert result.findings["raw"].spiegelhalter == metrics.spiegelhalter_test(p, y, groups=groups)
    test = metrics.consistency_test("ece", p, y, groups=groups, resamples=50)
    assert result.findings["raw"].consistency == test
    sums = np.bincount(groups, p - y)
    bias = result.findings["raw"].bias
    assert bias is not None
    floor = max(sums @ sums, np.sum(p * (1 - p)))
    assert bias.statistic == pytest.approx(sums.sum() / np.sqrt(floor))
    page = result.to_html()
    assert "72 cases in 24 groups" in page
    assert "Pale" not in page
    assert "Pale" in bc.evaluate(p, y, replicates=50).to_html()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": np.zeros(3)}, r"groups must have shape \(72,\), one label for each row, got"),
        ({"groups": np.zeros((72, 2))}, r"got \(72, 2\); for labels in several columns"),
        ({"groups": [None] * 72}, "groups must not have missing labels, got None in row 0"),
        ({"groups": np.full(72, np.nan)}, "groups must not have missing labels, got NaN"),
        ({"groups": np.full(72, "NaT", "M8[ns]")}, "groups must not have missing labels"),
        ({"groups": [("a", np.nan)] * 72}, r"missing labels, got \('a', nan\) in row 0"),
        ({"groups": [[1]] * 72}, "groups must hold hashable labels"),
    ],
)
def test_what_are_no_labels_is_said(options: dict[str, Any], message: str) -> None:
    p, y, _ = make_clusters()
    with pytest.raises((TypeError, ValueError), match=message):
        metrics.interval("ece", p, y, **options)


@pytest.mark.parametrize("name", ["brier_score", "accuracy", "ece"])
def test_fewer_than_ten_clusters_say_nothing(name: str) -> None:
    p, y, _ = make_clusters()
    nine = metrics.interval(name, p, y, groups=np.arange(72) // 8, replicates=50)
    assert (nine.lower, nine.upper, nine.standard_error) == (0, 1, np.inf)
    ten = metrics.interval(name, p, y, groups=np.arange(72) * 10 // 72, replicates=50)
    assert ten.upper - ten.lower < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["brier_score", "accuracy", "roc_auc", "ece"])
@pytest.mark.parametrize("sizes", [[3] * 40 + [500], [20] * 9 + [400], [5] * 10 + [300, 300]])
def test_coverage_where_few_clusters_have_most_of_the_rows(name: str, sizes: list[int]) -> None:
    """Check correlated rows; by the number of clusters, coverage would be 10 to 60 %."""

    def draw(rng: np.random.Generator, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z, offset = 1.5 * rng.normal(size=len(groups)), rng.normal(size=groups[-1] + 1)
        return expit(z), (rng.random(len(groups)) < expit(z + offset[groups])).astype(int)

    truth = getattr(metrics, name)(*draw(np.random.default_rng(0), np.arange(400_000)))
    groups = np.repeat(np.arange(len(sizes)), sizes)
    covered = 0
    for run in range(100):
        p, y = draw(np.random.default_rng([1, run]), groups)
        result = metrics.interval(name, p, y, groups=groups)
        covered += result.lower <= truth <= result.upper
    assert covered >= 84


@pytest.mark.parametrize("name", ["skce", "debiased_ece", "canonical_ece"])
def test_metrics_of_independent_rows_are_refused(name: str) -> None:
    p, y, groups = make_clusters()
    with pytest.raises(ValueError, match=f"groups must be left out for '{name}'"):
        metrics.interval(name, p, y, groups=groups)


def test_blocks_are_refused() -> None:
    p, y, groups = make_clusters()
    blocks = bc.Blocks([(p, y)])
    for function in (
        lambda: metrics.interval("ece", blocks, groups=groups),
        lambda: metrics.report(blocks, groups=groups),
        lambda: bc.evaluate(blocks, groups=groups),
    ):
        with pytest.raises(ValueError, match="groups must be left out for Blocks"):
            function()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["brier_score", "accuracy", "ece"])
def test_coverage_where_clusters_are_alike_within(name: str) -> None:
    """Check 40 clusters of 10 rows with one label; ignoring clusters, coverage would be 50 %."""
    rng = np.random.default_rng(5)
    groups, runs = np.repeat(np.arange(40), 10), 150
    big = rng.random(200_000)
    truth = getattr(metrics, name)(big**1.5, (rng.random(200_000) < big).astype(int))
    covered = rejected = 0
    for _ in range(runs):
        p = rng.random(40)[groups]
        y = (rng.random(40)[groups] < p).astype(int)
        q = np.clip(p**1.5 + rng.normal(0, 1e-3, 400), 0, 1)
        interval = metrics.interval(name, q, y, groups=groups, replicates=200)
        covered += interval.lower <= truth <= interval.upper
        rejected += metrics.spiegelhalter_test(p, y, groups=groups).p_value <= 0.05
    assert covered / runs >= 0.85
    assert rejected / runs <= 0.1


def test_certain_predictions_that_are_wrong_are_impossible_in_clusters_too() -> None:
    p, groups = np.tile([0.0, 1.0, 1.0, 0.0], 6), np.arange(24) // 2
    y = p.astype(int)
    assert metrics.spiegelhalter_test(p, y, groups=groups) == (0, 1)
    y[[1, 9]] = 0
    for given in (None, groups, np.zeros(24)):
        assert metrics.spiegelhalter_test(p, y, groups=given) == (np.inf, 0)
    # A single uncertain prediction says nothing about the rest.
    single = metrics.spiegelhalter_test(np.append(p, 0.3), np.append(y, 0), groups=np.zeros(25))
    assert np.isnan(single.statistic) and single.p_value == 1
