"""Temperature scaling of two or more classes, and its ensemble."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np

from bayescal import maps
from bayescal.estimators._calibrator import ParametricCalibrator
from bayescal.estimators._multiclass import ParametricMulticlassCalibrator
from bayescal.maps import multiclass
from bayescal.maps._map import State
from bayescal.maps._parametric import Inference
from bayescal.maps.multiclass._inputs import Inputs

__all__ = ["EnsembleTemperature", "Temperature"]


class Temperature(ParametricCalibrator):
    """Temperature scaling: logits, or log odds of two classes, divided by one temperature.

    Parameters
    ----------
    objective : {"log_loss", "adaptive_ece"}
        What the temperature minimises: the log loss, or the expected calibration error in 15 bins
        of equal mass, which has no posterior.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of labels, optional
        Of the columns, in their order; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        Maximum likelihood, or a posterior under a weak prior: its normal approximation, or four
        chains of the no-U-turn sampler. With a posterior, predictions are posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    temperature_ : float

    See Also
    --------
    bayescal.maps.multiclass.temperature.Temperature : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bool(bc.Temperature().fit(p, y).temperature_ > 1)  # over-confident
    True
    >>> logits, y = [[4.0, 0, 0], [4, 0, 0], [0, 4, 0], [0, 0, 4]], [0, 1, 1, 2]
    >>> bc.Temperature(inputs="logits").fit(logits, y).predict_proba(logits[:1]).round(2).tolist()
    [[0.75, 0.13, 0.13]]
    """

    _method = maps.Temperature
    #: For more classes, and for the other objective.
    _several = multiclass.Temperature

    def __init__(
        self,
        objective: Literal["log_loss", "adaptive_ece"] = "log_loss",
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        inference: Inference = "map",
        num_samples: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.objective = objective
        self.inputs = inputs
        self.classes = classes
        self.inference = inference
        self.num_samples = num_samples
        self.random_state = random_state

    # Two classes are a map of log odds, as of all binary calibrators; more are one of logits.

    def _way(self, columns: int | None = None) -> Any:
        columns = len(getattr(self, "classes_", "01")) if columns is None else columns
        several = columns > 2 or self.objective != "log_loss"
        return ParametricMulticlassCalibrator if several else ParametricCalibrator

    def _map(self) -> Any:
        several = self._several(cast(Any, self.objective))
        if self.objective != "log_loss" and self.inference != "map":
            raise ValueError(
                f"inference must be 'map' for objective={self.objective!r}, which has no "
                f"likelihood, got {self.inference!r}"
            )
        return several if self._way() is ParametricMulticlassCalibrator else self._method()

    def _read(self, rows: np.ndarray, *args: Any) -> Any:
        return self._way(rows.shape[1])._read(self, rows, *args)

    def _fit_map(self, *args: Any) -> State:
        return self._way()._fit_map(self, *args)

    def _convert(self, *args: Any) -> Any:
        return self._way()._convert(self, *args)

    def _describe(self, theta: np.ndarray) -> State:
        return self._way()._describe(self, theta)

    def _best(self, *args: Any) -> np.ndarray:
        return self._way()._best(self, *args)

    def _curves(self, *args: Any) -> Any:
        return self._way()._curves(self, *args)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags


class EnsembleTemperature(ParametricMulticlassCalibrator):
    """Ensemble temperature scaling: scaled, original and uniform probabilities, mixed.

    Parameters
    ----------
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        The best temperature, then the best mixture; or a posterior of both under a weak prior: its
        normal approximation, or four chains of the no-U-turn sampler. With a posterior,
        predictions are posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    temperature_ : float
    mixture_ : array of shape (3,)
        Shares of scaled, original and uniform probabilities.

    See Also
    --------
    bayescal.maps.multiclass.EnsembleTemperature : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.EnsembleTemperature().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.68, 0.2, 0.11]]
    """

    _method = multiclass.EnsembleTemperature

    def __init__(
        self,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        inference: Inference = "map",
        num_samples: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.inputs = inputs
        self.classes = classes
        self.inference = inference
        self.num_samples = num_samples
        self.random_state = random_state
