"""Networks for images: their sizes, their layers by hand, and their dtypes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("flax")

from flax import nnx
from scipy.signal import correlate

from benchmarks.studies.training import _blocks
from benchmarks.studies.training.networks import (
    MLP,
    DenseNet,
    Inception,
    ResNet18,
    ResNet34,
    ResNet50,
    Student,
    count_parameters,
)


def count(make: Callable[..., Any], *args: Any, **options: Any) -> int:
    return count_parameters(nnx.eval_shape(lambda: make(*args, **options, rngs=nnx.Rngs(0))))


# --- sizes --------------------------------------------------------------------------------------


def conv(inputs: int, outputs: int, size: int) -> int:
    return inputs * outputs * size**2


def conv_norm(inputs: int, outputs: int, size: int) -> int:
    return conv(inputs, outputs, size) + 2 * outputs


def dense(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def resnet(classes: int, channels: int, width: int, counts: tuple[int, ...]) -> int:
    total, inputs = conv_norm(channels, width, 3), width
    for outputs, blocks in zip((width, 2 * width, 4 * width, 8 * width), counts, strict=True):
        if outputs != inputs:
            total += conv_norm(inputs, outputs, 1)
        total += conv_norm(inputs, outputs, 3) + (2 * blocks - 1) * conv_norm(outputs, outputs, 3)
        inputs = outputs
    return total + dense(inputs, classes)


def bottlenecks(classes: int, channels: int, width: int) -> int:
    total, inputs = conv_norm(channels, width, 3), width
    for w, blocks in ((width, 3), (2 * width, 4), (4 * width, 6), (8 * width, 3)):
        total += conv_norm(inputs, 4 * w, 1)
        for width_in in (inputs, *[4 * w] * (blocks - 1)):
            total += conv_norm(width_in, w, 1) + conv_norm(w, w, 3) + conv_norm(w, 4 * w, 1)
        inputs = 4 * w
    return total + dense(inputs, classes)


def test_published_parameter_counts() -> None:
    # Residual networks for CIFAR-10 and for ImageNet, and DenseNet-BC with 100 layers.
    assert count(ResNet18, 10) == 11_173_962
    assert count(ResNet18, 1000, small_images=False) == 11_689_512
    assert count(ResNet34, 10) == 21_282_122
    assert count(ResNet34, 1000, small_images=False) == 21_797_672
    assert count(ResNet50, 10) == 23_520_842
    assert count(ResNet50, 1000, small_images=False) == 25_557_032
    assert count(DenseNet, 10) == 769_162


def test_parameter_counts_of_other_sizes() -> None:
    assert count(ResNet18, 7, 2, 3) == resnet(7, 2, 3, (2, 2, 2, 2))
    assert count(ResNet34, 7, 2, 3) == resnet(7, 2, 3, (3, 4, 6, 3))
    assert count(ResNet50, 100) == bottlenecks(100, 3, 64) == 23_705_252
    assert count(ResNet50, 7, 2, 3) == bottlenecks(7, 2, 3)
    assert count(MLP, 64, (64,), 10) == dense(64, 64) + dense(64, 10) == 4_810
    assert count(MLP, 5, (), 3) == 18
    assert count(MLP, 5, (4, 2), 3) == dense(5, 4) + dense(4, 2) + dense(2, 3)
    for classes, channels, w in ((10, 3, 32), (4, 1, 5)):
        convs = conv_norm(channels, w, 3) + conv_norm(w, 2 * w, 3) + conv_norm(2 * w, 4 * w, 3)
        expected = convs + dense(4 * w, 4 * w) + dense(4 * w, classes)
        assert count(Student, classes, channels, w) == expected
        expected = conv_norm(channels, w, 3) + conv_norm(4 * w, 4 * w, 3) + dense(8 * w, classes)
        for inputs, u in ((w, w), (4 * w, w), (8 * w, 2 * w), (8 * w, 2 * w)):
            expected += 4 * conv_norm(inputs, u, 1) + conv_norm(u, u, 3) + conv_norm(u, u, 5)
        assert count(Inception, classes, channels, w) == expected
    # The stem has 2 g channels; layers see 2 g and 3 g; a quarter of 4 g is kept; the last sees g.
    g = 4
    layers = [2 * s + conv(s, 4 * g, 1) + 8 * g + conv(4 * g, g, 3) for s in (2 * g, 3 * g, g)]
    between = 2 * 4 * g + conv(4 * g, g, 1)
    expected = conv(1, 2 * g, 3) + sum(layers) + between + 2 * 2 * g + dense(2 * g, 3)
    assert count(DenseNet, 3, 1, (2, 1), g, 0.25) == expected


def test_counting_needs_a_network() -> None:
    with pytest.raises(TypeError, match="must be a flax.nnx.Module, got int"):
        count_parameters(3)  # type: ignore[arg-type]


# --- layers by hand -----------------------------------------------------------------------------


def correlate_by_hand(x: np.ndarray, kernel: np.ndarray, stride: int) -> np.ndarray:
    every = [
        [
            sum(
                correlate(image[..., c], kernel[..., c, out], mode="same", method="direct")
                for c in range(image.shape[-1])
            )
            for out in range(kernel.shape[-1])
        ]
        for image in x
    ]
    return np.moveaxis(np.array(every), 1, -1)[:, ::stride, ::stride]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_convolutions(x64: None, size: int, stride: int) -> None:
    rng = np.random.default_rng(size)
    x, kernel = rng.normal(size=(2, 7, 6, 3)), rng.normal(size=(size, size, 3, 4))
    expected = correlate_by_hand(x, kernel, stride)
    for function in (_blocks.convolve, _blocks.convolve_by_product):
        result = function(jnp.asarray(x), jnp.asarray(kernel), stride)
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


def test_gradient_and_batches_of_convolution(x64: None) -> None:
    # Compare the CPU version with JAX's, with gradients and over many kernels.
    rng = np.random.default_rng(0)
    x, kernels = (
        jnp.asarray(rng.normal(size=(2, 5, 5, 2))),
        jnp.asarray(rng.normal(size=(3, 3, 3, 2, 2))),
    )

    def slope(function: Any) -> Any:
        def total(x: Any, kernel: Any) -> Any:
            return jnp.sin(function(x, kernel, 2)).sum()

        return jax.jit(jax.vmap(jax.grad(total, argnums=(0, 1)), in_axes=(None, 0)))(x, kernels)

    for one, other in zip(slope(_blocks.convolve), slope(_blocks.convolve_by_product), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_normalization_by_hand(x64: None) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(2.0, 3.0, size=(6, 2, 3, 4))
    norm = _blocks.BatchNorm(4)
    norm.scale[...], norm.bias[...] = jnp.array([1.0, 2, 3, 4]), jnp.array([0.0, 1, 2, 3])
    mean, var = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    scale, bias = np.arange(1, 5), np.arange(4)
    expected = (x - mean) / np.sqrt(var + 1e-5) * scale + bias
    np.testing.assert_allclose(norm(jnp.asarray(x)), expected, rtol=1e-12)
    np.testing.assert_allclose(norm.mean[...], 0.1 * mean, rtol=1e-12)
    np.testing.assert_allclose(norm.var[...], 0.9 + 0.1 * var, rtol=1e-12)
    norm.eval()
    for _ in range(2):
        expected = (x - 0.1 * mean) / np.sqrt(0.9 + 0.1 * var + 1e-5) * scale + bias
        np.testing.assert_allclose(norm(jnp.asarray(x)), expected, rtol=1e-12)


def test_pools_by_hand() -> None:
    x = np.random.default_rng(0).normal(size=(2, 5, 4, 1)).astype(np.float32)
    halves = x[:, :4].reshape(2, 2, 2, 2, 2, 1).mean(axis=(2, 4))
    np.testing.assert_allclose(_blocks.halve(jnp.asarray(x)), halves, rtol=1e-5, atol=1e-6)
    assert _blocks.halve(jnp.zeros((1, 1, 3, 2))).shape == (1, 1, 3, 2)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    largest = np.array(
        [
            [[padded[b, i : i + 3, j : j + 3].max() for j in (0, 2)] for i in (0, 2, 4)]
            for b in range(2)
        ]
    )
    np.testing.assert_array_equal(_blocks.largest(jnp.asarray(x))[..., 0], largest)


@pytest.mark.parametrize("stride", [1, 2])
def test_bottleneck_by_hand(x64: None, stride: int) -> None:
    block = _blocks.Bottleneck(2, 3, stride=stride, dtype=None, rngs=nnx.Rngs(0))
    block.eval()  # default moments: means 0, variances 1
    x = np.random.default_rng(0).normal(size=(2, 5, 4, 2))

    def normed(layer: Any, x: np.ndarray, stride: int) -> np.ndarray:
        kernel = np.asarray(layer.conv.kernel[...])
        return correlate_by_hand(x, kernel, stride) / np.sqrt(1 + 1e-5)

    narrow = np.maximum(normed(block.layers[0], x, 1), 0)
    wide = np.maximum(normed(block.layers[1], narrow, stride), 0)
    added = normed(block.layers[2], wide, 1) + normed(block.shortcut, x, stride)
    np.testing.assert_allclose(block(jnp.asarray(x)), np.maximum(added, 0), rtol=1e-10, atol=1e-12)


def test_dense_layers_by_hand(x64: None) -> None:
    network = MLP(6, (5,), 3, rngs=nnx.Rngs(0))
    x = np.random.default_rng(0).normal(size=(4, 3, 2))
    first, last = ((np.asarray(layer.kernel[...]), layer.bias) for layer in network.layers)
    first[1][...], last[1][...] = jnp.linspace(-1, 1, 5), jnp.array([1.0, 2, 3])
    hidden = np.maximum(x.reshape(4, 6) @ first[0] + np.linspace(-1, 1, 5), 0)
    np.testing.assert_allclose(network(jnp.asarray(x)), hidden @ last[0] + [1, 2, 3], rtol=1e-12)
    with pytest.raises(ValueError, match="inputs must have 6 features, got 4"):
        network(jnp.zeros((2, 4)))


# --- whole networks -----------------------------------------------------------------------------

SMALL = {
    "resnet": lambda rngs: ResNet18(4, 1, 2, rngs=rngs),
    "bottlenecks": lambda rngs: ResNet50(4, 1, 2, rngs=rngs),
    "large": lambda rngs: ResNet18(4, 1, 2, small_images=False, rngs=rngs),
    "densenet": lambda rngs: DenseNet(4, 1, (2, 1), 2, rngs=rngs),
    "inception": lambda rngs: Inception(4, 1, 2, rngs=rngs),
    "student": lambda rngs: Student(4, 1, 2, rngs=rngs),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("side", [8, 9])
def test_shapes(name: str, side: int) -> None:
    def run(images: Any) -> Any:
        return SMALL[name](nnx.Rngs(0))(images)

    images = jax.ShapeDtypeStruct((3, side, side, 1), jnp.float32)
    result = jax.eval_shape(run, images)
    assert (result.shape, result.dtype) == ((3, 4), jnp.float32)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("shape", [(3, 8, 8, 2), (3, 8, 8), (3, 64)])
def test_images_of_another_shape(name: str, shape: tuple[int, ...]) -> None:
    message = r"images must have shape \(batch, height, width, 1\), got"
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: SMALL[name](nnx.Rngs(0))(jnp.zeros(shape)))


def test_training_and_evaluation_differ() -> None:
    rng = np.random.default_rng(0)
    structure, state = nnx.split(nnx.eval_shape(lambda: SMALL["student"](nnx.Rngs(0))))
    # Positive, since the state includes variances.
    state = jax.tree.map(lambda leaf: jnp.asarray(rng.uniform(0.2, 1, leaf.shape), "f4"), state)

    @jax.jit
    def logits(state: Any, images: Any) -> Any:
        network = nnx.merge(structure, state, copy=True)
        network.train()
        first = network(images)
        network.eval()
        return first, network(images)

    images = rng.normal(size=(5, 8, 8, 1)).astype(np.float32)
    train, evaluated = logits(state, images)
    assert not np.allclose(train, evaluated, rtol=1e-2)
    changed = images.copy()
    changed[1:] += 3 * images[:4]
    other = logits(state, changed)
    # The batch before moved the state that evaluation uses.
    assert not np.allclose(other[0][0], train[0], rtol=1e-2)
    assert not np.allclose(other[1][0], evaluated[0], rtol=1e-3)


def test_evaluation_is_by_row() -> None:
    rng = np.random.default_rng(0)
    norm = _blocks.ConvNorm(1, 2, 3, rngs=nnx.Rngs(0))
    norm.norm.mean[...], norm.norm.var[...] = jnp.array([0.1, 0.2]), jnp.array([0.5, 2.0])
    norm.eval()
    images = jnp.asarray(rng.normal(size=(5, 4, 4, 1)), jnp.float32)
    every = norm(images)
    np.testing.assert_allclose(norm(images[:1]), every[:1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(norm(images), every)
    np.testing.assert_array_equal(norm.norm.mean[...], np.float32([0.1, 0.2]))


def test_narrow_products_keep_wide_parameters() -> None:
    def run(images: Any) -> Any:
        network = Student(4, 1, 2, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
        hidden = network.first(images)
        return hidden, network(images), nnx.state(network)

    hidden, out, state = jax.eval_shape(run, jax.ShapeDtypeStruct((2, 8, 8, 1), jnp.float32))
    assert hidden.dtype == jnp.bfloat16
    assert out.dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {np.dtype(np.float32)}


def test_float64(x64: None) -> None:
    def run(images: Any) -> Any:
        network = Student(4, 1, 2, rngs=nnx.Rngs(0))
        return network(images), nnx.state(network)

    out, state = jax.eval_shape(run, jax.ShapeDtypeStruct((2, 8, 8, 1), jnp.float64))
    assert {leaf.dtype for leaf in jax.tree.leaves((out, state))} == {np.dtype(np.float64)}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda rngs: ResNet18(0, rngs=rngs), ValueError, "classes must be at least 1"),
        (lambda rngs: Student(4, 1.5, rngs=rngs), TypeError, "channels must be an integer"),
        (lambda rngs: Inception(4, 1, 0, rngs=rngs), ValueError, "width must be at least 1"),
        (lambda rngs: DenseNet(4, blocks=(), rngs=rngs), ValueError, "at least one block"),
        (lambda rngs: DenseNet(4, compression=0, rngs=rngs), ValueError, r"lie in \(0, 1\]"),
        (lambda rngs: MLP(4, (0,), 2, rngs=rngs), ValueError, "hidden must be at least 1"),
    ],
)
def test_wrong_sizes(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(nnx.Rngs(0))
