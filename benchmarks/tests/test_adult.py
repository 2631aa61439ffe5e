"""The Adult study: synthetic rows against scikit-learn, and published results."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB
from sklearn.preprocessing import OneHotEncoder

from benchmarks.studies import adult

RECORDED = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "study_adult.json"
VALUES = {
    1: ["Private", "State-gov", "?"],
    5: ["Never-married", "Married"],
    7: ["Husband", "Own-child", "Wife"],
    8: ["Black", "White"],
    9: ["Female", "Male"],
}


def rows(seed: int, n: int, end: str) -> str:
    """Return rows in the original format: a space after each comma, and an empty last line."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n):
        cells = ["0"] * 14
        cells[4] = str(rng.integers(2, 17))
        for column, values in VALUES.items():
            cells[column] = values[rng.integers(len(values))]
        odds = 0.3 * (int(cells[4]) - 9) + 2 * (cells[5] == "Married") - 1.5
        income = ">50K" if rng.logistic() < odds else "<=50K"
        lines.append(", ".join([*cells, income + end]))
    return "\n".join(lines) + "\n\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "data" / "tabular" / "more"
    directory.mkdir(parents=True)
    (directory / "adult_train.csv").write_text(rows(0, 400, ""))
    (directory / "adult_test.csv.gz").write_bytes(gzip.compress(rows(1, 200, ".").encode()))
    return tmp_path / "data"


def test_load_codes_the_values(folder: Path) -> None:
    x, y, test_x, test_y = adult.load(folder)
    assert (x.shape, test_x.shape) == ((400, 6), (200, 6))
    first = rows(0, 400, "").splitlines()[0].split(", ")
    assert x[0, 1] == int(first[4]) - 2  # 2 is the smallest value, and 10 comes after 9
    for index, column in ((0, 1), (2, 5), (3, 7), (4, 8), (5, 9)):
        assert sorted(VALUES[column])[x[0, index]] == first[column]
    wealthy = [line.endswith(">50K") for line in rows(0, 400, "").splitlines() if line]
    np.testing.assert_array_equal(y, wealthy)
    assert 0.2 < test_y.mean() < 0.8
    again = adult.load(folder / "tabular" / "more")
    np.testing.assert_array_equal(again[0], x)


