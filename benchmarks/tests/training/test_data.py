"""Images from files in the published formats, written by hand, and synthetic images."""

import functools
import gzip
import io
import os
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.studies.training import Images, data, load_images, made_images
from benchmarks.studies.training._pickles import PickledArray, read_pickle

PYTHON = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
BINARY = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}
CLASSES = {"cifar10": 10, "cifar100": 100}
TRAIN, TEST = 4, 3
# Kept before the tests make them smaller.
COUNTS = tuple(data.COUNTS.values()), data.FASHION_COUNTS


# --- files as they are published ----------------------------------------------------------------


def encode_text(value: bytes) -> bytes:
    """Encode a Python 2 string in pickle protocol 2."""
    return b"U" + bytes([len(value)]) + value


def encode_integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def python_list(items: list[bytes]) -> bytes:
    return b"](" + b"".join(items) + b"e"


def dictionary(items: dict[bytes, bytes]) -> bytes:
    return b"}(" + b"".join(encode_text(key) + value for key, value in items.items()) + b"u"


def byte_array(values: np.ndarray, code: bytes = b"u1", order: str = "C") -> bytes:
    content = values.tobytes(order)  # type: ignore[arg-type]
    shape = b"(" + b"".join(encode_integer(size) for size in values.shape) + b"t"
    dtype = (
        b"cnumpy\ndtype\n" + encode_text(code) + encode_integer(0) + encode_integer(1) + b"\x87R"
    )
    state = (
        encode_integer(3)
        + encode_text(b"|")
        + b"NNN"
        + encode_integer(-1)
        + encode_integer(-1)
        + encode_integer(0)
    )
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + encode_integer(0)
        + b"\x85"
        + encode_text(b"b")
        + b"\x87R("
        + encode_integer(1)
        + shape
        + dtype
        + b"("
        + state
        + b"tb"
        + (b"\x89" if order == "C" else b"\x88")
        + b"T"
        + struct.pack("<I", len(content))
        + content
        + b"tb"
    )


def pickled(value: bytes) -> bytes:
    return b"\x80\x02" + value + b"."


