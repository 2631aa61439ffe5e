"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

#: What names of unfinished files end in; they begin with a dot.
SUFFIX = ".partial"
#: File systems allow 255 bytes for a name.
_STEM = 100


def partial_path(path: Path) -> Path:
    """Return a name for an unfinished ``path``, in its folder, that nobody else uses."""
    return path.with_name(f".{path.name[:_STEM]}.{uuid.uuid4().hex}{SUFFIX}")


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, which takes its place when the block ends.

    Whatever happens before that, an interrupt too, leaves ``path`` as it was and no other file.
    Any number of threads and processes may write one path: each has its own temporary file, readers
    meet one of the finished ones, and the last that ends stays. A symbolic link is followed, and
    the permissions of a file that is replaced are kept. The folder must exist.

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
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
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
