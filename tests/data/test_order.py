"""Small building blocks of sums in cells, ties and clusters, against NumPy and SciPy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import bayescal as bc
from bayescal._core.numerics import effective_size
from bayescal.data import scores as of_scores
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.history import History
from bayescal.data.membership import sum_test
from bayescal.data.order import cumulative, equal_mass, equal_rows
from bayescal.data.order.classes import canonical_order
from bayescal.data.predictions import Reading
from bayescal.data.rows import Rows
from bayescal.data.weights import as_counts

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("keys", [[], [3], [0, 5, 9]])
@pytest.mark.parametrize("cells", [10, equal_mass._MAX_TABLE_CELLS + 1])
def test_cells_that_are_looked_into(keys: list[int], cells: int) -> None:
    cell = RNG.integers(0, 10, 50)
    result = equal_mass._among(np.array(keys, int), cell, cells)
    np.testing.assert_array_equal(result, np.isin(cell, keys))


def test_groups_without_rows_have_no_differences() -> None:
    p = RNG.uniform(size=300)
    y = (RNG.uniform(size=300) < p).astype(int)

    def split(data: Any, _: object) -> Iterator[tuple[np.ndarray, ...]]:
        for part in (data.probs < 0.5, data.probs > 2, data.probs >= 0.5):
            yield data.probs[part], (data.y == 1)[part].astype(float), data.weights[part]

    data = as_predictions(
        bc.Blocks([(p[:100], y[:100]), (p[100:], y[100:])]), None, None, Reading()
    )
    result = cumulative.excursions_of_blocks(split, 3, data)
    np.testing.assert_array_equal(result[:, 1], 0)
    for column, part in ((0, p < 0.5), (2, p >= 0.5)):
        expected = cumulative.excursions(p[part], y[part].astype(float), np.ones(part.sum()))
        np.testing.assert_allclose(result[:, column], expected, atol=1e-9)


def test_rows_with_equal_hashes_are_kept_apart(x64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = RNG.integers(0, 3, (40, 2)).astype(float)
    distinct = len(np.unique(rows, axis=0))
    for array, others in ((rows, distinct), (jnp.asarray(rows), len(rows))):
        first, index = equal_rows.distinct_rows(array)
        assert len(first) == distinct
        np.testing.assert_array_equal(rows[first[index]], rows)
        with monkeypatch.context() as patch:
            patch.setattr(equal_rows, "_hash", lambda bits: np.zeros(len(bits)))
            patch.setattr(equal_rows, "_hash_on_device", lambda rows: np.zeros(len(rows)))
            first, index = equal_rows.distinct_rows(array)
        # On an accelerator rows are not sorted, so each one forms a group.
        assert len(first) == others
        np.testing.assert_array_equal(rows[first[index]], rows)


def test_sums_of_clusters_are_tested_like_means() -> None:
    values, clusters = RNG.normal(0.3, 1.0, 60), np.arange(60)
    statistic, p_value = sum_test(values, 0.0, clusters)
    # With as many clusters as rows, the test equals SciPy's test with the variance about zero.
    assert statistic == pytest.approx(values.sum() / math.sqrt(values @ values))
    free = (values @ values) ** 2 / (values**4).sum()
    assert p_value == pytest.approx(2 * stats.t.sf(abs(statistic), free))
    assert math.isnan(sum_test(values, 0.0, np.zeros(60, int))[0])


@pytest.mark.parametrize("values", [np.zeros(6), np.array([0.1, -0.1, 0.2, -0.2, 0.3, -0.3])])
def test_sums_that_are_zero_but_for_rounding_say_nothing(values: np.ndarray) -> None:
    assert sum_test(values, 0.0, np.array([0, 0, 1, 1, 2, 2])) == (0.0, 1.0)


def test_merged_rows_of_a_sample_keep_their_factors() -> None:
    history = History.of_rows(
        Rows(RNG.normal(size=(6, 4)), RNG.integers(0, 4, 6), np.ones(6)), None
    )
    sample = history._replace(
        threshold=np.asarray(0.5), factors=RNG.uniform(0.5, 2.0, history.factors.shape)
    )
    other = sample._replace(weights=3 * sample.weights, factors=2 * sample.factors)
    joined = sample.join(other, 4)
    assert joined.scores.shape == sample.scores.shape
    np.testing.assert_allclose(joined.weights.sum(), 4 * 6)
    # The weight of a row times its factor, for which the sample keeps the gradients of all rows.
    for row in range(6):
        matching = (joined.scores == sample.scores[row]).all(axis=1)
        expected = sample.factors[row] * (sample.weights[row] + 2 * other.weights[row])
        np.testing.assert_allclose((joined.weights * joined.factors)[matching][0], expected)
    # Without a threshold nothing is sampled, and all factors are one.
    assert (history.join(history, 4).factors == 1).all()


@pytest.mark.parametrize(
    ("scores", "inputs", "valid"),
    [
        (np.array([0.2, 1.0]), "probs", True),
        (np.array([0.2, 1.1]), "probs", False),
        (np.array([0.2, np.nan]), "scores", False),
        (np.array([[0.2, 0.8], [0.5, 0.5]]), "probs", True),
        (np.array([[0.2, 0.9], [0.5, 0.5]]), "probs", False),
        (np.array([[-np.inf, 1.0]]), "logits", True),
        (np.array([[-np.inf, -np.inf]]), "logits", False),
        (np.array([[-np.inf, 1.0]]), "scores", False),
        (np.zeros((0, 2)), "scores", False),
        (np.zeros((2, 2, 2)), "scores", False),
        (np.array([0, 1]), "probs", False),
    ],
)
def test_what_goes_to_the_checks_on_the_host(scores: np.ndarray, inputs: Any, valid: bool) -> None:
    for array in (scores, jnp.asarray(scores)):
        assert of_scores.plausible(array, inputs) is valid


def test_whole_weights_are_counts_as_they_are() -> None:
    weights = np.array([0.0, 3.0, 1.0])
    np.testing.assert_array_equal(as_counts(weights, np.ones(3), np.ones(3)), weights)


@pytest.mark.parametrize("size", [None, 700.0])
def test_shares_come_as_often_as_they_ask_for(size: float | None) -> None:
    rng = np.random.default_rng(0)
    p, y, weights = rng.uniform(size=60), rng.integers(0, 2, 60), rng.exponential(size=60)
    counts = as_counts(weights, p, y, size)
    worth = weights.sum() ** 2 / (weights**2).sum()
    assert effective_size(weights.sum(), weights @ weights) == pytest.approx(worth)
    size = size or round(worth)
    assert counts.sum() == size and (counts == np.floor(counts)).all()
    assert np.abs(counts - weights / weights.sum() * size).max() < 1
    # Counts are spread evenly by label and prediction: cumulative sums are off by less than one.
    order = np.lexsort((p, y))
    off = np.cumsum(counts[order]) - np.cumsum(weights[order]) / weights.sum() * size
    assert np.abs(off).max() <= 0.5 + 1e-9


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e200])
def test_permuting_classes_permutes_the_order(unit: float) -> None:
    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=(200, 6)) * unit, rng.integers(0, 6, 200)
    counts = rng.integers(1, 4, 200)
    order = canonical_order(scores, y, counts.astype(float))
    assert sorted(order) == list(range(6)) and (order != np.arange(6)).any()
    turn = rng.permutation(6)
    inverse = np.argsort(turn)
    turned = canonical_order(scores[:, turn], inverse[y], counts.astype(float))
    np.testing.assert_array_equal(turn[turned], order)
    rows = rng.permutation(np.repeat(np.arange(200), counts))
    again = canonical_order(scores[rows], y[rows], np.ones(len(rows)))
    np.testing.assert_array_equal(again, order)


def test_classes_that_agree_keep_their_columns() -> None:
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]])
    assert canonical_order(p, np.arange(3), np.ones(3)).tolist() == [0, 1, 2]
    zeros = np.zeros((2, 3))
    assert canonical_order(zeros, np.array([1, 1]), np.ones(2)).tolist() == [0, 2, 1]
