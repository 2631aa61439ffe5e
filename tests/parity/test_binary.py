"""Binary calibrators against other libraries: agreement, or the reason for a difference.

The marker of a test lists the libraries that it needs.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import bayescal as bc

pytestmark = pytest.mark.parity

Array = np.ndarray


def make_probs(n: int = 3000, seed: int = 0) -> tuple[Array, Array]:
    """Draw over-confident probabilities, and labels from a beta map of them."""
    rng = np.random.default_rng(seed)
    q = np.clip(expit(2 * rng.standard_normal(n)), 1e-9, 1 - 1e-9)
    p = expit(0.5 * np.log(q) - 0.8 * np.log1p(-q) - 0.3)
    return q, (rng.random(n) < p).astype(int)


def log_loss(p: Array, y: Array) -> float:
    return float(-np.mean(np.log(np.where(y == 1, p, 1 - p))))


def regret(p: Array, q: Array) -> float:
    """Compute the expected excess log loss of p over the true probabilities at scores q."""
    truth = expit(0.5 * np.log(q) - 0.8 * np.log1p(-q) - 0.3)
    gain = truth * np.log(truth / p) + (1 - truth) * np.log((1 - truth) / (1 - p))
    return float(np.mean(gain))


def fit_predict(calibrator: Any, q: Array, y: Array) -> Array:
    return calibrator.fit(q, y).predict_proba(q)[:, 1]


@pytest.mark.parity("betacal")
@pytest.mark.filterwarnings("ignore")
class TestBetacal:
    @pytest.mark.parametrize(
        ("theirs", "calibrator"), [("abm", bc.Beta(3)), ("ab", bc.Beta(2)), ("am", bc.Logistic())]
    )
    def test_same_model_same_optimum(self, theirs: str, calibrator: Any) -> None:
        import betacal

        q, y = make_probs()
        expected = betacal.BetaCalibration(theirs).fit(q[:, None], y).predict(q[:, None])
        result = fit_predict(calibrator, q, y)
        # Their solver stops at a gradient of 1e-4, so ours is never worse.
        assert log_loss(result, y) <= log_loss(expected, y) + 1e-12
        assert log_loss(result, y) == pytest.approx(log_loss(expected, y), rel=1e-6)
        np.testing.assert_allclose(result, expected, atol=2e-3)

    def test_weights(self) -> None:
        import betacal

        q, y = make_probs(500)
        w = np.random.default_rng(1).uniform(0.1, 3, len(y))
        expected = betacal.BetaCalibration("abm").fit(q[:, None], y, w).predict(q[:, None])
        result = bc.Beta().fit(q, y, sample_weight=w).predict_proba(q)[:, 1]

        def loss(p: Array) -> float:
            return float(-np.sum(w * np.log(np.where(y == 1, p, 1 - p))))

        assert loss(result) <= loss(expected) * (1 + 1e-12)
        assert loss(result) == pytest.approx(loss(expected), rel=1e-6)

    def test_a_negative_coefficient_is_held_at_zero(self) -> None:
        import betacal

        rng = np.random.default_rng(3)
        q = np.clip(expit(2 * rng.standard_normal(3000)), 1e-9, 1 - 1e-9)
        y = (rng.random(3000) < expit(-0.4 * np.log(q) - 1.2 * np.log1p(-q) - 0.3)).astype(int)
        expected = np.ravel(betacal.BetaCalibration("abm").fit(q[:, None], y).predict(q[:, None]))
        result = bc.Beta().fit(q, y)
        assert result.a_ == 0
        np.testing.assert_allclose(result.predict_proba(q)[:, 1], expected, atol=2e-3)

    def test_reversed_scores(self) -> None:
        """Check that betacal may keep one negative coefficient, which gives a decreasing map."""
        import betacal

        q, y = make_probs()
        theirs = betacal.BetaCalibration("abm").fit(q[:, None], 1 - y)
        ends = np.ravel(theirs.predict(np.array([[0.1], [0.9]])))
        assert ends[1] < ends[0] - 0.1
        result = bc.Beta().fit(q, 1 - y)
        assert result.a_ == 0
        assert result.b_ == 0


@pytest.mark.parity("netcal")
@pytest.mark.filterwarnings("ignore")
class TestNetcal:
    def test_logistic_and_temperature_and_beta(self) -> None:
        from netcal import scaling

        q, y = make_probs()
        for theirs, calibrator in (
            (scaling.LogisticCalibration(), bc.Logistic()),
            (scaling.BetaCalibration(), bc.Beta()),
            (scaling.TemperatureScaling(), bc.Temperature()),
        ):
            theirs.fit(q, y)
            expected = np.ravel(theirs.transform(q))
            result = fit_predict(calibrator, q, y)
            assert log_loss(result, y) <= log_loss(expected, y) + 1e-9
            np.testing.assert_allclose(result, expected, atol=5e-3)

    def test_float32_input_is_fitted(self) -> None:
        """Check float32 scores, which netcal silently returns unchanged."""
        from netcal import scaling

        q, y = make_probs()
        theirs = scaling.TemperatureScaling()
        theirs.fit(q.astype(np.float32), y)
        unmoved = np.ravel(theirs.transform(q.astype(np.float32)))
        assert np.abs(unmoved - q).max() < 1e-6
        result = fit_predict(bc.Temperature(), q.astype(np.float32), y)
        np.testing.assert_allclose(result, fit_predict(bc.Temperature(), q, y), atol=1e-4)
        assert np.abs(result - q).max() > 0.01

    def test_equal_width_bins(self) -> None:
        from netcal import binning

        q, y = make_probs()
        theirs = binning.HistogramBinning(bins=15)
        theirs.fit(q, y)
        # They fill empty bins differently, but no bin is empty here.
        np.testing.assert_allclose(
            fit_predict(bc.Histogram(bins=15), q, y), np.ravel(theirs.transform(q)), atol=1e-12
        )

    def test_bbq_is_as_near_to_the_truth(self) -> None:
        """Check that the regrets are similar, although bins, priors and kept models differ."""
        from netcal import binning

        regrets = []
        for seed in range(6):
            q, y = make_probs(1000, seed)
            fresh, _ = make_probs(3000, 100 + seed)
            theirs = binning.BBQ()
            theirs.fit(q, y)
            probs = bc.BBQ().fit(q, y).predict_proba(fresh)[:, 1]
            regrets.append([regret(np.ravel(theirs.transform(fresh)), fresh), regret(probs, fresh)])
        mean_theirs, mean_ours = np.mean(regrets, axis=0)
        assert mean_ours < 1.2 * mean_theirs


@pytest.mark.parity("venn_abers")
@pytest.mark.filterwarnings("ignore")
def test_venn_abers() -> None:
    import venn_abers

    rng = np.random.default_rng(2)
    q, y = make_probs(800)
    fresh = rng.random(300)
    theirs = venn_abers.VennAbers()
    theirs.fit(np.column_stack([1 - q, q]), y)
    p, pairs = theirs.predict_proba(np.column_stack([1 - fresh, fresh]))
    calibrator = bc.VennAbers().fit(q, y)
    lower, upper = calibrator.predict_interval(fresh)
    np.testing.assert_allclose(lower, pairs[:, 0], atol=1e-10)
    np.testing.assert_allclose(upper, pairs[:, 1], atol=1e-10)
    np.testing.assert_allclose(calibrator.predict_proba(fresh), p, atol=1e-10)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "module", [pytest.param(n, marks=pytest.mark.parity(n)) for n in ("splinecalib", "ml_insights")]
)
def test_splines_do_as_well_out_of_sample(module: str) -> None:
    """Check that curves are similar and losses not worse, despite other penalties and knots."""
    package = importlib.import_module(module)
    q, y = make_probs(5000)
    grid = np.linspace(0.02, 0.98, 200)
    theirs = package.SplineCalib()
    theirs.fit(q, y)
    expected = np.ravel(theirs.calibrate(grid))
    result = bc.Spline(rescale="compact_logit").fit(q, y).predict_proba(grid)[:, 1]
    assert np.abs(result - expected).max() < 0.05

    assert regret(result, grid) < regret(expected, grid) + 1e-3


@pytest.mark.parity("splinecalib")
@pytest.mark.filterwarnings("ignore")
class TestSplineCalib:
    """Compare with its knots, clipping, prior rows and basis; its search stops early."""

    @pytest.mark.parametrize("unity", [True, False])
    @pytest.mark.parametrize("logit", [True, False])
    def test_the_same_rows_in_the_same_basis(self, logit: bool, unity: bool) -> None:
        """Compare our optimum with another library's on the columns of splinecalib."""
        from sklearn.linear_model import LogisticRegression
        from splinecalib import SplineCalib

        q, y = make_probs(400)
        theirs = SplineCalib(
            knot_sample_size=6, add_knots=None, logodds_scale=logit, unity_prior=unity
        )
        theirs.fit(q, y)
        calibrator = bc.Spline(
            "logit" if logit else None,
            theirs.knot_vec.tolist(),
            "coefficients",
            strength=0.5,
            epsilon=theirs.logodds_eps if logit else "auto",
            unity_prior_weight=20.0 if unity else 0.0,
        ).fit(q, y)
        np.testing.assert_allclose(calibrator.knots_, theirs.knot_vec_tr, rtol=1e-12)
        columns = theirs.X_mat_used[:, 1:]
        targets = np.concatenate([y, theirs.unity_prior_gridpts]) if unity else y.astype(float)
        weights = theirs.final_weightvec if unity else np.ones(len(y))
        model = LogisticRegression(C=2.0, solver="newton-cholesky", tol=1e-12, max_iter=1000)
        model.fit(
            np.concatenate([columns, columns]),
            np.repeat([0, 1], len(columns)),
            np.concatenate([weights * (1 - targets), weights * targets]),
        )
        expected = model.predict_proba(columns[: len(y)])[:, 1]
        np.testing.assert_allclose(calibrator.predict_proba(q)[:, 1], expected, atol=1e-6)

    def test_the_optimum_of_their_last_fit(self) -> None:
        """Compare with mean loss + lambda |theta|^2 / k on all rows but those of the first fold.

        The penalty on the intercept is negligible here.
        """
        from splinecalib import SplineCalib
        from splinecalib.calib_utils import get_stratified_foldnums

        q, y = make_probs(600)
        options: Any = {"reg_param_vec": [1e-5], "knot_sample_size": 6, "add_knots": None}
        theirs = SplineCalib(unity_prior=False, tol=1e-9, max_iter=10_000, **options)
        theirs.fit(q, y)
        left = get_stratified_foldnums(y, 5) != 0
        assert left.sum() == 480
        grid = np.linspace(0.05, 0.95, 50)
        expected = theirs.calibrate(grid)
        differences = []
        for rows in (left, slice(None)):
            strength = 2 * len(y[rows]) * 1e-5 / 6
            calibrator = bc.Spline("logit", theirs.knot_vec.tolist(), "coefficients", strength)
            calibrator.set_params(epsilon=theirs.logodds_eps).fit(q[rows], y[rows])
            differences.append(np.abs(calibrator.predict_proba(grid)[:, 1] - expected).max())
        assert differences[0] < 1e-3
        assert differences[1] > 10 * differences[0]


