"""scikit-learn scorers: sign, classes, weights and routing, against direct computations."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bayescal as bc
from bayescal import metrics
from bayescal.metrics.registry import METRICS

Array = np.ndarray
NAMES = [name for name, entry in METRICS.items() if entry.labels]
ONE = [name for name in NAMES if METRICS[name].shapes != ("multilabel",)]


def make_features(k: int, n: int = 240) -> tuple[Array, Array, Array]:
    """Return features, string labels and weights."""
    rng = np.random.default_rng(k)
    X = rng.normal(size=(n, 3))
    y = np.argmax(X @ rng.normal(size=(3, k)) + rng.gumbel(size=(n, k)), axis=1)
    return X, np.array(["d", "b", "c", "a"])[y], rng.integers(0, 3, n).astype(float)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("name", ONE)
def test_it_is_the_metric_with_a_sign(name: str, k: int) -> None:
    X, y, w = make_features(k)
    model = LogisticRegression().fit(X, y)
    probs = model.predict_proba(X)
    function: Any = getattr(metrics, name)
    judged = probs[:, 1] if k == 2 else probs
    for weights in (None, w):
        value = function(judged, y, weights=weights, classes=model.classes_.tolist())
        expected = {"accuracy": value, "loss_gap": -abs(value)}.get(name, -value)
        assert metrics.scorer(name)(model, X, y, sample_weight=weights) == expected
    if name != "accuracy":
        assert metrics.scorer(f"neg_{name}").get_params() == metrics.scorer(name).get_params()


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize(
    ("ours", "theirs"), [("brier_score", "neg_brier_score"), ("accuracy", "accuracy")]
)
def test_it_is_that_of_scikit_learn(ours: str, theirs: str, k: int) -> None:
    X, names, w = make_features(k)
    y = np.unique(names, return_inverse=True)[1]  # for strings, its Brier score needs a pos_label
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    expected = get_scorer(theirs)(model, X, y, sample_weight=w)
    assert metrics.scorer(ours)(model, X, y, sample_weight=w) == pytest.approx(expected, rel=1e-12)
    result = cross_val_score(model, X, y, scoring=metrics.scorer(ours), cv=3)
    np.testing.assert_allclose(result, cross_val_score(model, X, y, scoring=theirs, cv=3))


def test_search_over_calibrators() -> None:
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(300, 3))
    y = np.argmax(logits / 3 + rng.gumbel(size=(300, 3)), axis=1)
    folds = KFold(3)
    scoring = {"neg_ece": metrics.scorer("ece", bins=7), "neg_log_loss": metrics.scorer("log_loss")}
    search = GridSearchCV(
        bc.Matrix(inputs="logits"),
        {"off_diagonal": [1e-3, 1e3]},
        scoring=scoring,
        refit="neg_log_loss",
        cv=folds,
    )
    result = search.fit(logits, y).cv_results_
    for index, options in enumerate(result["params"]):
        for fold, (train, test) in enumerate(folds.split(logits)):
            fitted = bc.Matrix(inputs="logits", **options).fit(logits[train], y[train])
            probs = fitted.predict_proba(logits[test])
            expected = -metrics.ece(probs, y[test], bins=7)
            assert result[f"split{fold}_test_neg_ece"][index] == pytest.approx(expected, rel=1e-9)
            expected = -metrics.log_loss(probs, y[test])
            got = result[f"split{fold}_test_neg_log_loss"][index]
            assert got == pytest.approx(expected, rel=1e-9)
    assert search.best_index_ == np.argmax(result["mean_test_neg_log_loss"])


def test_a_fold_without_a_class_and_either_positive_class() -> None:
    X, y, _ = make_features(2)
    model = LogisticRegression().fit(X, y)
    assert list(model.classes_) == ["b", "d"]
    probs, few = model.predict_proba(X), y == "b"
    result = metrics.scorer("brier_score")(model, X[few], y[few])
    assert result == pytest.approx(-np.mean(probs[few, 1] ** 2), rel=1e-12)
    # Bins of P(d) and P(b) are not mirror images on borders.
    for label in ("b", "d"):
        index = list(model.classes_).index(label)
        expected = metrics.smooth_ece(probs[:, index], (y == label).astype(int), bandwidth=0.2)
        scorer = metrics.scorer("smooth_ece", pos_label=label, bandwidth=0.2)
        assert scorer(model, X, y) == pytest.approx(-expected, rel=1e-12)
    with pytest.raises(ValueError, match="pos_label must be one of two classes, got 'x'"):
        metrics.scorer("ece", pos_label="x")(model, X, y)
    with pytest.raises(ValueError, match="pos_label must be one of two classes, got 'a'"):
        X, y, _ = make_features(4)
        metrics.scorer("ece", pos_label="a")(LogisticRegression().fit(X, y), X, y)


def test_weights_are_routed() -> None:
    X, y, w = make_features(4)
    model, folds = LogisticRegression(), KFold(3)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = metrics.scorer("log_loss").set_score_request(sample_weight=True)
        result = cross_validate(
            model.set_fit_request(sample_weight=False),
            X,
            y,
            scoring={
                "ours": scorer,
                "unweighted": metrics.scorer("log_loss").set_score_request(sample_weight=False),
            },
            cv=folds,
            params={"sample_weight": w},
        )
    for fold, (train, test) in enumerate(folds.split(X)):
        fitted = clone(model).fit(X[train], y[train])
        probs, classes = fitted.predict_proba(X[test]), fitted.classes_.tolist()
        expected = metrics.log_loss(probs, y[test], weights=w[test], classes=classes)
        assert result["test_ours"][fold] == pytest.approx(-expected, rel=1e-9)
        expected = metrics.log_loss(probs, y[test], classes=classes)
        assert result["test_unweighted"][fold] == pytest.approx(-expected, rel=1e-9)


def test_many_labels() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X @ rng.normal(size=(3, 4)) + rng.logistic(size=(200, 4)) > 0).astype(int)
    theirs = MultiOutputClassifier(LogisticRegression()).fit(X, y)
    probs = np.stack([columns[:, 1] for columns in theirs.predict_proba(X)], axis=1)
    result = metrics.scorer("hamming_loss")(theirs, X, y)
    assert result == pytest.approx(-np.mean((probs > 0.5) != y), rel=1e-12)
    model = bc.MultiLabel(bc.Logistic()).fit(probs, y)
    expected = -metrics.multilabel_ece(model.predict_proba(probs), y, bins=5)
    assert metrics.scorer("multilabel_ece", bins=5)(model, probs, y) == expected


def test_copies_and_errors() -> None:
    X, y, _ = make_features(4)
    model = LogisticRegression().fit(X, y)
    scorer = metrics.scorer("ece", bins=9)
    assert pickle.loads(pickle.dumps(scorer))(model, X, y) == clone(scorer)(model, X, y)
    assert "bins" in repr(scorer)
    for wrong in ("corp", "neg_accuracy", "neg_", "auc"):
        with pytest.raises(ValueError, match=f"name must be one of neg_log_loss.*{wrong!r}"):
            metrics.scorer(wrong)
    for wrong in ({"bin": 3}, {"weights": y}, {"inputs": "logits"}):
        with pytest.raises(TypeError, match=re.escape("options of ece must be of bins, binning")):
            metrics.scorer("ece", **wrong)  # type: ignore[arg-type]
