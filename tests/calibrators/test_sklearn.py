"""Run scikit-learn's estimator checks for every calibrator.

The checks pass tables with several features, but calibrators take one score. They get one column,
which separates the classes of the checks' data, as log odds.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import validate_data

from tests.calibrators.cases import all_calibrators


class OneColumn:
    """Validate the whole table, and calibrate its negated last column."""

    def _check_rows(self, scores: Any, reset: bool) -> np.ndarray:
        rows: Any = validate_data(self, scores, reset=reset, dtype="numeric", ensure_min_samples=1)
        return -rows[:, -1:].astype(float)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyright: ignore[reportAttributeAccessIssue]
        tags.classifier_tags.multi_class = False
        return tags


def of_one_column(parent: Any) -> type:
    subclass = type(parent.__name__, (OneColumn, parent), {"__module__": __name__})
    return dataclasses.dataclass(eq=False, repr=False)(subclass)


NAMES = sorted(cls.__name__ for cls in all_calibrators())
# Pickle looks up estimators at the top level of this module.
globals().update({cls.__name__: of_one_column(cls) for cls in all_calibrators()})

#: The only checks that may fail, with reasons.
EXPECTED = {
    "Decision": {
        "check_sample_weight_equivalence_on_dense_data": "searches end a little before the optimum"
    },
}
#: Options that replace long searches, about which the checks say nothing more.
QUICK: dict[str, dict[str, Any]] = {
    "Kernel": {"bandwidth": 0.1},
    "OrderPreserving": {"hidden": (2, 2)},
}
#: One binary and one multi-class calibrator.
FAST = ("Logistic", "Isotonic", "Temperature")


@pytest.mark.all_cases
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in NAMES]
)
def test_checks_of_scikit_learn(name: str) -> None:
    with warnings.catch_warnings():
        # Some of the checks' data sets have no finite optimum.
        warnings.simplefilter("ignore", ConvergenceWarning)
        results = check_estimator(
            globals()[name](inputs="logits", **QUICK.get(name, {})),
            expected_failed_checks=EXPECTED.get(name),
            on_fail=None,
            on_skip=None,
        )
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
    passed = {r["check_name"] for r in results if r["status"] == "passed"}
    assert {"check_classifiers_train", "check_fit_idempotent", "check_n_features_in"} <= passed
    assert len(passed) > 45, [r["check_name"] for r in results if r["status"] != "passed"]
