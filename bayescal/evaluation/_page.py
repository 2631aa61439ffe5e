"""The page: sections, tables and figures put into one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import metadata, resources

import numpy as np

from bayescal._core.tables import Html
from bayescal.evaluation import _figures, _text
from bayescal.evaluation._findings import p_text
from bayescal.evaluation._markup import (
    details,
    figure,
    group,
    heading,
    items,
    number,
    paragraph,
    section,
    table,
    terms,
)
from bayescal.evaluation._measured import Measured
from bayescal.evaluation._svg import plain_style
from bayescal.metrics import CalibrationTest, Interval, reliability_curve
from bayescal.metrics.inputs import check_predictions

_LISTED_CLASSES = 20


def build(
    found: Measured,
    title: str,
    about: Mapping[str, str],
    progress: Callable[[str, int, int], None],
) -> str:
    """Return the page."""
    names, k = list(found.models), len(found.classes)
    steps = len(names) + 2
    cases = _figures.expand(found)
    diagrams = {}
    with plain_style():
        for place, name in enumerate(names):
            progress(f"figures: {name}", place, steps)
            diagrams[name] = _figures.diagrams(found, cases, name, place)
        progress("figures: classes" if k > 2 else "figures: costs", len(names), steps)
        last = _decisions(found, cases) if k == 2 else _classes(found, cases)
    progress("page", len(names) + 1, steps)
    parts = [
        _summary(found),
        _metrics(found),
        _differences(found) if len(names) > 1 else "",
        _diagrams(found, diagrams, cases),
        _tests(found),
        last,
        _decomposition(found),
        _remedies(found),
        _data(found, about),
        section("References", items(_text.REFERENCES)),
    ]
    about_cases = f"{found.report.cases:,} cases, {k} classes"
    lead = ", ".join([*list(about.values())[:1], about_cases])
    return _document(title, lead, "".join(parts))


def _document(title: str, lead: str, body: str) -> str:
    files = resources.files("bayescal.evaluation")
    style = files.joinpath("page.css").read_text(encoding="utf-8")
    script = files.joinpath("page.js").read_text(encoding="utf-8")
    # No other script runs, whatever a name in the data says, and nothing is fetched.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="bayescal {_version("bayescal")}">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header><div><h1>{escape(title)}</h1><p>{escape(lead)}</p></div>"
        '<button id="theme" type="button" hidden>Dark theme</button></header>\n'
        f"<main>\n{body}\n</main>\n<footer>bayescal {_version('bayescal')}</footer>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _summary(found: Measured) -> Html:
    cards = []
    for place, (name, said) in enumerate(found.summary().items()):
        verdict = found.findings[name].verdict
        # The verdict is the first words of what is said.
        size = next(i for i, letter in enumerate(said) if letter in ":,;")
        # p-values and z do not break across lines.
        rest = said[size:].replace("p = ", "p\xa0=\xa0").replace("p < ", "p\xa0<\xa0")
        rest = escape(rest.replace("z = -", "z = \N{MINUS SIGN}"))
        sentence = Html(f"<strong>{escape(said[:size])}</strong>{rest}")
        title = _keyed(place, name) if len(found.models) > 1 else name
        parts = heading(title), paragraph(sentence)
        cards.append(group(f"verdict {verdict.replace(' ', '-')}", parts))
    best = ""
    if len(found.models) > 1:
        losses = {name: own["log loss"].value for name, own in found.report.intervals.items()}
        least = min(losses, key=losses.__getitem__)
        best = paragraph(f"The lowest log loss is that of {least}: {losses[least]:.4f}.")
    return section("Summary", Html("".join(cards)), best)


def _metrics(found: Measured) -> Html:
    report, names = found.report, list(found.models)
    rows = _interval_rows(report.intervals, names)
    eps = check_predictions(found.models[names[0]], found.labels).eps
    event = _event(found)
    shown = table(f"With {report.level:.0%} confidence intervals", ["Metric", *names], rows)
    defined = terms(_text.define_metrics(len(found.classes), found.bins, eps, event))
    return section(
        "Metrics",
        group("split", [group("", [shown]), group("", [defined])]),
        paragraph(
            "Intervals of log loss, Brier score and accuracy are normal; those of calibration "
            f"errors come from {found.replicates:,} bootstrap resamples, have the bias of few "
            "cases removed, and may then lie below the value. Errors are fractions."
        ),
    )


def _differences(found: Measured) -> Html:
    report = found.report
    first, *others = found.models
    rows = _interval_rows(report.differences, others, "+")
    return section(
        f"Differences to {first}",
        table(f"Each model less {first}, on the same cases", ["Metric", *others], rows),
        paragraph(
            f"Below each difference its {report.level:.0%} interval and two-sided p-value, from "
            f"{found.replicates:,} resamples that are the same for both models; p-values are at "
            f"least {2 / (found.replicates + 1):.1g} and not corrected for their number. Negative "
            "differences favour the model in the column, but of accuracy positive ones."
        ),
    )


def _diagrams(found: Measured, diagrams: dict, cases: _figures.Cases) -> Html:
    k, level = len(found.classes), found.report.level
    said = [*_text.explain_diagrams(k, found.bins, level, _event(found)), cases.note]
    parts = [paragraph(each) for each in said if each]
    for place, (name, pictures) in enumerate(diagrams.items()):
        if len(diagrams) > 1:
            parts.append(heading(_keyed(place, name)))
        parts.append(group("figures", map(figure, pictures)))
        curve = reliability_curve(
            found.models[name], found.labels, bins=found.bins, weights=found.weights
        )
        rows = [
            [number(p), number(o), number(o - p, "+.4f"), number(w, ",.6g")]
            for p, o, w in zip(*curve, strict=True)
        ]
        caption = f"{name}: bins that hold cases"
        heads = ["Mean prediction", "Observed", "Difference", "Cases"]
        parts.append(details("Numbers of the bins", table(caption, heads, rows)))
    return section("Reliability", *parts)


def _tests(found: Measured) -> Html:
    own = list(found.findings.values())
    binary = len(found.classes) == 2
    rows = [
        ["Spiegelhalter's z", *(_tested(each.spiegelhalter, ".2f") for each in own)],
        ["ECE (consistency)", *(_tested(each.consistency, ".4f") for each in own)],
        ["z in the large", *(_tested(each.bias, ".2f") for each in own if each.bias is not None)],
    ][: 3 if binary else 2]
    return section(
        "Tests of calibration",
        table("Of the hypothesis that predictions are calibrated", ["Test", *found.models], rows),
        *map(paragraph, _text.explain_tests(found.replicates, binary)),
    )


def _classes(found: Measured, cases: _figures.Cases) -> Html:
    pictures = _figures.classwise(found, cases)
    return section(
        "Class by class",
        paragraph(_text.explain_classes(len(pictures), len(found.classes))),
        _keys(found),
        group("panels", map(figure, pictures)),
    )


def _decisions(found: Measured, cases: _figures.Cases) -> Html:
    return section(
        "Costs of decisions",
        paragraph(_text.explain_costs(_event(found))),
        _keys(found),
        figure(_figures.costs(cases), "wide"),
    )


def _decomposition(found: Measured) -> Html:
    parts = ("score", "miscalibration", "discrimination", "uncertainty")
    rows = [
        [part, *(number(getattr(own.decomposition, part)) for own in found.findings.values())]
        for part in parts
    ]
    return section(
        "Parts of the score",
        table("CORP decomposition of the Brier score", ["Part", *found.models], rows),
        paragraph(_text.explain_decomposition(len(found.classes))),
    )


def _remedies(found: Measured) -> Html:
    k = len(found.classes)
    advice, maps = _text.remedies(list(found.findings.values()), k, found.report.cases)
    parts = [paragraph(advice)]
    if maps:
        name = "Beta" if k == 2 else "Temperature"
        code = (
            "import bayescal as bc\n\n"
            f"map = bc.{name}().fit(probs_held_out, labels_held_out)\n"
            "calibrated = map.predict_proba(probs_new)"
        )
        parts += [items(maps), Html(f'<pre tabindex="0"><code>{escape(code)}</code></pre>')]
    return section("What may help", *parts)


def _data(found: Measured, about: Mapping[str, str]) -> Html:
    totals = np.bincount(found.labels, found.weights, len(found.classes))
    shown = [
        f"{name}: {total:,.6g} ({total / totals.sum():.1%})"
        for name, total in zip(found.classes[:_LISTED_CLASSES], totals, strict=False)
    ]
    if len(found.classes) > _LISTED_CLASSES:
        shown.append(f"and {len(found.classes) - _LISTED_CLASSES} more")
    weights = "none" if found.weights is None else f"they add up to {found.weights.sum():,.6g}"
    facts = {
        **about,
        "Cases": f"{found.report.cases:,}",
        "Labels": ", ".join(shown),
        "Weights": weights,
        "Bins": f"{found.bins} of equal width (lower, upper]; of equal mass for the debiased ECE",
        "Intervals": f"level {found.report.level:g}, {found.replicates:,} resamples",
        "Seed": str(found.seed),
        "Versions": ", ".join(
            f"{name} {_version(name)}" for name in ("bayescal", "jax", "numpy", "matplotlib")
        )
        + f", Python {platform.python_version()}",
    }
    return section("Data and method", terms(facts, "facts"))


def _keys(found: Measured) -> Html:
    """Return the key of figures that show several models; one needs none."""
    if len(found.models) == 1:
        return Html("")
    return items((_keyed(place, name) for place, name in enumerate(found.models)), "keys")


def _keyed(place: int, name: str) -> Html:
    """Return a model's line and name."""
    return Html(f"{_figures.key(place)}{escape(name)}")


def _event(found: Measured) -> str:
    """Return what the probabilities of two classes are of."""
    return f"class {found.classes[-1]}"


def _interval_rows(
    intervals: Mapping[str, Mapping[str, Interval]], names: Sequence[str], sign: str = ""
) -> list[list[str]]:
    """Return a row for each metric, with a cell for each model."""
    return [
        [metric, *(_interval(intervals[name][metric], sign) for name in names)]
        for metric in intervals[names[0]]
    ]


def _interval(own: Interval, sign: str) -> Html:
    form = f"{sign}.4f"
    lines = [f"[{number(own.lower, form)}, {number(own.upper, form)}]"]
    if own.p_value is not None:
        lines.append(p_text(own.p_value))
    return _cell(number(own.value, form), lines)


def _tested(test: CalibrationTest, form: str) -> Html:
    return _cell(number(test.statistic, form), [p_text(test.p_value)])


def _cell(value: str, lines: list[str]) -> Html:
    """Return a cell of a table: a value, and what is said of it below."""
    below = "".join(f'<span class="below">{escape(line)}</span>' for line in lines)
    return Html(f"{escape(value)}{below}")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # used from its sources
        return "unknown"
