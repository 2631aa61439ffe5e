"""What README.md, CONTRIBUTING.md and the page on methods show is so: examples, figures, layers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayescal import calibrators
from benchmarks import update_readme
from tests.test_architecture import LAYERS
from tests.test_docs import run_python

ROOT = Path(__file__).resolve().parents[1]


README = (ROOT / "README.md").read_text("utf-8")
TABLES = (ROOT / "docs" / "which-method.md").read_text("utf-8")


@pytest.mark.slow
def test_examples_run_as_they_stand(tmp_path: Path) -> None:
    """Each in a process of its own, without warnings; what is said to be printed is printed."""
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", README, re.DOTALL)
    assert len(blocks) == 2
    assert any(shown for _, shown in blocks)
    printed = [run_python(block, tmp_path) for block, _ in blocks]
    assert all(shown in text for (_, shown), text in zip(blocks, printed, strict=True))
    before, after = re.findall(r"log loss +\S (\S+) \[\S+ \S+ \S +(\S+) \[", printed[0])[0]
    assert f"falls from {float(before):.2f} to {float(after):.2f}" in README


def test_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) <= 130
    targets = re.findall(r"\]\(([^)#:]+)\)|s(?:rc|rcset)=\"([^\"]+)\"", README)
    links = {link or picture for link, picture in targets}
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_figures_are_those_of_the_results() -> None:
    assert update_readme.main(["--check"]) == 0


def test_another_figure_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(update_readme, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text(README.replace("million rows in", "million rows in only"))
    assert update_readme.main(["--check"]) == 1
    assert update_readme.main([]) == 0
    assert (tmp_path / "README.md").read_text("utf-8") == README


def test_another_figure_in_a_sentence_is_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(update_readme, "ROOT", tmp_path)
    page = tmp_path / "docs" / "scale.md"
    page.parent.mkdir()
    text = (ROOT / "docs" / "scale.md").read_text("utf-8")
    page.write_text(text.replace("-->9.4<!-- end -->", "-->9.5<!-- end -->"))
    assert page.read_text("utf-8") != text
    assert update_readme.main(["--check"]) == 1
    assert update_readme.main([]) == 0
    assert page.read_text("utf-8") == text


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
    rows = re.findall(r"^\| (`[A-Z]\w+\(.*?`) \|", TABLES, re.MULTILINE)
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
