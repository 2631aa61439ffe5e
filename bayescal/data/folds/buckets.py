"""Folds by hashes of scores, for too many rows to sort and for rows in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayescal._core.arrays import Array
from bayescal._core.shapes import Float, Int
from bayescal.data.folds.deal import FoldedRows, deal_units
from bayescal.data.order.equal_rows import distinct_rows

#: Keys that differ by less than this have the same hash.
_ROUNDING = 1e-8
#: Numbers of a table of buckets, and buckets at most; units in each if none occurs often.
_MAX_TABLE, _MAX_BUCKETS, _UNITS_PER_BUCKET = 1 << 20, 1 << 14, 16
#: A bucket with more than this many times the mean weight holds a score that occurs often.
_OFTEN = 4


@dataclass(frozen=True)
class Buckets:
    """The folds of all buckets of rows.

    Rows are counted in buckets by the hash of their scores. A bucket with many times the mean
    weight holds a frequent score: its units are dealt like those of a cell. Every other bucket goes
    to one fold.
    """

    #: The fold of each bucket, or -1 - i if it is divided as row i of ``shares`` says.
    fold: Int[np.ndarray, " buckets"]
    #: The proportion of the weight of each label of a divided bucket in each fold.
    shares: Float[np.ndarray, "divided classes folds"]

    @property
    def count(self) -> int:
        """The number of folds."""
        return self.shares.shape[2]

    @classmethod
    def deal(cls, mass: np.ndarray, units: float, count: int) -> Buckets:
        """Deal buckets with the weights (buckets, k) of labels, of ``units`` units in total."""
        total, k = mass.sum(axis=1), mass.shape[1]
        used = np.flatnonzero(total)
        often = total > _OFTEN * total.sum() / len(total)
        rng = np.random.default_rng(0)
        light, heavy = used[~often[used]], used[often[used]]
        unit = total.sum() / units
        dealt = np.where(mass[heavy] > 0, np.maximum(1, np.floor(mass[heavy] / unit + 1e-9)), 0)
        count = int(max(1, min(count, len(light) + dealt.sum())))
        fold = np.zeros(len(total), int)
        fold[rng.permutation(light)] = np.arange(len(light)) % count
        fold[heavy] = -1 - np.arange(len(heavy))
        cell, label = np.nonzero(dealt)
        table = deal_units(cell, dealt[cell, label], len(light), count, rng)
        shares = np.zeros((len(heavy), k, count))
        shares[cell, label] = table / table.sum(axis=1, keepdims=True)
        return cls(fold, shares)

    def fold_mass(self, mass: np.ndarray) -> np.ndarray:
        """Return the weight of each fold, of weights (buckets, k) of each label."""
        light = self.fold >= 0
        total = np.bincount(self.fold[light], mass[light].sum(axis=1), self.count)
        heavy = np.flatnonzero(~light)
        shares = self.shares[-1 - self.fold[heavy]]
        return total + np.einsum("bk,bkf->f", mass[heavy], shares)

    def assign(
        self, hashes: np.ndarray, rows: Array, y: np.ndarray, weights: np.ndarray
    ) -> FoldedRows:
        """Give folds to rows (n, k); hashes (n,) are those of their scores."""
        fold = self.fold[bucket_of(hashes, len(self.fold))]
        heavy = np.flatnonzero(fold < 0)
        if not len(heavy):
            sets = np.arange(len(y))
            return FoldedRows(sets, fold, weights, sets, sets)
        light = np.flatnonzero(fold >= 0)
        k = self.shares.shape[1]
        equal = distinct_rows(rows[heavy])[1]
        _, first, index = np.unique(equal * k + y[heavy], return_index=True, return_inverse=True)
        mass = np.bincount(index, weights[heavy])
        chosen = heavy[first]
        entry, number = np.nonzero(self.shares[-1 - fold[chosen], y[chosen]])
        share = self.shares[-1 - fold[chosen[entry]], y[chosen[entry]], number]
        sets = np.empty(len(y), int)
        sets[light] = np.arange(len(light))
        sets[heavy] = len(light) + index.reshape(-1)
        return FoldedRows(
            np.concatenate([light, chosen[entry]]),
            np.concatenate([fold[light], number]),
            np.concatenate([weights[light], mass[entry] * share]),
            np.concatenate([np.arange(len(light)), len(light) + entry]),
            sets,
        )


def key_hashes(key: np.ndarray) -> np.ndarray:
    """Hash keys (n,) to evenly distributed 64-bit numbers."""
    return _mix(np.round(np.arcsinh(key) / _ROUNDING).astype(np.int64).view(np.uint64))


def with_labels(hashes: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Hash the hashes (n,) of rows together with their labels (n,)."""
    return _mix(hashes + (label.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))


def _mix(bits: np.ndarray) -> np.ndarray:
    # The finalizer of SplitMix64.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))


def bucket_count(units: float, k: int) -> int:
    """Choose the number of buckets, a power of two, for ``units`` units of rows of k classes."""
    most = max(1, min(_MAX_BUCKETS, _MAX_TABLE // k, int(units) // _UNITS_PER_BUCKET))
    return 1 << (most.bit_length() - 1)


def bucket_of(hashes: np.ndarray, count: int) -> np.ndarray:
    """Find the bucket (n,) of each hash; their number is a power of two."""
    return (hashes >> np.uint64(64 - (count.bit_length() - 1))).astype(int)
