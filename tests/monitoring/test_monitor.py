"""The monitor: a martingale, compared with the definition, and under its own assumptions."""

import copy
import datetime
import itertools
import json
import re
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.special import expit, logit, softmax

import bayescal as bc
from bayescal.monitoring import _region
from bayescal.monitoring._alternatives import BinaryAlternatives, MulticlassAlternatives

Task = Literal["binary", "multiclass", "multilabel"]


def draw(seed: int, n: int, slope: float = 1.0, offset: float = 0.0, start: int = 0) -> tuple:
    """Draw probabilities, and outcomes that follow a distorted map from a given row on."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(0, 2, n)
    wrong = np.arange(n) >= start
    truth = np.where(wrong, slope * log_odds + offset, log_odds)
    return expit(log_odds), (rng.random(n) < expit(truth)).astype(int)


def draw_classes(seed: int, n: int, k: int, power: float = 1.0) -> tuple:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (n, k))
    truth = softmax(power * logits, axis=1)
    y = (truth.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return softmax(logits, axis=1), y


def brute_force(log_ratios: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Compute the log evidence after each row from the definition, with separate bets."""
    bets = [(0, 0.5 * prior)]
    for row in range(0, len(log_ratios), 16):
        number = row // 16 + 1
        share = 1 / np.log2(number + 1) - 1 / np.log2(number + 2)
        bets.append((row, 0.5 * share * prior))
    result = []
    for t in range(1, len(log_ratios) + 1):
        begun = sum(
            weights @ np.exp(log_ratios[row:t].sum(axis=0)) for row, weights in bets if row < t
        )
        waiting = 0.5 / np.log2((t - 1) // 16 + 3)
        result.append(np.log(begun + waiting))
    return np.array(result)


def test_evidence_is_that_of_the_definition() -> None:
    p, y = draw(0, 150, slope=0.7)
    prior = BinaryAlternatives()
    line = np.exp(prior.log_slopes) * logit(p)[:, None] + prior.offsets
    log_ratios = (
        stats.bernoulli.logpmf(y[:, None], expit(line)) - stats.bernoulli.logpmf(y, p)[:, None]
    )
    expected = brute_force(log_ratios, prior.weights)
    monitor, actual = bc.Monitor(), []
    for row in range(len(y)):
        actual.append(monitor.update(p[row : row + 1], y[row : row + 1]).log_evidence_)
    np.testing.assert_allclose(actual, expected, atol=1e-11)
    assert prior.weights.sum() == pytest.approx(1, abs=1e-14)
    assert len(prior.weights) == 64


def test_ratios_of_classes_are_those_of_the_maps() -> None:
    p, y = draw_classes(0, 40, 3)
    prior = MulticlassAlternatives(3)
    assert prior.weights.sum() == pytest.approx(1, abs=1e-14)
    assert len(prior.weights) == 156
    actual = prior.log_ratios(p, y)
    rows = np.arange(40)
    slopes = np.concatenate([-np.geomspace(0.05, 1.4, 6)[::-1], np.geomspace(0.05, 1.4, 6)])
    offsets = np.concatenate([-np.geomspace(0.06, 2.5, 6)[::-1], np.geomspace(0.06, 2.5, 6)])
    pairs = [
        np.concatenate([-g[::-1], g]) for g in (np.geomspace(0.12, top, 3) for top in (1.1, 1.5))
    ]
    maps = [(a, np.zeros(3)) for a in slopes]
    maps += [(0.0, b * np.eye(3)[j]) for b in offsets for j in range(3)]
    maps += [(a, b * np.eye(3)[j]) for a in pairs[0] for b in pairs[1] for j in range(3)]
    for column, (a, b) in enumerate(maps):
        q = softmax(np.exp(a) * np.log(p) + b, axis=1)
        np.testing.assert_allclose(actual[:, column], np.log(q[rows, y] / p[rows, y]), atol=1e-12)


@pytest.mark.parametrize("task", get_args(Task))
def test_evidence_is_a_martingale(task: Task) -> None:
    """Check that the mean over all outcomes of future rows is the current evidence."""
    rng = np.random.default_rng(0)
    past, ahead = 14, 4
    if task == "multiclass":
        p = rng.dirichlet([1, 1, 1], past + ahead)
        outcomes = [np.array(o) for o in itertools.product(range(3), repeat=ahead)]
        first = rng.integers(0, 3, past)
        chance = [np.prod(p[past + np.arange(ahead), o] / 1) for o in outcomes]
    else:
        width = (2,) if task == "multilabel" else ()
        p = rng.uniform(0.02, 0.98, (past + ahead, *width))
        size = ahead * int(np.prod(width))
        outcomes = [
            np.array(o).reshape(ahead, *width) for o in itertools.product([0, 1], repeat=size)
        ]
        first = rng.integers(0, 2, (past, *width))
        chance = [np.prod(np.where(o == 1, p[past:], 1 - p[past:])) for o in outcomes]
    now = bc.Monitor(task=task).update(p[:past], first)
    later = [copy.deepcopy(now).update(p[past:], o).log_evidence_ for o in outcomes]
    assert sum(chance) == pytest.approx(1, abs=1e-12)
    assert np.exp(later) @ chance == pytest.approx(np.exp(now.log_evidence_), rel=1e-12)


@pytest.mark.parametrize("task", get_args(Task))
def test_parts_give_what_all_rows_give(task: Task, tmp_path: Path) -> None:
    """Check parts with and without a file saved in between."""
    rng = np.random.default_rng(1)
    n = 1500
    if task == "multiclass":
        p, y = draw_classes(1, n, 3, 0.7)
    else:
        p, y = draw(1, n, slope=0.8)
        if task == "multilabel":
            p, y = np.column_stack([p, p[::-1]]), np.column_stack([y, y[::-1]])
    weights = rng.choice([0.0, 0.5, 1.0], n)
    whole = bc.Monitor(task=task, alpha=0.01).update(p, y, weights)
    parts, begin = bc.Monitor(task=task, alpha=0.01), 0
    while begin < n:
        end = begin + int(rng.integers(1, 90))
        parts.update(p[begin:end], y[begin:end], weights[begin:end])
        parts.save(tmp_path / "state.json")
        parts, begin = bc.Monitor.load(tmp_path / "state.json"), end
    assert (parts.n_rows_, parts.alpha) == (n, 0.01)
    once = bc.Monitor(task=task, alpha=0.01).update(p[:333], y[:333])
    loaded = bc.Monitor.from_dict(json.loads(json.dumps(once.to_dict())))
    for one in (once, loaded):
        one.update(p[333:], y[333:])
    assert loaded.log_evidence_ == once.log_evidence_
    assert parts.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-10)
    assert parts.max_log_evidence_ == pytest.approx(whole.max_log_evidence_, abs=1e-10)
    assert parts.alarm_row_ == whole.alarm_row_
    assert parts.start_row_ == whole.start_row_
    np.testing.assert_allclose(parts.course_, whole.course_, atol=1e-10)
    if task != "multiclass":
        np.testing.assert_allclose(parts.slope_interval(), whole.slope_interval(), atol=1e-6)


