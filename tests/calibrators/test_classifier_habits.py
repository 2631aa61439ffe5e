"""CalibratedClassifier next to scikit-learn's: names, attributes, warnings and progress."""

from __future__ import annotations

import pickle
import warnings
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedGroupKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import bayescal as bc
from bayescal.calibrators.catalog import METHODS
from bayescal.calibrators.names import make_calibrator, make_for
from tests.calibrators.cases import all_calibrators

Array = np.ndarray


@pytest.fixture(scope="module")
def table() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 4))
    y = (rng.random(240) < 1 / (1 + np.exp(-X @ [2.0, 1.0, 0, 0]))).astype(int)
    return X, np.where(y == 1, "yes", "no")


@pytest.fixture(scope="module")
def three_classes() -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1, 2], 80)
    return rng.normal(size=(240, 4)) + np.eye(3, 4)[y], y


# --- names --------------------------------------------------------------------------------------


def test_every_calibrator_has_a_name_in_any_writing() -> None:
    assert set(METHODS) == {"Auto", *(cls.__name__ for cls in all_calibrators())}
    for name in METHODS:
        for spelling in (name, name.lower(), name.upper()):
            assert type(make_calibrator(spelling)).__name__ == name
    assert isinstance(make_calibrator("venn_abers"), bc.VennAbers)
    assert isinstance(make_calibrator("Structured-Matrix"), bc.StructuredMatrix)
    assert make_calibrator("sigmoid").smoothing == "platt"
    assert make_calibrator("beta", parameters=2).parameters == 2
    assert make_calibrator("Platt").smoothing == "platt"
    for wrong in ("plat", "", "calibrator", "average"):
        with pytest.raises(ValueError, match=f"--method must be one of Auto, .*got '{wrong}'"):
            make_calibrator(wrong, argument="--method")


def test_an_unknown_name_is_said_at_the_fit(table: Any) -> None:
    with pytest.raises(ValueError, match="calibrator must be one of Auto, AveragedBeta.*sigmoid"):
        bc.CalibratedClassifier(GaussianNB(), "magic").fit(*table)


def test_what_named_calibrators_are_given() -> None:
    svm, bayes, regression = LinearSVC(), GaussianNB(), Plain()
    for name, estimator, k, inputs in (
        ("isotonic", svm, 2, "scores"),
        ("sigmoid", regression, 2, "scores"),  # scikit-learn's choice
        ("temperature", regression, 2, "logits"),
        ("temperature", regression, 3, "logits"),
        ("sigmoid", bayes, 2, "probs"),
        ("beta", regression, 2, "probs"),
        ("beta", svm, 2, "logits"),
        ("logistic", svm, 2, "scores"),
        ("auto", svm, 2, "scores"),
        ("auto", svm, 3, "logits"),
        ("isotonic", svm, 3, "logits"),
        ("isotonic", bayes, 3, "probs"),
    ):
        made = make_for(name, estimator, k)
        assert made.inputs == inputs, (name, k)
        assert isinstance(made, bc.OneVsRest) == (k == 3 and name == "isotonic")


@pytest.mark.parametrize("name", ["isotonic", "sigmoid", "temperature"])
@pytest.mark.parametrize("ensemble", [False, True])
def test_moving_from_scikit_learn_is_one_word(name: str, ensemble: bool, table: Any) -> None:
    X, y = table
    for estimator in (LinearSVC(), Plain()):
        theirs = CalibratedClassifierCV(estimator, method=name, cv=3, ensemble=ensemble).fit(X, y)
        ours = bc.CalibratedClassifier(estimator, name, cv=3, ensemble=ensemble).fit(X, y)
        # scikit-learn's optimizers stop slightly before the optimum.
        np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=2e-3)
        pairs = zip(ours.calibrated_classifiers_, theirs.calibrated_classifiers_, strict=True)
        for mine, other in pairs:
            np.testing.assert_array_equal(mine.estimator.coef_, other.estimator.coef_)
            assert len(mine.calibrators) == len(other.calibrators) == 1
            np.testing.assert_allclose(mine.predict_proba(X), other.predict_proba(X), atol=2e-3)


