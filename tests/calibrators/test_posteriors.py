"""What every calibrator with a posterior promises."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

import bayescal as bc
from bayescal.calibrators.base.draws import ends_of_log_odds
from bayescal.calibrators.base.parametric import ParametricCalibrator, keep_draws
from bayescal.regression.draws import Draws
from benchmarks.coverage_bands import study
from tests.calibrators.cases import DEFAULTS, Case, each, make_data

PARAMETRIC = [case for case in DEFAULTS if issubclass(case.calibrator, ParametricCalibrator)]
each_parametric = each(PARAMETRIC)


@each_parametric
def test_posteriors_and_intervals(case: Case, tmp_path: Path) -> None:
    p, y, w, new = make_data(case)
    options: dict[str, Any] = {"inference": "laplace", "num_samples": 200}
    fitted = case(**options).fit(p, y, w)
    posterior = fitted.posterior_
    assert posterior.inference == "laplace" and posterior.divergences == 0 and posterior.draws
    for draws in posterior.draws.values():
        assert draws.shape[:2] == (1, 200)
    probs, before = fitted.predict_proba(new), (0.0, 1.0)
    predicted = probs[:, 1] if case.binary else probs
    for level in (0.99, 0.9, 0.5, 0.1):
        lower, upper = fitted.predict_interval(new, level=level)
        assert lower.shape == upper.shape == predicted.shape
        assert (before[0] <= lower).all() and (upper <= before[1]).all()
        assert ((lower > 0) & (lower < upper) & (upper < 1)).all()
        if level >= 0.9:
            assert ((lower < predicted) & (predicted < upper)).all()
        before = lower, upper
    default = fitted.predict_interval(new)
    np.testing.assert_array_equal(default, fitted.predict_interval(new, level=0.9))
    np.testing.assert_array_equal(case(**options).fit(p, y, w).predict_proba(new), probs)
    assert (case(**options, random_state=1).fit(p, y, w).predict_proba(new) != probs).any()
    bc.save(fitted, tmp_path / "file")
    for twin in (pickle.loads(pickle.dumps(fitted)), bc.load(tmp_path / "file")):
        np.testing.assert_array_equal(twin.predict_interval(new), default)
        assert repr(twin.posterior_) == repr(posterior)
    for level in (0.0, 1.0, -3, np.nan):
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1, got"):
            fitted.predict_interval(new, level)


# Of the draws of such heavy tails, fewer than 100 may be effective, which a warning says.
@pytest.mark.filterwarnings("ignore::bayescal.SamplingWarning")
@each([case for case in PARAMETRIC if case.binary])
def test_posteriors_of_data_without_a_finite_optimum(case: Case) -> None:
    p = np.linspace(0.05, 0.95, 40)
    for y in (p > 0.5, p > 2, p < 2):
        fitted = case(inference="laplace", classes=(0, 1)).fit(p, y.astype(int))
        lower, upper = fitted.predict_interval(p)
        assert fitted.status_ == "converged" and np.isfinite(fitted.predict_proba(p)).all()
        assert ((lower >= 0) & (lower < upper) & (upper <= 1)).all()


@each_parametric
def test_without_a_posterior_there_is_no_interval(case: Case) -> None:
    p, y, w, _ = make_data(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = case(inference="map").fit(p, y, w)
    message = "posterior_ needs inference='laplace' or 'nuts'; this was fitted with 'map'"
    with pytest.raises(AttributeError, match=message):
        fitted.posterior_  # noqa: B018
    # A stack of few classes computes intervals in another way.
    if not getattr(fitted, "has_interval_", False):
        with pytest.raises(AttributeError, match=message):
            fitted.predict_interval(p)
    with pytest.raises(ValueError, match="inference must be one of 'map', 'laplace', 'nuts', got"):
        case(inference="mcmc").fit(p, y)
    for samples in (0, -1):
        with pytest.raises(ValueError, match="num_samples must be at least 1"):
            case(inference="laplace", num_samples=samples).fit(p, y)


def test_bad_chains_are_said_to_be() -> None:
    def draws(r_hat: float, ess: float) -> Draws:
        return Draws(np.zeros((1, 4, 1)), np.array([1e3, ess]), np.array([1.0, r_hat]), 0, 0)

    for r_hat, ess in ((1.2, 1000.0), (1.0, 99.0)):
        with pytest.warns(bc.SamplingWarning, match="Temperature: .*raise num_samples"):
            keep_draws(bc.Temperature(inference="nuts"), draws(r_hat, ess))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keep_draws(bc.Temperature(inference="nuts"), draws(1.0, 101.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "truth", "low", "high"),
    [
        ("Beta", "slope", 0.8, 1.0),
        ("Beta", "wavy", 0.4, 0.7),
        ("Logistic", "slope", 0.8, 1.0),
        ("Logistic", "bent", 0.55, 0.85),
        ("GaussianProcess", "symmetric slope", 0.85, 1.0),
        ("GaussianProcess", "slope", 0.25, 0.6),
        ("GaussianProcess, 3 classes", "temperature", 0.85, 1.0),
        ("GaussianProcess, 3 classes", "class shifts", 0.15, 0.4),
        ("EnsembleTemperature, 3 classes", "temperature", 0.55, 0.85),
        ("Spline", "slope", 0.78, 0.99),
    ],
)
def test_bands_cover_what_docstrings_say(method: str, truth: str, low: float, high: float) -> None:
    """Check coverage at level 0.9 with 100 rows, for curves inside and outside the model."""
    assert low < study(method, truth, 100, 20)["coverage"] < high


@pytest.mark.parametrize("library", [np, jnp])
@pytest.mark.parametrize("scale", [0.0, 1.0, 200.0])
@pytest.mark.parametrize("draws", [1, 2, 3, 50])
def test_ends_are_quantiles_of_probabilities(draws: int, scale: float, library: Any) -> None:
    log_odds = np.round(scale * np.random.default_rng(0).normal(size=(draws, 40)), 1)  # tied
    for level in (0.01, 0.5, 0.999):
        with jax.enable_x64(True):
            result = np.asarray(ends_of_log_odds(library.asarray(log_odds), level))
        for column, probs in enumerate((expit(-log_odds), expit(log_odds))):
            expected = np.quantile(probs, [(1 - level) / 2, (1 + level) / 2], axis=0)
            np.testing.assert_allclose(result[:, :, column].T, expected, rtol=1e-12)
        assert (result[:, 0] <= result[:, 1]).all()


@pytest.mark.parametrize("library", [np, jnp])
def test_ends_of_equal_draws_are_equal(library: Any) -> None:
    """Check that rounding does not put the lower end above the upper end."""
    log_odds = np.tile(np.random.default_rng(0).normal(0, 3, 1_000), (50, 1))
    for level in (0.5, 0.9, 0.95):
        ends = np.asarray(ends_of_log_odds(library.asarray(log_odds), level))
        np.testing.assert_array_equal(ends[:, 0], ends[:, 1])


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, float("nan")])
def test_levels_of_intervals_of_parameters_are_checked(level: float) -> None:
    p, y = np.array([0.2, 0.4, 0.6, 0.8] * 5), np.array([0, 1, 0, 1] * 5)
    posterior = bc.Logistic(inference="laplace", num_samples=50).fit(p, y).posterior_
    with pytest.raises(ValueError, match="level must"):
        posterior.interval(level)
