"""Random forests against trees grown node by node and plain cross-validation loops."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

from bayescal.calibrators import Forest
from bayescal.calibrators.neighborhood import trees as _trees
from bayescal.data.order.classes import canonical_order
from bayescal.data.order.equal_rows import distinct_rows
from bayescal.data.rows import Rows
from tests.calibrators import brute
from tests.calibrators.brute import crop_and_normalize, log_loss, split_into_folds, target_values


def example(*sizes: Any, **options: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw probabilities that are exact in single precision, which trees use."""
    p, y, weights = brute.example(*sizes, **options)
    return p.astype(np.float32).astype(float), y, weights


class Node:
    """A node of a plain tree: its rows, and its children once it is split."""

    def __init__(self, rows: np.ndarray, parent: Node | None = None) -> None:
        self.rows, self.parent = rows, parent
        self.feature, self.threshold = -1, np.nan
        self.children: tuple[Node, ...] = ()

    def leaf(self, query: np.ndarray) -> Node:
        node = self
        while node.children:
            node = node.children[int(query[node.feature] >= node.threshold)]
        return node


class Drawn(NamedTuple):
    root: Node
    leaves: int


def plain_tree(p: np.ndarray, order: np.ndarray, bins: int, seed: int, tree: int) -> Drawn:
    """Grow a tree by splitting leaves in the order of their creation, and classes in ``order``."""
    draws = np.random.default_rng([seed, tree]).random((len(p), 3))
    root = Node(np.arange(len(p)))
    queue, leaves = deque([root]), 1
    while queue and leaves < bins:
        node = queue.popleft()
        inside = p[node.rows]
        low, high = inside.min(axis=0), inside.max(axis=0)
        varying = order[(low < high)[order]]
        if not len(varying):
            continue
        first, second, third = draws[leaves - 1]
        chosen = order[int(first * p.shape[1])]
        if chosen not in varying:
            chosen = varying[int(second * len(varying))]
        node.feature = chosen
        node.threshold = high[chosen] - third * (high[chosen] - low[chosen])
        right = inside[:, chosen] >= node.threshold
        node.children = Node(node.rows[~right], node), Node(node.rows[right], node)
        queue.extend(node.children)
        leaves += 1
    return Drawn(root, leaves)


@pytest.mark.parametrize("assumption", ["errors", "labels"])
@pytest.mark.parametrize("bins", [1, 7, 1000])
@pytest.mark.parametrize("digits", [None, 5])
def test_trees_are_those_grown_node_by_node(
    assumption: Literal["errors", "labels"], bins: int, digits: int | None
) -> None:
    p, y, weights = example(70, 4, digits=digits)
    queries = np.concatenate([example(30, 4, seed=1)[0], p])
    chosen = Forest(bins, 6, assumption, crop=1e-3)
    state = chosen._fit(Rows(p, y, weights), seed=11)
    distinct = len(np.unique(p, axis=0))
    assert state["bins"] == min(bins, distinct)
    assert state["leaf_values"].shape == (6, state["bins"], 4)
    order = canonical_order(p, y, weights)
    trees = [plain_tree(p, order, bins, 11, tree).root for tree in range(6)]
    value, expected = target_values(p, y, assumption), []
    for query in queries:
        means = []
        for root in trees:
            rows = root.leaf(query).rows
            means.append(np.average(value[rows], axis=0, weights=weights[rows]))
        expected.append(crop_and_normalize(query, np.mean(means, axis=0), assumption, 1e-3))
    np.testing.assert_allclose(chosen.apply(state, queries), expected, atol=1e-12)


