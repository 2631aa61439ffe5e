"""Compiled programs of training: initial states, epochs and logits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from bayescal._core.execution.precision import default_dtype
from benchmarks.studies.training._problem import Extras, Runs, Shared, join, normalize

RUNNING, STOPPED, DIVERGED = 0, 1, 2
#: Rows of validation at once: at least this, if there are so many.
_LEAST = 256


class State(NamedTuple):
    """The state of a run, or of runs along a leading axis: all that the next epoch depends on."""

    params: Any
    rest: Any
    optimizer: Any
    best_params: Any
    best_rest: Any
    best_loss: jax.Array
    best_epoch: jax.Array
    epoch: jax.Array
    status: jax.Array


class Measured(NamedTuple):
    """Metrics of an epoch; NaN if a run has ended."""

    train_loss: jax.Array
    validation_log_loss: jax.Array
    validation_accuracy: jax.Array


class Network:
    """A network split into its structure (training and evaluation), parameters, and other state."""

    def __init__(self, make_network: Callable[[Any], Any]) -> None:
        self._make = make_network
        self.abstract = jax.eval_shape(self.begin, jnp.uint32(0))

    def begin(self, seed: jax.Array) -> tuple[Any, Any]:
        """Initialize the parameters and the other state of a network."""
        network = self._make(nnx.Rngs(jax.random.fold_in(jax.random.key(seed), 0)))
        if not isinstance(network, nnx.Module):
            raise TypeError(
                f"make_network must return a flax.nnx.Module, got {type(network).__name__}"
            )
        network.eval()
        self.evaluating = nnx.graphdef(network)
        network.train()
        self.training, params, rest = nnx.split(network, nnx.Param, ...)
        return params, rest

    def train(self, params: Any, rest: Any, inputs: jax.Array) -> tuple[jax.Array, Any]:
        """Compute logits, and the updated other state, in training."""
        network = nnx.merge(self.training, params, rest, copy=True)
        logits = network(inputs)
        return logits, nnx.split(network, nnx.Param, ...)[2]

    def evaluate(self, params: Any, rest: Any, inputs: jax.Array) -> jax.Array:
        """Compute logits in evaluation, where rows do not depend on each other."""
        return nnx.merge(self.evaluating, params, rest, copy=True)(inputs)


class Programs:
    """Train one run, or several together, for an epoch.

    Parameters
    ----------
    network : Network
    loss : callable
    optimizer : optax.GradientTransformation
    extras : Extras
    batch : int
        Rows of a step.
    patience : int
        Epochs.
    keep : {"best", "last"}
        Parameters of which epoch.
    augment : callable or None
    """

    def __init__(
        self,
        network: Network,
        loss: Callable[..., jax.Array],
        optimizer: optax.GradientTransformation,
        extras: Extras,
        batch: int,
        patience: int,
        keep: str,
        augment: Callable[[jax.Array, jax.Array], jax.Array] | None,
    ) -> None:
        self._network, self._loss, self._optimizer = network, loss, optimizer
        self._extras, self._batch, self._patience = extras, batch, patience
        self._augment, self._keep = augment, keep

    def begin(self, seed: jax.Array) -> State:
        """Initialize the state of a run."""
        params, rest = self._network.begin(seed)
        return State(
            params,
            rest,
            self._optimizer.init(params),
            params,
            rest,
            jnp.asarray(jnp.inf, default_dtype()),
            jnp.int32(-1),
            jnp.int32(0),
            jnp.int32(RUNNING),
        )

    def epoch(self, state: State, run: Runs, shared: Shared) -> tuple[State, Measured]:
        """Train one run for an epoch, unless it has ended."""
        params, rest, optimizer, train_loss = self._pass(state, run, shared)
        log_loss, accuracy = self._validate(params, rest, shared)
        finite = jnp.isfinite(train_loss) & jnp.isfinite(log_loss)
        kept = log_loss < state.best_loss if self._keep == "best" else True
        better = finite & kept
        best_params, best_rest, best_loss, best_epoch = _choose(
            better,
            (params, rest, log_loss, state.epoch),
            (state.best_params, state.best_rest, state.best_loss, state.best_epoch),
        )
        waited = state.epoch - best_epoch >= self._patience
        status = jnp.where(finite, jnp.where(waited, STOPPED, RUNNING), DIVERGED)
        new = State(
            params,
            rest,
            optimizer,
            best_params,
            best_rest,
            best_loss,
            best_epoch,
            state.epoch + 1,
            status.astype(jnp.int32),
        )
        measured = Measured(train_loss, log_loss, accuracy)
        going = state.status == RUNNING
        nothing = jax.tree.map(lambda value: jnp.full_like(value, jnp.nan), measured)
        return _choose(going, (new, measured), (state, nothing))

    def _pass(self, state: State, run: Runs, shared: Shared) -> tuple[Any, Any, Any, jax.Array]:
        """Use every row once in random order; fill the last batch with the first rows."""
        rows, size = len(shared.labels), self._batch
        steps = -(-rows // size)
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(run.seed), 1), state.epoch)
        order = jax.random.permutation(key, rows)
        places = jnp.arange(steps * size)
        batches = order[places % rows].reshape(steps, size)
        kind = default_dtype()
        weights = (places < rows).astype(kind).reshape(steps, size)

        def step(carry: Any, part: Any) -> tuple[Any, jax.Array]:
            params, rest, optimizer = carry
            number, chosen, weight = part
            inputs = normalize(shared.inputs[chosen], shared.mean, shared.std)
            if self._augment is not None:
                inputs = self._augment(inputs, jax.random.fold_in(key, number))
            of_rows = [[value[chosen] for value in part] for part in (shared.extras, run.extras)]
            extras = join(self._extras, *of_rows)

            def objective(params: Any) -> tuple[jax.Array, Any]:
                logits, changed = self._network.train(params, rest, inputs)
                value = self._loss(logits, shared.labels[chosen], weight, extras, run.settings)
                return value, changed

            (value, rest), gradient = jax.value_and_grad(objective, has_aux=True)(params)
            # Optax counts on it: strict rules would refuse its powers of a count of steps.
            with jax.numpy_dtype_promotion("standard"):
                updates, optimizer = self._optimizer.update(gradient, optimizer, params)
                params = optax.apply_updates(params, updates)
            return (params, rest, optimizer), value.astype(kind) * weight.sum()

        start = state.params, state.rest, state.optimizer
        numbers = jnp.arange(steps, dtype=jnp.uint32)
        (params, rest, optimizer), values = jax.lax.scan(step, start, (numbers, batches, weights))
        return params, rest, optimizer, values.sum() / rows

    def _validate(self, params: Any, rest: Any, shared: Shared) -> tuple[jax.Array, jax.Array]:
        """Compute log loss and accuracy of the validation rows in batches."""
        rows = len(shared.validation_labels)
        size = min(rows, max(_LEAST, self._batch))
        steps = -(-rows // size)
        places = jnp.arange(steps * size)
        kind = default_dtype()
        real = (places < rows).astype(kind).reshape(steps, size)
        batches = jnp.minimum(places, rows - 1).reshape(steps, size)

        def add(sums: Any, part: Any) -> tuple[Any, None]:
            chosen, weight = part
            inputs = normalize(shared.validation_inputs[chosen], shared.mean, shared.std)
            labels = shared.validation_labels[chosen]
            logits = self._network.evaluate(params, rest, inputs).astype(kind)
            of_labels = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[
                :, 0
            ]
            right = (logits.argmax(axis=1).astype(labels.dtype) == labels).astype(kind)
            return (sums[0] - weight @ of_labels, sums[1] + weight @ right), None

        sums, _ = jax.lax.scan(add, (jnp.zeros((), kind),) * 2, (batches, real))
        return sums[0] / rows, sums[1] / rows


def over_runs(function: Callable[..., Any], count: int, shared: bool) -> Callable[..., Any]:
    """Map a function over a leading axis of runs; runs may share its last argument."""

    def single(*arguments: Any) -> Any:
        each, common = arguments[:-1] if shared else arguments, arguments[-1:] if shared else ()
        result = function(*jax.tree.map(lambda value: value[0], each), *common)
        return jax.tree.map(lambda value: value[None], result)

    def several(*arguments: Any) -> Any:
        axes = [0] * len(arguments)
        if shared:
            axes[-1] = None  # type: ignore[call-overload]
        return jax.vmap(function, in_axes=tuple(axes))(*arguments)

    return single if count == 1 else several


@functools.partial(jax.jit, static_argnums=0)
def forward(
    structure: Any, params: Any, rest: Any, inputs: jax.Array, mean: jax.Array, std: jax.Array
) -> jax.Array:
    """Compute logits of one network in evaluation."""
    network = nnx.merge(structure, params, rest, copy=True)
    return network(normalize(inputs, mean, std))


def _choose(condition: jax.Array, one: Any, other: Any) -> Any:
    """Select one of two trees; the result has the dtypes of the second."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b).astype(b.dtype), one, other)
