"""Multi-label problems, calibrated one label at a time.

Data with scores are split at random into two halves, one for calibration and one for testing. In
data with features, one third of the training rows is used for calibration, classifiers are trained
on the rest, and the test rows are used for testing.
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
#: Share of class 1 in a bin that is already calibrated.
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
    r"""Calibrate each label of every data set by each method, and write the results.

    The results of each data set and split are written to a separate file under ``out/parts`` as
    soon as they are finished, and later runs reuse them.

    Parameters
    ----------
    data : path
        Folder of .npz files with probabilities ``scores`` and ``labels`` (n, l), or with features
        and labels ``X_train``, ``Y_train``, ``X_test`` and ``Y_test``; or a folder that contains
        such a folder as ``multilabel``.
    out : path
        Folder for the results, created if it is missing: ``multilabel.csv`` with a row for each
        data set, split and method; ``multilabel.json``; and ``parts``.
    splits : int
        Number of splits; the seeds of splits and classifiers are 0, 1, ...
    names : sequence of str, optional
        Names of files; by default all.
    methods : sequence of str, optional
        Names in ``METHODS``, by default all.
    about : mapping of str to str, optional
        Versions and similar facts that results depend on; written to the summary.
    progress : callable, optional
        Called with the name of a data set, the number of finished parts and the total number of
        parts, before each part and at the end.

    Returns
    -------
    dict
        The content of ``multilabel.json``. ``data`` contains, by data set and method, the ``mean``
        and ``deviation`` of the metrics over splits, and ``without_optimum``, the number of fits
        that did not converge (if scores separate a label, no finite parameters are optimal). Its
        ``bins`` are the effects of histogram binning, as returned by ``_label_bins.examine`` and
        added over splits. ``exact`` contains the expected effect of histogram binning on
        probabilities that are already calibrated, by the number of rows in a bin, and its effect on
        two rows in a bin that contains the threshold 1/2.

    Raises
    ------
    ValueError
        If a file cannot be read, or data or a method is unknown.
    OSError
        If results cannot be written.

    Notes
    -----
    With :math:`\mathrm{ECE}_l` the error of label l in 10 bins of equal width, and :math:`n_l` of n
    test rows having the label,

    .. math:: \mathrm{ECE}_{tot} = \sum_l \mathrm{ECE}_l, \qquad
        \mathrm{ECE}_{wavg} = \sum_l \frac{n_l}{n} \mathrm{ECE}_l .

    The Hamming loss is the share of wrong labels if a label is predicted when its probability is
    above 1/2. Log loss (clipped at 1e-15) and Brier score are means over labels.

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
    ...     path = pathlib.Path(folder)
    ...     np.savez(path / "example.npz", scores=scores, labels=labels)
    ...     result = run(path, path / "out", methods=["uncalibrated", "beta"])
    >>> methods = result["data"]["example"]["methods"]
    >>> methods["beta"]["mean"]["ece_total"] < methods["uncalibrated"]["mean"]["ece_total"]
    True
    """
    if splits < 1:
        raise ValueError(f"splits must be at least 1, got {splits}")
    selected = choose(methods, METHODS, "method")
    data_sets = find_label_data(Path(data), names)
    store = Results("multilabel", out, about)
    rows, answers, bin_reports = [], {}, {}
    runs = [(data_set, split) for data_set in data_sets for split in range(splits)]
    for data_set, split in counted(runs, lambda run: run[0].name, progress):
        answer = _part(data_set, split, selected, store)
        by_method = answer["methods"]
        rows += [[data_set.name, split, m, *(by_method[m][k] for k in METRICS)] for m in selected]
        answers.setdefault(data_set.name, []).append(answer)
        bin_reports.setdefault(data_set.name, []).append(_examine_bins(data_set, split, store))
    by_data = {
        name: {
            "rows": of_splits[-1]["rows"],
            "methods": {m: _mean([answer["methods"] for answer in of_splits], m) for m in selected},
            "bins": add(bin_reports[name]),
        }
        for name, of_splits in answers.items()
    }
    store.table("multilabel", ("data", "split", "method", *METRICS), rows)
    exact = {str(n): calibrated_already(n, _SHARE) for n in (5, 20, 100, 1000)}
    summary = {"eps": EPS, "bins": _BINS, "splits": splits, "data": by_data}
    summary |= {"exact": {"share": _SHARE, "rows": exact, "odd_bins": odd_bins()}}
    return store.summary("multilabel", summary)


def evaluate(
    probs: np.ndarray,
    y: np.ndarray,
    test_probs: np.ndarray,
    test_y: np.ndarray,
    method: str,
) -> dict[str, float]:
    """Calibrate each label separately, and compute the metrics on the test rows.

    Parameters
    ----------
    probs, test_probs : arrays of shape (n, l) and (m, l)
    y, test_y : arrays of shape (n, l) and (m, l)
        1 if a row has the label, otherwise 0; all rows or no row may have a label.
    method : str
        A name in ``METHODS``.

    Returns
    -------
    dict
        The metrics, ``seconds``, and ``without_optimum``, the number of labels whose fit did not
        converge.

    Raises
    ------
    ValueError
        If the method is unknown.

    Examples
    --------
    >>> probs, y = np.array([[0.1, 0.9], [0.9, 0.9]]), np.array([[0, 0], [1, 0]])
    >>> result = evaluate(probs, y, probs, y, "uncalibrated")
    >>> round(result["ece_total"], 2), round(result["ece_weighted"], 2), result["hamming_loss"]
    (1.0, 0.05, 0.5)
    """
    (name,) = choose([method], METHODS, "method")
    make = METHODS[name]
    start = time.perf_counter()
    calibrated, num_without_optimum = np.array(test_probs, float), 0
    if make is not None:
        model = MultiLabel(make())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the status tells
            model.fit(probs, y)
        num_without_optimum = sum(part.status_ != "converged" for part in model.calibrators_)
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
        "without_optimum": num_without_optimum,
    }


def _examine_bins(data_set: LabelData, split: int, store: Results) -> dict[str, Any]:
    """Examine the bins of histogram binning on a split, or read the result from its file."""
    question = {"data": [data_set.name, data_set.digest], "split": split}
    return store.part(
        f"{_file_name(data_set)}-{split}-bins",
        question,
        lambda old: old or examine(data_set.split(split), _BINS),
    )


def _file_name(data_set: LabelData) -> str:
    return f"multilabel-{data_set.name.replace(', ', '-').replace(' ', '_')}"


def _part(data_set: LabelData, split: int, methods: list[str], store: Results) -> dict[str, Any]:
    """Read the results of a data set and split from their file, and compute those missing."""

    def complete(old: dict[str, Any] | None) -> dict[str, Any]:
        finished = old["methods"] if old else {}
        missing = [name for name in methods if name not in finished]
        if old and not missing:
            return old
        rows: Labels = data_set.split(split)
        new = {name: evaluate(*rows, name) for name in missing}
        sizes = {"calibration": len(rows.y), "test": len(rows.test_y), "labels": rows.y.shape[1]}
        return {"methods": finished | new, "rows": sizes}

    return store.part(
        f"{_file_name(data_set)}-{split}",
        {"data": [data_set.name, data_set.digest], "split": split},
        complete,
    )


def _mean(answers: list[dict[str, dict[str, float]]], method: str) -> dict[str, Any]:
    """Compute means and deviations over splits, and count the fits that did not converge."""
    values = {key: [answer[method][key] for answer in answers] for key in (*METRICS, "seconds")}
    num_without_optimum = sum(answer[method]["without_optimum"] for answer in answers)
    return {
        "mean": {key: float(np.mean(by_split)) for key, by_split in values.items()},
        "deviation": {key: float(np.std(by_split)) for key, by_split in values.items()},
        "without_optimum": num_without_optimum,
    }
