"""Of a classifier: folds, fits to their complements, and what calibration gains on its scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import _safe_split

from bayescal._core.arrays import to_host
from bayescal._core.numerics import FLOOR
from bayescal._core.warnings import frames_to_caller
from bayescal.calibrators.base.estimator import Estimator
from bayescal.calibrators.base.report import (
    Report,
    concatenate_expected,
    expected_losses,
    make_report,
    row_losses,
    uncalibrated_row_losses,
)
from bayescal.calibrators.combine.classifier.pair import check_meaning, score
from bayescal.data.folds.deal import fold_features
from bayescal.data.label_names import label_list
from bayescal.data.labels import find_positions

__all__ = ["Part", "cross_fitted", "fit_calibrator", "fit_fold", "make_folds"]

#: What a calibrator is fitted to: scores, labels and weights.
Part: TypeAlias = tuple[Any, np.ndarray, np.ndarray | None]
#: Rows of training, and of test.
Fold: TypeAlias = tuple[np.ndarray, np.ndarray]
#: Of the calibrator, to judge it.
_FOLDS = 5


def make_folds(
    cv: Any, X: Any, y: np.ndarray, options: dict[str, Any], ensemble: bool
) -> tuple[list[Fold], np.ndarray]:
    """Return rows of training and of test, and those that are the only ones of their classes.

    These are always of training, where ``cv`` is a number: and of the first test, or of all tests
    of an ensemble.
    """
    if y.ndim == 2 and (cv is None or isinstance(cv, Integral)):
        return _of_label_sets(5 if cv is None else int(cv), y), np.empty(0, int)
    if cv is None or isinstance(cv, Integral):
        return _stratified(5 if cv is None else int(cv), y, ensemble)
    splitter: Any = check_cv(cv, y, classifier=True)
    every = np.arange(len(y))
    try:
        splits: Iterable[Any] = splitter.split(X, y, **options)
        folds = [(every[train], every[test]) for train, test in splits]
    except ValueError as error:
        if "groups" not in str(error) or "groups" in options:
            raise
        name = type(splitter).__name__
        raise ValueError(
            f"cv must be given the groups that {name} needs: pass cv=list({name}(...).split(X, y, "
            "groups)), or call sklearn.set_config(enable_metadata_routing=True) and pass groups to "
            "fit"
        ) from error
    times = np.bincount(np.concatenate([test for _, test in folds]), minlength=len(y))
    if not ensemble and not (times == 1).all():
        worst = times.min() if times.min() != 1 else times.max()
        raise ValueError(
            f"cv must leave each row out once, got splits that leave one out {worst} times; say "
            "ensemble=True"
        )
    labels = np.unique(y) if y.ndim == 1 else np.empty(0)
    for train, _ in folds:
        missing = labels[~np.isin(labels, y[train])]
        if len(missing):
            _warn(
                f"cv leaves out all rows of class {label_list(missing)[0]!r} at once, so that a "
                "classifier does not know it; take a stratified splitter"
            )
            break
    return folds, np.empty(0, int)


def _stratified(count: int, y: np.ndarray, ensemble: bool) -> tuple[list[Fold], np.ndarray]:
    labels, place, sizes = np.unique(y, return_inverse=True, return_counts=True)
    lone = np.flatnonzero(sizes[place] == 1)
    others = np.flatnonzero(sizes[place] > 1)
    if not len(others):
        raise ValueError(
            "y must hold at least two rows of some class for cross-validation, got one of each; "
            "calibrate a fitted classifier in FrozenEstimator instead"
        )
    rarest = int(sizes[sizes > 1].min())
    if rarest < count:
        label = label_list(labels[sizes == rarest])[0]
        _warn(f"y has {rarest} rows of class {label!r}: {rarest} folds in place of cv={count}")
    if len(lone):
        _warn(
            f"y has one row of class {label_list(y[lone])[0]!r}: it is never left out, and "
            "calibrates with the score of a classifier that has seen it"
        )
    folds = []
    splitter: Any = check_cv(min(count, rarest), y[others], classifier=True)
    for train, test in splitter.split(others, y[others]):
        tested = others[test] if folds and not ensemble else np.append(others[test], lone)
        folds.append((np.sort(np.append(others[train], lone)), np.sort(tested)))
    return folds, lone


def _of_label_sets(count: int, y: np.ndarray) -> list[Fold]:
    """Return folds of labels (n, labels): rows with the same labels are dealt out in turn."""
    if not 2 <= count <= len(y):
        raise ValueError(f"cv must be at least 2, and no more than the {len(y)} rows, got {count}")
    fold = np.empty(len(y), int)
    fold[np.lexsort(y.T)] = np.arange(len(y)) % count
    return [(np.flatnonzero(fold != own), np.flatnonzero(fold == own)) for own in range(count)]


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=frames_to_caller())


def fit_fold(
    estimator: Any,
    calibrator: Any,
    classes: np.ndarray,
    data: tuple[Any, np.ndarray, dict[str, Any]],
    fold: Fold,
    keep: bool,
) -> tuple[Any, Any]:
    """Return a classifier fitted to all folds but one, if it is to be kept, and its scores there.

    Data are X, y and what else the classifier's ``fit`` takes.
    """
    (X, y, params), (train, test) = data, fold
    own = {
        name: _safe_indexing(value, train) if _is_of_rows(value, len(y)) else value
        for name, value in params.items()
    }
    fitted: Any = clone(estimator)
    fitted.fit(*_safe_split(fitted, X, y, train), **own)
    new = _safe_split(fitted, X, None, test, train)[0]
    scores = score(fitted, calibrator, classes, new)
    check_meaning(fitted, calibrator, classes, scores, new)
    return (fitted if keep else None), scores


def _is_of_rows(value: Any, n: int) -> bool:
    """Return whether an argument of a fit has an entry for each row; of others nothing is known."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return shape[:1] == (n,)
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) == n


