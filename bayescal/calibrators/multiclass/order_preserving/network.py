"""Networks that preserve the order of logits: losses, and joint training of many networks.

All sizes, with all rows and without each fold, are trained by one compiled program, in which
smaller hidden layers are masked. Between calls the host checks held-out losses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import ArrayT
from bayescal._core.execution.padding import pad_axis, padded_length
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Float, Shaped

if TYPE_CHECKING:
    from optax import OptState

#: Arrays by name on the device.
Named: TypeAlias = dict[str, jax.Array]
Data: TypeAlias = tuple[jax.Array, ...]
Carry: TypeAlias = "tuple[Named, OptState, Data, Named]"

Family = Literal["diagonal", "full"]
Parameters = dict[str, np.ndarray]
#: Iterations between checks of held-out losses, maximal number of checks, and number of checks
#: without improvement after which training stops.
EVERY, MAX_CHECKS, _PATIENCE = 10, 60, 10
_RATES = {"diagonal": 0.02, "full": 0.005}
#: Weights that must not be negative, so that the function increases.
_POSITIVE = {"diagonal": ("first", "second", "last"), "full": ()}
#: Logits of all rows and networks in memory at once.
_ELEMENTS = 1 << 22
#: softplus of this is one.
UNIT = float(np.log(np.e - 1))


class Nets(NamedTuple):
    """Hidden sizes (l, 2), and weights (n, l) of rows in training and held out."""

    hidden: np.ndarray
    train: np.ndarray
    held: np.ndarray


class TrainingHistory(NamedTuple):
    """Losses and parameters before training and after every ten iterations."""

    #: Mean losses of training rows and sums of held-out losses (checks, l).
    train: np.ndarray
    held: np.ndarray
    #: Parameters of the networks that are trained on all rows.
    parameters: list[Parameters]


def start_diagonal(hidden: np.ndarray, log_slope: np.ndarray, seed: int) -> Parameters:
    """Make parameters (l, ...) of networks that are lines of slope exp(log_slope)."""
    a, b = hidden.max(axis=0)
    rng = np.random.default_rng(seed)
    first = rng.uniform(0.5, 3, a)
    parameters = {
        "first": first,
        # Units are steepest in the range of most logits, from -1 to 1.
        "first_bias": -first * rng.uniform(-1.2, 1.2, a),
        "second": rng.uniform(0, 2, (a, b)) / np.sqrt(a),
        "second_bias": rng.normal(size=b),
        "last": np.zeros(b),
    }
    return _repeat(parameters, log_slope)


def start_full(hidden: np.ndarray, log_slope: np.ndarray, seed: int, k: int) -> Parameters:
    """Make parameters (l, ...) of networks that scale all differences by exp(log_slope)."""
    a, b = hidden.max(axis=0)
    rng = np.random.default_rng(seed)
    parameters = {
        "first": rng.normal(size=(k, a)) / np.sqrt(k),
        "first_bias": rng.normal(size=a) / 2,
        "second": rng.normal(size=(a, b)) / np.sqrt(a),
        "second_bias": rng.normal(size=b) / 2,
        "last": np.zeros((b, k - 1)),
        "last_bias": np.zeros(k - 1),
    }
    return _repeat(parameters, log_slope)


def _repeat(parameters: Parameters, log_slope: np.ndarray) -> Parameters:
    repeated = {name: np.stack([value] * len(log_slope)) for name, value in parameters.items()}
    return repeated | {"log_slope": log_slope}


def rising(
    p: Mapping[str, ArrayT],
    t: ArrayT,
    tanh: Callable[[ArrayT], ArrayT],
    exp: Callable[[ArrayT], ArrayT],
) -> ArrayT:
    """Evaluate the increasing function of one network at points t (m,)."""
    inner = tanh(t[:, None] * p["first"] + p["first_bias"])
    return exp(p["log_slope"]) * t + tanh(inner @ p["second"] + p["second_bias"]) @ p["last"]


def stretching(p: Mapping[str, ArrayT], u: ArrayT, tanh: Callable[[ArrayT], ArrayT]) -> ArrayT:
    """Compute the factors (m, k - 1) of one network at rows u (m, k), before softplus."""
    inner = tanh(u @ p["first"] + p["first_bias"])
    return tanh(inner @ p["second"] + p["second_bias"]) @ p["last"] + p["last_bias"] + UNIT


def _diagonal_losses(parameters: Named, data: Data) -> jax.Array:
    """Compute log losses (n, l) of the diagonal family; axes are rows, classes, networks."""
    points, index, part, label_index, label_part = data
    evaluate = jax.vmap(lambda p: rising(p, points, jnp.tanh, jnp.exp), out_axes=1)
    values = evaluate(parameters)
    rise = jnp.concatenate([jnp.diff(values, axis=0), jnp.zeros_like(values[:1])])
    logits = values[index] + part[..., None] * rise[index]
    label = values[label_index] + label_part[:, None] * rise[label_index]
    return jax.nn.logsumexp(logits, axis=1) - label


def _full_losses(parameters: Named, data: Data) -> jax.Array:
    """Compute log losses (n, l) of the full family."""
    rows, steps, above = data

    def losses(p: Named) -> jax.Array:
        factors = jax.nn.softplus(stretching(p, rows, jnp.tanh))
        falls = jnp.exp(p["log_slope"]) * steps * factors
        below = -jnp.cumsum(falls, axis=1)
        return jnp.log1p(jnp.sum(jnp.exp(below), axis=1)) + jnp.sum(falls * above, axis=1)

    return jax.vmap(losses, out_axes=1)(parameters)


def _adam(family: Family) -> Any:
    import optax

    return optax.adam(_RATES[family])


@cache
def _program(family: Family) -> Callable[..., tuple[Named, object, jax.Array, jax.Array]]:
    losses = _diagonal_losses if family == "diagonal" else _full_losses

    def weighted_losses(parameters: Named, data: Data, nets: Named) -> tuple[jax.Array, jax.Array]:
        masked = dict(parameters)
        masked["second"] = masked["second"] * nets["mask"]
        masked["last"] = masked["last"] * nets["last_mask"]
        by_row = losses(masked, data)
        return jnp.sum(nets["train"] * by_row, axis=0), jnp.sum(nets["held"] * by_row, axis=0)

    def total(
        parameters: Named, data: Data, nets: Named
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        train, held = weighted_losses(parameters, data, nets)
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
        parameters: Named, memory: np.ndarray, data: Data, nets: Named, number: jax.Array
    ) -> tuple[Named, OptState, jax.Array, jax.Array]:
        carry = parameters, memory, data, nets
        parameters, memory, *_ = jax.lax.fori_loop(0, number, once, carry)
        return parameters, memory, *weighted_losses(parameters, data, nets)

    return jax.jit(advance)


def train(
    family: Family, start: Parameters, data: tuple[np.ndarray, ...], nets: Nets
) -> TrainingHistory:
    """Train all networks until the held-out loss of no size improves.

    ``data`` are the arguments of the losses of the family, with rows on their first axis, except
    for the points of "diagonal".
    """
    n, count = nets.train.shape
    size = padded_length(n, 256)
    unpadded = 1 if family == "diagonal" else 0
    padded = (*data[:unpadded], *(pad_axis(part, size, 0) for part in data[unpadded:]))
    elements = size * data[-1 if family == "full" else 1].shape[1]
    width = int(np.clip(_ELEMENTS // elements, 1, count))
    width = -(-count // -(-count // width))
    units = [np.arange(most) < nets.hidden[:, [i]] for i, most in enumerate(nets.hidden.max(0))]
    totals, full = nets.train.sum(axis=0), np.flatnonzero(~nets.held.any(axis=0))
    rows = ((0, size - n), (0, 0))
    mask = (units[0][:, :, None] & units[1][:, None, :]).astype(float)
    last_mask = units[1].astype(float).reshape(units[1].shape + (1,) * (start["last"].ndim - 2))
    train_weights, held_weights = np.pad(nets.train / totals, rows), np.pad(nets.held, rows)
    parts = [np.minimum(np.arange(i, i + width), count - 1) for i in range(0, count, width)]
    host = jax.default_device(jax.local_devices(backend="cpu")[0])
    with float64(), host, jax.numpy_dtype_promotion("standard"):
        advance = _program(family)
        padded = jax.device_put(padded)
        states, net_parts = [], []
        for part in parts:
            parameters = {name: jax.device_put(value[part]) for name, value in start.items()}
            states.append((parameters, _adam(family).init(parameters)))
            chunk = {
                "mask": mask[part],
                "last_mask": last_mask[part],
                "train": train_weights[:, part],
                "held": held_weights[:, part],
            }
            net_parts.append(jax.device_put(chunk))
        train_losses, held_losses = list[np.ndarray](), list[np.ndarray]()
        parameters_by_check: list[Parameters] = []
        for check in range(MAX_CHECKS + 1):
            results = []
            for i, chunk in enumerate(net_parts):
                number = EVERY if check else 0
                parameters, memory, *losses = advance(*states[i], padded, chunk, number)
                states[i] = parameters, memory
                results.append(jax.device_get((parameters, *losses)))
            for j, losses in enumerate((train_losses, held_losses), start=1):
                losses.append(np.concatenate([result[j] for result in results])[:count])
            parameters_by_check.append(
                {name: np.concatenate([s[0][name] for s in results])[full] for name in start}
            )
            if _settled(np.array(held_losses), nets):
                break
    return TrainingHistory(np.array(train_losses), np.array(held_losses), parameters_by_check)


def by_size(
    held: Float[np.ndarray, "checks networks"], nets: Nets
) -> tuple[Shaped[np.ndarray, "sizes 2"], Float[np.ndarray, "checks sizes"]]:
    """Sum held-out losses over folds: distinct sizes (s, 2) and losses (checks, s)."""
    sizes, index = np.unique(nets.hidden, axis=0, return_inverse=True)
    sums = np.zeros((len(held), len(sizes)))
    np.add.at(sums.T, index.ravel(), held.T)
    return sizes, sums


def _settled(held: Float[np.ndarray, "checks networks"], nets: Nets) -> bool:
    """Return whether no size has improved by more than rounding in the last checks."""
    sums = by_size(held, nets)[1]
    best = np.minimum.accumulate(sums, axis=0)
    if not nets.held.any() or not np.isfinite(sums).all():
        return True
    if len(sums) <= _PATIENCE:
        return False
    return bool((best[-1] >= best[-1 - _PATIENCE] - 1e-9 * np.abs(best[0])).all())
