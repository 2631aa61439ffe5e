"""The source's claims on smoothing in networks, tested by paired differences over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

_LEVEL = 0.95


class Claim(NamedTuple):
    """A claim of the source about the difference of two methods.

    Attributes
    ----------
    text : str
    measure : str
    ours, theirs : tuple of (method, scaled)
        The first and the second method.
    lower : bool
        Whether the claim is that the measure of the first is lower; otherwise, that it is higher.
    """

    text: str
    measure: str
    ours: tuple[str, bool]
    theirs: tuple[str, bool]
    lower: bool


CLAIMS = (
    Claim(
        "instance-based smoothing has a lower log loss than no smoothing",
        "log_loss",
        ("instance", False),
        ("none", False),
        True,
    ),
    Claim(
        "instance-based smoothing has a lower log loss than constant smoothing",
        "log_loss",
        ("instance", False),
        ("constant", False),
        True,
    ),
    Claim(
        "instance-based smoothing is more accurate than no smoothing",
        "accuracy",
        ("instance", False),
        ("none", False),
        False,
    ),
    Claim(
        "instance-based smoothing has a lower calibration error than no smoothing",
        "ece",
        ("instance", False),
        ("none", False),
        True,
    ),
    Claim(
        "temperature scaling lowers the log loss of networks without smoothing",
        "log_loss",
        ("none", True),
        ("none", False),
        True,
    ),
    Claim(
        "students of instance-based smoothing have a lower log loss than of no smoothing",
        "student_log_loss",
        ("instance", False),
        ("none", False),
        True,
    ),
    Claim(
        "students of instance-based smoothing have a lower log loss than of constant smoothing",
        "student_log_loss",
        ("instance", False),
        ("constant", False),
        True,
    ),
    Claim(
        "constant smoothing keeps less of the classes' similarity than no smoothing",
        "structure",
        ("constant", False),
        ("none", False),
        True,
    ),
    Claim(
        "instance-based smoothing keeps more of the classes' similarity than constant smoothing",
        "structure",
        ("instance", False),
        ("constant", False),
        False,
    ),
)


def mean_and_interval(values: np.ndarray) -> tuple[float, float | None]:
    """Compute a mean over seeds and half the width of its 95 % interval, by Student's t.

    Examples
    --------
    >>> mean, half = mean_and_interval(np.array([1.0, 2.0, 3.0]))
    >>> mean, round(half, 2)
    (2.0, 2.48)
    """
    from scipy.stats import t

    if len(values) < 2:
        return float(np.mean(values)), None
    error = values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(t.ppf((1 + _LEVEL) / 2, len(values) - 1) * error)


def judge(results: Mapping[tuple[str, bool], Mapping[str, np.ndarray]]) -> list[dict[str, Any]]:
    """Test each claim: compute the mean difference, half its interval, and a verdict.

    ``results`` contains the measures (seeds,) of each method before (False) and after (True)
    temperature scaling. If the interval does not contain zero, the verdict is "holds" or "the other
    way round"; otherwise it is "not clear".
    """
    verdicts = []
    for claim in CLAIMS:
        difference = results[claim.ours][claim.measure] - results[claim.theirs][claim.measure]
        mean, half_width = mean_and_interval(difference)
        verdict = "not clear"
        if half_width is not None and abs(mean) > half_width:
            verdict = "holds" if (mean < 0) == claim.lower else "the other way round"
        verdicts.append(
            {"claim": claim.text, "difference": mean, "half_width": half_width, "verdict": verdict}
        )
    return verdicts
