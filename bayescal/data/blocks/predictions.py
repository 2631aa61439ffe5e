"""Read predictions that come in blocks or in memory: the entry point of every metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal.data.blocks.checkpoint import rows_of
from bayescal.data.blocks.reader import concatenate
from bayescal.data.blocks.stream import Block, Blocks, add, as_blocks
from bayescal.data.checks import as_numpy
from bayescal.data.label_names import check_classes
from bayescal.data.labels import as_text, is_text, label_values
from bayescal.data.predictions import EPS, PLAIN, Predictions, Reading, read_arrays
from bayescal.data.rows import Merge, Sums, greatest
from bayescal.data.weights import as_ones, power_of_weights


def as_predictions(
    probs: UserData,
    y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    reading: Reading = PLAIN,
    *,
    on_device: bool = False,
) -> Any:
    """Read :class:`Predictions` from arrays, or :class:`PredictionBlocks` from data in blocks.

    Predictions that were read before are returned unchanged. With ``on_device``, probabilities on
    an accelerator stay there.
    """
    if isinstance(probs, PredictionBlocks | Predictions):
        return probs
    blocks = as_blocks(probs, y, weights)
    if blocks is not None:
        if reading.outcomes != "labels":
            raise TypeError("outcomes must be 'labels' for blocks, got 'fractional'")
        return PredictionBlocks(blocks, reading)
    if y is None:
        raise ValueError("y must be given, except for Blocks, which contain labels")
    return read_arrays(probs, y, weights, reading, on_device=on_device)


#: Largest weight whose fourth power is finite.
_MAX_WEIGHT = 2.0**250


class PredictionBlocks:
    """Predictions in blocks, each of which is checked when it is read."""

    eps = EPS

    def __init__(self, blocks: Blocks, reading: Reading = PLAIN) -> None:
        self.blocks = blocks
        read = partial(_read_block, blocks.names)
        reading = replace(reading, whole=False)
        first = _first(blocks, read, reading)
        if isinstance(first, int):
            text = blocks.total(_distinct_text, _either)["labels"]
            reading = replace(reading, classes=check_classes(text, None, first))
            first = _first(blocks, read, reading)
            assert not isinstance(first, int)
        if first.power != 0:
            # Others may be much heavier.
            heaviest = float(blocks.total(partial(_heaviest, read, reading), greatest)["weight"])
            first = first._replace(power=power_of_weights(heaviest) if heaviest > 0 else 0)
        self.columns = first.columns
        self._read = partial(_read_alike, partial(read, reading), first)
        #: Whether weights are integers, and the classes, in the first block that has rows.
        self.whole, self.classes = first.whole, first.classes

    def total(self, function: Callable[[Predictions], Sums], merge: Merge = add) -> Sums:
        """Make a pass: apply a function to the predictions of each block, and add the results."""
        return self.blocks.total(partial(_of_predictions, self._read, function), merge)

    def total_numbered(self, function: Callable[[int, Predictions], Sums]) -> Sums:
        """Make a pass with a function of the number of each block and its predictions."""
        return self.blocks.total(partial(_of_numbered, self._read, function))

    def gather(self) -> Predictions:
        """Read all rows into memory."""
        arrays = self.total(_as_arrays, concatenate)
        weights, precision = as_ones(arrays["weights"]), float(arrays["precision"].max())
        first = arrays.get("first")
        return Predictions(
            arrays["probs"], arrays["y"], weights, self.eps, None, precision, first=first
        )

    @property
    def probs(self) -> NoReturn:
        """Raise an error, for metrics that need all rows at once."""
        raise TypeError(
            "probs must be arrays in memory for what needs all cases at once; log_loss, "
            "brier_score, accuracy, ece, ecce, debiased_ece, smooth_ece, kde_ece, loss_gap, "
            "multilabel_ece, multilabel_ecce and hamming_loss take blocks"
        )

    y = weights = probs


class _First(NamedTuple):
    """Properties of all rows that the first block with rows determines."""

    columns: int | None
    classes: Sequence[object] | np.ndarray | None
    whole: bool
    #: The power of two by which weights are multiplied, so that their squares neither vanish nor
    #: overflow; None if all weights are zero.
    power: int | None
    #: Shape of a row of probabilities, and whether labels are text.
    shape: tuple[int, ...]
    text: bool


def _first(
    blocks: Blocks, read: Callable[[Reading, Block], Predictions], reading: Reading
) -> _First | int:
    """Read the first block that has rows; or, if all text labels must be known, their number."""
    blocks_read = blocks.each(partial(_look, read, reading))
    first = next((result for result in blocks_read if result is not None), None)
    blocks_read.close()
    if first is None:
        raise ValueError("blocks must hold rows, got none")
    return first


def _look(
    read: Callable[[Reading, Block], Predictions], reading: Reading, block: Block
) -> _First | int | None:
    shape = np.shape(block.scores)
    if not rows_of(block.scores):
        return None
    text = _has_text(block)
    if text and reading.classes is None:
        return shape[1] if len(shape) == 2 else 2
    data = read(reading, block)
    power = power_of_weights(float(data.weights.max())) if len(data.weights) else None
    return _First(data.columns, data.classes, data.whole, power, shape[1:], text)


def _heaviest(
    read: Callable[[Reading, Block], Predictions], reading: Reading, block: Block
) -> Sums:
    return {"weight": read(reading, block).weights.max(initial=0)}


def _has_text(block: Block) -> bool:
    y = block.y
    if y is None or len(np.shape(y)) != 1:
        return False
    return is_text(label_values(y, None, weights=block.weights))


def _read_block(names: list[object] | None, reading: Reading, block: Block) -> Predictions:
    if block.y is None:
        raise ValueError("blocks must hold labels: tuples (probs, y) or (probs, y, weights)")
    return read_arrays(block.scores, block.y, block.weights, reading, names=names)


def _read_alike(read: Callable[[Block], Predictions], first: _First, block: Block) -> Predictions:
    """Read a block that must have the columns and the kind of labels of the first one."""
    columns = np.shape(block.scores)[1:]
    if columns != first.shape:
        shapes = columns, first.shape
        got = " after ".join(str(tail[0]) if tail else "one dimension" for tail in shapes)
        raise ValueError(f"probs must have the same columns in all blocks, got {got}")
    data = read(block)
    if _has_text(block) != first.text:
        raise TypeError("y must hold labels of one kind in all blocks, got text and numbers")
    if not first.power and data.weights.max(initial=0) <= _MAX_WEIGHT:
        return data
    weights = np.ldexp(data.weights, first.power or 0)
    if weights.max(initial=0) > _MAX_WEIGHT:
        raise ValueError(
            f"weights must be below {_MAX_WEIGHT:.0e} if those of the first block are moderate, "
            f"got {data.weights.max():g}; divide all of them by a number"
        )
    return data._replace(weights=weights)


def _distinct_text(block: Block) -> Sums:
    labels = label_values(block.y, None, weights=block.weights)
    if block.weights is not None and np.shape(block.weights) == labels.shape:
        labels = labels[as_numpy(block.weights, "weights") > 0]
    return {"labels": np.unique(as_text(labels))}


def _either(first: Sums, second: Sums) -> Sums:
    return {name: np.union1d(labels, second[name]) for name, labels in first.items()}


def _of_predictions(
    read: Callable[[Block], Predictions], function: Callable[[Predictions], Sums], block: Block
) -> Sums | None:
    data = read(block)
    return function(data) if len(data.y) else None


def _of_numbered(
    read: Callable[[Block], Predictions], function: Callable[[int, Predictions], Sums], block: Block
) -> Sums | None:
    data = read(block)
    return function(block.number, data) if len(data.y) else None


def _as_arrays(data: Predictions) -> Sums:
    precision = np.asarray([data.precision])
    arrays = {"probs": data.probs, "y": data.y, "weights": data.weights, "precision": precision}
    return arrays if data.first is None else {**arrays, "first": data.first}
