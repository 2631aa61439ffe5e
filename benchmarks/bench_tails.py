"""Compare predictions far from the data with closed forms: errors, stated errors, warnings.

Run: python benchmarks/bench_tails.py [--json benchmarks/results/tails.json]

One data set has 2 and 20 observations in its two classes. Its means have priors N(+-1, 1) with a
known standard deviation of 1 (``normal``), or means and standard deviation are unknown
(``student``). A second study draws 200 data sets of 2 to 20 observations from the first prior. It
computes, at each distance, the fraction of predictions whose error is at most the stated error (at
most four standard errors for random draws).
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

POINTS = (0.0, 6.0, 10.0, 14.0, 18.0, 20.0, 25.0, 100.0, 1e3, 1e4, 1e6, 1e20, 1e160)
DRAWS = 10_000


def measure() -> list[dict[str, Any]]:
    """Compute one entry for each prior, integrator and point."""
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
        for x, log_odds in zip(POINTS, truth(np.array(POINTS), UNEVEN), strict=True):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                prediction = post.predict([x])
            expected = float(probability(log_odds))
            rows.append(
                {
                    "prior": "normal" if prior is NORMAL else "student",
                    "integrator": name,
                    "x": x,
                    "probability": expected,
                    "error": abs(float(prediction.probs[0]) - expected),
                    "stated": float(prediction.mcse[0]),
                    "warned": bool(caught),
                }
            )
    return rows


def cover(name: str, count: int = 200) -> list[dict[str, Any]]:
    """Compute the fraction of predictions whose error is covered, for each distance."""
    import bayescal as bc

    rng, sets = np.random.default_rng(0), {}
    for _ in range(count):
        n = int(rng.choice([2, 4, 8, 20]))
        y = rng.integers(0, 2, n)
        x = rng.normal(np.array([-1, 1]) + rng.normal(size=2))[y] + rng.normal(size=n)
        sets.setdefault(n, []).append((x, y))
    errors, stated = [], []
    for group in sets.values():
        data = np.stack([x for x, _ in group]), np.stack([y for _, y in group])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {"integrator": name, "num_samples": DRAWS, "class_prior": 0.5}
            post = bc.posterior(NORMAL, data, **options)
            prediction = post.predict(np.array(POINTS[:9]))
        truth = [probability(normal_log_odds(np.array(POINTS[:9]), data_set)) for data_set in group]
        errors.append(np.abs(np.asarray(prediction.probs) - truth))
        stated.append(np.asarray(prediction.mcse))
    errors, stated = np.concatenate(errors), np.concatenate(stated)
    within = errors <= (1 if name == "quadrature" else 4) * stated + 1e-12
    max_errors = np.max(errors, axis=0)
    return [
        {"integrator": name, "x": x, "covered": float(fraction), "largest error": float(max_error)}
        for x, fraction, max_error in zip(POINTS, within.mean(axis=0), max_errors, strict=False)
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
