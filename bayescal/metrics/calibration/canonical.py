"""The calibration error of whole vectors of probabilities, in cells of a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import numpy as np

from bayescal._core.arrays import AnyArray, Array, ArrayLike
from bayescal._core.binning import equal_width_cell
from bayescal._core.keywords import other_words
from bayescal._core.lazy import jax
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.shapes import Float, Int, Shaped
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.checks import check_choice, check_count
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading
from bayescal.metrics.kernels.distances import lengths, residuals
from bayescal.metrics.sums import DirectMetric, compute, sum_matrix


@other_words
@ignoring_underflow
def canonical_ece(
    probs: ArrayLike,
    y: ArrayLike,
    *,
    bins: int = 10,
    distance: Literal["total_variation", "euclidean"] = "total_variation",
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the canonical calibration error, that of probability vectors, in cells of a grid.

    Rows share a cell if the probability of every class lies in the same of ``bins`` of equal width.
    With :math:`C` a cell, e the outcomes as unit vectors, and weights that sum to one, it is

    .. math:: \sum_C w_C\, \| \bar p_C - \bar e_C \|

    There are bins\ :sup:`k` cells, most of them empty. If cells hold few rows, as with many
    classes, the error is far too large; :func:`skce` has no cells.

    Time O(n k log n).

    Parameters
    ----------
    probs, y, weights, classes, inputs
        Probabilities (n,) or (n, k), labels (n,), row weights (n,), and how they are read, as for
        :func:`log_loss`.
    bins : int, default 10
        Number of bins (j / bins, (j + 1) / bins] for each class, with 0 in the first.
    distance : {"total_variation", "euclidean"}
        Half the sum of absolute differences, or the root of the sum of their squares.

    Returns
    -------
    float
        A fraction from 0 to 1, or to the root of 2 for "euclidean".

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise, or for unknown options.

    References
    ----------
    J. Vaicenavicius et al. (2019), Evaluating model calibration in classification.
    D. Widmann, F. Lindsten and D. Zachariah (2019), Calibration tests in multi-class
    classification: a unifying framework.

    Examples
    --------
    >>> probs = [[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.1, 0.8, 0.1]]
    >>> canonical_ece(probs, [0, 1, 1, 1])
    0.2
    """
    checked = as_predictions(probs, y, weights, Reading(classes, inputs))
    return compute(make_canonical(checked.columns, bins=bins, distance=distance), checked)


@other_words
def make_canonical(
    columns: int | None, *, bins: int = 10, distance: str = "total_variation"
) -> CanonicalError:
    """Check options, and make the metric for probabilities with this many columns."""
    check_choice(distance, "distance", ("total_variation", "euclidean"))
    return CanonicalError(check_count(bins, "bins"), distance)


@dataclass(frozen=True)
class CanonicalError(DirectMetric):
    """The error over the cells that hold rows."""

    bins: int
    distance: str

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, 1.0 if self.distance == "total_variation" else math.sqrt(2)

    def compute(self, data: Predictions, xp: ModuleType) -> Float[Array, ""]:
        weights = data.weights
        gaps = residuals(data, xp)
        cell = self._cells(data, xp)
        if xp is np:
            sums = sum_matrix(cell, None, len(data.y)) @ (weights[:, None] * gaps)
        else:
            sums = jax.ops.segment_sum(weights[:, None] * gaps, cell, len(data.y))
        return lengths(sums, self.distance, xp).sum() / weights.sum()

    def compute_many(
        self, data: Predictions, factors: Shaped[np.ndarray, "rows draws"]
    ) -> Float[np.ndarray, " draws"]:
        weights = factors * data.weights[:, None]
        cell = self._cells(data, np)
        matrix = sum_matrix(cell, None, int(cell.max()) + 1)
        gaps = residuals(data)
        sums = np.stack([matrix @ (weights * gap[:, None]) for gap in gaps.T], axis=-1)
        return lengths(sums, self.distance, np).sum(axis=0) / weights.sum(axis=0)

    def _cells(self, data: Predictions, xp: ModuleType) -> Int[AnyArray, " rows"]:
        """Compute the number of the cell of each row."""
        cell = equal_width_cell(data.probs, self.bins, xp, data.precision)
        if cell.ndim == 1:
            if xp is not np and self.bins <= len(cell):
                return cell
            cell = cell[:, None]
        size = {"size": len(cell)} if xp is not np else {}
        return xp.unique(cell, axis=0, return_inverse=True, **size)[1].reshape(-1)
