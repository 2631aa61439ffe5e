"""Findings of ``evaluate`` and the sentences about them."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, pearson3

import bayescal
from bayescal import metrics
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.predictions import Reading
from bayescal.evaluation import _evaluate, _findings
from bayescal.evaluation._events import sum_by_class, worst_proportion


def draw_binary(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    p = rng.uniform(size=n)
    return p, (rng.uniform(size=n) < p).astype(int)


def draw_classes(n: int = 400, k: int = 4, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    logits = rng.normal(size=(n, k)) * 1.5
    y = (logits + rng.gumbel(size=(n, k))).argmax(axis=1)
    odds = np.exp(scale * logits)
    return odds / odds.sum(axis=1, keepdims=True), y


def test_metrics_are_those_of_the_report() -> None:
    p, y = draw_binary()
    weights = np.tile([1.0, 2.0, 0.5], 200)
    models = {"a": p, "b": p**2}
    result = bayescal.evaluate(models, y, replicates=100, seed=3, level=0.8, weights=weights)
    assert result.report == metrics.report(
        models, y, replicates=100, seed=3, level=0.8, weights=weights
    )
    probs, y = draw_classes()
    result = bayescal.evaluate(probs, y, replicates=100)
    assert result.report == metrics.report(probs, y, replicates=100)
    ten = bayescal.evaluate(probs, y, replicates=100, bins=10).report.intervals["model"]
    assert ten["ECE"].value == metrics.ece(probs, y, bins=10)
    assert ten["RMS calibration error"].value == metrics.debiased_ece(probs, y, bins=10)
    assert ten["class-wise ECE"].value == metrics.ece(probs, y, bins=10, kind="classwise")


def test_tests_are_those_of_the_metrics() -> None:
    p, y = draw_binary()
    result = bayescal.evaluate(p, y, replicates=60, seed=2).findings["model"]
    assert result.spiegelhalter == metrics.spiegelhalter_test(p, y)
    assert result.consistency == metrics.consistency_test("ece", p, y, resamples=60, seed=2)
    assert result.label == 1
    assert (result.predicted, result.observed) == pytest.approx((p.mean(), y.mean()))
    np.testing.assert_allclose(result.bias, sum_test(p, y, np.ones(600)), rtol=1e-9)
    assert result.decomposition.score == pytest.approx(np.mean((p - y) ** 2))
    assert result.confidence == pytest.approx(np.maximum(p, 1 - p).mean())
    probs, y = draw_classes()
    result = bayescal.evaluate(probs, y, replicates=60).findings["model"]
    assert result.consistency.statistic == pytest.approx(metrics.ece(probs, y), abs=1e-12)
    hit = probs.argmax(axis=1) == y
    assert result.decomposition.score == pytest.approx(np.mean((probs.max(axis=1) - hit) ** 2))


def sum_test(p: np.ndarray, happened: np.ndarray, w: np.ndarray) -> tuple[float, float]:
    """Compute z in the large; the number of events has the tail of a gamma variable."""
    excess, variance = w @ (p - happened), w**2 @ (p * (1 - p))
    skewness = -np.sign(excess) * (w**3 @ (p * (1 - p) * (1 - 2 * p))) / variance**1.5
    z = excess / np.sqrt(variance)
    tail = pearson3.sf(abs(z), skewness) if skewness > 0 else norm.sf(abs(z))
    return z, min(2 * tail, 1)


@pytest.mark.parametrize("fractional", [False, True])
def test_proportions_of_several_classes(fractional: bool) -> None:
    """The least of the p-values of single classes counts, times the number of classes."""
    probs, y = draw_classes(2000)
    shown = probs * [1, 0.8, 1, 1.1]
    shown /= shown.sum(axis=1, keepdims=True)
    w = np.random.default_rng(0).uniform(0.5, 2, 2000) if fractional else np.ones(2000)
    options = {"classes": ["a", "b", "c", "d"], "replicates": 60}
    result = bayescal.evaluate(shown, y, weights=w, **options)
    finding = result.findings["model"]
    tests = [sum_test(shown[:, c], y == c, w) for c in range(4)]
    worst = int(np.argmin([p for _, p in tests]))
    assert finding.label == worst == 1
    assert finding.bias == pytest.approx((tests[1][0], 4 * tests[1][1]), rel=1e-9)
    assert finding.predicted == pytest.approx(np.average(shown[:, 1], weights=w))
    assert finding.observed == pytest.approx(np.average(y == 1, weights=w))
    assert finding.verdict == "miscalibrated"
    assert finding.size >= finding.observed - finding.predicted > 0.02
    text = f"of class b is {finding.predicted:.3f}, its frequency {finding.observed:.3f} (p = .00"
    summary = result.summary()["model"]
    assert text in summary and summary.endswith(" for the worst of 4 classes).")
    assert result.to_dict()["models"]["model"]["class"] == "b"
    cut = range(0, 2000, 300)
    blocks = bayescal.Blocks([(shown[i : i + 300], y[i : i + 300], w[i : i + 300]) for i in cut])
    again = bayescal.evaluate(blocks, **options).findings["model"]
    np.testing.assert_allclose(again.bias, finding.bias, rtol=1e-9)
    groups = np.arange(2000) // 2
    many = bayescal.evaluate(shown, y, weights=w, groups=groups, **options).findings["model"]
    assert many.verdict == "miscalibrated" and many.label == 1


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(10, 3), (60, 3), (200, 12)])
def test_calibrated_models_of_several_classes_are_rarely_called_wrong(n: int, k: int) -> None:
    wrong = large = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        probs = rng.dirichlet(np.geomspace(1, 0.02, k), n)
        y = (rng.random((n, 1)) > probs.cumsum(axis=1)[:, :-1]).sum(axis=1)
        finding = bayescal.evaluate(probs, y, replicates=99).findings["model"]
        wrong += finding.verdict != "no evidence"
        large += finding.bias.p_value < 0.05
    # Of a binomial distribution with probability 0.05, 99.8 % is at most 16.
    assert max(wrong, large) <= 16


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "size", "correlation"), [(100, 5, 0.5), (30, 5, 0.9)])
def test_proportions_of_correlated_rows_are_rarely_rejected(
    groups: int, size: int, correlation: float
) -> None:
    group, rejected = np.repeat(np.arange(groups), size), 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        probs = rng.dirichlet(np.ones(4), len(group))
        common, own = rng.normal(size=groups)[group], rng.normal(size=len(group))
        u = norm.cdf(np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own)
        y = (u[:, None] > probs.cumsum(axis=1)[:, :-1]).sum(axis=1)
        data = as_predictions(probs, y, None, Reading(range(4)))._replace(clusters=group)
        found = worst_proportion(sum_by_class(data), float(len(y)), True, data)
        rejected += found.test.p_value <= 0.05
    # Of a binomial distribution with probability 0.05, 99.8 % is at most 27.
    assert rejected <= 27


def test_whole_weights_are_repetitions_and_zero_leaves_out() -> None:
    p, y = draw_binary(300)
    weights = np.tile([0, 1, 3], 100)
    result = bayescal.evaluate(p, y, weights=weights, replicates=50)
    again = bayescal.evaluate(p.repeat(weights), y.repeat(weights), replicates=50)
    ours, theirs = result.findings["model"], again.findings["model"]
    np.testing.assert_allclose(ours.bias, theirs.bias, rtol=1e-9)
    np.testing.assert_allclose(ours.spiegelhalter, theirs.spiegelhalter, rtol=1e-9)
    assert ours.accuracy == pytest.approx(theirs.accuracy)
    assert result.report.cases == 200
    assert result.to_dict()["classes"] == again.to_dict()["classes"]


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        (lambda p: 1 / (1 + np.exp(-2 * np.log(p / (1 - p)))), "over-confident", "more extreme"),
        (lambda p: 0.5 + 0.4 * (p - 0.5), "under-confident", "less extreme"),
        (lambda p: p**0.6, "too high", "exceed its frequency"),
        (lambda p: p**1.8, "too low", "are below its frequency"),
        (lambda p: p, "no evidence", "as far as 3,000 cases can tell"),
        (
            lambda p: np.where(p > 0.5, 0.999, 0.001),
            "over-confident",
            "Strongly over-confident, by",
        ),
        (lambda p: 0.5 + 0.5 * np.sin(9 * p), "miscalibrated", "not simply"),
    ],
)
def test_verdicts(change: Any, verdict: str, words: str) -> None:
    rng = np.random.default_rng(1)
    p = rng.uniform(0.01, 0.99, size=3000)
    y = (rng.uniform(size=3000) < p).astype(int)
    if verdict == "miscalibrated":
        # Errors that cancel in the Brier score and on average.
        shown, y = p, (rng.uniform(size=3000) < p + 0.08 * np.sin(8 * np.pi * p)).astype(int)
    else:
        shown = change(p)
    result = bayescal.evaluate(shown, y, replicates=99)
    assert result.findings["model"].verdict == verdict
    text = result.summary()["model"]
    assert words in text
    strength = result.findings["model"].strength
    assert (strength == "none") == (verdict == "no evidence")
    assert strength == "strong" or "Strongly" not in words
    if strength == "none":
        upper = result.report.intervals["model"]["ECE"].upper
        assert f"at most {upper:.3f} (90% interval)" in text
    value = metrics.ece(shown, y)
    assert f"ECE {value:.3f}" in text
    assert text in repr(result)


def test_summary_has_errors_of_classes_that_no_test_finds() -> None:
    """Errors of two classes have opposite signs in two halves, and cancel in all tests."""
    probs = np.repeat([[0.4, 0.3, 0.3], [0.5, 0.25, 0.25]], 1000, axis=0)
    true = np.repeat([[0.4, 0.45, 0.15], [0.5, 0.1, 0.4]], 1000, axis=0)
    y = (np.random.default_rng(1).random((2000, 1)) > true.cumsum(axis=1)[:, :-1]).sum(axis=1)
    result = bayescal.evaluate(probs, y, classes=[0, 1, 2], replicates=99)
    errors = result.report.intervals["model"]["class-wise ECE"]
    assert errors.lower > 0.05
    text = f"the class-wise ECE {errors.estimate:.3f}, at most {errors.upper:.3f} (90% interval)"
    assert text in result.summary()["model"] and text in result.to_html()
    assert "Confidence and class proportions are calibrated as far as" in result.summary()["model"]
    assert "unless the class-wise ECE is far above chance" in result.to_html()


@pytest.mark.slow
@pytest.mark.parametrize("decimals", [1, 16])
def test_calibrated_models_are_rarely_called_wrong(decimals: int) -> None:
    wrong = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        p = rng.uniform(size=100).round(decimals)
        y = (rng.uniform(size=100) < p).astype(int)
        finding = bayescal.evaluate(p, y, classes=[0, 1], replicates=99).findings["model"]
        wrong += finding.verdict != "no evidence"
    # Of a binomial distribution with probability 0.05, 99.8 % is at most 16.
    assert 1 <= wrong <= 16


@pytest.mark.parametrize(
    ("factor", "strength", "summary"),
    [(1.1, "slight", "Slightly over-confident, by 0.0"), (1.6, "clear", "Over-confident, by 0.0")],
)
def test_verdicts_weigh_the_size(factor: float, strength: str, summary: str) -> None:
    rng = np.random.default_rng(2)
    p = rng.uniform(0.02, 0.98, size=40_000)
    y = (rng.uniform(size=len(p)) < p).astype(int)
    shown = 1 / (1 + np.exp(-factor * np.log(p / (1 - p))))
    result = bayescal.evaluate(shown, y, replicates=50)
    finding = result.findings["model"]
    assert (finding.verdict, finding.strength) == ("over-confident", strength)
    gap = np.maximum(shown, 1 - shown).mean() - ((shown > 0.5) == y).mean()
    assert finding.size == pytest.approx(gap)
    assert result.summary()["model"].startswith(summary)


def test_certain_predictions() -> None:
    right = bayescal.evaluate(np.array([0.0, 1.0, 1.0]), [0, 1, 1], replicates=20)
    assert right.findings["model"].verdict == "no evidence"
    assert right.to_dict()["models"]["model"]["calibration_in_the_large"]["p_value"] == 1
    wrong = bayescal.evaluate(np.array([1.0, 1.0, 1.0]), [0, 1, 1], replicates=20)
    result = wrong.to_dict()["models"]["model"]
    assert result["spiegelhalter"] == {"statistic": None, "p_value": 0.0}
    assert result["calibration_in_the_large"] == {"statistic": None, "p_value": 0.0}
    assert "too high" in result["verdict"] or "over-confident" in result["verdict"]
    assert wrong.to_html()


def test_numbers_go_into_json() -> None:
    probs, y = draw_classes()
    names = ["ash", "birch", "cedar", "dogwood"]
    result = bayescal.evaluate({"a": probs, "b": probs[:, ::-1]}, y, classes=names, replicates=50)
    kept = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert kept["classes"] == dict(zip(names, np.bincount(y).tolist(), strict=True))
    loss = kept["models"]["b"]["metrics"]["log loss"]["value"]
    assert loss == metrics.log_loss(probs[:, ::-1], y)
    gap = kept["models"]["b"]["differences"]["log loss"]
    assert gap["value"] == pytest.approx(loss - metrics.log_loss(probs, y))
    assert kept["models"]["a"]["differences"] == {}


def test_progress_is_told() -> None:
    p, y = draw_binary(50)
    steps: list[tuple[str, int, int]] = []
    result = bayescal.evaluate(p, y, replicates=20, progress=lambda *step: steps.append(step))
    assert steps[:2] == [("tests: model", 0, 2), ("20 resamples of 50 cases", 1, 2)]
    assert steps[-1][1:] == (2, 2)
    steps.clear()
    result.to_html(progress=lambda *step: steps.append(step))
    assert [step[1] for step in steps] == [0, 1, 2]


def test_p_values_are_written_as_in_the_field() -> None:
    texts = [_findings.p_text(p) for p in (1.0, 0.0312, 0.0009)]
    assert texts == ["p = 1.000", "p = .031", "p < .001"]


@pytest.mark.parametrize(
    ("probs", "options", "message"),
    [
        ({}, {}, "probs must not be an empty mapping"),
        ([0.5, 2.0], {}, r"probs must lie in \[0, 1\]"),
        ({"a": [0.5, 0.5], "b": [[0.2, 0.3, 0.5]] * 2}, {}, "one number of classes"),
        ({1: [0.5, 0.5], "1": [0.5, 0.5]}, {}, "names that differ"),
        ([0.5, 0.5], {"classes": ["a"]}, "classes must be two different labels"),
        ([0.5, 0.5], {"classes": ["a", "a"]}, "classes must be two different labels"),
        ([0.5, 0.5], {"level": 1}, "level must lie strictly between 0 and 1"),
        ([0.5, 0.5], {"bins": 0}, "bins must be at least 1"),
        ([0.5, 0.5], {"replicates": 0}, "replicates must be at least 1"),
        ([0.5, 0.5], {"weights": [1, -1]}, "weights must not be negative"),
        ([0.5], {}, r"y must have shape \(1,\)"),
    ],
)
def test_bad_input_is_an_error(probs: Any, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bayescal.evaluate(probs, [0, 1], **options)


def test_columns_named_like_the_classes_are_matched() -> None:
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet([1, 1, 1], 60), rng.integers(0, 3, 60)
    frame = pd.DataFrame(p, columns=["no", "yes", "maybe"])[["yes", "maybe", "no"]]
    options: dict[str, Any] = {"classes": ["no", "yes", "maybe"], "replicates": 20}
    texts = (json.dumps(bayescal.evaluate(table, y, **options).to_dict()) for table in (frame, p))
    # Sums over rows and over columns differ in the last digit.
    result, expected = (json.loads(t, parse_float=lambda x: round(float(x), 12)) for t in texts)
    assert result == expected
    with pytest.raises(ValueError, match="probs must have columns named like all of the classes"):
        bayescal.evaluate(frame, y, **{**options, "classes": ["no", "yes", "perhaps"]})


def test_labels_of_any_kind_and_logits() -> None:
    probs, y = draw_classes()
    names = np.array(["ash", "birch", "cedar", "dogwood"])
    expected = bayescal.evaluate(probs, y, classes=names, replicates=20).to_dict()
    assert bayescal.evaluate(probs, names[y], replicates=20).to_dict() == expected
    assert bayescal.evaluate(probs, pd.Categorical(names[y]), replicates=20).to_dict() == expected
    logits = bayescal.evaluate(np.log(probs), names[y], inputs="logits", replicates=20).to_dict()
    texts = [json.dumps(report) for report in (logits, expected)]
    result, known = (json.loads(t, parse_float=lambda x: round(float(x), 9)) for t in texts)
    assert result == known
    p, y = draw_binary()
    result = bayescal.evaluate(p, y == 1, replicates=20)
    assert result.classes == ("0", "1")
    assert result.report == bayescal.evaluate(p, y, replicates=20).report


def test_fitted_classifiers() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB

    rng = np.random.default_rng(4)
    x = rng.normal(size=(300, 2))
    labels = np.array(["b", "c", "a"])[
        (x + rng.gumbel(size=(300, 2))).argmax(axis=1) * (x[:, 0] > -1)
    ]
    models = {"bayes": GaussianNB(), "logistic": LogisticRegression()}
    for model in models.values():
        model.fit(x, labels)
    k = len(np.unique(labels))
    ours = bayescal.evaluate({**models, "flat": np.full((300, k), 1 / k)}, x, labels, replicates=20)
    probs = {name: model.predict_proba(x) for name, model in models.items()}
    probs["flat"] = np.full((300, k), 1 / k)
    assert ours.to_dict() == bayescal.evaluate(probs, labels, replicates=20).to_dict()
    single = bayescal.evaluate(models["bayes"], x, y=labels, replicates=20)
    assert single.report.intervals["model"] == ours.report.intervals["bayes"]
    # Classifiers predict probabilities, whatever the other predictions are.
    logits = {**models, "flat": np.zeros((300, k))}
    assert bayescal.evaluate(logits, x, labels, inputs="logits", replicates=20).to_dict() == (
        ours.to_dict()
    )
    coded = GaussianNB().fit(x, np.unique(labels, return_inverse=True)[1])
    named = bayescal.evaluate(coded, x, labels, classes=np.unique(labels).tolist(), replicates=20)
    assert named.report.intervals["model"] == ours.report.intervals["bayes"]
    other = GaussianNB().fit(x, labels == "b")
    with pytest.raises(ValueError, match="fitted classifiers must have the classes"):
        bayescal.evaluate({**models, "other": other}, x, labels)
    with pytest.raises(TypeError, match=r"data must be X and y: evaluate\(model, X, y\), got 1"):
        bayescal.evaluate(models, labels)
    with pytest.raises(TypeError, match=r"data must be y: evaluate\(probs, y\), got 2"):
        bayescal.evaluate(probs, x, labels)


def test_single_precision_changes_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_evaluate, "_MIN_ROWS_IN_CELLS", 1000)
    p, y = np.repeat([0.6, 0.7], 100), np.repeat([1, 0, 1, 0], [80, 20, 50, 50])
    single = p.astype(np.float32)
    blocks = [(single, y)] * 10
    few, same, many = (
        bayescal.evaluate(*given, bins=10, replicates=100)
        for given in ((p, y), (single, y), (bayescal.Blocks(lambda: blocks),))
    )
    assert few.summary() == same.summary()
    assert "Strongly miscalibrated, by 0.198" in few.summary()["model"]
    assert many.findings["model"].consistency.p_value < 0.05
    assert len(many.events["model"].curve(10)) == len(same.events["model"].curve(10)) == 2


@pytest.mark.parametrize("unit", [1e-300, 1e19])
def test_weights_have_no_unit(unit: float) -> None:
    rng = np.random.default_rng(0)
    p, weights = rng.random(300), rng.random(300)
    y = (rng.random(300) < p).astype(int)
    expected = bayescal.evaluate(p, y, weights=weights, replicates=20).findings["model"]
    assert expected.verdict == "no evidence"
    scaled = bayescal.evaluate(p, y, weights=unit * weights, replicates=20)
    blocks = bayescal.evaluate(bayescal.Blocks([(p, y, unit * weights)]), replicates=20)
    for finding in (scaled.findings["model"], blocks.findings["model"]):
        assert finding.verdict == expected.verdict
        np.testing.assert_allclose(finding.bias, expected.bias, 1e-9)
        np.testing.assert_allclose(finding.spiegelhalter, expected.spiegelhalter, 1e-9)


def test_diagrams_of_classes_have_weighted_averages() -> None:
    rng = np.random.default_rng(0)
    probs, weights = rng.dirichlet(np.ones(3), 60), rng.lognormal(0, 1, 60)
    y = (probs.cumsum(axis=1) < rng.random((60, 1))).sum(axis=1)
    events = bayescal.evaluate(probs, y, weights=weights, replicates=20).events["model"]
    for j in range(3):
        drawn, happened, masses = events.of_class(j)
        curve = metrics.reliability_curve(drawn, happened, weights=masses)
        expected = metrics.reliability_curve(probs[:, j], (y == j).astype(int), weights=weights)
        np.testing.assert_allclose(curve.observed, expected.observed, rtol=1e-9)
