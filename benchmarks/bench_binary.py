"""Time binary calibrators, and compare them with other libraries.

    python benchmarks/bench_binary.py [--json FILE] [--task NAME ...]

All methods for a task see the same scores and labels in the same run. Their mean log loss on these
rows shows whether they reached the same objective.

Data: x ~ N(0, 4), q = sigmoid(x), P(y = 1) = sigmoid(0.5 ln q - 0.8 ln(1 - q) - 0.3). Kernel
density estimates use 5,000 draws from each of N(-2, 1/4) and N(1, 1), evaluated at 10,000 points.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Entry, main

SEEDS = {1: 8, 100: 9, 1_000: 10, 10_000: 11, 1_000_000: 12}


def make(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw probabilities and labels."""
    rng = np.random.default_rng(SEEDS[n])
    q = np.clip(1 / (1 + np.exp(-2 * rng.standard_normal(n))), 1e-9, 1 - 1e-9)
    p = 1 / (1 + np.exp(-(0.5 * np.log(q) - 0.8 * np.log1p(-q) - 0.3)))
    return q, (rng.random(n) < p).astype(np.int64)


def make_points() -> tuple[np.ndarray, np.ndarray]:
    """Draw the data and the points of the density estimate."""
    rng = np.random.default_rng(21)
    data = np.concatenate([-2 + 0.5 * rng.standard_normal(5000), 1 + rng.standard_normal(5000)])
    rng.shuffle(data)
    return data, rng.uniform(-5, 5, 10_000)


def log_loss(p: Any, y: np.ndarray) -> float:
    """Compute the mean log loss from probabilities of class 1, or of both classes."""
    p = np.asarray(p, float)
    p = p[:, 1] if p.ndim == 2 else p
    return float(-np.mean(np.log(np.clip(np.where(y == 1, p, 1 - p), 1e-300, None))))


def fit_bayescal(name: str, **options: Any) -> Any:
    """Create the setup of a fit by a bayescal calibrator."""

    def setup(q: np.ndarray, y: np.ndarray) -> Any:
        import bayescal as bc

        cls = getattr(bc, name)
        return lambda: cls(**options).fit(q, y), lambda r: log_loss(r.predict_proba(q), y)

    return setup


def fit_and_predict(name: str) -> Any:
    """Create the setup of a fit and a prediction by a bayescal calibrator."""

    def setup(q: np.ndarray, y: np.ndarray) -> Any:
        import bayescal as bc

        cls = getattr(bc, name)
        return lambda: cls().fit(q, y).predict_proba(q), lambda r: log_loss(r, y)

    return setup


def predict(module: str, name: str, as_function: bool = False) -> Any:
    """Create the setup of predictions by a calibrator that is fitted to 2,000 other rows."""

    def setup(q: np.ndarray, y: np.ndarray) -> Any:
        cls = getattr(importlib.import_module(module), name)
        rows, labels = make(10_000)
        probs, new_probs = (np.column_stack([1 - p, p]) for p in (rows[:2_000], q))
        fitted = cls().fit(probs, labels[:2_000])
        call = fitted.as_function() if as_function else fitted.predict_proba
        return lambda: call(new_probs), lambda r: log_loss(r, y)

    return setup


def sklearn_predict(name: str) -> Any:
    """Create the setup of predictions by one of the maps that scikit-learn's calibrator fits."""

    def setup(q: np.ndarray, y: np.ndarray) -> Any:
        from sklearn.calibration import _SigmoidCalibration
        from sklearn.isotonic import IsotonicRegression

        rows, labels = make(10_000)
        maps = {
            "sigmoid": _SigmoidCalibration(),
            "isotonic": IsotonicRegression(out_of_bounds="clip"),
        }
        to_scores = log_odds_of if name == "sigmoid" else np.asarray
        fitted = maps[name].fit(to_scores(rows[:2_000]), labels[:2_000])
        scores = to_scores(q)
        return lambda: fitted.predict(scores), lambda r: log_loss(r, y)

    return setup