def test_a_fitted_classifier_is_given_as_such(table: Any) -> None:
    X, y = table
    base = Plain().fit(X[:100], y[:100])
    with pytest.raises(ValueError, match=r"'prefit'.*sklearn\.frozen\.FrozenEstimator"):
        bc.CalibratedClassifier(base, "isotonic", cv="prefit").fit(X[100:], y[100:])
    with pytest.raises(ValueError, match="ensemble must be"):
        bc.CalibratedClassifier(base, ensemble="yes").fit(X, y)
    ours = bc.CalibratedClassifier(FrozenEstimator(base), "isotonic", ensemble="auto")
    theirs = CalibratedClassifierCV(FrozenEstimator(base), method="isotonic")
    result, expected = (m.fit(X[100:], y[100:]).predict_proba(X) for m in (ours, theirs))
    np.testing.assert_allclose(result, expected, atol=1e-12)


# --- attributes and methods ---------------------------------------------------------------------


@pytest.mark.parametrize("ensemble", [False, True])
def test_pairs(ensemble: bool, table: Any) -> None:
    X, y = table
    model = bc.CalibratedClassifier(GaussianNB(), "beta", cv=3, ensemble=ensemble)
    assert not hasattr(model, "calibrated_classifiers_")
    pairs = model.fit(X, y).calibrated_classifiers_
    assert [pair.estimator for pair in pairs] == model.estimators_
    assert [pair.calibrators for pair in pairs] == [
        [calibrator] for calibrator in model.calibrators_
    ]
    result = np.mean([pair.predict_proba(X) for pair in pairs], axis=0)
    np.testing.assert_allclose(result, model.predict_proba(X), rtol=1e-12)


def test_log_probabilities(table: Any) -> None:
    X, y = table
    model = bc.CalibratedClassifier(GaussianNB(), "isotonic", cv=3).fit(X, y)
    result, probs = model.predict_log_proba(X), model.predict_proba(X)
    assert (probs == 0).any()
    np.testing.assert_allclose(np.exp(result), probs, rtol=1e-12)
    assert (result[probs == 0] == -np.inf).all()


def test_containers_are_set_for_the_steps_of_the_classifier(table: Any) -> None:
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcd"))
    model: Any = bc.CalibratedClassifier(make_pipeline(StandardScaler(), GaussianNB()), cv=3)
    assert not hasattr(bc.CalibratedClassifier(GaussianNB()), "set_output")
    plain = model.fit(frame, y)
    assert not hasattr(plain.estimators_[0][-1], "feature_names_in_")
    assert plain.set_output(transform="pandas") is plain
    assert isinstance(plain.estimators_[0][:-1].transform(frame), pd.DataFrame)
    again = clone(plain).fit(frame, y)
    assert again.estimators_[0][-1].feature_names_in_.tolist() == list("abcd")
    assert isinstance(again.predict_proba(frame), np.ndarray)


# --- folds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("calibrator", [None, "temperature"])
def test_a_class_with_one_row(ensemble: bool, calibrator: Any, three_classes: Any) -> None:
    X, y = three_classes
    kept = np.flatnonzero((y < 2) | (np.arange(240) == 160))
    recorded: list[Array] = []

    class Watched(GaussianNB):
        def fit(self, X: Array, y: Array, sample_weight: Any = None) -> Any:
            recorded.append(y)
            return super().fit(X, y, sample_weight)

    model = bc.CalibratedClassifier(Watched(), calibrator, cv=5, ensemble=ensemble)
    with pytest.warns(UserWarning, match="one row of class 2: it is never left out"):
        model.fit(X[kept], y[kept])
    assert all((labels == 2).sum() == 1 for labels in recorded)
    assert len(recorded) == 5 + (not ensemble)
    probs = model.predict_proba(X[kept])
    assert probs.shape == (161, 3) and (probs > 0).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    assert model.report_.rows == (165 if ensemble else 161)


def test_a_lone_row_of_two_classes(table: Any) -> None:
    X, y = table
    kept = np.append(np.flatnonzero(y == "no"), np.flatnonzero(y == "yes")[:1])
    for ensemble in (False, True):
        model = bc.CalibratedClassifier(GaussianNB(), cv=5, ensemble=ensemble)
        with pytest.warns(UserWarning, match="one row of class 'yes'"):
            model.fit(X[kept], y[kept])
        share = model.predict_proba(X[kept])[:, 1].mean()
        # A row counts once over all folds.
        assert 0.3 / len(kept) < share < 4 / len(kept)
    with pytest.raises(ValueError, match="at least two rows of some class"):
        bc.CalibratedClassifier(GaussianNB()).fit(X[kept[-2:]], y[kept[-2:]])


