"""Training losses of the networks in the study, written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from benchmarks.studies import networks, training
from benchmarks.studies.training import made_images

Array = np.ndarray


class Pretended:
    """A training result whose networks predict nothing useful."""

    def __init__(self, runs: Any, seeds: Any) -> None:
        count = len(seeds) * (1 if runs is None else len(next(iter(runs.values()))))
        self.best_epoch, self.status = np.zeros(count, int), np.full(count, "stopped")
        self.history = {"validation_log_loss": np.ones((count, 1))}
        self.seconds = {"train": 1.0}

    def logits(self, images: Array) -> Array:
        rng = np.random.default_rng(0)
        return rng.normal(size=(len(self.best_epoch), len(images), 4)).astype(np.float32)


@pytest.mark.parametrize("options", [{}, {"temperature": 3.0, "share": 0.2}])
def test_losses(options: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses: list[Any] = []

    def train(make_network: Any, data: Any, **options: Any) -> Pretended:
        losses.append(options["loss"])
        return Pretended(options["runs"], options["seeds"])

    monkeypatch.setattr(training, "train", train, raising=False)
    images = made_images(train=60, test=30, classes=4, size=8)
    networks.run(
        "made",
        tmp_path,
        images=images,
        seeds=1,
        smoothing=(0.1,),
        offsets=(1,),
        projection="pca",
        **options,  # type: ignore[arg-type]
    )
    rng = np.random.default_rng(1)
    z, v = 2 * rng.normal(size=(2, 6, 4)).astype(np.float32)
    y, w = np.array([0, 1, 2, 3, 1, 0]), rng.uniform(0.5, 2, 6).astype(np.float32)
    run = {"smoothing": 0.2, "offset": 3.0, "teacher": 0}
    extras = {"teacher": jnp.asarray(v)}
    given = jnp.asarray(z), jnp.asarray(y), jnp.asarray(w), extras, run

    def mean(rows: Array) -> float:
        return float(w @ rows / w.sum())

    logs = log_softmax(z.astype(float), axis=1)
    plain = -logs[np.arange(6), y]
    t, share = options.get("temperature", 2.0), options.get("share", 0.5)
    soft = -(softmax(v / t, axis=1) * log_softmax(z / t, axis=1)).sum(axis=1)
    expected = [plain, 0.8 * plain - 0.2 * logs.mean(axis=1)]
    result = [float(loss(*given)) for loss in losses]
    assert result[:2] == pytest.approx([mean(rows) for rows in expected], rel=1e-5)
    assert result[3] == pytest.approx(mean(share * t**2 * soft + (1 - share) * plain), rel=1e-5)
    # The moved mass and its distribution follow logits that start at the offset.
    far = v.astype(float) - v.min(axis=1, keepdims=True) + 3.0
    label_values = far[np.arange(6), y]
    moved = 0.2 * label_values / far.sum(axis=1)
    targets = moved[:, None] * far / (far.sum(axis=1) - label_values)[:, None]
    targets[np.arange(6), y] = 1 - moved
    assert result[2] == pytest.approx(mean(-(targets * logs).sum(axis=1)), rel=1e-5)
