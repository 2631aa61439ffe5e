"""Metrics of probabilities on an accelerator, emulated with JAX arrays, against the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayescal as bc
from bayescal.data import predictions as inputs
from bayescal.data.blocks.predictions import as_predictions
from bayescal.metrics import sums
from bayescal.metrics.calibration import mass as _mass
from bayescal.metrics.registry import METRICS
from bayescal.metrics.sums import SumMetric

BY_SUMS: list[tuple[str, dict[str, Any]]] = [
    ("log_loss", {}),
    ("brier_score", {}),
    ("accuracy", {}),
    ("ece", {}),
    ("ece", {"kind": "classwise", "norm": 2}),
    ("ece", {"kind": "top_label"}),
    ("debiased_ece", {"binning": "equal_width"}),
]
BY_SORTING: list[tuple[str, dict[str, Any]]] = [
    ("ece", {"binning": "equal_mass"}),
    ("ece", {"binning": "equal_mass", "kind": "classwise", "norm": 2}),
    ("ece", {"binning": "equal_mass", "kind": "top_label", "bins": 7}),
    ("debiased_ece", {}),
    ("ecce", {}),
    ("ecce", {"kind": "range"}),
]


@pytest.fixture(autouse=True)
def jax_as_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "accelerated", lambda x: x if isinstance(x, jax.Array) else None)


def data(k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    p = rng.dirichlet(np.ones(k), 3000).astype(np.float32)
    y = (rng.random((3000, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, k - 1)
    return p, y, rng.integers(0, 3, 3000).astype(float)


@pytest.mark.parametrize(
    ("k", "name", "options"),
    [*((5, *case) for case in BY_SUMS + BY_SORTING), (2, *BY_SUMS[0]), (2, *BY_SORTING[0])],
)
def test_values_are_those_of_the_host(k: int, name: str, options: dict[str, Any]) -> None:
    p, y, w = data(k)
    metric = getattr(bc.metrics, name)
    rows = [p] if k > 2 else [p, p[:, 1]]
    for probs in rows:
        for weights in (w,) if k == 2 else (None, w / 3):
            expected = metric(probs, y, weights=weights, **options)
            result = metric(jnp.asarray(probs), y, weights=weights, **options)
            assert isinstance(result, float)
            assert result == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_only_sums_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    p, y, _ = data(5)
    real, largest = np.asarray, 0

    def spy(value: Any, *args: Any, **options: Any) -> Any:
        nonlocal largest
        if isinstance(value, jax.Array):
            largest = max(largest, value.size)
        return real(value, *args, **options)

    given = jnp.asarray(p)
    monkeypatch.setattr(np, "asarray", spy)
    for name, options in BY_SUMS + BY_SORTING:
        getattr(bc.metrics, name)(given, y, **options)
    assert 0 < largest < 1000


def test_ties_and_cases_without_weight() -> None:
    """Check that bins share the ties across a border, also where some rows have no weight."""
    p, y, w = data(2)
    p = p.round(1)
    p[:, 0] = 1 - p[:, 1]
    for weights in (w, w / 3):
        options: dict[str, Any] = {"binning": "equal_mass", "bins": 7, "weights": weights}
        expected = bc.metrics.ece(p[:, 1], y, **options)
        assert bc.metrics.ece(jnp.asarray(p[:, 1]), y, **options) == pytest.approx(expected)


def test_weights_of_parts_are_not_scaled() -> None:
    p, y, w = data(5)
    w *= 2.0**-70
    for weights in (w, w[:0], np.zeros(len(w))):
        some = slice(len(weights))
        reading = inputs.Reading(5, whole=False)
        host, device = (
            as_predictions(convert(p[some]), y[some], weights, reading, on_device=use_device)
            for convert, use_device in ((np.asarray, False), (jnp.asarray, True))
        )
        assert isinstance(device.probs, jax.Array) == (len(weights) > 0)
        totals = [float(np.asarray(result.weights).sum()) for result in (host, device)]
        assert totals == [weights.sum()] * 2
    with pytest.raises(ValueError, match="weights must not be negative"):
        as_predictions(jnp.asarray(p), y, -w, reading, on_device=True)


def test_what_is_wrong_is_said_as_on_the_host() -> None:
    p, y, _ = data(5)
    bad, high = p.copy(), p.copy()
    bad[7, 1], high[8, 2] = np.nan, 1.5
    for wrong, message in ((bad, "finite"), (high, r"\[0, 1\]"), (p / 2, "sum to one")):
        with pytest.raises(ValueError, match=message):
            bc.metrics.log_loss(jnp.asarray(wrong), y)
    with pytest.raises(ValueError, match="to match probs"):
        bc.metrics.log_loss(jnp.asarray(p), y[1:])
    with pytest.raises(ValueError, match="y must be in"):
        bc.metrics.log_loss(jnp.asarray(p), y + 1)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_programs_are_lowered_for_accelerators(platform: str) -> None:
    p, y, w = data(5)
    checked = as_predictions(jnp.asarray(p), y, w, on_device=True)
    assert isinstance(checked.probs, jax.Array)
    for name, options in BY_SUMS:
        make = METRICS[name].make
        assert make is not None
        metric = make(5, **options)
        assert isinstance(metric, SumMetric)
        with jax.enable_x64(True):
            program = jax.export.export(
                jax.jit(lambda data, metric=metric: sums.collect_on_device(metric, data)),
                platforms=[platform],
            )(checked)
        assert program.platforms == (platform,)
    with jax.enable_x64(True):
        shape = jax.ShapeDtypeStruct((3000,), float)
        whole = jax.ShapeDtypeStruct((), bool)
        program = jax.export.export(_mass._device_mass_sums, platforms=[platform])(
            shape, shape, shape, 15, whole
        )
    assert program.platforms == (platform,)


@pytest.mark.parametrize("k", [2, 3])
def test_logits_and_labels_of_any_values(k: int) -> None:
    p, codes, weights = data(k)
    logits = np.log(p) + codes[:, None] if k > 2 else np.log(p[:, 1] / p[:, 0])
    logits = logits.astype(np.float32)
    labels = np.array(["low", "high", "higher"])[codes]
    how: dict[str, Any] = {"classes": ["low", "high", "higher"][:k], "inputs": "logits"}
    for name in ("log_loss", "debiased_ece"):
        metric = METRICS[name].function
        result = metric(jnp.asarray(logits), labels, weights=weights, **how)
        expected = metric(logits, codes, weights=weights, inputs="logits")
        assert result == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ValueError, match="probs must be finite, got infinity"):
        bc.metrics.log_loss(jnp.asarray(logits).at[3].set(jnp.inf), labels, **how)
