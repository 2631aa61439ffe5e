"""Tables of "Network calibration by weight scaling" (anonymous, ICLR 2023 submission), in percent.

Each table is a list of rows with ``data``, ``network``, and the printed figures.
"""

from __future__ import annotations

from typing import Any

#: Losses in the order of table 1. For each: ECE in 15 bins before scaling, after TS and after WS,
#: and the weight.
_LOSSES = "cross_entropy", "brier", "mmce", "label_smoothing"
_TABLE_1 = """
CIFAR-100|ResNet-50
  |17.52 3.42 4.28 85.8|6.52 3.64 3.97 95.2|15.32 2.38 6.39 90.2|7.81 4.01 4.00 95.4
CIFAR-100|ResNet-110
  |19.05 4.43 4.12 84.3|7.88 4.65 4.16 94.9|19.14 3.86 4.31 84.4|11.02 5.89 3.97 91.2
CIFAR-100|Wide-ResNet-26-10
  |15.33 2.88 4.05 86.5|4.31 2.70 3.68 98.1|13.17 4.37 4.78 90.8|4.84 4.84 3.83 98.6
CIFAR-100|DenseNet-121
  |20.98 4.27 4.37 82.6|5.17 2.29 3.82 95.2|19.13 3.06 4.97 83.7|12.89 7.52 3.67 89.1
CIFAR-10|ResNet-50
  |4.35 1.35 1.12 96.4|1.82 1.08 1.17 99.2|4.56 1.19 0.98 96.0|2.96 1.67 2.96 100
CIFAR-10|ResNet-110
  |4.41 1.09 0.65 95.8|2.56 1.25 1.71 99.0|5.08 1.42 0.70 95.1|2.09 2.09 2.09 100
CIFAR-10|Wide-ResNet-26-10
  |3.23 0.92 0.84 97.1|1.25 1.25 1.25 100|3.29 0.86 0.79 97.2|4.26 1.84 4.26 100
CIFAR-10|DenseNet-121
  |4.52 1.31 1.03 96.1|1.53 1.53 1.53 100|5.10 1.61 1.25 95.7|1.88 1.82 1.88 100
Tiny-ImageNet|ResNet-50
  |15.32 5.48 6.89 86.5|4.44 4.13 4.32 99.0|13.01 5.55 5.25 75.7|15.23 6.51 15.23 100
"""
#: Methods of table 2, which has ECE in 25 bins.
METHODS = (
    "uncalibrated",
    "temperature",
    "vector",
    "matrix_odir",
    "dirichlet_odir",
    "spline",
    "binwise_temperature",
    "binwise_confidence",
    "weight_scaling_bins",
)
_TABLE_2 = """
CIFAR-100|ResNet-110|18.480 2.428 2.722 3.011 2.806 1.868 1.907 1.828 1.745
CIFAR-100|ResNet-110-SD|15.861 1.335 2.067 2.277 2.046 1.766 1.373 1.421 1.370
CIFAR-100|Wide-ResNet-32|18.784 1.667 1.785 2.870 2.128 1.672 1.796 1.182 1.599
CIFAR-100|DenseNet-40|21.159 1.255 1.598 2.855 1.410 2.114 1.336 1.252 1.223
CIFAR-100|LeNet-5|12.117 1.535 1.350 1.696 2.159 1.029 1.659 1.402 0.926
CIFAR-10|ResNet-110|4.750 1.224 1.092 1.276 1.240 1.011 1.224 0.829 0.812
CIFAR-10|ResNet-110-SD|4.135 0.777 0.752 0.684 0.859 0.992 1.020 0.776 0.864
CIFAR-10|Wide-ResNet-32|4.512 0.905 0.852 0.941 0.965 1.003 1.064 0.881 0.759
CIFAR-10|DenseNet-40|5.507 1.006 1.207 1.250 1.268 1.389 0.957 0.855 1.314
CIFAR-10|LeNet-5|5.188 1.999 1.462 1.504 1.300 1.333 1.865 1.420 1.406
ImageNet|DenseNet-161|5.720 2.059 2.637 4.337 3.989 0.798 1.224 1.097 0.830
ImageNet|ResNet-152|6.545 2.166 2.641 5.377 4.556 0.913 1.165 0.918 0.912
SVHN|ResNet-152-SD|0.877 0.675 0.630 0.646 0.651 0.832 0.535 0.508 0.727
"""
#: Numbers of bins of table 3: ECE in 25 bins before scaling, with ECWS and with CWS.
BINS = 5, 13, 25, 35
_TABLE_3 = """
CIFAR-100|ResNet-110|18.480|9.946 2.512 3.198 3.027|2.741 1.745 1.957 1.866
CIFAR-100|ResNet-110-SD|15.861|6.185 2.774 2.659 2.075|2.379 1.370 1.965 2.068
CIFAR-100|Wide-ResNet-32|18.784|11.73 2.282 5.172 1.746|1.372 1.599 1.586 1.527
CIFAR-100|DenseNet-40|21.159|13.78 11.07 3.971 1.768|1.461 1.223 1.694 1.988
CIFAR-100|LeNet-5|12.117|1.868 1.658 1.402 2.183|2.069 0.926 1.538 1.284
"""


def _read(text: str) -> list[tuple[dict[str, Any], list[list[float]]]]:
    rows = []
    for line in text.replace("\n ", "").strip().split("\n"):
        data, network, *parts = (part.strip() for part in line.split("|"))
        numbers = [[float(number) for number in part.split()] for part in parts]
        rows.append(({"data": data, "network": network}, numbers))
    return rows


TABLE_1 = [
    {
        **names,
        "losses": {
            loss: dict(zip(("ece", "ece_temperature", "ece_weight", "weight"), values, strict=True))
            for loss, values in zip(_LOSSES, numbers, strict=True)
        },
    }
    for names, numbers in _read(_TABLE_1)
]
TABLE_2 = [
    {**names, "methods": dict(zip(METHODS, values, strict=True))}
    for names, (values,) in _read(_TABLE_2)
]
TABLE_3 = [
    {
        **names,
        "uncalibrated": before,
        "equal_width": dict(zip(map(str, BINS), width, strict=True)),
        "equal_mass": dict(zip(map(str, BINS), mass, strict=True)),
    }
    for names, ((before,), width, mass) in _read(_TABLE_3)
]
