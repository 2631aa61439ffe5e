"""Weighted points that summarize scores, and the choice of a spline's penalty."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.binning import begins_score
from bayescal.calibrators.binary.spline.basis import FUNCTIONS
from bayescal.data.order.equal_rows import is_first
from bayescal.data.rows import Rows
from bayescal.regression.binary.posterior import Target, find_mode, triangle
from bayescal.regression.binary.ridge import ridge_path

#: Maximal number of points.
_MAX_POINTS = 512
#: Number of candidate strengths, and of further ones if there are few distinct scores.
_GRID, _MORE = 17, 8
#: Exponent of the evidence of a strength.
_POWER = 0.5
#: Candidates whose log evidence is smaller than the largest by this much get no draws.
_NEGLIGIBLE = 20.0
#: Largest proportion of all weight that rows of equal score and label may have to share a fold:
#: if the score has one label, and if it has both.
_MAX_PROPORTIONS = 1 / 20, 1 / (1 << 20)


Destandardize: TypeAlias = Callable[[np.ndarray], np.ndarray]


class FoldedPoints(NamedTuple):
    """Points (k,), with weights (folds, k) of all rows and of positive rows."""

    x: np.ndarray
    weights: np.ndarray
    positives: np.ndarray

    def with_more(self, x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> FoldedPoints:
        """Append points (m,) in an additional fold."""

        def append_fold(folds: np.ndarray, more: np.ndarray) -> np.ndarray:
            corner = np.zeros((len(folds), len(more)))
            return np.block([[folds, corner], [np.zeros((1, folds.shape[1])), more[None]]])

        sums = append_fold(self.weights, weights), append_fold(self.positives, weights * y)
        return FoldedPoints(np.concatenate([self.x, x]), *sums)


def sort_rows(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Rows:
    """Sort rows by score, then by label, then by weight.

    Scores that are equal up to rounding become equal: the one closest to 0 or 1 is taken.
    """
    rows = _sorted(x, y, weights)
    begins = begins_score(rows.scores)
    first, last = rows.scores[begins], rows.scores[np.append(begins[1:], True)]
    equal = np.where(first < 0.5, first, last)[np.cumsum(begins) - 1]
    return rows if (equal == rows.scores).all() else _sorted(equal, rows.y, rows.weights)


def _sorted(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Rows:
    if (weights != weights[:1]).any() or not ((y == 0) | (y == 1)).all():
        order = np.lexsort((weights, y, x))
        return Rows(x[order], y[order], weights[order])
    # Sort each class, which is fast, and merge: a stable sort keeps the classes in order.
    zeros, ones = (np.sort(x[np.flatnonzero(y == label)]) for label in (0, 1))
    both = np.concatenate([zeros, ones])
    order = np.argsort(both, kind="stable")
    return Rows(both[order], (order >= len(zeros)).astype(y.dtype), weights)


def summarize(x: np.ndarray, y: np.ndarray, weights: np.ndarray, folds: int) -> FoldedPoints:
    """Summarize sorted rows by points of equal weight; equal scores share a point."""
    first = is_first(x)
    rows = np.flatnonzero(first)
    mass = np.add.reduceat(weights, rows)
    # Middles of equal scores are symmetric; a score on a border belongs to the outer side.
    rank = (np.cumsum(mass) - mass / 2) / weights.sum() * _MAX_POINTS
    outer = np.where(rank < _MAX_POINTS / 2, np.ceil(rank) - 1, np.floor(rank))
    quantile = np.repeat(outer, np.diff(np.append(rows, len(x)))).astype(int)
    begins = np.concatenate([[False], quantile[1:] > quantile[:-1]])
    if first.sum() <= _MAX_POINTS:
        begins = np.concatenate([[False], first[1:]])
    point = np.cumsum(begins)
    count = point[-1] + 1
    mean = np.bincount(point, weights * (x - x[0])) / np.bincount(point, weights) + x[0]
    cell, parts, fold = _divide(x, y, weights, folds)
    index = fold * count + point[cell]
    total = np.bincount(index, parts, minlength=folds * count).reshape(folds, count)
    ones = np.bincount(index, parts * y[cell], minlength=folds * count).reshape(folds, count)
    return FoldedPoints(mean, total, ones)


def _divide(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray, folds: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split sorted rows into parts: the row, the weight and the fold of each part."""
    first = np.concatenate([[True], (np.diff(x) > 0) | (np.diff(y) != 0)])
    rows = np.flatnonzero(first)
    weight = np.add.reduceat(weights, rows)
    cell, parts, total = rows, weight, weight.sum()
    # Most scores are too light to be split, which is quickly seen.
    if weight.max() > max(1.0, _MAX_PROPORTIONS[1] * total):
        # If a score has both labels, no fold may contain all rows of one label.
        same = np.diff(x[rows]) == 0
        both = np.append(False, same) | np.append(same, False)
        most = np.maximum(1.0, np.where(both, _MAX_PROPORTIONS[1], _MAX_PROPORTIONS[0]) * total)
        # Sums of weights carry rounding errors.
        pieces = np.maximum(np.ceil(weight / most - 1e-9), 1).astype(int)
        cell, parts = np.repeat(rows, pieces), np.repeat(weight / pieces, pieces)
    fold = np.empty(len(cell), int)
    # Folds are drawn, not assigned in turn: folds that agree in every region would not penalize
    # noise. One class is numbered from below and the other from above, so that exchanging the
    # classes gives mirrored folds.
    for label, step in ((0, -1), (1, 1)):
        rows_of_label = np.flatnonzero(y[cell] == label)[::step]
        fold[rows_of_label] = np.random.default_rng(0).permutation(len(rows_of_label)) % folds
    return cell, parts, fold


