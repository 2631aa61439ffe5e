"""Calibrated probabilities of truncated logits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, ArrayLike
from bayescal.data.checks import as_numpy
from bayescal.metrics import log_loss


class TopProbs(NamedTuple):
    """Calibrated probabilities of the top classes of each row, and of all others together.

    Returned by ``predict_proba`` of calibrators with ``inputs="top_logits"``. Rows of ``probs`` and
    ``rest`` sum to one; a class outside the top has the probability ``rest / others``.

    Examples
    --------
    Two of 50,257 tokens in each row, and the log-sum-exp of the logits of all others:

    >>> import numpy as np
    >>> import bayescal as bc
    >>> indices = np.array([[11, 262], [13, 198], [262, 11], [198, 13]])
    >>> top = indices, np.array([[9.0, 6.0]] * 4), np.full(4, 5.0)
    >>> y = [11, 13, 11, 4000]
    >>> calibrator = bc.Temperature(inputs="top_logits", classes=50_257).fit(top, y)
    >>> round(calibrator.temperature_, 2)
    1.27
    >>> probs = calibrator.predict_proba(top)
    >>> probs.probs[0].round(2).tolist(), probs.rest.round(2)[:1].tolist()
    ([0.65, 0.06], [0.29])
    >>> probs.of([262, 262, 262, 262]).round(6).tolist()
    [0.061684, 6e-06, 0.650208, 6e-06]
    >>> round(probs.log_loss(y), 2)
    3.93
    """

    #: Indices of the top classes, in the order of the scores (n, m).
    indices: AnyArray
    #: Probabilities of the top classes, in the order of the indices (n, m).
    probs: AnyArray
    #: Probability of all other classes together (n,).
    rest: AnyArray
    #: Number of other classes, k - m.
    others: int

    def of(self, y: ArrayLike) -> np.ndarray:
        """Select the probabilities (n,) of labels (n,), which are indices of classes."""
        labels = as_numpy(y, "y")
        if labels.dtype.kind not in "iu" or labels.shape != np.shape(self.rest):
            raise ValueError(
                f"y must be {len(self.rest)} indices of classes, got {labels.dtype} of shape "
                f"{labels.shape}"
            )
        k = self.others + np.shape(self.indices)[1]
        outside = labels[(labels < 0) | (labels >= k)]
        if len(outside):
            raise ValueError(f"y must be in {{0, ..., {k - 1}}}, got {outside[0]}")
        probs, rest = as_numpy(self.probs, "probs"), as_numpy(self.rest, "rest")
        hit = as_numpy(self.indices, "indices") == labels[:, None]
        top = np.max(probs, axis=1, where=hit, initial=0.0)
        return np.where(hit.any(axis=1), top, rest / max(self.others, 1))

    def log_loss(self, y: ArrayLike, weights: ArrayLike | None = None) -> float:
        """Compute ``metrics.log_loss`` of labels (n,), which are indices of classes."""
        probs = self.of(y)
        return log_loss(probs, np.ones(len(probs), int), weights=weights)
