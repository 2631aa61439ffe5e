"""Checks of user input and their error messages: one function for each kind of argument.

Everything that comes from a user passes through here once and leaves as NumPy arrays.
Messages have the form ``<argument> must ..., got ...``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.execution.chunks import slices
from bayescal._core.execution.padding import pad_axis
from bayescal._core.lazy import is_traced, jnp
from bayescal.data.label_names import class_array, label_text, rows_by_class, text_names
from bayescal.data.tolerances import RANGE_TOLERANCE, SUM_TOLERANCE

Choice = TypeVar("Choice")
#: One data set ``(x, y)`` or ``(x, y, mask)``, or a list of data sets ``(x, y)``.
Data: TypeAlias = (
    tuple[ArrayLike, ArrayLike]
    | tuple[ArrayLike, ArrayLike, ArrayLike | None]
    | Sequence[tuple[ArrayLike, ArrayLike]]
)


#: Rows whose sums are checked at once.
_ROWS_AT_ONCE = 1 << 16


@contextmanager
def naming(model: object) -> Iterator[None]:
    """Begin messages of errors with the name of one of several models; None adds nothing."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if model is None or type(error) not in (TypeError, ValueError):
            raise
        raise type(error)(f"model {model!r}: {error}") from error


class Batch(NamedTuple):
    """Checked data sets padded to one length: x (batch, n[, d]), labels (batch, n), 0 where masked.

    The mask is True for real observations; ``single`` says whether the user gave one data set.
    """

    x: np.ndarray
    y: np.ndarray
    mask: np.ndarray
    single: bool
    #: Names of the features, if they were columns of a data frame.
    names: list[str] | None = None


def as_numpy(value: ArrayLike, name: str) -> np.ndarray:
    """Convert NumPy, pandas, polars, JAX or PyTorch input to a numeric NumPy array."""
    detach = getattr(value, "detach", None)
    if detach is not None:
        tensor = detach().cpu()
        half = "bfloat16" in str(tensor.dtype)
        value = tensor.float().numpy().astype(jnp.bfloat16) if half else tensor.numpy()
    check_unmasked(value, name)
    check_untraced(value, name)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}") from None
    if array.dtype == object:
        array = _from_objects(array, name).astype(_column_type(value), copy=False)
    if array.dtype.kind not in "biuf" and "float" not in array.dtype.name:
        raise TypeError(f"{name} must be numeric, got dtype {array.dtype}")
    return array


def _from_objects(array: np.ndarray, name: str) -> np.ndarray:
    """Convert Python objects to floats; text is not read as a number, as NumPy would."""
    types = {type(value) for value in array.flat}
    try:
        if not any(issubclass(t, (str, bytes)) for t in types):
            return array.astype(np.float64)
    except (TypeError, ValueError):
        pass
    names = ", ".join(sorted(t.__name__ for t in types))
    if names == "Blocks":
        raise TypeError(f"{name} must be an array in memory here, got Blocks")
    message = f"{name} must be numeric, got values of type {names}"
    if array.ndim == 0 and hasattr(array.item(), "predict_proba"):
        message += "; pass its probabilities, predict_proba(X)"
    elif array.ndim == 0 and hasattr(array.item(), "__iter__"):
        message += "; pass batches of rows as bayescal.Blocks(...)"
    raise TypeError(message)


def _column_type(value: ArrayLike) -> np.dtype:
    """Return the common type of a frame's nullable or Arrow columns if it is floating, or float64.

    NumPy converts such columns to objects, which do not show their precision.
    """
    columns = getattr(value, "dtypes", ()) if np.ndim(value) == 2 else ()
    kinds = [getattr(kind, "numpy_dtype", kind) for kind in columns]
    if kinds and all(isinstance(kind, np.dtype) and kind.kind == "f" for kind in kinds):
        return np.result_type(*kinds)
    return np.dtype(np.float64)


def check_untraced(value: object, name: str) -> None:
    """Raise if the values of an array are unknown, because JAX compiles what is computed."""
    if is_traced(value):
        raise TypeError(
            f"{name} must be an array with known values, got one that JAX traces: call this "
            "outside of jax.jit, vmap and grad; functions made by as_function() work inside"
        )


