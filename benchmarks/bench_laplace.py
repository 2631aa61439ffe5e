"""Check ``inference="laplace"``, with and without sequential Monte Carlo, by simulation.

    python benchmarks/bench_laplace.py [--json benchmarks/results/bench_laplace.json]
        [--repeats 1000] [--case NAME ...] [--rows 60 ...] [--seed 1]

Simulation-based calibration (Cook, Gelman, Rubin 2006; Talts et al. 2018) draws parameters from
the prior of a calibrator, labels from the probabilities of these parameters, and the posterior by
``inference="laplace"``. If the posterior is correct, the fraction of draws below the true value is
uniform. The table shows the fractions of true values in the lower and the upper tail of nominal
probability 0.05, averaged over the parameters, and over the probabilities at three scores (standard
error about 0.005, more for few parameters). Data sets without all classes are drawn again; this
keeps the ranks uniform, because it depends only on the data. The temperature of structured scaling
is given, because its prior needs it.

Rows "normal" use draws of the normal approximation alone; those of a temperature always come from
its distribution function. The result file keeps cases, rows and seeds that are not run again.
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
    """Scores of one data set, with functions that draw from the prior, predict and fit."""

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

    def draw_parameters(self) -> tuple[Array, Callable[[Array], Array]]:
        """Draw parameters (p,) from the prior, and return their probabilities as a function."""
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
            state = {**self.state, "penalty": penalty, "theta": 0 * penalty}
            strengths = case._target(state, rows)[1]
            theta = rng.normal(size=len(strengths)) / np.sqrt(strengths)
        else:
            theta = np.exp(1.5 * rng.normal(size=1))
            if isinstance(case, bc.EnsembleTemperature):
                theta = np.r_[theta, rng.dirichlet(np.ones(3))]
        return theta, lambda points: self.curves(theta[None], points)[0]

    def curves(self, theta: Array, points: Array) -> Array:
        """Compute the probabilities (s, m, k) of parameters (s, p) at scores."""
        if isinstance(self.case, int):
            line = theta[:, :1] + theta[:, 1:] @ points.T
            return np.stack([sigmoid(-line), sigmoid(line)], axis=-1)
        return self.case._curves(self.state, theta, points)

    def public_parameters(self, theta: Array) -> Array:
        """Convert parameters (s, p) to the columns of the public coefficients."""
        if isinstance(self.case, int):
            return theta
        coefficients = self.case._describe(self.state, theta)
        return np.concatenate([v.reshape(len(theta), -1) for v in coefficients.values()], axis=1)

    def sample(self, y: Array, seed: int) -> tempered.Draws:
        """Draw from the posterior given labels."""
        if isinstance(self.case, int):
            method = Method(coef_prior="cauchy", **LAPLACE)
            settings = method.settle(self.scores, y, self.weights)
            return method.sample(self.scores, self.weights, settings, seed)
        rows = Rows(self.scores, y, self.weights)
        return self.case._sample({**self.case._fit(rows, seed), **self.state}, rows, seed)


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute within a block."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def simulate(case: Any, n: int, repeats: int, seed: int) -> dict[str, Any]:
    """Compute the fractions of true values in both tails, and the effective sample size."""
    rng = np.random.default_rng(seed)
    ranks: list[list[Array]] = [[], []]
    ess_list: list[float] = []
    while len(ess_list) < repeats:
        problem = Problem(case, n, rng)
        theta, curves = problem.draw_parameters()
        probs = curves(problem.scores)
        y = (rng.random((n, 1)) > np.cumsum(probs, axis=1)[:, :-1]).sum(axis=1)
        if len(np.unique(y)) < problem.k:
            continue
        draws = problem.sample(y, len(ess_list))
        samples = draws.coefficients.reshape(-1, len(theta))
        pairs = (
            (problem.public_parameters(samples), problem.public_parameters(theta[None])[0]),
            (problem.curves(samples, problem.new)[..., 1:], curves(problem.new)[:, 1:]),
        )
        for group_ranks, (sampled, true) in zip(ranks, pairs, strict=True):
            group_ranks.append(np.mean((sampled < true) + 0.5 * (sampled == true), axis=0).ravel())
        ess_list.append(draws.ess.min() / DRAWS)
    ess = np.array(ess_list)
    fractions = {}
    for name, group_ranks in zip(("parameters", "probabilities"), ranks, strict=True):
        values = np.array(group_ranks)
        tails = np.stack([(values < LEVEL).mean(axis=0), (values > 1 - LEVEL).mean(axis=0)])
        fractions[name] = [float(fraction) for fraction in tails.mean(axis=1).round(4)]
    return {
        **fractions,
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
    header = f"{'parameters':>15} {'probabilities':>15}    ess   <0.1"
    print(f"{'case':22} {'rows':>5} {'draws':8} {header}")
    for name in options.case:
        for n, draws in itertools.product(options.rows, ("normal", "tempered")):
            normal = np.inf if draws == "normal" else tempered._NORMAL
            with _replaced(tempered, "_NORMAL", normal):
                row = simulate(CASES[name], n, options.repeats, options.seed)
            tails = [f"{low:.3f} / {high:.3f}" for low, high in list(row.values())[:2]]
            quality = f"{row['ess_median']:6.2f} {row['ess_below_0.1']:6.3f}"
            print(f"{name:22} {n:5} {draws:8} {tails[0]:>15} {tails[1]:>15} {quality}", flush=True)
            setting = {"case": name, "rows": n, "draws": draws, "seed": options.seed}
            rows.append({**setting, "repeats": options.repeats, **row})
    if options.json:
        old = read(options.json)
        key = itemgetter("case", "rows", "draws", "seed")
        new = {key(row) for row in rows}
        unchanged = [row for row in old.get("rows", []) if key(row) not in new]
        write(options.json, {**old, "level": LEVEL, "draws": DRAWS, "rows": unchanged + rows})


if __name__ == "__main__":
    main()
