"""A classifier together with the calibrator of its scores."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import (
    Bunch,
    Tags,
    _safe_indexing,
    assert_all_finite,
    column_or_1d,
    get_tags,
    indexable,
)
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from bayescal._core.arrays import ArrayLike
from bayescal._core.checks import check_unmasked, check_weights
from bayescal.calibrators._base import Calibrator
from bayescal.calibrators._combination import has_intervals, keep_features
from bayescal.calibrators._dispatch import Dispatched, dispatched, most_probable, place_of, to_host
from bayescal.calibrators._labels import check_present, frames_to_caller, of_one_kind
from bayescal.calibrators.auto import Auto

__all__ = ["CalibratedClassifier"]


def _has_interval(owner: CalibratedClassifier) -> bool:
    fitted = getattr(owner, "calibrators_", None)
    calibrator = fitted[0] if fitted else owner.calibrator
    return not owner.ensemble and (calibrator is None or has_intervals(calibrator))


@dataclass(eq=False, repr=False)
class CalibratedClassifier(Dispatched, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier whose probabilities are calibrated on data that it has not seen.

    The classifier scores every row while that row's fold is left out, the calibrator is fitted to
    these scores, and the classifier once more to all rows. With ``ensemble=True`` there is a pair
    of classifier and calibrator for each fold, and probabilities are averaged; ``VennAbers`` makes
    it a cross Venn-Abers predictor. A fitted classifier in scikit-learn's ``FrozenEstimator`` is
    left as it is: the data given serve the calibrator.

    Parameters
    ----------
    estimator : classifier
        With ``predict_proba``, or ``decision_function`` for calibrators of logits and scores.
    calibrator : calibrator, optional
        Any of this package, or a classifier that takes scores as features. Its ``inputs`` says what
        it is given: probabilities for "probs", else the decision function. By default ``Auto()``,
        of probabilities or, if the classifier has none, of the decision function.
    cv : int, splitter or iterable of splits
        An integer is a number of stratified folds, fewer where a class has fewer rows.
    ensemble : bool
    n_jobs : int, optional
        Folds fitted at the same time.

    Attributes
    ----------
    classes_ : array of shape (k,)
    estimators_, calibrators_ : lists
        Fitted: one of each, or one for each fold of an ensemble.

    References
    ----------
    B. Lucena (2018), Spline-based probability calibration, algorithm 4.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> import bayescal as bc
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = bc.CalibratedClassifier(GaussianNB(), calibrator=bc.Beta(), cv=5).fit(X, y)
    >>> plain = GaussianNB().fit(X, y)
    >>> before, after = (bc.metrics.log_loss(m.predict_proba(X), y) for m in (plain, model))
    >>> bool(after < 0.5 * before)
    True
    """

    estimator: Any = None
    calibrator: Any = None
    cv: Any = field(default=5, kw_only=True)
    ensemble: bool = field(default=False, kw_only=True)
    n_jobs: int | None = field(default=None, kw_only=True)

    classes_: np.ndarray = field(init=False)
    estimators_: list[Any] = field(init=False)
    calibrators_: list[Any] = field(init=False)

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, **fit_params: object
    ) -> Self:
        """Fit classifier and calibrator.

        Parameters
        ----------
        X : array-like
            Whatever the classifier takes.
        y : array-like of shape (n,)
            Labels, of any k values; more than two for calibrators of several classes.
        sample_weight : array-like of shape (n,), optional
            Given to the calibrator, and to the classifier if it takes weights.
        **fit_params : arrays
            Given to the classifier's ``fit``; by metadata routing, where that is enabled.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is one class only, more than the calibrator takes, or too few rows of one for
            two folds.

        Warns
        -----
        UserWarning
            If weights do not reach the classifier, as with a ``Pipeline`` without metadata routing.
        """
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        check_unmasked(X, "X")
        check_unmasked(y, "y")
        label = np.asarray(column_or_1d(y, warn=True))
        check_present(label)
        label = of_one_kind(label)
        if label.dtype.kind == "f":
            assert_all_finite(label, input_name="y")
        check_classification_targets(label)
        X = indexable(X, label)[0]
        weights, seen = None, label
        if sample_weight is not None:
            weights = check_weights(sample_weight, len(label))
            seen = label[weights > 0]
        routed = self._route(weights, fit_params)
        frozen = isinstance(self.estimator, FrozenEstimator)
        self.classes_ = to_host(self.estimator.classes_) if frozen else np.unique(seen)
        if len(self.classes_) == 1:
            raise ValueError("y must hold two classes or more, got one class")
        if len(self.classes_) > 2 and getattr(self.calibrator, "binary", False):
            raise ValueError(
                "Only binary classification is supported by this calibrator. y must hold two "
                f"classes, got {len(self.classes_)} classes; use Temperature, StructuredVector or "
                f"OneVsRest({type(self.calibrator).__name__}())"
            )
        if frozen:
            self.estimators_ = [self.estimator]
            scores = self._score(self.estimator, X)
            self.calibrators_ = [self._fit_calibrator(scores, label, weights)]
        elif self.ensemble:
            self._fit_pairs(X, label, weights, routed)
        else:
            self._fit_once(X, label, weights, routed)
        keep_features(self, self.estimators_[0])
        return self

    def _fit_once(self, X: Any, y: np.ndarray, weights: np.ndarray | None, routed: Bunch) -> None:
        """Fit one calibrator to scores of rows left out, and the classifier to all rows."""
        estimator: Any = clone(self.estimator)
        scores = cross_val_predict(
            estimator,
            X,
            y,
            cv=self._splitter(y),
            method=self._response(estimator),
            n_jobs=self.n_jobs,
            params=routed.estimator.fit,
        )
        self.calibrators_ = [self._fit_calibrator(self._shaped(scores), y, weights)]
        self.estimators_ = [estimator.fit(X, y, **routed.estimator.fit)]

    def _fit_pairs(self, X: Any, y: np.ndarray, weights: np.ndarray | None, routed: Bunch) -> None:
        """Fit a classifier without each fold, and a calibrator to its scores there."""
        from joblib import Parallel, delayed

        def pair(train: np.ndarray, test: np.ndarray) -> tuple[Any, Any]:
            params = {
                name: _safe_indexing(value, train) if np.shape(value)[:1] == (len(y),) else value
                for name, value in routed.estimator.fit.items()
            }
            estimator: Any = clone(self.estimator)
            estimator.fit(_safe_indexing(X, train), y[train], **params)
            own = None if weights is None else weights[test]
            scores = self._score(estimator, _safe_indexing(X, test))
            return estimator, self._fit_calibrator(scores, y[test], own)

        splits = self._splitter(y).split(X, y, **routed.splitter.split)
        pairs: Any = Parallel(n_jobs=self.n_jobs)(delayed(pair)(*split) for split in splits)
        self.estimators_, self.calibrators_ = (list(part) for part in zip(*pairs, strict=True))

    def _splitter(self, y: np.ndarray) -> Any:
        if not isinstance(self.cv, int):
            return check_cv(self.cv, y, classifier=True)
        rarest = int(np.unique(y, return_counts=True)[1].min())
        if rarest < 2:
            raise ValueError(
                "y must hold at least two rows of each class for cross-validation, got one of "
                "class counts 1; calibrate a fitted classifier in FrozenEstimator instead"
            )
        return check_cv(min(self.cv, rarest), y, classifier=True)

    def _calibrator(self, estimator: Any) -> Any:
        if self.calibrator is not None:
            return clone(self.calibrator)
        if hasattr(estimator, "predict_proba"):
            return Auto()
        return Auto(inputs="scores" if len(self.classes_) == 2 else "logits")

    def _response(self, estimator: Any) -> str:
        """Return the method of the classifier that gives what the calibrator takes."""
        calibrator = self._calibrator(estimator)
        inputs = getattr(calibrator, "inputs", None)
        if inputs is None:
            has_decision = hasattr(estimator, "decision_function")
            return "decision_function" if has_decision else "predict_proba"
        response = "predict_proba" if inputs == "probs" else "decision_function"
        if not hasattr(estimator, response):
            other = "inputs='scores' or 'logits'" if inputs == "probs" else "inputs='probs'"
            raise ValueError(
                f"estimator must have {response} for a calibrator with inputs={inputs!r}, got "
                f"{type(estimator).__name__}; say {other} in the calibrator"
            )
        return response

    def _takes_arrays(self) -> bool:
        """Return whether the classifier, already fitted, takes arrays of any library itself."""
        frozen = isinstance(self.estimator, FrozenEstimator)
        return frozen and getattr(get_tags(self.estimator), "array_api_support", False)

    def _score(self, estimator: Any, X: Any) -> Any:
        check_unmasked(X, "X")
        return self._shaped(getattr(estimator, self._response(estimator))(X))

    def _shaped(self, scores: Any) -> Any:
        scores = scores if place_of(scores) else np.asarray(scores)
        if scores.ndim == 1:
            return scores[:, None]
        both = scores.shape[1] > 2 or getattr(self.calibrator, "inputs", "probs") == "probs"
        return scores if both else scores[:, 1:]

    def _fit_calibrator(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> Any:
        calibrator = self._calibrator(self.estimator)
        if "classes" in calibrator.get_params() and calibrator.classes is None:
            calibrator.set_params(classes=tuple(self.classes_.tolist()))
        extra = {} if weights is None else {"sample_weight": weights}
        return calibrator.fit(scores, y, **extra)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return calibrated probabilities (m, k) of the classes in the order of ``classes_``."""
        check_is_fitted(self)
        if len(self.estimators_) == 1:
            return self.calibrators_[0].predict_proba(self._score(self.estimators_[0], X))
        scores = [self._score(estimator, X) for estimator in self.estimators_]
        combine = getattr(self.calibrators_[0], "combine", Calibrator.combine)
        return combine(self.calibrators_, scores)

    def predict(self, X: Any) -> np.ndarray:
        """Return the more probable class (m,) for each row, by calibrated probabilities."""
        probs = self.predict_proba(X)
        return most_probable(self.classes_, probs)

    @available_if(_has_interval)
    @dispatched
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return credible intervals of the calibrated probabilities, or of the second of two.

        They are those of the calibrator, given the classifier's score. Only with a calibrator that
        has a posterior, and without an ensemble.
        """
        check_is_fitted(self)
        return self.calibrators_[0].predict_interval(self._score(self.estimators_[0], X), level)

    def _route(self, sample_weight: np.ndarray | None, fit_params: dict[str, object]) -> Any:
        """Return what the classifier's fit and the splitter are to be given."""
        if sklearn.get_config()["enable_metadata_routing"]:
            given = {} if sample_weight is None else {"sample_weight": sample_weight}
            return process_routing(self, "fit", **given, **fit_params)
        params = dict(fit_params)
        if sample_weight is not None:
            if has_fit_parameter(self.estimator, "sample_weight"):
                params["sample_weight"] = sample_weight
            elif not isinstance(self.estimator, FrozenEstimator):
                warnings.warn(
                    f"{type(self.estimator).__name__}.fit takes no sample_weight: weights count "
                    "for the calibration alone. A Pipeline hands them on with "
                    "sklearn.set_config(enable_metadata_routing=True) and "
                    "set_fit_request(sample_weight=True) of its steps.",
                    UserWarning,
                    stacklevel=frames_to_caller(),
                )
        return Bunch(estimator=Bunch(fit=params), splitter=Bunch(split={}))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what is handed on: to the classifier's ``fit`` and the splitter's ``split``."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=to_fit).add(
            splitter=self.cv, method_mapping=to_split
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if self.estimator is not None:
            own = get_tags(self.estimator).input_tags
            tags.input_tags.sparse, tags.input_tags.allow_nan = own.sparse, own.allow_nan
        tags.classifier_tags.multi_class = not getattr(self.calibrator, "binary", False)
        tags.array_api_support = True
        return tags
