"""Measure models on one data set, and hold what was found."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.progress import Progress
from bayescal.data.blocks.predictions import PredictionBlocks, as_predictions
from bayescal.data.checks import check_count, check_level, check_names
from bayescal.data.fitted import is_fitted, predictions
from bayescal.data.label_names import label_name
from bayescal.data.membership import check_clusters
from bayescal.data.predictions import Predictions, Reading
from bayescal.evaluation import _page
from bayescal.evaluation._events import events_of, events_of_blocks
from bayescal.evaluation._findings import find
from bayescal.evaluation._measured import Measured
from bayescal.metrics import Interval, report
from bayescal.metrics.registry import usual_metrics

__all__ = ["Evaluation", "evaluate"]

#: Cases in blocks that are put together: so many are judged as in memory.
_FEW = 100_000


@dataclass(frozen=True, repr=False)
class Evaluation(Measured):
    """What :func:`evaluate` found.

    Attributes
    ----------
    report : Report
        Metrics with intervals, differences to the first model, and tests.
    findings : dict
        By model, a :class:`Finding`.
    classes : tuple of str
        Names of the classes.
    bins : int
        Of the calibration errors and diagrams.
    replicates, seed : int
        Of the bootstrap and of the labels drawn for tests.
    events : dict
        By model, :class:`Events`: what tests and figures look at.
    """

    def to_dict(self) -> dict[str, object]:
        """Return the numbers as what JSON can hold; infinity is None."""
        totals = next(iter(self.events.values())).totals.tolist()
        models = {}
        for name, found in self.findings.items():
            parts = found.decomposition
            models[name] = {
                "verdict": found.verdict,
                "strength": found.strength,
                "size": found.size,
                "mean_confidence": found.confidence,
                "mean_predicted": found.predicted,
                "observed": found.observed,
                "metrics": _plain(self.report.intervals[name]),
                "differences": _plain(self.report.differences.get(name, {})),
                "spiegelhalter": _finite(found.spiegelhalter._asdict()),
                "consistency": _finite(found.consistency._asdict()),
                "calibration_in_the_large": found.bias and _finite(found.bias._asdict()),
                "brier_decomposition": {
                    key: getattr(parts, key)
                    for key in ("score", "miscalibration", "discrimination", "uncertainty")
                },
            }
        return {
            "cases": self.report.cases,
            "groups": self.report.clusters,
            "classes": dict(zip(self.classes, totals, strict=True)),
            "level": self.report.level,
            "bins": self.bins,
            "replicates": self.replicates,
            "seed": self.seed,
            "models": models,
        }

    @ignoring_underflow
    def to_html(
        self,
        *,
        title: str = "Calibration report",
        about: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> str:
        """Return one self-contained HTML page with tables, figures and text.

        Nothing on it is loaded from elsewhere. It follows the reader's light or dark theme.

        Parameters
        ----------
        title : str
        about : mapping from str to str, optional
            What else to say of the data and how they were read.
        progress : callable, optional
            Called with what is being drawn, the steps done, and the steps in all.

        Returns
        -------
        str
        """
        return _page.build(self, title, about or {}, progress or _quiet)

    def save_html(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the page of :meth:`to_html`, with its options.

        Parameters
        ----------
        path : str or path
        **options
            Of :meth:`to_html`.
        """
        Path(path).write_text(self.to_html(**options), encoding="utf-8")


