"""B. Lucena (2018): calibration by splines.

python -m benchmarks.papers._lucena_pictures draws the pictures of the page.
"""

from __future__ import annotations

from typing import Any

from benchmarks.figures import table
from benchmarks.papers._common import Finding, Page, Row, agreement, bullets, comparison_table, read
from benchmarks.papers._lucena_epochs import (
    VERDICTS,
    difference,
    ends_of,
    ends_table,
    epoch_findings,
    epochs,
    verdict_of,
)

#: Log losses of the forest on MIMIC-III in table 1.
_FOREST = {
    "uncalibrated": 0.2525,
    "isotonic": 0.2592,
    "Platt, of probabilities": 0.2535,
    "spline": 0.2442,
}
_METHODS = (
    "uncalibrated",
    "clipped, best",
    "temperature",
    "isotonic",
    "spline",
    "compact spline",
    "compact spline, default rule",
    "logit spline, unity prior",
    "splinecalib 0.0.13",
)
#: Suffix of networks whose class frequencies differ between calibration and test rows.
_SHIFTED = "_LT"


def page() -> Page:
    """Write the page."""
    adult, study = read("adult"), read("splines")
    rows = [
        Row(f"{name}, log loss on Adult", facts["published"], facts["cross_validated"], 1e-4)
        for name, facts in adult["methods"].items()
        if facts["published"] is not None and (not _is_spline(name) or name.endswith(".002"))
    ]
    training = study["training"]
    ends = ends_of(training)
    text = f"""\
## Table 1, Adult

{comparison_table(rows)}

{bullets(adult["remarks"])}

The next table tests the ranking of the methods in table 1, on the same test rows. It shows
differences of log losses, with standard errors over the test rows, which cover all randomness
except that of the training. A claim *holds* or *fails* if the difference exceeds two standard
errors. The splines have one fixed strength, or a strength chosen by cross-validation as the
algorithm says. All methods are calibrated by cross-validation (algorithm 4), and on a held-out
quarter of the training rows.

{_claims(adult)}

{_schemes(adult)}

## Table 1, MIMIC-III

The patient records are not freely available. We test the claims on the votes of another forest
instead (Adult, {study["forest"]["rows"]:,} rows, each half calibrated on the other):

{_forest(study["forest"])}

Votes of exactly 0 and 1 are wrong {study["forest"]["impossible"]["uncalibrated"]} times. The
published forest of 1,000 trees cannot have had many such votes, because its log loss is the second
best.

## Figure 1

![The compact logit for three values of epsilon](lucena-figure-1.svg)

## Figure 2

The figure shows log loss and accuracy by epoch. The images of CIFAR-10 are not among our data.
Instead, we trained small networks on digits with enough noise to give about the same error rate:
{training["rows"]["train"]:,} training rows, {training["rows"]["test"]} test rows and
{len(training["seeds"])} seeds. With one fifth of the rows for calibration, a class has about 24
positive rows; in the paper it has 1,000. In the upper panels one fifth of the training rows
calibrates, in the lower ones the predictions of five folds do.

![Log loss and accuracy by epoch](lucena-figure-2.svg)

{ends_table(ends)}

Differences of means over seeds, with standard errors. "Told apart" means by Student's t test at
95 %:

{bullets(epochs(training))}

## Multi-class: predictions of networks

Algorithm 3 on the predictions that are available. For networks without validation rows, each half
of the test rows calibrates the other. Clipping uses the best of four minimal probabilities on the
test rows, as in the paper. Log losses:

{_networks(study, "log_loss", 4)}

{_against_temperature(study)}

Accuracies:

{_networks(study, "accuracy", 4)}

The claims, tested by differences on the same rows with standard errors. In long-tailed CIFAR-10
(`_LT`) the class frequencies of the calibration rows differ from those of the test rows.

{_network_claims(study)}

The curve of each class of DenseNet-40 on CIFAR-10, in log odds. Where the curve is below the
diagonal on the right and above it on the left, the network is over-confident.

![Calibration curves of ten classes](lucena-classes.svg)

## The algorithm and the author's package

{bullets(_ALGORITHM)}
"""
    findings = [
        agreement("table 1, Adult", rows),
        *_adult_findings(adult),
        *_forest_findings(study["forest"]),
        Finding("figure 1", "3 curves", "drawn", "agrees"),
        *epoch_findings(training, ends),
        *_network_findings(study),
    ]
    return Page("lucena", "Lucena (2018): splines", text, findings)


_ALGORITHM = [
    "Knots: a random sample of 200 scores. Ours are 200 quantiles of the distinct scores, so that "
    "a fit is not random; or they are given.",
    "Penalty: formula (1) prints the integral of f'', without a square; the algorithm penalizes "
    "the coefficients of the natural basis. Both can be chosen, the first with the square.",
    "Strength: a range of candidates is not printed. The one with the least cross-validated log "
    'loss is `rule="best"`; our default is the strongest within one standard error of it.',
    "Clipping to a minimal probability is what splines are compared with, not a part of them. The "
    "compact logit leaves scores beyond epsilon as they are.",
    "The package splinecalib 0.0.13 is another algorithm: logits clipped at an epsilon, 30 knots "
    "at random and .1, ..., .9, and 20 prior rows on the identity. These can be chosen here "
    "(`knots`, `epsilon`, `unity_prior_weight`, `strengths`), and tests hold knots, rows, basis "
    "and optimum to the package's.",
    "The package's last fit leaves out one of five folds, its intercept is penalized, and with its "
    "default options candidates are compared on one fold only.",
]


