"""What ArviZ is told of a posterior's draws, beside the precision that they have.

Run: python benchmarks/bench_diagnostics.py [--json benchmarks/results/bench_diagnostics.json]
    [--repeats 100]

Means known to N(-1, 1) and N(1, 1), deviation 1; the same data with many keys. An effective sample
size is honest if the posterior variance over it is the mean squared error of the posterior mean:
``real`` is the variance over that error, of the first parameter, whose posterior is known in closed
form (relative standard error of ``real``: sqrt(2 / repeats)). Beside it are medians over keys of
the object's own ``ess`` and ``pareto_k``, and of what ``arviz.summary`` says of 4,000 draws by
``to_arviz``; ``r_hat > 1.01`` is the share of keys for which it warns.
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
    import arviz

    prior = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=1.0)
    y = np.arange(n) % 2
    scores = np.random.default_rng(n).normal(2 * y - 1)
    options = {} if integrator == "quadrature" else {"num_samples": DRAWS}
    variance = 1 / (1 + (y == 0).sum())
    mean = variance * (scores[y == 0].sum() - 1)
    found = []
    for key in range(repeats):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            post = bc.posterior(prior, (scores, y), integrator=integrator, key=key, **options)
            tree = post.to_arviz(num_draws=EXPORTED, key=key)
            own = np.asarray(tree["posterior"]["mu0"], float)
            # NaN where all draws coincide.
            table = arviz.summary(tree, var_names=["mu0"], kind="diagnostics", round_to="none")
        row = table.astype(float).iloc[0]
        found.append((own.mean(), post.ess, post.pareto_k, row["ess_bulk"], row["r_hat"]))
    means, ess, pareto_k, bulk, r_hat = np.array(found, float).T
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
        found = {"repeats": args.repeats, "draws": DRAWS, "exported": EXPORTED, "rows": rows}
        write(args.json, found)


def _short(value: Any) -> Any:
    """Round to four digits; JSON has no number for NaN and infinity."""
    if isinstance(value, str | int):
        return value
    return float(f"{value:.4g}") if np.isfinite(value) else str(float(value))


if __name__ == "__main__":
    main()
