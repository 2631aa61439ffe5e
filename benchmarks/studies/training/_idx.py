"""Read Fashion-MNIST in its published format, idx."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

_SIDE, _CLASSES = 28, 10
_PAGE = "Fashion-MNIST (Zalando Research)"
_FOLDER = "fashion-mnist"
_FILES = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def read_fashion_mnist(
    folder: Path, counts: tuple[int, int]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Read images (n, 28, 28, 1) and labels (n,) of both parts; ``counts`` are their sizes."""
    place = folder / _FOLDER if (folder / _FOLDER).is_dir() else folder
    parts = []
    for files, count in zip(_FILES, counts, strict=True):
        images = _read(place, files[0], (count, _SIDE, _SIDE))
        labels = _read(place, files[1], (count,))
        if labels.max() >= _CLASSES:
            raise ValueError(
                f"{place / files[1]} is damaged: labels must lie in 0 to {_CLASSES - 1}, "
                f"got {labels.max()}"
            )
        parts.append((images[..., None], labels.astype(np.int32)))
    return parts


def _read(folder: Path, name: str, shape: tuple[int, ...]) -> np.ndarray:
    path = next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
    if path is None:
        wanted = ", ".join(file for pair in _FILES for file in pair)
        raise FileNotFoundError(
            f"{folder} must hold fashion_mnist: {wanted}, each with or without .gz, in the folder "
            f"itself or in {_FOLDER} beneath it, as they come from the page '{_PAGE}'; no {name}"
        )
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is damaged: {error}") from error
    # Two zero bytes, 8 for unsigned bytes, the number of dimensions; then big-endian sizes.
    magic, start = bytes((0, 0, 8, len(shape))), 4 + 4 * len(shape)
    if content[:4] != magic:
        raise ValueError(
            f"{path} is damaged: it must begin with {magic.hex()}, and begins with "
            f"{content[:4].hex() or 'nothing'}"
        )
    if len(content) < start:
        raise ValueError(f"{path} is damaged: it ends within its header")
    actual = struct.unpack(f">{len(shape)}I", content[4:start])
    if actual != shape:
        raise ValueError(f"{path} is damaged: it must have shape {shape}, and has {actual}")
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"{path} is damaged: {math.prod(shape)} values must follow its header, and "
            f"{len(content) - start} do"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()
