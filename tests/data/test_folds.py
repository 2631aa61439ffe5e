"""Folds by content: invariance, balance, and rows with equal scores."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare, hypergeom

from bayescal.data.folds.buckets import Buckets, bucket_count, bucket_of, key_hashes
from bayescal.data.folds.deal import FoldedRows, fold_features, fold_scores


def draw(n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, k)).round(1), rng.integers(0, k, n)


def fold_weights(folds: FoldedRows, scores: np.ndarray, y: np.ndarray) -> Counter[Any]:
    """Sum the weights by scores, label and fold."""
    weights: Counter[Any] = Counter()
    for row, fold, weight in zip(folds.index, folds.fold, folds.weights, strict=True):
        weights[(*scores[row].tolist(), int(y[row]), int(fold))] += weight
    return weights


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(2, 5), st.integers(2, 7), st.integers(0, 1000))
def test_only_content_counts(n: int, k: int, count: int, seed: int) -> None:
    z, y = draw(n, k, seed)
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 4, n)
    expected = fold_weights(fold_scores(z, y, weights.astype(float), count), z, y)
    assert sum(expected.values()) == weights.sum()
    rows = rng.permutation(n)
    moved = fold_scores(z[rows], y[rows], weights[rows].astype(float), count)
    assert fold_weights(moved, z[rows], y[rows]) == expected
    twice = np.repeat(np.arange(n), weights)
    repeated = fold_scores(z[twice], y[twice], np.ones(len(twice)), count)
    assert fold_weights(repeated, z[twice], y[twice]) == expected


@pytest.mark.parametrize("decimals", [0, 8])
def test_the_order_of_classes_does_not_count(decimals: int) -> None:
    rng = np.random.default_rng(0)
    z = (rng.normal(size=(300, 3)) + np.array([0, 0.3, 0.9])).round(decimals)
    y = rng.choice(3, 300, p=[0.2, 0.3, 0.5])
    expected = fold_weights(fold_scores(z, y, np.ones(300), 5), z, y)
    classes = np.array([2, 0, 1])
    renamed = np.argsort(classes)[y]
    swapped = fold_scores(z[:, classes], renamed, np.ones(300), 5)
    assert fold_weights(swapped, z, y) == expected


@pytest.mark.parametrize("k", [2, 3, 10])
def test_classes_are_spread_evenly(k: int) -> None:
    rng = np.random.default_rng(k)
    z, y = rng.normal(size=(211, k)), rng.integers(0, k, 211)
    folds = fold_scores(z, y, np.ones(211), 5)
    np.testing.assert_array_equal(folds.index, np.arange(211))
    table = np.array([[np.sum((folds.fold == f) & (y == c)) for c in range(k)] for f in range(5)])
    assert np.ptp(table, axis=0).max() <= 1 and np.ptp(table.sum(axis=1)) <= 1


@pytest.mark.parametrize("decimals", [0, 8])
def test_rounding_and_scale_do_not_matter(decimals: int) -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(200, 3)).round(decimals), rng.integers(0, 3, 200)
    expected = fold_weights(fold_scores(z, y, np.ones(200), 5), z, y)
    noise = z * (1 + 1e-15 * rng.normal(size=z.shape))
    assert fold_weights(fold_scores(noise, y, np.ones(200), 5), z, y) == pytest.approx(expected)
    features = fold_weights(fold_features(z, y, np.ones(200), 5), z, y)
    for scale in (1e-12, 1e12):
        assert fold_weights(fold_scores(scale * z, y, np.ones(200), 5), z, y) == expected
        assert fold_weights(fold_features(scale * z, y, np.ones(200), 5), z, y) == features


def test_folds_are_not_in_the_order_of_scores() -> None:
    """Check that folds are shuffled, so that they differ between regions of scores."""
    fold = fold_scores(np.arange(100.0), np.zeros(100, int), np.ones(100), 2).fold
    assert 25 < np.sum(np.diff(fold) != 0) < 75


def test_log_odds_of_two_classes() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=50), rng.integers(0, 2, 50)
    one, other = (fold_scores(s * z, c, np.ones(50), 5).fold for s, c in ((1, y), (-1, 1 - y)))
    np.testing.assert_array_equal(one, other)


def test_folds_of_confident_rows_are_even() -> None:
    """Check probabilities near one, which differ only slightly."""
    rng = np.random.default_rng(0)
    z = 10 * rng.normal(size=(500, 3)) + [20, 0, 0]
    probs = np.exp(z - z.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    y = rng.integers(0, 3, 500)
    folds = fold_scores(probs, y, np.ones(500), 5, probabilities=True)
    np.testing.assert_array_equal(np.bincount(folds.fold), 100)


def test_equal_rows_go_to_different_folds() -> None:
    for n in (2, 5, 9):
        folds = fold_scores(np.ones((n, 3)), np.zeros(n, int), np.ones(n), 5)
        masses = np.bincount(folds.fold, folds.weights)
        assert len(masses) == min(n, 5) and np.ptp(masses) <= 1
    row = fold_scores(np.ones((1, 3)), np.zeros(1, int), np.ones(1), 5)
    assert row.count == 1
    heavy = fold_scores(np.ones((1, 3)), np.zeros(1, int), np.full(1, 2.0), 5)
    assert heavy.fold.tolist() == [0, 1] and heavy.weights.tolist() == [1.0, 1.0]


def test_labels_of_a_cell_are_dealt_at_random() -> None:
    """Check that positives in a fold have the hypergeometric distribution."""
    cells, rows, ones, count = 4000, 10, 4, 5
    z = np.repeat(np.arange(cells, dtype=float), rows)
    y = np.tile(np.arange(rows) < ones, cells).astype(int)
    folds = fold_scores(z, y, np.ones(len(z)), count)
    table = np.zeros((cells, count, 2))
    np.add.at(table, (z[folds.index].astype(int), folds.fold, y[folds.index]), folds.weights)
    np.testing.assert_array_equal(table.sum(axis=2), rows // count)
    observed = np.bincount(table[:, 0, 1].astype(int), minlength=3)
    expected = cells * hypergeom(rows, ones, rows // count).pmf(np.arange(3))
    assert chisquare(observed, expected).pvalue > 1e-3
    # Positives in one fold leave fewer for the next.
    assert np.corrcoef(table[:, 0, 1], table[:, 1, 1])[0, 1] == pytest.approx(-0.25, abs=0.05)


@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_a_heavy_cell_gives_about_an_equal_part_to_each_fold(scale: float) -> None:
    rng = np.random.default_rng(1)
    z, y = rng.choice([0.1, 0.5, 0.9], 30_001), rng.integers(0, 2, 30_001)
    folds = fold_scores(z, y, np.full(30_001, scale), 5)
    for level in (0.1, 0.5, 0.9):
        at_level = z[folds.index] == level
        mass = np.bincount(folds.fold[at_level], folds.weights[at_level]) / scale
        assert np.ptp(mass) < 1 + 1e-6
    assert len(folds.index) == 3 * 2 * 5
    np.testing.assert_allclose(folds.of_rows(folds.fold * 0.0 + z[folds.index]), z)


def test_rows_of_counts_beyond_any_sample() -> None:
    folds = fold_scores(
        np.array([0.2, 0.2, 0.7]), np.array([0, 1, 1]), np.array([3e12, 1e12, 1]), 4
    )
    assert np.bincount(folds.fold, folds.weights) == pytest.approx(np.full(4, 1e12), rel=1e-3)
    assert folds.weights.sum() == pytest.approx(4e12 + 1)


def test_equal_up_to_rounding_is_one_cell_of_several_rows() -> None:
    """Check that no row is replaced by a row that differs from it."""
    z = 0.3 * (1 + 1e-15 * np.arange(20))
    y = np.arange(20) % 2
    weights = np.arange(1.0, 21.0)
    folds = fold_scores(z, y, weights, 4)
    assert np.bincount(folds.fold, folds.weights) == pytest.approx(np.full(4, 52.5), abs=0.6)
    np.testing.assert_allclose(np.bincount(folds.index, folds.weights), weights, rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_light_rows_that_are_equal_up_to_rounding_are_all_kept(seed: int) -> None:
    """Check rows whose total weight is at most one unit, so that they stay in one fold."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20, 2))
    x = np.concatenate([x, x[:8] * (1 + 1e-15), x[:3] * (1 - 1e-15)])
    y = np.concatenate([np.arange(20), np.arange(8), np.arange(3)]) % 2
    weights = rng.exponential(size=31)
    folds = fold_features(x, y, weights, 4)
    np.testing.assert_allclose(np.bincount(folds.index, folds.weights, 31), weights, rtol=1e-9)


