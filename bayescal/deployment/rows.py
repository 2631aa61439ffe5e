"""Copies of fitted calibrators, their calibration rows, and new rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial

import numpy as np
import sklearn
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyModel
from bayescal._core.numerics import effective_size, sigmoid, softmax
from bayescal.calibrators.auto import Auto
from bayescal.calibrators.base.dispatch import as_fitted
from bayescal.calibrators.base.draws import mean_of_draws
from bayescal.data.blocks.reader import as_numbers, block_rows
from bayescal.data.blocks.stream import Block, Blocks
from bayescal.data.history import History
from bayescal.data.label_names import find_positions, label_list
from bayescal.data.rows import Rows, Sums, add
from bayescal.data.scores import check_probabilities, convert
from bayescal.data.weights import check_weights_of
from bayescal.deployment.recalibration import as_rows, shifted

_HISTORY = History._fields


@dataclass(frozen=True)
class CalibrationRows:
    """Calibration rows: calibrated probabilities, labels as positions, positive weights."""

    probs: np.ndarray
    codes: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class NewRows:
    """New rows: calibrated probabilities (m, k), positive weights, positions of populations."""

    probs: np.ndarray
    weights: np.ndarray
    index: np.ndarray
    #: The numbers of rows with a probability below each of two floors.
    clipped: np.ndarray
    #: Whether the weights are counts of rows.
    counted: bool = False

    def counts(self, rows: slice | np.ndarray = slice(None)) -> np.ndarray:
        """Return the numbers of original rows that some of these rows represent."""
        weights = self.weights[rows]
        return weights if self.counted else as_rows(weights)


def block_predictor(
    calibrator: object, names: list[object] | None, classes: np.ndarray
) -> Callable[[Block], np.ndarray]:
    """Return a function that computes the calibrated probabilities (n, k) of a block of scores."""
    if calibrator is None:
        return partial(_read_block, names, classes)
    inner = as_fitted(calibrator.calibrators_[0]) if isinstance(calibrator, Auto) else calibrator
    predict = getattr(inner, "_predict_block", None)
    return partial(_predict_block, calibrator) if predict is None else partial(predict, names)


def shift_block(
    state: dict[str, np.ndarray], predict: Callable[[Block], np.ndarray], block: Block
) -> np.ndarray:
    """Compute the probabilities (n, k) of a block under the new class proportions."""
    return shifted(state, predict(block), mean_of_draws)


def compress(blocks: Blocks, k: int, floors: np.ndarray) -> NewRows:
    """Read blocks of probabilities (n, k), and merge the rows as :class:`History` does."""
    sums = blocks.total(partial(_compress_block, floors), partial(_join, k))
    total, squares, fractional = sums["sizes"]
    history = History(*(sums[name] for name in _HISTORY))
    rows = history.rows("logits")[0]
    logs, weights = np.asarray(rows.scores), np.asarray(rows.weights)
    # Weights that are not counts, or of a sample, are scaled to the effective number of rows.
    size = effective_size(total, squares) if fractional else total
    if history.threshold > 0:
        size = min(size, effective_size(weights.sum(), weights @ weights))
    weights = weights if size == total == weights.sum() else weights * (size / weights.sum())
    probs = sigmoid(np.stack([-logs, logs], axis=1)) if k == 2 else softmax(logs)
    index = np.zeros(len(probs), int)
    return NewRows(probs, weights, index, sums["clipped"].astype(int), counted=True)


def _read_block(names: list[object] | None, classes: np.ndarray, block: Block) -> np.ndarray:
    columns = as_numbers(block, "probs").shape[1]
    columns = columns if len(classes) == 2 else len(classes)
    rows = block_rows(block, names, "probs", columns, classes)
    return read_probabilities(rows, len(classes))


def read_probabilities(rows: np.ndarray, k: int) -> np.ndarray:
    """Check rows (n, k) of probabilities; one column is that of the second of two classes."""
    check_probabilities(rows, inputs=("probs",))
    probs = convert(rows, "probs", "probabilities")[0]
    if probs.shape[1] != k:
        raise ValueError(f"scores must have {k} columns, one for each class, got {rows.shape[1]}")
    return probs


def _predict_block(calibrator: AnyModel, block: Block) -> np.ndarray:
    return np.asarray(calibrator.predict_proba(block.scores))


def _compress_block(floors: np.ndarray, block: Block) -> Sums | None:
    probs = np.asarray(block.scores)
    weights = np.ones(len(probs))
    if block.weights is not None:
        weights = check_weights_of(block.weights, len(probs), "weights", match="scores")
        probs, weights = probs[weights > 0], weights[weights > 0]
    if not len(probs):
        return None
    with np.errstate(divide="ignore"):
        logs = np.log(probs)
    scores = logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs
    history = History.of_rows(Rows(scores, np.zeros(len(probs), int), weights), None)
    fractional = float((weights != np.floor(weights)).any())
    return {
        **history._asdict(),
        "sizes": np.array([weights.sum(), weights @ weights, fractional]),
        "clipped": (probs.min(axis=1)[:, None] < floors).sum(axis=0).astype(float),
    }


def _join(k: int, first: Sums, second: Sums) -> Sums:
    histories = (History(*(sums[name] for name in _HISTORY)) for sums in (first, second))
    rest = [{name: sums[name] for name in ("sizes", "clipped")} for sums in (first, second)]
    return {**next(histories).join(next(histories), k)._asdict(), **add(*rest)}


def find_populations(given: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Return the positions (m,) of labels of populations among those of the fit."""
    labels, index = np.unique(given, return_inverse=True)
    known = set(label_list(fitted))
    unknown = [label for label in label_list(labels) if label not in known]
    if unknown:
        raise ValueError(f"populations must be among those of the fit, got {unknown[0]!r}")
    return find_positions(labels, fitted)[index.ravel()]


def snapshot(calibrator: AnyModel) -> AnyModel:
    """Copy a fitted calibrator; later fits do not change the copy."""
    if calibrator is None:
        return None
    if isinstance(calibrator, type) or not hasattr(calibrator, "predict_proba"):
        raise TypeError(f"calibrator must be a fitted calibrator, got {calibrator!r}")
    check_is_fitted(calibrator)
    if getattr(calibrator, "inputs", "") == "top_logits":
        raise TypeError(
            "calibrator must predict the probabilities of all classes, got "
            f"{type(calibrator).__name__} of truncated logits: they do not say how the rest of a "
            "row is divided, so the shares of most classes cannot be learned; calibrate the "
            'probabilities of the classes whose shares may have changed with inputs="probs"'
        )
    if not hasattr(calibrator, "classes_"):
        raise TypeError(
            "calibrator must predict the probabilities of all classes, got "
            f"{type(calibrator).__name__}; fit one PriorShift for each label"
        )
    fitted = as_fitted(calibrator)
    if fitted is not calibrator:
        return fitted
    return copy(calibrator)


def kept_rows(calibrator: AnyModel) -> CalibrationRows | None:
    """Return the rows that a snapshot keeps of its fit, with their probabilities, if any."""
    kept = getattr(calibrator, "_kept_rows", None)
    if kept is None:
        return None
    with warnings.catch_warnings(), sklearn.config_context(array_api_dispatch=False):
        warnings.simplefilter("ignore")  # names of columns
        probs = calibrator._probabilities_of(kept)
    del calibrator._kept_rows
    return CalibrationRows(probs, kept.codes, kept.weights)
