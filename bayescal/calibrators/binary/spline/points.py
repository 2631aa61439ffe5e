"""Scores gathered in points, their folds, and the strength of a spline's penalty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayescal.calibrators.binary.spline.basis import FUNCTIONS
from bayescal.regression.binary.posterior import Target, find_mode, triangle
from bayescal.regression.binary.ridge import ridge_path

_POINTS = 512
_GRID, _MORE = 17, 8
#: Of the evidence of a strength.
_POWER = 0.5
#: A logarithm of evidence that is less by so much has no draws.
_NEGLIGIBLE = 20.0
#: Rows of equal score and label share a fold if they are not more than this share of all: the
#: first if that score has one label only, the second if both.
_SHARES = 1 / 20, 1 / (1 << 20)


class Points(NamedTuple):
    """Scores gathered in points (k,), with the weight (folds, k) of cases and of positives."""

    x: np.ndarray
    weights: np.ndarray
    positives: np.ndarray

    def with_more(self, x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Points:
        """Return these points and others (m,), which are in a fold of their own."""

        def join(own: np.ndarray, more: np.ndarray) -> np.ndarray:
            corner = np.zeros((len(own), len(more)))
            return np.block([[own, corner], [np.zeros((1, own.shape[1])), more[None]]])

        both = join(self.weights, weights), join(self.positives, weights * y)
        return Points(np.concatenate([self.x, x]), *both)


def gather(x: np.ndarray, y: np.ndarray, weights: np.ndarray, folds: int) -> Points:
    """Gather sorted rows in points of equal weight; equal scores go to one point."""
    first = np.concatenate([[True], x[1:] > x[:-1]])
    rows = np.flatnonzero(first)
    mass = np.add.reduceat(weights, rows)
    # Of the middles of equal scores, so that both ends are alike: borders belong to the outer side.
    place = (np.cumsum(mass) - mass / 2) / weights.sum() * _POINTS
    outer = np.where(place < _POINTS / 2, np.ceil(place) - 1, np.floor(place))
    share = np.repeat(outer, np.diff(np.append(rows, len(x)))).astype(int)
    begins = np.concatenate([[False], share[1:] > share[:-1]])
    if first.sum() <= _POINTS:
        begins = np.concatenate([[False], first[1:]])
    point = np.cumsum(begins)
    count = point[-1] + 1
    mean = np.bincount(point, weights * (x - x[0])) / np.bincount(point, weights) + x[0]
    cell, parts, fold = _divide(x, y, weights, folds)
    place = fold * count + point[cell]
    total = np.bincount(place, parts, minlength=folds * count).reshape(folds, count)
    ones = np.bincount(place, parts * y[cell], minlength=folds * count).reshape(folds, count)
    return Points(mean, total, ones)


def _divide(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray, folds: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return parts of sorted rows: the row that each stands for, its weight and its fold."""
    first = np.concatenate([[True], (np.diff(x) > 0) | (np.diff(y) != 0)])
    rows = np.flatnonzero(first)
    weight = np.add.reduceat(weights, rows)
    # A score with both labels must not lose all of one with a fold.
    same = np.diff(x[rows]) == 0
    both = np.append(False, same) | np.append(same, False)
    most = np.maximum(1.0, np.where(both, _SHARES[1], _SHARES[0]) * weight.sum())
    # Sums of weights carry rounding errors.
    pieces = np.maximum(np.ceil(weight / most - 1e-9), 1).astype(int)
    cell = np.repeat(rows, pieces)
    fold = np.empty(len(cell), int)
    # Not in turn: folds that are alike in every region would not punish what is only noise. Those
    # of one class are drawn from below, and of the other from above: of exchanged classes the same.
    for label, step in ((0, -1), (1, 1)):
        own = np.flatnonzero(y[cell] == label)[::step]
        fold[own] = np.random.default_rng(0).permutation(len(own)) % folds
    return cell, np.repeat(weight / pieces, pieces), fold


def choose_strength(
    columns: np.ndarray,
    points: Points,
    roughness: np.ndarray,
    rule: str,
    folds: int,
    candidates: Sequence[float] | None,
) -> float:
    """Return the strength that cross-validation prefers; of equals the greatest.

    Further folds than these are never held out.
    """
    grid = grid_of(roughness, points.weights.sum(), candidates)
    if not len(grid):
        return 0.0
    path = ridge_path(columns, points.weights, points.positives, grid[:, None] * roughness)
    held = points.weights.sum(axis=1)[:folds]
    share = held / held.sum()
    losses = np.where(np.isnan(path.losses), np.inf, path.losses)[:, :folds]
    best = int(np.argmin(losses @ share))
    if rule == "one_se" and np.isfinite(losses[best]).all():
        # Of differences: folds that are hard are so for all strengths.
        worse = np.minimum(losses, 1e100) - losses[best]
        mean = worse @ share
        error = np.sqrt((worse - mean[:, None]) ** 2 @ share / (len(held) - 1))
        best = int(np.argmax((mean <= error) & np.isfinite(losses).all(axis=1)))
    return float(grid[best])


def grid_of(roughness: np.ndarray, total: float, given: Sequence[float] | None) -> np.ndarray:
    """Return candidates of the strength, greatest first, for rows of a total weight.

    None if no function has roughness.
    """
    rough = roughness[roughness > 0]
    if not rough.size:
        return rough
    if given is not None:
        return np.unique(np.asarray(given, float))[::-1]
    # From where the smoothest curve is gone to where the roughest is half free; and wholly free if
    # all functions of the space are kept, as with few distinct scores.
    grid = np.geomspace(250 / rough[0], 0.25 / rough[-1], _GRID) * total
    if len(roughness) < FUNCTIONS:
        grid = np.concatenate([grid, grid[-1] * np.geomspace(1, 1e-3, _MORE + 1)[1:]])
    return grid


def draw_averaged(
    targets: Iterable[tuple[Any, Target]], num_samples: int, seed: int
) -> tuple[np.ndarray, int]:
    """Return draws (num_samples, p) from normal approximations, and the worst status of their fits.

    ``targets`` are bases and posteriors by candidates of the strength, greatest first. Each has a
    share of the draws, by the root of its evidence: of curves that the strength describes only
    roughly, the evidence trusts one strength too much.
    """
    found, evidence, status = [], [], 0
    for basis, target in targets:
        mode, hessian = find_mode(target)
        factor = triangle(hessian)
        evidence.append(np.linalg.slogdet(factor)[1] - float(mode.value))
        if evidence[-1] < max(evidence) - _NEGLIGIBLE:
            # Weaker ones have still less, and take many steps.
            evidence.pop()
            break
        found.append((basis, mode, factor))
    share = np.exp(_POWER * (np.array(evidence) - np.max(evidence)))
    half = -(-num_samples // 2)
    ends = np.round(np.cumsum(share) / share.sum() * half).astype(int)
    counts = np.diff(ends, prepend=0)
    noise = np.random.default_rng(seed).normal(size=(half, len(found[0][2])))
    parts = []
    for (basis, mode, factor), stop, count in zip(found, ends, counts, strict=True):
        apart = noise[stop - count : stop] @ factor.T
        parts.append(basis.back(np.stack([mode.x + apart, mode.x - apart], axis=1)))
        status = max(status, int(mode.status) if count else 0)
    draws = np.concatenate(parts).reshape(-1, parts[0].shape[-1])
    return draws[:num_samples], status
