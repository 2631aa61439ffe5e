"""Tables 9 and 10 and figures 26 and 27 of M. Maher (2020): real tables."""

from __future__ import annotations

from typing import Any

from benchmarks.figures import p_text, table
from benchmarks.papers._common import Finding, Row, agreement, bullets, crossed_table, read

EXPERIMENTS = {"svm": "scores of SVMs", "multivariate": "features"}
METRICS = {"log_loss": "log loss", "ece": "ECE"}
PICTURES = {"svm": "maher-figure-26.svg", "multivariate": "maher-figure-27.svg"}
_TABLES = {"svm": "table 9", "multivariate": "table 10"}
_FIGURES = {"svm": "figure 26", "multivariate": "figure 27"}
_WHERE = {**EXPERIMENTS, "both": "both"}


def experiments() -> dict[str, Any]:
    """Read the results of both experiments."""
    return read("real")["experiments"]


def means() -> dict[str, list[Row]]:
    """Collect published means and ours, by table, experiment and metric."""
    return {
        f"{_TABLES[name]}, {EXPERIMENTS[name]}, {metric_title}": [
            Row(
                f"`{method}`, {EXPERIMENTS[name]}, {metric_title}",
                value,
                facts[metric]["mean"][method],
                1e-4,
            )
            for method, value in facts[metric]["published"].items()
        ]
        for name, facts in experiments().items()
        for metric, metric_title in METRICS.items()
    }


def text() -> str:
    """Write the part of the page on real tables."""
    rows = [row for by_method in means().values() for row in by_method]
    results = experiments()
    remarks = [
        f"{EXPERIMENTS[name]}: {line}"
        for name, study in results.items()
        for line in study["remarks"]
    ]
    pictures = "\n\n".join(
        f"![Critical-difference diagrams, {EXPERIMENTS[name]}]({path})"
        for name, path in PICTURES.items()
    )
    return f"""\
## Real tables (section 7.2)

Tables 9 and 10 of the thesis are means over 40 tables, of which {len(read("real")["tables"])} are
available. The means may therefore differ. The list below points out contradictions.

{crossed_table(rows)}

{bullets(remarks)}

### Ranks (figures 26 and 27)

The tables show average ranks of the seven methods over the available data sets, whose values are
means over {read("real")["splits"]} splits; 1 is best. p-values are from Wilcoxon's signed-rank test
against the method with the best rank, with Holm's correction for all 21 pairs. We read the
published ranks from two pictures that come with the code of the thesis. There, "higher rank is
better", so we show 8 minus the rank. In the picture for features, the right panel (ECE) is a copy
of the left one, so it has no ranks.

{_ranks(results)}

{pictures}

Bars join methods that do not differ.

### What section 7.2 concludes

A claim about a ranking *holds* if all its pairs differ as claimed, at a level of 0.05 after
correction. It *does not hold* if the closest pair differs in the opposite direction. Otherwise it
is *not clear*. A claim that methods do not differ holds if no pair differs.
{len(read("real")["tables"])} tables can show only large differences.

{_conclusions()}

### Strengths of L1 and L2

The thesis adds λ Σ|w| or λ Σw² to a sum (not a mean) of losses, and chooses λ from 1e-5, 1e-4,
..., 1e3. Its published code hands that number to scikit-learn as C, the inverse of the strength: to
the sum of losses it adds Σ|w| / C or Σw² / (2 C). Here `strength` is λ for "l1" and 2 λ for "l2",
which is 1 / C for both: added is `strength` Σ|w| or `strength` Σw² / 2. The grid here is 1e-5, ...,
1e3, as printed for λ; that of the published code, if it is the printed one, is 1e-3, ..., 1e5 in
this unit: two stronger penalties, and not the two weakest. The intercept is never penalized. The
published code stops its optimizers at a tolerance of 0.1 where none is given; here they go on until
no step lowers the objective.

In that code, Platt's targets use the counts of the wrong class: 1 - 1 / (N⁻ + 2) for class 1 and
1 / (N⁺ + 2) for class 0. With equal counts this makes no difference.
"""


