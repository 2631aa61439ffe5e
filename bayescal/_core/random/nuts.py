"""The no-U-turn sampler, with chains side by side in one compiled program for each size of data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bayescal._core.arrays import Arrays
from bayescal._core.lazy import jax, jnp

if TYPE_CHECKING:
    from numpyro.infer.hmc import HMCState

#: Number of times that the start of a chain is drawn again if the density there is zero.
_TRIES = 20
#: Mean acceptance probability that step sizes are adapted to. At 0.8, NumPyro's default, a few of
#: 4,000 steps diverge in the tail of a positive parameter; 0.9 takes no longer.
_TARGET_ACCEPT_PROB = 0.9


@partial(jax.jit, static_argnames=("potential", "chains", "warmup", "draws", "adapt_mass_matrix"))
def run_chains(
    potential: Callable[..., Callable[[jax.Array], jax.Array]],
    arguments: tuple[object, ...],
    center: jax.Array,
    key: jax.Array,
    *,
    chains: int,
    warmup: int,
    draws: int,
    adapt_mass_matrix: bool = False,
    starts: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draw z (chains, draws, p), which should be nearly standard normal.

    Returns also the number of divergent steps in each chain, and whether it started where the
    density is positive. ``potential(*arguments)`` is a function of z (p,), the negative log
    density. It is static and must be a function of a module, not a closure, so that the program is
    compiled once. ``center`` (p,) only defines the shape and type of z. The warm-up adapts the
    scale of each coordinate if ``adapt_mass_matrix``, which is unnecessary if all are one. Chains
    start at ``starts`` (chains, p), or at standard normal draws.

    Call it where JAX promotes dtypes like NumPy (``jax.numpy_dtype_promotion("standard")``), as
    NumPyro expects.
    """
    from numpyro.infer.hmc import hmc

    init, sample = hmc(potential_fn_gen=potential, algo="NUTS")
    keys = jax.random.split(key, (2, chains))
    slope_at = jax.value_and_grad(potential(*arguments))

    def usable(z: jax.Array) -> jax.Array:
        value, slope = slope_at(z)
        return jnp.isfinite(value) & jnp.isfinite(slope).all()

    def start(chain_key: jax.Array, given: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        def unfinished(carry: Arrays) -> jax.Array:
            return (carry[0] < _TRIES) & ~carry[2]

        def redraw(carry: Arrays) -> Arrays:
            z = jax.random.normal(
                jax.random.fold_in(chain_key, carry[0]), center.shape, center.dtype
            )
            z = z if given is None else jnp.where(carry[0] == 0, given, z)
            return carry[0] + 1, z, usable(z)

        nothing = jnp.zeros((), int), jnp.zeros_like(center), jnp.zeros((), bool)
        _, z, positive = jax.lax.while_loop(unfinished, redraw, nothing)
        return z, positive

    def chain(begin: jax.Array, chain_key: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(state: HMCState, _: None) -> tuple[HMCState, tuple[jax.Array, jax.Array]]:
            state = sample(state, arguments)
            return state, (state.z, state.diverging)

        state = init(
            begin,
            warmup,
            target_accept_prob=_TARGET_ACCEPT_PROB,
            adapt_mass_matrix=adapt_mass_matrix,
            model_args=arguments,
            rng_key=chain_key,
        )
        # One loop for warm-up and draws compiles the sampler only once.
        z, diverging = jax.lax.scan(step, state, length=warmup + draws)[1]
        return z[warmup:], jnp.sum(diverging[warmup:])

    begins, positive = jax.vmap(start)(keys[0], starts)
    z, diverging = jax.vmap(chain)(begins, keys[1])
    return z, diverging, positive
