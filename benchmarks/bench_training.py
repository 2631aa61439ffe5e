"""Throughput of training: one run, many at once, and a plain loop of one jitted step per batch.

    python -m benchmarks.bench_training [--json FILE] [--quick]

Digits are scikit-learn's (8x8x1, 10 classes). Images for ResNet-18 are RANDOM bytes with random
labels, of the shapes of CIFAR-10 (32x32x3, 10 classes): its losses say only whether two ways of
training agree. On a GPU it has width 64, batches of 512 and products in bfloat16; elsewhere it has
width 8 and few images, and products are in float32.

The plain loop is what one would write with Flax and optax: the same network, start, order of rows,
optimizer, measurement on validation rows and choice of the best epoch, with one call for each batch
and one wait for the device in each epoch. It makes the same steps as ``train``, but for rounding:
losses of training are equal in the first epoch, and later as far as a network does not amplify
rounding, as ResNet-18 does.

Each line is a process of its own. "Compile" is what JAX reports of its compiler; "set-up" all
before the epochs: tracing, compiling, and moving data to the device. An epoch is the median of
those after the first, its validation included. TFLOP/s counts multiplications and additions of the
products of training, three times those of a forward pass (the loss, and the gradients by inputs and
by weights), and neither validation nor anything else. "Of limit" is the share of the published
limit of dense products in bfloat16, for devices that are known here.
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

#: TFLOP/s of dense products in bfloat16, published by the maker, by JAX's name of the device.
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
    sizes = features, *hidden, classes
    return sum(a * b for a, b in itertools.pairwise(sizes))


def of_student(classes: int, channels: int, width: int, side: int) -> int:
    half, quarter = side // 2, side // 4
    convolutions = side**2 * channels + half**2 * 2 * width + quarter**2 * 8 * width
    return 9 * width * convolutions + 4 * width * (4 * width + classes)


def of_resnet18(classes: int, channels: int, width: int, side: int) -> int:
    total, inputs = 9 * side**2 * channels * width, width
    for outputs in (width, 2 * width, 4 * width, 8 * width):
        if outputs > inputs:
            side = (side + 1) // 2
            total += side**2 * inputs * outputs
        total += 9 * side**2 * (inputs + 3 * outputs) * outputs
        inputs = outputs
    return total + inputs * classes


# --- what is trained ------------------------------------------------------------------------------


class Task(NamedTuple):
    """A network, its data, and how it is trained; ``many`` is a number of runs, or none."""

    name: str
    make: Callable[[nnx.Rngs], nnx.Module]
    data: TrainingData
    multiply_adds: int
    batch: int
    epochs: int
    many: int | None
    products: str = "float32"


def digits() -> TrainingData:
    split = load_images("digits").split()
    rows = 1024  # whole batches
    train_rows = split.train_images[:rows], split.train_labels[:rows]
    # Bytes are divided by 255; values of digits end at 16.
    return TrainingData(*train_rows, split.validation_images, split.validation_labels, 0.02, 0.024)


def random_images(rows: int, validation: int) -> TrainingData:
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(rows + validation, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(10, size=len(images))
    return TrainingData(images[:rows], labels[:rows], images[rows:], labels[rows:], 0.5, 0.25)


def mlp(quick: bool, gpu: bool) -> Task:
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


# --- two ways to train it -------------------------------------------------------------------------


class Outcome(NamedTuple):
    """When each epoch ended, in seconds; losses of training and of validation, of the first run."""

    ended: list[float]
    train_loss: np.ndarray
    log_loss: np.ndarray


def optimizer() -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE, momentum=MOMENTUM))


def by_train(task: Task, runs: int = 1) -> Outcome:
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
    data = task.data
    x, y, x_validation, y_validation = map(jnp.asarray, data[:4])
    # How train begins, and orders rows, with seed 0.
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


def worker(make: Callable[[bool, bool], Task], way: str, quick: bool) -> dict[str, Any]:
    """Train once in this process, and say how fast."""
    device = jax.devices()[0]
    task = make(quick, device.platform == "gpu")
    compiling: defaultdict[str, float] = defaultdict(float)

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        compiling[event] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    runs = task.many if way == MANY and task.many else 1
    start = time.perf_counter()
    found = by_hand(task) if way == PLAIN else by_train(task, runs)
    gaps = np.diff(found.ended)
    epoch = statistics.median(gaps)
    rate = runs * len(task.data.train_inputs) / epoch
    speed = rate * 6 * task.multiply_adds / 1e12
    row = {
        "task": task.name,
        "way": way,
        "products": task.products,
        "runs": runs,
        "images": len(task.data.train_inputs),
        "validation_images": len(task.data.validation_inputs),
        "batch": task.batch,
        "epochs": task.epochs,
        "multiply_adds_forward": task.multiply_adds,
        "compile_s": compiling["/jax/core/compile/backend_compile_duration"],
        "setup_s": found.ended[0] - start - epoch,
        "epoch_s": epoch,
        "fastest_epoch_s": min(gaps),
        "slowest_epoch_s": max(gaps),
        "images_per_s": rate,
        "tflop_per_s": speed,
        "first_train_loss": found.train_loss[0].item(),
        "train_loss": found.train_loss[-1].item(),
        "validation_log_loss": found.log_loss[-1].item(),
        "device": f"{device.platform} {device.device_kind}",
    }
    if task.products == "bfloat16" and device.device_kind in LIMITS:
        row["of_limit"] = speed / LIMITS[device.device_kind]
    return row


# --- all of it ------------------------------------------------------------------------------------


def in_process(number: int, quick: bool) -> dict[str, Any]:
    """Measure one entry in a fresh process, which compiles all it needs."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.bench_training",
        "--worker",
        str(number),
        *["--quick"] * quick,
    ]
    own = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=own)
    if done.returncode:
        raise SystemExit(f"entry {number} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"Training on {rows[0]['device']}",
        caption="ResNet-18 is trained on random images with random labels.",
    )
    names = "task", "products", "way", "runs", "compile, s", "set-up, s", "epoch, s", "images/s"
    for heading in (*names, "beside plain", "TFLOP/s", "of limit", "first loss", "last loss"):
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
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--quick", action="store_true", help="fewer images, runs and epochs")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        make, way = ENTRIES[options.worker]
        found = worker(make, way, options.quick)
        sys.stdout.write(json.dumps(found) + "\n")
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
        facts = {"environment": environment, "quick": options.quick, "rows": rows}
        provenance.write(options.json, facts, ["flax", "optax"])


if __name__ == "__main__":
    main()