def test_huge_log_odds_agree_with_the_definition() -> None:
    rng = np.random.default_rng(3)
    log_odds = rng.normal(0, 20, 60)
    y = (rng.random(60) < expit(log_odds)).astype(int)
    y[40] = 1 - y[40]
    p = expit(log_odds)
    p = np.clip(p, 1e-300, 1 - 1e-16)
    alternatives = BinaryAlternatives()
    expected = brute_force(alternatives.log_ratios(p, y), alternatives.weights)
    monitor = bc.Monitor().update(p, y)
    assert monitor.log_evidence_ == pytest.approx(expected[-1], rel=1e-10)
    assert monitor.max_log_evidence_ == pytest.approx(max(0, expected.max()), rel=1e-10)


@pytest.mark.parametrize("task", get_args(Task))
def test_rows_of_weight_zero_need_no_outcome(task: Task) -> None:
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(3), 300) if task == "multiclass" else rng.uniform(size=(300, 2))
    p = p[:, 0] if task == "binary" else p
    y = rng.integers(0, 2, p.shape if task == "multilabel" else 300)
    weights = rng.choice([0.0, 0.5, 1.0], 300)
    absent = weights == 0
    outcomes = y.astype(object)
    outcomes[absent] = None
    monitor = bc.Monitor(task=task).update(np.where(absent, np.nan, p.T).T, outcomes, weights)
    expected = bc.Monitor(task=task).update(p, y, weights)
    for number in ("n_rows_", "log_evidence_", "max_log_evidence_", "start_row_", "alarm_row_"):
        assert getattr(monitor, number) == pytest.approx(getattr(expected, number), rel=1e-12)
    if task != "multiclass":
        np.testing.assert_allclose(monitor.slope_interval(), expected.slope_interval(), rtol=1e-9)
    with pytest.raises(ValueError, match="y must not have missing labels|got nan in row"):
        bc.Monitor(task=task).update(p, outcomes, np.maximum(weights, 0.1))


