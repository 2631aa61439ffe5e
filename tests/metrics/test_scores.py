"""Log loss, Brier score and accuracy against scikit-learn and by hand."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from scipy.special import expit

import bayescal as bc
from bayescal import metrics


def predictions(classes: int, n: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(classes)
    probs = rng.dirichlet(np.full(classes, 0.5), size=n)
    y = rng.integers(0, classes, size=n)
    return (probs[:, 1] if classes == 2 else probs), y, rng.exponential(size=n)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_scores_equal_scikit_learn(classes: int, weighted: bool) -> None:
    probs, y, weights = predictions(classes)
    chosen = weights if weighted else None
    reference = {"sample_weight": chosen}
    expected = sklearn.metrics.log_loss(y, probs, labels=range(classes), **reference)
    assert metrics.log_loss(probs, y, weights=chosen) == pytest.approx(expected, rel=1e-12)
    expected = sklearn.metrics.brier_score_loss(y, probs, labels=range(classes), **reference)
    assert metrics.brier_score(probs, y, weights=chosen) == pytest.approx(expected, rel=1e-12)
    decided = probs.argmax(axis=1) if classes > 2 else probs > 0.5
    expected = sklearn.metrics.accuracy_score(y, decided, **reference)
    assert metrics.accuracy(probs, y, weights=chosen) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, bool, jnp.bfloat16])
def test_log_loss_clips_as_scikit_learn_for_every_type(dtype: Any) -> None:
    probs, y = np.array([0.0, 1.0, 1.0]), np.array([1, 0, 1])
    expected = sklearn.metrics.log_loss(y, probs)
    assert metrics.log_loss(probs.astype(dtype), y) == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx(-2 / 3 * math.log(2.0**-52), rel=1e-6)


def test_log_loss_clips_where_told() -> None:
    assert metrics.log_loss([0.0], [1], eps=0.01) == pytest.approx(-math.log(0.01), rel=1e-14)
    assert metrics.log_loss([[0.0, 1.0]], [0], eps=0.01) == pytest.approx(
        -math.log(0.01), rel=1e-14
    )
    assert metrics.log_loss([0.0], [1], eps=0) == math.inf
    assert metrics.log_loss([0.0, 0.5], [1, 1], weights=[0, 1], eps=0) == pytest.approx(math.log(2))


def test_perfect_predictions_cost_nothing() -> None:
    assert str(metrics.log_loss([0.0, 1.0], [0, 1], eps=0)) == "0.0"
    assert metrics.brier_score([0.0, 1.0], [0, 1]) == 0
    assert metrics.brier_score(np.eye(4), range(4)) == 0
    assert metrics.accuracy(np.eye(4), range(4)) == 1


def test_small_probabilities_keep_their_precision() -> None:
    assert metrics.log_loss([1e-300], [1], eps=0) == pytest.approx(300 * math.log(10), rel=1e-14)
    assert metrics.log_loss([1e-12], [0]) == pytest.approx(1e-12, rel=1e-12)


def test_ties_go_to_the_lowest_class() -> None:
    assert metrics.accuracy([0.5, 0.5], [0, 1]) == 0.5
    assert metrics.accuracy([[0.4, 0.4, 0.2]], [0]) == 1
    assert metrics.accuracy([[0.4, 0.4, 0.2]], [1]) == 0


def test_sums_of_rows_are_judged_by_the_precision_of_bfloat16() -> None:
    probs = jnp.asarray([[0.3, 0.3, 0.4]], jnp.bfloat16)
    assert abs(float(np.asarray(probs, float).sum()) - 1) > 1e-3
    assert metrics.log_loss(probs, [0]) == pytest.approx(-math.log(float(probs[0, 0])), rel=1e-12)


@pytest.mark.parametrize(
    ("eps", "error"),
    [(-0.1, ValueError), (0.5, ValueError), (math.nan, ValueError), ("a", TypeError)],
)
def test_bad_eps_is_an_error(eps: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"eps must"):
        metrics.log_loss([0.5], [1], eps=eps)  # type: ignore[arg-type]


def test_columns_named_like_the_codes_are_matched() -> None:
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet([1, 1, 1], 50), rng.integers(0, 3, 50)
    frame = pd.DataFrame(p, columns=["0", "1", "2"])[["2", "0", "1"]]
    assert metrics.log_loss(frame, y) == metrics.log_loss(p, y)
    assert metrics.log_loss(pd.DataFrame(p[:, ::-1]), y) == metrics.log_loss(p[:, ::-1], y)
    with pytest.raises(ValueError, match="probs must have columns named like all of the classes"):
        metrics.log_loss(pd.DataFrame(p, columns=["1", "2", "3"]), y)
    many, present = pd.DataFrame(p, columns=list("abc")), pd.DataFrame(p > 0.4, columns=list("abc"))
    expected = metrics.hamming_loss(p, p > 0.4)
    assert metrics.hamming_loss(many[["c", "a", "b"]], present) == expected


def test_log_odds_without_clipping() -> None:
    """Check that z + log(1 + exp(-z)) keeps its digits where probabilities round to one."""
    z, y = np.array([100.0, -100.0, 3.0, 40.0]), np.array([0, 1, 1, 0])
    expected = np.logaddexp(0, np.where(y == 1, -z, z)).mean()
    result = metrics.log_loss(z, y, inputs="logits", eps=0)
    assert result == pytest.approx(expected, rel=1e-12)
    rows = np.stack([np.zeros(4), z], axis=1)
    assert result == metrics.log_loss(rows, y, inputs="logits", eps=0)
    parts = slice(2), slice(2, None)
    blocks = bc.Blocks(lambda: ((z[part], y[part]) for part in parts))
    assert metrics.log_loss(blocks, inputs="logits", eps=0) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="pass the column of the second class"):
        metrics.log_loss(pd.Series(z, name="0"), y, inputs="logits", eps=0)
    assert metrics.log_loss(z, y, inputs="logits") < 37


@pytest.mark.parametrize("form", ["log odds", "logits", "two columns"])
def test_log_losses_that_are_not_clipped_are_alike_everywhere(form: str) -> None:
    """Compare with log(1 + exp(-z)) for class 1, which is finite for any finite log odds z."""
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(0, 3, 40), rng.normal(0, 200, 40)])
    y, weights = rng.integers(0, 2, 80), rng.integers(1, 4, 80)
    given: np.ndarray = {
        "log odds": z,
        "logits": np.stack([1 - z / 2, 1 + z / 2], axis=1),
        "two columns": np.stack([expit(-z), expit(z)], axis=1),
    }[form]
    inputs: Any = "probs" if form == "two columns" else "logits"
    losses = np.logaddexp(0, np.where(y == 1, -z, z))
    expected = weights @ losses / weights.sum()
    assert expected > 40  # although 1 - p is zero for many rows
    how = {"eps": 0.0, "inputs": inputs}
    assert metrics.log_loss(given, y, weights=weights, **how) == pytest.approx(expected)
    error = np.sqrt(np.cov(losses, fweights=weights) / weights.sum())
    blocks = bc.Blocks([(given[:50], y[:50], weights[:50]), (given[50:], y[50:], weights[50:])])
    for data, row_weights in (((given, y), weights), ((blocks,), None)):
        result = metrics.interval("log_loss", *data, weights=row_weights, **how)
        assert (result.value, result.standard_error) == pytest.approx((expected, error))
        chosen = {"unclipped": ("log_loss", {"eps": 0}), "Brier score": ("brier_score", {})}
        report = metrics.report(*data, weights=row_weights, metrics=chosen, inputs=inputs)
        assert list(report.intervals["model"]) == list(chosen)
        assert report.intervals["model"]["unclipped"] == result
        only = metrics.report(
            *data, weights=row_weights, metrics={"x": chosen["unclipped"]}, inputs=inputs
        )
        assert only.intervals["model"]["x"] == result
    gap = metrics.difference("log_loss", given, given, y, **how)
    assert (gap.value, gap.standard_error) == (0, 0)
    columns = 2 if given.ndim == 2 else None
    total = metrics.Accumulator([("nll", {"eps": 0}), "brier_score"], columns, inputs)
    for part in (slice(50), slice(50, None)):
        total.add(given[part], y[part], weights[part])
    assert total.result() == pytest.approx(
        {
            "nll": expected,
            "brier_score": metrics.brier_score(given, y, weights=weights, inputs=inputs),
        }
    )
    drawn = metrics.bootstrap("log_loss", given, y, replicates=50, **how)
    assert np.isfinite(drawn).all()
