"""Losses for training networks: pure functions of logits for any training loop in JAX.

They take logits (..., k) and targets, row weights and a mask, work under ``jit``, ``grad`` and
``vmap``, and are finite with a finite gradient for all logits up to 1e4 in size.
"""

from bayescal.losses._calibration import mmce as mmce
from bayescal.losses._calibration import soft_ece as soft_ece
from bayescal.losses._cross_entropy import confidence_penalty as confidence_penalty
from bayescal.losses._cross_entropy import cross_entropy as cross_entropy
from bayescal.losses._cross_entropy import distillation as distillation
from bayescal.losses._cross_entropy import smoothed_cross_entropy as smoothed_cross_entropy
from bayescal.losses._instance import instance_cross_entropy as instance_cross_entropy
from bayescal.losses._instance import instance_targets as instance_targets
from bayescal.losses._instance import with_instance_targets as with_instance_targets
from bayescal.losses._scores import brier as brier
from bayescal.losses._scores import focal as focal
