"""Calibrators of binary scores that follow the data: isotonic, binned and by rank."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from bayescal import maps
from bayescal.estimators._calibrator import Calibrator
from bayescal.maps._inputs import Inputs

__all__ = [
    "BBQ",
    "CDFSpline",
    "CenteredIsotonic",
    "Histogram",
    "Isotonic",
    "ScalingBinning",
    "VennAbers",
]


class Isotonic(Calibrator):
    """Isotonic regression: the most likely map that never decreases.

    Parameters
    ----------
    bounds : {"none", "laplace"}
        "laplace" keeps probabilities away from 0 and 1.
    inputs : {"probs", "logits", "scores"}
        What the scores are; it is never guessed from them.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged", "limit" or "unbounded".
    thresholds_, values_ : arrays
        The map is linear between these points.

    See Also
    --------
    bayescal.maps.isotonic.Isotonic : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.Isotonic().fit(p, y).predict_proba([0.2, 0.7])[:, 1].round(2).tolist()
    [0.25, 0.5]
    """

    _method = maps.Isotonic

    def __init__(
        self,
        bounds: Literal["none", "laplace"] = "none",
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
    ) -> None:
        self.bounds = bounds
        self.inputs = inputs
        self.classes = classes


class CenteredIsotonic(Calibrator):
    """Centred isotonic regression: isotonic, and strictly rising between the ends.

    Parameters
    ----------
    bounds : {"none", "laplace"}
        "laplace" keeps probabilities away from 0 and 1.
    inputs : {"probs", "logits", "scores"}
        What the scores are; it is never guessed from them.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged", "limit" or "unbounded".
    thresholds_, values_ : arrays
        The map is linear between these points.

    See Also
    --------
    bayescal.maps.isotonic.CenteredIsotonic : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.CenteredIsotonic().fit(p, y).predict_proba([0.4, 0.6])[:, 1].round(2).tolist()
    [0.35, 0.6]
    """

    _method = maps.CenteredIsotonic

    def __init__(
        self,
        bounds: Literal["none", "laplace"] = "none",
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
    ) -> None:
        self.bounds = bounds
        self.inputs = inputs
        self.classes = classes


class Histogram(Calibrator):
    """Histogram binning: the share of the second class among the rows of the same bin.

    Parameters
    ----------
    bins : int
    binning : {"equal_width", "equal_mass"}
    inputs : {"probs", "logits", "scores"}
        What the scores are; it is never guessed from them.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged", "limit" or "unbounded".
    edges_, values_, bin_weights_ : arrays
        Inner borders of the bins, their probabilities and their weights.

    See Also
    --------
    bayescal.maps.histogram.Histogram : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.Histogram(bins=2).fit(p, y).predict_proba([0.2, 0.7])[:, 1].round(2).tolist()
    [0.33, 0.67]
    """

    _method = maps.Histogram

    def __init__(
        self,
        bins: int = 10,
        binning: Literal["equal_width", "equal_mass"] = "equal_width",
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
    ) -> None:
        self.bins = bins
        self.binning = binning
        self.inputs = inputs
        self.classes = classes


class ScalingBinning(Calibrator):
    """Scaling-binning: a logistic map, then bins that predict its mean within them.

    Parameters
    ----------
    bins : int
    inputs : {"probs", "logits", "scores"}
        What the scores are; it is never guessed from them.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged", "limit" or "unbounded".
    edges_, values_, bin_weights_ : arrays
        Inner borders of the bins, their probabilities and their weights.
    slope_, intercept_ : float

    See Also
    --------
    bayescal.maps.scaling_binning.ScalingBinning : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.ScalingBinning(bins=2).fit(p, y).values_.round(2).tolist()
    [0.35, 0.65]
    """

    _method = maps.ScalingBinning

    def __init__(
        self,
        bins: int = 10,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
    ) -> None:
        self.bins = bins
        self.inputs = inputs
        self.classes = classes


class BBQ(Calibrator):
    """Bayesian binning into quantiles: an average over binnings, by their evidence.

    Parameters
    ----------
    range_factor : float
        Binnings have between n^(1/3) divided by it, and n^(1/3) times it, bins.
    prior_weight : float
        Cases that the prior of a whole binning counts for.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged", "limit" or "unbounded".
    model_weights_ : array
        Posterior probabilities of the binnings.

    See Also
    --------
    bayescal.maps.bbq.BBQ : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.BBQ().fit(p, y).predict_proba([0.2]).shape
    (1, 2)
    """

    _method = maps.BBQ

    def __init__(
        self,
        range_factor: float = 10.0,
        prior_weight: float = 2.0,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
    ) -> None:
        self.range_factor = range_factor
        self.prior_weight = prior_weight
        self.inputs = inputs
        self.classes = classes


class VennAbers(Calibrator):
    """Inductive Venn-Abers prediction: isotonic regression with the new score in either class.

    In ``CalibratedClassifier(..., ensemble=True)`` this is the cross Venn-Abers predictor.

    Parameters
    ----------
    inputs : {"probs", "logits", "scores"}
        What the scores are; it is never guessed from them.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged", "limit" or "unbounded".
    thresholds_, lower_, upper_ : arrays

    See Also
    --------
    bayescal.maps.venn_abers.VennAbers : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> calibrator = bc.VennAbers().fit(p, y)
    >>> lower, upper = calibrator.predict_interval([0.5])
    >>> bool(lower[0] < calibrator.predict_proba([0.5])[0, 1] < upper[0])
    True
    """

    _method = maps.VennAbers

    def __init__(
        self,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
    ) -> None:
        self.inputs = inputs
        self.classes = classes

    def predict_interval(self, scores: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the two probabilities of the second class, of which one is calibrated.

        Parameters
        ----------
        scores : array-like of shape (m,), (m, 1) or (m, 2)

        Returns
        -------
        lower, upper : arrays of shape (m,)
            With the score added to the first class, and to the second. Their width says how much
            one more case matters; it is no credible interval.
        """
        calibration, values = self._prepare(scores)
        return calibration.interval(self._state, values)

    @staticmethod
    def combine(calibrators: list[Any], scores: list[Any]) -> np.ndarray:
        """Return the probabilities (m, 2) of a cross Venn-Abers predictor.

        Geometric means over the folds replace the two probabilities of one, which is the
        combination with the least worst regret in log loss.

        Parameters
        ----------
        calibrators : list of fitted calibrators
        scores : list of arrays of shape (m,), (m, 1) or (m, 2)

        References
        ----------
        V. Vovk, I. Petej and V. Fedorova (2015), Large-scale probabilistic predictors with and
        without guarantees of validity.
        """
        pairs = [c.predict_interval(s) for c, s in zip(calibrators, scores, strict=True)]
        lower, upper = (np.array(ends) for ends in zip(*pairs, strict=True))
        with np.errstate(divide="ignore"):
            one = np.exp(np.log(upper).mean(axis=0))
            zero = np.exp(np.log1p(-lower).mean(axis=0))
        return np.stack([zero, one], axis=1) / (zero + one)[:, None]


class CDFSpline(Calibrator):
    """Calibration by the slope of a spline through the cumulative share of the second class.

    Parameters
    ----------
    knots : int
    inputs : {"probs", "logits", "scores"}
        What the scores are; it is never guessed from them.
    classes : pair of labels, optional
        Negative and positive label; needed where the data may lack one.

    Attributes
    ----------
    classes_ : array of shape (2,)
    status_ : str
        "converged", "limit" or "unbounded".

    See Also
    --------
    bayescal.maps.cdf_spline.CDFSpline : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.CDFSpline(knots=3).fit(p, y).predict_proba([0.2]).shape
    (1, 2)
    """

    _method = maps.CDFSpline

    def __init__(
        self,
        knots: int = 6,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
    ) -> None:
        self.knots = knots
        self.inputs = inputs
        self.classes = classes
