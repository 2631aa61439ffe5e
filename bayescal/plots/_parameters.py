"""Posteriors of the parameters of calibration maps: medians and intervals, matrices as images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bayescal.data.checks import check_finite, check_level
from bayescal.inference.parameters import ParameterPosterior
from bayescal.inference.result import Posterior
from bayescal.plots._inputs import Predictor
from bayescal.plots.style import COLORS, gray, literal, literal_options, new_axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Largest number of entries of a matrix that is drawn as rows of intervals.
_MAX_INTERVAL_ENTRIES = 16
#: Number of rows from which lines are thin and some labels are omitted.
_MANY_ROWS = 40
#: Heights in inches: of a row, of an image, and between rows and images.
_ROW, _IMAGE, _GAP = 0.2, 2.6, 0.75


def parameters(
    posterior: ParameterPosterior | Posterior | Predictor,
    names: Sequence[str] | None = None,
    level: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    r"""Draw the posterior of a map's parameters: a median and an interval for every number.

    The line of a row goes from the (1 - level) / 2 to the (1 + level) / 2 quantile of the draws,
    its thick part between the quartiles. Entries of vectors have the label ``name[j]``, those of
    matrices with at most 16 entries ``name[i, j]``. Thin lines mark the values 0 and 1, the
    identity of most maps, if they are in range.

    A larger matrix is an image: the color of an entry is its posterior mean minus the reference,
    which is the identity for a square matrix and 0 for others. A triangle marks entries whose
    interval excludes the reference: it points up if the interval is above it, down if below.

    Parameters
    ----------
    posterior : ParameterPosterior, fitted calibrator or Posterior
        The attribute ``posterior_`` of a calibrator that was fitted with ``inference="laplace"`` or
        ``"nuts"``, or the calibrator; or the posterior of a generative model.
    names : sequence of str, optional
        Parameters to draw, in this order; by default all.
    level : float, default 0.9
        Probability of the intervals, in (0, 1).
    ax : matplotlib Axes, optional
        Where to draw, by default on a new figure.

    Returns
    -------
    matplotlib Axes
        ``ax``, or the axes of the new figure. If there are rows and images, or several images, its
        ``child_axes`` contain them, one below the other, rows first.

    Raises
    ------
    TypeError
        If ``posterior`` is none of these, or a calibrator without a posterior.
    ValueError
        For a level outside (0, 1), a name that is not a parameter, no names, parameters with more
        than two axes, or draws that are not finite.

    See Also
    --------
    curve : The map itself with its credible band.

    References
    ----------
    S. Lewis and M. Clarke (2001), Forest plots: trying to see the wood and the trees.

    Examples
    --------
    >>> from bayescal import Beta
    >>> p = np.linspace(0.05, 0.95, 60)
    >>> y = (np.sin(9 * p) + 2 * p > 1).astype(int)
    >>> calibrator = Beta(inference="laplace", random_state=0).fit(p, y)
    >>> ax = parameters(calibrator.posterior_)
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['a', 'b', 'c']
    """
    given = type(posterior).__name__
    if isinstance(posterior, Posterior):
        posterior = posterior.parameter_posterior()
    posterior = getattr(posterior, "posterior_", posterior)
    if not isinstance(posterior, ParameterPosterior):
        raise TypeError(
            "posterior must be a ParameterPosterior, a Posterior, or a calibrator that was fitted "
            f"with inference='laplace' or 'nuts', got {given}"
        )
    level = check_level(level)
    draws = _chosen(posterior.draws, names)
    rows = {name: value for name, value in draws.items() if not _is_image(value)}
    images = {name: value for name, value in draws.items() if _is_image(value)}
    labels = [text for name, value in rows.items() for text in _labels(name, value.shape[1:])]
    heights = [_ROW * (1 + min(len(labels), _MANY_ROWS))] * bool(rows) + [_IMAGE] * len(images)
    total = sum(heights) + _GAP * (len(heights) - 1)
    if ax is None:
        ax = new_axes(3.6, total + 0.5)
    axes = [ax]
    if len(heights) > 1:
        ax.set_axis_off()
        tops = total - np.cumsum([0, *(height + _GAP for height in heights[:-1])])
        axes = [
            ax.inset_axes((0, (top - height) / total, 1, height / total))
            for top, height in zip(tops, heights, strict=True)
        ]
    if rows:
        flat = np.concatenate([value.reshape(len(value), -1) for value in rows.values()], axis=1)
        _draw_rows(axes.pop(0), flat, labels, level)
    for child, (name, value) in zip(axes, images.items(), strict=True):
        _draw_image(child, name, value, level)
    return ax


def _chosen(draws: dict[str, np.ndarray], names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """Select the draws (s, ...) of the parameters in ``names``."""
    wanted = list(draws) if names is None else [names] if isinstance(names, str) else list(names)
    if not wanted:
        raise ValueError("names must not be empty")
    selected = {}
    for name in wanted:
        if name not in draws:
            options = ", ".join(repr(known) for known in draws)
            raise ValueError(f"names must be among {options}, got {name!r}")
        values = np.asarray(draws[name])
        if values.ndim > 4:
            raise ValueError(f"{name} must have at most two axes, got shape {values.shape[2:]}")
        check_finite(values, name)
        selected[name] = values.reshape(-1, *values.shape[2:])
    return selected


def _is_image(values: np.ndarray) -> bool:
    return values.ndim == 3 and values[0].size > _MAX_INTERVAL_ENTRIES


def _labels(name: str, shape: tuple[int, ...]) -> list[str]:
    if not shape:
        return [name]
    return [f"{name}[{', '.join(str(i) for i in index)}]" for index in np.ndindex(*shape)]


def _draw_rows(ax: Axes, draws: np.ndarray, labels: list[str], level: float) -> None:
    """Draw medians and intervals of draws (s, rows), from top to bottom."""
    tails = (1 - level) / 2, 0.25, 0.5, 0.75, (1 + level) / 2
    lower, low, median, high, upper = np.quantile(draws, tails, axis=0)
    at = np.arange(len(labels))
    many, color = len(labels) > _MANY_ROWS, COLORS[0]
    for mark in (0.0, 1.0):
        if lower.min() <= mark <= upper.max():
            ax.axvline(mark, color=gray(ax, 0.7), linewidth=0.8, zorder=1)
    ax.hlines(at, lower, upper, color=color, linewidth=1.2, zorder=2)
    # The thick line is the narrower of both intervals.
    inner = (low, high) if level > 0.5 else (lower, upper)
    ax.hlines(at, *inner, color=color, linewidth=1.8 if many else 3.2, zorder=2)
    ax.plot(
        median, at, "o", color="white", markeredgecolor=color, markeredgewidth=1.2,
        markersize=2.5 if many else 4.5, zorder=3,
    )  # fmt: skip
    step = -(-len(labels) // _MANY_ROWS)
    ax.set_yticks(at[::step], labels[::step], **literal_options("".join(labels)))
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.locator_params(axis="x", nbins=5)
    ax.set_xlabel(f"Median and {100 * level:g} % interval")
    tidy(ax)
    ax.spines["left"].set_visible(False)


def _draw_image(ax: Axes, name: str, draws: np.ndarray, level: float) -> None:
    """Draw the mean of draws (s, k, m) minus the reference, and mark intervals that exclude it."""
    k, m = draws.shape[1:]
    square = k == m
    change = draws - (np.eye(k) if square else 0)
    mean = change.mean(axis=0)
    lower, upper = np.quantile(change, ((1 - level) / 2, (1 + level) / 2), axis=0)
    limit = max(float(np.abs(mean).max()), 1e-9)
    image = ax.imshow(mean, cmap="PuOr_r", vmin=-limit, vmax=limit, interpolation="nearest")
    size = float(np.clip(50 / max(k, m), 1.5, 5))
    for marker, excluded in (("^", lower > 0), ("v", upper < 0)):
        i, j = np.nonzero(excluded)
        ax.plot(
            j, i, marker, color="black", markeredgecolor="white", markeredgewidth=0.5,
            markersize=size, linestyle="none",
        )  # fmt: skip
    title = f"{name} − identity" if square else name
    literal(ax.set_title("", fontsize="medium"), title)
    ax.locator_params(integer=True, nbins=6)
    bar = ax.inset_axes((1.04, 0, 0.05, 1))
    ax.figure.colorbar(image, cax=bar).ax.locator_params(nbins=5)
    bar.tick_params(labelsize="small")
    bar.set_label("bayescal-colorbar")
