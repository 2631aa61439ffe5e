"""Means over repeats of an experiment, their standard errors, and differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_LEVEL = 0.95
#: Smaller differences are rounding errors.
_ROUNDING_ERROR = 1e-12


def mean_and_error(values: Sequence[float] | np.ndarray, shared: float = 0.0) -> dict[str, Any]:
    r"""Compute the mean over R repeats and its standard error, which is None for one repeat.

    .. math:: \left(\frac1R + \rho\right)^{1/2} \left(\frac{1}{R - 1}
              \sum_r (v_r - \bar v)^2\right)^{1/2}

    where :math:`\rho` = ``shared`` is zero for repeats with independent rows. For repeats that
    split the same rows differently, it is the number of test rows divided by the number of other
    rows, because the error that they have in common does not average out. In simulations, this
    standard error is right for systematic calibration errors. For calibration errors due to chance,
    and for differences of two such errors, it is too large, by a factor of up to three.

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
    array = np.asarray(values, float)
    error = None
    if len(array) > 1:
        error = float(array.std(ddof=1) * np.sqrt(1 / len(array) + shared))
    return {"mean": float(array.mean()), "error": error}


def difference(
    first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray, shared: float = 0.0
) -> dict[str, Any]:
    """Compute the mean of first - second, its standard error, and a ``verdict``.

    The verdict is "lower" or "higher" if Student's 95 % interval of the mean does not contain zero.
    Otherwise, or if there is only one repeat, it is "not clear".

    Examples
    --------
    >>> difference([1.0, 1.1, 1.0], [2.0, 2.0, 2.1])["verdict"]
    'lower'
    >>> difference([1.0, 1.1, 1.0], [1.0, 1.2, 1.0])["verdict"]
    'not clear'
    """
    from scipy.stats import t

    result = mean_and_error(np.subtract(first, second), shared)
    mean, error = result["mean"], result["error"]
    verdict = "not clear"
    if error is not None:
        half_width = max(float(t.ppf((1 + _LEVEL) / 2, len(first) - 1)) * error, _ROUNDING_ERROR)
        if abs(mean) > half_width:
            verdict = "lower" if mean < 0 else "higher"
    return {**result, "verdict": verdict}
