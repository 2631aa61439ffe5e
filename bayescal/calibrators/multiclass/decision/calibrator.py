"""Decision calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from bayescal._core.arrays import AnyArray, matmul
from bayescal._core.minimization.optimize import Status
from bayescal._core.shapes import Float, Int
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
from bayescal.data.order.classes import order_of_classes
from bayescal.data.rows import Rows, Source, Sums

#: Maximal number of steps in cross-validation, number of steps without improvement after which it
#: stops, and number of folds.
_MAX_STEPS, _PATIENCE, _FOLDS = 20, 5, 5

#: Directions and offsets of a partition, and adjustments of its parts.
_Step: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(eq=False, repr=False)
class Decision(Calibrator):
    r"""Decision calibration: predictions that are unbiased for each action of a decision rule.

    Choosing the best of d decisions by expected cost divides the simplex by planes. Each step
    searches for the partition b into d parts with the largest mean errors of the predictions f, and
    corrects each part by its mean error:

    .. math:: \max_b \sum_{i=1}^d \lVert \bar E[(y - f) b_i(f)] \rVert, \qquad
        f \leftarrow f + \sum_i b_i(f)\, \bar E[(y - f) b_i(f)] / \bar E[b_i(f)]

    where :math:`b(f) = \operatorname{softmax}(V f + c)` is soft, so that gradients exist, or hard:
    one for the largest part. Finally, predictions are projected onto the simplex, with
    probabilities of at least ``crop``.

    Parameters
    ----------
    decisions : int, default 2
        d; predictions are calibrated for all costs of at most this many decisions.
    steps : int or "cv", default 10
        Maximal number of steps. "cv" chooses it from 0 to 20 by the Brier score of 5 stratified
        folds, and stops after 5 steps without improvement.
    tolerance : float, default 0
        The fit stops if the violation, the sum above, is at most this. With n rows, the violation
        is about :math:`\sqrt{d \cdot \mathrm{Brier} / n}` or more by chance. With 0, all steps are
        made.
    crop : float, optional
        Smallest probability, by default 0.01 / k**2.
    partition : {"soft", "hard"}
        Borders of the parts. Decisions have hard borders, and the worst hard partition is a few
        percent worse than the worst soft one. "hard" searches for it from three soft partitions, by
        exact searches along lines, and takes two to six times as long. Soft corrections give
        continuous probabilities, and had a smaller log loss on simulated data.
    random_state : int, RandomState or None
        Seed of the starts of the searches.

    Attributes
    ----------
    violations_ : array of shape (steps,)
        Violation at each step.
    briers_ : array of shape (steps + 1,)
        Brier score on the data of the fit, before and after each step.

    Notes
    -----
    No step raises the Brier score on the data of the fit; the log loss may increase. The published
    results first apply a temperature.

    Starts are drawn for the classes in the order of weighted means of their scores and labels:
    permuting the columns changes nothing unless these are equal for two classes.

    The state is ``directions`` (t, d, k), ``offsets`` (t, d), ``adjustments`` (t, d, k), ``crop``;
    ``violations`` (t,); ``briers`` (t + 1,), the last of which is ``objective``; and ``cv_briers``
    after cross-validation. ``status`` is LIMIT if a positive tolerance was not reached. O(n k d)
    for each of t x 100 x 8 gradients (8 random starts); memory O(n k). Hard partitions take another
    O(n (k d + log n)) for each of t x 24 k lines or more, times d for d > 2. Predictions take O(t k
    d); those of rows on a hard border may differ between libraries and precisions.

    For rows in blocks, partitions are searched on 262,144 evenly drawn rows (fewer for more than 16
    classes), with a pass for each step and three more; all else uses all rows. ``steps="cv"`` needs
    all rows at once.

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
        """Kinds of sources that ``fit`` accepts; cross-validation needs rows in memory."""
        return MEMORY if self.steps == "cv" else BLOCKS

    def _fit(self, rows: Source, seed: int) -> State:
        order = order_of_classes(rows)
        rows, state = rows.mapped(partial(_in_order, order), rows.largest), dict[str, np.ndarray]()
        steps = self.steps
        if steps == "cv":
            state["cv_briers"] = self._cross_validate(rows.all(), seed)
            steps = int(np.argmin(state["cv_briers"]))
        path = _BoostingSteps(self.decisions, self._hard, rows, rows.sample, seed)
        for _ in range(steps):
            if not path.advance(self.tolerance):
                break
        briers = path.end()
        count, d, k = len(path.steps), self.decisions, len(order)
        reached = self.tolerance == 0 or self.steps == "cv" or count < steps
        parts = zip(*path.steps, strict=True) if count else [(), (), ()]
        directions, offsets, adjustments = (np.array(part) for part in parts)
        column = np.argsort(order)
        return {
            **state,
            "crop": np.asarray(self._least(k)),
            "directions": directions.reshape(count, d, k)[..., column],
            "offsets": offsets.reshape(count, d),
            "adjustments": adjustments.reshape(count, d, k)[..., column],
            "violations": np.array(path.violations),
            "briers": briers,
            "objective": np.asarray(briers[-1]),
            "n_iter": np.asarray(count),
            "status": np.asarray(int(Status.CONVERGED if reached else Status.LIMIT)),
        }

    @property
    def _hard(self) -> bool:
        return self.partition == "hard"

    def _least(self, k: int) -> float:
        return min(crop_floor(self.crop, k), 1 / k)

    def _apply(self, state: State, scores: object) -> AnyArray:
        directions, offsets, adjustments = (
            state[name] for name in ("directions", "offsets", "adjustments")
        )
        indices = range(offsets.shape[0])
        steps = [(directions[i, ...], offsets[i, ...], adjustments[i, ...]) for i in indices]
        moved = _moved(steps, scores, self._hard)
        return nearest_probabilities(moved, state["crop"])

    def _cross_validate(self, rows: Rows, seed: int) -> np.ndarray:
        """Compute the mean Brier score of held-out rows after each number of steps from 0."""
        folds = fold_scores(*rows, _FOLDS, probabilities=True)
        if folds.count == 1:
            return np.zeros(1)
        entries = Rows(*folds.take(*rows[:2]))
        scores, y, weights = entries
        held = [folds.fold == fold for fold in range(folds.count)]
        training = [entries.take(~out) for out in held]
        paths = [_BoostingSteps(self.decisions, self._hard, fold, fold, seed) for fold in training]
        moved, crop = scores.copy(), self._least(scores.shape[1])
        briers: list[float] = []
        while True:
            recalibrated = nearest_probabilities(moved, crop)
            briers.append(float(weights @ _squares(recalibrated, y) / weights.sum()))
            if len(briers) > _MAX_STEPS or len(briers) - int(np.argmin(briers)) > _PATIENCE:
                return np.array(briers)
            for path, out in zip(paths, held, strict=True):
                if path.advance(self.tolerance):
                    moved[out] = _moved(path.steps[-1:], moved[out], self._hard)


