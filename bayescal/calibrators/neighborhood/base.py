"""Base class of averages over neighborhoods: distinct rows, clipping, cross-validation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import AnyArray, Array, XArray, namespace, on_host, wide
from bayescal._core.numerics import FLOOR
from bayescal.calibrators.base.calibrator import Calibrator, State
from bayescal.data.checks import check_choice, check_level
from bayescal.data.folds.deal import fold_scores
from bayescal.data.order.equal_rows import distinct_rows
from bayescal.data.rows import Rows

Assumption = Literal["errors", "labels"]
Averages: TypeAlias = Iterator[tuple[slice, np.ndarray]]

_FOLDS = 10
#: Relative difference below which losses are equal.
_ROUNDING = 1e-12


class DistinctRows(NamedTuple):
    """Distinct rows of probabilities (m, k), in an order that is independent of the input."""

    probabilities: AnyArray
    #: Proportions of the classes in the weight of equal rows (m, k).
    observed: AnyArray
    #: Sums of the weights of equal rows (m,).
    weights: AnyArray

    @classmethod
    def of_rows(cls, rows: Rows) -> DistinctRows:
        """Take all rows as distinct."""
        return cls(rows.scores, np.eye(rows.scores.shape[1])[rows.y], rows.weights)

    @classmethod
    def of_state(cls, state: State) -> DistinctRows:
        """Restore the rows from :meth:`state`."""
        return cls(state["points"], state["observed"], state["point_weights"])

    def values(self, assumption: Assumption) -> AnyArray:
        """Return the values (m, k) to average over neighbors: errors p - y, or labels y."""
        if assumption == "labels":
            return self.observed
        return self.probabilities - self.observed

    def state(self) -> State:
        """Return the arrays as entries of a state, in the order of the fields."""
        return dict(zip(("points", "observed", "point_weights"), self, strict=True))


def merge(scores: XArray, y: np.ndarray, weights: np.ndarray) -> DistinctRows:
    """Merge equal rows, so that integer weights and ties equal repeated rows."""
    k = scores.shape[1]
    first, index = distinct_rows(scores)
    total = np.bincount(index, weights)
    observed = np.bincount(index * k + y, weights, len(first) * k).reshape(-1, k)
    return DistinctRows(scores[first], observed / total[:, None], total)


def floored_log(probabilities: XArray) -> XArray:
    """Compute the logarithm of probabilities, raised to the smallest normal float32.

    A zero stands for a probability that is too small for float32; the floor keeps p ln p finite.
    """
    xp = namespace(probabilities)
    return xp.log(xp.maximum(probabilities, FLOOR))


def crop_floor(crop: float | None, classes: int) -> float:
    """Return the smallest probability before normalization: 0.01 / k**2 (1e-4 for 10 classes)."""
    return 0.01 / classes**2 if crop is None else float(crop)


def check_crop(crop: float | None) -> None:
    """Raise unless ``crop`` is None or strictly between 0 and 1/2."""
    if crop is not None and check_level(crop, "crop") >= 0.5:
        raise ValueError(f"crop must be less than 0.5, got {crop}")


class NeighborhoodCalibrator(Calibrator):
    r"""A calibrator that averages over nearby rows, with a fixed or cross-validated width.

    Parameters
    ----------
    assumption : {"errors", "labels"}
        Neighbors share either their calibration error, or the distribution of their labels. With
        "labels" the probability is the average of :math:`y_i`.
    crop : float, optional
        ε, by default 0.01 / k**2 for k classes: 1e-4 for 10 and 1e-6 for 100.
    """

    assumption: Assumption
    crop: float | None

    _domain = "probabilities"

    def _check_options(self) -> None:
        check_choice(self.assumption, "assumption", ("errors", "labels"))
        check_crop(self.crop)

    @abstractmethod
    def _averages(self, state: State, scores: np.ndarray) -> Averages:
        """Yield averages (b, k) over the neighbors of successive parts of rows on the host."""

    def _apply_in_blocks(self, state: State, scores: XArray) -> XArray:
        if not on_host(scores):
            return super()._apply_in_blocks(state, scores)
        probabilities = np.empty(scores.shape)
        for part, averages in self._averages(state, scores):
            probabilities[part] = self._calibrated(scores[part], averages, float(state["crop"]))
        return probabilities

    def _calibrated(self, scores: XArray, averages: XArray, crop: XArray | float) -> AnyArray:
        """Compute probabilities from averages (..., m, k) over neighbors; clip and normalize."""
        moved = averages if self.assumption == "labels" else scores - averages
        xp = namespace(moved)
        inside = xp.clip(wide(moved), crop, 1 - crop)
        return inside / xp.sum(inside, axis=-1, keepdims=True)

    def _losses(
        self, averages: Array, scores: XArray, y: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """Compute weighted sums of log losses (candidates,) of averages (candidates, m, k)."""
        rows, crop = np.arange(len(y)), crop_floor(self.crop, scores.shape[1])
        losses = [-np.log(self._calibrated(scores, a, crop)[rows, y]) for a in averages]
        return np.array(losses) @ weights

    def _choose(
        self,
        name: str,
        candidates: np.ndarray,
        rows: Rows,
        held_out: Callable[[Rows, np.ndarray], np.ndarray],
        widest: Callable[[np.ndarray], np.number] = np.max,
    ) -> State:
        """Choose the option ``name`` by cross-validation if it is "cv"; also return the crop.

        ``held_out`` computes sums of log losses (candidates,) of rows, predicted without their
        folds.
        """
        option, (scores, y, weights) = getattr(self, name), rows
        state: State = {"crop": np.asarray(crop_floor(self.crop, scores.shape[1]))}
        if option != "cv":
            return state | {name: np.asarray(option, candidates.dtype)}
        folds = fold_scores(*rows, _FOLDS, probabilities=True)
        if folds.count > 1:
            losses = held_out(Rows(*folds.take(scores, y)), folds.fold) / weights.sum()
        else:
            # Without other rows, probabilities are uncalibrated.
            uncalibrated = scores if self.assumption == "labels" else np.zeros(scores.shape)
            losses = np.repeat(
                self._losses(uncalibrated[None], *rows) / weights.sum(), len(candidates)
            )
        best = candidates[losses <= losses.min() * (1 + _ROUNDING)]
        chosen = np.asarray(widest(best))
        return state | {name: chosen, "candidates": candidates, "cv_losses": losses}
