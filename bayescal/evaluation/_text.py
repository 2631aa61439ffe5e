"""What the page says about its numbers and figures."""

from __future__ import annotations

from collections.abc import Sequence

from bayescal.evaluation._findings import SIGNIFICANCE, Finding

REFERENCES = (
    "G. W. Brier (1950), Verification of forecasts expressed in terms of probability.",
    "I. J. Good (1952), Rational decisions.",
    "D. J. Spiegelhalter (1986), Probabilistic prediction in patient management and clinical "
    "trials.",
    "J. Bröcker and L. A. Smith (2007), Increasing the reliability of reliability diagrams.",
    "M. P. Naeini, G. F. Cooper and M. Hauskrecht (2015), Obtaining well calibrated probabilities "
    "using Bayesian binning.",
    "A. Kumar, P. Liang and T. Ma (2019), Verified uncertainty calibration.",
    "T. Dimitriadis, T. Gneiting and A. I. Jordan (2021), Stable reliability diagrams for "
    "probabilistic classifiers.",
    "J. Hernández-Orallo, P. Flach and C. Ferri (2011), Brier curves: a new cost-based "
    "visualisation of classifier performance.",
)


def define_metrics(k: int, bins: int, eps: float, event: str) -> dict[str, str]:
    """Return what each metric of the table is."""
    binary = k == 2
    brier = (
        f"Mean squared distance between the probability of {event} and the outcome, 0 or 1."
        if binary
        else "Squared distance between the probabilities and the outcome, summed over the classes, "
        "mean over cases; 2 at worst."
    )
    what = (
        f"the mean probability of {event} and its frequency"
        if binary
        else ("the mean confidence (the largest probability of a case) and the accuracy")
    )
    found = {
        "log loss": "Mean of −ln of the probability that was given to what happened. Lower is "
        f"better. Probabilities are clipped to [ε, 1 − ε] with ε = {eps:.2g}, the precision of "
        "double numbers, so that a case that was said to be impossible costs a finite amount.",
        "Brier score": brier + " Lower is better. Like the log loss it is a proper score: it "
        "rewards both calibration and the ability to tell cases apart.",
        "accuracy": "Share of cases whose class has the largest probability. It says nothing of "
        "calibration.",
        "ECE": f"Expected calibration error: the gap between {what}, in {bins} bins of equal width "
        "over [0, 1], averaged with the shares of cases. It depends on the bins, and chance alone "
        "makes it positive: the fewer cases in a bin, the more. The interval has this bias "
        "removed, to first order, and so may lie below the value.",
        "debiased ECE": f"Root mean square of the same gap in {bins} bins that hold equally many "
        "cases, less what chance contributes; 0 where chance explains it all. As a root mean "
        "square it may exceed the ECE.",
    }
    if not binary:
        found["class-wise ECE"] = (
            "The ECE of the probability of each class in turn, averaged over classes. With many "
            "classes most probabilities are near 0, and so is this error."
        )
    return found


def explain_tests(replicates: int, binary: bool) -> tuple[str, ...]:
    """Return what the tests ask, and what they cannot say."""
    large = (
        " Calibration in the large compares the mean probability with the frequency; its z is "
        "positive where probabilities are too high."
    )
    return (
        "The tests ask whether the outcomes could have been drawn from the predicted "
        "probabilities. Spiegelhalter's z compares the Brier score with that of calibrated "
        "predictions; positive values mean over-confidence. Errors that cancel in the Brier "
        "score escape it. The consistency test compares the ECE with that of "
        f"{replicates:,} sets of labels drawn from the predictions, and so takes account of its "
        "bias." + (large if binary else ""),
        "A small p-value says that there is an error, not that it is large: with very many cases "
        "negligible errors are found, with few cases large ones are missed. The summary calls a "
        f"p-value below {SIGNIFICANCE:g} evidence; no correction is made for several tests or "
        "models.",
    )


def explain_diagrams(k: int, bins: int, level: float, event: str) -> tuple[str, ...]:
    """Return how reliability diagrams are read."""
    said, seen = (
        (f"the predicted probability of {event}", "its observed frequency")
        if k == 2
        else ("the confidence (the largest probability of a case)", "the accuracy")
    )
    return (
        f"A reliability diagram sets {said} against {seen}. Calibrated predictions lie on the "
        "diagonal; "
        + (
            "a curve flatter than the diagonal means over-confidence, a steeper one "
            "under-confidence, one above it that probabilities are too low."
            if k == 2
            else "a curve below it means over-confidence, one above it under-confidence."
        ),
        f"The first figure averages in {bins} bins of equal width; a bin with few cases moves far "
        "by chance. The second has no bins: isotonic regression, the best fit that never falls "
        f"(CORP). Pale bars and bands hold {level:.0%} of the estimates that a calibrated model "
        "would give, at each place by itself: with many bins, a few fall outside by chance. The "
        "strip on top, and the histogram, show where the cases are: what lies elsewhere concerns "
        "few of them.",
    )


def explain_decomposition(k: int) -> str:
    """Return what the parts of the Brier score are."""
    score = (
        "the Brier score"
        if k == 2
        else ("the squared distance between the confidence and whether the prediction is right")
    )
    return (
        f"Isotonic recalibration splits {score} into miscalibration (what recalibration "
        "would save), discrimination (what telling cases apart saves, beside one constant "
        "probability) and uncertainty (the score of that constant): score = miscalibration − "
        "discrimination + uncertainty. As the regression is fitted to these very cases, "
        "miscalibration comes out somewhat too large where they are few."
    )


def explain_classes(shown: int, k: int) -> str:
    """Return how the panels of the classes are read."""
    which = (
        f"The {shown} of {k} classes with the largest error are shown; errors are averages over "
        "all cases, so frequent classes come first."
        if shown < k
        else "All classes are shown."
    )
    return (
        "The probability of each class against its frequency, over all cases, with the ECE. "
        f"{which} Markers far to the right often stand for few cases."
    )


def explain_costs(event: str) -> str:
    """Return how the curve of costs is read."""
    return (
        f"Suppose that one acts on cases that are thought to be of {event}. Let acting wrongly "
        "cost 2t, and wrongly not acting 2(1 − t). Then it is best to act where a calibrated "
        "probability exceeds t. The line shows what such decisions cost on average, for each t; "
        "the area under it is the Brier score. "
        "Where it lies above the dashed line, always or never acting would be cheaper. Look at "
        "the t that your costs imply."
    )


def remedies(findings: Sequence[Finding], k: int, cases: int) -> tuple[str, list[str]]:
    """Return an introduction, and maps that may help."""
    if all(found.verdict == "no evidence" for found in findings):
        return (
            "Nothing here calls for recalibration. A calibration map fitted all the same may well "
            "make the predictions worse.",
            [],
        )
    advice = (
        "A calibration map can be fitted to cases that neither trained the model nor are judged "
        "here. Whether it helps must be measured: evaluate raw and calibrated probabilities side "
        "by side on further cases."
    )
    if k == 2:
        maps = [
            "Temperature: one parameter, against over- and under-confidence; it cannot shift "
            "probabilities up or down.",
            "Logistic or Beta: two or three parameters, which can; a sound first choice.",
            "Isotonic or Spline: any rising shape, given about a thousand cases or more.",
        ]
    else:
        maps = [
            "Temperature: one parameter, against over- and under-confidence; accuracy stays the "
            "same.",
            "Vector or StructuredMatrix: where classes err differently; these need more cases, the "
            "more classes the more.",
        ]
    if cases < 500:
        maps.append(f"With as few as {cases:,} cases, prefer maps with few parameters.")
    return advice, maps
