"""Metrics of probabilities: proper scores, accuracy, calibration errors, costs of decisions.

Metrics take probabilities or logits, labels of any values, and optional ``weights``, in this order,
as arrays of any kind; see :func:`log_loss`. Most return one number. Errors are fractions, not
percent. Integer weights are counts, equal to repeating rows; other weights are proportions.
:class:`Accumulator` computes metrics of data that come in batches.

Computations are in float64 whatever the type of the arrays, and results are Python floats or
float64 arrays. The type only determines by how much the sum of a row may differ from one: k times
its precision, or 1e-3 if that is more; and which predictions count as on a border of bins of equal
width.
"""

from functools import partial
from typing import TYPE_CHECKING

from bayescal.metrics._accumulator import Accumulator
from bayescal.metrics._scorer import scorer
from bayescal.metrics.calibration.canonical import canonical_ece, canonical_kde_ece
from bayescal.metrics.calibration.cumulative import ecce
from bayescal.metrics.calibration.debiased import debiased_ece
from bayescal.metrics.calibration.ece import ReliabilityCurve, ece, reliability_curve
from bayescal.metrics.calibration.multicalibration import (
    MulticalibrationError,
    multicalibration_error,
)
from bayescal.metrics.kernels.kde import kde_ece
from bayescal.metrics.kernels.skce import skce
from bayescal.metrics.kernels.skce_test import skce_test
from bayescal.metrics.kernels.smooth import smooth_ece
from bayescal.metrics.scores.corp import Corp, corp
from bayescal.metrics.scores.decisions import (
    DecisionCost,
    Threshold,
    best_threshold,
    decision_cost,
    loss_gap,
)
from bayescal.metrics.scores.multilabel import hamming_loss, multilabel_ecce, multilabel_ece
from bayescal.metrics.scores.proper import accuracy, brier_score, log_loss
from bayescal.metrics.scores.ranking import average_precision, roc_auc
from bayescal.metrics.scores.truth import true_calibration_error, variational_ece
from bayescal.metrics.uncertainty.calibration_tests import (
    CalibrationTest,
    consistency_test,
    spiegelhalter_test,
)
from bayescal.metrics.uncertainty.cumulative_test import ecce_test
from bayescal.metrics.uncertainty.intervals import bootstrap, difference, interval
from bayescal.metrics.uncertainty.measured import Interval
from bayescal.metrics.uncertainty.report import MetricReport, report

__all__ = [
    "Accumulator",
    "CalibrationTest",
    "Corp",
    "DecisionCost",
    "Interval",
    "MetricReport",
    "MulticalibrationError",
    "ReliabilityCurve",
    "Threshold",
    "accuracy",
    "average_precision",
    "best_threshold",
    "bootstrap",
    "brier_score",
    "canonical_ece",
    "canonical_kde_ece",
    "consistency_test",
    "corp",
    "debiased_ece",
    "decision_cost",
    "difference",
    "ecce",
    "ecce_test",
    "ece",
    "hamming_loss",
    "interval",
    "kde_ece",
    "log_loss",
    "loss_gap",
    "multicalibration_error",
    "multilabel_ecce",
    "multilabel_ece",
    "reliability_curve",
    "report",
    "roc_auc",
    "scorer",
    "skce",
    "skce_test",
    "smooth_ece",
    "spiegelhalter_test",
    "true_calibration_error",
    "variational_ece",
]


if not TYPE_CHECKING:  # which would take every name for a right one

    def __getattr__(name: str) -> object:
        from bayescal.metrics.registry import METRICS, OTHER_NAMES, did_you_mean

        if name not in OTHER_NAMES:
            hint = "" if name.startswith("_") else did_you_mean(name)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
        metric, options = OTHER_NAMES[name]
        function = METRICS[metric].function
        return partial(function, **options) if options else function


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name[:2] == name[-2:] == "__")})
