"""What all calibrators of binary scores share: scikit-learn's contract over a pure map."""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bayescal._core.checks import as_numpy, check_choice, check_count, check_level
from bayescal._core.numerics import sigmoid
from bayescal._core.optimise import Status
from bayescal._core.warnings import SamplingWarning
from bayescal.estimators._labels import read_rows
from bayescal.maps._inputs import INPUTS, convert, least_probabilities
from bayescal.maps._map import Domain, State
from bayescal.maps._parametric import FAR, Parametric
from bayescal.maps._posterior import ParameterPosterior, summarise_curves

_REMEDY = {
    Status.LIMIT: "the fit stopped before its optimum; scale the scores or leave out extreme ones",
    Status.UNBOUNDED: (
        "the scores separate the labels, so that no finite parameters are best and the last ones "
        "are kept; use inference='laplace', whose prior keeps them finite, or more data"
    ),
    Status.INVALID: "the objective is not finite; check the scores",
}


class Calibrator(ClassifierMixin, BaseEstimator):
    """A calibrator of the scores of a binary classifier."""

    inputs: Any
    classes: Any

    #: The pure map; its fields are parameters of the estimator too.
    _method: ClassVar[Any]

    def _map(self) -> Any:
        fields = dataclasses.fields(self._method)
        return self._method(**{field.name: getattr(self, field.name) for field in fields})

    def fit(self, scores: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the map.

        Parameters
        ----------
        scores : array-like of shape (n,), (n, 1) or (n, k)
            As ``inputs`` says: probabilities or logits, a column for each class in sorted order, or
            in that of ``classes``; of two classes also the probability or log odds of the second
            alone; or raw scores. Calibrators of binary scores take two classes only.
        y : array-like of shape (n,)
            Labels, of any k values.
        sample_weight : array-like of shape (n,), optional
            Non-negative; a whole weight is the same as repeating the row.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If scores contradict ``inputs``, are not finite, or labels hold another number of
            classes than the scores, without ``classes``.

        Notes
        -----
        Maps of logarithms take a probability of exactly 0 for half the least positive one of its
        class, at most 0.01 (``least_probabilities_``): a forest's 0 is no certainty.

        Warns
        -----
        ConvergenceWarning
            If the fit has no finite optimum or did not reach it; ``status_`` says which.
        """
        check_choice(self.inputs, "inputs", INPUTS)
        self._map()  # checks the options
        rows = self._check_rows(scores, reset=True)
        self.classes_, *parts = self._read(rows, y, sample_weight)
        rows, label, weights = parts
        calibration = self._map()
        values, least = self._convert(rows, calibration.domain, None)
        self._state = self._fit_state(calibration, values, label, weights)
        if least is not None:
            self._state["least_probabilities"] = least
        status = Status(int(self._state.get("status", Status.CONVERGED)))
        self.status_ = status.name.lower()
        if status != Status.CONVERGED:
            warnings.warn(
                f"{type(self).__name__}: {_REMEDY[status]}", ConvergenceWarning, stacklevel=2
            )
        return self

    def _read(self, rows: np.ndarray, y: Any, sample_weight: Any) -> Any:
        """Return the classes, and rows, labels as their positions and weights of used rows."""
        return read_rows(rows, y, sample_weight, self.classes)

    def _fit_state(
        self, calibration: Any, scores: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> State:
        return self._fit_map(calibration, scores, y, weights, self._seed())

    def _fit_map(
        self, calibration: Any, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int
    ) -> State:
        return calibration.fit(scores, y, weights)

    def _seed(self) -> int:
        random_state = getattr(self, "random_state", 0)
        return int(check_random_state(random_state).randint(2**31 - 1))

    def predict_proba(self, scores: Any) -> np.ndarray:
        """Return the calibrated probabilities of both classes.

        Parameters
        ----------
        scores : array-like of shape (m,), (m, 1) or (m, 2)

        Returns
        -------
        array of shape (m, 2), float64
            Columns in the order of ``classes_``.
        """
        return self._both(*self._prepare(scores))

    def predict(self, scores: Any) -> np.ndarray:
        """Return the more probable class (m,) for each score."""
        most = np.argmax(self.predict_proba(scores), axis=1)
        return self.classes_[most]

    @staticmethod
    def combine(calibrators: list[Any], scores: list[Any]) -> np.ndarray:
        """Return the probabilities (m, 2) of an ensemble, each with scores of its own: the mean.

        Parameters
        ----------
        calibrators : list of fitted calibrators
        scores : list of arrays of shape (m,), (m, 1) or (m, 2)
        """
        parts = [c.predict_proba(s) for c, s in zip(calibrators, scores, strict=True)]
        return np.mean(parts, axis=0)

    def _both(self, calibration: Any, values: np.ndarray) -> np.ndarray:
        """Return the probabilities (m, 2) of both classes."""
        positive = np.clip(calibration.apply(self._state, values), 0.0, 1.0)
        return np.stack([1 - positive, positive], axis=1)

    def _prepare(self, scores: Any) -> tuple[Any, np.ndarray]:
        check_is_fitted(self)
        calibration = self._map()
        rows = self._check_rows(scores, reset=False)
        least = self._state.get("least_probabilities")
        return calibration, self._convert(rows, calibration.domain, least)[0]

    def _convert(
        self, rows: np.ndarray, domain: Domain, least: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return values (n,) for the map, and what probabilities of zero stand for in them."""
        logarithms = self.inputs == "probs" and domain in ("log_odds", "real")
        if not logarithms:
            return convert(rows, self.inputs, domain), None
        if least is None:
            convert(rows, self.inputs, "probability")  # checks
            least = least_probabilities(rows)
        return convert(rows, self.inputs, domain, least), least

    def _check_rows(self, scores: Any, reset: bool) -> Any:
        """Return (n, 1) or (n, 2) numbers, and keep or compare number and names of features."""
        if hasattr(scores, "detach"):
            scores = as_numpy(scores, "scores")
        if not hasattr(scores, "shape"):
            scores = np.asarray(scores)
        if len(scores.shape) == 1:
            scores = np.asarray(scores).reshape(-1, 1)
        return validate_data(
            self, scores, reset=reset, dtype="numeric", ensure_min_samples=1, force_writeable=False
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def __getattr__(self, name: str) -> Any:
        if isinstance(getattr(type(self), name, None), property):
            # A property that has no value says itself why.
            return getattr(type(self), name).fget(self)
        # What a map found is an attribute of its own name and an underscore.
        state = self.__dict__.get("_state")
        if state is not None and name.endswith("_") and name[:-1] in state:
            value = state[name[:-1]]
            return value.item() if value.ndim == 0 else value
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        found = (f"{name}_" for name in self.__dict__.get("_state", {}))
        return sorted({*super().__dir__(), *found})


class PosteriorCalibrator(Calibrator, ABC):
    """A calibrator with parameters that may have a posterior."""

    inference: Any
    num_samples: Any
    random_state: Any

    def _fit_state(
        self, calibration: Any, scores: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> State:
        check_choice(self.inference, "inference", ("map", "laplace", "nuts"))
        samples = check_count(self.num_samples, "num_samples")
        seed = self._seed()
        state = self._fit_map(calibration, scores, y, weights, seed)
        if self.inference == "map":
            return state
        draws = calibration.sample(state, scores, y, weights, self.inference, samples, seed)
        # The prior makes the posterior proper: what the likelihood alone lacks is no fault here.
        state["status"] = np.asarray(draws.status)
        state["theta_draws"] = draws.coefficients
        state["ess"], state["r_hat"] = draws.ess, draws.r_hat
        state["divergences"] = np.asarray(draws.divergences)
        if self.inference == "nuts":
            warn_of_chains(self, draws.r_hat, draws.ess)
        return state

    @property
    def posterior_(self) -> ParameterPosterior:
        """The posterior of the parameters; only with inference "laplace" or "nuts"."""
        check_is_fitted(self)
        if "theta_draws" not in self._state:
            raise AttributeError(
                "posterior_ needs inference='laplace' or 'nuts'; this was fitted by 'map'"
            )
        state = self._state
        return ParameterPosterior(
            self._describe(state["theta_draws"]),
            self.inference,
            state["ess"],
            state["r_hat"],
            int(state["divergences"]),
        )

    def _both(self, calibration: Any, values: np.ndarray) -> np.ndarray:
        if "theta_draws" in self._state:
            return self._curves(calibration, values, None)[0]
        return self._best(calibration, values)

    def predict_interval(self, scores: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return central credible intervals of the calibrated probabilities.

        Parameters
        ----------
        scores : array-like of shape (m, k), or (m,) or (m, 1) for two classes
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (m, k)
            Of calibrators of binary scores (m,), for the second class.

        Raises
        ------
        AttributeError
            If fitted with inference "map", which has no posterior.
        """
        self.posterior_  # noqa: B018  raises where there is none
        level = check_level(level)
        return self._curves(*self._prepare(scores), level)[1:]

    @abstractmethod
    def _describe(self, theta: np.ndarray) -> State:
        """Return draws (..., p) under the names that users know."""

    @abstractmethod
    def _best(self, calibration: Any, values: np.ndarray) -> np.ndarray:
        """Return the probabilities (m, k) of the parameters that fit best."""

    @abstractmethod
    def _curves(self, calibration: Any, values: np.ndarray, level: float | None) -> Any:
        """Return means (m, k), and lower and upper ends, over the draws."""

    def _draws(self) -> np.ndarray:
        """Return the draws (s, p) of all chains."""
        theta = self._state["theta_draws"]
        return theta.reshape(-1, theta.shape[-1])


class ParametricCalibrator(PosteriorCalibrator):
    """A calibrator of binary scores with few parameters."""

    def _describe(self, theta: np.ndarray) -> State:
        return self._map().describe(theta)

    def _best(self, calibration: Parametric, values: np.ndarray) -> np.ndarray:
        # Neither is one minus the other: both are right where they are tiny.
        line = calibration.line(self._state, values)
        return np.stack([sigmoid(-line), sigmoid(line)], axis=1)

    def _curves(self, calibration: Parametric, values: np.ndarray, level: float | None) -> Any:
        columns = calibration.columns(self._state, np.clip(values, -FAR, FAR))
        return summarise_curves(self._draws(), columns, level)


def warn_of_chains(estimator: Any, r_hat: np.ndarray, ess: np.ndarray) -> None:
    """Warn where chains have not mixed, or draws are few."""
    if r_hat.max() > 1.05 or ess.min() < 100:
        warnings.warn(
            f"{type(estimator).__name__}: the draws describe the posterior badly (R-hat "
            f"{r_hat.max():.3f}, effective sample size {ess.min():.0f}); raise num_samples, "
            "or use inference='laplace'",
            SamplingWarning,
            stacklevel=4,
        )