def test_losses_are_those_of_scikit_learn(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ("Platt, of probabilities", "isotonic", "spline, strength .002")
    known = {name: adult.CALIBRATORS[name] for name in chosen}
    monkeypatch.setattr(adult, "CALIBRATORS", known | {"logistic, of log odds": known[chosen[0]]})
    calls = []
    result = adult.run(
        folder, tmp_path / "out", about={"a": "1"}, progress=lambda *facts: calls.append(facts)
    )
    assert json.loads((tmp_path / "out" / "adult.json").read_text()) == result
    assert [done for _, done, _ in calls] == list(range(13))
    assert calls[-1] == ("", 12, 12)
    assert result["rows"] == {"train": 400, "test": 200}
    assert len(result["remarks"]) == 4

    x, y, test_x, test_y = adult.load(folder)
    encoder = OneHotEncoder(sparse_output=False).fit(x)
    wide, test_wide = encoder.transform(x), encoder.transform(test_x)
    plain = BernoulliNB().fit(wide, y).predict_proba(test_wide)[:, 1]
    losses = {name: facts["cross_validated"] for name, facts in result["methods"].items()}
    assert losses["uncalibrated"] == pytest.approx(log_loss(test_y, plain), abs=1e-9)
    scores = cross_val_predict(BernoulliNB(), wide, y, cv=5, method="predict_proba")[:, 1:]
    platt = LogisticRegression(C=np.inf, tol=1e-10).fit(scores, y)
    expected = log_loss(test_y, platt.predict_proba(plain[:, None])[:, 1])
    assert losses[chosen[0]] == pytest.approx(expected, abs=1e-6)
    for facts in result["methods"].values():
        assert len(facts["held_out"]) == 5
        assert len(set(facts["held_out"])) == 5

    # Frequencies times a normal density, by hand.
    prior = np.log(np.bincount(y) / len(y))
    normal = GaussianNB().fit(x[:, [1]], y).predict_log_proba(test_x[:, [1]])
    others = [0, 2, 3, 4, 5]
    counts = CategoricalNB().fit(x[:, others], y).predict_log_proba(test_x[:, others])
    odds = np.diff(normal + counts - prior, axis=1)[:, 0]
    expected = log_loss(test_y, 1 / (1 + np.exp(-odds)))
    mixed = result["encodings"]["categorical, education-num normal"]
    assert mixed == pytest.approx(expected, abs=1e-9)


def test_every_calibrator_is_fitted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adult, "ENCODINGS", {adult.MODEL: adult.ENCODINGS[adult.MODEL]})
    monkeypatch.setattr(adult, "_SPLITS", 1)
    result = adult.run(folder)
    assert list(result["methods"]) == ["uncalibrated", *adult.CALIBRATORS]
    assert result["closest_encoding"] == adult.MODEL
    losses = [facts["cross_validated"] for facts in result["methods"].values()]
    assert np.all(np.array(losses) < 1)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("train", None, r"must hold adult_train\.csv or \.csv\.gz, as must tabular/more in it"),
        ("train", lambda text: text + "1, 2\n", "must have 15 columns"),
        ("train", lambda text: text.replace(">50K", "rich"), "the last of them <=50K or >50K"),
        ("train", lambda text: "", "must have 15 columns"),
        ("train", lambda text: text.replace(", 9, ", ", nine, "), "education-num must be a number"),
        ("test", lambda text: text.replace("Wife", "Wives"), "the test rows have a value"),
    ],
)
def test_broken_files_are_errors(folder: Path, part: str, change: object, message: str) -> None:
    directory = folder / "tabular" / "more"
    path = directory / f"adult_{part}.csv"
    (directory / "adult_test.csv.gz").unlink()
    (directory / "adult_test.csv").write_text(rows(1, 200, "."))
    text = path.read_text()
    path.unlink()
    if callable(change):
        path.write_text(change(text))
    with pytest.raises(ValueError, match=message):
        adult.load(folder)


@pytest.mark.realdata
@pytest.mark.slow
def test_published_figures(shared_data: Path) -> None:
    result = adult.run(shared_data)
    methods = result["methods"]
    assert result["rows"] == {"train": 32561, "test": 16281}
    assert result["closest_encoding"] == adult.MODEL
    crossed = {name: facts["cross_validated"] for name, facts in methods.items()}
    # Trained on a part of the rows, the classifier's loss scatters around the published one.
    plain = methods["uncalibrated"]
    assert min(plain["held_out"]) < plain["published"] < max(plain["held_out"])
    assert crossed["uncalibrated"] == pytest.approx(0.7448, abs=0.003)
    for name in (
        "Platt, of probabilities",
        "spline, strength .002",
        "compact spline, strength .002",
    ):
        assert crossed[name] == pytest.approx(methods[name]["published"], abs=5e-4), name
    # With a cross-validated strength the loss is lower.
    for name in ("spline", "compact spline"):
        for penalty in ("coefficients", "curvature"):
            assert crossed[f"{name}, {penalty}"] < crossed[f"{name}, strength .002"]
    # Isotonic regression predicts 0 for a varying number of rows of class 1.
    isotonic = methods["isotonic"]
    assert crossed["isotonic"] < isotonic["published"] < max(isotonic["held_out"])
    ranks = np.argsort(isotonic["held_out"])
    assert np.all(np.diff(np.array(isotonic["impossible_held_out"])[ranks]) >= 0)

    recorded = json.loads(RECORDED.read_text())
    assert result["encodings"] == pytest.approx(recorded["encodings"], abs=1e-6)
    for name, facts in recorded["methods"].items():
        assert crossed[name] == pytest.approx(facts["cross_validated"], abs=3e-4), name
