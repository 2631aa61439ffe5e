"""Maps of K. Valk (2022) as its published code has them, where that is not what its text says.

https://github.com/kaspar98/msc-knn-cal, named in section 4 of the thesis. Options that its
cross-validation chooses are fixed: what these are was found with its folds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import softmax

import bayescal as bc
from bayescal.calibrators.multiclass.decision import partition as _partition

#: Below 0 probabilities became this much; those between 0 and this stayed.
FLOOR = 1e-4
#: Of decision calibration instead: whatever is less becomes this much.
DECISION_FLOOR = 1e-7
#: The library's own floor, taken as a mark of what was below 0.
_MARK = 1e-13

Map = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def losses(k: int) -> np.ndarray:
    """Return the 500 random losses (500, k, 2) of the published loss gaps."""
    drawn = np.random.RandomState(0).normal(size=(500, 2, k))
    return drawn.transpose(0, 2, 1)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return probabilities of logits in float32, which may be 0: one maximum for all rows."""
    logits = logits.astype(np.float32)
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def floored(moved: np.ndarray) -> np.ndarray:
    """Return probabilities of which those below 0 were raised, and those above 1 lowered."""
    moved = np.where(moved < 0, FLOOR, np.where(moved > 1, 1 - FLOOR, moved))
    return moved / moved.sum(axis=1, keepdims=True)


def neighborhood(calibrator: bc.Calibrator) -> Map:
    """Return a map of the library, with the published floor."""

    def found(given: np.ndarray, y: np.ndarray, test: np.ndarray) -> np.ndarray:
        k = given.shape[1]
        own = calibrator.set_params(crop=_MARK, classes=range(k)).fit(given.astype(float), y)
        probs = own.predict_proba(test.astype(float))
        # What was below 0 became the mark, which says what rows were divided by.
        least = probs.min(axis=1, keepdims=True)
        moved = probs * np.where(least < 2 * _MARK, _MARK / least, 1.0)
        moved = np.where(moved > 1 - 10 * _MARK, 2.0, moved)
        return floored(np.where(moved < 2 * _MARK, -1.0, moved))

    return found


