"""Findings about one model: whether it is calibrated, and if not, how it errs."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from bayescal._core.numerics import holm
from bayescal._core.tables import p_value
from bayescal.evaluation._events import Events
from bayescal.metrics import CalibrationTest, Corp, Interval, corp

Verdict = Literal[
    "over-confident", "under-confident", "too high", "too low", "miscalibrated", "no evidence"
]
Strength = Literal["none", "slight", "clear", "strong"]
#: p-value, after Holm's correction, below which a test rejects calibration.
SIGNIFICANCE = 0.05
#: Errors below the first value are slight, from the second on strong.
SLIGHT, STRONG = 0.02, 0.1


class Finding(NamedTuple):
    """Conclusions from the tests and averages of one model.

    Attributes
    ----------
    verdict : {"over-confident", "under-confident", "too high", "too low", "miscalibrated", ...}
        Result of all tests together at the level 0.05, after Holm's correction: about one sample in
        twenty of a calibrated model has another verdict than "no evidence". "too high"
        or "too low", for two classes: calibration in the large is rejected, and the mean
        probability is farther from the frequency than the confidence from the accuracy.
        "over-confident" or "under-confident": Spiegelhalter's test rejects, and the confidence is
        on the same side of the accuracy. "miscalibrated": any test rejects otherwise. For more
        than two classes the tests are of the confidence and of the Brier score, so that errors of
        single classes may escape them: compare the class-wise ECE.
    size : float
        Size of the error: the difference between confidence and accuracy, or between mean
        probability and frequency, or else the expected calibration error above chance.
    confidence : float
        Mean of the largest probability.
    accuracy : float
        Proportion of rows whose most probable class is the label.
    predicted, observed : float or None
        For two classes, the mean of P(y = 1), and the proportion of rows with y = 1.
    spiegelhalter : CalibrationTest
        Test of the Brier score.
    consistency : CalibrationTest
        Test of the expected calibration error.
    bias : CalibrationTest or None
        For two classes, calibration in the large: a z, positive if probabilities are too high.
    decomposition : Corp
        Decomposition of the Brier score: of P(y = 1), or of the confidence for more classes.
    """

    verdict: Verdict
    size: float
    confidence: float
    accuracy: float
    predicted: float | None
    observed: float | None
    spiegelhalter: CalibrationTest
    consistency: CalibrationTest
    bias: CalibrationTest | None
    decomposition: Corp

    @property
    def strength(self) -> Strength:
        """Grade of the size: slight below 0.02, strong from 0.1 on; none without evidence."""
        if self.verdict == "no evidence":
            return "none"
        return "slight" if self.size < SLIGHT else "strong" if self.size >= STRONG else "clear"


def find(events: Events, measured: Mapping[str, Interval], test: CalibrationTest) -> Finding:
    """Conclude from events, the metrics of a model and Spiegelhalter's test."""
    probs, happened, weights = events.cases
    binary = events.classes is None
    mean = events.mean(np.maximum(probs, 1 - probs) if binary else probs)
    right = measured["accuracy"].value
    predicted = observed = bias = None
    if binary:
        predicted, observed = events.mean(probs), events.mean(happened)
        bias = _bias_test(events)
    consistency = CalibrationTest(measured["ECE"].value, events.consistency)
    gap, shift = mean - right, (predicted or 0) - (observed or 0)
    verdict = _verdict(test, consistency, bias, gap, shift)
    sizes = {"over-confident": gap, "under-confident": gap, "too high": shift, "too low": shift}
    return Finding(
        verdict,
        abs(sizes.get(verdict, measured["ECE"].estimate)),
        mean,
        right,
        predicted,
        observed,
        test,
        consistency,
        bias,
        corp(probs, happened, weights=weights),
    )


def _bias_test(events: Events) -> CalibrationTest:
    """Test whether the mean probability equals the frequency; integer weights are counts."""
    if events.clustered is not None:
        return CalibrationTest(*events.clustered)
    excess, variance = events.excess, events.variance
    if variance == 0:
        sure = abs(excess) <= 1e-12 * events.totals.sum()
        return (
            CalibrationTest(0.0, 1.0) if sure else CalibrationTest(np.copysign(np.inf, excess), 0)
        )
    z = excess / variance**0.5
    return CalibrationTest(z, 2 * NormalDist().cdf(-abs(z)))


def _verdict(
    test: CalibrationTest,
    consistency: CalibrationTest,
    bias: CalibrationTest | None,
    gap: float,
    shift: float,
) -> Verdict:
    tests = [consistency, test] if bias is None else [consistency, test, bias]
    rejected = holm(np.array([result.p_value for result in tests])) < SIGNIFICANCE
    shifted = bias is not None and rejected[2]
    if shifted and abs(shift) > abs(gap):
        return "too high" if shift > 0 else "too low"
    if rejected[1]:
        if test.statistic > 0 and gap > 0:
            return "over-confident"
        return "under-confident" if test.statistic < 0 and gap < 0 else "miscalibrated"
    return "miscalibrated" if rejected.any() else "no evidence"


def describe(
    finding: Finding, measured: Mapping[str, Interval], event: str, cases: str, level: float
) -> str:
    """Describe a finding in plain sentences; ``event`` is the name of the second of two classes."""
    ece, classwise = measured["ECE"], measured.get("class-wise ECE")
    words = {
        "too high": ("too high", f"probabilities of {event} exceed its frequency overall"),
        "too low": ("too low", f"probabilities of {event} are below its frequency overall"),
        "over-confident": ("over-confident", "predictions are more extreme than they should be"),
        "under-confident": ("under-confident", "predictions are less extreme than they could be"),
        "miscalibrated": ("miscalibrated", "but not simply over- or under-confident"),
    }
    if finding.verdict == "no evidence":
        subject, errors = "Calibrated", f"the ECE is {ece.estimate:.3f}, at most {ece.upper:.3f}"
        if classwise is not None:
            subject = "The confidence is calibrated"
            errors += (
                f", and the class-wise ECE {classwise.estimate:.3f}, at most {classwise.upper:.3f}"
            )
        text = (
            f"{subject} as far as {cases} can tell: all tests together find no error; "
            f"beyond chance {errors} ({level:.0%} interval)"
        )
    else:
        verdict, meaning = words[finding.verdict]
        strength = {"slight": "slightly ", "strong": "strongly "}.get(finding.strength, "")
        text = f"{strength}{verdict}, by {finding.size:.3f}: {meaning}"
        text = text[0].upper() + text[1:]
    z, p = finding.spiegelhalter
    text += (
        f"; mean confidence {finding.confidence:.3f}, accuracy {finding.accuracy:.3f}, "
        f"ECE {ece.value:.3f}; Spiegelhalter's z = {z + 0.0:.2f} ({p_text(p)})"
    )
    if finding.verdict in ("miscalibrated", "no evidence"):
        text += f"; consistency of the ECE {p_text(finding.consistency.p_value)}"
    text += "."
    if finding.predicted is not None:
        text += (
            f" The mean predicted probability of {event} is {finding.predicted:.3f}, "
            f"its frequency {finding.observed:.3f}"
        )
        text += "." if finding.bias is None else f" ({p_text(finding.bias.p_value)})."
    return text


def p_text(value: float) -> str:
    """Format a p-value for sentences."""
    return f"p {p_value(value)}" if value < 0.001 else f"p = {p_value(value)}"
