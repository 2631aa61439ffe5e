"""Folds by content: equal rows, order of rows and of classes, balance."""

import numpy as np
import pytest

from bayescal._core.folds import content_folds


def data_set(n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, k)), rng.integers(k, size=n)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_equal_rows_share_a_fold_in_any_order(k: int) -> None:
    """Also where rounding tells them apart."""
    rng = np.random.default_rng(0)
    z, y = data_set(40, k)
    y = y % max(k, 2)
    place = rng.permutation(np.repeat(np.arange(40), 3))
    rounded = z[place] * (1 + 1e-13 * rng.normal(size=(120, k)))
    once = content_folds(z, y, 5)
    np.testing.assert_array_equal(content_folds(rounded, y[place], 5), once[place])
    assert np.bincount(once).tolist() == [8] * 5


@pytest.mark.parametrize("k", [2, 3, 5])
def test_order_of_classes_does_not_matter(k: int) -> None:
    z, y = data_set(200, k)
    order = np.random.default_rng(1).permutation(k)
    name = np.argsort(order)
    np.testing.assert_array_equal(content_folds(z[:, order], name[y], 5), content_folds(z, y, 5))


def test_every_class_is_spread_evenly() -> None:
    z, y = data_set(203, 4)
    counts = np.stack([np.bincount(content_folds(z, y, 5)[y == c], minlength=5) for c in range(4)])
    assert np.ptp(counts, axis=1).max() <= 1 and np.ptp(counts.sum(axis=0)) <= 1


def test_rows_of_no_weight_do_not_count() -> None:
    z, y = data_set(60, 3)
    weights = np.arange(60) % 3
    kept = weights > 0
    folds = content_folds(z, y, 5, weights=weights)
    np.testing.assert_array_equal(folds[kept], content_folds(z[kept], y[kept], 5))
    np.testing.assert_array_equal(content_folds(z, y, 5, weights=np.zeros(60)), np.zeros(60))


def test_few_distinct_rows_make_few_folds() -> None:
    label = np.arange(40) % 2
    folds = content_folds(np.zeros((40, 3)), label, 5)
    assert len(set(zip(label, folds, strict=True))) == 2 and set(folds) == {0, 1}
    assert content_folds(np.zeros((1, 2)), np.array([0]), 5).tolist() == [0]


def test_seed_decides_what_is_together() -> None:
    z, y = data_set(100, 3)
    assert (content_folds(z, y, 5, 0) == content_folds(z, y, 5, 0)).all()
    together = [f[:, None] == f for f in (content_folds(z, y, 5, 0), content_folds(z, y, 5, 1))]
    # Of pairs in one fold with one seed, about a fifth are with another, too.
    assert (together[0] & together[1]).sum() < 0.5 * together[0].sum()


def test_strata_need_not_be_classes() -> None:
    z, _ = data_set(50, 3)
    strata = np.repeat(np.arange(5), 10)
    folds = content_folds(z, strata, 5)
    assert all(np.bincount(folds[strata == s]).tolist() == [2] * 5 for s in range(5))
