"""Check the assumption behind a label-shift correction.

If only the class proportions have changed, the scores of new rows are a mixture of the class-wise
scores in the calibration rows. The counts of new rows in cells of scores are compared with the best
such mixture, and the difference is compared with the differences in simulated data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Number of cells for two classes.
_CELLS = 10
#: Largest number of classes; the check of more classes would take minutes.
MAX_CLASSES = 100
#: Pseudo-rows added to each class, distributed over the cells like the rows of all classes.
_EXTRA = 1.0
_SIMULATIONS, _STEPS = 199, 50


@dataclass(frozen=True)
class ShiftCheck:
    """Test of whether new scores are a mixture of the class-wise scores, as under label shift.

    Attributes
    ----------
    p_value : float
        The probability of a difference at least this large if only the class proportions have
        changed, from 199 simulations. The test is conservative.
    statistic : float
        The sum over cells of squared differences, each divided by its variance.
    cells : int
        The number of cells of scores.
    """

    p_value: float
    statistic: float
    cells: int

    @property
    def fails(self) -> bool:
        """Whether the assumption is rejected at 5 %."""
        return self.p_value < 0.05

    def __str__(self) -> str:
        p = f"p = {self.p_value:.3f}, {self.cells} cells"
        if self.fails:
            return (
                f"The scores are not a mixture of those of the calibrated classes ({p}): something "
                "other than the class shares has changed. Calibrate again with labels of new rows."
            )
        return (
            f"The scores may be a mixture of those of the calibrated classes ({p}). This is "
            "not proof: some other changes look the same."
        )


def score_cells(
    probs: np.ndarray, weights: np.ndarray, new: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the cells (n,) and (m,) of calibration rows and of new rows, and their number.

    Two classes have ten cells with equally many calibration rows. For more classes, each most
    probable class has two cells: its more and its less confident half of the rows.
    """
    k = probs.shape[1]
    if k == 2:
        levels = np.arange(1, _CELLS) / _CELLS
        borders = np.unique(_weighted_quantiles(probs[:, 1], weights, levels))
        index, other = (np.searchsorted(borders, rows[:, 1]) for rows in (probs, new))
        return index, other, len(borders) + 1
    best, other = probs.argmax(axis=1), new.argmax(axis=1)
    halves = np.full(k, 0.5)
    for label in np.unique(best):
        predicted = best == label
        likely = probs[predicted, label], weights[predicted]
        halves[label] = _weighted_quantiles(*likely, np.array([0.5]))[0]
    cells = 2 * best + (probs.max(axis=1) > halves[best])
    return cells, 2 * other + (new.max(axis=1) > halves[other]), 2 * k


def check_mixture(known: np.ndarray, new: np.ndarray, share: np.ndarray, seed: int) -> ShiftCheck:
    """Compare counts (cells,) of new rows with mixtures of the class counts (k, cells).

    The search for the best mixture, in the data and in simulations, starts at shares (k,).
    """
    rng = np.random.default_rng(seed)
    sizes = np.maximum(np.rint(known.sum(axis=1)), 1).astype(int)
    total = max(int(np.rint(new.sum())), 1)
    statistic, best = _statistics(known[None], new[None], share)
    profile = _profiles(known[None])[0]
    pairs = zip(sizes, profile, strict=True)
    known = np.stack([rng.multinomial(n, cells, _SIMULATIONS) for n, cells in pairs], axis=1)
    drawn = rng.multinomial(total, best[0] @ profile, _SIMULATIONS)
    simulated = _statistics(known.astype(float), drawn.astype(float), best[0])[0]
    p_value = (1 + int((simulated >= statistic[0]).sum())) / (1 + _SIMULATIONS)
    return ShiftCheck(p_value, float(statistic[0]), len(new))


def _profiles(known: np.ndarray) -> np.ndarray:
    """Return the distributions (r, k, cells) of the classes over cells, smoothed to be positive."""
    common = known.sum(axis=1, keepdims=True) + 1 / known.shape[-1]
    extra = _EXTRA * common / common.sum(axis=-1, keepdims=True)
    return (known + extra) / (known.sum(axis=-1, keepdims=True) + _EXTRA)


def _statistics(
    known: np.ndarray, new: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return statistics (r,) and the shares (r, k) of the best mixtures."""
    profile = _profiles(known)
    share = np.tile(np.maximum(start, 1e-6), (len(new), 1))
    share /= share.sum(axis=1, keepdims=True)
    total = new.sum(axis=1, keepdims=True)
    for _ in range(_STEPS):
        mixed = (share[:, None, :] @ profile)[:, 0, :]
        share = share * (profile @ (new / mixed)[:, :, None])[:, :, 0] / total
    mixed = (share[:, None, :] @ profile)[:, 0, :]
    size = np.maximum(known.sum(axis=2), 1)
    noise = ((share**2 / size)[:, None, :] @ profile)[:, 0, :]
    variance = total * mixed + total**2 * noise
    return ((new - total * mixed) ** 2 / variance).sum(axis=1), share


def _weighted_quantiles(values: np.ndarray, weights: np.ndarray, levels: np.ndarray) -> np.ndarray:
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return values[order][np.searchsorted(below / below[-1], levels)]
