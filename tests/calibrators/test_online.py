"""Online learning: batches equal one fit, forgetting equals weights, and files continue."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from sklearn.exceptions import ConvergenceWarning

import bayescal as bc
from bayescal.calibrators.base import online
from bayescal.data import history

Array = np.ndarray
BINARY = [bc.Temperature, bc.Logistic, bc.Beta, bc.Quadratic, bc.AveragedBeta]
SEVERAL = [
    bc.Temperature,
    bc.Vector,
    bc.Matrix,
    bc.Dirichlet,
    bc.StructuredVector,
    bc.StructuredMatrix,
]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def binary_rows(n: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, n)
    return expit(z), (rng.random(n) < expit(0.6 * z + 0.3)).astype(int)


def rows_of_classes(n: int, k: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, k))
    cumulative = softmax(logits / 1.6 + rng.normal(0, 0.3, k), axis=1).cumsum(axis=1)
    return softmax(logits, axis=1), (cumulative > rng.random((n, 1))).argmax(axis=1)


def learn_in_batches(
    calibrator: Any, scores: Array, y: Array, size: int, w: Array | None = None, **options: Any
) -> Any:
    """Learn in batches, with all classes passed with the first batch."""
    k = 2 if scores.ndim == 1 else scores.shape[1]
    for begin in range(0, len(y), size):
        part = slice(begin, begin + size)
        calibrator.partial_fit(
            scores[part],
            y[part],
            classes=range(k),
            sample_weight=None if w is None else w[part],
            **options,
        )
    return calibrator


def learn_in_two(calibrator: Any, scores: Array, y: Array) -> Any:
    """Learn in two batches."""
    for part in (slice(0, 150), slice(150, None)):
        calibrator.partial_fit(scores[part], y[part])
    return calibrator


def round_to_tenths(scores: Array) -> Array:
    """Round scores to tenths, so that some become zeros and ones."""
    rounded = np.round(scores, 1)
    return rounded / rounded.sum(axis=1, keepdims=True) if scores.ndim == 2 else rounded


@pytest.mark.parametrize("n", [2, 30, 3000])
@pytest.mark.parametrize("kind", BINARY)
def test_binary_batches_equal_one_fit(kind: Any, n: int) -> None:
    p, y = binary_rows(n)
    y[:2] = 0, 1
    weights = np.random.default_rng(1).gamma(1, 1, n)
    two, saturated = np.where(p > 0.5, 0.8, 0.3), round_to_tenths(p)
    for scores, w in ((p, None), (p, weights), (saturated, weights), (two, None)):
        whole = kind().fit(scores, y, w).predict_proba(scores)
        for size in (1, 7, n) if n <= 30 else (700, n):
            parts = learn_in_batches(kind(), scores, y, size, w).predict_proba(scores)
            np.testing.assert_allclose(parts, whole, atol=1e-8 if n <= 30 else 1e-6)


@pytest.mark.parametrize("kind", SEVERAL)
def test_batches_of_three_classes_equal_one_fit(kind: Any) -> None:
    p, y = rows_of_classes(300, 3)
    options = {"off_diagonal": 0.1, "intercept": 0.1} if kind is bc.Dirichlet else {}
    for scores in (p, round_to_tenths(p)):
        whole = kind(**options).fit(scores, y).predict_proba(scores)
        for size in (7, 100, 300):
            parts = learn_in_batches(kind(**options), scores, y, size).predict_proba(scores)
            np.testing.assert_allclose(parts, whole, atol=1e-7)


def test_raw_scores_far_from_zero() -> None:
    p, y = binary_rows(5000)
    scores = 1e6 + 1e3 * np.log(p / (1 - p))
    whole = bc.Logistic(inputs="scores").fit(scores, y).predict_proba(scores)
    parts = learn_in_batches(bc.Logistic(inputs="scores"), scores, y, 999).predict_proba(scores)
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_probabilities_below_the_floor_and_of_one() -> None:
    p, y = binary_rows(3000)
    scores = expit(30 * np.log(p / (1 - p)))
    assert scores.max() == 1 and 0 < scores.min() < 1e-60
    for kind in (bc.Temperature, bc.Beta):
        whole = kind().fit(scores, y).predict_proba(scores)
        parts = learn_in_batches(kind(), scores, y, 700).predict_proba(scores)
        np.testing.assert_allclose(parts, whole, atol=1e-6)


@pytest.mark.parametrize("kind", [bc.Logistic, bc.Beta, bc.Quadratic, bc.AveragedBeta])
def test_single_precision_just_below_one(kind: Any) -> None:
    p, y = binary_rows(400)
    scores = p.astype(np.float32)
    scores[::9] = 1 - np.float32(2**-24) * (np.arange(45) % 4)
    whole = kind().fit(scores, y).predict_proba(scores)
    parts = learn_in_batches(kind(), scores, y, 70).predict_proba(scores)
    np.testing.assert_allclose(parts, whole, atol=1e-7)


def test_cells_do_not_depend_on_the_batches() -> None:
    p, y = binary_rows(20_000)
    histories = [
        learn_in_batches(bc.Logistic(), p, y, size).history_ for size in (333, 7000, 20_000)
    ]
    for name in ("y", "exponent"):
        assert all(np.array_equal(h[name], histories[0][name]) for h in histories)
    for name in ("scores", "weights"):
        for kept in histories:
            np.testing.assert_allclose(kept[name], histories[0][name], rtol=1e-9)
    assert len(histories[0]["y"]) <= 2048


def test_a_sample_of_many_classes_does_not_depend_on_the_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check a sample with the size that 280 classes would have."""
    n, k = 18_000, 20
    monkeypatch.setattr(history, "_ROW_NUMBERS", 15_000 * k)
    rng = np.random.default_rng(0)
    logits, y = rng.normal(0, 1, (n, k)).round(3), rng.integers(0, k, n)
    logits[np.arange(n), y] += 2
    a, b = bc.Temperature(inputs="logits"), bc.Temperature(inputs="logits")
    a.partial_fit(logits, y, classes=k)
    for part in np.array_split(np.arange(n), 3):
        b.partial_fit(logits[part], y[part], classes=k)
    kept = np.flatnonzero(np.isin(logits[:, 0], a.history_["scores"][:, 0]))
    assert len(a.history_["y"]) == 16_384 < len(kept)
    np.testing.assert_allclose(a.temperature_, b.temperature_, rtol=1e-12)
    whole = bc.Temperature(inputs="logits").fit(logits, y)
    assert a.temperature_ == pytest.approx(whole.temperature_, rel=0.003)
    # Weights represent all rows: their sum is unbiased, with an error of about sqrt(n - m).
    weights = np.maximum(a.history_["weights"], a.history_["threshold"])
    assert weights.sum() == pytest.approx(n, abs=5 * (n - 16_384) ** 0.5 * n / 16_384)


