"""Logits and labels of tokens as rows."""

from __future__ import annotations

from typing import Any

from bayescal._core.arrays import ArrayLike, device, namespace, on_host
from bayescal.data.checks import as_numpy

__all__ = ["tokens"]


def tokens(
    logits: Any,
    labels: Any,
    mask: ArrayLike | None = None,
    *,
    ignore_index: int | None = -100,
    shift: bool = False,
) -> tuple[Any, Any]:
    r"""Return the rows of logits and the labels of those tokens that count.

    They go on to any fit and any metric: ``calibrator.fit(*tokens(logits, labels))``. Predictions
    need no mask: functions made by ``as_function()`` take logits (..., tokens, classes).

    Parameters
    ----------
    logits : array of shape (..., tokens, classes), or a tuple of arrays
        Or any scores of tokens, also log odds of two classes (..., tokens). A tuple, as of
        truncated logits (indices, logits, rest), comes back as one.
    labels : array of shape (..., tokens)
        Integers.
    mask : array of shape (..., tokens), optional
        Booleans, or integers 1 (the token counts) and 0, as tokenizers' ``attention_mask``.
    ignore_index : int or None, default -100
        Label of tokens that do not count; None if all labels are classes.
    shift : bool, default False
        Whether logits at a token are of the next token, as those of causal language models, while
        labels stand at their own: then the last logits and the first label (and its mask) go.

    Returns
    -------
    rows : array of shape (n, classes), or a tuple of arrays of n rows
    labels : array of shape (n,)
        Both of the logits' library, on their device, in the order of tokens. If all tokens count
        these are views, where the library and the order in memory allow.

    Raises
    ------
    TypeError
        If labels are no integers, or the mask is neither of booleans nor of integers.
    ValueError
        If shapes do not belong together, or the mask holds other numbers than 0 and 1.

    Notes
    -----
    How many rows there are depends on labels and mask: not for use inside compiled functions.

    References
    ----------
    The convention is that of ``torch.nn.functional.cross_entropy(ignore_index=-100)``.

    Examples
    --------
    Two sentences of three tokens, of which the last is padding:

    >>> import numpy as np, bayescal as bc
    >>> logits, labels = np.zeros((2, 3, 4)), np.array([[1, 0, 3], [2, 2, -100]])
    >>> rows, y = bc.tokens(logits, labels)
    >>> rows.shape, y.tolist()
    ((5, 4), [1, 0, 3, 2, 2])
    >>> bc.metrics.log_loss(rows, y, inputs="logits")
    1.38629...
    >>> bc.tokens(logits, labels, shift=True)[1].tolist()
    [0, 3, 2]
    """
    several = isinstance(logits, tuple)
    parts = [_array(part, "logits") for part in (logits if several else (logits,))]
    xp = namespace(parts[0])
    labels = _beside(labels, parts[0], "labels")
    if not xp.isdtype(labels.dtype, "integral"):
        raise TypeError(f"labels must be integers, got {labels.dtype}")
    lead = tuple(labels.shape)
    for part in parts:
        shape = tuple(part.shape)
        if not lead or shape[: len(lead)] != lead or len(shape) > len(lead) + 1:
            raise ValueError(
                "labels must have the shape of logits but for the classes, "
                f"got {lead} for logits {shape}"
            )
    counts = None if mask is None else _checked_mask(_beside(mask, parts[0], "mask"), lead)
    if shift:
        before = (slice(None),) * (len(lead) - 1)
        labels, counts = (
            None if own is None else own[(*before, slice(1, None), ...)] for own in (labels, counts)
        )
        parts = [part[(*before, slice(None, -1), ...)] for part in parts]
    # A type that cannot hold the number holds no such label; comparing would wrap it.
    limits = xp.iinfo(labels.dtype)
    if ignore_index is not None and limits.min <= ignore_index <= limits.max:
        keep = labels != ignore_index
        counts = keep if counts is None else counts & keep
    if counts is None or bool(xp.all(counts)):
        axes = len(lead)
        *rows, y = (xp.reshape(own, (-1, *own.shape[axes:])) for own in (*parts, labels))
    else:
        *rows, y = (own[counts] for own in (*parts, labels))
    return (tuple(rows) if several else rows[0]), y


def _array(value: Any, name: str) -> Any:
    """Return arrays of any library as they are, and else NumPy's."""
    try:
        namespace(value)
    except TypeError:
        return as_numpy(value, name)
    return value


def _beside(value: Any, array: Any, name: str) -> Any:
    """Return numbers in the library of an array, on its device."""
    value, xp = _array(value, name), namespace(array)
    if namespace(value) is not xp:
        value = as_numpy(value, name)
    return value if on_host(array) else xp.asarray(value, device=device(array))


def _checked_mask(mask: Any, shape: tuple[int, ...]) -> Any:
    xp = namespace(mask)
    if tuple(mask.shape) != shape:
        raise ValueError(f"mask must have the shape of labels {shape}, got {tuple(mask.shape)}")
    if xp.isdtype(mask.dtype, "bool"):
        return mask
    if not xp.isdtype(mask.dtype, "integral"):
        raise TypeError(f"mask must be of booleans or of integers 0 and 1, got {mask.dtype}")
    if not bool(xp.all((mask == 0) | (mask == 1))):
        raise ValueError("mask must be 1 where a token counts and 0 elsewhere, got other numbers")
    return mask != 0
