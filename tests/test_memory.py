"""Peak memory: no array of shape (draws, points) is ever held."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STATUS = Path("/proc/self/status")

PROGRAM = """
import numpy as np
import numpyro.distributions as dist
import bayescal as bc

prior = bc.GaussianPrior(dist.Uniform(-2.5, 0.0), dist.Uniform(0.0, 2.5), 1.0)
x, y = np.linspace(-2.0, 2.0, 50), np.arange(50) // 25
post = bc.posterior(prior, (x, y), num_samples=100_000)
# Point by point, draws times points would take 2 GB; the million points are interpolated.
for size, interpolate in ((2_500, False), (1_000_000, None)):
    points = np.random.default_rng(0).normal(size=size)
    found = post.predict(points, interpolate=interpolate)
    assert found.probs.shape == points.shape
    assert np.isfinite(found.probs).all()
    # The high-water mark of this process; what getrusage says includes the parent's.
    (peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(int(peak.split()[1]) / 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux's /proc/self/status")
def test_a_hundred_thousand_draws_stay_under_500_megabytes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    point_by_point, a_million_points = map(float, done.stdout.split())
    assert point_by_point < 500
    assert a_million_points < 500
