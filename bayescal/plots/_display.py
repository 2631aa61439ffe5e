"""A reliability diagram as a display of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.checks import check_choice
from bayescal.data.label_names import label_list
from bayescal.plots._reliability import reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_BINNINGS: dict[str, Any] = {"uniform": "equal_width", "quantile": "equal_mass"}


class ReliabilityDisplay:
    """A reliability diagram with the interface of scikit-learn's displays.

    Make it by :meth:`from_estimator` or :meth:`from_predictions`, as scikit-learn's
    ``CalibrationDisplay``: labels come before predictions, and ``n_bins``, ``strategy``,
    ``pos_label`` and ``sample_weight`` have its names. What is drawn is :func:`reliability`, whose
    other options these take, too; more than two classes are drawn by their confidence.

    Parameters
    ----------
    y_true : array of shape (n,)
        Labels, of any kind.
    y_prob : array of shape (n,) or (n, k)
        Probabilities of the positive class, or one row of class probabilities per case.
    n_bins : int, default 10
    strategy : {"uniform", "quantile"}
        Bins of equal width, or of equal mass.
    pos_label : label, optional
        The label that ``y_prob`` of shape (n,) is about; by default 1, or the second of sorted
        texts.
    estimator_name : str, optional
        Name in the legend.
    **options
        Of :func:`reliability`, but ``ax`` and ``label``.

    Attributes
    ----------
    prob_true, prob_pred : array of shape (m,)
        Observed frequency and prediction at the points of the line: one for each bin that holds a
        case. Like the next ones, once it is drawn.
    line_ : matplotlib Line2D
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    reliability : The same as a function of predictions, then labels.

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
        n_bins: int = 10,
        strategy: Literal["uniform", "quantile"] = "uniform",
        pos_label: Any = None,
        estimator_name: str | None = None,
        **options: Any,
    ) -> None:
        check_choice(strategy, "strategy", tuple(_BINNINGS))
        self.y_true, self.y_prob = y_true, y_prob
        self.n_bins, self.strategy, self.pos_label = n_bins, strategy, pos_label
        self.estimator_name, self.options = estimator_name, options

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        n_bins: int = 10,
        strategy: Literal["uniform", "quantile"] = "uniform",
        pos_label: Any = None,
        name: str | None = None,
        ax: Axes | None = None,
        sample_weight: ArrayLike | None = None,
        **options: Any,
    ) -> Self:
        """Draw what a fitted classifier or calibrator predicts.

        Parameters
        ----------
        estimator : fitted classifier or calibrator
            With ``predict_proba`` and ``classes_``.
        X : array of shape (n, features)
            What it predicts from; of a calibrator the scores.
        y : array of shape (n,)
            Labels.
        n_bins, strategy, pos_label
            As of the class; the positive label is by default the second of two.
        name : str, optional
            In the legend, by default that of the estimator's class.
        ax : matplotlib Axes, optional
            Where to draw, by default on a new figure.
        sample_weight : array of shape (n,), optional
            Case weights, which :func:`reliability` calls ``weights``.
        **options
            Of :func:`reliability`.

        Returns
        -------
        ReliabilityDisplay

        Raises
        ------
        TypeError, ValueError
            As :func:`reliability`; if ``pos_label`` is none of two classes, or if both
            ``sample_weight`` and ``weights`` are given.
        """
        probs, classes = estimator.predict_proba(X), list(estimator.classes_)
        if len(classes) == 2:
            pos_label = classes[1] if pos_label is None else pos_label
            if pos_label not in classes:
                raise ValueError(f"pos_label must be in {classes}, got {pos_label!r}")
            probs = probs[:, classes.index(pos_label)]
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
        n_bins: int = 10,
        strategy: Literal["uniform", "quantile"] = "uniform",
        pos_label: Any = None,
        name: str | None = None,
        ax: Axes | None = None,
        sample_weight: ArrayLike | None = None,
        **options: Any,
    ) -> Self:
        """Draw predictions that are given.

        Parameters
        ----------
        y_true : array of shape (n,)
            Labels.
        y_prob : array of shape (n,) or (n, k)
            Probabilities of the positive class, or one row of class probabilities per case.
        n_bins, strategy, pos_label
            As of the class.
        name : str, optional
            In the legend.
        ax : matplotlib Axes, optional
            Where to draw, by default on a new figure.
        sample_weight : array of shape (n,), optional
            Case weights, which :func:`reliability` calls ``weights``.
        **options
            Of :func:`reliability`.

        Returns
        -------
        ReliabilityDisplay

        Raises
        ------
        TypeError, ValueError
            As :func:`reliability`; if labels and predictions are exchanged, or if both
            ``sample_weight`` and ``weights`` are given.
        """
        bins: Any = {"n_bins": n_bins, "strategy": strategy, "pos_label": pos_label}
        if sample_weight is not None:
            if options.get("weights") is not None:
                raise TypeError("sample_weight and weights must not both be given: they are one")
            options["weights"] = sample_weight
        return cls(y_true, y_prob, estimator_name=name, **bins, **options).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None, name: str | None = None, **options: Any) -> Self:
        """Draw it, again.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw, by default on a new figure.
        name : str, optional
            In the legend, by default ``estimator_name``.
        **options
            Of :func:`reliability`, in the place of those given before.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            As :func:`reliability`.
        """
        how: dict[str, Any] = {"bins": self.n_bins, "binning": _BINNINGS[self.strategy]}
        label = self.estimator_name if name is None else name
        how = {**how, **self.options, **options}
        self.ax_ = reliability(self.y_prob, self._labels(), ax=ax, label=label, **how)
        self.figure_ = self.ax_.figure  # type: ignore[assignment]
        self.line_ = self.ax_.lines[-1]
        self.prob_pred, self.prob_true = (np.asarray(part) for part in self.line_.get_data())
        return self

    def _labels(self) -> Any:
        """Return the labels, or whether each is the positive one if that is given."""
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
