"""Cross-validation of squared penalties on few columns, with all fits at once on the host."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.minimization.optimize import Status, iterate
from bayescal._core.shapes import Float
from bayescal.regression.binary.objective import row_terms

#: Arrays by their axes.
Columns: TypeAlias = 'Float[np.ndarray, "parameters rows"]'
Fits: TypeAlias = 'Float[np.ndarray, "fits parameters"]'
FitRows: TypeAlias = 'Float[np.ndarray, "fits rows"]'

#: Largest number of iterations, and gain of the last step in nats per row; convergence is
#: quadratic.
_ITERATIONS, _TOLERANCE = 50, 1e-10


class RidgePath(NamedTuple):
    """Mean held-out log losses in nats, and coefficients fitted to all rows."""

    losses: Float[np.ndarray, "candidates folds"]
    theta: Float[np.ndarray, "candidates parameters"]


def ridge_path(
    columns: Columns,
    weights: Float[np.ndarray, "folds rows"],
    positives: Float[np.ndarray, "folds rows"],
    penalties: Float[np.ndarray, "candidates parameters"],
) -> RidgePath:
    """Fit every candidate without every fold, and to all rows.

    ``weights`` and ``positives`` are the weights of rows, and of rows of class 1, at each point in
    each fold; ``penalties`` are strengths of strength * theta**2 / 2. All Hessians of an iteration
    are one product of curvatures (fits, n) and the columns' products (n, p (p + 1) / 2).
    """
    folds, candidates, p = len(weights), len(penalties), len(columns)
    total = weights.sum(axis=0)[None].repeat(candidates, axis=0)
    wanted = (positives.sum(axis=0) @ columns.T)[None].repeat(candidates, axis=0)
    first, second = np.triu_indices(p)
    pairs = columns[first] * columns[second]
    complete = _solve(columns, pairs, total, wanted, penalties, np.zeros((candidates, p)))
    # The optimum without a fold is two or three steps from here.
    keep = 1 - np.eye(folds)
    train = np.tile(keep @ weights, (candidates, 1))
    wanted = np.tile(keep @ positives @ columns.T, (candidates, 1))
    strengths = np.repeat(penalties, folds, axis=0)
    begin = np.repeat(complete, folds, axis=0)
    theta = _solve(columns, pairs, train, wanted, strengths, begin)
    lines = theta.reshape(candidates, folds, p) @ columns
    loss = np.logaddexp(0, lines) * weights - lines * positives
    held = weights.sum(axis=1)
    return RidgePath(loss.sum(axis=2) / np.where(held > 0, held, 1), complete)


def _solve(
    columns: Columns,
    pairs: Float[np.ndarray, "pairs rows"],
    train: FitRows,
    wanted: Fits,
    strengths: Fits,
    theta: Fits,
) -> Fits:
    """Minimize sum(train * softplus(line)) - wanted . theta + penalty for many fits at once.

    ``pairs`` are the products of all pairs of columns. 220 fits of 2,000 rows and 8 columns take 78
    ms, and 162 ms by ``newton`` one after the other.
    """
    fits, p = wanted.shape
    upper, diagonal = np.triu_indices(p), np.arange(p)
    entry = np.empty((p, p), int)
    entry[upper] = entry.T[upper] = np.arange(len(pairs))
    total = train.sum(axis=1)
    theta = theta.copy()
    damping = np.zeros(fits)

    def once(state: tuple[np.ndarray, int]) -> tuple[np.ndarray, int]:
        active, _ = state
        hessian = (curvature[active] @ pairs.T).take(entry, axis=1)
        ridge = strengths[active] + (damping[active] * total[active])[:, None]
        # Folds may contain no data, and penalties may be zero: keep the Hessian regular.
        hessian[:, diagonal, diagonal] += ridge + 1e-12 * (1 + total[active, None])
        step = np.linalg.solve(hessian, slope[active][..., None])[..., 0]
        gain = (slope[active] * step).sum(axis=1)
        candidate = theta[active] - step
        parts = train[active], wanted[active], strengths[active]
        new = _evaluate(candidate, columns, *parts)
        lower = new[0] <= value[active] + 1e-12 * total[active]
        took = active[lower]
        theta[took], value[took] = candidate[lower], new[0][lower]
        slope[took], curvature[took] = new[1][lower], new[2][lower]
        harder = np.maximum(10 * damping[active], 1e-4)
        damping[active] = np.where(lower, damping[active] / 10, harder)
        active = active[~(lower & (gain <= _TOLERANCE * total[active]))]
        return active, -1 if len(active) else Status.CONVERGED

    with np.errstate(all="ignore"):
        value, slope, curvature = _evaluate(theta, columns, train, wanted, strengths)
        iterate(once, (np.arange(fits), -1), _ITERATIONS, np)
    return theta


def _evaluate(
    theta: Fits, columns: Columns, train: FitRows, wanted: Fits, strengths: Fits
) -> tuple[Float[np.ndarray, " fits"], Fits, FitRows]:
    """Compute values and slopes, and the rows' curvatures."""
    line = theta @ columns
    loss, rise, curvature = row_terms(line, 0.0, train, np)
    value = loss.sum(axis=1) + (0.5 * strengths * theta**2 - wanted * theta).sum(axis=1)
    return value, rise @ columns.T - wanted + strengths * theta, curvature
