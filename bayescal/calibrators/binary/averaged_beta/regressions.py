"""Averaging Bayesian logistic regressions over their scale, shrinkage and curvature.

Scores are transformed by several inverse temperatures; at each, several regressions differ in
their priors and in whether, and how, a Gaussian process curves the log odds. All are fitted
together, as one batch with the leading axes (scales, lengths, priors): with NumPy on the host, or
with JAX, which maps the same code over data sets.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from bayescal._core.optimise import Status, iterate

#: Prior standard deviations of the logarithm of the inverse temperature, equally probable: scores
#: are either nearly calibrated, or anything.
LOG_SCALES = (0.35, 2.0)
#: Log odds beyond this count as this: those of float32's least normal number.
FAR = float(-np.log(np.finfo(np.float32).tiny))
#: Inverse temperatures, in posterior standard deviations of their logarithm.
STEPS = np.linspace(-3, 3, 7)
#: Points of the quadrature over the logarithm of the inverse temperature alone.
_GRID = 97
#: Of the Gaussian process, in standard deviations of the log odds.
LENGTHS = np.array([0.5, 1.5])
INDUCING = 14
_JITTER, _NARROW = 1e-6, 1e-3
#: Between these quantiles lie the inducing inputs.
TAILS = np.array([0.005, 0.995])
#: Columns that are not the Gaussian process: two shapes and an intercept.
PLAIN = 3
COLUMNS = PLAIN + INDUCING
#: Of the ten regressions with a length, those from here on have no Gaussian process.
LINEAR = 8
_FIRST, _SECOND = np.triu_indices(COLUMNS)
_PAIR = np.zeros((COLUMNS, COLUMNS), int)
_PAIR[_FIRST, _SECOND] = _PAIR[_SECOND, _FIRST] = np.arange(len(_FIRST))
_DIAGONAL = _PAIR.diagonal()
_MOST, _POLISHED = 60, 6
#: The weight of rows up to which single precision tells curvatures beside those of the priors.
_LIGHT = 1e5
_TOLERANCE, _NEARLY = 1e-9, 1e-2


def _priors() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return precisions (2, 10, 17), amplitudes (2, 10, 17) and log weights (2, 10).

    For each length all regressions with a Gaussian process, and half of those without one, which
    do not depend on it: so batches have one shape.
    """
    rows = []
    for plain in (0.05, 0.5):
        own = [(v, b, a, 0.25) for v in (0.05, 0.5) for b in (0.1, 0.5) for a in (0.3, 1.0)]
        rows.append(own + [(plain, b, 0.0, 3.0) for b in (0.1, 0.5)])
    shape, intercept, amplitude, weight = np.moveaxis(np.array(rows), -1, 0)
    ones = np.ones((*shape.shape, INDUCING))
    precision = np.stack([1 / shape, 1 / shape, 1 / intercept], axis=-1)
    precision = np.concatenate([precision, ones], axis=-1)
    scale = np.concatenate([ones[..., :PLAIN], amplitude[..., None] * ones], axis=-1)
    return precision, scale, np.log(weight)


_PRECISION, _AMPLITUDE, _LOG_WEIGHT = _priors()


class Points(NamedTuple):
    """Rows gathered in points: log odds (n,), and the weight (n,) of all rows and of class 1.

    A weight of zero leaves a point out.
    """

    z: Any
    weights: Any
    positives: Any
    #: The two log odds between which the lower, and the upper, quantile of all rows lies (2, 2).
    tails: Any
    #: How far the quantiles lie between the first and the second (2,).
    parts: Any


class Basis(NamedTuple):
    """What turns log odds into features: inverse temperatures (s,), and for each the rest."""

    inverse: Any
    #: How much of the uniform distribution is mixed in ().
    smoothing: Any
    #: Inputs (s, g) of the Gaussian process; others are moved between the first and the last.
    inducing: Any
    #: Lengths (s, 2) of the Gaussian process.
    length: Any


