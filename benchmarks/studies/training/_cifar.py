"""CIFAR-10 and CIFAR-100 in the formats in which they are published."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.training._pickles import PickledArray, read_pickle

_SIDE, _CHANNELS = 32, 3
_PIXELS = _SIDE * _SIDE * _CHANNELS
_PAGE = "The CIFAR-10 dataset and the CIFAR-100 dataset (A. Krizhevsky, University of Toronto)"

Part = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Version:
    """A published version: its folder, archive and files, and what the files hold.

    ``label_key`` is that of pickles; ``label_bytes`` is how many bytes of label begin a binary
    image, of which the last counts.
    """

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    names: str
    classes: int
    label_key: bytes = b""
    names_key: bytes = b""
    label_bytes: int = 0

    @property
    def files(self) -> tuple[str, ...]:
        """All files that are read."""
        return (*self.train, self.test, self.names)


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
VERSIONS: Mapping[str, tuple[Version, Version]] = {
    "cifar10": (
        Version(
            "cifar-10-batches-py",
            "cifar-10-python.tar.gz",
            _BATCHES,
            "test_batch",
            "batches.meta",
            10,
            label_key=b"labels",
            names_key=b"label_names",
        ),
        Version(
            "cifar-10-batches-bin",
            "cifar-10-binary.tar.gz",
            tuple(f"{name}.bin" for name in _BATCHES),
            "test_batch.bin",
            "batches.meta.txt",
            10,
            label_bytes=1,
        ),
    ),
    "cifar100": (
        Version(
            "cifar-100-python",
            "cifar-100-python.tar.gz",
            ("train",),
            "test",
            "meta",
            100,
            label_key=b"fine_labels",
            names_key=b"fine_label_names",
        ),
        Version(
            "cifar-100-binary",
            "cifar-100-binary.tar.gz",
            ("train.bin",),
            "test.bin",
            "fine_label_names.txt",
            100,
            label_bytes=2,
        ),
    ),
}


def read_cifar(
    name: str, folder: Path, counts: tuple[int, int]
) -> tuple[Part, Part, tuple[str, ...]]:
    """Read the training part, test part and class names of the first version that exists.

    ``counts`` are the numbers of images in each training file and in the test file.
    """
    for version in VERSIONS[name]:
        if (folder / version.folder).is_dir():
            contents = _from_folder(folder / version.folder, version)
            break
    else:
        for version in VERSIONS[name]:
            if (folder / version.archive).is_file():
                contents = _from_archive(folder / version.archive, version)
                break
        else:
            raise FileNotFoundError(_absent(name, folder))
    train = [_read_batch(*contents[file], version, counts[0]) for file in version.train]
    test = _read_batch(*contents[version.test], version, counts[1])
    images, labels = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    return (images, labels), test, _read_names(*contents[version.names], version)


def _absent(name: str, folder: Path) -> str:
    python, binary = VERSIONS[name]
    return (
        f"{folder} must hold {name}: one of the folders {python.folder} (with "
        f"{', '.join(python.files)}) and {binary.folder} (with {', '.join(binary.files)}), or of "
        f"the archives {python.archive} and {binary.archive}, as they come from the page "
        f"'{_PAGE}'; none of these is there"
    )


def _from_folder(folder: Path, version: Version) -> dict[str, tuple[bytes, str]]:
    """Read the contents of the files, and their names for error messages."""
    for name in version.files:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} must hold {', '.join(version.files)}; no {name}")
    return {name: ((folder / name).read_bytes(), str(folder / name)) for name in version.files}


def _from_archive(path: Path, version: Version) -> dict[str, tuple[bytes, str]]:
    wanted = {f"{version.folder}/{name}": name for name in version.files}
    contents = {}
    try:
        # One pass: to go back in a compressed archive is to begin anew.
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                if file is not None and member.name in wanted:
                    contents[wanted[member.name]] = file.read(), f"{path}: {member.name}"
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    for place, name in wanted.items():
        if name not in contents:
            raise ValueError(f"{path} is damaged: it has no file {place}")
    return contents


def _read_batch(content: bytes, place: str, version: Version, count: int) -> Part:
    """Read images (count, 32, 32, 3), uint8, and labels (count,), int32."""
    read = _read_binary if version.label_bytes else _read_pickled
    pixels, labels = _explain(read, place, content, version)
    if len(pixels) != count:
        raise ValueError(f"{place} is damaged: it has {len(pixels)} images, not {count}")
    images = pixels.reshape(-1, _CHANNELS, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels


def _read_binary(content: bytes, version: Version) -> Part:
    size = _PIXELS + version.label_bytes
    if not content or len(content) % size:
        raise ValueError(f"its size, {len(content)} bytes, is no multiple of {size}")
    rows = np.frombuffer(content, np.uint8).reshape(-1, size)
    labels = rows[:, version.label_bytes - 1].tolist()
    return rows[:, version.label_bytes :], _check_labels(labels, version)


def _read_pickled(content: bytes, version: Version) -> Part:
    held = _held(read_pickle(content), (b"data", version.label_key))
    if not isinstance(held[0], PickledArray):
        raise ValueError("its data are no array")
    pixels, labels = held[0].values(), held[1]
    if pixels.ndim != 2 or pixels.shape[1] != _PIXELS or len(pixels) == 0:
        raise ValueError(f"its data must have shape (n, {_PIXELS}), got {pixels.shape}")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise ValueError("its labels must be a list of integers")
    if len(labels) != len(pixels):
        raise ValueError(f"it has {len(pixels)} images and {len(labels)} labels")
    return pixels, _check_labels(labels, version)


def _check_labels(labels: list[int], version: Version) -> np.ndarray:
    for label in labels:
        if not 0 <= label < version.classes:
            raise ValueError(f"labels must lie in 0 to {version.classes - 1}, got {label}")
    return np.array(labels, np.int32)


def _read_names(content: bytes, place: str, version: Version) -> tuple[str, ...]:
    read = _split_names if version.label_bytes else _pickled_names
    names = _explain(read, place, content, version)
    if len(names) != version.classes or len(set(names)) != version.classes:
        raise ValueError(
            f"{place} is damaged: it must name {version.classes} classes, and names "
            f"{len(set(names))}"
        )
    return names


def _split_names(content: bytes, version: Version) -> tuple[str, ...]:
    return tuple(content.decode("ascii").split())


def _pickled_names(content: bytes, version: Version) -> tuple[str, ...]:
    names = _held(read_pickle(content), (version.names_key,))[0]
    if not isinstance(names, list) or not all(isinstance(name, bytes) for name in names):
        raise ValueError("its names must be a list of text")
    return tuple(name.decode("ascii") for name in names)


def _held(value: Any, keys: tuple[bytes, ...]) -> list[Any]:
    if not isinstance(value, dict) or any(key not in value for key in keys):
        wanted = " and ".join(repr(key.decode()) for key in keys)
        raise ValueError(f"it must be a dictionary with {wanted}")
    return [value[key] for key in keys]


def _explain(
    read: Callable[[bytes, Version], Any], place: str, content: bytes, version: Version
) -> Any:
    """Call a reader, and name the file in its error."""
    try:
        return read(content, version)
    except ValueError as error:
        raise ValueError(f"{place} is damaged: {error}") from error
