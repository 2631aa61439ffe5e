"""How many draws suffice: running sums against the library's posterior, and output files."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bayescal as bc
from bayescal._core.execution.precision import float64
from bayescal._core.random.keys import as_key
from benchmarks.studies import draws
from benchmarks.studies._draws_sums import by_size
from benchmarks.studies._known_truth import loss_at_nodes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayescal._core.warnings.SamplingWarning")
@pytest.mark.parametrize("integrator", ["montecarlo", "sobol"])
def test_losses_are_those_of_the_posterior(integrator: str) -> None:
    prior = next(iter(draws._priors().values()))
    key, most = as_key(5), 512
    problem, floor = draws._problem(prior, 6, as_key(1))
    losses = by_size(problem, draws._sequence(prior, integrator, most, key), [16, most])
    with float64():
        how: dict[str, Any] = {"num_samples": most, "key": key, "class_prior": 0.5}
        result = bc.posterior(prior, (problem.x, problem.y), integrator=integrator, **how)
        for j, method in enumerate(draws.METHODS):
            odds = result.predict(problem.nodes, method=method).log_odds
            expected = float(np.mean(loss_at_nodes(odds, problem.weights)))
            assert losses[1, j] == pytest.approx(expected, rel=1e-6)
    assert (losses > floor).all()


@pytest.mark.slow
def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = next(iter(draws._priors().values()))
    problem, _ = draws._problem(prior, 3, as_key(1))
    sequence = draws._sequence(prior, "montecarlo", 256, as_key(2))
    whole = by_size(problem, sequence, [1, 2, 64, 256])
    assert whole[0] == pytest.approx([whole[0, 0]] * 3)  # with one draw all methods agree
    monkeypatch.setattr("benchmarks.studies._draws_sums._CHUNK", 32)
    every = [1 << k for k in range(9)]
    parts = by_size(problem, sequence, every)
    np.testing.assert_allclose(parts[[0, 1, 6, 8]], whole, rtol=1e-12)


@pytest.mark.slow
def test_run_writes_figures(tmp_path: Path) -> None:
    result = draws.run(tmp_path, datasets=8, most=1024, repeats=2, tolerance=0.01, seed=1)
    assert sorted(os.listdir(tmp_path)) == [f"figure_14.{end}" for end in ("csv", "json", "svg")]
    assert json.loads((tmp_path / "figure_14.json").read_text()) == result
    for facts in result["priors"].values():
        assert facts["floor"] < facts["quadrature"]["preds"]
        preds = facts["montecarlo"]["preds"]
        gaps = np.abs(np.array(preds["loss"]) - facts["quadrature"]["preds"]).max(axis=1)
        first = preds["sizes"].index(preds["sufficient"])
        assert (gaps[first:] <= 0.01).all() and gaps[first - 1] > 0.01
    with (tmp_path / "figure_14.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    # 11 sizes of Monte Carlo and 7 of Sobol points, three methods, two repeats, two priors.
    assert len(rows) == (11 + 7) * 3 * 2 * 2
    words = re.findall(r">([^<>]+)<", (tmp_path / "figure_14.svg").read_text())
    assert "U(-2, 0), U(0, 2)" in words and "coeffs, Sobol" in words


def test_none_is_sufficient_where_none_is() -> None:
    losses = np.array([[0.5], [0.3], [0.5]])
    assert draws._judge([1, 2, 4], losses, 0.3, 0.01)["sufficient"] is None
    assert draws._judge([1, 2, 4], losses[::-1] - 0.2, 0.3, 0.01)["sufficient"] == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"datasets": 0}, "datasets must be"),
        ({"most": 1000}, "most must be a power of two"),
        ({"most": 8}, "most must be a power of two"),
        ({"repeats": 0}, "repeats must be"),
        ({"tolerance": 0.0}, "tolerance must be positive"),
    ],
)
def test_wrong_arguments_are_said(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draws.run(tmp_path, **options)
