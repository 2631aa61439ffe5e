"""Cross-fitting of classifiers: folds, fits without a fold, and the gain of calibration."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, Protocol, TypeAlias

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import _safe_split

from bayescal._core.arrays import AnyArray, AnyModel, UserData, XArray, to_host
from bayescal._core.numerics import FLOOR
from bayescal._core.warnings import warn
from bayescal.calibrators.base.estimator import Estimator
from bayescal.calibrators.base.report import (
    Report,
    expected_sums,
    losses_left_out,
    make_report,
)
from bayescal.calibrators.combine.classifier.pair import check_meaning, score
from bayescal.data.folds.deal import FoldedRows, fold_features
from bayescal.data.label_names import class_array, label_list
from bayescal.data.labels import find_positions
from bayescal.data.membership import check_clusters


class Splitter(Protocol):
    """An object like scikit-learn's that splits rows into training and test rows."""

    def split(
        self, X: UserData, y: UserData = None, groups: UserData = None
    ) -> Iterable[UserData]: ...


#: The number of folds, a splitter or splits; None for five folds.
CrossValidation: TypeAlias = int | Splitter | Iterable[object] | None
#: Data of a calibrator: scores, labels, weights, and groups of dependent rows.
Part: TypeAlias = tuple[AnyArray, np.ndarray, np.ndarray | None, np.ndarray | None]
#: Indices of training rows and of test rows.
Fold: TypeAlias = tuple[np.ndarray, np.ndarray]
#: Number of folds that the classifier is fitted without; fewer if there are fewer rows.
_DEFAULT_FOLDS = 5
#: Number of folds that evaluate the calibrator.
_FOLDS = 5


def make_folds(
    cv: UserData, X: UserData, y: np.ndarray, options: dict[str, object], ensemble: bool
) -> tuple[list[Fold], np.ndarray]:
    """Make folds; also return the rows that are the only ones of their classes.

    If ``cv`` is a number, these rows are in all training sets, and in the first test set, or in all
    test sets of an ensemble. With groups among the ``options`` of the splitter there are none.
    """
    splitter: Any
    if cv is not None and not isinstance(cv, Integral):
        splitter = check_cv(cv, y, classifier=True)
    elif "groups" in options:
        # Folds do not depend on the labels of groups.
        options = {**options, "groups": check_clusters(options["groups"], len(y))}
        splitter = _group_splitter(_DEFAULT_FOLDS if cv is None else int(cv), y, options["groups"])
    elif y.ndim == 2:
        return _of_label_sets(_DEFAULT_FOLDS if cv is None else int(cv), y), np.empty(0, int)
    else:
        return _stratified(_DEFAULT_FOLDS if cv is None else int(cv), y, ensemble)
    indices = np.arange(len(y))
    try:
        splits = splitter.split(X, y, **options)
        folds = [(indices[train], indices[test]) for train, test in splits]
    except ValueError as error:
        if "groups" not in str(error) or "groups" in options:
            raise
        raise ValueError(
            f"groups must be passed to fit, because cv={type(splitter).__name__}(...) needs them"
        ) from error
    if ensemble and min(len(test) for _, test in folds) < 2:
        count = getattr(splitter, "n_splits", None)
        name = f"Requesting {count}-fold" if count else type(splitter).__name__
        raise ValueError(
            f"{name} cross-validation does not leave each calibrator of an ensemble two rows: cv "
            "must leave out at least two at once; take fewer folds or ensemble=False"
        )
    times = np.bincount(np.concatenate([test for _, test in folds]), minlength=len(y))
    if not ensemble and not (times == 1).all():
        worst = times.min() if times.min() != 1 else times.max()
        raise ValueError(
            f"cv must leave each row out once, got splits that leave one out {worst} times; "
            "pass ensemble=True"
        )
    labels = np.unique(y) if y.ndim == 1 else np.empty(0)
    for train, _ in folds:
        missing = labels[~np.isin(labels, y[train])]
        if len(missing):
            warn(
                f"cv leaves out all rows of class {label_list(missing)[0]!r} at once, so that a "
                "classifier does not know it; take a stratified splitter"
            )
            break
    return folds, np.empty(0, int)


