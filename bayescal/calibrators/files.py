"""Files of fitted calibrators: arrays and JSON, without pickle."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyModel
from bayescal._core.files import write_atomically
from bayescal._core.warnings import warn
from bayescal.calibrators.base.dispatch import as_fitted, keep_options
from bayescal.calibrators.base.estimator import Estimator
from bayescal.calibrators.combine.classifier.calibrator import CalibratedClassifier

_FORMAT = "bayescal calibrator"
_VERSION = 3
#: Errors that decoding a damaged file may raise.
_DAMAGED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
#: Entries of a ``CalibratedClassifier`` that belong to other libraries or may be functions.
_OMITTED = "estimator", "estimators_", "progress"
#: Kinds of arrays that are stored without conversion: booleans, integers and real numbers.
_NUMBERS = "biuf"


def save(calibrator: AnyModel, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator to a file: arrays in the safetensors format, options in JSON.

    Parameters
    ----------
    calibrator : fitted calibrator
        A calibrator of this package, including ``LogisticRegression`` and ``CalibratedClassifier``.
        The classifier in a ``CalibratedClassifier`` must be saved separately.
    path : str or path
        Usually ``NAME.safetensors``; no suffix is appended. An existing file is replaced
        atomically. If writing fails, it is unchanged and no partial file remains.

    Warns
    -----
    UserWarning
        For a ``CalibratedClassifier``, whose classifier is not in the file; and for names such as
        ``calibrator.pkl``, because the file is not a pickle.

    Raises
    ------
    TypeError
        For other objects, and for parameters that JSON cannot hold, such as distributions.
    OSError
        If the file cannot be written, or the path is a folder, device, pipe or socket.
    sklearn.exceptions.NotFittedError

    See Also
    --------
    load : read the file.

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

    if not _is_public_class(type(calibrator)):
        name = type(calibrator).__name__
        hint = "; posteriors can be pickled" if name in ("Posterior", "Prediction") else ""
        raise TypeError(f"calibrator must be a fitted calibrator of bayescal, got {name}{hint}")
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
    if os.fspath(path).endswith((".pkl", ".pickle", ".joblib")):
        warn(
            f"{os.fspath(path)} is in the safetensors format, which pickle and joblib cannot "
            "read: name it NAME.safetensors"
        )
    if isinstance(calibrator, CalibratedClassifier):
        warn(
            f"{os.fspath(path)} holds the calibrator, not the classifier: save estimators_ "
            "separately, and pass them to bayescal.load(path, estimators=[...])"
        )


def load(path: str | os.PathLike[str], *, estimators: Sequence[AnyModel] | None = None) -> AnyModel:
    """Read a calibrator that :func:`save` has written; the file cannot run code.

    Parameters
    ----------
    path : str or path
    estimators : sequence of fitted classifiers, optional
        The ``estimators_`` of a ``CalibratedClassifier``, which the file does not contain.

    Returns
    -------
    fitted calibrator

    Raises
    ------
    ValueError
        If the file was not written by :func:`save`, is damaged (it contains a digest of its
        content) or has another version of the format; or if the number of ``estimators`` is wrong.
    OSError
        If the file cannot be read.

    Notes
    -----
    The header states sizes, which are checked before arrays are read. Arrays are not compressed, so
    that a calibrator takes no more memory than its file.

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

    message = f"path must be a file written by bayescal.save, whole, got {os.fspath(path)}"
    message = f"{message}; fit and save the calibrator again, or fetch the file again"
    with Path(path).open("rb"):  # raise the usual error if the path cannot be read
        pass
    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}
        format_, version = metadata["format"], int(metadata["version"])
    except (*_DAMAGED, SafetensorError) as error:
        raise ValueError(message) from error
    if format_ != _FORMAT:
        raise ValueError(message)
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
        is_classifier = isinstance(calibrator, CalibratedClassifier)
        missing = len(calibrator.calibrators_) if is_classifier else 0
    except _DAMAGED as error:
        raise ValueError(message) from error
    if hasattr(estimators, "predict"):
        raise TypeError(
            "estimators must be a list of fitted classifiers, got "
            f"{type(estimators).__name__}; pass estimators=[classifier]"
        )
    classifiers = list(estimators or ())
    if len(classifiers) != missing:
        wanted = "[classifier]" if missing == 1 else f"[{missing} classifiers]"
        holds = f"the calibrator, not the classifier: pass estimators={wanted}"
        holds = holds if missing else "a calibrator without classifiers: leave estimators out"
        raise ValueError(f"{os.fspath(path)} holds {holds}; got {len(classifiers)} estimators")
    if missing:
        calibrator.set_params(estimator=clone(classifiers[0]))
        calibrator.estimators_ = classifiers
        keep_options(calibrator)
    return calibrator


