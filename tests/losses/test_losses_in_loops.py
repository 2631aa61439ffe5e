"""The losses in training loops of plain JAX and Flax, and on a stream of batches."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bayescal.losses import (
    mmce,
    smoothed_cross_entropy,
    with_instance_targets,
)
from bayescal.smoothing import network_instance_targets

STEPS, RATE = 8, 0.2
Result = tuple[list[float], jax.Array, jax.Array]


def objective(logits: jax.Array, labels: Any) -> jax.Array:
    return smoothed_cross_entropy(logits, labels, 0.1) + 0.5 * mmce(logits, labels)


def make_clusters() -> tuple[jax.Array, jax.Array]:
    """Draw three round clusters in the plane, with labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, size=30)
    centers = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    points = centers[labels] + 0.7 * rng.normal(size=(30, 2))
    return jnp.asarray(points, dtype=jnp.float32), jnp.asarray(labels)


def initial_parameters() -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(1)
    weight, bias = 0.1 * rng.normal(size=(2, 3)), 0.1 * rng.normal(size=3)
    return jnp.asarray(weight, dtype=jnp.float32), jnp.asarray(bias, dtype=jnp.float32)


def train_plainly() -> Result:
    x, y = make_clusters()
    params, optimizer = initial_parameters(), optax.sgd(RATE)
    state, losses, first = optimizer.init(params), [], None

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        value, gradient = jax.value_and_grad(lambda p: objective(x @ p[0] + p[1], y))(params)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, value, gradient

    for _ in range(STEPS):
        params, state, value, gradient = step(params, state)
        first = gradient if first is None else first
        losses.append(float(value))
    assert first is not None
    return losses, *first


def train_with_nnx() -> Result:
    nnx = pytest.importorskip("flax.nnx")
    x, y = make_clusters()
    model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    model.kernel[...], model.bias[...] = initial_parameters()
    optimizer = nnx.Optimizer(model, optax.sgd(RATE), wrt=nnx.Param)

    @nnx.jit
    def step(model: Any, optimizer: Any) -> Any:
        value, gradient = nnx.value_and_grad(lambda m: objective(m(x), y))(model)
        optimizer.update(model, gradient)
        return value, gradient

    steps = [step(model, optimizer) for _ in range(STEPS)]
    first = steps[0][1]
    return [float(value) for value, _ in steps], first["kernel"][...], first["bias"][...]


@pytest.mark.slow
def test_flax_trains_as_plain_jax_does() -> None:
    expected, in_weight, in_bias = train_plainly()
    losses, weight, bias = train_with_nnx()
    np.testing.assert_allclose(weight, in_weight, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(bias, in_bias, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert losses[-1] < 0.8 * losses[0]


# --- a stream of batches ------------------------------------------------------------------------


def teacher(inputs: np.ndarray) -> jax.Array:
    return jnp.asarray(inputs, dtype=jnp.float32) @ jnp.array([[2.0, -1.0, 0.5], [0.0, 1.0, 3.0]])


def test_stream_has_the_targets_of_all_rows() -> None:
    x, y = (np.asarray(array) for array in make_clusters())
    batches = [(x[:12], y[:12]), (x[12:24], y[12:24]), (x[24:], y[24:])]
    result = list(with_instance_targets(batches, teacher, 0.2, offset=1.5))
    assert [len(targets) for _, targets in result] == [12, 12, 6]
    assert all(inputs is batch[0] for (inputs, _), batch in zip(result, batches, strict=True))
    expected = network_instance_targets(teacher(x), y, 0.2, 1.5)
    joined = np.concatenate([targets for _, targets in result])
    np.testing.assert_allclose(joined, expected, rtol=1e-5, atol=1e-7)


def test_stream_takes_one_batch_at_a_time() -> None:
    taken = []

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number in range(10**9):
            taken.append(number)
            yield np.full((2, 2), float(number)), np.array([0, 1])

    stream = with_instance_targets(batches(), teacher, 0.1)
    assert taken == []
    next(stream)
    inputs, targets = next(stream)
    assert taken == [0, 1] and inputs[0, 0] == 1 and targets.shape == (2, 3)


def test_stream_says_at_once_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"smoothing must lie in \[0, 1\), got 1"):
        with_instance_targets([], teacher, 1.0)
    with pytest.raises(TypeError, match="offset must be a number, got 'a'"):
        with_instance_targets([], teacher, 0.1, "a")
    stream = with_instance_targets([(np.zeros((2, 2)), np.array([0]))], teacher, 0.1)
    with pytest.raises(ValueError, match=r"labels must have shape \(2,\)"):
        next(stream)
