"""``bayescal demo``: calibrate a support vector machine on a built-in data set."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import typer

import bayescal as bc
from bayescal.cli._errors import CommandError, library_call, quality, running, show
from bayescal.cli._files import write_atomically
from bayescal.cli._options import Integrator, NumSamples, Seed
from bayescal.cli._prior_syntax import parse_prior

if TYPE_CHECKING:
    from rich.table import Table

_PRIOR = "gaussian: mu0=normal(-1, 1), mu1=normal(1, 1), sigma0=halfnormal(1), sigma1=halfnormal(1)"
_METHODS = ("preds", "coeffs", "map", "predictive")
_BINS = 10


class Scores(NamedTuple):
    """Scores of the support vector machine, and labels, to calibrate with and to test on."""

    calibration: np.ndarray
    calibration_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def demo(
    *,
    out: Annotated[Path, typer.Option(help="Folder for the figure; made if it is missing.")] = Path(
        "bayescal-demo"
    ),
    seed: Seed = 0,
    num_samples: NumSamples = 100_000,
    integrator: Integrator = "importance",
) -> None:
    """Calibrate a linear SVM on a built-in data set: a table and a reliability diagram."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{out}: cannot make the folder: {error.strerror}") from error
    steps = 3 + len(_METHODS)
    with running() as progress:
        progress("training a linear SVM", 0, steps)
        raw = _svm_scores(seed)
        progress("conditioning the prior", 1, steps)
        # Standardize to the scale for which the prior was chosen.
        centre, spread = raw.calibration.mean(), raw.calibration.std()
        known, points = ((part - centre) / spread for part in (raw.calibration, raw.test))
        base_rate = float(raw.calibration_labels.mean())
        start = time.perf_counter()
        with library_call():
            post = bc.posterior(
                parse_prior(_PRIOR),
                (known, raw.calibration_labels),
                integrator=integrator,
                num_samples=num_samples,
                class_prior=base_rate,
                key=seed,
            )
        seconds: dict[str, float] = {"conditioning": time.perf_counter() - start}
        probs = {"uncalibrated": 1 / (1 + np.exp(-raw.test))}
        for done, method in enumerate(_METHODS, start=2):
            progress(f"predicting: {method}", done, steps)
            start = time.perf_counter()
            with library_call():
                probs[method] = np.asarray(post.predict(points, method=method).probs)
            seconds[method] = time.perf_counter() - start
        progress("drawing", steps - 1, steps)
        figure = out / "reliability.png"
        _draw(figure, {n: probs[n] for n in ("uncalibrated", "predictive")}, raw.test_labels)
    how = f"{integrator}{quality(post)}, {seconds['conditioning']:.1f} s to condition"
    show(_explain(raw, base_rate), _table(probs, raw.test_labels, seconds), how, wrap=True)
    show(f"reliability diagram: {figure}")


def _svm_scores(seed: int) -> Scores:
    """Train on 170 of the breast-cancer rows; score 99 for calibration and 300 for the test."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    X, y = load_breast_cancer(return_X_y=True)
    random_state = seed % 2**32
    X, X_rest, y, y_rest = train_test_split(
        X, y, train_size=170, stratify=y, random_state=random_state
    )
    svm = make_pipeline(StandardScaler(), SVC(kernel="linear", C=1.0)).fit(X, y)
    X_cal, X_test, y_cal, y_test = train_test_split(
        X_rest, y_rest, train_size=99, stratify=y_rest, random_state=random_state
    )
    return Scores(
        svm.decision_function(X_cal),
        np.asarray(y_cal),
        svm.decision_function(X_test),
        np.asarray(y_test),
    )


def _explain(raw: Scores, base_rate: float) -> str:
    return (
        "Breast cancer Wisconsin: is a tumor benign? A linear SVM (C = 1, standardised features) "
        f"is calibrated on {len(raw.calibration)} cases and tested on {len(raw.test)} others; "
        "neither trained it. Uncalibrated means the logistic function of its score.\n\n"
        f"Prior: {_PRIOR}\n\n"
        "It is weakly informative. It speaks of scores that are standardised on the calibration "
        "cases: there the benign class lies higher, by two units give or take one and a half, and "
        "each class has its own spread, of order one. The class prior is the share of benign "
        f"calibration cases, {base_rate:.3f}.\n"
    )


def _table(probs: dict[str, np.ndarray], y: np.ndarray, seconds: dict[str, float]) -> Table:
    """Make a table of the scores of each method on the test rows."""
    from rich.table import Table

    table = Table(caption="lower is better")
    table.add_column("method")
    for name in ("log loss", "Brier score", f"ECE ({_BINS} bins)", "seconds"):
        table.add_column(name, justify="right")
    for name, p in probs.items():
        ece = bc.metrics.ece(p, y, bins=_BINS)
        values = bc.metrics.log_loss(p, y), bc.metrics.brier_score(p, y), ece
        took = f"{seconds[name]:.2f}" if name in seconds else ""
        table.add_row(name, *(f"{value:.4f}" for value in values), took)
    return table


def _draw(path: Path, probs: dict[str, np.ndarray], y: np.ndarray) -> None:
    """Write the reliability diagram, without a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6, 4.3), layout="constrained")
    ax = bc.plots.reliability(probs, y, bins=_BINS, ax=figure.add_subplot())
    ax.set_title("Linear SVM, breast cancer", fontsize="medium")
    write_atomically(path, lambda stream: figure.savefig(stream, format="png", dpi=200))