@pytest.mark.parametrize(("classifier", "absent"), [(GaussianNB(), 0.0), (LinearSVC(), -80.0)])
def test_a_splitter_that_leaves_out_a_class(
    classifier: Any, absent: float, three_classes: Any
) -> None:
    X, y = three_classes
    model = bc.CalibratedClassifier(classifier, "temperature", cv=KFold(3), ensemble=True)
    with pytest.warns(UserWarning, match="cv leaves out all rows of class 0 at once"):
        probs = model.fit(X, y).predict_proba(X)
    assert np.isfinite(probs).all() and probs.shape == (240, 3)
    first = model.calibrated_classifiers_[0]
    assert (first.score(X)[:, 0] <= absent).all()  # a probability, or a logit


def test_splits_must_leave_out_every_row_once(table: Any) -> None:
    X, y = table
    half = np.arange(120)
    model = bc.CalibratedClassifier(GaussianNB(), "beta", cv=[(half + 120, half)])
    with pytest.raises(ValueError, match="each row out once, got splits that leave one out 0"):
        model.fit(X, y)
    assert len(model.set_params(ensemble=True).fit(X, y).estimators_) == 1


def test_precomputed_kernels_and_no_cv(table: Any) -> None:
    X, y = table
    K = X @ X.T
    precomputed = bc.CalibratedClassifier(SVC(kernel="precomputed"), cv=None).fit(K, y)
    linear = bc.CalibratedClassifier(SVC(kernel="linear")).fit(X, y)
    np.testing.assert_allclose(precomputed.predict_proba(K), linear.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("ensemble", [False, True])
def test_groups_are_not_split(table: Any, ensemble: bool) -> None:
    X, y = table
    groups = np.repeat(np.arange(60), 4)
    names = np.array([f"patient {group}" for group in groups])
    cases: dict[Any, Any] = {4: StratifiedGroupKFold(4), GroupKFold(3): GroupKFold(3)}
    for cv, splitter in cases.items():
        options = {"calibrator": "beta", "ensemble": ensemble}
        result = bc.CalibratedClassifier(GaussianNB(), cv=cv, **options).fit(X, y, groups=names)
        # Numbers of folds do not depend on the labels of groups, but splitters may.
        by_hand = [*splitter.split(X, y, groups if cv == 4 else names)]
        expected = bc.CalibratedClassifier(GaussianNB(), cv=by_hand, **options).fit(X, y)
        np.testing.assert_array_equal(result.predict_proba(X), expected.predict_proba(X))


def test_splitters_receive_the_labels_of_groups(table: Any) -> None:
    X, y = table
    years = np.random.default_rng(0).permutation(np.repeat([2021, 2019, 2022, 2020], 60))

    class Forward:
        def get_n_splits(self, *_: object) -> int:
            return 2

        def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
            for year in (2021, 2022):
                yield np.flatnonzero(groups < year), np.flatnonzero(groups == year)

    model = bc.CalibratedClassifier(GaussianNB(), "beta", cv=Forward(), ensemble=True)
    by_hand = [*Forward().split(X, y, years)]
    expected = clone(model).set_params(cv=by_hand).fit(X, y).predict_proba(X)
    for groups in (years, years.tolist(), pd.Series(years)):
        np.testing.assert_array_equal(model.fit(X, y, groups=groups).predict_proba(X), expected)
    pairs = [(str(year), "a") for year in years]
    grouped = clone(model).set_params(cv=GroupKFold(2)).fit(X, y, groups=pairs)
    assert len(grouped.estimators_) == 2


def test_reports_of_groups_with_few_rows_of_each_class() -> None:
    X, y = np.random.default_rng(0).normal(size=(24, 2)), np.arange(24) % 2
    model = bc.CalibratedClassifier(GaussianNB(), "beta", cv=3, ensemble=True)
    report = model.fit(X, y, groups=np.arange(24) // 2).report_
    assert report.rows == 24 and np.isfinite(report.log_loss)
    few = bc.CalibratedClassifier(GaussianNB(), "beta").fit(X[:8], y[:8], groups=np.arange(8))
    assert np.isfinite(few.predict_proba(X)).all()


def test_groups_of_several_labels_are_not_split() -> None:
    X = np.random.default_rng(0).normal(size=(120, 2))
    Y, groups = (X > 0).astype(int), np.arange(120) // 3
    model = bc.CalibratedClassifier(MultiOutputClassifier(Plain()), "logistic", cv=3)
    by_hand = [*GroupKFold(3).split(X, Y, groups)]
    expected = clone(model).set_params(cv=by_hand).fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(model.fit(X, Y, groups=groups).predict_proba(X), expected)


def test_groups_reach_the_splitter_in_searches(table: Any) -> None:
    X, y = table
    groups, seen = np.repeat(np.arange(60), 4), []

    class Splitter(GroupKFold):
        def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
            seen.append(len(np.unique(groups)))
            return super().split(X, y, groups)

    with sklearn.config_context(enable_metadata_routing=True):
        model = bc.CalibratedClassifier(GaussianNB(), "beta", cv=Splitter(3))
        search = GridSearchCV(model, {"calibrator": ["beta"]}, cv=GroupKFold(2))
        search.fit(X, y, groups=groups)
    assert seen == [30, 30, 60]


def test_reports_of_groups_leave_out_groups_and_have_errors_of_their_sums() -> None:
    X, y = make_classification(60, random_state=0)
    frozen = FrozenEstimator(GaussianNB().fit(X, y))
    X, y, groups = np.repeat(X, 5, axis=0), np.repeat(y, 5), np.repeat(np.arange(60), 5)
    model = bc.CalibratedClassifier(frozen, bc.Auto()).fit(X, y, groups=groups)
    scores, losses = frozen.predict_proba(X), np.empty(300)
    for train, test in StratifiedGroupKFold(5).split(X, y, groups):
        probs = bc.Auto().fit(scores[train], y[train]).predict_proba(scores[test])
        losses[test] = -np.log(probs[np.arange(len(test)), y[test]])
    sums = [losses[groups == group].sum() - 5 * losses.mean() for group in range(60)]
    assert model.report_.log_loss == pytest.approx(losses.mean(), rel=1e-9)
    assert model.report_.log_loss_error == pytest.approx(np.linalg.norm(sums) / 300, rel=1e-9)
    copy = pickle.loads(pickle.dumps(clone(model).fit(X, y, groups=groups)))
    assert not hasattr(copy, "report_")


def test_too_few_groups_are_answered(table: Any) -> None:
    model = bc.CalibratedClassifier(GaussianNB(), "beta")
    with pytest.raises(ValueError, match="2, got cv=5 and 1 groups$"):
        model.fit(*table, groups=np.zeros(240))
    with pytest.warns(
        UserWarning, match="^groups has 3 different values: 3 folds in place of cv=5"
    ):
        model.fit(*table, groups=np.arange(240) % 3)
    halves = np.arange(240) % 2
    two = bc.CalibratedClassifier(GaussianNB(), cv=2).fit(*table, groups=halves)
    by_hand = [(np.flatnonzero(halves != half), np.flatnonzero(halves == half)) for half in (0, 1)]
    expected = bc.CalibratedClassifier(GaussianNB(), cv=by_hand).fit(*table)
    np.testing.assert_allclose(two.predict_proba(table[0]), expected.predict_proba(table[0]))
    with pytest.raises(ValueError, match="^groups must be passed to fit, because cv=GroupKFold"):
        clone(model).set_params(cv=GroupKFold(3)).fit(*table)


# --- progress -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_progress_is_told(n_jobs: Any, table: Any, capsys: Any) -> None:
    X, y = table
    steps: list[tuple[str, int, int]] = []
    watched = {"progress": lambda *step: steps.append(step), "n_jobs": n_jobs}
    bc.CalibratedClassifier(GaussianNB(), "beta", cv=3, **watched).fit(X, y)
    assert [done for _, done, _ in steps] == [0, 1, 2, 3, 4, 5] and {n for *_, n in steps} == {5}
    assert [name for name, *_ in steps] == ["folds"] * 3 + ["calibrator", "all rows", "fitted"]
    steps.clear()
    bc.CalibratedClassifier(GaussianNB(), "beta", cv=3, ensemble=True, **watched).fit(X, y)
    assert steps[-1] == ("fitted", 4, 4) and len(steps) == 5
    steps.clear()
    frozen = FrozenEstimator(GaussianNB().fit(X, y))
    bc.CalibratedClassifier(frozen, "beta", **watched).fit(X, y)
    assert steps == [("calibrator", 0, 1), ("fitted", 1, 1)]
    bc.CalibratedClassifier(GaussianNB(), "beta", cv=3, progress=True).fit(X, y)
    assert capsys.readouterr().out == ""


def test_saved_without_the_function(table: Any, tmp_path: Any) -> None:
    X, y = table
    model = bc.CalibratedClassifier(GaussianNB(), "beta", cv=3, progress=print).fit(X, y)
    with pytest.warns(UserWarning, match="not the classifier"):
        bc.save(model, tmp_path / "c")
    again = bc.load(tmp_path / "c", estimators=model.estimators_)
    assert again.progress is False and again.calibrator == "beta"
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [GaussianNB(), RandomForestClassifier(8, min_samples_leaf=5, random_state=0)],
    ids=str,
)
def test_intervals_of_ensembles_cover_the_mean_of_the_true_curves(estimator: Any) -> None:
    """Check coverage of the mean over pairs of P(y = 1 | score of the pair), on fresh rows."""
    rng = np.random.default_rng(99)
    fresh = rng.normal(size=(60_000, 3))

    def truth(X: Array) -> Array:
        return 1 / (1 + np.exp(-(1.2 * X[:, 0] + X[:, 1] - 0.8 * X[:, 0] * X[:, 1])))

    def true_curve(pair: Any) -> Array:
        score, p = pair.score(fresh)[:, -1], truth(fresh)
        bins = np.searchsorted(np.unique(np.quantile(score, np.linspace(0, 1, 121)))[1:-1], score)
        return (np.bincount(bins, p) / np.maximum(np.bincount(bins), 1))[bins][:2000]

    level, shares = 0.8, []
    calibrator = bc.Beta(inference="laplace", num_samples=300, random_state=0)
    for seed in range(25):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(400, 3))
        y = (rng.random(400) < truth(X)).astype(int)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bc.SamplingWarning)
            model = bc.CalibratedClassifier(estimator, calibrator, ensemble=True).fit(X, y)
            lower, upper = model.predict_interval(fresh[:2000], level)
        target = np.mean([true_curve(pair) for pair in model.calibrated_classifiers_], axis=0)
        shares.append(((lower <= target) & (target <= upper)).mean())
    assert np.mean(shares) > level - 2 * np.std(shares) / 5


