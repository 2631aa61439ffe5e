"""Reports of fits against losses computed by hand, also in blocks and in copies."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

import bayescal as bc
from bayescal.calibrators.base.report import make_report, report_of_moments
from benchmarks.coverage_gain import study
from tests.calibrators.cases import DEFAULTS, Case, each, make_data

Array = np.ndarray


def losses(probs: Array, y: Array) -> Array:
    return -np.log(probs[np.arange(len(y)), y])


def make_probs(n: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.01, 0.99, n)
    return p, (rng.random(n) < p**2).astype(int)


@each(DEFAULTS)
def test_every_calibrator_reports(case: Case) -> None:
    p, y, w, _ = make_data(case)
    fitted = case().fit(p, y, w)
    report, k = fitted.report_, 2 if case.binary else 3
    assert (report.rows, report.classes, report.status) == (len(y), k, fitted.status_)
    assert report.calibrator == case.calibrator.__name__
    assert report.effective_rows == pytest.approx(w.sum() ** 2 / (w @ w))
    both = np.stack([1 - p, p], 1) if case.binary else p
    plain = np.average(losses(both, y), weights=w)
    assert report.uncalibrated == pytest.approx(plain)
    assert report.gain == pytest.approx(report.uncalibrated - report.log_loss)
    training_loss = np.average(losses(fitted.predict_proba(p), y), weights=w)
    assert report.in_sample == (case.calibrator not in (bc.AveragedBeta, bc.StackedScaling))
    if report.in_sample:
        assert report.log_loss == pytest.approx(training_loss)
        assert report.helps is None and report.hurts is None
        assert "in-sample log loss" in str(report)
    else:
        assert report.log_loss > training_loss and "expected log loss" in str(report)
    assert case().fit(p, y, w).report_ == report
    assert fitted.fit(p[:60], y[:60]).report_ != report


def test_parameters_and_effective_rows() -> None:
    p, y = make_probs(300)
    assert bc.Beta().fit(p, y).report_.parameters == 3
    assert bc.Temperature().fit(p, y).report_.parameters == 1
    assert bc.Isotonic().fit(p, y).report_.parameters is None
    counts = bc.Beta().fit(p, y, np.arange(300) % 3).report_
    assert (counts.rows, counts.effective_rows) == (200, 300)  # integer weights are counts
    assert "200 rows, effectively 300, 3 parameters" in str(counts)
    weights = np.random.default_rng(0).uniform(0.5, 2, 300)
    result, expected = (bc.AveragedBeta().fit(p, y, w).report_ for w in (weights, 3 * weights))
    assert result.effective_rows == pytest.approx(weights.sum() ** 2 / (weights @ weights))
    assert result.effective_rows == pytest.approx(expected.effective_rows)


def binary_errors(fitted: Any, p: Array, y: Array) -> tuple[float, float]:
    """Compute the standard errors of the loss and of the gain for distinct scores."""
    order, n = np.argsort(p), len(y)
    held = fitted.losses_left_out()[y[order], np.arange(n)]
    one = fitted.predict_proba(p[order])[:, 1]
    both, plain = (np.stack([1 - q, q], axis=1) for q in (one, p[order]))
    training_losses, gains = losses(both, y[order]), losses(plain, y[order]) - held
    # Contribution of label noise to the means, from the calibrated probabilities.
    of_loss = np.sqrt((one * (1 - one) * np.diff(np.log(both), axis=1)[:, 0] ** 2).sum()) / n
    ratios = np.log(both) - np.log(plain)
    of_gain = np.sqrt((one * (1 - one) * np.diff(ratios, axis=1)[:, 0] ** 2).sum()) / n
    spread = max(gains.std() / np.sqrt(n), of_gain)
    error = np.sqrt(spread**2 + max(held.mean() - training_losses.mean(), 0) / n)
    return max(held.std() / np.sqrt(n), of_loss), error


@pytest.mark.parametrize("separable", [False, True])
def test_errors_by_their_definition(separable: bool) -> None:
    p, y = make_probs(60)
    y = (p > 0.5).astype(int) if separable else y
    fitted = bc.AveragedBeta().fit(p, y)
    report, expected = fitted.report_, binary_errors(fitted, p, y)
    assert (report.log_loss_error, report.gain_error) == pytest.approx(expected, rel=1e-9)
    whole = bc.AveragedBeta().fit(p, y, np.full(60, 2)).report_  # every row twice
    twice = bc.AveragedBeta().fit(np.repeat(p, 2), np.repeat(y, 2)).report_
    assert whole.gain_error == pytest.approx(twice.gain_error)


def test_separable_rows_do_not_make_a_loss_certain() -> None:
    """Check the error of the loss against labels drawn from the fit."""
    p = np.concatenate([np.full(30, 0.01), np.full(30, 0.99)])
    y = (p > 0.5).astype(int)
    fitted = bc.Auto().fit(p, y)
    report, one = fitted.report_, fitted.predict_proba([0.99])[0, 1]
    drawn = np.random.default_rng(0).random((20_000, 60)) < one
    means = np.where(drawn, -np.log(one), -np.log1p(-one)).mean(axis=1)
    assert report.log_loss_error == pytest.approx(means.std(), rel=0.05)


def test_errors_of_several_classes_by_their_definition() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (150, 3))
    y = np.argmax(z / 2 + rng.gumbel(size=z.shape), axis=1)
    for inputs, scores in (("logits", z), ("probs", np.exp(z - logsumexp(z, 1, keepdims=True)))):
        auto: Any = bc.Auto(inputs=inputs).fit(scores, y)  # type: ignore[arg-type]
        stack = auto.calibrators_[0]
        probs, logs = auto.predict_proba(scores), log_softmax(z, axis=1)
        gains = -logs[np.arange(150), y] - stack.held_out_losses_
        mean = (probs * (np.log(probs) - logs)).sum(axis=1, keepdims=True)
        labels = (probs * (np.log(probs) - logs - mean) ** 2).sum() / 150**2
        low = (stack.held_out_losses_ - losses(probs, y)).mean()
        expected = np.sqrt(max(gains.var() / 150, labels) + max(low, 0) / 150)
        for report in (auto.report_, stack.report_):
            assert report.gain_error == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("gain", "words"), [(0.2, "it helps"), (-0.2, "it hurts"), (0.01, "is not clear")]
)
def test_a_gain_is_clear_from_1_645_errors_on(gain: float, words: str) -> None:
    held = np.linspace(0.4, 1, 100)
    noise = np.where(np.arange(100) % 2, 0.1, -0.1)
    ones = np.ones(100)
    report = make_report(("A", "b"), (100, 2), {}, held, held + gain + noise, ones, ones)
    assert report.gain == pytest.approx(gain) and report.gain_error == pytest.approx(0.01)
    assert (report.helps, report.hurts) == (gain > 0.02, gain < -0.02)
    assert str(report).endswith(words)


def test_unchanged_scores_neither_help_nor_hurt() -> None:
    held, ones = np.linspace(0.4, 1, 100), np.ones(100)
    report = make_report(("A", "b"), (100, 2), {}, held, held, ones, ones)
    assert (report.gain, report.gain_error, report.helps, report.hurts) == (0, 0, False, False)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "truth"), [(2, "bent"), (2, "calibrated"), (3, "slope")])
def test_errors_are_those_of_this_fit(k: int, truth: str) -> None:
    """Check that 90 % intervals cover at least 80 %."""
    result = study(k, 100, truth, False, 150)
    # The standard error is 0.03.
    assert result["coverage_gain"] > 0.81 and result["coverage_loss"] > 0.78
    assert 0.8 < result["error"] / result["deviation"] < 1.3
    assert result["wrong"] < 0.05


def test_of_many_rows_some_are_judged() -> None:
    p, y = make_probs(40_000)
    fitted = bc.Beta().fit(p, y)
    report = fitted.report_
    assert (report.rows, report.rows_judged) == (40_000, 2048)
    of_all = losses(fitted.predict_proba(p), y)
    assert report.log_loss_error == pytest.approx(of_all.std() / np.sqrt(2048), rel=0.1)
    assert abs(report.log_loss - of_all.mean()) < 3 * report.log_loss_error
    cut = bc.Blocks([(p[part], y[part]) for part in np.array_split(np.arange(40_000), 7)])
    result = bc.Beta().fit(cut).report_
    assert (result.rows, result.rows_judged, result.effective_rows) == (40_000, 2048, 40_000)
    assert abs(result.log_loss - of_all.mean()) < 3 * result.log_loss_error


def test_blocks_of_few_rows_say_what_rows_in_memory_do() -> None:
    p, y = make_probs(900)
    w = np.random.default_rng(1).uniform(0, 2, 900)
    w[:50] = 0
    cut = bc.Blocks([(p[i : i + 250], y[i : i + 250], w[i : i + 250]) for i in (0, 250, 500, 750)])
    result, expected = bc.Beta().fit(cut).report_, bc.Beta().fit(p, y, w).report_
    assert result.rows == expected.rows == 850
    for name in ("log_loss", "log_loss_error", "gain", "gain_error", "effective_rows"):
        assert getattr(result, name) == pytest.approx(getattr(expected, name), rel=1e-6), name


def test_copies_and_files_hold_the_report_and_no_rows(tmp_path: Path) -> None:
    p, y = make_probs(500)
    for kind in (bc.Isotonic, lambda: bc.compose(bc.Beta(), bc.Histogram())):
        fitted, expected = kind().fit(p, y), kind().fit(p, y).report_
        twin = pickle.loads(pickle.dumps(fitted))
        bc.save(fitted, tmp_path / "c")
        for model in (fitted, twin, copy.deepcopy(fitted), bc.load(tmp_path / "c")):
            assert model.report_ == expected
            assert "_seen" not in vars(model)
    assert p[:1].tobytes() not in pickle.dumps(bc.Beta().fit(p, y))


def test_rows_are_copied() -> None:
    p, y = make_probs(100)
    fitted, expected = bc.Beta().fit(p, y), bc.Beta().fit(p, y).report_
    p[:] = 0.5
    assert fitted.report_ == expected


def test_combinations() -> None:
    p, y = make_probs(400)
    q = np.stack([p, 1 - p**2], axis=1)
    labels = np.stack([y, 1 - y], axis=1)
    both = bc.Average([bc.Beta(), bc.Logistic()]).fit(p, y)
    assert both.report_.calibrator == "Average(Beta, Logistic)"
    assert both.report_.log_loss == pytest.approx(losses(both.predict_proba(p), y).mean())
    several = bc.MultiLabel(bc.Beta()).fit(q, labels)
    result = several.predict_proba(q)
    training_loss = -np.log(np.where(labels == 1, result, 1 - result)).mean()
    assert several.report_.log_loss == pytest.approx(training_loss)
    assert several.report_.reason == "2 labels"
    regression = bc.LogisticRegression().fit(q, y)
    assert regression.report_.log_loss == pytest.approx(
        losses(regression.predict_proba(q), y).mean()
    )
    assert regression.report_.gain is None and regression.report_.parameters == 3
    raw = bc.Logistic(inputs="scores").fit(10 * p, y).report_
    assert raw.uncalibrated is None and raw.log_loss is not None


def test_truncated_logits_have_no_losses() -> None:
    rng = np.random.default_rng(0)
    z = -np.sort(-rng.normal(size=(40, 3)), axis=1)
    top = np.tile([0, 1, 2], (40, 1)), z, np.zeros(40)
    report = (
        bc.Temperature(inputs="top_logits", classes=50).fit(top, rng.integers(0, 3, 40)).report_
    )
    assert report.log_loss is None and report.rows == 40 and "log loss" not in str(report)


def test_an_estimator_that_is_not_fitted_has_none() -> None:
    for estimator in (
        bc.Beta(),
        bc.Auto(),
        bc.AveragedBeta(),
        bc.CalibratedClassifier(GaussianNB()),
    ):
        assert not hasattr(estimator, "report_")


# --- of a classifier ----------------------------------------------------------------------------


def make_features(n: int = 400, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (rng.random(n) < 1 / (1 + np.exp(-X @ [2.0, 1.0, 0]))).astype(int)


def test_a_classifier_reports_losses_of_rows_left_out_twice() -> None:
    X, y = make_features()
    model = bc.CalibratedClassifier(GaussianNB(), bc.Beta(), cv=4).fit(X, y)
    report = model.report_
    scores = cross_val_predict(GaussianNB(), X, y, cv=StratifiedKFold(4), method="predict_proba")
    assert report.uncalibrated == pytest.approx(losses(scores, y).mean())
    # The calibrator's folds differ, which changes the loss only by chance.
    probs = cross_val_predict(bc.Beta(), scores, y, cv=StratifiedKFold(5), method="predict_proba")
    assert report.log_loss == pytest.approx(losses(probs, y).mean(), abs=0.01)
    in_sample = losses(model.calibrators_[0].predict_proba(scores), y).mean()
    assert report.log_loss > in_sample and not report.in_sample
    assert report.calibrator == "Beta" and report.rows == 400 and "gain" in str(report)


def test_a_classifier_takes_the_report_that_auto_has_made() -> None:
    X, y = make_features()
    model = bc.CalibratedClassifier(GaussianNB()).fit(X, y)
    assert model.report_ == model.calibrators_[0].report_
    assert pickle.loads(pickle.dumps(bc.CalibratedClassifier(GaussianNB()).fit(X, y))).report_


def test_of_an_ensemble_it_is_the_mean_over_pairs() -> None:
    X, y = make_features()
    w = np.random.default_rng(0).uniform(0, 2, len(y))
    w[::7] = 0
    model = bc.CalibratedClassifier(GaussianNB(), bc.Temperature(), cv=3, ensemble=True)
    report = model.fit(X, y, sample_weight=w).report_
    assert report.rows == np.count_nonzero(w)
    plain = np.empty(len(y))
    for (_, test), pair in zip(
        StratifiedKFold(3).split(X, y), model.calibrated_classifiers_, strict=True
    ):
        plain[test] = losses(pair.estimator.predict_proba(X[test]), y[test])
    assert report.uncalibrated == pytest.approx(np.average(plain, weights=w))


def test_reports_of_other_scores_and_calibrators() -> None:
    X, y = make_features()
    raw = bc.CalibratedClassifier(LinearSVC(), "sigmoid", cv=3).fit(X, y).report_
    assert raw.uncalibrated is None and raw.log_loss is not None
    foreign = bc.CalibratedClassifier(LinearSVC(), Plain(), cv=3).fit(X, y).report_
    assert foreign.calibrator == "LogisticRegression"
    assert foreign.log_loss == pytest.approx(raw.log_loss, abs=0.01)
    lifted = bc.CalibratedClassifier(LinearSVC(), "isotonic", cv=3).fit(X, y + (X[:, 0] > 0))
    assert lifted.report_.calibrator == "OneVsRest" and lifted.report_.gain is not None
    base = Plain().fit(X[:100], y[:100])
    frozen = bc.CalibratedClassifier(FrozenEstimator(base), bc.Logistic(inputs="logits"))
    z = base.decision_function(X[100:])
    plain = -log_softmax(np.stack([0 * z, z], 1), axis=1)[np.arange(300), y[100:]]
    result = frozen.fit(X[100:], y[100:]).report_
    assert result.uncalibrated == pytest.approx(plain.mean()) and result.rows == 300


def test_copies_of_a_classifier_have_the_report_if_it_was_asked_for() -> None:
    X, y = make_features()
    model: Any = bc.CalibratedClassifier(GaussianNB(), bc.Beta(), cv=3).fit(X, y)
    with pytest.raises(AttributeError, match="report_ needs the scores of the fit"):
        pickle.loads(pickle.dumps(model)).report_  # noqa: B018
    report = model.report_
    assert pickle.loads(pickle.dumps(model)).report_ == report
    assert model.fit(X[:200], y[:200]).report_ != report


def test_reports_in_notebooks_frames_and_markdown() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(80)
    report = bc.Auto().fit(p, (rng.random(80) < p**3).astype(int)).report_
    page = report._repr_html_()
    assert page.startswith("<table>") and "expected log loss" in page
    assert all(line.split(": ")[-1] in page for line in str(report).splitlines()[1:])
    frame = report.to_frame()
    assert frame.loc[report.calibrator, "gain"] == report.gain
    assert {f"weight_{name}" for name in report.members} <= {*frame.columns}
    assert report.to_markdown().startswith(f"**{report.calibrator}: ")


def test_a_fit_that_did_not_converge_says_so() -> None:
    report = bc.Logistic().fit(*_rows_of_two()).report_
    assert "converged" not in str(report)
    stopped = dataclasses.replace(report, status="iterations ran out")
    assert str(stopped).splitlines()[0] == f"{str(report).splitlines()[0]}, iterations ran out"


def _rows_of_two() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = rng.random(200)
    return p, (rng.random(200) < p**2).astype(int)


def test_a_report_needs_the_rows_of_the_fit() -> None:
    fitted = bc.Temperature().fit(*_rows_of_two())
    del fitted._kept_rows
    with pytest.raises(AttributeError, match="report_ needs the rows of the fit, which are gone"):
        fitted.report_  # noqa: B018


def test_moments_without_the_known_part_of_the_variance() -> None:
    """Check a report made from moments: sums of weights and losses, and of their products."""
    rng = np.random.default_rng(1)
    after, before, w = rng.random(50), 1 + rng.random(50), np.ones(50)
    rows = np.stack([w, after, before], axis=1)
    moments = np.concatenate([rows.sum(axis=0)[None], rows.T @ rows])
    report = report_of_moments(("a", "b"), (50, 2), {}, moments)
    gain = before - after
    assert report.gain == pytest.approx(gain.mean())
    error = np.sqrt(2 * np.sum((gain - gain.mean()) ** 2)) / 50
    assert report.gain_error == pytest.approx(error)
