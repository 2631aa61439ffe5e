"""Folds of a stack by the content of rows, and a sample of rows for the curvature."""

from __future__ import annotations

import numpy as np

from bayescal._core.arrays import AnyArray, on_host
from bayescal._core.execution.threads import threads
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import log_softmax
from bayescal._core.shapes import Float, Int
from bayescal.calibrators.base.draws import row_blocks
from bayescal.calibrators.stack.kernels import SMALL
from bayescal.data.blocks.reader import rows_of_sample
from bayescal.data.folds.buckets import Buckets, bucket_count, bucket_of, key_hashes, with_labels
from bayescal.data.folds.deal import FoldedRows, deal_rows, score_keys
from bayescal.data.order.classes import canonical_order

#: Number of rows that suffice to estimate the curvature.
_SAMPLE_ROWS = 1250


def row_keys(
    order: Int[np.ndarray, " classes"], scores: Float[np.ndarray, "rows classes"]
) -> Float[np.ndarray, " rows"]:
    """Compute a number (n,) for each row of scores, in a canonical order of the classes."""
    # Logarithms whose sums are finite.
    return score_keys(np.maximum(log_softmax(scores), -1e300), order)


def content_keys(order: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Compute the keys of rows in blocks, in threads."""
    with threads(scores.size >= SMALL) as map_fn:
        parts = row_blocks(*scores.shape)
        return np.concatenate([*map_fn(lambda part: row_keys(order, scores[part]), parts)])


@jax.jit
def _device_keys(order: jax.Array, scores: jax.Array) -> jax.Array:
    return score_keys(jnp.maximum(log_softmax(scores.astype(float)), -1e300), order)


def sample_sets(
    folds: FoldedRows,
) -> tuple[Int[np.ndarray, " sample"], Float[np.ndarray, " sample"]]:
    """Choose one row of each set of equal rows, or 1,250 spread evenly over all, and their weights.

    The order of rows does not matter, and an integer weight equals repeated rows.
    """
    rows, weights = folds.representatives()
    if len(rows) <= _SAMPLE_ROWS:
        return rows, weights
    total = np.cumsum(weights)
    share = total[-1] / _SAMPLE_ROWS
    positions = np.searchsorted(total, share * (np.arange(_SAMPLE_ROWS) + 0.5))
    return rows[positions], np.full(_SAMPLE_ROWS, share)


def sample_hashes(
    hashes: np.ndarray, weights: np.ndarray
) -> tuple[Int[np.ndarray, " sample"], Float[np.ndarray, " sample"]]:
    """Choose one row of each of the 1,250 lowest hashes, and the weights of all rows that share it.

    Rows chosen from several parts can be merged and chosen from again.
    """
    _, first, index = np.unique(hashes, return_index=True, return_inverse=True)
    return first[:_SAMPLE_ROWS], np.bincount(index, weights)[:_SAMPLE_ROWS]


def fold_rows(
    scores: AnyArray, y: np.ndarray, weights: np.ndarray, count: int
) -> tuple[FoldedRows, np.ndarray, np.ndarray]:
    """Deal rows to folds; also return a weighted sample of rows that represents all rows."""
    n, k = scores.shape
    order = canonical_order(scores, y, weights)
    rank = np.argsort(order)
    keys = np.asarray((content_keys if on_host(scores) else _device_keys)(order, scores))
    if n <= rows_of_sample(k):
        # If all folds had the class proportions of all rows, held-out losses would be too small.
        folds = deal_rows(keys, scores, rank[y], weights, count, stratify=False)
        return folds, *sample_sets(folds)
    # Same method as for rows in blocks.
    hashes = key_hashes(keys)
    units = weights.sum() if (weights == np.floor(weights)).all() else n
    buckets = Buckets.deal(bucket_mass(hashes, y, weights, units, k), units, count)
    chosen, counts = sample_hashes(with_labels(hashes, rank[y]), weights)
    folds = buckets.assign(hashes, scores, y, weights)
    return folds, chosen, counts * (weights.sum() / counts.sum())


def bucket_mass(
    hashes: np.ndarray,
    y: Int[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
    units: float,
    k: int,
) -> Float[np.ndarray, "buckets classes"]:
    """Sum the weights of each label by bucket; ``units`` is the total number of units."""
    count = bucket_count(units, k)
    index = bucket_of(hashes, count) * k + y
    return np.bincount(index, weights, count * k).reshape(count, k)
