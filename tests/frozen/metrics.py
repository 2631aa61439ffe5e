"""Frozen values, intervals, differences and tests of every metric."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax

import bayescal as bc
from bayescal import metrics
from tests.frozen.case import Case, Results
from tests.frozen.data import Array

KINDS = ("confidence", "classwise", "top_label", "top_k_confidence", "top_k_label")
BINNED = [
    {},
    {"bins": 4, "binning": "equal_width"},
    {"bins": 4, "binning": "equal_mass"},
    *({"kind": kind, "bins": 5} for kind in KINDS),
]
#: Options of metrics of probabilities and labels, for binary and multi-class data.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "accuracy": [{}],
    "brier_score": [{}],
    "canonical_ece": [{}, {"bins": 4}, {"distance": "euclidean"}],
    "canonical_kde_ece": [{}, {"bandwidth": 0.2}, {"distance": "euclidean"}],
    "corp": [{}, {"score": "log_loss", "eps": 1e-6}, {"kind": "confidence"}],
    "debiased_ece": [*BINNED, {"norm": 1}],
    "ece": [*BINNED, {"norm": 2}, {"norm": np.inf}],
    "ecce": [{}, {"kind": "range"}, *({"events": events} for events in KINDS)],
    "kde_ece": [{}, {"kind": "confidence"}, {"kernel": "gaussian"}, {"norm": 2}],
    "log_loss": [{"eps": 1e-6}],
    "loss_gap": [{}, {"functions": 20, "decisions": 3, "seed": 1}],
    "reliability_curve": [{}, {"bins": 5, "binning": "equal_mass"}, {"ties": "together"}],
    "skce": [
        {},
        {"estimator": "linear"},
        {"estimator": "biased"},
        {"kernel": "gaussian", "bandwidth": 0.3},
        {"distance": "euclidean"},
    ],
    "smooth_ece": [{}, {"kind": "confidence"}, {"bandwidth": 0.1}],
}
#: Metrics with other arguments, or that are not functions of predictions.
OTHERS = (
    "Accumulator",
    "average_precision",
    "best_threshold",
    "bootstrap",
    "consistency_test",
    "decision_cost",
    "difference",
    "ecce_test",
    "hamming_loss",
    "interval",
    "multicalibration_error",
    "multilabel_ecce",
    "multilabel_ece",
    "report",
    "roc_auc",
    "scorer",
    "skce_test",
    "spiegelhalter_test",
    "true_calibration_error",
    "variational_ece",
)
#: Metrics with intervals, with options that make them fast.
MEASURED: dict[str, dict[str, Any]] = {
    "accuracy": {},
    "brier_score": {},
    "debiased_ece": {"bins": 5},
    "ecce": {},
    "ece": {"bins": 5},
    "kde_ece": {},
    "log_loss": {"eps": 1e-6},
    "loss_gap": {"functions": 20},
    "skce": {},
    "smooth_ece": {},
}
#: Metrics whose intervals treat rows as independent.
UNGROUPED = ("debiased_ece", "skce")
PREDICTIONS = ("binary", "ties", "three", "one-hot")


def predictions(name: str) -> tuple[Array, Array, Array]:
    """Return probabilities (one column if binary), labels and fractional weights."""
    rng = np.random.default_rng(50 + PREDICTIONS.index(name))
    n = 160
    if name in ("binary", "ties"):
        probs = rng.beta(0.8, 0.8, n) if name == "binary" else rng.integers(0, 11, n) / 10
        labels = (rng.random(n) < probs**1.3).astype(int)
    else:
        logits = 2 * rng.normal(size=(n, 3))
        labels = np.argmax(0.7 * logits + rng.gumbel(size=(n, 3)), axis=1)
        probs = softmax(logits, axis=1)
        if name == "one-hot":
            certain = rng.random(n) < 0.6
            probs[certain] = np.eye(3)[probs[certain].argmax(axis=1)]
    return probs, labels, rng.uniform(0.2, 2.5, n)


def cases() -> Iterator[Case]:
    """Yield the cases of all metrics."""
    for metric, several in OPTIONS.items():
        for data in PREDICTIONS:
            for options in several:
                yield from _values(metric, data, options)
    for metric in MEASURED:
        for data in PREDICTIONS:
            yield Case(f"interval of {metric}: {data}", partial(_interval, metric, data))
            yield Case(f"difference of {metric}: {data}", partial(_difference, metric, data))
    for data in PREDICTIONS:
        yield Case(f"tests: {data}", partial(_tests, data))
        yield Case(f"cumulative tests: {data}", partial(_cumulative_tests, data))
        yield Case(f"report: {data}", partial(_report, data))
        yield Case(f"evaluate: {data}", partial(_evaluate, data))
        yield Case(f"metrics of logits: {data}", partial(_of_logits, data))
        yield Case(f"metrics of blocks: {data}", partial(_of_blocks, data))
        yield Case(f"decision_cost: {data}", partial(_decision_cost, data))
        yield Case(f"metrics with a truth: {data}", partial(_with_truth, data))
        yield Case(f"multicalibration_error: {data}", partial(_multicalibration_error, data))
        yield Case(f"scorer: {data}", partial(_scorers, data))
    yield Case("metrics of several labels", _of_several_labels)
    yield Case("cumulative errors of several labels", _cumulative_of_several_labels)
    yield Case("metrics of fractional outcomes", _of_fractional_outcomes)


def _values(metric: str, data: str, options: dict[str, Any]) -> Iterator[Case]:
    """Yield a metric with and without weights, where its options fit the number of classes."""
    chosen = "binary" if metric == "ecce" else options.get("kind", "binary")
    kind = options.get("events", chosen)
    if (data in ("binary", "ties")) != (kind == "binary") and kind != "binary":
        return
    shown = ", ".join(f"{name}={value}" for name, value in options.items())
    yield Case(f"{metric}({shown}): {data}", partial(_value, metric, data, options))


def _value(metric: str, data: str, options: dict[str, Any]) -> Results:
    probs, labels, weights = predictions(data)
    function = getattr(metrics, metric)
    return {
        "unweighted": _few(function(probs, labels, **options)),
        "weighted": _few(function(probs, labels, weights=weights, **options)),
        "counts": _few(function(probs, labels, weights=np.ceil(weights), **options)),
    }


def _few(result: Any) -> Any:
    """Keep about ten evenly spaced entries of each long array in a result."""
    if isinstance(result, float):
        return result
    steps = {name: np.asarray(value) for name, value in result._asdict().items()}
    return {name: v[:: max(1, len(v) // 10)] if v.ndim else v for name, v in steps.items()}


def _groups(rows: int) -> Array:
    """Return the cluster of each row."""
    return np.arange(rows) // 4


def _interval(metric: str, data: str) -> Results:
    probs, labels, weights = predictions(data)
    options = MEASURED[metric]
    measure = partial(metrics.interval, metric, probs, labels, replicates=12, **options)
    return {
        "automatic": measure(),
        "bootstrap": measure(method="bootstrap", weights=weights, seed=1, level=0.8),
        "clusters": measure(groups=_groups(len(labels))) if metric not in UNGROUPED else None,
        "replicates": metrics.bootstrap(metric, probs, labels, replicates=6, **options),
    }


def _sharper(probs: Array) -> Array:
    """Return the predictions of a second, sharper model."""
    if probs.ndim == 1:
        return probs**2 / (probs**2 + (1 - probs) ** 2)
    return probs**2 / (probs**2).sum(axis=1, keepdims=True)


def _difference(metric: str, data: str) -> Results:
    probs, labels, weights = predictions(data)
    both = probs, _sharper(probs)
    measure = partial(metrics.difference, metric, *both, labels, replicates=12, **MEASURED[metric])
    return {"plain": measure(), "weighted": measure(weights=weights, seed=1)}


def _tests(data: str) -> Results:
    probs, labels, weights = predictions(data)
    consistency = partial(metrics.consistency_test, "ece", probs, labels, resamples=40, bins=5)
    kernel = partial(metrics.skce_test, probs, labels, resamples=40)
    return {
        "spiegelhalter": metrics.spiegelhalter_test(probs, labels),
        "spiegelhalter, weighted": metrics.spiegelhalter_test(probs, labels, weights=weights),
        "consistency": consistency(),
        "consistency, weighted": consistency(weights=weights, seed=1),
        "consistency, clusters": consistency(groups=_groups(len(labels))),
        "skce": kernel(),
        "skce, linear": kernel(estimator="linear"),
        "skce, bound": kernel(method="bound"),
        "skce, weighted": kernel(weights=np.ceil(weights), seed=1),
    }


def _cumulative_tests(data: str) -> Results:
    probs, labels, weights = predictions(data)
    test = partial(metrics.ecce_test, probs, labels, resamples=40)
    return {
        "max": test(),
        "range": test(kind="range"),
        "asymptotic": test(method="asymptotic"),
        "weighted": test(weights=weights, seed=1),
        "counts": test(weights=np.ceil(weights), kind="range", seed=1),
    }


def _models(data: str) -> tuple[dict[str, Array], Array, Array]:
    probs, labels, weights = predictions(data)
    return {"first": probs, "sharper": _sharper(probs)}, labels, weights


def _report(data: str) -> Results:
    models, labels, weights = _models(data)
    result = metrics.report(models, labels, weights=weights, replicates=30)
    return {
        "intervals": result.intervals,
        "differences": result.differences,
        "tests": result.tests,
        "cases": result.cases,
    }


def _evaluate(data: str) -> Results:
    models, labels, weights = _models(data)
    plain = bc.evaluate(models, labels, replicates=30, bins=5)
    counts = bc.evaluate(models["first"], labels, weights=np.ceil(weights), replicates=30)
    return {"plain": plain.to_dict(), "counts": counts.to_dict()}


def _of_logits(data: str) -> Results:
    probs, labels, _ = predictions(data)
    clipped = np.clip(probs, 1e-12, 1 - 1e-12)
    logits = np.log(clipped) - (np.log1p(-clipped) if probs.ndim == 1 else 0)
    names = "log_loss", "brier_score", "ece", "smooth_ece", "debiased_ece"
    return {name: getattr(metrics, name)(logits, labels, inputs="logits") for name in names}


def _of_blocks(data: str) -> Results:
    """Compute metrics of blocks, and with an accumulator."""
    rows = predictions(data)
    parts = [tuple(values[start : start + 64] for values in rows) for start in (0, 64, 128)]
    names = ["log_loss", "brier_score", "accuracy", "ece", "debiased_ece", "smooth_ece", "kde_ece"]
    total = metrics.Accumulator(names, classes=None if rows[0].ndim == 1 else 3)
    for part in parts:
        total.add(*part)
    blocks = {name: getattr(metrics, name)(bc.Blocks(parts)) for name in names}
    return {"blocks": blocks, "accumulated": total.result(), "bounds": total.bounds()}


def _decision_cost(data: str) -> Results:
    probs, labels, weights = predictions(data)
    classes = 2 if probs.ndim == 1 else 3
    costs = np.random.default_rng(60).uniform(0, 5, (classes, 4))
    result = metrics.decision_cost(probs, labels, costs=costs, weights=weights)
    return _few(result)


def _with_truth(data: str) -> Results:
    probs, labels, weights = predictions(data)
    truth = _sharper(probs)
    kinds = ("binary",) if probs.ndim == 1 else ("confidence", "classwise")
    result = {}
    for kind in kinds:
        for norm in (1, 2):
            options: Any = {"kind": kind, "norm": norm, "weights": weights}
            result[f"true, {kind}, {norm}"] = metrics.true_calibration_error(
                probs, truth, **options
            )
            result[f"variational, {kind}, {norm}"] = metrics.variational_ece(
                probs, labels, truth, **options
            )
    return result


def _multicalibration_error(data: str) -> Results:
    probs, labels, weights = predictions(data)
    groups = np.random.default_rng(70).random((len(labels), 3)) < 0.5
    result = metrics.multicalibration_error(probs, labels, groups, bins=5, weights=weights)
    return result._asdict()


def _scorers(data: str) -> Results:
    probs, labels, _ = predictions(data)
    fitted = bc.Temperature().fit(probs, labels)
    names = "log_loss", "brier_score", "ece", "accuracy"
    return {name: metrics.scorer(name)(fitted, probs, labels) for name in names}


def _of_several_labels() -> Results:
    rng = np.random.default_rng(80)
    probs = rng.beta(0.8, 1.5, (160, 4))
    present = (rng.random((160, 4)) < probs**1.3).astype(int)
    result: dict[str, Any] = {}
    for name, weights in (("plain", None), ("weighted", rng.uniform(0.2, 2.5, 160))):
        result[f"hamming_loss, {name}"] = metrics.hamming_loss(probs, present, weights=weights)
        for average in ("total", "weighted", "mean"):
            for binning in ("equal_width", "equal_mass"):
                result[f"{average}, {binning}, {name}"] = metrics.multilabel_ece(
                    probs, present, average=average, binning=binning, weights=weights
                )
    return result


def _cumulative_of_several_labels() -> Results:
    rng = np.random.default_rng(81)
    probs = rng.beta(0.8, 1.5, (160, 4))
    present = (rng.random((160, 4)) < probs**1.3).astype(int)
    weights = rng.uniform(0.2, 2.5, 160)
    result: dict[str, Any] = {}
    for average in ("total", "weighted", "mean"):
        for kind in ("max", "range"):
            result[f"{average}, {kind}"] = metrics.multilabel_ecce(
                probs, present, average=average, kind=kind, weights=weights
            )
    return result


def _of_fractional_outcomes() -> Results:
    rng = np.random.default_rng(90)
    probs = rng.random(160)
    outcomes = np.clip(probs + rng.normal(0, 0.1, 160), 0, 1)
    names = "log_loss", "brier_score", "ece"
    return {name: getattr(metrics, name)(probs, outcomes, outcomes="fractional") for name in names}
