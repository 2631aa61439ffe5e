"""The default: a calibrator chosen by the shape of the scores, and an account of what it did."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import accelerated, on_host
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.precision import float64
from bayescal._core.warnings import frames_to_caller
from bayescal.calibrators.base.dispatch import dispatched
from bayescal.calibrators.base.report import (
    Report,
    expected_losses,
    make_report,
    report_of_moments,
    row_losses,
    uncalibrated_row_losses,
)
from bayescal.calibrators.binary.averaged_beta.calibrator import AveragedBeta
from bayescal.calibrators.binary.logistic import Logistic
from bayescal.calibrators.combine.base import Combination, State, keep_features
from bayescal.calibrators.combine.composition import Composition
from bayescal.calibrators.combine.multi_label import MultiLabel
from bayescal.calibrators.stack.calibrator import StackedScaling
from bayescal.data.blocks.stream import Block, as_blocks
from bayescal.data.checks import SUM_TOLERANCE, as_numpy, check_choice, check_count, check_unmasked
from bayescal.data.fitted import of_pairs
from bayescal.data.folds.deal import FoldedRows, fold_features, fold_scores
from bayescal.data.label_names import column_names, in_order, label_list
from bayescal.data.labels import read_labels, read_many
from bayescal.data.scores import Inputs, check_inputs, convert, widen
from bayescal.data.weights import check_weights

__all__ = ["Auto"]

#: Of evidence.
_POWER = 0.5


def _has_interval(self: Auto) -> bool:
    # A stack alone is also fitted without a posterior.
    parts = getattr(self, "calibrators_", [None])
    return getattr(parts[0], "inference", None) != "map"


@dataclass(kw_only=True, eq=False, repr=False)
class Auto(ClassifierMixin, Combination):
    """The calibrator to begin with: nothing is to be chosen.

    Two classes are calibrated by :class:`AveragedBeta` with power 0.5, three and more by
    :class:`StackedScaling`, and labels that do not exclude each other, given as a matrix of zeros
    and ones, by an ``AveragedBeta`` for each. Raw scores of two classes pass through Platt scaling
    first.

    Parameters
    ----------
    inputs : {"probs", "logits", "scores"}
        What the scores are; it is never guessed from them. Raw scores are for two classes.
    classes : sequence of k labels, optional
        Of the columns, in their order; needed where the data may lack one.
    mode : {"stack", "single"}
        Of ``StackedScaling``; "single" is faster.
    inference : {"map", "laplace"}
        Of ``StackedScaling``; "laplace" gives it intervals, for a few dozen classes at most.
    folds : int, optional
        By which the expected loss is found, and the weights of a stack.
    random_state : int, RandomState or None
        Of the draws of ``inference="laplace"``.

    Attributes
    ----------
    classes_ : array of shape (k,)
        Not of several labels.
    calibrators_ : list of one fitted calibrator
    report_ : Report
        What was chosen and why, the weights of its members, and what to expect: ``print`` it.
    status_ : str
        As the calibrator's.

    Notes
    -----
    Of two classes the expected loss is that of rows left out, by Newton's step and Laplace's
    approximation (:meth:`AveragedBeta.losses_left_out`), computed when the report is first asked
    for. Of raw scores and several labels it takes ``folds`` further fits; a stack has made them.
    Of raw scores in blocks it is as of two classes, with the two parameters of Platt scaling as
    they are, and of ``mode="single"`` in blocks it is not known.

    Examples
    --------
    >>> import numpy as np
    >>> import bayescal as bc
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.01, 0.99, 500)
    >>> y = (rng.random(500) < p**2).astype(int)
    >>> auto = bc.Auto().fit(p, y)
    >>> print(auto.report_)
    AveragedBeta: two classes, 500 rows
    weights: linear 0.46, curved 0.54
    expected log loss: 0.433 ± 0.024
    uncalibrated: 0.517; gain +0.084 ± 0.017: it helps
    >>> auto.predict_proba([0.5])[:, 1].round(1).tolist()
    [0.3]
    """

    inputs: Inputs = "probs"
    classes: Sequence[Any] | np.ndarray | None = None
    mode: Literal["stack", "single"] = "stack"
    inference: Literal["map", "laplace"] = "map"
    folds: int | None = None
    random_state: int | np.random.RandomState | None = 0

    classes_: np.ndarray = field(init=False)
    _report_of_rows: ClassVar[bool] = False

    def fit(self, scores: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose, fit, and estimate what to expect.

        Parameters
        ----------
        scores : array-like of shape (n,), (n, 1) or (n, k), or Blocks
            As ``inputs`` says; of several labels a column for each, or a list with an array (n, 2)
            for each. Blocks, which hold their
            labels, and what is read in blocks (see :meth:`Calibrator.fit`), are of classes.
        y : array-like of shape (n,) or (n, labels)
            Labels of any kind; or zeros and ones of any type, a column for each of several labels.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        self

        Warns
        -----
        UserWarning
            If each row of several labels holds one 1, as for classes that exclude each other.
        """
        check_inputs(self.inputs)
        check_choice(self.mode, "mode", ("stack", "single"))
        check_choice(self.inference, "inference", ("map", "laplace"))
        check_random_state(self.random_state)
        if self.folds is not None:
            check_count(self.folds, "folds", 2)
        if np.ndim(y) < 2 and (blocks := as_blocks(scores, y, sample_weight)) is not None:
            columns = next(iter(blocks.each(_count_columns)))
            return self._hold(*self._choose(columns, False), blocks, None, None)
        there = accelerated(scores)
        if np.ndim(y) < 2:
            scores = widen(scores, self.inputs) if there is None else there
        check_unmasked(y, "y")
        labels = y if not hasattr(y, "detach") else as_numpy(y, "y")
        several = np.ndim(labels) == 2 and np.shape(labels)[1] > 1
        scores = of_pairs(scores, "scores") if several else scores
        chosen, reason = self._choose(np.shape(scores)[1] if np.ndim(scores) == 2 else 1, several)
        self._hold(chosen, reason, scores, y, sample_weight)
        if not isinstance(chosen, AveragedBeta):
            fits_there = there is not None and isinstance(chosen, StackedScaling)
            if several:
                rows, labels, _ = read_many(scores, labels)
                _hint(rows, labels, self.inputs)
            else:
                rows = scores if fits_there else self._in_order(scores)
            with float64() if fits_there else nullcontext():
                self.report_ = self._judge(chosen, reason, rows, labels, sample_weight, several)
        return self

    def _in_order(self, scores: Any) -> np.ndarray:
        names, rows = column_names(scores), as_numpy(scores, "scores")
        return in_order(rows.reshape(len(rows), -1), names, self.classes_, "scores")

    def _hold(self, chosen: Any, reason: str, scores: Any, y: Any, sample_weight: Any) -> Self:
        """Fit what is chosen and keep it, without a report."""
        fitted = chosen.fit(scores, y, sample_weight)
        self._keep([fitted])
        keep_features(self, fitted)
        vars(self).pop("classes_", None)  # of an earlier fit
        if not isinstance(chosen, MultiLabel):
            self.classes_ = fitted.classes_
        return self

    @cached_property
    @ignoring_underflow
    def report_(self) -> Report:
        """Of two classes, from the points that the calibrator keeps; of blocks, from moments."""
        check_is_fitted(self)
        fitted = self.calibrators_[0]
        if isinstance(fitted, StackedScaling):
            state, k = fitted.state_, len(self.classes_)
            names, sizes = (fitted._title(), f"{k} classes"), (int(state["rows"]), k)
            members, moments = fitted._member_weights(), state.get("held_out_moments")
            return report_of_moments(names, sizes, members, moments)
        if isinstance(fitted, AveragedBeta):
            return fitted.report_
        # Its own last one takes no scores as they are.
        nothing = dict.fromkeys(("uncalibrated", "gain", "gain_error", "helps", "hurts"))
        return replace(fitted.calibrators_[-1].report_, calibrator=fitted._title(), **nothing)

    def predict_proba(self, scores: Any) -> Any:
        """Return the calibrated probabilities (m, k), or (m, labels) that each label is present."""
        check_is_fitted(self)
        return self.calibrators_[0].predict_proba(scores)

    def predict(self, scores: Any) -> np.ndarray:
        """Return the most probable class (m,), or one (m, labels) where a label is."""
        check_is_fitted(self)
        return self.calibrators_[0].predict(scores)

    @available_if(_has_interval)
    @dispatched
    def predict_interval(self, scores: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return credible intervals of the probabilities; of two classes those of the second.

        Of three and more classes only with ``inference="laplace"``.

        Parameters
        ----------
        scores : array-like, as for ``fit``
        level : float

        Returns
        -------
        lower, upper : arrays of shape (m,), (m, k) or (m, labels)
        """
        check_is_fitted(self)
        return self.calibrators_[0].predict_interval(scores, level)

    def _map(self, state: State, scores: Any) -> Any:
        ((part, own),) = self._each(state)
        return part._map(own, scores)

    def _has_ends(self, state: State) -> bool:
        ((part, own),) = self._each(state)
        return part._has_ends(own)

    def _map_ends(self, state: State, scores: Any, level: float) -> Any:
        ((part, own),) = self._each(state)
        return part._map_ends(own, scores, level)

    def _choose(self, columns: int, several: bool) -> tuple[Any, str]:
        """Return a calibrator, not yet fitted, and why it is that."""
        binary: Any = AveragedBeta(_POWER, inputs=self.inputs, classes=self.classes)
        if self.inputs == "scores":
            parts = [Logistic(inputs="scores", smoothing="platt"), AveragedBeta(_POWER)]
            binary = Composition(parts, classes=self.classes)
        if several:
            return MultiLabel(binary), f"{columns} labels that do not exclude each other"
        if columns <= 2:
            return binary, "two classes"
        stacked: Any = StackedScaling(
            mode=self.mode,
            folds=self.folds,
            inference=self.inference,
            inputs=self.inputs,  # type: ignore[arg-type]
            classes=self.classes,
            random_state=self.random_state,
        )
        return stacked, f"{columns} classes"

    def _judge(
        self, chosen: Any, reason: str, rows: Any, y: Any, sample_weight: Any, several: bool
    ) -> Report:
        fitted = self.calibrators_[0]
        rows = rows.reshape(len(rows), -1)
        weights = check_weights(sample_weight, len(rows))
        used = weights > 0
        if not used.all():
            rows = rows[used]
        weights, y = weights[used], np.asarray(y)[used]
        codes = y if several else read_labels(y, len(y), self.classes_, len(self.classes_))[1]
        held = getattr(fitted, "held_out_losses_", None)
        if held is None:
            held = self._held_out(chosen, rows, y, codes, weights)
        raw = self.inputs == "scores"
        plain = None if raw else uncalibrated_row_losses(rows, codes, self.inputs)
        sizes = len(rows), rows.shape[1] if several else len(self.classes_)
        # Whole weights are counts, as in metrics.
        squares = weights if np.all(weights == np.floor(weights)) else weights**2
        names, members = (fitted._title(), reason), fitted._member_weights()
        # As a function, which asks for no names of columns: the rows are in the fit's order.
        expected = expected_losses(fitted.as_function(), rows, codes, self.inputs)
        return make_report(names, sizes, members, held, plain, weights, squares, expected)

    def _held_out(
        self, chosen: Any, rows: Any, y: np.ndarray, codes: np.ndarray, weights: np.ndarray
    ) -> np.ndarray | None:
        """Return the losses (n,) of rows by calibrators fitted without their folds.

        None for a single row.
        """
        folds = self._folds(rows, codes, weights)
        if folds.count == 1:
            return None
        losses = np.empty(len(folds.fold))
        for fold in range(folds.count):
            out = folds.fold == fold
            kept, left = folds.index[~out], folds.index[out]
            own: Any = clone(chosen)
            if codes.ndim == 1:
                own.set_params(classes=tuple(label_list(self.classes_)))
            own.fit(rows[kept], y[kept], folds.weights[~out])
            predict = own.predict_proba if on_host(rows) else own.as_function()
            losses[out] = row_losses(predict(rows[left]), codes[left])
        return folds.of_rows(losses)

    def _folds(self, rows: Any, codes: np.ndarray, weights: np.ndarray) -> FoldedRows:
        """Deal the rows to folds by what they hold, whatever their order."""
        count = self.folds or 5
        if codes.ndim == 2:
            strata = np.unique(codes, axis=0, return_inverse=True)[1].ravel()
            return fold_features(rows, strata, weights, count)
        if len(self.classes_) == 2:
            rows = convert(rows, self.inputs, "order" if self.inputs == "scores" else "log_odds")[0]
        return fold_scores(rows, codes, weights, count)


def _hint(rows: np.ndarray, labels: np.ndarray, inputs: str) -> None:
    """Warn if labels exclude each other, and probabilities as well, though they come in columns."""
    exclusive = bool((labels.sum(axis=1) == 1).all())
    if exclusive and (inputs != "probs" or np.abs(rows.sum(axis=1) - 1).max() < SUM_TOLERANCE):
        warnings.warn(
            "each row of y holds one 1, as for classes that exclude each other, and is read as "
            "several labels, each calibrated for itself; for classes pass y.argmax(axis=1)",
            UserWarning,
            stacklevel=frames_to_caller(),
        )


def _count_columns(block: Block) -> int:
    """Return the columns of scores; with labels in columns, too, it raises."""
    if np.ndim(block.y) == 2 and np.shape(block.y)[1] > 1:
        raise ValueError(
            "y must be one column in blocks, got several labels; fit a calibrator to each"
        )
    return np.shape(block.scores)[1] if np.ndim(block.scores) == 2 else 1
