"""Effects of histogram binning on each label, on fitted rows and on new rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayescal import Histogram, metrics
from benchmarks.studies._label_data import Labels
from benchmarks.studies._measures import EPS

#: Measures that are compared before and after binning, for each label.
MEASURES = ("ece", "hamming_loss", "brier_score", "log_loss")
#: Kinds of bins by their fitted rows: no rows, rows of one class, rows of both classes.
KINDS = ("empty", "pure", "mixed")
#: Smaller differences of sums over the same rows are rounding errors.
_ROUNDING_ERROR = 1e-12


def examine(rows: Labels, bins: int) -> dict[str, Any]:
    """Fit histogram binning to each label, and compare losses before and after.

    Returns
    -------
    dict
        ``labels``: the number of labels. ``fitted`` and ``new``: the number of labels for which
        each measure rises, on fitted and on new rows. ``fitted_ece``: the largest ECE of a label on
        fitted rows. ``kinds``: by kind of bin, the number of ``cells`` (pairs of a new row and a
        label), the number of ``contradicted`` cells, whose true label has probability zero, and the
        sums of log losses ``before`` and ``after``.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.array([[0.04], [0.02], [0.97]]), np.array([[0], [0], [1]])
    >>> result = examine(Labels(p, y, p, 1 - y), 10)
    >>> result["fitted_ece"], result["kinds"]["pure"]["contradicted"]
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
            loss_before, loss_after = _measure(before, truth, bins), _measure(after, truth, bins)
            if part == "fitted":
                greatest = max(greatest, loss_after["ece"])
            for name in MEASURES:
                rises[part][name] += int(loss_after[name] > loss_before[name] + _ROUNDING_ERROR)
        after = fitted.predict_proba(new)[:, 1]
        bin_index = np.searchsorted(fitted.edges_, new)
        value, weight = fitted.values_[bin_index], fitted.bin_weights_[bin_index]
        pure = (weight > 0) & ((value == 0) | (value == 1))
        of_kind = {"empty": weight == 0, "pure": pure, "mixed": (weight > 0) & ~pure}
        losses = _losses(new, new_y), _losses(after, new_y)
        for kind, cells in of_kind.items():
            kinds[kind]["cells"] += int(cells.sum())
            kinds[kind]["contradicted"] += int((cells & (after == 1 - new_y)).sum())
            kinds[kind]["before"] += float(losses[0][cells].sum())
            kinds[kind]["after"] += float(losses[1][cells].sum())
    return {"labels": count, **rises, "fitted_ece": greatest, "kinds": kinds}


def add(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Add the results of :func:`examine` over splits."""
    return {
        "labels": sum(part["labels"] for part in parts),
        "fitted_ece": max(part["fitted_ece"] for part in parts),
        **{
            rows: {name: sum(part[rows][name] for part in parts) for name in MEASURES}
            for rows in ("fitted", "new")
        },
        "kinds": {
            kind: {key: sum(part["kinds"][kind][key] for part in parts) for key in values}
            for kind, values in parts[0]["kinds"].items()
        },
    }


def calibrated_already(n: int, share: float) -> dict[str, float]:
    r"""Compute the exact effect of histogram binning on a bin that is already calibrated.

    The only score in the bin is its share of class 1, so the calibration error of new rows is zero
    before the fit. After a fit to n rows it is :math:`|k / n - \pi|` with a binomial k. The result
    has the expected ``error`` and the probability ``worse`` that the bin predicts the less frequent
    class, so that new rows are predicted less accurately.

    Examples
    --------
    >>> {name: round(value, 4) for name, value in calibrated_already(20, 0.4).items()}
    {'error': 0.0863, 'worse': 0.1275}
    """
    from scipy.stats import binom

    k = np.arange(n + 1)
    probability = binom.pmf(k, n, share)
    wrong = (k / n > 0.5) != (share > 0.5)
    return {
        "error": float(probability @ np.abs(k / n - share)),
        "worse": float(probability @ wrong),
    }


def odd_bins() -> dict[str, list[float]]:
    """Compute losses of two fitted rows before and after they share one bin.

    The bin contains the threshold 1/2, so the two rows had different predictions before.

    Examples
    --------
    >>> {name: np.round(pair, 2).tolist() for name, pair in odd_bins().items()}
    {'ece': [0.4, 0.0], 'hamming_loss': [0.0, 0.5], 'brier_score': [0.16, 0.25]}
    """
    p, y = np.array([0.4, 0.6]), np.array([0, 1])
    after = Histogram(1).fit(p, y).predict_proba(p)[:, 1]
    losses = _measure(p, y, 2), _measure(after, y, 2)
    return {
        name: [by_measure[name] for by_measure in losses] for name in MEASURES if name != "log_loss"
    }


def _measure(p: np.ndarray, y: np.ndarray, bins: int) -> dict[str, float]:
    return {
        "ece": metrics.multilabel_ece(p[:, None], y[:, None], bins=bins, average="total"),
        "hamming_loss": metrics.hamming_loss(p[:, None], y[:, None]),
        "brier_score": float(np.mean((p - y) ** 2)),
        "log_loss": float(_losses(p, y).mean()),
    }


def _losses(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -np.log(np.clip(np.where(y == 1, p, 1 - p), EPS, 1.0))
