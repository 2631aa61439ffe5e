"""Saved calibrators come back as they were, from plain files."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression as Plain

import bayescal as bc

FRESH = np.linspace(0.01, 0.99, 50)


def data(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = rng.random(n)
    return p, np.where(rng.random(n) < p**2, "yes", "no")


def same(one: Any, other: Any, x: Any) -> None:
    np.testing.assert_array_equal(other.predict_proba(x), one.predict_proba(x))
    np.testing.assert_array_equal(other.predict(x), one.predict(x))
    assert other.get_params() == one.get_params()
    assert other.status_ == one.status_
    assert type(other) is type(one)


def test_posteriors(tmp_path: Path) -> None:
    path = tmp_path / "beta"
    fitted = bc.Beta(inference="laplace", num_samples=64, random_state=0).fit(*data())
    bc.save(fitted, path)
    again = bc.load(path)
    same(fitted, again, FRESH)
    np.testing.assert_array_equal(again.predict_interval(FRESH), fitted.predict_interval(FRESH))
    assert repr(again.posterior_) == repr(fitted.posterior_)


@pytest.mark.parametrize("inference", ["map", "laplace"])
def test_logistic_regression(inference: Any, tmp_path: Path) -> None:
    p, y = data()
    X = pd.DataFrame({"p": p, "square": p**2})
    model = bc.LogisticRegression(
        coef_prior="cauchy", inference=inference, num_samples=64, random_state=0
    ).fit(X, y)
    bc.save(model, tmp_path / "m.npz")
    again = bc.load(tmp_path / "m.npz")
    same(model, again, X)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    assert again.feature_names_in_.tolist() == ["p", "square"]
    with pytest.raises(ValueError, match="feature names"):
        again.predict(X.rename(columns={"p": "q"}))
    if inference == "laplace":
        np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    p, y = data()
    X = p[:, None]
    with pytest.raises(
        TypeError,
        match="calibrator must be a fitted calibrator of bayescal, got LogisticRegression",
    ):
        bc.save(Plain().fit(X, y), tmp_path / "a")
    with pytest.raises(
        TypeError, match="estimator must be a number, .* to be saved, got LogisticRegression"
    ):
        bc.save(bc.CalibratedClassifier(Plain()).fit(X, y), tmp_path / "a")
    with pytest.raises(NotFittedError):
        bc.save(bc.Beta(), tmp_path / "a")
    with pytest.raises(TypeError, match="coef_prior must be a number"):
        bc.save(bc.LogisticRegression(coef_prior=dist.Normal(0.0, 1.0)).fit(X, y), tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    wanted = "path must be a file written by bayescal.save"
    path.write_bytes(b"not an archive")
    with pytest.raises(ValueError, match=wanted):
        bc.load(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=wanted):
        bc.load(path)
    np.savez(path, a=np.ones(3))
    with pytest.raises(ValueError, match=wanted):
        bc.load(path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ValueError, match=wanted):
        bc.load(path)
    with pytest.raises(FileNotFoundError):
        bc.load(tmp_path / "none")


def test_a_file_runs_no_code(tmp_path: Path) -> None:
    """An array of objects would be unpickled: it is refused."""

    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "trapped",))

    path = tmp_path / "x.npz"
    bc.save(bc.Isotonic().fit(*data()), path)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["array0"] = np.array([Trap()], dtype=object)
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="path must be a file written by"):
        bc.load(path)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (1, "format version 2, got 1; fit and save it again"),
        (99, "format version 2, got 99; install a newer bayescal"),
        ("2", "path must be a file written by bayescal.save, whole"),
        (None, "path must be a file written by bayescal.save, whole"),
    ],
)
def test_other_versions_are_refused(version: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with_header(path, version=version)
    with pytest.raises(ValueError, match=message):
        bc.load(path)


def with_header(path: Path, **changes: Any) -> None:
    """Write a saved calibrator with another header."""
    bc.save(bc.Isotonic().fit(*data()), path)
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes()) | changes
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    "content",
    [
        None,
        {"class": "Isotonic"},
        {"class": "Calibrator", "options": {}, "fitted": {}},
        {"class": "save", "options": {}, "fitted": {}},
        {"class": "Isotonic", "options": {"bins": 3}, "fitted": {}},
        {"class": "Isotonic", "options": {}, "fitted": {"predict_proba": 3}},
        {"class": "Isotonic", "options": {}, "fitted": {"state_": {"array": "none"}}},
        {"code": "print()"},
    ],
    ids=str,
)
def test_headers_that_describe_no_calibrator(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with_header(path, calibrator=content)
    with pytest.raises(ValueError, match="path must be a file written by bayescal.save, whole"):
        bc.load(path)


def test_files_that_lack_their_end(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    bc.save(bc.Isotonic().fit(*data()), path)
    whole = path.read_bytes()
    for length in (1, 30, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="path must be a file written by bayescal.save, whole"):
            bc.load(path)


def test_an_interrupted_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.npz"
    first = bc.Isotonic().fit(*data())
    bc.save(first, path)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        bc.save(bc.Isotonic().fit(FRESH, FRESH > 0.5), path)
    assert zipfile.is_zipfile(path)
    same(first, bc.load(path), FRESH)
