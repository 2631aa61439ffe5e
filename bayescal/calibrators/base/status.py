"""The status of a fit, and remedies if it did not converge."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning

from bayescal._core.arrays import AnyModel
from bayescal._core.minimization.optimize import Status
from bayescal._core.warnings import warn

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