def batch(name: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of 3,072 bytes (red, green, blue), and labels that include the largest one."""
    rng = np.random.default_rng(seed)
    labels = np.r_[CLASSES[name] - 1, rng.integers(0, CLASSES[name], size=count - 1)]
    return rng.integers(0, 256, size=(count, 3072), dtype=np.uint8), labels


def names_of(name: str) -> list[bytes]:
    return [b"kind_%d" % k for k in range(CLASSES[name])]


def batches(name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    train = [f"data_batch_{k}" for k in range(1, 6)] if name == "cifar10" else ["train"]
    test = "test_batch" if name == "cifar10" else "test"
    sizes = {**dict.fromkeys(train, TRAIN), test: TEST}
    return {file: batch(name, size, seed) for seed, (file, size) in enumerate(sizes.items())}


def python_batch(
    name: str, pixels: np.ndarray, labels: list[int] | np.ndarray, order: str = "C"
) -> bytes:
    key = b"labels" if name == "cifar10" else b"fine_labels"
    numbers = python_list([encode_integer(int(label)) for label in labels])
    other = {
        b"batch_label": encode_text(b"one of them"),
        b"coarse_labels": python_list([encode_integer(0)]),
    }
    return pickled(dictionary({**other, key: numbers, b"data": byte_array(pixels, order=order)}))


def python_files(name: str) -> dict[str, bytes]:
    files = {file: python_batch(name, *arrays) for file, arrays in batches(name).items()}
    key = b"label_names" if name == "cifar10" else b"fine_label_names"
    names = pickled(dictionary({key: python_list([encode_text(word) for word in names_of(name)])}))
    return {**files, "batches.meta" if name == "cifar10" else "meta": names}


def binary_files(name: str) -> dict[str, bytes]:
    def content(pixels: np.ndarray, labels: np.ndarray) -> bytes:
        coarse = b"" if name == "cifar10" else b"\x07"
        rows = zip(pixels, labels, strict=True)
        return b"".join(coarse + bytes([label]) + row.tobytes() for row, label in rows)

    files = {f"{file}.bin": content(*arrays) for file, arrays in batches(name).items()}
    meta = "batches.meta.txt" if name == "cifar10" else "fine_label_names.txt"
    return {**files, meta: b"\n".join(names_of(name)) + b"\n\n"}


def write_folder(directory: Path, files: dict[str, bytes]) -> None:
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)


def write_archive(path: Path, folder: str, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo(folder)
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


@pytest.fixture(autouse=True)
def _small_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "COUNTS", dict.fromkeys(CLASSES, (TRAIN, TEST)))
    monkeypatch.setattr(data, "FASHION_COUNTS", (TRAIN, TEST))
    monkeypatch.delenv("BAYESCAL_IMAGES", raising=False)


def write_version(name: str, version: str, directory: Path) -> None:
    files = python_files(name) if "python" in version else binary_files(name)
    folder = (PYTHON if "python" in version else BINARY)[name]
    if "archive" in version:
        kind = "python" if "python" in version else "binary"
        write_archive(directory / f"cifar-{CLASSES[name]}-{kind}.tar.gz", folder, files)
    else:
        write_folder(directory / folder, files)


# --- CIFAR --------------------------------------------------------------------------------------


def check_cifar(name: str, result: Images) -> None:
    *train, test = batches(name).values()
    parts = [
        (result.train_images, result.train_labels, train),
        (result.test_images, result.test_labels, [test]),
    ]
    for images, labels, expected in parts:
        rows = np.concatenate([pixels for pixels, _ in expected])
        assert images.shape == (len(rows), 32, 32, 3) and images.dtype == np.uint8
        for image, row in zip(images, rows, strict=True):
            for channel in range(3):
                plane = row[1024 * channel : 1024 * (channel + 1)]
                np.testing.assert_array_equal(image[:, :, channel].ravel(), plane)
        np.testing.assert_array_equal(labels, np.concatenate([y for _, y in expected]))
        assert labels.dtype == np.int32
        assert images.flags.writeable and labels.flags.writeable
    assert result.class_names == tuple(f"kind_{k}" for k in range(CLASSES[name]))
    assert result.similarity is None


@pytest.mark.parametrize(
    "version", ["python folder", "python archive", "binary folder", "binary archive"]
)
@pytest.mark.parametrize("name", CLASSES)
def test_cifar(name: Any, version: str, tmp_path: Path) -> None:
    write_version(name, version, tmp_path)
    check_cifar(name, load_images(name, tmp_path))


def test_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_version("cifar10", "binary folder", tmp_path)
    monkeypatch.setenv("BAYESCAL_IMAGES", str(tmp_path))
    check_cifar("cifar10", load_images("cifar10"))
    with pytest.raises(ValueError, match="folder must be a folder, got .*elsewhere"):
        load_images("cifar10", tmp_path / "elsewhere")
    for value in (None, ""):
        if value is None:
            monkeypatch.delenv("BAYESCAL_IMAGES")
        else:
            monkeypatch.setenv("BAYESCAL_IMAGES", value)
        with pytest.raises(ValueError, match="folder must be given, or named by .*BAYESCAL_IMAGES"):
            load_images("cifar100")


def test_folders_come_before_archives(tmp_path: Path) -> None:
    write_version("cifar10", "binary folder", tmp_path)
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"damaged")
    check_cifar("cifar10", load_images("cifar10", tmp_path))


def test_arrays_in_the_order_of_fortran(tmp_path: Path) -> None:
    files = python_files("cifar100")
    pixels, labels = batches("cifar100")["test"]
    files["test"] = python_batch("cifar100", pixels, labels, order="F")
    write_folder(tmp_path / PYTHON["cifar100"], files)
    check_cifar("cifar100", load_images("cifar100", tmp_path))


def test_pickles_written_here_are_what_numpy_reads() -> None:
    pixels, labels = batch("cifar10", 3, 0)
    result = pickle.loads(python_batch("cifar10", pixels, labels), encoding="bytes")
    np.testing.assert_array_equal(result[b"data"], pixels)
    assert result[b"labels"] == labels.tolist()


def test_counts_are_those_of_the_published_sets() -> None:
    (cifar10, cifar100), fashion = COUNTS
    assert (5 * cifar10[0], cifar10[1]) == cifar100 == (50_000, 10_000)
    assert fashion == (60_000, 10_000)


@pytest.mark.parametrize("name", CLASSES)
def test_absent_cifar(name: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load_images(name, tmp_path)
    kind = f"cifar-{CLASSES[name]}"
    for part in (PYTHON[name], BINARY[name], f"{kind}-python.tar.gz", f"{kind}-binary.tar.gz"):
        assert part in str(caught.value)
    assert "dataset" in str(caught.value) and str(tmp_path) in str(caught.value)
    files = python_files(name)
    missing = next(iter(files))
    write_folder(tmp_path / PYTHON[name], {k: v for k, v in files.items() if k != missing})
    with pytest.raises(FileNotFoundError, match=rf"{PYTHON[name]} must hold .*; no {missing}"):
        load_images(name, tmp_path)


PIXELS, LABELS = batch("cifar10", TRAIN, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no readable pickle"),
        (python_batch("cifar10", PIXELS, LABELS)[:-2000], "no readable pickle"),
        (pickled(python_list([])), "must be a dictionary with 'data' and 'labels'"),
        (python_batch("cifar100", PIXELS, LABELS), "must be a dictionary with 'data' and 'labels'"),
        (python_batch("cifar10", PIXELS[:3], LABELS[:3]), "it has 3 images, not 4"),
        (python_batch("cifar10", PIXELS, LABELS[:3]), "it has 4 images and 3 labels"),
        (python_batch("cifar10", PIXELS[:, :3000], LABELS), r"shape \(n, 3072\), got \(4, 3000\)"),
        (python_batch("cifar10", PIXELS[0], LABELS), r"shape \(n, 3072\), got \(3072,\)"),
        (python_batch("cifar10", PIXELS, [0, 10, 1, 2]), "labels must lie in 0 to 9, got 10"),
        (python_batch("cifar10", PIXELS, [0, 1, 1, -2]), "labels must lie in 0 to 9, got -2"),
        (
            pickled(dictionary({b"data": byte_array(PIXELS), b"labels": encode_text(b"0123")})),
            "its labels must be a list of integers",
        ),
        (
            pickled(dictionary({b"data": encode_text(b"0123"), b"labels": python_list([])})),
            "its data are no array",
        ),
        (
            pickled(dictionary({b"data": byte_array(PIXELS, b"f8"), b"labels": python_list([])})),
            "numbers of type b'f8', not unsigned bytes",
        ),
        (
            pickled(dictionary({b"data": byte_array(PIXELS, b"O8"), b"labels": python_list([])})),
            "numbers of type b'O8', not unsigned bytes",
        ),
    ],
)
def test_damaged_pickle(content: bytes, message: str, tmp_path: Path) -> None:
    files = {**python_files("cifar10"), "data_batch_3": content}
    write_folder(tmp_path / PYTHON["cifar10"], files)
    with pytest.raises(ValueError, match=rf"data_batch_3 is damaged: .*{message}"):
        load_images("cifar10", tmp_path)


def test_array_with_too_few_bytes() -> None:
    whole = byte_array(PIXELS)
    short = whole.replace(encode_integer(3072), encode_integer(3073), 1)
    with pytest.raises(ValueError, match=r"an array of shape \(4, 3073\) in it has 12288 bytes"):
        read_pickle(pickled(short))
    array = read_pickle(pickled(whole))
    np.testing.assert_array_equal(array.values(), PIXELS)
    with pytest.raises(ValueError, match="no content"):
        PickledArray().values()


@pytest.mark.parametrize(
    ("name", "file", "change", "message"),
    [
        ("cifar10", "data_batch_2.bin", lambda c: c[:-1], "its size, 12291 bytes, is no multiple"),
        ("cifar10", "data_batch_2.bin", lambda _: b"", "its size, 0 bytes, is no multiple of 3073"),
        ("cifar10", "test_batch.bin", lambda c: c + c[:3073], "it has 4 images, not 3"),
        ("cifar10", "test_batch.bin", lambda c: b"\x0a" + c[1:], "in 0 to 9, got 10"),
        ("cifar100", "test.bin", lambda c: c[:1] + b"\x64" + c[2:], "in 0 to 99, got 100"),
        ("cifar100", "train.bin", lambda c: c[:3073], "is no multiple of 3074"),
        ("cifar10", "batches.meta.txt", lambda c: c[7:], "must name 10 classes, and names 9"),
        ("cifar10", "batches.meta.txt", lambda c: b"\xff" + c, "can't decode"),
        (
            "cifar10",
            "batches.meta.txt",
            lambda c: c.replace(b"kind_3", b"kind_4"),
            "must name 10 classes, and names 9",
        ),
    ],
)
def test_damaged_binary(
    name: Any, file: str, change: Callable[[bytes], bytes], message: str, tmp_path: Path
) -> None:
    files = binary_files(name)
    write_folder(tmp_path / BINARY[name], {**files, file: change(files[file])})
    with pytest.raises(ValueError, match=rf"{file} is damaged: .*{message}"):
        load_images(name, tmp_path)


def test_damaged_archive(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-binary.tar.gz"
    write_version("cifar10", "binary archive", tmp_path)
    whole = path.read_bytes()
    for content in (b"no archive", whole[: len(whole) // 2], b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cifar-10-binary.tar.gz is damaged"):
            load_images("cifar10", tmp_path)
    files = {k: v for k, v in binary_files("cifar10").items() if k != "test_batch.bin"}
    write_archive(path, BINARY["cifar10"], files)
    message = "is damaged: it has no file cifar-10-batches-bin/test_batch.bin"
    with pytest.raises(ValueError, match=message):
        load_images("cifar10", tmp_path)
    write_archive(path, BINARY["cifar10"], {**binary_files("cifar10"), "test_batch.bin": b"1"})
    with pytest.raises(ValueError, match=r"tar.gz: cifar-10-batches-bin/test_batch.bin is damaged"):
        load_images("cifar10", tmp_path)


# --- pickles that would run something -----------------------------------------------------------


class Malicious:
    """Creates a folder when unpickled without care."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> Any:
        return self.call, self.arguments


def test_malicious_pickle_is_refused_and_does_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    attacks = [
        pickle.dumps({b"data": Malicious(os.mkdir, str(made))}, protocol=2),
        pickle.dumps(Malicious(eval, f"__import__('os').mkdir({str(made)!r})"), protocol=4),
        pickle.dumps(functools.partial(os.mkdir, str(made)), protocol=2),
    ]
    pickle.loads(attacks[0])
    assert made.is_dir()
    made.rmdir()
    for attack in attacks:
        with pytest.raises(ValueError, match="no readable pickle: it names .*; only NumPy arrays"):
            read_pickle(attack)
        files = {**python_files("cifar10"), "batches.meta": attack}
        directory = tmp_path / PYTHON["cifar10"]
        if not directory.exists():
            write_folder(directory, files)
        (directory / "batches.meta").write_bytes(attack)
        with pytest.raises(ValueError, match=r"batches.meta is damaged: .* it names "):
            load_images("cifar10", tmp_path)
    assert not made.exists()


@pytest.mark.parametrize(
    "names",
    [
        b"cnumpy\nfromfile\n",
        b"cnumpy.core.multiarray\nscalar\n",
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n",
        b"cbuiltins\ngetattr\n",
        b"c__builtin__\neval\n",
        b"c_codecs\nencode\n",
    ],
)
def test_other_names_are_refused(names: bytes) -> None:
    with pytest.raises(ValueError, match="it names .*; only NumPy arrays are allowed in it"):
        read_pickle(pickled(names))


# --- Fashion-MNIST ------------------------------------------------------------------------------


def idx(values: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return (0x0800 + values.ndim).to_bytes(4, "big") + sizes + values.tobytes()


def fashion_arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        "train-images-idx3-ubyte": rng.integers(0, 256, size=(TRAIN, 28, 28), dtype=np.uint8),
        "train-labels-idx1-ubyte": np.array([9, 0, 3, 4], np.uint8),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, size=(TEST, 28, 28), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": np.array([1, 9, 7], np.uint8),
    }


@pytest.mark.parametrize("beneath", ["", "fashion-mnist"])
@pytest.mark.parametrize("zipped", [0, 2, 4])
def test_fashion_mnist(zipped: int, beneath: str, tmp_path: Path) -> None:
    directory = tmp_path / beneath
    directory.mkdir(exist_ok=True)
    arrays = fashion_arrays()
    for number, (name, values) in enumerate(arrays.items()):
        if number < zipped:
            (directory / f"{name}.gz").write_bytes(gzip.compress(idx(values)))
        else:
            (directory / name).write_bytes(idx(values))
    result = load_images("fashion_mnist", tmp_path)
    expected = list(arrays.values())
    np.testing.assert_array_equal(result.train_images, expected[0][:, :, :, None])
    np.testing.assert_array_equal(result.train_labels, expected[1])
    np.testing.assert_array_equal(result.test_images, expected[2][:, :, :, None])
    np.testing.assert_array_equal(result.test_labels, expected[3])
    assert result.train_images.dtype == np.uint8 and result.test_labels.dtype == np.int32
    assert len(set(result.class_names)) == 10 and result.class_names[9] == "Ankle boot"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", b"", "it must begin with 00000803, and begins with nothing"),
        ("train-images-idx3-ubyte", b"\x1f\x8b\x08\x08rest", "and begins with 1f8b0808"),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03\0\0", "it ends within its header"),
        (
            "train-images-idx3-ubyte",
            idx(np.zeros((TRAIN, 28, 27), np.uint8)),
            r"it must have shape \(4, 28, 28\), and has \(4, 28, 27\)",
        ),
        (
            "t10k-labels-idx1-ubyte",
            idx(np.zeros(2, np.uint8)),
            r"it must have shape \(3,\), and has \(2,\)",
        ),
        (
            "t10k-labels-idx1-ubyte",
            idx(np.zeros(3, np.uint8))[:-1],
            "3 values must follow its header, and 2 do",
        ),
        (
            "t10k-labels-idx1-ubyte",
            idx(np.zeros((3, 1), np.uint8)),
            "it must begin with 00000801, and begins with 00000802",
        ),
        ("t10k-labels-idx1-ubyte", idx(np.full(3, 10, np.uint8)), "in 0 to 9, got 10"),
        ("t10k-images-idx3-ubyte.gz", b"not zipped", "Not a gzipped file"),
        ("t10k-images-idx3-ubyte.gz", gzip.compress(b"1" * 99, mtime=0)[:-9], "end"),
    ],
)
def test_damaged_fashion_mnist(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    for key, values in fashion_arrays().items():
        if key != name.removesuffix(".gz"):
            (tmp_path / key).write_bytes(idx(values))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} is damaged: .*{message}"):
        load_images("fashion_mnist", tmp_path)


