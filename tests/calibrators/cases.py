"""Every calibrator with its defaults and with every other value of each option.

New calibrators are found automatically: their options are read from their fields.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
import pytest
from scipy.special import softmax

from bayescal import calibrators
from bayescal.calibrators import Calibrator

Array = np.ndarray

#: Options common to all calibrators, which say nothing about the method.
COMMON = ("inputs", "classes", "inference", "num_samples", "random_state")
#: Calibrators with searches that are slow on any data.
SLOW = ("Decision", "Forest", "Kernel", "OrderPreserving")


class Case(NamedTuple):
    """A calibrator and some of its options."""

    calibrator: type[Calibrator]
    options: dict[str, Any]

    def __call__(self, **more: Any) -> Any:
        calibrator: Any = self.calibrator
        if "random_state" in inspect.signature(calibrator).parameters:
            more = {"random_state": 0, **more}
        return calibrator(**{**self.options, **more})

    @property
    def binary(self) -> bool:
        return self.calibrator.binary

    @property
    def name(self) -> str:
        options = ",".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.calibrator.__name__}({options})"


def all_calibrators() -> list[type[Calibrator]]:
    """Return all calibrators that the package exports."""
    values = [getattr(calibrators, name) for name in calibrators.__all__]
    classes = [v for v in values if isinstance(v, type) and issubclass(v, Calibrator)]
    return [cls for cls in classes if not inspect.isabstract(cls)]


def other_values(default: Any, hint: Any) -> list[Any]:
    """List other values of an option than its default: each choice, and one number."""
    parts = [hint, *get_args(hint)]
    values: list[Any] = [v for part in parts for v in get_args(part) if isinstance(v, str | int)]
    values += [None] * (type(None) in parts) + [3] * (int in parts)
    if float in parts:
        values.append((default + 0.25 if default else 0.1) if isinstance(default, float) else 0.25)
    if tuple[int, int] in parts:
        values.append((2, 2))
    return [value for value in values if value != default]


def options_of(cls: Any) -> list[dict[str, Any]]:
    """List option sets: the defaults, and every other value of every option."""
    hints = get_type_hints(cls)
    fields = [f for f in dataclasses.fields(cls) if f.init and f.name not in COMMON]
    others = [{f.name: v} for f in fields for v in other_values(f.default, hints[f.name])]
    if cls.__name__ == "OrderPreserving":  # A fit of the default network takes a second.
        others = [{**options, "hidden": (2, 2)} for options in others]
    return [{}, *others]


CASES = [Case(cls, options) for cls in all_calibrators() for options in options_of(cls)]
DEFAULTS = [case for case in CASES if not case.options]


def each(cases: list[Case]) -> pytest.MarkDecorator:
    """Parametrize a test by cases, with slow searches marked as slow."""
    slow = [[pytest.mark.slow] * (case.calibrator.__name__ in SLOW) for case in cases]
    values = [pytest.param(c, id=c.name, marks=m) for c, m in zip(cases, slow, strict=True)]
    return pytest.mark.parametrize("case", values)


class Data(NamedTuple):
    """Probabilities (n,) or (n, 3), some of them tied, labels, weights, and new probabilities."""

    p: Array
    y: Array
    w: Array
    new: Array


def make_data(case: Case, n: int = 80, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    if case.binary:
        p = np.clip(rng.beta(0.9, 0.9, n), 0.002, 0.998).round(4)
        p[n // 2 : n // 2 + 9] = p[:9]
        y = (rng.random(n) < p**1.6).astype(int)
        # Away from the borders of bins.
        new = np.sort(rng.uniform(0.001, 0.999, 37))
    else:
        z = rng.normal(0, 2, (n, 3))
        z[n // 2 : n // 2 + 9] = z[:9]
        p = softmax(z, axis=1)
        y = (rng.random((n, 1)) > np.cumsum(softmax(0.6 * z, axis=1), axis=1)).sum(axis=1)
        y = np.minimum(y, 2)
        new = softmax(rng.normal(0, 2, (37, 3)), axis=1)
    return Data(p, y, rng.uniform(0.5, 2, n), new)
