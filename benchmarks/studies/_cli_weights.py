"""``python -m benchmarks.studies losses``, ``weight_scaling`` and ``kull``: run and print."""

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
#: Methods that are printed, with their headings.
_PRINTED_METHODS = (
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
    repeats: Annotated[int, typer.Option(help="Number of repeats with other rows.")] = 5,
    epochs: Annotated[int, typer.Option(help="Epochs of each training.")] = 100,
    data: Annotated[
        list[str] | None, typer.Option(help="digits or made; may be given several times.")
    ] = None,
    network: Annotated[
        list[str] | None, typer.Option(help="convolutional or dense; may be given several times.")
    ] = None,
) -> None:
    """Train networks with several losses, and scale them by one temperature and by one weight.

    Finished parts are kept: an interrupted run resumes where it stopped.
    """
    needs("flax")
    with running() as progress:
        from benchmarks.studies import losses

        result = losses.run(
            out,
            repeats=repeats,
            epochs=epochs,
            data=data,
            networks=network,
            about=versions("flax"),
            progress=progress,
        )
    console = make_console()
    _show_cases(console, result)
    say(console, f"results: {out / 'losses.csv'}, {out / 'losses.json'}")


def _show_cases(console: Console, result: dict[str, Any]) -> None:
    rows = []
    for case in result["cases"]:
        cells = [_percent(case["measures"][key]) for key in ("accuracy", *_SCALED)]
        difference = case["differences"]["weight less temperature"]
        names = f"{case['data']}, {case['network']}", case["loss"]
        rows.append((*names, *cells, f"{_percent(difference)} {difference['verdict']}"))
    headings = ("images and network", "loss", "acc. %", "ECE %", "TS", "WS", "weight", "WS less TS")
    caption = f"Means over {result['repeats']} repeats, ± standard errors; ECE in 15 bins."
    show_table(console, "one temperature and one weight", headings, rows, caption=caption)


def run_weight_scaling(
    data: Annotated[
        Path, typer.Option(help="Folder of .npz files with logits or probabilities of networks.")
    ],
    out: _Out = Path("bayescal-study"),
    network: Annotated[
        list[str] | None, typer.Option(help="Only this network; may be given several times.")
    ] = None,
    splits: Annotated[int, typer.Option(help="Random splits without validation rows.")] = 10,
) -> None:
    """Fit bin-wise weights and temperatures to predictions of networks.

    Finished parts are kept: an interrupted run resumes where it stopped.
    """
    with running() as progress:
        from benchmarks.studies import weight_scaling

        result = weight_scaling.run(
            data, out, networks=network, splits=splits, about=versions(), progress=progress
        )
    console = make_console()
    rows = [
        (name, *(_percent(facts["means"][key]) for key, _ in _PRINTED_METHODS))
        for name, facts in result["networks"].items()
    ]
    headings = ("network", *(heading for _, heading in _PRINTED_METHODS))
    caption = (
        f"ECE in percent, in {result['test_bins']} bins; calibrators have {result['bins']} bins. "
        "± standard error, if the test rows are split into halves."
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
    """Repeat published fits of DenseNet-40 with their penalties, to all rows and by folds."""
    with running() as progress:
        from benchmarks.studies import kull

        result = kull.run(data, out, repeats=repeats, about=versions(), progress=progress)
    console = make_console()
    rows = []
    for method, facts in result["methods"].items():
        for key, value in facts["published"].items():
            values = [fold[key] for fold in facts.get("folds", ())]
            value_range = f"{min(values):.6f} to {max(values):.6f}" if values else ""
            rows.append((method, key, f"{value:.6f}", f"{facts['whole'][key]:.6f}", value_range))
    headings = ("method", "metric", "published", "all rows", "means of five folds")
    show_table(console, "DenseNet-40, CIFAR-10", headings, rows)
    say(console, f"results: {out / 'kull.json'}")


def _percent(value: dict[str, Any]) -> str:
    mean = f"{100 * value['mean']:.2f}"
    return mean if value["error"] is None else f"{mean} ± {100 * value['error']:.2f}"
