"""Fitted calibrators in plain files: arrays and JSON, no pickle."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bayescal._core.files import write_atomically
from bayescal.calibrators._base import publish
from bayescal.calibrators.auto import Report

__all__ = ["load", "save"]

_FORMAT = "bayescal calibrator"
_VERSION = 2
#: What is kept beside options, state and parts: arrays of labels and names.
_ARRAYS = ("classes_", "feature_names_in_", "label_names_")


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
    header, arrays = _pack(calibrator)
    header = {"format": _FORMAT, "version": _VERSION, **header}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with write_atomically(Path(path)) as target, target.open("wb") as file:
        np.savez_compressed(file, header=text, **arrays)


def _known(name: str) -> type | None:
    """Return the public class of this name, if its fitted objects can be saved."""
    from bayescal import calibrators

    found = getattr(calibrators, name, None)
    able = isinstance(found, type) and issubclass(found, BaseEstimator)
    return found if able and name != "CalibratedClassifier" else None


def _pack(calibrator: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what JSON can hold of a fitted calibrator, and its arrays by name."""
    name = type(calibrator).__name__
    if _known(name) is not type(calibrator):
        raise TypeError(f"calibrator must be a calibrator of this package, got {name}")
    check_is_fitted(calibrator)
    arrays = {
        f"attribute/{own}": _plain_array(getattr(calibrator, own), own)
        for own in _ARRAYS
        if getattr(calibrator, own, None) is not None
    }
    header = {
        "class": name,
        "parameters": _parameters(calibrator),
        "n_features_in": int(calibrator.n_features_in_),
    }
    if hasattr(calibrator, "state_"):
        arrays |= {f"state/{own}": value for own, value in calibrator.state_.items()}
        return header, arrays
    if hasattr(calibrator, "report_"):
        header["report"] = dataclasses.asdict(calibrator.report_)
    header["status"], header["parts"] = calibrator.status_, []
    for number, part in enumerate(calibrator.calibrators_):
        own, inner = _pack(part)
        header["parts"].append(own)
        arrays |= {f"part{number}/{key}": value for key, value in inner.items()}
    return header, arrays


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
        If the file is none of these, or of a later version of the format.

    Examples
    --------
    See :func:`save`.

    >>> import bayescal as bc
    >>> bc.load(__file__)
    Traceback (most recent call last):
    ...
    ValueError: path must be a file written by bayescal.save, got ...
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes().decode())
        right, version = header["format"] == _FORMAT, header["version"]
    except (ValueError, KeyError, TypeError, AttributeError, EOFError):
        right, version, header, arrays = False, None, {}, {}
    if not right:
        raise ValueError(f"path must be a file written by bayescal.save, got {os.fspath(path)}")
    if version != _VERSION:
        remedy = "fit and save the calibrator again"
        if isinstance(version, int) and version > _VERSION:
            remedy = "install a newer bayescal"
        raise ValueError(
            f"path must hold version {_VERSION} of the format, got version {version}; {remedy}"
        )
    return _unpack(header, arrays)


def _unpack(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return the calibrator that was packed."""
    calibrator: Any = _make(header)
    groups: dict[str, dict[str, np.ndarray]] = {"attribute": {}, "state": {}}
    for key, value in arrays.items():
        group, name = key.split("/", 1)
        groups.setdefault(group, {})[name] = value
    calibrator.n_features_in_ = header["n_features_in"]
    for name, value in groups["attribute"].items():
        setattr(calibrator, name, value if name == "classes_" else value.astype(object))
    if "parts" not in header:
        publish(calibrator, groups["state"])
        return calibrator
    parts = enumerate(header["parts"])
    calibrator.calibrators_ = [_unpack(own, groups.get(f"part{i}", {})) for i, own in parts]
    calibrator.status_ = header["status"]
    if "report" in header:
        calibrator.report_ = Report(**header["report"])
    if header["class"] == "MultiLabel" and "label_names_" not in groups["attribute"]:
        calibrator.label_names_ = None
    return calibrator


def _make(header: dict[str, Any]) -> Any:
    """Return a calibrator that is not fitted, by its name and parameters."""
    known = _known(header["class"])
    if known is None:
        raise ValueError(
            f"path must hold a calibrator of this package, got {header['class']!r}; install a "
            "newer bayescal"
        )
    return known(**{name: _read_parameter(v) for name, v in header["parameters"].items()})


def _parameters(calibrator: Any) -> dict[str, Any]:
    given = calibrator.get_params(deep=False)
    return {name: _plain_parameter(value, name) for name, value in given.items()}


def _plain_array(value: Any, name: str) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype == object:
        if not all(isinstance(entry, str) for entry in array.ravel()):
            raise TypeError(f"{name} must hold numbers or strings to be saved")
        array = array.astype(str)
    return array


def _plain_parameter(value: Any, name: str) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if _known(type(value).__name__) is type(value):
        return {"class": type(value).__name__, "parameters": _parameters(value)}
    if isinstance(value, range):
        return list(value)
    if isinstance(value, tuple) or (
        isinstance(value, list) and any(hasattr(entry, "fit") for entry in value)
    ):
        return [_plain_parameter(entry, name) for entry in value]
    if value is None or isinstance(value, bool | int | float | str | list):
        return value
    raise TypeError(f"{name} must be a number, a string or None to be saved, got {value!r}")


def _read_parameter(value: Any) -> Any:
    if isinstance(value, dict):
        return _make(value)
    return [_read_parameter(entry) for entry in value] if isinstance(value, list) else value