def check_unmasked(value: object, name: str) -> None:
    """Raise if ``value`` is an array that masks some of its entries."""
    masked = int(np.ma.count_masked(value)) if isinstance(value, np.ma.MaskedArray) else 0
    if masked:
        raise ValueError(
            f"{name} must not be masked, got {masked} masked values; leave these rows out, or fill "
            "them and pass a weight of zero"
        )


def precision(dtype: np.dtype) -> float:
    """Return the machine epsilon of floats, or of float64 for integers and booleans."""
    kind = np.dtype(dtype).type
    if issubclass(kind, np.number | np.bool_):
        return float(np.finfo(kind).eps) if issubclass(kind, np.floating) else 2.0**-52
    return float(jnp.finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.floating) else 2.0**-52


def check_finite(array: np.ndarray, name: str) -> None:
    """Raise if ``array`` holds NaN or an infinity."""
    if not array.size or (np.isfinite(array.min()) and np.isfinite(array.max())):
        return  # without an array of its size
    bad = ~np.isfinite(array)
    what = "NaN" if np.isnan(array[bad]).any() else "infinity"
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    position = where[0] if len(where) == 1 else where
    raise ValueError(
        f"{name} must be finite, got {what} at position {position} ({int(bad.sum())} in all)"
    )


def check_logits(array: np.ndarray, name: str) -> None:
    """Raise unless rows (n, k) hold finite logits, and minus infinity for unavailable classes."""
    if not array.size or (np.isfinite(array.min()) and np.isfinite(array.max())):
        return
    check_finite(np.where(np.isneginf(array), 0.0, array), name)
    none = np.isneginf(array).all(axis=1)
    if none.any():
        raise ValueError(
            f"{name} must have a finite logit in each row, got only -infinity in row "
            f"{int(np.argmax(none))} ({int(none.sum())} in all)"
        )


def check_range(
    probs: np.ndarray, name: str, advice: str = "pass probabilities, not scores", when: str = ""
) -> np.ndarray:
    """Return probabilities in [0, 1], or raise if one lies outside by more than rounding does."""
    low, high = probs.min(initial=1), probs.max(initial=0)
    # NaN fails both comparisons.
    if not (np.isfinite(low) and np.isfinite(high)):
        check_finite(probs, name)
    if low < -RANGE_TOLERANCE or high > 1 + RANGE_TOLERANCE:
        wrong = float(low if low < -RANGE_TOLERANCE else high)
        text = f"{wrong:g}" if float(f"{wrong:g}") == wrong else repr(wrong)
        raise ValueError(f"{name} must lie in [0, 1]{when}, got {text}; {advice}")
    return probs if low >= 0 and high <= 1 else np.clip(probs, 0.0, 1.0)


def check_row_sums(
    probs: np.ndarray, name: str, *, eps: float = 2.0**-52, advice: str = ""
) -> None:
    """Raise unless rows (n, k) sum to one, up to 1e-3 or k times the precision ``eps``."""
    ones = np.ones(probs.shape[1])
    tolerance = max(SUM_TOLERANCE, probs.shape[1] * eps)
    for part in slices(len(probs), _ROWS_AT_ONCE):
        sums = probs[part] @ ones
        away = np.abs(sums - 1)
        row = int(np.argmax(away))
        if not away[row] <= tolerance:
            raise ValueError(
                f"{name} must have rows that sum to one, got a sum of {sums[row]:g} in row "
                f"{part.start + row}" + (f"; {advice}" if advice else "")
            )


def check_labels(
    labels: np.ndarray, classes: int, name: str = "labels", advice: str = ""
) -> np.ndarray:
    """Return ``labels`` as integers, or raise if one is not in {0, ..., classes - 1}."""
    allowed = "{0, 1}" if classes == 2 else f"{{0, ..., {classes - 1}}}"
    kind = labels.dtype.kind
    if kind in "biu" and labels.min(initial=0) >= 0 and labels.max(initial=0) < classes:
        return labels.astype(np.int64)
    if kind == "f":
        check_finite(labels, name)
    wrong = (labels != np.floor(labels)) | (labels < 0) | (labels >= classes)
    if wrong.any():
        examples = ", ".join(label_text(v) for v in np.unique(labels[wrong])[:5])
        advice = f"; {advice}" if advice else ""
        raise ValueError(f"{name} must be in {allowed}, got {examples}{advice}")
    return labels.astype(np.int64)


