"""Files of every format that the library writes, as version 0.1.0 wrote them.

For each case, ``FOLDER`` has the saved file and a JSON file with inputs and predictions. Both are
kept forever, since every later version must read the files. Checkpoints of interrupted fits and
stores of sweeps are left out, because they only cache results of one version of the code.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, ClassifierMixin

import bayescal as bc
from bayescal.calibrators.catalog import METHODS

FOLDER = Path(__file__).parent / "files"
SUFFIX = ".safetensors"
#: Classes that are not saved on their own, with the reason.
WITHOUT_FILE = {"Calibrator": "an abstract class", "Report": "a part of fitted calibrators"}

Array = np.ndarray


class Scores(ClassifierMixin, BaseEstimator):
    """A classifier whose features are the probabilities of three classes."""

    def fit(self, X: Array, y: Array) -> Scores:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Array) -> Array:
        return np.asarray(X, float)


def binary(n: int = 60) -> tuple[Array, Array]:
    """Return probabilities (n,) and labels."""
    rng = np.random.default_rng(0)
    p = rng.beta(0.9, 0.9, n).round(3).clip(0.002, 0.998)
    return p, np.where(rng.random(n) < p**1.6, "yes", "no")


def three(n: int = 60) -> tuple[Array, Array]:
    """Return probabilities (n, 3) and labels."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(n, 3)) * 2
    return softmax(z, axis=1), np.argmax(0.5 * z + rng.gumbel(size=z.shape), axis=1)


NEW = np.linspace(0.01, 0.97, 7)
NEW_THREE = softmax(np.random.default_rng(2).normal(size=(6, 3)) * 2, axis=1)
#: Draws of parameters are stored in the files.
DRAWS: dict[str, Any] = {"inference": "laplace", "num_samples": 16, "random_state": 0}

#: Creates a fitted estimator and the arguments of its ``predict_proba``.
Make = Callable[[], tuple[Any, list[Any], dict[str, Any]]]


