"""Calibrators are restored exactly from plain files."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression as Plain

import bayescal as bc
from bayescal.calibrators import files as _files

FRESH = np.linspace(0.01, 0.99, 50)


def make_probs(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = rng.random(n)
    return p, np.where(rng.random(n) < p**2, "yes", "no")


def assert_same(one: Any, other: Any, x: Any) -> None:
    np.testing.assert_array_equal(other.predict_proba(x), one.predict_proba(x))
    np.testing.assert_array_equal(other.predict(x), one.predict(x))
    assert other.get_params() == one.get_params()
    assert other.status_ == one.status_
    assert type(other) is type(one)


def test_posteriors(tmp_path: Path) -> None:
    path = tmp_path / "beta"
    fitted = bc.Beta(inference="laplace", num_samples=64, random_state=0).fit(*make_probs())
    bc.save(fitted, path)
    again = bc.load(path)
    assert_same(fitted, again, FRESH)
    np.testing.assert_array_equal(again.predict_interval(FRESH), fitted.predict_interval(FRESH))
    assert repr(again.posterior_) == repr(fitted.posterior_)


@pytest.mark.parametrize("inference", ["map", "laplace"])
def test_logistic_regression(inference: Any, tmp_path: Path) -> None:
    p, y = make_probs()
    X = pd.DataFrame({"p": p, "square": p**2})
    model = bc.LogisticRegression(
        coef_prior="cauchy", inference=inference, num_samples=64, random_state=0
    ).fit(X, y)
    bc.save(model, tmp_path / "m.npz")
    again = bc.load(tmp_path / "m.npz")
    assert_same(model, again, X)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    assert again.feature_names_in_.tolist() == ["p", "square"]
    with pytest.raises(ValueError, match="feature names"):
        again.predict(X.rename(columns={"p": "q"}))
    if inference == "laplace":
        np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))


@pytest.mark.parametrize("ensemble", [False, True])
def test_calibrated_classifiers_without_their_classifiers(ensemble: bool, tmp_path: Path) -> None:
    p, y = make_probs()
    X, path = p[:, None], tmp_path / "c"
    model = bc.CalibratedClassifier(Plain(), bc.Beta(), cv=3, ensemble=ensemble).fit(X, y)
    with pytest.warns(UserWarning, match="holds the calibrator, not the classifier"):
        bc.save(model, path)
    again = bc.load(path, estimators=model.estimators_)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert (again.predict(X) == model.predict(X)).all()
    assert str(again) == str(model)
    for wrong in (None, [*model.estimators_, Plain()]):
        with pytest.raises(ValueError, match=r"not the classifier: pass estimators="):
            bc.load(path, estimators=wrong)
    bc.save(bc.Beta().fit(p, y), path)
    with pytest.raises(ValueError, match="leave estimators out"):
        bc.load(path, estimators=model.estimators_)


@pytest.mark.parametrize(
    "labels",
    [
        [True, False],
        [3, 7],
        np.array([1, 2], np.uint8),
        ["no", "yes"],
        np.array(["no", "yes"], object),
        [1.0, 2.0],
    ],
    ids=str,
)
def test_labels_of_any_kind(labels: Any, tmp_path: Path) -> None:
    fitted = bc.Isotonic().fit([0.1, 0.4, 0.35, 0.8], np.asarray(labels)[[0, 0, 1, 1]])
    bc.save(fitted, tmp_path / "m")
    again = bc.load(tmp_path / "m")
    assert_same(fitted, again, FRESH)
    assert again.classes_.dtype == fitted.classes_.dtype


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    p, y = make_probs()
    X = p[:, None]
    prior = bc.LogisticRegression(coef_prior=dist.Normal(0.0, 1.0)).fit(X, y)
    for wrong, message in (
        (Plain().fit(X, y), "must be a fitted calibrator of bayescal, got LogisticRegression"),
        (bc.CalibratedClassifier(Plain(), Plain()).fit(X, y), "number, .* got LogisticRegression"),
        (prior, "coef_prior must be a number"),
    ):
        with pytest.raises(TypeError, match=message):
            bc.save(wrong, tmp_path / "a")
    with pytest.raises(NotFittedError):
        bc.save(bc.Beta(), tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.ones(3))
    for content in (path.read_bytes(), b"not an archive", b"", pickle.dumps({"a": 1})):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="path must be a file written by bayescal.save"):
            bc.load(path)
    with pytest.raises(FileNotFoundError):
        bc.load(tmp_path / "none")


def with_header(path: Path, content: Any = None, digest: bool = True, **changes: Any) -> None:
    """Write a saved calibrator with a changed header and a matching digest."""
    bc.save(bc.Isotonic().fit(*make_probs()), path)
    arrays = load_arrays(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    if content is not None:
        metadata["calibrator"] = content if isinstance(content, str) else json.dumps(content)
    if digest:
        metadata["sha256"] = _files._digest(metadata["calibrator"], arrays)
    kept = {name: value for name, value in (metadata | changes).items() if value is not None}
    path.write_bytes(save_arrays(arrays, kept))


WRONG = "path must be a file written by bayescal.save, whole, got .*x.npz; fit and save"


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2", "format version 3, .*x.npz has 2; fit and save it again"),
        ("99", "format version 3, .*x.npz has 99; install a newer bayescal"),
        ("two", WRONG),
        (None, WRONG),
    ],
)
def test_other_versions_are_refused(version: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with_header(path, version=version)
    with pytest.raises(ValueError, match=message):
        bc.load(path)


ISOTONIC = {"class": "Isotonic", "options": {}, "fitted": {}}


@pytest.mark.parametrize(
    "content",
    [
        "null",
        "{",
        "[" * 100_000,
        {"class": "Isotonic"},
        ISOTONIC,
        {**ISOTONIC, "class": "Calibrator"},
        {**ISOTONIC, "class": "save"},
        {**ISOTONIC, "class": "CalibratedClassifier"},
        {**ISOTONIC, "options": {"bins": 3}},
        {**ISOTONIC, "fitted": {"predict_proba": 3}},
        {**ISOTONIC, "fitted": {"state_": {"array": "none"}}},
        {"code": "print()"},
    ],
    ids=lambda content: str(content)[:60],
)
def test_headers_that_describe_no_calibrator(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with_header(path, content)
    with pytest.raises(ValueError, match=WRONG):
        bc.load(path)


def test_what_is_forged_without_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with_header(path)
    assert bc.load(path).status_ == "converged"
    with_header(path, sha256=None)
    with pytest.raises(ValueError, match=WRONG):
        bc.load(path)
    with_header(path, ISOTONIC, digest=False)
    with pytest.raises(ValueError, match=WRONG):
        bc.load(path)
    # One array more, one array less, another value, another dtype.
    with_header(path)
    arrays = load_arrays(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    for change in (
        {"more": np.zeros(3)},
        {"array0": arrays["array0"] + 1e-9},
        {"array0": arrays["array0"].astype(np.float32)},
        {"array0": arrays["array0"][:, None]},
    ):
        path.write_bytes(save_arrays(arrays | change, metadata))
        with pytest.raises(ValueError, match=WRONG):
            bc.load(path)
    path.write_bytes(save_arrays({k: v for k, v in arrays.items() if k != "array0"}, metadata))
    with pytest.raises(ValueError, match=WRONG):
        bc.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda array: array[..., None],
        lambda array: np.full_like(array, np.nan) if array.dtype.kind == "f" else array,
        lambda array: array[:0] if array.ndim else array,
    ],
    ids=["an axis more", "nan", "none"],
)
@pytest.mark.parametrize("fitted", [bc.Beta(), bc.Histogram(), bc.Isotonic(), bc.KNN(), bc.Auto()])
def test_states_that_do_not_predict_are_refused(change: Any, fitted: Any, tmp_path: Path) -> None:
    """Check states with a valid digest, which a forger can write too."""
    path = tmp_path / "x.npz"
    bc.save(fitted.fit(*make_probs()), path)
    arrays = load_arrays(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    forged = {name: np.ascontiguousarray(change(array)) for name, array in arrays.items()}
    metadata["sha256"] = _files._digest(metadata["calibrator"], forged)
    path.write_bytes(save_arrays(forged, metadata))
    with pytest.raises(ValueError, match=WRONG):
        bc.load(path)


@pytest.mark.parametrize("size", [1 << 45, 1 << 63, -1])
def test_sizes_are_checked_before_anything_is_read(size: int, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    head = {"array0": {"dtype": "F64", "shape": [size], "data_offsets": [0, 8 * size]}}
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(800))
    with pytest.raises(ValueError, match=WRONG):
        bc.load(path)
    path.write_bytes((1 << 60).to_bytes(8, "little") + text + bytes(800))
    with pytest.raises(ValueError, match=WRONG):
        bc.load(path)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    fitted = bc.Beta(inference="laplace", num_samples=5, random_state=0).fit(*make_probs())
    bc.save(fitted, path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    places = [*rng.integers(len(whole), size=200), *range(64), len(whole) - 1]
    for position in places:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="^path must"):
            bc.load(path)


def test_files_that_lack_their_end(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    bc.save(bc.Isotonic().fit(*make_probs()), path)
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 9, 30, 100, len(whole) // 2, len(whole) - 8, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=WRONG):
            bc.load(path)
    path.write_bytes(whole + b"more")
    with pytest.raises(ValueError, match=WRONG):
        bc.load(path)


def test_savers_side_by_side_publish_whole_files(tmp_path: Path) -> None:
    path, (p, y) = tmp_path / "m", make_probs()
    fitted = [bc.Beta(parameters=3).fit(p, y), bc.Isotonic().fit(p, y), bc.Logistic().fit(p, y)]
    bc.save(fitted[0], path)

    def work(task: int) -> str:
        if task % 4:
            bc.save(fitted[task % 4 - 1], path)
        return type(bc.load(path)).__name__

    with ThreadPoolExecutor(4) as pool:
        names = set(pool.map(work, range(120)))
    assert names <= {"Beta", "Isotonic", "Logistic"}
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


def test_an_interrupted_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.npz"
    first = bc.Isotonic().fit(*make_probs())
    bc.save(first, path)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="disk full"):
        bc.save(bc.Isotonic().fit(FRESH, FRESH > 0.5), path)
    assert [file.name for file in tmp_path.iterdir()] == ["x.npz"]
    assert_same(first, bc.load(path), FRESH)


def test_labels_of_byte_strings(tmp_path: Path) -> None:
    """Check byte strings as HDF5 stores them, in blocks and in options."""
    h5py = pytest.importorskip("h5py")
    p, y = make_probs()
    path = tmp_path / "bytes"
    labels = np.where(y == "yes", b"y\xc3\xa9s", b"no")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        held = {"p": np.stack([1 - p, p], axis=1), "y": labels}
        scores, y = (file.create_dataset(name, data=array) for name, array in held.items())
        for classes in (None, (b"no", b"y\xc3\xa9s")):
            fitted = bc.Beta(classes=classes).fit(scores, y)
            bc.save(fitted, path)
            assert_same(fitted, bc.load(path), held["p"])
            assert bc.load(path).classes_.tolist() == [b"no", b"y\xc3\xa9s"]
