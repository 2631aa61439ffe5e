"""Batches of data sets over several devices: the work is split, and results stay equal."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, jax, numpy as np, numpyro.distributions as dist, bayescal as bc
from bayescal._core.execution.precision import float64
from bayescal.inference.engine.condition import _weigh_all
rng = np.random.default_rng(0)
x = rng.normal(size=(20, 20))
y = (x > rng.normal(size=x.shape)).astype(int)
new, long = np.linspace(-3, 3, 7), np.linspace(-3, 3, 2000)
prior = bc.GaussianPrior(mu0=dist.Uniform(-2.5, 0), mu1=dist.Uniform(0, 2.5), sigma=1.0)
priors = [bc.GaussianPrior(mu0=-1.0, mu1=dist.Normal(m, 1.0), sigma=1.0) for m in rng.random(20)]
found = []
for own, integrator in (
    (prior, "montecarlo"), (priors, "importance"), (prior, "quadrature")
):
    post = bc.posterior(own, (x, y), integrator=integrator, num_samples=500, key=1)
    found += [post.log_evidence, post.mode["mu1"]]
    for method, points in (
        ("predictive", new), ("predictive", None), ("coeffs", new), ("map", None)
    ):
        result = post.predict(points, method=method)
        found += [result.probs, result.log_odds]
    found.append(post.predict(long).probs)
    parts = post.setup.parts
    assert parts == jax.local_device_count(), parts
    if parts > 1 and integrator == "montecarlo":
        assert len(post.problem.sums) == 32
        with float64():
            program = _weigh_all.lower(post.setup, False, post.problem).compile()
        text = program.as_text()
        moved = [n for n in ("all-gather", "all-to-all", "all-reduce") if n + "(" in text]
        assert not moved, moved
        placed = program.output_shardings[0].log_evidence
        assert placed.shard_shape((32,)) == (4,), placed
np.savez(sys.argv[1], *map(np.asarray, found))
"""


@pytest.mark.slow
def test_eight_devices_split_the_data_sets(tmp_path: object) -> None:
    import numpy as np

    answers = []
    for count in (1, 8):
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
        path = f"{tmp_path}/{count}.npz"
        command = [sys.executable, "-c", PROGRAM, path]
        environment = {**os.environ, "XLA_FLAGS": flags}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=140)
        assert done.returncode == 0, done.stderr[-3000:]
        with np.load(path) as file:
            answers.append([file[name] for name in file.files])
    assert len(answers[0]) == len(answers[1]) > 30
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6)
