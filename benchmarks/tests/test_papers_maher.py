"""The page about M. Maher (2020): its computed values, by hand."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers import _maher_networks, _maher_real, _maher_synthetic, maher

ROOT = Path(__file__).resolve().parents[2]


def test_mean_least_of_draws() -> None:
    values = np.random.default_rng(0).normal(size=7).tolist()
    for count in (1, 3, 7):
        every = [min(some) for some in itertools.combinations(values, count)]
        assert _maher_networks.least_of(values, count) == pytest.approx(np.mean(every))


def test_differences_of_table_6_in_standard_errors() -> None:
    # Printed: 0.6705 with a deviation of 0.0282 over 1,000 data sets.
    result = {entry.what: entry for entry in _maher_synthetic.entries("log_loss")}
    path = ROOT / "benchmarks" / "results" / "study_synthetic.json"
    study = json.loads(path.read_text(encoding="utf-8"))
    estimate = study["configurations"]["1a"]["metrics"]["log_loss"]["platt"]
    error = np.hypot(estimate["error"], 0.0282 / np.sqrt(1000))
    assert result["`platt` in a"].apart == pytest.approx((estimate["mean"] - 0.6705) / error)
    assert result["`L2` in e"].apart == np.inf
    # Without a penalty, separable data sets leave no mean.
    assert {"`normal` in b", "`normal` in d", "`normal` in e"}.isdisjoint(result)
    assert len(result) == 47
    assert len(_maher_synthetic.entries("ece")) == 50


def test_findings_name_every_table_figure_and_claim() -> None:
    named = " ".join(finding.figure for finding in maher.page().findings)
    for what in ("table 6", "table 9", "table 10", "table 12"):
        assert what in named
    for number in (14, 15, 22, 26, 27, 28):
        assert f"figure {number}" in named or f"figures {number}" in named
    words = [finding.figure for finding in _maher_real.findings()]
    assert len(words) == len(set(words)) == 4 + 4 + 27


def test_pictures_name_the_methods(tmp_path: Path) -> None:
    _maher_real.draw(tmp_path)
    for name in _maher_real.PICTURES.values():
        text = (tmp_path / name).read_text(encoding="utf-8")
        for method in ("normal", "platt", "smoothed", "L1", "L2", "ibls", "cauchy_map"):
            assert text.count(f">{method}<") == 2  # for log loss and ECE


def test_pictures_of_the_page_are_there_and_small() -> None:
    folder = ROOT / "docs" / "papers"
    for name in (*_maher_real.PICTURES.values(), _maher_networks.PICTURE):
        assert f"({name})" in maher.page().text
        assert 1000 < (folder / name).stat().st_size < 60_000
