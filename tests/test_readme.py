"""README.md, CONTRIBUTING.md and the methods page are accurate: examples, figures, layers."""

import re
import shutil
from pathlib import Path

import pytest

from bayescal import calibrators
from benchmarks import update_readme
from tests.test_docs import run_python

ROOT = Path(__file__).resolve().parents[1]


README = (ROOT / "README.md").read_text("utf-8")
AGENTS = (ROOT / "AGENTS.md").read_text("utf-8")
TABLES = (ROOT / "docs" / "which-method.md").read_text("utf-8")


@pytest.mark.slow
def test_examples_run_as_they_stand(tmp_path: Path) -> None:
    """Run each example in a separate process without warnings, and compare the shown output."""
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", README, re.DOTALL)
    assert len(blocks) == 2
    assert any(shown for _, shown in blocks)
    printed = [run_python(block, tmp_path) for block, _ in blocks]
    assert all(shown in text for (_, shown), text in zip(blocks, printed, strict=True))
    before, after = re.findall(r"log loss +\S (\S+) \[\S+ \S+ \S +(\S+) \[", printed[0])[0]
    assert f"falls from {float(before):.2f} to {float(after):.2f}" in README


@pytest.mark.slow
def test_examples_for_assistants_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", AGENTS, re.DOTALL)
    assert blocks
    assert "expected log loss" in run_python("\n".join(blocks), tmp_path)


def test_links_for_assistants_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", AGENTS)
    assert links and [link for link in links if not (ROOT / link).exists()] == []
    pages = re.findall(r"\]\(([^)#:]+)\.html\)", (ROOT / "docs" / "llms.txt").read_text("utf-8"))
    written = {"reference/index"}
    assert len(pages) > 10
    assert [p for p in pages if p not in written and not (ROOT / "docs" / f"{p}.md").exists()] == []


def test_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) <= 110
    targets = re.findall(r"\]\(([^)#:]+)\)|s(?:rc|rcset)=\"([^\"]+)\"", README)
    links = {link or picture for link, picture in targets}
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_figures_are_those_of_the_results() -> None:
    assert update_readme.main(["--check"]) == 0


def test_another_figure_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(update_readme, "ROOT", tmp_path)
    other = README.replace("to a million rows;", "to a few million rows;")
    (tmp_path / "README.md").write_text(other)
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


def test_another_tree_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "bayescal", tmp_path / "bayescal")
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "test_architecture.py", tmp_path / "tests")
    shutil.copy(ROOT / "CONTRIBUTING.md", tmp_path)
    monkeypatch.setattr(update_readme, "ROOT", tmp_path)
    assert update_readme.main(["--check"]) == 0
    module = tmp_path / "bayescal" / "data" / "new_module.py"
    module.write_text('"""New."""')
    assert update_readme.main(["--check"]) == 1
    module.unlink()
    (tmp_path / "bayescal" / "data" / "__init__.py").write_text('"""Something else."""')
    assert update_readme.main(["--check"]) == 1


def test_tables_show_every_calibrator_with_its_own_defaults() -> None:
    rows = re.findall(r"^\| (`[A-Z]\w+\(.*?`) \|", TABLES, re.MULTILINE)
    codes = [code for row in rows for code in re.findall(r"`(.+?)`", row)]
    public = {name: getattr(calibrators, name) for name in calibrators.__all__}
    shown = {code: eval(code, public.copy()) for code in codes}
    for code, calibrator in shown.items():
        if not isinstance(calibrator, calibrators.OneVsRest):
            assert calibrator.get_params() == type(calibrator)().get_params(), code
    exported = {
        value
        for value in public.values()
        if isinstance(value, type) and issubclass(value, calibrators.Calibrator)
    }
    assert {type(c) for c in shown.values()} == exported - {calibrators.Calibrator}
