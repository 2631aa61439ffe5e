"""Time multi-class calibrators, and compare them with other libraries on the same data.

    python benchmarks/bench_multiclass.py [--json FILE] [--task NAME ...]

The last column is the objective that the methods for a task minimize, in nats. For "vector",
"matrix" and "temperature" it is the mean log loss. "dirichlet" adds penalties of 1e-3 on squares of
off-diagonal entries and intercepts. "SVS" and "SMS" have their own penalties, at the best
temperature.

Data: margin m = 4 + 2 ln k, class c uniform, z ~ N(0, 4) with z_c raised by m. Labels are drawn
from softmax(W z + b) with diagonal entries of W from U(.25, .6), others from N(0, .0025 / k), and
b ~ N(0, .09). A class without a row gets one.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from side_by_side import Entry, main

SEEDS = {(5000, 10): 1, (10_000, 100): 2, (25_000, 1000): 3, (5000, 100): 4, (100_000, 100): 5}
Array = np.ndarray


def make(size: tuple[int, int]) -> tuple[Array, Array]:
    """Draw logits and labels."""
    n, k = size
    rng = np.random.default_rng(SEEDS[size])
    dominant = rng.integers(k, size=n)
    factors = rng.uniform(0.25, 0.6, k)
    off_diagonal = 0.05 / math.sqrt(k) * rng.standard_normal((k, k))
    np.fill_diagonal(off_diagonal, 0)
    weights, intercept = np.diag(factors) + off_diagonal, 0.3 * rng.standard_normal(k)
    logits, y = np.empty((n, k)), np.empty(n, np.int64)
    step = 5000 if k >= 1000 else n
    for first in range(0, n, step):
        part = slice(first, min(n, first + step))
        z = 2 * rng.standard_normal((part.stop - first, k))
        z[np.arange(len(z)), dominant[part]] += 4 + 2 * math.log(k)
        logits[part] = z
        y[part] = np.argmax(z @ weights.T + intercept + rng.gumbel(size=z.shape), axis=1)
    missing = np.setdiff1d(np.arange(k), y)
    y[missing] = missing
    return logits, y


def softmax(logits: Array) -> Array:
    """Compute probabilities from logits."""
    exps = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


def log_loss(p: Any, y: Array) -> float:
    """Compute the mean log loss."""
    return float(-np.mean(np.log(np.maximum(np.asarray(p, float)[np.arange(len(y)), y], 1e-300))))


def fit_bayescal(name: str, score: Callable[..., float] | None = None, **options: Any) -> Any:
    """Create the setup of a bayescal calibrator that is fitted to logits or probabilities."""

    def setup(z: Array, y: Array) -> Any:
        import bayescal as bc

        cls = getattr(bc, name)
        probs = options.get("inputs") != "logits"
        x = softmax(z) if probs else z
        evaluate = score or (lambda r, *_: log_loss(r.predict_proba(x), y))
        return lambda: cls(**options).fit(x, y), lambda r: evaluate(r, z, y)

    return setup


def predict_bayescal(name: str, queries: int, **options: Any) -> Any:
    """Create the setup of predictions of many rows by a fitted bayescal calibrator."""

    def setup(z: Array, y: Array) -> Any:
        import bayescal as bc

        probs = softmax(z)
        fitted = getattr(bc, name)(**options).fit(probs, y)
        new_probs = np.resize(probs, (queries, probs.shape[1]))
        new_y = np.resize(y, queries)
        return lambda: fitted.predict_proba(new_probs), lambda r: log_loss(r, new_y)

    return setup


def probmetrics(name: str, score: Callable[..., float] | None = None) -> Any:
    """Create the setup of a fit by a probmetrics calibrator."""

    def setup(z: Array, y: Array) -> Any:
        cls = getattr(importlib.import_module("probmetrics.calibrators"), name)
        probs = softmax(z)
        evaluate = score or (lambda r, *_: log_loss(r.predict_proba(probs), y))
        return lambda: cls().fit(probs, y), lambda r: evaluate(r, z, y)

    return setup


def netcal(name: str, **options: Any) -> Any:
    """Create the setup of a fit by a netcal calibrator."""

    def setup(z: Array, y: Array) -> Any:
        cls = getattr(importlib.import_module("netcal.scaling"), name)
        probs = softmax(z)

        def fit() -> Any:
            calibrator = cls("mle", **options)
            calibrator.fit(probs, y)
            return calibrator

        return fit, lambda r: log_loss(r.transform(probs), y)

    return setup


def dirichletcal(name: str, score: Callable[..., float] | None = None, **options: Any) -> Any:
    """Create the setup of a fit by a dirichletcal calibrator."""

    def setup(z: Array, y: Array) -> Any:
        cls = getattr(importlib.import_module("dirichletcal"), name)
        probs = softmax(z)
        evaluate = score or (lambda r, *_: log_loss(r.predict_proba(probs), y))
        return lambda: cls(**options).fit(probs, y), lambda r: evaluate(r, z, y)

    return setup


def sklearn_temperature(z: Array, y: Array) -> Any:
    """Set up scikit-learn's temperature fit without its wrapper, which doubles the time."""
    from sklearn.calibration import _TemperatureScaling

    return lambda: _TemperatureScaling().fit(z, y), lambda r: log_loss(r.predict(z), y)


