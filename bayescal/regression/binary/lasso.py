"""The exact step of Newton's method under an absolute penalty, with NumPy."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from bayescal._core.minimization.directions import Direction
from bayescal._core.shapes import Bool, Float

#: Arrays by their axes.
Vector: TypeAlias = 'Float[np.ndarray, " parameters"]'
Matrix: TypeAlias = 'Float[np.ndarray, "parameters parameters"]'
Active: TypeAlias = 'Float[np.ndarray, " active"]'

#: Relative excess of a slope at zero over the strength that counts as rounding.
_EXCESS = 1e-10
#: Fraction of the largest excess above which coordinates enter together.
_TOGETHER = 0.3
_EPS = np.finfo(float).eps


def lasso_step_on_host(strength: Vector) -> Direction:
    """Minimize a quadratic model plus ``sum(strength * |x|)`` exactly, by an active set.

    The coordinate descent of ``lasso_step`` is slow if columns are nearly dependent: here every
    move solves linear equations, and few are needed.
    """

    def direction(
        hessian: Matrix, gradient: Vector, x: Vector
    ) -> tuple[Vector, Float[np.ndarray, ""]]:
        try:
            z = _minimize(hessian, gradient, x, strength)
        except np.linalg.LinAlgError:
            z = None
        if z is None:
            return np.full_like(x, np.nan), np.asarray(np.nan)
        step = x - z
        # Where the sign stays, compute the gain as a product of small numbers, not a difference.
        same_sign = x * z > 0
        slope = gradient + np.where(same_sign, strength * np.sign(x), 0.0)
        gain = slope @ step + strength @ np.where(same_sign, 0.0, np.abs(x) - np.abs(z))
        noise = 8 * _EPS * ((np.abs(gradient) + strength) @ np.abs(step))
        return step, np.maximum(gain, 0.0) if gain >= -noise else gain

    return direction


def _minimize(hessian: Matrix, gradient: Vector, x: Vector, strength: Vector) -> Vector | None:
    """Minimize gradient . (z - x) + (z - x)' hessian (z - x) / 2 + sum(strength * |z|).

    Feature-sign search (Lee et al. 2007): a coordinate is zero or has a sign, and given these the
    minimum solves linear equations. On the way to it signs may change; at the minimum, coordinates
    may enter. Here several enter at once, and those that would then move against their sign are
    removed again. Returns None if rounding prevents it; Newton's method then improves the Hessian's
    condition.
    """
    always = strength == 0
    z, slope = x.copy(), gradient
    sign = np.where(always, 0.0, np.sign(z))
    active = always | (z != 0)
    size, scale = np.abs(hessian), 1 / np.sqrt(np.diagonal(hessian))
    leader = -1
    for _ in range(50 + 10 * len(x)):
        index = np.flatnonzero(active)
        block = hessian[index[:, None], index]
        here, drift = z[index], slope[index] + strength[index] * sign[index]
        move = -np.linalg.solve(block, drift)
        entering = (here == 0) & ~always[index] & (index != leader)
        wrong = (here == 0) & (move * sign[index] < 0)
        if wrong.any():
            out = index[wrong & entering]
            # Alone, the first coordinate moves in the right direction, except for rounding.
            out = out if len(out) else index[entering]
            if not len(out):
                return None
            active[out], sign[out] = False, 0.0
            continue
        fraction, crosses = _best_fraction(block, drift, move, here, strength[index])
        z[index] = np.where(crosses, 0.0, here + fraction * move)
        slope = gradient + hessian @ (z - x)
        before, sign = sign, np.where(always, 0.0, np.sign(z))
        active, leader = always | (z != 0), -1
        if fraction < 1 or (sign != before).any():
            continue
        noise = 8 * _EPS * (size @ np.abs(z - x))
        excess = (np.abs(slope) - strength * (1 + _EXCESS) - noise) * scale
        excess[active] = 0
        leader = int(np.argmax(excess))
        if not excess[leader] > 0:
            return z
        fresh = excess > _TOGETHER * excess[leader]
        active |= fresh
        sign = np.where(fresh, -np.sign(slope), sign)
    return None


def _best_fraction(
    block: Float[np.ndarray, "active active"],
    drift: Active,
    move: Active,
    here: Active,
    strength: Active,
) -> tuple[float, Bool[np.ndarray, " active"]]:
    """Return the best fraction of a move, 1 or up to where coordinates become zero; and which.

    ``drift`` is the slope at ``here``, including the absolute penalty.
    """
    crosses = (strength > 0) & (here * (here + move) < 0)
    if not crosses.any():
        return 1.0, crosses
    where = np.ones_like(here)
    where[crosses] = -here[crosses] / move[crosses]
    fractions = np.append(where[crosses], 1.0)
    # The penalty is linear until a sign changes, and then rises by twice the part beyond.
    beyond = np.maximum(fractions[:, None] - where[crosses], 0) * np.abs(move[crosses])
    extra = 2 * beyond @ strength[crosses]
    curvature = move @ block @ move
    values = fractions * (drift @ move) + fractions**2 * curvature / 2 + extra
    best = fractions[np.argmin(values)]
    return float(best), crosses & (where == best)