class Fitted(NamedTuple):
    """Regressions (s, 2, 10)."""

    basis: Basis
    #: Of two shapes, intercept, and kernels at the inducing inputs (s, 2, 10, 17).
    coef: Any
    #: The covariance of ``coef`` is factor @ factor' (s, 2, 10, 17, 17).
    factor: Any
    #: With the prior of the regression, up to a constant (s, 2, 10).
    log_evidence: Any
    #: What Newton's last step was to gain at most, relative to the objective ().
    decrement: Any


def fit(points: Points, xp: Any = np, rough: Points | None = None) -> Fitted:
    """Fit all regressions. O(n) time and memory for the given number of them.

    On the host the fit of many may begin with fewer points that stand for the others, and two
    threads share the scales.
    """
    center, spread = find_scale(*points[:3], xp)
    u = center + spread * xp.asarray(STEPS, points.z.dtype)
    if rough is None:
        return _fit_at(u, points, xp)

    def part(u: np.ndarray) -> Fitted:
        with np.errstate(under="ignore"):
            return _fit_at(u, points, xp, rough)

    # Two parts whatever the machine has: each stops when its own regressions have converged.
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(part, np.array_split(u, 2))
    # What has no scale is that of both.
    parts = jax.tree.map(lambda a, b: np.concatenate([a, b]) if np.ndim(a) else a, first, second)
    return parts._replace(decrement=max(first.decrement, second.decrement))


def _fit_at(u: Any, points: Points, xp: Any, rough: Points | None = None) -> Fitted:
    """Fit the regressions at logarithms ``u`` (s,) of the inverse temperature."""
    dtype = points.z.dtype
    basis = _make_basis(points, xp.exp(u), xp)
    z = basis.inducing
    kernel = _matern((z[:, :, None] - z[:, None, :])[:, None], basis.length, xp)
    lower = xp.linalg.cholesky(kernel + _JITTER * xp.eye(INDUCING, dtype=z.dtype))
    inverse = xp.linalg.inv(lower)
    # With the identity before it: (s, 2, 17, 17).
    above = xp.eye(PLAIN, COLUMNS, dtype=dtype)
    above = xp.broadcast_to(above, (*inverse.shape[:-2], PLAIN, COLUMNS))
    beside = xp.zeros((*inverse.shape[:-1], PLAIN), dtype)
    whiten = xp.concatenate([above, xp.concatenate([beside, inverse], axis=-1)], axis=-2)
    precision, amplitude, log_weight = (
        xp.asarray(part, dtype) for part in (_PRECISION, _AMPLITUDE, _LOG_WEIGHT)
    )

    def problem(rows: Points) -> _Problem:
        offset, columns = make_columns(basis, rows.z, xp)
        return _Problem(rows, offset, whiten @ columns, precision, amplitude)

    start = xp.zeros((*whiten.shape[:2], *amplitude.shape[1:]), dtype)
    if rough is not None:
        found = _minimize(problem(rough), start, xp, _NEARLY)
        found = _polish(problem(points), found)
    else:
        found = _minimize(problem(points), start, xp)
    theta, value, hessian, decrement = found
    root = xp.linalg.cholesky(hessian)
    log_det = xp.sum(xp.log(precision), -1) / 2
    log_det = log_det - xp.sum(xp.log(xp.diagonal(root, axis1=-2, axis2=-1)), -1)
    log_evidence = log_det - value + log_weight + log_prior(u, xp)[:, None, None]
    # To kernels at the inducing inputs.
    turn = xp.swapaxes(whiten, -1, -2)[:, :, None]
    coef = (turn @ (amplitude * theta)[..., None])[..., 0]
    factor = turn @ (amplitude[..., None] * xp.swapaxes(xp.linalg.inv(root), -1, -2))
    return Fitted(basis, coef, factor, log_evidence, decrement)


def make_columns(basis: Basis, z: Any, xp: Any = np) -> tuple[Any, Any]:
    """Return offsets (s, n) and what is multiplied by coefficients (s, 2, 17, n), at z (n,)."""
    one, zero = _shapes(basis, z, xp)
    offset = one - zero
    held = xp.maximum(xp.minimum(offset, basis.inducing[:, -1:]), basis.inducing[:, :1])
    kernel = _matern(basis.inducing[:, None, :, None] - held[:, None, None, :], basis.length, xp)
    plain = xp.stack([one, -zero, xp.ones_like(one)], axis=1)[:, None, ...]
    return offset, xp.concat([plain + xp.zeros_like(kernel[:, :, :1, :]), kernel], axis=2)


