"""Calibration errors of groups against loops over rows."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bayescal as bc
from bayescal.metrics import ece, multicalibration_error

N = 300
RNG = np.random.default_rng(5)
P = np.round(RNG.random(N), 2)
P3 = RNG.dirichlet(np.ones(3), N)
Y, Y3 = RNG.integers(0, 2, N), RNG.integers(0, 3, N)
W = RNG.integers(0, 4, N)
GROUPS = np.stack([P > 0.3, RNG.random(N) < 0.4, RNG.random(N) < 0.02, np.zeros(N, bool)], axis=1)


def _errors_by_loop(p, happened, groups, weights, bins, norm):
    """Compute errors over cells by visiting every row."""
    result = []
    for group in range(groups.shape[1]):
        cells = {}
        for i in range(len(p)):
            if groups[i, group]:
                index = max(0, math.ceil(p[i] * bins - 1e-9) - 1)
                total = cells.setdefault(index, [0.0, 0.0])
                total[0] += weights[i]
                total[1] += weights[i] * (p[i] - happened[i])
        used = [(m, abs(e) / m) for m, e in cells.values() if m > 0]
        if math.isinf(norm):
            result.append(max((gap for _, gap in used), default=0.0))
        else:
            result.append((sum(m * gap**norm for m, gap in used) / weights.sum()) ** (1 / norm))
    return result


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("weights", [None, W])
def test_as_cell_by_cell(norm, weights):
    row_weights = np.ones(N) if weights is None else weights
    options = {"bins": 7, "norm": norm, "weights": weights}
    result = multicalibration_error(P, Y, GROUPS, **options)
    expected = _errors_by_loop(P, Y, GROUPS, row_weights, 7, norm)
    np.testing.assert_allclose(result.errors, expected, rtol=1e-12)
    assert result.error == max(result.errors) and result.worst == np.argmax(expected)
    np.testing.assert_allclose(result.shares, row_weights @ GROUPS / row_weights.sum(), rtol=1e-12)
    top, right = P3.max(axis=1), P3.argmax(axis=1) == Y3
    result = multicalibration_error(P3, Y3, GROUPS, **options)
    np.testing.assert_allclose(
        result.errors, _errors_by_loop(top, right, GROUPS, row_weights, 7, norm), rtol=1e-12
    )


@pytest.mark.parametrize(
    "options", [{"binning": "equal_mass", "bins": 4}, {"kind": "classwise"}, {"kind": "top_label"}]
)
def test_errors_within_are_those_of_the_cases_alone(options):
    result = multicalibration_error(P3, Y3, GROUPS, weights=W, **options)
    for group in range(3):
        rows = GROUPS[:, group]
        alone = ece(P3[rows], Y3[rows], weights=W[rows], **options)
        assert result.within[group] == pytest.approx(alone, rel=1e-12)
        assert result.errors[group] == pytest.approx(result.shares[group] * alone, rel=1e-12)
    assert np.isnan(result.within[3]) and result.errors[3] == result.shares[3] == 0


def test_names():
    frame = pd.DataFrame(GROUPS, columns=["old", "north", "few", "none"], index=np.arange(N)[::-1])
    named, plain = (multicalibration_error(P, Y, groups) for groups in (frame, GROUPS))
    assert named.worst == frame.columns[plain.worst] and named.groups == [*frame]
    np.testing.assert_array_equal(named.errors, plain.errors)
    labels = pd.get_dummies(pd.Series(np.where(GROUPS[:, 0], "b", "a")))
    result = multicalibration_error(P, Y, labels)
    assert result.groups == ["a", "b"] and result.errors[1] == plain.errors[0]


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pd.Categorical, pd.array])
def test_text_names_the_group_of_each_row(kind: Any) -> None:
    names = np.where(GROUPS[:, 0], "b", "a")
    result = multicalibration_error(P, Y, kind(names.tolist()))
    columns = multicalibration_error(P, Y, pd.get_dummies(pd.Series(names)))
    assert result.groups == columns.groups == ["a", "b"]
    np.testing.assert_array_equal(result.errors, columns.errors)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        (
            GROUPS[:, 0],
            ValueError,
            r"groups must have shape \(n, g\), .* got \(300,\); make columns",
        ),
        (GROUPS[:, :0], ValueError, r"groups must have shape \(n, g\), .* got \(300, 0\)"),
        (GROUPS[:-1], ValueError, "groups must have 300 rows to match probs, got 299"),
        (GROUPS * 2, ValueError, "groups must hold only True and False, got 2; make columns"),
        (np.where(GROUPS, np.nan, 0), ValueError, "groups must be finite, got NaN"),
        (["a"] * 299, ValueError, "groups must have 300 rows to match probs, got 299"),
        (GROUPS.astype(str), TypeError, "groups must be numeric, .*get_dummies"),
        (GROUPS[:, 3:], ValueError, "groups must hold a row of positive weight"),
    ],
)
def test_wrong_groups(groups, error, message):
    with pytest.raises(error, match=message):
        multicalibration_error(P, Y, groups)


def test_blocks_are_refused():
    with pytest.raises(TypeError, match="probs must be arrays in memory"):
        multicalibration_error(bc.Blocks([(P, Y)]), None, GROUPS)
