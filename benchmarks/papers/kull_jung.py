"""M. Kull et al. (2019) and S. Jung et al. (2023), whose networks' predictions are available."""

from __future__ import annotations

from functools import cache
from typing import Any

from benchmarks.figures import table
from benchmarks.papers._common import Finding, Page, Row, agreement, bullets, comparison_table, read
from benchmarks.papers._networks import METRICS, NETWORKS, all_figures, network_tables, remarks

_METRICS = METRICS | {
    "class_wise_ece": "class-wise ECE, summed",
    "maximum_error": "maximum calibration error",
}
_MAPS = {"temperature": "temperature", "ensemble": "ensemble_temperature"}


@cache
def _study() -> dict[str, Any]:
    return read("kull")


def page() -> Page:
    """Write the page."""
    text = f"""\
## Kull et al. (2019)

With penalties that cross-validation chooses here:

{network_tables("Kull")}

{bullets(remarks("Kull"))}

The next table uses the penalties that the paper prints for this network (off-diagonal and
intercept: Dirichlet {_strengths("dirichlet_odir")}, matrix {_strengths("matrix_odir")}). "All rows"
is one fit to all rows. "Five folds" follows the paper: it averages the probabilities of five fits,
each to four of five folds, and the table shows the smallest and largest value over
{len(_study()["methods"]["temperature"]["folds"])} divisions. The division that the paper used is
not published. To repeat the study, run `python -m benchmarks.studies kull`.

{_by_folds()}

- The class-wise error is the sum over classes, in 14 bins, because the paper has 15 borders.
- {_explained()}

The other networks of tables 3, 4 and 13 to 18 are not available.

## Jung et al. (2023)

{network_tables("SCTL")}

Temperature and ensemble temperature scaling fitted by cross-entropy ("CE"), and accuracy, for the
three networks that are available:

{comparison_table(_logs())}

- Temperatures: the logged temperatures do not minimize the log loss. Ours do; that of DenseNet-40
  gives the six figures of Kull et al. above.
- Ensemble temperature: the logged errors are within 0.0001 of those of one temperature, as if all
  weight were on the scaled probabilities. At the minimum of the log loss their weight is
  {_mixtures()}.
- bayescal does not have class-wise and parametrized temperatures, nor fits by the losses that the
  paper proposes.
"""
    first = [row for row, _ in _rows() if row.what.startswith(("`uncal", "`temp"))]
    others = [pair for pair in _rows() if not pair[0].what.startswith(("`uncal", "`temp"))]
    num_within = sum(within for _, within in others)
    findings = [
        agreement(
            "Kull et al., tables 3 and 13 to 18, penalties by cross-validation", all_figures("Kull")
        ),
        agreement("Kull et al., uncalibrated and temperature scaling, six metrics", first),
        Finding(
            "Kull et al., ODIR and vector scaling, published penalties and five folds",
            f"{len(others)} figures",
            f"{num_within} within what divisions give",
            "agrees"
            if num_within == len(others)
            else f"others by up to {max(_apart(row) for row, within in others if not within):.1%}",
        ),
        Finding("Kull et al., other networks", "13 networks", "none", "not available"),
        agreement("Jung et al., temperature scaling", all_figures("SCTL")),
        agreement("Jung et al., ensemble temperature and accuracy", _logs()),
        Finding("Jung et al., losses by class", "logged", "none", "not in this library"),
    ]
    return Page("kull-jung", "Kull et al. (2019) and Jung et al. (2023)", text, findings)


def _mixtures() -> str:
    first = [facts["whole"]["mixture"][0] for facts in _study()["sctl"].values()]
    return ", ".join(f"{weight:.3f}" for weight in first)


def _strengths(method: str) -> str:
    return " and ".join(f"{value:g}" for value in _study()["strengths"][method])


def _rows() -> list[tuple[Row, bool]]:
    """Compare published figures with fits to all rows, and check if five folds explain them."""
    rows = []
    for method, facts in _study()["methods"].items():
        for key, value in facts["published"].items():
            unit = _study()["units"][key]
            row = Row(f"`{method}`, {_METRICS[key]}", value, facts["whole"][key], unit)
            values = [fold[key] for fold in facts.get("folds", [facts["whole"]])]
            within = min(values) - 1.001 * unit <= value <= max(values) + 1.001 * unit
            rows.append((row, within))
    return rows


def _by_folds() -> str:
    """Arrange published figures, fits to all rows and ranges of five folds as a table."""
    rows = []
    for row, inside in _rows():
        method, metric = row.what.split(", ", 1)
        folds = _study()["methods"][method.strip("`")].get("folds")
        key = next(key for key, name in _METRICS.items() if name == metric)
        cells = row.cells()
        digits = len(cells[1].partition(".")[2])
        values = [fold[key] for fold in folds or ()]
        value_range = f"{min(values):.{digits}f} to {max(values):.{digits}f}" if values else ""
        rows.append([*cells[:3], value_range, "agrees" if inside or row.agrees else cells[3]])
    return table(["", "published", "all rows", "five folds", ""], rows)


def _apart(row: Row) -> float:
    return abs(row.ours / row.published - 1)


def _explained() -> str:
    """Explain the remaining differences of log losses, in sentences."""
    default_differences = {r.what: abs(r.ours - r.published) for r in all_figures("Kull")}
    lines = []
    for method in ("dirichlet_odir", "matrix_odir"):
        what = f"`{method}`, log loss"
        (row,) = [row for row, _ in _rows() if row.what == what]
        difference = abs(row.ours - row.published)
        lines.append(f"{default_differences[what]:.6f} to {difference:.6f} ({method})")
    text = (
        "The published strengths bring the log loss closer, from a difference of "
        f"{' and '.join(lines)}."
    )
    for method, facts in _study()["stopped"].items():
        published = _study()["methods"][method]["published"]["log_loss"]
        text += (
            f" Of `{method}`, steps of the gradient (Adam, from the identity) have a log loss of "
            f"{facts['log_loss']:.6f} after {facts['steps']}, for the published {published:.6f}; "
            f"the objective is {facts['excess']:.0e} above its least there, where the log loss is "
            f"{facts['least_log_loss']:.6f}."
        )
    return f"{text} A fit that stops early therefore explains the remaining difference."


def _logs() -> list[Row]:
    """Compare the logged figures of Jung et al. with ours."""
    rows = []
    for name, facts in _study()["sctl"].items():
        published, ours = facts["published"], facts["whole"]
        rows.append(
            Row(f"{NETWORKS[name]}, accuracy", published["accuracy"], ours["accuracy"], 1e-4)
        )
        what = f"{NETWORKS[name]}, `{_MAPS['ensemble']}`, ECE, 15 bins"
        rows.append(Row(what, published["ensemble"], ours["ensemble"], 1e-4))
    return rows
