"""Fitted calibrators in plain files: arrays and JSON, no pickle."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from bayescal._core.files import write_atomically
from bayescal.calibrators.base.dispatch import as_fitted, keep_options
from bayescal.calibrators.base.estimator import Estimator
from bayescal.calibrators.combine.classifier.calibrator import CalibratedClassifier

__all__ = ["load", "save"]

_FORMAT = "bayescal calibrator"
_VERSION = 3
#: What reading what a header describes may raise.
_DAMAGED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
#: Of a ``CalibratedClassifier``: what belongs to another library, or may be a function.
_LEFT_OUT = "estimator", "estimators_", "progress"
#: Kinds of arrays that are kept as they are: booleans, integers and real numbers.
_NUMBERS = "biuf"


def save(calibrator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator to one file: its arrays in the safetensors format, options in JSON.

    Parameters
    ----------
    calibrator : fitted calibrator
        Any of this package, ``LogisticRegression`` and ``CalibratedClassifier`` too: but the
        classifier in that, which is another library's, is to be saved apart.
    path : str or path
        Usually ``NAME.safetensors``; nothing is appended. A file there is replaced in one moment;
        if anything fails it stays, and nothing else does.

    Raises
    ------
    TypeError
        For other objects, and for parameters that JSON cannot hold, as distributions.
    OSError
        If the file cannot be written, or the path is a folder, device, pipe or socket.
    sklearn.exceptions.NotFittedError

    See Also
    --------
    load : read it back.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import bayescal as bc
    >>> calibrator = bc.Isotonic().fit([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "isotonic.safetensors"
    ...     bc.save(calibrator, path)
    ...     again = bc.load(path)
    >>> again.predict_proba([0.5]).tolist() == calibrator.predict_proba([0.5]).tolist()
    True
    """
    import safetensors.numpy

    if not _is_ours(type(calibrator)):
        raise TypeError(
            f"calibrator must be a fitted calibrator of bayescal, got {type(calibrator).__name__}"
        )
    check_is_fitted(calibrator)
    writer = _Writer()
    described = json.dumps(writer.encode(calibrator, "calibrator"))
    metadata = {
        "format": _FORMAT,
        "version": str(_VERSION),
        "calibrator": described,
        "sha256": _digest(described, writer.arrays),
    }
    with write_atomically(path) as partial:
        partial.write_bytes(safetensors.numpy.save(writer.arrays, metadata))


def load(path: str | os.PathLike[str], *, estimators: Sequence[Any] | None = None) -> Any:
    """Read a calibrator written by :func:`save`. A file cannot run code.

    Parameters
    ----------
    path : str or path
    estimators : sequence of fitted classifiers, optional
        Of a ``CalibratedClassifier``: its ``estimators_``, which the file does not hold.

    Returns
    -------
    fitted calibrator

    Raises
    ------
    ValueError
        If the file is none of these, is damaged (it holds a digest of everything in it) or is of
        another version of the format, or if it lacks other classifiers than those given.
    OSError
        If it cannot be read.

    Notes
    -----
    Sizes are stated at the file's head and checked before anything is read; nothing is compressed,
    so that a calibrator takes no more memory than its file.

    Examples
    --------
    See :func:`save`.

    >>> import bayescal as bc
    >>> bc.load(__file__)
    Traceback (most recent call last):
    ...
    ValueError: path must be a file written by bayescal.save, whole, got ...
    """
    from safetensors import SafetensorError, safe_open

    wrong = f"path must be a file written by bayescal.save, whole, got {os.fspath(path)}"
    wrong = f"{wrong}; fit and save the calibrator again, or fetch the file again"
    with Path(path).open("rb"):  # raises what a path that cannot be read should raise
        pass
    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}
        format_, version = metadata["format"], int(metadata["version"])
    except (*_DAMAGED, SafetensorError) as error:
        raise ValueError(wrong) from error
    if format_ != _FORMAT:
        raise ValueError(wrong)
    if version != _VERSION:
        remedy = "install a newer bayescal" if version > _VERSION else "fit and save it again"
        raise ValueError(
            f"path must hold format version {_VERSION}, {os.fspath(path)} has {version}; {remedy}"
        )
    try:
        if metadata["sha256"] != _digest(metadata["calibrator"], arrays):
            raise ValueError("another digest")
        calibrator = _decode(json.loads(metadata["calibrator"]), arrays)
        check_is_fitted(calibrator)
        _check_predicts(calibrator)
        without = isinstance(calibrator, CalibratedClassifier)
        lacking = len(calibrator.calibrators_) if without else 0
    except _DAMAGED as error:
        raise ValueError(wrong) from error
    given = list(estimators or ())
    if len(given) != lacking:
        raise ValueError(
            f"estimators must be the {lacking} fitted classifiers that {os.fspath(path)} does not "
            f"hold, got {len(given)}"
        )
    if lacking:
        calibrator.set_params(estimator=clone(given[0]))
        calibrator.estimators_ = given
        keep_options(calibrator)
    return calibrator


