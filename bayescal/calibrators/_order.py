"""An order of classes that depends on what they hold, not on which column is theirs."""

from __future__ import annotations

import numpy as np

#: Keys are rounded to this, since sums in another order differ in their last digits.
_DIGITS = 10


def canonical_order(scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the classes (k,) in an order that permuting them permutes alike.

    Numbers that are drawn for the classes in this order make a seeded result independent of the
    order of columns. It is by weighted moments of each class's scores and labels, so that neither
    the order of rows matters nor whether they are repeated or weighted. Classes that agree in all
    of them, as in small tables made by hand, keep the order of their columns.
    """
    k = scores.shape[1]
    share = weights / weights.sum()
    bounded = np.clip(scores.astype(float), -1e150, 1e150)
    bounded /= max(float(np.abs(bounded).max()), np.finfo(float).tiny)
    own = np.bincount(y, share * bounded[np.arange(len(y)), y], k)
    frequency = np.bincount(y, share, k)
    moments = np.stack([share @ bounded, frequency, own, share @ bounded**2])
    key = np.sqrt([1, 2, 3, 5]) @ moments
    return np.argsort(key.round(_DIGITS), kind="stable")
