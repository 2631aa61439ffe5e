"""Results kept in benchmarks/results, as texts for pages: what their tables and figures share."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
SPELLED = {"scipy": "SciPy's L-BFGS-B, with gradient", "numpyro": "NumPyro"}


@cache
def result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def seconds(value: float) -> str:
    if value >= 9.95:
        return f"{value:,.0f} s"
    if value >= 0.995:
        return f"{value:.1f} s"
    return f"{1000 * value:.0f} ms" if value >= 0.00995 else f"{1000 * value:.1f} ms"


def share(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}"


def number(value: float, digits: int = 0) -> str:
    return f"{value:,.{digits}f}"


def p_text(value: float) -> str:
    """Return a p-value in words."""
    return "p < 0.001" if value < 0.001 else f"p {value:.3f}"


def two_digits(value: float) -> str:
    """Return a number with two significant digits, never in powers of ten."""
    return number(value, 0 if value >= 9.95 else 1 if value >= 0.995 else 2)


# --- accuracy -----------------------------------------------------------------------------------


def against(study: str, kind: str, other: str, metric: str = "log_loss") -> dict[str, Any]:
    return result(study)["comparisons"][kind][other][metric]


def wins(study: str, kind: str, other: str, metric: str = "log_loss") -> str:
    return share(against(study, kind, other, metric)["win_rate"])


def in_units(found: dict[str, Any]) -> str:
    """Return a mean difference and its standard error in units of 0.0001."""
    return f"{1e4 * found['difference']:.0f} ± {1e4 * found['error']:.0f}"


def win_rate(study: str, kind: str, method: str) -> str:
    """Return the share of comparisons with all other methods that one wins by log loss."""
    return share(result(study)["means"][kind]["methods"][method]["log_loss_win_rate"])


def improvement(study: str, kind: str, method: str, metric: str) -> str:
    return share(result(study)["improvements"][kind][method][metric]["difference"], 3)


# --- speed --------------------------------------------------------------------------------------


def timed(study: str, task: str, library: str, what: str | None = None) -> dict[str, Any]:
    """Return the only row of a task and library, or that of them which says what it did."""
    found = [r for r in result(study)["rows"] if r["task"] == task and r["library"] == library]
    chosen = [row for row in found if what is None or row["what"] == what]
    if len(chosen) != 1:
        raise ValueError(f"{study} must have one row of {task}, {library}, {what}; got {chosen}")
    return chosen[0]


def memory(study: str, task: str, library: str, what: str) -> str:
    return number(timed(study, task, library, what)["peak_mb"])


def fastest(study: str, task: str, also: tuple[str, ...] = ()) -> dict[str, Any] | None:
    """Return the row of the fastest other library, if there is one."""
    others = [
        row
        for row in result(study)["rows"]
        if row["task"] == task and row["library"] not in {"bayescal", "numpy", "scipy"} - {*also}
    ]
    return min(others, key=lambda row: row["warm_s"], default=None)


def rival(study: str, task: str, also: tuple[str, ...] = ()) -> tuple[str, str]:
    """Return the time of the fastest other library, and its name."""
    best = fastest(study, task, also)
    if best is None:
        return "", ""
    name = str(best["library"])
    return seconds(best["warm_s"]), SPELLED.get(name, name)


def posteriors(task: str) -> dict[str, Any]:
    return result("bench_posterior")["results"][task]


def scale(job: str, **given: object) -> dict[str, Any]:
    """Return what a job cost, with 1e8 rows where nothing else is said."""
    wanted = {"job": job, **(given or {"rows": 100_000_000})}
    (found,) = (r for r in result("bench_scale")["results"] if wanted.items() <= r.items())
    return found


def cpu_ns(job: str) -> float:
    """Return nanoseconds of processor time for each row and pass."""
    found = scale(job)
    return 1e9 * found["cpu"] / (found["rows"] * found["passes"])


def core_hours(job: str, rows: float) -> float:
    return rows * scale(job)["passes"] * cpu_ns(job) / 1e9 / 3600


def of_loop(integrator: str) -> str:
    """Return the processor time of a grid of priors as a share of that of a loop over them."""
    grid, loop = (result("bench_grid")["results"][integrator][way] for way in ("grid", "loop"))
    return share(grid["warm_cpu_s"] / loop["warm_cpu_s"])


def on_device(job: str, device: str = "cpu") -> dict[str, Any]:
    (row,) = (row for row in result(f"device_{device}")["rows"] if row["job"] == job)
    return row


# --- proof --------------------------------------------------------------------------------------


def branches() -> str:
    """Return the share of branches of the package that the fast tests take."""
    return f"{100 * result('branches')['folders']['all']['branches']:.1f} %"


def branches_of_all_tests() -> str:
    """Return the share that fast tests, tests beside other libraries and some slow ones take."""
    return f"{100 * result('branches_all')['folders']['all']['branches']:.1f} %"


def branches_left() -> str:
    """Count the branches that none of these tests take."""
    counts = result("branches_all")["folders"]["all"]
    return number(counts["num_branches"] - counts["covered_branches"])


def number_of_branches() -> str:
    """Count the branches of the package."""
    return number(result("branches")["folders"]["all"]["num_branches"])


def mutants() -> str:
    """Count the changed programs that tests had a chance to notice."""
    return number(result("mutants")["summary"]["judged"])


def noticed_mutants() -> str:
    """Return the share of the changed programs that the fast tests noticed."""
    summary = result("mutants")["summary"]
    return f"{100 * summary['killed'] / summary['judged']:.0f} %"


def equivalent_mutants() -> str:
    """Count the changed programs that compute the same."""
    return number(len(result("mutants")["equivalent"]))


def golden_files() -> str:
    """Count the stored files of version 0.1.0."""
    folder = RESULTS.parents[1] / "tests" / "golden" / "files"
    return number(len({path.stem for path in folder.iterdir()}))
