"""How sure metrics are: replicates of a bootstrap, intervals, and differences of two models."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np

from bayescal._core.checks import check_choice, check_count, check_level
from bayescal.metrics._bins import _borders
from bayescal.metrics._inputs import Predictions, check_many_labels, check_predictions
from bayescal.metrics._mass import MassMetric
from bayescal.metrics._registry import METRICS
from bayescal.metrics._skce import make_skce
from bayescal.metrics._sums import Metric, SumMetric, collect_many, evaluate, standard_error

__all__ = ["Interval", "bootstrap", "difference", "interval"]

#: Weights of replicates held at once: 32 MiB.
_ELEMENTS = 1 << 22
_UNBIASED = "debiased_ece", "skce"


class Interval(NamedTuple):
    """A metric, or a difference of two, and how sure it is.

    Attributes
    ----------
    value : float
    lower, upper : float
        Ends of the confidence interval.
    standard_error : float
    level : float
        Coverage that is aimed at.
    p_value : float or None
        Of a difference: of the hypothesis that there is none.
    """

    value: float
    lower: float
    upper: float
    standard_error: float
    level: float
    p_value: float | None = None


def bootstrap(
    metric: str,
    probs: Any,
    y: Any,
    *,
    replicates: int = 1000,
    seed: int = 0,
    weights: Any = None,
    **options: Any,
) -> np.ndarray:
    """Return a metric of cases that are drawn anew, with replacement, again and again.

    Parameters
    ----------
    metric : str
        Name of a metric of this module: ``"ece"``.
    probs, y : arrays
        As the metric takes them.
    replicates : int
    seed : int
    weights : array of shape (n,), optional
        Non-negative case weights. Whole ones are counts, the same as repeating cases.
    **options
        Of the metric.

    Returns
    -------
    array of shape (replicates,)

    Raises
    ------
    TypeError, ValueError
        As the metric, for unknown metrics, and for those that are not one number of probabilities
        and labels.

    Notes
    -----
    Weights that are drawn multiply what cases add to sums, so that nothing of a case is computed
    twice. O(replicates n) time for most metrics, in blocks of 32 MiB.

    References
    ----------
    B. Efron (1979), Bootstrap methods: another look at the jackknife.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.repeat([0.2, 0.8], 50), np.tile([0, 0, 0, 1, 1], 20)
    >>> values = bootstrap("brier_score", p, y, replicates=200)
    >>> values.shape, bool(0.25 < values.mean() < 0.4)
    ((200,), True)
    """
    replicates = check_count(replicates, "replicates")
    data, made = prepare(metric, probs, y, weights, options)
    return _replicate(made, data, replicates, seed)


def interval(
    metric: str,
    probs: Any,
    y: Any,
    *,
    level: float = 0.9,
    method: Literal["auto", "analytic", "bootstrap"] = "auto",
    replicates: int = 1000,
    seed: int = 0,
    weights: Any = None,
    **options: Any,
) -> Interval:
    r"""Return a metric with a confidence interval.

    Parameters
    ----------
    metric : str
        Name of a metric of this module: ``"brier_score"``.
    probs, y : arrays
        As the metric takes them.
    level : float
        Coverage that is aimed at, in (0, 1).
    method : {"auto", "analytic", "bootstrap"}
        Normal, with the standard error of the delta method, or from the quantiles of a bootstrap.
        By default analytic for means over cases: log loss, Brier score, accuracy, Hamming loss.
    replicates, seed : int
        Of the bootstrap.
    weights : array of shape (n,), optional
        Non-negative case weights. Whole ones are counts, the same as repeating cases.
    **options
        Of the metric.

    Returns
    -------
    Interval

    Raises
    ------
    TypeError, ValueError
        As the metric, and if it has no analytic interval.

    Notes
    -----
    The bootstrap's interval has the width that replicates have between their quantiles, and lies
    around the value less its bias: the mean rise of replicates over the value, or nothing for
    estimates without bias ("debiased_ece", "skce"). It is cut at zero where the metric cannot be
    less. Of 90 % intervals, simulated with 500 cases, 87 to 93 % cover the true value for means
    over cases and for "debiased_ece". Binned and smooth errors are too large where cases are few,
    and their bias is removed to first order only: in 10 bins 86 % cover an error of 0.12, 82 % one
    of 0.03, and 38 % one of zero. To ask whether the error is zero use :func:`consistency_test`.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.repeat([0.2, 0.8], 50), np.tile([0, 0, 0, 1, 1], 20)
    >>> found = interval("brier_score", p, y)
    >>> round(found.value, 3), bool(found.lower < found.value < found.upper)
    (0.34, True)
    """
    level = check_level(level)
    check_choice(method, "method", ("auto", "analytic", "bootstrap"))
    replicates = check_count(replicates, "replicates")
    data, made = prepare(metric, probs, y, weights, options)
    value = evaluate(made, data)
    means = METRICS[metric].best != "zero"
    analytic = means if method == "auto" else method == "analytic"
    if analytic:
        if not isinstance(made, SumMetric):
            raise ValueError(f"method must be 'bootstrap' for {metric}, which is no sum over cases")
        return normal_interval(value, standard_error(made, data), level)
    found = _replicate(made, data, replicates, seed)
    return from_replicates(value, found, level, metric not in _UNBIASED, not means)


def difference(
    metric: str,
    first: Any,
    second: Any,
    y: Any,
    *,
    level: float = 0.9,
    replicates: int = 1000,
    seed: int = 0,
    weights: Any = None,
    **options: Any,
) -> Interval:
    """Return the difference of a metric between two models of the same cases: first less second.

    Parameters
    ----------
    metric : str
        Name of a metric of this module: ``"log_loss"``.
    first, second : arrays
        Probabilities of the two models, as the metric takes them.
    y : array
        Labels, as the metric takes them.
    level : float
        Coverage that is aimed at, in (0, 1).
    replicates, seed : int
        Of the bootstrap, which draws the same cases for both.
    weights : array of shape (n,), optional
        Non-negative case weights. Whole ones are counts, the same as repeating cases.
    **options
        Of the metric.

    Returns
    -------
    Interval
        With a two-sided ``p_value``, at least 2 / (replicates + 1).

    Raises
    ------
    TypeError, ValueError
        As the metric.

    Examples
    --------
    >>> import numpy as np
    >>> sharp, flat = np.repeat([0.05, 0.95], 50), np.full(100, 0.5)
    >>> found = difference("log_loss", sharp, flat, np.repeat([0, 1], 50))
    >>> found.value < 0, found.p_value < 0.01
    (True, True)
    """
    level = check_level(level)
    replicates = check_count(replicates, "replicates")
    pairs = [prepare(metric, probs, y, weights, options) for probs in (first, second)]
    (data, made), (other, _) = pairs
    if data.probs.shape != other.probs.shape:
        raise ValueError(
            f"first and second must have one shape, got {data.probs.shape} and {other.probs.shape}"
        )
    value = evaluate(made, data) - evaluate(pairs[1][1], other)
    # The same seed draws the same cases.
    ours, theirs = (_replicate(m, d, replicates, seed) for d, m in pairs)
    return from_replicates(value, ours - theirs, level, metric not in _UNBIASED, paired=True)


def prepare(
    metric: str, probs: Any, y: Any, weights: Any, options: dict[str, Any]
) -> tuple[Predictions, Metric]:
    """Return checked predictions, and the metric of that name."""
    if metric not in METRICS:
        raise ValueError(f"no metric named {metric!r}; there are {', '.join(METRICS)}")
    entry = METRICS[metric]
    several = entry.shapes == ("multilabel",)
    data = (check_many_labels if several else check_predictions)(probs, y, weights)
    columns = None if data.probs.ndim == 1 else data.probs.shape[1]
    if metric == "skce":
        return data, make_skce(data, **options)
    if entry.make is None:
        able = ", ".join(name for name, each in METRICS.items() if each.make is not None)
        raise ValueError(f"metric must be one of {able}, skce, got {metric!r}")
    return data, entry.make(columns, **options)


def normal_interval(value: float, error: float, level: float) -> Interval:
    """Return the interval of a normal estimate."""
    half = NormalDist().inv_cdf((1 + level) / 2) * error
    return Interval(value, value - half, value + half, error, level)


def from_replicates(
    value: float,
    found: np.ndarray,
    level: float,
    biased: bool,
    positive: bool = False,
    paired: bool = False,
) -> Interval:
    """Return the interval from replicates (b,), around the value less its bias."""
    rise = found.mean() - value
    moved = found - (2 * rise if biased else rise)
    lower, upper = np.quantile(moved, [(1 - level) / 2, (1 + level) / 2])
    p_value = None
    if positive:
        lower, upper = max(lower, 0.0), max(upper, 0.0)
    if paired:
        less = min(np.count_nonzero(moved <= 0), np.count_nonzero(moved >= 0))
        p_value = min(1.0, 2 * (int(less) + 1) / (len(found) + 1))
    return Interval(value, float(lower), float(upper), float(found.std()), level, p_value)


# --- replicates -----------------------------------------------------------------------------------


def _replicate(metric: Metric, data: Predictions, replicates: int, seed: int) -> np.ndarray:
    parts = [_values(metric, base, factors) for base, factors in resample(data, replicates, seed)]
    return np.concatenate(parts)


def resample(data: Predictions, replicates: int, seed: int) -> Iterator[tuple[Predictions, Any]]:
    """Yield predictions and factors (b, n) of their weights, for some replicates at a time.

    Whole weights are counts: then cases are drawn one by one, and otherwise rows.
    """
    rng = np.random.default_rng(seed)
    n = len(data.y)
    cases = np.repeat(np.arange(n), data.weights.astype(int)) if data.whole else np.arange(n)
    if data.whole:
        data = data._replace(weights=np.ones(n))
    step = max(1, _ELEMENTS // max(n, len(cases)))
    for first in range(0, replicates, step):
        b = min(step, replicates - first)
        drawn = rng.integers(0, len(cases), (b, len(cases)))
        place = cases[drawn] + n * np.arange(b)[:, None]
        yield data, np.bincount(place.reshape(-1), minlength=b * n).reshape(b, n).astype(float)


def _values(metric: Metric, data: Predictions, factors: np.ndarray) -> np.ndarray:
    """Return the metric (b,) of predictions whose weights are multiplied by factors (b, n)."""
    if isinstance(metric, SumMetric):
        return np.array([metric.value(own, np) for own in collect_many(metric, data, factors)])
    if isinstance(metric, MassMetric):
        return _over_mass(metric, data, factors)
    found = []
    for factor in factors:
        if data.whole:
            used, weights = np.flatnonzero(factor), factor[factor > 0]
        else:
            # A row that is drawn twice is two cases.
            used = np.repeat(np.arange(len(factor)), factor.astype(int))
            weights = data.weights[used]
        found.append(
            evaluate(metric, Predictions(data.probs[used], data.y[used], weights, data.eps))
        )
    return np.array(found)


def _over_mass(metric: MassMetric, data: Predictions, factors: np.ndarray) -> np.ndarray:
    """Do so for bins of equal mass: predictions are sorted once."""
    weights = factors * data.weights
    # Groups of rows, instead of their weights.
    numbered = data._replace(weights=np.arange(len(data.y)))
    groups = list(metric.split(numbered, np))

    def one(group: Any) -> np.ndarray:
        predicted, observed, rows = group
        own = weights if len(rows) == len(data.y) else weights[:, rows]
        return equal_mass_sums_many(predicted, observed, own, metric.bins, data.whole)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sums = np.concatenate(list(pool.map(one, groups)), axis=2)
    ratios = np.ones(len(weights))
    if not data.whole:
        ratios = weights.sum(axis=1) / (factors @ data.weights**2)
    return np.array([metric.finish(s, r, np) for s, r in zip(sums, ratios, strict=True)])


def equal_mass_sums_many(
    predicted: np.ndarray, observed: np.ndarray, weights: np.ndarray, bins: int, whole: bool
) -> np.ndarray:
    """Return sums (b, 3, bins) over bins of equal mass, for weights (b, n)."""
    order = np.argsort(predicted)
    predicted, observed, weights = (
        predicted[order],
        observed[order],
        np.take(weights, order, axis=1),
    )
    b, n = weights.shape
    first = np.searchsorted(predicted, predicted, side="left")
    after = np.searchsorted(predicted, predicted, side="right")

    def cumulative(rows: np.ndarray) -> np.ndarray:
        sums = np.zeros((b, n + 1))
        np.cumsum(rows, axis=1, out=sums[:, 1:])
        return sums

    mass = cumulative(weights)
    borders = np.stack([_borders(total, bins, whole, np) for total in mass[:, -1]])
    row = np.stack([np.searchsorted(m, cut) for m, cut in zip(mass, borders, strict=True)]) - 1
    row = np.clip(row, 0, n - 1)
    low, high = first[row], after[row]
    lane = np.arange(b)[:, None]
    before = mass[lane, low]
    extent = mass[lane, high] - before
    share = np.clip((borders - before) / np.where(extent > 0, extent, 1), 0, 1)
    found = [borders]
    for values in (predicted, observed):
        sums = cumulative(weights * values)
        start = sums[lane, low]
        found.append(start + share * (sums[lane, high] - start))
    return np.diff(np.stack(found, axis=1), axis=2)
