"""Losses of single rows: cross-entropy and its variants, the Brier score and the focal loss."""

from __future__ import annotations

from bayescal._core.arrays import Array, ArrayLike
from bayescal._core.lazy import jax, jnp
from bayescal.losses._rows import Reduction, read_rows, read_teacher, reduce, scalar, weighted_log


def cross_entropy(
    logits: ArrayLike,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    r"""Compute the cross-entropy of softmax probabilities with labels or soft targets.

    .. math:: \ell = -\sum_k t_k \ln p_k, \qquad p = \operatorname{softmax}(z)

    where z are the logits, and t is one at the label and zero elsewhere, or the soft target. This
    is the standard loss for training classifiers.

    Parameters
    ----------
    logits : array of shape (..., k)
        Outputs before the softmax, floating-point; k is at least two.
    targets : array of shape (...) or (..., k)
        If it has one dimension less than the logits: integer labels in {0, ..., k - 1}. If it has
        as many: soft targets, floating-point, in rows that sum to one.
    weights : array of shape (...), optional
        Non-negative weights of the rows. An integer weight equals repeating the row.
    mask : array of shape (...), optional
        False leaves a row out, as does 0 in a mask of integers 0 and 1 from a tokenizer, or a
        weight of zero. Neither its loss nor its gradient is used, even if its logits, targets or
        weight are NaN or infinite, or its label is no class.
    reduction : {"mean", "sum", "none"}
        "mean" is the sum of weight times loss divided by the total weight (0 with zero gradient if
        the total weight is 0), "sum" is that sum, and "none" is weight times loss of every row.

    Returns
    -------
    array of shape (), or (...) for ``reduction="none"``
        In nats, in the dtype of the logits or float32 if that is wider: float16 and bfloat16 logits
        are converted to float32 first.

    Raises
    ------
    TypeError
        If logits or soft targets are not floating-point, labels are not integers, weights are not
        real, or the mask is neither boolean nor of integers. All errors are raised when the
        function is called or traced.
    ValueError
        If shapes do not match, or the reduction is unknown.

    See Also
    --------
    smoothed_cross_entropy : With label smoothing.
    focal, brier : Other losses of single rows.
    bayescal.metrics.log_loss : The metric, for probabilities.

    Notes
    -----
    Values cannot be checked in a traced function. A label that is no class makes the loss NaN if
    its row is not masked.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]))
    >>> float(cross_entropy(logits, jnp.array([0, 2]))), float(-jnp.log(0.5 * 0.6) / 2)
    (0.602, 0.602)
    >>> soft = jnp.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    >>> cross_entropy(logits, soft, reduction="none").round(3).tolist()
    [0.832, 0.731]
    >>> float(cross_entropy(logits, soft, mask=jnp.array([True, False])))
    0.832

    Training with optax:

    >>> import jax, optax
    >>> x, y = jnp.eye(3), jnp.array([0, 1, 2])
    >>> optimizer, params = optax.sgd(1.0), jnp.zeros((3, 3))
    >>> state = optimizer.init(params)
    >>> value, gradient = jax.value_and_grad(lambda w: cross_entropy(x @ w, y))(params)
    >>> updates, state = optimizer.update(gradient, state)
    >>> params = optax.apply_updates(params, updates)
    >>> bool(cross_entropy(x @ params, y) < value)
    True
    """
    rows = read_rows(logits, targets, weights, mask, soft=True)
    return reduce(-weighted_log(rows.targets, jax.nn.log_softmax(rows.logits)), rows, reduction)


def smoothed_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    smoothing: float | Array,
    *,
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    r"""Compute the cross-entropy with label smoothing.

    .. math:: t_k = (1 - \epsilon) [k = y] + \epsilon / K

    where :math:`\epsilon` is ``smoothing`` and K the number of classes: the targets of
    :func:`bayescal.smoothing.constant_targets` with ``num_classes``. The other convention,
    :math:`1 - a` at the label and :math:`a / (K - 1)` elsewhere, corresponds to
    :math:`\epsilon = a K / (K - 1)`.

    Parameters
    ----------
    logits : array of shape (..., k)
        Outputs before the softmax, floating-point.
    labels : array of shape (...)
        Integers in {0, ..., k - 1}.
    smoothing : float or scalar array
        Smoothing factor in [0, 1). May be traced, and thus mapped over.
    weights : array of shape (...), optional
        Non-negative weights of the rows; see :func:`cross_entropy`.
    mask : array of shape (...), optional
        False for rows to leave out; see :func:`cross_entropy`.
    reduction : {"mean", "sum", "none"}
        Weighted mean, sum, or losses of all rows; see :func:`cross_entropy`.

    Returns
    -------
    array of shape (), or (...) for ``reduction="none"``
        In nats, in float32 or wider.

    Raises
    ------
    TypeError, ValueError
        If :func:`cross_entropy` would raise, or ``smoothing`` is not a scalar or, as a number,
        outside [0, 1); values of arrays are not checked.

    See Also
    --------
    instance_cross_entropy : Smoothing by a teacher's logits.
    confidence_penalty : A penalty on confident predictions instead of smoothing.

    References
    ----------
    C. Szegedy, V. Vanhoucke, S. Ioffe, J. Shlens and Z. Wojna (2016), Rethinking the Inception
    architecture for computer vision.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> logits, labels = jnp.array([[2.0, 0.0], [0.0, 1.0]]), jnp.array([0, 1])
    >>> float(smoothed_cross_entropy(logits, labels, 0.1))
    0.295

    Several factors at once:

    >>> losses = jax.vmap(smoothed_cross_entropy, in_axes=(None, None, 0))
    >>> losses(logits, labels, jnp.array([0.0, 0.1, 0.2])).round(3).tolist()
    [0.22, 0.295, 0.37]
    """
    rows = read_rows(logits, labels, weights, mask, soft=False)
    eps = scalar(smoothing, "smoothing", rows.logits)
    targets = (1 - eps) * rows.targets + eps / rows.logits.shape[-1]
    return reduce(-weighted_log(targets, jax.nn.log_softmax(rows.logits)), rows, reduction)


def confidence_penalty(
    logits: ArrayLike,
    targets: ArrayLike,
    strength: float | Array = 0.1,
    *,
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    r"""Compute cross-entropy minus a multiple of the entropy of the prediction.

    .. math:: \ell = -\sum_k t_k \ln p_k + \beta \sum_k p_k \ln p_k

    where :math:`\beta` is ``strength``. It discourages over-confident predictions. The loss can be
    negative.

    Parameters
    ----------
    logits : array of shape (..., k)
        Outputs before the softmax, floating-point.
    targets : array of shape (...) or (..., k)
        Integer labels or soft targets, as in :func:`cross_entropy`.
    strength : float or scalar array, default 0.1
        Weight of the entropy, not negative; 0 is cross-entropy. May be traced.
    weights : array of shape (...), optional
        Non-negative weights of the rows; see :func:`cross_entropy`.
    mask : array of shape (...), optional
        False for rows to leave out; see :func:`cross_entropy`.
    reduction : {"mean", "sum", "none"}
        Weighted mean, sum, or losses of all rows; see :func:`cross_entropy`.

    Returns
    -------
    array of shape (), or (...) for ``reduction="none"``
        In nats, in float32 or wider.

    Raises
    ------
    TypeError, ValueError
        If :func:`cross_entropy` would raise, or ``strength`` is not a scalar or, as a number,
        negative.

    See Also
    --------
    smoothed_cross_entropy : Label smoothing instead of a penalty.

    References
    ----------
    G. Pereyra, G. Tucker, J. Chorowski, Ł. Kaiser and G. Hinton (2017), Regularizing neural
    networks by penalizing confident output distributions.

    Examples
    --------
    Cross-entropy and entropy are both ln 2:

    >>> import jax.numpy as jnp
    >>> float(confidence_penalty(jnp.zeros((1, 2)), jnp.array([0]), 0.1) / jnp.log(2.0))
    0.9
    """
    rows = read_rows(logits, targets, weights, mask, soft=True)
    beta = scalar(strength, "strength", rows.logits)
    logs = jax.nn.log_softmax(rows.logits)
    losses = beta * weighted_log(jnp.exp(logs), logs) - weighted_log(rows.targets, logs)
    return reduce(losses, rows, reduction)


def distillation(
    logits: ArrayLike,
    targets: ArrayLike,
    teacher_logits: ArrayLike,
    temperature: float | Array = 2.0,
    share: float | Array = 0.5,
    *,
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    r"""Compute the cross-entropy with a teacher's softened predictions and with the targets.

    Use it to train a network (the student) to imitate another one. With the logits z, those v of
    the teacher, the targets t, T = ``temperature`` and :math:`\alpha` = ``share``,

    .. math:: \ell = -\alpha T^2 \sum_k \operatorname{softmax}(v / T)_k
              \ln \operatorname{softmax}(z / T)_k
              - (1 - \alpha) \sum_k t_k \ln \operatorname{softmax}(z)_k .

    The factor :math:`T^2` keeps the gradient of the first term at one size for all temperatures.

    Parameters
    ----------
    logits : array of shape (..., k)
        Outputs of the student before the softmax, floating-point.
    targets : array of shape (...) or (..., k)
        Integer labels or soft targets, as in :func:`cross_entropy`.
    teacher_logits : array of shape (..., k)
        Outputs of the teacher, floating-point, treated as constants: no gradient flows into them.
    temperature : float or scalar array, default 2
        Positive number by which both logits are divided. May be traced.
    share : float or scalar array, default 0.5
        Weight of the teacher in [0, 1]. May be traced.
    weights : array of shape (...), optional
        Non-negative weights of the rows; see :func:`cross_entropy`.
    mask : array of shape (...), optional
        False for rows to leave out; see :func:`cross_entropy`.
    reduction : {"mean", "sum", "none"}
        Weighted mean, sum, or losses of all rows; see :func:`cross_entropy`.

    Returns
    -------
    array of shape (), or (...) for ``reduction="none"``
        In nats, in float32 or wider.

    Raises
    ------
    TypeError, ValueError
        If :func:`cross_entropy` would raise, the teacher's logits have another shape, or
        ``temperature`` or ``share`` is not a scalar or, as a number, out of range.

    See Also
    --------
    instance_cross_entropy : Label smoothing by a teacher's logits.

    References
    ----------
    G. Hinton, O. Vinyals and J. Dean (2015), Distilling the knowledge in a neural network.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> student, teacher = jnp.array([[1.0, 0.0]]), jnp.array([[4.0, 0.0]])
    >>> float(distillation(student, jnp.array([0]), teacher, temperature=2.0, share=0.5))
    1.224
    """
    rows = read_rows(logits, targets, weights, mask, soft=True)
    teacher = read_teacher(teacher_logits, rows)
    temperature = scalar(temperature, "temperature", rows.logits)
    alpha = scalar(share, "share", rows.logits)
    soft = weighted_log(
        alpha * jax.nn.softmax(teacher / temperature), jax.nn.log_softmax(rows.logits / temperature)
    )
    hard = weighted_log((1 - alpha) * rows.targets, jax.nn.log_softmax(rows.logits))
    return reduce(-(temperature**2) * soft - hard, rows, reduction)


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
    logits : array of shape (..., k)
        Outputs z before the softmax, floating-point.
    targets : array of shape (...) or (..., k)
        Integer labels or soft targets t, as in :func:`cross_entropy`.
    weights : array of shape (...), optional
        Non-negative weights of the rows; see :func:`cross_entropy`.
    mask : array of shape (...), optional
        False for rows to leave out; see :func:`cross_entropy`.
    reduction : {"mean", "sum", "none"}
        Weighted mean, sum, or losses of all rows; see :func:`cross_entropy`.

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
    logits : array of shape (..., k)
        Outputs before the softmax, floating-point.
    labels : array of shape (...)
        Integers in {0, ..., k - 1}.
    gamma : float or scalar array, default 2
        Exponent, not negative; 0 is cross-entropy. May be traced.
    weights : array of shape (...), optional
        Non-negative weights of the rows; see :func:`cross_entropy`.
    mask : array of shape (...), optional
        False for rows to leave out; see :func:`cross_entropy`.
    reduction : {"mean", "sum", "none"}
        Weighted mean, sum, or losses of all rows; see :func:`cross_entropy`.

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
