"""Predictions far from the data, where the draws or the box made for these say little.

The density of a new point is a ratio of evidences, with one more observation and without. Its
integrand lies elsewhere than the posterior where the point is far away.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import jax
import numpy as np

from bayescal._core.numerics import log_softmax, sigmoid
from bayescal._core.padding import pad_axis
from bayescal._core.warnings import AccuracyWarning, SamplingWarning
from bayescal.inference._averages import finite_features
from bayescal.inference._engine import Setup
from bayescal.inference._integrator import Problem
from bayescal.inference._predict import Predicted

#: In log odds: where a box's ends may matter more, a point gets boxes of its own.
CLOSE = 1e-9
#: In log odds: from there on predictions warn.
TOO_LARGE = 1e-6
#: Share of a class's density that one draw has, from which on errors are looked at.
HEAVY = 0.1


def is_rule(setup: Setup) -> bool:
    """Whether averages are over the nodes of a rule."""
    return bool(setup.integrator.coarser(setup.size))


def observe(
    setup: Setup, problem: Problem, rows: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Integrate anew with each point as one more observation of each class.

    Parameters
    ----------
    setup : Setup
        Of a rule.
    problem : Problem
    rows : array of shape (n,)
        The data set of each point.
    points : array of shape (n,) or (n, d)

    Returns
    -------
    tuple of arrays
        Log of the unnormalised class probabilities (n, classes), and the error of their
        differences (n,), infinite where the rule fails.
    """
    family, rule = problem.prior.family, setup.integrator.of_evidence()
    k, n = family.classes, len(rows)
    phi = np.asarray(finite_features(family, points, problem.origin, np.dtype(np.float64)))
    more = np.eye(k)[:, :, None] * phi[:, None, None, :]
    sums = (np.asarray(problem.sums)[rows][:, None] + more).reshape(n * k, k, -1)
    size = 1 << (n * k - 1).bit_length()
    own = pad_axis(np.repeat(rows, k), size, 0)
    prior = problem.prior
    if setup.stacked:
        prior = jax.tree.map(lambda leaf: np.asarray(leaf)[own], prior)
    arrays = jax.device_put((prior, pad_axis(sums, size, 0)))
    again = problem._replace(prior=arrays[0], sums=arrays[1], draws=None, log_weights=None)
    state = rule.prepare(again, jax.random.key(0), 0, setup.stacked)
    stated, noise = rule.stated(state), rule.rounding(again._replace(state=state), setup.stacked)
    assert stated is not None and noise is not None
    log_evidence, error = (np.asarray(v)[: n * k].reshape(n, k) for v in stated)
    noise = np.asarray(noise)[: n * k].reshape(n, k)
    known = np.isfinite(log_evidence) & (error < 0.5)
    error = np.where(known, error + noise, np.inf).sum(axis=1)
    return log_evidence + np.asarray(problem.log_class_prior), error


class Better(NamedTuple):
    """Log odds (batch, m) or log probabilities (batch, m, k), and doubts as in ``Predicted``."""

    values: np.ndarray
    share: np.ndarray
    noise: np.ndarray


def improve(
    setup: Setup, problem: Problem, found: Predicted, x: np.ndarray, count: int
) -> Better | None:
    """Integrate anew where the ends of a rule's box matter, or return None where they do not.

    Parameters
    ----------
    setup, problem : Setup, Problem
    found : Predicted
        At points, or at nodes between which log odds are interpolated.
    x : array of shape (1 or count, m[, d])
        These points, or nodes.
    count : int
        Number of data sets, without padding.
    """
    if not is_rule(setup):
        return None
    share, noise = np.array(found.share), np.array(found.noise)
    m = x.shape[1]
    rows, columns = np.nonzero(~((share + noise)[:count, :m] <= CLOSE))
    if not len(rows):
        return None
    values = np.array(found.values if found.log_odds is None else found.log_odds, np.float64)
    points = x[np.minimum(rows, len(x) - 1), columns]
    log_probs, error = observe(setup, problem, rows, points)
    with np.errstate(invalid="ignore"):
        new = log_probs[:, 1] - log_probs[:, 0] if values.ndim == 2 else log_softmax(log_probs)
    old = share[rows, columns] + noise[rows, columns]
    better = ~(error >= old) & (error < np.inf)
    values[rows[better], columns[better]] = new[better]
    # Much at an end says that the whole integrand may lie beyond.
    unknown = np.where(old < 1e-3, old, np.inf)
    share[rows, columns] = np.where(better, np.maximum(error, 2 * CLOSE), unknown)
    noise[rows, columns] = 0
    return Better(values, share, noise)


def doubts(found: Predicted, points: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``share`` and ``noise`` (count, m) at points (1 or count, m[, d]).

    Between nodes they are the larger one of the two beside the point; the largest of all where
    that is so small that it does not matter.
    """
    m = points.shape[1]
    share, noise = np.asarray(found.share)[:count], np.asarray(found.noise)[:count]
    if found.nodes is None:
        return share[:, :m], noise[:, :m]
    if share.max() <= CLOSE and noise.max() <= CLOSE:
        shape = count, m
        return np.broadcast_to(share.max(), shape), np.broadcast_to(noise.max(), shape)
    nodes = np.asarray(found.nodes)
    left = np.clip(np.searchsorted(nodes, points) - 1, 0, len(nodes) - 2)
    rows = np.arange(count)[:, None]
    return (
        np.maximum(share[rows, left], share[rows, left + 1]),
        np.maximum(noise[rows, left], noise[rows, left + 1]),
    )


def shift(log_odds: np.ndarray, nats: np.ndarray) -> np.ndarray:
    """Return how far probabilities move, at most, if log odds are wrong by so many ``nats``."""
    most = np.finfo(np.float64).max
    log_odds = np.clip(np.nan_to_num(log_odds.astype(np.float64)), -most, most)
    nats = np.where(np.isnan(nats), np.inf, nats)
    p = sigmoid(log_odds)
    return np.maximum(sigmoid(log_odds + nats) - p, p - sigmoid(log_odds - nats))


def _first(bad: np.ndarray, x: np.ndarray) -> str:
    """Say at how many points (batch, m), and at which first."""
    row, column = (int(i) for i in np.argwhere(bad)[0])
    point = x[min(row, len(x) - 1), column]
    where = f"position {column}" + (f" of data set {row}" if len(bad) > 1 else "")
    shown = f"{point:g}" if np.ndim(point) == 0 else str(point)
    return f"{int(bad.sum())} of {bad.size} points, the first at {where} (x = {shown})"


def warn_of_rule(bad: np.ndarray, x: np.ndarray, nats: float) -> None:
    """Warn that log odds (batch, m) are off by up to ``nats``."""
    warnings.warn(
        f"log odds may be off by {nats:.1g} at {_first(bad, x)}: so far from the data the "
        "integration or rounding fails; mcse says what this does to probabilities; leave such "
        "points out, or clip them to the range of the data",
        AccuracyWarning,
        stacklevel=4,
    )


def warn_of_draws(bad: np.ndarray, x: np.ndarray, error: float) -> None:
    """Warn that probabilities (batch, m) are off by up to ``error``."""
    warnings.warn(
        f"few draws carry the densities at {_first(bad, x)}, so far from the data that "
        f"probabilities may be off by {error:.1g}; see mcse, use integrator='quadrature' (up to "
        "three scalar parameters), or clip such points to the range of the data",
        SamplingWarning,
        stacklevel=4,
    )
