"""Bayesian logistic regressions that are averaged over their scale, shrinkage and curvature.

Scores are transformed by several inverse temperatures. The regressions at each temperature differ
in their priors and in the Gaussian process that may curve the log odds. All are fitted together,
as one batch with the leading axes (scales, lengths, priors): by NumPy on the host, or by JAX, which
maps the code over data sets.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, Array, Namespace, XArray
from bayescal._core.optimize import Status, iterate
from bayescal._core.shapes import Float

#: Prior standard deviations of the logarithm of the inverse temperature, with equal probability:
#: scores are either nearly calibrated, or arbitrary.
LOG_SCALES = (0.35, 2.0)
#: Log odds are clipped to this, the log odds of the smallest normal number of float32.
FAR = float(-np.log(np.finfo(np.float32).tiny))
#: Inverse temperatures, in posterior standard deviations of their logarithm.
STEPS = np.linspace(-3, 3, 7)
#: Points of the quadrature over the logarithm of the inverse temperature alone.
_GRID = 97
#: Lengths of the Gaussian process, in standard deviations of the log odds.
LENGTHS = np.array([0.5, 1.5])
INDUCING = 14
_JITTER, _NARROW = 1e-6, 1e-3
#: The inducing inputs are between these quantiles.
TAILS = np.array([0.005, 0.995])
#: Number of columns besides the Gaussian process: two shapes and an intercept.
PARAMETRIC = 3
COLUMNS = PARAMETRIC + INDUCING
#: Index of the first of the ten regressions per length that has no Gaussian process.
LINEAR = 8
_FIRST, _SECOND = np.triu_indices(COLUMNS)
_PAIR = np.zeros((COLUMNS, COLUMNS), int)
_PAIR[_FIRST, _SECOND] = _PAIR[_SECOND, _FIRST] = np.arange(len(_FIRST))
_DIAGONAL = _PAIR.diagonal()
_MAX_STEPS, _MAX_POLISHING_STEPS = 60, 6
#: Largest weight of rows for which single precision resolves the curvature of the priors.
_MAX_SINGLE_PRECISION_WEIGHT = 1e5
#: Largest log Bayes factor, for single precision.
_LARGEST_FACTOR = 1e30
_TOLERANCE, _COARSE_TOLERANCE = 1e-9, 1e-2


def _priors() -> tuple[
    Float[np.ndarray, "2 10 17"], Float[np.ndarray, "2 10 17"], Float[np.ndarray, "2 10"]
]:
    """Compute precisions (2, 10, 17), amplitudes (2, 10, 17) and log probabilities (2, 10).

    Each length has all regressions with a Gaussian process, and half of the regressions without
    one, which do not depend on the length. This gives batches a common shape.
    """
    rows = []
    for variance in (0.05, 0.5):
        curved = [(v, b, a, 0.25) for v in (0.05, 0.5) for b in (0.1, 0.5) for a in (0.3, 1.0)]
        rows.append(curved + [(variance, b, 0.0, 3.0) for b in (0.1, 0.5)])
    shape, intercept, amplitude, weight = np.moveaxis(np.array(rows), -1, 0)
    ones = np.ones((*shape.shape, INDUCING))
    precision = np.stack([1 / shape, 1 / shape, 1 / intercept], axis=-1)
    precision = np.concatenate([precision, ones], axis=-1)
    scale = np.concatenate([ones[..., :PARAMETRIC], amplitude[..., None] * ones], axis=-1)
    return precision, scale, np.log(weight / weight.sum())


_PRECISION, _AMPLITUDE, _LOG_WEIGHT = _priors()


class Points(NamedTuple):
    """Points that summarize rows: log odds (n,), and weights (n,) of all rows and of class 1.

    Points with a weight of zero are ignored.
    """

    z: AnyArray
    weights: AnyArray
    positives: AnyArray
    #: The two log odds around the lower and around the upper quantile of all rows (2, 2).
    tails: AnyArray
    #: Positions of the quantiles between these log odds (2,).
    parts: AnyArray


class Basis(NamedTuple):
    """Parameters of the features of log odds, for inverse temperatures (s,)."""

    inverse: AnyArray
    #: Weight of the uniform distribution in the scaled probabilities ().
    smoothing: AnyArray
    #: Inducing inputs (s, g) of the Gaussian process; other inputs are clipped to their range.
    inducing: AnyArray
    #: Lengths (s, 2) of the Gaussian process.
    length: AnyArray


class Fitted(NamedTuple):
    """Regressions (s, 2, 10)."""

    basis: Basis
    #: Coefficients of two shapes, intercept, and kernels at inducing inputs (s, 2, 10, 17).
    coef: AnyArray
    #: The covariance of ``coef`` is factor @ factor' (s, 2, 10, 17, 17).
    factor: AnyArray
    #: Logarithm of the evidence times the priors of regression and scale (s, 2, 10).
    log_evidence: AnyArray
    #: Largest expected gain of Newton's last step, relative to the objective ().
    decrement: AnyArray


def fit(points: Points, xp: ModuleType = np, coarse: Points | None = None) -> Fitted:
    """Fit all regressions in O(n) time and memory.

    On the host, a fit to many points may start from a coarse summary of them, and two threads share
    the scales.
    """
    center, spread = find_scale(*points[:3], xp)
    u = center + spread * xp.asarray(STEPS, points.z.dtype)
    if coarse is None:
        return _fit_at(u, points, xp)

    def part(u: np.ndarray) -> Fitted:
        with np.errstate(under="ignore"):
            return _fit_at(u, points, xp, coarse)

    # Always two parts, on any machine: a part stops when its regressions have converged.
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(part, np.array_split(u, 2))
    basis = Basis(*map(_join, first.basis, second.basis))
    joined = Fitted(basis, *map(_join, first[1:], second[1:]))
    return joined._replace(decrement=max(first.decrement, second.decrement))


def _join(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Join two parts; entries without an axis of scales are equal in both."""
    return np.concatenate([first, second]) if np.ndim(first) else first


