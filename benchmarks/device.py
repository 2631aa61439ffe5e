"""Time of every accelerated job on the device that JAX finds, beside a processor and the limit.

    python -m benchmarks.device [--quick] [--only NAME ...] [--json FILE]

Compile is the first call of a process less the median of later ones; run is that median, for
functions of ten queued calls where the device is no processor; busy is the time for which the
device works in one call. The limit is the least time that the job's operations take at the speed of
a product of matrices in float32, its exponentials at that of sums of them, or its bytes at that of
scaling a large vector, all measured here: whichever is longest. The counts are lower bounds, so a
job is at least as close to its limit as stated. If the device is not a CPU, the job also runs on
the CPU.
Precision is the greatest difference between answers from float32 and from float64 scores.

Jobs of which the estimator works on the host, as bootstraps do, are marked so: their time is the
host's, whatever the device. Images are random bytes; a step of ResNet-18 is timed, and an epoch is
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
    """What is timed: ``run(dtype)`` returns an array; the other numbers from below."""

    name: str
    size: str
    run: Callable[[Any], Any]
    operations: float = 0.0
    bytes: float = 0.0
    exponentials: float = 0.0
    on_host: bool = False
    compares: bool = True
    #: Of what ``run`` does, so many are one job.
    repeats: float = 1.0
    #: Calls that are queued before the result is waited for.
    queue: int = 1


def logits_of(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    z = 3 * rng.standard_normal((n, k), np.float32)
    return z, np.argmax(z / 2 + rng.gumbel(size=z.shape).astype(np.float32), axis=1)


def jobs(quick: bool, processor: bool) -> Iterator[Job]:
    """Yield the jobs; sizes that a processor would take minutes for are smaller there."""
    import numpyro.distributions as dist

    small = 10 if quick else 1
    prior = bc.GaussianPrior(mu0=dist.Uniform(-2.5, 0), mu1=dist.Uniform(0, 2.5), sigma=1.0)
    rng = np.random.default_rng(0)
    new = np.linspace(-4, 4, 100)
    for sets in (1, 1000 // small):
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

    def study(dtype: Any) -> Any:
        methods = ["platt", "ibls", "cauchy_map", "predictive", "optimal"]
        options: dict[str, Any] = {"n_train": [50], "num_datasets": 1000 // small, "n_test": 1000}
        found = bc.sweep({"apart": prior}, methods=methods, progress=False, **options)
        return np.asarray(found.value)

    yield Job("sweep", f"{1000 // small} data sets, 5 methods", study, compares=False)

    for n in (10_000 // small, 100_000 // small):
        x, y = rng.normal(size=n), rng.integers(0, 2, n)
        x[y == 1] += 1

        def smooth(dtype: Any, x: Any = x, y: Any = y) -> Any:
            return bc.smoothing.instance_targets(jnp.asarray(x, dtype), y)

        # A kernel of each pair of points: a difference, a square, a sum, and an exponential.
        pairs = float(n) ** 2
        yield Job(f"instance_targets {n}", f"{n} points", smooth, 3 * pairs, exponentials=pairs)

    n, k = 100_000 // small, 100
    queries = (200 if processor else 10_000) // small
    z, y = logits_of(n, k)
    z = z / 3
    kernel = bc.Kernel(inputs="logits", bandwidth=0.1).fit(z, y)

    def average(dtype: Any) -> Any:
        return kernel.predict_proba(z[:queries].astype(dtype))

    products = 4.0 * queries * n * k  # of points for the weights, and of weights for the averages
    size = f"{n} x {k}, {queries} new rows"
    yield Job("kernel", size, average, products, 4.0 * n * k, exponentials=float(queries) * n)

    for n, k in ((1_000_000 // small, 10), (50_000 // small, 1000)):
        z, y = logits_of(n, k)
        size = f"{n} x {k}"
        temperature = bc.Temperature(inputs="logits", classes=range(k))
        fitted = temperature.fit(z[:5000], y[:5000])
        reads = 4.0 * n * k

        fit = fitting(temperature, "temperature_", z, y)
        yield Job(f"Temperature fit {size}", size, fit, bytes=3 * reads, on_host=processor)
        yield function_job(f"Temperature f {size}", fitted, z, 2 * reads)
        if k == 10:
            yield Job(f"ece {size}", size, judged(z, y), bytes=reads, on_host=processor)
            vector = bc.Vector(inputs="logits", classes=range(k))
            fit = fitting(vector, "coef_", z, y)
            yield Job(f"Vector fit {size}", size, fit, bytes=6 * reads, on_host=processor)
            stack = bc.StackedScaling(inputs="logits", random_state=0).fit(z[:5000], y[:5000])
            yield function_job(f"StackedScaling f {size}", stack, z, 2 * reads)

    n = (100_000 if processor else 1_000_000) // small
    z, y = logits_of(n, 100)
    fitted = bc.Temperature(inputs="logits").fit(z[:5000], y[:5000])
    yield function_job(f"f {n} x 100", fitted, z, 3 * 4.0 * z.size)  # three reads are the aim

    p, y = rng.uniform(0.01, 0.99, 100_000 // small), rng.integers(0, 2, 100_000 // small)

    def bootstrap(dtype: Any) -> Any:
        return bc.metrics.interval("ece", p.astype(dtype), y, method="bootstrap").standard_error

    size = f"{len(p)} rows, 1,000 replicates"
    yield Job("ece bootstrap", size, bootstrap, on_host=True, compares=False)
    yield resnet(quick, processor)


def fitting(calibrator: Any, attribute: str, z: np.ndarray, y: np.ndarray) -> Callable[[Any], Any]:
    on_device = held(z)
    return lambda dtype: getattr(clone(calibrator).fit(on_device(dtype), y), attribute)


def judged(z: np.ndarray, y: np.ndarray) -> Callable[[Any], Any]:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    probs = e / e.sum(axis=1, keepdims=True)
    on_device = held(probs)
    return lambda dtype: bc.metrics.ece(on_device(dtype), y)


def held(z: np.ndarray) -> Callable[[Any], jax.Array]:
    """Keep an array on the device that is the default, in the precision asked for last."""
    arrays: dict[Any, jax.Array] = {}

    def on_device(dtype: Any) -> jax.Array:
        place = jax.config.jax_default_device, np.dtype(dtype)
        if place not in arrays:
            arrays.clear()
            arrays[place] = jnp.asarray(z, dtype)
        return arrays[place]

    return on_device


def function_job(name: str, fitted: Any, z: np.ndarray, moved: float) -> Job:
    apply = jax.jit(fitted.as_function())
    on_device = held(z)
    size = f"{len(z)} x {z.shape[1]}"
    return Job(name, size, lambda dtype: apply(on_device(dtype)), bytes=moved, queue=10)


def resnet(quick: bool, processor: bool) -> Job:
    from flax import nnx
    from optax import sgd

    from benchmarks.studies.training import ResNet18

    batch, width = (32, 8) if processor else (512, 64)
    images = jnp.asarray(np.random.default_rng(0).random((batch, 32, 32, 3), np.float32))
    labels = jnp.arange(batch) % 10
    held: list[Any] = []

    def loss(model: Any) -> Any:
        return bc.losses.cross_entropy(model(images), labels)

    @nnx.jit
    def step(model: Any, optimizer: Any) -> Any:
        value, slopes = nnx.value_and_grad(loss)(model)
        optimizer.update(model, slopes)
        return value

    def run(dtype: Any) -> Any:
        if not held:
            model = ResNet18(10, width=width, rngs=nnx.Rngs(0))
            held.extend((model, nnx.Optimizer(model, sgd(0.01), wrt=nnx.Param)))
        return step(*held)

    size = f"50,000 images 32 x 32 x 3, width {width}, batches of {batch}"
    return Job("ResNet-18 epoch", size, run, compares=False, repeats=50_000 / batch)


def timed(run: Callable[[], Any], queue: int = 1) -> tuple[float, float]:
    """Time the first call, and take the median of later ones, of which ``queue`` run at once."""
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
    """Add up the time that the device works in one call, from JAX's profiler."""
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
    """Return operations, exponentials and bytes per second, as measured."""
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
    # A processor gains nothing from a queue, and its calls would compete for memory.
    queue = 1 if device.platform == "cpu" else job.queue
    first, run = timed(lambda: job.run(np.float32), queue)
    row: dict[str, Any] = {"job": job.name, "size": job.size, "on_host": job.on_host}
    row |= {"compile_s": max(first - run, 0.0), "run_s": run * job.repeats, "cpu_run_s": None}
    needs = {
        "arithmetic": job.operations / speed["operations_per_s"],
        "exponentials": job.exponentials / speed["exponentials_per_s"],
        "bytes": job.bytes / speed["bytes_per_s"],
    }
    kind = max(needs, key=lambda name: needs[name])
    if needs[kind] > 0 and not job.on_host:
        row |= {"limit": kind, "limit_s": needs[kind], "share_of_limit": needs[kind] / run}
    if device.platform != "cpu":
        row["busy_s"] = busy(lambda: job.run(np.float32))
        with jax.default_device(jax.devices("cpu")[0]):
            row["cpu_run_s"] = timed(lambda: job.run(np.float32))[1] * job.repeats
    if job.compares:
        narrow = np.asarray(job.run(np.float32), float)
        with jax.enable_x64(True):
            wide = np.asarray(job.run(np.float64), float)
        row["float32_vs_float64"] = float(np.abs(narrow - wide).max())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--only", nargs="*", help="only jobs whose names begin so")
    parser.add_argument("--json", type=Path, help="by default benchmarks/results/device_X.json")
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
    path = options.json or RESULTS / f"device_{name}.json"
    for job in jobs(options.quick, device.platform == "cpu"):
        if options.only and not job.name.startswith(tuple(options.only)):
            continue
        try:
            row = measure(job, speed, device)
        except Exception as error:  # the others are measured all the same
            row = {"job": job.name, "size": job.size, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(row), flush=True)
        rows.append(row)
        # After each job, for the machine may have a time limit.
        provenance.write(path, {"environment": environment, "rows": rows}, ["flax", "optax"])


if __name__ == "__main__":
    main()
