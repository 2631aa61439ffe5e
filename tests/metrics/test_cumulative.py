"""Cumulative calibration errors and their tests, against loops, enumeration and MAPIE."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.random import RandomState
from scipy import stats

from bayescal import Blocks, metrics
from bayescal.data.blocks.predictions import as_predictions
from bayescal.metrics.calibration.cumulative import make_ecce
from bayescal.metrics.uncertainty import cumulative_test
from bayescal.metrics.uncertainty.cumulative_test import CumulativeSteps, tail_of_law

Array = np.ndarray
KINDS: tuple[Any, ...] = ("max", "range")
EVENTS = "confidence", "classwise", "top_label", "top_k_confidence", "top_k_label"


def loop_sums(p: Array, y: Array, weights: Array | None = None) -> list[float]:
    """Compute cumulative differences at the ends of tied rows, starting from zero."""
    steps: dict[float, float] = defaultdict(float)
    for i in range(len(p)):
        weight = 1.0 if weights is None else float(weights[i])
        steps[round(float(p[i]), 12)] += weight * (float(y[i]) - float(p[i]))
    return list(itertools.accumulate((steps[key] for key in sorted(steps)), initial=0.0))


def size(sums: list[float], kind: str) -> float:
    return max(map(abs, sums)) if kind == "max" else max(sums) - min(sums)


def loop_groups(probs: Array, y: Array, events: str, k: int) -> list[tuple[Array, Array, Array]]:
    """Return predictions, outcomes and rows of each group with separate cumulative differences."""
    n, classes = probs.shape
    rows, order = np.arange(n), np.argsort(-probs, axis=1, kind="stable")
    if events == "classwise":
        return [(probs[:, j], y == j, rows) for j in range(classes)]
    result = []
    for rank in range(k if events.startswith("top_k") else 1):
        label = order[:, rank]
        predicted, happened = probs[rows, label], label == y
        if not events.endswith("label"):
            result.append((predicted, happened, rows))
            continue
        for j in range(classes):
            class_rows = np.flatnonzero(label == j)
            result.append((predicted[class_rows], happened[class_rows], class_rows))
    return result


def draw_probs(n: int = 400, k: int = 4, seed: int = 0, digits: int = 12) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(k, 0.5), size=n)
    if digits == 1:
        probs = rng.multinomial(10, probs) / 10
    return probs, np.argmax(np.log(probs + 1e-3) * 0.6 + rng.gumbel(size=(n, k)), axis=1)


def draw_binary(n: int = 500, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(100 + seed)
    p = rng.random(n)
    return p, (rng.random(n) < p**1.3).astype(int)


# --- the error ----------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [12, 1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_binary_error_equals_a_loop(kind: Any, weighted: bool, digits: int) -> None:
    p, y = draw_binary()
    p = p.round(digits)
    weights = np.random.default_rng(1).exponential(size=500) if weighted else None
    total = 500 if weights is None else weights.sum()
    expected = size(loop_sums(p, y, weights), kind) / total
    assert metrics.ecce(p, y, kind=kind, weights=weights) == pytest.approx(expected, rel=1e-10)
    rows = np.stack([1 - p, p], axis=1)
    assert metrics.ecce(rows, y, kind=kind, weights=weights, events="binary") == pytest.approx(
        expected, rel=1e-10
    )


@pytest.mark.parametrize(("kind", "digits"), [*zip(KINDS, [12, 1], strict=True)])
@pytest.mark.parametrize("events", EVENTS)
def test_events_equal_loops(events: Any, kind: Any, digits: int) -> None:
    probs, y = draw_probs(digits=digits)
    weights = np.random.default_rng(1).integers(0, 4, 400).astype(float)
    options: dict[str, Any] = {"k": 3} if events.startswith("top_k") else {}
    parts = {"classwise": 4, "top_k_confidence": 3, "top_k_label": 3}.get(events, 1)
    groups = loop_groups(probs, y, events, 3)
    sums = [size(loop_sums(p, hit, weights[rows]), kind) for p, hit, rows in groups]
    expected = sum(sums) / weights.sum() / parts
    result = metrics.ecce(probs, y, kind=kind, events=events, weights=weights, **options)
    assert result == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_labels_are_added(kind: Any) -> None:
    rng = np.random.default_rng(0)
    p = rng.random((300, 3))
    y = (rng.random((300, 3)) < p**1.5).astype(int)
    weights = rng.exponential(size=300)
    errors = [metrics.ecce(p[:, j], y[:, j], kind=kind, weights=weights) for j in range(3)]
    shares = weights @ y / weights.sum()
    for average, expected in (
        ("total", sum(errors)),
        ("mean", sum(errors) / 3),
        ("weighted", shares @ errors),
    ):
        result = metrics.multilabel_ecce(p, y, kind=kind, average=average, weights=weights)
        assert result == pytest.approx(expected, rel=1e-10)


def test_range_is_the_largest_miscalibration_of_an_interval() -> None:
    """Compare with the definition over all intervals of predictions."""
    p, y = draw_binary(60)
    order = np.argsort(p)
    gaps = (y - p)[order]
    sums = [gaps[i:j].sum() for i in range(60) for j in range(i + 1, 61)]
    assert metrics.ecce(p, y, kind="range") == pytest.approx(np.abs(sums).max() / 60, rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_ties_have_no_order(kind: Any) -> None:
    p, y = draw_binary()
    p = p.round(1)
    rng = np.random.default_rng(2)
    value = metrics.ecce(p, y, kind=kind)
    test = metrics.ecce_test(p, y, kind=kind, resamples=99)
    # Adding tied rows one by one, zeros first, would give a larger value.
    order = np.lexsort((y, p))
    assert size(list(np.cumsum((y - p)[order])), kind) / 500 > value + 1e-3
    for _ in range(5):
        order = rng.permutation(500)
        assert metrics.ecce(p[order], y[order], kind=kind) == pytest.approx(value, abs=1e-14)
        again = metrics.ecce_test(p[order], y[order], kind=kind, resamples=99)
        assert again.p_value == test.p_value
        assert again.statistic == pytest.approx(test.statistic, rel=1e-12)


def test_predictions_that_differ_by_rounding_are_tied() -> None:
    p = np.array([0.3, 0.1 + 0.2, 0.3, 3 * 0.1])
    assert len(set(p.tolist())) == 2
    y = np.array([0, 1, 0, 1])
    assert metrics.ecce(p, y) == pytest.approx(0.2, rel=1e-12)
    assert metrics.ecce(p, 1 - y) == pytest.approx(0.2, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_ends_of_cells_within_a_tie_do_not_count(kind: Any) -> None:
    for seed in (36, 69, 130, 141):
        rng = np.random.default_rng(seed)
        # Multiples of 1/64 are the first of a cell of blocks, and some neighbors in another.
        p = np.clip(rng.integers(1, 64, 200) / 64 + 1e-16 * rng.integers(-2, 3, 200), 0, 1)
        y = (rng.random(200) < p).astype(int)
        blocks = Blocks([(p[i::3], y[i::3]) for i in range(3)])
        expected = metrics.ecce(p, y, kind=kind)
        assert metrics.ecce(blocks, kind=kind) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_has_the_ties_of_double(kind: Any) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        tenths = rng.integers(1, 10, 400) / 10
        y = (rng.random(400) < tenths).astype(int)
        p = tenths.astype(np.float32)
        # Neighbors in single precision, on either side; those of 0.5 are in two cells of blocks.
        p = np.nextafter(p, rng.integers(0, 2, 400).astype(np.float32))
        expected = metrics.ecce(tenths, y, kind=kind)
        blocks = Blocks([(p[i::3], y[i::3]) for i in range(3)])
        for scores, labels in ((p, y), (jnp.asarray(p), y), (blocks, None)):
            assert metrics.ecce(scores, labels, kind=kind) == pytest.approx(expected, abs=1e-6)
        draws = metrics.interval("ecce", p, y, kind=kind, replicates=20)
        same_draws = metrics.interval("ecce", tenths, y, kind=kind, replicates=20)
        assert draws == pytest.approx(same_draws, abs=1e-5)


@pytest.mark.parametrize("events", ["confidence", "classwise", "top_k_label"])
def test_sources_and_libraries_agree(events: Any) -> None:
    probs, y = draw_probs(2000)
    weights = np.random.default_rng(3).integers(1, 4, 2000)
    for kind in KINDS if events == "confidence" else KINDS[:1]:
        options: dict[str, Any] = {"kind": kind, "events": events}
        value = metrics.ecce(probs, y, weights=weights, **options)
        parts = [
            (probs[i : i + 300], y[i : i + 300], weights[i : i + 300]) for i in range(0, 2000, 300)
        ]
        assert metrics.ecce(Blocks(parts), **options) == pytest.approx(value, rel=1e-9)
        single = probs.astype(np.float32)
        on_device = metrics.ecce(jnp.asarray(single), y, weights=weights, **options)
        expected = metrics.ecce(single, y, weights=weights, **options)
        assert on_device == pytest.approx(expected, rel=1e-6)
        frame = pd.DataFrame(probs[:, ::-1], columns=[3, 2, 1, 0])
        named = metrics.ecce(frame, y, weights=weights, classes=[0, 1, 2, 3], **options)
        assert named == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("events", EVENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_accumulated_errors_are_within_their_bounds(kind: str, events: str) -> None:
    probs, y = draw_probs(5000)
    options = {"kind": kind, "events": events}
    total = metrics.Accumulator([("ecce", options)], classes=4)
    for part in np.array_split(np.arange(5000), 3):
        total.add(probs[part], y[part])
    exact = metrics.ecce(probs, y, **options)  # type: ignore[arg-type]
    result, bound = total.result()["ecce"], total.bounds()["ecce"]
    assert result <= exact + 1e-12 <= result + bound + 2e-12
    assert 0 <= bound < 0.02


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("power", [1.0, 1.3])
def test_blocks_of_many_rows_look_into_few_cells(kind: Any, power: float) -> None:
    rng = np.random.default_rng(4)
    p = rng.beta(0.3, 1, 60_000)
    y = (rng.random(60_000) < p**power).astype(int)
    blocks = Blocks([(p[i::7], y[i::7]) for i in range(7)])
    assert metrics.ecce(blocks, kind=kind) == pytest.approx(metrics.ecce(p, y, kind=kind), rel=1e-9)


def test_interval_and_difference() -> None:
    p, y = draw_binary(800)
    worse = p**0.5
    result = metrics.interval("ecce", p, y, replicates=200)
    assert result.value == metrics.ecce(p, y)
    assert result.lower <= result.estimate <= result.upper
    gap = metrics.difference("ecce", worse, p, y, replicates=200, kind="range")
    assert gap.p_value is not None and gap.p_value < 0.01
    assert 0 < gap.lower < gap.value
    report = metrics.report(p, y, metrics={"ECCE": ("ecce", {"kind": "range"})}, replicates=50)
    assert report.intervals["model"]["ECCE"].value == metrics.ecce(p, y, kind="range")


def test_replicates_are_errors_of_drawn_rows() -> None:
    p, y = draw_binary(50)
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 50, (4, 50))
    factors = np.stack([np.bincount(rows, minlength=50) for rows in drawn], axis=1).astype(float)
    metric = make_ecce(None, kind="range")
    result = metric.compute_many(as_predictions(p, y), factors)
    expected = [metrics.ecce(p[rows], y[rows], kind="range") for rows in drawn]
    np.testing.assert_allclose(result, expected, rtol=1e-10)


# --- the tests ----------------------------------------------------------------------------------


def mapie_range(p: Array, y: Array) -> float:
    """Compute Kuiper's statistic as MAPIE 1.6 does, with sums that do not start from zero."""
    order = np.argsort(p)
    sums = np.cumsum((y - p)[order])
    return float(np.ptp(sums) / np.sqrt(np.sum(p * (1 - p))))


