"""Training data: checks, and transfer to the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.execution.precision import default_dtype
from bayescal.data.checks import as_numpy, check_finite, check_labels

FIELDS = ("train_inputs", "train_labels", "validation_inputs", "validation_labels")


class TrainingData(NamedTuple):
    """Inputs and labels for training, and for validation (early stopping).

    Attributes
    ----------
    train_inputs : array of shape (n, ...)
        Images (n, height, width, channels) or features (n, d): unsigned integers of 8 bits, which
        are divided by 255, or floating-point numbers.
    train_labels : array of shape (n,)
        Class codes in {0, ..., k - 1}.
    validation_inputs : array of shape (m, ...)
    validation_labels : array of shape (m,)
    mean, std : float or array, default 0 and 1
        Subtracted from inputs (after the division), and what the result is divided by: one number,
        or one for each channel or feature, in units of the inputs after the division.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.zeros((6, 8, 8, 1), np.uint8)
    >>> data = TrainingData(images[:4], [0, 1, 0, 1], images[4:], [1, 0], mean=0.5, std=0.25)
    >>> data.train_inputs.shape
    (4, 8, 8, 1)
    """

    train_inputs: Any
    train_labels: Any
    validation_inputs: Any
    validation_labels: Any
    mean: Any = 0.0
    std: Any = 1.0


@dataclass(frozen=True)
class PerRun:
    """Values for each row that differ between runs, for the ``extras`` of :func:`train`.

    Parameters
    ----------
    values : array of shape (runs, n, ...)
        In the order of the runs: all seeds of the first combination, then all of the next.

    Examples
    --------
    >>> import numpy as np
    >>> PerRun(np.zeros((3, 100, 10))).values.shape
    (3, 100, 10)
    """

    values: Any


class Shared(NamedTuple):
    """Data on the device that all runs share."""

    inputs: jax.Array
    labels: jax.Array
    validation_inputs: jax.Array
    validation_labels: jax.Array
    mean: jax.Array
    std: jax.Array
    extras: list[jax.Array]


class Runs(NamedTuple):
    """Data that differ between runs: arrays with a leading axis of runs."""

    seed: jax.Array
    settings: dict[str, jax.Array]
    extras: list[jax.Array]


class Extras(NamedTuple):
    """Arrays with a value for each row, shared or by run, and the structure that joins them."""

    shared: list[jax.Array]
    own: list[jax.Array]
    is_own: tuple[bool, ...]
    structure: Any


def join(extras: Extras, shared: list[Any], own: list[Any]) -> Any:
    """Rebuild the user's tree for one run."""
    common, each = iter(shared), iter(own)
    return jax.tree.unflatten(
        extras.structure, [next(each if is_own else common) for is_own in extras.is_own]
    )