def check_names(names: Iterable[object], what: str) -> list[str]:
    """Convert names to strings, which must be distinct."""
    objects = list(names)
    texts = [str(name) for name in objects]
    if len(set(texts)) < len(texts):
        raise ValueError(f"{what} must have names that differ as text, got {objects}")
    return texts


def check_count(value: object, name: str, least: int = 1) -> int:
    """Return ``value`` as an integer of at least one, or ``least``."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)  # 1e5
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_real(value: object, name: str, wanted: str = "a number") -> None:
    """Raise unless ``value`` is a number of Python or NumPy."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name} must be {wanted}, got {value!r}")


def check_eps(eps: float | None, default: float) -> float:
    """Check the distance from 0 and 1 at which probabilities are clipped."""
    if eps is None:
        return default
    check_real(eps, "eps")
    if not 0 <= eps < 0.5:
        raise ValueError(f"eps must lie in [0, 0.5), got {eps}")
    return float(eps)


def check_norm(norm: float) -> float:
    """Check the order of a norm, at least 1; infinity is the maximum."""
    wanted = "a number of at least 1 or math.inf"
    check_real(norm, "norm", wanted)
    if np.isnan(norm) or norm < 1:
        raise ValueError(f"norm must be {wanted}, got {norm}")
    return float(norm)


def check_positive(value: float, name: str) -> float:
    """Check that a number is positive and finite."""
    check_real(value, name, "a positive number")
    if not 0 < value < np.inf:
        raise ValueError(f"{name} must be positive, got {value}")
    return float(value)


def check_choice(value: Choice, name: str, choices: Sequence[Choice]) -> Choice:
    """Return ``value`` if it is one of ``choices``."""
    # An array compares with each choice to an array, which has no truth value.
    known = isinstance(value, Hashable)
    if not known or value not in choices:
        options = ", ".join(repr(c) for c in choices)
        got = repr(value) if known else f"a {type(value).__name__}"
        raise ValueError(f"{name} must be one of {options}, got {got}")
    return value


