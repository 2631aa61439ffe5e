"""What every calibrator of several classes promises, for each map in the registry."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score

import bayescal as bc
from bayescal import estimators
from bayescal.estimators._multiclass import (
    MulticlassCalibrator,
    ParametricMulticlassCalibrator,
)
from bayescal.maps.multiclass import MULTICLASS
from tests.maps.multiclass.hostile import LOGITS, PROBABILITIES

Array = np.ndarray

#: Options that make a fit quick, and free of folds: these depend on the order of rows.
QUICK: dict[str, dict[str, Any]] = {
    "knn": {"k": 32},
    "kernel": {"bandwidth": 0.1},
    "forest": {"bins": 8, "trees": 20},
    "order_preserving": {"hidden": (4, 4)},
    "stacked_scaling": {"mode": "single"},
}
#: Maps whose fit is not a unique optimum, so that rounding decides between equally good ones.
ROUGH = {"forest", "decision", "order_preserving"}
NAMES = sorted(MULTICLASS)
#: Of which repeating a row is another problem: trees are drawn from the rows.
DRAWN = {"forest"}


def make(name: str, **options: Any) -> Any:
    cls = getattr(estimators, MULTICLASS[name].__name__)
    seed = {"random_state": 0} if "random_state" in inspect.signature(cls).parameters else {}
    return cls(**{**QUICK.get(name, {}), **seed, **options})


def rows(n: int = 240, k: int = 4, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return over-confident probabilities, labels and whole weights."""
    rng = np.random.default_rng(seed)
    z = 4 * rng.normal(size=(n, k))
    y = np.argmax(0.4 * z + 0.3 * np.arange(k) + rng.gumbel(size=z.shape), axis=1)
    return softmax(z, axis=1), y, rng.integers(1, 4, n)


P, Y, W = rows()
AT = rows(60, seed=9)[0]
each = pytest.mark.parametrize("name", NAMES)
parametric = pytest.mark.parametrize(
    "name",
    [n for n in NAMES if issubclass(type(make(n)), ParametricMulticlassCalibrator)]
    + ["temperature"],
)


@each
def test_every_map_has_an_estimator_with_its_options(name: str) -> None:
    method = MULTICLASS[name]
    cls = getattr(estimators, method.__name__)
    assert method.name == name
    assert getattr(bc, method.__name__) is cls and method.__name__ in bc.__all__
    parameters = inspect.signature(cls.__init__).parameters
    if name == "one_vs_rest":
        assert parameters.keys() == {"self", "calibrator", "inputs", "classes"}
        return
    for field in dataclasses.fields(method):  # pyright: ignore[reportArgumentType]
        assert parameters[field.name].default == field.default
        assert parameters[field.name].kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert parameters["inputs"].default == "probs" and parameters["classes"].default is None
    own = {"self", "inputs", "classes", *(f.name for f in dataclasses.fields(method))}  # pyright: ignore[reportArgumentType]
    assert parameters.keys() - own <= {"inference", "num_samples", "random_state"}


@each
def test_predictions_are_probabilities_of_all_classes(name: str) -> None:
    estimator = make(name)
    assert estimator.fit(P, Y) is estimator
    probs = estimator.predict_proba(AT)
    assert probs.shape == (60, 4) and probs.dtype == np.float64
    assert ((probs >= 0) & (probs <= 1)).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(estimator.predict(AT), probs.argmax(axis=1))
    assert estimator.classes_.tolist() == [0, 1, 2, 3] and estimator.status_ == "converged"
    # Better than it was on new rows, by far: the scores are four times too large.
    fresh, y, _ = rows(2000, seed=5)
    before = np.mean((fresh - np.eye(4)[y]) ** 2)
    assert np.mean((estimator.predict_proba(fresh) - np.eye(4)[y]) ** 2) < 0.97 * before


@each
def test_what_is_kept(name: str) -> None:
    estimator = make(name).fit(P, Y)
    keeps = MULTICLASS[name].keeps
    probs = estimator.predict_proba(AT)
    if keeps in ("argmax", "order"):
        np.testing.assert_array_equal(probs.argmax(axis=1), AT.argmax(axis=1))
    if keeps == "order":
        np.testing.assert_array_equal(np.argsort(probs, axis=1), np.argsort(AT, axis=1))


@each
def test_logits_and_probabilities_are_the_same_input(name: str) -> None:
    from_probs = make(name).fit(P, Y).predict_proba(AT)
    from_logits = make(name, inputs="logits").fit(np.log(P), Y).predict_proba(np.log(AT))
    np.testing.assert_allclose(from_logits, from_probs, atol=1e-3 if name in ROUGH else 1e-7)


