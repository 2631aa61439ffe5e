"""Stochastic gradient descent with momentum, and schedules of learning rates."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from bayescal._core.execution.precision import default_dtype
from bayescal.data.checks import check_choice

MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4


def make_optimizer(
    optimizer: Any, learning_rate: float, schedule: Any, steps: int
) -> optax.GradientTransformation:
    """Return the user's optimizer, or gradient descent whose rate follows the schedule."""
    if optimizer is not None:
        if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
            raise TypeError(
                f"optimizer must be an optax.GradientTransformation, got {type(optimizer).__name__}"
            )
        return optimizer
    if not 0 < learning_rate < float("inf"):
        raise ValueError(f"learning_rate must be positive and finite, got {learning_rate}")
    rate: Any = schedule if callable(schedule) else _rate(learning_rate, schedule, steps)
    return optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.sgd(rate, momentum=MOMENTUM))


def _rate(learning_rate: float, schedule: Any, steps: int) -> Any:
    """Return the learning rate, or a function of the number of steps taken."""
    if check_choice(schedule, "schedule", ("cosine", "constant")) == "constant":
        return learning_rate

    def cosine(count: jax.Array) -> jax.Array:
        done = count.astype(default_dtype()) / steps
        return learning_rate * (1 + jnp.cos(jnp.pi * done)) / 2

    return cosine
