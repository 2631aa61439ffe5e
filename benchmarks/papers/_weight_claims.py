"""Claims of weight scaling, judged by what the studies found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.papers import _weight_tables as tables
from benchmarks.papers._common import Finding, counted
from benchmarks.papers._weight_tables import count, place, study
from benchmarks.papers.weight_pictures import paths

#: What is more than rounding where nearly all confidences are one.
_NOTICED = 1e-4
_PAPER_LOSSES = "cross_entropy", "brier", "mmce", "label_smoothing"


def _every(key: str) -> list[dict[str, Any]]:
    """Return a difference of all networks that have several splits."""
    networks = study("weight_scaling")["networks"].values()
    return [own["differences"][key] for own in networks if own["splits"] > 1]


def _said(verdicts: dict[str, int]) -> str:
    total = sum(verdicts.values())
    return f"clearly lower {verdicts['lower']}, higher {verdicts['higher']}, of {total}"


# --- table 1 ------------------------------------------------------------------------------------


def losses() -> list[Finding]:
    found = study("losses")
    cells = [own for row in found["published"] for own in row["losses"].values()]
    lower = sum(own["ece_weight"] < own["ece_temperature"] for own in cells)
    same = sum(own["ece_weight"] == own["ece_temperature"] for own in cells)
    cases = [case for case in found["cases"] if case["loss"] in _PAPER_LOSSES]
    gaps = [case["differences"]["weight less temperature"] for case in cases]
    ours = sum(gap["mean"] < 0 for gap in gaps)
    clear = count(gap["verdict"] for gap in gaps)
    before = [own["ece"] for own in cells]
    errors = [100 * case["measures"]["ece"]["mean"] for case in cases]
    whole = [own["ece"] for own in cells if own["weight"] == 100]
    own_whole = [
        100 * case["measures"]["ece"]["mean"]
        for case in cases
        if case["measures"]["weight"]["mean"] > 0.999
    ]
    by_loss = count(
        case["differences"]["temperature by error less by log loss"]["verdict"]
        for case in found["cases"]
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
            f"{ours} of {len(cases)}; {_said(clear)}",
            "does not hold here, nor quite in the paper's table"
            if ours < len(cases) / 2
            else "holds here",
        ),
        Finding(
            "claim: a temperature of the least ECE is better than of the least log loss",
            "stated",
            _said(by_loss),
            "not seen" if by_loss["lower"] <= len(found["cases"]) / 4 else "holds in part",
        ),
        Finding(
            "claim: a weight of 100 % says that a network is calibrated",
            f"of ECE {min(whole):.2f} to {max(whole):.2f} %",
            f"{min(own_whole):.2f} to {max(own_whole):.2f} %" if own_whole else "none",
            "does not hold: underconfident networks have it too",
        ),
    ]


# --- table 2 ------------------------------------------------------------------------------------


def methods() -> list[Finding]:
    published = study("weight_scaling")["published"]["table_2"]
    theirs = [place(row["methods"]) for row in published]
    ours = [place(own) for own in tables.errors_2().values()]
    calibrated = [
        row["methods"]["binwise_confidence"] < row["methods"]["binwise_temperature"]
        for row in published
    ]
    networks = study("weight_scaling")["networks"]
    means = [own["differences"]["CTS less BTS"]["mean"] < 0 for own in networks.values()]
    clear = count(gap["verdict"] for gap in _every("CTS less BTS"))
    gaps = [gap for name in networks for gap in _gaps(name)]
    under = [gap for gap in gaps if gap > _NOTICED]
    variants = study("weight_scaling")["variants"]
    first = sum(rank == 1 for rank in theirs)
    return [
        counted("table 2, DenseNet-40", tables.densenet_rows()),
        Finding(
            "table 2, other networks", f"{len(published) - 1} networks", "none", "not to be had"
        ),
        Finding(
            "table 2, BTS, CTS and CWS by bins, ties, borders and grids",
            ", ".join(f"{100 * own['published']:.3f}" for own in variants.values()),
            ", ".join(
                f"{100 * own['least']:.3f} to {100 * own['greatest']:.3f}"
                for own in variants.values()
            ),
            f"{sum(own['agree'] for own in variants.values())} of "
            f"{sum(own['ways'] for own in variants.values())} ways agree",
        ),
        Finding(
            "claim: CWS is best or second best in most cases",
            f"{sum(rank <= 2 for rank in theirs)} of {len(theirs)}",
            f"{sum(rank <= 2 for rank in ours)} of {len(ours)}",
            "holds" if sum(rank <= 2 for rank in ours) > len(ours) / 2 else "does not hold",
        ),
        Finding(
            "claim: CWS has the lowest error in the majority",
            f"{first} of {len(theirs)}",
            f"{sum(rank == 1 for rank in ours)} of {len(ours)}",
            "holds"
            if sum(rank == 1 for rank in ours) > len(ours) / 2
            else "does not hold"
            + (", nor in the paper's table" if first <= len(theirs) / 2 else ""),
        ),
        Finding(
            "claim: CTS is consistently better than BTS",
            f"{sum(calibrated)} of {len(calibrated)}",
            f"{sum(means)} of {len(means)}; {_said(clear)}",
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
    """Return accuracy less confidence by bin."""
    own = study("weight_scaling")["networks"][network]["bins"]
    return [right - sure for right, sure in zip(own["accuracy"], own["confidence"], strict=True)]


# --- table 3 ------------------------------------------------------------------------------------


def bins() -> list[Finding]:
    own = study("weight_scaling")
    published = own["published"]["table_3"]
    theirs = [
        row["equal_mass"][b] < width for row in published for b, width in row["equal_width"].items()
    ]
    counts = [int(b) for b in published[0]["equal_mass"]]
    key = "equal mass less equal width, {} bins"
    ours = [
        net["differences"][key.format(b)]["mean"] < 0
        for net in own["networks"].values()
        for b in counts
    ]
    clear = count(gap["verdict"] for b in counts for gap in _every(key.format(b)))
    others = [b for b in counts if b != own["bins"]]
    bins = count(
        gap["verdict"]
        for b in others
        for gap in _every(f"{b} bins of equal mass less {own['bins']}")
    )
    spread = [max(r["equal_mass"].values()) - min(r["equal_mass"].values()) for r in published]
    return [
        Finding(
            "claim: CWS is lower than ECWS in most cases",
            f"{sum(theirs)} of {len(theirs)}",
            f"{sum(ours)} of {len(ours)}; {_said(clear)}",
            "holds"
            if sum(ours) > len(ours) / 2 and clear["lower"] > clear["higher"]
            else "does not hold",
        ),
        Finding(
            "claim: the number of bins of CWS has no significant impact",
            f"ECE differ by {min(spread):.2f} to {max(spread):.2f} %",
            f"beside {own['bins']} bins: {_said(bins)}",
            "holds"
            if bins["lower"] + bins["higher"] <= sum(bins.values()) / 20
            else "holds with exceptions",
        ),
    ]


# --- figures ------------------------------------------------------------------------------------


def figures() -> list[Finding]:
    networks = study("weight_scaling")["networks"]
    ranks = [own["rank_correlation"] for own in networks.values()]
    more = sum(own["weight"] > own["inverse_temperature"] for own in ranks)
    weights = [own["weight"] for own in ranks]
    temperatures = [own["inverse_temperature"] for own in ranks]
    # Equal other probabilities: temperature 1/s leads to the weight that gives the confidence.
    start = np.array([0.6, 0.2, 0.2])
    cooled = paths(start)[1]
    share = (cooled[:, :1] - 1 / 3) / (start[0] - 1 / 3)
    apart = np.abs(share * start + (1 - share) / 3 - cooled).max()
    curves = networks["cy_cifar100_vgg16_bn"]["reliability"]
    return [
        Finding("figure 1", "two paths", "drawn", "agrees"),
        Finding(
            "claim: both scalings are one path where all other probabilities are equal",
            "stated",
            f"{apart:.0e} apart",
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
    gaps = np.abs(np.subtract(curve["predicted"], curve["observed"]))
    return float(100 * np.average(gaps, weights=curve["weight"]))


# --- one weight, and other claims ---------------------------------------------------------------


def one_weight() -> list[Finding]:
    networks = [own["means"] for own in study("weight_scaling")["networks"].values()]
    ways = "squares", "absolute", "grid"

    def best(way: str, what: str) -> int:
        others = [other for other in ways if other != way]
        return sum(
            all(own[f"{way}, {what}"]["mean"] <= own[f"{o}, {what}"]["mean"] for o in others)
            for own in networks
        )

    total = len(networks)
    worse = sum(own["squares, ece"]["mean"] > own["absolute, ece"]["mean"] for own in networks)
    clear = count(gap["verdict"] for gap in _every("squares less absolute, test"))
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
            f"{worse} of {total} higher; {_said(clear)}",
            "holds" if worse > 0.75 * total else "not seen",
        ),
        Finding(
            "claim: equation 10 has a worse ECE than the grid",
            "stated",
            f"grid lowest in {best('grid', 'ece')} of {total}; in table 1's networks "
            f"{_said(trained)}",
            "holds" if best("grid", "ece") > total / 2 else "not seen",
        ),
    ]


def others() -> list[Finding]:
    networks = list(study("weight_scaling")["networks"].values())

    def spread(key: str, write: Callable[[float], str]) -> str:
        values = [own["means"][key]["mean"] for own in networks]
        return f"{write(min(values))} to {write(max(values))}"

    passes = count(gap["verdict"] for gap in _every("five passes less one"))
    changed = max(own["means"]["classes changed"]["mean"] for own in networks)
    return [
        Finding(
            "claim: more passes of CWS change nothing significantly",
            "stated",
            _said(passes),
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
