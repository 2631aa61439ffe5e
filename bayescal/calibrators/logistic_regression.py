"""Binary logistic regression with soft targets, penalties, priors and posteriors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from bayescal._core.arrays import AnyArray, AnyModel, ArrayLike, UserData, XArray, matmul
from bayescal._core.minimization.optimize import Status
from bayescal._core.numerics import ignoring_underflow, sigmoids
from bayescal._core.random.keys import check_seed, seed_of
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.draws import ends_of_log_odds, mean_of_draws, over_draws
from bayescal.calibrators.base.estimator import Estimator, keep_status
from bayescal.calibrators.base.function import PredictFunction, needed
from bayescal.calibrators.base.parametric import Inference, keep_draws, posterior_of
from bayescal.data.checks import as_numpy, check_choice, check_level, check_unmasked
from bayescal.data.kept_rows import keep_rows
from bayescal.data.labels import read_rows
from bayescal.inference.parameters import ParameterPosterior
from bayescal.regression.binary.objective import Distribution
from bayescal.regression.method import PRESETS, Method, Settled
from bayescal.regression.numpyro_models import Model, regression_model


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(Estimator, ClassifierMixin, BaseEstimator):
    r"""Binary logistic regression with soft targets, penalties, priors and posteriors.

    The fit minimizes the weighted cross-entropy of :math:`\sigma(w \cdot x + c)` to targets t,

    .. math:: -\sum_i v_i \left[t_i \log \sigma_i + (1 - t_i) \log(1 - \sigma_i)\right]
              + \lambda \left(\rho |w|_1 + \tfrac{1 - \rho}{2} |w|^2\right) - \log p(w, c),

    where the intercept c is not penalized. It calibrates scores if they are its only feature.

    Parameters
    ----------
    smoothing : None, "platt", float, "cv" or "instance"
        Targets of the fit. None uses the labels. "platt" uses Platt's targets, 1 - 1 / (N + 2) for
        a class of N rows. A number in [0, 1/2) moves labels by this constant; "cv" chooses it from
        40 values between 1e-5 and 1e-1 by cross-validated log loss. "instance" moves labels most
        where the class is most certain according to kernel density estimates
        (:func:`bayescal.smoothing.instance_targets` with one scale for both classes).
    penalty : None, "l1", "l2" or "elasticnet"
        Penalty of the coefficients.
    strength : float or "cv"
        :math:`\lambda`, in nats, for sums (not means) over rows. It equals scikit-learn's 1 / C,
        and for "l2" twice the constant of texts that penalize :math:`|w|^2` without the factor 1/2,
        such as Maher (2020). "cv" chooses it from 1e-5, 1e-4, ..., 1e3 by cross-validated log loss.
    l1_ratio : float
        :math:`\rho` for "elasticnet".
    coef_prior : None, "cauchy" or a NumPyro distribution
        With "cauchy", coefficients are Cauchy(0, 2.5) for features that are centered and scaled to
        a standard deviation of 1/2 (binary features to a range of 1). A distribution over all
        real numbers is the prior of each coefficient of the unscaled features; with batch shape
        (d,), each coefficient has its own. With a prior, and in every posterior, the intercept at
        the means of the features is Cauchy(0, 10).
    inference : {"map", "laplace", "nuts"}
        "map" computes the optimum, under Cauchy priors a local one. The others compute a posterior,
        which needs ``coef_prior`` or ``penalty="l2"``: "laplace" by a normal approximation (of up
        to 100 parameters refined by sequential Monte Carlo where it is poor), "nuts" by four chains
        of the no-U-turn sampler. Predictions are then posterior means. Where the approximation is
        poor and cannot be refined, a warning says so. Refinement under a distribution needs its
        quantiles (``icdf``) or its distribution function (``cdf``).
    folds : int
        Number of folds of cross-validation, which are stratified and independent of the order of
        rows.
    num_samples : int
        Number of posterior draws, over all chains.
    classes : pair of labels, optional
        Negative and positive label; needed if the data may lack one.
    random_state : int, RandomState or None
        Seed of the draws.

    Attributes
    ----------
    classes_ : array of shape (2,)
    coef_ : array of shape (1, d)
    intercept_ : array of shape (1,)
        With a posterior, these are the mode.
    status_ : str
        "converged", "limit" or "unbounded". A fit is unbounded if the labels are separable and no
        penalty or prior keeps coefficients finite; the last iterate is kept, with a warning.
    objective_ : float
        Weighted mean of the objective per row, including penalty or prior.
    n_iter_ : int
        Number of iterations.
    strength_, smoothing_ : float or None
        Values that cross-validation chose, or the options.
    cv_losses_ : array of shape (candidates, folds) or None
        Mean log losses of held-out rows. Without smoothing they are infinite if the other rows lack
        their class; then all candidates are equally good, and the strongest is chosen.
    report_ : Report
        What was fitted, the number of rows, and the in-sample log loss.

    See Also
    --------
    Logistic : A calibrator of scores: logistic calibration and Platt scaling.

    Notes
    -----
    Features are centered, so their location does not matter. A fit takes about six Newton steps of
    O(n d^2). Fits without "l1", "cv" and NumPyro distributions compile nothing. Cross-validation
    fits all candidates and folds in one compiled call.

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
    >>> model.predict_proba([[2.0]]).round(2).tolist()  # separable, but finite
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
    def preset(cls, name: str, **changes: object) -> Self:
        """Make a method of the study of Maher (2020) by its name, with changed options.

        Parameters
        ----------
        name : {"normal", "platt", "smoothed", "L1", "L2", "ibls", "cauchy_map", "cauchy"}
        """
        check_choice(name, "name", tuple(PRESETS))
        return cls(**{**PRESETS[name], **changes})

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the regression.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
            Labels of any two values.
        sample_weight : array-like of shape (n,), optional
            Non-negative; an integer weight equals repeated rows.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For contradictory options, X that is not finite, or labels that are not of two classes.

        Warns
        -----
        ConvergenceWarning
            If there is no finite optimum or it was not reached; see ``status_``.
        """
        check_seed(self.random_state)
        method, X, weights, problem = self._settle(X, y, sample_weight)
        minimum = method.fit(X, weights, problem)
        theta = np.asarray(minimum.x)
        self.intercept_, self.coef_ = theta[:1], theta[None, 1:]
        self.objective_ = float(minimum.value) / float(weights.sum())
        self.n_iter_ = int(minimum.iterations)
        self.smoothing_, self.strength_ = problem.smoothing, problem.strength
        self.cv_losses_ = problem.losses
        self.state_ = {"theta": theta}
        status = Status(int(minimum.status))
        if self.inference != "map":
            seed = seed_of(self.random_state)
            draws = method.sample(X, weights, problem, seed)
            # The prior makes the posterior proper even if the likelihood has no maximum.
            status = Status(draws.status)
            self.state_ |= keep_draws(self, draws)
        self._forget_report()
        shrunk = self.coef_prior is not None or bool(problem.strength)
        keep_status(self, status, _REMEDY | _SHRUNK if shrunk else _REMEDY)
        return self

    def _settle(
        self, X: object, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Method, np.ndarray, np.ndarray, Settled]:
        """Check options and data; return the method, features, weights and the problem to fit."""
        method = Method(**{option.name: getattr(self, option.name) for option in fields(Method)})
        X = self._check_features(X, reset=True)
        self.classes_, *parts = read_rows(X, y, sample_weight, self.classes)
        X, label, weights = parts
        self._kept_rows = keep_rows(X, label, weights)
        # Sums over rows of few features are ten times faster if each feature lies in one piece.
        X = np.asfortranarray(X)
        return method, X, weights, method.settle(X, label, weights)

    def numpyro_model(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Model:
        """Return the density that ``fit`` maximizes or samples as a NumPyro model.

        Any NumPyro inference can run the model. Cross-validated options are chosen first. With
        ``inference="map"`` and neither penalty nor prior, the density is the likelihood.

        Parameters
        ----------
        X, y, sample_weight : array-like
            Data as in ``fit``.

        Returns
        -------
        function of no arguments
            The model, with sites ``coef`` (d,) and ``intercept`` for the unscaled features. It
            computes in the precision that JAX is set to.

        Examples
        --------
        >>> import bayescal as bc, jax
        >>> from numpyro.infer import SVI, Trace_ELBO, autoguide
        >>> from numpyro.optim import Adam
        >>> X, y = [[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1]
        >>> model = bc.LogisticRegression(coef_prior="cauchy").numpyro_model(X, y)
        >>> guide = autoguide.AutoLaplaceApproximation(model)
        >>> svi = SVI(model, guide, Adam(0.1), Trace_ELBO())
        >>> result = svi.run(jax.random.key(0), 1000, progress_bar=False)
        >>> bool(guide.median(result.params)["coef"][0] > 0.5)
        True
        """
        copy: AnyModel = clone(self)
        return regression_model(*copy._settle(X, y, sample_weight))

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Compute the log odds (m,) of the second class."""
        check_is_fitted(self)
        if "theta_draws" in self.state_:
            probability = self.predict_proba(X)
            with np.errstate(divide="ignore"):
                return np.log(probability[:, 1]) - np.log(probability[:, 0])
        theta = self.state_["theta"]
        return self._check_features(X, reset=False) @ theta[1:] + theta[0]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Compute probabilities (m, 2) of the classes in the order of ``classes_``."""
        check_is_fitted(self)
        return self._map(self.state_, self._check_features(X, reset=False))

    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Compute the logarithms of :meth:`predict_proba`."""
        check_is_fitted(self)
        if "theta_draws" not in self.state_:
            line = self.decision_function(X)
            return -np.logaddexp(0, np.stack([line, -line], axis=1))
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the more probable class (m,) for each row."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Compute central credible intervals of the probability of the second class.

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
            If the model was fitted with inference "map", which has no posterior.
        """
        self.posterior_  # noqa: B018  raises without a posterior
        level, rows = check_level(level), self._check_features(X, reset=False)
        lower, upper = self._map_ends(self.state_, rows, level).T
        return lower, upper

    @ignoring_underflow
    def as_function(self) -> PredictFunction:
        """Return predictions as a pure function of arrays of JAX, PyTorch, NumPy and others.

        Returns
        -------
        PredictFunction
            A function of features (m, d).
        """
        check_is_fitted(self)
        unfitted: AnyModel = clone(self)
        unfitted.set_params(classes=None, coef_prior=None)
        return PredictFunction(unfitted, needed(self.state_), vars(self)["n_features_in_"])

    def _map(self, state: State, features: XArray) -> AnyArray:
        if "theta_draws" in state:
            return over_draws(self, state, features, mean_of_draws)
        return self._curves(state, state["theta"], features)

    def _has_ends(self, state: State) -> bool:
        return "theta_draws" in state

    def _map_ends(self, state: State, features: XArray, level: float) -> XArray:
        ends = partial(ends_of_log_odds, level=level)
        return over_draws(self, state, features, ends, self._log_odds)[:, :, 1]

    @property
    def posterior_(self) -> ParameterPosterior:
        """The posterior of the parameters; only with inference "laplace" or "nuts"."""
        return posterior_of(self)

    def _log_odds(self, state: State, theta: XArray, scores: XArray) -> XArray:
        return theta[..., :1] + matmul(theta[..., 1:], scores.T)

    def _curves(self, state: State, theta: XArray, scores: XArray) -> XArray:
        return sigmoids(self._log_odds(state, theta, scores))

    def _width(self, state: State, scores: XArray) -> int:
        return 2

    def _describe(self, state: State, theta: np.ndarray) -> State:
        return {"intercept": theta[..., 0], "coef": theta[..., 1:]}

    def _check_features(self, X: UserData, reset: bool) -> np.ndarray:
        """Check features (n, d) and convert them to float64; set or compare number and names."""
        check_unmasked(X, "X")
        if hasattr(X, "detach"):
            X = as_numpy(X, "X")
        if str(getattr(X, "dtype", "")) == "bfloat16":  # which scikit-learn does not know
            X = np.asarray(X, np.float32)
        rows = validate_data(self, X, reset=reset, dtype="numeric", ensure_min_samples=1)
        return as_numpy(rows, "X").astype(np.float64, copy=False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.classifier_tags is not None
        tags.classifier_tags.multi_class = False
        return tags


_REMEDY = {
    Status.LIMIT: "the fit stopped before its optimum; scale the features",
    Status.UNBOUNDED: (
        "a plane separates the labels, so that no finite coefficients are best and the last ones "
        "are kept; pass smoothing='platt', coef_prior='cauchy' or penalty='l2'"
    ),
    Status.INVALID: "the objective is not finite; check the features and the prior",
}
#: The remedy where a prior or a penalty makes the best coefficients finite.
_SHRUNK = {
    Status.UNBOUNDED: (
        "a plane separates the labels, and the prior or penalty is too weak to determine the "
        "coefficients, of which the last ones are kept; make it stronger, or scale the features"
    )
}
