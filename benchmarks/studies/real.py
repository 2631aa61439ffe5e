"""Regularized and smoothed logistic regression on real binary tables, as in M. Maher's study.

Rows are split at random into 70 % training and 30 % test rows, stratified by class, with a seed for
each split. There are two experiments:

- ``"svm"``: a linear support vector machine (C = 1) is trained on 70 % of the training rows. The
  methods calibrate its decision values on the remaining 30 %.
- ``"multivariate"``: the methods are logistic regressions on all features and all training rows.

Features are standardized with the rows on which a model is trained.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bayescal import LogisticRegression, metrics
from benchmarks.studies._binary_tables import BinaryTable, find_tables, read_table, split_rows
from benchmarks.studies._real_claims import conclude
from benchmarks.studies._summary import summarize
from benchmarks.studies.data import choose
from benchmarks.studies.store import Progress, Results, counted

__all__ = ["EXPERIMENTS", "METHODS", "METRICS", "evaluate", "run"]

EXPERIMENTS = ("svm", "multivariate")
#: The sigmoid of the decision value, and the presets of ``LogisticRegression``.
METHODS = (
    "uncalibrated",
    "normal",
    "platt",
    "smoothed",
    "L1",
    "L2",
    "ibls",
    "cauchy_map",
    "cauchy",
)
EPS = 1e-15
METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "log_loss": partial(metrics.log_loss, eps=EPS),
    "brier_score": metrics.brier_score,
    "ece": partial(metrics.ece, bins=10),
    "accuracy": metrics.accuracy,
}

_TEST_SHARE = _CALIBRATION_SHARE = 0.3
_SUBFOLDER = Path("tabular", "thesis40")
# Four chains for each of hundreds of fits would take hours.
_OTHER_OPTIONS: dict[str, dict[str, Any]] = {"cauchy": {"inference": "laplace"}}


class _Task(NamedTuple):
    """Rows that the methods of an experiment are fitted to, and test rows."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def run(
    data: str | Path,
    out: str | Path,
    *,
    splits: int = 5,
    tables: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    r"""Run both experiments on every table and split, and write the results.

    The results of each table and split are written to a separate file under ``out/parts`` as soon
    as they are finished, and later runs reuse them. Files that are broken, or that are from
    different data or a different ``about``, are computed again.

    Parameters
    ----------
    data : path
        Folder of tables, .csv or .csv.gz with a header, numeric features and a column ``class`` of
        0 and 1; or a folder that contains such a folder as ``tabular/thesis40``.
    out : path
        Folder for the results, created if it is missing: ``results.csv`` with a row for each table,
        split, experiment and method; ``summary.json``; and ``parts``.
    splits : int
        Number of splits; their seeds are 0, 1, ...
    tables : sequence of str, optional
        Names of tables, which are the stems of their files; by default all.
    methods : sequence of str, optional
        Names in ``METHODS``, by default all. "uncalibrated" applies to the first experiment only.
    about : mapping of str to str, optional
        Versions and similar facts that results depend on; written to the summary.
    progress : callable, optional
        Called with the name of a table, the number of finished parts and the total number of parts,
        before each part and at the end.

    Returns
    -------
    dict
        The content of ``summary.json``. ``experiments`` contains, by experiment and metric: means
        over tables by method (of means over splits), their standard deviations over tables, mean
        ranks, the number of tables in which a method is best, published means, and means by table;
        ``seven``, if all seven methods of the source were run: their ranks, the groups that do not
        differ, and published ranks; and ``remarks``, sentences on published means that cannot be
        right and on fits without optimum. ``conclusions`` are verdicts on claims of the source.

    Raises
    ------
    ValueError
        If a table cannot be read, or a table or method is unknown.
    OSError
        If results cannot be written.

    Notes
    -----
    Log losses are clipped at 1e-15: a row with predicted probability zero costs 34.5. "cauchy" is
    the normal approximation of its posterior. Without penalty, separable rows have no finite
    optimum; the last coefficients are used, and the summary counts these fits.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 7.2.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(60, 2)).round(3)
    >>> text = "".join(f"{a},{b},{int(a + b > 0)}\n" for a, b in rows)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder)
    ...     _ = (path / "example.csv").write_text("a,b,class\n" + text)
    ...     result = run(path, path / "out", splits=1, methods=["uncalibrated", "platt"])
    >>> sorted(result["experiments"]["svm"]["log_loss"]["mean"])
    ['platt', 'uncalibrated']
    """
    if splits < 1:
        raise ValueError(f"splits must be at least 1, got {splits}")
    selected = choose(methods, METHODS, "method")
    paths = find_tables(Path(data), tables, _SUBFOLDER)
    store = Results("real", out, about)
    rows, seconds = [], 0.0
    sizes: dict[str, dict[str, int]] = {}
    table = None
    runs = [(name, split) for name in paths for split in range(splits)]
    for name, split in counted(runs, lambda run: run[0], progress):
        if table is None or table.name != name:
            table = read_table(name, paths[name])
            ones = int(np.bincount(table.y)[1])
            sizes[name] = {"rows": len(table.y), "features": table.x.shape[1], "ones": ones}
        answer = _part(table, split, selected, store)
        rows += _flatten(name, split, selected, answer["results"])
        seconds += answer["seconds"]
    header = ("table", "split", "experiment", "method", *METRICS, "status")
    store.table("results", header, rows)
    experiments = summarize(rows, EXPERIMENTS, tuple(METRICS))
    summary = {
        "eps": EPS,
        "splits": splits,
        "seconds": round(seconds, 1),
        "tables": sizes,
        "experiments": experiments,
        "conclusions": conclude(experiments),
    }
    return store.summary("summary", summary)


