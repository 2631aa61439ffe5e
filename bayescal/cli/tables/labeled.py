"""Labeled rows of a file, read as often as needed: to fit a calibrator, or to judge models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

import bayescal as bc
from bayescal._core.display.tables import shorten
from bayescal.cli._errors import CommandError, say
from bayescal.cli.tables.cells import check_values, find_column
from bayescal.cli.tables.columns import (
    ModelColumns,
    as_probabilities,
    check_probabilities,
    check_sums,
    choose_label_model,
    choose_models,
    empty_label,
    find_classes,
)
from bayescal.cli.tables.files import ignore
from bayescal.cli.tables.streams import RowFile, StreamedRows, UnreadableError, Wanted

if TYPE_CHECKING:
    from bayescal._core.arrays import AnyModel

Result = TypeVar("Result")
Read = tuple[np.ndarray, np.ndarray, np.ndarray | None]
#: Largest number of distinct labels, so that a column of something else does not fill memory.
_MAX_LABELS = 1 << 20
#: Texts of zeros and ones, in small letters.
_OUTCOMES = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}


@dataclass(eq=False)
class LabeledFile:
    """Labels, scores and weights in a file, in one block or many."""

    #: The option that names columns of scores.
    _option: ClassVar[str]

    source: RowFile
    label: str
    weights: str | None
    show: Callable[[str, int, int], None]
    groups: str | None = None
    groups_option: str = "--groups"
    by: str | None = None
    classes: list[str] = field(default_factory=list, init=False)
    count: int = field(default=0, init=False)
    passes: int = field(default=0, init=False)
    #: Number of rows without predictions in the last pass.
    skipped: int = field(default=0, init=False)
    _blocks: int = field(default=0, init=False)

    def choose(
        self,
        columns: Sequence[str],
        classes: str | Sequence[str] | None,
        first: Sequence[ModelColumns] = (),
    ) -> list[ModelColumns]:
        """Return models and their columns; determine the classes from the labels of all rows.

        Models of ``columns`` follow those of ``first``. Columns are guessed if there are neither.
        """
        source, label, others = self.source, self.label, self._others()
        texts = self._read(self._labels)
        found = find_classes(source.path, label, texts, classes, source.form.decimal)
        self.classes, self._code = found
        given = source.head, columns, label, others, self.classes
        models = [*first]
        if columns or not models:
            models += choose_models(*given, self._option)
        names = [model.name for model in models]
        if len(set(names)) < len(names):
            taken = ", ".join(model.name for model in first)
            raise CommandError(f"{self._option} must have names other than {taken}")
        return models

    def _others(self) -> tuple[str | None, ...]:
        """Check and return the columns other than labels and scores."""
        for option, column in ((self.groups_option, self.groups), ("--by", self.by)):
            if column is not None:
                find_column(self.source.head, column, option)
        return self.weights, self.groups, self.by

    def _labels(self) -> list[str]:
        """Return the texts of labels; count rows and blocks."""
        self.count = self._blocks = 0
        texts: dict[str, None] = {}
        source = self.source
        show = partial(self.show, f"{source.path.name}: labels")
        for rows in self._rows_of(self.label, [], show):
            texts.update(dict.fromkeys(self._used(rows, self.label)))
            if source.large and len(texts) > _MAX_LABELS:
                raise CommandError(
                    f"{source.path}: column {shorten(self.label)!r} must hold labels, got more "
                    f"than {_MAX_LABELS:,} different ones"
                )
            self.count += len(rows.label_index)
            self._blocks += 1
        if not texts:
            raise CommandError(
                f"{source.path}: column {shorten(str(self.weights))!r} must hold a weight that is "
                "not zero"
            )
        # A small file stays in memory.
        self.passes = int(source.large)
        return list(texts)

    def _rows_of(
        self, label: str, scores: Sequence[str], show: Callable[[int, int], None] = ignore
    ) -> Iterator[StreamedRows]:
        """Read rows with weights, if there are any; those of weight zero may lack a label."""
        name = self.weights
        wanted = Wanted(label, scores, name, self._option, name is not None)
        for rows in self.source.rows(wanted, show):
            weights = rows.weights
            if weights is not None and name is not None and (weights < 0).any():
                if rows.where is None:
                    raise UnreadableError
                what = "weights that are not negative"
                check_values(rows.where, name, weights, weights >= 0, what)
            yield rows

    def _used(self, rows: StreamedRows, label: str) -> list[str]:
        """Return the texts of labels of rows that have a weight, none of which may be empty."""
        if rows.weights is None:
            return rows.labels
        heavy = rows.weights != 0
        used = np.bincount(rows.label_index, heavy, len(rows.labels)) > 0
        texts = [text for text, is_used in zip(rows.labels, used, strict=True) if is_used]
        if "" in texts:
            if rows.where is None:
                raise UnreadableError
            row = int(np.argmax(heavy & (rows.label_index == rows.labels.index(""))))
            raise CommandError(empty_label(rows.where, label, row))
        return texts

    def _codes(self, rows: StreamedRows) -> np.ndarray:
        # Labels that only rows of weight zero have are no classes; their code does not matter.
        codes = [self._code.get(text, 0) for text in rows.labels]
        return np.array(codes, dtype=np.int64)[rows.label_index]

    def _known(self, rows: Iterator[tuple[np.ndarray, Read]]) -> Iterator[Read]:
        """Yield blocks without the rows that lack any of some scores (n, m)."""
        skipped, kept = 0, []
        for scores, (values, y, weights) in rows:
            keep = ~np.isnan(scores).any(axis=1)
            skipped += len(scores) - int(keep.sum())
            if self._by_rows:
                kept.append(keep)
            if keep.any():
                yield values[keep], y[keep], None if weights is None else weights[keep]
        self.skipped, self._kept = skipped, kept
        if skipped == self.count:
            raise CommandError(f"{self.source.path}: every row lacks a prediction")

    @property
    def _by_rows(self) -> bool:
        """Whether rows have labels of groups or subgroups, which blocks do not hold."""
        return self.groups is not None or self.by is not None

    def say_skipped(self) -> None:
        """Report how many rows were omitted."""
        if self.skipped:
            say(f"rows without predictions, left out: {self.skipped:,} of {self.count:,}")

    def _at_once(self, rows: Callable[[], Iterator[Read]]) -> Read:
        scores, y, weights = zip(*rows(), strict=True)
        all_weights = None if self.weights is None else np.concatenate(weights)
        self.passes += 1
        return np.concatenate(scores), np.concatenate(y), all_weights

    def _wrong(self, rows: StreamedRows, row: int, problem: str, advice: str) -> Exception:
        """Make the error of a row, or one that requests the slower reader, which knows lines."""
        if rows.where is None:
            return UnreadableError()
        position = rows.where.position(row)
        return CommandError(f"{self.source.path}: {problem} in {position}; {advice}")

    def _watch(self, passed: int, done: int, count: int | None) -> None:
        # The pass over the labels was the first.
        self.show(f"{self.source.path.name}: pass {passed + 2}", done, count or self._blocks)

    def _read(self, function: Callable[[], Result]) -> Result:
        try:
            return function()
        except UnreadableError:
            # Use the slower reader, which reads more files and reports positions.
            self.source.fast = False
            return function()


class Training(LabeledFile):
    """Rows to which a calibrator is fitted."""

    _option = "--columns"
    names: list[str]

    def fit(self, calibrator: AnyModel) -> None:
        """Fit a calibrator, to blocks if it accepts them, else to all rows at once."""
        self._read(partial(self._fit, calibrator))

    def _fit(self, calibrator: AnyModel) -> None:
        read = partial(self._rows, calibrator)
        if self.source.large:
            blocks = bc.Blocks(read, progress=self._watch)
            try:
                calibrator.fit(blocks)
            except TypeError:
                # This calibrator needs all rows at once.
                if blocks.passes:
                    raise
            else:
                self.passes += blocks.passes
                return
        calibrator.fit(*self._at_once(read))

    def _rows(self, calibrator: object) -> Iterator[Read]:
        return self._known(self._all_rows(calibrator))

    def _all_rows(self, calibrator: object) -> Iterator[tuple[np.ndarray, Read]]:
        classes = np.asarray(self.classes)
        for rows in self._rows_of(self.label, self.names):
            if getattr(calibrator, "inputs", None) == "probs":
                wrong, scores = partial(self._wrong, rows), rows.scores
                if rows.weights is not None:
                    # Rows of weight zero may hold anything.
                    scores = np.where(rows.weights[:, None] == 0, np.nan, scores)
                check_probabilities(scores, self.names, wrong, "", self._option)
                if len(self.names) > 1:
                    check_sums(scores, wrong, "", "for logits pass --inputs logits")
            yield rows.scores, (rows.scores, classes[self._codes(rows)], rows.weights)


class Judged(LabeledFile):
    """Rows by which models are judged."""

    _option = "--model"
    #: Zeros and ones (n, k) of several labels, which are then the classes.
    _outcomes: np.ndarray | None = None

    def choose_labels(self, columns: Sequence[str], labels: Sequence[str]) -> ModelColumns:
        """Return the columns of a model of several labels; read the outcomes of all rows."""
        others, self.classes = self._others(), list(labels)
        outcomes = self._read(lambda: [self._outcomes_of(name) for name in labels])
        self._outcomes = np.stack(outcomes, axis=1)
        self.count = len(self._outcomes)
        return choose_label_model(self.source.head, columns, labels, others, self._option)

    def _outcomes_of(self, label: str) -> np.ndarray:
        """Read a column of zeros and ones (n,)."""
        source, parts = self.source, []

        def outcome(text: str) -> int | None:
            return _OUTCOMES.get(text.lower().replace(source.form.decimal, "."))

        for rows in self._rows_of(label, []):
            strange = [text for text in self._used(rows, label) if outcome(text) is None]
            if strange:
                raise CommandError(
                    f"{source.path}: column {shorten(label)!r} must hold zeros and ones, as one of "
                    f"several labels (--label), got {shorten(strange[0])!r}"
                )
            codes = np.array([outcome(text) or 0 for text in rows.labels], dtype=np.int8)
            parts.append(codes[rows.label_index])
        return np.concatenate(parts)

    def evaluate(
        self, models: Sequence[ModelColumns], inputs: str, normalize: bool, **options: object
    ) -> bc.Evaluation:
        """Evaluate the models, in blocks if the file is large."""
        return self._read(partial(self._evaluate, models, inputs, normalize, options))

    def _evaluate(
        self, models: Sequence[ModelColumns], inputs: str, normalize: bool, options: dict[str, Any]
    ) -> bc.Evaluation:
        # All models are judged by the same rows.
        names = list(dict.fromkeys(name for model in models for name in model.columns))
        readers = {
            model.name: partial(self._rows, model, names, inputs, normalize) for model in models
        }
        if self.source.large and not self._by_rows:
            blocks = {name: bc.Blocks(rows, progress=self._watch) for name, rows in readers.items()}
            evaluation = bc.evaluate(blocks, **options)
            self.passes += sum(part.passes for part in blocks.values())
            return evaluation
        read = {name: self._at_once(rows) for name, rows in readers.items()}
        _, y, weights = next(iter(read.values()))
        probs = {name: array for name, (array, *_) in read.items()}
        groups, by = self._column(self.groups), self._column(self.by)
        return bc.evaluate(probs, y, weights=weights, groups=groups, by=by, **options)

    def read(
        self,
        use: Callable[[Iterable[Read], np.ndarray | None], None],
        model: ModelColumns,
        inputs: str,
    ) -> None:
        """Let ``use`` go through the rows of a model once, in order.

        Its second argument is the text in the column of groups, if there is one; all rows are then
        read at once.
        """

        def once() -> None:
            blocks = self._rows(model, model.columns, inputs, None)
            if self.groups is None:
                use(blocks, None)
            else:
                rows = self._at_once(lambda: blocks)
                use([rows], self._column(self.groups, missing=True))

        self._read(once)

    def _column(self, name: str | None, missing: bool = False) -> np.ndarray | None:
        """Return the text (n,) in a column, for all rows at once.

        Text that is absent is None if it may be ``missing``, and otherwise an error.
        """
        if name is None:
            return None
        rows = self.source.rows(Wanted(name, [], None, missing=missing))
        texts = np.concatenate(
            [np.array(block.labels, object)[block.label_index] for block in rows]
        )
        texts[texts == ""] = None
        return texts[np.concatenate(self._kept)]

    def _rows(
        self, model: ModelColumns, names: list[str], inputs: str, normalize: bool | None
    ) -> Iterator[Read]:
        order = model.ordered(self.classes)
        # All columns are read only if they determine which rows are omitted.
        read = names if self.source.form.skip_missing else order
        index = [read.index(name) for name in order]
        return self._known(self._all_rows(model, read, index, inputs, normalize))

    def _all_rows(
        self,
        model: ModelColumns,
        names: list[str],
        order: list[int],
        inputs: str,
        normalize: bool | None,
    ) -> Iterator[tuple[np.ndarray, Read]]:
        outcomes, label, first = self._outcomes, self.label, 0
        several = outcomes is not None
        label = self.classes[0] if several else label
        for rows in self._rows_of(label, names):
            wrong, scores = partial(self._wrong, rows), rows.scores[:, order]
            how = inputs, normalize, wrong, several
            probs = as_probabilities(scores, model, self.classes, *how)
            end = first + len(scores)
            y = self._codes(rows) if outcomes is None else outcomes[first:end].astype(np.int64)
            yield rows.scores, (probs, y, rows.weights)
            first = end
