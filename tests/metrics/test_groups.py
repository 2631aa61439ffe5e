"""Large data: sums by group and by cell against full sums, closed forms and repeated rows."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest
from scipy import stats

import bayescal as bc
from bayescal import metrics
from bayescal.data.blocks.predictions import as_predictions
from bayescal.metrics.registry import streamed
from bayescal.metrics.sums import collect, standard_error
from bayescal.metrics.uncertainty import calibration_tests as _significance
from bayescal.metrics.uncertainty import groups as _groups
from bayescal.metrics.uncertainty import measured as _measured
from bayescal.metrics.uncertainty.calibration_tests import Spiegelhalter
from bayescal.metrics.uncertainty.consistency import Consistency
from bayescal.metrics.uncertainty.groups import GroupedSums, grouped
from bayescal.metrics.uncertainty.measured import MeasuredMetric, prepare
from bayescal.metrics.uncertainty.ranking import measure
from bayescal.metrics.uncertainty.replicates import error_by_chance, replicate

Array = np.ndarray
CASES: list[Any] = [
    ("log_loss", {}),
    ("ece", {}),
    ("ece", {"kind": "classwise", "bins": 5}),
    ("ece", {"kind": "top_label", "binning": "equal_mass", "bins": 4}),
    ("debiased_ece", {"bins": 5}),
    ("debiased_ece", {"norm": 1, "binning": "equal_width"}),
    ("smooth_ece", {"bandwidth": 0.1}),
    pytest.param("kde_ece", {}, marks=pytest.mark.slow),
    ("loss_gap", {"functions": 20}),
]


@pytest.fixture
def treat_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat small data as large data."""
    monkeypatch.setattr(_measured, "MANY", 1)
    monkeypatch.setattr(_significance, "MANY", 1)


def make_probs(n: int, k: int = 3, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, k))
    y = np.argmax(0.6 * z + rng.gumbel(size=z.shape), axis=1)
    probs = np.exp(z)
    return probs / probs.sum(axis=1, keepdims=True), y


