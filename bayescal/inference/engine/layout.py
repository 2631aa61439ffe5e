"""Where the data sets of a batch, and the priors of a grid, stand in what the user sees.

Programs know one axis: of data sets, or of all pairs of a prior of the grid and a data set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal.data.checks import Batch

__all__ = ["Index", "Layout"]

#: Of a data set; of a grid's prior, by name; or of both.
Index = int | str | tuple[str, int]


class Layout(NamedTuple):
    """Names of a grid's priors, None where there is no grid, and the data that the user gave."""

    names: tuple[str, ...] | None
    given: Batch

    @property
    def dims(self) -> dict[str, int]:
        """Names and lengths of the leading axes of results."""
        dims = {} if self.names is None else {"prior": len(self.names)}
        return dims if self.given.single else dims | {"dataset": len(self.given.x)}

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the leading axes."""
        return tuple(self.dims.values())

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """Repeat rows, one for each data set, for each prior."""
        if self.names is None:
            return rows
        return np.tile(rows, (len(self.names), *(1,) * (rows.ndim - 1)))

    def flat(self) -> Batch:
        """Return the data of all pairs."""
        x, y, mask, _ = self.given
        return Batch(self.spread(x), self.spread(y), self.spread(mask), not self.dims)

    def shaped(self, rows: np.ndarray) -> np.ndarray:
        """Give entries for all pairs the leading axes that the user sees."""
        return rows.reshape(self.shape + rows.shape[1:])

    def position(self, index: Index) -> int:
        """Return which pair is meant; a number alone counts them all."""
        names, sets = self.names, len(self.given.x)
        if isinstance(index, int | np.integer):
            count = sets * len(names or ("",))
            if not 0 <= index < count:
                raise IndexError(f"index must be in [0, {count}), got {index}")
            return int(index)
        name, number = (index, 0) if isinstance(index, str) else index
        if names is None or name not in names:
            known = "there is no grid of priors" if names is None else ", ".join(map(repr, names))
            raise KeyError(f"index must name one of the priors ({known}), got {name!r}")
        if not 0 <= number < sets:
            raise IndexError(f"index must have a data set in [0, {sets}), got {number}")
        return names.index(name) * sets + number

    def label(self, place: int) -> str:
        """Name a pair in a message."""
        sets = len(self.given.x)
        parts = [] if self.names is None else [f"prior {self.names[place // sets]!r}"]
        parts += [] if self.given.single else [f"data set {place % sets}"]
        return ", ".join(parts)