def test_absent_fashion_mnist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Fashion-MNIST .*; no train-images-idx3-ubyte"):
        load_images("fashion_mnist", tmp_path)


# --- digits, splits and made images -------------------------------------------------------------


def test_digits() -> None:
    from sklearn.datasets import load_digits

    result = load_images("digits")
    assert result.train_images.dtype == np.uint8 and result.train_images.max() == 16
    rows = np.concatenate([result.train_images, result.test_images]).reshape(-1, 64)
    values, labels = load_digits(return_X_y=True)
    together = np.column_stack([rows, np.r_[result.train_labels, result.test_labels]])
    expected = np.column_stack([values, labels])
    order, other = np.lexsort(together.T), np.lexsort(expected.T)
    np.testing.assert_array_equal(together[order], expected[other])
    np.testing.assert_array_equal(
        np.bincount(result.test_labels), np.round(np.bincount(labels) / 5)
    )
    with pytest.raises(ValueError, match="folder must not be given for 'digits', got '/x'"):
        load_images("digits", "/x")
    with pytest.raises(ValueError, match="name must be one of 'cifar10', .*, got 'mnist'"):
        load_images("mnist")  # type: ignore[arg-type]


def numbered_images(labels: list[int]) -> Images:
    images = np.arange(len(labels), dtype=np.float32)[:, None, None, None]
    y = np.array(labels, np.int32)
    return Images(images, y, images[:0], y[:0], ("a", "b"))


