"""Base class of calibrators with parameters, which may have a posterior."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, AnyModel, ArrayLike, XArray, on_host
from bayescal._core.numerics import sigmoid
from bayescal._core.warnings import SamplingWarning, warn
from bayescal.calibrators.base.calibrator import Calibrator, State
from bayescal.calibrators.base.dispatch import as_fitted
from bayescal.calibrators.base.draws import ends_of_draws, mean_of_draws, over_draws
from bayescal.calibrators.base.table import look_up, tabulate
from bayescal.data.checks import check_choice, check_count, check_level
from bayescal.data.given import MEMORY, as_source
from bayescal.data.rows import Rows, Source
from bayescal.data.scores import public_ends, transform, two_columns
from bayescal.inference.parameters import ParameterPosterior
from bayescal.regression.draws import Draws
from bayescal.regression.numpyro_models import Model

Inference = Literal["map", "laplace", "nuts"]
#: Scores from which on posterior means are tabulated, and how many of them check the table.
_MANY_SCORES, _CHECKED = 1 << 10, 16
#: Largest log odds of a table, and largest error of a probability where it is checked.
_FAR, _TABLE_ERROR = 100.0, 1e-9


def posterior_of(estimator: AnyModel) -> ParameterPosterior:
    """Return the posterior of a fitted estimator's parameters, or raise if it has none."""
    check_is_fitted(estimator)
    state = estimator.state_
    if "theta_draws" not in state:
        raise AttributeError(
            "posterior_ needs inference='laplace' or 'nuts'; this was fitted with 'map'"
        )
    named = estimator._describe(state, state["theta_draws"])
    divergences = int(state["divergences"])
    inference = as_fitted(estimator).inference
    return ParameterPosterior(named, inference, state["ess"], state["r_hat"], divergences)


