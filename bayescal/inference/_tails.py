"""Predictions far from the data, where draws, or the box of a rule, say little.

The density of a new point is a ratio of evidences, with one more observation and without. Far away
its integrand lies elsewhere than the posterior.
"""

from __future__ import annotations

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.numerics import log_softmax, sigmoid
from bayescal._core.padding import pad_axis, padded_length
from bayescal._core.precision import float64
from bayescal._core.warnings import AccuracyWarning, SamplingWarning
from bayescal.data.checks import Batch
from bayescal.inference._uncertainty import unseen
from bayescal.inference.engine.averages import (
    finite_features,
    in_chunks,
    linear,
    natural_block,
    weigh,
)
from bayescal.inference.engine.condition import Setup, map_rows, select
from bayescal.inference.integrators.base import Problem
from bayescal.inference.integrators.quadrature.rule import Quadrature
from bayescal.models import Family

#: In log odds: where a box's ends and rounding may matter more, points get boxes of their own.
CLOSE = 1e-7
#: Errors of log odds (relative to 1 + their size) and of probabilities that warn.
_LARGE, _VISIBLE = 1e-6, 0.01
#: So many data sets are looked at before draws warn, and so many points integrated at once.
_LOOKED_AT, _AT_ONCE = 16, 1024
#: Nodes for each parameter that tell whether a rule's box is closed.
_FEW = 16


def farthest(points: np.ndarray, data: Batch) -> np.ndarray | None:
    """Return the two points farthest out on either side of each row (rows, m[, d]).

    None if all are within the data's range and as much again on each side.
    """
    seen = data.x[data.mask]
    if not len(seen):
        seen = points[0]
    low, high = seen.min(axis=0), seen.max(axis=0)
    with np.errstate(over="ignore"):
        out = (points - (low + high) / 2) / np.where(high > low, high - low, 1)
    sides = np.stack([out, -out]).reshape(2, *points.shape[:2], -1).max(axis=-1)
    if data.mask.any() and sides.max() <= 1.5:
        return None
    index = sides.argmax(axis=2).T
    return points[np.arange(len(points))[:, None], index]


def deepest(points: np.ndarray, data: Batch, family: Family) -> np.ndarray | None:
    """Return the point (batch, 1[, d]) that is farthest from all classes of each data set.

    None if all are within the widest class's range, once more, of a class: in gaps between tight
    classes, too, the densities hang on parameters that are hardly drawn.
    """
    index, far, points = np.zeros(len(data.x), int), False, points[: len(data.x)]
    rows, own = points, data.x
    if family.univariate:
        rows, own = family.coordinate(points, np)[..., None], family.coordinate(own, np)[..., None]
    member = (data.y[..., None] == np.arange(family.classes)) & data.mask[..., None]
    inside = [np.where(member[..., None], own[:, :, None], end) for end in (np.inf, -np.inf)]
    low, high = inside[0].min(axis=1), inside[1].max(axis=1)
    width = np.max(np.where(high >= low, high - low, 0), axis=1, keepdims=True)
    least, most = rows.min(axis=1), rows.max(axis=1)
    # Within one width of the outermost classes, which are no more than two apart, all are near.
    first, last = np.where(high >= low, high, np.inf), np.where(high >= low, low, -np.inf)
    near = last.max(axis=1) - first.min(axis=1) <= 2 * width[:, 0]
    near &= (least >= low.min(axis=1) - width[:, 0]) & (most <= high.max(axis=1) + width[:, 0])
    several = (member.sum(axis=1) > 1).any(axis=1)
    for b in np.flatnonzero(several & ~near.all(axis=1)):
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
) -> np.ndarray:
    """Return ``left_out`` at the ends of univariate points and in gaps, elsewhere at all points."""
    if points.ndim > 2:
        return left_out(setup, problem, points)
    ends = np.stack([points.min(axis=1), points.max(axis=1)], 1)
    if deep is not None:
        ends = np.concatenate([np.broadcast_to(ends, (len(deep), 2)), deep], axis=1)
    return left_out(setup, problem, ends)


