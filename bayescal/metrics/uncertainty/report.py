"""A table of metrics with intervals, of one model or of several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal._core.display.tables import TextTable, p_value
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.blocks.stream import Blocks
from bayescal.data.checks import check_count, check_level, check_names, naming
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading
from bayescal.metrics.registry import Choices, usual_metrics
from bayescal.metrics.scores.ranking import can_rank
from bayescal.metrics.uncertainty.calibration_tests import CalibrationTest, spiegelhalter_of
from bayescal.metrics.uncertainty.groups import in_clusters
from bayescal.metrics.uncertainty.measured import Interval
from bayescal.metrics.uncertainty.measured_blocks import measure_models
from bayescal.metrics.uncertainty.ranking import Measured, compare

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

#: Numbers of an interval in a data frame.
_NUMBERS = "value", "estimate", "lower", "upper", "standard_error"
#: Characters up to which the name of the first model is repeated below each metric.
_MAX_NAME_LENGTH = 20


@dataclass(frozen=True, repr=False)
class MetricReport:
    """Metrics with confidence intervals, by model and metric.

    Attributes
    ----------
    intervals : dict
        By model, then by metric, an :class:`Interval`.
    differences : dict
        By model (except the first), then by metric, the difference from the first model.
    tests : dict
        By model, Spiegelhalter's test of calibration.
    cases : int
    level : float
        Nominal coverage of the intervals.
    clusters : int or None
        Number of clusters of rows, if rows are not independent.
    title : str or None
        Title of the table.
    """

    intervals: dict[str, dict[str, Interval]]
    differences: dict[str, dict[str, Interval]]
    tests: dict[str, CalibrationTest]
    cases: int
    level: float
    clusters: int | None = None
    title: str | None = None

    def table(self) -> Table:
        """Return a rich Table."""
        return self._lines().for_terminal()

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a pandas data frame, with a row for each model and metric.

        Returns
        -------
        pandas.DataFrame
            Indexed by ``model`` and ``metric``, with the columns ``value``, ``estimate``,
            ``lower``, ``upper`` and ``standard_error``; and, for the difference from the first
            model, ``difference``, ``difference_lower``, ``difference_upper`` and ``p_value``.
        """
        import pandas as pd

        rows = []
        for model, intervals in self.intervals.items():
            for metric, interval in intervals.items():
                row: dict[str, object] = {"model": model, "metric": metric}
                row |= {name: getattr(interval, name) for name in _NUMBERS}
                gap = self.differences.get(model, {}).get(metric)
                if gap is not None:
                    row |= {"difference": gap.estimate, "difference_lower": gap.lower}
                    row |= {"difference_upper": gap.upper, "p_value": gap.p_value}
                rows.append(row)
        return pd.DataFrame(rows).set_index(["model", "metric"])

    def to_markdown(self) -> str:
        """Return the table in Markdown, for documents and code hosts."""
        return self._lines().to_markdown()

    def __repr__(self) -> str:
        return self._lines().for_print(100)

    def _repr_html_(self) -> str:
        return self._lines().for_notebook()

    def _lines(self) -> TextTable:
        names = list(self.intervals)
        heads, rows = ["metric", *names], []
        first = names[0] if len(names[0]) <= _MAX_NAME_LENGTH else "the first"
        for metric in self.intervals[names[0]]:
            row = [self.intervals[name][metric] for name in names]
            cells = [
                f"{interval.estimate:.4f} [{interval.lower:.4f}, {interval.upper:.4f}]"
                for interval in row
            ]
            corrected = any(abs(interval.estimate - interval.value) > 1e-9 for interval in row)
            rows.append([f"{metric} above chance" if corrected else metric, *cells])
            if self.differences:
                gaps = [self.differences[name][metric] for name in names[1:]]
                shown = [f"{gap.estimate:+.4f} (p {p_value(gap.p_value)})" for gap in gaps]
                rows.append([f"  vs. {first}", "", *shown])
        tests = [self.tests[name] for name in names]
        rows.append(
            ["Spiegelhalter's z", *(f"{t.statistic:.2f} (p {p_value(t.p_value)})" for t in tests)]
        )
        caption = (
            f"In brackets: {self.level:.0%} intervals. Above chance: the error beyond that of as "
            "many labels drawn from the predictions. A positive z means over-confidence."
        )
        if self.differences:
            caption += " p-values of differences are two-sided and not corrected for their number."
        title = f"{self.cases:,} cases"
        if self.clusters is not None:
            title += f" in {self.clusters:,} groups"
            caption += " Intervals and tests take the cases of a group as dependent."
        title = title if self.title is None else f"{self.title} ({title})"
        return TextTable(title, heads, rows, caption)


