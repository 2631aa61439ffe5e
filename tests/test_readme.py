"""What README.md and CONTRIBUTING.md show is so: examples run, the layers are those of the tree."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayescal import calibrators
from tests.test_architecture import LAYERS

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, without warnings."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 4
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)


def parts_of(picture: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each entry at the margin of a drawn tree, and what is said of it."""
    found = re.split(r"^    (?=\S)", picture, flags=re.MULTILINE)[1:]
    for entry in found:
        name, text = entry.split(maxsplit=1)
        yield name.strip("/").removesuffix(".py"), text


def layers_shown() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text[text.index("\n## Layers\n") : text.index("\nBeside the package")]


def picture_faults(picture: str, package: Path) -> list[str]:
    """Modules that are not named, and private ones that are named but do not exist."""
    faults = []
    for name, text in parts_of(picture):
        words = set(re.findall(r"\w+", text))
        modules = {path.stem for path in (package / name).glob("*.py")} - {"__init__"}
        private = {module for module in modules if module[0] == "_"}
        # A calibrator is named by its class.
        wanted = private if name == "calibrators" else modules
        faults += [f"{name}/{module} is not named" for module in sorted(wanted - words)]
        named = {word for word in words if re.fullmatch(r"_[a-z]\w*", word)}
        faults += [f"{name}/{module} does not exist" for module in sorted(named - private)]
    return faults


def test_layers_are_those_of_the_tree() -> None:
    assert tuple(name for name, _ in parts_of(layers_shown())) == LAYERS
    assert picture_faults(layers_shown(), ROOT / "bayescal") == []


def test_a_wrong_picture_is_seen(tmp_path: Path) -> None:
    for module in ("__init__", "_kept", "_new", "shown"):
        (tmp_path / "_core").mkdir(exist_ok=True)
        (tmp_path / "_core" / f"{module}.py").touch()
    picture = (
        "\n    _core/        shown, _kept\n                  _gone\n    one.py        a file\n"
    )
    assert picture_faults(picture, tmp_path) == [
        "_core/_new is not named",
        "_core/_gone does not exist",
    ]


def test_tables_show_every_calibrator_with_its_own_defaults() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    start = text.index("\n## Calibrate a classifier\n")
    part = text[start : text.index("\n## ", start + 1)]
    rows = re.findall(r"^\| (`[A-Z]\w+\(.*?`) \|", part, re.MULTILINE)
    codes = [code for row in rows for code in re.findall(r"`(.+?)`", row)]
    shown = {code: eval(code, vars(calibrators).copy()) for code in codes}
    for code, calibrator in shown.items():
        if not isinstance(calibrator, calibrators.OneVsRest):
            assert calibrator.get_params() == type(calibrator)().get_params(), code
    exported = {
        value
        for value in vars(calibrators).values()
        if isinstance(value, type) and issubclass(value, calibrators.Calibrator)
    }
    assert {type(c) for c in shown.values()} == exported - {calibrators.Calibrator}
