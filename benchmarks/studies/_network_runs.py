"""Train teachers with and without smoothing, and their students, and measure both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from bayescal import metrics
from bayescal._core.numerics import softmax
from bayescal._core.warnings import ignored
from bayescal.losses import (
    cross_entropy,
    distillation,
    instance_cross_entropy,
    smoothed_cross_entropy,
)
from benchmarks.studies._measures import EPS
from benchmarks.studies.training import Images

METHODS = "none", "constant", "instance"
_BINS = 10


class Options(NamedTuple):
    """Options of all trainings.

    Attributes
    ----------
    seeds : sequence of int
    epochs, patience, batch_size : int
    learning_rate : float
    temperature, share : float
        Parameters of distillation.
    checkpoints : str or None
        Folder of states from which interrupted trainings resume.
    """

    seeds: Sequence[int]
    epochs: int
    patience: int
    batch_size: int
    learning_rate: float
    temperature: float
    share: float
    checkpoints: str | None


class Teacher(NamedTuple):
    """Networks of one setting, with a leading axis of seeds.

    Attributes
    ----------
    method : str
    setting : dict of float
        Smoothing and offset, if the method has them.
    validation_log_loss : array of shape (seeds,)
        Log loss of the best epoch.
    best_epoch : array of shape (seeds,)
    status : array of shape (seeds,)
    logits : dict of array of shape (seeds, n, k)
        Logits of "train", "validation" and "test" images.
    """

    method: str
    setting: dict[str, float]
    validation_log_loss: np.ndarray
    best_epoch: np.ndarray
    status: np.ndarray
    logits: dict[str, np.ndarray]


def plain(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> jax.Array:
    """Compute the cross-entropy without smoothing."""
    return cross_entropy(logits, labels, weights=weights)


def constant(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> jax.Array:
    """Compute the cross-entropy with constant smoothing."""
    return smoothed_cross_entropy(logits, labels, run["smoothing"], weights=weights)


def instance(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> jax.Array:
    """Compute the cross-entropy with instance-based smoothing."""
    teacher = extras["teacher"]
    return instance_cross_entropy(
        logits, labels, teacher, run["smoothing"], run["offset"], weights=weights
    )


class Trainings:
    """Trainer of networks on images, which have a common split and common seeds."""

    def __init__(
        self,
        images: Images,
        make_teacher: Callable[[Any], Any],
        make_student: Callable[[Any], Any],
        options: Options,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        from benchmarks.studies.training import TrainingData

        self.images, self.options, self.progress = images, options, progress
        self.makers = {"teacher": make_teacher, "student": make_student}
        self.split = images.split()
        pixels = self.split.train_images
        scale = 255 if pixels.dtype == np.uint8 else 1
        axes = tuple(range(pixels.ndim - 1))
        mean, std = pixels.mean(axis=axes) / scale, pixels.std(axis=axes) / scale
        self.data = TrainingData(*self.split, mean, np.maximum(std, 1e-6))
        self.parts = {
            "train": self.split.train_images,
            "validation": self.split.validation_images,
            "test": images.test_images,
        }
        self.seconds: dict[str, dict[str, float]] = {}

    def fit(
        self, role: str, stage: str, loss: Any, runs: Mapping[str, Any] | None, extras: Any = None
    ) -> Any:
        """Train a network for all settings and seeds; ``stage`` is its name in messages."""
        from benchmarks.studies.training import train

        options, progress = self.options, self.progress
        report = False
        if progress is not None:
            report = partial(_say, progress, stage)
        trained = train(
            self.makers[role],
            self.data,
            loss=loss,
            runs=runs,
            seeds=options.seeds,
            epochs=options.epochs,
            batch_size=options.batch_size,
            learning_rate=options.learning_rate,
            patience=options.patience,
            extras=extras,
            checkpoint=None if options.checkpoints is None else f"{options.checkpoints}/{stage}",
            progress=report,
        )
        self.seconds[stage] = {key: round(value, 2) for key, value in trained.seconds.items()}
        return trained

    def plain_teachers(self) -> Teacher:
        """Train networks without smoothing."""
        trained = self.fit("teacher", "without smoothing", plain, None)
        return self._settings("none", trained, {})[0]

    def constant_teachers(self, smoothing: Sequence[float]) -> list[Teacher]:
        """Train networks with constant smoothing, for each factor."""
        runs = {"smoothing": np.array(smoothing, float)}
        return self._settings(
            "constant", self.fit("teacher", "constant smoothing", constant, runs), runs
        )

    def instance_teachers(
        self, plain_teacher: Teacher, smoothing: Sequence[float], offsets: Sequence[float]
    ) -> list[Teacher]:
        """Train networks with instance-based smoothing, for each factor and offset.

        The targets are computed from the network without smoothing of the same seed.
        """
        from benchmarks.studies.training import PerRun

        eps, offset = (part.ravel() for part in np.meshgrid(smoothing, offsets, indexing="ij"))
        runs = {"smoothing": eps.astype(float), "offset": offset.astype(float)}
        teacher_logits = plain_teacher.logits["train"]
        extras = {"teacher": PerRun(np.tile(teacher_logits, (len(eps), 1, 1)))}
        trained = self.fit("teacher", "instance-based smoothing", instance, runs, extras)
        return self._settings("instance", trained, runs)

    def students(self, teacher_logits: np.ndarray) -> np.ndarray:
        """Train students, and compute their test logits.

        ``teacher_logits`` have shape (teachers, seeds, n, k). A student has the seed of its
        teacher.
        """
        from benchmarks.studies.training import PerRun

        temperature, share = self.options.temperature, self.options.share

        def loss(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> jax.Array:
            return distillation(
                logits, labels, extras["teacher"], temperature, share, weights=weights
            )

        runs = {"teacher": np.arange(len(teacher_logits))}
        extras = {"teacher": PerRun(teacher_logits.reshape(-1, *teacher_logits.shape[2:]))}
        trained = self.fit("student", "students", loss, runs, extras)
        return _by_setting(trained.logits(self.images.test_images), len(self.options.seeds))

    def _settings(self, method: str, trained: Any, runs: Mapping[str, Any]) -> list[Teacher]:
        count = len(self.options.seeds)
        best = np.maximum(trained.best_epoch, 0)
        losses = trained.history["validation_log_loss"][np.arange(len(best)), best]
        logits = {
            name: _by_setting(trained.logits(part), count) for name, part in self.parts.items()
        }
        teachers = []
        for setting in range(len(best) // count):
            rows = slice(setting * count, (setting + 1) * count)
            teachers.append(
                Teacher(
                    method,
                    {name: float(values[setting]) for name, values in runs.items()},
                    losses[rows],
                    trained.best_epoch[rows],
                    trained.status[rows],
                    {name: values[setting] for name, values in logits.items()},
                )
            )
        return teachers


def _say(
    progress: Callable[[str, int, int], None], stage: str, name: str, done: int, total: int
) -> None:
    progress(f"{stage}, {name}", done, total)


def _by_setting(values: np.ndarray, seeds: int) -> np.ndarray:
    return values.reshape(-1, seeds, *values.shape[1:])


def choose(settings: Sequence[Teacher]) -> Teacher:
    """Choose the setting with the lowest mean log loss on the validation images."""
    return min(settings, key=lambda teacher: float(np.mean(teacher.validation_log_loss)))


def inverse_temperatures(teacher: Teacher, labels: np.ndarray) -> np.ndarray:
    """Fit the inverse temperature of each network (seeds,) to the validation images.

    It is finite, and zero if the logits are not informative about the labels.
    """
    from sklearn.exceptions import ConvergenceWarning

    from bayescal import Temperature

    scales = []
    for z in teacher.logits["validation"]:
        model = Temperature(inputs="logits", classes=tuple(range(z.shape[-1])))
        with ignored(ConvergenceWarning):  # all of few images may be classified correctly
            scales.append(1 / float(model.fit(z, labels).temperature_))
    return np.array(scales)


def measure(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Compute accuracy, log loss and expected calibration error in 10 bins."""
    probs = softmax(np.asarray(logits, float))
    return {
        "accuracy": metrics.accuracy(probs, labels),
        "log_loss": metrics.log_loss(probs, labels, eps=EPS),
        "ece": metrics.ece(probs, labels, bins=_BINS),
    }
