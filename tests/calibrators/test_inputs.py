"""Conversion of scores for every kind of input and of calibrator, computed by hand."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax

import bayescal as bc
from bayescal.data import scores as _inputs

DOMAINS = ("probability", "log_odds", "real", "order")
#: Smallest normal number of float32.
FLOOR = 2.0**-126
Array = np.ndarray


def convert(scores: Array, inputs: Any, domain: Any, least: Array | None = None) -> Array:
    """Convert scores, without returning the stand-ins for zeros."""
    return _inputs.convert(scores, inputs, domain, least)[0]


def least_probabilities(scores: Array) -> Array:
    least = _inputs.convert(scores, "probs", "real")[1]
    assert least is not None
    return least


P = np.array([0.1, 0.5, 0.9, 1e-12])
Z = np.array([-3.0, 0.0, 2.5, 800.0])


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("domain", DOMAINS)
def test_one_column_of_probabilities(domain: Any, shape: tuple[int, ...]) -> None:
    expected = P if domain in ("probability", "order") else logit(P)
    result = convert(P.reshape(shape), "probs", domain)
    assert result.shape == (4,) and result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("domain", DOMAINS)
def test_one_column_of_log_odds(domain: Any, shape: tuple[int, ...]) -> None:
    expected = expit(Z) if domain == "probability" else Z
    result = convert(Z.reshape(shape), "logits", domain)
    assert result.shape == (4,) and result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=1e-14)


@pytest.mark.parametrize("domain", ["real", "order"])
def test_raw_scores_are_left_as_they_are(domain: Any) -> None:
    scores = np.array([[1e300], [-7.0], [5e-324]])
    np.testing.assert_array_equal(convert(scores, "scores", domain), scores[:, 0])
    assert convert(np.array([3, -5]), "scores", domain).tolist() == [3.0, -5.0]


@pytest.mark.parametrize("domain", DOMAINS)
def test_two_columns_are_those_of_the_classes(domain: Any) -> None:
    pair = np.stack([1 - P, P], axis=1)
    expected = P if domain in ("probability", "order") else logit(P)
    np.testing.assert_allclose(convert(pair, "probs", domain), expected, rtol=1e-14, atol=1e-14)
    logits = np.array([[1.0, 3.0], [2.0, -4.0], [1e5, 1e5 + 1]])
    z = np.array([2.0, -6.0, 1.0])
    expected = softmax(logits, axis=1)[:, 1] if domain == "probability" else z
    np.testing.assert_allclose(convert(logits, "logits", domain), expected, rtol=1e-12)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("domain", DOMAINS)
def test_no_difference_of_two_logits_is_too_large(domain: Any, sign: int) -> None:
    pair = sign * np.array([[-1.7e308, 1.7e308]])
    assert np.isfinite(convert(pair, "logits", domain)).all()


def test_small_probabilities_keep_their_own_logarithm() -> None:
    """Check that small probabilities are read from the column that has the digits."""
    tiny = np.array([1e-15, 1e-14, 3e-10])
    pair = np.stack([tiny, 1 - tiny], axis=1)
    z = np.log(tiny) - np.log1p(-tiny)
    np.testing.assert_allclose(convert(pair, "probs", "log_odds"), -z, rtol=1e-14)
    np.testing.assert_allclose(convert(pair[:, ::-1], "probs", "real"), z, rtol=1e-14)
    np.testing.assert_allclose(convert(tiny, "probs", "log_odds"), z, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, bool])
def test_zero_and_one_alone_stand_for_a_hundredth(dtype: Any) -> None:
    ends = np.array([0, 1], dtype)
    for domain in ("log_odds", "real"):
        np.testing.assert_allclose(convert(ends, "probs", domain), [-np.log(100), np.log(100)])
        pair = np.stack([ends[::-1], ends], axis=1)
        np.testing.assert_allclose(convert(pair, "probs", domain), [-np.log(100), np.log(100)])
    for domain in ("probability", "order"):
        assert convert(ends, "probs", domain).tolist() == [0.0, 1.0]


def test_nothing_else_moves_and_order_is_kept() -> None:
    p = np.random.default_rng(0).beta(0.1, 0.1, 1000)
    p = np.sort(np.concatenate([[0.0, 1e-300, 1e-37], p, [1 - 2**-53, 1.0]]))
    z = convert(p, "probs", "log_odds")
    assert np.isfinite(z).all() and (np.diff(z) >= 0).all()
    assert z[0] == z[1] == pytest.approx(np.log(FLOOR)) and z[2] > z[1]
    inside = (p > FLOOR) & (p < 1)
    np.testing.assert_allclose(z[inside], logit(p[inside]), rtol=1e-13, atol=1e-15)
    single = convert(p.astype(np.float32), "probs", "log_odds")
    assert single.dtype == np.float64 and (np.diff(single) >= 0).all()


def test_the_callers_array_stays_as_it_is() -> None:
    for inputs in ("probs", "logits", "scores"):
        scores = np.array([0.0, 0.25, 1.0])
        scores.flags.writeable = False
        for domain in ("real", "order"):
            result = convert(scores, inputs, domain)
            assert not np.shares_memory(result, scores)


@pytest.mark.parametrize(
    ("one", "least"),
    [
        # The smallest value of class 0 is one minus the largest of class 1.
        ([0.0, 0.004, 0.5, 0.9], 0.002),
        ([0.004, 0.5, 0.998, 1.0], 0.001),
        ([0.002, 0.5, 0.9, 1.0], 0.001),
        ([0.0, 0.004, 0.998, 1.0], 0.001),
        ([0.0, 0.5, 1.0], 0.01),
        ([0.0, 0.0], 0.01),
        ([1.0, 1.0], 0.01),
        ([0.0, 1e-300, 0.5], None),
        ([1e-300, 0.5], None),
    ],
)
def test_what_zero_stands_for(one: Any, least: Any) -> None:
    one = np.array(one)
    expected = np.full(2, FLOOR if least is None else least)
    np.testing.assert_allclose(least_probabilities(one), expected, rtol=1e-12)
    np.testing.assert_allclose(least_probabilities(one[:, None]), expected, rtol=1e-12)
    pair = np.stack([1 - one, one], axis=1)
    actual = least_probabilities(pair)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    # Reversed columns exchange the classes.
    np.testing.assert_allclose(least_probabilities(pair[:, ::-1]), expected[::-1], rtol=1e-12)
    z = np.log(np.maximum(one, expected[1])) - np.log(np.maximum(1 - one, expected[0]))
    for scores in (one, pair):
        np.testing.assert_allclose(convert(scores, "probs", "real", actual), z, rtol=1e-9)
        np.testing.assert_array_equal(convert(scores, "probs", "order", actual), one)


def test_what_zero_stands_for_in_single_precision() -> None:
    one = np.array([0.0, 1e-12, 0.5, 1.0], np.float32)
    np.testing.assert_allclose(least_probabilities(one), [5e-13, 5e-13], rtol=1e-6)


PAIR = np.array([[0.5, 0.5], [0.3, 0.8]])


@pytest.mark.parametrize(
    ("scores", "inputs", "domain", "message"),
    [
        ([0.1], "scores", "probability", "for this calibrator, got 'scores'; pass the"),
        ([0.1], "scores", "log_odds", "got 'scores'; .* raw scores of two to Logistic or Isotonic"),
        ([0.1, np.nan], "probs", "order", r"finite, got NaN at position 1 \(1 in all"),
        ([-np.inf], "logits", "real", "scores must be finite, got infinity at position 0"),
        (np.zeros((2, 3)), "probs", "order", r"\(n, 1\) or \(n, 2\) for two classes, got \(2"),
        (PAIR, "scores", "order", "got two columns; pass the score of the second class"),
        ([0.5, -0.25], "probs", "order", r"lie in \[0, 1\] for inputs='probs', got -0.25; pass"),
        ([0.5, 1.5], "probs", "log_odds", r"got 1.5; pass inputs='logits' .*, or use Auto"),
        (PAIR, "probs", "order", "sum to one, got a sum of 1.1 in row 1; pass inputs='logits'"),
    ],
)
def test_errors_say_what_is_wrong(scores: Any, inputs: Any, domain: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convert(np.asarray(scores), inputs, domain)


def test_sums_next_to_one_are_taken_for_rounding() -> None:
    pair = np.array([[0.4, 0.6009], [0.4, 0.5991]])
    np.testing.assert_allclose(convert(pair, "probs", "order"), [0.6009, 0.5991])


@pytest.mark.parametrize("domain", ["probability", "log_odds", "real", "order"])
def test_rounding_beyond_zero_and_one_is_clipped(domain: Any) -> None:
    inside = np.array([0.0, 0.3, 1.0])
    for beyond in ([-1e-17, 0.3, 1 + 6.7e-16], [-1e-6, 0.3, 1.000001]):
        np.testing.assert_array_equal(
            convert(np.array(beyond), "probs", domain), convert(inside, "probs", domain)
        )
    for wrong, shown in ((1.00001, "1.00001"), (1.0000012, "1.0000012"), (-2e-6, "-2e-06")):
        with pytest.raises(ValueError, match=f"got {re.escape(shown)};"):
            convert(np.array([0.5, wrong]), "probs", domain)


def test_rounding_beyond_zero_and_one_is_forgiven_by_all() -> None:
    """Check fits, predictions, functions of any library and metrics."""
    p, y = np.array([0.1, 0.4, 0.6, 0.2, 0.9, 1.0]), [0, 0, 1, 1, 0, 1]
    beyond = np.where(p == 1, 1 + 6.7e-16, p)
    given = beyond.copy()
    for make in (bc.Beta, bc.Isotonic, bc.Auto, bc.Spline):
        expected = make().fit(p, y).predict_proba(p)
        pairs = beyond, np.stack([1 - beyond, beyond], axis=1)
        for scores in pairs:
            fitted = make().fit(scores, y)
            np.testing.assert_allclose(fitted.predict_proba(scores), expected, rtol=1e-12)
            np.testing.assert_allclose(fitted.as_function()(scores), expected, rtol=1e-12)
    single = np.nextafter(np.float32(1), np.float32(2))
    probs = bc.Beta().fit(p, y).as_function()(jnp.array([single, -1e-7]))
    np.testing.assert_array_equal(probs, bc.Beta().fit(p, y).as_function()(jnp.array([1.0, 0.0])))
    assert bc.metrics.log_loss(beyond, y) == bc.metrics.log_loss(p, y)
    np.testing.assert_array_equal(beyond, given)


# --- logits of options that are not there -------------------------------------------------------


def _questions(n: int) -> tuple[Array, Array, Array]:
    """Return logits of two to five options, labels, and true logits half as large."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(n, 5))
    logits[np.arange(5) >= rng.integers(2, 6, n)[:, None]] = -np.inf
    return logits, np.argmax(logits / 2 + rng.gumbel(size=logits.shape), axis=1), logits / 2


