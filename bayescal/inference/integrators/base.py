"""What an integrator is: how to find where the posterior lies, and draws or nodes there."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import Params
from bayescal._core.chunks import Out, map_batch
from bayescal.inference._class_prior import ClassPrior
from bayescal.inference.engine.averages import Draws
from bayescal.models import Prior

State = TypeVar("State")


class Problem(NamedTuple, Generic[State]):
    """What integrators and the compiled programs take.

    Drawing is compiled once where the draws fit in memory; what follows takes them as arrays.

    Attributes
    ----------
    prior : Prior
        With a leading axis of data sets on its leaves where ``Setup.stacked``.
    sums : array of shape (batch, classes, p)
        Sums of the features by class.
    origin : array
    class_prior : ClassPrior
        The shares of the classes where predictions are wanted.
    state : pytree
        The integrator's, with a leading axis of data sets unless it is shared.
    draws : Draws or None
        Draws already made, with a leading axis of data sets unless they are common.
    log_weights : array of shape (batch, n) or None
        Normalised log weights of the draws, where they are kept.
    numbers : array of shape (batch,) or None
        For ``prepare``: which data sets of the user's batch these are, where they are not all.
    """

    prior: Prior
    sums: jax.Array
    origin: jax.Array
    class_prior: ClassPrior
    state: State
    draws: Draws | None = None
    log_weights: jax.Array | None = None
    numbers: np.ndarray | None = None


class Integrator(abc.ABC, Generic[State]):
    """A method of integration over the posterior; stateless, so it can be static under ``jit``.

    All objects of a class are equal, and so share what is compiled. A new integrator writes
    ``prepare`` for a batch, once, and ``realise`` for one data set in pure JAX; streaming,
    predictions, errors and diagnostics come from elsewhere.
    """

    name: str
    #: Whether the draws are the same for all data sets that share a prior.
    shared: bool = False
    #: Whether effective sample size and Pareto-k describe the weights.
    weighted: bool = True
    #: Number of equal parts that are independent replicates; 0 for independent draws.
    replicates: int = 0
    #: Whether one call prepares the whole batch, so that padding it costs little.
    vectorised: bool = True
    #: Whether log weights sum to the evidence.
    has_evidence: bool = True

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def check(self, prior: Prior) -> None:
        """Raise ``ValueError`` if this integrator cannot handle ``prior``."""

    def sample_size(self, num_samples: int) -> int:
        """Return the number of draws made when ``num_samples`` are asked for."""
        return num_samples

    def chains(self, num_samples: int) -> int:
        """Return how many of the replicates, or groups of them, are independent beyond doubt."""
        return self.replicates

    def realised_size(self, state: State, num_samples: int) -> int:
        """Return the static size argument of ``realise``, once ``state`` is known."""
        return num_samples

    def own_sizes(self, state: State) -> np.ndarray | None:
        """Return the size that each data set (batch,) needs; None where one size does for all."""
        return None

    @abc.abstractmethod
    def prepare(self, problem: Problem, key: jax.Array, num_samples: int, stacked: bool) -> State:
        """Return what ``realise`` needs to know, a pytree.

        Parameters
        ----------
        problem : Problem
            The batch, without a state.
        key : JAX key, the same for all data sets, so that each has the numbers that it has alone.
        num_samples : int
        stacked : bool
            Whether leaves of the prior have a leading axis of data sets.

        Returns
        -------
        pytree
            With a leading axis of data sets unless ``shared``.
        """

    def batched(
        self,
        each: Callable[[Prior, jax.Array], Out],
        prior: Prior,
        sums: jax.Array,
        stacked: bool,
        rows: int = 16,
    ) -> Out:
        """Map ``each(prior, sums)`` of one data set over the batch, ``rows`` at a time.

        Few are taken one by one: they take as long, and compile to less.
        """
        items = prior if stacked else None, sums
        rows = rows if len(sums) > 16 else 1

        def one(item: tuple[Prior | None, jax.Array]) -> Out:
            return each(prior if item[0] is None else item[0], item[1])

        return map_batch(one, items, len(sums), rows)

    @abc.abstractmethod
    def realise(self, problem: Problem[State], num_samples: int) -> Draws:
        """Return draws or nodes for one data set; called wherever they are needed."""

    def posterior_draws(
        self, problem: Problem[State], key: jax.Array, num_samples: int
    ) -> Draws | None:
        """Return draws in place of a rule's nodes, or None where ``realise`` gives draws."""
        return None

    def stated(self, state: State) -> tuple[np.ndarray, np.ndarray] | None:
        """Return a rule's log evidence and its relative error (batch,), None for random draws."""
        return None

    def mixing(self, state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Return effective sample size, R-hat and divergent steps (batch,) of chains, or None."""
        return None

    def at_ends(self, prior: Prior, state: State) -> list[str]:
        """Return the parameters whose posteriors pile up at the ends of their supports."""
        return []

    def mode(self, problem: Problem[State]) -> Params | None:
        """Return the exact posterior mode, or None: then the best draw stands for it."""
        return None

    def log_predictive(self, problem: Problem[State], x: jax.Array) -> jax.Array | None:
        """Return the exact log density (classes, m) of new points by class, or None."""
        return None


def equal_base(num_samples: int) -> jax.Array:
    """Return the log base weights of draws from the prior: one over their number."""
    return jnp.full(num_samples, -jnp.log(float(num_samples)))
