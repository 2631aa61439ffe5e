"""Accumulators: merging in any order, pickling, long streams and invalid use."""

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bayescal import Blocks, metrics
from bayescal.metrics import Accumulator

CHOICES: dict[str, Any] = {
    "log_loss": "log_loss",
    "brier_score": "brier_score",
    "accuracy": "accuracy",
    "ece": "ece",
    "classwise": ("ece", {"kind": "classwise", "bins": 10}),
    "top_label": ("ece", {"kind": "top_label", "norm": 2}),
    "debiased": ("debiased_ece", {"kind": "classwise", "binning": "equal_width"}),
    "smooth": "smooth_ece",
    "kde": "kde_ece",
    "gap": ("loss_gap", {"functions": 9}),
}


def batches(sizes: tuple[int, ...] = (1, 300, 50, 1000), dtype: type = float) -> Iterator[tuple]:
    rng = np.random.default_rng(0)
    for n in sizes:
        probs = rng.dirichlet(np.full(5, 0.5), size=n).astype(dtype)
        yield probs, rng.integers(0, 5, n), rng.exponential(size=n)


def compute_directly(name: str, probs: np.ndarray, y: np.ndarray, weights: Any = None) -> float:
    metric, options = (CHOICES[name], {}) if isinstance(CHOICES[name], str) else CHOICES[name]
    return getattr(metrics, metric)(probs, y, weights=weights, **options)


@pytest.mark.parametrize(("weighted", "dtype"), [(False, np.float32), (True, np.float64)])
def test_merging_in_any_order_is_one_pass(weighted: bool, dtype: type) -> None:
    parts, every = [], list(batches(dtype=dtype))
    for probs, y, weights in every:
        part = Accumulator(CHOICES, classes=5)
        part.add(probs, y, weights if weighted else None)
        parts.append(pickle.loads(pickle.dumps(part)))
    probs, y, weights = (np.concatenate(arrays) for arrays in zip(*every, strict=True))
    expected = {
        name: compute_directly(name, probs, y, weights if weighted else None) for name in CHOICES
    }
    for order in itertools.islice(itertools.permutations(parts), 0, None, 5):
        total = (order[0] + order[1]) + (order[2] + order[3])
        assert total.cases == 1351
        assert total.result() == pytest.approx(expected, rel=1e-10)
        assert set(total.bounds().values()) == {0.0}
    assert parts[0].cases == 1


@pytest.mark.parametrize("kind", ["confidence", "classwise"])
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_mass_is_within_its_bound(kind: str, weighted: bool) -> None:
    options = {"kind": kind, "binning": "equal_mass"}
    total = Accumulator({"plain": ("ece", options), "debiased": ("debiased_ece", options)}, 5)
    every = list(batches((500, 4000)))
    for probs, y, weights in every:
        total.add(probs, y, weights if weighted else None)
    probs, y, weights = (np.concatenate(arrays) for arrays in zip(*every, strict=True))
    chosen = weights if weighted else None
    exact = metrics.ece(probs, y, weights=chosen, **options)
    bound = total.bounds()["plain"]
    assert 0 < bound < 0.05
    assert abs(total.result()["plain"] - exact) <= bound
    exact = metrics.debiased_ece(probs, y, weights=chosen, **options)
    assert total.result()["debiased"] == pytest.approx(exact, abs=0.01)


def test_bound_is_reached_by_no_border_in_a_cell() -> None:
    """Check that few distinct predictions give the exact result."""
    rng = np.random.default_rng(0)
    probs, y = rng.integers(0, 20, 1000) / 20, rng.integers(0, 2, 1000)
    total = Accumulator([("ece", {"binning": "equal_mass"})])
    total.add(probs, y)
    expected = metrics.ece(probs, y, binning="equal_mass")
    assert total.result()["ece"] == pytest.approx(expected, rel=1e-12)


def test_a_bad_batch_changes_nothing() -> None:
    total = Accumulator(["ece", "log_loss"])
    total.add([0.2, 0.7], [0, 1])
    before = total.result()
    with pytest.raises(ValueError, match=r"probs must lie in \[0, 1\], got 2"):
        total.add([0.2, 2.0], [0, 1])
    with pytest.raises(ValueError, match=r"probs must have shape \(n,\), got \(1, 3\)"):
        total.add([[0.2, 0.7, 0.1]], [0])
    assert total.result() == before and total.cases == 2


def test_state_is_plain() -> None:
    total = Accumulator(["ece", ("loss_gap", {"losses": np.ones((1, 2, 1))})])
    total.add([0.2, 0.7], [0, 1])
    assert b"bayescal.metrics.calibration.ece" not in pickle.dumps(total)
    copy = pickle.loads(pickle.dumps(total))
    assert copy.result() == total.result()
    assert (copy + total).cases == 4
    assert repr(copy) == "Accumulator(['ece', 'loss_gap'], classes=None, cases=2)"


