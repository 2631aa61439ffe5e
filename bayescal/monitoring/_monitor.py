"""A monitor of the calibration of a deployed model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.files import write_atomically
from bayescal.data.checks import (
    as_numpy,
    check_finite,
    check_range,
    check_real,
    check_row_sums,
)
from bayescal.monitoring._alternatives import (
    Alternatives,
    BinaryAlternatives,
    MulticlassAlternatives,
)
from bayescal.monitoring._evidence import Evidence
from bayescal.monitoring._region import History, Region

#: Points of the course of the evidence that are kept: at most twice as many.
_POINTS = 512
_FORMAT = 1


class Monitor:
    r"""Test whether a deployed model stays calibrated, after every row and for as long as it runs.

    The test is anytime-valid: look as often as you like, and stop when you like. If the
    probabilities are right, the probability that it *ever* raises an alarm is at most ``alpha``.
    It bets on recalibration maps against the probabilities. Half of its stakes were placed at the
    first row, half are placed anew all the time, so that a change after 100,000 calm rows is found
    about as soon as one at the beginning.

    Parameters
    ----------
    alpha : float, default 0.05
        Probability of a false alarm, over the whole life of the monitor.
    task : {"binary", "multiclass", "multilabel"}, default "binary"
        What the probabilities are: P(y = 1) of shape (n,); those of k classes, of shape (n, k),
        whose rows sum to one; or those of k labels of which any number may apply, (n, k).

    Attributes
    ----------
    n_rows_ : int
        Rows seen.
    log_evidence_ : float
        Logarithm of the evidence against calibration now, a Bayes factor. It may fall again.
    max_log_evidence_ : float
        The greatest value so far, which decides on the alarm.
    alarm_ : bool
        Whether the evidence has ever reached 1 / alpha.
    alarm_row_ : int or None
        The row, counted from 0, at which it first did.
    alarm_time_ : object or None
        The entry of ``times`` of that row.
    refuted_row_ : int or None
        The first row whose outcome had a probability of zero. Such a row is an alarm by itself.
    start_row_ : int
        Where the miscalibration most probably began.
    action_ : str
        What to do, in words.

    Raises
    ------
    ValueError
        If alpha is not between 0 and 1, or the task is unknown.

    See Also
    --------
    bayescal.metrics.spiegelhalter_test, bayescal.metrics.consistency_test :
        Tests of one data set of fixed size.

    Notes
    -----
    The evidence is a mixture of likelihood ratios of recalibration maps q to the probabilities p:

    .. math:: e_t = \sum_c w_c \prod_{i \le t} q_c(y_i) / p(y_i),

    and half of it is restarted before every 16th row. It is a nonnegative martingale of mean one if
    p is right, so that P(sup e >= 1 / alpha) <= alpha (Ville's inequality). Maps of binary
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
    ) -> None:
        check_real(alpha, "alpha")
        if not 0 < alpha < 1:
            raise ValueError(f"alpha must lie in (0, 1), got {alpha}")
        if task not in ("binary", "multiclass", "multilabel"):
            raise ValueError(f"task must be 'binary', 'multiclass' or 'multilabel', got {task!r}")
        self.alpha = float(alpha)
        self.task = task
        self.n_rows_ = 0
        self.log_evidence_ = 0.0
        self.max_log_evidence_ = 0.0
        self.alarm_row_: int | None = None
        self.alarm_time_: Any = None
        self.refuted_row_: int | None = None
        self._k = 0
        self._evidence: list[Evidence] = []
        self._histories: list[History] = []
        self._stride = 1
        self._course: list[tuple[int, float]] = []

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
        y : array-like of shape (n,) or (n, k)
            Outcomes: 0 or 1; of several classes their positions 0, ..., k - 1.
        weights : array-like of shape (n,), optional
            In [0, 1]; a row of weight w counts w times. Divide weights by the greatest possible
            one: with weights above one the test would not keep its promise.
        times : array-like of shape (n,), optional
            Time stamps, one of which becomes ``alarm_time_``.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For probabilities outside [0, 1], other outcomes, or shapes that do not match. The
            monitor is then as it was.
        """
        p, outcomes = self._read(probs, y)
        n = len(p)
        w = None if weights is None else _read_weights(weights, n)
        stamps = None if times is None else np.asarray(times)
        if stamps is not None and stamps.shape != (n,):
            raise ValueError(f"times must have shape ({n},), got {stamps.shape}")
        if not n:
            return self
        if not self._evidence:
            self._begin(1 if p.ndim == 1 else p.shape[1])
        wealth = self._update_evidence(p, outcomes, w)
        self._keep_course(wealth)
        above = wealth >= -np.log(self.alpha)
        if self.alarm_row_ is None and above.any():
            first = int(np.argmax(above))
            self.alarm_row_ = self.n_rows_ + first
            self.alarm_time_ = None if stamps is None else stamps[first]
        self.max_log_evidence_ = max(self.max_log_evidence_, float(wealth.max()))
        self.log_evidence_ = float(wealth[-1])
        self.n_rows_ += n
        return self

    def _read(self, probs: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Check probabilities and outcomes."""
        p = as_numpy(probs, "probs").astype(float)
        wanted = 1 if self.task == "binary" else 2
        if p.ndim != wanted:
            shape = "(n,)" if wanted == 1 else "(n, k)"
            raise ValueError(f"probs must have shape {shape} for task={self.task!r}, got {p.shape}")
        if self._k and p.ndim == 2 and p.shape[1] != self._k:
            raise ValueError(f"probs must have {self._k} columns, as before, got {p.shape[1]}")
        check_finite(p, "probs")
        p = check_range(p, "probs")
        outcomes = as_numpy(y, "y")
        shape = p.shape if self.task == "multilabel" else p.shape[:1]
        if outcomes.shape != shape:
            raise ValueError(f"y must have shape {shape}, got {outcomes.shape}")
        most = 2 if self.task != "multiclass" else p.shape[1]
        whole = np.isin(outcomes, np.arange(most))
        if not whole.all():
            wrong = outcomes[~whole][0]
            raise ValueError(f"y must be in {{0, ..., {most - 1}}}, got {wrong}")
        if self.task == "multiclass":
            check_row_sums(p, "probs")
            p = p / p.sum(axis=1, keepdims=True)
        return p, outcomes.astype(int)

    def _begin(self, k: int) -> None:
        """Make the bets, once the number of classes or labels is known."""
        self._k = k
        if self.task == "multiclass":
            self._evidence = [Evidence(MulticlassAlternatives(k))]
            return
        alternatives: Alternatives = BinaryAlternatives()
        self._evidence = [Evidence(alternatives) for _ in range(k)]
        self._histories = [History() for _ in range(k)]

    def _update_evidence(
        self, p: np.ndarray, y: np.ndarray, weights: np.ndarray | None
    ) -> np.ndarray:
        """Return the logarithm of the evidence after each row (n,)."""
        if self.task == "multiclass":
            label_probs = p[np.arange(len(y)), y]
            self._note_refuted(label_probs == 0)
            # A class of probability one that happened says nothing.
            certain = (label_probs == 0) | (label_probs == 1)
            inside = np.where(certain[:, None], 1 / self._k, p)
            wealth = self._evidence[0].update(inside, y, _without(certain, weights))
        else:
            columns = p.reshape(len(p), -1), y.reshape(len(y), -1)
            parts = []
            for j, (evidence, history) in enumerate(
                zip(self._evidence, self._histories, strict=True)
            ):
                q, label = columns[0][:, j], columns[1][:, j]
                self._note_refuted(np.where(label == 1, q, 1 - q) == 0)
                certain = (q == 0) | (q == 1)
                inside = np.where(certain, 0.5, q)
                parts.append(evidence.update(inside, label, _without(certain, weights)))
                used = ~certain
                share = None if weights is None else weights[used]
                log_odds = np.log(inside[used]) - np.log1p(-inside[used])
                history.add(log_odds, label[used], share)
            wealth = np.logaddexp.reduce(parts, axis=0) - np.log(len(parts))
        if self.refuted_row_ is not None:
            wealth[max(0, self.refuted_row_ - self.n_rows_) :] = np.inf
        return wealth

    def _note_refuted(self, refuted: np.ndarray) -> None:
        """Keep the first row whose outcome was said to be impossible."""
        if refuted.any():
            row = self.n_rows_ + int(np.argmax(refuted))
            self.refuted_row_ = row if self.refuted_row_ is None else min(row, self.refuted_row_)

    def _keep_course(self, wealth: np.ndarray) -> None:
        """Keep the evidence after every so many rows, for pictures."""
        end = self.n_rows_ + len(wealth)
        while end // self._stride > 2 * _POINTS:
            self._stride *= 2
        self._course = [entry for entry in self._course if entry[0] % self._stride == 0]
        first = -self.n_rows_ % self._stride
        rows = range(first, len(wealth), self._stride)
        self._course += [(self.n_rows_ + i, float(wealth[i])) for i in rows]

    @property
    def course_(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows (m,) and the logarithm of the evidence after them (m,), evenly thinned."""
        rows, values = zip(*self._course, strict=True) if self._course else ((), ())
        return np.array(rows, int), np.array(values, float)

    @property
    def start_row_(self) -> int:
        """Where the miscalibration most probably began, to about 6 % of the distance from now."""
        if not self._evidence:
            return 0
        worst = max(self._evidence, key=lambda evidence: evidence.log_plain_evidence)
        rows, weights = worst.start_weights()
        return int(rows[np.argmax(weights)])

    def slope_interval(self, label: int = 0) -> tuple[float, float]:
        """Compute the confidence sequence of the slope a in logit q = a logit p + b.

        The intervals after all rows contain the true slope together with probability 1 - alpha, if
        it has been the same from the first row on. A slope of one and an offset of zero mean that
        the probabilities are calibrated; a slope below one means over-confident.

        Parameters
        ----------
        label : int, default 0
            Which label, for ``task="multilabel"``.

        Returns
        -------
        (float, float)
            Infinite where nothing is known; NaN if no slope and offset explain the rows.
        """
        return self._region(label).slope()

    def offset_interval(self, label: int = 0) -> tuple[float, float]:
        """Compute the confidence sequence of the offset b in logit q = a logit p + b.

        It holds together with that of the slope; see :meth:`slope_interval`.

        Parameters
        ----------
        label : int, default 0
            Which label, for ``task="multilabel"``.

        Returns
        -------
        (float, float)
        """
        return self._region(label).offset()

    def _region(self, label: int) -> Region:
        if self.task == "multiclass":
            raise ValueError("task must be 'binary' or 'multilabel' for slopes and offsets")
        if not self._evidence:
            return Region(History(), -np.inf)
        threshold = np.log(self.alpha) + self._evidence[label].log_plain_evidence
        return Region(self._histories[label], threshold)

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
        worst = max(self._evidence, key=lambda evidence: evidence.log_plain_evidence)
        kinds = worst.kind_weights()
        kind = max(kinds, key=lambda name: kinds[name])
        since = f"with rows from about {self.start_row_} on"
        return {
            "offset": f"the share of outcomes has changed: refit an offset {since}",
            "slope": f"confidence is too high or too low: refit a temperature {since}",
            "both": f"recalibrate {since}, for example by Logistic or Auto",
        }[kind]

    def __repr__(self) -> str:
        state = "alarm" if self.alarm_ else "no alarm"
        return (
            f"Monitor(alpha={self.alpha}, task={self.task!r}): {self.n_rows_} rows, "
            f"log evidence {self.log_evidence_:.2f}, {state}"
        )

    def save(self, path: str | Path) -> None:
        """Write the state to a JSON file, from which :meth:`load` continues bit for bit.

        Parameters
        ----------
        path : str or Path
            An existing file is replaced at once or not at all. ``alarm_time_`` is kept as text.
        """
        names = ("alpha", "task", "n_rows_", "log_evidence_", "max_log_evidence_", "alarm_row_")
        state = {name: getattr(self, name) for name in (*names, "refuted_row_", "_k", "_stride")}
        state["alarm_time_"] = None if self.alarm_time_ is None else str(self.alarm_time_)
        state["course"] = self._course
        state["evidence"] = [evidence.state() for evidence in self._evidence]
        state["histories"] = [
            {"counts": history.counts.tolist(), "sums": history.sums.tolist()}
            for history in self._histories
        ]
        with write_atomically(Path(path)) as partial:
            partial.write_text(json.dumps({"bayescal_monitor": _FORMAT, **state}), "utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a monitor that :meth:`save` has written.

        Parameters
        ----------
        path : str or Path

        Raises
        ------
        ValueError
            If the file does not hold a monitor of a version that is known.
        """
        try:
            state = json.loads(Path(path).read_text("utf-8"))
            version = state.pop("bayescal_monitor")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise ValueError(f"{path} does not hold a monitor of bayescal") from None
        if version != _FORMAT:
            raise ValueError(
                f"{path} was written by a newer version of bayescal (format {version}); "
                "install that version to read it"
            )
        monitor = cls(state.pop("alpha"), state.pop("task"))
        evidence, histories = state.pop("evidence"), state.pop("histories")
        course = state.pop("course")
        vars(monitor).update(state)
        if evidence:
            monitor._begin(monitor._k)
        for part, kept in zip(monitor._evidence, evidence, strict=True):
            part.restore(kept)
        for history, kept in zip(monitor._histories, histories, strict=True):
            history.counts, history.sums = np.array(kept["counts"]), np.array(kept["sums"])
        monitor._course = [(int(row), float(value)) for row, value in course]
        return monitor


def _read_weights(weights: ArrayLike, n: int) -> np.ndarray:
    w = as_numpy(weights, "weights").astype(float)
    if w.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), got {w.shape}")
    if not ((w >= 0) & (w <= 1)).all():
        raise ValueError("weights must lie in [0, 1]; divide them by the greatest possible weight")
    return w


def _without(rows: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
    """Return weights (n,) that are zero for some rows, or None if none are needed."""
    if not rows.any():
        return weights
    return np.where(rows, 0.0, 1.0 if weights is None else weights)
