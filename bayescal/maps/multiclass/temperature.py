"""Temperature scaling of logits of several classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.checks import check_choice
from bayescal._core.optimise import Status
from bayescal.maps._map import State
from bayescal.maps.multiclass._adaptive import best_inverse_temperature
from bayescal.maps.multiclass._draws import summarise
from bayescal.maps.multiclass._linear import apply_inverse
from bayescal.maps.multiclass._map import (
    Domain,
    Keeps,
    ParametricMulticlassMap,
    register_multiclass,
)
from bayescal.regression.posterior import Draws
from bayescal.regression.temperature import fit_inverse_temperature, sample_inverse

__all__ = ["Temperature"]


@register_multiclass
@dataclass(frozen=True)
class Temperature(ParametricMulticlassMap):
    r"""Logits divided by one temperature, which is never negative.

    .. math:: \hat p = \operatorname{softmax}(z / T)

    Logits that predict labels no better than chance, or worse, get an infinite temperature: all
    classes are equally probable. By log loss O(n k) for each of about five iterations, of which
    all but three look at a part of many rows; more than 16,384 logits are used in single
    precision, which changes T by 1e-7 of itself.

    Parameters
    ----------
    objective : {"log_loss", "adaptive_ece"}
        What is minimised: the log loss, which has one minimum; or the expected calibration error
        of the confidence in 15 bins of equal mass, which is rough, over a grid of temperatures.

    References
    ----------
    C. Guo et al. (2017), On calibration of modern neural networks.

    Examples
    --------
    >>> import numpy as np
    >>> z, y = np.array([[4.0, 0, 0]] * 4), np.array([0, 0, 1, 2])
    >>> state = Temperature().fit(z, y, np.ones(4), seed=0)
    >>> state["temperature"].round(3).tolist()  # exp(4 / T) = 2
    5.771
    """

    name: ClassVar[str] = "temperature"
    keeps: ClassVar[Keeps] = "argmax"
    objective: Literal["log_loss", "adaptive_ece"] = "log_loss"

    def __post_init__(self) -> None:
        check_choice(self.objective, "objective", ("log_loss", "adaptive_ece"))

    @property
    def domain(self) -> Domain:
        return "logits"

    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        if self.objective == "log_loss":
            found = fit_inverse_temperature(scores, y, weights)
            told = {
                "objective": np.asarray(found.value / weights.sum()),
                "n_iter": np.asarray(found.iterations),
                "status": np.asarray(int(found.status)),
            }
            inverse = found.inverse
        else:
            inverse, error = best_inverse_temperature(scores, y, weights)
            told = {
                "objective": np.asarray(error),
                "status": np.asarray(int(Status.CONVERGED)),
            }
        with np.errstate(divide="ignore"):
            temperature = 1 / np.asarray(inverse)
        return {**told, "inverse": np.asarray(inverse), "temperature": temperature}

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        return apply_inverse(scores, float(state["inverse"]))

    def describe(self, theta: np.ndarray, k: int, unit: float) -> State:
        with np.errstate(divide="ignore"):
            return {"temperature": 1 / theta[..., 0]}

    def sample(
        self,
        state: State,
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        inference: str,
        num_samples: int,
        seed: int,
    ) -> Draws:
        """Return draws (chains, draws, 1) of 1 / T, whose logarithm has the prior N(0, 1.5**2)."""
        return sample_inverse(scores, y, weights, inference, num_samples, seed)

    def predict_draws(
        self, state: State, theta: np.ndarray, scores: np.ndarray, level: float | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        def curves(block: np.ndarray) -> np.ndarray:
            return np.stack([apply_inverse(block, float(inverse)) for inverse in theta[:, 0]])

        return summarise(curves, scores, len(theta), level)