def test_an_impossible_outcome_is_an_alarm_that_names_its_row() -> None:
    monitor = bc.Monitor().update([0.5, 0.0, 1.0, 0.5], [1, 0, 1, 0])
    assert not monitor.alarm_
    monitor.update([0.3, 0.0, 0.5], [0, 1, 1])
    assert (monitor.alarm_row_, monitor.refuted_row_) == (5, 5)
    assert monitor.log_evidence_ == np.inf
    assert monitor.action_.startswith("row 5 had an outcome of probability zero")
    classes = bc.Monitor(task="multiclass").update([[0.5, 0.5, 0.0]], [2])
    assert classes.refuted_row_ == 0


@pytest.mark.parametrize(
    ("task", "p", "y"),
    [
        ("binary", [0.0, 1.0, 0.4], [1, 0, 1]),
        ("multiclass", [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]], [0, 1, 2]),
        ("multilabel", [[0.0, 0.5], [0.3, 1.0], [0.4, 0.6]], [[1, 1], [0, 0], [1, 0]]),
    ],
)
def test_an_impossible_outcome_without_weight_is_no_alarm(task: Task, p: list, y: list) -> None:
    monitor = bc.Monitor(task=task).update(p, y, [0, 0, 1])
    assert monitor.refuted_row_ is None
    assert not monitor.alarm_
    assert np.isfinite(monitor.log_evidence_)
    monitor.update(p, y, [0, 0.5, 1])
    assert monitor.refuted_row_ == monitor.alarm_row_ == 4


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_two_columns_in_low_precision_are_not_certain(dtype: Any) -> None:
    """Check second columns that round to one, unlike their complement."""
    rng = np.random.default_rng(0)
    small = np.finfo(dtype).eps / 2.0 ** rng.uniform(2, 3, 5000)
    rows = np.stack([small, 1 - small], axis=1).astype(dtype)
    y = np.where(np.arange(5000) % 2500 == 1000, 0, 1)
    assert (rows[:, 1] == 1).all() and (rows[:, 0] > 0).all()
    monitor, mirrored = bc.Monitor().update(rows, y), bc.Monitor().update(rows[:, ::-1], 1 - y)
    assert monitor.refuted_row_ is None
    assert monitor.log_evidence_ == pytest.approx(mirrored.log_evidence_, rel=1e-6)
    assert (monitor.alarm_row_ is None) == (dtype == np.float16)