def _shapes(basis: Basis, z: Any, xp: Any) -> tuple[Any, Any]:
    """Return logarithms (s, n) of the scaled and smoothed probabilities of classes 1 and 0."""
    x = basis.inverse[:, None] * z
    small = xp.log1p(xp.exp(-abs(x)))
    least, rest = xp.log(basis.smoothing / 2), xp.log1p(-basis.smoothing)
    one = xp.logaddexp(rest + xp.minimum(x, 0.0) - small, least)
    zero = xp.logaddexp(rest - xp.maximum(x, 0.0) - small, least)
    return one, zero


def _matern(distance: Any, length: Any, xp: Any) -> Any:
    r = abs(distance) * (math.sqrt(3) / length[:, :, None, None])
    return (1 + r) * xp.exp(-r)


def _make_basis(points: Points, inverse: Any, xp: Any) -> Basis:
    """Place the inducing inputs, and choose the lengths, by the distribution of offsets."""
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


def log_prior(u: Any, xp: Any = np) -> Any:
    """Compute the log prior density of log inverse temperatures, up to a constant."""
    narrow, wide = (-((u / scale) ** 2) / 2 - math.log(scale) for scale in LOG_SCALES)
    return xp.logaddexp(narrow, wide)


def find_scale(z: Any, weights: Any, positives: Any, xp: Any = np) -> tuple[Any, Any]:
    """Compute the posterior mean and deviation of the logarithm of the inverse temperature.

    The wide part of the prior alone gives the range of the quadrature.
    """
    prior = 1 / LOG_SCALES[-1] ** 2

    def loss(u: Any) -> Any:
        x = xp.exp(u)[:, None] * z
        return (xp.maximum(x, 0) + xp.log(1 + xp.exp(-abs(x)))) @ weights - x @ positives

    def slopes(u: Any) -> tuple[Any, Any, Any]:
        x = xp.exp(u) * z
        p = (1 + xp.tanh(x / 2)) / 2
        square = (weights * p * (1 - p)) @ x**2
        slope = (weights * p - positives) @ x
        return slope + prior * u, square + slope + prior, square

    # Two grids, then Newton's method.
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
    # Far tails matter where the scores say little: points are dense in the middle only.
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
    offset: Any
    features: Any
    precision: Any
    amplitude: Any


