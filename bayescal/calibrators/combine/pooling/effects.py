"""Logistic regression with an offset and a slope for each level of some groupings.

The effects of a grouping are normal around zero, with a standard deviation that is learned: the
mode of its posterior, in which effects are integrated out by Laplace's approximation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from bayescal._core.numerics import sigmoid

#: Prior standard deviations of the offset and of the slope that all rows share.
COMMON = 1.0, 0.5
#: Scales of the half-normal priors of standard deviations of offsets and of slopes.
HALF_NORMAL = 1.0, 0.25
_FIRST, _LEAST = 0.2, 1e-4
#: Standard deviations that are averaged over.
_GRID = np.geomspace(0.02, 3.0, 14)
_NEWTON_STEPS, _ROUNDS = 100, 60
#: Newton's method ends where a step gains less than this in log posterior.
_GAIN = 1e-9
#: Rounds end where no standard deviation changes by more than this share.
_CHANGE = 0.01


class Block(NamedTuple):
    """Effects of one kind: those of the levels of a grouping, on the offset or on the slope."""

    grouping: int
    slope: bool
    effects: slice
    #: Its place among standard deviations, or -1 where the prior is fixed.
    tau: int


@dataclass
class Effects:
    """Rows by cell, and the blocks of effects that act on cells.

    ``codes`` (groupings, cells) are levels, of which the first grouping has only one, that of all
    rows; ``sloped`` says which groupings have slopes. Scores are standardized for slopes.
    """

    logits: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    starts: np.ndarray
    codes: np.ndarray
    x: np.ndarray
    sizes: list[int]
    blocks: list[Block]
    scales: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        learned = [block for block in self.blocks if block.tau >= 0]
        self.scales = np.array([HALF_NORMAL[block.slope] for block in learned])

    @property
    def length(self) -> int:
        """The number of effects."""
        return self.blocks[-1].effects.stop

    def precision(self, tau: np.ndarray) -> np.ndarray:
        """Return prior precisions (effects,) for standard deviations (learned blocks,)."""
        precision = np.empty(self.length)
        for block in self.blocks:
            deviation = COMMON[block.slope] if block.tau < 0 else tau[block.tau]
            precision[block.effects] = deviation**-2.0
        return precision

    def by_cell(self, theta: np.ndarray) -> np.ndarray:
        """Sum effects to offsets and slopes (2, cells)."""
        total = np.zeros((2, self.codes.shape[1]))
        for block in self.blocks:
            total[int(block.slope)] += theta[block.effects][self.codes[block.grouping]]
        return total

    def loss(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Compute the weighted log loss, and log odds (n,)."""
        counts = np.diff(np.append(self.starts, len(self.y)))
        offset, slope = np.repeat(self.by_cell(theta), counts, axis=1)
        z = self.logits + offset + slope * self.x
        return float(self.weights @ (np.logaddexp(0.0, z) - self.y * z)), z

    def derivatives(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute the gradient (effects,) and the Hessian of the loss at log odds (n,)."""
        p = sigmoid(z)
        residual = self.weights * (p - self.y)
        spread = self.weights * p * (1 - p)
        rows = np.stack([residual, residual * self.x, spread, spread * self.x, spread * self.x**2])
        sums = np.add.reduceat(rows, self.starts, axis=1)
        gradient, hessian = np.empty(self.length), np.empty((self.length, self.length))
        for place, first in enumerate(self.blocks):
            code, size = self.codes[first.grouping], self.sizes[first.grouping]
            gradient[first.effects] = np.bincount(code, sums[int(first.slope)], size)
            for second in self.blocks[place:]:
                width = self.sizes[second.grouping]
                pairs = code * width + self.codes[second.grouping]
                values = sums[2 + int(first.slope) + int(second.slope)]
                part = np.bincount(pairs, values, size * width).reshape(size, width)
                hessian[first.effects, second.effects] = part
                hessian[second.effects, first.effects] = part.T
        return gradient, hessian


class Fit(NamedTuple):
    """Effects at their mode, their standard deviations by block, and the log evidence."""

    theta: np.ndarray
    tau: np.ndarray
    covariance: np.ndarray
    log_evidence: float
    converged: bool


def make_effects(
    logits: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    cell: np.ndarray,
    codes: np.ndarray,
    sloped: Sequence[bool],
    center: float,
    spread: float,
) -> Effects:
    """Sort rows by their cell (n,), and lay out effects of levels ``codes`` (groupings, cells)."""
    order = np.lexsort((y, logits, cell))
    starts = np.searchsorted(cell[order], np.arange(codes.shape[1]))
    every = np.concatenate([np.zeros((1, codes.shape[1]), codes.dtype), codes])
    sizes = [int(own.max()) + 1 for own in every]
    blocks, begin, learned = [], 0, 0
    for slope in (False, True):
        for grouping, size in enumerate(sizes):
            if slope and grouping and not sloped[grouping - 1]:
                continue
            tau = -1 if grouping == 0 else learned
            learned += grouping > 0
            blocks.append(Block(grouping, slope, slice(begin, begin + size), tau))
            begin += size
    ordered = logits[order]
    x = (ordered - center) / spread
    return Effects(ordered, y[order], weights[order], starts, every, x, sizes, blocks)


def fit_mode(
    effects: Effects, tau: np.ndarray, theta: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, bool], float, bool]:
    """Find the mode of effects by Newton's method: with the factor there, and the objective."""
    precision = effects.precision(tau)

    def objective(at: np.ndarray) -> tuple[float, np.ndarray]:
        loss, z = effects.loss(at)
        return loss + 0.5 * float(precision @ at**2), z

    value, z = objective(theta)
    for number in count():
        gradient, hessian = effects.derivatives(z)
        gradient += precision * theta
        hessian[np.diag_indices(len(theta))] += precision
        factor = cho_factor(hessian, lower=True, overwrite_a=True)
        step = -cho_solve(factor, gradient)
        gain = -0.5 * float(gradient @ step)
        if gain < _GAIN or number == _NEWTON_STEPS:
            return theta, factor, value, gain < _GAIN
        length = 1.0
        new, new_z = objective(theta + step)
        while not (new <= value - 1e-4 * length * gain or gain < 1e-6 or length < 1e-8):
            length /= 2
            new, new_z = objective(theta + length * step)
        theta, value, z = theta + length * step, new, new_z
    raise AssertionError("not reached")


def fit_at(effects: Effects, tau: np.ndarray, theta: np.ndarray, in_log: bool = False) -> Fit:
    """Fit effects for given standard deviations, with their posterior density as evidence."""
    theta, factor, value, converged = fit_mode(effects, tau, theta)
    half_log_det = float(np.log(np.diag(factor[0])).sum())
    prior = 0.5 * float(np.log(effects.precision(tau)).sum())
    prior -= 0.5 * float(((tau / effects.scales) ** 2).sum())
    evidence = prior - value - half_log_det + in_log * float(np.log(tau).sum())
    return Fit(theta, tau, cho_solve(factor, np.eye(len(theta))), evidence, converged)


def fit_effects(effects: Effects, start: Fit | None = None, in_log: bool = False) -> Fit:
    """Fit effects and their standard deviations.

    The standard deviations are at the mode of their posterior density, or, ``in_log``, at that of
    the density of their logarithms, which does not vanish into zero. Each round sets the derivative
    to zero for the effects, and their posterior covariance, of the round before.
    """
    theta = np.zeros(effects.length) if start is None else start.theta
    tau = np.full(len(effects.scales), _FIRST) if start is None else np.maximum(start.tau, 0.01)
    for number in count():
        fit = fit_at(effects, tau, theta, in_log)
        new = _update(effects, fit, in_log)
        change = np.abs(np.log(new / tau))[np.maximum(new, tau) > 0.01]
        if change.max(initial=0.0) < _CHANGE or number == _ROUNDS:
            return fit
        tau, theta = new, fit.theta
    raise AssertionError("not reached")


def _update(effects: Effects, fit: Fit, in_log: bool) -> np.ndarray:
    """Compute the standard deviations at which the derivative of their density vanishes."""
    new, variances = np.empty_like(fit.tau), np.diag(fit.covariance)
    for block in effects.blocks:
        if block.tau < 0:
            continue
        part, scale = block.effects, effects.scales[block.tau]
        squares = float(fit.theta[part] @ fit.theta[part])
        # The number of effects that the data determine.
        free = len(fit.theta[part]) - float(variances[part].sum()) / fit.tau[block.tau] ** 2
        free -= in_log
        root = np.sqrt(free**2 + 4 * squares / scale**2)
        # Without cancellation where the number is positive.
        square = 2 * squares / (free + root) if free > 0 else (root - free) * scale**2 / 2
        new[block.tau] = max(float(np.sqrt(square)), _LEAST)
    return new


def average_over_deviation(effects: Effects, fit: Fit, place: int) -> Fit:
    """Average fits over one of the standard deviations, weighted by its posterior density.

    The result has the mean and the covariance of the mixture. With few levels intervals at the mode
    alone are too narrow.
    """
    fits = []
    for deviation in _GRID:
        tau = fit.tau.copy()
        tau[place] = deviation
        fits.append(fit_at(effects, tau, fit.theta, in_log=True))
    evidence = np.array([one.log_evidence for one in fits])
    share = np.exp(evidence - evidence.max())
    share /= share.sum()
    thetas = np.stack([one.theta for one in fits])
    theta = share @ thetas
    away = thetas - theta
    covariance = np.tensordot(share, np.stack([one.covariance for one in fits]), axes=1)
    covariance += (away.T * share) @ away
    tau = np.sqrt(share @ np.stack([one.tau**2 for one in fits]))
    return Fit(theta, tau, covariance, fit.log_evidence, all(one.converged for one in fits))


def moments(blocks: Sequence[Block], fit: Fit, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute offsets and slopes (2, cells), and the variance, covariance and variance of these.

    Effects of unknown levels are zero, with their prior variances.
    """
    every = np.concatenate([np.zeros((1, codes.shape[1]), codes.dtype), codes])
    mean = np.zeros((2, codes.shape[1]))
    spread = np.zeros((3, codes.shape[1]))
    known = [every[block.grouping] >= 0 for block in blocks]
    for place, first in enumerate(blocks):
        code = every[first.grouping]
        mean[int(first.slope)] += np.where(known[place], fit.theta[first.effects][code], 0.0)
        if first.tau >= 0:
            spread[2 * int(first.slope)] += np.where(known[place], 0.0, fit.tau[first.tau] ** 2)
        for second, seen in zip(blocks[place:], known[place:], strict=True):
            part = fit.covariance[first.effects, second.effects]
            values = part[code, every[second.grouping]]
            twice = 2.0 if second is not first and first.slope == second.slope else 1.0
            kind = int(first.slope) + int(second.slope)
            spread[kind] += np.where(known[place] & seen, twice * values, 0.0)
    return mean, spread
