"""Fitted calibrators in plain files: arrays and JSON, no pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal.estimators import linear, multiclass, nonparametric, parametric, temperature
from bayescal.estimators._calibrator import Calibrator
from bayescal.estimators.logistic_regression import LogisticRegression
from bayescal.logistic._posterior import Draws

__all__ = ["load", "save"]

_FORMAT = "bayescal calibrator"
_VERSION = 1
_KINDS = {
    name: getattr(module, name)
    for module in (linear, multiclass, nonparametric, parametric, temperature)
    for name in module.__all__
} | {"LogisticRegression": LogisticRegression}
_PLAIN = ("n_features_in_", "status_", "objective_", "n_iter_", "strength_", "smoothing_")
_ARRAYS = ("classes_", "feature_names_in_", "coef_", "intercept_", "cv_losses_")


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
    if isinstance(calibrator, Calibrator):
        arrays |= {f"state/{name}": value for name, value in calibrator._state.items()}
    elif calibrator._draws is not None:
        draws = calibrator._draws._asdict()
        arrays |= {f"draws/{name}": np.asarray(value) for name, value in draws.items()}
    parameters = {k: _plain_parameter(v, k) for k, v in calibrator.get_params(deep=False).items()}
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "kind": kind,
        "parameters": parameters,
        "attributes": facts,
    }
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, header=text, **arrays)
    partial.replace(target)


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
    calibrator = _KINDS[header["kind"]](**header["parameters"])
    for name in _PLAIN:
        if name in header["attributes"]:
            setattr(calibrator, name, header["attributes"][name])
    groups: dict[str, dict[str, np.ndarray]] = {"attribute": {}, "state": {}, "draws": {}}
    for key, value in arrays.items():
        group, name = key.split("/", 1)
        groups[group][name] = value
    for name in _ARRAYS:
        if name in groups["attribute"]:
            value = groups["attribute"][name]
            setattr(calibrator, name, value.astype(object) if name[:7] == "feature" else value)
    if isinstance(calibrator, Calibrator):
        calibrator._state = groups["state"]
    else:
        draws = groups["draws"]
        if draws:
            for name in ("divergences", "status"):
                draws[name] = int(draws[name])  # type: ignore[assignment]
        calibrator._draws = Draws(**draws) if draws else None  # type: ignore[arg-type]
        if not hasattr(calibrator, "cv_losses_"):
            calibrator.cv_losses_ = None
    return calibrator


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
    if isinstance(value, tuple):
        return [_plain_parameter(entry, name) for entry in value]
    if value is None or isinstance(value, bool | int | float | str | list):
        return value
    raise TypeError(f"{name} must be a number, a string or None to be saved, got {value!r}")