def _losses(problem: _Problem, theta: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Return penalized losses (s, 2, 10), their gradients, and the curvature of each row."""
    points, offset, features, precision, amplitude = problem
    line = (amplitude * theta) @ features + offset[:, None, None]
    small = xp.exp(-abs(line))
    rest = 1 / (1 + small)
    # The logarithm of one plus the exponential is the line, where it is positive, and this.
    value = (xp.maximum(line, 0) - xp.log(rest)) @ points.weights - line @ points.positives
    value = value + xp.sum(precision * theta**2, -1) / 2
    residual = xp.where(line >= 0, rest, small * rest) * points.weights - points.positives
    gradient = amplitude * (residual @ xp.swapaxes(features, -1, -2)) + precision * theta
    return value, gradient, small * rest * rest * points.weights


def _pairs(features: Any, total: Any, xp: Any) -> Any:
    """Return products (s, 2, 153, n) of all pairs of features.

    On the host in single precision, unless rows are many: the Hessian gives steps, which gradients
    in double precision make good, and a determinant.
    """
    if xp is not np:
        return features[:, :, _FIRST] * features[:, :, _SECOND]
    narrow = features.astype(np.float32 if total < _LIGHT else np.float64)
    pairs = np.empty((*features.shape[:2], len(_FIRST), features.shape[-1]), narrow.dtype)
    start = 0
    for i in range(COLUMNS):
        stop = start + COLUMNS - i
        np.multiply(narrow[:, :, i : i + 1], narrow[:, :, i:], out=pairs[:, :, start:stop])
        start = stop
    return pairs


def _hessian(problem: _Problem, curvature: Any, pairs: Any, xp: Any) -> Any:
    """Return matrices (s, 2, 10, 17, 17)."""
    amplitude, dtype = problem.amplitude, problem.amplitude.dtype
    sums = (curvature.astype(pairs.dtype) @ xp.swapaxes(pairs, -1, -2)).astype(dtype)
    sums = sums * (amplitude[..., _FIRST] * amplitude[..., _SECOND])
    # Rounding of what is huge must not hide that the rest is positive.
    most = xp.max(sums[..., _DIAGONAL], axis=-1, keepdims=True)
    ridge = problem.precision + 4 * float(np.finfo(dtype).eps) * most
    sums = sums + ridge @ xp.eye(len(_FIRST), dtype=dtype)[_DIAGONAL]
    return xp.take(sums, _PAIR, axis=-1)


def _polish(problem: _Problem, found: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Go on from the minimum of fewer points, whose Hessian is nearly the right one."""
    theta, _, hessian, _ = found
    pairs = _pairs(problem.features, problem.points.weights.sum(), np)
    before = np.inf
    for _ in range(_POLISHED):
        value, gradient, curvature = _losses(problem, theta, np)
        step = -np.linalg.solve(hessian, gradient[..., None])[..., 0]
        gain = -(gradient * step).sum(axis=-1) / (abs(value) + 1e-3)
        left = gain.max()
        if not left < before:
            break
        theta, before = theta + step, left
        if left <= _TOLERANCE:
            return theta, value, _hessian(problem, curvature, pairs, np), left
    return _minimize(problem, theta, np)


def _minimize(
    problem: _Problem, start: Any, xp: Any, tolerance: float = _TOLERANCE
) -> tuple[Any, Any, Any, Any]:
    """Return theta, penalized loss and Hessian of all regressions, and the last decrement.

    Newton's method for all together: a step that does not lower a loss is halved.
    """
    total = xp.sum(problem.points.weights)
    pairs = _pairs(problem.features, total, xp)

    def evaluate(theta: Any) -> tuple[Any, Any, Any]:
        value, gradient, curvature = _losses(problem, theta, xp)
        return value, gradient, _hessian(problem, curvature, pairs, xp)

    def direction(gradient: Any, hessian: Any) -> tuple[Any, Any]:
        step = -xp.linalg.solve(hessian, gradient[..., None])[..., 0]
        return step, xp.sum(gradient * step, -1)

    eps = float(np.finfo(start.dtype).eps)
    tolerance = max(tolerance, 4 * eps)

    def once(carry: Any) -> Any:
        theta, value, hessian, step, slope, size, _, _ = carry
        trial = theta + size[..., None] * step
        new, gradient, new_hessian = evaluate(trial)
        slack = 8 * eps * (abs(value) + total)
        # A step that promises next to nothing is the last: rounding may well look like a rise.
        least = tolerance * (abs(value) + 1e-3)
        lower = (new <= value + 1e-4 * size * slope + slack) | (-slope <= least)
        left = xp.max(xp.where(lower, -slope, xp.inf) / (abs(value) + 1e-3))
        theta = xp.where(lower[..., None], trial, theta)
        value = xp.where(lower, new, value)
        hessian = xp.where(lower[..., None, None], new_hessian, hessian)
        further, promise = direction(gradient, new_hessian)
        step = xp.where(lower[..., None], further, step)
        slope = xp.where(lower, promise, slope)
        size = xp.where(lower, 1.0, size / 2)
        status = xp.where(left > tolerance, -1, Status.CONVERGED)
        return theta, value, hessian, step, slope, size, left, status

    value, gradient, hessian = evaluate(start)
    step, slope = direction(gradient, hessian)
    one = xp.ones(start.shape[:-1], start.dtype)
    state = (start, value, hessian, step, slope, one, one[0, 0, 0], xp.full((), -1))
    _, theta, value, hessian, *_, left, _ = iterate(once, state, _MOST, xp)
    return theta, value, hessian, left