def _fit(unfitted: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    """Fit to binary scores, or to scores of three classes if the estimator needs them."""
    is_binary = getattr(unfitted, "binary", False)
    scores, y = binary() if is_binary else three()
    return unfitted.fit(scores, y), [NEW if is_binary else NEW_THREE], {}


def _fit_default(name: str) -> tuple[Any, list[Any], dict[str, Any]]:
    cls: Any = getattr(bc, name)
    seeded = "random_state" in cls._get_param_names()
    return _fit(cls(random_state=0) if seeded else cls())


def _fit_binary(unfitted: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    return unfitted.fit(*binary()), [NEW], {}


def _fit_top_logits() -> tuple[Any, list[Any], dict[str, Any]]:
    rng = np.random.default_rng(3)
    z = 2 * rng.normal(size=(60, 6))
    order = np.argsort(-z, axis=1)
    ordered = np.take_along_axis(z, order, axis=1)
    rows = order[:, :3], ordered[:, :3], np.asarray(logsumexp(ordered[:, 3:], axis=1))
    y = np.argmax(z / 2 + rng.gumbel(size=z.shape), axis=1)
    fitted = bc.Temperature(inputs="top_logits", classes=6).fit(rows, y)
    return fitted, [tuple(part[:4] for part in rows)], {}


def _fit_regression(**options: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    p, y = binary()
    X, new = np.stack([p, p**2], axis=1), np.stack([NEW, NEW**2], axis=1)
    return bc.LogisticRegression(**options).fit(X, y), [new], {}


def _fit_classifier() -> tuple[Any, list[Any], dict[str, Any]]:
    model = bc.CalibratedClassifier(Scores(), bc.Vector(), cv=3)
    return model.fit(*three()), [NEW_THREE], {}


def _fit_multi_label() -> tuple[Any, list[Any], dict[str, Any]]:
    rng = np.random.default_rng(4)
    scores = rng.beta(0.8, 1.5, (60, 3))
    present = (rng.random((60, 3)) < scores ** [0.5, 1.2, 2]).astype(int)
    return bc.MultiLabel(bc.Beta()).fit(scores, present), [scores[:5]], {}


def _fit_multicalibration() -> tuple[Any, list[Any], dict[str, Any]]:
    p, y = binary(120)
    groups = np.random.default_rng(5).random((120, 2)) < 0.5
    fitted = bc.Multicalibration(4).fit(p, y, groups)
    return fitted, [NEW, groups[: len(NEW)]], {}


def _fit_pooling() -> tuple[Any, list[Any], dict[str, Any]]:
    p, y = binary(120)
    groups = np.array(["a", "b", "c"])[np.random.default_rng(6).integers(0, 3, 120)]
    fitted = bc.PartialPooling().fit(p, y, groups=groups)
    return fitted, [NEW], {"groups": groups[: len(NEW)].tolist()}


def _fit_shift() -> tuple[Any, list[Any], dict[str, Any]]:
    p, y = binary(120)
    calibrator = bc.Logistic().fit(p, y)
    return bc.PriorShift(calibrator).fit(p[y == "yes"]), [NEW], {}


#: Estimators that :func:`bayescal.save` writes.
SAVED: dict[str, Make] = {
    **{name: partial(_fit_default, name) for name in METHODS},
    "StackedScaling-kernel": lambda: (bc.StackedScaling().fit(*three(320)), [NEW_THREE], {}),
    "Auto-binary": lambda: _fit_binary(bc.Auto()),
    "Beta-laplace": lambda: _fit_binary(bc.Beta(**DRAWS)),
    "Spline-laplace": lambda: _fit_binary(bc.Spline(**DRAWS)),
    "Temperature-laplace": lambda: _fit(bc.Temperature(**DRAWS)),
    "Vector-laplace": lambda: _fit(bc.Vector(**DRAWS)),
    "Temperature-top_logits": _fit_top_logits,
    "Average": lambda: _fit(bc.Average([bc.Temperature(), bc.OneVsRest(bc.Beta())])),
    "Composition": lambda: _fit(bc.compose(bc.Temperature(), bc.OneVsRest(bc.Isotonic()))),
    "CalibratedClassifier": _fit_classifier,
    "LogisticRegression": _fit_regression,
    "LogisticRegression-laplace": partial(_fit_regression, coef_prior="cauchy", **DRAWS),
    "MultiLabel": _fit_multi_label,
    "Multicalibration": _fit_multicalibration,
    "PartialPooling": _fit_pooling,
    "PriorShift": _fit_shift,
}


def load(name: str) -> Any:
    """Load a saved estimator."""
    classifiers = [Scores().fit(*three())] if name == "CalibratedClassifier" else None
    return bc.load(FOLDER / f"{name}{SUFFIX}", estimators=classifiers)


def predictions(fitted: Any, scores: list[Any], groups: dict[str, Any]) -> dict[str, Any]:
    """Compute what a file must predict: probabilities, and intervals if it has draws."""
    probs = fitted.predict_proba(*scores, **groups)
    result = dict(zip(probs._fields, probs, strict=True)) if hasattr(probs, "_fields") else {}
    result = result or {"probs": probs}
    if "theta_draws" in getattr(fitted, "state_", {}):
        result["lower"], result["upper"] = fitted.predict_interval(*scores)
    return {key: np.asarray(value, float).tolist() for key, value in result.items()}


def write_saved(name: str) -> None:
    """Fit, save and record the predictions of one case."""
    fitted, scores, groups = SAVED[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the classifier is not in the file
        bc.save(fitted, FOLDER / f"{name}{SUFFIX}")
    record(name, scores=scores, groups=groups, expected=predictions(fitted, scores, groups))


def write_monitor() -> None:
    """Save a monitor halfway, and record what it shows after the second half."""
    p, labels = binary(80)
    y = (labels == "yes").astype(int)
    monitor = bc.Monitor(0.1).update(p[:40], y[:40])
    monitor.save(FOLDER / "Monitor.monitor.json")
    rest = {"probs": p[40:].tolist(), "y": y[40:].tolist()}
    record("Monitor", rest=rest, expected=continued(monitor, rest))


def continued(monitor: bc.Monitor, rest: dict[str, Any]) -> dict[str, Any]:
    """Continue a monitor, and return its evidence after each row with the interval."""
    monitor.update(rest["probs"], rest["y"])
    lower, upper = monitor.offset_interval()
    return {
        "course": np.asarray(monitor.course_[1], float).tolist(),
        "interval": [float(lower), float(upper)],
    }


def record(name: str, **content: Any) -> None:
    """Write inputs and predictions."""
    text = json.dumps(content, default=lambda value: np.asarray(value).tolist())
    (FOLDER / f"{name}.json").write_text(f"{text}\n", "utf-8")


def recorded(name: str) -> dict[str, Any]:
    """Read inputs and predictions."""
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


#: The function that writes each case.
WRITERS: dict[str, Callable[[], None]] = {
    **{name: partial(write_saved, name) for name in SAVED},
    "Monitor": write_monitor,
}
