"""The standard deviations of effects: the mode of their posterior density.

The effects are integrated out by Laplace's approximation, or by quadrature where a level has few
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from bayescal.calibrators.combine.pooling.arrow import Arrow, Factor
from bayescal.calibrators.combine.pooling.effects import Effects, FittedEffects, fit_at

#: Initial standard deviations of a fit, and their lower bound.
_FIRST, _LEAST = 0.2, 1e-4
#: Standard deviations that are averaged over, unless Fisher's information on their logarithm
#: exceeds this: the grid has a step of 0.39, which is then twice the standard error.
_KNOWN = 25.0
_GRID = np.geomspace(0.02, 3.0, 14)
#: Share of these that must have converged.
_CONVERGED = 0.99
#: Rounds end when no effect and no standard deviation changes by more than this.
_CHANGE = 1e-5
#: Steps of standard deviations within a round, which ends when they change by less than this.
_STEPS, _NEAR = 6, 0.01
#: Rounds end when standard deviations are within this fraction of a standard error of the mode.
_SETTLED = 0.01
_ROUNDS = 60


def fit_effects(
    effects: Effects, start: FittedEffects | None = None, in_log: bool = False
) -> FittedEffects:
    """Fit effects and their standard deviations.

    The standard deviations are at the mode of their posterior density or, with ``in_log``, of the
    density of their logarithms, which does not collapse to zero. How the curvature of the loss
    depends on them is neglected. Each round takes one pass over the rows, and improves them for the
    quadratic approximation of the loss at the previous effects.
    """
    theta, tau = _start(effects, start)
    loss, sums = effects.evaluate(theta)
    for _ in range(_ROUNDS):
        gradient, hessian = effects.derivatives(sums)
        linear = hessian.times(effects.layout, theta) - gradient
        quadratic = _Quadratic(effects, hessian, linear, in_log)
        new_tau, optimum = quadratic.improve(tau)
        away = optimum - theta
        change = max(np.abs(new_tau - tau).max(initial=0.0), np.abs(away).max())
        curved = hessian.times(effects.layout, away)
        expected = loss + float(gradient @ away + 0.5 * away @ curved)
        before = loss
        loss, sums = effects.evaluate(optimum)
        if abs(loss - expected) > 0.2 * abs(before - expected) + 0.1:
            return _fit_by_rounds(effects, start, in_log)
        theta, tau = optimum, new_tau
        if change < _CHANGE:
            break
    fit = fit_at(effects, tau, theta, in_log)
    _, settled = _step(effects, fit, in_log)
    return fit if settled else _fit_by_rounds(effects, fit, in_log)


def _start(effects: Effects, start: FittedEffects | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the effects and the standard deviations of a fit, or initial ones."""
    if start is None:
        return np.zeros(effects.layout.length), np.full(len(effects.scales), _FIRST)
    return start.theta, np.maximum(start.tau, 0.01)


def _fit_by_rounds(effects: Effects, start: FittedEffects | None, in_log: bool) -> FittedEffects:
    """Fit effects whose loss is far from quadratic, as with few rows or extreme scores.

    Fisher-scoring steps for the logarithms of the standard deviations are extrapolated along the
    previous step (Anderson acceleration; the secant method for a single deviation), because they
    are far too short where the density is flat.
    """
    theta, tau = _start(effects, start)
    last, last_step = np.log(tau), np.zeros(0)
    for number in count():
        fit = fit_at(effects, tau, theta, in_log, warm=number > 0)
        step, settled = _step(effects, fit, in_log)
        if settled or number == _ROUNDS:
            return fit._replace(converged=fit.converged and settled)
        log_tau, move = np.log(tau), step
        if number:
            change = step - last_step
            ratio = float(change @ step) / max(float(change @ change), 1e-300)
            move = step - ratio * (log_tau - last + change)
            if move @ step <= 0:
                move = step
        last, last_step = log_tau, step
        tau, theta = np.maximum(tau * np.exp(np.clip(move, -1.0, 1.0)), _LEAST), fit.theta
    raise AssertionError("not reached")


def _step(effects: Effects, fit: FittedEffects, in_log: bool) -> tuple[np.ndarray, bool]:
    """Compute a step of Fisher's scoring for the logarithms of standard deviations.

    Also return whether they are within a small fraction of a standard error of the mode.
    """
    layout, tau = effects.layout, fit.tau
    every = effects.prior_deviation(tau) ** 2
    variances = fit.covariance.diagonal(layout)
    gradient = layout.sum_by_block((fit.theta**2 + variances) / every - 1)
    gradient += in_log - (tau / effects.scales) ** 2
    information = 2 * layout.sum_by_block((1 - variances / every) ** 2)
    free = (tau > 0.01) | (gradient > 0)
    settled = np.abs(gradient)[free] <= _SETTLED * np.sqrt(1 + information[free])
    # Without information the density of the logarithm falls where the prior or the data end it.
    curvature = information + 2 * (tau / effects.scales) ** 2 + 0.5 + 1.5 * in_log
    return gradient / curvature, bool(settled.all())


class _Point(NamedTuple):
    """Variances of blocks, and the log density of the standard deviations at these variances.

    ``score`` is the gradient of the log likelihood at the best effects.
    """

    variances: np.ndarray
    value: float
    best: np.ndarray
    score: np.ndarray
    factor: Factor