def test_certain_rows_say_nothing_else() -> None:
    p, y = draw(4, 66)
    p[20:22], y[20:22] = [0.0, 1.0], [0, 1]
    certain = np.arange(66) // 2 == 10
    known = bc.Monitor().update(np.where(certain, 0.5, p), y, np.where(certain, 0.0, 1.0))
    actual = bc.Monitor().update(p, y)
    assert actual.log_evidence_ == pytest.approx(known.log_evidence_, abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        *((kind, 70) for kind in ("array", "frame", "text", "numbers")),
        *(("text", 1), ("zone", 2000)),
    ],
)
def test_times_say_when(kind: str, size: int, tmp_path: Path) -> None:
    n = 600 if size == 1 else 2000
    p, y = draw(5, n, slope=0.3, start=n // 2)
    known = np.datetime64("2026-01-01T12:30", "m") + np.arange(n)
    times: Any = known
    if kind == "zone":
        times = pd.Series(pd.DatetimeIndex(known).tz_localize("UTC").tz_convert("Asia/Tokyo"))
    elif kind == "text":
        times = known.astype(str)
    elif kind == "numbers":
        times = known = 10.0 * np.arange(n)
    monitor = bc.Monitor()
    for begin in range(0, n, size):
        part = slice(begin, begin + size)
        if kind == "frame":
            frame = pd.DataFrame({"no": 1 - p[part], "yes": p[part]}, pd.DatetimeIndex(known[part]))
            monitor.update(frame, y[part])
        else:
            monitor.update(p[part], y[part], times=times[part])
    assert monitor.alarm_row_ is not None
    monitor.save(tmp_path / "state.json")
    for one in (monitor, bc.Monitor.load(tmp_path / "state.json")):
        assert one.alarm_time_ == known[monitor.alarm_row_]
        assert one.start_time_ == known[monitor.start_row_]
        assert str(one.start_time_) in one.action_
        looks = one.confidence_sequence()["rows"] if size == 70 else one.course_[0]
        for rows in (one.course_[0], looks):
            np.testing.assert_array_equal(one.times_at(rows), known[rows])


def test_rows_without_times_have_none() -> None:
    p, y = draw(5, 600, slope=0.3)
    times = [f"day {i}" for i in range(300)]
    monitor = bc.Monitor().update(p[:300], y[:300], times=times)
    assert monitor.alarm_time_ == f"day {monitor.alarm_row_}"
    monitor.update(p[300:], y[300:])
    assert monitor.times_at(monitor.course_[0]) is None


@pytest.mark.parametrize(
    "classes", [[datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)], [b"no", b"\xc3\xa9"]]
)
def test_dates_and_byte_strings_are_classes(classes: list[Any], tmp_path: Path) -> None:
    p, y = draw(4, 60)
    labels = [classes[label] for label in y]
    monitor = bc.Monitor(classes=classes).update(p[:30], labels[:30])
    monitor.save(tmp_path / "state.json")
    loaded = bc.Monitor.load(tmp_path / "state.json").update(p[30:], labels[30:])
    assert loaded.log_evidence_ == monitor.update(p[30:], labels[30:]).log_evidence_
    assert loaded.log_evidence_ == pytest.approx(bc.Monitor().update(p, y).log_evidence_)


@pytest.mark.parametrize(
    "times",
    [
        [0.0, np.nan, np.inf],
        np.array(["2026-01-01", "NaT", "NaT"], "datetime64[D]"),
        pd.DatetimeIndex(["2026-01-01", None, None]),
        ["a", None, None],
    ],
    ids=["numbers", "dates", "pandas", "text"],
)
def test_missing_times_are_those_of_rows_without_times(times: Any, tmp_path: Path) -> None:
    monitor = bc.Monitor().update([0.5, 0.0, 0.5], [1, 1, 0], times=times)
    monitor.save(tmp_path / "state.json")
    for one in (monitor, bc.Monitor.load(tmp_path / "state.json")):
        assert one.start_time_ == times[0]
        assert one.alarm_row_ == 1
        assert one.alarm_time_ is None
        assert one.times_at([0, 1]) is None


