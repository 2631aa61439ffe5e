"""Compiled programs that predict for a batch of data sets at once.

Shared draws are averaged once for all data sets, as a matrix product. Otherwise a few data sets are
processed at a time. Points ``x`` are (batch, m, ...), or (1, m, ...) if all data sets share them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.execution.chunks import map_batch, parts_of, split
from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Float
from bayescal.inference._class_prior import ClassProbRule
from bayescal.inference.engine.averages import (
    Densities,
    WeightedDraws,
    in_blocks,
    in_chunks,
    linear,
)
from bayescal.inference.engine.condition import (
    Setup,
    alone,
    map_rows,
    realize,
    rows_at_once,
    select,
    sizes_differ,
    split_problem,
)
from bayescal.inference.engine.interpolate import Grid, interpolate, interpolation_error, make_grid
from bayescal.inference.integrators.base import Problem
from bayescal.models import Family

#: The types in which averages over draws are computed, and of the result.
DTypes: TypeAlias = tuple[np.dtype, np.dtype]
#: Arrays by their axes.
LogProbs: TypeAlias = 'Float[jax.Array, "sets classes points"]'


def _log_class_probabilities(
    setup: Setup, problem: Problem, method: str, x: jax.Array, common_rows: bool, dtype: np.dtype
) -> LogProbs:
    """Average unnormalized log class probabilities (batch, classes, m) over draws."""
    draws = realize(setup, problem) if setup.common_draws else None
    own_x, common_x = (None, x[0]) if len(x) == 1 else (x, None)
    average = partial(_average_part, setup, method, common_rows, dtype)
    return split_problem(average, problem, setup, own_x, (draws, common_x))


def _average_part(
    setup: Setup,
    method: str,
    common_rows: bool,
    dtype: np.dtype,
    problem: Problem,
    own_x: jax.Array | None,
    common: tuple[WeightedDraws | None, jax.Array | None],
) -> LogProbs:
    """Compute `_log_class_probabilities` for the data sets on one device."""
    common_draws, common_x = common
    batch = problem.sums.shape[0]
    # Class probabilities that are averaged together with the draws may differ between data sets.
    alike = common_rows and (method != "preds" or not problem.class_prior.per_data_set)
    alike &= "origin" not in setup.per_set
    if common_draws is not None and common_x is not None and alike and batch > 1:
        return _average_together(setup, method, dtype, problem, common_draws, common_x)

    def average(problem: Problem, own: jax.Array | None) -> Float[jax.Array, "classes points"]:
        points = common_x if own is None else own
        assert points is not None
        if method == "predictive":
            exact = setup.integrator.log_predictive(problem, points)
            if exact is not None:
                return exact + problem.class_prior.log_mean[:, None]
        draws = realize(setup, problem) if common_draws is None else common_draws
        weights = problem.weights_of(draws)[None]
        rule = problem.class_prior.rule(method, weights.shape[1])

        def mixture(part: jax.Array) -> Float[jax.Array, "classes points"]:
            given = method, draws.params, weights, part, rule, dtype
            return problem.densities.mixture(*given)[:, 0]

        return in_chunks(mixture, points)

    first = select(problem, setup, 0)
    draws = jax.eval_shape(lambda: realize(setup, first)).log_base.shape[0]
    x = common_x if own_x is None else own_x
    assert x is not None
    few = int(np.clip((1 << 17) // max(1, draws * min(x.shape[-1], 512)), 1, 32))
    return map_rows(average, problem, setup, own_x, min(few, batch))


def _average_together(
    setup: Setup, method: str, dtype: np.dtype, problem: Problem, draws: WeightedDraws, x: jax.Array
) -> LogProbs:
    """Average over draws that all data sets share, at points that they share."""
    batch = problem.sums.shape[0]

    def chunk(item: tuple[jax.Array, jax.Array | None]) -> jax.Array:
        weights, log_class_probs = item
        rule = problem.class_prior.rule(method, setup.size)
        if log_class_probs is not None:
            rule = ClassProbRule.at(log_class_probs.T)
        if problem.log_weights is None:
            weights = jax.vmap(lambda s: problem._replace(sums=s).weigh(draws)[0])(weights)

        def mixture(part: jax.Array) -> jax.Array:
            return problem.densities.mixture(method, draws.params, weights, part, rule, dtype)

        return in_chunks(mixture, x)

    rows = problem.sums if problem.log_weights is None else problem.log_weights
    log_mean = problem.class_prior.log_mean if problem.class_prior.per_data_set else None
    blocks = in_blocks((rows, log_mean), batch, rows_at_once(setup.size, batch))
    parts = jax.lax.map(chunk, blocks)
    return jnp.moveaxis(parts, 2, 1).reshape(-1, *parts.shape[1:2], x.shape[0])[:batch]


class Predicted(NamedTuple):
    """The result of the prediction programs.

    ``values`` are log odds (batch, m), or log probabilities (batch, m, k) for more than two
    classes. ``probs`` are the probabilities of class 1, or of all classes. ``miss`` and
    ``log_miss`` are the errors of interpolation in probability and in log odds, NaN if a point
    failed.
    """

    values: Float[jax.Array, " *values"]
    probs: Float[jax.Array, " *values"]
    miss: Float[jax.Array, ""]
    log_miss: Float[jax.Array, ""]


def normalize(log_probs: LogProbs, out: np.dtype) -> Predicted:
    """Normalize log class probabilities (batch, classes, m)."""
    if log_probs.shape[1] == 2:
        values = log_probs[:, 1] - log_probs[:, 0]
        probs = jax.nn.sigmoid(values)
    else:
        values = jnp.moveaxis(jax.nn.log_softmax(log_probs, axis=1), 1, 2)
        probs = jnp.exp(values)
    miss = jnp.where(jnp.isnan(values).any(), jnp.nan, 0.0)
    return Predicted(values.astype(out), probs.astype(out), miss, miss)


def predict_each(
    program: Callable[..., Predicted],
    setup: Setup,
    method: str,
    problem: Problem,
    x: jax.Array,
    *options: object,
) -> Predicted:
    """Call a program once for the batch, or for every data set if their sizes differ much."""
    if not sizes_differ(setup, problem):
        return program(setup, method, problem, x, *options)
    results = []
    for b in range(problem.sums.shape[0]):
        row = np.array([b])
        one, problem_of_one = alone(setup, problem, row)
        own_x = x if len(x) == 1 else x[row]
        results.append(program(one, method, problem_of_one, own_x, *options))
    values, probs, *misses = zip(*results, strict=True)
    worst = [np.max(np.stack(miss)) for miss in misses]
    return Predicted(*jax.device_put((np.concatenate(values), np.concatenate(probs), *worst)))


@partial(jax.jit, static_argnums=(0, 1, 4, 5))
def predict_exactly(
    setup: Setup, method: str, problem: Problem, x: jax.Array, common_rows: bool, dtypes: DTypes
) -> Predicted:
    """Average over the draws at every point."""
    log_probs = _log_class_probabilities(setup, problem, method, x, common_rows, dtypes[0])
    return normalize(log_probs, dtypes[1])


@partial(jax.jit, static_argnums=(0, 1, 6, 7))
def predict_by_nodes(
    setup: Setup,
    method: str,
    problem: Problem,
    x: Float[jax.Array, "rows points"],
    ends: Float[jax.Array, " 2"],
    bulk: Float[jax.Array, " 2"],
    intervals: int,
    dtypes: DTypes,
) -> Predicted:
    """Average over the draws at nodes only, and interpolate the log odds between them.

    ``ends`` are the lowest and the highest point of all data sets, including those of other
    processes; ``bulk`` is the result of ``center_and_scale`` for the points' coordinates.
    """
    family, (dtype, out) = problem.prior.family, dtypes
    z = family.coordinate(x.astype(jnp.result_type(float)), jax.numpy).astype(dtype)
    grid, nodes = make_grid(family.coordinate(ends, jax.numpy), bulk, intervals)
    points = family.from_coordinate(nodes, jax.numpy)[None]
    double = np.dtype(np.float64)
    log_probs = _log_class_probabilities(setup, problem, method, points, True, double)
    values = log_probs[:, 1] - log_probs[:, 0]
    miss, log_miss = jax.vmap(interpolation_error)(values)
    grid = jax.tree.map(lambda leaf: leaf.astype(dtype), grid)

    def interpolate_part(rows: tuple[jax.Array, jax.Array], grid: Grid) -> jax.Array:
        def curve(item: tuple[jax.Array, jax.Array]) -> jax.Array:
            return interpolate(grid, item[0].astype(dtype), item[1])

        return map_batch(curve, rows, rows[0].shape[0], 16)

    rows = values, jnp.broadcast_to(z, (len(values), z.shape[1]))
    log_odds = split(interpolate_part, rows, grid, setup.parts)
    probs = jax.nn.sigmoid(log_odds).astype(out)
    return Predicted(log_odds.astype(out), probs, jnp.max(miss), jnp.max(log_miss))


@partial(jax.jit, static_argnums=(0, 5))
def predict_linear(
    family: Family,
    natural: Float[jax.Array, "sets classes features"],
    x: jax.Array,
    origins: Float[jax.Array, "sets ..."],
    log_class_probs: Float[jax.Array, "*sets classes"],
    dtypes: DTypes,
) -> Predicted:
    """Evaluate the optimal model at coefficients (batch, classes, p) at points ``x``.

    Log class probabilities are (classes,), or (batch, classes) if they differ between data sets.
    """

    def evaluate(rows: tuple[jax.Array, ...], _: None) -> jax.Array:
        def evaluate_set(item: tuple[jax.Array, ...]) -> jax.Array:
            coefficients, log_class_probs, points, origin = item

            def chunk(points: jax.Array) -> Float[jax.Array, "classes points"]:
                phi = Densities(family, origin).features(points, coefficients.dtype)
                centered = coefficients - coefficients[:1]
                return (linear(centered, phi) + log_class_probs[:, None]).astype(dtypes[0])

            return in_chunks(chunk, points, 1 << 14)

        return jax.lax.map(evaluate_set, rows)

    batch = natural.shape[0]
    all_x = jnp.broadcast_to(x, (batch, *x.shape[1:]))
    rows = natural, jnp.broadcast_to(log_class_probs, natural.shape[:2]), all_x, origins
    return normalize(split(evaluate, rows, None, parts_of(batch)), dtypes[1])
