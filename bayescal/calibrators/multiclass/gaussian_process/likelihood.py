"""A Gaussian process of one variable, through which the logits of all classes pass."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import namespace
from bayescal._core.chunks import slices
from bayescal._core.numerics import unit_of
from bayescal._core.optimise import Minimum, Quadratic, newton
from bayescal._core.precision import float64
from bayescal.calibrators.multiclass.scale import ScaleLoss, fit_inverse
from bayescal.data.rows import Rows
from bayescal.regression.binary.posterior import sample_whitened, triangle
from bayescal.regression.draws import Draws

#: Where the deviation from the identity is a parameter; between them it is straight.
NODES = 25
#: Standard deviations, and lengths in nats, of the process: logarithms are evenly spaced.
AMPLITUDES, LENGTHS = (0.1, 0.3, 1.0), (0.5, 1.5, 4.5)
#: Standard deviations of the slope, and of the logarithm of the inverse temperature.
SLOPE, LOG_SCALE = 1.0, 1.5
#: Of the process: its variance is raised by this share.
_JITTER = 1e-6
#: Numbers in a block of rows, and the range of logarithms of inverse temperatures.
_BLOCK, _LOGS = 1 << 15, 60.0
_TOLERANCE = 1e-10


class Cells(NamedTuple):
    """Processes fitted with each amplitude and length (c, 2)."""

    scales: np.ndarray
    #: Posterior weights (c,).
    weights: np.ndarray
    #: Most probable deviations (c, 25) at the nodes, and factors F (c, 25, 25): F F' is their
    #: covariance by Laplace's approximation.
    modes: np.ndarray
    factors: np.ndarray
    #: Of all, which are equally probable before.
    log_evidence: float
    iterations: int
    status: int


def best_inverse(logits: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Return the most probable inverse temperature s, where log s ~ N(0, 1.5**2).

    Of logits that differ by more than 1e6, or all by less than 1e-6, it is that of logits of the
    size of one.
    """
    from scipy.optimize import brentq

    logits = logits - logits.max(axis=1, keepdims=True)
    rows = Rows(logits, y, weights)
    unit = unit_of(rows.largest, 1e6)
    rows = rows.divided(unit)
    loss = ScaleLoss(rows)

    def slope(u: float) -> float:
        s = float(np.exp(u))
        return s * loss(s)[1] + u / LOG_SCALE**2

    # Between the prior's mode and the likelihood's.
    with np.errstate(all="ignore"):
        end = float(np.clip(np.log(fit_inverse(rows).x), -_LOGS, _LOGS))
        low, high = min(end, 0.0), max(end, 0.0)
        inside = slope(low) < 0 < slope(high)
        u: Any = brentq(slope, low, high, xtol=1e-10) if inside else end
        return float(np.exp(u)) / unit


def place_nodes(smoothing: float, k: int) -> np.ndarray:
    """Return nodes (25,), evenly spaced, for log probabilities that are at least log(e / k)."""
    return np.linspace(np.log(smoothing / k), 0.0, NODES)


def hats(nodes: Any, x: Any) -> Any:
    """Return what deviations at the nodes are multiplied by (..., 25) at x (...)."""
    xp = namespace(x)
    step = nodes[1] - nodes[0]
    held = xp.clip(x, nodes[0], nodes[-1])[..., None]
    return xp.clip(1 - xp.abs(held - nodes) / step, 0.0, 1.0)


def factorize(nodes: np.ndarray, amplitude: float, length: float) -> np.ndarray:
    """Return a factor A (25, 25): the prior's covariance of deviations at the nodes is A A'."""
    apart = (nodes[:, None] - nodes) / length
    kernel = np.exp(-(apart**2) / 2) + _JITTER * np.eye(NODES)
    return np.linalg.cholesky(amplitude**2 * kernel + SLOPE**2 * np.outer(nodes, nodes))


