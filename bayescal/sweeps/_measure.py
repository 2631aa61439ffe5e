"""Metrics of many data sets at once, from log odds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import Array
from bayescal._core.precision import float64
from bayescal.metrics.inputs import Predictions
from bayescal.metrics.registry import METRICS, Choices
from bayescal.metrics.sums import Metric, compute

#: Of probabilities, for metrics that take logarithms: log_loss itself is computed from log odds.
_EPS = 0.0


def make_metric(name: str, options: Mapping[str, object]) -> Metric:
    """Return the metric of one column of probabilities."""
    able = [key for key, each in METRICS.items() if each.make and "binary" in each.shapes]
    if name not in able:
        raise ValueError(f"metrics must be among {', '.join(able)}, got {name!r}")
    make = METRICS[name].make
    assert make is not None
    return make(None, **options)


def measure(chosen: Choices, log_odds: Array, y: np.ndarray) -> np.ndarray:
    """Return metrics (b, metrics) of log odds (b, m) with labels (m,)."""
    # Compiled programs are distinguished by the metrics.
    made = tuple(
        name if name == "log_loss" and not options else make_metric(name, options)
        for name, options in chosen.values()
    )
    with float64():
        return np.asarray(_measure(made, jnp.asarray(log_odds, float), jnp.asarray(y)))


@partial(jax.jit, static_argnums=0)
def _measure(made: tuple[Metric | str, ...], log_odds: jax.Array, y: jax.Array) -> jax.Array:
    def one(own: jax.Array) -> jax.Array:
        data = Predictions(jax.nn.sigmoid(own), y, jnp.ones(len(y)), _EPS)
        values = [
            jax.nn.softplus(jnp.where(y == 1, -own, own)).mean()
            if isinstance(metric, str)
            else jnp.asarray(compute(metric, data, jnp), float)
            for metric in made
        ]
        # NaN lies in no bin, and would be no error there.
        return jnp.where(jnp.isnan(own).any(), jnp.nan, jnp.stack(values))

    return jax.lax.map(one, log_odds)
