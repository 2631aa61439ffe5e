"""Masked, sparse or low-precision arrays: valid results or clear errors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.naive_bayes import GaussianNB

import bayescal as bc
from bayescal import metrics
from tests.calibrators.cases import all_calibrators

Array = np.ndarray
DEFAULTS: list[Any] = [cls() for cls in all_calibrators()]
SEVERAL = [bc.Temperature(), bc.Vector(), bc.Dirichlet(), bc.OneVsRest(), bc.Auto()]
BINARY = [bc.Beta(), bc.Spline(), bc.Isotonic(), bc.Auto()]


def name(value: Any) -> str:
    return type(value).__name__


def make_probs(k: int = 2, n: int = 60) -> tuple[Array, Array]:
    """Draw probabilities (n,) or (n, k), and labels that include every class."""
    rng = np.random.default_rng(k)
    p = rng.dirichlet(np.full(k, 0.7), n)
    y = (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, k - 1)
    y[:k] = np.arange(k)
    return (p[:, 1] if k == 2 else p), y


@pytest.mark.parametrize("calibrator", DEFAULTS, ids=name)
def test_masked_arrays_are_refused(calibrator: Any) -> None:
    p, y = make_probs(2 if calibrator.binary else 3)
    mask = np.arange(len(p)) < 3
    wide = np.broadcast_to(mask.reshape(-1, *[1] * (p.ndim - 1)), p.shape)
    hidden = np.ma.array(p, mask=wide), np.ma.array(y, mask=mask)
    for parameter, arguments in (
        ("scores", (hidden[0], y)),
        ("y", (p, hidden[1])),
        ("sample_weight", (p, y, np.ma.array(np.ones(len(y)), mask=mask))),
    ):
        with pytest.raises(
            ValueError, match=rf"{parameter} must not be masked, got \d+ masked values"
        ):
            calibrator.fit(*arguments)


def test_masked_arrays_are_refused_by_metrics_and_classifiers() -> None:
    p, y = make_probs()
    hidden = np.ma.array(p, mask=p > 0.5)
    labels = np.ma.array(y, mask=p > 0.5)
    for probs, truth, weights in ((hidden, y, None), (p, labels, None), (p, y, hidden)):
        with pytest.raises(ValueError, match="must not be masked"):
            metrics.log_loss(probs, truth, weights=weights)
    with pytest.raises(ValueError, match="y must not be masked"):
        bc.CalibratedClassifier(GaussianNB()).fit(p[:, None], labels)
    whole = np.ma.array(p, mask=False)
    assert metrics.log_loss(whole, y) == metrics.log_loss(p, y)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
@pytest.mark.parametrize("calibrator", SEVERAL, ids=name)
def test_probabilities_of_half_precision(calibrator: Any, dtype: Any) -> None:
    """Check that rounded numbers are read as float64 and rows divided by their sums."""
    p, y = make_probs(4)
    rounded = p.astype(dtype)
    assert np.abs(rounded.astype(float).sum(axis=1) - 1).max() > 1e-4
    exact = rounded.astype(float) / rounded.astype(float).sum(axis=1, keepdims=True)
    expected = calibrator.fit(exact, y).predict_proba(exact)
    result = calibrator.fit(rounded, y).predict_proba(rounded)
    np.testing.assert_allclose(result, expected, atol=1e-9)
    with pytest.raises(ValueError, match="rows that sum to one"):
        calibrator.fit((p * 0.9).astype(dtype), y)


def test_many_classes_of_half_precision() -> None:
    p, y = make_probs(100, 300)
    rounded = p.astype(jnp.bfloat16)
    assert np.abs(rounded.astype(float).sum(axis=1) - 1).max() > 1e-3
    probs = bc.Temperature().fit(rounded, y).predict_proba(rounded)
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)


MISSING: list[Any] = [
    [0, 1, None] * 20,
    np.array([0.0, 1.0, np.nan] * 20),
    np.array(["a", "b", np.nan] * 20, object),
    pd.array([0, 1, None] * 20, dtype="Int64"),
]


NULLABLE: dict[str, Any] = {
    "pandas": lambda values: pd.Series(values, dtype="Int64"),
    "Arrow in pandas": lambda values: pd.Series(values, dtype="int64[pyarrow]"),
    "polars": pl.Series,
    "Arrow": pa.array,
    "chunks": lambda values: pa.chunked_array([values[:10], values[10:]]),
}


@pytest.mark.parametrize("make", NULLABLE.values(), ids=NULLABLE)
def test_nullable_integers_stay_integers_if_some_are_missing(make: Any) -> None:
    p, y = make_probs()
    labels, weights = 2**53 + 1 + 2 * y, np.arange(len(y)) % 3 > 0
    given = make([int(label) if w else None for label, w in zip(labels, weights, strict=True)])
    expected = bc.Beta().fit(p[weights], labels[weights])
    fitted = bc.Beta().fit(p, given, weights)
    assert fitted.classes_.tolist() == [2**53 + 1, 2**53 + 3]
    assert fitted.classes_.dtype == fitted.predict(p).dtype == np.int64
    np.testing.assert_array_equal(fitted.predict_proba(p), expected.predict_proba(p))
    assert metrics.log_loss(p, make([0] * 20 + [None] * 40), weights=np.arange(60) < 20) > 0
    if make in (pa.array, NULLABLE["chunks"]):
        table = pa.table({"p": p, "y": given, "w": weights.astype(float)})
        in_blocks = bc.Beta().fit(table, "y", "w")
        assert in_blocks.classes_.tolist() == fitted.classes_.tolist()
        np.testing.assert_allclose(
            in_blocks.predict_proba(pd.DataFrame({"p": p})), fitted.predict_proba(p), atol=1e-9
        )


@pytest.mark.parametrize("labels", MISSING, ids=["None", "NaN", "text", "nullable"])
@pytest.mark.parametrize("calibrator", [*BINARY, bc.CalibratedClassifier(GaussianNB())], ids=name)
def test_missing_labels_are_named_with_their_row(calibrator: Any, labels: Any) -> None:
    p, _ = make_probs()
    with pytest.raises(ValueError, match=r"y must not have missing labels, got .* in row 2 \(20"):
        calibrator.fit(p[:, None], labels)


@pytest.mark.parametrize("calibrator", [*BINARY, bc.CalibratedClassifier(GaussianNB())], ids=name)
def test_text_among_other_labels_is_an_error(calibrator: Any) -> None:
    p, _ = make_probs()
    with pytest.raises(ValueError, match="y must not have missing labels, got NaN in row 2"):
        calibrator.fit(p[:, None], ["a", "b", np.nan] * 20)
    for labels in (["a", 1] * 30, np.array([b"a", "a"] * 30, object)):
        with pytest.raises(TypeError, match="y must hold labels of one kind, got (int|bytes) and"):
            calibrator.fit(p[:, None], labels)


@pytest.mark.parametrize("calibrator", BINARY, ids=name)
def test_weights_of_any_size(calibrator: Any) -> None:
    """Check that fits do not change with weights above 1e50 or below 1e-12, for any prior."""
    p, y = make_probs()
    ones = np.ones(len(y))
    for one, other in ((1e300, 1e30), (1e-300, 1e-12)):
        parts = [calibrator.fit(p, y, size * ones).predict_proba(p) for size in (one, other)]
        assert np.isfinite(parts[0]).all()
        np.testing.assert_allclose(parts[0], parts[1], atol=1e-6)


def test_metrics_of_weights_of_any_size() -> None:
    p, y = make_probs(3)
    ones = np.ones(len(y))
    for size, other in ((1e300, 1e20), (1e-300, 1e-10)):
        for metric in (metrics.skce, metrics.ece, metrics.log_loss, metrics.brier_score):
            expected = metric(p, y, weights=other * ones)
            assert metric(p, y, weights=size * ones) == pytest.approx(expected, rel=1e-9)