def _fit_at(u: XArray, points: Points, xp: ModuleType, coarse: Points | None = None) -> Fitted:
    """Fit the regressions at logarithms ``u`` (s,) of the inverse temperature."""
    dtype = points.z.dtype
    basis = _make_basis(points, xp.exp(u), xp)
    z = basis.inducing
    kernel = _matern((z[:, :, None] - z[:, None, :])[:, None], basis.length, xp)
    factor_of_kernel = xp.linalg.cholesky(kernel + _JITTER * xp.eye(INDUCING, dtype=z.dtype))
    inverse = xp.linalg.inv(factor_of_kernel)
    # Prepend the identity: (s, 2, 17, 17).
    above = xp.eye(PARAMETRIC, COLUMNS, dtype=dtype)
    above = xp.broadcast_to(above, (*inverse.shape[:-2], PARAMETRIC, COLUMNS))
    beside = xp.zeros((*inverse.shape[:-1], PARAMETRIC), dtype)
    whiten = xp.concatenate([above, xp.concatenate([beside, inverse], axis=-1)], axis=-2)
    precision, amplitude, log_weight = (
        xp.asarray(part, dtype) for part in (_PRECISION, _AMPLITUDE, _LOG_WEIGHT)
    )

    def problem(rows: Points) -> _Problem:
        offset, columns = make_columns(basis, rows.z, xp)
        return _Problem(rows, offset, whiten @ columns, precision, amplitude)

    start = xp.zeros((*whiten.shape[:2], *amplitude.shape[1:]), dtype)
    if coarse is not None:
        minimum = _minimize(problem(coarse), start, xp, _COARSE_TOLERANCE)
        minimum = _polish(problem(points), minimum)
    else:
        minimum = _minimize(problem(points), start, xp)
    theta, value, hessian, decrement = minimum
    root = xp.linalg.cholesky(hessian)
    log_det = xp.sum(xp.log(precision), -1) / 2
    log_det = log_det - xp.sum(xp.log(xp.diagonal(root, axis1=-2, axis2=-1)), -1)
    log_evidence = log_det - value + log_weight + log_prior(u, xp)[:, None, None]
    # Convert to coefficients of kernels at the inducing inputs.
    turn = xp.swapaxes(whiten, -1, -2)[:, :, None]
    coef = (turn @ (amplitude * theta)[..., None])[..., 0]
    factor = turn @ (amplitude[..., None] * xp.swapaxes(xp.linalg.inv(root), -1, -2))
    return Fitted(basis, coef, factor, log_evidence, decrement)


