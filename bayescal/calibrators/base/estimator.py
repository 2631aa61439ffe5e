"""What all estimators share: arrays of any library in and out, and reports of their fits."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import sklearn
from sklearn.utils.validation import check_is_fitted

from bayescal._core.numerics import ignoring_underflow
from bayescal.calibrators.base.dispatch import as_fitted, dispatch_methods
from bayescal.calibrators.base.report import (
    Report,
    expect,
    make_report,
    row_losses,
    row_losses_of_scores,
)
from bayescal.data.kept_rows import KeptRows


def uncalibrated_losses(kept: KeptRows, inputs: str | None) -> np.ndarray | None:
    """Compute the loss of each row before calibration, if scores are probabilities or logits."""
    if inputs == "probs" or inputs == "logits":
        return row_losses_of_scores(kept.rows, kept.codes, inputs)
    return None


def report_of_rows(
    kept: KeptRows,
    fitted: Any,
    losses: np.ndarray | None,
    plain: np.ndarray | None,
    in_sample: bool,
) -> Report:
    """Make the report of a fit from the losses of kept rows, after and before calibration."""
    several = kept.codes.ndim == 2
    count = kept.codes.shape[1] if several else len(fitted.classes_)
    reason = "two classes" if count == 2 else f"{count} classes"
    reason = f"{count} labels" if several else reason
    names, sizes = (fitted._title(), reason), (kept.n, count)
    squares = kept.weights if kept.whole else kept.weights**2
    parts = fitted._member_weights(), losses, plain, kept.weights, squares
    theta = vars(fitted).get("state_", {}).get("theta")
    expected = None
    if not in_sample:
        # Rows are those that the fit has checked.
        expected = expect(
            lambda rows: fitted._probabilities_of(replace(kept, rows=rows)),
            kept.rows,
            kept.codes,
            fitted.inputs,
        )
    report = make_report(names, sizes, *parts, expected)
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


class Estimator:
    """An estimator whose methods answer arrays of any library, and whose fit reports on itself.

    A fit leaves what the report is made of as ``_kept_rows``. Copies and files hold the report
    itself, and no rows.
    """

    _kept_rows: KeptRows
    #: Whether it takes rows of the fit to make the report, and not what was learned alone.
    _report_of_rows: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dispatch_methods(cls)

    def _takes_arrays(self) -> bool:
        """Return whether arrays of all libraries go through all methods but by themselves."""
        return False

    @cached_property
    @ignoring_underflow
    def report_(self) -> Report:
        """What the fit gains in log loss, computed when it is first asked for: ``print`` it.

        Of most calibrators it is in sample, of at most 2,048 rows, drawn evenly.
        """
        check_is_fitted(self)
        if "_kept_rows" not in vars(self):
            raise AttributeError("report_ is of a fit: fit again, the rows are not there any more")
        with warnings.catch_warnings(), sklearn.config_context(array_api_dispatch=False):
            # Names of columns that rows do not have, and what a fit has said already.
            warnings.simplefilter("ignore")
            return as_fitted(self)._make_report(self._kept_rows)

    def _make_report(self: Any, kept: KeptRows) -> Report:
        found = self._probabilities_of(kept)
        losses = None if found is None else row_losses(found, kept.codes)
        plain = uncalibrated_losses(kept, getattr(self, "inputs", None))
        return report_of_rows(kept, self, losses, plain, in_sample=True)

    def _probabilities_of(self: Any, kept: KeptRows) -> np.ndarray | None:
        """Return calibrated probabilities of rows of the fit, of all classes."""
        return self.predict_proba(kept.rows)

    def _settle_report(self) -> None:
        """Make the report, if that takes rows of the fit."""
        if "_kept_rows" in vars(self) and self._report_of_rows:
            self.report_  # noqa: B018

    def _forget_report(self) -> None:
        """Forget that of an earlier fit."""
        vars(self).pop("report_", None)

    def _title(self) -> str:
        """Return the name of the class, and of what it is made of."""
        return type(self).__name__

    def _member_weights(self) -> dict[str, float]:
        """Return what is averaged, with its weight, if anything is."""
        return {}

    def __getstate__(self: Any) -> dict[str, Any]:
        self._settle_report()
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_kept_rows"}
