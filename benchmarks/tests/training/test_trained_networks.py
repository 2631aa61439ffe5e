"""Training of networks that concatenate features, and counted operations of the benchmark."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

pytest.importorskip("flax")

from flax import nnx

from bayescal.losses import cross_entropy
from benchmarks import bench_training as bench
from benchmarks.studies.training.data import made_images
from benchmarks.studies.training.networks import MLP, DenseNet, Inception, ResNet18, Student
from benchmarks.studies.training.trainer import Trained, TrainingData, train

# --- networks fit few images --------------------------------------------------------------------

CLASSES = 4


def weighted(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> Any:
    return cross_entropy(logits, labels, weights=weights)


def fit(make_network: Callable[[nnx.Rngs], Any], size: int) -> Trained:
    """Train 100 steps on 64 images without decay, so that only gradients change parameters."""
    images = made_images(train=64, test=64, classes=CLASSES, size=size, noise=0.5, shift=0)
    return train(
        make_network,
        TrainingData(
            images.train_images, images.train_labels, images.test_images, images.test_labels
        ),
        loss=weighted,
        epochs=25,
        batch_size=16,
        patience=25,
        optimizer=optax.sgd(optax.cosine_decay_schedule(0.03, 100), momentum=0.9),
        progress=False,
    )


def check_fit(trained: Trained) -> None:
    history = trained.history
    # Chance level is log 4 and 0.25. A batch without one class has unusual moments and then a large
    # loss, so a single epoch is not a measure.
    assert np.median(history["train_loss"][0, -5:]) < np.log(CLASSES) / 4
    assert history["validation_log_loss"][0].min() < np.log(CLASSES) / 2
    assert history["validation_accuracy"][0, trained.best_epoch[0]] > 0.8
    # Every layer was trained: scales start at one, and biases at zero.
    starts = {"scale": 1.0, "bias": 0.0}
    leaves = jax.tree_util.tree_leaves_with_path(trained.params)
    names = [[str(getattr(key, "key", "")) for key in path] for path, _ in leaves]
    begun = [next((starts[name] for name in path if name in starts), None) for path in names]
    assert sum(start is not None for start in begun) > len(leaves) / 2
    for path, start, (_, leaf) in zip(names, begun, leaves, strict=True):
        assert start is None or np.abs(np.asarray(leaf) - start).max() > 1e-4, path


@pytest.mark.slow
def test_dense_network_fits() -> None:
    check_fit(fit(lambda rngs: DenseNet(CLASSES, 1, (2, 2), 4, rngs=rngs), 8))


@pytest.mark.slow
def test_inception_fits() -> None:
    check_fit(fit(lambda rngs: Inception(CLASSES, 1, 4, rngs=rngs), 8))


# --- the benchmark ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make_network",
    [
        lambda rngs: MLP(64, (), 3, rngs=rngs),
        pytest.param(lambda rngs: Student(3, 1, 2, rngs=rngs), marks=pytest.mark.slow),
    ],
    ids=["mlp", "student"],
)
def test_plain_loop_makes_the_steps_of_train(x64: None, make_network: Any) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(48, 8, 8, 1), dtype=np.uint8)
    labels = rng.integers(3, size=48)
    task = bench.Task(
        "",
        make_network,
        TrainingData(images[:32], labels[:32], images[32:], labels[32:], 0.5, 0.25),
        multiply_adds=0,
        batch=8,
        epochs=3,
        many=None,
    )
    trained = bench.by_train(task)
    with jax.numpy_dtype_promotion("standard"):
        plain = bench.by_hand(task)
    np.testing.assert_allclose(trained.train_loss, plain.train_loss, rtol=1e-10)
    np.testing.assert_allclose(trained.log_loss, plain.log_loss, rtol=1e-10)
    assert len(set(plain.train_loss)) == len(trained.ended) == len(plain.ended) == task.epochs


ROWS, SIDE, WIDTHS = 2, 10, (2, 4, 6)


@cache
def jax_count(name: str, width: int, channels: int, classes: int, training: bool) -> float:
    """Return JAX's operation count for ROWS images on a CPU: products and linear operations."""

    def make() -> Any:
        rngs = nnx.Rngs(0)
        if name == "mlp":
            return MLP(SIDE**2 * channels, (width, width), classes, rngs=rngs)
        return {"student": Student, "resnet18": ResNet18}[name](classes, channels, width, rngs=rngs)

    network = nnx.eval_shape(make)
    (network.train if training else network.eval)()
    structure, params, rest = nnx.split(network, nnx.Param, ...)

    def logits(params: Any, rest: Any, images: Any) -> Any:
        return nnx.merge(structure, params, rest, copy=True)(images)

    function = jax.grad(lambda *args: logits(*args).sum()) if training else logits
    images = jax.ShapeDtypeStruct((ROWS, SIDE, SIDE, channels), jnp.float32)
    with jax.default_device(jax.devices("cpu")[0]):
        result = jax.jit(function).lower(params, rest, images).cost_analysis()
    if not result or "flops" not in result:
        pytest.skip("this version of JAX counts no operations")
    return result["flops"]


def benchmark_count(name: str, width: int, channels: int, classes: int) -> int:
    """Return the benchmark's count for ROWS images, with multiplications and additions."""
    if name == "mlp":
        one = bench.of_mlp(SIDE**2 * channels, (width, width), classes)
    else:
        one = getattr(bench, f"of_{name}")(classes, channels, width, SIDE)
    return 2 * ROWS * one


@pytest.mark.slow
# Only products grow with the square of the width, so second differences isolate them.
@pytest.mark.parametrize(
    ("name", "training"), [("mlp", True), ("student", True), ("resnet18", False)]
)
def test_products_that_grow_with_the_square(name: str, training: bool) -> None:
    measured = np.diff([jax_count(name, width, 1, 3, training) for width in WIDTHS], 2)
    expected = np.diff([benchmark_count(name, width, 1, 3) for width in WIDTHS], 2)
    assert measured == (3 if training else 1) * expected
    assert expected > 0


# More channels and classes add products, and one bias per class.
@pytest.mark.parametrize("name", ["mlp", "student", "resnet18"])
def test_products_at_both_ends(name: str) -> None:
    begin = jax_count(name, 2, 1, 3, False)
    known = benchmark_count(name, 2, 1, 3)
    assert jax_count(name, 2, 3, 3, False) - begin == benchmark_count(name, 2, 3, 3) - known
    further = jax_count(name, 2, 1, 5, False) - begin
    assert further == benchmark_count(name, 2, 1, 5) - known + 2 * ROWS
