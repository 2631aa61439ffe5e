"""The best temperature of logits: Newton's method in one unknown, in blocks of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.optimise import IntervalMinimum, Status, newton_on_interval
from bayescal.regression.posterior import Draws, antithetic, sample_whitened

#: Elements of a block: several arrays of this size stay in the processor's cache.
_BLOCK = 1 << 15
#: Beyond so many logits, a part of the rows of this size finds where to start.
_PART = 1 << 14
#: Of the logarithm of the inverse temperature: most lie between 1/20 and 20.
LOG_SCALE = 1.5


class Scaled(NamedTuple):
    """An inverse temperature, and how its fit ended.

    ``value`` is the weighted cross-entropy; ``curvature`` its second derivative by ``inverse``.
    """

    inverse: float
    value: float
    slope: float
    curvature: float
    iterations: int
    status: Status


class Rows:
    """Logits below their row's greatest, in blocks; single precision where there are many."""

    def __init__(self, logits: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        n, k = logits.shape
        kind = np.float32 if logits.size > _PART else np.float64
        step = max(1, _BLOCK // k)
        self.blocks = []
        for first in range(0, n, step):
            # Classes come first: sums over them are then sums of long vectors.
            part = np.ascontiguousarray(logits[first : first + step].T)
            below = part - part.max(axis=0)
            own = below[y[first : first + step], np.arange(below.shape[1])].astype(float)
            rows = weights[first : first + step]
            self.blocks.append((below.astype(kind, copy=False), own, rows))

    def loss(self, inverse: float) -> tuple[float, float, float]:
        """Return the weighted cross-entropy and its first two derivatives by the inverse."""
        value = slope = curvature = 0.0
        for below, own, weights in self.blocks:
            small = below * below.dtype.type(inverse)
            np.exp(small, out=small)
            total = small.sum(axis=0).astype(float)
            small *= below
            first = small.sum(axis=0) / total
            small *= below
            second = small.sum(axis=0) / total
            value += weights @ (np.log(total) - inverse * own)
            slope += weights @ (first - own)
            curvature += weights @ (second - first**2)
        return float(value), float(slope), float(curvature)


def fit_inverse_temperature(logits: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Scaled:
    """Minimise the cross-entropy of softmax(s * logits) over s >= 0.

    Parameters
    ----------
    logits : array of shape (n, k)
        Of any floating type; more than 16,384 of them are used in single precision, but summed in
        double precision, which changes s by 1e-7 of itself or less.
    y : integer array of shape (n,)
    weights : array of shape (n,)

    Notes
    -----
    O(n k) for each of about five iterations, of which all but two see a part of many rows.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        unit = _unit(logits)
        return _descend(logits / unit if unit != 1 else logits, y, weights, unit)


def _unit(logits: np.ndarray) -> float:
    """Return a power of two by which to divide logits that are all huge or tiny, or 1."""
    largest = float(np.abs(logits).max(initial=0))
    if 1e-6 < largest < 1e6 or largest == 0:
        return 1.0
    return float(2.0 ** np.round(np.log2(largest)))


def _descend(logits: np.ndarray, y: np.ndarray, weights: np.ndarray, unit: float) -> Scaled:
    start = 1.0 if unit == 1 else 0.0
    stride = logits.size // _PART
    if stride > 2:
        part = slice(None, None, stride)
        start = _newton(Rows(logits[part], y[part], weights[part]), start).x
    found = _newton(Rows(logits, y, weights), start)
    return Scaled(
        found.x / unit,
        found.value,
        found.slope * unit,
        found.curvature * unit**2,
        found.iterations,
        found.status,
    )


def _newton(rows: Rows, start: float) -> IntervalMinimum:
    scale = float(sum(weights.sum() for _, _, weights in rows.blocks))
    return newton_on_interval(rows.loss, start, scale=scale)


def sample_inverse(
    logits: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    inference: str,
    num_samples: int,
    seed: int,
) -> Draws:
    """Return draws (chains, draws, 1) of the inverse temperature s, where log s ~ N(0, 1.5**2)."""
    from scipy.optimize import minimize_scalar

    with np.errstate(over="ignore"):
        below = np.subtract(logits, logits.max(axis=1, keepdims=True), dtype=float)
    below = np.maximum(below, -1e100)
    rows = Rows(below, y, weights)

    def loss(u: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            value = rows.loss(float(np.exp(u)))[0] + 0.5 * (u / LOG_SCALE) ** 2
        return value if np.isfinite(value) else np.inf

    grid = np.linspace(-10, 10, 41)
    best = grid[int(np.argmin([loss(u) for u in grid]))]
    bracket = (best - 0.5, best + 0.5)
    found: Any = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-9})
    u = float(found.x)
    s = float(np.exp(u))
    _, slope, curvature = rows.loss(s)
    curvature = curvature * s**2 + slope * s + 1 / LOG_SCALE**2
    mode, factor = np.array([u]), np.array([[curvature**-0.5]])
    if inference == "laplace":
        draws = np.exp(antithetic(mode, factor, num_samples, seed))[None]
        return Draws(draws, np.full(1, float(num_samples)), np.ones(1), 0, int(Status.CONVERGED))
    own = below[np.arange(len(y)), y]
    draws, ess, r_hat, divergences = sample_whitened(
        _potential, (below, own, np.asarray(weights, float)), mode, factor, num_samples, seed
    )
    return Draws(np.exp(draws), ess, r_hat, divergences, int(Status.CONVERGED))


def _potential(below: Any, own: Any, weights: Any, mode: Any, factor: Any) -> Any:
    """Return the negative log posterior in coordinates where Laplace's is standard normal."""

    def potential(z: Any) -> Any:
        u = (mode + factor @ z)[0]
        s = jnp.exp(u)
        losses = jax.nn.logsumexp(s * below, axis=1) - s * own
        return weights @ losses + 0.5 * (u / LOG_SCALE) ** 2

    return potential
