"""All frozen cases, and the file with their recorded numbers."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frozen import calibrators, combined, functions, metrics, posteriors
from tests.frozen.case import Case, Frozen, compare, freeze

NUMBERS = Path(__file__).with_name("numbers.json")
#: Libraries whose versions may change the numbers.
LIBRARIES = ("jax", "numpy", "numpyro", "scikit-learn", "scipy")


def all_cases() -> list[Case]:
    """Return all cases, sorted by name."""
    modules = calibrators, combined, functions, metrics, posteriors
    cases = [case for module in modules for case in module.cases()]
    return sorted(cases, key=lambda case: case.name)


def each(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """Parametrize a test by cases, with slow cases marked as slow."""
    values = [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] * case.slow) for case in cases
    ]
    return pytest.mark.parametrize("case", values)


def surroundings() -> dict[str, str]:
    """Return the versions of numerical libraries, and the processor's model and instruction sets.

    Libraries choose their kernels by both: processors with the same instruction sets round alike
    only if they have the same model.
    """
    result: Any = np.show_config(mode="dicts")
    extensions = result["SIMD Extensions"].get("found", [])
    processor = ", ".join([_processor_model(), *extensions])
    return {**{name: version(name) for name in LIBRARIES}, "processor": processor}


def _processor_model() -> str:
    """Return vendor, family and model where the system lists them, otherwise a general name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    entries = dict(re.split(r"\s*:\s*", line, maxsplit=1) for line in lines if ":" in line)
    return " ".join(entries.get(name, "") for name in ("vendor_id", "cpu family", "model"))


@cache
def read() -> dict[str, Any]:
    """Read the recorded numbers; tests must not change them."""
    return json.loads(NUMBERS.read_text(encoding="utf-8"))


def check(case: Case) -> None:
    """Raise an AssertionError if the results of a case differ from the recorded ones."""
    recorded = read()
    elsewhere = surroundings() != recorded["surroundings"]
    rtol = max(case.rtol, case.elsewhere) if elsewhere else case.rtol
    compare(freeze(case), recorded["cases"][case.name], rtol)


def write() -> int:
    """Compute all cases, record their numbers, and return how many cases there are."""
    frozen = {case.name: freeze(case) for case in all_cases()}
    lines = [f"{json.dumps(name)}:{_compact(results)}" for name, results in frozen.items()]
    head = '{"surroundings":' + _compact(surroundings()) + ',\n"cases":{\n'
    text = head + ",\n".join(lines) + "\n}}\n"
    NUMBERS.write_text(text, encoding="utf-8")
    return len(frozen)


def _compact(results: Frozen) -> str:
    return json.dumps(results, separators=(",", ":"))
