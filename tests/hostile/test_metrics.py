"""Every metric, test and interval with unusual and with invalid arrays."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bayescal import metrics
from bayescal.metrics.registry import METRICS
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

COSTS = ["decision_cost"]
TRUTH = (P + 0.5) / 2
MANY = np.stack([Y, 1 - Y, Y * (P > 0.5)], axis=1)


class Case:
    """A function of probabilities, labels and weights, its valid arguments, and tables."""

    def __init__(self, function: Callable[..., Any], kind: str) -> None:
        self.function, self.k = function, 2 if kind == "binary" else 3
        y = {"binary": Y, "multiclass": Y3, "multilabel": MANY, "truth": TRUTH}[kind]
        self.k = 2 if kind == "truth" else self.k
        self.arguments = (P if self.k == 2 else P3), y, W
        good, bad = scores(self.k)
        labels = (
            valid_arrays(y),
            {**invalid_arrays(y), "another": y + 7 * (np.arange(y.size) == 3).reshape(y.shape)},
        )
        sums = ("other sums", "one column", "no column") if kind == "multilabel" else ()
        bad = {name: value for name, value in bad.items() if name not in sums}
        self.tables = (good, bad), labels, weights()

    def call(self, *arguments: Any) -> Any:
        return self.function(*arguments[:2], weights=arguments[2])

    def with_one(self, position: int, value: Any) -> list[Any]:
        return [*self.arguments[:position], value, *self.arguments[position + 1 :]]


def _by_group(probs: Any, y: Any, **options: Any) -> Any:
    groups = np.stack([np.arange(len(Y)) % 2, np.ones(len(Y))], axis=1)
    return metrics.multicalibration_error(probs, y, groups, **options)


def cases() -> list[Any]:
    result = {}
    for name, entry in METRICS.items():
        for kind in entry.shapes:
            actual_kind = "truth" if name == "true_calibration_error" else kind
            more = (
                {"costs": 1 - np.eye(2 if actual_kind == "binary" else 3)} if name in COSTS else {}
            )
            result[f"{name}, {actual_kind}"] = case = Case(
                partial(entry.function, **more), actual_kind
            )
            if name in COSTS:
                del case.tables[1][1]["nothing"]  # Labels are optional.
    for kind in ("binary", "multiclass"):
        result[f"report, {kind}"] = Case(partial(metrics.report, replicates=20), kind)
        for function in (metrics.spiegelhalter_test, metrics.reliability_curve):
            result[f"{function.__name__}, {kind}"] = Case(function, kind)
        result[f"multicalibration_error, {kind}"] = Case(_by_group, kind)
        for name in ("ece", "debiased_ece", "log_loss"):
            for other in (metrics.interval, metrics.bootstrap, metrics.consistency_test):
                if other is metrics.consistency_test and name == "log_loss":
                    continue
                many = "resamples" if other is metrics.consistency_test else "replicates"
                call = partial(other, name, **{many: 20})
                result[f"{other.__name__} of {name}, {kind}"] = Case(call, kind)
    return [pytest.param(case, id=name) for name, case in result.items()]


def collect_numbers(value: Any) -> np.ndarray:
    """Collect all numbers in a result."""
    if isinstance(value, metrics.MetricReport):
        value = [list(intervals.values()) for intervals in value.intervals.values()]
    if isinstance(value, list | tuple):
        parts = [collect_numbers(part) for part in value]
        return np.concatenate(parts) if parts else np.zeros(0)
    if isinstance(value, str) or value is None:
        return np.zeros(0)
    return np.ravel(np.asarray(value, float))


@pytest.mark.slow
@pytest.mark.parametrize("case", cases())
def test_arrays_that_look_odd(case: Case) -> None:
    expected = collect_numbers(case.call(*case.arguments))
    for position, (good, _) in enumerate(case.tables):
        for kind, value in good.items():
            result = judge(case.call, *case.with_one(position, value))
            assert not isinstance(result, Exception), (position, kind, result)
            if kind in ("huge", "tiny", "some zero"):
                assert not np.isnan(collect_numbers(result)).any(), (position, kind, result)
            else:
                atol = 1e-6 if kind != "half" else 1e-3
                np.testing.assert_allclose(collect_numbers(result), expected, rtol=1e-6, atol=atol)


@pytest.mark.slow
@pytest.mark.parametrize("case", cases())
def test_wrong_arrays(case: Case) -> None:
    for position, (_, table) in enumerate(case.tables):
        for kind, value in table.items():
            if kind == "sparse" and position == 1 and np.ndim(case.arguments[1]) == 2:
                continue  # scikit-learn's format for multi-label probabilities
            error = judge(case.call, *case.with_one(position, value))
            assert isinstance(error, Exception), (position, kind, error)
            assert re.search(NAMED, str(error)), (position, kind, error)


@st.composite
def any_rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw probabilities near the ends or tied, labels, and weights of all sizes."""
    ends = [0.0, 5e-324, 1e-300, 1e-16, 0.1, 1 / 3, 0.5, 1 - 2.0**-53, 1.0]
    p = st.one_of(st.sampled_from(ends), st.floats(0, 1))
    w = st.sampled_from([1e-300, 1e-12, 0.5, 1.0, 3.0, 1e5, 1e300])
    rows = draw(st.lists(st.tuples(p, st.integers(0, 1), w), min_size=2, max_size=15))
    probs, y, weights = (np.array(column) for column in zip(*rows, strict=True))
    return probs, y, weights if draw(st.booleans()) else np.ones(len(y))


@pytest.mark.slow
@given(rows=any_rows(), k=st.integers(2, 3))
@settings(max_examples=4, phases=(Phase.explicit, Phase.generate))
def test_any_probabilities_have_finite_metrics(
    rows: tuple[np.ndarray, np.ndarray, np.ndarray], k: int
) -> None:
    p, y, w = rows
    probs = p if k == 2 else np.stack([(1 - p) / 2, p, (1 - p) / 2], axis=1)
    for name, entry in METRICS.items():
        if not entry.labels or entry.shapes == ("multilabel",):
            continue
        if k == 3 and "multiclass" not in entry.shapes:
            continue
        result = judge(partial(entry.function, weights=w), probs, y)
        assert isinstance(result, float) and np.isfinite(result), (name, result)
        gap = judge(partial(metrics.difference, name, replicates=9, weights=w), probs, probs, y)
        assert gap.estimate == 0 and gap.p_value == 1, (name, gap)
        interval = judge(partial(metrics.interval, name, replicates=9, weights=w), probs, y)
        assert interval.lower <= interval.estimate <= interval.upper, (name, interval)