def normalize(inputs: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
    """Normalize inputs for a network."""
    scale = 255 if inputs.dtype == jnp.uint8 else 1
    return (inputs.astype(mean.dtype) / scale - mean) / std


def check_data(data: Any) -> tuple[np.ndarray, ...]:
    """Check inputs and labels for training and validation, and compute the moments, in NumPy."""
    missing = [name for name in FIELDS if not hasattr(data, name)]
    if missing:
        raise TypeError(
            f"data must have the attributes {', '.join(FIELDS)}, as TrainingData has; "
            f"{type(data).__name__} lacks {', '.join(missing)}"
        )
    arrays = []
    for part in ("train", "validation"):
        inputs = check_inputs(getattr(data, f"{part}_inputs"), f"{part}_inputs")
        labels = as_numpy(getattr(data, f"{part}_labels"), f"{part}_labels")
        if labels.shape != (len(inputs),):
            raise ValueError(
                f"{part}_labels must have shape ({len(inputs)},) to match {part}_inputs, "
                f"got {labels.shape}"
            )
        arrays += [inputs, labels]
    if arrays[2].shape[1:] != arrays[0].shape[1:]:
        raise ValueError(
            f"validation_inputs must have rows of shape {arrays[0].shape[1:]} like train_inputs, "
            f"got {arrays[2].shape[1:]}"
        )
    if arrays[2].dtype.kind != arrays[0].dtype.kind:
        raise TypeError(
            "train_inputs and validation_inputs must both be uint8 or both floating-point, "
            f"got {arrays[0].dtype} and {arrays[2].dtype}"
        )
    return (*arrays, *_check_moments(data, arrays[0].shape))


def check_inputs(value: Any, name: str) -> np.ndarray:
    """Check images or features with at least one row; return 8-bit integers or floats."""
    inputs = as_numpy(value, name)
    if inputs.ndim < 2 or not inputs.size:
        raise ValueError(f"{name} must have rows of at least one number, got {inputs.shape}")
    if inputs.dtype == np.uint8:
        return inputs
    if inputs.dtype.kind in "biu":
        raise TypeError(f"{name} must be uint8 or floating-point, got {inputs.dtype}")
    check_finite(inputs, name)
    return inputs


def _check_moments(data: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Compute the mean and the standard deviation for the normalization of inputs."""
    moments = []
    for name, default in (("mean", 0.0), ("std", 1.0)):
        value = as_numpy(getattr(data, name, default), name).astype(np.float64)
        if value.shape not in ((), (1,), (shape[-1],)):
            raise ValueError(
                f"{name} must be a number or have shape ({shape[-1]},), got {value.shape}"
            )
        check_finite(value, name)
        moments.append(value)
    if not (moments[1] > 0).all():
        raise ValueError(f"std must be positive, got {moments[1].tolist()}")
    return moments[0], moments[1]


def check_classes(labels: np.ndarray, classes: int, name: str) -> np.ndarray:
    """Check that labels are columns of the logits."""
    return check_labels(labels, classes, name).astype(np.int32)


def check_runs(
    runs: Mapping[str, Any] | None, seeds: Sequence[int]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """List settings and seeds with an entry for each run: all seeds of each combination."""
    numbers = list(seeds)
    for seed in numbers:
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise TypeError(f"seeds must be integers, got {seed!r}")
        if not 0 <= seed < 2**32:
            raise ValueError(f"seeds must lie in [0, 2**32), got {seed}")
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"seeds must be different, and at least one, got {numbers}")
    settings = {name: as_numpy(value, f"runs[{name!r}]") for name, value in (runs or {}).items()}
    for name, value in settings.items():
        if name == "seed":
            raise ValueError("runs must not name 'seed': pass seeds")
        if not value.ndim or not len(value):
            raise ValueError(f"runs[{name!r}] must be an array of at least one value, got {value}")
    lengths = {name: len(value) for name, value in settings.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"runs must hold arrays of one length, got {lengths}")
    count = next(iter(lengths.values()), 1)
    table = {name: np.repeat(value, len(numbers), axis=0) for name, value in settings.items()}
    return table, np.tile(np.array(numbers, np.uint32), count)


def check_extras(extras: Any, rows: int, runs: int) -> Extras:
    """Check arrays with a value for each training row, and record how to join them."""
    leaves, structure = jax.tree.flatten(extras, is_leaf=lambda leaf: isinstance(leaf, PerRun))
    shared, own = [], []
    for leaf in leaves:
        is_own = isinstance(leaf, PerRun)
        value = as_numpy(leaf.values if is_own else leaf, "extras")
        lead = (runs, rows) if is_own else (rows,)
        if value.shape[: len(lead)] != lead:
            raise ValueError(
                f"extras must have shape ({', '.join(map(str, lead))}, ...)"
                f"{' in PerRun' if is_own else ''}, one value for each row of train_inputs, "
                f"got {value.shape}"
            )
        (own if is_own else shared).append(to_device(value))
    return Extras(shared, own, tuple(isinstance(leaf, PerRun) for leaf in leaves), structure)


def to_device(value: np.ndarray) -> jax.Array:
    """Convert to a JAX array; floats get JAX's default dtype."""
    floats = value.dtype.kind not in "biu"
    return jnp.asarray(value, default_dtype() if floats else None)