class TestScikitLearn:
    def test_platt_scaling(self) -> None:
        """Compare objectives: scikit-learn's search stops before the optimum."""
        from sklearn.base import BaseEstimator, ClassifierMixin
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.frozen import FrozenEstimator

        class Scores(ClassifierMixin, BaseEstimator):
            classes_ = np.array([0, 1])
            n_features_in_ = 1

            def fit(self, X: Array, y: Array) -> Any:
                self.fitted_ = True
                return self

            def decision_function(self, X: Array) -> Array:
                return X[:, 0]

            def predict(self, X: Array) -> Array:
                return (X[:, 0] > 0).astype(int)

        q, y = make_probs()
        scores = np.log(q) - np.log1p(-q)
        theirs = CalibratedClassifierCV(
            FrozenEstimator(Scores().fit(scores[:, None], y)), ensemble=False
        )
        expected = theirs.fit(scores[:, None], y).predict_proba(scores[:, None])[:, 1]
        calibrator = bc.Logistic(smoothing="platt", inputs="scores").fit(scores, y)
        result = calibrator.predict_proba(scores)[:, 1]
        target = bc.smoothing.platt_targets(y)

        def loss(p: Array) -> float:
            return float(-np.mean(target * np.log(p) + (1 - target) * np.log1p(-p)))

        assert loss(result) <= loss(expected)
        assert loss(result) == pytest.approx(loss(expected), rel=1e-5)
        np.testing.assert_allclose(result, expected, atol=2e-3)

    def test_isotonic(self) -> None:
        from sklearn import isotonic

        q, y = make_probs()
        theirs = isotonic.IsotonicRegression(out_of_bounds="clip").fit(q, y)
        fresh = np.linspace(0, 1, 500)
        calibrator = bc.Isotonic().fit(q, y)
        np.testing.assert_allclose(
            calibrator.predict_proba(fresh)[:, 1], theirs.predict(fresh), atol=1e-12
        )

    def test_calibrated_classifier_without_ensemble(self) -> None:
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.datasets import load_breast_cancer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        X, y = load_breast_cancer(return_X_y=True)
        model = make_pipeline(StandardScaler(), LogisticRegression())
        theirs = CalibratedClassifierCV(model, method="isotonic", ensemble=False, cv=5)
        classifier = bc.CalibratedClassifier(model, bc.Isotonic(inputs="scores"), cv=5)
        np.testing.assert_allclose(
            classifier.fit(X, y).predict_proba(X), theirs.fit(X, y).predict_proba(X), atol=1e-9
        )


def test_cauchy_prior_against_the_published_bioassay() -> None:
    """Compare with Gelman et al. (2008), section 4: dose and deaths of 20 animals.

    The paper prints one digit: maximum likelihood -0.1 and 10.2, with the prior -0.2 and 5.4, for
    doses scaled by twice their standard deviation over the four groups.
    """
    from bayescal.regression.binary.fit import fit_single
    from bayescal.regression.binary.objective import CoefficientPrior, Regression

    dose = np.array([-0.86, -0.30, -0.05, 0.73])
    z = (dose - dose.mean()) / (2 * dose.std(ddof=1))
    deaths, animals = np.array([0, 1, 3, 5]), np.full(4, 5.0)
    problem = Regression(z[:, None], deaths / animals, animals, 0.0, 0.0)
    plain = fit_single(problem).x
    assert np.round(plain, 1).tolist() == [-0.1, 10.2]
    wide, narrow = CoefficientPrior(0.0, 10.0, 1.0), CoefficientPrior(0.0, 2.5, 1.0)
    result = fit_single(problem._replace(prior=narrow, intercept_prior=wide)).x
    # Their algorithm approximates the mode, so only one digit agrees.
    assert np.round(result, 1).tolist() == [-0.2, 5.4]
