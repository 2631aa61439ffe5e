"""Calibration by groups, with partial pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import ArrayLike, UserData
from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.keywords import ConstructorSignature, new_with_other_words
from bayescal._core.minimization.optimize import Status
from bayescal._core.numerics import effective_size, ignoring_underflow, sigmoid
from bayescal._core.shapes import Float
from bayescal.calibrators.base.dispatch import published_at_once
from bayescal.calibrators.base.estimator import keep_status
from bayescal.calibrators.combine.pooling.arrow import (
    Arrow,
    EffectBlock,
    EffectLayout,
    count_effects,
)
from bayescal.calibrators.combine.pooling.columns import (
    FEW_VALUES,
    Column,
    Grouping,
    cross,
    make_column,
    number_cells,
    read_columns,
    same_columns,
)
from bayescal.calibrators.combine.pooling.deviations import average_over_deviation, fit_effects
from bayescal.calibrators.combine.pooling.effects import (
    Effects,
    FittedEffects,
    make_effects,
    moments,
)
from bayescal.data.checks import check_choice, check_count, check_level
from bayescal.data.label_names import column_names, in_order, match_columns
from bayescal.data.labels import Classes, read_rows
from bayescal.data.scores import Inputs, check_rows, convert
from bayescal.data.weights import check_weights

_REMEDY = {Status.LIMIT: "the fit stopped before its optimum; leave out extreme scores"}
#: Candidate numbers of groups for a numeric column.
_BINS = (2, 3, 5, 8)
#: Scores whose relative standard deviation is below this count as equal.
_SAME = 1e-9
#: Limits of time and memory: the number of effects outside the largest grouping, and its product
#: with the number of all effects.
_MOST_OTHERS, _MOST_PAIRS = 4000, 16_000_000
#: Largest standard deviations of log odds for which each rule of quadrature is used.
_DEVIATIONS = 1, 2, 4, 8, 16
#: Private attributes of a fit that files contain.
_KEPT = "inputs", "least", "center", "spread", "names", "count"


class GroupEffect(NamedTuple):
    """Difference between the calibration of a group and of all rows.

    Attributes
    ----------
    columns, level : tuple
        The column or crossed columns, by name or position, and the level of each. The level of a
        numeric column is a range.
    weight : float
        The sum of weights of the group in the fit.
    offset, lower, upper : float
        Shift of the log odds at the mean log odds of all rows, and a credible interval of the
        shift.
    slope : float
        Change of the slope in the log odds, per unit of log odds.
    """

    columns: tuple[object, ...]
    level: tuple[object, ...]
    weight: float
    offset: float
    lower: float
    upper: float
    slope: float


class _Learned(NamedTuple):
    columns: list[Column]
    groupings: list[Grouping]
    layout: EffectLayout
    fit: FittedEffects
    weights: list[np.ndarray]


@dataclass(eq=False, repr=False)
class PartialPooling(BaseEstimator):
    r"""Binary calibration by groups, in which small groups borrow strength from all rows.

    Use it if calibration may differ between segments (such as regions, devices or age groups) and
    some segments have few rows. The log odds L of a row get an offset and a slope common to all
    rows, and an offset and a slope for its level in each grouping g:

    .. math:: \operatorname{logit} p' = L + a_0 + a_1 x + \sum_g \beta_{g, l_g} +
        \sum_{g \text{ a column}} \alpha_{g, l_g} x, \qquad x = (L - \bar L) / s_L

    Groupings are the columns of ``groups``, and crossings of them. Effects of a grouping are
    normal, :math:`\beta_g \sim N(0, \tau_g^2)`, with an estimated standard deviation. If groups
    hardly differ, :math:`\tau_g` is near zero, and all rows share one curve. If they differ, large
    groups get separate curves, and small groups are shrunk toward the common curve. The priors are
    :math:`a_0 \sim N(0, 1)`, :math:`a_1 \sim N(0, 0.25)`, and half-normal for the standard
    deviations, with scale 1 for offsets and 0.25 for slopes.

    :class:`Multicalibration` accepts groups that overlap in any way and bounds the error of each
    group, but changes nothing in small groups.

    Parameters
    ----------
    interactions : int, default 2
        The largest number of columns that are crossed; 1 uses single columns only. Crossings with
        more than 1,000 levels are omitted.
    inputs : {"probs", "logits"}
        Kind of scores.
    classes : sequence of 2 labels, optional
        Labels in the order of the columns; needed if y may lack one.

    Attributes
    ----------
    classes_ : array of shape (2,)
    groupings_ : list of tuples
        The columns, by name or position, of each grouping.
    deviations_ : dict of tuple to pair of floats
        The standard deviations :math:`\tau` of the offsets and of the slopes of each grouping, the
        latter per unit of log odds. Crossings have no slopes: zero.
    log_evidence_ : float
        The log marginal likelihood at ``deviations_``, by Laplace's approximation and quadrature,
        minus half the square of each deviation in units of the scale of its prior.
    status_ : str
        "converged", or "limit" if Newton's method stopped before the optimum.
    n_features_in_ : int

    Notes
    -----
    Effects are estimated by their posterior mode given the standard deviations, and the standard
    deviations by the mode of their marginal posterior under Laplace's approximation. If levels of
    the largest grouping have few rows, their effects are integrated out by adaptive Gauss-Hermite
    quadrature instead, and have their posterior mean and covariance. Intervals use the mode of the
    logarithms of the standard deviations, which does not collapse to zero. Each of about 20 rounds
    takes O(n + c q^2 + k m^2 + m^3) for n rows in c distinct combinations of q groupings, of which
    the largest has k effects and all others have m; memory is O(n + k m + m^2). A single column can
    therefore have a level for each customer.

    Pickles, and files written by :func:`save`, contain the labels of groups. The order of rows and
    of groups does not matter. An integer weight equals repeated rows; other weights are scaled to
    the effective number of rows.

    References
    ----------
    A. Gelman and J. Hill (2007), Data analysis using regression and multilevel/hierarchical
    models. D. J. C. MacKay (1992), Bayesian interpolation, for the updates of the deviations.

    See Also
    --------
    Multicalibration : for given groups that may overlap, with a bound of the error.

    Examples
    --------
    Probabilities that are right for one device and too low for another, which has few rows:

    >>> import numpy as np
    >>> import bayescal as bc
    >>> rng = np.random.default_rng(0)
    >>> z, device = rng.normal(size=2000), np.repeat(["old", "new"], [1900, 100])
    >>> y = rng.random(2000) < 1 / (1 + np.exp(-z - (device == "new")))
    >>> fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=device)
    >>> fitted.predict_proba([0.0, 0.0], groups=["old", "new"])[:, 1].round(2).tolist()
    [0.52, 0.66]
    """

    __new__ = new_with_other_words
    __signature__ = ConstructorSignature()

    interactions: int = 2
    inputs: Literal["probs", "logits"] = "probs"
    classes: Classes = field(default=None, kw_only=True)

    classes_: np.ndarray = field(init=False)
    groupings_: list[tuple[object, ...]] = field(init=False)
    deviations_: dict[tuple[object, ...], tuple[float, float]] = field(init=False)
    log_evidence_: float = field(init=False)
    status_: str = field(init=False)

    @published_at_once
    @ignoring_underflow
    @single_threaded_blas()
    def fit(
        self,
        scores: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike,
    ) -> Self:
        """Fit the common curve and the effects of groups.

        Parameters
        ----------
        scores : array-like of shape (n,) or (n, 2)
            Probabilities or log odds of the second class, or probabilities or logits of both.
        y : array-like of shape (n,)
            Labels, of any two values.
        sample_weight : array-like of shape (n,), optional
            Non-negative.
        groups : array-like or data frame of shape (n,) or (n, g)
            The group of each row, with a column for each grouping. Floating-point columns are cut
            at quantiles, half-way between values, into 2, 3, 5 or 8 groups, whichever has the
            largest evidence; with at most eight distinct values, each value is a group. All other
            values are labels. Missing values form a separate level.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If scores contradict ``inputs``, labels are not binary, groups have a wrong length, or
            groupings other than the largest have more than 4,000 effects.
        """
        check_choice(self.inputs, "inputs", ("probs", "logits"))
        check_count(self.interactions, "interactions", 1)
        score_names = column_names(scores)
        every = check_rows(self, scores, self.inputs, reset=True)
        columns, names = read_columns(groups, len(every))
        given = check_weights(sample_weight, len(every))
        self.classes_, rows, labels, weights = read_rows(every, y, sample_weight, self.classes, 2)
        rows = in_order(rows, score_names, self.classes_, "scores")
        columns = [column[given > 0] for column in columns]
        self._inputs: Inputs = self.inputs
        logits, self._least = convert(rows, self.inputs, "log_odds")
        if not (weights == np.floor(weights)).all():
            weights = weights * (effective_size(weights.sum(), weights @ weights) / weights.sum())
        self._center = float(weights @ logits) / float(weights.sum())
        spread = float(np.sqrt(weights @ (logits - self._center) ** 2 / weights.sum()))
        # Equal scores have a deviation of zero up to rounding.
        self._spread = spread if spread > _SAME * (1 + abs(self._center)) else 1.0
        self._names, self._count = names, len(columns)
        learned, effects = self._choose_bins(logits, labels.astype(float), weights, columns)
        self._learned = learned
        self._in_log = fit_effects(effects, learned.fit, in_log=True)
        if len(learned.groupings) == 1:
            self._in_log = average_over_deviation(effects, self._in_log, 0)
        self._publish()
        converged = learned.fit.converged and self._in_log.converged
        keep_status(self, Status.CONVERGED if converged else Status.LIMIT, _REMEDY)
        return self

    def _publish(self) -> None:
        learned, labels = self._learned, self._column_labels()
        self.groupings_ = [
            tuple(labels[column] for column in grouping.columns) for grouping in learned.groupings
        ]
        blocks, tau = learned.layout.by_grouping, learned.fit.tau
        self.deviations_ = {}
        for number, columns in enumerate(self.groupings_, 1):
            kinds = blocks.get((number, False)), blocks.get((number, True))
            offset, slope = (0.0 if block is None else float(tau[block.tau]) for block in kinds)
            self.deviations_[columns] = offset, slope / self._spread
        self.log_evidence_ = learned.fit.log_evidence

    def _to_file(self) -> dict[str, object]:
        """Return the numbers, text and arrays by name that :func:`bayescal.save` writes."""
        learned = self._learned
        fits = [
            [list(part) if isinstance(part, Arrow) else part for part in fit]
            for fit in (learned.fit, self._in_log)
        ]
        content = {name: getattr(self, f"_{name}") for name in _KEPT} | {
            "columns": [
                [None if column.levels is None else [*column.levels], column.cuts]
                for column in learned.columns
            ],
            "groupings": [list(grouping) for grouping in learned.groupings],
            "blocks": [
                [block.grouping, block.slope, block.effects.start, block.effects.stop, block.tau]
                for block in learned.layout.blocks
            ],
            "eliminated": learned.layout.grouping,
            "fit": fits[0],
            "in_log": fits[1],
            "weights": learned.weights,
        }
        public = ("classes_", "status_", "n_features_in_", "feature_names_in_")
        known = vars(self)
        return {**{name: known[name] for name in public if name in known}, "learned_": content}

    def _from_file(self, content: dict[str, Any]) -> None:
        learned = content.pop("learned_")
        for name, value in content.items():
            setattr(self, name, value)
        for name in _KEPT:
            setattr(self, f"_{name}", learned[name])
        columns = [
            Column(None if levels is None else {v: i for i, v in enumerate(levels)}, cuts)
            for levels, cuts in learned["columns"]
        ]
        groupings = [Grouping(*grouping) for grouping in learned["groupings"]]
        blocks = [
            EffectBlock(grouping, slope, slice(start, stop), tau)
            for grouping, slope, start, stop, tau in learned["blocks"]
        ]
        sizes = count_effects(blocks)
        # Files of 0.1.0 hold square matrices, from which any grouping may be eliminated.
        layout = EffectLayout(
            blocks, learned.get("eliminated", max(sizes, key=lambda index: sizes[index]))
        )
        fits = []
        for theta, tau, covariance, *rest in (learned["fit"], learned["in_log"]):
            dense = isinstance(covariance, np.ndarray)
            parts = Arrow.from_dense(layout, covariance) if dense else Arrow(*covariance)
            fits.append(FittedEffects(theta, tau, parts, *rest))
        self._learned = _Learned(columns, groupings, layout, fits[0], learned["weights"])
        self._in_log = fits[1]
        self._publish()

    def predict_proba(self, scores: ArrayLike, *, groups: ArrayLike) -> np.ndarray:
        """Compute calibrated probabilities (m, 2), averaged over the posterior of the effects.

        Parameters
        ----------
        scores : array-like of shape (m,) or (m, 2)
        groups : array-like or data frame of shape (m,) or (m, g)
            Columns as in the fit; columns of data frames are matched by name. Labels that were not
            in the fit get the common curve; "1" in place of 1 is an error.
        """
        check_is_fitted(self)
        return _mean_probabilities(*self._log_odds(scores, groups, self._learned.fit))

    def predict(self, scores: ArrayLike, *, groups: ArrayLike) -> np.ndarray:
        """Predict the more probable class (m,)."""
        codes = self.predict_proba(scores, groups=groups).argmax(axis=1)
        return self.classes_[codes]

    def predict_interval(
        self, scores: ArrayLike, level: float = 0.9, *, groups: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute credible intervals of the probability of the second class: lower, upper (m,).

        Labels that were not in the fit get the common curve and wider intervals, which include the
        variance of the effects of their grouping.
        """
        check_level(level)
        check_is_fitted(self)
        middle, deviation = self._log_odds(scores, groups, self._in_log)
        width = ndtri((1 + level) / 2) * deviation
        return sigmoid(middle - width), sigmoid(middle + width)

    def group_effects(self, level: float = 0.9) -> list[GroupEffect]:
        """List the effects of all groups of the fit, with credible intervals of offsets."""
        check_level(level)
        check_is_fitted(self)
        learned, fit = self._learned, self._in_log
        factor, labels = ndtri((1 + level) / 2), self._column_labels()
        variances = fit.covariance.diagonal(learned.layout)
        blocks, effects = learned.layout.by_grouping, []
        for number, grouping in enumerate(learned.groupings):
            names = tuple(labels[column] for column in grouping.columns)
            at, sloped = blocks[number + 1, False].effects, blocks.get((number + 1, True))
            offsets, deviations = fit.theta[at], np.sqrt(variances[at])
            slopes = fit.theta[sloped.effects] / self._spread if sloped else np.zeros_like(offsets)
            rows = zip(
                grouping.levels(learned.columns),
                learned.weights[number].tolist(),
                offsets.tolist(),
                (offsets - factor * deviations).tolist(),
                (offsets + factor * deviations).tolist(),
                slopes.tolist(),
                strict=True,
            )
            effects += [GroupEffect(names, *row) for row in rows]
        return effects

    def _choose_bins(
        self, logits: np.ndarray, y: np.ndarray, weights: np.ndarray, columns: list[np.ndarray]
    ) -> tuple[_Learned, Effects]:
        """Fit with the numbers of groups of numeric columns that have the largest evidence."""
        # Sort, so that the result does not depend on the order of the rows.
        order = np.lexsort((y, logits))
        logits, y, weights = logits[order], y[order], weights[order]
        columns = [column[order] for column in columns]

        @cache
        def read(index: int, bins: int) -> tuple[Column, np.ndarray]:
            column = make_column(columns[index], weights, bins)
            return column, column.codes(columns[index])

        def learn(bins: list[int]) -> tuple[_Learned, Effects]:
            made, levels = zip(*(read(*pair) for pair in enumerate(bins)), strict=True)
            cell, first = number_cells(np.stack(levels))
            counts = [column.size for column in made]
            groupings, codes = cross(np.stack(levels)[:, first], counts, self.interactions)
            sizes = [len(grouping.keys) for grouping in groupings]
            sloped = [len(grouping.columns) == 1 for grouping in groupings]
            effects = make_effects(
                logits, y, weights, cell, codes, sloped, self._center, self._spread
            )
            others, every = len(effects.layout.kept), effects.layout.length
            if others > _MOST_OTHERS or others * every > _MOST_PAIRS:
                raise ValueError(
                    f"groups have {every:,} effects, of which all but those of the largest "
                    f"grouping ({others:,}) must be at most {_MOST_OTHERS:,}, and times all at "
                    f"most {_MOST_PAIRS:,}; merge levels, leave out columns or set interactions=1"
                )
            mass = np.bincount(cell, weights)
            masses = [
                np.bincount(code, mass, size) for code, size in zip(codes, sizes, strict=True)
            ]
            fit = fit_effects(effects)
            return _Learned([*made], groupings, effects.layout, fit, masses), effects

        bins = [_BINS[0]] * len(columns)
        best = learn(bins)
        for index, column in enumerate(columns):
            cuts = best[0].columns[index].cuts
            if cuts is None or len(np.unique(column[~np.isnan(column)])) <= FEW_VALUES:
                continue
            for count in _BINS[1:]:
                other = [*bins[:index], count, *bins[index + 1 :]]
                new = learn(other)
                if new[0].fit.log_evidence > best[0].fit.log_evidence:
                    best, bins = new, other
        return best

    def _read(
        self, scores: UserData, groups: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Read log odds (m,), the cell (m,) of each row, and levels (groupings, cells)."""
        names = column_names(scores)
        fitted = vars(self).get("feature_names_in_", [])
        if names is not None and {*names} == {*fitted} and match_columns(names, self.classes_):
            # scikit-learn requires the column order of the fit.
            scores, names = scores[[*fitted]], [*fitted]
        rows = check_rows(self, scores, self._inputs, reset=False)
        rows = in_order(rows, names, self.classes_, "scores")
        logits, _ = convert(rows, self._inputs, "log_odds", self._least)
        columns = same_columns(groups, len(rows), self._names, self._count)
        learned = self._learned
        levels = np.stack(
            [column.codes(values) for column, values in zip(learned.columns, columns, strict=True)]
        )
        cell, first = number_cells(levels)
        counts = [column.size for column in learned.columns]
        codes = [grouping.codes(levels[:, first], counts) for grouping in learned.groupings]
        return logits, cell, np.stack(codes)

    def _log_odds(
        self, scores: ArrayLike, groups: ArrayLike, fit: FittedEffects
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute the posterior mean and standard deviation (m,) of calibrated log odds."""
        logits, cell, codes = self._read(scores, groups)
        mean, spread = moments(self._learned.layout, fit, codes)
        x = (logits - self._center) / self._spread
        (shift, turn), (offset, both, slope) = mean[:, cell], spread[:, cell]
        variance = offset + 2 * both * x + slope * x**2
        return logits + shift + turn * x, np.sqrt(np.maximum(variance, 0.0))

    def _column_labels(self) -> Sequence[object]:
        return range(self._count) if self._names is None else self._names


def _mean_probabilities(
    middle: Float[np.ndarray, " rows"], deviation: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, "rows 2"]:
    """Average the probabilities of both classes over normal log odds, with errors below 5e-6.

    Nodes must be closer together for larger deviations. For the largest, the logistic distribution
    function is nearly the normal one of equal variance.
    """
    below = -np.abs(middle)
    smaller = ndtr(below / np.sqrt(deviation**2 + np.pi**2 / 3))
    size = np.searchsorted(_DEVIATIONS, deviation)
    for number in np.flatnonzero(np.bincount(size)[: len(_DEVIATIONS)]):
        rows = np.flatnonzero(size == number)
        at, spread = below[rows], deviation[rows]
        smaller[rows] = sum(
            weight * sigmoid(at + node * spread)
            for node, weight in zip(*_normal_rule(_DEVIATIONS[number]), strict=True)
        )
    second = np.where(middle < 0, smaller, 1 - smaller)
    return np.stack([np.where(middle < 0, 1 - smaller, smaller), second], axis=1)


@cache
def _normal_rule(deviation: int) -> tuple[list[float], list[float]]:
    """Return nodes and weights of means over a standard normal variable times the deviation."""
    nodes, weights = hermegauss(9)
    if deviation > 1:
        step = 1.2 / deviation
        nodes = step * np.arange(-(8 // step), 8 // step + 1)
        weights = np.exp(-(nodes**2) / 2)
    return nodes.tolist(), (weights / weights.sum()).tolist()
