"""Fits and predictions of a calibrator whose rows come in blocks."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import numpy as np

from bayescal._core.arrays import on_host
from bayescal.data.blocks.reader import RowBlocks, block_rows
from bayescal.data.blocks.stream import Block, Blocks, map_chunks
from bayescal.data.blocks.survey import survey
from bayescal.data.scores import convert, without_absent

__all__ = ["State", "TakesBlocks"]

#: What a calibrator has learned: arrays by name.
State: TypeAlias = dict[str, np.ndarray]


class TakesBlocks:
    """What a calibrator does with blocks; one that needs sums only writes ``_fit_blocks``."""

    @property
    def _fits_blocks(self) -> bool:
        """Whether ``_fit_blocks`` is written, and serves these options."""
        return False

    def _fit_blocks(self, rows: RowBlocks, seed: int) -> State:
        """Return what ``_fit`` does, of rows that come in blocks, from sums over them."""
        raise NotImplementedError

    def _learn_in_blocks(self: Any, blocks: Blocks) -> tuple[State, np.ndarray | None]:
        """Return what is learned from blocks, and the least probabilities if there are any."""
        if not self._fits_blocks:
            raise TypeError(
                f"{self!r} needs all rows at once, so that it cannot be fitted to blocks; give "
                "arrays in memory, or take Auto or another calibrator that needs sums only"
            )
        rows = survey(blocks, self.inputs, self.domain, self.classes, self.binary)
        self.classes_ = rows.reader.classes
        self.n_features_in_ = rows.reader.columns
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
        if rows.reader.names is not None:
            self.feature_names_in_ = np.array(rows.reader.names, object)
        # Workers of Dask get copies of what is fitted: these have nothing to report.
        vars(self).pop("_kept_rows", None)
        learned = self._fit_blocks(rows, self._seed())
        blocks.finish()
        self._kept_rows = rows.kept
        return learned, rows.reader.least

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
