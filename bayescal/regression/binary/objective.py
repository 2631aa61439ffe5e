"""The objective of logistic regression: weighted cross-entropy, penalties and priors.

``xp`` is JAX, to be mapped and compiled, or NumPy, where nothing has to be compiled.
"""

from __future__ import annotations

from functools import reduce
from types import ModuleType
from typing import Generic, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from bayescal._core.arrays import Array, ArrayT
from bayescal._core.execution.chunks import slices
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.optimize import QuadraticModel
from bayescal._core.shapes import Float, Shaped

#: Size of features below which they count as zero.
_TINY = 1e-150
_BLOCK = 1 << 14
#: Number of columns up to which products of more than a few rows are computed pair by pair.
_PAIRS, _FEW_ROWS = 8, 1 << 10
#: Multiple of the relative rounding error within which values count as equal.
NOISE = 8
#: Arrays by their axes.
PerRow: TypeAlias = 'Float[np.ndarray, "*fits rows"]'
Theta: TypeAlias = 'Float[np.ndarray, " parameters"]'
#: A sum, and its first two derivatives.
Terms: TypeAlias = tuple[ArrayT, ArrayT, ArrayT]


class Distribution(Protocol):
    """The part of a NumPyro distribution that is used here."""

    def log_prob(self, value: Array) -> jax.Array: ...

    def cdf(self, value: Array) -> jax.Array: ...

    def icdf(self, q: Array) -> jax.Array: ...


class Regression(NamedTuple, Generic[ArrayT]):
    """A regression, or a batch of them; rows with zero weight are ignored."""

    x: Float[ArrayT, "*fits rows features"]
    #: Probabilities of class 1 to fit, in [0, 1].
    targets: Float[ArrayT, "*fits rows"]
    weights: Float[ArrayT, "*fits rows"]
    #: Strengths of the penalties l1 |coef| + l2 coef**2 / 2.
    l1: Float[ArrayT, " *fits"] | Float[ArrayT, "*fits features"] | float
    l2: Float[ArrayT, " *fits"] | Float[ArrayT, "*fits features"] | float
    #: One if the intercept or a coefficient is fitted, zero if it is fixed at zero.
    free: Shaped[ArrayT, "*fits 1+features"] | None = None
    #: Prior of each coefficient: a ``CoefficientPrior`` for fits on the host, a NumPyro
    #: distribution for compiled ones.
    prior: CoefficientPrior | Distribution | None = None
    intercept_prior: CoefficientPrior | Distribution | None = None
    #: Coefficients from which penalties without a prior are measured; None: from zero.
    center: Float[ArrayT, "*fits features"] | None = None


class CoefficientPrior(NamedTuple):
    """An independent normal prior of coefficients, or a Cauchy prior where ``cauchy`` is one."""

    center: Array | float
    scale: Array | float
    cauchy: Array | float

    def loss(self, b: Float[np.ndarray, " *points"]) -> Terms[Float[np.ndarray, " *points"]]:
        """Compute the negative log density at ``b`` and its first two derivatives."""
        z = (b - self.center) / self.scale
        square = z * z
        heavy = np.asarray(self.cauchy) > 0
        constant = np.log(self.scale) + np.where(heavy, np.log(np.pi), 0.5 * np.log(2 * np.pi))
        value = constant + np.where(heavy, np.log1p(square), 0.5 * square)
        slope = z * np.where(heavy, 2 / (1 + square), 1.0) / self.scale
        curvature = np.where(heavy, 2 * (1 - square) / (1 + square) ** 2, 1.0) / self.scale**2
        return value, slope, curvature


