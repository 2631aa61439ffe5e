"""Pages of the reference, one for each public name, and the pictures of calibrators.

They are written into ``docs/reference`` before Sphinx reads the pages, and a page of all pictures
into ``docs/gallery``. Every public name is in one group, and so has a page.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pictures

import bayescal as bc
import bayescal.models

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# Titles of groups with the names that they take, in order. Calibrators and names of modules are
# grouped by what they are; what is left is a group of its own.
GROUPS: dict[str, tuple[str, ...]] = {
    "Known generative models": (
        "posterior_predict",
        "posterior",
        "Posterior",
        "Prediction",
        "GaussianPrior",
        "BetaPrior",
        "MultivariateGaussianPrior",
        "DirichletPrior",
        "NormalInverseGammaPrior",
        "Prior",
        "models.Family",
        "sweep",
    ),
    "Calibrate": ("CalibratedClassifier", "Auto", "LogisticRegression", "Calibrator", "Report"),
    "Combine": ("Composition", "compose", "Average", "MultiLabel", "OneVsRest"),
    "Keep, move and read": ("save", "load", "export", "PredictFunction", "TopProbs", "Blocks"),
    "Judge": ("evaluate", "Evaluation"),
    "Settings and warnings": ("cache_compilations", "AccuracyWarning", "SamplingWarning"),
}
INHERITED = ("fit", "predict_proba", "predict", "predict_interval", "as_function")


def names_of(module: ModuleType) -> list[str]:
    """Return the public names of a module of users', those of modules within it dotted."""
    listed = getattr(module, "__all__", None) or dir(module)
    found = []
    for name in sorted(listed):
        value = getattr(module, name)
        if name[0] == "_" or not _is_ours(value):
            continue
        if not _is_module(value):
            found.append(name)
        elif module is bc.datasets:  # elsewhere modules within are for the package
            found += [f"{name}.{n}" for n in names_of(value)]
    return found


def _is_module(value: Any) -> bool:
    return isinstance(value, ModuleType)


def _is_ours(value: Any) -> bool:
    place = value.__name__ if _is_module(value) else getattr(value, "__module__", "")
    return str(place).startswith("bayescal")


def modules() -> list[str]:
    """Return the names of modules for users."""
    return [name for name in bc.__all__ if _is_module(getattr(bc, name))]


def public_names() -> list[str]:
    """Return all names for users, as they are written after ``bayescal.``."""
    within = modules()
    tops = [name for name in bc.__all__ if name not in within]
    inner = [f"{name}.{n}" for name in within for n in names_of(getattr(bc, name))]
    # What a module makes when it is asked for, with other libraries, its docstring tells.
    alone = [name for name in within if not names_of(getattr(bc, name))]
    return [*tops, *inner, *alone, "models.Family"]


def value_of(name: str) -> Any:
    """Return what a public name stands for."""
    value: Any = bc
    for part in name.split("."):
        value = getattr(value, part)
    return value


def groups() -> dict[str, list[str]]:
    """Return public names by the title of their group; each is in one."""
    names = public_names()
    found = {title: [n for n in taken if n in names] for title, taken in GROUPS.items()}
    taken = {n for group in GROUPS.values() for n in group}
    left = [n for n in names if n not in taken]
    maps = [n for n in left if inspect.isclass(v := value_of(n)) and issubclass(v, bc.Calibrator)]
    found["Maps of two classes"] = [n for n in maps if value_of(n).binary]
    found["Maps of two and more classes"] = [n for n in maps if not value_of(n).binary]
    for module in modules():
        found[f"bayescal.{module}"] = [n for n in left if f"{n}.".startswith(f"{module}.")]
    grouped = {n for group in found.values() for n in group}
    if others := [n for n in names if n not in grouped]:
        found["More"] = others
    order = ["Calibrate", "Maps of two classes", "Maps of two and more classes", *found]
    return {title: found[title] for title in dict.fromkeys(order)}


def summary(value: Any) -> str:
    """Return the first sentence of a docstring, as a line of reStructuredText."""
    doc = inspect.getdoc(value) or ""
    return " ".join(doc.split("\n\n")[0].split())


def members(kind: type) -> list[str]:
    """Return what a class adds for its users, and of calibrators also what all of them do."""
    own = [n for n, v in vars(kind).items() if n[0] != "_" and inspect.getdoc(v) and _is_method(v)]
    if issubclass(kind, bc.Calibrator):
        own += [n for n in INHERITED if hasattr(kind, n) and n not in own]
    return own


