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
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, lapack, solve_triangular

#: Inverts a matrix from its factor of Cholesky; the other triangle is undefined.
_invert = lapack.dpotri  # pyright: ignore[reportAttributeAccessIssue]
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
#: Rounds end where no effect and no standard deviation changes by more than this.
_CHANGE = 1e-5
#: Steps of standard deviations within a round, which ends where they change by less than this.
_STEPS, _NEAR = 6, 0.01


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
    counts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        learned = [block for block in self.blocks if block.tau >= 0]
        self.scales = np.array([HALF_NORMAL[block.slope] for block in learned])
        self.counts = np.diff(np.append(self.starts, len(self.y)))

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

    def evaluate(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Compute the weighted log loss, and sums (5, cells) of its derivatives.

        These are the first derivatives by the offset and the slope of a cell, and the second ones
        by the offset, by both, and by the slope.
        """
        offset, slope = np.repeat(self.by_cell(theta), self.counts, axis=1)
        z = self.logits + offset + slope * self.x
        tail = np.exp(-np.abs(z))
        larger = 1 / (1 + tail)
        loss = self.weights @ (np.maximum(z, 0.0) - np.log(larger) - self.y * z)
        smaller = tail * larger
        rows = np.empty((5, len(z)))
        rows[0] = self.weights * (np.where(z < 0, smaller, larger) - self.y)
        rows[2] = self.weights * smaller * larger
        np.multiply(rows[0], self.x, out=rows[1])
        np.multiply(rows[2], self.x, out=rows[3])
        np.multiply(rows[3], self.x, out=rows[4])
        return float(loss), np.add.reduceat(rows, self.starts, axis=1)

    def derivatives(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute the gradient (effects,) and the Hessian of the loss from sums (5, cells)."""
        columns = np.stack(
            [block.effects.start + self.codes[block.grouping] for block in self.blocks]
        )
        kinds = np.array([int(block.slope) for block in self.blocks])
        gradient = np.bincount(columns.ravel(), sums[kinds].ravel(), self.length)
        second = [sums[2 + kind + kinds].ravel() for kind in (0, 1)]
        hessian = np.empty((self.length, self.length))
        for block in self.blocks:
            rows = hessian[block.effects]
            pairs = self.codes[block.grouping] * self.length + columns
            rows[:] = np.bincount(pairs.ravel(), second[block.slope], rows.size).reshape(rows.shape)
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
    """Sort rows by their cell (n,), and lay out effects of levels ``codes`` (groupings, cells).

    Neighboring rows of a cell with equal scores become one, with the mean of their labels.
    """
    # NumPy sorts small integers by their digits.
    order = np.argsort(cell.astype(np.min_scalar_type(codes.shape[1])), kind="stable")
    cell, logits, y, weights = cell[order], logits[order], y[order], weights[order]
    new = np.append(True, (cell[1:] != cell[:-1]) | (logits[1:] != logits[:-1]))
    if not new.all():
        begin = np.flatnonzero(new)
        mass = np.add.reduceat(weights, begin)
        y = np.add.reduceat(weights * y, begin) / mass
        cell, logits, weights = cell[begin], logits[begin], mass
    starts = np.searchsorted(cell, np.arange(codes.shape[1]))
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
    x = (logits - center) / spread
    return Effects(logits, y, weights, starts, every, x, sizes, blocks)


def fit_mode(
    effects: Effects, tau: np.ndarray, theta: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, bool], float, bool]:
    """Find the mode of effects by Newton's method: with the factor there, and the objective."""
    precision = effects.precision(tau)

    def objective(at: np.ndarray) -> tuple[float, np.ndarray]:
        loss, sums = effects.evaluate(at)
        return loss + 0.5 * float(precision @ at**2), sums

    value, sums = objective(theta)
    for number in count():
        gradient, hessian = effects.derivatives(sums)
        gradient += precision * theta
        hessian[np.diag_indices(len(theta))] += precision
        factor = cho_factor(hessian, lower=True, overwrite_a=True)
        step = -cho_solve(factor, gradient)
        gain = -0.5 * float(gradient @ step)
        if gain < _GAIN or number == _NEWTON_STEPS:
            return theta, factor, value, gain < _GAIN
        length = 1.0
        new, sums = objective(theta + step)
        while not (new <= value - 1e-4 * length * gain or gain < 1e-6 or length < 1e-8):
            length /= 2
            new, sums = objective(theta + length * step)
        theta, value = theta + length * step, new
    raise AssertionError("not reached")


