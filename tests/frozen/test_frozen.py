"""Predictions of calibrators equal the recorded ones, and every public calibrator has a case."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bayescal as bc
from tests.calibrators.cases import all_calibrators
from tests.frozen import calibrators, combined
from tests.frozen.case import Case, compare
from tests.frozen.cases import all_cases, check, each, read
from tests.frozen.metrics import OPTIONS, OTHERS

CASES = [case.name for case in all_cases()]


@each([*calibrators.cases(), *combined.cases()])
def test_numbers_are_the_recorded_ones(case: Case) -> None:
    check(case)


def test_recorded_cases_are_those_that_are_computed() -> None:
    assert len(set(CASES)) == len(CASES)
    assert sorted(read()["cases"]) == CASES


def test_every_calibrator_has_a_case() -> None:
    names = {cls.__name__ for cls in all_calibrators()} | {
        "Auto",
        "Average",
        "Composition",
        "MultiLabel",
    }
    names |= {"CalibratedClassifier", "LogisticRegression", "Multicalibration"}
    assert {name for name in names if not any(case.startswith(name) for case in CASES)} == set()


def test_every_metric_has_a_case() -> None:
    functions = {name for name in bc.metrics.__all__ if name.islower()} | {"Accumulator"}
    assert functions == {*OPTIONS, *OTHERS}


def _changed(results: Any) -> Iterator[Any]:
    """Yield results with one number or text changed."""
    if isinstance(results, dict):
        for name, part in results.items():
            yield from ({**results, name: other} for other in _changed(part))
    elif isinstance(results, str):
        yield results + "?"
    elif results is not None:
        numbers = np.array(results, float)
        numbers.flat[-1] = numbers.flat[-1] * (1 + 1e-8) + 1e-11
        yield numbers.tolist()


def test_a_change_of_any_number_is_seen() -> None:
    results = {"a": [[0.5, 0.25], [1e-3, 3.0]], "b": {"c": 0.0, "d": "converged", "e": None}}
    compare(copy.deepcopy(results), results, 1e-9)
    changed = list(_changed(results))
    assert len(changed) == 3
    for other in [*changed, {"a": results["a"]}, {**results, "b": {**results["b"], "e": 1.0}}]:
        with pytest.raises(AssertionError):
            compare(other, results, 1e-9)
