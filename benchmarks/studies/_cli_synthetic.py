"""``python -m benchmarks.studies synthetic``: print tables, ranks and conclusions."""

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
            help="Instead of the tables, 14: log loss by the number of Monte-Carlo draws; 15: the "
            "best smoothing factors. May be given several times."
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="Figure 14: allowed difference of log losses from quadrature.")
    ] = 1e-3,
    out: Annotated[
        Path, typer.Option(help="Folder for the results; made if it is missing.")
    ] = Path("bayescal-study"),
) -> None:
    """Compare ten methods with the optimum, on data from known generative models.

    Print means with the published ones and the floor, ranks with tests, and which conclusions of
    the thesis hold. Write all of these and the results of each data set as JSON and CSV, and
    critical-difference diagrams. Finished parts are kept: an interrupted run resumes where it
    stopped.

    All three questions with 1,000 data sets take about three minutes on two cores, the figures
    about a minute.
    """
    if figure:
        if test is not None or method or question != "all":
            raise CommandError(
                "--test, --method and --question are for the tables: leave them out with --figure"
            )
        unknown = [number for number in figure if number not in _FIGURES]
        if unknown:
            raise CommandError(f"--figure must be 14 or 15, got {unknown[0]!r}")
        for number in dict.fromkeys(figure):
            _figure(number, datasets, seed, tolerance, out)
        return
    if question not in ("1", "2", "3", "all"):
        raise CommandError(f"--question must be 1, 2, 3 or all, got {question!r}")
    with running() as progress:
        from benchmarks.studies import synthetic

        result = synthetic.run(
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
    for question_number in result["questions"]:
        for metric in _TITLES:
            _show_means(console, result, question_number, metric)
        _show_ranks(console, result, question_number)
    _say_unfit(console, result)
    _show_conclusions(console, result)
    names = "synthetic.json", "synthetic.csv", "synthetic_values.csv", "synthetic_pairs.csv"
    files = ", ".join(str(out / name) for name in (*names, *result["pictures"]))
    say(console, f"results: {files}")


def _configurations(result: dict, number: str) -> dict[str, Any]:
    """Select the configurations of a question."""
    configurations = result["configurations"].items()
    return {name: facts for name, facts in configurations if str(facts["question"]) == number}


def _show_means(console: Console, result: dict, number: str, metric: str) -> None:
    """Print means by method and configuration, with the published means if there are any."""
    configurations = _configurations(result, number)
    headings = ["method"]
    for facts in configurations.values():
        headings += [facts["letter"], *["publ."] * bool(facts["published"][metric])]
    rows, floors = [], []
    methods = list(next(iter(configurations.values()))["metrics"][metric])
    for method in methods:
        cells = []
        for facts in configurations.values():
            cells.append(_with_error(facts["metrics"][metric][method]))
            if facts["published"][metric]:
                cells.append(_published(facts["published"][metric].get(method)))
        rows.append([method, *cells])
    if metric == "log_loss":
        floors = ["floor"]
        for facts in configurations.values():
            floors += [f"{facts['floor']:.4f}    ", *[""] * bool(facts["published"][metric])]
    title = f"question {number}, {result['questions'][number]}: mean {_TITLES[metric]}"
    caption = _caption(result, configurations, metric)
    show_table(console, title, headings, rows, caption=caption, last=floors)


def _caption(result: dict, configurations: dict, metric: str) -> str:
    """Describe the configurations and columns of a table of means."""
    lines = [f"({facts['letter']}) {facts['describe']}" for facts in configurations.values()]
    description = (
        f"Means over {result['datasets']:,} data sets, {result['n_test']:,} test points each, with "
        "standard errors of the last digits in parentheses."
    )
    if metric == "log_loss":
        description += " floor: expected loss of the true parameters, by quadrature."
    if any(facts["published"][metric] for facts in configurations.values()):
        description += f" publ.: {result['source']}"
        description += "; !: below the floor, so impossible." if metric == "log_loss" else "."
    return "\n".join([*lines, description])


def _with_error(facts: dict) -> str:
    """Format a mean with its error in the last digits; a large error leaves fewer digits."""
    digits = 4 if facts["error"] < 0.09995 else 2 if facts["error"] < 9.995 else 1
    return f"{facts['mean']:.{digits}f}({round(10**digits * facts['error'])})"


def _published(figure: dict | None) -> str:
    """Format a published mean, with a mark if it is below the floor."""
    if figure is None:
        return ""
    mean = "∞" if figure["mean"] is None else f"{figure['mean']:.4f}"
    return mean + ("!" if figure["impossible"] else "")


def _show_ranks(console: Console, result: dict, number: str) -> None:
    """Print average ranks of the ten methods, by configuration and over all configurations."""
    scopes = [*_configurations(result, number), number]
    for metric, heading in _TITLES.items():
        by_scope = {s: result["rankings"][s][metric].get("ten") for s in scopes}
        if None in by_scope.values():
            continue
        groups = by_scope[number]["groups"]
        joined = "; ".join(", ".join(group) for group in groups) or "none"
        p_value = max(ranking["friedman"]["p_value"] for ranking in by_scope.values())
        extended = result["rankings"][number][metric].get("with_predictive")
        caption = (
            f"1 is best. Friedman's test: p {_p(p_value)} in all columns. Groups of methods that "
            "do not differ over all configurations, by Wilcoxon's test with Holm's correction at "
            f"level {result['level']:g}: {joined}."
        )
        if extended and "predictive" in extended["ranks"]:
            order = ", ".join(f"{m} {r:.2f}" for m, r in list(extended["ranks"].items())[:4])
            caption += f" Best ranks over all configurations with predictive: {order}."
        headings = ("method", *("all" if scope == number else scope[1:] for scope in scopes))
        rows = [
            (method, *(f"{by_scope[scope]['ranks'][method]:.2f}" for scope in scopes))
            for method in by_scope[number]["ranks"]
        ]
        title = f"question {number}: average ranks by {heading}"
        show_table(console, title, headings, rows, caption=caption)


def _say_unfit(console: Console, result: dict) -> None:
    """Print the shares of fits without finite optimum."""
    shares: dict[str, list[str]] = {}
    for name, facts in result["configurations"].items():
        for method, share in facts["without_finite_optimum"].items():
            if share and name == facts["data_of"]:
                shares.setdefault(method, []).append(f"{name} {share:.1%}")
    for method, shown in shares.items():
        say(console, f"Fits of {method} without finite optimum: {', '.join(shown)}.")


def _show_conclusions(console: Console, result: dict) -> None:
    """Print the conclusions of the thesis, and where they fail."""
    if not result["conclusions"]:
        return
    title, headings = (
        "conclusions of the thesis, by our figures",
        ("claim", "verdict", "where it fails"),
    )
    rows = []
    for conclusion in result["conclusions"]:
        verdict = conclusion["verdict"]
        if verdict == "in part":
            verdict = f"in {conclusion['holds_in']} of {conclusion['of']}"
        failed = [f"{c['where']}: {c['figures']}" for c in conclusion["checks"] if not c["holds"]]
        rest = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        rows.append((conclusion["claim"], verdict, "; ".join(failed[:3]) + rest))
    show_table(console, title, headings, rows, words=3)


def _p(value: float) -> str:
    return "below 0.001" if value < 0.001 else f"at most {value:.3f}"


def _figure(number: str, datasets: int | None, seed: int, tolerance: float, out: Path) -> None:
    """Compute figure 14 or 15, and print its table."""
    from benchmarks.studies._cli_figures import show_draws, show_factors

    options: dict[str, Any] = {"seed": seed, "about": versions()}
    if datasets is not None:
        options["datasets"] = datasets
    with running() as progress:
        if number == "14":
            from benchmarks.studies import draws

            result = draws.run(out, tolerance=tolerance, progress=progress, **options)
        else:
            from benchmarks.studies import factors

            result = factors.run(out, progress=progress, **options)
    (show_draws if number == "14" else show_factors)(make_console(), result)
    files = ", ".join(str(out / f"figure_{number}.{end}") for end in ("svg", "csv", "json"))
    say(make_console(), f"results: {files}")
