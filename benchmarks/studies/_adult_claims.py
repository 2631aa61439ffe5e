"""What B. Lucena says of calibrators on the Adult data, judged on the same test rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.studies.paired import paired, verdict

#: Claims that the first has the lesser log loss than the second, of its table 1 and the text.
CLAIMS: dict[str, tuple[str, str]] = {
    "spline below uncalibrated": ("spline", "uncalibrated"),
    "spline below Platt": ("spline", "Platt, of probabilities"),
    "isotonic below spline": ("isotonic", "spline"),
    "compact spline below isotonic": ("compact spline", "isotonic"),
    "compact spline below Platt": ("compact spline", "Platt, of probabilities"),
    "compact spline below spline": ("compact spline", "spline"),
    "isotonic below Platt": ("isotonic", "Platt, of probabilities"),
}
#: Which splines: of the strength that explains the published figures, and as the algorithm says.
SPLINES = ("strength .002", "as published")
#: With whose calibrator both ways of getting calibration rows are compared.
_SCHEMES = ("Platt, of probabilities", "isotonic", "compact spline, as published")


def judge(
    crossed: Mapping[str, np.ndarray],
    held: Mapping[str, np.ndarray],
    published: Mapping[str, float | None],
) -> dict[str, Any]:
    """Judge the claims by the losses of the test rows.

    Parameters
    ----------
    crossed : mapping of str to array of shape (m,)
        Losses of methods that were calibrated by cross-validation.
    held : mapping of str to array of shape (splits, m)
        Losses of the same methods, calibrated on rows held out.
    published : mapping of str to float or None
        Mean losses.

    Returns
    -------
    dict
        ``claims``: for each claim and kind of splines the ``published`` difference, and by way of
        calibration the difference, its standard error and the verdict. ``cross_validation``: for
        some methods the same of losses by cross-validation against those on rows held out.
    """
    claims: dict[str, Any] = {}
    means = {name: losses.mean(axis=0) for name, losses in held.items()}
    for claim, names in CLAIMS.items():
        claims[claim] = {}
        for kind in SPLINES if any(name.endswith("spline") for name in names) else ("",):
            first, second = (f"{n}, {kind}" if n.endswith("spline") else n for n in names)
            if first not in crossed or second not in crossed:
                continue
            one, other = published[first], published[second]
            claims[claim][kind] = {
                "published": None if one is None or other is None else one - other,
                "cross_validated": _compare(crossed[first], crossed[second]),
                "held_out": _compare(means[first], means[second]),
            }
    schemes = {n: _compare(crossed[n], means[n]) for n in _SCHEMES if n in crossed}
    return {"claims": claims, "cross_validation": schemes}


def _compare(first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    found = paired(first, second)
    return {**found, "verdict": verdict(found)}
