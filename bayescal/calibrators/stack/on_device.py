"""Rows of a stack on an accelerator.

Everything is in double precision. Members are fits with all features, in which unused features have
coefficients of zero, so that one program serves all members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from bayescal._core.arrays import AnyArray
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import log_softmax
from bayescal._core.shapes import Bool, Float, Int
from bayescal.calibrators.multiclass.basis import Basis
from bayescal.calibrators.multiclass.members import Layout, make_features, smooth
from bayescal.calibrators.stack.designs import ALL, Job, Plan, StackDesigns
from bayescal.calibrators.stack.kernels import ROUNDING, Losses, Scale
from bayescal.data.rows import Rows
from bayescal.regression.softmax.objective import Design, evaluate, logit_update


class OnDevice(StackDesigns):
    """Rows on device; rows outside a job have weight zero."""

    rounding = ROUNDING[np.dtype(np.float64)]

    def __init__(self, rows: Rows, fold: np.ndarray, scales: Sequence[Scale], plan: Plan) -> None:
        self.count, self.total = len(scales), float(rows.weights.sum())
        self.one_scale = all(scale == plan.scale for scale in scales)
        self._plan = plan
        data = rows.y, rows.weights, fold
        basis = Basis(*(jnp.asarray(part, float) for part in plan.basis))
        self._data = *(jnp.asarray(column) for column in data), basis
        shared = _smooth(rows.scores, plan.scale)
        self._x = {ALL: shared} | {
            fold: shared if self.one_scale else _smooth(rows.scores, scale)
            for fold, scale in enumerate(scales)
        }

    def losses(self, points: Mapping[Job, np.ndarray]) -> dict[Job, Losses]:
        result = {}
        for job, theta in points.items():
            sums = np.asarray(_losses(*self._arguments(job, theta)))
            index = self._plan.slots[job.member].positions
            result[job] = float(sums[0]), sums[1:][index]
        return result

    def held_out(self, thetas: Mapping[Job, np.ndarray]) -> jax.Array:
        logs: list[list[jax.Array]] = [[] for _ in self._plan.members]
        for job, theta in thetas.items():
            arguments = self._arguments(job._replace(only=True), theta)
            logs[job.member].append(_held_out(*arguments))
        return _together(logs)

    def _arguments(self, job: Job, theta: np.ndarray) -> tuple[object, ...]:
        slot = self._plan.slots[job.member]
        every = np.zeros(slot.layout.length)
        every[slot.positions] = theta
        takes = np.array([job.takes(fold) for fold in range(self.count)])
        return slot.layout, every, takes, self._x[job.fold], *self._data


@jax.jit
def _smooth(
    scores: Float[jax.Array, "rows classes"], scale: Scale
) -> Float[jax.Array, "rows classes"]:
    return smooth(scores.astype(float), *scale)


def _design(
    layout: Layout, x: jax.Array, y: AnyArray, weights: AnyArray, basis: Basis
) -> Design[jax.Array]:
    features, shared = make_features(x, layout, basis)
    return Design(x, y, weights, features, x, shared)


@partial(jax.jit, static_argnums=0)
def _losses(
    layout: Layout,
    theta: Float[jax.Array, " parameters"],
    takes: Bool[jax.Array, " folds"],
    x: Float[jax.Array, "rows classes"],
    y: Int[jax.Array, " rows"],
    weights: Float[jax.Array, " rows"],
    folds: Int[jax.Array, " rows"],
    basis: Basis,
) -> Float[jax.Array, " 1+parameters"]:
    """Compute the sum of losses, followed by its gradient (p,), of the rows of some folds."""
    design = _design(layout, x, y, jnp.where(takes[folds], weights, 0), basis)
    result = evaluate(design, jnp.zeros_like(theta), theta)
    return jnp.concatenate([result.value[None], result.gradient])


@partial(jax.jit, static_argnums=0)
def _held_out(
    layout: Layout,
    theta: Float[jax.Array, " parameters"],
    takes: Bool[jax.Array, " folds"],
    x: Float[jax.Array, "rows classes"],
    y: Int[jax.Array, " rows"],
    weights: Float[jax.Array, " rows"],
    folds: Int[jax.Array, " rows"],
    basis: Basis,
) -> Float[jax.Array, " rows"]:
    """Compute log probabilities (n,) of the labels in selected folds, and zeros elsewhere."""
    logs = log_softmax(x + logit_update(_design(layout, x, y, weights, basis), theta))
    return jnp.where(takes[folds], logs[jnp.arange(len(y)), y], 0)


@jax.jit
def _together(logs: list[list[jax.Array]]) -> Float[jax.Array, "rows members"]:
    return jnp.stack([jnp.sum(jnp.stack(parts), axis=0) for parts in logs], axis=1)
