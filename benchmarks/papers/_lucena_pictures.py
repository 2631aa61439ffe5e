"""Draw the pictures of the page on splines: python -m benchmarks.papers._lucena_pictures.

The pictures are drawn from benchmarks/results/study_splines.json and written to docs/papers:
lucena-figure-1.svg, the compact logit; lucena-figure-2.svg, log loss and accuracy by epoch;
lucena-classes.svg, a calibration curve for each class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayescal.calibrators.binary.spline.calibrator import compact_logit
from benchmarks.papers._common import ROOT, read
from benchmarks.studies.store import write_figure

FOLDER = ROOT / "docs" / "papers"
_LINES = {
    "uncalibrated": "0.55",
    "clipped, best": "tab:orange",
    "compact spline": "tab:blue",
    "logit spline, unity prior": "tab:green",
}
_NAMES = {
    "clipped, best": "clipped",
    "compact spline": "spline",
    "logit spline, unity prior": "spline with prior",
}


def _figure(width: float, height: float, columns: int, rows: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def draw_compact_logit() -> Any:
    """Draw figure 1."""
    figure, axes = _figure(3.6, 3.2, 1)
    points = np.linspace(0, 1, 401)
    for epsilon in (0.1, 0.01, 0.0001):
        axes[0, 0].plot(
            points, compact_logit(points, epsilon), label=f"ε = {epsilon:g}", linewidth=1.2
        )
    axes[0, 0].set(xlabel="Probability", ylabel="Compact logit", aspect="equal")
    axes[0, 0].legend(frameon=False)
    return figure


def draw_epochs(training: dict[str, Any]) -> Any:
    """Draw figure 2 for the small networks, as means over seeds."""
    figure, axes = _figure(7.6, 5.2, 2, 2)
    epochs = training["checkpoints"]
    for row, scheme in zip(axes, ("held out", "cross-validated"), strict=True):
        for ax, metric in zip(row, ("log_loss", "accuracy"), strict=True):
            for name, color in _LINES.items():
                if metric == "accuracy" and name == "clipped, best":
                    continue  # clipping never changes the ranking of classes
                runs = np.array([seed[scheme][name][metric] for seed in training["seeds"]])
                label = _NAMES.get(name, name)
                ax.plot(epochs, runs.mean(axis=0), color=color, label=label, linewidth=1.2)
            ax.set(xlabel="Epoch", ylabel=metric.replace("_", " ").capitalize(), title=scheme)
    lines = axes[0, 0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside upper center", ncols=len(_LINES), frameon=False)
    return figure


def draw_classes(curves: dict[str, Any]) -> Any:
    """Draw the curve of each class between the 0.1 % and 99.9 % quantiles of its probabilities."""
    figure, axes = _figure(7.6, 3.4, 5, 2)
    log_odds = np.array(curves["log_odds"])
    for j, (ax, probs) in enumerate(zip(axes.flat, curves["probabilities"], strict=True)):
        p = np.array(probs)
        low, high = np.clip(curves["spans"][j], 1e-9, 1 - 1e-9)
        covered = (log_odds >= np.log(low / (1 - low))) & (log_odds <= np.log(high / (1 - high)))
        calibrated = np.log(np.clip(p, 1e-5, 1 - 1e-5)) - np.log1p(-np.clip(p, 1e-5, 1 - 1e-5))
        ax.plot([-12, 12], [-12, 12], color="0.7", linewidth=0.8)
        ax.plot(log_odds[covered], calibrated[covered].round(2), linewidth=1.2)
        ax.set(title=f"class {j}", xlim=(-12, 12), ylim=(-9, 9))
        ax.set(xticks=[-10, 0, 10], yticks=[-5, 0, 5])
        ax.tick_params(labelsize=7)
        ax.label_outer()
        ax.title.set_size(8)
    figure.supxlabel("log odds of the network", size=8)
    figure.supylabel("calibrated", size=8)
    return figure


def write() -> None:
    """Draw and write all pictures."""
    study = read("splines")
    write_figure(FOLDER / "lucena-figure-1.svg", draw_compact_logit())
    write_figure(FOLDER / "lucena-figure-2.svg", draw_epochs(study["training"]))
    curves = study["networks"]["kull_densenet40_c10"]["curves"]
    write_figure(FOLDER / "lucena-classes.svg", draw_classes(curves))


if __name__ == "__main__":
    write()