@pytest.mark.parametrize(
    "make",
    [bc.Temperature, bc.Vector, bc.StructuredMatrix, bc.Dirichlet, bc.WeightScaling, bc.Auto],
)
def test_options_that_are_not_there_get_no_probability(make: Any) -> None:
    logits, y, truth = _questions(2000)
    absent = np.isneginf(logits)
    fitted = make(inputs="logits").fit(logits, y)
    probs = fitted.predict_proba(logits)
    assert (probs[absent] == 0).all() and (probs[~absent] > 0).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(fitted.as_function()(logits), probs, atol=1e-12)
    near = np.asarray(fitted.as_function()(jnp.asarray(logits[:100])))
    assert (near[absent[:100]] == 0).all()
    np.testing.assert_allclose(near, probs[:100], atol=1e-4)
    best = bc.metrics.log_loss(softmax(truth, axis=1), y)
    assert best - 0.02 < bc.metrics.log_loss(probs, y) < best + 0.025
    assert fitted.report_.rows == 2000


@pytest.mark.parametrize("make", [bc.Temperature, bc.StructuredMatrix, bc.StackedScaling])
def test_intervals_of_absent_options_are_empty(make: Any) -> None:
    logits, y, _ = _questions(300)
    fitted = make(inputs="logits", inference="laplace", random_state=0).fit(logits, y)
    absent = np.isneginf(logits)
    for lower, upper in (fitted.predict_interval(logits), fitted.as_function().interval(logits)):
        assert (lower[absent] == 0).all() and (upper[absent] == 0).all()
        assert (lower[~absent] < upper[~absent]).mean() > 0.99


