"""Ensemble temperature scaling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bayescal._core.arrays import XArray
from bayescal._core.numerics import scaled_softmax
from bayescal.calibrators.base.calibrator import Keeps, State
from bayescal.calibrators.base.draws import row_blocks
from bayescal.calibrators.base.parametric import ParametricCalibrator
from bayescal.calibrators.multiclass.scale import fit_inverse
from bayescal.calibrators.stack.mixture import best_mixture, mixture_model, sample_mixture
from bayescal.data.rows import Rows, Source
from bayescal.regression.binary.posterior import Draws
from bayescal.regression.numpyro_models import Model


@dataclass(eq=False, repr=False)
class EnsembleTemperature(ParametricCalibrator):
    r"""Ensemble temperature scaling: a mixture of scaled, original and uniform probabilities.

    .. math:: \hat p = w_1 \operatorname{softmax}(z / T) + w_2 \operatorname{softmax}(z) + w_3 / k

    The temperature minimizes the log loss without the mixture. Then the weights, which are not
    negative and sum to one, minimize the log loss of the mixture, which is a convex problem. O(n k)
    time. The prior of the posterior is log T ~ N(0, 1.5^2), and uniform for the weights.

    Attributes
    ----------
    temperature_ : float
        T.
    mixture_ : array of shape (3,)
        Weights of scaled, original and uniform probabilities.

    Notes
    -----
    In simulations intervals of level 0.9 covered 90 to 93 % of true maps that were drawn from the
    prior. It is rarely near the border of the weights, where they covered less: 66 to 80 % if a
    temperature alone is correct (``benchmarks/coverage_bands.py``). Use :class:`Temperature` there.
    With 1,000 rows they covered 7 % of shifts of classes, which no weights can express.

    References
    ----------
    J. Zhang, B. Kailkhura, T. Han (2020), Mix-n-match: ensemble and compositional methods for
    uncertainty calibration in deep learning.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 0, 2, 1, 1, 1, 2, 0, 0]
    >>> bc.EnsembleTemperature().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.52, 0.28, 0.2]]
    """

    temperature_: float = field(init=False)
    mixture_: np.ndarray = field(init=False)

    keeps: ClassVar[Keeps] = "argmax"
    _domain = "logits"
    _smooth: ClassVar[bool] = True

    def _fit(self, rows: Source, seed: int) -> State:
        scores, y, weights = rows.all()
        minimum = fit_inverse(rows)
        parts = np.full((len(y), 3), 1 / scores.shape[1])
        for part in row_blocks(len(y), scores.shape[1]):
            at = np.arange(len(y[part])), y[part]
            parts[part, 0] = scaled_softmax(scores[part], minimum.x)[at]
            parts[part, 1] = scaled_softmax(scores[part], 1.0)[at]
        mixture, loss = best_mixture(parts, weights)
        theta = np.array([minimum.x, *mixture])
        return {
            **self._describe({}, theta),
            "theta": theta,
            "objective": np.asarray(loss / weights.sum()),
            "n_iter": np.asarray(minimum.iterations),
            "status": np.asarray(int(minimum.status)),
        }

    def _describe(self, state: State, theta: np.ndarray) -> State:
        with np.errstate(divide="ignore"):
            return {"temperature": 1 / theta[..., 0], "mixture": theta[..., 1:]}

    def _sample(self, state: State, rows: Source, seed: int) -> Draws:
        start = float(state["theta"][0]), state["mixture"]
        return sample_mixture(*rows.all(), start, self.inference, self.num_samples, seed)

    def _model(self, state: State, rows: Rows) -> Model:
        if self.inference == "map":  # a fit in two steps has no joint density
            return super()._model(state, rows)
        return mixture_model(*rows)

    def _curves(self, state: State, theta: XArray, scores: XArray) -> XArray:
        inverse, scaled, same, uniform = (theta[..., i, None, None] for i in range(4))
        original, k = scaled_softmax(scores, 1.0), scores.shape[1]
        return scaled * scaled_softmax(scores, inverse) + same * original + uniform / k
