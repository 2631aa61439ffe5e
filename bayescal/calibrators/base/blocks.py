"""Predictions of a calibrator for rows that come in blocks."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import numpy as np

from bayescal._core.arrays import on_host
from bayescal.data.blocks.reader import block_rows
from bayescal.data.blocks.stream import Block, Blocks, map_chunks
from bayescal.data.scores import convert, without_absent

__all__ = ["State", "TakesBlocks"]

#: What a calibrator has learned: arrays by name.
State: TypeAlias = dict[str, np.ndarray]


class TakesBlocks:
    """Predictions of a calibrator for blocks."""

    def _predict_in_blocks(self: Any, blocks: Blocks, scores: Any) -> Any:
        """Return probabilities in the form that the scores have."""
        predict = partial(self._predict_block, blocks.names)
        if on_host(scores):
            return np.concatenate([*blocks.each(predict)])
        if hasattr(scores, "map_blocks") and hasattr(scores, "chunks"):
            return map_chunks(predict, scores, len(self.classes_))
        return blocks.mapped(predict)

    def _predict_block(self: Any, names: list[object] | None, block: Block) -> np.ndarray:
        rows = block_rows(block, names, self.inputs, self.n_features_in_, self.classes_)
        values = convert(rows, self.inputs, self.domain, self.state_.get("least_probabilities"))[0]
        with np.errstate(over="ignore", under="ignore"):
            return without_absent(self.apply(self.state_, values), rows, self.inputs)
