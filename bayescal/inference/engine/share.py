"""A batch conditioned by one process, or by several of which each does some of the data sets."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from bayescal._core.chunks import parts_of
from bayescal._core.hosts import gather_rows, rows_of
from bayescal._core.padding import pad_axis
from bayescal.inference.engine.condition import Setup, Summary, condition, keep_draws, select
from bayescal.inference.integrators.base import Integrator, Problem


class Work(NamedTuple):
    """What a process knows of all data sets, and what it works on.

    Attributes
    ----------
    problem : Problem
        Of all data sets; without kept draws and weights of single ones if processes share them.
    own : Problem
        Of the data sets ``rows``, padded; ``problem`` itself if this process does all.
    rows : array of ints, or None
        None if this process does all.
    """

    problem: Problem
    own: Problem
    rows: np.ndarray | None


def padded_batch(integrator: Integrator, count: int) -> int:
    """Return for how many data sets programs are compiled, so that batches share them."""
    if not integrator.vectorised:
        return count
    return 1 << (count - 1).bit_length() if count <= 64 else -(-count // 64) * 64


def condition_all(
    setup: Setup, problem: Problem, count: int, key: jax.Array, arguments: object
) -> tuple[Setup, Work, Summary[np.ndarray]]:
    """Prepare and weigh the data sets of a padded problem; the first ``count`` are no padding.

    ``setup`` has the number of samples as its size, and is returned with the one that is needed.
    Processes that share the data sets must be given the same ``arguments``.
    """
    rule, num_samples, stacked = setup.integrator, setup.size, setup.stacked
    rows, numbers = rows_of(count), None
    if rows is not None:
        numbers = pad_axis(rows, padded_batch(rule, len(rows)), 0)

    def some() -> Problem:
        return problem if numbers is None else select(problem, setup, numbers)

    def prepare() -> Any:
        return rule.prepare(some()._replace(numbers=numbers), key, num_samples, stacked)

    if rule.shared:
        state = prepare()
    else:
        state = gather_rows(prepare, rows, len(problem.sums), arguments)
    problem = problem._replace(state=jax.device_put(state))
    size = rule.realised_size(problem.state, num_samples)
    own = some()
    setup = setup._replace(size=size, parts=parts_of(own.sums.shape[0]))

    def weigh() -> Summary:
        nonlocal own
        own = keep_draws(setup, own)
        stated = rule.stated(own.state)
        if stated is None:
            own, found = condition(setup, own)
            return found
        none = np.full(len(own.sums), np.nan)
        return Summary(stated[0], none, none, stated[1], none, none)

    found = gather_rows(weigh, rows, count, arguments)
    if rows is None:
        problem = own
    elif setup.common_draws:
        problem = problem._replace(draws=own.draws)
    summary = Summary(*(np.asarray(value)[:count] for value in found))
    chains = rule.mixing(problem.state)
    if chains is not None:
        ess, r_hat, divergences = (values[:count] for values in chains)
        summary = summary._replace(ess=ess, r_hat=r_hat, divergences=divergences)
    return setup, Work(problem, own, rows), summary
