"""Laplace draws for softmax regression against the covariance by definition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from bayescal._core.minimization.optimize import Status
from bayescal.regression.softmax import posterior as softmax_posterior
from bayescal.regression.softmax.objective import Design, full_hessian, logit_update, split
from tests.regression.problems import KINDS, make_design, size


def covariance(design: Design, penalty: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Compute the inverse of the Hessian row by row from its definition."""
    logits = design.offset + logit_update(design, theta)
    probs = softmax(logits, axis=1)
    hessian = np.diag(penalty)
    unit = np.eye(len(theta))
    moved = np.stack([logit_update(design, direction) for direction in unit], axis=2)
    for j, p, w in zip(moved, probs, design.weights, strict=True):
        hessian += w * j.T @ (np.diag(p) - np.outer(p, p)) @ j
    np.testing.assert_allclose(
        full_hessian(design, probs, np) + np.diag(penalty), hessian, rtol=1e-8, atol=1e-8
    )
    return np.linalg.inv(hessian)


@pytest.mark.parametrize(("kind", "most"), [("everything", 3000), *((kind, 0) for kind in KINDS)])
def test_draws_have_the_covariance(kind: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check draws from the full Hessian, and from solving with products."""
    monkeypatch.setattr(softmax_posterior, "MAX_PARAMETERS", most)
    design = make_design(150, 3, 2, kind)
    penalty = np.random.default_rng(0).uniform(0.3, 3, size(design))
    draws = softmax_posterior.sample(design, penalty, np.zeros_like(penalty), "laplace", 8000, 0)
    theta = draws.coefficients[0]
    assert draws.status == Status.CONVERGED and theta.shape == (8000, len(penalty))
    mode = theta.mean(axis=0)
    expected = covariance(design, penalty, mode)
    # Five standard errors for 4,000 independent pairs.
    error = 5 * np.sqrt(2 / 4000)
    np.testing.assert_allclose(theta.var(axis=0), np.diag(expected), rtol=error)
    rng = np.random.default_rng(1)
    for direction in rng.normal(size=(5, len(penalty))):
        variance = direction @ expected @ direction
        np.testing.assert_allclose((theta @ direction).var(), variance, rtol=error)
    power = np.einsum("si,ij,sj->s", theta - mode, np.linalg.inv(expected), theta - mode)
    np.testing.assert_allclose(power.mean(), len(mode), rtol=5 * np.sqrt(2 / len(mode) / 4000))


def test_an_odd_number_of_solved_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax_posterior, "MAX_PARAMETERS", 0)
    design = make_design(100, 3, 2, "vector")
    penalty = np.ones(size(design))
    theta = softmax_posterior.sample(design, penalty, 0 * penalty, "laplace", 7, 0).coefficients[0]
    again = softmax_posterior.sample(design, penalty, 0 * penalty, "laplace", 7, 0).coefficients[0]
    np.testing.assert_array_equal(theta, again)
    np.testing.assert_allclose(theta[:3] + theta[4:], np.broadcast_to(2 * _mode(theta), (3, 6)))
    assert split(theta, design.sizes).diagonal.shape == (7, 3)


def _mode(theta: np.ndarray) -> np.ndarray:
    return (theta[0] + theta[4]) / 2


def test_what_would_take_too_much_is_refused() -> None:
    design = make_design(100, 60, 2, "matrix")
    penalty = np.ones(size(design))
    with pytest.raises(ValueError, match="'map' or 'laplace' for more than 3,000 parameters"):
        softmax_posterior.sample(design, penalty, 0 * penalty, "nuts", 100, 0)
    with pytest.raises(ValueError, match="num_samples must be at most 73,343 for 3,660 parameters"):
        softmax_posterior.sample(design, penalty, 0 * penalty, "laplace", 100_000, 0)
