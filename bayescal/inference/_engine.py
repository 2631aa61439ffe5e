"""The compiled programs: condition on data, and predict, for a batch of data sets.

Each is one ``jit`` over the whole batch.  Draws that data sets share are made once, and averages
over them are matrix products; otherwise data sets are taken a few at a time.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.interpolate import interpolate, left_out_error, make_grid
from bayescal._core.numerics import effective_sample_size, normalise_log_weights
from bayescal._core.structure import cached_by_structure
from bayescal.inference._diagnostics import pareto_k
from bayescal.inference._draws import Draws, in_blocks, log_likelihood
from bayescal.inference._integrator import Integrator
from bayescal.inference._mixture import in_chunks, linear, mixture
from bayescal.models import Family, Prior

_ROWS_TIMES_DRAWS = 1 << 23
_KEPT_NUMBERS = 1 << 25


class Problem(NamedTuple):
    """What the compiled programs take: a prior, an integrator's state and the data's sums.

    Drawing is compiled once where the draws fit in memory; what follows takes them as arrays.

    Attributes
    ----------
    prior : Prior
        With a leading axis of data sets on its leaves where ``Setup.stacked``.
    state : pytree
        The integrator's, with a leading axis of data sets unless it is shared.
    sums : array of shape (batch, classes, p)
    origin : array
    log_class_prior : array of shape (classes,)
    draws : Draws or None
        Draws already made, with a leading axis of data sets unless they are common.
    """

    prior: Prior
    state: Any
    sums: jax.Array
    origin: jax.Array
    log_class_prior: jax.Array
    draws: Draws | None = None


class Setup(NamedTuple):
    """The static side of a problem, which selects the compiled program."""

    integrator: Integrator
    size: int
    stacked: bool

    @property
    def common_draws(self) -> bool:
        """Whether all data sets have the same draws."""
        return self.integrator.shared and not self.stacked


class Summary(NamedTuple):
    """One entry for each data set.

    Attributes
    ----------
    log_evidence, ess, pareto_k : arrays of shape (batch,)
    mean : array of shape (batch, classes, p)
        Posterior mean of the coefficients.
    """

    log_evidence: Any
    ess: Any
    pareto_k: Any
    mean: Any


def rows_at_once(size: int, batch: int) -> int:
    """Return how many data sets' weights are held at once."""
    return int(np.clip(_ROWS_TIMES_DRAWS // size, 1, min(batch, 64)))


def select(problem: Problem, setup: Setup, b: int) -> Problem:
    """Return the problem of data set ``b`` alone."""
    mapped = _mapped(problem, setup)
    return _rejoin(problem, setup, jax.tree.map(lambda leaf: leaf[b], mapped))


def _mapped(problem: Problem, setup: Setup) -> Problem:
    """Return the parts of a problem that have an axis of data sets; None for the others."""
    return Problem(
        problem.prior if setup.stacked else None,  # type: ignore[arg-type]
        None if setup.integrator.shared else problem.state,
        problem.sums,
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        None if setup.common_draws else problem.draws,
    )


def _rejoin(problem: Problem, setup: Setup, row: Problem) -> Problem:
    """Put one data set's parts beside those that all data sets share."""
    return problem._replace(
        prior=row.prior if setup.stacked else problem.prior,
        state=problem.state if setup.integrator.shared else row.state,
        sums=row.sums,
        draws=problem.draws if setup.common_draws else row.draws,
    )


def map_rows(function: Any, problem: Problem, setup: Setup, extra: Any, rows: int) -> Any:
    """Map ``function(problem of one data set, extra row)`` over the batch, ``rows`` at a time."""
    mapped = _mapped(problem, setup), extra

    def one(item: Any) -> Any:
        row, own = item
        return function(_rejoin(problem, setup, row), own)

    if problem.sums.shape[0] == 1:
        result = one(jax.tree.map(lambda leaf: leaf[0], mapped))
        return jax.tree.map(lambda leaf: leaf[None], result)
    return jax.lax.map(one, mapped, batch_size=rows)


def realise(setup: Setup, problem: Problem) -> Draws:
    """Return the draws of one data set."""
    if problem.draws is not None:
        return problem.draws
    return setup.integrator.realise(
        problem.prior, problem.state, problem.sums, problem.origin, setup.size
    )


def keep_draws(setup: Setup, problem: Problem) -> Problem:
    """Make the draws now, where all of them fit in memory."""
    if _numbers_drawn(problem, setup) > _KEPT_NUMBERS:
        return problem
    return problem._replace(draws=_make_draws(setup, problem))


@cached_by_structure
def _numbers_drawn(problem: Problem, setup: Setup) -> int:
    """Return how many numbers the draws of a whole batch hold."""
    draws = jax.eval_shape(lambda p: realise(setup, select(p, setup, 0)), problem)
    size = sum(leaf.size for leaf in jax.tree.leaves(draws))
    return size if setup.common_draws else size * problem.sums.shape[0]


@partial(jax.jit, static_argnums=0)
def _make_draws(setup: Setup, problem: Problem) -> Draws:
    if setup.common_draws:
        return realise(setup, select(problem, setup, 0))
    return map_rows(lambda alone, _: realise(setup, alone), problem, setup, None, 16)


def weigh(family: Family, draws: Draws, problem: Problem) -> tuple[jax.Array, jax.Array]:
    """Return normalised log weights (n,) of draws for one data set, and the log evidence."""
    log_lik = log_likelihood(family, draws.params, problem.sums, problem.origin)
    total = jnp.where(jnp.isneginf(log_lik), -jnp.inf, draws.log_base + log_lik)
    return normalise_log_weights(total)


@partial(jax.jit, static_argnums=0)
def summarise(setup: Setup, problem: Problem) -> Summary:
    """Condition on the data: evidence, diagnostics and coefficients for each data set."""
    family, integrator = problem.prior.family, setup.integrator
    common = realise(setup, problem) if setup.common_draws else None

    def one(problem: Problem, _: Any) -> Summary:
        draws = realise(setup, problem) if common is None else common
        log_weights, evidence = weigh(family, draws, problem)
        missing = jnp.full((), jnp.nan)
        weighted = integrator.weighted
        return Summary(
            evidence if integrator.has_evidence else missing,
            effective_sample_size(log_weights) if weighted else missing,
            pareto_k(log_weights) if weighted else missing,
            mean_natural(family, draws, log_weights, problem.origin),
        )

    rows = rows_at_once(setup.size, problem.sums.shape[0])
    return map_rows(one, problem, setup, None, rows)


@partial(jax.jit, static_argnums=0)
def find_modes(setup: Setup, problem: Problem) -> dict[str, Any]:
    """Return the parameters (batch, ...) at which likelihood times prior density is largest."""
    family, integrator = problem.prior.family, setup.integrator
    common = realise(setup, problem) if setup.common_draws else None

    def one(problem: Problem, _: Any) -> dict[str, Any]:
        best = integrator.mode(problem.prior, problem.state, problem.sums, problem.origin)
        if best is not None:
            return best
        draws = realise(setup, problem) if common is None else common
        log_lik = log_likelihood(family, draws.params, problem.sums, problem.origin)
        index = jnp.argmax(log_lik + draws.log_prior)
        return jax.tree.map(lambda leaf: leaf[index], draws.params)

    rows = rows_at_once(setup.size, problem.sums.shape[0])
    return map_rows(one, problem, setup, None, rows)


@partial(jax.jit, static_argnums=0)
def natural_rows(family: Family, params: dict[str, Any], origin: jax.Array) -> jax.Array:
    """Return the coefficients (batch, classes, p) of one parameter vector for each data set."""
    return jax.vmap(family.natural, in_axes=(0, None))(params, origin)


def mean_natural(
    family: Family, draws: Draws, log_weights: jax.Array, origin: jax.Array
) -> jax.Array:
    """Return the weighted mean (classes, p) of the coefficients, summed in blocks."""
    n = log_weights.shape[0]
    block = min(n, max(1, (1 << 22) // _natural_size(family, draws, origin)))

    def add(total: jax.Array, item: Any) -> tuple[jax.Array, None]:
        params, logs = item
        natural = jax.vmap(family.natural, in_axes=(0, None))(params, origin)
        natural = jnp.where(jnp.isfinite(natural), natural, 0)
        flat = jnp.matmul(jnp.exp(logs), natural.reshape(block, -1), precision="highest")
        return total + flat.reshape(natural.shape[1:]), None

    padded = jnp.pad(log_weights, (0, -n % block), constant_values=-jnp.inf)
    items = in_blocks(draws.params, n, block), padded.reshape(-1, block)
    if items[1].shape[0] == 1:
        first = jax.tree.map(lambda leaf: leaf[0], items)
        return add(jnp.zeros(()), first)[0]
    shape = jax.eval_shape(lambda: family.natural(_first(draws.params), origin)).shape
    return jax.lax.scan(add, jnp.zeros(shape), items)[0]


def _first(params: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda leaf: leaf[0], params)


def _natural_size(family: Family, draws: Draws, origin: jax.Array) -> int:
    """Return the number of coefficients of one draw."""
    return jax.eval_shape(lambda: family.natural(_first(draws.params), origin)).size


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
    family = problem.prior.family
    batch = problem.sums.shape[0]
    common = realise(setup, problem) if setup.common_draws else None
    arguments = problem.origin, problem.log_class_prior, dtype
    if common is not None and shared_x and common_rows and batch > 1:
        rows = rows_at_once(setup.size, batch)

        def chunk(sums: jax.Array) -> jax.Array:
            weights = jax.vmap(lambda s: weigh(family, common, problem._replace(sums=s))[0])(sums)
            return in_chunks(
                lambda part: mixture(family, method, common.params, weights, part, *arguments), x
            )

        parts = jax.lax.map(chunk, in_blocks(problem.sums, batch, rows))
        return jnp.moveaxis(parts, 2, 1).reshape(-1, *parts.shape[1:2], x.shape[0])[:batch]

    def one(problem: Problem, row: Any) -> jax.Array:
        points = x if shared_x else row
        exact = None
        if method == "predictive":
            exact = setup.integrator.log_predictive(
                problem.prior, problem.state, problem.sums, problem.origin, points
            )
        if exact is not None:
            return exact + problem.log_class_prior[:, None]
        draws = realise(setup, problem) if common is None else common
        weights = weigh(family, draws, problem)[0][None]
        return in_chunks(
            lambda part: mixture(family, method, draws.params, weights, part, *arguments)[:, 0],
            points,
        )

    alone = select(problem, setup, 0)
    draws = jax.eval_shape(lambda: realise(setup, alone)).log_base.shape[0]
    few = int(np.clip((1 << 17) // max(1, draws * min(x.shape[-1], 512)), 1, 32))
    return map_rows(one, problem, setup, None if shared_x else x, min(few, batch))


def normalise(log_probs: jax.Array, out: np.dtype) -> jax.Array:
    """Turn (batch, classes, m) into log odds (batch, m), or log probabilities (batch, m, k)."""
    if log_probs.shape[1] == 2:
        return (log_probs[:, 1] - log_probs[:, 0]).astype(out)
    return jnp.moveaxis(jax.nn.log_softmax(log_probs, axis=1), 1, 2).astype(out)


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
) -> jax.Array:
    """Average over the draws at every point; log odds (batch, m) or log probabilities."""
    return normalise(
        _log_class_probabilities(setup, problem, method, x, shared_x, common_rows, dtype), out
    )


@partial(jax.jit, static_argnums=(0, 1, 4, 5, 6, 7))
def predict_by_nodes(
    setup: Setup,
    method: str,
    problem: Problem,
    x: jax.Array,
    shared_x: bool,
    intervals: int,
    dtype: np.dtype,
    out: np.dtype,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Average over the draws at nodes only, and interpolate the log odds between them.

    Returns
    -------
    tuple
        Log odds (batch, m), and the largest errors in probability and in log odds at nodes left
        out, see ``left_out_error``.
    """
    family = problem.prior.family
    z = family.coordinate(x.astype(jnp.result_type(float)), jnp)
    grid, nodes = make_grid(z, intervals)
    points = family.from_coordinate(nodes, jnp)
    log_probs = _log_class_probabilities(
        setup, problem, method, points, True, True, np.dtype(np.float64)
    )
    values = log_probs[:, 1] - log_probs[:, 0]
    miss, log_miss = jax.vmap(left_out_error)(values)
    z = z.astype(dtype)
    grid = jax.tree.map(lambda leaf: leaf.astype(dtype), grid)

    def one(item: Any) -> jax.Array:
        row, own = item
        return interpolate(grid, row.astype(dtype), z if shared_x else own).astype(out)

    log_odds = jax.lax.map(one, (values, None if shared_x else z), batch_size=16)
    return log_odds, jnp.max(miss), jnp.max(log_miss)


@partial(jax.jit, static_argnums=(0, 5, 6, 7))
def predict_linear(
    family: Family,
    natural: jax.Array,
    x: jax.Array,
    origin: jax.Array,
    log_class_prior: jax.Array,
    shared_x: bool,
    dtype: np.dtype,
    out: np.dtype,
) -> jax.Array:
    """Evaluate the optimal model at coefficients (batch, classes, p); see ``normalise``."""

    def one(item: Any) -> jax.Array:
        coefficients, own = item

        def chunk(points: jax.Array) -> jax.Array:
            phi = family.features(points, origin, jnp)
            centred = coefficients - coefficients[:1]
            return (linear(centred, phi) + log_class_prior[:, None]).astype(dtype)

        return in_chunks(chunk, x if shared_x else own, 1 << 14)

    return normalise(jax.lax.map(one, (natural, None if shared_x else x)), out)
