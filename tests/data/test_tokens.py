"""Logits of tokens as rows: which tokens count, and invalid input."""

from __future__ import annotations

from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

import bayescal as bc

Array = np.ndarray


def make_tokens(k: int = 4) -> tuple[Array, Array, Array]:
    """Return logits (3, 5, k) of sentences, labels (some of them -100), and a mask."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, k, (3, 5))
    labels[0, :2] = labels[2, 4] = -100
    mask = np.ones((3, 5), int)
    mask[1, 3:] = 0
    return rng.normal(size=(3, 5, k)), labels, mask


def by_loop(logits: Array, labels: Array, mask: Array, shift: bool) -> tuple[list[Array], list]:
    rows, y = [], []
    for sentence in range(labels.shape[0]):
        for token in range(labels.shape[1] - shift):
            label = labels[sentence, token + shift]
            if label != -100 and mask[sentence, token + shift]:
                rows.append(logits[sentence, token])
                y.append(label)
    return rows, y


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("library", [np, jnp, array_api_strict])
def test_what_counts(shift: bool, library: Any) -> None:
    logits, labels, mask = make_tokens()
    expected = by_loop(logits.astype(np.float32), labels, mask, shift)
    given = library.asarray(logits, dtype=library.float32)
    rows, y = bc.tokens(given, library.asarray(labels), library.asarray(mask) > 0, shift=shift)
    assert isinstance(rows, type(given))
    assert isinstance(y, type(given))
    np.testing.assert_array_equal(np.asarray(rows), np.stack(expected[0]))
    assert np.asarray(y).tolist() == expected[1]
    again, labels_again = bc.tokens(given, labels.tolist(), mask, shift=shift)
    np.testing.assert_array_equal(np.asarray(again), np.asarray(rows))
    np.testing.assert_array_equal(np.asarray(labels_again), np.asarray(y))


def test_nothing_is_copied_where_all_count() -> None:
    logits, labels, _ = make_tokens()
    labels = np.abs(labels) % 4
    rows, y = bc.tokens(logits, labels, np.ones((3, 5), bool))
    assert np.shares_memory(rows, logits)
    assert np.shares_memory(y, labels)
    assert rows.shape == (15, 4)


def test_another_index_and_none() -> None:
    logits, labels = np.zeros((1, 3, 4)), np.array([[255, 1, 2]], np.uint8)
    assert bc.tokens(logits, labels, ignore_index=255)[1].tolist() == [1, 2]
    # As an 8-bit integer, -100 is 156, which is a class here.
    assert bc.tokens(logits, np.array([[156, 1, 2]], np.uint8))[1].tolist() == [156, 1, 2]
    assert (
        bc.tokens(logits, -100 * np.ones((1, 3), int), ignore_index=None)[1].tolist() == [-100] * 3
    )


def test_log_odds_and_truncated_logits() -> None:
    logits, labels, _ = make_tokens()
    odds, two = logits[..., 0], np.where(labels < 0, labels, labels % 2)
    rows, y = bc.tokens(odds, two)
    np.testing.assert_array_equal(rows, odds[labels != -100])
    indices = np.argsort(-logits, axis=-1)[..., :2]
    top = np.take_along_axis(logits, indices, axis=-1)
    rest = np.log(np.exp(logits).sum(axis=-1) - np.exp(top).sum(axis=-1))
    parts, y = bc.tokens((indices, top, rest), labels)
    assert [part.shape for part in parts] == [(12, 2), (12, 2), (12,)]
    fitted = bc.Temperature(inputs="top_logits", classes=4).fit(parts, y)
    assert fitted.predict_proba(parts).probs.shape == (12, 2)


def test_fits_and_metrics() -> None:
    """Check logits that are twice too large, with meaningless values in the padding."""
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 3, (40, 50, 6))
    labels = np.argmax(logits / 2 + rng.gumbel(size=logits.shape), axis=-1)
    length = rng.integers(10, 50, 40)
    mask = np.arange(50) < length[:, None]
    padded = np.where(mask, labels, -100)
    mixed = np.where(mask, labels, 5)
    fitted = bc.Temperature(inputs="logits").fit(*bc.tokens(logits, padded))
    by_mask = bc.Temperature(inputs="logits").fit(*bc.tokens(logits, mixed, mask))
    assert fitted.temperature_ == by_mask.temperature_ == pytest.approx(2, rel=0.1)
    log_probs = log_softmax(logits, axis=-1)
    picked = np.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
    result = bc.metrics.log_loss(*bc.tokens(logits, padded), inputs="logits")
    assert result == pytest.approx(-picked[mask].mean(), rel=1e-12)
    probs = fitted.as_function()(logits)
    assert probs.shape == logits.shape
    expected = bc.metrics.ece(probs[mask], labels[mask])
    assert bc.metrics.ece(*bc.tokens(probs, padded)) == expected
    blocks = bc.Blocks(
        lambda: (bc.tokens(logits[i : i + 8], padded[i : i + 8]) for i in range(0, 40, 8))
    )
    assert bc.metrics.ece(blocks, inputs="logits") == pytest.approx(
        bc.metrics.ece(*bc.tokens(logits, padded), inputs="logits"), rel=1e-12
    )


def test_tokens_that_are_no_rows_are_told_what_to_do() -> None:
    logits, labels, _ = make_tokens()
    with pytest.raises(ValueError, match=r"got \(3, 5, 4\); bayescal.tokens"):
        bc.Temperature(inputs="logits").fit(logits, labels)
    with pytest.raises(ValueError, match=r"got \(3, 5, 4\); bayescal.tokens"):
        bc.metrics.ece(logits, labels, inputs="logits")


def test_what_is_refused() -> None:
    logits, labels, mask = make_tokens()
    with pytest.raises(TypeError, match="labels must be integers, got float64"):
        bc.tokens(logits, labels.astype(float))
    with pytest.raises(TypeError, match="labels must be numeric"):
        bc.tokens(logits, [["a"] * 5] * 3)
    for wrong in (labels[:, :4], labels[0], labels[..., None, None]):
        with pytest.raises(ValueError, match="labels must have the shape of logits without"):
            bc.tokens(logits, wrong)
    with pytest.raises(ValueError, match="labels must have the shape of logits without"):
        bc.tokens(logits, 3)
    with pytest.raises(ValueError, match=r"mask must have the shape of labels \(3, 5\)"):
        bc.tokens(logits, labels, mask[:, :4])
    with pytest.raises(ValueError, match="mask must be 1 where"):
        bc.tokens(logits, labels, 2 * mask)
    # Additive attention masks are zero where a token counts.
    with pytest.raises(TypeError, match="mask must be of booleans or of integers"):
        bc.tokens(logits, labels, np.where(mask, 0.0, -np.inf))
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(bc.tokens)(jnp.asarray(logits), jnp.asarray(labels))