# --- what else a classifier's fit takes ---------------------------------------------------------


class Boosted(Plain):
    """An estimator with the fit arguments of LightGBM, XGBoost and CatBoost that records them."""

    got: ClassVar[list[Any]] = []

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        eval_set: Any = None,
        vocabulary: Any = None,
        notes: Any = None,
        verbose: Any = None,
    ) -> Any:
        self.got.append((len(y), eval_set, vocabulary, notes, verbose))
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("how", ["plain", "pipeline", "routed"])
def test_arguments_that_are_not_of_rows_reach_the_fit_as_they_are(
    how: str, ensemble: bool, table: Any
) -> None:
    X, y = table
    Boosted.got.clear()
    given = {
        "eval_set": [(X[:50], y[:50]), (X[50:70], y[50:70])],
        "vocabulary": [["a"], ["b", "c"]],
        "notes": [[i] * (i % 3) for i in range(len(y))],
        "verbose": False,
    }
    model: Any = Boosted()
    context = sklearn.config_context(enable_metadata_routing=how == "routed")
    with context:
        options = given
        if how == "routed":
            model = model.set_fit_request(**dict.fromkeys(given, True))
        elif how == "pipeline":
            model = make_pipeline(StandardScaler(), model)
            options = {f"boosted__{name}": value for name, value in given.items()}
        fitted = bc.CalibratedClassifier(model, "isotonic", cv=3, ensemble=ensemble)
        fitted.fit(X, y, **options)
    assert len(Boosted.got) == 3 + (not ensemble)
    for n, eval_set, vocabulary, notes, verbose in Boosted.got:
        assert [len(part) for part, _ in eval_set] == [50, 20]
        assert eval_set[0][0] is given["eval_set"][0][0]
        # A list with one entry per row is split like the rows.
        assert vocabulary == given["vocabulary"] and len(notes) == n and verbose is False


