"""The iteration loop and Newton's method on an interval, against SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit

from bayescal._core.minimization.newton_cg import conjugate_gradients
from bayescal._core.minimization.optimize import (
    QuadraticModel,
    Status,
    iterate,
    newton,
    newton_on_host,
    newton_on_interval,
    run_together,
)

SLOPES = np.random.default_rng(0).normal(0.5, 2, 40)


def logistic(ridge: float, center: float) -> Callable[[float], tuple[float, float, float]]:
    """Return a function for value and derivatives of logistic losses with a squared penalty."""

    def evaluate(x: float) -> tuple[float, float, float]:
        p = expit(-SLOPES * x)
        value = np.logaddexp(0, -SLOPES * x).sum() + ridge * (x - center) ** 2 / 2
        slope = -(SLOPES * p).sum() + ridge * (x - center)
        return value, slope, (SLOPES**2 * p * (1 - p)).sum() + ridge

    return evaluate


@pytest.mark.parametrize(("ridge", "start"), [(0.0, 0.3), (1.0, 50.0), (1e4, 0.0), (0.0, 50.0)])
def test_newton_on_an_interval_finds_the_minimum(ridge: float, start: float) -> None:
    evaluate = logistic(ridge, 3.0)
    result = newton_on_interval(evaluate, start, scale=len(SLOPES))
    expected = minimize_scalar(
        lambda x: evaluate(x)[0], bounds=(0, 100), method="bounded", options={"xatol": 1e-9}
    )
    assert result.status == Status.CONVERGED
    assert result.x == pytest.approx(expected.x, rel=1e-6)
    assert (result.value, result.slope, result.curvature) == evaluate(result.x)
    assert result.value <= expected.fun + 1e-12 * abs(expected.fun)


@pytest.mark.parametrize(("lower", "away"), [(0.0, 0.7), (1.5, 0.0), (1.5, 20.0)])
def test_newton_stops_at_the_lower_bound(lower: float, away: float) -> None:
    evaluate = logistic(10.0, -4.0)
    result = newton_on_interval(evaluate, lower + away, scale=len(SLOPES), lower=lower)
    expected = minimize_scalar(lambda x: evaluate(x)[0], bounds=(lower, 60), method="bounded")
    assert result.status == Status.CONVERGED
    assert result.x == pytest.approx(lower, abs=1e-12) == pytest.approx(expected.x, abs=1e-4)
    assert result.slope > 0


@pytest.mark.parametrize("start", [0.0, 5.0])
def test_newton_says_that_there_is_no_minimum(start: float) -> None:
    result = newton_on_interval(lambda x: (np.exp(-x), -np.exp(-x), np.exp(-x)), start, scale=1.0)
    assert result.status == Status.UNBOUNDED
    assert result.x > 30


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("most", [3, 100])
def test_iterations_end_by_their_status_or_their_number(xp: Any, most: int, x64: None) -> None:
    def heron(state: tuple[Any, Any]) -> tuple[Any, Any]:
        new = (state[0] + 2 / state[0]) / 2
        return new, xp.where(abs(new - state[0]) < 1e-12, Status.CONVERGED, -1)

    number, root, status = iterate(heron, (xp.asarray(100.0), xp.asarray(-1)), most, xp)
    expected, count = [100.0], 0
    while count < most and (count == 0 or abs(expected[-1] - expected[-2]) >= 1e-12):
        expected.append((expected[-1] + 2 / expected[-1]) / 2)
        count += 1
    assert int(number) == count
    assert float(root) == pytest.approx(expected[-1], rel=1e-14)
    assert int(status) == (Status.LIMIT if most == 3 else Status.CONVERGED)


def test_searches_ask_together() -> None:
    """Check that each search gets its own answers, and none after it ends."""

    def halve(low: float, high: float) -> Any:
        while high - low > 0.01:
            middle = (low + high) / 2
            low, high = (middle, high) if (yield middle) < 0 else (low, middle)
        return low

    asked = []

    def evaluate(points: dict[Any, float]) -> dict[Any, float]:
        asked.append(sorted(points))
        return {name: x**3 - 2 for name, x in points.items()}

    searches = {"wide": halve(0, 64), "near": halve(1, 1.5), "none": halve(1, 1)}
    result = run_together(searches, evaluate)
    assert result["wide"] == pytest.approx(2 ** (1 / 3), abs=0.01)
    assert result["near"] == pytest.approx(2 ** (1 / 3), abs=0.01) and result["none"] == 1
    assert asked == [["near", "wide"]] * 6 + [["wide"]] * 7


def test_a_start_at_the_minimum_is_the_minimum() -> None:
    """Check a start at the minimum, where the step is lost in rounding."""
    for start in (1.0, 3.0):
        for slope in (1e-17, -1e-17, 0.0):
            result = newton_on_interval(lambda _, slope=slope: (1.0, slope, 1.0), start, scale=1.0)
            assert result.x == start and result.status == Status.CONVERGED


def problem(name: str, xp: Any) -> Callable[[Any], Any]:
    """Return a function whose minimization needs damping, ends at once or does not end."""
    design = np.random.default_rng(1).normal(size=(30, 2)) * [1.0, 8.0] + [0.5, 0.0]

    def evaluate(x: Any) -> Any:
        z = xp.asarray(design) @ x
        if name == "quartic":  # Newton's first steps from far away are too long.
            value, slope, curvature = (z**2 - 1) ** 2 / 4, z**3 - z, 3 * z**2 - 1
        else:
            grown = xp.exp(z)
            value, slope, curvature = grown - 0.5 * z, grown - 0.5, grown
        if name == "cliff":  # No step lowers the value that the derivatives promise to lower.
            value = value + xp.where(xp.abs(x).sum() > 0, 1.0, 0.0)
        hessian = design.T @ (curvature[:, None] * design)
        return QuadraticModel(value.sum(), slope @ xp.asarray(design), hessian)

    return evaluate


@pytest.mark.parametrize(
    ("name", "start", "status"),
    [
        ("exponential", [0.0, 0.0], Status.CONVERGED),
        ("exponential", [3.0, -1.0], Status.CONVERGED),
        ("exponential", [900.0, 0.0], Status.INVALID),
        ("quartic", [0.01, 0.02], Status.CONVERGED),
        ("cliff", [0.0, 0.0], Status.LIMIT),
    ],
)
def test_newton_takes_the_same_steps_on_the_host(
    name: str, start: list[float], status: Status, x64: None
) -> None:
    bound = np.array([200.0, 2000.0])
    compiled = newton(problem(name, jnp), jnp.array(start), scale=30.0, bound=jnp.asarray(bound))
    hosted = newton_on_host(problem(name, np), np.array(start), scale=30.0, bound=bound)
    assert int(compiled.status) == hosted.status == status
    assert int(compiled.iterations) == hosted.iterations
    np.testing.assert_allclose(hosted.x, compiled.x, rtol=1e-9, atol=1e-12)
    if status == Status.CONVERGED:
        np.testing.assert_allclose(hosted.value, compiled.value, rtol=1e-12)


def test_the_last_step_is_foreseen_where_it_gains_nothing() -> None:
    points: list[np.ndarray] = []

    def evaluate(x: np.ndarray) -> QuadraticModel[np.ndarray]:
        points.append(x)
        grown = np.exp(x)
        return QuadraticModel(np.sum(grown - 3 * x), grown - 3, np.diag(grown))

    start, bound = np.array([1.0, 2.0]), np.ones(2)
    looked = newton_on_host(evaluate, start, scale=1.0, bound=bound)
    evaluations = len(points)
    points.clear()
    result = newton_on_host(evaluate, start, scale=1.0, bound=bound, foresee=True)
    assert len(points) == evaluations - 1 and result.status == Status.CONVERGED
    np.testing.assert_array_equal(result.x, looked.x)
    np.testing.assert_allclose(result.x, np.log(3), rtol=1e-9)
    np.testing.assert_allclose(result.value, 2 * (3 - 3 * np.log(3)), rtol=1e-9)


def test_a_foreseen_step_that_moves_far_is_not_taken() -> None:
    """Check a function without finite minimum, where steps are long but promise little."""

    def evaluate(x: np.ndarray) -> QuadraticModel[np.ndarray]:
        value = np.exp(-x[0]) if x[0] < 100 else 16.0
        return QuadraticModel(value, -np.exp(-x), np.array([[1e-9 * np.exp(-x[0])]]))

    def moved(x: np.ndarray, step: np.ndarray) -> np.ndarray:
        return abs(step[0])

    start, bound = np.array([60.0]), np.array([1e-30])
    minimum = newton_on_host(evaluate, start, scale=1.0, bound=bound, foresee=True, movement=moved)
    assert minimum.status == Status.UNBOUNDED
    assert minimum.x == 60 and minimum.value == np.exp(-60.0)


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
