"""``python -m benchmarks.studies networks``: label smoothing in networks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.studies._cli_running import needs, running, versions
from benchmarks.studies.printing import make_console, say, show_table

#: Columns of tables: measure, heading, factor and decimals.
_COLUMNS = (
    ("accuracy", "accuracy %", 100, 1),
    ("log_loss", "log loss", 1, 3),
    ("ece", "ECE %", 100, 2),
    ("student_accuracy", "student %", 100, 1),
    ("student_log_loss", "its loss", 1, 3),
    ("structure", "structure", 1, 3),
)


def run_networks(
    data: Annotated[
        str, typer.Option(help="digits, made, cifar10, cifar100 or fashion_mnist.")
    ] = "digits",
    out: Annotated[Path, typer.Option(help="Folder for the results; made if missing.")] = Path(
        "bayescal-study"
    ),
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of the image files; by default $BAYESCAL_IMAGES."),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(help="student, resnet18, resnet34, resnet50, densenet or inception."),
    ] = None,
    width: Annotated[int | None, typer.Option(help="Width of the network in channels.")] = None,
    seeds: Annotated[int, typer.Option(help="Number of networks of each setting.")] = 3,
    epochs: Annotated[int, typer.Option(help="Maximum number of epochs.")] = 100,
    smoothing: Annotated[
        list[float] | None, typer.Option(help="Only this factor; may be given several times.")
    ] = None,
    offset: Annotated[
        list[float] | None, typer.Option(help="Only this offset; may be given several times.")
    ] = None,
    projection: Annotated[
        str, typer.Option(help="Projection of the pictures: tsne or pca.")
    ] = "tsne",
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Store states, from which a stopped run resumes.")
    ] = False,
) -> None:
    """Train networks without, with constant and with instance-based label smoothing."""
    needs("flax", *(("orbax",) if checkpoints else ()))
    with running() as progress:
        from benchmarks.studies import networks

        result = networks.run(
            data,
            out,
            folder=folder,
            network=network,  # type: ignore[arg-type]
            width=width,
            seeds=seeds,
            epochs=epochs,
            smoothing=smoothing or networks.SMOOTHING,
            offsets=offset or networks.OFFSETS,
            projection=projection,  # type: ignore[arg-type]
            checkpoints=checkpoints,
            about=versions(),
            progress=progress,
        )
    console = make_console()
    _show(console, result)
    if result["published"]:
        _show_published(console, result)
    _show_claims(console, result)
    names = "networks.csv", "networks.json", "logits.svg", "logits_three.svg"
    say(console, f"results: {', '.join(str(out / name) for name in names)}")


def _show(console: Console, result: dict[str, Any]) -> None:
    """Print a row for each method, before and after temperature scaling."""
    images = result["images"]
    width = "" if result["width"] is None else f", width {result['width']}"
    title = f"{result['data']}: {result['network']}{width}, {result['seeds']} seeds"
    caption = (
        f"{images['train']:,} training, {images['validation']:,} validation and "
        f"{images['test']:,} test images. Means over seeds, ± half the width of 95 % intervals. "
        "The factor and offset of smoothing are chosen by validation. ECE has 10 bins. Student: "
        "accuracy of a distilled network. Structure: correlation of the class similarities with "
        "those of other networks without smoothing."
    )
    headings = ("smoothing", "scaled", *(heading for _, heading, _, _ in _COLUMNS))
    rows = []
    for row in result["table"]:
        setting = ", ".join(f"{value:g}" for value in row["setting"].values())
        cells = [
            _with_error(row["measures"][key], factor, decimals)
            for key, _, factor, decimals in _COLUMNS
        ]
        name = f"{row['method']} ({setting})" if setting else row["method"]
        rows.append((name, "yes" if row["scaled"] else "no", *cells))
    show_table(console, title, headings, rows, caption=caption, words=2)


def _show_published(console: Console, result: dict[str, Any]) -> None:
    """Print our means with those published for the same data."""
    published = result["published"]
    title = f"ours, {result['network']} / {published['network']}, {published['source']}"
    columns = [column for column in _COLUMNS if column[0] in published["rows"][0]["measures"]]
    headings = ("smoothing", "scaled", *(heading for _, heading, _, _ in columns))
    rows = []
    for ours, theirs in zip(result["table"], published["rows"], strict=True):
        cells = [
            f"{factor * ours['measures'][key]['mean']:.{decimals}f} / "
            f"{factor * theirs['measures'][key]:.{decimals}f}"
            for key, _, factor, decimals in columns
        ]
        rows.append((ours["method"], "yes" if ours["scaled"] else "no", *cells))
    show_table(console, title, headings, rows, words=2)


def _with_error(facts: dict[str, Any], factor: float, decimals: int) -> str:
    mean = f"{factor * facts['mean']:.{decimals}f}"
    half = facts["half_width"]
    return mean if half is None else f"{mean} ± {factor * half:.{decimals}f}"


def _show_claims(console: Console, result: dict[str, Any]) -> None:
    """Print the source's claims, with differences and verdicts."""
    rows = []
    for claim in result["claims"]:
        difference = _with_error(
            {"mean": claim["difference"], "half_width": claim["half_width"]}, 1, 4
        )
        rows.append((claim["claim"], claim["verdict"], difference))
    show_table(console, "Claims of the source", ("claim", "verdict", "difference"), rows, words=2)