def test_a_classifier_without_scores_is_answered(table: Any) -> None:
    hard = VotingClassifier([("a", GaussianNB()), ("b", Plain())])
    for calibrator in (None, bc.Logistic(inputs="scores"), bc.Beta(inputs="logits")):
        with pytest.raises(ValueError, match=r"VotingClassifier, .*voting='soft'"):
            bc.CalibratedClassifier(hard, calibrator).fit(*table)


# --- decision functions of pairs of classes -----------------------------------------------------


class _Pairs(SVC):
    """A classifier with one-vs-one decision values that does not declare them."""

    def decision_function(self, X: Any) -> Array:
        plain = SVC(decision_function_shape="ovo")
        plain.__dict__ = {**vars(self), "decision_function_shape": "ovo"}
        return plain.decision_function(X)


@pytest.mark.parametrize("calibrator", ["temperature", "sigmoid", "isotonic", None])
def test_decisions_of_pairs_are_refused(calibrator: Any, three_classes: Any) -> None:
    X, y = three_classes
    pairs = SVC(decision_function_shape="ovo")
    frozen = FrozenEstimator(SVC(decision_function_shape="ovo").fit(X, y))
    piped = make_pipeline(StandardScaler(), pairs)
    for model in (pairs, frozen, piped, _Pairs(), FrozenEstimator(piped.fit(X, y))):
        with pytest.raises(ValueError, match="pass decision_function_shape='ovr'"):
            bc.CalibratedClassifier(model, calibrator).fit(X, y)
    five = np.digitize(X[:, 0], [-1, 0, 0.5, 1.2])
    with pytest.raises(ValueError, match="5 classes, got 10 columns of pairs"):
        bc.CalibratedClassifier(pairs, calibrator).fit(X, five)
    good = bc.CalibratedClassifier(SVC(), calibrator).fit(X, y)
    assert (good.predict(X) == y).mean() > 0.5
    # Two classes have one column, whatever ``decision_function_shape`` says.
    two = bc.CalibratedClassifier(pairs, calibrator).fit(X[y < 2], y[y < 2])
    assert two.classes_.tolist() == [0, 1]


