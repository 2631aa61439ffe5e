"""Splines on networks: clipping, halves and claims by hand, and small trained networks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from typer.testing import CliRunner

import bayescal as bc
from benchmarks.studies import _spline_forest, _spline_training, splines
from benchmarks.studies.app import app
from benchmarks.studies.paired import paired, row_losses, verdict

QUICK = ("temperature", "isotonic")


def draw(seed: int, n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (n, 3))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return {"logits": (3 * z).astype(np.float32), "y": y}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "data" / "predictions"
    directory.mkdir(parents=True)
    validation, test = draw(0, 90), draw(1, 120)
    arrays = {f"logits_{part}": d["logits"] for part, d in (("val", validation), ("test", test))}
    labels = {f"y_{part}": d["y"] for part, d in (("val", validation), ("test", test))}
    every: dict[str, Any] = arrays | labels
    np.savez(directory / "with_val.npz", **every)
    np.savez(directory / "without.npz", logits_test=test["logits"], y_test=test["y"])
    rng = np.random.default_rng(2)
    p = rng.integers(0, 11, 400) / 10
    np.savez(
        directory / "adult_randomforest.npz", p=p, y=(rng.random(400) < p**1.5).astype(np.int8)
    )
    return tmp_path / "data"


def test_clipping_by_hand() -> None:
    probs = np.array([[0.999, 0.001, 0.0], [0.5, 0.3, 0.2]])
    expected = np.array([[0.999, 0.01, 0.01], [0.5, 0.3, 0.2]]) / [[1.019], [1.0]]
    np.testing.assert_allclose(splines.clip(probs, 0.01), expected, rtol=1e-12)
    y = np.array([2, 0])
    actual = splines.clipped([(probs, probs)], [y], y)
    losses = [row_losses(splines.clip(probs, p), y, 1e-15).mean() for p in splines.P_MIN]
    for p in actual.values():
        assert row_losses(p, y, 1e-15).mean() == pytest.approx(min(losses))


def test_differences_are_those_of_a_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 40))
    actual = paired(first, second)
    test = stats.ttest_rel(first, second)
    assert actual["difference"] / actual["error"] == pytest.approx(test.statistic)
    assert verdict(actual) == "open"
    assert verdict(paired(first - 2, second)) == "holds"
    assert verdict(paired(first + 2, second)) == "fails"


def test_verdicts_are_wrong_as_often_as_they_say() -> None:
    """Check that equally good methods are told apart in 5 % of runs, for many and few values."""
    rng = np.random.default_rng(0)
    for n, threshold in ((400, 2.0), (5, float(stats.t.ppf(0.975, 4)))):
        outcomes = [verdict(paired(*rng.normal(size=(2, n))), threshold) for _ in range(2000)]
        wrong = np.mean([outcome != "open" for outcome in outcomes])
        expected = 2 * stats.t.sf(threshold, n - 1)
        assert abs(wrong - expected) < 4 * np.sqrt(expected * (1 - expected) / 2000)


@pytest.mark.parametrize("name", ["with_val", "without"])
def test_measures_are_of_rows_that_do_not_calibrate(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    methods = {m: splines.METHODS[m] for m in QUICK}
    monkeypatch.setattr(splines, "METHODS", methods)
    monkeypatch.setattr(splines, "CLAIMS", {"claim": ("log_loss", "temperature", "uncalibrated")})
    monkeypatch.setattr(splines, "_train", lambda seed: {"seed": seed})
    calls: list[Any] = []
    actual = splines.run(
        folder, tmp_path, networks=[name], seeds=2, progress=lambda *facts: calls.append(facts)
    )
    assert json.loads((tmp_path / "splines.json").read_text()) == actual
    assert [facts[0] for facts in calls] == [name, "training, seed 0", "training, seed 1", ""]
    assert actual["training"]["seeds"] == [{"seed": 0}, {"seed": 1}]
    validation, test = draw(0, 90), draw(1, 120)
    z, y = test["logits"].astype(float), test["y"]
    plain = softmax(z, axis=1)
    facts = actual["networks"][name]
    assert list(facts["methods"])[:5] == ["uncalibrated", "clipped, best", "clipped", *QUICK]
    assert facts["methods"]["uncalibrated"]["log_loss"] == pytest.approx(log_loss(y, plain))
    claim = facts["claims"]["claim"]
    losses = [facts["methods"][m]["log_loss"] for m in ("temperature", "uncalibrated")]
    assert claim["difference"] == pytest.approx(losses[0] - losses[1])
    assert facts["rows"]["test"] == 120
    if name == "with_val":
        fitted = bc.Temperature(inputs="logits").fit(validation["logits"], validation["y"])
        expected = log_loss(y, fitted.predict_proba(z))
        assert facts["methods"]["temperature"]["log_loss"] == pytest.approx(expected, rel=1e-6)
        assert facts["split"] == "validation rows"
    else:
        assert facts["split"] == "each half of the test rows the other"
        assert facts["rows"]["calibration"] == 60


def test_a_curve_is_that_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a line in log odds, which the spline of the probability learns from enough rows."""
    rng = np.random.default_rng(3)
    z = rng.normal(0, 2, (4000, 2))
    y = (z @ [[1, 0], [0, 1]] + rng.gumbel(size=z.shape)).argmax(axis=1)
    network = splines.Network("one", "logits", 2 * z, y, 2 * z, y, "validation rows", "")
    actual = splines.curves(network)
    at, probs = np.array(actual["log_odds"]), np.array(actual["probabilities"])
    model = LogisticRegression(C=np.inf).fit((2 * z[:, 1:] - 2 * z[:, :1]), y)
    expected = model.predict_proba(at[:, None])[:, 1]
    middle = np.abs(at) < 5
    assert np.abs(probs[1] - expected)[middle].max() < 0.05
    assert np.abs(probs[0] - (1 - expected[::-1]))[middle].max() < 0.05


