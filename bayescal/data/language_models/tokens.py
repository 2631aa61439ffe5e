"""Select logits and labels of tokens as rows."""

from __future__ import annotations

from bayescal._core.arrays import AnyArray, ArrayLike, UserData, XArray, device, namespace, on_host
from bayescal.data.checks import as_numpy


def tokens(
    logits: AnyArray,
    labels: UserData,
    mask: ArrayLike | None = None,
    *,
    ignore_index: int | None = -100,
    shift: bool = False,
) -> tuple[AnyArray, AnyArray]:
    r"""Select the logits and labels of all tokens that are not masked or ignored, as rows.

    The result is passed to a fit or a metric: ``calibrator.fit(*tokens(logits, labels))``.
    Predictions need no mask: functions made by ``as_function()`` take logits (..., tokens,
    classes).

    Parameters
    ----------
    logits : array of shape (..., tokens, classes), or a tuple of arrays
        Logits or other scores of tokens; also log odds of two classes (..., tokens). A tuple, such
        as truncated logits (indices, logits, rest), gives a tuple.
    labels : array of shape (..., tokens)
        Integers.
    mask : array of shape (..., tokens), optional
        Booleans, or integers 1 (the token counts) and 0, like the ``attention_mask`` of tokenizers.
    ignore_index : int or None, default -100
        Label of tokens that do not count; None if all labels are classes.
    shift : bool, default False
        Whether the logits at a token predict the next token, as in causal language models. The last
        logits and the first label (and its mask) are then dropped.

    Returns
    -------
    rows : array of shape (n, classes), or a tuple of arrays of n rows
    labels : array of shape (n,)
        Arrays of the library and on the device of the logits, in the order of tokens. If all tokens
        count, they are views if the library and the memory layout allow.

    Raises
    ------
    TypeError
        If labels are not integers, or the mask is neither boolean nor of integers.
    ValueError
        If shapes do not match, or the mask contains numbers other than 0 and 1.

    Notes
    -----
    The number of rows depends on labels and mask, so the function cannot be compiled.

    References
    ----------
    The convention is that of ``torch.nn.functional.cross_entropy(ignore_index=-100)``.

    Examples
    --------
    Two sentences of three tokens; the last token is padding:

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
                "labels must have the shape of logits without the axis of classes, "
                f"got {lead} for logits {shape}"
            )
    counts = None if mask is None else _checked_mask(_beside(mask, parts[0], "mask"), lead)
    if shift:
        before = (slice(None),) * (len(lead) - 1)
        labels, counts = (
            None if array is None else array[(*before, slice(1, None), ...)]
            for array in (labels, counts)
        )
        parts = [part[(*before, slice(None, -1), ...)] for part in parts]
    # Compare only if the type can hold the number, because it would wrap otherwise.
    limits = xp.iinfo(labels.dtype)
    if ignore_index is not None and limits.min <= ignore_index <= limits.max:
        keep = labels != ignore_index
        counts = keep if counts is None else counts & keep
    if counts is None or bool(xp.all(counts)):
        axes = len(lead)
        *rows, y = (xp.reshape(array, (-1, *array.shape[axes:])) for array in (*parts, labels))
    else:
        *rows, y = (array[counts] for array in (*parts, labels))
    return (tuple(rows) if several else rows[0]), y


def _array(value: UserData, name: str) -> XArray:
    """Return arrays of any library unchanged, and convert other values to NumPy."""
    try:
        namespace(value)
    except TypeError:
        return as_numpy(value, name)
    return value


def _beside(value: UserData, array: XArray, name: str) -> XArray:
    """Convert numbers to the library and device of an array."""
    value, xp = _array(value, name), namespace(array)
    if namespace(value) is not xp:
        value = as_numpy(value, name)
    return value if on_host(array) else xp.asarray(value, device=device(array))


def _checked_mask(mask: AnyArray, shape: tuple[int, ...]) -> XArray:
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
