"""Calibrators by the names of their classes."""

from __future__ import annotations

import re
import sys
from difflib import get_close_matches

from bayescal._core.arrays import AnyModel
from bayescal.calibrators.catalog import METHODS
from bayescal.calibrators.combine.one_vs_rest import OneVsRest

#: Platt scaling with Platt's targets, by scikit-learn's name and by the name of its author.
_PLATT = ("Logistic", {"smoothing": "platt"})
_ALIASES = {"sigmoid": _PLATT, "platt": _PLATT}
_PEERS = "isotonic", "sigmoid", "platt", "temperature"


def make_calibrator(name: str, *, argument: str = "calibrator", **options: object) -> AnyModel:
    """Make an unfitted calibrator from the name of its class, with ``options``.

    The name may be in any case, with or without underscores: "Beta", "venn_abers", "vennabers".
    "sigmoid" and "platt" are ``Logistic(smoothing="platt")``. An error about an unknown name calls
    it by ``argument``, and lists the known ones.

    Examples
    --------
    >>> from bayescal.calibrators.names import make_calibrator
    >>> make_calibrator("structured_vector", inputs="logits")
    StructuredVector(inputs='logits')
    """
    key = _normalized(name)
    known = {_normalized(method): (method, {}) for method in METHODS} | _ALIASES
    if key not in known:
        similar = get_close_matches(key, known, 1)
        hint = f"; did you mean {similar[0]!r}?" if similar else ""
        raise ValueError(
            f"{argument} must be one of {', '.join([*METHODS, *_ALIASES])}, got {name!r}{hint}"
        )
    method, defaults = known[key]
    cls = getattr(sys.modules[__name__.rpartition(".")[0]], method)
    return cls(**{**defaults, **options})


def make_for(name: str, estimator: AnyModel, k: int) -> AnyModel:
    """Make a calibrator by name for the scores of a classifier of k classes.

    It takes probabilities, or the decision function if the classifier has no probabilities: as raw
    scores for two classes if the calibrator supports them, otherwise as logits. The methods that
    scikit-learn has ("isotonic", "sigmoid" or "platt", and "temperature") take the decision
    function if there is one, as in scikit-learn. Binary calibrators calibrate each of several
    classes against the rest.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from bayescal.calibrators.names import make_for
    >>> make_for("isotonic", LinearSVC(), 2)
    Isotonic(inputs='scores')
    >>> make_for("isotonic", LinearSVC(), 3)
    OneVsRest(calibrator=Isotonic(), inputs='logits')
    """
    calibrator = make_calibrator(name)
    decides = hasattr(estimator, "decision_function")
    if not decides or (hasattr(estimator, "predict_proba") and _normalized(name) not in _PEERS):
        inputs = "probs"
    else:
        raw = getattr(calibrator, "domain", "real") in ("real", "order")
        inputs = "scores" if k == 2 and raw else "logits"
    if k > 2 and getattr(calibrator, "binary", False):
        calibrator = OneVsRest(calibrator)
    return calibrator.set_params(inputs=inputs)


def _normalized(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()
