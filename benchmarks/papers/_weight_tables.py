"""Tables of weight scaling, published and ours, in percent."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from benchmarks.figures import table
from benchmarks.papers._common import Row, read
from benchmarks.papers._networks import all_figures, networks

#: Networks whose predictions are available.
NAMES = {
    "cy_cifar100_resnet20": "ResNet-20, CIFAR-100",
    "cy_cifar100_vgg16_bn": "VGG-16, CIFAR-100",
    "netcal_densenet_bc_100_cifar_100": "DenseNet-BC-100, CIFAR-100",
    "cy_cifar10_resnet20": "ResNet-20, CIFAR-10",
    "cy_cifar10_vgg16_bn": "VGG-16, CIFAR-10",
    "gupta_resnet50_c10": "ResNet-50, CIFAR-10",
    "kull_densenet40_c10": "DenseNet-40, CIFAR-10",
    "netcal_lenet_5_cifar_10": "LeNet-5, CIFAR-10",
    "sctl_densenet40_c10_LT": "DenseNet-40, long-tailed CIFAR-10",
    "sctl_resnet110_c10_LT": "ResNet-110, long-tailed CIFAR-10",
    "widmann_densenet121_c10": "DenseNet-121, CIFAR-10",
    "widmann_densenet161_c10": "DenseNet-161, CIFAR-10",
}
LOSSES = {
    "cross_entropy": "cross-entropy",
    "brier": "Brier",
    "mmce": "MMCE",
    "label_smoothing": "LS .05",
    "focal": "focal, 3",
}
METHODS = {
    "uncalibrated": "none",
    "temperature": "TS",
    "vector": "vector",
    "matrix_odir": "MS-ODIR",
    "dirichlet_odir": "Dir-ODIR",
    "spline": "spline",
    "binwise_temperature": "BTS",
    "binwise_confidence": "CTS",
    "weight_scaling_bins": "CWS",
}
#: Number of knots of the library's CDFSpline.
KNOTS = 6
_PARTS = "ece", "ece_temperature", "ece_weight"


@cache
def study(name: str) -> dict[str, Any]:
    """Read the results of a study once."""
    return read(name)


def percent(value: dict[str, Any], digits: int = 2) -> str:
    """Format a mean in percent, with its standard error if there is one."""
    mean = f"{100 * value['mean']:.{digits}f}"
    return mean if value["error"] is None else f"{mean} ± {100 * value['error']:.{digits}f}"


def named(row: dict[str, Any]) -> str:
    """Return the name of a published row: network and data."""
    return f"{row['network']}, {row['data']}"


# --- table 1 ------------------------------------------------------------------------------------


def published_1() -> str:
    """Arrange the published figures of table 1."""
    rows = []
    for row in study("losses")["published"]:
        cells = [
            f"{cell['ece']:.2f} / {cell['ece_temperature']:.2f} / {cell['ece_weight']:.2f} "
            f"({cell['weight']:.1f})"
            for cell in row["losses"].values()
        ]
        rows.append([named(row), *cells])
    return table(["", *list(LOSSES.values())[:4]], rows)


def ours_1() -> str:
    """Arrange our figures for table 1."""
    rows = []
    for case in study("losses")["cases"]:
        measures = case["measures"]
        cells = [percent(measures[key]) for key in _PARTS]
        weight = f"{100 * measures['weight']['mean']:.1f}"
        difference = case["differences"]["weight less temperature"]
        rows.append(
            [
                f"{case['network']}, {case['data']}",
                LOSSES[case["loss"]],
                f"{100 * measures['accuracy']['mean']:.1f}",
                cells[0],
                f"{cells[1]} ({measures['temperature']['mean']:.2f})",
                f"{cells[2]} ({weight})",
                f"{percent(difference)}, {difference['verdict']}",
            ]
        )
    heads = ["network, images", "loss", "accuracy", "none", "TS (temperature)", "WS (weight)"]
    return table([*heads, "WS less TS"], rows)


# --- table 2 ------------------------------------------------------------------------------------


def densenet_rows() -> list[Row]:
    """Compare the figures of table 2 for DenseNet-40 with ours, including the spline."""
    rows = all_figures("weight scaling")
    results = study("weight_scaling")
    (row,) = [r for r in results["published"]["table_2"] if named(r) == "DenseNet-40, CIFAR-10"]
    ours = results["networks"]["kull_densenet40_c10"]["means"][f"spline {KNOTS}"]["mean"]
    spline = Row("`cdf_spline`, ECE, 25 bins", row["methods"]["spline"] / 100, ours, 1e-5)
    return [*rows, spline]


def published_2() -> str:
    """Arrange the published figures of table 2."""
    rows = [
        [named(row), *(f"{row['methods'][name]:.3f}" for name in METHODS)]
        for row in study("weight_scaling")["published"]["table_2"]
    ]
    return table(["published", *METHODS.values()], rows)


def errors_2() -> dict[str, dict[str, float]]:
    """Collect the ECE in 25 bins of all methods of table 2 on one split, by network."""
    errors = {}
    for name in NAMES:
        maps = networks()[name]["maps"]
        spline = study("weight_scaling")["networks"][name]["first_split"][f"spline {KNOTS}"]
        errors[name] = {
            method: spline if method == "spline" else maps[method]["ece_25"] for method in METHODS
        }
    return errors


def ours_2() -> str:
    """Arrange our figures for table 2."""
    rows = [
        [NAMES[name], *(f"{100 * errors[method]:.3f}" for method in METHODS)]
        for name, errors in errors_2().items()
    ]
    return table(["ours", *METHODS.values()], rows)


def rank_of(errors: dict[str, float], method: str = "weight_scaling_bins") -> int:
    """Compute the rank of a method, 1 for the lowest error."""
    return 1 + sum(value < errors[method] for value in errors.values())


def knots() -> str:
    """Arrange the ECE of splines by their number of knots."""
    means = study("weight_scaling")["networks"]["kull_densenet40_c10"]["means"]
    by_knots = {
        int(key.split()[1]): value for key, value in means.items() if key.startswith("spline")
    }
    return table(
        ["knots", *map(str, by_knots)],
        [["ECE", *(f"{100 * v['mean']:.3f}" for v in by_knots.values())]],
    )


# --- table 3 ------------------------------------------------------------------------------------


def published_3() -> str:
    """Arrange the published figures of table 3."""
    rows, published = [], study("weight_scaling")["published"]["table_3"]
    for row in published:
        cells = [
            f"{width:.3f} / {row['equal_mass'][b]:.3f}" for b, width in row["equal_width"].items()
        ]
        rows.append([named(row), f"{row['uncalibrated']:.3f}", *cells])
    return table(["published", "none", *(f"{b} bins" for b in published[0]["equal_width"])], rows)


def ours_3() -> str:
    """Arrange our figures for table 3."""
    rows = []
    counts = list(study("weight_scaling")["published"]["table_3"][0]["equal_mass"])
    for name in NAMES:
        results = study("weight_scaling")["networks"][name]
        means, differences = results["means"], results["differences"]
        cells = [
            f"{percent(means[f'equal_width {b}'])} / {percent(means[f'equal_mass {b}'])}"
            + _mark(differences[f"equal mass less equal width, {b} bins"]["verdict"])
            for b in counts
        ]
        rows.append([NAMES[name], percent(means["uncalibrated"]), *cells])
    return table(["ours", "none", *(f"{b} bins" for b in counts)], rows)


def _mark(verdict: str) -> str:
    return {"lower": " ↓", "higher": " ↑"}.get(verdict, "")


def count(verdicts: Iterable[str]) -> dict[str, int]:
    """Count "lower", "higher" and "not clear"."""
    listed = list(verdicts)
    return {word: listed.count(word) for word in ("lower", "higher", "not clear")}


# --- one weight ---------------------------------------------------------------------------------


def one_weight() -> str:
    """Arrange the weights and errors of the three criteria for one weight."""
    rows = []
    for name in NAMES:
        means = study("weight_scaling")["networks"][name]["means"]
        cells = []
        for criterion in ("squares", "absolute", "grid"):
            weight, loss = means[f"{criterion}, weight"], means[f"{criterion}, L2"]
            error = percent(means[f"{criterion}, ece"])
            cells.append(f"{100 * weight['mean']:.1f} / {loss['mean']:.5f} / {error}")
        rows.append([NAMES[name], *cells])
    return table(["weight / L2 / ECE", "equation 10", "equation 9", "grid, ECE"], rows)
