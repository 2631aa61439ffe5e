"""Posteriors of softmax regressions: Laplace's approximation and NUTS."""

from __future__ import annotations

from functools import partial

import numpy as np

from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.newton_cg import conjugate_gradients
from bayescal._core.shapes import Float
from bayescal.regression.binary.posterior import sample_whitened, triangle
from bayescal.regression.draws import Draws, density_type, one_chain, tempered_draws
from bayescal.regression.model import Sites, potential, softmax_sites
from bayescal.regression.softmax.fit import MAX_PRODUCTS, Prepared, fit_on_host
from bayescal.regression.softmax.objective import (
    Design,
    HostEvaluator,
    evaluate,
    logit_update,
    logit_vjp,
)
from bayescal.regression.softmax.precondition import WHOLE

#: Number of parameters above which the whole Hessian takes too much time and memory.
MAX_PARAMETERS = 3000
#: Numbers in all draws.
_MAX_NUMBERS = 1 << 28
#: Relative error of the solution for a draw, far below the Monte Carlo error of a hundred draws.
_ERROR = 0.01


def sample(
    design: Design[np.ndarray],
    penalty: Float[np.ndarray, " parameters"],
    start: Float[np.ndarray, " parameters"],
    inference: str,
    num_samples: int,
    seed: int,
) -> Draws:
    """Draw from the posterior of parameters whose log prior is the penalty.

    With more than 3,000 parameters, a draw of Laplace's approximation is the solution of a linear
    system, by some tens of products with the Hessian, which is never formed.
    """
    p = len(penalty)
    if p > MAX_PARAMETERS and inference == "nuts":
        raise ValueError(
            f"inference must be 'map' or 'laplace' for more than {MAX_PARAMETERS:,} parameters, "
            f"got 'nuts' for {p:,}"
        )
    if p * num_samples > _MAX_NUMBERS:
        raise ValueError(
            f"num_samples must be at most {_MAX_NUMBERS // p:,} for {p:,} parameters, whose draws "
            f"are kept, got {num_samples:,}"
        )
    mode, prepared = fit_on_host(design, penalty, start)
    if p > MAX_PARAMETERS:
        theta = mode.x + _solve_draws(design, penalty, mode.x, prepared, num_samples, seed)
        return one_chain(theta, int(mode.status))
    with single_threaded_blas(), HostEvaluator(design, penalty) as host:
        probs = host.evaluate(mode.x).state.astype(float)
        factor = triangle(WHOLE.measure(design, probs) + np.diag(penalty))
    status = int(mode.status)
    if inference == "nuts":
        with float64():
            given = design, softmax_sites(penalty)
        return sample_whitened(_potential, given, mode.x, factor, num_samples, seed, status)
    density, numbers = partial(_log_density, design, penalty), len(design.y) * design.sizes[0]
    weight = float(design.weights.sum())
    return tempered_draws(density, numbers, mode.x, factor, num_samples, seed, status, weight)


def _solve_draws(
    design: Design[np.ndarray],
    penalty: Float[np.ndarray, " parameters"],
    theta: Float[np.ndarray, " parameters"],
    prepared: Prepared,
    num_samples: int,
    seed: int,
) -> Float[np.ndarray, "draws parameters"]:
    """Draw from N(0, H^-1), in pairs of opposite sign.

    If b has the covariance H, then H^-1 b has the covariance H^-1. Such b are gradients for random
    residuals with the covariance of the labels, plus noise from the penalty.
    """
    rng = np.random.default_rng(seed)
    draws = np.empty((num_samples, len(theta)))
    half = -(-num_samples // 2)
    with np.errstate(all="ignore"), single_threaded_blas(), HostEvaluator(design, penalty) as host:
        probs = host.evaluate(theta).state
        method, sizes = prepared.method, design.sizes
        inverse = method.invert(method.measure(design, probs), penalty, sizes)
        root = np.sqrt(probs)
        scale = np.sqrt(design.weights)[:, None]
        for number in range(half):
            noise = root * rng.standard_normal(probs.shape, probs.dtype.type)
            residual = scale * (noise - probs * noise.sum(axis=1, keepdims=True))
            vector = logit_vjp(design, residual, np)
            vector += np.sqrt(penalty) * rng.standard_normal(len(theta))
            draws[number], *_ = conjugate_gradients(
                partial(host.multiply, probs),
                lambda v: method.apply(inverse, v, sizes),
                vector,
                lambda _: _ERROR**2,
                MAX_PRODUCTS,
                np,
            )
    draws[half:] = -draws[: num_samples - half]
    return draws


def _log_density(
    design: Design[np.ndarray],
    penalty: Float[np.ndarray, " parameters"],
    theta: Float[np.ndarray, "draws parameters"],
) -> Float[np.ndarray, " draws"]:
    """Compute log posteriors, with errors below 1e-6 of the weights, or of 1e5 if that is less."""
    logits = logit_update(design, theta)
    logits += design.offset
    logits -= logits.max(axis=2, keepdims=True)
    label_logits = logits[:, np.arange(len(design.y)), design.y]
    # No logit is above zero, so single precision suffices for sums of exponentials, unless the
    # weights are large.
    narrow = density_type(design.weights.sum())
    total = np.exp(logits.astype(narrow)) @ np.ones(design.sizes[0], narrow)
    return (label_logits - np.log(total)) @ design.weights - 0.5 * theta**2 @ penalty


def _potential(
    theta: Float[jax.Array, " parameters"], design: Design[jax.Array], sites: Sites
) -> Float[jax.Array, ""]:
    """Compute the potential of the NumPyro model at theta."""
    return potential(sites, partial(_loss, design=design), theta)


@jax.custom_jvp
def _loss(
    theta: Float[jax.Array, " parameters"], design: Design[jax.Array]
) -> Float[jax.Array, ""]:
    """Compute the cross-entropy."""
    return evaluate(design, jnp.zeros_like(theta), theta).value


@_loss.defjvp
def _loss_jvp(
    primals: tuple[jax.Array, Design[jax.Array]], tangents: tuple[jax.Array, ...]
) -> tuple[jax.Array, jax.Array]:
    # The value is computed together with its gradient.
    theta, design = primals
    point = evaluate(design, jnp.zeros_like(theta), theta)
    return point.value, point.gradient @ tangents[0]
