"""What fits of a stack need of scores on an accelerator: keys, and sums over rows, in few programs.

Everything is in double precision. Members are fits with all features, of which those that they do
not take have coefficients of zero: so one program serves them all.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.numerics import log_softmax
from bayescal.calibrators.multiclass.members import Layout, main_directions, make_features, smooth
from bayescal.calibrators.stack.fold_fits import Losses, Place, Scale
from bayescal.data.folds.deal import score_keys
from bayescal.data.rows import Rows
from bayescal.regression.softmax.objective import Design, evaluate, logit_update

#: Of a sum of losses.
_ROUNDING = 1e-13


@jax.jit
def content_keys(order: jax.Array, scores: jax.Array) -> jax.Array:
    """Compute a number (n,) for each row of scores, in a canonical order of the classes."""
    # Logarithms whose sums are finite.
    return score_keys(jnp.maximum(log_softmax(scores.astype(float)), -1e300), order)


@partial(jax.jit, static_argnames="rank")
def directions(scores: jax.Array, scale: Scale, rank: int) -> jax.Array:
    """Return main directions (k, r) of some of the rows, in single precision."""
    return main_directions(smooth(scores.astype(float), *scale).astype(np.float32), rank)


@partial(jax.jit, static_argnames="method")
def curvature(method: Any, rows: Rows, scale: Scale, basis: jax.Array) -> tuple[jax.Array, ...]:
    """Return what an approximation of the Hessian sums over some of the rows."""
    x = smooth(rows.scores.astype(float), *scale)
    return method.sums(_design(method.layout, x, rows.y, rows.weights, basis))


class FoldsThere:
    """Rows on an accelerator; those of a fold have no weight in its fits, if there are several."""

    rounding = _ROUNDING

    def __init__(
        self, rows: Rows, folds: np.ndarray, scales: list[Scale], layout: Layout, basis: Any
    ) -> None:
        self.count = len(scales)
        self._layout = layout
        # One fold is left out of nothing.
        common = rows.y, rows.weights, folds if self.count > 1 else folds - 1
        self._common = *(jnp.asarray(own) for own in common), jnp.asarray(basis, float)
        shared = scales[0] == scales[-1]
        self._x = [_smooth(rows.scores, own) for own in (scales[:1] if shared else scales)]

    def losses(self, fold: int, theta: np.ndarray, place: Place) -> Losses:
        """Return the sum of losses of the other folds, and its gradient."""
        found = np.asarray(_losses(self._layout, *self._at(fold, theta, place)))
        return float(found[0]), found[1:][place.own]

    def held_out(self, fold: int, theta: np.ndarray, place: Place) -> jax.Array:
        """Return log probabilities (n,) of the labels of the fold; those of others are zero."""
        return _held_out(self._layout, *self._at(fold, theta, place))

    def together(self, logs: list[list[jax.Array]]) -> jax.Array:
        """Return those (n, members) of all rows, from those of members and folds."""
        return _together(logs)

    def _at(self, fold: int, theta: np.ndarray, place: Place) -> tuple[Any, ...]:
        every = np.zeros(self._layout.length)
        every[place.own] = theta
        return every, fold, self._x[fold % len(self._x)], *self._common


@jax.jit
def _smooth(scores: jax.Array, scale: Scale) -> jax.Array:
    return smooth(scores.astype(float), *scale)


def _design(
    layout: Layout, x: jax.Array, y: Any, weights: Any, basis: jax.Array
) -> Design[jax.Array]:
    features, shared = make_features(x, layout, basis.astype(x.dtype))
    return Design(x, y, weights, features, x, shared)


@partial(jax.jit, static_argnums=0)
def _losses(
    layout: Layout,
    theta: jax.Array,
    fold: jax.Array,
    x: jax.Array,
    y: jax.Array,
    weights: jax.Array,
    folds: jax.Array,
    basis: jax.Array,
) -> jax.Array:
    """Return the sum of losses, followed by its gradient (p,), of the rows of other folds."""
    design = _design(layout, x, y, jnp.where(folds == fold, 0, weights), basis)
    found = evaluate(design, jnp.zeros_like(theta), theta)
    return jnp.concatenate([found.value[None], found.gradient])


@partial(jax.jit, static_argnums=0)
def _held_out(
    layout: Layout,
    theta: jax.Array,
    fold: jax.Array,
    x: jax.Array,
    y: jax.Array,
    weights: jax.Array,
    folds: jax.Array,
    basis: jax.Array,
) -> jax.Array:
    logs = log_softmax(x + logit_update(_design(layout, x, y, weights, basis), theta))
    return jnp.where(folds == fold, logs[jnp.arange(len(y)), y], 0)


@jax.jit
def _together(logs: list[list[jax.Array]]) -> jax.Array:
    return jnp.stack([jnp.sum(jnp.stack(own), axis=0) for own in logs], axis=1)
