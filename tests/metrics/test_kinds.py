"""Calibration errors of all kinds, plain and debiased, against loops and simulations."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayescal import Blocks, metrics
from bayescal._core.execution.precision import float64
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.order import equal_mass, ranking
from bayescal.metrics.calibration.debiased import make_debiased
from bayescal.metrics.sums import compute

KINDS = "confidence", "classwise", "top_label", "top_k_confidence", "top_k_label"
BINNINGS = "equal_width", "equal_mass"


def loop_bins(
    predicted: np.ndarray, happened: np.ndarray, bins: int, binning: str
) -> Iterator[tuple[int, float, float]]:
    """Yield size, mean prediction and mean outcome of each nonempty bin."""
    if binning == "equal_mass":
        parts = np.array_split(np.argsort(predicted, kind="stable"), bins)
    else:
        index = [max(math.ceil(p * bins - 1e-12), 1) for p in predicted]
        parts = [np.flatnonzero(np.array(index) == b) for b in range(1, bins + 1)]
    for part in parts:
        if len(part):
            yield len(part), predicted[part].mean(), happened[part].mean()


def loop_groups(
    probs: np.ndarray, y: np.ndarray, kind: str, k: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield predictions and outcomes that share bins."""
    n, classes = probs.shape
    order = np.argsort(-probs, axis=1)
    rows = np.arange(n)
    if kind == "classwise":
        for j in range(classes):
            yield probs[:, j], y == j
        return
    for rank in range(k if kind.startswith("top_k") else 1):
        label = order[:, rank]
        predicted, happened = probs[rows, label], label == y
        if not kind.endswith("label"):
            yield predicted, happened
            continue
        for j in range(classes):
            if (label == j).any():
                yield predicted[label == j], happened[label == j]


def make_probs(n: int = 400, k: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(k, 0.5), size=n)
    return probs, np.argmax(np.log(probs) * 0.6 + rng.gumbel(size=(n, k)), axis=1)