def choose_strength(
    columns: np.ndarray,
    points: FoldedPoints,
    roughness: np.ndarray,
    rule: str,
    folds: int,
    candidates: Sequence[float] | None,
) -> float:
    """Choose the strength by cross-validation; of equally good strengths the largest.

    Only the first ``folds`` folds are held out.
    """
    grid = grid_of(roughness, points.weights.sum(), candidates)
    if not len(grid):
        return 0.0
    path = ridge_path(columns, points.weights, points.positives, grid[:, None] * roughness)
    weight = points.weights.sum(axis=1)[:folds]
    proportion = weight / weight.sum()
    losses = np.where(np.isnan(path.losses), np.inf, path.losses)[:, :folds]
    best = int(np.argmin(losses @ proportion))
    if rule == "one_se" and np.isfinite(losses[best]).all():
        # The error of differences, because hard folds are hard for all strengths.
        worse = np.minimum(losses, 1e100) - losses[best]
        mean = worse @ proportion
        error = np.sqrt((worse - mean[:, None]) ** 2 @ proportion / (len(weight) - 1))
        best = int(np.argmax((mean <= error) & np.isfinite(losses).all(axis=1)))
    return float(grid[best])


def grid_of(roughness: np.ndarray, total: float, candidates: Sequence[float] | None) -> np.ndarray:
    """Return candidate strengths in descending order, for rows with this total weight.

    The array is empty if no function has roughness.
    """
    rough = roughness[roughness > 0]
    if not rough.size:
        return rough
    if candidates is not None:
        return np.unique(np.asarray(candidates, float))[::-1]
    # The grid starts where the smoothest function vanishes and ends where the roughest is half
    # free, or entirely free if few distinct scores allow all functions of the space.
    grid = np.geomspace(250 / rough[0], 0.25 / rough[-1], _GRID) * total
    if len(roughness) < FUNCTIONS:
        grid = np.concatenate([grid, grid[-1] * np.geomspace(1, 1e-3, _MORE + 1)[1:]])
    return grid


def draw_averaged(
    targets: Iterable[tuple[Destandardize, Target]], num_samples: int, seed: int
) -> tuple[np.ndarray, int]:
    """Draw (num_samples, p) from normal approximations; also return the worst status of fits.

    ``targets`` are posteriors for candidate strengths, largest first, with functions that convert
    to coefficients of the original columns. Candidates get draws in proportion to the square root
    of their evidence, which trusts one strength too much if it describes the curve only roughly.
    """
    fits, evidence, status = [], [], 0
    for destandardize, target in targets:
        mode, hessian = find_mode(target)
        factor = triangle(hessian)
        evidence.append(np.linalg.slogdet(factor)[1] - float(mode.value))
        if evidence[-1] < max(evidence) - _NEGLIGIBLE:
            # Smaller strengths have even less evidence, and their fits take many steps.
            evidence.pop()
            break
        fits.append((destandardize, mode, factor))
    weights = np.exp(_POWER * (np.array(evidence) - np.max(evidence)))
    half = -(-num_samples // 2)
    ends = np.round(np.cumsum(weights) / weights.sum() * half).astype(int)
    counts = np.diff(ends, prepend=0)
    noise = np.random.default_rng(seed).normal(size=(half, len(fits[0][2])))
    parts = []
    for (destandardize, mode, factor), stop, count in zip(fits, ends, counts, strict=True):
        deviation = noise[stop - count : stop] @ factor.T
        parts.append(destandardize(np.stack([mode.x + deviation, mode.x - deviation], axis=1)))
        status = max(status, int(mode.status) if count else 0)
    draws = np.concatenate(parts).reshape(-1, parts[0].shape[-1])
    return draws[:num_samples], status