def make_columns(
    basis: Basis, z: XArray, xp: ModuleType | Namespace = np
) -> tuple[AnyArray, AnyArray]:
    """Compute offsets (s, n) and columns (s, 2, 17, n) of the regressions at z (n,)."""
    one, zero = _shapes(basis, z, xp)
    offset = one - zero
    clipped = xp.maximum(xp.minimum(offset, basis.inducing[:, -1:]), basis.inducing[:, :1])
    kernel = _matern(basis.inducing[:, None, :, None] - clipped[:, None, None, :], basis.length, xp)
    parametric = xp.stack([one, -zero, xp.ones_like(one)], axis=1)[:, None, ...]
    return offset, xp.concat([parametric + xp.zeros_like(kernel[:, :, :1, :]), kernel], axis=2)


def _shapes(basis: Basis, z: XArray, xp: ModuleType | Namespace) -> tuple[AnyArray, AnyArray]:
    """Compute logarithms (s, n) of the scaled, smoothed probabilities of classes 1 and 0."""
    x = basis.inverse[:, None] * z
    small = xp.log1p(xp.exp(-abs(x)))
    least, rest = xp.log(basis.smoothing / 2), xp.log1p(-basis.smoothing)
    one = xp.logaddexp(rest + xp.minimum(x, 0.0) - small, least)
    zero = xp.logaddexp(rest - xp.maximum(x, 0.0) - small, least)
    return one, zero


def _matern(distance: XArray, length: XArray, xp: ModuleType | Namespace) -> XArray:
    r = abs(distance) * (math.sqrt(3) / length[:, :, None, None])
    return (1 + r) * xp.exp(-r)


def _make_basis(points: Points, inverse: XArray, xp: ModuleType) -> Basis:
    """Choose inducing inputs and lengths from the distribution of the offsets."""
    total = xp.sum(points.weights)
    basis = Basis(inverse, 1 / (total + 1), None, None)
    one, zero = _shapes(basis, points.z, xp)
    offset = one - zero
    mean = offset @ points.weights / total
    deviation = xp.sqrt((offset - mean[:, None]) ** 2 @ points.weights / total)
    one, zero = _shapes(basis, points.tails.reshape(-1), xp)
    around = (one - zero).reshape(-1, 2, 2)
    low, high = (around[:, :, 0] + points.parts * (around[:, :, 1] - around[:, :, 0])).T
    step = xp.linspace(0, 1, INDUCING, dtype=offset.dtype)
    inducing = low[:, None] + (high - low)[:, None] * step
    length = xp.maximum(deviation, _NARROW)[:, None] * xp.asarray(LENGTHS, offset.dtype)
    return basis._replace(inducing=inducing, length=length)


def log_prior(u: XArray, xp: ModuleType = np) -> XArray:
    """Compute the log prior density of log inverse temperatures."""
    narrow, wide = (-((u / scale) ** 2) / 2 - math.log(scale) for scale in LOG_SCALES)
    return xp.logaddexp(narrow, wide) - math.log(2 * math.sqrt(2 * math.pi))


def log_bayes_factor(points: Points, fitted: Fitted) -> float:
    """Compute the log likelihood of unchanged scores minus the log evidence of all regressions."""
    z, weights, positives, *_ = points
    unchanged = -(weights - positives) @ np.logaddexp(0, z) - positives @ np.logaddexp(0, -z)
    step = np.log(fitted.basis.inverse[1] / fitted.basis.inverse[0])
    largest = fitted.log_evidence.max()
    evidence = np.exp(fitted.log_evidence - largest).sum() * step
    # Inverse temperatures of enormous weights are equal but for rounding.
    factor = unchanged - largest - np.log(max(evidence, float(np.finfo(float).tiny)))
    return float(np.clip(factor, -_LARGEST_FACTOR, _LARGEST_FACTOR))


