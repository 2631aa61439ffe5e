"""What averages over a neighborhood share: distinct rows, cropping, cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from bayescal._core.arrays import namespace, wide
from bayescal._core.numerics import FLOOR
from bayescal.calibrators.base.calibrator import Calibrator, State
from bayescal.data.checks import check_choice, check_level
from bayescal.data.folds.deal import fold_scores
from bayescal.data.order.equal_rows import distinct_rows
from bayescal.data.rows import Rows

Assumption = Literal["errors", "labels"]

_FOLDS = 10
#: Losses that differ by less, relative to them, are equal.
_ROUNDING = 1e-12


class Points(NamedTuple):
    """Distinct rows of probabilities (m, k), in an order that does not depend on theirs."""

    probabilities: Any
    #: Share of each class in the weight of the rows (m, k).
    observed: Any
    #: Sum of the weights of the rows (m,).
    weights: Any

    def values(self, assumption: Assumption) -> Any:
        """Return what is averaged over neighbors (m, k): errors p - y, or labels y."""
        if assumption == "labels":
            return self.observed
        return self.probabilities - self.observed

    def state(self) -> State:
        """Return them as entries of a state; in this order they make points again."""
        return dict(zip(("points", "observed", "point_weights"), self, strict=True))


def merge(scores: Any, y: np.ndarray, weights: np.ndarray) -> Points:
    """Merge equal rows, so that a whole weight is the same as repetition, and so is a tie."""
    k = scores.shape[1]
    first, place = distinct_rows(scores)
    total = np.bincount(place, weights)
    observed = np.bincount(place * k + y, weights, len(first) * k).reshape(-1, k)
    return Points(scores[first], observed / total[:, None], total)


def floored_log(probabilities: Any) -> Any:
    """Return the logarithm of probabilities, of zero that of the floor.

    A zero stands for a probability too small for the network's float32, not for certainty; it is as
    far from what is likely as it can be, and p ln p stays finite.
    """
    xp = namespace(probabilities)
    return xp.log(xp.maximum(probabilities, FLOOR))


def crop_floor(crop: float | None, classes: int) -> float:
    """Return the least value before normalization: by default 0.01 / classes**2.

    This is the power law through the values for 10 and 100 classes, 1e-4 and 1e-6.
    """
    return 0.01 / classes**2 if crop is None else float(crop)


def check_crop(crop: float | None) -> None:
    """Raise unless ``crop`` is None or lies strictly between 0 and 1/2."""
    if crop is not None and check_level(crop, "crop") >= 0.5:
        raise ValueError(f"crop must be less than 0.5, got {crop}")


class NeighborhoodCalibrator(Calibrator):
    """A calibrator by averages over rows nearby; how far is an option, or cross-validated."""

    assumption: Assumption
    crop: float | None

    _domain = "probabilities"

    def _check_options(self) -> None:
        check_choice(self.assumption, "assumption", ("errors", "labels"))
        check_crop(self.crop)

    def _calibrated(self, scores: Any, averages: Any, crop: Any) -> Any:
        """Return probabilities from averages over neighbors (..., m, k), cropped and normalized."""
        moved = averages if self.assumption == "labels" else scores - averages
        xp = namespace(moved)
        inside = xp.clip(wide(moved), crop, 1 - crop)
        return inside / xp.sum(inside, axis=-1, keepdims=True)

    def _losses(self, averages: Any, scores: Any, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the weighted sum of log losses (candidates,) of averages (candidates, m, k)."""
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
        """Return the option of that name, or the widest of the best candidates; and the crop.

        ``held_out`` computes the sums of log losses (candidates,) of rows, each without its fold
        (m,), of at most ten.
        """
        given, (scores, y, weights) = getattr(self, name), rows
        state: State = {"crop": np.asarray(crop_floor(self.crop, scores.shape[1]))}
        if given != "cv":
            return state | {name: np.asarray(given, candidates.dtype)}
        folds = fold_scores(*rows, _FOLDS, probabilities=True)
        if folds.count > 1:
            losses = held_out(Rows(*folds.take(scores, y)), folds.fold) / weights.sum()
        else:
            # A single row leaves none to learn from: its probabilities are as given.
            alone = scores if self.assumption == "labels" else np.zeros(scores.shape)
            losses = np.repeat(self._losses(alone[None], *rows) / weights.sum(), len(candidates))
        best = candidates[losses <= losses.min() * (1 + _ROUNDING)]
        chosen = np.asarray(widest(best))
        return state | {name: chosen, "candidates": candidates, "cv_losses": losses}
