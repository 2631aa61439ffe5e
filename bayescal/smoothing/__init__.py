"""Soft targets: labels moved away from 0 and 1 before a model is fitted to them.

Every function accepts arrays of any library, computes in float64 and returns a new NumPy array.
"""

from bayescal.smoothing._constant import constant_targets, platt_targets
from bayescal.smoothing.instance import instance_targets
from bayescal.smoothing.network import network_instance_targets

__all__ = ["constant_targets", "instance_targets", "network_instance_targets", "platt_targets"]


def __dir__() -> list[str]:
    return __all__
