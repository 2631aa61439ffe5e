"""Failed writes: the old file stays complete, whichever step fails."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import bayescal as bc
from bayescal._core.files import delete_partials, write_atomically

resource = pytest.importorskip("resource", reason="systems without limits of file sizes")

P, Y = np.array([0.1, 0.4, 0.35, 0.8, 0.6, 0.3]), np.array([0, 0, 1, 1, 1, 0])


def save(path: Path) -> None:
    bc.save(bc.Isotonic().fit(P, Y), path)


def save_monitor(path: Path) -> None:
    monitor = bc.Monitor()
    monitor.update(P, Y)
    monitor.save(path)


def save_page(path: Path) -> None:
    bc.evaluate(P, Y, replicates=20).save_html(path)


def save_plain(path: Path) -> None:
    with write_atomically(path) as partial:
        partial.write_bytes(bytes(1000))


WRITERS = [save, save_monitor, save_page, save_plain]


@contextmanager
def full_disk() -> Iterator[None]:
    """Limit the size of files, so that writing stops in the middle."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def failing(owner: object, name: str, number: int) -> Iterator[None]:
    """Make a function of the operating system fail."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fail)
        yield


FAULTS: dict[str, Callable[[], object]] = {
    "write": full_disk,
    "flush": lambda: failing(os, "fsync", errno.EIO),
    "mode": lambda: failing(shutil, "copymode", errno.EPERM),
    "rename": lambda: failing(os, "replace", errno.ENOSPC),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_the_old_file_stays(write: Callable[[Path], None], fault: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path)
    old = path.read_bytes()
    with pytest.raises(OSError), FAULTS[fault]():
        write(path)
    assert path.read_bytes() == old
    assert [*tmp_path.iterdir()] == [path]
    write(path)
    assert len(path.read_bytes()) == len(old)


KILLED = """
import os, shutil, signal, sys
from bayescal._core.files import write_atomically

module, name = sys.argv[2].split(".")
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
setattr(sys.modules[module], name, die)
with write_atomically(sys.argv[1]) as partial:
    partial.write_bytes(b"new")
    if name == "abort":
        die()
"""


@pytest.mark.parametrize("step", ["os.abort", "os.fsync", "shutil.copymode", "os.replace"])
def test_a_killed_process_leaves_the_old_file(step: str, tmp_path: Path) -> None:
    """Check a kill at each step; the next fit deletes the partial file by its name."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), step], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert len([*tmp_path.iterdir()]) == 2
    delete_partials(path)
    assert [*tmp_path.iterdir()] == [path]
