"""The posterior of a map's parameters, as users hold it."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayescal._core.numerics import sigmoid
from bayescal.inference import to_arviz


class ParameterPosterior:
    """Draws of the parameters of a calibration map.

    Attributes
    ----------
    draws : dict of arrays of shape (chains, draws, ...)
        Under the names of the parameters.
    inference : str
        ``"laplace"`` or ``"nuts"``.
    ess, r_hat : arrays of shape (p,)
        Effective sample size and split R-hat of each fitted coefficient: by ``nuts`` measured,
        by ``laplace`` the number of draws and one, as these are independent.
    divergences : int
        Divergent transitions of ``nuts``.
    """

    def __init__(
        self,
        draws: dict[str, np.ndarray],
        inference: str,
        ess: np.ndarray,
        r_hat: np.ndarray,
        divergences: int,
    ) -> None:
        self.draws = draws
        self.inference = inference
        self.ess, self.r_hat, self.divergences = ess, r_hat, divergences

    def mean(self) -> dict[str, np.ndarray]:
        """Return the posterior mean of each parameter."""
        return {name: values.mean(axis=(0, 1)) for name, values in self.draws.items()}

    def sd(self) -> dict[str, np.ndarray]:
        """Return the posterior standard deviation of each parameter."""
        return {name: values.std(axis=(0, 1)) for name, values in self.draws.items()}

    def interval(self, level: float = 0.9) -> dict[str, np.ndarray]:
        """Return central credible intervals, lower and upper end along the first axis."""
        tails = (1 - level) / 2, (1 + level) / 2
        return {name: np.quantile(v, tails, axis=(0, 1)) for name, v in self.draws.items()}

    def to_arviz(self) -> Any:
        """Return the draws in ArviZ's container, for ``az.summary`` and plots."""
        return to_arviz(self.draws, None, {"inference": self.inference})

    def __repr__(self) -> str:
        mean, sd = self.mean(), self.sd()
        facts = [
            f"{name} = {mean[name]:.3g} ± {sd[name]:.2g}"
            if np.ndim(mean[name]) == 0
            else f"{name}: {mean[name].size} values"
            for name in self.draws
        ]
        return f"ParameterPosterior({self.inference}: {', '.join(facts)})"


def summarise_curves(
    theta: np.ndarray, columns: np.ndarray, level: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean (m, 2), lower and upper ends (m,) of probabilities over draws (s, p).

    The mean is that of either class; the ends are those of class 1.

    Without a level the ends are empty. Streamed over points: O(s m p) time, never s * m numbers.
    """
    m = columns.shape[1]
    block = max(1, (1 << 20) // len(theta))
    mean = np.empty((m, 2))
    ends = np.empty((2, m if level is not None else 0))
    for first in range(0, m, block):
        part = slice(first, first + block)
        with np.errstate(over="ignore"):
            line = theta @ columns[:, part]
        mean[part, 0] = sigmoid(-line).mean(axis=0)
        mean[part, 1] = sigmoid(line).mean(axis=0)
        if level is not None:
            # The sigmoid rises: its quantiles are those of the line.
            tails = (1 - level) / 2, (1 + level) / 2
            ends[:, part] = sigmoid(np.quantile(line, tails, axis=0))
    return mean, ends[0], ends[1]
