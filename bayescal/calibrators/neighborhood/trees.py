"""Random trees over probabilities: growth of many trees at once, and leaves of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.shapes import Float, Int

#: Entries of arrays over trees and rows that are processed at once: 8 MiB of float64.
_ELEMENTS = 1 << 20


class Trees(NamedTuple):
    """Trees grown breadth first, with equal numbers of splits; all arrays are (trees, nodes).

    The s-th split makes the nodes 2 s + 1 and 2 s + 2, and node 0 is the root. The first 2 b - 1
    nodes are therefore the tree of b bins: nodes whose children come later are its leaves.
    """

    #: Class whose probability splits a node.
    feature: np.ndarray
    #: Rows below the threshold belong to the left child, all others to the right child.
    threshold: np.ndarray
    #: Left child, 0 at a leaf; the right child is the next node.
    left: np.ndarray

    def pruned(self, bins: int) -> Trees:
        """Return the trees with this number of bins."""
        nodes = 2 * bins - 1
        feature, threshold, left = (array[:, :nodes] for array in self)
        inner = (left > 0) & (left < nodes)
        return Trees(*(np.where(inner, array, 0) for array in (feature, threshold, left)))


class NodeRanges(NamedTuple):
    """Rows of nodes: those at positions ``start`` to ``end`` of the order of a tree.

    ``order`` is (trees, n), the other arrays are (trees, nodes). The parent of the root is 0.
    """

    order: np.ndarray
    start: np.ndarray
    end: np.ndarray
    parent: np.ndarray


def trees_at_once(size: int) -> int:
    """Return the number of trees to process at once, with ``size`` entries per tree."""
    return max(1, _ELEMENTS // max(1, size))


def grow(
    rows: Float[np.ndarray, "rows columns"], bins: int, seed: int, trees: range
) -> tuple[Trees, NodeRanges]:
    """Grow trees on distinct rows (n, k) until they have ``bins`` bins, or a bin for each row.

    Leaves are split level by level, from left to right. Of three uniform numbers for a split, one
    draws a class; one draws again among the classes that vary within the leaf, if that does not;
    one draws the threshold. A tree with fewer bins is therefore a part of a larger one.
    """
    n, k = rows.shape
    count = len(trees)
    bins = min(bins, n)
    draws = np.stack([np.random.default_rng([seed, t]).random((bins - 1, 3)) for t in trees])
    shape = (count, 2 * bins - 1)
    grown = Trees(np.zeros(shape, np.int32), np.zeros(shape), np.zeros(shape, np.int32))
    layout = NodeRanges(
        np.tile(np.arange(n, dtype=np.int32), (count, 1)),
        *(np.zeros(shape, np.int32) for _ in range(3)),
    )
    layout.end[:, 0] = n
    order, flat = layout.order.reshape(-1), rows.reshape(-1)
    tree, node, num_splits = np.arange(count), np.zeros(count, int), np.zeros(count, int)
    while True:
        start, end = layout.start[tree, node], layout.end[tree, node]
        # Rows are distinct, so leaves with at least two rows can be split.
        splittable = end - start > 1
        tree, node, start, end = (a[splittable] for a in (tree, node, start, end))
        first = np.searchsorted(tree, np.arange(count))
        split = num_splits[tree] + np.arange(len(tree)) - first[tree]
        selected = split < bins - 1
        tree, node, start, end, split = (a[selected] for a in (tree, node, start, end, split))
        if not len(tree):
            return grown, layout
        num_splits += np.bincount(tree, minlength=count)
        size = end - start
        begin = np.cumsum(size) - size
        # Positions of the rows to split in the orders of all trees.
        position = np.repeat(tree * n + start, size) + _counted(size)
        row = order[position].astype(np.intp)
        class_draw, other_draw, threshold_draw = draws[tree, split].T
        feature = (class_draw * k).astype(np.int32)
        values = flat[row * k + np.repeat(feature, size)]
        low, high = np.minimum.reduceat(values, begin), np.maximum.reduceat(values, begin)
        for leaves in _parts(np.flatnonzero(low == high), size * k):
            inside = np.repeat(begin[leaves], size[leaves]) + _counted(size[leaves])
            candidates = rows[row[inside]]
            starts = np.cumsum(size[leaves]) - size[leaves]
            lows = np.minimum.reduceat(candidates, starts, axis=0)
            highs = np.maximum.reduceat(candidates, starts, axis=0)
            rank = np.cumsum(lows < highs, axis=1)
            wanted = (other_draw[leaves] * rank[:, -1]).astype(int) + 1
            feature[leaves] = np.argmax(rank == wanted[:, None], axis=1)
            values[inside] = flat[row[inside] * k + np.repeat(feature[leaves], size[leaves])]
            chosen = np.arange(len(leaves)), feature[leaves]
            low[leaves], high[leaves] = lows[chosen], highs[chosen]
        low, high = low.astype(float), high.astype(float)
        threshold = high - threshold_draw * (high - low)
        # Rounding may move the threshold to the smallest value.
        threshold = np.where(threshold > low, threshold, high)
        right = values >= np.repeat(threshold, size)
        right_count = np.cumsum(right)
        count_before = right_count[begin] - right[begin]
        middle = end - (right_count[begin + size - 1] - count_before)
        # The partition is stable.
        rank = right_count - right - np.repeat(count_before, size)
        left_position = np.arange(len(position)) - rank + np.repeat(tree * n + start - begin, size)
        order[np.where(right, rank + np.repeat(tree * n + middle, size), left_position)] = row
        left = 2 * split + 1
        grown.feature[tree, node], grown.threshold[tree, node] = feature, threshold
        grown.left[tree, node] = left
        layout.start[tree, left], layout.end[tree, left] = start, middle
        layout.start[tree, left + 1], layout.end[tree, left + 1] = middle, end
        layout.parent[tree, left] = layout.parent[tree, left + 1] = node
        tree, node = np.repeat(tree, 2), np.stack([left, left + 1], axis=1).reshape(-1)


def _counted(size: np.ndarray) -> np.ndarray:
    """Concatenate the ranges 0, 1, ..., size - 1 of all sizes."""
    return np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)


def _parts(chosen: np.ndarray, size: np.ndarray) -> list[np.ndarray]:
    """Split indices into non-empty parts whose sizes sum to about a block."""
    part = np.cumsum(size[chosen]) // _ELEMENTS
    return [chosen[part == number] for number in np.unique(part)]


def leaves_in_order(grown: Trees, layout: NodeRanges, bins: int) -> Int[np.ndarray, "trees rows"]:
    """Return the leaf nodes (trees, n) of rows, in the orders of the trees with ``bins`` bins."""
    trees, n = layout.order.shape
    tree, node = np.nonzero(grown.pruned(bins).left == 0)
    start = layout.start[tree, node]
    order = np.argsort(tree * n + start)
    size = layout.end[tree, node] - start
    return np.repeat(node[order], size[order]).reshape(trees, n)


def depth(left: Int[np.ndarray, "trees nodes"]) -> int:
    """Compute the maximal depth of a leaf from the left children (trees, nodes)."""
    tree, child = np.arange(len(left)), left[:, 0]
    levels = 0
    while (inner := child > 0).any():
        tree, child = tree[inner].repeat(2), child[inner].repeat(2)
        child[1::2] += 1
        child = left[tree, child]
        levels += 1
    return levels


def find_leaves(
    grown: Trees, rows: Float[np.ndarray, "rows columns"]
) -> Int[np.ndarray, "trees rows"]:
    """Find the leaves (trees, m) of rows."""
    trees, nodes = grown.left.shape
    m, k = rows.shape
    feature, threshold, left = (a.reshape(-1) for a in grown)
    flat = rows.reshape(-1)
    base = np.repeat(np.arange(trees) * nodes, m)
    nodes_of_rows = base.copy()
    row = np.tile(np.arange(m) * k, trees)
    active = np.flatnonzero(left[nodes_of_rows] > 0)
    while len(active):
        node = nodes_of_rows[active]
        step = flat[row[active] + feature[node]] >= threshold[node]
        node = base[active] + left[node] + step
        nodes_of_rows[active] = node
        active = active[left[node] > 0]
    return (nodes_of_rows - base).reshape(trees, m)
