"""``python -m benchmarks.studies arena``: calibrators head to head on files of scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.studies._cli_running import CommandError, running, versions
from benchmarks.studies.printing import make_console, say, show_table

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
    say(console, f"results: {out / 'arena.csv'}, {out / 'arena.json'}")


def _show(console: Console, part: str, opponents: dict[str, Any], found: dict[str, Any]) -> None:
    """Print win rates and differences of the first method against each opponent."""
    method, means = found["method"], found["means"][part]
    caption = (
        "Win rate, ties half; mean difference of log loss in units of 0.0001, standard error "
        f"over groups. Means over the {means['experiments']} experiments that all have."
    )
    headings = ("n", "log loss: wins", "difference", "Brier: wins", "ECE: wins", "log loss")
    rows = []
    order = sorted(opponents, key=lambda name: opponents[name]["log_loss"]["difference"])
    for name in order:
        own = opponents[name]
        loss = own["log_loss"]
        error = "" if loss["error"] is None else f" ± {loss['error'] / _UNIT:.0f}"
        mean = means["methods"].get(name, {}).get("log_loss")
        row = (
            name,
            str(loss["experiments"]),
            f"{loss['win_rate']:.2f}",
            f"{loss['difference'] / _UNIT:+.0f}{error}",
            f"{own['brier_score']['win_rate']:.2f}",
            f"{own['ece']['win_rate']:.2f}",
            "" if mean is None else f"{mean:.4f}",
        )
        rows.append(row)
    mean = means["methods"].get(method, {}).get("log_loss")
    last = () if mean is None else (method, "", "", "", "", "", f"{mean:.4f}")
    title = f"{part}: {method} against"
    show_table(console, title, ("opponent", *headings), rows, caption=caption, last=last)
