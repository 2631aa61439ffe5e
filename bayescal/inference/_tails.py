"""Predictions far from the data, where draws, or the box of a quadrature rule, are unreliable.

The density of a new point is a ratio of two evidences: with one more observation, and without it.
Far from the data, the integrand of the first is in a different place than the posterior.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import numpy as np

from bayescal._core.execution.padding import pad_axis, padded_length
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import log_softmax, sigmoid
from bayescal._core.shapes import Bool, Float, Int
from bayescal._core.warnings import AccuracyWarning, SamplingWarning, warn
from bayescal.data.checks import Batch
from bayescal.inference._uncertainty import unresolved_masses
from bayescal.inference.engine.averages import in_chunks, linear
from bayescal.inference.engine.condition import Setup, map_rows, select
from bayescal.inference.integrators.base import Problem
from bayescal.inference.integrators.quadrature.rule import Quadrature
from bayescal.models import Family

#: Arrays by their axes: points of each data set, or of all, and what is known about them.
Rows: TypeAlias = 'Float[np.ndarray, " rows points *dimensions"]'
PerPoint: TypeAlias = 'Float[np.ndarray, "sets points"]'
Values: TypeAlias = 'Float[np.ndarray, " sets points *classes"]'

#: Error in log odds above which the ends of a box or rounding matter, so that a point is integrated
#: in a separate box.
CLOSE = 1e-7
#: Errors of log odds (relative to 1 + their size) and of probabilities above which users are
#: warned.
_MAX_LOG_ODDS_ERROR, _MAX_PROB_ERROR = 1e-6, 0.01
#: Number of data sets checked for sparse draws, and of points integrated together.
_MAX_CHECKED_SETS, _POINTS_PER_CALL = 16, 1024
#: Nodes for each parameter with which a box is checked for mass at its ends.
_NODES_FOR_CHECK = 16


def farthest(
    points: Rows, data: Batch, family: Family
) -> Float[np.ndarray, " rows 2 *dimensions"] | None:
    """Return the outermost point on either side in each row (rows, m[, d]).

    None if all points are inside the data's range extended by its width on both sides.
    """
    values, observed = points, data.x[data.mask]
    if family.univariate:
        values, observed = (family.coordinate(x, np) for x in (points, observed))
    low, high = observed.min(axis=0), observed.max(axis=0)
    with np.errstate(over="ignore"):
        out = (values - (low + high) / 2) / np.where(high > low, high - low, 1)
    sides = np.stack([out, -out]).reshape(2, *points.shape[:2], -1).max(axis=-1)
    if sides.max() <= 1.5:
        return None
    index = sides.argmax(axis=2).T
    return points[np.arange(len(points))[:, None], index]


def deepest(
    points: Rows, data: Batch, family: Family
) -> Float[np.ndarray, " sets 1 *dimensions"] | None:
    """Return the point (batch, 1[, d]) that is farthest from all classes of each data set.

    None if every point is within the width of the widest class of some class. In gaps between
    narrow classes the densities depend on parameters that are rarely drawn.
    """
    index, far, points = np.zeros(len(data.x), int), False, points[: len(data.x)]
    rows, values = points, data.x
    if family.univariate:
        rows, values = (family.coordinate(x, np)[..., None] for x in (points, values))
    member = (data.y[..., None] == np.arange(family.classes)) & data.mask[..., None]
    inside = [np.where(member[..., None], values[:, :, None], end) for end in (np.inf, -np.inf)]
    low, high = inside[0].min(axis=1), inside[1].max(axis=1)
    width = np.max(np.where(high >= low, high - low, 0), axis=1, keepdims=True)
    least, most = rows.min(axis=1), rows.max(axis=1)
    # All points are near if they are within one width of the outermost classes and those are at
    # most two widths apart.
    first, last = np.where(high >= low, high, np.inf), np.where(high >= low, low, -np.inf)
    agree = last.max(axis=1) - first.min(axis=1) <= 2 * width[:, 0]
    agree &= (least >= low.min(axis=1) - width[:, 0]) & (most <= high.max(axis=1) + width[:, 0])
    several = (member.sum(axis=1) > 1).any(axis=1)
    for b in np.flatnonzero(several & ~agree.all(axis=1)):
        at = rows[min(b, len(rows) - 1)]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            out = np.maximum(np.maximum(low[b][:, None] - at, at - high[b][:, None]), 0) / width[b]
            depth = np.min(np.nan_to_num(out, nan=0.0, posinf=np.inf).max(axis=2), axis=0)
        index[b] = np.argmax(depth)
        far |= bool(depth[index[b]] > 1)
    if not far:
        return None
    return points[np.minimum(np.arange(len(index)), len(points) - 1), index][:, None]


def at_ends(
    setup: Setup, problem: Problem, points: np.ndarray, deep: np.ndarray | None
) -> Float[np.ndarray, "sets ends"]:
    """Return ``left_out`` at the ends of univariate points and in gaps, else at all points."""
    if points.ndim > 2:
        return left_out(setup, problem, points)
    ends = np.stack([points.min(axis=1), points.max(axis=1)], 1)
    if deep is not None:
        ends = np.concatenate([np.broadcast_to(ends, (len(deep), 2)), deep], axis=1)
    return left_out(setup, problem, ends)


def refine_tails(
    setup: Setup, problem: Problem, values: Values, points: Rows
) -> tuple[Values, PerPoint]:
    """Integrate again where the ends of the quadrature box matter.

    Values are log odds (batch, m), or log probabilities (batch, m, k), at points (1 or batch, m[,
    d]). Returns improved values, and the errors (batch, m) of log odds due to ends and rounding.
    """
    count, m = values.shape[:2]
    nats = np.array(left_out(setup, problem, points)[:count, :m])
    rows, columns = np.nonzero(~(nats <= CLOSE))
    values = np.array(values, np.float64)
    for start in range(0, len(rows), _POINTS_PER_CALL):
        at = rows[start : start + _POINTS_PER_CALL], columns[start : start + _POINTS_PER_CALL]
        x = points[np.minimum(at[0], len(points) - 1), at[1]]
        log_probs, error = _observe(setup, problem, at[0], x)
        with np.errstate(invalid="ignore"):
            new = log_probs[:, 1] - log_probs[:, 0] if values.ndim == 2 else log_softmax(log_probs)
        better = ~(error >= nats[at]) & (error < np.inf)
        values[at] = np.where(better if values.ndim == 2 else better[:, None], new, values[at])
        # Much mass at an end means that the whole integrand may lie outside.
        nats[at] = np.where(better, error, np.where(nats[at] < 1e-3, nats[at], np.inf))
    return values, nats


def warn_of_large(nats: PerPoint, values: Values, points: Rows) -> None:
    """Warn about values whose errors ``nats``, as returned by ``refine_tails``, are large."""
    size = np.abs(values if values.ndim == 2 else values.max(axis=-1))
    bad = ~(nats <= _MAX_LOG_ODDS_ERROR * (1 + size))
    if bad.any():
        most = np.max(nats[bad])
        what = f"log odds may be off by {most:.1g}" if most < np.inf else "log odds are unknown"
        warn(
            f"{what} at {_first(bad, points)}: so far from the data, integration or rounding "
            "fails; leave such points out, or clip them to the range of the data",
            AccuracyWarning,
        )


def left_out(setup: Setup, problem: Problem, x: np.ndarray) -> PerPoint:
    """Estimate the error of log odds (batch, m) due to mass outside the box and to rounding."""
    padded = pad_axis(x.astype(np.float64), padded_length(x.shape[1]), 1)
    if len(x) > 1:
        padded = pad_axis(padded, len(problem.sums), 0)
    return np.asarray(_height_at_ends(setup, problem, jax.device_put(padded)))


@partial(jax.jit, static_argnums=0)
def _height_at_ends(
    setup: Setup, problem: Problem, x: jax.Array
) -> Float[jax.Array, "sets points"]:
    rule = setup.integrator
    assert isinstance(rule, Quadrature)

    def errors(
        problem: Problem, row: Float[jax.Array, " points *dimensions"] | None
    ) -> Float[jax.Array, " points"]:
        nodes = rule.realize(problem, _NODES_FOR_CHECK)
        log_weights = problem.weigh(nodes)[0]
        natural = problem.densities.finite_natural(nodes.params, log_weights.dtype)
        outermost = rule.outermost(problem, _NODES_FOR_CHECK)[:, None]

        def part(points: Float[jax.Array, " points *dimensions"]) -> Float[jax.Array, " points"]:
            phi = problem.densities.features(points, log_weights.dtype)
            heights = linear(natural, phi) + log_weights[:, None]
            top = jnp.max(heights, axis=1)
            end = jnp.max(jnp.where(outermost, heights, -jnp.inf), axis=1)
            rounding = jnp.finfo(top.dtype).eps * jnp.max(jnp.abs(top), axis=0)
            # The mass outside is about that of the outermost cell; four times is safe.
            return 4 * jnp.exp(end - top).sum(axis=0) + rounding

        return in_chunks(part, x[0] if row is None else row, 64)

    return map_rows(errors, problem, setup, None if len(x) == 1 else x, 16)


def _observe(
    setup: Setup,
    problem: Problem,
    rows: Int[np.ndarray, " points"],
    points: Float[np.ndarray, " points *dimensions"],
) -> tuple[Float[np.ndarray, "points classes"], Float[np.ndarray, " points"]]:
    """Integrate again with each point (n[, d]) as one more observation of each class.

    Returns the unnormalized log class probabilities (n, classes), and the error (n,) of their
    differences, infinite if the rule fails.
    """
    rule, n, k = setup.integrator, len(rows), problem.prior.family.classes
    assert isinstance(rule, Quadrature)
    doubles = jnp.asarray(np.asarray(points, np.float64))
    phi = np.asarray(problem.densities.features(doubles, np.dtype(np.float64)))
    more = np.eye(k)[:, :, None] * phi[:, None, None, :]
    sums = (np.asarray(problem.sums)[rows][:, None] + more).reshape(n * k, k, -1)
    size = max(16, 1 << (n * k - 1).bit_length())
    prior = problem.prior
    if setup.stacked:
        index = pad_axis(np.repeat(rows, k), size, 0)
        prior = jax.tree.map(lambda leaf: np.asarray(leaf)[index], prior)
    arrays = jax.device_put((prior, pad_axis(sums, size, 0)))
    refined = problem._replace(prior=arrays[0], sums=arrays[1], draws=None, log_weights=None)
    log_evidence, error = (v[: n * k].reshape(n, k) for v in rule.find(refined, setup.stacked))
    log_class_probs = np.asarray(problem.class_prior.log_mean)
    per_data_set = problem.class_prior.per_data_set
    log_evidence = log_evidence + (log_class_probs[rows] if per_data_set else log_class_probs)
    # Rounding of sums whose terms are larger than the sum.
    error = np.where(error < 0.5, error + 1e-13 * np.abs(log_evidence), np.inf).sum(axis=1)
    return log_evidence, np.where(np.isnan(error), np.inf, error)


def shift(
    log_odds: Float[np.ndarray, " *points"], nats: Float[np.ndarray, " *points"]
) -> Float[np.ndarray, " *points"]:
    """Return the largest change of probabilities if log odds are wrong by ``nats``."""
    log_odds, p = log_odds.astype(np.float64), sigmoid(log_odds.astype(np.float64))
    moved = np.maximum(sigmoid(log_odds + nats) - p, p - sigmoid(log_odds - nats))
    return np.where(nats < np.inf, moved, np.maximum(p, 1 - p))


def warn_sparse_tails(setup: Setup, problem: Problem, points: np.ndarray, data: Batch) -> bool:
    """Warn about points whose densities few draws determine; return whether any point is far."""
    count = min(len(data.x), _MAX_CHECKED_SETS)
    checked_data = Batch(data.x[:count], data.y[:count], data.mask[:count], data.single)
    family = problem.prior.family
    checked = [farthest(points, data, family), deepest(points, checked_data, family)]
    checked = [rows for rows in checked if rows is not None]
    if not checked:
        return False
    length = max(len(rows) for rows in checked)
    index = np.arange(length)
    far = np.concatenate([rows[np.minimum(index, len(rows) - 1)] for rows in checked], axis=1)
    far = np.broadcast_to(far[:count], (count, *far.shape[1:]))
    with float64():
        checked_sets = select(problem, setup, np.arange(count))
        error = np.asarray(unresolved_masses(setup, checked_sets, far)).max(axis=1)
    bad = ~(error <= _MAX_PROB_ERROR)
    if bad.any():
        warn(
            f"few draws carry the densities at {_first(bad, far, of='farthest ')}: probabilities "
            f"may be off by {np.max(error[bad]):.1g}; see mcse, use integrator='quadrature' (up to "
            "three scalar parameters), or clip such points to the range of the data",
            SamplingWarning,
        )
    return True


def _first(bad: Bool[np.ndarray, "sets points"], x: np.ndarray, of: str = "") -> str:
    """Describe how many points (batch, m) are bad, and the first of them."""
    row, column = (int(i) for i in np.argwhere(bad)[0])
    point = x[min(row, len(x) - 1), column]
    shown = f"{point:g}" if np.ndim(point) == 0 else str(point)
    return f"{int(bad.sum())} of {bad.size} {of}points, the first x = {shown}"
