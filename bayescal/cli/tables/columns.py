"""Roles of a table's columns: labels, weights, and the probabilities of each model."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bayescal._core.display.tables import shorten
from bayescal.cli._errors import CommandError, say
from bayescal.cli.tables.cells import describe_text, enumerate_names, find_column, is_number
from bayescal.cli.tables.files import FileTable, advise_sep
from bayescal.data.checks import precision
from bayescal.data.label_names import by_affixes
from bayescal.data.tolerances import RANGE_TOLERANCE, SUM_TOLERANCE

#: How to name the columns, by option.
ADVICE = {
    "--model": "pass --model NAME=COLUMN for the probability of the second class, or "
    "--model NAME=COLUMN,COLUMN,... with a column for each class",
    "--columns": "pass --columns COLUMN for the score of the second class, or --columns "
    "COLUMN,COLUMN,... with a column for each class",
}
#: A function that makes an error from the index of a row, the problem and the remedy.
Wrong = Callable[[int, str, str], Exception]
#: Number of classes beyond which the column of labels may be a wrong one.
_MANY_CLASSES = 20
#: Largest number of text columns that are checked for numbers in another notation.
_DESCRIBED = 20


class ModelColumns(NamedTuple):
    """A model and its columns: that of the second class, or one for each class in their order."""

    name: str
    columns: list[str]
    #: Computes probabilities (n, k) from the columns (n, c), for a model that is a calibrator.
    calibrate: Callable[[np.ndarray], np.ndarray] | None = None

    def ordered(self, classes: Sequence[str]) -> list[str]:
        """Return the columns, in the order of the classes if their names contain these."""
        return (len(self.columns) > 1 and by_name(self.columns, classes)) or self.columns


def choose_models(
    table: FileTable,
    given: Sequence[str],
    label: str,
    others: Sequence[str | None],
    classes: Sequence[str],
    option: str,
) -> list[ModelColumns]:
    """Return the named models, or the only one possible beside labels and ``others``."""
    if given:
        return parse_models(table, given, classes, option)
    used = [name.strip() for name in (label, *others) if name is not None]
    model, left_out = find_columns(table, used, classes, option)
    if left_out:
        say(f"columns without numbers are left out: {enumerate_names(left_out)}")
        for held, advice in (describe_text(table, name, option) for name in left_out[:_DESCRIBED]):
            if advice:
                say(f"{held}; {advice}")
    return [model]


def split_labels(table: FileTable, text: str) -> list[str]:
    """Return the column of labels with this name, or else several columns between commas."""
    names = [column.strip() for column in table.header]
    listed = [] if text.strip() in names or "," not in text else split_names(text, "--label")
    if len(listed) < 2:
        return [text]
    if len(set(listed)) < len(listed):
        raise CommandError(f"--label must name different columns, got {text!r}")
    for name in listed:
        find_column(table, name, "--label")
    return listed


def choose_label_model(
    table: FileTable,
    given: Sequence[str],
    labels: Sequence[str],
    others: Sequence[str | None],
    option: str,
) -> ModelColumns:
    """Return the model whose columns are the probabilities of several labels, in their order."""
    if given:
        name, columns = split_model(table, given[0], option)
        if len(columns) != len(labels):
            raise CommandError(
                f"{option} {given[0]!r} must name {len(labels)} columns, as there are "
                f"{len(labels)} labels, {enumerate_names(labels)}; got {len(columns)}"
            )
        name = "model" if name is None else name
        return ModelColumns(name, _like_labels(columns, labels) or columns)
    used = {name.strip() for name in (*labels, *others) if name is not None}
    names = [column.strip() for column in table.header]
    columns = [
        name
        for j, name in enumerate(names)
        if name not in used and any(is_number(row[j], table.form) for row in table.rows)
    ]
    ordered = _like_labels(columns, labels)
    if ordered is None:
        raise CommandError(
            f"{table.path}: the columns of numbers, {enumerate_names(columns)}, are not named like "
            f"the labels, {enumerate_names(labels)}: pass {option} COLUMN,COLUMN,... with a column "
            "for each label"
        )
    return ModelColumns("model", ordered)


def _like_labels(columns: Sequence[str], labels: Sequence[str]) -> list[str] | None:
    """Return columns in the order of labels, if their names differ only by the labels."""
    if len(columns) != len(labels):
        return None
    begin = _shared_letters(labels)
    end = _shared_letters([label[begin:][::-1] for label in labels])
    cores = [label[begin : len(label) - end] for label in labels]
    return by_name(columns, labels) or by_name(columns, cores)


def _shared_letters(texts: Sequence[str]) -> int:
    """Count the letters with which all texts begin."""
    pairs = enumerate(zip(*texts, strict=False))
    return next((i for i, letters in pairs if len(set(letters)) > 1), min(map(len, texts)))


def label_texts(table: FileTable, name: str, missing: bool) -> tuple[list[str], np.ndarray]:
    """Return the distinct texts of labels, which may be ``missing``, and each row's index (n,)."""
    column = find_column(table, name, "--label")
    index_of: dict[str, int] = {}
    cells = (row[column].strip() for row in table.rows)
    index = np.fromiter((index_of.setdefault(cell, len(index_of)) for cell in cells), np.int64)
    if "" in index_of and not missing:
        row = int(np.argmax(index == index_of[""]))
        raise CommandError(empty_label(table, name, row))
    return list(index_of), index


