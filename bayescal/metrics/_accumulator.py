"""Metrics of data that come in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayescal._core.arrays import AnyArray, ArrayLike, UserData
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.checks import check_count
from bayescal.data.label_names import check_classes, class_array
from bayescal.data.predictions import Classes, Inputs, Reading, read_arrays
from bayescal.data.weights import check_batch_weights
from bayescal.metrics.registry import METRICS, Choice, choose_metrics, reading_for, streamed
from bayescal.metrics.sums import collect


class Accumulator:
    """Metrics accumulated over batches of any size, in constant memory.

    Add batches in any order or process: up to rounding, the result is that of all rows at once.
    There are two exceptions. Bins of equal mass are cut from 4,096 cells of equal width, and
    cumulative errors are read between these cells; :meth:`bounds` says how far such a result may be
    off.

    Parameters
    ----------
    metrics : sequence or mapping
        Names of metrics, or pairs of a name and a dict of options; or a mapping from names that you
        choose to these. All are functions of :mod:`bayescal.metrics`: ``log_loss``,
        ``brier_score``, ``accuracy``, ``ece``, ``ecce``, ``debiased_ece``, ``smooth_ece``,
        ``kde_ece`` and ``loss_gap``; or, for multi-label data, ``multilabel_ece``,
        ``multilabel_ecce`` and ``hamming_loss``.
    classes : int or sequence, optional
        Number of columns of the probabilities, or of labels; None (the default) for P(y = 1) of
        shape (n,). Or the labels of the columns in order, as in :func:`log_loss`; two labels stand
        for P(y = second) of shape (n,).
    inputs : {"probs", "logits"}
        Kind of the added predictions, as in :func:`log_loss`.

    Attributes
    ----------
    cases : int
        Number of rows added, without rows of weight zero.

    Raises
    ------
    TypeError, ValueError
        For unknown metrics or options, or metrics that need all rows at once.

    Notes
    -----
    Two accumulators are added by ``+`` or :meth:`merge`. An accumulator can be pickled: its state
    is names, options and arrays.

    Examples
    --------
    >>> total = Accumulator(["brier_score", ("ece", {"bins": 2})])
    >>> total.add([0.1, 0.3], [0, 1])
    >>> total.add([0.9, 0.7], [1, 1])
    >>> total.result()
    {'brier_score': 0.15, 'ece': 0.25}
    """

    def __init__(
        self,
        metrics: Sequence[Choice] | Mapping[str, Choice],
        classes: Classes = None,
        inputs: Inputs = "probs",
    ) -> None:
        self._setup(choose_metrics(metrics), classes, inputs)
        self._sums = {
            name: np.zeros((metric.rows, metric.cells)) for name, metric in self._metrics.items()
        }
        self.cases = 0

    def _setup(
        self, choices: dict[str, tuple[str, dict[str, object]]], classes: Classes, inputs: Inputs
    ) -> None:
        columns = None if classes is None else _number_of(classes)
        has_labels = columns is not None and not isinstance(classes, int | np.integer)
        entries = [METRICS[metric] for metric, _ in choices.values() if metric in METRICS]
        multilabel = {entry.multilabel for entry in entries}
        if len(multilabel) > 1:
            raise ValueError("metrics must be all single-label or all multi-label")
        self._multilabel = multilabel == {True}
        if self._multilabel and classes is None:
            raise ValueError("classes must be the number of labels, got None")
        if not self._multilabel and columns == 1:
            raise ValueError("classes must be at least 2, or None for P(y = 1); got 1")
        self._choices, self._classes = choices, classes if has_labels else columns
        names = self._classes if has_labels else None
        self._reading = Reading(names, inputs, multilabel=self._multilabel, whole=False)
        self._columns = None if columns == 2 and not self._multilabel else columns
        self._metrics = {
            name: streamed(metric, self._columns, options)
            for name, (metric, options) in choices.items()
        }

    @ignoring_underflow
    def add(self, probs: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Add a batch; a batch without rows of positive weight adds nothing.

        Parameters
        ----------
        probs : array of shape (n,) or (n, classes)
        y : array of shape (n,), or of shape (n, classes) for many labels
        weights : array of shape (n,), optional
            Non-negative row weights, on the same scale in all batches. The largest weight of each
            batch must lie in [1e-140, 1e140].

        Raises
        ------
        TypeError, ValueError
            If the metrics would raise; nothing is added then.
        """
        checked = read_arrays(probs, y, weights, self._reading)
        if checked.columns != self._columns and np.size(y):
            shape = "(n,)" if self._columns is None else f"(n, {self._columns})"
            raise ValueError(
                f"probs must have shape {shape}, got {checked.probs.shape}, as "
                f"classes={self._classes!r}"
            )
        if not len(checked.y):
            return
        check_batch_weights(checked.weights)
        added = {}
        for name, metric in self._metrics.items():
            reading = reading_for(self._choices[name], self._reading)
            if reading is not self._reading:
                added[name] = collect(metric, read_arrays(probs, y, weights, reading))
            else:
                added[name] = collect(metric, checked)
        self._sums = {name: sums + added[name] for name, sums in self._sums.items()}
        self.cases += len(checked.y)

    def merge(self, other: Accumulator) -> Accumulator:
        """Return a new accumulator of the rows of both, and change neither.

        Raises
        ------
        TypeError, ValueError
            If ``other`` is not an accumulator of the same metrics and classes.
        """
        if not isinstance(other, Accumulator):
            raise TypeError(f"other must be an Accumulator, got {type(other).__name__}")
        pair = self._classes, other._classes
        if not _same(*pair) or not _same(self._choices, other._choices):
            raise ValueError("accumulators must have the same metrics, options and classes")
        merged = Accumulator(self._choices, self._classes, self._reading.inputs)
        merged._sums = {name: sums + other._sums[name] for name, sums in self._sums.items()}
        merged.cases = self.cases + other.cases
        return merged

    def __add__(self, other: Accumulator) -> Accumulator:
        return self.merge(other)

    def result(self) -> dict[str, float]:
        """Return the metrics of all rows added so far, by name.

        Raises
        ------
        ValueError
            If no rows have been added.
        """
        self._check_any()
        return {
            name: float(metric.value(self._sums[name], np))
            for name, metric in self._metrics.items()
        }

    def bounds(self) -> dict[str, float]:
        """Bound the difference of each result from the metric of all rows at once, up to rounding.

        With bins of equal mass and ``norm=1``, the mean gap over bins (for several classes, its
        mean) is off by at most the proportion of rows in cells that hold a border of bins. For
        other norms, debiased errors and multi-label errors this is an indication, not a bound.
        "ecce" of all rows at once exceeds the result by at most its bound.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> total = Accumulator([("ece", {"binning": "equal_mass"})])
        >>> total.add(rng.random(100_000), rng.integers(0, 2, 100_000))
        >>> total.bounds()
        {'ece': 0.003...}
        """
        self._check_any()
        return {name: metric.bound(self._sums[name]) for name, metric in self._metrics.items()}

    def _check_any(self) -> None:
        if not self.cases:
            raise ValueError("an accumulator must have rows before it has results: call add")

    def __getstate__(self) -> dict[str, object]:
        return {
            "metrics": self._choices,
            "classes": self._classes,
            "inputs": self._reading.inputs,
            "sums": self._sums,
            "cases": self.cases,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._setup(state["metrics"], state["classes"], state["inputs"])
        self._sums, self.cases = state["sums"], state["cases"]

    def __repr__(self) -> str:
        return f"Accumulator({list(self._choices)}, classes={self._classes}, cases={self.cases})"


def _number_of(classes: UserData) -> int:
    if np.ndim(classes) == 0:
        return check_count(classes, "classes")
    labels = class_array(classes)
    return len(check_classes(labels[:0], labels, labels.size))


def _same(first: AnyArray, second: AnyArray) -> bool:
    """Return whether options, some of which are arrays, are equal."""
    if isinstance(first, dict):
        return (
            isinstance(second, dict)
            and list(first) == list(second)
            and all(_same(first[key], second[key]) for key in first)
        )
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(np.array_equal(first, second))
