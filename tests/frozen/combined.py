"""Frozen predictions of estimators that combine calibrators or need more than scores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpyro.distributions as dist
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import bayescal as bc
from tests.frozen.case import CHAINS, RTOL, Case, Results
from tests.frozen.data import data_set

#: Estimators of scores and labels, by their names in cases.
COMBINED: dict[str, Any] = {
    "Auto": bc.Auto(),
    "Auto(single)": bc.Auto(mode="single"),
    "Auto(3 folds)": bc.Auto(folds=3),
    "Auto(laplace)": bc.Auto(inference="laplace"),
    "Average": bc.Average([bc.Temperature(), bc.OneVsRest(bc.Beta())]),
    "Composition": bc.compose(bc.Temperature(), bc.OneVsRest(bc.Isotonic())),
    "OneVsRest(Beta)": bc.OneVsRest(bc.Beta()),
    "OneVsRest(Histogram)": bc.OneVsRest(bc.Histogram(5)),
    "OneVsOne(Logistic)": bc.OneVsOne(bc.Logistic()),
    "OneVsOne(Spline)": bc.OneVsOne(bc.Spline()),
}
MULTI_LABEL: dict[str, Any] = {
    "Auto": bc.MultiLabel(bc.Auto()),
    "Beta": bc.MultiLabel(bc.Beta()),
    "Isotonic": bc.MultiLabel(bc.Isotonic()),
    "Logistic, laplace": bc.MultiLabel(
        bc.Logistic(inference="laplace", num_samples=50, random_state=0)
    ),
    "Temperature": bc.MultiLabel(bc.Temperature()),
}
CLASSIFIERS: dict[str, Any] = {
    "default": bc.CalibratedClassifier(LogisticRegression()),
    "Beta": bc.CalibratedClassifier(GaussianNB(), bc.OneVsRest(bc.Beta()), cv=3),
    "ensemble": bc.CalibratedClassifier(GaussianNB(), bc.Temperature(), cv=3, ensemble=True),
    "VennAbers, ensemble": bc.CalibratedClassifier(
        GaussianNB(), bc.OneVsRest(bc.VennAbers()), cv=3, ensemble=True
    ),
    "automatic ensemble": bc.CalibratedClassifier(
        LogisticRegression(), bc.Vector(), cv=3, ensemble="auto"
    ),
}
REGRESSIONS: dict[str, Any] = {
    **{
        name: bc.LogisticRegression.preset(name, random_state=0)
        for name in ("normal", "platt", "smoothed", "L1", "L2", "ibls", "cauchy_map")
    },
    "constant smoothing": bc.LogisticRegression(smoothing=0.05),
    "l1": bc.LogisticRegression(penalty="l1", strength=2.0),
    "l2": bc.LogisticRegression(penalty="l2", strength=0.5),
    "elasticnet": bc.LogisticRegression(penalty="elasticnet", strength=2.0, l1_ratio=0.3),
    "elasticnet, cv": bc.LogisticRegression(penalty="elasticnet", folds=4),
    "normal prior": bc.LogisticRegression(coef_prior=dist.Normal(0, 0.7)),
    "l2, laplace": bc.LogisticRegression(
        penalty="l2", strength=0.5, inference="laplace", num_samples=60, random_state=0
    ),
    "cauchy, laplace": bc.LogisticRegression(
        coef_prior="cauchy", inference="laplace", num_samples=60, random_state=0
    ),
    "cauchy, nuts": bc.LogisticRegression.preset("cauchy", num_samples=40, random_state=0),
}


def cases() -> Iterator[Case]:
    """Yield the cases of combined estimators."""
    for name in COMBINED:
        for data in ("continuous", "skewed", "three", "one-hot"):
            yield Case(f"{name}: {data}", partial(_fit_combined, name, data))
    yield Case("Auto: logits of ten classes", _fit_auto_to_logits)
    for data in ("continuous", "three"):
        yield Case(f"Auto: blocks, {data}", partial(_fit_auto_to_blocks, data))
        yield Case(f"shares of outcomes: {data}", partial(_fit_shares, data))
    for name in MULTI_LABEL:
        yield Case(f"MultiLabel({name})", partial(_fit_multi_label, name))
    for name in CLASSIFIERS:
        for classes in (2, 3):
            compute = partial(_fit_classifier, name, classes)
            yield Case(f"CalibratedClassifier({name}): {classes} classes", compute)
    for name in REGRESSIONS:
        rtol = CHAINS if "nuts" in name else RTOL
        yield Case(f"LogisticRegression({name})", partial(_fit_regression, name), rtol=rtol)
    for bins in (4, 10):
        yield Case(f"Multicalibration({bins} bins)", partial(_fit_multicalibration, bins))
    for cls in (bc.Temperature, bc.Vector):
        yield Case(f"{cls.__name__}: top logits", partial(_fit_top_logits, cls))
    for cls in (bc.Logistic, bc.Vector):
        yield Case(f"{cls.__name__}(nuts)", partial(_fit_nuts, cls), slow=True, rtol=CHAINS)


def _copy(estimator: Any) -> Any:
    """Return an unfitted copy of an estimator."""
    return clone(estimator)


def _predictions(fitted: Any, new: Any, interval: bool = False) -> Results:
    """Return probabilities of all classes but the first, and ends of credible intervals."""
    result = {"probs": fitted.predict_proba(new)[:, 1:]}
    if interval:
        result["lower"], result["upper"] = fitted.predict_interval(new)
    return result


def _fit_combined(name: str, data_name: str) -> Results:
    data = data_set(data_name)
    fitted = _copy(COMBINED[name]).fit(data.scores, data.labels, data.weights)
    return {
        **_predictions(fitted, data.new, interval="laplace" in name),
        "log_loss": fitted.report_.log_loss,
        "gain": fitted.report_.gain,
    }


def _fit_auto_to_logits() -> Results:
    data = data_set("ten")
    fitted = bc.Auto(inputs="logits").fit(data.scores, data.labels, data.weights)
    return {**_predictions(fitted, data.new), "weights": fitted.report_.members}


def _fit_auto_to_blocks(data_name: str) -> Results:
    data = data_set(data_name)
    return _predictions(bc.Auto().fit(data.in_blocks()), data.new)


def _fit_shares(data_name: str) -> Results:
    """Fit to fractional labels."""
    data = data_set(data_name)
    _, labels = np.unique(data.labels, return_inverse=True)
    shares = 0.8 * np.eye(labels.max() + 1)[labels] + 0.2 / (labels.max() + 1)
    cls = bc.Beta if data.scores.ndim == 1 else bc.Vector
    return _predictions(cls().fit(data.scores, shares, data.weights), data.new)


def _fit_multi_label(name: str) -> Results:
    rng = np.random.default_rng(20)
    scores = rng.beta(0.8, 1.5, (160, 4))
    present = (rng.random((160, 4)) < scores ** [0.5, 0.8, 1.2, 2]).astype(int)
    fitted = _copy(MULTI_LABEL[name]).fit(scores, present, rng.uniform(0.2, 2.5, 160))
    new = np.concatenate([np.zeros((1, 4)), np.ones((1, 4)), rng.random((6, 4))])
    result: dict[str, Any] = {"probs": fitted.predict_proba(new)}
    if "laplace" in name:
        result["lower"], result["upper"] = fitted.predict_interval(new)
    return result


def _features(classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels, weights and new features."""
    rng = np.random.default_rng(30 + classes)
    labels = rng.integers(0, classes, 150)
    centers = 0.6 * rng.normal(size=(classes, 3))
    features = centers[labels] + rng.normal(size=(150, 3))
    new = np.concatenate([np.zeros((1, 3)), 8 * np.ones((1, 3)), rng.normal(size=(10, 3))])
    return features, labels, rng.uniform(0.2, 2.5, 150), new


