"""Checkpoints of passes over data: fingerprints of blocks and results, kept in a file."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bayescal._core.arrays import Array, UserData, XArray
from bayescal._core.files import DAMAGED, delete_partials, read_arrays, target_of, write_atomically
from bayescal.data.rows import Sums

#: Number of texts of a block that are compared between passes; at most twice as many.
_TEXTS = 4096
#: Relative difference below which recomputed scores, such as a network's, count as unchanged.
_ROUNDING = 1e-6


class RowsChanged(ValueError):
    """Raised if a block does not hold the same values as in an earlier pass."""


class Checkpoint:
    """A file of NumPy arrays, without pickles, that is rewritten after each pass.

    It holds fingerprints of the blocks and, for each pass, the result and a digest of the function
    and its arguments. A restarted fit asks for the same passes, receives the stored results, and
    thus continues where it stopped. Only one fit at a time may write the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not os.fspath(path):
            raise ValueError("checkpoint must be the path of a file, got ''")
        target_of(path)  # raises where no file can be
        self._made: list[tuple[str, Sums]] = []
        self._asked = ""
        self._number = 0

    def read(self) -> np.ndarray | None:
        """Read what a previous fit stored; return the fingerprints of blocks, if there are any.

        Unfinished files of killed fits are deleted.
        """
        delete_partials(self.path)
        if not self.path.exists():
            return None
        try:
            with self.path.open("rb") as file:
                arrays = read_arrays(file)
            digests, prints = arrays["digests"].tolist(), arrays["blocks"]
            parts: list[Sums] = [{} for _ in digests]
            for key, array in arrays.items():
                number, _, name = key.partition("/")
                if name:
                    parts[int(number)][name] = array
        except DAMAGED as error:
            raise ValueError(
                f"checkpoint must be absent, or a file from an interrupted fit, got {self.path}, "
                "which is damaged or another file; pass another path, or delete the file if it is "
                "a checkpoint"
            ) from error
        self._made = list(zip(digests, parts, strict=True))
        return prints

    def recall(self, function: Callable[..., object]) -> Sums | None:
        """Return the result of the next pass if it is stored, else None."""
        self._asked = _digest(function)
        if self._number >= len(self._made):
            return None
        known, sums = self._made[self._number]
        self._number += 1
        if known != self._asked:
            raise ValueError(
                f"checkpoint {self.path} was written by a different fit (pass {self._number} "
                "differs); delete the file to start over"
            )
        return sums

    def keep(self, sums: Sums, prints: np.ndarray) -> None:
        """Store the result of the last requested pass, and the fingerprints of all blocks."""
        self._made.append((self._asked, sums))
        self._number += 1
        arrays: dict[str, Any] = {
            f"{number}/{name}": value
            for number, (_, part) in enumerate(self._made)
            for name, value in part.items()
        }
        arrays["digests"] = np.array([digest for digest, _ in self._made])
        with write_atomically(self.path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **arrays, blocks=prints)

    def delete(self) -> None:
        """Delete the file, so that the next pass is the first of a new fit."""
        self.path.unlink(missing_ok=True)
        self._made, self._number = [], 0


def fingerprint(block: tuple[object, ...]) -> np.ndarray:
    """Compute a fingerprint (14,) of a block: a few sums, which cost little beside any pass.

    It holds the number of rows, four sums of scores and their tolerance, four sums of labels and
    four of weights. Scores may be recomputed for each pass, with other rounding errors.
    """
    scores, y, weights = (*block, None, None)[:3]
    with np.errstate(all="ignore"):
        sums, size = _sums(scores)
        return np.array([rows_of(scores), *sums, size, *_sums(y)[0], *_sums(weights)[0]])


def rows_of(scores: UserData) -> int:
    """Return the number of rows of scores, which may be a pair of arrays; -1 if they have none."""
    shape = np.shape(scores[0] if _is_pair(scores) else scores)
    return shape[0] if shape else -1


def _is_pair(values: XArray) -> bool:
    """Return whether values are a tuple of arrays, such as the largest logits and their classes."""
    return isinstance(values, tuple) and bool(values) and bool(getattr(values[0], "shape", ()))


