"""One binary calibrator for each class: fitted separately, then normalized."""

from __future__ import annotations

import numpy as np
import pytest

import bayescal.calibrators as bc
from bayescal.calibrators import Calibrator
from tests.calibrators.lifted import AT, P, Y


@pytest.mark.parametrize(
    "calibrator", [bc.Logistic(), bc.Beta(), bc.Isotonic(), bc.Histogram(5), bc.VennAbers()]
)
def test_each_class_is_calibrated_alone(calibrator: Calibrator) -> None:
    result = bc.OneVsRest(calibrator).fit(P, Y)
    alone = [calibrator.fit(P[:, j], Y == j).predict_proba(AT[:, j])[:, 1] for j in range(4)]
    expected = np.stack(alone, axis=1)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result.predict_proba(AT), expected, atol=1e-7)
    assert result.statuses_.tolist() == [0] * 4 and result.status_ == "converged"


def test_a_class_without_a_label_keeps_a_shrunk_probability() -> None:
    y = np.where(Y == 3, 0, Y)
    result = bc.OneVsRest(bc.Isotonic("laplace"), classes=[0, 1, 2, 3]).fit(P, y)
    others = [
        bc.Isotonic("laplace").fit(P[:, j], y == j).predict_proba(AT[:, j])[:, 1] for j in range(3)
    ]
    expected = np.stack([*others, AT[:, 3] / (1 + P[:, 3].sum())], axis=1)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result.predict_proba(AT), expected, atol=1e-9)


def test_rows_of_which_no_class_is_likely_keep_their_probabilities() -> None:
    p = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    result = bc.OneVsRest(bc.Isotonic()).fit(p, [0, 1, 2])
    at = np.array([[0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(result.predict_proba(at), [[0, 0, 1], [1 / 3, 1 / 3, 1 / 3]])
    steps = bc.OneVsRest(bc.Histogram(2)).fit(p, [0, 1, 2])
    flat = np.array([[0.5, 0.3, 0.2]])
    np.testing.assert_allclose(steps.predict_proba(flat), flat)


def test_what_it_takes() -> None:
    for bad in (bc.KNN(), "isotonic", bc.Isotonic):
        with pytest.raises(TypeError, match="calibrator of binary scores, as Isotonic"):
            bc.OneVsRest(bad).fit(P, Y)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="inference='map' within OneVsRest, got 'laplace'"):
        bc.OneVsRest(bc.Beta(inference="laplace")).fit(P, Y)
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        bc.OneVsRest(bc.Histogram(0)).fit(P, Y)
