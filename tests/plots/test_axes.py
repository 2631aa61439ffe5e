"""Axes of the user: they are drawn on, keep their labels, and others stay empty."""

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bayescal import plots

P = (np.arange(60) + 0.5) / 60
Y = ((np.arange(60) * 0.618034) % 1 < P).astype(int)

SINGLE: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str, str]] = {
    "by_size": (plots.by_size, ([10, 100], {"a": [0.5, 0.4]}), "Number of cases", "Metric"),
    "curve": (plots.curve, ([0, 1], [0.2, 0.4]), "Score", "Probability of class 1"),
    "decision_cost": (
        plots.decision_cost,
        (P, Y),
        "Cost ratio t: act where p > t",
        "Expected cost",
    ),
    "reliability": (plots.reliability, (P, Y), "Mean predicted probability", "Observed frequency"),
    "cumulative": (
        plots.cumulative,
        (P, Y),
        "Share of rows, by prediction",
        "Cumulative outcome less prediction",
    ),
}


@pytest.mark.parametrize("name", SINGLE)
def test_axes_that_are_given_get_labels_where_they_have_none(name: str) -> None:
    draw, data, x_label, y_label = SINGLE[name]
    _, (own, plain, empty) = plt.subplots(1, 3, figsize=(20, 5))
    own.set_xlabel("own")
    for ax in (own, own, plain):
        assert draw(*data, ax=ax) is ax
    assert (own.get_xlabel(), own.get_ylabel()) == ("own", y_label)
    assert [line.get_gid() for line in own.lines].count("bayescal-zero") == (name == "cumulative")
    assert (plain.get_xlabel(), plain.get_ylabel()) == (x_label, y_label)
    assert not empty.lines


@pytest.mark.parametrize(
    ("draw", "data"),
    [
        (plots.by_model, ({f"m{j}": P ** (1 + j) for j in range(5)}, Y)),
        (plots.classwise, (np.stack([P / 5] * 4 + [1 - 0.8 * P], axis=1), 4 * Y)),
    ],
)
def test_panels_that_are_given_are_used_in_order(draw: Callable[..., Any], data: Any) -> None:
    _, given = plt.subplots(2, 3)
    assert list(draw(*data, axes=given)) == list(given.ravel()[:5])
    assert not given[1, 2].lines
    assert given[0, 0].lines
