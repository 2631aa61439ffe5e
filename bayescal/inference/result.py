"""The posterior that the user holds: predict from it, look at it, hand it to ArviZ."""

from __future__ import annotations

from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core import checks
from bayescal._core.arrays import ArrayLike
from bayescal._core.interpolate import centre_and_scale
from bayescal._core.numerics import sigmoid
from bayescal._core.padding import pad_axis, padded_length
from bayescal._core.precision import bulk_dtype, default_dtype, float64
from bayescal.inference._conditioned import Conditioned
from bayescal.inference._engine import mean_coefficients, natural_rows
from bayescal.inference._predict import Predicted, predict_by_nodes, predict_exactly, predict_linear
from bayescal.inference._tails import improve, look
from bayescal.inference.prediction import LONG, Prediction

__all__ = ["METHODS", "Posterior"]

#: The ways to predict, see ``posterior_predict``.
METHODS = ("predictive", "preds", "coeffs", "map")

_INTERVALS = (128, 512, 2048)
_TOLERANCE = 1e-6
_LOG_TOLERANCE = 1e-3


class Posterior(Conditioned):
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

    def predict(
        self,
        x: ArrayLike | None = None,
        *,
        method: str = "predictive",
        interpolate: bool | None = None,
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
        family = self.problem.prior.family
        if x is None:
            dtype = np.dtype(np.float64)
            points = self.data.x
            mask = self.data.mask
        else:
            dtype = bulk_dtype(x)
            points = checks.check_points(x, self.data, family.univariate)
            mask = None
            family.check_support(points, "x")
        found, error = self._evaluate(points, method, dtype, interpolate)
        nats = None
        if method == "predictive" and self.integrator == "quadrature":
            found, nats = self._improve(found, points)
        elif method == "predictive" and self.integrator != "closed_form":
            nats = np.zeros(()) if look(self.setup, self.problem, points, self.data) else None
        values, probs = (
            _trim(v, len(self.data.x), points.shape[1], self.data.single, mask)
            for v in (found.values, found.probs)
        )
        return Prediction(self, points, method, values, probs, error, nats)

    def _evaluate(
        self, points: np.ndarray, method: str, dtype: np.dtype, interpolate: bool | None
    ) -> tuple[Predicted, float | None]:
        """Return predictions at padded points, and the error of interpolation."""
        problem, setup, out = self.problem, self.setup, default_dtype()
        family = problem.prior.family
        count, m = len(self.data.x), points.shape[1]
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
                for intervals in _INTERVALS:
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

    def _improve(self, found: Predicted, points: np.ndarray) -> tuple[Predicted, np.ndarray | None]:
        """Integrate far points anew, and return the error (batch, m) that remains, None if none."""
        low, high = self._near
        if points.ndim == 2 and low <= points.min() and points.max() <= high:
            return found, None
        m = points.shape[1]
        with float64():
            old = np.asarray(found.values)[: len(self.data.x), :m]
            values, nats = improve(self.setup, self.problem, old, points, self.data)
        if values is old:
            if points.ndim == 2:
                self._near = min(low, points.min()), max(high, points.max())
            return found, None
        one = sigmoid if values.ndim == 2 else np.exp
        with float64():
            return found._replace(
                values=jax.device_put(values), probs=jax.device_put(one(values))
            ), nats

    def _natural(self, method: str) -> np.ndarray:
        """Return the coefficients (padded batch, classes, p) of ``coeffs`` or ``map``."""
        problem = self.problem
        if method == "coeffs":
            return np.asarray(mean_coefficients(self.setup, problem))
        return np.asarray(natural_rows(problem.prior.family, self._modes, problem.origin))


def _trim(array: jax.Array, count: int, m: int, single: bool, mask: np.ndarray | None) -> jax.Array:
    """Cut padding off a result, and put NaN where the mask hides an observation.

    On a processor through NumPy, which compiles nothing for each new size.
    """
    on_processor = all(device.platform == "cpu" for device in array.devices())
    xp: ModuleType = np if on_processor else jnp
    cut = xp.asarray(array)[:count, :m]
    if mask is not None and not mask.all():
        cut = xp.where(mask.reshape(mask.shape + (1,) * (cut.ndim - 2)), cut, np.nan)
    return jax.device_put((cut[0] if single else cut).astype(default_dtype()))
