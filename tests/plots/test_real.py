"""Plots of real predictions: published values, and maps whose arrows once overlapped."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import bayescal as bc
from bayescal import plots

pytestmark = pytest.mark.realdata

Parts = dict[str, np.ndarray]


def load(shared_data: Path, name: str) -> Parts:
    with np.load(shared_data / f"predictions/{name}.npz", allow_pickle=False) as data:
        return dict(data)


def test_legend_has_the_published_errors(shared_data: Path) -> None:
    data = load(shared_data, "kull_densenet40_c10")
    scaled = bc.Temperature(inputs="logits").fit(data["logits_val"], data["y_val"])
    raw = softmax(data["logits_test"].astype(float), axis=1)
    models: dict[str, Any] = {"DenseNet-40": raw, "temperature": scaled}
    given: Any = models, data["logits_test"], data["y_test"]
    legend: Any = plots.reliability(*given, bins=15, legend=("ece", "n")).get_legend()
    # Kull et al. (2019): 5.5003 %, and 0.9464 % after temperature scaling.
    expected = ["DenseNet-40\nECE 0.055, n = 10,000", "temperature\nECE 0.009, n = 10,000"]
    assert [text.get_text() for text in legend.get_texts()] == expected
    titles = [ax.get_title() for ax in plots.by_model(*given, bins=15)]
    assert titles == ["DenseNet-40\nECE 0.055", "temperature\nECE 0.009"]


@pytest.mark.parametrize("name", ["kull_densenet40_c10", "sctl_resnet110_c10_LT"])
def test_arrows_of_networks_do_not_cross(shared_data: Path, name: str) -> None:
    data, classes = load(shared_data, name), [3, 5, 4]
    rows = np.isin(data["y_val"], classes)
    probs = softmax(data["logits_val"][rows][:, classes].astype(float), axis=1)
    y = np.array([classes.index(label) for label in data["y_val"][rows]])
    ax = plots.simplex(bc.Dirichlet().fit(probs, y))
    arrows: Any = next(collection for collection in ax.collections if hasattr(collection, "U"))
    step = np.stack([arrows.U, arrows.V], axis=1)
    start = arrows.XY
    assert np.linalg.norm(step, axis=1).max() == pytest.approx(0.9 / 12)
    # Without clipping, two or three dozen pairs of arrows would overlap.
    first, second = np.triu_indices(len(start), 1)
    gap = start[second] - start[first]

    def cross(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0]

    turn = cross(step[first], step[second])
    with np.errstate(divide="ignore", invalid="ignore"):
        along, across = cross(gap, step[second]) / turn, cross(gap, step[first]) / turn
    meet = (along > 0) & (along < 1) & (across > 0) & (across < 1)
    assert not meet.any()
