"""What every exported calibrator promises, for each of its options."""

from __future__ import annotations

import copy
import dataclasses
import functools
import io
import itertools
import pickle
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import joblib
import numpy as np
import pandas as pd
import polars
import pytest
import sklearn
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.model_selection import cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_random_state

import bayescal as bc
from bayescal.calibrators import Calibrator
from bayescal.data.rows import Rows
from tests.calibrators.cases import (
    CASES,
    DEFAULTS,
    SLOW,
    Array,
    Case,
    Data,
    all_calibrators,
    each,
    make_data,
)

each_case = each(CASES)
each_default = each(DEFAULTS)


@functools.cache
def data_of(binary: bool) -> Data:
    return make_data(next(case for case in CASES if case.binary == binary))


@functools.cache
def _fitted(name: str, weighted: bool) -> Any:
    case = next(case for case in CASES if case.name == name)
    p, y, w, _ = data_of(case.binary)
    return case().fit(p, y, w if weighted else None)


def fitted_of(case: Case, weighted: bool = True) -> Any:
    """Return a cached calibrator fitted to :func:`data_of`; tests must not change it."""
    return _fitted(case.name, weighted)


def quietly_fit(calibrator: Any, *data: Any) -> Any:
    with warnings.catch_warnings():
        # There may be no finite optimum; any other warning is an error here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return calibrator.fit(*data)


def check_probabilities(probs: Array, m: int, k: int) -> None:
    assert probs.shape == (m, k) and probs.dtype == np.float64
    assert np.isfinite(probs).all() and ((probs >= 0) & (probs <= 1)).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)


def test_there_are_calibrators_and_options() -> None:
    assert len(all_calibrators()) > 10 and {bc.Temperature, bc.Isotonic, bc.Vector} <= set(
        all_calibrators()
    )
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert {"Beta(parameters=2)", "Histogram(bins=3)", "BBQ(prior_weight=2.25)"} <= set(names)
    assert {"Spline(strength=0.25)", "Spline(rescale=compact_logit)"} <= set(names)


# --- probabilities ------------------------------------------------------------------------------


@each_case
def test_predictions_are_probabilities_of_all_classes(case: Case) -> None:
    p, y, w, new = data_of(case.binary)
    calibrator = case()
    assert calibrator.fit(p, y, w) is calibrator
    k = 2 if case.binary else 3
    ends = np.array([0.0, 1.0]) if case.binary else np.eye(3)
    at = np.concatenate([ends, new])
    probs = calibrator.predict_proba(at)
    check_probabilities(probs, len(at), k)
    np.testing.assert_array_equal(calibrator.predict(at), probs.argmax(axis=1))
    assert calibrator.classes_.tolist() == list(range(k))
    assert calibrator.status_ == "converged"
    # The fit beats a constant probability on its own data.
    shares = np.bincount(y, w) / w.sum()
    result, none = (
        bc.metrics.brier_score(q, y, weights=w)
        for q in (calibrator.predict_proba(p), np.tile(shares, (len(y), 1)))
    )
    assert result < 0.9 * none


@each_case
def test_fitted_attributes_are_the_declared_ones(case: Case) -> None:
    fitted = fitted_of(case)
    declared = {field.name for field in dataclasses.fields(fitted) if not field.init}
    present = {name for name in vars(fitted) if name.endswith("_") and name[0] != "_"}
    assert {"classes_", "state_", "status_"} <= present <= declared | {"n_features_in_", "report_"}
    assert not {name for name in vars(case()) if name.endswith("_")}
    for value in fitted.state_.values():
        assert isinstance(value, np.ndarray) and value.dtype != object
    with pytest.raises(AttributeError, match="nothing_"):
        fitted.nothing_  # noqa: B018


@each_default
def test_declared_attributes_come_to_be(case: Case) -> None:
    """Check that each declared attribute is set with at least one of the options."""
    cls = case.calibrator
    common = {field.name for field in dataclasses.fields(Calibrator)}
    declared = {field.name for field in dataclasses.fields(cls) if not field.init} - common
    cases = [case for case in CASES if case.calibrator is cls]
    names = {name for case in cases for name in vars(fitted_of(case))}
    if hasattr(cls, "partial_fit"):
        p, y, w, _ = data_of(cases[0].binary)
        names |= {*vars(cases[0]().partial_fit(p, y, sample_weight=w, forgetting="auto"))}
    assert declared <= names


