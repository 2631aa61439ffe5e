"""Weight scaling (anonymous submission to ICLR 2023)."""

from __future__ import annotations

from benchmarks.papers import _weight_claims as claims
from benchmarks.papers import _weight_tables as tables
from benchmarks.papers._common import Page, bullets, comparison_table
from benchmarks.papers._networks import remarks
from benchmarks.papers._weight_tables import study


def page() -> Page:
    """Write the page."""
    findings = [
        *claims.losses(),
        *claims.methods(),
        *claims.bins(),
        *claims.figures(),
        *claims.one_weight(),
        *claims.others(),
    ]
    repeats = study("losses")["repeats"]
    rows = study("losses")["rows"]
    splits = max(facts["splits"] for facts in study("weight_scaling")["networks"].values())
    text = f"""\
Errors are in percent, ± a standard error. A difference is *lower* or *higher* if Student's 95 %
interval excludes zero, and *not clear* otherwise. If repeats split the same rows, the standard
error is that of Nadeau and Bengio (2003), which accounts for the overlap of the splits. In
simulations it is right for systematic errors, and up to three times too large if most of the error
is chance.

## Table 1: losses of training

The networks and their logits are not available. The published ECE in 15 bins, before / after TS /
after WS (weight):

{tables.published_1()}

We train networks of the same kind on other images: three convolutions (width 8) or two hidden
layers of 128, for {study("losses")["epochs"]} epochs without early stopping, so that calibration
rows play no part in training. "digits" are 8 x 8 images ({_sizes(rows["digits"])}; {repeats}
splits). "made" are synthetic images of ten classes that are similar in pairs
({_sizes(rows["made"])}; {repeats} data sets). LS is label smoothing as in the paper, 0.95 for the
label and 0.05 / 9 for each other class. MMCE is cross-entropy plus twice that error. The focal loss
is not in the paper's table. Temperatures and weights minimize the ECE on the calibration rows, on
grids with steps of 0.1 and 0.1 %. To repeat the study, run `python -m benchmarks.studies losses`.

{tables.ours_1()}

WS can only lower confidences. If training leaves a network under-confident, as label smoothing may,
the weight is 100 % and nothing changes. The paper's table shows this as well.

## Table 2: methods

**DenseNet-40, CIFAR-10**, ECE in 25 bins

{comparison_table(tables.densenet_rows())}

{bullets([*remarks("weight scaling"), *_variant_remarks(), _knot_remark()])}

{tables.knots()}

The other twelve networks of the table are not available:

{tables.published_2()}

These networks are available. If there are only test rows, one random half calibrates ({splits}
splits). Rankings of errors from a single split are partly due to chance, here as in the paper:

{tables.ours_2()}

## Table 3: bins

ECE in 25 bins, after weights in 5 to 35 bins of equal width (ECWS) / of equal mass (CWS). None of
these networks is available.

{tables.published_3()}

Our figures, means over halves; ↓ and ↑ mark where CWS is lower or higher:

{tables.ours_3()}

## Figures

![Figure 1](weight-scaling-figure-1.svg)

Figure 1: from (0.6, 0.3, 0.1) to equal probabilities, as published.

![Figure 2](weight-scaling-figure-2.svg)

Figure 2, for other networks than the paper's ResNet-110: weights of CWS and reciprocal temperatures
of CTS by bin of the confidence, and confidence minus accuracy.

![Figure 3](weight-scaling-figure-3.svg)

Figure 3, for VGG-16 on CIFAR-100 instead of ResNet-110: reliability on the test rows before
calibration, after CTS and after CWS.

## Equation 10: one weight

The table shows the weight in percent; the mean squared error in 15 bins of equal mass on the
calibration rows, which equation 10 minimizes (`WeightScaling(norm=2)`); and the ECE in 15 bins of
equal width on the test rows. Equation 9 minimizes absolute errors (`WeightScaling()`). The grid
minimizes the ECE as in table 1.

{tables.one_weight()}
"""
    return Page("weight-scaling", "Weight scaling (anonymous, 2023)", text, findings)


def _sizes(rows: list[int]) -> str:
    return "{:,} to train, {:,} to calibrate, {:,} to test".format(*rows)


def _variant_remarks() -> list[str]:
    lines = [
        "BTS, CTS and CWS were tried with 5 to 35 bins of equal mass; with equal confidences in "
        "one bin or parted; with rows at a border below, above, or none there; with confidences in "
        "double and in single precision, in which more than half of them are one; and with exact "
        "temperatures and grids of them:"
    ]
    for method, facts in study("weight_scaling")["variants"].items():
        closest = facts["closest"]
        step = f", temperatures in steps of {closest['step']:g}" if closest["step"] else ""
        lines.append(
            f"{method}: {facts['ways']} ways give {100 * facts['least']:.3f} to "
            f"{100 * facts['greatest']:.3f}, {facts['agree'] or 'none'} of them the published "
            f"{100 * facts['published']:.3f}. Closest is {100 * closest['ece_25']:.3f}, of "
            f"{closest['bins']} bins, ties {closest['ties']}, {closest['dtype']}{step}."
        )
    return lines


def _knot_remark() -> str:
    return (
        "Spline: the published column is Gupta et al. (2021), of an unstated number of knots; "
        f"ours, of the confidence, has {tables.KNOTS}. By knots:"
    )
