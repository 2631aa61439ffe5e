"""Checks of options that several metrics have."""

from __future__ import annotations

import math

from bayescal.data.checks import check_real


def check_eps(eps: float | None, default: float) -> float:
    """Return the distance from 0 and 1 at which probabilities are clipped."""
    if eps is None:
        return default
    check_real(eps, "eps")
    if not 0 <= eps < 0.5:
        raise ValueError(f"eps must lie in [0, 0.5), got {eps}")
    return float(eps)


def check_norm(norm: float) -> float:
    """Return the order of a norm, at least one; infinity is the maximum."""
    wanted = "a number of at least 1 or math.inf"
    check_real(norm, "norm", wanted)
    if math.isnan(norm) or norm < 1:
        raise ValueError(f"norm must be {wanted}, got {norm}")
    return float(norm)


def check_positive(value: float, name: str) -> float:
    """Return a positive, finite number."""
    check_real(value, name, "a positive number")
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive, got {value}")
    return float(value)