def sklearn_matrix(z: Array, y: Array) -> Any:
    """Set up a multinomial regression on logits by scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    fit = lambda: LogisticRegression(C=1e10, max_iter=2000, tol=1e-6).fit(z, y)  # noqa: E731
    return fit, lambda r: log_loss(r.predict_proba(z), y)


def scipy_dirichlet(z: Array, y: Array) -> Any:
    """Set up the minimization of the penalized loss by SciPy's L-BFGS-B with a gradient."""
    from scipy.optimize import minimize

    x = np.log(softmax(z))
    n, k = x.shape
    rows = np.arange(n)

    def loss(theta: Array) -> tuple[float, Array]:
        w, b = theta[: k * k].reshape(k, k), theta[k * k :]
        logits = x @ w.T + b
        max_logits = logits.max(axis=1, keepdims=True)
        exps = np.exp(logits - max_logits)
        total = exps.sum(axis=1, keepdims=True)
        value = np.mean(np.log(total[:, 0]) + max_logits[:, 0] - logits[rows, y])
        residual = exps / total
        residual[rows, y] -= 1
        residual /= n
        off = w - np.diag(np.diag(w))
        gradient = residual.T @ x + 2e-3 * off
        value += 1e-3 * (off**2).sum() + 1e-3 * (b**2).sum()
        return float(value), np.concatenate([gradient.ravel(), residual.sum(axis=0) + 2e-3 * b])

    start = np.concatenate([np.eye(k).ravel(), np.zeros(k)])
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 20}
    fit = lambda: minimize(loss, start, jac=True, method="L-BFGS-B", options=options)  # noqa: E731
    return fit, lambda r: float(r.fun)


def penalized(r: Any, z: Array, y: Array) -> float:
    """Compute the loss of a fitted Dirichlet map with penalties of 1e-3."""
    w, b = np.asarray(r.coef_ if hasattr(r, "coef_") else r.weights_), np.asarray(r.intercept_)
    off = w - np.diag(np.diag(w))
    logits = np.log(softmax(z)) @ w.T + b
    return log_loss(softmax(logits), y) + 1e-3 * float((off**2).sum() + (b**2).sum())


