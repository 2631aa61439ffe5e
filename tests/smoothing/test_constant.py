"""Platt's and constant targets computed by hand, and invalid arguments."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayescal import smoothing

LABELS = st.lists(st.integers(0, 1), min_size=1, max_size=40).map(np.array)


# --- Platt's ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "weights", "expected"),
    [
        # Four positives and one negative: 5/6 and 1/3.
        ([1, 0, 1, 1, 1], None, [5 / 6, 1 / 3, 5 / 6, 5 / 6, 5 / 6]),
        ([1, 1], None, [0.75, 0.75]),
        ([0], None, [1 / 3]),
        ([1, 0, 0], [0.0, 1.0, 2.0], [0.5, 0.2, 0.2]),
        ([1, 0, 1], [0.5, 2.0, 1.5], [0.75, 0.25, 0.75]),
    ],
)
def test_platt_by_hand(y: Any, weights: Any, expected: Any) -> None:
    result = smoothing.platt_targets(y, weights)
    np.testing.assert_allclose(result, expected, rtol=1e-15)
    assert result.dtype == np.float64


@given(LABELS, st.data())
def test_weights_of_platt_are_repetitions(y: np.ndarray, data: st.DataObject) -> None:
    counts = st.lists(st.integers(1, 5), min_size=len(y), max_size=len(y))
    weights = np.array(data.draw(counts))
    result = smoothing.platt_targets(y, weights)
    expected = smoothing.platt_targets(np.repeat(y, weights))
    np.testing.assert_allclose(np.repeat(result, weights), expected, rtol=1e-15)


# --- constant -----------------------------------------------------------------------------------


def test_constant_by_hand() -> None:
    np.testing.assert_array_equal(
        smoothing.constant_targets([0, 1, 1], 0.125), [0.125, 0.875, 0.875]
    )
    result = smoothing.constant_targets([1, 3], 0.2, num_classes=4)
    expected = [[0.05, 0.85, 0.05, 0.05], [0.05, 0.05, 0.05, 0.85]]
    np.testing.assert_allclose(result, expected, rtol=1e-15)
    assert result.dtype == np.float64
    for smooth in (0, np.float32(0)):
        np.testing.assert_array_equal(smoothing.constant_targets([0, 1], smooth), [0, 1])


@given(st.integers(2, 8), st.floats(0, 1, exclude_max=True), st.integers(0, 2**31))
def test_rows_sum_to_one_and_keep_the_class(classes: int, smooth: float, seed: int) -> None:
    y = np.random.default_rng(seed).integers(0, classes, size=20)
    result = smoothing.constant_targets(y, smooth, classes)
    np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-14)
    assert (result >= 0).all()
    if smooth < 0.999:
        np.testing.assert_array_equal(result.argmax(axis=1), y)
    relabeled = smoothing.constant_targets((y + 1) % classes, smooth, classes)
    np.testing.assert_array_equal(relabeled, np.roll(result, 1, axis=1))


# --- what goes in -------------------------------------------------------------------------------

BINARY = [
    lambda y: smoothing.platt_targets(y),
    lambda y: smoothing.constant_targets(y, 0.1),
    lambda y: smoothing.instance_targets(np.arange(np.size(y)), y),
]


@pytest.mark.parametrize("function", BINARY)
@pytest.mark.parametrize(
    "convert",
    [
        list,
        tuple,
        np.float32,
        np.bool_,
        pd.Series,
        jnp.asarray,
        lambda y: np.asarray(y, object),
        lambda y: pd.Series(y, index=range(10, 10 + len(y))),
    ],
)
def test_kinds_of_arrays(function: Any, convert: Any) -> None:
    y = [0, 1, 1, 0, 1]
    np.testing.assert_array_equal(function(convert(y)), function(np.array(y)))


@pytest.mark.parametrize("function", BINARY)
def test_arrays_stay_as_they_are(function: Any) -> None:
    y = np.array([0, 1, 1, 0])
    y.flags.writeable = False
    result = function(y)
    np.testing.assert_array_equal(y, [0, 1, 1, 0])
    result[0] = 7  # the caller may modify a result
    assert y[0] == 0


@pytest.mark.parametrize("function", BINARY)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1, 2], r"y must be in \{0, 1\}, got 2"),
        ([-1, 1], r"y must be in \{0, 1\}, got -1"),
        ([0.5, 1], r"y must be in \{0, 1\}, got 0.5"),
        ([0, math.nan], r"y must be finite, got NaN at position 1"),
        ([[0, 1]], r"y must have shape \(n,\), got \(1, 2\)|x must have shape \(1, 2\)"),
        (1, r"y must have shape \(n,\), got \(\)"),
        ([], r"y must not be empty, got no labels"),
    ],
)
def test_bad_labels_are_errors(function: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(y)


@pytest.mark.parametrize("function", BINARY)
def test_text_is_no_label(function: Any) -> None:
    with pytest.raises(TypeError, match="y must be numeric, got dtype <U1"):
        function(["0", "1"])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -0.5], "sample_weight must not be negative, got -0.5"),
        ([0, 0], "sample_weight must not all be zero, got only zeros"),
        ([1, math.inf], "sample_weight must be finite, got infinity at position 1"),
        ([math.nan, 1], "sample_weight must be finite, got NaN at position 0"),
        ([1, 1, 1], r"sample_weight must have shape \(2,\) to match y, got \(3,\)"),
        (2.0, r"sample_weight must have shape \(2,\) to match y, got \(\)"),
    ],
)
def test_bad_weights_are_errors(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        smoothing.platt_targets([0, 1], weights)
    with pytest.raises(ValueError, match=message):
        smoothing.instance_targets([0.0, 1.0], [0, 1], weights)


@pytest.mark.parametrize("smooth", [1, 1.5, -0.1, math.nan, math.inf])
def test_smoothing_outside_its_range_is_an_error(smooth: float) -> None:
    message = r"smoothing must lie in \[0, 1\), got "
    with pytest.raises(ValueError, match=message):
        smoothing.constant_targets([0, 1], smooth)
    with pytest.raises(ValueError, match=message):
        smoothing.network_instance_targets(np.eye(2), [0, 1], smooth)


@pytest.mark.parametrize("smooth", ["0.1", None, True, [0.1]])
def test_smoothing_is_a_number(smooth: Any) -> None:
    with pytest.raises(TypeError, match="smoothing must be a number, got "):
        smoothing.constant_targets([0, 1], smooth)


def test_bad_numbers_of_classes_are_errors() -> None:
    with pytest.raises(ValueError, match="num_classes must be at least 2, got 1"):
        smoothing.constant_targets([0], 0.1, 1)
    with pytest.raises(TypeError, match="num_classes must be an integer, got 2.5"):
        smoothing.constant_targets([0, 1], 0.1, 2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"y must be in \{0, ..., 2\}, got 3"):
        smoothing.constant_targets([0, 3], 0.1, 3)
