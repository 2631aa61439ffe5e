"""``python -m benchmarks.studies arena``: calibrators head to head on files of scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.studies._cli_running import CommandError, make_console, running, versions
from benchmarks.studies._cli_tables import PLAIN

_UNIT = 1e-4


def run_arena(
    data: Annotated[
        list[Path],
        typer.Option(
            help="Folder of .npz files with pc, yc, pt, yt, or with logits_test, y_test; a file "
            "peers.csv there has others' figures. May be given several times."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results; made if missing.")] = Path(
        "bayescal-study"
    ),
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only this method, the first against all; may be given several times."),
    ] = None,
    installed: Annotated[
        bool, typer.Option("--installed", help="Also run probmetrics' calibrators, if installed.")
    ] = False,
) -> None:
    """Calibrators against each other and against others: win rates and paired differences."""
    against = None
    if installed:
        from benchmarks.studies import _probmetrics

        if not _probmetrics.available():
            raise CommandError("--installed needs the package probmetrics")
        against = _probmetrics.peers()
    with running() as progress:
        from benchmarks.studies import arena

        found = arena.run(
            data, out, methods=method, against=against, about=versions(), progress=progress
        )
    console = make_console()
    for part, opponents in found["comparisons"].items():
        _show(console, part, opponents, found)
    console.print(f"results: {out / 'arena.csv'}, {out / 'arena.json'}", **PLAIN)


def _show(console: Console, part: str, opponents: dict[str, Any], found: dict[str, Any]) -> None:
    """Print win rates and differences of the first method against each opponent."""
    method, means = found["method"], found["means"][part]
    table = Table(
        title=f"{part}: {method} against",
        caption=(
            "Win rate, ties half; mean difference of log loss in units of 0.0001, standard error "
            f"over groups. Means over the {means['experiments']} experiments that all have."
        ),
    )
    table.add_column("opponent")
    for heading in ("n", "log loss: wins", "difference", "Brier: wins", "ECE: wins", "log loss"):
        table.add_column(heading, justify="right")
    order = sorted(opponents, key=lambda name: opponents[name]["log_loss"]["difference"])
    for name in order:
        own = opponents[name]
        loss = own["log_loss"]
        error = "" if loss["error"] is None else f" ± {loss['error'] / _UNIT:.0f}"
        mean = means["methods"].get(name, {}).get("log_loss")
        table.add_row(
            name,
            str(loss["experiments"]),
            f"{loss['win_rate']:.2f}",
            f"{loss['difference'] / _UNIT:+.0f}{error}",
            f"{own['brier_score']['win_rate']:.2f}",
            f"{own['ece']['win_rate']:.2f}",
            "" if mean is None else f"{mean:.4f}",
        )
    mean = means["methods"].get(method, {}).get("log_loss")
    if mean is not None:
        table.add_section()
        table.add_row(method, "", "", "", "", "", f"{mean:.4f}")
    console.print(table)
