"""Scaling of features as the weakly informative prior wants it, and back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal.regression.objective import Distribution, Prior

#: Gelman et al. (2008).
CAUCHY = Prior(0.0, 2.5, 1.0)
INTERCEPT = Prior(0.0, 10.0, 1.0)


class Scaling(NamedTuple):
    """What is taken from features (d,), and what they are then divided by (d,)."""

    mean: np.ndarray
    scale: np.ndarray

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Return scaled features (n, d)."""
        return (x - self.mean) / self.scale

    def back(self, beta: np.ndarray) -> np.ndarray:
        """Return intercept and coefficients (..., 1 + d) for the features as they were."""
        beta = np.array(beta)
        beta[..., 1:] /= self.scale
        beta[..., 0] -= beta[..., 1:] @ self.mean
        return beta


def of(x: np.ndarray, weights: np.ndarray, prior: str | Distribution | None) -> Scaling:
    """Return the scaling of features (n, d) for a prior.

    None leaves them as they are; "cauchy" centres them and makes their standard deviation 1/2, or
    the range of those with two values 1; any other prior has them centred.
    """
    d = x.shape[1]
    if prior is None:
        return Scaling(np.zeros(d), np.ones(d))
    low, high = x.min(axis=0), x.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    share = weights / weights.sum()
    inside = (x - low) / spread
    middle = share @ inside
    mean = low + spread * middle
    if not isinstance(prior, str) or prior != "cauchy":
        return Scaling(mean, np.ones(d))
    sd = np.sqrt(share @ (inside - middle) ** 2)
    two = ((inside == 0) | (inside == 1)).all(axis=0)
    return Scaling(mean, spread * np.where(two | (sd == 0), 1.0, 2 * sd))
