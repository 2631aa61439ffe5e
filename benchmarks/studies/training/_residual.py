"""Residual networks of 18, 34 and 50 layers, for small images and for large ones."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from bayescal._core.execution.precision import default_dtype
from bayescal.data.checks import check_count
from benchmarks.studies.training._blocks import Bottleneck, ConvNorm, Dense, Residual, largest


class _ResNet(nnx.Module):
    """A stem, four groups of blocks, the mean over the image, and a dense layer."""

    #: Blocks of each group, and what they are.
    _counts: tuple[int, ...] = (2, 2, 2, 2)
    _block: type[Residual] | type[Bottleneck] = Residual

    def __init__(
        self,
        classes: int,
        channels: int = 3,
        width: int = 64,
        small_images: bool = True,
        *,
        dtype: Any = None,
        rngs: nnx.Rngs,
    ) -> None:
        classes, channels = check_count(classes, "classes"), check_count(channels, "channels")
        width = check_count(width, "width")
        size, stride = (3, 1) if small_images else (7, 2)
        self.stem = ConvNorm(channels, width, size, stride=stride, dtype=dtype, rngs=rngs)
        self.small_images = small_images
        blocks, inputs = [], width
        for group, count in enumerate(self._counts):
            for place in range(count):
                stride = 2 if group > 0 and place == 0 else 1
                wide = width * 2**group
                blocks.append(self._block(inputs, wide, stride=stride, dtype=dtype, rngs=rngs))
                inputs = wide * self._block.EXPANSION
        self.blocks = nnx.List(blocks)
        self.head = Dense(inputs, classes, dtype=dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return logits."""
        x = self.stem(images)
        x = x if self.small_images else largest(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=(1, 2))).astype(default_dtype())


class ResNet18(_ResNet):
    """A residual network of 18 layers.

    A stem, eight residual blocks of two 3x3 convolutions each, whose channels are once, twice, four
    and eight times ``width`` and whose images shrink by half three times, the mean over the image,
    and a dense layer.

    Parameters
    ----------
    classes : int
    channels : int, default 3
        Of the images.
    width : int, default 64
        Channels of the first blocks.
    small_images : bool, default True
        Whether the stem is a 3x3 convolution, for images of about 32x32 or less; otherwise one of
        7x7 at every second place, and a maximum at every second place.
    dtype : dtype, optional
        Of products; by default that of the parameters.
    rngs : flax.nnx.Rngs

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive integer; when called, if images have another shape.

    Notes
    -----
    (batch, height, width, channels) to (batch, classes). With 10 classes: 11,173,962 parameters.

    References
    ----------
    K. He, X. Zhang, S. Ren and J. Sun (2016), Deep residual learning for image recognition.

    Examples
    --------
    Shapes alone, without computing anything:

    >>> from benchmarks.studies.training.networks import count_parameters
    >>> network = nnx.eval_shape(lambda: ResNet18(10, rngs=nnx.Rngs(0)))
    >>> count_parameters(network)
    11173962
    """


class ResNet34(_ResNet):
    """A residual network of 34 layers: 3, 4, 6 and 3 blocks in place of :class:`ResNet18`'s two.

    Parameters, errors and reference are those of :class:`ResNet18`.

    Notes
    -----
    With 10 classes: 21,282,122 parameters.

    Examples
    --------
    >>> from benchmarks.studies.training.networks import count_parameters
    >>> network = nnx.eval_shape(lambda: ResNet34(10, rngs=nnx.Rngs(0)))
    >>> count_parameters(network)
    21282122
    """

    _counts = (3, 4, 6, 3)


class ResNet50(_ResNet):
    """A residual network of 50 layers: the 3, 4, 6 and 3 blocks are bottlenecks.

    A bottleneck is a 1x1 convolution, a 3x3 one, at every second place where images shrink, and a
    1x1 one to four times as many channels. Parameters, errors and reference are those of
    :class:`ResNet18`.

    Notes
    -----
    With 10 classes 23,520,842 parameters, with 100 classes 23,705,252.

    Examples
    --------
    >>> from benchmarks.studies.training.networks import count_parameters
    >>> network = nnx.eval_shape(lambda: ResNet50(10, rngs=nnx.Rngs(0)))
    >>> count_parameters(network)
    23520842
    """

    _counts = (3, 4, 6, 3)
    _block = Bottleneck