def log_odds_of(p: np.ndarray) -> np.ndarray:
    """Compute log odds from probabilities."""
    return np.log(p) - np.log1p(-p)


def sklearn_logistic(q: np.ndarray, y: np.ndarray) -> Any:
    """Set up a fit of Platt's model to log odds with scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    x = log_odds_of(q)[:, None]
    return lambda: LogisticRegression(C=np.inf).fit(x, y), lambda r: log_loss(r.predict_proba(x), y)


def numpy_newton(columns: Callable[[np.ndarray], list[np.ndarray]]) -> Any:
    """Create the setup of undamped Newton steps in NumPy, a lower bound of the cost of a fit."""

    def setup(q: np.ndarray, y: np.ndarray) -> Any:
        design = np.column_stack([np.ones_like(q), *columns(q)])

        def fit() -> np.ndarray:
            beta = np.zeros(design.shape[1])
            for _ in range(50):
                p = 1 / (1 + np.exp(-design @ beta))
                gradient = design.T @ (p - y)
                hessian = (design * (p * (1 - p))[:, None]).T @ design
                step = np.linalg.solve(hessian, gradient)
                beta -= step
                if gradient @ step < 1e-10 * len(y):
                    break
            return beta

        return fit, lambda beta: log_loss(1 / (1 + np.exp(-design @ beta)), y)

    return setup


def betacal(q: np.ndarray, y: np.ndarray) -> Any:
    """Set up a fit of beta calibration by betacal."""
    from betacal import BetaCalibration

    fit = lambda: BetaCalibration("abm").fit(q[:, None], y)  # noqa: E731
    return fit, lambda r: log_loss(r.predict(q[:, None]), y)


def sklearn_isotonic(q: np.ndarray, y: np.ndarray) -> Any:
    """Set up an isotonic fit by scikit-learn."""
    from sklearn.isotonic import IsotonicRegression

    fit = lambda: IsotonicRegression(out_of_bounds="clip").fit(q, y)  # noqa: E731
    return fit, lambda r: log_loss(r.predict(q), y)


def scipy_isotonic(q: np.ndarray, y: np.ndarray) -> Any:
    """Set up an isotonic fit by SciPy."""
    from scipy.optimize import isotonic_regression

    def fit() -> Any:
        order = np.argsort(q)
        return order, isotonic_regression(y[order]).x

    return fit, lambda r: log_loss(r[1], y[r[0]])


def splinecalib(q: np.ndarray, y: np.ndarray) -> Any:
    """Set up a spline fit by splinecalib."""
    from splinecalib import SplineCalib

    def fit() -> Any:
        calibrator = SplineCalib()
        calibrator.fit(q, y)
        return calibrator

    return fit, lambda r: log_loss(r.calibrate(q), y)


def probmetrics(name: str, **options: Any) -> Any:
    """Create the setup of a fit by a probmetrics calibrator."""

    def setup(q: np.ndarray, y: np.ndarray) -> Any:
        cls = getattr(importlib.import_module("probmetrics.calibrators"), name)
        probs = np.column_stack([1 - q, q])
        return lambda: cls(**options).fit(probs, y), lambda r: log_loss(r.predict_proba(probs), y)

    return setup


def netcal(name: str, **options: Any) -> Any:
    """Create the setup of a fit by a netcal calibrator."""

    def setup(q: np.ndarray, y: np.ndarray) -> Any:
        cls = getattr(importlib.import_module("netcal.binning"), name)

        def fit() -> Any:
            calibrator = cls(**options)
            calibrator.fit(q, y)
            return calibrator

        return fit, lambda r: log_loss(r.transform(q), y)

    return setup


def venn_abers(q: np.ndarray, y: np.ndarray) -> Any:
    """Set up a Venn-Abers fit and prediction by venn-abers."""
    from venn_abers import VennAbers

    probs = np.column_stack([1 - q, q])

    def fit() -> Any:
        calibrator = VennAbers()
        calibrator.fit(probs, y)
        return calibrator.predict_proba(probs)[0]

    return fit, lambda r: log_loss(r, y)


def numpyro_nuts(q: np.ndarray, y: np.ndarray) -> Any:
    """Set up NUTS for Platt's model: one chain of 100 + 250 draws, compiled in every call."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import MCMC, NUTS

    x = np.log(q) - np.log1p(-q)
    inputs = jnp.asarray(x), jnp.asarray(y)

    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(1, 10))
        b = numpyro.sample("b", dist.Normal(0, 10))
        numpyro.sample("y", dist.Bernoulli(logits=w * x + b), obs=y)

    def fit() -> Any:
        sampler = MCMC(NUTS(model), num_warmup=100, num_samples=250, progress_bar=False)
        sampler.run(jax.random.PRNGKey(0), *inputs)
        return {name: np.asarray(v) for name, v in sampler.get_samples().items()}

    def quality(draws: Any) -> float:
        lines = (w * x + b for w, b in zip(draws["w"], draws["b"], strict=True))
        return log_loss(np.mean([1 / (1 + np.exp(-line)) for line in lines], axis=0), y)

    return fit, quality