@pytest.mark.parametrize("step", [0.0, 1e-12])
def test_every_row_has_a_fold_whatever_its_weight(step: float) -> None:
    """Check rows of one cell with weights that differ by hundreds of orders of magnitude."""
    z, y = 0.3 + step * np.arange(12), np.arange(12) % 2
    weights = np.geomspace(1e-300, 1e300, 12)
    folds = fold_scores(z, y, weights, 5)
    assert folds.fold.min() >= 0 and folds.count <= 5
    assert set(folds.members) == set(range(len(np.unique(np.stack([z, y]), axis=1).T)))
    assert folds.of_rows(z[folds.index]) == pytest.approx(z)


def test_cross_validation_with_ties_is_unbiased() -> None:
    """Compare held-out losses with fits to four fifths of the rows, in 200 cells of ten rows."""
    actual, truth = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        level = np.linspace(0.05, 0.95, 200)
        cell = np.repeat(np.arange(200), 10)
        y = (rng.random(2000) < level[cell]).astype(int)

        def share(weights: np.ndarray, cell: np.ndarray, y: np.ndarray) -> np.ndarray:
            total = np.bincount(cell, weights, 200)
            return (np.bincount(cell, weights * y, 200) + 0.5) / (total + 1)

        folds = fold_scores(level[cell], y, np.ones(2000), 5)
        cells, labels, loss = cell[folds.index], y[folds.index], 0.0
        for fold in range(5):
            out = folds.fold == fold
            q = share(folds.weights[~out], cells[~out], labels[~out])[cells[out]]
            loss -= folds.weights[out] @ np.log(np.where(labels[out] == 1, q, 1 - q))
        actual.append(loss / 2000)
        p = share(np.ones(2000), cell, y)
        truth.append(-np.mean(level * np.log(p) + (1 - level) * np.log(1 - p)))
    excess = np.subtract(actual, truth)
    # Having a fifth fewer rows costs about 0.01.
    assert abs(excess.mean() - 0.01) < 3 * excess.std() / np.sqrt(20) + 0.006


