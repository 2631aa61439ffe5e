"""Multicalibration: probabilities right on average in every group, at every level."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import brentq
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import ArrayLike
from bayescal._core.binning import equal_width_cell
from bayescal._core.numerics import ignoring_underflow, sigmoid
from bayescal._core.optimise import Status
from bayescal.calibrators.base.dispatch import published_at_once
from bayescal.calibrators.base.status import keep_status
from bayescal.data.checks import check_count, check_real
from bayescal.data.label_names import label_list
from bayescal.data.labels import Classes, read_labels
from bayescal.data.membership import check_groups, check_same_groups
from bayescal.data.predictions import Predictions, Reading, read_arrays
from bayescal.data.weights import check_weights, effective_size

__all__ = ["Multicalibration"]

_REMEDY = {
    Status.LIMIT: (
        "some cell is still wrong by more than the tolerance after max_iter patches; raise either"
    )
}
#: Probabilities of less count as this, where they are moved.
_LEAST = 1e-12
#: Cells whose violations differ by less are equally wrong: sums differ in their last digits.
_TIE = 1e-9


class _Patch(NamedTuple):
    group: int
    bin: int
    shift: float


@dataclass(eq=False, repr=False)
class Multicalibration(BaseEstimator):
    r"""Multicalibration of probabilities of two classes, over groups that may overlap.

    A cell is a group g, all rows being one, too, with one of the bins of equal width of the current
    probabilities f, or with all of them. The cell C that is most wrong is patched by a shift of the
    log odds, until none is wrong by more than the tolerance:

    .. math:: v_C = \sqrt{\mu_C}\, |\bar E[y - f \mid C]|, \qquad
        \operatorname{logit} f \leftarrow \operatorname{logit} f + \delta \text{ in the cell of the
        greatest } v, \qquad \sum_{i \in C} w_i (y_i - f_i^\text{new}) = \delta

    with :math:`\mu_C` the share of rows in the cell: the shift of the least log loss with a
    standard normal prior, which shrinks those of small cells, and is finite where all labels are
    the same. So no probability becomes 0 or 1.

    A patch lowers the log loss of the fit by
    :math:`v^2 \cdot 2 m / (m + 4)` per row or more, m the weight of the cell, so a fit ends. The
    violation v weighs all cells alike against chance: of n labels drawn from right probabilities it
    exceeds t in a given cell with probability :math:`2 e^{-2 n t^2}` at most, whatever the size of
    the cell (Hoeffding). The tolerance by default is t where the sum over all cells of this
    bound is one, so that few small cells are fitted by chance: in simulations 3 to 9 of
    100 fits to right probabilities patch a cell.

    Parameters
    ----------
    bins : int, default 10
        Of equal width, (j / bins, (j + 1) / bins].
    tolerance : float, optional
        Greatest v that is left; by default :math:`\sqrt{\log(2 c) / 2 n}` for
        c = (g + 1) (bins + 1) cells. n is the sum of whole weights, of others their
        effective number of rows.
    max_iter : int, default 1000
        Greatest number of patches.
    classes : sequence of 2 labels, optional
        In the order of the columns; needed where y may lack one.

    Attributes
    ----------
    classes_ : array of shape (2,)
    groups_ : list of g names or positions
    named_ : bool
        Whether they are names, of the columns of a data frame.
    patches_ : list of tuples (group, bin, shift)
        In their order: the position of the group, g for all rows; the bin from 0, ``bins`` for
        all; and the shift of log odds.
    bins_ : int
        Number of bins of the fit.
    losses_ : array of shape (patches + 1,)
        Log loss on the data, before and after each patch.
    tolerance_ : float
    violation_ : float
        The greatest v at the end.
    status_ : str
        "converged", or "limit" if ``max_iter`` patches were not enough.
    n_iter_ : int
        Number of patches.

    Notes
    -----
    It has no draws: it is deterministic. A whole weight is the same as repeating the row; the order
    of rows does not matter, nor that of groups unless cells are equally wrong, of groups of the
    same weight, mean probability and frequency.

    It is no ``Calibrator``: it takes groups, too, when it is fitted and when it predicts. A fit
    takes O(n g) at first, then a patch O(n + m g) for m rows in the bins that it touches; memory
    O(n g). Predictions take O(n) for each patch.

    References
    ----------
    Ú. Hébert-Johnson, M. P. Kim, O. Reingold and G. N. Rothblum (2018), Multicalibration:
    calibration for the (computationally-identifiable) masses. P. Gopalan et al. (2022),
    Low-degree multicalibration. I. Globus-Harris et al. (2023), Multicalibration as boosting for
    regression, which fits all bins in rounds.

    Examples
    --------
    Two groups, of which the probabilities suit neither:

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
    (0.084, 0.013)
    """

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
            True (or 1) where a row belongs to a group. Of one label for each row,
            ``pandas.get_dummies`` makes columns.
        sample_weight : array-like of shape (n,), optional
            Non-negative; a whole weight is the same as repeating the row. Others are shares, worth
            their effective number of rows.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For probabilities outside [0, 1], more than two columns, labels of another number of
            classes, groups of another shape or with other values, and options that are not allowed.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` patches were not enough.
        """
        bins, most = check_count(self.bins, "bins"), check_count(self.max_iter, "max_iter")
        if self.tolerance is not None:
            check_real(self.tolerance, "tolerance", "None or a positive number")
            if not 0 < self.tolerance < np.inf:
                raise ValueError(f"tolerance must be positive, got {self.tolerance!r}")
        self.classes_, codes = read_labels(y, _count(probs), self.classes)
        weights = check_weights(sample_weight, len(codes))
        members, names = check_groups(groups, len(codes))
        self.named_, self.groups_ = names is not None, names or [*range(members.shape[1])]
        data = self._read(probs, self.classes_[codes], weights)
        members = _with_all(members[weights > 0])
        # Sums are to be the same in whatever order rows and groups come.
        order = np.lexsort((data.weights, data.y, data.probs))
        p, target, w = data.probs[order], data.y[order].astype(float), data.weights[order]
        members = members[order]
        # Weights that are no counts are shares of so many rows as they are worth.
        w = w if data.whole else w * (effective_size(w.sum(), w @ w) / w.sum())
        self.tolerance_ = self.tolerance or _noise(float(w.sum()), members.shape[1] * (bins + 1))
        walk = _Walk(p, target, w, members, bins, data.precision)
        patches, losses = [], [walk.loss()]
        while (found := walk.worst())[0] > self.tolerance_ and len(patches) < most:
            patches.append(walk.patch(*found[1:]))
            losses.append(walk.loss())
        self.bins_ = bins
        self.patches_, self.losses_ = [tuple(own) for own in patches], np.array(losses)
        self.violation_, self.n_iter_ = found[0], len(patches)
        reached = self.violation_ <= self.tolerance_
        keep_status(self, Status.CONVERGED if reached else Status.LIMIT, _REMEDY)
        return self

    @ignoring_underflow
    def predict_proba(self, probs: ArrayLike, groups: ArrayLike) -> np.ndarray:
        """Return multicalibrated probabilities (m, 2).

        Parameters
        ----------
        probs : array-like of shape (m,) or (m, 2)
        groups : array-like or data frame of shape (m, g)
            In the order of those of the fit; of two data frames columns are found by their names.

        Raises
        ------
        ValueError
            As :meth:`fit`, and for other groups than in the fit.
        """
        check_is_fitted(self)
        labels = np.full(_count(probs), self.classes_[0])
        data = self._read(probs, labels, None)
        p, precision = data.probs.copy(), data.precision
        names = self.groups_ if self.named_ else None
        members = check_same_groups(groups, len(p), names, len(self.groups_))
        members, bins = _with_all(members), getattr(self, "bins_", self.bins)
        for group, cell, shift in self.patches_:
            place = equal_width_cell(p, bins, np, precision)
            rows = _rows(members[:, group], place, cell, bins)
            p[rows] = _moved(p[rows], shift)
        return np.stack([1 - p, p], axis=1)

    def predict(self, probs: ArrayLike, groups: ArrayLike) -> np.ndarray:
        """Return the more probable class (m,) by :meth:`predict_proba`."""
        return self.classes_[self.predict_proba(probs, groups).argmax(axis=1)]

    def _read(self, probs: ArrayLike, y: np.ndarray, weights: np.ndarray | None) -> Predictions:
        reading = Reading(tuple(label_list(self.classes_)), second=True)
        return read_arrays(probs, y, weights, reading)