def nearest(given: np.ndarray, y: np.ndarray, test: np.ndarray, count: int = 128) -> np.ndarray:
    """Return probabilities by neighbors in float32: rows with a zero are nobody's neighbor."""
    errors = given - np.eye(given.shape[1], dtype=np.float32)[y]
    averages = np.empty(test.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for start in range(0, len(test), 200):
            rows = test[start : start + 200, None]
            far = (rows * np.log(rows / given)).sum(axis=2)
            near = np.argpartition(far, count, axis=1)[:, :count]
            averages[start : start + 200] = errors[near].mean(axis=1)
    return floored(test - averages)


def forest(given: np.ndarray, y: np.ndarray, test: np.ndarray, depth: int) -> np.ndarray:
    """Return probabilities by 250 trees of a depth: leaves are fewer than that allows.

    A branch ends at a single row, and where a threshold happens to part none.
    """
    draws, errors = np.random.RandomState(0), given - np.eye(given.shape[1])[y]
    sums = np.zeros(test.shape)

    def split(rows: np.ndarray, queries: np.ndarray, left: int) -> None:
        if left > 0 and len(rows) > 1:
            own = draws.choice(given.shape[1])
            values = given[rows, own]
            threshold = draws.uniform(values.min(), values.max())
            above = values >= threshold
            if above.any() and not above.all():
                beyond = test[queries, own] >= threshold
                split(rows[~above], queries[~beyond], left - 1)
                split(rows[above], queries[beyond], left - 1)
                return
        sums[queries] += errors[rows].mean(axis=0)

    for _ in range(250):
        split(np.arange(len(given)), np.arange(len(test)), depth)
    return floored(test - sums / 250)


def decisions(
    given: np.ndarray,
    y: np.ndarray,
    test: np.ndarray,
    test_y: np.ndarray,
    clipped: bool,
    least_squares: bool,
    seed: int,
    most: int = 15,
) -> dict[float, tuple[np.ndarray, int]]:
    """Return probabilities after the steps with the least Brier score of the test rows, and which.

    By floor. If ``clipped``, steps see rows between the published floor and 1, but move them as
    they are: what fell below 0 is not pushed back. With ``least_squares`` the corrections of both
    parts are fitted together; otherwise they are the mean errors of Algorithm 1.
    """
    labels, rng = np.eye(given.shape[1])[y], np.random.default_rng(seed)
    rows, queries = given.astype(float), test.astype(float)
    best: dict[float, tuple[float, np.ndarray, int]] = {
        floor: (np.inf, queries, 0) for floor in (FLOOR, DECISION_FLOOR)
    }
    for step in range(1, most + 1):
        seen = np.clip(rows, DECISION_FLOOR, 1 - DECISION_FLOOR) if clipped else rows
        errors = labels - seen
        found = _partition.worst_partition(seen, errors / len(rows), 2, rng)
        share = partial(_partition.membership, found.directions, found.offsets, hard=False)
        parts = share(seen)
        size = parts.T @ parts if least_squares else np.diag(parts.sum(axis=0))
        moves = np.linalg.solve(size, parts.T @ errors)
        rows, queries = rows + share(rows) @ moves, queries + share(queries) @ moves
        for floor in best:
            probs = np.clip(queries, floor, 1 - floor)
            probs /= probs.sum(axis=1, keepdims=True)
            brier = bc.metrics.brier_score(probs, test_y)
            if brier < best[floor][0]:
                best[floor] = brier, probs, step
    return {floor: (probs, step) for floor, (_, probs, step) in best.items()}


def order_preserving(
    logits: np.ndarray, y: np.ndarray, test: np.ndarray, fold: int, seed: int
) -> np.ndarray:
    """Return probabilities by a network of two times two units, trained without a fifth."""
    kept = np.arange(len(y)) % 5 != fold
    network = bc.OrderPreserving(hidden=(2, 2), inputs="logits", random_state=seed)
    return network.fit(logits[kept], y[kept]).predict_proba(test)


def maps(logits: np.ndarray, y: np.ndarray, test: np.ndarray, inverse: float) -> dict[str, Map]:
    """Return maps of probabilities, and those of logits, by our names."""
    raw, after = probabilities, lambda z: probabilities(z * np.float32(inverse))

    def of(method: Callable[..., np.ndarray], view: Callable[[np.ndarray], np.ndarray]) -> Map:
        return lambda z, labels, queries: method(view(z), labels, view(queries))

    def linear(calibrator: bc.Calibrator) -> Map:
        return lambda z, labels, queries: calibrator.fit(z, labels).predict_proba(queries)

    return {
        "uncalibrated": lambda _z, _labels, queries: softmax(queries.astype(float), axis=1),
        "temperature": lambda _z, _labels, queries: softmax(queries * inverse, axis=1),
        "vector": linear(bc.Vector(inputs="logits")),
        "matrix_odir": linear(bc.Matrix(90 * 250.0, 10 * 1e-4, inputs="logits")),
        "dirichlet_odir": linear(bc.Dirichlet(90 * 1000.0, 10 * 0.01, inputs="logits")),
        "temperature+knn": of(neighborhood(bc.KNN(256)), after),
        "temperature+knn_euclidean": of(neighborhood(bc.KNN(256, distance="euclidean")), after),
        "temperature+kernel_rbf": of(neighborhood(bc.Kernel("rbf", 1 / 6.4)), after),
        "temperature+kernel": of(neighborhood(bc.Kernel(bandwidth=0.1)), after),
        "temperature+forest": of(partial(forest, depth=7), after),
        "knn": of(nearest, raw),
        "kernel": of(neighborhood(bc.Kernel(bandwidth=0.8)), raw),
        "forest": of(partial(forest, depth=12), raw),
    }