@pytest.mark.parametrize(
    ("choices", "classes", "error", "message"),
    [
        ("ece", None, TypeError, "metrics must be a sequence or a mapping, got 'ece'"),
        ([], None, ValueError, "metrics must not be empty"),
        (["auc"], None, ValueError, "no metric named 'auc'; there are log_loss"),
        (["skce"], None, ValueError, "skce cannot be accumulated, it needs all cases at once"),
        (["ece", ("ece", {"bins": 3})], None, ValueError, "different names, got 'ece' twice"),
        ([("ece", {"bin": 3})], None, TypeError, "unexpected keyword argument 'bin'"),
        ([("ece", {"bins": 0})], None, ValueError, "bins must be at least 1"),
        (["ece", "hamming_loss"], 3, ValueError, "all single-label or all multi-label"),
        (["hamming_loss"], None, ValueError, "classes must be the number of labels, got None"),
        (["ece"], 1, ValueError, "classes must be at least 2, or None"),
        (["ece"], 2.5, TypeError, "classes must be an integer"),
    ],
)
def test_bad_choices_are_errors(
    choices: Any, classes: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Accumulator(choices, classes)


def test_bad_merges_are_errors() -> None:
    one = Accumulator(["ece"])
    with pytest.raises(ValueError, match="must have rows before it has results"):
        one.result()
    with pytest.raises(TypeError, match="other must be an Accumulator, got int"):
        one.merge(3)  # type: ignore[arg-type]
    for other in (Accumulator(["ece"], 2), Accumulator([("ece", {"bins": 3})])):
        with pytest.raises(ValueError, match="must have the same metrics, options and classes"):
            _ = one + other


def test_single_precision_loses_no_digits() -> None:
    """Check a million single-precision numbers, whose single-precision sums have four digits."""
    rng = np.random.default_rng(5)
    n = 1_000_000
    logits = 2 * rng.standard_normal(n)
    probs = (1 / (1 + np.exp(-logits))).astype(np.float32)
    y = (rng.random(n) < 0.3 + 0.4 * probs).astype(int)
    total = Accumulator(["ece", "brier_score", "smooth_ece"])
    for part in np.array_split(np.arange(n), 7):
        total.add(probs[part], y[part])
    wide = probs.astype(np.float64)
    expected = {
        "ece": metrics.ece(wide, y),
        "brier_score": float(np.mean((wide - y) ** 2)),
        "smooth_ece": metrics.smooth_ece(wide, y),
    }
    assert total.result() == pytest.approx(expected, rel=1e-12)
    assert metrics.ece(probs, y) == pytest.approx(expected["ece"], rel=1e-12)


def test_batches_without_rows_or_of_zero_weight_add_nothing() -> None:
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet([1, 1, 1], 50), rng.integers(0, 3, 50)
    total = Accumulator(["log_loss", "ece"], classes=3)
    total.add(p[:9], y[:9], np.zeros(9))
    total.add(p[:0], y[:0])
    total.add([], [])
    with pytest.raises(ValueError, match="must have rows"):
        total.result()
    total.add(p, y)
    total.add(p[:9], y[:9], np.zeros(9))
    wanted = [metrics.log_loss(p, y), metrics.ece(p, y)]
    assert list(total.result().values()) == pytest.approx(wanted)
    labels = Accumulator(["hamming_loss"], classes=3)
    labels.add(p[:0], p[:0])
    labels.add(p, p > 0.4, np.zeros(50))
    assert labels.cases == 0


def test_weights_of_any_size_are_comparable_between_batches() -> None:
    total = Accumulator(["brier_score"])
    total.add([0.5], [1], [1e60])
    total.add([0.0], [1], [3e60])
    assert total.result()["brier_score"] == pytest.approx((0.25 + 3) / 4)


@pytest.mark.parametrize("scale", [1e-100, 1e20, 1e60])
def test_fractional_weights_of_any_size_are_no_counts(scale: float) -> None:
    rng = np.random.default_rng(0)
    p, w = rng.random(200), rng.random(200)
    y = (rng.random(200) < p**2).astype(int)
    names = ["debiased_ece", "kde_ece", "ece"]
    total = Accumulator(names)
    for part in (slice(0, 90), slice(90, 200)):
        total.add(p[part], y[part], scale * w[part])
    expected = {name: getattr(metrics, name)(p, y, weights=w) for name in names}
    assert total.result() == pytest.approx(expected, rel=1e-9)
    for name in (*names, "skce"):
        metric = getattr(metrics, name)
        scaled = metric(p, y, weights=scale * w)
        assert scaled == pytest.approx(metric(p, y, weights=w), rel=1e-9)
    blocks = Blocks([(p[:90], y[:90], scale * w[:90]), (p[90:], y[90:], scale * w[90:])])
    for name in names:
        assert getattr(metrics, name)(blocks) == pytest.approx(expected[name], rel=1e-9)


@pytest.mark.parametrize("weight", [1e-200, 1e200])
def test_weights_whose_squares_vanish_or_overflow_are_refused(weight: float) -> None:
    total = Accumulator(["kde_ece"])
    with pytest.raises(ValueError, match="weights must have a maximum from 1e-140 to 1e"):
        total.add([0.3, 0.5], [0, 1], [0.0, weight])
    assert total.cases == 0
