"""Recalibration maps that a monitor bets on, with their prior weights.

Each alternative is a map from the monitored probabilities p to probabilities q. The evidence of a
row for an alternative is the likelihood ratio q(y) / p(y). A set of alternatives has prior weights
(c,) that sum to one, and ``kinds``, the error that each alternative corrects: "offset", "slope" or
"both".
"""

from __future__ import annotations

import numpy as np

#: Standard deviations of the normal priors that are averaged.
_PRIOR_SCALES = (0.1, 0.3, 1.0)
#: Log odds up to which products of likelihood ratios of 16 rows stay within double precision.
_BOUNDED = 8.0


def _prior(points: np.ndarray) -> np.ndarray:
    """Compute normal densities times spacing, for each of the prior scales: (scales, points)."""
    spacing = np.gradient(points)
    scales = np.array(_PRIOR_SCALES)[:, None]
    return np.exp(-0.5 * (points / scales) ** 2) / scales * spacing


def _mean_of_normalized(masses: np.ndarray) -> np.ndarray:
    """Average priors (scales, c) after each is normalized."""
    return (masses / masses.sum(axis=1, keepdims=True)).mean(axis=0)


def _both_signs(least: float, greatest: float, num: int) -> np.ndarray:
    """Return ``num`` negative and ``num`` positive points, spaced geometrically."""
    points = np.geomspace(least, greatest, num)
    return np.concatenate([-points[::-1], points])


def _with_zero(points: np.ndarray) -> np.ndarray:
    return np.insert(points, len(points) // 2, 0.0)


class BinaryAlternatives:
    """Maps logit q = a logit p + b: offsets alone, slopes alone, and both together.

    Of the prior weight, 65 % are on 16 offsets, 20 % on 12 slopes and 15 % on 36 pairs, because
    offsets are the hardest to detect. Probabilities are those of class 1 (n,), labels are 0 or 1.
    """

    def __init__(self) -> None:
        offsets = _both_signs(0.05, 3.0, 8)
        slopes = _both_signs(0.05, 1.4, 6)
        pair_slopes = _with_zero(_both_signs(0.12, 1.1, 3))
        pair_offsets = _with_zero(_both_signs(0.12, 1.5, 3))
        product = _prior(pair_slopes)[:, :, None] * _prior(pair_offsets)[:, None, :]
        inside = (pair_slopes != 0)[:, None] & (pair_offsets != 0)
        grid = np.broadcast_arrays(pair_slopes[:, None], pair_offsets)
        self.log_slopes = np.concatenate([np.zeros(len(offsets)), slopes, grid[0][inside]])
        self.offsets = np.concatenate([offsets, np.zeros(len(slopes)), grid[1][inside]])
        parts = (
            0.65 * _mean_of_normalized(_prior(offsets)),
            0.2 * _mean_of_normalized(_prior(slopes)),
            0.15 * _mean_of_normalized(product[:, inside]),
        )
        self.weights = np.concatenate(parts)
        self.kinds = np.repeat(["offset", "slope", "both"], [len(part) for part in parts])
        # The powers of the odds that occur, and those of all alternatives as positions among them.
        self._powers, self._power = np.unique(np.exp(self.log_slopes), return_inverse=True)
        self._factors = np.exp(np.stack([self.offsets, -self.offsets]))

    def log_ratios(self, probs: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Compute the logarithms of the likelihood ratios (n, c)."""
        sign = 1.0 - 2.0 * y
        log_odds = _logit(probs)
        line = np.multiply.outer(log_odds, np.exp(self.log_slopes)) + self.offsets
        loss = np.logaddexp(0, sign[:, None] * line)
        return np.logaddexp(0, sign * log_odds)[:, None] - loss

    def ratios(self, probs: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        """Compute the likelihood ratios (n, c), or None if products of them may overflow."""
        log_odds = _logit(probs)
        if len(probs) and np.abs(log_odds).max() > _BOUNDED:
            return None
        sign = 1.0 - 2.0 * y
        signed = sign * log_odds
        against = np.multiply.outer(signed, self._powers)
        np.exp(against, out=against)
        result = np.take(against, self._power, axis=1)
        result *= self._factors[y]
        result += 1
        return np.divide((1 + np.exp(signed))[:, None], result, out=result)


class MulticlassAlternatives:
    """Maps q proportional to p**a exp(b [class j]): a temperature, one class's offset, or both.

    Two fifths of the prior weight are on 12 temperatures, two fifths on 12 offsets of each of k
    classes, and a fifth on both together. Probabilities are (n, k), labels are positions.
    """

    def __init__(self, k: int) -> None:
        self.k = k
        slopes, offsets = _both_signs(0.05, 1.4, 6), _both_signs(0.06, 2.5, 6)
        pair_slopes, pair_offsets = _both_signs(0.12, 1.1, 3), _both_signs(0.12, 1.5, 3)
        product = _prior(pair_slopes)[:, :, None] * _prior(pair_offsets)[:, None, :]
        pairs = _mean_of_normalized(product.reshape(len(product), -1))
        self._slopes = np.exp(np.concatenate([slopes, pair_slopes]))
        self._num_single = len(slopes)
        self._factors, self._pair_factors = np.exp(offsets), np.exp(pair_offsets)
        parts = (
            0.4 * _mean_of_normalized(_prior(slopes)),
            0.4 * np.repeat(_mean_of_normalized(_prior(offsets)), k) / k,
            0.2 * np.repeat(pairs, k) / k,
        )
        self.weights = np.concatenate(parts)
        self.kinds = np.repeat(["slope", "offset", "both"], [len(part) for part in parts])

    def ratios(self, probs: np.ndarray, y: np.ndarray) -> None:
        """Return None: products of likelihood ratios may overflow."""

    def log_ratios(self, probs: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Compute the logarithms of the likelihood ratios (n, c)."""
        n, rows = len(y), np.arange(len(y))
        log_probs = np.log(np.maximum(probs, np.finfo(float).tiny))
        powers = log_probs[:, None, :] * self._slopes[:, None]
        powers -= powers.max(axis=2, keepdims=True)
        powers = np.exp(powers)
        powers /= powers.sum(axis=2, keepdims=True)
        label_log_probs = log_probs[rows, y]
        # (n, slopes), and one column for the probabilities as they are.
        with np.errstate(divide="ignore"):
            tempered = np.log(powers[rows, :, y]) - label_log_probs[:, None]
        hit = np.zeros((n, self.k))
        hit[rows, y] = 1.0
        single = self._offset_terms(probs[:, None, :], hit, self._factors)
        pairs = self._offset_terms(powers[:, self._num_single :], hit, self._pair_factors)
        pairs += tempered[:, self._num_single :, None, None]
        parts = [tempered[:, : self._num_single], single, pairs]
        return np.concatenate([part.reshape(n, -1) for part in parts], axis=1)

    @staticmethod
    def _offset_terms(probs: np.ndarray, hit: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Compute log(q(y) / p(y)) for an offset of one class: (n, slopes, factors, k)."""
        ratio = factors[:, None]
        raised = np.log1p(probs[:, :, None, :] * (ratio - 1))
        return np.log(ratio) * hit[:, None, None, :] - raised


def _logit(probs: np.ndarray) -> np.ndarray:
    return np.log(probs) - np.log1p(-probs)
