"""Measure the throughput of training: one run, many runs at once, and a plain loop over batches.

    python -m benchmarks.bench_training [--json FILE] [--quick]

Digits are those of scikit-learn (8x8x1, 10 classes). Images for ResNet-18 are RANDOM bytes with
random labels, in the shape of CIFAR-10 (32x32x3, 10 classes): their losses only show whether two
methods of training agree. On a GPU, ResNet-18 has width 64, batches of 512 and products in
bfloat16; elsewhere it has width 8, few images, and products in float32.

The plain loop is what one would write with Flax and optax: the same network, initialization, order
of rows, optimizer, validation and choice of the best epoch, with one call of a compiled step for
each batch, and one synchronization with the device in each epoch. Its steps equal those of
``train`` up to rounding. Training losses are equal in the first epoch, and also later unless a
network amplifies rounding errors, as ResNet-18 does.

Each row is measured in a fresh process. "Compile" is what JAX reports of its compiler. "Set-up" is
the time before the epochs: tracing, compiling, and moving data to the device. The time of an epoch
is a median over epochs after the first, including validation. TFLOP/s counts only multiplications
and additions of the matrix products of training: three times those of a forward pass (the loss, and
the gradients with respect to inputs and to weights). It does not count validation. "Of limit" is
relative to the published limit of dense products in bfloat16, for the devices that are listed here.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from bayescal.losses import cross_entropy
from benchmarks import provenance
from benchmarks.studies.training import MLP, ResNet18, Student, TrainingData, load_images, train

#: Published TFLOP/s of dense products in bfloat16, by JAX's name of the device.
LIMITS = {
    "NVIDIA H200": 989,
    "NVIDIA H100 80GB HBM3": 989,
    "NVIDIA A100-SXM4-40GB": 312,
    "NVIDIA A100-SXM4-80GB": 312,
    "NVIDIA A100-PCIE-40GB": 312,
    "NVIDIA A100 80GB PCIe": 312,
    "NVIDIA L4": 121,
    "NVIDIA GeForce RTX 4090": 165,
}
RATE, MOMENTUM, DECAY = 0.02, 0.9, 1e-4
ONE, PLAIN, MANY = "train", "plain loop", "train, many runs"


# --- multiply-adds of one forward pass, for one image --------------------------------------------


def of_mlp(features: int, hidden: tuple[int, ...], classes: int) -> int:
    """Count the multiply-adds of a multi-layer perceptron."""
    sizes = features, *hidden, classes
    return sum(a * b for a, b in itertools.pairwise(sizes))


def of_student(classes: int, channels: int, width: int, side: int) -> int:
    """Count the multiply-adds of a student network."""
    half, quarter = side // 2, side // 4
    convolutions = side**2 * channels + half**2 * 2 * width + quarter**2 * 8 * width
    return 9 * width * convolutions + 4 * width * (4 * width + classes)


def of_resnet18(classes: int, channels: int, width: int, side: int) -> int:
    """Count the multiply-adds of a ResNet-18."""
    total, inputs = 9 * side**2 * channels * width, width
    for outputs in (width, 2 * width, 4 * width, 8 * width):
        if outputs > inputs:
            side = (side + 1) // 2
            total += side**2 * inputs * outputs
        total += 9 * side**2 * (inputs + 3 * outputs) * outputs
        inputs = outputs
    return total + inputs * classes


# --- tasks ----------------------------------------------------------------------------------------


class Task(NamedTuple):
    """A network, its data, and training options; ``many`` is a number of runs, or None."""

    name: str
    make: Callable[[nnx.Rngs], nnx.Module]
    data: TrainingData
    multiply_adds: int
    batch: int
    epochs: int
    many: int | None
    products: str = "float32"


def digits() -> TrainingData:
    """Load the digits as whole batches of training rows and validation rows."""
    split = load_images("digits").split()
    rows = 1024  # whole batches
    train_rows = split.train_images[:rows], split.train_labels[:rows]
    # Inputs are divided by 255, but the largest value of digits is 16.
    return TrainingData(*train_rows, split.validation_images, split.validation_labels, 0.02, 0.024)


def random_images(rows: int, validation: int) -> TrainingData:
    """Draw random images with random labels."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(rows + validation, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(10, size=len(images))
    return TrainingData(images[:rows], labels[:rows], images[rows:], labels[rows:], 0.5, 0.25)