def _is_method(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


def page(name: str) -> str:
    """Return the page of one public name."""
    value = value_of(name)
    kind = "automodule" if _is_module(value) else "autofunction"
    kind = "autoclass" if inspect.isclass(value) else kind
    lines = [name, "=" * len(name), "", f".. currentmodule:: bayescal{_parent(name)}", ""]
    lines += [f".. {kind}:: bayescal.{name}"]
    if inspect.isclass(value) and (listed := members(value)):
        lines += [f"   :members: {', '.join(listed)}"]
    return "\n".join([*lines, ""])


def show_picture(app: Sphinx, what: str, name: str, *rest: Any) -> None:
    """Put the picture of a calibrator below the first sentence of its docstring."""
    lines: list[str] = rest[-1]
    path = Path(app.srcdir) / "reference" / "pictures" / f"{name.removeprefix('bayescal.')}.svg"
    if what != "class" or not path.exists() or "" not in lines:
        return
    place = lines.index("") + 1
    lines[place:place] = [
        f".. figure:: /reference/pictures/{path.name}",
        f"   :alt: Curves of {path.stem} on three models, beside the truth",
        "   :class: dark-light",
        "",
        "   Calibrated probability (orange) by predicted probability, of three models with "
        f"{pictures.ROWS:,} rows each. Dashed: the truth.",
        "",
    ]


def _parent(name: str) -> str:
    return "".join(f".{part}" for part in name.split(".")[:-1])


def index(found: dict[str, list[str]]) -> Iterable[str]:
    """Yield the lines of the list of all names."""
    for title, names in found.items():
        yield from (title, "-" * len(title), "", ".. list-table::", "   :widths: 30 70", "")
        for name in names:
            yield f"   * - :doc:`{name.split('.', 1)[-1] if '.' in name else name} <{name}>`"
            yield f"     - {summary(value_of(name))}"
        yield from ("", ".. toctree::", "   :hidden:", "")
        yield from (f"   {name}" for name in names)
        yield ""


def command_line() -> str:
    """Return the page of the commands: what each says of itself."""
    from bayescal import cli

    code = "import sys; from bayescal.cli import main; sys.argv[0] = 'bayescal'; main()"
    look = {
        "COLUMNS": "96",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }

    def said(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *words, "--help"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **look},
        )
        return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())

    commands = [c.name or c.callback.__name__ for c in cli.app.registered_commands if c.callback]
    parts = ["# Command line", "", "```text", said(), "```", ""]
    for command in commands:
        parts += [f"## bayescal {command}", "", "```text", said(command), "```", ""]
    return "\n".join(parts)


def write(path: Path, text: str) -> None:
    """Write a page unless it is there already, so that Sphinx reads only what changed."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def methods(names: Iterable[str]) -> str:
    """Return the page with the pictures of all calibrators."""
    lines = [
        "# Each method",
        "",
        f"What it makes (orange) of three models with {pictures.ROWS:,} rows to calibrate on: a "
        "network that is too sure, a forest that is not sure enough, and a bent margin. Across: "
        "the predicted probability; up: the calibrated one. Dashed: the truth.",
        "",
        "::::{grid} 1 1 2 2",
        ":gutter: 2",
    ]
    for name in names:
        lines += [
            "",
            f":::{{grid-item-card}} {name}",
            f":link: /reference/{name}",
            ":link-type: doc",
            f"```{{image}} /reference/pictures/{name}.svg",
            f":alt: Curves of {name}",
            ":class: dark-light",
            "```",
            ":::",
        ]
    return "\n".join([*lines, "::::", ""])


def generate(app: Sphinx) -> None:
    """Write pages and pictures."""
    folder = Path(app.srcdir) / "reference"
    found = groups()
    drawn = pictures.calibrators()
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for name, calibrator in drawn.items():
        path = folder / "pictures" / f"{name}.svg"
        if not path.exists():
            pictures.draw(calibrator, path)
    names = [name for group in found.values() for name in group]
    for name in names:
        write(folder / f"{name}.rst", page(name))
    for path in folder.glob("*.rst"):
        if path.stem not in (*names, "index"):
            path.unlink()
    head = ["Reference", "=" * 9, "", ":doc:`command-line`, and all names for Python:", ""]
    more = ["", ".. toctree::", "   :hidden:", "", "   command-line", ""]
    write(folder / "index.rst", "\n".join([*head, *index(found), *more]))
    write(folder / "command-line.md", command_line())
    write(Path(app.srcdir) / "gallery" / "methods.md", methods(drawn))


def setup(app: Sphinx) -> dict[str, Any]:
    """Write before anything is read."""
    app.connect("builder-inited", generate)
    app.connect("autodoc-process-docstring", show_picture, priority=400)  # before its sections
    return {"parallel_read_safe": True, "parallel_write_safe": True}
