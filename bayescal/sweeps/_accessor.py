"""``.bayescal``: tables, ranks and plots of a sweep's result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bayescal._core.tables import TextTable
from bayescal.compare import Comparison, compare
from bayescal.metrics.registry import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table


class SweepTable:
    """Means of a metric by method and configuration; prints as a table."""

    def __init__(self, lines: TextTable) -> None:
        self._lines = lines

    def table(self) -> Table:
        """Return a rich Table."""
        return self._lines.for_terminal()

    def __repr__(self) -> str:
        return self._lines.for_print(max(80, 20 * len(self._lines.heads)))

    def _repr_html_(self) -> str:
        return self._lines.for_notebook()


@xr.register_dataset_accessor("bayescal")
class SweepAccessor:
    """Tables, ranks and plots of the result of :func:`bayescal.sweep`."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def table(self, metric: str | None = None) -> SweepTable:
        """Return means over data sets and their standard errors, by method and configuration.

        Parameters
        ----------
        metric : str, optional
            By default the first.
        """
        name, values = self._metric(metric)
        methods = [str(each) for each in values.method.values]
        rows = []
        for heading, cell in _cells(values):
            some = cell.transpose("method", "dataset").values
            error = some.std(axis=1, ddof=1) / np.sqrt(some.shape[1])
            pairs = zip(some.mean(axis=1), error, strict=True)
            rows.append([heading, *(f"{mean:.4f} ± {spread:.4f}" for mean, spread in pairs)])
        caption = f"Means over {values.sizes['dataset']:,} data sets, and their standard errors."
        return SweepTable(TextTable(name, ["configuration", *methods], rows, caption))

    def compare(
        self,
        metric: str | None = None,
        *,
        margin: float = 0.0,
        level: float = 0.05,
        **where: object,
    ) -> Comparison:
        """Compare the methods by rank, over the data sets of all configurations or of some.

        Parameters
        ----------
        metric : str, optional
            By default the first.
        margin, level : float
            As for :func:`bayescal.compare.compare`.
        **where
            Coordinates to select: ``prior="b"``, ``n_train=50``.
        """
        name, values = self._metric(metric)
        some = values.sel(where).stack(case=[d for d in values.sel(where).dims if d != "method"])
        table = {str(m): some.sel({"method": m}).values for m in some.method.values}
        lower = name not in METRICS or METRICS[name].best != "high"
        return compare(table, lower_is_better=lower, level=level, margin=margin)

    def plot_by_size(
        self, metric: str | None = None, *, ax: Axes | None = None, **where: object
    ) -> Axes:
        """Draw means of a metric over the size of the training set, with standard errors.

        The best that can be reached is a dashed line of its own where "optimal" was among the
        methods; other dimensions are averaged.
        """
        from bayescal import plots

        name, values = self._metric(metric)
        values = values.sel(where)
        others = [dim for dim in values.dims if dim not in ("n_train", "method")]
        cases = np.prod([values.sizes[dim] for dim in others])
        means = values.mean(others).transpose("n_train", "method")
        errors = values.std(others, ddof=1).transpose("n_train", "method") / np.sqrt(cases)
        methods = [str(m) for m in means.method.values]
        ax = plots.by_size(
            means.n_train.values, means.values, names=methods, errors=errors.values, ax=ax
        )
        ax.set(xlabel="Training cases", ylabel=name)
        return ax

    def critical_difference(
        self, metric: str | None = None, *, ax: Axes | None = None, **where: Any
    ) -> Axes:
        """Draw average ranks, and bars that join methods that do not differ."""
        from bayescal import plots

        return plots.critical_difference(self.compare(metric, **where), ax=ax)

    def _metric(self, metric: str | None) -> tuple[str, xr.DataArray]:
        names = [str(each) for each in self._dataset.metric.values]
        name = names[0] if metric is None else metric
        if name not in names:
            raise ValueError(f"metric must be one of {', '.join(names)}, got {name!r}")
        return name, self._dataset["value"].sel(metric=name, drop=True)


def _cells(values: xr.DataArray) -> Iterator[tuple[str, xr.DataArray]]:
    """Yield configurations by what tells them apart, and their values (method, dataset)."""
    dims = [dim for dim in ("prior", "n_train", "class_ratio") if dim in values.dims]
    vary = [dim for dim in dims if values.sizes[dim] > 1] or dims[:1]
    stacked = values.stack(cell=dims) if dims else values.expand_dims("cell")
    for place in range(stacked.sizes["cell"]):
        cell = stacked.isel(cell=place)
        parts = [
            str(cell[dim].item()) if dim == "prior" else f"{dim} {cell[dim].item():g}"
            for dim in vary
        ]
        yield ", ".join(parts), cell
