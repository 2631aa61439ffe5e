"""Base class of calibrators that reduce multi-class problems to binary ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bayescal._core.arrays import XArray, namespace
from bayescal.calibrators.base.calibrator import Calibrator, State
from bayescal.calibrators.binary.logistic import Logistic
from bayescal.data.given import DEVICE


@dataclass(eq=False, repr=False)
class BinaryReduction(Calibrator):
    """A calibrator that fits a binary calibrator to several binary problems."""

    calibrator: Calibrator | None = None

    statuses_: np.ndarray = field(init=False)

    #: Whether the binary calibrator may have a posterior.
    _takes_posteriors: ClassVar[bool] = False
    _domain = "log_probabilities"

    @property
    def _binary(self) -> Calibrator:
        return Logistic() if self.calibrator is None else self.calibrator

    def _check_options(self) -> None:
        binary = self._binary
        if not (isinstance(binary, Calibrator) and (binary.binary or binary.domain == "logits")):
            raise TypeError(
                "calibrator must be a calibrator of binary scores, as Isotonic(), or of logits, as "
                f"Temperature(), got {binary!r}"
            )
        binary._check_inputs()
        binary._check_options()
        inference = getattr(binary, "inference", "map")
        if inference != "map" and not self._takes_posteriors:
            raise ValueError(
                f"calibrator must have inference='map' within {type(self).__name__}, "
                f"got {inference!r}"
            )

    @property
    def sources(self) -> frozenset[str]:
        """Kinds of sources that ``fit`` accepts."""
        return self._binary.sources & DEVICE

    def _precompute(self, state: State) -> State:
        common = {name: value for name, value in state.items() if "/" not in name}
        return common | {
            f"{part}/{name}": value
            for part, part_state in by_part(state).items()
            for name, value in self._binary._precompute(part_state).items()
        }

    def _binary_scores(self, first: XArray, second: XArray, log_prob: XArray) -> XArray:
        """Compute the scores (n,) or two logits (n, 2) that the binary calibrator takes.

        ``first`` and ``second`` are log probabilities (n,), and ``log_prob`` is the logarithm of
        the second probability divided by their sum.
        """
        if self._binary.domain in ("probability", "order"):
            return namespace(log_prob).exp(log_prob)
        if self._binary.domain == "logits":
            return namespace(first).stack([first, second], axis=1)
        return second - first


def by_part(state: State) -> dict[str, State]:
    """Split a state into the states of the binary calibrators by name."""
    states: dict[str, State] = {}
    for name, value in state.items():
        part, slash, entry = name.partition("/")
        if slash:
            states.setdefault(part, {})[entry] = value
    return states
