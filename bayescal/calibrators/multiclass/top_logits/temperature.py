"""Temperature scaling of truncated logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from bayescal._core.arrays import AnyArray, XArray
from bayescal._core.minimization.optimize import IntervalMinimum
from bayescal.calibrators.base.calibrator import Keeps, State
from bayescal.calibrators.multiclass.scale import CenteredLogits, fit_inverse, named_inverse
from bayescal.calibrators.multiclass.top_logits.calibrator import TopLogitsCalibrator
from bayescal.data.language_models.top_logits import (
    label_columns,
    offsets,
    top_probabilities,
    unpack,
)
from bayescal.data.rows import Rows, Source


@dataclass(eq=False, repr=False)
class TopTemperature(TopLogitsCalibrator):
    """The implementation of :class:`Temperature` for ``inputs="top_logits"``."""

    objective: str = "log_loss"

    temperature_: float = field(init=False)

    keeps: ClassVar[Keeps] = "argmax"
    _public_name = "Temperature"

    def _check_options(self) -> None:
        if self.objective != "log_loss":
            raise ValueError(
                f"objective must be 'log_loss' for inputs='top_logits', got {self.objective!r}"
            )

    def _fit_top(self, rows: Source, k: int) -> State:
        return named_inverse(fit_top_inverse(rows, k), rows.weight)

    def _apply_top(self, state: State, rows: AnyArray, k: int) -> XArray:
        return top_probabilities(unpack(rows, k), state["theta"][0])


def fit_top_inverse(rows: Source, k: int) -> IntervalMinimum:
    """Minimize the cross-entropy over s >= 0, of softmax(s x + log(k - m) [others])."""
    return fit_inverse(rows, partial(_columns, k), polish=True)


def _columns(k: int, rows: Rows, unit: float, single: bool) -> CenteredLogits:
    """Lay out packed rows with classes first; the last one stands for each other class."""
    top = unpack(rows.scores, k, unit)
    logits = np.ascontiguousarray(top.x.T)
    below = logits - logits.max(axis=0)
    label = below[label_columns(top, rows.y), np.arange(len(rows.y))]
    dtype = np.float32 if single else float
    return CenteredLogits(
        below.astype(dtype), label, rows.weights, offsets(top).astype(dtype)[:, None]
    )