@each([case for case in CASES if hasattr(case.calibrator, "partial_fit")])
def test_learning_on_equals_one_fit(case: Case) -> None:
    calibrator, (p, y, w, _) = case(), data_of(case.binary)
    try:
        for part in np.array_split(np.arange(len(y)), 3):
            calibrator.partial_fit(p[part], y[part], np.unique(y), w[part])
    except ValueError as error:
        assert "for partial_fit" in str(error)
        return
    whole = fitted_of(case).predict_proba(p)
    np.testing.assert_allclose(calibrator.predict_proba(p), whole, atol=1e-3)


@each_case
def test_inputs_that_mean_the_same_give_the_same(case: Case) -> None:
    p, y, w, new = data_of(case.binary)
    expected = fitted_of(case).predict_proba(new)
    with np.errstate(divide="ignore"):
        if case.binary:
            z, z_new = (np.log(q) - np.log1p(-q) for q in (p, new))
        else:
            z, z_new = np.log(p), np.log(new)
    same: list[tuple[str, Array, Array]] = []
    if case.binary:
        pairs = [np.stack([1 - q, q], axis=1) for q in (p, new)]
        same += [("probs", p[:, None], new[:, None]), ("probs", *pairs)]
    if case().domain != "order":
        # Otherwise borders fall elsewhere between the same neighbors.
        same.append(("logits", z, z_new))
    if case().domain == "real":
        same.append(("scores", z, z_new))
    for inputs, scores, at in same:
        result = case(inputs=inputs).fit(scores, y, w).predict_proba(at)
        # The search for a strength magnifies rounding errors.
        np.testing.assert_allclose(result, expected, atol=1e-5)
    if case().domain == "order":
        expected = fitted_of(case).predict_proba(p)
        for inputs, scores in (("scores", p * 7 - 100), ("logits", p - 0.3)):
            result = case(inputs=inputs).fit(scores, y, w).predict_proba(scores)
            np.testing.assert_allclose(result, expected, atol=1e-12)
    elif case().domain != "real":
        with pytest.raises(ValueError, match="inputs must be 'probs' or 'logits'"):
            case(inputs="scores").fit(p, y)


# --- rows and weights ---------------------------------------------------------------------------


@each_case
def test_the_order_of_rows_does_not_matter(case: Case) -> None:
    p, y, w, new = data_of(case.binary)
    order = np.random.default_rng(1).permutation(len(p))
    result = case().fit(p[order], y[order], w[order]).predict_proba(new)
    np.testing.assert_allclose(result, fitted_of(case).predict_proba(new), atol=1e-6)


@each_case
def test_whole_weights_are_repetitions(case: Case) -> None:
    p, y, _, new = data_of(case.binary)
    counts = np.random.default_rng(2).integers(0, 4, len(p))
    rows = np.repeat(np.arange(len(p)), counts)
    weighted = quietly_fit(case(), p, y, counts)
    repeated = quietly_fit(case(), p[rows], y[rows])
    result, expected = weighted.predict_proba(new), repeated.predict_proba(new)
    np.testing.assert_allclose(result, expected, atol=1e-6)
    assert np.abs(result - fitted_of(case, weighted=False).predict_proba(new)).max() > 1e-3
    if hasattr(weighted, "objective_"):
        assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-6, abs=1e-9)


@each_case
def test_rows_without_weight_are_left_out(case: Case) -> None:
    p, y, w, new = data_of(case.binary)
    at = np.arange(20) * 3
    more = np.insert(p, at, p[:20], axis=0), np.insert(y, at, y.max() - y[:20])
    result = case().fit(*more, np.insert(w, at, 0.0)).predict_proba(new)
    np.testing.assert_array_equal(result, fitted_of(case).predict_proba(new))
    equal = case().fit(p, y, np.ones(len(p))).predict_proba(new)
    np.testing.assert_array_equal(equal, fitted_of(case, weighted=False).predict_proba(new))


@each_case
def test_permuting_the_classes_permutes_the_probabilities(case: Case) -> None:
    p, y, w, new = data_of(case.binary)
    for order in list(itertools.permutations(range(2 if case.binary else 3)))[1:4]:
        moved = np.argsort(order)[y]
        turn = (lambda q: 1 - q) if case.binary else (lambda q, order=order: q[:, list(order)])
        result = case().fit(turn(p), moved, w).predict_proba(turn(new))
        away = np.abs(result - fitted_of(case).predict_proba(new)[:, list(order)]).max()
        if case().symmetric:
            assert away < 1e-6
        elif case.calibrator.__name__ not in STEPS:
            assert away > 1e-6  # a symmetric calibrator should declare it


