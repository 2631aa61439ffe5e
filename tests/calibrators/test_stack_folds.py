"""Weights of stacks come from rows that their members have not seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

import bayescal as bc


@pytest.mark.parametrize("seed", range(3))
def test_the_stack_does_not_see_its_labels_twice(seed: int) -> None:
    """Check few rows of many classes with true logits, where members learn only noise.

    The least penalized member learns most of the noise. It looks best on its own training rows, and
    alone it would lose 0.25 nats.
    """
    rng = np.random.default_rng(seed)
    n, k = 150, 20
    z = 2 * rng.normal(size=(n + 20_000, k))
    y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    model = bc.StackedScaling(inputs="logits", random_state=0).fit(z[:n], y[:n])
    least_penalised = len(model.stack_weights_) - 1
    assert model.stack_weights_[least_penalised] < 1 / len(model.stack_weights_)
    losses = model.held_out_mean_losses_
    assert losses[least_penalised] == max(losses)
    fresh, labels = z[n:], y[n:]
    at_labels = np.arange(len(labels)), labels
    excess = log_softmax(fresh, axis=1)[at_labels] - np.log(model.predict_proba(fresh)[at_labels])
    assert excess.mean() < 0.06


@pytest.mark.parametrize(("n", "k"), [(60, 5), (160, 20)])
def test_labels_of_pure_noise_cannot_be_foreseen(n: int, k: int) -> None:
    """Check that on noise the mean loss is at least log k, since no label can be predicted."""
    losses = []
    for seed in range(20):
        rng = np.random.default_rng(1000 * k + seed)
        z, y = 2 * rng.normal(size=(n, k)), rng.permutation(np.arange(n) % k)
        model = bc.StackedScaling(inputs="logits", random_state=0).fit(z, y)
        losses.append([*model.held_out_mean_losses_, model.held_out_losses_.mean()])
    assert np.mean(losses, axis=0).min() > np.log(k)
