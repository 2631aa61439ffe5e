"""Which calibrator Auto chooses, and whether its report is accurate."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax

import bayescal as bc

Array = np.ndarray


def binary(n: int, slope: float, seed: int = 0) -> tuple[Array, Array]:
    """Draw probabilities, and labels whose true log odds are ``slope`` times theirs."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, n)
    return expit(z), (rng.random(n) < expit(slope * z)).astype(int)


def several(n: int, k: int = 4) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (n, k))
    return z, (rng.random((n, 1)) > np.cumsum(softmax(z / 2, axis=1), axis=1)).sum(axis=1)


def test_two_classes() -> None:
    p, y = binary(800, 0.4)
    names = np.array(["no", "yes"])[y]
    auto = bc.Auto().fit(p, names)
    plain = bc.AveragedBeta().fit(p, names)
    np.testing.assert_array_equal(auto.predict_proba(p), plain.predict_proba(p))
    np.testing.assert_array_equal(auto.predict_interval(p[:5]), plain.predict_interval(p[:5]))
    assert auto.classes_.tolist() == ["no", "yes"]
    assert set(auto.predict(p)) == {"no", "yes"}
    report = auto.report_
    assert (report.calibrator, report.reason) == ("AveragedBeta", "two classes")
    assert (report.rows, report.classes) == (800, 2)
    assert sum(report.members.values()) == pytest.approx(1)
    assert report.helps
    label_probs = np.where(y == 1, p, 1 - p)
    assert report.uncalibrated == pytest.approx(-np.log(label_probs).mean())


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 1000])
def test_expected_loss_is_unbiased(n: int) -> None:
    """Check that the mean over data sets is within three standard errors and 2e-3 of the true loss.

    Subtracting the sampling error of the true probabilities' loss removes most of the spread.
    """
    at = np.linspace(-8, 8, 161)
    density = np.exp(-(at**2) / 8)
    density /= density.sum()
    result = []
    for seed in range(4000 // n + 20):
        rng = np.random.default_rng(seed)
        z = rng.normal(0, 2, n)
        p, truth = expit(0.5 * z + 0.3), expit(0.5 * at + 0.3)
        y = (rng.random(n) < p).astype(int)
        auto = bc.Auto(inputs="logits", classes=[0, 1]).fit(z, y)
        q = auto.predict_proba(at)[:, 1]
        loss = -density @ (truth * np.log(q) + (1 - truth) * np.log1p(-q))
        entropy = -density @ (truth * np.log(truth) + (1 - truth) * np.log1p(-truth))
        luck = -np.log(np.where(y == 1, p, 1 - p)).mean() - entropy
        result.append(auto.report_.log_loss - luck - loss)
    assert abs(np.mean(result)) < 3 * np.std(result) / np.sqrt(len(result)) + 2e-3


def test_scores_of_zero_and_one_are_judged_as_they_are() -> None:
    p, y = binary(200, 0.5)
    p[:10], p[10:20] = 0, 1
    y[:20] = np.tile([0, 1], 10)
    label_probs = np.maximum(np.where(y == 1, p, 1 - p), np.finfo(np.float32).tiny)
    for scores in (p, np.stack([1 - p, p], axis=1)):
        assert bc.Auto().fit(scores, y).report_.uncalibrated == pytest.approx(
            -np.log(label_probs).mean()
        )


def test_report_is_computed_when_it_is_asked_for(tmp_path: Path) -> None:
    p, y = binary(300, 0.5)
    auto = bc.Auto().fit(p, y)
    copy = pickle.loads(pickle.dumps(auto))
    bc.save(auto, tmp_path / "auto.npz")
    assert "report_" not in vars(auto)
    assert copy.report_ == auto.report_ == bc.load(tmp_path / "auto.npz").report_
    before = auto.report_
    assert auto.fit(p[:100], y[:100]).report_ != before
    assert not hasattr(bc.Auto(), "report_")


@pytest.mark.parametrize("mode", ["stack", "single"])
def test_several_classes(mode: str) -> None:
    z, y = several(900)
    auto = bc.Auto(inputs="logits", mode=mode).fit(z, y)
    plain = bc.StackedScaling(mode, inputs="logits", random_state=0).fit(z, y)  # type: ignore[arg-type]
    np.testing.assert_array_equal(auto.predict_proba(z), plain.predict_proba(z))
    report = auto.report_
    assert report.calibrator == "StackedScaling"
    assert report.helps
    assert report.uncalibrated == pytest.approx(-log_softmax(z, axis=1)[np.arange(900), y].mean())
    assert report.log_loss == pytest.approx(bc.metrics.log_loss(auto.predict_proba(z), y), abs=0.05)
    assert sum(report.members.values()) == pytest.approx(1)
    assert len(report.members) == (10 if mode == "stack" else 1)
    lower, upper = auto.predict_interval(z)
    assert ((lower < auto.predict_proba(z)) & (auto.predict_proba(z) < upper)).mean() > 0.99
    np.testing.assert_array_equal((lower, upper), plain.predict_interval(z))


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_very_many_classes_have_no_interval_without_asking() -> None:
    z, y = several(900, 40)
    auto = bc.Auto(inputs="logits", classes=range(40)).fit(z, y)
    with pytest.raises(AttributeError, match="with 30 and more classes"):
        auto.predict_interval(z)
    with pytest.raises(AttributeError, match="laplace"):
        auto.calibrators_[0].predict_interval(z)
    with pytest.raises(AttributeError, match="use AveragedBeta"):
        auto.partial_fit(z, y)


@pytest.mark.parametrize("inference", ["map", "laplace"])
def test_intervals_of_several_classes(inference: Any) -> None:
    z, y = several(400)
    auto = bc.Auto(inputs="logits", inference=inference).fit(z, y)
    lower, upper = auto.predict_interval(z[:20])
    p = auto.predict_proba(z[:20])
    assert ((lower < p) & (p < upper)).all()
    # The true logits are half of the scores.
    truth = softmax(z[:20] / 2, axis=1)
    assert ((lower < truth) & (truth < upper)).mean() > 0.6


def test_labels_that_do_not_exclude_each_other() -> None:
    parts = [binary(300, slope, seed) for seed, slope in enumerate((0.4, 1.0, 2.0))]
    p, y = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
    auto = bc.Auto().fit(p, y)
    plain = bc.MultiLabel(bc.AveragedBeta()).fit(p, y)
    np.testing.assert_array_equal(auto.predict_proba(p), plain.predict_proba(p))
    assert auto.report_.calibrator == "MultiLabel(AveragedBeta)"
    assert auto.report_.classes == 3
    label_probs = np.where(y == 1, p, 1 - p)
    assert auto.report_.uncalibrated == pytest.approx(-np.log(label_probs).mean())


def test_raw_scores_of_any_scale() -> None:
    z = np.random.default_rng(0).normal(0, 2, 500)
    y = (np.random.default_rng(1).random(500) < expit(z)).astype(int)
    result = []
    for scale, shift in ((1.0, 0.0), (1e-4, 3.0), (1e5, -7e5)):
        auto = bc.Auto(inputs="scores").fit(scale * z + shift, y)
        result.append(auto.predict_proba(scale * z + shift)[:, 1])
        assert auto.report_.calibrator == "Composition(Logistic, AveragedBeta)"
        assert auto.report_.gain is None
    np.testing.assert_allclose(result[1:], [result[0]] * 2, atol=1e-4)


@pytest.mark.parametrize("inputs", ["probs", "scores", "logits"])
def test_weights_are_repeated_rows(inputs: Any) -> None:
    """Check predictions and reports for any order of rows, since equal rows share folds."""
    p, y = several(90) if inputs == "logits" else binary(120, 0.5)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    one = bc.Auto(inputs=inputs).fit(p, y, weights)
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(len(y)), weights))
    other = bc.Auto(inputs=inputs).fit(p[rows], y[rows])
    atol, rel = (1e-5, 1e-4) if inputs == "logits" else (1e-9, None)
    np.testing.assert_allclose(one.predict_proba(p), other.predict_proba(p), atol=atol)
    for name in ("log_loss", "log_loss_error", "gain", "gain_error", "uncalibrated"):
        assert getattr(one.report_, name) == pytest.approx(getattr(other.report_, name), rel=rel), (
            name
        )