def improve(
    setup: Setup, problem: Problem, values: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Integrate anew where the ends of quadrature's box matter.

    Values are log odds (batch, m), or log probabilities (batch, m, k), at points (1 or batch, m[,
    d]). Returns better ones, and the errors (batch, m) of log odds by ends and rounding.
    """
    count, m = values.shape[:2]
    nats = np.array(left_out(setup, problem, points)[:count, :m])
    rows, columns = np.nonzero(~(nats <= CLOSE))
    values = np.array(values, np.float64)
    for start in range(0, len(rows), _AT_ONCE):
        at = rows[start : start + _AT_ONCE], columns[start : start + _AT_ONCE]
        x = points[np.minimum(at[0], len(points) - 1), at[1]]
        log_probs, error = _observe(setup, problem, at[0], x)
        with np.errstate(invalid="ignore"):
            new = log_probs[:, 1] - log_probs[:, 0] if values.ndim == 2 else log_softmax(log_probs)
        better = ~(error >= nats[at]) & (error < np.inf)
        values[at] = np.where(better if values.ndim == 2 else better[:, None], new, values[at])
        # Much at an end says that the whole integrand may lie beyond.
        nats[at] = np.where(better, error, np.where(nats[at] < 1e-3, nats[at], np.inf))
    return values, nats


def warn_of_large(nats: np.ndarray, values: np.ndarray, points: np.ndarray) -> None:
    """Warn of values that may be off by so much, as ``improve`` returns them."""
    size = np.abs(values if values.ndim == 2 else values.max(axis=-1))
    bad = ~(nats <= _LARGE * (1 + size))
    if bad.any():
        most = np.max(nats[bad])
        what = f"log odds may be off by {most:.1g}" if most < np.inf else "log odds are unknown"
        warnings.warn(
            f"{what} at {_first(bad, points)}: so far from the data the integration or rounding "
            "fails; leave such points out, or clip them to the range of the data",
            AccuracyWarning,
            stacklevel=4,
        )


def left_out(setup: Setup, problem: Problem, x: np.ndarray) -> np.ndarray:
    """Return about how much of the log odds (batch, m) lies outside a rule's box, and rounding."""
    padded = pad_axis(x.astype(np.float64), padded_length(x.shape[1]), 1)
    if len(x) > 1:
        padded = pad_axis(padded, len(problem.sums), 0)
    return np.asarray(_height_at_ends(setup, problem, jax.device_put(padded)))


@partial(jax.jit, static_argnums=0)
def _height_at_ends(setup: Setup, problem: Problem, x: jax.Array) -> jax.Array:
    rule, family = setup.integrator, problem.prior.family
    assert isinstance(rule, Quadrature)

    def one(problem: Problem, row: jax.Array | None) -> jax.Array:
        nodes = rule.realise(problem, _FEW)
        log_weights = weigh(family, nodes, problem.sums, problem.origin)[0]
        natural = natural_block(family, nodes.params, problem.origin, log_weights.dtype)
        outermost = rule.outermost(problem, _FEW)[:, None]

        def part(points: jax.Array) -> jax.Array:
            phi = finite_features(family, points, problem.origin, log_weights.dtype)
            heights = linear(natural, phi) + log_weights[:, None]
            top = jnp.max(heights, axis=1)
            end = jnp.max(jnp.where(outermost, heights, -jnp.inf), axis=1)
            rounding = jnp.finfo(top.dtype).eps * jnp.max(jnp.abs(top), axis=0)
            # What lies beyond is about as much as the outermost cell: four times is safe.
            return 4 * jnp.exp(end - top).sum(axis=0) + rounding

        return in_chunks(part, x[0] if row is None else row, 64)

    return map_rows(one, problem, setup, None if len(x) == 1 else x, 16)


def _observe(
    setup: Setup, problem: Problem, rows: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Integrate anew with each point (n[, d]) as one more observation of each class.

    Returns the log of the class probabilities (n, classes), unnormalised, and the error of their
    differences (n,), infinite where the rule fails.
    """
    rule, family, n = setup.integrator, problem.prior.family, len(rows)
    assert isinstance(rule, Quadrature)
    k = family.classes
    phi = np.asarray(
        finite_features(family, jnp.asarray(points), problem.origin, np.dtype(np.float64))
    )
    more = np.eye(k)[:, :, None] * phi[:, None, None, :]
    sums = (np.asarray(problem.sums)[rows][:, None] + more).reshape(n * k, k, -1)
    size = max(16, 1 << (n * k - 1).bit_length())
    prior = problem.prior
    if setup.stacked:
        own = pad_axis(np.repeat(rows, k), size, 0)
        prior = jax.tree.map(lambda leaf: np.asarray(leaf)[own], prior)
    arrays = jax.device_put((prior, pad_axis(sums, size, 0)))
    again = problem._replace(prior=arrays[0], sums=arrays[1], draws=None, log_weights=None)
    log_evidence, error = (v[: n * k].reshape(n, k) for v in rule.find(again, setup.stacked))
    log_shares = np.asarray(problem.class_prior.log_mean)
    log_evidence = log_evidence + (log_shares[rows] if problem.class_prior.each else log_shares)
    # Rounding of sums of terms that are larger than their sum.
    error = np.where(error < 0.5, error + 1e-13 * np.abs(log_evidence), np.inf).sum(axis=1)
    return log_evidence, np.where(np.isnan(error), np.inf, error)


def shift(log_odds: np.ndarray, nats: np.ndarray) -> np.ndarray:
    """Return how far probabilities move, at most, if log odds are wrong by so many ``nats``."""
    log_odds, p = log_odds.astype(np.float64), sigmoid(log_odds.astype(np.float64))
    moved = np.maximum(sigmoid(log_odds + nats) - p, p - sigmoid(log_odds - nats))
    return np.where(nats < np.inf, moved, np.maximum(p, 1 - p))


def look(setup: Setup, problem: Problem, points: np.ndarray, data: Batch) -> bool:
    """Warn of points where few draws carry densities, and say whether any are far."""
    count = min(len(data.x), _LOOKED_AT)
    some = Batch(data.x[:count], data.y[:count], data.mask[:count], data.single)
    found = [farthest(points, data), deepest(points, some, problem.prior.family)]
    found = [own for own in found if own is not None]
    if not found:
        return False
    rows = max(len(own) for own in found)
    far = np.concatenate([own[np.minimum(np.arange(rows), len(own) - 1)] for own in found], axis=1)
    with float64():
        error = np.stack(
            [
                np.asarray(unseen(setup, select(problem, setup, b), far[min(b, len(far) - 1)]))
                for b in range(count)
            ]
        ).max(axis=1)
    bad = ~(error <= _VISIBLE)
    if bad.any():
        warnings.warn(
            f"few draws carry the densities at {_first(bad, far, of='farthest ')}: probabilities "
            f"may be off by {np.max(error[bad]):.1g}; see mcse, use integrator='quadrature' (up to "
            "three scalar parameters), or clip such points to the range of the data",
            SamplingWarning,
            stacklevel=4,
        )
    return True


def _first(bad: np.ndarray, x: np.ndarray, of: str = "") -> str:
    """Say at how many points (batch, m), and at which first."""
    row, column = (int(i) for i in np.argwhere(bad)[0])
    point = x[min(row, len(x) - 1), column]
    shown = f"{point:g}" if np.ndim(point) == 0 else str(point)
    return f"{int(bad.sum())} of {bad.size} {of}points, the first x = {shown}"