def find_scale(
    z: XArray, weights: XArray, positives: XArray, xp: ModuleType = np
) -> tuple[AnyArray, AnyArray]:
    """Compute the posterior mean and deviation of the logarithm of the inverse temperature.

    The range of the quadrature follows from the wide part of the prior.
    """
    prior = 1 / LOG_SCALES[-1] ** 2

    def loss(u: XArray) -> XArray:
        x = xp.exp(u)[:, None] * z
        return (xp.maximum(x, 0) + xp.log(1 + xp.exp(-abs(x)))) @ weights - x @ positives

    def slopes(u: XArray) -> tuple[XArray, XArray, XArray]:
        x = xp.exp(u) * z
        p = (1 + xp.tanh(x / 2)) / 2
        square = (weights * p * (1 - p)) @ x**2
        slope = (weights * p - positives) @ x
        return slope + prior * u, square + slope + prior, square

    # Search two grids, then use Newton's method.
    u, width = xp.zeros((), z.dtype), 9.0
    for _ in range(2):
        grid = u + xp.linspace(-width, width, 37, dtype=z.dtype)
        u, width = grid[xp.argmin(loss(grid) + prior * grid**2 / 2)], width / 18
    low, high = u - width, u + width
    for _ in range(6):
        slope, second, _ = slopes(u)
        u = xp.clip(u - slope / xp.maximum(second, prior / 10), low, high)
    _, second, square = slopes(u)
    spread = xp.maximum(second, square / 4 + prior) ** -0.5
    # Tails matter for uninformative scores, so points are dense only in the middle.
    steps = xp.linspace(-4, 4, _GRID, dtype=z.dtype)
    grid = u + spread * xp.sinh(steps)
    log_density = log_prior(grid, xp) - loss(grid)
    density = xp.cosh(steps) * xp.exp(log_density - xp.max(log_density))
    density = density / xp.sum(density)
    mean = xp.sum(density * grid)
    return mean, xp.sqrt(xp.sum(density * (grid - mean) ** 2))


class _Problem(NamedTuple):
    """Rows with offsets (s, n) and whitened features (s, 2, 17, n), and priors of regressions."""

    points: Points
    offset: AnyArray
    features: AnyArray
    precision: AnyArray
    amplitude: AnyArray


