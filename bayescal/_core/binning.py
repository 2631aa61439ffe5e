"""Bins of equal width and of equal mass: the single definition of each.

Bins of equal width are (j / bins, (j + 1) / bins], with 0 in the first. A score within the rounding
errors of its type of a border counts as on it, so that 0.6 is in the same bin in single and in
double precision. If borders are closer together than that, a score is on the nearest one.

Bins of equal mass divide rows in ascending order at the masses of :func:`mass_borders`. If all
weights are integers, hence counts, bins contain equally many rows, and the first ones one more if
the number does not divide; otherwise bins have equal weight. A weight of 2 equals the row twice. A
border may fall within rows of one value, up to rounding (:func:`begins_tie`). For sums over bins
(:func:`equal_mass_sums`), such ties are divided in proportion, so that the order of rows does not
matter. If a value must belong to one bin, as in a calibrator (:func:`equal_mass_cuts`) or if rows
of a bin are counted (with ``least``), the border moves to the nearer end of the ties.
"""

from __future__ import annotations

import math
from functools import lru_cache
from types import ModuleType
from typing import TypeAlias, cast

import numpy as np

from bayescal._core.arrays import AnyArray, Array, ArrayT, X, XArray, namespace, on_host, search
from bayescal._core.lazy import jax, jnp

#: Machine epsilon of float64 and of float32, and a value between those of float64 and other types.
EPS, SINGLE, _DOUBLE = 2.0**-52, 2.0**-23, 2.0**-40
#: Scores in double precision that differ by at most this are equal. Averages of hundreds of
#: probabilities, added in different orders, differ by up to five times the epsilon.
TIE = 8 * EPS
#: Scores that differ by more than this fraction never tie, in double and in single precision.
_CLOSE, _CLOSE_SINGLE = 2.0**-20, 2.0**-10
#: Masses that differ by less than this fraction of a bin's are equal.
SLACK = 1e-9
#: The bits of 0.5.
ONE_HALF = 0x3FE << 52
#: Cells by the exponent and seven binary digits, and the cell of 0.5.
_SHIFT, MIDDLE = 45, ONE_HALF >> 45
#: Rows that usually show that not all numbers are of single precision.
_FEW_ROWS = 64
_Flag: TypeAlias = Array | bool


def equal_width_cell(
    predicted: ArrayT, bins: int, xp: ModuleType, precision: XArray | float = EPS
) -> ArrayT:
    """Return the bin (j / bins, (j + 1) / bins] of each prediction, with 0 in the first.

    ``precision`` is the machine epsilon of the type of the given predictions.
    """
    if xp is np:
        integer, ends = np.intp, _width_ends(bins, float(cast("float", precision)))
    else:
        dtype = predicted.dtype
        precision = jnp.maximum(jnp.asarray(precision, dtype), jnp.finfo(dtype).eps)
        integer, ends = jnp.int32, _all_ends(jnp.arange(1, bins).astype(dtype) / bins, precision)
    # A product is never rounded down beyond the end of a bin, which is above the border.
    cell = (predicted * bins).astype(integer)
    past = predicted <= ends.take(cell, mode="clip")
    return cell - past.astype(integer)  # type: ignore[return-value]


def _all_ends(borders: X, precision: XArray | float) -> X:
    """Return the ends (bins + 1,) of bins of equal width, with one below and one above all."""
    xp, inner = namespace(borders), border_ends(borders, precision)
    outer = xp.asarray([-1.0, 2.0], dtype=inner.dtype)
    return xp.concat([outer[:1], inner, outer[1:]])


@lru_cache
def _width_ends(bins: int, precision: float) -> np.ndarray:
    return _all_ends(np.arange(1, bins) / bins, precision)


def border_ends(borders: X, precision: XArray | float) -> X:
    """Return the largest scores that count as on borders (k,) of bins of equal width.

    They are the ``precision`` of scores above the border, their machine epsilon but at least
    ``TIE``, and at most half a bin. Scores less precise than double precision are compared in
    single precision, so that single-precision programs and NumPy agree on all scores.
    """
    xp = namespace(borders)
    width = borders[:1] if borders.shape[0] else borders
    slack = xp.minimum(xp.clip(xp.ones_like(borders) * precision, TIE, None), width / 2)
    if borders.dtype == xp.float32:
        return borders + slack
    single = xp.astype(borders, xp.float32) + xp.astype(slack, xp.float32)
    single = xp.astype(single, borders.dtype)
    if isinstance(precision, float):
        return single if precision > _DOUBLE else borders + slack
    return xp.where(xp.asarray(precision > _DOUBLE), single, borders + slack)


