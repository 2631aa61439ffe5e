"""Calibrators with parameters, which may have a posterior."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import ArrayLike, namespace
from bayescal._core.checks import check_choice, check_count, check_level
from bayescal._core.warnings import SamplingWarning
from bayescal.calibrators._base import Calibrator, State
from bayescal.calibrators._inputs import transform
from bayescal.calibrators._labels import frames_to_caller
from bayescal.calibrators._posterior import ends_of_draws, map_rows, mean_of_draws
from bayescal.inference.parameters import ParameterPosterior
from bayescal.regression.tempered import Draws

Inference = Literal["map", "laplace", "nuts"]


class WithPosterior(ABC):
    """An estimator whose state may hold draws of its parameters."""

    inference: Inference
    state_: State

    @abstractmethod
    def _curves(self, state: State, theta: Any, scores: Any) -> Any:
        """Return probabilities (..., m, k) by each of the parameters (..., p)."""

    @abstractmethod
    def _describe(self, state: State, theta: Any) -> State:
        """Return parameters (..., p) under the names that users know."""

    def _draws(self, state: State, scores: Any) -> Any:
        """Return probabilities (s, m, k) by all draws."""
        draws = state["theta_draws"]
        return self._curves(state, namespace(draws).reshape(draws, (-1, draws.shape[-1])), scores)

    def _ends(self, state: State, scores: Any, level: float) -> Any:
        """Return the ends (m, 2, k) of central intervals over draws."""
        width = self._draws_width(state, scores)
        return map_rows(lambda rows: ends_of_draws(self._draws(state, rows), level), scores, width)

    def _mean(self, state: State, scores: Any) -> Any:
        """Return the means (m, k) over draws."""
        width = self._draws_width(state, scores)
        return map_rows(lambda rows: mean_of_draws(self._draws(state, rows)), scores, width)

    @abstractmethod
    def _width(self, state: State, scores: Any) -> int:
        """Return how many numbers the probabilities by one of the parameters are for each row."""

    def _draws_width(self, state: State, scores: Any) -> int:
        return math.prod(state["theta_draws"].shape[:-1]) * self._width(state, scores)

    @property
    def posterior_(self) -> ParameterPosterior:
        """The posterior of the parameters; only with inference "laplace" or "nuts"."""
        check_is_fitted(self)
        state = self.state_
        if "theta_draws" not in state:
            raise AttributeError(
                "posterior_ needs inference='laplace' or 'nuts'; this was fitted by 'map'"
            )
        named = self._describe(state, state["theta_draws"])
        divergences = int(state["divergences"])
        return ParameterPosterior(named, self.inference, state["ess"], state["r_hat"], divergences)


@dataclass(kw_only=True, eq=False, repr=False)
class ParametricCalibrator(Calibrator, WithPosterior):
    """A calibrator with parameters theta (p,), kept as ``state["theta"]``.

    A method writes ``_curves``, ``_describe`` and ``_sample``, and inherits predictions by the
    best parameters or by the posterior's mean, bands, and the posterior as users hold it.

    Parameters
    ----------
    inference : {"map", "laplace", "nuts"}
        The best parameters, or a posterior under a weak prior: its normal approximation (where that
        is poor, sequential Monte Carlo from it), or four chains of the no-U-turn sampler. With a
        posterior, predictions are posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None
        None is a fresh seed for every fit.

    Attributes
    ----------
    posterior_ : ParameterPosterior
        Only with inference "laplace" or "nuts".
    """

    inference: Inference = "map"
    num_samples: int = 1000
    random_state: int | np.random.RandomState | None = None

    @abstractmethod
    def _sample(
        self, state: State, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int
    ) -> Draws:
        """Return draws (chains, draws, p) by ``inference``, after a fit to the same data."""

    def _learn(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        check_choice(self.inference, "inference", ("map", "laplace", "nuts"))
        check_count(self.num_samples, "num_samples")
        state = self._fit(scores, y, weights, seed)
        if self.inference == "map":
            return state
        draws = self._sample(state, scores, y, weights, seed)
        # The prior makes the posterior proper: what the likelihood alone lacks is no fault here.
        return {**state, **keep_draws(self, draws)}

    def _apply(self, state: State, scores: Any) -> Any:
        """Return probabilities (m, k): means over the draws, where the state holds draws."""
        if "theta_draws" in state:
            return self._mean(state, scores)
        return self._best(state, scores)

    def _best(self, state: State, scores: Any) -> Any:
        """Return the probabilities (m, k) of the parameters that fit best."""
        return self._curves(state, state["theta"], scores)

    def _has_ends(self, state: State) -> bool:
        return "theta_draws" in state

    def _map_ends(self, state: State, scores: Any, level: float) -> Any:
        """Return the ends (m, 2) or (m, 2, k) of intervals at scores as users give them."""
        least = state.get("least_probabilities")
        ends = self._ends(state, transform(scores, self.inputs, self.domain, least), level)
        return ends if ends.shape[2] > 2 else ends[:, :, 1]

    def predict_interval(
        self, scores: ArrayLike, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return central credible intervals of the calibrated probabilities.

        Parameters
        ----------
        scores : array-like of shape (m, k), or (m,) or (m, 1) for two classes
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (m, k)
            Of two classes (m,), for the second.

        Raises
        ------
        AttributeError
            If fitted with inference "map", which has no posterior.
        """
        self.posterior_  # noqa: B018  raises where there is none
        state, level = self._precompute(self.state_), check_level(level)
        with np.errstate(over="ignore", under="ignore"):
            ends = self._ends(state, self._values(scores), level)
        lower, upper = np.moveaxis(ends if ends.shape[2] > 2 else ends[:, :, 1], 1, 0)
        return lower, upper


def keep_draws(estimator: Any, draws: Draws) -> State:
    """Return draws as entries of a state; warn where chains have not mixed, or draws are few."""
    r_hat, ess, few, other = draws.r_hat.max(), draws.ess.min(), 100, "laplace"
    if estimator.inference == "laplace":
        few, other = min(few, 0.1 * estimator.num_samples), "nuts"
    if r_hat > 1.05 or ess < few:
        warnings.warn(
            f"{type(estimator).__name__}: the draws describe the posterior badly (R-hat "
            f"{r_hat:.3f}, effective sample size {ess:.0f}); raise num_samples, or use "
            f"inference={other!r}",
            SamplingWarning,
            stacklevel=frames_to_caller(),
        )
    return {
        "status": np.asarray(draws.status),
        "theta_draws": draws.coefficients,
        "ess": draws.ess,
        "r_hat": draws.r_hat,
        "divergences": np.asarray(draws.divergences),
    }
