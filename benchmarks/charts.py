"""Draw dot plots of benchmark results, which are written to ``docs/pictures``.

    python docs/make_pictures.py --charts

Each picture contains a digest of its numbers. A test compares digests to find stale pictures.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from benchmarks.figures import against, fastest, result, timed
from benchmarks.update_readme import BINARY, FRESH, MULTICLASS

# Gray text and colors that are readable on white and on black.
GRAY, COLORS = "#6e7781", {"SVS": "#0f86c9", "SMS": "#d55e00"}
LOOK: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bayescal",
    "font.family": "sans-serif",
    "font.size": 10,
    **{f"{name}.color": GRAY for name in ("text", "xtick", "ytick")},
    **{f"axes.{name}": GRAY for name in ("edgecolor", "labelcolor", "titlecolor")},
}
#: Half the width of a 90 % interval, in standard errors.
_HALF_WIDTH = 1.645


def accuracy() -> dict[str, dict[str, dict[str, tuple[float, float]]]]:
    """Read differences in log loss and their standard errors, by study, problem and opponent."""
    studies = {"held-out experiments": "arena_fresh", "ties and skew": "arena_tied"}
    return {
        title: {
            name: {
                opponent.upper(): (comparison["difference"], comparison["error"])
                for opponent in ("svs", "sms")
                for comparison in [against(study, kind, f"probmetrics {opponent}")]
            }
            for kind, name in FRESH.items()
        }
        for title, study in studies.items()
    }


def speed() -> dict[str, dict[str, tuple[float, float | None]]]:
    """Read the seconds of a fit by bayescal and by the fastest alternative, by problem and fit."""
    by_problem: dict[str, dict[str, tuple[float, float | None]]] = {}
    for title, study, tasks in (
        ("binary", "bench_binary", BINARY),
        ("multi-class", "bench_multiclass", MULTICLASS),
    ):
        by_problem[title] = {}
        for task, (name, size) in tasks.items():
            other = fastest(study, task, ("scipy",) if title == "multi-class" else ())
            name = name.split(" (")[0].replace(", fit and predict", "")
            times = timed(study, task, "bayescal")["warm_s"], other and other["warm_s"]
            by_problem[title][f"{name}, {size}"] = times
    return by_problem


def growth() -> dict[str, dict[str, dict[int, float]]]:
    """Read the seconds per row, by job and number of rows."""
    times: dict[str, dict[int, float]] = {}
    for row in result("bench_growth")["rows"]:
        times.setdefault(row["job"], {})[row["rows"]] = row["seconds"] / row["rows"]
    return {"time per row": times}


def digest(data: object) -> str:
    """Compute a digest of the numbers of a chart."""
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]


def draw_accuracy(path: Path) -> None:
    """Draw differences in log loss with 90 % intervals."""
    data = accuracy()
    with _figure(path, data, (8.0, 3.2), 2) as axes:
        for ax, (title, rows) in zip(axes, data.items(), strict=True):
            for row, opponents in enumerate(rows.values()):
                for i, (name, (difference, error)) in enumerate(opponents.items()):
                    y = row + 0.24 * (i - 0.5)
                    half_width = _HALF_WIDTH * error
                    ends = [difference - half_width, difference + half_width]
                    ax.plot(ends, [y, y], color=COLORS[name], linewidth=2)
                    style: Any = {"marker": "os"[i], "color": COLORS[name], "markersize": 6}
                    label = f"against {name}" if row == 0 else None
                    ax.plot([difference], [y], linestyle="none", label=label, **style)
            ax.set(title=title, xlabel="log loss, Auto minus other")
            _name_rows(ax, rows)
            ax.axvline(0, color=GRAY, linewidth=1)
            ax.locator_params(axis="x", nbins=3)
        _draw_legend(axes[0])


def draw_speed(path: Path) -> None:
    """Draw the times of fits on a logarithmic axis."""
    data = speed()
    with _figure(path, data, (8.0, 4.4), 2) as axes:
        for ax, (title, rows) in zip(axes, data.items(), strict=True):
            for y, (bayescal, other) in enumerate(rows.values()):
                if other is not None:
                    ax.plot([bayescal, other], [y, y], color=GRAY, linewidth=1, zorder=1)
                    label = "fastest alternative" if y == 1 else None
                    ax.plot([other], [y], "s", color=COLORS["SMS"], markersize=6, label=label)
                label = "bayescal" if y == 1 else None
                ax.plot([bayescal], [y], "o", color=COLORS["SVS"], markersize=6, label=label)
            ax.set(title=title, xlabel="time of a fit", xscale="log")
            ticks = {1e-3: "1 ms", 1e-2: "", 1e-1: "0.1 s", 1: "", 10: "10 s"}
            ax.set_xticks([*ticks], [*ticks.values()])
            ax.minorticks_off()
            _name_rows(ax, rows)
        _draw_legend(axes[0])


def draw_growth(path: Path) -> None:
    """Draw the time per row against the number of rows, with logarithmic axes."""
    data = growth()
    with _figure(path, data, (6.0, 3.4), 1) as ax:
        for i, (job, times) in enumerate(data["time per row"].items()):
            style: Any = {"color": f"C{i}", "marker": "os^vD"[i], "markersize": 4}
            ax.plot([*times], [*times.values()], label=job, linewidth=1.5, **style)
        ax.set(xlabel="rows", ylabel="time per row", xscale="log", yscale="log")
        ticks = {1e-9: "1 ns", 1e-8: "10 ns", 1e-7: "100 ns", 1e-6: "1 µs", 1e-5: "10 µs"}
        ax.set_yticks([*ticks], [*ticks.values()])
        ax.minorticks_off()
        ax.grid(color=GRAY, alpha=0.25, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_facecolor("none")
        ax.legend(frameon=False, labelcolor=GRAY)


def _draw_legend(ax: Any) -> None:
    """Draw a legend above the panels."""
    handles, names = ax.get_legend_handles_labels()
    ax.figure.legend(
        handles, names, loc="outside upper center", ncols=2, frameon=False, labelcolor=GRAY
    )


def _name_rows(ax: Any, rows: Any) -> None:
    """Label the rows of a dot plot."""
    ax.set_yticks(range(len(rows)), list(rows), fontsize="small")
    ax.invert_yaxis()
    ax.grid(axis="x", color=GRAY, alpha=0.25, linewidth=0.6)
    ax.tick_params(length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_facecolor("none")


class _figure:
    """A context manager for a figure with panels, which is written at the end of the block."""

    def __init__(self, path: Path, data: object, size: tuple[float, float], panels: int) -> None:
        import matplotlib

        self.path, self.metadata = path, {"Date": None, "Description": f"numbers {digest(data)}"}
        self.size, self.panels, self.look = size, panels, matplotlib.rc_context(LOOK)

    def __enter__(self) -> Any:
        from matplotlib.figure import Figure

        self.look.__enter__()
        self.figure = Figure(figsize=self.size, layout="constrained")
        return self.figure.subplots(1, self.panels)

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            options: Any = {"format": "svg", "transparent": True, "metadata": self.metadata}
            self.figure.savefig(self.path, **options)
        self.look.__exit__(None, None, None)


CHARTS = {
    "accuracy": (draw_accuracy, accuracy),
    "growth": (draw_growth, growth),
    "speed": (draw_speed, speed),
}
