"""Multicalibration: probabilities that are calibrated in every group at every level."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import ArrayLike
from bayescal._core.binning import equal_width_cell
from bayescal._core.keywords import ConstructorSignature, new_with_other_words
from bayescal._core.minimization.optimize import Status
from bayescal._core.numerics import find_root, ignoring_underflow, sigmoid
from bayescal.calibrators.base.dispatch import published_at_once
from bayescal.calibrators.base.estimator import keep_status
from bayescal.data.checks import check_count, check_real
from bayescal.data.label_names import label_list
from bayescal.data.labels import Classes, read_labels
from bayescal.data.membership import check_groups, check_same_groups
from bayescal.data.predictions import Predictions, Reading, read_arrays
from bayescal.data.weights import check_weights, effective_size

_REMEDY = {
    Status.LIMIT: (
        "the violation of a cell still exceeds the tolerance after max_iter patches; raise either"
    )
}
#: Probabilities are clipped to at least this before they are shifted.
_LEAST = 1e-12
#: Relative difference below which violations are equal up to rounding.
_TIE = 1e-9


@dataclass(eq=False, repr=False)
class Multicalibration(BaseEstimator):
    r"""Multicalibration of binary probabilities over groups that may overlap.

    A cell is the intersection of a group (or all rows) with a bin of equal width of the current
    probabilities f (or all bins). The cell C with the largest violation is patched by a shift of
    the log odds, until no violation exceeds the tolerance:

    .. math:: v_C = \sqrt{\mu_C}\, |\bar E[y - f \mid C]|, \qquad
        \operatorname{logit} f \leftarrow \operatorname{logit} f + \delta \text{ in the cell of the
        greatest } v, \qquad \sum_{i \in C} w_i (y_i - f_i^\text{new}) = \delta

    with :math:`\mu_C` the proportion of rows in the cell. The shift minimizes the log loss with a
    standard normal prior, which shrinks shifts of small cells and keeps them finite if all labels
    are equal. No probability becomes 0 or 1.

    A patch lowers the log loss of the fit by at least :math:`v^2 \cdot 2 m / (m + 4)` per row,
    where m is the weight of the cell, so the fit terminates. The violation v is comparable between
    cells of all sizes: for n labels drawn from correct probabilities it exceeds t in a given cell
    with probability of at most :math:`2 e^{-2 n t^2}` (Hoeffding). The default tolerance is the t
    for which the sum of this bound over all cells is one, so that few cells are patched by chance:
    in simulations 0 to 6 of 100 fits to correct probabilities patch a cell.

    Parameters
    ----------
    bins : int, default 10
        Number of bins of equal width, (j / bins, (j + 1) / bins].
    tolerance : float, optional
        Largest remaining v; by default :math:`\sqrt{\log(2 c) / 2 n}` for c = (g + 1) (bins + 1)
        cells. n is the sum of integer weights, or the effective number of rows for other weights.
    max_iter : int, default 1000
        Maximal number of patches.
    classes : sequence of 2 labels, optional
        Labels in the order of the columns; needed if y may lack one.

    Attributes
    ----------
    classes_ : array of shape (2,)
    groups_ : list of g names or positions
    named_ : bool
        Whether groups have names, which are those of the columns of a data frame.
    patches_ : list of tuples (group, bin, shift)
        The patches in order: the position of the group, g for all rows; the bin from 0, ``bins``
        for all; and the shift of log odds.
    bins_ : int
        Number of bins of the fit.
    losses_ : array of shape (patches + 1,)
        Log loss on the data of the fit, before and after each patch.
    tolerance_ : float
        Tolerance of the fit.
    violation_ : float
        Largest v after the last patch.
    status_ : str
        "converged", or "limit" if ``max_iter`` patches were not enough.
    n_iter_ : int
        Number of patches.

    Notes
    -----
    The fit is deterministic. An integer weight equals repeated rows. The order of rows does not
    matter. The order of groups matters only if cells have equal violations and their groups have
    equal weights, mean probabilities and frequencies.

    The class is not a ``Calibrator``, because fits and predictions also need groups. A fit takes
    O(n g), and then O(n + m g) for a patch with m rows in the bins that it changes; memory O(n g).
    Predictions take O(n) per patch.

    References
    ----------
    Ú. Hébert-Johnson, M. P. Kim, O. Reingold and G. N. Rothblum (2018), Multicalibration:
    calibration for the (computationally-identifiable) masses. P. Gopalan et al. (2022),
    Low-degree multicalibration. I. Globus-Harris et al. (2023), Multicalibration as boosting for
    regression, which fits all bins in rounds.

    Examples
    --------
    Two groups with different errors of the probabilities:

    >>> import numpy as np
    >>> import bayescal as bc
    >>> rng = np.random.default_rng(0)
    >>> p, first = rng.random(4000), rng.random(4000) < 0.5
    >>> y = rng.random(4000) < np.where(first, p**2, np.sqrt(p))
    >>> groups = np.stack([first, ~first], axis=1)
    >>> fitted = bc.Multicalibration().fit(p, y, groups)
    >>> after = fitted.predict_proba(p, groups)
    >>> before, after = (bc.metrics.multicalibration_error(q, y, groups) for q in (p, after))
    >>> round(before.error, 3), round(after.error, 3)
    (0.084, 0.019)
    """

    __new__ = new_with_other_words
    __signature__ = ConstructorSignature()

    bins: int = 10
    tolerance: float | None = None
    max_iter: int = 1000
    classes: Classes = field(default=None, kw_only=True)

    classes_: np.ndarray = field(init=False)
    groups_: list[object] = field(init=False)
    named_: bool = field(init=False)
    patches_: list[tuple[int, int, float]] = field(init=False)
    bins_: int = field(init=False)
    losses_: np.ndarray = field(init=False)
    tolerance_: float = field(init=False)
    violation_: float = field(init=False)
    status_: str = field(init=False)
    n_iter_: int = field(init=False)

    @published_at_once
    @ignoring_underflow
    def fit(
        self,
        probs: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit patches.

        Parameters
        ----------
        probs : array-like of shape (n,) or (n, 2)
            Probabilities of the second class, or of both.
        y : array-like of shape (n,)
            Labels, of any two values.
        groups : array-like or data frame of shape (n, g)
            True (or 1) if a row belongs to a group. Or text (n,), the name of the group of each
            row.
        sample_weight : array-like of shape (n,), optional
            Non-negative; an integer weight equals repeated rows. Weights that are not integers are
            scaled to the effective number of rows.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For probabilities outside [0, 1], more than two columns, labels that are not of two
            classes, groups of a wrong shape or with other values, and invalid options.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` patches were not enough.
        """
        bins, max_patches = check_count(self.bins, "bins"), check_count(self.max_iter, "max_iter")
        if self.tolerance is not None:
            check_real(self.tolerance, "tolerance", "None or a positive number")
            if not 0 < self.tolerance < np.inf:
                raise ValueError(f"tolerance must be positive, got {self.tolerance!r}")
        weights = check_weights(sample_weight, _count(probs))
        self.classes_, codes = read_labels(y, len(weights), self.classes, weights=weights)
        members, names = check_groups(groups, len(codes), weights)
        self.named_, self.groups_ = names is not None, names or [*range(members.shape[1])]
        data = self._read(probs, self.classes_[codes], weights)
        members = _with_all(members[weights > 0])
        # Sort, so that sums do not depend on the order of rows.
        order = np.lexsort((data.weights, data.y, data.probs))
        p, target, w = data.probs[order], data.y[order].astype(float), data.weights[order]
        members = members[order]
        # Weights that are not counts are scaled to the effective number of rows.
        w = w if data.whole else w * (effective_size(w.sum(), w @ w) / w.sum())
        # Correct probabilities rarely exceed this violation in any cell.
        noise = math.sqrt(math.log(2 * members.shape[1] * (bins + 1)) / (2 * float(w.sum())))
        self.tolerance_ = self.tolerance or noise
        state = _BoostingState(p, target, w, members, bins, data.precision)
        patches, losses = [], [state.loss()]
        while (worst := state.worst())[0] > self.tolerance_ and len(patches) < max_patches:
            patches.append(state.patch(*worst[1:]))
            losses.append(state.loss())
        self.bins_ = bins
        self.patches_, self.losses_ = patches, np.array(losses)
        self.violation_, self.n_iter_ = worst[0], len(patches)
        reached = self.violation_ <= self.tolerance_
        keep_status(self, Status.CONVERGED if reached else Status.LIMIT, _REMEDY)
        return self

    @ignoring_underflow
    def predict_proba(self, probs: ArrayLike, groups: ArrayLike) -> np.ndarray:
        """Compute multicalibrated probabilities (m, 2).

        Parameters
        ----------
        probs : array-like of shape (m,) or (m, 2)
        groups : array-like or data frame of shape (m, g)
            Groups in the order of the fit; columns of data frames are matched by name. For text
            (m,), rows whose name was not in the fit belong to no group.

        Raises
        ------
        ValueError
            For invalid probabilities, and for groups that differ from those of the fit.
        """
        check_is_fitted(self)
        labels = np.full(_count(probs), self.classes_[0])
        data = self._read(probs, labels, None)
        p, precision = data.probs.copy(), data.precision
        names = self.groups_ if self.named_ else None
        members = check_same_groups(groups, len(p), names, len(self.groups_))
        members, bins = _with_all(members), getattr(self, "bins_", self.bins)
        for group, cell, shift in self.patches_:
            bin_of_row = equal_width_cell(p, bins, np, precision)
            rows = _rows(members[:, group], bin_of_row, cell, bins)
            p[rows] = _probability(_log_odds(p[rows]) + shift)
        return np.stack([1 - p, p], axis=1)

    def predict(self, probs: ArrayLike, groups: ArrayLike) -> np.ndarray:
        """Return the more probable class (m,) according to :meth:`predict_proba`."""
        codes = self.predict_proba(probs, groups).argmax(axis=1)
        return self.classes_[codes]

    def _read(self, probs: ArrayLike, y: np.ndarray, weights: np.ndarray | None) -> Predictions:
        reading = Reading(tuple(label_list(self.classes_)), has_inputs=False)
        return read_arrays(probs, y, weights, reading)


