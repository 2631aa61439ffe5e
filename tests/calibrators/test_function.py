"""Fitted calibrators as pure functions of arrays from several libraries."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import bayescal as bc
from bayescal import SamplingWarning
from bayescal._core.execution.precision import float64
from tests.calibrators.cases import CASES, DEFAULTS, Array, Case, each
from tests.calibrators.test_contract import data_of, fitted_of, quietly_fit

each_case = each(CASES)


def new_scores(case: Case) -> Array:
    """Return new scores that are exact in single precision."""
    return data_of(case.binary)[3].astype(np.float32).astype(float)


@each_case
def test_values_are_those_of_predict_proba(case: Case) -> None:
    """Check NumPy, a library of the array API standard, and JAX."""
    f, at = fitted_of(case).as_function(), new_scores(case)
    expected = fitted_of(case).predict_proba(at)
    np.testing.assert_array_equal(f(at), expected)
    narrow = f(at.astype(np.float32))
    assert narrow.dtype == np.float32
    expected_narrow = fitted_of(case).predict_proba(at.astype(np.float32))
    # Only the predicted class may be moved.
    moved = 4 * np.finfo(np.float32).eps if case().keeps == "argmax" else 0.0
    np.testing.assert_allclose(narrow, expected_narrow.astype(np.float32), rtol=moved)
    np.testing.assert_allclose(narrow, expected, atol=1e-6)
    strict = f(array_api_strict.asarray(at))
    assert strict.dtype == array_api_strict.float64
    np.testing.assert_allclose(np.asarray(strict), expected, atol=1e-12)
    with float64():
        result = jax.jit(f)(jnp.asarray(at))
        assert result.dtype == np.float64
        np.testing.assert_allclose(np.asarray(result), expected, atol=1e-12)


@each(DEFAULTS)
def test_axes_rows_and_nan(case: Case) -> None:
    """Check that leading axes are kept, rows may be mapped, and NaN affects only its own row."""
    f, at = fitted_of(case).as_function(), new_scores(case)[:12]
    at = at[:, None] if at.ndim == 1 else at
    expected, cube = f(at), at.reshape(2, 3, 2, at.shape[1])
    np.testing.assert_array_equal(f(cube), expected.reshape(2, 3, 2, -1))
    missing = at.copy()
    missing[1, 0] = np.nan
    without = np.where(np.arange(12)[:, None] == 1, np.nan, expected)
    np.testing.assert_allclose(f(missing), without, atol=1e-12)

    @jax.jit
    def compute(at: jax.Array, missing: jax.Array) -> Any:
        mapped = jax.vmap(lambda row: f(row[None])[0])(at)
        return f(at.reshape(cube.shape)).reshape(expected.shape), mapped, f(missing)

    with float64():
        result = compute(jnp.asarray(at), jnp.asarray(missing))
        # A call outside of compiled functions compiles a separate program.
        called = f(jnp.asarray(missing))
    for values, wanted in zip(
        (*result, called), (expected, expected, without, without), strict=True
    ):
        np.testing.assert_allclose(np.asarray(values), wanted, atol=1e-12)


#: Calibrators whose probabilities jump where scores differ only by rounding.
TIED = ("Forest", "KNN", "StackedScaling", "WeightScaling", "BinwiseTemperature")


@each(DEFAULTS)
def test_half_precision_is_calculated_in_single(case: Case) -> None:
    f, at = fitted_of(case).as_function(), new_scores(case).astype(jnp.bfloat16)
    both = case.calibrator in (bc.Temperature, bc.Beta)
    for dtype in (jnp.bfloat16, jnp.float16) if both else (jnp.bfloat16,):
        given = jnp.asarray(at, dtype)
        result = f(given)
        assert result.dtype == dtype
        single = given.astype(jnp.float32)
        expected = f(single)
        assert expected.dtype == np.float32
        np.testing.assert_array_equal(
            np.asarray(result, float), np.asarray(expected.astype(dtype), float)
        )
        if case.calibrator.__name__ not in TIED:
            exact = f(np.asarray(single, float))
            np.testing.assert_allclose(np.asarray(expected), exact, atol=1e-6)


#: Calibrators whose probabilities are step functions of the score.
STEPS = ("BBQ", "Histogram", "ScalingBinning", "VennAbers")


@each(DEFAULTS)
def test_gradients(case: Case) -> None:
    """Compare gradients with finite differences; gradients of step functions are zero."""
    f, at = fitted_of(case).as_function(), new_scores(case)[5:9]

    def one(z: jax.Array) -> jax.Array:
        return f(z)[:, 0].sum()

    with float64():
        result = np.asarray(jax.jit(jax.grad(one))(jnp.asarray(at)))
    assert np.isfinite(result).all()
    if case.calibrator.__name__ in STEPS:
        assert (result == 0).all()
    step = 1e-7
    for index in np.ndindex(at.shape):
        moved = [at.copy(), at.copy()]
        moved[0][index] -= step
        moved[1][index] += step
        low, high = (f(scores)[:, 0].sum() for scores in moved)
        assert (high - low) / (2 * step) == pytest.approx(result[index], abs=2e-4, rel=1e-4)


@each(DEFAULTS)
def test_intervals(case: Case) -> None:
    options = case.options
    if "inference" in inspect.signature(case.calibrator).parameters:
        options = {**options, "inference": "laplace", "num_samples": 200}
    case = Case(case.calibrator, options)
    p, y, w, _ = data_of(case.binary)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        calibrator = quietly_fit(case(), p, y, w)
    f, at = calibrator.as_function(), new_scores(case)
    # Venn-Abers has no credible interval, NumPy draws the monotone maps, and SciPy computes
    # posteriors of frequencies.
    binned = bc.Histogram, bc.ScalingBinning, bc.WeightScaling
    without = (bc.VennAbers, bc.Isotonic, bc.CenteredIsotonic, *binned)
    if not hasattr(calibrator, "predict_interval") or isinstance(calibrator, without):
        with pytest.raises(AttributeError, match="interval needs a posterior"):
            f.interval(at)
        return
    expected = calibrator.predict_interval(at, 0.8)
    for one, other in zip(f.interval(at, 0.8), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    cube = at[:12].reshape(3, 4, -1)
    for one, other in zip(f.interval(cube, 0.8), expected, strict=True):
        np.testing.assert_allclose(one, other[:12].reshape(3, 4, *other.shape[1:]), atol=1e-12)
    with float64():
        result = jax.jit(lambda z: f.interval(z, 0.8))(jnp.asarray(at))
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, atol=1e-12)


def combined_calibrators() -> list[Any]:
    return [
        bc.OneVsRest(bc.Isotonic()),
        bc.OneVsRest(bc.Beta()),
        bc.compose(bc.Vector(), bc.OneVsRest(bc.Histogram())),
        bc.Average([bc.Temperature(), bc.Dirichlet()]),
        bc.Auto(),
    ]


@pytest.mark.parametrize(
    "calibrator",
    [
        *combined_calibrators(),
        bc.OneVsOne(bc.Histogram()),
        bc.OneVsRest(bc.VennAbers()),
        bc.OneVsRest(bc.Beta(inference="laplace", num_samples=200)),
        bc.OneVsOne(bc.Logistic(inference="laplace", num_samples=200)),
        bc.Forest(20, 10, random_state=0),
    ],
    ids=str,
)
def test_combinations_and_missing_classes(calibrator: Any) -> None:
    """Check classes without rows, and that NaN affects only its own row."""
    p, y, _, new = data_of(binary=False)
    for rows, labels in ((p, y), (p[y < 2], y[y < 2])):
        unfitted = clone(calibrator).set_params(classes=[0, 1, 2])
        fitted = quietly_fit(unfitted, rows, labels)
        expected, f, at = fitted.predict_proba(new), fitted.as_function(), new.copy()
        np.testing.assert_array_equal(f(new), expected)
        expected[1] = at[1, 0] = np.nan
        strict = f(array_api_strict.asarray(at))
        np.testing.assert_allclose(np.asarray(strict), expected, atol=1e-12)
        if f.has_interval:
            ends = f.interval(array_api_strict.asarray(new), 0.8)
            for one, other in zip(ends, fitted.predict_interval(new, 0.8), strict=True):
                np.testing.assert_allclose(np.asarray(one), other, atol=1e-12)
        with float64():
            result = np.asarray(jax.jit(f)(jnp.asarray(at)))
        np.testing.assert_allclose(result, expected, atol=1e-12)


def probs_in_tenths(binary: bool) -> tuple[Array, Array, Array]:
    """Return probabilities in tenths, labels, and new ones in hundredths, many on borders."""
    rng = np.random.default_rng(3)
    if binary:
        p = rng.integers(0, 11, 400) / 10
        return p, (rng.random(400) < 0.1 + 0.8 * p**2).astype(int), np.arange(101) / 100
    every = [(i, j, 10 - i - j) for i in range(11) for j in range(11 - i)]
    rows = np.array(every) / 10
    p = rows[rng.integers(0, len(rows), 400)]
    y = (rng.random((400, 1)) > np.cumsum(0.7 * p + 0.1, axis=1)).sum(axis=1)
    return p, np.minimum(y, 2), rows


@each_case
def test_tenths_in_single_and_double_precision_are_the_same(case: Case) -> None:
    p, y, new = probs_in_tenths(case.binary)
    fits = [quietly_fit(case(), p.astype(kind), y) for kind in (np.float64, np.float32)]
    expected = fits[0].predict_proba(new)
    for fitted in fits:
        f = fitted.as_function()
        for kind in (np.float64, np.float32):
            given = new.astype(kind)
            np.testing.assert_allclose(fitted.predict_proba(given), expected, atol=2e-5)
            np.testing.assert_allclose(f(given), expected, atol=2e-5)
    if case.calibrator.__name__ in STEPS or not case.options:
        single = np.asarray(jax.jit(f)(jnp.asarray(new, jnp.float32)))
        np.testing.assert_allclose(single, expected, atol=2e-5)


@pytest.mark.parametrize("k", [2, 10])
def test_predicted_classes_are_kept_in_all_precisions(k: int) -> None:
    """Check labels that are never the predicted class, which make probabilities nearly uniform."""
    rng = np.random.default_rng(k)
    logits = rng.normal(0, 2, (300, k)).astype(np.float16)
    wrong = (logits.argmax(axis=1) + 1) % k
    for cls in (bc.WeightScaling, bc.BinwiseTemperature):
        probs = cls is bc.WeightScaling
        given = softmax(logits.astype(float), axis=1) if probs else logits
        for bins in (1, 4):
            fitted = quietly_fit(
                cls(inputs="probs" if probs else "logits", bins=bins), given, wrong
            )
            f = fitted.as_function()
            for kind in (np.float64, np.float32, np.float16):
                scores = np.asarray(given, kind)
                exact = fitted.predict_proba(scores.astype(float))
                libraries = [np, jnp] + [array_api_strict] * (kind is not np.float16)
                for xp in libraries:
                    result = np.asarray(f(xp.asarray(scores)))
                    # The first of several equal scores counts as the largest.
                    np.testing.assert_array_equal(result.argmax(axis=1), scores.argmax(axis=1))
                    eps = float(np.finfo(result.dtype).eps)
                    np.testing.assert_allclose(result, exact, atol=4 * eps)


def test_several_labels() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, (200, 3))
    y = (rng.random(p.shape) < p**1.5).astype(int)
    for inner in (bc.Beta(), bc.Auto(), bc.Logistic(inference="laplace"), bc.Histogram()):
        fitted = bc.MultiLabel(inner).fit(p, y)
        f, expected, at = fitted.as_function(), fitted.predict_proba(p[:9]), p[:9].copy()
        expected[1, 0] = at[1, 0] = np.nan
        with float64():
            result = jax.jit(f)(jnp.asarray(at))
        np.testing.assert_allclose(np.asarray(result), expected, atol=1e-12)
        np.testing.assert_allclose(f(at), expected, atol=1e-12)
        # A single label, as one column or as a flat array.
        one = bc.MultiLabel(inner).fit(p[:, :1], y[:, :1])
        expected, f = one.predict_proba(p[:9, :1]), one.as_function()
        np.testing.assert_allclose(f(p[:9, 0]), expected, atol=1e-12)
        np.testing.assert_allclose(f(p[:9, :1].reshape(3, 3, 1))[1], expected[3:6], atol=1e-12)
        np.testing.assert_allclose(f(np.asarray(p[0, 0])), expected[0], atol=1e-12)


def test_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 4))
    y = (x[:, 0] > rng.normal(size=100)).astype(int)
    for options in ({}, {"coef_prior": "cauchy", "inference": "laplace", "num_samples": 200}):
        fitted = bc.LogisticRegression(**options).fit(x, y)  # type: ignore[arg-type]
        f = fitted.as_function()
        with float64():
            result = jax.jit(f)(jnp.asarray(x))
            np.testing.assert_allclose(np.asarray(result), fitted.predict_proba(x), atol=1e-12)
            if options:
                ends = f.interval(jnp.asarray(x))
                np.testing.assert_allclose(ends, fitted.predict_interval(x), atol=1e-12)


def test_one_compilation_serves_all_fits() -> None:
    rng = np.random.default_rng(0)
    z, count = rng.normal(size=(200, 4)), 0

    @jax.jit
    def apply(f: bc.PredictFunction, z: jax.Array) -> jax.Array:
        nonlocal count
        count += 1
        return f(z)

    for _ in range(3):
        fitted = bc.Vector(inputs="logits").fit(z, rng.integers(0, 4, 200))
        result = apply(fitted.as_function(), jnp.asarray(z, jnp.float32))
        np.testing.assert_allclose(np.asarray(result), fitted.predict_proba(z), atol=1e-6)
    assert count == 1
    other = bc.Vector(inputs="logits", inference="laplace").fit(z, rng.integers(0, 4, 200))
    apply(other.as_function(), jnp.asarray(z, jnp.float32))
    assert count == 2
    leaves, structure = jax.tree.flatten(other.as_function())
    assert len(leaves) > 0 and all(leaf.dtype.kind in "fi" for leaf in leaves)
    np.testing.assert_array_equal(jax.tree.unflatten(structure, leaves)(z), other.predict_proba(z))


def test_many_rows_are_calculated_in_blocks() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(3000, 3)), rng.integers(0, 3, 3000)
    fitted = bc.Vector(inputs="logits", inference="laplace").fit(z[:100], y[:100])
    f, expected = fitted.as_function(), fitted.predict_proba(z)
    with float64():
        np.testing.assert_allclose(np.asarray(jax.jit(f)(jnp.asarray(z))), expected, atol=1e-12)
    strict = f(array_api_strict.asarray(z))
    np.testing.assert_allclose(np.asarray(strict), expected, atol=1e-12)


def test_errors_and_values_that_are_not_numbers() -> None:
    f = bc.Temperature(inputs="logits").fit(np.eye(3)[[0, 1, 2, 0]], [0, 1, 2, 1]).as_function()
    for wrong in ([[1.0, 2, 3]], "text", None, 1.0):
        with pytest.raises(TypeError, match="scores must be an array"):
            f(wrong)
    with pytest.raises(TypeError, match="floating"):
        f(np.eye(3, dtype=int))
    for shape in ((4,), (4, 2), (4, 3, 1)):
        with pytest.raises(ValueError, match=r"shape \(m, 3\)"):
            f(np.zeros(shape))
    assert np.isnan(f(np.array([[np.nan, 0, 0]]))).any()
    assert repr(f) == "PredictFunction(Temperature)"
    with pytest.raises(NotFittedError):
        bc.Temperature().as_function()


@pytest.mark.parametrize("huge", [1e308, 1e30])
def test_huge_logits_of_log_probabilities_are_finite(huge: float) -> None:
    p, y, _, _ = data_of(binary=False)
    fitted = bc.Dirichlet(inputs="logits").fit(np.log(p), y)
    at = np.array([[huge, -huge, 0], [-huge, 0, huge], [huge, huge, -huge]])
    f, expected = fitted.as_function(), fitted.predict_proba(at)
    assert np.isfinite(expected).all()
    with float64():
        np.testing.assert_allclose(np.asarray(f(jnp.asarray(at))), expected, atol=1e-9)
        np.testing.assert_allclose(np.asarray(jax.jit(f)(jnp.asarray(at))), expected, atol=1e-9)
    strict = f(array_api_strict.asarray(at))
    np.testing.assert_allclose(np.asarray(strict), expected, atol=1e-9)


def test_direct_calls_on_jax_arrays_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces, trace = [], bc.Beta._map

    def counted(self: Any, state: Any, scores: Any) -> Any:
        traces.append(scores)
        return trace(self, state, scores)

    monkeypatch.setattr(bc.Beta, "_map", counted)
    p = np.linspace(0.1, 0.9, 17)
    y = np.arange(17) * 7 % 10 < 10 * p**2
    first, second = (bc.Beta().fit(q, y).as_function() for q in (p, p**2))
    at = jnp.linspace(0.2, 0.7, 13)
    for f in (first, second, first, second):
        np.testing.assert_allclose(f(at), f(np.asarray(at, float)), atol=1e-6)
    assert sum(isinstance(scores, jax.Array) for scores in traces) == 1
    slope = jax.grad(lambda x: first(x)[0, 1])(jnp.array([0.3]))
    assert slope[0] > 0