class _Walk:
    """Probabilities of the rows of a fit on their way, and sums over cells."""

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
        #: Groups by what they hold.
        content = (members.T @ values for values in (w * p, w * y, w))
        self.order = np.lexsort(tuple(content))

    def loss(self) -> float:
        p = np.clip(self.p, _LEAST, 1 - _LEAST)
        return float(-self.w @ np.log(np.where(self.y > 0, p, 1 - p)) / self.total)

    def worst(self) -> tuple[float, int, int]:
        """Return the greatest violation and its cell; of equals the first, by what groups hold."""
        mass, error = self.sums[:, self.order]
        mass, error = (np.append(own, own.sum(axis=1)[:, None], axis=1) for own in (mass, error))
        violation = np.abs(error) / np.sqrt(np.where(mass > 0, mass, 1) * self.total)
        most = float(violation.max())
        group, cell = np.argwhere(violation >= most * (1 - _TIE))[0]
        return most, int(self.order[group]), int(cell)

    def patch(self, group: int, cell: int) -> _Patch:
        """Move a cell by its best shift."""
        rows = np.flatnonzero(_rows(self.members[:, group], self.cell, cell, self.bins))
        shift = _best_shift(self.p[rows], self.y[rows], self.w[rows])
        before = self.cell[rows]
        self.p[rows] = _moved(self.p[rows], shift)
        self.cell[rows] = equal_width_cell(self.p[rows], self.bins, np, self.precision)
        touched = np.zeros(self.bins, bool)
        touched[before] = touched[self.cell[rows]] = True
        found = self._sums_of(np.flatnonzero(touched[self.cell]))
        self.sums[..., touched] = found[..., touched]
        return _Patch(group, cell, shift)

    def _sums_of(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return weights and errors (2, groups, bins) of some of the rows."""
        w, cell = self.w[rows], self.cell[rows]
        values = w, w * (self.y[rows] - self.p[rows])
        groups = [np.flatnonzero(own) for own in self.members[rows].T]
        return np.array(
            [[np.bincount(cell[g], value[g], self.bins) for g in groups] for value in values]
        )


def _rows(member: np.ndarray, cell: np.ndarray, wanted: int, bins: int) -> np.ndarray:
    """Return which members of a group are in a cell, of which the last is all bins."""
    return member if wanted == bins else member & (cell == wanted)


def _moved(p: np.ndarray, shift: float) -> np.ndarray:
    """Return probabilities whose log odds are shifted."""
    return _probability(_log_odds(p), shift)


def _log_odds(p: np.ndarray) -> np.ndarray:
    p = np.clip(p, _LEAST, 1 - _LEAST)
    return np.log(p) - np.log1p(-p)


def _probability(log_odds: np.ndarray, shift: float) -> np.ndarray:
    return np.clip(sigmoid(log_odds + shift), _LEAST, 1 - _LEAST)


def _best_shift(p: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    """Return the shift that equals the sum of the errors that it leaves."""
    log_odds = _log_odds(p)

    def left(shift: float) -> float:
        return float(w @ (y - _probability(log_odds, shift))) - shift

    # Errors fall with the shift, so that it is no greater than those before.
    bound = left(0.0)
    root: Any = brentq(left, min(bound, 0), max(bound, 0), xtol=1e-10, maxiter=1000)
    return float(root)


def _count(probs: ArrayLike) -> int:
    """Return the number of rows of probabilities of two classes."""
    shape = np.shape(probs)
    if len(shape) not in (1, 2) or shape[1:] not in ((), (2,)):
        raise ValueError(
            f"probs must have shape (n,) or (n, 2), got {shape}; of more classes calibrate each "
            "against the others"
        )
    return shape[0]


def _with_all(members: np.ndarray) -> np.ndarray:
    """Return groups with that of all rows behind them."""
    return np.concatenate([members, np.ones((len(members), 1), bool)], axis=1)


def _noise(n: float, cells: int) -> float:
    """Return what violations of right probabilities of n rows in so many cells rarely exceed."""
    return math.sqrt(math.log(2 * cells) / (2 * n))