def fit_at(effects: Effects, tau: np.ndarray, theta: np.ndarray, in_log: bool = False) -> Fit:
    """Fit effects for given standard deviations, with their posterior density as evidence."""
    theta, factor, value, converged = fit_mode(effects, tau, theta)
    half_log_det = float(np.log(np.diag(factor[0])).sum())
    prior = 0.5 * float(np.log(effects.precision(tau)).sum())
    prior -= 0.5 * float(((tau / effects.scales) ** 2).sum())
    evidence = prior - value - half_log_det + in_log * float(np.log(tau).sum())
    lower = np.tril(_invert(factor[0], lower=True)[0])
    covariance = lower + np.tril(lower, -1).T
    return Fit(theta, tau, covariance, evidence, converged)


def fit_effects(effects: Effects, start: Fit | None = None, in_log: bool = False) -> Fit:
    """Fit effects and their standard deviations.

    The standard deviations are at the mode of their posterior density, or, ``in_log``, at that of
    the density of their logarithms, which does not vanish into zero. How the curvature of the loss
    depends on them is left out. Each round takes one pass over the rows, and improves the standard
    deviations for the quadratic approximation of the loss at the effects of the round before.
    """
    theta, tau = _start(effects, start)
    loss, sums = effects.evaluate(theta)
    for _ in range(_ROUNDS):
        gradient, hessian = effects.derivatives(sums)
        quadratic = _Quadratic(effects, hessian, hessian @ theta - gradient, in_log)
        new_tau, optimum = quadratic.improve(tau)
        away = optimum - theta
        change = max(np.abs(new_tau - tau).max(initial=0.0), np.abs(away).max())
        expected = loss + float(gradient @ away + 0.5 * away @ hessian @ away)
        before = loss
        loss, sums = effects.evaluate(optimum)
        if abs(loss - expected) > 0.2 * abs(before - expected) + 0.1:
            return _fit_by_rounds(effects, start, in_log)
        theta, tau = optimum, new_tau
        if change < _CHANGE:
            break
    return fit_at(effects, tau, theta, in_log)