def row_terms(
    line: Float[ArrayT, "*fits rows"],
    targets: Float[ArrayT, "*fits rows"] | float,
    weights: Float[ArrayT, "*fits rows"],
    xp: ModuleType,
) -> Terms[Float[ArrayT, "*fits rows"]]:
    """Compute the weighted loss at log odds, and its first two derivatives.

    The loss of a row is log(1 + exp(f)) - t f, the cross-entropy: for a soft target its minimum is
    the target's entropy.
    """
    if xp is np:
        return _row_terms_on_host(line, targets, weights)  # type: ignore[arg-type,return-value]
    # Otherwise XLA would recompute the exponential in every sum that needs it.
    keep = jax.lax.optimization_barrier
    small = keep(xp.exp(-abs(line)))
    larger = 1 / (1 + small)
    smaller = small * larger
    probability = xp.where(line >= 0, larger, smaller)
    loss = weights * (xp.maximum(line, 0) + xp.log1p(small) - targets * line)
    residual = weights * (probability - targets)
    residual, curvature = keep((residual, weights * smaller * larger))
    return loss, residual, curvature


def _row_terms_on_host(line: PerRow, targets: PerRow | float, weights: PerRow) -> Terms[PerRow]:
    """Compute ``row_terms`` with few arrays, since more would not fit in the processor's cache."""
    small = np.copysign(line, -1.0)
    np.exp(small, out=small)
    larger = 1 + small
    np.reciprocal(larger, out=larger)
    loss = np.log1p(small)
    part = np.maximum(line, 0)
    loss += part
    loss -= np.multiply(targets, line, out=part)
    loss *= weights
    small *= larger
    # A second exponential takes less time than a choice by the sign, which no processor foresees.
    residual = np.minimum(line, 0, out=part)
    np.exp(residual, out=residual)
    residual *= larger
    residual -= targets
    residual *= weights
    larger *= small
    larger *= weights
    return loss, residual, larger


def cross_entropy(
    problem: Regression[jax.Array], beta: Float[jax.Array, " 1+features"]
) -> QuadraticModel[jax.Array]:
    """Compute the weighted cross-entropy at (intercept, coef...) and its derivatives."""
    x, d = problem.x, problem.x.shape[1]
    # A sum over columns, elementwise, is fast for few and small problems under ``vmap``.
    line = beta[0] + (sum(beta[j + 1] * x[:, j] for j in range(d)) if d <= 4 else x @ beta[1:])
    loss, residual, curvature = row_terms(line, problem.targets, problem.weights, jnp)
    if d > 4:
        design = jnp.concatenate([jnp.ones_like(x[:, :1]), x], axis=1)
        gradient = residual @ design
        hessian = (design * curvature[:, None]).T @ design
    else:
        columns = [jnp.ones_like(line), *(x[:, j] for j in range(d))]
        gradient = jnp.stack([jnp.sum(residual * c) for c in columns])
        entries: dict[tuple[int, int], jax.Array] = {}
        for i in range(d + 1):
            for j in range(i + 1):
                entries[i, j] = entries[j, i] = jnp.sum(curvature * columns[i] * columns[j])
        rows = [jnp.stack([entries[i, j] for j in range(d + 1)]) for i in range(d + 1)]
        hessian = jnp.stack(rows)
    return QuadraticModel(jnp.sum(loss), gradient, hessian)


class BinaryDesign(NamedTuple, Generic[ArrayT]):
    """Data of two classes; columns are ones and features in their units."""

    columns: Float[ArrayT, "parameters rows"]
    targets: Float[ArrayT, " rows"]
    weights: Float[ArrayT, " rows"]


def cross_entropy_on_host(
    design: BinaryDesign[np.ndarray], beta: Theta
) -> QuadraticModel[np.ndarray]:
    """Compute :func:`cross_entropy` with NumPy, in blocks that fit in the processor's cache."""

    def sums(block: BinaryDesign[np.ndarray]) -> QuadraticModel[np.ndarray]:
        columns, targets, weights = block
        loss, residual, curvature = row_terms(beta @ columns, targets, weights, np)
        # Arithmetic of NumPy's scalars is faster than that of arrays without axes.
        value = cast("np.ndarray", loss.sum())
        return QuadraticModel(value, columns @ residual, products(columns, curvature))

    return reduce(lambda *pair: QuadraticModel(*map(np.add, *pair)), map(sums, _blocks(design)))


