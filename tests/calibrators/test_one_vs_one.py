"""One binary calibrator for each pair of classes: fitted separately, then coupled."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import bayescal.calibrators as bc
from bayescal.calibrators import Calibrator
from tests.calibrators.lifted import AT, Array, P, Y, rows


def couple(pairs: Array) -> Array:
    """Couple P(i | i or j) (m, k, k) with the formula of the paper."""
    m, k, _ = pairs.shape
    result = np.empty((m, k))
    for i in range(k):
        others = [j for j in range(k) if j != i]
        result[:, i] = 1 / (sum(1 / pairs[:, i, j] for j in others) - (k - 2))
    return result / result.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    "calibrator", [bc.Logistic(), bc.Beta(), bc.Isotonic("laplace"), bc.VennAbers()]
)
def test_each_pair_is_calibrated_alone(calibrator: Calibrator) -> None:
    result = bc.OneVsOne(calibrator).fit(P, Y)
    pairs = np.ones((len(AT), 4, 4))
    for i, j in combinations(range(4), 2):
        in_pair = (Y == i) | (Y == j)
        alone = calibrator.fit(P[in_pair, j] / (P[in_pair, i] + P[in_pair, j]), Y[in_pair] == j)
        pairs[:, j, i] = alone.predict_proba(AT[:, j] / (AT[:, i] + AT[:, j]))[:, 1]
        pairs[:, i, j] = 1 - pairs[:, j, i]
    np.testing.assert_allclose(result.predict_proba(AT), couple(pairs), atol=1e-7)
    assert result.statuses_.tolist() == [0] * 6 and result.status_ == "converged"


def test_two_classes_are_the_calibrator_itself() -> None:
    p, y = rows(200, k=2)
    alone = bc.Isotonic().fit(p[:, 1], y).predict_proba(p[:50, 1])
    np.testing.assert_allclose(
        bc.OneVsOne(bc.Isotonic()).fit(p, y).predict_proba(p[:50]), alone, atol=1e-25
    )


@pytest.mark.parametrize(
    "calibrator",
    [bc.Isotonic("laplace"), bc.ScalingBinning(7), bc.BBQ(), bc.Histogram(7, binning="equal_mass")],
    ids=lambda calibrator: type(calibrator).__name__,
)
def test_permuting_the_classes_permutes_the_result(calibrator: Calibrator) -> None:
    order = np.array([2, 0, 3, 1])
    one = bc.OneVsOne(calibrator).fit(P, Y).predict_proba(AT)
    other = bc.OneVsOne(calibrator).fit(P[:, order], np.argsort(order)[Y])
    np.testing.assert_allclose(other.predict_proba(AT[:, order]), one[:, order], atol=1e-12)


def test_a_pair_has_the_mean_of_both_orders_if_these_matter() -> None:
    result = bc.OneVsOne(bc.ScalingBinning(7)).fit(P, Y)
    pairs = np.ones((len(AT), 4, 4))
    for i, j in combinations(range(4), 2):
        in_pair = (Y == i) | (Y == j)
        scores = np.log(P[in_pair, j] / P[in_pair, i]), np.log(AT[:, j] / AT[:, i])
        means = []
        for sign in (1, -1):
            alone = bc.ScalingBinning(7, inputs="logits")
            alone.fit(sign * scores[0], (Y[in_pair] == j) == (sign == 1))
            means.append(alone.predict_proba(sign * scores[1])[:, ::sign])
        pairs[:, i, j], pairs[:, j, i] = np.mean(means, axis=0).T
    np.testing.assert_allclose(result.predict_proba(AT), couple(pairs), atol=1e-7)


def test_a_class_without_a_label_keeps_shrunk_odds() -> None:
    p, y = rows(300, k=3)
    kept = y < 2
    result = bc.OneVsOne(bc.Isotonic("laplace"), classes=[0, 1, 2]).fit(p[kept], y[kept])
    at = AT[:, :3] / AT[:, :3].sum(axis=1, keepdims=True)
    pairs = np.ones((len(at), 3, 3))
    alone = bc.Isotonic("laplace").fit((p[:, 1] / (p[:, 0] + p[:, 1]))[kept], y[kept])
    pairs[:, 1, 0] = alone.predict_proba(at[:, 1] / (at[:, 0] + at[:, 1]))[:, 1]
    shrunk = at[:, 2] / (1 + p[kept, 2].sum())
    for i in (0, 1):
        pairs[:, 2, i] = shrunk / (shrunk + at[:, i])
    for i, j in combinations(range(3), 2):
        pairs[:, i, j] = 1 - pairs[:, j, i]
    np.testing.assert_allclose(result.predict_proba(at), couple(pairs), atol=1e-9)


def test_sure_pairs_leave_probabilities() -> None:
    p = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    result = bc.OneVsOne(bc.Isotonic()).fit(p, [0, 1, 2])
    np.testing.assert_allclose(result.predict_proba(p), np.eye(3), atol=1e-25)


def test_what_it_takes() -> None:
    for bad in (bc.KNN(), "isotonic", bc.Isotonic):
        with pytest.raises(TypeError, match="calibrator of binary scores, as Isotonic"):
            bc.OneVsOne(bad).fit(P, Y)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="inference='map' within OneVsOne, got 'laplace'"):
        bc.OneVsOne(bc.Beta(inference="laplace")).fit(P, Y)