@pytest.mark.parametrize("weighted", ["counts", "shares"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_sums_of_blocks_add_and_are_those_of_all(
    name: str, options: dict[str, Any], weighted: str
) -> None:
    probs, y = make_probs(500)
    rng = np.random.default_rng(1)
    weights = rng.integers(1, 90, 500) * (1.0 if weighted == "counts" else 0.37)
    data, _ = prepare(name, probs, y, weights, options)
    metric, whole = streamed(name, 3, options), weighted != "shares"
    together = GroupedSums.of(metric, data, 3, whole=whole)
    parts = [slice(0, 1), slice(1, 130), slice(130, 500)]
    blocks = [
        GroupedSums.of(metric, data.part(part), 3, first=part.start, whole=whole)
        for part in parts[::-1]
    ]
    added = reduce(add, blocks)
    np.testing.assert_allclose(added.sums, together.sums, atol=1e-9)
    np.testing.assert_allclose(added.sizes, together.sizes)
    expected = collect(metric, data)
    np.testing.assert_allclose(together.total, expected, rtol=1e-9, atol=1e-9 * expected.max())
    other = GroupedSums.of(metric, data, 4, whole=whole)
    assert not np.allclose(other.sums, together.sums)
    np.testing.assert_array_equal(added.replicates(5), added.replicates(5))


@pytest.mark.parametrize("name", ["log_loss", "ece"])
@pytest.mark.parametrize("weighted", ["ones", "counts", "large", "shares"])
def test_deviations_are_those_of_the_delta_method(name: str, weighted: str) -> None:
    """Compare the spread with squares of 1,024 groups and 4,000 replicates, for sorted rows."""
    probs, y = make_probs(4000)
    rng = np.random.default_rng(2)
    weights = {
        "ones": np.ones(4000),
        "counts": rng.integers(1, 5, 4000).astype(float),
        "large": np.where(rng.random(4000) < 0.5, 1000.0, 200.0),
        "shares": rng.gamma(2, size=4000),
    }[weighted]
    order = np.lexsort((probs[:, 0], y))
    probs, y, weights = probs[order], y[order], weights[order]
    data, metric = prepare(name, probs, y, weights, {"kind": "classwise"} if name == "ece" else {})
    expected, _ = standard_error(metric, data)  # type: ignore[arg-type]
    result = []
    for seed in range(4):
        sums = GroupedSums.of(metric, data, seed, whole=data.whole)  # type: ignore[arg-type]
        assert len(sums.sums) == 1024
        result.append(sums.replicates(1000).std())
    error = np.sqrt(1 / 2048 / 4 + 1 / 8000)
    assert np.sqrt(np.mean(np.square(result))) == pytest.approx(expected, rel=4 * error)


def test_the_squares_of_groups_are_a_variance() -> None:
    """Check that block means give a variance with a chi-square distribution (1,023 degrees)."""
    probs, y = make_probs(5000)
    first, second = (
        as_predictions(predicted, y)
        for predicted in (probs, np.sqrt(probs) / np.sqrt(probs).sum(axis=1, keepdims=True))
    )
    metric = streamed("log_loss", 3, {})
    expected, _ = standard_error(metric, first, second)
    result = []
    for seed in range(20):
        pair = [
            MeasuredMetric("log_loss", metric, GroupedSums.of(metric, data, seed, whole=True), 100)
            for data in (first, second)
        ]
        result.append(pair[0].less(pair[1], 0.9).standard_error)
    exact = metrics.difference("log_loss", first.probs, second.probs, y)
    assert exact.standard_error == pytest.approx(expected * np.sqrt(5000 / 4999), rel=1e-9)
    error = np.sqrt(1 / (2 * 1023 * 20))
    assert np.sqrt(np.mean(np.square(result))) == pytest.approx(exact.standard_error, rel=4 * error)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ece", {}),
        ("ece", {"binning": "equal_mass"}),
        ("debiased_ece", {}),
        pytest.param("smooth_ece", {"bandwidth": 0.05}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("treat_as_large")
def test_intervals_by_groups_are_those_by_cases(name: str, options: dict[str, Any]) -> None:
    probs, y = make_probs(10_000)
    measured = measure(name, probs, y, None, options, 500, 0)
    drawn = measured.replicates
    expected = replicate(measured._metric, measured._source, 500, 0)
    assert measured._groups is not None
    # The error of 500 replicates each, and of the groups.
    error = np.sqrt(2 / 1000 + 1 / (2 * len(measured._groups.sums)))
    assert drawn.std() == pytest.approx(expected.std(), rel=4 * error)
    assert measured.value == getattr(metrics, name)(probs, y, **options)
    assert measured.interval(0.9) == measure(name, probs, y, None, options, 500, 0).interval(0.9)


def test_whole_weights_are_repetitions() -> None:
    """Check the root mean square by chance too, which has 15 squared normal terms."""
    rng = np.random.default_rng(3)
    p = rng.random(3000)
    y, weights = (rng.random(3000) < p).astype(int), rng.integers(1, 4, 3000)
    rows = np.repeat(np.arange(3000), weights)
    counts, repeated = (
        [measure("ece", probs, labels, row_weights, {}, 500, seed) for seed in range(4)]
        for probs, labels, row_weights in ((p, y, weights), (p[rows], y[rows], None))
    )
    spreads, chances = [], []
    for group in (counts, repeated):
        sums = [GroupedSums.of(m._metric, m._source, s, whole=True) for s, m in enumerate(group)]
        assert all(measured.sizes[1] == weights.sum() for measured in sums)
        spreads.append(np.mean([measured.replicates(500).std() for measured in sums]))
        chances.append(np.mean([measured.chance() for measured in sums]))
    assert spreads[0] == pytest.approx(spreads[1], rel=4 * np.sqrt(2 * (1 / 4000 + 1 / 8192)))
    by_labels = np.mean([error_by_chance(m._metric, m._source, s) for s, m in enumerate(counts)])
    # The error of 4 times 64 values with a relative deviation of a fifth.
    assert chances[0] == pytest.approx(by_labels, rel=4 * 0.2 * np.sqrt(2 / 256))
    assert chances[1] == pytest.approx(by_labels, rel=4 * 0.2 * np.sqrt(2 / 256))


@pytest.mark.usefixtures("treat_as_large")
@pytest.mark.parametrize(
    ("name", "options"),
    [*CASES[1:], ("ece", {"kind": "top_k_label"})],
)
def test_chance_of_all_errors(name: str, options: dict[str, Any]) -> None:
    """Compare the root mean square error of calibrated predictions with that of drawn labels."""
    rng = np.random.default_rng(6)
    probs, _ = make_probs(3000)
    y = (probs.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1)
    data, made = prepare(name, probs, y, None, options)
    metric = grouped(made, data)
    assert metric is not None
    result = GroupedSums.of(metric, data, 0, whole=True).chance()
    assert result == pytest.approx(error_by_chance(made, data, 0), rel=0.2)


@pytest.mark.parametrize(
    ("binning", "weighted"),
    [
        ("equal_width", "ones"),
        ("equal_width", "shares"),
        ("equal_mass", "counts"),
        ("equal_mass", "shares"),
    ],
)
@pytest.mark.usefixtures("treat_as_large")
def test_consistency_by_cells(binning: str, weighted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the p-value with labels drawn row by row, within both standard errors."""
    rng = np.random.default_rng(7)
    # Some predictions lie on borders of bins.
    p = np.where(rng.random(2000) < 0.3, 0.2, rng.random(2000) ** 2)
    y = (rng.random(2000) < p * 1.02).astype(int)
    weights = {"ones": None, "counts": None, "shares": rng.gamma(2, size=2000)}[weighted]
    if weighted == "counts":
        happened = rng.binomial(2, p)
        p, y, weights = np.tile(p, 2), np.repeat([1, 0], 2000), np.append(happened, 2 - happened)
    options: dict[str, Any] = {"binning": binning, "weights": weights, "resamples": 1000}
    cells = metrics.consistency_test("ece", p, y, **options)
    monkeypatch.setattr(_significance, "MANY", 10_000)
    cases = metrics.consistency_test("ece", p, y, **options)
    assert cells.statistic == cases.statistic
    q = cases.p_value
    assert 0.02 < q < 0.98
    assert cells.p_value == pytest.approx(q, abs=4 * np.sqrt(2 * q * (1 - q) / 1000) + 0.02)


@pytest.mark.usefixtures("treat_as_large")
def test_events_that_were_excluded_count_in_the_consistency_test() -> None:
    """Check that events predicted with probability zero refute calibration."""
    p, y = np.r_[np.zeros(100), np.full(900, 0.5)], np.r_[np.ones(100), np.arange(900) % 2]
    assert metrics.consistency_test("ece", p, y, resamples=99).p_value == 0.01


def test_what_tests_need_adds_over_blocks() -> None:
    rng = np.random.default_rng(8)
    p = rng.random(1000) ** 2
    data = as_predictions(p, (rng.random(1000) < p).astype(int))
    for metric in (Consistency(streamed("ece", None, {}), 200, 0, True), Spiegelhalter(True)):
        parts = [collect(metric, data.part(part)) for part in (slice(0, 7), slice(7, 1000))]
        np.testing.assert_allclose(sum(parts), collect(metric, data), rtol=1e-12)
    variance = np.sum((1 - 2 * p) ** 2 * p * (1 - p))
    z = np.sum((p - data.y) * (2 * p - 1)) / np.sqrt(variance)
    assert metrics.spiegelhalter_test(p, data.y).statistic == pytest.approx(z, rel=1e-9)


def test_numbers_of_ones_are_binomial_but_for_the_stated_bound() -> None:
    """Compare binomial sums with the exact distribution of probabilities within one part in 128."""
    p = np.linspace(0.25, 0.25 * (1 + 1 / 128), 60)
    law = np.ones(1)
    for probability in p:
        law = np.convolve(law, [1 - probability, probability])
    binomial = stats.binom.pmf(np.arange(61), 60, p.mean())
    assert 0 < np.abs(law - binomial).sum() / 2 < 2e-5


def test_groups_are_even_and_independent_of_order() -> None:
    keys = np.random.default_rng(0).integers(0, 1 << 63, 2, np.uint64)
    first, second = (_groups._hash(np.arange(1 << 17), key, 256) for key in keys)
    for one in (first, 256 * (first[1:] % 16) + first[:-1], 16 * (first % 16) + second % 16):
        counts = np.bincount(one)
        assert stats.chisquare(counts[counts > 0]).pvalue > 1e-3


def test_memory_is_bounded() -> None:
    data = as_predictions(np.full((10, 500), 1 / 500), np.zeros(10, int))
    most = "kde_ece", {"kernel": "gaussian"}
    for name, options in [
        most,
        ("smooth_ece", {}),
        ("ece", {"kind": "classwise", "binning": "equal_mass"}),
    ]:
        made = prepare(name, data, data.y, None, options)[1]
        for metric in (grouped(made, data), grouped(made)):
            assert metric is not None
            sums = GroupedSums.of(metric, data, 0, whole=True).sums
            assert sums.nbytes < 64e6 and len(sums) >= 64


@pytest.mark.usefixtures("treat_as_large")
def test_a_report_has_the_same_values() -> None:
    p, y = make_probs(2000, 2)
    even = np.sqrt(p) / np.sqrt(p).sum(axis=1, keepdims=True)
    many = bc.evaluate({"raw": p, "even": even}, y, replicates=200)
    _measured.MANY = _significance.MANY = 10_000
    one = bc.evaluate({"raw": p, "even": even}, y, replicates=200)
    for name, intervals in one.report.intervals.items():
        for metric, expected in intervals.items():
            result = many.report.intervals[name][metric]
            assert result.value == expected.value
            assert result.standard_error == pytest.approx(expected.standard_error, rel=0.25)
        assert many.findings[name].verdict == one.findings[name].verdict
