"""Compare fitted calibrators as functions with ``predict_proba``, by library.

    python benchmarks/function_agreement.py [--json FILE]

Every calibrator is fitted to 80 rows, with its defaults and with each other value of each option,
and predicts 37 new rows that are exact in single precision. The script prints a Markdown table of
the largest difference of probabilities, over all options of a calibrator and over all calibrators.
Libraries that are not installed are omitted.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import write

sys.path.insert(0, str(Path(__file__).parents[1]))

import bayescal as bc
from bayescal._core.execution.precision import float64
from tests.calibrators.cases import CASES
from tests.calibrators.test_contract import data_of, fitted_of

Array = np.ndarray


def predict_numpy(fitted: Any, scores: Array) -> Array:
    """Predict with NumPy."""
    return np.asarray(fitted.as_function()(scores))


def predict_strict(fitted: Any, scores: Array) -> Array:
    """Predict with array-api-strict."""
    import array_api_strict

    return np.asarray(fitted.as_function()(array_api_strict.asarray(scores)))


def predict_jax(fitted: Any, scores: Array) -> Array:
    """Predict with JAX."""
    import jax

    with float64():
        return np.asarray(jax.jit(fitted.as_function())(jax.numpy.asarray(scores)))


def predict_torch(fitted: Any, scores: Array) -> Array:
    """Predict with PyTorch."""
    import torch

    return fitted.as_function()(torch.asarray(scores)).numpy()


def predict_onnx(fitted: Any, scores: Array) -> Array:
    """Predict with ONNX runtime."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        bc.export(fitted, path, dtype=scores.dtype.name)  # type: ignore[arg-type]
        session = onnxruntime.InferenceSession(path)
        return session.run(None, {"scores": scores.reshape(len(scores), -1)})[0]


LIBRARIES: dict[str, tuple[str, Callable[[Any, Array], Array]]] = {
    "NumPy": ("numpy", predict_numpy),
    "array-api-strict": ("array_api_strict", predict_strict),
    "JAX": ("jax", predict_jax),
    "PyTorch": ("torch", predict_torch),
    "ONNX runtime": ("onnxruntime", predict_onnx),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    libraries = {
        name: function
        for name, (module, function) in LIBRARIES.items()
        if importlib.util.find_spec(module)
    }
    largest: dict[str, dict[str, float]] = {}
    for case in CASES:
        fitted, new = fitted_of(case), data_of(case.binary)[3].astype(np.float32)
        row = largest.setdefault(case.calibrator.__name__, {})
        expected = fitted.predict_proba(new.astype(float))
        for name, predict in libraries.items():
            for dtype in ("float64", "float32"):
                difference = float(np.abs(predict(fitted, new.astype(dtype)) - expected).max())
                row[f"{name}, {dtype}"] = max(row.get(f"{name}, {dtype}", 0.0), difference)
    columns = list(next(iter(largest.values())))
    rows = {
        **largest,
        f"all {len(CASES)}": {c: max(r[c] for r in largest.values()) for c in columns},
    }
    print("| |", " | ".join(columns), "|\n|---" * 1 + "|---" * len(columns) + "|")
    for name, row in rows.items():
        print(f"| {name} |", " | ".join(f"{row[c]:.0e}" for c in columns), "|")
    if options.json:
        write(options.json, {"calibrators": rows}, ["torch", "onnxruntime"])


if __name__ == "__main__":
    main()
