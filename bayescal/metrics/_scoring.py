"""Scorers that scikit-learn can call; imported when a scorer is made."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED

from bayescal._core.arrays import AnyModel, UserData, XArray
from bayescal.data.label_names import label_list
from bayescal.metrics.registry import METRICS, OTHER_NAMES, find_metric
from bayescal.metrics.scores.ranking import RANKINGS

_RESERVED = ("probs", "y", "weights", "classes", "inputs", "outcomes")


class Scorer(BaseEstimator):
    """A scorer of estimators by a metric; made by :func:`bayescal.metrics.scorer`.

    It is an estimator only so that scikit-learn routes weights to ``score``.
    """

    # Users of metadata routing need not request the estimator.
    __metadata_request__score: ClassVar = {"estimator": UNUSED}

    def __init__(
        self, name: str, pos_label: object = None, options: Mapping[str, object] | None = None
    ) -> None:
        self.name = name
        self.pos_label = pos_label
        self.options = options

    def score(
        self, estimator: AnyModel, X: UserData, y: XArray, sample_weight: UserData = None
    ) -> float:
        """Return the score of a fitted estimator's probabilities, larger for better ones."""
        entry, options = METRICS[self.name], dict(self.options or {})
        probs = estimator.predict_proba(X)
        if entry.multilabel:
            if isinstance(probs, list):  # scikit-learn's, (n, 2) for each label
                probs = np.stack([label_probs[:, 1] for label_probs in probs], axis=1)
        else:
            probs, options["classes"] = self._select_probs(probs, np.asarray(estimator.classes_))
        value: Any = entry.function(probs, y, weights=sample_weight, **options)
        if entry.best == "high":
            return value
        return -abs(value) if entry.signed else -value

    def __call__(
        self, estimator: AnyModel, X: object, y: XArray, sample_weight: UserData = None
    ) -> float:
        return self.score(estimator, X, y, sample_weight)

    def _select_probs(self, probs: XArray, classes: np.ndarray) -> tuple[XArray, list[Hashable]]:
        """Return probabilities and classes in the order of columns, the positive of two last."""
        labels = label_list(classes)
        if self.pos_label is None:
            return probs, labels
        if len(labels) != 2 or self.pos_label not in labels:
            raise ValueError(
                f"pos_label must be one of two classes, got {self.pos_label!r} for {labels}"
            )
        index = labels.index(self.pos_label)
        order = [1 - index, index]
        return probs[:, order], [labels[column] for column in order]


def make(name: str, pos_label: object, options: Mapping[str, object]) -> Scorer:
    """Check the name and the options, and return the scorer."""
    if not isinstance(name, str):
        raise TypeError(
            f"name must be the name of a metric, such as 'log_loss', got {type(name).__name__}"
        )
    entries = {key: entry for key, entry in METRICS.items() if entry.labels}
    base = name.removeprefix("neg_")
    if base in OTHER_NAMES:
        metric, options = find_metric(base, options)
        name, base = name.replace(base, metric), metric
    if base in RANKINGS:
        raise ValueError(
            f"name must not be that of a ranking score, got {name!r}; "
            f"scikit-learn has the scorer {base!r}"
        )
    if base not in entries or (base != name and entries[base].best == "high"):
        names = ", ".join(key if e.best == "high" else f"neg_{key}" for key, e in entries.items())
        raise ValueError(f"name must be one of {names}, got {name!r}")
    allowed = [
        key for key in inspect.signature(entries[base].function).parameters if key not in _RESERVED
    ]
    for key in options:
        if key not in allowed:
            raise TypeError(f"options of {base} must be of {', '.join(allowed)}, got {key!r}")
    return Scorer(base, pos_label, options)
