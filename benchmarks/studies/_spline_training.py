"""Small networks trained on noisy digits, with their predictions epoch by epoch.

They replace a convolutional network on CIFAR-10: there are ten classes of images, and noise gives
about the same error rate. As published, a fifth of the training rows, or five folds, are used for
calibration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

#: Epochs after which predictions are made, and numbers of rows; "train" includes the calibration
#: rows.
CHECKPOINTS = tuple(range(20, 201, 20))
ROWS = {"train": 1200, "test": 597}
_FOLDS, _NOISE, _HIDDEN, _BATCH = 5, 0.2, 64, 50
#: Predictions (n, k) and labels (n,) of calibration rows, and those of test rows.
Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def train(seed: int) -> dict[str, Iterator[Step]]:
    """Train networks with two schemes, and yield their predictions at each checkpoint.

    "held out": a network is trained on four fifths of the training rows, and the last fifth is used
    for calibration. "cross-validated": each of five networks predicts the fifth on which it was not
    trained, and all these predictions are used to calibrate a network trained on all rows.
    """
    from sklearn.datasets import load_digits

    digits: Any = load_digits(return_X_y=True)
    images, y = (np.asarray(part) for part in digits)
    rng = np.random.default_rng(seed)
    x = images / 16 + rng.normal(0, _NOISE, images.shape)
    order = rng.permutation(len(y))
    training, test = order[: ROWS["train"]], order[ROWS["train"] :][: ROWS["test"]]
    folds = np.arange(len(training)) % _FOLDS

    def predictions(rows: np.ndarray, new: np.ndarray) -> Iterator[np.ndarray]:
        return _epochs(x[rows], y[rows], x[new], seed)

    def held_out() -> Iterator[Step]:
        held_rows = training[folds == 0]
        for probs in predictions(training[folds > 0], np.concatenate([held_rows, test])):
            yield probs[: len(held_rows)], y[held_rows], probs[len(held_rows) :], y[test]

    def cross_validated() -> Iterator[Step]:
        parts = [predictions(training[folds != f], training[folds == f]) for f in range(_FOLDS)]
        labels = np.concatenate([y[training[folds == f]] for f in range(_FOLDS)])
        for probs, *fold_probs in zip(predictions(training, test), *parts, strict=True):
            yield np.concatenate(fold_probs), labels, probs, y[test]

    return {"held out": held_out(), "cross-validated": cross_validated()}


def _epochs(x: np.ndarray, y: np.ndarray, new: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """Yield probabilities (m, 10) of new rows after each checkpoint."""
    from sklearn.neural_network import MLPClassifier

    make: Any = MLPClassifier
    model = make((_HIDDEN,), batch_size=_BATCH, random_state=seed)
    for epoch in range(1, CHECKPOINTS[-1] + 1):
        model.partial_fit(x, y, classes=range(10))
        if epoch in CHECKPOINTS:
            yield model.predict_proba(new)