def mlp(quick: bool, gpu: bool) -> Task:
    """Create the task of a perceptron on digits."""
    return Task(
        "MLP 64-64-10, digits",
        lambda rngs: MLP(64, (64,), 10, rngs=rngs),
        digits(),
        of_mlp(64, (64,), 10),
        batch=128,
        epochs=5 if quick else 50,
        many=8 if quick else 64,
    )


def student(quick: bool, gpu: bool) -> Task:
    """Create the task of a student network on digits."""
    return Task(
        "Student, digits",
        lambda rngs: Student(10, 1, rngs=rngs),
        digits(),
        of_student(10, 1, 32, 8),
        batch=128,
        epochs=3 if quick else 10,
        many=2 if quick else (64 if gpu else 8),
    )


def resnet18(quick: bool, gpu: bool) -> Task:
    """Create the task of a ResNet-18 on random images."""
    width, batch = (64, 512) if gpu else (8, 64)
    rows = (10_240 if quick else 51_200) if gpu else 256
    return Task(
        f"ResNet-18 of width {width}, random images",
        lambda rngs: ResNet18(10, 3, width, dtype=jnp.bfloat16 if gpu else None, rngs=rngs),
        random_images(rows, batch),
        of_resnet18(10, 3, width, 32),
        batch=batch,
        epochs=3 if quick else 8,
        many=None,
        products="bfloat16" if gpu else "float32",
    )


ENTRIES: list[tuple[Callable[[bool, bool], Task], str]] = [
    *itertools.product((mlp, student), (ONE, PLAIN, MANY)),
    *itertools.product((resnet18,), (ONE, PLAIN)),
]


# --- two methods of training ----------------------------------------------------------------------


class Outcome(NamedTuple):
    """End of each epoch in seconds, and training and validation losses of the first run."""

    ended: list[float]
    train_loss: np.ndarray
    log_loss: np.ndarray


def optimizer() -> optax.GradientTransformation:
    """Create the optimizer: gradient descent with momentum and weight decay."""
    return optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE, momentum=MOMENTUM))


def by_train(task: Task, runs: int = 1) -> Outcome:
    """Train with ``train``."""
    ended = []
    trained = train(
        task.make,
        task.data,
        loss=lambda logits, labels, weights, extras, run: cross_entropy(
            logits, labels, weights=weights
        ),
        seeds=range(runs),
        epochs=task.epochs,
        batch_size=task.batch,
        optimizer=optimizer(),
        patience=task.epochs,
        vectorize=True,
        progress=lambda *_: ended.append(time.perf_counter()),
    )
    history = trained.history
    return Outcome(ended, history["train_loss"][0], history["validation_log_loss"][0])


