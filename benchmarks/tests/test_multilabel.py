"""Multi-label data: metrics against loops, labels that never occur, and resumed runs."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import hamming_loss, log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.studies import _label_data, multilabel
from benchmarks.studies._label_bins import add, calibrated_already, examine

QUICK = ("uncalibrated", "histogram", "logistic")


def draw(seed: int, n: int, labels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Draw probabilities (n, l) in float32, and labels, the last of which never occurs."""
    rng = np.random.default_rng(seed)
    probs = rng.random((n, labels)).astype(np.float32)
    y = (rng.random((n, labels)) < probs**2).astype(np.uint8)
    y[:, -1] = 0
    return probs, y


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a folder with scores.npz, features.npz and other.npz."""
    directory = tmp_path / "data"
    directory.mkdir()
    probs, y = draw(0, 121)
    np.savez(
        directory / "scores.npz", scores=probs, labels=y, label_names=np.array(["a", "b", "c"])
    )
    rng = np.random.default_rng(1)
    arrays = {}
    for part, n in (("train", 90), ("test", 60)):
        x = rng.normal(size=(n, 2)).astype(np.float32)
        arrays[f"X_{part}"] = x
        arrays[f"Y_{part}"] = np.stack(
            [x[:, 0] + rng.normal(size=n) > 0, x[:, 1] > 0.5, np.zeros(n)], axis=1
        ).astype(np.uint8)
    np.savez(directory / "features.npz", **arrays)
    np.savez(directory / "other.npz", p=np.ones(3))
    return directory


def by_hand(probs: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Compute the metrics one label and one bin at a time."""
    errors, n = [], len(y)
    for label in range(y.shape[1]):
        p, truth = probs[:, label], y[:, label].astype(int)
        bin_index = np.maximum(np.ceil(np.round(p * 10, 12)), 1)
        errors.append(sum(abs(np.sum((p - truth)[bin_index == b])) for b in range(1, 11)) / n)
    return {
        "ece_total": sum(errors),
        "ece_weighted": sum(y[:, j].sum() / n * errors[j] for j in range(y.shape[1])),
        "hamming_loss": hamming_loss(y, probs > 0.5),
        "brier_score": np.mean((probs - y) ** 2),
        "log_loss": np.mean(
            [
                log_loss(y[:, j], np.clip(probs[:, j], 1e-15, 1 - 1e-15), labels=[0, 1])
                for j in range(y.shape[1])
            ]
        ),
    }


def test_metrics_are_those_of_a_loop() -> None:
    (probs, y), (test_probs, test_y) = draw(2, 200), draw(3, 150)
    result = multilabel.evaluate(probs, y, test_probs, test_y, "uncalibrated")
    expected = by_hand(test_probs.astype(float), test_y)
    for key, value in expected.items():
        assert result[key] == pytest.approx(value, rel=1e-9)


def test_histogram_is_that_of_a_loop() -> None:
    (probs, y), (test_probs, test_y) = draw(4, 300), draw(5, 200)
    calibrated = np.empty(test_probs.shape)
    for label in range(3):
        bin_index = np.ceil(probs[:, label].astype(float) * 10)
        new = np.ceil(test_probs[:, label].astype(float) * 10)
        for b in range(1, 11):
            calibrated[new == b, label] = y[bin_index == b, label].mean()
    result = multilabel.evaluate(probs, y, test_probs, test_y, "histogram")
    for key, value in by_hand(calibrated, test_y).items():
        assert result[key] == pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("method", multilabel.METHODS)
def test_labels_without_contrast_and_separated_ones_work(method: str) -> None:
    probs, y = draw(6, 40)
    y[:, 0] = probs[:, 0] > 0.5
    for constant in (0, 1):
        y[:, -1] = constant
        result = multilabel.evaluate(probs, y, probs, y, method)
        assert all(np.isfinite(value) for value in result.values())
        assert method != "logistic" or result["without_optimum"] >= 1


