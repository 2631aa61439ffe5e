"""Uncertainty of calibrated probabilities, by posterior draws of a small recalibration.

A calibrator need not have a posterior. Its probabilities at the calibration rows are recalibrated
by a few parameters with a normal prior. Draws from the posterior of these parameters, each with the
class proportions that it implies, represent the uncertainty of the calibrator.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import (
    AnyArray,
    Array,
    Namespace,
    State,
    UserData,
    XArray,
    matmul,
    namespace,
)
from bayescal._core.execution.chunks import slices
from bayescal._core.minimization.optimize import QuadraticModel, newton_on_host
from bayescal._core.numerics import effective_size, log_odds, log_softmax, sigmoid, softmax
from bayescal._core.shapes import Float, Int
from bayescal._core.warnings import AccuracyWarning, warn
from bayescal.calibrators.base.draws import ends_of_draws, map_rows
from bayescal.data.checks import check_class_prior

#: Number of draws of the recalibration.
NUM_DRAWS = 40
#: Prior standard deviations: slope, offset, curvature for two classes; slope, offsets for more.
_SLOPE_SCALE, _OFFSET_SCALE = 0.5, 2.0
_BINARY_SCALES = np.array([_SLOPE_SCALE, _OFFSET_SCALE, 1.0])
#: Number of rows above which rows with similar log odds are merged, and the width of the cells.
MAX_ROWS, _CELL_WIDTH = 300, 0.05
#: Numbers of log probabilities that are recalibrated at once.
_NUMBERS_AT_ONCE = 1 << 14


class Recalibration(NamedTuple):
    """Draws of recalibrations: parameters (draws, p) and log class proportions (draws, k)."""

    theta: np.ndarray
    log_shares: np.ndarray


def draw_recalibrations(
    log_probs: Float[np.ndarray, "rows classes"],
    codes: Int[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
    rng: np.random.Generator,
) -> Recalibration:
    """Draw recalibrations from their posterior given the calibration rows.

    Labels are positions among the classes. Weights are positive; those that are not counts are
    scaled to their effective number of rows. The class proportions of a draw are its mean
    probabilities, over rows weighted by the Bayesian bootstrap. Each draw determines both, because
    their errors are strongly correlated.
    """
    mass = as_rows(weights)
    if log_probs.shape[1] == 2:
        base, counts = merge_rows(log_odds(log_probs), np.stack([mass, mass * codes], axis=1))
        log_probs, mass = log_softmax(np.stack([0 * base, base], axis=1)), counts[:, 0]
        mode, precision = _binary_mode(base, mass, counts[:, 1])
    else:
        mode, precision = _softmax_mode(log_probs, codes, mass)
        # Shrink toward no recalibration (James and Stein), because many offsets would fit noise.
        gain = float(mode @ precision @ mode)
        mode = mode * max(0.0, 1 - len(mode) / gain) if gain > 0 else mode
    noise = rng.standard_normal((NUM_DRAWS, len(mode)))
    if len(mode) < NUM_DRAWS:
        # Few draws represent the posterior better if they have exactly its mean and covariance.
        noise = np.linalg.qr(noise - noise.mean(axis=0))[0] * np.sqrt(NUM_DRAWS - 1)
    theta = mode + np.linalg.solve(np.linalg.cholesky(precision).T, noise.T).T
    if mode[0] > -1:
        # If scores separate the classes, hardly anything but the prior determines the slope, and a
        # normal distribution includes slopes that exchange the classes. Draws of 1 + slope below
        # half of that of the mode are replaced by smaller positive ones.
        half = (1 + mode[0]) / 2
        short = np.minimum((1 + theta[:, 0]) / half - 1, 0)
        theta[:, 0] = np.where(short < 0, half * np.exp(short) - 1, theta[:, 0])
    shares = np.empty((NUM_DRAWS, log_probs.shape[1]))
    # Process several draws at once, as long as their arrays are small.
    for part in slices(NUM_DRAWS, max(1, _NUMBERS_AT_ONCE // log_probs.size)):
        drawn = rng.standard_gamma(mass, (len(theta[part]), len(mass)))
        drawn /= drawn.sum(axis=1, keepdims=True)
        moved = np.exp(recalibrated(theta[part], log_probs))
        shares[part] = (drawn[:, None, :] @ moved)[:, 0]
    return Recalibration(theta, np.log(np.maximum(shares, np.finfo(float).tiny)))


def warn_of_few_rows(theta: Float[np.ndarray, "draws parameters"]) -> None:
    """Warn if the calibration rows determine the slope less than its prior does."""
    if 2 * theta[:, 0].var() > _SLOPE_SCALE**2:
        warn(
            "intervals of probabilities may be far too narrow: the calibration rows, which are few "
            "or nearly separated by their scores, hardly determine how sharp the probabilities "
            "should be; pass calibration=(scores, y) with more rows to fit",
            AccuracyWarning,
        )


def exact(calibration_shares: UserData, classes: np.ndarray) -> Recalibration:
    """Return draws that all leave probabilities unchanged, with known class proportions."""
    shares = check_class_prior(calibration_shares, classes, "calibration_shares")
    theta = np.zeros((NUM_DRAWS, 3 if len(classes) == 2 else len(classes) + 1))
    return Recalibration(theta, np.tile(np.log(shares), (NUM_DRAWS, 1)))


def recalibrated(theta: XArray, log_probs: XArray) -> Array:
    """Compute recalibrated log probabilities (draws, m, k) from log probabilities (m, k)."""
    xp = namespace(log_probs)
    if log_probs.shape[1] == 2:
        base = log_odds(log_probs)
        moved = base[None, :] + matmul(theta, xp.stack(_columns(base, xp), axis=0))
        return log_softmax(xp.stack([-moved / 2, moved / 2], axis=2))
    return log_softmax((1 + theta[:, None, :1]) * log_probs[None, :, :] + theta[:, None, 1:])


def shifted(state: State, probs: XArray, reduce: Callable[[AnyArray], XArray]) -> AnyArray:
    """Reduce the probabilities (draws, m, k) under the new class proportions, in blocks of rows."""
    theta, ratio, floor = state["theta"], state["log_ratio"], state["floor"]

    def run(rows: XArray) -> XArray:
        xp = namespace(rows)
        moved = recalibrated(theta, xp.log(xp.maximum(rows, floor)))
        curves = softmax(moved[:, None, :, :] + ratio[:, :, None, :])
        return reduce(xp.reshape(curves, (-1, *curves.shape[2:])))

    width = int(np.prod(ratio.shape))
    return map_rows(run, probs, width)


def ends_of_few(curves: AnyArray, level: float) -> AnyArray:
    """Compute the ends (m, 2, k) of central intervals of few draws (draws, m, k).

    Each draw stands for an equal part of the distribution, with half of the part on either side.
    """
    draws = curves.shape[0]
    return ends_of_draws(curves, min(level * draws / (draws - 1), 1.0))


def merge_rows(values: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merge rows whose log odds lie in one narrow cell: mean log odds (c,) and counts (c, ...).

    The ``counts`` (n, ...) of merged rows are summed. Small numbers of rows are not merged.
    """
    if len(values) <= MAX_ROWS:
        return values, counts
    weights = counts.reshape(len(counts), -1).sum(axis=1)
    index = np.unique(np.floor(values / _CELL_WIDTH), return_inverse=True)[1].ravel()
    size = int(index.max()) + 1
    mass = np.bincount(index, weights, size)
    centers = np.bincount(index, weights * values, size) / np.where(mass > 0, mass, 1)
    columns = counts.reshape(len(counts), -1).T
    merged = np.stack([np.bincount(index, column, size) for column in columns], axis=1)
    used = mass > 0
    return centers[used], merged.reshape(size, *counts.shape[1:])[used]


