"""Sweeps on several devices and in several processes equal sweeps on one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pytest

import bayescal as bc
from bayescal.sweeps import _run

# Prints how many blocks each device computed, then saves values and statuses.
SCRIPT = """
import json, sys
from collections import Counter
import jax
import jax.numpy as jnp
if len(sys.argv) > 3:
    jax.distributed.initialize(sys.argv[3], num_processes=2, process_id=int(sys.argv[4]))
import numpy as np
import numpyro.distributions as dist
import bayescal as bc
from bayescal.sweeps import _run
_run.SIZE = 2
used, real = Counter(), _run.run_block
def counted(task):
    used[str(jnp.zeros(()).device)] += 1
    return real(task)
_run.run_block = counted
prior = bc.GaussianPrior(mu0=dist.Uniform(-1, 0), mu1=dist.Uniform(0, 1), sigma=1.0)
found = bc.sweep(
    prior, n_train=8, methods=[sys.argv[2]], num_datasets=19, n_test=30, metrics=["log_loss"],
    progress=False,
)
np.savez(sys.argv[1], value=found.value.values, status=found.status.values)
print(json.dumps(used))
"""


def expected(method: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    monkeypatch.setattr(_run, "SIZE", 2)
    prior = bc.GaussianPrior(mu0=dist.Uniform(-1, 0), mu1=dist.Uniform(0, 1), sigma=1.0)
    result = bc.sweep(
        prior, n_train=8, methods=[method], num_datasets=19, n_test=30, metrics=["log_loss"],
        progress=False,
    )  # fmt: skip
    return {"value": result.value.values, "status": result.status.values}


def start_process(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )


def read_result(process: subprocess.Popen[str]) -> dict[str, int]:
    output, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(output.splitlines()[-1])


@pytest.mark.slow
def test_all_devices_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    used = read_result(
        start_process(tmp_path / "0.npz", "preds", XLA_FLAGS=flags, JAX_ENABLE_X64="1")
    )
    assert len(used) == 4 and sum(used.values()) == 10
    result = dict(np.load(tmp_path / "0.npz"))
    np.testing.assert_equal(result, expected("preds", monkeypatch))


@pytest.mark.slow
def test_processes_share_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = [start_process(tmp_path / f"{i}.npz", "optimal", address, i) for i in range(2)]
    whole = expected("optimal", monkeypatch)
    for i, process in enumerate(processes):
        # Each process does its share and returns the full result.
        assert sum(read_result(process).values()) == 5
        np.testing.assert_equal(dict(np.load(tmp_path / f"{i}.npz")), whole)
