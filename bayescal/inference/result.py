"""The posterior that the user holds: predict from it, look at it, hand it to ArviZ."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core import checks
from bayescal._core.interpolate import centre_and_scale
from bayescal._core.keys import as_key
from bayescal._core.padding import pad_axis, padded_length
from bayescal._core.precision import bulk_dtype, default_dtype, float64
from bayescal._core.tables import html_table
from bayescal.inference._arviz import to_arviz
from bayescal.inference._engine import (
    Problem,
    Setup,
    Summary,
    find_modes,
    mean_coefficients,
    natural_rows,
    select,
)
from bayescal.inference._predict import (
    Predicted,
    predict_by_nodes,
    predict_exactly,
    predict_linear,
)
from bayescal.inference._uncertainty import (
    sample_posterior,
    sample_prior,
    weighted_draws,
)
from bayescal.inference.prediction import LONG, Prediction
from bayescal.models import Prior

__all__ = ["METHODS", "Posterior"]

#: The ways to predict, see ``posterior_predict``.
METHODS = ("predictive", "preds", "coeffs", "map")

_INTERVALS = (128, 512, 2048)
_TOLERANCE = 1e-6
_LOG_TOLERANCE = 1e-3


class Posterior:
    """A generative model conditioned on one data set, or on each of a batch.

    Made by ``bayescal.posterior``.

    Attributes
    ----------
    prior : Prior or list of Prior
    integrator : str
    num_samples : int
        Number of draws, after rounding by the integrator.
    log_evidence : float, or array of shape (batch,)
        log p(data | prior); NaN for ``nuts``, which does not give it.
    ess : float, or array of shape (batch,)
        Effective sample size 1 / sum(w**2) of the weights; NaN where there are no weights.
    pareto_k : float, or array of shape (batch,)
        Shape of the weights' tail; above 0.7 averages are unreliable.
    quadrature_error : float, or array of shape (batch,)
        Estimated relative error of the evidence, and of the density of a typical new point, by
        quadrature; NaN for other integrators.

    Examples
    --------
    >>> import bayescal as bc
    >>> prior = bc.NormalInverseGammaPrior(-1, 1, kappa0=1, kappa1=1, alpha=2, beta=2)
    >>> post = bc.posterior(prior, ([-1.2, 0.3, 1.1], [0, 0, 1]), integrator="closed_form")
    >>> post
    Posterior(NormalInverseGammaPrior, 3 observations, closed_form, log evidence -4.50)
    """

    def __init__(
        self,
        prior: Prior | list[Prior],
        data: checks.Batch,
        setup: Setup,
        problem: Problem,
        summary: Summary,
        num_samples: int,
    ) -> None:
        self.prior = prior
        self.integrator = setup.integrator.name
        self.num_samples = num_samples
        self._data, self._setup, self._problem = data, setup, problem
        self._summary = summary
        self.log_evidence = self._per_data_set(summary.log_evidence)
        self.ess = self._per_data_set(summary.ess)
        self.pareto_k = self._per_data_set(summary.pareto_k)
        self.quadrature_error = self._per_data_set(summary.quadrature_error)

    def _per_data_set(self, values: np.ndarray) -> Any:
        return float(values[0]) if self._data.single else values

    @property
    def batch_size(self) -> int | None:
        """Number of data sets in a batch; None for a single data set."""
        return None if self._data.single else len(self._data.x)

    def predict(
        self, x: Any = None, *, method: str = "predictive", interpolate: bool | None = None
    ) -> Prediction:
        """Predict the class probabilities at points ``x``.

        Parameters
        ----------
        x : array of shape (m,) or (m, d), optional
            Points; for a batch also (batch, m[, d]), one row for each data set. The training
            points if left out.
        method : str
            ``"predictive"``, ``"preds"``, ``"coeffs"`` or ``"map"``; see ``posterior_predict``.
        interpolate : bool, optional
            Whether to evaluate univariate averages at nodes and interpolate between them. Left out,
            this is done from 512 points on. Points whose curve is too rough are always evaluated
            one by one.

        Returns
        -------
        Prediction

        Raises
        ------
        ValueError
            If the shape or the number of features is wrong, or a point is not finite.

        Examples
        --------
        >>> import numpy as np
        >>> import bayescal as bc
        >>> prior = bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=1.0)
        >>> post = bc.posterior(prior, ([-1.0, 1.0], [0, 1]), integrator="quadrature")
        >>> print(np.round(post.predict([0.0, 1.0], method="map").probs, 4))
        [0.5    0.8808]
        """
        checks.check_choice(method, "method", METHODS)
        family = self._problem.prior.family
        if x is None:
            dtype = np.dtype(np.float64)
            points = self._data.x
            mask = self._data.mask
        else:
            dtype = bulk_dtype(x)
            points = checks.check_points(x, self._data, family.univariate)
            mask = None
            family.check_support(points, "x")
        found, error = self._evaluate(points, method, dtype, interpolate)
        values, probs = (
            _trim(v, len(self._data.x), points.shape[1], self._data.single, mask)
            for v in (found.values, found.probs)
        )
        return Prediction(self, points, method, values, probs, error)

    def _evaluate(
        self, points: np.ndarray, method: str, dtype: np.dtype, interpolate: bool | None
    ) -> tuple[Predicted, float | None]:
        """Return predictions at padded points, and the error of interpolation."""
        problem, setup, out = self._problem, self._setup, default_dtype()
        family = problem.prior.family
        count, m = len(self._data.x), points.shape[1]
        shared = len(points) == 1
        padded = pad_axis(points, padded_length(m), 1)
        if not shared:
            padded = pad_axis(padded, len(problem.sums), 0)
        padded = padded.astype(np.float64, copy=False)
        with float64():
            x = jax.device_put(padded[0] if shared else padded)
            if method in ("coeffs", "map"):
                natural = jax.device_put(self._natural(method))
                found = predict_linear(
                    family, natural, x, problem.origin, problem.log_class_prior, shared, dtype, out
                )
                return found, None
            smooth = family.univariate and family.classes == 2
            together = m if shared or not setup.common_draws else m * count
            long = together >= LONG if interpolate is None else interpolate
            if smooth and long:
                bulk = jax.device_put(centre_and_scale(family.coordinate(points, np)))
            for intervals in _INTERVALS if smooth and long else ():
                if interpolate is None and intervals >= max(LONG, together):
                    break
                found = predict_by_nodes(
                    setup, method, problem, x, bulk, shared, intervals, dtype, out
                )
                miss, log_miss = float(found.miss), float(found.log_miss)
                if miss <= _TOLERANCE and log_miss <= _LOG_TOLERANCE:
                    return found, miss
            found = predict_exactly(setup, method, problem, x, shared, True, dtype, out)
            if len(problem.sums) > 1 and np.isnan(float(found.miss)):
                found = predict_exactly(setup, method, problem, x, shared, False, dtype, out)
            return found, None

    def _natural(self, method: str) -> np.ndarray:
        """Return the coefficients (padded batch, classes, p) of ``coeffs`` or ``map``."""
        problem = self._problem
        if method == "coeffs":
            return np.asarray(mean_coefficients(self._setup, problem))
        return np.asarray(natural_rows(problem.prior.family, self._modes, problem.origin))

    @functools.cached_property
    def _modes(self) -> dict[str, jax.Array]:
        with float64():
            return find_modes(self._setup, self._problem)

    @property
    def mode(self) -> dict[str, Any]:
        """Parameters with the highest posterior density: exact by quadrature, else the best draw.

        The density is the one over the prior's own random sites.
        """
        count = len(self._data.x)
        modes = {name: np.asarray(value)[:count] for name, value in self._modes.items()}
        return {n: v[0] if self._data.single else v for n, v in modes.items()}

    def draws(self, index: int = 0) -> dict[str, jax.Array]:
        """Return the parameters drawn for data set ``index``, each with a leading axis of draws.

        They describe the posterior together with ``log_weights``. Quadrature gives its nodes.
        """
        out = default_dtype()
        with float64():
            params, _ = weighted_draws(self._setup, self._alone(index))
            return {name: value.astype(out) for name, value in params.items()}

    def log_weights(self, index: int = 0) -> jax.Array:
        """Return the normalised log weights (n,) of ``draws`` for data set ``index``."""
        out = default_dtype()
        with float64():
            return weighted_draws(self._setup, self._alone(index))[1].astype(out)

    def sample(self, num_draws: int, *, key: int | jax.Array = 0, index: int = 0) -> dict[str, Any]:
        """Return ``num_draws`` equally weighted draws from the posterior, each (num_draws, ...).

        Weighted draws are resampled, so draws repeat where the effective sample size is small.
        """
        num_draws, out = checks.check_count(num_draws, "num_draws"), default_dtype()
        with float64():
            params = self._sample(num_draws, as_key(key), index)
            return {name: value.astype(out) for name, value in params.items()}

    def _sample(self, num_draws: int, key: jax.Array, index: int) -> dict[str, Any]:
        size = self._posterior_size()
        return sample_posterior(self._setup, self._alone(index), key, num_draws, size)

    def _posterior_size(self) -> int:
        return self._setup.integrator.sample_size(self.num_samples)

    def _alone(self, index: int) -> Problem:
        count = len(self._data.x)
        if not 0 <= index < count:
            raise IndexError(f"index must be in [0, {count}), got {index}")
        return select(self._problem, self._setup, index)

    def to_arviz(
        self, *, num_draws: int = 4000, chains: int = 4, key: int | jax.Array = 0, index: int = 0
    ) -> Any:
        """Return equally weighted draws in ArviZ's container, for ``az.summary`` and plots.

        Parameters
        ----------
        num_draws : int
            Draws in all, spread over ``chains``. They are independent resamples, shuffled, so
            convergence diagnostics between chains judge the resampling only; ``ess`` and
            ``pareto_k`` judge the weights.
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
            alone = self._alone(index)
            first, second = jax.random.split(as_key(key))
            after = self._sample(total, first, index)
            before = sample_prior(alone.prior, second, total)

        def shape(params: dict[str, Any]) -> dict[str, np.ndarray]:
            arrays = {n: np.asarray(v) for n, v in params.items()}
            moving = {n: v for n, v in arrays.items() if (v != v[:1]).any()}
            return {n: v.reshape(chains, per_chain, *v.shape[1:]) for n, v in moving.items()}

        attributes = {
            "inference_library": "bayescal",
            "integrator": self.integrator,
            "log_evidence": float(self._summary.log_evidence[index]),
            "ess": float(self._summary.ess[index]),
            "pareto_k": float(self._summary.pareto_k[index]),
        }
        return to_arviz(shape(after), shape(before), attributes)

    def _facts(self) -> list[tuple[str, str]]:
        """Return what ``repr`` and the notebook's table say."""
        one = self.prior[0] if isinstance(self.prior, list) else self.prior
        name = one.family.name if one.closed_form is None else one.closed_form.name
        n = self._data.mask.sum(axis=1)
        if self._data.single:
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
        plain = [value for _, value in self._facts()[:3]]
        return f"Posterior({', '.join([*plain, *(' '.join(f) for f in self._facts()[3:])])})"

    def _repr_html_(self) -> str:
        return html_table(self._facts(), caption="Posterior")


def _trim(array: jax.Array, count: int, m: int, single: bool, mask: np.ndarray | None) -> jax.Array:
    """Cut padding off a result, and put NaN where the mask hides an observation.

    On a processor through NumPy, which compiles nothing for each new size.
    """
    on_processor = all(device.platform == "cpu" for device in array.devices())
    xp: Any = np if on_processor else jnp
    array = xp.asarray(array)[:count, :m]
    if mask is not None and not mask.all():
        array = xp.where(mask.reshape(mask.shape + (1,) * (array.ndim - 2)), array, np.nan)
    return jax.device_put((array[0] if single else array).astype(default_dtype()))