def threshold_slack(thresholds: np.ndarray, precision: float) -> np.ndarray:
    """Return how far rounding moves predictions of a type's precision from equal thresholds."""
    return thresholds * max(precision / 2, TIE)


def width_cell_of_any(scores: ArrayT, bins: int, xp: ModuleType) -> ArrayT:
    """Return the bins of equal width of scores (n,) in double precision, some of them rounded.

    Rounded scores are those that single precision represents exactly. NaN may be in any bin.
    """
    if xp is np and np.isnan(scores).any():
        scores = np.where(np.isnan(scores), 0.0, scores)  # type: ignore[assignment]
    cell, single = equal_width_cell(scores, bins, xp), is_single(scores)
    if xp is np and not single.any():
        return cell
    return xp.where(single, equal_width_cell(scores, bins, xp, SINGLE), cell)


def width_place(borders: X, scores: X) -> X:
    """Find bins of equal width in compiled programs, by search among their borders (k,)."""
    xp = namespace(scores)
    index = search(border_ends(borders, SINGLE), scores)
    if scores.dtype == xp.float32:
        return index
    return xp.where(is_single(scores), index, search(border_ends(borders, EPS), scores))


def is_single(scores: X) -> X:
    """Return which scores single precision represents exactly."""
    xp = namespace(scores)
    if on_host(scores):
        with np.errstate(over="ignore", under="ignore"):
            return cast("X", scores.astype(np.float32) == scores)
    return xp.astype(xp.astype(scores, xp.float32), scores.dtype) == scores


def single_beyond(values: np.ndarray, end: float) -> np.ndarray:
    """Return the next single-precision number toward an infinite end, or else the value."""
    with np.errstate(over="ignore", under="ignore"):
        single = np.nextafter(values, end).astype(np.float32)
        inside = single >= values if end < 0 else single <= values
        moved = np.where(inside, np.nextafter(single, np.float32(end)), single).astype(float)
    return np.where(np.isfinite(moved), moved, values)


def take_step(values: X, index: X, scores: X) -> X:
    """Return the values at index (m,), and NaN for scores (m,) that are NaN.

    For libraries that differentiate, the result depends on the scores with a slope of zero.
    """
    if on_host(scores):
        taken = cast("np.ndarray", values).take(cast("np.ndarray", index), axis=0)
        missing = np.isnan(scores)
        return cast("X", np.where(missing, np.nan, taken) if missing.any() else taken)
    xp = namespace(scores)
    return xp.where(xp.isnan(scores), scores, xp.take(values, index, axis=0))


def bin_of(
    predicted: ArrayT, bins: int | np.ndarray, xp: ModuleType, precision: XArray | float = EPS
) -> tuple[ArrayT, int]:
    """Return the bin of each prediction and the number of bins, of equal width or by borders.

    Between ascending borders, for NumPy only, bins are (lower, upper].
    """
    if isinstance(bins, np.ndarray):
        return np.searchsorted(bins, predicted), len(bins) + 1  # type: ignore[return-value]
    return equal_width_cell(predicted, bins, xp, precision), bins


def quantile_borders(predicted: np.ndarray, cells: int) -> np.ndarray:
    """Return borders of about ``cells`` cells of equal mass; large ties get separate cells."""
    steps = np.arange(1, cells) / cells
    borders, times = np.unique(np.quantile(predicted, steps, method="higher"), return_counts=True)
    return np.union1d(borders, np.nextafter(borders[times > 1], -1))


def relative_cell(predicted: np.ndarray, shift: int = _SHIFT) -> np.ndarray:
    """Return cells that ascend with predictions: the bits of a float without the last ``shift``.

    By default cells have a width of 1/128 of the distance to 0 or 1.
    """
    # Use the prediction below one half, and the distance from one above, which is exact.
    distance = np.ascontiguousarray(np.minimum(predicted, 1 - predicted) + 0.0).view(np.int64)
    distance >>= shift
    return np.where(predicted < 0.5, distance, 2 * (ONE_HALF >> shift) - distance)


