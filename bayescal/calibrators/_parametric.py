"""Calibrators with parameters, which may have a posterior."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import ArrayLike
from bayescal._core.checks import check_choice, check_count, check_level
from bayescal._core.warnings import SamplingWarning
from bayescal.calibrators._base import Calibrator, State
from bayescal.calibrators._labels import frames_to_caller
from bayescal.calibrators._posterior import row_blocks, summarize_draws
from bayescal.inference.parameters import ParameterPosterior
from bayescal.regression.tempered import Draws

Inference = Literal["map", "laplace", "nuts"]


class WithPosterior(ABC):
    """An estimator whose state may hold draws of its parameters."""

    inference: Inference
    state_: State

    @abstractmethod
    def _curves(self, state: State, theta: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Return probabilities (s, m, k) by each of the parameters (s, p)."""

    @abstractmethod
    def _describe(self, state: State, theta: np.ndarray) -> State:
        """Return parameters (..., p) under the names that users know."""

    def _summary(self, state: State, scores: np.ndarray, level: float | None) -> np.ndarray:
        """Return means (m, k), and with a level lower and upper ends, over the draws."""
        draws = state["theta_draws"]
        theta = draws.reshape(-1, draws.shape[-1])
        return summarize_draws(
            lambda part: self._curves(state, theta, part), scores, len(theta), level
        )

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
class ParametricCalibrator(WithPosterior, Calibrator):
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

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Return probabilities (m, k): means over the draws, where the state holds draws."""
        if "theta_draws" in state:
            return self._summary(state, scores, None)[0]
        return self._best(state, scores)

    def _best(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Return the probabilities (m, k) of the parameters that fit best."""
        width = scores[:1].size
        parts = [
            self._curves(state, state["theta"][None], scores[part])[0]
            for part in row_blocks(len(scores), max(2, width))
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

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
        lower, upper = self._summary(self.state_, self._values(scores), check_level(level))[1:]
        return (lower, upper) if lower.shape[1] > 2 else (lower[:, 1], upper[:, 1])


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
