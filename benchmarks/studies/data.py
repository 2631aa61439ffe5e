"""Where studies find their data: names, files in folders, arrays, and what tells data apart."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np


def choose(names: Sequence[str] | None, known: Iterable[str], what: str) -> list[str]:
    """Return the names that are asked for, all if none are, in the order of the known ones."""
    every = list(known)
    for name in names or ():
        if name not in every:
            raise ValueError(f"no {what} named {name!r}; there are {', '.join(every)}")
    return [name for name in every if not names or name in names]


def find_files(
    folder: str | Path,
    beneath: Path,
    pattern: str,
    expected: str,
    wanted: Callable[[Path], bool] = lambda path: True,
) -> list[Path]:
    """Return the files in ``folder``, or else in the folder ``beneath`` it."""
    folder = check_folder(folder)
    for place in (folder, folder / beneath):
        found = [path for path in sorted(place.glob(pattern)) if wanted(path)]
        if found:
            return found
    raise ValueError(f"{folder} must hold {expected}; none there nor in {beneath}")


def check_folder(folder: str | Path) -> Path:
    """Return a folder that is there."""
    if not Path(folder).is_dir():
        raise ValueError(f"{folder} is not a folder")
    return Path(folder)


def array_names(path: Path) -> set[str] | None:
    """Return the names of the arrays of an .npz file, None if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile):
        return None


def read_arrays(path: Path, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file, by default all."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names or file.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot read the file: {error}") from error


def digest(values: Iterable[np.ndarray]) -> str:
    """Tell arrays from others: a hash of their dtypes, shapes and values."""
    found = hashlib.sha256()
    for value in values:
        found.update(f"{value.dtype} {value.shape} ".encode())
        found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()
