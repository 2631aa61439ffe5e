"""Bayesian logistic regressions that are averaged over their scale, shrinkage and curvature.

All are fitted as one batch with the leading axes (inverse temperatures of the scores, lengths of a
Gaussian process that may curve the log odds, priors).
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import AnyArray, Namespace, XArray
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
_DIAGONAL, _DIAGONAL_OF_SHAPES = _PAIR.diagonal(), np.arange(PARAMETRIC)
_MAX_STEPS, _MAX_POLISHING_STEPS = 60, 6
#: Largest weight of rows for which single precision resolves the curvature of the priors.
_MAX_SINGLE_PRECISION_WEIGHT = 1e5
#: Largest log Bayes factor; it is finite in single precision.
_LARGEST_FACTOR = 1e30
_TOLERANCE, _COARSE_TOLERANCE = 1e-9, 1e-2


def _priors() -> tuple[
    Float[np.ndarray, "2 10 17"], Float[np.ndarray, "2 10 17"], Float[np.ndarray, "2 10"]
]:
    """Compute precisions (2, 10, 17), amplitudes (2, 10, 17) and log probabilities (2, 10).

    To give batches a common shape, each length has half of the regressions without a process.
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
_PAIRED_AMPLITUDE = _AMPLITUDE[..., _FIRST] * _AMPLITUDE[..., _SECOND]


class Points(NamedTuple):
    """Points that summarize rows: log odds (n,), and weights (n,) of all rows and of class 1."""

    z: AnyArray
    weights: AnyArray
    positives: AnyArray
    #: The two log odds around the lower and around the upper quantile of all rows (2, 2).
    tails: AnyArray
    #: Positions of the quantiles between these log odds (2,).
    parts: AnyArray


class Nodes(NamedTuple):
    """Log odds (n,) and weights (n,) that give sums of smooth functions over rows."""

    z: AnyArray
    weights: AnyArray


class FeatureBasis(NamedTuple):
    """Parameters of the features of log odds, for inverse temperatures (s,)."""

    inverse: AnyArray
    #: Weight of the uniform distribution in the scaled probabilities ().
    smoothing: AnyArray
    #: Inducing inputs (s, g) of the Gaussian process; other inputs are clipped to their range.
    inducing: AnyArray
    #: Lengths (s, 2) of the Gaussian process.
    length: AnyArray


class FittedRegressions(NamedTuple):
    """Regressions (s, 2, 10)."""

    basis: FeatureBasis
    #: Coefficients of two shapes, intercept, and kernels at inducing inputs (s, 2, 10, 17).
    coef: AnyArray
    #: The covariance of ``coef`` is factor @ factor' (s, 2, 10, 17, 17).
    factor: AnyArray
    #: Logarithm of the evidence times the priors of regression and scale (s, 2, 10).
    log_evidence: AnyArray
    #: Largest expected gain of Newton's last step, relative to the objective ().
    decrement: AnyArray


def fit(
    points: Points, nodes: Nodes | None = None, coarse: Nodes | None = None
) -> FittedRegressions:
    """Fit all regressions in O(n) time and memory.

    A fit to many points may start from ``coarse`` nodes and continue with finer ``nodes``.
    """
    center, spread = find_scale(nodes or Nodes(*points[:2]), points.positives @ points.z)
    u = center + spread * STEPS
    if coarse is None:
        return _fit_at(u, points)

    def part(u: np.ndarray) -> FittedRegressions:
        with np.errstate(under="ignore"):
            return _fit_at(u, points, nodes, coarse)

    # Always two parts, on any machine: a part stops when its regressions have converged.
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(part, np.array_split(u, 2))
    basis = FeatureBasis(*map(_join, first.basis, second.basis))
    joined = FittedRegressions(basis, *map(_join, first[1:], second[1:]))
    return joined._replace(decrement=max(first.decrement, second.decrement))


