"""Time the default calibrators, and compare them with the best of other libraries.

    python benchmarks/bench_auto.py [--json FILE] [--task NAME ...]

All methods for a task see the same data. The last column is the log loss on 20,000 further rows for
two classes, and on the fitted rows for more.

Data of two classes have log odds z from N(0, 9) and P(y = 1) = sigmoid(0.5 z + 0.8 sin z). Data of
more classes are those of ``bench_multiclass.py``. The "memory" tasks have 900 rows and 10 to 50,000
classes. Their logits are N(0, 4), plus 4 + 2 ln k for one class: the label in 80 % of the rows, and
a random class in the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bench_multiclass import log_loss, softmax
from bench_multiclass import make as make_multiclass
from side_by_side import Entry, main

Array = np.ndarray
#: Number of test rows for two classes, and of rows of the "memory" tasks.
TEST, MEMORY_ROWS = 20_000, 900


def make(data: Any) -> tuple[Array, Array, Array, Array]:
    """Draw probabilities (n, k) and labels for the fit, and others for the test."""
    n, k = data
    if n == MEMORY_ROWS:
        return make_memory(k)
    if k > 2:
        z, y = make_multiclass((n, k))
        return softmax(z), y, softmax(z), y
    rng = np.random.default_rng(n)
    p, y = np.empty((n + TEST, 2)), np.empty(n + TEST, int)
    # Drawing in blocks keeps the peak memory of this step below that of a fit.
    for first in range(0, len(y), 100_000):
        part = slice(first, first + 100_000)
        z = 3 * rng.standard_normal(len(y[part]))
        truth = 1 / (1 + np.exp(-0.5 * z - 0.8 * np.sin(z)))
        y[part] = rng.random(len(z)) < truth
        p[part, 1] = 1 / (1 + np.exp(-z))
        p[part, 0] = 1 - p[part, 1]
    return p[:n], y[:n], p[n:], y[n:]


def make_memory(k: int) -> tuple[Array, Array, Array, Array]:
    """Draw the rows of a "memory" task; the first 100 are also the test rows."""
    rng = np.random.default_rng(k)
    y = rng.integers(k, size=MEMORY_ROWS)
    largest = np.where(rng.random(MEMORY_ROWS) < 0.8, y, rng.integers(k, size=MEMORY_ROWS))
    p = np.empty((MEMORY_ROWS, k))
    for first in range(0, MEMORY_ROWS, 100):
        part = slice(first, first + 100)
        z = 2 * rng.standard_normal((100, k))
        z[np.arange(100), largest[part]] += 4 + 2 * np.log(k)
        p[part] = softmax(z)
    return p, y, p[:100], y[:100]


def fit_bayescal(name: str, report: bool = False, **options: Any) -> Any:
    """Create the setup of a fit by a bayescal calibrator."""

    def setup(p: Array, y: Array, test_probs: Array, test_y: Array) -> Any:
        import bayescal as bc

        cls = getattr(bc, name)

        def fit() -> Any:
            fitted = cls(**options).fit(p, y)
            if report:
                str(fitted.report_)
            return fitted

        return fit, lambda r: log_loss(r.predict_proba(test_probs), test_y)

    return setup


def fit_probmetrics(name: str) -> Any:
    """Create the setup of a fit by a probmetrics calibrator."""

    def setup(p: Array, y: Array, test_probs: Array, test_y: Array) -> Any:
        from probmetrics import calibrators

        cls = getattr(calibrators, name)
        return lambda: cls().fit(p, y), lambda r: log_loss(r.predict_proba(test_probs), test_y)

    return setup


def entries() -> list[Entry]:
    """List all entries; the first one of each task is bayescal."""
    result = []
    for n in (100, 1000, 10_000, 1_000_000, 10_000_000):
        task = f"two classes, {n:,} rows"
        result.append(
            Entry(task, "bayescal", "AveragedBeta()", (n, 2), "", fit_bayescal("AveragedBeta"))
        )
        result.append(Entry(task, "bayescal", "Auto()", (n, 2), "", fit_bayescal("Auto")))
        with_report = fit_bayescal("Auto", report=True)
        result.append(Entry(task, "bayescal", "Auto(), and its report", (n, 2), "", with_report))
        for name in ("SVSCalibrator", "SMSCalibrator"):
            module = "probmetrics.calibrators"
            result.append(Entry(task, "probmetrics", name, (n, 2), module, fit_probmetrics(name)))
    for n, k in ((5000, 10), (5000, 100), (25_000, 1000)):
        task = f"{k} classes, {n:,} rows"
        for mode in ("stack", "single"):
            setup = fit_bayescal("StackedScaling", mode=mode)
            result.append(Entry(task, "bayescal", f"StackedScaling({mode!r})", (n, k), "", setup))
        for name in ("SVSCalibrator", "SMSCalibrator"):
            if k < 1000 or name == "SVSCalibrator":
                module = "probmetrics.calibrators"
                result.append(
                    Entry(task, "probmetrics", name, (n, k), module, fit_probmetrics(name))
                )
    for k in (10, 100, 1000, 10_000, 50_000):
        task, module = f"memory, {k:,} classes", "probmetrics.calibrators"
        setup = fit_bayescal("Auto", classes=tuple(range(k)))
        result.append(Entry(task, "bayescal", "Auto()", (MEMORY_ROWS, k), "", setup))
        peer = fit_probmetrics("SVSCalibrator")
        result.append(Entry(task, "probmetrics", "SVSCalibrator", (MEMORY_ROWS, k), module, peer))
    return result


if __name__ == "__main__":
    title = "Default calibrators"
    main(__file__, title, entries(), make, ["bayescal", "torch", "probmetrics"])
