"""A classifier together with the calibrator of its scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch, Tags, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples, check_is_fitted, has_fit_parameter

from bayescal._core.arrays import AnyModel, ArrayLike, UserData, namespace, to_host
from bayescal._core.display.progress import Progress, showing
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.warnings import warn
from bayescal.calibrators.auto import Auto
from bayescal.calibrators.base.calibrator import Calibrator
from bayescal.calibrators.base.dispatch import dispatched, most_probable
from bayescal.calibrators.base.estimator import Estimator
from bayescal.calibrators.base.report import Report
from bayescal.calibrators.combine.base import has_intervals, keep_features
from bayescal.calibrators.combine.classifier.folds import (
    CrossValidation,
    Part,
    cross_fitted,
    fit_calibrator,
    fit_fold,
    make_folds,
)
from bayescal.calibrators.combine.classifier.pair import CalibratedPair, check_meaning, score
from bayescal.calibrators.combine.multi_label import MultiLabel
from bayescal.calibrators.names import make_calibrator, make_for
from bayescal.data.checks import check_choice, check_unmasked
from bayescal.data.fitted import read_label_rows
from bayescal.data.labels import class_labels, in_columns
from bayescal.data.membership import check_clusters, label_vector
from bayescal.data.weights import check_weights


def _has_interval(owner: CalibratedClassifier) -> bool:
    fitted = getattr(owner, "calibrators_", None)
    calibrator = fitted[0] if fitted else owner.calibrator
    if isinstance(calibrator, str):
        try:
            calibrator = make_calibrator(calibrator)
        except ValueError:
            return False
    return calibrator is None or has_intervals(calibrator)


@dataclass(eq=False, repr=False)
class CalibratedClassifier(Estimator, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier whose probabilities are calibrated on held-out data.

    For each fold, the classifier is fitted to all other rows and scores the rows of the fold. The
    calibrator is fitted to these held-out scores, and the classifier is fitted again to all rows.
    With ``ensemble=True``, each fold gives a pair of classifier and calibrator, and the
    probabilities of the pairs are averaged; with ``VennAbers`` this is a cross Venn-Abers
    predictor. A fitted classifier in scikit-learn's ``FrozenEstimator`` is not fitted again, and
    all data are used for the calibrator.

    Parameters
    ----------
    estimator : classifier
        A classifier with ``predict_proba``, or with ``decision_function`` for calibrators of logits
        and scores.
    calibrator : calibrator or str, optional
        A calibrator of this package, or a classifier that takes scores as features. It receives
        probabilities if its ``inputs`` are "probs", otherwise the decision function. Or the name of
        a calibrator in any case, such as "beta" or "venn_abers": it receives probabilities or, if
        the classifier has none, the decision function; binary calibrators calibrate each of several
        classes against the rest. "isotonic", "sigmoid" (Platt scaling with Platt's targets) and
        "temperature" receive the decision function if the classifier has one, as in scikit-learn;
        otherwise "sigmoid" receives log odds, not the probability. The default is "auto".
    cv : int, splitter or iterable of splits
        An integer is a number of stratified folds, or fewer if a class has fewer rows. The only row
        of a class is never left out.
    ensemble : bool or "auto"
        "auto" means true.
    n_jobs : int, optional
        Number of folds to fit in parallel.
    progress : bool or callable
        Whether to show a progress bar on standard error; or a function that is called with the name
        of the current step, the number of finished steps, and the number of all steps.

    Attributes
    ----------
    classes_ : array of shape (k,)
        For multi-label problems, a list with the classes (0 and 1) of each label.
    estimators_, calibrators_ : lists
        Fitted classifiers and calibrators: one of each, or one for each fold of an ensemble.
    calibrated_classifiers_ : list of pairs
        Pairs of both, with ``estimator``, ``calibrator`` and ``predict_proba``.
    report_ : Report
        Gain of calibration in log loss on held-out scores. When the report is first requested, each
        calibrator is fitted five more times, unless it has held-out losses, like ``Auto``. The
        classifier is not fitted again. For an ensemble, losses are means over its pairs, on the
        held-out rows of each pair; the mean of the probabilities is at least as good. A copy has
        the report only if it was requested before.

    See Also
    --------
    Auto : The default calibrator, for scores from any source.
    PriorShift : Correct calibrated probabilities for label shift.

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
    >>> round(before, 2), round(after, 2)
    (0.52, 0.13)
    >>> bool(model.report_.helps), model.calibrated_classifiers_[0].estimator
    (True, GaussianNB())
    """

    estimator: AnyModel = None
    calibrator: AnyModel = None
    cv: CrossValidation = field(default=5, kw_only=True)
    ensemble: bool | Literal["auto"] = field(default=False, kw_only=True)
    n_jobs: int | None = field(default=None, kw_only=True)
    progress: bool | Progress = field(default=False, kw_only=True)

    classes_: np.ndarray | list[np.ndarray] = field(init=False)
    estimators_: list[AnyModel] = field(init=False)
    calibrators_: list[AnyModel] = field(init=False)

    _report_of_rows: ClassVar[bool] = False
    _has_groups = False
    #: Searches of scikit-learn pass groups on.
    __metadata_request__fit: ClassVar = {"groups": True}

    def fit(
        self,
        X: UserData,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: UserData = None,
        **fit_params: object,
    ) -> Self:
        """Fit classifier and calibrator.

        Parameters
        ----------
        X : array-like
            Features, in any form that the classifier accepts.
        y : array-like of shape (n,) or (n, labels)
            Labels of any k values; more than two for multi-class calibrators. Or zeros and ones,
            with a column for each label of a multi-label problem, if the classifier supports it;
            the labels are calibrated separately.
        sample_weight : array-like of shape (n,), optional
            Passed to the calibrator, and to the classifier if its ``fit`` accepts weights. Rows of
            weight zero then need no label.
        groups : array of shape (n,), optional
            The group of each row, if rows of a group depend on each other, such as several of one
            patient. Groups are never split: a number of folds ``cv`` is that of scikit-learn's
            ``StratifiedGroupKFold`` (``GroupKFold`` for multi-label problems, and if no class has
            as many rows), and a splitter receives the groups. They are not passed to the
            classifier. The report leaves out whole groups, and its errors are those of sums by
            group: in simulations of 40 and 100 groups, intervals of ± 1.645 errors covered the gain
            in 84 to 93 % of data sets and the loss in 83 to 85 %, with ten groups in 77 to 88 %.
            Without ``groups``, intervals for correlated rows covered them in 68 to 79 %.
        **fit_params : arrays
            Passed to the classifier's ``fit``, by metadata routing if that is enabled.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is only one class, or more than the calibrator supports; if every class has
            one row; for unknown names of calibrators; and for ``cv="prefit"``.

        Warns
        -----
        UserWarning
            If weights do not reach the classifier, as with a ``Pipeline`` without metadata routing;
            if a class has fewer rows than folds; and if a fold contains all rows of a class.
        """
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        if self.estimator is None or isinstance(self.estimator, type):
            name = getattr(self.estimator, "__name__", None)
            raise TypeError(
                f"estimator must be a classifier, such as GaussianNB(), got {name}"
                + (f": pass {name}(...), not the class" if name else "")
            )
        if isinstance(self.cv, str):
            raise ValueError(
                f"cv must be a number of folds, a splitter or splits, got {self.cv!r}; pass a "
                "fitted classifier as sklearn.frozen.FrozenEstimator(classifier)"
            )
        if isinstance(self.ensemble, str):
            check_choice(self.ensemble, "ensemble", ("auto",))
        check_unmasked(X, "X")
        check_unmasked(y, "y")
        several = in_columns(y)
        weights = None
        if sample_weight is not None:
            weights = check_weights(sample_weight, _num_samples(y))
        codes = None if groups is None else check_clusters(groups, _num_samples(y))
        labels = None if groups is None else label_vector(groups, "groups")
        routed = self._route(weights, labels, fit_params)
        frozen = isinstance(self.estimator, FrozenEstimator)
        if frozen and not hasattr(self.estimator, "classes_"):
            raise NotFittedError(
                "the classifier in a FrozenEstimator must be fitted: "
                "FrozenEstimator(classifier.fit(X, y))"
            )
        # Other classifiers also learn from rows of weight zero, which need a label then.
        known = weights if frozen or "sample_weight" in routed.estimator.fit else None
        label = read_label_rows(y, weights=known) if several else class_labels(y, known)
        X = indexable(X, label)[0]
        if several:
            self.classes_ = [np.array([0, 1]) for _ in range(label.shape[1])]
        else:
            self.classes_ = to_host(self.estimator.classes_) if frozen else np.unique(label)
        k = 2 if several else len(self.classes_)
        if k == 1:
            raise ValueError("y must hold two classes or more, got one class")
        if k > 2 and getattr(self.calibrator, "binary", False):
            logits = getattr(self.calibrator, "inputs", "probs") != "probs"
            raise ValueError(
                "Only binary classification is supported by this calibrator. y must hold two "
                f"classes, got {k} classes; use Temperature, StructuredVector or "
                f"OneVsRest({type(self.calibrator).__name__}())" + ", with inputs='logits'" * logits
            )
        self._forget_report()
        with showing(self.progress) as show:
            self._fit(X, label, weights, codes, routed, show or (lambda *_: None))
        keep_features(self, self.estimators_[0])
        return self

    def _fit(
        self,
        X: UserData,
        y: np.ndarray,
        weights: np.ndarray | None,
        groups: np.ndarray | None,
        routed: Bunch,
        show: Progress,
    ) -> None:
        if isinstance(self.estimator, FrozenEstimator):
            show("calibrator", 0, 1)
            self.estimators_ = [self.estimator]
            scores = score(self.estimator, self._calibrator(), self.classes_, X)
            check_meaning(self.estimator, self._calibrator(), self.classes_, scores, X)
            self._fit_calibrators([(scores, y, weights, groups)])
            show("fitted", 1, 1)
            return
        params = routed.estimator.fit
        ensemble = bool(self.ensemble)
        folds, single = make_folds(self.cv, X, y, routed.splitter.split, ensemble)
        if ensemble and weights is not None:
            # Rows of weight zero calibrate nothing.
            folds = [fold for fold in folds if weights[fold[1]].any()]
        steps = len(folds) + (1 if ensemble else 2)
        calibrator, data = self._calibrator(), (X, y, params)
        # Classifiers that are needed only for scores are not returned from other processes.
        fit = delayed(partial(fit_fold, keep=ensemble))
        jobs = (fit(self.estimator, calibrator, self.classes_, data, fold) for fold in folds)
        estimators, scores = [], []
        show("folds", 0, steps)
        results: Any = Parallel(self.n_jobs, return_as="generator")(jobs)
        for done, result in enumerate(results, 1):
            estimators.append(result[0])
            scores.append(result[1])
            show("folds" if done < len(folds) else "calibrator", done, steps)
        if ensemble:
            if len(single) and has_fit_parameter(calibrator, "sample_weight"):
                # These rows are in all folds; their weights must sum to one row.
                weights = np.ones(len(y)) if weights is None else weights.copy()
                weights[single] /= len(folds)
            parts: list[Part] = []
            for held_out, (_, test) in zip(scores, folds, strict=True):
                test_weights, test_groups = (
                    None if array is None else array[test] for array in (weights, groups)
                )
                parts.append((held_out, y[test], test_weights, test_groups))
            self._fit_calibrators(parts)
            self.estimators_ = estimators
        else:
            order = np.argsort(np.concatenate([test for _, test in folds]))
            self._fit_calibrators([(np.concatenate(scores)[order], y, weights, groups)])
            show("all rows", steps - 1, steps)
            final: AnyModel = clone(self.estimator)
            self.estimators_ = [final.fit(X, y, **params)]
        show("fitted", steps, steps)

    def _fit_calibrators(self, parts: list[Part]) -> None:
        fit = delayed(fit_calibrator)
        jobs = (fit(self._calibrator(), self.classes_, *part[:3]) for part in parts)
        fitted: AnyModel = Parallel(self.n_jobs if len(parts) > 1 else 1)(jobs)
        self.calibrators_ = fitted
        self._held, self._has_groups = parts, parts[0][3] is not None

    def _calibrator(self) -> AnyModel:
        several = isinstance(self.classes_, list)
        if self.calibrator is not None and not isinstance(self.calibrator, str):
            made: AnyModel = clone(self.calibrator)
        else:
            name = "auto" if self.calibrator is None else self.calibrator
            made = make_for(name, self.estimator, 2 if several else len(self.classes_))
        return MultiLabel(made) if several and not isinstance(made, Auto | MultiLabel) else made

    def __getstate__(self) -> dict[str, object]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_held"}

    @property
    def calibrated_classifiers_(self) -> list[CalibratedPair]:
        """The pairs of ``estimators_`` and ``calibrators_``, which can predict."""
        check_is_fitted(self)
        pairs = zip(self.estimators_, self.calibrators_, strict=True)
        return [CalibratedPair(*pair, self.classes_) for pair in pairs]

    @cached_property
    @ignoring_underflow
    def report_(self) -> Report:
        """Report of the gain of calibration in log loss on held-out scores; ``print`` it."""
        check_is_fitted(self)
        report = getattr(self.calibrators_[0], "report_", None)
        single = len(self.calibrators_) == 1 and not self._has_groups
        if single and isinstance(report, Report) and not report.in_sample:
            return report
        if "_held" not in vars(self):
            raise AttributeError(
                "report_ needs the scores of the fit, which copies and files do not have: access "
                "it before, or fit again"
            )
        report_of_folds = cross_fitted(
            self._calibrator(), self.calibrators_, self.classes_, self._held
        )
        del self._held
        return report_of_folds

    def _takes_arrays(self) -> bool:
        """Return whether the classifier is fitted and takes arrays of any library."""
        frozen = isinstance(self.estimator, FrozenEstimator)
        return frozen and getattr(get_tags(self.estimator), "array_api_support", False)

    def predict_proba(self, X: UserData) -> np.ndarray:
        """Compute calibrated probabilities (m, k) of the classes in the order of ``classes_``.

        For multi-label problems, probabilities (m, labels) that labels are present.
        """
        pairs = self.calibrated_classifiers_
        if len(pairs) == 1:
            return pairs[0].predict_proba(X)
        scores = [pair.score(X) for pair in pairs]
        combine = getattr(self.calibrators_[0], "combine", Calibrator.combine)
        return combine(self.calibrators_, scores)

    def predict_log_proba(self, X: object) -> np.ndarray:
        """Compute the logarithms (m, k) of :meth:`predict_proba`; zero gives minus infinity."""
        probs = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return namespace(probs).log(probs)

    def predict(self, X: UserData) -> np.ndarray:
        """Return the most probable class (m,), or for several labels zeros and ones (m, labels)."""
        probs = self.predict_proba(X)
        if isinstance(self.classes_, list):
            return (probs > 0.5).astype(int)
        return most_probable(self.classes_, probs)

    def _advice(self, name: str) -> str | None:
        if name in ("calibrator_", "estimator_"):
            return f"there is one for each of the pairs, in {name[:-1]}s_"
        if name == "predict_interval" and hasattr(self, "calibrators_"):
            title = type(self.calibrators_[0]).__name__
            return f"its calibrator, {title}, has no posterior; Auto(), the default, has one"
        if name == "as_function":
            return "use that of the calibrators_, which takes the scores of the estimators_"
        return super()._advice(name)

    @available_if(_has_interval)
    @dispatched
    def predict_interval(self, X: UserData, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Compute credible intervals of the calibrated probabilities (the second of two classes).

        They are the intervals of the calibrator, which must have a posterior, given the score of
        the classifier. Ends of an ensemble are means of the ends of its pairs. This is the interval
        of the mean probability if the errors of the pairs are perfectly correlated, and too wide if
        they are independent. Their correlation is unknown, because the rows that calibrate one
        classifier have trained the others. In simulations (400 rows, ``GaussianNB``, ``Beta``)
        intervals of level 0.8 covered 94 % of the means of the true curves of the pairs; intervals
        that assume independent errors covered 64 %.
        """
        pairs = self.calibrated_classifiers_
        ends = [pair.calibrator.predict_interval(pair.score(X), level) for pair in pairs]
        if len(ends) == 1:
            return ends[0]
        lower, upper = (np.mean(end, axis=0) for end in zip(*ends, strict=True))
        return lower, upper

    @available_if(lambda self: hasattr(self.estimator, "set_output"))
    def set_output(self, *, transform: str | None = None) -> Self:
        """Set the output containers of the steps of the classifier, for example a ``Pipeline``.

        Probabilities are always arrays, as for all classifiers.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, optional
        """
        for estimator in (self.estimator, *getattr(self, "estimators_", [])):
            estimator.set_output(transform=transform)
        return self

    def _route(
        self,
        sample_weight: np.ndarray | None,
        groups: np.ndarray | None,
        fit_params: dict[str, object],
    ) -> Any:
        """Return the arguments for the classifier's fit and for the splitter."""
        split = {} if groups is None else {"groups": groups}
        if sklearn.get_config()["enable_metadata_routing"]:
            given = {} if sample_weight is None else {"sample_weight": sample_weight}
            routed = process_routing(self, "fit", **given, **fit_params)
            split = {**routed.splitter.split, **split}
            return Bunch(estimator=routed.estimator, splitter=Bunch(split=split))
        params = dict(fit_params)
        if sample_weight is not None:
            if has_fit_parameter(self.estimator, "sample_weight"):
                params["sample_weight"] = sample_weight
            elif not isinstance(self.estimator, FrozenEstimator):
                warn(
                    f"{type(self.estimator).__name__}.fit takes no sample_weight: weights count "
                    "for the calibration alone. A Pipeline passes them on with "
                    "sklearn.set_config(enable_metadata_routing=True) and "
                    "set_fit_request(sample_weight=True) of its steps."
                )
        return Bunch(estimator=Bunch(fit=params), splitter=Bunch(split=split))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the routing to the classifier's ``fit`` and the splitter's ``split``."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=to_fit).add(
            splitter=self.cv, method_mapping=to_split
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if self.estimator is not None:
            inner = get_tags(self.estimator).input_tags
            tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        assert tags.classifier_tags is not None
        tags.classifier_tags.multi_class = not getattr(self.calibrator, "binary", False)
        return tags
