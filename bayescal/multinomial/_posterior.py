"""Posteriors of multinomial logistic regressions: Laplace's approximation and NUTS."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from bayescal._core.blas import single_threaded_blas
from bayescal._core.optimise import Status
from bayescal.logistic._posterior import Draws, antithetic, sample_whitened, triangle
from bayescal.multinomial._fit import fit_on_host
from bayescal.multinomial._objective import Design, Host, evaluate
from bayescal.multinomial._precondition import WHOLE

#: The whole Hessian of more parameters takes too much time and memory.
MOST_PARAMETERS = 3000


def sample(
    design: Design,
    penalty: np.ndarray,
    start: np.ndarray,
    inference: str,
    num_samples: int,
    seed: int,
) -> Draws:
    """Return draws (chains, draws, p) of the parameters, whose log prior is the penalty.

    Raises
    ------
    ValueError
        For more than 3,000 parameters.
    """
    p = len(penalty)
    if p > MOST_PARAMETERS:
        raise ValueError(
            f"inference must be 'map' for more than {MOST_PARAMETERS:,} parameters, got "
            f"{inference!r} for {p:,}; use Vector or Temperature for so many classes"
        )
    mode, _ = fit_on_host(design, penalty, start)
    with single_threaded_blas():
        factor = triangle(_hessian(design, mode.x) + np.diag(penalty))
    if inference == "laplace":
        theta = antithetic(mode.x, factor, num_samples, seed)[None]
        return Draws(theta, np.full(p, float(num_samples)), np.ones(p), 0, int(mode.status))
    theta, ess, r_hat, divergences = sample_whitened(
        _potential, (design, penalty), mode.x, factor, num_samples, seed
    )
    return Draws(theta, ess, r_hat, divergences, int(Status(int(mode.status))))


def _hessian(design: Design, theta: np.ndarray) -> np.ndarray:
    with Host(design, np.zeros_like(theta)) as host:
        probs = host.evaluate(theta).state
    return WHOLE.measure(design, probs.astype(float))


def _potential(design: Design, penalty: Any, mode: Any, factor: Any) -> Any:
    """Return the negative log posterior in coordinates where Laplace's is standard normal."""

    @jax.custom_jvp
    def potential(z: Any) -> Any:
        return evaluate(design, penalty, mode + factor @ z).value

    @potential.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        # The gradient comes with the value.
        point = evaluate(design, penalty, mode + factor @ primals[0])
        return point.value, (point.gradient @ factor) @ tangents[0]

    return potential
