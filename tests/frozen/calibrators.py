"""Frozen predictions of every calibrator, with every option, on all kinds of data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import bayescal as bc
from tests.calibrators.cases import CASES, DEFAULTS, SLOW
from tests.calibrators.cases import Case as Method
from tests.frozen.case import ELSEWHERE, RTOL, Case, Results
from tests.frozen.data import BINARY, SEVERAL, data_set, logits_of

#: Calibrators that need all rows at once.
NOT_IN_BLOCKS = (
    "BinwiseTemperature",
    "EnsembleTemperature",
    "Forest",
    "GaussianProcess",
    "KNN",
    "Kernel",
    "OneVsOne",
    "OneVsRest",
    "OrderPreserving",
    "WeightScaling",
)
#: Calibrators with many search steps, which magnify rounding.
SEARCHED = ("Decision", "OrderPreserving")


def cases() -> Iterator[Case]:
    """Yield the cases of all calibrators."""
    for method in CASES:
        yield from _of_data(method)
    for method in DEFAULTS:
        yield from _of_inputs(method)
        yield _case(method, "jax", _fit_jax, _usual(method))
        if method.calibrator.__name__ not in NOT_IN_BLOCKS:
            yield _case(method, "blocks", _fit_blocks, _usual(method))
        if "inference" in method().get_params():
            for name in _data_names(method)[:2]:
                yield _case(method, "laplace", _fit_laplace, name)


def _usual(method: Method) -> str:
    return "continuous" if method.binary else "three"


def _data_names(method: Method) -> tuple[str, ...]:
    return BINARY if method.binary else (*SEVERAL, "continuous", "tenths")


def _case(method: Method, variant: str, fit: Any, *arguments: Any) -> Case:
    names = ", ".join(str(argument) for argument in arguments)
    cls = method.calibrator.__name__
    rtol = 1e-8 if cls in SEARCHED else RTOL
    # On other machines rounding moves the draws of splines by 2e-4.
    elsewhere = 1e-3 if cls == "Spline" else ELSEWHERE
    compute = partial(fit, method, *arguments)
    return Case(f"{method.name}: {variant}, {names}", compute, cls in SLOW, rtol, elsewhere)


def _of_data(method: Method) -> Iterator[Case]:
    """Yield weighted fits to each data set, and unweighted fits with default options."""
    for name in _data_names(method):
        if not method.binary and method.options and name in ("ten", "tenths", "continuous"):
            continue
        if method.calibrator is bc.OrderPreserving and name == "tenths":
            continue  # Its search takes longer than all others together.
        yield _case(method, "weighted", _fit_weighted, name)
        if not method.options:
            yield _case(method, "unweighted", _fit_unweighted, name)


def _of_inputs(method: Method) -> Iterator[Case]:
    yield _case(method, "inputs", _fit_inputs, _usual(method), "logits")
    if method.binary and method().domain in ("real", "order"):
        yield _case(method, "inputs", _fit_inputs, _usual(method), "scores")


def _fit_weighted(method: Method, name: str) -> Results:
    data = data_set(name)
    fitted = method(inputs=data.inputs).fit(data.scores, data.labels, data.weights)
    return _results(fitted, data.new)


def _fit_unweighted(method: Method, name: str) -> Results:
    data = data_set(name)
    fitted = method(inputs=data.inputs).fit(data.scores, data.labels)
    report = fitted.report_
    report_values = {
        "log_loss": report.log_loss,
        "log_loss_error": report.log_loss_error,
        "uncalibrated": report.uncalibrated,
        "gain": report.gain,
        "gain_error": report.gain_error,
        "effective_rows": report.effective_rows,
    }
    return {**_results(fitted, data.new), "report": report_values}


def _fit_inputs(method: Method, name: str, inputs: str) -> Results:
    data = data_set(name)
    scores, new = (_as_scores(values, inputs) for values in (data.scores, data.new))
    return _results(method(inputs=inputs).fit(scores, data.labels, data.weights), new)


def _as_scores(probs: np.ndarray, inputs: str) -> np.ndarray:
    """Return logits, or an increasing function of probabilities as raw scores."""
    return logits_of(probs) if inputs == "logits" else 7 * probs - 3


def _fit_jax(method: Method, name: str) -> Results:
    """Fit to JAX arrays, and predict with the compiled function."""
    data = data_set(name)
    with jax.enable_x64(True):
        fitted = method().fit(jnp.asarray(data.scores), data.labels, data.weights)
        return {"probs": jax.jit(fitted.as_function())(jnp.asarray(data.new))[:, 1:]}


def _fit_blocks(method: Method, name: str) -> Results:
    data = data_set(name)
    return _results(method().fit(data.in_blocks()), data.new)


def _fit_laplace(method: Method, name: str) -> Results:
    data = data_set(name)
    fitted = method(inputs=data.inputs, inference="laplace", num_samples=50)
    fitted.fit(data.scores, data.labels, data.weights)
    lower, upper = fitted.predict_interval(data.new)
    return {**_results(fitted, data.new), "lower": lower, "upper": upper}


def _results(fitted: Any, new: Any) -> Results:
    """Return predictions, the status, and the objective of a fit.

    The probability of the first class is left out, since rows sum to one.
    """
    objective = {"objective": fitted.objective_} if hasattr(fitted, "objective_") else {}
    return {"probs": fitted.predict_proba(new)[:, 1:], "status": fitted.status_, **objective}
