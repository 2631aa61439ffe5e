"""All metrics by name: tests, accumulators and reports go through this table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal

from bayescal.data.checks import check_eps
from bayescal.data.predictions import Reading
from bayescal.metrics.calibration.canonical import canonical_ece, make_canonical
from bayescal.metrics.calibration.cumulative import ecce, make_ecce
from bayescal.metrics.calibration.debiased import debiased_ece, make_debiased
from bayescal.metrics.calibration.ece import ece, make_ece
from bayescal.metrics.calibration.mass import OrderedMetric
from bayescal.metrics.kernels.kde import kde_ece, make_kde
from bayescal.metrics.kernels.skce import skce
from bayescal.metrics.kernels.smooth import make_smooth, smooth_ece
from bayescal.metrics.scores.corp import corp
from bayescal.metrics.scores.decisions import decision_cost, loss_gap, make_loss_gap
from bayescal.metrics.scores.multilabel import (
    hamming_loss,
    make_hamming,
    make_multilabel,
    make_multilabel_ecce,
    multilabel_ecce,
    multilabel_ece,
)
from bayescal.metrics.scores.proper import (
    Accuracy,
    BrierScore,
    LogLoss,
    accuracy,
    brier_score,
    for_log_loss,
    log_loss,
)
from bayescal.metrics.scores.ranking import RANKINGS
from bayescal.metrics.scores.truth import true_calibration_error
from bayescal.metrics.sums import Metric, SumMetric

#: A name, or a name and options of the function of that name.
Choice = str | tuple[str, Mapping[str, object]]
#: Names of metrics and options, by the title of the result.
Choices = Mapping[str, tuple[str, Mapping[str, object]]]
Shape = Literal["binary", "multiclass", "multilabel"]
_CLASSES: tuple[Shape, ...] = ("binary", "multiclass")


@dataclass(frozen=True)
class Entry:
    """A metric in the table: its public ``function`` and its properties."""

    function: Callable[..., object]
    #: Problems it is for, with probabilities (n,), (n, k), or (n, l) for multi-label ones.
    shapes: tuple[Shape, ...] = _CLASSES
    #: Returns the metric for a number of columns (None for shape (n,)) and the function's options.
    make: Callable[..., Metric] | None = None
    #: Value of good predictions; None if the result has several numbers.
    best: Literal["low", "high", "zero"] | None = "zero"
    #: Whether the size of weights matters, not only their ratios.
    counts: bool = False
    #: Whether it can have either sign, and values nearer to zero are better.
    signed: bool = False
    #: Whether it compares probabilities with labels and nothing else, and returns a float.
    labels: bool = True
    #: Whether it can be accumulated over batches, if it has a ``make``.
    streams: bool = True

    @property
    def multilabel(self) -> bool:
        """Whether it is for multi-label predictions only."""
        return self.shapes == ("multilabel",)


def _make_log_loss(columns: int | None, *, eps: float | None = None) -> LogLoss:
    return LogLoss(None if eps is None else check_eps(eps, 0.0))


METRICS: dict[str, Entry] = {
    "log_loss": Entry(log_loss, make=_make_log_loss, best="low"),
    "brier_score": Entry(brier_score, make=BrierScore, best="low"),
    "accuracy": Entry(accuracy, make=lambda columns: Accuracy(), best="high"),
    "ece": Entry(ece, make=make_ece),
    "ecce": Entry(ecce, make=make_ecce),
    "debiased_ece": Entry(debiased_ece, make=make_debiased, counts=True),
    "smooth_ece": Entry(smooth_ece, make=make_smooth),
    "kde_ece": Entry(kde_ece, make=make_kde, counts=True),
    "canonical_ece": Entry(canonical_ece, make=make_canonical, streams=False),
    "skce": Entry(skce, counts=True),
    "loss_gap": Entry(loss_gap, make=make_loss_gap, signed=True),
    "multilabel_ece": Entry(multilabel_ece, ("multilabel",), make_multilabel),
    "multilabel_ecce": Entry(multilabel_ecce, ("multilabel",), make_multilabel_ecce),
    "hamming_loss": Entry(hamming_loss, ("multilabel",), make_hamming, best="low"),
    "corp": Entry(corp, best=None, labels=False),
    "decision_cost": Entry(decision_cost, best=None, labels=False),
    "true_calibration_error": Entry(true_calibration_error, labels=False),
}


#: Names of metrics in other libraries, with the options that they imply.
OTHER_NAMES: Choices = {
    "nll": ("log_loss", {}),
    "cross_entropy": ("log_loss", {}),
    "logloss": ("log_loss", {}),
    "brier": ("brier_score", {}),
    "mce": ("ece", {"norm": math.inf}),
    "rmsce": ("ece", {"norm": 2}),
    "ace": ("ece", {"binning": "equal_mass"}),
}
#: Other names of the scores of a ranking.
_RANKING_NAMES = {
    "auc": "roc_auc",
    "auroc": "roc_auc",
    "ap": "average_precision",
    "auprc": "average_precision",
    "pr_auc": "average_precision",
}


def find_metric(
    name: str, options: Mapping[str, object] = MappingProxyType({})
) -> tuple[str, dict[str, Any]]:
    """Find a metric by its name here or in other libraries; return its name and options."""
    if not isinstance(name, str):
        raise TypeError(
            f"metric must be the name of a metric, such as 'log_loss', got {type(name).__name__}"
        )
    if name in METRICS:
        return name, dict(options)
    if name in OTHER_NAMES:
        metric, implied = OTHER_NAMES[name]
        return metric, {**implied, **options}
    if name in RANKINGS:
        raise ValueError(
            f"metric must not be {name!r} here; interval, difference and report take scores of a "
            "ranking"
        )
    known = ", ".join([*METRICS, *RANKINGS])
    raise ValueError(f"no metric named {name!r}; there are {known}{did_you_mean(name)}")


def reading_for(choice: tuple[str, Mapping[str, object]], reading: Reading) -> Reading:
    """Return how predictions are read for a metric with these options."""
    name, options = choice
    if not isinstance(name, str):
        find_metric(name)  # raises
    name = OTHER_NAMES.get(name, (name,))[0]
    if name == "log_loss":
        return for_log_loss(reading, options.get("eps"))
    multilabel = name in METRICS and METRICS[name].multilabel and not reading.multilabel
    return replace(reading, multilabel=True) if multilabel else reading


def did_you_mean(name: str) -> str:
    """Suggest the metric with the most similar other name, at the end of an error message."""
    candidates = {name: name for name in (*METRICS, *OTHER_NAMES, *RANKINGS)} | _RANKING_NAMES
    similar = get_close_matches(str(name).lower(), candidates, 1)
    meant = candidates[similar[0]] if similar else name
    return f"; did you mean {meant!r}?" if meant != name else ""


def streamed(name: str, columns: int | None, options: dict[str, object]) -> SumMetric:
    """Make a metric as a function of sums, or an approximation if it sorts rows.

    Raises ValueError for metrics that need all rows at once.
    """
    name, options = find_metric(name, options)
    make = METRICS[name].make
    if make is None or not METRICS[name].streams:
        names = ", ".join(key for key, entry in METRICS.items() if entry.make and entry.streams)
        raise ValueError(f"{name} cannot be accumulated, it needs all cases at once; {names} can")
    metric = make(columns, **options)
    if isinstance(metric, OrderedMetric):
        return metric.histogram()
    assert isinstance(metric, SumMetric)
    return metric


def usual_metrics(
    classes: int, clusters: bool = False, *, ranking: bool = False, **bins: object
) -> dict[str, tuple[str, dict[str, object]]]:
    """Choose the metrics of a report; ``bins`` are options of the calibration errors.

    The correction of "debiased_ece" assumes independent rows. If rows lie in ``clusters``, the
    error is not corrected, and its interval subtracts chance by clusters. Scores of the ranking
    need two classes in memory.
    """
    rms: dict[str, object] = {"norm": 2, "binning": "equal_mass", **bins}
    metrics: dict[str, tuple[str, dict[str, object]]] = {
        "log loss": ("log_loss", {}),
        "Brier score": ("brier_score", {}),
        "accuracy": ("accuracy", {}),
        "ECE": ("ece", bins),
        "RMS calibration error": ("ece", rms) if clusters else ("debiased_ece", bins),
    }
    if classes > 2:
        metrics["class-wise ECE"] = ("ece", {"kind": "classwise", **bins})
    if ranking:
        metrics |= {"ROC AUC": ("roc_auc", {}), "average precision": ("average_precision", {})}
    return metrics


def choose_metrics(
    metrics: Sequence[Choice] | Mapping[str, Choice],
) -> dict[str, tuple[str, dict[str, object]]]:
    """Return metrics and options by the name of the result."""
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a sequence or a mapping, got {metrics!r}")
    if not metrics:
        raise ValueError("metrics must not be empty")
    items = (
        metrics.items() if isinstance(metrics, Mapping) else (("", choice) for choice in metrics)
    )
    chosen: dict[str, tuple[str, dict[str, object]]] = {}
    for title, choice in items:
        if not isinstance(choice, str | Sequence):
            raise TypeError(
                "metrics must be names, such as 'log_loss', or pairs of a name and options, got "
                f"{type(choice).__name__}"
            )
        metric, options = (choice, {}) if isinstance(choice, str) else choice
        name = str(title) or metric
        if name in chosen:
            raise ValueError(
                f"metrics must have different names, got {name!r} twice: use a mapping"
            )
        known = metric in METRICS or metric in OTHER_NAMES
        chosen[name] = find_metric(metric, options) if known else (metric, dict(options))
    return chosen
