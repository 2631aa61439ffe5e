"""Weights and temperatures by bins of the confidence, in the ways that a paper leaves open."""

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
#: Equal confidences share a bin, or bins have equally many rows whatever is tied.
TIES = "together", "apart"
#: Where a row at the border between two bins goes; of "middle" none is there.
BORDERS = "lower", "middle", "upper"
#: In which confidences are computed: single precision makes many of them one.
DTYPES = "float64", "float32"
#: Of the grid of temperatures, from one step to 10; zero for the exact one.
STEPS = 0.0, 0.01, 0.1
_HIGHEST = 10.0
_METHODS = {"BTS": "log_loss", "CTS": "confidence", "CWS": None}


class Variant(NamedTuple):
    """One way; temperatures have a ``step``, weights have none."""

    method: str
    bins: int
    ties: str
    border: str
    dtype: str
    step: float


def variants() -> Iterator[Variant]:
    """Yield all ways."""
    ways = itertools.product(_METHODS, BINS, TIES, BORDERS, DTYPES)
    for method, bins, ties, border, dtype in ways:
        for step in STEPS if _METHODS[method] else STEPS[:1]:
            yield Variant(method, bins, ties, border, dtype, step)


def errors(
    scores: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray
) -> list[dict[str, Any]]:
    """Return each way, with its calibration error in 25 bins; logits are (n, k) and (m, k)."""
    top = {d: [softmax(z.astype(d), axis=1).max(axis=1) for z in (scores, test)] for d in DTYPES}
    fits = {step: _fitting(scores, y, step) for step in STEPS}
    found = []
    for way in variants():
        confidence, unseen = top[way.dtype]
        edges, place = _bins(confidence, way)
        fit = fits[way.step]
        rows = [np.flatnonzero(place == b) for b in range(len(edges) + 1)]
        # No confidence is above an edge of one: that bin has no rows of the test either.
        each = np.array([fit(way.method, own) if len(own) else 1.0 for own in rows])
        values = each[np.searchsorted(edges, unseen, _side(way))][:, None]
        if way.method == "CWS":
            probs = values * softmax(test, axis=1) + (1 - values) / test.shape[1]
        else:
            probs = softmax(test / values, axis=1)
        found.append({**way._asdict(), "ece_25": metrics.ece(probs, test_y, bins=25)})
    return found


def _side(way: Variant) -> Any:
    return "right" if way.border == "upper" else "left"


def _bins(confidence: np.ndarray, way: Variant) -> tuple[np.ndarray, np.ndarray]:
    """Return borders between bins of equally many rows, and the bin of each row."""
    parts = np.array_split(np.argsort(confidence, kind="stable"), way.bins)
    last = confidence[[part[-1] for part in parts[:-1]]]
    first = confidence[[part[0] for part in parts[1:]]]
    edges = {"lower": last, "middle": (last + first) / 2, "upper": first}[way.border]
    if way.ties == "together":
        edges = np.unique(edges)
        return edges, np.searchsorted(edges, confidence, _side(way))
    place = np.empty(len(confidence), int)
    for b, part in enumerate(parts):
        place[part] = b
    return edges, place


def _fitting(scores: np.ndarray, y: np.ndarray, step: float) -> Callable[[str, np.ndarray], float]:
    """Return a function of method and rows: their weight or temperature."""
    below = scores - scores.max(axis=1, keepdims=True)
    right = scores.argmax(axis=1) == y
    probs = softmax(scores, axis=1)
    grid = np.arange(1, round(_HIGHEST / step) + 1) * step if step else np.ones(1)
    sums = np.stack([np.exp(below / t).sum(axis=1) for t in grid])
    losses = np.log(sums) - below[np.arange(len(y)), y] / grid[:, None]

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
        gaps = np.abs((1 / sums[:, rows]).mean(axis=1) - right[rows].mean())
        return float(grid[gaps.argmin()])

    return fit


def closest(
    scores: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray
) -> dict[str, Any]:
    """Return by method how far calibration errors spread over the ways that a paper leaves open.

    And which way comes closest to the figure that is published of the DenseNet-40 on CIFAR-10.
    """
    names = dict(zip(("BTS", "CTS", "CWS"), published.METHODS[-3:], strict=True))
    (row,) = [
        each["methods"]
        for each in published.TABLE_2
        if (each["data"], each["network"]) == ("CIFAR-10", "DenseNet-40")
    ]
    ways = errors(scores, y, test, test_y)
    found = {}
    for method, name in names.items():
        own = [way for way in ways if way["method"] == method]
        figure = row[name] / 100
        apart = [abs(way["ece_25"] - figure) for way in own]
        found[method] = {
            "published": figure,
            "ways": len(own),
            "agree": sum(gap <= 1.001e-5 for gap in apart),
            "least": min(way["ece_25"] for way in own),
            "greatest": max(way["ece_25"] for way in own),
            "closest": own[int(np.argmin(apart))],
        }
    return found
