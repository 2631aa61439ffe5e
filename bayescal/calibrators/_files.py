"""Fitted calibrators in plain files: arrays and JSON, no pickle."""

from __future__ import annotations

import json
import os
import sys
import zipfile
import zlib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal._core.files import write_atomically

__all__ = ["load", "save"]

_FORMAT = "bayescal calibrator"
_VERSION = 2
#: What reading a file raises that is damaged, or of another kind.
_DAMAGED = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


def save(calibrator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator or ``LogisticRegression`` to one file of arrays and JSON.

    Parameters
    ----------
    calibrator : fitted calibrator
        Any of this package but ``CalibratedClassifier``: that holds a classifier of another
        library, so save that library's way the classifier, and here ``calibrators_``.
    path : str or path
        Usually ``NAME.npz``; nothing is appended.

    Raises
    ------
    TypeError
        For other objects, and for parameters that JSON cannot hold, as distributions.
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
    ...     path = pathlib.Path(folder) / "isotonic.npz"
    ...     bc.save(calibrator, path)
    ...     again = bc.load(path)
    >>> again.predict_proba([0.5]).tolist() == calibrator.predict_proba([0.5]).tolist()
    True
    """
    if not _is_ours(type(calibrator)):
        raise TypeError(
            f"calibrator must be a fitted calibrator of bayescal, got {type(calibrator).__name__}"
        )
    check_is_fitted(calibrator)
    writer = _Writer()
    content = writer.encode(calibrator, "calibrator")
    header = {"format": _FORMAT, "version": _VERSION, "calibrator": content}
    arrays: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    with write_atomically(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays, **writer.arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a calibrator written by :func:`save`. A file cannot run code.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    fitted calibrator

    Raises
    ------
    ValueError
        If the file is none of these, or of another version of the format.
    OSError
        If it cannot be read.

    Examples
    --------
    See :func:`save`.

    >>> import bayescal as bc
    >>> bc.load(__file__)
    Traceback (most recent call last):
    ...
    ValueError: path must be a file written by bayescal.save, whole, got ...
    """
    wrong = f"path must be a file written by bayescal.save, whole, got {os.fspath(path)}"
    with Path(path).open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            header = json.loads(arrays.pop("header").tobytes().decode())
            format_, version = header["format"], header["version"]
        except _DAMAGED as error:
            raise ValueError(wrong) from error
    if format_ != _FORMAT or type(version) is not int:
        raise ValueError(wrong)
    if version != _VERSION:
        remedy = "install a newer bayescal" if version > _VERSION else "fit and save it again"
        raise ValueError(f"path must hold format version {_VERSION}, got {version}; {remedy}")
    try:
        calibrator = _decode(header["calibrator"], arrays)
        check_is_fitted(calibrator)
    except _DAMAGED as error:
        raise ValueError(wrong) from error
    return calibrator


class _Writer:
    """Makes of objects what JSON can hold, and collects their arrays, each once."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self._known: dict[int, tuple[str, Any]] = {}

    def encode(self, value: Any, name: str) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.generic):
            return self.encode(value.item(), name)
        if isinstance(value, np.ndarray):
            return self._encode_array(value, name)
        if isinstance(value, list | tuple | range):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [self.encode(entry, name) for entry in value]}
        if isinstance(value, dict):
            return {"dict": {key: self.encode(own, name) for key, own in value.items()}}
        if not _is_ours(type(value)):
            raise TypeError(
                f"{name} must be a number, a string, an array or a calibrator of bayescal to be "
                f"saved, got {value!r}"
            )
        options = _options(type(value))
        fitted = [own for own in vars(value) if own not in options and own[0] != "_"]
        return {
            "class": type(value).__name__,
            "options": {own: self.encode(getattr(value, own), own) for own in options},
            "fitted": {own: self.encode(getattr(value, own), own) for own in fitted},
        }

    def _encode_array(self, value: np.ndarray, name: str) -> dict[str, str]:
        # Attributes are often entries of the state; the array is kept, and with it its address.
        key = self._known.setdefault(id(value), (f"array{len(self._known)}", value))[0]
        if value.dtype != object:
            self.arrays[key] = value
            return {"array": key}
        if not all(isinstance(entry, str) for entry in value.flat):
            raise TypeError(f"{name} must hold numbers or strings to be saved")
        self.arrays[key] = value.astype(str)
        return {"objects": key}


def _decode(content: Any, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(content, dict):
        return content
    if "class" in content:
        cls = _find(content["class"])
        if not (isinstance(cls, type) and _is_ours(cls)):
            raise ValueError(f"no calibrator: {content['class']}")
        options = {name: _decode(own, arrays) for name, own in content["options"].items()}
        value = cls(**options)
        for name, own in content["fitted"].items():
            if not name.endswith("_") or name.startswith("_"):
                raise ValueError(f"no fitted attribute: {name}")
            setattr(value, name, _decode(own, arrays))
        return value
    ((kind, inner),) = content.items()
    if kind == "array":
        return arrays[inner]
    if kind == "objects":
        return arrays[inner].astype(object)
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