def _join(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Join two parts; entries without an axis of scales are equal in both."""
    return np.concatenate([first, second]) if np.ndim(first) else first


def _fit_at(
    u: np.ndarray, points: Points, nodes: Nodes | None = None, coarse: Nodes | None = None
) -> FittedRegressions:
    """Fit the regressions at logarithms ``u`` (s,) of the inverse temperature."""
    basis = _make_basis(points, np.exp(u))
    z = basis.inducing
    kernel = _matern((z[:, :, None] - z[:, None, :])[:, None], basis.length, np)
    factor_of_kernel = np.linalg.cholesky(kernel + _JITTER * np.eye(INDUCING))
    # Prepend the identity.
    whiten = np.zeros((*kernel.shape[:2], COLUMNS, COLUMNS))
    whiten[:, :, _DIAGONAL_OF_SHAPES, _DIAGONAL_OF_SHAPES] = 1
    whiten[:, :, PARAMETRIC:, PARAMETRIC:] = np.linalg.inv(factor_of_kernel)

    def problem(nodes: Nodes) -> _Problem:
        offset, columns = make_columns(basis, nodes.z)
        return _Problem(nodes, float(nodes.weights.sum()), offset, whiten @ columns)

    of_points = problem(Nodes(points.z, points.weights))
    constant = -(of_points.offset @ points.positives)[:, None, None]
    linear = -_AMPLITUDE * (of_points.features @ points.positives)[:, :, None]
    of_points = of_points._replace(constant=constant, linear=linear)
    if coarse is None:
        minimum = _minimize(of_points, _TOLERANCE)
    else:
        rough = _minimize(_match(problem(coarse), of_points, None), _COARSE_TOLERANCE)
        finer = of_points if nodes is None else _match(problem(nodes), of_points, rough[0])
        minimum = _polish(finer, rough) or _minimize(of_points, _TOLERANCE, rough[0])
    theta, value, hessian, decrement = minimum
    root = np.linalg.cholesky(hessian)
    log_det = np.log(_PRECISION).sum(axis=-1) / 2
    log_det = log_det - np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum(axis=-1)
    log_evidence = log_det - value + _LOG_WEIGHT + log_prior(u)[:, None, None]
    # Convert to coefficients of kernels at the inducing inputs.
    turn = np.swapaxes(whiten, -1, -2)[:, :, None]
    coef = (turn @ (_AMPLITUDE * theta)[..., None])[..., 0]
    factor = turn @ (_AMPLITUDE[..., None] * np.swapaxes(_inverse_of_triangles(root), -1, -2))
    return FittedRegressions(basis, coef, factor, log_evidence, decrement)


def _inverse_of_triangles(lower: np.ndarray) -> np.ndarray:
    """Invert lower triangular matrices (..., p, p) by halves, in half of the time of NumPy."""
    half = lower.shape[-1] // 2
    if not half:
        return 1 / lower
    inverse = np.zeros(lower.shape)
    first = inverse[..., :half, :half] = _inverse_of_triangles(lower[..., :half, :half])
    second = inverse[..., half:, half:] = _inverse_of_triangles(lower[..., half:, half:])
    inverse[..., half:, :half] = -(second @ lower[..., half:, :half] @ first)
    return inverse


def make_columns(
    basis: FeatureBasis, z: XArray, xp: ModuleType | Namespace = np
) -> tuple[AnyArray, AnyArray]:
    """Compute offsets (s, n) and columns (s, 2, 17, n) of the regressions at z (n,)."""
    one, zero = _shapes(basis, z, xp)
    offset = one - zero
    clipped = xp.maximum(xp.minimum(offset, basis.inducing[:, -1:]), basis.inducing[:, :1])
    kernel = _matern(basis.inducing[:, None, :, None] - clipped[:, None, None, :], basis.length, xp)
    parametric = xp.stack([one, -zero, xp.ones_like(one)], axis=1)[:, None, ...]
    return offset, xp.concat([parametric + xp.zeros_like(kernel[:, :, :1, :]), kernel], axis=2)


def _shapes(
    basis: FeatureBasis, z: XArray, xp: ModuleType | Namespace
) -> tuple[AnyArray, AnyArray]:
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


def _make_basis(points: Points, inverse: np.ndarray) -> FeatureBasis:
    """Choose inducing inputs and lengths from the distribution of the offsets."""
    total = points.weights.sum()
    basis = FeatureBasis(inverse, 1 / (total + 1), None, None)
    one, zero = _shapes(basis, points.z, np)
    offset = one - zero
    mean = offset @ points.weights / total
    deviation = np.sqrt((offset - mean[:, None]) ** 2 @ points.weights / total)
    one, zero = _shapes(basis, points.tails.reshape(-1), np)
    around = (one - zero).reshape(-1, 2, 2)
    low, high = (around[:, :, 0] + points.parts * (around[:, :, 1] - around[:, :, 0])).T
    inducing = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, INDUCING)
    length = np.maximum(deviation, _NARROW)[:, None] * LENGTHS
    return basis._replace(inducing=inducing, length=length)


def log_prior(u: np.ndarray) -> np.ndarray:
    """Compute the log prior density of log inverse temperatures."""
    narrow, wide = (-((u / scale) ** 2) / 2 - math.log(scale) for scale in LOG_SCALES)
    return np.logaddexp(narrow, wide) - math.log(2 * math.sqrt(2 * math.pi))


def log_bayes_factor(points: Points, fitted: FittedRegressions) -> float:
    """Compute the log likelihood of unchanged scores minus the log evidence of all regressions."""
    z, weights, positives, *_ = points
    unchanged = -(weights - positives) @ np.logaddexp(0, z) - positives @ np.logaddexp(0, -z)
    step = np.log(fitted.basis.inverse[1] / fitted.basis.inverse[0])
    largest = fitted.log_evidence.max()
    evidence = np.exp(fitted.log_evidence - largest).sum() * step
    # Inverse temperatures of enormous weights are equal but for rounding.
    factor = unchanged - largest - np.log(max(evidence, float(np.finfo(float).tiny)))
    return float(np.clip(factor, -_LARGEST_FACTOR, _LARGEST_FACTOR))


def find_scale(nodes: Nodes, moment: float) -> tuple[float, float]:
    """Compute the posterior mean and deviation of the logarithm of the inverse temperature.

    ``moment`` is the sum of the log odds of class 1.
    """
    (z, weights), prior = nodes, 1 / LOG_SCALES[-1] ** 2

    def loss(u: np.ndarray) -> np.ndarray:
        x = np.exp(u)[:, None] * z
        return (np.maximum(x, 0) + np.log(1 + np.exp(-abs(x)))) @ weights - np.exp(u) * moment

    def slopes(u: float) -> tuple[float, float, float]:
        x = np.exp(u) * z
        p = (1 + np.tanh(x / 2)) / 2
        square = (weights * p * (1 - p)) @ x**2
        slope = weights * p @ x - np.exp(u) * moment
        return slope + prior * u, square + slope + prior, square

    # Search two grids, then use Newton's method.
    u, width = 0.0, 9.0
    for _ in range(2):
        grid = u + np.linspace(-width, width, 37)
        u, width = float(grid[np.argmin(loss(grid) + prior * grid**2 / 2)]), width / 18
    low, high = u - width, u + width
    for _ in range(6):
        slope, second, _ = slopes(u)
        u = min(max(u - slope / max(second, prior / 10), low), high)
    _, second, square = slopes(u)
    spread = max(second, square / 4 + prior) ** -0.5
    # Tails matter for uninformative scores, so points are dense only in the middle.
    steps = np.linspace(-4, 4, _GRID)
    grid = u + spread * np.sinh(steps)
    log_density = log_prior(grid) - loss(grid)
    density = np.cosh(steps) * np.exp(log_density - log_density.max())
    density = density / density.sum()
    mean = float(density @ grid)
    return mean, math.sqrt(density @ (grid - mean) ** 2)


class _Problem(NamedTuple):
    """Losses: sums over nodes of w log(1 + exp(f)) for log odds f, plus linear functions of theta.

    With the points of all rows as nodes, the linear functions are minus the sum of f over rows of
    class 1. With fewer nodes, they also correct the sums over nodes (see ``_match``).
    """

    nodes: Nodes
    #: Sum of the weights.
    total: float
    #: Offsets (s, n) and whitened features (s, 2, 17, n) at the nodes.
    offset: np.ndarray
    features: np.ndarray
    #: Constants and coefficients (s, 2, 10, 17) of the linear functions.
    constant: AnyArray | float = 0.0
    linear: AnyArray | float = 0.0


#: Theta (s, 2, 10, 17), penalized losses, Hessians and the largest relative gain of the last step.
_Minimum: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, float]


def _pairs(problem: _Problem) -> np.ndarray:
    """Compute products (s, 2, 153, n) of all pairs of features, in single precision for few rows.

    The Hessian is needed only for a determinant and for steps, whose errors gradients correct.
    """
    features, single = problem.features, problem.total < _MAX_SINGLE_PRECISION_WEIGHT
    narrow = features.astype(np.float32 if single else np.float64)
    pairs = np.empty((*features.shape[:2], len(_FIRST), features.shape[-1]), narrow.dtype)
    start = 0
    for i in range(COLUMNS):
        stop = start + COLUMNS - i
        np.multiply(narrow[:, :, i : i + 1], narrow[:, :, i:], out=pairs[:, :, start:stop])
        start = stop
    return pairs


def _losses(
    problem: _Problem, theta: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute penalized losses (s, 2, 10), their gradients, and the curvature of each row.

    Without ``theta`` all coefficients are zero, and the axes of regressions have length one.
    """
    weights, features = problem.nodes.weights, problem.features
    line = problem.offset[:, None, None]
    if theta is not None:
        line = (_AMPLITUDE * theta) @ features + line
    small = np.copysign(line, -1.0)
    np.exp(small, out=small)
    rest = 1 + small
    # log(1 + exp(line)) = max(line, 0) + log(1 + exp(-|line|)).
    value = np.maximum(line, 0) @ weights + np.log(rest) @ weights + problem.constant
    np.reciprocal(rest, out=rest)
    small *= rest
    probs = np.where(line >= 0, rest, small)
    probs *= weights
    gradient = _AMPLITUDE * (probs @ np.swapaxes(features, -1, -2)) + problem.linear
    if theta is not None:
        value += ((_PRECISION / 2 * theta + problem.linear) * theta).sum(axis=-1)
        gradient += _PRECISION * theta
    small *= rest
    small *= weights
    return value, gradient, small


def _match(problem: _Problem, points: _Problem, theta: np.ndarray | None) -> _Problem:
    """Make losses and gradients of a problem equal to those of the points at ``theta``."""
    value, gradient, _ = _losses(points, theta)
    approximate, slope, _ = _losses(problem, theta)
    constant, linear = value - approximate, gradient - slope
    if theta is not None:
        constant -= (linear * theta).sum(axis=-1)
    return problem._replace(constant=constant, linear=linear)


def _hessian(pairs: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Compute the Hessians (s, 2, 10, 17, 17)."""
    # In this order the product takes two thirds of the time.
    sums = pairs @ np.swapaxes(curvature.astype(pairs.dtype), -1, -2)
    sums = np.swapaxes(sums, -1, -2) * _PAIRED_AMPLITUDE
    # A ridge keeps the matrix positive definite in spite of rounding errors of large entries.
    largest = sums[..., _DIAGONAL].max(axis=-1, keepdims=True)
    sums[..., _DIAGONAL] += _PRECISION + 4 * np.finfo(float).eps * largest
    return sums.take(_PAIR, axis=-1)


def _minimize(problem: _Problem, tolerance: float, theta: np.ndarray | None = None) -> _Minimum:
    """Minimize all regressions together by Newton's method; steps that raise a loss are halved."""
    pairs = _pairs(problem)

    def evaluate(theta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        value, gradient, curvature = _losses(problem, theta)
        return value, gradient, _hessian(pairs, curvature)

    value, gradient, hessian = evaluate(theta)
    theta = np.zeros(gradient.shape) if theta is None else theta
    size, decrement = np.ones(gradient.shape[:-1]), np.inf
    for _ in range(_MAX_STEPS):
        step = -np.linalg.solve(hessian, gradient[..., None])[..., 0]
        slope = (gradient * step).sum(axis=-1)
        trial = theta + size[..., None] * step
        new = evaluate(trial)
        slack = 8 * np.finfo(float).eps * (abs(value) + problem.total)
        scale = abs(value) + 1e-3
        # Accept steps with a negligible expected gain, in which rounding may look like a rise.
        lower = new[0] <= value + 1e-4 * size * slope + slack
        lower |= -slope <= tolerance * scale
        decrement = float(np.where(lower, -slope / scale, np.inf).max())
        if lower.all():
            theta, (value, gradient, hessian) = trial, new
            size[:] = 1
        else:
            theta = np.where(lower[..., None], trial, theta)
            value = np.where(lower, new[0], value)
            gradient = np.where(lower[..., None], new[1], gradient)
            hessian = np.where(lower[..., None, None], new[2], hessian)
            size = np.where(lower, 1.0, size / 2)
        if not decrement > tolerance:
            break
    return theta, value, hessian, decrement


def _polish(problem: _Problem, rough: _Minimum) -> _Minimum | None:
    """Continue with the Hessian of a coarse summary; return None if that does not converge."""
    theta, _, hessian, _ = rough
    before = np.inf
    for _ in range(_MAX_POLISHING_STEPS):
        value, gradient, curvature = _losses(problem, theta)
        step = -np.linalg.solve(hessian, gradient[..., None])[..., 0]
        decrement = float((-(gradient * step).sum(axis=-1) / (abs(value) + 1e-3)).max())
        if not decrement < before:
            break
        theta, before = theta + step, decrement
        if decrement <= _TOLERANCE:
            return theta, value, _hessian(_pairs(problem), curvature), decrement
    return None
