"""Write the tables of docs/papers/reproduction.md from the results in benchmarks/results.

    python benchmarks/update_reproduction.py [--check]

To renew the results first:

    python -m benchmarks.studies synthetic --out DIR
    python -m benchmarks.studies synthetic --figure 14 --figure 15 --out DIR
    cp DIR/synthetic.json benchmarks/results/study_synthetic.json
    cp DIR/figure_14.json benchmarks/results/study_synthetic_figure_14.json
    cp DIR/figure_15.json benchmarks/results/study_synthetic_figure_15.json

With --check the script changes no file, and fails if a table differs from the results.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "papers" / "reproduction.md"
RESULTS = ROOT / "benchmarks" / "results"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Format a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mean_of(facts: dict[str, float]) -> str:
    """Format a mean with its standard error in units of the last digit."""
    digits = 4 if facts["error"] < 0.09995 else 2 if facts["error"] < 9.995 else 1
    return f"{facts['mean']:.{digits}f}({round(10**digits * facts['error'])})"


def about(study: dict[str, Any]) -> str:
    """Describe the size of the study and the versions of libraries."""
    versions = ", ".join(f"{name} {number}" for name, number in study["about"].items())
    return (
        f"**[study]** {study['datasets']:,} data sets for each configuration, {study['n_test']:,} "
        f"test points each, seed {study['seed']}; {versions}."
    )


def published(known: dict[str, Any] | None) -> str:
    """Format a published mean; values that are impossible are bold."""
    if known is None:
        return ""
    if known["mean"] is None:
        return "∞"
    return f"**{known['mean']:.4f}**" if known["impossible"] else f"{known['mean']:.4f}"


def table_6(study: dict[str, Any]) -> str:
    """Compare log losses with the published ones of question 1."""
    configs = [config for config in study["configurations"].values() if config["question"] == 1]
    rows = []
    for method in configs[0]["metrics"]["log_loss"]:
        cells = []
        for config in configs:
            computed = mean_of(config["metrics"]["log_loss"][method])
            reported = published(config["published"]["log_loss"].get(method))
            cells.append(f"{computed}<br>{reported}" if reported else computed)
        rows.append([f"`{method}`", *cells])
    rows.append(["floor", *(f"{config['floor']:.4f}" for config in configs)])
    return table(["", *(f"({config['letter']})" for config in configs)], rows)


def predictive(study: dict[str, Any]) -> str:
    """Compare the log losses of ``predictive`` and ``preds``, in a sentence."""
    gaps = {}
    for name, config in study["configurations"].items():
        losses = config["metrics"]["log_loss"]
        gaps[name] = losses["preds"]["mean"] - losses["predictive"]["mean"]
    largest, *rest = sorted(gaps, key=lambda name: -abs(gaps[name]))
    return (
        f"**[study]** With 50 cases and more, its mean log loss is higher in "
        f"{sum(gap > 0 for gap in gaps.values())} of {len(gaps)} configurations, by at most "
        f"{gaps[largest]:.5f} ({largest}) and by {gaps[rest[0]]:.5f} in the next ({rest[0]})."
    )


def separated(study: dict[str, Any]) -> str:
    """List configurations in which fits without penalty have no finite optimum."""
    rows = [
        [
            name,
            f"{config['without_finite_optimum']['normal']:.1%}",
            mean_of(config["metrics"]["log_loss"]["normal"]),
            *(f"{config['metrics']['log_loss'][m]['median']:.4f}" for m in ("normal", "ibls")),
        ]
        for name, config in study["configurations"].items()
        if config["data_of"] == name and config["without_finite_optimum"]["normal"]
    ]
    heads = ["", "without finite optimum", "mean", "median", "median of `ibls`"]
    return table(heads, rows)


def draws(data: dict[str, Any]) -> str:
    """List how many draws suffice, by prior, method and integrator."""
    rows = []
    for name, integrators in data["priors"].items():
        for method, exact in integrators["quadrature"].items():
            cells = []
            for integrator in ("montecarlo", "sobol"):
                by_size = integrators[integrator][method]
                gaps = dict(zip(by_size["sizes"], by_size["loss"], strict=True))
                size_near = min(gaps, key=lambda size: abs(size - 10_000))
                worst = max(abs(loss - exact) for loss in gaps[size_near])
                sufficient = by_size["sufficient"]
                cells += ["none" if sufficient is None else f"{sufficient:,}", f"{worst:.0e}"]
            rows.append([name, f"`{method}`", f"{exact:.5f}", *cells])
    heads = ["means", "", "quadrature", "Monte Carlo: sufficient", "off at 8,192"]
    caption = (
        f"**[draws]** {data['datasets']} data sets of {data['n_train']} points; sufficient is "
        f"the least number of draws from which on the mean loss is within {data['tolerance']:g} "
        f"of quadrature's in {data['repeats']} repeats, and the last columns are the greatest "
        "differences of these at 8,192 draws."
    )
    return table([*heads, "Sobol: sufficient", "off at 8,192"], rows) + "\n\n" + caption


def factors(data: dict[str, Any]) -> str:
    """Compare smoothing factors with the best one."""
    rows = [
        [
            f"{row['n_train']}",
            f"{row['separation']:g}",
            f"{row['best']:.5f}",
            f"{row['platt']:.5f}",
            f"{row['instance']:.5f}",
            *(f"{1e4 * (row[f'loss_{m}'] - row['loss_best']):.1f}" for m in ("platt", "instance")),
        ]
        for row in data["rows"]
        if row["n_train"] in (50, 100, 500)
    ]
    heads = ["n", "m", "best", "Platt's", "instance-based, mean", "Platt's loses", "i.-b. loses"]
    caption = (
        f"**[factors]** Classes N(−m, 1) and N(m, 1), {data['datasets']} data sets each; losses "
        "above that of the best factor, in units of 0.0001."
    )
    return table(heads, rows) + "\n\n" + caption


def conclusions(study: dict[str, Any]) -> str:
    """List the claims of the paper with their verdicts."""
    rows = []
    for conclusion in study["conclusions"]:
        failed = [f"{c['where']}: {c['figures']}" for c in conclusion["checks"] if not c["holds"]]
        held = [f"{c['where']}: {c['figures']}" for c in conclusion["checks"] if c["holds"]]
        examples = failed[:4] + ([f"and {len(failed) - 4} more"] if len(failed) > 4 else [])
        figures = f"fails in {'; '.join(examples)}" if failed else f"such as {'; '.join(held[:2])}"
        verdict = conclusion["verdict"]
        if verdict == "in part":
            verdict = f"in {conclusion['holds_in']} of {conclusion['of']}"
        rows.append([conclusion["claim"], verdict, figures])
    return table(["claim", "verdict", "figures"], rows)


def blocks() -> dict[str, str]:
    """Compute the text of each block, by its name."""
    results = [
        json.loads((RESULTS / f"study_synthetic{suffix}.json").read_text(encoding="utf-8"))
        for suffix in ("", "_figure_14", "_figure_15")
    ]
    study = results[0]
    assert all(math.isfinite(config["floor"]) for config in study["configurations"].values())
    return {
        "about": about(study),
        "table 6": table_6(study),
        "predictive": predictive(study),
        "separated": separated(study),
        "draws": draws(results[1]),
        "factors": factors(results[2]),
        "conclusions": conclusions(study),
    }


def update_page(text: str) -> str:
    """Replace all blocks of the page."""
    for name, block in blocks().items():
        pattern = rf"(<!-- begin {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(
            pattern, lambda m, b=block: f"{m[1]}{b}\n{m[2]}", text, flags=re.DOTALL
        )
        assert count == 1, f"{PAGE.name} has {count} blocks {name!r}"
    return text


if __name__ == "__main__":
    old = PAGE.read_text(encoding="utf-8")
    new = update_page(old)
    if "--check" in sys.argv:
        sys.exit(f"{PAGE} is not up to date: run {sys.argv[0]}" if new != old else 0)
    PAGE.write_text(new, encoding="utf-8")
