"""Logistic regression with an offset and a slope for each level of each grouping.

The effects of a grouping are normal around zero. In this module their standard deviations are
given: effects are at their mode, or integrated by quadrature if a level has few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from bayescal._core.numerics import sigmoid
from bayescal._core.shapes import Float, Int, Shaped
from bayescal.calibrators.combine.pooling.arrow import (
    Arrow,
    EffectBlock,
    EffectLayout,
    Factor,
    count_effects,
)

#: Prior standard deviations of the common offset and the common slope.
COMMON = 1.0, 0.5
#: Scales of the half-normal priors of standard deviations of offsets and of slopes.
HALF_NORMAL = 1.0, 0.25
_NEWTON_STEPS, _ROUNDS = 100, 60
#: Levels whose offset has less information than this are integrated by quadrature.
_ENOUGH = 8.0
#: Rows that are integrated at a time.
_AT_A_TIME = 4096


def _rule(*counts: int) -> tuple[np.ndarray, np.ndarray]:
    """Make the nodes (nodes, kinds) of a rule for standard normal effects, and its log weights."""
    rules = [hermegauss(count) for count in counts]
    nodes = np.stack([part.ravel() for part in np.meshgrid(*(rule[0] for rule in rules))], axis=1)
    logs = sum(np.meshgrid(*(np.log(rule[1] / rule[1].sum()) for rule in rules)))
    # Adaptive rules cancel the normal density, so multiply by it again.
    return nodes, np.ravel(logs) + 0.5 * (nodes**2).sum(axis=1)


#: Rules by the number of kinds; the node in the middle is zero.
_RULES = {1: _rule(7), 2: _rule(7, 3)}
#: Kept effects are at their mode if a step would gain less than this.
_QUADRATURE_GAIN = 1e-5
#: Fractions of a step that are tried until the loss falls.
_LENGTHS = 1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4
#: Newton's method ends when a step gains less than this in log posterior.
_GAIN = 1e-9


@dataclass
class Effects:
    """Rows by cell, and the blocks of effects that act on cells.

    ``codes`` (groupings, cells) are levels; the first grouping has a single level, for all rows.
    Cells are sorted by the level of the grouping that is eliminated. ``x`` are standardized scores,
    for slopes.
    """

    logits: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    starts: np.ndarray
    codes: np.ndarray
    x: np.ndarray
    layout: EffectLayout
    scales: np.ndarray = field(init=False)
    counts: np.ndarray = field(init=False)
    #: Start and number of the rows of each eliminated level.
    level_starts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        learned = [block for block in self.layout.blocks if block.tau >= 0]
        self.scales = np.array([HALF_NORMAL[block.slope] for block in learned])
        ends = np.append(self.starts, len(self.y))
        self.counts = np.diff(ends)
        levels = np.arange(len(self.layout.eliminated) + 1)
        self.level_starts = ends[np.searchsorted(self.codes[self.layout.grouping], levels)]

    def prior_deviation(
        self, tau: Float[np.ndarray, " learned_blocks"]
    ) -> Float[np.ndarray, " effects"]:
        """Return prior deviations (effects,) for standard deviations (learned blocks,)."""
        deviation = np.empty(self.layout.length)
        for block in self.layout.blocks:
            deviation[block.effects] = COMMON[block.slope] if block.tau < 0 else tau[block.tau]
        return deviation

    def by_cell(self, theta: Float[np.ndarray, " effects"]) -> Float[np.ndarray, "2 cells"]:
        """Sum effects to offsets and slopes (2, cells)."""
        total = np.zeros((2, self.codes.shape[1]))
        for block in self.layout.blocks:
            total[int(block.slope)] += theta[block.effects][self.codes[block.grouping]]
        return total

    def evaluate(
        self, theta: Float[np.ndarray, " effects"]
    ) -> tuple[float, Float[np.ndarray, "5 cells"]]:
        """Compute the weighted log loss, and sums (5, cells) of its derivatives.

        These are the first derivatives with respect to the offset and the slope of a cell, and the
        second derivatives with respect to the offset, both, and the slope.
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

    def derivatives(
        self, sums: Float[np.ndarray, "5 cells"]
    ) -> tuple[Float[np.ndarray, " effects"], Arrow]:
        """Compute the gradient (effects,) and the Hessian of the loss from sums (5, cells)."""
        layout, gradient = self.layout, np.empty(self.layout.length)
        (levels, kinds), size = layout.eliminated.shape, len(layout.kept)
        blocks = np.empty((levels, kinds, kinds))
        border, corner = np.empty((levels, kinds, size)), np.empty((size, size))
        placed = list(zip(layout.blocks, layout.positions, strict=True))
        # The positions of a cell among kept effects, and whether these are slopes.
        columns = np.stack([at + self.codes[b.grouping] for b, (inner, at) in placed if not inner])
        slopes = np.array([int(block.slope) for block, (inner, _) in placed if not inner])
        second = [sums[2 + kind + slopes].ravel() for kind in (0, 1)]
        for block, (inner, at) in placed:
            code, stop = self.codes[block.grouping], block.effects.stop - block.effects.start
            gradient[block.effects] = np.bincount(code, sums[int(block.slope)], stop)
            pairs = np.bincount((code * size + columns).ravel(), second[block.slope], stop * size)
            if inner:
                border[:, at] = pairs.reshape(stop, size)
                for to in range(kinds):
                    blocks[:, at, to] = np.bincount(code, sums[2 + at + to], stop)
            else:
                corner[at : at + stop] = pairs.reshape(stop, size)
        return gradient, Arrow(blocks, border, corner)


