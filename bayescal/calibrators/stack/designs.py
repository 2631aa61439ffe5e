"""Interface between the fits of a stack and its rows: sums of losses, by member and fold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bayescal._core.minimization.optimize import run_together
from bayescal._core.shapes import Int
from bayescal.calibrators.multiclass.basis import Basis
from bayescal.calibrators.multiclass.members import Layout, Member
from bayescal.calibrators.stack.kernels import Losses, Scale
from bayescal.calibrators.stack.search import Descent, Optimum
from bayescal.regression.softmax.objective import Sizes, split

#: Index for no fold, and for a member with all features.
ALL = -1


class Job(NamedTuple):
    """The fit of a member to all rows, or to all rows outside one fold.

    With ``only``, sums are over the rows of that fold alone.
    """

    member: int
    fold: int = ALL
    only: bool = False

    def takes(self, fold: int) -> bool:
        """Return whether the job includes the rows of a fold."""
        return self.fold == ALL or (fold == self.fold) == self.only


class Slot(NamedTuple):
    """A member's sizes, its range of features, and the positions of its parameters in a layout."""

    sizes: Sizes
    part: slice
    positions: Int[np.ndarray, " parameters"]
    layout: Layout


class Plan(NamedTuple):
    """The common inputs of members: the scale of all rows, features, and main directions."""

    members: Sequence[Member]
    scale: Scale
    #: Features of all members, and of members without a kernel, which come first.
    layout: Layout
    plain: Layout
    basis: Basis
    #: The features of each member; the last entry, ``ALL``, has all except the kernel's.
    slots: Sequence[Slot]

    @classmethod
    def make(cls, members: Sequence[Member], scale: Scale, basis: Basis) -> Plan:
        """Choose the features that the members take."""
        layout = Layout.of(members, basis.dimensions)
        plain = layout._replace(kernel=0)
        slots = []
        for member in members:
            used = plain if member.kernel is None else layout
            sizes = member.sizes(layout.dimensions)
            slots.append(Slot(sizes, used.part(member), used.columns(member), used))
        slots.append(Slot(plain.sizes, slice(plain.last), np.arange(plain.length), plain))
        return cls(members, scale, layout, plain, basis, slots)

    def extend(self, member: int, fits: Mapping[Job, tuple[np.ndarray, object]]) -> np.ndarray:
        """Initialize a member with a kernel from the member that only lacks the kernel.

        They are zero if there is none.
        """
        slot, plain = self.slots[member], self.members[member]._replace(kernel=None)
        theta = np.zeros(len(slot.positions))
        if plain not in self.members:
            return theta
        other = self.members.index(plain)
        given = split(fits[Job(other)][0], self.slots[other].sizes)
        into = split(theta, slot.sizes)
        into.matrix[:, : given.matrix.shape[1]] = given.matrix
        into.diagonal[:], into.shared[:] = given.diagonal, given.shared
        return theta


class StackDesigns(ABC):
    """Rows and their folds, as used by fits."""

    #: The number of folds; with one fold, no rows are held out.
    count: int
    #: Relative rounding error of a sum of losses.
    rounding: float
    #: The sum of weights.
    total: float
    #: Whether every fold uses the scale of all rows.
    one_scale: bool

    @abstractmethod
    def losses(self, points: Mapping[Job, np.ndarray]) -> Mapping[Job, Losses]:
        """Compute the sum of losses, and its gradient, of each job at its parameters."""

    def run(self, searches: Mapping[Job, Descent]) -> dict[Job, Optimum]:
        """Run searches until they end."""
        return run_together(searches, self.losses)

    def without_folds(self, thetas: Sequence[np.ndarray], first: int = 0) -> Mapping[Job, Losses]:
        """Compute the losses of members on the rows outside each fold."""
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
