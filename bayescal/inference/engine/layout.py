"""Leading axes of results: the priors of a grid and the data sets of a batch.

The compiled programs have one leading axis: data sets, or pairs of a prior and a data set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.shapes import Shaped
from bayescal.data.checks import Batch

#: A data set by number, a prior of a grid by name, or both.
Index = int | str | tuple[str, int]


class BatchLayout(NamedTuple):
    """Names of a grid's priors (None without a grid), and the data that the user passed."""

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

    def spread(
        self, rows: Shaped[np.ndarray, " sets *entries"]
    ) -> Shaped[np.ndarray, " pairs *entries"]:
        """Repeat the rows of all data sets for every prior."""
        if self.names is None:
            return rows
        return np.tile(rows, (len(self.names), *(1,) * (rows.ndim - 1)))

    def flat(self) -> Batch:
        """Return the data of all pairs of a prior and a data set."""
        x, y, mask = self.given[:3]
        return Batch(self.spread(x), self.spread(y), self.spread(mask), not self.dims)

    def shaped(
        self, rows: Shaped[np.ndarray, " pairs *entries"]
    ) -> Shaped[np.ndarray, " *axes_and_entries"]:
        """Reshape entries for all pairs to the leading axes that the user sees."""
        return rows.reshape(self.shape + rows.shape[1:])

    def position(self, index: Index) -> int:
        """Return the number of the pair that ``index`` means; an integer counts all pairs."""
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

    def label(self, index: int) -> str:
        """Describe a pair in a message."""
        sets = len(self.given.x)
        parts = [] if self.names is None else [f"prior {self.names[index // sets]!r}"]
        parts += [] if self.given.single else [f"data set {index % sets}"]
        return ", ".join(parts)
