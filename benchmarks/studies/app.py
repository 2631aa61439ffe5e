"""``python -m benchmarks.studies``: compare methods with each other and with published figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.studies._cli_arena import run_arena
from benchmarks.studies._cli_networks import run_networks
from benchmarks.studies._cli_running import (
    PROGRAM,
    OneLineErrors,
    end_interrupted,
    running,
    versions,
)
from benchmarks.studies._cli_synthetic import run_synthetic
from benchmarks.studies._cli_tables import (
    say_missing,
    show_labels,
    show_network,
    show_simplex,
    show_splines,
)
from benchmarks.studies._cli_weights import run_kull, run_losses, run_weight_scaling
from benchmarks.studies.printing import make_console, say, show_table

app = typer.Typer(
    cls=OneLineErrors,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Compare methods with each other and with published figures.",
)

app.command("arena")(run_arena)
app.command("kull")(run_kull)
app.command("losses")(run_losses)
app.command("networks")(run_networks)
app.command("synthetic")(run_synthetic)
app.command("weight_scaling")(run_weight_scaling)

_Out = Annotated[Path, typer.Option(help="Folder for the results; made if it is missing.")]
_Maps = Annotated[
    list[str] | None, typer.Option("--maps", help="Only this map; may be given several times.")
]


@app.command("real")
def _run_real(
    data: Annotated[
        Path,
        typer.Option(help="Folder of binary tables, .csv or .csv.gz with a column 'class' of 0/1."),
    ],
    out: _Out = Path("bayescal-study"),
    splits: Annotated[int, typer.Option(help="Number of random splits, 70/30.")] = 5,
    table: Annotated[
        list[str] | None, typer.Option(help="Only this table; may be given several times.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method; may be given several times.")
    ] = None,
) -> None:
    """Fit smoothed and regularized logistic regression to SVM scores and to all features.

    Finished parts are kept: an interrupted run resumes where it stopped.
    """
    with running() as progress:
        from benchmarks.studies import real

        result = real.run(
            data,
            out,
            splits=splits,
            tables=table,
            methods=method,
            about=versions(),
            progress=progress,
        )
    console = make_console()
    for experiment, facts in result["experiments"].items():
        if facts:
            _show_experiment(console, experiment, facts, result)
    if result["conclusions"]:
        headings = ("claim", "experiment", "metric", "verdict", "figures")
        rows = [tuple(claim[key] for key in headings) for claim in result["conclusions"]]
        show_table(console, "Claims of the source", headings, rows, words=5)
    say(console, f"results: {out / 'results.csv'}, {out / 'summary.json'}")


@app.command("adult")
def _run_adult(
    data: Annotated[Path, typer.Option(help="Folder with adult_train.csv and adult_test.csv.")],
    out: _Out = Path("bayescal-study"),
) -> None:
    """Calibrate naive Bayes on the Adult census data, as in the paper on spline calibration."""
    with running() as progress:
        from benchmarks.studies import adult

        result = adult.run(data, out, about=versions(), progress=progress)
    console = make_console()
    _show_encodings(console, result)
    _show_calibrators(console, result)
    say(console, f"results: {out / 'adult.json'}")


@app.command("cnn")
def _run_cnn(
    data: Annotated[
        Path, typer.Option(help="Folder of .npz files with logits or probabilities of networks.")
    ],
    out: _Out = Path("bayescal-study"),
    network: Annotated[
        list[str] | None, typer.Option(help="Only this network; may be given several times.")
    ] = None,
    maps: _Maps = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds of maps that are random.")] = 1,
) -> None:
    """Apply every multi-class calibration map to predictions of networks.

    Finished parts are kept: an interrupted run resumes where it stopped.
    """
    with running() as progress:
        from benchmarks.studies import cnn

        result = cnn.run(
            data,
            out,
            networks=network,
            maps=maps,
            seeds=seeds,
            about=versions(),
            progress=progress,
        )
    console = make_console()
    for name, facts in result["networks"].items():
        show_network(console, name, facts, result)
    say_missing(console, result)
    say(console, f"results: {out / 'cnn.csv'}, {out / 'cnn.json'}")


@app.command("splines")
def _run_splines(
    data: Annotated[
        Path, typer.Option(help="Folder of .npz files with logits or probabilities of networks.")
    ],
    out: _Out = Path("bayescal-study"),
    network: Annotated[
        list[str] | None, typer.Option(help="Only this network; may be given several times.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds of small networks.")] = 5,
) -> None:
    """Compare splines and clipping on predictions of networks, and while small networks train.

    Finished parts are kept: an interrupted run resumes where it stopped.
    """
    with running() as progress:
        from benchmarks.studies import splines

        result = splines.run(
            data, out, networks=network, seeds=seeds, about=versions(), progress=progress
        )
    console = make_console()
    for name, facts in result["networks"].items():
        show_splines(console, name, facts)
    say(console, f"results: {out / 'splines.json'}")


@app.command("simplex")
def _run_simplex(
    out: _Out = Path("bayescal-study"),
    maps: _Maps = None,
    datasets: Annotated[int, typer.Option(help="Number of calibration sets.")] = 1,
    calibration_rows: Annotated[int, typer.Option(help="Rows of each calibration set.")] = 5000,
    test_rows: Annotated[int, typer.Option(help="Rows of the test set.")] = 100_000,
    wave: Annotated[float, typer.Option(help="Amplitude of the wave in the true map.")] = 0.15,
) -> None:
    """Apply every multi-class calibration map to three classes with known true probabilities.

    Finished parts are kept: an interrupted run resumes where it stopped.
    """
    with running() as progress:
        from benchmarks.studies import simplex

        result = simplex.run(
            out,
            maps=maps,
            datasets=datasets,
            calibration_rows=calibration_rows,
            test_rows=test_rows,
            wave=wave,
            about=versions(),
            progress=progress,
        )
    console = make_console()
    show_simplex(console, result)
    say_missing(console, result)
    say(console, f"results: {out / 'simplex.csv'}, {out / 'simplex.json'}")


@app.command("multilabel")
def _run_multilabel(
    data: Annotated[
        Path, typer.Option(help="Folder of .npz files with scores and labels, or with features.")
    ],
    out: _Out = Path("bayescal-study"),
    splits: Annotated[int, typer.Option(help="Number of random splits.")] = 5,
    name: Annotated[
        list[str] | None, typer.Option(help="Only this file; may be given several times.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method; may be given several times.")
    ] = None,
) -> None:
    """Calibrate multi-label data with a binary calibrator for each label.

    Finished parts are kept: an interrupted run resumes where it stopped.
    """
    with running() as progress:
        from benchmarks.studies import multilabel

        result = multilabel.run(
            data,
            out,
            splits=splits,
            names=name,
            methods=method,
            about=versions(),
            progress=progress,
        )
    console = make_console()
    for title, facts in result["data"].items():
        show_labels(console, title, facts, result)
    say(console, f"results: {out / 'multilabel.csv'}, {out / 'multilabel.json'}")


@app.command("valk")
def _run_valk(
    data: Annotated[Path, typer.Option(help="Folder with kull_densenet40_c10.npz.")],
    out: _Out = Path("bayescal-study"),
    seeds: Annotated[int, typer.Option(help="Number of seeds of maps that are random.")] = 3,
    sets: Annotated[int, typer.Option(help="Folds and data sets to compare borders on.")] = 5,
) -> None:
    """Calibrate one network with the options of a thesis's code, to explain its figures."""
    with running() as progress:
        from benchmarks.studies import valk

        result = valk.run(data, out, seeds=seeds, sets=sets, about=versions(), progress=progress)
    console = make_console()
    keys = list(result["maps"]["temperature"])
    rows = [
        (name, *(f"{values[key]:.5f}" for key in keys)) for name, values in result["maps"].items()
    ]
    show_table(console, "as published", ("map", *keys), rows)
    say(console, f"results: {out / 'valk.json'}")


