"""Histogram binning."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.arrays import ArrayLike, XArray, on_host, search
from bayescal._core.binning import (
    begins_score,
    equal_mass_cuts,
    equal_mass_cuts_of_rows,
    take_step,
    width_cell_of_any,
    width_place,
)
from bayescal._core.lazy import jax, jnp
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.binary.monotone.pooling import OrderCalibrator
from bayescal.data.checks import check_choice, check_count, check_level, check_real
from bayescal.data.given import EVERYWHERE
from bayescal.data.order.ranking import Ranking, single_middles
from bayescal.data.rows import Rows, Source, Sums, weight_of_row
from bayescal.data.scores import Domain, two_columns

#: More rows than this count as this many: their probabilities are known.
_MOST_ROWS = 1e15


@dataclass(kw_only=True, eq=False, repr=False)
class BinnedCalibrator(OrderCalibrator):
    """A binary calibrator with one probability in each bin of scores."""

    edges_: np.ndarray = field(init=False)
    values_: np.ndarray = field(init=False)
    bin_weights_: np.ndarray = field(init=False)

    # Exchanging the classes may move single rows to the next bin.
    _symmetric = False

    @abstractmethod
    def _find_bins(self, state: State, scores: XArray) -> XArray:
        """Find the bins (m,) of scores."""

    def _apply(self, state: State, scores: XArray) -> XArray:
        return two_columns(take_step(state["values"], self._find_bins(state, scores), scores))

    def predict_interval(
        self, scores: ArrayLike, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute credible intervals of the proportion of the second class in the bin of a score.

        They are central intervals of the beta posterior of the bin, widened to contain the
        predicted value and the proportion among the rows. The prior is that of the option
        ``prior_weight``, or Jeffreys' prior Beta(1/2, 1/2). Intervals of ``ScalingBinning`` do not
        assume that its logistic map is right.

        In simulations of 10 to 5,000 rows in ten bins, intervals of level 0.9 covered 84 to 99 % of
        the mean probabilities of bins, and at least 80 % for ``ScalingBinning``. They do not show
        that the probability varies within a bin.

        Parameters
        ----------
        scores : array-like of shape (m,), (m, 1) or (m, 2)
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (m,)

        Raises
        ------
        ValueError
            If the calibrator was loaded from a file of a version without intervals.
        """
        from scipy.special import betaincinv

        level, given = check_level(level), self._values(scores)
        state = self.state_
        index = np.asarray(self._find_bins(state, given))
        if "unit" not in state:
            raise ValueError("the file of this calibrator has no intervals; fit it again")
        values, weight = state["values"], state["bin_weights"]
        proportions = state.get("proportions", values)
        prior_weight = float(getattr(self, "prior_weight", 0.0))
        rows = (weight + prior_weight) / max(float(state["unit"]), weight.sum() / _MOST_ROWS)
        jeffreys = 0.0 if prior_weight else 0.5
        positive, negative = proportions * rows + jeffreys, (1 - proportions) * rows + jeffreys
        lower, upper = (betaincinv(positive, negative, (1 + z * level) / 2) for z in (-1, 1))
        lower = np.minimum(np.minimum(lower, values), proportions)
        upper = np.maximum(np.maximum(upper, values), proportions)
        return lower[index], upper[index]


