"""Predictions of networks: where they lie, what they hold, and which rows calibrate."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from benchmarks.studies._tables import split_rows

_BENEATH = Path("predictions")
#: Of the split of networks that have test rows only.
SPLIT_SEED = 0
_KINDS: tuple[tuple[str, Literal["probs", "logits"]], ...] = (
    ("logits", "logits"),
    ("probs", "probs"),
)


class Network(NamedTuple):
    """Scores (n, k) and labels (n,) to calibrate on, and to test on.

    ``split`` says where the calibration rows are from, ``digest`` tells data from other data.
    """

    name: str
    inputs: Literal["probs", "logits"]
    scores: np.ndarray
    y: np.ndarray
    test_scores: np.ndarray
    test_y: np.ndarray
    split: str
    digest: str


def find_networks(folder: Path, names: Sequence[str] | None) -> dict[str, Path]:
    """Return files of predictions of several classes by name: in ``folder`` or ``predictions``."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    for place in (folder, folder / _BENEATH):
        found = {path.stem: path for path in sorted(place.glob("*.npz")) if _is_network(path)}
        if found:
            break
    else:
        raise ValueError(
            f"{folder} must hold predictions of networks, .npz with logits_test or probs_test and "
            f"y_test; none there nor in {_BENEATH}"
        )
    for name in names or ():
        if name not in found:
            raise ValueError(f"no network named {name!r}; there are {', '.join(found)}")
    return {name: path for name, path in found.items() if not names or name in names}


def array_names(path: Path) -> set[str] | None:
    """Return the names of the arrays of an .npz file, None if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile):
        return None


def _is_network(path: Path) -> bool:
    """Say whether a file is meant; one that cannot be read is, so that this is said."""
    held = array_names(path)
    return held is None or ("y_test" in held and any(f"{kind}_test" in held for kind, _ in _KINDS))


def read_network(name: str, path: Path) -> Network:
    """Read a network; without validation part half of the test rows calibrate, class by class."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot read the file: {error}") from error
    kind, inputs = next((pair for pair in _KINDS if f"{pair[0]}_test" in arrays), _KINDS[0])
    test_scores, test_y = _part(path, arrays, kind, "test")
    digest = hashlib.sha256()
    for key in sorted(arrays):
        digest.update(f"{key}{arrays[key].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[key]).tobytes())
    if f"{kind}_val" in arrays:
        scores, y = _part(path, arrays, kind, "val")
        if scores.shape[1] != test_scores.shape[1]:
            raise ValueError(f"{path}: both parts must have equally many classes")
        split = "validation rows"
    else:
        random = np.random.default_rng(SPLIT_SEED)
        test, own = split_rows(test_y, np.arange(len(test_y)), 0.5, random)
        scores, y = test_scores[own], test_y[own]
        test_scores, test_y = test_scores[test], test_y[test]
        split = f"half of the test rows of each class, seed {SPLIT_SEED}"
    return Network(name, inputs, scores, y, test_scores, test_y, split, digest.hexdigest())


def _part(
    path: Path, arrays: dict[str, np.ndarray], kind: str, part: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (n, k), float64, and labels (n,)."""
    names = f"{kind}_{part}", f"y_{part}"
    if any(name not in arrays for name in names):
        raise ValueError(f"{path}: there must be arrays {names[0]} and {names[1]}")
    scores, y = (arrays[name] for name in names)
    if scores.ndim != 2 or scores.shape[1] < 2 or y.shape != scores.shape[:1] or len(y) < 2:
        raise ValueError(
            f"{path}: {names[0]} must have shape (n, k) and {names[1]} (n,), got {scores.shape} "
            f"and {y.shape}"
        )
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= scores.shape[1]:
        raise ValueError(f"{path}: {names[1]} must hold the codes of {scores.shape[1]} classes")
    if scores.dtype.kind != "f" or not np.isfinite(scores).all():
        raise ValueError(f"{path}: {names[0]} must hold finite numbers")
    return scores.astype(float), y.astype(int)