def by_hand(task: Task) -> Outcome:
    """Train with a plain loop."""
    data = task.data
    x, y, x_validation, y_validation = map(jnp.asarray, data[:4])
    # The initialization and the order of rows equal those of train with seed 0.
    key = jax.random.key(0)
    network = task.make(nnx.Rngs(jax.random.fold_in(key, 0)))
    network.eval()
    evaluating = nnx.graphdef(network)
    network.train()
    training, params, rest = nnx.split(network, nnx.Param, ...)
    update = optimizer()

    def normalize(images: jax.Array) -> jax.Array:
        return (images.astype(jnp.result_type(float)) / 255 - data.mean) / data.std

    def losses(logits: jax.Array, labels: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @jax.jit
    def step(params: Any, rest: Any, state: Any, rows: Any, x: Any, y: Any) -> Any:
        def objective(params: Any) -> Any:
            network = nnx.merge(training, params, rest, copy=True)
            value = losses(network(normalize(x[rows])), y[rows])
            return value, nnx.split(network, nnx.Param, ...)[2]

        (value, changed), gradient = jax.value_and_grad(objective, has_aux=True)(params)
        updates, state = update.update(gradient, state, params)
        return optax.apply_updates(params, updates), changed, state, value

    @jax.jit
    def validate(params: Any, rest: Any, x: Any, y: Any) -> Any:
        logits = nnx.merge(evaluating, params, rest, copy=True)(normalize(x))
        return losses(logits, y), (logits.argmax(axis=1) == y).mean()

    state = update.init(params)
    best = np.inf, params, rest
    ended, train_loss, log_loss = [], [], []
    for epoch in range(task.epochs):
        order = jax.random.permutation(
            jax.random.fold_in(jax.random.fold_in(key, 1), epoch), len(x)
        )
        values = []
        for rows in np.asarray(order).reshape(-1, task.batch):
            params, rest, state, value = step(params, rest, state, rows, x, y)
            values.append(value)
        measured, _ = validate(params, rest, x_validation, y_validation)
        train_loss.append(np.mean(jax.device_get(values)))
        log_loss.append(float(measured))
        if log_loss[-1] < best[0]:
            best = log_loss[-1], params, rest
        ended.append(time.perf_counter())
    return Outcome(ended, np.array(train_loss), np.array(log_loss))


def worker(make: Callable[[bool, bool], Task], method: str, quick: bool) -> dict[str, Any]:
    """Train once in this process, and measure the speed."""
    device = jax.devices()[0]
    task = make(quick, device.platform == "gpu")
    compile_seconds: defaultdict[str, float] = defaultdict(float)

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        compile_seconds[event] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    runs = task.many if method == MANY and task.many else 1
    start = time.perf_counter()
    outcome = by_hand(task) if method == PLAIN else by_train(task, runs)
    epoch_times = np.diff(outcome.ended)
    epoch = statistics.median(epoch_times)
    rate = runs * len(task.data.train_inputs) / epoch
    speed = rate * 6 * task.multiply_adds / 1e12
    row = {
        "task": task.name,
        "way": method,
        "products": task.products,
        "runs": runs,
        "images": len(task.data.train_inputs),
        "validation_images": len(task.data.validation_inputs),
        "batch": task.batch,
        "epochs": task.epochs,
        "multiply_adds_forward": task.multiply_adds,
        "compile_s": compile_seconds["/jax/core/compile/backend_compile_duration"],
        "setup_s": outcome.ended[0] - start - epoch,
        "epoch_s": epoch,
        "fastest_epoch_s": min(epoch_times),
        "slowest_epoch_s": max(epoch_times),
        "images_per_s": rate,
        "tflop_per_s": speed,
        "first_train_loss": outcome.train_loss[0].item(),
        "train_loss": outcome.train_loss[-1].item(),
        "validation_log_loss": outcome.log_loss[-1].item(),
        "device": f"{device.platform} {device.device_kind}",
    }
    if task.products == "bfloat16" and device.device_kind in LIMITS:
        row["of_limit"] = speed / LIMITS[device.device_kind]
    return row


# --- processes and tables -------------------------------------------------------------------------


def in_process(number: int, quick: bool) -> dict[str, Any]:
    """Measure one entry in a fresh process without a compilation cache."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.bench_training",
        "--worker",
        str(number),
        *["--quick"] * quick,
    ]
    environment = {
        key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"
    }
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if process.returncode:
        raise SystemExit(f"entry {number} failed:\n{process.stderr}")
    return json.loads(process.stdout.splitlines()[-1])


def show(rows: list[dict[str, Any]]) -> None:
    """Print the results as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"Training on {rows[0]['device']}",
        caption="ResNet-18 is trained on random images with random labels.",
    )
    names = "task", "products", "method", "runs", "compile, s", "set-up, s", "epoch, s", "images/s"
    for heading in (*names, "relative to plain", "TFLOP/s", "of limit", "first loss", "last loss"):
        table.add_column(heading, justify="left" if heading in names[:3] else "right")
    for row in rows:
        table.add_row(
            *(str(row[name]) for name in ("task", "products", "way", "runs")),
            f"{row['compile_s']:.2f}",
            f"{row['setup_s']:.2f}",
            f"{row['epoch_s']:.4f}",
            f"{row['images_per_s']:,.0f}",
            f"{row['beside_plain']:.2f}",
            f"{row['tflop_per_s']:.3g}",
            f"{row['of_limit']:.1%}" if "of_limit" in row else "",
            f"{row['first_train_loss']:.6f}",
            f"{row['train_loss']:.6f}",
        )
    Console(width=180).print(table)


def main() -> None:
    """Measure all entries, and print a table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--quick", action="store_true", help="fewer images, runs and epochs")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        make, method = ENTRIES[options.worker]
        row = worker(make, method, options.quick)
        sys.stdout.write(json.dumps(row) + "\n")
        return
    rows = [in_process(number, options.quick) for number in range(len(ENTRIES))]
    plain = {row["task"]: row["images_per_s"] for row in rows if row["way"] == PLAIN}
    for row in rows:
        row["beside_plain"] = row["images_per_s"] / plain[row["task"]]
    show(rows)
    if options.json:
        environment = {
            "device": rows[0]["device"],
        }
        results = {"environment": environment, "quick": options.quick, "rows": rows}
        provenance.write(options.json, results, ["flax", "optax"])


if __name__ == "__main__":
    main()
