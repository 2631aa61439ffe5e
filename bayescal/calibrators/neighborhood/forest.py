"""Random calibration forests: averages over the leaves of random trees."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from bayescal._core.arrays import XArray, device, namespace, take_in_rows
from bayescal._core.execution.chunks import slices
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.neighborhood import trees as _trees
from bayescal.calibrators.neighborhood.base import (
    Assumption,
    Averages,
    DistinctRows,
    NeighborhoodCalibrator,
    merge,
)
from bayescal.calibrators.neighborhood.trees import NodeRanges, Trees
from bayescal.data.checks import check_count
from bayescal.data.order.classes import canonical_order
from bayescal.data.order.equal_rows import distinct_rows
from bayescal.data.rows import Rows, Source

_CANDIDATES = 2 ** np.arange(1, 13)

#: Relative weight below which differences of sums of weights are rounding errors.
_MIN_RELATIVE_WEIGHT = 1e-12
#: Signs of the cumulative sums of all rows and of a fold in the sum over a node without the fold.
_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])


@dataclass(eq=False, repr=False)
class Forest(NeighborhoodCalibrator):
    r"""Random calibration forest: subtract the mean error in the leaves of random trees.

    .. math:: \hat c(p) = p - \frac{1}{T} \sum_{t=1}^T
              \frac{\sum_{i \in L_t(p)} w_i (p_i - y_i)}{\sum_{i \in L_t(p)} w_i},

    clipped to :math:`[\varepsilon, 1 - \varepsilon]` and normalized. :math:`L_t(p)` are the rows in
    the leaf of tree t that contains p. A tree starts as one leaf with all rows. Leaves are split
    breadth first, until the tree has enough bins. A split draws a class uniformly from those whose
    probability varies within the leaf, and a threshold uniformly between its smallest and largest
    probability in the leaf. Labels only affect the order of the classes for the draws, which is
    that of weighted means of their scores and labels: permuting the columns changes nothing unless
    these are equal for two classes.

    Parameters
    ----------
    bins : "cv" or int, default "cv"
        Number of leaves of a tree, at most the number of distinct rows. "cv" minimizes the log loss
        of ten folds, stratified by class, over the powers of two from 2 to 4096 that do not exceed
        the number of distinct rows; of equally good numbers the smallest.
    trees : int, default 250
        Number T of trees.
    random_state : int, RandomState or None
        Seed of the trees.

    Attributes
    ----------
    bins_ : int
        Number of leaves of a tree.

    Notes
    -----
    A tree with 4096 bins contains the trees of all smaller numbers, and trees do not depend on
    labels, so trees are grown once on all rows, and cross-validation omits the rows of a fold from
    the means in the leaves. If a leaf has no other rows, the smallest node above it with other rows
    is used.

    The state describes trees of ``bins`` leaves by ``feature``, ``threshold`` and ``left`` of shape
    (T, nodes): the class and threshold that split a node, and its left child. The right child is
    the next node, and a node whose left child is 0 is a leaf. ``leaf_values`` (T, bins, k) are the
    means in the leaves. Further entries are ``bins`` and ``crop``, and after cross-validation
    ``candidates`` and their mean log losses ``cv_losses``. A single row cannot be held out, so its
    in-sample loss is used.

    Growing takes O(T n d) for trees of depth d. Cross-validation takes O(T n k) time and O(n k)
    memory per candidate. Predicting q rows takes O(q T (d + k)). The state has T bins k numbers.

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
        # Single precision, so that no split separates values that differ only by rounding.
        scores = scores.astype(np.float32).astype(float)
        data, points = Rows(scores, y, weights), merge(scores, y, weights)
        distinct = len(points.weights)
        candidates = _CANDIDATES[: max(1, np.count_nonzero(distinct >= _CANDIDATES))]
        if 2 * distinct <= weights.sum() and candidates[-1] < distinct < _CANDIDATES[-1]:
            # If rows are repeated often, every distinct row may have a bin.
            candidates = np.append(candidates, distinct)
        max_bins = int(candidates[-1]) if self.bins == "cv" else self.bins
        at_once = _trees.trees_at_once(distinct)
        order = canonical_order(scores, y, weights)
        ordered = points.probabilities[:, order]
        grown = [
            _trees.grow(ordered, max_bins, seed, range(self.trees)[part])
            for part in slices(self.trees, at_once)
        ]

        def held_out(entries: Rows, fold: np.ndarray) -> np.ndarray:
            (n, k), mass = entries.scores.shape, entries.weights
            values = DistinctRows.of_rows(entries).values(self.assumption)
            point = distinct_rows(entries.scores)[1]
            held = _HeldRows(point, fold, mass, mass[:, None] * values)
            averages = np.zeros((len(candidates), n, k))
            at_once = _trees.trees_at_once(n * max(10, k // 4))
            for trees, layout in grown:
                for part in slices(len(trees.left), at_once):
                    chunk = Trees(*(a[part] for a in trees)), NodeRanges(*(a[part] for a in layout))
                    _add_held_out(averages, *chunk, held, candidates)
            return self._losses(averages / self.trees, *entries)

        state = self._choose("bins", candidates, data, held_out, np.min)
        bins = min(int(state["bins"]), distinct)
        pruned = [trees.pruned(bins) for trees, _ in grown]
        feature = np.concatenate([trees.feature for trees in pruned])
        left = np.concatenate([trees.left for trees in pruned])
        values = [_leaf_values(*chunk, points, self.assumption, bins) for chunk in grown]
        return state | {
            "bins": np.asarray(bins),
            "feature": np.where(left > 0, order.astype(np.int32)[feature], 0),
            "threshold": np.concatenate([trees.threshold for trees in pruned]),
            "left": left,
            "leaf_values": np.concatenate(values),
        }

    def _precompute(self, state: State) -> State:
        # Index of the mean of each leaf among those of all trees.
        leaf = state["left"] == 0
        index = np.cumsum(leaf).reshape(leaf.shape) - 1
        return state | {"leaf_index": index, "depth": np.asarray(_trees.depth(state["left"]))}

    def _width(self, state: State, scores: XArray) -> int:
        return math.prod(state["leaf_values"].shape[::2])

    def _apply(self, state: State, scores: XArray) -> XArray:
        xp = namespace(scores)
        parts = [state[name] for name in ("feature", "threshold", "left", "leaf_index")]
        (count, nodes), k = parts[0].shape, scores.shape[1]
        feature, threshold, left, leaf_index = (xp.reshape(part, (-1,)) for part in parts)
        base = xp.arange(count, device=device(scores)) * nodes
        node = xp.reshape(xp.astype(xp.zeros_like(scores[:, :1]), base.dtype) + base, (-1,))
        root = node
        for _ in range(int(state["depth"])):
            column = xp.reshape(xp.take(feature, node, axis=0), (-1, count))
            value = take_in_rows(scores, xp.astype(column, base.dtype))
            right = xp.reshape(value, (-1,)) >= xp.take(threshold, node, axis=0)
            child = xp.astype(xp.take(left, node, axis=0), base.dtype)
            node = xp.where(child > 0, root + child + xp.astype(right, base.dtype), node)
        values = xp.reshape(state["leaf_values"], (-1, k))
        leaf = xp.astype(xp.take(leaf_index, node, axis=0), base.dtype)
        means = xp.take(values, leaf, axis=0)
        averages = xp.mean(xp.reshape(means, (-1, count, k)), axis=1)
        return self._calibrated(scores, averages, state["crop"])

    def _averages(self, state: State, scores: np.ndarray) -> Averages:
        # Only rows that have not reached a leaf continue, and means are one sparse product.
        from scipy.sparse import csr_array

        trees = Trees(state["feature"], state["threshold"], state["left"])
        count, _, k = state["leaf_values"].shape
        leaf_index, values = state["leaf_index"], state["leaf_values"].reshape(-1, k)
        for part in slices(len(scores), _trees.trees_at_once(count)):
            block = scores[part]
            nodes = _trees.find_leaves(trees, block)
            leaves = np.take_along_axis(leaf_index, nodes, axis=1).T
            ends = np.arange(0, leaves.size + 1, count)
            weights = np.full(leaves.size, 1 / count)
            matrix = csr_array((weights, leaves.reshape(-1), ends), shape=(len(block), len(values)))
            yield part, matrix @ values


class _HeldRows(NamedTuple):
    """Rows in cross-validation: index among distinct rows, fold, weight, weighted values (n, k)."""

    point: np.ndarray
    fold: np.ndarray
    weights: np.ndarray
    values: np.ndarray


def _leaf_values(
    trees: Trees, layout: NodeRanges, points: DistinctRows, assumption: Assumption, bins: int
) -> np.ndarray:
    """Compute the means (trees, bins, k) of values in the leaves, in the order of nodes."""
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
    averages: np.ndarray, trees: Trees, layout: NodeRanges, rows: _HeldRows, candidates: np.ndarray
) -> None:
    """Add the means in the leaves of rows, without their folds, to averages (candidates, n, k).

    The rows of a node are contiguous in the order of their tree, and so are those of one fold if
    rows are sorted by folds first. Sums over a node, with or without a fold, are therefore
    differences of cumulative sums, and one product with a sparse matrix computes them all.
    """
    from scipy.sparse import csr_array

    count, m = layout.order.shape
    n, k = rows.values.shape
    folds = int(rows.fold.max()) + 1
    rank = np.empty((count, m), np.intp)
    np.put_along_axis(rank, layout.order.astype(np.intp), np.arange(m)[None], axis=1)
    rank = rank[:, rows.point]
    # Numbers of rows before each position, of all rows and of each fold, sorted by folds.
    table = np.zeros((m, folds), np.int32)
    np.add.at(table, (rows.point, rows.fold), 1)
    before = np.zeros((count, m + 1, folds), np.int32)
    np.cumsum(table[layout.order], axis=1, out=before[:, 1:])
    before_all = before.sum(axis=2, dtype=np.int32)
    first = np.cumsum(table.sum(axis=0)) - table.sum(axis=0)
    before += first.astype(np.int32)
    sums, weights = np.zeros((count, 2, n + 1, k)), np.zeros((count, 2, n + 1))
    for kind, key in enumerate((rank, rows.fold * m + rank)):
        order = np.argsort(key, axis=1, kind="stable")
        np.cumsum(rows.values[order], axis=1, out=sums[:, kind, 1:])
        np.cumsum(rows.weights[order], axis=1, out=weights[:, kind, 1:])
    weights, least = weights.reshape(-1), _MIN_RELATIVE_WEIGHT * rows.weights.sum()
    tree, fold = np.repeat(np.arange(count), n), np.tile(rows.fold, count)

    def ends(selected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices (4, s) of the cumulative sums, and the remaining weights (s,)."""
        at = tree[selected]
        start, end = layout.start[at, node[selected]], layout.end[at, node[selected]]
        offset = at * 2 * (n + 1)
        fold_offset = offset + n + 1
        index = np.stack(
            [
                offset + before_all[at, end],
                offset + before_all[at, start],
                fold_offset + before[at, end, fold[selected]],
                fold_offset + before[at, start, fold[selected]],
            ]
        )
        return index, _SIGNS @ weights[index]

    for number, bins in enumerate(candidates):
        leaves = _trees.leaves_in_order(trees, layout, int(bins))
        node = np.take_along_axis(leaves, rank, axis=1).reshape(-1)
        indices, remaining = ends(np.arange(count * n))
        empty = np.flatnonzero(remaining <= least)
        while len(empty):
            node[empty] = layout.parent[tree[empty], node[empty]]
            indices[:, empty], remaining[empty] = ends(empty)
            # Weights may differ so much that even the root has none left.
            empty = empty[(remaining[empty] <= least) & (node[empty] > 0)]
        data = _SIGNS / np.where(remaining > least, remaining, np.inf)[:, None]
        index = indices.reshape(4, count, n).transpose(2, 1, 0).reshape(-1)
        data = data.reshape(count, n, 4).transpose(1, 0, 2).reshape(-1)
        matrix = csr_array(
            (data, index, np.arange(0, len(index) + 1, 4 * count)), shape=(n, 2 * count * (n + 1))
        )
        averages[number] += matrix @ sums.reshape(-1, k)
