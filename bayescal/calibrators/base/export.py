"""Export of fitted calibrators to ONNX, StableHLO and PyTorch."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from bayescal._core.arrays import AnyModel
from bayescal._core.execution.precision import float64
from bayescal._core.files import write_atomically
from bayescal._core.lazy import jax
from bayescal.calibrators.base.function import PredictFunction
from bayescal.data.checks import check_choice
from bayescal.data.label_names import label_list

#: Errors that tracing may raise if a format lacks an operation.
_TRACING_ERRORS = AttributeError, LookupError, RuntimeError, TypeError, ValueError


def export(
    calibrator: AnyModel,
    path: str | os.PathLike[str],
    *,
    dtype: Literal["float32", "float64"] = "float32",
) -> None:
    """Write a fitted calibrator as a program that runs without this package.

    The program takes ``scores`` (m, k) for any m and returns the ``probabilities`` (m, k) of
    ``predict_proba``. If a binary calibrator was fitted to one column, scores are (m, 1).

    Parameters
    ----------
    calibrator : fitted calibrator
        Any calibrator with a method ``as_function``.
    path : str or path
        The suffix determines the format: ``.onnx``; ``.stablehlo`` for ``jax.export.deserialize``
        on CPUs, CUDA GPUs and TPUs; ``.pt2`` for ``torch.export.load``.
    dtype : {"float32", "float64"}
        Type of scores and probabilities.

    Raises
    ------
    ImportError
        If the library that writes the format is missing: ndonnx, flatbuffers or PyTorch.
    OSError
        If the file cannot be written, or the path is a folder, device, pipe or socket.
    TypeError
        If the calibrator has no ``as_function``.
    ValueError
        For other suffixes, for calibrators of truncated logits, and for calibrators that the
        format cannot express.

    Notes
    -----
    The metadata of ONNX models contain the classes as JSON ("classes") and the kind of scores
    ("inputs"). If the calibrator has a posterior, the program averages over all draws at once, and
    holds draws * m * k numbers.

    Examples
    --------
    >>> import jax, pathlib, tempfile
    >>> import bayescal as bc
    >>> logits = jax.numpy.array([[4.0, 0, 0]] * 4)
    >>> calibrator = bc.Temperature(inputs="logits").fit(logits, [0, 0, 1, 2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "calibrator.stablehlo"
    ...     bc.export(calibrator, path)
    ...     program = jax.export.deserialize(bytearray(path.read_bytes()))
    >>> program.call(logits[:1]).round(2).tolist()
    [[0.5, 0.25, 0.25]]
    """
    check_choice(dtype, "dtype", ("float32", "float64"))
    name, ending = type(calibrator).__name__, Path(path).suffix
    if ending not in _FORMATS:
        raise ValueError(f"path must end in {', '.join(_FORMATS)}, got {os.fspath(path)!r}")
    if not hasattr(calibrator, "as_function"):
        parts = "; export its calibrators_" if hasattr(calibrator, "calibrators_") else ""
        raise TypeError(f"calibrator must be a fitted calibrator, got {name}{parts}")
    if getattr(calibrator, "inputs", None) == "top_logits":
        raise ValueError(
            "calibrator must take one array of scores to be exported, got inputs='top_logits'; "
            "use as_function"
        )
    f = calibrator.as_function()
    try:
        program = _FORMATS[ending](f, calibrator, dtype)
    except ImportError as error:
        missing = "torch" if ending == ".pt2" else '"bayescal[export]"'
        message = f"{ending} needs a library: {error}; run pip install {missing}"
        raise ImportError(message) from error
    except _TRACING_ERRORS as error:
        raise ValueError(f"{name} cannot be written as {ending}: {error}") from error
    with write_atomically(path) as partial:
        partial.write_bytes(program)


def _onnx(f: PredictFunction, calibrator: object, dtype: str) -> bytes:
    import ndonnx  # pyright: ignore[reportMissingImports]

    scores = ndonnx.argument(shape=("m", f.columns), dtype=getattr(ndonnx, dtype))
    model = ndonnx.build({"scores": scores}, {"probabilities": f(scores)})
    labels = label_list(np.asarray(getattr(calibrator, "classes_", [])))
    inputs = str(getattr(calibrator, "inputs", "features"))
    for key, value in (("classes", json.dumps(labels, default=str)), ("inputs", inputs)):
        model.metadata_props.add(key=key, value=value)
    return bytes(model.SerializeToString())


def _stablehlo(f: PredictFunction, calibrator: object, dtype: str) -> bytes:
    with float64():
        (m,) = jax.export.symbolic_shape("m")
        scores = jax.ShapeDtypeStruct((m, f.columns), np.dtype(dtype))
        program = jax.export.export(jax.jit(f), platforms=("cpu", "cuda", "tpu"))(scores)
        return bytes(program.serialize())


def _torch(f: PredictFunction, calibrator: object, dtype: str) -> bytes:
    import torch  # pyright: ignore[reportMissingImports]

    kind = getattr(torch, dtype)
    example, rows = torch.zeros(5, f.columns, dtype=kind), torch.export.Dim("m")
    program = torch.export.export(
        f.as_module(kind), (example,), dynamic_shapes=({0: rows},), strict=False
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


_FORMATS: dict[str, Callable[[PredictFunction, object, str], bytes]] = {
    ".onnx": _onnx,
    ".stablehlo": _stablehlo,
    ".pt2": _torch,
}
