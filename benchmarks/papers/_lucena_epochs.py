"""Figure 2 of B. Lucena (2018): small networks, epoch by epoch."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.figures import table
from benchmarks.papers._common import Finding
from benchmarks.studies.paired import paired, verdict

VERDICTS = {"holds": "holds", "fails": "fails", "open": "not told apart"}
_PRIOR = "logit spline, unity prior"
#: Figure 2 at its last epoch, by scheme: log losses and accuracies.
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


def difference(own: dict[str, Any], digits: int = 4) -> str:
    shown = f"{own['difference']:+.{digits}f} ± {own['error']:.{digits}f}"
    return f"{shown}, {VERDICTS[own['verdict']]}"


def said(own: dict[str, Any]) -> str:
    return VERDICTS[own["verdict"]]


def _runs(training: dict[str, Any], scheme: str, name: str, metric: str) -> np.ndarray:
    """Return values (seeds, checkpoints)."""
    return np.array([seed[scheme][name][metric] for seed in training["seeds"]])


def ends_of(training: dict[str, Any]) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    """Return the values (seeds,) after the last epoch."""
    return {
        scheme: {
            name: {m: _runs(training, scheme, name, m)[:, -1] for m in ("log_loss", "accuracy")}
            for name in methods
        }
        for scheme, methods in _PUBLISHED.items()
    }


def ends_table(ends: dict[str, Any]) -> str:
    rows = []
    for scheme, methods in _PUBLISHED.items():
        for name, (loss, accuracy) in methods.items():
            own = ends[scheme][name]
            known = ["" if value is None else f"{value:.4f}" for value in (loss, accuracy)]
            means = [f"{own[m].mean():.4f}" for m in ("log_loss", "accuracy")]
            rows.append([f"{scheme}: {name}", known[0], means[0], known[1], means[1]])
    heads = ["after the last epoch", "log loss, published", "ours", "accuracy, published", "ours"]
    return table(heads, rows)


def _seeds(first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    """Compare values (seeds,), and judge whether the first is less, by Student's t at 95%."""
    from scipy.stats import t

    own = paired(first, second)
    return {**own, "verdict": verdict(own, float(t.ppf(0.975, len(first) - 1)))}


def _trained_claims(training: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return by claim what is published, and the difference with its standard error over seeds."""
    ends, claims = ends_of(training), {}
    for scheme, methods in _PUBLISHED.items():
        own = ends[scheme]
        losses = {name: values["log_loss"] for name, values in own.items()}
        known = {name: loss or 0.0 for name, (loss, _) in methods.items()}
        for other in ("uncalibrated", "clipped, best"):
            apart = known["compact spline"] - known[other]
            claims[f"{scheme}: log loss below {other}"] = (
                f"{apart:+.4f}",
                _seeds(losses["compact spline"], losses[other]),
            )
        claims[f"{scheme}: log loss with a prior below uncalibrated"] = (
            "not tried",
            _seeds(losses[_PRIOR], losses["uncalibrated"]),
        )
        accuracy = {name: values["accuracy"] for name, values in own.items()}
        apart = (methods["uncalibrated"][1] or 0) - (methods["compact spline"][1] or 0)
        claims[f"{scheme}: fewer errors than uncalibrated"] = (
            f"{apart:+.4f}",
            _seeds(-accuracy["compact spline"], -accuracy["uncalibrated"]),
        )
        steps = {
            name: np.abs(np.diff(_runs(training, scheme, name, "log_loss"), axis=1)).mean(axis=1)
            for name in ("compact spline", "uncalibrated")
        }
        claims[f"{scheme}: log loss moves less from step to step"] = (
            "by eye",
            _seeds(steps["compact spline"], steps["uncalibrated"]),
        )
        curve = _runs(training, scheme, "compact spline", "log_loss")
        quarter = curve.shape[1] // 4
        late, early = curve[:, -quarter:], curve[:, quarter : 2 * quarter]
        claims[f"{scheme}: log loss lower in the last quarter than in the second"] = (
            "by eye",
            _seeds(late.mean(axis=1), early.mean(axis=1)),
        )
    part = ends["held out"]["compact spline"]["log_loss"]
    claims["a fifth to calibrate is better than all rows without"] = (
        "-0.0071",
        _seeds(part, ends["cross-validated"]["uncalibrated"]["log_loss"]),
    )
    return claims


def epochs(training: dict[str, Any]) -> list[str]:
    return [
        f"{claim}: published {known}; ours {difference(own)}."
        for claim, (known, own) in _trained_claims(training).items()
    ]


def epoch_findings(training: dict[str, Any], ends: dict[str, Any]) -> list[Finding]:
    numbers = "6 log losses, 4 accuracies"
    losses = [own["compact spline"]["log_loss"].mean() for own in ends.values()]
    shown = " and ".join(f"{loss:.4f}" for loss in losses)
    found = [Finding("figure 2", numbers, f"other images; spline {shown}", "claims judged below")]
    return found + [
        Finding(f"figure 2, {claim}", known, difference(own).rpartition(", ")[0], said(own))
        for claim, (known, own) in _trained_claims(training).items()
    ]
