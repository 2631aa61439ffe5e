"""What the bins of histogram binning do, label by label, to fitted rows and to new ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayescal import Histogram, metrics
from benchmarks.studies._label_data import Labels
from benchmarks.studies._measures import EPS

#: What is said to fall, or not to rise, for each label.
MEASURES = ("ece", "hamming_loss", "brier_score", "log_loss")
#: Kinds of bins that new rows fall into: of no fitted row, of one class, of both.
KINDS = ("empty", "pure", "mixed")
#: Differences of sums over the same rows that are nothing but rounding.
_NOTHING = 1e-12


def examine(rows: Labels, bins: int) -> dict[str, Any]:
    """Bin each label, and compare before and after on the rows that are fitted and on new ones.

    Returns
    -------
    dict
        ``labels``: their number. ``fitted`` and ``new``: by measure for how many labels it rises.
        ``fitted_ece``: the greatest error of a label on fitted rows. ``kinds``: by kind of bin the
        number of ``cells`` (a new row's label each), of ``contradicted`` ones, which a bin says are
        impossible, and the sums of log losses ``before`` and ``after``.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.array([[0.04], [0.02], [0.97]]), np.array([[0], [0], [1]])
    >>> found = examine(Labels(p, y, p, 1 - y), 10)
    >>> found["fitted_ece"], found["kinds"]["pure"]["contradicted"]
    (0.0, 3)
    """
    count = rows.y.shape[1]
    rises = {part: dict.fromkeys(MEASURES, 0) for part in ("fitted", "new")}
    kinds = {kind: {"cells": 0, "contradicted": 0, "before": 0.0, "after": 0.0} for kind in KINDS}
    greatest = 0.0
    for label in range(count):
        p, y = rows.probs[:, label], rows.y[:, label]
        new, new_y = rows.test_probs[:, label], rows.test_y[:, label]
        fitted = Histogram(bins).set_params(classes=[0, 1]).fit(p, y)
        for part, before, truth in (("fitted", p, y), ("new", new, new_y)):
            after = fitted.predict_proba(before)[:, 1]
            one, other = _measure(before, truth, bins), _measure(after, truth, bins)
            if part == "fitted":
                greatest = max(greatest, other["ece"])
            for name in MEASURES:
                rises[part][name] += int(other[name] > one[name] + _NOTHING)
        after = fitted.predict_proba(new)[:, 1]
        place = np.searchsorted(fitted.edges_, new)
        value, weight = fitted.values_[place], fitted.bin_weights_[place]
        pure = (weight > 0) & ((value == 0) | (value == 1))
        own = {"empty": weight == 0, "pure": pure, "mixed": (weight > 0) & ~pure}
        losses = _losses(new, new_y), _losses(after, new_y)
        for kind, cells in own.items():
            kinds[kind]["cells"] += int(cells.sum())
            kinds[kind]["contradicted"] += int((cells & (after == 1 - new_y)).sum())
            kinds[kind]["before"] += float(losses[0][cells].sum())
            kinds[kind]["after"] += float(losses[1][cells].sum())
    return {"labels": count, **rises, "fitted_ece": greatest, "kinds": kinds}


def add(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up what was found in splits."""
    return {
        "labels": sum(part["labels"] for part in parts),
        "fitted_ece": max(part["fitted_ece"] for part in parts),
        **{
            rows: {name: sum(part[rows][name] for part in parts) for name in MEASURES}
            for rows in ("fitted", "new")
        },
        "kinds": {
            kind: {key: sum(part["kinds"][kind][key] for part in parts) for key in own}
            for kind, own in parts[0]["kinds"].items()
        },
    }


def calibrated_already(n: int, share: float) -> dict[str, float]:
    r"""Return what n fitted rows do to a bin whose one score is its share of class 1, exactly.

    Before, the calibration error of new rows is zero. After it is :math:`|k / n - \pi|` with k
    binomial: returned are its mean ``error``, and the probability ``worse`` that the bin says the
    less frequent class, so that new rows are predicted less accurately.

    Examples
    --------
    >>> {name: round(value, 4) for name, value in calibrated_already(20, 0.4).items()}
    {'error': 0.0863, 'worse': 0.1275}
    """
    from scipy.stats import binom

    k = np.arange(n + 1)
    chance = binom.pmf(k, n, share)
    wrong = (k / n > 0.5) != (share > 0.5)
    return {"error": float(chance @ np.abs(k / n - share)), "worse": float(chance @ wrong)}


def odd_bins() -> dict[str, list[float]]:
    """Return Hamming losses and Brier scores of two fitted rows, before and after one bin for both.

    One half lies within the bin, so that its rows were predicted differently.

    Examples
    --------
    >>> {name: np.round(pair, 2).tolist() for name, pair in odd_bins().items()}
    {'ece': [0.4, 0.0], 'hamming_loss': [0.0, 0.5], 'brier_score': [0.16, 0.25]}
    """
    p, y = np.array([0.4, 0.6]), np.array([0, 1])
    after = Histogram(1).fit(p, y).predict_proba(p)[:, 1]
    pair = _measure(p, y, 2), _measure(after, y, 2)
    return {name: [one[name] for one in pair] for name in MEASURES if name != "log_loss"}


def _measure(p: np.ndarray, y: np.ndarray, bins: int) -> dict[str, float]:
    return {
        "ece": metrics.multilabel_ece(p[:, None], y[:, None], bins=bins, average="total"),
        "hamming_loss": metrics.hamming_loss(p[:, None], y[:, None]),
        "brier_score": float(np.mean((p - y) ** 2)),
        "log_loss": float(_losses(p, y).mean()),
    }


def _losses(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -np.log(np.clip(np.where(y == 1, p, 1 - p), EPS, 1.0))