def test_an_absent_option_is_one_of_a_huge_negative_logit() -> None:
    logits, y, _ = _questions(2000)
    finite = np.where(np.isneginf(logits), -1e9, logits)
    one, other = (bc.Temperature(inputs="logits").fit(z, y) for z in (logits, finite))
    assert one.temperature_ == pytest.approx(other.temperature_, rel=1e-6)
    for name in ("log_loss", "brier_score", "ece", "accuracy"):
        metric = getattr(bc.metrics, name)
        assert metric(logits, y, inputs="logits") == metric(finite, y, inputs="logits")
    blocks = bc.Blocks(lambda: iter([(logits[:900], y[:900]), (logits[900:], y[900:])]))
    actual = bc.Temperature(inputs="logits").fit(blocks)
    assert actual.temperature_ == pytest.approx(one.temperature_, rel=1e-6)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0, np.inf, 1], "finite, got infinity"),
        ([0, np.nan, 1], "finite, got NaN"),
        ([-np.inf, -np.inf, -np.inf], "finite logit in each row, got only -infinity in row 3"),
    ],
)
def test_no_other_logit_may_be_infinite(row: list[float], message: str) -> None:
    logits, y = np.array([[0, 1, 2.0], [1, 0, 0.5], [0, 0, 1], row]), [0, 1, 2, 0]
    with pytest.raises(ValueError, match=message):
        bc.Temperature(inputs="logits").fit(logits, y)
    with pytest.raises(ValueError, match=message):
        bc.metrics.log_loss(logits, y, inputs="logits")
    with pytest.raises(ValueError, match="option that exists, got class 2 in row 0"):
        bc.Temperature(inputs="logits").fit([[0, 1, -np.inf], [0, 1, 2], [1, 0, 2]], [2, 1, 0])


