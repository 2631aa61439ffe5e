"""Rows of a fit that come in blocks: what is known of them all, and sums over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from bayescal._core.arrays import on_host
from bayescal._core.blocks import slices
from bayescal._core.checkpoint import Sums
from bayescal._core.checks import (
    as_numpy,
    check_weights_of,
    column_names,
    in_order,
    power_of_weights,
)
from bayescal._core.labels import (
    Classes,
    check_classes,
    class_array,
    find_positions,
    of_one_kind,
)
from bayescal._core.stream import Block, Blocks, add
from bayescal.calibrators._inputs import (
    FLOOR,
    LOGARITHMIC,
    Domain,
    Inputs,
    convert,
    floors,
    widen,
)
from bayescal.calibrators._labels import MORE, distinct, label_array
from bayescal.calibrators._member import Rows
from bayescal.calibrators._top_rows import check_distinct, pack, unpack

__all__ = ["RowBlocks", "rows_of_sample", "survey"]

#: Called with scores in the domain of a calibrator, labels as positions and positive weights.
OfRows: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], Sums]
#: Rows, and numbers at most, of the sample from which fits start.
_SAMPLE, _NUMBERS = 1 << 18, 1 << 22
#: Scores of which a design is made at once: the processor's cache holds what it takes.
_AT_ONCE = 1 << 14
#: Numbers of the rows that are worked on at once, beside the block that holds them: no fewer than
#: in the sample.
_AT_WORK = 1 << 22


@dataclass(frozen=True)
class Reader:
    """How blocks are made into scores in a domain, positions of labels, and weights."""

    inputs: Inputs
    domain: Domain
    names: list[object] | None
    columns: int
    classes: np.ndarray
    least: np.ndarray | None
    #: Of two, by which weights are multiplied.
    power: int

    def parts(self, block: Block) -> Iterator[Rows]:
        """Yield the rows of positive weight, some at a time where there are many numbers."""
        given = block_rows(block, self.names, self.inputs, self.columns, self.classes)
        y = find_positions(of_one_kind(label_array(block.y, len(given))), self.classes)
        weights = np.ones(len(given))
        if block.weights is not None:
            weights = check_weights_of(block.weights, len(given), "sample_weight")
            weights = np.ldexp(weights, self.power) if self.power else weights
        for part in slices(len(given), max(1, _AT_WORK // self.columns)):
            scores = convert(given[part], self.inputs, self.domain, self.least)[0]
            rows = Rows(scores, y[part], weights[part])
            yield rows if rows.weights.all() else rows.take(rows.weights > 0)


@dataclass(frozen=True)
class RowBlocks:
    """Rows that come in blocks, and what a first pass over them found.

    ``total`` makes a pass: it adds what a function makes of the rows of each block.
    """

    blocks: Blocks
    reader: Reader
    #: Numbers of rows and of classes, and the sum of weights, of all and by class (k,).
    n: int
    k: int
    weight: float
    mass: np.ndarray
    #: Whether weights are whole numbers, and the sum of their squares.
    whole: bool
    squares: float
    #: The greatest size of a score, and for one column the least and greatest score.
    largest: float
    low: float
    high: float
    #: Some of the rows, drawn evenly.
    sample: Rows
    #: What is done with rows before anything else.
    steps: tuple[Callable[[Rows], Rows], ...] = ()

    @property
    def few(self) -> bool:
        """Whether there are no more rows than a sample may have."""
        return self.n <= rows_of_sample(self.reader.columns)

    @property
    def share(self) -> float:
        """The weight of the sample beside that of all rows."""
        return float(self.sample.weights.sum()) / self.weight

    def total(self, function: OfRows, merge: Callable[[Sums, Sums], Sums] = add) -> Sums:
        """Make a pass: call a function with the rows of each block, and add the results."""
        return self.blocks.total(partial(_on_rows, self.reader, self.steps, function, merge), merge)

    def all(self) -> Rows:
        """Return few rows, all at once; a pass is made if blocks differ so much that some lack."""
        if len(self.sample.y) == self.n:
            return self.sample
        found = self.total(_as_sums, _behind)
        return Rows(found["scores"], found["y"], found["weights"])

    def mapped(self, step: Callable[[Rows], Rows], largest: float) -> RowBlocks:
        """Return the same after a step that changes scores, whose greatest size is then given."""
        with np.errstate(all="ignore"):
            sample = step(self.sample)
        k = sample.scores.shape[1] if sample.scores.ndim == 2 else self.k
        return replace(self, steps=(*self.steps, step), sample=sample, largest=largest, k=k)

    def divided(self, unit: float) -> RowBlocks:
        """Return the same with scores divided by a number."""
        return self if unit == 1 else self.mapped(partial(_divide, unit), self.largest / unit)


def _divide(unit: float, rows: Rows) -> Rows:
    return rows._replace(scores=rows.scores / unit)


def _as_sums(scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Sums:
    return {"scores": scores, "y": y, "weights": weights}


def _behind(first: Sums, second: Sums) -> Sums:
    """Return arrays of rows, one behind the other."""
    return {name: np.concatenate([own, second[name]]) for name, own in first.items()}


def of_design(
    make: Callable[[Rows], Any],
    function: Callable[[Any], Sums],
    merge: Callable[[Sums, Sums], Sums],
    scores: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
) -> Sums:
    """Return the sum of what a function makes of the designs of rows, some at a time."""
    found: Sums | None = None
    for part in slices(len(y), max(1, _AT_ONCE // max(1, scores[0].size))):
        own = function(make(Rows(scores[part], y[part], weights[part])))
        found = own if found is None else merge(found, own)
    assert found is not None
    return found


def block_rows(
    block: Block,
    names: list[object] | None,
    inputs: Inputs,
    columns: int,
    classes: np.ndarray,
) -> np.ndarray:
    """Return scores (n, columns) of a block as users give them, in the order of the classes."""
    if inputs == "top_logits":
        # The sample is packed already.
        rows = block.scores if on_host(block.scores) else pack(block.scores, len(classes))
    else:
        rows = _numbers(block, inputs)
    if rows.shape[1] != columns:
        raise ValueError(f"scores must have {columns} columns, got {rows.shape[1]}")
    return in_order(rows, column_names(block.scores) or names, classes, "scores")


def _on_rows(
    reader: Reader,
    steps: tuple[Callable[[Rows], Rows], ...],
    function: OfRows,
    merge: Callable[[Sums, Sums], Sums],
    block: Block,
) -> Sums | None:
    sums = None
    for rows in reader.parts(block):
        if not len(rows.y):
            continue
        with np.errstate(all="ignore"):
            for step in steps:
                rows = step(rows)
            found = function(*rows)
        sums = found if sums is None else merge(sums, found)
    return sums


def survey(
    blocks: Blocks, inputs: Inputs, domain: Domain, classes: Classes, binary: bool
) -> RowBlocks:
    """Make the first pass, which checks the rows, and finds what all fits need to know."""
    top = 0 if inputs != "top_logits" or classes is None else len(class_array(classes))
    found = blocks.total(partial(_look, inputs, domain, blocks.names, top), _join)
    columns, names = int(found["columns"]), found["names"].tolist()
    k = top or (2 if binary else max(2, columns))
    labels = check_classes(found["labels"], classes, k, MORE)
    mass = np.bincount(find_positions(found["labels"], labels), found["mass"], k)
    least = None
    if inputs == "probs" and domain in LOGARITHMIC:
        sizes = in_order(np.stack([found["lowest"], found["positive"]]), names or None, labels)
        least = floors(*sizes)
    exponent = int(found["exponent"])
    power = power_of_weights(float(np.ldexp(1.0, exponent - 1)))
    unit = float(np.ldexp(1.0, power + exponent))
    reader = Reader(inputs, domain, names or None, columns, labels, least, power)
    drawn = Block(0, *_sample(found, columns))
    return RowBlocks(
        blocks,
        reader,
        int(found["n"]),
        k,
        float(found["mass"].sum()) * unit,
        mass * unit,
        bool(found["fractions"] == 0 and power <= 0),
        float(found["squares"]) * unit**2,
        *found["ends"].tolist(),
        sample=next(reader.parts(drawn)),
    )


def _look(
    inputs: Inputs, domain: Domain, names: list[object] | None, top: int, block: Block
) -> Sums | None:
    """Check the rows of a block, and return what a first pass is for.

    Where logits are truncated, ``top`` is the number of classes.
    """
    rows = pack(block.scores, top) if top else _numbers(block, inputs)
    if top:
        check_distinct(rows, top)
    if len(getattr(block.scores, "shape", ())) == 2:  # the name of a series is none of a feature
        names = column_names(block.scores) or names
    names = names or []
    if len(names) == 1 and not isinstance(names[0], str):
        names = []
    y = of_one_kind(label_array(block.y, len(rows)))
    weights = np.ones(len(rows))
    if block.weights is not None:
        weights = check_weights_of(block.weights, len(rows), "sample_weight")
        if not weights.all():
            used = weights > 0
            rows, y, weights = rows[used], y[used], weights[used]
    if not len(rows):
        return None
    columns = rows.shape[1]
    lowest, least = np.empty((2, 0)), None
    if inputs == "probs" and domain in LOGARITHMIC:
        lowest = _lowest(np.stack([1 - rows[:, 0], rows[:, 0]], 1) if columns == 1 else rows)
        least = np.full(lowest.shape[1], FLOOR)
    values = convert(rows, inputs, domain, least)[0]
    sizes = unpack(values, top).x if top else values
    low, high = sizes.min(), sizes.max()
    labels, place = distinct(y, whole=False)
    exponent = int(np.frexp(weights.max())[1])
    scaled = np.ldexp(weights, -exponent)
    draws = np.random.default_rng([block.number, len(y)]).random(len(y))
    # As many as are wanted of all rows, if blocks are alike: few of a late block.
    kept = draws * len(y) * (block.number + 1) < rows_of_sample(columns)
    sample = {"draws": draws, "scores": rows, "y": y, "weights": weights}
    return {
        "names": np.array([str(name) for name in names], str),
        "columns": np.asarray(columns),
        "n": np.asarray(len(y)),
        "labels": labels,
        # Sums of weights over two to the power of the exponent.
        "exponent": np.asarray(exponent),
        "mass": np.bincount(place, scaled),
        "squares": scaled @ scaled,
        "fractions": np.asarray(np.count_nonzero(weights != np.floor(weights))),
        "lowest": lowest[0],
        "positive": lowest[1],
        "ends": np.array([max(-low, high), low, high], float),
        **{f"{name}/{block.number}": own[kept] for name, own in sample.items()},
    }


def _lowest(rows: np.ndarray) -> np.ndarray:
    """Return the least of each column, and the least positive one: (2, k)."""
    found = np.stack([rows.min(axis=0)] * 2).astype(float)
    with_zeros = np.flatnonzero(found[0] <= 0)
    for part in slices(len(with_zeros), 1 + _AT_WORK // len(rows)):
        some = rows[:, with_zeros[part]]
        found[1, with_zeros[part]] = some.min(axis=0, where=some > 0, initial=np.inf)
    return found


def _join(first: Sums, second: Sums) -> Sums:
    """Return what two parts of the rows have in common, and together."""
    for name, what in (("columns", "as many columns"), ("names", "columns of the same names")):
        if not np.array_equal(first[name], second[name]):
            raise ValueError(
                f"scores must have {what} in all blocks, got {first[name].tolist()} and "
                f"{second[name].tolist()}"
            )
    pair = first, second
    labels, place = distinct(np.concatenate([own["labels"] for own in pair]), whole=False)
    exponent = max(int(own["exponent"]) for own in pair)
    scales = [np.ldexp(1.0, int(own["exponent"]) - exponent) for own in pair]
    masses = [own["mass"] * scale for own, scale in zip(pair, scales, strict=True)]
    low, high = np.minimum(first["ends"], second["ends"]), np.maximum(first["ends"], second["ends"])
    sample = {name: own for name, own in {**first, **second}.items() if "/" in name}
    return {
        **first,
        **_thinned(sample, int(first["columns"])),
        **{name: first[name] + second[name] for name in ("n", "fractions")},
        "labels": labels,
        "exponent": np.asarray(exponent),
        "mass": np.bincount(place, np.concatenate(masses)),
        "squares": np.sum([own["squares"] * s**2 for own, s in zip(pair, scales, strict=True)]),
        "lowest": np.minimum(first["lowest"], second["lowest"]),
        "positive": np.minimum(first["positive"], second["positive"]),
        "ends": np.array([high[0], low[1], high[2]]),
    }


def _thinned(sample: Sums, columns: int) -> Sums:
    """Return a sample without rows that are not wanted of it, where these are many."""
    numbers = [name.partition("/")[2] for name in sample if name.startswith("draws/")]
    draws, count = [sample[f"draws/{number}"] for number in numbers], rows_of_sample(columns)
    if sum(map(len, draws)) <= 2 * count:
        return sample
    most = np.partition(np.concatenate(draws), count)[count]
    kept = {number: own <= most for number, own in zip(numbers, draws, strict=True)}
    return {name: own[kept[name.partition("/")[2]]] for name, own in sample.items()}


def _sample(found: Sums, columns: int) -> list[np.ndarray]:
    """Return scores, labels and weights of rows drawn evenly from all blocks."""
    numbers = sorted(int(name.partition("/")[2]) for name in found if name.startswith("draws/"))
    draws, *rest = (
        np.concatenate([found[f"{name}/{number}"] for number in numbers])
        for name in ("draws", "scores", "y", "weights")
    )
    count = rows_of_sample(columns)
    if len(draws) <= count:
        return rest
    kept = np.sort(np.argpartition(draws, count)[:count])
    return [own[kept] for own in rest]


def rows_of_sample(columns: int) -> int:
    """Return how many rows a sample has; so many are also fitted at once, if there are no more."""
    return max(1, min(_SAMPLE, _NUMBERS // columns))


def _numbers(block: Block, inputs: Inputs) -> np.ndarray:
    """Return scores (n, columns) as numbers of single or double precision."""
    rows = as_numpy(widen(block.scores, inputs), "scores")
    if rows.ndim == 1:
        rows = rows.reshape(-1, 1)
    if rows.ndim != 2 or not rows.shape[1]:
        raise ValueError(f"scores must have shape (n,), (n, 1) or (n, k), got {rows.shape}")
    return rows if rows.dtype in (np.float32, np.float64) else rows.astype(float)
