"""The arena: comparisons by hand, files of both kinds, and the command."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from typer.testing import CliRunner

import bayescal as bc
from benchmarks.studies import arena
from benchmarks.studies.app import app
from benchmarks.tests.failing import check_error

QUICK = ["--method=auto", "--method=temperature"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two tables of two models each, a network, and results of a peer."""
    rng = np.random.default_rng(0)
    rows = [["experiment", "method", "classes", "n_cal", "log_loss", "brier", "ece15", "seconds"]]
    for table in ("one", "two"):
        for model in ("a", "b"):
            z = rng.normal(0, 2, 400)
            y = (rng.random(400) < 1 / (1 + np.exp(-z / 3))).astype(np.int8)
            p = softmax(np.stack([-z / 2, z / 2], axis=1), axis=1).astype(np.float32)
            name = f"tab-{table}-{model}"
            np.savez(tmp_path / name, pc=p[:90], yc=y[:90], pt=p[90:], yt=y[90:])
            rows.append([name, "good", "2", "90", "0.01", "0.9", "0.05", "1"])
    z = rng.normal(0, 2, (600, 3)).astype(np.float32)
    y = (rng.random((600, 1)) > np.cumsum(softmax(z / 3, axis=1), axis=1)).sum(axis=1)
    np.savez(tmp_path / "net", logits_test=z, y_test=y)
    np.savez(tmp_path / "other", something=z)
    with (tmp_path / "peers.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return tmp_path


def test_comparison_by_hand() -> None:
    ours = {"a": 0.1, "b": 0.5, "c": 0.2, "d": 1.0}
    theirs = {"a": 0.2, "b": 0.2, "c": 0.2, "e": 1.0}
    groups = {"a": "x", "b": "x", "c": "y", "d": "y", "e": "y"}
    actual = arena.compare(ours, theirs, groups)
    assert (actual["experiments"], actual["groups"]) == (3, 2)
    assert actual["win_rate"] == pytest.approx((1 + 0 + 0.5) / 3)
    assert actual["loss_rate"] == pytest.approx(1 / 3)
    assert actual["difference"] == pytest.approx(((-0.1 + 0.3) / 2 + 0) / 2)
    assert actual["error"] == pytest.approx(np.std([0.1, 0], ddof=1) / np.sqrt(2))
    assert actual["win_error"] == pytest.approx(0)
    actual = arena.compare({**ours, "e": 1.5}, theirs, groups)
    assert actual["win_rate"] == pytest.approx(1.5 / 4)
    assert actual["win_error"] == pytest.approx(np.std([1 / 2, 1 / 4], ddof=1) / np.sqrt(2))


def test_experiments_of_both_kinds(folder: Path) -> None:
    actual = arena.find_experiments([folder])
    assert sorted(actual) == ["cnn-net", *(f"tab-{t}-{m}" for t in ("one", "two") for m in "ab")]
    table = arena.read_experiment("tab-one-b", actual["tab-one-b"])
    assert (table.group, table.inputs, table.scores.shape) == ("tab-one", "probs", (90, 2))
    np.testing.assert_allclose(table.scores.sum(axis=1), 1, rtol=1e-15)
    certain = np.array([[1e-12, 1], [1, 1e-30]], np.float32)
    np.savez(folder / "sure", pc=certain, yc=[1, 0], pt=certain, yt=[1, 0])
    np.testing.assert_allclose(
        arena.read_experiment("sure", folder / "sure.npz").scores, certain, rtol=1e-11
    )
    net = arena.read_experiment("cnn-net", actual["cnn-net"])
    order = np.random.default_rng(0).permutation(600)
    with np.load(folder / "net.npz") as file:
        np.testing.assert_array_equal(net.scores, file["logits_test"][order[:300]])
        np.testing.assert_array_equal(net.test_y, file["y_test"][order[300:]])


def test_command(folder: Path, tmp_path: Path) -> None:
    line = ["arena", "--data", str(folder), "--out", str(tmp_path / "out"), *QUICK]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    assert "several classes: auto against" in result.stdout
    with (tmp_path / "out" / "arena.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 5 * 3
    summary = json.loads((tmp_path / "out" / "arena.json").read_text())
    assert (summary["method"], summary["experiments"]) == ("auto", 5)
    against = summary["comparisons"]["binary"]
    assert against["peer good"]["log_loss"]["win_rate"] == 0
    assert against["peer good"]["brier_score"]["win_rate"] == 1
    loss = {
        method: np.array(
            [float(r["log_loss"]) for r in rows if r["method"] == method and r["classes"] == "2"]
        )
        for method in ("uncalibrated", "auto", "temperature")
    }
    gain = summary["improvements"]["binary"]["auto"]["log_loss"]
    tables = (loss["uncalibrated"] - loss["auto"]).reshape(2, 2).mean(axis=1)
    assert gain["difference"] == pytest.approx(tables.mean(), abs=1e-15)
    assert gain["error"] == pytest.approx(np.std(tables, ddof=1) / np.sqrt(2), abs=1e-15)
    loss["peer good"] = np.full(4, 0.01)
    auto = loss.pop("auto")
    wins = [np.mean(np.sign(other - auto) / 2 + 0.5) for other in loss.values()]
    means = summary["means"]["binary"]["methods"]
    assert means["auto"]["log_loss_win_rate"] == pytest.approx(np.mean(wins))
    assert against["uncalibrated"]["log_loss"]["win_rate"] == 1
    data = arena.read_experiment("tab-one-a", folder / "tab-one-a.npz")
    probs = bc.AveragedBeta().fit(data.scores, data.y).predict_proba(data.test_scores)
    row = next(r for r in rows if (r["experiment"], r["method"]) == ("tab-one-a", "auto"))
    assert float(row["log_loss"]) == pytest.approx(bc.metrics.log_loss(probs, data.test_y))
    assert float(row["brier_score"]) == pytest.approx(2 * np.mean((probs[:, 1] - data.test_y) ** 2))


def test_further_opponents(folder: Path, tmp_path: Path) -> None:
    def even(probs: np.ndarray, y: np.ndarray, test: np.ndarray) -> np.ndarray:
        return np.full(test.shape, 1 / test.shape[1])

    actual = arena.run([folder], tmp_path, methods=["temperature"], against={"even": even})
    comparison = actual["comparisons"]["several classes"]["even"]["log_loss"]
    assert comparison["experiments"] == 1
    assert comparison["error"] is None
    assert actual["means"]["several classes"]["methods"]["even"]["log_loss"] == pytest.approx(
        np.log(3)
    )


def test_parts_by_folder(folder: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (folder / "tab-two-a.npz").rename(more / "tab-three-a.npz")
    actual = arena.run([folder, more], tmp_path, methods=["temperature"])["comparisons"]
    counts = {
        part: by_method["uncalibrated"]["log_loss"]["experiments"]
        for part, by_method in actual.items()
    }
    by_folder = {f"binary, {folder.name}": 3, "binary, more": 1}
    assert counts == {"binary": 4, "several classes": 1, **by_folder}


def test_parts_by_size(folder: Path, tmp_path: Path) -> None:
    with np.load(folder / "net.npz") as file:
        np.savez(
            folder / "small", logits_test=file["logits_test"][:120], y_test=file["y_test"][:120]
        )
    actual = arena.run([folder], tmp_path, methods=["temperature"])["comparisons"]
    counts = {
        part: by_method["uncalibrated"]["log_loss"]["experiments"]
        for part, by_method in actual.items()
    }
    assert counts == {
        "binary": 4,
        "several classes": 2,
        "several classes, below 100 rows": 1,
        "several classes, 100 to 999 rows": 1,
    }


def test_errors(tmp_path: Path) -> None:
    line = ["arena", "--data"]
    check_error([*line, str(tmp_path / "none")], "is not a folder")
    check_error([*line, str(tmp_path)], "must hold .npz files with pc, yc, pt and yt")
    np.savez(tmp_path / "net", logits_test=np.zeros((4, 3)), y_test=np.arange(4) % 3)
    check_error([*line, str(tmp_path), "--method", "best"], "methods must be among auto,")
