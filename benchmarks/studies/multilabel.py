"""Labels that do not exclude each other, calibrated one by one.

Data with scores are split at random into halves, to calibrate and to test. Of data with features a
third of the training rows calibrate, classifiers are trained on the others, and the test rows test.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bayescal import (
    BBQ,
    Beta,
    CenteredIsotonic,
    Histogram,
    Isotonic,
    Logistic,
    MultiLabel,
    Temperature,
    VennAbers,
    metrics,
)
from benchmarks.studies._label_bins import add, calibrated_already, examine, odd_bins
from benchmarks.studies._label_data import LabelData, Labels, find_label_data
from benchmarks.studies._measures import EPS
from benchmarks.studies.data import choose
from benchmarks.studies.store import Progress, Results, counted

__all__ = ["METHODS", "METRICS", "evaluate", "run"]

#: Calibrators of one label.
METHODS: dict[str, Callable[[], Any] | None] = {
    "uncalibrated": None,
    "histogram": lambda: Histogram(bins=10),
    "histogram_prior": lambda: Histogram(bins=10, prior_weight=1.0),
    "histogram_mass": lambda: Histogram(bins=10, binning="equal_mass"),
    "logistic": Logistic,
    "temperature": Temperature,
    "beta": Beta,
    "isotonic": Isotonic,
    "centered_isotonic": CenteredIsotonic,
    "venn_abers": VennAbers,
    "bbq": BBQ,
}
METRICS = ("ece_total", "ece_weighted", "hamming_loss", "log_loss", "brier_score")
_BINS = 10
#: Of class 1 in a bin that is calibrated already.
_SHARE = 0.4


def run(
    data: str | Path,
    out: str | Path,
    *,
    splits: int = 5,
    names: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    r"""Calibrate each label of every data set by each method, and write what comes out.

    Each data set and split is kept in a file of its own under ``out/parts`` as soon as it is
    finished, and not computed again.

    Parameters
    ----------
    data : path
        Folder of .npz files with probabilities ``scores`` and ``labels`` (n, l), or with features
        and labels ``X_train``, ``Y_train``, ``X_test`` and ``Y_test``; or a folder with such a
        folder ``multilabel``.
    out : path
        Folder for the results, made if it is missing: ``multilabel.csv`` with a row for each data
        set, split and method; ``multilabel.json``; and ``parts``.
    splits : int
        Seeds 0, 1, ... of the splits, and of classifiers.
    names : sequence of str, optional
        Names of files; by default all.
    methods : sequence of str, optional
        From ``METHODS``, by default all.
    about : mapping of str to str, optional
        Versions and the like that results depend on; written to the summary.
    progress : callable, optional
        Called with the name of a data set, the number of parts done and that of all parts, before
        each part and at the end.

    Returns
    -------
    dict
        The content of ``multilabel.json``: by data set and method the ``mean`` and ``deviation`` of
        the metrics over splits, and ``without_optimum``, the number of fits that did not converge:
        scores that separate a label have no best finite parameters. ``bins``: what ``examine``
        of ``_label_bins`` says of histogram binning, added up over splits. ``exact``: what it does
        to probabilities that are calibrated already, by the number of rows in a bin, and to two
        rows in a bin that one half divides.

    Raises
    ------
    ValueError
        If a file cannot be read, or data or a method is unknown.
    OSError
        If results cannot be written.

    Notes
    -----
    With :math:`\mathrm{ECE}_l` the error of label l in 10 bins of equal width, and :math:`n_l` the
    number of n test rows that have it,

    .. math:: \mathrm{ECE}_{tot} = \sum_l \mathrm{ECE}_l, \qquad
        \mathrm{ECE}_{wavg} = \sum_l \frac{n_l}{n} \mathrm{ECE}_l .

    The Hamming loss is the share of labels that are wrong where a probability above 1/2 predicts
    the label. Log loss (clipped at 1e-15) and Brier score are means over labels.

    References
    ----------
    A theoretical insight of histogram binning and extending to multi-label classification,
    anonymous submission to ICLR.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random((300, 2))
    >>> labels = (rng.random((300, 2)) < scores**2).astype(int)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = pathlib.Path(folder)
    ...     np.savez(place / "example.npz", scores=scores, labels=labels)
    ...     found = run(place, place / "out", methods=["uncalibrated", "beta"])
    >>> methods = found["data"]["example"]["methods"]
    >>> methods["beta"]["mean"]["ece_total"] < methods["uncalibrated"]["mean"]["ece_total"]
    True
    """
    if splits < 1:
        raise ValueError(f"splits must be at least 1, got {splits}")
    chosen = choose(methods, METHODS, "method")
    sets = find_label_data(Path(data), names)
    kept = Results("multilabel", out, about)
    rows, answers, looked = [], {}, {}
    runs = [(each, split) for each in sets for split in range(splits)]
    for each, split in counted(runs, lambda run: run[0].name, progress):
        answer = _part(each, split, chosen, kept)
        own = answer["methods"]
        rows += [[each.name, split, m, *(own[m][k] for k in METRICS)] for m in chosen]
        answers.setdefault(each.name, []).append(answer)
        looked.setdefault(each.name, []).append(_look(each, split, kept))
    found = {
        name: {
            "rows": some[-1]["rows"],
            "methods": {m: _mean([answer["methods"] for answer in some], m) for m in chosen},
            "bins": add(looked[name]),
        }
        for name, some in answers.items()
    }
    kept.table("multilabel", ("data", "split", "method", *METRICS), rows)
    exact = {str(n): calibrated_already(n, _SHARE) for n in (5, 20, 100, 1000)}
    summary = {"eps": EPS, "bins": _BINS, "splits": splits, "data": found}
    summary |= {"exact": {"share": _SHARE, "rows": exact, "odd_bins": odd_bins()}}
    return kept.summary("multilabel", summary)


def evaluate(
    probs: np.ndarray,
    y: np.ndarray,
    test_probs: np.ndarray,
    test_y: np.ndarray,
    method: str,
) -> dict[str, float]:
    """Calibrate label by label, and return the metrics on the test rows.

    Parameters
    ----------
    probs, test_probs : arrays of shape (n, l) and (m, l)
    y, test_y : arrays of shape (n, l) and (m, l)
        1 where a row has the label, else 0; a label may be there always or never.
    method : str
        From ``METHODS``.

    Returns
    -------
    dict
        By metric, ``seconds``, and ``without_optimum``, the number of labels whose fit did not
        converge.

    Raises
    ------
    ValueError
        For an unknown method.

    Examples
    --------
    >>> probs, y = np.array([[0.1, 0.9], [0.9, 0.9]]), np.array([[0, 0], [1, 0]])
    >>> found = evaluate(probs, y, probs, y, "uncalibrated")
    >>> round(found["ece_total"], 2), round(found["ece_weighted"], 2), found["hamming_loss"]
    (1.0, 0.05, 0.5)
    """
    (name,) = choose([method], METHODS, "method")
    make = METHODS[name]
    start = time.perf_counter()
    calibrated, without = np.array(test_probs, float), 0
    if make is not None:
        model = MultiLabel(make())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the status says it
            model.fit(probs, y)
        without = sum(part.status_ != "converged" for part in model.calibrators_)
        calibrated = model.predict_proba(test_probs)
    seconds = time.perf_counter() - start
    pairs = list(zip(calibrated.T, test_y.T, strict=True))
    error = partial(metrics.multilabel_ece, calibrated, test_y, bins=_BINS)
    return {
        "ece_total": error(average="total"),
        "ece_weighted": error(average="weighted"),
        "hamming_loss": metrics.hamming_loss(calibrated, test_y),
        "log_loss": float(np.mean([metrics.log_loss(p, label, eps=EPS) for p, label in pairs])),
        "brier_score": float(np.mean((calibrated - test_y) ** 2)),
        "seconds": round(seconds, 4),
        "without_optimum": without,
    }


def _look(each: LabelData, split: int, kept: Results) -> dict[str, Any]:
    """Return what the bins do, from its file if it is there."""
    question = {"data": [each.name, each.digest], "split": split}
    return kept.part(
        f"{_file(each)}-{split}-bins",
        question,
        lambda old: old or examine(each.split(split), _BINS),
    )


def _file(each: LabelData) -> str:
    return f"multilabel-{each.name.replace(', ', '-').replace(' ', '_')}"


def _part(each: LabelData, split: int, methods: list[str], kept: Results) -> dict[str, Any]:
    """Return results by method, and numbers of rows, from their file as far as they are there."""

    def complete(old: dict[str, Any] | None) -> dict[str, Any]:
        known = old["methods"] if old else {}
        missing = [name for name in methods if name not in known]
        if old and not missing:
            return old
        rows: Labels = each.split(split)
        new = {name: evaluate(*rows, name) for name in missing}
        sizes = {"calibration": len(rows.y), "test": len(rows.test_y), "labels": rows.y.shape[1]}
        return {"methods": known | new, "rows": sizes}

    return kept.part(
        f"{_file(each)}-{split}", {"data": [each.name, each.digest], "split": split}, complete
    )


def _mean(answers: list[dict[str, dict[str, float]]], method: str) -> dict[str, Any]:
    """Return means and deviations over splits, and the number of fits that did not converge."""
    values = {key: [answer[method][key] for answer in answers] for key in (*METRICS, "seconds")}
    without = sum(answer[method]["without_optimum"] for answer in answers)
    return {
        "mean": {key: float(np.mean(some)) for key, some in values.items()},
        "deviation": {key: float(np.std(some)) for key, some in values.items()},
        "without_optimum": without,
    }
