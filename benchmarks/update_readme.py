"""Write the figures of README.md and of pages of docs/ from the results kept in benchmarks/results.

    python benchmarks/update_readme.py [--check]

A table stands between ``<!-- figures: NAME -->`` and ``<!-- end -->``, a figure within a line
between ``<!-- = EXPRESSION -->`` and ``<!-- end -->``, where the expression is one of functions of
``benchmarks/figures.py``; everything else is left as it is. With --check nothing is changed, and
what is not that of the results is an error.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import figures, page_tables  # noqa: E402
from benchmarks.figures import (  # noqa: E402
    against,
    in_units,
    result,
    rival,
    seconds,
    share,
    table,
    timed,
)

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/benchmarks/*.md",
    "docs/explanation/*.md",
)
MARKED = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
INLINE = re.compile(r"(<!-- = (.*?) -->).*?(<!-- end -->)", re.DOTALL)

# --- the tree -----------------------------------------------------------------------------------


def tree() -> str:
    """Draw the layers, lowest first, and their folders, each with its docstring and its modules."""
    rules = (ROOT / "tests" / "test_architecture.py").read_text("utf-8")
    (layers,) = re.findall(r"^LAYERS = (\(.*?\))", rules, re.DOTALL | re.MULTILINE)
    lines = []
    for layer in ast.literal_eval(layers):
        place = ROOT / "bayescal" / layer
        if not place.is_dir():
            lines.append(f"{layer + '.py':<44}{first_line(place.with_suffix('.py'))}")
            continue
        for folder in sorted(path.parent for path in place.rglob("__init__.py")):
            name = f"{folder.relative_to(ROOT / 'bayescal')}/"
            lines.append(f"{name:<44}{first_line(folder / '__init__.py')}")
            modules = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
            lines += textwrap.wrap(
                ", ".join(modules), 150, initial_indent=" " * 8, subsequent_indent=" " * 8
            )
    return "```text\n" + "\n".join(lines) + "\n```"


def first_line(path: Path) -> str:
    """Read the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]


# --- accuracy -----------------------------------------------------------------------------------


def arena() -> str:
    names = {
        "uncalibrated": "uncalibrated",
        "peer temp-scaling": "temperature scaling",
        "peer isotonic": "isotonic regression (one against the rest)",
        "peer ivap": "Venn-Abers",
        "peer beta": "beta",
        "peer svs": "structured vector scaling",
        "peer sms": "structured matrix scaling",
    }
    rows = []
    for key, name in names.items():
        row = [name]
        for kind in ("binary", "several classes"):
            if key not in result("arena")["comparisons"][kind]:
                row += ["", ""]
                continue
            loss, score = (against("arena", kind, key, m) for m in ("log_loss", "brier_score"))
            row += [f"{share(loss['win_rate'])}, {share(score['win_rate'])}", in_units(loss)]
        rows.append(row)
    heads = ["against", "binary: log loss, Brier", "difference"]
    return table([*heads, "networks: log loss, Brier", "difference"], rows)


FRESH = {
    "several classes, below 100 rows": "3 to 10 classes, 50 to 99",
    "several classes, 100 to 999 rows": "3 to 10 classes, 100 to 499",
    "binary, below 100 rows": "two classes, 50 to 99",
    "binary, 100 to 999 rows": "two classes, 100 to 999",
    "binary, from 1,000 rows": "two classes, 1,000 to 5,000",
}


def fresh() -> str:
    rows = []
    for kind, name in FRESH.items():
        row = []
        for other in ("probmetrics svs", "probmetrics sms"):
            both = [against("arena_fresh", kind, other, m) for m in ("log_loss", "brier_score")]
            row.append(", ".join(share(found["win_rate"]) for found in both))
            row.append(", ".join(in_units(found) for found in both))
        rows.append([f"{name} ({both[0]['experiments']})", *row])
    heads = ["rows to calibrate on (experiments)", "against SVS", "difference"]
    return table([*heads, "against SMS", "difference"], rows)