def _is_spline(name: str) -> bool:
    return "spline" in name


def _claims(adult: dict[str, Any]) -> str:
    rows = []
    for claim, kinds in adult["claims"].items():
        for kind, by_scheme in kinds.items():
            published = "" if by_scheme["published"] is None else f"{by_scheme['published']:+.4f}"
            calibration = {"as published": "by cross-validation"}.get(kind, kind)
            ours = [difference(by_scheme[scheme]) for scheme in ("cross_validated", "held_out")]
            rows.append([claim, calibration, published, *ours])
    return table(["claim", "splines", "published", "5 folds", "held out"], rows)


def _schemes(adult: dict[str, Any]) -> str:
    lines = [
        f"{name}: {difference(comparison)}"
        for name, comparison in adult["cross_validation"].items()
    ]
    return f"""\
The paper claims that calibration by cross-validation has a lower loss than calibration on held-out
rows, which the classifier then lacks.

{bullets(lines)}"""


def _forest(forest: dict[str, Any]) -> str:
    losses = [
        [name, f"{_FOREST[name]:.4f}" if name in _FOREST else "", f"{loss:.4f}"]
        for name, loss in forest["log_loss"].items()
    ]
    claims = [[claim, difference(comparison)] for claim, comparison in forest["claims"].items()]
    heads = ["log loss", "published, other data", "ours"]
    return f"{table(heads, losses)}\n\n{table(['claim', 'difference'], claims)}"


def _networks(study: dict[str, Any], metric: str, digits: int) -> str:
    rows = []
    for name, facts in study["networks"].items():
        values = [facts["methods"].get(m, {}).get(metric) for m in _METHODS]
        rows.append([name, *("" if v is None else f"{v:.{digits}f}" for v in values)])
    return table(["", *_METHODS], rows)


def _against_temperature(study: dict[str, Any]) -> str:
    pairs = [
        [facts["methods"][name]["log_loss"] for name in ("compact spline", "temperature")]
        for facts in study["networks"].values()
        if "temperature" in facts["methods"]
    ]
    lower = sum(spline < temperature for spline, temperature in pairs)
    return (
        "The paper does not compare with temperature scaling, a single parameter. The compact "
        f"spline has the lower log loss in {lower} of {len(pairs)} networks where both were fitted."
    )


def _network_claims(study: dict[str, Any]) -> str:
    networks = study["networks"]
    claims = list(next(iter(networks.values()))["claims"])
    rows = [
        [name, *(difference(facts["claims"][claim]) for claim in claims)]
        for name, facts in networks.items()
    ]
    return table(["", *claims], rows)


def _adult_findings(adult: dict[str, Any]) -> list[Finding]:
    findings = []
    for claim, kinds in adult["claims"].items():
        comparison = kinds.get("as published") or kinds[""]
        published = "" if comparison["published"] is None else f"{comparison['published']:+.4f}"
        shown = difference(comparison["cross_validated"]).rpartition(", ")[0]
        findings.append(
            Finding(
                f"Adult: log loss, {claim}",
                published,
                shown,
                verdict_of(comparison["cross_validated"]),
            )
        )
    for name, comparison in adult["cross_validation"].items():
        shown = difference(comparison).rpartition(", ")[0]
        claim = f"Adult: cross-validated below held out, {name}"
        findings.append(Finding(claim, "lower", shown, verdict_of(comparison)))
    return findings


def _forest_findings(forest: dict[str, Any]) -> list[Finding]:
    findings = []
    for claim, comparison in forest["claims"].items():
        first, second = claim.split(" below ")
        names: dict[str, str] = {"Platt": "Platt, of probabilities"}
        one, other = (names[n] if n in names else n for n in (first, second))
        published = _FOREST[one] - _FOREST[other]
        shown = difference(comparison).rpartition(", ")[0]
        findings.append(
            Finding(
                f"forest, other data: log loss, {claim}",
                f"{published:+.4f}",
                shown,
                verdict_of(comparison),
            )
        )
    return findings


def _network_findings(study: dict[str, Any]) -> list[Finding]:
    networks = {n: facts for n, facts in study["networks"].items() if not n.endswith(_SHIFTED)}
    findings = []
    for claim in next(iter(networks.values()))["claims"]:
        verdicts = [facts["claims"][claim]["verdict"] for facts in networks.values()]
        counts = {v: verdicts.count(v) for v in VERDICTS}
        ours = ", ".join(f"{VERDICTS[v]} for {n}" for v, n in counts.items() if n)
        overall = (
            "holds" if counts["holds"] > len(verdicts) / 2 and not counts["fails"] else "mixed"
        )
        overall = "fails" if counts["fails"] > len(verdicts) / 2 else overall
        overall = "not told apart" if counts["open"] > len(verdicts) / 2 else overall
        findings.append(Finding(f"{len(verdicts)} networks: {claim}", "claimed", ours, overall))
    gains = []
    for facts in networks.values():
        loss = {name: measures["log_loss"] for name, measures in facts["methods"].items()}
        gains.append(
            [loss["uncalibrated"] - loss[name] for name in ("compact spline", "clipped, best")]
        )
    num_far = sum(spline > 2 * max(clip, 0) for spline, clip in gains)
    claim = f"{len(gains)} networks: gain by spline more than twice that of clipping"
    published = "0.0728 to 0.0211, 0.0418 to 0.0118"
    overall_gain = "holds" if num_far > len(gains) / 2 else "fails"
    findings.append(Finding(claim, published, f"{num_far} of {len(gains)}", overall_gain))
    return findings
