"""Claims about real tables: ranks and tests against SciPy, and known verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import false_discovery_control, friedmanchisquare, rankdata, wilcoxon

from benchmarks.studies._real_claims import CLAIMS, PUBLISHED_RANKS, SEVEN, conclude, rank_tables
from benchmarks.studies._summary import PUBLISHED

RECORDED = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "study_real.json"
_CLEAR = {"no methods but cauchy_map differ", "no methods differ"}


def make_summary(level: dict[str, float], noise: float, tables: int = 19) -> dict[str, Any]:
    """Return a summary whose methods have given levels with independent noise."""
    rng = np.random.default_rng(0)
    by_table = {
        f"table {i}": {m: level[m] + noise * rng.normal() + i for m in SEVEN} for i in range(tables)
    }
    mean = {m: float(np.mean([losses[m] for losses in by_table.values()])) for m in SEVEN}
    facts = {"mean": mean, "by_table": by_table}
    whole = {experiment: {"log_loss": facts, "ece": facts} for experiment in PUBLISHED_RANKS}
    return json.loads(json.dumps(whole))  # a deep copy


def verdicts(summary: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    result: dict[tuple[str, str], set[str]] = {}
    for line in conclude(summary):
        result.setdefault((line["claim"], line["experiment"]), set()).add(line["verdict"])
    return result


def test_methods_that_are_far_apart() -> None:
    order = ("ibls", "platt", "smoothed", "L2", "L1", "normal", "cauchy_map")
    result = verdicts(make_summary({m: i for i, m in enumerate(order)}, 1e-3))
    holds = {
        ("ibls has the best rank", "svm"),
        ("platt ranks before smoothed", "svm"),
        ("every method beats cauchy_map", "svm"),
        ("ibls and platt have the lowest means", "svm"),
        ("L2 ranks before L1", "multivariate"),
        ("ibls ranks before platt", "svm"),
        ("ibls ranks before platt", "multivariate"),
    }
    moved = ("soft targets rank worse with features than with scores", "both")
    assert result.pop(moved) == {"not clear"}  # the ranks are equal in both
    for claim, outcomes in result.items():
        assert outcomes == {"holds" if claim in holds else "does not hold"}, claim


def test_methods_that_do_not_differ() -> None:
    result = verdicts(make_summary(dict.fromkeys(SEVEN, 0.0), 1.0))
    for (claim, _), outcomes in result.items():
        expected = "holds" if claim in _CLEAR else "not clear"
        assert outcomes == {"does not hold" if claim.startswith("every") else expected}, claim


def test_soft_targets_that_move() -> None:
    before = make_summary({m: float(m not in ("platt", "smoothed", "ibls")) for m in SEVEN}, 1e-3)
    after = make_summary({m: float(m in ("platt", "smoothed", "ibls")) for m in SEVEN}, 1e-3)
    moved = "soft targets rank worse with features than with scores", "both"
    both = {"svm": before["svm"], "multivariate": after["multivariate"]}
    assert verdicts(both)[moved] == {"holds"}
    both = {"svm": after["svm"], "multivariate": before["multivariate"]}
    assert verdicts(both)[moved] == {"does not hold"}
    line = conclude(both)[-1]
    assert line["figures"].startswith("mean rank 6.00 with scores, 2.00 with features, p < 0.001")


def test_claims_without_all_methods_are_left_out() -> None:
    summary = make_summary(dict.fromkeys(SEVEN, 0.0), 1.0)
    for losses in summary["svm"]["log_loss"]["by_table"].values():
        del losses["platt"]
    del summary["svm"]["ece"]
    assert {line["experiment"] for line in conclude(summary)} == {"multivariate"}
    assert conclude({"svm": {}, "multivariate": {}}) == []
    assert conclude(make_summary(dict.fromkeys(SEVEN, 0.0), 1.0, tables=1)) == []


def test_recorded_statistics_are_those_of_scipy() -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    count = sum(len(claim.experiments) * len(claim.metrics) for claim in CLAIMS)
    assert len(recorded["conclusions"]) == count + 2
    assert conclude(recorded["experiments"]) == recorded["conclusions"]
    for experiment in recorded["experiments"].values():
        for metric in ("log_loss", "ece"):
            by_table = experiment[metric]["by_table"]
            values = np.array([[losses[m] for m in SEVEN] for losses in by_table.values()])
            result = experiment[metric]["seven"]
            ranks = rankdata(values, axis=1).mean(axis=0)
            assert [result["ranks"][m] for m in SEVEN] == pytest.approx(ranks)
            test = friedmanchisquare(*values.T)
            assert result["friedman"]["statistic"] == pytest.approx(test.statistic)
            assert result["friedman"]["p_value"] == pytest.approx(test.pvalue)
            ranked = rank_tables(by_table)
            assert ranked is not None
            pairs = [(i, j) for i in range(7) for j in range(i)]
            tests: list[Any] = [
                wilcoxon(values[:, i] - values[:, j], method="exact") for i, j in pairs
            ]
            alone = np.array([test.pvalue for test in tests])
            # Holm's smallest p-value equals Bonferroni's; no correction is below Hochberg's.
            ours = np.array([ranked.p(SEVEN[i], SEVEN[j]) for i, j in pairs])
            assert ours.min() == pytest.approx(min(1, 21 * alone.min()))
            assert (ours >= false_discovery_control(alone) - 1e-12).all()


def test_published_ranks_are_whole_rankings_of_the_published_order() -> None:
    for experiment, metrics in PUBLISHED_RANKS.items():
        for metric, ranks in metrics.items():
            assert set(ranks) == set(SEVEN)
            # Seven ranks sum to 28; each was read off a figure to about 0.1.
            assert sum(ranks.values()) == pytest.approx(28, abs=0.3)
            means = PUBLISHED[experiment][metric]
            if experiment == "svm":
                worst = max(means, key=lambda m: means[m])
                assert max(ranks, key=lambda m: ranks[m]) == worst == "cauchy_map"
    features = PUBLISHED_RANKS["multivariate"]["log_loss"]
    assert min(features, key=lambda m: features[m]) == "L2"
    assert max(features, key=lambda m: features[m]) == "platt"