def test_split() -> None:
    whole = numbered_images([0, 1, 1] * 20)
    split = whole.split(seed=1)
    np.testing.assert_array_equal(np.bincount(split.validation_labels), [4, 8])
    np.testing.assert_array_equal(np.bincount(split.train_labels), [16, 32])
    kept, chosen = split.train_images.ravel(), split.validation_images.ravel()
    np.testing.assert_array_equal(np.sort(np.r_[kept, chosen]), np.arange(60))
    assert (np.diff(kept) > 0).all() and (np.diff(chosen) > 0).all()
    np.testing.assert_array_equal(split.train_labels, whole.train_labels[kept.astype(int)])
    np.testing.assert_array_equal(split.validation_labels, whole.train_labels[chosen.astype(int)])
    np.testing.assert_array_equal(whole.split(seed=1).validation_images, split.validation_images)
    assert (whole.split(seed=2).validation_images != split.validation_images).any()
    assert len(whole.split(0.5).validation_labels) == 30


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_bad_share(share: float) -> None:
    with pytest.raises(ValueError, match="validation must lie strictly between 0 and 1, got "):
        numbered_images([0, 1]).split(share)


def test_split_that_leaves_nothing() -> None:
    with pytest.raises(ValueError, match=r"validation must leave rows in both parts, got 0.2 of 2"):
        numbered_images([0, 1]).split()
    with pytest.raises(TypeError, match="validation must be a number, got '0.2'"):
        numbered_images([0, 1]).split("0.2")  # type: ignore[arg-type]


