"""Atomic writes: files are complete or absent."""

import multiprocessing
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bayescal._core.files import delete_partials, partial_path, write_atomically


def write(path: Path, text: str) -> None:
    with write_atomically(path) as partial:
        partial.write_text(text)


def write_many(path: Path, letter: str) -> None:
    for _ in range(40):
        write(path, letter * 5000)


def run_threads(path: Path, letters: str) -> None:
    with ThreadPoolExecutor(len(letters)) as pool:
        list(pool.map(lambda letter: write_many(path, letter), letters))


def run_processes(path: Path, letters: str) -> None:
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=write_many, args=(path, letter)) for letter in letters]
    for process in running:
        process.start()
    for process in running:
        process.join()
        assert process.exitcode == 0


@pytest.mark.slow
@pytest.mark.parametrize("run", [run_threads, run_processes])
def test_writers_of_one_path_do_not_meet(tmp_path: Path, run: Callable[[Path, str], None]) -> None:
    path = tmp_path / "file"
    write(path, "d" * 5000)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(run, path, "abc")
        while not writing.done():
            text = path.read_text()
            assert len(text) == 5000 and len(set(text)) == 1
        writing.result()
    assert set(path.read_text()) < set("abc")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_error_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(error), write_atomically(path) as partial:
        partial.write_text("half")
        raise error
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_nothing_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), write_atomically(tmp_path / "file"):
        pass
    assert not list(tmp_path.iterdir())


def test_links_permissions_and_long_names_are_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / ("n" * 255)
    path.write_text("before")
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    write(link, "after")
    assert link.is_symlink() and path.read_text() == "after"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640


def test_names_of_255_bytes_are_written(tmp_path: Path) -> None:
    path = tmp_path / ("文" * 85)
    write(path, "text")
    assert path.read_text() == "text" and len(list(tmp_path.iterdir())) == 1


def test_what_is_no_regular_file_is_refused_and_stays(tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    with pytest.raises(OSError, match="device, pipe or socket"):
        write(pipe, "text")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with pytest.raises(IsADirectoryError, match="give the path of a file"):
        write(folder, "text")
    if os.geteuid() == 0:
        device = tmp_path / "null"
        try:
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            return
        with pytest.raises(OSError, match="device, pipe or socket"):
            write(device, "text")
        assert stat.S_ISCHR(device.stat().st_mode)


def test_loops_of_links_and_absent_folders_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write(tmp_path / "a", "text")
    with pytest.raises(FileNotFoundError, match="create it first"):
        write(tmp_path / "absent" / "file", "text")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_only_what_is_unfinished_of_a_file_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "a[1]"
    kept = [path, tmp_path / ".a[1].partial", partial_path(tmp_path / "a1"), tmp_path / ".a[1].x"]
    for file in (*kept, partial_path(path), partial_path(path)):
        file.write_text("half")
    delete_partials(path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)