def _start(effects: Effects, start: Fit | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the effects and the standard deviations of a fit, or those to begin with."""
    if start is None:
        return np.zeros(effects.length), np.full(len(effects.scales), _FIRST)
    return start.theta, np.maximum(start.tau, 0.01)


def _fit_by_rounds(effects: Effects, start: Fit | None, in_log: bool) -> Fit:
    """Fit effects whose loss is far from quadratic, as that of scores far from zero.

    Each round sets the derivative by the standard deviations to zero for the effects, and their
    posterior covariance, of the round before.
    """
    theta, tau = _start(effects, start)
    for number in count():
        fit = fit_at(effects, tau, theta, in_log)
        new = _update(effects, fit, in_log)
        change = np.abs(np.log(new / tau))[np.maximum(new, tau) > 0.01]
        if change.max(initial=0.0) < 0.01 or number == _ROUNDS:
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


class _Point(NamedTuple):
    """Variances of blocks, and the log density of the standard deviations there.

    ``score`` is the gradient of the log likelihood at the best effects, ``deviation`` the prior
    standard deviation of effects, and ``factor`` that of Cholesky of the scaled Hessian.
    """

    variances: np.ndarray
    value: float
    score: np.ndarray
    deviation: np.ndarray
    factor: np.ndarray


@dataclass
class _Quadratic:
    """The loss t' hessian t / 2 - linear' t of effects t, which can be integrated exactly."""

    effects: Effects
    hessian: np.ndarray
    linear: np.ndarray
    in_log: bool

    def improve(self, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Move standard deviations toward the mode of their density; find the best effects there.

        Newton's method finds the maximum over the variances, which may be zero.
        """
        point = self.at(tau**2)
        most = 10 * tau**2 + 0.01
        for _ in range(_STEPS):
            new = self.step(point, most)
            moved = np.abs(np.sqrt(new.variances) - np.sqrt(point.variances)).max(initial=0.0)
            point = new
            if moved < _NEAR:
                break
        return np.sqrt(point.variances), point.deviation**2 * point.score

    def at(self, variances: np.ndarray) -> _Point:
        """Compute the log density for variances of the learned blocks."""
        deviation = self.effects.precision(np.sqrt(variances)) ** -0.5
        inner = deviation[:, None] * self.hessian * deviation
        inner[np.diag_indices(len(inner))] += 1
        factor = cholesky(inner, lower=True, overwrite_a=True, check_finite=False)
        part = solve_triangular(factor, deviation * self.linear, lower=True, check_finite=False)
        best = solve_triangular(factor, part, lower=True, trans=1, check_finite=False)
        value = 0.5 * float(part @ part) - float(np.log(np.diag(factor)).sum())
        value -= 0.5 * float((variances / self.effects.scales**2).sum())
        value += self.in_log * 0.5 * float(np.log(variances).sum())
        score = self.linear - self.hessian @ (deviation * best)
        return _Point(variances, value, score, deviation, factor)

    def step(self, point: _Point, most: np.ndarray) -> _Point:
        """Take a step of Newton's method, or of Fisher's scoring where the density is convex.

        Variances are at most ``most``.
        """
        variances, value, score, deviation, factor = point
        half = deviation[:, None] * self.hessian
        half = solve_triangular(factor, half, lower=True, overwrite_b=True, check_finite=False)
        rest = self.hessian - half.T @ half
        slope = 0.5 * self._by_block(score**2 - np.diag(rest)) - 0.5 / self.effects.scales**2
        fisher = 0.5 * self._by_blocks(rest * rest)
        newton = self._by_blocks(score[:, None] * rest * score) - fisher
        if self.in_log:
            slope += 0.5 / variances
            for matrix in (fisher, newton):
                matrix[np.diag_indices(len(slope))] += 0.5 / variances**2
        free = (variances > _LEAST**2) | (slope > 0)
        if not free.any():
            return point
        both, direction = np.ix_(free, free), np.zeros_like(slope)
        direction[free] = _solve(newton[both], fisher[both], slope[free])
        least = np.maximum(variances / 10 if self.in_log else 0.0, _LEAST**2)
        for length in (1.0, 0.25, 0.06, 0.01, 1e-3, 1e-4):
            new = np.clip(variances + length * direction, least, most)
            if (moved := self.at(new)).value >= value:
                return moved
        return point

    def _by_block(self, values: np.ndarray) -> np.ndarray:
        """Sum values (effects, ...) by learned block."""
        starts = [block.effects.start for block in self.effects.blocks]
        learned = [block.tau >= 0 for block in self.effects.blocks]
        return np.add.reduceat(values, starts)[learned]

    def _by_blocks(self, values: np.ndarray) -> np.ndarray:
        """Sum values (effects, effects) by pairs of learned blocks."""
        return self._by_block(self._by_block(values).T).T


def _solve(newton: np.ndarray, fisher: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Solve for a step with the first matrix, or with the second one if it is not definite."""
    try:
        return cho_solve(cho_factor(newton), slope)
    except LinAlgError:
        scale = np.sqrt(np.diag(fisher) + 1e-100)
        values, vectors = np.linalg.eigh(fisher / scale / scale[:, None])
        return vectors @ (vectors.T @ (slope / scale) / np.maximum(values, 1e-9)) / scale


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
