"""The public ``ParameterPosterior``: posterior draws of a calibrator's parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import arviz
    import xarray as xr

from bayescal.data.checks import check_level
from bayescal.inference._arviz import to_arviz


@dataclass(frozen=True, repr=False)
class ParameterPosterior:
    """Posterior draws of the parameters of a calibrator.

    The attribute ``posterior_`` of a calibrator fitted with ``inference="laplace"`` or ``"nuts"``.

    Attributes
    ----------
    draws : dict of arrays of shape (chains, draws, ...)
        Draws by the name of the parameter.
    inference : str
        ``"laplace"`` or ``"nuts"``.
    ess, r_hat : arrays of shape (p,)
        Effective sample size and split R-hat of each fitted coefficient: measured for ``nuts``;
        for ``laplace`` the number of independent draws, or that of sequential Monte Carlo, and one.
    divergences : int
        Number of divergent transitions of ``nuts``.
    """

    draws: dict[str, np.ndarray]
    inference: str
    ess: np.ndarray
    r_hat: np.ndarray
    divergences: int

    def mean(self) -> dict[str, np.ndarray]:
        """Return the posterior mean of each parameter."""
        return {name: values.mean(axis=(0, 1)) for name, values in self.draws.items()}

    def sd(self) -> dict[str, np.ndarray]:
        """Return the posterior standard deviation of each parameter."""
        return {name: values.std(axis=(0, 1)) for name, values in self.draws.items()}

    def interval(self, level: float = 0.9) -> dict[str, np.ndarray]:
        """Return central credible intervals; the first axis holds the lower and the upper end."""
        level = check_level(level)
        tails = (1 - level) / 2, (1 + level) / 2
        return {name: np.quantile(v, tails, axis=(0, 1)) for name, v in self.draws.items()}

    def to_arviz(self) -> arviz.InferenceData | xr.DataTree:
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
