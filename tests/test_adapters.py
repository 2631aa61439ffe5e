"""Adapters are created on first access, and missing packages are reported."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bayescal as bc

ABSENT = """
import sys

class Absent:
    def find_spec(name, path=None, target=None):
        if name in ("torch", "torchmetrics", "probmetrics"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Absent)
import bayescal
assert bayescal.adapters.__all__ == []
wanted_by = {"TorchMetric": "torch torchmetrics", "ProbmetricsCalibrator": "probmetrics numba"}
for name, wanted in wanted_by.items():
    try:
        getattr(bayescal.adapters, name)
    except ImportError as error:
        assert f"adapters.{name} needs other libraries: pip install {wanted}" in str(error), error
    else:
        raise AssertionError(name)
calibrator = bayescal.Temperature().fit([0.2, 0.6, 0.7, 0.8], [0, 1, 0, 1])
try:
    calibrator.as_function().as_module()
except ImportError as error:
    assert "as_module needs PyTorch: pip install torch" in str(error), error
else:
    raise AssertionError
bayescal.metrics.scorer("ece")
bayescal.tokens([[[1.0, 2.0]]], [[1]])
"""


def test_absent_libraries_are_no_error_until_they_are_needed() -> None:
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_the_adapters_imports_none_of_the_libraries() -> None:
    code = "import sys, bayescal; bayescal.adapters; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "torchmetrics", "probmetrics", "sklearn"} & set(done.stdout.split())


def test_other_names_are_attributes_that_there_are_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = bc.adapters.Nothing  # type: ignore[attr-defined]
