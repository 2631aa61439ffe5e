"""Tables 6 to 8 and figures 14, 15 and 22 to 24 of M. Maher (2020): known generative models."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from benchmarks.papers._common import Finding, read

#: Standard errors of a difference within which figures agree.
_ERRORS = 3
#: A mean with a standard error above this, of fits without finite optimum, is compared with none.
_NO_MEAN = 0.02
_TITLES = {"log_loss": "log loss", "ece": "ECE"}


class Entry(NamedTuple):
    """A published mean of table 6 beside ours, and the standard error of their difference."""

    what: str
    published: float | None
    ours: float
    error: float

    @property
    def apart(self) -> float:
        """The difference in standard errors; infinite where the published mean is."""
        if self.published is None:
            return math.inf
        return (self.ours - self.published) / self.error


def entries(metric: str) -> list[Entry]:
    study = read("synthetic")
    found = []
    for name, each in study["configurations"].items():
        for method, known in each["published"][metric].items():
            own = each["metrics"][metric][method]
            theirs = 0.0 if known["mean"] is None else known["deviation"]
            error = math.hypot(own["error"], theirs / math.sqrt(study["datasets"]))
            if own["error"] <= _NO_MEAN:
                what = f"`{method}` in {name.removeprefix('1')}"
                found.append(Entry(what, known["mean"], own["mean"], error))
    return found


def findings() -> list[Finding]:
    found = [_table(metric) for metric in _TITLES]
    found += [
        Finding(
            f"claim: {each['claim']} (figures 22 to 24, table 6)",
            f"in {each['of']} places",
            f"in {each['holds_in']}",
            "does not hold" if each["verdict"] == "fails" else each["verdict"],
        )
        for each in read("synthetic")["conclusions"]
    ]
    return [*found, _draws(), _factors()]


def _table(metric: str) -> Finding:
    rows = entries(metric)
    agree = sum(abs(row.apart) <= _ERRORS for row in rows)
    finite = [row for row in rows if row.published is not None]
    far = max(finite, key=lambda row: abs(row.apart))
    verdict = f"furthest: {far.what}, {far.ours:.4f} for {far.published:.4f}"
    if len(finite) < len(rows):
        verdict += f"; {len(rows) - len(finite)} published as infinite"
    return Finding(f"table 6, {_TITLES[metric]}", f"{len(rows)} figures", f"{agree} agree", verdict)


def _draws() -> Finding:
    sizes = [
        size
        for each in read("synthetic_figure_14")["priors"].values()
        for own in each["montecarlo"].values()
        if (size := own["sufficient"]) is not None
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
