"""Read the arguments of a fit as a source of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import (
    AnyArray,
    AnyModel,
    UserData,
    XArray,
    accelerated,
    on_host,
    to_host,
)
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax
from bayescal.data.blocks.stream import Blocks, as_blocks
from bayescal.data.blocks.survey import survey
from bayescal.data.kept_rows import KeptRows, keep_rows
from bayescal.data.label_names import Classes, column_names, in_order
from bayescal.data.labels import in_columns, of_shares, read_rows
from bayescal.data.rows import Rows, Source
from bayescal.data.scores import check_options, convert, plausible

#: Where the rows of a fit may be; every set includes memory.
MEMORY = frozenset({"memory"})
DEVICE = MEMORY | {"device"}
BLOCKS = MEMORY | {"blocks"}
EVERYWHERE = DEVICE | BLOCKS


class Given(NamedTuple):
    """The rows of a fit, and what the calibrator keeps of them."""

    rows: Source
    classes: np.ndarray
    #: Values that replace smaller probabilities; only if their logarithms are taken.
    least: np.ndarray | None
    kept: KeptRows
    blocks: Blocks | None = None

    @property
    def on_device(self) -> bool:
        """Whether the scores are on an accelerator, where they stay."""
        return isinstance(self.rows, Rows) and not on_host(self.rows.scores)


def as_source(
    estimator: AnyModel,
    scores: object,
    y: UserData,
    sample_weight: UserData,
    sources: frozenset[str],
) -> Given:
    """Read scores in the domain of a calibrator, labels and weights; keep names of features."""
    classes = estimator.classes
    if in_columns(y) and estimator.inputs != "top_logits" and getattr(scores, "ndim", 2) < 3:
        scores, y, sample_weight, classes = of_shares(scores, y, sample_weight, classes)
    if type(scores) is not np.ndarray:
        blocks = as_blocks(scores, y, sample_weight)
        if isinstance(scores, np.memmap) and "blocks" not in sources:
            blocks = None
        if blocks is not None:
            return _in_blocks(estimator, blocks, sources)
        device_scores = accelerated(scores) if "device" in sources else None
        if device_scores is not None:
            given = _on_device(estimator, device_scores, y, sample_weight, classes)
            if given is not None:
                return given
            # Checks on the host explain what is wrong.
            scores = np.asarray(device_scores)
    names = column_names(scores)
    rows = estimator._check_rows(scores, reset=True)
    return _read(estimator, rows, names, y, sample_weight, classes)


def _read(
    estimator: AnyModel,
    rows: AnyArray,
    names: list[object] | None,
    y: UserData,
    sample_weight: UserData,
    classes: Classes,
) -> Given:
    """Read rows (n, 1) or (n, k) whose numbers have been checked."""
    inputs = estimator.inputs
    known, rows, labels, weights = read_rows(
        rows, y, sample_weight, classes, estimator._class_count(rows)
    )
    if on_host(rows):
        rows = in_order(rows, names, known, "scores")
    kept = keep_rows(rows, labels, None if sample_weight is None else weights)
    values, least = convert(rows, inputs, estimator.domain)
    check_options(rows, labels, weights, inputs)
    return Given(Rows(values, labels, weights), known, least, kept)


def _on_device(
    estimator: AnyModel, scores: jax.Array, y: XArray, sample_weight: object, classes: Classes
) -> Given | None:
    """Read valid scores on an accelerator; None if the host has to raise an error."""
    with float64(), jax.numpy_dtype_promotion("standard"):
        rows = scores[:, None] if scores.ndim == 1 else scores
        if not plausible(rows, estimator.inputs):
            return None
        if estimator.inputs != "logits" or estimator.domain != "logits":
            rows = rows.astype(float)  # as on the host
        estimator.n_features_in_ = rows.shape[1]
        vars(estimator).pop("feature_names_in_", None)  # of an earlier fit
        return _read(estimator, rows, None, to_host(y), to_host(sample_weight), classes)


def _in_blocks(estimator: AnyModel, blocks: Blocks, sources: frozenset[str]) -> Given:
    """Read blocks in a first pass."""
    if "blocks" not in sources:
        raise TypeError(
            f"{estimator!r} needs all rows at once, so it cannot be fitted to blocks; pass "
            "arrays in memory, or use Auto or another calibrator that only needs sums"
        )
    rows = survey(blocks, estimator.inputs, estimator.domain, estimator.classes, estimator.binary)
    reader = rows.reader
    estimator.n_features_in_ = reader.columns
    vars(estimator).pop("feature_names_in_", None)  # of an earlier fit
    if reader.names is not None:
        estimator.feature_names_in_ = np.array(reader.names, object)
    return Given(rows, reader.classes, reader.least, rows.kept, blocks)
