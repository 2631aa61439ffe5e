"""Sweeps: numbers against the estimators', and invariances."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr

import bayescal as bc
from bayescal._core.execution.precision import float64
from bayescal._core.random.keys import as_key
from bayescal.datasets import synthetic
from bayescal.regression.binary.fit import fit_many
from bayescal.sweeps import _run
from bayescal.sweeps._block import measure
from bayescal.sweeps._cells import Cell, class_counts, digest_of, draw_block, keys_of

WIDE = bc.GaussianPrior(mu0=dist.Uniform(-1, 0), mu1=dist.Uniform(0, 1), sigma=1.0)
FAR = bc.GaussianPrior(mu0=dist.Uniform(-2.5, 0), mu1=dist.Uniform(0.5, 2.5), sigma=1.0)
SMALL: dict[str, Any] = {"num_datasets": 6, "n_test": 200, "progress": False}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "SIZE", 8)


def data_of(cell: Cell, count: int, key: int = 0) -> tuple[np.ndarray, ...]:
    block = draw_block(cell, keys_of(cell, as_key(key), 0, count))
    return tuple(np.asarray(part) for part in block[:4])


@pytest.mark.parametrize(
    ("name", "ratio"), [("normal", 0.8), ("platt", 0.5), ("ibls", 0.8), ("cauchy_map", 0.5)]
)
def test_regressions_are_those_of_the_estimator(name: str, ratio: float) -> None:
    result = bc.sweep(WIDE, n_train=30, class_ratio=ratio, methods=[name], **SMALL)
    x, y, test_x, test_y = data_of(Cell(WIDE, 30, ratio, 200), 6)
    for i in range(6):
        model = bc.LogisticRegression.preset(name).fit(x[i][:, None], y)
        p = model.predict_proba(test_x[i][:, None])[:, 1]
        value = result.value.isel(dataset=i).squeeze()
        loss = bc.metrics.log_loss(p, test_y)
        assert float(value.sel(metric="log_loss")) == pytest.approx(loss, rel=1e-6)
        error = bc.metrics.ece(p, test_y, bins=10)
        assert float(value.sel(metric="ece")) == pytest.approx(error, rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smoothed", "L1", "L2"])
def test_cross_validated_regressions_reach_the_optimum(name: str) -> None:
    """Check only the optimum, since folds, and so choices, differ from the estimator's."""
    from scipy.optimize import minimize

    from bayescal.regression.method import SMOOTHINGS, STRENGTHS
    from bayescal.sweeps._methods import fit_lines

    x, y, *_ = data_of(Cell(WIDE, 40, 0.5, 10), 3)
    with float64():
        lines = fit_lines(name, x, y)  # type: ignore[arg-type]
        result = np.stack([lines.intercept, lines.slope], axis=1)
    grid = SMOOTHINGS if name == "smoothed" else STRENGTHS
    for scores, coefficients in zip(x, result, strict=True):

        def value(theta: np.ndarray, strength: float, scores: np.ndarray = scores) -> float:
            line = theta[0] + theta[1] * scores
            t = y + strength * (1 - 2 * y) if name == "smoothed" else y
            penalty = {"smoothed": 0.0, "L1": abs(theta[1]), "L2": theta[1] ** 2 / 2}[name]
            return float(np.sum(np.logaddexp(0, line) - t * line) + strength * penalty)

        gaps = []
        for strength in grid:
            exact = {"fatol": 1e-12, "xatol": 1e-8}
            best = minimize(value, [0.0, 0.5], (strength,), "Nelder-Mead", options=exact)
            gaps.append((value(coefficients, strength) - best.fun) / best.fun)
        # It is the optimum of one candidate, and not below that of any.
        assert min(np.abs(gaps)) < 1e-9
        assert min(gaps) > -1e-9


