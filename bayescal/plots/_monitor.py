"""The evidence, the slope and the offset of a monitor over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bayescal.plots.style import Style, draw_legend, gray, label_axes, next_style, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bayescal.monitoring import Monitor

#: Size of a new figure in inches: its width, and heights without and with slope and offset.
_WIDTH, _HEIGHT, _FULL_HEIGHT = 6.4, 3.2, 6.0
_DASHES = (0, (4, 3)), (0, (1, 2))
_MARK = "bayescal-mark"
#: Fraction of the looks, from the last one, whose ends determine the limits of the axes.
_SHOWN = 0.75


def monitor(
    monitored: Monitor, *, label: int = 0, axes: Axes | Sequence[Axes] | np.ndarray | None = None
) -> np.ndarray:
    """Draw the evidence against calibration over time, and intervals of slope and offset.

    Use it to see when calibration was lost, and how. The first diagram shows the logarithm of the
    evidence, and the threshold that it reaches at an alarm. Vertical lines mark the alarm and the
    probable start of the miscalibration. For binary and multi-label problems, the other two show
    the confidence sequences of the slope a and the offset b in logit q = a logit p + b, of all rows
    up to each time; gray lines mark calibrated probabilities, a = 1 and b = 0.

    Parameters
    ----------
    monitored : Monitor
        A :class:`bayescal.Monitor`. If its rows have dates or numbers as time stamps, these are on
        the horizontal axis, else the numbers of rows.
    label : int, default 0
        Position of the label whose slope and offset are drawn, for multi-label problems.
    axes : matplotlib Axes or sequence of three, optional
        Where to draw, by default on a new figure. With one, only the evidence is drawn.

    Returns
    -------
    array of matplotlib Axes, shape (1,) or (3,)
        The axes of the evidence, the slope and the offset.

    Raises
    ------
    ValueError
        If the monitor has no rows, or for another number of axes.

    See Also
    --------
    bayescal.Monitor : The test itself.

    Examples
    --------
    >>> import numpy as np
    >>> import bayescal as bc
    >>> rng = np.random.default_rng(0)
    >>> log_odds = rng.normal(0, 2, 3000)
    >>> p = 1 / (1 + np.exp(-log_odds))
    >>> truth = np.where(np.arange(3000) < 2000, p, 1 / (1 + np.exp(-0.4 * log_odds)))
    >>> y = rng.random(3000) < truth
    >>> axes = monitor(bc.Monitor().update(p, y))
    >>> [ax.get_ylabel() for ax in axes]
    ['Log evidence', 'Slope', 'Offset']
    """
    if not monitored.n_rows_:
        raise ValueError("monitored must have rows, got none; call update first")
    all_axes = _axes(axes, 1 if monitored.task == "multiclass" else 3)
    rows, values = monitored.course_
    sequence = monitored.confidence_sequence(label) if len(all_axes) > 1 else None
    marks: dict[str, int] = {}
    if monitored.alarm_row_ is not None:
        marks = {"alarm": monitored.alarm_row_, "probable start": monitored.start_row_}
    looks = np.empty(0, int) if sequence is None else sequence["rows"]
    numbers = np.concatenate([rows, looks, [*marks.values()]]).astype(int)
    times = monitored.times_at(numbers)
    x, at = numbers if times is None else times, len(rows)
    styles = [next_style(ax) for ax in all_axes]
    finite = np.where(np.isfinite(values), values, np.nan)
    styles[0].draw(all_axes[0], x[:at], finite, linewidth=1.4, label="log evidence")
    threshold = float(-np.log(monitored.alpha))
    line = all_axes[0].axhline(threshold, color=gray(all_axes[0], 0.45), linewidth=1, zorder=1)
    line.set(gid=_MARK, label=f"alarm above log({1 / monitored.alpha:g})")
    if sequence is not None:
        kinds = zip(("slope", "offset"), (1.0, 0.0), all_axes[1:], styles[1:], strict=True)
        for name, calibrated, ax, style in kinds:
            _draw_interval(ax, style, x[at : at + len(looks)], sequence[name], calibrated)
            ax.set_ylabel(ax.get_ylabel() or name.capitalize())
    for ax in all_axes:
        shade = gray(ax, 0.25)
        for mark, dashes, position in zip(marks, _DASHES, x[at + len(looks) :], strict=False):
            line = ax.axvline(position, color=shade, linewidth=1.1, linestyle=dashes, zorder=2)
            line.set(gid=_MARK, label=f"{mark}, row {marks[mark]:,}")
        tidy(ax)
    if times is not None and times.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        # Dates are written without their common parts.
        locator = AutoDateLocator(maxticks=8)
        all_axes[-1].xaxis.set_major_locator(locator)
        all_axes[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator))
    label_axes(all_axes[0], "", "Log evidence")
    all_axes[-1].set_xlabel(all_axes[-1].get_xlabel() or ("Row" if times is None else "Time"))
    draw_legend(all_axes[0], fontsize="small")
    return all_axes


def _axes(axes: object, wanted: int) -> np.ndarray:
    """Return the given axes, or those of a new figure."""
    if axes is not None:
        given = np.atleast_1d(np.asarray(axes, object)).ravel()
        if len(given) not in (1, wanted):
            number = "one" if wanted == 1 else "one or three"
            raise ValueError(f"axes must be {number}, got {len(given)}")
        return given
    import matplotlib.pyplot as plt

    size, ratios = (_WIDTH, _HEIGHT if wanted == 1 else _FULL_HEIGHT), [2, 1, 1][:wanted]
    _, created = plt.subplots(
        wanted, sharex=True, squeeze=False, figsize=size, height_ratios=ratios, layout="constrained"
    )
    return created[:, 0]


def _draw_interval(
    ax: Axes, style: Style, x: np.ndarray, ends: np.ndarray, calibrated: float
) -> None:
    """Draw intervals (m, 2) as a band; where an end is infinite the band leaves the axes."""
    ax.axhline(calibrated, color=gray(ax, 0.6), linewidth=1, zorder=1, gid=_MARK)
    if not len(x):
        return
    known = ends[int((1 - _SHOWN) * len(ends)) :]
    known = np.append(known[np.isfinite(known)], calibrated)
    margin = 0.08 * (known.max() - known.min()) or 1.0
    low, high = known.min() - margin, known.max() + margin
    lower, upper = np.clip(ends, low - 9 * (high - low), high + 9 * (high - low)).T
    style.fill(ax, x, lower, upper, alpha=0.25)
    for end in (lower, upper):
        ax.plot(x, end, color=style.color, linewidth=0.8, zorder=3)
    ax.set_ylim(low, high)
