"""Inverse temperature of a softmax: loss, fit, and draws from the posterior."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bayescal._core import numerics
from bayescal._core.arrays import Array, namespace, on_host
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.optimize import IntervalMinimum, Status, newton_on_interval
from bayescal._core.numerics import unit_of
from bayescal.data.rows import Rows, Source, Sums
from bayescal.regression.binary.posterior import sample_whitened
from bayescal.regression.draws import Draws, density_type, one_chain

#: Elements of a block; several arrays of this size fit in a processor's cache.
_BLOCK = 1 << 15
#: With more logits than this, all steps but the last use single precision, and the fit starts from
#: the optimum of a part of the rows of this size, with at least this number of rows.
_PART, _PART_ROWS = 1 << 14, 64
#: Prior scale of the logarithm of the inverse temperature; most lie between 1/20 and 20.
LOG_SCALE = 1.5
#: Differences of logits that stay finite if they are multiplied by usual scales.
differences = partial(numerics.differences, lowest=-1e100)


class CenteredLogits(NamedTuple):
    """Logits of rows minus the largest logit of the row, classes first (k, b)."""

    below: Array
    #: Logits of the labels (b,), and weights (b,).
    label: Array
    weights: Array
    #: Offsets (k, 1) that are added to logits after the multiplication, if any.
    offset: Array | None = None


#: Called with rows, the ``unit`` that logits are divided by, and whether precision is ``single``.
ColumnLayout: TypeAlias = Callable[..., CenteredLogits]


def columns_of_logits(rows: Rows, unit: float, single: bool) -> CenteredLogits:
    """Lay out rows with classes first, so that sums over classes are sums of long vectors."""
    logits, xp = rows.scores.T, namespace(rows.scores)
    logits = np.ascontiguousarray(logits) if on_host(logits) else logits
    below = logits / unit if unit != 1 else logits
    below = below - below.max(axis=0)
    label = below[rows.y, xp.arange(below.shape[1])].astype(float)
    return CenteredLogits(below.astype(np.float32 if single else float), label, rows.weights)


_LAYOUT = partial(columns_of_logits, unit=1.0)


class ScaleLoss:
    """The weighted cross-entropy of softmax(s * logits / unit), as a function of s.

    Many logits in memory are used in single precision unless ``single`` says otherwise; up to 16
    million are kept for later evaluations, if ``keep``.
    """

    def __init__(
        self,
        rows: Source,
        single: bool | None = None,
        keep: bool = True,
        layout: ColumnLayout = _LAYOUT,
    ) -> None:
        if single is None:
            single = isinstance(rows, Rows) and rows.scores.size > _PART
        self.single = single
        self.total = rows.weight
        self._designs = rows.designs(partial(layout, single=single), _BLOCK, keep)

    def __call__(self, s: float) -> tuple[float, float, float]:
        """Compute the loss and its first two derivatives at s."""
        sums = self._designs.total(_terms, s)
        return float(sums["value"]), float(sums["slope"]), float(sums["curvature"])


def _terms(s: float, columns: CenteredLogits) -> Sums:
    """Compute the loss of rows and its first two derivatives at s."""
    below, label, weights, offset = columns
    xp = namespace(below)
    small = xp.exp(below * s if offset is None else below * s + offset)
    total = small.sum(axis=0).astype(float)
    small *= below
    first = small.sum(axis=0) / total
    small *= below
    second = small.sum(axis=0) / total
    return {
        "value": weights @ (xp.log(total) - s * label),
        "slope": weights @ (first - label),
        "curvature": weights @ (second - first**2),
    }


def fit_inverse(
    rows: Source, layout: ColumnLayout = columns_of_logits, polish: bool = False
) -> IntervalMinimum:
    """Minimize the weighted sum of the cross-entropies of softmax(s * logits) over s >= 0.

    The last step is in double precision after a fit in single precision, or if ``polish``.
    """
    unit = unit_of(rows.largest, 1e6)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        layout = partial(layout, unit=unit)
        minimum = _minimize(rows, layout, 1.0 if unit == 1 else 0.0, polish=polish)
    return minimum._replace(x=minimum.x / unit)


def _minimize(
    rows: Source, layout: ColumnLayout, start: float, coarse: bool = False, polish: bool = False
) -> IntervalMinimum:
    """Minimize the loss; if there are many rows, start from the minimum of a part."""
    part = rows.part(_PART, _PART_ROWS)
    if part is not None:
        # A good start saves passes over blocks.
        start = _minimize(part, layout, start, coarse=isinstance(rows, Rows)).x
    loss = ScaleLoss(rows, layout=layout)
    minimum = newton_on_interval(loss, start, scale=loss.total)
    if coarse or minimum.status != Status.CONVERGED or not (loss.single or polish):
        return minimum
    value, slope, curvature = minimum[1:4]
    if loss.single:
        exact = ScaleLoss(rows, single=False, keep=False, layout=layout)
        value, slope, curvature = exact(minimum.x)
    step = slope / curvature if curvature > 0 else 0.0
    return minimum._replace(x=max(minimum.x - step, 0.0), value=value - slope * step / 2)


def named_inverse(minimum: IntervalMinimum, total: float) -> dict[str, np.ndarray]:
    """Return the state of a fit of the inverse temperature to rows of this total weight."""
    with np.errstate(divide="ignore"):
        temperature = 1 / np.asarray(minimum.x)
    return {
        "temperature": temperature,
        "theta": np.array([minimum.x]),
        "objective": np.asarray(minimum.value / total),
        "status": np.asarray(int(minimum.status)),
        "n_iter": np.asarray(minimum.iterations),
    }


def sample_inverse(
    rows: Rows, inverse: float, inference: str, num_samples: int, seed: int
) -> Draws:
    """Draw the inverse temperature s (chains, draws, 1), where log s ~ N(0, 1.5**2).

    ``inverse`` fits the rows best without the prior; the mode lies between it and one.
    """
    from scipy.optimize import minimize_scalar

    below, y, weights = rows = rows._replace(scores=differences(rows.scores))
    # In single precision rows have independent errors, whose sum grows with the norm of weights.
    exact = density_type(float(np.linalg.norm(weights))) is np.float64
    loss = ScaleLoss(rows, single=False if exact else None)

    def negative_log_posterior(u: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            value = loss(float(np.exp(u)))[0] + 0.5 * (u / LOG_SCALE) ** 2
        return value if np.isfinite(value) else np.inf

    # If zero fits best, the prior matters where the likelihood is flat.
    end = np.log(inverse) if inverse > 0 else -np.log(max(-below.min() * loss.total, 1.0))
    grid = np.arange(min(-10.0, end), max(10.0, end) + 0.5, 0.5)
    best = grid[int(np.argmin([negative_log_posterior(u) for u in grid]))]
    minimum: Any = minimize_scalar(
        negative_log_posterior,
        bounds=(best - 0.5, best + 0.5),
        method="bounded",
        options={"xatol": 1e-9},
    )
    u = float(minimum.x)
    s = float(np.exp(u))
    _, slope, curvature = loss(s)
    mode = np.array([u])
    factor = np.array([[(curvature * s**2 + slope * s + 1 / LOG_SCALE**2) ** -0.5]])
    if inference == "laplace":
        # The distribution function of one parameter is a sum over a grid.
        z = np.sinh(np.linspace(-4, 4, 65))
        log_density = -np.array([negative_log_posterior(v) for v in u + factor[0, 0] * z])
        density = np.exp(log_density - log_density.max())
        total = np.r_[0, np.cumsum(np.diff(z) * (density[1:] + density[:-1]))]
        rng = np.random.default_rng(seed)
        levels = (rng.permutation(num_samples) + rng.random(num_samples)) / num_samples
        draws = u + factor[0, 0] * np.interp(levels, total / total[-1], z)
        return one_chain(np.exp(draws)[:, None], int(Status.CONVERGED))
    label = below[np.arange(len(y)), y]
    data = below, label, np.asarray(weights, float)
    draws = sample_whitened(_loss, data, mode, factor, num_samples, seed)
    return draws._replace(coefficients=np.exp(draws.coefficients))


def _loss(u: jax.Array, below: jax.Array, label: jax.Array, weights: jax.Array) -> jax.Array:
    """Compute the negative log posterior of u = (log s,)."""
    s = jnp.exp(u[0])
    losses = jax.nn.logsumexp(s * below, axis=1) - s * label
    return weights @ losses + 0.5 * (u[0] / LOG_SCALE) ** 2