class Likelihood:
    """The negative log likelihood of deviations h (25,) at the nodes, in blocks of rows."""

    def __init__(self, nodes: np.ndarray, rows: Rows) -> None:
        self.nodes, self.weight = nodes, float(rows.weights.sum())
        n, k = rows.scores.shape
        self._parts = [rows.take(part) for part in slices(n, max(1, _BLOCK // max(k, NODES)))]

    def __call__(self, h: np.ndarray) -> Quadratic[np.ndarray]:
        """Return it with its gradient (25,) and Hessian (25, 25)."""
        value, gradient, hessian = 0.0, np.zeros(NODES), np.zeros((NODES, NODES))
        for part in self._parts:
            own = self._add(h, part)
            value, gradient, hessian = value + own[0], gradient + own[1], hessian + own[2]
        return Quadratic(np.asarray(value), gradient, hessian)

    def _add(self, h: np.ndarray, rows: Rows) -> tuple[float, np.ndarray, np.ndarray]:
        x, y, weights = rows
        place, part = locate(self.nodes, x)
        at = np.arange(len(y))
        logits = x + h[place] + part * np.diff(h)[place]
        logits -= logits.max(axis=1, keepdims=True)
        own = logits[at, y]
        probs = np.exp(logits, out=logits)
        total = probs.sum(axis=1, keepdims=True)
        value = float(weights @ (np.log(total[:, 0]) - own))
        probs /= total

        def gather(where: np.ndarray, lower: np.ndarray, upper: np.ndarray, m: int) -> np.ndarray:
            both = np.bincount(where, lower, m)
            both[1:] += np.bincount(where, upper, m)[:-1]
            return both

        # The mean of each row's hats (n, 25), which differ from zero at two nodes.
        share = probs * part
        cells = (at[:, None] * NODES + place).ravel()
        mean = gather(cells, (probs - share).ravel(), share.ravel(), len(y) * NODES)
        mean = mean.reshape(-1, NODES)
        one, rest = place[at, y], part[at, y]
        gradient = weights @ mean - gather(one, weights * (1 - rest), weights * rest, NODES)
        where, share, probs = place.ravel(), share * weights[:, None], probs * weights[:, None]
        square = share * part
        across = np.bincount(where, (share - square).ravel(), NODES)[:-1]
        lower = (probs - 2 * share + square).ravel()
        diagonal = gather(where, lower, square.ravel(), NODES)
        hessian = np.diag(diagonal) + np.diag(across, 1) + np.diag(across, -1)
        return value, gradient, hessian - (mean * weights[:, None]).T @ mean


def locate(nodes: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the last node before x, and how far x is on the way to the next."""
    along = np.clip((x - nodes[0]) / (nodes[1] - nodes[0]), 0, NODES - 1)
    place = np.minimum(along.astype(np.intp), NODES - 2)
    return place, along - place


def fit_cells(likelihood: Likelihood) -> Cells:
    """Fit the process with each amplitude and length."""
    scales = list(product(AMPLITUDES, LENGTHS))
    center, near = np.zeros(NODES), likelihood(np.zeros(NODES))
    found, parts = [], []
    for amplitude, length in scales:
        a = factorize(likelihood.nodes, amplitude, length)
        mode, here, near = _fit(likelihood, a, center, near)
        center = a @ mode.x
        log_evidence = -here.value - np.linalg.slogdet(here.hessian)[1] / 2
        parts.append((center, a @ triangle(here.hessian), log_evidence))
        found.append(mode)
    modes, factors, evidence = (np.stack(own) for own in zip(*parts, strict=True))
    share = np.exp(evidence - evidence.max())
    log_evidence = float(evidence.max() + np.log(share.mean()))
    iterations, status = (max(int(own[i]) for own in found) for i in (3, 4))
    share /= share.sum()
    return Cells(np.array(scales), share, modes, factors, log_evidence, iterations, status)


def _fit(
    likelihood: Likelihood, a: np.ndarray, center: np.ndarray, near: Quadratic[np.ndarray]
) -> tuple[Minimum[np.ndarray], Quadratic[np.ndarray], Quadratic[np.ndarray]]:
    """Return the mode of v, where h = A v, v ~ N(0, 1), the posterior there and the likelihood.

    It starts from deviations nearby, by what the likelihood is there.
    """
    eye = np.eye(NODES)

    def whiten(point: Quadratic[np.ndarray], v: np.ndarray) -> Quadratic[np.ndarray]:
        value = point.value + v @ v / 2
        return Quadratic(value, a.T @ point.gradient + v, a.T @ point.hessian @ a + eye)

    away = near.hessian @ center - near.gradient
    mode = newton(
        lambda v: whiten(likelihood(a @ v), v),
        np.linalg.solve(a.T @ near.hessian @ a + eye, a.T @ away),
        scale=likelihood.weight,
        bound=1 + likelihood.weight * np.ptp(a, axis=0) ** 2 / 4,
        tolerance=_TOLERANCE,
        foresee=True,
        xp=np,
    )
    there = likelihood(a @ mode.x)
    return mode, whiten(there, mode.x), there


def draw(cells: Cells, num_samples: int, seed: int) -> np.ndarray:
    """Return draws (num_samples, 25) of deviations, in pairs on both sides of a cell's mode.

    Each cell has its share of them.
    """
    half = -(-num_samples // 2)
    noise = np.random.default_rng(seed).normal(size=(half, NODES))
    total = np.cumsum(cells.weights)
    own = np.searchsorted(total, (np.arange(half) + 0.5) / half * total[-1])
    apart = _each(cells.factors, own, noise)
    return np.concatenate([cells.modes[own] + apart, cells.modes[own] - apart])[:num_samples]


def sample_nuts(nodes: np.ndarray, rows: Rows, cells: Cells, num_samples: int, seed: int) -> Draws:
    """Return draws of deviations by the no-U-turn sampler, of v and then of the cell given v."""
    x, y, weights = rows
    a = np.stack([factorize(nodes, *scales) for scales in cells.scales])
    best = int(np.argmax(cells.weights))
    mode, factor = (
        np.linalg.solve(a[best], own) for own in (cells.modes[best], cells.factors[best])
    )
    given = x, *locate(nodes, x), y, weights, a
    drawn = sample_whitened(_loss, given, mode, factor, num_samples, seed, cells.status)
    v = drawn.coefficients
    with float64():
        losses = np.asarray(_losses_of_all(v.reshape(-1, NODES), *given))
    losses = losses - losses.min(axis=1, keepdims=True)
    total = np.cumsum(np.exp(-losses), axis=1)
    place = np.random.default_rng(seed).random((len(total), 1)) * total[:, -1:]
    own = np.sum(total < place, axis=1)
    h = _each(a, own, v.reshape(-1, NODES))
    return drawn._replace(coefficients=h.reshape(v.shape))


def _each(factors: np.ndarray, own: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the product of the cell's factor, whose number is ``own`` (s,), and values (s, 25)."""
    found = np.empty_like(values)
    for cell, factor in enumerate(factors):
        found[own == cell] = values[own == cell] @ factor.T
    return found


def _losses(
    v: jax.Array,
    x: jax.Array,
    place: jax.Array,
    part: jax.Array,
    y: jax.Array,
    weights: jax.Array,
    a: jax.Array,
) -> jax.Array:
    """Return the negative log likelihoods (c,) of h = A v in each cell."""
    h = a @ v
    logits = x + h[:, place] + part * jnp.diff(h)[:, place]
    own = jnp.take_along_axis(logits, y[None, :, None], axis=2)[:, :, 0]
    return (jax.nn.logsumexp(logits, axis=2) - own) @ weights


def _loss(v: jax.Array, *given: jax.Array) -> jax.Array:
    """Return the negative log posterior of v (25,), whatever the cell, up to a constant."""
    return v @ v / 2 - jax.nn.logsumexp(-_losses(v, *given))


@jax.jit
def _losses_of_all(v: jax.Array, *given: jax.Array) -> jax.Array:
    """Return them (s, c) for each of the draws (s, 25)."""
    return jax.lax.map(lambda one: _losses(one, *given), v)
