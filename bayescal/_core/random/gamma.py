"""Gamma variables, drawn as whole arrays; those of jax.random take four times as long.

G. Marsaglia and W. W. Tsang (2000), A simple method for generating gamma variables, ACM
Transactions on Mathematical Software 26, 363-372.
"""

from __future__ import annotations

import math

from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Float

#: Rounds of proposals; at least 0.95 of those that are left are accepted in each.
_MAX_ROUNDS = 64


def log_gamma(
    key: jax.Array, concentration: Float[jax.Array, "*sizes"], shape: tuple[int, ...]
) -> Float[jax.Array, "*shape"]:
    """Draw logarithms of gamma variables with scale one, which small concentrations do not round.

    ``concentration`` is broadcast to ``shape``. O(size) work and memory.
    """
    # A variable of a concentration below one is one of the next, times a power of a uniform one.
    is_small = concentration < 1
    d = jnp.where(is_small, concentration + 1, concentration) - 1 / 3
    slope = math.sqrt(2) / 3 / jnp.sqrt(d)

    def propose(
        state: tuple[jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        step, value, is_accepted = state
        uniform = jax.random.uniform(jax.random.fold_in(key, step), (3, *shape), d.dtype)
        x = jax.lax.erf_inv(2 * uniform[0] - 1)
        log_ratio = 3 * jnp.log1p(jnp.maximum(slope * x, -1))
        fits = jnp.log(uniform[1]) < x**2 - d * (jnp.expm1(log_ratio) - log_ratio)
        power = jnp.where(is_small, jnp.log1p(-uniform[2]) / concentration, 0)
        return step + 1, jnp.where(is_accepted, value, log_ratio + power), is_accepted | fits

    start = jnp.uint32(0), jnp.zeros(shape, d.dtype), jnp.zeros(shape, bool)
    _, value, _ = jax.lax.while_loop(
        lambda state: (state[0] < _MAX_ROUNDS) & ~state[2].all(), propose, start
    )
    return jnp.log(d) + value
