"""Differentiable calibration errors of a batch, to be added to a proper loss."""

from __future__ import annotations

import math

from bayescal._core.arrays import Array, ArrayLike
from bayescal._core.keywords import other_words
from bayescal._core.lazy import jax, jnp
from bayescal.data.checks import check_count, check_real
from bayescal.losses._rows import LossRows, ratio, read_rows, root, scalar, scaled


def mmce(
    logits: ArrayLike,
    labels: ArrayLike,
    bandwidth: float | Array = 0.4,
    *,
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> jax.Array:
    r"""Compute the maximum mean calibration error (MMCE) of a batch.

    Add it to a proper loss to penalize miscalibration during training. With the confidence
    :math:`r_i`, the largest probability of row i, and :math:`c_i = 1` if its class is the label and
    0 otherwise,

    .. math:: \left(\sum_{ij} \frac{w_i w_j}{W^2} (c_i - r_i)(c_j - r_j)
              e^{-|r_i - r_j| / h}\right)^{1/2}, \qquad W = \sum_i w_i ,

    where h is ``bandwidth``. Like the objective of the reference, this is the square root.

    Parameters
    ----------
    logits, labels, weights, mask
        Logits (..., k), labels (...), and weights (...) and mask (...) of the rows, as for
        :func:`cross_entropy`.
    bandwidth : float or scalar array, default 0.4
        Width of the kernel in units of probability, positive. May be traced.

    Returns
    -------
    scalar array
        In [0, 1], in float32 or wider. 0 if the total weight is 0.

    Raises
    ------
    TypeError, ValueError
        If :func:`cross_entropy` would raise, or ``bandwidth`` is not a scalar or, as a number, not
        positive.

    See Also
    --------
    soft_ece : A differentiable binned calibration error, in linear time.

    Notes
    -----
    O(n^2) time and memory for n rows. The gradient flows through the confidences; which class is
    the most likely, and so :math:`c_i`, is treated as constant. At its minimum 0 the root has no
    derivative; the gradient is then 0.

    References
    ----------
    A. Kumar, S. Sarawagi and U. Jain (2018), Trainable calibration measures for neural networks
    from kernel mean embeddings.

    Examples
    --------
    It is not a proper loss, so add it to one:

    >>> import jax.numpy as jnp
    >>> from bayescal.losses import cross_entropy
    >>> def objective(logits, labels):
    ...     return cross_entropy(logits, labels) + 2.0 * mmce(logits, labels)
    >>> logits, labels = jnp.log(jnp.array([[0.8, 0.2], [0.8, 0.2]])), jnp.array([0, 1])
    >>> float(mmce(logits, labels)), float(objective(logits, labels))
    (0.3, 1.516)
    """
    rows = read_rows(logits, labels, weights, mask, soft=False)
    width = scalar(bandwidth, "bandwidth", rows.logits)
    confidence, gap, weight = _confidences(rows)
    gap = weight * gap
    kernel = jnp.exp(-jnp.abs(confidence[:, None] - confidence) / width)
    return root((gap[:, None] * gap * kernel).sum(), 2)


@other_words
def soft_ece(
    logits: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    temperature: float | Array = 0.01,
    order: float = 2,
    *,
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> jax.Array:
    r"""Compute the soft-binned expected calibration error of a batch.

    Add it to a proper loss to penalize miscalibration during training. With the confidence
    :math:`r_i`, the largest probability of row i, :math:`c_i = 1` if its class is the label and 0
    otherwise, and the centers :math:`\xi_j` of M = ``bins`` bins of equal width, row i belongs to
    bin j by

    .. math:: u_{ij} = \operatorname{softmax}_j\left(-(r_i - \xi_j)^2 / T\right)

    where T is ``temperature``. With the mass :math:`S_j = \sum_i w_i u_{ij}` of a bin, the error is

    .. math:: \left(\sum_j \frac{S_j}{\sum_i w_i} \left|
              \frac{\sum_i w_i u_{ij} (c_i - r_i)}{S_j} \right|^q\right)^{1/q}

    where q is ``order``. As T goes to 0 this becomes :func:`bayescal.metrics.ece` with
    ``kind="confidence"`` and ``norm=order``.

    Parameters
    ----------
    logits, labels, weights, mask
        Logits (..., k), labels (...), and weights (...) and mask (...) of the rows, as for
        :func:`cross_entropy`.
    bins : int, default 15
        Number of bins.
    temperature : float or scalar array, default 0.01
        Width of the membership in units of squared probability, positive. May be traced.
    order : float, default 2
        Order of the norm, at least 1 and finite. Not traced.

    Returns
    -------
    scalar array
        In [0, 1], in float32 or wider. 0 if the total weight is 0.

    Raises
    ------
    TypeError, ValueError
        If :func:`cross_entropy` would raise, or ``bins``, ``temperature`` or ``order`` is out of
        range.

    See Also
    --------
    mmce : A calibration error without bins, in quadratic time.

    Notes
    -----
    O(n M) time and memory for n rows. The gradient flows through the confidences and the
    memberships; :math:`c_i` is treated as constant. At the minimum 0 the gradient is 0.

    References
    ----------
    A. Karandikar, N. Cain, D. Tran, B. Lakshminarayanan, J. Shlens, M. Mozer and B. Roelofs (2021),
    Soft calibration objectives for neural networks.

    Examples
    --------
    It is not a proper loss, so add it to one:

    >>> import jax.numpy as jnp
    >>> from bayescal.losses import cross_entropy
    >>> def objective(logits, labels):
    ...     return cross_entropy(logits, labels) + 0.5 * soft_ece(logits, labels)
    >>> logits, labels = jnp.log(jnp.array([[0.8, 0.2], [0.8, 0.2]])), jnp.array([0, 1])
    >>> float(soft_ece(logits, labels)), float(objective(logits, labels))
    (0.3, 1.066)
    """
    rows = read_rows(logits, labels, weights, mask, soft=False)
    bins = check_count(bins, "bins")
    check_real(order, "order")
    if not 1 <= order < math.inf:
        raise ValueError(f"order must be at least 1 and finite, got {order:g}")
    temperature = scalar(temperature, "temperature", rows.logits)
    confidence, gap, weight = _confidences(rows)
    centers = (jnp.arange(bins, dtype=confidence.dtype) + 0.5) / bins
    belongs = jax.nn.log_softmax(-((confidence[:, None] - centers) ** 2) / temperature)
    # Means within bins are computed on a log scale: those of empty bins are finite, without weight.
    kept = weight > 0
    least = jnp.finfo(weight.dtype).min / 2
    log_weight = jnp.where(kept, jnp.log(jnp.where(kept, weight, 1)), least)
    within = jax.nn.softmax(belongs + log_weight[:, None], axis=0)
    mass = (jnp.exp(belongs) * weight[:, None]).sum(axis=0)
    gaps = jnp.abs((within * gap[:, None]).sum(axis=0))
    return root((mass * gaps ** float(order)).sum(), float(order))


def _confidences(rows: LossRows) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return confidences r (n,), gaps c - r, and normalized weights, with leading axes merged.

    The gap is NaN if the label is no class.
    """
    probs = jax.nn.softmax(rows.logits).reshape(-1, rows.logits.shape[-1])
    targets = rows.targets.reshape(probs.shape)
    confidence = probs.max(axis=-1)
    right = jnp.take_along_axis(targets, probs.argmax(axis=-1)[:, None], axis=-1)[:, 0]
    weights = scaled(rows.weights.reshape(-1))
    return confidence, right - confidence, ratio(weights, weights.sum())
