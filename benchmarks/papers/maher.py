"""M. Maher (2020): real tables, networks, and what became of the synthetic study.

`python -m benchmarks.papers.maher` draws figures 26 and 27. Figure 29 is the picture that the study
of networks draws: `python -m benchmarks.studies networks --data digits --out DIR`, and
DIR/logits_three.svg copied to docs/papers/maher-figure-29.svg.

Results: study_networks_digits.json is DIR/networks.json of that command with `--seeds 10`, and
study_networks_digits_weak.json that with `--smoothing 0.0011111111111111111 --offset 1000` besides.
"""

from __future__ import annotations

from benchmarks.figures import table
from benchmarks.papers import _maher_networks, _maher_real, _maher_synthetic
from benchmarks.papers._common import ROOT, Page


def page() -> Page:
    synthetic = _maher_synthetic.findings()
    heads = ["figure or claim", "published", "ours", "verdict"]
    text = f"""\
{_maher_real.text()}
{_maher_networks.text()}
## Known generative models (section 7.1)

The synthetic study has [a page of its own](reproduction.md), with an experiment for every
difference that was found. Means of table 6 are over 1,000 data sets, there and here; they are said
to agree if they differ by three standard errors of the difference at most. Means of `normal` where
its optimum is often infinite say nothing and are left out.

{table(heads, [list(finding) for finding in synthetic])}
"""
    findings = [*_maher_real.findings(), *_maher_networks.findings(), *synthetic]
    return Page("maher", "Maher (2020): instance-based label smoothing", text, findings)


if __name__ == "__main__":
    _maher_real.draw(ROOT / "docs" / "papers")
