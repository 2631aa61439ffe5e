"""Decision calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from bayescal._core.arrays import matmul
from bayescal._core.optimise import Status
from bayescal.calibrators.base.calibrator import Calibrator, State
from bayescal.calibrators.multiclass.decision.partition import (
    Partition,
    membership,
    nearest_probabilities,
    violation_of,
    worst_partition,
)
from bayescal.calibrators.neighborhood.base import check_crop, crop_floor
from bayescal.data.checks import check_choice, check_count
from bayescal.data.folds.deal import fold_scores
from bayescal.data.given import BLOCKS, MEMORY
from bayescal.data.order.ranking import order_of_classes
from bayescal.data.rows import Rows, Source, Sums

__all__ = ["Decision"]

#: The most steps among which cross-validation chooses, after how many without success it ends, and
#: its folds.
_MOST, _PATIENCE, _FOLDS = 20, 5, 5

#: Directions and offsets of a partition, and by what its parts are moved.
_Step: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(eq=False, repr=False)
class Decision(Calibrator):
    r"""Decision calibration: predictions right on average wherever decisions are the same.

    The best of d decisions, by expected cost, divides the simplex by planes. Each step looks for
    the partition b into d parts in which predictions f are most wrong on average, and corrects
    each part by its mean error:

    .. math:: \max_b \sum_{i=1}^d \lVert \bar E[(y - f) b_i(f)] \rVert, \qquad
        f \leftarrow f + \sum_i b_i(f)\, \bar E[(y - f) b_i(f)] / \bar E[b_i(f)]

    where :math:`b(f) = \operatorname{softmax}(V f + c)` is soft, so that it can be climbed by
    gradients, or all of it is in the greatest part. At the end the nearest point of the simplex is
    taken, with probabilities of at least ``crop``.

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
    partition : {"soft", "hard"}
        Borders of parts. Those of decisions are hard, and the worst hard partition is some percent
        worse than the worst soft one: "hard" looks for it from three soft ones, by exact searches
        along lines. Softly corrected probabilities stay continuous. With three classes and a known
        smooth truth they had the lower log loss (.8271 against .8316 after ten steps) and no
        greater hard violation on other rows; with a network's ten classes both were alike. "hard"
        takes two to six times as long.
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
    memory O(n k). Hard partitions take another O(n (k d + log n)) for each of t x 24 k lines or
    more, times d for d > 2. Predictions take O(t k d); those of a row on a hard border may
    differ between libraries and precisions.

    Of rows that come in blocks partitions are looked for among 262,144, drawn evenly (fewer of more
    than 16 classes), with a pass for each step and three more; corrections, violations and Brier
    scores are of all rows. The result is that of rows in memory as long as the former are all.
    ``steps="cv"`` needs all rows at once.

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
    >>> decision.briers_[[0, -1]].round(2).tolist()
    [0.42, 0.38]
    """

    decisions: int = 2
    steps: int | Literal["cv"] = 10
    tolerance: float = 0.0
    crop: float | None = None
    partition: Literal["soft", "hard"] = "soft"
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
        check_choice(self.partition, "partition", ("soft", "hard"))

    @property
    def sources(self) -> frozenset[str]:
        """Where the rows of a fit may be: steps are cross-validated in memory."""
        return MEMORY if self.steps == "cv" else BLOCKS

    def _fit(self, rows: Source, seed: int) -> State:
        order = order_of_classes(rows)
        rows, state = rows.mapped(partial(_in_order, order), rows.largest), dict[str, np.ndarray]()
        if self.steps == "cv":
            state["cv_briers"] = self._cross_validate(rows.all(), seed)
        return {**state, **self._walk(rows, rows.sample, order, state, seed)}

    @property
    def _hard(self) -> bool:
        return self.partition == "hard"

    def _walk(
        self, rows: Source, sample: Rows, order: np.ndarray, chosen: State, seed: int
    ) -> State:
        """Return what is learned in steps on rows whose classes are in a canonical order."""
        steps = int(np.argmin(chosen["cv_briers"])) if chosen else self.steps
        path = _Walk(self.decisions, self._hard, rows, sample, seed)
        for _ in range(int(steps)):
            if not path.advance(self.tolerance):
                break
        briers = path.end()
        count, d, k = len(path.steps), self.decisions, len(order)
        reached = self.tolerance == 0 or self.steps == "cv" or count < int(steps)
        parts = zip(*path.steps, strict=True) if count else [(), (), ()]
        directions, offsets, adjustments = (np.array(own) for own in parts)
        place = np.argsort(order)
        return {
            "crop": np.asarray(self._least(k)),
            "directions": directions.reshape(count, d, k)[..., place],
            "offsets": offsets.reshape(count, d),
            "adjustments": adjustments.reshape(count, d, k)[..., place],
            "violations": np.array(path.violations),
            "briers": briers,
            "objective": np.asarray(briers[-1]),
            "n_iter": np.asarray(count),
            "status": np.asarray(int(Status.CONVERGED if reached else Status.LIMIT)),
        }

    def _least(self, k: int) -> float:
        return min(crop_floor(self.crop, k), 1 / k)

    def _apply(self, state: State, scores: Any) -> Any:
        directions, offsets, adjustments = (
            state[name] for name in ("directions", "offsets", "adjustments")
        )
        each = range(offsets.shape[0])
        steps = [(directions[i, ...], offsets[i, ...], adjustments[i, ...]) for i in each]
        moved = _moved(steps, scores, self._hard)
        return nearest_probabilities(moved, state["crop"])

    def _cross_validate(self, rows: Rows, seed: int) -> np.ndarray:
        """Return the mean Brier score of held-out rows after each number of steps from 0."""
        folds = fold_scores(*rows, _FOLDS, probabilities=True)
        if folds.count == 1:
            return np.zeros(1)
        entries = Rows(*folds.take(*rows[:2]))
        scores, y, weights = entries
        held = [folds.fold == fold for fold in range(folds.count)]
        kept = [entries.take(~out) for out in held]
        walks = [_Walk(self.decisions, self._hard, own, own, seed) for own in kept]
        moved, crop = scores.copy(), self._least(scores.shape[1])
        briers: list[float] = []
        while True:
            near = nearest_probabilities(moved, crop)
            briers.append(float(weights @ _squares(near, y) / weights.sum()))
            if len(briers) > _MOST or len(briers) - int(np.argmin(briers)) > _PATIENCE:
                return np.array(briers)
            for walk, out in zip(walks, held, strict=True):
                if walk.advance(self.tolerance):
                    moved[out] = _moved(walk.steps[-1:], moved[out], self._hard)


class _Walk:
    """Steps on the rows of a fit, one after the other, in directions found on some of them."""

    def __init__(self, decisions: int, hard: bool, rows: Source, sample: Rows, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._decisions, self._hard, self._rows = decisions, hard, rows
        self._total = rows.weight
        self._moved, self._y = sample.scores, sample.y
        self._shares = sample.weights / sample.weights.sum()
        self.steps: list[_Step] = []
        self.violations: list[float] = []
        self._briers: list[float] = []
        self._ended = False

    def advance(self, tolerance: float) -> bool:
        """Make a step and return true, unless the violation is within the tolerance or was once."""
        if self._ended:
            return False
        errors = _errors(self._moved, self._y, self._shares)
        found = worst_partition(self._moved, errors, self._decisions, self._rng, self._hard)
        sums = self._look(found)
        violated = violation_of(sums["errors"])
        self._ended = violated <= tolerance
        if self._ended:
            return False
        size = sums["size"]
        adjustments = sums["errors"] / np.where(size > 0, size, 1.0)[:, None]
        self.steps.append((found.directions, found.offsets, adjustments))
        self.violations.append(violated)
        self._moved = _moved(self.steps[-1:], self._moved, self._hard)
        return True

    def end(self) -> np.ndarray:
        """Return the Brier scores before and after each step."""
        if len(self._briers) == len(self.steps):
            self._look(None)
        return np.array(self._briers)

    def _look(self, found: Partition | None) -> Sums:
        """Return sums over all rows as they are, where a partition divides them."""
        sums = self._rows.total(partial(_sums, self.steps, found, self._total, self._hard))
        self._briers.append(float(sums["brier"]))
        return sums


def _in_order(order: np.ndarray, rows: Rows) -> Rows:
    """Return rows with classes in an order."""
    return rows._replace(scores=rows.scores[:, order], y=np.argsort(order)[rows.y])


def _moved(steps: Sequence[_Step], rows: Any, hard: bool) -> Any:
    """Return rows (n, k) of any library after some steps."""
    for directions, offsets, adjustments in steps:
        rows = rows + matmul(membership(directions, offsets, rows, hard), adjustments)
    return rows


def _errors(rows: np.ndarray, y: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return labels minus predictions (n, k), times each row's share of all weight."""
    errors = -rows
    errors[np.arange(len(errors)), y] += 1
    errors *= shares[:, None]
    return errors


def _sums(
    steps: Sequence[_Step],
    found: Partition | None,
    total: float,
    hard: bool,
    scores: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
) -> Sums:
    """Return the Brier score after some steps, and sizes (d,) and mean errors (d, k) of parts."""
    moved, shares = _moved(steps, scores, hard), weights / total
    sums = {"brier": shares @ _squares(moved, y)}
    if found is not None:
        member = membership(found.directions, found.offsets, moved, hard)
        errors = member.T @ _errors(moved, y, shares)
        sums |= {"size": shares @ member, "errors": errors}
    return sums


def _squares(rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the Brier score of each row."""
    return np.sum(rows**2, axis=1) - 2 * rows[np.arange(len(y)), y] + 1