L = np.array([[2.0, -1.0, 0.5], [800.0, 0.0, -800.0]])


def test_several_classes_by_hand() -> None:
    logs = np.log(softmax(L[:1], axis=1))
    np.testing.assert_array_equal(convert(L, "logits", "logits"), L)
    np.testing.assert_allclose(convert(L, "logits", "log_probabilities")[:1], logs, rtol=1e-12)
    far = convert(L, "logits", "log_probabilities")[1]
    np.testing.assert_allclose(far, [0, -800, -1600], atol=1e-9)
    np.testing.assert_allclose(convert(L, "logits", "probabilities"), softmax(L, axis=1))
    p = np.array([[0.5, 0.3, 0.2001]])
    np.testing.assert_allclose(convert(p, "probs", "logits"), np.log(p), rtol=1e-12)
    np.testing.assert_allclose(convert(p, "probs", "probabilities"), p / p.sum(), rtol=1e-12)
    np.testing.assert_allclose(
        convert(p, "probs", "log_probabilities"), np.log(p / p.sum()), rtol=1e-12
    )


def test_what_zero_stands_for_in_several_classes() -> None:
    p = np.array([[0.0, 0.4, 0.6], [0.004, 0.996, 0.0], [1e-300, 0.5, 0.5]])
    logs, least = _inputs.convert(p, "probs", "logits")
    assert least is not None
    # Half the least positive probability of any class is below the floor.
    np.testing.assert_array_equal(least, [FLOOR] * 3)
    np.testing.assert_allclose(logs, np.log(np.maximum(p, least)), rtol=1e-12)
    # New scores are raised to the smallest values of the fit.
    again = convert(np.array([[0.0, 0.0, 1.0]]), "probs", "logits", least)
    np.testing.assert_allclose(again, np.log([[FLOOR, FLOOR, 1.0]]), rtol=1e-12)
    # A class that is certain wherever it is possible uses the smallest value of the other classes.
    counts = np.array([[0.0, 0.004, 0.996], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    least = _inputs.convert(counts, "probs", "logits")[1]
    np.testing.assert_allclose(least, [0.002] * 3, rtol=1e-12)


def test_rounding_errors_of_zero_are_zero() -> None:
    """Check both columns, one column and blocks; other small probabilities stay."""
    up = np.array([0.2, 0.9999999999999999, 0.7, 1 - 12 * 2.0**-53, 0.99])
    single = np.array([0.2, 1 - 2.0**-24, 0.7, 1 - 2.0**-23, 0.99], np.float32)
    for p in (up, 1 - up, single, 1 - single, single.astype(float)):
        pair = np.stack([1 - p, p], axis=1)
        y = np.array([1, 0, 0, 1, 1])
        for scores in (p, p[:, None], pair):
            blocks = bc.Blocks([(scores[:3], y[:3]), (scores[3:], y[3:])])
            for least in (
                _inputs.convert(scores, "probs", "log_odds")[1],
                bc.Logistic().fit(blocks).least_probabilities_,
            ):
                rtol = 1e-5 if (p == p.astype(np.float32)).all() else 1e-12
                np.testing.assert_allclose(least, [0.005] * 2, rtol=rtol)
    small = np.array([[6e-8, 0.5], [3 * 2.0**-24, 0.5], [0.5, 1 - 3 * 2.0**-24]], np.float32)
    for p in small:
        assert _inputs.convert(p, "probs", "log_odds")[1] == pytest.approx(FLOOR)
    for p in (np.array([1e-16, 0.5]), np.array([17 * 2.0**-53, 0.5]), np.array([0.5, 1 - 2e-15])):
        assert _inputs.convert(p, "probs", "log_odds")[1] == pytest.approx(FLOOR)


@pytest.mark.parametrize("domain", ["probabilities", "log_probabilities", "logits"])
def test_one_column_stands_for_two_classes(domain: Any) -> None:
    pair = np.stack([1 - P, P], axis=1)
    one, two = (convert(scores, "probs", domain) for scores in (P, pair))
    np.testing.assert_allclose(one, two, rtol=1e-14)
    z = convert(Z, "logits", domain)
    assert z.shape == (4, 2)
    if domain != "probabilities":
        np.testing.assert_allclose(z[:, 1] - z[:, 0], Z, rtol=1e-12)


# --- shares of outcomes -------------------------------------------------------------------------


@pytest.mark.parametrize("make", [bc.Beta, bc.Isotonic, bc.AveragedBeta, bc.VennAbers, bc.Spline])
def test_a_share_of_an_outcome_is_a_weight(make: Any) -> None:
    rng = np.random.default_rng(0)
    p, y, w = rng.uniform(0.05, 0.95, 200), rng.choice([0, 0.5, 1], 200), rng.integers(1, 3, 200)
    shares = np.stack([1 - y, y], axis=1)
    labels, weights = np.repeat([0, 1], 200), np.concatenate([(1 - y) * w, y * w])
    expected = make().fit(np.tile(p, 2), labels, weights).predict_proba(p)
    np.testing.assert_allclose(make().fit(p, shares, w).predict_proba(p), expected, rtol=1e-9)


def test_shares_of_outcomes_have_the_likelihood_of_fractions() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=300), rng.choice([0, 0.5, 1], 300)
    fitted = bc.Logistic(inputs="logits").fit(z, np.stack([1 - y, y], axis=1))

    def loss(t: Array) -> float:
        line = t[0] * z + t[1]
        return float(np.mean(np.logaddexp(0, line) - y * line))

    best = minimize(loss, [1, 0], tol=1e-12).x
    actual = fitted.predict_proba(z)[:, 1]
    np.testing.assert_allclose(actual, expit(best[0] * z + best[1]), atol=1e-6)


def test_outcomes_in_columns_by_place_and_by_name() -> None:
    rng = np.random.default_rng(0)
    probs, codes = rng.dirichlet(np.ones(3), 200), rng.integers(0, 3, 200)
    expected = bc.Vector().fit(probs, codes).predict_proba(probs)
    frame = pd.DataFrame(probs, columns=list("abc"))
    outcomes = pd.DataFrame(np.eye(3)[codes], columns=list("abc"))
    for y in (np.eye(3)[codes], np.eye(3, dtype=bool)[codes], scipy.sparse.csr_matrix(outcomes)):
        fitted = bc.Vector().fit(probs, y)
        np.testing.assert_allclose(fitted.predict_proba(probs), expected, rtol=1e-9)
        assert fitted.classes_.tolist() == [0, 1, 2]
    for order in ("abc", "cab"):
        named = bc.Vector(classes=list("abc")).fit(frame[[*order]], outcomes[[*order[::-1]]])
        np.testing.assert_allclose(named.predict_proba(frame[[*order]]), expected, rtol=1e-9)
        alike = bc.Vector().fit(frame, outcomes[[*order]])
        np.testing.assert_allclose(alike.predict_proba(frame), expected, rtol=1e-9)
    assert bc.Beta().fit([0.2, 0.7, 0.8], [[0, 1], [0.5, 0.5], [0, 1]]).classes_.tolist() == [0, 1]
    for wrong, message in (
        (np.ones((200, 3)), "not proportions that sum to one"),
        (np.eye(3)[codes][:50], r"y must have shape \(200, 3\) to match the scores, got \(50, 3\)"),
    ):
        with pytest.raises(ValueError, match=message):
            bc.Vector().fit(probs, wrong)
    with pytest.raises(ValueError, match="for calibrators of classes, such as AveragedBeta"):
        bc.Auto().fit(probs, np.full((200, 3), 1 / 3))


@pytest.mark.parametrize("digits", [1, 3, 6])
def test_decimals_in_single_precision_are_those_of_double_precision(digits: int) -> None:
    rng = np.random.default_rng(digits)
    probs = rng.multinomial(10**digits, [0.2, 0.3, 0.5], 500) / 10**digits
    narrow = probs.astype(np.float32)
    assert (narrow != probs).any()
    read = convert(narrow, "probs", "probabilities")
    np.testing.assert_array_equal(read, convert(probs, "probs", "probabilities"))
    least = np.full(3, FLOOR)
    read = convert(narrow, "probs", "logits", least)
    np.testing.assert_array_equal(read, convert(probs, "probs", "logits", least))
    # Others are the numbers that single precision holds, up to half of its epsilon.
    other = rng.dirichlet(np.full(3, 0.2), 500).astype(np.float32)
    read = convert(other, "probs", "logits", least)
    np.testing.assert_allclose(np.exp(read), np.maximum(other, FLOOR), rtol=2.0**-24, atol=0)