def _group_splitter(count: int, y: np.ndarray, groups: object) -> Splitter:
    """Make a splitter that keeps groups together, stratified unless there are several labels."""
    found = len(np.unique(np.asarray(groups)))
    if not 2 <= count or found < 2:
        raise ValueError(
            f"cv and the number of groups must be at least 2, got cv={count} and {found} groups"
        )
    if found < count:
        warn(f"groups has {found} different values: {found} folds in place of cv={count}")
    count = min(count, found)
    # scikit-learn stratifies only if some class has a row for each fold.
    large = y.ndim == 1 and np.unique(y, return_counts=True)[1].max() >= count
    return (StratifiedGroupKFold if large else GroupKFold)(count)


def _stratified(count: int, y: np.ndarray, ensemble: bool) -> tuple[list[Fold], np.ndarray]:
    if count > max(len(y), _DEFAULT_FOLDS):
        raise ValueError(f"cv must be at most the number of rows, {len(y)}, got {count}")
    labels, class_of_row, sizes = np.unique(y, return_inverse=True, return_counts=True)
    single = np.flatnonzero(sizes[class_of_row] == 1)
    others = np.flatnonzero(sizes[class_of_row] > 1)
    if not len(others):
        raise ValueError(
            "y must hold at least two rows of some class for cross-validation, got one of each; "
            "calibrate a fitted classifier in FrozenEstimator instead"
        )
    rarest = int(sizes[sizes > 1].min())
    if rarest < count:
        label = label_list(labels[sizes == rarest])[0]
        warn(f"y has {rarest} rows of class {label!r}: {rarest} folds in place of cv={count}")
    if len(single):
        warn(
            f"y has one row of class {label_list(y[single])[0]!r}: it is never left out, and "
            "calibrates with the score of a classifier that has seen it"
        )
    folds = []
    splitter: Any = check_cv(min(count, rarest), y[others], classifier=True)
    for train, test in splitter.split(others, y[others]):
        test_rows = others[test] if folds and not ensemble else np.append(others[test], single)
        folds.append((np.sort(np.append(others[train], single)), np.sort(test_rows)))
    return folds, single


