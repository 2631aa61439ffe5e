"""Pages of the reference, one for each public name, and pictures of what can be drawn.

They are written into ``docs/reference`` before Sphinx reads the pages, and a page of all pictures
into ``docs/gallery``. Every public name is in one group, and so has a page.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import measures
import pictures
import sources

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
        "PosteriorFunction",
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
    "After deployment": ("PriorShift", "expected_performance", "ExpectedPerformance"),
    "Keep, move and read": ("save", "load", "export", "PredictFunction", "TopProbs", "Blocks"),
    "Judge": ("evaluate", "Evaluation", "Monitor"),
    "Settings and warnings": ("cache_compilations", "AccuracyWarning", "SamplingWarning"),
}
# What draws pictures, and what is drawn in them: where it changed they are drawn anew.
DRAWING = tuple(f"docs/_extensions/{name}.py" for name in ("pictures", "measures"))
BELOW = ("_core", "models", "inference", "smoothing", "regression", "metrics", "calibrators")
DRAWN_FROM = {
    "metrics": (*DRAWING, "bayescal/_core", "bayescal/metrics"),
    "losses": (*DRAWING, "bayescal/_core", "bayescal/losses"),
    "": (DRAWING[0], *(f"bayescal/{name}" for name in BELOW)),
}
CAPTIONS: dict[str, str] = {}
INHERITED = ("fit", "predict_proba", "predict", "predict_interval", "as_function")


def names_of(module: ModuleType) -> list[str]:
    """Return the public names of a module of users', those of modules within it dotted."""
    listed = getattr(module, "__all__", dir(module))
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


@cache
def _guides() -> dict[str, str]:
    """Return the texts of the guides by name, in the order of their index."""
    entries = re.findall(r"^- \[.*?\]\(\.\./([\w-]+)\.md\)", _read("guides/index"), re.MULTILINE)
    return {entry: _read(entry) for entry in entries}


def _read(name: str) -> str:
    return (Path(__file__).parents[1] / f"{name}.md").read_text("utf-8")


def guides_of(name: str) -> list[str]:
    """Return the guides that use a public name in code most often, at most three."""
    short = name.rpartition(".")[2]
    used = re.compile(rf"(?:\bbc\.|`){re.escape(name)}\b|`{short}`")
    counts = {guide: len(used.findall(text)) for guide, text in _guides().items()}
    return sorted((guide for guide in counts if counts[guide]), key=lambda g: -counts[g])[:3]


def page(name: str) -> str:
    """Return the page of one public name."""
    value = value_of(name)
    kind = "automodule" if _is_module(value) else "autofunction"
    kind = "autoclass" if inspect.isclass(value) else kind
    lines = [name, "=" * len(name), ""]
    if guides := guides_of(name):
        lines += [f"Guides: {', '.join(f':doc:`/{guide}`' for guide in guides)}", ""]
    lines += [f".. currentmodule:: bayescal{_parent(name)}", ""]
    lines += [f".. {kind}:: bayescal.{name}"]
    if inspect.isclass(value) and (listed := members(value)):
        lines += [f"   :members: {', '.join(listed)}"]
    return "\n".join([*lines, ""])


def drawings() -> dict[str, tuple[Callable[[Path], None], str]]:
    """Return what draws the pictures, and what is said of each, by public name."""
    return pictures.drawings() | measures.drawings()


def draw_pictures(folder: Path) -> None:
    """Draw the pictures that are not there, or not from the code as it is."""
    kept = folder / "digests.json"
    known = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, (draw, _) in drawings().items():
        path, module = folder / f"{name}.svg", name.rpartition(".")[0]
        digest = sources.digest(*DRAWN_FROM[module])
        if not path.exists() or known.get(name) != digest:
            draw(path)
            known[name] = digest
            kept.write_text(json.dumps(known), "utf-8")


def show_picture(app: Sphinx, what: str, name: str, *rest: Any) -> None:
    """Put a picture below the first sentence of a docstring."""
    lines: list[str] = rest[-1]
    own = name.removeprefix("bayescal.")
    if what not in ("class", "function") or own not in CAPTIONS or "" not in lines:
        return
    place = lines.index("") + 1
    lines[place:place] = [
        f".. figure:: /reference/pictures/{own}.svg",
        f"   :alt: Picture of {own}",
        "",
        f"   {CAPTIONS[own]}",
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
        yield from ("", ".. toctree::", "   :hidden:", f"   :caption: {title}", "")
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


METHODS = (
    f"Each picture shows the calibrated probability (orange) by the predicted probability, for "
    f"three models with {pictures.ROWS:,} calibration rows each: an over-confident network, an "
    "under-confident forest, and a bent margin. Dashed: the truth."
)


def cards(names: Iterable[str]) -> list[str]:
    """Return lines of pictures that link to pages of the reference."""
    lines = ["::::{grid} 1 1 2 2", ":gutter: 2"]
    for name in names:
        lines += [
            "",
            f":::{{grid-item-card}} {name.split('.')[-1]}",
            f":link: /reference/{name}",
            ":link-type: doc",
            f"```{{image}} /reference/pictures/{name}.svg",
            f":alt: Picture of {name}",
            "```",
            ":::",
        ]
    return [*lines, "::::", ""]


def gallery_pages() -> dict[str, str]:
    """Return the pages with all pictures, of methods and of measures, by name."""
    kept = list(measures.drawings())
    metrics, losses = ([n for n in kept if n.startswith(f"{m}.")] for m in ("metrics", "losses"))
    both = ["## Metrics", "", measures.METRIC_CAPTION, "", *cards(metrics)]
    both += ["## Losses", "", measures.LOSS_CAPTION, "", *cards(losses)]
    return {
        "methods": "\n".join(["# Calibrators", "", METHODS, "", *cards(pictures.drawings())]),
        "measures": "\n".join(["# Metrics and losses", "", *both]),
    }


def generate(app: Sphinx) -> None:
    """Write pages and pictures."""
    folder = Path(app.srcdir) / "reference"
    found = groups()
    draw_pictures(folder / "pictures")
    CAPTIONS.update({name: caption for name, (_, caption) in drawings().items()})
    names = [name for group in found.values() for name in group]
    for name in names:
        write(folder / f"{name}.rst", page(name))
    for path in folder.glob("*.rst"):
        if path.stem not in (*names, "index"):
            path.unlink()
    head = ["Reference", "=" * 9, "", "The :doc:`command-line`, and all public names:", ""]
    more = ["", ".. toctree::", "   :hidden:", "", "   command-line", ""]
    write(folder / "index.rst", "\n".join([*head, *index(found), *more]))
    write(folder / "command-line.md", command_line())
    for name, text in gallery_pages().items():
        write(Path(app.srcdir) / "gallery" / f"{name}.md", text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Write before anything is read."""
    app.connect("builder-inited", generate)
    app.connect("autodoc-process-docstring", show_picture, priority=400)  # before its sections
    return {"parallel_read_safe": True, "parallel_write_safe": True}