def equal_mass_sums(
    predicted: Array,
    observed: Array,
    weights: Array,
    bins: int,
    whole: _Flag,
    xp: ModuleType,
    least: Array | float | None = None,
) -> Array:
    """Compute sums (3, bins) over bins of equal mass.

    Cumulative sums over distinct predictions, linear in between, are read off at the borders, which
    divides ties and the rows at a border in proportion. With ``whole`` weights, the first bins
    contain one row more if the number does not divide. With a ``least`` mass of bins there are no
    more of them than contain it, other bins are empty, and ties stay in one bin.
    """
    if xp is not np:
        # Rows that do not count tie with no others.
        predicted = xp.where(weights > 0, predicted, 2.0)
    order = xp.argsort(predicted)
    value, weights = predicted[order], weights[order]
    rows = (weights, weights * value, weights * observed[order])
    ties = ends_of_ties(begins_tie(value, tie_precision(value, xp), xp), xp)
    return _read_off(rows, *ties, bins, whole, xp, least)


def tie_precision(predicted: Array, xp: ModuleType) -> AnyArray:
    """Return the epsilon of single precision if it represents all predictions, else ``TIE``.

    Ties then do not depend on the type of an array, but on its numbers.
    """
    if xp is not np:
        return xp.where(is_single(predicted).all(), SINGLE, TIE)
    few = predicted[:_FEW_ROWS]
    return SINGLE if is_single(few).all() and is_single(predicted).all() else TIE  # type: ignore[type-var]


def begins_score(ordered: Array, log_odds: bool = False) -> AnyArray:
    """Mark which ascending scores (n,) are the first of those that are equal up to rounding.

    Scores may be of any kind, also log odds of probabilities (``log_odds``). The rule is that of
    :func:`begins_tie`, for which the precision of two neighbors is ``SINGLE`` if single precision
    represents both, else ``TIE``, times the size of scores above 1. It also holds for small
    probabilities, which may be one minus others. But distinct scores very close to zero remain
    distinct, unless they are rounding errors of zero.
    """
    if not on_host(ordered):
        single = _are_single(ordered, log_odds)
        both = jnp.concatenate([single[:1], single[1:] & single[:-1]])
        return begins_tie(ordered, _score_precision(ordered, both, log_odds), jnp)
    step = ordered[1:] - ordered[:-1]
    with np.errstate(over="ignore"):
        # Most scores are far apart, or of double precision, which is quickly seen.
        if log_odds:
            unit = _spread(ordered[1:])
            most, few = np.minimum(SINGLE * unit, _CLOSE_SINGLE), TIE * unit
        else:
            largest = np.fmax.reduce(np.abs(ordered), initial=1.0)
            most, few = SINGLE * largest, TIE * largest
        near = np.flatnonzero(step <= most)
        if not len(near):
            return np.ones(len(ordered), bool)
        near = near[_are_single(ordered[near], log_odds)]
        near = 1 + near[_are_single(ordered[near + 1], log_odds)]
        if not len(near) and not (step <= few).any():
            return np.ones(len(ordered), bool)
        both = np.zeros(len(ordered), bool)
        both[near] = True
        return begins_tie(ordered, _score_precision(ordered, both, log_odds), np)


def _spread(log_odds: Array) -> Array:
    """Compute how fast log odds (n,) change with their probabilities, or at most e to the 40."""
    xp = np if on_host(log_odds) else jnp
    return 2 + 2 * xp.cosh(xp.clip(log_odds, -40.0, 40.0))


def _are_single(scores: Array, log_odds: bool) -> AnyArray:
    """Find which scores, or probabilities with these log odds, are of single precision.

    Scores from 2**23 on count as double precision, because integers are distinct.
    """
    xp = np if on_host(scores) else jnp
    if not log_odds:
        return is_single(scores) & (xp.abs(scores) < 1 / SINGLE)
    probs: AnyArray = 1 / (1 + xp.exp(-xp.clip(scores, -700.0, 700.0)))
    single: AnyArray = xp.astype(probs, xp.float32)
    error = xp.abs(xp.astype(single, probs.dtype) - probs)
    # Log odds of up to 50 have rounding errors of this size.
    return error <= 64 * EPS * probs


def _score_precision(scores: Array, single: Array, log_odds: bool) -> Array:
    """Compute the precision of scores (n,); ``single`` are those of single precision."""
    xp = np if on_host(scores) else jnp
    close = xp.where(single, _CLOSE_SINGLE, _CLOSE)
    precision = xp.where(single, SINGLE, TIE)
    if log_odds:
        return xp.minimum(precision * _spread(scores), close)
    size = xp.abs(scores)
    rounded = is_rounded_zero(size, single)
    return xp.minimum(precision * xp.maximum(size, 1), xp.where(rounded, precision, close * size))


