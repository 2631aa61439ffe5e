"""The contract of an integrator: locate the posterior, then supply draws or nodes."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from bayescal._core.arrays import Params
from bayescal._core.execution.chunks import Out, map_batch
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import normalize_log_weights
from bayescal._core.shapes import Float, Int
from bayescal.inference._class_prior import ClassPrior
from bayescal.inference.engine.averages import Densities, WeightedDraws
from bayescal.models import Prior

State = TypeVar("State")
#: Arrays by their axes.
PerDraw: TypeAlias = 'Float[jax.Array, " draws"]'
PerSet: TypeAlias = 'Float[np.ndarray, " sets"]'
#: Names of fields of a problem.
Fields: TypeAlias = tuple[str, ...]


class Problem(NamedTuple, Generic[State]):
    """The input of integrators and of the compiled programs.

    Making the draws is compiled once if they fit in memory; later programs take them as arrays.
    Leaves of the prior and of the origin have a leading axis of data sets if ``Setup.per_set``
    names them, those of the state unless it is shared, and those of the draws unless they are
    common.
    """

    prior: Prior
    #: Sums of the features by class.
    sums: jax.Array
    #: Subtracted from the features' coordinates.
    origin: jax.Array
    #: The class probabilities in the population to predict for.
    class_prior: ClassPrior
    state: State
    draws: WeightedDraws | None = None
    #: Normalized log weights of the stored draws.
    log_weights: Float[jax.Array, "*sets stored"] | None = None
    #: For ``prepare``: indices of the data sets if they are a part of the user's batch.
    numbers: Int[np.ndarray, " sets"] | None = None

    @property
    def bare(self) -> Problem:
        """The prior, the sums and the origin alone, on which most programs depend."""
        rest = {name: None for name in self._fields[3:]}
        return self._replace(**rest)

    def divide(self, fields: Fields) -> tuple[Problem, Problem]:
        """Divide the problem into ``fields`` and the others; those of the other part are None."""
        parts = {name: None for name in self._fields if name not in fields}
        return self._replace(**parts), self._replace(**dict.fromkeys(fields))

    def join(self, rest: Problem) -> Problem:
        """Combine the two parts of a divided problem."""
        pairs = zip(self, rest, strict=True)
        return Problem._make(other if part is None else part for part, other in pairs)

    @property
    def densities(self) -> Densities:
        """The class-conditional densities."""
        return Densities(self.prior.family, self.origin)

    def log_likelihood(self, params: Params) -> PerDraw:
        """Compute the log likelihood (n,) of parameters given one data set."""
        return self.densities.log_likelihood(params, self.sums)

    def weigh(self, draws: WeightedDraws) -> tuple[PerDraw, Float[jax.Array, ""]]:
        """Return normalized log weights of draws given one data set, and the log evidence."""
        log_lik = self.log_likelihood(draws.params)
        total = jnp.where(jnp.isneginf(log_lik), -jnp.inf, draws.log_base + log_lik)
        return normalize_log_weights(total)

    def weights_of(self, draws: WeightedDraws) -> PerDraw:
        """Return the normalized log weights of the draws of one data set, stored or computed."""
        return self.weigh(draws)[0] if self.log_weights is None else self.log_weights


class Integrator(abc.ABC, Generic[State]):
    """A method of integration over the posterior; stateless, so it can be static under ``jit``.

    Instances of a class are equal and share compiled programs. A new integrator implements
    ``prepare`` for a batch, called once, and ``realize`` for one data set in pure JAX. Streaming,
    predictions, errors and diagnostics are implemented elsewhere.
    """

    name: str
    #: Whether all data sets that share a prior use the same draws.
    shared: bool = False
    #: Whether effective sample size and Pareto-k describe the weights.
    weighted: bool = True
    #: Number of equal parts that are independent replicates; 0 if the draws are independent.
    replicates: int = 0
    #: Whether one call prepares the whole batch, so that padding the batch costs little.
    vectorized: bool = True
    #: Whether log weights sum to the evidence.
    has_evidence: bool = True
    #: Whether evidence, modes and the posterior predictive need draws or nodes. If not, draws are
    #: made when something else asks for them.
    needs_draws: bool = True

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def check(self, prior: Prior) -> None:
        """Raise ``ValueError`` if this integrator cannot handle ``prior``."""

    def sample_size(self, num_samples: int) -> int:
        """Return the number of draws that are made if ``num_samples`` are requested."""
        return num_samples

    def chains(self, num_samples: int) -> int:
        """Return how many of the replicates, or groups of them, are certainly independent."""
        return self.replicates

    def realized_size(self, state: State, num_samples: int) -> int:
        """Return the static size argument of ``realize``, given ``state``."""
        return num_samples

    def sizes_per_data_set(self, state: State) -> Int[np.ndarray, " sets"] | None:
        """Return the size that each data set (batch,) needs; None if one size fits all."""
        return None

    @abc.abstractmethod
    def prepare(self, problem: Problem, key: jax.Array, num_samples: int, per_set: Fields) -> State:
        """Compute the state, a pytree, from which ``realize`` makes draws or nodes.

        Parameters
        ----------
        problem : Problem
            The batch, without a state.
        key : JAX key
            One key for all data sets, so that a data set gets equal draws alone and in a batch.
        num_samples : int
            Number of draws.
        per_set : tuple of str
            Fields of the problem whose leaves have a leading axis of data sets, besides the sums.

        Returns
        -------
        pytree
            It has a leading axis of data sets unless ``shared``.
        """

    @abc.abstractmethod
    def realize(self, problem: Problem[State], num_samples: int) -> WeightedDraws:
        """Make the draws or nodes of one data set; called wherever they are needed."""

    def posterior_draws(
        self, problem: Problem[State], key: jax.Array, num_samples: int
    ) -> WeightedDraws | None:
        """Make draws in place of a rule's nodes, or return None if ``realize`` makes draws."""
        return None

    def reported(self, state: State) -> tuple[PerSet, PerSet] | None:
        """Return the log evidence (batch,) without draws and its relative error, or None."""
        return None

    def mixing(self, state: State) -> tuple[PerSet, ...] | None:
        """Return effective sample size, R-hat and divergent steps (batch,) of chains, or None."""
        return None

    def at_ends(self, prior: Prior, state: State) -> list[str]:
        """Return the parameters whose posteriors pile up at the ends of their supports."""
        return []

    def mode(self, problem: Problem[State]) -> Params | None:
        """Return the exact posterior mode, or None to use the best draw."""
        return None

    def log_predictive(
        self, problem: Problem[State], x: Float[jax.Array, " points *dimensions"]
    ) -> Float[jax.Array, "classes points"] | None:
        """Return the exact log density (classes, m) of new points by class, or None."""
        return None


def map_data_sets(
    function: Callable[[Problem], Out], problem: Problem, per_set: Fields, rows: int = 16
) -> Out:
    """Map ``function(problem of one data set)`` over a batch, ``rows`` at a time.

    Small batches are mapped one by one, which is as fast and compiles to less.
    """
    count = len(problem.sums)
    own, common = problem.divide(("sums", *per_set))

    def call(part: Problem) -> Out:
        return function(part.join(common))

    return map_batch(call, own, count, rows if count > 16 else 1)


def equal_base(num_samples: int) -> PerDraw:
    """Return the log base weights of draws from the prior: minus the log of their number."""
    return jnp.full(num_samples, -jnp.log(float(num_samples)))
