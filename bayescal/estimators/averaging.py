"""Calibrators that average several models of the scores by how well they explain the labels."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from bayescal import maps
from bayescal._core.checks import check_level
from bayescal.estimators._calibrator import Calibrator
from bayescal.estimators._multiclass import ParametricMulticlassCalibrator
from bayescal.maps import multiclass
from bayescal.maps._inputs import Inputs
from bayescal.maps._map import Domain, State
from bayescal.maps._parametric import Inference
from bayescal.maps.multiclass._inputs import Inputs as SeveralInputs
from bayescal.maps.multiclass._stack import log_mean

__all__ = ["AveragedBeta", "StackedScaling"]


class AveragedBeta(Calibrator):
    """Regressions on scaled scores, straight and bent, averaged by their evidence.

    A good choice for two classes and any number of rows: few give little more than a shrunk
    temperature, many the beta map and curves beyond it. Nothing is to be tuned.

    Parameters
    ----------
    power : float
        Of the evidence by which regressions are averaged: one is Bayes' rule, less hedges.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them. Probabilities of exactly 0 and 1 stand
        for 1e-38 and one minus that: what such scores are worth is learnt from the labels.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged" or "limit".
    inverse_, length_ : arrays of shape (d,)
        Inverse temperatures, and lengths of the Gaussian processes, that have weight.
    cell_weights_ : array of shape (d, 10)
        Posterior weights of the regressions at each, of which the last two are straight.

    See Also
    --------
    bayescal.maps.averaged_beta.AveragedBeta : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> calibrator = bc.AveragedBeta().fit(p, y)
    >>> calibrator.predict_proba([0.2, 0.9])[:, 1].round(2).tolist()
    [0.33, 0.71]
    >>> lower, upper = calibrator.predict_interval([0.9])
    >>> bool(lower[0] < 0.71 < upper[0])
    True
    """

    _method = maps.AveragedBeta

    def __init__(
        self, power: float = 1.0, *, inputs: Inputs = "probs", classes: Any = None
    ) -> None:
        self.power = power
        self.inputs = inputs
        self.classes = classes

    def predict_interval(self, scores: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return central credible intervals of the calibrated probability of the second class.

        Parameters
        ----------
        scores : array-like of shape (m,), (m, 1) or (m, 2)
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (m,)
        """
        level = check_level(level)
        calibration, values = self._prepare(scores)
        return calibration.interval(self._state, values, level)

    def _convert(
        self, rows: np.ndarray, domain: Domain, least: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        values, _ = super()._convert(rows, domain, np.full(2, self._method.least))
        return values, None


class StackedScaling(ParametricMulticlassCalibrator):
    """Structured scalings from strongly to weakly shrunk, mixed as cross-validation says.

    A good choice for three classes and more and any number of rows. Nothing is to be tuned.

    Parameters
    ----------
    mode : {"stack", "single"}
        "single" is the best member on its own, a sixth of the work.
    folds : int, optional
        By default 5, or 3 if there are 30 classes or more.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        The least penalised losses; or posteriors of the members, by their normal approximation or
        for up to 3,000 parameters of each by the no-U-turn sampler, with a Bayesian bootstrap of
        the weights. Then predictions are posterior means, and there are intervals.
    num_samples : int
        Draws from the posterior.
    random_state : int, RandomState or None
        Of folds and draws.

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged" or "limit".
    member_names_ : list of str
    stack_weights_ : array of shape (members,)
    held_out_mean_losses_ : array of shape (members,)
        Mean log loss of each member on rows left out; not of "single".
    inverse_ : float
        Inverse temperature.

    See Also
    --------
    bayescal.maps.multiclass.stacked_scaling.StackedScaling : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.StackedScaling(random_state=0).fit(p, y).predict_proba(p[:1]).round(1).tolist()
    [[0.7, 0.2, 0.1]]
    """

    _method = multiclass.StackedScaling
    #: Of the rows used, by the members mixed; not kept in files.
    _held_out_losses: np.ndarray | None = None

    def __init__(
        self,
        mode: Literal["stack", "single"] = "stack",
        folds: int | None = None,
        *,
        inputs: SeveralInputs = "probs",
        classes: Any = None,
        inference: Inference = "map",
        num_samples: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.mode = mode
        self.folds = folds
        self.inputs = inputs
        self.classes = classes
        self.inference = inference
        self.num_samples = num_samples
        self.random_state = random_state

    @property
    def member_names_(self) -> list[str]:
        """Names of the members."""
        return list(self._map().members(len(self.classes_)))

    def _fit_state(
        self, calibration: Any, scores: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> State:
        state = super()._fit_state(calibration, scores, y, weights)
        held = state.pop("held_out", None)
        self._held_out_losses = None if held is None else -log_mean(held, state["stack_weights"])
        return state
