"""Running out of memory raises a clear error and leaves every object unchanged."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# The limit applies to a whole process. OpenBLAS and LLVM abort a process when an allocation fails,
# so each calibrator computes something first. Freed memory is returned at once.
PROGRAM = """
import resource
import numpy as np
import bayescal as bc

def address_space():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

def refuses(call):
    limit = address_space() + 4_000_000
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        call()
    except MemoryError as error:
        return "Unable to allocate" in str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return False

rng = np.random.default_rng(0)
z = rng.normal(size=(600_000, 4))
y = rng.integers(0, 4, len(z))
few = slice(500)
for calibrator in (
    bc.Temperature(inputs="logits"),
    bc.Vector(inputs="logits"),
    bc.Auto(inputs="logits"),
    bc.OneVsRest(bc.Isotonic(), inputs="logits"),
    bc.Dirichlet(inputs="logits"),
):
    probs = calibrator.fit(z[few], y[few]).predict_proba(z[few])
    for call in (lambda: calibrator.fit(z, y), lambda: calibrator.predict_proba(z)):
        assert refuses(call), calibrator
        np.testing.assert_array_equal(calibrator.predict_proba(z[few]), probs)

total = bc.metrics.Accumulator(["log_loss", "ece"], classes=4)
total.add(probs, y[few])
before = total.result(), total.cases
p = np.full(z.shape, 0.25)
assert refuses(lambda: total.add(p, y))
assert (total.result(), total.cases) == before
print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no such limit")
def test_one_error_and_nothing_changed() -> None:
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.stdout.strip() == "done", result.stderr[-2000:]
