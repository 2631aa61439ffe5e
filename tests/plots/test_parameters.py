"""Posteriors of parameters."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats

from bayescal import plots
from bayescal.inference.parameters import ParameterPosterior


def posterior(**draws: np.ndarray) -> ParameterPosterior:
    return ParameterPosterior(draws, "laplace", np.ones(1), np.ones(1), 0)


def normal_draws(mean: Any, sd: float = 1.0, chains: int = 2, draws: int = 500) -> np.ndarray:
    """Return draws at normal quantiles, spread over the chains."""
    count = chains * draws
    z = scipy.stats.norm.ppf((np.arange(count) + 0.5) / count)
    z = z.reshape(chains, draws, *([1] * np.ndim(mean)))
    return np.asarray(mean) + sd * z


def segments(collection: Any) -> np.ndarray:
    return np.array([segment[:, 0] for segment in collection.get_segments()])


@pytest.mark.parametrize("level", [0.9, 0.3])
def test_rows_hold_medians_and_quantiles(level: float) -> None:
    drawn = posterior(slope=normal_draws(2.0, 0.1), coef=normal_draws([-1.0, 0.5, 3.0], 0.2))
    ax = plots.parameters(drawn, level=level)
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels == ["slope", "coef[0]", "coef[1]", "coef[2]"]
    mean, sd = np.array([2, -1, 0.5, 3]), np.array([0.1, 0.2, 0.2, 0.2])
    (median,) = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(median.get_xdata(), mean, atol=1e-9)
    long, thick = map(segments, ax.collections)
    half = scipy.stats.norm.ppf((1 + level) / 2)
    np.testing.assert_allclose(long, mean[:, None] + np.outer(sd, [-half, half]), atol=2e-3)
    inner = min(half, scipy.stats.norm.ppf(0.75))
    np.testing.assert_allclose(thick, mean[:, None] + np.outer(sd, [-inner, inner]), atol=2e-3)
    assert ax.yaxis_inverted()


def test_small_matrices_are_rows_and_names_choose() -> None:
    drawn = posterior(b=normal_draws(0.0), W=normal_draws(np.eye(2)), c=normal_draws(1.0))
    ax = plots.parameters(drawn, names=["c", "W"])
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels == ["c", "W[0, 0]", "W[0, 1]", "W[1, 0]", "W[1, 1]"]


def test_image_holds_the_change_and_which_intervals_exclude_none() -> None:
    mean = np.eye(5)
    mean[1, 3], mean[2, 2], mean[4, 0] = 0.5, 0.2, 0.16
    ax = plots.parameters(posterior(W=normal_draws(mean, 0.1)), level=0.9)
    np.testing.assert_allclose(ax.images[0].get_array(), mean - np.eye(5), atol=1e-9)
    assert ax.images[0].get_clim() == pytest.approx((-0.8, 0.8))
    marks = {line.get_marker(): line.get_xydata().tolist() for line in ax.lines}
    # A 90 % interval reaches 1.64 standard deviations to each side, so 0.16 is inside.
    assert marks == {"^": [[3, 1]], "v": [[2, 2]]}
    assert ax.get_title() == "W − identity"
    wide = plots.parameters(posterior(W=normal_draws(np.full((2, 9), 3.0), 0.1)))
    assert wide.get_title() == "W"
    assert len(wide.lines[0].get_xdata()) == 18


def test_rows_and_images_share_the_axes() -> None:
    drawn = posterior(
        W=normal_draws(np.eye(5)), b=normal_draws(np.zeros(5)), V=normal_draws(np.eye(6))
    )
    figure, ax = plt.subplots(figsize=(5, 8), layout="constrained")
    assert plots.parameters(drawn, ax=ax) is ax
    rows, first, second = ax.child_axes
    assert [text.get_text() for text in rows.get_yticklabels()] == [f"b[{j}]" for j in range(5)]
    assert first.images[0].get_array().shape == (5, 5)
    assert second.images[0].get_array().shape == (6, 6)
    figure.canvas.draw()
    boxes = [child.get_tightbbox() for child in ax.child_axes]
    assert not any(one.overlaps(other) for one in boxes for other in boxes if one is not other)
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_very_many_rows() -> None:
    ax = plots.parameters(posterior(b=normal_draws(np.zeros(150), draws=20)))
    assert len(ax.collections[0].get_segments()) == 150
    assert len(ax.get_yticks()) <= 40


@pytest.mark.parametrize(
    ("given", "options", "error", "message"),
    [
        ({"a": 1.0}, {}, TypeError, "posterior must be a ParameterPosterior, .* got dict"),
        (
            posterior(a=normal_draws(0.0)),
            {"level": 0},
            ValueError,
            "level must lie strictly between",
        ),
        (posterior(a=normal_draws(0.0)), {"names": ["b"]}, ValueError, "among 'a', got 'b'"),
        (posterior(a=normal_draws(0.0)), {"names": []}, ValueError, "names must not be empty"),
        (posterior(a=np.full((1, 5), np.inf)), {}, ValueError, "a must be finite"),
        (posterior(a=np.zeros((1, 5, 2, 2, 2))), {}, ValueError, "at most two axes"),
    ],
)
def test_wrong_arguments_are_errors(
    given: Any, options: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plots.parameters(given, **options)
