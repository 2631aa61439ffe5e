"""The first pass over rows in blocks, which checks them and draws a sample."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from bayescal._core.numerics import FLOOR
from bayescal.data.blocks.reader import (
    AT_WORK,
    Reader,
    RowBlocks,
    as_numbers,
    block_rows,
    labeled,
    rows_of_sample,
)
from bayescal.data.blocks.stream import Block, Blocks
from bayescal.data.kept_rows import keep_rows
from bayescal.data.label_names import (
    Classes,
    check_classes,
    class_array,
    column_names,
    find_positions,
    in_order,
)
from bayescal.data.labels import MORE, distinct
from bayescal.data.language_models.top_logits import check_distinct, pack, unpack
from bayescal.data.rows import Sums
from bayescal.data.scores import LOGARITHMIC, Domain, Inputs, convert, floors, least_of_classes
from bayescal.data.weights import power_of_weights


def survey(
    blocks: Blocks, inputs: Inputs, domain: Domain, classes: Classes, binary: bool
) -> RowBlocks:
    """Make the first pass: check the rows, and compute what all fits need."""
    top = 0 if inputs != "top_logits" or classes is None else len(class_array(classes))
    sums = blocks.total(partial(_look, inputs, domain, blocks.names, top), _join)
    columns, names = int(sums["columns"]), sums["names"].tolist()
    k = top or (2 if binary else max(2, columns))
    labels = check_classes(sums["labels"], classes, k, MORE)
    mass = np.bincount(find_positions(sums["labels"], labels), sums["mass"], k)
    least = None
    if inputs == "probs" and domain in LOGARITHMIC:
        sizes = in_order(np.stack([sums["lowest"], sums["positive"]]), names or None, labels)
        least = floors(*sizes)
    exponent = int(sums["exponent"])
    power = power_of_weights(float(np.ldexp(1.0, exponent - 1)))
    unit = float(np.ldexp(1.0, power + exponent))
    reader = Reader(inputs, domain, names or None, columns, labels, least, power)
    drawn = Block(0, *_sample(sums, columns))
    sample = next(reader.parts(drawn, AT_WORK))
    rows = block_rows(drawn, names or None, inputs, columns, labels)
    kept = keep_rows(rows, sample.y, sample.weights)
    n, weight = int(sums["n"]), float(sums["mass"].sum()) * unit
    whole, squares = bool(sums["fractions"] == 0 and power <= 0), float(sums["squares"]) * unit**2
    return RowBlocks(
        blocks,
        reader,
        n,
        k,
        weight,
        mass * unit,
        whole,
        squares,
        *sums["ends"].tolist(),
        sample=sample,
        kept=replace(kept, n=n, weight=weight, squares=squares, whole=whole),
    )


def _look(
    inputs: Inputs, domain: Domain, names: list[object] | None, top: int, block: Block
) -> Sums | None:
    """Check the rows of a block, and return what the first pass collects.

    For truncated logits, ``top`` is the number of classes.
    """
    rows = pack(block.scores, top) if top else as_numbers(block, inputs)
    if top:
        check_distinct(rows, top)
    if len(getattr(block.scores, "shape", ())) == 2:  # the name of a series is none of a feature
        names = column_names(block.scores) or names
    names = names or []
    if len(names) == 1 and not isinstance(names[0], str):
        names = []
    rows, y, weights = labeled(rows, block)
    if not len(rows):
        return None
    columns = rows.shape[1]
    lowest, least = np.empty((2, 0)), None
    if inputs == "probs" and domain in LOGARITHMIC:
        lowest = np.stack(least_of_classes(rows))
        least = np.full(lowest.shape[1], FLOOR)
    looked = rows
    if columns == 1 and not top:
        # All domains preserve the order of scores, so only the ends are converted.
        ends = np.array([[rows.min()], [rows.max()]])
        looked = ends if np.isfinite(ends).all() else rows
    values = convert(looked, inputs, domain, least)[0]
    sizes = unpack(values, top).x if top else values
    low, high = sizes.min(), sizes.max()
    labels, index = distinct(y, whole=False)
    exponent = int(np.frexp(weights.max())[1])
    scaled = np.ldexp(weights, -exponent)
    # Draw fewer rows from later blocks, so that the sample of equal blocks has its final size.
    fraction = min(1.0, rows_of_sample(columns) / (len(y) * (block.number + 1)))
    draws, kept = _drawn(np.random.default_rng([block.number, len(y)]), len(y), fraction)
    sample = {"scores": rows[kept], "y": y[kept], "weights": weights[kept], "draws": draws}
    return {
        "names": np.array([str(name) for name in names], str),
        "columns": np.asarray(columns),
        "n": np.asarray(len(y)),
        "labels": labels,
        # Sums of weights over two to the power of the exponent.
        "exponent": np.asarray(exponent),
        "mass": np.bincount(index, scaled),
        "squares": scaled @ scaled,
        "fractions": np.asarray(np.count_nonzero(weights != np.floor(weights))),
        "lowest": lowest[0],
        "positive": lowest[1],
        "ends": np.array([max(-low, high), low, high], float),
        "fraction": np.asarray(fraction),
        **{f"{name}/{block.number}": value for name, value in sample.items()},
    }


def _drawn(rng: np.random.Generator, n: int, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw those of n uniform numbers that are below ``fraction``; also return their positions."""
    if fraction == 1:
        return rng.random(n), np.arange(n)
    kept = np.zeros(n, bool)
    kept[rng.choice(n, rng.binomial(n, fraction), replace=False, shuffle=False)] = True
    drawn = np.flatnonzero(kept)
    return fraction * rng.random(len(drawn)), drawn


