"""What a calibration map of binary scores writes, and the registry that finds it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, TypeVar

import numpy as np

#: What a map works on: P(class 1), log odds, log odds or any other real number whose size counts,
#: or any numbers of which only the order counts.
Domain = Literal["probability", "log_odds", "real", "any"]
#: A fitted map: arrays by name. Names become fitted attributes of the estimator, ending in _.
State = dict[str, np.ndarray]

REGISTRY: dict[str, type[Map]] = {}


class Map(ABC):
    """A calibration map: options as fields of a frozen dataclass, a fit and its application.

    Everything is NumPy on the host, float64; the estimator has checked and converted the input, and
    rows without weight are gone. Fitting never sees NaN or an empty array, and must give finite
    probabilities for one class only, constant scores, ties, and scores of any size.

    Attributes
    ----------
    name : str
        Of the class, unique: ``"isotonic"``.
    domain : str
        The kind of scores that it works on; may depend on the options.
    monotone : bool
        Whether a greater score never gets a lower probability, whatever the data.
    """

    name: ClassVar[str]
    monotone: ClassVar[bool] = False

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """What the map works on."""

    @abstractmethod
    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> State:
        """Fit to scores (n,), labels (n,) in {0, 1} and positive weights (n,).

        A whole weight is the same as repeating the row; the order of rows does not matter.
        """

    @abstractmethod
    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Return P(class 1) (m,) in [0, 1] at scores (m,), in float64."""


AnyMap = TypeVar("AnyMap", bound=Map)


def register(cls: type[AnyMap]) -> type[AnyMap]:
    """Enter a map in the registry, by its name."""
    other = REGISTRY.get(cls.name, cls)
    # A module may be imported again, as notebooks and test runners do.
    if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"two maps are called {cls.name!r}")
    REGISTRY[cls.name] = cls
    return cls
