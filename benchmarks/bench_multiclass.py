"""Time of calibration maps of several classes beside other libraries, on the same data.

    python benchmarks/bench_multiclass.py [--json FILE] [--task NAME ...]

The last column is what the methods of a task minimize, in nats: for "vector", "matrix" and
"temperature" the mean log loss; for "dirichlet" with penalties of 1e-3 on squares of off-diagonal
entries and intercepts; for "SVS" and "SMS" their own, at the best temperature.

Data: margin m = 4 + 2 ln k, class c uniform, z ~ N(0, 4) with z_c raised by m; labels are drawn
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
    """Return logits and labels."""
    n, k = size
    rng = np.random.default_rng(SEEDS[size])
    hidden = rng.integers(k, size=n)
    factors = rng.uniform(0.25, 0.6, k)
    others = 0.05 / math.sqrt(k) * rng.standard_normal((k, k))
    np.fill_diagonal(others, 0)
    weights, intercept = np.diag(factors) + others, 0.3 * rng.standard_normal(k)
    logits, y = np.empty((n, k)), np.empty(n, np.int64)
    step = 5000 if k >= 1000 else n
    for first in range(0, n, step):
        part = slice(first, min(n, first + step))
        z = 2 * rng.standard_normal((part.stop - first, k))
        z[np.arange(len(z)), hidden[part]] += 4 + 2 * math.log(k)
        logits[part] = z
        y[part] = np.argmax(z @ weights.T + intercept + rng.gumbel(size=z.shape), axis=1)
    missing = np.setdiff1d(np.arange(k), y)
    y[missing] = missing
    return logits, y


def softmax(logits: Array) -> Array:
    small = np.exp(logits - logits.max(axis=1, keepdims=True))
    return small / small.sum(axis=1, keepdims=True)


def log_loss(p: Any, y: Array) -> float:
    return float(-np.mean(np.log(np.maximum(np.asarray(p, float)[np.arange(len(y)), y], 1e-300))))


def ours(name: str, score: Callable[..., float] | None = None, **options: Any) -> Any:
    """Return the set-up of an estimator of bayescal, fitted to logits or probabilities."""

    def setup(z: Array, y: Array) -> Any:
        import bayescal as bc

        cls = getattr(bc, name)
        probs = options.get("inputs") != "logits"
        x = softmax(z) if probs else z
        judge = score or (lambda r, *_: log_loss(r.predict_proba(x), y))
        return lambda: cls(**options).fit(x, y), lambda r: judge(r, z, y)

    return setup


def predicted(name: str, queries: int, **options: Any) -> Any:
    """Return the set-up of a fitted estimator of bayescal, applied to many rows."""

    def setup(z: Array, y: Array) -> Any:
        import bayescal as bc

        probs = softmax(z)
        fitted = getattr(bc, name)(**options).fit(probs, y)
        at = np.resize(probs, (queries, probs.shape[1]))
        rows = np.resize(y, queries)
        return lambda: fitted.predict_proba(at), lambda r: log_loss(r, rows)

    return setup


def probmetrics(name: str, score: Callable[..., float] | None = None) -> Any:
    def setup(z: Array, y: Array) -> Any:
        cls = getattr(importlib.import_module("probmetrics.calibrators"), name)
        probs = softmax(z)
        judge = score or (lambda r, *_: log_loss(r.predict_proba(probs), y))
        return lambda: cls().fit(probs, y), lambda r: judge(r, z, y)

    return setup


def netcal(name: str, **options: Any) -> Any:
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
    def setup(z: Array, y: Array) -> Any:
        cls = getattr(importlib.import_module("dirichletcal"), name)
        probs = softmax(z)
        judge = score or (lambda r, *_: log_loss(r.predict_proba(probs), y))
        return lambda: cls(**options).fit(probs, y), lambda r: judge(r, z, y)

    return setup


def sklearn_temperature(z: Array, y: Array) -> Any:
    """Fit scikit-learn's temperature without its wrapper, which takes twice as long."""
    from sklearn.calibration import _TemperatureScaling

    return lambda: _TemperatureScaling().fit(z, y), lambda r: log_loss(r.predict(z), y)


def sklearn_matrix(z: Array, y: Array) -> Any:
    from sklearn.linear_model import LogisticRegression

    fit = lambda: LogisticRegression(C=1e10, max_iter=2000, tol=1e-6).fit(z, y)  # noqa: E731
    return fit, lambda r: log_loss(r.predict_proba(z), y)