OTHERS = {
    "probmetrics temp-scaling": "temperature",
    "probmetrics isotonic": "isotonic",
    "probmetrics svs": "structured vector",
    "probmetrics sms": "structured matrix",
}


def which() -> str:
    rows = [
        [title, *(share(against("arena_fresh", kind, key)["win_rate"]) for key in OTHERS)]
        for kind, title in FRESH.items()
    ]
    return table(["`Auto` against", *OTHERS.values()], rows)


def helps() -> str:
    rows = []
    for kind, title in FRESH.items():
        found = result("arena_fresh")["improvements"][kind]
        wins = [share(found[key]["log_loss"]["win_rate"]) for key in ("auto", *OTHERS)]
        rows.append([title, *wins])
    return table(["better than no calibration", "`Auto`", *OTHERS.values()], rows)


# --- speed --------------------------------------------------------------------------------------


def fits(study: str, tasks: dict[str, tuple[str, str]], head: str, *also: str) -> str:
    rows = []
    for task, (name, size) in tasks.items():
        own = timed(study, task, "bayescal")
        times = [seconds(own[key]) for key in ("first_s", "warm_s")]
        rows.append([name, size, *times, rival(study, task, also)])
    return table(["fit", head, "bayescal, first", "bayescal", "fastest other library"], rows)


def binary() -> str:
    tasks = {
        "temperature 1e4": ("temperature", "1e4"),
        "logistic 1e4": ("logistic", "1e4"),
        "logistic 1e6": ("logistic", "1e6"),
        "beta 1e4": ("beta", "1e4"),
        "beta 1e6": ("beta", "1e6"),
        "isotonic 1e4": ("isotonic", "1e4"),
        "isotonic 1e6": ("isotonic", "1e6"),
        "spline 1e4": ("spline, cross-validated", "1e4"),
        "CDF spline 1e4": ("CDF spline", "1e4"),
        "width bins 1e6": ("15 bins of equal width", "1e6"),
        "mass bins 1e6": ("15 bins of equal mass", "1e6"),
        "BBQ 1e4": ("BBQ", "1e4"),
        "Venn-Abers 1e4": ("Venn-Abers, fit and predict", "1e4"),
        "NUTS logistic 1e4": ("NUTS, 4 chains (NumPyro: one, shorter)", "1e4"),
    }
    return fits("bench_binary", tasks, "rows")


def multiclass() -> str:
    tasks = {
        f"{task} {size}": (name, " x ".join(f"{int(part):,}" for part in size.split("x")))
        for task, name, size in (
            ("temperature", "temperature", "5000x10"),
            ("temperature", "temperature", "10000x100"),
            ("temperature", "temperature", "25000x1000"),
            ("vector", "vector", "5000x10"),
            ("vector", "vector", "5000x100"),
            ("SVS", "structured vector", "5000x10"),
            ("SVS", "structured vector", "5000x100"),
            ("SMS", "structured matrix", "5000x10"),
            ("SMS", "structured matrix", "5000x100"),
            ("matrix", "matrix", "5000x10"),
            ("dirichlet", "Dirichlet, penalized", "5000x10"),
            ("dirichlet", "Dirichlet, penalized", "5000x100"),
        )
    }
    return fits("bench_multiclass", tasks, "rows x classes", "scipy")


def auto() -> str:
    rows = []
    for size in ("100", "1,000", "10,000", "1,000,000", "10,000,000"):
        rows.append(["`Auto()`", f"{size} x 2", *auto_row(f"two classes, {size} rows", "Auto()")])
    for k, n in (("10", "5,000"), ("100", "5,000"), ("1000", "25,000")):
        for mode in ("stack", "single"):
            cells = auto_row(f"{k} classes, {n} rows", f"StackedScaling('{mode}')")
            rows.append([f'`StackedScaling("{mode}")`', f"{n} x {int(k):,}", *cells])
    return table(["fit", "rows x classes", "bayescal, first", "bayescal", "SVS", "SMS"], rows)


