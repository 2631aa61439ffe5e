"""Draws, their weights given the data, and averages over them: sum_i w_i f(x; theta_i).

Predictions are streamed in blocks of draws and of points. Nothing of size (draws, points) is kept:
blocks are reduced as they are made, with sums kept on a logarithmic scale.  Work is
O(draws * points); memory O(block + data sets * points).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from bayescal._core.arrays import Params
from bayescal._core.execution.chunks import block_elements, even_block, points_per_chunk
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import nan_to_minus_inf, subtract_maximum, two_class_probabilities
from bayescal._core.shapes import Float
from bayescal.inference._class_prior import ClassProbRule
from bayescal.models import Family

#: Numbers of products up to which likelihoods are computed in one piece.
_MAX_UNBLOCKED = 1 << 24

Tree = TypeVar("Tree")
#: Arrays by their axes: draws and points, coefficients (natural parameters), features, weights.
PerDraw: TypeAlias = 'Float[jax.Array, " draws"]'
Points: TypeAlias = 'Float[jax.Array, " points *dimensions"]'
Natural: TypeAlias = 'Float[jax.Array, "classes draws features"]'
Features: TypeAlias = 'Float[jax.Array, "points features"]'
Weights: TypeAlias = 'Float[jax.Array, "sets draws"]'
PerClass: TypeAlias = 'Float[jax.Array, "classes features"]'
#: Largest exponents (classes, m), and sums relative to them (classes, b, m).
_Sums: TypeAlias = tuple[jax.Array, jax.Array]
#: A block of draws: parameters, relative and reference log weights, and log class probabilities.
_Block: TypeAlias = tuple[Params, tuple[jax.Array | None, jax.Array], jax.Array | None]


class WeightedDraws(NamedTuple):
    """Parameters (n, ...), their log prior density, used for the mode, and log weights (n,).

    The weights exclude the likelihood; multiplied by it, they sum to the evidence.
    """

    params: Params
    log_prior: jax.Array
    log_base: jax.Array


class Densities(NamedTuple):
    """The class-conditional densities of a family, with features relative to an origin."""

    family: Family
    origin: jax.Array

    def natural(self, params: Params) -> Float[jax.Array, "draws classes features"]:
        """Compute the coefficients of the features for a block of draws; NaN if invalid."""
        return jax.vmap(self.family.natural, in_axes=(0, None))(params, self.origin)

    def finite_natural(self, params: Params, dtype: np.dtype) -> Natural:
        """Return the finite coefficients of a block; invalid draws have no weight."""
        natural = self.natural(params)
        return jnp.where(jnp.isfinite(natural), natural, 0).astype(dtype).swapaxes(0, 1)

    def features(self, x: Points, dtype: np.dtype) -> Features:
        """Compute the features, clipped so that sums of products are finite."""
        most = float(jnp.finfo(dtype).max) * 2.0**-20
        return jnp.clip(self.family.features(x, self.origin, jax.numpy), -most, most).astype(dtype)

    def log_likelihood(self, params: Params, sums: PerClass) -> PerDraw:
        """Compute the log likelihood of parameters given the sums of features by class.

        O(n * classes * p), whatever the number of observations; ``-inf`` for invalid parameters.
        """

        def rows(params: Params) -> PerDraw:
            natural = self.natural(params)
            return jnp.matmul(natural.reshape(-1, sums.size), sums.ravel(), precision="highest")

        n = jax.tree.leaves(params)[0].shape[0]
        if n * sums.size <= _MAX_UNBLOCKED:
            return nan_to_minus_inf(rows(params))
        block = max(1, _MAX_UNBLOCKED // (8 * sums.size))
        return nan_to_minus_inf(jax.lax.map(rows, in_blocks(params, n, block)).ravel()[:n])

    def mean_natural(self, draws: WeightedDraws, log_weights: PerDraw) -> PerClass:
        """Compute the weighted mean of the coefficients, in blocks."""
        first = jax.tree.map(lambda leaf: leaf[0], draws.params)
        example = jax.eval_shape(lambda: self.family.natural(first, self.origin))
        block = min(log_weights.shape[0], max(1, (1 << 22) // example.size))

        def add(total: jax.Array, item: tuple[Params, jax.Array]) -> tuple[jax.Array, None]:
            params, logs = item
            natural = self.natural(params)
            natural = jnp.where(jnp.isfinite(natural), natural, 0)
            flat = jnp.matmul(jnp.exp(logs), natural.reshape(block, -1), precision="highest")
            return total + flat.reshape(natural.shape[1:]), None

        items = draw_blocks(draws, log_weights, block)
        if items[1].shape[0] == 1:
            return add(jnp.zeros(()), jax.tree.map(lambda leaf: leaf[0], items))[0]
        return jax.lax.scan(add, jnp.zeros(example.shape), items)[0]

    def mixture(
        self,
        method: str,
        params: Params,
        log_weights: Weights,
        x: Points,
        rule: ClassProbRule,
        dtype: np.dtype,
    ) -> Float[jax.Array, "classes sets points"]:
        """Return unnormalized log class probabilities (classes, b, m) at a chunk of points x.

        They average the optimal predictions of the draws ("preds"), or are ratios of averaged
        densities ("predictive"). The normalized weights are those of data sets that share n draws.
        """
        phi = self.features(x, dtype)
        b, n = log_weights.shape
        k, m = self.family.classes, phi.shape[0]
        block = even_block(n, block_elements() // (m * k))
        # Relative to their maximum over data sets, the draws' densities are shared by all of them.
        envelope = jnp.max(log_weights, axis=0, keepdims=True)
        finite = jnp.where(jnp.isfinite(envelope), envelope, 0)
        relative = weight_blocks(log_weights - finite, block) if b > 1 else None
        weights = relative, weight_blocks(envelope, block)[:, 0]

        def at(log_class_probs: Float[jax.Array, "classes columns"]) -> jax.Array:
            """Average at class probabilities of each draw or of each data set, or of one column."""
            log_class_probs = log_class_probs.astype(dtype)
            by_draw = None
            if method == "preds" and log_class_probs.shape[1] > 1:
                by_draw = in_blocks(log_class_probs.T, n, block)

            def add(sums: _Sums, item: _Block) -> tuple[_Sums, None]:
                block_params, (relative, reference), drawn = item
                natural = self.finite_natural(block_params, dtype)
                scale = None if relative is None else jnp.exp(relative).astype(dtype)
                if method == "predictive":
                    return _add_densities(sums, natural, phi, scale, reference), None
                log_prior = (log_class_probs if drawn is None else drawn.T)[..., None]
                return _add_predictions(sums, natural, phi, scale, reference, log_prior), None

            inputs = in_blocks(params, n, block), weights, by_draw
            start = jnp.full((k, m), jnp.finfo(dtype).min, dtype), jnp.zeros((k, b, m), dtype)
            if block == n:
                (top, total), _ = add(start, jax.tree.map(lambda leaf: leaf[0], inputs))
            else:
                (top, total), _ = jax.lax.scan(add, start, inputs)
            # A sum near the smallest float has lost terms. NaN marks it, and the caller goes row by
            # row.
            faint = total < jnp.finfo(dtype).tiny * 1e8
            log_total = jnp.log(jnp.where(faint & (b > 1), jnp.nan, total))
            if method == "predictive":
                return log_total + (top[:, None, :] + log_class_probs[..., None])
            return log_total

        if rule.log_weights.shape[0] == 1:
            return at(rule.log_probs[0])
        parts = jax.lax.map(at, rule.log_probs)
        return jax.nn.logsumexp(parts + rule.log_weights[:, None, None, None], axis=0)


def _add_predictions(
    sums: _Sums,
    natural: Natural,
    phi: Features,
    relative: Weights | None,
    reference: PerDraw,
    log_prior: Float[jax.Array, "classes columns 1"],
) -> _Sums:
    """Add a block to the weighted sums of the optimal predictions."""
    top, total = sums
    weights = jnp.exp(reference).astype(phi.dtype)[None]
    if relative is not None:
        weights = relative * weights
    if natural.shape[0] == 2:
        log_odds = linear(natural[1] - natural[0], phi) + (log_prior[1] - log_prior[0])
        if weights.shape[0] == 1:
            one, zero = two_class_probabilities(log_odds, weights[0][:, None])
            part = jnp.stack([zero.sum(axis=0), one.sum(axis=0)])[:, None]
        else:
            one, zero = two_class_probabilities(log_odds)
            part = jnp.stack([weighted_sum(weights, zero), weighted_sum(weights, one)])
    else:
        logits = linear(natural, phi) + log_prior
        part = weighted_sum(weights, jax.nn.softmax(logits, axis=0))
    return top, total + part


def _add_densities(
    sums: _Sums, natural: Natural, phi: Features, relative: Weights | None, reference: PerDraw
) -> _Sums:
    """Add a block to the weighted sums of the density of every class, on a running scale."""
    top, total = sums
    log_density = linear(natural, phi) + reference.astype(phi.dtype)[:, None]
    new_top = jnp.maximum(top, jnp.max(log_density, axis=1))
    scaled = jnp.exp(subtract_maximum(log_density, new_top[:, None, :]))
    shrink = jnp.exp(top - new_top)[:, None, :]
    if relative is None:
        return new_top, total * shrink + jnp.sum(scaled, axis=1, keepdims=True)
    return new_top, total * shrink + weighted_sum(relative, scaled)


def in_blocks(tree: Tree, n: int, block: int) -> Tree:
    """Split the leading axis ``n`` of every leaf into blocks, repeating the last entry."""
    count = -(-n // block)

    def split(leaf: jax.Array) -> jax.Array:
        widths = [(0, count * block - n)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, widths, mode="edge").reshape(count, block, *leaf.shape[1:])

    return jax.tree.map(split, tree)


def linear(
    natural: Float[jax.Array, "*classes draws features"], phi: Features
) -> Float[jax.Array, "*classes draws points"]:
    """Multiply natural (..., n, p) by phi (m, p) to (..., n, m), elementwise if p is small."""
    if phi.shape[-1] > 4:
        return jnp.matmul(natural, phi.T, precision="highest")
    terms = [natural[..., :, j, None] * phi[:, j] for j in range(1, phi.shape[-1])]
    return sum(terms, start=jnp.broadcast_to(natural[..., :, 0, None], terms[0].shape))


def weighted_sum(
    weights: Weights, values: Float[jax.Array, "*classes draws points"]
) -> Float[jax.Array, "*classes sets points"]:
    """Multiply weights (b, n) by values (..., n, m) to (..., b, m)."""
    if weights.shape[0] == 1:
        return jnp.sum(weights[0][:, None] * values, axis=-2, keepdims=True)
    return jnp.matmul(weights, values, precision="highest")


def weight_blocks(log_weights: Weights, block: int) -> Float[jax.Array, "blocks sets block"]:
    """Split log weights into blocks, padded with zero weight."""
    b, n = log_weights.shape
    padded = jnp.pad(log_weights, ((0, 0), (0, -n % block)), constant_values=-jnp.inf)
    return padded.reshape(b, -1, block).swapaxes(0, 1)


def draw_blocks(
    draws: WeightedDraws, log_weights: PerDraw, block: int
) -> tuple[Params, Float[jax.Array, "blocks block"]]:
    """Split parameters and their log weights (n,) into blocks."""
    blocks = weight_blocks(log_weights[None], block)[:, 0]
    return in_blocks(draws.params, log_weights.shape[0], block), blocks


def in_chunks(
    function: Callable[[jax.Array], jax.Array], x: jax.Array, width: int | None = None
) -> jax.Array:
    """Apply ``function`` to chunks of points ``x`` (m, ...) and join results on the last axis."""
    m, width = x.shape[0], width or points_per_chunk()
    if m <= width:
        return function(x)
    parts = jax.lax.map(function, in_blocks(x, m, width))
    moved = jnp.moveaxis(parts, 0, -2)
    return moved.reshape(*moved.shape[:-2], -1)[..., :m]
