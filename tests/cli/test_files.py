"""CSV files in and out."""

import csv
import errno
import gzip
import io
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from bayescal.cli._errors import CommandError
from bayescal.cli.tables import cells as _cells
from bayescal.cli.tables import files as _files


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "in.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.mark.parametrize(
    "content",
    [
        "y,s\n0,1.5\n1,-2e-3\n",
        "y,s\r\n0,1.5\r\n1,-2e-3",
        "\ufeffy,s\n\n0,1.5\n\n1,-2e-3\n\n",
        'y," s "\n"0"," 1.5"\n1,-2e-3\n',
        gzip.compress(b"y,s\n0,1.5\n1,-2e-3\n", mtime=0),
    ],
)
def test_columns_are_read(write: Callable, content: str | bytes) -> None:
    table = _files.read_table(write(content))
    np.testing.assert_array_equal(_cells.numeric_column(table, "s", "--score"), [1.5, -2e-3])
    labels = _cells.label_column(table, "y", "--label")
    np.testing.assert_array_equal(labels, [0, 1])
    assert labels.dtype.kind == "i"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file must not be empty"),
        ("\n\n", "the file must not be empty"),
        ("y,s\n", "the file must have rows below its header"),
        (
            "y,s\n0,1\n1\n",
            "every row must have as many cells as the header, 2, got 1 in row 2 (line 3)",
        ),
        ('y,s\n0,"1\n', "not a CSV file: unexpected end of data"),
        (
            b"\x89PNG\r\n\x1a\n\0\0",
            "not text in UTF-8: byte 1 is no text; pass its encoding with --encoding",
        ),
        (b"y,s\n0,\0\n", "not a CSV file: it holds zero bytes"),
        (gzip.compress(b"y,s\n0,1\n" * 50, mtime=0)[:30], "damaged gzip file"),
        (b"\x1f\x8bxxxxxxxxxxxxxxxxxxxxxxx", "damaged gzip file"),
    ],
)
def test_bad_files_are_errors(write: Callable, content: str | bytes, message: str) -> None:
    path = write(content)
    with pytest.raises(CommandError) as caught:
        _files.read_table(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("z", "no column named 'z' (--score); the columns are 'y', 's', 's', 't'"),
        ("s", "2 columns named 's' (--score); the columns are 'y', 's', 's', 't'"),
        ("y", "column 'y' must hold finite numbers, got 'nan' in row 2 (line 4)"),
        ("t", "column 't' must hold finite numbers, got '' in row 1 (line 3)"),
    ],
)
def test_bad_columns_are_errors(write: Callable, column: str, message: str) -> None:
    table = _files.read_table(write("y,s,s,t\n\n1,2,3,\nnan,1,1,1\n"))
    with pytest.raises(CommandError) as caught:
        _cells.numeric_column(table, column, "--score")
    assert message in str(caught.value)


def test_cells_that_are_no_numbers(write: Callable) -> None:
    for cell in ("abc", "inf", "-Infinity", "1_000", "1,5", "0x10", "--1"):
        table = _files.read_table(write(f'a,s\n0,1\n0,"{cell}"\n'))
        with pytest.raises(CommandError, match=r"got '.*' in row 2 \(line 3\)"):
            _cells.numeric_column(table, "s", "--score")


def test_labels_are_zero_or_one(write: Callable) -> None:
    table = _files.read_table(write("y,s\n0,1\n1.0,1\n2,1\n"))
    message = r"column 'y' must hold labels 0 or 1, got 2 in row 3 \(line 4\)"
    with pytest.raises(CommandError, match=message):
        _cells.label_column(table, "y", "--label")


def test_many_columns_are_not_all_listed(write: Callable) -> None:
    names = ",".join(f"column{i}" for i in range(100))
    table = _files.read_table(write(f"{names}\n{names}\n"))
    with pytest.raises(CommandError, match=r"'column19' and 80 more$"):
        _cells.numeric_column(table, "s", "--score")


def test_missing_file_and_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"none\.csv: no such file"):
        _files.read_table(tmp_path / "none.csv")
    with pytest.raises(CommandError, match="cannot read the file: "):
        _files.read_table(tmp_path)
    with pytest.raises(CommandError, match="must be a file, not a folder or device"):
        _files.check_target(tmp_path)
    with pytest.raises(CommandError, match="does not exist"):
        _files.check_target(tmp_path / "none" / "out.csv")


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="this system has no /dev/null")
def test_devices_are_never_replaced() -> None:
    with pytest.raises(CommandError, match="must be a file, not a folder or device"):
        _files.write_atomically(Path("/dev/null"), lambda stream: stream.write(b"x"))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    st.lists(
        st.lists(
            st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")),
            min_size=2,
            max_size=2,
        ),
        min_size=1,
    )
)
def test_rows_survive(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    folder = tmp_path_factory.mktemp("rows")
    for name in ("out.csv", "out.csv.gz"):
        _files.write_table(folder / name, ["a", "b"], iter(rows))
        table = _files.read_table(folder / name)
        assert table.header == ["a", "b"]
        assert table.rows == rows
        _files.write_table(folder / name, ["a"], iter(row[:1] for row in rows))
        assert _files.read_table(folder / name).rows == [row[:1] for row in rows]


def test_name_decides_on_compression_and_equal_rows_make_equal_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv.gz", tmp_path / "b.csv.gz"
    for path in (first, second):
        _files.write_table(path, ["a"], iter([["1"]]))
    assert first.read_bytes() == second.read_bytes()
    assert gzip.decompress(first.read_bytes()) == b"a\n1\n"


def test_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain", tmp_path / "out.csv"
    plain.touch()
    _files.write_table(path, ["a"], iter([]))
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    _files.write_table(path, ["b"], iter([]))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_link_stays_and_its_target_changes(tmp_path: Path) -> None:
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("old")
    link.symlink_to(target)
    _files.write_table(link, ["a"], iter([]))
    assert link.is_symlink()
    assert target.read_text() == "a\n"


def failing_rows(error: BaseException) -> Iterator[list[str]]:
    for i in range(100_000):
        yield [str(i)]
    raise error


@pytest.mark.parametrize(
    ("name", "error"), [("out.csv", KeyboardInterrupt), ("out.csv.gz", csv.Error)]
)
def test_failure_in_the_middle_leaves_the_old_file(
    tmp_path: Path, name: str, error: type[BaseException]
) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")
    with pytest.raises(error):
        _files.write_table(path, ["a"], failing_rows(error()))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [name]
    path.unlink()
    with pytest.raises(error):
        _files.write_table(path, ["a"], failing_rows(error()))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_failing_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "out.csv"
    path.write_text("old")
    monkeypatch.setattr(os, function, fail)
    message = f"cannot write the file: {os.strerror(errno.ENOSPC)}"
    with pytest.raises(CommandError, match=message):
        _files.write_table(path, ["a"], iter([["1"]]))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_old_file_is_there_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")

    def watch(stream: io.BufferedIOBase) -> None:
        stream.write(b"new")
        stream.flush()
        assert path.read_text() == "old"

    _files.write_atomically(path, watch)
    assert path.read_text() == "new"


def test_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    _files.check_target(Path("-"))
    _files.write_table(Path("-"), ["a", "b"], iter([["1", "x,y"]]))
    assert capsys.readouterr().out == 'a,b\n1,"x,y"\n'
