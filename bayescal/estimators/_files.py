"""Fitted calibrators in plain files: arrays and JSON, no pickle."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal.estimators import (
    averaging,
    linear,
    multiclass,
    nonparametric,
    parametric,
    scaling,
    temperature,
)
from bayescal.estimators._calibrator import Calibrator
from bayescal.estimators.auto import Auto, Report
from bayescal.estimators.combining import Average, Composition, MultiLabel
from bayescal.estimators.logistic_regression import LogisticRegression
from bayescal.regression.posterior import Draws

__all__ = ["load", "save"]

_FORMAT = "bayescal calibrator"
_VERSION = 1
_KINDS = {
    name: getattr(module, name)
    for module in (averaging, linear, multiclass, nonparametric, parametric, scaling, temperature)
    for name in module.__all__
} | {cls.__name__: cls for cls in (Auto, Average, Composition, LogisticRegression, MultiLabel)}
_PLAIN = ("n_features_in_", "status_", "objective_", "n_iter_", "strength_", "smoothing_")
_ARRAYS = ("classes_", "feature_names_in_", "label_names_", "coef_", "intercept_", "cv_losses_")


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
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, header=text, **arrays)
    partial.replace(target)


def _pack(calibrator: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what JSON can hold of a fitted calibrator, and its arrays by name."""
    kind = type(calibrator).__name__
    if _KINDS.get(kind) is not type(calibrator):
        names = ", ".join(sorted(_KINDS))
        raise TypeError(f"calibrator must be one of {names}, got {kind}")
    check_is_fitted(calibrator)
    facts = {name: getattr(calibrator, name) for name in _PLAIN if hasattr(calibrator, name)}
    arrays: dict[str, Any] = {
        f"attribute/{name}": _plain_array(getattr(calibrator, name), name)
        for name in _ARRAYS
        if getattr(calibrator, name, None) is not None
    }
    header = {"kind": kind, "parameters": _parameters(calibrator), "attributes": facts}
    if isinstance(calibrator, Auto):
        header["report"] = dataclasses.asdict(calibrator.report_)
    if isinstance(calibrator, Calibrator):
        arrays |= {f"state/{name}": value for name, value in calibrator._state.items()}
    elif isinstance(calibrator, LogisticRegression):
        if calibrator._draws is not None:
            draws = calibrator._draws._asdict()
            arrays |= {f"draws/{name}": np.asarray(value) for name, value in draws.items()}
    else:
        header["parts"] = []
        for number, part in enumerate(calibrator.calibrators_):
            own, inner = _pack(part)
            header["parts"].append(own)
            arrays |= {f"part{number}/{name}": value for name, value in inner.items()}
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
        right = header["format"] == _FORMAT and header["kind"] in _KINDS
    except (ValueError, KeyError, TypeError, AttributeError, EOFError):
        right = False
        header = {}
    if not right:
        raise ValueError(f"path must be a file written by bayescal.save, got {os.fspath(path)}")
    if header["version"] > _VERSION:
        raise ValueError(
            f"path must hold format version {_VERSION} or lower, got {header['version']}; "
            "install a newer bayescal"
        )
    return _unpack(header, arrays)


def _unpack(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return the calibrator that was packed."""
    parameters = {k: _read_parameter(v) for k, v in header["parameters"].items()}
    calibrator = _KINDS[header["kind"]](**parameters)
    for name in _PLAIN:
        if name in header["attributes"]:
            setattr(calibrator, name, header["attributes"][name])
    groups: dict[str, dict[str, np.ndarray]] = {"attribute": {}, "state": {}, "draws": {}}
    for key, value in arrays.items():
        group, name = key.split("/", 1)
        groups.setdefault(group, {})[name] = value
    for name in _ARRAYS:
        if name in groups["attribute"]:
            value = groups["attribute"][name]
            named = name in ("feature_names_in_", "label_names_")
            setattr(calibrator, name, value.astype(object) if named else value)
    if isinstance(calibrator, Calibrator):
        calibrator._state = groups["state"]
    elif isinstance(calibrator, LogisticRegression):
        draws = groups["draws"]
        if draws:
            for name in ("divergences", "status"):
                draws[name] = int(draws[name])  # type: ignore[assignment]
        calibrator._draws = Draws(**draws) if draws else None  # type: ignore[arg-type]
        if not hasattr(calibrator, "cv_losses_"):
            calibrator.cv_losses_ = None
    else:
        parts = enumerate(header["parts"])
        calibrator.calibrators_ = [_unpack(own, groups[f"part{i}"]) for i, own in parts]
        if isinstance(calibrator, Auto):
            calibrator.report_ = Report(**header["report"])
        if isinstance(calibrator, MultiLabel) and not hasattr(calibrator, "label_names_"):
            calibrator.label_names_ = None
    return calibrator


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
    if type(value).__name__ in _KINDS and isinstance(value, _KINDS[type(value).__name__]):
        return {"kind": type(value).__name__, "parameters": _parameters(value)}
    if isinstance(value, range):
        return list(value)
    if isinstance(value, list) and any(hasattr(entry, "fit") for entry in value):
        return [_plain_parameter(entry, name) for entry in value]
    if isinstance(value, tuple):
        return [_plain_parameter(entry, name) for entry in value]
    if value is None or isinstance(value, bool | int | float | str | list):
        return value
    raise TypeError(f"{name} must be a number, a string or None to be saved, got {value!r}")


def _read_parameter(value: Any) -> Any:
    if isinstance(value, dict):
        own = {k: _read_parameter(v) for k, v in value["parameters"].items()}
        return _KINDS[value["kind"]](**own)
    return [_read_parameter(entry) for entry in value] if isinstance(value, list) else value
