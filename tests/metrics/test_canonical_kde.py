"""The kernel calibration error of probability vectors against SciPy's Dirichlet densities."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import dirichlet

from bayescal.metrics import canonical_kde_ece

WIDTHS = 2.0 ** np.arange(-10, 1)


def draw_probs(n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(k, 0.7), size=n)
    y = (p.cumsum(axis=1)[:, :-1] < rng.random((n, 1))).sum(axis=1)
    return p, y


def log_kernels(p: np.ndarray, width: float) -> np.ndarray:
    """Compute the log density at each row of the kernels around all other rows."""
    result = np.stack([dirichlet.logpdf(p.T, around / width + 1) for around in p], axis=1)
    np.fill_diagonal(result, -np.inf)
    return result


def error_by_loop(p: np.ndarray, y: np.ndarray, width: float | None, distance: str) -> float:
    if width is None:
        likelihood = [logsumexp(log_kernels(p, h), axis=1).sum() for h in WIDTHS]
        width = WIDTHS[int(np.argmax(likelihood))]
    kernels = np.exp(log_kernels(p, width))
    near = kernels @ np.eye(p.shape[1])[y] / kernels.sum(axis=1, keepdims=True)
    gaps = near - p
    if distance == "euclidean":
        return float(np.sqrt((gaps**2).sum(axis=1)).mean())
    return float(np.abs(gaps).sum(axis=1).mean() / 2)


@pytest.mark.parametrize(
    ("k", "width", "distance"),
    [
        (2, 0.3, "euclidean"),
        (3, 0.02, "total_variation"),
        (3, None, "euclidean"),
        (5, None, "total_variation"),
    ],
)
def test_it_is_the_formula(k, width, distance):
    p, y = draw_probs(40, k, seed=k)
    result = canonical_kde_ece(p, y, bandwidth=width, distance=distance)
    assert result == pytest.approx(error_by_loop(p, y, width, distance), rel=1e-10)
    if k == 2:
        second = canonical_kde_ece(p[:, 1], y, bandwidth=width, distance=distance)
        assert second == pytest.approx(result)


def test_whole_weights_are_counts_and_others_shares():
    p, y = draw_probs(40, 3)
    counts = np.random.default_rng(1).integers(0, 4, 40)
    expected = canonical_kde_ece(np.repeat(p, counts, axis=0), np.repeat(y, counts))
    assert canonical_kde_ece(p, y, weights=counts) == pytest.approx(expected)
    shares = np.full(40, 0.37)
    assert canonical_kde_ece(p, y, weights=shares) == pytest.approx(canonical_kde_ece(p, y))


def test_repeated_predictions_are_cells():
    # With two predictions far apart, only rows with equal predictions count.
    p = np.repeat([[0.9, 0.1], [0.1, 0.9]], [4, 4], axis=0)
    y = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    shares = np.array([2 / 3, 2 / 3, 2 / 3, 1])  # of class 0 among the three other rows
    expected = (np.abs(shares - 0.9).sum() + 4 * 0.1) / 8
    assert canonical_kde_ece(p, y, bandwidth=1 / 1024) == pytest.approx(expected, abs=1e-9)


def test_zeros_are_finite():
    p = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    for width in (None, 1e-6, 1e6):
        assert 0 <= canonical_kde_ece(p, [0, 1, 1, 2], bandwidth=width) <= 1


@pytest.mark.slow
def test_calibrated_vectors_have_less_of_it_the_more_there_are():
    few, many = (canonical_kde_ece(*draw_probs(n, 3)) for n in (200, 5000))
    p, y = draw_probs(5000, 3)
    sharp = p**3 / (p**3).sum(axis=1, keepdims=True)
    assert many < few
    # The true probabilities given the sharper vector are those before sharpening.
    error = np.abs(sharp - p).sum(axis=1).mean() / 2
    assert canonical_kde_ece(sharp, y) == pytest.approx(error, abs=0.05)


def test_wrong_arguments_are_errors():
    with pytest.raises(ValueError, match="must have at least two rows, got one"):
        canonical_kde_ece([0.3], [1])
    with pytest.raises(ValueError, match="bandwidth must be positive, got 0"):
        canonical_kde_ece([0.3, 0.2], [1, 0], bandwidth=0)
    with pytest.raises(ValueError, match="distance must be"):
        canonical_kde_ece([0.3, 0.2], [1, 0], distance="l1")
