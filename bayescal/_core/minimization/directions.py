"""Steps of Newton's method, which minimize a quadratic model with or without absolute penalties.

Conjugate gradients, for Hessians that are never formed, are in ``newton_cg``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from bayescal._core.arrays import Arrays, ArrayT
from bayescal._core.lazy import jax, jnp

#: Number of equations up to which they are solved without a library call.
_UNROLLED = 4
_SWEEPS, _SETTLED = 1000, 1e-12


def solve_positive(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """Solve for a symmetric positive definite ``matrix`` (p, p); NaN if it is not.

    A few unknowns are eliminated explicitly, which under ``vmap`` is much faster than a library
    call for each matrix.
    """
    p = vector.shape[0]
    if p > _UNROLLED:
        return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix, lower=True), vector)
    factor: list[list[jax.Array]] = [[] for _ in range(p)]
    forward: list[jax.Array] = []
    for i in range(p):
        for j in range(i + 1):
            rest = matrix[i, j] - sum(
                (factor[i][k] * factor[j][k] for k in range(j)), start=jnp.zeros((), matrix.dtype)
            )
            factor[i].append(jnp.sqrt(rest) if i == j else rest / factor[j][j])
        done = sum((factor[i][k] * forward[k] for k in range(i)), start=jnp.zeros((), vector.dtype))
        forward.append((vector[i] - done) / factor[i][i])
    solution: dict[int, jax.Array] = {}
    for i in reversed(range(p)):
        done = sum(
            (factor[k][i] * solution[k] for k in range(i + 1, p)), start=jnp.zeros((), vector.dtype)
        )
        solution[i] = (forward[i] - done) / factor[i][i]
    return jnp.stack([solution[i] for i in range(p)])


Direction: TypeAlias = Callable[[ArrayT, ArrayT, ArrayT], tuple[ArrayT, ArrayT]]


def newton_step(
    hessian: jax.Array, gradient: jax.Array, x: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute the step to subtract, and the gain that it promises to first order."""
    step = solve_positive(hessian, gradient)
    return step, gradient @ step


def newton_step_on_host(
    hessian: np.ndarray, gradient: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute :func:`newton_step` with LAPACK; NaN if the Hessian is not positive definite."""
    from scipy.linalg import lapack

    solve = lapack.dposv  # pyright: ignore[reportAttributeAccessIssue]
    _, step, fault = solve(hessian, gradient)
    if fault:
        step = np.full_like(gradient, np.nan)
    return step, gradient @ step


def lasso_step(strength: jax.Array) -> Direction[jax.Array]:
    """Minimize a quadratic model plus ``sum(strength * |x|)``, by coordinate descent."""

    def direction(
        hessian: jax.Array, gradient: jax.Array, x: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        diagonal = jnp.diagonal(hessian)

        def coordinate(j: int, carry: Arrays) -> Arrays:
            z, slope, moved = carry
            curvature = diagonal[j]
            free = z[j] - slope[j] / curvature
            new = jnp.sign(free) * jnp.maximum(jnp.abs(free) - strength[j] / curvature, 0)
            change = new - z[j]
            moved = jnp.maximum(moved, jnp.sqrt(curvature) * jnp.abs(change))
            return z.at[j].set(new), slope + hessian[:, j] * change, moved

        def sweep(carry: Arrays) -> Arrays:
            number, z, slope, _ = carry
            zero = jnp.zeros((), x.dtype)
            z, slope, moved = jax.lax.fori_loop(0, x.shape[0], coordinate, (z, slope, zero))
            return number + 1, z, slope, moved

        def unsettled(carry: Arrays) -> jax.Array:
            return (carry[0] < _SWEEPS) & (carry[3] > _SETTLED)

        start = jnp.zeros((), int), x, gradient, jnp.full((), jnp.inf, x.dtype)
        z = jax.lax.while_loop(unsettled, sweep, start)[1]
        step = x - z
        gain = gradient @ step + jnp.sum(strength * (jnp.abs(x) - jnp.abs(z)))
        return step, gain

    return direction
