"""Training by hand, stopping, interruptions, and error messages."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

pytest.importorskip("flax")

from flax import nnx

from benchmarks.studies.training.networks import MLP, ResNet18
from benchmarks.studies.training.trainer import PerRun, Trained, TrainingData, train


def mean_cross_entropy(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> Any:
    label_log_probs = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]
    return -(weights @ label_log_probs) / weights.sum()


class Fixed(nnx.Module):
    """A linear layer with given initial values."""

    def __init__(self, kernel: np.ndarray) -> None:
        self.kernel = nnx.Param(jnp.asarray(kernel))

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.kernel[...]


class Noisy(nnx.Module):
    """Layers with state: running averages, and keys of a dropout."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(3, 6, rngs=rngs)
        self.norm = nnx.BatchNorm(6, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.last = nnx.Linear(6, 3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(self.dropout(jax.nn.relu(self.norm(self.first(x)))))


def make_data(rows: int = 22, seed: int = 0) -> TrainingData:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows + 9, 3))
    y = (x @ rng.normal(size=(3, 3)) + rng.normal(size=(rows + 9, 3))).argmax(axis=1)
    y[:3] = y[-3:] = 0, 1, 2
    return TrainingData(x[:rows], y[:rows], x[rows:], y[rows:])


def tempered(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> Any:
    return mean_cross_entropy(logits * run["factor"], labels, weights, extras, run)


def train_noisy(**options: Any) -> Trained:
    given = {
        "loss": tempered,
        "runs": {"factor": [1.0, 0.5]},
        "seeds": (3, 7),
        "epochs": 6,
        "batch_size": 8,
        "progress": False,
    }
    return train(Noisy, make_data(), **(given | options))


@pytest.fixture(scope="module")
def uninterrupted() -> Trained:
    return train_noisy()


def assert_same(one: Trained, other: Trained) -> None:
    """Check that all numbers are equal to the last bit."""
    for a, b in zip(
        jax.tree.leaves((one.params, one.rest)),
        jax.tree.leaves((other.params, other.rest)),
        strict=True,
    ):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)
    for name in ("runs", "history"):
        for key, values in getattr(one, name).items():
            np.testing.assert_array_equal(values, getattr(other, name)[key])
    np.testing.assert_array_equal(one.best_epoch, other.best_epoch)
    np.testing.assert_array_equal(one.status, other.status)


# --- one run, by hand ---------------------------------------------------------------------------


class ByHand(NamedTuple):
    kernels: list[np.ndarray]
    train_loss: list[float]
    log_loss: list[float]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def train_by_hand(
    data: TrainingData, kernel: np.ndarray, batches: list[np.ndarray], steps: int, epochs: int
) -> ByHand:
    """Train softmax regression with momentum, decay and a cosine schedule on given batches."""
    kernel, velocity = kernel.copy(), np.zeros_like(kernel)
    result = ByHand([], [], [])
    one_hot = np.eye(kernel.shape[1])
    for number, rows in enumerate(batches):
        if number % steps == 0:
            total = 0.0
        x, target = data.train_inputs[rows], one_hot[data.train_labels[rows]]
        log_probs = log_softmax(x @ kernel)
        total -= (target * log_probs).sum()
        gradient = x.T @ (np.exp(log_probs) - target) / len(rows)
        velocity = 0.9 * velocity + gradient + 1e-4 * kernel
        rate = 0.2 * (1 + np.cos(np.pi * number / (steps * epochs))) / 2
        kernel = kernel - rate * velocity
        if number % steps == steps - 1:
            result.kernels.append(kernel)
            result.train_loss.append(total / len(data.train_inputs))
            log_probs = log_softmax(data.validation_inputs @ kernel)
            label_log_probs = log_probs[np.arange(len(log_probs)), data.validation_labels]
            result.log_loss.append(-label_log_probs.mean())
    return result


