"""Compiled programs that predict for a batch of data sets at once.

Shared draws are averaged once for all data sets, as a matrix product. Otherwise a few data sets are
processed at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from bayescal._core.execution.chunks import map_batch, parts_of, split
from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Float
from bayescal.inference._class_prior import ClassProbRule
from bayescal.inference.engine.averages import (
    WeightedDraws,
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
    realize,
    rows_at_once,
    select,
    sizes_differ,
    split_problem,
    weights_of,
)
from bayescal.inference.engine.interpolate import Grid, interpolate, interpolation_error, make_grid
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
) -> Float[jax.Array, "sets classes points"]:
    """Average unnormalized log class probabilities (batch, classes, m) over draws.

    ``x`` is (m, ...) if ``shared_x``, else (batch, m, ...).
    """
    common = realize(setup, problem) if setup.common_draws else None

    def part(
        problem: Problem,
        batch_x: jax.Array | None,
        rest: tuple[WeightedDraws | None, jax.Array | None],
    ) -> jax.Array:
        common, common_x = rest
        points = common_x if batch_x is None else batch_x
        assert points is not None
        given = setup, problem, method, points, batch_x is None, common_rows, dtype
        return _average_part(*given, common)

    batch_x, common_x = (None, x) if shared_x else (x, None)
    return split_problem(part, problem, setup, batch_x, (common, common_x))


def _average_part(
    setup: Setup,
    problem: Problem,
    method: str,
    x: jax.Array,
    shared_x: bool,
    common_rows: bool,
    dtype: np.dtype,
    common: WeightedDraws | None,
) -> Float[jax.Array, "sets classes points"]:
    """Compute `_log_class_probabilities` for the data sets on one device."""
    family = problem.prior.family
    batch = problem.sums.shape[0]
    # Class probabilities that are averaged together with the draws differ between data sets.
    alike = method != "preds" or not problem.class_prior.per_data_set
    if common is not None and shared_x and common_rows and batch > 1 and alike:
        rows = rows_at_once(setup.size, batch)

        def chunk(item: tuple[jax.Array, jax.Array | None]) -> jax.Array:
            block, log_class_probs = item
            weights = block
            rule = problem.class_prior.rule(method, setup.size)
            if log_class_probs is not None:
                rule = ClassProbRule.at(log_class_probs.T)
            if problem.log_weights is None:
                weights = jax.vmap(lambda s: weigh(family, common, s, problem.origin)[0])(block)
            return in_chunks(
                lambda part: mixture(
                    family, method, common.params, weights, part, problem.origin, rule, dtype
                ),
                x,
            )

        rows_of = problem.sums if problem.log_weights is None else problem.log_weights
        log_mean = problem.class_prior.log_mean if problem.class_prior.per_data_set else None
        parts = jax.lax.map(chunk, in_blocks((rows_of, log_mean), batch, rows))
        return jnp.moveaxis(parts, 2, 1).reshape(-1, *parts.shape[1:2], x.shape[0])[:batch]

    def average(
        problem: Problem, row: Float[jax.Array, " points *dimensions"] | None
    ) -> Float[jax.Array, "classes points"]:
        points = x if row is None else row
        exact = None
        if method == "predictive":
            exact = setup.integrator.log_predictive(problem, points)
        if exact is not None:
            return exact + problem.class_prior.log_mean[:, None]
        draws = realize(setup, problem) if common is None else common
        weights = weights_of(problem, draws)[None]
        rule = problem.class_prior.rule(method, weights.shape[1])
        return in_chunks(
            lambda part: mixture(
                family, method, draws.params, weights, part, problem.origin, rule, dtype
            )[:, 0],
            points,
        )

    alone = select(problem, setup, 0)
    draws = jax.eval_shape(lambda: realize(setup, alone)).log_base.shape[0]
    few = int(np.clip((1 << 17) // max(1, draws * min(x.shape[-1], 512)), 1, 32))
    return map_rows(average, problem, setup, None if shared_x else x, min(few, batch))


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


def normalize(log_probs: Float[jax.Array, "sets classes points"], out: np.dtype) -> Predicted:
    """Normalize log class probabilities (batch, classes, m)."""
    if log_probs.shape[1] == 2:
        return _from_log_odds(log_probs[:, 1] - log_probs[:, 0], out)
    values = jnp.moveaxis(jax.nn.log_softmax(log_probs, axis=1), 1, 2)
    miss = jnp.where(jnp.isnan(values).any(), jnp.nan, 0.0)
    return Predicted(values.astype(out), jnp.exp(values).astype(out), miss, miss)


def _from_log_odds(values: Float[jax.Array, "*sets points"], out: np.dtype) -> Predicted:
    miss = jnp.where(jnp.isnan(values).any(), jnp.nan, 0.0)
    return Predicted(values.astype(out), jax.nn.sigmoid(values).astype(out), miss, miss)


def predict_each(
    predict: Callable[[Setup, Problem, jax.Array], Predicted],
    setup: Setup,
    problem: Problem,
    x: jax.Array,
    shared_x: bool,
) -> Predicted:
    """Call ``predict`` once for the batch, or for every data set if their sizes differ much."""
    if not sizes_differ(setup, problem):
        return predict(setup, problem, x)
    results = []
    for b in range(problem.sums.shape[0]):
        row = np.array([b])
        results.append(predict(*alone(setup, problem, row), x if shared_x else x[row]))
    values, probs, *misses = zip(*results, strict=True)
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
    return normalize(
        _log_class_probabilities(setup, problem, method, x, shared_x, common_rows, dtype), out
    )


@partial(jax.jit, static_argnums=(0, 1, 6, 7, 8, 9))
def predict_by_nodes(
    setup: Setup,
    method: str,
    problem: Problem,
    x: Float[jax.Array, "*own points"],
    ends: Float[jax.Array, " 2"],
    bulk: Float[jax.Array, " 2"],
    shared_x: bool,
    intervals: int,
    dtype: np.dtype,
    out: np.dtype,
) -> Predicted:
    """Average over the draws at nodes only, and interpolate the log odds between them.

    ``ends`` are the lowest and the highest point of all data sets, including those of other
    processes; ``bulk`` is the result of ``center_and_scale`` for the points' coordinates.
    """
    family = problem.prior.family
    z = family.coordinate(x.astype(jnp.result_type(float)), jax.numpy)
    grid, nodes = make_grid(family.coordinate(ends, jax.numpy), bulk, intervals)
    points = family.from_coordinate(nodes, jax.numpy)
    log_probs = _log_class_probabilities(
        setup, problem, method, points, True, True, np.dtype(np.float64)
    )
    values = log_probs[:, 1] - log_probs[:, 0]
    miss, log_miss = jax.vmap(interpolation_error)(values)
    z = z.astype(dtype)
    grid = jax.tree.map(lambda leaf: leaf.astype(dtype), grid)

    def interpolate_part(
        rows: tuple[jax.Array, jax.Array | None], common: tuple[Grid, jax.Array | None]
    ) -> tuple[jax.Array, jax.Array]:
        grid, common_z = common

        def curve(item: tuple[jax.Array, jax.Array | None]) -> tuple[jax.Array, jax.Array]:
            row, batch_z = item
            points = common_z if batch_z is None else batch_z
            assert points is not None
            result = _from_log_odds(interpolate(grid, row.astype(dtype), points), out)
            return result.values, result.probs

        return map_batch(curve, rows, rows[0].shape[0], 16)

    batch_z, common_z = (None, z) if shared_x else (z, None)
    log_odds, probs = split(interpolate_part, (values, batch_z), (grid, common_z), setup.parts)
    return Predicted(log_odds, probs, jnp.max(miss), jnp.max(log_miss))


@partial(jax.jit, static_argnums=(0, 5, 6, 7))
def predict_linear(
    family: Family,
    natural: Float[jax.Array, "sets classes features"],
    x: jax.Array,
    origin: jax.Array,
    log_class_probs: Float[jax.Array, "*sets classes"],
    shared_x: bool,
    dtype: np.dtype,
    out: np.dtype,
) -> Predicted:
    """Evaluate the optimal model at coefficients (batch, classes, p) at points ``x``.

    Log class probabilities are (classes,), or (batch, classes) if they differ between data sets.
    """

    def evaluate(
        rows: tuple[jax.Array, jax.Array, jax.Array | None],
        common: tuple[jax.Array | None, jax.Array],
    ) -> jax.Array:
        common_x, origin = common

        def evaluate_set(item: tuple[jax.Array, jax.Array, jax.Array | None]) -> jax.Array:
            coefficients, log_class_probs, batch_x = item
            points = common_x if batch_x is None else batch_x
            assert points is not None

            def chunk(points: jax.Array) -> Float[jax.Array, "classes points"]:
                phi = finite_features(family, points, origin, coefficients.dtype)
                centered = coefficients - coefficients[:1]
                return (linear(centered, phi) + log_class_probs[:, None]).astype(dtype)

            return in_chunks(chunk, points, 1 << 14)

        return jax.lax.map(evaluate_set, rows)

    batch_x, common_x = (None, x) if shared_x else (x, None)
    rows = natural, jnp.broadcast_to(log_class_probs, natural.shape[:2]), batch_x
    return normalize(split(evaluate, rows, (common_x, origin), parts_of(natural.shape[0])), out)
