"""A pytest plugin that runs scikit-learn's own tests with bayescal's classes.

``python -m pytest -p tests.parity.sklearn_names --pyargs sklearn.tests.test_calibration``
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import sklearn.calibration
import sklearn.isotonic
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.frozen import FrozenEstimator
from sklearn.svm import LinearSVC
from sklearn.utils import check_consistent_length
from sklearn.utils._array_api import get_namespace_and_device

import bayescal as bc


class Scaling(BaseEstimator):
    """A fitted temperature with scikit-learn's attribute, in the dtype of the features."""

    def __init__(self, calibrator: Any, like: Any) -> None:
        self.calibrator, self.like = calibrator, like
        self.is_fitted_ = True

    def fit(self) -> None:
        """Do nothing: the calibrator is fitted."""

    @property
    def beta_(self) -> Any:
        inverse = 1 / self.calibrator.temperature_
        if not hasattr(self.like, "dtype"):
            return inverse
        xp, _, device = get_namespace_and_device(self.like)
        return xp.asarray(inverse, dtype=self.like.dtype, device=device)


class Pair:
    """A pair of classifier and calibrator with a list of calibrators."""

    def __init__(self, pair: Any, like: Any) -> None:
        self.estimator, self.predict_proba = pair.estimator, pair.predict_proba
        scaled = hasattr(pair.calibrator, "temperature_")
        self.calibrators = [Scaling(pair.calibrator, like) if scaled else pair.calibrator]


