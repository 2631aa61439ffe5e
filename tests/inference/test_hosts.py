"""One computation in two processes: the work is split, and both hold the full result.

Each of the two processes has two devices, and the single process has one; more devices would take
longer to compile.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pytest

import bayescal as bc
from bayescal._core.execution.precision import float64
from bayescal._core.random.keys import as_key
from bayescal.inference.engine.condition import select

#: Start a computation of two processes if an address and a process number are given.
START = """
import sys, jax
if len(sys.argv) > 2:
    jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[3]))
alone = len(sys.argv) == 2
assert jax.local_device_count() == (1 if alone else 2)
import numpy as np, numpyro.distributions as dist, bayescal as bc
from bayescal._core.execution.precision import float64
prior = bc.GaussianPrior(mu0=dist.Uniform(-2.5, 0), mu1=dist.Uniform(0, 2.5), sigma=1.0)
rng = np.random.default_rng(0)
x = rng.normal(size=(13, 20))
y = (x > rng.normal(size=x.shape)).astype(int)
found = {}
"""

POSTERIORS = """
import warnings
new, own, long = np.linspace(-3, 3, 7), np.sort(rng.normal(size=(13, 9))), np.linspace(-3, 3, 3000)
each = np.sort(rng.normal(size=(13, 600)) * np.arange(1, 14)[:, None] / 6)
far = np.array([-1.0, 12.0, 60.0])
priors = [bc.GaussianPrior(mu0=-1.0, mu1=dist.Normal(m, 1.0), sigma=1.0) for m in rng.random(13)]
conjugate = bc.NormalInverseGammaPrior(-1, 1, kappa0=1, kappa1=1, alpha=2, beta=2)
def keep(name, *values):
    for value in values:
        found[f"{integrator} {len(found)} {name}"] = np.asarray(value)
priors_of = {"montecarlo": prior, "quadrature": priors}
# All methods and kinds of points, but not with every integrator: most of the time compiles.
cases = {
    "montecarlo": [("preds", own), ("predictive", None), ("predictive", each)],
    "quadrature": [("map", own), ("coeffs", own), ("predictive", long)],
    "closed_form": [("coeffs", new), ("predictive", own), ("predictive", each)],
}
with float64(), warnings.catch_warnings():
    warnings.simplefilter("ignore", bc.AccuracyWarning)
    for integrator in INTEGRATORS:
        given = priors_of.get(integrator, conjugate)
        post = bc.posterior(given, (x, y), integrator=integrator, num_samples=1000)
        assert (post.work.rows is None) == alone
        keep("summary", post.log_evidence, post.ess, post.pareto_k, post.quadrature_error)
        for method, points in cases[integrator]:
            result = post.predict(points, method=method)
            keep(method, result.probs, result.log_odds, result.mcse)
            if points is long or points is each:
                assert result.interpolation_error is not None
                keep("nodes", result.interpolation_error)
        keep("mode", post.mode["mu1"])
        keep("draws", post.draws(12)["mu1"], post.log_weights(12), post.sample(20, index=3)["mu1"])
        if integrator == "quadrature":
            result = post.predict(far)
            keep("far", result.probs, result.mcse)
            keep("interval", *post.predict(new).interval())
        if integrator == "montecarlo":
            keep("one", bc.posterior_predict(prior, (x[0], y[0]), new, num_samples=1000).probs)
            keep("two", bc.posterior_predict(prior, (x[:2], y[:2]), new, num_samples=1000).probs)
        # One process may work by itself, before the other begins.
        if integrator == "closed_form" and jax.process_index() == 0:
            with jax.default_device(jax.local_devices()[-1]):
                own = bc.posterior_predict(prior, (x[3:6], y[3:6]), new, integrator="quadrature")
                keep("by itself", own.probs, post.predict(new).probs)
"""

SWEEP = """
from bayescal.sweeps import _run
_run.SIZE = 2
done = []
def sweep(**options):
    found = bc.sweep(prior, n_train=8, methods=["preds"], num_datasets=5,
        n_test=30, progress=lambda name, now, all: done.append((now, all)), **options)
    return found.value.values, found.status.values
values, status = sweep()
# Of three blocks one process has two.
assert done[-1] == ((3, 3) if alone else (2 - int(sys.argv[3]),) * 2), done
again, _ = sweep(store=sys.argv[1] + "store")
np.testing.assert_array_equal(again, values)
found |= {"sweep values": values, "sweep status": status}
"""

ERRORS = """
rank = int(sys.argv[3])
def message(kind, f):
    try:
        f()
    except kind as error:
        return str(error)
    raise AssertionError("no error")