def test_small_networks_calibrate_on_what_they_have_not_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fits: list[tuple[set, set]] = []

    def epochs(x: Any, y: Any, new: Any, seed: int) -> Any:
        fits.append(({row.tobytes() for row in x}, {row.tobytes() for row in new}))
        for _ in _spline_training.CHECKPOINTS[:2]:
            yield np.full((len(new), 10), 0.1)

    monkeypatch.setattr(_spline_training, "_epochs", epochs)
    actual = {name: list(steps) for name, steps in _spline_training.train(0).items()}
    assert len(fits) == 7
    for training, predicted in fits:
        assert not training & predicted
    assert [len(training) for training, _ in fits] == [960, 1200, *[960] * 5]
    held, crossed = actual["held out"], actual["cross-validated"]
    assert len(held) == len(crossed) == 2
    scores, labels, test, y = held[0]
    assert scores.shape == (240, 10) and test.shape == (597, 10)
    assert len(labels) == 240 and len(y) == 597
    scores, labels, test, other = crossed[0]
    assert scores.shape == (1200, 10) and len(labels) == 1200
    np.testing.assert_array_equal(other, y)


@pytest.mark.slow
def test_a_spline_mends_a_network_that_was_trained_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_spline_training, "CHECKPOINTS", (200,))
    actual = splines._train(0)
    for scheme in ("held out", "cross-validated"):
        assert actual[scheme]["uncalibrated"]["accuracy"][0] > 0.8
    # The held-out rows are too few for ten splines.
    loss = {name: measures["log_loss"][0] for name, measures in actual["cross-validated"].items()}
    assert loss["compact spline"] < loss["uncalibrated"]


def test_a_forest_is_calibrated_half_on_half(folder: Path) -> None:
    path = _spline_forest.find_forest(folder)
    assert path is not None and path == _spline_forest.find_forest(path.parent) is not None
    actual = _spline_forest.run_forest(path)
    with np.load(path) as file:
        p, y = file["p"], file["y"]
    assert actual["rows"] == 400
    expected = log_loss(y, np.clip(p, 1e-15, 1 - 1e-15))
    assert actual["log_loss"]["uncalibrated"] == pytest.approx(expected, rel=1e-9)
    assert actual["log_loss"]["spline"] < actual["log_loss"]["uncalibrated"]
    assert actual["impossible"]["uncalibrated"] == np.sum(p == 1 - y)
    assert set(actual["claims"]) == set(_spline_forest.CLAIMS)
    assert _spline_forest.find_forest(Path("nowhere")) is None


def test_the_command_prints_methods_and_claims(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = {m: splines.METHODS[m] for m in QUICK}
    monkeypatch.setattr(splines, "METHODS", methods)
    monkeypatch.setattr(splines, "CLAIMS", {"claim": ("log_loss", "temperature", "uncalibrated")})
    monkeypatch.setattr(splines, "_train", lambda seed: {"seed": seed})
    line = ["splines", "--data", str(folder), "--out", str(tmp_path), "--seeds", "1"]
    result = CliRunner().invoke(app, [*line, "--network", "with_val"])
    assert result.exit_code == 0, result.output
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        splines.run(folder, tmp_path, seeds=0)
    actual = json.loads((tmp_path / "splines.json").read_text())["networks"]["with_val"]
    for value in (actual["methods"]["isotonic"]["log_loss"], actual["claims"]["claim"]["error"]):
        assert f"{value:.4f}" in result.stdout