def _check_predicts(calibrator: Any) -> None:
    """Raise unless a calibrator predicts one row: arrays of a forged file may not fit together."""
    if isinstance(calibrator, CalibratedClassifier):
        for own in calibrator.calibrators_:
            _check_predicts(own)
        return
    inputs = getattr(calibrator, "inputs", "features")
    if not hasattr(calibrator, "as_function") or inputs == "top_logits":
        return
    with np.errstate(all="ignore"):
        function = calibrator.as_function()
        one = 1 / max(function.columns, 2) if inputs == "probs" else 0.0
        found = function(np.full((1, function.columns), one))
    k = len(calibrator.classes_) if hasattr(calibrator, "classes_") else function.columns
    if found.shape != (1, k) or not np.isfinite(found).all():
        raise ValueError(f"probabilities {found}")


def _digest(described: str, arrays: dict[str, np.ndarray]) -> str:
    """Return a digest of the version and of all that is in a file."""
    digest = hashlib.sha256(f"{_VERSION}\n{len(described)}\n{described}".encode())
    for name in sorted(arrays):
        value = arrays[name]
        digest.update(f"{name} {value.dtype.name} {value.shape}\n".encode())
        digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()


class _Writer:
    """Makes of objects what JSON can hold, and collects their arrays, each once."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self._known: dict[int, tuple[str, Any]] = {}

    def encode(self, value: Any, name: str) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, date | np.datetime64):
            return {"date": self._encode_array(np.array(value, "M8"), name)}
        if isinstance(value, np.generic):
            return self.encode(value.item(), name)
        if isinstance(value, np.ndarray):
            return self._encode_array(value, name)
        if isinstance(value, list | tuple | range):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [self.encode(entry, name) for entry in value]}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": {key: self.encode(own, name) for key, own in value.items()}}
        if not _is_ours(type(value)):
            raise TypeError(
                f"{name} must be a number, a string, an array, a calibrator of bayescal, or a dict "
                f"of these by strings, to be saved, got {value!r}"
            )
        kind = type(value)
        options = _options(kind)
        if isinstance(value, Estimator):
            value._materialize_report()
            value = as_fitted(value)
        fitted = [own for own in vars(value) if own not in options and own[0] != "_"]
        if isinstance(value, CalibratedClassifier):
            options, fitted = (
                [n for n in names if n not in _LEFT_OUT] for names in (options, fitted)
            )
        return {
            "class": kind.__name__,
            "options": {own: self.encode(getattr(value, own), own) for own in options},
            "fitted": {own: self.encode(getattr(value, own), own) for own in fitted},
        }

    def _encode_array(self, value: np.ndarray, name: str) -> dict[str, Any]:
        if value.dtype.kind in _NUMBERS and value.dtype.itemsize <= 8:
            # Attributes are often entries of the state; the array is kept, and with it its address.
            key = self._known.setdefault(id(value), (f"array{len(self._known)}", value))[0]
            self.arrays[key] = np.asarray(value, value.dtype.newbyteorder("="), order="C")
            return {"array": key}
        if value.dtype.kind == "M":
            return {"dates": [value.dtype.name, np.datetime_as_string(value).tolist()]}
        if not all(isinstance(entry, str) for entry in value.flat):
            raise TypeError(f"{name} must hold numbers, strings or dates to be saved")
        kind = "objects" if value.dtype == object else "strings"
        return {kind: value.tolist()}


def _decode(content: Any, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(content, dict):
        return content
    if "class" in content:
        cls = _find(content["class"])
        if not (isinstance(cls, type) and _is_ours(cls)):
            raise ValueError(f"no calibrator: {content['class']}")
        value = cls(**{name: _decode(own, arrays) for name, own in content["options"].items()})
        for name, own in content["fitted"].items():
            if not name.endswith("_") or name.startswith("_"):
                raise ValueError(f"no fitted attribute: {name}")
            setattr(value, name, _decode(own, arrays))
        if isinstance(value, Estimator):
            keep_options(value)
        return value
    ((kind, inner),) = content.items()
    if kind == "array":
        return arrays[inner]
    if kind in ("strings", "objects"):
        return np.array(inner, object if kind == "objects" else str)
    if kind == "dates":
        return np.array(inner[1], inner[0])
    if kind == "date":
        return _decode(inner, arrays)[()]
    if kind == "dict":
        return {name: _decode(own, arrays) for name, own in inner.items()}
    if kind in ("list", "tuple"):
        entries = [_decode(own, arrays) for own in inner]
        return entries if kind == "list" else tuple(entries)
    raise ValueError(f"no kind of content: {kind}")


def _is_ours(cls: type) -> bool:
    """Return whether a class is a public one of this package, whose fields say what it holds."""
    return is_dataclass(cls) and _find(cls.__name__) is cls


def _find(name: str) -> Any:
    """Return what is public under a name in this package, which has been imported: or None."""
    return getattr(sys.modules[__name__.rpartition(".")[0]], name, None)


def _options(cls: type) -> list[str]:
    return [own.name for own in fields(cls) if own.init]  # type: ignore[arg-type]