@pytest.mark.parametrize("norm", [1, 3.5, math.inf])
@pytest.mark.parametrize("binning", BINNINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_equal_double_loops(kind: str, binning: str, norm: float) -> None:
    probs, y = make_probs()
    options: dict[str, Any] = {"k": 3} if kind.startswith("top_k") else {}
    parts = {"classwise": 5, "top_k_confidence": 3, "top_k_label": 3}.get(kind, 1)
    gaps = [
        (size, abs(p - o))
        for group in loop_groups(probs, y, kind, 3)
        for size, p, o in loop_bins(*group, 6, binning)
    ]
    if math.isinf(norm):
        expected = max(gap for _, gap in gaps)
    else:
        expected = sum(size * gap**norm for size, gap in gaps) / len(y) / parts
        expected **= 1 / norm
    value = metrics.ece(probs, y, kind=kind, binning=binning, bins=6, norm=norm, **options)
    assert value == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("binning", BINNINGS)
def test_few_cases_are_sorted(binning: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that sorting only the cells with a border does not change the result."""
    rng = np.random.default_rng(0)
    for digits, power in ((2, 1), (17, 1), (17, 12)):
        probs = (rng.random(3000) ** power).round(digits)
        y = (rng.random(3000) < probs).astype(int)
        for weights in (None, rng.integers(0, 3, 3000), rng.exponential(size=3000)):
            result = []
            for many in (10, 10**6):
                monkeypatch.setattr(equal_mass, "_MAX_SORTED_ROWS", many)
                monkeypatch.setattr(ranking, "_MAX_SORTED_ROWS", many)
                curve = metrics.reliability_curve(
                    probs, y, binning=binning, bins=13, weights=weights
                )
                result.append(np.stack(curve))
            np.testing.assert_allclose(*result, rtol=1e-9, atol=1e-12)


def test_all_ranks_and_two_classes() -> None:
    """Check for two classes that the second rank mirrors the first, and class 0 mirrors class 1."""
    probs, y = make_probs(k=2)
    # No border lies where a mirrored value would fall into another bin.
    one = metrics.ece(probs[:, 1], y, bins=4)
    assert metrics.ece(probs, y, kind="classwise", bins=4) == pytest.approx(one)
    assert metrics.ece(probs[:, 1], y, kind="classwise", bins=4) == pytest.approx(one)
    confidence = metrics.ece(probs, y, bins=4)
    ranks = metrics.ece(probs[:, 1], y, kind="top_k_confidence", bins=4)
    assert ranks == pytest.approx(confidence)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "top_k_label", "k": 6}, "k must be at most the number of classes, 5, got 6"),
        ({"kind": "top_k_label", "k": 0}, "k must be at least 1, got 0"),
        ({"kind": "top_label", "k": 2}, "k must be left out for kind 'top_label', got 2"),
        ({"kind": "classes"}, "kind must be one of 'binary', 'confidence', 'classwise'"),
    ],
)
def test_bad_kinds_are_errors(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.ece(*make_probs(), **options)


@pytest.mark.parametrize("binning", BINNINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_debiased_squares_equal_double_loops(kind: str, binning: str) -> None:
    probs, y = make_probs()
    parts = {"classwise": 5, "top_k_confidence": 5, "top_k_label": 5}.get(kind, 1)
    total = 0.0
    for group in loop_groups(probs, y, kind, 5):
        for size, p, o in loop_bins(*group, 6, binning):
            variance = o * (1 - o) / (size - 1) if size > 1 else p * (1 - p)
            total += size / len(y) * ((p - o) ** 2 - variance)
    expected = math.sqrt(max(total / parts, 0))
    value = metrics.debiased_ece(probs, y, kind=kind, binning=binning, bins=6)
    assert value == pytest.approx(expected, rel=1e-10)


def loop_debiased(p: np.ndarray, y: np.ndarray, bins: int) -> float:
    """Compute the debiased root mean square with at most n / 2 bins and without splitting ties."""
    n, order = len(p), np.argsort(p, kind="stable")
    p, y = p[order], y[order]
    sizes = [len(part) for part in np.array_split(p, min(bins, max(n // 2, 1)))]
    cuts = {0, n}
    for border in np.cumsum(sizes)[:-1]:
        low, high = np.searchsorted(p, p[border - 1]), np.searchsorted(p, p[border - 1], "right")
        cuts.add(int(low if border - low < high - border else high))
    total = 0.0
    for first, last in itertools.pairwise(sorted(cuts)):
        size, q, o = last - first, p[first:last].mean(), y[first:last].mean()
        variance = o * (1 - o) / (size - 1) if size > 1 else q * (1 - q)
        total += size / n * ((q - o) ** 2 - variance)
    return math.sqrt(max(total, 0))


@pytest.mark.parametrize(
    ("n", "values"),
    [
        *((1, 1), (2, 3), (3, 10**9), (15, 10), (31, 40), (200, 1), (200, 10), (200, 10**9)),
        *((30_000, 3), (30_000, 40), (30_000, 10**9)),
    ],
)
def test_ties_are_not_counted_as_independent(n: int, values: int) -> None:
    rng = np.random.default_rng(n + values)
    p = np.ceil(rng.beta(2, 1, n) * values) / values
    y = (rng.random(n) < 0.8 * p).astype(int)
    expected = pytest.approx(loop_debiased(p, y, 15), abs=1e-7)
    assert metrics.debiased_ece(p, y) == expected
    half = n // 2
    parts = [part for part in ((p[:half], y[:half]), (p[half:], y[half:])) if len(part[0])]
    assert metrics.debiased_ece(Blocks(lambda: parts)) == expected
    assert metrics.debiased_ece(p, y, weights=np.ones(n)) == expected
    checked = as_predictions(p, y)
    metric = make_debiased(None)
    with float64():
        on_device = compute(metric, checked._replace(probs=jnp.asarray(p), y=jnp.asarray(y)), jnp)
    assert float(on_device) == expected
    if n <= 200:
        drawn = rng.multinomial(n, np.full(n, 1 / n), 3).T.astype(float)
        many = [loop_debiased(np.repeat(p, w), np.repeat(y, w), 15) for w in drawn.T.astype(int)]
        assert metric.compute_many(checked, drawn) == pytest.approx(many, abs=1e-7)


def test_debiased_errors_of_few_values_in_closed_form() -> None:
    p = np.repeat([0.5, 0.6, 0.9], [21, 13, 166])
    y = np.repeat([1, 0, 1, 0, 1, 0], [14, 7, 9, 4, 135, 31])
    assert metrics.debiased_ece(p, y) == pytest.approx(0.0814, abs=5e-5)
    p, y = np.full(100, 0.3), np.repeat([1, 0], [60, 40])
    assert metrics.debiased_ece(p, y) == pytest.approx(math.sqrt(0.09 - 0.24 / 99), rel=1e-12)


@pytest.mark.parametrize("binning", BINNINGS)
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("n", [1, 14, 15, 30])
def test_few_predictions_that_are_all_wrong_are_no_small_error(
    n: int, norm: int, binning: str
) -> None:
    for p in (np.full(n, 0.99), np.linspace(0.9, 0.99, n)):
        result = metrics.debiased_ece(p, np.zeros(n), norm=norm, binning=binning, bins=15)
        assert result > 0.8


def test_debiased_mean_equals_folded_normals() -> None:
    probs, y = make_probs()
    expected = 0.0
    for size, p, o in loop_bins(probs.max(axis=1), probs.argmax(axis=1) == y, 10, "equal_width"):
        deviation = math.sqrt(o * (1 - o) / size)
        gap = abs(p - o)
        mean = stats.foldnorm(gap / deviation, scale=deviation).mean() if deviation else gap
        expected += size / len(y) * (2 * gap - mean)
    value = metrics.debiased_ece(probs, y, norm=1, binning="equal_width", bins=10)
    assert value == pytest.approx(expected, rel=1e-10)


def test_squares_are_unbiased_for_calibrated_predictions() -> None:
    """Check that the mean of the squared estimate is zero, within its standard error."""
    rng = np.random.default_rng(0)
    squares = []
    for _ in range(200):
        probs = rng.random(300)
        y = rng.random(300) < probs
        sums = [(s, p - o, o) for s, p, o in loop_bins(probs, y, 10, "equal_mass")]
        squares.append(sum(s / 300 * (g**2 - o * (1 - o) / (s - 1)) for s, g, o in sums))
        value = metrics.debiased_ece(probs, y, bins=10)
        assert value == pytest.approx(math.sqrt(max(squares[-1], 0)), abs=1e-9)
    # Predictions vary within bins, which adds (1/10)**2 / 12 / size to the variance.
    bound = 4 * np.std(squares) / 14 + 0.01 / 12 / 30
    assert abs(np.mean(squares)) < bound


def test_debiased_is_less_biased() -> None:
    rng = np.random.default_rng(1)
    truth = math.sqrt(1 / 30)  # mean square of p - p**2 for uniform p
    plain, debiased = [], []
    for _ in range(100):
        p = rng.random(200)
        y = (rng.random(200) < p**2).astype(int)
        plain.append(metrics.ece(p, y, norm=2, binning="equal_mass", bins=20))
        debiased.append(metrics.debiased_ece(p, y, bins=20))
    assert abs(np.mean(debiased) - truth) < 0.01 < np.mean(plain) - truth


def test_shares_have_effective_sizes() -> None:
    """Check that weights of 0.5 leave the effective numbers of rows unchanged."""
    probs, y = make_probs(100)
    for binning in BINNINGS:
        options = {"binning": binning, "bins": 5}
        plain = metrics.debiased_ece(probs, y, **options)
        halves = metrics.debiased_ece(probs, y, weights=np.full(100, 0.5), **options)
        assert halves == pytest.approx(plain, rel=1e-10)
