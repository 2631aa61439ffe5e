"""Predictions of three classes with known true probabilities: a smooth map of the simplex."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.keywords import other_words
from bayescal.data import checks

__all__ = ["SimplexData", "sample", "true_probabilities"]

_CONCENTRATION = 0.5
_WEIGHTS = np.array([1.0, 1.15, 0.9])
_SHIFT, _POWER, _WAVE = 0.003, 0.65, 0.15


class SimplexData(NamedTuple):
    """Predictions, labels, and the probabilities that the labels were drawn from.

    Attributes
    ----------
    probs : array of shape (n, 3)
        Predictions.
    y : array of shape (n,)
        Labels in {0, 1, 2}.
    truth : array of shape (n, 3)
        P(y | prediction).
    """

    probs: np.ndarray
    y: np.ndarray
    truth: np.ndarray


def true_probabilities(probs: ArrayLike) -> np.ndarray:
    r"""Compute the true class probabilities c(p) given predictions p.

    The predictions are over-confident, less so for class 2 than for class 3, and distorted by a
    wave:

    .. math:: c_j(p) \propto w_j \, (p_j + 0.003)^{0.65} \, e^{0.15 \sin 2 \pi p_{j + 1}}, \qquad
        w = (1, 1.15, 0.9),

    normalized, with class 1 following class 3. The calibration error at p is c(p) - p. For
    predictions of :func:`sample` its mean absolute value is 0.056 over classes, and 0.077 for the
    most probable class.

    Parameters
    ----------
    probs : array of shape (n, 3)
        Rows that sum to one.

    Returns
    -------
    array of shape (n, 3), float64
        True probabilities.

    Raises
    ------
    ValueError
        If rows are not probabilities of three classes.

    See Also
    --------
    sample : Draw predictions and labels.

    Examples
    --------
    >>> true_probabilities([[1, 0, 0], [0.5, 0.25, 0.25]]).round(4).tolist()
    [[0.9552, 0.0251, 0.0197], [0.4482, 0.3297, 0.2221]]
    """
    given = checks.as_numpy(probs, "probs")
    if given.ndim != 2 or given.shape[1] != 3:
        raise ValueError(f"probs must have shape (n, 3), got {given.shape}")
    rows = given.astype(float)
    rows = checks.check_range(rows, "probs")
    checks.check_row_sums(rows, "probs")
    wave = np.exp(_WAVE * np.sin(2 * np.pi * np.roll(rows, -1, axis=1)))
    mass = _WEIGHTS * (rows + _SHIFT) ** _POWER * wave
    return mass / mass.sum(axis=1, keepdims=True)


@other_words
def sample(n: int, *, seed: int = 0) -> SimplexData:
    r"""Draw predictions from Dirichlet(1/2, 1/2, 1/2), and labels by their true probabilities.

    Use it to compare calibrators with the optimum for three classes.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int
        Seed; the same seed gives the same data.

    Returns
    -------
    SimplexData
        Predictions ``probs`` (n, 3), labels ``y`` (n,) and probabilities ``truth`` (n, 3).

    Raises
    ------
    TypeError, ValueError
        If ``n`` is not a positive integer or ``seed`` is not a seed.

    See Also
    --------
    true_probabilities : The map from predictions to true probabilities.

    Notes
    -----
    The lowest expected log loss of any predictions is 0.816, the lowest Brier score 0.486.

    References
    ----------
    K. Valk (2022), Calibration of multi-class probabilistic classifiers, University of Tartu,
    section 4.2, for the distribution of the predictions. The map there was a different one, learned
    from five million images; calibration errors before and after temperature scaling, Dirichlet
    calibration and kernels are similar.

    Examples
    --------
    >>> data = sample(1000, seed=1)
    >>> data.probs.shape, data.y.shape, sorted(set(data.y.tolist()))
    ((1000, 3), (1000,), [0, 1, 2])
    >>> bool((data.truth == true_probabilities(data.probs)).all())
    True
    """
    n = checks.check_count(n, "n")
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet([_CONCENTRATION] * 3, n)
    truth = true_probabilities(probs)
    above = rng.random(n)[:, None] > np.cumsum(truth, axis=1)[:, :2]
    return SimplexData(probs, above.sum(axis=1), truth)
