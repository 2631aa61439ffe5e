"""Small diagrams of several models."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bayescal import metrics, plots


def draw_models() -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(2)
    p = rng.uniform(size=300)
    y = (rng.uniform(size=300) < p).astype(int)
    return {f"p^{e}": p**e for e in (1, 2, 3, 0.5, 0.2)}, y


@pytest.mark.parametrize(
    ("kind", "binning"), [("binary", "equal_width"), ("confidence", "equal_mass")]
)
def test_each_model_has_its_diagram_with_its_error(kind: str, binning: Any) -> None:
    models, y = draw_models()
    how: Any = {"bins": 7, "binning": binning, "kind": kind}
    axes = plots.by_model(models, y, **how)
    assert axes.shape == (5,)
    for ax, (name, p) in zip(axes, models.items(), strict=True):
        assert ax.get_title() == f"{name}\nECE {metrics.ece(p, y, **how):.3f}"
        alone = plots.reliability(p, y, **how)
        np.testing.assert_array_equal(ax.lines[-1].get_xydata(), alone.lines[-1].get_xydata())
        assert ax.get_xlim() == axes[0].get_xlim()
        assert ax.get_legend() is None
    (x_label,) = {axes[0].figure.get_supxlabel()}
    assert x_label == ("Mean predicted probability" if kind == "binary" else "Mean confidence")


def test_axes_above_an_empty_place_have_their_scale() -> None:
    axes = plots.by_model(*draw_models(), columns=3)
    axes[0].figure.canvas.draw()
    shown = [any(t.get_visible() and t.get_text() for t in ax.get_xticklabels()) for ax in axes]
    assert shown == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"legend": "ece"}, TypeError, "legend is not an option of by_model"),
        ({"axes": []}, ValueError, "axes must be at least 5, got 0"),
        ({"method": "none"}, ValueError, "method must be one of"),
        ({"columns": 0}, ValueError, "columns must be at least 1"),
        ({"kind": "none"}, ValueError, "kind must be one of"),
    ],
)
def test_wrong_options_are_errors(options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        plots.by_model(*draw_models(), **options)
    assert not plt.get_fignums()
