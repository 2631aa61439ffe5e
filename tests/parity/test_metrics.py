"""Metrics against other libraries: agreement, or the reason for a difference.

The marker of a test lists the libraries that it needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import softmax

from bayescal import metrics

#: Other libraries raise warnings.
pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

Array = np.ndarray


def make_probs(n: int = 3000, k: int = 5, seed: int = 0) -> tuple[Array, Array]:
    """Return probabilities of an over-confident model, and labels."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, k))
    y = np.argmax(0.6 * logits + rng.gumbel(size=(n, k)), axis=1)
    return softmax(logits, axis=1), y


P, Y = make_probs()
# P(y = 1) for two of the classes.
Q, T = 1 / (1 + P[:, 0] / P[:, 1]), (Y == 1).astype(int)


@pytest.mark.parity("torch", "torchmetrics")
@pytest.mark.parametrize(("name", "norm"), [("l1", 1), ("l2", 2), ("max", math.inf)])
def test_torchmetrics(name: str, norm: float) -> None:
    import torch
    from torchmetrics.functional import classification as functional

    p, y = torch.as_tensor(P), torch.as_tensor(Y)
    expected = functional.multiclass_calibration_error(p, y, num_classes=5, n_bins=15, norm=name)
    assert metrics.ece(P, Y, norm=norm) == pytest.approx(float(expected), rel=1e-5)
    q, t = torch.as_tensor(Q), torch.as_tensor(T)
    expected = functional.binary_calibration_error(q, t, n_bins=10, norm=name)
    result = metrics.ece(Q, T, bins=10, norm=norm)
    assert result == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parity("torch", "torchmetrics")
def test_torchmetrics_hamming_loss() -> None:
    import torch
    from torchmetrics.functional import classification as functional

    rng = np.random.default_rng(0)
    probs, y = rng.random((500, 4)), rng.integers(0, 2, (500, 4))
    expected = functional.multilabel_hamming_distance(
        torch.as_tensor(probs), torch.as_tensor(y), num_labels=4
    )
    assert metrics.hamming_loss(probs, y) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parity("netcal")
def test_netcal() -> None:
    import netcal.metrics as theirs

    assert metrics.ece(P, Y) == pytest.approx(theirs.ECE(15).measure(P, Y), rel=1e-10)
    expected = theirs.MCE(15).measure(P, Y)
    assert metrics.ece(P, Y, norm=math.inf) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parity("probmetrics", "numba")
def test_probmetrics() -> None:
    import torch
    from probmetrics.metrics import Metrics

    theirs = Metrics.from_names(["ece-15", "logloss"])
    result = theirs.compute_all_from_labels_probs(torch.as_tensor(Y), torch.as_tensor(P))
    assert metrics.ece(P, Y) == pytest.approx(float(result["ece-15"]), rel=1e-5)
    assert metrics.log_loss(P, Y) == pytest.approx(float(result["logloss"]), rel=1e-5)


@pytest.mark.parity("calibration")
@pytest.mark.parametrize("binning", ["equal_width", "equal_mass"])
@pytest.mark.parametrize("kind", ["confidence", "classwise"])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("debias", [False, True])
def test_uncertainty_calibration(binning: str, kind: str, norm: int, debias: bool) -> None:
    import calibration
    from calibration import utils

    scheme = utils.get_equal_bins if binning == "equal_mass" else utils.get_equal_prob_bins
    mode = "top-label" if kind == "confidence" else "marginal"
    if (binning, kind, norm, debias) == ("equal_width", "confidence", 1, True):
        pytest.skip("it needs cases in every bin, and no confidence is below 1/5")
    np.random.seed(0)  # noqa: NPY002 (its resampling has no other seed)
    expected = calibration.lower_bound_scaling_ce(
        P, Y, p=norm, debias=debias, num_bins=10, binning_scheme=scheme, mode=mode
    )
    options = {"bins": 10, "binning": binning, "kind": kind, "norm": norm}
    metric: Callable[..., float] = metrics.debiased_ece if debias else metrics.ece
    result = metric(P, Y, **options)
    # It estimates the mean of folded normals from a thousand draws, each of which deviates by less
    # than half of sqrt(1 / n).
    tolerance = 4 * 0.5 / math.sqrt(1000 * len(Y)) if debias and norm == 1 else 1e-10
    assert result == pytest.approx(expected, abs=tolerance)


@pytest.mark.parity("calibration")
@pytest.mark.parametrize("n", [300, 1000, 5000])
def test_debiased_errors_of_ties(n: int) -> None:
    import calibration

    rng = np.random.default_rng(n)
    p = rng.choice(np.arange(0.05, 1, 0.1), n)
    y = (rng.random(n) < p - 0.1 * np.sign(p - 0.5)).astype(int)
    expected = calibration.lower_bound_scaling_ce(p, y, p=2, debias=True, num_bins=15)
    assert metrics.debiased_ece(p, y) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parity("relplot")
@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.15])
def test_relplot(sigma: float) -> None:
    """Allow for its kernel, which ends at one half, and its coarser grid."""
    import relplot

    expected = relplot.smECE_sigma(Q, T, sigma)
    assert metrics.smooth_ece(Q, T, bandwidth=sigma) == pytest.approx(expected, rel=5e-3)
    right = (P.argmax(axis=1) == Y).astype(int)
    expected = relplot.smECE_sigma(P.max(axis=1), right, sigma)
    assert metrics.smooth_ece(P, Y, bandwidth=sigma) == pytest.approx(expected, rel=5e-3)


@pytest.mark.parity("relplot")
def test_relplot_bandwidth() -> None:
    """Allow for its bandwidth search, which halves ten times and returns an error."""
    import relplot

    assert metrics.smooth_ece(Q, T) == pytest.approx(relplot.smECE(Q, T), abs=1e-3)


@pytest.mark.parity("torch", "torchmetrics")
def test_single_precision_keeps_digits() -> None:
    """Check a million probabilities, for which other libraries lose the third digit."""
    import torch
    from torchmetrics.functional import classification as functional

    probs, y = make_probs(1_000_000, seed=1)
    narrow = probs.astype(np.float32)
    expected = metrics.ece(narrow.astype(np.float64), y)
    assert metrics.ece(narrow, y) == pytest.approx(expected, rel=1e-12)
    theirs = functional.multiclass_calibration_error(
        torch.as_tensor(narrow), torch.as_tensor(y), num_classes=5, n_bins=15
    )
    ours = abs(metrics.ece(narrow, y) - metrics.ece(probs, y))
    assert ours < abs(float(theirs) - metrics.ece(probs, y))
