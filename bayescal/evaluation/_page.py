"""The HTML page: results and figures in one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import platform
import re
from collections.abc import Callable, Mapping
from importlib import metadata, resources

from bayescal.data.predictions import EPS
from bayescal.evaluation import _figures
from bayescal.evaluation._findings import SIGNIFICANCE, SLIGHT, STRONG, p_text
from bayescal.evaluation._measured import Measured
from bayescal.evaluation._svg import plain_style
from bayescal.plots.style import COLORS


def build(
    evaluation: Measured,
    title: str,
    about: Mapping[str, str],
    progress: Callable[[str, int, int], None],
) -> str:
    """Render the template ``page.html``, with ``page.css`` and ``page.js`` inserted."""
    from jinja2 import Environment, StrictUndefined

    names, binary = list(evaluation.findings), len(evaluation.classes) == 2
    first = evaluation.events[names[0]]
    steps = len(names) + 2
    diagrams = {}
    with plain_style():
        overview = _figures.overview(evaluation)
        for index, name in enumerate(names):
            progress(f"figures: {name}", index, steps)
            pictures = _figures.diagrams(evaluation, name, index)
            diagrams[name] = pictures, evaluation.events[name].curve(evaluation.bins)
        progress("figures: costs" if binary else "figures: classes", len(names), steps)
        many = len(evaluation.classes) > _figures.MAX_CLASSES
        errors = _figures.errors_by_class(evaluation) if many else None
        panels = _figures.subgroups(evaluation)
        last = [_figures.costs(evaluation)] if binary else _figures.classwise(evaluation)
    progress("page", len(names) + 1, steps)
    files = resources.files("bayescal.evaluation")
    template, style, script = (
        files.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js")
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    filters = {"dashes": _figures.dashes, "form": format, "number": _number, "p": p_text}
    environment.filters |= filters
    return (
        environment.from_string(template)
        .render(
            evaluation=evaluation,
            title=title,
            about=about,
            overview=overview,
            diagrams=diagrams,
            errors=errors,
            last=last,
            panels=panels,
            subgroups=evaluation.subgroups(),
            size=first.size,
            weighted=first.cases.weights is not None,
            summary={name: _emphasize(text) for name, text in evaluation.summary().items()},
            best=min(names, key=lambda name: evaluation.report.intervals[name]["log loss"].value),
            eps=EPS,
            significance=SIGNIFICANCE,
            slight=SLIGHT,
            strong=STRONG,
            totals=list(zip(evaluation.classes, first.totals, strict=True)),
            weight=first.totals.sum(),
            colors=len(COLORS),
            style=style,
            script=script,
            # No other script may run, whatever a name in the data contains, and nothing is fetched.
            digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            versions={name: _version(name) for name in ("bayescal", "jax", "numpy", "matplotlib")},
            python=platform.python_version(),
        )
        .lstrip()
    )


def _emphasize(text: str) -> tuple[str, str]:
    """Split a finding after its first words, the verdict; keep p-values and z unbroken."""
    verdict = re.split("[:;]", text)[0]
    rest = re.sub("p ([=<]) ", "p\xa0\\1\xa0", text[len(verdict) :])
    return verdict, rest.replace("z = -", "z = \N{MINUS SIGN}")


def _number(value: float, form: str = ".4f") -> str:
    """Format a number with a true minus sign, and without a sign if it is rounded to zero."""
    shown = format(value, form)
    if float(shown.replace(",", "")) == 0:
        shown = shown.lstrip("-+")
    return shown.replace("-", "\N{MINUS SIGN}")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # used from its sources
        return "unknown"