def is_rounded_zero(probs: Array, single: Array | bool = True) -> AnyArray:
    """Return which probabilities are zero, or what one minus another leaves in its place.

    These are small multiples of half the epsilon of double precision, or of ``single`` precision.
    """
    return _is_multiple(probs, EPS / 2, TIE) | single & _is_multiple(probs, SINGLE / 2, SINGLE)


def _is_multiple(values: Array, unit: float, most: float) -> AnyArray:
    """Return which values are multiples of a power of two, and at most this large."""
    xp = np if on_host(values) else jnp
    multiple = xp.minimum(values, 1.0) / unit
    return (values <= most) & (multiple == xp.floor(multiple))


def begins_tie(ordered: Array, precision: Array | float, xp: ModuleType) -> AnyArray:
    """Mark which ascending probabilities (n,) are the first of those that are equal.

    Probabilities are equal if neighbors differ by at most their ``precision``. This does not depend
    on which class they are of: 1 - p has the rounding errors of numbers near 1. If a chain of
    neighbors is longer than twice that, as in dense data, only identical ones are equal. NaN equals
    nothing. Precisions may differ between rows.
    """
    step = ordered[1:] - ordered[:-1]
    new = ~(step <= (precision[1:] if np.ndim(precision) else precision))  # type: ignore[index]
    if xp is np and not (~new & (step > 0)).any():
        return _after_first(new, xp)
    first, last = ends_of_ties(_after_first(new, xp), xp)
    long = ordered[last] - ordered[first] > 2 * precision
    return _after_first(new | long[1:] & (step > 0), xp)


def _after_first(new: Array, xp: ModuleType) -> Array:
    return xp.concatenate([xp.ones(1, bool), new])


def ends_of_ties(begins: Array, xp: ModuleType) -> tuple[Array, Array]:
    """Return the first and the last row of the tie of each row (n,)."""
    n = len(begins)
    position = xp.arange(n)
    first = _running_max(xp.where(begins, position, 0), xp)
    ends = xp.concatenate([begins[1:], xp.ones(1, bool)])
    from_end = _running_max(xp.where(ends[::-1], position, 0), xp)
    return first, n - 1 - from_end[::-1]


def cut_cells(
    sums: Array,
    bins: int,
    whole: _Flag,
    xp: ModuleType,
    least: Array | float | None = None,
    begins: np.ndarray | None = None,
) -> Array:
    """Compute sums (3, bins) over bins of equal mass from sums (3, cells) of tied rows.

    ``begins`` marks the cells (cells,) that do not tie with the one before, by default all.
    """
    first = last = xp.arange(sums.shape[1])
    if begins is not None:
        first, last = ends_of_ties(begins, xp)
    return _read_off(tuple(sums), first, last, bins, whole, xp, least)


def shift_bound(mass: np.ndarray, bins: int, whole: bool) -> float:
    """Bound how far :func:`cut_cells` may move the sum over bins of gaps times mass.

    The content of a cell with mass m may belong to either side of a border in it. For residuals in
    [-1, 1] the part on each side is off by at most m / 2, and two bins are affected.
    """
    cumulative = np.concatenate([[0.0], np.cumsum(mass)])
    inner = mass_borders(cumulative[-1], bins, whole, np)[1:-1]
    cell = np.clip(np.searchsorted(cumulative, inner) - 1, 0, len(mass) - 1)
    split = (inner > cumulative[cell]) & (inner < cumulative[cell + 1])
    return float(mass[cell[split]].sum())


def mass_borders(
    total: ArrayT, bins: int, whole: _Flag, xp: ModuleType, least: Array | float | None = None
) -> ArrayT:
    """Return the cumulative masses (bins + 1,) at which bins begin and end.

    For totals (b, 1) they are (b, bins + 1). With a ``least`` mass of bins there are fewer bins, if
    necessary; the last ones are empty.
    """
    steps = xp.arange(bins + 1).astype(total.dtype)
    number = bins
    if least is not None:
        number = xp.clip(xp.floor(total / least * (1 + 1e-12)), 1, bins)
        steps = xp.minimum(steps, number)
    size = xp.floor(total / number)
    counted = steps * size + xp.minimum(steps, total - number * size)
    return xp.where(whole, counted, steps / number * total)


def nearer_end(below: ArrayT, extent: ArrayT, slack: ArrayT | float) -> ArrayT:
    """Return 0 if a border ``below`` above the lower end of ties moves to that end, else 1.

    Sums of weights have rounding errors, which must not decide between the two ends.
    """
    return (below >= extent - below - slack).astype(extent.dtype)


