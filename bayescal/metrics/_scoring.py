"""What scikit-learn calls to score an estimator; imported when a scorer is made."""

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

__all__ = ["Scorer", "make"]

_OWN = ("probs", "y", "weights", "classes", "inputs", "outcomes")


class Scorer(BaseEstimator):
    """A metric by which estimators are compared; made by :func:`bayescal.metrics.scorer`.

    An estimator only in that scikit-learn routes weights to its ``score``.
    """

    # Not something to be asked of the user of routing.
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
        if entry.shapes == ("multilabel",):
            if isinstance(probs, list):  # scikit-learn's, (n, 2) for each label
                probs = np.stack([own[:, 1] for own in probs], axis=1)
        else:
            probs, options["classes"] = self._judged(probs, np.asarray(estimator.classes_))
        found: Any = entry.function(probs, y, weights=sample_weight, **options)
        if entry.best == "high":
            return found
        return -abs(found) if entry.signed else -found

    def __call__(
        self, estimator: AnyModel, X: object, y: XArray, sample_weight: UserData = None
    ) -> float:
        return self.score(estimator, X, y, sample_weight)

    def _judged(self, probs: XArray, classes: np.ndarray) -> tuple[XArray, list[Hashable]]:
        """Return probabilities, and the classes in their order; of two the positive one last."""
        labels = label_list(classes)
        if self.pos_label is None:
            return (probs[:, 1] if len(labels) == 2 else probs), labels
        if len(labels) != 2 or self.pos_label not in labels:
            raise ValueError(
                f"pos_label must be one of two classes, got {self.pos_label!r} for {labels}"
            )
        place = labels.index(self.pos_label)
        return probs[:, place], [labels[1 - place], labels[place]]


def make(name: str, pos_label: object, options: Mapping[str, object]) -> Scorer:
    """Check the name and the options, and return the scorer."""
    known = {key: entry for key, entry in METRICS.items() if entry.labels}
    own = name.removeprefix("neg_")
    if own in OTHER_NAMES:
        metric, options = find_metric(own, options)
        name, own = name.replace(own, metric), metric
    if own not in known or (own != name and known[own].best == "high"):
        names = ", ".join(key if e.best == "high" else f"neg_{key}" for key, e in known.items())
        raise ValueError(f"name must be one of {names}, got {name!r}")
    allowed = [key for key in inspect.signature(known[own].function).parameters if key not in _OWN]
    for key in options:
        if key not in allowed:
            raise TypeError(f"options of {own} must be of {', '.join(allowed)}, got {key!r}")
    return Scorer(own, pos_label, options)
