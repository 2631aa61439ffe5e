"""``python -m benchmarks.studies synthetic``: tables, ranks, pictures, conclusions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.studies._cli_running import CommandError, running, versions
from benchmarks.studies.printing import make_console, say, show_table

_TITLES = {"log_loss": "log loss", "ece": "ECE"}
_FIGURES = "14", "15"


def run_synthetic(
    question: Annotated[
        str,
        typer.Option(
            help="1: separation of the classes; 2: size of the training set; 3: its share of class "
            "1; or all."
        ),
    ] = "all",
    datasets: Annotated[
        int | None,
        typer.Option(
            help="Data sets of each configuration: 1000; for figure 14 by default 100, for 15 200."
        ),
    ] = None,
    test: Annotated[
        int | None,
        typer.Option(help="Size of each test set: 10000. Figures need none.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method; may be given several times.")
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="14: log loss by the number of Monte-Carlo draws; 15: the best smoothing factors; "
            "instead of the tables. May be given several times."
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="Of figure 14: what log losses may differ from quadrature's.")
    ] = 1e-3,
    out: Annotated[
        Path, typer.Option(help="Folder for the results; made if it is missing.")
    ] = Path("bayescal-study"),
) -> None:
    """Ten methods on data from known generative models, and what none of them can beat.

    Prints means beside the published ones and the floor, ranks with tests, and which conclusions of
    the thesis hold. Writes these as JSON and CSV, all single values, and critical-difference
    diagrams. What is finished is kept: a run that was killed goes on where it stopped.

    All three questions with 1,000 data sets take about three minutes on two cores, the figures
    about a minute.
    """
    if figure:
        if test is not None or method or question != "all":
            raise CommandError(
                "--test, --method and --question are for the tables: leave them out with --figure"
            )
        strange = [each for each in figure if each not in _FIGURES]
        if strange:
            raise CommandError(f"--figure must be 14 or 15, got {strange[0]!r}")
        for each in dict.fromkeys(figure):
            _figure(each, datasets, seed, tolerance, out)
        return
    if question not in ("1", "2", "3", "all"):
        raise CommandError(f"--question must be 1, 2, 3 or all, got {question!r}")
    with running() as progress:
        from benchmarks.studies import synthetic

        found = synthetic.run(
            out,
            questions=(1, 2, 3) if question == "all" else (int(question),),
            methods=method,
            datasets=1000 if datasets is None else datasets,
            n_test=10_000 if test is None else test,
            seed=seed,
            about=versions(),
            progress=progress,
        )
    console = make_console()
    for number in found["questions"]:
        for metric in _TITLES:
            _show_means(console, found, number, metric)
        _show_ranks(console, found, number)
    _say_unfit(console, found)
    _show_conclusions(console, found)
    names = "synthetic.json", "synthetic.csv", "synthetic_values.csv", "synthetic_pairs.csv"
    files = ", ".join(str(out / name) for name in (*names, *found["pictures"]))
    say(console, f"results: {files}")


def _configurations(found: dict, number: str) -> dict[str, Any]:
    some = found["configurations"].items()
    return {name: facts for name, facts in some if str(facts["question"]) == number}


def _show_means(console: Console, found: dict, number: str, metric: str) -> None:
    """Print means by method and configuration, published ones beside them."""
    mine = _configurations(found, number)
    headings = ["method"]
    for facts in mine.values():
        headings += [facts["letter"], *["publ."] * bool(facts["published"][metric])]
    rows, last = [], []
    methods = list(next(iter(mine.values()))["metrics"][metric])
    for method in methods:
        cells = []
        for facts in mine.values():
            cells.append(_with_error(facts["metrics"][metric][method]))
            if facts["published"][metric]:
                cells.append(_published(facts["published"][metric].get(method)))
        rows.append([method, *cells])
    if metric == "log_loss":
        last = ["floor"]
        for facts in mine.values():
            last += [f"{facts['floor']:.4f}    ", *[""] * bool(facts["published"][metric])]
    title = f"question {number}, {found['questions'][number]}: mean {_TITLES[metric]}"
    caption = _caption(found, mine, metric)
    show_table(console, title, headings, rows, caption=caption, last=last)


def _caption(found: dict, mine: dict, metric: str) -> str:
    lines = [f"({facts['letter']}) {facts['describe']}" for facts in mine.values()]
    about = (
        f"Means over {found['datasets']:,} data sets, {found['n_test']:,} test points each; in "
        "parentheses their standard errors, in the last digits."
    )
    if metric == "log_loss":
        about += " floor: expected loss of the true parameters, by quadrature."
    if any(facts["published"][metric] for facts in mine.values()):
        about += f" publ.: {found['source']}"
        about += "; !: below the floor, so impossible." if metric == "log_loss" else "."
    return "\n".join([*lines, about])


def _with_error(facts: dict) -> str:
    """Show a mean with its error in the last digits: fewer of them where it is large."""
    digits = 4 if facts["error"] < 0.09995 else 2 if facts["error"] < 9.995 else 1
    return f"{facts['mean']:.{digits}f}({round(10**digits * facts['error'])})"


def _published(known: dict | None) -> str:
    if known is None:
        return ""
    mean = "∞" if known["mean"] is None else f"{known['mean']:.4f}"
    return mean + ("!" if known["impossible"] else "")


def _show_ranks(console: Console, found: dict, number: str) -> None:
    """Print average ranks of the ten methods, by configuration and over all of them."""
    scopes = [*_configurations(found, number), number]
    for metric, heading in _TITLES.items():
        by_scope = {s: found["rankings"][s][metric].get("ten") for s in scopes}
        if None in by_scope.values():
            continue
        groups = by_scope[number]["groups"]
        joined = "; ".join(", ".join(group) for group in groups) or "none"
        p_value = max(each["friedman"]["p_value"] for each in by_scope.values())
        extended = found["rankings"][number][metric].get("with_predictive")
        caption = (
            f"1 is best. Friedman: p {_p(p_value)} in all columns. Over all configurations no "
            f"difference by Wilcoxon's test with Holm's correction at level {found['level']:g} "
            f"within: {joined}."
        )
        if extended and "predictive" in extended["ranks"]:
            order = ", ".join(f"{m} {r:.2f}" for m, r in list(extended["ranks"].items())[:4])
            caption += f" With predictive among them, all: {order}."
        headings = ("method", *("all" if scope == number else scope[1:] for scope in scopes))
        rows = [
            (method, *(f"{by_scope[scope]['ranks'][method]:.2f}" for scope in scopes))
            for method in by_scope[number]["ranks"]
        ]
        title = f"question {number}: average ranks by {heading}"
        show_table(console, title, headings, rows, caption=caption)


def _say_unfit(console: Console, found: dict) -> None:
    shares: dict[str, list[str]] = {}
    for name, facts in found["configurations"].items():
        for method, share in facts["without_finite_optimum"].items():
            if share and name == facts["data_of"]:
                shares.setdefault(method, []).append(f"{name} {share:.1%}")
    for method, some in shares.items():
        say(console, f"Fits of {method} without finite optimum: {', '.join(some)}.")


def _show_conclusions(console: Console, found: dict) -> None:
    if not found["conclusions"]:
        return
    title, headings = (
        "conclusions of the thesis, by our figures",
        ("claim", "verdict", "where it fails"),
    )
    rows = []
    for each in found["conclusions"]:
        verdict = each["verdict"]
        if verdict == "in part":
            verdict = f"in {each['holds_in']} of {each['of']}"
        failed = [f"{c['where']}: {c['figures']}" for c in each["checks"] if not c["holds"]]
        rest = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        rows.append((each["claim"], verdict, "; ".join(failed[:3]) + rest))
    show_table(console, title, headings, rows, words=3)


def _p(value: float) -> str:
    return "below 0.001" if value < 0.001 else f"at most {value:.3f}"


def _figure(number: str, datasets: int | None, seed: int, tolerance: float, out: Path) -> None:
    from benchmarks.studies._cli_figures import show_draws, show_factors

    options: dict[str, Any] = {"seed": seed, "about": versions()}
    if datasets is not None:
        options["datasets"] = datasets
    with running() as progress:
        if number == "14":
            from benchmarks.studies import draws

            found = draws.run(out, tolerance=tolerance, progress=progress, **options)
        else:
            from benchmarks.studies import factors

            found = factors.run(out, progress=progress, **options)
    (show_draws if number == "14" else show_factors)(make_console(), found)
    files = ", ".join(str(out / f"figure_{number}.{end}") for end in ("svg", "csv", "json"))
    say(make_console(), f"results: {files}")