@pytest.mark.parametrize("classes", [6, 5])
def test_prototypes_are_as_similar_as_designed(classes: int) -> None:
    result = made_images(
        train=classes, test=2 * classes, classes=classes, similarity=0.7, noise=0, shift=0, size=9
    )
    assert result.train_images.shape == (classes, 9, 9, 1)
    assert result.train_images.dtype == np.float32
    np.testing.assert_array_equal(np.bincount(result.test_labels), np.full(classes, 2))
    rows = result.train_images[np.argsort(result.train_labels)].reshape(classes, -1).astype(float)
    gram = rows @ rows.T / 81
    expected = np.eye(classes)
    for first in range(0, classes - 1, 2):
        expected[first, first + 1] = expected[first + 1, first] = 0.7
    np.testing.assert_allclose(gram, expected, atol=1e-6)
    assert result.similarity is not None
    np.testing.assert_allclose(result.similarity, expected, atol=1e-15)
    assert len(result.class_names) == classes
    for image, label in zip(result.test_images, result.test_labels, strict=True):
        np.testing.assert_array_equal(image.ravel(), rows[label].astype(np.float32))


def test_noise_of_made_images() -> None:
    options: Any = {"train": 300, "test": 1, "classes": 3, "shift": 0, "seed": 4}
    clean, noisy = made_images(**options, noise=0), made_images(**options, noise=2.5)
    np.testing.assert_array_equal(clean.train_labels, noisy.train_labels)
    rest = (noisy.train_images - clean.train_images).ravel()
    # Standard errors of mean and standard deviation of 76,800 numbers.
    assert abs(rest.mean()) < 4 * 2.5 / np.sqrt(rest.size)
    assert abs(rest.std() / 2.5 - 1) < 4 / np.sqrt(2 * rest.size)


