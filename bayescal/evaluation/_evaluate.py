"""``evaluate`` and its result, ``Evaluation``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.display.progress import Progress
from bayescal._core.display.tables import printable
from bayescal._core.files import write_atomically
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.predictions import PredictionBlocks, as_predictions
from bayescal.data.checks import check_count, check_level, check_names, naming
from bayescal.data.fitted import is_fitted, predictions
from bayescal.data.label_names import label_name
from bayescal.data.membership import read_subgroups
from bayescal.data.predictions import Predictions, Reading
from bayescal.evaluation import _page
from bayescal.evaluation._events import events_of, events_of_blocks
from bayescal.evaluation._findings import find
from bayescal.evaluation._measured import Measured
from bayescal.metrics import Interval, report
from bayescal.metrics.registry import usual_metrics
from bayescal.metrics.scores.ranking import can_rank
from bayescal.metrics.uncertainty.groups import in_clusters

if TYPE_CHECKING:
    import pandas as pd

#: Number of rows in blocks below which these are joined and evaluated as in memory.
_MIN_ROWS_IN_CELLS = 100_000


@dataclass(frozen=True, repr=False)
class Evaluation(Measured):
    """Result of :func:`evaluate`: metrics, tests and a verdict for every model.

    Attributes
    ----------
    report : Report
        Metrics with intervals, differences from the first model, and tests.
    findings : dict
        A :class:`Finding` for each model.
    classes : tuple of str
        Names of the classes.
    bins : int
        Number of bins of the calibration errors and diagrams.
    replicates, seed : int
        Number of resamples, and of sets of labels drawn for tests, and their seed.
    events : dict
        The :class:`Events` of each model, the data of tests and figures.
    by : dict
        An Evaluation for each subgroup, if :func:`evaluate` was called with ``by``.
    """

    by: Mapping[str, Evaluation] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return the numbers in a form that JSON can represent; infinity is None."""
        totals = next(iter(self.events.values())).totals.tolist()
        models = {}
        for name, finding in self.findings.items():
            parts = finding.decomposition
            models[name] = {
                "verdict": finding.verdict,
                "strength": finding.strength,
                "size": finding.size,
                "mean_confidence": finding.confidence,
                "class": self.classes[finding.label],
                "mean_predicted": finding.predicted,
                "observed": finding.observed,
                "metrics": _plain(self.report.intervals[name]),
                "differences": _plain(self.report.differences.get(name, {})),
                "spiegelhalter": _finite(finding.spiegelhalter._asdict()),
                "consistency": _finite(finding.consistency._asdict()),
                "calibration_in_the_large": _finite(finding.bias._asdict()),
                "brier_decomposition": {
                    key: getattr(parts, key)
                    for key in ("score", "miscalibration", "discrimination", "uncertainty")
                },
            }
        subgroups = {name: part.to_dict() for name, part in self.by.items()}
        return {
            "cases": self.report.cases,
            "groups": self.report.clusters,
            "classes": dict(zip(self.classes, totals, strict=True)),
            "level": self.report.level,
            "bins": self.bins,
            "replicates": self.replicates,
            "seed": self.seed,
            "models": models,
            **({"subgroups": subgroups} if subgroups else {}),
        }

    def to_frame(self) -> pd.DataFrame:
        """Return the metrics as a data frame; see ``Report.to_frame``.

        With subgroups, the first level of the index is ``subgroup``, beginning with "all".
        """
        import pandas as pd

        if not self.by:
            return self.report.to_frame()
        parts = {"all": self.report, **{name: part.report for name, part in self.by.items()}}
        return pd.concat(
            [part.to_frame() for part in parts.values()], keys=[*parts], names=["subgroup"]
        )

    def to_markdown(self) -> str:
        """Return verdicts and metrics in Markdown, for documents and code hosts."""
        lines = [f"- **{printable(name)}**: {text}" for name, text in self.summary().items()]
        lines = [*map(printable, lines), "", self.report.to_markdown()]
        return "\n".join([*lines, self.subgroups().to_markdown()] if self.by else lines)

    @ignoring_underflow
    def to_html(
        self,
        *,
        title: str | None = None,
        about: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> str:
        """Make a self-contained HTML page with tables, figures and text.

        Nothing on it is loaded from elsewhere. It follows the reader's light or dark theme.

        Parameters
        ----------
        title : str, optional
            Title of the page, by default that of :func:`evaluate`, or "Calibration report".
        about : mapping from str to str, optional
            Further facts about the data and how they were read.
        progress : callable, optional
            Called with what is being drawn, the number of steps done, and the total.

        Returns
        -------
        str
            The page.
        """
        title = title or self.report.title or "Calibration report"
        return _page.build(self, title, about or {}, progress or _quiet)

    def save_html(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the page of :meth:`to_html` to a file.

        Parameters
        ----------
        path : str or path
            The file. An existing one is replaced atomically: if writing fails, it is unchanged.
        **options
            Options of :meth:`to_html`.
        """
        page = self.to_html(**options)
        with write_atomically(path) as partial:
            partial.write_text(page, encoding="utf-8")


@other_words
@ignoring_underflow
def evaluate(
    probs: object,
    *data: object,
    y: ArrayLike | None = None,
    classes: Sequence[object] | None = None,
    inputs: Literal["probs", "logits"] = "probs",
    weights: ArrayLike | None = None,
    groups: Sequence[object] | np.ndarray | None = None,
    by: Sequence[object] | np.ndarray | None = None,
    level: float = 0.9,
    replicates: int = 1000,
    bins: int = 15,
    seed: int = 0,
    title: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate the probabilities of one model, or of several on the same rows.

    Compute metrics with confidence intervals, tests of calibration, and a verdict in words. Call it
    with predictions and labels, ``evaluate(probs, y)``; with fitted classifiers, features and
    labels, ``evaluate(model, X, y)``; or with blocks, which contain labels: ``evaluate(blocks)``.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), fitted classifier, Blocks, or mapping from names to them
        P(y = 1) for two classes, or class probabilities in rows. Rows for two classes are evaluated
        by their second column, like shape (n,). A fitted classifier has ``predict_proba`` and
        ``classes_``. Blocks of several models must contain the same rows, cut in the same way.
    *data
        The labels y, array of shape (n,), preceded for fitted classifiers by their features. Labels
        are codes 0, ..., k - 1, or any values, as in :func:`bayescal.metrics.log_loss`.
    y : array of shape (n,), optional
        The labels, passed by keyword.
    classes : sequence, optional
        The values of labels in column order, or names of integer codes; by default those of the
        fitted classifiers, or the sorted labels. Columns of a data frame that are named like the
        classes may have any order.
    inputs : {"probs", "logits"}
        What ``probs`` contain; predictions of fitted classifiers are probabilities.
    weights : array of shape (n,), optional
        Non-negative row weights. Integers are counts, equal to repeating rows. Rows with weight
        zero are ignored.
    groups : array of shape (n,), optional
        Labels of clusters, of any hashable kind: rows with equal labels may be dependent, such as
        several days of one patient. Intervals and tests are those of
        :func:`bayescal.metrics.report` with groups, and diagrams have no bands, which assume
        independent rows. Not for Blocks.
    by : array of shape (n,), optional
        Subgroup of each row, such as an age group or a country: each subgroup is also evaluated
        separately, and the page has a table and a diagram for it. At most 100 subgroups. Not for
        Blocks.
    level : float
        Nominal coverage of the confidence intervals, in (0, 1).
    replicates : int
        Number of bootstrap resamples, and of sets of labels drawn for the test of the calibration
        error. With fewer than 60, that test alone cannot decide a verdict.
    bins : int
        Number of bins of the calibration errors and of the reliability diagrams.
    seed : int
        Seed of the resamples and the drawn labels.
    title : str, optional
        Title of the page, and of the table.
    progress : callable, optional
        Called with the name of the current step, the number of finished steps, and the total.

    Returns
    -------
    Evaluation
        Metrics, tests and verdicts; prints as a table.

    Raises
    ------
    TypeError, ValueError
        If :func:`bayescal.metrics.report` would raise, models have different numbers of classes, or
        there are not as many names as classes.

    See Also
    --------
    bayescal.metrics.report : The metrics alone.
    bayescal.plots.reliability : The diagram alone.

    Notes
    -----
    Metrics and intervals are those of :func:`bayescal.metrics.report`, with the given bins.

    For 100,000 and more rows in blocks, tests and figures use cells of predictions that differ by
    less than one part in 128 of P(y = 1) or P(y = 0) and lie in one bin, if there are no more than
    64 bins. Means and bins are then exact; isotonic regression, and hence the decomposition, uses
    the cells' means, and p-values are those of :func:`bayescal.metrics.consistency_test` for so
    many rows. It makes four passes for each model; memory does not depend on the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.repeat([0.1, 0.9], 50), np.tile([0, 0, 0, 1, 1], 20)
    >>> result = evaluate({"raw": p}, y, classes=["no", "yes"], replicates=100)
    >>> result.findings["raw"].verdict
    'over-confident'
    >>> result.to_dict()["classes"]
    {'no': 60, 'yes': 40}

    Fitted classifiers with features and labels of any kind:

    >>> from sklearn.naive_bayes import GaussianNB
    >>> x, labels = p[:, None], np.where(y, "yes", "no")
    >>> model = GaussianNB().fit(x, labels)
    >>> evaluate({"bayes": model, "raw": p}, x, labels, replicates=100).classes
    ('no', 'yes')
    >>> result.to_html().startswith("<!DOCTYPE html>")
    True

    Subgroups:

    >>> old = np.arange(100) % 2 == 0
    >>> result = evaluate(p, y, by=np.where(old, "old", "young"), replicates=100)
    >>> {name: part.report.cases for name, part in result.by.items()}
    {'old': 50, 'young': 50}
    """
    level, bins = check_level(level), check_count(bins, "bins")
    replicates = check_count(replicates, "replicates")
    progress = progress or _quiet
    given = dict(probs) if isinstance(probs, Mapping) else {"model": probs}
    if not given:
        raise ValueError("probs must not be an empty mapping")
    fitted = [name for name, model in given.items() if is_fitted(model)]
    given, y, known = predictions(given, data, y, classes, "evaluate")
    check_names(given, "probs")
    models = {}
    for name, model in given.items():
        reading = Reading(known, "probs" if name in fitted else inputs)
        with naming(name if isinstance(probs, Mapping) else None):
            models[str(name)] = as_predictions(model, y, weights, reading)
    columns = {model.columns for model in models.values()}
    if len(columns) > 1:
        raise ValueError("probs must have one number of classes for all models")
    k = columns.pop() or 2
    names = [label_name(name) for name in next(iter(models.values())).classes]
    if len(set(names)) < k:
        raise ValueError(f"classes must be {k} names that differ as text, got {names}")
    read = [model.blocks for model in models.values() if isinstance(model, PredictionBlocks)]
    if groups is not None:
        models = {name: in_clusters(data, groups, weights) for name, data in models.items()}
    subgroups = []
    if by is not None:
        first = next(iter(models.values()))
        if isinstance(first, PredictionBlocks):
            raise ValueError("by must be left out for Blocks, which do not hold it")
        n = len(first.y) if weights is None else np.shape(weights)[0]
        subgroups = read_subgroups(by, n, weights)
    options = tuple(names), bins, replicates, seed, level
    result = _evaluate(models, *options, title, progress)
    for blocks in read:
        blocks.finish()
    parts = {}
    for done, (name, rows) in enumerate(subgroups):
        progress(f"subgroup {name}", done, len(subgroups))
        parts[name] = _evaluate(_of_rows(models, rows), *options, name, _quiet)
    return replace(result, by=parts)


def _evaluate(
    models: dict[str, Any],
    names: tuple[str, ...],
    bins: int,
    replicates: int,
    seed: int,
    level: float,
    title: str | None,
    progress: Progress,
) -> Evaluation:
    """Evaluate models whose predictions have been read."""
    steps, events = 1 + len(models), {}
    for done, (name, loaded) in enumerate(models.items()):
        progress(f"tests: {name}", done, steps)
        if isinstance(loaded, PredictionBlocks):
            events[name] = events_of_blocks(loaded, bins, replicates, seed)
            if events[name].rows >= _MIN_ROWS_IN_CELLS:
                continue
            loaded = models[name] = loaded.gather()
        events[name] = events_of(loaded, bins, replicates, seed)
    rows = next(iter(events.values())).rows
    progress(f"{replicates:,} resamples of {rows:,} cases", len(models), steps)
    arrays = {name: array for name, array in models.items() if isinstance(array, Predictions)}
    first: Any = next(iter(arrays.values()), None)
    for array in arrays.values():
        if not (np.array_equal(array.y, first.y) and np.array_equal(array.weights, first.weights)):
            raise ValueError("models must have the same cases in the same order")
    clustered = getattr(first, "clusters", None) is not None
    measured = report(
        models,
        metrics=usual_metrics(len(names), clustered, ranking=can_rank(first), bins=bins),
        level=level,
        replicates=replicates,
        seed=seed,
        title=title,
    )
    progress("tests", steps, steps)
    findings = {
        name: find(event, measured.intervals[name], measured.tests[name])
        for name, event in events.items()
    }
    return Evaluation(measured, findings, names, bins, replicates, seed, events)


def _of_rows(models: Mapping[str, Predictions], rows: np.ndarray) -> dict[str, Predictions]:
    """Select the rows of a subgroup, and count their clusters from 0."""
    parts = {}
    for name, data in models.items():
        part = data.part(rows)._replace(classes=data.classes)
        if part.clusters is not None:
            part = part._replace(clusters=np.unique(part.clusters, return_inverse=True)[1])
        parts[name] = part
    return parts


def _plain(intervals: Mapping[str, Interval]) -> dict[str, object]:
    return {metric: _finite(interval._asdict()) for metric, interval in intervals.items()}


def _finite(values: Mapping[str, object]) -> dict[str, object]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def _quiet(*_: object) -> None:
    """Ignore progress."""
