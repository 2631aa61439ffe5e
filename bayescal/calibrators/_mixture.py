"""The best weights of a mixture of predictions."""

from __future__ import annotations

import numpy as np

_ITERATIONS = 100
_TINY = 1e-300
_RIDGE = 1e-9


def best_mixture(parts: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Return shares (q,) of predictions that minimise the log loss of their mixture, and the loss.

    Parameters
    ----------
    parts : array of shape (n, q)
        Each prediction's probability of what was observed.
    weights : array of shape (n,)

    Notes
    -----
    Minimises -sum(weights log(parts @ s)) + sum(weights) sum(s) over s >= 0, whose solution sums to
    one, by sequential quadratic programs: each is a small problem of non-negative least squares.
    Of several solutions, as with equal predictions, one is returned. O(n q^2) for each of few
    iterations.
    """
    from scipy.optimize import nnls

    parts = np.maximum(parts, _TINY)
    q = parts.shape[1]
    total = weights.sum()
    shares = np.full(q, 1 / q)
    root = np.sqrt(weights)

    def loss(at: np.ndarray) -> float:
        mixed = np.maximum(parts @ at, _TINY)
        return float(total * at.sum() - weights @ np.log(mixed))

    value = loss(shares)
    for _ in range(_ITERATIONS):
        scaled = parts * (root / np.maximum(parts @ shares, _TINY))[:, None]
        gram, linear = scaled.T @ scaled, 2 * (scaled.T @ root) - total
        diagonal = np.diagonal(gram)
        size = np.sqrt(np.maximum(diagonal, 1e-8 * diagonal.max()))
        # Raised a little, as predictions may be equal: then steps along what makes no difference
        # to the curvature are long, and end at a share of zero.
        scaled_gram = gram / size / size[:, None] + _RIDGE * np.eye(q)
        lower = np.linalg.cholesky(scaled_gram)
        target = nnls(lower.T, np.linalg.solve(lower, linear / size + _RIDGE * size * shares))[0]
        target = target / size
        step = target - shares
        slope = float((total - scaled.T @ root) @ step)
        if -slope <= 1e-13 * total:
            break
        length, best = 1.0, value
        while length > 1e-10:
            best = loss(shares + length * step)
            if best <= value + 1e-4 * length * slope:
                break
            length /= 2
        else:
            break
        shares, value = shares + length * step, best
    shares = shares / shares.sum()
    return shares, loss(shares) - total
