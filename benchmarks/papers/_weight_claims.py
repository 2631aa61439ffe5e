"""Claims of the paper on weight scaling, checked against the results of the studies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.papers import _weight_tables as tables
from benchmarks.papers._common import Finding, agreement
from benchmarks.papers._weight_tables import count, rank_of, study
from benchmarks.papers.weight_pictures import paths

#: Smaller gaps are rounding errors in bins where nearly all confidences are one.
_MIN_GAP = 1e-4
_PAPER_LOSSES = "cross_entropy", "brier", "mmce", "label_smoothing"


def _differences(key: str) -> list[dict[str, Any]]:
    """Collect a difference for all networks with several splits."""
    networks = study("weight_scaling")["networks"].values()
    return [facts["differences"][key] for facts in networks if facts["splits"] > 1]


def _verdict_counts(verdicts: dict[str, int]) -> str:
    total = sum(verdicts.values())
    return f"clearly lower {verdicts['lower']}, higher {verdicts['higher']}, of {total}"


# --- table 1 ------------------------------------------------------------------------------------


def losses() -> list[Finding]:
    """Check the claims on table 1."""
    results = study("losses")
    cells = [figures for row in results["published"] for figures in row["losses"].values()]
    lower = sum(figures["ece_weight"] < figures["ece_temperature"] for figures in cells)
    same = sum(figures["ece_weight"] == figures["ece_temperature"] for figures in cells)
    cases = [case for case in results["cases"] if case["loss"] in _PAPER_LOSSES]
    differences = [case["differences"]["weight less temperature"] for case in cases]
    ours = sum(difference["mean"] < 0 for difference in differences)
    clear = count(difference["verdict"] for difference in differences)
    before = [figures["ece"] for figures in cells]
    errors = [100 * case["measures"]["ece"]["mean"] for case in cases]
    whole = [figures["ece"] for figures in cells if figures["weight"] == 100]
    our_whole = [
        100 * case["measures"]["ece"]["mean"]
        for case in cases
        if case["measures"]["weight"]["mean"] > 0.999
    ]
    by_loss = count(
        case["differences"]["temperature by error less by log loss"]["verdict"]
        for case in results["cases"]
    )
    return [
        Finding(
            "table 1, ECE of networks before scaling",
            f"{min(before):.2f} to {max(before):.2f} %",
            f"{min(errors):.2f} to {max(errors):.2f} %",
            "other networks and images: theirs cannot be had",
        ),
        Finding(
            "claim: WS has a lower ECE than TS in half of all cases",
            f"{lower} of {len(cells)}, {same} equal",
            f"{ours} of {len(cases)}; {_verdict_counts(clear)}",
            "does not hold here, nor quite in the paper's table"
            if ours < len(cases) / 2
            else "holds here",
        ),
        Finding(
            "claim: a temperature of the least ECE is better than of the least log loss",
            "stated",
            _verdict_counts(by_loss),
            "not seen" if by_loss["lower"] <= len(results["cases"]) / 4 else "holds in part",
        ),
        Finding(
            "claim: a weight of 100 % says that a network is calibrated",
            f"of ECE {min(whole):.2f} to {max(whole):.2f} %",
            f"{min(our_whole):.2f} to {max(our_whole):.2f} %" if our_whole else "none",
            "does not hold: underconfident networks have it too",
        ),
    ]


# --- table 2 ------------------------------------------------------------------------------------


def methods() -> list[Finding]:
    """Check the claims on table 2."""
    published = study("weight_scaling")["published"]["table_2"]
    published_ranks = [rank_of(row["methods"]) for row in published]
    our_ranks = [rank_of(errors) for errors in tables.errors_2().values()]
    calibrated = [
        row["methods"]["binwise_confidence"] < row["methods"]["binwise_temperature"]
        for row in published
    ]
    networks = study("weight_scaling")["networks"]
    means = [facts["differences"]["CTS less BTS"]["mean"] < 0 for facts in networks.values()]
    clear = count(gap["verdict"] for gap in _differences("CTS less BTS"))
    gaps = [gap for name in networks for gap in _gaps(name)]
    under = [gap for gap in gaps if gap > _MIN_GAP]
    variants = study("weight_scaling")["variants"]
    first = sum(rank == 1 for rank in published_ranks)
    return [
        agreement("table 2, DenseNet-40", tables.densenet_rows()),
        Finding(
            "table 2, other networks", f"{len(published) - 1} networks", "none", "not to be had"
        ),
        Finding(
            "table 2, BTS, CTS and CWS by bins, ties, borders and grids",
            ", ".join(f"{100 * variant['published']:.3f}" for variant in variants.values()),
            ", ".join(
                f"{100 * variant['least']:.3f} to {100 * variant['greatest']:.3f}"
                for variant in variants.values()
            ),
            f"{sum(variant['agree'] for variant in variants.values())} of "
            f"{sum(variant['ways'] for variant in variants.values())} ways agree",
        ),
        Finding(
            "claim: CWS is best or second best in most cases",
            f"{sum(rank <= 2 for rank in published_ranks)} of {len(published_ranks)}",
            f"{sum(rank <= 2 for rank in our_ranks)} of {len(our_ranks)}",
            "holds"
            if sum(rank <= 2 for rank in our_ranks) > len(our_ranks) / 2
            else "does not hold",
        ),
        Finding(
            "claim: CWS has the lowest error in the majority",
            f"{first} of {len(published_ranks)}",
            f"{sum(rank == 1 for rank in our_ranks)} of {len(our_ranks)}",
            "holds"
            if sum(rank == 1 for rank in our_ranks) > len(our_ranks) / 2
            else "does not hold"
            + (", nor in the paper's table" if first <= len(published_ranks) / 2 else ""),
        ),
        Finding(
            "claim: CTS is consistently better than BTS",
            f"{sum(calibrated)} of {len(calibrated)}",
            f"{sum(means)} of {len(means)}; {_verdict_counts(clear)}",
            "mostly" if sum(means) > len(means) / 2 else "does not hold",
        ),
        Finding(
            "claim: bins that are underconfident are rare",
            "3 networks with one",
            f"{len(under)} of {len(gaps)} bins by more than .01 %, {100 * max(gaps):.2f} % at most",
            "holds" if len(under) < len(gaps) / 10 else "does not hold",
        ),
    ]


def _gaps(network: str) -> list[float]:
    """Compute accuracy minus confidence by bin."""
    bins = study("weight_scaling")["networks"][network]["bins"]
    return [
        accuracy - confidence
        for accuracy, confidence in zip(bins["accuracy"], bins["confidence"], strict=True)
    ]


# --- table 3 ------------------------------------------------------------------------------------


def bins() -> list[Finding]:
    """Check the claims on table 3."""
    results = study("weight_scaling")
    published = results["published"]["table_3"]
    theirs = [
        row["equal_mass"][b] < width for row in published for b, width in row["equal_width"].items()
    ]
    counts = [int(b) for b in published[0]["equal_mass"]]
    key = "equal mass less equal width, {} bins"
    ours = [
        net["differences"][key.format(b)]["mean"] < 0
        for net in results["networks"].values()
        for b in counts
    ]
    clear = count(gap["verdict"] for b in counts for gap in _differences(key.format(b)))
    others = [b for b in counts if b != results["bins"]]
    by_bins = count(
        gap["verdict"]
        for b in others
        for gap in _differences(f"{b} bins of equal mass less {results['bins']}")
    )
    spread = [max(r["equal_mass"].values()) - min(r["equal_mass"].values()) for r in published]
    return [
        Finding(
            "claim: CWS is lower than ECWS in most cases",
            f"{sum(theirs)} of {len(theirs)}",
            f"{sum(ours)} of {len(ours)}; {_verdict_counts(clear)}",
            "holds"
            if sum(ours) > len(ours) / 2 and clear["lower"] > clear["higher"]
            else "does not hold",
        ),
        Finding(
            "claim: the number of bins of CWS has no significant impact",
            f"ECE differ by {min(spread):.2f} to {max(spread):.2f} %",
            f"beside {results['bins']} bins: {_verdict_counts(by_bins)}",
            "holds"
            if by_bins["lower"] + by_bins["higher"] <= sum(by_bins.values()) / 20
            else "holds with exceptions",
        ),
    ]


# --- figures ------------------------------------------------------------------------------------


def figures() -> list[Finding]:
    """Check the claims on the figures."""
    networks = study("weight_scaling")["networks"]
    ranks = [facts["rank_correlation"] for facts in networks.values()]
    more = sum(
        correlations["weight"] > correlations["inverse_temperature"] for correlations in ranks
    )
    weights = [correlations["weight"] for correlations in ranks]
    temperatures = [correlations["inverse_temperature"] for correlations in ranks]
    # If the other probabilities are equal, the weight with the confidence of a temperature has the
    # same probabilities.
    start = np.array([0.6, 0.2, 0.2])
    temperature_path = paths(start)[1]
    weight = (temperature_path[:, :1] - 1 / 3) / (start[0] - 1 / 3)
    distance = np.abs(weight * start + (1 - weight) / 3 - temperature_path).max()
    curves = networks["cy_cifar100_vgg16_bn"]["reliability"]
    return [
        Finding("figure 1", "two paths", "drawn", "agrees"),
        Finding(
            "claim: both scalings are one path where all other probabilities are equal",
            "stated",
            f"{distance:.0e} apart",
            "holds",
        ),
        Finding(
            "figure 2, weights rise with the bins",
            "2 networks drawn",
            f"rank correlation {min(weights):.2f} to {max(weights):.2f} in {len(weights)}",
            "holds" if min(weights) > 0.5 else "holds in part",
        ),
        Finding(
            "figure 2, reciprocal temperatures do so less consistently",
            "2 networks drawn",
            f"{min(temperatures):.2f} to {max(temperatures):.2f}; lower in {more} of {len(ranks)}",
            "holds" if more > 0.9 * len(ranks) else "holds in part",
        ),
        Finding(
            "figure 3, both CTS and CWS calibrate",
            "a network drawn",
            ", ".join(f"{name} {_error(curve):.2f} %" for name, curve in curves.items()),
            "holds, of another network",
        ),
    ]


def _error(curve: dict[str, list[float]]) -> float:
    """Compute the calibration error of a reliability curve, in percent."""
    gaps = np.abs(np.subtract(curve["predicted"], curve["observed"]))
    return float(100 * np.average(gaps, weights=curve["weight"]))


# --- one weight, and other claims ---------------------------------------------------------------


def one_weight() -> list[Finding]:
    """Check the claims on equations 9 and 10."""
    networks = [facts["means"] for facts in study("weight_scaling")["networks"].values()]
    criteria = "squares", "absolute", "grid"

    def best(criterion: str, what: str) -> int:
        others = [other for other in criteria if other != criterion]
        return sum(
            all(
                means[f"{criterion}, {what}"]["mean"] <= means[f"{o}, {what}"]["mean"]
                for o in others
            )
            for means in networks
        )

    total = len(networks)
    worse = sum(
        means["squares, ece"]["mean"] > means["absolute, ece"]["mean"] for means in networks
    )
    clear = count(gap["verdict"] for gap in _differences("squares less absolute, test"))
    cases = study("losses")["cases"]
    trained = count(
        case["differences"]["weight in closed form less by error"]["verdict"] for case in cases
    )
    return [
        Finding(
            "equation 10 minimizes the L2 score",
            "stated",
            f"lowest in {best('squares', 'L2')} of {total}",
            "holds" if best("squares", "L2") == total else "does not hold",
        ),
        Finding(
            "claim: equation 10 has a worse ECE than equation 9",
            "stated",
            f"{worse} of {total} higher; {_verdict_counts(clear)}",
            "holds" if worse > 0.75 * total else "not seen",
        ),
        Finding(
            "claim: equation 10 has a worse ECE than the grid",
            "stated",
            f"grid lowest in {best('grid', 'ece')} of {total}; in table 1's networks "
            f"{_verdict_counts(trained)}",
            "holds" if best("grid", "ece") > total / 2 else "not seen",
        ),
    ]


def others() -> list[Finding]:
    """Check the remaining claims."""
    networks = list(study("weight_scaling")["networks"].values())

    def spread(key: str, write: Callable[[float], str]) -> str:
        values = [facts["means"][key]["mean"] for facts in networks]
        return f"{write(min(values))} to {write(max(values))}"

    passes = count(gap["verdict"] for gap in _differences("five passes less one"))
    changed = max(facts["means"]["classes changed"]["mean"] for facts in networks)
    return [
        Finding(
            "claim: more passes of CWS change nothing significantly",
            "stated",
            _verdict_counts(passes),
            "holds" if not passes["lower"] + passes["higher"] else "does not hold",
        ),
        Finding(
            "claim: accuracies stay as they are",
            "stated",
            f"{100 * changed:.2f} % of rows at most change class",
            "holds" if changed == 0 else "does not hold",
        ),
        Finding(
            "claim: one temperature changes the order of confidences",
            "stated",
            f"TS: {spread('exchanged by temperature', _short)} of pairs; "
            f"CWS: {spread('exchanged by weights', _short)}",
            "TS does; weights by bins exchange pairs too, in some networks more",
        ),
    ]


def _short(share: float) -> str:
    return f"{100 * share:.1f} %"
