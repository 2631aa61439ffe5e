"""Every calibrator and classifier with unusual and with invalid arrays."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import bayescal as bc
from tests.calibrators.cases import all_calibrators
from tests.hostile.strange import (
    NAMED,
    P3,
    Y3,
    P,
    W,
    Y,
    invalid_arrays,
    judge,
    scores,
    valid_arrays,
    weights,
)

FEW: dict[str, Any] = {"trees": 5, "hidden": (2, 2), "steps": 3, "random_state": 0}


class Case:
    """An estimator, its valid arguments (scores or features, labels, weights), and tables."""

    def __init__(self, estimator: Any, k: int, features: bool = False) -> None:
        known = estimator.get_params()
        self.estimator = estimator.set_params(**{n: FEW[n] for n in FEW if n in known})
        self.arguments = (P if k == 2 else P3), (Y if k == 2 else Y3), W
        tables = scores(k)
        if features:
            self.arguments = (P3, *self.arguments[1:])
            bad = {**invalid_arrays(P3), "one row": P3[0]}
            if isinstance(estimator, bc.CalibratedClassifier):
                # Only the classifier can decide whether these are valid.
                bad = {
                    kind: value
                    for kind, value in bad.items()
                    if kind not in ("dates", "text", "a dict", "sparse")
                }
            tables = valid_arrays(P3), bad
        self.tables = tables, label_arrays(self.arguments[1]), weights()

    def fit(self, *arguments: Any) -> Any:
        # Some networks find no optimum for twelve rows.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return clone(self.estimator).fit(*arguments)

    def probs(self, *arguments: Any) -> np.ndarray:
        return self.fit(*arguments).predict_proba(arguments[0])

    def with_one(self, position: int, value: Any) -> list[Any]:
        return [*self.arguments[:position], value, *self.arguments[position + 1 :]]


def label_arrays(y: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    good, bad = valid_arrays(y), invalid_arrays(y)
    # These are valid labels of a single class.
    for kind in ("dates", "text", "complex"):
        del bad[kind]
    names = np.array(["a", "b", "c"])[y]
    return {**good, "names": names, "names as objects": names.astype(object)}, bad


def cases() -> list[Any]:
    result = [Case(cls(), 2 if cls.binary else 3) for cls in all_calibrators()]
    result += [Case(bc.Auto(), 2), Case(bc.Auto(), 3)]
    result += [Case(bc.compose(bc.Temperature(), bc.Histogram()), 2)]
    result += [Case(bc.Average([bc.Beta(), bc.Isotonic()]), 2)]
    result += [Case(bc.LogisticRegression(), 2, features=True)]
    result += [Case(bc.CalibratedClassifier(LogisticRegression(), cv=2), 2, features=True)]
    return [pytest.param(case, id=type(case.estimator).__name__) for case in result]


@pytest.mark.slow
@pytest.mark.parametrize("case", cases())
def test_arrays_that_look_odd(case: Case) -> None:
    expected = case.probs(*case.arguments)
    for position, (good, _) in enumerate(case.tables):
        for kind, value in good.items():
            result = judge(case.probs, *case.with_one(position, value))
            assert isinstance(result, np.ndarray), (position, kind, result)
            if kind in ("huge", "tiny", "some zero"):
                assert np.isfinite(result).all()
            else:
                np.testing.assert_allclose(
                    result, expected, atol=1e-6, err_msg=f"{position} {kind}"
                )


def few_levels(scores: np.ndarray) -> dict[str, np.ndarray]:
    """Return scores (n,) or (n, 3) with few values, all of them exact in half precision."""
    level = np.arange(len(scores)) % 3
    if scores.ndim == 1:
        return {
            "constant": np.full(len(scores), 0.25),
            "zeros and ones": np.array([0.0, 1.0, 1.0])[level],
            "quarters": np.array([0.25, 0.5, 0.75])[level],
        }
    return {
        "constant": np.tile([0.25, 0.25, 0.5], (len(scores), 1)),
        "one-hot": np.eye(3)[level],
        "quarters": np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0, 0.25, 0.75]])[level],
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", cases())
def test_few_levels_that_look_odd(case: Case) -> None:
    for start, (name, given) in enumerate(few_levels(case.arguments[0]).items()):
        expected = case.probs(given, *case.arguments[1:])
        assert np.isfinite(expected).all(), name
        for kind, value in [*valid_arrays(given).items()][start::3]:
            result = judge(case.probs, value, *case.arguments[1:])
            assert isinstance(result, np.ndarray), (name, kind, result)
            np.testing.assert_allclose(result, expected, atol=1e-6, err_msg=f"{name} {kind}")


@pytest.mark.slow
@pytest.mark.parametrize("case", cases())
def test_wrong_arrays(case: Case) -> None:
    result = [
        (position, kind, judge(case.fit, *case.with_one(position, value)))
        for position, (_, table) in enumerate(case.tables)
        for kind, value in table.items()
    ]
    fitted = case.fit(*case.arguments)
    lengths = "short", "long", "empty"
    table = {kind: array for kind, array in case.tables[0][1].items() if kind not in lengths}
    result += [(3, kind, judge(fitted.predict_proba, value)) for kind, value in table.items()]
    for position, kind, error in result:
        assert isinstance(error, Exception), (position, kind, error)
        assert re.search(NAMED, str(error)), (position, kind, error)
