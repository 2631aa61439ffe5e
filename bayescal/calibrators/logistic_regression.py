"""Logistic regression that is not over-confident: soft targets, penalties, priors, posteriors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bayescal._core.arrays import ArrayLike, matmul
from bayescal._core.keys import seed_of
from bayescal._core.numerics import ignoring_underflow, sigmoids
from bayescal._core.optimise import Status
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.draws import ends_of_draws, mean_of_draws, over_draws
from bayescal.calibrators.base.estimator import Estimator
from bayescal.calibrators.base.function import PredictFunction, needed
from bayescal.calibrators.base.parametric import Inference, keep_draws, posterior_of
from bayescal.calibrators.base.status import keep_status
from bayescal.data.checks import as_numpy, check_choice, check_level, check_unmasked
from bayescal.data.kept_rows import keep_rows
from bayescal.data.labels import read_rows
from bayescal.inference.parameters import ParameterPosterior
from bayescal.regression.binary.objective import Distribution
from bayescal.regression.method import PRESETS, Method, Settled
from bayescal.regression.numpyro_models import Model, regression_model

__all__ = ["LogisticRegression"]


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(Estimator, ClassifierMixin, BaseEstimator):
    r"""Binary logistic regression with soft targets, a penalty or a prior, or a whole posterior.

    Minimizes the weighted cross-entropy of :math:`\sigma(w \cdot x + c)` to targets t,

    .. math:: -\sum_i v_i \left[t_i \log \sigma_i + (1 - t_i) \log(1 - \sigma_i)\right]
              + \lambda \left(\rho |w|_1 + \tfrac{1 - \rho}{2} |w|^2\right) - \log p(w, c),

    with the intercept c never penalized. As a calibrator of scores give it one column of them.

    Parameters
    ----------
    smoothing : None, "platt", float, "cv" or "instance"
        Targets: the labels; Platt's, 1 - 1 / (N + 2) of a class of N; labels moved by a constant in
        [0, 1/2); by the constant of 40 between 1e-5 and 1e-1 with the best cross-validated log
        loss; or moved most where the class is most certain, by kernel density estimates of both
        (:func:`bayescal.smoothing.instance_targets` with one scale for both classes).
    penalty : None, "l1", "l2" or "elasticnet"
    strength : float or "cv"
        :math:`\lambda`, in nats, for sums (not means) over rows: scikit-learn's 1 / C, and for "l2"
        twice the constant of texts that penalize :math:`|w|^2` without the half, as Maher (2020).
        "cv" takes the one of 1e-5, 1e-4, ..., 1e3 with the best cross-validated log loss.
    l1_ratio : float
        :math:`\rho` for "elasticnet".
    coef_prior : None, "cauchy" or a NumPyro distribution
        "cauchy": coefficients Cauchy(0, 2.5) for features centered and scaled to a standard
        deviation of 1/2 (two-valued ones to a range of 1). A distribution is the prior of each
        coefficient of the features as they are. With a prior the intercept at the features' means
        is Cauchy(0, 10).
    inference : {"map", "laplace", "nuts"}
        The optimum alone, or the posterior: its normal approximation (where that is poor,
        sequential Monte Carlo from it), or four chains of the no-U-turn sampler. With a posterior,
        which needs ``coef_prior`` or ``penalty="l2"``, predictions are posterior means.
    folds : int
        Of cross-validation: stratified, and by what rows hold, whatever their order.
    num_samples : int
        Draws from the posterior, of all chains.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.
    random_state : int, RandomState or None
        Of the draws.

    Attributes
    ----------
    classes_ : array of shape (2,)
    coef_ : array of shape (1, d)
    intercept_ : array of shape (1,)
        With a posterior, these are the mode.
    status_ : str
        "converged", "limit" or "unbounded": the last where labels are separable and nothing keeps
        coefficients finite. Then the last iterate is kept, with a warning.
    objective_ : float
        The weighted mean of what was minimized, penalty or prior included.
    n_iter_ : int
    strength_, smoothing_ : float or None
        What cross-validation chose, or what was given.
    cv_losses_ : array of shape (candidates, folds) or None
        Mean log loss of the rows held out.
    report_ : Report
        What was fitted, to how many rows, and their log loss: in sample.

    Notes
    -----
    Features are measured from their means, so that it does not matter how far from zero they lie.
    O(n d^2) for each Newton step, of which there are about six. Fits without "l1", "cv" and NumPyro
    distributions compile nothing. Cross-validation fits all candidates and folds in one compiled
    call.

    References
    ----------
    J. Platt (1999), Probabilistic outputs for support vector machines.
    A. Gelman et al. (2008), A weakly informative default prior distribution for logistic and other
    regression models.
    M. Maher (2020), Instance-based label smoothing for better classifier calibration.

    Examples
    --------
    >>> import bayescal as bc
    >>> X, y = [[-2.0], [-1.0], [1.0], [2.0]], ["no", "no", "yes", "yes"]
    >>> model = bc.LogisticRegression.preset("platt").fit(X, y)
    >>> model.predict_proba([[2.0]]).round(2).tolist()  # separable, and still finite
    [[0.21, 0.79]]
    >>> model = bc.LogisticRegression(coef_prior="cauchy", inference="laplace", random_state=0)
    >>> lower, upper = model.fit(X, y).predict_interval([[2.0]])
    >>> bool(lower[0] < model.predict_proba([[2.0]])[0, 1] < upper[0])
    True
    """

    smoothing: float | Literal["platt", "cv", "instance"] | None = None
    penalty: Literal["l1", "l2", "elasticnet"] | None = None
    strength: float | Literal["cv"] = "cv"
    l1_ratio: float = 0.5
    coef_prior: Literal["cauchy"] | Distribution | None = None
    inference: Inference = "map"
    folds: int = 10
    num_samples: int = 1000
    classes: Sequence[object] | np.ndarray | None = None
    random_state: int | np.random.RandomState | None = None

    classes_: np.ndarray = field(init=False)
    coef_: np.ndarray = field(init=False)
    intercept_: np.ndarray = field(init=False)
    status_: str = field(init=False)
    objective_: float = field(init=False)
    n_iter_: int = field(init=False)
    strength_: float | None = field(init=False)
    smoothing_: float | None = field(init=False)
    cv_losses_: np.ndarray | None = field(init=False)
    state_: State = field(init=False)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """Return a method of the study by its name there, with other parameters as given.

        Parameters
        ----------
        name : {"normal", "platt", "smoothed", "L1", "L2", "ibls", "cauchy_map", "cauchy"}
        """
        check_choice(name, "name", tuple(PRESETS))
        return cls(**{**PRESETS[name], **changes})

    @ignoring_underflow
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the regression.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
            Labels, of any two values.
        sample_weight : array-like of shape (n,), optional
            Non-negative; a whole weight is the same as repeating the row.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For options that contradict each other, X that is not finite, or other than two classes.

        Warns
        -----
        ConvergenceWarning
            If there is no finite optimum or it was not reached; ``status_`` says which.
        """
        check_random_state(self.random_state)
        method, X, weights, settled = self._settle(X, y, sample_weight)
        found = method.fit(X, weights, settled)
        theta = np.asarray(found.x)
        self.intercept_, self.coef_ = theta[:1], theta[None, 1:]
        self.objective_ = float(found.value) / float(weights.sum())
        self.n_iter_ = int(found.iterations)
        self.smoothing_, self.strength_ = settled.smoothing, settled.strength
        self.cv_losses_ = settled.losses
        self.state_ = {"theta": theta}
        status = Status(int(found.status))
        if self.inference != "map":
            seed = seed_of(self.random_state)
            draws = method.sample(X, weights, settled, seed)
            # The prior makes the posterior proper, whatever the likelihood alone lacks.
            status = Status(draws.status)
            self.state_ |= keep_draws(self, draws)
        self._forget_report()
        keep_status(self, status, _REMEDY)
        return self

    def _settle(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Method, np.ndarray, np.ndarray, Settled]:
        """Return options, features, weights and what is left to fit; keep the classes."""
        method = Method(**{own.name: getattr(self, own.name) for own in fields(Method)})
        X = self._check_features(X, reset=True)
        self.classes_, *parts = read_rows(X, y, sample_weight, self.classes)
        X, label, weights = parts
        self._kept_rows = keep_rows(X, label, weights)
        return method, X, weights, method.settle(X, label, weights)

    def numpyro_model(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Model:
        """Return what ``fit`` maximizes, or samples, as a model of NumPyro.

        Any inference of NumPyro can run it. What is cross-validated is chosen first. With
        ``inference="map"`` the density is flat where there is no penalty and no prior.

        Parameters
        ----------
        X, y, sample_weight : array-like, as for ``fit``

        Returns
        -------
        function of no arguments
            The model, with sites ``coef`` (d,) and ``intercept``, for the features as they are. It
            calculates in the precision that JAX is set to.

        Examples
        --------
        >>> import bayescal as bc, jax
        >>> from numpyro.infer import SVI, Trace_ELBO, autoguide
        >>> from numpyro.optim import Adam
        >>> X, y = [[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1]
        >>> model = bc.LogisticRegression(coef_prior="cauchy").numpyro_model(X, y)
        >>> guide = autoguide.AutoLaplaceApproximation(model)
        >>> svi = SVI(model, guide, Adam(0.1), Trace_ELBO())
        >>> found = svi.run(jax.random.key(0), 1000, progress_bar=False)
        >>> bool(guide.median(found.params)["coef"][0] > 0.5)
        True
        """
        own: Any = clone(self)
        return regression_model(*own._settle(X, y, sample_weight))

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return the log odds (m,) of the second class."""
        check_is_fitted(self)
        if "theta_draws" in self.state_:
            probability = self.predict_proba(X)
            with np.errstate(divide="ignore"):
                return np.log(probability[:, 1]) - np.log(probability[:, 0])
        theta = self.state_["theta"]
        return self._check_features(X, reset=False) @ theta[1:] + theta[0]

    @ignoring_underflow
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return probabilities (m, 2) of the classes in the order of ``classes_``."""
        check_is_fitted(self)
        return self._map(self.state_, self._check_features(X, reset=False))

    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the logarithms of :meth:`predict_proba`."""
        check_is_fitted(self)
        if "theta_draws" not in self.state_:
            line = self.decision_function(X)
            return -np.logaddexp(0, np.stack([line, -line], axis=1))
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the more probable class (m,) for each row."""
        most = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[most]

    @ignoring_underflow
    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return central credible intervals of the probability of the second class.

        Parameters
        ----------
        X : array-like of shape (m, d)
        level : float
            Posterior probability of the interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (m,)

        Raises
        ------
        AttributeError
            If fitted with inference "map", which has no posterior.
        """
        self.posterior_  # noqa: B018  raises where there is none
        level, rows = check_level(level), self._check_features(X, reset=False)
        lower, upper = self._map_ends(self.state_, rows, level).T
        return lower, upper

    @ignoring_underflow
    def as_function(self) -> PredictFunction:
        """Return predictions as a pure function of arrays of JAX, PyTorch, NumPy and others.

        Returns
        -------
        PredictFunction
            Of features (m, d).
        """
        check_is_fitted(self)
        bare: Any = clone(self)
        bare.set_params(classes=None, coef_prior=None)
        return PredictFunction(bare, needed(self.state_), vars(self)["n_features_in_"])

    def _map(self, state: State, features: Any) -> Any:
        if "theta_draws" in state:
            return over_draws(self, state, features, mean_of_draws)
        return self._curves(state, state["theta"], features)

    def _has_ends(self, state: State) -> bool:
        return "theta_draws" in state

    def _map_ends(self, state: State, features: Any, level: float) -> Any:
        ends = partial(ends_of_draws, level=level)
        return over_draws(self, state, features, ends)[:, :, 1]

    @property
    def posterior_(self) -> ParameterPosterior:
        """The posterior of the parameters; only with inference "laplace" or "nuts"."""
        return posterior_of(self)

    def _curves(self, state: State, theta: Any, scores: Any) -> Any:
        line = theta[..., :1] + matmul(theta[..., 1:], scores.T)
        return sigmoids(line)

    def _width(self, state: State, scores: Any) -> int:
        return 2

    def _describe(self, state: State, theta: np.ndarray) -> State:
        return {"intercept": theta[..., 0], "coef": theta[..., 1:]}

    def _check_features(self, X: Any, reset: bool) -> np.ndarray:
        """Return features (n, d) in float64, and keep or compare their number and names."""
        check_unmasked(X, "X")
        if hasattr(X, "detach"):
            X = as_numpy(X, "X")
        rows: Any = validate_data(self, X, reset=reset, dtype="numeric", ensure_min_samples=1)
        return as_numpy(rows, "X").astype(np.float64, copy=False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.array_api_support = True
        return tags


_REMEDY = {
    Status.LIMIT: "the fit stopped before its optimum; scale the features",
    Status.UNBOUNDED: (
        "a plane separates the labels, so that no finite coefficients are best and the last ones "
        "are kept; say smoothing='platt', coef_prior='cauchy' or penalty='l2'"
    ),
    Status.INVALID: "the objective is not finite; check the features and the prior",
}
