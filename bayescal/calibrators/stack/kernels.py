"""Losses of members, their gradients and curvatures, with NumPy. Rows of data are columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bayescal._core.shapes import Float, Int
from bayescal.calibrators.multiclass.basis import Basis
from bayescal.calibrators.multiclass.members import Layout, confidence_rows, feature_rows
from bayescal.data.rows import Rows
from bayescal.regression.softmax.objective import Design, Parameters, Sizes, split

#: Numbers in a block of rows, and rows in a block of very many classes.
_BLOCK, _LEAST_ROWS = 1 << 16, 128
#: Number of scores up to which threads and single precision do not pay.
SMALL = 1 << 15
#: Relative rounding error of a sum of losses.
ROUNDING = {np.dtype(np.float32): 1e-7, np.dtype(np.float64): 1e-13}
#: Logits within this range have exponentials whose sums neither overflow nor vanish.
_MILD = 60.0
Losses = tuple[float, np.ndarray]


class Scale(NamedTuple):
    """The inverse temperature, and the proportion of the uniform distribution."""

    inverse: float
    smoothing: float


class FeatureBlock(NamedTuple):
    """Features (m, n), log probabilities (k, n) and confidence (4, n); rows of data are columns."""

    features: Float[np.ndarray, "all_features rows"]
    x: Float[np.ndarray, "classes rows"]
    shared: Float[np.ndarray, "4 rows"]
    y: Int[np.ndarray, " rows"]
    weights: Float[np.ndarray, " rows"]


def working_type(size: int) -> type[np.floating]:
    """Choose the type in which ``size`` scores are fitted on the host."""
    return np.float64 if size < SMALL else np.float32


def smooth_columns(
    scores: Float[np.ndarray, "rows classes"], scale: Scale, dtype: type[np.floating]
) -> tuple[Float[np.ndarray, "classes rows"], Float[np.ndarray, "classes rows"]]:
    """Compute smoothed log probabilities and probabilities (k, n) of scores (n, k)."""
    with np.errstate(over="ignore"):
        x = np.ascontiguousarray(scores.T)
        x = (x - x.max(axis=0)).astype(dtype, copy=False)
        x *= dtype(scale.inverse)
    np.exp(x, out=x)
    x *= (1 - scale.smoothing) / x.sum(axis=0)
    x += dtype(scale.smoothing / len(x))
    return np.log(x), x


def make_block(
    rows: Rows, scale: Scale, layout: Layout, basis: Basis, dtype: type[np.floating]
) -> FeatureBlock:
    """Make the features of rows for fits."""
    x, probs = smooth_columns(rows.scores, scale, dtype)
    features = feature_rows(x, probs, layout, basis)
    weights = rows.weights.astype(dtype, copy=False)
    return FeatureBlock(features, x, confidence_rows(x, probs), rows.y, weights)


def block_rows(count: int, k: int) -> list[slice]:
    """Divide ``count`` rows of k classes into slices of about equal length."""
    parts = -(-count // max(_LEAST_ROWS, _BLOCK // k))
    return [slice(*pair) for pair in pairwise(np.arange(parts + 1) * count // parts)]


def logits(
    block: FeatureBlock, parameters: Parameters, part: slice
) -> Float[np.ndarray, "classes rows"]:
    """Compute the logits (k, n) of a member, which takes a part of the features."""
    factor = 1 + parameters.diagonal[:, None]
    if len(parameters.shared):
        factor = factor + parameters.shared @ block.shared
    z = factor * block.x
    features = block.features[part]
    z += parameters.matrix @ features if len(features) > 1 else parameters.matrix
    return z


def design_and_probabilities(
    block: FeatureBlock, parameters: Parameters, part: slice
) -> tuple[Design, Float[np.ndarray, "rows classes"]]:
    """Compute the inputs of a member's logits, and its probabilities (n, k), with rows first."""
    z = logits(block, parameters, part)
    z -= z.max(axis=0)
    np.exp(z, out=z)
    z /= z.sum(axis=0)
    x, shared = block.x.T, block.shared.T if len(parameters.shared) else None
    return Design(x, block.y, block.weights, block.features[part].T, x, shared), z.T


def label_logs(
    block: FeatureBlock, parameters: Parameters, part: slice
) -> Float[np.ndarray, " rows"]:
    """Compute the log probabilities (n,) of labels by a member."""
    z = logits(block, parameters, part)
    z -= z.max(axis=0)
    label = z[block.y, np.arange(len(block.y))]
    return label - np.log(np.exp(z, out=z).sum(axis=0))


def losses(
    blocks: Sequence[FeatureBlock],
    theta: Float[np.ndarray, " parameters"],
    sizes: Sizes,
    part: slice,
) -> Losses:
    """Compute the weighted sum of losses, and its gradient (p,)."""
    value, gradient = 0.0, np.zeros(len(theta))
    into, parameters = split(gradient, sizes), split(theta.astype(blocks[0].x.dtype), sizes)
    zero = not theta.any()
    # Products with ones are several times faster than sums.
    classes = np.ones(len(blocks[0].x), blocks[0].x.dtype)
    for block in blocks:
        z = block.x.copy() if zero else logits(block, parameters, part)
        if not (-_MILD < z.min() and z.max() < _MILD):
            z -= z.max(axis=0)
        row = np.arange(len(block.y))
        ones = np.ones(len(row), z.dtype)
        label = z[block.y, row]
        np.exp(z, out=z)
        total = classes @ z
        value += float(block.weights @ (np.log(total) - label))
        z *= block.weights / total
        z[block.y, row] -= block.weights
        into.matrix[:] += z @ block.features[part].T
        z *= block.x
        into.diagonal[:] += z @ ones
        if len(into.shared):
            into.shared[:] += block.shared @ (classes @ z)
    return value, gradient


def losses_together(
    blocks: Sequence[FeatureBlock], thetas: Float[np.ndarray, "jobs parameters"], sizes: Sizes
) -> list[Losses]:
    """Compute the losses of several members (jobs, p), and gradients.

    All members use the first features; ``sizes`` has their number. With few rows, this is several
    times faster than :func:`losses` for one member after another.
    """
    jobs, (k, m, _, _) = len(thetas), sizes
    gradients = np.zeros_like(thetas)
    into, parameters = split(gradients, sizes), split(thetas, sizes)
    matrix = parameters.matrix.reshape(jobs * k, m)
    values = np.zeros(jobs)
    for block in blocks:
        row, features = np.arange(len(block.y)), block.features[:m]
        factor = (1 + parameters.diagonal)[:, :, None] + (parameters.shared @ block.shared)[:, None]
        z = (matrix @ features).reshape(jobs, k, -1) + factor * block.x
        z -= z.max(axis=1, keepdims=True)
        label = z[:, block.y, row]
        np.exp(z, out=z)
        total = z.sum(axis=1)
        values += (np.log(total) - label) @ block.weights
        z *= (block.weights / total)[:, None]
        z[:, block.y, row] -= block.weights
        into.matrix[:] += (z.reshape(jobs * k, -1) @ features.T).reshape(jobs, k, m)
        z *= block.x
        into.diagonal[:] += z.sum(axis=2)
        into.shared[:] += z.sum(axis=1) @ block.shared.T
    return list(zip(values.tolist(), gradients, strict=True))
