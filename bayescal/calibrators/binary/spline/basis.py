"""Natural cubic splines: knots, and functions that are orthogonal on the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from bayescal._core.arrays import AnyArray, XArray, namespace, search
from bayescal._core.shapes import Float

#: Arrays by their axes.
Knots: TypeAlias = 'Float[np.ndarray, " knots"]'
Points: TypeAlias = 'Float[np.ndarray, " points"]'

#: Number of the smoothest functions that are used; rougher functions never get weight.
FUNCTIONS = 30
_MIN_RELATIVE_DISTANCE, _TINY = 1e-6, 1e-100

Penalty = Literal["symmetric", "coefficients", "curvature"]
_Functions = Callable[[np.ndarray], np.ndarray]


def choose_knots(distinct: Float[np.ndarray, " distinct"], most: int) -> Knots:
    """Choose at most ``most`` of the distinct scores, spread evenly over their ranks.

    The choice is symmetric: mirrored scores give mirrored knots.
    """
    last, steps = len(distinct) - 1, min(most, len(distinct)) - 1
    if distinct[-1] - distinct[0] < _TINY:
        return distinct[:1]
    # Twice the ranks, times the steps. Halves are rounded toward the nearer end; a half in the
    # middle becomes the mean of two scores.
    ranks = 2 * last * np.arange(steps + 1)
    low, high = -((steps - ranks) // (2 * steps)), (ranks + steps) // (2 * steps)
    side = 2 * np.arange(steps + 1) - steps
    knots = (distinct[np.where(side > 0, high, low)] + distinct[np.where(side < 0, low, high)]) / 2
    # Knots that are closer than this only cost digits.
    least = _MIN_RELATIVE_DISTANCE * (knots[-1] - knots[0])
    center = (knots[0] + knots[-1]) / 2
    below, above = knots[knots < center], knots[knots > center]
    outer = _thin(below - knots[0], least), _thin((knots[-1] - above)[::-1], least)[::-1]
    below, above = below[outer[0]], above[outer[1]]
    middle = knots[knots == center]
    if above[0] - below[-1] < 2 * least and len(below) > 1 and len(above) > 1:
        middle, below, above = (below[-1:] + above[:1]) / 2, below[:-1], above[1:]
    elif len(middle) and min(above[0] - center, center - below[-1]) < least:
        middle = middle[:0]
    return np.concatenate([below, middle, above])


def _thin(away: np.ndarray, least: float) -> np.ndarray:
    """Mark the ascending distances to keep: the first in each cell, not too close to zero."""
    cell = np.floor(away / least)
    return np.concatenate([[True], (np.diff(cell) > 0) & (away[1:] > least)])


def make_basis(
    knots: Knots, x: Points, weights: Points, penalty: Penalty, precise: bool = False
) -> tuple[Float[np.ndarray, "knots functions"], Float[np.ndarray, " functions"]]:
    """Compute the values (k, p) of basis functions at the knots, and their roughness (p,).

    This is the basis of Demmler and Reinsch: on the data the functions are orthogonal with mean
    square one. Functions without penalty come first, then the others in order of roughness.
    Roughness is accurate up to 1e13 times the smallest; if ``precise``, which takes twice as long,
    up to 1e24.
    """
    from scipy.linalg import eigh

    root = np.sqrt(weights / weights.sum())
    free, unit = _unit_functions(knots, penalty)
    at_points = np.concatenate([free(x), unit(x)], axis=1)
    at_knots = np.concatenate([free(knots), unit(knots)], axis=1)
    p = free(knots[:1]).shape[1]
    # Orthogonalize the unpenalized functions, and project them out of the others.
    factor = np.linalg.qr(root[:, None] * at_points[:, :p])[1]
    if p > 1 and abs(factor[1, 1]) < 1e-10:
        # All weight is at one score, so no slope can be estimated.
        return np.ones((len(knots), 1)), np.zeros(1)
    factor *= np.sign(np.diagonal(factor))[:, None]
    unpenalized = np.linalg.solve(factor.T, at_knots[:, :p].T).T
    projected = root[:, None] * np.linalg.solve(factor.T, at_points[:, :p].T).T
    overlap = projected.T @ (root[:, None] * at_points[:, p:])
    rest = root[:, None] * at_points[:, p:] - projected @ overlap
    size = rest.shape[1]
    if not size:
        return unpenalized, np.zeros(p)
    count = min(size, FUNCTIONS - p)
    if precise:
        roots, vectors = np.linalg.svd(np.linalg.qr(rest, mode="r"))[1:]
        squares, vectors = roots[:count] ** 2, vectors[: len(roots)][:count].T
    else:
        squares, vectors = eigh(rest.T @ rest, subset_by_index=(size - count, size - 1))
        squares, vectors = squares[::-1], vectors[:, ::-1]
    used = squares > (1e-24 if precise else 1e-13) * max(squares[0], 1e-300)
    vectors = vectors[:, used] / np.sqrt(squares[used])
    others = (at_knots[:, p:] - unpenalized @ overlap) @ vectors
    roughness = np.concatenate([np.zeros(p), 1 / squares[used]])
    return np.concatenate([unpenalized, others], axis=1), roughness


def _unit_functions(knots: np.ndarray, penalty: Penalty) -> tuple[_Functions, _Functions]:
    """Return functions of points (m,): unpenalized columns, and penalized columns (m, p).

    Together they span the natural cubic splines; the penalty is a sum of squared coefficients.
    """
    from scipy.linalg import solve_triangular

    k = len(knots)
    if penalty == "coefficients":
        # The slope is penalized too: all functions of the published basis except the constant.
        return lambda x: np.ones((len(x), 1)), lambda x: _natural(knots, x)

    def line(x: np.ndarray) -> np.ndarray:
        # Measured from the middle, for symmetry.
        half = max(knots[-1] - knots[0], 1e-300) / 2
        return ((x - (knots[0] + knots[-1]) / 2) / half)[:, None] ** np.arange(min(k, 2))

    def hats(x: np.ndarray) -> np.ndarray:
        from scipy.interpolate import BSpline

        # Second derivatives are linear between knots.
        ends = np.concatenate([knots[:1], knots, knots[-1:]])
        spline = BSpline(ends, np.eye(k)[:, 1:-1], 1).antiderivative(2)
        # Splines are linear outside the knots.
        inside = np.clip(x, knots[0], knots[-1])
        result = spline(inside)
        outside = np.flatnonzero(x != inside)
        if outside.size:
            result[outside] += (x - inside)[outside, None] * spline(inside[outside], 1)
        return result

    if penalty == "symmetric":
        root = np.linalg.qr(_both_ends(knots), mode="r") if k > 1 else np.ones((1, 1))
        inverse = solve_triangular(root, np.eye(len(root)))

        def bent(x: np.ndarray) -> np.ndarray:
            away = x[:, None] - (knots[0] + knots[-1]) / 2
            if k < 3:
                return (away @ inverse)[:, : k - 1]
            # The slopes at the two ends have mean zero.
            curves = hats(x) - away * (knots[2:] - knots[:-2]) / 4
            return np.concatenate([away, curves], axis=1) @ inverse

        return lambda x: np.ones((len(x), 1)), bent
    if k < 3:
        return line, lambda x: np.empty((len(x), 0))
    h = np.diff(knots)
    # The lower triangle, which is all that is read.
    gram = np.diag((h[:-1] + h[1:]) / 3) + np.diag(h[1:-1] / 6, -1)
    mix = np.linalg.inv(np.linalg.cholesky(gram)).T
    return line, lambda x: hats(x) @ mix


def _both_ends(knots: Knots) -> np.ndarray:
    """Compute a matrix (2k - 2, k - 1) whose square is the mean of two penalties.

    These are the published one, of the coefficients of the basis without its constant, and that of
    the mirrored basis: a slope at one end, and one sixth of the jumps of the third derivative times
    the distance to the other. Columns are the mean slope of both ends and inner second derivatives.
    """
    k, h = len(knots), np.diff(knots)
    second = np.eye(k)[:, 1:-1]
    third = np.diff(second, axis=0) / h[:, None]
    jumps = np.diff(third, axis=0, prepend=0, append=0) / 6
    turn = (knots[2:] - knots[:-2]) / 4  # half the change of the slope
    left = np.concatenate([-turn[None], (knots[-1] - knots[:-2, None]) * jumps[:-2]])
    right = np.concatenate([turn[None], (knots[2:, None] - knots[0]) * jumps[2:]])
    slopes = np.zeros((2 * (k - 1), 1))
    slopes[[0, k - 1]] = 1
    return np.concatenate([slopes, np.concatenate([left, right])], axis=1) / np.sqrt(2)


def _natural(knots: Knots, x: Points) -> Float[np.ndarray, "points knots-1"]:
    """Compute the natural cubic basis (m, k - 1) without its constant."""
    if len(knots) == 1:
        return np.empty((len(x), 0))
    last = knots[-1]
    cubes = np.maximum(x[:, None] - knots, 0) ** 3
    d = (cubes[:, :-1] - cubes[:, -1:]) / (last - knots[:-1])
    return np.concatenate([x[:, None], d[:, :-1] - d[:, -1:]], axis=1)


def second_derivatives(
    knots: Knots, values: Float[np.ndarray, "knots functions"]
) -> Float[np.ndarray, "knots functions"]:
    """Compute second derivatives (k, p) at the knots of natural splines with values (k, p)."""
    from scipy.interpolate import CubicSpline

    if len(knots) < 3:
        return np.zeros_like(values)
    return CubicSpline(knots, values, bc_type="natural")(knots, 2)


def evaluate(knots: XArray, values: XArray, bends: XArray, x: XArray) -> AnyArray:
    """Evaluate natural cubic splines at x (m,): (p, m); they are linear outside the knots.

    ``values`` and ``bends`` (k, p) are the values and the second derivatives at the knots.
    """
    xp = namespace(x)
    if knots.shape[0] == 1:
        return xp.zeros_like(x) + values.T
    inside = xp.clip(x, knots[0], knots[-1])
    left = xp.clip(search(knots, inside, "right") - 1, 0, knots.shape[0] - 2)
    width = xp.take(knots[1:] - knots[:-1], left, axis=0)
    part = (inside - xp.take(knots, left, axis=0)) / width
    rest, beyond = 1 - part, x - inside
    # Outside the knots, extrapolate with the slope at the end.
    weights = (
        rest - beyond / width,
        part + beyond / width,
        ((rest**2 - 1) * rest * width + (1 - 3 * rest**2) * beyond) * width / 6,
        ((part**2 - 1) * part * width + (3 * part**2 - 1) * beyond) * width / 6,
    )
    ends = (values, values[1:, :], bends, bends[1:, :])
    return sum(
        weight * xp.take(end, left, axis=0).T for weight, end in zip(weights, ends, strict=True)
    )
