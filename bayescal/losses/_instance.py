"""Instance-based smoothing with a teacher's logits: targets, the loss, and a stream of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import jax
import jax.numpy as jnp

from bayescal._core.arrays import Array, ArrayLike
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
    r"""Smooth labels by the logits of a network that was trained without smoothing.

    The targets of :func:`bayescal.smoothing.network_instance_targets`, in JAX: with the shifted
    logits :math:`f'_k = f_k - \min_l f_l + c`, where c is ``offset``, the label y and
    :math:`\epsilon` = ``smoothing``,

    .. math:: \epsilon_{ILS} = \epsilon \frac{f'_y}{\sum_l f'_l}, \qquad
              t_y = 1 - \epsilon_{ILS}, \qquad
              t_k = \epsilon_{ILS} \frac{f'_k}{\sum_{l \ne y} f'_l} \quad (k \ne y).

    Parameters
    ----------
    teacher_logits : array of shape (..., k)
        Outputs before the softmax, floating-point and finite, k at least two.
    labels : array of shape (...)
        Integers in {0, ..., k - 1}.
    smoothing : float or scalar array
        In [0, 1): the most that a label is moved. May be traced, and so be mapped over.
    offset : float or scalar array, default 0
        Not negative, in the units of the logits. May be traced. It takes the place of the source's
        scale of logits, which cancels out: see the notes of
        :func:`bayescal.smoothing.network_instance_targets`.

    Returns
    -------
    array of shape (..., k)
        Rows that sum to one, in the dtype of the logits, float32 at least. Where all other classes
        have :math:`f' = 0` they share the moved mass equally; where all classes have, their ratios
        are those of equal positive logits. NaN for labels that are no class.

    Raises
    ------
    TypeError
        If logits are not floating-point, labels not integers, or a parameter is no number.
    ValueError
        If shapes do not match, or a parameter is a number out of range; values of arrays are not
        checked.

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
    r"""Cross-entropy with labels smoothed by a teacher's logits.

    .. math:: \ell = -\sum_k t_k \ln \operatorname{softmax}(z)_k

    with the logits z and the targets t of :func:`instance_targets`.

    Parameters
    ----------
    logits : array of shape (..., k)
        Outputs of the network in training, before the softmax, floating-point.
    labels : array of shape (...)
        Integers in {0, ..., k - 1}.
    teacher_logits : array of shape (..., k)
        Outputs of a network trained without smoothing. They are constants: no gradient flows into
        them.
    smoothing : float or scalar array
        In [0, 1). May be traced.
    offset : float or scalar array, default 0
        Not negative. May be traced.
    weights, mask, reduction
        As in :func:`cross_entropy`.

    Returns
    -------
    array of shape (), or (...) for ``reduction="none"``
        In nats, float32 at least.

    Raises
    ------
    TypeError, ValueError
        As :func:`cross_entropy` and :func:`instance_targets`.

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
    r"""Replace the labels of a stream of batches by instance-based targets.

    One batch is taken, passed through the teacher and handed on at a time, so that memory does not
    grow with their number: O(n k) for a batch of n rows and k classes, beside what the teacher
    needs.

    Parameters
    ----------
    batches : iterable of pairs (inputs, labels)
        Labels of shape (n,), integers in {0, ..., k - 1}. Read as far as the result is.
    teacher : callable
        Called with the inputs of a batch; returns logits of shape (n, k).
    smoothing, offset
        As in :func:`instance_targets`.

    Returns
    -------
    iterator of pairs (inputs, targets)
        Inputs as they came, and soft targets of shape (n, k), which :func:`cross_entropy` takes.

    Raises
    ------
    TypeError, ValueError
        At once for parameters that are no number or out of range; and as :func:`instance_targets`
        when a batch is reached whose logits and labels do not match.

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