@dataclass(kw_only=True, eq=False, repr=False)
class ParametricCalibrator(Calibrator):
    """A calibrator with parameters theta (p,), kept as ``state["theta"]``.

    A subclass defines ``_curves``, ``_describe`` and ``_sample``. It inherits predictions by the
    best parameters or by the posterior mean, credible intervals, and ``posterior_``.

    For NumPy arrays of at least 1,024 scores of two classes, posterior means that are smooth curves
    of log odds are read from a table with errors below 1e-10. The table is compared with the draws
    at some of the scores. If a curve is too steep for it, all draws are computed.

    Parameters
    ----------
    inference : {"map", "laplace", "nuts"}
        "map" estimates the best parameters. The others compute a posterior under a weak prior:
        "laplace" by a normal approximation (of up to 30 parameters refined by sequential Monte
        Carlo where it is poor), "nuts" by four chains of the no-U-turn sampler. Predictions are
        then posterior means. With more than 30 parameters and few rows prefer "nuts": in
        simulations of ``Matrix`` with six classes and 60 to 1,000 rows, 90 % intervals by "laplace"
        contained 82 to 84 % of the probabilities, those by "nuts" 89 to 90 %, and the mean log loss
        with 60 rows was 0.75 instead of 0.69.
    num_samples : int
        Number of posterior draws, over all chains.
    random_state : int, RandomState or None
        Seed of the draws. None uses a fresh seed for every fit.

    Attributes
    ----------
    posterior_ : ParameterPosterior
        Only with inference "laplace" or "nuts".
    """

    #: Whether curves of two classes are smooth functions of log odds.
    _smooth: ClassVar[bool] = False

    inference: Inference = "map"
    num_samples: int = 1000
    random_state: int | np.random.RandomState | None = None

    @property
    def posterior_(self) -> ParameterPosterior:
        """The posterior of the parameters; only with inference "laplace" or "nuts"."""
        return posterior_of(self)

    @abstractmethod
    def _curves(self, state: State, theta: XArray, scores: XArray) -> XArray:
        """Compute probabilities (..., m, k) for parameters (..., p)."""

    @abstractmethod
    def _describe(self, state: State, theta: AnyArray) -> State:
        """Convert parameters (..., p) to arrays by public name."""

    @abstractmethod
    def _sample(self, state: State, rows: Source, seed: int) -> Draws:
        """Draw parameters (chains, draws, p) by ``inference``, after a fit to these rows."""

    def numpyro_model(
        self, scores: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Model:
        """Return the density that ``fit`` maximizes or samples as a NumPyro model.

        Any NumPyro inference can run the model. With ``inference="map"`` its density is the
        likelihood times the penalty, if there is one; with "laplace" and "nuts" it is the posterior
        under the weak prior.

        Parameters
        ----------
        scores, y, sample_weight : array-like
            Data as in ``fit``.

        Returns
        -------
        function of no arguments
            The model. Its sample sites are named ``theta...``, for temperatures
            ``inverse_temperature`` and ``mixture``; its deterministic sites are the parameters by
            public name. It computes in the precision that JAX is set to.

        Raises
        ------
        ValueError
            For truncated logits, and for calibrators whose fit maximizes no density.

        Examples
        --------
        >>> import bayescal as bc
        >>> from numpyro.infer.util import log_density
        >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
        >>> calibrator = bc.Temperature()  # numpyro.infer.MCMC(numpyro.infer.NUTS(model), ...)
        >>> model, fitted = calibrator.numpyro_model(p, y), calibrator.fit(p, y)
        >>> best = {"inverse_temperature": 1 / fitted.temperature_}
        >>> round(float(log_density(model, (), {}, best)[0]), 3), round(-6 * fitted.objective_, 3)
        (-3.795, -3.795)
        """
        if self.inputs == "top_logits":
            raise ValueError("inputs must not be 'top_logits' for numpyro_model")
        copy: AnyModel = clone(self)
        data = as_source(copy, scores, y, sample_weight, MEMORY)
        copy.classes_ = data.classes
        rows = data.rows.all()
        return copy._model(copy._fit(rows, 0), rows)

    def _model(self, state: State, rows: Rows) -> Model:
        """Return a NumPyro model, after a fit to the same data."""
        raise ValueError(
            f"{type(self).__name__} must be fitted in one step to have a NumPyro model: its fit "
            "maximizes no density"
        )

    @property
    def sources(self) -> frozenset[str]:
        """Kinds of sources that ``fit`` accepts; a posterior needs rows in memory."""
        return self._sources if self.inference == "map" else MEMORY

    def _check_inputs(self) -> None:
        super()._check_inputs()
        check_choice(self.inference, "inference", ("map", "laplace", "nuts"))
        check_count(self.num_samples, "num_samples")

    def _add_posterior(self, state: State, rows: Source, seed: int) -> State:
        if self.inference == "map":
            return state
        draws = self._sample(state, rows, seed)
        # The prior makes the posterior proper even if the likelihood has no maximum.
        return {**state, **keep_draws(self, draws)}

    def _apply(self, state: State, scores: XArray) -> XArray:
        """Compute probabilities (m, k), averaged over draws if the state contains draws."""
        if "theta_draws" in state:
            return self._posterior_mean(state, scores)
        return self._curves(state, state["theta"], scores)

    def _posterior_mean(self, state: State, scores: XArray) -> XArray:
        """Average probabilities (m, k) over draws, from a table where that is accurate."""
        average = partial(over_draws, self, state, reduce=mean_of_draws)
        z = self._log_odds_of(scores)
        if z is None or len(z) < _MANY_SCORES:
            return average(scores)
        table = self._computed_once("table", state, partial(self._tabulate, scores.ndim))
        if table is None:
            return average(scores)
        probs: AnyArray = two_columns(sigmoid(look_up(table, z)))
        beyond = np.abs(z) > _FAR
        if beyond.any():
            probs[beyond] = average(scores[beyond])
        # Some scores are compared, because the table may miss a bump between its nodes.
        checked = slice(None, None, len(z) // _CHECKED)
        agree = np.abs(probs[checked] - average(scores[checked])) < _TABLE_ERROR
        return probs if agree[~np.isnan(z[checked])].all() else average(scores)

    def _log_odds_of(self, scores: AnyArray) -> np.ndarray | None:
        """Return the log odds (m,) of which curves are smooth functions, or None."""
        if not self._smooth or self.inputs == "scores" or not on_host(scores):
            return None
        if scores.ndim == 1:
            return scores
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else None

    def _tabulate(self, ndim: int, state: State) -> State | None:
        """Tabulate the posterior mean for scores (m,) or (m, 2), unless it is too steep."""

        def log_odds(z: np.ndarray) -> np.ndarray:
            scores = z if ndim == 1 else np.stack([-z / 2, z / 2], axis=1)
            probs: AnyArray = over_draws(self, state, scores, mean_of_draws)
            zero, one = np.log(np.maximum(probs, np.finfo(float).tiny)).T
            return one - zero

        table, accurate = tabulate(log_odds, np.empty(0), _FAR)
        return table if accurate else None

    def _ends(self, state: State, scores: XArray, level: float) -> XArray:
        return over_draws(self, state, scores, partial(ends_of_draws, level=level))

    def _has_ends(self, state: State) -> bool:
        return "theta_draws" in state

    def _state_of_intervals(self) -> State:
        """Return the state with draws of the parameters; raise if there is no posterior."""
        self.posterior_  # noqa: B018  raises without a posterior
        return self._precomputed(self.state_)

    def _map_ends(self, state: State, scores: XArray, level: float) -> XArray:
        return map_ends(self, state, scores, level)

    def predict_interval(
        self, scores: ArrayLike, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute central credible intervals of the calibrated probabilities.

        Parameters
        ----------
        scores : array-like of shape (m, k), or (m,) or (m, 1) for two classes
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (m, k)
            For binary calibrators (m,): intervals of the second class.

        Raises
        ------
        AttributeError
            If the calibrator was fitted with inference "map", which has no posterior.
            (:class:`StackedScaling` of fewer than 30 classes has intervals without one.)
        """
        check_is_fitted(self)
        return predict_ends(self, self._state_of_intervals(), scores, check_level(level))


def map_ends(calibrator: AnyModel, state: State, scores: XArray, level: float) -> XArray:
    """Compute the ends (m, 2) or (m, 2, k) of intervals at scores in the user's units."""
    least = state.get("least_probabilities")
    values = transform(scores, calibrator.inputs, calibrator.domain, least)
    return public_ends(calibrator._ends(state, values, level), scores, calibrator.inputs)


def predict_ends(
    calibrator: AnyModel, state: State, scores: ArrayLike, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Check new scores, and compute the lower and upper ends (m,) or (m, k) of intervals."""
    rows = calibrator._new_rows(scores)
    with np.errstate(over="ignore", under="ignore"):
        ends = calibrator._ends(state, calibrator._converted(rows), level)
    lower, upper = np.moveaxis(public_ends(ends, rows, calibrator.inputs), 1, 0)
    return lower, upper


def keep_draws(estimator: AnyModel, draws: Draws) -> State:
    """Return draws as entries of the state; warn if chains are unmixed or draws too few."""
    r_hat, ess, min_ess, alternative = draws.r_hat.max(), draws.ess.min(), 100, "laplace"
    if estimator.inference == "laplace":
        min_ess, alternative = min(min_ess, 0.1 * estimator.num_samples), "nuts"
    if r_hat > 1.05 or ess < min_ess:
        warn(
            f"{type(estimator).__name__}: the draws describe the posterior poorly (R-hat "
            f"{r_hat:.3f}, effective sample size {ess:.0f}); raise num_samples, or use "
            f"inference={alternative!r}",
            SamplingWarning,
        )
    return {
        "status": np.asarray(draws.status),
        "theta_draws": draws.coefficients,
        "ess": draws.ess,
        "r_hat": draws.r_hat,
        "divergences": np.asarray(draws.divergences),
    }
