"""Calibrators of several classes: by bins of the confidence, by decisions, by ordered networks."""

from __future__ import annotations

from typing import Any, Literal

from bayescal.estimators._multiclass import MulticlassCalibrator
from bayescal.maps import multiclass
from bayescal.maps.multiclass._binwise import Binning
from bayescal.maps.multiclass._inputs import Inputs
from bayescal.maps.multiclass._order_network import Family

__all__ = ["BinwiseTemperature", "Decision", "OrderPreserving", "WeightScaling"]


class WeightScaling(MulticlassCalibrator):
    """Weight scaling: a mixture with the uniform distribution, its share set by confidence.

    Parameters
    ----------
    bins : int, optional
        Bins of the confidence, each with a share of its own (13 are usual); None for one share.
    binning : {"equal_mass", "equal_width"}
        Bins of equal weight, or of equal width in [0, 1].
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    alpha_ : array of shape (bins,)
        Shares of the given probabilities.

    See Also
    --------
    bayescal.maps.multiclass.WeightScaling : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.WeightScaling(1).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.7, 0.2, 0.1]]
    """

    _method = multiclass.WeightScaling

    def __init__(
        self,
        bins: int | None = None,
        binning: Binning = "equal_mass",
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
    ) -> None:
        self.bins = bins
        self.binning = binning
        self.inputs = inputs
        self.classes = classes


class BinwiseTemperature(MulticlassCalibrator):
    """A temperature for each bin of the confidence.

    Parameters
    ----------
    objective : {"log_loss", "confidence"}
        Least log loss of the bin, or mean confidence equal to accuracy.
    bins : int
    binning : {"equal_mass", "equal_width"}
        Bins of equal weight, or of equal width in [0, 1].
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    temperature_ : array of shape (bins,)
    limited_ : array of shape (bins,)
        Where the rows could not decide the temperature.

    See Also
    --------
    bayescal.maps.multiclass.BinwiseTemperature : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.BinwiseTemperature(bins=1).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.71, 0.19, 0.1]]
    """

    _method = multiclass.BinwiseTemperature

    def __init__(
        self,
        objective: Literal["log_loss", "confidence"] = "log_loss",
        bins: int = 13,
        binning: Binning = "equal_mass",
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
    ) -> None:
        self.objective = objective
        self.bins = bins
        self.binning = binning
        self.inputs = inputs
        self.classes = classes


class Decision(MulticlassCalibrator):
    """Decision calibration: right on average wherever some decision would be taken.

    Parameters
    ----------
    decisions : int
        Number of actions between which decisions choose.
    steps : int or "cv"
        Greatest number of steps, or chosen by the cross-validated Brier score.
    tolerance : float
        Stops where the violation is at most this.
    crop : float, optional
        Least probability; by default chosen by the number of classes.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    random_state : int, RandomState or None
        Decides where searches start, and the folds.

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    violations_ : array of shape (steps,)
    briers_ : array of shape (steps + 1,)
        Brier score on the data, before and after each step.

    See Also
    --------
    bayescal.maps.multiclass.Decision : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> decision = bc.Decision(steps=2, random_state=0).fit(p, y)
    >>> bool(decision.briers_[-1] <= decision.briers_[0])
    True
    """

    _method = multiclass.Decision

    def __init__(
        self,
        decisions: int = 2,
        steps: int | Literal["cv"] = 10,
        tolerance: float = 0.0,
        crop: float | None = None,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        random_state: Any = None,
    ) -> None:
        self.decisions = decisions
        self.steps = steps
        self.tolerance = tolerance
        self.crop = crop
        self.inputs = inputs
        self.classes = classes
        self.random_state = random_state


class OrderPreserving(MulticlassCalibrator):
    """Intra-order-preserving networks: the order of the classes never changes.

    Parameters
    ----------
    family : {"diagonal", "full"}
        One increasing function of all logits, or networks that see the whole row.
    hidden : "cv" or pair of int
        Units of the two hidden layers, or chosen by cross-validated log loss.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    random_state : int, RandomState or None
        Decides where training starts, and the folds.

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    hidden_ : array of shape (2,)
    n_iter_ : int

    See Also
    --------
    bayescal.maps.multiclass.OrderPreserving : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 1, 2, 1, 2, 0, 2, 0, 1]
    >>> network = bc.OrderPreserving(hidden=(2, 2), random_state=0).fit(p, y)
    >>> network.predict(p[:3]).tolist()
    [0, 1, 2]
    """

    _method = multiclass.OrderPreserving

    def __init__(
        self,
        family: Family = "diagonal",
        hidden: Literal["cv"] | tuple[int, int] = "cv",
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        random_state: Any = None,
    ) -> None:
        self.family = family
        self.hidden = hidden
        self.inputs = inputs
        self.classes = classes
        self.random_state = random_state
