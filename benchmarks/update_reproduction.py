"""Write the tables of docs/papers/reproduction.md from the results kept in benchmarks/results.

    python benchmarks/update_reproduction.py [--check]

To renew the results first:

    python -m benchmarks.studies synthetic --out DIR
    python -m benchmarks.studies synthetic --figure 14 --figure 15 --out DIR
    cp DIR/synthetic.json benchmarks/results/study_synthetic.json
    cp DIR/figure_14.json benchmarks/results/study_synthetic_figure_14.json
    cp DIR/figure_15.json benchmarks/results/study_synthetic_figure_15.json

With --check it changes nothing, and fails if a table is not that of the results.
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
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mean_of(facts: dict[str, float]) -> str:
    digits = 4 if facts["error"] < 0.09995 else 2 if facts["error"] < 9.995 else 1
    return f"{facts['mean']:.{digits}f}({round(10**digits * facts['error'])})"


def about(study: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in study["about"].items())
    return (
        f"**[study]** {study['datasets']:,} data sets for each configuration, {study['n_test']:,} "
        f"test points each, seed {study['seed']}; {versions}."
    )


def published(known: dict[str, Any] | None) -> str:
    if known is None:
        return ""
    if known["mean"] is None:
        return "∞"
    return f"**{known['mean']:.4f}**" if known["impossible"] else f"{known['mean']:.4f}"


def table_6(study: dict[str, Any]) -> str:
    mine = [each for each in study["configurations"].values() if each["question"] == 1]
    rows = []
    for method in mine[0]["metrics"]["log_loss"]:
        cells = []
        for each in mine:
            own = mean_of(each["metrics"]["log_loss"][method])
            other = published(each["published"]["log_loss"].get(method))
            cells.append(f"{own}<br>{other}" if other else own)
        rows.append([f"`{method}`", *cells])
    rows.append(["floor", *(f"{each['floor']:.4f}" for each in mine)])
    return table(["", *(f"({each['letter']})" for each in mine)], rows)


def predictive(study: dict[str, Any]) -> str:
    gaps = {}
    for name, each in study["configurations"].items():
        losses = each["metrics"]["log_loss"]
        gaps[name] = losses["preds"]["mean"] - losses["predictive"]["mean"]
    largest, *rest = sorted(gaps, key=lambda name: -abs(gaps[name]))
    return (
        f"**[study]** With 50 cases and more, its mean log loss is higher in "
        f"{sum(gap > 0 for gap in gaps.values())} of {len(gaps)} configurations, by at most "
        f"{gaps[largest]:.5f} ({largest}) and by {gaps[rest[0]]:.5f} in the next ({rest[0]})."
    )


def separated(study: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{each['without_finite_optimum']['normal']:.1%}",
            mean_of(each["metrics"]["log_loss"]["normal"]),
            *(f"{each['metrics']['log_loss'][m]['median']:.4f}" for m in ("normal", "ibls")),
        ]
        for name, each in study["configurations"].items()
        if each["data_of"] == name and each["without_finite_optimum"]["normal"]
    ]
    heads = ["", "without finite optimum", "mean", "median", "median of `ibls`"]
    return table(heads, rows)


def draws(found: dict[str, Any]) -> str:
    rows = []
    for name, facts in found["priors"].items():
        for method, exact in facts["quadrature"].items():
            cells = []
            for integrator in ("montecarlo", "sobol"):
                own = facts[integrator][method]
                gaps = dict(zip(own["sizes"], own["loss"], strict=True))
                near = min(gaps, key=lambda size: abs(size - 10_000))
                worst = max(abs(loss - exact) for loss in gaps[near])
                enough = own["sufficient"]
                cells += ["none" if enough is None else f"{enough:,}", f"{worst:.0e}"]
            rows.append([name, f"`{method}`", f"{exact:.5f}", *cells])
    heads = ["means", "", "quadrature", "Monte Carlo: sufficient", "off at 8,192"]
    words = (
        f"**[draws]** {found['datasets']} data sets of {found['n_train']} points; sufficient is "
        f"the least number of draws from which on the mean loss is within {found['tolerance']:g} "
        f"of quadrature's in {found['repeats']} repeats, and the last columns are the greatest "
        "differences of these at 8,192 draws."
    )
    return table([*heads, "Sobol: sufficient", "off at 8,192"], rows) + "\n\n" + words


def factors(found: dict[str, Any]) -> str:
    rows = [
        [
            f"{row['n_train']}",
            f"{row['separation']:g}",
            f"{row['best']:.5f}",
            f"{row['platt']:.5f}",
            f"{row['instance']:.5f}",
            *(f"{1e4 * (row[f'loss_{m}'] - row['loss_best']):.1f}" for m in ("platt", "instance")),
        ]
        for row in found["rows"]
        if row["n_train"] in (50, 100, 500)
    ]
    heads = ["n", "m", "best", "Platt's", "instance-based, mean", "Platt's loses", "i.-b. loses"]
    words = (
        f"**[factors]** Classes N(−m, 1) and N(m, 1), {found['datasets']} data sets each; losses "
        "above that of the best factor, in units of 0.0001."
    )
    return table(heads, rows) + "\n\n" + words


def conclusions(study: dict[str, Any]) -> str:
    rows = []
    for each in study["conclusions"]:
        failed = [f"{c['where']}: {c['figures']}" for c in each["checks"] if not c["holds"]]
        held = [f"{c['where']}: {c['figures']}" for c in each["checks"] if c["holds"]]
        said = failed[:4] + ([f"and {len(failed) - 4} more"] if len(failed) > 4 else [])
        facts = f"fails in {'; '.join(said)}" if failed else f"such as {'; '.join(held[:2])}"
        verdict = each["verdict"]
        if verdict == "in part":
            verdict = f"in {each['holds_in']} of {each['of']}"
        rows.append([each["claim"], verdict, facts])
    return table(["claim", "verdict", "figures"], rows)


def blocks() -> dict[str, str]:
    """Return the text of each block by its name."""
    read = [
        json.loads((RESULTS / f"study_synthetic{end}.json").read_text(encoding="utf-8"))
        for end in ("", "_figure_14", "_figure_15")
    ]
    study = read[0]
    assert all(math.isfinite(each["floor"]) for each in study["configurations"].values())
    return {
        "about": about(study),
        "table 6": table_6(study),
        "predictive": predictive(study),
        "separated": separated(study),
        "draws": draws(read[1]),
        "factors": factors(read[2]),
        "conclusions": conclusions(study),
    }


def renewed(text: str) -> str:
    """Return the page with all its blocks written anew."""
    for name, block in blocks().items():
        pattern = rf"(<!-- begin {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(
            pattern, lambda m, b=block: f"{m[1]}{b}\n{m[2]}", text, flags=re.DOTALL
        )
        assert count == 1, f"{PAGE.name} has {count} blocks {name!r}"
    return text


if __name__ == "__main__":
    old = PAGE.read_text(encoding="utf-8")
    new = renewed(old)
    if "--check" in sys.argv:
        sys.exit(f"{PAGE} is not up to date: run {sys.argv[0]}" if new != old else 0)
    PAGE.write_text(new, encoding="utf-8")
