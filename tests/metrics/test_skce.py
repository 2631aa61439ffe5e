"""The squared kernel calibration error against double loops, and its unbiasedness."""

import itertools
from typing import Any

import numpy as np
import pytest

from bayescal import metrics
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.predictions import Reading
from bayescal.metrics.kernels import distances as _distances
from bayescal.metrics.kernels.skce import KernelError


def make_probs(n: int = 60, k: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(k, 0.6), size=n)
    return probs, (probs.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)


def distance_between(p: np.ndarray, q: np.ndarray, distance: str) -> float:
    gap = p - q
    return 0.5 * abs(gap).sum() if distance == "total_variation" else float(np.linalg.norm(gap))


def kernel_term(
    probs: np.ndarray, y: np.ndarray, i: int, j: int, options: dict, width: float
) -> float:
    """Compute the kernel term h of two rows from their predictions and outcomes."""
    k = probs.shape[1]
    gap = distance_between(probs[i], probs[j], options["distance"]) / width
    near = np.exp(-gap) if options["kernel"] == "exponential" else np.exp(-(gap**2) / 2)
    one, other = np.eye(k)[y[i]] - probs[i], np.eye(k)[y[j]] - probs[j]
    return near * sum(a * b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("estimator", ["unbiased", "biased", "linear"])
@pytest.mark.parametrize(
    ("kernel", "distance", "bandwidth"),
    [
        ("exponential", "total_variation", "median"),
        ("exponential", "euclidean", 0.2),
        ("gaussian", "total_variation", 0.2),
        ("gaussian", "euclidean", "median"),
    ],
)
def test_estimators_equal_double_loops(
    estimator: str, kernel: str, distance: str, bandwidth: Any
) -> None:
    probs, y = make_probs()
    options = {"kernel": kernel, "distance": distance}
    width = bandwidth
    if bandwidth == "median":
        width = np.median([[distance_between(p, q, distance) for q in probs] for p in probs])
    n = len(y)
    pairs = {
        "unbiased": [(i, j) for i in range(n) for j in range(i)],
        "biased": [(i, j) for i in range(n) for j in range(n)],
        "linear": [(i, i + 1) for i in range(0, n - 1, 2)],
    }[estimator]
    expected = np.mean([kernel_term(probs, y, i, j, options, width) for i, j in pairs])
    value = metrics.skce(probs, y, estimator=estimator, bandwidth=bandwidth, **options)
    assert value == pytest.approx(expected, rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("whole", [True, False])
def test_replicates_of_successive_pairs_are_of_the_rows_drawn(whole: bool) -> None:
    """Check that a replicate weights counts, and repeats rows with fractional weights."""
    probs, y = make_probs()
    weights = np.ones(60) if whole else np.random.default_rng(1).uniform(0.5, 2, 60)
    checked = as_predictions(probs, y, weights, Reading(4))
    assert checked.whole == whole
    factors = np.random.default_rng(2).multinomial(60, np.full(60, 1 / 60), 5).T.astype(float)
    result = KernelError("linear", "exponential", "euclidean", 0.2).compute_many(checked, factors)
    for value, factor in zip(result, factors.T, strict=True):
        drawn, drawn_weights = np.flatnonzero(factor), factor[factor > 0]
        if not whole:
            drawn = np.repeat(np.arange(60), factor.astype(int))
            drawn_weights = weights[drawn]
        options: dict[str, Any] = {"estimator": "linear", "bandwidth": 0.2, "distance": "euclidean"}
        expected = metrics.skce(probs[drawn], y[drawn], weights=drawn_weights, **options)
        assert value == pytest.approx(expected, rel=1e-9)


def test_two_classes_in_one_column() -> None:
    probs, y = make_probs(k=2)
    for estimator in ("unbiased", "biased", "linear"):
        both = metrics.skce(probs, y, estimator=estimator)
        assert metrics.skce(probs[:, 1], y, estimator=estimator) == pytest.approx(both, rel=1e-10)


@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
def test_counts_are_repetitions(estimator: str) -> None:
    probs, y = make_probs(30)
    counts = np.random.default_rng(1).integers(0, 4, 30)
    repeated = metrics.skce(
        np.repeat(probs, counts, axis=0), np.repeat(y, counts), estimator=estimator
    )
    value = metrics.skce(probs, y, estimator=estimator, weights=counts)
    assert value == pytest.approx(repeated, rel=1e-10)


def test_shares_weigh_pairs() -> None:
    assert metrics.skce(*make_probs(3), bandwidth=0.3, weights=[0.5, 1e-20, 0.0]) == 0
    probs, y = make_probs(20)
    weights = np.random.default_rng(1).exponential(size=20)
    options = {"kernel": "exponential", "distance": "total_variation"}
    pairs = [(i, j) for i in range(20) for j in range(20) if i != j]
    values = [kernel_term(probs, y, i, j, options, 0.3) for i, j in pairs]
    expected = np.average(values, weights=[weights[i] * weights[j] for i, j in pairs])
    value = metrics.skce(probs, y, bandwidth=0.3, weights=weights)
    assert value == pytest.approx(expected, rel=1e-10)
    assert metrics.skce(probs, y, bandwidth=0.3, weights=3.7 * weights) == pytest.approx(value)


def test_estimates_are_unbiased() -> None:
    """Check that the mean is zero for calibrated predictions, and that "biased" is positive."""
    for estimator in ("unbiased", "linear"):
        values = [
            metrics.skce(*make_probs(50, seed=seed), estimator=estimator, bandwidth=0.5)
            for seed in range(200)
        ]
        assert abs(np.mean(values)) < 4 * np.std(values) / 14
    biased = [
        metrics.skce(*make_probs(50, seed=seed), estimator="biased", bandwidth=0.5)
        for seed in range(50)
    ]
    assert min(biased) > 0


@pytest.mark.parametrize("distance", ["total_variation", "euclidean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_median_of_many_distances(
    distance: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    probs, _ = make_probs(701, 3)
    weights = np.random.default_rng(2).exponential(size=701) if weighted else np.ones(701)
    exact = _distances.median_distance(probs, weights, distance)
    if not weighted:
        every = [distance_between(p, q, distance) for p, q in itertools.combinations(probs, 2)]
        # Include the zero distance of each row to itself, and every other distance twice.
        expected = np.median(np.concatenate([np.zeros(701), every, every]))
        assert exact == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(_distances, "_MAX_SORTED_ROWS", 10)
    assert _distances.median_distance(probs, weights, distance) == pytest.approx(exact, abs=3e-6)


@pytest.mark.parametrize("few", [10, 1000])
def test_median_of_zero_is_replaced(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_distances, "_MAX_SORTED_ROWS", few)
    probs = np.repeat([[0.2, 0.8], [1.0, 0.0]], [90, 10], axis=0)
    mean = _distances.median_distance(probs, np.ones(100), "total_variation")
    assert mean == pytest.approx(2 * 0.9 * 0.1 * 0.8, rel=1e-10)
    assert _distances.median_distance(probs[:90], np.ones(90), "total_variation") == 1
    ends = np.repeat([[0.0, 1.0], [1.0, 0.0]], [30, 31], axis=0)
    far = _distances.median_distance(ends, np.ones(61), "euclidean")
    assert far == pytest.approx(2 * 30 * 31 / 61**2 * np.sqrt(2), rel=1e-9)


@pytest.mark.parametrize("few", [10, 1000])
def test_median_of_rows_that_are_equal_up_to_rounding(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check saturated predictions, whose distances next to one are lost to rounding."""
    monkeypatch.setattr(_distances, "_MAX_SORTED_ROWS", few)
    p = np.concatenate([np.geomspace(1e-30, 1e-12, 90), np.full(10, 0.4)])
    for low in (p, 1 - p):
        probs = np.stack([low, 1 - low], axis=1)
        mean = _distances.median_distance(probs, np.ones(100), "total_variation")
        assert mean == pytest.approx(2 * 0.9 * 0.1 * 0.4, rel=1e-10)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    probs, y = make_probs()
    whole = metrics.skce(probs, y)
    monkeypatch.setattr(_distances, "_BLOCK", 150)
    assert metrics.skce(probs, y) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "quick"}, "estimator must be one of 'unbiased', 'linear', 'biased'"),
        ({"kernel": "box"}, "kernel must be one of 'exponential', 'gaussian'"),
        ({"distance": "cosine"}, "distance must be one of 'total_variation', 'euclidean'"),
        ({"bandwidth": "mean"}, "bandwidth must be one of 'median'"),
        ({"bandwidth": -1.0}, "bandwidth must be positive, got -1"),
    ],
)
def test_bad_options_are_errors(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.skce([0.2, 0.7], [0, 1], **options)


@pytest.mark.parametrize("distance", ["total_variation", "euclidean"])
def test_median_distance_of_many_one_hot_rows_is_exact(distance: str) -> None:
    """Check one-hot rows, most of which have the largest possible distance."""
    rows = np.eye(5)[np.arange(1500) % 5]
    expected = 1.0 if distance == "total_variation" else np.sqrt(2)
    result = _distances.median_distance(rows, np.ones(1500), distance)
    assert result == pytest.approx(expected, abs=1e-9)
