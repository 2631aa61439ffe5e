"""Reports of fits, made when they are asked for: of some rows that the fit has kept."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import sklearn
from sklearn.utils.validation import check_is_fitted

from bayescal._core.numerics import ignoring_underflow
from bayescal.calibrators._dispatch import as_fitted
from bayescal.calibrators._report import (
    Report,
    expect,
    make_report,
    row_losses,
    row_losses_of_scores,
)

#: Rows, and numbers at most, that are kept of a fit.
_ROWS, _NUMBERS = 2048, 1 << 18


@dataclass(frozen=True, eq=False)
class Seen:
    """Some rows of a fit as they were given, drawn evenly, and the size of all."""

    rows: np.ndarray
    codes: np.ndarray
    weights: np.ndarray
    #: Where they stand among all rows of positive weight.
    places: np.ndarray
    #: The number of all rows, the sum of their weights, that of squares, and whether all weights
    #: are whole.
    n: int
    weight: float
    squares: float
    whole: bool

    @property
    def all(self) -> bool:
        """Whether these are all rows."""
        return len(self.codes) == self.n

    @property
    def effective(self) -> float:
        """As many rows of equal weight say as much; whole weights are counts."""
        return self.weight if self.whole else self.weight**2 / self.squares

    def plain(self, inputs: str | None) -> np.ndarray | None:
        """Return the losses of scores as they are, if these are probabilities or logits."""
        if inputs == "probs" or inputs == "logits":
            return row_losses_of_scores(self.rows, self.codes, inputs)
        return None

    def report(
        self, fitted: Any, losses: np.ndarray | None, plain: np.ndarray | None, in_sample: bool
    ) -> Report:
        """Return a report of losses of these rows, and of those of their scores as they are."""
        several = self.codes.ndim == 2
        count = self.codes.shape[1] if several else len(fitted.classes_)
        reason = "two classes" if count == 2 else f"{count} classes"
        reason = f"{count} labels" if several else reason
        names, sizes = (fitted._title(), reason), (self.n, count)
        squares = self.weights if self.whole else self.weights**2
        parts = fitted._member_weights(), losses, plain, self.weights, squares
        theta = vars(fitted).get("state_", {}).get("theta")
        expected = None
        if not in_sample:
            # Rows are those that the fit has checked.
            expected = expect(
                lambda rows: fitted._probabilities_of(replace(self, rows=rows)),
                self.rows,
                self.codes,
                fitted.inputs,
            )
        report = make_report(names, sizes, *parts, expected)
        return replace(
            report,
            helps=None if in_sample else report.helps,
            hurts=None if in_sample else report.hurts,
            in_sample=in_sample,
            rows_judged=None if self.all else len(self.codes),
            effective_rows=self.effective,
            parameters=None if theta is None else int(np.size(theta)),
            status=fitted.status_,
        )


def see(rows: Any, codes: np.ndarray, weights: np.ndarray | None) -> Seen:
    """Return what is kept of rows (n, d) of positive weight, or equal ones, of any library."""
    n, most = len(codes), max(1, min(_ROWS, _NUMBERS // max(1, rows.shape[1])))
    if n > most:
        draw = np.random.default_rng(0).choice
        places = np.sort(draw(n, most, replace=False, shuffle=False))
        rows = rows[places]
    else:
        places = np.arange(n)
    size = float(n), float(n), True
    if weights is not None:
        whole = bool((weights == np.floor(weights)).all())
        size = float(weights.sum()), float(weights @ weights), whole
    own = np.ones(len(places)) if weights is None else weights[places]
    return Seen(np.array(rows), codes[places], own, places, n, *size)


class Reported:
    """An estimator whose fit reports on itself.

    A fit leaves what the report is made of as ``_seen``. Copies and files hold the report itself,
    and no rows.
    """

    _seen: Seen
    #: Whether it takes rows of the fit to make the report, and not what was learned alone.
    _report_of_rows: ClassVar[bool] = True

    @cached_property
    @ignoring_underflow
    def report_(self) -> Report:
        """What the fit gains in log loss, computed when it is first asked for: ``print`` it.

        Of most calibrators it is in sample, of at most 2,048 rows, drawn evenly.
        """
        check_is_fitted(self)
        if "_seen" not in vars(self):
            raise AttributeError("report_ is of a fit: fit again, the rows are not there any more")
        with warnings.catch_warnings(), sklearn.config_context(array_api_dispatch=False):
            # Names of columns that rows do not have, and what a fit has said already.
            warnings.simplefilter("ignore")
            return as_fitted(self)._make_report(self._seen)

    def _make_report(self: Any, seen: Seen) -> Report:
        found = self._probabilities_of(seen)
        losses = None if found is None else row_losses(found, seen.codes)
        return seen.report(self, losses, seen.plain(getattr(self, "inputs", None)), in_sample=True)

    def _probabilities_of(self: Any, seen: Seen) -> np.ndarray | None:
        """Return calibrated probabilities of rows of the fit, of all classes."""
        return self.predict_proba(seen.rows)

    def _settle_report(self) -> None:
        """Make the report, if that takes rows of the fit, and let go of these."""
        if "_seen" in vars(self) and self._report_of_rows:
            self.report_  # noqa: B018
        vars(self).pop("_seen", None)

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
        return super().__getstate__()  # type: ignore[misc]
