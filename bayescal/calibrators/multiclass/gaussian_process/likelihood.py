"""A Gaussian process of one variable as the calibration map of all logits."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import XArray, namespace
from bayescal._core.execution.chunks import slices
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.optimize import Minimum, QuadraticModel, newton_on_host
from bayescal._core.numerics import find_root, unit_of
from bayescal._core.shapes import Float, Int
from bayescal.calibrators.multiclass.scale import ScaleLoss, fit_inverse
from bayescal.data.rows import Rows
from bayescal.regression.binary.posterior import sample_whitened, triangle
from bayescal.regression.draws import Draws

#: Arrays by their axes.
NodeMatrix: TypeAlias = 'Float[np.ndarray, "nodes nodes"]'
PerNode: TypeAlias = 'Float[np.ndarray, " nodes"]'
RowsByClass: TypeAlias = 'Float[np.ndarray, "rows classes"]'
CellFactors: TypeAlias = 'Float[np.ndarray, "cells nodes nodes"]'


#: Number of nodes; the deviation from the identity is linear between them.
NODES = 25
#: Standard deviations and lengths (in nats) of the process, with evenly spaced logarithms.
AMPLITUDES, LENGTHS = (0.1, 0.3, 1.0), (0.5, 1.5, 4.5)
#: Prior standard deviations of the slope and of the logarithm of the inverse temperature.
SLOPE, LOG_SCALE = 1.0, 1.5
#: Relative increase of the variance of the process, for numerical stability.
_JITTER = 1e-6
#: Numbers in a block of rows, and bound of logarithms of inverse temperatures.
_BLOCK, _MAX_LOG = 1 << 15, 60.0
_TOLERANCE = 1e-10


class FittedProcesses(NamedTuple):
    """Processes fitted for each pair of amplitude and length (c, 2)."""

    scales: Float[np.ndarray, "cells 2"]
    #: Posterior weights (c,).
    weights: Float[np.ndarray, " cells"]
    #: Most probable deviations (c, 25) at the nodes, and factors F (c, 25, 25): F F' is their
    #: covariance by Laplace's approximation.
    modes: Float[np.ndarray, "cells nodes"]
    factors: CellFactors
    #: Log evidence of the mixture with equal prior probabilities.
    log_evidence: float
    iterations: int
    status: int


def best_inverse(
    logits: RowsByClass, y: Int[np.ndarray, " rows"], weights: Float[np.ndarray, " rows"]
) -> float:
    """Compute the most probable inverse temperature s, where log s ~ N(0, 1.5**2).

    Logits that differ by more than 1e6, or all by less than 1e-6, are first scaled to about one.
    """
    logits = logits - logits.max(axis=1, keepdims=True)
    rows = Rows(logits, y, weights)
    unit = unit_of(rows.largest, 1e6)
    rows = rows.divided(unit)
    loss = ScaleLoss(rows)

    def slope(u: float) -> float:
        s = float(np.exp(u))
        return s * loss(s)[1] + u / LOG_SCALE**2

    # The mode is between those of the prior and of the likelihood.
    with np.errstate(all="ignore"):
        end = float(np.clip(np.log(fit_inverse(rows).x), -_MAX_LOG, _MAX_LOG))
        low, high = min(end, 0.0), max(end, 0.0)
        inside = slope(low) < 0 < slope(high)
        u = find_root(slope, low, high, xtol=1e-10) if inside else end
        return float(np.exp(u)) / unit


def place_nodes(smoothing: float, k: int) -> PerNode:
    """Return evenly spaced nodes (25,) for log probabilities of at least log(e / k)."""
    return np.linspace(np.log(smoothing / k), 0.0, NODES)


def hats(nodes: XArray, x: XArray) -> XArray:
    """Compute the piecewise linear basis functions (..., 25) of the nodes at x (...)."""
    xp = namespace(x)
    step = nodes[1] - nodes[0]
    clipped = xp.clip(x, nodes[0], nodes[-1])[..., None]
    return xp.clip(1 - xp.abs(clipped - nodes) / step, 0.0, 1.0)


def factorize(nodes: PerNode, amplitude: float, length: float) -> NodeMatrix:
    """Compute a factor A (25, 25) of the prior covariance A A' of deviations at the nodes."""
    distance = (nodes[:, None] - nodes) / length
    kernel = np.exp(-(distance**2) / 2) + _JITTER * np.eye(NODES)
    return np.linalg.cholesky(amplitude**2 * kernel + SLOPE**2 * np.outer(nodes, nodes))


