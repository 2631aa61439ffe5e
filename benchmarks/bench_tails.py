"""Predictions far from the data against closed forms: errors, stated errors, warnings.

Run: python benchmarks/bench_tails.py [--json benchmarks/results/tails.json]

One data set of 2 and 20 observations; means known to N(+-1, 1), deviation 1 (``normal``), or means
and deviation unknown (``student``). Then 200 data sets of 2 to 20 observations drawn from the first
prior: the share of predictions at a distance whose error is within the stated one (for draws within
four standard errors).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.provenance import write

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.inference.test_tails import (
    NORMAL,
    STUDENT,
    UNEVEN,
    normal_log_odds,
    probability,
    student_log_odds,
)

AT = (0.0, 6.0, 10.0, 14.0, 18.0, 20.0, 25.0, 100.0, 1e3, 1e4, 1e6, 1e20, 1e160)
DRAWS = 10_000


def measure() -> list[dict[str, Any]]:
    """Return one entry for each prior, integrator and point."""
    import bayescal as bc

    student = bc.NormalInverseGammaPrior(**STUDENT)
    cases = [(NORMAL, normal_log_odds, name) for name in ("quadrature", "montecarlo", "sobol")]
    cases += [(NORMAL, normal_log_odds, name) for name in ("importance", "nuts")]
    cases += [(student, student_log_odds, name) for name in ("closed_form", "quadrature")]
    cases += [(student, student_log_odds, name) for name in ("montecarlo", "importance")]
    rows = []
    for prior, truth, name in cases:
        options = {"integrator": name, "num_samples": DRAWS, "class_prior": 0.5}
        post = bc.posterior(prior, UNEVEN, **options)
        for x, log_odds in zip(AT, truth(np.array(AT), UNEVEN), strict=True):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                found = post.predict([x])
            expected = float(probability(log_odds))
            rows.append(
                {
                    "prior": "normal" if prior is NORMAL else "student",
                    "integrator": name,
                    "x": x,
                    "probability": expected,
                    "error": abs(float(found.probs[0]) - expected),
                    "stated": float(found.mcse[0]),
                    "warned": bool(seen),
                }
            )
    return rows


def cover(name: str, count: int = 200) -> list[dict[str, Any]]:
    """Return shares of predictions whose error is covered, by distance."""
    import bayescal as bc

    rng, sets = np.random.default_rng(0), {}
    for _ in range(count):
        n = int(rng.choice([2, 4, 8, 20]))
        y = rng.integers(0, 2, n)
        x = rng.normal(np.array([-1, 1]) + rng.normal(size=2))[y] + rng.normal(size=n)
        sets.setdefault(n, []).append((x, y))
    miss, stated = [], []
    for group in sets.values():
        data = np.stack([x for x, _ in group]), np.stack([y for _, y in group])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {"integrator": name, "num_samples": DRAWS, "class_prior": 0.5}
            post = bc.posterior(NORMAL, data, **options)
            found = post.predict(np.array(AT[:9]))
        truth = [probability(normal_log_odds(np.array(AT[:9]), one)) for one in group]
        miss.append(np.abs(np.asarray(found.probs) - truth))
        stated.append(np.asarray(found.mcse))
    miss, stated = np.concatenate(miss), np.concatenate(stated)
    within = miss <= (1 if name == "quadrature" else 4) * stated + 1e-12
    large = np.max(miss, axis=0)
    return [
        {"integrator": name, "x": x, "covered": float(c), "largest error": float(e)}
        for x, c, e in zip(AT, within.mean(axis=0), large, strict=False)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = measure()
    print(f"{'prior':8} {'integrator':12} {'x':>8} {'p':>9} {'error':>9} {'stated':>9} warned")
    for r in rows:
        print(
            f"{r['prior']:8} {r['integrator']:12} {r['x']:8.0e} {r['probability']:9.2e} "
            f"{r['error']:9.1e} {r['stated']:9.1e} {'yes' if r['warned'] else ''}"
        )
    coverage = [row for name in ("quadrature", "montecarlo", "importance") for row in cover(name)]
    for r in coverage:
        print(f"{r['integrator']:12} {r['x']:8.0e} {r['covered']:7.3f} {r['largest error']:9.1e}")
    if options.json:
        write(options.json, {"far": rows, "coverage": coverage})


if __name__ == "__main__":
    main()
