"""Networks: maps against estimators and SciPy, published results, and resumed runs."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

import bayescal as bc
from benchmarks.studies import _calibrators, _networks, _published, cnn
from benchmarks.studies._binary_tables import split_rows

RECORDED = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "study_cnn.json"
QUICK = ("uncalibrated", "temperature", "forest", "temperature+forest")


def draw(seed: int, n: int, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Draw over-confident logits (n, k) in float32, and labels (n,)."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, k))
    y = (z + rng.gumbel(size=(n, k))).argmax(axis=1)
    return (2.5 * z).astype(np.float32), y.astype(np.int16)


def write_network(path: Path, seed: int, n: int = 120) -> None:
    (z, y), (test_z, test_y) = draw(seed, n), draw(seed + 50, n + 30)
    np.savez(path, logits_val=z, y_val=y, logits_test=test_z, y_test=test_y)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a folder with north.npz, south.npz (test rows only, probabilities) and other.npz."""
    directory = tmp_path / "data"
    directory.mkdir()
    write_network(directory / "north.npz", 0)
    z, y = draw(7, 201)
    np.savez(directory / "south.npz", probs_test=softmax(z, axis=1), y_test=y)
    np.savez(directory / "other.npz", p=np.ones(3), y=np.ones(3))
    return directory


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


# --- what is run --------------------------------------------------------------------------------


def test_all_registered_maps_are_there_once() -> None:
    methods, missing = _calibrators.find_methods()
    names = [method.name for method in methods]
    assert len(set(names)) == len(names)
    assert {"uncalibrated", *_calibrators.registered(), "isotonic", "temperature+knn"} <= set(names)
    assert set(_calibrators.VARIANTS) == set(missing) | (set(_calibrators.VARIANTS) & set(names))
    random = {method.name for method in methods if method.random}
    assert {"forest", "decision_cv", "order_preserving", "temperature+forest"} <= random
    assert not {"uncalibrated", "temperature", "matrix_odir", "isotonic", "knn"} & random
    assert len({method.question() for method in methods}) == len(methods)


def test_maps_that_are_not_registered_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = {name: entry for name, entry in _calibrators.registered().items() if name != "knn"}
    monkeypatch.setattr(_calibrators, "registered", lambda: rest)
    methods, missing = _calibrators.find_methods()
    assert missing == ["knn_euclidean", "knn_128"]
    assert not [method for method in methods if "knn" in method.name]


def test_results_are_those_of_estimators_and_scipy() -> None:
    (z, y), (test_z, test_y) = draw(0, 300), draw(1, 400)

    def loss(temperature: float) -> float:
        return -log_softmax(z / temperature, axis=1)[np.arange(len(y)), y].mean()

    best = minimize_scalar(loss, (0.5, 5), method="brent").x
    scaled = softmax(test_z / best, axis=1)
    temperature = bc.Temperature(inputs="logits").fit(z, y)
    knn = bc.KNN(64).fit(temperature.predict_proba(z), y)
    probs = {
        "uncalibrated": softmax(test_z.astype(float), axis=1),
        "temperature": scaled,
        "temperature+knn": knn.predict_proba(temperature.predict_proba(test_z)),
    }
    fixed = _calibrators.Method("temperature+knn", bc.KNN(64), True)
    outcome = _calibrators.run_method(fixed, z, y, test_z, "logits", 0)
    np.testing.assert_allclose(outcome.probs, probs["temperature+knn"], atol=1e-9)
    for name in ("uncalibrated", "temperature"):
        result = cnn.evaluate(z, y, test_z, test_y, name)
        picked = probs[name][np.arange(len(test_y)), test_y]
        assert result["log_loss"] == pytest.approx(-np.log(picked).mean(), abs=1e-6)
        squares = (probs[name] - np.eye(3)[test_y]) ** 2
        assert result["brier_score"] == pytest.approx(squares.sum(axis=1).mean(), abs=1e-6)
        assert result["accuracy"] == np.mean(probs[name].argmax(axis=1) == test_y)
        assert result["status"] == "converged"


