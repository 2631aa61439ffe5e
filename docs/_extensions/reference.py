"""Generate the reference, with one page per public name, and its pictures.

Pages are written to ``docs/reference`` before Sphinx reads the sources, and pages that show all
pictures to ``docs/gallery``. Every public name is in exactly one group and has one page.
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

# Titles of groups and the public names in them, in the order of the reference. ``groups`` adds the
# calibrators, one group per module, and a group of all remaining names.
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
    "Groups of rows": ("PartialPooling", "GroupEffect", "Multicalibration"),
    "Language models": ("TopProbs", "top_logprobs", "tokens"),
    "After deployment": ("PriorShift", "expected_performance", "ExpectedPerformance"),
    "Save, export and read data": (
        "save",
        "load",
        "export",
        "PredictFunction",
        "Blocks",
    ),
    "Evaluate and monitor": ("evaluate", "Evaluation", "Monitor"),
    "Settings and warnings": ("cache_compilations", "AccuracyWarning", "SamplingWarning"),
}
# The scripts that draw pictures, and the code that the pictures of each module depend on. Pictures
# are drawn again if it changes.
DRAWING = tuple(f"docs/_extensions/{name}.py" for name in ("pictures", "measures"))
CALIBRATOR_CODE = (
    "_core",
    "models",
    "inference",
    "smoothing",
    "regression",
    "metrics",
    "calibrators",
)
PICTURE_SOURCES = {
    "metrics": (*DRAWING, "bayescal/_core", "bayescal/metrics"),
    "losses": (*DRAWING, "bayescal/_core", "bayescal/losses"),
    "": (DRAWING[0], *(f"bayescal/{name}" for name in CALIBRATOR_CODE)),
}
BINARY, MULTICLASS = "Binary calibrators", "Binary and multi-class calibrators"
CAPTIONS: dict[str, str] = {}
INHERITED = ("fit", "predict_proba", "predict", "predict_interval", "as_function")


def names_of(module: ModuleType) -> list[str]:
    """List the public names of a module; names of its submodules have a dot."""
    result = []
    for name in sorted(getattr(module, "__all__", dir(module))):
        value = getattr(module, name)
        if name[0] == "_" or not _is_bayescal(value):
            continue
        if not _is_module(value):
            result.append(name)
        elif module is bc.datasets:  # submodules of other modules are internal
            result += [f"{name}.{n}" for n in names_of(value)]
    return result


def _is_module(value: Any) -> bool:
    return isinstance(value, ModuleType)


def _is_bayescal(value: Any) -> bool:
    module = value.__name__ if _is_module(value) else getattr(value, "__module__", "")
    return str(module).startswith("bayescal")


def modules() -> list[str]:
    """List the public modules."""
    return [name for name in bc.__all__ if _is_module(getattr(bc, name))]


def public_names() -> list[str]:
    """List all public names, without the prefix ``bayescal.``."""
    public_modules = modules()
    top = [name for name in bc.__all__ if name not in public_modules]
    inner = [f"{name}.{n}" for name in public_modules for n in names_of(getattr(bc, name))]
    # Modules that create their names on access, because they need other libraries, have one page.
    lazy = [name for name in public_modules if not names_of(getattr(bc, name))]
    return [*top, *inner, *lazy, "models.Family"]


def value_of(name: str) -> Any:
    """Look up the object of a public name."""
    value: Any = bc
    for part in name.split("."):
        value = getattr(value, part)
    return value


def groups() -> dict[str, list[str]]:
    """Assign each public name to one group; return the names by the title of the group."""
    names = public_names()
    result = {title: [n for n in group if n in names] for title, group in GROUPS.items()}
    listed = {n for group in GROUPS.values() for n in group}
    rest = [n for n in names if n not in listed]
    kinds = [n for n in rest if inspect.isclass(v := value_of(n)) and issubclass(v, bc.Calibrator)]
    result[BINARY] = [n for n in kinds if value_of(n).binary]
    result[MULTICLASS] = [n for n in kinds if not value_of(n).binary]
    for module in modules():
        result[f"bayescal.{module}"] = [n for n in rest if f"{n}.".startswith(f"{module}.")]
    grouped = {n for group in result.values() for n in group}
    if others := [n for n in names if n not in grouped]:
        result["More"] = others
    order = ["Calibrate", BINARY, MULTICLASS, *result]
    return {title: result[title] for title in dict.fromkeys(order)}


def summary(value: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    doc = inspect.getdoc(value) or ""
    return " ".join(doc.split("\n\n")[0].split())


def members(kind: type) -> list[str]:
    """List the documented public methods of a class, with inherited ones of calibrators."""
    names = [
        n for n, v in vars(kind).items() if n[0] != "_" and inspect.getdoc(v) and _is_method(v)
    ]
    if issubclass(kind, bc.Calibrator):
        names += [n for n in INHERITED if hasattr(kind, n) and n not in names]
    return names


def _is_method(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


@cache
def _guides() -> dict[str, str]:
    """Read the texts of the guides by name, in the order of the index of guides."""
    entries = re.findall(r"^- \[.*?\]\(\.\./([\w-]+)\.md\)", _read("guides/index"), re.MULTILINE)
    return {entry: _read(entry) for entry in entries}


def _read(name: str) -> str:
    return (Path(__file__).parents[1] / f"{name}.md").read_text("utf-8")


def guides_of(name: str) -> list[str]:
    """List up to three guides that use a public name most often in code."""
    short = name.rpartition(".")[2]
    usage = re.compile(rf"(?:\bbc\.|`){re.escape(name)}\b|`{short}`")
    counts = {guide: len(usage.findall(text)) for guide, text in _guides().items()}
    return sorted((guide for guide in counts if counts[guide]), key=lambda g: -counts[g])[:3]


def page(name: str) -> str:
    """Format the reference page of a public name."""
    value = value_of(name)
    kind = "automodule" if _is_module(value) else "autofunction"
    kind = "autoclass" if inspect.isclass(value) else kind
    lines = [name, "=" * len(name), ""]
    if guides := guides_of(name):
        lines += [f"Guides: {', '.join(f':doc:`/{guide}`' for guide in guides)}", ""]
    lines += [f".. currentmodule:: bayescal{_parent(name)}", ""]
    lines += [f".. {kind}:: bayescal.{name}"]
    if inspect.isclass(value) and (names := members(value)):
        lines += [f"   :members: {', '.join(names)}"]
    return "\n".join([*lines, ""])


def drawings() -> dict[str, tuple[Callable[[Path], None], str]]:
    """Map public names to drawing functions and captions of their pictures."""
    return pictures.drawings() | measures.drawings()


def draw_pictures(folder: Path) -> None:
    """Draw the pictures that are missing or were drawn by different code."""
    digests_path = folder / "digests.json"
    exists = digests_path.exists()
    digests = json.loads(digests_path.read_text("utf-8")) if exists else {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, (draw, _) in drawings().items():
        path, module = folder / f"{name}.svg", name.rpartition(".")[0]
        digest = sources.digest(*PICTURE_SOURCES[module])
        if not path.exists() or digests.get(name) != digest:
            draw(path)
            digests[name] = digest
            digests_path.write_text(json.dumps(digests), "utf-8")


def show_picture(app: Sphinx, what: str, name: str, *rest: Any) -> None:
    """Insert the picture of a public name below the first paragraph of its docstring."""
    lines: list[str] = rest[-1]
    short = name.removeprefix("bayescal.")
    if what not in ("class", "function") or short not in CAPTIONS or "" not in lines:
        return
    start = lines.index("") + 1
    lines[start:start] = [
        f".. figure:: /reference/pictures/{short}.svg",
        f"   :alt: Picture of {short}",
        "",
        f"   {CAPTIONS[short]}",
        "",
    ]


def _parent(name: str) -> str:
    return "".join(f".{part}" for part in name.split(".")[:-1])


def index(names_by_title: dict[str, list[str]]) -> Iterable[str]:
    """Yield the lines of the index: a table of names and summaries for each group."""
    for title, names in names_by_title.items():
        yield from (title, "-" * len(title), "", ".. list-table::", "   :widths: 30 70", "")
        for name in names:
            yield f"   * - :doc:`{name.split('.', 1)[-1] if '.' in name else name} <{name}>`"
            yield f"     - {summary(value_of(name))}"
        yield from ("", ".. toctree::", "   :hidden:", f"   :caption: {title}", "")
        yield from (f"   {name}" for name in names)
        yield ""


def command_line() -> str:
    """Format the page of the command line, with the help text of each command."""
    from bayescal import cli

    code = "import sys; from bayescal.cli import main; sys.argv[0] = 'bayescal'; main()"
    environment = {
        "COLUMNS": "96",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }

    def help_text(*words: str) -> str:
        process = subprocess.run(
            [sys.executable, "-c", code, *words, "--help"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **environment},
        )
        return "\n".join(line.rstrip() for line in process.stdout.strip().splitlines())

    commands = [c.name or c.callback.__name__ for c in cli.app.registered_commands if c.callback]
    parts = ["# Command line", "", "```text", help_text(), "```", ""]
    for command in commands:
        parts += [f"## bayescal {command}", "", "```text", help_text(command), "```", ""]
    return "\n".join(parts)


def write(path: Path, text: str) -> None:
    """Write a page if its text changed, so that Sphinx reads only changed pages."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


