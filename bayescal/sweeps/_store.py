"""A folder of finished blocks, in files that are either complete or computed again."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from bayescal._core.files import DAMAGED, partial_path, read_arrays, write_atomically

_FORMAT = 1
_SUFFIX = ".npz"
_DIGEST = hashlib.sha256().digest_size
_PARTIAL = re.compile(r"\.([0-9a-f]{32}\.npz|probe)\.[0-9a-f]{32}\.partial")
#: Seconds after which a partial file belongs to no running process; writing takes milliseconds.
_ABANDONED = 24 * 3600


class Store:
    """Blocks by the question that they answer, in files of arrays.

    The name of a file is a digest of its question. Its content is an archive that ``numpy.load``
    reads, followed by a digest of the question and of the archive, which is checked before anything
    else is read. Files are written under another name and renamed in one step, so that readers see
    all of a file or nothing. If two writers write one block, the later file replaces the other.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        with self._explained():
            if self.folder.exists() and not self.folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "it is a file")
            self.folder.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> None:
        """Check that files can be written, and remove the partial files of killed processes.

        Thus errors are raised at once, not after the first hour.
        """
        probe = partial_path(self.folder / "probe")
        with self._explained():
            try:
                probe.write_bytes(b"probe")
                # Use the clock of the folder's machine, which may be another one.
                now = probe.stat().st_mtime
            finally:
                _remove(probe)
            for left in self.folder.glob(".*.partial"):
                # Another run may remove it at the same time.
                with contextlib.suppress(FileNotFoundError):
                    if _PARTIAL.fullmatch(left.name) and now - left.stat().st_mtime > _ABANDONED:
                        _remove(left)

    def get(self, question: Mapping[str, object]) -> dict[str, np.ndarray] | None:
        """Return the arrays stored for a question, or None if they are missing or damaged."""
        try:
            content = self._path(question).read_bytes()
        except OSError:
            return None
        archive, digest = content[:-_DIGEST], content[-_DIGEST:]
        if digest != _digest(question, archive):
            return None
        try:
            return read_arrays(io.BytesIO(archive))
        except DAMAGED:
            return None

    def put(self, question: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> None:
        """Store arrays for a question; if this fails, the previous file remains."""
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        archive = buffer.getvalue()
        path = self._path(question)
        written = False
        with self._explained():
            try:
                if path.is_dir():
                    # The folder is not ours, and may be valuable to someone.
                    path.rename(path.with_name(f"{path.stem}.{uuid.uuid4().hex}.aside"))
                with write_atomically(path) as partial:
                    partial.write_bytes(archive + _digest(question, archive))
                    written = True
            except OSError:
                # If an open file cannot be replaced, another run may have stored the same arrays.
                if not written or self.get(question) is None:
                    raise

    def _path(self, question: Mapping[str, object]) -> Path:
        return self.folder / f"{hashlib.sha256(_text(question)).hexdigest()[:32]}{_SUFFIX}"

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Add the folder to the message of an error."""
        try:
            yield
        except OSError as error:
            message = f"store must be a folder in which files can be written: {error.strerror}"
            raise OSError(error.errno, message, str(self.folder)) from error


def _remove(path: Path) -> None:
    # A file that cannot be removed does no harm, because it is never read.
    with contextlib.suppress(OSError):
        path.unlink()


def _text(question: Mapping[str, object]) -> bytes:
    return json.dumps({"format": _FORMAT, **question}, sort_keys=True).encode()


def _digest(question: Mapping[str, object], archive: bytes) -> bytes:
    # The question is hashed separately, so that its end is unambiguous.
    return hashlib.sha256(hashlib.sha256(_text(question)).digest() + archive).digest()