@each
def test_single_precision_fits_as_well(name: str) -> None:
    logits, at = np.log(P), np.log(AT)
    wide = make(name, inputs="logits").fit(logits, Y).predict_proba(at)
    narrow = make(name, inputs="logits").fit(logits.astype(np.float32), Y)
    found = narrow.predict_proba(at.astype(np.float32))
    if name in ROUGH:
        own = np.arange(len(AT)), rows(60, seed=9)[1]
        assert np.mean(-np.log(found[own])) == pytest.approx(np.mean(-np.log(wide[own])), rel=0.05)
    else:
        np.testing.assert_allclose(found, wide, atol=1e-4)


@each
def test_a_whole_weight_is_repetition_and_order_does_not_matter(name: str) -> None:
    weighted = make(name).fit(P, Y, W).predict_proba(AT)
    order = np.random.default_rng(1).permutation(len(Y))
    tolerance = 2e-2 if name in ROUGH else 1e-5
    shuffled = make(name).fit(P[order], Y[order], W[order]).predict_proba(AT)
    np.testing.assert_allclose(shuffled, weighted, atol=tolerance)
    if name not in DRAWN:
        repeated = make(name).fit(np.repeat(P, W, axis=0), np.repeat(Y, W)).predict_proba(AT)
        np.testing.assert_allclose(repeated, weighted, atol=tolerance)
    # Rows without weight are as if they were not there.
    more = np.concatenate([P, P[::-1]]), np.concatenate([Y, Y])
    dropped = make(name).fit(*more, np.concatenate([W, 0 * W])).predict_proba(AT)
    np.testing.assert_allclose(dropped, weighted, atol=1e-12)


@each
def test_labels_of_any_kind_and_classes_that_the_data_lack(name: str) -> None:
    words = np.array(["ash", "birch", "cedar", "dogwood"])
    named = make(name).fit(P, words[Y])
    assert named.classes_.tolist() == words.tolist()
    assert set(named.predict(AT)) <= set(words)
    np.testing.assert_array_equal(named.predict_proba(AT), make(name).fit(P, Y).predict_proba(AT))
    # Columns in another order.
    turned = make(name, classes=words[::-1].tolist()).fit(P[:, ::-1], words[Y])
    assert turned.classes_.tolist() == words[::-1].tolist()
    if name not in ROUGH:
        found = turned.predict_proba(AT[:, ::-1])[:, ::-1]
        np.testing.assert_allclose(found, named.predict_proba(AT), atol=1e-6)
    some = Y != 2
    with pytest.raises(ValueError, match="y must hold 4 classes"):
        make(name).fit(P[some], Y[some])
    lacking = make(name, classes=range(4)).fit(P[some], Y[some])
    probs = lacking.predict_proba(AT)
    assert lacking.classes_.tolist() == [0, 1, 2, 3]
    assert (probs[:, 2] > 0).all() and np.isfinite(probs).all()
    if MULTICLASS[name].keeps == "nothing":
        assert probs[:, 2].mean() < AT[:, 2].mean()
    with pytest.raises(ValueError, match="classes must be 4 different labels"):
        make(name, classes=[0, 1, 2, 2]).fit(P, Y)
    with pytest.raises(ValueError, match="y must hold only the classes"):
        make(name, classes=[0, 1, 2, 7]).fit(P, Y)


