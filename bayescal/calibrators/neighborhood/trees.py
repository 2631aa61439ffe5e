"""Random trees over probabilities, many at once: how they grow, and where rows fall."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

#: Entries of the arrays that are worked on at once, over trees and rows: 8 MiB of float64.
_ELEMENTS = 1 << 20


class Trees(NamedTuple):
    """Trees grown breadth first, all by the same number of splits.

    The s-th split of a tree makes the nodes 2 s + 1 and 2 s + 2, and node 0 is the root. So the
    first 2 b - 1 nodes are the tree of b bins, whatever its number of bins: a node whose children
    come later is a leaf of it. All arrays are (trees, nodes).
    """

    #: Class by whose probability a node is split.
    feature: np.ndarray
    #: Rows below go to the left child, all others to the right one.
    threshold: np.ndarray
    #: Left child, 0 at a leaf; the right child is the next node.
    left: np.ndarray

    def pruned(self, bins: int) -> Trees:
        """Return the trees of so many bins."""
        nodes = 2 * bins - 1
        feature, threshold, left = (array[:, :nodes] for array in self)
        inner = (left > 0) & (left < nodes)
        return Trees(*(np.where(inner, array, 0) for array in (feature, threshold, left)))


class Layout(NamedTuple):
    """Which rows lie in which node: those at places start to end of the order of their tree.

    The order is (trees, n), the others (trees, nodes); the root is its own parent.
    """

    order: np.ndarray
    start: np.ndarray
    end: np.ndarray
    parent: np.ndarray


def trees_at_once(size: int) -> int:
    """Return how many trees are worked on at once if each takes so many entries."""
    return max(1, _ELEMENTS // max(1, size))


def grow(rows: np.ndarray, bins: int, seed: int, trees: range) -> tuple[Trees, Layout]:
    """Grow trees on distinct rows (n, k) until each has so many bins, or a bin for each row.

    Leaves are split level by level, from left to right. Three uniform numbers belong to each
    split of each tree: the class is drawn among all; if it does not vary within the leaf, it is
    drawn anew among those that do; and the threshold lies uniformly between its least and largest
    probability in the leaf. So both sides hold rows, and a tree of fewer bins is part of this one.
    """
    n, k = rows.shape
    count = len(trees)
    bins = min(bins, n)
    draws = np.stack([np.random.default_rng([seed, t]).random((bins - 1, 3)) for t in trees])
    shape = (count, 2 * bins - 1)
    grown = Trees(np.zeros(shape, np.int32), np.zeros(shape), np.zeros(shape, np.int32))
    layout = Layout(
        np.tile(np.arange(n, dtype=np.int32), (count, 1)),
        *(np.zeros(shape, np.int32) for _ in range(3)),
    )
    layout.end[:, 0] = n
    order, flat = layout.order.reshape(-1), rows.reshape(-1)
    tree, node, done = np.arange(count), np.zeros(count, int), np.zeros(count, int)
    while True:
        start, end = layout.start[tree, node], layout.end[tree, node]
        # Rows are distinct: those of two rows and more can be split.
        wide = end - start > 1
        tree, node, start, end = tree[wide], node[wide], start[wide], end[wide]
        first = np.searchsorted(tree, np.arange(count))
        split = done[tree] + np.arange(len(tree)) - first[tree]
        some = split < bins - 1
        tree, node, start, end, split = (a[some] for a in (tree, node, start, end, split))
        if not len(tree):
            return grown, layout
        done += np.bincount(tree, minlength=count)
        size = end - start
        begin = np.cumsum(size) - size
        # Places in the order of all trees, of the rows that are split.
        place = np.repeat(tree * n + start, size) + _counted(size)
        row = order[place].astype(np.intp)
        class_draw, other_draw, threshold_draw = draws[tree, split].T
        feature = (class_draw * k).astype(np.int32)
        values = flat[row * k + np.repeat(feature, size)]
        low, high = np.minimum.reduceat(values, begin), np.maximum.reduceat(values, begin)
        for leaves in _parts(np.flatnonzero(low == high), size * k):
            inside = np.repeat(begin[leaves], size[leaves]) + _counted(size[leaves])
            several = rows[row[inside]]
            starts = np.cumsum(size[leaves]) - size[leaves]
            lows = np.minimum.reduceat(several, starts, axis=0)
            highs = np.maximum.reduceat(several, starts, axis=0)
            rank = np.cumsum(lows < highs, axis=1)
            wanted = (other_draw[leaves] * rank[:, -1]).astype(int) + 1
            feature[leaves] = np.argmax(rank == wanted[:, None], axis=1)
            values[inside] = flat[row[inside] * k + np.repeat(feature[leaves], size[leaves])]
            chosen = np.arange(len(leaves)), feature[leaves]
            low[leaves], high[leaves] = lows[chosen], highs[chosen]
        low, high = low.astype(float), high.astype(float)
        threshold = high - threshold_draw * (high - low)
        # Rounding, and nothing else, may carry it down to the least value.
        threshold = np.where(threshold > low, threshold, high)
        right = values >= np.repeat(threshold, size)
        seen = np.cumsum(right)
        before = seen[begin] - right[begin]
        middle = end - (seen[begin + size - 1] - before)
        # Rows keep their order on either side.
        rank = seen - right - np.repeat(before, size)
        stay = np.arange(len(place)) - rank + np.repeat(tree * n + start - begin, size)
        order[np.where(right, rank + np.repeat(tree * n + middle, size), stay)] = row
        left = 2 * split + 1
        grown.feature[tree, node], grown.threshold[tree, node] = feature, threshold
        grown.left[tree, node] = left
        layout.start[tree, left], layout.end[tree, left] = start, middle
        layout.start[tree, left + 1], layout.end[tree, left + 1] = middle, end
        layout.parent[tree, left] = layout.parent[tree, left + 1] = node
        tree, node = np.repeat(tree, 2), np.stack([left, left + 1], axis=1).reshape(-1)


def _counted(size: np.ndarray) -> np.ndarray:
    """Return 0, 1, ..., size - 1 for each size, one after another."""
    return np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)


def _parts(chosen: np.ndarray, size: np.ndarray) -> list[np.ndarray]:
    """Split what is chosen into parts whose sizes sum to about a block, none of them empty."""
    part = np.cumsum(size[chosen]) // _ELEMENTS
    return [chosen[part == number] for number in np.unique(part)]


def leaves_in_order(grown: Trees, layout: Layout, bins: int) -> np.ndarray:
    """Return the leaf (trees, n) of each place in the order of rows, in the trees of so many bins.

    These are numbers of nodes.
    """
    trees, n = layout.order.shape
    tree, node = np.nonzero(grown.pruned(bins).left == 0)
    start = layout.start[tree, node]
    order = np.argsort(tree * n + start)
    size = layout.end[tree, node] - start
    return np.repeat(node[order], size[order]).reshape(trees, n)


def depth(left: np.ndarray) -> int:
    """Return the most splits on the way to a leaf, by the left children (trees, nodes)."""
    tree, child = np.arange(len(left)), left[:, 0]
    found = 0
    while (inner := child > 0).any():
        tree, child = tree[inner].repeat(2), child[inner].repeat(2)
        child[1::2] += 1
        child = left[tree, child]
        found += 1
    return found


def find_leaves(grown: Trees, rows: np.ndarray) -> np.ndarray:
    """Return the leaf (trees, m) that each row falls into."""
    trees, nodes = grown.left.shape
    m, k = rows.shape
    feature, threshold, left = (a.reshape(-1) for a in grown)
    flat = rows.reshape(-1)
    base = np.repeat(np.arange(trees) * nodes, m)
    found = base.copy()
    row = np.tile(np.arange(m) * k, trees)
    active = np.flatnonzero(left[found] > 0)
    while len(active):
        here = found[active]
        step = flat[row[active] + feature[here]] >= threshold[here]
        here = base[active] + left[here] + step
        found[active] = here
        active = active[left[here] > 0]
    return (found - base).reshape(trees, m)