def test_exchanging_the_classes_changes_nothing_of_the_report() -> None:
    p, y = binary(200, 0.5)
    one, other = bc.Auto().fit(p, y).report_, bc.Auto().fit(1 - p, 1 - y).report_
    assert one.members == pytest.approx(other.members, abs=1e-6)
    for name in ("log_loss", "log_loss_error", "gain", "gain_error", "uncalibrated"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-6), name


def test_few_rows_and_one_class() -> None:
    """Check that nothing is expected of a single row."""
    for k, n in ((2, 1), (2, 3), (3, 1), (40, 1)):
        p = np.linspace(0.2, 0.6, n) if k == 2 else np.full((1, k), 1 / k)
        auto = bc.Auto(classes=range(k)).fit(p, np.zeros(n, int))
        assert np.isfinite(auto.predict_proba(p)).all()
        if n == 1:
            report = auto.report_
            assert (report.log_loss, report.gain, report.helps) == (None, None, None)
            assert "too few different rows" in str(report)
            assert sum(report.members.values()) == pytest.approx(1)
        if k > 2:
            assert auto.predict_proba(p)[0, 0] > 1.1 / k
    with pytest.raises(ValueError, match="only one class"):
        bc.Auto().fit([0.2, 0.4], [1, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": "percent"}, "inputs must be"),
        ({"folds": 1}, "folds must be at least 2"),
        ({"inference": "vi"}, "inference must be"),
        ({"mode": "best"}, "mode must be"),
        ({"random_state": "now"}, "cannot be used to seed"),
        ({"inputs": "scores"}, "the decision values of several classes as logits"),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    z, y = several(20, 3)
    with pytest.raises(ValueError, match=message):
        bc.Auto(**options).fit(softmax(z, axis=1), y)
    if options.get("inputs") != "scores":
        with pytest.raises(ValueError, match=message):
            bc.Auto(**options).fit([0.2, 0.4], [0, 1])
