"""The synthetic map of the simplex: its formula, its labels and its documented numbers."""

import numpy as np
import pytest

from bayescal.datasets import simplex


def by_loop(p: np.ndarray) -> np.ndarray:
    """Compute the formula of the docstring entry by entry."""
    weights = [1, 1.15, 0.9]
    mass = [
        weights[j] * (p[j] + 0.003) ** 0.65 * np.exp(0.15 * np.sin(2 * np.pi * p[(j + 1) % 3]))
        for j in range(3)
    ]
    return np.array(mass) / sum(mass)


def test_truth_is_the_formula_and_a_distribution() -> None:
    corners = np.concatenate([np.eye(3), np.eye(3)[[1, 2, 0]] / 2 + np.eye(3) / 2])
    points = np.concatenate([corners, np.random.default_rng(0).dirichlet([0.3] * 3, 500)])
    truth = simplex.true_probabilities(points)
    np.testing.assert_allclose(truth, [by_loop(p) for p in points], atol=1e-14)
    np.testing.assert_allclose(truth.sum(axis=1), 1, atol=1e-14)
    assert truth.min() > 0.01
    single = simplex.true_probabilities(points.astype(np.float32))
    assert single.dtype == float
    np.testing.assert_allclose(single, truth, atol=1e-5)


def test_labels_follow_the_truth() -> None:
    data = simplex.sample(200_000, seed=3)
    np.testing.assert_array_equal(data.truth, simplex.true_probabilities(data.probs))
    outcomes = np.eye(3)[data.y]
    # Compare within regions of predictions, up to five standard errors.
    cell = (data.probs * 4).astype(int) @ [1, 5, 25]
    for index in np.unique(cell):
        mine = cell == index
        if mine.sum() > 500:
            error = outcomes[mine].mean(axis=0) - data.truth[mine].mean(axis=0)
            spread = np.sqrt((data.truth[mine] * (1 - data.truth[mine])).sum(axis=0)) / mine.sum()
            assert (np.abs(error) < 5 * spread).all()


def test_predictions_are_dirichlet_and_figures_hold() -> None:
    data = simplex.sample(400_000, seed=4)
    # Mean 1/3 and variance (1/3)(2/3) / (3/2 + 1) of Dirichlet(1/2, 1/2, 1/2).
    np.testing.assert_allclose(data.probs.mean(axis=0), 1 / 3, atol=0.003)
    np.testing.assert_allclose(data.probs.var(axis=0), 4 / 45, atol=0.001)
    rows, top = np.arange(len(data.y)), data.probs.argmax(axis=1)
    error = np.abs(data.probs - data.truth)
    assert error.mean() == pytest.approx(0.056, abs=6e-4)
    assert error[rows, top].mean() == pytest.approx(0.0766, abs=6e-4)
    assert -(data.truth * np.log(data.truth)).sum(axis=1).mean() == pytest.approx(0.816, abs=1e-3)
    assert 1 - (data.truth**2).sum(axis=1).mean() == pytest.approx(0.486, abs=1e-3)


def test_seeds_decide() -> None:
    one, again, other = (simplex.sample(50, seed=seed) for seed in (1, 1, 2))
    for a, b in zip(one, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(one.probs, other.probs)


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([0.2, 0.3, 0.5], "must have shape (n, 3), got (3,)"),
        (np.ones((4, 2)) / 2, "must have shape (n, 3), got (4, 2)"),
        ([[0.5, 0.5, 0.5]], "rows that sum to one"),
        ([[1.5, -0.5, 0]], "must lie in [0, 1], got -0.5"),
        ([[np.nan, 0.5, 0.5]], "probs"),
    ],
)
def test_wrong_predictions_are_errors(probs: object, message: str) -> None:
    with pytest.raises(ValueError) as error:
        simplex.true_probabilities(probs)
    assert message in str(error.value)


@pytest.mark.parametrize("n", [0, 2.5, "3"])
def test_wrong_sizes_are_errors(n: object) -> None:
    with pytest.raises((TypeError, ValueError), match="n must be"):
        simplex.sample(n)  # type: ignore[arg-type]
    assert simplex.true_probabilities(np.empty((0, 3))).shape == (0, 3)
