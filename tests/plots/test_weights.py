"""Weights in figures: integer weights equal repeated rows."""

from typing import Any

import numpy as np
import pytest

from bayescal import plots


def drawn_coordinates(ax: Any) -> list[np.ndarray]:
    """Return all drawn coordinates: lines, bars, bands and strips."""
    result = [line.get_xydata() for line in ax.lines]
    result += [path.vertices for collection in ax.collections for path in collection.get_paths()]
    for child in ax.child_axes:
        result += [patch.get_path().vertices for patch in child.patches]
    return result


def draw_weighted() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    p = rng.uniform(size=300).round(2)
    y = (rng.uniform(size=300) < p).astype(int)
    return p, y, rng.integers(0, 4, 300)


@pytest.mark.parametrize("band", ["consistency", "confidence"])
@pytest.mark.parametrize("method", ["binned", "corp", "smooth"])
def test_reliability(method: str, band: str) -> None:
    p, y, weights = draw_weighted()
    how: dict[str, Any] = {"method": method, "band": band, "binning": "equal_mass"}
    if band == "confidence" and method != "binned":
        # With other random numbers, draws differ.
        how["level"] = None
    repeated = p.repeat(weights), y.repeat(weights)
    ours = drawn_coordinates(plots.reliability(p, y, weights=weights, **how))
    theirs = drawn_coordinates(plots.reliability(*repeated, **how))
    if (method, band) == ("binned", "consistency"):
        # Diagrams of several models or classes.
        (one,), (other,) = (
            plots.by_model({"a": p}, y, weights=weights),
            plots.by_model({"a": repeated[0]}, repeated[1]),
        )
        assert one.get_title() == other.get_title()
        pair = np.stack([1 - p, p], axis=1)
        axes = plots.classwise(pair, y, weights=weights)
        again = plots.classwise(pair.repeat(weights, axis=0), repeated[1])
        assert [ax.get_title() for ax in axes] == [ax.get_title() for ax in again]
    assert len(ours) == len(theirs) > 1
    for actual, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(actual, other, atol=1e-9)
    without = drawn_coordinates(plots.reliability(p, y, **how))[1]
    assert without.shape != ours[1].shape or np.nanmax(np.abs(without - ours[1])) > 0.01


@pytest.mark.parametrize("method", ["binned", "corp", "smooth"])
def test_frequencies_are_weighted_averages(method: str) -> None:
    p, y, weights = draw_weighted()
    p, y, weights = p[:60], y[:60], weights[:60]
    how: dict[str, Any] = {"method": method, "level": None}
    ours = plots.reliability(p, y, weights=0.3 * weights, **how)
    theirs = plots.reliability(p.repeat(weights), y.repeat(weights), **how)
    (x, drawn), (other_x, other) = ours.lines[1].get_data(), theirs.lines[1].get_data()
    np.testing.assert_allclose(x, other_x, atol=1e-12)
    # A smooth line of fewer rows is shorter.
    known = np.isfinite(drawn)
    assert known.sum() > 0.8 * np.isfinite(other).sum()
    np.testing.assert_allclose(drawn[known], other[known], atol=1e-9)
    strips = [ax.child_axes[0].patches[0].get_data().values for ax in (ours, theirs)]
    np.testing.assert_allclose(*strips, atol=1e-12)


@pytest.mark.parametrize("band", ["consistency", "confidence"])
@pytest.mark.parametrize("method", ["binned", "corp", "smooth"])
def test_weights_too_large_to_be_counts(method: str, band: str) -> None:
    p, y, _ = draw_weighted()
    how: dict[str, Any] = {"method": method, "band": band, "legend": "n"}
    ours, theirs = (plots.reliability(p, y, weights=w, **how) for w in (np.full(300, 1e20), None))
    for actual, other in zip(drawn_coordinates(ours), drawn_coordinates(theirs), strict=True):
        np.testing.assert_allclose(actual, other, atol=1e-9)
    assert ours.get_legend().get_texts()[0].get_text() == "n = 300"


def test_costs_of_decisions() -> None:
    p, y, weights = draw_weighted()
    with pytest.raises(ValueError, match="weights must not be negative"):
        plots.decision_cost([0.2, 0.4], [0, 1], weights=[1, -1])
    for factor in (1, 0.3):
        ours = plots.decision_cost(p, y, weights=factor * weights, label="a")
        theirs = plots.decision_cost(p.repeat(weights), y.repeat(weights), label="a")
        for actual, other in zip(drawn_coordinates(ours), drawn_coordinates(theirs), strict=True):
            np.testing.assert_allclose(actual, other, atol=1e-12)
        shown = [text.get_text() for text in ours.get_legend().get_texts()]
        assert shown == [text.get_text() for text in theirs.get_legend().get_texts()]


def test_shares_are_drawn_as_so_many_cases() -> None:
    """Check that a band is as wide as for the effective number of rows."""
    rng = np.random.default_rng(5)
    p = np.repeat([0.3, 0.7], 500)
    y, weights = (rng.uniform(size=1000) < p).astype(int), rng.exponential(size=1000)
    size = weights.sum() ** 2 / (weights @ weights)
    widths = []
    for method in ("binned", "corp"):
        ax = plots.reliability(p, y, weights=weights, method=method, histogram=False)
        ends = np.concatenate(drawn_coordinates(ax)[2:])
        at = ends[np.isclose(ends[:, 0], 0.3)][:, 1]
        widths.append(np.ptp(at))
    expected = 2 * 1.645 * np.sqrt(0.21 / (size / 2))
    np.testing.assert_allclose(widths, expected, rtol=0.2)
