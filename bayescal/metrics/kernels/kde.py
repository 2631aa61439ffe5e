"""The calibration error from kernel density estimates."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import numpy as np

from bayescal._core.arrays import AnyArray, Array, ArrayLike
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.shapes import Float
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.blocks.stream import Blocks
from bayescal.data.checks import check_choice, check_positive
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading
from bayescal.metrics.calibration.ece import SINGLE, find_events, resolve_kind
from bayescal.metrics.kernels.fourier import (
    GRID,
    gaussian,
    integral,
    smooth,
    split_nodes,
    transform,
)
from bayescal.metrics.sums import ManySums, Piece, SumMetric, compute, size_pieces, sizes

#: Minimum standard deviation of a kernel, in cells.
_MIN_WIDTH = 4
#: For replicates: above this, the triweight kernel's characteristic function is below 1e-11.
_MAX_FREQUENCY = 700.0


@ignoring_underflow
def kde_ece(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    kind: Literal["binary", "confidence"] | None = None,
    kernel: Literal["triweight", "gaussian"] = "triweight",
    bandwidth: float | None = None,
    norm: int = 1,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the calibration error by kernel density estimates.

    .. math:: \Big( \int_0^1 |z - \hat\pi(z)|^q \hat f(z)\,dz \Big)^{1/q}, \qquad
        \hat f(z) = \frac{\sum_i w_i K_h(z, p_i)}{\sum_i w_i}, \qquad
        \hat\pi(z) = \frac{\sum_i w_i y_i K_h(z, p_i)}{\sum_i w_i K_h(z, p_i)}

    with the kernel reflected at 0 and 1, and q the ``norm``. By default the kernel's standard
    deviation is :math:`h = 1.06\,s\,n^{-1/5}`, where s is the standard deviation of the
    predictions. The triweight kernel, proportional to :math:`(1 - u^2)^3`, ends at 3 h.

    Rows are split between nodes of a grid with steps of 1 / 16384; bandwidths are at least four
    steps. Because the kernel has a width, the error is not zero if all predictions are 0 or 1 and
    right: near the ends, :math:`z - \hat\pi(z)` is not zero.

    Parameters
    ----------
    probs, y, classes, inputs
        Probabilities (n,) or (n, k), or Blocks, labels (n,), and how they are read, as for
        :func:`log_loss`.
    kind : {"binary", "confidence"}, optional
        What is predicted: P(y = 1), or the largest probability. By default "binary" for two
        classes and "confidence" for more.
    kernel : {"triweight", "gaussian"}
        Shape of the kernel.
    bandwidth : float, optional
        Standard deviation of the kernel, positive; by default the rule above.
    norm : {1, 2}
        Order of the norm.
    weights : array of shape (n,), optional
        Non-negative row weights. Integers are counts; for other weights, n in the rule is
        :math:`(\sum w)^2 / \sum w^2`.

    Returns
    -------
    float
        A fraction in [0, 1].

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise, or for unknown options or bandwidths that are not positive.

    References
    ----------
    J. Zhang, B. Kailkhura and T. Y.-J. Han (2020), Mix-n-Match: ensemble and compositional methods
    for uncertainty calibration in deep learning.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.random(1000)
    >>> y = (rng.random(1000) < probs**2).astype(int)
    >>> kde_ece(probs, y)  # the integral of z - z**2 is 1/6
    0.1496...
    """
    checked = as_predictions(probs, y, weights, Reading(classes, inputs))
    metric = make_kde(checked.columns, kind=kind, kernel=kernel, bandwidth=bandwidth, norm=norm)
    return compute(metric, checked)


def make_kde(
    columns: int | None,
    *,
    kind: str | None = None,
    kernel: str = "triweight",
    bandwidth: float | None = None,
    norm: float = 1,
) -> DensityError:
    """Check options, and make the metric for probabilities with this many columns."""
    kind, _ = resolve_kind(kind, None, columns, SINGLE)
    check_choice(kernel, "kernel", ("triweight", "gaussian"))
    check_choice(norm, "norm", (1, 2))
    width = None if bandwidth is None else check_positive(bandwidth, "bandwidth")
    return DensityError(kind, kernel, width, int(norm))


