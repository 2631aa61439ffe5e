"""Losses of single rows other than cross-entropy: the Brier score and the focal loss."""

from __future__ import annotations

from bayescal._core.arrays import Array, ArrayLike
from bayescal._core.lazy import jax, jnp
from bayescal.losses._rows import Reduction, read_rows, reduce, scalar, weighted_log


def brier(
    logits: ArrayLike,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    r"""Compute the Brier score: the squared distance between probabilities and targets.

    .. math:: \ell = \sum_k (p_k - t_k)^2, \qquad p = \operatorname{softmax}(z)

    A proper loss whose gradient is bounded. It lies between 0 and 2. For three and more classes it
    equals :func:`bayescal.metrics.brier_score`. For two classes it is twice that metric, which is
    the squared error of one probability.

    Parameters
    ----------
    logits, targets, weights, mask, reduction
        Logits (..., k), labels (...) or soft targets (..., k), weights (...) and mask (...) of the
        rows, and "mean", "sum" or "none", as for :func:`cross_entropy`.

    Returns
    -------
    array of shape (), or (...) for ``reduction="none"``
        In float32 or wider.

    Raises
    ------
    TypeError, ValueError
        If :func:`cross_entropy` would raise.

    See Also
    --------
    cross_entropy : The logarithmic score.

    References
    ----------
    G. Brier (1950), Verification of forecasts expressed in terms of probability.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> logits = jnp.log(jnp.array([[0.5, 0.3, 0.2]]))
    >>> float(brier(logits, jnp.array([0]))), round(0.5**2 + 0.3**2 + 0.2**2, 2)
    (0.38, 0.38)
    """
    rows = read_rows(logits, targets, weights, mask, soft=True)
    losses = ((jax.nn.softmax(rows.logits) - rows.targets) ** 2).sum(axis=-1)
    return reduce(losses, rows, reduction)


def focal(
    logits: ArrayLike,
    labels: ArrayLike,
    gamma: float | Array = 2.0,
    *,
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    r"""Compute the focal loss: cross-entropy, down-weighted where the label is already likely.

    .. math:: \ell = -(1 - p_y)^\gamma \ln p_y

    where :math:`p_y` is the probability of the label. Networks trained with it are less
    over-confident than with cross-entropy.

    Parameters
    ----------
    logits, labels, weights, mask, reduction
        Logits (..., k), labels (...), weights (...) and mask (...) of the rows, and "mean", "sum"
        or "none", as for :func:`cross_entropy`.
    gamma : float or scalar array, default 2
        Exponent, not negative; 0 is cross-entropy. May be traced.

    Returns
    -------
    array of shape (), or (...) for ``reduction="none"``
        In nats, in float32 or wider.

    Raises
    ------
    TypeError, ValueError
        If :func:`cross_entropy` would raise, or ``gamma`` is not a scalar or, as a number,
        negative.

    See Also
    --------
    cross_entropy : The proper loss that this one modifies.

    Notes
    -----
    Both logarithms are computed from the log odds of the other classes against the label, so value
    and gradient are accurate where :math:`p_y` rounds to one, even for :math:`\gamma` below one.
    The focal loss is not proper: its minimum is not at the true probabilities.

    References
    ----------
    T.-Y. Lin, P. Goyal, R. Girshick, K. He and P. Dollár (2017), Focal loss for dense object
    detection. J. Mukhoti et al. (2020), Calibrating deep neural networks using focal loss.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> logits = jnp.log(jnp.array([[0.75, 0.25]]))
    >>> float(focal(logits, jnp.array([0])) / jnp.log(0.75)), -(0.25**2)
    (-0.0625, -0.0625)
    """
    rows = read_rows(logits, labels, weights, mask, soft=False)
    power = scalar(gamma, "gamma", rows.logits)
    # If all other classes are impossible, the loss is zero, but its derivative would be 0 / 0.
    certain = ((rows.logits == -jnp.inf) == (rows.targets != 1)).all(axis=-1)
    logits = jnp.where(certain[..., None], 0, rows.logits)
    others = jax.nn.logsumexp(logits, axis=-1, where=rows.targets != 1)
    odds = others - weighted_log(rows.targets, logits)
    losses = jnp.exp(power * jax.nn.log_sigmoid(odds)) * jax.nn.softplus(odds)
    return reduce(jnp.where(certain, 0, losses), rows, reduction)
