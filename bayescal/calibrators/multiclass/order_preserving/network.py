"""Networks that keep the order of logits: their losses, and many of them trained side by side.

Networks are of one size each, trained on all rows or without one fold. All advance in one compiled
program, smaller hidden layers being masked; the host looks at held-out losses between
calls and decides when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import ArrayT
from bayescal._core.padding import pad_axis, padded_length
from bayescal._core.precision import float64

#: Arrays by name on the device.
Named: TypeAlias = dict[str, jax.Array]
Data: TypeAlias = tuple[jax.Array, ...]
Carry: TypeAlias = tuple[Named, Any, Data, Named]

Family = Literal["diagonal", "full"]
Parameters = dict[str, np.ndarray]
#: Iterations between two looks at held-out losses, the most looks, and how many without success.
EVERY, LOOKS, _PATIENCE = 10, 60, 10
_RATES = {"diagonal": 0.02, "full": 0.005}
#: Weights that may not be negative, so that the function rises.
_POSITIVE = {"diagonal": ("first", "second", "last"), "full": ()}
#: Logits of all rows and networks that are held at once.
_ELEMENTS = 1 << 22
#: softplus of this is one.
UNIT = float(np.log(np.e - 1))


class Nets(NamedTuple):
    """Hidden sizes (l, 2), and of each row the weight in training and held out (n, l)."""

    hidden: np.ndarray
    train: np.ndarray
    held: np.ndarray


class Looks(NamedTuple):
    """What was seen before training and after each ten iterations."""

    #: Mean loss of training rows and sum of held-out ones (looks, l).
    train: np.ndarray
    held: np.ndarray
    #: Of the networks that are trained on all rows, in their order.
    parameters: list[Parameters]


def start_diagonal(hidden: np.ndarray, log_slope: np.ndarray, seed: int) -> Parameters:
    """Return parameters (l, ...) of networks that are the line of slope exp(log_slope)."""
    a, b = hidden.max(axis=0)
    rng = np.random.default_rng(seed)
    first = rng.uniform(0.5, 3, a)
    own = {
        "first": first,
        # Each unit is steepest somewhere in the range of most logits, from -1 to 1.
        "first_bias": -first * rng.uniform(-1.2, 1.2, a),
        "second": rng.uniform(0, 2, (a, b)) / np.sqrt(a),
        "second_bias": rng.normal(size=b),
        "last": np.zeros(b),
    }
    return _for_all(own, log_slope)


def start_full(hidden: np.ndarray, log_slope: np.ndarray, seed: int, k: int) -> Parameters:
    """Return parameters (l, ...) of networks that multiply all differences by exp(log_slope)."""
    a, b = hidden.max(axis=0)
    rng = np.random.default_rng(seed)
    own = {
        "first": rng.normal(size=(k, a)) / np.sqrt(k),
        "first_bias": rng.normal(size=a) / 2,
        "second": rng.normal(size=(a, b)) / np.sqrt(a),
        "second_bias": rng.normal(size=b) / 2,
        "last": np.zeros((b, k - 1)),
        "last_bias": np.zeros(k - 1),
    }
    return _for_all(own, log_slope)


def _for_all(own: Parameters, log_slope: np.ndarray) -> Parameters:
    many = {name: np.stack([value] * len(log_slope)) for name, value in own.items()}
    return many | {"log_slope": log_slope}


def rising(
    p: Mapping[str, ArrayT],
    t: ArrayT,
    tanh: Callable[[ArrayT], ArrayT],
    exp: Callable[[ArrayT], ArrayT],
) -> ArrayT:
    """Return the rising function of one network at points t (m,)."""
    inner = tanh(t[:, None] * p["first"] + p["first_bias"])
    return exp(p["log_slope"]) * t + tanh(inner @ p["second"] + p["second_bias"]) @ p["last"]


def stretching(p: Mapping[str, ArrayT], u: ArrayT, tanh: Callable[[ArrayT], ArrayT]) -> ArrayT:
    """Return what stands in softplus for the factors (m, k - 1) of one network at rows u (m, k)."""
    inner = tanh(u @ p["first"] + p["first_bias"])
    return tanh(inner @ p["second"] + p["second_bias"]) @ p["last"] + p["last_bias"] + UNIT


def _diagonal_losses(parameters: Named, data: Data) -> jax.Array:
    """Return log losses (n, l); axes are rows, classes, networks."""
    points, place, part, own_place, own_part = data
    one = jax.vmap(lambda p: rising(p, points, jnp.tanh, jnp.exp), out_axes=1)
    values = one(parameters)
    rise = jnp.concatenate([jnp.diff(values, axis=0), jnp.zeros_like(values[:1])])
    logits = values[place] + part[..., None] * rise[place]
    own = values[own_place] + own_part[:, None] * rise[own_place]
    return jax.nn.logsumexp(logits, axis=1) - own


def _full_losses(parameters: Named, data: Data) -> jax.Array:
    """Return log losses (n, l)."""
    rows, steps, above = data

    def one(p: Named) -> jax.Array:
        factors = jax.nn.softplus(stretching(p, rows, jnp.tanh))
        falls = jnp.exp(p["log_slope"]) * steps * factors
        below = -jnp.cumsum(falls, axis=1)
        return jnp.log1p(jnp.sum(jnp.exp(below), axis=1)) + jnp.sum(falls * above, axis=1)

    return jax.vmap(one, out_axes=1)(parameters)


def _adam(family: Family) -> Any:
    import optax

    return optax.adam(_RATES[family])


@cache
def _program(
    family: Family,
) -> Callable[..., tuple[Named, Any, jax.Array, jax.Array]]:
    losses = _diagonal_losses if family == "diagonal" else _full_losses

    def both(parameters: Named, data: Data, nets: Named) -> tuple[jax.Array, jax.Array]:
        masked = dict(parameters)
        masked["second"] = masked["second"] * nets["mask"]
        masked["last"] = masked["last"] * nets["last_mask"]
        found = losses(masked, data)
        return jnp.sum(nets["train"] * found, axis=0), jnp.sum(nets["held"] * found, axis=0)

    def total(
        parameters: Named, data: Data, nets: Named
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        train, held = both(parameters, data, nets)
        return jnp.sum(train), (train, held)

    def once(_: jax.Array, carry: Carry) -> Carry:
        parameters, memory, data, nets = carry
        slope = jax.grad(total, has_aux=True)(parameters, data, nets)[0]
        steps, memory = _adam(family).update(slope, memory)
        moved = {name: parameters[name] + steps[name] for name in parameters}
        for name in _POSITIVE[family]:
            moved[name] = jnp.maximum(moved[name], 0)
        return moved, memory, data, nets

    def advance(
        parameters: Named, memory: Any, data: Data, nets: Named, number: jax.Array
    ) -> tuple[Named, Any, jax.Array, jax.Array]:
        carry = parameters, memory, data, nets
        parameters, memory, *_ = jax.lax.fori_loop(0, number, once, carry)
        return parameters, memory, *both(parameters, data, nets)

    return jax.jit(advance)


def train(family: Family, start: Parameters, data: tuple[np.ndarray, ...], nets: Nets) -> Looks:
    """Train all networks until no size has a lower held-out loss any more.

    ``data`` is what the family's losses need; all but the points of "diagonal" have rows first.
    """
    n, count = nets.train.shape
    size = padded_length(n, 256)
    alone = 1 if family == "diagonal" else 0
    padded = (*data[:alone], *(pad_axis(part, size, 0) for part in data[alone:]))
    elements = size * data[-1 if family == "full" else 1].shape[1]
    width = int(np.clip(_ELEMENTS // elements, 1, count))
    width = -(-count // -(-count // width))
    units = [np.arange(most) < nets.hidden[:, [i]] for i, most in enumerate(nets.hidden.max(0))]
    wide, whole = nets.train.sum(axis=0), np.flatnonzero(~nets.held.any(axis=0))
    rows = ((0, size - n), (0, 0))
    each = {
        "mask": (units[0][:, :, None] & units[1][:, None, :]).astype(float),
        "last_mask": np.reshape(
            units[1].astype(float), units[1].shape + (1,) * (start["last"].ndim - 2)
        ),
        "train": np.pad(nets.train / wide, rows).T,
        "held": np.pad(nets.held, rows).T,
    }
    parts = [np.minimum(np.arange(i, i + width), count - 1) for i in range(0, count, width)]
    host = jax.default_device(jax.local_devices(backend="cpu")[0])
    with float64(), host, jax.numpy_dtype_promotion("standard"):
        advance = _program(family)
        padded = jax.device_put(padded)
        states, net_parts = [], []
        for part in parts:
            parameters = {name: jax.device_put(value[part]) for name, value in start.items()}
            states.append((parameters, _adam(family).init(parameters)))
            own = {name: value[part] for name, value in each.items()}
            own["train"], own["held"] = own["train"].T, own["held"].T
            net_parts.append(jax.device_put(own))
        looks: list[tuple[np.ndarray, np.ndarray]] = []
        kept: list[Parameters] = []
        for look in range(LOOKS + 1):
            seen = []
            for i, own in enumerate(net_parts):
                number = EVERY if look else 0
                parameters, memory, *losses = advance(*states[i], padded, own, number)
                states[i] = parameters, memory
                seen.append(jax.device_get((parameters, *losses)))
            joined = [np.concatenate([s[j] for s in seen])[:count] for j in (1, 2)]
            looks.append((joined[0], joined[1]))
            kept.append({name: np.concatenate([s[0][name] for s in seen])[whole] for name in start})
            if _settled(np.array([held for _, held in looks]), nets):
                break
    return Looks(np.array([a for a, _ in looks]), np.array([b for _, b in looks]), kept)


def by_size(held: np.ndarray, nets: Nets) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct sizes (s, 2) and the held-out losses (looks, s) of all folds together."""
    sizes, place = np.unique(nets.hidden, axis=0, return_inverse=True)
    sums = np.zeros((len(held), len(sizes)))
    np.add.at(sums.T, place.ravel(), held.T)
    return sizes, sums


def _settled(held: np.ndarray, nets: Nets) -> bool:
    """Whether no size has got better for a while, by more than rounding."""
    sums = by_size(held, nets)[1]
    best = np.minimum.accumulate(sums, axis=0)
    if not nets.held.any() or not np.isfinite(sums).all():
        return True
    if len(sums) <= _PATIENCE:
        return False
    return bool((best[-1] >= best[-1 - _PATIENCE] - 1e-9 * np.abs(best[0])).all())
