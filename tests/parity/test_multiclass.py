"""Multi-class calibrators against other libraries: agreement, or the reason for a difference.

The marker of a test lists the libraries that it needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import bayescal as bc

#: Other libraries raise warnings.
pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

Array = np.ndarray


def make_logits(n: int = 1500, k: int = 5, seed: int = 0) -> tuple[Array, Array]:
    """Draw over-confident logits, and labels from a matrix map of them."""
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(n, k))
    better = z * rng.uniform(0.25, 0.6, k) + 0.3 * rng.normal(size=k)
    better = better + 0.03 * z @ rng.normal(size=(k, k))
    return z, np.argmax(better + rng.gumbel(size=z.shape), axis=1)


Z, Y = make_logits()
P = softmax(Z, axis=1)


def log_loss(p: Any) -> float:
    label_probs = np.asarray(p, float)[np.arange(len(Y)), Y]
    return float(-np.mean(np.log(label_probs)))


def test_temperature_of_scikit_learn() -> None:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    class Given(ClassifierMixin, BaseEstimator):
        """A classifier whose features are its logits."""

        def fit(self, X: Array, y: Array) -> Any:
            self.classes_ = np.unique(y)
            return self

        def decision_function(self, X: Array) -> Array:
            return X

        def predict(self, X: Array) -> Array:
            return self.classes_[np.argmax(X, axis=1)]

    try:
        wrapped = CalibratedClassifierCV(
            FrozenEstimator(Given().fit(Z, Y)), method="temperature", ensemble=False
        ).fit(Z, Y)
    except ValueError:
        pytest.skip("this scikit-learn has no temperature scaling")
    expected = wrapped.predict_proba(Z)
    result = bc.Temperature(inputs="logits").fit(Z, Y).predict_proba(Z)
    assert log_loss(result) <= log_loss(expected) * (1 + 1e-9)
    np.testing.assert_allclose(result, expected, atol=1e-4)


@pytest.mark.parity("probmetrics", "numba")
@pytest.mark.parametrize(
    ("theirs", "calibrator"),
    [
        ("TemperatureScalingCalibrator", bc.Temperature()),
        ("VectorScalingCalibrator", bc.Vector()),
        ("SVSCalibrator", bc.StructuredVector()),
        ("SMSCalibrator", bc.StructuredMatrix()),
        ("ETSCalibrator", bc.EnsembleTemperature()),
    ],
)
def test_probmetrics(theirs: str, calibrator: Any) -> None:
    from probmetrics import calibrators

    expected = getattr(calibrators, theirs)().fit(P, Y).predict_proba(P)
    result = calibrator.fit(P, Y).predict_proba(P)
    if theirs == "ETSCalibrator":
        # It minimizes squared errors by default, so our log loss may be lower.
        assert log_loss(result) <= log_loss(expected) + 1e-7
        return
    assert log_loss(result) <= log_loss(expected) * (1 + 1e-5)
    # It stops slightly before the optimum.
    np.testing.assert_allclose(result, expected, atol=2e-3)


@pytest.mark.parity("netcal")
def test_netcal() -> None:
    from netcal import scaling

    theirs = scaling.TemperatureScaling("mle")
    theirs.fit(P, Y)
    result = bc.Temperature().fit(P, Y).predict_proba(P)
    assert log_loss(result) <= log_loss(theirs.transform(P)) * (1 + 1e-6)
    np.testing.assert_allclose(result, theirs.transform(P), atol=1e-3)


def test_one_versus_rest_of_scikit_learn() -> None:
    """Check that normalized isotonic maps per class equal scikit-learn's."""
    from sklearn.isotonic import IsotonicRegression

    columns = [
        IsotonicRegression(out_of_bounds="clip").fit(P[:, j], Y == j).predict(P[:, j])
        for j in range(Z.shape[1])
    ]
    expected = np.stack(columns, axis=1)
    expected /= expected.sum(axis=1, keepdims=True)
    result = bc.OneVsRest(bc.Isotonic()).fit(P, Y).predict_proba(P)
    np.testing.assert_allclose(result, expected, atol=1e-9)
