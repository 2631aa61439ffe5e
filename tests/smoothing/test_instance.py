"""Instance-based targets by hand and against SciPy's densities, and invalid arguments."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from bayescal.smoothing import instance_targets, platt_targets
from bayescal.smoothing.instance import soften
from tests.smoothing.data import data_set

RULES = ["silverman", "scott", "cv", 0.4]
SCALES = ["full", "diagonal", "pooled"]


@pytest.mark.parametrize(
    ("label", "eps", "positive", "negative", "expected"),
    [
        (1, 0.1, 0.7, 0.4, 0.936),
        (1, 0.1, 0.9, 0.05, 0.905),
        (0, 0.1, 0.7, 0.4, 0.036),
        (0, 0.1, 0.05, 0.95, 0.095),
        (1, 0.2, 0.3, 0.3, 0.9),
        (0, 0.2, 0.0, 0.3, 0.2),
        (0, 0.2, 0.3, 0.0, 0.0),
        (1, 0.2, 0.3, 0.0, 0.8),
        (1, 0.2, 0.0, 0.3, 1.0),
    ],
)
def test_formula_by_hand(
    label: int, eps: float, positive: float, negative: float, expected: float
) -> None:
    with np.errstate(divide="ignore"):
        log_odds = np.log([positive]) - np.log([negative])
    result = soften(np.array([label]), np.array([eps, eps]), log_odds)
    assert result[0] == pytest.approx(expected, abs=5e-4)


# --- by hand ------------------------------------------------------------------------------------


def test_one_case_of_each_class_by_hand() -> None:
    # The pooled standard deviation is 1/2, so each kernel N(x_i, h/2): log f+ - log f- = 2 / h**2.
    for h in (0.5, 1.0, 2.0):
        share = 1 / (1 + math.exp(-2 / h**2))
        result = instance_targets([0.0, 1.0], [0, 1], bandwidth=h)
        np.testing.assert_allclose(result, [share / 3, 1 - share / 3], rtol=1e-14)


@pytest.mark.parametrize("bandwidth", RULES)
@pytest.mark.parametrize("scale", SCALES)
def test_one_class_only_is_platt(scale: Any, bandwidth: Any) -> None:
    x, _ = data_set(10)
    for y in (np.zeros(10, int), np.ones(10, int)):
        result = instance_targets(x, y, bandwidth=bandwidth, scale=scale)
        np.testing.assert_allclose(result, platt_targets(y), rtol=1e-15)


@pytest.mark.parametrize("bandwidth", RULES)
@pytest.mark.parametrize("scale", SCALES)
def test_degenerate_data_give_numbers(scale: str, bandwidth: Any) -> None:
    options = {"bandwidth": bandwidth, "scale": scale}
    one = instance_targets([3.0], [1], **options)
    np.testing.assert_allclose(one, [2 / 3], rtol=1e-15)
    # Equal scores carry no information: both classes have equal densities.
    same = instance_targets([2.0, 2.0], [0, 1], **options)
    np.testing.assert_allclose(same, [1 / 6, 5 / 6], rtol=1e-14)
    x, y = data_set(12, 3)
    x[:, 1] = 0.1
    x[:, 2] = 2 * x[:, 0]
    y[:] = [1] + [0] * 11
    # Two columns as in the rest of this file, since other shapes would compile again.
    for columns in ([0, 1], [0, 2], [0, 1, 2])[: 3 if bandwidth == "cv" else 2]:
        result = instance_targets(x[:, columns], y, **options)
        assert ((result >= 0) & (result <= 1)).all()


def test_separated_classes_are_platt() -> None:
    x = np.array([-1e6, -1e6 - 1, 1e6, 1e6 + 1])
    y = np.array([0, 0, 1, 1])
    np.testing.assert_array_equal(instance_targets(x, y), platt_targets(y))


def test_case_far_in_the_tails_of_both_classes() -> None:
    # Both densities underflow; the wider class has a far larger one.
    x = np.array([-1.0, 0.0, 1.0, 2000.0, -20.0, 0.0, 20.0])
    y = np.array([0, 0, 0, 1, 1, 1, 1])
    result = instance_targets(x, y, sample_weight=[1, 1, 1, 0, 1, 1, 1])
    assert result[3] == 1 - 1 / 5
    y[3] = 0
    assert instance_targets(x, y, sample_weight=[1, 1, 1, 0, 1, 1, 1])[3] == 0


@pytest.mark.parametrize("top", [1e308, 1e200, 1e-200, 1e-308])
def test_extreme_features(top: float) -> None:
    x = np.array([[-1.0, 2.0], [0.5, 2.0], [-0.25, 2.0], [1.0, 2.0], [0.75, 2.0]])
    y = np.array([0, 0, 1, 1, 1])
    expected = instance_targets(x[:, 0], y)
    np.testing.assert_allclose(instance_targets(top * x[:, 0], y), expected, rtol=1e-12)
    for scale in SCALES:
        result = instance_targets(x * (top / 2), y, bandwidth="cv", scale=scale)  # type: ignore[arg-type]
        assert ((result >= 0) & (result <= 1)).all()


def test_extreme_weights() -> None:
    x, y = data_set(8, 2)
    for weights in (np.geomspace(1e-300, 1, 8), np.geomspace(1e-300, 1e-200, 8), np.full(8, 1e150)):
        result = instance_targets(x, y, weights)
        assert ((result >= 0) & (result <= 1)).all()


# --- against SciPy ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "d", "bandwidth"),
    [
        *((16, d, bandwidth) for d in (1, 2) for bandwidth in ("silverman", "scott", 0.4)),
        (120, 3, "scott"),
    ],
)
def test_targets_are_those_of_scipy_s_densities(n: int, d: int, bandwidth: Any) -> None:
    x, y = data_set(n, d)
    log_density = [
        scipy.stats.gaussian_kde(x[y == k].T, bw_method=bandwidth).logpdf(x.T) for k in (0, 1)
    ]
    share = scipy.special.expit(log_density[1] - log_density[0])
    counts = np.bincount(y)
    expected = np.where(y == 1, 1 - share / (counts[1] + 2), (1 - share) / (counts[0] + 2))
    result = instance_targets(x, y, bandwidth=bandwidth)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=1e-8)


def test_pooled_scale_is_the_published_algorithm() -> None:
    x, y = data_set(50, 2)
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    log_density = []
    for k in (0, 1):
        of_class = standard[y == k]
        h = (len(of_class) * 4 / 4) ** (-1 / 6)
        squares = ((standard[:, None] - of_class) ** 2).sum(axis=-1)
        log_density.append(
            scipy.special.logsumexp(-squares / (2 * h**2), axis=1)
            - np.log(len(of_class))
            - 2 * np.log(h)
        )
    share = scipy.special.expit(log_density[1] - log_density[0])
    expected = soften(y, 1 / (np.bincount(y) + 2), scipy.special.logit(share))
    result = instance_targets(x, y, scale="pooled")
    np.testing.assert_allclose(result, expected, rtol=1e-12)


# --- properties ---------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(4, 16), st.integers(0, 2**31), st.sampled_from(RULES), st.sampled_from(SCALES))
def test_order_labels_and_units_do_not_matter(
    n: int, seed: int, bandwidth: Any, scale: Any
) -> None:
    x, y = data_set(n, 2, seed)
    options = {"bandwidth": bandwidth, "scale": scale}
    expected = instance_targets(x, y, **options)
    order = np.random.default_rng(seed).permutation(n)
    result = instance_targets(x[order], y[order], **options)
    np.testing.assert_allclose(result, expected[order], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(
        instance_targets(x, 1 - y, **options), 1 - expected, rtol=1e-8, atol=1e-12
    )
    moved = instance_targets(x * [4.0, 0.25] + [1.0, -2.0], y, **options)
    np.testing.assert_allclose(moved, expected, rtol=1e-6, atol=1e-9)


@settings(max_examples=30)
@given(st.integers(4, 10), st.integers(0, 2**31), st.sampled_from(RULES), st.sampled_from(SCALES))
def test_weights_are_repetitions(n: int, seed: int, bandwidth: Any, scale: Any) -> None:
    x, y = data_set(n, 2, seed)
    # Up to 16 rows, so that programs are shared.
    counts = 1 + np.random.default_rng(seed).multinomial(16 - n, np.full(n, 1 / n))
    options = {"bandwidth": bandwidth, "scale": scale}
    result = np.repeat(instance_targets(x, y, counts, **options), counts)
    expected = instance_targets(np.repeat(x, counts, axis=0), np.repeat(y, counts), **options)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-9)


def test_cases_without_weight_do_not_count() -> None:
    x, y = data_set(30)
    weights = np.r_[np.ones(25), np.zeros(5)]
    result = instance_targets(x, y, weights)
    np.testing.assert_allclose(result[:25], instance_targets(x[:25], y[:25]), rtol=1e-12)
    assert ((result >= 0) & (result <= 1)).all()


# --- how it runs --------------------------------------------------------------------------------


def test_float32_is_within_its_rounding() -> None:
    x, y = data_set(500, 2)
    narrow = instance_targets(x.astype(np.float32), y)
    assert narrow.dtype == np.float64
    expected = instance_targets(x.astype(np.float32).astype(np.float64), y)
    # Log densities are right to 1e-4, and labels move by less than 1/100.
    np.testing.assert_allclose(narrow, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "convert",
    [list, pd.Series, jnp.asarray, lambda x: x[:, None], lambda x: pd.DataFrame({"a": x})],
)
def test_kinds_of_arrays(convert: Any) -> None:
    x = np.array([0.5, 2.0, -1.0, 0.25])
    y = np.array([0, 1, 0, 1])
    result = instance_targets(convert(x), pd.Series(y), pd.Series([1, 2, 1, 1]))
    expected = instance_targets(x, y, [1, 2, 1, 1])
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_arrays_stay_as_they_are() -> None:
    arrays = (*data_set(20, 2), np.arange(20.0))
    copies = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    result = instance_targets(*arrays)
    result[0] = 7  # the caller may modify a result
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([1.0, math.nan], "x must be finite, got NaN at position 1"),
        ([[1.0], [math.inf]], r"x must be finite, got infinity at position \(1, 0\)"),
        ([1.0, 2.0, 3.0], "x must have 2 rows to match y, got 3"),
        (1.0, r"x must have shape \(n,\) or \(n, d\), got \(\)"),
        (np.zeros((2, 1, 1)), r"x must have shape \(n,\) or \(n, d\), got \(2, 1, 1\)"),
        (np.zeros((2, 0)), r"x must have shape \(n,\) or \(n, d\), got \(2, 0\)"),
    ],
)
def test_bad_features_are_errors(x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        instance_targets(x, [0, 1])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        *(({"bandwidth": value}, ValueError) for value in ("wide", 0, -1.0, math.nan, math.inf)),
        *(({"bandwidth": value}, TypeError) for value in (None, True, [0.5, None], [True])),
        ({"scale": "class"}, ValueError),
    ],
)
def test_bad_options_are_errors(options: Any, error: type[Exception]) -> None:
    message = "bandwidth must be 'silverman', 'scott', 'cv' or a posi|scale must be one of 'full'"
    with pytest.raises(error, match=message):
        instance_targets([0.0, 1.0], [0, 1], **options)