class _BoostingSteps:
    """Successive steps on the rows of a fit, with partitions that are searched on a sample."""

    def __init__(self, decisions: int, hard: bool, rows: Source, sample: Rows, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._decisions, self._hard, self._rows = decisions, hard, rows
        self._total = rows.weight
        self._moved, self._y = sample.scores, sample.y
        self._sample_weights = sample.weights / sample.weights.sum()
        self.steps: list[_Step] = []
        self.violations: list[float] = []
        self._briers: list[float] = []
        self._ended = False

    def advance(self, tolerance: float) -> bool:
        """Make a step; return False if the violation has been within the tolerance."""
        if self._ended:
            return False
        errors = _errors(self._moved, self._y, self._sample_weights)
        partition = worst_partition(self._moved, errors, self._decisions, self._rng, self._hard)
        sums = self._sum_rows(partition)
        violated = violation_of(sums["errors"])
        self._ended = violated <= tolerance
        if self._ended:
            return False
        size = sums["size"]
        adjustments = sums["errors"] / np.where(size > 0, size, 1.0)[:, None]
        self.steps.append((partition.directions, partition.offsets, adjustments))
        self.violations.append(violated)
        self._moved = _moved(self.steps[-1:], self._moved, self._hard)
        return True

    def end(self) -> np.ndarray:
        """Compute the Brier scores before and after each step."""
        if len(self._briers) == len(self.steps):
            self._sum_rows(None)
        return np.array(self._briers)

    def _sum_rows(self, partition: Partition | None) -> Sums:
        """Sum errors and sizes of the parts of a partition over all rows."""
        sums = self._rows.total(partial(_sums, self.steps, partition, self._total, self._hard))
        self._briers.append(float(sums["brier"]))
        return sums


def _in_order(order: np.ndarray, rows: Rows) -> Rows:
    """Reorder the classes of rows."""
    return rows._replace(scores=rows.scores[:, order], y=np.argsort(order)[rows.y])


def _moved(steps: Sequence[_Step], rows: AnyArray, hard: bool) -> AnyArray:
    """Apply steps to rows (n, k) of any library."""
    for directions, offsets, adjustments in steps:
        rows = rows + matmul(membership(directions, offsets, rows, hard), adjustments)
    return rows


def _errors(
    rows: Float[np.ndarray, "rows classes"],
    y: Int[np.ndarray, " rows"],
    proportions: Float[np.ndarray, " rows"],
) -> Float[np.ndarray, "rows classes"]:
    """Compute labels minus predictions (n, k), multiplied by normalized weights of rows."""
    errors = -rows
    errors[np.arange(len(errors)), y] += 1
    errors *= proportions[:, None]
    return errors


def _sums(
    steps: Sequence[_Step], partition: Partition | None, total: float, hard: bool, rows: Rows
) -> Sums:
    """Compute the Brier score after steps, and sizes (d,) and mean errors (d, k) of parts."""
    moved, proportions = _moved(steps, rows.scores, hard), rows.weights / total
    sums = {"brier": proportions @ _squares(moved, rows.y)}
    if partition is not None:
        member = membership(partition.directions, partition.offsets, moved, hard)
        errors = member.T @ _errors(moved, rows.y, proportions)
        sums |= {"size": proportions @ member, "errors": errors}
    return sums


def _squares(
    rows: Float[np.ndarray, "rows classes"], y: Int[np.ndarray, " rows"]
) -> Float[np.ndarray, " rows"]:
    """Compute the Brier score of each row."""
    return np.sum(rows**2, axis=1) - 2 * rows[np.arange(len(y)), y] + 1
