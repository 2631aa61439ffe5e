"""Every family of densities with unusual and with invalid parameters, data and points."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayescal as bc
from tests.hostile.strange import NAMED, P3, Y3, P, Y, invalid_arrays, judge, valid_arrays

Array = np.ndarray
REAL = 8 * P - 4
WIDE = np.stack([REAL, REAL[::-1] ** 2], axis=1)


NO_NUMBER: dict[str, Any] = {
    "NaN": np.nan,
    "infinity": np.inf,
    "text": "wide",
    "a dict": {"loc": 0.0},
    "an object": object(),
    "complex": 1j,
    "too many": np.ones((2, 3, 4)),
    "a date": np.datetime64("2026-01-01"),
    "NaNs": [np.nan, 1.0],
}
POSITIVE = ("sigma", "alpha0", "beta0", "alpha1", "beta1", "kappa0", "kappa1", "alpha", "beta")


class Case:
    """A prior with suitable scores and labels, and scores outside its support."""

    def __init__(self, make: Any, parameters: dict[str, Any], x: Array, y: Array, outside: Any):
        self.make, self.parameters, self.x, self.y, self.outside = make, parameters, x, y, outside

    def predict(
        self, scores: Any, labels: Any, at: Any, options: Any = None, **parameters: Any
    ) -> Array:
        prior = self.make(**{**self.parameters, **parameters})
        options = {"num_samples": 64, **(options or {})}
        result = bc.posterior_predict(prior, (scores, labels), at, **options)
        return np.asarray(result.probs)


CASES = {
    "gaussian": Case(
        bc.GaussianPrior,
        {"mu0": dist.Normal(-1, 1), "mu1": dist.Normal(1, 1), "sigma": 1.0},
        REAL,
        Y,
        None,
    ),
    "beta": Case(
        bc.BetaPrior,
        {"alpha0": dist.Gamma(2, 1), "beta0": 3.0, "alpha1": 4.0, "beta1": 1.2},
        P,
        Y,
        1.5,
    ),
    "multivariate": Case(
        bc.MultivariateGaussianPrior,
        {"mu0": dist.Normal(np.zeros(2), 1).to_event(1), "mu1": [1.0, 0.2], "cov": np.eye(2)},
        WIDE,
        Y,
        None,
    ),
    "dirichlet": Case(bc.DirichletPrior, {"alpha": np.eye(3) + 0.5}, P3, Y3, 0.9),
    "conjugate": Case(
        bc.NormalInverseGammaPrior,
        {"mean0": -1.0, "mean1": 1.0, "kappa0": 1.0, "kappa1": 2.0, "alpha": 2.0, "beta": 2.0},
        REAL,
        Y,
        None,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_arrays_that_look_odd(case: Case) -> None:
    expected = judge(case.predict, case.x, case.y, case.x)
    for kind, value in valid_arrays(case.x).items():
        for arguments in ((value, case.y, case.x), (case.x, case.y, value)):
            result = judge(case.predict, *arguments)
            assert isinstance(result, np.ndarray), (kind, result)
            np.testing.assert_allclose(result, expected, atol=1e-5, err_msg=kind)
    for kind, value in valid_arrays(case.y).items():
        result = judge(case.predict, case.x, value, case.x)
        assert isinstance(result, np.ndarray), (kind, result)
        np.testing.assert_array_equal(result, expected, err_msg=kind)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_wrong_arrays(case: Case) -> None:
    bad = invalid_arrays(case.x)
    if case.outside is not None:
        bad["outside"] = np.where(
            np.arange(case.x.size).reshape(case.x.shape) == 3, case.outside, case.x
        )
    labels = {**invalid_arrays(case.y), "another": case.y + 7}
    lengths = "short", "long", "empty", "nothing", "a number"
    calls = [(kind, (value, case.y, case.x)) for kind, value in bad.items()]
    calls += [(kind, (case.x, value, case.x)) for kind, value in labels.items()]
    points = {kind: value for kind, value in bad.items() if kind not in lengths}
    calls += [(kind, (case.x, case.y, value)) for kind, value in points.items()]
    for kind, arguments in calls:
        error = judge(case.predict, *arguments)
        assert isinstance(error, Exception), (kind, error)
        assert re.search(NAMED, str(error)), (kind, error)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_wrong_parameters(case: Case) -> None:
    for name in case.parameters:
        values = {**NO_NUMBER, "nothing": None}
        if name in POSITIVE:
            values |= {"negative": -1.0, "zero": 0.0}
        for kind, value in values.items():

            def call(value: Any, name: str = name) -> Array:
                return case.predict(case.x, case.y, case.x, **{name: value})

            error = judge(call, value)
            assert isinstance(error, Exception), (name, kind, error)
            assert re.search(rf"{name}|{NAMED}|parameter", str(error)), (name, kind, error)


FAR = [1e3, 1e10, 1e20, 1e37, 1e160, 1e300]
INTEGRATORS = {
    "gaussian": ("montecarlo", "sobol", "importance", "quadrature", "nuts"),
    "multivariate": ("montecarlo", "importance"),
    "conjugate": ("closed_form", "quadrature"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INTEGRATORS)
def test_points_far_away(name: str) -> None:
    case = CASES[name]
    at = np.reshape([[size, -size] for size in FAR], (-1, 1))
    at = at[:, 0] if case.x.ndim == 1 else np.tile(at, case.x.shape[1])
    for integrator in INTEGRATORS[name]:
        keywords = {"integrator": integrator}
        # Quadrature searches anew at every point in the tails.
        chosen = at[6:10] if (name, integrator) == ("conjugate", "quadrature") else at

        def call(at: Array, keywords: dict[str, Any] = keywords) -> Array:
            return case.predict(case.x, case.y, at, options=keywords)

        result = judge(call, chosen)
        assert isinstance(result, np.ndarray), (integrator, result)
        assert ((result >= 0) & (result <= 1)).all(), (integrator, result)


@pytest.mark.slow
@given(
    scores=st.lists(st.floats(-1e37, 1e37), min_size=12, max_size=12),
    at=st.lists(st.floats(-1e37, 1e37), min_size=12, max_size=12),
    name=st.sampled_from(["gaussian", "conjugate"]),
)
@settings(max_examples=60)
def test_any_scores_have_probabilities(scores: list[float], at: list[float], name: str) -> None:
    case = CASES[name]
    result = judge(case.predict, np.array(scores), case.y, np.array(at))
    assert isinstance(result, np.ndarray), result
    assert ((result >= 0) & (result <= 1)).all(), result
