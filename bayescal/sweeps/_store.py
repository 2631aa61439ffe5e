"""A folder of finished blocks: each a file that is whole, or is done again."""

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

from bayescal._core.files import partial_path, write_atomically

_FORMAT = 1
_SUFFIX = ".npz"
_DIGEST = hashlib.sha256().digest_size
_PARTIAL = re.compile(r"\.([0-9a-f]{32}\.npz|probe)\.[0-9a-f]{32}\.partial")
#: Seconds after which a partial file is no running process's: writing one takes milliseconds.
_ABANDONED = 24 * 3600


class Store:
    """Blocks by what they answer, in files of arrays.

    A file's name is a digest of its question. Its content is an archive that ``numpy.load`` reads,
    followed by a digest of the question and of the archive, which is checked before anything is
    read. It is written beside its place and moved there in one step: whoever reads sees all of it
    or nothing. Two writers of one block write the same; the last to come replaces the other's.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        with self._explained():
            if self.folder.exists() and not self.folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "it is a file")
            self.folder.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> None:
        """See that files can be written, and remove what killed processes left half-written.

        An error comes at once, not after the first hour.
        """
        probe = partial_path(self.folder / "probe")
        with self._explained():
            try:
                probe.write_bytes(b"probe")
                # By the clock of the folder's machine, which need not be this one.
                now = probe.stat().st_mtime
            finally:
                _remove(probe)
            for left in self.folder.glob(".*.partial"):
                # Another run may remove it at the same time.
                with contextlib.suppress(FileNotFoundError):
                    if _PARTIAL.fullmatch(left.name) and now - left.stat().st_mtime > _ABANDONED:
                        _remove(left)

    def get(self, question: Mapping[str, object]) -> dict[str, np.ndarray] | None:
        """Return the arrays kept for a question, or None if there are none, or they are broken."""
        try:
            content = self._place(question).read_bytes()
        except OSError:
            return None
        archive, digest = content[:-_DIGEST], content[-_DIGEST:]
        if digest != _digest(question, archive):
            return None
        with np.load(io.BytesIO(archive), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}

    def put(self, question: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> None:
        """Keep arrays for a question; where this fails, what was kept before stays."""
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        archive = buffer.getvalue()
        place = self._place(question)
        written = False
        with self._explained():
            try:
                if place.is_dir():
                    # Not ours, and perhaps of value to someone.
                    place.rename(place.with_name(f"{place.stem}.{uuid.uuid4().hex}.aside"))
                with write_atomically(place) as partial:
                    partial.write_bytes(archive + _digest(question, archive))
                    written = True
            except OSError:
                # Where an open file cannot be replaced, another run may have kept the same.
                if not written or self.get(question) is None:
                    raise

    def _place(self, question: Mapping[str, object]) -> Path:
        return self.folder / f"{hashlib.sha256(_text(question)).hexdigest()[:32]}{_SUFFIX}"

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say of an error which folder it is about."""
        try:
            yield
        except OSError as error:
            said = f"store must be a folder in which files can be written: {error.strerror}"
            raise OSError(error.errno, said, str(self.folder)) from error


def _remove(path: Path) -> None:
    # What cannot be removed does no harm: it is never read.
    with contextlib.suppress(OSError):
        path.unlink()


def _text(question: Mapping[str, object]) -> bytes:
    return json.dumps({"format": _FORMAT, **question}, sort_keys=True).encode()


def _digest(question: Mapping[str, object], archive: bytes) -> bytes:
    # The question has a digest of its own, so that no bytes can belong to either.
    return hashlib.sha256(hashlib.sha256(_text(question)).digest() + archive).digest()
