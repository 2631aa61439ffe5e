"""What a calibration map of several classes writes, and the registry that finds it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, TypeVar

import numpy as np

from bayescal.maps._map import State
from bayescal.regression.posterior import Draws

#: What a map works on: logits as they are (of probabilities their logarithms), logarithms of
#: probabilities that sum to one, or these probabilities.
Domain = Literal["logits", "log_probability", "probability"]
#: What a map never changes in a row: the order of its classes, its most probable class, or nothing.
Keeps = Literal["order", "argmax", "nothing"]

MULTICLASS: dict[str, type[MulticlassMap]] = {}


class MulticlassMap(ABC):
    """A calibration map of k >= 2 classes: options of a frozen dataclass, a fit, its application.

    Arrays are NumPy's. The estimator has checked and converted the input, and rows without weight
    are gone. Scores are finite, of type float32 or float64, C-contiguous and never changed. Fitting
    must give probabilities for one row, ties, constant scores, and labels that lack classes: these
    keep a positive probability wherever the given one is positive.

    Attributes
    ----------
    name : str
        Of the class, unique: ``"vector"``.
    domain : str
        The kind of scores that it works on; may depend on the options.
    keeps : str
        What it promises not to change in any row: "order" (ties stay ties), "argmax" or "nothing".
    """

    name: ClassVar[str]
    keeps: ClassVar[Keeps] = "nothing"

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """What the map works on."""

    @abstractmethod
    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        """Fit to scores (n, k), labels (n,) in {0, ..., k - 1} and positive weights (n,).

        A whole weight is the same as repeating the row; the order of rows does not matter, save
        for what ``seed`` decides: folds, and random starts.
        """

    @abstractmethod
    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Return probabilities (m, k) at scores (m, k), in float64; rows sum to one."""


class ParametricMulticlassMap(MulticlassMap):
    """A map with parameters theta (p,) that may have a posterior."""

    @abstractmethod
    def describe(self, theta: np.ndarray, k: int, unit: float) -> State:
        """Return parameters (..., p) for k classes under the names that users know.

        ``unit`` is what scores were divided by.
        """

    @abstractmethod
    def sample(
        self,
        state: State,
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        inference: str,
        num_samples: int,
        seed: int,
    ) -> Draws:
        """Return draws (chains, draws, p) of theta from the posterior.

        Parameters
        ----------
        state : State
            From ``fit`` to the same data.
        inference : {"laplace", "nuts"}
        """

    @abstractmethod
    def predict_draws(
        self, state: State, theta: np.ndarray, scores: np.ndarray, level: float | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return mean (m, k), lower and upper ends (m, k) of probabilities over draws (s, p).

        Without a level the ends are empty. Never holds s * m * k numbers.
        """


AnyMap = TypeVar("AnyMap", bound=MulticlassMap)


def register_multiclass(cls: type[AnyMap]) -> type[AnyMap]:
    """Enter a map in the registry, by its name."""
    other = MULTICLASS.get(cls.name, cls)
    # A module may be imported again, as notebooks and test runners do.
    if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"two maps are called {cls.name!r}")
    MULTICLASS[cls.name] = cls
    return cls
