"""Time of the default calibrators beside the best of other libraries, on the same data.

    python benchmarks/bench_auto.py [--json FILE] [--task NAME ...]

The last column is the log loss on 20,000 further rows; of several classes on the same ones.

Data of two classes: log odds N(0, 9), truth sigma(0.5 z + 0.8 sin z). Of several: as in
``bench_multiclass.py``. The tasks "memory" have 900 rows of 10 to 50,000 classes, logits N(0, 4),
of one class 4 + 2 ln k more, which is the label of 80 % of the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bench_multiclass import log_loss, softmax
from bench_multiclass import make as make_several
from side_by_side import Entry, main

Array = np.ndarray
#: Rows further on, and of the tasks of memory.
TEST, FEW = 20_000, 900


def make(data: Any) -> tuple[Array, Array, Array, Array]:
    """Return probabilities (n, k), labels, and further ones."""
    n, k = data
    if n == FEW:
        return make_few(k)
    if k > 2:
        z, y = make_several((n, k))
        return softmax(z), y, softmax(z), y
    rng = np.random.default_rng(n)
    p, y = np.empty((n + TEST, 2)), np.empty(n + TEST, int)
    # In blocks, so that the memory of a fit is seen beside that of its data.
    for first in range(0, len(y), 100_000):
        part = slice(first, first + 100_000)
        z = 3 * rng.standard_normal(len(y[part]))
        truth = 1 / (1 + np.exp(-0.5 * z - 0.8 * np.sin(z)))
        y[part] = rng.random(len(z)) < truth
        p[part, 1] = 1 / (1 + np.exp(-z))
        p[part, 0] = 1 - p[part, 1]
    return p[:n], y[:n], p[n:], y[n:]


def make_few(k: int) -> tuple[Array, Array, Array, Array]:
    """Draw few rows to fit and, as further rows, the first of them."""
    rng = np.random.default_rng(k)
    y = rng.integers(k, size=FEW)
    largest = np.where(rng.random(FEW) < 0.8, y, rng.integers(k, size=FEW))
    p = np.empty((FEW, k))
    for first in range(0, FEW, 100):
        part = slice(first, first + 100)
        z = 2 * rng.standard_normal((100, k))
        z[np.arange(100), largest[part]] += 4 + 2 * np.log(k)
        p[part] = softmax(z)
    return p, y, p[:100], y[:100]


def ours(name: str, report: bool = False, **options: Any) -> Any:
    def setup(p: Array, y: Array, at: Array, truth: Array) -> Any:
        import bayescal as bc

        cls = getattr(bc, name)

        def fit() -> Any:
            fitted = cls(**options).fit(p, y)
            if report:
                str(fitted.report_)
            return fitted

        return fit, lambda r: log_loss(r.predict_proba(at), truth)

    return setup


def probmetrics(name: str) -> Any:
    def setup(p: Array, y: Array, at: Array, truth: Array) -> Any:
        from probmetrics import calibrators

        cls = getattr(calibrators, name)
        return lambda: cls().fit(p, y), lambda r: log_loss(r.predict_proba(at), truth)

    return setup


def entries() -> list[Entry]:
    found = []
    for n in (100, 1000, 10_000, 1_000_000, 10_000_000):
        task = f"two classes, {n:,} rows"
        found.append(Entry(task, "bayescal", "AveragedBeta()", (n, 2), "", ours("AveragedBeta")))
        found.append(Entry(task, "bayescal", "Auto()", (n, 2), "", ours("Auto")))
        reported = ours("Auto", report=True)
        found.append(Entry(task, "bayescal", "Auto(), and its report", (n, 2), "", reported))
        for name in ("SVSCalibrator", "SMSCalibrator"):
            module = "probmetrics.calibrators"
            found.append(Entry(task, "probmetrics", name, (n, 2), module, probmetrics(name)))
    for n, k in ((5000, 10), (5000, 100), (25_000, 1000)):
        task = f"{k} classes, {n:,} rows"
        for mode in ("stack", "single"):
            own = ours("StackedScaling", mode=mode)
            found.append(Entry(task, "bayescal", f"StackedScaling({mode!r})", (n, k), "", own))
        for name in ("SVSCalibrator", "SMSCalibrator"):
            if k < 1000 or name == "SVSCalibrator":
                module = "probmetrics.calibrators"
                found.append(Entry(task, "probmetrics", name, (n, k), module, probmetrics(name)))
    for k in (10, 100, 1000, 10_000, 50_000):
        task, module = f"memory, {k:,} classes", "probmetrics.calibrators"
        own = ours("Auto", classes=tuple(range(k)))
        found.append(Entry(task, "bayescal", "Auto()", (FEW, k), "", own))
        theirs = probmetrics("SVSCalibrator")
        found.append(Entry(task, "probmetrics", "SVSCalibrator", (FEW, k), module, theirs))
    return found


if __name__ == "__main__":
    title = "Default calibrators"
    main(__file__, title, entries(), make, ["bayescal", "torch", "probmetrics"])
