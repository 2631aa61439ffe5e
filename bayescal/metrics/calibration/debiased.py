"""Calibration errors over bins, corrected for the bias of bins with few rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from bayescal._core.arrays import AnyArray, Array, ArrayLike
from bayescal._core.binning import SLACK
from bayescal._core.keywords import other_words
from bayescal._core.lazy import special
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.shapes import Float
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.blocks.stream import Blocks
from bayescal.data.checks import check_choice
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading
from bayescal.metrics.calibration.ece import BinnedError, Binning, EqualMassError, Kind, make_ece
from bayescal.metrics.sums import Piece, compute, size_pieces, sizes


@other_words
@ignoring_underflow
def debiased_ece(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "equal_mass",
    kind: Kind | None = None,
    k: int | None = None,
    norm: int = 2,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the calibration error over bins, corrected for chance.

    With ``norm=2`` it is the square root of

    .. math:: \sum_b \frac{n_b}{n}
        \Big( (\bar p_b - \bar y_b)^2 - \frac{\bar y_b (1 - \bar y_b)}{n_b - 1} \Big)

    or 0 if that is negative. With ``norm=1`` it is the following sum, or 0 if that is negative:

    .. math:: \sum_b \frac{n_b}{n} \big( 2 |\bar p_b - \bar y_b| - E |\bar p_b - N_b| \big),
        \qquad N_b \sim N\big(\bar y_b, \bar y_b (1 - \bar y_b) / n_b\big)

    where the expectation is the mean of a folded normal distribution. :func:`ece` defines p and y;
    for several classes or ranks, the sums are averaged.

    The correction needs the number of independent rows in a bin, so bins of equal mass differ from
    those of :func:`ece`: equal predictions stay in one bin, whose border moves to their nearer end,
    and there are at most n / 2 bins. The variance of a bin with a single row cannot be estimated,
    so :math:`\bar p_b (1 - \bar p_b)` replaces it, which is right if predictions are calibrated.

    Parameters
    ----------
    probs, y, classes, inputs
        Probabilities (n,) or (n, k), or Blocks, labels (n,), and how they are read, as for
        :func:`log_loss`.
    bins : int, default 15
        Number of bins.
    binning : {"equal_mass", "equal_width"}
        How the bins are laid out.
    kind : str, optional
        As in :func:`ece`. By default "binary" for two classes and "confidence" for more;
        "classwise" is the marginal error of the reference.
    k : int, optional
        Number of ranks for the kinds that begin with "top_k".
    norm : {2, 1}
        Order of the norm over bins.
    weights : array of shape (n,), optional
        Non-negative row weights. Integers are counts, equal to repeating rows. For other weights
        the number of rows in a bin is :math:`(\sum w)^2 / \sum w^2`.

    Returns
    -------
    float
        A fraction in [0, 1].

    Raises
    ------
    TypeError, ValueError
        If :func:`ece` would raise.

    References
    ----------
    A. Kumar, P. Liang and T. Ma (2019), Verified uncertainty calibration.

    Examples
    --------
    Calibrated predictions, and the same squared; the true errors are 0 and 1 / sqrt(30), 0.18257:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.random(1000)
    >>> y = (rng.random(1000) < probs).astype(int)
    >>> debiased_ece(probs, y), debiased_ece(probs**2, y)
    (0.01985..., 0.19081...)
    """
    checked = as_predictions(probs, y, weights, Reading(classes, inputs), on_device=True)
    metric = make_debiased(checked.columns, bins=bins, binning=binning, kind=kind, k=k, norm=norm)
    return compute(metric, checked)


@other_words
def make_debiased(
    columns: int | None, *, binning: str = "equal_mass", norm: float = 2, **options: Any
) -> DebiasedError | DebiasedMassError:
    """Check options, and make the metric for probabilities with this many columns."""
    check_choice(norm, "norm", (2, 1))
    metric = make_ece(columns, binning=binning, norm=norm, **options)
    cls = DebiasedError if isinstance(metric, BinnedError) else DebiasedMassError
    return cls(metric.bins, metric.kind, metric.ranks, metric.parts, metric.labels, int(norm))


@dataclass(frozen=True)
class DebiasedError(BinnedError):
    """The debiased error over bins of equal width; signed: without the root of norm 2."""

    signed: bool = False
    rows = 5

    def pieces(self, data: Predictions, xp: ModuleType) -> tuple[Piece, ...]:
        pieces = super().pieces(data, xp)
        return *pieces, *size_pieces(pieces[0].cell, data.weights)

    def value(self, sums: Float[Array, "*sets 5 cells"], xp: ModuleType) -> Float[Array, " *sets"]:
        size = sizes(sums[..., 0, :], sums[..., 3, :], sums[..., 4, :1], xp)
        return debiased_error(sums[..., :3, :], size, int(self.norm), self.signed, xp)


@dataclass(frozen=True)
class DebiasedMassError(EqualMassError):
    """The debiased error over bins of equal mass, each with at least two rows if possible."""

    signed: bool = False
    least_cases = 2

    def finish(self, sums: Array, ratio: AnyArray, xp: ModuleType) -> Array:
        return debiased_error(sums, sums[..., 0, :] * ratio, int(self.norm), self.signed, xp)


def debiased_error(
    sums: Float[Array, "*sets 3 cells"],
    size: Float[Array, "*sets cells"],
    norm: int,
    signed: bool,
    xp: ModuleType,
) -> Float[Array, " *sets"]:
    """Compute the debiased error over bins; ``size`` is the number of rows in each.

    With norm 2, the variance of the mean outcome is subtracted from each squared gap; their mean is
    returned without the root if ``signed``. With norm 1, the error is twice the mean gap minus the
    gap expected if outcomes were normal around the observed frequency. The variance of a single
    row is that implied by its prediction.
    """
    mass, *others = (sums[..., row, :] for row in range(3))
    divisor = xp.where(mass > 0, mass, 1)
    predicted, observed = (xp.clip(row / divisor, 0, 1) for row in others)
    gap = others[0] / divisor - others[1] / divisor
    proportions = mass / mass.sum(-1, keepdims=True)
    repeated = size > 1 + SLACK
    freedom = xp.where(repeated, size - 1 if norm == 2 else size, 1)
    variance = xp.where(repeated, observed * (1 - observed) / freedom, predicted * (1 - predicted))
    if norm == 2:
        mean = (proportions * (gap**2 - variance)).sum(-1)
        if signed:
            return mean
        return xp.where(mean > 0, xp.sqrt(xp.where(mean > 0, mean, 1)), 0)
    deviation = xp.sqrt(xp.where(variance > 0, variance, 1))
    z = xp.abs(gap) / deviation
    erf = np.vectorize(math.erf, otypes=[float]) if xp is np else special.erf
    inside = erf(z / math.sqrt(2))
    folded = deviation * (math.sqrt(2 / math.pi) * xp.exp(-(z**2) / 2) + z * inside)
    corrected = 2 * xp.abs(gap) - xp.where(variance > 0, folded, xp.abs(gap))
    return xp.maximum((proportions * corrected).sum(-1), 0)
