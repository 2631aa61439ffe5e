"""Figures published for a DenseNet-40 on CIFAR-10 (Kull et al. 2019)."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from bayescal import metrics

pytestmark = pytest.mark.realdata


@pytest.fixture(scope="module")
def network(shared_data: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(shared_data / "predictions/kull_densenet40_c10.npz", allow_pickle=False) as data:
        return softmax(data["logits_test"].astype(np.float64), axis=1), data["y_test"]


def test_scores(network: tuple[np.ndarray, np.ndarray]) -> None:
    assert metrics.accuracy(*network) == pytest.approx(0.9242, abs=1e-12)
    assert metrics.log_loss(*network, eps=0) == pytest.approx(0.43006, abs=5e-6)
    assert metrics.log_loss(*network, eps=1e-15) == pytest.approx(0.428207, abs=5e-7)
    assert metrics.brier_score(*network) == pytest.approx(0.12738, abs=5e-6)


def test_calibration_errors(network: tuple[np.ndarray, np.ndarray]) -> None:
    assert metrics.ece(*network) == pytest.approx(0.055003, abs=5e-7)
    assert metrics.ece(*network, binning="equal_mass") == pytest.approx(0.05493, abs=5e-6)
