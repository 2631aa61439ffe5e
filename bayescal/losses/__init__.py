"""Losses for training networks: pure functions of logits for any training loop in JAX.

They take logits (..., k) and targets, row weights and a mask, work under ``jit``, ``grad`` and
``vmap``, and are finite with a finite gradient for all logits up to 1e4 in size.
"""

from bayescal.losses._calibration import mmce, soft_ece
from bayescal.losses._instance import (
    instance_cross_entropy,
    instance_targets,
    with_instance_targets,
)
from bayescal.losses._single_rows import (
    brier,
    confidence_penalty,
    cross_entropy,
    distillation,
    focal,
    smoothed_cross_entropy,
)

__all__ = [
    "brier",
    "confidence_penalty",
    "cross_entropy",
    "distillation",
    "focal",
    "instance_cross_entropy",
    "instance_targets",
    "mmce",
    "smoothed_cross_entropy",
    "soft_ece",
    "with_instance_targets",
]


def __dir__() -> list[str]:
    return __all__