def scipy_dirichlet(z: Array, y: Array) -> Any:
    """Minimize the penalized loss by SciPy's L-BFGS-B with a gradient."""
    from scipy.optimize import minimize

    x = np.log(softmax(z))
    n, k = x.shape
    rows = np.arange(n)

    def loss(theta: Array) -> tuple[float, Array]:
        w, b = theta[: k * k].reshape(k, k), theta[k * k :]
        logits = x @ w.T + b
        top = logits.max(axis=1, keepdims=True)
        small = np.exp(logits - top)
        total = small.sum(axis=1, keepdims=True)
        value = np.mean(np.log(total[:, 0]) + top[:, 0] - logits[rows, y])
        residual = small / total
        residual[rows, y] -= 1
        residual /= n
        off = w - np.diag(np.diag(w))
        slope = residual.T @ x + 2e-3 * off
        value += 1e-3 * (off**2).sum() + 1e-3 * (b**2).sum()
        return float(value), np.concatenate([slope.ravel(), residual.sum(axis=0) + 2e-3 * b])

    start = np.concatenate([np.eye(k).ravel(), np.zeros(k)])
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 20}
    fit = lambda: minimize(loss, start, jac=True, method="L-BFGS-B", options=options)  # noqa: E731
    return fit, lambda r: float(r.fun)


def penalized(r: Any, z: Array, y: Array) -> float:
    """Return the loss with penalties of 1e-3, of a fitted Dirichlet map."""
    w, b = np.asarray(r.coef_ if hasattr(r, "coef_") else r.weights_), np.asarray(r.intercept_)
    off = w - np.diag(np.diag(w))
    logits = np.log(softmax(z)) @ w.T + b
    return log_loss(softmax(logits), y) + 1e-3 * float((off**2).sum() + (b**2).sum())


@cache
def best_temperature(size: tuple[int, int]) -> float:
    from scipy.optimize import minimize_scalar

    z, y = make(size)
    found: Any = minimize_scalar(
        lambda t: log_loss(softmax(z / t), y),
        bounds=(0.5, 10),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(found.x)


def structured(kind: str) -> Callable[..., float]:
    """Return what SVS and SMS minimize."""

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
    """Return all that is measured; the first of each task is ours."""
    sk, pm, nc, dc = "scikit-learn", "probmetrics", "netcal", "dirichletcal"
    found = []
    for size in ((5000, 10), (10_000, 100), (25_000, 1000)):
        task = "temperature {}x{}".format(*size)
        found += [
            Entry(task, "bayescal", "Temperature", size, "", ours("Temperature", inputs="logits")),
            Entry(task, sk, "without wrapper", size, "sklearn", sklearn_temperature),
        ]
        if size[1] < 1000:
            found += [
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
        found += [
            Entry(f"vector {shape}", "bayescal", "Vector", size, "", ours("Vector")),
            Entry(f"vector {shape}", pm, "", size, pm, probmetrics("VectorScalingCalibrator")),
            Entry(f"SVS {shape}", "bayescal", "", size, "", ours("StructuredVector", svs)),
            Entry(f"SVS {shape}", pm, "", size, pm, probmetrics("SVSCalibrator", svs)),
            Entry(f"SMS {shape}", "bayescal", "", size, "", ours("StructuredMatrix", sms)),
            Entry(f"SMS {shape}", pm, "", size, pm, probmetrics("SMSCalibrator", sms)),
            Entry(
                f"dirichlet {shape}", "bayescal", "", size, "",
                ours("Dirichlet", penalized, **strengths),
            ),
            Entry(f"dirichlet {shape}", "scipy", "L-BFGS-B", size, "scipy", scipy_dirichlet),
        ]  # fmt: skip
        if k == 10:
            cv = {"off_diagonal": "cv", "intercept": "cv"}
            found += [
                Entry(
                    f"dirichlet {shape}", dc, "ref_row=False", size, dc,
                    dirichletcal(full, penalized, **ref_free),
                ),
                Entry(f"matrix {shape}", "bayescal", "", size, "", ours("Matrix", inputs="logits")),
                Entry(f"matrix {shape}", sk, "C=1e10", size, "sklearn", sklearn_matrix),
                Entry(f"dirichlet, 7 x 7 strengths, 5 folds {shape}", "bayescal", "", size, "",
                      ours("Dirichlet", **cv)),
                Entry(f"kernel, 16 bandwidths, 10 folds {shape}", "bayescal", "", size, "",
                      ours("Kernel")),
                Entry(f"neighbors, 8 numbers, 10 folds {shape}", "bayescal", "", size, "",
                      ours("KNN")),
                Entry(f"forest, 12 sizes, 10 folds {shape}", "bayescal", "", size, "",
                      ours("Forest", random_state=0)),
            ]  # fmt: skip
        else:
            found += [
                Entry(f"kernel, predict 1e4 rows from {shape}", "bayescal", "", size, "",
                      predicted("Kernel", 10_000, bandwidth=0.1)),
                Entry(f"neighbors, predict 1e4 rows from {shape}", "bayescal", "", size, "",
                      predicted("KNN", 10_000, k=256)),
            ]  # fmt: skip
    size = (100_000, 100)
    found += [
        Entry("kernel, predict 1e4 rows from 100000x100", "bayescal", "", size, "",
              predicted("Kernel", 10_000, bandwidth=0.1)),
        Entry("neighbors, predict 1e4 rows from 100000x100", "bayescal", "", size, "",
              predicted("KNN", 10_000, k=256)),
    ]  # fmt: skip
    return found


if __name__ == "__main__":
    libraries = "dirichletcal", "netcal", "probmetrics"
    title = "Fits of maps of several classes"
    main(__file__, title, entries(), make, libraries, "objective")