def test_values_of_mapie() -> None:
    """Compare with values from the tests of MAPIE 1.6 for two samples."""
    generator = RandomState(1)
    y, p = generator.choice([0, 1], size=100), generator.uniform(size=100)
    assert metrics.ecce_test(p, y).statistic == pytest.approx(5.607741, abs=1e-6)
    assert mapie_range(p, y) == pytest.approx(5.354395, abs=1e-6)
    # With the zero before the first row, as in the paper, the range is larger for this sample.
    result = metrics.ecce_test(p, y, kind="range", method="asymptotic")
    assert result.statistic == pytest.approx(5.607741, abs=1e-6)
    assert result.p_value == pytest.approx(0, abs=1e-6)
    generator = RandomState(1)
    p = generator.uniform(size=100)
    y = (generator.uniform(size=100) <= p).astype(int)
    asymptotic: dict[str, Any] = {"method": "asymptotic"}
    assert metrics.ecce_test(p, y, **asymptotic).p_value == pytest.approx(0.2148, abs=1e-6)
    result = metrics.ecce_test(p, y, kind="range", **asymptotic)
    assert result.statistic == pytest.approx(mapie_range(p, y), rel=1e-10)
    assert result.p_value == pytest.approx(0.313006, abs=1e-6)


def test_values_of_the_laws() -> None:
    for x, expected in ((1, 0.063365), (2, 0.818506), (3, 0.989201)):
        assert 1 - tail_of_law("range", x) == pytest.approx(expected, abs=1e-6)
    assert 1 - tail_of_law("max", 1) == pytest.approx(0.3708, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_laws_are_continuous_and_have_their_tails(kind: str) -> None:
    """Check that both series agree where they meet, and the first term of the tail."""
    below, above = tail_of_law(kind, 1 - 1e-12), tail_of_law(kind, 1 + 1e-12)
    assert below == pytest.approx(above, abs=1e-10)
    factor = 4 if kind == "max" else 8
    assert tail_of_law(kind, 12) == pytest.approx(factor * stats.norm.sf(12), rel=1e-12)
    values = [tail_of_law(kind, x) for x in np.linspace(0.05, 9, 400)]
    assert np.all(np.diff(values) <= 1e-15) and 0 <= min(values) <= max(values) <= 1


def test_densities_of_the_laws_have_known_moments() -> None:
    """Compare with the mean range sqrt(8 / pi) and mean maximum sqrt(pi / 2) of Brownian motion."""
    x = np.linspace(0, 12, 6_001)
    for kind, mean in (("max", math.sqrt(math.pi / 2)), ("range", math.sqrt(8 / math.pi))):
        tail = [tail_of_law(kind, value) for value in x]
        assert np.trapezoid(tail, x) == pytest.approx(mean, abs=1e-6)


def exact_p_value(p: Array, weights: Array | None, kind: str, statistic: float) -> float:
    """Compute the exact probability of a statistic at least as large, over all labels."""
    reached = 0.0
    for labels in itertools.product((0, 1), repeat=len(p)):
        y = np.array(labels)
        if size(loop_sums(p, y, weights), kind) >= statistic - 1e-9:
            reached += float(np.prod(np.where(y == 1, p, 1 - p)))
    return reached


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["distinct", "ties", "weights", "two rows"])
def test_simulated_p_values_are_those_of_all_labels(case: str, kind: Any) -> None:
    p = np.array([0.1, 0.25, 0.3, 0.55, 0.7, 0.8, 0.85, 0.95])
    y, weights = np.array([1, 0, 1, 0, 1, 1, 0, 1]), None
    if case == "ties":
        p = p.round(1)
    if case == "weights":
        weights = np.array([0.3, 2.2, 1.1, 0.7, 3.4, 0.2, 1.9, 0.5])
    if case == "two rows":
        p, y = p[:2], y[:2]
    resamples = 20_000
    result = metrics.ecce_test(p, y, kind=kind, weights=weights, resamples=resamples)
    variance = p * (1 - p) if weights is None else weights**2 * p * (1 - p)
    sums = loop_sums(p, y, weights)
    assert result.statistic == pytest.approx(size(sums, kind) / np.sqrt(variance.sum()), rel=1e-10)
    expected = exact_p_value(p, weights, kind, size(sums, kind))
    error = np.sqrt(expected * (1 - expected) / resamples)
    assert abs(result.p_value - expected) < 4 * error + 1 / resamples


