"""Soft targets that are equal for all rows of a class: Platt's targets and constant smoothing."""

from __future__ import annotations

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.shapes import Float, Int
from bayescal.data.checks import check_count
from bayescal.data.weights import check_weights
from bayescal.smoothing._inputs import check_smoothing, check_targets


def platt_targets(y: ArrayLike, sample_weight: ArrayLike | None = None) -> np.ndarray:
    r"""Compute Platt's targets, which are farther from 0 and 1 if a class has fewer rows.

    .. math:: t^+ = 1 - \frac{1}{N^+ + 2}, \qquad t^- = \frac{1}{N^- + 2}

    Use them to fit a calibration map to few labels. They are the posterior mean of the label of
    each class under a uniform prior.

    Parameters
    ----------
    y : array of shape (n,)
        Labels in {0, 1}.
    sample_weight : array of shape (n,), optional
        Non-negative weights. The class sizes N are sums of weights: an integer weight equals
        repeating the row.

    Returns
    -------
    array of shape (n,), float64
        Targets in (0, 1); above 1/2 for class 1 and below 1/2 for class 0 if the class has weight.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If ``y`` is empty, not one-dimensional or contains other values than 0 and 1, or if the
        weights are negative, all zero, not finite or of another length.

    See Also
    --------
    constant_targets : Move all labels by a constant.
    instance_targets : Move labels by an amount that depends on the features.

    References
    ----------
    J. Platt (1999), Probabilistic outputs for support vector machines and comparisons to
    regularized likelihood methods.

    Examples
    --------
    >>> platt_targets([1, 1, 0, 1, 0]).tolist()
    [0.8, 0.8, 0.25, 0.8, 0.25]
    >>> platt_targets([1, 0], sample_weight=[3, 2]).tolist()
    [0.8, 0.25]
    """
    y = check_targets(y, 2)
    weights = check_weights(sample_weight, len(y))
    eps = smoothing_by_class(y, weights)[y]
    return np.where(y == 1, 1 - eps, eps)


def smoothing_by_class(
    y: Int[np.ndarray, " rows"], weights: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " 2"]:
    """Compute Platt's smoothing factors 1 / (N + 2) of the classes 0 and 1."""
    return 1 / (np.bincount(y, weights, minlength=2) + 2)


def constant_targets(y: ArrayLike, smoothing: float, num_classes: int | None = None) -> np.ndarray:
    r"""Move labels towards the other classes by a constant (label smoothing).

    Without ``num_classes``, labels are binary, and with :math:`\epsilon` = ``smoothing``

    .. math:: t^+ = 1 - \epsilon, \qquad t^- = \epsilon.

    With ``num_classes``, the moved mass is spread over all K classes including the true one:

    .. math:: t_k = (1 - \epsilon) [k = y] + \epsilon / K

    Thus rows for two classes move half as far as binary targets with the same ``smoothing``. The
    other convention, :math:`1 - a` for the true class and :math:`a / (K - 1)` for every other
    class, corresponds to :math:`\epsilon = a K / (K - 1)`.

    Parameters
    ----------
    y : array of shape (n,)
        Labels in {0, 1}, or in {0, ..., num_classes - 1}.
    smoothing : float
        Smoothing factor in [0, 1); 0 leaves the labels unchanged.
    num_classes : int, optional
        Number of classes K, at least two.

    Returns
    -------
    array of shape (n,) or, with ``num_classes``, (n, num_classes), float64
        Targets P(y = 1), or rows that sum to one.

    Raises
    ------
    TypeError
        If ``y`` or ``smoothing`` is not numeric, or ``num_classes`` is not an integer.
    ValueError
        If ``y`` is empty, not one-dimensional or contains another label, if ``smoothing`` is
        outside [0, 1), or if ``num_classes`` is below two.

    See Also
    --------
    platt_targets : Choose the amount from the class sizes.
    bayescal.losses.smoothed_cross_entropy : Cross-entropy with these targets, for training.

    References
    ----------
    C. Szegedy, V. Vanhoucke, S. Ioffe, J. Shlens and Z. Wojna (2016), Rethinking the Inception
    architecture for computer vision; R. Müller, S. Kornblith and G. Hinton (2019), When does label
    smoothing help?; both for this convention. J. Mukhoti et al. (2020), Calibrating deep neural
    networks using focal loss, for the other convention.

    Examples
    --------
    >>> constant_targets([1, 0], 0.25).tolist()
    [0.75, 0.25]
    >>> constant_targets([0, 2], 0.3, num_classes=3).round(2).tolist()
    [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]

    Move 0.1 to the other classes only:

    >>> constant_targets([0], 0.1 * 3 / 2, num_classes=3).round(2).tolist()
    [[0.9, 0.05, 0.05]]
    """
    eps = check_smoothing(smoothing)
    if num_classes is None:
        y = check_targets(y, 2)
        return np.where(y == 1, 1 - eps, eps)
    classes = check_count(num_classes, "num_classes", 2)
    y = check_targets(y, classes)
    targets = np.full((len(y), classes), eps / classes)
    targets[np.arange(len(y)), y] += 1 - eps
    return targets
