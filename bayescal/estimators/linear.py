"""Calibrators of several classes whose logits are linear in few or many parameters."""

from __future__ import annotations

from typing import Any, Literal

from bayescal.estimators._multiclass import ParametricMulticlassCalibrator
from bayescal.maps import multiclass
from bayescal.maps._parametric import Inference
from bayescal.maps.multiclass._inputs import Inputs

__all__ = ["Dirichlet", "Matrix", "StructuredMatrix", "StructuredVector", "Vector"]


class Vector(ParametricMulticlassCalibrator):
    """Vector scaling: each class's logit times a factor, plus an intercept.

    Parameters
    ----------
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        Maximum likelihood or the least penalised loss; or a posterior: its normal approximation,
        or, for up to 3,000 parameters, four chains of the no-U-turn sampler. Then predictions are
        posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    coef_, intercept_ : arrays of shape (k,)
    gradient_norm_ : float
        Largest entry of the gradient of the mean loss.

    See Also
    --------
    bayescal.maps.multiclass.vector.Vector : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.Vector().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.69, 0.14, 0.16]]
    """

    _method = multiclass.Vector

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


class Matrix(ParametricMulticlassCalibrator):
    """Matrix scaling: logits times a matrix, plus intercepts.

    Parameters
    ----------
    off_diagonal : float or "cv"
        Strength of the penalty on off-diagonal entries; "cv" chooses it by cross-validation.
    intercept : float or "cv"
        Strength of the penalty on intercepts.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        Maximum likelihood or the least penalised loss; or a posterior: its normal approximation,
        or, for up to 3,000 parameters, four chains of the no-U-turn sampler. Then predictions are
        posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    coef_ : array of shape (k, k)
    intercept_ : array of shape (k,)
    gradient_norm_ : float
        Largest entry of the gradient of the mean loss.
    off_diagonal_, intercept_penalty_ : float
        Chosen strengths; only where one was to be.
    cv_penalties_, cv_losses_ : arrays of shape (g, 2) and (g, folds)
        What was tried, and the log losses out of fold.

    See Also
    --------
    bayescal.maps.multiclass.matrix.Matrix : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.Matrix(off_diagonal=1.0).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.7, 0.17, 0.13]]
    """

    _method = multiclass.Matrix

    def __init__(
        self,
        off_diagonal: float | Literal["cv"] = 0.0,
        intercept: float | Literal["cv"] = 0.0,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        inference: Inference = "map",
        num_samples: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.off_diagonal = off_diagonal
        self.intercept = intercept
        self.inputs = inputs
        self.classes = classes
        self.inference = inference
        self.num_samples = num_samples
        self.random_state = random_state


class Dirichlet(ParametricMulticlassCalibrator):
    """Dirichlet calibration: logarithms of probabilities times a matrix, plus intercepts.

    Parameters
    ----------
    off_diagonal : float or "cv"
        Strength of the penalty on off-diagonal entries; "cv" chooses it by cross-validation.
    intercept : float or "cv"
        Strength of the penalty on intercepts.
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        Maximum likelihood or the least penalised loss; or a posterior: its normal approximation,
        or, for up to 3,000 parameters, four chains of the no-U-turn sampler. Then predictions are
        posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    coef_ : array of shape (k, k)
    intercept_ : array of shape (k,)
    gradient_norm_ : float
        Largest entry of the gradient of the mean loss.
    off_diagonal_, intercept_penalty_ : float
        Chosen strengths; only where one was to be.
    cv_penalties_, cv_losses_ : arrays of shape (g, 2) and (g, folds)
        What was tried, and the log losses out of fold.

    See Also
    --------
    bayescal.maps.multiclass.matrix.Dirichlet : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.Dirichlet(off_diagonal=1.0).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.7, 0.17, 0.13]]
    """

    _method = multiclass.Dirichlet

    def __init__(
        self,
        off_diagonal: float | Literal["cv"] = 0.0,
        intercept: float | Literal["cv"] = 0.0,
        *,
        inputs: Inputs = "probs",
        classes: Any = None,
        inference: Inference = "map",
        num_samples: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.off_diagonal = off_diagonal
        self.intercept = intercept
        self.inputs = inputs
        self.classes = classes
        self.inference = inference
        self.num_samples = num_samples
        self.random_state = random_state


class StructuredVector(ParametricMulticlassCalibrator):
    """Structured vector scaling (SVS): deviations from the best temperature, shrunk.

    Parameters
    ----------
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        Maximum likelihood or the least penalised loss; or a posterior: its normal approximation,
        or, for up to 3,000 parameters, four chains of the no-U-turn sampler. Then predictions are
        posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    coef_, intercept_ : arrays of shape (k,)
    temperature_ : float

    See Also
    --------
    bayescal.maps.multiclass.structured.StructuredVector : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.StructuredVector().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.7, 0.18, 0.12]]
    """

    _method = multiclass.StructuredVector

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


class StructuredMatrix(ParametricMulticlassCalibrator):
    """Structured matrix scaling (SMS): a matrix near the best temperature, shrunk.

    Parameters
    ----------
    inputs : {"probs", "logits"}
        What the scores are; it is never guessed from them.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    inference : {"map", "laplace", "nuts"}
        Maximum likelihood or the least penalised loss; or a posterior: its normal approximation,
        or, for up to 3,000 parameters, four chains of the no-U-turn sampler. Then predictions are
        posterior means.
    num_samples : int
        Draws from the posterior, of all chains.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        "converged", "limit" or "unbounded".
    coef_ : array of shape (k, k)
    intercept_ : array of shape (k,)
    temperature_ : float

    See Also
    --------
    bayescal.maps.multiclass.structured.StructuredMatrix : the method, its complexity and source.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.StructuredMatrix().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.68, 0.2, 0.12]]
    """

    _method = multiclass.StructuredMatrix

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
