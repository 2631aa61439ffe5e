"""Random calibration forests: averages over the leaves of random trees."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from bayescal._core.arrays import device, namespace, on_host, take_in_rows
from bayescal._core.chunks import slices
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.neighborhood import trees as _trees
from bayescal.calibrators.neighborhood.base import (
    Assumption,
    NeighborhoodCalibrator,
    Points,
    merge,
)
from bayescal.calibrators.neighborhood.trees import Layout, Trees
from bayescal.data.checks import check_count
from bayescal.data.order.classes import canonical_order
from bayescal.data.order.equal_rows import distinct_rows
from bayescal.data.rows import Rows, Source

__all__ = ["Forest"]

_CANDIDATES = 2 ** np.arange(1, 13)

#: Of the weight of all rows, less is no weight that sums of weights can tell from rounding.
_LEAST_SHARE = 1e-12
#: How the sum over a node without one fold is made up of cumulative sums: of all, of the fold.
_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])


@dataclass(eq=False, repr=False)
class Forest(NeighborhoodCalibrator):
    r"""Random calibration forest: each row's error is the mean error in its leaves of random trees.

    .. math:: \hat c(p) = p - \frac{1}{T} \sum_{t=1}^T
              \frac{\sum_{i \in L_t(p)} w_i (p_i - y_i)}{\sum_{i \in L_t(p)} w_i},

    cropped to :math:`[\varepsilon, 1 - \varepsilon]` and divided by its sum. :math:`L_t(p)` are the
    rows in the leaf of tree t that p falls into. A tree starts as one leaf with all rows. Leaves
    are split breadth first, level by level and from left to right, until there are so many bins: a
    class is drawn uniformly among those whose probability varies within the leaf, then a threshold
    uniformly between its least and its largest probability in the leaf; rows with less go left, all
    others right. Leaves without two distinct rows are passed over. Labels play no part in this, but
    in the order in which classes are numbered for the draws, that of weighted means of their scores
    and labels: permuting the columns changes nothing, unless these are the same for two classes.

    Parameters
    ----------
    bins : "cv" or int, default "cv"
        Number of leaves of a tree; more than distinct rows count as that many. "cv" chooses the
        least log loss of ten folds, stratified by class, among the powers of two from 2 to 4096
        that do not exceed the number of distinct rows; of equally good ones the smallest.
    trees : int, default 250
        Number T of trees.
    assumption : {"errors", "labels"}
        What rows in a leaf share: the calibration error, or the distribution of labels, where the
        mean of :math:`y_i` is the probability itself.
    crop : float, optional
        ε, by default 0.01 / k**2 for k classes: 1e-4 for 10 and 1e-6 for 100.
    random_state : int, RandomState or None
        Of the trees.

    Attributes
    ----------
    bins_ : int

    Notes
    -----
    A tree grown to 4096 bins contains the trees of all smaller numbers, so one growth serves all
    candidates. As trees depend on no labels, cross-validation keeps them, and leaves the rows of a
    fold out of the means in the leaves; where a leaf has no other rows, the smallest node above it
    that has some stands in.

    The state describes trees of ``bins`` leaves by ``feature``, ``threshold`` and ``left``, each of
    shape (T, nodes): the class by which a node is split, where, and its left child; the right child
    is the next node, and a node whose left child is 0 is a leaf. ``leaf_values`` (T, bins, k) are
    the means in the leaves, in the order of nodes. Besides there are ``bins`` and ``crop``, and
    after cross-validation ``candidates`` and ``cv_losses``, the mean log loss of each. A single row
    cannot be cross-validated: its own loss stands for all.

    Trees are grown on probabilities in single precision, so that no split is between values that
    rounding alone tells apart.

    Growing takes O(T n d) for trees of depth d, cross-validation O(T n k) for each candidate and
    O(n k) memory for each, predicting q rows O(q T (d + k)); the state has T bins k numbers.

    References
    ----------
    K. Valk (2022), Calibration of multi-class probabilistic classifiers, University of Tartu,
    section 3.2.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> forest = bc.Forest(4, random_state=0).fit(p, y)
    >>> forest.predict_proba(p[:1]).round(1).tolist()
    [[0.7, 0.2, 0.0]]
    """

    bins: Literal["cv"] | int = "cv"
    trees: int = 250
    assumption: Assumption = "errors"
    crop: float | None = None
    random_state: int | np.random.RandomState | None = field(default=None, kw_only=True)

    bins_: int = field(init=False)

    def _check_options(self) -> None:
        if self.bins != "cv":
            check_count(self.bins, "bins")
        check_count(self.trees, "trees")
        super()._check_options()

    def _fit(self, rows: Source, seed: int) -> State:
        scores, y, weights = rows.all()
        # In single precision: no split is between values that rounding alone tells apart.
        scores = scores.astype(np.float32).astype(float)
        given, points = Rows(scores, y, weights), merge(scores, y, weights)
        distinct = len(points.weights)
        candidates = _CANDIDATES[: max(1, np.count_nonzero(distinct >= _CANDIDATES))]
        if 2 * distinct <= weights.sum() and candidates[-1] < distinct < _CANDIDATES[-1]:
            # Rows that occur often may each have a bin.
            candidates = np.append(candidates, distinct)
        most = int(candidates[-1]) if self.bins == "cv" else self.bins
        at_once = _trees.trees_at_once(distinct)
        order = canonical_order(scores, y, weights)
        ordered = points.probabilities[:, order]
        grown = [
            _trees.grow(ordered, most, seed, range(self.trees)[part])
            for part in slices(self.trees, at_once)
        ]

        def held_out(entries: Rows, fold: np.ndarray) -> np.ndarray:
            averages = self._averages_held_out(grown, candidates, fold, *entries)
            return self._losses(averages, *entries)

        state = self._choose("bins", candidates, given, held_out, np.min)
        bins = min(int(state["bins"]), distinct)
        pruned = [trees.pruned(bins) for trees, _ in grown]
        feature = np.concatenate([trees.feature for trees in pruned])
        left = np.concatenate([trees.left for trees in pruned])
        values = [_leaf_values(*some, points, self.assumption, bins) for some in grown]
        return state | {
            "bins": np.asarray(bins),
            "feature": np.where(left > 0, order.astype(np.int32)[feature], 0),
            "threshold": np.concatenate([trees.threshold for trees in pruned]),
            "left": left,
            "leaf_values": np.concatenate(values),
        }

    def _precompute(self, state: State) -> State:
        # The place of a leaf's mean among those of all trees.
        leaf = state["left"] == 0
        place = np.cumsum(leaf).reshape(leaf.shape) - 1
        return state | {"place": place, "depth": np.asarray(_trees.depth(state["left"]))}

    def _width(self, state: State, scores: Any) -> int:
        return math.prod(state["leaf_values"].shape[::2])

    def _apply(self, state: State, scores: Any) -> Any:
        xp, parts = namespace(scores), [state[n] for n in ("feature", "threshold", "left", "place")]
        (count, nodes), k = parts[0].shape, scores.shape[1]
        feature, threshold, left, place = (xp.reshape(part, (-1,)) for part in parts)
        base = xp.arange(count, device=device(scores)) * nodes
        here = xp.reshape(xp.astype(xp.zeros_like(scores[:, :1]), base.dtype) + base, (-1,))
        root = here
        for _ in range(int(state["depth"])):
            column = xp.reshape(xp.take(feature, here, axis=0), (-1, count))
            value = take_in_rows(scores, xp.astype(column, base.dtype))
            right = xp.reshape(value, (-1,)) >= xp.take(threshold, here, axis=0)
            child = xp.astype(xp.take(left, here, axis=0), base.dtype)
            here = xp.where(child > 0, root + child + xp.astype(right, base.dtype), here)
        values = xp.reshape(state["leaf_values"], (-1, k))
        leaf = xp.astype(xp.take(place, here, axis=0), base.dtype)
        means = xp.take(values, leaf, axis=0)
        averages = xp.mean(xp.reshape(means, (-1, count, k)), axis=1)
        return self._calibrated(scores, averages, state["crop"])

    def _apply_in_blocks(self, state: State, scores: Any) -> Any:
        if not on_host(scores):
            return super()._apply_in_blocks(state, scores)
        # Only rows that are no leaf's yet go on, and the means are one sparse product.
        from scipy.sparse import csr_array

        trees = Trees(state["feature"], state["threshold"], state["left"])
        count, _, k = state["leaf_values"].shape
        place, values = state["place"], state["leaf_values"].reshape(-1, k)
        probabilities = np.empty(scores.shape)
        for part in slices(len(scores), _trees.trees_at_once(count)):
            given = scores[part]
            found = _trees.find_leaves(trees, given)
            found = np.take_along_axis(place, found, axis=1).T
            ends = np.arange(0, found.size + 1, count)
            shares = np.full(found.size, 1 / count)
            matrix = csr_array((shares, found.reshape(-1), ends), shape=(len(given), len(values)))
            probabilities[part] = self._calibrated(given, matrix @ values, float(state["crop"]))
        return probabilities

    def _averages_held_out(
        self,
        grown: list[tuple[Trees, Layout]],
        candidates: np.ndarray,
        fold: np.ndarray,
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
    ) -> np.ndarray:
        """Return averages (candidates, n, k) over leaves, without the fold of each row."""
        n, k = scores.shape
        _, point = distinct_rows(scores)
        values = Points(scores, np.eye(k)[y], weights).values(self.assumption)
        rows = _Rows(point, fold, weights, weights[:, None] * values)
        averages = np.zeros((len(candidates), n, k))
        at_once = _trees.trees_at_once(n * max(10, k // 4))
        for trees, layout in grown:
            for part in slices(len(trees.left), at_once):
                some = Trees(*(a[part] for a in trees)), Layout(*(a[part] for a in layout))
                _add_held_out(averages, *some, rows, candidates)
        return averages / self.trees


class _Rows(NamedTuple):
    """Rows to cross-validate: their point, fold, weight, and weighted value (n, k)."""

    point: np.ndarray
    fold: np.ndarray
    weights: np.ndarray
    values: np.ndarray


def _leaf_values(
    trees: Trees, layout: Layout, points: Points, assumption: Assumption, bins: int
) -> np.ndarray:
    """Return the means (trees, bins, k) of values in the leaves, in the order of nodes."""
    pruned = trees.pruned(bins)
    weighted = points.weights[:, None] * points.values(assumption)
    means = np.empty((len(pruned.left), bins, weighted.shape[1]))
    for tree, mean in enumerate(means):
        node = np.flatnonzero(pruned.left[tree] == 0)
        starts = layout.start[tree, node]
        order, by_start = layout.order[tree], np.argsort(starts)
        sums = np.add.reduceat(weighted[order], starts[by_start], axis=0)
        total = np.add.reduceat(points.weights[order], starts[by_start])
        mean[by_start] = sums / total[:, None]
    return means


def _add_held_out(
    averages: np.ndarray, trees: Trees, layout: Layout, rows: _Rows, candidates: np.ndarray
) -> None:
    """Add to averages (candidates, n, k) the means in each row's leaves, without its own fold.

    The rows of a node are neighbors in the order of their tree, and so are those of one fold if
    folds come one after another. So sums over a node, with or without a fold, are differences of
    cumulative sums, and all these differences are one product with a sparse matrix.
    """
    from scipy.sparse import csr_array

    count, m = layout.order.shape
    n, k = rows.values.shape
    folds = int(rows.fold.max()) + 1
    rank = np.empty((count, m), np.intp)
    np.put_along_axis(rank, layout.order.astype(np.intp), np.arange(m)[None], axis=1)
    rank = rank[:, rows.point]
    # Numbers of rows before each place, of all and of each fold; folds follow each other.
    table = np.zeros((m, folds), np.int32)
    np.add.at(table, (rows.point, rows.fold), 1)
    before = np.zeros((count, m + 1, folds), np.int32)
    np.cumsum(table[layout.order], axis=1, out=before[:, 1:])
    before_all = before.sum(axis=2, dtype=np.int32)
    first = np.cumsum(table.sum(axis=0)) - table.sum(axis=0)
    before += first.astype(np.int32)
    sums, weights = np.zeros((count, 2, n + 1, k)), np.zeros((count, 2, n + 1))
    for which, key in enumerate((rank, rows.fold * m + rank)):
        order = np.argsort(key, axis=1, kind="stable")
        np.cumsum(rows.values[order], axis=1, out=sums[:, which, 1:])
        np.cumsum(rows.weights[order], axis=1, out=weights[:, which, 1:])
    weights, least = weights.reshape(-1), _LEAST_SHARE * rows.weights.sum()
    tree, fold = np.repeat(np.arange(count), n), np.tile(rows.fold, count)

    def ends(some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places (4, s) of the cumulative sums that count, and the weight left (s,)."""
        at = tree[some]
        start, end = layout.start[at, node[some]], layout.end[at, node[some]]
        every = at * 2 * (n + 1)
        own = every + n + 1
        place = np.stack(
            [
                every + before_all[at, end],
                every + before_all[at, start],
                own + before[at, end, fold[some]],
                own + before[at, start, fold[some]],
            ]
        )
        return place, _SIGNS @ weights[place]

    for number, bins in enumerate(candidates):
        leaves = _trees.leaves_in_order(trees, layout, int(bins))
        node = np.take_along_axis(leaves, rank, axis=1).reshape(-1)
        places, left = ends(np.arange(count * n))
        empty = np.flatnonzero(left <= least)
        while len(empty):
            node[empty] = layout.parent[tree[empty], node[empty]]
            places[:, empty], left[empty] = ends(empty)
            # Weights may differ so much that none are left even at the root.
            empty = empty[(left[empty] <= least) & (node[empty] > 0)]
        data = _SIGNS / np.where(left > least, left, np.inf)[:, None]
        place = places.reshape(4, count, n).transpose(2, 1, 0).reshape(-1)
        data = data.reshape(count, n, 4).transpose(1, 0, 2).reshape(-1)
        matrix = csr_array(
            (data, place, np.arange(0, len(place) + 1, 4 * count)),
            shape=(n, 2 * count * (n + 1)),
        )
        averages[number] += matrix @ sums.reshape(-1, k)
