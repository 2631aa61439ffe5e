"""Time metrics, and compare them with other libraries on the same data.

    python benchmarks/bench_metrics.py [--json FILE] [--task NAME ...]

The last column is the value, in float64 where a library supports it. "ece" is the calibration error
of the confidence in 15 bins of equal width, "marginal" the debiased class-wise error of squares in
15 bins of equal mass, and "smooth" the smooth error of P(y = 1). "streamed" includes the time of
drawing batches of 1e5 rows. "bootstrap" computes 1,000 replicates, and the value is their mean;
loops over other libraries draw their own resamples. "skce" without a bandwidth also chooses the
bandwidth.

Data of several classes: margin m = 4 + 2 ln k, class c uniform, z ~ N(0, 4) with z_c raised by m.
Labels are drawn from softmax(W z + b) with diagonal entries of W from U(.25, .6), others from
N(0, .0025 / k), and b ~ N(0, .09). Predictions are softmax(z). Data of two classes: x ~ N(0, 4),
predictions are q = sigmoid(x), and P(y = 1) = sigmoid(.5 ln q - .8 ln(1 - q) - .3).
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


def draw_multiclass(n: int, k: int, seed: int) -> tuple[Array, Array]:
    """Draw probabilities and labels of several classes."""
    rng = np.random.default_rng(seed)
    dominant = rng.integers(k, size=n)
    factors = rng.uniform(0.25, 0.6, k)
    weights = 0.05 / math.sqrt(k) * rng.standard_normal((k, k))
    np.fill_diagonal(weights, factors)
    intercept = 0.3 * rng.standard_normal(k)
    z = 2 * rng.standard_normal((n, k))
    z[np.arange(n), dominant] += 4 + 2 * math.log(k)
    y = np.argmax(z @ weights.T + intercept + rng.gumbel(size=z.shape), axis=1)
    z -= z.max(axis=1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(axis=1, keepdims=True)
    return z, y


def draw_binary(n: int, seed: int) -> tuple[Array, Array]:
    """Draw probabilities and labels of two classes."""
    rng = np.random.default_rng(seed)
    q = np.clip(1 / (1 + np.exp(-2 * rng.standard_normal(n))), 1e-9, 1 - 1e-9)
    p = 1 / (1 + np.exp(-(0.5 * np.log(q) - 0.8 * np.log1p(-q) - 0.3)))
    return q, (rng.random(n) < p).astype(np.int64)


def make(size: tuple[int, int]) -> tuple[Array, Array]:
    """Draw data of some rows and classes; return only the sizes if batches are drawn later."""
    n, k = size
    if n * k > 10**8:
        return np.array([n]), np.array([k])
    return draw_binary(n, 12) if k == 2 else draw_multiclass(n, k, 5)


def compute(name: str, dtype: type = np.float64, **options: Any) -> Any:
    """Create the setup of a bayescal metric."""

    def setup(p: Array, y: Array) -> Any:
        from bayescal import metrics

        p = p.astype(dtype)
        return lambda: getattr(metrics, name)(p, y, **options), float

    return setup


def streamed(size: Array, classes: Array) -> Any:
    """Set up an accumulator over batches of 1e5 rows."""
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
    """Create the setup of the ECE of torchmetrics or probmetrics."""

    def setup(p: Array, y: Array) -> Any:
        import torch

        torch.set_num_threads(1)
        probs, labels = torch.as_tensor(p, dtype=torch.float32), torch.as_tensor(y)
        if module == "probmetrics":
            from probmetrics.metrics import Metrics

            metric = Metrics.from_names(["ece-15"])
            return lambda: metric.compute_all_from_labels_probs(labels, probs), lambda r: float(
                r["ece-15"]
            )
        from torchmetrics.functional.classification import multiclass_calibration_error as error

        k = p.shape[1]
        return lambda: error(probs, labels, num_classes=k, n_bins=15), float

    return setup


def bootstrap(name: str, **options: Any) -> Any:
    """Create the setup of 1,000 replicates that are computed at once."""

    def setup(p: Array, y: Array) -> Any:
        from bayescal import metrics

        return lambda: metrics.bootstrap(name, p, y, **options), lambda r: float(r.mean())

    return setup


def bootstrap_loop(find_function: Callable[[], Callable[..., Any]], binary: bool = False) -> Any:
    """Create the setup of 1,000 resamples, on which another library is called in a loop."""

    def setup(p: Array, y: Array) -> Any:
        function = find_function()
        if binary:
            p, y = p.max(axis=1), (p.argmax(axis=1) == y).astype(np.int64)

        def call() -> float:
            rng = np.random.default_rng(0)
            resamples = (rng.integers(0, len(y), len(y)) for _ in range(_REPLICATES))
            return float(np.mean([float(function(p[rows], y[rows])) for rows in resamples]))

        return call, float

    return setup


def torchmetrics_ece() -> Callable[..., Any]:
    """Import the ECE of torchmetrics."""
    import torch
    from torchmetrics.functional.classification import multiclass_calibration_error as error

    torch.set_num_threads(1)
    return lambda p, y: error(
        torch.as_tensor(p), torch.as_tensor(y), num_classes=p.shape[1], n_bins=15
    )


def call_peer(find_function: Callable[[], Callable[..., Any]], **options: Any) -> Any:
    """Create the setup of a function of another library."""

    def setup(p: Array, y: Array) -> Any:
        function = find_function()
        return lambda: function(p, y, **options), float

    return setup


def netcal_ece() -> Callable[..., Any]:
    """Import the ECE of netcal."""
    from netcal.metrics import ECE

    return ECE(15).measure


def find_uc(name: str) -> Callable[[], Callable[..., Any]]:
    """Create a function that imports a metric of uncertainty-calibration."""

    def find() -> Callable[..., Any]:
        import calibration

        return getattr(calibration, name)

    return find


def relplot_error() -> Callable[..., Any]:
    """Import the smooth ECE of relplot."""
    import relplot

    return relplot.smECE


def entries() -> list[Entry]:
    """List all entries; the first one of each task is bayescal."""
    big, uc = (1_000_000, 10), "uncertainty-calibration"
    ece, marginal = "ece 1e6 x 10", "marginal 1e6 x 10"
    smooth, pairs, long = "smooth 1e6", "skce 1e4 x 10", "streamed 1e7 x 100"
    debiased = {"kind": "classwise"}
    small, draws = (10_000, 10), "bootstrap 1e4 x 10"
    by_class = {"kind": "classwise", "binning": "equal_mass"}
    return [
        Entry(ece, "bayescal", "float64", big, "", compute("ece")),
        Entry(ece, "bayescal", "float32", big, "", compute("ece", np.float32)),
        Entry(ece, "probmetrics", "float32", big, "probmetrics.metrics", torch_ece("probmetrics")),
        Entry(ece, "torchmetrics", "float32", big, "torchmetrics", torch_ece("torchmetrics")),
        Entry(ece, "netcal", "", big, "netcal.metrics", call_peer(netcal_ece)),
        Entry(ece, uc, "", big, "calibration", call_peer(find_uc("get_ece"), num_bins=15)),
        Entry(marginal, "bayescal", "", big, "", compute("debiased_ece", **debiased)),
        Entry(
            marginal, "bayescal", "equal width", big, "",
            compute("debiased_ece", binning="equal_width", **debiased),
        ),
        Entry(
            marginal, uc, "", big, "calibration", call_peer(find_uc("get_calibration_error"))
        ),
        Entry(smooth, "bayescal", "", (1_000_000, 2), "", compute("smooth_ece")),
        Entry(smooth, "relplot", "", (1_000_000, 2), "relplot", call_peer(relplot_error)),
        Entry(pairs, "bayescal", "", (10_000, 10), "", compute("skce")),
        Entry(
            pairs, "bayescal", "bandwidth 0.5", (10_000, 10), "", compute("skce", bandwidth=0.5)
        ),
        Entry(long, "bayescal", "", (10_000_000, 100), "", streamed),
        Entry(f"{draws}, ece", "bayescal", "", small, "", bootstrap("ece")),
        Entry(
            f"{draws}, ece", "torchmetrics", "one by one", small, "torchmetrics",
            bootstrap_loop(torchmetrics_ece),
        ),
        Entry(f"{draws}, ece", "netcal", "one by one", small, "netcal", bootstrap_loop(netcal_ece)),
        Entry(f"{draws}, smooth", "bayescal", "", small, "", bootstrap("smooth_ece")),
        Entry(
            f"{draws}, smooth", "relplot", "one by one", small, "relplot",
            bootstrap_loop(relplot_error, binary=True),
        ),
        Entry(f"{draws}, log loss", "bayescal", "", small, "", bootstrap("log_loss")),
        Entry(f"{draws}, kde", "bayescal", "", small, "", bootstrap("kde_ece")),
        Entry(
            f"{draws}, classwise", "bayescal", "equal mass", small, "",
            bootstrap("ece", **by_class),
        ),
        Entry(
            f"{draws}, classwise", "bayescal", "debiased", small, "",
            bootstrap("debiased_ece", kind="classwise"),
        ),
        Entry(f"{draws}, loss gap", "bayescal", "", small, "", bootstrap("loss_gap")),
        Entry(
            f"{draws}, skce", "bayescal", "bandwidth 0.5", small, "",
            bootstrap("skce", bandwidth=0.5),
        ),
        Entry(f"{draws}, skce", "bayescal", "", small, "", bootstrap("skce")),
    ]  # fmt: skip


if __name__ == "__main__":
    libraries = "netcal", "probmetrics", "relplot", "torchmetrics", "uncertainty-calibration"
    main(__file__, "Metrics", entries(), make, libraries, "value")