def _read_off(
    rows: tuple[Array, ...],
    first: Array,
    last: Array,
    bins: int,
    whole: _Flag,
    xp: ModuleType,
    least: Array | float | None,
) -> Array:
    """Compute the sums between borders; rows ``first`` to ``last`` of each row are tied."""
    n = len(rows[0])
    zero = xp.zeros(1, rows[0].dtype)
    mass, *others = (xp.concatenate([zero, xp.cumsum(row)]) for row in rows)
    borders = mass_borders(mass[-1], bins, whole, xp, least)
    # The row that contains a border, and all rows with the same prediction.
    row = xp.clip(xp.searchsorted(mass, borders) - 1, 0, n - 1)
    low, high = first[row], last[row] + 1
    extent = mass[high] - mass[low]
    fraction = xp.clip((borders - mass[low]) / xp.where(extent > 0, extent, 1), 0, 1)
    if least is not None:
        fraction = nearer_end(borders - mass[low], extent, SLACK * mass[-1] / bins)
        borders = mass[low] + fraction * extent
    at_border = (c[low] + fraction * (c[high] - c[low]) for c in others)
    return xp.stack([values[1:] - values[:-1] for values in (borders, *at_border)])


def _running_max(values: Array, xp: ModuleType) -> Array:
    return np.maximum.accumulate(values) if xp is np else jax.lax.cummax(jnp.asarray(values))


def equal_mass_cuts(mass: np.ndarray, bins: np.ndarray, whole: bool) -> np.ndarray:
    """Cut groups of rows into bins of equal mass, for several numbers of bins at once.

    If weights are counts, bins contain equally many rows, and the first ones one more if the number
    does not divide; otherwise they have equal weight. A border that falls within a group moves to
    its nearer end, and to the upper one if both are equally near.

    ``mass`` (groups + 1,) is cumulative weight, from zero; ``whole`` tells whether weights are
    counts. Returns for every bin of all numbers (sum(bins),) how many groups end at or before its
    upper border.

    Examples
    --------
    >>> import numpy as np
    >>> equal_mass_cuts(np.array([0.0, 1, 2, 5, 6, 7]), np.array([1, 3]), True).tolist()
    [5, 2, 3, 5]
    """
    total = mass[-1]
    number = np.repeat(bins, bins)
    step = np.arange(1, len(number) + 1) - np.repeat(np.cumsum(bins) - bins, bins)
    if whole:
        border = step * np.floor(total / number) + np.minimum(step, total % number)
    else:
        border = step / number * total
    above = np.clip(np.searchsorted(mass, border), 1, len(mass) - 1)
    below, extent = border - mass[above - 1], mass[above] - mass[above - 1]
    upper = nearer_end(below, extent, SLACK * total / number).astype(int)
    return np.where(step == number, len(mass) - 1, above - 1 + upper)


def equal_mass_cuts_of_rows(
    begins: jax.Array, mass: jax.Array, bins: int, whole: _Flag
) -> jax.Array:
    """Cut ascending rows (n,) into bins of equal mass (bins,); tied rows are a group.

    As :func:`equal_mass_cuts`, for JAX programs. ``begins`` marks the first row of each tie, and
    ``mass`` (n + 1,) is the cumulative weight of rows.
    """
    first, last = ends_of_ties(begins, jnp)
    border = mass_borders(mass[-1], bins, whole, jnp)[1:]
    row = jnp.clip(jnp.searchsorted(mass, border), 1, len(begins)) - 1
    low, high = first[row], last[row] + 1
    upper = nearer_end(border - mass[low], mass[high] - mass[low], SLACK * mass[-1] / bins)
    return jnp.where(upper > 0, high, low).at[-1].set(len(begins))


def binned_error(sums: Array, norm: float, xp: ModuleType) -> Array:
    """Compute the norm over bins of the gap between mean prediction and outcome, by mass.

    ``sums`` are (..., 3, cells), or have more rows.
    """
    mass, predicted, observed = (sums[..., row, :] for row in range(3))
    gap = xp.abs(predicted - observed) / xp.where(mass > 0, mass, 1)
    if math.isinf(norm):
        return xp.where(mass > 0, gap, 0).max(-1)
    mean = (mass * gap**norm).sum(-1) / mass.sum(-1)
    # The slope at zero must be zero, but that of the root would be infinite.
    return xp.where(mean > 0, xp.where(mean > 0, mean, 1) ** (1 / norm), 0)
