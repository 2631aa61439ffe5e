"""The step of Newton's method under an absolute penalty, exactly, with NumPy."""

from __future__ import annotations

import numpy as np

from bayescal._core.directions import Direction

#: How far a slope at zero may exceed the strength, relative to it.
_EXCESS = 1e-10
#: Of the largest excess: coordinates with more than this enter together.
_TOGETHER = 0.3
_EPS = np.finfo(float).eps


def lasso_step_on_host(strength: np.ndarray) -> Direction:
    """Return the step of a quadratic model plus ``sum(strength * |x|)``, by an active set.

    Does as ``bayescal._core.directions.lasso_step``, whose coordinate descent is slow where columns
    are nearly dependent: here each move is the solution of linear equations, and few are needed.
    """

    def direction(
        hessian: np.ndarray, gradient: np.ndarray, x: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        try:
            z = _minimise(hessian, gradient, x, strength)
        except np.linalg.LinAlgError:
            z = None
        if z is None:
            return np.full_like(x, np.nan), np.asarray(np.nan)
        step = x - z
        # Where the sign stays, what is gained is a product of small numbers, not their difference.
        same = x * z > 0
        slope = gradient + np.where(same, strength * np.sign(x), 0.0)
        gain = slope @ step + strength @ np.where(same, 0.0, np.abs(x) - np.abs(z))
        noise = 8 * _EPS * ((np.abs(gradient) + strength) @ np.abs(step))
        return step, np.maximum(gain, 0.0) if gain >= -noise else gain

    return direction


def _minimise(
    hessian: np.ndarray, gradient: np.ndarray, x: np.ndarray, strength: np.ndarray
) -> np.ndarray | None:
    """Minimise gradient . (z - x) + (z - x)' hessian (z - x) / 2 + sum(strength * |z|).

    None where rounding forbids: Newton's method then makes the Hessian better conditioned.

    Feature-sign search (Lee et al. 2007): a coordinate is zero or has a sign, and given these the
    minimum solves linear equations. On the way to it signs may change, and once there coordinates
    may enter; each move lowers the objective, so that no signs come twice. Here several enter at
    once, and those that would then move against their sign are left out again.
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
            # By itself the leader moves as it should, but for rounding.
            out = out if len(out) else index[entering]
            if not len(out):
                return None
            active[out], sign[out] = False, 0.0
            continue
        share, crosses = _share(block, drift, move, here, strength[index])
        z[index] = np.where(crosses, 0.0, here + share * move)
        slope = gradient + hessian @ (z - x)
        before, sign = sign, np.where(always, 0.0, np.sign(z))
        active, leader = always | (z != 0), -1
        if share < 1 or (sign != before).any():
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


def _share(
    block: np.ndarray, drift: np.ndarray, move: np.ndarray, here: np.ndarray, strength: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return how much of a move is best, all or up to where a coordinate becomes zero; and which.

    ``drift`` is the slope at ``here``, absolute penalty included.
    """
    crosses = (strength > 0) & (here * (here + move) < 0)
    if not crosses.any():
        return 1.0, crosses
    where = np.ones_like(here)
    where[crosses] = -here[crosses] / move[crosses]
    shares = np.append(where[crosses], 1.0)
    # The penalty is straight until a sign changes, and then rises by twice the part beyond.
    beyond = np.maximum(shares[:, None] - where[crosses], 0) * np.abs(move[crosses])
    extra = 2 * beyond @ strength[crosses]
    curvature = move @ block @ move
    values = shares * (drift @ move) + shares**2 * curvature / 2 + extra
    best = shares[np.argmin(values)]
    return float(best), crosses & (where == best)
