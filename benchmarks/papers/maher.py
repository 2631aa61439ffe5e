"""M. Maher (2020): real tables, networks, and a summary of the synthetic study.

`python -m benchmarks.papers.maher` draws figures 26 and 27. The study of networks draws figure 29:
run `python -m benchmarks.studies networks --data digits --out DIR`, and copy DIR/logits_three.svg
to docs/papers/maher-figure-29.svg.

study_networks_digits.json is DIR/networks.json of that command with `--seeds 10`, and
study_networks_digits_weak.json is the same file of that command with `--seeds 10 --smoothing
0.0011111111111111111 --offset 1000`.
"""

from __future__ import annotations

from benchmarks.figures import table
from benchmarks.papers import _maher_networks, _maher_real, _maher_synthetic
from benchmarks.papers._common import ROOT, Page


def page() -> Page:
    """Write the page."""
    synthetic = _maher_synthetic.findings()
    heads = ["figure or claim", "published", "ours", "verdict"]
    text = f"""\
{_maher_real.text()}
{_maher_networks.text()}
## Generative models (section 7.1)

[The synthetic study](reproduction.md) has a separate page, with an experiment for every difference.
The means of table 6 are over 1,000 data sets, there and here. They agree if they differ by at most
three standard errors of the difference. Means of `normal` are left out where its optimum is often
infinite, because they are meaningless.

{table(heads, [list(finding) for finding in synthetic])}
"""
    findings = [*_maher_real.findings(), *_maher_networks.findings(), *synthetic]
    return Page("maher", "Maher (2020): instance-based label smoothing", text, findings)


if __name__ == "__main__":
    _maher_real.draw(ROOT / "docs" / "papers")
