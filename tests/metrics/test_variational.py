"""The variational calibration error against its expectation for known true probabilities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

import bayescal as bc
from bayescal.metrics import log_loss, true_calibration_error, variational_ece

NORMS = [1, 1.5, 2, 3]


def draw_predictions(
    seed: int, k: int | None, n: int = 12
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw predictions, true probabilities given them, and those of another calibrator."""
    rng = np.random.default_rng(seed)
    if k is None:
        return rng.random(n), rng.random(n), rng.random(n)
    parts = softmax(rng.normal(0, 2, (3, n, k)), axis=2)
    return parts[0], parts[1], parts[2]


def expected(p: np.ndarray, truth: np.ndarray, g: np.ndarray, **options: object) -> float:
    """Compute the expectation of the metric before the root, over rows with every label."""
    rows = np.stack([1 - truth, truth], axis=1) if truth.ndim == 1 else truth
    n, k = rows.shape
    labels = np.tile(np.arange(k), n)
    value = variational_ece(
        np.repeat(p, k, axis=0), labels, np.repeat(g, k, axis=0), weights=rows.ravel(), **options
    )
    return np.sign(value) * abs(value) ** options["norm"]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(None, "binary"), (2, "binary"), (3, "confidence"), (4, "classwise")]),
    st.sampled_from(NORMS),
)
def test_expectation_is_the_error_with_the_truth_and_less_otherwise(seed, shape, norm):
    k, kind = shape
    p, truth, g = draw_predictions(seed, k)
    error = true_calibration_error(p, truth, kind=kind, norm=norm) ** norm
    assert expected(p, truth, truth, kind=kind, norm=norm) == pytest.approx(error, abs=1e-12)
    assert expected(p, truth, g, kind=kind, norm=norm) <= error + 1e-12
    assert expected(p, truth, p, kind=kind, norm=norm) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_cases_by_hand(norm):
    p, y, g = [0.9, 0.2], [0, 1], [0.6, 0.5]
    # Both predictions move by 0.3 in the right direction, with labels 0.6 and 0.5 further away.
    terms = [0.3**norm + norm * 0.3 ** (norm - 1) * more for more in (0.6, 0.5)]
    assert variational_ece(p, y, g, norm=norm) == pytest.approx(np.mean(terms) ** (1 / norm))
    wrong = variational_ece([0.5], [1], [0.1], norm=1)
    assert wrong == pytest.approx(-0.5)


@pytest.mark.slow
def test_calibrated_predictions_prove_nothing_on_the_average():
    from sklearn.model_selection import cross_val_predict

    rng = np.random.default_rng(0)
    result, proved = [], []
    for _ in range(60):
        p = rng.random(300)
        for values, power in ((result, 1.0), (proved, 2.0)):
            y = rng.random(300) < p**power
            g = cross_val_predict(bc.Beta(), p, y, cv=5, method="predict_proba")[:, 1]
            values.append(variational_ece(p, y, g))
    error = np.std(result) / np.sqrt(60)
    assert np.mean(result) < 3 * error  # never above zero
    # The integral of p - p^2 is 1/6, and the calibrator's noise hides only little of it.
    bound = np.mean(proved)
    assert 0.14 < bound < 1 / 6 + 3 * np.std(proved) / np.sqrt(60)


def test_loss_of_the_calibrator_is_the_other_bound():
    # If g is the truth, losses differ by the divergence of p from the truth.
    p, truth, _ = draw_predictions(3, None)
    twice, labels = np.repeat(p, 2), np.tile([0, 1], len(p))
    weights = np.stack([1 - truth, truth], axis=1).ravel()
    gain = log_loss(twice, labels, weights=weights) - log_loss(
        np.repeat(truth, 2), labels, weights=weights
    )
    divergence = truth * np.log(truth / p) + (1 - truth) * np.log((1 - truth) / (1 - p))
    assert gain == pytest.approx(divergence.mean())


def test_wrong_arguments_are_errors():
    with pytest.raises(ValueError, match="norm must be finite, got inf"):
        variational_ece([0.2], [1], [0.3], norm=np.inf)
    with pytest.raises(ValueError, match=r"recalibrated must have shape \(2,\), got \(1,\)"):
        variational_ece([0.2, 0.3], [1, 0], [0.3])
    with pytest.raises(ValueError, match="recalibrated must lie in"):
        variational_ece([0.2], [1], [1.3])
