"""Findings about one model: whether it is calibrated, and if not, how it errs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bayescal._core.display.tables import p_value
from bayescal._core.numerics import holm
from bayescal.evaluation._events import ModelEvents
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
        than two classes the tests are of the confidence, the Brier score and the proportions of
        classes, so that errors of a class that cancel over all rows may escape them: compare the
        class-wise ECE.
    size : float
        Size of the error: the difference between confidence and accuracy, or between mean
        probability and frequency, or else the expected calibration error above chance. For
        "miscalibrated" it is the larger of the last two if calibration in the large is rejected.
    confidence : float
        Mean of the largest probability.
    accuracy : float
        Proportion of rows whose most probable class is the label.
    label : int
        Position of the class that ``predicted``, ``observed`` and ``bias`` are about: 1 for two
        classes, and for more the class whose frequency is least plausible.
    predicted, observed : float
        Mean probability of this class, and the proportion of rows that belong to it.
    spiegelhalter : CalibrationTest
        Test of the Brier score.
    consistency : CalibrationTest
        Test of the expected calibration error.
    bias : CalibrationTest
        Calibration in the large: z of this class, positive if its probabilities are too high. Of
        more than two classes the p-value is multiplied by their number (Bonferroni's correction).
        P-values allow for the skewness of counts of rare classes. Rows in clusters have the
        test of sums over clusters, with Student's t distribution.
    decomposition : Corp
        Decomposition of the Brier score: of P(y = 1), or of the confidence for more classes.
    """

    verdict: Verdict
    size: float
    confidence: float
    accuracy: float
    label: int
    predicted: float
    observed: float
    spiegelhalter: CalibrationTest
    consistency: CalibrationTest
    bias: CalibrationTest
    decomposition: Corp

    @property
    def strength(self) -> Strength:
        """Grade of the size: slight below 0.02, strong from 0.1 on; none without evidence."""
        if self.verdict == "no evidence":
            return "none"
        return "slight" if self.size < SLIGHT else "strong" if self.size >= STRONG else "clear"


def find(events: ModelEvents, measured: Mapping[str, Interval], test: CalibrationTest) -> Finding:
    """Conclude from events, the metrics of a model and Spiegelhalter's test."""
    probs, happened, weights = events.cases
    binary = events.classes is None
    mean = events.mean(np.maximum(probs, 1 - probs) if binary else probs)
    right = measured["accuracy"].value
    consistency = CalibrationTest(measured["ECE"].value, events.consistency)
    label, predicted, observed, bias = events.proportion
    gap, shift = mean - right, predicted - observed
    rejected = holm(np.array([consistency.p_value, test.p_value, bias.p_value])) < SIGNIFICANCE
    verdict, size = _verdict(rejected, test.statistic, gap, shift, binary)
    if size is None:
        size = max(measured["ECE"].estimate, abs(shift) if rejected[2] else 0.0)
    parts = corp(probs, happened, weights=weights)
    return Finding(
        verdict, size, mean, right, label, predicted, observed, test, consistency, bias, parts
    )


def _verdict(
    rejected: np.ndarray, z: float, gap: float, shift: float, binary: bool
) -> tuple[Verdict, float | None]:
    """Choose the verdict and, if it names the direction of an error, its size."""
    _, brier, shifted = rejected
    if binary and shifted and abs(shift) > abs(gap):
        return "too high" if shift > 0 else "too low", abs(shift)
    if brier and z > 0 and gap > 0:
        return "over-confident", gap
    if brier and z < 0 and gap < 0:
        return "under-confident", -gap
    return "miscalibrated" if rejected.any() else "no evidence", None


def describe(
    finding: Finding,
    measured: Mapping[str, Interval],
    classes: Sequence[str],
    cases: str,
    level: float,
) -> str:
    """Describe a finding in plain sentences."""
    ece, classwise = measured["ECE"], measured.get("class-wise ECE")
    event = f"class {classes[finding.label]}"
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
            subject = "Confidence and class proportions are calibrated"
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
    return text + (
        f" The mean predicted probability of {event} is {finding.predicted:.3f}, its frequency "
        f"{finding.observed:.3f} ({p_text(finding.bias.p_value)}"
        f"{f' for the worst of {len(classes)} classes' if len(classes) > 2 else ''})."
    )


def p_text(value: float) -> str:
    """Format a p-value for sentences."""
    return f"p {p_value(value)}" if value < 0.001 else f"p = {p_value(value)}"
