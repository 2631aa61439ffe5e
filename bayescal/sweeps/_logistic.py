"""The methods of logistic regression on many data sets at once."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.precision import float64
from bayescal.regression.cross_validation import Grid, choose
from bayescal.regression.fit import fit_many
from bayescal.regression.method import CAUCHY, INTERCEPT, SMOOTHINGS, STRENGTHS
from bayescal.regression.objective import Regression
from bayescal.smoothing import platt_targets
from bayescal.smoothing.instance import batched_instance_targets

#: Of the cross-validated methods.
FOLDS = 10


class Lines(NamedTuple):
    """Log odds intercept + slope x, and the status of each fit; all of shape (b,)."""

    intercept: jax.Array
    slope: jax.Array
    status: jax.Array


def fit_lines(name: str, x: jax.Array, y: np.ndarray) -> Lines:
    """Fit a preset of logistic regression to scores (b, n), all with the labels (n,)."""
    with float64():
        if name in ("smoothed", "L1", "L2"):
            # Classes are spread evenly over folds: rows of a class are in any order.
            folds = jnp.arange(len(y)) % FOLDS
            return _cross_validated(x, jnp.asarray(y, float), _grid(name, y), folds, name == "L1")
        scores, mean, scale = _standardise(x) if name == "cauchy_map" else (x, 0.0, 1.0)
        if name == "ibls":
            labels = jnp.broadcast_to(jnp.asarray(y), x.shape)
            targets = _instance(x[..., None], labels, jnp.ones(x.shape))
        else:
            own = platt_targets(y) if name == "platt" else y.astype(float)
            targets = jnp.broadcast_to(jnp.asarray(own), x.shape)
        zero = jnp.zeros(len(x))
        problem = Regression(scores[..., None], targets, jnp.ones(x.shape), zero, zero)
        if name == "cauchy_map":
            problem = problem._replace(prior=CAUCHY, intercept_prior=INTERCEPT)
        found = fit_many(problem)
        slope = found.coef[:, 0] / scale
        return Lines(found.intercept - slope * mean, slope, found.status)


def _grid(name: str, y: np.ndarray) -> Grid:
    if name == "smoothed":
        zero = jnp.zeros(len(SMOOTHINGS))
        return Grid(jnp.asarray(y + SMOOTHINGS[:, None] * (1.0 - 2 * y)), zero, zero)
    strengths, zero = jnp.asarray(STRENGTHS), jnp.zeros(len(STRENGTHS))
    targets = jnp.asarray(y, float)[None]
    return Grid(targets, strengths, zero) if name == "L1" else Grid(targets, zero, strengths)


@partial(jax.jit, static_argnames="lasso")
def _cross_validated(x: jax.Array, y: jax.Array, grid: Grid, fold: jax.Array, lasso: bool) -> Lines:
    def one(own: jax.Array) -> Lines:
        found = choose(own[:, None], y, jnp.ones(len(own)), fold, grid, FOLDS, lasso).fit
        return Lines(found.intercept[0], found.coef[0, 0], found.status[0])

    return jax.lax.map(one, x)


@jax.jit
def _instance(x: jax.Array, y: jax.Array, weights: jax.Array) -> jax.Array:
    return batched_instance_targets(x, y, weights, jnp.zeros(()), "silverman", "pooled")


@jax.jit
def _standardise(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return scores with mean 0 and standard deviation 1/2, and what makes them so."""
    mean = x.mean(axis=1)
    scale = 2 * x.std(axis=1)
    scale = jnp.where(scale > 0, scale, 1)
    return (x - mean[:, None]) / scale[:, None], mean, scale