def deal_rows(z: np.ndarray, y: np.ndarray, weights: np.ndarray, count: int) -> FoldedRows:
    hashes, k = key_hashes(z), int(y.max()) + 1
    buckets = bucket_count(len(y), k)
    cell = bucket_of(hashes, buckets) * k + y
    mass = np.bincount(cell, weights, buckets * k).reshape(buckets, k)
    folded = Buckets.deal(mass, len(y), count)
    result = folded.assign(hashes, z[:, None], y, weights)
    np.testing.assert_allclose(
        np.bincount(result.fold, result.weights), folded.fold_mass(mass), rtol=1e-12
    )
    return result


def test_many_rows_of_few_scores() -> None:
    """Check that rows of frequent scores are dealt like cells, and others keep one fold each."""
    rng = np.random.default_rng(0)
    n = 200_000
    z = np.where(rng.random(n) < 0.5, rng.integers(1, 10, n) / 10, rng.random(n))
    y = rng.integers(0, 2, n)
    folds = deal_rows(z, y, np.ones(n), 5)
    tied = np.isin(z[folds.index], np.arange(1, 10) / 10)
    for level in np.arange(1, 10) / 10:
        at_level = z[folds.index] == level
        mass = np.bincount(folds.fold[at_level], folds.weights[at_level], 5)
        # Other rows in its hash bucket are divided as well.
        assert np.ptp(mass) < 1.1
    assert np.mean(folds.weights[~tied] == 1) > 0.99
    assert folds.of_rows(z[folds.index]) == pytest.approx(z, rel=1e-12)
    order = rng.permutation(n)
    moved = deal_rows(z[order], y[order], np.ones(n), 5)
    same = fold_weights(moved, z[order][:, None], y[order])
    assert same == pytest.approx(fold_weights(folds, z[:, None], y))


def test_hashes_are_even_and_independent() -> None:
    """Check that scores that count as equal share a hash."""
    key = np.random.default_rng(0).normal(size=100_000)
    hashes = key_hashes(key)
    assert len(np.unique(hashes)) > 99_900  # some are nearer than 1e-8
    for count in (2, 4, 8):
        folds = bucket_of(hashes, count)
        table = np.zeros((count, count))
        order = np.argsort(key)
        np.add.at(table, (folds[order][1:], folds[order][:-1]), 1)
        assert chi2_contingency(table).pvalue > 1e-3
        assert chisquare(np.bincount(folds)).pvalue > 1e-3
    for size in (1e-6, 1.0, 1e6, 1e150):
        same = bucket_of(key_hashes(size * key), 8)
        near = bucket_of(key_hashes(size * key * (1 + 1e-16)), 8)
        assert np.mean(same == near) > 0.999
    # A fixed value, so that folds stay equal in later versions.
    assert key_hashes(np.array([0.0, 1.0])).tolist() == [0, 14697247557409419556]
