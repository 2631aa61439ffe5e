"""Metrics as functions of sums: NumPy and JAX, replicates and standard errors."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayescal import metrics
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.predictions import Predictions, Reading
from bayescal.metrics.registry import METRICS, streamed
from bayescal.metrics.sums import (
    Metric,
    Piece,
    SumMetric,
    _add,
    _add_many,
    collect,
    collect_many,
    compute,
    standard_error,
)

#: Metric name, number of columns and options.
CASES: list[tuple[str, int | None, dict[str, Any]]] = [
    *(
        (name, None, {})
        for name in METRICS
        if METRICS[name].make and name[:5] not in ("multi", "hammi")
    ),
    ("log_loss", 4, {}),
    ("brier_score", 4, {}),
    ("accuracy", 4, {}),
    ("loss_gap", 4, {"functions": 7, "decisions": 3}),
    ("smooth_ece", 4, {"bandwidth": 0.05}),
    ("kde_ece", 4, {"kernel": "gaussian", "norm": 2}),
    *(("ece", 4, {"kind": kind, "bins": 4}) for kind in ("classwise", "top_k_confidence")),
    ("ece", 4, {"kind": "top_k_label", "binning": "equal_mass", "bins": 3, "k": 2}),
    ("ece", 4, {"kind": "classwise", "binning": "equal_mass", "norm": 2}),
    ("ece", None, {"norm": np.inf}),
    ("debiased_ece", 4, {"kind": "classwise", "binning": "equal_width", "bins": 4}),
    ("debiased_ece", 4, {"norm": 1, "bins": 4, "binning": "equal_width"}),
    *(("ecce", 4, {"events": events, "kind": "range"}) for events in ("confidence", "top_k_label")),
    ("multilabel_ecce", 3, {"average": "weighted"}),
    ("multilabel_ece", 3, {"average": "weighted"}),
    ("multilabel_ece", 3, {"binning": "equal_mass"}),
    ("hamming_loss", 3, {}),
]
every_case = pytest.mark.parametrize(
    ("name", "columns", "options"), CASES, ids=lambda value: str(value).replace(" ", "")
)


def make_predictions(columns: int | None, many: bool = False, n: int = 60) -> Predictions:
    rng = np.random.default_rng(n)
    if many:
        probs = rng.random((n, columns or 1))
        y = (rng.random(probs.shape) < probs**2).astype(int)
        return as_predictions(probs, y, reading=Reading(multilabel=True))
    probs = rng.dirichlet(np.full(columns or 2, 0.6), size=n)
    y = (probs.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    if columns is None:
        probs = probs[:, 1].round(2)
        y = 1 - y
    return as_predictions(probs, y)


def build(name: str, columns: int | None, options: dict[str, Any]) -> tuple[Metric, Predictions]:
    entry = METRICS[name]
    assert entry.make is not None
    many = "multilabel" in entry.shapes
    return entry.make(columns, **options), make_predictions(columns, many)


@every_case
def test_jax_under_vmap_equals_numpy(
    name: str, columns: int | None, options: dict, x64: None
) -> None:
    metric, data = build(name, columns, options)
    rng = np.random.default_rng(0)
    weights = np.stack([np.ones(60), rng.integers(0, 4, 60), rng.exponential(size=60)])
    arrays = [jnp.asarray(a) for a in (data.probs, data.y)]

    def one(weight: jax.Array) -> jax.Array:
        return compute(metric, Predictions(*arrays, weight, data.eps), jnp)

    result = jax.jit(jax.vmap(one))(jnp.asarray(weights))
    reading = Reading(multilabel="multilabel" in METRICS[name].shapes)
    checked = (as_predictions(data.probs, data.y, weight, reading) for weight in weights)
    expected = [compute(metric, predictions) for predictions in checked]
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-11)


def test_maps_over_methods_and_data_sets(x64: None) -> None:
    rng = np.random.default_rng(1)
    probs = rng.random((3, 2, 40))
    y = rng.integers(0, 2, (2, 40))
    metric = METRICS["ece"].make(None, bins=5)  # type: ignore[misc]

    def one(p: jax.Array, labels: jax.Array) -> jax.Array:
        return compute(metric, Predictions(p, labels, jnp.ones(40), 0.0), jnp)

    result = jax.jit(jax.vmap(jax.vmap(one), (0, None)))(jnp.asarray(probs), jnp.asarray(y))
    expected = [[metrics.ece(p, t, bins=5) for p, t in zip(m, y, strict=True)] for m in probs]
    np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "columns", "options"), [case for case in CASES if METRICS[case[0]].streams]
)
def test_replicates_are_weighted_sums(name: str, columns: int | None, options: dict) -> None:
    metric, data = build(name, columns, options)
    if not isinstance(metric, SumMetric):
        metric = streamed(name, columns, options)
    counts = np.random.default_rng(2).multinomial(60, np.full(60, 1 / 60), size=5)
    replicates = collect_many(metric, data, counts.T.astype(float))
    for sums, repeats in zip(replicates, counts, strict=True):
        rows = np.repeat(np.arange(60), repeats)
        repeated = Predictions(data.probs[rows], data.y[rows], np.ones(60), data.eps)
        np.testing.assert_allclose(sums, collect(metric, repeated), atol=1e-9)


def test_standard_error_of_means_is_the_textbook_one() -> None:
    data = make_predictions(4, n=500)
    losses = -np.log(data.probs[np.arange(500), data.y])
    metric = streamed("log_loss", 4, {})
    expected = losses.std() / np.sqrt(500)
    assert standard_error(metric, data)[0] == pytest.approx(expected, rel=1e-6)
    counts = data._replace(weights=np.full(500, 2.0))
    assert standard_error(metric, counts)[0] == pytest.approx(expected / np.sqrt(2), rel=1e-6)
    shares = data._replace(weights=np.full(500, 0.3))
    assert standard_error(metric, shares)[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ece", {"bins": 5}),
        ("ece", {"bins": 5, "norm": 2}),
        ("debiased_ece", {"bins": 5, "binning": "equal_width"}),
        pytest.param("smooth_ece", {}, marks=pytest.mark.slow),
        pytest.param("kde_ece", {"bandwidth": 0.1}, marks=pytest.mark.slow),
    ],
)
def test_standard_error_is_the_deviation_over_samples(name: str, options: dict) -> None:
    """Check a badly calibrated model, for which the error is smooth in the sums."""
    metric = streamed(name, None, options)
    rng = np.random.default_rng(3)
    n, values = 2000, []

    def sample() -> Predictions:
        probs = rng.random(n)
        return as_predictions(probs, (rng.random(n) < 0.2 + 0.3 * probs**2).astype(int))

    for _ in range(300):
        values.append(compute(metric, sample()))
    expected = np.std(values)
    # The deviation of 300 values has a relative error of 1 / sqrt(600), or 4 %.
    assert standard_error(metric, sample())[0] == pytest.approx(expected, rel=0.16)


@pytest.mark.parametrize("name", ["log_loss", "ece"])
def test_blocks_do_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metric, data = streamed(name, 4, {}), make_predictions(4, n=1000)
    whole = collect(metric, data)
    monkeypatch.setattr("bayescal.metrics.sums._BLOCK", 100)
    np.testing.assert_allclose(collect(metric, data), whole, rtol=1e-13)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (None, None),
        (None, (30,)),
        (..., (30, 3)),
        ((30,), None),
        ((30,), (30,)),
        ((30, 3), None),
        ((30, 3), (30, 1)),
        ((30, 3), (30, 3)),
    ],
)
def test_sums_of_many_weights_are_those_of_each(cell: Any, value: Any) -> None:
    rng = np.random.default_rng(0)
    values = None if value is None else rng.normal(size=value)
    cell = rng.integers(0, 3, cell) if isinstance(cell, tuple) else cell
    piece, weights = Piece(cell, values), rng.integers(0, 3, (30, 4)).astype(float)
    sums, separate = np.zeros((3, 4)), np.zeros((4, 3))
    _add_many(sums, piece, weights)
    for row, column in zip(separate, weights.T, strict=True):
        _add(row, piece, column)
    np.testing.assert_allclose(sums, separate.T, atol=1e-12)
    # By hand: sum the row weights over all pairs of cell and number.
    by_hand = np.zeros((3, 4))
    for i in range(30):
        factors = np.ones(1) if values is None else np.atleast_1d(values[i])
        cells = np.arange(3) if cell is ... else np.atleast_1d(0 if cell is None else cell[i])
        for c, v in np.broadcast(cells, factors):
            by_hand[c] += v * weights[i]
    np.testing.assert_allclose(sums, by_hand, atol=1e-12)


def test_no_metric_is_an_error() -> None:
    function: Callable = metrics.ece
    with pytest.raises(TypeError, match="no such kind of metric: function"):
        compute(function, make_predictions(None))  # type: ignore[arg-type]
