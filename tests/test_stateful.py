"""Objects that learn in steps equal those that see all rows at once, for any order of steps.

Hypothesis draws the steps: batches of any size, copies, files, merges, and failing calls.
"""

from __future__ import annotations

import copy
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import bayescal as bc
from bayescal import metrics

RNG = np.random.default_rng(0)
#: Steps take the next few of these rows; scores in tenths are tied, and some are zero or one.
P = RNG.random(600).round(1)
Y = (RNG.random(600) < P).astype(int)
SIZES = st.integers(0, 40)
FEW = settings(max_examples=8, stateful_step_count=12, deadline=None)


class Steps(RuleBasedStateMachine):
    """The rows taken so far, and the object that took them."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.folder = 0, tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "state"

    def next(self, size: int) -> slice:
        part = slice(self.count, min(self.count + size, len(P)))
        self.count = part.stop
        return part

    def teardown(self) -> None:
        self.folder.cleanup()


class MonitorSteps(Steps):
    """A monitor: its copies and saved files continue bit for bit."""

    def __init__(self) -> None:
        super().__init__()
        self.monitor = bc.Monitor()

    @rule(size=SIZES)
    def update(self, size: int) -> None:
        part = self.next(size)
        self.monitor.update(P[part], Y[part])

    @rule(wrong=st.sampled_from([1.5, np.nan, -0.2]))
    def fail(self, wrong: float) -> None:
        before = self.monitor.to_dict()
        with pytest.raises(ValueError, match="probs"):
            self.monitor.update([0.5, wrong], [0, 1])
        assert self.monitor.to_dict() == before

    @rule()
    def save(self) -> None:
        self.monitor.save(self.path)
        self.monitor = bc.Monitor.load(self.path)

    @rule()
    def copy(self) -> None:
        self.monitor = pickle.loads(pickle.dumps(copy.deepcopy(self.monitor)))

    @precondition(lambda self: self.count)
    @invariant()
    def is_one_of_all_rows(self) -> None:
        whole = bc.Monitor()
        whole.update(P[: self.count], Y[: self.count])
        assert self.monitor.alarm_ == whole.alarm_
        assert self.monitor.log_evidence_ == pytest.approx(whole.log_evidence_, rel=1e-9, abs=1e-9)


class AccumulatorSteps(Steps):
    """Sums of metrics: parts merged in any order equal all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = [self.empty()]

    @staticmethod
    def empty() -> metrics.Accumulator:
        return metrics.Accumulator(["log_loss", "brier_score", ("ece", {"bins": 7})])

    @rule(size=SIZES, index=st.integers(0, 100))
    def update(self, size: int, index: int) -> None:
        part = self.next(size)
        self.parts[index % len(self.parts)].add(P[part], Y[part])

    @rule()
    def split(self) -> None:
        self.parts.append(self.empty())

    @precondition(lambda self: len(self.parts) > 1)
    @rule(first=st.integers(0, 100))
    def merge(self, first: int) -> None:
        other = self.parts.pop(first % len(self.parts))
        self.parts[0] = self.parts[0].merge(other)

    @rule()
    def fail(self) -> None:
        with pytest.raises(ValueError, match="probs"):
            self.parts[0].add([0.5, 1.5], [0, 1])

    @rule()
    def copy(self) -> None:
        self.parts[-1] = pickle.loads(pickle.dumps(self.parts[-1]))

    @precondition(lambda self: self.count)
    @invariant()
    def is_one_of_all_rows(self) -> None:
        total = self.empty()
        for part in self.parts:
            total = total + part
        assert total.cases == self.count
        for name, value in total.result().items():
            options = {"bins": 7} if name == "ece" else {}
            expected = getattr(metrics, name)(P[: self.count], Y[: self.count], **options)
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-12)


class LearningSteps(Steps):
    """``partial_fit``: the calibrator equals one fit to all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.calibrator: Any = bc.Beta()
        # The scores may separate the first few rows.
        self.calibrator.partial_fit(P[self.next(60)], Y[:60])

    @rule(size=st.integers(1, 40))
    def update(self, size: int) -> None:
        part = self.next(size)
        if part.stop > part.start:
            self.calibrator.partial_fit(P[part], Y[part])

    @rule()
    def fail(self) -> None:
        before = self.calibrator.predict_proba(P[:20])
        with pytest.raises(ValueError, match="scores"):
            self.calibrator.partial_fit([0.5, 1.5], [0, 1])
        np.testing.assert_array_equal(self.calibrator.predict_proba(P[:20]), before)

    @rule()
    def save(self) -> None:
        bc.save(self.calibrator, self.path)
        self.calibrator = bc.load(self.path)

    @invariant()
    def is_one_of_all_rows(self) -> None:
        whole = bc.Beta().fit(P[: self.count], Y[: self.count])
        expected = whole.predict_proba(P[:20])
        np.testing.assert_allclose(self.calibrator.predict_proba(P[:20]), expected, atol=1e-5)


TestMonitor = MonitorSteps.TestCase
TestMonitor.settings = FEW
TestAccumulator = AccumulatorSteps.TestCase
TestAccumulator.settings = FEW
TestLearning = LearningSteps.TestCase
TestLearning.settings = FEW
