"""Notebooks run without warnings, open with a question, and match their stored outputs."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

jupytext = pytest.importorskip("jupytext")
nbformat = pytest.importorskip("nbformat")
for needed in ("ipykernel", "nbclient", "pandas"):
    pytest.importorskip(needed)

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))

#: Largest size that code hosts display.
MAX_BYTES = 1_000_000

#: Shorter simulations for tests, with all methods, sizes and figures. The stored outputs come from
#: the full simulations, and contain no warnings either.
SHORTER = {
    "calibrate_many_classes": {"sample(5000,": "sample(1000,"},
    "calibrate_with_few_labels": {
        "prior, 1000,": "prior, 64,",
        "prior, 1024,": "prior, 64,",
        "num_samples=10_000,": "num_samples=1000,",
        "key=0, class_prior=0.5)": "key=0, class_prior=0.5, num_samples=10_000)",
    },
    "measure_calibration": {"resamples=500": "resamples=50", "resamples=200": "resamples=20"},
    "monitor_a_deployed_model": {"range(400)": "range(60)", "0.1 * 400": "0.1 * 60"},
    "smooth_labels": {"SETS = 150": "SETS = 15"},
    "what_a_prior_is_worth": {
        "num_datasets=125": "num_datasets=9",
        "num_datasets=250": "num_datasets=10",
        # All data sets of a block are computed, including those that only fill it.
        "import bayescal as bc\n": "import bayescal as bc\nbc.sweeps._run.SIZE = 10\n",
    },
}

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def run(source: Path, output: Path) -> Any:
    """Run the notebook in a separate process, without pytest's warning filters."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "run_notebook.py", source, "--output", output],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read(output)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def warnings_of(notebook: Any) -> list[str]:
    """Return what the cells wrote to standard error."""
    return [out.text for out in outputs(notebook) if out.get("name") == "stderr"]


def count_figures(notebook: Any) -> int:
    return sum("image/png" in out.get("data", {}) for out in outputs(notebook))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.slow
@pytest.mark.all_cases
@each_notebook
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    for long, short in SHORTER.get(path.stem, {}).items():
        assert long in text
        text = text.replace(long, short)
    source = tmp_path / path.name
    source.write_text(text)
    notebook = run(source, tmp_path / "executed.ipynb")
    assert all(cell.execution_count for cell in code_cells(notebook))
    assert warnings_of(notebook) == []
    assert count_figures(notebook) > 0
    assert not [out for out in outputs(notebook) if out.output_type == "error"]


@each_notebook
def test_notebook_opens_with_a_question(path: Path) -> None:
    first, *rest = jupytext.read(path).cells
    title = first.source.splitlines()[0]
    assert first.cell_type == "markdown"
    assert re.fullmatch(r"# .+\?", title)
    assert rest


@each_notebook
def test_notebook_with_outputs_is_in_step_with_its_source(path: Path) -> None:
    file = path.with_suffix(".ipynb")
    again = f"run python tests/run_notebook.py notebooks/{path.name}"
    assert file.exists(), again
    assert file.stat().st_size < MAX_BYTES
    executed, source = read(file), jupytext.read(path)
    kept, cells = ([(c.cell_type, c.source) for c in book.cells] for book in (executed, source))
    assert kept == cells, again
    assert all(cell.execution_count for cell in code_cells(executed))
    assert warnings_of(executed) == [] and count_figures(executed) > 0


def test_no_notebook_lacks_its_source() -> None:
    names = {path.stem for path in ROOT.glob("notebooks/*.ipynb")}
    assert names == {path.stem for path in NOTEBOOKS}


@pytest.mark.slow
def test_failing_cell_and_warning_are_seen(tmp_path: Path) -> None:
    source = tmp_path / "example.py"
    source.write_text("# %%\nimport warnings\n\nwarnings.warn('look out')\n")
    (result,) = warnings_of(run(source, tmp_path / "example.ipynb"))
    assert "look out" in result
    source.write_text("# %%\nx = 1\n\n# %%\nx / 0\n")
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(source, tmp_path / "example.ipynb")
