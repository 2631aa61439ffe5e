"""Fitted calibrators as functions of PyTorch tensors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import bayescal as bc
from tests.calibrators.cases import DEFAULTS, Array, Case, each
from tests.calibrators.test_contract import data_of, fitted_of
from tests.calibrators.test_function import combined_calibrators, new_scores, probs_in_tenths

pytestmark = pytest.mark.parity("torch")

each_default = each(DEFAULTS)


def both_precisions(z: Array) -> tuple[Any, Any]:
    import torch

    return torch.asarray(z), torch.asarray(z, dtype=torch.float32)


@each_default
def test_tensors(case: Case) -> None:
    f, at = fitted_of(case).as_function(), new_scores(case)
    expected, (wide, narrow) = fitted_of(case).predict_proba(at), both_precisions(at)
    result, single = f(wide), f(narrow)
    assert result.dtype == wide.dtype and single.dtype == narrow.dtype
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(single.numpy(), expected, atol=1e-6)


@each_default
def test_autograd(case: Case) -> None:
    """Compare with JAX gradients."""
    import jax

    from bayescal._core.execution.precision import float64

    f, at = fitted_of(case).as_function(), new_scores(case)[5:9]
    with float64():
        expected = jax.grad(lambda z: f(z)[:, 0].sum())(jax.numpy.asarray(at))
    rows = both_precisions(at)[0].requires_grad_(True)
    total = f(rows)[:, 0].sum()
    total.backward()
    result = rows.grad.numpy()
    np.testing.assert_allclose(result, np.asarray(expected), rtol=1e-9, atol=1e-9)


@each_default
def test_what_is_not_a_number(case: Case) -> None:
    f, at = fitted_of(case).as_function(), new_scores(case)[:4].copy()
    expected = f(at)
    at.reshape(4, -1)[1, 0] = expected[1] = np.nan
    np.testing.assert_allclose(f(both_precisions(at)[0]).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("case", [c for c in DEFAULTS if c.name.startswith(("H", "V", "B"))])
def test_tenths_in_single_precision(case: Case) -> None:
    p, y, new = probs_in_tenths(case.binary)
    fitted = case().fit(p, y)
    f, expected = fitted.as_function(), fitted.predict_proba(new)
    for at in both_precisions(new):
        np.testing.assert_allclose(f(at).numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("calibrator", combined_calibrators(), ids=lambda c: type(c).__name__)
def test_combinations(calibrator: Any) -> None:
    p, y, _, new = data_of(binary=False)
    fitted = calibrator.fit(p, y)
    f = fitted.as_function()
    np.testing.assert_allclose(
        f(both_precisions(new)[0]).numpy(), fitted.predict_proba(new), atol=1e-12
    )


@pytest.mark.parametrize(
    "calibrator", [bc.Temperature(), bc.Auto(), bc.OneVsRest(bc.Isotonic()), bc.Kernel()]
)
def test_compiled(calibrator: Any) -> None:
    import torch

    p, y, _, new = data_of(binary=False)
    fitted = calibrator.fit(p, y)
    with warnings.catch_warnings():
        # PyTorch's compiler warns about code that it traces.
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        apply = torch.compile(fitted.as_function(), backend="aot_eager")
        result = apply(both_precisions(new)[1])
    np.testing.assert_allclose(result.numpy(), fitted.predict_proba(new), atol=1e-6)


def test_intervals() -> None:
    p, y, _, new = data_of(binary=False)
    fitted = bc.Dirichlet(inference="laplace").fit(p, y)
    result = fitted.as_function().interval(both_precisions(new)[0], 0.8)
    for one, other in zip(result, fitted.predict_interval(new, 0.8), strict=True):
        np.testing.assert_allclose(one.numpy(), other, atol=1e-12)
