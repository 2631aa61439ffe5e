"""Checks that all metrics share: what comes from a user leaves as float64 NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import ArrayLike, accelerated
from bayescal._core.precision import float64
from bayescal.data.blocks.checkpoint import rows_of
from bayescal.data.blocks.stream import Block, Blocks, add, as_blocks
from bayescal.data.checks import (
    RANGE_TOLERANCE,
    SUM_TOLERANCE,
    as_numpy,
    check_finite,
    check_logits,
    check_range,
    check_weights,
    check_weights_of,
    precision,
)
from bayescal.data.fitted import of_pairs, read_label_rows
from bayescal.data.label_names import (
    check_classes,
    column_names,
    in_order,
    matched_names,
)
from bayescal.data.rows import Sums
from bayescal.metrics.reading.labels import PLAIN, Reading, check_probs, in_right_order
from bayescal.metrics.reading.weights import counted, counted_of_block, lightened

__all__ = [
    "EPS",
    "PLAIN",
    "PredictionBlocks",
    "Predictions",
    "Reading",
    "as_given",
    "check_anywhere",
    "check_arrays",
    "check_label_rows",
    "check_many_labels",
    "check_predictions",
    "check_second",
    "check_truth",
]

#: Clipping distance of probabilities of any type: a copy in another costs the same.
EPS = 2.0**-52


class Predictions(NamedTuple):
    """Checked predictions of n cases with positive weight."""

    #: P(y = 1), (n,), or one row per case, (n, k); float64.
    probs: Any
    #: Integers (n,), or (n, l) for many labels.
    y: Any
    #: Of float64, (n,); ones where the user gave none.
    weights: Any
    #: At which distance from 0 and 1 logarithms clip probabilities.
    eps: float
    #: Of which ``y`` are places, where these were given.
    classes: Any = None
    #: Machine epsilon of the type in which probabilities were given.
    precision: Any = EPS
    #: By how much the Brier score of each exceeds that of fractional outcomes, (n,), where these
    #: were given.
    excess: Any = None
    #: Number of each row's cluster (n,), from 0; None where rows are independent.
    clusters: Any = None

    def part(self, rows: slice) -> Predictions:
        """Return some of the cases."""
        clusters = None if self.clusters is None else self.clusters[rows]
        return self._replace(
            probs=self.probs[rows],
            y=self.y[rows],
            weights=self.weights[rows],
            classes=None,
            clusters=clusters,
        )

    @property
    def columns(self) -> int | None:
        """Number of columns, None where there is one probability for each case."""
        return None if self.probs.ndim == 1 else self.probs.shape[1]

    @property
    def whole(self) -> bool:
        """Whether weights are whole numbers that can be counted, hence counts."""
        total = float(self.weights.sum())
        return total < 2**53 and bool((self.weights == np.floor(self.weights)).all())


def as_given(probs: np.ndarray, precision: float) -> np.ndarray:
    """Return probabilities in the floating type of this machine epsilon, for their bins."""
    kinds = (np.float32, np.float16, jnp.bfloat16)
    narrow = next((k for k in kinds if precision == float(jnp.finfo(k).eps)), np.float64)
    return probs.astype(narrow, copy=False)


class PredictionBlocks:
    """Predictions that come in blocks, each of which is checked when it is read.

    Functions of all cases at once, which ask for them, are refused.
    """

    eps = EPS

    def __init__(
        self,
        blocks: Blocks,
        many: bool = False,
        second: bool = False,
        reading: Reading = PLAIN,
    ) -> None:
        """Take ``many`` labels, or of two columns the ``second`` alone."""
        self.blocks = blocks
        check = check_many_labels if many else check_second if second else check_arrays
        read = partial(_read_block, check, blocks.names)
        reading = replace(reading, whole=False)
        looked = blocks.each(partial(_look, read, reading))
        first = next((own for own in looked if own is not None), None)
        looked.close()
        if first is None:
            raise ValueError("blocks must hold rows, got none")
        if isinstance(first, int):
            labels = blocks.total(partial(_texts_of, reading), _either)["labels"]
            reading = replace(reading, classes=check_classes(labels, None, first))
            looked = blocks.each(partial(_look, read, reading))
            first = next(own for own in looked if isinstance(own, _Look))
            looked.close()
        self.columns = first.columns
        self._read = partial(_read_alike, partial(read, reading), first.shape, first.text)
        #: Of the first block that has rows.
        self.whole, self.classes = first.whole, first.classes

    def total(
        self,
        function: Callable[[Predictions], Sums],
        merge: Callable[[Sums, Sums], Sums] = add,
    ) -> Sums:
        """Make a pass: call a function with the predictions of each block, and add the results."""
        return self.blocks.total(partial(_of_predictions, self._read, function), merge)

    def total_numbered(self, function: Callable[[int, Predictions], Sums]) -> Sums:
        """Do the same with a function that is given the number of the block, too."""
        return self.blocks.total(partial(_of_numbered, self._read, function))

    def gather(self) -> Predictions:
        """Return all cases at once."""
        found = self.total(_as_arrays, _behind)
        weights, precision = lightened(found["weights"]), float(found["precision"].max())
        return Predictions(found["probs"], found["y"], weights, self.eps, None, precision)

    @property
    def probs(self) -> NoReturn:
        """What there is not."""
        raise TypeError(
            "probs must be arrays in memory for what needs all cases at once; log_loss, "
            "brier_score, accuracy, ece, debiased_ece, smooth_ece, kde_ece, loss_gap, "
            "multilabel_ece and hamming_loss take blocks"
        )

    y = weights = probs


class _Look(NamedTuple):
    """What is known from the first block that has rows."""

    columns: int | None
    classes: Any
    whole: bool
    #: Shape of a row of probabilities, and whether labels are texts.
    shape: tuple[int, ...]
    text: bool


def _look(
    read: Callable[[Reading, Block], Predictions], reading: Reading, block: Block
) -> _Look | int | None:
    """Look at a block with rows; if all texts must be known for that, return the columns."""
    shape = np.shape(block.scores)
    if not rows_of(block.scores):
        return None
    text = _is_text(block)
    if text and reading.classes is None:
        return shape[1] if len(shape) == 2 else 2
    data = read(reading, block)
    return _Look(data.columns, data.classes, data.whole, shape[1:], text)


def _is_text(block: Block) -> bool:
    y = block.y
    return y is not None and len(np.shape(y)) == 1 and PLAIN.is_text(y, block.weights)


def _read_alike(
    read: Callable[[Block], Predictions], shape: tuple[int, ...], text: bool, block: Block
) -> Predictions:
    """Read a block that must be of the same kind as the first."""
    found = np.shape(block.scores)[1:]
    if found != shape:
        got = " after ".join(str(own[0]) if own else "one dimension" for own in (found, shape))
        raise ValueError(f"probs must have the same columns in all blocks, got {got}")
    data = read(block)
    if _is_text(block) != text:
        raise TypeError("y must hold labels of one kind in all blocks, got text and numbers")
    return data


def _texts_of(reading: Reading, block: Block) -> Sums:
    y = reading.labels(block.y, block.weights)
    if block.weights is not None and np.shape(block.weights) == y.shape:
        y = y[as_numpy(block.weights, "weights") > 0]
    return {"labels": np.unique(reading.texts(y))}


def _either(first: Sums, second: Sums) -> Sums:
    return {name: np.union1d(own, second[name]) for name, own in first.items()}


def _read_block(
    check: Callable[..., Predictions], names: list[object] | None, reading: Reading, block: Block
) -> Predictions:
    labels = _given(block.y, "blocks must hold labels: tuples (probs, y) or (probs, y, weights)")
    own = block.scores, labels, block.weights
    return check(*own, reading, names=names)


def _of_predictions(
    read: Callable[[Block], Predictions], function: Callable[[Predictions], Sums], block: Block
) -> Sums | None:
    data = read(block)
    return function(data) if len(data.y) else None


def _of_numbered(
    read: Callable[[Block], Predictions],
    function: Callable[[int, Predictions], Sums],
    block: Block,
) -> Sums | None:
    data = read(block)
    return function(block.number, data) if len(data.y) else None


def _as_arrays(data: Predictions) -> Sums:
    precision = np.asarray([data.precision])
    return {"probs": data.probs, "y": data.y, "weights": data.weights, "precision": precision}


def _behind(first: Sums, second: Sums) -> Sums:
    return {name: np.concatenate([own, second[name]]) for name, own in first.items()}


def check_predictions(
    probs: Any,
    y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    reading: Reading = PLAIN,
) -> Any:
    """Return checked :class:`Predictions`, of arrays, or else :class:`PredictionBlocks`.

    Predictions that have been checked come back as they are.
    """
    if isinstance(probs, PredictionBlocks | Predictions):
        return probs
    blocks = as_blocks(probs, y, weights)
    if blocks is not None:
        if reading.outcomes != "labels":
            raise TypeError("outcomes must be 'labels' for blocks, got 'fractional'")
        return PredictionBlocks(blocks, reading=reading)
    return check_arrays(probs, _given(y), weights, reading)


def _given(
    y: ArrayLike | None, wanted: str = "y must be given, but for Blocks, which hold labels"
) -> ArrayLike:
    if y is None:
        raise ValueError(wanted)
    return y


@in_right_order
def check_arrays(
    probs: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike | None = None,
    reading: Reading = PLAIN,
    *,
    names: list[object] | None = None,
) -> Predictions:
    """Check probabilities, labels and weights; leave out the cases of weight zero.

    Columns of a data frame that are named like the classes may stand in any order.
    """
    names = column_names(probs) or names
    probs, given = as_numpy(probs, "probs"), y
    if probs.ndim not in (1, 2):
        more = "; bayescal.tokens makes rows of those of tokens" if probs.ndim > 2 else ""
        raise ValueError(f"probs must have shape (n,) or (n, k), got {probs.shape}{more}")
    if probs.ndim == 2 and probs.shape[1] < 2:
        raise ValueError(
            f"probs must have a column for each class, got shape {probs.shape}; "
            "for two classes pass P(y = 1) with shape (n,)"
        )
    if reading.whole and len(probs) == 0:
        raise ValueError("probs must not be empty")
    k = 2 if probs.ndim == 1 else probs.shape[1]
    shares = reading.shares(given, len(probs), k)
    y = reading.labels(given, weights) if shares is None else shares
    if shares is None and y.shape != probs.shape[:1]:
        raise ValueError(f"y must have shape ({len(probs)},) to match probs, got {y.shape}")
    eps = precision(probs.dtype)
    count = counted if reading.whole else counted_of_block
    probs, y, weights = count(probs, y, weights)
    if shares is None:
        classes, codes = reading.codes(y, k)
    else:
        classes, codes = reading.classes_of_shares(given, k), y.argmax(axis=1)
    probs = check_probs(_read(in_order(probs, names, classes), reading), eps)
    data = Predictions(probs, codes, weights, EPS, classes, eps)
    return data if reading.outcomes == "labels" else _by_share(data, y)


def _by_share(data: Predictions, shares: np.ndarray) -> Predictions:
    """Return a case for each outcome that has a share (n, k) in one, and that share as weight."""
    row, codes = np.nonzero(shares)
    spread = 1 - (shares**2).sum(axis=1)
    own = data.weights[row] * shares[row, codes]
    excess = (spread / 2 if data.probs.ndim == 1 else spread)[row]
    return data._replace(probs=data.probs[row], y=codes, weights=own, excess=excess)


def check_second(
    probs: ArrayLike, y: ArrayLike, weights: Any = None, reading: Reading = PLAIN, **how: Any
) -> Predictions:
    """Do as :func:`check_arrays`, and keep the second of two columns only."""
    data = check_arrays(probs, y, weights, reading, **how)
    return data._replace(probs=data.probs[:, 1]) if data.columns == 2 else data


def check_anywhere(
    probs: Any,
    y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    reading: Reading = PLAIN,
) -> Any:
    """Do as :func:`check_predictions`, but leave probabilities on an accelerator where they are.

    Then predictions are JAX's arrays in float64, with those of weight zero; what is wrong is said
    as on the host.
    """
    there: Any = None if as_blocks(probs, y, weights) is not None else accelerated(probs)
    if there is None or there.ndim not in (1, 2) or 1 in there.shape[1:] or not there.size:
        return check_predictions(probs, y, weights, reading)
    with float64():
        found = reading.probs(there.astype(float))
        within = (found >= -RANGE_TOLERANCE) & (found <= 1 + RANGE_TOLERANCE)
        good = jnp.all(within & jnp.isfinite(there))
        if found.ndim == 2:
            most = max(SUM_TOLERANCE, found.shape[1] * precision(there.dtype))
            good &= jnp.all(jnp.abs(found.sum(axis=1) - 1.0) <= most)
        y = _given(y)
        fractional = reading.outcomes != "labels"
        if not good or np.shape(y) != found.shape[:1] or fractional:
            return check_arrays(np.asarray(there), y, weights, reading)
        k = 2 if found.ndim == 1 else found.shape[1]
        labels = reading.codes(reading.labels(y), k)[1]
        how = {"n": len(labels), "name": "weights", "match": "probs"}
        if weights is None or reading.whole:
            own = check_weights(weights, **how)
        else:
            own = check_weights_of(weights, **how)
        found = jnp.clip(found, 0.0, 1.0)
        eps = precision(there.dtype)
        return Predictions(found, jnp.asarray(labels), jnp.asarray(own), EPS, None, eps)


def check_label_rows(
    probs: Any,
    y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    reading: Reading = PLAIN,
) -> Any:
    """Do as :func:`check_predictions` for labels (n, l) that do not exclude each other."""
    blocks = as_blocks(probs, y, weights)
    if blocks is not None:
        return PredictionBlocks(blocks, many=True, reading=reading)
    return check_many_labels(probs, _given(y), weights, reading)


@in_right_order
def check_many_labels(
    probs: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike | None = None,
    reading: Reading = PLAIN,
    *,
    names: list[object] | None = None,
) -> Predictions:
    """Check probabilities (n, l) and labels (n, l) that do not exclude each other, and weights.

    Columns of two data frames are matched by their names, if these are equal, or by the classes.
    """
    given, names, labels = probs, column_names(probs) or names, column_names(y)
    probs = as_numpy(of_pairs(probs), "probs")
    if probs.ndim != 2:
        raise ValueError(f"probs must have shape (n, labels), got {probs.shape}")
    if reading.whole and probs.size == 0:
        raise ValueError("probs must not be empty")
    y = read_label_rows(y)
    if y.shape != probs.shape:
        raise ValueError(f"y must have shape {probs.shape} to match probs, got {y.shape}")
    if reading.classes is not None:
        classes = check_classes(np.empty(0, int), reading.classes, probs.shape[1])
        probs, y = in_order(probs, names, classes), in_order(y, labels, classes, "y")
    else:
        names = matched_names(given, labels) if hasattr(given, "columns") else names
        probs = in_order(probs, names, labels or range(probs.shape[1]))
    eps = precision(probs.dtype)
    count = counted if reading.whole else counted_of_block
    probs, y, weights = count(probs, y, weights)
    probs = check_range(_read(probs, reading, many=True), "probs")
    return Predictions(probs, y, weights, EPS, None, eps)


def _read(given: np.ndarray, reading: Reading, many: bool = False) -> np.ndarray:
    if reading.inputs != "probs":
        options = given.ndim == 2 and not many
        (check_logits if options else check_finite)(given, "probs")
    return reading.probs(given, many)


def check_truth(
    truth: ArrayLike,
    probs: np.ndarray,
    weights: ArrayLike | None,
    classes: Sequence[object],
    name: str = "true_probs",
) -> np.ndarray:
    """Check probabilities that are compared with ``probs``; weights of zero leave rows out."""
    names, truth = column_names(truth), as_numpy(truth, name)
    truth = in_order(truth, names, classes, name)
    if weights is not None and truth.shape[:1] == np.shape(weights):
        truth = truth[as_numpy(weights, "weights") > 0]
    if truth.shape != probs.shape:
        raise ValueError(f"{name} must have shape {probs.shape}, got {truth.shape}")
    return check_probs(truth.astype(np.float64), precision(truth.dtype), name)
