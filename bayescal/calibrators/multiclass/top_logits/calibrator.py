"""Calibrators that also take truncated logits, as language models give them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayescal._core.arrays import ArrayLike, namespace
from bayescal._core.numerics import ignoring_underflow
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.function import PredictFunction, at_least_single, register
from bayescal.calibrators.base.parametric import ParametricCalibrator
from bayescal.calibrators.multiclass.top_logits.probs import TopProbs
from bayescal.data.blocks.stream import Block, Blocks
from bayescal.data.checks import as_numpy, check_choice
from bayescal.data.label_names import class_array
from bayescal.data.rows import Rows, Source
from bayescal.data.scores import INPUTS, Domain
from bayescal.data.top_logits import PackedRows, check_distinct, pack, pack_anywhere, parts_of

__all__ = ["TopLogitsCalibrator"]


class TopPredictFunction(PredictFunction):
    """The same of truncated logits: ``f((indices, logits, rest))`` returns ``TopProbs``."""

    def __call__(self, scores: Any) -> Any:
        """Return calibrated probabilities.

        Parameters
        ----------
        scores : tuple (indices (n, m), logits (n, m), rest (n,)) of arrays of one library

        Returns
        -------
        TopProbs
        """
        indices, logits, rest = parts_of(scores)
        rows = pack_anywhere(indices, at_least_single(logits), rest, self.columns)
        found = self.with_state(self._owner._map, rows)
        found = namespace(logits).astype(found, logits.dtype, copy=False)
        return _apart(indices, found, self.columns)


register(TopPredictFunction)


@dataclass(kw_only=True, eq=False, repr=False)
class TopLogitsCalibrator(ParametricCalibrator):
    """A calibrator that says by ``_fit_top`` and ``_apply_top`` what it does with packed rows."""

    @abstractmethod
    def _fit_whole(self, rows: Source, seed: int) -> State:
        """Learn from rows of the logits of all classes."""

    @abstractmethod
    def _fit_top(self, rows: Source, k: int) -> State:
        """Return what is learned."""

    @abstractmethod
    def _apply_top(self, state: State, rows: Any, k: int) -> Any:
        """Return probabilities of the top classes and of all others (n, m + 1), or (n, k)."""

    @property
    def _truncated(self) -> bool:
        return self.inputs == "top_logits"

    @property
    def domain(self) -> Domain:
        """What the calibrator works on."""
        return "top_logits" if self._truncated else super().domain

    def _check_inputs(self) -> None:
        if not self._truncated:
            check_choice(self.inputs, "inputs", (*INPUTS, "top_logits"))
            return
        if self.inference != "map":
            raise ValueError(
                f"inference must be 'map' for inputs='top_logits', got {self.inference!r}"
            )
        if self.classes is None:
            raise ValueError(
                "classes must say how many there are for inputs='top_logits', as classes=50_257 "
                "for the indices 0, ..., 50,256, got None"
            )

    def _class_count(self, rows: Any) -> int:
        if not self._truncated:
            return super()._class_count(rows)
        assert self.classes is not None
        return len(class_array(self.classes))

    def _check_rows(self, scores: Any, reset: bool) -> np.ndarray:
        if not self._truncated:
            return super()._check_rows(scores, reset)
        k = self._class_count(scores)
        rows = pack(scores, k)
        check_distinct(rows, k)
        self.n_features_in_ = k
        return rows

    def _fit(self, rows: Source, seed: int) -> State:
        if not self._truncated:
            return self._fit_whole(rows, seed)
        self.n_features_in_ = k = len(self.classes_)
        if isinstance(rows, Rows):
            rows = PackedRows(*rows)
        return self._fit_top(rows, k)

    @ignoring_underflow
    def predict_proba(self, scores: Any) -> Any:
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
        found = super().predict_proba(scores)
        if not self._truncated or isinstance(found, Blocks):
            return found
        return _apart(as_numpy(scores[0], "indices"), found, len(self.classes_))

    def _predict_block(self, names: list[object] | None, block: Block) -> Any:
        if not self._truncated:
            return super()._predict_block(names, block)
        return self.predict_proba(block.scores)

    def predict(self, scores: ArrayLike) -> np.ndarray:
        """Return the most probable class (m,) for each row of scores: of the top ones, if so."""
        if not self._truncated:
            return super().predict(scores)
        found = self.predict_proba(scores)
        best = np.argmax(found.probs, axis=1)
        return self.classes_[found.indices[np.arange(len(best)), best]]

    @property
    def _function_kind(self) -> type[PredictFunction]:
        return TopPredictFunction if self._truncated else super()._function_kind

    def _apply(self, state: State, scores: Any) -> Any:
        if not self._truncated:
            return super()._apply(state, scores)
        return self._apply_top(state, scores, int(state["k"]))


def _apart(indices: Any, found: Any, k: int) -> TopProbs:
    """Return probabilities (n, m + 1) or (n, k) by their names."""
    xp, m = namespace(found), indices.shape[1]
    rest = found[:, m] if found.shape[1] > m else xp.zeros_like(found[:, 0])
    return TopProbs(indices, found[:, :m], rest, k - m)
