"""Fitted calibrators exported to ONNX Runtime and PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bayescal as bc
from tests.calibrators.cases import DEFAULTS, Case, each
from tests.calibrators.test_contract import data_of, fitted_of
from tests.calibrators.test_export import TOLERANCES, check, fitted_estimators

pytestmark = [
    pytest.mark.parity("torch", "ndonnx", "onnxruntime"),
    # Raised by PyTorch's own code.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def run_onnx(path: Path, scores: np.ndarray) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(path).run(None, {"scores": scores})[0]


def run_torch(path: Path, scores: np.ndarray) -> Any:
    import torch

    return torch.export.load(path).module()(torch.asarray(scores)).numpy()


RUNS = {".onnx": run_onnx, ".pt2": run_torch}


@pytest.mark.parametrize("ending", RUNS)
@each(DEFAULTS)
def test_programs(case: Case, ending: str, tmp_path: Path) -> None:
    """Check ONNX and PyTorch in alternating precisions."""
    dtype = list(TOLERANCES)[(DEFAULTS.index(case) + (ending == ".pt2")) % 2]
    new = data_of(case.binary)[3]
    check(fitted_of(case), new, tmp_path / f"program{ending}", dtype, RUNS[ending])


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_logits_of_hundreds(dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z = 300 * rng.normal(size=(100, 3))
    y = np.argmax(z / 300 + rng.gumbel(size=z.shape), axis=1)
    far = np.linspace(-900, 900, 37).astype(dtype)[:, None] * [1.0, 0.0, -0.4]
    cases: list[tuple[Any, np.ndarray, np.ndarray, np.ndarray]] = [
        (kind(inputs="logits"), z[:, 0], (y == 0).astype(int), far[:, :1])
        for kind in (bc.Beta, bc.AveragedBeta, bc.Logistic)
    ]
    cases.append((bc.OrderPreserving(inputs="logits", family="full", hidden=(2, 2)), z, y, far))
    for calibrator, scores, labels, new in cases:
        expected = calibrator.fit(scores, labels).predict_proba(new)
        bc.export(calibrator, tmp_path / "model.onnx", dtype=dtype)  # type: ignore[arg-type]
        result = run_onnx(tmp_path / "model.onnx", new.astype(dtype))
        np.testing.assert_allclose(result, expected, atol=10 * TOLERANCES[dtype])


@pytest.mark.parametrize("ending", RUNS)
def test_combinations_posteriors_and_estimators(ending: str, tmp_path: Path) -> None:
    for fitted, new in fitted_estimators():
        check(fitted, new, tmp_path / f"program{ending}", "float32", RUNS[ending])


def test_models_say_what_they_take(tmp_path: Path) -> None:
    import onnxruntime

    z = np.eye(3)[[0, 1, 2, 0]]
    fitted = bc.Temperature(inputs="logits").fit(z, ["dog", "cat", "emu", "cat"])
    bc.export(fitted, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    metadata = session.get_modelmeta().custom_metadata_map
    assert (
        json.loads(metadata["classes"]) == ["cat", "dog", "emu"] and metadata["inputs"] == "logits"
    )
    assert [tensor.name for tensor in session.get_inputs()] == ["scores"]
    assert [tensor.name for tensor in session.get_outputs()] == ["probabilities"]


def test_what_a_format_cannot_express_is_refused_by_name(tmp_path: Path) -> None:
    class Odd(bc.Temperature):
        def _apply(self, state: Any, scores: Any) -> Any:
            return np.linalg.svd(scores)[0]

    fitted = bc.Temperature(inputs="logits").fit(np.eye(3)[[0, 1, 2, 0]], [0, 1, 2, 1])
    fitted.__class__ = Odd
    for ending in RUNS:
        with pytest.raises(ValueError, match=f"Odd cannot be written as {ending}"):
            bc.export(fitted, tmp_path / f"odd{ending}")
        assert not list(tmp_path.iterdir())
