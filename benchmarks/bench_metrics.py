"""Time of metrics beside other libraries, on the same data.

    python benchmarks/bench_metrics.py [--json FILE] [--task NAME ...]

The last column is the value, in float64 where a library has it: for "ece" the calibration error of
confidence in 15 bins of equal width, for "marginal" the debiased squares class by class in 15 bins
of equal mass, for "smooth" the smooth error of P(y = 1). For "streamed" batches of 1e5 rows are
made while the clock runs. "bootstrap" is 1,000 replicates, and the value their mean; loops over
other libraries draw rows of their own. "skce" without a bandwidth finds that, too.

Data of several classes: margin m = 4 + 2 ln k, class c uniform, z ~ N(0, 4) with z_c raised by m;
labels are drawn from softmax(W z + b) with diagonal entries of W from U(.25, .6), others from
N(0, .0025 / k), and b ~ N(0, .09); predicted are softmax(z). Of two: x ~ N(0, 4), predicted is
q = sigmoid(x), labels have P(y = 1) = sigmoid(.5 ln q - .8 ln(1 - q) - .3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Entry, main

Array = np.ndarray
_BATCH = 100_000
_REPLICATES = 1000


def several(n: int, k: int, seed: int) -> tuple[Array, Array]:
    """Return probabilities and labels."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(k, size=n)
    factors = rng.uniform(0.25, 0.6, k)
    weights = 0.05 / math.sqrt(k) * rng.standard_normal((k, k))
    np.fill_diagonal(weights, factors)
    intercept = 0.3 * rng.standard_normal(k)
    z = 2 * rng.standard_normal((n, k))
    z[np.arange(n), hidden] += 4 + 2 * math.log(k)
    y = np.argmax(z @ weights.T + intercept + rng.gumbel(size=z.shape), axis=1)
    z -= z.max(axis=1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(axis=1, keepdims=True)
    return z, y


def two(n: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    q = np.clip(1 / (1 + np.exp(-2 * rng.standard_normal(n))), 1e-9, 1 - 1e-9)
    p = 1 / (1 + np.exp(-(0.5 * np.log(q) - 0.8 * np.log1p(-q) - 0.3)))
    return q, (rng.random(n) < p).astype(np.int64)


def make(size: tuple[int, int]) -> tuple[Array, Array]:
    """Return data of some rows and classes; nothing where batches are made on the way."""
    n, k = size
    if n * k > 10**8:
        return np.array([n]), np.array([k])
    return two(n, 12) if k == 2 else several(n, k, 5)


def ours(name: str, dtype: type = np.float64, **options: Any) -> Any:
    def setup(p: Array, y: Array) -> Any:
        from bayescal import metrics

        p = p.astype(dtype)
        return lambda: getattr(metrics, name)(p, y, **options), float

    return setup


def streamed(size: Array, classes: Array) -> Any:
    """Return the set-up of an accumulator over batches of 1e5 rows."""
    from bayescal.metrics import Accumulator

    n, k = int(size[0]), int(classes[0])

    def call() -> dict[str, float]:
        total = Accumulator(["log_loss", "ece", "smooth_ece"], classes=k)
        rng = np.random.default_rng(0)
        for _ in range(n // _BATCH):
            raw = rng.random((_BATCH, k), np.float32)
            raw /= raw.sum(axis=1, keepdims=True)
            total.add(raw, rng.integers(0, k, _BATCH))
        return total.result()

    return call, lambda r: r["ece"]


def torch_ece(module: str) -> Any:
    def setup(p: Array, y: Array) -> Any:
        import torch

        torch.set_num_threads(1)
        narrow, t = torch.as_tensor(p, dtype=torch.float32), torch.as_tensor(y)
        if module == "probmetrics":
            from probmetrics.metrics import Metrics

            chosen = Metrics.from_names(["ece-15"])
            return lambda: chosen.compute_all_from_labels_probs(t, narrow), lambda r: float(
                r["ece-15"]
            )
        from torchmetrics.functional.classification import multiclass_calibration_error as error

        k = p.shape[1]
        return lambda: error(narrow, t, num_classes=k, n_bins=15), float

    return setup


def bootstrap(name: str, **options: Any) -> Any:
    """Return the set-up of 1,000 replicates at once."""

    def setup(p: Array, y: Array) -> Any:
        from bayescal import metrics

        return lambda: metrics.bootstrap(name, p, y, **options), lambda r: float(r.mean())

    return setup


def one_by_one(find: Callable[[], Callable[..., Any]], binary: bool = False) -> Any:
    """Return the set-up of as many replicates of another library, each on rows that are drawn."""

    def setup(p: Array, y: Array) -> Any:
        function = find()
        if binary:
            p, y = p.max(axis=1), (p.argmax(axis=1) == y).astype(np.int64)

        def call() -> float:
            rng = np.random.default_rng(0)
            rows = (rng.integers(0, len(y), len(y)) for _ in range(_REPLICATES))
            return float(np.mean([float(function(p[drawn], y[drawn])) for drawn in rows]))

        return call, float

    return setup


def torch_confidence() -> Callable[..., Any]:
    import torch
    from torchmetrics.functional.classification import multiclass_calibration_error as error

    torch.set_num_threads(1)
    return lambda p, y: error(
        torch.as_tensor(p), torch.as_tensor(y), num_classes=p.shape[1], n_bins=15
    )


def called(find: Callable[[], Callable[..., Any]], **options: Any) -> Any:
    """Return the set-up of a function of another library."""

    def setup(p: Array, y: Array) -> Any:
        function = find()
        return lambda: function(p, y, **options), float

    return setup


def netcal_ece() -> Callable[..., Any]:
    from netcal.metrics import ECE

    return ECE(15).measure


def uncertainty(name: str) -> Callable[[], Callable[..., Any]]:
    def find() -> Callable[..., Any]:
        import calibration

        return getattr(calibration, name)

    return find


def relplot_error() -> Callable[..., Any]:
    import relplot

    return relplot.smECE


def entries() -> list[Entry]:
    big, uc = (1_000_000, 10), "uncertainty-calibration"
    ece, marginal = "ece 1e6 x 10", "marginal 1e6 x 10"
    smooth, pairs, long = "smooth 1e6", "skce 1e4 x 10", "streamed 1e7 x 100"
    debiased = {"kind": "classwise"}
    some, drawn = (10_000, 10), "bootstrap 1e4 x 10"
    by_class = {"kind": "classwise", "binning": "equal_mass"}
    return [
        Entry(ece, "bayescal", "float64", big, "", ours("ece")),
        Entry(ece, "bayescal", "float32", big, "", ours("ece", np.float32)),
        Entry(ece, "probmetrics", "float32", big, "probmetrics.metrics", torch_ece("probmetrics")),
        Entry(ece, "torchmetrics", "float32", big, "torchmetrics", torch_ece("torchmetrics")),
        Entry(ece, "netcal", "", big, "netcal.metrics", called(netcal_ece)),
        Entry(ece, uc, "", big, "calibration", called(uncertainty("get_ece"), num_bins=15)),
        Entry(marginal, "bayescal", "", big, "", ours("debiased_ece", **debiased)),
        Entry(
            marginal, "bayescal", "equal width", big, "",
            ours("debiased_ece", binning="equal_width", **debiased),
        ),
        Entry(
            marginal, uc, "", big, "calibration", called(uncertainty("get_calibration_error"))
        ),
        Entry(smooth, "bayescal", "", (1_000_000, 2), "", ours("smooth_ece")),
        Entry(smooth, "relplot", "", (1_000_000, 2), "relplot", called(relplot_error)),
        Entry(pairs, "bayescal", "", (10_000, 10), "", ours("skce")),
        Entry(
            pairs, "bayescal", "bandwidth 0.5", (10_000, 10), "", ours("skce", bandwidth=0.5)
        ),
        Entry(long, "bayescal", "", (10_000_000, 100), "", streamed),
        Entry(f"{drawn}, ece", "bayescal", "", some, "", bootstrap("ece")),
        Entry(
            f"{drawn}, ece", "torchmetrics", "one by one", some, "torchmetrics",
            one_by_one(torch_confidence),
        ),
        Entry(f"{drawn}, ece", "netcal", "one by one", some, "netcal", one_by_one(netcal_ece)),
        Entry(f"{drawn}, smooth", "bayescal", "", some, "", bootstrap("smooth_ece")),
        Entry(
            f"{drawn}, smooth", "relplot", "one by one", some, "relplot",
            one_by_one(relplot_error, binary=True),
        ),
        Entry(f"{drawn}, log loss", "bayescal", "", some, "", bootstrap("log_loss")),
        Entry(f"{drawn}, kde", "bayescal", "", some, "", bootstrap("kde_ece")),
        Entry(
            f"{drawn}, classwise", "bayescal", "equal mass", some, "",
            bootstrap("ece", **by_class),
        ),
        Entry(
            f"{drawn}, classwise", "bayescal", "debiased", some, "",
            bootstrap("debiased_ece", kind="classwise"),
        ),
        Entry(f"{drawn}, loss gap", "bayescal", "", some, "", bootstrap("loss_gap")),
        Entry(
            f"{drawn}, skce", "bayescal", "bandwidth 0.5", some, "",
            bootstrap("skce", bandwidth=0.5),
        ),
        Entry(f"{drawn}, skce", "bayescal", "", some, "", bootstrap("skce")),
    ]  # fmt: skip


if __name__ == "__main__":
    libraries = "netcal", "probmetrics", "relplot", "torchmetrics", "uncertainty-calibration"
    main(__file__, "Metrics", entries(), make, libraries, "value")