def test_labels_go_by_name() -> None:
    p, y = draw(4, 300, slope=0.6)
    plain = bc.Monitor().update(p, y)
    texts = np.array(["no", "yes"])[y]
    named = bc.Monitor(classes=["no", "yes"])
    frame = pd.DataFrame({"yes": p, "no": 1 - p})
    assert named.update(frame, texts).log_evidence_ == pytest.approx(plain.log_evidence_, abs=1e-9)
    both = bc.Monitor().update(np.column_stack([1 - p, p]), y == 1)
    assert both.log_evidence_ == pytest.approx(plain.log_evidence_, abs=1e-9)
    q, z = draw_classes(4, 300, 3)
    names = np.array(["ash", "birch", "cedar"])
    known = bc.Monitor(task="multiclass").update(q, z)
    shuffled = pd.DataFrame(q[:, [2, 0, 1]], columns=names[[2, 0, 1]])
    trees = bc.Monitor(task="multiclass", classes=names.tolist()).update(shuffled, names[z])
    assert trees.log_evidence_ == pytest.approx(known.log_evidence_, abs=1e-9)
    with pytest.raises(ValueError, match="y must be in"):
        bc.Monitor().update(p, texts)


def test_the_action_names_the_label() -> None:
    calm, wrong = draw(0, 2000), draw(1, 2000, 0.4)
    monitor = bc.Monitor(task="multilabel", classes=["cat", "dog"])
    monitor.update(np.column_stack([calm[0], wrong[0]]), np.column_stack([calm[1], wrong[1]]))
    assert monitor.action_.startswith("label dog: confidence")
    assert monitor.slope_interval(0)[1] > 0.8 > monitor.slope_interval(1)[1]


def test_action_states_the_fit_since_the_change() -> None:
    p, y = draw(9, 6000, 0.5, 0.6, start=4096)
    text = bc.Monitor().update(p, y).action_
    match = re.search(r"slope (\S+), offset (\S+)\).* about (\d+) on", text)
    assert match is not None, text
    begin = int(match[3])
    x, z = logit(p[begin:]), y[begin:]
    fit = minimize(lambda t: -stats.bernoulli.logpmf(z, expit(t[0] * x + t[1])).sum(), [1.0, 0.0])
    # Looks are 128 rows apart.
    np.testing.assert_allclose([float(match[1]), float(match[2])], fit.x, atol=0.06)


def test_confidence_sequence_is_that_of_the_rows_up_to_then() -> None:
    p, y = draw(6, 900, slope=0.7, offset=0.2)
    sequence = bc.Monitor().update(p, y).confidence_sequence()
    rows = sequence["rows"]
    assert len(rows) == 56
    assert rows[0] == 15 and set(np.diff(rows)) == {16}
    for i in (0, 20, 55):
        then = bc.Monitor().update(p[: rows[i] + 1], y[: rows[i] + 1])
        # Cells have the mean log odds of all rows.
        np.testing.assert_allclose(sequence["slope"][i], then.slope_interval(), rtol=0.02)
        np.testing.assert_allclose(sequence["offset"][i], then.offset_interval(), atol=0.03)
    many = bc.Monitor().update(*draw(6, 5000))
    assert 32 <= len(many.confidence_sequence()["rows"]) <= 64
    empty = bc.Monitor().confidence_sequence()
    shapes = {"rows": (0,), "slope": (0, 2), "offset": (0, 2)}
    assert {name: array.shape for name, array in empty.items()} == shapes


def test_the_state_is_plain_json_of_bounded_size() -> None:
    monitor = bc.Monitor().update(*draw(3, 5000))
    text = json.dumps(monitor.to_dict(), allow_nan=False)
    longer = json.dumps(monitor.update(*draw(4, 100_000)).to_dict(), allow_nan=False)
    assert len(longer) < 2.5 * len(text) < 1_500_000
    refuted = bc.Monitor().update([0.5, 0.0], [1, 1])
    again = bc.Monitor.from_dict(json.loads(json.dumps(refuted.to_dict(), allow_nan=False)))
    assert again.log_evidence_ == again.max_log_evidence_ == np.inf
    assert again.course_[1].tolist() == refuted.course_[1].tolist()


