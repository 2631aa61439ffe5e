"""Multi-class calibrators by name, alone and after temperature scaling, and how to run them."""

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
    """Find all multi-class calibrators, by the snake-case names of their Python classes."""
    exported = [getattr(bc, name) for name in bc.__all__]
    calibrators = [
        calibrator
        for calibrator in exported
        if isinstance(calibrator, type) and issubclass(calibrator, bc.Calibrator)
    ]
    return {
        re.sub("(?<=[a-z])(?=[A-Z])", "_", calibrator.__name__).lower(): calibrator
        for calibrator in calibrators
        if not calibrator.binary and not isabstract(calibrator)
    }


#: Statuses of a fit, from best to worst.
_STATUSES = ("converged", "limit", "unbounded", "invalid")
SECONDS = ("fit_seconds", "predict_seconds")
#: Name of the method without any calibration.
NONE = "uncalibrated"
_AFTER = "temperature+"
#: Calibrators with other than default options: name of the base and its options.
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
#: Fixed options of the published experiment with a known truth (K. Valk, 2022, section 4.2.2), for
#: that experiment only. Our defaults are chosen by cross-validation instead.
FIXED: dict[str, tuple[str, dict[str, Any]]] = {
    "order_preserving_fixed": ("order_preserving", {"family": "full", "hidden": (40, 40)}),
    "knn_fixed": ("knn", {"distance": "euclidean", "k": 512}),
    "forest_fixed": ("forest", {"bins": 32, "trees": 100}),
    "kernel_fixed": ("kernel", {"bandwidth": 0.1}),
}
#: Calibrators that are also run after temperature scaling, as are their variants.
COMPOSED = ("decision", "forest", "knn", "kernel")
#: The first calibrators, in this order; all others follow.
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
#: Published abbreviations of the calibrators.
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
    """A calibrator, optionally applied after temperature scaling."""

    name: str
    calibrator: bc.Calibrator | None
    after_temperature: bool = False

    @property
    def random(self) -> bool:
        """Whether the result may depend on the seed."""
        options = {} if self.calibrator is None else self.calibrator.get_params()
        return "random_state" in options and "inference" not in options

    def seeds(self, count: int) -> range:
        """Return the seeds to run the method with: only the first if it is not random."""
        return range(count if self.random else 1)

    def question(self) -> str:
        """Return all options as text."""
        return f"{_AFTER if self.after_temperature else ''}{self.calibrator!r}"


#: Facts on a fit that are reported in addition to its metrics.
FACTS = ("status", *SECONDS)


class Outcome(NamedTuple):
    """Probabilities of the test rows (m, k), the status of the fit, and seconds."""

    probs: np.ndarray
    status: str
    fit_seconds: float
    predict_seconds: float

    def facts(self) -> dict[str, Any]:
        """Return the status and the rounded seconds."""
        seconds = {key: round(getattr(self, key), 4) for key in SECONDS}
        return {"status": self.status, **seconds}


def find_methods(
    names: Sequence[str] | None = None, fixed: bool = False
) -> tuple[list[Method], list[str]]:
    """Find methods by name, by default all; also list variants whose base is not registered.

    Methods have a fixed order. ``fixed`` includes the variants in ``FIXED``.
    """
    known, missing = _all_methods(fixed)
    return [known[name] for name in choose(names, known, "map")], missing


def _all_methods(fixed: bool) -> tuple[dict[str, Method], list[str]]:
    """Build all methods by name, and list variants whose base is not registered."""
    classes = registered()
    variants = VARIANTS | FIXED if fixed else VARIANTS
    calibrators: dict[str, bc.Calibrator] = {}
    leading = [name for name in _FIRST if name in classes]
    for base in dict.fromkeys([*leading, *classes]):
        calibrators[base] = classes[base]()
        for name, (variant_base, options) in variants.items():
            if variant_base == base:
                calibrators[name] = classes[base](**options)
    methods = [
        Method(NONE, None),
        *(Method(name, calibrator) for name, calibrator in calibrators.items()),
    ]
    composed = tuple(classes[name] for name in COMPOSED if name in classes)
    methods += [
        Method(_AFTER + name, calibrator, True)
        for name, calibrator in calibrators.items()
        if isinstance(calibrator, composed) and name not in FIXED
    ]
    missing = [name for name, (base, _) in variants.items() if base not in classes]
    return {method.name: method for method in methods}, missing


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
    fitted, status, rows = [], "converged", scores
    start = time.perf_counter()
    for position, step in enumerate(steps):
        model = clone(step).set_params(
            inputs="probs" if position else inputs, classes=range(scores.shape[1])
        )
        if "random_state" in model.get_params():
            model.set_params(random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted.append(model.fit(rows, y))
        status = max(status, model.status_, key=_STATUSES.index)
        if position + 1 < len(steps):
            rows = model.predict_proba(rows)
    middle = time.perf_counter()
    probs = test
    for model in fitted:
        probs = model.predict_proba(probs)
    if not fitted and inputs == "logits":
        probs = softmax(test.astype(float), axis=1)
    probs = np.asarray(probs, float)
    return Outcome(probs, status, middle - start, time.perf_counter() - middle)


def over_runs(answers: Sequence[dict[str, Any]], metrics: Sequence[str]) -> dict[str, Any]:
    """Combine runs with several seeds or data sets: means, ranges of metrics, worst status."""
    values = {key: [answer[key] for answer in answers] for key in (*metrics, *SECONDS)}
    result: dict[str, Any] = {key: float(np.mean(runs)) for key, runs in values.items()}
    result["status"] = max((answer["status"] for answer in answers), key=_STATUSES.index)
    if len(answers) > 1:
        result["spread"] = {key: [min(values[key]), max(values[key])] for key in metrics}
    return result
