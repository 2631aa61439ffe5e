"""Soft targets: labels moved away from 0 and 1 before a model is fitted to them.

Every function accepts arrays of any library, computes in float64 and returns a new NumPy array.
"""

from bayescal.smoothing._constant import constant_targets as constant_targets
from bayescal.smoothing._constant import platt_targets as platt_targets
from bayescal.smoothing.instance import instance_targets as instance_targets
from bayescal.smoothing.network import network_instance_targets as network_instance_targets
