"""Networks for images, small enough to be trained many times; in Flax nnx.

All take images (batch, height, width, channels) or, :class:`MLP`, anything that is flattened, and
return logits (batch, classes) in the dtype of their parameters: JAX's default, float32 or float64.
Their option ``dtype`` is the dtype of products and of what layers hand on, ``jax.numpy.bfloat16``
for example; parameters, moments of batches and logits keep theirs. ``network.train()`` and
``network.eval()`` choose whether batch normalisation uses the batch or its running averages.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx

from bayescal._core.checks import check_count
from bayescal._core.precision import default_dtype
from benchmarks.studies.training._blocks import (
    ConvNorm,
    Dense,
    Residual,
    halve,
    largest,
)
from benchmarks.studies.training._concatenating import DenseNet, Inception

__all__ = ["MLP", "DenseNet", "Inception", "ResNet18", "Student", "count_parameters"]


def count_parameters(network: nnx.Module) -> int:
    """Return how many numbers a network learns; running averages are not among them.

    Parameters
    ----------
    network : flax.nnx.Module

    Returns
    -------
    int
        The total size of its ``nnx.Param`` variables.

    Raises
    ------
    TypeError
        If it is no module of Flax nnx.

    Examples
    --------
    >>> count_parameters(MLP(64, (64,), 10, rngs=nnx.Rngs(0)))
    4810
    """
    if not isinstance(network, nnx.Module):
        raise TypeError(f"network must be a flax.nnx.Module, got {type(network).__name__}")
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(network, nnx.Param)))


class MLP(nnx.Module):
    r"""Dense layers with positive parts between them.

    .. math:: h_0 = x, \qquad h_{l} = \max(W_l h_{l-1} + b_l, 0), \qquad f = W h_L + b.

    Without hidden layers it is multinomial logistic regression.

    Parameters
    ----------
    features : int
        Numbers in one input, after flattening.
    hidden : sequence of int
        Widths of the hidden layers.
    classes : int
    dtype : dtype, optional
        Of products; by default that of the parameters.
    rngs : flax.nnx.Rngs

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive integer; when called, if inputs have other features.

    Notes
    -----
    (batch, ...) to (batch, classes). Features 64, hidden (64,) and 10 classes: 4,810 parameters.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> MLP(64, (32,), 10, rngs=nnx.Rngs(0))(jnp.zeros((5, 8, 8, 1))).shape
    (5, 10)
    """

    def __init__(
        self,
        features: int,
        hidden: Sequence[int],
        classes: int,
        *,
        dtype: Any = None,
        rngs: nnx.Rngs,
    ) -> None:
        self.features = check_count(features, "features")
        sizes = [self.features, *(check_count(width, "hidden") for width in hidden)]
        sizes.append(check_count(classes, "classes"))
        pairs = itertools.pairwise(sizes)
        self.layers = nnx.List([Dense(a, b, dtype=dtype, rngs=rngs) for a, b in pairs])

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Return logits."""
        x = inputs.reshape(len(inputs), -1)
        if x.shape[1] != self.features:
            raise ValueError(f"inputs must have {self.features} features, got {x.shape[1]}")
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x).astype(default_dtype())


class ResNet18(nnx.Module):
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

    >>> network = nnx.eval_shape(lambda: ResNet18(10, rngs=nnx.Rngs(0)))
    >>> count_parameters(network)
    11173962
    """

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
        for factor in (1, 2, 4, 8):
            for place in range(2):
                stride = 2 if factor > 1 and place == 0 else 1
                outputs = width * factor
                blocks.append(Residual(inputs, outputs, stride=stride, dtype=dtype, rngs=rngs))
                inputs = outputs
        self.blocks = nnx.List(blocks)
        self.head = Dense(inputs, classes, dtype=dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return logits."""
        x = self.stem(images)
        x = x if self.small_images else largest(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=(1, 2))).astype(default_dtype())


class Student(nnx.Module):
    """A shallow convolutional network of five layers, to be taught by a larger one.

    Three batch-normalised 3x3 convolutions of once, twice and four times ``width`` channels, with
    means of 2x2 pixels after the first two; the mean over the image; and two dense layers, the
    first of four times ``width``.

    Parameters
    ----------
    classes : int
    channels : int, default 3
        Of the images.
    width : int, default 32
    dtype : dtype, optional
        Of products; by default that of the parameters.
    rngs : flax.nnx.Rngs

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive integer; when called, if images have another shape.

    Notes
    -----
    (batch, height, width, channels) to (batch, classes). With 10 classes: 111,274 parameters.

    References
    ----------
    G. Hinton, O. Vinyals and J. Dean (2015), Distilling the knowledge in a neural network, for the
    use of such a network; M. Maher (2020), section 7.3, for its depth.

    Examples
    --------
    Shapes alone, without computing anything:

    >>> network = nnx.eval_shape(lambda: Student(10, rngs=nnx.Rngs(0)))
    >>> count_parameters(network)
    111274
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
        self.first = ConvNorm(channels, width, 3, dtype=dtype, rngs=rngs)
        self.second = ConvNorm(width, 2 * width, 3, dtype=dtype, rngs=rngs)
        self.third = ConvNorm(2 * width, 4 * width, 3, dtype=dtype, rngs=rngs)
        self.hidden = Dense(4 * width, 4 * width, dtype=dtype, rngs=rngs)
        self.head = Dense(4 * width, classes, dtype=dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return logits."""
        x = self.third(halve(self.second(halve(self.first(images)))))
        x = jax.nn.relu(self.hidden(x.mean(axis=(1, 2))))
        return self.head(x).astype(default_dtype())
