"""Run notebooks that are kept as ``.py`` files, and write ``.ipynb`` files with their outputs.

    python tests/run_notebook.py                      # all in notebooks/, beside their sources
    python tests/run_notebook.py notebooks/NAME.py    # one of them
    python tests/run_notebook.py notebooks/NAME.py --output FILE

The cells run in a kernel of the interpreter that runs this script; an error in a cell ends it.
"""

import argparse
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS_PER_CELL = 600

# Import-time messages of other libraries, which say nothing about bayescal.
ANNOUNCEMENTS = ("ArviZ is undergoing a major refactor", "IProgress not found")


def run(source: Path, output: Path) -> None:
    """Execute the cells of ``source`` and write the notebook ``output``."""
    import jupytext
    import nbformat
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    notebook = jupytext.read(source)
    specs = KernelSpecManager(kernel_dirs=[], ensure_native_kernel=True)
    client = NotebookClient(
        notebook,
        km=AsyncKernelManager(kernel_name="python3", kernel_spec_manager=specs),
        timeout=SECONDS_PER_CELL,
        record_timing=False,
    )
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("MPLBACKEND", None)  # the kernel draws inline
    client.execute(cwd=str(source.parent), env=environment)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # ids are random otherwise, and would change in every run
        if cell.cell_type == "code":
            cell.outputs = [out for out in cell.outputs if not is_announcement(out)]
    nbformat.write(notebook, output)


def is_announcement(output: dict) -> bool:
    """Check whether an output is an import-time message of another library."""
    return output.get("name") == "stderr" and any(a in output["text"] for a in ANNOUNCEMENTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", type=Path, nargs="*", help="by default all notebooks")
    parser.add_argument("--output", type=Path, help="the .ipynb to write, for a single notebook")
    arguments = parser.parse_args()
    sources = arguments.sources or sorted((ROOT / "notebooks").glob("*.py"))
    if arguments.output is not None and len(sources) != 1:
        parser.error("--output is for a single notebook")
    for source in sources:
        run(source.resolve(), arguments.output or source.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