def fit_calibrator(
    calibrator: Any, classes: Any, scores: Any, y: np.ndarray, weights: np.ndarray | None
) -> Any:
    """Return a calibrator, fitted; it is told the classes, which rows may lack."""
    several = isinstance(classes, list)
    if not several and "classes" in calibrator.get_params() and calibrator.classes is None:
        calibrator.set_params(classes=tuple(label_list(classes)))
    extra = {} if weights is None else {"sample_weight": weights}
    return calibrator.fit(scores, y, **extra)


def cross_fitted(calibrator: Any, fitted: list[Any], classes: Any, parts: list[Part]) -> Report:
    """Return what calibrators gain on scores that they have not seen: five more fits for each.

    Of an ensemble this is the mean over its pairs: no row is new to all.
    """
    found, expected = [], []
    inputs = getattr(getattr(calibrator, "calibrator", calibrator), "inputs", None)
    with warnings.catch_warnings(), sklearn.config_context(array_api_dispatch=False):
        warnings.simplefilter("ignore")  # the fit has said what there is to say
        for own_fit, (scores, y, weights) in zip(fitted, parts, strict=True):
            used = np.ones(len(y), bool) if weights is None else weights > 0
            own = None if weights is None else weights[used]
            rows, labels = to_host(scores)[used], y[used]
            rows = rows.reshape(len(rows), -1)
            if y.ndim == 2:
                found.append(_losses_of_labels(calibrator, classes, rows, labels, own))
                columns = zip(labels.T, classes, strict=True)
                codes = np.stack([find_positions(*pair) for pair in columns], axis=1)
                predict = own_fit.predict_proba
            else:
                found.append(_losses(calibrator, classes, rows, labels, own))
                codes = find_positions(labels, classes)
                predict = partial(_probabilities, own_fit, classes)
            expected.append(expected_losses(predict, rows, codes, inputs))
    held, plain, own = zip(*found, strict=True)
    held, plain = (
        None if any(each is None for each in every) else np.concatenate(every)
        for every in (held, plain)
    )
    own = np.concatenate(own)
    k = len(classes)
    title = fitted[0]._title() if isinstance(fitted[0], Estimator) else type(fitted[0]).__name__
    reason = "two classes" if k == 2 else f"{k} classes"
    names = title, f"{k} labels" if isinstance(classes, list) else reason
    squares = own if (own == np.floor(own)).all() else own**2
    report = make_report(
        names, (len(own), k), {}, held, plain, own, squares, concatenate_expected(expected)
    )
    statuses = [getattr(each, "status_", "converged") for each in fitted]
    return replace(report, status=next((s for s in statuses if s != "converged"), "converged"))


def _losses_of_labels(
    calibrator: Any, classes: Any, rows: np.ndarray, y: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray]:
    """Return means over labels of what :func:`_losses` returns of each."""
    one = getattr(calibrator, "calibrator", calibrator)
    labels = zip(classes, rows.T, y.T, strict=True)
    found = [_losses(clone(one), own, z[:, None], own_y, weights) for own, z, own_y in labels]
    each: Any = [own[:2] for own in found]
    held, plain = (
        None if any(own is None for own in of_labels) else np.mean(of_labels, axis=0)
        for of_labels in zip(*each, strict=True)
    )
    return held, plain, found[0][2]


def _losses(
    calibrator: Any,
    classes: np.ndarray,
    rows: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None,
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray]:
    """Return losses (n,) of rows without their folds, of scores as they are, and the weights."""
    codes = find_positions(y, classes)
    inputs = getattr(calibrator, "inputs", None)
    plain = uncalibrated_row_losses(rows, codes, inputs) if inputs in ("probs", "logits") else None
    row_weights = np.ones(len(y)) if weights is None else weights
    folds = fold_features(rows, codes, row_weights, _FOLDS)
    if folds.count == 1:
        return None, plain, row_weights
    held = np.empty(len(folds.fold))
    for fold in range(folds.count):
        out = folds.fold == fold
        kept, mass = folds.index[~out], folds.weights[~out]
        if weights is None:
            # Rows without weights are repeated: the calibrator may be one that takes none.
            kept, mass = np.repeat(kept, mass.astype(int)), None
        own = fit_calibrator(clone(calibrator), classes, rows[kept], y[kept], mass)
        left = folds.index[out]
        held[out] = row_losses(_probabilities(own, classes, rows[left]), codes[left])
    return folds.of_rows(held), plain, row_weights


def _probabilities(fitted: Any, classes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return probabilities (n, k) of all classes, some of which a calibrator may not know."""
    probs = np.full((len(rows), len(classes)), FLOOR)
    probs[:, np.isin(classes, fitted.classes_)] = fitted.predict_proba(rows)
    return probs
