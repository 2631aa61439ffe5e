"""Time every accelerated job on the default device of JAX, on a CPU, and relative to its limit.

    python -m benchmarks.device [--quick] [--only NAME ...] [--json FILE]

"compile" is the first call of a process minus the median of later calls. "run" is this median; some
jobs queue ten calls on an accelerator. "busy" is the time that the device works during one call. If
the device is not a CPU, the job also runs on the CPU.

The limit is the shortest time that a job could take. It is the largest of three times: that of its
floating-point operations at the speed of a float32 matrix product, that of its exponentials at the
speed of sums of exponentials, and that of its bytes at the speed of scaling a large vector. The
three speeds are measured here. The counts are lower bounds, so every job is at least as close to
its limit as stated.

"float32_vs_float64" is the largest difference between results from float32 and from float64 scores.

Jobs whose estimator works on the host, such as bootstraps, are marked "on_host": their time is that
of the host on any device. Images are random bytes. One step of ResNet-18 is timed, and an epoch has
as many steps as 50,000 images need.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import clone

import bayescal as bc
from benchmarks import provenance

RESULTS = Path(__file__).parent / "results"


class Job(NamedTuple):
    """A timed job: ``run(dtype)`` returns an array, and the counts are lower bounds."""

    name: str
    size: str
    run: Callable[[Any], Any]
    operations: float = 0.0
    bytes: float = 0.0
    exponentials: float = 0.0
    on_host: bool = False
    compares: bool = True
    #: Number of runs that make up one job.
    repeats: float = 1.0
    #: Number of calls that are queued before waiting for the results.
    queue: int = 1


def draw_logits(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw logits (n, k) and labels (n,)."""
    rng = np.random.default_rng(0)
    z = 3 * rng.standard_normal((n, k), np.float32)
    return z, np.argmax(z / 2 + rng.gumbel(size=z.shape).astype(np.float32), axis=1)


