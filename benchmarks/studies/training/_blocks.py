"""Layers and blocks of the networks.

Images are (batch, height, width, channels).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bayescal._core.execution.precision import default_dtype

_MOMENTUM, _EPSILON = 0.9, 1e-5


def slide(x: jax.Array, size: int, stride: int, fill: float = 0.0) -> list[jax.Array]:
    """Return the input shifted to each of the size x size positions of a centered window."""
    pad = size // 2
    height, width = ((side - 1) // stride + 1 for side in x.shape[1:3])
    x = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill)
    ends = [(side - 1) * stride + 1 for side in (height, width)]
    return [
        x[:, i : i + ends[0] : stride, j : j + ends[1] : stride]
        for i in range(size)
        for j in range(size)
    ]


def convolve_by_product(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Compute the convolution as one matrix product, which is fastest within a loop on a CPU."""
    size, _, _, outputs = kernel.shape
    pad = size // 2
    x = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    for axis in (1, 2):
        end = x.shape[axis] - size + 1
        places = [jax.lax.slice_in_dim(x, i, i + end, stride, axis) for i in range(size)]
        x = jnp.concatenate(places, axis=-1)
    # Channels are now ordered by the window's column, its row and the channel.
    flat = x.reshape(-1, x.shape[-1]) @ kernel.swapaxes(0, 1).reshape(-1, outputs)
    return flat.reshape(*x.shape[:-1], outputs)