def _check_predicts(calibrator: AnyModel) -> None:
    """Raise unless a calibrator predicts one row; arrays of a forged file may be inconsistent."""
    if isinstance(calibrator, CalibratedClassifier):
        for part in calibrator.calibrators_:
            _check_predicts(part)
        return
    inputs = getattr(calibrator, "inputs", "features")
    if not hasattr(calibrator, "as_function") or inputs == "top_logits":
        return
    with np.errstate(all="ignore"):
        populations = getattr(calibrator, "populations_", None)
        chosen = [] if populations is None else populations[:1].tolist()
        function = calibrator.as_function(*chosen)
        score = 1 / max(function.columns, 2) if inputs == "probs" else 0.0
        probs = function(np.full((1, function.columns), score))
    k = len(calibrator.classes_) if hasattr(calibrator, "classes_") else function.columns
    if probs.shape != (1, k) or not np.isfinite(probs).all():
        raise ValueError(f"probabilities {probs}")


def _digest(described: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(f"{_VERSION}\n{len(described)}\n{described}".encode())
    for name in sorted(arrays):
        value = arrays[name]
        digest.update(f"{name} {value.dtype.name} {value.shape}\n".encode())
        digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()


class _Writer:
    """Converts objects to values for JSON, and collects their arrays without duplicates."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._known: dict[int, tuple[str, object]] = {}

    def encode(self, value: object, name: str) -> object:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, bytes):
            return {"byte string": value.decode("latin-1")}
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
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
            return {"dict": {key: self.encode(entry, name) for key, entry in value.items()}}
        if not _is_public_class(type(value)):
            raise TypeError(
                f"{name} must be a number, a string, an array, a calibrator of bayescal, or a dict "
                f"of these by strings, to be saved, got {value!r}"
            )
        kind = type(value)
        options = _options(kind)
        if isinstance(value, Estimator):
            value._materialize_report()
            value = as_fitted(value)
        fitted = [attr for attr in vars(value) if attr not in options and attr[0] != "_"]
        if isinstance(value, CalibratedClassifier):
            options, fitted = (
                [n for n in names if n not in _OMITTED] for names in (options, fitted)
            )
        to_file = getattr(value, "_to_file", None)
        content = to_file() if to_file else {attr: getattr(value, attr) for attr in fitted}
        return {
            "class": kind.__name__,
            "options": {attr: self.encode(getattr(value, attr), attr) for attr in options},
            "fitted": {attr: self.encode(part, attr) for attr, part in content.items()},
        }

    def _encode_array(self, value: np.ndarray, name: str) -> dict[str, object]:
        if value.dtype.kind in _NUMBERS and value.dtype.itemsize <= 8:
            # Attributes are often entries of the state. Keep the array, so that its id stays
            # unique.
            key = self._known.setdefault(id(value), (f"array{len(self._known)}", value))[0]
            self.arrays[key] = np.asarray(value, value.dtype.newbyteorder("="), order="C")
            return {"array": key}
        if value.dtype.kind == "M":
            return {"dates": [value.dtype.name, np.datetime_as_string(value).tolist()]}
        if value.dtype.kind == "S":
            return {"byte strings": np.char.decode(value, "latin-1").tolist()}
        if not all(isinstance(entry, str) for entry in value.flat):
            raise TypeError(f"{name} must hold numbers, strings or dates to be saved")
        kind = "objects" if value.dtype == object else "strings"
        return {kind: value.tolist()}


def _decode(content: object, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(content, dict):
        return content
    if "class" in content:
        cls = _find(content["class"])
        if not (isinstance(cls, type) and _is_public_class(cls)):
            raise ValueError(f"no calibrator: {content['class']}")
        value = cls(
            **{name: _decode(option, arrays) for name, option in content["options"].items()}
        )
        fitted = {name: _decode(part, arrays) for name, part in content["fitted"].items()}
        for name in fitted:
            if not name.endswith("_") or name.startswith("_"):
                raise ValueError(f"no fitted attribute: {name}")
        if hasattr(value, "_from_file"):
            value._from_file(fitted)
        else:
            vars(value).update(fitted)
        if isinstance(value, Estimator):
            keep_options(value)
        return value
    ((kind, inner),) = content.items()
    if kind == "array":
        return arrays[inner]
    if kind in ("strings", "objects"):
        return np.array(inner, object if kind == "objects" else str)
    if kind == "byte string":
        return inner.encode("latin-1")
    if kind == "byte strings":
        return np.char.encode(inner, "latin-1")
    if kind == "dates":
        return np.array(inner[1], inner[0])
    if kind == "date":
        return _decode(inner, arrays)[()]
    if kind == "dict":
        return {name: _decode(entry, arrays) for name, entry in inner.items()}
    if kind in ("list", "tuple"):
        entries = [_decode(entry, arrays) for entry in inner]
        return entries if kind == "list" else tuple(entries)
    raise ValueError(f"no kind of content: {kind}")


def _is_public_class(cls: type) -> bool:
    """Return whether a class is a public dataclass of this package."""
    return is_dataclass(cls) and _find(cls.__name__) is cls


def _find(name: str) -> object:
    """Return the public estimator or report of the library with a name, or None."""
    calibrators = sys.modules[__name__.rpartition(".")[0]]
    if hasattr(calibrators, name):
        return getattr(calibrators, name)
    # Estimators of higher layers, which the library imports by name.
    value = getattr(sys.modules[__name__.partition(".")[0]], name, None)
    return value if isinstance(value, type) and issubclass(value, BaseEstimator) else None


def _options(cls: type) -> list[str]:
    return [option.name for option in fields(cls) if option.init]  # type: ignore[arg-type]
