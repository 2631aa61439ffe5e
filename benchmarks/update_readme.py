"""Write the figures in README.md and in pages of docs/ from the results in benchmarks/results.

    python benchmarks/update_readme.py [--check]

Tables are between ``<!-- figures: NAME -->`` and ``<!-- end -->``. Figures within a line are
between ``<!-- = EXPRESSION -->`` and ``<!-- end -->``; expressions call the functions of
``benchmarks/figures.py``. All other text is unchanged. With --check no file is changed, and figures
that differ from the results are an error.
"""

from __future__ import annotations

import argparse
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
    """List the layers, lowest first, with their folders, docstrings and modules."""
    rules = (ROOT / "tests" / "test_architecture.py").read_text("utf-8")
    (layers,) = re.findall(r"^LAYERS = (\(.*?\))", rules, re.DOTALL | re.MULTILINE)
    lines = []
    for layer in ast.literal_eval(layers):
        path = ROOT / "bayescal" / layer
        if not path.is_dir():
            lines.append(f"{layer + '.py':<44}{first_line(path.with_suffix('.py'))}")
            continue
        for folder in sorted(init.parent for init in path.rglob("__init__.py")):
            name = f"{folder.relative_to(ROOT / 'bayescal')}/"
            lines.append(f"{name:<44}{first_line(folder / '__init__.py')}")
            modules = sorted(file.stem for file in folder.glob("*.py") if file.stem != "__init__")
            lines += textwrap.wrap(
                ", ".join(modules), 150, initial_indent=" " * 8, subsequent_indent=" " * 8
            )
    return "```text\n" + "\n".join(lines) + "\n```"


