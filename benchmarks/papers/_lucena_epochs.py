"""Figure 2 of B. Lucena (2018): losses and accuracies of small networks by epoch."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.figures import table
from benchmarks.papers._common import Finding
from benchmarks.studies.paired import paired, verdict

VERDICTS = {"holds": "holds", "fails": "fails", "open": "not told apart"}
_PRIOR = "logit spline, unity prior"
#: Log loss and accuracy at the last epoch of figure 2, by scheme and method.
_PUBLISHED: dict[str, dict[str, tuple[float | None, float | None]]] = {
    "held out": {
        "uncalibrated": (0.4361, 0.8764),
        "clipped, best": (0.4150, None),
        "compact spline": (0.3633, 0.8788),
        _PRIOR: (None, None),
    },
    "cross-validated": {
        "uncalibrated": (0.3704, 0.8886),
        "clipped, best": (0.3586, None),
        "compact spline": (0.3286, 0.8904),
        _PRIOR: (None, None),
    },
}


def difference(comparison: dict[str, Any], digits: int = 4) -> str:
    """Format a difference with its standard error and verdict."""
    numbers = f"{comparison['difference']:+.{digits}f} ± {comparison['error']:.{digits}f}"
    return f"{numbers}, {VERDICTS[comparison['verdict']]}"


def verdict_of(comparison: dict[str, Any]) -> str:
    """Return the verdict on a difference, in words."""
    return VERDICTS[comparison["verdict"]]


def _runs(training: dict[str, Any], scheme: str, name: str, metric: str) -> np.ndarray:
    """Collect values of a method by a metric, as an array (seeds, checkpoints)."""
    return np.array([seed[scheme][name][metric] for seed in training["seeds"]])


def ends_of(training: dict[str, Any]) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    """Collect the values (seeds,) after the last epoch, by scheme, method and metric."""
    return {
        scheme: {
            name: {m: _runs(training, scheme, name, m)[:, -1] for m in ("log_loss", "accuracy")}
            for name in methods
        }
        for scheme, methods in _PUBLISHED.items()
    }


def ends_table(ends: dict[str, Any]) -> str:
    """Arrange published values and our means after the last epoch as a table."""
    rows = []
    for scheme, methods in _PUBLISHED.items():
        for name, (loss, accuracy) in methods.items():
            values = ends[scheme][name]
            published = ["" if value is None else f"{value:.4f}" for value in (loss, accuracy)]
            means = [f"{values[m].mean():.4f}" for m in ("log_loss", "accuracy")]
            rows.append([f"{scheme}: {name}", published[0], means[0], published[1], means[1]])
    heads = ["after the last epoch", "log loss, published", "ours", "accuracy, published", "ours"]
    return table(heads, rows)


def _compare_seeds(first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    """Test whether the first values (seeds,) are less than the second, by Student's t at 95 %."""
    from scipy.stats import t

    comparison = paired(first, second)
    return {**comparison, "verdict": verdict(comparison, float(t.ppf(0.975, len(first) - 1)))}


def _trained_claims(training: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Test each claim: the published difference, and ours with its standard error over seeds."""
    ends, claims = ends_of(training), {}
    for scheme, methods in _PUBLISHED.items():
        of_scheme = ends[scheme]
        losses = {name: values["log_loss"] for name, values in of_scheme.items()}
        published = {name: loss or 0.0 for name, (loss, _) in methods.items()}
        for other in ("uncalibrated", "clipped, best"):
            published_difference = published["compact spline"] - published[other]
            claims[f"{scheme}: log loss below {other}"] = (
                f"{published_difference:+.4f}",
                _compare_seeds(losses["compact spline"], losses[other]),
            )
        claims[f"{scheme}: log loss with a prior below uncalibrated"] = (
            "not tried",
            _compare_seeds(losses[_PRIOR], losses["uncalibrated"]),
        )
        accuracy = {name: values["accuracy"] for name, values in of_scheme.items()}
        published_difference = (methods["uncalibrated"][1] or 0) - (
            methods["compact spline"][1] or 0
        )
        claims[f"{scheme}: fewer errors than uncalibrated"] = (
            f"{published_difference:+.4f}",
            _compare_seeds(-accuracy["compact spline"], -accuracy["uncalibrated"]),
        )
        steps = {
            name: np.abs(np.diff(_runs(training, scheme, name, "log_loss"), axis=1)).mean(axis=1)
            for name in ("compact spline", "uncalibrated")
        }
        claims[f"{scheme}: log loss moves less from step to step"] = (
            "by eye",
            _compare_seeds(steps["compact spline"], steps["uncalibrated"]),
        )
        curve = _runs(training, scheme, "compact spline", "log_loss")
        quarter = curve.shape[1] // 4
        late, early = curve[:, -quarter:], curve[:, quarter : 2 * quarter]
        claims[f"{scheme}: log loss lower in the last quarter than in the second"] = (
            "by eye",
            _compare_seeds(late.mean(axis=1), early.mean(axis=1)),
        )
    with_fifth = ends["held out"]["compact spline"]["log_loss"]
    claims["a fifth to calibrate is better than all rows without"] = (
        "-0.0071",
        _compare_seeds(with_fifth, ends["cross-validated"]["uncalibrated"]["log_loss"]),
    )
    return claims


def epochs(training: dict[str, Any]) -> list[str]:
    """List published and our differences for each claim, in sentences."""
    return [
        f"{claim}: published {published}; ours {difference(comparison)}."
        for claim, (published, comparison) in _trained_claims(training).items()
    ]


def epoch_findings(training: dict[str, Any], ends: dict[str, Any]) -> list[Finding]:
    """Collect the findings on figure 2."""
    numbers = "6 log losses, 4 accuracies"
    losses = [of_scheme["compact spline"]["log_loss"].mean() for of_scheme in ends.values()]
    means = " and ".join(f"{loss:.4f}" for loss in losses)
    first = [Finding("figure 2", numbers, f"other images; spline {means}", "claims judged below")]
    return first + [
        Finding(
            f"figure 2, {claim}",
            published,
            difference(comparison).rpartition(", ")[0],
            verdict_of(comparison),
        )
        for claim, (published, comparison) in _trained_claims(training).items()
    ]
