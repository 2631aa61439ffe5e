"""Draw pictures of metrics for over- and under-confident predictions, and pictures of losses.

Metrics are public functions of ``bayescal.metrics`` that compare probabilities with labels (or with
other probabilities). They are drawn on rows with known true probabilities of three classes, or of
three labels for multi-label metrics. Losses are functions of ``bayescal.losses`` that take logits.
They are drawn on ten equal binary rows.
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

# Fields of the result to draw, by the annotated return type of a metric. An empty name stands for
# the result as a number.
FIELDS: dict[str, tuple[str, ...]] = {
    "float": ("",),
    "CalibrationTest": ("p_value",),
    "Corp": ("miscalibration", "discrimination"),
    "DecisionCost": ("predicted", "realized"),
    "MulticalibrationError": ("error",),
}
# Metrics of binary rows: they are drawn for the first class against the other two.
BINARY_METRICS = "average_precision", "roc_auc"
SHARPNESS = np.geomspace(1 / 3, 3, 9)
ROWS = (30, 100, 300, 1000)
SAMPLES = 20
COSTS = [[0, 1, 0.3], [1, 0, 0.3], [1, 1, 0.3]]  # decisions: class 0, class 1, neither
METRIC_CAPTION = (
    "Left: 300 rows of three classes, or labels, from under-confident to over-confident "
    "predictions; at 1 (dotted) the predictions are the true probabilities. Right: the true "
    "probabilities, by the number of rows. Lines are means over "
    f"{SAMPLES} samples; bands contain 90 % of the samples."
)
LOGITS = np.linspace(-5, 5, 200)  # without 0, where the classes tie
SHARE = 0.7
LOSS_CAPTION = (
    "Left: the loss of ten equal rows, by the predicted probability of a class. All ten rows "
    "(blue) or seven of them (orange; dotted: 0.7) belong to the class. Right: the derivative of "
    "the loss with respect to the logit of the class."
)


def metrics() -> list[str]:
    """List the metrics that take probabilities first and have a return type in ``FIELDS``."""
    return [name for name in _functions(bc.metrics, "probs") if _return_type(name) in FIELDS]


def losses() -> list[str]:
    """List the losses, which take logits as their first argument."""
    return _functions(bc.losses, "logits")


def _functions(module: Any, first: str) -> list[str]:
    """List the public functions of a module whose first parameter has the name ``first``."""
    functions = {n: f for n, f in vars(module).items() if n[0] != "_" and inspect.isfunction(f)}
    return sorted(
        n for n, f in functions.items() if next(iter(inspect.signature(f).parameters)) == first
    )


def _return_type(name: str) -> str:
    return str(inspect.signature(getattr(bc.metrics, name)).return_annotation)


def value(name: str, rows: int, sharpness: float, seed: int) -> list[float]:
    """Compute the drawn fields of a metric on a random sample.

    The logits of three classes, or of three labels, are normal with standard deviation 1.5. Labels
    follow the softmax or the sigmoid of these logits. Predictions are probabilities of the logits
    times ``sharpness``, so that values above 1 are over-confident.
    """
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=(rows, 3))
    if name in METRICS and METRICS[name].shapes == ("multilabel",):
        truth, probs = expit(z), expit(sharpness * z)
        y = (rng.uniform(size=z.shape) < truth).astype(int)
    else:
        truth, probs = softmax(z, axis=1), softmax(sharpness * z, axis=1)
        y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    if name in BINARY_METRICS:
        probs, y = probs[:, 0], y == 0
    groups = rng.uniform(size=(rows, 2)) < 0.5
    options = {"costs": COSTS, "recalibrated": truth, "resamples": 200}
    function = getattr(bc.metrics, name)
    parameters = inspect.signature(function).parameters
    if name == "multicalibration_error":  # the groups of other metrics are clusters of rows
        options["groups"] = groups
    accepted = {key: option for key, option in options.items() if key in parameters}
    result = function(probs, truth if "true_probs" in parameters else y, **accepted)
    fields = FIELDS[_return_type(name)]
    return [float(getattr(result, field) if field else result) for field in fields]


def draw_metric(name: str, path: Path) -> None:
    """Draw a metric by the over-confidence of the predictions, and by the number of rows."""
    panels = (
        ("predicted / true log odds", SHARPNESS, [(300, s) for s in SHARPNESS], [1 / 3, 1, 3]),
        ("rows", ROWS, [(n, 1.0) for n in ROWS], ROWS),
    )
    with pictures.panels(path, 2) as axes:
        for ax, (label, x, settings, ticks) in zip(axes, panels, strict=True):
            results = np.array(
                [[value(name, *setting, seed) for seed in range(SAMPLES)] for setting in settings]
            )
            for values, color in zip(np.moveaxis(results, 2, 0), pictures.COLORS, strict=False):
                low, high = np.quantile(values, (0.05, 0.95), axis=1)
                ax.fill_between(x, low, high, color=color, alpha=0.25, linewidth=0)
                ax.plot(x, values.mean(axis=1), color=color, linewidth=1.8)
            ax.set(xscale="log", xticks=ticks, xlabel=label)
            ax.set_xticks([], minor=True)
            ax.set_xticklabels(["1/3", "1", "3"] if x is SHARPNESS else [f"{t:,}" for t in ticks])
        axes[0].axvline(1, color=pictures.GRAY, linestyle=":", linewidth=1)
        for side, field, color in zip(
            ("left", "right"), FIELDS[_return_type(name)], pictures.COLORS, strict=False
        ):
            axes[0].set_title(field.replace("_", " "), loc=side, color=color, fontsize=9)


def draw_loss(name: str, path: Path) -> None:
    """Draw a loss by the probability of a class, and its derivative by the logit of the class."""
    function = getattr(bc.losses, name)
    teacher = jnp.tile(jnp.array([logit(SHARE), 0.0]), (10, 1))
    options = {"teacher_logits": teacher, "smoothing": 0.1}
    parameters = inspect.signature(function).parameters
    accepted = {key: option for key, option in options.items() if key in parameters}

    def loss(z: Any, labels: Any) -> Any:
        return function(jnp.tile(jnp.stack([z, jnp.zeros_like(z)]), (10, 1)), labels, **accepted)

    with pictures.panels(path, 2) as (left, right):
        for share, color in zip((1.0, SHARE), pictures.COLORS, strict=True):
            labels = jnp.asarray(np.arange(10) >= round(10 * share), int)
            gradient = jax.value_and_grad(loss)
            value_and_slope: Callable[..., Any] = jax.jit(jax.vmap(gradient, (0, None)))
            values, slopes = value_and_slope(jnp.asarray(LOGITS), labels)
            left.plot(expit(LOGITS), values, color=color, linewidth=1.8)
            right.plot(LOGITS, slopes, color=color, linewidth=1.8)
        left.axvline(SHARE, color=pictures.GRAY, linestyle=":", linewidth=1)
        left.set(xlabel="probability of the class", xlim=(0, 1), xticks=[0, 0.5, 1], ylim=(0, None))
        right.axvline(logit(SHARE), color=pictures.GRAY, linestyle=":", linewidth=1)
        right.axhline(0, color=pictures.GRAY, linewidth=0.6)
        right.set(xlabel="logit of the class", xlim=(-5, 5))


def drawings() -> dict[str, tuple[Callable[[Path], None], str]]:
    """Map the public name of each metric and loss to a drawing function and a caption."""
    result: dict[str, tuple[Callable[[Path], None], str]] = {}
    for name in metrics():
        result[f"metrics.{name}"] = partial(draw_metric, name), METRIC_CAPTION
    for name in losses():
        result[f"losses.{name}"] = partial(draw_loss, name), LOSS_CAPTION
    return result