@other_words
@ignoring_underflow
def report(
    probs: ArrayLike | Blocks | Mapping[str, ArrayLike | Blocks],
    y: ArrayLike | None = None,
    *,
    metrics: Choices | Sequence[str] | None = None,
    level: float = 0.9,
    replicates: int = 1000,
    seed: int = 0,
    weights: ArrayLike | None = None,
    groups: UserData = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    title: str | None = None,
) -> MetricReport:
    """Compute metrics with intervals for one model, or for several on the same rows.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), or Blocks, or mapping from names to them
        P(y = 1) for two classes, or class probabilities in rows. Blocks of several
        models must contain the same rows, split in the same way.
    y : array of shape (n,)
        Labels 0, ..., k - 1, or any other values (see ``classes``).
    metrics : sequence of str, or mapping, optional
        Names of metrics; or a mapping from titles to pairs of a name and its options. By default
        log loss, Brier score, accuracy, and the calibration error, plain and debiased; for several
        classes also its mean over classes; for two classes and fewer than 100,000 rows in memory
        also ROC AUC and average precision, which measure the ranking.
    level : float
        Nominal coverage of the confidence intervals, in (0, 1).
    replicates, seed : int
        Number of bootstrap resamples, and their seed.
    weights : array of shape (n,), optional
        Non-negative row weights.
    groups : array of shape (n,), optional
        Labels of clusters, of any hashable kind, as in :func:`interval`: rows with equal labels may
        be dependent. The "RMS calibration error" is then "ece" with norm 2 and bins of equal mass.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.
    title : str, optional
        Title of the table.

    Returns
    -------
    Report
        Prints as a table, also in notebooks.

    Raises
    ------
    TypeError, ValueError
        If :func:`interval` would raise.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.repeat([0.2, 0.8], 50), np.tile([0, 0, 0, 1, 1], 20)
    >>> result = report({"raw": p, "flat": np.full(100, 0.4)}, y, metrics=["brier_score"])
    >>> round(result.differences["flat"]["brier_score"].value, 3)
    -0.1
    >>> print(result)  # doctest: +SKIP
    """
    level, replicates = check_level(level), check_count(replicates, "replicates")
    models = dict(probs) if isinstance(probs, Mapping) else {"model": probs}
    if not models:
        raise ValueError("probs must not be an empty mapping")
    check_names(models, "probs")
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be names in a sequence, got the text {metrics!r}")
    reading = Reading(classes, inputs)
    several = isinstance(probs, Mapping)
    with naming(next(iter(models)) if several else None):
        first = as_predictions(next(iter(models.values())), y, weights, reading)
    clusters = getattr(first, "clusters", None)
    if groups is not None:
        clusters = in_clusters(first, groups, weights).clusters
    if metrics is None:
        ranking = can_rank(first)
        metrics = usual_metrics(first.columns or 2, clusters is not None, ranking=ranking)
    chosen = metrics if isinstance(metrics, Mapping) else {name: (name, {}) for name in metrics}
    named = [(name if several else None, model_probs) for name, model_probs in models.items()]
    measured = measure_models(named, chosen, y, weights, replicates, seed, reading, groups)
    intervals: dict[str, dict[str, Interval]] = {}
    differences: dict[str, dict[str, Interval]] = {}
    tests, cases = {}, 0
    base: Mapping[str, Measured] = {}
    for name, model in zip(map(str, models), measured, strict=True):
        intervals[name] = {title: one.interval(level) for title, one in model.metrics.items()}
        tests[name] = model.test or spiegelhalter_of(cast("Predictions", model.data))
        if base:
            differences[name] = {
                title: compare(one, base[title], level) for title, one in model.metrics.items()
            }
        base, cases = base or model.metrics, model.cases
    if cases is None:
        given: Any = next(reversed(models.values()))
        cases = np.shape(getattr(given, "probs", given))[0]
    number = None if clusters is None else int(clusters.max()) + 1
    return MetricReport(intervals, differences, tests, cases, level, number, title)
