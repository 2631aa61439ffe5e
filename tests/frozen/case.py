"""Frozen cases, and the comparison of their numbers with recorded ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import bayescal as bc

#: Named results in any nesting: numbers, arrays of numbers, and text.
Results = Mapping[str, Any]
#: Results in JSON form.
Frozen = dict[str, Any]

#: Tolerances for the recorded versions of libraries and kind of processor, with any number of
#: threads and any compiler flags; most results agree to 1e-12.
RTOL = 1e-9
ATOL = 1e-12
#: Minimum tolerance on other machines. For JAX 0.8 to 0.12, NumPy 2.0 to 2.5, SciPy 1.15 to 1.18,
#: scikit-learn 1.6 to 1.9 and Python 3.11 to 3.13, and on processors with fewer instructions,
#: results agree to 8e-7, because random draws have the digits of single precision.
ELSEWHERE = 1e-5
#: Each step of a NUTS chain magnifies the rounding of the last. Where it does so strongly, chains
#: differ on another machine, and only their averages agree.
CHAINS, AVERAGES = 1e-3, 0.1


@dataclass(frozen=True)
class Case:
    """A computation through the public interface whose results must not change.

    A comment explains each relative tolerance that differs from the default.
    """

    name: str
    compute: Callable[[], Results]
    slow: bool = False
    rtol: float = RTOL
    elsewhere: float = ELSEWHERE


def freeze(case: Case) -> Frozen:
    """Compute the results of a case in JSON form."""
    with warnings.catch_warnings():
        # Few draws and separable labels are intended; any other warning is an error.
        for category in (ConvergenceWarning, bc.AccuracyWarning, bc.SamplingWarning):
            warnings.simplefilter("ignore", category)
        return plain(case.compute())


def plain(results: Any) -> Any:
    """Convert results to dictionaries, lists of numbers, numbers, text and None."""
    if hasattr(results, "_asdict"):
        results = results._asdict()
    elif is_dataclass(results) and not isinstance(results, type):
        results = asdict(results)
    if isinstance(results, Mapping):
        return {str(name): plain(part) for name, part in results.items()}
    if results is None or isinstance(results, str):
        return results
    numbers = np.asarray(results)
    if numbers.dtype.kind not in "biuf":
        raise TypeError(f"results must be numbers or text, got {results!r}")
    return numbers.astype(float).tolist()


def compare(result: Any, expected: Any, rtol: float, path: str = "result") -> None:
    """Raise an AssertionError that names the first result that differs from the recorded one."""
    if isinstance(expected, dict):
        assert isinstance(result, dict) and result.keys() == expected.keys(), path
        for name, value in expected.items():
            compare(result[name], value, rtol, f"{path}, {name}")
    elif expected is None or isinstance(expected, str):
        assert result == expected, path
    else:
        np.testing.assert_allclose(result, expected, rtol, ATOL, err_msg=path)