def bayescal_density(q: np.ndarray, y: np.ndarray) -> Any:
    """Set up bayescal's kernel density estimate."""
    from bayescal.smoothing._kernels import kernel_log_density

    data, points = make_points()
    call = lambda: kernel_log_density(data[:, None], points[:, None], np.ones(len(data)))  # noqa: E731
    return call, lambda r: float(np.mean(r))


def scipy_density(q: np.ndarray, y: np.ndarray) -> Any:
    """Set up SciPy's kernel density estimate."""
    from scipy.stats import gaussian_kde

    data, points = make_points()
    call = lambda: gaussian_kde(data, "silverman")(points)  # noqa: E731
    return call, lambda r: float(np.mean(np.log(np.clip(r, 1e-300, None))))


def log_odds(q: np.ndarray) -> list[np.ndarray]:
    """Compute the features of the logistic map."""
    return [np.log(q) - np.log1p(-q)]


def both_logs(q: np.ndarray) -> list[np.ndarray]:
    """Compute the features of the beta map."""
    return [np.log(q), -np.log1p(-q)]


def small_entries() -> list[Entry]:
    """List fits to few rows, and predictions of the default calibrator."""
    result = []
    for n in (100, 1_000):
        result += [
            Entry(f"few logistic {n}", "bayescal", "Logistic", n, "", fit_bayescal("Logistic")),
            Entry(f"few logistic {n}", "scikit-learn", "lbfgs", n, "sklearn", sklearn_logistic),
            Entry(f"few beta {n}", "bayescal", "Beta", n, "", fit_bayescal("Beta")),
            Entry(f"few beta {n}", "betacal", "abm", n, "betacal", betacal),
        ]
    svs = predict("probmetrics.calibrators", "SVSCalibrator")
    for name, library, peer, sizes in (
        ("Logistic", "scikit-learn", sklearn_predict("sigmoid"), (1, 1_000)),
        ("Isotonic", "scikit-learn", sklearn_predict("isotonic"), (1, 1_000)),
        ("Auto", "probmetrics", svs, (1, 1_000, 10_000, 1_000_000)),
    ):
        for n in sizes:
            task, function = f"predict {name} {n}", predict("bayescal", name, as_function=True)
            result += [
                Entry(task, "bayescal", "predict_proba", n, "", predict("bayescal", name)),
                Entry(task, "bayescal", "as_function", n, "", function),
                Entry(
                    task, library, "", n, {"scikit-learn": "sklearn"}.get(library, library), peer
                ),
            ]
    return result


