"""Published metrics of networks, forecasts and labels, each with its own conventions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from scipy.stats import norm, t

from bayescal import metrics
from bayescal.metrics.kernels.distances import median_distance
from bayescal.metrics.kernels.skce_test import _bound_p_value

pytestmark = pytest.mark.realdata

Load = Callable[[str], tuple[np.ndarray, np.ndarray]]

#: Accuracy, log loss and Brier score; then in percent the confidence and class-wise errors, each
#: with 15 bins of equal width and of equal mass.
NETWORKS = {
    "kull_densenet40_c10": (0.9242, 0.43006, 0.12738, 5.500, 5.493, 1.1403, 0.4449),
    "sctl_densenet40_c10_LT": (0.7211, 1.80382, 0.47767, 21.079, 21.071, 4.4861, 4.1819),
    "sctl_resnet110_c10_LT": (0.7597, 1.83662, 0.42034, 19.138, 19.138, 4.0271, 3.6954),
    "gupta_resnet50_c10": (0.9502, 0.17551, 0.08005, 1.552, 1.562, 0.4220, 0.2583),
    "netcal_lenet_5_cifar_10": (0.5308, 1.36987, 0.61415, 10.789, 10.789, 2.4060, 2.2549),
    "netcal_densenet_bc_100_cifar_100": (0.7541, 1.22563, 0.38450, 14.215, 14.215, 0.3434, 0.1009),
    "cy_cifar10_resnet20": (0.9260, 0.28152, 0.11870, 3.896, 3.824, 0.8894, 0.4443),
    "cy_cifar100_vgg16_bn": (0.7400, 1.64269, 0.43738, 18.877, 18.877, 0.4218, 0.1515),
    "widmann_densenet121_c10": (0.9272, 0.29111, 0.11873, 4.100, 4.045, 0.8769, 0.4546),
}


@pytest.fixture(scope="module")
def load_predictions(shared_data: Path) -> Load:
    def one(name: str) -> tuple[np.ndarray, np.ndarray]:
        path = shared_data / f"predictions/{name}.npz"
        with np.load(path, allow_pickle=False) as data:
            if "logits_test" in data:
                probs = softmax(data["logits_test"].astype(np.float64), axis=1)
            else:
                probs = data["probs_test"].astype(np.float64)
            return probs, data["y_test"]

    return one


@pytest.mark.parametrize("name", NETWORKS)
def test_figures_of_networks(load_predictions: Load, name: str) -> None:
    probs, y = load_predictions(name)
    accuracy, nll, brier, width, mass, by_class, by_class_mass = NETWORKS[name]
    assert metrics.accuracy(probs, y) == pytest.approx(accuracy, abs=1e-12)
    assert metrics.log_loss(probs, y, eps=0) == pytest.approx(nll, abs=5.1e-6)
    assert metrics.brier_score(probs, y) == pytest.approx(brier, abs=5.1e-6)
    for expected, options, digit in (
        (width, {}, 1e-3),
        (mass, {"binning": "equal_mass"}, 1e-3),
        (by_class, {"kind": "classwise"}, 1e-4),
        (by_class_mass, {"kind": "classwise", "binning": "equal_mass"}, 1e-4),
    ):
        result = 100 * metrics.ece(probs, y, **options)  # type: ignore[arg-type]
        assert result == pytest.approx(expected, abs=0.51 * digit), options


def test_densenet_as_published(load_predictions: Load) -> None:
    """Compare with Kull et al. (2019), who use 14 class-wise bins and sum errors over classes."""
    probs, y = load_predictions("kull_densenet40_c10")
    assert metrics.log_loss(probs, y, eps=1e-15) == pytest.approx(0.428207, abs=5e-7)
    assert metrics.brier_score(probs, y) / 10 == pytest.approx(0.012738, abs=5e-7)
    assert metrics.ece(probs, y) == pytest.approx(0.055003, abs=5e-7)
    summed = 10 * metrics.ece(probs, y, kind="classwise", bins=14)
    assert summed == pytest.approx(0.114303, abs=5e-7)
    summed = 10 * metrics.ece(probs, y, kind="classwise", bins=15)
    assert summed == pytest.approx(0.114031, abs=5e-7)


def test_loss_gap_as_published(load_predictions: Load) -> None:
    """Compare with Valk (2022), table 4, which reports 0.030 for other random losses."""
    probs, y = load_predictions("kull_densenet40_c10")
    gaps = [metrics.loss_gap(probs, y, functions=100, seed=seed) for seed in range(5)]
    error = np.std(gaps, ddof=1) / np.sqrt(5)
    # The table's mean over 500 losses has this error too, and is rounded to half a digit.
    assert abs(np.mean(gaps) - 0.030) < 3 * np.sqrt(2) * error + 0.0005


@pytest.mark.slow
@pytest.mark.parametrize("model", ["densenet121", "densenet161"])
def test_kernel_errors_as_published(load_predictions: Load, shared_data: Path, model: str) -> None:
    """Compare with Widmann et al. (2019), here with single-precision probabilities."""
    probs, y = load_predictions(f"widmann_{model}_c10")
    table = pd.read_csv(shared_data / "published/widmann_errors.csv").set_index("model")
    # All three estimators use the median bandwidth, which takes the longest to compute.
    width = median_distance(probs, np.ones(len(y)), "total_variation")
    columns = {"SKCEb": "biased", "SKCEuq": "unbiased", "SKCEul": "linear"}
    for column, estimator in columns.items():
        result = metrics.skce(probs, y, estimator=estimator, bandwidth=width)  # type: ignore[arg-type]
        expected = float(table.loc[model, f"{column}_median"])  # type: ignore[arg-type]
        assert result == pytest.approx(expected, rel=1e-5)
    expected = float(table.loc[model, "ECE_uniform"])  # type: ignore[arg-type]
    assert metrics.canonical_ece(probs, y) == pytest.approx(expected, rel=1e-6)
    published = pd.read_csv(shared_data / "published/widmann_pvalues.csv").set_index("model")
    for name, estimator, method in (
        ("SKCEb_median_distribution_free", "biased", "bound"),
        ("SKCEuq_median_distribution_free", "unbiased", "bound"),
        ("SKCEul_median_asymptotic", "linear", "asymptotic"),
    ):
        result = metrics.skce_test(probs, y, estimator=estimator, method=method, bandwidth=width)  # type: ignore[arg-type]
        p_value = result.p_value
        if method == "asymptotic":
            # They use the normal law, and divide the variance of the pairs by their number.
            pairs = len(y) // 2
            p_value = norm.sf(t.isf(p_value, pairs - 1) * np.sqrt(pairs / (pairs - 1)))
        assert p_value == pytest.approx(float(published.loc[model, name]), abs=1e-6)  # type: ignore[arg-type]
    result = metrics.skce_test(probs, y, bandwidth=width, resamples=99)
    assert float(published.loc[model, "SKCEuq_median_asymptotic"]) == 0  # type: ignore[arg-type]
    assert result.p_value == 0.01


def test_bounds_as_published(shared_data: Path) -> None:
    """Compare bounds for all fourteen networks, computed from the published estimates."""
    errors = pd.read_csv(shared_data / "published/widmann_errors.csv").set_index("model")
    published = pd.read_csv(shared_data / "published/widmann_pvalues.csv").set_index("model")
    columns = {"SKCEb": "biased", "SKCEuq": "unbiased"}
    for column, estimator in columns.items():
        result = [_bound_p_value(t, 10_000, estimator) for t in errors[f"{column}_median"]]
        expected = published[f"{column}_median_distribution_free"]
        np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("method", "score", "miscalibration", "discrimination"),
    [
        ("Logistic", 0.2057, 0.01708, 0.05554),
        ("EMOS", 0.2320, 0.01828, 0.03047),
        ("ENS", 0.2662, 0.06607, 0.04412),
        ("EPC", 0.2343, 0.02235, 0.03228),
    ],
)
def test_rain_at_niamey(
    shared_data: Path, method: str, score: float, miscalibration: float, discrimination: float
) -> None:
    """Compare with reliabilitydiag, which prints 0.232, 0.0183, 0.0305 and 0.244 for EMOS."""
    table = pd.read_csv(shared_data / "forecasts/precip_niamey_2016.csv.gz")
    result = metrics.corp(table[method], table["obs"])
    assert result.score == pytest.approx(score, abs=5.1e-5)
    assert result.miscalibration == pytest.approx(miscalibration, abs=5.1e-6)
    assert result.discrimination == pytest.approx(discrimination, abs=5.1e-6)
    assert result.uncertainty == pytest.approx(0.2442, abs=5.1e-5)


def test_basketball(shared_data: Path) -> None:
    table = pd.read_csv(shared_data / "forecasts/538_nba_games.csv.gz")
    probs, y = table["prob1"].to_numpy(), table["prob1_outcome"].to_numpy()
    assert metrics.brier_score(probs, y) == pytest.approx(0.21465, abs=5.1e-6)
    assert 100 * metrics.ece(probs, y) == pytest.approx(4.919, abs=5.1e-4)
    both = np.append(probs, table["prob2"]), np.append(y, table["prob2_outcome"])
    assert 100 * metrics.ece(*both) == pytest.approx(3.484, abs=5.1e-4)


def test_income_on_borders(shared_data: Path) -> None:
    """Check hundredths, which lie on borders of 15 bins, also in single precision."""
    with np.load(shared_data / "predictions/adult_randomforest.npz", allow_pickle=False) as data:
        probs, y = data["p"], data["y"]
    decimal = np.round(probs.astype(np.float64), 2)
    assert 100 * metrics.ece(decimal, y) == pytest.approx(4.654, abs=5.1e-4)
    assert 100 * metrics.ece(probs, y) == pytest.approx(4.654, abs=5.1e-4)
    assert metrics.log_loss(decimal, y, eps=1e-15) == pytest.approx(0.61703, abs=5.1e-6)


def test_abnormalities_of_the_heart(shared_data: Path) -> None:
    with np.load(shared_data / "multilabel/ribeiro_ecg_6.npz", allow_pickle=False) as data:
        scores, labels = data["scores"].astype(np.float64), data["labels"]
    options: dict[str, Any] = {"bins": 15, "average": "mean"}
    assert 100 * metrics.multilabel_ece(scores, labels, **options) == pytest.approx(
        1.211, abs=5.1e-4
    )
    total = metrics.multilabel_ece(scores, labels, bins=15)
    assert total == pytest.approx(0.01211 * 6, abs=3.1e-5)
