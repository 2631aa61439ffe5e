"""The default calibrator, chosen by the shape of the scores, with a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, AnyModel, Array, UserData, XArray, accelerated, on_host
from bayescal._core.execution.precision import float64
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.random.keys import check_seed
from bayescal._core.warnings import warn
from bayescal.calibrators.base.dispatch import dispatched
from bayescal.calibrators.base.estimator import check_fitted, report_of_rows
from bayescal.calibrators.base.report import (
    Report,
    losses_left_out,
    report_of_moments,
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
from bayescal.data.kept_rows import KeptRows
from bayescal.data.label_names import column_names, in_order, label_list
from bayescal.data.labels import read_labels, read_many
from bayescal.data.scores import Inputs, check_inputs, convert, widen
from bayescal.data.weights import check_weights


def _has_interval(self: Auto) -> bool:
    (part,) = getattr(self, "calibrators_", [None])
    return part.has_interval_ if isinstance(part, StackedScaling) else True


@dataclass(kw_only=True, eq=False, repr=False)
class Auto(ClassifierMixin, Combination):
    """The default calibrator; it needs no choices.

    ``Auto`` calibrates binary scores with :class:`AveragedBeta` and multi-class scores with
    :class:`StackedScaling`. Multi-label problems, whose labels are a matrix of zeros
    and ones, get an ``AveragedBeta`` for each label. Raw binary scores pass through Platt scaling
    first.

    Parameters
    ----------
    inputs : {"probs", "logits", "scores"}
        Kind of scores, which is never guessed. "scores" are arbitrary numbers, for binary problems.
    classes : sequence of k labels, optional
        Labels of the columns, in their order; needed if the data may lack a class.
    mode : {"stack", "single"}
        Mode of ``StackedScaling``; "single" is faster.
    inference : {"map", "laplace"}
        Inference of ``StackedScaling``. With "laplace", predictions are averaged over posterior
        draws, and problems with 30 and more classes also have intervals; a fit takes many times as
        long.
    folds : int, optional
        Number of folds that are used to estimate the expected loss and the weights of a stack.
    random_state : int, RandomState or None
        Seed of the draws of ``inference="laplace"``.

    Attributes
    ----------
    classes_ : array of shape (k,)
        Classes; not for multi-label problems.
    calibrators_ : list of one fitted calibrator
        The chosen calibrator.
    report_ : Report
        The choice and its reason, the weights of averaged members, and the expected log loss;
        ``print`` it.
    status_ : str
        Status of the calibrator.

    Notes
    -----
    For binary scores, the expected loss is the leave-one-out loss by Newton's step and Laplace's
    approximation (:meth:`AveragedBeta.losses_left_out`), computed when the report is first
    requested. For raw scores and multi-label problems it takes ``folds`` additional fits; a stack
    has already computed them. For raw scores in blocks it is the loss of ``AveragedBeta``, with the
    two parameters of Platt scaling fixed. For ``mode="single"`` in blocks it is unknown.

    See Also
    --------
    CalibratedClassifier : Calibrate a classifier by cross-validation, by default with ``Auto``.
    AveragedBeta, StackedScaling : The calibrators of binary and multi-class scores.

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
    weights: unchanged 0.00, linear 0.46, curved 0.54
    expected log loss: 0.433 ± 0.024
    uncalibrated: 0.517; gain +0.084 ± 0.017: it helps
    >>> auto.predict_proba([0.5])[:, 1].round(1).tolist()
    [0.3]
    """

    inputs: Inputs = "probs"
    classes: Sequence[object] | np.ndarray | None = None
    mode: Literal["stack", "single"] = "stack"
    inference: Literal["map", "laplace"] = "map"
    folds: int | None = None
    random_state: int | np.random.RandomState | None = 0

    classes_: np.ndarray = field(init=False)
    _report_of_rows: ClassVar[bool] = False

    def fit(self, scores: UserData, y: UserData = None, sample_weight: UserData = None) -> Self:
        """Choose and fit a calibrator; ``report_`` estimates its expected loss.

        Parameters
        ----------
        scores : array-like of shape (n,), (n, 1) or (n, k), or Blocks
            Scores of the kind that ``inputs`` names. For multi-label problems, a column or an array
            (n, 2) in a list for each label. Blocks, which contain their labels, and sources that
            are read in blocks (see :meth:`Calibrator.fit`) must not be multi-label.
        y : array-like of shape (n,) or (n, labels)
            Labels of any kind; or zeros and ones of any type, with a column for each label of a
            multi-label problem.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        self

        Warns
        -----
        UserWarning
            If every row of a multi-label ``y`` has exactly one 1, like one-hot classes.
        """
        check_inputs(self.inputs)
        check_choice(self.mode, "mode", ("stack", "single"))
        check_choice(self.inference, "inference", ("map", "laplace"))
        check_seed(self.random_state)
        if self.folds is not None:
            check_count(self.folds, "folds", 2)
        if np.ndim(y) < 2 and (blocks := as_blocks(scores, y, sample_weight)) is not None:
            columns = next(iter(blocks.each(_count_columns)))
            return self._hold(self._choose(columns, False), blocks, None, None)
        device_scores = accelerated(scores)
        if np.ndim(y) < 2:
            scores = widen(scores, self.inputs) if device_scores is None else device_scores
        check_unmasked(y, "y")
        labels = y if not hasattr(y, "detach") else as_numpy(y, "y")
        several = np.ndim(labels) == 2 and np.shape(labels)[1] > 1
        scores = of_pairs(scores, "scores") if several else scores
        chosen = self._choose(np.shape(scores)[1] if np.ndim(scores) == 2 else 1, several)
        self._hold(chosen, scores, y, sample_weight)
        if not isinstance(chosen, AveragedBeta):
            on_device = device_scores is not None and isinstance(chosen, StackedScaling)
            if several:
                rows, labels, _ = read_many(scores, labels, sample_weight)
                _warn_if_exclusive(rows, labels, self.inputs)
            else:
                rows = scores if on_device else self._in_order(scores)
            with float64() if on_device else nullcontext():
                self.report_ = self._make_held_out_report(
                    chosen, rows, labels, sample_weight, several
                )
        return self

    def _in_order(self, scores: Array) -> np.ndarray:
        names, rows = column_names(scores), as_numpy(scores, "scores")
        return in_order(rows.reshape(len(rows), -1), names, self.classes_, "scores")

    def _hold(
        self, chosen: AnyModel, scores: UserData, y: UserData, sample_weight: UserData
    ) -> Self:
        fitted = chosen.fit(scores, y, sample_weight)
        self._keep([fitted])
        keep_features(self, fitted)
        vars(self).pop("classes_", None)  # from an earlier fit
        if not isinstance(chosen, MultiLabel):
            self.classes_ = fitted.classes_
        return self

    @cached_property
    @ignoring_underflow
    def report_(self) -> Report:
        """Report of the choice and the expected log loss; ``print`` it."""
        check_is_fitted(self)
        fitted = self.calibrators_[0]
        if isinstance(fitted, StackedScaling):
            state, k = fitted.state_, len(self.classes_)
            names, sizes = (fitted._title(), f"{k} classes"), (int(state["rows"]), k)
            members, moments = fitted._member_weights(), state.get("held_out_moments")
            return report_of_moments(names, sizes, members, moments)
        if isinstance(fitted, AveragedBeta):
            return fitted.report_
        # The last calibrator never sees the raw scores, so the uncalibrated loss is unknown.
        unknown = dict.fromkeys(("uncalibrated", "gain", "gain_error", "helps", "hurts"))
        return replace(fitted.calibrators_[-1].report_, calibrator=fitted._title(), **unknown)

    def predict_proba(self, scores: UserData) -> AnyArray:
        """Compute calibrated probabilities (m, k), or (m, labels) for multi-label problems."""
        check_fitted(self)
        return self.calibrators_[0].predict_proba(scores)

    def predict(self, scores: XArray) -> np.ndarray:
        """Return the most probable class (m,), or for several labels zeros and ones (m, labels)."""
        check_fitted(self)
        return self.calibrators_[0].predict(scores)

    def _advice(self, name: str) -> str | None:
        if name == "predict_interval":
            return "with 30 and more classes it has a posterior only if inference='laplace'"
        return super()._advice(name)

    @available_if(_has_interval)
    @dispatched
    def predict_interval(self, scores: XArray, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Compute credible intervals of the probabilities; for two classes, of the second.

        For 30 and more classes only with ``inference="laplace"``.

        Parameters
        ----------
        scores : array-like
            Scores as in ``fit``.
        level : float

        Returns
        -------
        lower, upper : arrays of shape (m,), (m, k) or (m, labels)
        """
        check_is_fitted(self)
        return self.calibrators_[0].predict_interval(scores, level)

    def _map(self, state: State, scores: XArray) -> AnyArray:
        ((part, part_state),) = self._with_states(state)
        return part._map(part_state, scores)

    def _has_ends(self, state: State) -> bool:
        ((part, part_state),) = self._with_states(state)
        return part._has_ends(part_state)

    def _map_ends(self, state: State, scores: XArray, level: float) -> XArray:
        ((part, part_state),) = self._with_states(state)
        return part._map_ends(part_state, scores, level)

    def _choose(self, columns: int, several: bool) -> AnyModel:
        binary: AnyModel = AveragedBeta(inputs=self.inputs, classes=self.classes)
        if self.inputs == "scores":
            parts = [Logistic(inputs="scores", smoothing="platt"), AveragedBeta()]
            binary = Composition(parts, classes=self.classes)
        if several:
            return MultiLabel(binary)
        if columns <= 2:
            return binary
        return StackedScaling(
            mode=self.mode,
            folds=self.folds,
            inference=self.inference,
            inputs=self.inputs,  # type: ignore[arg-type]
            classes=self.classes,
            random_state=self.random_state,
        )

    def _make_held_out_report(
        self,
        chosen: AnyModel,
        rows: np.ndarray,
        y: UserData,
        sample_weight: UserData,
        several: bool,
    ) -> Report:
        fitted = self.calibrators_[0]
        rows = rows.reshape(len(rows), -1)
        weights = check_weights(sample_weight, len(rows))
        used = weights > 0
        if not used.all():
            rows = rows[used]
        weights, y = weights[used], np.asarray(y)[used]
        codes = y if several else read_labels(y, len(y), self.classes_, len(self.classes_))[1]

        def function_of(part: AnyModel) -> Callable[[AnyArray], AnyArray]:
            # Column names are not checked: the rows are in the order of the fit.
            if not on_host(rows):
                return part.as_function()
            calibrator, state = part._as_parts()
            return np.errstate(over="ignore", under="ignore")(partial(calibrator._map, state))

        def fit(training: np.ndarray, mass: np.ndarray) -> Callable[[AnyArray], AnyArray]:
            part: AnyModel = clone(chosen)
            if not several:
                part.set_params(classes=tuple(label_list(self.classes_)))
            part.fit(rows[training], y[training], mass)
            return function_of(part)

        held_out = getattr(fitted, "held_out_losses_", None)
        if held_out is None:
            folds = self._folds(rows, codes, weights)
            held_out = losses_left_out(folds, rows, codes, fit)
        n, whole = len(rows), bool((weights == np.floor(weights)).all())
        size = n, float(weights.sum()), float(weights @ weights), whole
        kept = KeptRows(rows, codes, weights, np.arange(n), *size)
        return report_of_rows(kept, fitted, held_out, function_of(fitted))

    def _folds(self, rows: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> FoldedRows:
        """Deal the rows to folds by their content, independently of their order."""
        count = self.folds or 5
        if codes.ndim == 2:
            strata = np.unique(codes, axis=0, return_inverse=True)[1].ravel()
            return fold_features(rows, strata, weights, count)
        if len(self.classes_) == 2:
            rows = convert(rows, self.inputs, "order" if self.inputs == "scores" else "log_odds")[0]
        return fold_scores(rows, codes, weights, count)


def _warn_if_exclusive(rows: np.ndarray, labels: np.ndarray, inputs: str) -> None:
    """Warn if labels and probabilities in columns look like one-hot classes."""
    exclusive = bool((labels.sum(axis=1) == 1).all())
    if exclusive and (inputs != "probs" or np.abs(rows.sum(axis=1) - 1).max() < SUM_TOLERANCE):
        warn(
            "each row of y has exactly one 1, like one-hot classes, but y is read as multi-label: "
            "labels are calibrated separately; for multi-class problems pass y.argmax(axis=1)"
        )


def _count_columns(block: Block) -> int:
    """Return the number of columns of scores; raise if labels are in columns."""
    if np.ndim(block.y) == 2 and np.shape(block.y)[1] > 1:
        raise ValueError(
            "y must be one column in blocks, got several labels; fit one calibrator per label"
        )
    return np.shape(block.scores)[1] if np.ndim(block.scores) == 2 else 1
