"""The accessor ``.bayescal`` with tables, ranks and plots of a sweep's result."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bayescal._core.display.tables import TextTable
from bayescal.compare import Comparison, compare
from bayescal.metrics.registry import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table


#: Dimensions that tables and figures need.
_DIMENSIONS = "n_train", "calibrator", "dataset", "metric"
#: Number of sizes up to which all are labeled on the axis of a panel.
_TICKS = 5


class SweepTable:
    """Means of a metric by method and configuration; prints as a table."""

    def __init__(self, lines: TextTable) -> None:
        self._lines = lines

    def table(self) -> Table:
        """Make a rich Table."""
        return self._lines.for_terminal()

    def __repr__(self) -> str:
        return self._lines.for_print(max(80, 20 * len(self._lines.heads)))

    def _repr_html_(self) -> str:
        return self._lines.for_notebook()


@xr.register_dataset_accessor("bayescal")
class SweepAccessor:
    """Tables, ranks and plots of the result of :func:`bayescal.sweep`."""

    def __init__(self, dataset: xr.Dataset) -> None:
        # A selection of a single size, method, data set or metric drops the dimension.
        single = [d for d in _DIMENSIONS if d in dataset.coords and d not in dataset.dims]
        self._dataset = dataset.expand_dims(single)

    def table(self, metric: str | None = None) -> SweepTable:
        """Compute means over data sets and standard errors, by method and configuration.

        Parameters
        ----------
        metric : str, optional
            Name of a metric, by default the first.
        """
        name, values = self._metric(metric)
        methods = [str(method) for method in values.calibrator.values]
        rows = []
        for heading, cell in _cells(values):
            pairs = zip(*_means(cell.transpose("calibrator", "dataset").values), strict=True)
            rows.append([heading, *(_text(mean, error) for mean, error in pairs)])
        caption = f"Means over {values.sizes['dataset']:,} data sets, and their standard errors."
        return SweepTable(TextTable(name, ["configuration", *methods], rows, caption))

    def compare(
        self, metric: str | None = None, *, margin: float = 0.0, level: float = 0.05, **where: Any
    ) -> Comparison:
        """Compare the methods by rank, over the data sets of all configurations or of some.

        Parameters
        ----------
        metric : str, optional
            Name of a metric, by default the first.
        margin, level : float
            Largest practically zero difference, and level of the tests, as for
            :func:`bayescal.compare.compare`.
        **where
            Coordinates to select: ``prior="b"``, ``n_train=50``.
        """
        name, values = self._metric(metric)
        values = values.sel(where)
        stacked = values.stack(case=[d for d in values.dims if d != "calibrator"])
        table = {str(m): stacked.sel({"calibrator": m}).values for m in stacked.calibrator.values}
        # The name may be a title; attributes have the metric's name and options. Those of results
        # of 0.1.0 are text.
        choice = json.loads(self._dataset.attrs.get("metrics", "{}")).get(name)
        entry = METRICS.get(choice[0] if isinstance(choice, list) else name)
        high = entry is not None and entry.best == "high"
        return compare(table, lower_is_better=not high, level=level, margin=margin)

    def plot(
        self, metric: str | None = None, *, columns: int | None = None, **where: Any
    ) -> np.ndarray:
        """Draw the whole sweep: a panel for each prior with a line for each method over sizes.

        Bands are standard errors. Panels share both axes, and the figure has one legend. Several
        class ratios are in separate panels.

        Parameters
        ----------
        metric : str, optional
            Name of a metric, by default the first.
        columns : int, optional
            Number of panels side by side, by default at most three.
        **where
            Coordinates to select, as for :meth:`compare`.

        Returns
        -------
        array of matplotlib Axes, shape (panels,)
            The axes of the panels.
        """
        from bayescal.plots.style import new_panels, tidy

        values = self._metric(metric)[1].sel(_as_lists(where))
        dims = [dim for dim in ("prior", "class_ratio") if dim in values.dims]
        settings = itertools.product(*(values[dim].values for dim in dims))
        panels = [dict(zip(dims, setting, strict=True)) for setting in settings]
        vary = [dim for dim in dims if values.sizes[dim] > 1]
        axes = new_panels(len(panels), columns, (2.7, 2.2), (0.4, 0.8), "constrained")
        for panel, ax in zip(panels, axes, strict=True):
            self._draw(ax, metric, where | panel, named=False)
            title = ", ".join(_setting(dim, panel[dim]) for dim in vary)
            ax.set_title(title, fontsize="medium")
            tidy(ax)
            if values.sizes["n_train"] <= _TICKS:
                ax.set_xticks(values.n_train.values, [f"{n:g}" for n in values.n_train.values])
                ax.minorticks_off()
            ax.label_outer()
        # Label the sizes below panels that have no panel underneath.
        across = axes[0].get_subplotspec().get_gridspec().ncols
        for ax in axes[-across:]:
            ax.tick_params(labelbottom=True)
            ax.set_xlabel("Training cases")
        methods = [str(method) for method in values.calibrator.values]
        placement = {"loc": "outside lower center", "ncols": min(len(methods), 2 * across)}
        axes[0].figure.legend(axes[0].lines, methods, **placement)
        return axes

    def plot_by_size(
        self, metric: str | None = None, *, ax: Axes | None = None, **where: Any
    ) -> Axes:
        """Draw means of a metric over the size of the training set, with standard errors.

        It averages over all other settings; :meth:`plot` draws a panel for each prior.
        """
        return self._draw(ax, metric, where, named=True)

    def _draw(
        self, ax: Axes | None, metric: str | None, where: Mapping[str, object], named: bool
    ) -> Axes:
        """Draw one panel, with or without names at the ends of the lines."""
        from bayescal import plots

        name, values = self._metric(metric)
        values = values.sel(_as_lists(where))
        array = values.transpose("n_train", "calibrator", ...).values
        means, errors = _means(array.reshape(*array.shape[:2], -1))
        methods = [str(m) for m in values.calibrator.values]
        ax = plots.by_size(
            values.n_train.values,
            np.where(np.isfinite(means), means, np.nan),
            names=methods if named else None,
            errors=errors,
            ax=ax,
        )
        ax.set(xlabel="Training cases", ylabel=name)
        return ax

    def critical_difference(
        self, metric: str | None = None, *, ax: Axes | None = None, **where: Any
    ) -> Axes:
        """Draw average ranks, with bars that join methods that do not differ."""
        from bayescal import plots

        return plots.critical_difference(self.compare(metric, **where), ax=ax)

    def _metric(self, metric: str | None) -> tuple[str, xr.DataArray]:
        names = [str(metric_name) for metric_name in self._dataset.metric.values]
        name = names[0] if metric is None else metric
        if name not in names:
            raise ValueError(f"metric must be one of {', '.join(names)}, got {name!r}")
        return name, self._dataset["value"].sel(metric=name, drop=True)


def _means(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute means over the last axis, and their standard errors: NaN if there are none."""
    count, means = values.shape[-1], values.mean(axis=-1)
    with np.errstate(invalid="ignore"):  # infinite losses
        squares = ((values - means[..., None]) ** 2).sum(axis=-1)
    return means, np.sqrt(squares / (count * (count - 1))) if count > 1 else means * np.nan


def _text(mean: float, error: float) -> str:
    return f"{mean:.4f} ± {error:.4f}" if np.isfinite(error) else f"{mean:.4f}"


def _as_lists(where: Mapping[str, object]) -> dict[str, object]:
    """Turn single settings into lists, so that selection keeps their dimensions."""
    return {dim: [value] if np.ndim(value) == 0 else value for dim, value in where.items()}  # type: ignore[arg-type]


def _cells(values: xr.DataArray) -> Iterator[tuple[str, xr.DataArray]]:
    """Yield configurations by their distinguishing settings, and values (calibrator, dataset)."""
    dims = [dim for dim in ("prior", "n_train", "class_ratio") if dim in values.dims]
    vary = [dim for dim in dims if values.sizes[dim] > 1] or dims[:1]
    stacked = values.stack(cell=dims) if dims else values.expand_dims("cell")
    for index in range(stacked.sizes["cell"]):
        cell = stacked.isel(cell=index)
        yield ", ".join(_setting(dim, cell[dim].item()) for dim in vary), cell


def _setting(dim: str, value: object) -> str:
    return str(value) if dim == "prior" else f"{dim} {value:g}"
