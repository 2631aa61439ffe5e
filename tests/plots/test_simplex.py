"""Calibration maps on the simplex."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import bayescal as bc
from bayescal import plots


def halfway_to_center(p: np.ndarray) -> np.ndarray:
    return 0.5 * p + 0.5 / 3


def arrows_of(ax: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and steps (m, 2) of the arrows."""
    (arrows,) = (c for c in ax.collections if hasattr(c, "U"))
    return np.stack([arrows.X, arrows.Y], axis=1), np.stack([arrows.U, arrows.V], axis=1)


def test_arrows_lead_from_predictions_to_calibrated_ones() -> None:
    center = np.array([0.5, np.sqrt(3) / 6])
    start, step = arrows_of(plots.simplex(lambda p: 0.8 * p + 0.2 / 3, arrows=4))
    # There are 4 + 3 + 2 + 1 points, and neighbors are a quarter of a side apart.
    assert len(start) == 10
    distances = np.linalg.norm(start[:, None] - start, axis=2)[~np.eye(10, dtype=bool)]
    assert distances.min() == pytest.approx(1 / 4)
    # All steps lead a fifth of the way to the center.
    np.testing.assert_allclose(step, 0.2 * (center - start), atol=1e-12)
    np.testing.assert_allclose(start.mean(axis=0), center)


def test_arrows_of_strong_maps_are_cut_before_the_next_one() -> None:
    cycle = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
    start, step = arrows_of(plots.simplex(lambda p: p[:, [1, 2, 0]], arrows=6))
    probs = np.linalg.solve(np.vstack([cycle.T, np.ones(3)]), np.vstack([start.T, np.ones(21)])).T
    whole = probs[:, [1, 2, 0]] @ cycle - start
    length, full = np.linalg.norm(step, axis=1), np.linalg.norm(whole, axis=1)
    np.testing.assert_allclose(length, np.minimum(full, 0.9 / 6), atol=1e-12)
    # Clipped or not, arrows point where the map leads.
    np.testing.assert_allclose(step * full[:, None], whole * length[:, None], atol=1e-12)
    assert length.max() < full.max() / 4


def test_arrows_differ_from_what_they_lie_on() -> None:
    ax = plots.simplex(lambda p: p[:, [1, 2, 0]], arrows=6)
    (arrows,) = (c for c in ax.collections if hasattr(c, "U"))
    shade = ax.collections[0]
    light = 0.0
    for color, (x, y) in zip(arrows.get_facecolor(), arrows.XY, strict=True):
        probs = np.linalg.solve(
            [[0, 1, 0.5], [0, 0, np.sqrt(3) / 2], [1, 1, 1]], np.array([x, y, 1])
        )
        change = 0.5 * np.abs(probs[[1, 2, 0]] - probs).sum()
        below = shade.cmap(shade.norm(change))[:3]
        assert abs(np.mean(color[:3]) - np.mean(below)) > 0.3
        light += np.mean(color[:3])
    assert 0 < light < 21


def test_colors_are_the_total_variation() -> None:
    ax = plots.simplex(halfway_to_center)
    shade = ax.collections[0]
    # Near a corner: (1, 0, 0) moves to (2, 1/2, 1/2) / 3, a distance of a third.
    highest = float(shade.get_array().max())
    assert 0.98 / 3 < highest < 1 / 3
    assert shade.get_clim() == (0, pytest.approx(highest))
    assert plots.simplex(halfway_to_center, limit=0.6).collections[0].get_clim() == (0, 0.6)
    still = plots.simplex(lambda p: p)
    assert still.collections[0].get_array().max() == 0


def test_what_maps_make_of_zero_is_not_drawn() -> None:
    ax = plots.simplex(lambda p: np.where((p == 0).any(axis=1, keepdims=True), p[:, ::-1], p))
    assert ax.collections[0].get_array().max() == 0


def test_a_calibrator_of_three_classes() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 300)
    y = np.array([rng.choice(3, p=row) for row in p**0.5 / (p**0.5).sum(axis=1, keepdims=True)])
    _, axes = plt.subplots(1, 2)
    names = ["ash", "birch", "cedar"]
    ax = plots.simplex(bc.Dirichlet().fit(p, y), labels=names, ax=axes[0], colorbar=False)
    assert ax is axes[0] and [text.get_text() for text in ax.texts] == names
    ax.figure.canvas.draw()
    calibrator = bc.Dirichlet().fit(p, np.array(names)[y])
    assert [text.get_text() for text in plots.simplex(calibrator).texts] == names
    coded = plots.simplex(bc.Dirichlet().fit(p, y), ax=axes[1])
    assert [text.get_text() for text in coded.texts] == ["class 0", "class 1", "class 2"]


@pytest.mark.parametrize(
    ("calibration", "options", "error", "message"),
    [
        (3, {}, TypeError, "calibrator or a function"),
        (bc.Vector(inputs="logits"), {}, ValueError, "inputs='probs', got 'logits'"),
        (
            bc.Isotonic().fit([0.2, 0.4, 0.6], [0, 1, 1]),
            {},
            ValueError,
            "must be of three classes, got 2",
        ),
        (lambda p: p[:, :2], {}, ValueError, "must return probabilities of shape"),
        (lambda p: 2 * p, {}, ValueError, "sum to one"),
        (lambda p: np.full_like(p, np.nan), {}, ValueError, "NaN"),
        (halfway_to_center, {"labels": ("a", "b")}, ValueError, "three names"),
        (halfway_to_center, {"arrows": 0}, ValueError, "arrows must be at least 1"),
    ],
)
def test_wrong_arguments_are_errors(
    calibration: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plots.simplex(calibration, **options)
