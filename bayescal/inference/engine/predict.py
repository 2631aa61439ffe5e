"""The compiled programs that predict, for a batch of data sets at once.

What data sets share is computed once: an average over shared draws is a matrix product. Otherwise
data sets are taken a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.chunks import map_batch, parts_of, split
from bayescal.inference._class_prior import Shares
from bayescal.inference.engine.averages import (
    Draws,
    finite_features,
    in_blocks,
    in_chunks,
    linear,
    mixture,
    weigh,
)
from bayescal.inference.engine.condition import (
    Setup,
    alone,
    map_rows,
    realise,
    rows_at_once,
    select,
    sizes_differ,
    split_problem,
    weights_of,
)
from bayescal.inference.engine.interpolate import interpolate, interpolation_error, make_grid
from bayescal.inference.integrators.base import Problem
from bayescal.models import Family


def _log_class_probabilities(
    setup: Setup,
    problem: Problem,
    method: str,
    x: jax.Array,
    shared_x: bool,
    common_rows: bool,
    dtype: np.dtype,
) -> jax.Array:
    """Return unnormalised log class probabilities (batch, classes, m), averaged over draws.

    ``x`` is (m, ...) where ``shared_x``, else (batch, m, ...).
    """
    common = realise(setup, problem) if setup.common_draws else None

    def part(problem: Problem, own: jax.Array | None, rest: Any) -> jax.Array:
        common, shared = rest
        points = shared if own is None else own
        given = setup, problem, method, points, own is None, common_rows, dtype
        return _of_some(*given, common)

    own, shared = (None, x) if shared_x else (x, None)
    return split_problem(part, problem, setup, own, (common, shared))


def _of_some(
    setup: Setup,
    problem: Problem,
    method: str,
    x: jax.Array,
    shared_x: bool,
    common_rows: bool,
    dtype: np.dtype,
    common: Draws | None,
) -> jax.Array:
    """Do so for the data sets that are there."""
    family = problem.prior.family
    batch = problem.sums.shape[0]
    # Shares that are averaged over with the draws are each data set's own.
    alike = method != "preds" or not problem.class_prior.each
    if common is not None and shared_x and common_rows and batch > 1 and alike:
        rows = rows_at_once(setup.size, batch)

        def chunk(item: tuple[jax.Array, jax.Array | None]) -> jax.Array:
            block, log_shares = item
            weights = block
            shares = problem.class_prior.rule(method, setup.size)
            if log_shares is not None:
                shares = Shares.at(log_shares.T)
            if problem.log_weights is None:
                weights = jax.vmap(lambda s: weigh(family, common, s, problem.origin)[0])(block)
            return in_chunks(
                lambda part: mixture(
                    family, method, common.params, weights, part, problem.origin, shares, dtype
                ),
                x,
            )

        each = problem.sums if problem.log_weights is None else problem.log_weights
        own = problem.class_prior.log_mean if problem.class_prior.each else None
        parts = jax.lax.map(chunk, in_blocks((each, own), batch, rows))
        return jnp.moveaxis(parts, 2, 1).reshape(-1, *parts.shape[1:2], x.shape[0])[:batch]

    def one(problem: Problem, row: jax.Array | None) -> jax.Array:
        points = x if row is None else row
        exact = None
        if method == "predictive":
            exact = setup.integrator.log_predictive(problem, points)
        if exact is not None:
            return exact + problem.class_prior.log_mean[:, None]
        draws = realise(setup, problem) if common is None else common
        weights = weights_of(problem, draws)[None]
        shares = problem.class_prior.rule(method, weights.shape[1])
        return in_chunks(
            lambda part: mixture(
                family, method, draws.params, weights, part, problem.origin, shares, dtype
            )[:, 0],
            points,
        )

    alone = select(problem, setup, 0)
    draws = jax.eval_shape(lambda: realise(setup, alone)).log_base.shape[0]
    few = int(np.clip((1 << 17) // max(1, draws * min(x.shape[-1], 512)), 1, 32))
    return map_rows(one, problem, setup, None if shared_x else x, min(few, batch))


class Predicted(NamedTuple):
    """What the programs return.

    Values are log odds (batch, m), or log probabilities (batch, m, k) of more than two classes;
    then come probabilities of class 1, or of all, and the errors in probability and in log odds of
    interpolation, NaN where a point failed.
    """

    values: jax.Array
    probs: jax.Array
    miss: jax.Array
    log_miss: jax.Array


def normalise(log_probs: jax.Array, out: np.dtype) -> Predicted:
    """Normalise log class probabilities (batch, classes, m)."""
    if log_probs.shape[1] == 2:
        return _from_log_odds(log_probs[:, 1] - log_probs[:, 0], out)
    values = jnp.moveaxis(jax.nn.log_softmax(log_probs, axis=1), 1, 2)
    miss = jnp.where(jnp.isnan(values).any(), jnp.nan, 0.0)
    return Predicted(values.astype(out), jnp.exp(values).astype(out), miss, miss)


def _from_log_odds(values: jax.Array, out: np.dtype) -> Predicted:
    miss = jnp.where(jnp.isnan(values).any(), jnp.nan, 0.0)
    return Predicted(values.astype(out), jax.nn.sigmoid(values).astype(out), miss, miss)


def predict_each(
    predict: Callable[[Setup, Problem, jax.Array], Predicted],
    setup: Setup,
    problem: Problem,
    x: jax.Array,
    shared_x: bool,
) -> Predicted:
    """Call ``predict`` for the batch, or one by one where data sets differ much in size."""
    if not sizes_differ(setup, problem):
        return predict(setup, problem, x)
    found = []
    for b in range(problem.sums.shape[0]):
        row = np.array([b])
        found.append(predict(*alone(setup, problem, row), x if shared_x else x[row]))
    values, probs, *misses = zip(*found, strict=True)
    worst = [np.max(np.stack(miss)) for miss in misses]
    return Predicted(*jax.device_put((np.concatenate(values), np.concatenate(probs), *worst)))


@partial(jax.jit, static_argnums=(0, 1, 4, 5, 6, 7))
def predict_exactly(
    setup: Setup,
    method: str,
    problem: Problem,
    x: jax.Array,
    shared_x: bool,
    common_rows: bool,
    dtype: np.dtype,
    out: np.dtype,
) -> Predicted:
    """Average over the draws at every point."""
    return normalise(
        _log_class_probabilities(setup, problem, method, x, shared_x, common_rows, dtype), out
    )


@partial(jax.jit, static_argnums=(0, 1, 6, 7, 8, 9))
def predict_by_nodes(
    setup: Setup,
    method: str,
    problem: Problem,
    x: jax.Array,
    ends: jax.Array,
    bulk: jax.Array,
    shared_x: bool,
    intervals: int,
    dtype: np.dtype,
    out: np.dtype,
) -> Predicted:
    """Average over the draws at nodes only, and interpolate the log odds between them.

    ``ends`` are the lowest and highest point of all data sets, those of other processes, too, and
    ``bulk`` is what ``centre_and_scale`` says of the points' coordinates.
    """
    family = problem.prior.family
    z = family.coordinate(x.astype(jnp.result_type(float)), jnp)
    grid, nodes = make_grid(family.coordinate(ends, jnp), bulk, intervals)
    points = family.from_coordinate(nodes, jnp)
    log_probs = _log_class_probabilities(
        setup, problem, method, points, True, True, np.dtype(np.float64)
    )
    values = log_probs[:, 1] - log_probs[:, 0]
    miss, log_miss = jax.vmap(interpolation_error)(values)
    z = z.astype(dtype)
    grid = jax.tree.map(lambda leaf: leaf.astype(dtype), grid)

    def some(each: Any, common: Any) -> tuple[jax.Array, jax.Array]:
        grid, z = common

        def one(item: tuple[jax.Array, jax.Array | None]) -> tuple[jax.Array, jax.Array]:
            row, own = item
            points = z if own is None else own
            found = _from_log_odds(interpolate(grid, row.astype(dtype), points), out)
            return found.values, found.probs

        return map_batch(one, each, each[0].shape[0], 16)

    own, shared = (None, z) if shared_x else (z, None)
    log_odds, probs = split(some, (values, own), (grid, shared), setup.parts)
    return Predicted(log_odds, probs, jnp.max(miss), jnp.max(log_miss))


@partial(jax.jit, static_argnums=(0, 5, 6, 7))
def predict_linear(
    family: Family,
    natural: jax.Array,
    x: jax.Array,
    origin: jax.Array,
    log_shares: jax.Array,
    shared_x: bool,
    dtype: np.dtype,
    out: np.dtype,
) -> Predicted:
    """Evaluate the optimal model at coefficients (batch, classes, p) and shares (classes,).

    Or at shares (batch, classes) of each data set.
    """

    def some(each: Any, common: Any) -> jax.Array:
        shared, origin = common

        def one(item: tuple[jax.Array, jax.Array, jax.Array | None]) -> jax.Array:
            coefficients, log_shares, own = item

            def chunk(points: jax.Array) -> jax.Array:
                phi = finite_features(family, points, origin, coefficients.dtype)
                centred = coefficients - coefficients[:1]
                return (linear(centred, phi) + log_shares[:, None]).astype(dtype)

            return in_chunks(chunk, shared if own is None else own, 1 << 14)

        return jax.lax.map(one, each)

    own, shared = (None, x) if shared_x else (x, None)
    each = natural, jnp.broadcast_to(log_shares, natural.shape[:2]), own
    return normalise(split(some, each, (shared, origin), parts_of(natural.shape[0])), out)
