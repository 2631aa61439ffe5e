"""Choice of a penalty or a smoothing factor by cross-validation, on the host or compiled."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Generic, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import Array, ArrayT
from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Bool, Float, Int, Shaped
from bayescal.regression.binary.fit import Fit, as_fit, fit_one, rows_at_once
from bayescal.regression.binary.host import design_of, fit_design, span_of
from bayescal.regression.binary.objective import (
    BinaryDesign,
    Regression,
    loss_and_gradient_on_host,
    penalty_terms,
    start,
)

#: Arrays by their axes.
Theta: TypeAlias = 'Float[np.ndarray, " parameters"]'
ThetaPath: TypeAlias = 'Float[np.ndarray, "candidates parameters"]'
DeviceRows: TypeAlias = 'Float[jax.Array, " rows"]'
#: Relative difference of losses up to which candidates count as equal, since fits are inexact.
_EQUAL = 1e-9


class CandidateGrid(NamedTuple, Generic[ArrayT]):
    """Candidates: strengths of both penalties, and targets, which all candidates may share."""

    targets: Float[ArrayT, "#candidates rows"]
    l1: Float[ArrayT, " candidates"]
    l2: Float[ArrayT, " candidates"]


class Choice(NamedTuple):
    """Result of cross-validation."""

    #: Mean log losses of held-out rows, in nats; infinite if a fit failed, if it has a single row,
    #: or if the targets of its rows exclude a label of the held-out rows.
    losses: Float[jax.Array, "candidates folds"]
    #: The candidate with the least loss over all rows; the last, strongest one of equals.
    best: Int[jax.Array, ""]
    #: That candidate fitted to all rows, a batch of one.
    fit: Fit[jax.Array]


@partial(jax.jit, static_argnames=("folds", "lasso"))
def choose(
    x: Float[jax.Array, "rows features"],
    y: DeviceRows,
    weights: DeviceRows,
    fold: Int[jax.Array, " rows"],
    grid: CandidateGrid[jax.Array],
    folds: int,
    lasso: bool = False,
) -> Choice:
    """Fit every candidate without every fold, and the best candidate to all rows.

    Held-out rows have labels in {0, 1}; ``lasso`` tells whether any candidate has an absolute
    penalty. The fits share x, so memory is O(n * d) for each concurrent fit.
    """
    candidates = grid.l1.shape[0]

    def problem(candidate: Int[jax.Array, ""], use: DeviceRows) -> Regression[jax.Array]:
        row = jnp.minimum(candidate, grid.targets.shape[0] - 1)
        return Regression(x, grid.targets[row], use, grid.l1[candidate], grid.l2[candidate])

    def score(index: Int[jax.Array, ""]) -> tuple[Float[jax.Array, ""], Float[jax.Array, ""]]:
        candidate, out = index // folds, index % folds
        held = jnp.where(fold == out, weights, 0)
        kept = weights - held
        given = problem(candidate, kept)
        beta = fit_one(given, lasso).x
        line = beta[0] + x @ beta[1:]
        loss = jnp.sum(held * (jax.nn.softplus(line) - y * line))
        failed = jnp.isnan(loss) | ~_can_judge(given.targets, kept, y, held, jnp)
        return jnp.where(failed, jnp.inf, loss), jnp.sum(held)

    index = jnp.arange(candidates * folds)
    rows = rows_at_once(candidates * folds, *x.shape)
    losses, held = (v.reshape(-1, folds) for v in jax.lax.map(score, index, batch_size=rows))
    best = _last_of_best(losses.sum(axis=1), jnp)
    minimum = fit_one(problem(best, weights), lasso)
    fit = as_fit(jax.tree.map(lambda leaf: leaf[None], minimum))
    return Choice(losses / jnp.where(held > 0, held, 1), best, fit)


def choose_on_host(
    x: Float[np.ndarray, "rows features"],
    y: Shaped[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
    fold: Int[np.ndarray, " rows"],
    grid: CandidateGrid[np.ndarray],
    folds: int,
) -> tuple[int, Float[np.ndarray, "candidates folds"]]:
    """Return the best candidate and the losses of :func:`choose`, with NumPy.

    Candidates should be ordered from weak to strong. Fits go from strong to weak, since strong ones
    are easy.
    """
    candidates, weighted = len(grid.l1), weights > 0
    x, y, weights, fold = x[weighted], y[weighted], weights[weighted], fold[weighted]
    targets = np.broadcast_to(grid.targets[:, weighted], (candidates, len(y)))
    design, unit, _ = design_of(Regression(x, targets[0], weights, 0.0, 0.0))
    losses, total = np.zeros((candidates, folds)), np.zeros(candidates)
    with np.errstate(all="ignore"):
        path = _path(design, unit, grid._replace(targets=targets), None)
        for out in range(folds):
            held, kept = fold == out, fold != out
            if not held.any():
                continue
            beta = np.zeros_like(path)
            if kept.any():
                columns = np.ascontiguousarray(design.columns[:, kept])
                part = BinaryDesign(columns, targets[0, kept], weights[kept])
                beta = _path(part, unit, grid._replace(targets=targets[:, kept]), path)
            line = beta @ design.columns[:, held]
            loss = (np.logaddexp(0, line) - y[held] * line) @ weights[held]
            judged = _can_judge(targets, weights * kept, y, weights * held, np)
            loss = np.where(np.isnan(loss) | ~judged, np.inf, loss)
            losses[:, out] = loss / weights[held].sum()
            total += loss
    return int(_last_of_best(total, np)), losses


def _can_judge(
    targets: Float[Array, "*candidates rows"],
    kept: Float[Array, " rows"],
    y: Shaped[Array, " rows"],
    held: Float[Array, " rows"],
    xp: ModuleType,
) -> Bool[Array, "*candidates"]:
    """Whether fits to the rows with weights ``kept`` can be judged by those with ``held``.

    A single row leaves the slopes open, and if all targets are zero, the intercept has no limit.
    """
    allowed = xp.stack([targets @ kept, (1 - targets) @ kept], axis=-1) > 0
    present = xp.stack([y, 1 - y]) @ held > 0
    return xp.all(allowed | ~present, axis=-1) & (xp.sum(kept > 0) > 1)


def _last_of_best(losses: Float[ArrayT, " candidates"], xp: ModuleType) -> Int[ArrayT, ""]:
    """Return the index of the least loss, the last of equals."""
    equal = losses <= losses.min() * (1 + _EQUAL)
    return len(losses) - 1 - xp.argmax(equal[::-1])


def _path(
    design: BinaryDesign[np.ndarray],
    unit: Theta,
    grid: CandidateGrid[np.ndarray],
    guess: ThetaPath | None,
) -> ThetaPath:
    """Fit from strong to weak, each from the previous fit or a ``guess``, in units of columns."""
    targets = grid.targets
    whole = Regression(design.columns[1:].T, targets[-1], design.weights, 0.0, 0.0)
    free = (grid.l1 == 0) & (grid.l2 == 0)
    span = span_of(whole, design) if free.any() else None
    result = np.empty((len(targets), len(unit)))
    beta = start(whole, np)
    for k in reversed(range(len(targets))):
        problem = whole._replace(targets=targets[k], l1=grid.l1[k], l2=grid.l2[k])
        part = design._replace(targets=targets[k])
        if guess is not None:
            beta = min((beta, guess[k]), key=lambda b: _value(problem, part, unit, b))
        minimum = fit_design(problem, part, unit, beta, span if free[k] else None)
        result[k] = beta = minimum.x
    return result


def _value(
    problem: Regression[np.ndarray], design: BinaryDesign[np.ndarray], unit: Theta, beta: Theta
) -> float:
    """Compute the objective at coefficients in the design's units."""
    absolute = problem.l1 * np.sum(np.abs(beta / unit)[1:])
    smooth = penalty_terms(problem, unit, beta, np)[0]
    return loss_and_gradient_on_host(design, beta)[0] + float(smooth + absolute)
