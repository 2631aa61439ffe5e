"""Simulation-based calibration of ``inference="laplace"``, with and without sequential Monte Carlo.

    python benchmarks/bench_laplace.py [--json benchmarks/results/bench_laplace.json]
        [--repeats 1000] [--case NAME ...] [--rows 60 ...] [--seed 1]

Rows named "normal" are draws of the normal approximation alone (a temperature's always come from
its distribution function). In the file, what was found of other cases, rows and seeds stays.

Parameters are drawn from a calibrator's own prior, labels from its probabilities, and the
posterior by ``inference="laplace"``: the share of draws below the truth is then uniform if the
posterior is right (Cook, Gelman, Rubin 2006; Talts et al. 2018). The table has the shares of truths
in the lower and the upper tail of nominal 0.05, of parameters and of probabilities at three scores,
each averaged over them (standard error about 0.005, more for few parameters). Data sets
without all classes are drawn again, which keeps the ranks uniform, as this is decided by the data.
Structured scaling has its temperature given, as its prior needs it.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

import bayescal as bc
from bayescal._core.numerics import sigmoid
from bayescal.calibrators.binary import log_odds as _log_odds
from bayescal.calibrators.binary.log_odds import LogOddsCalibrator
from bayescal.calibrators.multiclass.linear import LinearCalibrator
from bayescal.data.rows import Rows
from bayescal.regression import draws as tempered
from bayescal.regression.method import Method
from benchmarks.provenance import read, write

Array = np.ndarray
DRAWS, LEVEL = 1000, 0.05
LAPLACE: dict[str, Any] = {"inference": "laplace", "num_samples": DRAWS}
LOGITS: dict[str, Any] = {"inputs": "logits", **LAPLACE}
CASES: dict[str, Any] = {
    "Logistic": bc.Logistic(**LAPLACE),
    "Beta, 3": bc.Beta(**LAPLACE),
    "Beta, 2": bc.Beta(parameters=2, **LAPLACE),
    "Beta, 1": bc.Beta(parameters=1, **LAPLACE),
    "Quadratic": bc.Quadratic(**LAPLACE),
    "LogisticRegression, 1": 1,
    "LogisticRegression, 5": 5,
    "Temperature": bc.Temperature(**LOGITS),
    "EnsembleTemperature": bc.EnsembleTemperature(**LOGITS),
    "Vector": bc.Vector(**LOGITS),
    "Matrix": bc.Matrix(**LOGITS),
    "Dirichlet": bc.Dirichlet(**LAPLACE),
    "StructuredVector": bc.StructuredVector(**LOGITS),
    "StructuredMatrix": bc.StructuredMatrix(**LOGITS),
}


class Problem:
    """Scores drawn once for a data set: the prior, the probabilities, and the fit."""

    def __init__(self, case: Any, n: int, rng: np.random.Generator) -> None:
        self.case, self.rng, self.weights = case, rng, np.ones(n)
        self.k = 2 if isinstance(case, int | LogOddsCalibrator) else 3
        if isinstance(case, int):
            self.scores = rng.normal(size=(n, case))
            self.new = rng.normal(size=(3, case))
        elif self.k == 2:
            self.scores, self.new = 2 * rng.normal(size=n), np.array([-2.0, 0.0, 2.0])
        else:
            z = 2 * rng.normal(size=(n + 3, 3))
            if case.domain != "logits":
                z -= np.logaddexp.reduce(z, axis=1, keepdims=True)
            self.scores, self.new = z[:n], z[n:]
        self.state: dict[str, Any] = {}

    def truth(self) -> tuple[Array, Callable[[Array], Array]]:
        """Return parameters (p,) from the prior, and the probabilities (m, k) that they give."""
        case, rng, scores = self.case, self.rng, self.scores
        if isinstance(case, int):
            mean, scale = scores.mean(axis=0), 2 * scores.std(axis=0)
            slopes = 2.5 * rng.standard_cauchy(case) / scale
            theta = np.r_[10 * rng.standard_cauchy() - mean @ slopes, slopes]
        elif isinstance(case, LogOddsCalibrator):
            basis = _log_odds._Standardized(case, {}, scores, self.weights)
            noise = np.where(
                np.asarray(basis.prior.cauchy) > 0,
                rng.standard_cauchy(len(basis.scale)),
                rng.normal(size=len(basis.scale)),
            )
            u = noise * basis.prior.scale
            theta = basis.destandardize(np.where(basis.positive, np.exp(basis.positive * u), u))
        elif isinstance(case, LinearCalibrator):
            self.state |= {"present": np.ones(3, bool), "unit": np.asarray(1.0)}
            self.state |= {"inverse": np.asarray(1.0)}
            self.state |= {"smoothing": np.asarray(1 / (len(scores) + 1))}
            rows = Rows(scores, np.zeros(len(scores), int), self.weights)
            penalty = case._penalties(rows, 1.0)[0]
            known = {**self.state, "penalty": penalty, "theta": 0 * penalty}
            strengths = case._target(known, rows)[1]
            theta = rng.normal(size=len(strengths)) / np.sqrt(strengths)
        else:
            theta = np.exp(1.5 * rng.normal(size=1))
            if isinstance(case, bc.EnsembleTemperature):
                theta = np.r_[theta, rng.dirichlet(np.ones(3))]
        return theta, lambda at: self.curves(theta[None], at)[0]

    def curves(self, theta: Array, at: Array) -> Array:
        """Return probabilities (s, m, k)."""
        if isinstance(self.case, int):
            line = theta[:, :1] + theta[:, 1:] @ at.T
            return np.stack([sigmoid(-line), sigmoid(line)], axis=-1)
        return self.case._curves(self.state, theta, at)

    def named(self, theta: Array) -> Array:
        """Return what users see of parameters (s, p), as columns."""
        if isinstance(self.case, int):
            return theta
        described = self.case._describe(self.state, theta)
        return np.concatenate([v.reshape(len(theta), -1) for v in described.values()], axis=1)

    def sample(self, y: Array, seed: int) -> tempered.Draws:
        if isinstance(self.case, int):
            method = Method(coef_prior="cauchy", **LAPLACE)
            settled = method.settle(self.scores, y, self.weights)
            return method.sample(self.scores, self.weights, settled, seed)
        rows = Rows(self.scores, y, self.weights)
        return self.case._sample({**self.case._fit(rows, seed), **self.state}, rows, seed)


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def simulate(case: Any, n: int, repeats: int, seed: int) -> dict[str, Any]:
    """Return shares of truths in both tails, and how good the draws are."""
    rng = np.random.default_rng(seed)
    ranks: list[list[Array]] = [[], []]
    quality: list[float] = []
    while len(quality) < repeats:
        problem = Problem(case, n, rng)
        theta, curves = problem.truth()
        probs = curves(problem.scores)
        y = (rng.random((n, 1)) > np.cumsum(probs, axis=1)[:, :-1]).sum(axis=1)
        if len(np.unique(y)) < problem.k:
            continue
        draws = problem.sample(y, len(quality))
        drawn = draws.coefficients.reshape(-1, len(theta))
        pairs = (
            (problem.named(drawn), problem.named(theta[None])[0]),
            (problem.curves(drawn, problem.new)[..., 1:], curves(problem.new)[:, 1:]),
        )
        for kept, (some, true) in zip(ranks, pairs, strict=True):
            kept.append(np.mean((some < true) + 0.5 * (some == true), axis=0).ravel())
        quality.append(draws.ess.min() / DRAWS)
    ess = np.array(quality)
    shares = {}
    for name, kept in zip(("parameters", "probabilities"), ranks, strict=True):
        own = np.array(kept)
        tails = np.stack([(own < LEVEL).mean(axis=0), (own > 1 - LEVEL).mean(axis=0)])
        shares[name] = [float(share) for share in tails.mean(axis=1).round(4)]
    return {
        **shares,
        "ess_median": float(np.median(ess).round(3)),
        "ess_below_0.1": float((ess < 0.1).mean().round(4)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--case", choices=CASES, nargs="*", default=list(CASES))
    parser.add_argument("--rows", type=int, nargs="*", default=[60])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    heads = f"{'parameters':>15} {'probabilities':>15}    ess   <0.1"
    print(f"{'case':22} {'rows':>5} {'draws':8} {heads}")
    for name in options.case:
        for n, kind in itertools.product(options.rows, ("normal", "tempered")):
            normal = np.inf if kind == "normal" else tempered._NORMAL
            with _replaced(tempered, "_NORMAL", normal):
                row = simulate(CASES[name], n, options.repeats, options.seed)
            ends = [f"{low:.3f} / {high:.3f}" for low, high in list(row.values())[:2]]
            size = f"{row['ess_median']:6.2f} {row['ess_below_0.1']:6.3f}"
            print(f"{name:22} {n:5} {kind:8} {ends[0]:>15} {ends[1]:>15} {size}", flush=True)
            facts = {"case": name, "rows": n, "draws": kind, "seed": options.seed}
            rows.append({**facts, "repeats": options.repeats, **row})
    if options.json:
        kept = read(options.json)
        key = itemgetter("case", "rows", "draws", "seed")
        new = {key(row) for row in rows}
        others = [row for row in kept.get("rows", []) if key(row) not in new]
        write(options.json, {**kept, "level": LEVEL, "draws": DRAWS, "rows": others + rows})


if __name__ == "__main__":
    main()