@ignoring_underflow
def evaluate(
    probs: Any,
    *data: Any,
    y: ArrayLike | None = None,
    classes: Sequence[object] | None = None,
    inputs: Literal["probs", "logits"] = "probs",
    weights: ArrayLike | None = None,
    groups: Any = None,
    level: float = 0.9,
    replicates: int = 1000,
    bins: int = 15,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Judge the probabilities of one model, or of several on the same cases.

    Call it with predictions and labels, ``evaluate(probs, y)``; with fitted classifiers, features
    and labels, ``evaluate(model, X, y)``; or with blocks, which hold labels: ``evaluate(blocks)``.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), fitted classifier, Blocks, or mapping from names to such
        P(y = 1) for two classes, or one row of class probabilities per case. Rows for two classes
        are judged by their second column, as shape (n,). A fitted classifier has
        ``predict_proba`` and ``classes_``. Blocks of several models hold the same cases, cut alike.
    *data
        The labels y, array of shape (n,); before them the features of fitted classifiers. Labels
        are codes 0, ..., k - 1, or any values, as :func:`bayescal.metrics.log_loss` reads them.
    y : array of shape (n,), optional
        The labels, by their name.
    classes : sequence, optional
        The values that labels take, in the order of the columns, or names of codes; by default
        those of the fitted classifiers, or the sorted ones. Columns of a data frame that are named
        like them may stand in any order.
    inputs : {"probs", "logits"}
        What predictions are; those of fitted classifiers are probabilities.
    weights : array of shape (n,), optional
        Non-negative case weights. Whole ones are counts, the same as repeating cases. Cases of
        weight zero are left out.
    groups : array of shape (n,), optional
        Labels of clusters, of any hashable kind: rows with equal labels may be dependent, as the
        days of one patient. Intervals and tests are those of :func:`bayescal.metrics.report` with
        groups, and diagrams have no bands, which would take cases as independent. Not for Blocks.
    level : float
        Coverage that the confidence intervals aim at, in (0, 1).
    replicates : int
        Of the bootstrap; as many sets of labels are drawn for the test of the calibration error.
    bins : int
        Of the calibration errors and of the reliability diagrams.
    seed : int
    progress : callable, optional
        Called with what is being done, the steps done, and the steps in all.

    Returns
    -------
    Evaluation

    Raises
    ------
    TypeError, ValueError
        As :func:`bayescal.metrics.report`; if models have different numbers of classes, or there
        are not as many names as classes.

    Notes
    -----
    Metrics and intervals are those of :func:`bayescal.metrics.report`, with the given bins.

    From 100,000 cases on that come in blocks, tests and figures look at cells of predictions that
    differ by less than one part in 128 of P(y = 1) or P(y = 0) and lie in one bin, if there are no
    more than 64. Means and bins are exact then; isotonic regression, hence the decomposition, is
    of the cells' means, and p-values are those of :func:`bayescal.metrics.consistency_test` for so
    many cases. Four passes for each model; memory does not depend on the number of cases.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.repeat([0.1, 0.9], 50), np.tile([0, 0, 0, 1, 1], 20)
    >>> found = evaluate({"raw": p}, y, classes=["no", "yes"], replicates=100)
    >>> found.findings["raw"].verdict
    'over-confident'
    >>> found.to_dict()["classes"]
    {'no': 60, 'yes': 40}

    Fitted classifiers with features and labels of any kind:

    >>> from sklearn.naive_bayes import GaussianNB
    >>> x, labels = p[:, None], np.where(y, "yes", "no")
    >>> model = GaussianNB().fit(x, labels)
    >>> evaluate({"bayes": model, "raw": p}, x, labels, replicates=100).classes
    ('no', 'yes')
    >>> found.to_html().startswith("<!DOCTYPE html>")
    True
    """
    level, bins = check_level(level), check_count(bins, "bins")
    replicates = check_count(replicates, "replicates")
    progress = progress or _quiet
    given: Any = dict(probs) if isinstance(probs, Mapping) else {"model": probs}
    if not given:
        raise ValueError("probs must not be an empty mapping")
    fitted = [name for name, own in given.items() if is_fitted(own)]
    given, y, classes = predictions(given, data, y, classes, "evaluate")
    check_names(given, "probs")
    models = {}
    for name, own in given.items():
        reading = Reading(classes, "probs" if name in fitted else inputs, second=True)
        models[str(name)] = as_predictions(own, y, weights, reading)
    columns = {own.columns for own in models.values()}
    if len(columns) > 1:
        raise ValueError("probs must have one number of classes for all models")
    k = columns.pop() or 2
    names = [label_name(name) for name in next(iter(models.values())).classes]
    if len(set(names)) < k:
        raise ValueError(f"classes must be {k} names that differ as text, got {names}")
    read = [own.blocks for own in models.values() if isinstance(own, PredictionBlocks)]
    if groups is not None:
        models = {name: _in_clusters(own, groups, weights) for name, own in models.items()}
    steps, events = 1 + len(models), {}
    for done, (name, own) in enumerate(models.items()):
        progress(f"tests: {name}", done, steps)
        if isinstance(own, PredictionBlocks):
            events[name] = events_of_blocks(own, bins, replicates, seed)
            if events[name].rows >= _FEW:
                continue
            own = models[name] = own.gather()
        events[name] = events_of(own, bins, replicates, seed)
    rows = next(iter(events.values())).rows
    progress(f"{replicates:,} resamples of {rows:,} cases", len(models), steps)
    arrays: Any = {name: own for name, own in models.items() if isinstance(own, Predictions)}
    first: Any = next(iter(arrays.values()), None)
    for own in arrays.values():
        if not (np.array_equal(own.y, first.y) and np.array_equal(own.weights, first.weights)):
            raise ValueError("models must have the same cases in the same order")
    measured = report(
        models,
        metrics=usual_metrics(k, groups is not None, bins=bins),
        level=level,
        replicates=replicates,
        seed=seed,
    )
    for blocks in read:
        blocks.finish()
    progress("tests", steps, steps)
    findings = {
        name: find(own, measured.intervals[name], measured.tests[name])
        for name, own in events.items()
    }
    return Evaluation(measured, findings, tuple(names), bins, replicates, seed, events)


def _in_clusters(
    data: Predictions | PredictionBlocks, groups: Any, weights: ArrayLike | None
) -> Predictions:
    if isinstance(data, PredictionBlocks):
        raise ValueError("groups must be left out for Blocks, which do not hold them")
    n = len(data.y) if weights is None else np.shape(weights)[0]
    return data._replace(clusters=check_clusters(groups, n, weights))


def _plain(intervals: Mapping[str, Interval]) -> dict[str, object]:
    return {metric: _finite(found._asdict()) for metric, found in intervals.items()}


def _finite(values: Mapping[str, object]) -> dict[str, object]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def _quiet(*_: object) -> None:
    """Show nothing."""
