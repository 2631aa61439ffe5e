"""Label smoothing in networks: the experiment of M. Maher (2020), section 7.3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bayescal.data.checks import check_choice, check_count
from benchmarks.studies._network_claims import judge, mean_and_interval
from benchmarks.studies._network_pictures import Projection, draw_logits
from benchmarks.studies._network_runs import (
    METHODS,
    Options,
    Teacher,
    Trainings,
    choose,
    inverse_temperatures,
    measure,
)
from benchmarks.studies._network_structure import agreement, kept, similarity, three_classes
from benchmarks.studies.published_networks import published
from benchmarks.studies.store import Progress, Results
from benchmarks.studies.training import Images, load_images, made_images

__all__ = ["DATA", "MEASURED", "NETWORKS", "load", "run"]

DATA = "digits", "made", "cifar10", "cifar100", "fashion_mnist"
NETWORKS = "student", "resnet18", "resnet34", "resnet50", "densenet", "inception"
MEASURED = (
    "accuracy",
    "log_loss",
    "ece",
    "student_accuracy",
    "student_log_loss",
    "structure",
)
SMOOTHING, OFFSETS = (0.01, 0.05, 0.1), (1.0, 10.0, 100.0, 1000.0)
#: Default teacher, its width and the width of the student, by data. None is the standard width.
_DEFAULT: dict[str, tuple[str, int | None, int]] = {
    "digits": ("student", 16, 8),
    "made": ("student", 16, 8),
    "cifar10": ("resnet18", None, 32),
    "cifar100": ("resnet50", None, 32),
    "fashion_mnist": ("densenet", None, 32),
}


def load(name: str, folder: str | Path | None = None) -> Images:
    """Load the images of a name in :data:`DATA`; "made" are synthetic, of known similarity."""
    check_choice(name, "data", DATA)
    return made_images() if name == "made" else load_images(name, folder)  # type: ignore[arg-type]


def run(
    data: str,
    out: str | Path,
    *,
    folder: str | Path | None = None,
    images: Images | None = None,
    network: Literal["student", "resnet18", "resnet34", "resnet50", "densenet", "inception"]
    | None = None,
    width: int | None = None,
    seeds: int = 3,
    epochs: int = 100,
    patience: int = 10,
    batch_size: int | None = None,
    learning_rate: float = 0.1,
    smoothing: Sequence[float] = SMOOTHING,
    offsets: Sequence[float] = OFFSETS,
    temperature: float = 2.0,
    share: float = 0.5,
    projection: Projection = "tsne",
    checkpoints: bool = False,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    r"""Train networks without, with constant and with instance-based smoothing, and compare them.

    A fifth of the training images of each class is used for validation. Networks are trained for
    all smoothing factors, and with instance-based smoothing also for all offsets, each with several
    seeds. The setting with the lowest mean log loss on the validation images is selected. Its
    networks are measured on the test images before and after temperature scaling, and are the
    teachers of smaller networks, the students.

    Parameters
    ----------
    data : {"digits", "made", "cifar10", "cifar100", "fashion_mnist"}
    out : path
        Folder for ``networks.csv``, with a row for each network, ``networks.json``, and the
        pictures ``logits.svg`` and ``logits_three.svg``.
    folder : path, optional
        Folder of the image files; see :func:`benchmarks.studies.training.load_images`.
    images : Images, optional
        Images to use instead of files; ``data`` then only determines the default network.
    network : {"student", "resnet18", "resnet34", "resnet50", "densenet", "inception"}, optional
        The teacher. By default the student of width 16 for digits and made images, ResNet-18 for
        CIFAR-10, ResNet-50 for CIFAR-100, and DenseNet for Fashion-MNIST.
    width : int, optional
        Width in channels of the teacher, if it is the student network, a ResNet or Inception.
    seeds : int
        Number of networks of each setting.
    epochs, patience : int
    batch_size : int, optional
        By default 64 for digits and made images, and 128 for others.
    learning_rate : float
    smoothing, offsets : sequences of float
        The grid. The source's second parameter, a factor of the logits, cancels out; offsets
        replace it.
    temperature, share : float
        Parameters of :func:`benchmarks.studies.training.distillation`.
    projection : {"tsne", "pca"}
        Projection of the logits in the pictures.
    checkpoints : bool
        Whether to store states in the folder ``checkpoints`` of ``out``. An interrupted study
        resumes from them.
    about : mapping of str to str, optional
        Versions and similar facts, written to the summary.
    progress : callable, optional
        Called with the current step, the number of finished epochs and the total number.

    Returns
    -------
    dict
        The content of ``networks.json``. ``table`` contains, for each method before and after
        temperature scaling, the mean over seeds of each of :data:`MEASURED`, half the width of its
        95 % interval, and the setting. ``claims`` are verdicts on claims of the source.
        ``published`` are figures of the same data and a similar network, or None. ``seconds`` are
        those of each training. "structure" is the correlation of the class similarities with those
        of other networks without smoothing; ``designed`` is the correlation with the similarities
        by design, if they are known.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 7.3,
    table 12, figures 28 and 29; R. Müller, S. Kornblith and G. Hinton (2019), When does label
    smoothing help?
    """
    check_choice(data, "data", DATA)
    check_choice(projection, "projection", ("tsne", "pca"))
    count = check_count(seeds, "seeds")
    if images is None:
        images = load(data, folder)
    store = Results("networks", out, about)
    results_folder = store.folder
    default_network, default_width, student_width = _DEFAULT[data]
    name = network or default_network
    chosen_width = width if width is not None or name != default_network else default_width
    small = data in ("digits", "made")
    trainings = Trainings(
        images,
        _maker(name, images, chosen_width),
        _maker("student", images, student_width),
        Options(
            range(count),
            epochs,
            patience,
            batch_size or (64 if small else 128),
            learning_rate,
            temperature,
            share,
            str(results_folder / "checkpoints") if checkpoints else None,
        ),
        progress,
    )
    plain = trainings.plain_teachers()
    settings = {
        "none": [plain],
        "constant": trainings.constant_teachers(smoothing),
        "instance": trainings.instance_teachers(plain, smoothing, offsets),
    }
    best = {method: choose(teachers) for method, teachers in settings.items()}
    results = _measure(trainings, best)
    labels = images.test_labels
    logits = {method: teacher.logits["test"][0] for method, teacher in best.items()}
    designed = images.similarity
    three = three_classes(similarity(logits["none"], labels) if designed is None else designed)
    names = images.class_names
    draw_logits(results_folder / "logits.svg", logits, labels, names, projection)
    draw_logits(results_folder / "logits_three.svg", logits, labels, names, projection, three)
    store.table("networks", _HEADER, _rows(settings, labels))
    summary = {
        "data": data,
        "images": {name: len(part) for name, part in trainings.parts.items()},
        "network": name,
        "width": chosen_width,
        "seeds": count,
        "epochs": epochs,
        "seconds": trainings.seconds,
        "table": _table(results, best),
        "claims": judge(results),
        "published": published(data, name),
        "three_classes": [names[label] for label in three],
    }
    if designed is not None:
        summary["designed"] = {
            method: [agreement(similarity(z, labels), designed) for z in teacher.logits["test"]]
            for method, teacher in best.items()
        }
    return store.summary("networks", summary)


def _maker(name: str, images: Images, width: int | None) -> Callable[[Any], Any]:
    """Return a function that builds a network for the images from random number generators."""
    from benchmarks.studies.training import networks

    check_choice(name, "network", NETWORKS)
    classes, channels = len(images.class_names), images.train_images.shape[-1]
    kinds = {
        "student": networks.Student,
        "resnet18": networks.ResNet18,
        "resnet34": networks.ResNet34,
        "resnet50": networks.ResNet50,
        "densenet": networks.DenseNet,
        "inception": networks.Inception,
    }
    options = {} if width is None else {"width": width}
    if name == "densenet" and options:
        raise ValueError("width must not be given for densenet, which has blocks and growth")
    return lambda rngs: kinds[name](classes, channels, rngs=rngs, **options)


def _measure(
    trainings: Trainings, best: Mapping[str, Teacher]
) -> dict[tuple[str, bool], dict[str, np.ndarray]]:
    """Compute all measures (seeds,), by method and by whether temperatures are scaled."""
    labels = trainings.images.test_labels
    validation_labels = trainings.split.validation_labels
    scales = {m: inverse_temperatures(t, validation_labels) for m, t in best.items()}
    teacher_logits, results = [], {}
    plain_similarities = [similarity(z, labels) for z in best["none"].logits["test"]]
    for method, teacher in best.items():
        structure = kept(
            [similarity(z, labels) for z in teacher.logits["test"]], plain_similarities
        )
        for scaled in (False, True):
            inverse_temperature = scales[method] if scaled else np.ones(len(scales[method]))
            factor = inverse_temperature[:, None, None]
            by_seed = [measure(z, labels) for z in teacher.logits["test"] * factor]
            results[method, scaled] = {
                **{key: np.array([facts[key] for facts in by_seed]) for key in by_seed[0]},
                "structure": structure,
                "inverse_temperature": inverse_temperature,
            }
            teacher_logits.append((teacher.logits["train"] * factor).astype(np.float32))
    students = trainings.students(np.stack(teacher_logits))
    for measures, student_logits in zip(results.values(), students, strict=True):
        by_seed = [measure(z, labels) for z in student_logits]
        for key in ("accuracy", "log_loss"):
            measures[f"student_{key}"] = np.array([facts[key] for facts in by_seed])
    return results


def _table(
    results: Mapping[tuple[str, bool], Mapping[str, np.ndarray]], best: Mapping[str, Teacher]
) -> list[dict[str, Any]]:
    """Summarize the measures of each method over seeds."""
    rows = []
    for (method, scaled), measures in results.items():
        facts = {}
        for key in (*MEASURED, "inverse_temperature"):
            mean, half = mean_and_interval(measures[key])
            facts[key] = {"mean": mean, "half_width": half, "seeds": measures[key].tolist()}
        rows.append(
            {"method": method, "scaled": scaled, "setting": best[method].setting, "measures": facts}
        )
    return rows


_HEADER = [
    "method",
    "smoothing",
    "offset",
    "seed",
    "best_epoch",
    "status",
    "validation_log_loss",
    "test_accuracy",
    "test_log_loss",
    "test_ece",
]


def _rows(settings: Mapping[str, Sequence[Teacher]], labels: np.ndarray) -> list[list[Any]]:
    """Arrange the measures of the teachers as a row for each network."""
    rows = []
    for method in METHODS:
        for teacher in settings[method]:
            for seed, z in enumerate(teacher.logits["test"]):
                setting = [teacher.setting.get(key, "") for key in ("smoothing", "offset")]
                facts = measure(z, labels)
                rows.append(
                    [
                        method,
                        *setting,
                        seed,
                        int(teacher.best_epoch[seed]),
                        str(teacher.status[seed]),
                        float(teacher.validation_log_loss[seed]),
                        *facts.values(),
                    ]
                )
    return rows
