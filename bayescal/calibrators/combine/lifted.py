"""What calibrators share that lift one of two classes to more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bayescal._core.arrays import namespace
from bayescal.calibrators.base.calibrator import Calibrator, State
from bayescal.calibrators.binary.logistic import Logistic
from bayescal.data.given import DEVICE


@dataclass(eq=False, repr=False)
class Lifted(Calibrator):
    """Fits a calibrator of two classes many times, each to some rows and two probabilities."""

    calibrator: Calibrator | None = None

    statuses_: np.ndarray = field(init=False)

    _domain = "log_probabilities"

    @property
    def _one(self) -> Calibrator:
        return Logistic() if self.calibrator is None else self.calibrator

    def _check_options(self) -> None:
        one = self._one
        if not (isinstance(one, Calibrator) and (one.binary or one.domain == "logits")):
            raise TypeError(
                "calibrator must be a calibrator of binary scores, as Isotonic(), or of logits, as "
                f"Temperature(), got {one!r}"
            )
        inference = getattr(one, "inference", "map")
        if inference != "map":
            raise ValueError(
                f"calibrator must have inference='map' within {type(self).__name__}, "
                f"got {inference!r}"
            )
        one._check_options()

    @property
    def sources(self) -> frozenset[str]:
        """Where the rows of a fit may be."""
        return self._one.sources & DEVICE

    def _precompute(self, state: State) -> State:
        rest = {name: own for name, own in state.items() if "/" not in name}
        return rest | {
            f"{part}/{name}": value
            for part, own in by_part(state).items()
            for name, value in self._one._precompute(own).items()
        }

    def _scores(self, first: Any, second: Any, share: Any) -> Any:
        """Return what the calibrator works on (n,), or two logits (n, 2).

        Given are logarithms of two probabilities (n,), and that of the share of the second.
        """
        if self._one.domain in ("probability", "order"):
            return namespace(share).exp(share)
        if self._one.domain == "logits":
            return namespace(first).stack([first, second], axis=1)
        return second - first


def by_part(state: State) -> dict[str, State]:
    """Return the states of the calibrators by the names of their parts."""
    found: dict[str, State] = {}
    for name, value in state.items():
        part, slash, own = name.partition("/")
        if slash:
            found.setdefault(part, {})[own] = value
    return found
