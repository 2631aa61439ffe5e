"""The contract of a generative family: exponential-family densities for each class.

Class-conditional densities have the form

    log p(x | y, theta) = features(x) . natural_y(theta),

so that the log odds between classes are linear in the features, the likelihood needs only the sum
of the features in each class, and one implementation of every integrator serves all families.
"""

from __future__ import annotations

import abc
from types import ModuleType

import numpy as np

from bayescal._core.arrays import Array, ArrayT, Params
from bayescal._core.lazy import jax, jnp


class Family(abc.ABC):
    """A family of class-conditional densities; subclasses have no state except static sizes.

    A new family implements ``name``, ``parameters``, ``features``, ``natural``, ``sample`` and, if
    they differ from the defaults, ``classes``, ``univariate``, ``check_support``, ``coordinate``,
    ``origin`` and ``event_shapes``. ``xp`` is NumPy or ``jax.numpy``: features work with both.
    """

    name: str
    parameters: tuple[str, ...]
    classes: int = 2
    univariate: bool = True
    #: Whether features are probabilities of the classes.
    of_classes: bool = False

    # Families are static arguments of compiled programs, so copies from other processes must be
    # equal.
    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self).items())))

    @abc.abstractmethod
    def features(self, x: ArrayT, origin: Array, xp: ModuleType) -> ArrayT:
        """Compute the features (..., p) of points ``x`` (...) or (..., d); the first is 1."""

    @abc.abstractmethod
    def natural(self, params: Params, origin: jax.Array) -> jax.Array:
        """Compute the coefficients (classes, p) of the features for one parameter vector.

        Parameters outside their domain give NaN, which counts as a likelihood of zero.
        """

    @abc.abstractmethod
    def sample(self, params: Params, labels: jax.Array, key: jax.Array) -> jax.Array:
        """Draw one observation for each label in ``labels`` (n,)."""

    @staticmethod
    def of_label(params: Params, name: str, labels: jax.Array) -> jax.Array:
        """Select parameter ``name`` of each label's class (n,), whose name ends with 0 or 1."""
        return jnp.where(labels == 1, params[f"{name}1"], params[f"{name}0"])

    def check_support(self, x: np.ndarray, name: str) -> None:  # noqa: B027
        """Raise ``ValueError`` if a point is outside the support of the densities."""

    def coordinate(self, x: ArrayT, xp: ModuleType) -> ArrayT:
        """Map univariate ``x`` to a line on which log odds are smooth with bounded slope."""
        return x

    def from_coordinate(self, z: ArrayT, xp: ModuleType) -> ArrayT:
        """Invert ``coordinate``."""
        return z

    def origin(self, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the point that features are measured from, which avoids cancellation."""
        return np.zeros(x.shape[2:])

    def event_shapes(self, dim: int) -> dict[str, tuple[tuple[int, ...], ...]]:
        """Return the shapes that each parameter may have for ``dim`` features.

        A scalar is repeated to the first shape if scalars are not among them.
        """
        return {name: ((),) for name in self.parameters}


def log_positive(x: ArrayT, xp: ModuleType) -> ArrayT:
    """Compute the logarithm of positive numbers, at least that of the smallest normal one.

    JAX takes smaller numbers for zero.
    """
    return xp.log(xp.maximum(x, xp.finfo(x.dtype).tiny))