def convolve(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Compute the convolution by JAX's primitive."""
    pad = kernel.shape[0] // 2
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        [(pad, pad)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


class Conv(nnx.Module):
    """A convolution of odd size without bias, padded with zeros, started as by He et al. (2015)."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        *,
        stride: int = 1,
        dtype: Any = None,
        rngs: nnx.Rngs,
    ) -> None:
        start = jax.nn.initializers.he_normal()
        shape = size, size, inputs, outputs
        self.kernel = nnx.Param(start(rngs.params(), shape, default_dtype()))
        self.stride, self.dtype = stride, dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = self.kernel[...]
        if x.ndim != 4 or x.shape[-1] != kernel.shape[2]:
            raise ValueError(
                f"images must have shape (batch, height, width, {kernel.shape[2]}), got {x.shape}"
            )
        kind = self.dtype or kernel.dtype

        def by(function: Any) -> Any:
            return lambda x, kernel: function(x, kernel, self.stride)

        return jax.lax.platform_dependent(
            x.astype(kind),
            kernel.astype(kind),
            cpu=by(convolve_by_product),
            default=by(convolve),
        )


class Dense(nnx.Module):
    """A linear layer with a bias, started as by He et al. (2015)."""

    def __init__(self, inputs: int, outputs: int, *, dtype: Any = None, rngs: nnx.Rngs) -> None:
        start = jax.nn.initializers.he_normal()
        self.kernel = nnx.Param(start(rngs.params(), (inputs, outputs), default_dtype()))
        self.bias = nnx.Param(jnp.zeros(outputs, default_dtype()))
        self.dtype = dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        kind = self.dtype or self.kernel[...].dtype
        return x.astype(kind) @ self.kernel[...].astype(kind) + self.bias[...].astype(kind)


class BatchNorm(nnx.Module):
    """Normalization by the batch's moments, or by their running averages in evaluation.

    Moments are computed in the dtype of the parameters, whatever that of the input.
    """

    def __init__(self, features: int) -> None:
        kind = default_dtype()
        self.scale = nnx.Param(jnp.ones(features, kind))
        self.bias = nnx.Param(jnp.zeros(features, kind))
        self.mean = nnx.BatchStat(jnp.zeros(features, kind))
        self.var = nnx.BatchStat(jnp.ones(features, kind))
        self.use_running_average = False

    def __call__(self, x: jax.Array) -> jax.Array:
        wide = x.astype(self.scale[...].dtype)
        if self.use_running_average:
            mean, var = self.mean[...], self.var[...]
        else:
            axes = tuple(range(x.ndim - 1))
            mean, var = wide.mean(axes), wide.var(axes)
            for kept, new in ((self.mean, mean), (self.var, var)):
                kept[...] = _MOMENTUM * kept[...] + (1 - _MOMENTUM) * jax.lax.stop_gradient(new)
        factor = jax.lax.rsqrt(var + _EPSILON) * self.scale[...]
        return ((wide - mean) * factor + self.bias[...]).astype(x.dtype)


class ConvNorm(nnx.Module):
    """A convolution without bias, batch normalization and optionally ReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        *,
        stride: int = 1,
        relu: bool = True,
        dtype: Any = None,
        rngs: nnx.Rngs,
    ) -> None:
        self.conv = Conv(inputs, outputs, size, stride=stride, dtype=dtype, rngs=rngs)
        self.norm = BatchNorm(outputs)
        self.relu = relu

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.norm(self.conv(x))
        return jax.nn.relu(x) if self.relu else x


class _Added(nnx.Module):
    """Convolutions that are added to their input, or to a 1x1 convolution of it."""

    def __init__(self, layers: list[ConvNorm], shortcut: ConvNorm | None) -> None:
        self.layers, self.shortcut = nnx.List(layers), shortcut

    def __call__(self, x: jax.Array) -> jax.Array:
        known = x if self.shortcut is None else self.shortcut(x)
        for layer in self.layers:
            x = layer(x)
        return jax.nn.relu(x + known)


class Residual(_Added):
    """Two 3x3 convolutions, added to their input."""

    EXPANSION = 1

    def __init__(self, inputs: int, width: int, *, stride: int, dtype: Any, rngs: nnx.Rngs) -> None:
        options: Any = {"dtype": dtype, "rngs": rngs}
        layers = [
            ConvNorm(inputs, width, 3, stride=stride, **options),
            ConvNorm(width, width, 3, relu=False, **options),
        ]
        super().__init__(layers, _shortcut(inputs, width, stride, options))


class Bottleneck(_Added):
    """A 1x1, a 3x3 and a widening 1x1 convolution, added to their input."""

    EXPANSION = 4

    def __init__(self, inputs: int, width: int, *, stride: int, dtype: Any, rngs: nnx.Rngs) -> None:
        options: Any = {"dtype": dtype, "rngs": rngs}
        outputs = self.EXPANSION * width
        layers = [
            ConvNorm(inputs, width, 1, **options),
            ConvNorm(width, width, 3, stride=stride, **options),
            ConvNorm(width, outputs, 1, relu=False, **options),
        ]
        super().__init__(layers, _shortcut(inputs, outputs, stride, options))


def _shortcut(inputs: int, outputs: int, stride: int, options: Any) -> ConvNorm | None:
    """Return a projection of the input to the shape of the output, or None if shapes agree."""
    if stride == 1 and inputs == outputs:
        return None
    return ConvNorm(inputs, outputs, 1, stride=stride, relu=False, **options)


class NormConv(nnx.Module):
    """Batch normalization, ReLU, and a convolution without bias."""

    def __init__(self, inputs: int, outputs: int, size: int, *, dtype: Any, rngs: nnx.Rngs) -> None:
        self.norm = BatchNorm(inputs)
        self.conv = Conv(inputs, outputs, size, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.conv(jax.nn.relu(self.norm(x)))


class Dense2d(nnx.Module):
    """A layer of a dense block, which appends its features to its input."""

    def __init__(self, inputs: int, growth: int, *, dtype: Any, rngs: nnx.Rngs) -> None:
        self.narrow = NormConv(inputs, 4 * growth, 1, dtype=dtype, rngs=rngs)
        self.wide = NormConv(4 * growth, growth, 3, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, self.wide(self.narrow(x))], axis=-1)


class Branches(nnx.Module):
    """An Inception block: branches of 1x1, 3x3 and 5x5 convolutions and of a pool, side by side."""

    def __init__(self, inputs: int, width: int, *, dtype: Any, rngs: nnx.Rngs) -> None:
        def make(inputs: int, size: int) -> ConvNorm:
            return ConvNorm(inputs, width, size, dtype=dtype, rngs=rngs)

        self.one = make(inputs, 1)
        self.three = nnx.List([make(inputs, 1), make(width, 3)])
        self.five = nnx.List([make(inputs, 1), make(width, 5)])
        self.pool = make(inputs, 1)

    def __call__(self, x: jax.Array) -> jax.Array:
        three, five = (last(first(x)) for first, last in (self.three, self.five))
        mean = sum(slide(x, 3, 1)[1:], slide(x, 3, 1)[0]) / 9
        return jnp.concatenate([self.one(x), three, five, self.pool(mean)], axis=-1)


class Reduction(nnx.Module):
    """Halve height and width and double the channels by a 3x3 convolution and a 3x3 maximum."""

    def __init__(self, inputs: int, *, dtype: Any, rngs: nnx.Rngs) -> None:
        self.conv = ConvNorm(inputs, inputs, 3, stride=2, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.concatenate([self.conv(x), largest(x)], axis=-1)


def largest(x: jax.Array) -> jax.Array:
    """Compute maxima of 3x3 windows with stride 2."""
    return jnp.stack(slide(x, 3, 2, -jnp.inf)).max(axis=0)


def halve(x: jax.Array) -> jax.Array:
    """Compute means of 2x2 windows with stride 2, without the last odd row or column."""
    if min(x.shape[1:3]) < 2:
        return x
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(batch, height // 2, 2, width // 2, 2, channels).mean(axis=(2, 4))
