"""Maps of K. Valk (2022) as in its published code, where the code differs from the text.

The code is https://github.com/kaspar98/msc-knn-cal, named in section 4 of the thesis. Options that
its cross-validation chooses are fixed here, at the values that its folds lead to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import softmax

import bayescal as bc
from bayescal.calibrators.multiclass.decision import partition as _partition

#: Replaces probabilities below 0; probabilities between 0 and this value are unchanged.
FLOOR = 1e-4
#: Replaces all smaller probabilities in decision calibration.
DECISION_FLOOR = 1e-7
#: Floor of the library's calibrators, which marks probabilities that were below 0.
_MARK = 1e-13

Map = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def losses(k: int) -> np.ndarray:
    """Draw the 500 random losses (500, k, 2) of the published loss gaps."""
    normals = np.random.RandomState(0).normal(size=(500, 2, k))
    return normals.transpose(0, 2, 1)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Compute probabilities of logits in float32; with one maximum for all rows, some are 0."""
    logits = logits.astype(np.float32)
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def floored(moved: np.ndarray) -> np.ndarray:
    """Raise probabilities below 0, lower those above 1, and normalize the rows."""
    moved = np.where(moved < 0, FLOOR, np.where(moved > 1, 1 - FLOOR, moved))
    return moved / moved.sum(axis=1, keepdims=True)


def neighborhood(calibrator: bc.Calibrator) -> Map:
    """Return a calibration map of the library with the published floor."""

    def predict(given: np.ndarray, y: np.ndarray, test: np.ndarray) -> np.ndarray:
        k = given.shape[1]
        fitted = calibrator.set_params(crop=_MARK, classes=range(k)).fit(given.astype(float), y)
        probs = fitted.predict_proba(test.astype(float))
        # Probabilities below 0 became the mark; its value now reveals the divisor of the row.
        smallest = probs.min(axis=1, keepdims=True)
        moved = probs * np.where(smallest < 2 * _MARK, _MARK / smallest, 1.0)
        moved = np.where(moved > 1 - 10 * _MARK, 2.0, moved)
        return floored(np.where(moved < 2 * _MARK, -1.0, moved))

    return predict


def nearest(given: np.ndarray, y: np.ndarray, test: np.ndarray, count: int = 128) -> np.ndarray:
    """Calibrate by nearest neighbors in float32; rows with a zero are never neighbors."""
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
    """Calibrate by 250 random trees of a maximal depth.

    A branch also ends at a single row, or if a threshold happens to separate no rows. So trees have
    fewer leaves than the depth allows.
    """
    draws, errors = np.random.RandomState(0), given - np.eye(given.shape[1])[y]
    sums = np.zeros(test.shape)

    def split(rows: np.ndarray, queries: np.ndarray, splits_left: int) -> None:
        if splits_left > 0 and len(rows) > 1:
            column = draws.choice(given.shape[1])
            values = given[rows, column]
            threshold = draws.uniform(values.min(), values.max())
            above = values >= threshold
            if above.any() and not above.all():
                test_above = test[queries, column] >= threshold
                split(rows[~above], queries[~test_above], splits_left - 1)
                split(rows[above], queries[test_above], splits_left - 1)
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
    """Run decision calibration; return the best probabilities and number of steps for each floor.

    The best number of steps has the smallest Brier score on the test rows. With ``clipped``, each
    step is computed from probabilities clipped at ``DECISION_FLOOR``, but moves the unclipped
    ones, so probabilities below 0 are not pushed back. With ``least_squares`` the corrections of
    both parts are fitted together; otherwise they are the mean errors of Algorithm 1.
    """
    labels, rng = np.eye(given.shape[1])[y], np.random.default_rng(seed)
    rows, queries = given.astype(float), test.astype(float)
    best: dict[float, tuple[float, np.ndarray, int]] = {
        floor: (np.inf, queries, 0) for floor in (FLOOR, DECISION_FLOOR)
    }
    for step in range(1, most + 1):
        seen_probs = np.clip(rows, DECISION_FLOOR, 1 - DECISION_FLOOR) if clipped else rows
        errors = labels - seen_probs
        partition = _partition.worst_partition(seen_probs, errors / len(rows), 2, rng)
        membership = partial(
            _partition.membership, partition.directions, partition.offsets, hard=False
        )
        parts = membership(seen_probs)
        size = parts.T @ parts if least_squares else np.diag(parts.sum(axis=0))
        moves = np.linalg.solve(size, parts.T @ errors)
        rows, queries = rows + membership(rows) @ moves, queries + membership(queries) @ moves
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
    """Calibrate by a network with two layers of two units, trained without one of five folds."""
    training = np.arange(len(y)) % 5 != fold
    network = bc.OrderPreserving(hidden=(2, 2), inputs="logits", random_state=seed)
    return network.fit(logits[training], y[training]).predict_proba(test)


def maps(logits: np.ndarray, y: np.ndarray, test: np.ndarray, inverse: float) -> dict[str, Map]:
    """Build the maps by our names; each takes logits, labels and test logits."""
    raw, scaled = probabilities, lambda z: probabilities(z * np.float32(inverse))

    def composed(
        method: Callable[..., np.ndarray], transform: Callable[[np.ndarray], np.ndarray]
    ) -> Map:
        return lambda z, labels, queries: method(transform(z), labels, transform(queries))

    def direct(calibrator: bc.Calibrator) -> Map:
        return lambda z, labels, queries: calibrator.fit(z, labels).predict_proba(queries)

    return {
        "uncalibrated": lambda _z, _labels, queries: softmax(queries.astype(float), axis=1),
        "temperature": lambda _z, _labels, queries: softmax(queries * inverse, axis=1),
        "vector": direct(bc.Vector(inputs="logits")),
        "matrix_odir": direct(bc.Matrix(90 * 250.0, 10 * 1e-4, inputs="logits")),
        "dirichlet_odir": direct(bc.Dirichlet(90 * 1000.0, 10 * 0.01, inputs="logits")),
        "temperature+knn": composed(neighborhood(bc.KNN(256)), scaled),
        "temperature+knn_euclidean": composed(
            neighborhood(bc.KNN(256, distance="euclidean")), scaled
        ),
        "temperature+kernel_rbf": composed(neighborhood(bc.Kernel("rbf", 1 / 6.4)), scaled),
        "temperature+kernel": composed(neighborhood(bc.Kernel(bandwidth=0.1)), scaled),
        "temperature+forest": composed(partial(forest, depth=7), scaled),
        "knn": composed(nearest, raw),
        "kernel": composed(neighborhood(bc.Kernel(bandwidth=0.8)), raw),
        "forest": composed(partial(forest, depth=12), raw),
    }