#: Largest mean difference of probabilities when classes are exchanged, for calibrators whose bin
#: borders then belong to the other bin. Next to a border probabilities differ by one step.
STEPS = {"Histogram": 0.05, "ScalingBinning": 0.05, "BBQ": 0.05}


@each([case for case in DEFAULTS if case.binary])
@pytest.mark.parametrize("digits", [17, 2])
def test_exchanging_two_classes_exchanges_probabilities(case: Case, digits: int) -> None:
    """Check a number of rows that is no multiple of the number of bins, with ties on borders."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, 301).round(digits)
    y = (rng.random(301) < p**1.5).astype(int)
    new = np.linspace(0.003, 0.997, 300)
    one = quietly_fit(case(), p, y).predict_proba(new)
    other = quietly_fit(case(), 1 - p, 1 - y).predict_proba(1 - new)[:, ::-1]
    name = case.calibrator.__name__
    if name in STEPS:
        away = np.abs(one - other)
        assert away.mean() < STEPS[name]
        assert not case().symmetric and (away.max() > 1e-3 or digits == 17)
    else:
        np.testing.assert_allclose(one, other, atol=2e-8 if name == "AveragedBeta" else 1e-9)


@each_case
def test_one_row_constant_scores_and_one_class(case: Case) -> None:
    p, y, w, new = data_of(case.binary)
    k = y.max() + 1
    sets = [(p[:1], y[:1], w[:1]), (p[[0] * 30], y[:30], w[:30]), (p, y * 0, w), (p, y * 0 + 1, w)]
    for scores, label, weights in sets:
        fitted = quietly_fit(case(classes=range(k)), scores, label, weights)
        assert fitted.classes_.tolist() == list(range(k))
        check_probabilities(fitted.predict_proba(new), len(new), k)
        check_probabilities(fitted.predict_proba(new[:1]), 1, k)
    with pytest.raises(ValueError, match="y must hold"):
        case().fit(p, y * 0)


# --- shape --------------------------------------------------------------------------------------


FINE = np.concatenate([[0.0, 1e-300, 1e-17], np.linspace(1e-4, 1 - 1e-4, 499), [1 - 1e-16, 1]])


@each([case for case in CASES if case.calibrator.monotone])
def test_what_is_monotone_never_falls(case: Case) -> None:
    for seed in range(3):
        p, y, w, _ = make_data(Case(bc.Isotonic, {}), 80, seed)  # binary
        for label in (y, 1 - y, np.random.default_rng(seed).integers(0, 2, len(y))):
            result = quietly_fit(case(), p, label, w).predict_proba(FINE)[:, 1]
            # Allow rounding of log odds.
            assert np.diff(result).min() > -1e-15


@each([case for case in CASES if case.calibrator.keeps != "nothing"])
def test_the_order_of_classes_is_kept_where_promised(case: Case) -> None:
    p, y, w, new = data_of(case.binary)
    rng = np.random.default_rng(5)
    for label in (y, 2 - y, rng.integers(0, 3, len(y))):
        probs = quietly_fit(case(), p, label, w).predict_proba(new)
        if case.calibrator.keeps == "order":
            order = np.argsort(new, axis=1)
            steps = np.diff(np.take_along_axis(probs, order, axis=1), axis=1)
            assert steps.min() > -1e-12
        top = np.take_along_axis(probs, new.argmax(axis=1)[:, None], axis=1)[:, 0]
        assert (top > probs.max(axis=1) - 1e-12).all()


@each_default
def test_single_precision_costs_no_more_than_its_digits(case: Case) -> None:
    p, y, w, new = data_of(case.binary)
    single = case().fit(p.astype(np.float32), y, w.astype(np.float32))
    result = single.predict_proba(new.astype(np.float32))
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, fitted_of(case).predict_proba(new), atol=1e-3)


#: Calibrators whose objective is the log loss of their predictions alone.
MAXIMUM_LIKELIHOOD = [
    Case(bc.Beta, {}),
    Case(bc.Beta, {"parameters": 2}),
    Case(bc.Logistic, {}),
    Case(bc.Quadratic, {}),
    Case(bc.Temperature, {}),
    Case(bc.Vector, {}),
]


@each(MAXIMUM_LIKELIHOOD)
def test_the_objective_is_the_mean_loss(case: Case) -> None:
    p, y, w, _ = data_of(case.binary)
    fitted = case().fit(p, y, w)
    loss = bc.metrics.log_loss(fitted.predict_proba(p), y, weights=w)
    assert fitted.objective_ == pytest.approx(loss, rel=1e-9)


# --- scikit-learn and Python --------------------------------------------------------------------


@each_default
def test_the_callers_arrays_stay_as_they_are(case: Case) -> None:
    p, y, w, _ = data_of(case.binary)
    for scores in (p, np.stack([1 - p, p], axis=1)) if case.binary else (p,):
        arrays = [scores.copy(), y.copy(), w.copy()]
        for array in arrays:
            array.flags.writeable = False
        case().fit(*arrays).predict_proba(arrays[0])
        for array, before in zip(arrays, (scores, y, w), strict=True):
            np.testing.assert_array_equal(array, before)


@each_case
def test_options_are_kept_and_cloned(case: Case) -> None:
    fitted = fitted_of(case)
    options = fitted.get_params(deep=False)
    assert case.options.items() <= options.items()
    assert case.calibrator().set_params(**options).get_params(deep=False) == options
    twin: Any = clone(fitted)
    assert twin.get_params() == fitted.get_params() and not hasattr(twin, "classes_")
    for name, value in case.options.items():
        assert f"{name}={value!r}" in repr(fitted)


@each_default
def test_another_fit_leaves_nothing_of_the_first(case: Case) -> None:
    p, y, w, new = data_of(case.binary)
    first = make_data(case, 60, seed=5)
    again = case().fit(pd.DataFrame(first.p).add_prefix("c"), first.y).fit(p, y, w)
    fresh = fitted_of(case)
    np.testing.assert_array_equal(again.predict_proba(new), fresh.predict_proba(new))
    assert vars(again).keys() == vars(fresh).keys()


@each_case
def test_fitted_calibrators_are_pickled_copied_and_saved(case: Case, tmp_path: Path) -> None:
    fitted, new = fitted_of(case), data_of(case.binary).new
    file, path = io.BytesIO(), tmp_path / "calibrator.npz"
    joblib.dump(fitted, file)
    file.seek(0)
    bc.save(fitted, path)
    copies = pickle.loads(pickle.dumps(fitted)), joblib.load(file), copy.deepcopy(fitted)
    for twin in (*copies, bc.load(path)):
        # Copies and files hold no rows; the fitted calibrator keeps them.
        assert type(twin) is type(fitted)
        assert vars(twin).keys() == vars(fitted).keys() - {"_kept_rows"}
        np.testing.assert_array_equal(twin.predict_proba(new), fitted.predict_proba(new))
        assert twin.get_params() == fitted.get_params() and twin.status_ == fitted.status_
        for name, value in fitted.state_.items():
            assert twin.state_[name].dtype == value.dtype
            np.testing.assert_array_equal(twin.state_[name], value)
    assert list(tmp_path.iterdir()) == [path]


LABELS = {
    "strings": (["no", "perhaps", "yes"], np.asarray),
    "objects": (["no", "perhaps", "yes"], lambda y: np.asarray(y, object)),
    "signs": ([-1, 0, 1], np.asarray),
    "integers": ([3, 7, 200], lambda y: np.asarray(y, np.uint8)),
    "floats": ([0.0, 1.0, 2.0], np.asarray),
    "bfloat16": ([0.0, 1.0, 2.0], lambda y: jnp.asarray(y, jnp.bfloat16)),
    "a list": (["a", "b", "c"], list),
    "bytes": ([b"a", b"b", b"c"], np.asarray),
    "a list of bytes": ([b"a", b"b", b"c"], np.ndarray.tolist),
    "bytes as objects": ([b"a", b"b", b"c"], lambda y: np.asarray(y, object)),
    "a series of strings": (["no", "perhaps", "yes"], lambda y: pd.Series(y, dtype="str")),
    "a categorical": (["no", "perhaps", "yes"], lambda y: pd.Series(pd.Categorical(y))),
}


@each_default
def test_labels_of_any_kind(case: Case) -> None:
    p, y, _, new = data_of(case.binary)
    plain = fitted_of(case, weighted=False)
    kinds = LABELS if case.calibrator is bc.Temperature else ("strings", "a categorical")
    for names, wrap in (LABELS[kind] for kind in kinds):
        label = np.array(names)[: y.max() + 1]
        fitted = case().fit(p, wrap(label[y]))
        assert fitted.classes_.tolist() == label.tolist()
        np.testing.assert_array_equal(fitted.predict_proba(new), plain.predict_proba(new))
        np.testing.assert_array_equal(fitted.predict(new), label[plain.predict(new)])
    turned = case(classes=label[::-1].tolist()).fit(p, label[::-1][y])
    assert turned.classes_.tolist() == label[::-1].tolist()
    np.testing.assert_array_equal(turned.predict_proba(new), plain.predict_proba(new))


@each_default
def test_lists_series_and_frames(case: Case) -> None:
    p, y, w, new = data_of(case.binary)
    expected = fitted_of(case).predict_proba(new)
    fitted = case().fit(p.tolist(), pd.Series(y), list(w))
    np.testing.assert_array_equal(fitted.predict_proba(new.tolist()), expected)
    frame, at = (pd.DataFrame(q).add_prefix("c") for q in (p, new))
    backward = frame.set_index(np.arange(len(p))[::-1])
    fitted = case().fit(backward, pd.Series(y), pd.Series(w))
    np.testing.assert_array_equal(fitted.predict_proba(at), expected)
    assert fitted.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names should match those that were passed"):
        fitted.predict_proba(at.add_prefix("other"))


@each([case for case in DEFAULTS if not case.binary])
@pytest.mark.parametrize("frame", [pd.DataFrame, polars.DataFrame], ids=["pandas", "polars"])
def test_columns_named_like_the_classes_are_matched(case: Case, frame: Any) -> None:
    p, y, w, new = data_of(case.binary)
    labels = np.array(["b", "c", "a"])[y]

    def named(probs: Array, names: str) -> Any:
        return frame({name: probs[:, "bca".index(name)] for name in names})

    expected = case().fit(p[:, [2, 0, 1]], labels, w).predict_proba(new[:, [2, 0, 1]])
    for names in ("abc", "cab"):
        fitted = case().fit(named(p, names), labels, w)
        for others in ("abc", "bca"):
            result = fitted.predict_proba(named(new, others))
            np.testing.assert_array_equal(result, expected)
    with pytest.raises(ValueError, match="scores must have columns named like all of the classes"):
        case().fit(named(p, "abc").rename(**rename_arguments(frame)), labels, w)


def rename_arguments(frame: Any) -> dict[str, Any]:
    mapping = {"a": "x"}
    return {"columns": mapping} if frame is pd.DataFrame else {"mapping": mapping}


@each([case for case in DEFAULTS if case.binary])
def test_a_column_alone_is_of_the_second_class(case: Case) -> None:
    p, y, *_ = data_of(case.binary)
    labels = np.array(["no", "yes"])[y]
    expected = case().fit(p, labels).predict_proba(p)
    for name in ("yes", "score"):
        for scores in (pd.DataFrame({name: p}), pd.Series(p, name=name)):
            result = case().fit(scores, labels).predict_proba(scores)
            np.testing.assert_array_equal(result, expected)
    for scores in (pd.DataFrame({"no": p}), pd.Series(p, name="no")):
        with pytest.raises(ValueError, match="got .'no'.; pass the column of the second class"):
            case().fit(scores, labels)


@each_default
def test_weights_are_routed(case: Case) -> None:
    p, y, *_ = data_of(case.binary)
    scores, weights = p.reshape(len(p), -1), np.random.default_rng(0).integers(1, 3, len(p))
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        asked = case().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        pipe = make_pipeline(FunctionTransformer(), asked).fit(scores, y, sample_weight=weights)
        expected = case().fit(scores, y, weights)
        np.testing.assert_array_equal(pipe.predict_proba(scores), expected.predict_proba(scores))
        result = cross_validate(
            asked, scores, y, params={"sample_weight": weights}, return_estimator=True, cv=2,
            return_indices=True,
        )  # fmt: skip
        rows = result["indices"]["train"][0]
        expected = case().fit(scores[rows], y[rows], weights[rows]).predict_proba(scores)
        np.testing.assert_array_equal(result["estimator"][0].predict_proba(scores), expected)


@each_default
def test_what_is_not_fitted_predicts_nothing(case: Case) -> None:
    new = data_of(case.binary).new
    for method in ("predict", "predict_proba", "predict_interval"):
        if hasattr(case(), method):
            with pytest.raises(NotFittedError):
                getattr(case(), method)(new)
    if hasattr(case.calibrator, "posterior_"):
        with pytest.raises(NotFittedError):
            case().posterior_  # noqa: B018


# --- errors -------------------------------------------------------------------------------------


def bad_data(case: Case) -> list[tuple[Any, Any, Any, str]]:
    p, y, w, _ = data_of(case.binary)
    n, k = len(p), y.max() + 1
    nan, infinite = p.copy(), p.copy()
    nan[4], infinite[4] = np.nan, np.inf
    y_nan = np.where(np.arange(n) == 4, np.nan, y)
    rows = p.reshape(n, -1)
    return [
        (nan, y, None, "NaN"),
        (infinite, y, None, "infinity"),
        (p + 1, y, None, r"scores must lie in \[0, 1\] for inputs='probs'"),
        (np.tile(rows / k, 2 if case.binary else 1), y, None, "scores must have rows that sum to"),
        (rows[:, :, None], y, None, r"scores must have shape \(n,\) or \(n, k\), got"),
        (p[:0], y[:0], None, "0 sample"),
        (p, y[:-1], None, rf"y must have shape \({n},\) to match the scores, got \({n - 1},\)"),
        (p, None, None, "requires y to be passed, but the target y is None"),
        (p, np.stack([y, y], 1), None, rf"y must have shape \(n,\), got \({n}, 2\)"),
        (p, np.arange(n) % 4, None, f"y must hold {'two' if case.binary else 3} classes"),
        (p, w, None, "Unknown label type"),
        (p, y_nan, None, "NaN"),
        (p, y, w[:-1], rf"sample_weight must have shape \({n},\) to match y, got \({n - 1},\)"),
        (p, y, -w, "sample_weight must not be negative"),
        (p, y, 0 * w, "sample_weight must not all be zero"),
        (p, y, np.where(np.arange(n) == 4, np.nan, w), "sample_weight must be finite, got NaN at"),
    ]


@each_default
def test_errors_say_what_is_wrong(case: Case) -> None:
    for scores, y, weights, message in bad_data(case):
        with pytest.raises(ValueError, match=message):
            case().fit(scores, y, weights)
    if case.binary:
        p, y, *_ = data_of(True)
        with pytest.raises(ValueError, match=r"\(n,\), \(n, 1\) or \(n, 2\)"):
            case().fit(np.full((len(p), 3), 1 / 3), y)


@each_default
def test_errors_of_options(case: Case) -> None:
    p, y, *_ = data_of(case.binary)
    k = y.max() + 1
    with pytest.raises(ValueError, match="inputs must be one of 'probs', 'logits', 'scores'"):
        case(inputs="probabilities").fit(p, y)
    with pytest.raises(ValueError, match=r"y must hold only the classes \[1, 2"):
        case(classes=range(1, k + 1)).fit(p, y)
    for classes in ([0] * k, range(k + 1), 0):
        with pytest.raises(ValueError, match="classes must be .* different labels, got"):
            case(classes=classes).fit(p, y)
    with pytest.raises(ValueError, match="y must hold only the classes"):
        case(classes=["a", "b", "c"][:k]).fit(p, y)
    with pytest.warns(DataConversionWarning, match="column-vector y") as record:
        case().fit(p, y[:, None])
    # The warning points to the line above.
    assert record[0].filename == __file__
    fitted = fitted_of(case)
    with pytest.raises(ValueError, match="X has 4 features, but .* is expecting"):
        fitted.predict(np.full((2, 4), 0.25))


def test_separable_scores_warn_and_say_what_to_do() -> None:
    p = np.array([0.1, 0.2, 0.8, 0.9])
    with pytest.warns(
        ConvergenceWarning, match="the scores separate the labels.*laplace"
    ) as result:
        fitted = bc.Logistic().fit(p, [0, 0, 1, 1])
    assert fitted.status_ == "unbounded" and result[0].filename == __file__
    assert fitted.predict(p).tolist() == [0, 0, 1, 1]
    with pytest.warns(ConvergenceWarning, match="ScalingBinning: .* are kept; use more data"):
        bc.ScalingBinning(2).fit(p, [0, 0, 1, 1])


@each([case for case in DEFAULTS if "random_state" in case().get_params()])
def test_the_global_generator_is_left_alone(case: Case) -> None:
    before = check_random_state(None).get_state(legacy=False)
    p, y, w, _ = data_of(case.binary)
    case().set_params(random_state=None).fit(p, y, w)
    after = check_random_state(None).get_state(legacy=False)
    assert str(before) == str(after)


# --- what remains of a fit when a later one fails -----------------------------------------------


class _FailsAtTheEnd:
    """A calibrator that raises in the last step of a fit."""

    def _publish(self, state: Any) -> None:
        super()._publish(state)  # type: ignore[misc]
        raise RuntimeError("the disk is full")


def _estimators() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Return every public estimator with suitable data that have column names."""
    binary, several = data_of(True), data_of(False)
    frames = {
        True: pd.DataFrame({"no": 1 - binary[0], "yes": binary[0]}),
        False: pd.DataFrame(several[0], columns=["a", "b", "c"]),
    }
    labels = {True: np.array(["no", "yes"])[binary[1]], False: np.array([*"abc"])[several[1]]}
    result = {case.name: (case(), (frames[case.binary], labels[case.binary])) for case in DEFAULTS}
    pair = frames[True], labels[True]
    combined = (
        bc.Auto(),
        bc.Average([bc.Beta(), bc.Isotonic()]),
        bc.Composition([bc.Beta(), bc.Isotonic()]),
        bc.CalibratedClassifier(GaussianNB(), bc.Isotonic(), cv=2),
        bc.CalibratedClassifier(GaussianNB(), bc.Isotonic(), cv=2, ensemble=True),
        bc.LogisticRegression.preset("platt"),
    )
    result |= {
        f"{type(estimator).__name__} {i}": (estimator, pair) for i, estimator in enumerate(combined)
    }
    many = pd.DataFrame(several[0], columns=["a", "b", "c"])
    present = pd.DataFrame(several[0] > 0.4, columns=["a", "b", "c"]).astype(int)
    result["MultiLabel"] = bc.MultiLabel(bc.Isotonic()), (many, present)
    groups = pd.DataFrame({"first": binary[0] > 0.5, "second": binary[0] <= 0.5})
    result["Multicalibration"] = bc.Multicalibration(), (*pair, groups)
    return result