def _fit_classifier(name: str, classes: int) -> Results:
    features, labels, weights, new = _features(classes)
    fitted = _copy(CLASSIFIERS[name]).fit(features, labels, sample_weight=weights)
    report = fitted.report_
    return {**_predictions(fitted, new), "log_loss": report.log_loss, "gain": report.gain}


def _fit_regression(name: str) -> Results:
    features, labels, weights, new = _features(2)
    fitted = _copy(REGRESSIONS[name]).fit(features, labels, weights)
    return {
        **_predictions(fitted, new, interval=fitted.inference != "map"),
        "coef": fitted.coef_,
        "intercept": fitted.intercept_,
        "strength": fitted.strength_,
        "smoothing": fitted.smoothing_,
    }


def _fit_multicalibration(bins: int) -> Results:
    data = data_set("continuous")
    rng = np.random.default_rng(40)
    groups, new_groups = rng.random((150, 3)) < 0.5, rng.random((len(data.new), 3)) < 0.5
    fitted = bc.Multicalibration(bins).fit(data.scores, data.labels, groups, data.weights)
    return {"probs": fitted.predict_proba(data.new, new_groups)[:, 1:]}


def _fit_top_logits(cls: Any) -> Results:
    """Fit to the four largest of ten logits, and the log-sum-exp of the rest."""
    data = data_set("ten")
    fitted = cls(inputs="top_logits", classes=10)
    fitted.fit(_top_logits(data.scores), data.labels, data.weights)
    return fitted.predict_proba(_top_logits(data.new))._asdict()


def _top_logits(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = np.argsort(-logits, axis=1, kind="stable")
    ordered = np.take_along_axis(logits, order, axis=1)
    return order[:, :4], ordered[:, :4], np.asarray(logsumexp(ordered[:, 4:], axis=1))


def _fit_nuts(cls: Any) -> Results:
    data = data_set("continuous" if cls.binary else "three")
    fitted = cls(inference="nuts", num_samples=40, random_state=0)
    return _predictions(fitted.fit(data.scores, data.labels, data.weights), data.new, interval=True)