class FittedEffects(NamedTuple):
    """Effects at their mode, their standard deviations by block, and the log evidence."""

    theta: np.ndarray
    tau: np.ndarray
    covariance: Arrow
    log_evidence: float
    converged: bool


def make_effects(
    logits: Float[np.ndarray, " rows"],
    y: Shaped[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
    cell: Int[np.ndarray, " rows"],
    codes: Int[np.ndarray, "groupings cells"],
    sloped: Sequence[bool],
    center: float,
    spread: float,
) -> Effects:
    """Sort rows by their cell (n,), and lay out effects of levels ``codes`` (groupings, cells).

    ``sloped`` marks the groupings with slopes. Rows of a cell with equal scores are merged, with
    the mean of their labels.
    """
    sizes = [1, *(int(code.max()) + 1 for code in codes)]
    blocks, begin, learned = [], 0, 0
    for slope in (False, True):
        for grouping, size in enumerate(sizes):
            if slope and grouping and not sloped[grouping - 1]:
                continue
            tau = -1 if grouping == 0 else learned
            learned += grouping > 0
            blocks.append(EffectBlock(grouping, slope, slice(begin, begin + size), tau))
            begin += size
    counts, mass = count_effects(blocks), np.bincount(cell, weights)
    # Among groupings of equal size, prefer the most even groups, not the first.
    squares = [float((np.bincount(code, mass) ** 2).sum()) for code in codes]
    largest = max(counts, key=lambda grouping: (counts[grouping], -squares[grouping - 1]))
    by_level = np.argsort(codes[largest - 1], kind="stable")
    codes, cell = codes[:, by_level], np.argsort(by_level)[cell]
    # NumPy sorts small integers by their digits.
    order = np.argsort(cell.astype(np.min_scalar_type(codes.shape[1])), kind="stable")
    cell, logits, y, weights = cell[order], logits[order], y[order], weights[order]
    new = np.append(True, (cell[1:] != cell[:-1]) | (logits[1:] != logits[:-1]))
    if not new.all():
        starts = np.flatnonzero(new)
        mass = np.add.reduceat(weights, starts)
        y = np.add.reduceat(weights * y, starts) / mass
        cell, logits, weights = cell[starts], logits[starts], mass
    starts = np.searchsorted(cell, np.arange(codes.shape[1]))
    every = np.concatenate([np.zeros((1, codes.shape[1]), codes.dtype), codes])
    x = (logits - center) / spread
    return Effects(logits, y, weights, starts, every, x, EffectLayout(blocks, largest))


def fit_mode(
    effects: Effects,
    tau: Float[np.ndarray, " learned_blocks"],
    theta: Float[np.ndarray, " effects"],
    eliminated_alone: bool = False,
) -> tuple[Float[np.ndarray, " effects"], Factor, float, bool]:
    """Find the mode of effects by Newton's method; also return its factor and the objective.

    ``eliminated_alone`` changes only the effects of the eliminated grouping.
    """
    layout, deviation = effects.layout, effects.prior_deviation(tau)

    def objective(at: np.ndarray) -> tuple[float, np.ndarray]:
        loss, sums = effects.evaluate(at)
        return loss + 0.5 * float(((at / deviation) ** 2).sum()), sums

    value, sums = objective(theta)
    for number in count():
        gradient, hessian = effects.derivatives(sums)
        gradient += theta / deviation**2
        factor = Factor(layout, hessian, deviation)
        step = -(factor.solve_eliminated(gradient) if eliminated_alone else factor.solve(gradient))
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


def fit_at(
    effects: Effects,
    tau: Float[np.ndarray, " learned_blocks"],
    theta: Float[np.ndarray, " effects"],
    in_log: bool = False,
    warm: bool = False,
) -> FittedEffects:
    """Fit effects for given standard deviations, with their posterior density as evidence.

    Effects of levels with few rows are integrated out by quadrature, and the other effects are at
    the mode of the remaining posterior; ``warm`` means that ``theta`` is close to it.
    """
    layout = effects.layout
    theta, factor, value, converged = fit_mode(effects, tau, theta, eliminated_alone=warm)
    few = np.flatnonzero(factor.hessian.blocks[:, 0, 0] < _ENOUGH)
    if warm and not len(few):
        theta, factor, value, converged = fit_mode(effects, tau, theta)
    if len(few):
        (theta, factor, value, part, _), converged = _fit_integrated(effects, tau, theta, few)
        covariance, mean, log_ratio = factor.covariance, theta.copy(), part.log_ratio
        covariance.blocks[few] += part.excess
        mean[layout.eliminated[few]] += part.mean
    else:
        covariance, mean, log_ratio = factor.covariance, theta, 0.0
    evidence = -value - factor.half_log_det - 0.5 * float(((tau / effects.scales) ** 2).sum())
    evidence += in_log * float(np.log(tau).sum()) + log_ratio
    return FittedEffects(mean, tau, covariance, evidence, converged)


class _Integrals(NamedTuple):
    """Results of quadrature for levels with few rows.

    ``mean`` (few, kinds) is the mean of the effects minus their mode, ``excess`` (few, kinds,
    kinds) their covariance minus Laplace's, ``log_ratio`` the log of all integrals minus Laplace's,
    and ``gradient`` (kept,) the mean gradient of the loss by the kept effects.
    """

    mean: np.ndarray
    excess: np.ndarray
    log_ratio: float
    gradient: np.ndarray


class _Integrated(NamedTuple):
    """Effects, some of them integrated out; ``loss`` is the negative log of the integral."""

    theta: np.ndarray
    factor: Factor
    value: float
    part: _Integrals
    loss: float


def _fit_integrated(
    effects: Effects, tau: np.ndarray, theta: np.ndarray, few: np.ndarray
) -> tuple[_Integrated, bool]:
    """Find the mode of kept effects while some levels are integrated; return whether it converged.

    Newton's method with the Hessian at the mode of all effects.
    """
    layout = effects.layout

    def integrate(theta: np.ndarray) -> _Integrated:
        theta, factor, value, _ = fit_mode(effects, tau, theta, eliminated_alone=True)
        part = _integrate(effects, theta, factor, few)
        volume = 0.5 * float(np.linalg.slogdet(factor.conditional[few])[1].sum())
        return _Integrated(theta, factor, value, part, value - volume - part.log_ratio)

    point = integrate(theta)
    for _ in range(_ROUNDS):
        factor = point.factor
        gradient = (
            point.part.gradient + point.theta[layout.kept] / factor.deviation[layout.kept] ** 2
        )
        step = -factor.covariance.corner @ gradient
        gain = -0.5 * float(gradient @ step)
        if gain < _QUADRATURE_GAIN:
            return point, True
        move = layout.join(-factor.coefficients @ step, step)
        for length in _LENGTHS:
            new = integrate(point.theta + length * move)
            if new.loss < point.loss:
                break
        else:
            # Loss and gradient agree up to the error of the rule.
            return point, gain < 100 * _QUADRATURE_GAIN
        point = new
    return point, False


def _integrate(effects: Effects, theta: np.ndarray, factor: Factor, few: np.ndarray) -> _Integrals:
    """Integrate the eliminated effects of some levels by adaptive Gauss-Hermite quadrature.

    Given the kept effects, the effects of a level are independent of all others.
    """
    layout = effects.layout
    offset, slope = np.repeat(effects.by_cell(theta), effects.counts, axis=1)
    center = effects.logits + offset + slope * effects.x
    # Rows of other levels have the gradient at the mode.
    residuals = effects.weights * (sigmoid(center) - effects.y)
    mode, deviation = theta[layout.eliminated[few]], factor.deviation[layout.eliminated[few]]
    nodes, logs = _RULES[mode.shape[1]]
    moves = np.linalg.cholesky(factor.conditional[few]) @ nodes.T
    prior = 0.5 * (((mode[:, :, None] + moves) / deviation[:, :, None]) ** 2).sum(axis=1)
    terms, first = logs - prior, effects.level_starts[few]
    sizes = effects.level_starts[few + 1] - first
    middle = len(nodes) // 2
    # Levels whose rows, times nodes, fit into the processor's cache.
    for part in np.split(
        np.arange(len(few)), np.flatnonzero(np.diff(np.cumsum(sizes) // _AT_A_TIME)) + 1
    ):
        starts = np.cumsum(sizes[part]) - sizes[part]
        level = np.repeat(part, sizes[part])
        rows = np.arange(len(level)) + np.repeat(first[part] - starts, sizes[part])
        y, weights = effects.y[rows, None], effects.weights[rows, None]
        z = center[rows, None] + moves[level, 0]
        if moves.shape[1] > 1:
            z += moves[level, 1] * effects.x[rows, None]
        tail = np.exp(-np.abs(z))
        losses = weights * (np.maximum(z, 0.0) + np.log1p(tail) - y * z)
        terms[part] -= np.add.reduceat(losses, starts)
        terms[part] -= terms[part, middle, None] - logs[middle]
        share = np.exp(terms[part])
        share /= share.sum(axis=1, keepdims=True)
        predicted = np.where(z < 0, tail, 1.0) / (1 + tail)
        mean = np.einsum("nq,nq->n", predicted, share[level - part[0]])
        residuals[rows] = weights[:, 0] * (mean - y[:, 0])
    share = np.exp(terms)
    ratio = share.sum(axis=1)
    share /= ratio[:, None]
    mean = (moves @ share[:, :, None])[:, :, 0]
    away = moves - mean[:, :, None]
    excess = (away * share[:, None]) @ away.swapaxes(1, 2) - factor.conditional[few]
    sums = np.zeros((5, len(effects.starts)))
    sums[0] = np.add.reduceat(residuals, effects.starts)
    sums[1] = np.add.reduceat(residuals * effects.x, effects.starts)
    gradient, _ = effects.derivatives(sums)
    return _Integrals(mean, excess, float(np.log(ratio).sum()), gradient[layout.kept])


def moments(
    layout: EffectLayout, fit: FittedEffects, codes: Int[np.ndarray, "groupings cells"]
) -> tuple[Float[np.ndarray, "2 cells"], Float[np.ndarray, "3 cells"]]:
    """Compute offsets and slopes (2, cells), and the variance, covariance and variance of both.

    Effects of unknown levels are zero, with their prior variances.
    """
    blocks = layout.blocks
    every = np.concatenate([np.zeros((1, codes.shape[1]), codes.dtype), codes])
    mean = np.zeros((2, codes.shape[1]))
    spread = np.zeros((3, codes.shape[1]))
    known = [every[block.grouping] >= 0 for block in blocks]
    for index, first in enumerate(blocks):
        code = every[first.grouping]
        mean[int(first.slope)] += np.where(known[index], fit.theta[first.effects][code], 0.0)
        if first.tau >= 0:
            spread[2 * int(first.slope)] += np.where(known[index], 0.0, fit.tau[first.tau] ** 2)
        for to, (second, both_known) in enumerate(zip(blocks, known, strict=True)):
            if to < index:
                continue
            pair = code, every[second.grouping]
            values = fit.covariance.entries(layout, index, to, pair)
            multiplicity = 2.0 if second is not first and first.slope == second.slope else 1.0
            kind = int(first.slope) + int(second.slope)
            spread[kind] += np.where(known[index] & both_known, multiplicity * values, 0.0)
    return mean, spread
