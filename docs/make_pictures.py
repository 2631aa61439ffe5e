"""Draw the pictures of README.md and of the pages in docs.

    python docs/make_pictures.py [--out DIR] [--charts]

The script draws reliability diagrams of Gaussian naive Bayes on correlated features, before and
after calibration with ``bayescal.Auto``, for a light and a dark theme; a monitor of probabilities
that lose their calibration; and the charts of the benchmarks. It also takes a screenshot of the
report on the page Start, if ChromeDriver is installed. With ``--charts``, it draws only the charts
of the benchmarks.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import charts

PICTURES = Path(__file__).resolve().parent / "pictures"
ROWS = 20_000
# Colors of the text, of axes and diagonal, and of the model before and after calibration. The
# background is transparent.
THEMES = {
    "light": ("#1f2328", "#8c959f", "#d55e00", "#0072b2"),
    "dark": ("#e6edf3", "#6e7681", "#ff8c42", "#58a6ff"),
}


def models() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Predict held-out rows before and after calibration; return probabilities and labels."""
    from sklearn.datasets import make_classification
    from sklearn.model_selection import train_test_split
    from sklearn.naive_bayes import GaussianNB

    import bayescal as bc

    X, y = make_classification(
        ROWS, n_features=30, n_informative=5, n_redundant=25, flip_y=0.05, random_state=3
    )
    X, X_test, y, y_test = train_test_split(X, y, train_size=2000, random_state=0)
    model = bc.CalibratedClassifier(GaussianNB(), cv=5).fit(X, y)
    raw = GaussianNB().fit(X, y)
    probs = {"Before": raw.predict_proba(X_test), "After": model.predict_proba(X_test)}
    return {name: p[:, 1] for name, p in probs.items()}, np.asarray(y_test)


def draw(probs: dict[str, np.ndarray], y: np.ndarray, theme: str, path: Path) -> None:
    """Draw a reliability diagram of each model, with the density of its predictions below."""
    import matplotlib
    from matplotlib.figure import Figure

    import bayescal as bc

    text_color, line_color, *colors = THEMES[theme]
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "bayescal",
        "font.family": "sans-serif",
        "font.size": 11,
        "text.color": text_color,
        "axes.labelcolor": text_color,
        "xtick.color": line_color,
        "ytick.color": line_color,
        "xtick.labelcolor": text_color,
        "ytick.labelcolor": text_color,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        axes = figure.subplots(
            2, 2, sharex=True, sharey="row", gridspec_kw={"height_ratios": [5, 1], "hspace": 0.06}
        )
        for column, ((name, p), color) in enumerate(zip(probs.items(), colors, strict=True)):
            top, bottom = axes[:, column]
            bins = bc.metrics.reliability_curve(p, y, bins=10)
            top.plot([0, 1], [0, 1], color=line_color, linewidth=1, linestyle="--")
            top.plot(bins.predicted, bins.observed, "o-", color=color, linewidth=2)
            loss, error = bc.metrics.log_loss(p, y), bc.metrics.ece(p, y)
            top.set_title(f"{name}: log loss {loss:.2f}, ECE {error:.3f}", fontsize=12)
            bottom.hist(p, bins=40, range=(0, 1), color=color)
            bottom.set(xlabel="Predicted probability", xlim=(-0.02, 1.02), yticks=[])
            for ax in (top, bottom):
                ax.set_facecolor("none")
                ax.spines[["top", "right"]].set_visible(False)
                ax.spines[["left", "bottom"]].set_color(line_color)
        axes[0, 0].set(ylabel="Observed frequency", ylim=(-0.02, 1.02))
        axes[1, 0].set_ylabel("Rows")
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})


def draw_monitor(path: Path) -> None:
    """Draw the monitor of the example in docs/monitor.md."""
    import matplotlib

    import bayescal as bc

    rng = np.random.default_rng(3)
    log_odds = rng.normal(0, 2, 6000)
    p = 1 / (1 + np.exp(-log_odds))
    changed = 1 / (1 + np.exp(-(0.6 * log_odds + 0.3)))
    y = rng.random(6000) < np.where(np.arange(6000) < 4000, p, changed)
    times = np.datetime64("2026-01-01T00", "h") + np.arange(6000)
    monitor = bc.Monitor().update(p, y, times=times)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bayescal"}):
        figure: Any = monitor.plot()[0].figure
        figure.set_size_inches(8, 6)
        figure.savefig(path, format="svg", metadata={"Date": None})


def save_report_screenshot(path: Path) -> None:
    """Save a screenshot of the top of the report that the example in docs/start/index.md writes."""
    import look
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split
    from sklearn.naive_bayes import GaussianNB

    import bayescal as bc

    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    models = {
        "raw": GaussianNB().fit(X, y),
        "calibrated": bc.CalibratedClassifier(GaussianNB()).fit(X, y),
    }
    probs = {name: model.predict_proba(X_test) for name, model in models.items()}
    with tempfile.TemporaryDirectory() as folder:
        bc.evaluate(probs, y_test).save_html(Path(folder) / "report.html")
        with look.served(Path(folder)) as home, look.browser() as driver:
            size = {"width": 960, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            driver.get(f"{home}/report.html")
            look.save_screenshot(driver, 960, path, 760)


def main() -> None:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description="Draw the pictures of README.md and of docs.")
    parser.add_argument("--out", type=Path, default=PICTURES)
    parser.add_argument(
        "--charts", action="store_true", help="draw only the charts of the benchmarks"
    )
    args = parser.parse_args()
    folder = args.out
    folder.mkdir(parents=True, exist_ok=True)
    for name, (draw_chart, _) in charts.CHARTS.items():
        draw_chart(folder / f"{name}.svg")
    if args.charts:
        return
    probs, y = models()
    for theme in THEMES:
        draw(probs, y, theme, folder / f"reliability-{theme}.svg")
    draw_monitor(folder / "monitor.svg")
    if shutil.which("chromedriver"):
        save_report_screenshot(folder / "report.png")


if __name__ == "__main__":
    main()
