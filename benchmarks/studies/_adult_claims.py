"""B. Lucena's claims about calibrators on the Adult data, tested on the same test rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.studies.paired import paired, verdict

#: Claims that the first method has a lower log loss than the second, from table 1 and the text.
CLAIMS: dict[str, tuple[str, str]] = {
    "spline below uncalibrated": ("spline", "uncalibrated"),
    "spline below Platt": ("spline", "Platt, of probabilities"),
    "isotonic below spline": ("isotonic", "spline"),
    "compact spline below isotonic": ("compact spline", "isotonic"),
    "compact spline below Platt": ("compact spline", "Platt, of probabilities"),
    "compact spline below spline": ("compact spline", "spline"),
    "isotonic below Platt": ("isotonic", "Platt, of probabilities"),
}
#: Variants of the splines: with the strength that explains the published figures, and with the
#: strength chosen as in the published algorithm.
SPLINES = ("strength .002", "as published")
#: Calibrators with which cross-validation and held-out rows are compared.
_SCHEMES = ("Platt, of probabilities", "isotonic", "compact spline, as published")


def judge(
    cross_validated: Mapping[str, np.ndarray],
    held_out: Mapping[str, np.ndarray],
    published: Mapping[str, float | None],
) -> dict[str, Any]:
    """Test the claims by the losses of the test rows.

    Parameters
    ----------
    cross_validated : mapping of str to array of shape (m,)
        Losses of methods that were calibrated by cross-validation.
    held_out : mapping of str to array of shape (splits, m)
        Losses of the same methods, calibrated on held-out rows.
    published : mapping of str to float or None
        Published mean losses.

    Returns
    -------
    dict
        ``claims``: for each claim and variant of the splines, the ``published`` difference, and for
        both kinds of calibration rows our difference, its standard error and the verdict.
        ``cross_validation``: for some methods, the difference between the losses with
        cross-validation and with held-out rows, its standard error and the verdict.
    """
    claims: dict[str, Any] = {}
    means = {name: losses.mean(axis=0) for name, losses in held_out.items()}
    for claim, names in CLAIMS.items():
        claims[claim] = {}
        for kind in SPLINES if any(name.endswith("spline") for name in names) else ("",):
            first, second = (f"{n}, {kind}" if n.endswith("spline") else n for n in names)
            if first not in cross_validated or second not in cross_validated:
                continue
            first_published, second_published = published[first], published[second]
            claims[claim][kind] = {
                "published": None
                if first_published is None or second_published is None
                else first_published - second_published,
                "cross_validated": _compare(cross_validated[first], cross_validated[second]),
                "held_out": _compare(means[first], means[second]),
            }
    schemes = {n: _compare(cross_validated[n], means[n]) for n in _SCHEMES if n in cross_validated}
    return {"claims": claims, "cross_validation": schemes}


def _compare(first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    comparison = paired(first, second)
    return {**comparison, "verdict": verdict(comparison)}