def test_region_is_that_of_an_optimizer_on_all_rows() -> None:
    p, y = draw(6, 800, slope=0.7, offset=0.2)
    monitor = bc.Monitor().update(p, y)
    x, at_truth = logit(p), stats.bernoulli.logpmf(y, p).sum()

    def log_ratio(theta: np.ndarray) -> float:
        return stats.bernoulli.logpmf(y, expit(np.exp(theta[0]) * x + theta[1])).sum() - at_truth

    threshold = np.log(0.05) + monitor._evidence[0].log_plain_evidence
    inside = {"type": "ineq", "fun": lambda theta: log_ratio(theta) - threshold}
    best = minimize(lambda theta: -log_ratio(theta), [0.0, 0.0]).x
    ends = [
        minimize(lambda theta, s=sign, j=j: s * theta[j], best, constraints=inside).x[j]
        for j in (0, 1)
        for sign in (1, -1)
    ]
    np.testing.assert_allclose(monitor.slope_interval(), np.exp(ends[:2]), rtol=2e-3)
    np.testing.assert_allclose(monitor.offset_interval(), ends[2:], atol=2e-3)
    assert bc.Monitor().slope_interval() == (0.0, np.inf)
    assert bc.Monitor().offset_interval() == (-np.inf, np.inf)


@pytest.mark.parametrize(("p", "seed"), [(0.3, 36), (0.5 - 1e-9, 52), (0.501, 36), (0.6, 52)])
def test_equal_predictions_do_not_tell_slopes_from_offsets(seed: int, p: float) -> None:
    rng = np.random.default_rng(seed)
    y, weights = (rng.random(30) < 0.25).astype(int), rng.random(30)
    monitor = bc.Monitor(alpha=0.1).update(np.full(30, p), y, weights=weights)
    threshold = np.log(0.1) + monitor._evidence[0].log_plain_evidence

    def excess(q: float) -> float:
        log_ratios = np.where(y == 1, np.log(q / p), np.log((1 - q) / (1 - p)))
        return float(weights @ log_ratios - threshold)

    # An end has slope 0, and large slopes have large offsets: the other one is infinite.
    share = weights @ y / weights.sum()
    bracket = (1e-9, share) if p < 0.5 else (share, 1 - 1e-9)
    end = logit(brentq(excess, *bracket, xtol=1e-14))
    expected = (end, np.inf) if p < 0.5 else (-np.inf, end)
    assert monitor.offset_interval() == pytest.approx(expected, abs=1e-6)
    assert monitor.slope_interval() == (0.0, np.inf)
    assert not np.isnan(monitor.confidence_sequence()["offset"]).any()


def test_slopes_of_predictions_in_a_narrow_range_have_their_best_offset() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-9.2, -8.2, 20_000)
    monitor = bc.Monitor().update(expit(x), y := rng.random(20_000) < expit(x))
    at_truth = stats.bernoulli.logpmf(y, expit(x)).sum()
    threshold = np.log(0.05) + monitor._evidence[0].log_plain_evidence

    def excess(slope: float) -> float:
        def loss(moved: float) -> float:
            q = slope * (x + 9) - 9 + moved
            return float(np.logaddexp(0, np.where(y, -q, q)).sum() + at_truth)

        return -minimize_scalar(loss, bracket=(-1, 1)).fun - threshold

    expected = brentq(excess, 3, 30)
    assert monitor.slope_interval() == pytest.approx((0.0, expected), rel=1e-2)


@pytest.mark.parametrize(
    ("slope", "offset", "word"), [(1, 0.8, "share"), (0.5, 0, "confidence"), (0.4, -0.9, "recalib")]
)
def test_action_names_the_kind_of_error(slope: float, offset: float, word: str) -> None:
    monitor = bc.Monitor()
    assert monitor.action_.startswith("none")
    monitor.update(*draw(7, 3000, slope, offset, start=1000))
    assert word in monitor.action_
    assert 700 <= monitor.start_row_ <= 1100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 1.5], [0, 1]), r"probs must lie in \[0, 1\]"),
        (([0.5, 0.5], [0, 2]), r"y must be in \{0, 1\}, got 2"),
        (([0.5, 0.5], [0]), r"y must have shape \(2,\)"),
        (([[0.5, 0.2, 0.3]], [0]), r"probs must have shape \(n,\) or \(n, 2\) for task='binary'"),
        (([0.5, np.nan], [0, 1]), "probs must be finite"),
        (([0.5, 0.5], [0, 1], [1, 2]), r"weights must lie in \[0, 1\], got 2; divide"),
        (([0.5, 0.5], [0, 1], None, [1]), r"times must have shape \(2,\)"),
    ],
)
def test_a_failed_update_says_why_and_changes_nothing(arguments: tuple, message: str) -> None:
    monitor = bc.Monitor().update(*draw(8, 40))
    before = copy.deepcopy(monitor.to_dict())
    with pytest.raises(ValueError, match=message):
        monitor.update(*arguments)
    assert monitor.to_dict() == before


