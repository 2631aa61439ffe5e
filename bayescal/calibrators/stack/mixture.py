"""Mixtures of predictions: optimal weights, and the posterior of a mixture with a scaled part."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bayescal._core.arrays import AnyModel, Array, XArray, matmul, namespace, on_host
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.optimize import Search, run_together
from bayescal._core.numerics import log_softmax, softmax
from bayescal._core.shapes import Float, Int
from bayescal.calibrators.multiclass.scale import LOG_SCALE, differences
from bayescal.regression.binary.posterior import sample_whitened, triangle
from bayescal.regression.draws import Draws, density_type, tempered_draws
from bayescal.regression.model import Values
from bayescal.regression.numpyro_models import Model, as_model

if TYPE_CHECKING:
    from numpyro.distributions import Distribution

_ITERATIONS = 100
#: Prior weight of each mixture weight, in rows: that of Dirichlet(2).
_PRIOR = 1.0
_MIX_STEPS = 50
#: Smallest number whose inverse has a finite square.
_TINY = 1e-100
_RIDGE = 1e-9
_STEP = 1e-4


def best_mixture(
    parts: Float[np.ndarray, "rows parts"], weights: Float[np.ndarray, " rows"]
) -> tuple[Float[np.ndarray, " parts"], float]:
    """Find weights (q,) of predictions that minimize the log loss of their mixture, and the loss.

    ``parts`` (n, q) are the probabilities of the observed labels under each prediction.

    Minimizes -sum(weights log(parts @ s)) + sum(weights) sum(s) over s >= 0, whose solution sums to
    one, by sequential quadratic programs: each is a small problem of non-negative least squares. If
    there are several solutions, for example for equal predictions, one is returned. O(n q^2) for
    each of few iterations.
    """
    from scipy.optimize import nnls

    parts = np.maximum(parts, _TINY)
    q = parts.shape[1]
    total = weights.sum()
    shares = np.full(q, 1 / q)
    root = np.sqrt(weights)

    def loss(at: np.ndarray) -> float:
        mixed = np.maximum(parts @ at, _TINY)
        return float(total * at.sum() - weights @ np.log(mixed))

    value = loss(shares)
    for _ in range(_ITERATIONS):
        scaled = parts * (root / np.maximum(parts @ shares, _TINY))[:, None]
        gram, linear = scaled.T @ scaled, 2 * (scaled.T @ root) - total
        diagonal = np.diagonal(gram)
        size = np.sqrt(np.maximum(diagonal, 1e-8 * diagonal.max()))
        # A small ridge, because predictions may be equal: steps along directions without curvature
        # are then long, and end at a weight of zero.
        scaled_gram = gram / size / size[:, None] + _RIDGE * np.eye(q)
        lower = np.linalg.cholesky(scaled_gram)
        target = nnls(lower.T, np.linalg.solve(lower, linear / size + _RIDGE * size * shares))[0]
        target = target / size
        step = target - shares
        slope = float((total - scaled.T @ root) @ step)
        if -slope <= 1e-13 * total:
            break
        length, best = 1.0, value
        while length > 1e-10:
            best = loss(shares + length * step)
            if best <= value + 1e-4 * length * slope:
                break
            length /= 2
        else:
            break
        shares, value = shares + length * step, best
    shares = shares / shares.sum()
    return shares, loss(shares) - total


def log_mean(logs: Array, share: XArray) -> XArray:
    """Compute log(exp(logs) @ share) (n,) of logs (n, q)."""
    xp, top = namespace(logs), logs.max(axis=1)
    return top + xp.log(matmul(xp.exp(logs - top[:, None]), share))


def mix(
    held: XArray,
    weights: Float[np.ndarray, " rows"],
    start: Float[np.ndarray, " members"] | None = None,
) -> Float[np.ndarray, " members"]:
    """Find weights (q,) of a mixture of log probabilities (n, q) of the labels.

    They maximize the likelihood of rows of weight (n,) with the prior Dirichlet(2).
    """
    if on_host(held):
        parts, terms = _parts(held), partial(mix_terms, weights)
    else:
        parts, terms = _parts_there(held), partial(_mix_terms_there, jnp.asarray(weights))
    count = parts.shape[1]
    search = climb(np.full(count, 1 / count) if start is None else start, float(weights.sum()))
    return run_together({0: search}, lambda at: {0: [*map(np.asarray, terms(parts, at[0]))]})[0]


def climb(share: np.ndarray, weight: float, small: float = 1e-16) -> Search:
    """Find weights of a mixture for rows of a total weight, by Newton steps from initial weights.

    The generator yields weights and receives the results of :func:`mix_terms`. The sum of the
    weights is a separate term of the objective instead of a constraint, because the likelihood does
    not depend on their scale. The last step was expected to gain less than ``small``.
    """
    total = weight + _PRIOR * len(share)
    here, value, step, length = share, np.inf, np.zeros_like(share), 1.0
    for _ in range(_MIX_STEPS):
        likelihood, pull, gram = yield share
        next_value = total * share.sum() - likelihood - _PRIOR * np.log(share).sum()
        if next_value > value + 1e-12 * abs(value):
            length /= 4
            share = here + length * step
            continue
        here, value = share, next_value
        slope = total - pull - _PRIOR / share
        # If members agree, and the prior is negligible beside huge weights, the step is undefined.
        hessian = gram + np.diag(_PRIOR / share**2 + 1e-14 * total)
        step = -np.linalg.solve(hessian, slope)
        # No weight becomes negative.
        length = min(1.0, 0.9 / max(float((-step / share).max()), 1e-300))
        share = here + length * step
        if length == 1 and -slope @ step < small:
            break
    return share / share.sum()


def _parts(held: Array) -> AnyModel:
    """Compute probabilities (n, members) divided by the largest of their row."""
    xp = namespace(held)
    return xp.exp(held - held.max(axis=1, keepdims=True))


def mix_terms(weights: XArray, parts: XArray, share: XArray) -> tuple[float, XArray, XArray]:
    """Compute the log likelihood of a mixture, its gradient (q,), and minus its Hessian (q, q)."""
    mixed = matmul(parts, share)
    ratio = parts / mixed[:, None]
    weighted = ratio * weights[:, None]
    likelihood = weights @ namespace(parts).log(mixed)
    return likelihood, weighted.sum(axis=0), matmul(weighted.T, ratio)


_parts_there = jax.jit(_parts)
_mix_terms_there = jax.jit(mix_terms)
_log_mean_there = jax.jit(log_mean)


def cross_fitted_losses(
    held: XArray,
    folds: Int[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
    start: Float[np.ndarray, " members"],
) -> Float[np.ndarray, " rows"]:
    """Compute the log loss (n,) of each row by a mixture fitted without its fold."""
    losses = np.empty(len(held))
    for fold in range(folds.max() + 1):
        out = folds == fold
        if on_host(held):
            losses[out] = -log_mean(held[out], mix(held[~out], weights[~out], start))
        else:
            share = mix(held, np.where(out, 0, weights), start)
            losses[out] = -np.asarray(_log_mean_there(held, share))[out]
    return losses


def sample_mixture(
    logits: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    start: tuple[float, np.ndarray],
    inference: str,
    num_samples: int,
    seed: int,
) -> Draws:
    """Draw the inverse temperature s and the three mixture weights (chains, draws, 4).

    The prior is log s ~ N(0, 1.5**2), and uniform for the weights. The coordinates are log s and
    two logarithms of ratios of weights. ``start`` is an inverse temperature and weights (3,) that
    fit the logits (n, k) well.
    """
    from scipy.optimize import minimize

    rows = np.arange(len(y))
    below = differences(logits)
    same = np.exp(log_softmax(below)[rows, y])
    data = (below, below[rows, y], same, np.asarray(weights, float))

    shares = np.maximum(start[1], 0.01)
    # A scale other than 1, at which the first two parts would be equal.
    first = np.clip(np.log(max(start[0], 1e-4)), -3, 3) or 0.1
    begin = np.array([first, *np.log(shares[:2] / shares[2])])
    # Normalize by the total weight, because the line search fails for huge numbers.
    scale = max(1.0, float(data[3].sum()))
    options = {"gtol": max(1e-5 / scale, 1e-12)}
    optimum = minimize(
        lambda u: tuple(part / scale for part in _loss(u, *data)),
        begin,
        jac=True,
        method="BFGS",
        options=options,
    )
    mode = optimum.x
    ends = [_loss(mode + sign * step, *data)[1] for step in _STEP * np.eye(3) for sign in (1, -1)]
    hessian = (np.stack(ends[::2]) - np.stack(ends[1::2])) / (2 * _STEP)
    factor = triangle((hessian + hessian.T) / 2)
    if inference == "laplace":
        # Single precision suffices for probabilities, unless the weights are large.
        dtype = density_type(data[3].sum())
        narrow, same = np.maximum(below, -1e30).astype(dtype), same.astype(dtype)
        label_logs, ones = narrow[rows, y], np.ones(below.shape[1], dtype)

        def log_density(u: Float[np.ndarray, "draws 3"]) -> Float[np.ndarray, " draws"]:
            theta = _constrain(u)
            s, scaled, rest, uniform = theta.T[:, :, None].astype(dtype)
            total = np.exp(s[:, :, None] * narrow) @ ones
            mixed = scaled * (np.exp(s * label_logs) / total) + rest * same + uniform / len(ones)
            prior = np.log(theta[:, 1:]).sum(axis=1) - 0.5 * (u[:, 0] / LOG_SCALE) ** 2
            return np.log(mixed) @ data[3] + prior

        drawn = tempered_draws(
            log_density, below.size, mode, factor, num_samples, seed, weight=float(data[3].sum())
        )
    else:
        drawn = sample_whitened(_compiled_loss, data, mode, factor, num_samples, seed)
    return drawn._replace(coefficients=_constrain(drawn.coefficients))


def mixture_model(
    logits: Float[np.ndarray, "rows classes"],
    y: Int[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
) -> Model:
    """Make the NumPyro model that :func:`sample_mixture` samples."""
    import numpyro.distributions as dist

    below = differences(logits)
    label_logs = below[np.arange(len(y)), y]
    same = label_logs - np.log(np.exp(below).sum(axis=1))

    def loss(values: Values) -> jax.Array:
        s, shares = values["inverse_temperature"], values["mixture"]
        scaled = s * jnp.asarray(label_logs) - jax.nn.logsumexp(s * jnp.asarray(below), axis=1)
        uniform = jnp.full_like(scaled, -np.log(below.shape[1]))
        parts = jnp.stack([scaled, jnp.asarray(same), uniform], axis=1) + jnp.log(shares)
        return -(jnp.asarray(weights) @ jax.nn.logsumexp(parts, axis=1))

    def make_laws() -> dict[str, Distribution]:
        temperature = dist.LogNormal(0.0, LOG_SCALE)
        return {"inverse_temperature": temperature, "mixture": dist.Dirichlet(jnp.ones(3))}

    return as_model(make_laws, loss, lambda v: {"temperature": 1 / v["inverse_temperature"]})


def _constrain(u: Float[np.ndarray, "*draws 3"]) -> Float[np.ndarray, "*draws 4"]:
    """Compute inverse temperature and mixture weights (..., 4) at coordinates (..., 3)."""
    ratios = np.concatenate([u[..., 1:], np.zeros_like(u[..., :1])], axis=-1)
    return np.concatenate([np.exp(u[..., :1]), softmax(ratios)], axis=-1)


def _loss(
    u: Float[np.ndarray, " 3"],
    below: Float[np.ndarray, "rows classes"],
    label_logs: Float[np.ndarray, " rows"],
    same: Float[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
) -> tuple[float, Float[np.ndarray, " 3"]]:
    """Compute the negative log posterior in these coordinates, and its gradient (3,)."""
    s, shares = np.split(_constrain(u), [1])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        small = np.exp(s * below)
        total = small.sum(axis=1)
        scaled = np.exp(s * label_logs) / total
        mean = np.einsum("ij,ij->i", small, below) / total
    parts = np.stack([scaled, same, np.full_like(same, 1 / below.shape[1])])
    mixed = shares @ parts
    value = -weights @ np.log(mixed) - np.log(shares).sum() + 0.5 * (u[0] / LOG_SCALE) ** 2
    pull = weights / mixed
    by_scale = -s * shares[0] * (pull @ (scaled * (label_logs - mean))) + u[0] / LOG_SCALE**2
    # Derivatives by the weights, then by the ratios through the softmax; the prior adds 3 w - 1.
    by_share = -(parts @ pull)
    by_ratio = shares * (by_share - shares @ by_share) + 3 * shares - 1
    return float(value), np.concatenate([by_scale, by_ratio[:2]])


def _compiled_loss(
    u: Float[jax.Array, " 3"],
    below: Float[jax.Array, "rows classes"],
    label_logs: Float[jax.Array, " rows"],
    same: Float[jax.Array, " rows"],
    weights: Float[jax.Array, " rows"],
) -> Float[jax.Array, ""]:
    """Compute the value of :func:`_loss` with JAX."""
    s = jnp.exp(u[0])
    logs = jax.nn.log_softmax(jnp.concatenate([u[1:], jnp.zeros(1)]))
    scaled = s * label_logs - jax.nn.logsumexp(s * below, axis=1)
    uniform = jnp.full_like(scaled, -jnp.log(1.0 * below.shape[1]))
    parts = jnp.stack([scaled, jnp.log(same), uniform], axis=1) + logs
    loss = -weights @ jax.nn.logsumexp(parts, axis=1)
    return loss - jnp.sum(logs) + 0.5 * (u[0] / LOG_SCALE) ** 2