@pytest.mark.parametrize(("batch_size", "steps"), [(8, 3), (11, 2), (100, 1)])
def test_descent_by_hand(x64: None, batch_size: int, steps: int) -> None:
    # 22 rows: a last batch with 6 of 8 rows, two full batches, and a batch below the requested
    # size.
    data, epochs = make_data(), 4
    kernel = np.random.default_rng(1).normal(size=(3, 3))
    batches: list[np.ndarray] = []

    def watched(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> Any:
        def note(rows: Any, weights: Any) -> None:
            batches.append(np.asarray(rows)[np.asarray(weights) > 0])

        jax.debug.callback(note, extras["row"], weights, ordered=True)
        return mean_cross_entropy(logits, labels, weights, extras, run)

    trained = train(
        lambda rngs: Fixed(kernel),
        data,
        loss=watched,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=0.2,
        extras={"row": np.arange(22)},
        progress=False,
    )
    jax.effects_barrier()
    assert len(batches) == steps * epochs
    passes = [np.concatenate(batches[i * steps : (i + 1) * steps]) for i in range(epochs)]
    assert all(sorted(rows) == list(range(22)) for rows in passes)
    assert not np.array_equal(passes[0], passes[1])
    expected = train_by_hand(data, kernel, batches, steps, epochs)
    np.testing.assert_allclose(trained.history["train_loss"][0], expected.train_loss, rtol=1e-12)
    result = trained.history["validation_log_loss"][0]
    np.testing.assert_allclose(result, expected.log_loss, rtol=1e-12)
    best = int(np.argmin(expected.log_loss))
    assert trained.best_epoch.tolist() == [best]
    parameters = trained.params["kernel"][...][0]
    assert parameters.dtype == np.float64
    np.testing.assert_allclose(parameters, expected.kernels[best], rtol=1e-12)
    logits = data.validation_inputs @ expected.kernels[best]
    np.testing.assert_allclose(trained.logits(data.validation_inputs, 0), logits, rtol=1e-12)
    right = (logits.argmax(axis=1) == data.validation_labels).mean()
    accuracy = trained.history["validation_accuracy"][0, best]
    np.testing.assert_allclose(accuracy, right, rtol=1e-12)


def test_extras_settings_images_and_augmentation_by_hand() -> None:
    # With a loss linear in the logits and rate one, a step moves the kernel by minus its gradient.
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, size=(6, 2, 2, 2), dtype=np.uint8)
    labels = np.array([0, 1, 2, 0, 1, 2])
    mean, std = np.array([0.3, 0.6]), np.array([0.2, 0.5])
    common, per_run = rng.normal(size=6), rng.normal(size=(4, 6))
    kernel = rng.normal(size=(8, 3)).astype(np.float32)

    class Flat(Fixed):
        def __call__(self, x: jax.Array) -> jax.Array:
            return super().__call__(x.reshape(len(x), -1))

    def linear(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> Any:
        shared, specific = extras
        return (weights * shared * specific * logits[:, 0]).sum() * run["factor"]

    trained = train(
        lambda rngs: Flat(kernel),
        TrainingData(images, labels, images[:3], labels[:3], mean, std),
        loss=linear,
        runs={"factor": [1.0, 2.0]},
        seeds=(0, 1),
        epochs=1,
        optimizer=optax.sgd(1.0),
        augment=lambda x, key: 3 * x,
        extras=(common, PerRun(per_run)),
        progress=False,
    )
    x = ((images / 255 - mean) / std).reshape(6, 8)
    assert trained.runs["factor"].tolist() == [1, 1, 2, 2]
    assert trained.runs["seed"].tolist() == [0, 1, 0, 1]
    expected = np.repeat(kernel[None].astype(float), 4, axis=0)
    for run, factor in enumerate((1, 1, 2, 2)):
        expected[run, :, 0] -= factor * 3 * (common * per_run[run]) @ x
    np.testing.assert_allclose(trained.params["kernel"][...], expected, rtol=2e-5, atol=2e-5)
    logits = np.einsum("nd,rdk->rnk", x, expected)
    np.testing.assert_allclose(trained.logits(images), logits, rtol=2e-5, atol=1e-4)
    result = trained.logits(images, -1, batch_size=4)
    np.testing.assert_allclose(result, logits[-1], rtol=2e-5, atol=1e-4)


@pytest.mark.slow
def test_optimizers_and_schedules_of_optax(x64: None) -> None:
    data, kernel = make_data(), np.random.default_rng(1).normal(size=(3, 3))

    def fit(**options: Any) -> Trained:
        common = {"loss": mean_cross_entropy, "epochs": 1, "progress": False, "batch_size": 11}
        return train(lambda rngs: Fixed(kernel), data, **(common | options))

    # Adam's first step has the size of the rate, with the sign of each slope.
    probs = np.exp(log_softmax(data.train_inputs @ kernel))
    slope = data.train_inputs.T @ (probs - np.eye(3)[data.train_labels])
    result = fit(optimizer=optax.adam(0.01), batch_size=22).params["kernel"][...][0]
    np.testing.assert_allclose(result, kernel - 0.01 * np.sign(slope), rtol=1e-6)
    # An equivalent optax schedule replaces the cosine for two steps.
    cosine, theirs = fit(), fit(schedule=optax.cosine_decay_schedule(0.1, 2))
    result, expected = (run.params["kernel"][...] for run in (theirs, cosine))
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    constant = fit(schedule="constant").params["kernel"][...]
    assert np.abs(constant - expected).max() > 1e-3


# --- the end of a run ---------------------------------------------------------------------------


TABLE = np.array([0.0, 1.0, 3.0, 2.0, 2.5, 4.0, 9.0, 9.0])


class Scripted(nnx.Module):
    """Its position moves by the gradient of the last logit; a table gives the first logit."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.place = nnx.Param(jnp.zeros(()))

    def __call__(self, x: jax.Array) -> jax.Array:
        position = self.place[...]
        first = jnp.interp(jax.lax.stop_gradient(position), jnp.arange(8.0), jnp.asarray(TABLE))
        return jnp.zeros((len(x), 3)) + jnp.stack([first, jnp.zeros(()), position - 100])


def test_patience_and_best_epoch() -> None:
    # At the full rate the log loss decreases up to position three, and again from six.
    data = TrainingData(np.zeros((4, 1)), [0, 1, 2, 0], np.zeros((3, 1)), [0, 0, 0])

    def move(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> Any:
        return -run["speed"] * logits[:, 2].mean()

    speeds, epochs, patience = np.array([1.0, 0.25, 0.0]), 7, 2
    trained = train(
        Scripted,
        data,
        loss=move,
        runs={"speed": speeds},
        epochs=epochs,
        optimizer=optax.sgd(1.0),
        patience=patience,
        progress=False,
    )
    assert trained.status.tolist() == ["stopped", "epochs", "stopped"]
    assert trained.best_epoch.tolist() == [1, 6, 0]
    places = speeds[:, None] * np.arange(1, epochs + 1)
    np.testing.assert_array_equal(trained.params["place"][...], [2, 1.75, 0])
    expected = np.log1p(np.exp(-np.interp(places, np.arange(8), TABLE)))
    expected[0, 4:] = expected[2, 3:] = np.nan
    result = trained.history["validation_log_loss"]
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    last = train(
        Scripted,
        data,
        loss=move,
        runs={"speed": speeds},
        epochs=epochs,
        optimizer=optax.sgd(1.0),
        patience=patience,
        keep="last",
        progress=False,
    )
    assert last.status.tolist() == ["epochs"] * 3
    assert last.best_epoch.tolist() == [6, 6, 6]
    np.testing.assert_array_equal(last.params["place"][...], 7 * speeds)


def test_diverged_run_keeps_its_best_epoch() -> None:
    data = make_data()

    def sour(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> Any:
        return mean_cross_entropy(logits, labels, weights, extras, run) * run["factor"]

    with pytest.warns(RuntimeWarning, match=r"runs \[1, 2\] of 3 diverged"):
        trained = train(
            lambda rngs: Fixed(np.full((3, 3), 0.5, np.float32)),
            data,
            loss=sour,
            runs={"factor": [1.0, 1e38, np.inf]},
            epochs=3,
            progress=False,
        )
    assert trained.status.tolist() == ["epochs", "diverged", "diverged"]
    assert trained.best_epoch[2] == -1
    np.testing.assert_array_equal(trained.params["kernel"][...][2], np.full((3, 3), 0.5))
    assert np.isfinite(trained.logits(data.train_inputs)).all()
    assert np.isnan(trained.history["validation_log_loss"][2, 1:]).all()


# --- many runs ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_runs_do_not_depend_on_each_other(uninterrupted: Trained) -> None:
    sequential = train_noisy(vectorize=False)
    alone = train_noisy(runs={"factor": [0.5]}, seeds=(7,))
    assert sequential.runs["factor"].tolist() == [1, 1, 0.5, 0.5]
    assert sequential.runs["seed"].tolist() == [3, 7, 3, 7]
    x = make_data().validation_inputs
    np.testing.assert_allclose(sequential.logits(x), uninterrupted.logits(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(alone.logits(x)[0], uninterrupted.logits(x, 3), rtol=1e-4, atol=1e-5)
    for name, values in uninterrupted.history.items():
        np.testing.assert_allclose(sequential.history[name], values, rtol=1e-4, atol=1e-5)
    # Runs differ, so that equality is meaningful.
    assert len({round(value, 4) for value in uninterrupted.history["train_loss"][:, -1]}) == 4


def test_network_of_a_run(uninterrupted: Trained) -> None:
    x = make_data().validation_inputs
    network = uninterrupted.network(2)
    logits = network(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(logits, uninterrupted.logits(x, 2), rtol=1e-5, atol=1e-6)
    # In evaluation the rows of a batch are independent, and repeated calls agree.
    first = network(jnp.asarray(x[:1], jnp.float32))
    np.testing.assert_allclose(first, logits[:1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        uninterrupted.logits(x, batch_size=4), uninterrupted.logits(x), rtol=1e-5, atol=1e-6
    )
    with pytest.raises(IndexError, match="run must be one of 4, got 4"):
        uninterrupted.network(4)
    assert uninterrupted.images_per_second > 0
    assert len(uninterrupted) == 4


# --- interruption -------------------------------------------------------------------------------


def interrupt_at(epoch: int) -> Callable[[str, int, int], None]:
    def stop(name: str, done: int, total: int) -> None:
        if done == epoch:
            raise KeyboardInterrupt

    return stop


@pytest.mark.slow
@pytest.mark.parametrize(
    ("together", "at", "every"), [(True, 3, 1), (True, 5, 2), (False, 9, 1), (True, 6, 1)]
)
def test_interrupted_training_goes_on(
    tmp_path: Path, uninterrupted: Trained, together: bool, at: int, every: int
) -> None:
    pytest.importorskip("orbax.checkpoint")
    options = {
        "checkpoint": tmp_path / "kept",
        "vectorize": together,
        "checkpoint_every": every,
    }
    with pytest.raises(KeyboardInterrupt):
        train_noisy(**options, progress=interrupt_at(at))
    calls: list[tuple[int, int]] = []
    again = train_noisy(**options, progress=lambda name, done, total: calls.append((done, total)))
    first = at // every * every + 1
    total = 6 if together else 24
    assert calls == [(done, total) for done in range(first, total + 1)]
    assert_same(again, uninterrupted if together else train_noisy(vectorize=False))
    kept = sorted(path.name for path in (tmp_path / "kept" / "runs-0000").iterdir())
    assert kept == (["4", "6"] if every == 2 else ["5", "6"])


@pytest.mark.slow
def test_checkpoint_of_other_training_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("orbax.checkpoint")
    train_noisy(epochs=1, checkpoint=tmp_path)

    def other_loss(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> Any:
        return 2 * tempered(logits, labels, weights, extras, run)

    for options, name in (
        ({"seeds": (3, 8)}, "seeds"),
        ({"runs": {"factor": [1.0, 0.6]}}, "runs"),
        ({"loss": other_loss}, "network, loss or optimizer"),
        ({"learning_rate": 0.2}, "network, loss or optimizer"),
    ):
        with pytest.raises(ValueError, match=f"differs in {name}. Pass the same"):
            train_noisy(**{"epochs": 1, "checkpoint": tmp_path, **options})


# Orbax leaves background tasks when a restoration fails.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    """Check that a flipped bit in any file gives equal numbers or a single clear error."""
    pytest.importorskip("orbax.checkpoint")
    from benchmarks.studies.training._checkpoints import Checkpoints

    arrays = {"state": {"0000": np.arange(300.0), "0001": np.ones((2, 3), np.float32)}}
    about = {"runs": {"factor": 0.5}, "seeds": [1, 2]}
    rng = np.random.default_rng(0)
    refused = 0
    for number in range(60):
        folder = tmp_path / str(number)
        with Checkpoints(folder, about) as kept:
            kept.save(7, arrays)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        path = files[number % len(files)]
        content = bytearray(path.read_bytes())
        if not content:
            continue
        position = int(rng.integers(len(content)))
        content[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(content))
        try:
            with Checkpoints(folder, about) as kept:
                result = kept.latest()
        except ValueError as error:
            assert f"{folder / '7'} is damaged: delete this folder" in str(error), path
            refused += 1
        else:
            assert result is not None
            for name, value in arrays["state"].items():
                np.testing.assert_array_equal(result["state"][name], value)
    assert refused >= 10
    gc.collect()


def test_saved_networks_are_read(tmp_path: Path, uninterrupted: Trained) -> None:
    pytest.importorskip("orbax.checkpoint")
    uninterrupted.save(tmp_path / "networks")
    again = Trained.load(tmp_path / "networks", Noisy)
    assert_same(again, uninterrupted)
    assert again.seconds == uninterrupted.seconds
    x = make_data().validation_inputs
    np.testing.assert_array_equal(again.logits(x), uninterrupted.logits(x))
    with pytest.raises(FileExistsError, match="networks exists"):
        uninterrupted.save(tmp_path / "networks")
    with pytest.raises(ValueError, match="cannot take"):
        Trained.load(tmp_path / "networks", lambda rngs: MLP(3, (4,), 3, rngs=rngs))
    with pytest.raises(FileNotFoundError, match="no folder"):
        Trained.load(tmp_path / "absent", Noisy)
    with pytest.raises(ValueError, match="must hold trained networks"):
        Trained.load(tmp_path, Noisy)


# --- networks for images ------------------------------------------------------------------------


def test_digits_are_learnt() -> None:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    x = np.round(x / 16 * 255).astype(np.uint8).reshape(-1, 8, 8, 1)
    trained = train(
        lambda rngs: MLP(64, (32,), 10, rngs=rngs),
        TrainingData(x[:1000], y[:1000], x[1000:1400], y[1000:1400], 0.3, 0.4),
        loss=mean_cross_entropy,
        epochs=5,
        batch_size=64,
        progress=False,
    )
    accuracy = (trained.logits(x[1400:], 0).argmax(axis=1) == y[1400:]).mean()
    assert accuracy > 0.9


@pytest.mark.slow
def test_residual_network_is_trained() -> None:
    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 8, 8, 1)
    trained = train(
        lambda rngs: ResNet18(10, channels=1, width=4, rngs=rngs),
        TrainingData(x[:960], y[:960], x[1000:1200], y[1000:1200], 5.0, 6.0),
        loss=mean_cross_entropy,
        epochs=3,
        batch_size=64,
        learning_rate=0.05,
        progress=False,
    )
    # Chance level is 0.1 and log 10.
    assert trained.history["validation_accuracy"][0].max() > 0.5
    assert trained.history["train_loss"][0, -1] < np.log(10) / 2
    network = trained.network()
    statistics = jax.tree.leaves(nnx.state(network, nnx.BatchStat))
    assert all(np.isfinite(values).all() for values in statistics)


# --- wrong input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"train_labels": [0, 1, 2, 3]}, ValueError, r"train_labels must be in \{0, ..., 2\}"),
        ({"validation_labels": [-1, 0]}, ValueError, "validation_labels must be in"),
        ({"validation_inputs": np.zeros((0, 3))}, ValueError, "validation_inputs must have rows"),
        ({"validation_inputs": np.zeros((2, 4))}, ValueError, r"rows of shape \(3,\)"),
        ({"train_labels": [0, 1]}, ValueError, r"train_labels must have shape \(4,\)"),
        ({"train_inputs": np.zeros((4, 3), int)}, TypeError, "uint8 or floating-point, got int64"),
        ({"train_inputs": np.zeros((4, 3), np.uint8)}, TypeError, "must both be"),
        ({"train_inputs": np.full((4, 3), np.nan)}, ValueError, "finite"),
        ({"std": 0}, ValueError, "std must be positive"),
        ({"mean": [0, 0]}, ValueError, "mean must be a number or have shape"),
    ],
)
def test_wrong_data(change: dict[str, Any], error: type[Exception], message: str) -> None:
    right = TrainingData(np.zeros((4, 3)), [0, 1, 2, 0], np.zeros((2, 3)), [0, 1])
    with pytest.raises(error, match=message):
        train(Noisy, right._replace(**change), loss=mean_cross_entropy, progress=False)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"runs": {"a": [1, 2], "b": [1]}}, ValueError, "one length, got {'a': 2, 'b': 1}"),
        ({"runs": {"seed": [1]}}, ValueError, "pass seeds"),
        ({"runs": {"a": 1.0}}, ValueError, "must be an array"),
        ({"seeds": ()}, ValueError, "seeds must be different, and at least one"),
        ({"seeds": (1, 1)}, ValueError, "seeds must be different"),
        ({"seeds": (0.5,)}, TypeError, "seeds must be integers"),
        ({"seeds": (-1,)}, ValueError, "seeds must lie in"),
        ({"extras": np.zeros(3)}, ValueError, r"extras must have shape \(4, ...\)"),
        ({"extras": PerRun(np.zeros((2, 4)))}, ValueError, r"shape \(1, 4, ...\) in PerRun"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1"),
        ({"batch_size": 2.5}, TypeError, "batch_size must be an integer"),
        ({"learning_rate": 0}, ValueError, "learning_rate must be positive"),
        ({"schedule": "linear"}, ValueError, "schedule must be one of"),
        ({"optimizer": "adam"}, TypeError, "optimizer must be an optax"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    data = TrainingData(np.zeros((4, 3)), [0, 1, 2, 0], np.zeros((2, 3)), [0, 1])
    with pytest.raises(error, match=message):
        train(Noisy, data, **({"loss": mean_cross_entropy, "progress": False} | options))


def test_wrong_networks() -> None:
    data = TrainingData(np.zeros((4, 3)), [0, 1, 2, 0], np.zeros((2, 3)), [0, 1])
    with pytest.raises(TypeError, match="must return a flax.nnx.Module, got int"):
        train(lambda rngs: 3, data, loss=mean_cross_entropy)
    with pytest.raises(ValueError, match=r"at least two classes, got \(2, 1\)"):
        train(lambda rngs: MLP(3, (), 1, rngs=rngs), data, loss=mean_cross_entropy)
    with pytest.raises(TypeError, match=r"tuple lacks train_inputs"):
        train(Noisy, (1, 2), loss=mean_cross_entropy)
