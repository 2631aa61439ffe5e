"""Conditioning of a batch by one process, or by several that divide the data sets among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.execution.chunks import parts_of
from bayescal._core.execution.hosts import gather_rows, rows_of
from bayescal._core.execution.padding import pad_axis
from bayescal._core.lazy import jax
from bayescal._core.shapes import Int
from bayescal.inference.engine.condition import Setup, Summary, condition, keep_draws, select
from bayescal.inference.integrators.base import Integrator, Problem


class Work(NamedTuple):
    """The problem of all data sets, and the part that this process computes."""

    #: All data sets; if processes share them, without stored draws and weights of single data sets.
    problem: Problem
    #: The data sets ``rows``, padded; ``problem`` itself if this process computes all.
    local: Problem
    #: Indices of the local data sets; None if this process computes all.
    rows: Int[np.ndarray, " local_sets"] | None


def padded_batch(integrator: Integrator, count: int) -> int:
    """Return the number of data sets to compile programs for, so that batches share them."""
    if not integrator.vectorized:
        return count
    return 1 << (count - 1).bit_length() if count <= 64 else -(-count // 64) * 64


def condition_all(
    setup: Setup, problem: Problem, count: int, key: jax.Array, arguments: object
) -> tuple[Setup, Work, Summary[np.ndarray]]:
    """Prepare and weigh the data sets of a padded problem; only the first ``count`` are real.

    ``setup`` has the number of samples as its size; it is returned with the size that is needed.
    Processes that share the data sets must pass the same ``arguments``.
    """
    rule, num_samples, per_set = setup.integrator, setup.size, setup.per_set
    rows, numbers = rows_of(count), None
    if rows is not None:
        numbers = pad_axis(rows, padded_batch(rule, len(rows)), 0)

    def local_problem() -> Problem:
        return problem if numbers is None else select(problem, setup, numbers)

    def prepare() -> object:
        return rule.prepare(local_problem()._replace(numbers=numbers), key, num_samples, per_set)

    if rule.shared:
        state = prepare()
    else:
        state = gather_rows(prepare, rows, len(problem.sums), arguments)
    problem = problem._replace(state=jax.device_put(state))
    size = rule.realized_size(problem.state, num_samples)
    local = local_problem()
    setup = setup._replace(size=size, parts=parts_of(local.sums.shape[0]))

    def weigh() -> Summary:
        nonlocal local
        if rule.needs_draws:
            local = keep_draws(setup, local)
        reported = rule.reported(local.state)
        if reported is None:
            local, summary = condition(setup, local)
            return summary
        none = np.full(len(local.sums), np.nan)
        return Summary(reported[0], none, none, reported[1], none, none)

    weighed = gather_rows(weigh, rows, count, arguments)
    if rows is None:
        problem = local
    elif setup.common_draws:
        problem = problem._replace(draws=local.draws)
    summary = Summary(*(np.asarray(value)[:count] for value in weighed))
    chains = rule.mixing(problem.state)
    if chains is not None:
        ess, r_hat, divergences = (values[:count] for values in chains)
        summary = summary._replace(ess=ess, r_hat=r_hat, divergences=divergences)
    return setup, Work(problem, local, rows), summary


def with_draws(setup: Setup, work: Work) -> Work:
    """Make and weigh the draws that conditioning did not need."""
    local, _ = condition(setup, keep_draws(setup, work.local))
    return work._replace(problem=local if work.rows is None else work.problem, local=local)