@pytest.mark.parametrize(
    ("kind", "size"),
    [(bc.Vector, 3000), (bc.Vector, 32_000), (bc.StructuredVector, 7000), (bc.Dirichlet, 32_000)],
)
def test_a_sample_of_many_classes_has_the_gradients_of_all_rows(
    kind: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that a fit to the sample differs by 0.01 to 0.1 from a fit to all rows.

    Real samples of five classes have 838,860 rows; the kinds of calibrators here are the hardest.
    """
    count = 16_000 if kind is bc.Dirichlet else 8000
    monkeypatch.setattr(history, "_ROW_NUMBERS", 5 * count)
    monkeypatch.setattr(history, "_MIN_ROWS", count)
    probs, y = rows_of_classes(32_000, 5)
    weights = np.random.default_rng(1).random(32_000)
    whole = kind().fit(probs, y, weights)
    learned = learn_in_batches(kind(), probs, y, size, weights)
    assert len(learned.history_["y"]) == count
    factors = learned.history_["factors"]
    assert factors.min() > 0.3 and factors.max() < 3
    difference = np.abs(learned.predict_proba(probs) - whole.predict_proba(probs)).max()
    assert difference < 1e-3
    # Sample weights add up to the weights of all rows.
    kept = learned.history_["weights"][:, 0]
    kept = np.maximum(kept, learned.history_["threshold"]) * factors[:, 0]
    assert kept.sum() == pytest.approx(weights.sum(), rel=1e-3)


def test_forgetting_with_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_ROW_NUMBERS", 5 * 3000)
    monkeypatch.setattr(history, "_MIN_ROWS", 3000)
    probs, y = rows_of_classes(12_000, 5)
    weights = 0.8 ** (11 - np.arange(12_000) // 1000)
    whole = bc.Vector().fit(probs, y, weights)
    learned = learn_in_batches(bc.Vector(), probs, y, 1000, forgetting=0.8)
    np.testing.assert_allclose(learned.predict_proba(probs), whole.predict_proba(probs), atol=1e-3)
    both = learn_in_batches(bc.Vector(), probs, y, 1000, forgetting="auto")
    assert both.history_["factors"].shape == (3000, 6)
    mixed = 0.0
    for rate, share in zip([1, 0.97, 0.9, 0.8, 0.6, 0.4], both.forgetting_weights_, strict=True):
        mixed = mixed + share * np.float64(rate) ** (11 - np.arange(12_000) // 1000)
    whole = bc.Vector().fit(probs, y, mixed)
    np.testing.assert_allclose(both.predict_proba(probs), whole.predict_proba(probs), atol=1e-3)


@pytest.mark.parametrize("inference", ["laplace", pytest.param("nuts", marks=pytest.mark.slow)])
def test_posteriors_of_batches(inference: Any) -> None:
    p, y = binary_rows(200)
    options = {"inference": inference, "random_state": 0, "num_samples": 1000}
    whole = bc.Logistic(**options).fit(p, y).predict_interval([0.2, 0.7])
    parts = learn_in_batches(bc.Logistic(**options), p, y, 60).predict_interval([0.2, 0.7])
    np.testing.assert_allclose(parts, whole, atol=0.02)


@pytest.mark.parametrize("kind", [bc.Logistic, bc.AveragedBeta, bc.StructuredVector])
def test_forgetting_multiplies_weights(kind: Any) -> None:
    p, y = rows_of_classes(300, 3) if kind is bc.StructuredVector else binary_rows(300)
    age = 2 - np.arange(300) // 100
    whole = kind().fit(p, y, 0.7**age).predict_proba(p)
    parts = learn_in_batches(kind(), p, y, 100, forgetting=0.7).predict_proba(p)
    np.testing.assert_allclose(parts, whole, atol=1e-7)


@pytest.mark.slow
def test_forgetting_is_learned() -> None:
    """Check that "auto" comes near the best fixed rate, with and without a drift."""
    rates: list[Any] = [1.0, 0.9, 0.6, "auto"]
    for step, allowed in ((0.0, 1.35), (0.3, 1.3)):
        excess = np.zeros(len(rates))
        for seed in range(4):
            rng = np.random.default_rng(seed)
            offset = 0.2 + np.cumsum(rng.normal(0, step, 30))
            calibrators: list[Any] = [bc.Logistic() for _ in rates]
            for day in range(30):
                z = rng.normal(0, 2, 400)
                p, truth = expit(z), expit(0.7 * z + offset[day])
                y = (rng.random(400) < truth).astype(int)
                for i, (calibrator, rate) in enumerate(zip(calibrators, rates, strict=True)):
                    if day:
                        q = calibrator.predict_proba(p)[:, 1]
                        losses = truth * np.log(truth / q)
                        losses += (1 - truth) * np.log((1 - truth) / (1 - q))
                        excess[i] += losses.mean()
                    calibrator.partial_fit(p, y, classes=[0, 1], forgetting=rate)
        assert excess[3] < allowed * excess[:3].min(), (step, excess)
        weights = calibrators[3].forgetting_weights_
        assert weights.sum() == pytest.approx(1)
        assert (weights @ [1, 0.97, 0.9, 0.8, 0.6, 0.4] > 0.8) == (step == 0)


def test_rates_may_change_between_calls() -> None:
    p, y = binary_rows(400)
    calibrator = learn_in_batches(bc.Logistic(), p, y, 100, forgetting="auto")
    mixed = calibrator.history_["weights"] @ calibrator.forgetting_weights_
    calibrator.partial_fit(p[:50], y[:50], forgetting=0.5)
    assert not hasattr(calibrator, "forgetting_weights_")
    weights = calibrator.history_["weights"]
    assert weights.shape[1] == 1
    assert weights.sum() == pytest.approx(0.5 * mixed.sum() + 50)
    calibrator.partial_fit(p[:50], y[:50], forgetting="auto")
    assert calibrator.history_["weights"].shape[1] == 6


@pytest.mark.parametrize("forgetting", [0.9, "auto"])
def test_copies_and_files_go_on(forgetting: Any, tmp_path: Path) -> None:
    p, y = binary_rows(600)
    p = round_to_tenths(p)
    first = learn_in_batches(bc.Beta(), p[:400], y[:400], 100, forgetting=forgetting)
    bc.save(first, tmp_path / "beta.safetensors")
    others = [
        bc.load(tmp_path / "beta.safetensors"),
        pickle.loads(pickle.dumps(first)),
        copy.deepcopy(first),
    ]
    first.partial_fit(p[400:], y[400:], forgetting=forgetting)
    for other in others:
        other.partial_fit(p[400:], y[400:], forgetting=forgetting)
        assert np.array_equal(other.predict_proba(p), first.predict_proba(p))


def test_a_failed_call_changes_nothing() -> None:
    p, y = binary_rows(200)
    calibrator = bc.Beta().partial_fit(p, y)
    before = pickle.dumps(vars(calibrator))
    for call in (
        lambda: calibrator.partial_fit([0.2, np.nan], [0, 1]),
        lambda: calibrator.partial_fit([0.2, 0.3], [0, 2]),
        lambda: calibrator.partial_fit([0.2, 0.3], [0, 1], classes=["a", "b"]),
        lambda: calibrator.partial_fit([[0.2, 0.3, 0.5]], [0]),
        lambda: calibrator.partial_fit([0.2, 0.3], [0, 1], forgetting=0.0),
        lambda: calibrator.partial_fit([0.2, 0.3], [0, 1], forgetting=1.5),
        lambda: calibrator.partial_fit([0.2, 0.3], [0, 1], forgetting="all"),
    ):
        with pytest.raises(ValueError, match="must|expecting"):
            call()
        assert pickle.dumps(vars(calibrator)) == before


def test_classes_as_in_scikit_learn() -> None:
    names = np.array(["bad", "good"])
    p, y = binary_rows(100)
    with pytest.raises(ValueError, match="y must hold two classes"):
        bc.Beta().partial_fit(p[:1], names[y[:1]])
    one = bc.Beta().partial_fit(p[:1], names[y[:1]], classes=names)
    two = bc.Beta(classes=["bad", "good"]).partial_fit(p[:1], names[y[:1]])
    for calibrator in (one, two):
        calibrator.partial_fit(p[1:], names[y[1:]])
        assert calibrator.classes_.tolist() == ["bad", "good"]
        np.testing.assert_allclose(
            calibrator.predict_proba(p), bc.Beta().fit(p, names[y]).predict_proba(p), atol=1e-9
        )


def test_columns_of_frames_keep_their_names() -> None:
    p, y = rows_of_classes(200, 3)
    frame = pd.DataFrame(p, columns=["p_0", "p_1", "p_2"])
    calibrator = bc.Vector().partial_fit(frame[:100], y[:100])
    with pytest.raises(ValueError, match="feature names"):
        calibrator.partial_fit(frame[100:].rename(columns={"p_0": "q_0"}), y[100:])
    calibrator.partial_fit(frame[100:], y[100:])
    np.testing.assert_allclose(
        calibrator.predict_proba(frame), bc.Vector().fit(frame, y).predict_proba(frame), atol=1e-7
    )


def test_blocks_and_shares_of_outcomes() -> None:
    p, y = binary_rows(900)
    p = round_to_tenths(p)
    whole = bc.Logistic().fit(p, y).predict_proba(p)
    calibrator = bc.Logistic()
    for begin in (0, 450):
        parts = np.split(np.arange(begin, begin + 450), 3)
        calibrator.partial_fit(bc.Blocks([(p[part], y[part]) for part in parts]))
    np.testing.assert_allclose(calibrator.predict_proba(p), whole, atol=1e-9)
    shares = np.column_stack([1 - y, y]) * 0.8 + 0.1
    shared = bc.Logistic().partial_fit(p[:500], shares[:500]).partial_fit(p[500:], shares[500:])
    np.testing.assert_allclose(
        shared.predict_proba(p), bc.Logistic().fit(p, shares).predict_proba(p), atol=1e-9
    )


def test_after_fit() -> None:
    p, y = binary_rows(3000)
    few = bc.Beta().fit(p[:1000], y[:1000]).partial_fit(p[1000:], y[1000:])
    np.testing.assert_allclose(
        few.predict_proba(p), bc.Beta().fit(p, y).predict_proba(p), atol=1e-6
    )
    assert not hasattr(few.fit(p[:100], y[:100]), "history_")
    for fitted in (bc.Beta().fit(p, y), pickle.loads(pickle.dumps(bc.Beta().fit(p[:9], y[:9])))):
        with pytest.raises(ValueError, match="partial_fit must follow partial_fit, or a fit of"):
            fitted.partial_fit(p[:10], y[:10])


@pytest.mark.parametrize("scale", [1e-20, 1e60])
def test_weights_that_would_be_scaled_are_refused(scale: float) -> None:
    p, y = binary_rows(100)
    with pytest.raises(ValueError, match="sample_weight must have a maximum from 1e-12"):
        bc.Beta().partial_fit(p, y, sample_weight=np.full(100, scale))
    with pytest.raises(ValueError, match="sample_weight must have a maximum from 1e-12"):
        bc.Beta().partial_fit(bc.Blocks([(p, y, np.full(100, scale))]))
    # Batches of the least and the greatest weights count as in one fit.
    heavy = np.where(np.arange(100) < 50, 2e-12, 4e-11)
    learned = learn_in_batches(bc.Beta(), p, y, 50, heavy)
    whole = bc.Beta().fit(p, y, heavy)
    np.testing.assert_allclose(learned.predict_proba(p), whole.predict_proba(p), atol=1e-8)


@pytest.mark.parametrize(
    "calibrator",
    [
        bc.Temperature(objective="adaptive_ece"),
        bc.Temperature(inputs="top_logits", classes=9),
        bc.Logistic(smoothing="instance"),
        bc.Matrix(off_diagonal="cv"),
        bc.Dirichlet(intercept="cv"),
    ],
)
def test_options_that_need_all_rows(calibrator: Any) -> None:
    with pytest.raises(ValueError, match=r"must .* for partial_fit"):
        calibrator.partial_fit(*binary_rows(50))


def test_others_have_no_partial_fit() -> None:
    for kind in (bc.Isotonic, bc.Spline, bc.StackedScaling, bc.Auto, bc.Histogram):
        assert not hasattr(kind(), "partial_fit")


@pytest.mark.parametrize("inputs", ["probs", "logits"])
@pytest.mark.parametrize(
    ("kind", "columns"),
    [(bc.Temperature, 1), (bc.Beta, 1), (bc.Temperature, 2), (bc.Beta, 2), (bc.Vector, 3)],
)
def test_reports_and_shifts_use_the_whole_history(kind: Any, columns: int, inputs: str) -> None:
    p, y = rows_of_classes(400, columns) if columns == 3 else binary_rows(400)
    scores = round_to_tenths(np.column_stack([1 - p, p]) if columns == 2 else p)
    if inputs == "logits":
        scores = np.log(scores + 0.01)
    whole = kind(inputs=inputs).fit(scores, y)
    parts = learn_in_two(kind(inputs=inputs), scores, y)
    assert parts.report_.log_loss == pytest.approx(whole.report_.log_loss, abs=1e-7)
    assert parts.report_.gain == pytest.approx(whole.report_.gain, abs=1e-7)
    assert parts.report_.effective_rows == pytest.approx(400)
    a, b = (bc.PriorShift(c).fit(scores[y == 0]).shares_ for c in (whole, parts))
    # Draws of the calibrator depend on the order of its rows, which differs here.
    np.testing.assert_allclose(a, b, atol=0.03)


def test_warnings_are_those_of_fit() -> None:
    with pytest.warns(ConvergenceWarning, match="separate the labels"):
        bc.Logistic().partial_fit([0.1, 0.9], [0, 1])


def test_a_sample_that_is_matched_once_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    n, k = 6000, 20
    monkeypatch.setattr(history, "_ROW_NUMBERS", 3000 * k)
    monkeypatch.setattr(history, "_MIN_ROWS", 3000)
    monkeypatch.setattr(online, "_MATCHES", 1)
    rng = np.random.default_rng(0)
    logits, y = rng.normal(0, 1, (n, k)).round(3), rng.integers(0, k, n)
    logits[np.arange(n), y] += 2
    learned = bc.Vector(inputs="logits")
    for part in np.array_split(np.arange(n), 3):
        learned.partial_fit(logits[part], y[part], classes=k)
    assert len(learned.history_["y"]) == 3000
    whole = bc.Vector(inputs="logits").fit(logits, y)
    np.testing.assert_allclose(
        learned.predict_proba(logits[:50]), whole.predict_proba(logits[:50]), atol=0.03
    )
