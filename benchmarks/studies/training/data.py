"""Images for training networks: published sets on disk, digits, and synthetic ones.

Nothing is downloaded. Arrays are NumPy's, images (n, height, width, channels).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bayescal.data.checks import check_choice, check_count
from benchmarks.studies.training._cifar import read_cifar
from benchmarks.studies.training._idx import NAMES, read_fashion_mnist

__all__ = ["Images", "Split", "load_images", "made_images"]

Name = Literal["cifar10", "cifar100", "fashion_mnist", "digits"]
SETS = "cifar10", "cifar100", "fashion_mnist", "digits"
#: Images in each training file and in the test file.
COUNTS = {"cifar10": (10_000, 10_000), "cifar100": (50_000, 10_000)}
FASHION_COUNTS = 60_000, 10_000
_VARIABLE = "BAYESCAL_IMAGES"
_DIGITS_TEST, _DIGITS_SEED = 0.2, 0


class Split(NamedTuple):
    """Training rows in two parts, in their original order.

    Attributes
    ----------
    train_images : array of shape (n, h, w, c)
    train_labels : array of shape (n,), int32
    validation_images : array of shape (m, h, w, c)
    validation_labels : array of shape (m,), int32
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    validation_images: np.ndarray
    validation_labels: np.ndarray


