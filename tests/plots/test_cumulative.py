"""Cumulative differences, their bands and the text of the legend."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import bayescal as bc
from bayescal import metrics, plots


def draw_binary(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = rng.uniform(size=n)
    return p, (rng.uniform(size=n) < p**1.4).astype(int)


def test_line_is_the_sum_over_the_share_of_rows() -> None:
    p, y = draw_binary()
    ax = plots.cumulative(p, y)
    order = np.argsort(p)
    sums = np.append(0, np.cumsum((y - p)[order])) / 600
    points = ax.lines[-1].get_xydata()
    np.testing.assert_allclose(points, np.stack([np.arange(601) / 600, sums], axis=1), atol=1e-12)
    assert np.abs(points[:, 1]).max() == pytest.approx(metrics.ecce(p, y))
    assert np.ptp(points[:, 1]) == pytest.approx(metrics.ecce(p, y, kind="range"))


def test_tied_rows_are_one_piece_with_the_slope_of_their_error() -> None:
    p, y = draw_binary()
    p = p.round(1)
    x, sums = plots.cumulative(p, y).lines[-1].get_xydata().T
    slopes = np.diff(sums) / np.diff(x)
    expected = [y[p == value].mean() - value for value in np.unique(p)]
    np.testing.assert_allclose(slopes, expected, atol=1e-10)


def test_whole_weights_are_repetitions() -> None:
    p, y = draw_binary()
    p, weights = p.round(2), np.random.default_rng(1).integers(0, 4, 600)
    one = plots.cumulative(p, y, weights=weights, legend=("ecce", "p"))
    other = plots.cumulative(p.repeat(weights), y.repeat(weights), legend=("ecce", "p"))
    np.testing.assert_allclose(one.lines[-1].get_xydata(), other.lines[-1].get_xydata(), atol=1e-12)
    bands = [ax.collections[0].get_paths()[0].vertices for ax in (one, other)]
    np.testing.assert_allclose(*bands, atol=1e-12)
    assert one.lines[-1].get_label() == other.lines[-1].get_label()


@pytest.mark.parametrize("n", [50, 20_000])
def test_band_is_left_where_the_test_rejects(n: int) -> None:
    rng = np.random.default_rng(2)
    outcomes = set()
    for seed in range(12):
        p = rng.uniform(size=n)
        shift = rng.uniform(0, 3 / np.sqrt(n))
        y = (rng.uniform(size=n) < np.clip(p + shift, 0, 1)).astype(int)
        ax = plots.cumulative(p, y, level=0.8)
        half = ax.collections[0].get_paths()[0].vertices[:, 1].max()
        p_value = metrics.ecce_test(p, y).p_value
        if abs(p_value - 0.2) > 0.03:
            outside = np.abs(ax.lines[-1].get_ydata()).max() > half
            assert outside == (p_value < 0.2), seed
            outcomes.add(bool(outside))
        plt.close(ax.figure)
    assert outcomes == {True, False}


def test_long_lines_are_thinned_and_keep_their_ends() -> None:
    p, y = draw_binary(30_000)
    ax = plots.cumulative(p, y)
    points = ax.lines[-1].get_xydata()
    assert len(points) <= 4002
    assert np.abs(points[:, 1]).max() == pytest.approx(metrics.ecce(p, y))
    assert points[0].tolist() == [0, 0] and points[-1, 0] == pytest.approx(1)


def test_several_models_and_models_that_predict() -> None:
    p, y = draw_binary()
    beta = bc.Beta().fit(p, y)
    ax = plots.cumulative({"raw": p, "beta": beta}, p, y, legend=("ecce", "p"))
    raw, calibrated = (line for line in ax.lines if line.get_label() and len(line.get_xdata()) > 2)
    assert raw.get_label() == f"raw, ECCE {metrics.ecce(p, y):.3f}, p < .001"
    assert raw.get_color() != calibrated.get_color()
    q = beta.predict_proba(p)[:, 1]
    alone = plots.cumulative(q, y).lines[-1].get_xydata()
    np.testing.assert_allclose(calibrated.get_xydata(), alone, atol=1e-12)
    assert len(ax.collections) == 2
    assert not plots.cumulative(p, y, level=None).collections


def test_several_classes_go_by_their_confidence() -> None:
    rng = np.random.default_rng(3)
    probs = rng.dirichlet(np.ones(3), 200)
    y = rng.integers(0, 3, 200)
    ax = plots.cumulative(probs, y)
    hits = (probs.argmax(axis=1) == y).astype(int)
    again = plots.cumulative(probs.max(axis=1), hits)
    np.testing.assert_allclose(ax.lines[-1].get_xydata(), again.lines[-1].get_xydata(), atol=1e-12)
    assert "confidence" in ax.get_xlabel() and "confidence" not in again.get_xlabel()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"legend": "ece"}, "legend must be"),
        ({"events": "classwise"}, "events must be"),
        ({"level": 1.0}, "level must"),
    ],
)
def test_bad_options_leave_the_axes_unchanged(options: dict, message: str) -> None:
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match=message):
        plots.cumulative(*draw_binary(), ax=ax, **options)
    assert not ax.lines
    with pytest.raises(ValueError, match="all of shape"):
        plots.cumulative({"a": [0.2, 0.6], "b": np.eye(3)[:2]}, [0, 1], ax=ax)
    assert not ax.lines
