"""Fits of softmax regressions: one on the host, or many in one compiled program.

Cross-validation chooses among penalties, all of which are fitted without each fold.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import ArrayT, on_host
from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.newton_cg import Curvature, Point, newton_cg
from bayescal._core.minimization.optimize import Minimum
from bayescal._core.numerics import log_softmax
from bayescal._core.shapes import Bool, Float, Int
from bayescal.regression.softmax.objective import (
    Design,
    HostEvaluator,
    evaluate,
    logit_update,
    movement,
    multiply,
)
from bayescal.regression.softmax.precondition import Preconditioner, choices

#: Arrays by their axes.
Theta: TypeAlias = 'Float[np.ndarray, " parameters"]'
DeviceTheta: TypeAlias = 'Float[jax.Array, " parameters"]'

MAX_PRODUCTS = 400
_MAX_SLOW = 12
_TOLERANCE = 1e-10
#: Tolerance of fits; the choice between penalties needs no more digits.
_CHOICE_TOLERANCE = 1e-7
#: Numbers in memory for fits side by side.
_NUMBERS_AT_ONCE = 1 << 28


class Prepared(NamedTuple):
    """An approximation of the Hessian: sums over rows, and their inverse with the penalty."""

    method: Preconditioner
    data: object
    inverse: object


def is_unbounded(
    design: Design[ArrayT],
    penalty: Float[ArrayT, " parameters"],
    theta: Float[ArrayT, " parameters"],
    here: Point[ArrayT, ArrayT],
) -> Bool[ArrayT, ""]:
    """Return whether an approximate Newton step would still change logits by a hundredth."""
    method, sizes = choices(design, penalty)[0], design.sizes
    inverse = method.invert(method.measure(design, here.state), penalty, sizes)
    return is_long(design, theta, method.apply(inverse, -here.gradient, sizes))


def is_long(
    design: Design[ArrayT], theta: Float[ArrayT, " parameters"], step: Float[ArrayT, " parameters"]
) -> Bool[ArrayT, ""]:
    """Return whether a step that gains nothing still changes logits by a hundredth."""
    return movement(design, theta, step, np if isinstance(theta, np.ndarray) else jnp) > 0.01


def fit_on_host(
    design: Design[np.ndarray],
    penalty: Theta,
    start: Theta | None = None,
    prepared: Prepared | None = None,
    tolerance: float = _TOLERANCE,
    limits: bool = True,
) -> tuple[Minimum[np.ndarray], Prepared]:
    """Minimize sum(weights * cross-entropy) + sum(penalty * theta**2) / 2 with NumPy.

    ``prepared`` comes from a similar fit with equal sizes and perhaps another penalty. ``limits``
    tells whether to check for an infinite minimum, which costs one more Hessian.
    """
    sizes = design.sizes
    methods = choices(design, penalty)
    if prepared is not None and prepared.method not in methods:
        prepared = None
    if prepared is not None:
        methods = methods[methods.index(prepared.method) :]

    def prepare(probs: Float[np.ndarray, "rows classes"]) -> Prepared:
        # The cheap approximation comes first, the precise one if that did not suffice.
        method = methods.pop(0) if len(methods) > 1 else methods[0]
        data = method.measure(design, probs)
        return Prepared(method, data, method.invert(data, penalty, sizes))

    def precondition(ready: Prepared, vector: Theta) -> Theta:
        return ready.method.apply(ready.inverse, vector, sizes)

    free = limits and not penalty.all()
    with np.errstate(all="ignore"), single_threaded_blas(), HostEvaluator(design, penalty) as host:
        if prepared is not None:
            method, data, _ = prepared
            prepared = Prepared(method, data, method.invert(data, penalty, sizes))
        return newton_cg(
            host.evaluate,
            Curvature(host.multiply, prepare, precondition, methods[0].patience, MAX_PRODUCTS),
            np.zeros_like(penalty) if start is None else start,
            scale=design.weights.sum(),
            unbounded=partial(is_unbounded, design, penalty) if free else None,
            max_slow=_MAX_SLOW if free else None,
            tolerance=tolerance,
            prepared=prepared,
            xp=np,
        )


@jax.jit
def fit_many(
    design: Design[jax.Array],
    weights: Float[jax.Array, "fits rows"],
    penalty: Float[jax.Array, "fits parameters"],
    start: Float[jax.Array, "fits parameters"],
) -> Minimum[jax.Array]:
    """Fit a batch to the same rows, with different weights, penalties and starts."""

    def fit_member(
        weights: Float[jax.Array, " rows"], penalty: DeviceTheta, start: DeviceTheta
    ) -> Minimum[jax.Array]:
        return fit_one(design._replace(weights=weights), penalty, start)

    return jax.vmap(fit_member)(weights, penalty, start)


@jax.jit
def fit_one(
    design: Design[jax.Array], penalty: DeviceTheta, start: DeviceTheta
) -> Minimum[jax.Array]:
    """Fit one regression in one compiled program."""
    method, sizes = choices(design, penalty)[-1], design.sizes

    def prepare(probs: Float[jax.Array, "rows classes"]) -> object:
        return method.invert(method.measure(design, probs), penalty, sizes)

    def precondition(inverse: object, vector: DeviceTheta) -> DeviceTheta:
        return method.apply(inverse, vector, sizes)

    product = partial(multiply, design, penalty)
    return newton_cg(
        partial(evaluate, design, penalty),
        Curvature(product, prepare, precondition, method.patience, MAX_PRODUCTS),
        start,
        scale=jnp.sum(design.weights),
        unbounded=partial(is_unbounded, design, penalty),
        tolerance=_TOLERANCE,
    )[0]


def fit(design: Design[Any], penalty: Theta, start: Theta) -> Minimum[np.ndarray]:
    """Fit on the host if the rows are on the host, else in one JAX program in double precision."""
    if on_host(design.offset):
        return fit_on_host(design, penalty, start)[0]
    with float64():
        minimum = fit_one(design.map_arrays(jnp.asarray), jnp.asarray(penalty), jnp.asarray(start))
        return jax.tree.map(np.asarray, minimum)


def out_of_fold_losses(
    design: Design[np.ndarray],
    penalties: Float[np.ndarray, "candidates parameters"],
    folds: Int[np.ndarray, " rows"],
    start: Float[np.ndarray, " parameters"],
) -> Float[np.ndarray, "candidates folds"]:
    """Compute mean held-out cross-entropies for all penalties and each fold.

    Neighboring penalties should be similar, strong ones first: on the host each fit starts from the
    previous one. On an accelerator fits run side by side in one program.
    """
    numbers = np.unique(folds)
    if jax.default_backend() == "cpu":
        return np.stack([_along(design, penalties, folds == f, start) for f in numbers], axis=1)
    return _side_by_side(design, penalties, folds, numbers, start)


def _along(
    design: Design[np.ndarray],
    penalties: Float[np.ndarray, "candidates parameters"],
    left_out: Bool[np.ndarray, " rows"],
    start: Float[np.ndarray, " parameters"],
) -> Float[np.ndarray, " candidates"]:
    """Compute losses of the held-out rows, one fit after the other."""
    kept, other = design.rows(~left_out), design.rows(left_out)
    losses, theta, prepared = np.empty(len(penalties)), start, None
    for number, penalty in enumerate(penalties):
        minimum, prepared = fit_on_host(
            kept, penalty, theta, prepared, _CHOICE_TOLERANCE, limits=False
        )
        theta = minimum.x
        losses[number] = mean_loss(other, theta)
    return losses


def mean_loss(design: Design[np.ndarray], theta: Float[np.ndarray, " parameters"]) -> float:
    """Compute the weighted mean cross-entropy."""
    logs = log_softmax(design.offset + logit_update(design, theta))
    logs = logs[np.arange(len(design.y)), design.y]
    return float(-(design.weights @ logs) / design.weights.sum())


def _side_by_side(
    design: Design[np.ndarray],
    penalties: Float[np.ndarray, "candidates parameters"],
    folds: Int[np.ndarray, " rows"],
    numbers: Int[np.ndarray, " folds"],
    start: Float[np.ndarray, " parameters"],
) -> Float[np.ndarray, "candidates folds"]:
    g, f = len(penalties), len(numbers)
    weights = np.stack([np.where(folds == number, 0.0, design.weights) for number in numbers])
    candidate, fold = (part.ravel() for part in np.meshgrid(range(g), range(f), indexing="ij"))
    step = min(g * f, max(1, _NUMBERS_AT_ONCE // (8 * design.offset.size)))
    losses = np.empty(g * f)
    with float64():
        held = jax.tree.map(jnp.asarray, design)
        for first in range(0, g * f, step):
            # The last block is padded, so that all blocks share one compilation.
            part = np.minimum(np.arange(first, first + step), g * f - 1)
            starts = np.broadcast_to(start, (step, len(start)))
            minimum = fit_many(held, weights[fold[part]], penalties[candidate[part]], starts)
            for index, theta in zip(part, np.asarray(minimum.x), strict=True):
                losses[index] = mean_loss(design.rows(folds == numbers[fold[index]]), theta)
    return losses.reshape(g, f)
