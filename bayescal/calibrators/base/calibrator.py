"""Base class of calibrators: scikit-learn's contract over a fit and a pure function."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, AnyModel, ArrayLike, UserData, XArray
from bayescal._core.execution.blas import threads_of_blas
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax
from bayescal._core.minimization.optimize import Status
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.random.keys import seed_of
from bayescal.calibrators.base.dispatch import as_fitted
from bayescal.calibrators.base.draws import map_rows
from bayescal.calibrators.base.estimator import Estimator, check_fitted, keep_status, remedies
from bayescal.calibrators.base.function import PredictFunction, Tree, needed
from bayescal.data.blocks.reader import block_rows
from bayescal.data.blocks.stream import Block, Blocks, as_blocks, map_blocks
from bayescal.data.given import MEMORY, Given, as_source
from bayescal.data.kept_rows import KeptRows
from bayescal.data.label_names import Classes, column_names, in_order, match_columns
from bayescal.data.rows import Source
from bayescal.data.scores import (
    INPUTS,
    Domain,
    Inputs,
    check_inputs,
    check_rows,
    convert,
    transform,
    without_absent,
)

#: The fitted state of a calibrator: arrays by name.
State: TypeAlias = dict[str, np.ndarray]
#: The property of a row that calibration never changes: the ranking of its classes, the most
#: probable class, or nothing.
Keeps = Literal["order", "argmax", "nothing"]


Computed = TypeVar("Computed")


def _precision(given: Given) -> ExitStack:
    """Return the context of a fit, in which accelerators compute in double precision."""
    stack = ExitStack()
    if given.on_device:
        stack.enter_context(float64())
        stack.enter_context(jax.numpy_dtype_promotion("standard"))
    return stack


@dataclass(kw_only=True, eq=False, repr=False)
class Calibrator(Estimator, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """Base class of calibrators, of the scores of classifiers of two or more classes.

    A subclass defines ``_domain``, ``_fit`` and ``_apply``. A fit must produce probabilities for
    one row, constant scores, ties, labels that lack classes, and scores of any size. The order of
    rows does not matter, nor does the order of classes.

    Parameters
    ----------
    inputs : {"probs", "logits", "scores", "top_logits"}
        Kind of scores, which is never guessed: probabilities; logits, which are log odds for two
        classes; arbitrary numbers, for binary calibrators such as ``Logistic`` and ``Isotonic``; or
        the largest logits of each row, for ``Temperature`` and ``Vector``.
    classes : sequence of k labels or int, optional
        Labels of the columns, in their order; an integer k stands for 0, ..., k - 1. By default the
        sorted labels of the data; multi-class integers in 0, ..., k - 1 may lack some classes.

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        How the fit ended: "converged", "limit" or "unbounded".
    objective_ : float
        Weighted mean of the minimized objective per row, if the method minimizes one.
    n_iter_ : int
        Number of iterations of iterative fits.
    least_probabilities_ : array of shape (k,)
        Probabilities that replace zeros before logarithms are taken, if the method takes any.
    state_ : dict of arrays
        The fitted state.
    """

    inputs: Inputs = "probs"
    classes: Classes = None

    classes_: np.ndarray = field(init=False)
    status_: str = field(init=False)
    objective_: float = field(init=False)
    n_iter_: int = field(init=False)
    least_probabilities_: np.ndarray = field(init=False)
    state_: State = field(init=False)

    #: Whether the calibrator is restricted to binary problems.
    binary: ClassVar[bool] = False
    #: Whether a binary map is monotone for all data.
    monotone: ClassVar[bool] = False
    keeps: ClassVar[Keeps] = "nothing"
    _domain: ClassVar[Domain]
    _sources: ClassVar[frozenset[str]] = MEMORY
    _symmetric: ClassVar[bool] = True
    #: Classes that implement this calibrator for some ``inputs``.
    _by_inputs: ClassVar[Mapping[str, type[Calibrator]]] = {}

    @property
    def domain(self) -> Domain:
        """Domain of the scores that ``_fit`` and ``_apply`` receive; may depend on options."""
        return self._domain

    @property
    def symmetric(self) -> bool:
        """Whether permuting columns and labels together permutes the probabilities."""
        return self._symmetric

    @property
    def sources(self) -> frozenset[str]:
        """Kinds of sources that ``fit`` accepts; may depend on options."""
        return self._sources

    @abstractmethod
    def _fit(self, rows: Source, seed: int) -> State:
        """Fit the state to rows: scores in the domain, labels as positions, positive weights.

        Rows in memory have the arrays ``rows.scores``, ``rows.y`` and ``rows.weights``. Rows of any
        source have sums of functions: ``rows.total(function)``.
        """

    @abstractmethod
    def _apply(self, state: State, scores: XArray) -> XArray:
        """Compute probabilities (m, k) at scores (m,) or (m, k) in the domain; rows sum to one.

        Arrays may be of any library that follows the array API standard; ``namespace(scores)``
        returns its functions. The state is ``state_`` in the library and the floating type of the
        scores; its booleans and integer scalars are NumPy arrays. NumPy's scores are float64.
        """

    def _check_inputs(self) -> None:
        """Raise if the calibrator does not support its ``inputs``."""
        check_inputs(self.inputs, (*INPUTS, *self._by_inputs))

    def _check_options(self) -> None:
        """Raise if an option is invalid."""

    def fit(
        self,
        scores: ArrayLike | Blocks,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the calibrator.

        Parameters
        ----------
        scores : array-like of shape (n,), (n, 1) or (n, k), or Blocks
            Scores of the kind that ``inputs`` names: probabilities or logits, with a column for
            each class in sorted order, or in the order of ``classes``; or raw scores. For two
            classes, the probability or log odds of the second class suffice. A logit of minus
            infinity marks an unavailable class, whose probability is zero. Columns of a data frame
            that are named like the classes, such as "yes" or "p_yes", may be in any order.
            :class:`Blocks`, which also contain labels and weights, and sources that are read in
            blocks (Dask arrays and data frames, Arrow data sets, arrays in files) are read block by
            block, as often as needed.
        y : array-like of shape (n,) or (n, k)
            Labels of any k values; the name of a column for data sets and Dask data frames. Or
            proportions of outcomes, in rows that sum to one: a row counts once for each outcome,
            with the proportion as its weight; (0.5, 0.5) is a tied game.
        sample_weight : array-like of shape (n,), optional
            Non-negative; an integer weight equals repeated rows. Priors and posteriors therefore
            count the sum of the weights as a number of rows, also if weights are not integers:
            scale such weights to the number of rows that they are worth.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a probability is outside [0, 1] by more than 1e-6, or the sum of a row differs from
            one by more than 1e-3 (or by k times the precision of its type, if that is more); if
            scores are not finite, or have columns named like only some of the classes; or if the
            number of distinct labels differs from the number of columns and ``classes`` is not set.
        TypeError
            If data come in blocks, but the calibrator or one of its options needs all rows at once.

        Warns
        -----
        ConvergenceWarning
            If the fit has no finite optimum or did not reach it; see ``status_``.
        """
        self._check_inputs()
        self._check_options()
        data = as_source(self, scores, y, sample_weight, self.sources)
        self.classes_ = data.classes
        # Dask workers get copies of the estimator, which must not contain rows.
        vars(self).pop("_kept_rows", None)
        with _precision(data), threads_of_blas(data.rows.n, data.rows.k):
            state = self._fit_state(data.rows, data.least, self._seed())
        self._conclude(state, data, data.kept)
        return self

    def _fit_state(self, rows: Source, least: np.ndarray | None, seed: int) -> State:
        """Fit the state that is published, with posterior draws if there is a posterior."""
        fitted = self._add_posterior(self._fit(rows, seed), rows, seed)
        state = {name: np.asarray(value) for name, value in fitted.items()}
        return state if least is None else state | {"least_probabilities": least}

    def _conclude(self, state: State, data: Given, kept: KeptRows) -> None:
        """Publish the result of a fit, and warn if it did not converge."""
        if data.blocks is not None:
            data.blocks.finish()
        self._kept_rows = kept
        status = Status(int(state.get("status", Status.CONVERGED)))
        self._publish(state)
        keep_status(self, status, remedies(self))

    def _add_posterior(self, state: State, rows: Source, seed: int) -> State:
        """Add posterior draws of the parameters to a fitted state, if there is a posterior."""
        return state

    def _class_count(self, rows: XArray) -> int:
        """Return the number of classes of rows of scores (n, 1) or (n, k)."""
        return 2 if self.binary else max(2, rows.shape[1])

    def _publish(self, state: State) -> None:
        """Set ``state_`` and the attributes that are declared with ``field(init=False)``."""
        self._forget_report()
        for attribute in fields(self):
            entry = attribute.name.removesuffix("_")
            if attribute.init or attribute.name in ("classes_", "status_"):
                continue
            vars(self).pop(attribute.name, None)  # from an earlier fit
            if entry in state:
                value = state[entry]
                setattr(self, attribute.name, value.item() if value.ndim == 0 else value)
        self.state_ = state

    def _seed(self) -> int:
        return seed_of(getattr(self, "random_state", 0))

    def _probabilities_of(self, kept: KeptRows) -> np.ndarray | None:
        return self._probabilities_at(kept.rows)

    def _probabilities_at(self, rows: np.ndarray) -> np.ndarray:
        """Compute probabilities at checked rows in the user's units."""
        with np.errstate(over="ignore", under="ignore"):
            probs = self.apply(self.state_, self._converted(rows))
        return without_absent(probs, rows, self.inputs)

    def predict_proba(self, scores: ArrayLike | Blocks) -> Any:
        """Compute the calibrated probabilities of all classes.

        Parameters
        ----------
        scores : array-like of shape (m, k), or (m,) or (m, 1) for two classes, or Blocks
            With ``inputs="top_logits"``, a tuple (indices (n, m), logits (n, m), rest (n,)).

        Returns
        -------
        array of shape (m, k), float64, or TopProbs
            Columns in the order of ``classes_``. Truncated logits give the probabilities of the
            top classes in the order of their indices, and of all other classes together. Blocks
            and sources that are read in blocks give :class:`Blocks` with the labels and weights of
            the input, computed when they are read; Dask arrays give Dask arrays.
        """
        check_fitted(self)
        if (blocks := as_blocks(scores)) is not None:
            predict = partial(self._predict_block, blocks.names)
            return map_blocks(predict, blocks, scores, len(self.classes_))
        return self._answer(self._probabilities_at(self._new_rows(scores)), scores)

    def _predict_block(self, names: list[object] | None, block: Block) -> np.ndarray:
        columns = vars(self)["n_features_in_"]
        return self._probabilities_at(block_rows(block, names, self.inputs, columns, self.classes_))

    def _answer(self, probs: np.ndarray, scores: object) -> np.ndarray:
        """Convert probabilities to the return value of ``predict_proba``."""
        return probs

    @ignoring_underflow
    def as_function(self) -> PredictFunction:
        """Return the fitted map as a pure function of arrays of JAX, PyTorch, NumPy and others.

        Returns
        -------
        PredictFunction
            ``f(scores)`` equals ``predict_proba(scores)``, on the device of the scores.
        """
        check_is_fitted(self)
        fitted = as_fitted(self)
        return fitted._function_kind(*fitted._as_parts(), vars(self)["n_features_in_"])

    @property
    def _function_kind(self) -> type[PredictFunction]:
        return PredictFunction

    def _as_parts(self) -> tuple[AnyModel, Tree]:
        """Return the unfitted calibrator and the part of its state that predictions need."""
        fitted = as_fitted(self)
        unfitted: AnyModel = clone(fitted)
        return unfitted.set_params(classes=None), needed(fitted._precomputed(self.state_))

    def _map(self, state: State, scores: XArray) -> AnyArray:
        """Compute probabilities at scores of any library in the user's units."""
        least = state.get("least_probabilities")
        values = transform(scores, self.inputs, self.domain, least)
        return without_absent(self._apply_in_blocks(state, values), scores, self.inputs)

    def _has_ends(self, state: State) -> bool:
        """Return whether the calibrator has credible intervals."""
        return False

    def _precompute(self, state: State) -> State:
        """Return the state that ``_apply`` takes, with values computed once for all predictions."""
        return state

    def _precomputed(self, state: State) -> State:
        """Return the state with its precomputed values, which are kept for the next prediction."""
        return self._computed_once("predictions", state, self._precompute)

    def _computed_once(
        self, purpose: str, state: State, compute: Callable[[State], Computed]
    ) -> Computed:
        """Compute a value from a state, and cache it until the state changes."""
        kept = vars(self).get("_kept_states", {})
        if purpose not in kept or kept[purpose][0] is not state:
            kept[purpose] = state, compute(state)
        return kept[purpose][1]

    def apply(self, state: State, scores: XArray) -> AnyArray:
        """Compute probabilities (m, k) at scores in the domain, given a fitted state."""
        return self._apply_in_blocks(self._precomputed(state), scores)

    def _apply_in_blocks(self, state: State, scores: XArray) -> XArray:
        return map_rows(lambda rows: self._apply(state, rows), scores, self._width(state, scores))

    def _width(self, state: State, scores: XArray) -> int:
        """Return how many numbers ``_apply`` holds per row."""
        return scores.shape[1] if scores.ndim == 2 else 2

    def predict(self, scores: ArrayLike) -> np.ndarray:
        """Return the most probable class (m,) for each row of scores."""
        return self._most_probable(self.predict_proba(scores))

    def _most_probable(self, probs: np.ndarray) -> np.ndarray:
        return self.classes_[np.argmax(probs, axis=1)]

    @staticmethod
    def combine(calibrators: list[AnyModel], scores: list[np.ndarray]) -> np.ndarray:
        """Average the probabilities (m, k) of an ensemble of calibrators.

        Parameters
        ----------
        calibrators : list of fitted calibrators
        scores : list of arrays of shape (m,), (m, 1) or (m, k)
            Scores for each of the calibrators.
        """
        parts = [c.predict_proba(s) for c, s in zip(calibrators, scores, strict=True)]
        return np.mean(parts, axis=0)

    def _new_rows(self, scores: UserData) -> np.ndarray:
        """Check new scores (n, 1) or (n, k) and bring columns into the order of the classes."""
        check_fitted(self)
        names = column_names(scores)
        fitted = vars(self).get("feature_names_in_")
        if names is not None and fitted is not None and len(scores.shape) == 2:
            alike = set(fitted) == set(names) and len(names) > 1
            if alike and match_columns(names, self.classes_, "scores") is not None:
                # scikit-learn requires the column order of the fit.
                names = list(fitted)
                scores = scores[names]
        return in_order(self._check_rows(scores, reset=False), names, self.classes_, "scores")

    def _values(self, scores: object) -> np.ndarray:
        """Check new scores and convert them to the domain of the fitted calibrator."""
        return self._converted(self._new_rows(scores))

    def _converted(self, rows: np.ndarray) -> np.ndarray:
        return convert(rows, self.inputs, self.domain, self.state_.get("least_probabilities"))[0]

    def _check_rows(self, scores: UserData, reset: bool) -> np.ndarray:
        """Check scores (n, 1) or (n, k); set or compare number and names of features."""
        return check_rows(self, scores, self.inputs, reset)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.classifier_tags is not None
        tags.classifier_tags.multi_class = not self.binary
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "state_")
