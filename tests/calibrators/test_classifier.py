"""CalibratedClassifier against the individual steps carried out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import expit
from scipy.stats import gmean
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import check_estimator

import bayescal as bc
from bayescal._core.numerics import FLOOR
from bayescal.calibrators.combine.classifier import pair as _pair

Array = np.ndarray


@pytest.fixture(scope="module")
def table() -> tuple[Array, Array]:
    X, y = make_classification(240, 6, n_informative=3, flip_y=0.2, random_state=0)
    return X, np.where(y == 1, "yes", "no")


def test_out_of_fold_scores_and_a_refit(table: Any) -> None:
    X, y = table
    model = bc.CalibratedClassifier(GaussianNB(), bc.Beta(), cv=4).fit(X, y)
    scores = cross_val_predict(GaussianNB(), X, y, cv=StratifiedKFold(4), method="predict_proba")
    calibrator = bc.Beta().fit(scores, y)
    final = GaussianNB().fit(X, y)
    expected = calibrator.predict_proba(final.predict_proba(X))
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-12)
    assert model.classes_.tolist() == ["no", "yes"]
    assert set(model.predict(X)) <= {"no", "yes"}


def test_decision_function_is_used_for_logits_and_scores(table: Any) -> None:
    X, y = table
    model = bc.CalibratedClassifier(LinearSVC(), bc.Logistic(inputs="scores"), cv=3).fit(X, y)
    scores = cross_val_predict(LinearSVC(), X, y, cv=3, method="decision_function")
    expected = bc.Logistic(inputs="scores").fit(scores, y)
    assert model.calibrators_[0].slope_ == pytest.approx(expected.slope_)
    default = bc.CalibratedClassifier(LinearSVC(), cv=3).fit(X, y)
    expected = (
        bc.Auto(inputs="scores")
        .fit(scores, y)
        .predict_proba(LinearSVC().fit(X, y).decision_function(X))
    )
    np.testing.assert_allclose(default.predict_proba(X), expected)
    with pytest.raises(ValueError, match="estimator must have predict_proba .* inputs='scores'"):
        bc.CalibratedClassifier(LinearSVC(), bc.Beta()).fit(X, y)
    with pytest.raises(ValueError, match="estimator must have decision_function .*='probs'"):
        bc.CalibratedClassifier(GaussianNB(), bc.Logistic(inputs="logits")).fit(X, y)


@pytest.mark.parametrize("calibrator", [bc.Beta(), bc.Auto(), bc.Logistic(inputs="scores")])
def test_the_classifier_orders_the_classes(table: Any, calibrator: Any) -> None:
    expected = bc.CalibratedClassifier(Plain(), calibrator).fit(*table).predict_proba(table[0])
    turned = clone(calibrator).set_params(classes=("yes", "no"))
    model = bc.CalibratedClassifier(Plain(), turned).fit(*table)
    np.testing.assert_array_equal(model.predict_proba(table[0]), expected)
    assert turned.classes == ("yes", "no")


def test_ensemble(table: Any) -> None:
    X, y = table
    model = bc.CalibratedClassifier(GaussianNB(), bc.Temperature(), cv=3, ensemble=True).fit(X, y)
    assert len(model.estimators_) == len(model.calibrators_) == 3
    parts = []
    for train, test in StratifiedKFold(3).split(X, y):
        base = GaussianNB().fit(X[train], y[train])
        calibrator = bc.Temperature().fit(base.predict_proba(X[test]), y[test])
        parts.append(calibrator.predict_proba(base.predict_proba(X)))
    np.testing.assert_allclose(model.predict_proba(X), np.mean(parts, axis=0), rtol=1e-12)


def test_cross_venn_abers(table: Any) -> None:
    """Check geometric means of both probabilities over folds, merged into one probability."""
    X, y = table
    model = bc.CalibratedClassifier(Plain(), bc.VennAbers(), cv=4, ensemble=True).fit(X, y)
    pairs = []
    for train, test in StratifiedKFold(4).split(X, y):
        base = Plain().fit(X[train], y[train])
        calibrator = bc.VennAbers().fit(base.predict_proba(X[test])[:, 1], y[test])
        pairs.append(calibrator.predict_interval(base.predict_proba(X)[:, 1]))
    lower, upper = (np.array(ends) for ends in zip(*pairs, strict=True))
    one, zero = gmean(upper, axis=0), gmean(1 - lower, axis=0)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], one / (one + zero), rtol=1e-9)


def test_a_fitted_classifier_stays_as_it_is(table: Any) -> None:
    X, y = table
    base = GaussianNB().fit(X[:120], y[:120])
    before = base.theta_.copy()
    model = bc.CalibratedClassifier(FrozenEstimator(base), bc.Isotonic()).fit(X[120:], y[120:])
    np.testing.assert_array_equal(base.theta_, before)
    expected = bc.Isotonic().fit(base.predict_proba(X[120:]), y[120:])
    np.testing.assert_array_equal(
        model.predict_proba(X), expected.predict_proba(base.predict_proba(X))
    )
    # The calibration part may lack a class or have a single row.
    only = y == "yes"
    scarce = bc.CalibratedClassifier(FrozenEstimator(base), bc.Beta(inference="laplace"))
    assert np.isfinite(scarce.fit(X[only][:1], y[only][:1]).predict_proba(X)).all()


def test_weights_reach_classifier_and_calibrator(table: Any) -> None:
    X, y = table
    w = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    model = bc.CalibratedClassifier(GaussianNB(), bc.Beta(), cv=3).fit(X, y, sample_weight=w)
    scores = cross_val_predict(
        GaussianNB(), X, y, cv=3, method="predict_proba", params={"sample_weight": w}
    )
    calibrator = bc.Beta().fit(scores, y, sample_weight=w)
    assert model.calibrators_[0].a_ == pytest.approx(calibrator.a_)
    np.testing.assert_allclose(
        model.estimators_[0].theta_, GaussianNB().fit(X, y, w).theta_, rtol=1e-12
    )
    # A classifier that takes no weights is fitted without them.
    model = bc.CalibratedClassifier(KNeighborsClassifier(), bc.Beta(), cv=3)
    with pytest.warns(UserWarning, match=r"KNeighborsClassifier\.fit takes no sample_weight"):
        model.fit(X, y, sample_weight=w)


def test_metadata_routing(table: Any) -> None:
    X, y = table
    w = np.arange(1.0, len(y) + 1)
    with sklearn.config_context(enable_metadata_routing=True):
        base = GaussianNB().set_fit_request(sample_weight=True)
        model = bc.CalibratedClassifier(base, bc.Beta(), cv=3)
        routed = model.fit(X, y, sample_weight=w).predict_proba(X)
    plain = bc.CalibratedClassifier(GaussianNB(), bc.Beta(), cv=3).fit(X, y, sample_weight=w)
    np.testing.assert_allclose(routed, plain.predict_proba(X), rtol=1e-12)


def test_posterior_bands(table: Any) -> None:
    X, y = table
    calibrator = bc.Beta(inference="laplace", random_state=0)
    model = bc.CalibratedClassifier(GaussianNB(), calibrator, cv=3).fit(X, y)
    low, high = model.predict_interval(X, level=0.8)
    p = model.predict_proba(X)[:, 1]
    assert ((low < p) & (p < high)).all()
    for able, calibrator, options in (
        (True, None, {}),
        (True, bc.AveragedBeta(), {}),
        (True, bc.Auto(), {}),
        (True, None, {"ensemble": True}),
        (True, "averaged_beta", {}),
        (True, "isotonic", {}),
        (True, "histogram", {}),
        (False, "bbq", {}),
        (False, "no such name", {}),
        (False, bc.BBQ(), {}),
        (False, bc.VennAbers(), {}),
    ):
        model = bc.CalibratedClassifier(GaussianNB(), calibrator, cv=3, **options)
        assert hasattr(model, "predict_interval") == able, calibrator
        if calibrator != "no such name":
            assert hasattr(model.fit(X, y), "predict_interval") == able, calibrator
    pair: Any = bc.CalibratedClassifier(GaussianNB(), cv=3, ensemble=True).fit(X, y)
    ends = [
        member.calibrator.predict_interval(member.estimator.predict_proba(X), 0.8)
        for member in pair.calibrated_classifiers_
    ]
    np.testing.assert_allclose(pair.predict_interval(X, 0.8), np.mean(ends, axis=0), rtol=1e-12)


def test_a_classifier_as_calibrator(table: Any) -> None:
    X, y = table
    ibls = bc.LogisticRegression.preset("ibls")
    model = bc.CalibratedClassifier(LinearSVC(), ibls, cv=3).fit(X, y)
    scores = cross_val_predict(LinearSVC(), X, y, cv=3, method="decision_function")
    expected = bc.LogisticRegression.preset("ibls").fit(scores[:, None], y)
    np.testing.assert_allclose(model.calibrators_[0].coef_, expected.coef_)


def test_few_rows_of_a_class() -> None:
    X = np.arange(8.0)[:, None]
    y = np.array([0, 0, 0, 0, 0, 1, 0, 1])
    with pytest.warns(UserWarning, match="2 rows of class 1: 2 folds in place of cv=5"):
        model = bc.CalibratedClassifier(GaussianNB(), bc.Temperature(), cv=5).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()
    with pytest.raises(ValueError, match="at least two rows of some class"):
        bc.CalibratedClassifier(GaussianNB()).fit(X[4:6], y[4:6])
    with pytest.raises(ValueError, match="got one class"):
        bc.CalibratedClassifier(GaussianNB()).fit(X[:5], y[:5])
    with pytest.raises(ValueError, match="got 3 classes"):
        bc.CalibratedClassifier(GaussianNB(), bc.Beta()).fit(X, np.arange(8) % 3)


def test_impossible_folds_are_errors() -> None:
    X, y = np.arange(8.0)[:, None], np.arange(8) % 2
    with pytest.raises(ValueError, match="cv must be at most the number of rows, 8, got 9"):
        bc.CalibratedClassifier(GaussianNB(), cv=9).fit(X, y)
    for cv in (LeaveOneOut(), KFold(7)):
        with pytest.raises(ValueError, match="cv must leave out at least two at once"):
            bc.CalibratedClassifier(GaussianNB(), cv=cv, ensemble=True).fit(X, y)
        assert len(bc.CalibratedClassifier(GaussianNB(), cv=cv).fit(X, y).estimators_) == 1


def test_frames_pipelines_splitters_and_grid_search(table: Any) -> None:
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcdef"))
    base = make_pipeline(StandardScaler(), Plain())
    model = bc.CalibratedClassifier(base, bc.Beta(), cv=KFold(3, shuffle=True, random_state=0))
    assert model.fit(frame, y).feature_names_in_.tolist() == list("abcdef")
    grid = {"calibrator": [bc.Beta(), bc.Logistic()], "estimator__logisticregression__C": [0.1, 1]}
    result = GridSearchCV(model, grid, scoring="neg_log_loss", cv=2).fit(frame, y)
    assert np.isfinite(result.best_score_)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        bc.CalibratedClassifier(Plain(), ensemble=True),
        bc.CalibratedClassifier(GaussianNB(), bc.Isotonic()),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*separate the labels")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learns_checks(model: Any) -> None:
    check_estimator(model, on_skip=None)


class _Wrong(ClassifierMixin, BaseEstimator):
    """A classifier whose scores have an invalid shape."""

    def __init__(self, response: str = "predict_proba", change: Any = None) -> None:
        self.response, self.change = response, change

    def fit(self, X: Any, y: Any) -> _Wrong:
        self.classes_ = np.unique(y)
        return self

    def __getattr__(self, name: str) -> Any:
        if name != self.__dict__.get("response"):
            raise AttributeError(name)
        return lambda X: self.change(np.full((len(X), len(self.classes_)), 1 / len(self.classes_)))


@pytest.mark.parametrize(
    "change",
    [lambda p: p[:-1], lambda p: p[:, 1], lambda p: p[:, :1], lambda p: p[0], lambda p: p[None]],
)
@pytest.mark.parametrize("cv", [3, None])
def test_probabilities_of_other_shapes_are_an_error(change: Any, cv: int | None) -> None:
    X, y = np.arange(60.0)[:, None], np.arange(60) % 3
    estimator: Any = _Wrong(change=change)
    estimator = FrozenEstimator(estimator.fit(X, y)) if cv is None else estimator
    with pytest.raises(ValueError, match=r"estimator must return an array of shape \(\d+, 3\)"):
        bc.CalibratedClassifier(estimator, bc.Temperature(), cv=cv).fit(X, y)


@pytest.mark.parametrize("change", [lambda z: z[:-1, 0], lambda z: z[:-1], lambda z: z[0, 0]])
def test_decisions_of_other_rows_are_an_error(change: Any) -> None:
    X, y = np.arange(60.0)[:, None], np.arange(60) % 2
    model = bc.CalibratedClassifier(
        _Wrong("decision_function", change), bc.Isotonic(inputs="scores")
    )
    with pytest.raises(ValueError, match="estimator must return an array .* decision_function"):
        model.fit(X, y)


def test_weights_of_a_fitted_classifier_count_for_the_calibration_alone() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    y = (rng.random(100) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(int)
    w = rng.uniform(0.5, 2, 100)
    frozen = FrozenEstimator(KNeighborsClassifier(15).fit(x, y))
    result = bc.CalibratedClassifier(frozen, calibrator=bc.Logistic()).fit(x, y, sample_weight=w)
    p = frozen.predict_proba(x)[:, 1]
    expected = bc.Logistic().fit(p, y, sample_weight=w).predict_proba(p)
    np.testing.assert_allclose(result.predict_proba(x), expected, atol=1e-9)


def test_errors_of_a_splitter_are_its_own() -> None:
    class Broken:
        def get_n_splits(self, *_: object) -> int:
            return 2

        def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
            raise ValueError("the moon is not full")

    x, y = np.arange(20.0)[:, None], np.arange(20) % 2
    with pytest.raises(ValueError, match="^the moon is not full$"):
        bc.CalibratedClassifier(GaussianNB(), cv=Broken()).fit(x, y)


@pytest.mark.parametrize("cv", [1, 21])
def test_folds_of_several_labels_are_two_or_more(cv: int) -> None:
    y = np.stack([np.arange(20) % 2, np.arange(20) % 3 == 0], axis=1).astype(int)
    model = bc.CalibratedClassifier(KNeighborsClassifier(3), cv=cv)
    with pytest.raises(ValueError, match=f"at least 2, and no more than the 20 rows, got {cv}"):
        model.fit(np.arange(20.0)[:, None], y)


def test_scores_of_several_labels_have_a_column_for_each() -> None:
    with pytest.raises(ValueError, match=r"each of 3 labels, got shape \(5, 2\) of predict_proba"):
        _pair._of_labels(np.zeros((5, 2)), None, 3, "predict_proba")
    parts = [np.full((4, 2), 0.5), np.ones((4, 1)), np.ones((4, 1))]
    known = type("Known", (), {"classes_": [[0, 1], [1], [0]]})
    result = _pair._of_labels(parts, known, 3, "predict_proba")
    np.testing.assert_array_equal(result, [[0.5, 1.0, 0.0]] * 4)


def test_searches_for_options_count_pairs_as_their_best_classifier() -> None:
    for shape in ("ovo", "ovr"):
        search = GridSearchCV(SVC(decision_function_shape=shape), {"C": [1.0]}, cv=2)
        x = np.r_[np.zeros((4, 2)), np.ones((4, 2)), -np.ones((4, 2))]
        search.fit(x + np.random.default_rng(0).normal(0, 0.1, x.shape), np.repeat([0, 1, 2], 4))
        assert _pair._counts_pairs(FrozenEstimator(search)) == (shape == "ovo")


def test_scores_of_classes_that_a_fold_lacks() -> None:
    classes, floor = np.array([0, 1, 2]), np.log(FLOOR)
    line = np.array([-1.0, 4.0])
    result = _pair._widened(line, np.array([0, 2]), classes, "decision_function")
    np.testing.assert_allclose(result[:, 2] - result[:, 0], line)
    np.testing.assert_allclose(result[:, 1], -np.abs(line) / 2 + floor)
    probs = np.array([[0.3, 0.7]])
    result = _pair._widened(probs, np.array([1, 2]), classes, "predict_proba")
    np.testing.assert_array_equal(result, [[0.0, 0.3, 0.7]])


@pytest.mark.parametrize("missing", [np.nan, None])
def test_rows_of_weight_zero_need_no_label(missing: float | None) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    y = (x[:, 0] + rng.normal(size=90) > 0).astype(float if missing else object)
    weights = np.append(rng.integers(1, 3, 80), np.zeros(10))
    lacking = y.copy()
    lacking[80:] = missing
    splits = list(KFold(3, shuffle=True, random_state=0).split(x))
    for estimator in (Plain(), FrozenEstimator(Plain().fit(x, y == 1))):
        result, expected = (
            bc.CalibratedClassifier(estimator, bc.Beta(), cv=splits).fit(x, labels, weights)
            for labels in (lacking, y)
        )
        np.testing.assert_array_equal(result.classes_, [0, 1])
        np.testing.assert_allclose(result.predict_proba(x), expected.predict_proba(x), atol=1e-6)
    with (
        pytest.raises(ValueError, match=r"missing labels, got \w+ in row 80"),
        pytest.warns(UserWarning, match="takes no sample_weight"),
    ):
        bc.CalibratedClassifier(KNeighborsClassifier()).fit(x, lacking, weights)


def test_a_class_of_rows_of_weight_zero_is_none_if_the_classifier_takes_weights() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 2)), np.repeat(["a", "b", "c"], 30)
    x[:, 0] += np.repeat([0.0, 1.0, 2.0], 30)
    weights = np.repeat([1.0, 2.0, 0.0], 30)
    splits = list(KFold(3, shuffle=True, random_state=0).split(x))
    for calibrator in (bc.Beta(), bc.Temperature()):
        result, expected = (
            bc.CalibratedClassifier(GaussianNB(), calibrator, cv=splits).fit(x, labels, weights)
            for labels in (y, np.where(y == "c", "b", y))
        )
        np.testing.assert_array_equal(result.classes_, ["a", "b"])
        np.testing.assert_allclose(result.predict_proba(x), expected.predict_proba(x), atol=1e-9)
    with pytest.warns(UserWarning, match="takes no sample_weight"):
        knows_all = bc.CalibratedClassifier(KNeighborsClassifier(), bc.Temperature())
        knows_all.fit(x, y, weights)
    np.testing.assert_array_equal(knows_all.classes_, ["a", "b", "c"])
    assert knows_all.predict_proba(x).shape == (90, 3)


def test_an_ensemble_has_no_pair_for_a_fold_of_weight_zero() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    y = (rng.random(100) < expit(x[:, 0])).astype(int)
    weights = np.append(np.zeros(20), np.ones(80))
    model = bc.CalibratedClassifier(GaussianNB(), bc.Logistic(), cv=KFold(5), ensemble=True)
    result = model.fit(x, y, weights).predict_proba(x)
    assert len(model.estimators_) == len(model.calibrators_) == 4
    splits = list(KFold(4).split(x[20:]))
    expected = clone(model).set_params(cv=splits).fit(x[20:], y[20:]).predict_proba(x)
    np.testing.assert_allclose(result, expected, atol=1e-9)


def test_rows_of_weight_zero_need_no_label_of_several() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    p, y = expit(x), (rng.random((90, 2)) < expit(x)).astype(float)
    weights = np.append(np.ones(80), np.zeros(10))
    lacking = np.where(weights[:, None] > 0, y, np.nan)
    calibrators: list[Any] = [bc.MultiLabel(bc.Beta()), bc.Auto()]
    for calibrator in calibrators:
        result = clone(calibrator).fit(p, lacking, sample_weight=weights)
        expected = clone(calibrator).fit(p[:80], y[:80])
        np.testing.assert_allclose(result.predict_proba(p), expected.predict_proba(p), atol=1e-9)
    forest = RandomForestClassifier(5, random_state=0)
    result, expected = (
        bc.CalibratedClassifier(forest, bc.Beta(), cv=[(np.arange(0, 90, 2), np.arange(1, 90, 2))])
        .set_params(ensemble=True)
        .fit(x, labels, weights)
        for labels in (lacking, np.where(weights[:, None] > 0, y, 0))
    )
    np.testing.assert_array_equal(result.predict_proba(x), expected.predict_proba(x))
    for metric in (bc.metrics.hamming_loss, bc.metrics.multilabel_ece):
        assert metric(p, lacking, weights=weights) == metric(p[:80], y[:80])


def test_advice_for_three_classes_can_be_followed() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y = X.argmax(axis=1)
    with pytest.raises(ValueError, match=r"or OneVsRest\(Isotonic\(\)\), with inputs='logits'$"):
        bc.CalibratedClassifier(LinearSVC(), bc.Isotonic(inputs="scores")).fit(X, y)
    bc.CalibratedClassifier(LinearSVC(), bc.OneVsRest(bc.Isotonic(), inputs="logits")).fit(X, y)
    with pytest.raises(ValueError, match=r"or OneVsRest\(Isotonic\(\)\)$"):
        bc.CalibratedClassifier(GaussianNB(), bc.Isotonic()).fit(X, y)
    bc.CalibratedClassifier(GaussianNB(), bc.OneVsRest(bc.Isotonic())).fit(X, y)
