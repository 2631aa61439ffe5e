"""Weight scaling (anonymous submission to ICLR 2023)."""

from __future__ import annotations

from benchmarks.papers import _weight_claims as claims
from benchmarks.papers import _weight_tables as tables
from benchmarks.papers._common import Page, bullets, compared
from benchmarks.papers._networks import remarks
from benchmarks.papers._weight_tables import study


def page() -> Page:
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
    splits = max(own["splits"] for own in study("weight_scaling")["networks"].values())
    text = f"""\
Errors are in percent, ± a standard error. A difference is *lower* or *higher* if Student's interval
of 95 % lacks zero, else *not clear*. Where repeats split the same rows the standard error is
that of Nadeau and Bengio (2003), which covers what the splits have in common: simulated, it is
right for systematic errors, and up to three times too wide where chance is most of them.

## Table 1: losses of training

The networks and their logits cannot be had. Published, before / after TS / after WS (weight), ECE
in 15 bins:

{tables.published_1()}

Ours are networks of the same kind on other images: three convolutions (width 8) or two hidden
layers of 128, {study("losses")["epochs"]} epochs, all of them made, so that calibration rows have
no part in training. "digits" are 8 x 8 ({_sizes(rows["digits"])}; {repeats} splits), "made" are
images of ten classes that are alike in pairs ({_sizes(rows["made"])}; {repeats} sets of their own).
LS is the paper's, .95 for the label and .05 / 9 for each other class; MMCE is cross-entropy plus
twice that error; the focal loss is not in the paper's table. Temperatures and weights have the
least ECE on the calibration rows, on grids of .1 and of .1 %.
`python -m benchmarks.studies losses`.

{tables.ours_1()}

WS can only lower confidences: where training leaves a network underconfident, as label smoothing
may, its weight is 100 % and nothing changes, in the paper's table too.

## Table 2: methods

**DenseNet-40, CIFAR-10**, ECE in 25 bins

{compared(tables.densenet_rows())}

{bullets([*remarks("weight scaling"), *_variant_remarks(), _knot_remark()])}

{tables.knots()}

The other twelve networks of the table are not to be had:

{tables.published_2()}

What can be had; where there are test rows only, one random half of {splits} calibrates. Orders of
such errors, of one split each, are partly chance, here as there:

{tables.ours_2()}

## Table 3: bins

ECE in 25 bins after weights of 5 to 35 bins of equal width (ECWS) / of equal mass (CWS). None of
these networks is to be had.

{tables.published_3()}

Ours, means over halves; ↓ and ↑ where CWS is lower or higher:

{tables.ours_3()}

## Figures

![Figure 1](weight-scaling-figure-1.svg)

Figure 1: from (.6, .3, .1) to equal probabilities, as published.

![Figure 2](weight-scaling-figure-2.svg)

Figure 2, of other networks than the paper's ResNet-110: weights of CWS beside reciprocal
temperatures of CTS by bin of the confidence, and confidence less accuracy.

![Figure 3](weight-scaling-figure-3.svg)

Figure 3, of VGG-16 on CIFAR-100 rather than ResNet-110: reliability on the test rows before, after
CTS and after CWS.

## Equation 10: one weight

Weight in percent; mean squared error in 15 bins of equal mass, which equation 10 minimizes
(`WeightScaling(norm=2)`), on the calibration rows; ECE in 15 bins of equal width on the test rows.
Equation 9 is the same of absolute errors (`WeightScaling()`), the grid is of the ECE as in table 1.

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
    for method, own in study("weight_scaling")["variants"].items():
        best = own["closest"]
        step = f", temperatures in steps of {best['step']:g}" if best["step"] else ""
        lines.append(
            f"{method}: {own['ways']} ways give {100 * own['least']:.3f} to "
            f"{100 * own['greatest']:.3f}, {own['agree'] or 'none'} of them the published "
            f"{100 * own['published']:.3f}. Closest is {100 * best['ece_25']:.3f}, of "
            f"{best['bins']} bins, ties {best['ties']}, {best['dtype']}{step}."
        )
    return lines


def _knot_remark() -> str:
    return (
        "Spline: the published column is Gupta et al. (2021), of an unstated number of knots; "
        f"ours, of the confidence, has {tables.KNOTS}. By knots:"
    )
