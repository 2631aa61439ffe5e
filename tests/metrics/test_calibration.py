"""Reliability curves and the expected calibration error, by hand and against a second account."""

import math

import numpy as np
import pytest

from bayescal import metrics


def loop_ece(predicted: np.ndarray, happened: np.ndarray, bins: int, binning: str) -> float:
    """Compute the error with explicit bins, straight from the definition."""
    if binning == "equal_mass":
        parts = np.array_split(np.argsort(predicted, kind="stable"), bins)
    else:
        parts = [
            np.flatnonzero((predicted > b / bins) & (predicted <= (b + 1) / bins))
            for b in range(bins)
        ]
        parts[0] = np.flatnonzero(predicted <= 1 / bins)
    n = len(predicted)
    return sum(
        len(part) / n * abs(predicted[part].mean() - happened[part].mean())
        for part in parts
        if len(part)
    )


@pytest.mark.parametrize("binning", ["equal_width", "equal_mass"])
@pytest.mark.parametrize("bins", [1, 2, 7, 10, 15, 400])
def test_ece_equals_loop_over_bins(bins: int, binning: str) -> None:
    rng = np.random.default_rng(bins)
    probs = rng.beta(0.5, 0.5, size=311)
    y = rng.integers(0, 2, size=311)
    value = metrics.ece(probs, y, bins=bins, binning=binning)
    assert value == pytest.approx(loop_ece(probs, y, bins, binning), rel=1e-10)
    many = rng.dirichlet(np.ones(4), size=311)
    y = rng.integers(0, 4, size=311)
    expected = loop_ece(many.max(axis=1), many.argmax(axis=1) == y, bins, binning)
    assert metrics.ece(many, y, bins=bins, binning=binning) == pytest.approx(expected, rel=1e-10)


def test_borders_belong_to_the_lower_bin() -> None:
    curve = metrics.reliability_curve([0.0, 0.2, 0.25, 0.4, 0.6, 1.0], [0, 0, 1, 0, 1, 1], bins=5)
    np.testing.assert_allclose(curve.predicted, [0.1, 0.325, 0.6, 1.0])
    np.testing.assert_allclose(curve.observed, [0.0, 0.5, 1.0, 1.0])
    np.testing.assert_array_equal(curve.weight, [2, 2, 1, 1])


@pytest.mark.parametrize("bins", [3, 7, 10, 15, 49, 100])
def test_every_border_is_exact(bins: int) -> None:
    probs = np.array([j / bins for j in range(1, bins + 1)])
    curve = metrics.reliability_curve(probs, np.ones(bins), bins=bins)
    np.testing.assert_array_equal(curve.weight, np.ones(bins))


def test_norms_by_hand() -> None:
    # Bins with 3 cases and a gap of 0.1, and with 1 case and a gap of 0.4.
    probs, y = [0.1, 0.1, 0.1, 0.6], [0, 0, 0, 1]
    assert metrics.ece(probs, y, bins=2) == pytest.approx(0.175)
    assert metrics.ece(probs, y, bins=2, norm=2) == pytest.approx(math.sqrt(0.0475))
    assert metrics.ece(probs, y, bins=2, norm=math.inf) == pytest.approx(0.4)


def test_kinds_by_hand() -> None:
    probs, y = [0.2, 0.9, 0.4], [0, 1, 1]
    # One bin: mean of P(y = 1) is 0.5, of y 2/3; mean confidence is 2.3/3, two of three are right.
    assert metrics.ece(probs, y, bins=1) == pytest.approx(2 / 3 - 0.5)
    assert metrics.ece(probs, y, bins=1, kind="confidence") == pytest.approx(0.1)
    rows = np.stack([1 - np.array(probs), probs], axis=1)
    assert metrics.ece(rows, y, bins=1) == pytest.approx(2 / 3 - 0.5)
    assert metrics.ece(rows, y, bins=1, kind="confidence") == pytest.approx(0.1)


def test_perfect_and_worst_predictions() -> None:
    assert metrics.ece([0.0, 1.0], [0, 1]) == 0
    assert metrics.ece([0.0, 1.0], [1, 0]) == 1
    assert metrics.ece([0.5], [1], binning="equal_mass") == 0.5


def test_equal_mass_shares_ties() -> None:
    # All predictions are equal: every bin has the same mean, whatever the order of the labels.
    value = metrics.ece(np.full(10, 0.5), [1] * 7 + [0] * 3, bins=3, binning="equal_mass")
    assert value == pytest.approx(0.2)


def test_equal_mass_with_more_bins_than_cases() -> None:
    curve = metrics.reliability_curve([0.3, 0.1], [1, 0], bins=5, binning="equal_mass")
    np.testing.assert_allclose(curve.predicted, [0.1, 0.3])
    np.testing.assert_allclose(curve.weight, [1, 1])


def test_equal_mass_splits_a_heavy_case() -> None:
    curve = metrics.reliability_curve(
        [0.2, 0.8], [0, 1], bins=2, binning="equal_mass", weights=[0.75, 0.25]
    )
    np.testing.assert_allclose(curve.weight, [0.5, 0.5])
    np.testing.assert_allclose(curve.predicted, [0.2, 0.5])
    np.testing.assert_allclose(curve.observed, [0.0, 0.5])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bins": 0}, ValueError, "bins must be at least 1, got 0"),
        ({"bins": 2.5}, TypeError, "bins must be an integer, got 2.5"),
        ({"binning": "even"}, ValueError, "binning must be one of 'equal_width', 'equal_mass'"),
        ({"kind": "top"}, ValueError, "kind must be one of 'binary', 'confidence'"),
        ({"norm": 0.5}, ValueError, "norm must be a number of at least 1 or math.inf, got 0.5"),
        ({"norm": "max"}, TypeError, "norm must be a number of at least 1 or math.inf, got 'max'"),
    ],
)
def test_bad_options_are_errors(options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message.replace(".", r"\.")):
        metrics.ece([0.2, 0.7], [0, 1], **options)


def test_binary_kind_needs_two_classes() -> None:
    with pytest.raises(ValueError, match="kind must be 'confidence' for 3 classes"):
        metrics.ece([[0.2, 0.3, 0.5]], [1], kind="binary")


def test_ties_that_stay_together() -> None:
    p, y = np.repeat([0.2, 0.5, 0.9], [4, 1, 7]), np.arange(12) % 2
    curve = metrics.reliability_curve(p, y, bins=3, binning="equal_mass", ties="together")
    # The border after 8 rows lies within the last seven, nearer to where they begin.
    assert curve.weight.tolist() == [4, 1, 7]
    np.testing.assert_allclose(curve.predicted, [0.2, 0.5, 0.9])
    shared = metrics.reliability_curve(p, y, bins=3, binning="equal_mass")
    assert shared.weight.tolist() == [4, 4, 4]
    with pytest.raises(ValueError, match="ties must be one of 'shared', 'together'"):
        metrics.reliability_curve(p, y, ties="apart")  # type: ignore[arg-type]
