"""Networks whose layers append features to earlier ones: DenseNet and Inception."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx

from bayescal._core.execution.precision import default_dtype
from bayescal.data.checks import check_count
from benchmarks.studies.training._blocks import (
    BatchNorm,
    Branches,
    Conv,
    ConvNorm,
    Dense,
    Dense2d,
    NormConv,
    Reduction,
    halve,
)


class DenseNet(nnx.Module):
    """A densely connected network with narrow layers and compression.

    In a block every layer, a 1x1 convolution to 4 ``growth`` channels and a 3x3 one to ``growth``,
    sees the features of all before it. Between blocks a 1x1 convolution keeps a share of the
    channels, and the mean of 2x2 pixels halves the image.

    Parameters
    ----------
    classes : int
    channels : int, default 3
        Of the images.
    blocks : sequence of int, default (16, 16, 16)
        Layers in each block.
    growth : int, default 12
        Channels that each layer adds; the stem has twice as many.
    compression : float, default 0.5
        The share of channels that are kept between blocks, in (0, 1].
    dtype : dtype, optional
        Of products; by default that of the parameters.
    rngs : flax.nnx.Rngs

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive integer, there is no block, or ``compression`` is not in (0, 1];
        when called, if images have another shape.

    Notes
    -----
    (batch, height, width, channels) to (batch, classes). With 10 classes: 769,162 parameters.

    References
    ----------
    G. Huang, Z. Liu, L. van der Maaten and K. Weinberger (2017), Densely connected convolutional
    networks.

    Examples
    --------
    Shapes alone, without computing anything:

    >>> from flax import nnx
    >>> from benchmarks.studies.training.networks import count_parameters
    >>> network = nnx.eval_shape(lambda: DenseNet(10, rngs=nnx.Rngs(0)))
    >>> count_parameters(network)
    769162
    """

    def __init__(
        self,
        classes: int,
        channels: int = 3,
        blocks: Sequence[int] = (16, 16, 16),
        growth: int = 12,
        compression: float = 0.5,
        *,
        dtype: Any = None,
        rngs: nnx.Rngs,
    ) -> None:
        classes, channels = check_count(classes, "classes"), check_count(channels, "channels")
        growth = check_count(growth, "growth")
        if not blocks:
            raise ValueError("blocks must name at least one block, got none")
        if not 0 < compression <= 1:
            raise ValueError(f"compression must lie in (0, 1], got {compression}")
        features = 2 * growth
        self.stem = Conv(channels, features, 3, dtype=dtype, rngs=rngs)
        layers, transitions = [], []
        for place, count in enumerate(blocks):
            if place:
                kept = max(1, int(features * compression))
                transitions.append(NormConv(features, kept, 1, dtype=dtype, rngs=rngs))
                features = kept
            block = []
            for _ in range(check_count(count, "blocks")):
                block.append(Dense2d(features, growth, dtype=dtype, rngs=rngs))
                features += growth
            layers.append(nnx.List(block))
        self.layers, self.transitions = nnx.List(layers), nnx.List(transitions)
        self.norm = BatchNorm(features)
        self.head = Dense(features, classes, dtype=dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return logits."""
        x = self.stem(images)
        for place, block in enumerate(self.layers):
            if place:
                x = halve(self.transitions[place - 1](x))
            for layer in block:
                x = layer(x)
        x = jax.nn.relu(self.norm(x)).mean(axis=(1, 2))
        return self.head(x).astype(default_dtype())


class Inception(nnx.Module):
    """A small network of Inception blocks.

    A 3x3 stem; two blocks whose four branches (1x1; 1x1 then 3x3; 1x1 then 5x5; a 3x3 mean then
    1x1) have ``width`` channels each; a reduction, which halves the image and doubles the channels;
    two blocks with branches of twice the width; the mean over the image; and a dense layer. All
    convolutions are batch-normalized.

    Parameters
    ----------
    classes : int
    channels : int, default 3
        Of the images.
    width : int, default 32
        Of a branch, and of the stem.
    dtype : dtype, optional
        Of products; by default that of the parameters.
    rngs : flax.nnx.Rngs

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive integer; when called, if images have another shape.

    Notes
    -----
    (batch, height, width, channels) to (batch, classes). With 10 classes: 653,226 parameters. Much
    smaller than the source's networks, whose idea it keeps.

    References
    ----------
    C. Szegedy, S. Ioffe, V. Vanhoucke and A. Alemi (2017), Inception-v4, Inception-ResNet and the
    impact of residual connections on learning.

    Examples
    --------
    Shapes alone, without computing anything:

    >>> from flax import nnx
    >>> from benchmarks.studies.training.networks import count_parameters
    >>> network = nnx.eval_shape(lambda: Inception(10, rngs=nnx.Rngs(0)))
    >>> count_parameters(network)
    653226
    """

    def __init__(
        self,
        classes: int,
        channels: int = 3,
        width: int = 32,
        *,
        dtype: Any = None,
        rngs: nnx.Rngs,
    ) -> None:
        classes, channels = check_count(classes, "classes"), check_count(channels, "channels")
        width = check_count(width, "width")
        self.blocks = nnx.List(
            [
                ConvNorm(channels, width, 3, dtype=dtype, rngs=rngs),
                Branches(width, width, dtype=dtype, rngs=rngs),
                Branches(4 * width, width, dtype=dtype, rngs=rngs),
                Reduction(4 * width, dtype=dtype, rngs=rngs),
                Branches(8 * width, 2 * width, dtype=dtype, rngs=rngs),
                Branches(8 * width, 2 * width, dtype=dtype, rngs=rngs),
            ]
        )
        self.head = Dense(8 * width, classes, dtype=dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return logits."""
        x = images
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=(1, 2))).astype(default_dtype())
