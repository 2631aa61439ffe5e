"""Scores with few values: what is learned, chosen by cross-validation and reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn.dummy import DummyClassifier
from sklearn.naive_bayes import BernoulliNB
from sklearn.tree import DecisionTreeClassifier

import bayescal as bc
from tests.calibrators.cases import DEFAULTS, Case, each
from tests.calibrators.discrete import (
    BINARY,
    SEVERAL,
    Discrete,
    add_rounding_errors,
    binary,
    several,
)


def check(calibrator: Any, data: Discrete, rows: Any, tolerance: float = 0.01) -> None:
    """Compare with the best map, and the report with the loss on new rows."""
    calibrator.set_params(classes=tuple(range(data.truth.shape[1])))
    calibrator.fit(*rows)
    loss = data.loss(calibrator.predict_proba(data.levels))
    assert loss <= data.best + tolerance
    report = calibrator.report_
    if not report.in_sample:
        assert abs(report.log_loss - loss) < 3 * report.log_loss_error + 1e-3


@pytest.mark.parametrize("name", BINARY)
@each(DEFAULTS)
def test_two_classes(case: Case, name: str) -> None:
    data = binary(name)
    check(case(), data, data.draw(4000, 1))


@pytest.mark.parametrize("name", SEVERAL)
@each([case for case in DEFAULTS if not case.binary])
def test_several_classes(case: Case, name: str) -> None:
    data = several(name)
    check(case(), data, data.draw(4000, 1))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@each([case for case in DEFAULTS if case.binary])
def test_scores_that_are_equal_up_to_rounding_are_equal(case: Case, dtype: type) -> None:
    rng, n = np.random.default_rng(0), 300
    least = 0 if dtype == np.float64 else 1  # one step of single precision next to zero matters
    p = (rng.integers(least, 101 - least, n) / 100).astype(dtype)
    y = (rng.random(n) < (0.1 + 0.8 * p) ** 1.5).astype(int)
    q, expected = add_rounding_errors(p, rng), case().fit(p, y).predict_proba(p)
    half = n // 2
    for result in (
        case().fit(q, y),
        case().fit(bc.Blocks([(q[:half], y[:half]), (q[half:], y[half:])])),
    ):
        for scores in (p, add_rounding_errors(p, rng)):
            tolerance = 1e-7 if dtype == np.float64 else 5e-6
            np.testing.assert_allclose(result.predict_proba(scores), expected, atol=tolerance)


def test_scores_that_differ_by_more_than_rounding_are_distinct() -> None:
    """Check scores as close as floating point allows, and scores near zero."""
    y = np.array([0, 1, 1, 0, 1, 1])
    for p in (
        0.4 + np.arange(6) * 2.0**-49,
        np.array([1e-300, 1e-200, 1e-99, 1e-50, 1e-20, 2e-20]),
        -np.array([1e-20, 1e-30, 1e-31, 1e-40, 1e-50, 0]),
        np.array([1e3, 1e3 + 1e-11, 1e14, 1e14 + 1, 1e20, 2e20]),
        (0.5 + np.arange(6) * 2.0**-24).astype(np.float32),
        np.array([1e-30, 2e-30, 3e-20, 1e-10, 1.001e-10, 0.5], np.float32),
        np.array([9e6, 9e6 + 1, 1e7, 1e7 + 2, 1e10, 1e10 + 2]),
    ):
        fitted = bc.Isotonic(inputs="logits").fit(p, y)
        np.testing.assert_allclose(fitted.predict_proba(p)[:, 1], [0, 2 / 3, 2 / 3, 2 / 3, 1, 1])


@pytest.mark.parametrize("data", [*map(binary, BINARY), *map(several, SEVERAL)])
def test_the_default(data: Discrete) -> None:
    check(bc.Auto(), data, data.draw(4000, 2), 0.003)


@pytest.mark.parametrize("data", [*map(binary, BINARY), *map(several, SEVERAL)])
def test_the_default_with_weights(data: Discrete) -> None:
    """Check that weighted cells equal repeated rows, with weights as counts or in any unit."""
    cells, y = np.divmod(np.arange(data.truth.size), data.truth.shape[1])
    counts = np.round(4000 * data.shares[cells] * data.truth.ravel())
    used = counts > 0
    rows = data.levels[cells][used], y[used]
    check(bc.Auto(), data, (*rows, counts[used]), 0.003)
    repeated = [np.repeat(values, counts[used].astype(int), axis=0) for values in rows]
    probs = [
        bc.Auto(classes=range(data.truth.shape[1])).fit(*arguments).predict_proba(data.levels)
        for arguments in ((*rows, counts[used]), repeated)
    ]
    np.testing.assert_allclose(*probs, atol=1e-9)


def shares_of_cells() -> Discrete:
    """Return one-hot scores with labels that no temperature explains."""
    truth = np.array([[0.93, 0.05, 0.02], [0.4, 0.55, 0.05], [0.5, 0.1, 0.4]])
    return Discrete(np.eye(3), np.array([0.6, 0.3, 0.1]), truth)


@pytest.mark.parametrize("n", [300, 30_000])
def test_one_hot_scores_of_a_stack(n: int) -> None:
    data = shares_of_cells()
    check(bc.StackedScaling(), data, data.draw(n, 0), 0.02 if n == 300 else 0.002)


def test_rows_that_are_permutations_of_each_other_stand_for_themselves_alone() -> None:
    """Check that the curvature uses all rows: a single fit ends near the label frequencies."""
    data = shares_of_cells()
    check(bc.Auto(mode="single"), data, data.draw(30_000, 0), 0.002)


CELLS = np.array([[a, b, c] for a in (0.0, 1.0) for b in (0.0, 1.0) for c in (0.0, 1.0)])


#: The labels depend on two of three binary features.
REGRESSION = Discrete(
    CELLS,
    np.full(8, 1 / 8),
    np.stack([expit(-(CELLS @ [2, 2, 0] - 2.5)), expit(CELLS @ [2, 2, 0] - 2.5)], axis=1),
)


@pytest.mark.parametrize("method", ["isotonic", "beta", "sigmoid", "auto"])
@pytest.mark.parametrize(
    "model", [DummyClassifier(), DecisionTreeClassifier(max_depth=1), BernoulliNB()]
)
def test_what_a_calibrated_classifier_expects(model: Any, method: str) -> None:
    x, y = REGRESSION.draw(3000, 2)
    new, labels = REGRESSION.draw(20_000, 3)
    fitted = bc.CalibratedClassifier(model, method).fit(x, y)
    loss = bc.metrics.log_loss(fitted.predict_proba(new)[:, 1], labels)
    report = fitted.report_
    # New rows have sampling error as well.
    error = np.hypot(report.log_loss_error, 0.5 / np.sqrt(len(labels)))
    assert abs(report.log_loss - loss) < 3 * error


def test_what_auto_expects_of_scores_and_of_several_labels() -> None:
    rng = np.random.default_rng(3)
    level = rng.choice([-2.0, 0.5, 2.0], 4000)
    truth = 1 / (1 + np.exp(-0.6 * level))
    labels = (rng.random((4000, 2)) < truth[:, None]).astype(int)
    best = -np.mean(truth * np.log(truth) + (1 - truth) * np.log(1 - truth))
    one = bc.Auto(inputs="scores").fit(level, labels[:, 0]).report_
    assert abs(one.log_loss - best) < 3 * one.log_loss_error
    p = 1 / (1 + np.exp(-1.5 * level))
    both = bc.Auto().fit(np.c_[p, p], labels).report_
    assert abs(both.log_loss - best) < 3 * both.log_loss_error and both.helps
