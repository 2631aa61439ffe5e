"""What every metric in the registry promises."""

from collections.abc import Callable
from functools import partial

import hypothesis
import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bayescal as bc
from bayescal import metrics
from bayescal.metrics.registry import METRICS

FUNCTIONS = {
    name: entry.function
    for name, entry in METRICS.items()
    if entry.labels and "binary" in entry.shapes
}
BINNED = metrics.ece, metrics.debiased_ece
BINNINGS = "equal_width", "equal_mass"
every_metric = pytest.mark.parametrize("metric", FUNCTIONS.values(), ids=FUNCTIONS.keys())
every_binning = pytest.mark.parametrize(
    ("metric", "options"),
    [(metric, {}) for metric in FUNCTIONS.values() if metric not in BINNED]
    + [(metric, {"binning": b, "bins": 3}) for metric in BINNED for b in BINNINGS],
)
Metric = Callable[..., float]
#: Metrics that need at least two rows.
PAIRS = (metrics.skce,)
few = hypothesis.settings(max_examples=15)

PROBS = np.array([0.1, 0.8, 0.35, 0.9, 0.5])
LABELS = np.array([0, 1, 1, 1, 0])


@st.composite
def binary_predictions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(1, 12))
    probs = draw(st.lists(st.sampled_from([0, 0.1, 0.25, 0.5, 0.7, 1]), min_size=n, max_size=n))
    y = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    return np.array(probs, float), np.array(y)


def test_public_metrics_are_registered() -> None:
    assert FUNCTIONS
    for name, entry in METRICS.items():
        assert getattr(metrics, name) is entry.function
        assert name in metrics.__all__


@every_metric
@pytest.mark.parametrize("convert", [list, jnp.asarray, pd.Series, np.float32])
def test_arrays_of_any_kind(metric: Metric, convert: Callable) -> None:
    result = metric(convert(PROBS), convert(LABELS))
    assert type(result) is float and result == pytest.approx(metric(PROBS, LABELS), rel=1e-6)


@every_binning
@few
@hypothesis.given(data=binary_predictions(), counts=st.data())
def test_counts_are_repetitions(metric: Metric, options: dict, data: tuple, counts: st.DataObject):
    probs, y = data
    n = len(y)
    weights = counts.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any))
    hypothesis.assume(metric not in PAIRS or sum(weights) > 1)
    repeated = metric(np.repeat(probs, weights), np.repeat(y, weights), **options)
    assert metric(probs, y, weights=weights, **options) == pytest.approx(repeated, abs=1e-11)


@every_binning
@few
@hypothesis.given(data=binary_predictions(), random=st.randoms(use_true_random=False))
def test_order_does_not_matter(metric: Metric, options: dict, data: tuple, random) -> None:
    probs, y = data
    hypothesis.assume(metric not in PAIRS or len(y) > 1)
    order = random.sample(range(len(y)), len(y))
    assert metric(probs[order], y[order], **options) == pytest.approx(
        metric(probs, y, **options), abs=1e-11
    )


@every_binning
def test_only_ratios_of_weights_matter(metric: Metric, options: dict) -> None:
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
    options: dict = {}
    if metric is metrics.loss_gap:
        options = {"losses": rng.normal(size=(20, 4, 3))}
    value = metric(probs, y, **options)
    if metric is metrics.loss_gap:
        options = {"losses": options["losses"][:, order]}
    swapped = metric(probs[:, order], np.argsort(order)[y], **options)
    assert swapped == pytest.approx(value, rel=1e-11)


BAD: list[tuple] = [
    ([[[0.5]]], [0], None, ValueError, r"probs must have shape \(n,\) or \(n, k\), got \(1, 1"),
    (0.5, 0, None, ValueError, r"probs must have shape \(n,\) or \(n, k\), got \(\)"),
    ([[0.5]], [0], None, ValueError, r"probs must have a column for each class"),
    ([], [], None, ValueError, "probs must not be empty"),
    ([0.5, 0.5], [0], None, ValueError, r"y must have shape \(2,\) to match probs, got \(1,\)"),
    (["a"], [0], None, TypeError, "probs must be numeric"),
    ([0.5], ["a"], None, ValueError, "y must hold two classes, got only one .* pass classes="),
    ([0.5], [1j], None, TypeError, "y must be numeric"),
    ([0.5, np.nan], [0, 1], None, ValueError, "probs must be finite, got NaN at position 1"),
    ([0.5, np.inf], [0, 1], None, ValueError, "probs must be finite, got infinity"),
    ([0.5, 1.1], [0, 1], None, ValueError, r"probs must lie in \[0, 1\], got 1.1; pass"),
    ([0.5, -0.1], [0, 1], None, ValueError, r"probs must lie in \[0, 1\], got -0.1; pass"),
    ([[0.5, 0.4]], [0], None, ValueError, "rows that sum to one, got a sum of 0.9 in row 0"),
    ([0.5, 0.5], [0, 2], None, ValueError, r"y must be in \{0, 1\}, got 2"),
    ([0.5, 0.5], [0, 0.5], None, ValueError, r"y must be in \{0, 1\}, got 0.5"),
    ([0.5, 0.5], [0, np.nan], None, ValueError, "missing labels, got NaN in row 1"),
    ([0.5, 0.5], [0, np.inf], None, ValueError, "y must be finite, got infinity at position 1"),
    ([[0.2, 0.3, 0.5]], [3], None, ValueError, r"y must be in \{0, ..., 2\}, got 3"),
    ([0.5], [1], [1, 2], ValueError, r"weights must have shape \(1,\) to match probs"),
    ([0.5], [1], [-1], ValueError, "weights must not be negative, got -1"),
    ([0.5], [1], [0], ValueError, "weights must not all be zero"),
    ([0.5], [1], [np.nan], ValueError, "weights must be finite, got NaN"),
]


