"""Compare the diagnostics that ArviZ reports for exported draws with their real precision.

Run: python benchmarks/bench_diagnostics.py [--json benchmarks/results/bench_diagnostics.json]
    [--repeats 100]

The means of two classes have priors N(-1, 1) and N(1, 1), and the standard deviation is 1. The same
data are used with many keys. An effective sample size is correct if the posterior variance divided
by it is the mean squared error of the posterior mean. ``real`` is this variance divided by this
error, for the first parameter, whose posterior is known in closed form (relative standard error:
sqrt(2 / repeats)). The other columns are medians over keys: ``ess`` and ``pareto_k`` of the
posterior object, and what ``arviz.summary`` computes from the 4,000 draws of ``to_arviz``.
``r_hat > 1.01`` is the fraction of keys for which ArviZ warns.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist

import bayescal as bc
from benchmarks.provenance import write

SIZES = (4, 40, 400, 4000)
INTEGRATORS = ("montecarlo", "sobol", "importance", "quadrature", "nuts")
DRAWS, EXPORTED = 8192, 4000


def measure(n: int, integrator: str, repeats: int) -> dict[str, Any]:
    """Compute the diagnostics of an integrator for data sets of one size."""
    import arviz

    prior = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=1.0)
    y = np.arange(n) % 2
    scores = np.random.default_rng(n).normal(2 * y - 1)
    options = {} if integrator == "quadrature" else {"num_samples": DRAWS}
    variance = 1 / (1 + (y == 0).sum())
    mean = variance * (scores[y == 0].sum() - 1)
    diagnostics = []
    for key in range(repeats):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            post = bc.posterior(prior, (scores, y), integrator=integrator, key=key, **options)
            tree = post.to_arviz(num_draws=EXPORTED, key=key)
            draws = np.asarray(tree["posterior"]["mu0"], float)
            # Diagnostics are NaN if all draws coincide.
            table = arviz.summary(tree, var_names=["mu0"], kind="diagnostics", round_to="none")
        row = table.astype(float).iloc[0]
        diagnostics.append((draws.mean(), post.ess, post.pareto_k, row["ess_bulk"], row["r_hat"]))
    means, ess, pareto_k, bulk, r_hat = np.array(diagnostics, float).T
    return {
        "n": n,
        "integrator": integrator,
        "real": variance / np.mean((means - mean) ** 2),
        "ess": np.median(ess),
        "pareto_k": np.median(pareto_k),
        "ess_bulk": np.median(bulk),
        "r_hat": np.median(r_hat),
        "r_hat > 1.01": np.mean(~(r_hat <= 1.01)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=100)
    args = parser.parse_args()
    rows = []
    for n in SIZES:
        for integrator in INTEGRATORS:
            row = measure(n, integrator, args.repeats)
            rows.append({name: _short(value) for name, value in row.items()})
            print(*(f"{name} {value}" for name, value in rows[-1].items()), sep=", ", flush=True)
    if args.json:
        results = {"repeats": args.repeats, "draws": DRAWS, "exported": EXPORTED, "rows": rows}
        write(args.json, results)


def _short(value: Any) -> Any:
    """Round to four digits; NaN and infinity become strings, since JSON has no such numbers."""
    if isinstance(value, str | int):
        return value
    return float(f"{value:.4g}") if np.isfinite(value) else str(float(value))


if __name__ == "__main__":
    main()