class _BoostingState:
    """Current probabilities of the rows of a fit, and sums over cells."""

    def __init__(
        self,
        p: np.ndarray,
        y: np.ndarray,
        w: np.ndarray,
        members: np.ndarray,
        bins: int,
        precision: float,
    ) -> None:
        self.precision = precision
        self.p, self.y, self.w, self.members, self.bins = p.copy(), y, w, members, bins
        self.total = w.sum()
        self.cell = equal_width_cell(p, bins, np, precision)
        self.sums = self._sums_of(slice(None))
        #: Order of the groups by their content.
        content = (members.T @ values for values in (w * p, w * y, w))
        self.order = np.lexsort(tuple(content))

    def loss(self) -> float:
        p = np.clip(self.p, _LEAST, 1 - _LEAST)
        return float(-self.w @ np.log(np.where(self.y > 0, p, 1 - p)) / self.total)

    def worst(self) -> tuple[float, int, int]:
        """Find the largest violation and its cell; of equal ones the first by content of groups."""
        mass, error = self.sums[:, self.order]
        mass, error = (np.append(a, a.sum(axis=1)[:, None], axis=1) for a in (mass, error))
        violation = np.abs(error) / np.sqrt(np.where(mass > 0, mass, 1) * self.total)
        largest = float(violation.max())
        group, cell = np.argwhere(violation >= largest * (1 - _TIE))[0]
        return largest, int(self.order[group]), int(cell)

    def patch(self, group: int, cell: int) -> tuple[int, int, float]:
        """Patch a cell by its best shift, and return both."""
        rows = np.flatnonzero(_rows(self.members[:, group], self.cell, cell, self.bins))
        shift = _best_shift(self.p[rows], self.y[rows], self.w[rows])
        before = self.cell[rows]
        self.p[rows] = _probability(_log_odds(self.p[rows]) + shift)
        self.cell[rows] = equal_width_cell(self.p[rows], self.bins, np, self.precision)
        touched = np.zeros(self.bins, bool)
        touched[before] = touched[self.cell[rows]] = True
        sums = self._sums_of(np.flatnonzero(touched[self.cell]))
        self.sums[..., touched] = sums[..., touched]
        return group, cell, shift

    def _sums_of(self, rows: np.ndarray | slice) -> np.ndarray:
        """Sum weights and errors (2, groups, bins) of the selected rows."""
        w, cell = self.w[rows], self.cell[rows]
        values = w, w * (self.y[rows] - self.p[rows])
        groups = [np.flatnonzero(member) for member in self.members[rows].T]
        return np.array(
            [[np.bincount(cell[g], value[g], self.bins) for g in groups] for value in values]
        )


