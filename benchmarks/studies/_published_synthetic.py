"""Published figures of the synthetic study: table 6 of the thesis.

The thesis has no other numbers: tables 7 and 8 have only configurations, and figures 23 and 24 show
ranks without numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

SOURCE = "M. Maher (2020), table 6: means and standard deviations over 1,000 data sets"
DATASETS = 1000
_METHODS = (
    *("coeffs", "map", "preds", "cauchy_map", "ibls"),
    *("L1", "L2", "normal", "platt", "smoothed"),
)
_INF = math.inf
#: Means and standard deviations by configuration, in the order of ``_METHODS``.
_LOG_LOSS = {
    "a": (
        *((0.6605, 0.024), (0.6647, 0.0254), (0.6604, 0.0237), (0.7238, 0.015), (0.6700, 0.0285)),
        *((0.6885, 0.036), (0.6771, 0.0261), (0.6714, 0.0288), (0.6705, 0.0282), (0.6701, 0.0274)),
    ),
    "b": (
        *((0.2958, 0.1831), (0.297, 0.1837), (0.1846, 0.1616), (0.7722, 0.0296), (0.2972, 0.1805)),
        *((0.3021, 0.1838), (0.306, 0.1779), (0.3124, 0.1734), (0.3132, 0.1676), (0.3014, 0.1806)),
    ),
    "c": (
        *((0.4928, 0.0489), (0.4992, 0.0512), (0.4929, 0.0486), (0.7581, 0.0227), (0.5005, 0.0481)),
        *((0.5028, 0.0487), (0.5029, 0.0479), (0.5007, 0.0482), (0.5023, 0.0471), (0.5065, 0.048)),
    ),
    "d": (
        *((0.1159, 0.0252), (0.1189, 0.0273), (0.0342, 0.0538), (0.7846, 0.0268), (0.1263, 0.0259)),
        *((0.1285, 0.0266), (0.136, 0.0284), (0.1266, 0.025), (0.1552, 0.0247), (0.127, 0.0262)),
    ),
    "e": (
        *((0.0109, 0.004), (0.0126, 0.0052), (0.0109, 0.004), (0.7679, 0.0005), (0.0777, 0.0043)),
        *((0.0789, 0.0047), (_INF, _INF), (_INF, _INF), (0.0807, 0.0045), (_INF, _INF)),
    ),
}
_ECE = {
    "a": (
        *((0.0308, 0.0175), (0.0482, 0.0191), (0.0311, 0.0179), (0.1408, 0.0425), (0.0509, 0.0152)),
        *((0.0754, 0.0343), (0.0518, 0.0317), (0.059, 0.0142), (0.0537, 0.0154), (0.0519, 0.0266)),
    ),
    "b": (
        *((0.0318, 0.0258), (0.035, 0.027), (0.0096, 0.0198), (0.4012, 0.1049), (0.0398, 0.02)),
        *((0.0454, 0.0208), (0.0499, 0.0201), (0.0391, 0.0207), (0.0598, 0.0125), (0.0463, 0.0194)),
    ),
    "c": (
        *((0.0258, 0.0126), (0.047, 0.0159), (0.0264, 0.0122), (0.2948, 0.038), (0.0534, 0.0126)),
        *((0.0586, 0.0083), (0.0588, 0.0078), (0.054, 0.0125), (0.057, 0.0078), (0.0639, 0.0109)),
    ),
    "d": (
        *((0.0102, 0.0068), (0.0154, 0.0113), (0.0031, 0.0059), (0.4917, 0.0219), (0.0278, 0.0121)),
        *((0.0307, 0.0136), (0.0395, 0.0187), (0.0268, 0.0113), (0.0621, 0.0142), (0.0293, 0.0109)),
    ),
    "e": (
        *((0.0021, 0.001), (0.0036, 0.0019), (0.0021, 0.0011), (0.5272, 0.0026), (0.0656, 0.0019)),
        *((0.0626, 0.0029), (0.0025, 0.0009), (0.0027, 0.0011), (0.0677, 0.0018), (0.0026, 0.0009)),
    ),
}


class Published(NamedTuple):
    """Mean and standard deviation over data sets, as fractions; infinite values are as printed."""

    mean: float
    deviation: float


TABLE_6: dict[str, dict[str, dict[str, Published]]] = {
    metric: {
        letter: {m: Published(*pair) for m, pair in zip(_METHODS, pairs, strict=True)}
        for letter, pairs in table.items()
    }
    for metric, table in {"log_loss": _LOG_LOSS, "ece": _ECE}.items()
}


def published_of(question: int, letter: str, metric: str) -> Mapping[str, Published]:
    """Look up published figures of a configuration by method; only question 1 has any."""
    return TABLE_6[metric].get(letter, {}) if question == 1 else {}


def impossible(mean: float, floor: float, deviation: float) -> bool:
    """Check whether a published log loss is lower than chance allows.

    ``floor`` is the expected log loss of the predictions that know the parameters, and
    ``deviation`` its standard deviation between data sets. A mean over 1,000 data sets may be below
    the floor by up to four standard errors.
    """
    return mean < floor - 4 * deviation / math.sqrt(DATASETS)
