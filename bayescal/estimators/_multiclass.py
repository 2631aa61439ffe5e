"""What calibrators of several classes share: scikit-learn's contract over a pure map."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bayescal._core.checks import check_choice, check_count, check_level
from bayescal.estimators._calibrator import Calibrator, read_rows, warn_of_chains
from bayescal.maps._map import State
from bayescal.maps._posterior import ParameterPosterior
from bayescal.maps.multiclass._inputs import convert, least_probabilities
from bayescal.maps.multiclass._map import MulticlassMap, ParametricMulticlassMap


class MulticlassCalibrator(Calibrator):
    """A calibrator of the scores of a classifier of two or more classes."""

    def predict_proba(self, scores: Any) -> np.ndarray:
        """Return the calibrated probabilities of all classes.

        Parameters
        ----------
        scores : array-like of shape (m, k), or (m,) or (m, 1) for two classes

        Returns
        -------
        array of shape (m, k), float64
            Columns in the order of ``classes_``.
        """
        return super().predict_proba(scores)

    def _read(self, rows: np.ndarray, y: Any, sample_weight: Any) -> Any:
        columns = max(2, rows.shape[1])
        return read_rows(rows, y, sample_weight, self.classes, columns)

    def _fit_state(
        self, calibration: MulticlassMap, scores: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> State:
        return calibration.fit(scores, y, weights, self._seed())

    def _seed(self) -> int:
        random_state = getattr(self, "random_state", 0)
        return int(check_random_state(random_state).randint(2**31 - 1))

    def _convert(self, rows: np.ndarray, domain: Any, least: np.ndarray | None) -> Any:
        if self.inputs != "probs" or domain == "probability":
            return convert(rows, self.inputs, domain), None
        if least is None:
            convert(rows, self.inputs, "probability")  # checks
            least = least_probabilities(rows)
        return convert(rows, self.inputs, domain, least), least

    def _both(self, calibration: MulticlassMap, values: np.ndarray) -> np.ndarray:
        return calibration.apply(self._state, values)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags


class ParametricMulticlassCalibrator(MulticlassCalibrator):
    """A calibrator of several classes whose parameters may have a posterior."""

    inference: Any
    num_samples: Any
    random_state: Any

    def _fit_state(
        self,
        calibration: ParametricMulticlassMap,
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
    ) -> State:
        check_choice(self.inference, "inference", ("map", "laplace", "nuts"))
        samples = check_count(self.num_samples, "num_samples")
        seed = self._seed()
        state = calibration.fit(scores, y, weights, seed)
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
        state, calibration = self._state, self._map()
        k = int(state["present"].sum()) if "present" in state else len(self.classes_)
        return ParameterPosterior(
            calibration.describe(state["theta_draws"], k, float(state.get("unit", 1.0))),
            self.inference,
            state["ess"],
            state["r_hat"],
            int(state["divergences"]),
        )

    def _both(self, calibration: ParametricMulticlassMap, values: np.ndarray) -> np.ndarray:
        if "theta_draws" in self._state:
            return self._curves(calibration, values, None)[0]
        return calibration.apply(self._state, values)

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

        Raises
        ------
        AttributeError
            If fitted with inference "map", which has no posterior.
        """
        self.posterior_  # noqa: B018  raises where there is none
        level = check_level(level)
        return self._curves(*self._prepare(scores), level)[1:]

    def _curves(
        self, calibration: ParametricMulticlassMap, values: np.ndarray, level: float | None
    ) -> Any:
        theta = self._state["theta_draws"]
        flat = theta.reshape(-1, theta.shape[-1])
        return calibration.predict_draws(self._state, flat, values, level)