def check_level(value: float, name: str = "level") -> float:
    """Return ``value`` as a float strictly between 0 and 1."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    if not 0 < number < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value}")
    return number


def check_strength(value: float | str, name: str = "strength") -> None:
    """Raise unless ``value`` is "cv" or a finite number of at least zero."""
    if isinstance(value, str) and value == "cv":
        return
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not 0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be 'cv' or not negative, got {value!r}")


def check_class_prior(
    value: ArrayLike, labels: np.ndarray | int, name: str = "class_prior"
) -> np.ndarray:
    """Return the (classes,) vector of class probabilities.

    A number is the probability of class 1 of two; 0.5 means equally likely classes for any number.
    A series whose index has the labels of the classes may have any order.
    """
    given = class_array(labels)
    classes = len(given)
    array = as_numpy(rows_by_class(value, given, name), name).astype(np.float64)
    if array.ndim == 0:
        number = float(array)
        if not 0 < number < 1:
            raise ValueError(f"{name} must lie strictly between 0 and 1, got {number:g}")
        if classes == 2:
            return np.array([1 - number, number])
        if number == 0.5:
            return np.full(classes, 1 / classes)
        raise ValueError(f"{name} must be {classes} probabilities, got the number {number:g}")
    if array.shape != (classes,):
        raise ValueError(f"{name} must have shape ({classes},), got {array.shape}")
    if not ((array > 0) & (array < 1)).all():
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {array.tolist()}")
    if abs(array.sum() - 1) > 1e-6:
        raise ValueError(f"{name} must sum to one, got {array.sum():g}")
    return array / array.sum()


def check_data(data: object, univariate: bool, classes: int) -> Batch:
    """Check one data set ``(x, y)``, a padded batch ``(x, y, mask)`` or a list of data sets."""
    if isinstance(data, list):
        return _check_list(data, univariate, classes)
    if not isinstance(data, tuple) or len(data) not in (2, 3):
        raise TypeError(
            "data must be a tuple (x, y), a tuple (x, y, mask) or a list of tuples (x, y), "
            f"got {type(data).__name__}"
            + (f" of length {len(data)}" if isinstance(data, tuple) else "")
        )
    x, y = as_numpy(data[0], "x"), as_numpy(data[1], "labels")
    row_axes = x.ndim if univariate else x.ndim - 1
    if row_axes not in (1, 2):
        expected = "(n,) or (batch, n)" if univariate else "(n, d) or (batch, n, d)"
        raise ValueError(f"x must have shape {expected} for this family, got {x.shape}")
    rows = x.shape[:row_axes]
    if y.shape != rows:
        raise ValueError(
            f"labels must have shape {rows} to match x of shape {x.shape}, got {y.shape}"
            + "; pass a single column as an array of shape (n,)" * (rows == (*y.shape, 1))
        )
    mask = np.ones(rows, bool)
    if len(data) == 3 and data[2] is not None:
        mask = as_numpy(data[2], "mask")
        if mask.shape != rows:
            raise ValueError(f"mask must have shape {rows} to match x, got {mask.shape}")
        if mask.dtype.kind != "b" and not np.isin(mask, (0, 1)).all():
            raise ValueError("mask must hold only True and False")
        mask = mask.astype(bool)
    if x.size == 0 or not mask.any(axis=-1).all():
        raise ValueError("data must not be empty: every data set needs at least one observation")
    # Replace masked values before any other check.
    index = np.argmax(mask, axis=-1)
    first = x[index] if row_axes == 1 else x[np.arange(len(x)), index][:, None]
    x = np.where(mask if univariate else mask[..., None], x, first)
    check_finite(x, "x")
    y = check_labels(np.where(mask, y, 0), classes)
    single = row_axes == 1
    if single:
        x, y, mask = x[None], y[None], mask[None]
    names = None if univariate else text_names(data[0])
    return Batch(x.astype(np.float64), y, mask, single, names)


def _check_list(data: list, univariate: bool, classes: int) -> Batch:
    """Check a list of data sets of any sizes and pad them to the longest."""
    if not data:
        raise ValueError("data must not be empty, got an empty list of data sets")
    parts = []
    for i, item in enumerate(data):
        if not isinstance(item, tuple):
            raise TypeError(
                "data given as a list must hold tuples (x, y), one for each data set; "
                f"item {i} is {type(item).__name__}. One data set is a tuple (x, y)."
            )
        try:
            part = check_data(item, univariate, classes)
        except (TypeError, ValueError) as error:
            raise type(error)(f"data[{i}]: {error}") from None
        if not part.single:
            raise ValueError(f"data[{i}] must be one data set, got a batch of {len(part.x)}")
        parts.append(part)
    if len({part.x.shape[2:] for part in parts}) > 1:
        raise ValueError("data must hold data sets with one number of features")
    longest, names = max(part.x.shape[1] for part in parts), parts[0].names
    return Batch(
        np.concatenate([pad_axis(_by_name(p.x, p.names, names), longest, 1) for p in parts]),
        np.concatenate([pad_axis(p.y, longest, 1) for p in parts]),
        np.concatenate([np.pad(p.mask, [(0, 0), (0, longest - p.mask.shape[1])]) for p in parts]),
        False,
        names,
    )


def _by_name(x: np.ndarray, given: list[str] | None, names: list[str] | None) -> np.ndarray:
    """Reorder features (..., d) with the given names; others, and those without, stay."""
    if given == names or given is None or names is None or {*given} != {*names}:
        return x
    return x[..., [given.index(name) for name in names]]


def check_points(x: ArrayLike, data: Batch, univariate: bool) -> np.ndarray:
    """Check test points and return them as (1 or batch, m) or (1 or batch, m, d).

    A leading axis of one means that all data sets share the points.
    """
    array = as_numpy(x, "x")
    axes = 1 if univariate else 2
    if not univariate and array.shape[-1:] != data.x.shape[-1:]:
        got = array.shape[-1] if array.ndim else 0
        raise ValueError(f"x must have {data.x.shape[-1]} features as in training, got {got}")
    array = array if univariate else _by_name(array, text_names(x), data.names)
    if array.ndim == axes:
        array = array[None]
    elif array.ndim != axes + 1 or data.single or array.shape[0] != len(data.x):
        single = "(m,)" if univariate else "(m, d)"
        batch = "" if data.single else f", or {len(data.x)} rows of that, one for each data set"
        raise ValueError(f"x must have shape {single}{batch}, got {array.shape}")
    if array.size == 0:
        raise ValueError("x must not be empty")
    check_finite(array, "x")
    return array
