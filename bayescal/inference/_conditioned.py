"""What is known of a posterior whatever is predicted from it: evidence, weights, draws, modes."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any

import jax
import numpy as np

from bayescal._core import checks
from bayescal._core.arrays import ArrayLike, Params
from bayescal._core.keys import as_key
from bayescal._core.precision import default_dtype, float64
from bayescal._core.tables import html_table
from bayescal.inference._arviz import to_arviz
from bayescal.inference._engine import Setup, Summary, find_modes, select
from bayescal.inference._integrator import Problem
from bayescal.inference._share import Work
from bayescal.inference._uncertainty import sample_posterior, sample_prior, weighted_draws
from bayescal.models import Prior


class Conditioned(ABC):
    """The attributes and draws of a :class:`Posterior`, on which predictions stand.

    Beside what the user sees, ``data``, ``setup`` and ``problem`` are what the compiled programs
    take, and ``work`` what this process does of it.
    """

    def __init__(
        self,
        prior: Prior | list[Prior],
        data: checks.Batch,
        setup: Setup,
        work: Work,
        summary: Summary[np.ndarray],
        num_samples: int,
    ) -> None:
        self.prior = prior
        self.integrator = setup.integrator.name
        self.num_samples = num_samples
        self.data, self.setup = data, setup
        self.problem, self.work = work.problem, work
        self._summary = summary
        #: Between these points the box of a rule leaves nothing out.
        self._near = np.inf, -np.inf
        self.log_evidence = self._per_data_set(summary.log_evidence)
        self.ess = self._per_data_set(summary.ess)
        self.pareto_k = self._per_data_set(summary.pareto_k)
        self.quadrature_error = self._per_data_set(summary.quadrature_error)

    def _per_data_set(self, values: np.ndarray) -> float | np.ndarray:
        return float(values[0]) if self.data.single else values

    @property
    def batch_size(self) -> int | None:
        """Number of data sets in a batch; None for a single data set."""
        return None if self.data.single else len(self.data.x)

    @property
    def class_prior(self) -> float | np.ndarray:
        """Probability of class 1 where predictions are wanted, or of all of more than two classes.

        For a batch one for each data set, along the first axis. Of shares that are estimated the
        posterior mean.
        """
        count, classes = len(self.data.x), self.problem.prior.family.classes
        with float64():
            found = np.exp(np.asarray(self.problem.class_prior.log_mean))
        found = np.broadcast_to(found[:count], (count, classes)) if found.ndim == 2 else found
        found = np.broadcast_to(found, (count, classes))
        found = found[:, 1] if classes == 2 else found
        return (found[0].item() if classes == 2 else found[0]) if self.data.single else found

    @abstractmethod
    def predict(self, x: ArrayLike | None = None, *, method: str = "predictive") -> Any:
        """Predict the class probabilities at points ``x``."""

    @functools.cached_property
    def _modes(self) -> Params:
        with float64():
            return find_modes(self.setup, self.problem)

    @functools.cached_property
    def _own_modes(self) -> Params:
        with float64():
            return find_modes(self.setup, self.work.own)

    @property
    def mode(self) -> dict[str, np.ndarray]:
        """Parameters with the highest posterior density: exact by quadrature, else the best draw.

        The density is the one over the prior's own random sites.
        """
        count = len(self.data.x)
        modes = {name: np.asarray(value)[:count] for name, value in self._modes.items()}
        return {n: v[0] if self.data.single else v for n, v in modes.items()}

    def draws(self, index: int = 0) -> Params:
        """Return the parameters drawn for data set ``index``, each with a leading axis of draws.

        They describe the posterior together with ``log_weights``. Quadrature gives its nodes.
        """
        return self._weighted(index)[0]

    def log_weights(self, index: int = 0) -> jax.Array:
        """Return the normalised log weights (n,) of ``draws`` for data set ``index``."""
        return self._weighted(index)[1]

    def _weighted(self, index: int) -> tuple[Params, jax.Array]:
        out = default_dtype()
        with float64():
            found = weighted_draws(self.setup, self.problem_of(index))
            return jax.tree.map(lambda leaf: leaf.astype(out), found)

    def sample(self, num_draws: int, *, key: int | jax.Array = 0, index: int = 0) -> Params:
        """Return ``num_draws`` equally weighted draws from the posterior, each (num_draws, ...).

        Weighted draws are resampled, so draws repeat where the effective sample size is small.
        """
        num_draws, out = checks.check_count(num_draws, "num_draws"), default_dtype()
        with float64():
            params = self._sample(num_draws, as_key(key), index, shuffled=True)
            return {name: value.astype(out) for name, value in params.items()}

    def _sample(self, num_draws: int, key: jax.Array, index: int, shuffled: bool) -> Params:
        problem, size = self.problem_of(index), self.posterior_size()
        return sample_posterior(self.setup, problem, key, num_draws, size, shuffled)

    def posterior_size(self) -> int:
        """Return the number of draws that describe the posterior, also where a rule has nodes."""
        return self.setup.integrator.sample_size(self.num_samples)

    def problem_of(self, index: int) -> Problem:
        """Return the problem of data set ``index`` alone."""
        count = len(self.data.x)
        if not 0 <= index < count:
            raise IndexError(f"index must be in [0, {count}), got {index}")
        return select(self.problem, self.setup, index)

    def to_arviz(
        self, *, num_draws: int = 4000, chains: int = 4, key: int | jax.Array = 0, index: int = 0
    ) -> Any:
        """Return equally weighted draws in ArviZ's container, for ``az.summary`` and plots.

        Parameters
        ----------
        num_draws : int
            Draws in all, spread over ``chains``, resampled by their weights in the order in which
            they were drawn: repeated ones stand together, so that ArviZ's effective sample size
            and R-hat judge the weights, as ``ess`` and ``pareto_k`` do.
        chains : int
        key : int or JAX key
        index : int
            Which data set of a batch.

        Returns
        -------
        arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)
            Groups ``posterior`` and ``prior``.

        Examples
        --------
        >>> import arviz
        >>> import bayescal as bc
        >>> prior = bc.NormalInverseGammaPrior(-1, 1, kappa0=1, kappa1=1, alpha=2, beta=2)
        >>> post = bc.posterior(prior, ([-1.2, 1.1], [0, 1]), integrator="closed_form")
        >>> sorted(post.to_arviz(num_draws=400)["posterior"].data_vars)
        ['mu0', 'mu1', 'sigma']
        """
        chains = checks.check_count(chains, "chains")
        per_chain = -(-checks.check_count(num_draws, "num_draws") // chains)
        total = per_chain * chains
        with float64():
            alone = self.problem_of(index)
            first, second = jax.random.split(as_key(key))
            after = self._sample(total, first, index, shuffled=False)
            before = sample_prior(alone.prior, second, total)

        # Parameters that the prior fixes are left out.
        free = [name for name, value in before.items() if np.any(value != value[:1])]

        def shape(params: Params) -> dict[str, np.ndarray]:
            arrays = {name: np.asarray(params[name]) for name in free or params}
            return {n: v.reshape(chains, per_chain, *v.shape[1:]) for n, v in arrays.items()}

        attributes = {
            "inference_library": "bayescal",
            "integrator": self.integrator,
            "log_evidence": float(self._summary.log_evidence[index]),
            "ess": float(self._summary.ess[index]),
            "pareto_k": float(self._summary.pareto_k[index]),
        }
        return to_arviz(shape(after), shape(before), attributes)

    def facts(self) -> list[tuple[str, str]]:
        """Return what ``repr`` and the notebook's table say."""
        one = self.prior[0] if isinstance(self.prior, list) else self.prior
        name = one.family.name if one.closed_form is None else one.closed_form.name
        n = self.data.mask.sum(axis=1)
        if self.data.single:
            size = f"{n[0]} observations"
        else:
            size = f"{len(n)} data sets of {n.min()} to {n.max()} observations"
        facts = [("prior", name), ("data", size), ("integrator", self.integrator)]
        for label, values, text in (
            ("log evidence", self._summary.log_evidence, "{:.2f}"),
            ("ESS", self._summary.ess, "{:.0f}"),
            ("Pareto k", self._summary.pareto_k, "{:.2f}"),
        ):
            if np.isnan(values).all():
                continue
            low, high = text.format(values.min()), text.format(values.max())
            facts.append((label, low if low == high else f"{low} to {high}"))
        return facts

    def __repr__(self) -> str:
        """Return the essentials in one line."""
        plain = [value for _, value in self.facts()[:3]]
        return f"Posterior({', '.join([*plain, *(' '.join(f) for f in self.facts()[3:])])})"

    def _repr_html_(self) -> str:
        return html_table(self.facts(), caption="Posterior")
