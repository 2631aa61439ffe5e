"""The display has the values and the interface of scikit-learn's."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.calibration import CalibrationDisplay
from sklearn.linear_model import LogisticRegression

import bayescal as bc
from bayescal import plots
from bayescal.plots import ReliabilityDisplay


def make_table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(300, 2))
    return x, np.where(rng.logistic(size=300) < 2 * x[:, 0], "yes", "no")


def legend_texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize(("strategy", "n_bins"), [("uniform", 5), ("quantile", 10)])
def test_numbers_are_those_of_scikit_learn(strategy: Any, n_bins: int) -> None:
    x, y = make_table()
    how: Any = {"n_bins": n_bins, "strategy": strategy}
    model = LogisticRegression().fit(x, y)
    for pos_label in (None, "yes", "no"):
        theirs = CalibrationDisplay.from_estimator(model, x, y, pos_label=pos_label, **how)
        ours = ReliabilityDisplay.from_estimator(model, x, y, pos_label=pos_label, **how)
        np.testing.assert_allclose(ours.prob_true, theirs.prob_true, atol=1e-12)
        np.testing.assert_allclose(ours.prob_pred, theirs.prob_pred, atol=1e-12)
    p = model.predict_proba(x)[:, 1]
    theirs = CalibrationDisplay.from_predictions(y, p, pos_label="yes", **how)
    for positive in (None, "yes"):
        ours = ReliabilityDisplay.from_predictions(y, p, pos_label=positive, **how)
        np.testing.assert_allclose(ours.prob_true, theirs.prob_true, atol=1e-12)
        np.testing.assert_allclose(ours.prob_pred, theirs.prob_pred, atol=1e-12)


def test_the_line_of_reference_stays_where_one_curve_wants_it() -> None:
    x, y = make_table()
    p = LogisticRegression().fit(x, y).predict_proba(x)[:, 1]
    first = ReliabilityDisplay.from_predictions(y, p, pos_label="yes", name="a")
    assert first.ax_.lines[0].get_visible()
    second = ReliabilityDisplay.from_predictions(
        y, p**2, pos_label="yes", ax=first.ax_, name="b", ref_line=False
    )
    assert second.ax_.lines[0].get_visible()
    assert {"a", "b"} <= {*legend_texts(second.ax_)}
    alone = ReliabilityDisplay.from_predictions(y, p, pos_label="yes", ref_line=False)
    assert not alone.ax_.lines[0].get_visible()


def test_interface_is_that_of_scikit_learn() -> None:
    x, y = make_table()
    model = LogisticRegression().fit(x, y)
    figure, ax = plt.subplots()
    display = ReliabilityDisplay.from_estimator(model, x, y, ax=ax)
    assert display.ax_ is ax and display.figure_ is figure
    assert display.line_ in ax.lines
    assert legend_texts(ax) == ["Perfectly calibrated", "LogisticRegression"]
    assert ax.get_xlabel() == "Mean predicted probability (Positive class: yes)"
    before = display.prob_true
    again = display.plot(name="again")
    assert again is display and display.ax_ is not ax
    assert legend_texts(display.ax_) == ["Perfectly calibrated", "again"]
    np.testing.assert_array_equal(display.prob_true, before)


def test_properties_of_the_line_reach_the_whole_model() -> None:
    x, y = make_table()
    p = LogisticRegression().fit(x, y).predict_proba(x)[:, 1]
    first = ReliabilityDisplay.from_predictions(y, p, name="first", ref_line=False)
    assert legend_texts(first.ax_) == ["first"] and not first.ax_.lines[0].get_visible()
    untouched = [mark.get_edgecolor().tolist() for mark in first.ax_.collections]
    how: Any = {"c": "red", "lw": 2, "ls": ":", "seed": 3}
    second = ReliabilityDisplay.from_predictions(y, p, ax=first.ax_, pos_label="yes", **how)
    line = second.line_
    assert (line.get_color(), line.get_linewidth(), line.get_linestyle()) == ("red", 2, ":")
    assert [mark.get_edgecolor().tolist() for mark in first.ax_.collections[:-1]] == untouched
    assert first.ax_.collections[-1].get_edgecolor()[0, :3].tolist() == [1, 0, 0]
    assert legend_texts(first.ax_) == ["Perfectly calibrated", "first"]
    with pytest.raises(TypeError, match="'hue' is not an option of a reliability diagram"):
        ReliabilityDisplay.from_predictions(y, p, hue="red")


def test_axes_name_the_positive_class() -> None:
    for labels in ([0, 1], [-1, 1], [False, True], ["no", "yes"], [0.0, 1.0]):
        display = ReliabilityDisplay.from_predictions(np.repeat(labels, 2), [0.1, 0.4, 0.5, 0.9])
        positive = "yes" if labels[1] == "yes" else "1"
        assert display.ax_.get_ylabel() == f"Fraction of positives (Positive class: {positive})"


def test_a_calibrator_of_three_classes() -> None:
    rng = np.random.default_rng(5)
    z, y = rng.normal(size=(200, 3)), rng.integers(0, 3, 200)
    names = np.array(["a", "b", "c"])[y]
    model = bc.Temperature(inputs="logits").fit(z, names)
    display = ReliabilityDisplay.from_estimator(model, z, names, n_bins=5)
    ax = plots.reliability(model.predict_proba(z), y, bins=5)
    np.testing.assert_array_equal(display.line_.get_xydata(), ax.lines[-1].get_xydata())
    with pytest.raises(ValueError, match="pos_label must be left out"):
        ReliabilityDisplay.from_estimator(model, z, names, pos_label="a")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([0.2, 0.7], [0, 1]), {}, "y_true must be labels and come first"),
        (([0, 1], [0.2, 0.7]), {"strategy": "equal_mass"}, "strategy must be one of"),
        (([0, 1], [0.2, 0.7]), {"pos_label": 2}, r"pos_label must be in \[0, 1\], got 2"),
        (([0, 1], [[0.2, 0.8], [0.7, 0.3]]), {"pos_label": 1}, "pos_label must be left out"),
    ],
)
def test_wrong_arguments_are_errors(arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReliabilityDisplay.from_predictions(*arguments, **options)
    assert not plt.get_fignums()
    x, y = make_table()
    with pytest.raises(ValueError, match="pos_label must be in .*, got 'maybe'"):
        ReliabilityDisplay.from_estimator(LogisticRegression().fit(x, y), x, y, pos_label="maybe")


@pytest.mark.parametrize("name", ["sample_weight", "weights"])
def test_weights_are_drawn_under_both_names(name: str) -> None:
    rng = np.random.default_rng(0)
    p = rng.random(500)
    y = (rng.random(500) < p).astype(int)
    w = np.where(y == 1, 5.0, 1.0)
    expected = [w[cell] @ y[cell] / w[cell].sum() for cell in (p <= 0.5, p > 0.5)]
    drawn: dict[str, Any] = {"n_bins": 2, name: w}
    result = plots.ReliabilityDisplay.from_predictions(y, p, **drawn)
    np.testing.assert_allclose(result.prob_true, expected)
    with pytest.raises(TypeError, match="sample_weight and weights must not both be given"):
        plots.ReliabilityDisplay.from_predictions(y, p, sample_weight=w, weights=w)
