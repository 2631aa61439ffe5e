"""Dot plots of the benchmarks, drawn from the files of results into ``docs/pictures``.

    python docs/make_pictures.py --charts

A picture holds a digest of its numbers, by which a test finds that it is stale.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from benchmarks.figures import against, fastest, result, timed
from benchmarks.update_readme import BINARY, FRESH, MULTICLASS

# Gray text and colors that are read on white and on black.
GRAY, COLORS = "#6e7781", {"SVS": "#0f86c9", "SMS": "#d55e00"}
LOOK: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bayescal",
    "font.family": "sans-serif",
    "font.size": 10,
    **{f"{name}.color": GRAY for name in ("text", "xtick", "ytick")},
    **{f"axes.{name}": GRAY for name in ("edgecolor", "labelcolor", "titlecolor")},
}
#: Half the width of an interval of 90 %, in standard errors.
_HALF = 1.645


def accuracy() -> dict[str, dict[str, dict[str, tuple[float, float]]]]:
    """Return differences of the log loss and their standard errors, by study, problem, opponent."""
    studies = {"held-out experiments": "arena_fresh", "ties and skew": "arena_tied"}
    return {
        title: {
            name: {
                opponent.upper(): (found["difference"], found["error"])
                for opponent in ("svs", "sms")
                for found in [against(study, kind, f"probmetrics {opponent}")]
            }
            for kind, name in FRESH.items()
        }
        for title, study in studies.items()
    }


def speed() -> dict[str, dict[str, tuple[float, float | None]]]:
    """Return seconds of a fit, ours and those of the fastest alternative, by problem and fit."""
    found: dict[str, dict[str, tuple[float, float | None]]] = {}
    for title, study, tasks in (
        ("binary", "bench_binary", BINARY),
        ("multi-class", "bench_multiclass", MULTICLASS),
    ):
        found[title] = {}
        for task, (name, size) in tasks.items():
            other = fastest(study, task, ("scipy",) if title == "multi-class" else ())
            name = name.split(" (")[0].replace(", fit and predict", "")
            times = timed(study, task, "bayescal")["warm_s"], other and other["warm_s"]
            found[title][f"{name}, {size}"] = times
    return found


def growth() -> dict[str, dict[str, dict[int, float]]]:
    """Return seconds per row, by job and number of rows."""
    times: dict[str, dict[int, float]] = {}
    for row in result("bench_growth")["rows"]:
        times.setdefault(row["job"], {})[row["rows"]] = row["seconds"] / row["rows"]
    return {"time per row": times}


def digest(data: object) -> str:
    """Return a digest of the numbers of a chart."""
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]


def draw_accuracy(path: Path) -> None:
    """Draw differences of the log loss with 90 % intervals."""
    data = accuracy()
    with _figure(path, data, (8.0, 3.2), 2) as axes:
        for ax, (title, rows) in zip(axes, data.items(), strict=True):
            for place, opponents in enumerate(rows.values()):
                for shift, (name, (difference, error)) in enumerate(opponents.items()):
                    at = place + 0.24 * (shift - 0.5)
                    half = _HALF * error
                    ends = [difference - half, difference + half]
                    ax.plot(ends, [at, at], color=COLORS[name], linewidth=2)
                    mark: Any = {"marker": "os"[shift], "color": COLORS[name], "markersize": 6}
                    label = f"against {name}" if place == 0 else None
                    ax.plot([difference], [at], linestyle="none", label=label, **mark)
            ax.set(title=title, xlabel="log loss, Auto minus other")
            _name_rows(ax, rows)
            ax.axvline(0, color=GRAY, linewidth=1)
            ax.locator_params(axis="x", nbins=3)
        _draw_legend(axes[0])


def draw_speed(path: Path) -> None:
    """Draw times of fits on a logarithmic axis."""
    data = speed()
    with _figure(path, data, (8.0, 4.4), 2) as axes:
        for ax, (title, rows) in zip(axes, data.items(), strict=True):
            for at, (ours, other) in enumerate(rows.values()):
                if other is not None:
                    ax.plot([ours, other], [at, at], color=GRAY, linewidth=1, zorder=1)
                    name = "fastest alternative" if at == 1 else None
                    ax.plot([other], [at], "s", color=COLORS["SMS"], markersize=6, label=name)
                name = "bayescal" if at == 1 else None
                ax.plot([ours], [at], "o", color=COLORS["SVS"], markersize=6, label=name)
            ax.set(title=title, xlabel="time of a fit", xscale="log")
            ticks = {1e-3: "1 ms", 1e-2: "", 1e-1: "0.1 s", 1: "", 10: "10 s"}
            ax.set_xticks([*ticks], [*ticks.values()])
            ax.minorticks_off()
            _name_rows(ax, rows)
        _draw_legend(axes[0])


def draw_growth(path: Path) -> None:
    """Draw the time per row over the number of rows, both on logarithmic axes."""
    data = growth()
    with _figure(path, data, (6.0, 3.4), 1) as ax:
        for line, (job, times) in enumerate(data["time per row"].items()):
            look: Any = {"color": f"C{line}", "marker": "os^vD"[line], "markersize": 4}
            ax.plot([*times], [*times.values()], label=job, linewidth=1.5, **look)
        ax.set(xlabel="rows", ylabel="time per row", xscale="log", yscale="log")
        ticks = {1e-9: "1 ns", 1e-8: "10 ns", 1e-7: "100 ns", 1e-6: "1 µs", 1e-5: "10 µs"}
        ax.set_yticks([*ticks], [*ticks.values()])
        ax.minorticks_off()
        ax.grid(color=GRAY, alpha=0.25, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_facecolor("none")
        ax.legend(frameon=False, labelcolor=GRAY)


def _draw_legend(ax: Any) -> None:
    handles, names = ax.get_legend_handles_labels()
    ax.figure.legend(
        handles, names, loc="outside upper center", ncols=2, frameon=False, labelcolor=GRAY
    )


def _name_rows(ax: Any, rows: Any) -> None:
    ax.set_yticks(range(len(rows)), list(rows), fontsize="small")
    ax.invert_yaxis()
    ax.grid(axis="x", color=GRAY, alpha=0.25, linewidth=0.6)
    ax.tick_params(length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_facecolor("none")


class _figure:
    """A figure with panels, written when the block ends."""

    def __init__(self, path: Path, data: object, size: tuple[float, float], panels: int) -> None:
        import matplotlib

        self.path, self.about = path, {"Date": None, "Description": f"numbers {digest(data)}"}
        self.size, self.panels, self.look = size, panels, matplotlib.rc_context(LOOK)

    def __enter__(self) -> Any:
        from matplotlib.figure import Figure

        self.look.__enter__()
        self.figure = Figure(figsize=self.size, layout="constrained")
        return self.figure.subplots(1, self.panels)

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            how: Any = {"format": "svg", "transparent": True, "metadata": self.about}
            self.figure.savefig(self.path, **how)
        self.look.__exit__(None, None, None)


CHARTS = {
    "accuracy": (draw_accuracy, accuracy),
    "growth": (draw_growth, growth),
    "speed": (draw_speed, speed),
}
