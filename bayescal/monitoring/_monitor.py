"""A monitor of the calibration of a deployed model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.display.plotting import plot_function
from bayescal._core.files import write_atomically
from bayescal.data.checks import check_choice, check_names, check_real
from bayescal.data.label_names import (
    Classes,
    class_array,
    classes_from_json,
    classes_to_json,
    label_list,
    text_names,
)
from bayescal.data.predictions import Predictions, Reading, read_arrays
from bayescal.data.weights import check_weights_of, of_all_rows
from bayescal.monitoring._alternatives import BinaryAlternatives, MulticlassAlternatives
from bayescal.monitoring._course import Course
from bayescal.monitoring._evidence import Evidence, without
from bayescal.monitoring._region import Line, LogOddsHistory, advise, look_stride
from bayescal.monitoring._times import Time, known_times, plain_time, read_times, to_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FORMAT = 1
_EVIDENCE = ("log_evidence_", "max_log_evidence_")
_NUMBERS = ("alpha", "task", "n_rows_", "alarm_row_", "refuted_row_", "_k")


class Monitor:
    r"""Test whether a deployed model stays calibrated, after every row and for as long as it runs.

    Use it where outcomes arrive after the predictions, a few at a time. The test is anytime-valid:
    look as often as you like, and stop when you like. If the probabilities are right, the
    probability that it *ever* raises an alarm is at most ``alpha``. Half of the evidence restarts
    continually, so that many calm rows at the beginning do not delay an alarm for long.

    Parameters
    ----------
    alpha : float, default 0.05
        Probability of a false alarm, over the whole life of the monitor.
    task : {"binary", "multiclass", "multilabel"}, default "binary"
        Kind of the probabilities: of two classes, (n,) or (n, 2); of k classes, (n, k), whose rows
        sum to one; or of k labels of which any number may apply, (n, k).
    classes : sequence, optional
        The labels in the order of the columns; by default 0, ..., k - 1.

    Attributes
    ----------
    n_rows_ : int
        Number of rows so far.
    log_evidence_ : float
        Logarithm of the evidence against calibration now, a Bayes factor. It may fall again.
    max_log_evidence_ : float
        The largest value so far, which decides on the alarm.
    alarm_ : bool
        Whether the evidence has ever reached 1 / alpha.
    alarm_row_ : int or None
        The row, counted from 0, at which the evidence first reached it.
    alarm_time_ : datetime64, number, str or None
        The time stamp of that row.
    refuted_row_ : int or None
        The first row with a weight whose outcome had a probability of zero: an alarm by itself.
    start_row_ : int
        The row at which the miscalibration most probably began, to about 6 % of its distance from
        the last row after 10,000 rows, and 20 % after a million. Meaningful after an alarm.
    start_time_ : datetime64, number, str or None
        The time stamp of that row.
    action_ : str
        What to do now, in words.
    course_ : tuple of two arrays (m,)
        Rows and the logarithm of the evidence after them, evenly thinned.

    Raises
    ------
    ValueError
        If alpha is not between 0 and 1, or the task is unknown.

    See Also
    --------
    bayescal.plots.monitor : Draws the evidence, the slope and the offset over time.
    bayescal.metrics.spiegelhalter_test, bayescal.metrics.consistency_test :
        Tests of one data set of fixed size.

    Notes
    -----
    The evidence is a mixture of likelihood ratios of recalibration maps q to the probabilities p:

    .. math:: e_t = \sum_c w_c \prod_{i \le t} q_c(y_i) / p(y_i),

    and half of it restarts before every 16th row. It is a nonnegative martingale of mean one if p
    is right, so that P(sup e >= 1 / alpha) <= alpha (Ville's inequality). Maps of binary
    probabilities are logit q = a logit p + b with 64 pairs (a, b); of several classes temperatures,
    offsets of one class, and both; the evidence of several labels is the mean over the labels.
    Rows take O(c) time, one microsecond for binary probabilities; the state has a fixed size. Parts
    of any size give the numbers of all rows at once, up to rounding.

    References
    ----------
    S. Arnold, A. Henzi, J. F. Ziegel (2023), Sequentially valid tests for forecast calibration.
    J. Shin, A. Ramdas, A. Rinaldo (2024), E-detectors.

    Examples
    --------
    >>> import numpy as np
    >>> import bayescal as bc
    >>> rng = np.random.default_rng(0)
    >>> log_odds = rng.normal(0, 2, 3000)
    >>> p = 1 / (1 + np.exp(-log_odds))
    >>> truth = np.where(np.arange(3000) < 2000, p, 1 / (1 + np.exp(-0.4 * log_odds)))
    >>> y = rng.random(3000) < truth
    >>> monitor = bc.Monitor().update(p[:2000], y[:2000])
    >>> monitor.alarm_
    False
    >>> monitor.update(p[2000:], y[2000:]).alarm_
    True
    """

    def __init__(
        self,
        alpha: float = 0.05,
        task: Literal["binary", "multiclass", "multilabel"] = "binary",
        classes: Classes = None,
    ) -> None:
        check_real(alpha, "alpha")
        if not 0 < alpha < 1:
            raise ValueError(f"alpha must lie in (0, 1), got {alpha}")
        self.alpha = float(alpha)
        self.task = check_choice(task, "task", ("binary", "multiclass", "multilabel"))
        self.classes = classes
        self.n_rows_ = 0
        self.log_evidence_ = 0.0
        self.max_log_evidence_ = 0.0
        self.alarm_row_: int | None = None
        self.alarm_time_: Time | None = None
        self.refuted_row_: int | None = None
        self._k = 0
        #: Names of the labels in data frames; columns of later ones may have another order.
        self._labels: list[str] | None = None
        self._evidence: list[Evidence] = []
        self._histories: list[LogOddsHistory] = []
        self._course = Course()
        #: Time stamps, by row, of rows that may be asked for.
        self._times: dict[int, Time] = {}

    @property
    def alarm_(self) -> bool:
        """Whether there has been an alarm."""
        return self.alarm_row_ is not None

    def update(
        self,
        probs: ArrayLike,
        y: ArrayLike,
        weights: ArrayLike | None = None,
        times: ArrayLike | None = None,
    ) -> Self:
        """Add rows in the order in which their outcomes became known.

        Parameters
        ----------
        probs : array-like of shape (n,) or (n, k)
            Probabilities that were predicted before the outcomes were known, as ``task`` says.
            Columns of a data frame that are named like the classes, or for ``task="multilabel"``
            like the columns of the first data frame, may have any order.
        y : array-like of shape (n,) or (n, k)
            Outcomes: positions among the classes, or labels if there are ``classes``; zeros and
            ones (n, k) for ``task="multilabel"``.
        weights : array-like of shape (n,), optional
            In [0, 1]; a row of weight w counts w times. Divide weights by the largest possible one:
            with weights above one the test would not be valid. Rows of weight zero need no outcome.
        times : array-like of shape (n,), optional
            Time stamps, numbers or text, by default the dates in the index of a data frame. Time
            zones are converted to UTC. None, NaT and NaN are missing.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For probabilities outside [0, 1], other outcomes, or shapes that do not match. The
            monitor is then unchanged.
        """
        p, outcomes, w = self._read(probs, y, weights)
        n = len(p)
        if w is not None and (w > 1).any():
            raise ValueError(
                f"weights must lie in [0, 1], got {w.max():g}; divide them by the largest possible "
                "one"
            )
        stamps = read_times(times, probs, n)
        if self.task == "multilabel" and self._labels is None:
            self._labels = text_names(y) or text_names(probs)
        if n and not self._evidence:
            self._begin(1 if p.ndim == 1 else p.shape[1])
        begin, stride = 0, look_stride(self.n_rows_ + n, len(self._histories))
        while begin < n:
            end = min(n, begin + stride - self.n_rows_ % stride)
            part = slice(begin, end)
            self._add(p[part], outcomes[part], None if w is None else w[part])
            if stamps is not None:
                self._keep_times(stamps[part])
            if self.n_rows_ % stride == 0:
                self._look(stride)
            begin = end
        return self

    def _read(self, probs: ArrayLike, y: ArrayLike, weights: Any) -> tuple[Any, Any, Any]:
        """Check probabilities, outcomes and weights; those of rows of weight zero are arbitrary."""
        many, binary = self.task == "multilabel", self.task == "binary"
        classes = self._labels if self.classes is None else self.classes
        reading = Reading(classes, multilabel=many, second=binary, whole=False, has_inputs=False)
        data: Predictions = read_arrays(probs, y, weights, reading)
        p = data.unrounded()
        if p.ndim != (1 if binary else 2):
            shape = "(n,) or (n, 2)" if binary else "(n, k)"
            raise ValueError(f"probs must have shape {shape} for task={self.task!r}, got {p.shape}")
        if self._k and p.ndim == 2 and p.shape[1] != self._k:
            raise ValueError(f"probs must have {self._k} columns, as before, got {p.shape[1]}")
        if self.task == "multiclass":
            p = p / p.sum(axis=1, keepdims=True)
        if weights is None:
            return p, data.y, None
        w = check_weights_of(weights, np.size(weights), "weights")
        return of_all_rows(p, w, 0.5), of_all_rows(data.y, w, 0), w

    def _begin(self, k: int) -> None:
        """Prepare the evidence, once the number of classes or labels is known."""
        self._k = k
        if self.task == "multiclass":
            self._evidence = [Evidence(MulticlassAlternatives(k))]
            return
        alternatives = BinaryAlternatives()
        self._evidence = [Evidence(alternatives) for _ in range(k)]
        self._histories = [LogOddsHistory() for _ in range(k)]

    def _add(self, p: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> None:
        """Add checked rows."""
        wealth = self._update_evidence(p, y, weights)
        self._course.add(self.n_rows_, wealth)
        above = wealth >= -np.log(self.alpha)
        if self.alarm_row_ is None and above.any():
            self.alarm_row_ = self.n_rows_ + int(np.argmax(above))
        self.max_log_evidence_ = max(self.max_log_evidence_, float(wealth.max()))
        self.log_evidence_ = float(wealth[-1])
        self.n_rows_ += len(p)

    def _update_evidence(
        self, p: np.ndarray, y: np.ndarray, weights: np.ndarray | None
    ) -> np.ndarray:
        """Return the logarithm of the evidence after each row (n,)."""
        if self.task == "multiclass":
            label_probs = p[np.arange(len(y)), y]
            self._note_refuted(label_probs == 0, weights)
            # A class of probability one that happened carries no information.
            certain = (label_probs == 0) | (label_probs == 1)
            inside = np.where(certain[:, None], 1 / self._k, p)
            wealth = self._evidence[0].update(inside, y, without(certain, weights))
        else:
            parts = []
            columns = p.reshape(len(p), -1).T, y.reshape(len(y), -1).T
            for evidence, history, q, label in zip(
                self._evidence, self._histories, *columns, strict=True
            ):
                self._note_refuted(np.where(label == 1, q, 1 - q) == 0, weights)
                certain = (q == 0) | (q == 1)
                inside = np.where(certain, 0.5, q)
                parts.append(evidence.update(inside, label, without(certain, weights)))
                used = ~certain
                log_odds = np.log(inside[used]) - np.log1p(-inside[used])
                history.add(log_odds, label[used], None if weights is None else weights[used])
            wealth = np.logaddexp.reduce(parts, axis=0) - np.log(len(parts))
        if self.refuted_row_ is not None:
            wealth[max(0, self.refuted_row_ - self.n_rows_) :] = np.inf
        return wealth

    def _note_refuted(self, refuted: np.ndarray, weights: np.ndarray | None) -> None:
        """Keep the first row of positive weight whose outcome had a probability of zero."""
        if weights is not None:
            refuted = refuted & (weights > 0)
        if refuted.any():
            row = self.n_rows_ + int(np.argmax(refuted))
            self.refuted_row_ = row if self.refuted_row_ is None else min(row, self.refuted_row_)

    def _look(self, stride: int) -> None:
        """Keep the histories as they are now, and thin the earlier looks."""
        for evidence, history in zip(self._evidence, self._histories, strict=False):
            history.looks = [look for look in history.looks if (look.row + 1) % stride == 0]
            history.look(self.n_rows_ - 1, evidence.log_plain_evidence)

    def _keep_times(self, stamps: np.ndarray) -> None:
        """Keep time stamps of the last rows, and of those earlier rows that may be needed."""
        first = self.n_rows_ - len(stamps)
        starts = {*self._evidence[0].group_rows} if self._evidence else set()
        looks = {look.row for history in self._histories[:1] for look in history.looks}
        needed = {*starts, *looks, *self._course.rows, self.alarm_row_}
        needed |= {self.n_rows_ - 1, self.n_rows_, self.refuted_row_}
        self._times = {row: time for row, time in self._times.items() if row in needed}
        # The first row of a group of restarts may only begin with the next rows.
        new = {row for row in needed if row is not None and first <= row < self.n_rows_}
        self._times.update(known_times((row, stamps[row - first]) for row in sorted(new)))
        if self.alarm_time_ is None and self.alarm_row_ is not None:
            self.alarm_time_ = self._times.get(self.alarm_row_)

    @property
    def course_(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows (m,) and the logarithm of the evidence after them (m,), evenly thinned."""
        return np.array(self._course.rows, int), np.array(self._course.values, float)

    def times_at(self, rows: ArrayLike) -> np.ndarray | None:
        """Look up time stamps of rows of ``course_`` or ``confidence_sequence``.

        Parameters
        ----------
        rows : array-like of shape (m,)
            Rows, counted from 0.

        Returns
        -------
        array of shape (m,) or None
            None if one of the rows had no time stamp, or if some are text.
        """
        stamps = [self._times.get(int(row)) for row in np.asarray(rows).ravel()]
        if not stamps or any(stamp is None or isinstance(stamp, str) for stamp in stamps):
            return None
        return np.array(stamps)

    def _worst(self) -> int:
        """Return the label with most evidence against it."""
        return int(np.argmax([evidence.log_wealth for evidence in self._evidence]))

    @property
    def start_row_(self) -> int:
        """The row at which the miscalibration most probably began."""
        if not self._evidence:
            return 0
        rows, weights = self._evidence[self._worst()].start_weights()
        return int(rows[np.argmax(weights)])

    @property
    def start_time_(self) -> Time | None:
        """The time stamp of ``start_row_``."""
        return self._times.get(self.start_row_)

    def slope_interval(self, label: int = 0) -> tuple[float, float]:
        """Compute the interval of the slope a in logit q = a logit p + b, after all rows so far.

        The intervals at all times contain the true slope with probability 1 - alpha, together with
        the intervals of the offset, if slope and offset have not changed since the first row. A
        slope of one and an offset of zero mean that the probabilities are calibrated; a slope below
        one means over-confident.

        Parameters
        ----------
        label : int, default 0
            Position of the label, for ``task="multilabel"``.

        Returns
        -------
        (float, float)
            Infinite where nothing is known; NaN if no slope and offset explain the rows.
        """
        return self._ends(label, 0)

    def offset_interval(self, label: int = 0) -> tuple[float, float]:
        """Compute the interval of the offset b in logit q = a logit p + b, after all rows so far.

        It holds together with the interval of the slope; see :meth:`slope_interval`.

        Parameters
        ----------
        label : int, default 0
            Position of the label, for ``task="multilabel"``.

        Returns
        -------
        (float, float)
            Infinite where nothing is known; NaN if no slope and offset explain the rows.
        """
        return self._ends(label, 1)

    def confidence_sequence(self, label: int = 0) -> dict[str, np.ndarray]:
        """Compute the intervals of slope and offset at up to 64 evenly spaced earlier times.

        Parameters
        ----------
        label : int, default 0
            Position of the label, for ``task="multilabel"``.

        Returns
        -------
        dict
            ``rows`` (m,), the last row of each interval's data; ``slope`` (m, 2) and ``offset``
            (m, 2), their ends. See :meth:`slope_interval`.
        """
        self._check_slopes(label)
        history = self._histories[label] if self._histories else LogOddsHistory()
        level, ends = np.log(self.alpha), []
        for look in history.looks:
            line = Line(history.terms_of(look.cells, look.counts))
            ends.append([line.ends(i, level + look.log_evidence) for i in (0, 1)])
        slope, offset = np.array(ends).reshape(-1, 2, 2).swapaxes(0, 1)
        rows = np.array([look.row for look in history.looks], int)
        return {"rows": rows, "slope": slope, "offset": offset}

    def _ends(self, label: int, coordinate: int) -> tuple[float, float]:
        """Compute the interval of the slope (0) or the offset (1) now."""
        self._check_slopes(label)
        if not self._evidence:
            return Line(LogOddsHistory().terms()).ends(coordinate, -np.inf)
        threshold = np.log(self.alpha) + self._evidence[label].log_plain_evidence
        return Line(self._histories[label].terms()).ends(coordinate, threshold)

    def _check_slopes(self, label: int) -> None:
        """Raise unless there are slopes and offsets of the label."""
        if self.task == "multiclass":
            raise ValueError("task must be 'binary' or 'multilabel' for slopes and offsets")
        most = max(self._k, 1)
        if not 0 <= label < most:
            raise ValueError(f"label must lie in [0, {most - 1}], got {label}")

    @property
    def action_(self) -> str:
        """What to do now, in words."""
        if self.refuted_row_ is not None:
            return (
                f"row {self.refuted_row_} had an outcome of probability zero: clip the "
                "probabilities, or recalibrate with a map that never gives 0 or 1"
            )
        if not self.alarm_:
            return "none: there is not enough evidence of miscalibration"
        worst = self._worst()
        history = self._histories[worst] if self._histories else None
        text = advise(self._evidence[worst], history, self.start_row_, self.start_time_)
        if self.task != "multilabel":
            return text
        names = self._labels if self.classes is None else label_list(class_array(self.classes))
        label = names[worst] if names else worst
        return f"label {label}: {text}"

    def plot(
        self, *, label: int = 0, axes: Axes | Sequence[Axes] | np.ndarray | None = None
    ) -> np.ndarray:
        """Draw the evidence, the slope and the offset over time.

        Parameters
        ----------
        label : int, default 0
            Position of the label whose slope and offset are drawn, for ``task="multilabel"``.
        axes : sequence of matplotlib Axes, optional
            Where to draw, by default on a new figure; see :func:`bayescal.plots.monitor`.

        Returns
        -------
        array of matplotlib Axes
        """
        return plot_function("monitor")(self, label=label, axes=axes)

    def __repr__(self) -> str:
        state = "alarm" if self.alarm_ else "no alarm"
        return (
            f"Monitor(alpha={self.alpha}, task={self.task!r}): {self.n_rows_} rows, "
            f"log evidence {self.log_evidence_:.2f}, {state}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the state as numbers, text, lists and dictionaries, which JSON can hold.

        Returns
        -------
        dict
            What :meth:`from_dict` takes. The state does not grow with the number of rows.
        """
        classes = None if self.classes is None else classes_to_json(class_array(self.classes))
        # An infinite evidence follows from the refuted row.
        values = {name: getattr(self, name) for name in _EVIDENCE}
        evidence = {name: None if np.isinf(value) else value for name, value in values.items()}
        return {
            "bayescal_monitor": _FORMAT,
            **{name: getattr(self, name) for name in _NUMBERS},
            **evidence,
            "classes": classes,
            "labels": self._labels,
            "alarm_time_": to_text(self.alarm_time_),
            "course": self._course.state(),
            "times": [[row, to_text(time)] for row, time in self._times.items()],
            "evidence": [evidence.state() for evidence in self._evidence],
            "histories": [history.state() for history in self._histories],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Make a monitor that continues bit for bit from a state.

        Parameters
        ----------
        state : dict
            What :meth:`to_dict` returned; other entries are ignored.

        Returns
        -------
        Monitor

        Raises
        ------
        ValueError
            If the state is of a newer version of bayescal, or not of a monitor.
        """
        version = state.get("bayescal_monitor")
        if version is None:
            raise ValueError("state must be that of a monitor, got other entries")
        if version != _FORMAT:
            raise ValueError(
                f"state was written by a newer version of bayescal (format {version}); "
                "install that version to read it"
            )
        try:
            monitor = cls(state["alpha"], state["task"], classes_from_json(state["classes"]))
            monitor._restore(state)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"state must be that of a monitor and complete: {error}") from error
        return monitor

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that :meth:`to_dict` returned."""
        for name in _NUMBERS:
            setattr(self, name, state[name])
        for name in _EVIDENCE:
            setattr(self, name, np.inf if state[name] is None else state[name])
        labels = state.get("labels")
        self._labels = None if labels is None else check_names(labels, "labels")
        self.alarm_time_ = plain_time(state["alarm_time_"])
        self._course.restore(state["course"])
        self._times = known_times(state["times"])
        if evidence := state["evidence"]:
            # A file must not make a process reserve more memory than the file has.
            held = len(evidence[0]["log_plain"]) if self.task == "multiclass" else len(evidence)
            if self._k > held:
                raise ValueError(f"it has no evidence of {self._k} classes")
            self._begin(self._k)
        for part, kept in zip(self._evidence, state["evidence"], strict=True):
            part.restore(kept)
        for history, kept in zip(self._histories, state["histories"], strict=True):
            history.restore(kept)

    def save(self, path: str | Path) -> None:
        """Write the state to a JSON file, from which :meth:`load` continues bit for bit.

        Parameters
        ----------
        path : str or Path
            An existing file is replaced as a whole or not at all.
        """
        text = json.dumps(self.to_dict(), allow_nan=False)
        with write_atomically(Path(path)) as partial:
            partial.write_text(text, "utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a monitor from a file.

        Parameters
        ----------
        path : str or Path
            A file that :meth:`save` or ``bayescal monitor`` has written.

        Returns
        -------
        Monitor

        Raises
        ------
        ValueError
            If the file does not hold a monitor of a known version.
        """
        try:
            state = json.loads(Path(path).read_text("utf-8"))
            state["bayescal_monitor"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"{path} does not hold a monitor of bayescal") from None
        return cls.from_dict(state)
