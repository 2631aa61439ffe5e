"""Truncated log probabilities, as APIs return them, against full distributions."""

from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

import bayescal as bc

K, M, N = 200, 20, 400


def make_logprobs() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = 4 * rng.normal(size=(N, K))
    y = np.argmax(logits / 1.5 + rng.gumbel(size=logits.shape), axis=1)
    whole = log_softmax(logits, axis=1)
    indices = np.argsort(-whole, axis=1)[:, :M]
    return logits, y, indices, np.take_along_axis(whole, indices, axis=1)


def test_rest_is_that_of_the_whole_distribution() -> None:
    logits, y, indices, logprobs = make_logprobs()
    scores = bc.top_logprobs(indices, logprobs)
    others = log_softmax(logits, axis=1)
    np.put_along_axis(others, indices, -np.inf, axis=1)
    np.testing.assert_allclose(scores[2], logsumexp(others, axis=1), rtol=1e-6)
    fitted = bc.Temperature(inputs="top_logits", classes=K).fit(scores, y)
    shift = logsumexp(logits, axis=1)
    raw = np.take_along_axis(logits, indices, axis=1), logsumexp(others, axis=1) + shift
    same = bc.Temperature(inputs="top_logits", classes=K).fit((indices, *raw), y)
    assert fitted.temperature_ == pytest.approx(same.temperature_, rel=1e-6)
    whole = bc.Temperature(inputs="logits").fit(logits, y)
    assert fitted.temperature_ == pytest.approx(whole.temperature_, rel=0.1)


def test_the_log_sum_exp_of_all_is_refused() -> None:
    _, y, indices, logprobs = make_logprobs()
    with pytest.raises(ValueError, match="top_logprobs"):
        bc.Temperature(inputs="top_logits", classes=K).fit((indices, logprobs, np.zeros(N)), y)


def test_rounded_probabilities_leave_a_little() -> None:
    rounded = np.log(np.array([[0.7, 0.3], [0.5, 0.5005]]))
    _, _, rest = bc.top_logprobs([[0, 1], [1, 2]], rounded)
    assert np.isfinite(rest).all() and (rest < -30).all()
    _, _, rest = bc.top_logprobs([[0, 1]], rounded[:1].astype("f4"))
    assert -17 < rest[0] < -14


WRONG: list[tuple[Any, Any, str]] = [
    ([[0, 1]], [[0.5, -1.0]], "must not be positive"),
    ([[0, 1]], [[-0.1, -0.2]], "sum to at most one, got 1.72"),
    ([[0, 1]], [[-0.1, np.nan]], "finite"),
    ([0, 1], [-0.1, -3.0], "shape"),
    ([[0, 1, 2]], [[-0.1, -3.0]], "shape"),
]


@pytest.mark.parametrize(("indices", "logprobs", "message"), WRONG)
def test_what_is_no_distribution(indices: Any, logprobs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bc.top_logprobs(indices, logprobs)