# --- several labels -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def multi_label_table() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 4))
    return X, (X[:, :3] + rng.normal(size=(240, 3)) > 0).astype(int)


def _label_containers(Y: Array) -> dict[str, Any]:
    return {
        "boolean": Y == 1,
        "float32": Y.astype(np.float32),
        "objects": Y.astype(object),
        "lists": Y.tolist(),
        "frame": pd.DataFrame(Y),
        "Int64": pd.DataFrame(Y).astype("Int64"),
        "nullable booleans": pd.DataFrame(Y == 1).astype("boolean"),
        "Float64": pd.DataFrame(Y).astype("Float64"),
        "sparse": scipy.sparse.csr_matrix(Y),
        "sparse array": scipy.sparse.csc_array(Y),
    }


@pytest.mark.parametrize("calibrator", ["isotonic", bc.MultiLabel(bc.Isotonic()), bc.Isotonic()])
def test_several_labels_are_calibrated_each_for_itself(
    calibrator: Any, multi_label_table: Any
) -> None:
    X, Y = multi_label_table
    splits = list(KFold(4).split(X))
    model = MultiOutputClassifier(GaussianNB())
    fitted = bc.CalibratedClassifier(model, calibrator, cv=splits).fit(X, Y)
    name = "isotonic" if calibrator == "isotonic" else bc.Isotonic()
    models = [bc.CalibratedClassifier(GaussianNB(), name, cv=splits).fit(X, y) for y in Y.T]
    expected = np.stack([single.predict_proba(X)[:, 1] for single in models], axis=1)
    np.testing.assert_allclose(fitted.predict_proba(X), expected, rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(X), expected > 0.5)
    assert fitted.report_.rows == 240 and fitted.report_.classes == 3
    assert fitted.report_.reason == "3 labels"
    losses = [single.report_.log_loss for single in models]
    assert fitted.report_.log_loss == pytest.approx(np.mean(losses), rel=1e-9)


