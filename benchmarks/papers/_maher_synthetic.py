"""Tables 6 to 8 and figures 14, 15 and 22 to 24 of M. Maher (2020): known generative models."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from benchmarks.papers._common import Finding, read

#: Figures agree if they differ by at most this many standard errors of the difference.
_ERRORS = 3
#: Means with a larger standard error, from fits without finite optimum, are not compared.
_NO_MEAN = 0.02
_TITLES = {"log_loss": "log loss", "ece": "ECE"}


class Entry(NamedTuple):
    """A published mean of table 6, ours, and the standard error of their difference."""

    what: str
    published: float | None
    ours: float
    error: float

    @property
    def apart(self) -> float:
        """Difference in standard errors; infinite if the published mean is infinite."""
        if self.published is None:
            return math.inf
        return (self.ours - self.published) / self.error


def entries(metric: str) -> list[Entry]:
    """Compare the means of table 6 by a metric with ours."""
    study = read("synthetic")
    rows = []
    for name, facts in study["configurations"].items():
        for method, published in facts["published"][metric].items():
            ours = facts["metrics"][metric][method]
            published_deviation = 0.0 if published["mean"] is None else published["deviation"]
            error = math.hypot(ours["error"], published_deviation / math.sqrt(study["datasets"]))
            if ours["error"] <= _NO_MEAN:
                what = f"`{method}` in {name.removeprefix('1')}"
                rows.append(Entry(what, published["mean"], ours["mean"], error))
    return rows


def findings() -> list[Finding]:
    """Collect the findings on known generative models."""
    result = [_table(metric) for metric in _TITLES]
    result += [
        Finding(
            f"claim: {conclusion['claim']} (figures 22 to 24, table 6)",
            f"in {conclusion['of']} places",
            f"in {conclusion['holds_in']}",
            "does not hold" if conclusion["verdict"] == "fails" else conclusion["verdict"],
        )
        for conclusion in read("synthetic")["conclusions"]
    ]
    return [*result, _draws(), _factors()]


def _table(metric: str) -> Finding:
    rows = entries(metric)
    agree = sum(abs(row.apart) <= _ERRORS for row in rows)
    finite = [row for row in rows if row.published is not None]
    furthest = max(finite, key=lambda row: abs(row.apart))
    verdict = f"furthest: {furthest.what}, {furthest.ours:.4f} for {furthest.published:.4f}"
    if len(finite) < len(rows):
        verdict += f"; {len(rows) - len(finite)} published as infinite"
    return Finding(f"table 6, {_TITLES[metric]}", f"{len(rows)} figures", f"{agree} agree", verdict)


def _draws() -> Finding:
    sizes = [
        size
        for facts in read("synthetic_figure_14")["priors"].values()
        for by_method in facts["montecarlo"].values()
        if (size := by_method["sufficient"]) is not None
    ]
    return Finding(
        "figure 14, draws until the loss settles",
        "10,000",
        f"{min(sizes)} to {max(sizes)}",
        "far fewer suffice",
    )


def _factors() -> Finding:
    rows: list[dict[str, Any]] = read("synthetic_figure_15")["rows"]
    sizes = sorted({row["n_train"] for row in rows})
    falls = 0
    for size in sizes:
        best = [row["best"] for row in rows if row["n_train"] == size]
        falls += best[0] == max(best) and best[-1] == min(best)
    return Finding(
        "figure 15, the best factor depends on the distance of classes, Platt's does not",
        "at all sizes",
        f"the best falls with the distance at {falls} of {len(sizes)} sizes",
        "holds" if falls == len(sizes) else "in part",
    )
