"""Soft targets for neural networks that keep a teacher's similarities between classes."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from bayescal._core.arrays import ArrayLike, ArrayT
from bayescal._core.shapes import Bool, Float
from bayescal.data.checks import as_numpy, check_finite
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

    Use these targets to train a network with another network as teacher. A label moves most where
    the teacher is certain, and towards the classes that the teacher considers similar.

    Parameters
    ----------
    logits : array of shape (n, k)
        Outputs of the teacher before the softmax; k is at least two.
    y : array of shape (n,)
        Class codes in {0, ..., k - 1}.
    smoothing : float
        Largest amount by which a label moves, in [0, 1).
    offset : float, default 0
        Added to the shifted logits, in their units. The larger it is, the more equal the classes
        become, up to constant smoothing by ``smoothing`` / (k - 1).

    Returns
    -------
    array of shape (n, k), float64
        Rows that sum to one. If :math:`f' = 0` for all other classes, they get equal parts of the
        moved mass. If :math:`f' = 0` for all classes, the ratios are those of equal positive
        logits.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If shapes do not match, logits are not finite, a label is not a column, ``smoothing`` is
        outside [0, 1), or ``offset`` is negative.

    See Also
    --------
    constant_targets : Smooth without a teacher.
    bayescal.losses.instance_targets : These targets in JAX, for training loops.

    Notes
    -----
    The reference uses :math:`f'_k = u f_k - q` with a scale u and a shift q to be tuned. Only
    ratios of f' matter, so this is an offset :math:`c = \min_l f_l - q / u` that depends on the
    row: zero for every u if q is the minimum of the scaled logits. If q is the minimum of the
    logits, as printed, c may be negative, and the targets are then not probabilities. So u tunes
    nothing and is absent here; ``offset`` is one non-negative c for all rows.

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
    logits: Float[ArrayT, "*rows classes"],
    hot: Bool[ArrayT, "*rows classes"],
    eps: ArrayT | float,
    offset: ArrayT | float,
    xp: ModuleType,
) -> Float[ArrayT, "*rows classes"]:
    """Compute the targets (..., k) from logits (..., k); ``hot`` is True at the label."""
    # Only ratios matter. After division by 16, neither a difference nor its reciprocal leaves the
    # range of normal numbers; some devices have no subnormal numbers.
    shifted = (logits / 16 - logits.min(axis=-1, keepdims=True) / 16) + offset / 16
    top = shifted.max(axis=-1, keepdims=True)
    shifted = xp.where(top > 0, shifted / xp.where(top > 0, top, 1), 1)
    label_logit = xp.where(hot, shifted, 0).sum(axis=-1, keepdims=True)
    rest = xp.where(hot, 0, shifted)
    others = rest.sum(axis=-1, keepdims=True)
    moved = eps * label_logit / (label_logit + others)
    alone = others == 0
    proportion = xp.where(alone, 1 / (logits.shape[-1] - 1), rest / xp.where(alone, 1, others))
    return xp.where(hot, 1 - moved, moved * proportion)