def empty_label(table: FileTable, name: str, row: int) -> str:
    """Describe an empty label."""
    return (
        f"{table.path}: column {shorten(name)!r} must hold labels, got an empty cell in "
        f"{table.position(row)}"
    )


def find_classes(
    path: Path,
    name: str,
    cells: Collection[str],
    classes: str | Sequence[str] | None,
    decimal: str = ".",
) -> tuple[list[str], dict[str, int]]:
    """Return the names of the classes, and the code of each text in a column of labels."""
    listed = split_names(classes, "--classes") if isinstance(classes, str) else classes
    texts = {*cells, *(listed or [])}
    exact = {text: _exact(text.replace(decimal, ".")) for text in texts}
    numbers = {text: value for text, value in exact.items() if value is not None}
    numeric = len(numbers) == len(texts)
    values = {text: _plain(numbers[text]) if numeric else text for text in texts}
    labels = sorted({values[cell] for cell in cells}, key=Decimal if numeric else None)
    order = labels if listed is None else [values[cell] for cell in listed]
    if len(set(order)) < len(order):
        raise CommandError(f"--classes must be different labels, got {classes!r}")
    strange = [label for label in labels if label not in set(order)]
    if strange:
        raise CommandError(
            f"{path}: column {shorten(name)!r} must hold only the classes {enumerate_names(order)} "
            f"(--classes), got {shorten(strange[0])!r}"
        )
    if len(order) < 2:
        raise CommandError(
            f"{path}: column {shorten(name)!r} must hold two classes or more, got only "
            f"{shorten(order[0])!r}; "
            "if the data lack a class, name all classes with --classes"
        )
    code = {label: j for j, label in enumerate(order)}
    return order, {text: code[value] for text, value in values.items()}


def split_model(table: FileTable, entry: str, option: str) -> tuple[str | None, list[str]]:
    """Split ``NAME=COLUMN,...`` into name and columns; the name may be omitted, and is then None.

    Names of columns may contain equals signs.
    """
    name, equals, listed = entry.partition("=")
    columns = split_names(listed if equals else entry, option)
    known = {column.strip() for column in table.header}
    if equals and not known.issuperset(columns):
        whole = split_names(entry, option)
        if known.issuperset(whole):
            return None, whole
    return name.strip() if equals else None, columns


def parse_models(
    table: FileTable, models: Sequence[str], classes: Sequence[str], option: str
) -> list[ModelColumns]:
    """Parse the entries of an option that names the columns of models."""
    models_found = []
    for entry in models:
        name, columns = split_model(table, entry, option)
        if len(columns) not in ({1, 2} if len(classes) == 2 else {len(classes)}):
            number = "one column or two" if len(classes) == 2 else f"{len(classes)} columns"
            raise CommandError(
                f"{option} {entry!r} must name {number}, as there are {len(classes)} classes, "
                f"{enumerate_names(classes)}; got {len(columns)}{_doubt(classes)}"
            )
        models_found.append(ModelColumns(", ".join(columns) if name is None else name, columns))
    names = [model.name for model in models_found]
    if "" in names or len(set(names)) < len(names):
        raise CommandError(f"{option} must have names that differ, got {enumerate_names(names)}")
    return models_found


def find_columns(
    table: FileTable, used: Sequence[str], classes: Sequence[str], option: str
) -> tuple[ModelColumns, list[str]]:
    """Return the only model that the unused columns can be, and the columns without numbers.

    A single column of numbers is the probability of the second class. As many columns as classes
    are their probabilities, if there are more than two or they are named like the classes. Anything
    else is an error.
    """
    names = [column.strip() for column in table.header]
    rest = [j for j, name in enumerate(names) if name not in used]
    numeric = [j for j in rest if any(is_number(row[j], table.form) for row in table.rows)]
    left_out = [names[j] for j in rest if j not in numeric]
    columns = [names[j] for j in numeric]
    k = len(classes)
    if len(columns) == 1 and k == 2:
        return ModelColumns(columns[0] or "model", columns), left_out
    if len(columns) == k and (k > 2 or by_name(columns, classes) is not None):
        return ModelColumns("model", columns), left_out
    if not columns:
        described = [describe_text(table, name, option) for name in left_out[:_DESCRIBED]]
        reported = [pair for pair in described if pair[1]][:1] or described[:3]
        held = ", ".join(held for held, _ in reported)
        advice = next((advice for _, advice in reported if advice), "there must be probabilities")
        raise CommandError(
            f"{table.path}: no column of numbers beside the label{held and f': {held}'}; {advice}"
            f"{advise_sep(names)}"
        )
    raise CommandError(
        f"{table.path}: {len(columns)} columns of numbers, {enumerate_names(columns)}, and {k} "
        f"classes, {enumerate_names(classes)}: {ADVICE[option]}{_doubt(classes)}"
    )


