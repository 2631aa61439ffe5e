"""Compositions, averages, and one calibrator per label."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

import bayescal as bc

Array = np.ndarray


def make_logits(n: int = 200, k: int = 3, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    z = 4 * rng.normal(size=(n, k))
    y = np.argmax(0.4 * z + rng.gumbel(size=z.shape), axis=1)
    return z, y, rng.uniform(0.5, 2, n)


Z, Y, W = make_logits()
P = softmax(Z, axis=1)


def test_a_composition_is_one_after_the_other() -> None:
    both = bc.compose(bc.Temperature(inputs="logits"), bc.WeightScaling(4)).fit(Z, Y, W)
    assert both.inputs == "logits" and both.classes_.tolist() == [0, 1, 2]
    first = bc.Temperature(inputs="logits").fit(Z, Y, W)
    second = bc.WeightScaling(4).fit(first.predict_proba(Z), Y, W)
    at = make_logits(50, seed=3)[0]
    expected = second.predict_proba(first.predict_proba(at))
    np.testing.assert_array_equal(both.predict_proba(at), expected)
    np.testing.assert_array_equal(both.predict(at), expected.argmax(axis=1))
    assert clone(both).calibrators[1].bins == 4
    with pytest.raises(ValueError, match="inputs='probs' after the first"):
        bc.compose(bc.Vector(), bc.Vector(inputs="logits")).fit(P, Y)


def test_an_average_is_the_mean() -> None:
    parts = [bc.Temperature(), bc.Dirichlet(1.0, 1.0)]
    mean = bc.Average(parts).fit(P, Y, W)
    expected = sum(clone(part).fit(P, Y, W).predict_proba(P) for part in parts) / 2
    np.testing.assert_allclose(mean.predict_proba(P), expected, rtol=1e-14)
    assert not hasattr(parts[0], "classes_")
    with pytest.raises(ValueError, match="the same inputs, got logits, probs"):
        bc.Average([bc.Vector(), bc.Vector(inputs="logits")]).fit(P, Y)


@pytest.mark.parametrize("kind", [bc.Average, bc.Composition])
@pytest.mark.parametrize("given", [0, 1])
def test_classes_of_one_calibrator_are_those_of_all(kind: Any, given: int) -> None:
    names = ("b", "a", "c")
    y = np.array(names)[Y]
    parts = [bc.Temperature(), bc.OneVsRest(bc.Isotonic())]
    expected = kind(parts, classes=names).fit(P, y).predict_proba(P)
    parts[given] = clone(parts[given]).set_params(classes=names)
    actual = kind(parts).fit(P, y)
    assert actual.classes_.tolist() == [*names]
    np.testing.assert_array_equal(actual.predict_proba(P), expected)
    with pytest.raises(ValueError, match="the same classes in one order"):
        kind(parts, classes=("a", "b", "c")).fit(P, y)


@pytest.mark.parametrize("kind", [bc.Average, bc.Composition])
def test_lists_of_calibrators_are_checked(kind: Any) -> None:
    for bad in ([], "temperature", bc.Temperature(), [bc.Temperature], [3]):
        with pytest.raises(TypeError, match="calibrators must be"):
            kind(bad).fit(P, Y)
    with pytest.raises(NotFittedError):
        kind([bc.Temperature()]).predict_proba(P)
    some = Y != 1
    lacking = kind([bc.Temperature(), bc.StructuredVector()], classes=range(3)).fit(
        P[some], Y[some]
    )
    assert (lacking.predict_proba(P)[:, 1] > 0).all()


def test_the_worst_status_is_told() -> None:
    with pytest.warns(match="separate the labels"):
        average = bc.Average([bc.StructuredVector(), bc.Temperature()]).fit(
            np.eye(3) * 0.7 + 0.1, [0, 1, 2]
        )
    assert average.status_ == "unbounded"


def test_each_label_has_its_own_calibrator() -> None:
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.01, 0.99, (150, 4))
    labels = (rng.uniform(size=scores.shape) < scores**2).astype(int)
    labels[:, 2] = 0
    weights = rng.uniform(0.5, 2, 150)
    several = bc.MultiLabel(bc.Histogram(10)).fit(scores, labels, weights)
    result = several.predict_proba(scores)
    for j in range(4):
        single = bc.Histogram(10, classes=(0, 1)).fit(scores[:, j], labels[:, j], weights)
        np.testing.assert_array_equal(result[:, j], single.predict_proba(scores[:, j])[:, 1])
    assert (result[:, 2] == 0).all()
    np.testing.assert_array_equal(several.predict(scores), result > 0.5)
    table = pd.DataFrame(labels, columns=list("abcd"))
    assert bc.MultiLabel(bc.Isotonic()).fit(scores, table).label_names_.tolist() == list("abcd")
    # A label may be always absent: the prior keeps its curve finite.
    banded = bc.MultiLabel(bc.Beta(inference="laplace", random_state=0))
    banded.fit(scores, labels)
    lower, upper = banded.predict_interval(scores)
    assert lower.shape == (150, 4) and (lower < upper).all()
    assert not hasattr(bc.MultiLabel(bc.BBQ()).fit(scores, labels), "predict_interval")
    with pytest.raises(ValueError, match="y must have the shape"):
        several.fit(scores, labels[:, :3])
    with pytest.raises(ValueError, match="a column for each of the labels, got 2 in row"):
        several.fit(scores, labels + 1)
    with pytest.raises(ValueError, match="shape \\(n, labels\\)"):
        several.fit(scores[:, 0], labels)
    with pytest.raises(ValueError, match="4 columns"):
        several.predict_proba(scores[:, :2])


@pytest.mark.parametrize(
    "calibrator",
    [
        bc.compose(bc.Temperature(), bc.OneVsRest(bc.Isotonic())),
        bc.Average([bc.Temperature(), bc.compose(bc.Vector(), bc.OneVsRest(bc.Histogram(4)))]),
        bc.OneVsRest(bc.Beta(2)),
    ],
    ids=["composition", "average", "one versus rest"],
)
def test_saved_combinations_predict_the_same(calibrator: Any, tmp_path: Path) -> None:
    words = np.array(["ash", "birch", "cedar"])[Y]
    fitted = clone(calibrator).fit(P, words)
    bc.save(fitted, tmp_path / "file.npz")
    read = bc.load(tmp_path / "file.npz")
    np.testing.assert_array_equal(read.predict_proba(P), fitted.predict_proba(P))
    assert repr(read) == repr(fitted)
    np.testing.assert_array_equal(clone(read).fit(P, words).predict(P), fitted.predict(P))


def test_decision_values_of_several_classes() -> None:
    X, y = load_iris(return_X_y=True)
    model = bc.CalibratedClassifier(LinearSVC(), cv=3).fit(X, y)
    assert model.calibrators_[0].inputs == "logits"
    assert model.predict_proba(X).shape == (150, 3)
    foreign = bc.CalibratedClassifier(LinearSVC(), LogisticRegression(), cv=3).fit(X, y)
    assert foreign.score(X, y) > 0.9
    with pytest.raises(ValueError, match="OneVsRest\\(Beta\\(\\)\\)"):
        bc.CalibratedClassifier(GaussianNB(), bc.Beta()).fit(X, y)


def test_new_scores_go_by_the_names_of_the_scores_of_the_fit() -> None:
    rng = np.random.default_rng(0)
    scores = pd.DataFrame(rng.random((50, 3)), columns=["c", "a", "b"])
    labels = (rng.random((50, 3)) < scores.to_numpy() ** 2).astype(int)
    fitted = bc.MultiLabel(bc.Beta()).fit(scores, labels)
    expected = bc.MultiLabel(bc.Beta()).fit(scores.to_numpy(), labels)
    for new in (scores, scores[["a", "b", "c"]], scores.to_numpy()):
        np.testing.assert_array_equal(
            fitted.predict_proba(new), expected.predict_proba(scores.to_numpy())
        )


def test_labels_are_matched_by_their_names() -> None:
    rng = np.random.default_rng(0)
    p = rng.random((80, 3))
    scores = pd.DataFrame(p, columns=["a", "b", "c"])
    present = (pd.DataFrame(rng.random((80, 3)), columns=["a", "b", "c"]) < scores).astype(int)
    expected = bc.MultiLabel(bc.Beta()).fit(p, present).predict_proba(p)
    turned = scores[["c", "a", "b"]]
    fitted = bc.MultiLabel(bc.Beta()).fit(turned, present)
    for rows in (turned, scores, p):
        np.testing.assert_array_equal(fitted.predict_proba(rows), expected)
    with pytest.raises(ValueError, match="scores must have columns named like all"):
        bc.MultiLabel(bc.Beta()).fit(scores.rename(columns={"a": "x"}), present)