@every_metric
def test_bad_input_is_an_error(metric: Metric) -> None:
    for probs, y, weights, error, message in BAD:
        with pytest.raises(error, match=message):
            metric(probs, y, weights=weights)


@every_metric
def test_rounding_is_forgiven(metric: Metric) -> None:
    over = np.array([[np.float32(1) + np.finfo(np.float32).eps, 0]] * 2, np.float32)
    exact = np.array([[1, 0]] * 2, np.float32)
    assert metric(over, [0, 0]) == metric(exact, [0, 0])


@every_metric
@pytest.mark.parametrize("constant", [0.0, 0.2, 0.5, 1.0])
def test_constant_predictions_have_a_value(metric: Metric, constant: float) -> None:
    for y in ([0] * 6, [1] * 6, [0, 1, 1, 0, 1, 1]):
        for weights in (None, [0.2, 1.7, 0.3, 2.0, 1.0, 1.0]):
            assert np.isfinite(metric(np.full(6, constant), y, weights=weights))
    rows = np.full((6, 3), 1 / 3)
    assert np.isfinite(metric(rows, [0, 1, 2, 0, 0, 1]))


@every_metric
def test_one_case_has_a_value(metric: Metric) -> None:
    if metric in PAIRS:
        with pytest.raises(ValueError, match="must have at least two rows, got one"):
            metric([0.3], [1])
        return
    for probs in (0.0, 0.3, 1.0):
        assert np.isfinite(metric([probs], [1]))
    assert np.isfinite(metric([[0.2, 0.5, 0.3]], [2]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_and_wrong_predictions(name: str) -> None:
    metric, best = FUNCTIONS[name], METRICS[name].best
    if name == "debiased_ece":
        # A bin with a single row says nothing.
        metric = partial(metric, bins=2)
    y = np.array([0, 1, 1, 0, 1])
    for convert in (lambda labels: labels.astype(float), lambda labels: np.eye(2)[labels]):
        right, wrong = metric(convert(y), y), metric(convert(1 - y), y)
        assert np.isfinite([right, wrong]).all()
        if best == "high":
            assert right == 1 and wrong == 0
        else:
            assert right < wrong
            # A kernel with positive width, or a finite number of loss functions, leaves an error.
            assert right == pytest.approx(0, abs=0.2 if name == "kde_ece" else 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", ["probs", "logits"])
@pytest.mark.parametrize("columns", [1, 3])
def test_errors_of_floating_point_that_the_caller_asks_for_change_nothing(
    inputs: str, columns: int
) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(90, columns)) * np.repeat([1, 30, 1e3], 30)[:, None]
    if inputs == "logits":
        given = logits
    else:
        given = np.where(logits > 0, 1 - 1e-16, 1e-300) if columns == 1 else _softmax(logits)
    given, y = (given[:, 0], np.arange(90) % 2) if columns == 1 else (given, np.arange(90) % 3)
    functions = [partial(function, inputs=inputs) for function in FUNCTIONS.values()]
    functions += [
        partial(metrics.report, inputs=inputs, replicates=20),
        partial(bc.evaluate, inputs=inputs, replicates=20),
    ]
    if columns > 1:
        functions = [function for function in functions if function.func is not metrics.loss_gap]
    wanted = [function(given, y) for function in functions]
    with np.errstate(all="raise"):
        result = [function(given, y) for function in functions]
        assert result[-1].to_html() == wanted[-1].to_html()
    assert result[:-2] == wanted[:-2]
    assert str(result[-2]) == str(wanted[-2])


def _softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)