def _losses(
    problem: _Problem, theta: XArray, xp: ModuleType
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Compute penalized losses (s, 2, 10), their gradients, and the curvature of each row."""
    points, offset, features, precision, amplitude = problem
    line = (amplitude * theta) @ features + offset[:, None, None]
    small = xp.exp(-abs(line))
    rest = 1 / (1 + small)
    # log(1 + exp(line)) = max(line, 0) - log(rest).
    value = (xp.maximum(line, 0) - xp.log(rest)) @ points.weights - line @ points.positives
    value = value + xp.sum(precision * theta**2, -1) / 2
    residual = xp.where(line >= 0, rest, small * rest) * points.weights - points.positives
    gradient = amplitude * (residual @ xp.swapaxes(features, -1, -2)) + precision * theta
    return value, gradient, small * rest * rest * points.weights


def _pairs(features: np.ndarray, total: Array, xp: ModuleType) -> AnyArray:
    """Compute products (s, 2, 153, n) of all pairs of features.

    The host uses single precision, unless there are many rows. The Hessian is needed only for a
    determinant and for steps, whose errors are corrected by gradients in double precision.
    """
    if xp is not np:
        return features[:, :, _FIRST] * features[:, :, _SECOND]
    narrow = features.astype(np.float32 if total < _MAX_SINGLE_PRECISION_WEIGHT else np.float64)
    pairs = np.empty((*features.shape[:2], len(_FIRST), features.shape[-1]), narrow.dtype)
    start = 0
    for i in range(COLUMNS):
        stop = start + COLUMNS - i
        np.multiply(narrow[:, :, i : i + 1], narrow[:, :, i:], out=pairs[:, :, start:stop])
        start = stop
    return pairs


def _hessian(problem: _Problem, curvature: Array, pairs: Array, xp: ModuleType) -> XArray:
    """Compute the Hessians (s, 2, 10, 17, 17)."""
    amplitude, dtype = problem.amplitude, problem.amplitude.dtype
    sums = (curvature.astype(pairs.dtype) @ xp.swapaxes(pairs, -1, -2)).astype(dtype)
    sums = sums * (amplitude[..., _FIRST] * amplitude[..., _SECOND])
    # A ridge keeps the matrix positive definite in spite of rounding errors of large entries.
    largest = xp.max(sums[..., _DIAGONAL], axis=-1, keepdims=True)
    ridge = problem.precision + 4 * float(np.finfo(dtype).eps) * largest
    sums = sums + ridge @ xp.eye(len(_FIRST), dtype=dtype)[_DIAGONAL]
    return xp.take(sums, _PAIR, axis=-1)


def _polish(
    problem: _Problem, coarse: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Continue from the minimum of a coarse summary, whose Hessian is nearly correct."""
    theta, _, hessian, _ = coarse
    pairs = _pairs(problem.features, problem.points.weights.sum(), np)
    before = np.inf
    for _ in range(_MAX_POLISHING_STEPS):
        value, gradient, curvature = _losses(problem, theta, np)
        step = -np.linalg.solve(hessian, gradient[..., None])[..., 0]
        gain = -(gradient * step).sum(axis=-1) / (abs(value) + 1e-3)
        decrement = gain.max()
        if not decrement < before:
            break
        theta, before = theta + step, decrement
        if decrement <= _TOLERANCE:
            return theta, value, _hessian(problem, curvature, pairs, np), decrement
    return _minimize(problem, theta, np)


def _minimize(
    problem: _Problem, start: np.ndarray, xp: ModuleType, tolerance: float = _TOLERANCE
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Compute theta, penalized loss and Hessian of all regressions, and the last decrement.

    Newton's method runs for all regressions together; steps that do not lower a loss are halved.
    """
    total = xp.sum(problem.points.weights)
    pairs = _pairs(problem.features, total, xp)

    def evaluate(theta: XArray) -> tuple[AnyArray, AnyArray, AnyArray]:
        value, gradient, curvature = _losses(problem, theta, xp)
        return value, gradient, _hessian(problem, curvature, pairs, xp)

    def direction(gradient: XArray, hessian: Array) -> tuple[AnyArray, AnyArray]:
        step = -xp.linalg.solve(hessian, gradient[..., None])[..., 0]
        return step, xp.sum(gradient * step, -1)

    eps = float(np.finfo(start.dtype).eps)
    tolerance = max(tolerance, 4 * eps)

    def once(carry: tuple[AnyArray, ...]) -> tuple[AnyArray, ...]:
        theta, value, hessian, step, slope, size, _, _ = carry
        trial = theta + size[..., None] * step
        new, gradient, new_hessian = evaluate(trial)
        slack = 8 * eps * (abs(value) + total)
        # Accept steps with a negligible expected gain, in which rounding may look like a rise.
        least = tolerance * (abs(value) + 1e-3)
        lower = (new <= value + 1e-4 * size * slope + slack) | (-slope <= least)
        decrement = xp.max(xp.where(lower, -slope, xp.inf) / (abs(value) + 1e-3))
        theta = xp.where(lower[..., None], trial, theta)
        value = xp.where(lower, new, value)
        hessian = xp.where(lower[..., None, None], new_hessian, hessian)
        next_step, promise = direction(gradient, new_hessian)
        step = xp.where(lower[..., None], next_step, step)
        slope = xp.where(lower, promise, slope)
        size = xp.where(lower, 1.0, size / 2)
        status = xp.where(decrement > tolerance, -1, Status.CONVERGED)
        return theta, value, hessian, step, slope, size, decrement, status

    value, gradient, hessian = evaluate(start)
    step, slope = direction(gradient, hessian)
    ones = xp.ones(start.shape[:-1], start.dtype)
    state = (start, value, hessian, step, slope, ones, ones[0, 0, 0], xp.full((), -1))
    _, theta, value, hessian, *_, decrement, _ = iterate(once, state, _MAX_STEPS, xp)
    return theta, value, hessian, decrement