@pytest.mark.slow
def test_informed_methods_are_those_of_the_posterior(x64: None) -> None:
    options = {"method": "predictive", "integrator": "montecarlo", "num_samples": 2000}
    methods = {"predictive": "predictive", "preds": "preds", "drawn": options}
    result = bc.sweep(FAR, n_train=12, methods=methods, **SMALL)
    x, y, test_x, test_y = data_of(Cell(FAR, 12, 0.5, 200), 6)
    for i in range(6):
        for method in ("predictive", "preds"):
            post = bc.posterior(FAR, (x[i], y), integrator="quadrature", class_prior=0.5)
            loss = bc.metrics.log_loss(post.predict(test_x[i], method=method).probs, test_y)
            value = result.value.isel(dataset=i).sel({"calibrator": method, "metric": "log_loss"})
            assert float(value.squeeze()) == pytest.approx(loss, rel=1e-6)
    drawn, exact = (
        result.value.sel({"calibrator": m, "metric": "log_loss"}) for m in ("drawn", "predictive")
    )
    assert 0 < float(abs(drawn - exact).max()) < 0.05


@pytest.mark.slow
def test_nothing_beats_the_optimum() -> None:
    how: Any = {"num_datasets": 40, "n_test": 2000, "progress": False}
    methods = ["optimal", "predictive", "platt"]
    result = bc.sweep({"wide": WIDE, "far": FAR}, n_train=20, methods=methods, **how)
    loss = result.value.sel(metric="log_loss").mean("dataset").squeeze()
    assert (loss.sel({"calibrator": "optimal"}) < loss.sel({"calibrator": "predictive"})).all()
    assert (loss.sel({"calibrator": "predictive"}) < loss.sel({"calibrator": "platt"})).all()
    # The mean over priors and test points of the loss of known parameters.
    for name, prior in {"wide": WIDE, "far": FAR}.items():
        some = result.value.sel(
            {"metric": "log_loss", "calibrator": "optimal", "prior": name}
        ).squeeze()
        error = float(some.std(ddof=1)) / np.sqrt(40)
        exact = synthetic.bayes_optimal_log_loss(prior)
        assert abs(float(some.mean()) - exact) < 4 * error


