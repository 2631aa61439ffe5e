"""Maps of several classes by name, alone and after temperature scaling, and how they are run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.optimise import Status
from bayescal.maps import Isotonic
from bayescal.maps.multiclass import MULTICLASS, MulticlassMap, Temperature
from bayescal.maps.multiclass._inputs import Inputs, convert, least_probabilities
from benchmarks.studies.data import choose

SECONDS = ("fit_seconds", "predict_seconds")
#: The name of what is done without any calibration.
NONE = "uncalibrated"
_AFTER = "temperature+"
#: Variants beside the default options of each map: name in the registry, and options.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "temperature_ece": ("temperature", {"objective": "adaptive_ece"}),
    "matrix_odir": ("matrix", {"off_diagonal": "cv", "intercept": "cv"}),
    "dirichlet_odir": ("dirichlet", {"off_diagonal": "cv", "intercept": "cv"}),
    "isotonic": ("one_vs_rest", {"binary": Isotonic()}),
    "weight_scaling_bins": ("weight_scaling", {"bins": 13}),
    "weight_scaling_width": ("weight_scaling", {"bins": 13, "binning": "equal_width"}),
    "binwise_confidence": ("binwise_temperature", {"objective": "confidence"}),
    "order_preserving_full": ("order_preserving", {"family": "full"}),
    "decision_cv": ("decision", {"steps": "cv"}),
    "knn_euclidean": ("knn", {"distance": "euclidean"}),
    "kernel_density": ("kernel", {"kernel": "dirichlet"}),
    "kernel_rbf": ("kernel", {"kernel": "rbf"}),
}
#: Registered names of the maps that are run after temperature scaling too, with their variants.
COMPOSED = ("decision", "forest", "knn", "kernel")
#: Maps that need no random numbers unless an option is "cv"; of others this is not known. They come
#: first, in this order.
_DETERMINISTIC = (
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
    """A calibration map, the first step if temperature scaling precedes it."""

    name: str
    calibration: MulticlassMap | None
    after_temperature: bool = False

    @property
    def random(self) -> bool:
        """Whether the result may depend on the seed."""
        if self.calibration is None:
            return False
        options = (getattr(self.calibration, f.name) for f in fields(self.calibration))  # type: ignore[arg-type]
        return self.calibration.name not in _DETERMINISTIC or any(
            isinstance(value, str) and value == "cv" for value in options
        )

    def seeds(self, count: int) -> range:
        """Return the seeds to run it with: the first alone if they make no difference."""
        return range(count if self.random else 1)

    def question(self) -> str:
        """Return all options as text."""
        return f"{_AFTER if self.after_temperature else ''}{self.calibration!r}"


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


def find_methods(names: Sequence[str] | None = None) -> tuple[list[Method], list[str]]:
    """Return methods in their own order, by default all; and the names of those not registered."""
    found, missing = _all_methods()
    return [found[name] for name in choose(names, found, "map")], missing


def _all_methods() -> tuple[dict[str, Method], list[str]]:
    maps: dict[str, MulticlassMap] = {}
    first = [name for name in _DETERMINISTIC if name in MULTICLASS]
    for registered in dict.fromkeys([*first, *MULTICLASS]):
        kind = MULTICLASS[registered]
        maps[registered] = kind()
        for name, (base, options) in VARIANTS.items():
            if base == registered:
                maps[name] = kind(**options)
    found = [Method(NONE, None), *(Method(name, each) for name, each in maps.items())]
    found += [
        Method(_AFTER + name, each, True) for name, each in maps.items() if each.name in COMPOSED
    ]
    missing = [name for name, (base, _) in VARIANTS.items() if base not in MULTICLASS]
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
    start = time.perf_counter()
    steps: list[MulticlassMap] = [Temperature()] if method.after_temperature else []
    steps += [] if method.calibration is None else [method.calibration]
    fitted: list[Callable[[np.ndarray], np.ndarray]] = []
    rows, kind, worst = scores, inputs, 0
    for place, step in enumerate(steps):
        predict, status = _fit(step, rows, y, kind, seed)
        worst = max(worst, status)
        fitted.append(predict)
        if place + 1 < len(steps):
            rows, kind = predict(rows), "probs"
    middle = time.perf_counter()
    probs = test if fitted else convert(test, inputs, "probability")
    for predict in fitted:
        probs = predict(probs)
    return Outcome(
        np.asarray(probs, float),
        Status(worst).name.lower(),
        middle - start,
        time.perf_counter() - middle,
    )


def _fit(
    step: MulticlassMap, scores: np.ndarray, y: np.ndarray, inputs: Inputs, seed: int
) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    """Return the fitted function of scores, and the code of its status."""
    logarithms = inputs == "probs" and step.domain != "probability"
    least = least_probabilities(scores) if logarithms else None
    state = step.fit(convert(scores, inputs, step.domain, least), y, np.ones(len(y)), seed)

    def predict(rows: np.ndarray) -> np.ndarray:
        return step.apply(state, convert(rows, inputs, step.domain, least))

    return predict, int(state.get("status", Status.CONVERGED))


def over_runs(answers: Sequence[dict[str, Any]], metrics: Sequence[str]) -> dict[str, Any]:
    """Return means over seeds or data sets, how far metrics spread, and the worst status."""
    values = {key: [answer[key] for answer in answers] for key in (*metrics, *SECONDS)}
    found: dict[str, Any] = {key: float(np.mean(some)) for key, some in values.items()}
    found["status"] = max(
        (answer["status"] for answer in answers), key=lambda name: Status[name.upper()]
    )
    if len(answers) > 1:
        found["spread"] = {key: [min(values[key]), max(values[key])] for key in metrics}
    return found
