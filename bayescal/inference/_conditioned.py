"""The part of a posterior that does not depend on predictions: evidence, weights, draws, modes."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bayescal._core.arrays import ArrayLike, Params
from bayescal._core.display.plotting import plot_function
from bayescal._core.display.tables import html_table
from bayescal._core.execution.precision import default_dtype, float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.random.keys import Seed, as_key
from bayescal._core.shapes import Float
from bayescal.data import checks
from bayescal.inference._arviz import to_arviz
from bayescal.inference._uncertainty import sample_posterior, sample_prior, weighted_draws
from bayescal.inference.engine.condition import Setup, Summary, alone, find_modes
from bayescal.inference.engine.layout import BatchLayout, Index
from bayescal.inference.engine.share import Work, with_draws
from bayescal.inference.integrators.base import Problem
from bayescal.inference.parameters import ParameterPosterior
from bayescal.models import Prior

if TYPE_CHECKING:
    import arviz
    import xarray as xr
    from matplotlib.axes import Axes


#: Attributes for other modules, which tab completion does not show.
_INTERNAL = (
    *("alone", "bare", "data", "facts", "family", "layout", "posterior_size", "problem", "setup"),
    *("work", "work_for"),
)

#: Attributes, problems with arrays of NumPy, and indices of the local data sets.
_State: TypeAlias = tuple[dict[str, object], list[Problem], np.ndarray | None]
#: Attributes that are made from ``bare``, on first access or when it is unpickled.
_NOT_PICKLED = "bare", "work", "_modes", "_local_modes"

#: Largest Pareto k at which averages over weighted draws are reliable.
_RELIABLE_PARETO_K = 0.7


def _to_numpy(leaf: object) -> object:
    keeps_type = not isinstance(leaf, jax.Array) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf if keeps_type else np.asarray(leaf)


def _to_jax(leaf: object) -> object:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


class Conditioned(ABC):
    """Base class of :class:`Posterior` with its attributes and draws.

    Apart from the public attributes, ``data``, ``setup`` and ``problem`` are the inputs of the
    compiled programs, and ``work`` is the part that this process computes. ``bare`` is ``work``
    without draws, if the integrator does not need them to predict.
    """

    def __init__(
        self,
        prior: Prior | list[Prior] | dict[str, Prior],
        layout: BatchLayout,
        setup: Setup,
        work: Work,
        summary: Summary[np.ndarray],
        num_samples: int,
        classes: np.ndarray | None = None,
    ) -> None:
        self.prior = prior
        self.integrator = setup.integrator.name
        self.num_samples = num_samples
        self.bare, self.family = work, work.problem.prior.family
        self.classes = np.arange(self.family.classes) if classes is None else classes
        self.layout, self.data, self.setup = layout, layout.flat(), setup
        self._summary = summary
        #: Points between which the integration box contains the whole posterior.
        self._near = np.inf, -np.inf
        facts = [self._per_data_set(values) for values in summary]
        self.log_evidence, self.ess, self.pareto_k = facts[:3]
        self.quadrature_error, self.r_hat, self.divergences = facts[3:]

    def __getstate__(self) -> _State:
        """Return the attributes to pickle, with arrays of NumPy: JAX's would lose precision."""
        kept = {name: v for name, v in vars(self).items() if name not in _NOT_PICKLED}
        problem, local, rows = self.bare
        parts = [problem] if local is problem else [problem, local]
        return kept, [jax.tree.map(_to_numpy, part) for part in parts], rows

    def __setstate__(self, state: _State) -> None:
        kept, parts, rows = state
        with float64():
            parts = [jax.tree.map(_to_jax, part) for part in parts]
        vars(self).update(kept, bare=Work(parts[0], parts[-1], rows))

    def _per_data_set(self, values: np.ndarray) -> float | np.ndarray:
        return self.layout.shaped(values) if self.layout.dims else float(values[0])

    @functools.cached_property
    def work(self) -> Work:
        """The problem with its draws, which are made on first access if they were not needed."""
        if self.setup.integrator.needs_draws:
            return self.bare
        with float64():
            return with_draws(self.setup, self.bare)

    @property
    def problem(self) -> Problem:
        """The problem of all data sets, with draws."""
        return self.work.problem

    def work_for(self, method: str) -> Work:
        """Return the problem for a way to predict, with draws only if it needs them."""
        return self.bare if method in ("predictive", "map") else self.work

    @property
    def batch_size(self) -> int | None:
        """Number of data sets in a batch; None for a single data set."""
        return self.layout.dims.get("dataset")

    @property
    def class_prior(self) -> float | np.ndarray:
        """Probability of class 1 in the population to predict for, or of all of three and more.

        For a batch the first axis holds the data sets. Estimated probabilities are given by their
        posterior mean.
        """
        count, classes = len(self.data.x), self.family.classes
        with float64():
            probs = np.exp(np.atleast_2d(self.bare.problem.class_prior.log_mean))
        probs = np.broadcast_to(probs[:count], (count, classes))
        return self._per_data_set(probs[:, 1]) if classes == 2 else self.layout.shaped(probs)

    @abstractmethod
    def predict(self, x: ArrayLike | None = None, *, method: str = "predictive") -> Any:
        """Predict the class probabilities at points ``x``."""

    @functools.cached_property
    def _modes(self) -> Params:
        with float64():
            return find_modes(self.setup, self.bare.problem)

    @functools.cached_property
    def _local_modes(self) -> Params:
        with float64():
            return find_modes(self.setup, self.bare.local)

    @property
    def mode(self) -> dict[str, np.ndarray]:
        """Parameters with the highest posterior density: exact for quadrature, else the best draw.

        The density is with respect to the random sites of the prior as they are parametrized.
        """
        count, shaped = len(self.data.x), self.layout.shaped
        return {name: shaped(np.asarray(v)[:count]) for name, v in self._modes.items()}

    def draws(self, index: Index = 0) -> Params:
        """Return the draws of the parameters for data set ``index``, with a leading axis of draws.

        Together with ``log_weights`` they describe the posterior. Quadrature returns its nodes.
        For a grid, the index is the name of a prior, or a name and the number of a data set.
        """
        return self._weighted(index)[0]

    def log_weights(self, index: Index = 0) -> Float[jax.Array, " draws"]:
        """Return the normalized log weights (n,) of ``draws`` for data set ``index``."""
        return self._weighted(index)[1]

    def _weighted(self, index: Index) -> tuple[Params, jax.Array]:
        out = default_dtype()
        with float64():
            draws = weighted_draws(*self.alone(index))
            return jax.tree.map(lambda leaf: leaf.astype(out), draws)

    def sample(self, num_draws: int, *, key: Seed = 0, index: Index = 0) -> Params:
        """Sample ``num_draws`` equally weighted draws from the posterior, each (num_draws, ...).

        Weighted draws are resampled, so draws repeat if the effective sample size is small.
        """
        num_draws, out = checks.check_count(num_draws, "num_draws"), default_dtype()
        with float64():
            params = self._sample(num_draws, as_key(key), index, shuffled=True)
            return {name: value.astype(out) for name, value in params.items()}

    def _sample(self, num_draws: int, key: jax.Array, index: Index, shuffled: bool) -> Params:
        problem, size = self.alone(index), self.posterior_size()
        return sample_posterior(*problem, key, num_draws, size, shuffled)

    def posterior_size(self) -> int:
        """Return the number of draws that describe the posterior, even if a rule uses nodes."""
        return self.setup.integrator.sample_size(self.num_samples)

    def alone(self, index: Index, method: str = "preds") -> tuple[Setup, Problem]:
        """Return the setup and the problem of data set ``index`` for a way to predict."""
        return alone(self.setup, self.work_for(method).problem, self.layout.position(index))

    def to_arviz(
        self, *, num_draws: int = 4000, chains: int = 4, key: Seed = 0, index: Index | None = None
    ) -> arviz.InferenceData | xr.DataTree:
        """Convert equally weighted draws to ArviZ's container, for ``az.summary`` and plots.

        Parameters
        ----------
        num_draws : int
            Total number of draws, divided among ``chains``. They are resampled by their weights in
            the order in which they were drawn, so that repeated draws are adjacent and ArviZ's
            effective sample size and R-hat judge the weights, as ``ess`` and ``pareto_k`` do.
        chains : int
            Number of chains.
        key : int, JAX key or NumPy generator
            Seed of the resampling.
        index : int, str or tuple, optional
            A data set of a batch, by default the first; or a prior of a grid by name, or a name and
            a data set. By default the draws of a grid have a dimension ``prior`` after ``draw``,
            for the first data set.

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
        indices = [self.layout.position(i) for i in names or [0 if index is None else index]]
        with float64():
            first, second = jax.random.split(as_key(key))
            after = [self._sample(total, first, i, shuffled=False) for i in indices]
            before = [sample_prior(self.alone(i)[1].prior, second, total) for i in indices]

        # Parameters that the prior fixes are left out.
        free = [n for n in before[0] if any(np.any(draws[n] != draws[n][:1]) for draws in before)]

        def shape(params: list[Params]) -> dict[str, np.ndarray]:
            arrays = {}
            for name in free or params[0]:
                stacked = np.stack([np.asarray(draws[name]) for draws in params], axis=1)
                stacked = stacked if names is not None else stacked[:, 0]
                arrays[name] = stacked.reshape(chains, per_chain, *stacked.shape[1:])
            return arrays

        attributes: dict[str, object] = {"inference_library": "bayescal"}
        attributes["integrator"] = self.integrator
        for name in ("log_evidence", "ess", "pareto_k", "r_hat", "divergences"):
            values = getattr(self._summary, name)[indices]
            attributes[name] = float(values[0]) if names is None else values.tolist()
        return to_arviz(shape(after), shape(before), attributes, names)

    def parameter_posterior(
        self, *, num_draws: int = 4000, key: Seed = 0, index: Index = 0
    ) -> ParameterPosterior:
        """Resample equally weighted draws of the parameters that the prior leaves open.

        Parameters
        ----------
        num_draws : int
        key : int, JAX key or NumPy generator
            Seed of the resampling.
        index : int, str or tuple
            Data set or prior of a grid, as for :meth:`to_arviz`.

        Returns
        -------
        ParameterPosterior
            With means, standard deviations and intervals, for ``bayescal.plots.parameters``.
        """
        sampled = self.sample(num_draws, key=key, index=index)
        draws = {name: np.asarray(v)[None] for name, v in sampled.items()}
        free = {name: v for name, v in draws.items() if np.any(v != v[:, :1])} or draws
        size = sum(int(np.prod(v.shape[2:])) for v in free.values())
        i, summary = self.layout.position(index), self._summary
        ess, r_hat = np.full(size, summary.ess[i]), np.full(size, summary.r_hat[i])
        divergences = int(np.nan_to_num(summary.divergences[i]))
        return ParameterPosterior(free, self.integrator, ess, r_hat, divergences)

    def plot(
        self,
        names: Sequence[str] | None = None,
        *,
        level: float = 0.9,
        index: Index = 0,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the posterior of the parameters: a median and an interval for every number.

        Parameters
        ----------
        names : sequence of str, optional
            Parameters to draw, by default all that the prior leaves open.
        level : float
            Probability of the intervals, in (0, 1).
        index : int, str or tuple
            Data set or prior of a grid, as for :meth:`to_arviz`.
        ax : matplotlib Axes, optional
            Where to draw, by default on a new figure.

        Returns
        -------
        matplotlib Axes
            As of :func:`bayescal.plots.parameters`.
        """
        draw = plot_function("parameters")
        return draw(self.parameter_posterior(index=index), names, level=level, ax=ax)

    def facts(self) -> list[tuple[str, str]]:
        """Return labels and values for ``repr`` and the table in notebooks."""
        priors = self.prior.values() if isinstance(self.prior, dict) else self.prior
        prior = priors if isinstance(priors, Prior) else next(iter(priors))
        name = prior.family.name if prior.closed_form is None else prior.closed_form.name
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

    def __dir__(self) -> list[str]:
        """List the public attributes, without the inputs of compiled programs."""
        return [name for name in super().__dir__() if name not in _INTERNAL]

    def __repr__(self) -> str:
        """Return the essentials in one line."""
        plain = [value for _, value in self.facts()[:3]]
        reliable = np.nanmax(self._summary.pareto_k, initial=-np.inf) <= _RELIABLE_PARETO_K
        facts = [f for f in self.facts()[3:] if f[0] != "Pareto k" or not reliable]
        return f"Posterior({', '.join([*plain, *(' '.join(f) for f in facts)])})"

    def _repr_html_(self) -> str:
        return html_table(self.facts(), caption="Posterior")
