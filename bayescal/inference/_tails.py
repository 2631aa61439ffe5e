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


def outside(
    points: Rows, data: Batch, family: Family
) -> tuple[Float[np.ndarray, " sets 2 *dimensions"], Bool[np.ndarray, " sets"]]:
    """Return the outermost point on either side of each data set, and whether any is far.

    A point is far if it is farther from the range of a data set than this range is wide.
    """
    low, high = (end[:, 0] for end in _range(data.x, data.mask[..., None], family))
    lines = _coordinates(points[: len(data.x)], family)
    least, most = lines.min(axis=1), lines.max(axis=1)
    far = (np.maximum(low - least, most - high) > high - low).any(axis=1)
    index = np.zeros((len(data.x), 2), int)
    for b in np.flatnonzero(far)[:_MAX_CHECKED_SETS]:
        at = lines[min(b, len(lines) - 1)]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            out = np.stack([low[b] - at, at - high[b]]) / (high[b] - low[b])
        index[b] = np.nan_to_num(out, posinf=np.inf).max(axis=2).argmax(axis=1)
    return _points_at(points, index), far


def deepest(
    points: Rows, data: Batch, family: Family
) -> tuple[Float[np.ndarray, " sets 1 *dimensions"], Bool[np.ndarray, " sets"]]:
    """Return the point that is farthest from all classes of each data set, and whether it is far.

    A point is far if it is farther from every class than the widest class is wide. In gaps between
    narrow classes the densities depend on parameters that are rarely drawn.
    """
    member = (data.y[..., None] == np.arange(family.classes)) & data.mask[..., None]
    index, far = np.zeros((len(data.x), 1), int), np.zeros(len(data.x), bool)
    rows, (low, high) = _coordinates(points[: len(data.x)], family), _range(data.x, member, family)
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
        index[b], far[b] = np.argmax(depth), np.max(depth) > 1
    return _points_at(points, index), far


def _coordinates(x: Rows, family: Family) -> Float[np.ndarray, "rows points dimensions"]:
    """Return the coordinates of points in which their distances are judged."""
    return family.coordinate(x, np)[..., None] if family.univariate else x


def _range(
    x: Rows, member: Bool[np.ndarray, "rows points groups"], family: Family
) -> tuple[Float[np.ndarray, "rows groups dimensions"], ...]:
    """Return the ends of the ranges of groups of rows; an empty group has an inverted range."""
    values = _coordinates(x, family)[:, :, None]
    low, high = (np.where(member[..., None], values, end) for end in (np.inf, -np.inf))
    return low.min(axis=1), high.max(axis=1)


def _points_at(
    points: Rows, index: Int[np.ndarray, "sets chosen"]
) -> Float[np.ndarray, " sets chosen *dimensions"]:
    """Return chosen points of each data set, of which all may share one row."""
    rows = np.minimum(np.arange(len(index)), len(points) - 1)
    return points[rows[:, None], index]


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
    own, common = problem.bare.divide(("sums", *setup.per_set))
    size = max(16, 1 << (n * k - 1).bit_length())
    index = pad_axis(np.repeat(rows, k), size, 0)
    own = jax.device_put(jax.tree.map(lambda leaf: np.asarray(leaf)[index], own))
    x = pad_axis(np.repeat(np.asarray(points, np.float64), k, axis=0), size, 0)

    def features(part: Problem, x: jax.Array) -> jax.Array:
        return part.join(common).densities.features(x[None], np.dtype(np.float64))[0]

    phi = jax.vmap(features)(own, jax.device_put(x))
    labels = jax.device_put(np.eye(k)[np.arange(size) % k])
    refined = own._replace(sums=own.sums + labels[:, :, None] * phi[:, None])
    found = rule.find(refined.join(common), setup.per_set)
    log_evidence, error = (v[: n * k].reshape(n, k) for v in found)
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


def warn_sparse_tails(
    setup: Setup, problem: Problem, points: np.ndarray, data: Batch
) -> Bool[np.ndarray, " sets"]:
    """Warn about points whose densities few draws determine; return whose points are far.

    At most ``_MAX_CHECKED_SETS`` data sets are checked.
    """
    family = problem.prior.family
    (ends, beyond), (deep, between) = (f(points, data, family) for f in (outside, deepest))
    far = beyond | between
    checked = np.flatnonzero(far)[:_MAX_CHECKED_SETS]
    if not checked.size:
        return far
    at = np.concatenate([ends, deep], axis=1)[checked]
    with float64():
        size = 1 << (len(checked) - 1).bit_length()
        checked_sets = select(problem, setup, pad_axis(checked, size, 0))
        error = np.asarray(unresolved_masses(setup, checked_sets, pad_axis(at, size, 0)))
    error = error[: len(checked)].max(axis=1)
    bad = ~(error <= _MAX_PROB_ERROR)
    if bad.any():
        warn(
            f"few draws carry the densities at {_first(bad, at, of='farthest ')}: probabilities "
            f"may be off by {np.max(error[bad]):.1g}; see mcse, use integrator='quadrature' (up to "
            "three scalar parameters), or clip such points to the range of the data",
            SamplingWarning,
        )
    return far


def _first(bad: Bool[np.ndarray, "sets points"], x: np.ndarray, of: str = "") -> str:
    """Describe how many points (batch, m) are bad, and the first of them."""
    row, column = (int(i) for i in np.argwhere(bad)[0])
    point = x[min(row, len(x) - 1), column]
    shown = f"{point:g}" if np.ndim(point) == 0 else str(point)
    return f"{int(bad.sum())} of {bad.size} {of}points, the first x = {shown}"
