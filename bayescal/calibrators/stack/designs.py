"""Rows of a stack as its fits see them, sums of losses by member and fold; rows in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bayescal._core.execution.threads import MapFunction
from bayescal._core.minimization.optimize import run_together
from bayescal._core.shapes import Int
from bayescal.calibrators.multiclass.basis import Basis
from bayescal.calibrators.multiclass.members import Layout, Member
from bayescal.calibrators.stack.kernels import (
    ROUNDING,
    FeatureBlock,
    Losses,
    Scale,
    block_rows,
    label_logs,
    losses,
    losses_together,
    make_block,
    working_type,
)
from bayescal.calibrators.stack.search import Descent, Optimum
from bayescal.data.rows import Rows
from bayescal.regression.softmax.objective import Sizes, split

#: Number of scores up to which a fit spends its time in calls instead of arithmetic.
_MAX_SCORES_TOGETHER = 1 << 12
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


def make_blocks(
    rows: Rows, scale: Scale, plan: Plan, dtype: type[np.floating]
) -> list[FeatureBlock]:
    """Make the inputs of fits, in blocks that fit in the processor's cache."""
    parts = block_rows(len(rows.y), plan.layout.k)
    return [make_block(rows.take(part), scale, plan.layout, plan.basis, dtype) for part in parts]


class InMemory(StackDesigns):
    """Blocks of the rows of each fold; ``each`` maps a function, perhaps in threads."""

    def __init__(
        self, rows: Rows, fold: np.ndarray, scales: Sequence[Scale], plan: Plan, map_fn: MapFunction
    ) -> None:
        dtype = working_type(rows.scores.size)
        self.count, self.rounding = len(scales), ROUNDING[np.dtype(dtype)]
        self.total = float(rows.weights.sum())
        self.one_scale = all(scale == plan.scale for scale in scales)
        self._plan, self._dtype, self._map_fn = plan, dtype, map_fn
        self._together = rows.scores.size <= _MAX_SCORES_TOGETHER
        self._groups = groups = [np.flatnonzero(fold == i) for i in range(self.count)]

        def blocks(index: np.ndarray, scale: Scale) -> list[FeatureBlock]:
            return make_blocks(rows.take(index), scale, plan, dtype)

        by_fold = list(map_fn(blocks, groups, [plan.scale] * self.count))
        self._all = [block for part in by_fold for block in part]
        if self.one_scale:
            self._only = by_fold
            others = [[*range(i), *range(i + 1, self.count)] for i in range(self.count)]
            self._without = [[b for i in kept for b in by_fold[i]] for kept in others]
        else:
            self._only = list(map_fn(blocks, groups, scales))
            left = [np.flatnonzero(fold != i) for i in range(self.count)]
            self._without = list(map_fn(blocks, left, scales))

    def losses(self, points: Mapping[Job, np.ndarray]) -> dict[Job, Losses]:
        if self._together:
            return self._losses_together(points)
        return dict(zip(points, self._map_fn(self._losses, points, points.values()), strict=True))

    def run(self, searches: Mapping[Job, Descent]) -> dict[Job, Optimum]:
        """Run each search to its end, perhaps in a separate thread."""
        if self._together:
            return super().run(searches)

        def search_alone(job: Job) -> Optimum:
            search = {job: searches[job]}
            return run_together(search, lambda at: {job: self._losses(job, at[job])})[job]

        # Start the longest jobs first, to balance the threads.
        jobs = sorted(searches, key=lambda job: -len(self._plan.slots[job.member].positions))
        return dict(zip(jobs, self._map_fn(search_alone, jobs), strict=True))

    def held_out(self, thetas: Mapping[Job, np.ndarray]) -> np.ndarray:
        """Compute log probabilities (n, members) of labels by fits without the fold of the row."""
        held = np.empty((sum(map(len, self._groups)), len(self._plan.members)))

        def predict_fold(job: Job) -> None:
            slot = self._plan.slots[job.member]
            parameters = split(thetas[job].astype(self._dtype), slot.sizes)
            blocks = self._only[job.fold]
            logs = [label_logs(block, parameters, slot.part) for block in blocks]
            held[self._groups[job.fold], job.member] = np.concatenate(logs)

        list(self._map_fn(predict_fold, thetas))
        return held

    def _losses(self, job: Job, theta: np.ndarray) -> Losses:
        slot = self._plan.slots[job.member]
        return losses(self._blocks(job), theta, slot.sizes, slot.part)

    def _losses_together(self, points: Mapping[Job, np.ndarray]) -> dict[Job, Losses]:
        """Compute the losses of all members at once, fold by fold."""
        result = {}
        by_rows: dict[tuple[Job, Layout], list[Job]] = {}
        for job in points:
            layout = self._plan.slots[job.member].layout
            by_rows.setdefault((job._replace(member=ALL), layout), []).append(job)
        for (rows, layout), jobs in by_rows.items():
            all_positions = [self._plan.slots[job.member].positions for job in jobs]
            thetas = np.zeros((len(jobs), layout.length))
            for theta, positions, job in zip(thetas, all_positions, jobs, strict=True):
                theta[positions] = points[job]
            together = losses_together(self._blocks(rows), thetas, layout.sizes)
            for job, positions, (value, gradient) in zip(
                jobs, all_positions, together, strict=True
            ):
                result[job] = value, gradient[positions]
        return result

    def _blocks(self, job: Job) -> list[FeatureBlock]:
        if job.fold == ALL:
            return self._all
        return (self._only if job.only else self._without)[job.fold]
