"""Rows of a file that a calibrator is fitted to, as often as it asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np

import bayescal as bc
from bayescal.cli._columns import choose_models, find_classes
from bayescal.cli._errors import CommandError
from bayescal.cli._streams import RowFile, UnreadableError

Result = TypeVar("Result")
#: Different labels at most, so that a column of something else does not fill memory.
_MOST_LABELS = 1 << 20


class Training:
    """Labels, scores and weights in a file, in one block or many."""

    def __init__(
        self,
        source: RowFile,
        label: str,
        weights: str | None,
        show: Callable[[str, int, int], None],
    ) -> None:
        self._source, self._label, self._weights, self._show = source, label, weights, show
        self.classes: list[str] = []
        self.names: list[str] = []
        self.count = self.passes = 0
        self._blocks = 0

    def choose(self, columns: str | None, classes: str | None) -> None:
        """Find classes and columns of scores, in the labels of all rows and in some rows."""
        source, label = self._source, self._label
        texts = self._read(self._labels)
        self.classes, self._code = find_classes(source.path, label, texts, classes)
        named = [] if columns is None else [f"scores={columns}"]
        (model,) = choose_models(source.head, named, label, self._weights, self.classes)
        self.names = model.ordered(self.classes)

    def fit(self, calibrator: Any) -> None:
        """Fit a calibrator, to blocks if it takes them, and else to all rows at once."""
        self._read(partial(self._fit, calibrator))

    def _labels(self) -> list[str]:
        """Return the texts of labels; count rows and blocks."""
        self.count = self._blocks = 0
        texts: dict[str, None] = {}
        source = self._source
        show = partial(self._show, f"{source.path.name}: labels")
        for rows in source.rows(self._label, [], None, show):
            texts.update(dict.fromkeys(rows.labels))
            if source.large and len(texts) > _MOST_LABELS:
                raise CommandError(
                    f"{source.path}: column {self._label!r} must hold labels, got more than "
                    f"{_MOST_LABELS:,} different ones"
                )
            self.count += len(rows.place)
            self._blocks += 1
        # A small file stays in memory.
        self.passes = int(source.large)
        return list(texts)

    def _fit(self, calibrator: Any) -> None:
        if self._source.large:
            blocks = bc.Blocks(self._rows, progress=self._watch)
            try:
                calibrator.fit(blocks)
            except TypeError:
                # It needs all rows at once.
                if blocks.passes:
                    raise
            else:
                self.passes += blocks.passes
                return
        scores, y, weights = zip(*self._rows(), strict=True)
        own = None if self._weights is None else np.concatenate(weights)
        self.passes += 1
        calibrator.fit(np.concatenate(scores), np.concatenate(y), own)

    def _rows(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
        classes = np.asarray(self.classes)
        for rows in self._source.rows(self._label, self.names, self._weights):
            codes = np.array([self._code[text] for text in rows.labels], dtype=np.int64)
            yield rows.scores, classes[codes[rows.place]], rows.weights

    def _watch(self, passed: int, done: int, count: int | None) -> None:
        # The labels were the first.
        self._show(f"{self._source.path.name}: pass {passed + 2}", done, count or self._blocks)

    def _read(self, function: Callable[[], Result]) -> Result:
        try:
            return function()
        except UnreadableError:
            # Again by a reader that is slower, and takes what can be read or says what cannot.
            self._source.fast = False
            return function()
