"""Rows of a stack in memory, on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bayescal._core.execution.threads import MapFunction
from bayescal._core.minimization.optimize import run_together
from bayescal.calibrators.multiclass.members import Layout
from bayescal.calibrators.stack.designs import ALL, Job, Plan, StackDesigns
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
from bayescal.regression.softmax.objective import split

#: Number of scores up to which a fit spends its time in calls instead of arithmetic.
_MAX_SCORES_TOGETHER = 1 << 12


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
