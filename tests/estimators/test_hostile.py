"""Hostile data: every calibrator gives probabilities, never NaN, an exception or a bare warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from tests.estimators.test_contract import (
    CASES,
    DEFAULTS,
    PARAMETRIC,
    Case,
    describe,
    each,
    each_default,
    each_parametric,
)

NEXT = float(np.nextafter(1, 0))
EXTREME = {
    "probs": [0.0, 1.0, 1e-300, 5e-324, 1e-16, 1e-8, NEXT, 1 - 1e-15, 0.5, 0.3],
    "logits": [0.0, 1e6, -1e6, 1e300, -1e300, 745.0, -745.0, 1e-300, 1.5, -0.5],
}
EXTREME["scores"] = EXTREME["logits"]
ORDINARY = {
    "probs": st.floats(0, 1),
    "logits": st.floats(-40, 40),
    "scores": st.floats(-100, 100, width=32),
}
WEIGHTS = st.sampled_from([0.0, 1e-12, 1.0, 1.0, 2.0, 1e12])


def kinds(case: Case) -> list[str]:
    """Return the inputs that a map takes."""
    return ["probs", "logits"] + ["scores"] * (case.domain in ("real", "any"))


@st.composite
def data_sets(draw: st.DrawFn, case: Case) -> tuple[str, list[tuple[float, int, float]]]:
    inputs = draw(st.sampled_from(kinds(case)))
    score = st.one_of(st.sampled_from(EXTREME[inputs]), ORDINARY[inputs])
    rows = draw(st.lists(st.tuples(score, st.integers(0, 1), WEIGHTS), min_size=1, max_size=12))
    if all(weight == 0 for *_, weight in rows):
        rows = [(z, y, 1.0) for z, y, _ in rows]
    return inputs, rows


def check(case: Case, inputs: str, rows: list[tuple[float, int, float]], **options: Any) -> Any:
    scores, y, weights = np.array(rows, float).T
    at = np.sort(np.concatenate([scores, EXTREME[inputs]]))
    with warnings.catch_warnings():
        # There may be no finite optimum; anything else would be an error here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = case(inputs=inputs, classes=(0, 1), **options).fit(scores, y.astype(int), weights)
    assert fitted.status_ in ("converged", "unbounded", "limit")
    probs = fitted.predict_proba(at)
    assert np.isfinite(probs).all() and ((probs >= 0) & (probs <= 1)).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)
    if case.estimator._method.monotone:
        assert (np.diff(probs[:, 1]) >= -1e-12).all()
    return fitted, at


@each
@settings(max_examples=20)
@given(data=st.data())
def test_any_data_give_probabilities(case: Case, data: st.DataObject) -> None:
    check(case, *data.draw(data_sets(case)))


@each_parametric
@settings(max_examples=20)
@given(data=st.data())
def test_any_data_give_a_posterior(case: Case, data: st.DataObject) -> None:
    options = {"inference": "laplace", "num_samples": 100, "random_state": 0}
    fitted, at = check(case, *data.draw(data_sets(case)), **options)
    lower, upper = fitted.predict_interval(at)
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()


ONE_AND_ONE = (np.array([0.2, 0.7]), np.array([0, 1]))
SETS: dict[str, tuple[str, Any, Any, Any]] = {
    "two rows": ("probs", *ONE_AND_ONE, [1, 1]),
    "two rows, reversed": ("probs", ONE_AND_ONE[0][::-1], ONE_AND_ONE[1], [1, 1]),
    "two equal rows": ("probs", [0.4, 0.4], [0, 1], [1, 1]),
    "all at zero": ("probs", [0.0] * 4, [0, 1, 0, 0], [1] * 4),
    "all at one": ("probs", [1.0] * 4, [0, 1, 0, 0], [1] * 4),
    "zero and one": ("probs", [0.0, 0.0, 1.0, 1.0], [0, 1, 0, 1], [1] * 4),
    "wrong at the ends": ("probs", [0.0, 0.0, 1.0, 1.0, 0.5], [1, 1, 0, 0, 1], [1] * 5),
    "next to one": ("probs", [NEXT, 1 - 1e-15, 1.0, 0.4, NEXT], [0, 1, 1, 0, 1], [1] * 5),
    "next to zero": ("probs", [5e-324, 1e-300, 1e-16, 0.0, 0.6], [0, 1, 1, 0, 1], [1] * 5),
    "two next to zero": ("probs", [0.0, 1e-300], [1, 0], [1, 2]),
    "crowded": ("probs", 0.5 + np.arange(20) * 2.0**-53, [0, 1] * 10, [1] * 20),
    "far logits": ("logits", [-1e6, 1e6, 3.0, -2.0, 1e6], [0, 1, 1, 0, 0], [1] * 5),
    "farther logits": ("logits", [-1e300, 1e300, 3.0, -2.0, 1e300], [0, 1, 1, 0, 0], [1] * 5),
    "one far logit": ("logits", [1e300], [0], [1]),
    "tiny weights": ("probs", [0.1, 0.4, 0.6, 0.9], [0, 1, 0, 1], [1e-12] * 4),
    "huge weights": ("probs", [0.1, 0.4, 0.6, 0.9], [0, 1, 0, 1], [1e12] * 4),
    "weights of all sizes": ("probs", [0.1, 0.4, 0.6, 0.9], [0, 1, 0, 1], [1e-12, 1e12, 1, 1]),
    "all weight on one row": ("probs", [0.1, 0.4, 0.6], [0, 1, 0], [0, 1, 0]),
    "a rare score": ("probs", [0.1] + [0.9] * 600, [0] + [0, 1] * 300, [1] * 601),
    "rare by weight": ("probs", [0.1, 0.4, 0.9], [0, 1, 0], [1, 1000, 1]),
    "only duplicates": ("probs", [0.3, 0.3, 0.8, 0.8] * 5, [0, 1, 1, 0] * 5, [1] * 20),
}


@each
@pytest.mark.parametrize("name", SETS)
def test_these_data_give_probabilities(case: Case, name: str) -> None:
    inputs, scores, y, weights = SETS[name]
    check(case, inputs, list(zip(scores, y, weights, strict=True)))


@pytest.mark.parametrize("case", [case for case in CASES if "scores" in kinds(case)], ids=describe)
def test_far_raw_scores_give_probabilities(case: Case) -> None:
    rows = [(-1e300, 0, 1.0), (1e300, 1, 1.0), (0.0, 1, 1.0), (1e300, 0, 1.0), (7.0, 1, 1.0)]
    check(case, "scores", rows)


@each_default
def test_a_million_equal_scores_have_their_share(case: Case) -> None:
    y = np.arange(1_000_000) % 4 == 0
    fitted = case().fit(np.full(1_000_000, 0.3), y)
    np.testing.assert_allclose(fitted.predict_proba([0.3]), [[0.75, 0.25]], atol=1e-5)


def test_all_of_these_are_tested() -> None:
    assert len(CASES) > len(DEFAULTS) > len(PARAMETRIC) >= 5
