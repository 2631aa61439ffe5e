"""Ensemble temperature scaling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bayescal.calibrators._base import Keeps, State
from bayescal.calibrators._inputs import Domain
from bayescal.calibrators._mixture import best_mixture
from bayescal.calibrators._mixture_posterior import sample_mixture
from bayescal.calibrators._parametric import ParametricCalibrator
from bayescal.calibrators.temperature import fit_inverse_temperature, scaled_softmax
from bayescal.regression.posterior import Draws

__all__ = ["EnsembleTemperature"]


@dataclass(eq=False, repr=False)
class EnsembleTemperature(ParametricCalibrator):
    r"""A mixture of temperature-scaled, original and uniform probabilities (ETS).

    .. math:: \hat p = w_1 \operatorname{softmax}(z / T) + w_2 \operatorname{softmax}(z) + w_3 / k

    The temperature minimises the log loss alone; then the weights, which are not negative and sum
    to one, minimise that of the mixture, a convex problem. O(n k) time.

    Attributes
    ----------
    temperature_ : float
    mixture_ : array of shape (3,)
        Shares of scaled, original and uniform probabilities.

    References
    ----------
    J. Zhang, B. Kailkhura, T. Han (2020), Mix-n-match: ensemble and compositional methods for
    uncertainty calibration in deep learning.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.EnsembleTemperature().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.68, 0.2, 0.11]]
    """

    temperature_: float = field(init=False)
    mixture_: np.ndarray = field(init=False)

    keeps: ClassVar[Keeps] = "argmax"

    @property
    def domain(self) -> Domain:
        return "logits"

    def _fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        found = fit_inverse_temperature(scores, y, weights)
        rows = np.arange(len(y))
        own = [scaled_softmax(scores, s)[rows, y] for s in (found.inverse, 1.0)]
        parts = np.stack([*own, np.full(len(y), 1 / scores.shape[1])], axis=1)
        mixture, loss = best_mixture(parts, weights)
        theta = np.array([found.inverse, *mixture])
        return {
            **self._describe({}, theta),
            "theta": theta,
            "objective": np.asarray(loss / weights.sum()),
            "status": np.asarray(int(found.status)),
        }

    def _describe(self, state: State, theta: np.ndarray) -> State:
        with np.errstate(divide="ignore"):
            return {"temperature": 1 / theta[..., 0], "mixture": theta[..., 1:]}

    def _curves(self, state: State, theta: np.ndarray, scores: np.ndarray) -> np.ndarray:
        original = scaled_softmax(scores, 1.0)
        uniform = 1 / scores.shape[1]
        parts = (scaled_softmax(scores, float(inverse)) for inverse in theta[:, 0])
        shares = theta[:, 1:]
        return np.stack(
            [
                s[0] * own + s[1] * original + s[2] * uniform
                for s, own in zip(shares, parts, strict=True)
            ]
        )

    def _sample(
        self, state: State, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int
    ) -> Draws:
        start = float(state["theta"][0]), state["mixture"]
        return sample_mixture(scores, y, weights, start, self.inference, self.num_samples, seed)