def test_run_writes_rows_and_what_they_say(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    calls = []
    summary = multilabel.run(
        folder,
        out,
        splits=2,
        methods=QUICK,
        about={"a": "1"},
        progress=lambda *facts: calls.append(facts),
    )
    names = ["features, logistic regression", "features, forest", "scores"]
    assert [facts[0] for facts in calls] == [name for name in names for _ in range(2)] + [""]
    assert sorted(os.listdir(out)) == ["multilabel.csv", "multilabel.json", "parts"]
    assert json.loads((out / "multilabel.json").read_text()) == summary
    assert list(summary["data"]) == names
    assert summary["data"]["scores"]["rows"] == {"calibration": 60, "test": 61, "labels": 3}
    assert summary["data"][names[0]]["rows"] == {"calibration": 30, "test": 60, "labels": 3}
    with (out / "multilabel.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 3 * 2 * 3
    for name, facts in summary["data"].items():
        for method, result in facts["methods"].items():
            mine = [row for row in rows if (row["data"], row["method"]) == (name, method)]
            for key in multilabel.METRICS:
                values = [float(row[key]) for row in mine]
                assert result["mean"][key] == pytest.approx(np.mean(values))
                assert result["deviation"][key] == pytest.approx(np.std(values))


def test_classifier_never_sees_what_calibrates_or_tests(folder: Path) -> None:
    data = _label_data.find_label_data(folder, ["features"])[0]
    rows = data.split(3)
    x, y = data.arrays["X_train"], data.arrays["Y_train"]
    order = np.random.default_rng(3).permutation(90)
    calibration, fit = order[:30], order[30:]
    np.testing.assert_array_equal(rows.y, y[calibration])
    np.testing.assert_array_equal(rows.test_y, data.arrays["Y_test"])
    for label in (0, 1):
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        model.fit(x[fit], y[fit, label])
        expected = model.predict_proba(x[calibration])[:, 1]
        np.testing.assert_allclose(rows.probs[:, label], expected)
    assert (rows.probs[:, 2] == 0).all()


PROBS, Y = draw(0, 20)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": Y[:5]}, "must be matrices with equally many rows"),
        ({"labels": Y[:, 0]}, "must be matrices"),
        ({"labels": Y + 1}, "labels must hold 0 and 1 only"),
        ({"scores": PROBS * np.nan}, "scores must hold finite numbers"),
        ({"scores": PROBS * 2}, "scores must hold a probability for each of labels"),
        ({"scores": PROBS[:, :2]}, "scores must hold a probability for each of labels"),
        ({"labels": np.array([[None] * 3] * 20)}, "cannot read the file"),
    ],
)
def test_broken_data_are_errors(tmp_path: Path, arrays: dict, message: str) -> None:
    np.savez(tmp_path / "some.npz", **{"scores": PROBS, "labels": Y} | arrays)
    with pytest.raises(ValueError, match=message):
        multilabel.run(tmp_path, tmp_path / "out", methods=QUICK[:1])
    (tmp_path / "some.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="some.npz: cannot read the file"):
        multilabel.run(tmp_path, tmp_path / "out", methods=QUICK[:1])


def test_parts_with_other_columns_are_an_error(tmp_path: Path) -> None:
    parts = {"X_train": PROBS, "Y_train": Y, "X_test": PROBS[:, :2], "Y_test": Y}
    np.savez(tmp_path / "some.npz", **parts)
    with pytest.raises(ValueError, match="the same features and labels"):
        multilabel.run(tmp_path, tmp_path / "out")


@pytest.mark.realdata
def test_histograms_calibrate_real_labels(shared_data: Path, tmp_path: Path) -> None:
    result = multilabel.run(shared_data, tmp_path, names=["ribeiro_ecg_6"], methods=QUICK[:2])
    means = {m: f["mean"] for m, f in result["data"]["ribeiro_ecg_6"]["methods"].items()}
    for key in ("ece_total", "ece_weighted"):
        assert means["histogram"][key] < means["uncalibrated"][key]


def test_bins_are_counted_by_a_loop() -> None:
    (probs, y), (new, new_y) = draw(10, 25), draw(11, 40)
    result = examine(_label_data.Labels(probs, y, new, new_y), 10)
    cells = dict.fromkeys(("empty", "pure", "mixed"), 0)
    contradicted, after = dict(cells), dict.fromkeys(cells, 0.0)
    for label in range(3):
        calibration_bins, test = (np.ceil(p[:, label].astype(float) * 10) for p in (probs, new))
        for cell, truth in zip(test, new_y[:, label], strict=True):
            rows = y[calibration_bins == cell, label]
            kind = "empty" if not len(rows) else "mixed" if 0 < rows.mean() < 1 else "pure"
            value = rows.mean() if len(rows) else (cell - 0.5) / 10
            chance = value if truth else 1 - value
            cells[kind] += 1
            contradicted[kind] += chance == 0
            after[kind] -= np.log(max(chance, 1e-15))
    for kind, counts in result["kinds"].items():
        assert (counts["cells"], counts["contradicted"]) == (cells[kind], contradicted[kind])
        assert counts["after"] == pytest.approx(after[kind])
        assert cells[kind] > 0
    assert result["labels"] == 3
    twice = add([result, result])
    assert twice["labels"] == 6 and twice["kinds"]["pure"]["cells"] == 2 * cells["pure"]


@pytest.mark.parametrize("seed", range(2))
def test_what_the_theorems_say_is_true_of_fitted_rows(seed: int) -> None:
    """Check for any scores that the error vanishes, and does not increase if 1/2 is a border."""
    rng = np.random.default_rng(seed)
    probs, y = rng.random((60, 4)), rng.integers(0, 2, (60, 4))
    rows = _label_data.Labels(probs, y, *draw(seed, 30, 4))
    result = examine(rows, 10)
    assert result["fitted_ece"] < 1e-14
    assert result["fitted"]["ece"] == result["fitted"]["hamming_loss"] == 0
    # This does not hold for new rows of calibrated scores.
    new = rng.random((2000, 4))
    truth = (rng.random((2000, 4)) < new).astype(int)
    small = rng.random((30, 4))
    labels = (rng.random((30, 4)) < small).astype(int)
    result = examine(_label_data.Labels(small, labels, new, truth), 10)
    assert result["new"]["ece"] == 4 and result["new"]["brier_score"] == 4


@pytest.mark.parametrize(("n", "share"), [(5, 0.4), (20, 0.7)])
def test_a_calibrated_bin_gets_the_error_of_its_share(n: int, share: float) -> None:
    result = calibrated_already(n, share)
    k = np.random.default_rng(0).binomial(n, share, 200_000) / n
    away, wrong = np.abs(k - share), (k > 0.5) != (share > 0.5)
    assert abs(result["error"] - away.mean()) < 4 * away.std() / np.sqrt(len(k))
    assert abs(result["worse"] - wrong.mean()) < 4 * wrong.std() / np.sqrt(len(k))
