"""What all calibrators share: scikit-learn's contract over a fit and a pure application."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import ArrayLike, on_host
from bayescal._core.keys import seed_of
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.optimise import Status
from bayescal._core.precision import float64
from bayescal.calibrators.base.dispatch import as_fitted
from bayescal.calibrators.base.draws import map_rows
from bayescal.calibrators.base.estimator import Estimator
from bayescal.calibrators.base.function import PredictFunction, Tree, needed
from bayescal.calibrators.base.status import keep_status, remedies
from bayescal.data.blocks.reader import block_rows
from bayescal.data.blocks.stream import Block, Blocks, as_blocks, map_chunks
from bayescal.data.given import MEMORY, Given, as_source
from bayescal.data.kept_rows import KeptRows
from bayescal.data.label_names import Classes, class_places, column_names, in_order
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

#: What a calibrator has learned: arrays by name.
State: TypeAlias = dict[str, np.ndarray]
#: What a calibrator never changes in a row: the order of its classes, the most probable one, or
#: nothing.
Keeps = Literal["order", "argmax", "nothing"]


def _precision(given: Given) -> AbstractContextManager[Any]:
    """Return the context of a fit: accelerators calculate in double precision, as the host."""
    if not given.on_device:
        return nullcontext()
    stack = ExitStack()
    stack.enter_context(float64())
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    return stack


@dataclass(kw_only=True, eq=False, repr=False)
class Calibrator(Estimator, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """A calibrator of the scores of a classifier of two or more classes.

    A method writes ``domain``, ``_fit`` and ``_apply``, and what of the rest is not as here.
    ``_fit`` is NumPy on the host. It sees checked and converted scores, labels as positions among
    the classes, and positive weights; it must give probabilities for one row, constant
    scores, ties, labels that lack classes, and scores of any size. A whole weight is the same as
    repeating the row; neither the order of rows matters nor, but for names, that of classes.

    Parameters
    ----------
    inputs : {"probs", "logits", "scores", "top_logits"}
        What the scores are; it is never guessed from them. Scores are any numbers, of two classes;
        top logits, for ``Temperature`` and ``Vector``, those of each row's greatest.
    classes : sequence of k labels or int, optional
        Of the columns, in their order; k stands for 0, ..., k - 1. Needed where the data may lack
        one.

    Attributes
    ----------
    classes_ : array of shape (k,)
    status_ : str
        How the fit ended: "converged", "limit" or "unbounded".
    objective_ : float
        The weighted mean of what was minimized, per row; not of methods that minimize nothing.
    n_iter_ : int
        Of iterative fits.
    least_probabilities_ : array of shape (k,)
        What probabilities of zero, and less, stand for; only where logarithms are taken of them.
    state_ : dict of arrays
        All that was learned.
    report_ : Report
        What was fitted, to how many rows, and their log loss before and after: in sample.
    """

    inputs: Inputs = "probs"
    classes: Classes = None

    classes_: np.ndarray = field(init=False)
    status_: str = field(init=False)
    objective_: float = field(init=False)
    n_iter_: int = field(init=False)
    least_probabilities_: np.ndarray = field(init=False)
    state_: State = field(init=False)

    #: Whether it calibrates two classes only.
    binary: ClassVar[bool] = False
    #: Whether, of two classes, a greater score never gets a lower probability, whatever the data.
    monotone: ClassVar[bool] = False
    keeps: ClassVar[Keeps] = "nothing"
    _domain: ClassVar[Domain]
    _sources: ClassVar[frozenset[str]] = MEMORY
    #: Classes that do the work for some ``inputs``, in the place of this one.
    _by_inputs: ClassVar[Mapping[str, type[Calibrator]]] = {}

    @property
    def domain(self) -> Domain:
        """What the calibrator works on; may depend on the options."""
        return self._domain

    @property
    def symmetric(self) -> bool:
        """Whether exchanging classes, columns and labels together, exchanges probabilities."""
        return True

    @property
    def sources(self) -> frozenset[str]:
        """Where the rows of a fit may be; may depend on the options."""
        return self._sources

    @abstractmethod
    def _fit(self, rows: Source, seed: int) -> State:
        """Learn from rows: scores in the domain, labels as positions, positive weights.

        Rows in memory have them as ``rows.scores``, ``rows.y`` and ``rows.weights``. Rows of any
        source have sums: ``rows.total(function)``.
        """

    @abstractmethod
    def _apply(self, state: State, scores: Any) -> Any:
        """Return probabilities (m, k) at scores in the domain; rows sum to one.

        For arrays of any library that follows the array API standard: ``namespace(scores)`` has
        its functions.

        Parameters
        ----------
        state : dict of arrays
            As ``state_`` of a fitted calibrator with the same options, in the library and of the
            floating type of the scores; but booleans, and single integers, are NumPy's.
        scores : array of shape (m,) or (m, k)
            NumPy's in float64.
        """

    def _check_inputs(self) -> None:
        """Raise where scores cannot be what they are said to be."""
        check_inputs(self.inputs, (*INPUTS, *self._by_inputs))

    def _check_options(self) -> None:
        """Raise where an option is not allowed."""

    @ignoring_underflow
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
            As ``inputs`` says: probabilities or logits, a column for each class in sorted order, or
            in that of ``classes``; of two classes also the probability or log odds of the second
            alone; or raw scores. A logit of minus infinity is that of an option which is not there:
            its probability is zero. Columns of a data frame that are named like the classes, as
            "yes" or "p_yes", may stand in any order. :class:`Blocks`, which hold labels and
            weights, too, and whatever they read of themselves (arrays and data frames of Dask, data
            sets of Arrow, arrays in files), are read block by block, as often as needed.
        y : array-like of shape (n,) or (n, k)
            Labels, of any k values; of data sets and Dask's data frames also the name of a column.
            Or shares of outcomes, rows that sum to one: a row counts as one of each outcome with
            that share as weight, so that (0.5, 0.5) is a tie of a game.
        sample_weight : array-like of shape (n,), optional
            Non-negative; a whole weight is the same as repeating the row.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If scores contradict ``inputs`` by more than 1e-6, are not finite, or have columns named
            like some of the classes only; or if labels hold another number of classes than the
            scores, without ``classes``.
        TypeError
            If data come in blocks, and the calibrator, or one of its options, needs them at once.

        Warns
        -----
        ConvergenceWarning
            If the fit has no finite optimum or did not reach it; ``status_`` says which.
        """
        self._check_inputs()
        self._check_options()
        given = as_source(self, scores, y, sample_weight, self.sources)
        self.classes_ = given.classes
        # Workers of Dask get copies of what is fitted: these have nothing to report.
        vars(self).pop("_kept_rows", None)
        with _precision(given):
            rows, seed = given.rows, self._seed()
            learned = self._add_posterior(self._fit(rows, seed), rows, seed)
        if given.blocks is not None:
            given.blocks.finish()
        self._kept_rows, least = given.kept, given.least
        state = {name: np.asarray(value) for name, value in learned.items()}
        if least is not None:
            state["least_probabilities"] = least
        status = Status(int(state.get("status", Status.CONVERGED)))
        self._publish(state)
        keep_status(self, status, remedies(self))
        return self

    def _add_posterior(self, state: State, rows: Source, seed: int) -> State:
        """Add draws of the parameters to what a fit has learned, where there is a posterior."""
        return state

    def _class_count(self, rows: Any) -> int:
        """Return how many classes rows (n, 1) or (n, k) are scores of."""
        return 2 if self.binary else max(2, rows.shape[1])

    def _publish(self, state: State) -> None:
        """Keep what was learned, and as attributes what is declared with ``field(init=False)``."""
        self._forget_report()
        for own in fields(self):
            entry = own.name.removesuffix("_")
            if own.init or own.name in ("classes_", "status_"):
                continue
            vars(self).pop(own.name, None)  # of an earlier fit
            if entry in state:
                value = state[entry]
                setattr(self, own.name, value.item() if value.ndim == 0 else value)
        self.state_ = state

    def _seed(self) -> int:
        return seed_of(getattr(self, "random_state", 0))

    def _probabilities_of(self, kept: KeptRows) -> np.ndarray | None:
        least = self.state_.get("least_probabilities")
        with np.errstate(over="ignore"):
            found = self.apply(self.state_, convert(kept.rows, self.inputs, self.domain, least)[0])
        return without_absent(found, kept.rows, self.inputs)

    @ignoring_underflow
    def predict_proba(self, scores: ArrayLike | Blocks) -> Any:
        """Return the calibrated probabilities of all classes.

        Parameters
        ----------
        scores : array-like of shape (m, k), or (m,) or (m, 1) for two classes, or Blocks
            With ``inputs="top_logits"`` a tuple (indices (n, m), logits (n, m), rest (n,)).

        Returns
        -------
        array of shape (m, k), float64, or TopProbs
            Columns in the order of ``classes_``. Of truncated logits the probabilities of the top
            classes in the order of their indices, and of all others together. Of blocks, and what
            is read in blocks, it is :class:`Blocks` with the same labels and weights, computed when
            they are read; of an array of Dask one of Dask.
        """
        check_is_fitted(self)
        if (blocks := as_blocks(scores)) is not None:
            return self._predict_in_blocks(blocks, scores)
        rows = self._new_rows(scores)
        values = self._converted(rows)
        with np.errstate(over="ignore"):
            return self._answer(self.apply(self.state_, values), rows, scores)

    def _predict_in_blocks(self, blocks: Blocks, scores: Any) -> Any:
        """Return probabilities in the form that the scores have."""
        predict = partial(self._predict_block, blocks.names)
        if on_host(scores):
            return np.concatenate([*blocks.each(predict)])
        if hasattr(scores, "map_blocks") and hasattr(scores, "chunks"):
            return map_chunks(predict, scores, len(self.classes_))
        return blocks.mapped(predict)

    def _predict_block(self, names: list[object] | None, block: Block) -> np.ndarray:
        columns = vars(self)["n_features_in_"]
        rows = block_rows(block, names, self.inputs, columns, self.classes_)
        values = convert(rows, self.inputs, self.domain, self.state_.get("least_probabilities"))[0]
        with np.errstate(over="ignore", under="ignore"):
            return without_absent(self.apply(self.state_, values), rows, self.inputs)

    def _answer(self, probs: np.ndarray, rows: np.ndarray, scores: Any) -> Any:
        """Return probabilities at checked rows in the form that users get."""
        return without_absent(probs, rows, self.inputs)

    @ignoring_underflow
    def as_function(self) -> PredictFunction:
        """Return the fitted map as a pure function of arrays of JAX, PyTorch, NumPy and others.

        Returns
        -------
        PredictFunction
            ``f(scores)`` gives what ``predict_proba`` does, where the scores are.
        """
        check_is_fitted(self)
        fitted = as_fitted(self)
        return fitted._function_kind(*fitted._as_parts(), vars(self)["n_features_in_"])

    @property
    def _function_kind(self) -> type[PredictFunction]:
        return PredictFunction

    def _as_parts(self) -> tuple[Any, Tree]:
        """Return the calibrator without what it learned, and what it learned."""
        bare: Any = clone(own := as_fitted(self))
        return bare.set_params(classes=None), needed(own._precompute(self.state_))

    def _map(self, state: State, scores: Any) -> Any:
        """Return probabilities at scores of any library, as users give them."""
        least = state.get("least_probabilities")
        values = transform(scores, self.inputs, self.domain, least)
        return without_absent(self._apply_in_blocks(state, values), scores, self.inputs)

    def _has_ends(self, state: State) -> bool:
        """Return whether there are credible intervals."""
        return False

    def _precompute(self, state: State) -> State:
        """Return what ``_apply`` takes: what was learned, and what need not be computed anew."""
        return state

    def apply(self, state: State, scores: Any) -> Any:
        """Return probabilities (m, k) at scores in the domain, as of a state that was learned."""
        return self._apply_in_blocks(self._precompute(state), scores)

    def _apply_in_blocks(self, state: State, scores: Any) -> Any:
        return map_rows(lambda rows: self._apply(state, rows), scores, self._width(state, scores))

    def _width(self, state: State, scores: Any) -> int:
        """Return how many numbers ``_apply`` holds for each row."""
        return scores.shape[1] if scores.ndim == 2 else 2

    def predict(self, scores: ArrayLike) -> np.ndarray:
        """Return the most probable class (m,) for each row of scores."""
        return self._most_probable(self.predict_proba(scores))

    def _most_probable(self, probs: Any) -> np.ndarray:
        return self.classes_[np.argmax(probs, axis=1)]

    @staticmethod
    def combine(calibrators: list[Any], scores: list[np.ndarray]) -> np.ndarray:
        """Return the probabilities (m, k) of an ensemble, each with scores of its own: the mean.

        Parameters
        ----------
        calibrators : list of fitted calibrators
        scores : list of arrays of shape (m,), (m, 1) or (m, k)
        """
        parts = [c.predict_proba(s) for c, s in zip(calibrators, scores, strict=True)]
        return np.mean(parts, axis=0)

    def _new_rows(self, scores: Any) -> np.ndarray:
        """Return new scores (n, 1) or (n, k), checked, in the order of the classes."""
        check_is_fitted(self)
        names = column_names(scores)
        fitted = getattr(self, "feature_names_in_", None)
        if names is not None and fitted is not None and len(scores.shape) == 2:
            alike = set(fitted) == set(names) and len(names) > 1
            if alike and class_places(names, self.classes_, "scores") is not None:
                # scikit-learn wants the order of the fit.
                names = list(fitted)
                scores = scores[names]
        return in_order(self._check_rows(scores, reset=False), names, self.classes_, "scores")

    def _values(self, scores: Any) -> np.ndarray:
        """Return new scores in the domain of the fitted calibrator."""
        return self._converted(self._new_rows(scores))

    def _converted(self, rows: np.ndarray) -> np.ndarray:
        return convert(rows, self.inputs, self.domain, self.state_.get("least_probabilities"))[0]

    def _check_rows(self, scores: Any, reset: bool) -> np.ndarray:
        """Return (n, 1) or (n, k) numbers, and keep or compare number and names of features."""
        return check_rows(self, scores, self.inputs, reset)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.classifier_tags is not None
        tags.classifier_tags.multi_class = not self.binary
        tags.array_api_support = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "state_")
