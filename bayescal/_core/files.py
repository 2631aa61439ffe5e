"""Files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
import stat
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

#: Suffix of names of unfinished files; they begin with a dot.
SUFFIX = ".partial"
#: Errors of :func:`read_arrays` for files that are damaged or have another format.
DAMAGED = (ValueError, LookupError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)
#: Bytes of a name that the name of its unfinished file keeps: file systems allow 255 in all.
_STEM_BYTES = 100


def partial_path(path: Path) -> Path:
    """Return a unique name for an unfinished ``path``, in its folder."""
    return path.with_name(f".{_stem(path)}.{uuid.uuid4().hex}{SUFFIX}")


def delete_partials(path: Path) -> None:
    """Delete unfinished files of ``path`` from killed processes; no process may be writing it."""
    pattern = glob.escape(f".{_stem(path)}.") + 32 * "[0-9a-f]" + SUFFIX
    for left in path.parent.glob(pattern):
        with contextlib.suppress(OSError):
            left.unlink()


def _stem(path: Path) -> str:
    return os.fsencode(path.name)[:_STEM_BYTES].decode(errors="ignore")


def target_of(path: str | os.PathLike[str]) -> Path:
    """Return the file that is written for ``path``, following symbolic links.

    Raises OSError unless there is a regular file, or a folder in which it can be created.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        if target.parent.is_dir():
            return target
        raise FileNotFoundError(
            errno.ENOENT, "the folder does not exist; create it first", str(target.parent)
        ) from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the path of a file", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(
            errno.EINVAL, "is a device, pipe or socket; give the path of a regular file", str(path)
        )
    return target


def read_arrays(file: BinaryIO) -> dict[str, np.ndarray]:
    """Read the arrays that ``numpy.savez`` wrote, without pickles, in no more memory than the file.

    Arrays that are compressed or claim to be larger than the file are errors, among ``DAMAGED``.
    """
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        if not stored or sum(member.file_size for member in members) > size:
            raise ValueError("arrays must not be compressed")
    file.seek(0)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except MemoryError:
        raise ValueError("an array must not be larger than the file") from None


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, which replaces ``path`` when the block ends.

    If anything fails before that, even by an interrupt, ``path`` is unchanged and no other file
    remains. Any number of threads and processes may write one path: they have separate temporary
    files, readers see one of the finished files, and the last to finish stays. A symbolic link is
    followed, and the permissions of a replaced file are kept. The folder must exist, and devices,
    pipes and sockets are rejected.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "answer.txt"
    ...     with write_atomically(path) as partial:
    ...         _ = partial.write_text("42")
    ...     path.read_text(), len(list(path.parent.iterdir()))
    ('42', 1)
    """
    target = target_of(path)
    partial = partial_path(target)
    try:
        yield partial
        # Flush it to disk before it gets the name, so that a crash leaves no empty file.
        with partial.open("r+b") as file:
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, partial)
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    # Make the new name durable if the system can open a folder.
    with contextlib.suppress(OSError):
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
