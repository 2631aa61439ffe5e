"""Bin-wise weights and temperatures, in all variants that the paper's description allows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

import bayescal as bc
from bayescal import metrics
from benchmarks.studies import _published_weights as published

BINS = 5, 10, 13, 15, 20, 25, 35
#: Equal confidences share a bin ("together"), or bins have equal sizes regardless of ties.
TIES = "together", "apart"
#: Bin of a row on the border between two bins; a "middle" border has no rows on it.
BORDERS = "lower", "middle", "upper"
#: Precision of the confidences; in single precision many of them are exactly one.
DTYPES = "float64", "float32"
#: Steps of the grid of temperatures, from one step to 10; zero stands for the exact optimum.
STEPS = 0.0, 0.01, 0.1
_MAX_TEMPERATURE = 10.0
_METHODS = {"BTS": "log_loss", "CTS": "confidence", "CWS": None}


class Variant(NamedTuple):
    """Options of a bin-wise method; ``step`` applies to temperatures only."""

    method: str
    bins: int
    ties: str
    border: str
    dtype: str
    step: float


def variants() -> Iterator[Variant]:
    """Yield all variants."""
    ways = itertools.product(_METHODS, BINS, TIES, BORDERS, DTYPES)
    for method, bins, ties, border, dtype in ways:
        for step in STEPS if _METHODS[method] else STEPS[:1]:
            yield Variant(method, bins, ties, border, dtype, step)


def errors(
    scores: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray
) -> list[dict[str, Any]]:
    """Fit all variants to logits (n, k); measure ECE in 25 bins on test logits (m, k)."""
    confidences = {
        d: [softmax(z.astype(d), axis=1).max(axis=1) for z in (scores, test)] for d in DTYPES
    }
    fits = {step: _fitter(scores, y, step) for step in STEPS}
    results = []
    for variant in variants():
        confidence, test_confidence = confidences[variant.dtype]
        edges, bin_index = _bins(confidence, variant)
        fit = fits[variant.step]
        rows = [np.flatnonzero(bin_index == b) for b in range(len(edges) + 1)]
        # A bin above an edge of one has neither calibration rows nor test rows.
        parameters = np.array(
            [fit(variant.method, members) if len(members) else 1.0 for members in rows]
        )
        values = parameters[np.searchsorted(edges, test_confidence, _side(variant))][:, None]
        if variant.method == "CWS":
            probs = values * softmax(test, axis=1) + (1 - values) / test.shape[1]
        else:
            probs = softmax(test / values, axis=1)
        results.append({**variant._asdict(), "ece_25": metrics.ece(probs, test_y, bins=25)})
    return results


def _side(variant: Variant) -> Any:
    return "right" if variant.border == "upper" else "left"


def _bins(confidence: np.ndarray, variant: Variant) -> tuple[np.ndarray, np.ndarray]:
    """Compute the borders between equal-mass bins, and the bin of each row."""
    parts = np.array_split(np.argsort(confidence, kind="stable"), variant.bins)
    last = confidence[[part[-1] for part in parts[:-1]]]
    first = confidence[[part[0] for part in parts[1:]]]
    edges = {"lower": last, "middle": (last + first) / 2, "upper": first}[variant.border]
    if variant.ties == "together":
        edges = np.unique(edges)
        return edges, np.searchsorted(edges, confidence, _side(variant))
    bin_index = np.empty(len(confidence), int)
    for b, part in enumerate(parts):
        bin_index[part] = b
    return edges, bin_index


def _fitter(scores: np.ndarray, y: np.ndarray, step: float) -> Callable[[str, np.ndarray], float]:
    """Build a function that fits the weight or temperature of a method to selected rows."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    correct = scores.argmax(axis=1) == y
    probs = softmax(scores, axis=1)
    grid = np.arange(1, round(_MAX_TEMPERATURE / step) + 1) * step if step else np.ones(1)
    sums = np.stack([np.exp(shifted / t).sum(axis=1) for t in grid])
    losses = np.log(sums) - shifted[np.arange(len(y)), y] / grid[:, None]

    def fit(method: str, rows: np.ndarray) -> float:
        objective = _METHODS[method]
        if objective is None:
            model: Any = bc.WeightScaling(bins=1, classes=tuple(range(scores.shape[1])))
            return float(model.fit(probs[rows], y[rows]).alpha_[0])
        if not step:
            model = bc.BinwiseTemperature(
                objective, bins=1, inputs="logits", classes=tuple(range(scores.shape[1]))
            )
            return float(model.fit(scores[rows], y[rows]).temperature_[0])
        if objective == "log_loss":
            return float(grid[losses[:, rows].mean(axis=1).argmin()])
        gaps = np.abs((1 / sums[:, rows]).mean(axis=1) - correct[rows].mean())
        return float(grid[gaps.argmin()])

    return fit


def closest(
    scores: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray
) -> dict[str, Any]:
    """Compute the range of calibration errors over the variants of each method.

    Also find the variant closest to the published figure of the DenseNet-40 on CIFAR-10.
    """
    names = dict(zip(("BTS", "CTS", "CWS"), published.METHODS[-3:], strict=True))
    (row,) = [
        entry["methods"]
        for entry in published.TABLE_2
        if (entry["data"], entry["network"]) == ("CIFAR-10", "DenseNet-40")
    ]
    results = errors(scores, y, test, test_y)
    by_method = {}
    for method, name in names.items():
        of_method = [variant for variant in results if variant["method"] == method]
        figure = row[name] / 100
        distances = [abs(variant["ece_25"] - figure) for variant in of_method]
        by_method[method] = {
            "published": figure,
            "ways": len(of_method),
            "agree": sum(gap <= 1.001e-5 for gap in distances),
            "least": min(variant["ece_25"] for variant in of_method),
            "greatest": max(variant["ece_25"] for variant in of_method),
            "closest": of_method[int(np.argmin(distances))],
        }
    return by_method
