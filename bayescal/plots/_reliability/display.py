"""``ReliabilityDisplay``: reliability diagrams with the interface of scikit-learn's displays."""

from __future__ import annotations

from collections.abc import Hashable
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal._core.keywords import translated
from bayescal.data.checks import check_choice
from bayescal.data.label_names import label_list
from bayescal.plots._inputs import Predictor
from bayescal.plots._reliability.diagram import draw_names, reliability
from bayescal.plots.style import legend_entries, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_BINNINGS: dict[str, Literal["equal_width", "equal_mass"]] = {
    "uniform": "equal_width",
    "quantile": "equal_mass",
}
_REFERENCE = "Perfectly calibrated"


class Classifier(Predictor, Protocol):
    """A fitted classifier."""

    classes_: np.ndarray


class ReliabilityDisplay:
    """A reliability diagram with the interface of scikit-learn's displays.

    Use it in place of scikit-learn's ``CalibrationDisplay``: create it by :meth:`from_estimator` or
    :meth:`from_predictions`. Labels come before predictions; ``n_bins``, ``strategy``,
    ``pos_label``, ``ref_line`` and properties of the line have the same names and defaults. The
    diagram is that of :func:`reliability`, whose other options are also accepted. For more than
    two classes it shows the confidence.

    Parameters
    ----------
    y_true : array of shape (n,)
        Labels of any kind.
    y_prob : array of shape (n,) or (n, k)
        Probabilities of the positive class, or class probabilities in rows.
    n_bins : int, default 5
        Number of bins.
    strategy : {"uniform", "quantile"}
        Bins of equal width, or of equal mass.
    pos_label : label, optional
        The label whose probability ``y_prob`` of shape (n,) is; by default 1, or the second in
        alphabetical order.
    estimator_name : str, optional
        Name in the legend.
    **options
        Options of :func:`reliability`, except ``ax`` and ``label``; ``ref_line``; and properties of
        the line, such as ``color`` or ``lw``.

    Attributes
    ----------
    prob_true, prob_pred : array of shape (m,)
        Observed frequency and prediction at the points of the line, one for every bin that is not
        empty. Like the following attributes, it exists after drawing.
    line_ : matplotlib Line2D
        The curve.
    ax_ : matplotlib Axes
        The axes.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    reliability : A function of predictions, then labels.

    Examples
    --------
    >>> y, p = ["no", "no", "yes", "yes"], [0.1, 0.3, 0.9, 0.7]
    >>> display = ReliabilityDisplay.from_predictions(y, p, n_bins=2, name="model")
    >>> display.prob_true.tolist(), display.prob_pred.tolist()
    ([0.0, 1.0], [0.2, 0.8])
    """

    prob_true: np.ndarray
    prob_pred: np.ndarray
    line_: Line2D
    ax_: Axes
    figure_: Figure

    def __init__(
        self,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        n_bins: int = 5,
        strategy: Literal["uniform", "quantile"] = "uniform",
        pos_label: Hashable = None,
        estimator_name: str | None = None,
        **options: object,
    ) -> None:
        check_choice(strategy, "strategy", tuple(_BINNINGS))
        self.y_true, self.y_prob = y_true, y_prob
        self.n_bins, self.strategy, self.pos_label = n_bins, strategy, pos_label
        self.estimator_name, self.options = estimator_name, options

    @classmethod
    def from_estimator(
        cls,
        estimator: Classifier,
        X: object,
        y: ArrayLike,
        *,
        n_bins: int = 5,
        strategy: Literal["uniform", "quantile"] = "uniform",
        pos_label: Hashable = None,
        name: str | None = None,
        ax: Axes | None = None,
        sample_weight: ArrayLike | None = None,
        **options: object,
    ) -> Self:
        """Draw the diagram of a fitted classifier or calibrator.

        Parameters
        ----------
        estimator : fitted classifier or calibrator
            An object with ``predict_proba`` and ``classes_``.
        X : array of shape (n, features)
            The data to predict from; for a calibrator, the scores.
        y : array of shape (n,)
            Labels.
        n_bins : int, default 5
            Number of bins.
        strategy : {"uniform", "quantile"}
            Bins of equal width, or of equal mass.
        pos_label : label, optional
            The positive label, by default the second of two.
        name : str, optional
            Name in the legend, by default that of the estimator's class.
        ax : matplotlib Axes, optional
            Where to draw, by default on a new figure.
        sample_weight : array of shape (n,), optional
            Row weights, which :func:`reliability` calls ``weights``.
        **options
            Options of :func:`reliability`, ``ref_line``, and properties of the line.

        Returns
        -------
        ReliabilityDisplay

        Raises
        ------
        TypeError, ValueError
            If :func:`reliability` would raise, ``pos_label`` is not one of the two classes, or both
            ``sample_weight`` and ``weights`` are passed.
        """
        probs, classes = estimator.predict_proba(X), list(estimator.classes_)
        if len(classes) == 2:
            pos_label = classes[1] if pos_label is None else pos_label
            if pos_label not in classes:
                raise ValueError(f"pos_label must be in {classes}, got {pos_label!r}")
            probs = np.asarray(probs)[:, classes.index(pos_label)]
        else:
            options.setdefault("classes", classes)
        return cls.from_predictions(
            y,
            probs,
            n_bins=n_bins,
            strategy=strategy,
            pos_label=pos_label,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            sample_weight=sample_weight,
            **options,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        n_bins: int = 5,
        strategy: Literal["uniform", "quantile"] = "uniform",
        pos_label: Hashable = None,
        name: str | None = None,
        ax: Axes | None = None,
        sample_weight: ArrayLike | None = None,
        **options: object,
    ) -> Self:
        """Draw the diagram of given predictions.

        Parameters
        ----------
        y_true : array of shape (n,)
            Labels.
        y_prob : array of shape (n,) or (n, k)
            Probabilities of the positive class, or class probabilities in rows.
        n_bins : int, default 5
            Number of bins.
        strategy : {"uniform", "quantile"}
            Bins of equal width, or of equal mass.
        pos_label : label, optional
            The label whose probability ``y_prob`` of shape (n,) is; by default 1, or the second in
            alphabetical order.
        name : str, optional
            Name in the legend.
        ax : matplotlib Axes, optional
            Where to draw, by default on a new figure.
        sample_weight : array of shape (n,), optional
            Row weights, which :func:`reliability` calls ``weights``.
        **options
            Options of :func:`reliability`, ``ref_line``, and properties of the line.

        Returns
        -------
        ReliabilityDisplay

        Raises
        ------
        TypeError, ValueError
            If :func:`reliability` would raise, labels and predictions are swapped, or both
            ``sample_weight`` and ``weights`` are passed.
        """
        if sample_weight is not None:
            if options.get("weights") is not None:
                raise TypeError("sample_weight and weights must not both be given: they are one")
            options["weights"] = sample_weight
        display = cls(
            y_true,
            y_prob,
            n_bins=n_bins,
            strategy=strategy,
            pos_label=pos_label,
            estimator_name=name,
            **options,
        )
        return display.plot(ax=ax)

    def plot(
        self,
        *,
        ax: Axes | None = None,
        name: str | None = None,
        ref_line: bool | None = None,
        **options: object,
    ) -> Self:
        """Draw the diagram, again if it was drawn before.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw, by default on a new figure.
        name : str, optional
            Name in the legend, by default ``estimator_name``.
        ref_line : bool, optional
            Whether to show the diagonal of perfect calibration, by default as passed before, or
            else true.
        **options
            Options of :func:`reliability` and properties of the line, which replace those passed
            before.

        Returns
        -------
        ReliabilityDisplay
            This object.

        Raises
        ------
        TypeError, ValueError
            If :func:`reliability` would raise, or lines have no such property.
        """
        known = {"ref_line", *signature(reliability).parameters}
        how: dict[str, Any] = {"bins": self.n_bins, "binning": _BINNINGS[self.strategy]}
        how |= translated({**self.options, **options}, known)
        shown = how.pop("ref_line", True) if ref_line is None else ref_line
        line = _line_properties({key: how.pop(key) for key in how.keys() - known})
        label = self.estimator_name if name is None else name
        y, new_figure, marks = self._labels(), ax is None, 0 if ax is None else len(ax.collections)
        self.ax_ = ax = reliability(self.y_prob, y, ax=ax, label=label, **how)
        self.figure_ = ax.figure  # type: ignore[assignment]
        self.line_ = ax.lines[-1]
        self.prob_pred, self.prob_true = (np.asarray(part) for part in self.line_.get_data())
        self.line_.set(**line)
        if "color" in line:
            strips = [patch for strip in ax.child_axes for patch in strip.patches[-2:]]
            for mark in (*ax.collections[marks:], *strips):
                mark.set(color=line["color"])
        diagonal = ax.lines[0]
        if shown:
            diagonal.set(label=_REFERENCE, visible=True)
        elif diagonal.get_label() != _REFERENCE:
            diagonal.set_visible(False)
        if legend_entries(ax)[0]:
            draw_names(ax, new_figure)
        if np.ndim(self.y_prob) == 1:
            self._label_axes(ax)
        return self

    def _label_axes(self, ax: Axes) -> None:
        """Name the positive class beside the axes, wrapped at the edges of the figure."""
        positive = self.pos_label
        if positive is None:
            labels = np.unique(np.asarray(self.y_true)).tolist()
            classes: UserData = self.options.get("classes", labels)
            positive = 1 if {*labels} <= {-1, 0, 1} else list(classes)[-1]
        for axis, text in ((ax.xaxis, ax.get_xlabel()), (ax.yaxis, "Fraction of positives")):
            text = text.split(" (Positive class")[0]
            literal(axis.label, f"{text} (Positive class: {positive})")
            axis.label.set(wrap=True, fontsize="small")

    def _labels(self) -> ArrayLike:
        """Return the labels, or with ``pos_label`` whether they equal it."""
        y = np.asarray(self.y_true)
        if y.dtype.kind == "f" and (y != np.floor(y)).any():
            raise ValueError(
                "y_true must be labels and come first, got other numbers; reliability takes "
                "predictions first"
            )
        if self.pos_label is None:
            return self.y_true
        if np.ndim(self.y_prob) != 1:
            raise ValueError("pos_label must be left out where y_prob has shape (n, k)")
        positive = y == self.pos_label
        if not positive.any() and len(known := np.unique(y)) > 1:
            raise ValueError(f"pos_label must be in {label_list(known)}, got {self.pos_label!r}")
        return positive


def _line_properties(options: dict[str, object]) -> dict[str, object]:
    """Spell out properties of a line, such as ``lw``; raise if lines have no such property."""
    from matplotlib import cbook
    from matplotlib.lines import Line2D

    properties = cbook.normalize_kwargs(options, Line2D)
    for name in properties:
        if not hasattr(Line2D, f"set_{name}"):
            raise TypeError(f"{name!r} is not an option of a reliability diagram or its line")
    return properties
