"""The no-U-turn sampler: chains side by side, in one compiled program for all data of a size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from bayescal._core.arrays import Arrays

if TYPE_CHECKING:
    from numpyro.infer.hmc import HMCState

#: A start of a chain where the density is zero is drawn anew up to so many times.
_TRIES = 20


@partial(jax.jit, static_argnames=("potential", "chains", "warmup", "draws", "adapt_mass_matrix"))
def run_chains(
    potential: Callable[..., Callable[[jax.Array], jax.Array]],
    arguments: tuple[object, ...],
    centre: jax.Array,
    key: jax.Array,
    *,
    chains: int,
    warmup: int,
    draws: int,
    adapt_mass_matrix: bool = False,
    starts: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return draws z (chains, draws, p) near standard normal ones.

    Beside them are the number of divergent steps in each chain, and whether it started where the
    density is positive. ``potential(*arguments)`` is a function of z (p,), the negative log
    density; it is static: a function of a module, not a closure, so that the program is compiled
    once. ``centre`` (p,) gives the shape and the type of z only. The warm-up finds the scale of
    each coordinate if ``adapt_mass_matrix``: needless where all are one. Chains begin at ``starts``
    (chains, p), or at standard normal draws.

    Call it where dtypes are promoted as NumPy does (``jax.numpy_dtype_promotion("standard")``),
    as NumPyro expects.
    """
    from numpyro.infer.hmc import hmc

    init, sample = hmc(potential_fn_gen=potential, algo="NUTS")
    keys = jax.random.split(key, (2, chains))
    slope_at = jax.value_and_grad(potential(*arguments))

    def usable(z: jax.Array) -> jax.Array:
        value, slope = slope_at(z)
        return jnp.isfinite(value) & jnp.isfinite(slope).all()

    def start(own: jax.Array, given: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        def unfinished(carry: Arrays) -> jax.Array:
            return (carry[0] < _TRIES) & ~carry[2]

        def again(carry: Arrays) -> Arrays:
            z = jax.random.normal(jax.random.fold_in(own, carry[0]), centre.shape, centre.dtype)
            z = z if given is None else jnp.where(carry[0] == 0, given, z)
            return carry[0] + 1, z, usable(z)

        nothing = jnp.zeros((), int), jnp.zeros_like(centre), jnp.zeros((), bool)
        _, z, positive = jax.lax.while_loop(unfinished, again, nothing)
        return z, positive

    def chain(begin: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(state: HMCState, _: None) -> tuple[HMCState, tuple[jax.Array, jax.Array]]:
            state = sample(state, arguments)
            return state, (state.z, state.diverging)

        state = init(
            begin, warmup, adapt_mass_matrix=adapt_mass_matrix, model_args=arguments, rng_key=own
        )
        # One loop for warm-up and draws, so that the sampler is compiled once.
        z, diverging = jax.lax.scan(step, state, length=warmup + draws)[1]
        return z[warmup:], jnp.sum(diverging[warmup:])

    begins, positive = jax.vmap(start)(keys[0], starts)
    z, diverging = jax.vmap(chain)(begins, keys[1])
    return z, diverging, positive