def jobs(quick: bool, cpu: bool) -> Iterator[Job]:
    """Yield the jobs; jobs that would take minutes on a CPU have fewer rows on a CPU."""
    import numpyro.distributions as dist

    divisor = 10 if quick else 1
    prior = bc.GaussianPrior(mu0=dist.Uniform(-2.5, 0), mu1=dist.Uniform(0, 2.5), sigma=1.0)
    rng = np.random.default_rng(0)
    new = np.linspace(-4, 4, 100)
    for sets in (1, 1000 // divisor):
        x = rng.normal(size=(sets, 50))
        y = (x > rng.normal(size=x.shape)).astype(int)

        def predict(dtype: Any, x: Any = x, y: Any = y) -> Any:
            data = (x.astype(dtype), y)
            return bc.posterior_predict(prior, data, new.astype(dtype), num_samples=100_000).probs

        # Weights of the draws times densities of two classes, which all data sets share.
        count = sets * 1e5 * len(new) * 4.0
        yield Job(
            f"posterior_predict {sets}",
            f"{sets} x 50 rows, 1e5 draws, 100 points",
            predict,
            operations=count,
            exponentials=2e5 * len(new),
        )

    def run_sweep(dtype: Any) -> Any:
        methods = ["platt", "ibls", "cauchy_map", "predictive", "optimal"]
        options: dict[str, Any] = {"n_train": [50], "num_datasets": 1000 // divisor, "n_test": 1000}
        sweep = bc.sweep({"apart": prior}, methods=methods, progress=False, **options)
        return np.asarray(sweep.value)

    yield Job("sweep", f"{1000 // divisor} data sets, 5 methods", run_sweep, compares=False)

    for n in (10_000 // divisor, 100_000 // divisor):
        x, y = rng.normal(size=n), rng.integers(0, 2, n)
        x[y == 1] += 1

        def smooth(dtype: Any, x: Any = x, y: Any = y) -> Any:
            return bc.smoothing.instance_targets(jnp.asarray(x, dtype), y)

        # Each pair of points needs a difference, a square, a sum, and an exponential.
        pairs = float(n) ** 2
        yield Job(f"instance_targets {n}", f"{n} points", smooth, 3 * pairs, exponentials=pairs)

    n, k = 100_000 // divisor, 100
    queries = (200 if cpu else 10_000) // divisor
    z, y = draw_logits(n, k)
    z = z / 3
    kernel = bc.Kernel(inputs="logits", bandwidth=0.1).fit(z, y)

    def predict_kernel(dtype: Any) -> Any:
        return kernel.predict_proba(z[:queries].astype(dtype))

    products = 4.0 * queries * n * k  # one product for the weights and one for the averages
    size = f"{n} x {k}, {queries} new rows"
    yield Job(
        "kernel", size, predict_kernel, products, 4.0 * n * k, exponentials=float(queries) * n
    )

    for n, k in ((1_000_000 // divisor, 10), (50_000 // divisor, 1000)):
        z, y = draw_logits(n, k)
        size = f"{n} x {k}"
        temperature = bc.Temperature(inputs="logits", classes=range(k))
        fitted = temperature.fit(z[:5000], y[:5000])
        reads = 4.0 * n * k

        fit = fit_run(temperature, "temperature_", z, y)
        yield Job(f"Temperature fit {size}", size, fit, bytes=3 * reads, on_host=cpu)
        yield function_job(f"Temperature f {size}", fitted, z, 2 * reads)
        if k == 10:
            yield Job(f"ece {size}", size, ece_run(z, y), bytes=reads, on_host=cpu)
            vector = bc.Vector(inputs="logits", classes=range(k))
            fit = fit_run(vector, "coef_", z, y)
            yield Job(f"Vector fit {size}", size, fit, bytes=6 * reads, on_host=cpu)
            stack = bc.StackedScaling(inputs="logits", random_state=0).fit(z[:5000], y[:5000])
            yield function_job(f"StackedScaling f {size}", stack, z, 2 * reads)

    n = (100_000 if cpu else 1_000_000) // divisor
    z, y = draw_logits(n, 100)
    fitted = bc.Temperature(inputs="logits").fit(z[:5000], y[:5000])
    yield function_job(f"f {n} x 100", fitted, z, 3 * 4.0 * z.size)  # the aim is three reads

    p, y = rng.uniform(0.01, 0.99, 100_000 // divisor), rng.integers(0, 2, 100_000 // divisor)

    def bootstrap(dtype: Any) -> Any:
        return bc.metrics.interval("ece", p.astype(dtype), y, method="bootstrap").standard_error

    size = f"{len(p)} rows, 1,000 replicates"
    yield Job("ece bootstrap", size, bootstrap, on_host=True, compares=False)
    yield resnet(quick, cpu)


def fit_run(calibrator: Any, attribute: str, z: np.ndarray, y: np.ndarray) -> Callable[[Any], Any]:
    """Create the ``run`` of a job that fits a calibrator and returns one of its attributes."""
    on_device = on_default_device(z)
    return lambda dtype: getattr(clone(calibrator).fit(on_device(dtype), y), attribute)


def ece_run(z: np.ndarray, y: np.ndarray) -> Callable[[Any], Any]:
    """Create the ``run`` of a job that computes the ECE of softmax probabilities."""
    e = np.exp(z - z.max(axis=1, keepdims=True))
    probs = e / e.sum(axis=1, keepdims=True)
    on_device = on_default_device(probs)
    return lambda dtype: bc.metrics.ece(on_device(dtype), y)


def on_default_device(z: np.ndarray) -> Callable[[Any], jax.Array]:
    """Create a function that returns the array on the default device, in a given precision.

    Only the array of the last call is kept.
    """
    arrays: dict[Any, jax.Array] = {}

    def on_device(dtype: Any) -> jax.Array:
        key = jax.config.jax_default_device, np.dtype(dtype)
        if key not in arrays:
            arrays.clear()
            arrays[key] = jnp.asarray(z, dtype)
        return arrays[key]

    return on_device


def function_job(name: str, fitted: Any, z: np.ndarray, moved: float) -> Job:
    """Create a job that applies a fitted calibrator as a compiled function."""
    apply = jax.jit(fitted.as_function())
    on_device = on_default_device(z)
    size = f"{len(z)} x {z.shape[1]}"
    return Job(name, size, lambda dtype: apply(on_device(dtype)), bytes=moved, queue=10)


def resnet(quick: bool, cpu: bool) -> Job:
    """Create a job that trains a ResNet-18 by one step."""
    from flax import nnx
    from optax import sgd

    from benchmarks.studies.training import ResNet18

    batch, width = (32, 8) if cpu else (512, 64)
    images = jnp.asarray(np.random.default_rng(0).random((batch, 32, 32, 3), np.float32))
    labels = jnp.arange(batch) % 10
    state: list[Any] = []

    def loss(model: Any) -> Any:
        return bc.losses.cross_entropy(model(images), labels)

    @nnx.jit
    def step(model: Any, optimizer: Any) -> Any:
        value, gradients = nnx.value_and_grad(loss)(model)
        optimizer.update(model, gradients)
        return value

    def run(dtype: Any) -> Any:
        if not state:
            model = ResNet18(10, width=width, rngs=nnx.Rngs(0))
            state.extend((model, nnx.Optimizer(model, sgd(0.01), wrt=nnx.Param)))
        return step(*state)

    size = f"50,000 images 32 x 32 x 3, width {width}, batches of {batch}"
    return Job("ResNet-18 epoch", size, run, compares=False, repeats=50_000 / batch)


def timed(run: Callable[[], Any], queue: int = 1) -> tuple[float, float]:
    """Time the first call, and compute the median of later calls, with ``queue`` calls at once."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    first = time.perf_counter() - start
    seconds: list[float] = []
    while not seconds or (len(seconds) < 5 and sum(seconds) * queue < 4):
        start = time.perf_counter()
        jax.block_until_ready([run() for _ in range(queue)])
        seconds.append((time.perf_counter() - start) / queue)
    return first, statistics.median(seconds)


def busy(run: Callable[[], Any]) -> float | None:
    """Add up the time that the device works during one call, from JAX's profiler."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(run())
        files = list(Path(folder).rglob("*.xplane.pb"))
        planes = jax.profiler.ProfileData.from_file(str(files[0])).planes if files else []
        events = [
            event.duration_ns
            for plane in planes
            if plane.name.startswith("/device:")
            for line in plane.lines
            if line.name.startswith(("Stream", "XLA Ops"))
            for event in line.events
        ]
    return sum(events) / 1e9 if events else None


def limits() -> dict[str, float]:
    """Measure operations, exponentials and bytes per second."""
    n = 4096
    a = jnp.ones((n, n), jnp.float32)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    terms, sums = jnp.linspace(0, 1, 1 << 12), jnp.linspace(0, 1, 1 << 14)
    exponentials = jax.jit(lambda x, y: jnp.sum(jnp.exp(x[:, None] * -y), axis=0))
    v = jnp.ones(1 << 27, jnp.float32)
    scale = jax.jit(lambda v: 2 * v)
    return {
        "operations_per_s": 2 * n**3 / timed(lambda: product(a))[1],
        "exponentials_per_s": (1 << 26) / timed(lambda: exponentials(terms, sums), 10)[1],
        "bytes_per_s": 2 * v.nbytes / timed(lambda: scale(v))[1],
    }


def measure(job: Job, speed: dict[str, float], device: Any) -> dict[str, Any]:
    # Queued calls are not faster on a CPU, and would compete for memory.
    """Time a job on the device and on the CPU, and compare it with its limit."""
    queue = 1 if device.platform == "cpu" else job.queue
    first, run = timed(lambda: job.run(np.float32), queue)
    row: dict[str, Any] = {"job": job.name, "size": job.size, "on_host": job.on_host}
    row |= {"compile_s": max(first - run, 0.0), "run_s": run * job.repeats, "cpu_run_s": None}
    limit_s = {
        "arithmetic": job.operations / speed["operations_per_s"],
        "exponentials": job.exponentials / speed["exponentials_per_s"],
        "bytes": job.bytes / speed["bytes_per_s"],
    }
    limit = max(limit_s, key=lambda name: limit_s[name])
    if limit_s[limit] > 0 and not job.on_host:
        row |= {"limit": limit, "limit_s": limit_s[limit], "share_of_limit": limit_s[limit] / run}
    if device.platform != "cpu":
        row["busy_s"] = busy(lambda: job.run(np.float32))
        with jax.default_device(jax.devices("cpu")[0]):
            row["cpu_run_s"] = timed(lambda: job.run(np.float32))[1] * job.repeats
    if job.compares:
        single = np.asarray(job.run(np.float32), float)
        with jax.enable_x64(True):
            double = np.asarray(job.run(np.float64), float)
        row["float32_vs_float64"] = float(np.abs(single - double).max())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument(
        "--only", nargs="*", help="run only jobs whose names begin with one of these"
    )
    parser.add_argument("--json", type=Path, help="default, for all jobs in full: device_X.json")
    options = parser.parse_args()
    device = jax.devices()[0]
    speed = limits()
    environment = {
        "device": device.device_kind,
        "platform": device.platform,
        "devices": jax.local_device_count(),
        **speed,
    }
    print(json.dumps(environment))
    rows: list[dict[str, Any]] = []
    name = {"gpu": "cuda"}.get(device.platform, device.platform)
    full = not (options.quick or options.only)
    path = options.json or (RESULTS / f"device_{name}.json" if full else None)
    for job in jobs(options.quick, device.platform == "cpu"):
        if options.only and not job.name.startswith(tuple(options.only)):
            continue
        try:
            row = measure(job, speed, device)
        except Exception as error:  # continue with the other jobs
            row = {"job": job.name, "size": job.size, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(row), flush=True)
        rows.append(row)
        if path is not None:
            # Write after each job, because the machine may have a time limit.
            provenance.write(path, {"environment": environment, "rows": rows}, ["flax", "optax"])


if __name__ == "__main__":
    main()