def test_shift_of_made_images() -> None:
    options: Any = {"train": 200, "test": 1, "classes": 2, "noise": 0, "size": 8}
    still, moved = made_images(**options, shift=0), made_images(**options, shift=1)
    shifts = set()
    for image, label in zip(moved.train_images, moved.train_labels, strict=True):
        prototype = still.train_images[np.flatnonzero(still.train_labels == label)[0]]
        moves = [
            (down, across)
            for down in (-1, 0, 1)
            for across in (-1, 0, 1)
            if np.array_equal(np.roll(prototype, (down, across), axis=(0, 1)), image)
        ]
        assert len(moves) == 1
        shifts.add(moves[0])
    assert len(shifts) == 9


def test_made_images_depend_on_the_seed_alone() -> None:
    first, again, other = (made_images(20, 10, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.train_images, again.train_images)
    np.testing.assert_array_equal(first.test_labels, again.test_labels)
    assert (first.train_images != other.train_images).any()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"train": 0}, ValueError, "train must be at least 1, got 0"),
        ({"test": 1.5}, TypeError, "test must be an integer, got 1.5"),
        ({"classes": 1}, ValueError, "classes must be at least 2, got 1"),
        ({"classes": 200}, ValueError, "size must be at least 18 for 200 classes, got 16"),
        ({"similarity": 1}, ValueError, r"similarity must lie in \[0, 1\), got 1"),
        ({"similarity": "a"}, TypeError, "similarity must be a number, got 'a'"),
        ({"noise": -1}, ValueError, "noise must be finite and not negative, got -1"),
        ({"shift": 16}, ValueError, "shift must lie in 0 to 15, got 16"),
        ({"shift": 0.5}, TypeError, "shift must be an integer, got 0.5"),
    ],
)
def test_bad_options_of_made_images(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        made_images(**options)
