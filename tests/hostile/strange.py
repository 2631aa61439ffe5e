"""Arrays that look odd and are right, arrays that no one should pass, and what may happen.

Of twelve rows: whatever is right has one shape, and compiles once.
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
#: Numbers that float32 and float16 hold, too.
P = np.array([1, 2, 3, 5, 6, 8, 10, 11, 12, 13, 14, 15]) / 16
Y = np.array([0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 1])
W = np.array([1, 2, 1, 3, 1, 1, 2, 1, 4, 1, 1, 2.0])
P3 = np.stack([P[::-1] / 2, 0.5 - P[::-1] / 4, 0.5 - P[::-1] / 4], axis=1)
P3[::3] = P3[::3, [1, 2, 0]]
Y3 = np.array([0, 1, 2, 0, 1, 2, 0, 2, 1, 0, 0, 2])

#: What a message may begin with, or name: something that was passed.
NAMED = "scores|X|y|labels|sample|weights|probs|classes|columns|inputs|data|x|first|second|truth"


def _with(values: Array, entry: Any, dtype: Any = None) -> Array:
    """Return a copy in which the fourth row has another value."""
    values = values.astype(dtype or (float if isinstance(entry, float) else object))
    values[3] = entry
    return values


def right(values: Array) -> dict[str, Any]:
    """Return the same values, in other clothes."""
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


def wrong(values: Array) -> dict[str, Any]:
    """Return what can stand for no array of numbers."""
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
    """Return probabilities that are right, and that are wrong, of two or three classes."""
    values = P if k == 2 else P3
    bad = wrong(values) | {"above one": _with(values, 1.5), "below zero": _with(values, -0.5)}
    if k > 2:
        bad |= {"other sums": 0.9 * values, "one column": values[:, :1], "no column": values[:, :0]}
    return right(values), bad


def weights() -> tuple[dict[str, Any], dict[str, Any]]:
    good = right(W) | {"huge": 1e300 * W, "tiny": 1e-300 * W, "some zero": W * (np.arange(N) != 4)}
    bad = wrong(W) | {"negative": _with(W, -1.0), "zero": 0 * W}
    del bad["nothing"]
    return good, bad


def judge(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call returns, or the error by which it says what it was passed.

    Other exceptions pass through, and so do warnings: they are errors. Neither the arguments nor
    NumPy's global generator may change.
    """
    before = [_picture(value) for value in arguments]
    state = repr(np.random.get_state())  # noqa: NPY002
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for category in (AccuracyWarning, SamplingWarning):  # What they say is right.
                warnings.simplefilter("ignore", category)
            result = call(*arguments)
    except (TypeError, ValueError) as error:
        result = error
    assert [_picture(value) for value in arguments] == before
    assert repr(np.random.get_state()) == state  # noqa: NPY002
    return result


def _picture(value: Any) -> Any:
    """Return what tells whether a value has changed."""
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.dtype != object else repr(value)
    if isinstance(value, pd.Series | pd.DataFrame | pl.Series | pl.DataFrame):
        return repr(value.to_numpy())
    return copy.copy(value) if isinstance(value, list | dict | set) else None
