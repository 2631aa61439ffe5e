"""Targets from the logits of a network, by hand and by their properties."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayescal.smoothing import constant_targets, network_instance_targets

LOGITS = st.integers(2, 6).flatmap(
    lambda k: st.lists(
        st.lists(st.floats(-50, 50), min_size=k, max_size=k), min_size=1, max_size=8
    ).map(np.array)
)


def labels_of(logits: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, logits.shape[1], size=len(logits))


@pytest.mark.parametrize(
    ("logits", "label", "smooth", "offset", "expected"),
    [
        # Shifted logits 6, 3, 1, 0: a share of 0.6 for the true class; 3/4, 1/4 and 0 of it for
        # the rest. A share of 0.1 if class 2 is the true one; 6/9 and 3/9 of it for the rest.
        ([4, 1, -1, -2], 0, 0.1, 0, [0.94, 0.045, 0.015, 0]),
        ([14, 11, 9, 8], 0, 0.1, 0, [0.94, 0.045, 0.015, 0]),
        ([4, 1, -1, -2], 2, 0.1, 0, [0.06 / 9, 0.03 / 9, 0.99, 0]),
        # 4, 2 and 1 after the shift: 4/7, and 2/3 and 1/3 of it.
        ([3, 1, 0], 0, 0.7, 1, [0.6, 0.8 / 3, 0.4 / 3]),
        ([5, 2, 2], 0, 0.1, 0, [0.9, 0.05, 0.05]),
        ([1, 0, 3], 1, 0.5, 0, [0, 1, 0]),
        ([2, -1], 0, 0.1, 0, [0.9, 0.1]),
        ([2, -1], 1, 0.1, 0, [0, 1]),
        *(([1.0, 0, 0], 0, 0.5, offset, [0.5, 0.25, 0.25]) for offset in (math.ulp(0.0), 1e-300)),
    ],
)
def test_by_hand(logits: Any, label: int, smooth: float, offset: float, expected: Any) -> None:
    result = network_instance_targets([logits], [label], smooth, offset)
    np.testing.assert_allclose(result, [expected], rtol=1e-13)
    assert result.dtype == np.float64


@pytest.mark.parametrize("value", [0.0, -3.5, 1e308])
@pytest.mark.parametrize("label", [0, 3])
def test_equal_logits_share_alike(value: float, label: int) -> None:
    result = network_instance_targets(np.full((1, 4), value), [label], 0.2)
    expected = np.full((1, 4), 0.05 / 3)
    expected[0, label] = 0.95
    np.testing.assert_allclose(result, expected, rtol=1e-14)


@pytest.mark.parametrize("size", [1e-300, 1e308, math.ulp(0.0)])
def test_extreme_logits(size: float) -> None:
    result = network_instance_targets([[size, 0.0, -size], [-size, -size, size]], [0, 1], 0.3)
    assert np.isfinite(result).all()
    np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-14)


@given(LOGITS, st.floats(0, 1, exclude_max=True), st.floats(0, 10), st.integers(0, 2**31))
def test_rows_are_probabilities(
    logits: np.ndarray, smooth: float, offset: float, seed: int
) -> None:
    y = labels_of(logits, seed)
    result = network_instance_targets(logits, y, smooth, offset)
    assert (result >= 0).all() and (result <= 1).all()
    np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-13)
    assert (result[np.arange(len(y)), y] >= 1 - smooth - 1e-15).all()


@given(LOGITS, st.integers(0, 2**31), st.sampled_from([0.25, 2.0, 64.0]), st.integers(-8, 8))
def test_scale_and_shift_of_logits_do_not_matter(
    logits: np.ndarray, seed: int, scale: float, shift: int
) -> None:
    # Multiples of 1/4 avoid rounding.
    logits = np.round(4 * logits) / 4
    y = labels_of(logits, seed)
    expected = network_instance_targets(logits, y, 0.1)
    result = network_instance_targets(scale * logits + shift, y, 0.1)
    np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-16)


@given(LOGITS, st.integers(0, 2**31))
def test_permutations_of_rows_and_classes(logits: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = labels_of(logits, seed)
    expected = network_instance_targets(logits, y, 0.1)
    rows, columns = (rng.permutation(n) for n in logits.shape)
    inverse = np.argsort(columns)
    result = network_instance_targets(logits[rows][:, columns], inverse[y[rows]], 0.1)
    np.testing.assert_allclose(result, expected[rows][:, columns], rtol=1e-13, atol=1e-16)


def test_large_offset_is_constant_smoothing() -> None:
    result = network_instance_targets([[3.0, 1.0, 0.0]], [1], 0.3, offset=1e9)
    np.testing.assert_allclose(result, [[0.05, 0.9, 0.05]], rtol=1e-8)
    logits, y = np.random.default_rng(0).normal(size=(5, 7)), [0, 3, 6, 1, 1]
    result = network_instance_targets(logits, y, 0.3, offset=1e9)
    np.testing.assert_allclose(result, constant_targets(y, 0.3 / 6, 7), rtol=1e-8)


@pytest.mark.parametrize("convert", [np.asarray, pd.DataFrame, jnp.asarray, np.float32, list])
def test_kinds_of_arrays_that_stay_as_they_are(convert: Any) -> None:
    values = np.array([[4, 1, -1, -2], [0, 0, 0, 1]])
    given = convert(values)
    if isinstance(given, np.ndarray):
        given.flags.writeable = False
    result = network_instance_targets(given, [0, 3], 0.1)
    np.testing.assert_allclose(result[0], [0.94, 0.045, 0.015, 0], rtol=1e-14)
    np.testing.assert_array_equal(np.asarray(given), [[4, 1, -1, -2], [0, 0, 0, 1]])


@pytest.mark.parametrize(
    ("logits", "y", "message"),
    [
        ([1.0, 2.0], [0, 1], r"logits must have shape \(n, k\) with k at least 2, got \(2,\)"),
        ([[1.0], [2.0]], [0, 0], r"logits must have shape \(n, k\) with k at least 2, got \(2, 1"),
        ([[1.0, math.nan]], [0], r"logits must be finite, got NaN at position \(0, 1\)"),
        ([[1.0, -math.inf]], [0], r"logits must be finite, got infinity at position \(0, 1\)"),
        ([[1.0, 2.0]], [2], r"y must be in \{0, 1\}, got 2"),
        ([[1.0, 2.0, 3.0]], [-1], r"y must be in \{0, ..., 2\}, got -1"),
        ([[1.0, 2.0]], [0, 1], "logits must have 2 rows to match y, got 1"),
        (np.empty((0, 3)), [], "y must not be empty"),
    ],
)
def test_bad_arrays_are_errors(logits: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        network_instance_targets(logits, y, 0.1)


@pytest.mark.parametrize("offset", [-1, math.nan, math.inf])
def test_bad_offset_is_an_error(offset: float) -> None:
    with pytest.raises(ValueError, match="offset must be finite and not negative, got "):
        network_instance_targets([[1.0, 2.0]], [0], 0.1, offset)
    with pytest.raises(TypeError, match="offset must be a number, got 'a'"):
        network_instance_targets([[1.0, 2.0]], [0], 0.1, "a")  # type: ignore[arg-type]
