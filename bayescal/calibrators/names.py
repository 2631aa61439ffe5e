"""Calibrators by name, as users write them in a string."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from bayescal.calibrators.auto import Auto
from bayescal.calibrators.base.calibrator import Calibrator
from bayescal.calibrators.combine.one_vs_rest import OneVsRest

__all__ = ["calibrator_names", "make_calibrator", "make_for"]

#: What scikit-learn calls by another name: Platt's method, with his targets.
_ALIASES: dict[str, tuple[str, dict[str, Any]]] = {"sigmoid": ("Logistic", {"smoothing": "platt"})}
_PEERS = "isotonic", "sigmoid", "temperature"


def calibrator_names() -> list[str]:
    """Return the names of the classes of which :func:`make_calibrator` makes calibrators, sorted.

    Examples
    --------
    >>> from bayescal.calibrators.names import calibrator_names
    >>> "Beta" in calibrator_names()
    True
    """
    return sorted(_classes())


def make_calibrator(name: str, *, argument: str = "calibrator", **options: Any) -> Any:
    """Return a calibrator, not fitted, by the name of its class.

    Parameters
    ----------
    name : str
        In any case, with or without underscores: "Beta", "venn_abers", "vennabers". "sigmoid" is
        ``Logistic(smoothing="platt")``.
    argument : str
        What an error calls the name.
    **options
        Of the calibrator.

    Raises
    ------
    ValueError
        For other names; the message lists what there is.

    Examples
    --------
    >>> from bayescal.calibrators.names import make_calibrator
    >>> make_calibrator("structured_vector", inputs="logits")
    StructuredVector(inputs='logits')
    """
    classes, plain = _classes(), _plain(name)
    known = {_plain(own): (own, {}) for own in classes} | _ALIASES
    if plain not in known:
        raise ValueError(
            f"{argument} must be one of {', '.join([*sorted(classes), *_ALIASES])}, got {name!r}"
        )
    found, own = known[plain]
    return classes[found](**{**own, **options})


def make_for(name: str, estimator: Any, k: int) -> Any:
    """Return a calibrator by name for the scores of a classifier of k classes.

    It takes probabilities, or the decision function where there are none: as raw scores if it can,
    of two classes, or as logits. Those that scikit-learn has under the name, "isotonic", "sigmoid"
    and "temperature", take the decision function where there is one, as there. Calibrators of two
    classes calibrate each of more against the others.

    Parameters
    ----------
    name : str
        As of :func:`make_calibrator`.
    estimator : classifier
    k : int

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from bayescal.calibrators.names import make_for
    >>> make_for("isotonic", LinearSVC(), 2)
    Isotonic(inputs='scores')
    >>> make_for("isotonic", LinearSVC(), 3)
    OneVsRest(calibrator=Isotonic(), inputs='logits')
    """
    made = make_calibrator(name)
    decides = hasattr(estimator, "decision_function")
    if not decides or (hasattr(estimator, "predict_proba") and _plain(name) not in _PEERS):
        inputs = "probs"
    else:
        raw = getattr(made, "domain", "real") in ("real", "order")
        inputs = "scores" if k == 2 and raw else "logits"
    if k > 2 and getattr(made, "binary", False):
        made = OneVsRest(made)
    return made.set_params(inputs=inputs)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _classes() -> dict[str, Any]:
    """Return what the package exports, has been imported, and can be made by its name alone."""
    exported = vars(sys.modules[__name__.rpartition(".")[0]])
    kinds = {n: k for n, k in exported.items() if isinstance(k, type) and issubclass(k, Calibrator)}
    return {n: k for n, k in kinds.items() if not inspect.isabstract(k)} | {"Auto": Auto}
