"""Conjugate gradients against solved linear systems, and where rounding dominates."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bayescal._core.minimization.newton_cg import conjugate_gradients


@pytest.mark.parametrize("xp", [np, jnp])
def test_solves_a_system(xp: Any, x64: None) -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(8, 8))
    matrix, vector = xp.asarray(root @ root.T + np.eye(8)), xp.asarray(rng.normal(size=8))
    diagonal = xp.diag(matrix)
    result, _, steps = conjugate_gradients(
        lambda v: matrix @ v, lambda v: v / diagonal, vector, lambda power: 1e-24, 30, xp
    )
    np.testing.assert_allclose(result, np.linalg.solve(matrix, vector), rtol=1e-9)
    assert 0 < int(steps) <= 12


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("curvature", [0.0, -1e-12])
def test_a_first_direction_that_seems_flat_is_taken_whole(
    curvature: float, xp: Any, x64: None
) -> None:
    vector = xp.asarray([3.0, -4.0])
    result, _, steps = conjugate_gradients(
        lambda v: curvature * v, lambda v: v / 2, vector, lambda power: 1e-6, 10, xp
    )
    np.testing.assert_allclose(result, [1.5, -2.0])
    assert int(steps) == 1