def products(
    columns: Float[np.ndarray, "parameters rows"], weights: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, "parameters parameters"]:
    """Compute the weighted sums over rows of products of columns."""
    p, n = columns.shape
    if n <= _FEW_ROWS:
        return (columns * weights) @ columns.T
    if p > _PAIRS:
        root = columns * np.sqrt(weights)
        return root @ root.T
    # Of many rows and few columns, a matrix product takes up to twice as long.
    sums = np.empty((p, p))
    for i in range(p):
        weighted = columns[i] * weights
        for j in range(i + 1):
            sums[i, j] = sums[j, i] = weighted @ columns[j]
    return sums


def loss_and_gradient_on_host(design: BinaryDesign[np.ndarray], beta: Theta) -> tuple[float, Theta]:
    """Compute the cross-entropy and its gradient, in blocks."""
    value, gradient = 0.0, np.zeros(len(beta))
    for columns, targets, weights in _blocks(design):
        loss, residual, _ = row_terms(beta @ columns, targets, weights, np)
        value += loss.sum()
        gradient += columns @ residual
    return float(value), gradient


def _blocks(design: BinaryDesign[np.ndarray]) -> list[BinaryDesign[np.ndarray]]:
    """Split the rows into blocks that fit in the processor's cache."""
    n = design.columns.shape[1]
    if n <= _BLOCK:
        return [design]
    return [
        BinaryDesign(design.columns[:, part], design.targets[part], design.weights[part])
        for part in slices(n, _BLOCK)
    ]


def penalty_terms(
    problem: Regression[ArrayT],
    unit: Float[ArrayT, " 1+features"],
    beta: Float[ArrayT, " 1+features"],
    xp: ModuleType,
) -> Terms[ArrayT]:
    """Compute squared penalty and negative log priors of ``beta / unit``, and two derivatives.

    Features were divided by ``unit``; the derivatives are with respect to ``beta``.
    """
    d = beta.shape[0] - 1
    diagonal = xp.concatenate([xp.zeros(1), xp.broadcast_to(problem.l2, (d,))]) / unit**2
    value = 0.5 * xp.sum(diagonal * beta**2)
    gradient = diagonal * beta
    for law, part in ((problem.intercept_prior, 0), (problem.prior, 1)):
        # Compiled fits have distributions here, which are part of their loss.
        if isinstance(law, CoefficientPrior):
            inside = (np.arange(d + 1) > 0) == (part == 1)
            loss = law.loss(np.asarray(beta / unit))
            value = value + np.sum(np.where(inside, loss[0], 0))
            gradient = gradient + np.where(inside, loss[1] / unit, 0)
            diagonal = diagonal + np.where(inside, loss[2] / unit**2, 0)
    return value, gradient, diagonal


def add_penalties(
    problem: Regression[ArrayT],
    unit: Float[ArrayT, " 1+features"],
    strength: Float[ArrayT, " 1+features"] | None,
    loss: QuadraticModel[ArrayT],
    beta: Float[ArrayT, " 1+features"],
    xp: ModuleType = jnp,
) -> QuadraticModel[ArrayT]:
    """Add the :func:`penalty_terms` to a loss, and the absolute penalty to its value only.

    ``strength`` is that of the absolute penalty of ``beta``. Derivatives of coefficients that are
    not free are removed.
    """
    value, gradient, diagonal = penalty_terms(problem, unit, beta, xp)
    hessian = loss.hessian + xp.diag(diagonal)
    total = QuadraticModel(loss.value + value, loss.gradient + gradient, hessian)
    if problem.free is not None:
        # With these derivatives no step moves coefficients that are not free.
        moves = xp.asarray(problem.free) > 0
        both = moves[:, None] & moves
        hessian = xp.where(both, hessian, xp.diag(xp.where(moves, 0.0, 1.0)))
        total = QuadraticModel(total.value, xp.where(moves, total.gradient, 0.0), hessian)
    if strength is None:
        return total
    return total._replace(value=total.value + xp.sum(strength * abs(beta)))


