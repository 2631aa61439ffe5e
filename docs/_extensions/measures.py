"""Pictures of metrics for over- and under-confident predictions, and of losses.

All public functions of ``bayescal.metrics`` and ``bayescal.losses`` are drawn in one form, on rows
of three classes (or three labels) with a known truth.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pictures
from scipy.special import expit, logit, softmax

import bayescal as bc
from bayescal.metrics.registry import METRICS

# What is drawn of a result, by the type that a metric says it returns.
FIELDS: dict[str, tuple[str, ...]] = {
    "float": ("",),
    "CalibrationTest": ("p_value",),
    "Corp": ("miscalibration", "discrimination"),
    "DecisionCost": ("predicted", "realized"),
    "MulticalibrationError": ("error",),
}
# They take two classes: the first, and others.
RANKINGS = "average_precision", "roc_auc"
SHARPNESS = np.geomspace(1 / 3, 3, 9)
ROWS = (30, 100, 300, 1000)
SAMPLES = 20
COSTS = [[0, 1, 0.3], [1, 0, 0.3], [1, 1, 0.3]]  # one class, another, or neither
METRIC_CAPTION = (
    "Left: 300 rows of three classes, or labels, from under-confident to over-confident "
    "predictions; at 1 (dotted) the predictions are the true probabilities. Right: the true "
    "probabilities, by the number of rows. Lines are means over "
    f"{SAMPLES} samples; bands contain 90 % of the samples."
)
GIVEN = np.linspace(-5, 5, 200)  # without 0, where classes tie
SHARE = 0.7
LOSS_CAPTION = (
    "Left: the loss of ten equal rows, by the predicted probability of a class. All ten rows "
    "(blue) or seven of them (orange; dotted: 0.7) belong to the class. Right: the derivative of "
    "the loss with respect to the logit of the class."
)


def metrics() -> list[str]:
    """Return the names of metrics that compare probabilities with something, and give numbers."""
    return [name for name in _functions(bc.metrics, "probs") if _returns(name) in FIELDS]


def losses() -> list[str]:
    """Return the names of losses of logits."""
    return _functions(bc.losses, "logits")


def _functions(module: Any, first: str) -> list[str]:
    found = {n: f for n, f in vars(module).items() if n[0] != "_" and inspect.isfunction(f)}
    return sorted(
        n for n, f in found.items() if next(iter(inspect.signature(f).parameters)) == first
    )


def _returns(name: str) -> str:
    return str(inspect.signature(getattr(bc.metrics, name)).return_annotation)


def value(name: str, rows: int, sharpness: float, seed: int) -> list[float]:
    """Return what a metric says of a sample."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=(rows, 3))
    if name in METRICS and METRICS[name].shapes == ("multilabel",):
        truth, probs = expit(z), expit(sharpness * z)
        y = (rng.uniform(size=z.shape) < truth).astype(int)
    else:
        truth, probs = softmax(z, axis=1), softmax(sharpness * z, axis=1)
        y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    if name in RANKINGS:
        probs, y = probs[:, 0], y == 0
    groups = rng.uniform(size=(rows, 2)) < 0.5
    known = {"costs": COSTS, "recalibrated": truth, "resamples": 200}
    function = getattr(bc.metrics, name)
    takes = inspect.signature(function).parameters
    if name == "multicalibration_error":  # elsewhere groups are clusters
        known["groups"] = groups
    more = {key: known[key] for key in known if key in takes}
    found = function(probs, truth if "true_probs" in takes else y, **more)
    return [float(getattr(found, field) if field else found) for field in FIELDS[_returns(name)]]


def draw_metric(name: str, path: Path) -> None:
    """Draw a metric by over-confidence, and by the number of cases."""
    panels = (
        ("predicted / true log odds", SHARPNESS, [(300, s) for s in SHARPNESS], [1 / 3, 1, 3]),
        ("rows", ROWS, [(n, 1.0) for n in ROWS], ROWS),
    )
    with pictures.panels(path, 2) as axes:
        for ax, (label, x, cases, ticks) in zip(axes, panels, strict=True):
            found = np.array([[value(name, *case, s) for s in range(SAMPLES)] for case in cases])
            for values, color in zip(np.moveaxis(found, 2, 0), pictures.COLORS, strict=False):
                low, high = np.quantile(values, (0.05, 0.95), axis=1)
                ax.fill_between(x, low, high, color=color, alpha=0.25, linewidth=0)
                ax.plot(x, values.mean(axis=1), color=color, linewidth=1.8)
            ax.set(xscale="log", xticks=ticks, xlabel=label)
            ax.set_xticks([], minor=True)
            ax.set_xticklabels(["1/3", "1", "3"] if x is SHARPNESS else [f"{t:,}" for t in ticks])
        axes[0].axvline(1, color=pictures.GRAY, linestyle=":", linewidth=1)
        for place, field, color in zip(
            ("left", "right"), FIELDS[_returns(name)], pictures.COLORS, strict=False
        ):
            axes[0].set_title(field.replace("_", " "), loc=place, color=color, fontsize=9)


def draw_loss(name: str, path: Path) -> None:
    """Draw a loss by the probability of a class, and its gradient."""
    function = getattr(bc.losses, name)
    teacher = jnp.tile(jnp.array([logit(SHARE), 0.0]), (10, 1))
    known = {"teacher_logits": teacher, "smoothing": 0.1}
    takes = inspect.signature(function).parameters
    more = {key: known[key] for key in known if key in takes}

    def loss(z: Any, labels: Any) -> Any:
        return function(jnp.tile(jnp.stack([z, jnp.zeros_like(z)]), (10, 1)), labels, **more)

    with pictures.panels(path, 2) as (left, right):
        for share, color in zip((1.0, SHARE), pictures.COLORS, strict=True):
            labels = jnp.asarray(np.arange(10) >= round(10 * share), int)
            both: Callable[..., Any] = jax.jit(jax.vmap(jax.value_and_grad(loss), (0, None)))
            values, slopes = both(jnp.asarray(GIVEN), labels)
            left.plot(expit(GIVEN), values, color=color, linewidth=1.8)
            right.plot(GIVEN, slopes, color=color, linewidth=1.8)
        left.axvline(SHARE, color=pictures.GRAY, linestyle=":", linewidth=1)
        left.set(xlabel="probability of the class", xlim=(0, 1), xticks=[0, 0.5, 1], ylim=(0, None))
        right.axvline(logit(SHARE), color=pictures.GRAY, linestyle=":", linewidth=1)
        right.axhline(0, color=pictures.GRAY, linewidth=0.6)
        right.set(xlabel="logit of the class", xlim=(-5, 5))


def drawings() -> dict[str, tuple[Callable[[Path], None], str]]:
    """Return what draws each measure, and what is said of the picture, by its public name."""
    found: dict[str, tuple[Callable[[Path], None], str]] = {}
    for name in metrics():
        found[f"metrics.{name}"] = partial(draw_metric, name), METRIC_CAPTION
    for name in losses():
        found[f"losses.{name}"] = partial(draw_loss, name), LOSS_CAPTION
    return found
