"""Calibrators drawn as maps."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.special
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import bayescal as bc
from bayescal import plots
from bayescal.plots import _maps


def draw_binary() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, size=300)
    return p, (rng.uniform(size=300) < p**2).astype(int)


def line_of(ax: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = ax.lines[-1].get_data()
    return np.asarray(x), np.asarray(y)


@pytest.mark.parametrize(("center", "width"), [(3.0, 1e-12), (-250.0, 1e-3), (0.0, 1.0)])
def test_scores_are_drawn_where_a_map_changes(center: float, width: float) -> None:
    low, high = _maps._interval(lambda z: scipy.special.expit((z - center) / width))
    assert low < center < high
    change = scipy.special.expit((np.array([low, high]) - center) / width)
    assert change[1] - change[0] >= 0.9
    # Not much wider than the step, or than the resolution of bisection.
    assert high - low <= max(30 * width, 1e-4)


@pytest.mark.parametrize(("inputs", "columns"), [("probs", 2), ("logits", 1), ("logits", 2)])
def test_map_of_probabilities_and_logits_in_one_column_or_two(inputs: Any, columns: int) -> None:
    p, y = draw_binary()
    z = scipy.special.logit(p)
    given = p if inputs == "probs" else z
    if columns == 2:
        given = np.stack([1 - p, p] if inputs == "probs" else [-z / 2, z / 2], axis=1)
    calibrator = bc.Logistic(inputs=inputs).fit(given, y)
    ax = plots.curve(calibrator)
    x, drawn = line_of(ax)
    log_odds = scipy.special.logit(x[1:-1]) if inputs == "probs" else x[1:-1]
    slope, offset = calibrator.slope_, calibrator.intercept_
    expected = scipy.special.expit(slope * log_odds + offset)
    np.testing.assert_allclose(drawn[1:-1], expected, rtol=1e-5, atol=1e-7)
    assert ax.get_xlabel() == ("Predicted probability" if inputs == "probs" else "Log odds")
    # The identity is drawn next to it.
    same = ax.lines[0].get_data()
    np.testing.assert_allclose(
        same[1], same[0] if inputs == "probs" else scipy.special.expit(same[0])
    )


def test_band_is_that_of_the_posterior() -> None:
    p, y = draw_binary()
    calibrator = bc.Beta(inference="laplace", random_state=0).fit(p, y)
    scores = np.array([0.8, 0.1, 0.4])
    ax = plots.curve(calibrator, scores=scores, level=0.5)
    x, drawn = line_of(ax)
    np.testing.assert_array_equal(x, np.sort(scores))
    np.testing.assert_allclose(drawn, calibrator.predict_proba(np.sort(scores))[:, 1])
    (band,) = ax.collections
    lower, upper = calibrator.predict_interval(np.sort(scores), level=0.5)
    corners = {(round(a, 12), round(b, 12)) for a, b in band.get_paths()[0].vertices}
    for end in (lower, upper):
        assert {(round(a, 12), round(b, 12)) for a, b in zip(x, end, strict=True)} <= corners
    assert not plots.curve(calibrator, level=None).collections


def test_a_calibrator_without_posterior_has_no_band_and_venn_abers_its_pair() -> None:
    p, y = draw_binary()
    assert not plots.curve(bc.Beta().fit(p, y)).collections
    assert not plots.curve(bc.BBQ().fit(p, y)).collections
    pair = bc.VennAbers().fit(p, y)
    (band,) = plots.curve(pair, scores=[0.3, 0.6]).collections
    corners = band.get_paths()[0].vertices[:, 1]
    assert set(np.concatenate(pair.predict_interval([0.3, 0.6]))) == set(corners)


@pytest.mark.parametrize(("shift", "scale"), [(0, 1), (1000, 0.1), (-3, 1e4)])
def test_scores_are_those_between_which_the_map_goes_its_way(shift: float, scale: float) -> None:
    p, y = draw_binary()
    score = shift + scale * scipy.special.logit(p)
    calibrator = bc.Logistic(inputs="scores").fit(score, y)
    x, drawn = line_of(plots.curve(calibrator))
    assert np.isfinite(drawn).all()
    # The range that covers 99 % of the change, in closed form, with margins of a twentieth.
    low, high = scipy.special.logit([0.005, 0.995])
    ends = (np.array([low, high]) - calibrator.intercept_) / calibrator.slope_
    length = ends[1] - ends[0]
    np.testing.assert_allclose(
        [x[0], x[-1]], [ends[0] - 0.05 * length, ends[1] + 0.05 * length], atol=0.01 * length
    )
    assert len(x) > 500


def test_several_calibrators_have_names_and_one_range() -> None:
    p, y = draw_binary()
    score = 5 + scipy.special.logit(p)
    labels = np.where(y == 1, "sick", "healthy")
    maps = {
        "Platt": bc.Logistic(inputs="scores").fit(score, labels),
        "isotonic": bc.Isotonic(inputs="scores").fit(score, labels),
    }
    ax = plots.curve(maps)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(maps)
    assert len(ax.lines) == 2  # raw scores have no identity map
    first, second = (line.get_xdata() for line in ax.lines)
    np.testing.assert_array_equal(first, second)
    assert ax.get_ylabel() == "Probability of sick"
    for line, calibrator in zip(ax.lines, maps.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), calibrator.predict_proba(first)[:, 1])


def test_a_classifier_of_one_feature() -> None:
    p, y = draw_binary()
    model = LogisticRegression().fit(p[:, None], y)
    x, drawn = line_of(plots.curve(model, scores=[0.1, 0.5]))
    np.testing.assert_array_equal(drawn, model.predict_proba(x[:, None])[:, 1])


def test_drawing_again_goes_on_with_the_next_style() -> None:
    p, y = draw_binary()
    ax = plots.curve(bc.Logistic().fit(p, y), label="one")
    assert plots.curve(bc.Isotonic().fit(p, y), ax=ax, label="two") is ax
    same, first, second = ax.lines
    assert first.get_color() != second.get_color()
    assert same.get_linewidth() < first.get_linewidth()


def test_what_cannot_be_drawn_is_an_error_and_draws_nothing() -> None:
    p, y = draw_binary()
    calibrator = bc.Logistic().fit(p, y)
    three = bc.Temperature().fit(np.full((6, 3), 1 / 3), [0, 1, 2, 0, 1, 2])
    logits = bc.Logistic(inputs="logits").fit(p, y)
    features = LogisticRegression().fit(np.stack([p, p], axis=1), y)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (calibrator, {"mean": [0.5]}, "mean, lower and upper must be left out"),
        (calibrator, {"level": 1.5}, "level must lie strictly between 0 and 1"),
        (calibrator, {"scores": [np.nan]}, "scores must be finite"),
        (calibrator, {"scores": [2.0]}, "must lie in"),
        ({}, {}, "x must not be an empty mapping"),
        ({"a": calibrator}, {"label": "b"}, "label must be left out where x is a mapping"),
        ({"a": calibrator, "b": logits}, {}, r"same inputs, got \['logits', 'probs'\]"),
        (three, {}, "x must be of two classes, got 3: simplex draws maps of three"),
        (features, {}, "x must be a function of one score, got 2 features"),
        ([0, 1], {"mean": [0, 1], "scores": [0]}, "scores must be left out where x is an array"),
    ]
    for x, options, message in wrong:
        with pytest.raises(ValueError, match=message):
            plots.curve(x, **options)
    with pytest.raises(TypeError, match="mean must be given where x is an array"):
        plots.curve([0, 1])
    with pytest.raises(NotFittedError):
        plots.curve(bc.Logistic())
    assert not plt.get_fignums()


def test_scores_where_rounds_run_out_hold_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_maps, "_ROUNDS", 3)
    low, high = _maps._interval(lambda z: scipy.special.expit((z - 3.0) / 1e-9))
    assert low < 3 < high and high - low < 1