def units(
    largest: Float[ArrayT, " features"], xp: ModuleType = jnp
) -> tuple[Float[ArrayT, " 1+features"], Float[ArrayT, " features"]]:
    """Return powers of two near the ``largest`` sizes of features, and inverses.

    In these units no square over- or underflows. The unit of the intercept is one. Features below
    1e-150 count as zero: their inverse unit is zero.
    """
    used = largest > _TINY
    power = xp.round(xp.log2(xp.where(used, xp.minimum(largest, 1 / _TINY), 1)))
    unit = xp.concatenate([xp.ones(1), xp.exp2(power)])
    return unit, xp.where(used, xp.exp2(-power), 0.0)


def centered(
    problem: Regression[jax.Array],
) -> tuple[Regression[jax.Array], Float[jax.Array, " features"]]:
    """Subtract their means from the features; return the problem and the means.

    Far from zero, columns would differ from the intercept's by less than rounding. The means are
    zero if the intercept has a prior or is not free, and for columns that do not vary.
    """
    zero = jnp.zeros(problem.x.shape[1])
    if problem.intercept_prior is not None:
        return problem, zero
    total = jnp.sum(problem.weights)
    proportion = problem.weights / jnp.where(total > 0, total, 1)
    # Measure from one row, so that differences of equal rows are exactly zero. Rows without weight
    # may contain anything.
    first = problem.x[jnp.argmax(proportion)]
    x = jnp.where(proportion[:, None] > 0, problem.x, first)
    mean = first + proportion @ (x - first)
    moved = jnp.isfinite(mean) & (total > 0)
    if problem.free is not None:
        moved = moved & (problem.free[0] > 0)
    mean = jnp.where(moved, mean, zero)
    deviation = x - mean
    # Variation within rounding counts as constant.
    noise = NOISE * jnp.finfo(x.dtype).eps * jnp.max(jnp.abs(x), axis=0)
    constant = moved & (jnp.max(jnp.abs(deviation), axis=0) <= noise)
    return problem._replace(x=jnp.where(constant, 0.0, deviation)), mean


def uncentered(
    beta: Float[ArrayT, " 1+features"], mean: Float[ArrayT, " features"], xp: ModuleType = jnp
) -> Float[ArrayT, " 1+features"]:
    """Return intercept and coefficients for features that are not centered."""
    return xp.concatenate([beta[:1] - (beta[1:] @ mean)[None], beta[1:]])


def start(problem: Regression[ArrayT], xp: ModuleType = jnp) -> Float[ArrayT, " 1+features"]:
    """Return initial coefficients: no slope, and the intercept of the mean target."""
    total = problem.weights.sum()
    mean = problem.weights @ problem.targets / xp.where(total > 0, total, 1)
    mean = xp.minimum(xp.maximum(mean, 1e-6), 1 - 1e-6)
    log_odds = (xp.log(mean) - xp.log1p(-mean))[None]
    beta = xp.concatenate([log_odds, xp.zeros(problem.x.shape[1])])
    return beta if problem.free is None else beta * problem.free


def offset_of(
    problem: Regression[ArrayT], unit: Float[ArrayT, " parameters"], xp: ModuleType = jnp
) -> Float[ArrayT, " parameters"] | float:
    """Return the center of the penalties in the columns' units, with zero for the intercept."""
    if problem.center is None:
        return 0.0
    return xp.concatenate([xp.zeros(1), problem.center]) * unit


def movement(
    line: Float[ArrayT, " rows"],
    step: Float[ArrayT, " rows"],
    weights: Float[ArrayT, " rows"],
    xp: ModuleType = jnp,
) -> Float[ArrayT, ""]:
    """Compute the largest relative change of a row's log odds ``line`` by ``step``."""
    return xp.max(xp.where(weights > 0, abs(step) / (1 + abs(line)), 0))
