"""Plots of calibrators and classifiers instead of predictions, with labels of any kind."""

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import bayescal as bc
from bayescal import plots


def drawn_coordinates(result: Any) -> list[np.ndarray]:
    """Return the coordinates of all lines, bars and bands."""
    places = np.ravel(result)
    lines = [line.get_xydata() for ax in places for line in ax.lines]
    parts = [
        path.vertices
        for ax in places
        for collection in ax.collections
        for path in collection.get_paths()
    ]
    return lines + parts


def assert_same(one: Any, other: Any) -> None:
    first, second = drawn_coordinates(one), drawn_coordinates(other)
    assert len(first) == len(second) > 0
    for actual, same in zip(first, second, strict=True):
        np.testing.assert_array_equal(actual, same)


def two_classes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = rng.uniform(size=400)
    return p, (rng.uniform(size=400) < p**2).astype(int)


def three_classes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(400, 3))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return 2.5 * z, np.array([rng.choice(3, p=row) for row in p])


PLOTS: dict[str, Callable[..., Any]] = {
    "reliability": plots.reliability,
    "decision_cost": plots.decision_cost,
    "cumulative": plots.cumulative,
    "by_model": plots.by_model,
}
MANY: dict[str, Callable[..., Any]] = {
    "cumulative": plots.cumulative,
    "reliability": plots.reliability,
    "classwise": plots.classwise,
    "by_model": plots.by_model,
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_calibrator_of_two_classes_is_drawn_by_its_second(name: str) -> None:
    p, y = two_classes()
    calibrator = bc.Beta().fit(p, y)
    draw, calibrated = PLOTS[name], calibrator.predict_proba(p)[:, 1]
    assert_same(draw(calibrator, p, y), draw(calibrated, y))
    assert_same(draw(calibrator, p, y=y), draw(calibrated, y=y))
    # A calibrator next to predictions, each under a name.
    models = {"raw": p, "Beta": calibrator}
    assert_same(draw(models, p, y), draw({"raw": p, "Beta": calibrated}, y))


@pytest.mark.parametrize("name", MANY)
def test_a_calibrator_of_more_classes(name: str) -> None:
    z, y = three_classes()
    calibrator = bc.Temperature(inputs="logits").fit(z, y)
    assert_same(MANY[name](calibrator, z, y), MANY[name](calibrator.predict_proba(z), y))


@pytest.mark.parametrize("name", PLOTS)
def test_labels_of_any_kind(name: str) -> None:
    p, y = two_classes()
    draw, texts = PLOTS[name], np.where(y == 1, "no", "yes")
    # Classes are sorted, so "yes" is the second.
    expected = draw(1 - p, 1 - y)
    for labels in (texts, pd.Series(texts, dtype="category"), texts.astype(object), 1 - 2 * y):
        assert_same(draw(1 - p, labels), expected)
    assert_same(draw(p, y == 1), draw(p, y))
    assert_same(draw(p, texts, classes=["yes", "no"]), draw(p, y))
    model = bc.Logistic(classes=["yes", "no"]).fit(p, texts)
    assert_same(draw(model, p, texts), draw(model.predict_proba(p)[:, 1], y))


def test_logits_are_read_as_metrics_read_them() -> None:
    p, y = two_classes()
    z = np.log(p / (1 - p))
    one, other = (plots.reliability(z, y, inputs="logits"), plots.reliability(p, y))
    for actual, same in zip(drawn_coordinates(one), drawn_coordinates(other), strict=True):
        np.testing.assert_allclose(actual, same, atol=1e-12)
    # Models predict probabilities, whatever the other predictions are.
    model = bc.Logistic().fit(p, y)
    both = plots.reliability({"raw": z, "Platt": model}, p, y, inputs="logits")
    alone = plots.reliability(model, p, y)
    np.testing.assert_array_equal(both.lines[-1].get_xydata(), alone.lines[-1].get_xydata())


def test_titles_of_classes_are_their_labels() -> None:
    z, y = three_classes()
    names = np.array(["ash", "birch", "cedar"])
    model = bc.Temperature(inputs="logits").fit(z, names[y])
    titles = [ax.get_title().split("\n")[0] for ax in plots.classwise(model, z, names[y])]
    assert titles == ["ash", "birch", "cedar"]
    model = bc.Temperature(inputs="logits").fit(z, y + 4)
    titles = [ax.get_title().split("\n")[0] for ax in plots.classwise(model, z, y + 4)]
    assert titles == ["class 4", "class 5", "class 6"]
    # Codes can be given names; other labels have names already.
    coded = bc.Temperature(inputs="logits").fit(z, y)
    axes = plots.classwise(coded, z, y, classes=names)
    assert [ax.get_title().split("\n")[0] for ax in axes] == list(names)
    with pytest.raises(ValueError, match=r"must have the classes \['ash', .*, got \[4, 5, 6\]"):
        plots.classwise(model, z, y + 4, classes=names)


def test_nothing_is_guessed_of_the_arguments() -> None:
    p, y = two_classes()
    model = bc.Logistic().fit(p, y)
    for draw in PLOTS.values():
        name = draw.__name__
        with pytest.raises(TypeError, match=rf"data must be X and y: {name}\(model, X, y\), got 1"):
            draw(model, p)
        with pytest.raises(TypeError, match=rf"data must be y: {name}\(probs, y\), got 2"):
            draw(p, p, y)
        with pytest.raises(TypeError, match=rf"y must be given: {name}\(probs, y\) or"):
            draw(p)
        with pytest.raises(ValueError, match=rf"{name}\(y_prob, y_true\); got labels, then"):
            draw(y, p)
        with pytest.raises(ValueError, match=r"fitted classifiers must have the classes \[0, 1\]"):
            draw({"a": model, "b": bc.Logistic().fit(p, y + 1)}, p, y)
        with pytest.raises(NotFittedError):
            draw(bc.Logistic(), p, y)
        with pytest.raises(TypeError, match="data must be y"):
            draw(bc.Logistic, p, y)  # the class
    assert not plt.get_fignums()
