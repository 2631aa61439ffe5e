"""Types for users: ``py.typed`` exists, and a type checker knows what the library returns."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import bayescal

ROOT = Path(__file__).resolve().parents[1]


def check(path: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--warnings", path]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_package_says_that_it_is_typed() -> None:
    assert (Path(bayescal.__file__).parent / "py.typed").exists()


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("pyright"), reason="pyright is not installed")
def test_types_are_known_to_users(tmp_path: Path) -> None:
    user = ROOT / "tests" / "typed_user.py"
    done = check(user)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.py"
    wrong.write_text(user.read_text("utf-8") + "\nbc.Beta(parameters=7)\n", "utf-8")
    done = check(wrong)
    assert done.returncode == 1, done.stdout
    assert "parameters" in done.stdout
