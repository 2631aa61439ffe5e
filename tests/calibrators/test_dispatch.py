"""Estimators with arrays of other libraries, each in a separate process (see dispatched.py)."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from array_api_strict import asarray

import bayescal as bc


def run(library: str) -> None:
    command = [sys.executable, "-m", "tests.calibrators.dispatched", library]
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("library", ["array_api_strict", "jax"])
def test_arrays_come_in_and_go_out(library: str) -> None:
    run(library)


@pytest.mark.parity("torch")
def test_tensors_come_in_and_go_out() -> None:
    run("torch")


@pytest.mark.slow
def test_blocks_of_dask_are_not_dispatched() -> None:
    run("dask")


def test_without_dispatch_nothing_changes() -> None:
    z, y = np.array([[1.0, 0], [0, 1], [2, 1], [0, 2]]), [0, 1, 1, 1]
    expected = bc.Temperature(inputs="logits").fit(z, y).predict_proba(z)
    for library in (asarray, np.asarray, list):
        result = bc.Temperature(inputs="logits").fit(library(z), y).predict_proba(library(z))
        assert isinstance(result, np.ndarray)
        np.testing.assert_array_equal(result, expected)
