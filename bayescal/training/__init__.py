"""Training networks that are calibrated: losses, images, networks, and their training.

Losses are for any loop around JAX. Networks and :func:`train` need the extra ``training``, and are
imported when the first of them is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bayescal.training.data import Images, Split, load_images, made_images
from bayescal.training.losses import (
    brier,
    confidence_penalty,
    cross_entropy,
    distillation,
    focal,
    instance_cross_entropy,
    instance_targets,
    mmce,
    smoothed_cross_entropy,
    soft_ece,
    with_instance_targets,
)

if TYPE_CHECKING:
    from bayescal.training.networks import (
        MLP,
        DenseNet,
        Inception,
        ResNet18,
        Student,
        count_parameters,
    )
    from bayescal.training.trainer import PerRun, Trained, TrainingData, train

_LATER = {
    **dict.fromkeys(
        ("MLP", "DenseNet", "Inception", "ResNet18", "Student", "count_parameters"), "networks"
    ),
    **dict.fromkeys(("PerRun", "Trained", "TrainingData", "train"), "trainer"),
}

__all__ = [
    "MLP",
    "DenseNet",
    "Images",
    "Inception",
    "PerRun",
    "ResNet18",
    "Split",
    "Student",
    "Trained",
    "TrainingData",
    "brier",
    "confidence_penalty",
    "count_parameters",
    "cross_entropy",
    "distillation",
    "focal",
    "instance_cross_entropy",
    "instance_targets",
    "load_images",
    "made_images",
    "mmce",
    "smoothed_cross_entropy",
    "soft_ece",
    "train",
    "with_instance_targets",
]


def __getattr__(name: str) -> Any:
    """Import networks and their training when the first of them is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
