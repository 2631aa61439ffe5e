"""An order of the classes that does not depend on the order of their columns."""

from __future__ import annotations

from functools import partial

import numpy as np

from bayescal._core.arrays import AnyArray, XArray, matmul, namespace
from bayescal.data.rows import Rows, Source, Sums

#: Digits to which moments are rounded, since sums in another order differ in the last ones.
_DIGITS = 10
#: Larger scores count as this large, so that their squares are finite.
_LARGEST = 1e150


def canonical_order(scores: XArray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Order the classes (k,) so that permuting the columns of scores (n, k) permutes the result.

    Whatever is computed or drawn for the classes in this order does not depend on the order of
    the columns. Classes are sorted by weighted moments of their scores and labels, which neither
    the order of rows nor the repetition of a row in place of its weight changes. Classes that agree
    in all moments, as in small tables made by hand, keep the order of their columns. Scores are
    NumPy's or JAX's.
    """
    return order_of_classes(Rows(scores, y, weights))


def order_of_classes(rows: Source) -> np.ndarray:
    """Order the classes (k,), in one pass over blocks; see :func:`canonical_order`."""
    moments = rows.total(partial(class_moments, rows.weight, rows.largest))["moments"]
    return order_by_moments(moments)


def class_moments(total: float, largest: float, rows: Rows) -> Sums:
    """Compute moments (4, k) of each class; those of parts of the rows add up.

    ``total`` is the sum of all weights and ``largest`` the greatest size of a score.
    """
    (scores, y, weights), k = rows, rows.k
    xp, proportion = namespace(scores), weights / total
    scaled = bounded(scores) / max(min(largest, _LARGEST), np.finfo(float).tiny)
    label_scores = np.asarray(scaled[np.arange(len(y)), y])
    on_device = xp.asarray(proportion)
    return {
        "moments": np.stack(
            [
                np.asarray(matmul(on_device, scaled)),
                np.bincount(y, proportion, k),
                np.bincount(y, proportion * label_scores, k),
                np.asarray(matmul(on_device, scaled**2)),
            ]
        )
    }


def order_by_moments(moments: np.ndarray) -> np.ndarray:
    """Order the classes (k,) by their moments (4, k)."""
    key = np.sqrt([1, 2, 3, 5]) @ moments
    return np.argsort(key.round(_DIGITS), kind="stable")


def bounded(scores: AnyArray) -> XArray:
    """Convert scores to floats, and clip them so that their squares are finite."""
    return namespace(scores).clip(scores.astype(float, copy=False), -_LARGEST, _LARGEST)
