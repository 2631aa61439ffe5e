"""What every metric in the registry promises."""

from collections.abc import Callable

import hypothesis
import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from bayescal import metrics
from bayescal.metrics._registry import METRICS

every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
Metric = Callable[..., float]

PROBS = np.array([0.1, 0.8, 0.35, 0.9, 0.5])
LABELS = np.array([0, 1, 1, 1, 0])


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(1, 12))
    probs = draw(st.lists(st.sampled_from([0, 0.1, 0.25, 0.5, 0.7, 1]), min_size=n, max_size=n))
    y = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    return np.array(probs, float), np.array(y)


def test_public_metrics_are_registered() -> None:
    assert METRICS
    for name, metric in METRICS.items():
        assert getattr(metrics, name) is metric
        assert name in metrics.__all__


@every_metric
def test_result_is_a_float(metric: Metric) -> None:
    assert type(metric(PROBS, LABELS)) is float


@every_metric
@pytest.mark.parametrize("convert", [list, jnp.asarray, pd.Series, np.float32])
def test_arrays_of_any_kind(metric: Metric, convert: Callable) -> None:
    assert metric(convert(PROBS), convert(LABELS)) == pytest.approx(metric(PROBS, LABELS), rel=1e-6)


@every_metric
def test_arguments_are_not_changed(metric: Metric) -> None:
    rows = np.stack([1 - PROBS, PROBS], axis=1)
    weights = np.arange(5.0)
    before = [a.copy() for a in (rows, LABELS, weights)]
    metric(rows, LABELS, weights=weights)
    for now, then in zip((rows, LABELS, weights), before, strict=True):
        np.testing.assert_array_equal(now, then)


@every_metric
@pytest.mark.parametrize("binning", ["equal_width", "equal_mass"])
@hypothesis.given(data=cases(), counts=st.data())
def test_counts_are_repetitions(metric: Metric, binning: str, data: tuple, counts: st.DataObject):
    probs, y = data
    options = {"binning": binning, "bins": 3} if metric is metrics.ece else {}
    n = len(y)
    weights = counts.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any))
    repeated = metric(np.repeat(probs, weights), np.repeat(y, weights), **options)
    assert metric(probs, y, weights=weights, **options) == pytest.approx(repeated, abs=1e-12)


@every_metric
@pytest.mark.parametrize("binning", ["equal_width", "equal_mass"])
@hypothesis.given(data=cases(), random=st.randoms(use_true_random=False))
def test_order_does_not_matter(metric: Metric, binning: str, data: tuple, random) -> None:
    probs, y = data
    options = {"binning": binning, "bins": 3} if metric is metrics.ece else {}
    order = random.sample(range(len(y)), len(y))
    assert metric(probs[order], y[order], **options) == pytest.approx(
        metric(probs, y, **options), abs=1e-12
    )


@every_metric
@pytest.mark.parametrize("binning", ["equal_width", "equal_mass"])
def test_only_ratios_of_weights_matter(metric: Metric, binning: str) -> None:
    options = {"binning": binning} if metric is metrics.ece else {}
    weights = np.array([0.3, 1.2, 0.05, 2.5, 0.7])
    values = [metric(PROBS, LABELS, weights=c * weights, **options) for c in (1, 1e-6, 0.37)]
    np.testing.assert_allclose(values, values[0], rtol=1e-10)


@every_metric
def test_cases_of_weight_zero_are_ignored_whatever_they_hold(metric: Metric) -> None:
    padded = metric(np.append(PROBS, np.nan), np.append(LABELS, -1), weights=[1, 1, 1, 1, 1, 0])
    assert padded == metric(PROBS, LABELS)


@every_metric
def test_order_of_classes_does_not_matter(metric: Metric) -> None:
    rng = np.random.default_rng(3)
    probs, y = rng.dirichlet(np.ones(4), size=50), rng.integers(0, 4, size=50)
    order = np.array([2, 0, 3, 1])
    swapped = metric(probs[:, order], np.argsort(order)[y])
    assert swapped == pytest.approx(metric(probs, y), rel=1e-12)


@every_metric
@pytest.mark.parametrize(
    ("probs", "y", "weights", "error", "message"),
    [
        ([[[0.5]]], [0], None, ValueError, r"probs must have shape \(n,\) or \(n, k\), got \(1, 1"),
        (0.5, 0, None, ValueError, r"probs must have shape \(n,\) or \(n, k\), got \(\)"),
        ([[0.5]], [0], None, ValueError, r"probs must have a column for each class"),
        ([], [], None, ValueError, "probs must not be empty"),
        ([0.5, 0.5], [0], None, ValueError, r"y must have shape \(2,\) to match probs, got \(1,\)"),
        (["a"], [0], None, TypeError, "probs must be numeric"),
        ([0.5], ["a"], None, TypeError, "y must be numeric"),
        ([0.5, np.nan], [0, 1], None, ValueError, "probs must be finite, got NaN at position 1"),
        ([0.5, np.inf], [0, 1], None, ValueError, "probs must be finite, got infinity"),
        ([0.5, 1.1], [0, 1], None, ValueError, r"probs must lie in \[0, 1\], got 1.1; pass"),
        ([0.5, -0.1], [0, 1], None, ValueError, r"probs must lie in \[0, 1\], got -0.1; pass"),
        ([[0.5, 0.4]], [0], None, ValueError, "rows that sum to one, got a sum of 0.9"),
        ([0.5, 0.5], [0, 2], None, ValueError, r"y must be in \{0, 1\}, got 2"),
        ([0.5, 0.5], [0, 0.5], None, ValueError, r"y must be in \{0, 1\}, got 0.5"),
        ([0.5, 0.5], [0, np.nan], None, ValueError, "y must be finite, got NaN at position 1"),
        ([[0.2, 0.3, 0.5]], [3], None, ValueError, r"y must be in \{0, ..., 2\}, got 3"),
        ([0.5], [1], [1, 2], ValueError, r"weights must have shape \(1,\) to match probs"),
        ([0.5], [1], [-1], ValueError, "weights must not be negative, got -1"),
        ([0.5], [1], [0], ValueError, "weights must not all be zero"),
        ([0.5], [1], [np.nan], ValueError, "weights must be finite, got NaN"),
    ],
)
def test_bad_input_is_an_error(
    metric: Metric, probs: object, y: object, weights: object, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        metric(probs, y, weights=weights)


@every_metric
def test_rounding_is_forgiven(metric: Metric) -> None:
    over = np.array([[np.float32(1) + np.finfo(np.float32).eps, 0]], np.float32)
    assert metric(over, [0]) == metric(np.array([[1, 0]], np.float32), [0])
