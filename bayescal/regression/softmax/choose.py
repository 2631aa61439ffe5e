"""Choice of penalties by cross-validation: all penalties on all folds."""

from __future__ import annotations

import numpy as np

from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import log_softmax
from bayescal._core.shapes import Bool, Float, Int
from bayescal.regression.softmax.fit import fit_many, fit_on_host
from bayescal.regression.softmax.objective import Design, logit_update

#: Tolerance of fits; the choice between penalties needs no more digits.
_TOLERANCE = 1e-7
#: Numbers in memory for fits side by side.
_NUMBERS_AT_ONCE = 1 << 28


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
        minimum, prepared = fit_on_host(kept, penalty, theta, prepared, _TOLERANCE, limits=False)
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