@pytest.mark.parametrize(
    ("model", "ensemble"),
    [
        (RandomForestClassifier(10, random_state=0), False),
        (OneVsRestClassifier(Plain()), True),
        (OneVsRestClassifier(LinearSVC()), False),
        pytest.param(OneVsRestClassifier(LinearSVC()), True, marks=pytest.mark.slow),
        (FrozenEstimator(KNeighborsClassifier()), True),
    ],
)
def test_classifiers_of_several_labels(
    model: Any, ensemble: bool, multi_label_table: Any, tmp_path: Any
) -> None:
    X, Y = multi_label_table
    if isinstance(model, FrozenEstimator):
        model = FrozenEstimator(model.estimator.fit(X, Y))
    fitted = bc.CalibratedClassifier(model, ensemble=ensemble, cv=3).fit(X, Y)
    probs = fitted.predict_proba(X)
    assert probs.shape == (240, 3) and ((probs > 0) & (probs < 1)).all()
    assert bc.metrics.hamming_loss(probs, Y) < 0.35
    if hasattr(model, "predict_proba"):  # Auto has no intervals for raw scores
        assert fitted.predict_interval(X)[0].shape == (240, 3)
    assert fitted.report_.classes == 3
    with pytest.warns(UserWarning, match="not the classifier"):
        bc.save(fitted, tmp_path / "model")
    again = bc.load(tmp_path / "model", estimators=fitted.estimators_)
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


@pytest.mark.parametrize(("k", "reason"), [(2, "two classes"), (3, "3 classes")])
def test_reports_name_the_number_of_classes(k: int, reason: str) -> None:
    X, y = make_classification(n_samples=90, n_informative=4, n_classes=k, random_state=0)
    assert bc.CalibratedClassifier(GaussianNB(), "beta", cv=3).fit(X, y).report_.reason == reason


@pytest.mark.slow
def test_label_matrices_of_every_type(multi_label_table: Any) -> None:
    X, Y = (rows[:80] for rows in multi_label_table)
    P = 1 / (1 + np.exp(-2 * X[:, :3]))
    pairs = [np.stack([1 - p, p], axis=1) for p in P.T]
    auto, single = bc.Auto().fit(P, Y), bc.MultiLabel(bc.Isotonic()).fit(P, Y)
    model = bc.CalibratedClassifier(MultiOutputClassifier(GaussianNB()), "beta", cv=3)
    expected, error = model.fit(X, Y).predict_proba(X), bc.metrics.multilabel_ece(P, Y)
    for number, (name, given) in enumerate(_label_containers(Y).items()):
        scores = (P, pairs)[number % 2]
        result = bc.MultiLabel(bc.Isotonic()).fit(scores, given)
        np.testing.assert_array_equal(result.predict_proba(scores), single.predict_proba(P))
        assert str(result.report_) == str(single.report_)
        assert bc.metrics.multilabel_ece(scores, given) == error
        default = bc.Auto().fit(scores, given)
        np.testing.assert_array_equal(default.predict_proba(scores), auto.predict_proba(P), name)
        np.testing.assert_array_equal(model.fit(X, given).predict_proba(X), expected)
    assert str(default.report_) == str(auto.report_)
    for wrong in (Y * 2, np.where(Y == 1, np.nan, 0), np.where(Y == 1, 0.5, 0)):
        for fit in (bc.Auto().fit, bc.MultiLabel(bc.Beta()).fit, bc.metrics.hamming_loss):
            with pytest.raises(ValueError, match="must hold zeros and ones, a column for each"):
                fit(P, wrong)
    with pytest.raises(ValueError, match=r"list with an array \(n, 2\) for each label"):
        bc.Auto().fit([pairs[0], pairs[1][:, :1], pairs[2]], Y)


def test_reports_of_named_columns_in_another_order(
    multi_label_table: Any, three_classes: Any
) -> None:
    X, Y = multi_label_table
    P = pd.DataFrame(1 / (1 + np.exp(-2 * X[:, :3])), columns=list("abc"))
    labels = pd.DataFrame(Y, columns=list("abc"))
    plain = bc.Auto().fit(P, labels)
    for given in (P[["c", "a", "b"]], P):
        report = bc.Auto().fit(given, labels).report_
        assert report == plain.report_
    rng = np.random.default_rng(0)
    probs = pd.DataFrame(rng.dirichlet(np.ones(3), 240), columns=list("abc"))
    y = np.array([*"abc"])[three_classes[1]]
    named = bc.Auto().fit(probs[["b", "c", "a"]], y).report_
    assert named.uncalibrated == pytest.approx(bc.metrics.log_loss(probs, y), rel=1e-9)


def test_exclusive_classes_in_columns_get_a_hint() -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 100)
    y = rng.integers(0, 3, 100)
    for onehot in (np.eye(3)[y], np.eye(3, dtype=int)[y]):
        with pytest.warns(UserWarning, match=r"for multi-class problems pass y.argmax\(axis=1\)"):
            bc.Auto().fit(probs, onehot)
