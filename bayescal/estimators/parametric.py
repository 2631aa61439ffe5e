"""Calibrators of binary scores with few parameters, which may have a posterior."""

from __future__ import annotations

from typing import Any, Literal

from bayescal import maps
from bayescal.estimators._calibrator import ParametricCalibrator
from bayescal.maps._inputs import Inputs
from bayescal.maps._parametric import Inference

__all__ = ["Beta", "Logistic", "Quadratic", "Spline"]


class Logistic(ParametricCalibrator):
    """Logistic calibration: log odds that are a line in the log odds, or in raw scores.

    With ``inputs="scores"`` and ``smoothing="platt"`` this is Platt scaling as he published it.

    Parameters
    ----------
    smoothing : None, "platt", float or "instance"
        Targets: labels; Platt's; labels moved by a constant; or moved most where their class is
        most certain.
    inputs : {"probs", "logits", "scores"}
        What the scores are; it is never guessed from them.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        Maximum likelihood, or a posterior under a weak prior: its normal approximation, or four
        chains of the no-U-turn sampler. With a posterior, predictions are posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged", "limit" or "unbounded".
    slope_, intercept_ : float

    See Also
    --------
    bayescal.maps.logistic.Logistic : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.Logistic().fit(p, y).predict_proba([0.2, 0.7])[:, 1].round(2).tolist()
    [0.32, 0.6]
    """

    _method = maps.Logistic

    def __init__(
        self,
        smoothing: float | Literal["platt", "instance"] | None = None,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        inference: Inference = "map",
        num_samples: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.smoothing = smoothing
        self.inputs = inputs
        self.classes = classes
        self.inference = inference
        self.num_samples = num_samples
        self.random_state = random_state


class Beta(ParametricCalibrator):
    """Beta calibration: log odds a ln p - b ln(1 - p) + c, with a and b not negative.

    Parameters
    ----------
    parameters : {3, 2, 1}
        All; c = 0; or also a = b.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        Maximum likelihood, or a posterior under a weak prior: its normal approximation, or four
        chains of the no-U-turn sampler. With a posterior, predictions are posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged", "limit" or "unbounded".
    a_, b_, c_ : float

    See Also
    --------
    bayescal.maps.beta.Beta : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> calibrator = bc.Beta(inference="laplace", random_state=0).fit(p, y)
    >>> lower, upper = calibrator.predict_interval([0.7], level=0.9)
    >>> bool(lower[0] < calibrator.predict_proba([0.7])[0, 1] < upper[0])
    True
    """

    _method = maps.Beta

    def __init__(
        self,
        parameters: Literal[3, 2, 1] = 3,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        inference: Inference = "map",
        num_samples: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.parameters = parameters
        self.inputs = inputs
        self.classes = classes
        self.inference = inference
        self.num_samples = num_samples
        self.random_state = random_state


class Quadratic(ParametricCalibrator):
    """Quadratic logistic calibration: log odds that are a parabola in the scores.

    Parameters
    ----------
    inputs : {"probs", "logits", "scores"}
        What the scores are; it is never guessed from them.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        Maximum likelihood, or a posterior under a weak prior: its normal approximation, or four
        chains of the no-U-turn sampler. With a posterior, predictions are posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged", "limit" or "unbounded".
    intercept_, slope_, curvature_ : float

    See Also
    --------
    bayescal.maps.logistic.Quadratic : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.Quadratic().fit(p, y).predict([0.2, 0.7]).tolist()
    [0, 1]
    """

    _method = maps.Quadratic

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


class Spline(ParametricCalibrator):
    """Spline calibration: log odds that are a natural cubic spline, its smoothness chosen by CV.

    Parameters
    ----------
    rescale : {None, "compact_logit"}
        What the spline is a function of: the probability, or its compact logit.
    knots : int
    penalty : {"coefficients", "curvature"}
    strength : float or "cv"
    folds : int
    rule : {"one_se", "best"}
        The smoothest curve within one standard error of the best by cross-validation, or the best.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        Maximum likelihood, or a posterior under a weak prior: its normal approximation, or four
        chains of the no-U-turn sampler. With a posterior, predictions are posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged", "limit" or "unbounded".
    strength_ : float
        Of the penalty.
    knots_ : array

    See Also
    --------
    bayescal.maps.spline.Spline : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> import numpy as np
    >>> p = np.linspace(0.05, 0.95, 60)
    >>> y = np.arange(60) * 7 % 10 < 10 * p**2
    >>> bool(bc.Spline().fit(p, y).predict_proba([0.5])[0, 1] < 0.4)
    True
    """

    _method = maps.Spline

    def __init__(
        self,
        rescale: Literal["compact_logit"] | None = None,
        knots: int = 200,
        penalty: Literal["curvature", "coefficients"] = "coefficients",
        strength: float | Literal["cv"] = "cv",
        folds: int = 5,
        rule: Literal["one_se", "best"] = "one_se",
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        inference: Inference = "map",
        num_samples: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.rescale = rescale
        self.knots = knots
        self.penalty = penalty
        self.strength = strength
        self.folds = folds
        self.rule = rule
        self.inputs = inputs
        self.classes = classes
        self.inference = inference
        self.num_samples = num_samples
        self.random_state = random_state
