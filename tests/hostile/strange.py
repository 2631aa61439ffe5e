"""Unusual but valid arrays, invalid arrays, and the allowed outcomes.

All valid arrays have twelve rows, so that programs compile once.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse

from bayescal import AccuracyWarning, SamplingWarning

Array = np.ndarray
N = 12
#: Numbers that are exact in float32 and float16.
P = np.array([1, 2, 3, 5, 6, 8, 10, 11, 12, 13, 14, 15]) / 16
Y = np.array([0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 1])
W = np.array([1, 2, 1, 3, 1, 1, 2, 1, 4, 1, 1, 2.0])
P3 = np.stack([P[::-1] / 2, 0.5 - P[::-1] / 4, 0.5 - P[::-1] / 4], axis=1)
P3[::3] = P3[::3, [1, 2, 0]]
Y3 = np.array([0, 1, 2, 0, 1, 2, 0, 2, 1, 0, 0, 2])

#: Words for an argument, one of which a message must contain.
NAMED = "scores|X|y|labels|sample|weights|probs|classes|columns|inputs|data|x|first|second|truth"


def _with(values: Array, entry: Any, dtype: Any = None) -> Array:
    """Return a copy in which the fourth row is ``entry``."""
    values = values.astype(dtype or (float if isinstance(entry, float) else object))
    values[3] = entry
    return values


def valid_arrays(values: Array) -> dict[str, Any]:
    """Return the values in other containers, layouts and dtypes."""
    wide = np.zeros((2 * N, *values.shape[1:]), values.dtype)
    wide[::2] = values
    frozen = values.copy()
    frozen.flags.writeable = False
    frame = pd.Series if values.ndim == 1 else pd.DataFrame
    kinds: dict[str, Any] = {
        "list": values.tolist(),
        "tuple": tuple(values.tolist()),
        "every other row": wide[::2],
        "backwards": values[::-1].copy()[::-1],
        "by columns": np.asfortranarray(values),
        "read-only": frozen,
        "foreign bytes": values.astype(values.dtype.newbyteorder()),
        "objects": values.astype(object),
        "pandas": frame(values),
        "nullable": frame(values).astype("Float64" if values.dtype.kind == "f" else "Int64"),
        "polars": (pl.Series if values.ndim == 1 else pl.DataFrame)(values),
        "jax": jnp.asarray(values, jnp.float32 if values.dtype.kind == "f" else jnp.int32),
        "not masked": np.ma.array(values, mask=False),
    }
    if values.dtype.kind == "f":
        kinds["single"], kinds["half"] = values.astype(np.float32), values.astype(np.float16)
    else:
        kinds["bytes"] = values.astype(np.uint8)
    return kinds


def invalid_arrays(values: Array) -> dict[str, Any]:
    """Return objects that are not valid arrays of numbers."""
    return {
        "NaN": _with(values, np.nan),
        "infinity": _with(values, np.inf),
        "minus infinity": _with(values, -np.inf),
        "None": _with(values, None),
        "masked": np.ma.array(values, mask=values == values.flat[0]),
        "complex": values + 0.5j,
        "dates": np.full(values.shape, np.datetime64("2026-01-01")),
        "text": np.full(values.shape, "high"),
        "an array within": _with(values, [1, 2]) if values.ndim == 1 else [[0.5, 0.5], [1]],
        "short": values[:-1],
        "long": np.concatenate([values, values]),
        "empty": values[:0],
        "deep": values.reshape(N, 1, 1, -1),
        "a number": 0.5,
        "nothing": None,
        "a dict": dict(enumerate(values.tolist())),
        "a set": {0.5, 0.25},
        "a generator": (row for row in values.tolist()),
        "sparse": scipy.sparse.csr_matrix(np.atleast_2d(values)),
        "a string": "0.5",
        "an object": object(),
    }


def scores(k: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return valid and invalid probabilities of two or three classes."""
    values = P if k == 2 else P3
    bad = invalid_arrays(values) | {
        "above one": _with(values, 1.5),
        "below zero": _with(values, -0.5),
    }
    if k > 2:
        bad |= {"other sums": 0.9 * values, "one column": values[:, :1], "no column": values[:, :0]}
    return valid_arrays(values), bad


def weights() -> tuple[dict[str, Any], dict[str, Any]]:
    good = valid_arrays(W) | {
        "huge": 1e300 * W,
        "tiny": 1e-300 * W,
        "some zero": W * (np.arange(N) != 4),
    }
    bad = invalid_arrays(W) | {"negative": _with(W, -1.0), "zero": 0 * W}
    del bad["nothing"]
    return good, bad


def judge(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, or the error that names the invalid argument.

    Other exceptions propagate, and warnings are errors. Arguments and NumPy's global generator must
    not change.
    """
    before = [_picture(value) for value in arguments]
    state = repr(np.random.get_state())  # noqa: NPY002
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for category in (AccuracyWarning, SamplingWarning):  # These warnings are legitimate.
                warnings.simplefilter("ignore", category)
            result = call(*arguments)
    except (TypeError, ValueError) as error:
        result = error
    assert [_picture(value) for value in arguments] == before
    assert repr(np.random.get_state()) == state  # noqa: NPY002
    return result


def _picture(value: Any) -> Any:
    """Return a snapshot that shows whether a value has changed."""
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.dtype != object else repr(value)
    if isinstance(value, pd.Series | pd.DataFrame | pl.Series | pl.DataFrame):
        return repr(value.to_numpy())
    return copy.copy(value) if isinstance(value, list | dict | set) else None
