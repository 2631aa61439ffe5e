"""Calibration curves with credible bands."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bayescal import plots


def test_line_and_band_are_those_given_in_order_of_x() -> None:
    x = np.array([2.0, -1.0, 0.5])
    mean, lower, upper = np.array([[0.9, 0.1, 0.5], [0.8, 0.05, 0.3], [0.95, 0.2, 0.6]])
    ax = plots.curve(x, mean, lower, upper, label="map")
    (line,) = ax.lines
    np.testing.assert_array_equal(line.get_xydata(), [[-1, 0.1], [0.5, 0.5], [2, 0.9]])
    (band,) = ax.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert corners == set(zip(x, lower, strict=True)) | set(zip(x, upper, strict=True))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["map"]


def test_band_may_be_left_out() -> None:
    ax = plots.curve([0, 1], [0.2, 0.4])
    assert not ax.collections
    assert ax.get_legend() is None


def test_axes_are_those_given_and_styles_differ() -> None:
    _, ax = plt.subplots()
    assert plots.curve([0, 1], [0.2, 0.4], ax=ax) is ax
    assert plots.curve([0, 1], [0.3, 0.5], ax=ax) is ax
    first, second = ax.lines
    assert first.get_color() != second.get_color()
    assert first.get_linestyle() != second.get_linestyle()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0.5]), r"mean must have shape \(2,\) to match x, got \(1,\)"),
        (([], []), r"x must have shape \(n,\) with n > 0"),
        (([[0]], [0]), r"x must have shape \(n,\)"),
        (([0], [np.nan]), "mean must be finite, got NaN at position 0"),
        (([0], [0.5], [0.4]), "lower and upper must be given together"),
        (([0], [0.5], [0.6], [0.4]), "lower must not exceed upper"),
        (([0], [0.5], [0.4], [0.6, 0.7]), r"upper must have shape \(1,\) to match x"),
    ],
)
def test_bad_input_is_an_error(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plots.curve(*arguments)
