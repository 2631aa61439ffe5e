"""Targets of a neural network that keep what another network says of the other classes."""

from __future__ import annotations

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.checks import as_numpy, check_finite
from bayescal.smoothing._inputs import check_offset, check_smoothing, check_targets


def network_instance_targets(
    logits: ArrayLike, y: ArrayLike, smoothing: float, offset: float = 0.0
) -> np.ndarray:
    r"""Smooth labels by the logits of a network that was trained without smoothing.

    With the shifted logits :math:`f'_k = f_k - \min_l f_l + c`, where c is ``offset``, the true
    class t and :math:`\epsilon` = ``smoothing``,

    .. math:: \epsilon_{ILS} = \epsilon \frac{f'_t}{\sum_l f'_l}, \qquad
              t_t = 1 - \epsilon_{ILS}, \qquad
              t_k = \epsilon_{ILS} \frac{f'_k}{\sum_{l \ne t} f'_l} \quad (k \ne t).

    So labels move most where that network is certain, towards the classes that it finds similar.

    Parameters
    ----------
    logits : array of shape (n, k)
        Outputs before the softmax, k at least two.
    y : array of shape (n,)
        Class codes in {0, ..., k - 1}.
    smoothing : float
        In [0, 1): the most that a label is moved.
    offset : float, default 0
        Added to the shifted logits, in their units; the larger, the more alike the classes.

    Returns
    -------
    array of shape (n, k), float64
        Rows that sum to one. Where all other classes have :math:`f' = 0` they share the moved mass
        equally; where all classes have, their ratios are those of equal positive logits.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If arrays have other shapes, logits are not finite, a label is not a column, ``smoothing``
        lies outside [0, 1), or ``offset`` is negative.

    Notes
    -----
    The source also scales the logits, by a factor u to be tuned, and subtracts their minimum. For
    the difference never to be negative this must be the minimum of the scaled logits; then u
    cancels, so there is none here, and only the shift is left to tune. The minimum is always
    subtracted, also from logits that are all positive.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 6.2.

    Examples
    --------
    >>> network_instance_targets([[5.0, 3.0, 2.0], [1.0, 1.0, 1.0]], [0, 2], 0.2).round(3).tolist()
    [[0.85, 0.15, 0.0], [0.033, 0.033, 0.933]]
    """
    eps, offset = check_smoothing(smoothing), check_offset(offset)
    given = as_numpy(logits, "logits")
    if given.ndim != 2 or given.shape[1] < 2:
        raise ValueError(f"logits must have shape (n, k) with k at least 2, got {given.shape}")
    check_finite(given, "logits")
    y = check_targets(y, given.shape[1])
    if len(given) != len(y):
        raise ValueError(f"logits must have {len(y)} rows to match y, got {len(given)}")
    logits = given.astype(np.float64)
    rows = np.arange(len(y))
    # Halves, whose difference does not overflow; only ratios matter.
    shifted = logits / 2 - logits.min(axis=1, keepdims=True) / 2 + offset / 2
    top = shifted.max(axis=1, keepdims=True)
    shifted = np.where(top > 0, shifted / np.where(top > 0, top, 1), 1)
    own = shifted[rows, y]
    shifted[rows, y] = 0
    others = shifted.sum(axis=1)
    moved = eps * own / (own + others)
    alone = (others == 0)[:, None]
    share = np.where(
        alone, 1 / (logits.shape[1] - 1), shifted / np.where(alone, 1, others[:, None])
    )
    targets = moved[:, None] * share
    targets[rows, y] = 1 - moved
    return targets
