"""What a fit of a stack asks of rows, wherever they are: sums of losses, by member and fold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.optimize import Search, run_together
from bayescal.calibrators.multiclass.members import Layout, Member
from bayescal.calibrators.stack.kernels import Losses, Scale
from bayescal.regression.softmax.objective import Sizes

#: Stands for no fold, and for a member that takes all features.
ALL = -1


class Job(NamedTuple):
    """The fit of a member to all rows, or to those of all folds but one.

    With ``only`` it is the sum over the rows of that fold alone.
    """

    member: int
    fold: int = ALL
    only: bool = False

    def takes(self, fold: int) -> bool:
        """Check whether the rows of a fold are among those of the job."""
        return self.fold == ALL or (fold == self.fold) == self.only


class Slot(NamedTuple):
    """A member's sizes, its range of features, and the positions of its parameters among all."""

    sizes: Sizes
    part: slice
    positions: np.ndarray


class Plan(NamedTuple):
    """What members have in common: a scale of all rows, features, and main directions."""

    members: Sequence[Member]
    scale: Scale
    layout: Layout
    basis: np.ndarray
    #: The part of the features that each member takes; the last one takes all.
    slots: Sequence[Slot]

    @classmethod
    def make(cls, members: Sequence[Member], scale: Scale, basis: np.ndarray) -> Plan:
        """Choose the features that the members take."""
        k, rank = basis.shape
        probability = any(member.probability is not None for member in members)
        logarithm = any(member.logarithm is not None for member in members)
        layout = Layout(k, probability, logarithm, rank)
        slots = [
            Slot(member.sizes(k, rank), layout.part(member), layout.places(member))
            for member in members
        ]
        slots.append(Slot(layout.sizes, slice(None), np.arange(layout.length)))
        return cls(members, scale, layout, basis, slots)

    def slot(self, member: int) -> Slot:
        """Look up the part of the features of a member, or, for ``ALL``, of all of them."""
        return self.slots[member]


class Designs(ABC):
    """Rows with their folds, as fits use them."""

    #: The number of folds; if it is one, nothing is left out.
    count: int
    #: Relative digits of a sum of losses that may be lost.
    rounding: float
    #: The sum of weights.
    total: float
    #: Whether the scale is that of all rows for every fold.
    one_scale: bool

    @abstractmethod
    def losses(self, points: Mapping[Job, np.ndarray]) -> Mapping[Job, Losses]:
        """Compute the sum of losses, and its gradient, of each job at its parameters."""

    def run(self, searches: Mapping[Job, Search]) -> dict[Job, Any]:
        """Run searches to their ends."""
        return run_together(searches, self.losses)

    def without_folds(self, thetas: Sequence[np.ndarray], first: int = 0) -> Mapping[Job, Losses]:
        """Compute the losses of members, from the first on, of the rows of all folds but one."""
        points = {
            Job(first + i, fold): theta
            for i, theta in enumerate(thetas)
            for fold in range(self.count)
        }
        if not self.one_scale:
            return self.losses(points)
        only = self.losses({job._replace(only=True): theta for job, theta in points.items()})
        losses = {}
        for job in points:
            others = [only[Job(job.member, fold, True)] for fold in range(self.count)]
            del others[job.fold]
            values, gradients = zip(*others, strict=True)
            losses[job] = sum(values), np.sum(gradients, axis=0)
        return losses