def _doubt(classes: Sequence[str]) -> str:
    """If there are many classes, ask whether the column of labels is the right one."""
    many = len(classes) > _MANY_CLASSES
    return "; or is --label not the column of labels?" if many else ""


def by_name(columns: Sequence[str], classes: Sequence[str]) -> list[str] | None:
    """Return the columns in the order of the classes, if the names differ only by the classes."""
    index = by_affixes(columns, classes)
    return None if index is None else [columns[j] for j in index]


def as_probabilities(
    values: np.ndarray,
    model: ModelColumns,
    classes: Sequence[str],
    inputs: str,
    normalize: bool | None,
    wrong: Wrong,
    several: bool = False,
) -> np.ndarray:
    """Convert columns (n, c) to probabilities (n,) or (n, k) in the order of the classes.

    If ``several`` labels may apply, rows need not add up to one. ``normalize`` is None if there is
    no such option. ``wrong`` makes an error from the index of a row, the problem and the remedy.
    """
    order = model.ordered(classes)
    if model.calibrate is not None:
        return model.calibrate(values)
    if inputs == "logits":
        from bayescal._core.numerics import sigmoid, softmax

        if several or len(order) == 1:
            return sigmoid((values if several else values[:, 0]).astype(float))
        return softmax(values)
    check_probabilities(values, order, wrong, f" of model {shorten(model.name)!r}", "--model")
    if several:
        return values
    if len(order) == 1:
        return values[:, 0]
    if normalize:
        sums = values.sum(axis=1, dtype=float)
        if not (sums <= 0).any():
            return values / sums[:, None]
    remedy = "write more digits" if normalize is None else "pass --normalize"
    owner = f" of model {shorten(model.name)!r}"
    check_sums(values, wrong, owner, f"where they were rounded, {remedy}")
    return values


def are_percentages(values: np.ndarray) -> bool:
    """Whether numbers look like percentages: within [0, 100], but not all within [0, 1]."""
    known = values[~np.isnan(values)]
    return bool(known.min(initial=0) >= 0 and 1 + RANGE_TOLERANCE < known.max(initial=0) <= 100)


def check_probabilities(
    values: np.ndarray, columns: Sequence[str], wrong: Wrong, owner: str, option: str
) -> None:
    """Raise if columns (n, c) do not contain probabilities; ``owner`` is their model."""
    outside = np.argwhere((values < -RANGE_TOLERANCE) | (values > 1 + RANGE_TOLERANCE))
    if len(outside):
        i, j = map(int, outside[0])
        likely = "percentages" if are_percentages(values) else "logits"
        raise wrong(
            i,
            f"column {shorten(columns[j])!r}{owner} must hold probabilities, got {values[i, j]:g}",
            f"for {likely} pass --inputs {likely.removesuffix('ages')}, and if the column is "
            f"something else, {ADVICE[option]}",
        )


def check_sums(values: np.ndarray, wrong: Wrong, owner: str, remedy: str) -> None:
    """Raise if rows (n, k) of probabilities do not add up to one; ``owner`` is their model."""
    sums = values.sum(axis=1, dtype=float)
    tolerance = max(SUM_TOLERANCE, values.shape[1] * precision(values.dtype))
    off = np.flatnonzero(np.abs(sums - 1) > tolerance)
    if off.size:
        i = int(off[0])
        raise wrong(i, f"the probabilities{owner} must add up to one, got {sums[i]:g}", remedy)


def split_names(text: str, option: str) -> list[str]:
    """Split names at commas; names that contain commas are quoted as in a CSV file."""
    try:
        (names,) = filter(None, csv.reader([text], strict=True, skipinitialspace=True))
    except (csv.Error, ValueError):
        raise CommandError(f"{option} must be names with commas between, got {text!r}") from None
    return [name.strip() for name in names]


def _exact(text: str) -> Decimal | None:
    """Return the exact value of a number, or None if the text is not a number."""
    if is_number(text):
        with contextlib.suppress(InvalidOperation):
            return Decimal(text)
    return None


def _plain(value: Decimal) -> str:
    """Return the text of a number; exactly equal numbers have one text."""
    if value == value.to_integral_value():
        return str(int(value))
    short = repr(float(value))
    if Decimal(short) == value:
        return short
    # Drop trailing zeros by hand; the methods of Decimal would round.
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    return f"{'-' * sign}{text}e{int(exponent) + len(digits) - len(text)}"
