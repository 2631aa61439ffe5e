"""Base class of calibrators of truncated logits, and the probabilities that they return."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, ArrayLike, XArray, namespace
from bayescal.calibrators.base.calibrator import Calibrator, State
from bayescal.calibrators.base.function import PredictFunction, at_least_single
from bayescal.data.blocks.stream import Block
from bayescal.data.checks import as_numpy
from bayescal.data.given import BLOCKS
from bayescal.data.kept_rows import KeptRows
from bayescal.data.label_names import class_array
from bayescal.data.language_models.top_logits import (
    PackedRows,
    check_distinct,
    pack,
    pack_anywhere,
    parts_of,
)
from bayescal.data.rows import Rows, Source
from bayescal.metrics import log_loss


class TopProbs(NamedTuple):
    """Calibrated probabilities of the top classes of each row, and of all others together.

    Returned by ``predict_proba`` of calibrators with ``inputs="top_logits"``. Rows of ``probs`` and
    ``rest`` sum to one; a class outside the top has the probability ``rest / others``.

    Examples
    --------
    Two of 50,257 tokens in each row, and the log-sum-exp of the logits of all others:

    >>> import numpy as np
    >>> import bayescal as bc
    >>> indices = np.array([[11, 262], [13, 198], [262, 11], [198, 13]])
    >>> top = indices, np.array([[9.0, 6.0]] * 4), np.full(4, 5.0)
    >>> y = [11, 13, 11, 4000]
    >>> calibrator = bc.Temperature(inputs="top_logits", classes=50_257).fit(top, y)
    >>> round(calibrator.temperature_, 2)
    1.27
    >>> probs = calibrator.predict_proba(top)
    >>> probs.probs[0].round(2).tolist(), probs.rest.round(2)[:1].tolist()
    ([0.65, 0.06], [0.29])
    >>> probs.of([262, 262, 262, 262]).round(6).tolist()
    [0.061684, 6e-06, 0.650208, 6e-06]
    >>> round(probs.log_loss(y), 2)
    3.93
    """

    #: Indices of the top classes, in the order of the scores (n, m).
    indices: AnyArray
    #: Probabilities of the top classes, in the order of the indices (n, m).
    probs: AnyArray
    #: Probability of all other classes together (n,).
    rest: AnyArray
    #: Number of other classes, k - m.
    others: int

    def of(self, y: ArrayLike) -> np.ndarray:
        """Select the probabilities (n,) of labels (n,), which are indices of classes."""
        labels = as_numpy(y, "y")
        if labels.dtype.kind not in "iu" or labels.shape != np.shape(self.rest):
            raise ValueError(
                f"y must be {len(self.rest)} indices of classes, got {labels.dtype} of shape "
                f"{labels.shape}"
            )
        k = self.others + np.shape(self.indices)[1]
        outside = labels[(labels < 0) | (labels >= k)]
        if len(outside):
            raise ValueError(f"y must be in {{0, ..., {k - 1}}}, got {outside[0]}")
        probs, rest = as_numpy(self.probs, "probs"), as_numpy(self.rest, "rest")
        hit = as_numpy(self.indices, "indices") == labels[:, None]
        top = np.max(probs, axis=1, where=hit, initial=0.0)
        return np.where(hit.any(axis=1), top, rest / max(self.others, 1))

    def log_loss(self, y: ArrayLike, weights: ArrayLike | None = None) -> float:
        """Compute ``metrics.log_loss`` of labels (n,), which are indices of classes."""
        probs = self.of(y)
        return log_loss(probs, np.ones(len(probs), int), weights=weights)


class TopPredictFunction(PredictFunction):
    """A function of truncated logits: ``f((indices, logits, rest))`` returns ``TopProbs``."""

    def __call__(self, scores: object) -> TopProbs:
        """Compute calibrated probabilities.

        Parameters
        ----------
        scores : tuple (indices (n, m), logits (n, m), rest (n,)) of arrays of one library

        Returns
        -------
        TopProbs
        """
        indices, logits, rest = parts_of(scores)
        rows = pack_anywhere(indices, at_least_single(logits), rest, self.columns)
        probs = self.with_state(self._owner._map, rows)
        probs = namespace(logits).astype(probs, logits.dtype, copy=False)
        return _as_top_probs(indices, probs, self.columns)


@dataclass(kw_only=True, eq=False, repr=False)
class TopLogitsCalibrator(Calibrator):
    """The implementation of a calibrator for ``inputs="top_logits"``, which uses packed rows.

    A public calibrator names it in ``_by_inputs``.
    """

    inference: str = "map"

    _domain = "top_logits"
    _sources: ClassVar[frozenset[str]] = BLOCKS
    #: Name of the public calibrator.
    _public_name: ClassVar[str]

    @abstractmethod
    def _fit_top(self, rows: Source, k: int) -> State:
        """Fit the state to packed rows of k classes."""

    @abstractmethod
    def _apply_top(self, state: State, rows: XArray, k: int) -> XArray:
        """Compute probabilities of the top classes and of all others (n, m + 1), or (n, k)."""

    def _check_inputs(self) -> None:
        if self.inference != "map":
            raise ValueError(
                f"inference must be 'map' for inputs='top_logits', got {self.inference!r}"
            )
        if self.classes is None:
            raise ValueError(
                "classes must be set for inputs='top_logits', for example classes=50_257 for the "
                "indices 0, ..., 50,256, got None"
            )

    def _class_count(self, rows: object) -> int:
        assert self.classes is not None
        return len(class_array(self.classes))

    def _check_rows(self, scores: XArray, reset: bool) -> np.ndarray:
        k = self._class_count(scores)
        rows = pack(scores, k)
        check_distinct(rows, k)
        self.n_features_in_ = k
        return rows

    def _fit(self, rows: Source, seed: int) -> State:
        self.n_features_in_ = k = len(self.classes_)
        if isinstance(rows, Rows):
            rows = PackedRows(*rows)
        return {**self._fit_top(rows, k), "k": np.asarray(k)}

    def _apply(self, state: State, scores: XArray) -> XArray:
        return self._apply_top(state, scores, int(state["k"]))

    def _answer(self, probs: np.ndarray, scores: AnyArray) -> AnyArray:
        return _as_top_probs(as_numpy(scores[0], "indices"), probs, len(self.classes_))

    def _most_probable(self, probs: AnyArray) -> np.ndarray:
        best = np.argmax(probs.probs, axis=1)
        return self.classes_[probs.indices[np.arange(len(best)), best]]

    def _predict_block(self, names: list[object] | None, block: Block) -> np.ndarray:
        return self.predict_proba(block.scores)

    def _probabilities_of(self, kept: KeptRows) -> None:
        """Return None, because most classes have no logit."""

    @property
    def _function_kind(self) -> type[PredictFunction]:
        return TopPredictFunction

    def _title(self) -> str:
        return self._public_name


def _as_top_probs(indices: AnyArray, probs: XArray, k: int) -> TopProbs:
    """Split probabilities (n, m + 1) or (n, k) into those of top classes and the rest."""
    xp, m = namespace(probs), indices.shape[1]
    rest = probs[:, m] if probs.shape[1] > m else xp.zeros_like(probs[:, 0])
    return TopProbs(indices, probs[:, :m], rest, k - m)
