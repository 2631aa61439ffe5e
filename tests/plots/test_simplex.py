"""Calibration maps on the simplex."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import bayescal as bc
from bayescal import plots


def halved(p: np.ndarray) -> np.ndarray:
    return 0.5 * p + 0.5 / 3


def test_arrows_lead_from_predictions_to_calibrated_ones() -> None:
    ax = plots.simplex(halved, arrows=4)
    below, above = (c for c in ax.collections if hasattr(c, "U"))
    np.testing.assert_array_equal(below.U, above.U)
    start = np.stack([above.X, above.Y], axis=1)
    assert len(start) == 21  # 6 + 5 + ... + 1 points of a lattice with 5 steps
    centre = np.array([0.5, np.sqrt(3) / 6])
    # Half way to the centre, wherever they start.
    np.testing.assert_allclose(np.stack([above.U, above.V], axis=1), 0.5 * (centre - start))
    corners = {tuple(np.round(point, 6)) for point in start}
    assert {(0, 0), (1, 0), (0.5, 0.866025)} <= corners


def test_colours_are_the_total_variation() -> None:
    ax = plots.simplex(halved)
    shade = ax.collections[0]
    # From a corner: (1, 0, 0) to (2, 1/2, 1/2) / 3, a third.
    assert float(shade.get_array().max()) == pytest.approx(1 / 3)
    assert shade.get_clim() == (0, pytest.approx(1 / 3))
    assert plots.simplex(halved, limit=0.6).collections[0].get_clim() == (0, 0.6)
    still = plots.simplex(lambda p: p)
    assert still.collections[0].get_array().max() == 0


def test_a_calibrator_of_three_classes() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 300)
    y = np.array([rng.choice(3, p=row) for row in p**0.5 / (p**0.5).sum(axis=1, keepdims=True)])
    _, axes = plt.subplots(1, 2)
    names = ["ash", "birch", "cedar"]
    ax = plots.simplex(bc.Dirichlet().fit(p, y), labels=names, ax=axes[0], colorbar=False)
    assert ax is axes[0] and [text.get_text() for text in ax.texts] == names
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("calibration", "options", "error", "message"),
    [
        (3, {}, TypeError, "calibrator or a function"),
        (bc.Vector(inputs="logits"), {}, ValueError, "inputs='probs', got 'logits'"),
        (lambda p: p[:, :2], {}, ValueError, "must return probabilities of shape"),
        (lambda p: 2 * p, {}, ValueError, "sum to one"),
        (lambda p: np.full_like(p, np.nan), {}, ValueError, "NaN"),
        (halved, {"labels": ("a", "b")}, ValueError, "three names"),
        (halved, {"arrows": 0}, ValueError, "arrows must be at least 1"),
    ],
)
def test_wrong_arguments_are_errors(
    calibration: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plots.simplex(calibration, **options)