@each
@pytest.mark.parametrize("case", PROBABILITIES)
def test_hostile_probabilities(name: str, case: str) -> None:
    p, y = PROBABILITIES[case]
    probs = np.array(p, float)
    probs.setflags(write=False)
    classes = list(range(probs.shape[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator = make(name, classes=classes).fit(probs, y)
    found = estimator.predict_proba(probs)
    assert np.isfinite(found).all() and (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-9)


@each
@pytest.mark.parametrize("case", LOGITS)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_hostile_logits(name: str, case: str, kind: type) -> None:
    z, y = LOGITS[case]
    logits = np.array(z, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator = make(name, inputs="logits", classes=range(3)).fit(logits, y)
    found = estimator.predict_proba(logits)
    assert np.isfinite(found).all() and (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-9)


@each
def test_two_classes_may_come_in_one_column(name: str) -> None:
    rng = np.random.default_rng(2)
    p = rng.beta(0.6, 0.6, 200).clip(1e-3, 1 - 1e-3)
    y = (rng.uniform(size=200) < 0.25 + 0.5 * p).astype(int)
    both = np.stack([1 - p, p], axis=1)
    one, two = make(name).fit(p, y), make(name).fit(both, y)
    at = np.linspace(0.01, 0.99, 50)
    found = one.predict_proba(at)
    assert found.shape == (50, 2)
    expected = two.predict_proba(np.stack([1 - at, at], axis=1))
    np.testing.assert_allclose(found, expected, atol=1e-3 if name in ROUGH else 1e-9)


@each
def test_wrong_input_is_told(name: str) -> None:
    estimator = make(name)
    with pytest.raises(NotFittedError):
        estimator.predict_proba(AT)
    with pytest.raises(ValueError, match="lie in \\[0, 1\\]"):
        estimator.fit(np.log(P), Y)
    with pytest.raises(ValueError, match="rows that sum to one"):
        estimator.fit(P / 2, Y)
    with pytest.raises(ValueError, match="NaN"):
        estimator.fit(np.where(P > 0.9, np.nan, P), Y)
    with pytest.raises(ValueError, match="inputs must be"):
        make(name, inputs="scores").fit(P, Y)
    with pytest.raises(ValueError, match="240 labels"):
        estimator.fit(P, Y[:-1])
    with pytest.raises(ValueError, match="sample_weight"):
        estimator.fit(P, Y, -W)
    estimator.fit(P, Y)
    with pytest.raises(ValueError, match="4 features"):
        estimator.predict_proba(AT[:, :3])


@each
def test_tables_names_clones_and_copies(name: str) -> None:
    table = pd.DataFrame(P, columns=list("abcd"))
    estimator = make(name).fit(table, pd.Series(Y))
    assert estimator.feature_names_in_.tolist() == list("abcd")
    expected = estimator.predict_proba(table)
    np.testing.assert_array_equal(expected, make(name).fit(P, Y).predict_proba(P))
    fresh = clone(estimator)
    with pytest.raises(NotFittedError):
        fresh.predict_proba(P)
    np.testing.assert_array_equal(copy.deepcopy(estimator).predict_proba(table), expected)
    scores = cross_val_score(make(name), P, Y, cv=2, scoring="neg_log_loss", error_score="raise")
    assert np.isfinite(scores).all()


@each
def test_a_saved_calibrator_predicts_the_same(name: str, tmp_path: Path) -> None:
    words = np.array(["ash", "birch", "cedar", "dogwood"])
    estimator = make(name).fit(pd.DataFrame(P, columns=list("abcd")), words[Y])
    bc.save(estimator, tmp_path / "calibrator.npz")
    read = bc.load(tmp_path / "calibrator.npz")
    at = pd.DataFrame(AT, columns=list("abcd"))
    np.testing.assert_array_equal(read.predict_proba(at), estimator.predict_proba(at))
    np.testing.assert_array_equal(read.predict(at), estimator.predict(at))
    assert read.get_params().keys() == estimator.get_params().keys()
    assert read.status_ == estimator.status_


@pytest.mark.parametrize("inference", ["laplace", "nuts"])
@parametric
def test_posterior_means_and_intervals(name: str, inference: str, tmp_path: Path) -> None:
    estimator = make(name, inference=inference, num_samples=400).fit(P, Y)
    posterior = estimator.posterior_
    assert posterior.inference == inference and posterior.divergences == 0
    flat = make(name).fit(P, Y).predict_proba(AT)
    probs = estimator.predict_proba(AT)
    lower, upper = estimator.predict_interval(AT, 0.8)
    assert lower.shape == upper.shape == AT.shape
    assert (lower < upper).all() and (lower <= probs + 1e-3).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)
    # 240 rows leave some doubt, but not much.
    assert np.abs(probs - flat).max() < 0.15
    wide = estimator.predict_interval(AT, 0.99)
    assert (wide[0] <= lower).all() and (wide[1] >= upper).all()
    bc.save(estimator, tmp_path / "calibrator.npz")
    read = bc.load(tmp_path / "calibrator.npz")
    np.testing.assert_array_equal(read.predict_interval(AT)[0], estimator.predict_interval(AT)[0])
    with pytest.raises(AttributeError, match="needs inference"):
        _ = make(name).fit(P, Y).posterior_


def test_the_posterior_of_many_parameters() -> None:
    p, y = rows(600, k=60)[0], np.arange(600) % 60
    with pytest.raises(ValueError, match="'map' or 'laplace' for more than 3,000 parameters"):
        bc.Matrix(1.0, 1.0, inference="nuts").fit(p, y)
    found = bc.Matrix(1.0, 1.0, inference="laplace", num_samples=20, random_state=0).fit(p, y)
    assert found.posterior_.draws["coef"].shape == (1, 20, 60, 60)
    lower, upper = found.predict_interval(p[:5])
    assert (lower < upper).all()


def test_one_versus_rest_takes_calibrators_of_binary_scores() -> None:
    for bad in (bc.Vector(), "isotonic", bc.Isotonic):
        with pytest.raises(TypeError, match="binary scores"):
            bc.OneVsRest(bad).fit(P, Y)
    with pytest.raises(ValueError, match="inference='map'"):
        bc.OneVsRest(bc.Beta(inference="laplace")).fit(P, Y)
    found = bc.OneVsRest(bc.Beta()).fit(P, Y)
    columns = [bc.Beta().fit(P[:, j], Y == j).predict_proba(AT[:, j])[:, 1] for j in range(4)]
    expected = np.stack(columns, axis=1)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.predict_proba(AT), expected, atol=1e-7)


def test_calibrators_are_found() -> None:
    assert {"vector", "matrix", "dirichlet", "temperature", "one_vs_rest", "kernel"} <= set(NAMES)
    assert isinstance(make("vector"), MulticlassCalibrator)