@dataclass(frozen=True, eq=False)
class Images:
    """Images of k classes for training and for testing.

    Attributes
    ----------
    train_images : array of shape (n, h, w, c), uint8 or float32
    train_labels : array of shape (n,), int32
        In {0, ..., k - 1}.
    test_images : array of shape (m, h, w, c), uint8 or float32
    test_labels : array of shape (m,), int32
    class_names : tuple of k str
    similarity : array of shape (k, k), float64, or None
        Cosine similarity of the classes' patterns where it is known by design.
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...]
    similarity: np.ndarray | None = None

    def split(self, validation: float = 0.2, seed: int = 0) -> Split:
        """Split the training rows at random into training and validation rows.

        Parameters
        ----------
        validation : float, default 0.2
            Share of each class that validates, strictly between 0 and 1: of a class of n rows the
            whole number nearest to ``validation`` n.
        seed : int, default 0
            Of the random choice.

        Returns
        -------
        Split
            Copies of the rows, in their order.

        Raises
        ------
        TypeError
            If ``validation`` is no number.
        ValueError
            If ``validation`` is out of range, or leaves one of the parts empty.

        Notes
        -----
        The default is the split of 80 % and 20 % in M. Maher (2020), Instance-based label smoothing
        for better classifier calibration, section 7.3.

        Examples
        --------
        >>> split = made_images(train=50, test=10, classes=5).split()
        >>> split.train_images.shape, np.bincount(split.validation_labels).tolist()
        ((40, 16, 16, 1), [2, 2, 2, 2, 2])
        """
        rest, chosen = _stratify(self.train_labels, validation, seed, "validation")
        images, labels = self.train_images, self.train_labels
        return Split(images[rest], labels[rest], images[chosen], labels[chosen])


def load_images(name: Name, folder: str | Path | None = None) -> Images:
    r"""Read a set of images from files in the formats in which it is published.

    - "cifar10", 50,000 and 10,000 images of 32 x 32 x 3 bytes, 10 classes, and "cifar100", the same
      with 100 fine classes: one of the folders ``cifar-10-batches-py``, ``cifar-10-batches-bin``,
      ``cifar-100-python`` and ``cifar-100-binary``, or of the archives ``cifar-10-python.tar.gz``,
      ``cifar-10-binary.tar.gz``, ``cifar-100-python.tar.gz`` and ``cifar-100-binary.tar.gz``.
      Folders are preferred to archives, and then Python's version to the binary one.
    - "fashion_mnist", 60,000 and 10,000 images of 28 x 28 x 1 bytes, 10 classes: the four files
      ``{train,t10k}-images-idx3-ubyte`` and ``{train,t10k}-labels-idx1-ubyte``, each with or
      without ``.gz``, in a folder ``fashion-mnist`` or, if there is none, in ``folder`` itself.
    - "digits", 1,438 and 359 images of 8 x 8 x 1 values from 0 to 16, 10 classes: those of
      scikit-learn, which need no file; a fifth of each class, chosen with a fixed seed, tests.

    Parameters
    ----------
    name : {"cifar10", "cifar100", "fashion_mnist", "digits"}
        Which set.
    folder : path, optional
        Where the files lie. By default the folder named by the environment variable
        ``BAYESCAL_IMAGES``. "digits" takes none.

    Returns
    -------
    Images
        Images in uint8, as they are stored.

    Raises
    ------
    FileNotFoundError
        If files are missing: which, and from which page they come.
    ValueError
        If the name is unknown, there is no folder, or a file is damaged: which, and what is wrong.

    Notes
    -----
    Sizes, magic numbers, counts and labels are checked. Pickles are read by a reader that calls
    nothing that they name, so that a file cannot run code. The sets have no known similarity.

    References
    ----------
    A. Krizhevsky (2009), Learning multiple layers of features from tiny images. H. Xiao, K. Rasul
    and R. Vollgraf (2017), Fashion-MNIST. E. Alpaydin and C. Kaynak (1998), Optical recognition of
    handwritten digits.

    Examples
    --------
    >>> digits = load_images("digits")
    >>> digits.train_images.shape, digits.test_images.shape, digits.class_names[:3]
    ((1438, 8, 8, 1), (359, 8, 8, 1), ('0', '1', '2'))
    """
    check_choice(name, "name", SETS)
    if name == "digits":
        if folder is not None:
            raise ValueError(f"folder must not be given for 'digits', got {str(folder)!r}")
        return _digits()
    place = _find_folder(folder)
    if name == "fashion_mnist":
        train, test = read_fashion_mnist(place, FASHION_COUNTS)
        return Images(*train, *test, NAMES)
    train, test, names = read_cifar(name, place, COUNTS[name])
    return Images(*train, *test, names)


def made_images(
    train: int = 2000,
    test: int = 1000,
    *,
    classes: int = 10,
    size: int = 16,
    similarity: float = 0.6,
    noise: float = 4.0,
    shift: int = 1,
    seed: int = 0,
) -> Images:
    r"""Make small images of classes that are alike in pairs, as much as asked for.

    Classes 2j and 2j + 1 share a pattern :math:`g_j`, and every class has a pattern :math:`h_k` of
    its own, all orthonormal and smooth. With s = ``similarity`` and m = ``size``, the prototype of
    class k is

    .. math:: a_k = m \left(\sqrt{s}\, g_{\lfloor k / 2 \rfloor} + \sqrt{1 - s}\, h_k\right),

    of root mean square 1. So the cosine similarity of two prototypes is s within a pair and 0
    otherwise. An image is a prototype, moved by up to ``shift`` pixels in each direction, what
    leaves at one side coming back at the other, plus independent Gaussian noise.

    Parameters
    ----------
    train, test : int, default 2000 and 1000
        Numbers of images. Classes have equally many, the first ones one more where the number does
        not divide; their order is random.
    classes : int, default 10
        At least two. If odd, the last class is like no other.
    size : int, default 16
        Height and width in pixels; its square must be at least 1.5 times ``classes``, rounded up.
    similarity : float, default 0.6
        In [0, 1).
    noise : float, default 4
        Standard deviation of the noise, not negative; that of a prototype is about 1.
    shift : int, default 1
        Largest move in pixels, from 0 to less than ``size``; all moves are equally likely.
    seed : int, default 0
        Of all random numbers.

    Returns
    -------
    Images
        Images of shape (n, size, size, 1) in float32, with ``similarity`` (classes, classes).

    Raises
    ------
    TypeError
        If a count is no integer, or another parameter no number.
    ValueError
        If a number is out of range.

    Notes
    -----
    The patterns are orthogonal mixtures of the cosine waves of lowest frequency.

    Examples
    --------
    >>> images = made_images(train=100, test=50, classes=4)
    >>> images.train_images.shape, images.test_labels.shape
    ((100, 16, 16, 1), (50,))
    >>> images.similarity.tolist()[0]
    [1.0, 0.6, 0.0, 0.0]
    """
    train, test = check_count(train, "train"), check_count(test, "test")
    classes, size = check_count(classes, "classes"), check_count(size, "size")
    pairs = (classes + 1) // 2
    if classes < 2:
        raise ValueError(f"classes must be at least 2, got {classes}")
    if size**2 < classes + pairs:
        least = math.isqrt(classes + pairs - 1) + 1
        raise ValueError(f"size must be at least {least} for {classes} classes, got {size}")
    if not 0 <= _number(similarity, "similarity") < 1:
        raise ValueError(f"similarity must lie in [0, 1), got {similarity}")
    if not 0 <= _number(noise, "noise") < math.inf:
        raise ValueError(f"noise must be finite and not negative, got {noise}")
    if isinstance(shift, bool) or not isinstance(shift, (int, np.integer)):
        raise TypeError(f"shift must be an integer, got {shift!r}")
    if not 0 <= shift < size:
        raise ValueError(f"shift must lie in 0 to {size - 1}, got {shift}")
    random = np.random.default_rng(seed)
    pair = np.arange(classes) // 2
    patterns = _patterns(size, classes + pairs, random)
    shared, own = patterns[:pairs], patterns[pairs:]
    prototypes = size * (math.sqrt(similarity) * shared[pair] + math.sqrt(1 - similarity) * own)
    alike = np.where(pair[:, None] == pair, similarity, 0.0)
    np.fill_diagonal(alike, 1)
    parts = [_draw(prototypes, n, noise, shift, random) for n in (train, test)]
    names = tuple(f"class {k}" for k in range(classes))
    return Images(*parts[0], *parts[1], names, alike)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    return float(value)


def _find_folder(folder: str | Path | None) -> Path:
    given = folder if folder is not None else os.environ.get(_VARIABLE) or None
    if given is None:
        raise ValueError(
            f"folder must be given, or named by the environment variable {_VARIABLE}; got neither"
        )
    if not Path(given).is_dir():
        raise ValueError(f"folder must be a folder, got {str(given)!r}")
    return Path(given)


def _digits() -> Images:
    from sklearn.datasets import load_digits

    values, codes = load_digits(return_X_y=True)
    images = np.asarray(values, np.uint8).reshape(-1, 8, 8, 1)
    labels = np.asarray(codes, np.int32)
    rest, chosen = _stratify(labels, _DIGITS_TEST, _DIGITS_SEED, "test")
    names = tuple(str(digit) for digit in range(10))
    return Images(images[rest], labels[rest], images[chosen], labels[chosen], names)


def _stratify(
    labels: np.ndarray, share: float, seed: int, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Split rows into remaining and selected ones, with equal shares of each class, in order."""
    if not 0 < _number(share, name) < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {share}")
    random = np.random.default_rng(seed)
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = random.permutation(np.flatnonzero(labels == label))
        chosen[rows[: round(share * len(rows))]] = True
    if chosen.all() or not chosen.any():
        raise ValueError(f"{name} must leave rows in both parts, got {share} of {len(labels)} rows")
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def _patterns(size: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Compute orthonormal smooth patterns (count, size, size)."""
    place = (np.arange(size) + 0.5) / size
    waves = np.cos(np.pi * np.arange(size)[:, None] * place)
    waves /= np.linalg.norm(waves, axis=1, keepdims=True)
    frequency = np.add.outer(np.arange(size), np.arange(size)).ravel()
    down, across = np.divmod(np.argsort(frequency, kind="stable")[:count], size)
    planes = waves[down][:, :, None] * waves[across][:, None, :]
    mixture = np.linalg.qr(random.normal(size=(count, count)))[0]
    return np.einsum("ij,jhw->ihw", mixture, planes)


def _draw(
    prototypes: np.ndarray, n: int, noise: float, shift: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw images (n, size, size, 1), float32, and labels (n,)."""
    size = prototypes.shape[1]
    labels = random.permutation(np.arange(n) % len(prototypes)).astype(np.int32)
    down, across = random.integers(-shift, shift + 1, size=(2, n))
    rows = (np.arange(size) - down[:, None]) % size
    columns = (np.arange(size) - across[:, None]) % size
    images = prototypes[labels[:, None, None], rows[:, :, None], columns[:, None, :]]
    images = images + noise * random.normal(size=images.shape)
    return images.astype(np.float32)[..., None], labels
