"""Small networks trained on noisy digits, with their predictions epoch by epoch.

In the place of a convolutional network on CIFAR-10: ten classes of images, noise such that as many
are wrong, a fifth of the training rows to calibrate or five folds, as published.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

#: Epochs after which predictions are made; rows to train on, those that calibrate among them.
CHECKPOINTS = tuple(range(20, 201, 20))
ROWS = {"train": 1200, "test": 597}
_FOLDS, _NOISE, _HIDDEN, _BATCH = 5, 0.2, 64, 50
#: Predictions (n, k) and labels (n,) to calibrate on, and the same to test on.
Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def train(seed: int) -> dict[str, Iterator[Step]]:
    """Return by scheme what is known after each checkpoint.

    "held out": a network sees four fifths of the training rows and the last calibrates.
    "cross-validated": five networks predict the fifth that they have not seen; all these
    predictions calibrate a network that has seen all rows.
    """
    from sklearn.datasets import load_digits

    given: Any = load_digits(return_X_y=True)
    images, y = (np.asarray(part) for part in given)
    random = np.random.default_rng(seed)
    x = images / 16 + random.normal(0, _NOISE, images.shape)
    order = random.permutation(len(y))
    own, test = order[: ROWS["train"]], order[ROWS["train"] :][: ROWS["test"]]
    folds = np.arange(len(own)) % _FOLDS

    def predictions(rows: np.ndarray, new: np.ndarray) -> Iterator[np.ndarray]:
        return _epochs(x[rows], y[rows], x[new], seed)

    def held_out() -> Iterator[Step]:
        kept = own[folds == 0]
        for probs in predictions(own[folds > 0], np.concatenate([kept, test])):
            yield probs[: len(kept)], y[kept], probs[len(kept) :], y[test]

    def cross_validated() -> Iterator[Step]:
        parts = [predictions(own[folds != f], own[folds == f]) for f in range(_FOLDS)]
        labels = np.concatenate([y[own[folds == f]] for f in range(_FOLDS)])
        for probs, *others in zip(predictions(own, test), *parts, strict=True):
            yield np.concatenate(others), labels, probs, y[test]

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
