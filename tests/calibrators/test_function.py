"""Fitted calibrators as pure functions of arrays of several libraries."""

from __future__ import annotations

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.precision import float64
from tests.calibrators.cases import CASES, Array, Case, each
from tests.calibrators.test_contract import data_of, fitted_of

each_case = each(CASES)


def points(case: Case) -> Array:
    """Return new scores, in numbers that single precision has too."""
    return data_of(case.binary)[3].astype(np.float32).astype(float)


@each_case
def test_numpy(case: Case) -> None:
    f, at = fitted_of(case).as_function(), points(case)
    expected = fitted_of(case).predict_proba(at)
    np.testing.assert_array_equal(f(at), expected)
    narrow = f(at.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_array_equal(narrow, expected.astype(np.float32))


@each_case
def test_any_library_of_the_standard(case: Case) -> None:
    f, at = fitted_of(case).as_function(), points(case)
    found = f(array_api_strict.asarray(at))
    assert found.dtype == array_api_strict.float64
    np.testing.assert_allclose(np.asarray(found), fitted_of(case).predict_proba(at), atol=1e-12)


@each_case
def test_jax(case: Case) -> None:
    f, at = fitted_of(case).as_function(), points(case)
    expected = fitted_of(case).predict_proba(at)
    with float64():
        found = jax.jit(f)(jnp.asarray(at))
        assert found.dtype == np.float64
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-12)
    found = jax.jit(lambda f, at: f(at))(f, jnp.asarray(at))
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-6)
