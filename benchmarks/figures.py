"""Format stored results (benchmarks/results) as text for pages: functions shared by all tables."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
SPELLED = {"scipy": "SciPy's L-BFGS-B, with gradient", "numpyro": "NumPyro"}


@cache
def result(name: str) -> Any:
    """Read a result file."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Format a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def seconds(value: float) -> str:
    """Format a time in seconds, milliseconds or microseconds."""
    if value >= 9.95:
        return f"{value:,.0f} s"
    if value >= 0.995:
        return f"{value:.1f} s"
    if value >= 0.00995:
        return f"{1e3 * value:.0f} ms"
    return f"{1e3 * value:.1f} ms" if value >= 9.95e-4 else f"{1e6 * value:.0f} µs"


def share(value: float, digits: int = 2) -> str:
    """Format a number between 0 and 1."""
    return f"{value:.{digits}f}"


def number(value: float, digits: int = 0) -> str:
    """Format a number with separators of thousands."""
    return f"{value:,.{digits}f}"


def p_text(value: float) -> str:
    """Format a p-value."""
    return "p < 0.001" if value < 0.001 else f"p {value:.3f}"


def two_digits(value: float) -> str:
    """Format a number with two significant digits, never in scientific notation."""
    return number(value, 0 if value >= 9.95 else 1 if value >= 0.995 else 2)


# --- accuracy -----------------------------------------------------------------------------------


def against(study: str, kind: str, other: str, metric: str = "log_loss") -> dict[str, Any]:
    """Read the comparison of ``Auto`` with another method."""
    return result(study)["comparisons"][kind][other][metric]


def wins(study: str, kind: str, other: str, metric: str = "log_loss") -> str:
    """Format the share of comparisons with another method that ``Auto`` wins."""
    return share(against(study, kind, other, metric)["win_rate"])


def in_units(comparison: dict[str, Any]) -> str:
    """Format a mean difference and its standard error in units of 0.0001."""
    return f"{1e4 * comparison['difference']:.0f} ± {1e4 * comparison['error']:.0f}"


def win_rate(study: str, kind: str, method: str) -> str:
    """Format the share of comparisons that a method wins against all other methods by log loss."""
    return share(result(study)["means"][kind]["methods"][method]["log_loss_win_rate"])


def improvement(study: str, kind: str, method: str, metric: str) -> str:
    """Format the mean improvement of a metric by a method."""
    return share(result(study)["improvements"][kind][method][metric]["difference"], 3)


# --- speed --------------------------------------------------------------------------------------


def timed(study: str, task: str, library: str, what: str | None = None) -> dict[str, Any]:
    """Find the only row of a task and library.

    ``what`` selects among several rows of the library by their description.
    """
    candidates = [r for r in result(study)["rows"] if r["task"] == task and r["library"] == library]
    rows = [row for row in candidates if what is None or row["what"] == what]
    if len(rows) != 1:
        raise ValueError(f"expected one row of {task}, {library}, {what} in {study} but got {rows}")
    return rows[0]


def memory(study: str, task: str, library: str, what: str) -> str:
    """Format the peak memory of a task in MB."""
    return number(timed(study, task, library, what)["peak_mb"])


def fastest(study: str, task: str, also: tuple[str, ...] = ()) -> dict[str, Any] | None:
    """Find the row of the fastest other library, or None if there is none.

    NumPy and SciPy are not counted unless ``also`` names them.
    """
    others = [
        row
        for row in result(study)["rows"]
        if row["task"] == task and row["library"] not in {"bayescal", "numpy", "scipy"} - {*also}
    ]
    return min(others, key=lambda row: row["warm_s"], default=None)


def rival(study: str, task: str, also: tuple[str, ...] = ()) -> tuple[str, str]:
    """Format the time and the name of the fastest other library."""
    best = fastest(study, task, also)
    if best is None:
        return "", ""
    name = str(best["library"])
    return seconds(best["warm_s"]), SPELLED.get(name, name)


def posteriors(task: str) -> dict[str, Any]:
    """Read the times of one task of the posterior benchmark."""
    return result("bench_posterior")["results"][task]


def scale(job: str, **given: object) -> dict[str, Any]:
    """Find the cost of an out-of-core job, by default with 1e8 rows."""
    wanted = {"job": job, **(given or {"rows": 100_000_000})}
    (row,) = (r for r in result("bench_scale")["results"] if wanted.items() <= r.items())
    return row


def cpu_ns(job: str) -> float:
    """Compute the processor time for each row and pass, in nanoseconds."""
    row = scale(job)
    return 1e9 * row["cpu"] / (row["rows"] * row["passes"])


def core_hours(job: str, rows: float) -> float:
    """Extrapolate the processor time of a job to a number of rows, in hours."""
    return rows * scale(job)["passes"] * cpu_ns(job) / 1e9 / 3600


def of_loop(integrator: str) -> str:
    """Format the processor time of a grid of priors relative to a loop over them."""
    grid, loop = (
        result("bench_grid")["results"][integrator][method] for method in ("grid", "loop")
    )
    return share(grid["warm_cpu_s"] / loop["warm_cpu_s"])


def on_device(job: str, device: str = "cpu") -> dict[str, Any]:
    """Find the row of a job on a device."""
    (row,) = (row for row in result(f"device_{device}")["rows"] if row["job"] == job)
    return row


# --- tests --------------------------------------------------------------------------------------


def branches() -> str:
    """Format the percentage of branches of the package that the fast tests cover."""
    return f"{100 * result('branches')['folders']['all']['branches']:.1f} %"


def branches_of_all_tests() -> str:
    """Format the percentage of branches that more tests cover.

    These are the fast tests, the comparisons with other libraries, and some slow tests.
    """
    return f"{100 * result('branches_all')['folders']['all']['branches']:.1f} %"


def branches_left() -> str:
    """Count the branches that the fast, comparison and slow tests do not cover."""
    counts = result("branches_all")["folders"]["all"]
    return number(counts["num_branches"] - counts["covered_branches"])


def number_of_branches() -> str:
    """Count the branches of the package."""
    return number(result("branches")["folders"]["all"]["num_branches"])


def mutants() -> str:
    """Count the judged mutants that alter results."""
    return number(result("mutants")["summary"]["judged"])


def noticed_mutants() -> str:
    """Format the percentage of judged mutants that the fast tests killed."""
    summary = result("mutants")["summary"]
    return f"{100 * summary['killed'] / summary['judged']:.0f} %"


def judged_mutants() -> str:
    """Count the mutants that were judged, with those that are equivalent."""
    return number(len(result("mutants")["mutants"]))


def equivalent_mutants() -> str:
    """Count the mutants that are equivalent to the original program."""
    return number(len(result("mutants")["equivalent"]))


def golden_files() -> str:
    """Count the calibrators and monitors with a golden file of version 0.1.0."""
    folder = RESULTS.parents[1] / "tests" / "golden" / "files"
    return number(len({path.stem for path in folder.iterdir()}))