@dataclass(eq=False, repr=False)
class Histogram(BinnedCalibrator):
    r"""Histogram binning: the proportion of class 1 in the bin of the score.

    .. math:: \hat p(s) = \frac{N_0 p_b + \sum_{i \in b} w_i y_i}{N_0 + \sum_{i \in b} w_i},
              \qquad b \text{ the bin of } s

    Bins are (lower, upper] as in :func:`bayescal.metrics.reliability_curve`; the first bin contains
    0. A bin of equal width without rows predicts its center. Tied scores share a bin, so ties make
    bins of equal mass unequal and may reduce their number. Their borders are half-way between the
    scores on either side, rounded to single precision, and the first bins may hold one row more, so
    exchanging the classes may move single rows to the next bin.

    Parameters
    ----------
    bins : int
        Number of bins.
    binning : {"equal_width", "equal_mass"}
        Bins of equal width divide [0, 1] and need probabilities; bins of equal mass hold equal
        weight and use the order of the scores only.
    prior_weight : float
        :math:`N_0`, the weight of a beta prior in rows, for each bin. Without a prior, a bin with
        rows of one class predicts 0 or 1, and a single new row of the other class costs a log loss
        of 36 nats. With 1, the value is near (k + 1/2) / (n + 1) for k of n rows of class 1. The
        prior mean :math:`p_b` is the center of a bin of equal width, and 1/2 for equal mass.

    Attributes
    ----------
    edges_, values_, bin_weights_ : arrays
        Inner borders of the bins, their probabilities and their weights.

    Notes
    -----
    The state is ``edges`` (k - 1,), the borders between bins, ``values`` (k,) and ``bin_weights``
    (k,), the weight in each bin, which is zero if ``values`` is the center, and ``unit``, the
    weight of a row. Fitting n rows takes O(n) for bins of equal width. For equal mass it takes at
    most O(n log n) comparisons, and O(n) if there are many distinct scores; accelerators sort the
    scores. Predicting takes at most O(log k) per score.

    Fits to rows in blocks equal those in memory. They take two passes for equal width; and for
    equal mass three or four, which count rows in cells and sort the cells with a border, or two for
    up to 4,194,304 rows.

    References
    ----------
    B. Zadrozny and C. Elkan (2001), Obtaining calibrated probability estimates from decision
    trees and naive Bayesian classifiers.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.Histogram(bins=2).fit(p, y).predict_proba([0.2, 0.7])[:, 1].round(2).tolist()
    [0.33, 0.67]
    """

    bins: int = 10
    binning: Literal["equal_width", "equal_mass"] = "equal_width"
    prior_weight: float = 0.0

    _sources: ClassVar[frozenset[str]] = EVERYWHERE

    def _check_options(self) -> None:
        check_count(self.bins, "bins")
        check_choice(self.binning, "binning", ("equal_width", "equal_mass"))
        check_real(self.prior_weight, "prior_weight")
        if not 0 <= self.prior_weight < np.inf:
            raise ValueError(f"prior_weight must not be negative, got {self.prior_weight}")

    @property
    def domain(self) -> Domain:
        return "probability" if self.binning == "equal_width" else "order"

    def _fit(self, rows: Source, seed: int) -> State:
        if self.binning == "equal_width":
            # Quotients are rounded correctly, unlike linspace: 0.2 is on the border 3 / 15.
            edges = np.arange(1, self.bins) / self.bins
            sums = rows.total(partial(_sums_of_equal_width, self.bins))
            weight, positive = sums["weight"], sums["positive"]
            center = (np.arange(self.bins) + 0.5) / self.bins
        else:
            edges, weight, positive = equal_mass_bins(rows, self.bins)
            center = np.full(len(weight), 0.5)
        # Posterior means, and prior means of bins without rows.
        prior = float(self.prior_weight)
        total = weight + prior
        values = np.divide(positive + prior * center, total, out=center, where=weight > 0)
        unit = np.asarray(weight_of_row(rows))
        return {"edges": edges, "values": values, "bin_weights": weight, "unit": unit}

    def _find_bins(self, state: State, scores: XArray) -> XArray:
        edges = state["edges"]
        if self.binning == "equal_mass":
            return search(edges, scores)
        if on_host(scores):
            return width_cell_of_any(scores, len(edges) + 1, np)
        return width_place(edges, scores)


def equal_mass_bins(
    rows: Source, bins: int, log_odds: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find bins of equal mass: inner borders, and sums of weights of all rows and of class 1.

    ``log_odds`` tells whether scores are the log odds of given probabilities.
    """
    if isinstance(rows, Rows) and not on_host(rows.scores):
        cells = np.asarray(
            _cut_on_device(rows.scores, rows.y, rows.weights, bins, rows.whole, log_odds)
        )
        cuts, kept = np.unique(cells[0], return_index=True)
        below, above, *sums = cells[1:, kept[cuts > 0]]
        weight, positive = np.diff(sums, prepend=0)
        return single_middles(below[:-1], above[:-1]), weight, positive
    ranking = Ranking(rows, log_odds=log_odds)
    whole_weights = rows.whole
    while True:
        groups = ranking.groups
        mass = np.concatenate([[0.0], np.cumsum(groups.weight)])
        cuts = np.unique(equal_mass_cuts(mass, np.array([bins]), whole_weights))
        cuts = cuts[(cuts > 0) & (cuts < len(groups.weight))]
        at_cut = np.zeros(len(groups.weight), bool)
        at_cut[cuts - 1] = at_cut[cuts] = True
        if not (at_cut & groups.whole).any():
            break
        ranking.refine(at_cut & groups.whole)
    starts = np.concatenate([[0], cuts])
    weight, positive = (np.add.reduceat(s, starts) for s in (groups.weight, groups.positive))
    return single_middles(groups.highest[cuts - 1], groups.lowest[cuts]), weight, positive


@partial(jax.jit, static_argnums=(3, 5))
def _cut_on_device(
    scores: jax.Array, y: jax.Array, weights: jax.Array, bins: int, whole: jax.Array, log_odds: bool
) -> jax.Array:
    """Compute five numbers (5, bins) for the upper border of each bin.

    These are the number of rows below the border, the scores on either side, and the weights of the
    rows below of both classes and of class 1. Bins without rows end at the previous border.
    """
    order = jnp.argsort(scores)
    scores, weights = scores[order], weights[order]
    sums = [jnp.cumsum(terms) for terms in (weights, weights * y[order])]
    mass, positive = (jnp.concatenate([jnp.zeros(1), total]) for total in sums)
    begins = begins_score(scores, log_odds)
    cuts = equal_mass_cuts_of_rows(begins, mass, bins, whole)
    beside = [scores[jnp.clip(at, 0, len(scores) - 1)] for at in (cuts - 1, cuts)]
    return jnp.stack([cuts.astype(float), *beside, mass[cuts], positive[cuts]])


def _sums_of_equal_width(bins: int, rows: Rows) -> Sums:
    scores, y, weights = rows
    xp = np if on_host(scores) else jnp
    index = width_cell_of_any(scores, bins, xp)
    terms = {"weight": weights, "positive": weights * y}
    return {
        name: np.asarray(xp.bincount(index, xp.asarray(values), bins))
        for name, values in terms.items()
    }
