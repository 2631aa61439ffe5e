"""Calibrators of several classes without a posterior."""

from __future__ import annotations

from typing import Any, Literal

from bayescal.estimators._calibrator import Calibrator
from bayescal.estimators._multiclass import MulticlassCalibrator
from bayescal.maps import Map, multiclass
from bayescal.maps.multiclass._inputs import Inputs

__all__ = ["KNN", "Forest", "Kernel", "OneVsRest"]


class KNN(MulticlassCalibrator):
    """Calibration by the mean error of the nearest neighbours.

    Parameters
    ----------
    k : int or "cv"
        Number of neighbours; chosen by cross-validated log loss.
    distance : {"kl", "euclidean"}
        Kullback-Leibler divergence from the query, or Euclidean distance.
    assumption : {"errors", "labels"}
        What neighbours share: the error, which is subtracted, or the calibrated probabilities.
    crop : float, optional
        Least probability; by default chosen by the number of classes.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    random_state : int, RandomState or None
        Decides the folds.

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    k_ : int

    See Also
    --------
    bayescal.maps.multiclass.knn.KNN : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.KNN(6).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.67, 0.25, 0.08]]
    """

    _method = multiclass.KNN

    def __init__(
        self,
        k: int | Literal["cv"] = "cv",
        distance: Literal["kl", "euclidean"] = "kl",
        assumption: Literal["errors", "labels"] = "errors",
        crop: float | None = None,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        random_state: Any = None,
    ) -> None:
        self.k = k
        self.distance = distance
        self.assumption = assumption
        self.crop = crop
        self.inputs = inputs
        self.classes = classes
        self.random_state = random_state


class Kernel(MulticlassCalibrator):
    """Calibration by the mean error near a prediction, weighted by a kernel.

    Parameters
    ----------
    kernel : {"dirichlet", "dirichlet_mixture", "rbf"}
        Dirichlet density with the parameters of the query, or of each calibration row; or
        Gaussian in the Euclidean distance.
    bandwidth : float or "cv"
        Chosen by cross-validated log loss.
    assumption : {"errors", "labels"}
        What neighbours share: the error, which is subtracted, or the calibrated probabilities.
    crop : float, optional
        Least probability; by default chosen by the number of classes.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    random_state : int, RandomState or None
        Decides the folds.

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    bandwidth_ : float

    See Also
    --------
    bayescal.maps.multiclass.kernel.Kernel : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.Kernel(bandwidth=0.5).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.71, 0.23, 0.06]]
    """

    _method = multiclass.Kernel

    def __init__(
        self,
        kernel: Literal["dirichlet", "dirichlet_mixture", "rbf"] = "dirichlet_mixture",
        bandwidth: float | Literal["cv"] = "cv",
        assumption: Literal["errors", "labels"] = "errors",
        crop: float | None = None,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.assumption = assumption
        self.crop = crop
        self.inputs = inputs
        self.classes = classes
        self.random_state = random_state


class Forest(MulticlassCalibrator):
    """Random calibration forest: the mean error in leaves of random trees.

    Parameters
    ----------
    bins : int or "cv"
        Leaves of each tree; chosen by cross-validated log loss.
    trees : int
    assumption : {"errors", "labels"}
        What neighbours share: the error, which is subtracted, or the calibrated probabilities.
    crop : float, optional
        Least probability; by default chosen by the number of classes.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    random_state : int, RandomState or None
        Decides the trees and the folds.

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    bins_ : int

    See Also
    --------
    bayescal.maps.multiclass.forest.Forest : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> forest = bc.Forest(4, random_state=0).fit(p, y)
    >>> forest.predict_proba(p[:1]).shape
    (1, 3)
    """

    _method = multiclass.Forest

    def __init__(
        self,
        bins: int | Literal["cv"] = "cv",
        trees: int = 250,
        assumption: Literal["errors", "labels"] = "errors",
        crop: float | None = None,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        random_state: Any = None,
    ) -> None:
        self.bins = bins
        self.trees = trees
        self.assumption = assumption
        self.crop = crop
        self.inputs = inputs
        self.classes = classes
        self.random_state = random_state


class OneVsRest(MulticlassCalibrator):
    """A binary calibrator for each class against the others, then normalised.

    Parameters
    ----------
    calibrator : calibrator, optional
        Of binary scores, as ``Isotonic()``; its own ``inputs`` and ``classes`` do not matter, and
        it cannot have a posterior. By default ``Logistic()``.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded": of the worst class.
    statuses_ : array of shape (k,)

    See Also
    --------
    bayescal.maps.multiclass.one_vs_rest.OneVsRest : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.OneVsRest(bc.Isotonic()).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.75, 0.12, 0.12]]
    """

    _method = multiclass.OneVsRest

    def __init__(
        self, calibrator: Any = None, *, inputs: Inputs = "probs", classes: Any = None
    ) -> None:
        self.calibrator = calibrator
        self.inputs = inputs
        self.classes = classes

    def _map(self) -> multiclass.OneVsRest:
        if self.calibrator is None:
            return multiclass.OneVsRest()
        binary = self.calibrator._map() if isinstance(self.calibrator, Calibrator) else None
        if not isinstance(binary, Map):
            raise TypeError(
                "calibrator must be a calibrator of binary scores, as Isotonic(), got "
                f"{self.calibrator!r}"
            )
        if getattr(self.calibrator, "inference", "map") != "map":
            raise ValueError(
                "calibrator must have inference='map' within OneVsRest, got "
                f"{self.calibrator.inference!r}"
            )
        return multiclass.OneVsRest(binary)