def test_columns_of_classes_stay_as_they_are() -> None:
    monitor = bc.Monitor(task="multiclass")
    assert monitor.start_row_ == 0 and monitor.start_time_ is None
    monitor.update(*draw_classes(0, 40, 3))
    with pytest.raises(ValueError, match="probs must have 3 columns, as before, got 4"):
        monitor.update(*draw_classes(0, 40, 4))
    assert monitor.n_rows_ == 40


def test_evidence_beyond_what_exponentials_hold() -> None:
    """Check bets of one group with wealth that differs by more than 600 nats, in any batches."""
    p = np.r_[np.full(300, 1e-8), np.full(300, 0.5)]
    y = np.r_[np.ones(300, int), np.arange(300) % 2]
    whole, parts = bc.Monitor().update(p, y), bc.Monitor()
    for begin in range(0, 600, 7):
        parts.update(p[begin : begin + 7], y[begin : begin + 7])
    assert whole.log_evidence_ > 2000
    assert parts.log_evidence_ == pytest.approx(whole.log_evidence_, rel=1e-9)
    prior = BinaryAlternatives()
    line = np.exp(prior.log_slopes) * logit(p)[:, None] + prior.offsets
    sign = np.where(y == 1, 1, -1)[:, None]
    ratios = np.logaddexp(0, -sign * logit(p)[:, None]) - np.logaddexp(0, -sign * line)
    # The bet from the first row on is the largest; later bets won less.
    first = np.logaddexp.reduce(ratios.sum(axis=0) + np.log(prior.weights)) + np.log(0.5)
    assert whole.log_evidence_ >= first
    assert whole.log_evidence_ == pytest.approx(first, abs=10)


def test_regions_of_confidence_where_searches_end(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, 400)
    y = rng.random(400) < expit(0.6 * z)
    line = _region.Line((z, np.where(y, -1.0, 1.0), np.ones(400)))
    peak = line.maximum()
    fitted = minimize(lambda theta: -line.value(theta), [1.0, 0.0], tol=1e-10)
    np.testing.assert_allclose(peak, fitted.x, atol=1e-4)
    # No value reaches this ratio, and one just below the peak has a short interval around it.
    assert np.isnan(line.ends(0, line.value(peak) + 1)).all()
    low, high = line.ends(0, line.value(peak) - 2)
    assert low < peak[0] < high
    monkeypatch.setattr(_region, "_MAX_STEPS", 2)
    near = line.best(1, [peak[0], 3.0])
    assert near[0] == peak[0]
    assert line.value([peak[0], 3.0]) < line.value(near) <= line.value(peak) + 1e-9


