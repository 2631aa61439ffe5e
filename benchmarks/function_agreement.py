"""How far fitted calibrators as functions are from ``predict_proba``, by library.

    python benchmarks/function_agreement.py [--json FILE]

Every calibrator with its defaults and with every other value of each of its options, fitted to 80
rows, on 37 new ones that single precision can hold. Prints the greatest difference of
probabilities, over all options of a calibrator and over all calibrators, as a table in Markdown.
Libraries that are not installed are left out.
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
from bayescal._core.precision import float64
from tests.calibrators.cases import CASES
from tests.calibrators.test_contract import data_of, fitted_of

Array = np.ndarray


def by_numpy(fitted: Any, at: Array) -> Array:
    return np.asarray(fitted.as_function()(at))


def by_strict(fitted: Any, at: Array) -> Array:
    import array_api_strict

    return np.asarray(fitted.as_function()(array_api_strict.asarray(at)))


def by_jax(fitted: Any, at: Array) -> Array:
    import jax

    with float64():
        return np.asarray(jax.jit(fitted.as_function())(jax.numpy.asarray(at)))


def by_torch(fitted: Any, at: Array) -> Array:
    import torch

    return fitted.as_function()(torch.asarray(at)).numpy()


def by_onnx(fitted: Any, at: Array) -> Array:
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        bc.export(fitted, path, dtype=at.dtype.name)  # type: ignore[arg-type]
        session = onnxruntime.InferenceSession(path)
        return session.run(None, {"scores": at.reshape(len(at), -1)})[0]


WAYS: dict[str, tuple[str, Callable[[Any, Array], Array]]] = {
    "NumPy": ("numpy", by_numpy),
    "array-api-strict": ("array_api_strict", by_strict),
    "JAX": ("jax", by_jax),
    "PyTorch": ("torch", by_torch),
    "ONNX runtime": ("onnxruntime", by_onnx),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    ways = {n: own for n, (module, own) in WAYS.items() if importlib.util.find_spec(module)}
    found: dict[str, dict[str, float]] = {}
    for case in CASES:
        fitted, new = fitted_of(case), data_of(case.binary)[3].astype(np.float32)
        row = found.setdefault(case.calibrator.__name__, {})
        expected = fitted.predict_proba(new.astype(float))
        for name, way in ways.items():
            for dtype in ("float64", "float32"):
                off = float(np.abs(way(fitted, new.astype(dtype)) - expected).max())
                row[f"{name}, {dtype}"] = max(row.get(f"{name}, {dtype}", 0.0), off)
    columns = list(next(iter(found.values())))
    rows = {**found, f"all {len(CASES)}": {c: max(r[c] for r in found.values()) for c in columns}}
    print("| |", " | ".join(columns), "|\n|---" * 1 + "|---" * len(columns) + "|")
    for name, row in rows.items():
        print(f"| {name} |", " | ".join(f"{row[c]:.0e}" for c in columns), "|")
    if options.json:
        write(options.json, {"calibrators": rows}, ["torch", "onnxruntime"])


if __name__ == "__main__":
    main()