def evaluate(
    x: np.ndarray, y: np.ndarray, split: int, methods: Sequence[str] | None = None
) -> dict[str, dict[str, dict[str, Any]]]:
    """Compute the metrics of each method in each experiment, on one split of one table.

    Parameters
    ----------
    x : array of shape (n, d)
    y : array of shape (n,)
        Labels in {0, 1}.
    split : int
        Seed of the split.
    methods : sequence of str, optional
        Names in ``METHODS``, by default all.

    Returns
    -------
    dict
        The metrics and the ``status`` of the fit, by experiment and method.

    Raises
    ------
    ValueError
        If a method is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(1).normal(size=(80, 2))
    >>> y = (x.sum(axis=1) + np.sin(9 * x[:, 0]) > 0).astype(int)
    >>> result = evaluate(x, y, 0, ["normal", "platt"])
    >>> result["svm"]["platt"]["status"]
    'converged'
    """
    methods = choose(methods, METHODS, "method")
    return {
        experiment: {
            method: _assess(method, task, split)
            for method in methods
            if method != "uncalibrated" or experiment == "svm"
        }
        for experiment, task in _tasks(x, y, split).items()
    }


def _part(table: BinaryTable, split: int, methods: list[str], store: Results) -> dict[str, Any]:
    """Read the results of one table and split from its file, and compute those that are missing."""

    def complete(old: dict[str, Any] | None) -> dict[str, Any]:
        finished = old["results"] if old else {e: {} for e in EXPERIMENTS}
        missing = [name for name in methods if name not in finished["svm"]]
        if old and not missing:
            return old
        start = time.perf_counter()
        new = evaluate(table.x, table.y, split, missing)
        seconds = (old["seconds"] if old else 0.0) + time.perf_counter() - start
        return {
            "results": {e: finished[e] | new[e] for e in EXPERIMENTS},
            "seconds": round(seconds, 3),
        }

    question = {"table": table.name, "split": split, "data": table.digest}
    return store.part(f"{table.name}-{split}", question, complete)


def _flatten(table: str, split: int, methods: list[str], results: dict[str, Any]) -> list[list]:
    """Arrange results as a row for each experiment and method."""
    return [
        [
            table,
            split,
            experiment,
            method,
            *(by_method[method][key] for key in (*METRICS, "status")),
        ]
        for experiment, by_method in results.items()
        for method in methods
        if method in by_method
    ]


def _tasks(x: np.ndarray, y: np.ndarray, split: int) -> dict[str, _Task]:
    """Split the rows, train the support vector machine, and standardize the features."""
    rng = np.random.default_rng(split)
    train, test = split_rows(y, np.arange(len(y)), _TEST_SHARE, rng)
    svm_train, calibration = split_rows(y, train, _CALIBRATION_SHARE, rng)
    options: Any = {"C": 1.0, "dual": False, "max_iter": 10_000}
    svm = make_pipeline(StandardScaler(), LinearSVC(**options))
    scores = svm.fit(x[svm_train], y[svm_train]).decision_function(x)[:, None]
    features: Any = StandardScaler().fit(x[train]).transform(x)
    return {
        "svm": _Task(scores[calibration], y[calibration], scores[test], y[test]),
        "multivariate": _Task(features[train], y[train], features[test], y[test]),
    }


def _assess(method: str, task: _Task, seed: int) -> dict[str, Any]:
    """Fit one method, and compute its metrics on the test rows."""
    if method == "uncalibrated":
        probs, status = expit(task.test_x[:, 0]), "converged"
    else:
        model = LogisticRegression.preset(
            method, random_state=seed, **_OTHER_OPTIONS.get(method, {})
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the status tells
            probs = model.fit(task.x, task.y).predict_proba(task.test_x)[:, 1]
        status = model.status_
    values = {name: metric(probs, task.test_y) for name, metric in METRICS.items()}
    return {**values, "status": status}