@cache
def best_temperature(size: tuple[int, int]) -> float:
    """Find the temperature with the lowest log loss."""
    from scipy.optimize import minimize_scalar

    z, y = make(size)
    optimum: Any = minimize_scalar(
        lambda t: log_loss(softmax(z / t), y),
        bounds=(0.5, 10),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(optimum.x)


def structured(kind: str) -> Callable[..., float]:
    """Create a function that computes the objective of SVS or SMS."""

    def score(r: Any, z: Array, y: Array) -> float:
        n, k = z.shape
        mixed = (1 - 1 / (n + 1)) * softmax(z / best_temperature((n, k))) + 1 / ((n + 1) * k)
        if hasattr(r, "W_"):  # probmetrics' matrix, with intercepts last
            w, b = np.asarray(r.W_[:, :-1], float), np.asarray(r.W_[:, -1], float)
        elif hasattr(r, "v_"):
            w, b = np.diag(np.ravel(r.v_).astype(float)), np.ravel(r.b_).astype(float)
        else:
            w = r.coef_ if r.coef_.ndim == 2 else np.diag(r.coef_)
            b = r.intercept_
        change = w - np.eye(k)
        diagonal = float((np.diag(change) ** 2).sum())
        value = log_loss(softmax(np.log(mixed) @ w.T + b), y)
        value += k / n * (float((b**2).sum()) + diagonal)
        if kind == "SMS":
            value += k * (k - 1) / n * (float((change**2).sum()) - diagonal)
        return value

    return score


def entries() -> list[Entry]:
    """List all entries; the first one of each task is bayescal."""
    sk, pm, nc, dc = "scikit-learn", "probmetrics", "netcal", "dirichletcal"
    result = []
    for size in ((5000, 10), (10_000, 100), (25_000, 1000)):
        task = "temperature {}x{}".format(*size)
        result += [
            Entry(
                task,
                "bayescal",
                "Temperature",
                size,
                "",
                fit_bayescal("Temperature", inputs="logits"),
            ),
            Entry(task, sk, "without wrapper", size, "sklearn", sklearn_temperature),
        ]
        if size[1] < 1000:
            result += [
                Entry(task, pm, "", size, pm, probmetrics("TemperatureScalingCalibrator")),
                Entry(task, nc, "", size, nc, netcal("TemperatureScaling")),
            ]
    for size in ((5000, 10), (5000, 100)):
        n, k = size
        shape = f"{n}x{k}"
        strengths = {"off_diagonal": 1e-3 * k * (k - 1), "intercept": 1e-3 * k}
        ref_free = {"reg_lambda": 1e-3, "reg_mu": 1e-3, "ref_row": False}
        svs, sms = structured("SVS"), structured("SMS")
        full = "FullDirichletCalibrator"
        result += [
            Entry(f"vector {shape}", "bayescal", "Vector", size, "", fit_bayescal("Vector")),
            Entry(f"vector {shape}", pm, "", size, pm, probmetrics("VectorScalingCalibrator")),
            Entry(f"SVS {shape}", "bayescal", "", size, "", fit_bayescal("StructuredVector", svs)),
            Entry(f"SVS {shape}", pm, "", size, pm, probmetrics("SVSCalibrator", svs)),
            Entry(f"SMS {shape}", "bayescal", "", size, "", fit_bayescal("StructuredMatrix", sms)),
            Entry(f"SMS {shape}", pm, "", size, pm, probmetrics("SMSCalibrator", sms)),
            Entry(
                f"dirichlet {shape}", "bayescal", "", size, "",
                fit_bayescal("Dirichlet", penalized, **strengths),
            ),
            Entry(f"dirichlet {shape}", "scipy", "L-BFGS-B", size, "scipy", scipy_dirichlet),
        ]  # fmt: skip
        if k == 10:
            cv = {"off_diagonal": "cv", "intercept": "cv"}
            result += [
                Entry(
                    f"dirichlet {shape}", dc, "ref_row=False", size, dc,
                    dirichletcal(full, penalized, **ref_free),
                ),
                Entry(f"matrix {shape}", "bayescal", "", size, "",
                      fit_bayescal("Matrix", inputs="logits")),
                Entry(f"matrix {shape}", sk, "C=1e10", size, "sklearn", sklearn_matrix),
                Entry(f"dirichlet, 7 x 7 strengths, 5 folds {shape}", "bayescal", "", size, "",
                      fit_bayescal("Dirichlet", **cv)),
                Entry(f"kernel, 16 bandwidths, 10 folds {shape}", "bayescal", "", size, "",
                      fit_bayescal("Kernel")),
                Entry(f"neighbors, 8 numbers, 10 folds {shape}", "bayescal", "", size, "",
                      fit_bayescal("KNN")),
                Entry(f"forest, 12 sizes, 10 folds {shape}", "bayescal", "", size, "",
                      fit_bayescal("Forest", random_state=0)),
            ]  # fmt: skip
        else:
            result += [
                Entry(f"kernel, predict 1e4 rows from {shape}", "bayescal", "", size, "",
                      predict_bayescal("Kernel", 10_000, bandwidth=0.1)),
                Entry(f"neighbors, predict 1e4 rows from {shape}", "bayescal", "", size, "",
                      predict_bayescal("KNN", 10_000, k=256)),
            ]  # fmt: skip
    size = (100_000, 100)
    result += [
        Entry("kernel, predict 1e4 rows from 100000x100", "bayescal", "", size, "",
              predict_bayescal("Kernel", 10_000, bandwidth=0.1)),
        Entry("neighbors, predict 1e4 rows from 100000x100", "bayescal", "", size, "",
              predict_bayescal("KNN", 10_000, k=256)),
    ]  # fmt: skip
    return result


if __name__ == "__main__":
    libraries = "dirichletcal", "netcal", "probmetrics"
    title = "Multi-class calibrators"
    main(__file__, title, entries(), make, libraries, "objective")
