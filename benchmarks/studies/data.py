"""Find and read the data of studies: names, files in folders, arrays, and hashes of data."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np


def choose(names: Sequence[str] | None, known: Iterable[str], what: str) -> list[str]:
    """Select the requested names, by default all, in the order of the known names."""
    known_names = list(known)
    for name in names or ():
        if name not in known_names:
            raise ValueError(f"no {what} named {name!r}; there are {', '.join(known_names)}")
    return [name for name in known_names if not names or name in names]


def find_files(
    folder: str | Path,
    beneath: Path,
    pattern: str,
    expected: str,
    wanted: Callable[[Path], bool] = lambda path: True,
) -> list[Path]:
    """Find files in ``folder``, or if there are none, in its subfolder ``beneath``."""
    folder = check_folder(folder)
    for directory in (folder, folder / beneath):
        paths = [path for path in sorted(directory.glob(pattern)) if wanted(path)]
        if paths:
            return paths
    raise ValueError(f"{folder} must hold {expected}; none there nor in {beneath}")


def check_folder(folder: str | Path) -> Path:
    """Check that a folder exists, and return its path."""
    if not Path(folder).is_dir():
        raise ValueError(f"{folder} is not a folder")
    return Path(folder)


def array_names(path: Path) -> set[str] | None:
    """Read the names of the arrays of an .npz file; None if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile):
        return None


def read_arrays(path: Path, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz file, by default all."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names or file.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot read the file: {error}") from error


def digest(values: Iterable[np.ndarray]) -> str:
    """Compute a hash of arrays from their dtypes, shapes and values."""
    sha = hashlib.sha256()
    for value in values:
        sha.update(f"{value.dtype} {value.shape} ".encode())
        sha.update(np.ascontiguousarray(value).tobytes())
    return sha.hexdigest()
