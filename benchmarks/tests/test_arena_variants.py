"""Variants of the default calibrators: the shipped variants equal the package's classes."""

import numpy as np
import pytest

import bayescal as bc
from benchmarks.arena_variants import averages, mixtures
from benchmarks.studies.arena import Experiment


def _experiment(k: int) -> Experiment:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(240, k))
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    probs = np.exp(3 * logits) / np.exp(3 * logits).sum(axis=1, keepdims=True)
    return Experiment("made", "made", "probs", probs[:120], y[:120], probs[120:], y[120:])


def _loss(calibrator: bc.AveragedBeta | bc.StackedScaling, data: Experiment) -> float:
    calibrator.fit(data.scores, data.y)
    return bc.metrics.log_loss(calibrator.predict_proba(data.test_scores), data.test_y)


def test_ours_of_two_classes_is_averaged_beta() -> None:
    data = _experiment(2)
    losses = averages(data)
    assert losses["ours"] == pytest.approx(_loss(bc.AveragedBeta(), data), abs=1e-6)
    assert losses["published"] == pytest.approx(_loss(bc.AveragedBeta(power=1.0), data), abs=1e-6)


@pytest.mark.slow
def test_ours_of_several_classes_is_stacked_scaling() -> None:
    data = _experiment(3)
    losses = mixtures(data, 120)
    assert losses["ours"] == pytest.approx(_loss(bc.StackedScaling(), data), abs=1e-6)
    assert np.isfinite(list(losses.values())).all()
