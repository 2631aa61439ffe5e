"""Calibrators of several classes by name, alone and after temperature scaling, and their runs."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from inspect import isabstract
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import bayescal as bc
from benchmarks.studies.data import choose

Inputs = Literal["probs", "logits"]


def registered() -> dict[str, type[bc.Calibrator]]:
    """Return all calibrators of several classes, by the names of their classes in snake case."""
    every = [getattr(bc, name) for name in bc.__all__]
    able = [own for own in every if isinstance(own, type) and issubclass(own, bc.Calibrator)]
    return {
        re.sub("(?<=[a-z])(?=[A-Z])", "_", own.__name__).lower(): own
        for own in able
        if not own.binary and not isabstract(own)
    }


#: From best to worst.
_STATUSES = ("converged", "limit", "unbounded", "invalid")
SECONDS = ("fit_seconds", "predict_seconds")
#: The name of what is done without any calibration.
NONE = "uncalibrated"
_AFTER = "temperature+"
#: Variants beside the default options.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "temperature_ece": ("temperature", {"objective": "adaptive_ece"}),
    "matrix_odir": ("matrix", {"off_diagonal": "cv", "intercept": "cv"}),
    "dirichlet_odir": ("dirichlet", {"off_diagonal": "cv", "intercept": "cv"}),
    "isotonic": ("one_vs_rest", {"calibrator": bc.Isotonic()}),
    "weight_scaling_bins": ("weight_scaling", {"bins": 13}),
    "weight_scaling_width": ("weight_scaling", {"bins": 13, "binning": "equal_width"}),
    "binwise_confidence": ("binwise_temperature", {"objective": "confidence"}),
    "order_preserving_full": ("order_preserving", {"family": "full"}),
    "decision_cv": ("decision", {"steps": "cv"}),
    "knn_euclidean": ("knn", {"distance": "euclidean"}),
    "knn_128": ("knn", {"k": 128, "crop": 5e-6}),
    "forest_256": ("forest", {"bins": 256}),
    "kernel_density": ("kernel", {"kernel": "dirichlet"}),
    "kernel_rbf": ("kernel", {"kernel": "rbf"}),
}
#: The fixed options of the published experiment with a known truth, where ours are chosen by
#: cross-validation: K. Valk (2022), section 4.2.2. For that experiment only.
FIXED: dict[str, tuple[str, dict[str, Any]]] = {
    "order_preserving_fixed": ("order_preserving", {"family": "full", "hidden": (40, 40)}),
    "knn_fixed": ("knn", {"distance": "euclidean", "k": 512}),
    "forest_fixed": ("forest", {"bins": 32, "trees": 100}),
    "kernel_fixed": ("kernel", {"bandwidth": 0.1}),
}
#: Names of the calibrators that are run after temperature scaling too, with their variants.
COMPOSED = ("decision", "forest", "knn", "kernel")
#: They come first, in this order.
_FIRST = (
    "temperature",
    "ensemble_temperature",
    "vector",
    "matrix",
    "dirichlet",
    "structured_vector",
    "structured_matrix",
    "one_vs_rest",
    "weight_scaling",
    "binwise_temperature",
)
#: What each is called where it was published.
ABBREVIATIONS = {
    "temperature": "TS",
    "temperature_ece": "TS, ECE",
    "ensemble_temperature": "ETS",
    "vector": "VS",
    "matrix_odir": "MS-ODIR",
    "dirichlet_odir": "DIR-ODIR",
    "structured_vector": "SVS",
    "structured_matrix": "SMS",
    "weight_scaling": "WS",
    "weight_scaling_bins": "CWS",
    "weight_scaling_width": "ECWS",
    "binwise_temperature": "BTS",
    "binwise_confidence": "CTS",
    "order_preserving": "IOP",
    "temperature+decision": "DEC",
    "temperature+decision_cv": "DEC",
}


class Method(NamedTuple):
    """A calibrator, the second step if temperature scaling precedes it."""

    name: str
    calibrator: bc.Calibrator | None
    after_temperature: bool = False

    @property
    def random(self) -> bool:
        """Whether the result may depend on the seed."""
        options = {} if self.calibrator is None else self.calibrator.get_params()
        return "random_state" in options and "inference" not in options

    def seeds(self, count: int) -> range:
        """Return the seeds to run it with: the first alone if they make no difference."""
        return range(count if self.random else 1)

    def question(self) -> str:
        """Return all options as text."""
        return f"{_AFTER if self.after_temperature else ''}{self.calibrator!r}"


#: What is said of a fit beside its metrics.
FACTS = ("status", *SECONDS)


class Outcome(NamedTuple):
    """Probabilities of the test rows (m, k), the status of the fit, and seconds."""

    probs: np.ndarray
    status: str
    fit_seconds: float
    predict_seconds: float

    def facts(self) -> dict[str, Any]:
        """Return all but the probabilities."""
        seconds = {key: round(getattr(self, key), 4) for key in SECONDS}
        return {"status": self.status, **seconds}


def find_methods(
    names: Sequence[str] | None = None, fixed: bool = False
) -> tuple[list[Method], list[str]]:
    """Return methods in their own order, by default all; and the names of those not there.

    With ``fixed`` those of ``FIXED`` are among them.
    """
    found, missing = _all_methods(fixed)
    return [found[name] for name in choose(names, found, "map")], missing


def _all_methods(fixed: bool) -> tuple[dict[str, Method], list[str]]:
    classes = registered()
    variants = VARIANTS | FIXED if fixed else VARIANTS
    made: dict[str, bc.Calibrator] = {}
    first = [name for name in _FIRST if name in classes]
    for base in dict.fromkeys([*first, *classes]):
        made[base] = classes[base]()
        for name, (own, options) in variants.items():
            if own == base:
                made[name] = classes[base](**options)
    found = [Method(NONE, None), *(Method(name, each) for name, each in made.items())]
    composed = tuple(classes[name] for name in COMPOSED if name in classes)
    found += [
        Method(_AFTER + name, each, True)
        for name, each in made.items()
        if isinstance(each, composed) and name not in FIXED
    ]
    missing = [name for name, (base, _) in variants.items() if base not in classes]
    return {method.name: method for method in found}, missing


def run_method(
    method: Method,
    scores: np.ndarray,
    y: np.ndarray,
    test: np.ndarray,
    inputs: Inputs,
    seed: int,
) -> Outcome:
    """Fit a method to scores (n, k) and labels (n,), and predict the test rows (m, k)."""
    steps = [bc.Temperature()] if method.after_temperature else []
    steps += [] if method.calibrator is None else [method.calibrator]
    fitted, worst, rows = [], "converged", scores
    start = time.perf_counter()
    for place, step in enumerate(steps):
        own = clone(step).set_params(
            inputs="probs" if place else inputs, classes=range(scores.shape[1])
        )
        if "random_state" in own.get_params():
            own.set_params(random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted.append(own.fit(rows, y))
        worst = max(worst, own.status_, key=_STATUSES.index)
        if place + 1 < len(steps):
            rows = own.predict_proba(rows)
    middle = time.perf_counter()
    probs = test
    for own in fitted:
        probs = own.predict_proba(probs)
    if not fitted and inputs == "logits":
        probs = softmax(test.astype(float), axis=1)
    probs = np.asarray(probs, float)
    return Outcome(probs, worst, middle - start, time.perf_counter() - middle)


def over_runs(answers: Sequence[dict[str, Any]], metrics: Sequence[str]) -> dict[str, Any]:
    """Return means over seeds or data sets, how far metrics spread, and the worst status."""
    values = {key: [answer[key] for answer in answers] for key in (*metrics, *SECONDS)}
    found: dict[str, Any] = {key: float(np.mean(some)) for key, some in values.items()}
    found["status"] = max((answer["status"] for answer in answers), key=_STATUSES.index)
    if len(answers) > 1:
        found["spread"] = {key: [min(values[key]), max(values[key])] for key in metrics}
    return found