def _of_label_sets(count: int, y: np.ndarray) -> list[Fold]:
    """Make folds for labels (n, labels); rows with equal labels are dealt in turn."""
    if not 2 <= count <= len(y):
        raise ValueError(f"cv must be at least 2, and no more than the {len(y)} rows, got {count}")
    fold = np.empty(len(y), int)
    fold[np.lexsort(y.T)] = np.arange(len(y)) % count
    return [(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(count)]


def fit_fold(
    estimator: object,
    calibrator: object,
    classes: np.ndarray,
    data: tuple[object, np.ndarray, dict[str, object]],
    fold: Fold,
    keep: bool,
) -> tuple[AnyModel, XArray]:
    """Fit a classifier without one fold, and compute its scores on the fold.

    ``data`` are X, y and further arguments of the classifier's ``fit``. The classifier is returned
    only if ``keep``.
    """
    (X, y, params), (train, test) = data, fold
    fold_params = {
        name: _safe_indexing(value, train) if _is_of_rows(value, len(y)) else value
        for name, value in params.items()
    }
    fitted: AnyModel = clone(estimator)
    fitted.fit(*_safe_split(fitted, X, y, train), **fold_params)
    test_X = _safe_split(fitted, X, None, test, train)[0]
    scores = score(fitted, calibrator, classes, test_X)
    check_meaning(fitted, calibrator, classes, scores, test_X)
    return (fitted if keep else None), scores


def _is_of_rows(value: object, n: int) -> bool:
    """Return whether an argument of a fit has an entry for each row."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return shape[:1] == (n,)
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) == n


def fit_calibrator(
    calibrator: AnyModel,
    classes: np.ndarray,
    scores: XArray,
    y: np.ndarray,
    weights: np.ndarray | None,
) -> AnyModel:
    """Fit a calibrator; set its classes, because the rows may lack some.

    Classes that it has in another order do not count: the classifier orders the columns.
    """
    if not isinstance(classes, list) and "classes" in calibrator.get_params():
        given, labels = calibrator.classes, label_list(classes)
        if given is None or {*label_list(class_array(given))} == {*labels}:
            calibrator.set_params(classes=tuple(labels))
    extra = {} if weights is None else {"sample_weight": weights}
    return calibrator.fit(scores, y, **extra)


def cross_fitted(
    calibrator: AnyModel, fitted: list[AnyModel], classes: Any, parts: list[Part]
) -> Report:
    """Report the gain of calibrators on held-out scores, by five more fits of each.

    For an ensemble this is the mean over its pairs, because no row is new to all of them. Rows of
    one group, if there are groups, are left out together, and errors are those of sums by group.
    """
    several = isinstance(classes, list)
    unfitted = getattr(calibrator, "calibrator", calibrator) if several else calibrator
    inputs = getattr(unfitted, "inputs", None)
    held_out, uncalibrated, row_weights, row_groups, sums = [], [], [], [], np.zeros(3)
    whole = all(mass is None or (mass == np.floor(mass)).all() for _, _, mass, _ in parts)
    with warnings.catch_warnings(), sklearn.config_context(array_api_dispatch=False):
        warnings.simplefilter("ignore")  # the fit has already warned
        for fit, (scores, y, weights, groups) in zip(fitted, parts, strict=True):
            used = slice(None) if weights is None else weights > 0
            rows, labels = to_host(scores)[used], y[used]
            rows = rows.reshape(len(rows), -1)
            weights = None if weights is None else weights[used]
            groups = None if groups is None else groups[used]
            row_groups.append(groups)
            if several:
                columns = zip(classes, rows.T, labels.T, strict=True)
                by_label: list[AnyArray] = [
                    _held_out(unfitted, c, z[:, None], t, weights, groups) for c, z, t in columns
                ]
                missing = any(part is None for part in by_label)
                losses = None if missing else np.mean(by_label, axis=0)
                pairs = zip(labels.T, classes, strict=True)
                codes = np.stack([find_positions(*pair) for pair in pairs], axis=1)
                predict = fit.predict_proba
            else:
                losses = _held_out(unfitted, classes, rows, labels, weights, groups)
                codes = find_positions(labels, classes)
                predict = partial(_probabilities, fit, classes)
            held_out.append(losses)
            mass = np.ones(len(rows)) if weights is None else weights
            row_weights.append(mass)
            given = rows, codes, inputs, mass, mass if whole else mass**2
            part_sums, before = expected_sums(predict, *given)
            sums += part_sums
            uncalibrated.append(before)
    weights = np.concatenate(row_weights)
    k = len(classes)
    title = fitted[0]._title() if isinstance(fitted[0], Estimator) else type(fitted[0]).__name__
    reason = "two classes" if k == 2 else f"{k} classes"
    report = make_report(
        (title, f"{k} labels" if several else reason),
        (len(weights), k),
        {},
        None if any(losses is None for losses in held_out) else np.concatenate(held_out),
        None if uncalibrated[0] is None else np.concatenate(uncalibrated),
        weights,
        weights if whole else weights**2,
        sums,
        None if row_groups[0] is None else np.concatenate(row_groups),
    )
    statuses = [getattr(fit, "status_", "converged") for fit in fitted]
    return replace(report, status=next((s for s in statuses if s != "converged"), "converged"))


def _held_out(
    calibrator: AnyModel,
    classes: np.ndarray,
    rows: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None,
    groups: np.ndarray | None,
) -> np.ndarray | None:
    codes = find_positions(y, classes)
    mass = np.ones(len(y)) if weights is None else weights
    if groups is None:
        folds = fold_features(rows, codes, mass, _FOLDS)
    else:
        folds = _fold_groups(codes, mass, groups)

    def fit(training: np.ndarray, mass: np.ndarray) -> Callable[[AnyArray], AnyArray]:
        # Rows are repeated if there are no weights, because the calibrator may not take any.
        index = np.repeat(training, mass.astype(int) if weights is None else 1)
        given = rows[index], y[index], None if weights is None else mass
        part = fit_calibrator(clone(calibrator), classes, *given)
        return partial(_probabilities, part, classes)

    return losses_left_out(folds, rows, codes, fit)


def _fold_groups(codes: np.ndarray, weights: np.ndarray, groups: np.ndarray) -> FoldedRows:
    """Give the rows of a group one fold; a single group gives a single fold."""
    rows, fold = np.arange(len(codes)), np.zeros(len(codes), int)
    if (groups != groups[0]).any():
        splits = _group_splitter(_FOLDS, codes, groups).split(rows, codes, groups)
        for number, (_, test) in enumerate(splits):
            fold[test] = number
    return FoldedRows(rows, fold, weights, rows, rows)


def _probabilities(fitted: AnyModel, classes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Compute probabilities (n, k) of all classes, some of which a calibrator may not know."""
    probs = np.full((len(rows), len(classes)), FLOOR)
    probs[:, np.isin(classes, fitted.classes_)] = fitted.predict_proba(rows)
    return probs
