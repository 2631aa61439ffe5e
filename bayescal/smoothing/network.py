"""Targets of a neural network that keep what another network says of the other classes."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from bayescal._core.arrays import ArrayLike, ArrayT
from bayescal.data.checks import as_numpy, check_finite
from bayescal.smoothing._inputs import check_offset, check_smoothing, check_targets

__all__ = ["move", "network_instance_targets"]


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
        Added to the shifted logits, in their units; the larger, the more alike the classes, up to
        constant smoothing by ``smoothing`` / (k - 1).

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
    The source has :math:`f'_k = u f_k - q` with a scale u and a shift q to be tuned. Only ratios of
    f' count, so that is an offset, of each row its own,

    .. math:: c = \min_l f_l - q / u.

    - q the minimum of the scaled logits: c = 0 whatever u is.
    - q the minimum of the logits themselves, as printed: :math:`c = (1 - 1/u) \min_l f_l`, negative
      for u > 1 where a logit is. Then f' is negative too, against its purpose, and targets are no
      probabilities.
    - The source's published code subtracts the minimum of the scaled logits where it is negative:
      :math:`c = \max(\min_l f_l, 0)`, whatever u is.

    So u tunes nothing, and there is none here; ``offset`` is one c for all rows, never negative.
    The minimum is always subtracted, also from logits that are all positive.

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
    hot = np.arange(given.shape[1]) == y[:, None]
    return move(given.astype(np.float64), hot, eps, offset, np)


def move(
    logits: ArrayT, hot: ArrayT, eps: ArrayT | float, offset: ArrayT | float, xp: ModuleType
) -> ArrayT:
    """Return the targets (..., k) by logits (..., k); ``hot`` is True at the label."""
    # Only ratios matter. Of sixteenths neither a difference nor its reciprocal leaves the normal
    # numbers, which is all that some devices have.
    shifted = (logits / 16 - logits.min(axis=-1, keepdims=True) / 16) + offset / 16
    top = shifted.max(axis=-1, keepdims=True)
    shifted = xp.where(top > 0, shifted / xp.where(top > 0, top, 1), 1)
    own = xp.where(hot, shifted, 0).sum(axis=-1, keepdims=True)
    rest = xp.where(hot, 0, shifted)
    others = rest.sum(axis=-1, keepdims=True)
    moved = eps * own / (own + others)
    alone = others == 0
    share = xp.where(alone, 1 / (logits.shape[-1] - 1), rest / xp.where(alone, 1, others))
    return xp.where(hot, 1 - moved, moved * share)