def auto_row(task: str, what: str) -> list[str]:
    own = timed("bench_auto", task, "bayescal", what)
    others = {r["what"]: r for r in result("bench_auto")["rows"] if r["task"] == task}
    peers = [others.get(f"{name}Calibrator") for name in ("SVS", "SMS")]
    cells = [seconds(own["first_s"]), seconds(own["warm_s"])]
    return [*cells, *(seconds(peer["warm_s"]) if peer else "" for peer in peers)]


def functions() -> str:
    rows = []
    for task in (
        "Temperature 100,000 x 100",
        "Temperature 1,000,000 x 10",
        "Vector 100,000 x 100",
        "Dirichlet 1,000,000 x 10",
        "Beta 1,000,000 x 1",
    ):
        row = [f"`{task.split()[0]}`, {task.split(maxsplit=1)[1]}"]
        for library in ("JAX", "PyTorch"):
            both = (
                timed("bench_functions", f"{task}, {library}", o) for o in ("bayescal", library)
            )
            row.append(" / ".join(seconds(each["warm_s"]) for each in both))
        rows.append(row)
    return table(["", "JAX: ours / by hand", "PyTorch: ours / by hand"], rows)


def posterior() -> str:
    found = result("bench_posterior")["results"]
    numpy = found["numpy:100000"]["run_s"]
    rows = [
        ["NumPy loop over the draws", seconds(numpy), f"{1000 * numpy:,.0f} s (one, times 1,000)"]
    ]
    names = {"montecarlo": "", "quadrature": ", without Monte-Carlo error"}
    for name, more in names.items():
        times = (seconds(found[f"{many}:{name},all"]["warm_s"]) for many in ("one", "many"))
        rows.append([f'`"{name}"`{more}', *times])
    return table(["all four methods", "one data set", "1,000 data sets"], rows)


# --- README -------------------------------------------------------------------------------------


def why() -> str:
    multiclass, binary = (
        against("arena_fresh", kind, "probmetrics svs") for kind in ("several classes", "binary")
    )
    auto = timed("bench_auto", "two classes, 1,000,000 rows", "bayescal", "Auto()")
    svs = timed("bench_auto", "two classes, 1,000,000 rows", "probmetrics", "SVSCalibrator")
    posteriors = result("bench_posterior")["results"]
    rows = [
        [
            f"share of {study['experiments']} {kind} experiments in which `Auto` has a lower log "
            "loss than structured vector scaling",
            f"{100 * study['win_rate']:.0f} %",
            "",
            "`python -m benchmarks.studies arena --data DIR`",
        ]
        for kind, study in (("multi-class", multiclass), ("binary", binary))
    ]
    rows += [
        [
            "fit `Auto` to a million rows; alternative: structured vector scaling (probmetrics)",
            seconds(auto["warm_s"]),
            seconds(svs["warm_s"]),
            "`python benchmarks/bench_auto.py`",
        ],
        [
            "one posterior of 100,000 draws, with predictions; alternative: a NumPy loop",
            seconds(posteriors["one:montecarlo,all"]["warm_s"]),
            seconds(posteriors["numpy:100000"]["run_s"]),
            "`python benchmarks/bench_posterior.py`",
        ],
    ]
    return table(["benchmark, on two cores", "bayescal", "alternative", "command"], rows)


TABLES: dict[str, Callable[[], str]] = {
    f.__name__: f
    for f in (arena, auto, binary, fresh, functions, helps, multiclass, posterior, tree, which, why)
} | page_tables.TABLES


def updated(text: str) -> str:
    """Return a page with the tables and figures of the results."""
    text = MARKED.sub(lambda m: f"{m[1]}{TABLES[m[2]]()}\n{m[3]}", text)
    return INLINE.sub(lambda m: f"{m[1]}{eval(m[2], vars(figures).copy())}{m[3]}", text)


def main(arguments: list[str]) -> int:
    stale = []
    for path in (path for pattern in PAGES for path in sorted(ROOT.glob(pattern))):
        text = path.read_text("utf-8")
        if (new := updated(text)) != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in arguments:
                path.write_text(new, "utf-8")
    check = "--check" in arguments
    for name in stale:
        print(f"{name}: {'tables are not those of the results' if check else 'updated'}")
    return bool(stale) and check


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
