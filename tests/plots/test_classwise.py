"""Reliability diagrams of the classes."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bayescal import plots


@pytest.fixture
def forecasts() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    probs = rng.dirichlet([2, 1, 1, 0.5, 0.3], size=400)
    sharper = probs**1.5 / (probs**1.5).sum(axis=1, keepdims=True)
    return probs, (sharper.cumsum(axis=1) > rng.random((400, 1))).argmax(axis=1)


def series(ax: Any) -> np.ndarray:
    (line,) = [item for item in ax.lines if item.get_gid() == "bayescal-series"]
    return np.asarray(line.get_xydata())


def error(p: np.ndarray, happened: np.ndarray, bins: int) -> float:
    bin_index = np.clip(np.ceil(p * bins).astype(int), 1, bins)
    gaps = [abs((p - happened)[bin_index == b].sum()) for b in range(1, bins + 1)]
    return sum(gaps) / len(p)


def test_each_is_the_diagram_of_one_class_against_the_rest(forecasts: Any) -> None:
    probs, y = forecasts
    axes = plots.classwise(probs, y, bins=5)
    assert axes.shape == (5,)
    for j, ax in enumerate(axes):
        alone = plots.reliability(probs[:, j], y == j, bins=5)
        np.testing.assert_array_equal(series(ax), series(alone))
        assert ax.get_title() == f"class {j}\nECE {error(probs[:, j], y == j, 5):.3f}"
        assert not ax.child_axes


def test_those_with_the_largest_error_come_first_where_there_are_many(forecasts: Any) -> None:
    probs, y = forecasts
    names = list("abcde")
    axes = plots.classwise(probs, y, classes=names, max_classes=3)
    errors = [error(probs[:, j], y == j, 10) for j in range(5)]
    worst = np.argsort(errors)[::-1][:3]
    assert [ax.get_title()[0] for ax in axes] == [names[j] for j in worst]
    assert "3 of 5 classes" in axes[0].figure._supxlabel.get_text()


def test_several_models_and_options(forecasts: Any) -> None:
    probs, y = forecasts
    flat = np.full_like(probs, 0.2)
    axes = plots.classwise({"raw": probs, "flat": flat}, y, method="corp", histogram=True)
    first, second, *_ = axes
    title = first.get_title()
    assert title.endswith(
        f"{error(probs[:, 0], y == 0, 10):.3f} / {error(flat[:, 0], y == 0, 10):.3f}"
    )
    (legend,) = first.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["raw", "flat"]
    assert all(ax.get_legend() is None for ax in axes)
    assert second.get_legend() is None
    assert first.child_axes and len(first.collections) == 2


@pytest.mark.parametrize(("columns", "shape"), [(None, (2, 3)), (1, (5, 1)), (9, (1, 5))])
def test_columns(forecasts: Any, columns: int | None, shape: tuple[int, int]) -> None:
    axes = plots.classwise(*forecasts, columns=columns)
    assert len(axes[0].figure.axes) == 5
    assert axes[0].get_gridspec().get_geometry() == shape


def test_nothing_overlaps_or_is_cut(forecasts: Any) -> None:
    axes = plots.classwise(*forecasts, histogram=True)
    figure = axes[0].figure
    figure.canvas.draw()
    boxes = [ax.get_tightbbox() for ax in axes]
    for i, one in enumerate(boxes):
        assert one.x0 >= 0 and one.y0 >= 0
        assert one.x1 <= figure.bbox.x1 and one.y1 <= figure.bbox.y1
        # Tick labels at the ends may extend half a letter beyond.
        assert not any(
            one.shrunk(0.96, 0.96).overlaps(other.shrunk(0.96, 0.96)) for other in boxes[:i]
        )


@pytest.mark.parametrize(
    ("options", "error_type", "message"),
    [
        ({"classes": ["a"]}, ValueError, "classes must be 5 different labels, got"),
        ({"max_classes": 0}, ValueError, "max_classes must be at least 1"),
        ({"kind": "binary"}, TypeError, "kind is not an option of classwise"),
        ({"legend": "ece"}, TypeError, "legend is not an option of classwise"),
        ({"axes": []}, ValueError, "axes must be at least 5, got 0"),
        ({"method": "none"}, ValueError, "method must be one of"),
        ({"probs": np.full(400, 0.5)}, ValueError, r"probs must have shape \(n, k\)"),
        ({"probs": {}}, ValueError, "probs must not be an empty mapping"),
        (
            {"probs": {"a": np.full((400, 5), 0.2), "b": np.full((400, 6), 1 / 6)}},
            ValueError,
            r"one number of classes, got \[5, 6\]",
        ),
    ],
)
def test_wrong_arguments_are_errors(
    forecasts: Any, options: dict, error_type: type[Exception], message: str
) -> None:
    probs, y = forecasts
    with pytest.raises(error_type, match=message):
        plots.classwise(**{"probs": probs, "y": y, **options})
    assert not plt.get_fignums()