def first_line(path: Path) -> str:
    """Read the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]


# --- accuracy -----------------------------------------------------------------------------------


def arena() -> str:
    """Compare ``Auto`` with other methods on binary tables and on networks."""
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
                row += ["", "", ""]
                continue
            loss, score = (against("arena", kind, key, m) for m in ("log_loss", "brier_score"))
            row += [share(loss["win_rate"]), share(score["win_rate"]), in_units(loss)]
        rows.append(row)
    heads = [
        f"{kind}: {head}"
        for kind in ("binary", "networks")
        for head in ("wins by log loss", "wins by Brier score", "log loss difference")
    ]
    return table(["`Auto` against", *heads], rows)


FRESH = {
    "several classes, below 100 rows": "multi-class, 50 to 99",
    "several classes, 100 to 999 rows": "multi-class, 100 to 499",
    "binary, below 100 rows": "binary, 50 to 99",
    "binary, 100 to 999 rows": "binary, 100 to 999",
    "binary, from 1,000 rows": "binary, 1,000 to 5,000",
}


def fresh(study: str = "arena_fresh") -> str:
    """Compare ``Auto`` with SVS and SMS on held-out experiments."""
    rows = []
    for kind, name in FRESH.items():
        for opponent in ("svs", "sms"):
            loss, score = (
                against(study, kind, f"probmetrics {opponent}", metric)
                for metric in ("log_loss", "brier_score")
            )
            wins = (share(study["win_rate"]) for study in (loss, score))
            differences = (in_units(study) for study in (loss, score))
            rows.append([name, str(loss["experiments"]), opponent.upper(), *wins, *differences])
    heads = ["problem, calibration rows", "experiments", "`Auto` against", "wins by log loss"]
    heads += ["wins by Brier score", "log loss difference", "Brier score difference"]
    return table(heads, rows)


def tied() -> str:
    """Compare ``Auto`` with SVS and SMS on scores with ties or a skew."""
    return fresh("arena_tied")


def harm() -> str:
    """List how often calibration increases the log loss of new rows."""
    methods = {"auto": "`Auto`", "probmetrics svs": "SVS", "probmetrics sms": "SMS"}
    rows = []
    for kind, name in FRESH.items():
        shares = []
        for study in ("arena_fresh", "arena_tied"):
            improved = result(study)["improvements"][kind]
            shares += [share(improved[key]["log_loss"]["loss_rate"]) for key in methods]
        rows.append([name, *shares])
    titles = ("held-out", "ties and skew")
    heads = [f"{title}: {name}" for title in titles for name in methods.values()]
    return table(["problem, calibration rows", *heads], rows)


OTHERS = {
    "probmetrics temp-scaling": "temperature",
    "probmetrics isotonic": "isotonic",
    "probmetrics svs": "structured vector",
    "probmetrics sms": "structured matrix",
}


def which() -> str:
    """List how often ``Auto`` wins against other methods on held-out experiments."""
    rows = [
        [title, *(share(against("arena_fresh", kind, key)["win_rate"]) for key in OTHERS)]
        for kind, title in FRESH.items()
    ]
    heads = (f"wins against {name}" for name in OTHERS.values())
    return table(["problem, calibration rows", *heads], rows)


def helps() -> str:
    """List how often calibration decreases the log loss in held-out experiments."""
    rows = []
    for kind, title in FRESH.items():
        improvements = result("arena_fresh")["improvements"][kind]
        wins = [share(improvements[key]["log_loss"]["win_rate"]) for key in ("auto", *OTHERS)]
        rows.append([title, *wins])
    return table(["problem, calibration rows", "`Auto`", *OTHERS.values()], rows)


# --- speed --------------------------------------------------------------------------------------


def fits(study: str, tasks: dict[str, tuple[str, str]], head: str, *also: str) -> str:
    """Compare the times of fits with the fastest alternative."""
    rows = []
    for task, (name, size) in tasks.items():
        row = timed(study, task, "bayescal")
        times = [seconds(row[key]) for key in ("first_s", "warm_s")]
        rows.append([name, size, *times, *rival(study, task, also)])
    heads = [
        "fit",
        head,
        "bayescal, first fit",
        "bayescal",
        "fastest alternative",
        "alternative library",
    ]
    return table(heads, rows)


#: Names and sizes of timed fits, by task.
BINARY = {
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
MULTICLASS = {
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


PREDICTIONS = "predict_proba", "as_function"


def binary() -> str:
    """Compare the times of binary calibrators."""
    return fits("bench_binary", BINARY, "rows")


def predictions() -> str:
    """Compare the times of predictions by fitted binary calibrators."""
    rows = []
    for name, sizes in (
        ("Logistic", (1, 1_000)),
        ("Isotonic", (1, 1_000)),
        ("Auto", (1, 1_000, 10_000, 1_000_000)),
    ):
        other, library = ("probmetrics", "SVS") if name == "Auto" else ("scikit-learn",) * 2
        for n in sizes:
            task = f"predict {name} {n}"
            timings = [timed("bench_binary", task, "bayescal", w) for w in PREDICTIONS]
            timings.append(timed("bench_binary", task, other))
            rows.append([f"`{name}`", f"{n:,}", *(seconds(t["warm_s"]) for t in timings), library])
    heads = [*(f"`{name}`" for name in PREDICTIONS), "alternative", "alternative library"]
    return table(["map", "rows", *heads], rows)


def startup() -> str:
    """List the times of first calls of a process."""
    names = {
        "import numpy": "`import numpy`",
        "import sklearn.calibration": "`import sklearn.calibration`",
        "import bayescal": "`import bayescal`",
        "fit and predict Beta": "fit `Beta` to 999 rows, predict them",
        "fit and predict Auto": "fit `Auto` to 999 rows, predict them",
        "data of 1e6 x 10": "draw 1e6 x 10 probabilities with NumPy",
        "ece of 1e6 x 10": "... and compute their ECE",
        "fit Kernel to 10,000 x 10": "fit `Kernel` to 10,000 x 10, predict 1,000 rows",
        "smooth 10,000 labels by density estimates": "smooth 10,000 labels by density estimates",
        "posterior_predict": "`posterior_predict`, 50 observations, 100 points",
    }
    times = result("bench_import")
    rows = [
        [text, seconds(times["median_s"][name]), seconds(times["least_processor_s"][name])]
        for name, text in names.items()
    ]
    return table(["process", "median wall time", "minimum processor time"], rows)


def multiclass() -> str:
    """Compare the times of multi-class calibrators."""
    return fits("bench_multiclass", MULTICLASS, "rows x classes", "scipy")


def auto() -> str:
    """Compare the times of the default calibrators with SVS and SMS."""
    rows = []
    for size in ("100", "1,000", "10,000", "1,000,000", "10,000,000"):
        rows.append(["`Auto()`", f"{size} x 2", *auto_row(f"two classes, {size} rows", "Auto()")])
    for k, n in (("10", "5,000"), ("100", "5,000"), ("1000", "25,000")):
        for mode in ("stack", "single"):
            cells = auto_row(f"{k} classes, {n} rows", f"StackedScaling('{mode}')")
            rows.append([f'`StackedScaling("{mode}")`', f"{n} x {int(k):,}", *cells])
    return table(["fit", "rows x classes", "bayescal, first fit", "bayescal", "SVS", "SMS"], rows)


def auto_row(task: str, what: str) -> list[str]:
    """Format the times of a default calibrator, of SVS and of SMS."""
    row = timed("bench_auto", task, "bayescal", what)
    by_method = {r["what"]: r for r in result("bench_auto")["rows"] if r["task"] == task}
    peers = [by_method.get(f"{name}Calibrator") for name in ("SVS", "SMS")]
    cells = [seconds(row["first_s"]), seconds(row["warm_s"])]
    return [*cells, *(seconds(peer["warm_s"]) if peer else "" for peer in peers)]


def functions() -> str:
    """Compare the times of fitted calibrators as functions with code written by hand."""
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
            for author in ("bayescal", library):
                timing = timed("bench_functions", f"{task}, {library}", author)
                row.append(seconds(timing["warm_s"]))
        rows.append(row)
    heads = ["JAX, bayescal", "JAX, by hand", "PyTorch, bayescal", "PyTorch, by hand"]
    return table(["map, rows x classes", *heads], rows)


def posterior() -> str:
    """Compare the times of posterior predictions with a NumPy loop."""
    results = result("bench_posterior")["results"]
    numpy = results["numpy:100000"]["run_s"]
    rows = [["NumPy loop over the draws", seconds(numpy), f"{1000 * numpy:,.0f} s (extrapolated)"]]
    names = {"montecarlo": "", "quadrature": ", without Monte-Carlo error"}
    for name, suffix in names.items():
        times = (seconds(results[f"{count}:{name},all"]["warm_s"]) for count in ("one", "many"))
        rows.append([f'`"{name}"`{suffix}', *times])
    return table(["integrator", "one data set", "1,000 data sets"], rows)


# --- README -------------------------------------------------------------------------------------


def why() -> str:
    """List the benchmarks of the README."""
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


_ACCURACY = arena, fresh, harm, helps, tied, which
_SPEED = auto, binary, functions, multiclass, posterior, predictions, startup
TABLES: dict[str, Callable[[], str]] = {
    f.__name__: f for f in (*_ACCURACY, *_SPEED, tree, why)
} | page_tables.TABLES


def updated(text: str) -> str:
    """Replace the tables and figures of a page by those of the results."""
    text = MARKED.sub(lambda m: f"{m[1]}{TABLES[m[2]]()}\n{m[3]}", text)
    return INLINE.sub(lambda m: f"{m[1]}{eval(m[2], vars(figures).copy())}{m[3]}", text)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change no file, and fail if one is stale"
    )
    check = parser.parse_args(arguments).check
    stale = []
    for path in (path for pattern in PAGES for path in sorted(ROOT.glob(pattern))):
        text = path.read_text("utf-8")
        if (new := updated(text)) != text:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(new, "utf-8")
    for name in stale:
        print(f"{name}: {'figures differ from the results' if check else 'updated'}")
    return bool(stale) and check


if __name__ == "__main__":
    sys.exit(main())
