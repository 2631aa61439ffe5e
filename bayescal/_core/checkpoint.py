"""Results of passes over data, kept in a file with which an interrupted fit goes on."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bayescal._core.files import write_atomically

__all__ = ["Checkpoint", "Sums", "digest_of_block"]

#: What a pass adds up: arrays by name.
Sums: TypeAlias = dict[str, np.ndarray]


class Checkpoint:
    """A file of NumPy's arrays, without pickles, written anew after each pass.

    It holds a digest of the first block and, of each pass, that of the function that was called,
    with all that was given to it, and its result. A fit that is begun again asks for the same
    passes, gets the results of those that were made, and so comes to where it was.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._made: list[tuple[str, Sums]] = []
        self._first: str | None = None
        self._asked = ""
        self._loaded = False

    def recall(self, number: int, function: Callable[..., Any], first: str) -> Sums | None:
        """Return the result of a pass that was made before, or None."""
        if not self._loaded:
            self._read()
            self._loaded = True
        if self._first is not None and self._first != first:
            raise ValueError(f"checkpoint {self._path} is of other data; delete it to begin anew")
        self._first, self._asked = first, _digest(function)
        if number >= len(self._made):
            return None
        known, sums = self._made[number]
        if known != self._asked:
            raise ValueError(
                f"checkpoint {self._path} is of another fit: pass {number + 1} asked for something "
                "else; delete it to begin anew"
            )
        return sums

    def keep(self, sums: Sums) -> None:
        """Keep the result of the pass that was asked for last."""
        self._made.append((self._asked, sums))
        arrays: dict[str, Any] = {
            f"{number}/{name}": own
            for number, (_, part) in enumerate(self._made)
            for name, own in part.items()
        }
        arrays["digests"] = np.array([self._first, *(digest for digest, _ in self._made)])
        with write_atomically(self._path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **arrays)

    def delete(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)
        self._made, self._first, self._loaded = [], None, False

    def _read(self) -> None:
        if not self._path.exists():
            return
        try:
            with self._path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                first, *digests = file["digests"].tolist()
                parts: list[Sums] = [{} for _ in digests]
                for key in file.files:
                    number, _, name = key.partition("/")
                    if name:
                        parts[int(number)][name] = file[key]
        except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"checkpoint {self._path} is damaged: {error}; delete it") from None
        self._first, self._made = first, list(zip(digests, parts, strict=True))


def digest_of_block(block: tuple[Any, ...]) -> str:
    """Return a digest of scores, labels and weights."""
    return _digest(tuple(None if own is None else np.asarray(own) for own in block))


def _digest(value: Any) -> str:
    made = hashlib.sha256()
    _feed(made.update, value)
    return made.hexdigest()


def _feed(update: Callable[[bytes], None], value: Any) -> None:
    """Feed what a value holds, in a form that is the same in every process."""
    if isinstance(value, np.ndarray):
        plain = value.astype(str) if value.dtype == object else np.ascontiguousarray(value)
        update(f"{plain.dtype.str}{plain.shape}".encode())
        update(plain.tobytes())
    elif isinstance(value, partial):
        _feed(update, (value.func, value.args, value.keywords))
    elif isinstance(value, dict):
        _feed(update, sorted((str(key), own) for key, own in value.items()))
    elif isinstance(value, (tuple, list)):
        update(f"{len(value)}(".encode())
        for own in value:
            _feed(update, own)
    elif callable(value) and hasattr(value, "__qualname__"):
        update(f"{value.__module__}.{value.__qualname__}".encode())
        _feed(update, getattr(value, "__self__", None))
    elif is_dataclass(value) and not isinstance(value, type):
        own = [
            (field.name, getattr(value, field.name, None)) for field in fields(value) if field.init
        ]
        _feed(update, (type(value).__qualname__, own))
    else:
        update(repr(value).encode())