@dataclass(frozen=True)
class DensityError(SumMetric):
    """The error from density estimates: mass and outcomes by node, moments, and sizes."""

    kind: str
    kernel: str = "triweight"
    bandwidth: float | None = None
    norm: int = 1
    rows = 7

    @property
    def cells(self) -> int:
        return GRID + 1

    def width(self, columns: int) -> int:
        return columns + 6

    def pieces(self, data: Predictions, xp: ModuleType) -> tuple[Piece, ...]:
        events = find_events(data, self.kind, 1, xp)
        node, weight = split_nodes(events.predicted, xp)
        happened = events.happened.astype(events.predicted.dtype)
        # Deviations from one half keep their digits when squared.
        centered = events.predicted - 0.5
        return (
            Piece(node, weight),
            Piece(node, weight * happened[:, None]),
            Piece(None, None),
            Piece(None, centered),
            Piece(None, centered**2),
            *size_pieces(None, data.weights),
        )

    def value(self, sums: Float[Array, "7 nodes"], xp: ModuleType) -> Float[Array, ""]:
        return self._norm(sums, self._factors(sums[2:, 0], xp), xp)

    def calibrated(self, sums: ManySums) -> ManySums:
        result = sums.copy()
        result[..., 1, :] = sums[..., 0, :] * np.arange(GRID + 1) / GRID
        return result

    def values(self, sums: Float[np.ndarray, "sets 7 nodes"]) -> Float[np.ndarray, " sets"]:
        factors = np.stack([self._factors(totals, np, _MAX_FREQUENCY) for totals in sums[:, 2:, 0]])
        return self._norm(np.moveaxis(sums, 1, 0), factors, np)

    def _factors(
        self, totals: Float[Array, " 5"], xp: ModuleType, highest: float = np.inf
    ) -> Float[AnyArray, " nodes"]:
        """Compute the kernel's characteristic function from sums over all rows.

        It is set to zero above ``highest`` standard deviations.
        """
        mass, first, second, squares, fractions = totals
        width = self.bandwidth
        if width is None:
            variance = xp.maximum(second / mass - (first / mass) ** 2, 0)
            width = 1.06 * xp.sqrt(variance) * sizes(mass, squares, fractions, xp) ** -0.2
        width = xp.maximum(width, _MIN_WIDTH / GRID)
        if self.kernel == "gaussian":
            return gaussian(width, xp)
        return _triweight(width, xp, highest)

    def _norm(
        self,
        sums: Float[Array, "7 *sets nodes"],
        factors: Float[Array, "*sets nodes"],
        xp: ModuleType,
    ) -> Float[AnyArray, " *sets"]:
        """Compute the error from sums and factors of frequencies."""
        mass = sums[2, ..., :1]
        density, happened = (
            xp.maximum(smooth(transform(row / mass, xp) * factors, xp), 0) for row in sums[:2]
        )
        nodes = xp.arange(GRID + 1).astype(density.dtype) / GRID
        gap = xp.abs(nodes * density - happened)
        if self.norm == 1:
            return integral(gap, xp)
        filled = density > 1e-12
        return xp.sqrt(integral(xp.where(filled, gap**2 / xp.where(filled, density, 1), 0), xp))


def _triweight(
    width: Float[Array, ""], xp: ModuleType, highest: float
) -> Float[AnyArray, " nodes"]:
    """Compute the triweight kernel's characteristic function, 105 j_3(s) / s**3 (Bessel)."""
    frequency = xp.asarray(np.pi * np.arange(GRID + 1), dtype=float)
    s = 3 * width * frequency
    if xp is np:
        start, end = (int(index) for index in np.searchsorted(s, (1, 3 * highest)))
        parts = (
            _triweight_series(s[:start]),
            _triweight_bessel(s[start:end], np),
            np.zeros(len(s) - end),
        )
        return np.concatenate(parts)
    small = s < 1
    return xp.where(
        small,
        _triweight_series(xp.where(small, s, 0)),
        _triweight_bessel(xp.where(small, 1, s), xp),
    )


def _triweight_series(s: Float[Array, " nodes"]) -> Float[Array, " nodes"]:
    series, term = s**0, s**0
    for m in range(1, 10):
        term = term * (-(s**2)) / (2 * m * (2 * m + 7))
        series = series + term
    return series


def _triweight_bessel(s: Float[Array, " nodes"], xp: ModuleType) -> Float[Array, " nodes"]:
    inverse = 1 / s
    square = inverse**2
    bessel = (15 * square - 6) * inverse * xp.sin(s) - (15 * square - 1) * xp.cos(s)
    return 105 * bessel * square**2
