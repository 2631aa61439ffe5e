"""Reliability curves and the expected calibration error, against loops and by hand."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import bayescal as bc
from bayescal import metrics


def loop_ece(predicted: np.ndarray, happened: np.ndarray, bins: int, binning: str) -> float:
    """Compute the error with explicit bins, following the definition."""
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
@pytest.mark.parametrize("bins", [1, 2, 15, 400])
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


@pytest.mark.parametrize("bins", [3, 15, 49, 100])
def test_every_border_is_exact(bins: int) -> None:
    probs = np.array([j / bins for j in range(1, bins + 1)])
    curve = metrics.reliability_curve(probs, np.ones(bins), bins=bins)
    np.testing.assert_array_equal(curve.weight, np.ones(bins))


def test_norms_by_hand() -> None:
    # One bin with 3 rows and a gap of 0.1, and one with 1 row and a gap of 0.4.
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


def test_equal_mass_shares_ties() -> None:
    # All predictions are equal, so every bin has the same mean for any order of the labels.
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
        ({"kind": "binary", "probs": [[0.2, 0.3, 0.5]] * 2}, ValueError, "'confidence' for 3 cl"),
        ({"norm": 0.5}, ValueError, "norm must be a number of at least 1 or math.inf, got 0.5"),
        ({"norm": "max"}, TypeError, "norm must be a number of at least 1 or math.inf, got 'max'"),
    ],
)
def test_bad_options_are_errors(options: dict, error: type[Exception], message: str) -> None:
    given: dict = {"probs": [0.2, 0.7], "y": [0, 1], **options}
    with pytest.raises(error, match=message.replace(".", r"\.")):
        metrics.ece(**given)


def test_ties_that_stay_together() -> None:
    p, y = np.repeat([0.2, 0.5, 0.9], [4, 1, 7]), np.arange(12) % 2
    curve = metrics.reliability_curve(p, y, bins=3, binning="equal_mass", ties="together")
    # The border after 8 rows lies among the last seven tied rows, nearer to their start.
    assert curve.weight.tolist() == [4, 1, 7]
    np.testing.assert_allclose(curve.predicted, [0.2, 0.5, 0.9])
    shared = metrics.reliability_curve(p, y, bins=3, binning="equal_mass")
    assert shared.weight.tolist() == [4, 4, 4]
    with pytest.raises(ValueError, match="ties must be one of 'shared', 'together'"):
        metrics.reliability_curve(p, y, ties="apart")  # type: ignore[arg-type]


MASS: dict[str, dict] = {"ece": {"binning": "equal_mass"}, "debiased_ece": {}}


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("n", [300, 3000, 60_000])
def test_predictions_that_differ_by_rounding_are_ties(n: int, kind: type) -> None:
    """Check percentages, half of them computed from the other class, against exact percentages."""
    rng = np.random.default_rng(n)
    percent = rng.integers(1, 100, n)
    y = (rng.random(n) < percent / 100).astype(int)
    near = (percent / 100).astype(kind), kind(1) - ((100 - percent) / 100).astype(kind)
    p = np.where(rng.random(n) < 0.5, *near)
    assert len(np.unique(p)) > len(np.unique(percent))
    weights = rng.integers(1, 4, n)
    parts = np.array_split(np.arange(n), 3)
    blocks = bc.Blocks([(p[part], y[part]) for part in parts])
    for name, how in MASS.items():
        metric = getattr(metrics, name)
        for row_weights in (None, weights, weights / 3):
            expected = metric(percent / 100, y, weights=row_weights, **how)
            assert metric(p, y, weights=row_weights, **how) == pytest.approx(expected, abs=1e-7)
        expected = metric(percent / 100, y, **how)
        # Exchanging the classes mirrors the bins, since the number of bins divides that of rows.
        for result in (metric(jnp.asarray(p), y, **how), metric(blocks, **how)):
            assert result == pytest.approx(expected, abs=1e-7)
        assert metric(kind(1) - p, 1 - y, **how) == pytest.approx(
            metric(1 - percent / 100, 1 - y, **how), abs=1e-7
        )
    if n < 60_000:
        result = metrics.bootstrap("debiased_ece", p, y, replicates=50)
        expected = metrics.bootstrap("debiased_ece", percent / 100, y, replicates=50)
        np.testing.assert_allclose(result, expected, atol=1e-7)


@pytest.mark.parametrize("kind", ["near 0", "near 1", "clusters", "single", "dense single"])
@pytest.mark.parametrize("n", [500, 30_000])
def test_ties_are_those_of_a_search_for_chains(kind: str, n: int) -> None:
    """Check all rows sorted, few of them sorted, and blocks."""
    rng = np.random.default_rng(n)
    p: np.ndarray = {
        "near 0": 10.0 ** -rng.uniform(12, 20, n),
        "near 1": 1 - rng.integers(0, 9, n) * 2.0**-50,
        "clusters": rng.choice(rng.random(n // 9), n) + rng.integers(-2, 3, n) * 2.0**-53,
        "single": rng.beta(0.05, 0.05, n).astype(np.float32),
        "dense single": (1 - rng.integers(0, 50, n) * 2.0**-24).astype(np.float32),
    }[kind].clip(0, 1)
    y, eps = rng.integers(0, 2, n), max(2.0**-49, float(np.finfo(p.dtype).eps))
    # Replace each chain of neighbors by its first value, unless the chain is too long.
    first, start, values = {}, 0, np.unique(p).astype(float)
    for i in range(1, len(values) + 1):
        if i == len(values) or values[i] - values[i - 1] > eps:
            tied = values[i - 1] - values[start] <= 2 * eps
            first |= {v: values[start] if tied else v for v in values[start:i]}
            start = i
    merged = np.array([first[float(v)] for v in p])
    distinct, rank = np.unique(merged, return_inverse=True)
    assert (len(distinct) < len(values)) == (kind in ("near 0", "clusters", "single"))
    # Bins depend on the order of untied predictions, not on their distances.
    for bins in (4, 15):
        how: dict = {"bins": bins, "binning": "equal_mass", "ties": "together"}
        result = metrics.reliability_curve(p, y, **how)
        expected = metrics.reliability_curve(rank / n, y, **how)
        np.testing.assert_array_equal(result.weight, expected.weight)
        np.testing.assert_allclose(result.observed, expected.observed, rtol=1e-12)
        parts = np.array_split(np.arange(n), 3)
        blocks = bc.Blocks([(p[part], y[part]) for part in parts])
        in_memory = metrics.debiased_ece(p, y, bins=bins)
        assert metrics.debiased_ece(blocks, bins=bins) == pytest.approx(in_memory, abs=1e-12)