# What only one process meets: the other hears of it.
from bayescal.inference.integrators.montecarlo import MonteCarlo
real = MonteCarlo.realize
def fail(self, problem, num_samples):
    if rank == 1:
        raise ArithmeticError("too hard")
    return real(self, problem, num_samples)
MonteCarlo.realize = fail
kind = ArithmeticError if rank == 1 else RuntimeError
said = message(kind, lambda: bc.posterior(prior, (x, y), num_samples=77))
assert said == ("too hard" if rank == 1 else "process 1 of 2 failed: ArithmeticError: too hard")
MonteCarlo.realize = real

def broken(x, y, points):
    if rank == 0:
        raise ArithmeticError("too hard")
    return points
options = dict(n_train=8, num_datasets=4, n_test=30, progress=False)
kind = ArithmeticError if rank == 0 else RuntimeError
said = message(kind, lambda: bc.sweep(prior, methods={"broken": broken}, **options))
assert said == ("too hard" if rank == 0 else "process 0 of 2 failed: ArithmeticError: too hard")

# Arguments that differ.
said = message(ValueError, lambda: bc.posterior(prior, (x + rank, y), num_samples=99))
assert "same arguments" in said and "jax.default_device" in said, said
post = bc.posterior(prior, (x, y), num_samples=99)
assert "same arguments" in message(ValueError, lambda: post.predict(np.array([0.0, rank])))
said = message(ValueError, lambda: bc.sweep(prior, methods=["platt"], key=rank, **options))
assert "same arguments" in said, said
# After all of this they still understand each other.
found["errors"] = post.predict([0.0]).probs.shape == (13, 1)
"""

KEEP = "np.savez(sys.argv[1], **found)"

INTEGRATORS = ["montecarlo", "quadrature", "closed_form"]
FLAGS = "--xla_force_host_platform_device_count="


def run(program: str, folder: Path, processes: int) -> list[dict[str, np.ndarray]]:
    """Run a program in one process or in two, and return the results of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}{processes}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    paths = [folder / f"{processes}-{rank}.npz" for rank in range(processes)]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path)]
            + ([address, str(rank)] if processes > 1 else []),
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, path in enumerate(paths)
    ]
    try:
        for process in started:
            _, output = process.communicate(timeout=240)
            assert process.returncode == 0, output[-3000:]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [dict(np.load(path)) for path in paths]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, np.ndarray], ...]:
    """Return the results of a single process and of both processes.

    All tests share these processes, because starting and compiling takes most of the time.
    """
    folder = tmp_path_factory.mktemp("hosts")
    program = f"{START}INTEGRATORS = {INTEGRATORS}\n{POSTERIORS}{SWEEP}"
    return *run(program + KEEP, folder, 1), *run(program + ERRORS + KEEP, folder, 2)


def part(result: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {key: value for key, value in result.items() if key.startswith(name)}


@pytest.mark.slow
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_posteriors_and_predictions_are_those_of_one_process(
    integrator: str, result: tuple[dict[str, np.ndarray], ...]
) -> None:
    alone, *shared = (part(arrays, integrator) for arrays in result)
    assert len(alone) > 12
    for rank, arrays in enumerate(shared):
        assert arrays.keys() == {name for name in alone if rank == 0 or "by itself" not in name}
        for name, value in arrays.items():
            # Programs are compiled for another batch size; observed differences are at most 8e-14.
            np.testing.assert_allclose(value, alone[name], rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.slow
def test_sweeps_are_those_of_one_process(result: tuple[dict[str, np.ndarray], ...]) -> None:
    alone, *shared = (part(arrays, "sweep") for arrays in result)
    for arrays in shared:
        np.testing.assert_equal(arrays, alone)


@pytest.mark.slow
def test_errors_reach_all_processes(result: tuple[dict[str, np.ndarray], ...]) -> None:
    assert all(arrays["errors"] for arrays in result[1:])


@pytest.mark.slow
def test_chains_do_not_depend_on_who_runs_them() -> None:
    prior = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=1.0, sigma=1.0)
    x = np.random.default_rng(1).normal(size=(3, 8))
    with pytest.warns(bc.SamplingWarning, match="^the chains do not describe the posterior for 3"):
        post = bc.posterior(prior, (x, x > 0), integrator="nuts", num_samples=40, key=2)
    rule, rows = post.setup.integrator, np.array([2, 0])
    with float64():
        problem = select(post.problem._replace(state=None, draws=None), post.setup, rows)
        whole = np.asarray(post.problem.state.vectors)
        chains = rule.prepare(problem._replace(numbers=rows), as_key(2), 40, ()).vectors
    np.testing.assert_allclose(chains, whole[rows], rtol=1e-8)
    assert np.abs(whole[2] - whole[0]).max() > 0.1
