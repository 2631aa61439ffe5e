"""Natural cubic splines: knots, and functions that are orthogonal on the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayescal._core.arrays import namespace, search

if TYPE_CHECKING:
    from scipy.interpolate import BSpline, CubicSpline

#: Smoothest functions of the spline space that are kept: rougher ones never get weight.
FUNCTIONS = 30
_APART, _NOTHING = 1e-6, 1e-100

Penalty = Literal["curvature", "coefficients"]
_Functions = Callable[[np.ndarray], np.ndarray]


def choose_knots(distinct: np.ndarray, most: int) -> np.ndarray:
    """Return at most ``most`` of the distinct scores, spread evenly over their ranks."""
    index = np.linspace(0, len(distinct) - 1, min(most, len(distinct)))
    knots = distinct[np.round(index).astype(int)]
    # Nearer to each other than this they only cost digits.
    least = _APART * (knots[-1] - knots[0])
    if knots[-1] - knots[0] < _NOTHING:
        return knots[:1]
    cell = np.floor((knots - knots[0]) / least) if least > 0 else np.zeros(len(knots))
    kept = np.concatenate([[True], np.diff(cell) > 0])
    kept[1:-1] &= (knots[-1] - knots[1:-1]) > least
    kept[-1] |= least > 0
    return knots[kept]


def make_basis(
    knots: np.ndarray, x: np.ndarray, weights: np.ndarray, penalty: Penalty, precise: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return functions as values at the knots (k, p), and the roughness (p,) of each.

    On the data they are orthogonal and of mean square one; first come those without penalty, then
    the others, smoothest first: the basis of Demmler and Reinsch. Roughness is right up to 1e13
    times the least; if ``precise``, which takes twice as long, up to 1e24.
    """
    from scipy.linalg import eigh

    root = np.sqrt(weights / weights.sum())
    free, unit = _unit_functions(knots, penalty)
    at_points = np.concatenate([free(x), unit(x)], axis=1)
    at_knots = np.concatenate([free(knots), unit(knots)], axis=1)
    p = free(knots[:1]).shape[1]
    # Orthogonal functions without penalty, and the part of all others that they do not hold.
    factor = np.linalg.qr(root[:, None] * at_points[:, :p])[1]
    if p > 1 and abs(factor[1, 1]) < 1e-10:
        # All weight is at one score: there is no line through it.
        return np.ones((len(knots), 1)), np.zeros(1)
    factor *= np.sign(np.diagonal(factor))[:, None]
    plain = np.linalg.solve(factor.T, at_knots[:, :p].T).T
    held = root[:, None] * np.linalg.solve(factor.T, at_points[:, :p].T).T
    shares = held.T @ (root[:, None] * at_points[:, p:])
    rest = root[:, None] * at_points[:, p:] - held @ shares
    size = rest.shape[1]
    if not size:
        return plain, np.zeros(p)
    kept = min(size, FUNCTIONS - p)
    if precise:
        roots, vectors = np.linalg.svd(np.linalg.qr(rest, mode="r"))[1:]
        squares, vectors = roots[:kept] ** 2, vectors[: len(roots)][:kept].T
    else:
        squares, vectors = eigh(rest.T @ rest, subset_by_index=(size - kept, size - 1))
        squares, vectors = squares[::-1], vectors[:, ::-1]
    seen = squares > (1e-24 if precise else 1e-13) * max(squares[0], 1e-300)
    vectors = vectors[:, seen] / np.sqrt(squares[seen])
    others = (at_knots[:, p:] - plain @ shares) @ vectors
    roughness = np.concatenate([np.zeros(p), 1 / squares[seen]])
    return np.concatenate([plain, others], axis=1), roughness


def _unit_functions(knots: np.ndarray, penalty: Penalty) -> tuple[_Functions, _Functions]:
    """Return the functions without penalty, and those whose squared coefficients are the penalty.

    Both are functions of points (m,) that return columns (m, p). Together they span the natural
    cubic splines.
    """
    k = len(knots)
    if penalty == "coefficients":
        # The slope is penalized too: these are all of the published basis but the constant.
        return lambda x: np.ones((len(x), 1)), lambda x: _natural(knots, x)

    def line(x: np.ndarray) -> np.ndarray:
        return ((x - knots[0]) / max(knots[-1] - knots[0], 1e-300))[:, None] ** np.arange(min(k, 2))

    if k < 3:
        return line, lambda x: np.empty((len(x), 0))
    h = np.diff(knots)
    gram = np.diag((h[:-1] + h[1:]) / 3) + np.diag(h[1:-1] / 6, 1) + np.diag(h[1:-1] / 6, -1)
    # Second derivatives are straight between knots: hats, of which this is the product.
    mix = np.linalg.inv(np.linalg.cholesky(gram)).T
    from scipy.interpolate import BSpline

    ends = np.concatenate([knots[:1], knots, knots[-1:]])
    integral = BSpline(ends, np.eye(k)[:, 1:-1] @ mix, 1).antiderivative(2)
    return line, lambda x: _straight_outside(integral, knots, x)


def _natural(knots: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the natural cubic basis (m, k - 1) without its constant."""
    if len(knots) == 1:
        return np.empty((len(x), 0))
    last = knots[-1]
    cubes = np.maximum(x[:, None] - knots, 0) ** 3
    d = (cubes[:, :-1] - cubes[:, -1:]) / (last - knots[:-1])
    return np.concatenate([x[:, None], d[:, :-1] - d[:, -1:]], axis=1)


def _straight_outside(
    spline: BSpline | CubicSpline, knots: np.ndarray, x: np.ndarray
) -> np.ndarray:
    """Evaluate a spline at x (m,): (m, p); it goes on straight outside the knots."""
    inside = np.clip(x, knots[0], knots[-1])
    result = spline(inside)
    outside = np.flatnonzero(x != inside)
    if outside.size:
        result[outside] += (x - inside)[outside, None] * spline(inside[outside], 1)
    return result


def second_derivatives(knots: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return those (k, p) of the natural cubic splines with values (k, p), at the knots."""
    from scipy.interpolate import CubicSpline

    if len(knots) < 3:
        return np.zeros_like(values)
    return CubicSpline(knots, values, bc_type="natural")(knots, 2)


def evaluate(knots: Any, values: Any, bends: Any, x: Any) -> Any:
    """Evaluate natural cubic splines at x (m,): (p, m); they go on straight outside the knots.

    ``values`` and ``bends`` (k, p) are what they are at the knots, and their second derivatives.
    """
    xp = namespace(x)
    if knots.shape[0] == 1:
        return xp.zeros_like(x) + values.T
    inside = xp.clip(x, knots[0], knots[-1])
    left = xp.clip(search(knots, inside, "right") - 1, 0, knots.shape[0] - 2)
    width = xp.take(knots[1:] - knots[:-1], left, axis=0)
    part = (inside - xp.take(knots, left, axis=0)) / width
    rest, beyond = 1 - part, x - inside
    # Those of the slope at the ends, where nothing bends.
    weights = (
        rest - beyond / width,
        part + beyond / width,
        ((rest**2 - 1) * rest * width + (1 - 3 * rest**2) * beyond) * width / 6,
        ((part**2 - 1) * part * width + (3 * part**2 - 1) * beyond) * width / 6,
    )
    ends = (values, values[1:, :], bends, bends[1:, :])
    return sum(
        weight * xp.take(own, left, axis=0).T for weight, own in zip(weights, ends, strict=True)
    )
