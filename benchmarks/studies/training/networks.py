"""Small networks for images, which can be trained many times, in Flax nnx.

All take images (batch, height, width, channels) or, :class:`MLP`, anything that is flattened, and
return logits (batch, classes) in the dtype of their parameters: JAX's default, float32 or float64.
Their option ``dtype`` is the dtype of products and of what layers hand on, ``jax.numpy.bfloat16``
for example; parameters, moments of batches and logits keep theirs. ``network.train()`` and
``network.eval()`` choose whether batch normalization uses the batch or its running averages.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx

from bayescal._core.execution.precision import default_dtype
from bayescal.data.checks import check_count
from benchmarks.studies.training._blocks import ConvNorm, Dense, halve
from benchmarks.studies.training._concatenating import DenseNet, Inception
from benchmarks.studies.training._residual import ResNet18, ResNet34, ResNet50

__all__ = [
    "MLP",
    "DenseNet",
    "Inception",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "Student",
    "count_parameters",
]


def count_parameters(network: nnx.Module) -> int:
    """Count the parameters that a network learns, without running averages.

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


class Student(nnx.Module):
    """A shallow convolutional network of five layers: a student for a larger teacher.

    Three batch-normalized 3x3 convolutions of once, twice and four times ``width`` channels, with
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
