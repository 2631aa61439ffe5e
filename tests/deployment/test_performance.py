"""Expected performance without labels, against formulas and simulated labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logit
from sklearn.exceptions import NotFittedError

import bayescal as bc
from bayescal.deployment import recalibration as _recalibration

COSTS = [[0.0, 1.0], [5.0, 0.0]]
NAMES = ("log_loss", "brier_score", "accuracy", "cost")


def draw(n: int, share: float, seed: Any) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    return 2.4 * (rng.normal(size=n) + 2.4 * (y - 0.5)), y


def metrics(probs: np.ndarray, y: np.ndarray) -> list[float]:
    return [
        float(bc.metrics.log_loss(probs, y)),
        float(bc.metrics.brier_score(probs, y)),
        float((probs.argmax(axis=1) == y).mean()),
        float(bc.metrics.decision_cost(probs, y, costs=COSTS).realized or 0.0),
    ]


def test_values_of_exact_probabilities_are_means_over_labels() -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 400)
    weights = rng.integers(0, 3, 400)
    costs = rng.random((3, 4))
    shift = bc.PriorShift(class_prior=np.full(3, 1 / 3), calibration_shares=np.full(3, 1 / 3)).fit()
    result = bc.expected_performance(shift, probs, costs=costs, sample_weight=weights)
    share = weights / weights.sum()
    decision = (probs @ costs).argmin(axis=1)
    expected = [
        -share @ (probs * np.log(probs)).sum(axis=1),
        share @ (1 - (probs**2).sum(axis=1)),
        share @ probs.max(axis=1),
        share @ (probs * costs[:, decision].T).sum(axis=1),
    ]
    for name, value in zip(NAMES, expected, strict=True):
        estimate = getattr(result, name)
        assert estimate.value == pytest.approx(value, abs=1e-9)
        assert estimate.expected == pytest.approx((value, value), abs=1e-9)
        assert estimate.realized[0] < value < estimate.realized[1]
    assert result.rows == (weights > 0).sum()


@pytest.mark.parametrize("m", [900, 1100])
def test_chance_of_labels(m: int) -> None:
    # Labels are simulated for up to 1,000 rows and approximated by a normal beyond.
    p = np.random.default_rng(0).uniform(0.05, 0.95, m)
    probs = np.stack([1 - p, p], axis=1)
    shift = bc.PriorShift(class_prior=0.5, calibration_shares=0.5).fit()
    estimate = bc.expected_performance(shift, probs, level=0.9).log_loss
    spread = np.sqrt((p * (1 - p) * logit(p) ** 2).sum()) / m
    assert estimate.realized[1] - estimate.realized[0] == pytest.approx(
        2 * 1.645 * spread, rel=0.08
    )


def test_labels_agree() -> None:
    calibrator = bc.Auto(inputs="logits").fit(*draw(1000, 0.5, 0))
    for model, share in ((calibrator, 0.5), (None, 0.1)):
        scores, y = draw(3000, share, 1)
        model = bc.PriorShift(calibrator).fit(scores) if model is None else model
        result = bc.expected_performance(model, scores, costs=COSTS, level=0.99)
        for name, value in zip(NAMES, metrics(model.predict_proba(scores), y), strict=True):
            low, high = getattr(result, name).realized
            assert low < value < high
        assert "accuracy" in str(result)
        assert "3,000 rows" in str(result)


def test_errors(tmp_path: Path) -> None:
    scores = draw(100, 0.5, 0)[0]
    calibrator = bc.Logistic(inputs="logits").fit(*draw(400, 0.5, 0))
    with pytest.raises(NotFittedError):
        bc.expected_performance(bc.Logistic(), scores)
    with pytest.raises(NotFittedError):
        bc.expected_performance(bc.PriorShift(calibrator), scores)
    with pytest.raises(ValueError, match=r"costs must have shape \(2, decisions\)"):
        bc.expected_performance(calibrator, scores, costs=[1.0, 2.0])
    with pytest.raises(ValueError, match="level must"):
        bc.expected_performance(calibrator, scores, level=90)
    shift = bc.PriorShift(calibrator).fit(scores, populations=np.arange(100) % 2)
    with pytest.raises(ValueError, match="one population"):
        bc.expected_performance(shift, scores)
    shift.fit(scores)
    with pytest.raises(ValueError, match="calibration must be None"):
        bc.expected_performance(shift, scores, calibration=(scores, scores > 0))
    bc.save(calibrator, tmp_path / "c")
    loaded = bc.load(tmp_path / "c")
    with pytest.raises(ValueError, match="no calibration rows"):
        bc.expected_performance(loaded, scores)
    one = bc.expected_performance(loaded, scores, calibration=draw(400, 0.5, 0))
    assert one == bc.expected_performance(calibrator, scores)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayescal.AccuracyWarning")  # raised for 1 % of the data sets
@pytest.mark.parametrize("shifted", [False, True])
def test_intervals_contain_expected_and_realized_values(shifted: bool) -> None:
    hits = []
    share = 0.1 if shifted else 0.5
    for seed in range(60):
        calibrator = bc.Logistic(inputs="logits").fit(*draw(300, 0.5, (seed, 0)))
        scores, y = draw(500, share, (seed, 1))
        model = bc.PriorShift(calibrator).fit(scores) if shifted else calibrator
        result = bc.expected_performance(model, scores, costs=COSTS)
        probs, p = model.predict_proba(scores), expit(scores + logit(share))
        truth = np.zeros(4)
        for label, chance in enumerate((1 - p, p)):
            losses = [
                -np.log(probs[:, label]),
                (1 - probs[:, label]) ** 2,
                probs.argmax(axis=1) == label,
                np.array(COSTS)[label, (probs @ COSTS).argmin(axis=1)],
            ]
            truth += [chance @ loss / len(p) for loss in losses]
        real = metrics(probs, y)
        ends = [getattr(result, name) for name in NAMES]
        hits.append(
            [
                (
                    estimate.expected[0] <= a <= estimate.expected[1],
                    estimate.realized[0] <= b <= estimate.realized[1],
                )
                for estimate, a, b in zip(ends, truth, real, strict=True)
            ]
        )
    expected, realized = np.mean(hits, axis=(0, 1))
    assert 0.8 < expected < 0.97
    assert 0.84 < realized < 0.97


def test_what_is_printed_without_costs() -> None:
    shift = bc.PriorShift(class_prior=[0.5, 0.5], calibration_shares=[0.5, 0.5]).fit()
    probs = np.random.default_rng(0).dirichlet(np.ones(2), 50)
    lines = str(bc.expected_performance(shift, probs)).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["log_loss", "brier_score", "accuracy"]
    lines = str(bc.expected_performance(shift, probs, costs=COSTS)).splitlines()
    assert lines[-1].startswith("cost ")


def test_modes_are_those_that_scipy_finds() -> None:
    rng = np.random.default_rng(0)
    logs, codes, ones = rng.normal(size=(200, 3)), rng.integers(0, 3, 200), np.ones(200)
    logs = log_softmax(logs, axis=1)
    base = logs[:, 1] - logs[:, 0]
    columns = np.stack([base, np.ones(200), np.tanh(base / 2) ** 2], axis=1)

    def binary_loss(t: np.ndarray) -> float:
        z = base + columns @ t
        penalty = ((t / [0.5, 2.0, 1.0]) ** 2).sum() / 2
        return float((np.logaddexp(0, z) - (codes > 0) * z).sum() + penalty)

    def softmax_loss(t: np.ndarray) -> float:
        moved = log_softmax((1 + t[0]) * logs + t[1:], axis=1)
        penalty = 2 * t[0] ** 2 + (t[1:] ** 2).sum() / 8
        return float(penalty - moved[np.arange(200), codes].sum())

    mode, _ = _recalibration._binary_mode(base, ones, (codes > 0).astype(float))
    np.testing.assert_allclose(mode, minimize(binary_loss, np.zeros(3)).x, atol=1e-4)
    mode, _ = _recalibration._softmax_mode(logs, codes, ones)
    np.testing.assert_allclose(mode, minimize(softmax_loss, np.zeros(4)).x, atol=1e-4)
