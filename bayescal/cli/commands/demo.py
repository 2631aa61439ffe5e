"""``bayescal demo``: calibrate a support vector machine on a built-in data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import typer

import bayescal as bc
from bayescal.cli._errors import CommandError, library_call, show, watched
from bayescal.cli._options import Seed
from bayescal.cli.tables.files import write_atomically

if TYPE_CHECKING:
    from rich.table import Table

_BINS = 10
#: Bins of the diagram have equal mass, because most predictions are near 0 or 1.
_DRAWN_BINS = 8


class Scores(NamedTuple):
    """Scores of the support vector machine, and labels, to calibrate with and to test on."""

    calibration: np.ndarray
    calibration_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def demo(
    *,
    out: Annotated[Path, typer.Option(help="Folder for the figure; created if missing.")] = Path(
        "bayescal-demo"
    ),
    seed: Seed = 0,
) -> None:
    """Calibrate a linear SVM on a built-in data set: a table and a reliability diagram."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{out}: cannot make the folder: {error.strerror}") from error
    with watched() as progress:
        progress("training a linear SVM", 0, 4)
        raw = _svm_scores(seed)
        probs = {"uncalibrated": 1 / (1 + np.exp(-raw.test))}
        progress("fitting calibrators", 1, 4)
        with library_call():
            for calibrator in (
                bc.Auto(inputs="logits"),
                bc.Beta(inputs="logits"),
                bc.Isotonic(inputs="scores"),
            ):
                calibrator.fit(raw.calibration, raw.calibration_labels)
                probs[type(calibrator).__name__] = calibrator.predict_proba(raw.test)[:, 1]
            progress("conditioning a generative model", 2, 4)
            probs["posterior"] = _posterior(raw)
        progress("drawing", 3, 4)
        figure = out / "reliability.png"
        _draw(figure, {n: probs[n] for n in ("uncalibrated", "Auto")}, raw.test_labels)
    show(_explain(raw), _table(probs, raw.test_labels), wrap=True)
    show(f"reliability diagram: {figure}")


def _posterior(raw: Scores) -> np.ndarray:
    """Predict optimally if the scores of each class are normal with one variance."""
    center, spread = raw.calibration.mean(), raw.calibration.std()
    known, points = ((part - center) / spread for part in (raw.calibration, raw.test))
    post = bc.posterior(
        bc.NormalInverseGammaPrior(-1, 1, kappa0=1, kappa1=1, alpha=2, beta=1),
        (known, raw.calibration_labels),
        integrator="closed_form",
        class_prior=float(raw.calibration_labels.mean()),
    )
    return np.asarray(post.predict(points).probs)


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


def _explain(raw: Scores) -> str:
    return (
        "Breast cancer Wisconsin: is a tumor benign? A linear SVM (C = 1, standardized features) "
        f"is calibrated on {len(raw.calibration)} cases and tested on {len(raw.test)} others. It "
        "was trained on different cases.\n\n"
        "Uncalibrated is the logistic function of the SVM's score. Auto is the default calibrator, "
        "and Beta and Isotonic are common alternatives. Posterior assumes that standardized scores "
        "are normal in each class, with prior means of -1 and 1 and equal variances near 1.\n"
    )


def _table(probs: dict[str, np.ndarray], y: np.ndarray) -> Table:
    """Make a table of the scores of each method on the test rows."""
    from rich.table import Table

    table = Table(caption="lower is better, except for ROC AUC")
    table.add_column("method")
    for name in ("log loss", "Brier score", f"ECE ({_BINS} bins)", "ROC AUC"):
        table.add_column(name, justify="right")
    for name, p in probs.items():
        ece = bc.metrics.ece(p, y, bins=_BINS)
        values = bc.metrics.log_loss(p, y), bc.metrics.brier_score(p, y), ece
        auc = bc.metrics.roc_auc(p, y)
        table.add_row(name, *(f"{value:.4f}" for value in (*values, auc)))
    return table


def _draw(path: Path, probs: dict[str, np.ndarray], y: np.ndarray) -> None:
    """Write the reliability diagram, without a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6, 4.3), layout="constrained")
    ax = figure.add_subplot()
    bc.plots.reliability(probs, y, bins=_DRAWN_BINS, binning="equal_mass", ax=ax)
    ax.set_title("Linear SVM, breast cancer", fontsize="medium")
    write_atomically(path, lambda stream: figure.savefig(stream, format="png", dpi=200))