METHODS = (
    f"Each picture shows the calibrated probability (orange) by the predicted probability, for "
    f"three models with {pictures.ROWS:,} calibration rows each: an over-confident network, an "
    "under-confident forest, and a bent margin. Dashed: the true probability."
)


def cards(names: Iterable[str]) -> list[str]:
    """Format a grid of pictures that link to their reference pages."""
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
    """Format the gallery pages of all calibrators, and of all metrics and losses, by file name."""
    names = list(measures.drawings())
    metrics, losses = ([n for n in names if n.startswith(f"{m}.")] for m in ("metrics", "losses"))
    sections = ["## Metrics", "", measures.METRIC_CAPTION, "", *cards(metrics)]
    sections += ["## Losses", "", measures.LOSS_CAPTION, "", *cards(losses)]
    return {
        "methods": "\n".join(["# Calibrators", "", METHODS, "", *cards(pictures.drawings())]),
        "measures": "\n".join(["# Metrics and losses", "", *sections]),
    }


def generate(app: Sphinx) -> None:
    """Write the reference pages, the pictures and the gallery pages; delete outdated pages."""
    folder = Path(app.srcdir) / "reference"
    names_by_title = groups()
    draw_pictures(folder / "pictures")
    CAPTIONS.update({name: caption for name, (_, caption) in drawings().items()})
    names = [name for group in names_by_title.values() for name in group]
    for name in names:
        write(folder / f"{name}.rst", page(name))
    for path in folder.glob("*.rst"):
        if path.stem not in (*names, "index"):
            path.unlink()
    header = ["Reference", "=" * 9, "", "The :doc:`command-line`, and all public names:", ""]
    footer = ["", ".. toctree::", "   :hidden:", "", "   command-line", ""]
    write(folder / "index.rst", "\n".join([*header, *index(names_by_title), *footer]))
    write(folder / "command-line.md", command_line())
    for name, text in gallery_pages().items():
        write(Path(app.srcdir) / "gallery" / f"{name}.md", text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Generate the pages before Sphinx reads the sources."""
    app.connect("builder-inited", generate)
    # The priority inserts the picture before napoleon parses the sections of the docstring.
    app.connect("autodoc-process-docstring", show_picture, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
