"""Scripts that simulate with internal functions still run, on the smallest data."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "bench_laplace.py --repeats 1 --case Logistic 'LogisticRegression, 1' Temperature Vector",
    "bench_groups.py --repeats 1 --rows 200 --metric log_loss ece",
    "bench_intervals.py --repeats 1 --rows 30 --metric ece",
    "bench_prior_shift.py --part coverage --repeats 1 --sets 1 --classes 2",
    "bench_monitor.py --part delays --runs 1",
    "bench_deployed.py --part rates --runs 1",
    "coverage_bands.py --repeats 1 --rows 20 --method Isotonic Beta",
    "coverage_gain.py --repeats 1",
)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_scripts_run() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for command in COMMANDS:
        name, *options = shlex.split(command)
        call = [sys.executable, str(ROOT / "benchmarks" / name), *options]
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"
