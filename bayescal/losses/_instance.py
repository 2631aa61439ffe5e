"""Label smoothing by a teacher's logits: targets, the loss, and a stream of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from bayescal._core.arrays import Array, ArrayLike
from bayescal._core.lazy import jax, jnp
from bayescal.losses._rows import (
    Reduction,
    check_number,
    one_hot,
    read_labels,
    read_logits,
    read_rows,
    read_teacher,
    reduce,
    scalar,
    weighted_log,
)
from bayescal.smoothing.network import move

Inputs = TypeVar("Inputs")


def instance_targets(
    teacher_logits: ArrayLike,
    labels: ArrayLike,
    smoothing: float | Array,
    offset: float | Array = 0.0,
) -> jax.Array:
    r"""Smooth labels by the logits of a teacher network trained without smoothing.

    These are the targets of :func:`bayescal.smoothing.network_instance_targets`, in JAX: with the
    shifted logits :math:`f'_k = f_k - \min_l f_l + c`, where c is ``offset``, the label y moves by
    :math:`\epsilon f'_y / \sum_l f'_l`, where :math:`\epsilon` is ``smoothing``. The other classes
    get this mass in proportion to f'.

    Parameters
    ----------
    teacher_logits : array of shape (..., k)
        Outputs before the softmax, floating-point and finite; k is at least two.
    labels : array of shape (...)
        Integers in {0, ..., k - 1}.
    smoothing : float or scalar array
        Largest amount by which a label moves, in [0, 1). May be traced, and thus mapped over.
    offset : float or scalar array, default 0
        Added to the shifted logits, in their units; not negative. May be traced.

    Returns
    -------
    array of shape (..., k)
        Rows that sum to one, in the dtype of the logits or float32 if that is wider; NaN for
        labels that are no class.

    Raises
    ------
    TypeError
        If logits are not floating-point, labels are not integers, or a parameter is not a number.
    ValueError
        If shapes do not match, or a parameter is a number out of range; values of arrays are not
        checked.

    See Also
    --------
    bayescal.smoothing.instance_targets : Targets from densities of scores or features.
    instance_cross_entropy : The loss with these targets.
    with_instance_targets : Replace the labels of a stream of batches.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 6.2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> logits, labels = jnp.array([[5.0, 3.0, 2.0], [1.0, 1.0, 1.0]]), jnp.array([0, 2])
    >>> instance_targets(logits, labels, 0.2).round(3).tolist()
    [[0.85, 0.15, 0.0], [0.033, 0.033, 0.933]]
    """
    logits = read_logits(teacher_logits, "teacher_logits")
    labels = read_labels(labels, logits)
    eps = scalar(smoothing, "smoothing", logits)
    hot = one_hot(labels, logits.shape[-1])
    targets = move(logits, hot, eps, scalar(offset, "offset", logits), jnp)
    return jnp.where(hot.any(axis=-1, keepdims=True), targets, jnp.nan)


def instance_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    teacher_logits: ArrayLike,
    smoothing: float | Array,
    offset: float | Array = 0.0,
    *,
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    reduction: Reduction = "mean",
) -> jax.Array:
    r"""Compute the cross-entropy with labels smoothed by a teacher's logits.

    .. math:: \ell = -\sum_k t_k \ln \operatorname{softmax}(z)_k

    with the logits z and the targets t of :func:`instance_targets`. Use it if the teacher's logits
    are available in the training loop.

    Parameters
    ----------
    logits : array of shape (..., k)
        Outputs of the network being trained, before the softmax, floating-point.
    labels : array of shape (...)
        Integers in {0, ..., k - 1}.
    teacher_logits : array of shape (..., k)
        Outputs of a network trained without smoothing, treated as constants: no gradient flows
        into them.
    smoothing : float or scalar array
        Largest amount by which a label moves, in [0, 1). May be traced.
    offset : float or scalar array, default 0
        Added to the teacher's shifted logits; not negative. May be traced.
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
        If :func:`cross_entropy` or :func:`instance_targets` would raise.

    See Also
    --------
    smoothed_cross_entropy : Smoothing by a constant.
    distillation : Cross-entropy with the teacher's probabilities.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 6.2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> logits, labels = jnp.array([[2.0, 1.0, 0.0]]), jnp.array([0])
    >>> teacher = jnp.array([[5.0, 3.0, 2.0]])
    >>> float(instance_cross_entropy(logits, labels, teacher, 0.2))
    0.558
    """
    rows = read_rows(logits, labels, weights, mask, soft=False)
    teacher = read_teacher(teacher_logits, rows)
    eps = scalar(smoothing, "smoothing", rows.logits)
    offset = scalar(offset, "offset", rows.logits)
    moved = move(teacher, rows.targets == 1, eps, offset, jnp)
    targets = jnp.where(jnp.isnan(rows.targets), jnp.nan, moved)
    return reduce(-weighted_log(targets, jax.nn.log_softmax(rows.logits)), rows, reduction)


def with_instance_targets(
    batches: Iterable[tuple[Inputs, ArrayLike]],
    teacher: Callable[[Inputs], ArrayLike],
    smoothing: float | Array,
    offset: float | Array = 0.0,
) -> Iterator[tuple[Inputs, jax.Array]]:
    r"""Replace the labels in a stream of batches by targets smoothed by a teacher's logits.

    Use it with training loops that accept soft targets. One batch at a time is read, passed through
    the teacher and handed on, so memory does not grow with the number of batches: O(n k) for a
    batch of n rows and k classes, plus what the teacher needs.

    Parameters
    ----------
    batches : iterable of pairs of arrays
        The inputs of a batch, and its labels (n,), integers in {0, ..., k - 1}. Read lazily.
    teacher : callable
        Called with the inputs of a batch; returns logits of shape (n, k).
    smoothing : float or scalar array
        Largest amount by which a label moves, in [0, 1).
    offset : float or scalar array, default 0
        Added to the teacher's shifted logits; not negative.

    Returns
    -------
    iterator of pairs of arrays
        The unchanged inputs, and soft targets of shape (n, k) for :func:`cross_entropy`.

    Raises
    ------
    TypeError, ValueError
        Immediately if a parameter is not a number or out of range; when a batch is reached, if its
        logits and labels do not match.

    See Also
    --------
    instance_targets : The targets of one batch.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 6.2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> batches = [(jnp.array([[2.0], [1.0]]), jnp.array([0, 2]))]
    >>> teacher = lambda x: x * jnp.array([2.0, 1.0, 0.0])
    >>> for inputs, targets in with_instance_targets(batches, teacher, smoothing=0.3):
    ...     print(inputs.shape, targets.round(2).tolist())
    (2, 1) [[0.8, 0.2, 0.0], [0.0, 0.0, 1.0]]
    """
    check_number(smoothing, "smoothing")
    check_number(offset, "offset")
    compiled = jax.jit(instance_targets)
    return ((x, compiled(teacher(x), labels, smoothing, offset)) for x, labels in batches)