def test_classes_that_do_not_vary_are_drawn_anew() -> None:
    # Only three of thirty classes vary, and two of these vary in few rows.
    p = np.zeros((40, 30))
    p[:, 3] = np.linspace(0.1, 0.9, 40)
    p[::7, 20] = 0.05
    p[:, 29] = 1 - p.sum(axis=1)
    p = p.astype(np.float32).astype(float)
    y, weights = np.arange(40) % 30, np.ones(40)
    trees, layout = _trees.grow(p[distinct_rows(p)[0]], 40, 0, range(200))
    assert set(np.unique(trees.feature[trees.left > 0])) == {3, 20, 29}
    # At the root all three classes are equally likely.
    count = np.bincount(trees.feature[:, 0], minlength=30)[[3, 20, 29]]
    assert (np.abs(count - 200 / 3) < 4 * np.sqrt(200 * 2 / 9)).all()
    sizes = (layout.end - layout.start)[trees.left == 0]
    assert (sizes == 1).all()
    state = Forest(8, 5)._fit(Rows(p, y, weights), seed=0)
    order = canonical_order(p, y, weights)
    expected = np.mean(
        [
            target_values(p, y, "errors")[plain_tree(p, order, 8, 0, t).root.leaf(p[9]).rows].mean(
                axis=0
            )
            for t in range(5)
        ],
        axis=0,
    )
    result = Forest(8, 5).apply(state, p[9:10])[0]
    np.testing.assert_allclose(
        result, crop_and_normalize(p[9], expected, "errors", 0.01 / 900), atol=1e-12
    )


def plain_losses(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], candidates: np.ndarray, trees: int, seed: int
) -> list[float]:
    """Compute losses with each fold left out of its leaf, or of an ancestor with other rows."""
    order = canonical_order(*data)
    p, y, weights, fold = split_into_folds(*data)
    value, losses = target_values(p, y, "errors"), []
    for bins in candidates:
        roots = [plain_tree(p, order, bins, seed, tree).root for tree in range(trees)]
        result = []
        for i, query in enumerate(p):
            means = []
            for root in roots:
                node: Any = root.leaf(query)
                while not (fold[node.rows] != fold[i]).any():
                    node = node.parent
                rows = node.rows[fold[node.rows] != fold[i]]
                means.append(np.average(value[rows], axis=0, weights=weights[rows]))
            result.append(
                crop_and_normalize(query, np.mean(means, axis=0), "errors", 0.01 / p.shape[1] ** 2)
            )
        losses.append(log_loss(np.array(result), y, weights))
    return losses


@pytest.mark.parametrize(("n", "digits"), [(90, None), (90, 5), (30, None)])
def test_cross_validation_leaves_the_rows_of_a_fold_out(n: int, digits: int | None) -> None:
    data = example(n, 3, digits=digits, seed=14)
    if n == 30:
        # Two rows of one fold are far from the others, and often alone in a child of the root.
        data[0][2:] = (data[0][2:] / 64 + [0.75, 0.125, 0.125]) / (1 + 1 / 64)
        data[0][:] = data[0].astype(np.float32)
    state = Forest(trees=7)._fit(Rows(*data), seed=4)
    distinct = len(np.unique(data[0], axis=0))
    expected = [b for b in 2 ** np.arange(1, 13) if b <= distinct]
    if digits:  # frequent rows may each have a bin
        expected.append(distinct)
    assert state["candidates"].tolist() == expected
    losses = plain_losses(data, state["candidates"], 7, 4)
    np.testing.assert_allclose(state["cv_losses"], losses, atol=1e-10)
    assert state["bins"] == state["candidates"][np.argmin(losses)]


def test_working_in_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    p, y, weights = example(150, 4)
    p[::3, 1] = 0  # some classes must be drawn again
    expected = Forest(trees=9)._fit(Rows(p, y, weights), seed=0)
    probabilities = Forest(trees=9).apply(expected, p)
    monkeypatch.setattr(_trees, "_ELEMENTS", 400)
    state = Forest(trees=9)._fit(Rows(p, y, weights), seed=0)
    for name, value in expected.items():
        np.testing.assert_allclose(state[name], value, atol=1e-12)
    np.testing.assert_allclose(Forest(trees=9).apply(state, p), probabilities, atol=1e-13)


def test_other_seeds_give_other_trees() -> None:
    data = example(50, 3)
    first, again, other = (Forest(8, 3)._fit(Rows(*data), seed=s)["threshold"] for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first[first > 0], other).any()