def _show_experiment(console: Console, name: str, facts: dict, result: dict) -> None:
    """Print means over tables with the published means, ranks and wins."""
    from benchmarks.studies._summary import KNOWN_TABLES, PUBLISHED_TABLES

    title = {"svm": "scores of a linear SVM, calibrated", "multivariate": "all features"}[name]
    tables = result["tables"]
    num_known = len(KNOWN_TABLES & set(tables))
    caption = (
        f"means over {len(tables)} tables of means over {result['splits']} splits; published: "
        f"means over {PUBLISHED_TABLES} tables, {num_known} of them here. Rank and best: log loss. "
        "cauchy is the normal approximation of its posterior."
    )
    headings = ("log loss", "published", "ECE", "published", "Brier", "accuracy", "rank", "best")
    rows = []
    for method, loss in facts["log_loss"]["mean"].items():
        cells = [f"{loss:.4f}", _published(facts["log_loss"], method)]
        cells += [f"{facts['ece']['mean'][method]:.4f}", _published(facts["ece"], method)]
        cells += [f"{facts[key]['mean'][method]:.4f}" for key in ("brier_score", "accuracy")]
        cells += [f"{facts['log_loss']['mean_rank'][method]:.2f}"]
        rows.append((method, *cells, str(facts["log_loss"]["best"][method])))
    show_table(console, title, ("method", *headings), rows, caption=caption)
    for line in facts["remarks"]:
        say(console, line)


def _published(facts: dict, method: str) -> str:
    value = facts["published"].get(method)
    return "" if value is None else f"{value:.4f}"


def _show_encodings(console: Console, result: dict) -> None:
    rows = [
        (name + "  <- closest" * (name == result["closest_encoding"]), f"{loss:.4f}")
        for name, loss in result["encodings"].items()
    ]
    title = "naive Bayes, uncalibrated: published .7448"
    show_table(console, title, ("encoding", "log loss"), rows)


def _show_calibrators(console: Console, result: dict) -> None:
    """Print log losses with the published ones and their differences."""
    held_out = f"{result['held_out_share']:.0%} held out"
    headings = ("5 folds", "published", "difference", held_out, "least", "greatest", "impossible")
    rows = []
    for name, facts in result["methods"].items():
        loss, published, held_out_losses = (
            facts["cross_validated"],
            facts["published"],
            facts["held_out"],
        )
        comparison = (
            ("", "") if published is None else (f"{published:.4f}", f"{loss - published:+.4f}")
        )
        summary = (
            sum(held_out_losses) / len(held_out_losses),
            min(held_out_losses),
            max(held_out_losses),
        )
        numbers = [f"{value:.4f}" for value in summary]
        rows.append((name, f"{loss:.4f}", *comparison, *numbers, _impossible_rows(facts)))
    show_table(console, "log loss on the test rows", ("calibrator", *headings), rows)
    for line in result["remarks"]:
        say(console, line)


def _impossible_rows(facts: dict) -> str:
    """Format the numbers of test rows with probability zero: cross-validated, and held out."""
    counts = facts["impossible_held_out"]
    return f"{facts['impossible']}; {min(counts)} to {max(counts)}"


def main() -> None:
    """Run the study named on the command line, and exit."""
    with end_interrupted():
        app(prog_name=PROGRAM)
