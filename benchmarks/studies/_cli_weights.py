"""``python -m benchmarks.studies losses``, ``weight_scaling`` and ``kull``: few parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.studies._cli_running import needs, running, versions
from benchmarks.studies.printing import make_console, say, show_table

_Out = Annotated[Path, typer.Option(help="Folder for the results; made if it is missing.")]
#: Columns of table 1.
_SCALED = ("ece", "ece_temperature", "ece_weight", "weight")
#: Of the many ways those that are printed.
_WAYS = (
    ("uncalibrated", "none"),
    ("temperature", "TS"),
    ("spline 6", "spline"),
    ("binwise_temperature", "BTS"),
    ("binwise_confidence", "CTS"),
    ("equal_mass 13", "CWS"),
    ("equal_width 13", "ECWS"),
)


def run_losses(
    out: _Out = Path("bayescal-study"),
    repeats: Annotated[int, typer.Option(help="Of each training, on other rows.")] = 5,
    epochs: Annotated[int, typer.Option(help="Of each training.")] = 100,
    data: Annotated[
        list[str] | None, typer.Option(help="digits or made; may be given several times.")
    ] = None,
    network: Annotated[
        list[str] | None, typer.Option(help="convolutional or dense; may be given several times.")
    ] = None,
) -> None:
    """Networks taught by several losses, scaled by one temperature and by one weight.

    What is finished is kept: a run that was killed goes on where it stopped.
    """
    needs("flax")
    with running() as progress:
        from benchmarks.studies import losses

        found = losses.run(
            out,
            repeats=repeats,
            epochs=epochs,
            data=data,
            networks=network,
            about=versions("flax"),
            progress=progress,
        )
    console = make_console()
    _show_cases(console, found)
    say(console, f"results: {out / 'losses.csv'}, {out / 'losses.json'}")


def _show_cases(console: Console, found: dict[str, Any]) -> None:
    rows = []
    for case in found["cases"]:
        cells = [_percent(case["measures"][key]) for key in ("accuracy", *_SCALED)]
        gap = case["differences"]["weight less temperature"]
        names = f"{case['data']}, {case['network']}", case["loss"]
        rows.append((*names, *cells, f"{_percent(gap)} {gap['verdict']}"))
    headings = ("images and network", "loss", "acc. %", "ECE %", "TS", "WS", "weight", "WS less TS")
    caption = f"Means over {found['repeats']} repeats, and their standard errors; ECE in 15 bins."
    show_table(console, "one temperature and one weight", headings, rows, caption=caption)


def run_weight_scaling(
    data: Annotated[
        Path, typer.Option(help="Folder of .npz files with logits or probabilities of networks.")
    ],
    out: _Out = Path("bayescal-study"),
    network: Annotated[
        list[str] | None, typer.Option(help="Only this network; may be given several times.")
    ] = None,
    splits: Annotated[int, typer.Option(help="Halves of networks without validation rows.")] = 10,
) -> None:
    """Weights and temperatures by bins of the confidence, on predictions of networks.

    What is finished is kept: a run that was killed goes on where it stopped.
    """
    with running() as progress:
        from benchmarks.studies import weight_scaling

        found = weight_scaling.run(
            data, out, networks=network, splits=splits, about=versions(), progress=progress
        )
    console = make_console()
    rows = [
        (name, *(_percent(facts["means"][key]) for key, _ in _WAYS))
        for name, facts in found["networks"].items()
    ]
    headings = ("network", *(heading for _, heading in _WAYS))
    caption = (
        f"ECE in percent, {found['test_bins']} bins; {found['bins']} bins calibrate. Standard "
        "errors where rows are halved."
    )
    show_table(console, "by bins of the confidence", headings, rows, caption=caption)
    say(console, f"results: {out / 'weight_scaling.json'}")


def run_kull(
    data: Annotated[
        Path, typer.Option(help="Folder with kull_densenet40_c10.npz and both networks sctl_*.npz.")
    ],
    out: _Out = Path("bayescal-study"),
    repeats: Annotated[int, typer.Option(help="Random divisions into five folds.")] = 5,
) -> None:
    """Published fits of DenseNet-40 with their own penalties, to all rows and by folds."""
    with running() as progress:
        from benchmarks.studies import kull

        found = kull.run(data, out, repeats=repeats, about=versions(), progress=progress)
    console = make_console()
    rows = []
    for method, own in found["methods"].items():
        for key, value in own["published"].items():
            each = [fold[key] for fold in own.get("folds", ())]
            between = f"{min(each):.6f} to {max(each):.6f}" if each else ""
            rows.append((method, key, f"{value:.6f}", f"{own['whole'][key]:.6f}", between))
    headings = ("method", "metric", "published", "all rows", "means of five folds")
    show_table(console, "DenseNet-40, CIFAR-10", headings, rows)
    say(console, f"results: {out / 'kull.json'}")


def _percent(value: dict[str, Any]) -> str:
    mean = f"{100 * value['mean']:.2f}"
    return mean if value["error"] is None else f"{mean} ± {100 * value['error']:.2f}"
