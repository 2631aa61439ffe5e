"""Every calibrator returns probabilities on difficult data, without NaN or exceptions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import bayescal as bc
from bayescal.calibrators.base.parametric import ParametricCalibrator
from tests.calibrators.cases import CASES, DEFAULTS, Array, Case, each, make_data

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
PARAMETRIC = [case for case in DEFAULTS if issubclass(case.calibrator, ParametricCalibrator)]
#: Excludes the case that compiles anew for every number of rows.
QUICK = [case for case in CASES if case.name != "Logistic(smoothing=instance)"]


def inputs_of(case: Case) -> list[str]:
    return ["probs", "logits"] + ["scores"] * (case().domain in ("real", "order"))


def scores_of(case: Case, inputs: str, values: Any) -> Array:
    """Return binary scores, or scores of three classes whose first one is given."""
    one = np.asarray(values, float)
    if case.binary:
        return one
    if inputs == "probs":
        return np.stack([one, (1 - one) / 2, (1 - one) / 2], axis=1)
    return np.stack([one, np.zeros_like(one), -one], axis=1)


def check(case: Case, inputs: str, rows: list[tuple[float, int, float]], **options: Any) -> Any:
    values, y, weights = np.array(rows, float).T
    k = 2 if case.binary else 3
    at = scores_of(case, inputs, np.sort(np.concatenate([values, EXTREME[inputs]])))
    with warnings.catch_warnings():
        # There may be no finite optimum; any other warning is an error here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = case(inputs=inputs, classes=range(k), **options)
        fitted.fit(scores_of(case, inputs, values), y.astype(int), weights)
    assert fitted.status_ in ("converged", "unbounded", "limit")
    probs = fitted.predict_proba(at)
    assert np.isfinite(probs).all() and ((probs >= 0) & (probs <= 1)).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)
    if case.binary and case.calibrator.monotone:
        assert (np.diff(probs[:, 1]) >= -1e-12).all()
    return fitted, at


@st.composite
def data_sets(draw: st.DrawFn, case: Case) -> tuple[str, list[tuple[float, int, float]]]:
    inputs = draw(st.sampled_from(inputs_of(case)))
    score = st.one_of(st.sampled_from(EXTREME[inputs]), ORDINARY[inputs])
    label = st.integers(0, 1 if case.binary else 2)
    rows = draw(st.lists(st.tuples(score, label, WEIGHTS), min_size=1, max_size=12))
    if all(weight == 0 for *_, weight in rows):
        rows = [(z, y, 1.0) for z, y, _ in rows]
    return inputs, rows


@pytest.mark.slow
# A fit of the default network takes a second.
@each([case for case in QUICK if case.name != "OrderPreserving()"])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_data_give_probabilities(case: Case, data: st.DataObject) -> None:
    check(case, *data.draw(data_sets(case)))


@pytest.mark.slow
@each([case for case in PARAMETRIC if case.binary])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
# Raised where the posterior is so far from normal that few draws are effective.
@pytest.mark.filterwarnings("ignore::bayescal.SamplingWarning")
def test_any_data_give_a_posterior(case: Case, data: st.DataObject) -> None:
    options = {"inference": "laplace", "num_samples": 100}
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


def check_sets(case: Case, names: Iterable[str]) -> None:
    for name in names:
        inputs, scores, y, weights = SETS[name]
        try:
            check(case, inputs, list(zip(scores, y, weights, strict=True)))
        except Exception as error:
            error.add_note(name)
            raise


@each(QUICK)
def test_these_data_give_probabilities(case: Case) -> None:
    """Check all data sets with default options, and a third of them with every other option."""
    check_sets(case, [*SETS][QUICK.index(case) % 3 :: 3] if case.options else SETS)


@pytest.mark.slow
@each([case for case in QUICK if case.options])
def test_these_data_give_probabilities_with_options(case: Case) -> None:
    check_sets(case, [*SETS][(QUICK.index(case) + 1) % 3 :: 3])


@each([case for case in QUICK if case().domain in ("real", "order")])
@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1.0, 1e12, 1e300])
def test_scores_of_any_size(case: Case, scale: float) -> None:
    scores = scale * np.array([-1.0, -0.5, 0.1, 0.4, 0.7, 1.0])
    check(case, "scores", list(zip(scores, [0, 0, 1, 0, 1, 1], [1.0] * 6, strict=True)))


@pytest.mark.slow
@each(PARAMETRIC)
@pytest.mark.parametrize("size", [1e-300, 1e-5, 1e20, 1e100, 1e200, 1e300])
def test_posteriors_of_weights_of_any_size(case: Case, size: float) -> None:
    rng = np.random.default_rng(0)
    p, y = rng.uniform(0.02, 0.98, 60), np.arange(60) % (2 if case.binary else 3)
    fitted, at = check(
        case, "probs", list(zip(p, y, np.full(60, size), strict=True)),
        inference="laplace", num_samples=50,
    )  # fmt: skip
    lower, upper = fitted.predict_interval(at)
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()


#: Short searches of calibrators whose other cases are marked as slow.
SHORT = [
    Case(bc.Decision, {"steps": 3}),
    Case(bc.Decision, {"decisions": 3, "steps": 2, "partition": "hard"}),
    Case(bc.Forest, {"bins": 6, "trees": 5, "assumption": "labels"}),
    Case(bc.Forest, {"trees": 5}),
    Case(bc.Kernel, {"bandwidth": 0.05}),
    Case(bc.Kernel, {"kernel": "rbf", "assumption": "labels"}),
    Case(bc.OrderPreserving, {"hidden": (3, 2)}),
]
each_short = pytest.mark.parametrize("case", SHORT, ids=lambda case: case.name)


@each_short
def test_short_searches_give_probabilities(case: Case) -> None:
    check_sets(case, [*SETS][:: 20 if case.calibrator is bc.OrderPreserving else 3])


@each_short
def test_short_searches_know_no_order_and_weights_are_repetitions(case: Case) -> None:
    p, y, _, new = make_data(case)
    rng = np.random.default_rng(2)
    counts, order = rng.integers(0, 4, len(p)), rng.permutation(3 * len(p))
    rows = np.repeat(np.arange(len(p)), counts)
    rows = rows[order[order < len(rows)]]
    expected = case().fit(p, y, counts).predict_proba(new)
    np.testing.assert_allclose(case().fit(p[rows], y[rows]).predict_proba(new), expected, atol=1e-5)


@each([case for case in DEFAULTS if not case.binary])
def test_many_classes_that_scores_do_not_tell_apart(case: Case) -> None:
    for k, y in ((4, [0, 1, 2, 3, 3]), (40, range(12))):
        p = np.full((len(y), k), 1 / k)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            probs = case(classes=range(k)).fit(p, y).predict_proba(p)
        assert (probs > 0).all()
        np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)


@each([case for case in DEFAULTS if case.binary])
def test_a_million_equal_scores_have_their_share(case: Case) -> None:
    y = np.arange(1_000_000) % 4 == 0
    fitted = case().fit(np.full(1_000_000, 0.3), y)
    np.testing.assert_allclose(fitted.predict_proba([0.3]), [[0.75, 0.25]], atol=1e-5)