class Likelihood:
    """The negative log likelihood of deviations h (25,) at the nodes, in blocks of rows."""

    def __init__(self, nodes: np.ndarray, rows: Rows) -> None:
        self.nodes, self.weight = nodes, float(rows.weights.sum())
        n, k = rows.scores.shape
        self._parts = [rows.take(part) for part in slices(n, max(1, _BLOCK // max(k, NODES)))]

    def __call__(self, h: PerNode) -> QuadraticModel[np.ndarray]:
        """Compute the value, the gradient (25,) and the Hessian (25, 25)."""
        value, gradient, hessian = 0.0, np.zeros(NODES), np.zeros((NODES, NODES))
        for part in self._parts:
            terms = self._terms(h, part)
            value, gradient, hessian = (value + terms[0], gradient + terms[1], hessian + terms[2])
        return QuadraticModel(np.asarray(value), gradient, hessian)

    def _terms(self, h: PerNode, rows: Rows) -> tuple[float, PerNode, NodeMatrix]:
        x, y, weights = rows
        node, part = locate(self.nodes, x)
        row = np.arange(len(y))
        logits = x + h[node] + part * np.diff(h)[node]
        logits -= logits.max(axis=1, keepdims=True)
        label = logits[row, y]
        probs = np.exp(logits, out=logits)
        total = probs.sum(axis=1, keepdims=True)
        value = float(weights @ (np.log(total[:, 0]) - label))
        probs /= total

        def sum_at_nodes(
            index: np.ndarray, lower: np.ndarray, upper: np.ndarray, m: int
        ) -> np.ndarray:
            sums = np.bincount(index, lower, m)
            sums[1:] += np.bincount(index, upper, m)[:-1]
            return sums

        # Means of the basis functions of rows (n, 25); two of them are not zero at a logit.
        upper_part = probs * part
        cells = (row[:, None] * NODES + node).ravel()
        mean = sum_at_nodes(cells, (probs - upper_part).ravel(), upper_part.ravel(), len(y) * NODES)
        mean = mean.reshape(-1, NODES)
        label_node, label_part = node[row, y], part[row, y]
        gradient = weights @ mean - sum_at_nodes(
            label_node, weights * (1 - label_part), weights * label_part, NODES
        )
        index = node.ravel()
        upper_part, probs = upper_part * weights[:, None], probs * weights[:, None]
        square = upper_part * part
        across = np.bincount(index, (upper_part - square).ravel(), NODES)[:-1]
        lower = (probs - 2 * upper_part + square).ravel()
        diagonal = sum_at_nodes(index, lower, square.ravel(), NODES)
        hessian = np.diag(diagonal) + np.diag(across, 1) + np.diag(across, -1)
        return value, gradient, hessian - (mean * weights[:, None]).T @ mean


def locate(nodes: PerNode, x: RowsByClass) -> tuple[Int[np.ndarray, "rows classes"], RowsByClass]:
    """Return the index of the last node before x, and the fraction of the way to the next."""
    along = np.clip((x - nodes[0]) / (nodes[1] - nodes[0]), 0, NODES - 1)
    node = np.minimum(along.astype(np.intp), NODES - 2)
    return node, along - node


def fit_cells(likelihood: Likelihood) -> FittedProcesses:
    """Fit the process for each pair of amplitude and length."""
    scales = list(product(AMPLITUDES, LENGTHS))
    center, expansion = np.zeros(NODES), likelihood(np.zeros(NODES))
    minima, parts = [], []
    for amplitude, length in scales:
        a = factorize(likelihood.nodes, amplitude, length)
        mode, posterior, expansion = _fit(likelihood, a, center, expansion)
        center = a @ mode.x
        # No eigenvalue is below one, but huge weights leave nothing of the unit matrix.
        log_det = np.log(np.maximum(np.linalg.eigvalsh(posterior.hessian), 1)).sum()
        log_evidence = -posterior.value - log_det / 2
        parts.append((center, a @ triangle(posterior.hessian), log_evidence))
        minima.append(mode)
    modes, factors, evidence = (np.stack(part) for part in zip(*parts, strict=True))
    weights = np.exp(evidence - evidence.max())
    log_evidence = float(evidence.max() + np.log(weights.mean()))
    iterations, status = (max(int(minimum[i]) for minimum in minima) for i in (3, 4))
    weights /= weights.sum()
    return FittedProcesses(
        np.array(scales), weights, modes, factors, log_evidence, iterations, status
    )


def _fit(
    likelihood: Likelihood, a: NodeMatrix, center: PerNode, expansion: QuadraticModel[np.ndarray]
) -> tuple[Minimum[np.ndarray], QuadraticModel[np.ndarray], QuadraticModel[np.ndarray]]:
    """Find the mode of v, where h = A v and v ~ N(0, 1).

    The search starts from deviations ``center``, where ``expansion`` approximates the likelihood.
    Returns the minimum, and the posterior and the likelihood at the mode.
    """
    eye = np.eye(NODES)

    def whiten(point: QuadraticModel[np.ndarray], v: PerNode) -> QuadraticModel[np.ndarray]:
        value = point.value + v @ v / 2
        return QuadraticModel(value, a.T @ point.gradient + v, a.T @ point.hessian @ a + eye)

    linear = expansion.hessian @ center - expansion.gradient
    mode = newton_on_host(
        lambda v: whiten(likelihood(a @ v), v),
        # Huge weights leave nothing of the unit matrix.
        np.linalg.lstsq(a.T @ expansion.hessian @ a + eye, a.T @ linear)[0],
        scale=likelihood.weight,
        bound=1 + likelihood.weight * np.ptp(a, axis=0) ** 2 / 4,
        tolerance=_TOLERANCE,
        foresee=True,
    )
    at_mode = likelihood(a @ mode.x)
    return mode, whiten(at_mode, mode.x), at_mode


def draw(cells: FittedProcesses, num_samples: int, seed: int) -> Float[np.ndarray, "draws nodes"]:
    """Draw deviations (num_samples, 25), in pairs on both sides of the mode of a cell.

    The number of draws from a cell is proportional to its weight.
    """
    half = -(-num_samples // 2)
    noise = np.random.default_rng(seed).normal(size=(half, NODES))
    total = np.cumsum(cells.weights)
    cell = np.searchsorted(total, (np.arange(half) + 0.5) / half * total[-1])
    deviation = _multiply(cells.factors, cell, noise)
    return np.concatenate([cells.modes[cell] + deviation, cells.modes[cell] - deviation])[
        :num_samples
    ]


def sample_nuts(
    nodes: np.ndarray, rows: Rows, cells: FittedProcesses, num_samples: int, seed: int
) -> Draws:
    """Draw deviations by the no-U-turn sampler: first v, then the cell given v."""
    x, y, weights = rows
    a = np.stack([factorize(nodes, *scales) for scales in cells.scales])
    best = int(np.argmax(cells.weights))
    mode, factor = (
        np.linalg.solve(a[best], right) for right in (cells.modes[best], cells.factors[best])
    )
    data = x, *locate(nodes, x), y, weights, a
    drawn = sample_whitened(_loss, data, mode, factor, num_samples, seed, cells.status)
    v = drawn.coefficients
    with float64():
        losses = np.asarray(_losses_of_all(v.reshape(-1, NODES), *data))
    losses = losses - losses.min(axis=1, keepdims=True)
    total = np.cumsum(np.exp(-losses), axis=1)
    level = np.random.default_rng(seed).random((len(total), 1)) * total[:, -1:]
    cell = np.sum(total < level, axis=1)
    h = _multiply(a, cell, v.reshape(-1, NODES))
    return drawn._replace(coefficients=h.reshape(v.shape))


def _multiply(
    factors: CellFactors, cell: Int[np.ndarray, " draws"], values: Float[np.ndarray, "draws nodes"]
) -> Float[np.ndarray, "draws nodes"]:
    """Multiply values (s, 25) by the factors of their cells (s,)."""
    products = np.empty_like(values)
    for index, factor in enumerate(factors):
        products[cell == index] = values[cell == index] @ factor.T
    return products


def _losses(
    v: Float[jax.Array, " nodes"],
    x: Float[jax.Array, "rows classes"],
    node: Int[jax.Array, "rows classes"],
    part: Float[jax.Array, "rows classes"],
    y: Int[jax.Array, " rows"],
    weights: Float[jax.Array, " rows"],
    a: Float[jax.Array, "cells nodes nodes"],
) -> Float[jax.Array, " cells"]:
    """Compute the negative log likelihoods (c,) of h = A v in each cell."""
    h = a @ v
    logits = x + h[:, node] + part * jnp.diff(h)[:, node]
    label = jnp.take_along_axis(logits, y[None, :, None], axis=2)[:, :, 0]
    return (jax.nn.logsumexp(logits, axis=2) - label) @ weights


def _loss(v: Float[jax.Array, " nodes"], *data: jax.Array) -> Float[jax.Array, ""]:
    """Compute the negative log posterior of v (25,), summed over cells, up to a constant."""
    return v @ v / 2 - jax.nn.logsumexp(-_losses(v, *data))


@jax.jit
def _losses_of_all(
    v: Float[jax.Array, "draws nodes"], *data: jax.Array
) -> Float[jax.Array, "draws cells"]:
    """Compute the negative log likelihoods (s, c) of draws (s, 25) in each cell."""
    return jax.lax.map(lambda draw: _losses(draw, *data), v)
