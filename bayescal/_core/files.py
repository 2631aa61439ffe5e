"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

#: What names of unfinished files end in; they begin with a dot.
SUFFIX = ".partial"
#: Bytes of a name that the name of its unfinished file keeps: file systems allow 255 in all.
_STEM_BYTES = 100


def partial_path(path: Path) -> Path:
    """Return a name for an unfinished ``path``, in its folder, that nobody else uses."""
    return path.with_name(f".{_stem(path)}.{uuid.uuid4().hex}{SUFFIX}")


def delete_partials(path: Path) -> None:
    """Delete what killed processes left unfinished of ``path``, which no other process may write.

    Raises nothing where a file cannot be deleted.
    """
    pattern = glob.escape(f".{_stem(path)}.") + 32 * "[0-9a-f]" + SUFFIX
    for left in path.parent.glob(pattern):
        with contextlib.suppress(OSError):
            left.unlink()


def _stem(path: Path) -> str:
    return os.fsencode(path.name)[:_STEM_BYTES].decode(errors="ignore")


def target_of(path: str | os.PathLike[str]) -> Path:
    """Return the file that is written for ``path``, whose symbolic links are followed.

    Raises OSError unless there is a regular file, or a folder in which there may be one.
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


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, which takes its place when the block ends.

    Whatever happens before that, an interrupt too, leaves ``path`` as it was and no other file.
    Any number of threads and processes may write one path: each has its own temporary file, readers
    meet one of the finished ones, and the last that ends stays. A symbolic link is followed, and
    the permissions of a file that is replaced are kept. The folder must exist, and devices, pipes
    and sockets are refused.

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
        # On disk before it has the name: a crash must not leave an empty file there.
        with partial.open("r+b") as file:
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, partial)
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    # The new name is made durable, where the system lets a folder be opened.
    with contextlib.suppress(OSError):
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