def _rows(member: np.ndarray, cell: np.ndarray, wanted: int, bins: int) -> np.ndarray:
    """Mark the members of a group in a bin; ``wanted == bins`` means all bins."""
    return member if wanted == bins else member & (cell == wanted)


def _log_odds(p: np.ndarray) -> np.ndarray:
    p = np.clip(p, _LEAST, 1 - _LEAST)
    return np.log(p) - np.log1p(-p)


def _probability(log_odds: np.ndarray) -> np.ndarray:
    return np.clip(sigmoid(log_odds), _LEAST, 1 - _LEAST)


def _best_shift(p: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    """Find the shift that equals the sum of the remaining errors."""
    log_odds = _log_odds(p)

    def excess(shift: float) -> float:
        return float(w @ (y - _probability(log_odds + shift))) - shift

    # Errors decrease with the shift, so the error at zero bounds the root.
    bound = excess(0.0)
    return find_root(excess, min(bound, 0), max(bound, 0), xtol=1e-10, maxiter=1000)


def _count(probs: ArrayLike) -> int:
    """Return the number of rows of binary probabilities."""
    shape = np.shape(probs)
    if len(shape) not in (1, 2) or shape[1:] not in ((), (2,)):
        raise ValueError(
            f"probs must have shape (n,) or (n, 2), got {shape}; for more classes, calibrate each "
            "against the rest"
        )
    return shape[0]


def _with_all(members: np.ndarray) -> np.ndarray:
    return np.concatenate([members, np.ones((len(members), 1), bool)], axis=1)