def test_labels_are_drawn_in_parts_that_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    p, y = draw_binary(50)
    whole = metrics.ecce_test(p, y, resamples=100)
    monkeypatch.setattr(cumulative_test, "_ELEMENTS", 7 * len(p))
    assert metrics.ecce_test(p, y, resamples=100) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_repetitions(kind: Any) -> None:
    p, y = draw_binary(200)
    p, counts = p.round(2), np.random.default_rng(5).integers(0, 5, 200)
    result = metrics.ecce_test(p, y, kind=kind, weights=counts)
    again = metrics.ecce_test(p.repeat(counts), y.repeat(counts), kind=kind)
    assert result.statistic == pytest.approx(again.statistic, rel=1e-12)
    assert result.p_value == again.p_value
    # Scaled counts are fractional weights of single labels, so only their ratios matter.
    shares = [metrics.ecce_test(p, y, kind=kind, weights=c * counts) for c in (0.1, 0.37)]
    assert shares[0].statistic == pytest.approx(shares[1].statistic, rel=1e-10)
    assert shares[0].p_value == shares[1].p_value
    assert shares[0].statistic < result.statistic


def test_which_p_values_are_simulated() -> None:
    rng = np.random.default_rng(6)

    def many(p: Array, weights: Array | None = None) -> bool:
        ones = np.ones(len(p)) if weights is None else weights
        return CumulativeSteps(p, np.zeros(len(p)), ones, weights is None).brownian

    p = rng.random(10_000)
    assert many(p) and not many(p[:3000])
    assert not many(p.round(1))  # one step has a tenth of the variance
    assert not many(p / 1000)  # only five events are expected
    assert many(np.append(p, np.ones(5000)))  # ties without variance are not a step
    assert many(p, rng.uniform(0.9, 1, 10_000))
    assert not many(p, np.append(np.full(9999, 0.1), 50.5))
    y = (rng.random(10_000) < p).astype(int)
    auto, law = (metrics.ecce_test(p, y, method=m) for m in ("auto", "asymptotic"))
    assert auto == law
    drawn = metrics.ecce_test(p, y, method="simulated", resamples=4000)
    assert drawn.statistic == auto.statistic
    assert drawn.p_value == pytest.approx(law.p_value, abs=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_pooled_steps_have_about_the_p_value_of_all(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, y = draw_binary(3000, seed=7)
    p = p**3
    y = (np.random.default_rng(8).random(3000) < p * 0.97).astype(int)
    options: dict[str, Any] = {"kind": kind, "method": "simulated", "resamples": 4000}
    whole = metrics.ecce_test(p, y, **options)
    assert 0.005 < whole.p_value < 0.6
    monkeypatch.setattr(cumulative_test, "_MAX_STEPS", 300)
    pooled = metrics.ecce_test(p, y, **options)
    assert pooled.statistic == whole.statistic
    assert pooled.p_value == pytest.approx(whole.p_value, abs=0.05)


def test_certain_predictions() -> None:
    for y, statistic, p_value in (([0, 1], 0, 1), ([1, 1], math.inf, 0)):
        for weights in (None, [0.3, 1.2]):
            result = metrics.ecce_test([0.0, 1.0], y, weights=weights, classes=[0, 1])
            assert result == (statistic, p_value)
    steps = CumulativeSteps(np.array([0.0, 1.0]), np.ones(2), np.ones(2), True)
    assert steps.quantile("max", 0.9, 100, 0) == 0 == steps.spread


def test_confidence_is_tested_by_hits() -> None:
    probs, y = draw_probs(300)
    result = metrics.ecce_test(probs, y)
    hits = (probs.argmax(axis=1) == y).astype(int)
    again = metrics.ecce_test(probs.max(axis=1), hits)
    assert result.statistic == pytest.approx(again.statistic, rel=1e-12)
    assert result.p_value == again.p_value


@pytest.mark.parametrize("events", ["confidence", "classwise", "top_label"])
def test_other_events_have_consistency_tests(events: str) -> None:
    rng = np.random.default_rng(9)
    probs = rng.dirichlet(np.ones(3), 300)
    y = (probs.cumsum(axis=1) < rng.random((300, 1))).sum(axis=1)
    sharp = probs**2 / (probs**2).sum(axis=1, keepdims=True)
    good, bad = (
        metrics.consistency_test("ecce", p, y, events=events, resamples=99).p_value
        for p in (probs, sharp)
    )
    assert good > 0.05 and bad == 0.01


def test_clusters() -> None:
    rng = np.random.default_rng(10)
    p = np.repeat(rng.uniform(0.2, 0.8, 60), 10)
    y = np.repeat((rng.random(60) < p[::10]).astype(int), 10)
    y[::10] = 1 - y[::10]
    groups = np.repeat(np.arange(60), 10)
    alone = metrics.consistency_test("ecce", p, y, resamples=200)
    together = metrics.consistency_test("ecce", p, y, resamples=200, groups=groups)
    assert together.p_value >= alone.p_value


DESIGNS: dict[str, tuple[Any, int]] = {
    "uniform, 30": (lambda rng: (rng.random(30), None), 3000),
    "uniform, 2": (lambda rng: (rng.random(2), None), 3000),
    "tenths, 100": (lambda rng: (rng.integers(0, 11, 100) / 10, None), 2000),
    "rare, 300": (lambda rng: (rng.beta(0.5, 50, 300), None), 1000),
    "weights, 100": (lambda rng: (rng.random(100), rng.lognormal(size=100)), 1000),
    "uniform, 10,000": (lambda rng: (rng.random(10_000), None), 1500),
    "tenths, 100,000": (lambda rng: (rng.integers(0, 11, 100_000) / 10, None), 150),
}


@pytest.mark.slow
@pytest.mark.computes
@pytest.mark.parametrize("design", DESIGNS)
def test_true_nulls_are_rejected_as_rarely_as_they_should(design: str) -> None:
    make, runs = DESIGNS[design]
    rng = np.random.default_rng(11)
    result = np.empty((runs, 2))
    for run in range(runs):
        p, weights = make(rng)
        y = (rng.random(len(p)) < p).astype(int)
        options: dict[str, Any] = {"weights": weights, "classes": [0, 1], "resamples": 199}
        result[run] = [metrics.ecce_test(p, y, kind=k, seed=run, **options).p_value for k in KINDS]
    for level in (0.01, 0.05, 0.1, 0.5):
        error = np.sqrt(level * (1 - level) / runs)
        assert np.all(np.mean(result <= level, axis=0) <= level + 4 * error)
    if design.startswith("uniform, 10,000"):
        # The rejection rate is also near the level where the Brownian limit is used.
        assert np.all(np.mean(result <= 0.1, axis=0) >= 0.07)


@pytest.mark.parametrize("kind", KINDS)
def test_over_confidence_is_found(kind: Any) -> None:
    rng = np.random.default_rng(12)
    z = rng.logistic(size=1000)
    y = (rng.random(1000) < 1 / (1 + np.exp(-z))).astype(int)
    assert metrics.ecce_test(1 / (1 + np.exp(-z)), y, kind=kind).p_value > 0.05
    assert metrics.ecce_test(1 / (1 + np.exp(-1.8 * z)), y, kind=kind).p_value < 0.01


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.ecce([0.5], [1], kind="min"), "kind must be"),
        (lambda: metrics.ecce([0.5], [1], events="max"), "events must be"),
        (lambda: metrics.ecce([0.5], [1], k=2), "k must be left out"),
        (lambda: metrics.ecce_test([0.5], [1], kind="min"), "kind must be"),
        (lambda: metrics.ecce_test([0.5], [1], events="classwise"), "events must be"),
        (lambda: metrics.ecce_test([0.5], [1], method="exact"), "method must be"),
        (lambda: metrics.ecce_test([0.5], [1], resamples=0), "resamples must be"),
        (lambda: metrics.multilabel_ecce([[0.5]], [[1]], kind="min"), "kind must be"),
        (lambda: metrics.multilabel_ecce([[0.5]], [[1]], average="sum"), "average must be"),
    ],
)
def test_bad_options_are_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("kind", "digits"), [*zip(KINDS, [1, 16], strict=True)])
def test_tests_of_blocks(kind: Any, digits: int) -> None:
    """Check that few rows are read into memory and that many rows give a close p-value."""
    rng = np.random.default_rng(5)
    for n in (3000, 300_000):
        p = np.round(rng.beta(1, 2, n), digits)
        y = (rng.random(n) < p).astype(int)
        w = rng.integers(1, 3, n)
        blocks = Blocks([(p[i::4], y[i::4], w[i::4]) for i in range(4)])
        result = metrics.ecce_test(blocks, kind=kind)
        whole = metrics.ecce_test(p, y, weights=w, kind=kind)
        assert result.statistic == pytest.approx(whole.statistic, rel=1e-9)
        assert result.p_value == pytest.approx(whole.p_value, abs=0.06 if n > 3000 else 1e-12)


def test_fractional_weights_of_many_rows_in_blocks() -> None:
    rng = np.random.default_rng(6)
    p = rng.random(300_000)
    y, w = (rng.random(300_000) < p).astype(int), rng.random(300_000)
    blocks = Blocks([(p[i::4], y[i::4], w[i::4]) for i in range(4)])
    result, whole = metrics.ecce_test(blocks), metrics.ecce_test(p, y, weights=w)
    assert result.statistic == pytest.approx(whole.statistic, rel=1e-9)
    assert result.p_value == pytest.approx(whole.p_value, rel=1e-6)
    with pytest.raises(ValueError, match="weights must be whole numbers"):
        metrics.ecce_test(blocks, method="simulated")