@pytest.mark.slow
def test_every_map_is_measured() -> None:
    (z, y), (test_z, test_y) = draw(0, 150), draw(1, 100)
    for method in _calibrators.find_methods()[0]:
        for scores, test, inputs in (
            (z, test_z, "logits"),
            (softmax(z, axis=1), softmax(test_z, axis=1), "probs"),
        ):
            result = cnn.evaluate(scores, y, test, test_y, method.name, inputs=inputs)
            assert set(cnn.METRICS) < set(result)
            assert all(np.isfinite(result[key]) for key in cnn.METRICS)


def test_run_writes_rows_and_what_they_say(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    calls = []
    summary = cnn.run(
        folder,
        out,
        maps=QUICK,
        seeds=2,
        about={"a": "1"},
        progress=lambda *facts: calls.append(facts),
    )
    assert calls[0] == ("north: uncalibrated", 0, 12)
    assert calls[-2:] == [("south: temperature+forest", 11, 12), ("", 12, 12)]
    assert sorted(os.listdir(out)) == ["cnn.csv", "cnn.json", "parts"]
    assert json.loads((out / "cnn.json").read_text()) == summary
    rows = read(out / "cnn.csv")
    assert len(rows) == 12
    for network, facts in summary["networks"].items():
        assert list(facts["maps"]) == list(QUICK)
        for name, result in facts["maps"].items():
            mine = [r for r in rows if (r["network"], r["map"]) == (network, name)]
            for key in cnn.METRICS:
                values = [float(row[key]) for row in mine]
                assert result[key] == pytest.approx(np.mean(values))
                if "spread" in result:
                    assert result["spread"][key] == [min(values), max(values)]
            assert ("spread" in result) == ("forest" in name)
    north, south = (summary["networks"][name] for name in ("north", "south"))
    assert north["rows"] == {"calibration": 120, "test": 150}
    assert north["split"] == "validation rows"
    assert sum(south["rows"].values()) == 201
    assert south["split"] == "half of the test rows of each class, seed 0"
    assert south["published"] == {"figures": [], "remarks": []}


def test_halves_are_stratified_and_disjoint(folder: Path) -> None:
    network = _networks.read_network("south", folder / "south.npz")
    with np.load(folder / "south.npz") as file:
        probs, y = file["probs_test"].astype(float), file["y_test"]
    counts = np.bincount(network.y) - np.bincount(network.test_y)
    assert np.abs(counts).max() <= 1
    rows = np.concatenate([network.scores, network.test_scores])
    order, expected = np.lexsort(rows.T), np.lexsort(probs.T)
    np.testing.assert_array_equal(rows[order], probs[expected])
    labels = np.concatenate([network.y, network.test_y])
    np.testing.assert_array_equal(labels[order], y[expected])
    test, calibration = split_rows(y, np.arange(201), 0.5, np.random.default_rng(0))
    np.testing.assert_array_equal(network.scores, probs[calibration])
    np.testing.assert_array_equal(network.test_scores, probs[test])


Z, Y = draw(0, 20)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y_val": Y, "logits_val": Z[:, :2]}, "y_val must hold the codes of 2 classes"),
        ({"y_val": np.minimum(Y, 1), "logits_val": Z[:, :2]}, "equally many classes"),
        ({"logits_val": Z}, "there must be arrays logits_val and y_val"),
        ({"y_test": Y[:5]}, "must have shape"),
        ({"logits_test": Z[:, 0]}, "must have shape"),
        ({"y_test": Y + 1}, "y_test must hold the codes of 3 classes"),
        ({"y_test": Y / 1}, "y_test must hold the codes of 3 classes"),
        ({"logits_test": Z * np.inf}, "must hold finite numbers"),
        ({"logits_test": np.array([["a"] * 3] * 20)}, "must hold finite numbers"),
        ({"logits_test": np.array([[None] * 3] * 20)}, "cannot read the file"),
    ],
)
def test_broken_networks_are_errors(tmp_path: Path, arrays: dict, message: str) -> None:
    np.savez(tmp_path / "net.npz", **{"logits_test": Z, "y_test": Y} | arrays)
    with pytest.raises(ValueError, match=message):
        cnn.run(tmp_path, tmp_path / "out", maps=QUICK[:1])
    (tmp_path / "net.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="net.npz: cannot read the file"):
        cnn.run(tmp_path, tmp_path / "out", maps=QUICK[:1])


# --- published figures --------------------------------------------------------------------------


def test_published_figures_stand_beside_ours(folder: Path, tmp_path: Path) -> None:
    (folder / "north.npz").rename(folder / "kull_densenet40_c10.npz")
    rows = {"C-10 DenseNet-40": {"uncal": 0.5, "TS": 0.25, "unknown": 9}, "C-10 other": {"TS": 7}}
    tables = {key: rows for name in _published._VALK_METRICS for key in (name, f"supp_{name}")}
    (folder / "published").mkdir()
    path = folder / "published" / "valk_msc_knn_tables.json"
    path.write_text(json.dumps({"tables": tables}))
    options: dict[str, Any] = {"networks": ["kull_densenet40_c10"], "maps": QUICK[:2]}
    result = cnn.run(folder, tmp_path / "out", **options)["networks"]["kull_densenet40_c10"]
    figures = result["published"]["figures"]
    assert {f["method"] for f in figures} == set(QUICK[:2])
    for figure in figures:
        assert figure["ours"] == result["maps"][figure["method"]][figure["metric"]]
    valk = {(f["method"], f["metric"]): f["value"] for f in figures if f["source"] == "Valk"}
    assert len(valk) == 12
    assert valk["temperature", "log_loss"] == 0.25
    assert valk["uncalibrated", "ece_mass"] == 0.005
    assert any(
        "published figures are ours within" in line for line in result["published"]["remarks"]
    )
    path.write_text("{}")
    with pytest.raises(ValueError, match="cannot read the published tables"):
        cnn.run(folder, tmp_path / "out", **options)


def test_remarks_count_what_agrees() -> None:
    figures = [
        _published.Figure("Kull", "temperature", metric, value, 1e-3)
        for metric, value in (("log_loss", 0.225), ("ece", 0.02))
    ]
    ours = {"temperature": {"log_loss": 0.2259, "ece": 0.01}}
    result = _published.beside(figures, ours)
    assert [f["ours"] for f in result["figures"]] == [0.2259, 0.01]
    line = next(text for text in result["remarks"] if "figures are ours" in text)
    assert line.startswith("1 of 2 published figures")
    assert line.endswith("Farthest are ece of temperature, 0.01 for 0.02.")


def test_published_methods_exist() -> None:
    names = {method.name for method in _calibrators.find_methods()[0]}
    names |= set(_calibrators.VARIANTS)
    assert set(_calibrators.ABBREVIATIONS) <= names | {"order_preserving"}
    for network in _published._OTHERS:
        for figure in _published.published_figures(network, Path("nowhere")):
            assert figure.method in names
            assert figure.metric in cnn.METRICS


@pytest.mark.slow
@pytest.mark.realdata
def test_networks_agree_with_what_is_published_and_recorded(
    shared_data: Path, tmp_path: Path
) -> None:
    maps = ["uncalibrated", "temperature", "vector", "matrix_odir", "temperature+knn"]
    networks = ["kull_densenet40_c10", "gupta_resnet50_c10"]
    summary = cnn.run(shared_data, tmp_path, networks=networks, maps=maps)
    facts = summary["networks"]["kull_densenet40_c10"]
    scaled = facts["maps"]["temperature"]
    assert scaled["log_loss"] == pytest.approx(0.225086, abs=1e-6)
    assert scaled["ece"] == pytest.approx(0.009464, abs=2e-6)
    assert scaled["ece_mass"] == pytest.approx(0.00924, abs=5e-5)
    assert facts["maps"]["temperature+knn"]["ece_mass"] == pytest.approx(0.0052, abs=1e-3)
    for figure in facts["published"]["figures"]:
        if figure["method"] == "uncalibrated" and figure["metric"] != "loss_gap":
            assert figure["ours"] == pytest.approx(figure["value"], abs=figure["unit"])
        if figure["metric"] == "loss_gap":
            assert figure["ours"] == pytest.approx(figure["value"], rel=0.12)
        if figure["metric"] == "log_loss":
            assert figure["ours"] == pytest.approx(figure["value"], abs=1.5e-3)
    recorded = json.loads(RECORDED.read_text())["networks"]
    for name in networks:
        for method in maps:
            mine, old = summary["networks"][name]["maps"][method], recorded[name]["maps"][method]
            for key in cnn.METRICS:
                assert mine[key] == pytest.approx(old[key], abs=1e-3)