def _invalid_data(data: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    scores, y, *rest = data
    broken = scores.iloc[:, ::-1].copy()
    broken.iloc[0, 0] = np.nan
    wider = pd.concat([scores, scores.set_axis([f"{n}2" for n in scores], axis=1)], axis=1)
    others = y == y.iloc[0, 0] if isinstance(y, pd.DataFrame) else np.arange(len(y)) % 7
    return {
        "NaN and other columns": (broken, 1 - y if isinstance(y, pd.DataFrame) else y, *rest),
        "negative weights": (scores, y, *rest, np.full(len(y), -1.0)),
        "other labels": (scores, others + 3, *rest),
        "more columns": (wider, y[:-1], *rest),
        "fewer labels": (scores[::-1], y[:-1], *rest),
    }


@pytest.mark.parametrize("name", _estimators())
def test_a_fit_that_fails_leaves_the_earlier_one(name: str) -> None:
    """Check that names of classes and columns, maps and reports stay those of the earlier fit."""
    if name.startswith(SLOW):
        pytest.skip("long searches, of the same base")
    estimator, data = _estimators()[name]
    at = (data[0], data[2]) if name == "Multicalibration" else data[:1]
    quietly_fit(estimator, *data)
    expected, kept = estimator.predict_proba(*at), dict(vars(estimator))
    for what, wrong in _invalid_data(data).items():
        with pytest.raises((ValueError, TypeError)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(*wrong)
        now = vars(estimator)
        assert now.keys() == kept.keys() and all(now[key] is kept[key] for key in kept), what
        np.testing.assert_array_equal(estimator.predict_proba(*at), expected)
    if hasattr(estimator, "report_"):
        assert estimator.report_.rows == len(data[1])


@each_default
def test_a_fit_that_fails_at_its_end_leaves_the_earlier_one(case: Case) -> None:
    p, y, w, new = data_of(case.binary)
    fitted = copy.copy(fitted_of(case))
    expected, names = fitted.predict_proba(new), np.array([*"zyx"])[y]
    fitted.__class__ = type(case.calibrator.__name__, (_FailsAtTheEnd, case.calibrator), {})
    with pytest.raises(RuntimeError, match="disk"):
        quietly_fit(fitted, p, names, w)
    fitted.__class__ = case.calibrator
    assert fitted.classes_.tolist() == list(range(len(fitted.classes_)))
    np.testing.assert_array_equal(fitted.predict_proba(new), expected)


def test_a_pass_over_blocks_that_fails_leaves_the_earlier_fit() -> None:
    """Check a failure after the pass that finds classes and columns."""

    class Failing(bc.Beta):
        def _fit(self, rows: Any, seed: int) -> Any:
            result = super()._fit(rows, seed)
            if not isinstance(rows, Rows):
                raise OSError("the disk is gone")
            return result

    p, y, w, new = data_of(True)
    fitted = Failing().fit(p, y)
    kept, expected = dict(vars(fitted)), fitted.predict_proba(new)
    block = np.stack([1 - p, p], axis=1), np.array(["no", "yes"])[y], w
    with pytest.raises(OSError, match="disk"):
        fitted.fit(bc.Blocks(lambda: iter([block, block])))
    assert vars(fitted).keys() == kept.keys() and fitted.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(fitted.predict_proba(new), expected)


@each_default
@pytest.mark.parametrize("inputs", ["probs", "logits"])
def test_errors_of_floating_point_that_the_caller_asks_for_change_nothing(
    case: Case, inputs: str
) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(120, 2 if case.binary else 3)) * np.repeat([1, 30, 1e3], 40)[:, None]
    if inputs == "probs":
        scores = softmax(10 * scores, axis=1)
        scores[:20] = 1e-300 * rng.uniform(size=scores[:20].shape)
        scores[:20, 1] = 1 - scores[:20].sum(axis=1)
    y, single = np.arange(120) % scores.shape[1], scores.astype(np.float32)

    def use() -> list[Array]:
        fitted = quietly_fit(case(inputs=inputs), scores, y)
        function = fitted.as_function()
        reported = np.array([fitted.report_.log_loss], float)
        return [fitted.predict_proba(scores), function(scores), function(single), reported]

    wanted = use()
    with np.errstate(all="raise"):
        result = use()
    for actual, other in zip(result, wanted, strict=True):
        np.testing.assert_array_equal(actual, other)


@each_case
def test_options_set_after_a_fit_are_for_the_next_one(case: Case, tmp_path: Path) -> None:
    p, y, w, new = data_of(case.binary)
    fitted = quietly_fit(case(), p, y, w)
    expected, map_ = fitted.predict_proba(new), fitted.as_function()(new)
    others = [other.options for other in CASES if other.calibrator is case.calibrator]
    for options in ({"inputs": "logits"}, {"classes": ("a", "b", "c")[: 2 + p.ndim - 1]}, *others):
        if not options:
            continue
        before = {name: getattr(fitted, name) for name in options}
        fitted.set_params(**options)
        assert {name: fitted.get_params(deep=False)[name] for name in options} == options
        np.testing.assert_array_equal(fitted.predict_proba(new), expected)
        np.testing.assert_array_equal(fitted.as_function()(new), map_)
        bc.save(fitted, tmp_path / "fitted")
        np.testing.assert_array_equal(bc.load(tmp_path / "fitted").predict_proba(new), expected)
        fitted.set_params(**before)


def test_options_of_parts_and_of_multicalibration_set_after_a_fit() -> None:
    p, y, _, new = data_of(False)
    fitted = bc.OneVsRest(bc.Histogram(10)).fit(p, y)
    expected = fitted.predict_proba(new)
    fitted.set_params(calibrator__bins=3)
    np.testing.assert_array_equal(fitted.predict_proba(new), expected)
    np.testing.assert_array_equal(fitted.as_function()(new), expected)
    assert not np.allclose(fitted.fit(p, y).predict_proba(new), expected)
    p, y, _, new = data_of(True)
    groups, after = np.stack([p > 0.5, y == 1], axis=1), np.ones((len(new), 2), bool)
    patched = bc.Multicalibration().fit(p, y, groups)
    expected = patched.predict_proba(new, after)
    np.testing.assert_array_equal(patched.set_params(bins=3).predict_proba(new, after), expected)
