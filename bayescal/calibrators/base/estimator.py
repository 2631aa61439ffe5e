"""Base class of all estimators: arrays of any library, and reports of fits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, AnyModel
from bayescal._core.keywords import ConstructorSignature, new_with_other_words
from bayescal._core.minimization.optimize import Status
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.warnings import warn
from bayescal.calibrators.base.dispatch import as_fitted, dispatch_methods
from bayescal.calibrators.base.docstrings import inherit_parameters
from bayescal.calibrators.base.report import (
    Report,
    expected_sums,
    make_report,
    row_losses,
    uncalibrated_losses,
)
from bayescal.data.kept_rows import KeptRows

_SEPARATED = (
    "the scores separate the labels, so that no finite parameters are best and the last ones are "
    "kept; use "
)
_REMEDY = {
    Status.LIMIT: "the fit stopped before its optimum; scale the scores or leave out extreme ones",
    Status.UNBOUNDED: _SEPARATED
    + "inference='laplace', whose prior keeps them finite, or more data",
    Status.INVALID: "the objective is not finite; check the scores",
}
_WITHOUT_PRIOR = {**_REMEDY, Status.UNBOUNDED: f"{_SEPARATED}more data"}


def check_fitted(estimator: AnyModel) -> None:
    """Raise scikit-learn's error unless fitted; its own check takes as long as one prediction."""
    if not estimator.__sklearn_is_fitted__():
        check_is_fitted(estimator)


def report_of_rows(
    kept: KeptRows,
    fitted: AnyModel,
    losses: np.ndarray | None,
    predict: Callable[[AnyArray], AnyArray] | None = None,
) -> Report:
    """Make the report of a fit from the losses of kept rows.

    The losses are those of rows that were left out of a fit if there is a function that computes
    the probabilities of rows, and otherwise losses in sample.
    """
    several = kept.codes.ndim == 2
    count = kept.codes.shape[1] if several else len(fitted.classes_)
    reason = "two classes" if count == 2 else f"{count} classes"
    reason = f"{count} labels" if several else reason
    names, sizes = (fitted._title(), reason), (kept.n, count)
    squares = kept.weights if kept.whole else kept.weights**2
    theta = vars(fitted).get("state_", {}).get("theta")
    sums, in_sample = None, predict is None
    given = kept.rows, kept.codes, getattr(fitted, "inputs", None)
    if predict is None:
        uncalibrated = uncalibrated_losses(*given)
    else:
        sums, uncalibrated = expected_sums(predict, *given, kept.weights, squares)
    parts = fitted._member_weights(), losses, uncalibrated, kept.weights, squares
    report = make_report(names, sizes, *parts, sums)
    return replace(
        report,
        helps=None if in_sample else report.helps,
        hurts=None if in_sample else report.hurts,
        in_sample=in_sample,
        rows_judged=None if kept.all else len(kept.codes),
        effective_rows=kept.effective,
        parameters=None if theta is None else int(np.size(theta)),
        status=fitted.status_,
    )


def remedies(calibrator: AnyModel) -> dict[Status, str]:
    """Return the remedy that a warning names for each status."""
    has_prior = hasattr(calibrator, "inference") and calibrator.inputs != "top_logits"
    return _REMEDY if has_prior else _WITHOUT_PRIOR


def keep_status(estimator: AnyModel, status: Status, remedy: dict[Status, str]) -> None:
    """Set ``status_``, and warn if the fit did not converge."""
    estimator.status_ = status.name.lower()
    if status != Status.CONVERGED:
        title = estimator._title() if hasattr(estimator, "_title") else type(estimator).__name__
        warn(f"{title}: {remedy[status]}", ConvergenceWarning)


class Estimator:
    """An estimator whose methods accept arrays of any library, and whose fits have a report.

    A fit keeps a sample of its rows as ``_kept_rows``, from which the report is made on request.
    Copies and files contain the finished report, but no rows.

    Attributes
    ----------
    report_ : Report
        What was fitted, the number of rows, and the log loss before and after.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : array of str
        Names of the columns, if the data of the fit were a data frame whose names are strings.
    """

    __new__ = new_with_other_words
    __signature__ = ConstructorSignature()

    _kept_rows: KeptRows
    #: Whether the report needs rows of the fit, besides the fitted state.
    _report_of_rows: ClassVar[bool] = True

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        dispatch_methods(cls)
        inherit_parameters(cls)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise the error of a missing attribute, and name a replacement."""
            if (advice := self._advice(name)) is not None:
                message = f"{type(self).__name__} has no {name}: {advice}"
                raise AttributeError(message, name=name, obj=self)
            return object.__getattribute__(self, name)

    def _advice(self, name: str) -> str | None:
        """Return what to use in place of a missing attribute, if it is known."""
        if name == "partial_fit":
            return "use AveragedBeta, Beta, Logistic, Temperature, Vector or another that has it"
        if name != "predict_interval":
            return None
        return (
            "it has no posterior; for credible intervals use Auto(), or a calibrator with "
            "inference='laplace', such as Beta(inference='laplace')"
        )

    def _takes_arrays(self) -> bool:
        """Return whether all methods accept arrays of all libraries without conversion."""
        return False

    @cached_property
    @ignoring_underflow
    def report_(self) -> Report:
        """Report of the gain of the fit in log loss, computed on first access; ``print`` it.

        Most calibrators report in-sample losses of at most 2,048 evenly drawn rows.
        """
        check_is_fitted(self)
        if "_kept_rows" not in vars(self):
            raise AttributeError("report_ needs the rows of the fit, which are gone; fit again")
        with warnings.catch_warnings(), sklearn.config_context(array_api_dispatch=False):
            # The rows have no column names, and the fit has already warned.
            warnings.simplefilter("ignore")
            return as_fitted(self)._make_report(self._kept_rows)

    def _make_report(self: AnyModel, kept: KeptRows) -> Report:
        probs = self._probabilities_of(kept)
        losses = None if probs is None else row_losses(probs, kept.codes)
        return report_of_rows(kept, self, losses)

    def _probabilities_of(self: AnyModel, kept: KeptRows) -> np.ndarray | None:
        """Compute the calibrated probabilities (n, k) of rows of the fit."""
        return self.predict_proba(kept.rows)

    def _materialize_report(self) -> None:
        """Make the report if it needs rows of the fit."""
        if "_kept_rows" in vars(self) and self._report_of_rows:
            self.report_  # noqa: B018

    def _forget_report(self) -> None:
        vars(self).pop("report_", None)

    def _title(self) -> str:
        """Return the names of the class and of its parts."""
        return type(self).__name__

    def _member_weights(self) -> dict[str, float]:
        return {}

    def __sklearn_tags__(self: AnyModel) -> Tags:
        tags = super().__sklearn_tags__()  # pyright: ignore[reportAttributeAccessIssue]
        tags.array_api_support = True
        return tags

    def __getstate__(self: AnyModel) -> dict[str, object]:
        self._materialize_report()
        state: Any = super().__getstate__()
        if "_kept_states" in state:
            state = {**state, "_kept_states": {}}
        return {name: value for name, value in state.items() if name != "_kept_rows"}
