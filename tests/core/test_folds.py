"""Folds by content: what they must not depend on, and how even they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

from bayescal._core.folds import (
    content_folds,
    feature_keys,
    hash_folds,
    key_hashes,
    probability_keys,
    score_keys,
)


def scores(n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, k)).round(1), rng.integers(0, k, n)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(2, 5), st.integers(2, 7), st.integers(0, 1000))
def test_only_content_counts(n: int, k: int, count: int, seed: int) -> None:
    z, y = scores(n, k, seed)
    rng = np.random.default_rng(seed)
    folds = content_folds(score_keys(z, y), y, count)
    rows, classes = rng.permutation(n), rng.permutation(k)
    moved = content_folds(score_keys(z[rows], y[rows]), y[rows], count)
    np.testing.assert_array_equal(moved, folds[rows])
    renamed = np.argsort(classes)[y]
    swapped = content_folds(score_keys(z[:, classes], renamed), renamed, count)
    np.testing.assert_array_equal(swapped, folds)
    twice = np.repeat(np.arange(n), rng.integers(1, 4, n))
    repeated = content_folds(score_keys(z[twice], y[twice]), y[twice], count)
    np.testing.assert_array_equal(repeated, folds[twice])


@pytest.mark.parametrize("k", [2, 3, 10])
def test_classes_are_spread_evenly(k: int) -> None:
    rng = np.random.default_rng(k)
    z, y = rng.normal(size=(211, k)), rng.integers(0, k, 211)
    folds = content_folds(score_keys(z, y), y, 5)
    table = np.array([[np.sum((folds == f) & (y == c)) for c in range(k)] for f in range(5)])
    assert np.ptp(table, axis=0).max() <= 1 and np.ptp(table.sum(axis=1)) <= 1


def test_rounding_and_scale_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(100, 3)), rng.integers(0, 3, 100)
    folds = content_folds(score_keys(z, y), y, 5)
    noise = z * (1 + 1e-15 * rng.normal(size=z.shape))
    np.testing.assert_array_equal(content_folds(score_keys(noise, y), y, 5), folds)
    for scale in (1e-12, 1e12):
        np.testing.assert_array_equal(content_folds(score_keys(scale * z, y), y, 5), folds)
        np.testing.assert_array_equal(
            content_folds(feature_keys(scale * z), y, 5), content_folds(feature_keys(z), y, 5)
        )


def test_folds_are_not_in_the_order_of_keys() -> None:
    """Shuffled: else folds would be alike in every region."""
    key, y = np.arange(100.0), np.zeros(100, int)
    folds = content_folds(key, y, 2)
    assert 25 < np.sum(np.diff(folds) != 0) < 75
    assert (folds != content_folds(key, y, 2, seed=1)).any()


def test_folds_by_hash() -> None:
    """They are about even and independent, and what counts as equal shares one."""
    key = np.random.default_rng(0).normal(size=100_000)
    hashes = key_hashes(key)
    assert len(np.unique(hashes)) > 99_900  # nearer than a hundred millionth
    for count in (2, 3, 5):
        folds = hash_folds(hashes, count)
        table = np.zeros((count, count))
        order = np.argsort(key)
        np.add.at(table, (folds[order][1:], folds[order][:-1]), 1)
        assert chi2_contingency(table).pvalue > 1e-3
        assert chisquare(np.bincount(folds)).pvalue > 1e-3
    for size in (1e-6, 1.0, 1e6, 1e150):
        same = hash_folds(key_hashes(size * key), 5)
        near = hash_folds(key_hashes(size * key * (1 + 1e-16)), 5)
        assert np.mean(same == near) > 0.999
    # One value, so that folds of data of today are those of tomorrow.
    assert key_hashes(np.array([0.0, 1.0])).tolist() == [0, 14697247557409419556]


def test_log_odds_of_two_classes() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=50), rng.integers(0, 2, 50)
    np.testing.assert_array_equal(
        content_folds(score_keys(z, y), y, 5), content_folds(score_keys(-z, 1 - y), 1 - y, 5)
    )


def test_equal_rows_share_one_fold() -> None:
    assert content_folds(np.ones(9), np.zeros(9, int), 5).max() == 0


def test_folds_of_confident_rows_are_even() -> None:
    """Probabilities next to one differ, though not by much."""
    rng = np.random.default_rng(0)
    z = 10 * rng.normal(size=(500, 3)) + [20, 0, 0]
    probs = np.exp(z - z.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    y = rng.integers(0, 3, 500)
    folds = content_folds(probability_keys(probs, y), y, 5)
    np.testing.assert_array_equal(np.bincount(folds), 100)
    again = content_folds(probability_keys(probs[:, ::-1], 2 - y), 2 - y, 5)
    np.testing.assert_array_equal(again, folds)
