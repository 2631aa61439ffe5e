"""``python -m benchmarks.studies arena``: compare calibrators on files of scores."""

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
            "peers.csv there has published figures. May be given several times."
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
    """Compare calibrators with each other and with peers by win rates and paired differences."""
    against = None
    if installed:
        from benchmarks.studies import _probmetrics

        if not _probmetrics.available():
            raise CommandError("--installed needs the package probmetrics")
        against = _probmetrics.peers()
    about = versions(*(["probmetrics"] if installed else []))
    with running() as progress:
        from benchmarks.studies import arena

        result = arena.run(
            data, out, methods=method, against=against, about=about, progress=progress
        )
    console = make_console()
    for part, opponents in result["comparisons"].items():
        _show(console, part, opponents, result)
    say(console, f"results: {out / 'arena.csv'}, {out / 'arena.json'}")


def _show(console: Console, part: str, opponents: dict[str, Any], result: dict[str, Any]) -> None:
    """Print win rates and differences of the first method against each opponent."""
    method, means = result["method"], result["means"][part]
    caption = (
        "Wins: win rate; a tie counts as half. Difference: mean difference of log loss in units of "
        "0.0001, ± standard error over groups. Improvement: decrease of log loss and Brier score "
        "from the uncalibrated scores, in the same unit. Last columns: mean log loss and win rate "
        f"against all others, on the {means['experiments']} experiments that all methods have."
    )
    headings = ("n", "log loss: wins", "difference", "Brier: wins", "ECE: wins")
    headings += ("improvement", "of Brier", "log loss", "win rate")
    rows = []
    order = sorted(opponents, key=lambda name: opponents[name]["log_loss"]["difference"])
    for name in order:
        comparison = opponents[name]
        loss = comparison["log_loss"]
        error = "" if loss["error"] is None else f" ± {loss['error'] / _UNIT:.0f}"
        row = (
            name,
            str(loss["experiments"]),
            f"{loss['win_rate']:.2f}",
            f"{loss['difference'] / _UNIT:+.0f}{error}",
            f"{comparison['brier_score']['win_rate']:.2f}",
            f"{comparison['ece']['win_rate']:.2f}",
            *_gains(part, name, result),
        )
        rows.append(row)
    last = (method, "", "", "", "", "", *_gains(part, method, result))
    title = f"{part}: {method} against"
    show_table(console, title, ("opponent", *headings), rows, caption=caption, last=last)


def _gains(part: str, method: str, result: dict[str, Any]) -> tuple[str, str, str, str]:
    """Format the improvements, mean log loss and win rate of a method against all others."""
    gains = result["improvements"][part].get(method)
    means = result["means"][part]["methods"].get(method)
    improvements = [""] * 2
    if gains is not None:
        improvements = [
            f"{gains[name]['difference'] / _UNIT:+.0f}" for name in ("log_loss", "brier_score")
        ]
    summary = [""] * 2
    if means is not None:
        summary = [
            f"{means['log_loss']:.4f}",
            f"{means.get('log_loss_win_rate', float('nan')):.2f}",
        ]
    return improvements[0], improvements[1], summary[0], summary[1]