def check_unchanged(number: int, before: np.ndarray | None, after: np.ndarray) -> None:
    """Raise if fingerprints of a block differ."""
    if before is None:
        return
    with np.errstate(all="ignore"):
        # Other types of processors may round sums differently.
        allowed = 1e-12 * np.abs(before)
        allowed[1:5] = np.maximum(allowed[1:5], before[5])
        alike = (before == after) | (np.isnan(before) & np.isnan(after))
        alike |= np.abs(before - after) <= allowed
    alike[5] = True
    if alike.all():
        return
    rows = f"{after[0]:.0f} rows after {before[0]:.0f}" if not alike[0] else "other values"
    raise RowsChanged(
        f"block {number} must hold the same rows in each pass, got {rows}; return a new iterator "
        "over the same rows each time"
    )


def _sums(values: UserData) -> tuple[list[float], float]:
    """Compute sums of the four quarters of an array, and a bound on their rounding errors."""
    if _is_pair(values):
        parts = [_sums(part) for part in values]
        return np.sum([sums for sums, _ in parts], axis=0).tolist(), sum(
            error for _, error in parts
        )
    try:
        array = np.asarray(values.detach().cpu().float() if hasattr(values, "detach") else values)
    except Exception:
        return [0.0] * 4, 0.0  # the reader of the values raises
    if values is None or not array.ndim or not array.size:
        return [0.0] * 4, 0.0
    if array.dtype.kind in "OSUT":
        texts = array[:: max(1, len(array) // _TEXTS)].ravel().tolist()
        joined = "\0".join(map(str, texts)).encode(errors="replace")
        return [float(zlib.crc32(joined)), 0, 0, 0], 0.0
    if array.dtype.kind in "biuMm":
        # Summing eight bytes at a time takes a tenth of the time of summing booleans.
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        rest = len(data) % 8
        words = [int(word) for word in _quarters(data[: len(data) - rest].view(np.uint64))]
        # A float cannot hold 64 bits.
        first, *more = (float(3 * (word >> 32) + (word & 0xFFFFFFFF)) for word in words)
        last = data[len(data) - rest :] @ np.arange(1, rest + 1)
        return [first + float(last), *more], 0.0
    if array.dtype.kind != "f" and "float" not in array.dtype.name:
        return [0.0] * 4, 0.0
    if array.dtype.kind != "f" or array.dtype.itemsize == 2:
        array = array.astype(np.float32)  # half precision of NumPy and JAX, whose sums overflow
    sums = [float(quarter) for quarter in _quarters(array)]
    sample = array[:: max(1, len(array) // 64)]
    return sums, _ROUNDING * array.size * float(np.abs(sample, dtype=float).mean())


def _quarters(array: np.ndarray) -> list[Array]:
    """Sum the four quarters of an array."""
    ends = [len(array) * quarter // 4 for quarter in range(5)]
    return [array[first:last].sum() for first, last in pairwise(ends)]


def _digest(value: object) -> str:
    made = hashlib.sha256()
    _feed(made.update, value)
    return made.hexdigest()


def _feed(update: Callable[[bytes], None], value: object) -> None:
    """Feed the content of a value, in a form that does not depend on the process."""
    if isinstance(value, np.ndarray):
        plain = value.astype(str) if value.dtype == object else np.ascontiguousarray(value)
        update(f"{plain.dtype.str}{plain.shape}".encode())
        update(plain.tobytes())
    elif isinstance(value, partial):
        _feed(update, (value.func, value.args, value.keywords))
    elif isinstance(value, dict):
        _feed(update, sorted((str(key), entry) for key, entry in value.items()))
    elif isinstance(value, (tuple, list)):
        update(f"{len(value)}(".encode())
        for entry in value:
            _feed(update, entry)
    elif callable(value) and hasattr(value, "__qualname__"):
        update(f"{value.__module__}.{value.__qualname__}".encode())
        _feed(update, getattr(value, "__self__", None))
    elif is_dataclass(value) and not isinstance(value, type):
        content = [
            (field.name, getattr(value, field.name, None)) for field in fields(value) if field.init
        ]
        _feed(update, (type(value).__qualname__, content))
    else:
        update(repr(value).encode())
