"""A folder of finished blocks: each a file that is whole, or is done again."""

from __future__ import annotations

import hashlib
import io
import json
import os
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_FORMAT = 1
_SUFFIX = ".npz"


class Store:
    """Blocks by what they answer, in files of arrays.

    A file's name is a digest of its question, and its content has a digest of its own. It is
    written beside its place and moved there in one step: whoever reads sees all of it or nothing.
    Two writers of one block write the same; the last to come replaces the other's.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def get(self, question: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
        """Return the arrays kept for a question, or None if there are none, or they are broken."""
        try:
            content = self._place(question).read_bytes()
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        stated = arrays.pop("digest", np.array("")).item()
        return arrays if stated == _digest(question, arrays) else None

    def put(self, question: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Keep arrays for a question."""
        buffer = io.BytesIO()
        np.savez(buffer, **arrays, digest=np.array(_digest(question, arrays)))  # type: ignore[arg-type]
        place = self._place(question)
        partial = place.with_name(f".{place.stem}.{uuid.uuid4().hex}.partial")
        try:
            with partial.open("wb") as file:
                file.write(buffer.getvalue())
                file.flush()
                os.fsync(file.fileno())
            partial.replace(place)
        finally:
            partial.unlink(missing_ok=True)

    def _place(self, question: Mapping[str, Any]) -> Path:
        return self._folder / f"{hashlib.sha256(_text(question)).hexdigest()[:32]}{_SUFFIX}"


def _text(question: Mapping[str, Any]) -> bytes:
    return json.dumps({"format": _FORMAT, **question}, sort_keys=True).encode()


def _digest(question: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256(_text(question))
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()
