"""Networks for images, their training from many seeds at once, and readers of images."""

from benchmarks.studies.training.data import Images, Split, load_images, made_images
from benchmarks.studies.training.networks import (
    MLP,
    DenseNet,
    Inception,
    ResNet18,
    ResNet34,
    ResNet50,
    Student,
    count_parameters,
)
from benchmarks.studies.training.trainer import PerRun, Trained, TrainingData, train

__all__ = [
    "MLP",
    "DenseNet",
    "Images",
    "Inception",
    "PerRun",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "Split",
    "Student",
    "Trained",
    "TrainingData",
    "count_parameters",
    "load_images",
    "made_images",
    "train",
]