def as_rows(weights: np.ndarray) -> np.ndarray:
    """Scale weights that are not counts to their effective number of rows."""
    if (weights == np.floor(weights)).all():
        return weights
    total = weights.sum()
    return weights * (effective_size(total, weights @ weights) / total)


def _columns(base: AnyArray, xp: ModuleType | Namespace) -> list[AnyArray]:
    """Return the columns of the recalibration of log odds: slope, offset and curvature."""
    return [base, xp.ones_like(base), xp.tanh(base / 2) ** 2]


def _binary_mode(
    base: np.ndarray, totals: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the most probable parameters (3,) and the precision of the posterior there.

    The rows have log odds ``base``, weights ``totals``, and ``counts`` of these in class 1.
    """
    design = np.stack(_columns(base, np), axis=1)
    prior = np.diag(_BINARY_SCALES**-2.0)

    def evaluate(theta: np.ndarray) -> QuadraticModel[np.ndarray]:
        z = base + design @ theta
        p = sigmoid(z)
        loss = totals @ np.logaddexp(0, z) - counts @ z + theta @ prior @ theta / 2
        gradient = design.T @ (totals * p - counts) + prior @ theta
        return QuadraticModel(loss, gradient, (design.T * (totals * p * (1 - p))) @ design + prior)

    bound = totals @ design**2 / 4 + np.diag(prior)
    scale = float(totals.sum())
    mode = newton_on_host(evaluate, np.zeros(3), scale=scale, bound=bound, foresee=True).x
    return mode, evaluate(mode).hessian


def _softmax_mode(
    log_probs: np.ndarray, codes: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the most probable slope and offsets (k + 1,) and the precision of the posterior."""
    k, rows = log_probs.shape[1], np.arange(len(codes))
    prior = np.append(_SLOPE_SCALE**-2.0, np.full(k, _OFFSET_SCALE**-2.0))
    onehot = np.bincount(codes, weights, k)
    label_mass = np.append(weights @ log_probs[rows, codes], onehot)

    def evaluate(theta: np.ndarray) -> QuadraticModel[np.ndarray]:
        logs = log_softmax((1 + theta[0]) * log_probs + theta[1:])
        p = np.exp(logs)
        weighted = weights[:, None] * p
        mean = (p * log_probs).sum(axis=1)
        predicted = np.append(weights @ mean, weighted.sum(axis=0))
        precision = np.empty((k + 1, k + 1))
        precision[0, 0] = (weighted * log_probs**2).sum() - weights @ mean**2
        precision[0, 1:] = precision[1:, 0] = (weighted * (log_probs - mean[:, None])).sum(axis=0)
        precision[1:, 1:] = np.diag(weighted.sum(axis=0)) - weighted.T @ p
        loss = prior @ theta**2 / 2 - weights @ logs[rows, codes]
        gradient = predicted - label_mass + prior * theta
        return QuadraticModel(loss, gradient, precision + np.diag(prior))

    # No variance exceeds the square of half the range.
    scale = float(weights.sum())
    bound = np.append(weights @ np.ptp(log_probs, axis=1) ** 2, np.full(k, scale)) / 4 + prior
    mode = newton_on_host(evaluate, np.zeros(k + 1), scale=scale, bound=bound, foresee=True).x
    return mode, evaluate(mode).hessian