def test_wrong_options_and_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 1\), got 1"):
        bc.Monitor(alpha=1.0)
    with pytest.raises(ValueError, match="task must be one of 'binary'"):
        bc.Monitor(task="several")  # type: ignore
    path = tmp_path / "x.json"
    for text in ("", "[]", "{}", '{"other": 1}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="does not hold a monitor"):
            bc.Monitor.load(path)
    path.write_text('{"bayescal_monitor": 99}')
    with pytest.raises(ValueError, match="newer version"):
        bc.Monitor.load(path)
    with pytest.raises(ValueError, match="state must be that of a monitor"):
        bc.Monitor.from_dict({})
    with pytest.raises(ValueError, match="for slopes and offsets"):
        bc.Monitor(task="multiclass").slope_interval()
    with pytest.raises(ValueError, match=r"label must lie in \[0, 0\], got 1"):
        bc.Monitor().slope_interval(1)


# --- under its own truth ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["continuous", "tenths", "one value", "rare", "classes", "labels"])
def test_false_alarms_are_rare(kind: str) -> None:
    """Check that at most a fraction alpha of runs raises an alarm; 1 in 1,000 tests may fail."""
    runs, n, alarms = 200, 1500 if kind in ("classes", "labels") else 8000, 0
    for seed in range(runs):
        rng = np.random.default_rng([9, seed])
        if kind == "classes":
            p, y = draw_classes(seed, n, 3)
            monitor = bc.Monitor(task="multiclass")
        else:
            p = {
                "continuous": lambda r: expit(r.normal(0, 2, n)),
                "tenths": lambda r: r.integers(1, 10, n) / 10,
                "one value": lambda r: np.full(n, 0.3),
                "rare": lambda r: expit(r.normal(-4, 1, n)),
                "labels": lambda r: expit(r.normal(0, 2, (n, 3))),
            }[kind](rng)
            y = (rng.random(p.shape) < p).astype(int)
            monitor = bc.Monitor(task="multilabel" if kind == "labels" else "binary")
        alarms += monitor.update(p, y).alarm_
    assert alarms <= stats.binom.ppf(0.999, runs, 0.05)


@pytest.mark.slow
def test_changes_are_found_soon_early_and_late() -> None:
    early = [bc.Monitor().update(*draw(s, 3000, 0.6, 0.3)).alarm_row_ for s in range(20)]
    assert sum(row is not None and row < 400 for row in early) >= 18
    late = [
        bc.Monitor().update(*draw(s, 13_000, 0.6, 0.3, start=10_000)).alarm_row_ for s in range(20)
    ]
    assert all(row is not None for row in late)
    assert np.median([row - 10_000 for row in late if row is not None]) < 800


@pytest.mark.slow
def test_confidence_sequences_hold_at_all_times_together() -> None:
    missed = 0
    for seed in range(100):
        p, y = draw(seed, 1000, 0.8, 0.3)
        monitor, ok = bc.Monitor(alpha=0.1), True
        for begin in range(0, 1000, 100):
            monitor.update(p[begin : begin + 100], y[begin : begin + 100])
            a, b = monitor.slope_interval(), monitor.offset_interval()
            ok &= a[0] <= 0.8 <= a[1] and b[0] <= 0.3 <= b[1]
        missed += not ok
    assert missed <= stats.binom.ppf(0.999, 100, 0.1)


def test_later_frames_may_have_the_labels_in_another_order() -> None:
    rng = np.random.default_rng(0)
    probs = pd.DataFrame(rng.uniform(size=(400, 2)) * [0.2, 1.0], columns=["cat", "dog"])
    y = (probs > rng.uniform(size=(400, 2))).astype(int)
    exchanged = ["dog", "cat"]
    expected = bc.Monitor(task="multilabel").update(probs[:200], y[:200])
    expected.update(probs[200:], y[200:])
    monitor = bc.Monitor(task="multilabel").update(probs[:200], y[:200])
    restored = bc.Monitor.from_dict(monitor.to_dict())
    for result in (monitor, restored):
        result.update(probs[200:][exchanged], y[200:][exchanged])
        assert result.log_evidence_ == expected.log_evidence_ < 1
    monitor.update(pd.DataFrame({"dog": [0.0], "cat": [0.5]}), [[1, 1]])
    assert monitor.refuted_row_ == 400
    flipped = probs.assign(dog=1 - probs["dog"])[exchanged]
    assert restored.update(flipped, y[exchanged]).action_.startswith("label dog: ")


@pytest.mark.parametrize("names", [["cat"], ["cat", "cat"], ["cat", 1]])
def test_columns_that_cannot_be_told_apart_go_by_position(names: list[object]) -> None:
    probs = pd.DataFrame(np.full((3, len(names)), 0.4), columns=names)
    monitor = bc.Monitor(task="multilabel")
    for _ in range(2):
        monitor.update(probs, np.ones((3, len(names)), int))
    assert monitor.n_rows_ == 6