def _ranks(results: dict[str, Any]) -> str:
    """Write the tables of ranks by experiment and metric."""
    return "\n\n".join(
        _ranks_of(f"**{EXPERIMENTS[name]}, {metric_title}**", facts[metric]["seven"])
        for name, facts in results.items()
        for metric, metric_title in METRICS.items()
    )


def _ranks_of(title: str, facts: dict[str, Any]) -> str:
    published_ranks, test = facts["published_ranks"], facts["friedman"]
    rows = [
        [
            f"`{method}`",
            f"{published_ranks[method]:.2f}" if published_ranks else "",
            f"{rank:.2f}",
            p,
        ]
        for (method, rank), p in zip(
            facts["ranks"].items(),
            ["", *(p_text(p).removeprefix("p ") for p in facts["p_best"][1:])],
            strict=True,
        )
    ]
    summary = f"Friedman's χ² is {test['statistic']:.1f}, {p_text(test['p_value'])}."
    return f"{title}. {summary}\n\n{table(['', 'published rank', 'our rank', 'p'], rows)}"


def _conclusions() -> str:
    """Arrange the verdicts on the conclusions as a table."""
    rows = [
        [
            claim["claim"],
            f"{_WHERE[claim['experiment']]}, {METRICS[claim['metric']]}",
            claim["published"],
            claim["verdict"],
            claim["figures"],
        ]
        for claim in read("real")["conclusions"]
    ]
    return table(["claim", "of", "published", "verdict", "figures"], rows)


def findings() -> list[Finding]:
    """Collect the findings on real tables."""
    result = [agreement(name, rows) for name, rows in means().items()]
    for name, facts in experiments().items():
        for metric, metric_title in METRICS.items():
            seven = facts[metric]["seven"]
            ours, published = seven["ranks"], seven["published_ranks"]
            if published:
                best, worst = (
                    min(published, key=published.__getitem__),
                    max(published, key=published.__getitem__),
                )
                published_text = f"best {best}, worst {worst}"
            else:
                published_text = "a copy of log loss"
            first, *_, last = ours
            test = p_text(seven["friedman"]["p_value"])
            figure = f"{_FIGURES[name]}, ranks, {EXPERIMENTS[name]}, {metric_title}"
            verdict = (
                f"Friedman {test}; {_correlation(ours, published)}"
                if published
                else f"Friedman {test}"
            )
            result.append(Finding(figure, published_text, f"best {first}, worst {last}", verdict))
    for claim in read("real")["conclusions"]:
        where = f"{_WHERE[claim['experiment']]}, {METRICS[claim['metric']]}"
        words = f"claim: {claim['claim']} ({where})"
        result.append(Finding(words, claim["published"], claim["figures"], claim["verdict"]))
    return result


def _correlation(ours: dict[str, float], published: dict[str, float]) -> str:
    """Compute Spearman's correlation of two rankings, as text."""
    import numpy as np
    from scipy.stats import rankdata

    ranks = [rankdata([ranking[method] for method in published]) for ranking in (ours, published)]
    return f"rank correlation {np.corrcoef(ranks)[0, 1]:.2f}"


def draw(folder: Any) -> None:
    """Draw figures 26 and 27."""
    import numpy as np
    from matplotlib.figure import Figure

    from bayescal.plots import critical_difference
    from benchmarks.studies.store import write_figure

    for name, path in PICTURES.items():
        figure = Figure(figsize=(8.6, 1.9), layout="constrained")
        for ax, (metric, metric_title) in zip(figure.subplots(1, 2), METRICS.items(), strict=True):
            facts = experiments()[name][metric]
            tables = facts["by_table"].values()
            scores = {
                m: np.array([values[m] for values in tables]) for m in facts["seven"]["ranks"]
            }
            critical_difference(scores, ax=ax)
            ax.set_title(f"{EXPERIMENTS[name]}, {metric_title}", fontsize=10)
        write_figure(folder / path, figure)
