"""Published figures of label smoothing in networks: table 12 of the thesis.

The standard deviations are omitted; the unit of those of the students' accuracy is unclear.
A picture of the table in the source's code has 85.63, 0.452 and 0.039 in the last row of
Inception-V4, instead of 85.90, 0.448 and 0.042.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SOURCE = "M. Maher (2020), table 12: means over three seeds"
MEASURES = "accuracy", "log_loss", "ece", "student_accuracy", "student_log_loss"
ROWS = tuple((m, scaled) for m in ("none", "constant", "instance") for scaled in (False, True))
#: Figures by data and published name of the network: a row for each smoothing before and after
#: temperature scaling; accuracy in percent.
FIGURES = {
    ("cifar10", "ResNet18"): (
        (88.81, 0.362, 0.042, 84.11, 0.972),
        (88.81, 0.327, 0.006, 84.04, 0.972),
        (89.82, 0.317, 0.025, 84.76, 0.951),
        (89.82, 0.316, 0.023, 84.72, 0.958),
        (90.65, 0.303, 0.014, 85.61, 0.942),
        (90.65, 0.316, 0.033, 85.06, 0.952),
    ),
    ("cifar10", "InceptionV4"): (
        (84.01, 0.501, 0.050, 82.19, 0.999),
        (84.01, 0.466, 0.012, 85.81, 0.929),
        (85.58, 0.438, 0.0282, 83.92, 0.964),
        (85.58, 0.449, 0.044, 84.61, 0.953),
        (85.90, 0.431, 0.027, 85.25, 0.921),
        (85.90, 0.448, 0.042, 85.56, 0.944),
    ),
    ("cifar100", "ResNet50"): (
        (62.12, 1.664, 0.159, 60.58, 1.486),
        (62.12, 1.397, 0.033, 60.64, 1.478),
        (68.16, 1.325, 0.041, 60.42, 1.483),
        (68.16, 1.325, 0.083, 60.38, 1.487),
        (67.36, 1.350, 0.049, 60.52, 1.480),
        (67.36, 1.201, 0.029, 60.84, 1.478),
    ),
    ("fashion_mnist", "DenseNet"): (
        (92.68, 0.220, 0.026, 93.5, 0.725),
        (92.68, 0.247, 0.025, 93.5, 0.727),
        (92.52, 0.223, 0.010, 93.5, 0.722),
        (92.52, 0.326, 0.040, 93.3, 0.719),
        (93.96, 0.203, 0.010, 93.5, 0.703),
        (93.96, 0.215, 0.029, 93.6, 0.714),
    ),
}
#: Published names of our networks. ResNet50 has blocks of two 3x3 convolutions in the published
#: code.
_PUBLISHED_NAMES = {
    "resnet18": "ResNet18",
    "inception": "InceptionV4",
    "resnet34": "ResNet50",
    "resnet50": "ResNet50",
    "densenet": "DenseNet",
}


def published(data: str, network: str) -> dict[str, Any] | None:
    """Look up published figures of the data and a similar network.

    Returns
    -------
    dict or None
        ``source``, the published name of the ``network``, and ``rows``: method, scaled and
        measures, as in the table of the study. None if there are no published figures.
    """
    name = _PUBLISHED_NAMES.get(network, "")
    if (data, name) not in FIGURES:
        return None
    figures = FIGURES[data, name]

    def rows() -> Iterator[dict[str, Any]]:
        for (method, scaled), values in zip(ROWS, figures, strict=True):
            measures = dict(zip(MEASURES, values, strict=True))
            for key in ("accuracy", "student_accuracy"):
                measures[key] = round(measures[key] / 100, 4)
            yield {"method": method, "scaled": scaled, "measures": measures}

    return {"source": SOURCE, "network": name, "rows": list(rows())}