def entries() -> list[Entry]:
    """List all entries; the first one of each task is bayescal."""
    result = [
        Entry(
            "temperature 1e4", "bayescal", "Temperature", 10_000, "", fit_bayescal("Temperature")
        ),
    ]
    small, large = 10_000, 1_000_000
    for n in (small, large):
        size = f"{n:.0e}".replace("+0", "")
        result += [
            Entry(f"logistic {size}", "bayescal", "Logistic", n, "", fit_bayescal("Logistic")),
            Entry(f"logistic {size}", "scikit-learn", "lbfgs", n, "sklearn", sklearn_logistic),
            Entry(f"logistic {size}", "numpy", "Newton", n, "numpy", numpy_newton(log_odds)),
            Entry(f"beta {size}", "bayescal", "Beta", n, "", fit_bayescal("Beta")),
            Entry(f"beta {size}", "betacal", "abm", n, "betacal", betacal),
            Entry(f"beta {size}", "numpy", "Newton", n, "numpy", numpy_newton(both_logs)),
            Entry(f"isotonic {size}", "bayescal", "Isotonic", n, "", fit_bayescal("Isotonic")),
            Entry(f"isotonic {size}", "scikit-learn", "", n, "sklearn", sklearn_isotonic),
            Entry(f"isotonic {size}", "scipy", "argsort and pool", n, "scipy", scipy_isotonic),
            Entry(f"isotonic {size}", "netcal", "", n, "netcal", netcal("IsotonicRegression")),
        ]
    pm = "probmetrics"
    bins = "BinaryHistogramBinningCalibrator"
    mass = fit_bayescal("Histogram", bins=15, binning="equal_mass")
    nuts = fit_bayescal("Logistic", inference="nuts", random_state=0)
    result += [
        *small_entries(),
        Entry("spline 1e6", "bayescal", "Spline", large, "", fit_bayescal("Spline")),
        Entry("spline 1e4", "bayescal", "Spline", small, "", fit_bayescal("Spline")),
        Entry("spline 1e4", "splinecalib", "", small, "splinecalib", splinecalib),
        Entry("CDF spline 1e4", "bayescal", "CDFSpline", small, "", fit_bayescal("CDFSpline")),
        Entry("CDF spline 1e4", pm, "", small, pm, probmetrics("CDFSplineCalibrator")),
        Entry(
            "width bins 1e6", "bayescal", "Histogram", large, "", fit_bayescal("Histogram", bins=15)
        ),
        Entry("width bins 1e6", "netcal", "", large, "netcal", netcal("HistogramBinning", bins=15)),
        Entry(
            "width bins 1e6", pm, "", large, pm, probmetrics(bins, n_bins=15, strategy="uniform")
        ),
        Entry("mass bins 1e6", "bayescal", "Histogram", large, "", mass),
        Entry(
            "mass bins 1e6", pm, "", large, pm, probmetrics(bins, n_bins=15, strategy="quantile")
        ),
        Entry("BBQ 1e4", "bayescal", "BBQ", small, "", fit_bayescal("BBQ")),
        Entry("BBQ 1e4", "netcal", "", small, "netcal", netcal("BBQ")),
        Entry("Venn-Abers 1e4", "bayescal", "VennAbers", small, "", fit_and_predict("VennAbers")),
        Entry("Venn-Abers 1e4", "venn-abers", "", small, "venn_abers", venn_abers),
        Entry("density 1e4 x 1e4", "bayescal", "log density", small, "", bayescal_density),
        Entry("density 1e4 x 1e4", "scipy", "gaussian_kde", small, "scipy", scipy_density),
        Entry("NUTS logistic 1e4", "bayescal", "4 chains, 1,000 draws", small, "", nuts),
        Entry("NUTS logistic 1e4", "numpyro", "1 chain, 250 draws", small, "numpyro", numpyro_nuts),
    ]
    return result


if __name__ == "__main__":
    names = "betacal", "netcal", "probmetrics", "splinecalib", "venn-abers"
    main(__file__, "Binary calibrators", entries(), make, names)
