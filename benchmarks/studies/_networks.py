"""Predictions of networks: find and read the files, and choose the calibration rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from benchmarks.studies._binary_tables import split_rows
from benchmarks.studies.data import array_names, choose, digest, find_files, read_arrays

_SUBFOLDER = Path("predictions")
#: Default seed of the split of networks that have only test rows.
SPLIT_SEED = 0
_KINDS: tuple[tuple[str, Literal["probs", "logits"]], ...] = (
    ("logits", "logits"),
    ("probs", "probs"),
)


class Network(NamedTuple):
    """Scores (n, k) and labels (n,) of calibration rows and of test rows.

    ``split`` describes the source of the calibration rows; ``digest`` is a hash of the data.
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
    """Find the files of predictions by name, in ``folder`` or in its subfolder ``predictions``."""
    expected = "predictions of networks, .npz with logits_test or probs_test and y_test"
    paths = find_files(folder, _SUBFOLDER, "*.npz", expected, _is_network)
    by_name = {path.stem: path for path in paths}
    return {name: by_name[name] for name in choose(names, by_name, "network")}


def _is_network(path: Path) -> bool:
    """Check whether a file has predictions.

    An unreadable file counts as one, so that reading it raises an error later.
    """
    names = array_names(path)
    return names is None or (
        "y_test" in names and any(f"{kind}_test" in names for kind, _ in _KINDS)
    )


def read_network(name: str, path: Path, seed: int = SPLIT_SEED) -> Network:
    """Read the predictions of a network.

    If there are no validation rows, a random half of the test rows of each class is used for
    calibration. ``seed`` is the seed of this split.
    """
    arrays = read_arrays(path)
    kind, inputs = next((pair for pair in _KINDS if f"{pair[0]}_test" in arrays), _KINDS[0])
    test_scores, test_y = _part(path, arrays, kind, "test")
    if f"{kind}_val" in arrays:
        scores, y = _part(path, arrays, kind, "val")
        if scores.shape[1] != test_scores.shape[1]:
            raise ValueError(f"{path}: both parts must have equally many classes")
        split = "validation rows"
    else:
        rng = np.random.default_rng(seed)
        test, calibration = split_rows(test_y, np.arange(len(test_y)), 0.5, rng)
        scores, y = test_scores[calibration], test_y[calibration]
        test_scores, test_y = test_scores[test], test_y[test]
        split = f"half of the test rows of each class, seed {seed}"
    array_digest = digest(arrays[key] for key in sorted(arrays))
    return Network(name, inputs, scores, y, test_scores, test_y, split, array_digest)


def _part(
    path: Path, arrays: dict[str, np.ndarray], kind: str, part: str
) -> tuple[np.ndarray, np.ndarray]:
    """Check scores (n, k) and labels (n,), and convert them to float64 and integers."""
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
