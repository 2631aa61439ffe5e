"""Decision calibration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from bayescal._core.arrays import matmul
from bayescal._core.checks import check_count
from bayescal._core.folds import content_folds, probability_keys
from bayescal._core.optimise import Status
from bayescal.calibrators._base import Calibrator, State
from bayescal.calibrators._neighbors import check_crop, crop_floor
from bayescal.calibrators._partition import (
    membership,
    nearest_probabilities,
    worst_partition,
)
from bayescal.calibrators._ranking import canonical_order

__all__ = ["Decision"]

#: The most steps among which cross-validation chooses, after how many without success it ends, and
#: its folds.
_MOST, _PATIENCE, _FOLDS = 20, 5, 5


@dataclass(eq=False, repr=False)
class Decision(Calibrator):
    r"""Decision calibration: predictions right on average wherever decisions are the same.

    The best of d decisions, by expected cost, divides the simplex by planes. Each step looks for
    the partition b into d parts in which predictions f are most wrong on average, and corrects
    each part by its mean error:

    .. math:: \max_b \sum_{i=1}^d \lVert \bar E[(y - f) b_i(f)] \rVert, \qquad
        f \leftarrow f + \sum_i b_i(f)\, \bar E[(y - f) b_i(f)] / \bar E[b_i(f)]

    where :math:`b(f) = \operatorname{softmax}(V f + c)` is soft, so that it can be climbed by
    gradients. At the end the nearest point of the simplex is taken, with probabilities of at
    least ``crop``.

    Parameters
    ----------
    decisions : int, default 2
        d; it is calibrated for all costs of as many decisions, and for fewer.
    steps : int or "cv", default 10
        Greatest number of steps. "cv" chooses it by the Brier score of 5 stratified folds, from
        0 to 20; it looks no further once 5 steps have not lowered it.
    tolerance : float, default 0
        Stops where the violation, the sum above, is at most this. Of n rows it is about
        :math:`\sqrt{d \cdot \mathrm{Brier} / n}` or more by chance. With 0 all steps are made.
    crop : float, optional
        Least probability, by default 0.01 / k**2.
    random_state : int, RandomState or None
        Of the starts of the searches.

    Attributes
    ----------
    violations_ : array of shape (steps,)
    briers_ : array of shape (steps + 1,)
        Brier score on the data, before and after each step.

    Notes
    -----
    No step raises the Brier score on the data of the fit: it falls by
    :math:`\sum_i \bar E[b_i] \lVert a_i \rVert^2` or more, a the corrections. The log loss may
    rise. A temperature first does what one number can; the published results are of both.

    Starts are drawn for the classes in the order of weighted means of their scores and labels:
    permuting the columns changes nothing, unless these are the same for two classes.

    The state is ``directions`` (t, d, k), ``offsets`` (t, d), ``adjustments`` (t, d, k), ``crop``;
    ``violations`` (t,), ``briers`` (t + 1,) before and after each step, of which the last is
    ``objective``; after cross-validation ``cv_briers``. ``status`` is LIMIT where a positive
    tolerance was not reached. O(n k d) for each of t x 100 x 8 gradients (8 random starts);
    memory O(n k). Predictions take O(t k d).

    References
    ----------
    S. Zhao et al. (2021), Calibrating predictions to decisions. K. Valk (2022), Calibration of
    multi-class probabilistic classifiers, University of Tartu, algorithm 1.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> decision = bc.Decision(steps=2, random_state=0).fit(p, y)
    >>> bool(decision.briers_[-1] <= decision.briers_[0])
    True
    """

    decisions: int = 2
    steps: int | Literal["cv"] = 10
    tolerance: float = 0.0
    crop: float | None = None
    random_state: int | np.random.RandomState | None = field(default=None, kw_only=True)

    violations_: np.ndarray = field(init=False)
    briers_: np.ndarray = field(init=False)

    _domain = "probabilities"

    def _check_options(self) -> None:
        check_count(self.decisions, "decisions")
        if self.steps != "cv":
            check_count(self.steps, "steps")
        if not 0 <= self.tolerance < np.inf:
            raise ValueError(f"tolerance must be finite and not negative, got {self.tolerance!r}")
        check_crop(self.crop)

    def _fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        k = scores.shape[1]
        order = canonical_order(scores, y, weights)
        place = np.argsort(order)
        rows, y = scores[:, order], place[y]
        crop = min(crop_floor(self.crop, k), 1 / k)
        state: State = {"crop": np.asarray(crop)}
        if self.steps == "cv":
            state["cv_briers"] = self._cross_validate(rows, y, weights, seed, crop)
            steps = int(np.argmin(state["cv_briers"]))
        else:
            steps = self.steps
        path = _Walk(self.decisions, rows, y, weights, seed)
        for _ in range(steps):
            if not path.advance(self.tolerance):
                break
        count, d = len(path.offsets), self.decisions
        reached = self.tolerance == 0 or self.steps == "cv" or count < steps
        return {
            **state,
            "directions": np.array(path.directions).reshape(count, d, k)[..., place],
            "offsets": np.array(path.offsets).reshape(count, d),
            "adjustments": np.array(path.adjustments).reshape(count, d, k)[..., place],
            "violations": np.array(path.violations),
            "briers": np.array(path.briers),
            "objective": np.asarray(path.briers[-1]),
            "n_iter": np.asarray(count),
            "status": np.asarray(int(Status.CONVERGED if reached else Status.LIMIT)),
        }

    def _apply(self, state: State, scores: Any) -> Any:
        parts = [state[name] for name in ("directions", "offsets", "adjustments")]
        moved = scores
        for i in range(parts[0].shape[0]):
            directions, offsets, adjustments = (part[i, ...] for part in parts)
            moved = moved + matmul(membership(directions, offsets, moved), adjustments)
        return nearest_probabilities(moved, state["crop"])

    def _cross_validate(
        self, rows: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int, crop: float
    ) -> np.ndarray:
        """Return the mean Brier score of held-out rows after each number of steps from 0."""
        folds = content_folds(probability_keys(rows, y), y, _FOLDS)
        if folds.max() == 0:
            return np.zeros(1)
        held = [folds == fold for fold in range(folds.max() + 1)]
        walks = [_Walk(self.decisions, rows[~out], y[~out], weights[~out], seed) for out in held]
        moved = rows.copy()
        briers: list[float] = []
        while True:
            near = nearest_probabilities(moved, crop)
            briers.append(float(weights @ _squares(near, y) / weights.sum()))
            if len(briers) > _MOST or len(briers) - int(np.argmin(briers)) > _PATIENCE:
                return np.array(briers)
            for walk, out in zip(walks, held, strict=True):
                if walk.advance(self.tolerance):
                    member = membership(walk.directions[-1], walk.offsets[-1], moved[out])
                    moved[out] += member @ walk.adjustments[-1]


class _Walk:
    """Steps on the rows of a fit, one after the other."""

    def __init__(
        self, decisions: int, rows: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._decisions, self._y = decisions, y
        self._moved, self._shares = rows.copy(), weights / weights.sum()
        self.directions: list[np.ndarray] = []
        self.offsets: list[np.ndarray] = []
        self.adjustments: list[np.ndarray] = []
        self.violations: list[float] = []
        self.briers = [float(self._shares @ _squares(rows, y))]
        self._ended = False

    def advance(self, tolerance: float) -> bool:
        """Make a step and return true, unless the violation is within the tolerance or was once."""
        if self._ended:
            return False
        errors = -self._moved
        errors[np.arange(len(errors)), self._y] += 1
        errors *= self._shares[:, None]
        found = worst_partition(self._moved, errors, self._decisions, self._rng)
        self._ended = found.violation <= tolerance
        if self._ended:
            return False
        member = membership(found.directions, found.offsets, self._moved)
        size = self._shares @ member
        self.directions.append(found.directions)
        self.offsets.append(found.offsets)
        self.adjustments.append(member.T @ errors / np.where(size > 0, size, 1.0)[:, None])
        self.violations.append(found.violation)
        self._moved += member @ self.adjustments[-1]
        self.briers.append(float(self._shares @ _squares(self._moved, self._y)))
        return True


def _squares(rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the Brier score of each row."""
    return np.sum(rows**2, axis=1) - 2 * rows[np.arange(len(y)), y] + 1