def test_estimators_and_functions() -> None:
    from sklearn.linear_model import LogisticRegression

    def flat(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
        return np.zeros(len(points))

    methods = {
        "sklearn": LogisticRegression(C=np.inf, tol=1e-8),
        "normal": "normal",
        "isotonic": bc.Isotonic(inputs="scores"),
        "flat": flat,
    }
    result = bc.sweep(WIDE, n_train=40, methods=methods, **SMALL)
    loss = result.value.sel(metric="log_loss").squeeze()
    np.testing.assert_allclose(
        loss.sel({"calibrator": "sklearn"}), loss.sel({"calibrator": "normal"}), rtol=1e-5
    )
    np.testing.assert_allclose(loss.sel({"calibrator": "flat"}), np.log(2), rtol=1e-12)
    assert (result.status == 0).all()


def test_decision_functions_that_are_no_log_odds() -> None:
    from sklearn.ensemble import GradientBoostingClassifier

    boosting = GradientBoostingClassifier(loss="exponential", n_estimators=5, random_state=0)

    def by_hand(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
        p = boosting.fit(x[:, None], y).predict_proba(points[:, None])
        return np.log(p[:, 1] / p[:, 0])

    methods = {"boosting": boosting, "by hand": by_hand}
    loss = bc.sweep(WIDE, n_train=40, methods=methods, **SMALL).value.sel(metric="log_loss")
    np.testing.assert_allclose(*loss.transpose("calibrator", ...).values, rtol=1e-9)


@pytest.mark.slow
def test_results_depend_on_the_key_alone(tmp_path: Path) -> None:
    methods = ["platt", "predictive"]
    whole = bc.sweep({"w": WIDE, "f": FAR}, n_train=[10, 20], methods=methods, **SMALL)
    # Fewer data sets, sizes and priors, with other names and another order.
    part = bc.sweep({"x": FAR}, n_train=20, methods=methods[::-1], **{**SMALL, "num_datasets": 3})
    expected = whole.value.sel(prior="f", n_train=20).isel(dataset=slice(3))
    result = part.value.squeeze(["prior", "n_train"]).sel({"calibrator": methods})
    np.testing.assert_array_equal(result.transpose(*expected.dims), expected)
    other = bc.sweep({"w": WIDE, "f": FAR}, n_train=[10, 20], methods=methods, key=1, **SMALL)
    assert (other.value != whole.value).mean() > 0.9


def test_sizes_share_parameters_and_test_data() -> None:
    small, large = Cell(WIDE, 10, 0.5, 50), Cell(WIDE, 30, 0.7, 50)
    first, second = (draw_block(cell, keys_of(cell, as_key(0), 0, 4)) for cell in (small, large))
    np.testing.assert_array_equal(first.test_x, second.test_x)
    np.testing.assert_array_equal(first.parameters["mu0"], second.parameters["mu0"])
    assert not np.isin(first.x, second.x).any()
    assert not np.isin(first.x, first.test_x).any()
    assert len(np.unique(first.parameters["mu0"])) == 4


@pytest.mark.slow
def test_size_of_blocks_changes_no_digits_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**SMALL, "num_datasets": 11}
    methods = ["normal", "L1", "predictive", "optimal"]
    one = bc.sweep(FAR, n_train=15, methods=methods, **options)
    monkeypatch.setattr(_run, "SIZE", 3)
    other = bc.sweep(FAR, n_train=15, methods=methods, **options)
    np.testing.assert_allclose(one.value, other.value, rtol=1e-9)


@pytest.mark.slow
def test_threads_leave_the_warning_filters_as_they_were() -> None:
    import warnings

    from sklearn.linear_model import LogisticRegression

    def constant(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
        return np.zeros(len(points))

    methods = {
        "informed": "predictive", "estimator": LogisticRegression(max_iter=1), "own": constant
    }  # fmt: skip
    # Imports at the first call may add filters.
    bc.sweep(WIDE, n_train=[10], methods=methods, **{**SMALL, "num_datasets": 2})
    before = list(warnings.filters)
    options = {**SMALL, "num_datasets": 20}
    with ThreadPoolExecutor(4) as executor:
        bc.sweep(WIDE, n_train=[10, 12], methods=methods, executor=executor, **options)
    assert warnings.filters == before


@pytest.mark.slow
def test_a_prior_is_what_a_method_believes() -> None:
    def by_hand(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
        post = bc.posterior(FAR, (x, y), integrator="quadrature", class_prior=0.5)
        return post.predict(points).log_odds

    methods = {
        "right": "predictive",
        "same": WIDE,
        "wrong": FAR,
        "by hand": by_hand,
        "mode": {"method": "map", "prior": FAR},
    }
    result = bc.sweep(WIDE, n_train=10, methods=methods, **SMALL)
    rows = result.value.sel(metric="log_loss").squeeze().values
    loss = dict(zip(methods, rows, strict=True))
    np.testing.assert_array_equal(loss["right"], loss["same"])
    np.testing.assert_allclose(loss["wrong"], loss["by hand"], rtol=1e-6)
    assert (loss["mode"] != loss["wrong"]).all()
    with pytest.raises(TypeError, match="prior must be a Prior"):
        bc.sweep(WIDE, n_train=10, methods={"odd": {"prior": 3}}, **SMALL)


def test_functions_are_called_for_the_data_sets_asked_for_only(tmp_path: Path) -> None:
    log = tmp_path / "calls"

    def centered(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
        with log.open("a") as file:
            file.write("called\n")
        return points - x.mean()

    def calls() -> int:
        return len(log.read_text().splitlines())

    options = {**SMALL, "n_train": 10, "methods": {"own": centered}, "store": tmp_path / "kept"}
    few = bc.sweep(WIDE, **{**options, "num_datasets": 3})
    assert calls() == 3
    # A stored block of three data sets is not a block of ten.
    many = bc.sweep(WIDE, **{**options, "num_datasets": 10})
    assert calls() == 13
    np.testing.assert_array_equal(few.value, many.value.isel(dataset=slice(3)))
    again = bc.sweep(WIDE, **{**options, "num_datasets": 10})
    assert calls() == 13
    np.testing.assert_array_equal(again.value, many.value)


def test_digests_are_the_same_in_every_process() -> None:
    code = (
        "from bayescal.datasets.synthetic import experiments;"
        "from bayescal.sweeps._cells import digest_of;"
        "print([digest_of(p) for p in experiments().values()])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    priors = synthetic.experiments()
    # Distributions cache computed attributes.
    assert all(prior.values["mu1"].support is not None for prior in priors.values())
    digests = [digest_of(prior) for prior in priors.values()]
    assert result.stdout.strip() == str(digests)
    assert len(set(digests)) == 5
    other = bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=dist.HalfNormal(2.0))
    assert digest_of(other) != digest_of(bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=2.0))


def test_metrics_by_their_other_names() -> None:
    rng = np.random.default_rng(0)
    log_odds, y = rng.normal(size=(2, 300)), rng.integers(0, 2, 300)
    result = measure({name: (name, {}) for name in ("brier", "ace", "nll")}, log_odds, y)
    for row, z in zip(result, log_odds, strict=True):
        p = 1 / (1 + np.exp(-z))
        expected = [
            bc.metrics.brier_score(p, y),
            bc.metrics.ece(p, y, binning="equal_mass"),
            bc.metrics.log_loss(p, y),
        ]
        np.testing.assert_allclose(row, expected, rtol=1e-9)


@pytest.mark.parametrize(("name", "hint"), [("roc_auc", ""), ("brier_scor", "; did you mean")])
def test_errors_never_suggest_the_metric_that_a_sweep_refuses(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"got '{name}'{hint or '$'}"):
        bc.sweep(WIDE, metrics=[name])


def test_shape_of_the_result() -> None:
    result = bc.sweep(
        {"w": WIDE}, n_train=[10, 20], class_ratio=[0.5, 0.7], methods=["platt", "normal"],
        metrics={"loss": ("log_loss", {}), "right": ("accuracy", {})}, **SMALL,
    )  # fmt: skip
    assert isinstance(result, xr.Dataset)
    dims = ("prior", "n_train", "class_ratio", "calibrator", "dataset", "metric")
    assert result.value.dims == dims
    assert result.value.shape == (1, 2, 2, 2, 6, 2)
    assert result.status.dims == dims[:-1]
    assert not result.value.isnull().any()
    assert json.loads(result.attrs["priors"]) == {"w": repr(WIDE)}
    assert result.attrs["key"] == [0, 0]
    assert {"data", "platt", "normal", "metrics"} == set(json.loads(result.attrs["seconds"]))
    assert class_counts(10, 0.7) == (3, 7) and class_counts(3, 0.99) == (1, 2)


def test_separable_data_are_said_to_have_no_optimum() -> None:
    prior = bc.GaussianPrior(mu0=-9.0, mu1=9.0, sigma=1.0)
    result = bc.sweep(prior, n_train=8, methods=["normal", "platt"], **SMALL)
    assert (result.status.sel({"calibrator": "normal"}) == 2).all()
    assert (result.status.sel({"calibrator": "platt"}) == 0).all()


def test_a_method_that_predicts_nan_has_no_values() -> None:
    def lost(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
        return np.where(np.arange(len(points)) == 3, np.nan, x[0] > 0)

    def sure(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
        return np.full(len(points), np.inf)

    metrics = {"ece": ("ece", {}), "log_loss": ("log_loss", {})}
    result = bc.sweep(WIDE, methods={"lost": lost, "sure": sure}, metrics=metrics, **SMALL)
    assert np.isnan(result.value.sel({"calibrator": "lost"})).all()
    assert (result.status.sel({"calibrator": "lost"}) == 3).all()
    assert not np.isnan(result.value.sel({"calibrator": "sure", "metric": "ece"})).any()
    assert (result.status.sel({"calibrator": "sure"}) == 0).all()


def test_training_sets_of_many_sizes_compile_one_fit() -> None:
    fit_many.clear_cache()
    bc.sweep(WIDE, n_train=[6, 12, 24, 90], methods=["platt"], **SMALL)
    assert fit_many._cache_size() == 1
