"""The study of label smoothing in networks: its numbers by hand, and its use of trainings."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, softmax
from typer.testing import CliRunner

import bayescal as bc
from benchmarks.studies import networks, training
from benchmarks.studies._network_claims import CLAIMS, judge, mean_and_interval
from benchmarks.studies._network_structure import agreement, kept
from benchmarks.studies.app import app
from benchmarks.studies.published_networks import MEASURES, published
from benchmarks.studies.training import made_images
from benchmarks.tests.failing import check_error
from tests.cli.printed import cells

Array = np.ndarray
SEEDS = 2


def similar(z: Array, y: Array) -> Array:
    """Compute correlations of class means with NumPy."""
    means = np.array([z[y == label].mean(axis=0) for label in range(z.shape[1])])
    return np.corrcoef(means - means.mean(axis=0))


def test_networks_are_not_compared_with_their_own_seed() -> None:
    smoothed, plain = np.random.default_rng(0).normal(size=(2, 3, 5, 5))
    actual = kept(list(smoothed), list(plain))
    expected = np.mean([agreement(smoothed[1], plain[j]) for j in (0, 2)])
    assert actual[1] == pytest.approx(expected)
    assert kept(list(plain), list(plain)).max() < 1
    assert kept(list(smoothed[:1]), list(plain[:1]))[0] == pytest.approx(
        agreement(smoothed[0], plain[0])
    )


def test_intervals_are_those_of_students_t() -> None:
    values = np.array([0.3, 0.1, 0.4, 0.15])
    mean, half = mean_and_interval(values)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert half is not None
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert mean_and_interval(values[:1]) == (0.3, None)


def test_verdicts() -> None:
    rng = np.random.default_rng(0)
    measures = ("log_loss", "accuracy", "ece", "student_log_loss", "structure")
    level = {"none": 1.0, "constant": 0.5, "instance": 0.4}

    def made(noise: float, count: int = 4) -> list[str]:
        results = {
            (method, scaled): {
                m: level[method] - 0.1 * scaled + noise * rng.normal(size=count) for m in measures
            }
            for method in level
            for scaled in (False, True)
        }
        return [claim["verdict"] for claim in judge(results)]

    expected = ["holds" if claim.lower else "the other way round" for claim in CLAIMS]
    assert made(1e-6) == expected
    assert set(made(100.0)) <= {"not clear", *expected}
    assert made(100.0).count("not clear") > 5
    assert set(made(1e-6, count=1)) == {"not clear"}


def test_published_figures_are_as_the_source_says_of_them() -> None:
    """Compare with section 7.3.2, which states in words which smoothing is best by each measure."""

    def best(data: str, network: str, measure: str) -> set[tuple[str, bool]]:
        known = published(data, network)
        assert known is not None
        values = {(r["method"], r["scaled"]): r["measures"][measure] for r in known["rows"]}
        wanted = (max if "accuracy" in measure else min)(values.values())
        return {row for row, value in values.items() if value == wanted}

    resnet, inception = ("cifar10", "resnet18"), ("cifar10", "inception")
    hundred, fashion = ("cifar100", "resnet50"), ("fashion_mnist", "densenet")
    for case in (resnet, inception, hundred, fashion):
        for measure in ("log_loss", "student_log_loss"):
            methods = {method for method, _ in best(*case, measure)}
            # For students of CIFAR-100 another method is equal after rounding.
            assert "instance" in methods, (case, measure)
    for case in (resnet, inception, fashion):
        assert {method for method, _ in best(*case, "accuracy")} == {"instance"}
    assert {method for method, _ in best(*hundred, "accuracy")} == {"constant"}
    for case in (resnet, inception):
        assert best(*case, "ece") == {("none", True)}
    assert best(*hundred, "ece") == {("instance", True)}
    assert best(*fashion, "ece") == {("instance", False), ("constant", False)}
    known = published(*hundred)
    assert known is not None
    plain, scaled = (row["measures"] for row in known["rows"][4:])
    assert scaled["log_loss"] < plain["log_loss"]
    assert known["network"] == "ResNet50"
    assert published("cifar100", "resnet34") == known  # what its code calls so
    assert published("digits", "student") is None
    assert published("cifar10", "densenet") is None


class Pretended:
    """A simulated training result with logits determined by the run alone."""

    def __init__(self, runs: Any, seeds: Any, labels: dict[int, Array], sharp: float) -> None:
        settings = 1 if runs is None else len(next(iter(runs.values())))
        count = settings * len(seeds)
        self.labels, self.sharp = labels, sharp
        self.classes = 1 + max(int(array.max()) for array in labels.values())
        self.best_epoch = np.zeros(count, int)
        self.status = np.full(count, "stopped")
        # The last setting is the best.
        losses = np.repeat(np.arange(settings, 0, -1.0), len(seeds))
        self.history = {"validation_log_loss": losses[:, None]}
        self.seconds = {"compile": 1.0, "train": 2.0}

    def logits(self, images: Array) -> Array:
        y = self.labels[len(images)]
        rng = np.random.default_rng(len(images))
        noise = rng.normal(size=(len(self.best_epoch), len(y), self.classes))
        return self.sharp * (np.eye(self.classes)[y] + noise).astype(np.float32)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[dict[str, Any]]]:
    """Return images, and the arguments of all simulated trainings."""
    images = made_images(train=100, test=60, classes=4, size=8)
    split = images.split()
    labels = {
        len(split.train_labels): split.train_labels,
        len(split.validation_labels): split.validation_labels,
        60: images.test_labels,
    }
    calls: list[dict[str, Any]] = []

    def train(make_network: Any, data: Any, **options: Any) -> Pretended:
        calls.append({"data": data, **options})
        sharp = 3.0 if len(calls) < 4 else 1.0
        return Pretended(options["runs"], options["seeds"], labels, sharp)

    monkeypatch.setattr(training, "train", train, raising=False)
    return images, calls


def test_what_is_trained_and_measured(pretended: Any, tmp_path: Path) -> None:
    images, calls = pretended
    actual = networks.run(
        "made",
        tmp_path,
        images=images,
        seeds=SEEDS,
        smoothing=(0.05, 0.1),
        offsets=(1, 10),
        projection="pca",
    )
    plain, constant, instance, students = calls
    assert plain["runs"] is None
    assert constant["runs"]["smoothing"].tolist() == [0.05, 0.1]
    assert instance["runs"]["smoothing"].tolist() == [0.05, 0.05, 0.1, 0.1]
    assert instance["runs"]["offset"].tolist() == [1, 10, 1, 10]
    data = plain["data"]
    pixels = (data.train_inputs - data.mean) / data.std
    assert pixels.mean() == pytest.approx(0, abs=1e-5)
    assert pixels.std() == pytest.approx(1, abs=1e-5)
    # The targets of each run come from the network without smoothing with an equal seed.
    network = Pretended(None, range(SEEDS), {80: images.split().train_labels}, 3.0)
    for run, values in enumerate(instance["extras"]["teacher"].values):
        np.testing.assert_array_equal(values, network.logits(images.split().train_images)[run % 2])
    assert students["extras"]["teacher"].values.shape == (3 * 2 * SEEDS, 80, 4)

    # The best settings are the last ones; the first rows are those without smoothing.
    settings = [row["setting"] for row in actual["table"]]
    assert settings == [{}] * 2 + [{"smoothing": 0.1}] * 2 + [{"smoothing": 0.1, "offset": 10}] * 2
    y = images.test_labels
    z = Pretended(None, range(SEEDS), {60: y}, 3.0).logits(images.test_images).astype(float)
    before, after = (row["measures"] for row in actual["table"][:2])
    losses = [-log_softmax(logits, axis=1)[np.arange(60), y].mean() for logits in z]
    assert before["log_loss"]["seeds"] == pytest.approx(losses)
    assert before["accuracy"]["mean"] == pytest.approx(np.mean(z.argmax(axis=2) == y))
    eces = [bc.metrics.ece(softmax(logits, axis=1), y, bins=10) for logits in z]
    assert before["ece"]["seeds"] == pytest.approx(eces)
    expected = kept([similar(logits, y) for logits in z], [similar(logits, y) for logits in z])
    assert before["structure"]["seeds"] == pytest.approx(expected)
    assert after["structure"] == before["structure"]
    validation = images.split().validation_images
    model = bc.Temperature(inputs="logits")
    pretend = Pretended(None, range(SEEDS), {20: images.split().validation_labels}, 3.0)
    scale = model.fit(pretend.logits(validation)[0], images.split().validation_labels)
    assert after["inverse_temperature"]["seeds"][0] == pytest.approx(1 / scale.temperature_)
    scaled = -log_softmax(z[0] / scale.temperature_, axis=1)[np.arange(60), y].mean()
    assert after["log_loss"]["seeds"][0] == pytest.approx(scaled)
    # Students have teachers before and after scaling.
    values = students["extras"]["teacher"].values
    np.testing.assert_allclose(values[2] * scale.temperature_, values[0], rtol=1e-5)
    assert len(actual["designed"]["instance"]) == SEEDS
    assert actual["three_classes"][:2] in (["class 0", "class 1"], ["class 2", "class 3"])

    with (tmp_path / "networks.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == (1 + 2 + 4) * SEEDS
    assert [float(row["test_log_loss"]) for row in rows[:SEEDS]] == pytest.approx(losses)
    assert json.loads((tmp_path / "networks.json").read_text())["claims"] == actual["claims"]
    for name, shown in (("logits", 4), ("logits_three", 3)):
        text = (tmp_path / f"{name}.svg").read_text()
        assert "Instance-based smoothing" in text
        assert sum(f">class {label}<" in text for label in range(4)) == shown


def test_command(pretended: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, calls = pretended
    monkeypatch.setattr(networks, "load", lambda name, folder: images)
    line = ["networks", "--data", "made", "--out", str(tmp_path), "--seeds", "2"]
    line += ["--smoothing", "0.1", "--offset", "1", "--projection", "pca", "--checkpoints"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    actual = json.loads((tmp_path / "networks.json").read_text())
    facts = actual["table"][0]["measures"]
    assert calls[0]["checkpoint"] == str(tmp_path / "checkpoints") + "/without smoothing"
    mean, half = (100 * facts["accuracy"][key] for key in ("mean", "half_width"))
    assert cells(result.stdout, "none")[0][:2] == ["no", f"{mean:.1f} ± {half:.1f}"]
    assert "constant (0.1)" in result.stdout
    assert result.stdout.count("not clear") == [c["verdict"] for c in actual["claims"]].count(
        "not clear"
    )


def test_files_of_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the path from published bytes to tables; only the training is simulated."""
    rng = np.random.default_rng(0)
    directory = tmp_path / "cifar-10-batches-bin"
    directory.mkdir()
    for name in (*(f"data_batch_{part}" for part in range(1, 6)), "test_batch"):
        rows = rng.integers(256, size=(20, 3073), dtype=np.uint8)
        rows[:, 0] = np.arange(20) % 10
        (directory / f"{name}.bin").write_bytes(rows.tobytes())
    (directory / "batches.meta.txt").write_text("\n".join("abcdefghij"))
    monkeypatch.setitem(training.data.COUNTS, "cifar10", (20, 20))
    images = networks.load("cifar10", tmp_path)
    split = images.split()
    labels = {80: split.train_labels, 20: images.test_labels}
    np.testing.assert_array_equal(np.bincount(split.validation_labels), [2] * 10)
    labels[20] = np.sort(images.test_labels)  # As many as validation labels.
    made = []

    def train(make_network: Any, data: Any, **options: Any) -> Pretended:
        made.append((make_network, data))
        return Pretended(options["runs"], options["seeds"], labels, 1.0)

    monkeypatch.setattr(training, "train", train, raising=False)
    line = ["networks", "--data", "cifar10", "--folder", str(tmp_path), "--out"]
    line += [str(tmp_path / "out"), "--seeds", "2", "--projection", "pca"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    assert "cifar10: resnet18, 2 seeds" in result.stdout
    actual = json.loads((tmp_path / "out" / "networks.json").read_text())
    assert actual["images"] == {"train": 80, "validation": 20, "test": 20}
    ours, known = actual["table"][0]["measures"], actual["published"]["rows"][0]["measures"]
    assert set(known) == set(MEASURES)
    assert "ours, resnet18 / ResNet18" in result.stdout
    assert f"{ours['log_loss']['mean']:.3f} / 0.362" in result.stdout
    assert made[0][1].train_inputs.shape == (80, 32, 32, 3)
    assert made[0][1].mean.shape == (3,)


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["networks", "--out", str(tmp_path), "--data"]
    monkeypatch.delenv("BAYESCAL_IMAGES", raising=False)
    check_error([*line, "cats"], "data must be")
    check_error([*line, "cifar10"], "folder must be given")
    check_error([*line, "digits", "--network", "huge"], "network must be")
    check_error([*line, "digits", "--network", "densenet", "--width", "3"], "width must not be")
    check_error([*line, "digits", "--projection", "cube"], "projection must be")


@pytest.mark.slow
def test_networks_that_are_trained(tmp_path: Path) -> None:
    """Check images of known similarity: better than chance, correlated in pairs, and stored."""
    images = made_images(train=400, test=200, classes=4, size=8, noise=1.0, shift=0)

    def study(out: str, **options: Any) -> dict[str, Any]:
        return networks.run(
            "made",
            tmp_path / out,
            images=images,
            seeds=SEEDS,
            epochs=8,
            width=4,
            learning_rate=0.05,
            smoothing=(0.1,),
            offsets=(1,),
            **options,
        )

    actual = study("one", checkpoints=True)
    for row in actual["table"]:
        assert row["measures"]["accuracy"]["mean"] > 0.5
        assert row["measures"]["student_accuracy"]["mean"] > 0.4
    assert min(map(min, actual["designed"].values())) > 0.3
    assert actual["network"] == "student"
    # Finished trainings are read, not repeated.
    again = study("one", checkpoints=True, projection="pca")
    assert again["table"] == actual["table"]
    for stage, seconds in actual["seconds"].items():
        assert again["seconds"][stage]["train"] == seconds["train"] > 0