@dataclass
class _Quadratic:
    """The loss t' hessian t / 2 - linear' t of effects t, which can be integrated exactly."""

    effects: Effects
    hessian: Arrow
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
        return np.sqrt(point.variances), point.best

    def at(self, variances: np.ndarray) -> _Point:
        """Compute the log density for variances of the learned blocks."""
        layout = self.effects.layout
        factor = Factor(layout, self.hessian, self.effects.prior_deviation(np.sqrt(variances)))
        best = factor.solve(self.linear)
        value = 0.5 * float(self.linear @ best) - factor.half_log_det
        value -= 0.5 * float((variances / self.effects.scales**2).sum())
        value += self.in_log * 0.5 * float(np.log(variances).sum())
        score = self.linear - self.hessian.times(layout, best)
        return _Point(variances, value, best, score, factor)

    def step(self, point: _Point, most: np.ndarray) -> _Point:
        """Take a step of Newton's method, or of Fisher's scoring where the density is convex.

        Variances are at most ``most``.
        """
        variances, value, _, score, factor = point
        diagonal, fisher, newton = self._moments(factor, score)
        slope = 0.5 * self.effects.layout.sum_by_block(score**2 - diagonal)
        slope -= 0.5 / self.effects.scales**2
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

    def _moments(
        self, factor: Factor, score: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Compute the sums over R = (H^-1 + V)^-1 in the derivatives by the variances.

        The sums are the diagonal of R and, for pairs of blocks, half the sums of its squares
        (Fisher's information) and the corresponding entries for Newton's method: sums of s R s
        minus Fisher's information, where s is the score. R between different eliminated levels is
        -N C N', where C is the covariance of kept effects; it is never formed.
        """
        layout = self.effects.layout
        score_inner, score_kept = score[layout.eliminated], score[layout.kept]
        scale = factor.deviation[layout.kept]
        covariance = scale[:, None] * factor.inner_inverse * scale
        shrink = factor.inner_inverse / scale[:, None] * scale
        reach = factor.shrink @ self.hessian.border
        spread = reach @ covariance
        within = spread @ reach.swapaxes(1, 2)
        blocks = factor.shrink @ self.hessian.blocks
        border, corner = reach @ shrink.T, shrink @ factor.schur
        # Sums over pairs of levels as products of matrices of kept effects.
        kinds = range(blocks.shape[1])
        products = [covariance @ (reach[:, kind].T @ reach[:, kind]) for kind in kinds]
        squares = np.array([[(left * right.T).sum() for right in products] for left in products])
        squares += ((blocks - within) ** 2 - within**2).sum(axis=0)
        fisher = 0.5 * layout.sum_by_blocks(squares, border**2, corner**2)
        weighted = np.einsum("li,lij,lj->ij", score_inner, blocks, score_inner)
        pulls = np.einsum("li,lim->im", score_inner, reach)
        newton = layout.sum_by_blocks(
            weighted - pulls @ covariance @ pulls.T,
            score_inner[:, :, None] * border * score_kept,
            score_kept[:, None] * corner * score_kept,
        )
        diagonal = np.diagonal(blocks - within, axis1=1, axis2=2)
        return layout.join(diagonal, np.diag(corner)), fisher, newton - fisher


def _solve(newton: np.ndarray, fisher: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Solve for a step with the first matrix, or with the second one if it is not definite."""
    try:
        return cho_solve(cho_factor(newton), slope)
    except LinAlgError:
        scale = np.sqrt(np.diag(fisher) + 1e-100)
        values, vectors = np.linalg.eigh(fisher / scale / scale[:, None])
        return vectors @ (vectors.T @ (slope / scale) / np.maximum(values, 1e-9)) / scale


def average_over_deviation(effects: Effects, fit: FittedEffects, index: int) -> FittedEffects:
    """Average fits over one of the standard deviations, weighted by its posterior density.

    The result has the mean and the covariance of the mixture. With few levels, intervals at the
    mode alone are too narrow; with many, the fit is unchanged.
    """
    block = next(block for block in effects.layout.blocks if block.tau == index)
    variances = fit.covariance.diagonal(effects.layout)[block.effects]
    information = 2 * float(((1 - variances / fit.tau[index] ** 2) ** 2).sum())
    if information > _KNOWN:
        return fit
    fits = []
    for deviation in _GRID:
        tau = fit.tau.copy()
        tau[index] = deviation
        fits.append(fit_at(effects, tau, fit.theta, in_log=True, warm=True))
    evidence = np.array([member.log_evidence for member in fits])
    share = np.exp(evidence - evidence.max())
    share /= share.sum()
    thetas = np.stack([member.theta for member in fits])
    theta = share @ thetas
    away = thetas - theta
    inner, kept = away[:, effects.layout.eliminated], away[:, effects.layout.kept]
    between = (
        np.einsum("s,sli,slj->lij", share, inner, inner),
        np.einsum("s,sli,sm->lim", share, inner, kept, optimize=True),
        (kept.T * share) @ kept,
    )
    parts = zip(*(member.covariance for member in fits), strict=True)
    covariance = Arrow(
        *(
            np.tensordot(share, part, axes=1) + more
            for part, more in zip(map(np.stack, parts), between, strict=True)
        )
    )
    tau = np.sqrt(share @ np.stack([member.tau**2 for member in fits]))
    # For wide priors the rule is not exact enough to find the mode, but these hardly count.
    converged = bool(share @ [member.converged for member in fits] > _CONVERGED)
    return FittedEffects(theta, tau, covariance, fit.log_evidence, converged)
