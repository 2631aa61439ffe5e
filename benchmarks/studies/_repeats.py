"""Means over repeats of an experiment, their standard errors, and differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_LEVEL = 0.95
#: Differences that are as small are those of rounding.
_SAME = 1e-12


def mean_and_error(values: Sequence[float] | np.ndarray, shared: float = 0.0) -> dict[str, Any]:
    r"""Return the mean over R repeats and its standard error, None of a single repeat.

    .. math:: \left(\frac1R + \rho\right)^{1/2} \left(\frac{1}{R - 1}
              \sum_r (v_r - \bar v)^2\right)^{1/2}

    where :math:`\rho` = ``shared`` is zero for repeats that have rows of their own. For repeats
    that split the same rows anew it is the number of test rows divided by that of all others: what
    they have in common does not average out. Simulated, that is right for a calibration error that
    is systematic; of one that is chance, and of a difference of two such, it is too wide, by up to
    three times.

    References
    ----------
    C. Nadeau and Y. Bengio (2003), Inference for the generalization error.

    Examples
    --------
    >>> mean_and_error([1.0, 2.0, 3.0])
    {'mean': 2.0, 'error': 0.5773...}
    >>> mean_and_error([1.0, 2.0, 3.0], shared=1)
    {'mean': 2.0, 'error': 1.1547...}
    """
    each = np.asarray(values, float)
    error = None
    if len(each) > 1:
        error = float(each.std(ddof=1) * np.sqrt(1 / len(each) + shared))
    return {"mean": float(each.mean()), "error": error}


def difference(
    one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray, shared: float = 0.0
) -> dict[str, Any]:
    """Return the mean of one less the other as above, and a ``verdict``.

    One is "lower" or "higher" if Student's interval of 95 % lacks zero, and otherwise, or if there
    is one repeat, "not clear".

    Examples
    --------
    >>> difference([1.0, 1.1, 1.0], [2.0, 2.0, 2.1])["verdict"]
    'lower'
    >>> difference([1.0, 1.1, 1.0], [1.0, 1.2, 1.0])["verdict"]
    'not clear'
    """
    from scipy.stats import t

    found = mean_and_error(np.subtract(one, other), shared)
    mean, error = found["mean"], found["error"]
    verdict = "not clear"
    if error is not None:
        half = max(float(t.ppf((1 + _LEVEL) / 2, len(one) - 1)) * error, _SAME)
        if abs(mean) > half:
            verdict = "lower" if mean < 0 else "higher"
    return {**found, "verdict": verdict}
