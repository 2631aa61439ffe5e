"""The public ``Posterior``: predictions, and a description of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.execution.chunks import Out
from bayescal._core.execution.hosts import are_shared, gather_rows
from bayescal._core.execution.padding import pad_axis, padded_length
from bayescal._core.execution.precision import as_result, bulk_dtype, float64, result_dtype
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import sigmoid
from bayescal._core.shapes import Float
from bayescal.data import checks
from bayescal.inference._conditioned import Conditioned
from bayescal.inference._tails import (
    CLOSE,
    at_ends,
    deepest,
    refine_tails,
    warn_of_large,
    warn_sparse_tails,
)
from bayescal.inference.engine.condition import mean_coefficients, natural_rows, origins
from bayescal.inference.engine.interpolate import center_and_scale
from bayescal.inference.engine.layout import Index
from bayescal.inference.engine.predict import (
    DTypes,
    Predicted,
    predict_by_nodes,
    predict_each,
    predict_exactly,
    predict_linear,
)
from bayescal.inference.function import PosteriorFunction, function_of
from bayescal.inference.integrators.base import Problem
from bayescal.inference.prediction import LONG, Prediction

#: The ways to predict, see ``posterior_predict``.
METHODS = ("predictive", "preds", "coeffs", "map")

_INTERVALS = (128, 512, 2048)
_TOLERANCE = 1e-6
_LOG_TOLERANCE = 1e-3


class Posterior(Conditioned):
    """A generative model conditioned on one data set or on a batch of data sets.

    Returned by ``bayescal.posterior``; ``predict`` computes class probabilities at new points.

    Attributes
    ----------
    prior : Prior, list of Prior, or dict of Prior by name
        The prior or priors that were passed.
    integrator : str
        Name of the integrator.
    num_samples : int
        Number of draws, after rounding by the integrator.
    classes : array of shape (k,)
        The labels, sorted; 0, ..., k - 1 if they were passed as such.
    log_evidence : float, or array of shape (batch,), (prior,) or (prior, batch)
        log p(data | prior); NaN for ``nuts``, which does not estimate it.
    ess : float, or array of shape (batch,)
        Effective sample size 1 / sum(w**2) of the weights; for chains, that of the parameter that
        mixes worst. NaN for quadrature rules and closed forms.
    pareto_k : float, or array of shape (batch,)
        Pareto shape of the weights' tail; above 0.7 averages are unreliable.
    quadrature_error : float, or array of shape (batch,)
        Estimated relative error of the evidence and of the density of a typical new point, for
        quadrature; NaN for other integrators.
    r_hat, divergences : float, or array of shape (batch,)
        For ``nuts``, the largest R-hat of a parameter (above 1.05 chains disagree) and the number
        of divergent steps; NaN for other integrators.

    See Also
    --------
    posterior_predict : Condition and predict in one call.
    Prediction : What ``predict`` returns.

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
            Points; for a batch also (batch, m[, d]), one row for each data set. By default the
            training points.
        method : str
            ``"predictive"``, ``"preds"``, ``"coeffs"`` or ``"map"``; see ``posterior_predict``.
        interpolate : bool, optional
            Whether to evaluate univariate averages at nodes and interpolate between them. By
            default this happens from 512 points on. Data sets whose curve is too rough to
            interpolate are always evaluated at every point.

        Returns
        -------
        Prediction
            Probabilities, log odds and their uncertainty.

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
        family, mask = self.family, None
        if x is None:
            dtype = out = np.dtype(np.float64)
            points, mask = self.layout.given.x, self.data.mask
        else:
            dtype, out = bulk_dtype(x), result_dtype(x)
            points = checks.check_points(x, self.layout.given, family.univariate)
            family.check_support(points, "x")
        if len(points) > 1:
            points = self.layout.spread(points)
        divided = are_shared()
        result, error = self._evaluate(points, method, (dtype, out), interpolate, divided)
        nats = far = None
        if method == "predictive" and self.integrator == "quadrature":
            result, nats = self._refine(result, points, divided)
        elif method == "predictive" and self.integrator != "closed_form":
            far = warn_sparse_tails(self.setup, self.problem, points, self.data)
        values, probs = (self._trim(v, points.shape[1], mask, out) for v in result[:2])
        return Prediction(self, points, method, values, probs, error, nats, far)

    def as_function(self, method: str = "predictive", *, index: Index = 0) -> PosteriorFunction:
        """Return the predictions as a pure function of points, for JAX's transformations.

        Parameters
        ----------
        method : str
            ``"predictive"``, ``"preds"``, ``"coeffs"`` or ``"map"``; see ``posterior_predict``.
        index : int, str or tuple
            Data set or prior of a grid, as for :meth:`to_arviz`.

        Returns
        -------
        PosteriorFunction
            ``f(x)`` computes probabilities in JAX's default type, in O(draws * points).
        """
        checks.check_choice(method, "method", METHODS)
        natural = None
        if method in ("coeffs", "map"):
            with float64():
                problem = self.work_for(method).problem
                natural = self._natural(method, problem)[self.layout.position(index)]
        return function_of(self, method, natural, index)

    def _local_part(
        self, points: np.ndarray, method: str, divided: bool, *arguments: object
    ) -> tuple[Problem, np.ndarray | None, np.ndarray, Callable[[Callable[[], Out]], Out]]:
        """Return the local problem, its rows and points, and a function that gathers results.

        ``divided`` tells whether several processes share the data sets.
        """
        work = self.work_for(method)
        problem, rows = (work.local, work.rows) if divided else (work.problem, None)
        local = points if rows is None or len(points) == 1 else points[rows]
        compared = points, method, *arguments
        return problem, rows, local, lambda f: gather_rows(f, rows, len(self.data.x), compared)

    def _evaluate(
        self,
        points: np.ndarray,
        method: str,
        dtypes: DTypes,
        interpolate: bool | None,
        divided: bool,
    ) -> tuple[Predicted, float | None]:
        """Predict at padded points; return also the error of interpolation."""
        family, given = self.family, (interpolate, str(dtypes[1]))
        problem, _, local, gather = self._local_part(points, method, divided, *given)
        count, m = len(self.data.x), points.shape[1]
        shared = len(points) == 1
        padded = pad_axis(local, padded_length(m), 1).astype(np.float64, copy=False)
        with float64():
            x = jax.device_put(padded if shared else pad_axis(padded, len(problem.sums), 0))
            if method in ("coeffs", "map"):

                def linear() -> Predicted:
                    natural = jax.device_put(self._natural(method, problem))
                    at = x, origins(self.setup, problem), problem.class_prior.fixed(method)
                    return predict_linear(family, natural, *at, dtypes)

                return jax.device_put(gather(linear)), None

            def run(program: Callable[..., Predicted], *options: object) -> Predicted:
                return predict_each(program, self.setup, method, problem, x, *options)

            smooth = family.univariate and family.classes == 2
            together = m if shared or not self.setup.common_draws else m * count
            long = together >= LONG if interpolate is None else interpolate
            if smooth and long:
                ends = jax.device_put(np.array([points.min(), points.max()], np.float64))
                bulk = jax.device_put(center_and_scale(family.coordinate(points, np)))
                for intervals in _INTERVALS:
                    if interpolate is None and intervals >= max(LONG, together):
                        break
                    result = gather(partial(run, predict_by_nodes, ends, bulk, intervals, dtypes))
                    miss, log_miss = float(result.miss), float(result.log_miss)
                    if miss <= _TOLERANCE and log_miss <= _LOG_TOLERANCE:
                        return jax.device_put(result), miss

            def exactly() -> Predicted:
                result = run(predict_exactly, True, dtypes)
                if len(problem.sums) > 1 and np.isnan(float(result.miss)):
                    result = run(predict_exactly, False, dtypes)
                return result

            return jax.device_put(gather(exactly)), None

    def _refine(
        self, result: Predicted, points: np.ndarray, divided: bool
    ) -> tuple[Predicted, np.ndarray | None]:
        """Integrate far points again; return also the remaining error (batch, m), None if nil."""
        low, high = self._near
        deep = None
        if points.ndim == 2:
            at, far = deepest(points, self.data, self.family)
            deep = at if far.any() else None
        if points.ndim == 2 and deep is None and low <= points.min() and points.max() <= high:
            return result, None
        count, m = len(self.data.x), points.shape[1]
        problem, rows, local, gather = self._local_part(points, "predictive", divided)
        gaps = deep if deep is None or rows is None else deep[rows]
        with float64():
            nats = gather(lambda: at_ends(self.setup, problem, local, gaps))[:count]
            if (nats <= CLOSE).all():
                # All processes that share data sets must remember equal bounds.
                if points.ndim == 2 and deep is None and rows is self.bare.rows:
                    self._near = min(low, points.min()), max(high, points.max())
                return result, None
            old = np.asarray(result.values)[slice(count) if rows is None else rows, :m]
            values, nats = gather(lambda: refine_tails(self.setup, problem, old, local))
        warn_of_large(nats, values, points)
        probability = sigmoid if values.ndim == 2 else np.exp
        with float64():
            return result._replace(
                values=jax.device_put(values), probs=jax.device_put(probability(values))
            ), nats

    def _natural(self, method: str, problem: Problem) -> Float[np.ndarray, "sets classes features"]:
        """Return the coefficients (padded batch, classes, p) for ``coeffs`` or ``map``."""
        if method == "coeffs":
            return np.asarray(mean_coefficients(self.setup, problem))
        modes = self._modes if problem is self.bare.problem else self._local_modes
        return np.asarray(natural_rows(problem.prior.family, modes, origins(self.setup, problem)))

    def _trim(
        self, array: jax.Array, m: int, mask: np.ndarray | None, out: np.dtype
    ) -> np.ndarray | jax.Array:
        """Cut padding off a result, and set masked observations to NaN.

        On a CPU this uses NumPy, which compiles nothing for new sizes.
        """
        on_processor = all(device.platform == "cpu" for device in array.devices())
        xp: ModuleType = np if on_processor else jnp
        cut = xp.asarray(array)[: len(self.data.x), :m]
        if mask is not None and not mask.all():
            cut = xp.where(mask.reshape(mask.shape + (1,) * (cut.ndim - 2)), cut, np.nan)
        return as_result(cut.reshape(self.layout.shape + cut.shape[1:]), out)
