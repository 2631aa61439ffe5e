"""Fitted calibrators as programs that run without the package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import bayescal as bc
from bayescal._core.execution.precision import float64
from tests.calibrators.cases import DEFAULTS, Case, each
from tests.calibrators.test_contract import data_of, fitted_of
from tests.calibrators.test_function import combined_calibrators

TOLERANCES = {"float32": 1e-6, "float64": 1e-12}


def check(
    fitted: Any, new: Any, path: Path, dtype: Any, run: Callable[[Path, np.ndarray], Any]
) -> None:
    """Compare an exported program with its calibrator, also where a row has NaN."""
    scores = new.reshape(len(new), -1).astype(np.float32).astype(dtype)
    expected = fitted.predict_proba(scores)
    bc.export(fitted, path, dtype=dtype)
    scores[1, 0] = np.nan
    # The number of rows is free.
    for rows in (len(new), 1) if dtype == "float64" else (len(new),):
        result = run(path, scores[:rows])
        assert result.dtype == np.dtype(dtype)
        missing = np.isnan(result).any(axis=1)
        np.testing.assert_array_equal(missing, np.arange(rows) == 1)
        kept = result[~missing], expected[:rows][~missing]
        np.testing.assert_allclose(*kept, atol=TOLERANCES[dtype], rtol=0)


def run_stablehlo(path: Path, scores: np.ndarray) -> Any:
    with float64():
        return np.asarray(jax.export.deserialize(bytearray(path.read_bytes())).call(scores))


def fitted_estimators() -> list[tuple[Any, Any]]:
    """Return fitted combinations, posteriors and estimators with new data."""
    p, y, _, new = data_of(binary=False)
    made = [*combined_calibrators(), bc.Vector(inference="laplace", num_samples=50)]
    result = [(calibrator.fit(p, y), new) for calibrator in made]
    labels = np.stack([y == 0, y != 1], axis=1).astype(int)
    result.append((bc.MultiLabel(bc.Beta()).fit(p[:, :2], labels), new[:, :2]))
    return [*result, (bc.LogisticRegression().fit(p[:, :2], (y == 1).astype(int)), new[:, :2])]


@each(DEFAULTS)
def test_stablehlo(case: Case, tmp_path: Path) -> None:
    new = data_of(case.binary)[3]
    several = case.calibrator in (bc.Beta, bc.Histogram, bc.KNN, bc.WeightScaling)
    for dtype in TOLERANCES if several else ("float64",):
        check(fitted_of(case), new, tmp_path / "program.stablehlo", dtype, run_stablehlo)


def test_combinations_posteriors_and_estimators(tmp_path: Path) -> None:
    for fitted, new in fitted_estimators():
        check(fitted, new, tmp_path / "program.stablehlo", "float64", run_stablehlo)


def test_programs_are_for_three_kinds_of_processors(tmp_path: Path) -> None:
    path = tmp_path / "program.stablehlo"
    bc.export(bc.Isotonic().fit([0.1, 0.4, 0.3, 0.8], [0, 0, 1, 1]), path)
    program = jax.export.deserialize(bytearray(path.read_bytes()))
    assert program.platforms == ("cpu", "cuda", "tpu")


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = bc.Isotonic().fit([0.1, 0.4, 0.3, 0.8], [0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"path must end in .onnx, .stablehlo, .pt2"):
        bc.export(fitted, tmp_path / "program.txt")
    with pytest.raises(ValueError, match="dtype must be"):
        bc.export(fitted, tmp_path / "program.onnx", dtype="float16")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fitted calibrator, got dict"):
        bc.export({}, tmp_path / "program.onnx")
    monkeypatch.setitem(sys.modules, "ndonnx", None)
    with pytest.raises(ImportError, match=r"bayescal\[export\]"):
        bc.export(fitted, tmp_path / "program.onnx")
    assert not list(tmp_path.iterdir())