def _join(first: Sums, second: Sums) -> Sums:
    """Merge the results of two parts of the rows."""
    for name, what in (("columns", "as many columns"), ("names", "columns of the same names")):
        if not np.array_equal(first[name], second[name]):
            raise ValueError(
                f"scores must have {what} in all blocks, got {first[name].tolist()} and "
                f"{second[name].tolist()}"
            )
    pair = first, second
    kinds = ["numbers" if part["labels"].dtype.kind in "biuf" else "text" for part in pair]
    if kinds[0] != kinds[1]:
        raise TypeError("y must hold labels of one kind in all blocks, got text and numbers")
    labels, index = distinct(np.concatenate([part["labels"] for part in pair]), whole=False)
    exponent = max(int(part["exponent"]) for part in pair)
    scales = [np.ldexp(1.0, int(part["exponent"]) - exponent) for part in pair]
    masses = [part["mass"] * scale for part, scale in zip(pair, scales, strict=True)]
    low, high = np.minimum(first["ends"], second["ends"]), np.maximum(first["ends"], second["ends"])
    sample = {name: value for name, value in {**first, **second}.items() if "/" in name}
    return {
        **first,
        **_thinned(sample, int(first["columns"])),
        **{name: first[name] + second[name] for name in ("n", "fractions")},
        "labels": labels,
        "exponent": np.asarray(exponent),
        "mass": np.bincount(index, np.concatenate(masses)),
        "squares": np.sum([part["squares"] * s**2 for part, s in zip(pair, scales, strict=True)]),
        "lowest": np.minimum(first["lowest"], second["lowest"]),
        "positive": np.minimum(first["positive"], second["positive"]),
        "fraction": np.minimum(first["fraction"], second["fraction"]),
        "ends": np.array([high[0], low[1], high[2]]),
    }


def _thinned(sample: Sums, columns: int) -> Sums:
    """Drop unwanted rows of a sample if it holds many."""
    numbers = [name.partition("/")[2] for name in sample if name.startswith("draws/")]
    draws, count = [sample[f"draws/{number}"] for number in numbers], rows_of_sample(columns)
    if sum(map(len, draws)) <= 2 * count:
        return sample
    most = np.partition(np.concatenate(draws), count)[count]
    kept = {number: draw <= most for number, draw in zip(numbers, draws, strict=True)}
    return {name: value[kept[name.partition("/")[2]]] for name, value in sample.items()}


def _sample(sums: Sums, columns: int) -> list[np.ndarray]:
    """Return scores, labels and weights of rows drawn evenly from all blocks."""
    numbers = sorted(int(name.partition("/")[2]) for name in sums if name.startswith("draws/"))
    draws, *rest = (
        np.concatenate([sums[f"{name}/{number}"] for number in numbers])
        for name in ("draws", "scores", "y", "weights")
    )
    # Small blocks are drawn more densely than large ones; what they have in addition is dropped.
    even = max(1, np.count_nonzero(draws < sums["fraction"]))
    count = min(rows_of_sample(columns), even)
    if len(draws) <= count:
        return rest
    kept = np.sort(np.argpartition(draws, count)[:count])
    return [column[kept] for column in rest]