class CalibratedClassifierCV(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """``bc.CalibratedClassifier`` with the defaults of scikit-learn."""

    def __init__(
        self,
        estimator: Any = None,
        *,
        method: str = "sigmoid",
        cv: Any = None,
        n_jobs: int | None = None,
        ensemble: bool | Literal["auto"] = "auto",
    ) -> None:
        self.estimator, self.method, self.cv = estimator, method, cv
        self.n_jobs, self.ensemble = n_jobs, ensemble

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Any:
        estimator = LinearSVC(random_state=0) if self.estimator is None else self.estimator
        ensemble = self.ensemble
        if ensemble == "auto":
            ensemble = not isinstance(estimator, FrozenEstimator)
        how: Any = {"ensemble": ensemble, "n_jobs": self.n_jobs, "method": self.method}
        model = bc.CalibratedClassifier(estimator, cv=5 if self.cv is None else self.cv, **how)
        self.model_, self.like_ = model.fit(X, y, sample_weight=sample_weight, **params), X
        for name in ("classes_", "n_features_in_"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        return self

    @property
    def calibrated_classifiers_(self) -> list[Pair]:
        return [Pair(pair, self.like_) for pair in self.model_.calibrated_classifiers_]

    def predict_proba(self, X: Any) -> Any:
        return self.model_.predict_proba(X)

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X)


class SigmoidCalibration(BaseEstimator):
    """Platt scaling of decision values, P(second class)."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.calibrator_ = bc.Logistic("platt", inputs="scores")
        self.calibrator_.fit(X, y, sample_weight=sample_weight)
        return self

    def predict(self, T: Any) -> np.ndarray:
        return self.calibrator_.predict_proba(T)[:, 1]


def sigmoid_calibration(
    predictions: Any, y: Any, sample_weight: Any = None, max_abs_prediction_threshold: float = 30
) -> np.ndarray:
    """Compute scikit-learn's coefficients of Platt scaling; ours need no threshold."""
    fitted = SigmoidCalibration().fit(predictions, y, sample_weight).calibrator_
    at_zero, at_one = (np.log(p / (1 - p)) for p in fitted.predict_proba([0.0, 1.0])[:, 1])
    return np.array([at_zero - at_one, -at_zero])


class TemperatureScaling(BaseEstimator):
    """Temperature scaling that distinguishes probabilities from logits by their row sums."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        X = as_column(X)
        sums_to_one = X.ndim == 2 and (X >= 0).all() and np.allclose(X.sum(axis=1), 1)
        self.calibrator_ = bc.Temperature(inputs="probs" if sums_to_one else "logits")
        self.calibrator_.fit(X, y, sample_weight=sample_weight)
        self.beta_ = 1 / self.calibrator_.temperature_
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.calibrator_.predict_proba(as_column(X))


class Calibrated:
    """One-vs-rest calibration where all binary maps give zero.

    scikit-learn passes maps that give zero for all scores. Ours are fitted to scores, and scores
    far below the data have probability zero for each class.
    """

    def __init__(self, estimator: Any, calibrators: Any, classes: Any) -> None:
        y = np.arange(400) % len(classes)
        logits = np.where(np.eye(len(classes))[y] == 1, 2.0, -1.0)
        self.calibrator = bc.OneVsRest(bc.Isotonic(), inputs="logits").fit(logits, y)
        self.classes = classes

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.calibrator.predict_proba(np.full((len(X), len(self.classes)), -3.0))


def calibration_curve(
    y_true: Any, y_prob: Any, *, pos_label: Any = None, n_bins: int = 5, strategy: str = "uniform"
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the points of a reliability diagram in scikit-learn's order."""
    classes = None
    if pos_label is not None:
        classes = (*(v for v in np.unique(y_true).tolist() if v != pos_label), pos_label)
    how: Any = {"n_bins": n_bins, "strategy": strategy, "kind": "binary"}
    curve = bc.metrics.reliability_curve(y_prob, y_true, classes=classes, **how)
    return np.asarray(curve.observed), np.asarray(curve.predicted)


class CalibrationDisplay:
    """``ReliabilityDisplay`` constructed from points, which it takes as rows."""

    from_estimator = bc.plots.ReliabilityDisplay.from_estimator
    from_predictions = bc.plots.ReliabilityDisplay.from_predictions

    def __new__(cls, prob_true: Any, prob_pred: Any, y_prob: Any, **options: Any) -> Any:
        return bc.plots.ReliabilityDisplay(prob_true, prob_pred, **options)


def as_column(X: Any) -> np.ndarray:
    """Return a single column as a vector, and other arrays unchanged."""
    X = np.asarray(X)
    return X[:, 0] if X.ndim == 2 and X.shape[1] == 1 else X


class IsotonicRegression(RegressorMixin, TransformerMixin, BaseEstimator):
    """Regression with ``bc.Isotonic``: a target in [0, 1] is two weighted labels at one score.

    Other targets are first moved to [0, 1] in units of a power of two, which avoids rounding.
    """

    def __init__(
        self,
        *,
        y_min: float | None = None,
        y_max: float | None = None,
        increasing: bool | Literal["auto"] = True,
        out_of_bounds: str = "nan",
    ) -> None:
        self.y_min, self.y_max = y_min, y_max
        self.increasing, self.out_of_bounds = increasing, out_of_bounds

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        if self.out_of_bounds not in ("nan", "clip", "raise"):
            raise ValueError(f"out_of_bounds must be nan, clip or raise, got {self.out_of_bounds}")
        x, y = read_feature(X), np.asarray(y)
        check_consistent_length(x, y, sample_weight)
        self.dtype_ = np.float32 if np.asarray(X).dtype == np.float32 else np.float64
        auto = self.increasing == "auto"
        self.increasing_ = sklearn.isotonic.check_increasing(x, y) if auto else self.increasing
        weights = np.ones(len(x)) if sample_weight is None else np.asarray(sample_weight, float)
        used = weights > 0
        self.low_ = min(0.0, float(np.floor(y[used].min())))
        self.span_ = 2.0 ** np.ceil(np.log2(max(y[used].max() - self.low_, 1.0)))
        target = (y - self.low_) / self.span_
        scores = np.tile(x if self.increasing_ else -x, 2)
        labels, halves = np.repeat([1, 0], len(x)), (weights * target, weights * (1 - target))
        self.calibrator_ = bc.Isotonic(inputs="scores", classes=(0, 1))
        self.calibrator_.fit(scores, labels, sample_weight=np.concatenate(halves).clip(0))
        self.X_min_, self.X_max_ = x[used].min(), x[used].max()
        ends = self.calibrator_.thresholds_
        self.X_thresholds_ = ends if self.increasing_ else -ends[::-1]
        self.y_thresholds_ = self._values(self.X_thresholds_)
        return self

    def _values(self, x: np.ndarray) -> np.ndarray:
        proportions = self.calibrator_.predict_proba(x if self.increasing_ else -x)[:, 1]
        values = self.low_ + self.span_ * proportions
        return values if self.y_min is self.y_max is None else values.clip(self.y_min, self.y_max)

    def transform(self, T: Any) -> np.ndarray:
        x = read_feature(T)
        outside = (x < self.X_min_) | (x > self.X_max_)
        if self.out_of_bounds == "raise" and outside.any():
            raise ValueError("A value in x_new is below the interpolation range, or above")
        values = self._values(x)
        if self.out_of_bounds == "nan":
            values = np.where(outside, np.nan, values)
        return values.astype(self.dtype_)

    predict = transform

    def _build_y(
        self, X: Any, y: Any, sample_weight: Any, trim_duplicates: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fit, and return all points of the map, including those between equal values."""
        x = np.sort(self.fit(X, y, sample_weight).X_thresholds_)
        x = np.union1d(x, X[(X >= x[0]) & (X <= x[-1])])
        return x, self._values(x)

    def _build_f(self, X: np.ndarray, y: np.ndarray) -> None:
        """Let ``predict`` interpolate between all points."""

        def interpolate(T: np.ndarray) -> np.ndarray:
            at = T.clip(X[0], X[-1])
            left = np.searchsorted(X, at, "right").clip(1, len(X) - 1) - 1
            part = (at - X[left]) / (X[left + 1] - X[left])
            return np.where(part < 1, y[left] + part * (y[left + 1] - y[left]), y[left + 1])

        self.predict = interpolate

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        return np.array(["isotonicregression0"], dtype=object)


def isotonic_regression(
    y: Any,
    *,
    sample_weight: Any = None,
    y_min: float | None = None,
    y_max: float | None = None,
    increasing: bool = True,
) -> np.ndarray:
    """Regress on the positions of the values, in the dtype of the values."""
    y = np.asarray(y)
    how: Any = {"y_min": y_min, "y_max": y_max, "increasing": increasing}
    dtype = y.dtype if y.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    at = np.arange(len(y), dtype=dtype)
    return IsotonicRegression(**how).fit(at, y, sample_weight).transform(at)


def read_feature(X: Any) -> np.ndarray:
    """Return the only feature."""
    X = np.asarray(X)
    if X.ndim > 2 or (X.ndim == 2 and X.shape[1] > 1):
        raise ValueError(
            "Isotonic regression input X should be a 1d array or 2d array with 1 feature"
        )
    return X.astype(float).ravel()


def pytest_configure() -> None:
    """Replace scikit-learn's names with ours in the process that loads this plugin."""
    for name, ours in {
        "CalibratedClassifierCV": CalibratedClassifierCV,
        "CalibrationDisplay": CalibrationDisplay,
        "_CalibratedClassifier": Calibrated,
        "_SigmoidCalibration": SigmoidCalibration,
        "_TemperatureScaling": TemperatureScaling,
        "_sigmoid_calibration": sigmoid_calibration,
        "calibration_curve": calibration_curve,
    }.items():
        setattr(sklearn.calibration, name, ours)
    for name, ours in {
        "IsotonicRegression": IsotonicRegression,
        "isotonic_regression": isotonic_regression,
    }.items():
        setattr(sklearn.isotonic, name, ours)
