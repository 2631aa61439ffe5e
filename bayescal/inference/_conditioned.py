"""What is known of a posterior whatever is predicted from it: evidence, weights, draws, modes."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from bayescal._core.arrays import ArrayLike, Params
from bayescal._core.keys import as_key
from bayescal._core.precision import default_dtype, float64
from bayescal._core.tables import html_table
from bayescal.data import checks
from bayescal.inference._arviz import to_arviz
from bayescal.inference._uncertainty import sample_posterior, sample_prior, weighted_draws
from bayescal.inference.engine.condition import Setup, Summary, alone, find_modes
from bayescal.inference.engine.layout import Index, Layout
from bayescal.inference.engine.share import Work
from bayescal.inference.integrators.base import Problem
from bayescal.models import Prior


class Conditioned(ABC):
    """The attributes and draws of a :class:`Posterior`, on which predictions stand.

    Beside what the user sees, ``data``, ``setup`` and ``problem`` are what the compiled programs
    take, and ``work`` what this process does of it.
    """

    def __init__(
        self,
        prior: Prior | list[Prior] | dict[str, Prior],
        layout: Layout,
        setup: Setup,
        work: Work,
        summary: Summary[np.ndarray],
        num_samples: int,
    ) -> None:
        self.prior = prior
        self.integrator = setup.integrator.name
        self.num_samples = num_samples
        self.layout, self.data, self.setup = layout, layout.flat(), setup
        self.problem, self.work = work.problem, work
        self._summary = summary
        #: Between these points the box of a rule leaves nothing out.
        self._near = np.inf, -np.inf
        self.log_evidence = self._per_data_set(summary.log_evidence)
        self.ess = self._per_data_set(summary.ess)
        self.pareto_k = self._per_data_set(summary.pareto_k)
        self.quadrature_error = self._per_data_set(summary.quadrature_error)
        self.r_hat = self._per_data_set(summary.r_hat)
        self.divergences = self._per_data_set(summary.divergences)

    def _per_data_set(self, values: np.ndarray) -> float | np.ndarray:
        return self.layout.shaped(values) if self.layout.dims else float(values[0])

    @property
    def batch_size(self) -> int | None:
        """Number of data sets in a batch; None for a single data set."""
        return self.layout.dims.get("dataset")

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
        return self._per_data_set(found[:, 1]) if classes == 2 else self.layout.shaped(found)

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
        return {name: self.layout.shaped(value) for name, value in modes.items()}

    def draws(self, index: Index = 0) -> Params:
        """Return the parameters drawn for data set ``index``, each with a leading axis of draws.

        They describe the posterior together with ``log_weights``. Quadrature gives its nodes.
        Of a grid the index is the name of a prior, or a name and the number of a data set.
        """
        return self._weighted(index)[0]

    def log_weights(self, index: Index = 0) -> jax.Array:
        """Return the normalised log weights (n,) of ``draws`` for data set ``index``."""
        return self._weighted(index)[1]

    def _weighted(self, index: Index) -> tuple[Params, jax.Array]:
        out = default_dtype()
        with float64():
            found = weighted_draws(*self.alone(index))
            return jax.tree.map(lambda leaf: leaf.astype(out), found)

    def sample(self, num_draws: int, *, key: int | jax.Array = 0, index: Index = 0) -> Params:
        """Return ``num_draws`` equally weighted draws from the posterior, each (num_draws, ...).

        Weighted draws are resampled, so draws repeat where the effective sample size is small.
        """
        num_draws, out = checks.check_count(num_draws, "num_draws"), default_dtype()
        with float64():
            params = self._sample(num_draws, as_key(key), index, shuffled=True)
            return {name: value.astype(out) for name, value in params.items()}

    def _sample(self, num_draws: int, key: jax.Array, index: Index, shuffled: bool) -> Params:
        problem, size = self.alone(index), self.posterior_size()
        return sample_posterior(*problem, key, num_draws, size, shuffled)

    def posterior_size(self) -> int:
        """Return the number of draws that describe the posterior, also where a rule has nodes."""
        return self.setup.integrator.sample_size(self.num_samples)

    def alone(self, index: Index) -> tuple[Setup, Problem]:
        """Return the setup and the problem of data set ``index`` alone."""
        return alone(self.setup, self.problem, self.layout.position(index))

    def to_arviz(
        self,
        *,
        num_draws: int = 4000,
        chains: int = 4,
        key: int | jax.Array = 0,
        index: Index | None = None,
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
        index : int, str or tuple, optional
            Which data set of a batch, by default the first; or which prior of a grid, by name, and
            data set. Left out, draws of a grid have a dimension ``prior`` behind ``draw``, for the
            first data set.

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
        names = self.layout.names if index is None else None
        places = [self.layout.position(each) for each in names or [0 if index is None else index]]
        with float64():
            first, second = jax.random.split(as_key(key))
            after = [self._sample(total, first, place, shuffled=False) for place in places]
            before = [sample_prior(self.alone(p)[1].prior, second, total) for p in places]

        # Parameters that the prior fixes are left out.
        free = [n for n in before[0] if any(np.any(one[n] != one[n][:1]) for one in before)]

        def shape(params: list[Params]) -> dict[str, np.ndarray]:
            found = {}
            for name in free or params[0]:
                each = np.stack([np.asarray(one[name]) for one in params], axis=1)
                each = each if names is not None else each[:, 0]
                found[name] = each.reshape(chains, per_chain, *each.shape[1:])
            return found

        attributes: dict[str, object] = {
            "inference_library": "bayescal",
            "integrator": self.integrator,
        }
        for name in ("log_evidence", "ess", "pareto_k", "r_hat", "divergences"):
            values = getattr(self._summary, name)[places]
            attributes[name] = float(values[0]) if names is None else values.tolist()
        return to_arviz(shape(after), shape(before), attributes, names)

    def _priors(self) -> Iterable[Prior]:
        if isinstance(self.prior, Prior):
            return [self.prior]
        return self.prior.values() if isinstance(self.prior, dict) else self.prior

    def facts(self) -> list[tuple[str, str]]:
        """Return what ``repr`` and the notebook's table say."""
        one = next(iter(self._priors()))
        name = one.family.name if one.closed_form is None else one.closed_form.name
        if self.layout.names is not None:
            name = f"{name} x {len(self.layout.names)}"
        n = self.layout.given.mask.sum(axis=1)
        if self.layout.given.single:
            size = f"{n[0]} observations"
        else:
            size = f"{len(n)} data sets of {n.min()} to {n.max()} observations"
        facts = [("prior", name), ("data", size), ("integrator", self.integrator)]
        for label, values, text in (
            ("log evidence", self._summary.log_evidence, "{:.2f}"),
            ("ESS", self._summary.ess, "{:.0f}"),
            ("Pareto k", self._summary.pareto_k, "{:.2f}"),
            ("R-hat", self._summary.r_hat, "{:.3f}"),
            ("divergences", self._summary.divergences, "{:.0f}"),
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
