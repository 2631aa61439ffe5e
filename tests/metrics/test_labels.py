"""Labels of any type, logits and named columns in every metric."""

import inspect
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import brier_score_loss
from sklearn.metrics import log_loss as sklearn_log_loss

import bayescal as bc
from bayescal import metrics
from bayescal.data.blocks.predictions import as_predictions
from bayescal.metrics.registry import METRICS

N = 60
RNG = np.random.default_rng(0)
#: Probabilities, codes and unsorted names, by the number of classes.
PROBS = {2: RNG.uniform(0.05, 0.95, N), 3: RNG.dirichlet(np.ones(3), N)}
CODES = {k: np.append(np.arange(k), RNG.integers(0, k, N - k)) for k in PROBS}
NAMES = {2: ["yes", "no"], 3: ["pear", "fig", "apple"]}
MANY = RNG.uniform(0.05, 0.95, (N, 3)), RNG.integers(0, 2, (N, 3))


def _add_all(probs, y, classes=None, inputs="probs", weights=None):
    given = 3 if classes is None and np.ndim(probs) == 2 else classes
    total = metrics.Accumulator(["log_loss", "ece"], given, inputs)
    for part in (slice(7), slice(7, None)):
        rows = (getattr(values, "iloc", values)[part] for values in (probs, y))
        total.add(*rows, None if weights is None else weights[part])
    copy = pickle.loads(pickle.dumps(total))
    return list(metrics.Accumulator.merge(total, copy).result().values())


def _with_costs(probs, y, **options):
    k = probs.shape[1] if np.ndim(probs) == 2 else 2
    return metrics.decision_cost(probs, y, costs=np.arange(k * 2.0).reshape(k, 2) ** 2, **options)


def _with_flat(probs, y, **options):
    flat = np.full(np.shape(probs), 1 / np.shape(probs)[1] if np.ndim(probs) == 2 else 0.5)
    flat = np.log(flat / 0.5) if options.get("inputs") == "logits" else flat
    return metrics.difference("log_loss", probs, flat, y, **options)


def _with_calibrator(probs, y, **options):
    flat = np.full(np.shape(probs), 1 / np.shape(probs)[1] if np.ndim(probs) == 2 else 0.5)
    return metrics.variational_ece(probs, y, flat, **options)


def _by_group(probs, y, **options):
    groups = np.stack([np.arange(len(probs)) % 2, np.arange(len(probs)) % 3 > 0], axis=1)
    return metrics.multicalibration_error(probs, y, groups, **options)


#: Functions of probabilities and labels.
FUNCTIONS = {
    name: entry.function for name, entry in METRICS.items() if "binary" in entry.shapes
} | {
    "decision_cost": _with_costs,
    "spiegelhalter_test": metrics.spiegelhalter_test,
    "canonical_kde_ece": metrics.canonical_kde_ece,
    "variational_ece": _with_calibrator,
    "multicalibration_error": _by_group,
    "ecce_test": partial(metrics.ecce_test, resamples=20),
    "skce_test": partial(metrics.skce_test, resamples=20),
    "reliability_curve": metrics.reliability_curve,
    "report": partial(metrics.report, metrics=["brier_score", "ece"], replicates=20),
    "interval": partial(metrics.interval, "ece", replicates=20),
    "bootstrap": partial(metrics.bootstrap, "ece", replicates=20),
    "difference": _with_flat,
    "consistency_test": partial(metrics.consistency_test, "ece", resamples=20),
    "Accumulator": _add_all,
}
del FUNCTIONS["true_calibration_error"]  # It takes no labels.
#: Functions that only take two classes.
OF_TWO = {
    "average_precision": metrics.average_precision,
    "roc_auc": metrics.roc_auc,
    "best_threshold": partial(metrics.best_threshold, [[0, 3], [1, 0]]),
}
every = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
of_classes = pytest.mark.parametrize("k", [2, 3])


def _numbers(value):
    if isinstance(value, metrics.MetricReport):
        value = [list(item.values()) for item in value.intervals.values()]
    if isinstance(value, list | tuple):
        return np.concatenate([_numbers(item) for item in value])
    return np.zeros(0) if value is None else np.ravel(np.asarray(value, float))


def _label_types(k):
    """Return labels of many types that represent ``CODES``, with their classes."""
    names, codes = np.array(NAMES[k]), CODES[k]
    text = names[codes]
    result = {
        "list": text.tolist(),
        "text": text,
        "bytes": text.astype("S"),
        "objects": text.astype(object),
        "series": pd.Series(text, index=np.arange(N)[::-1]),
        "pandas text": pd.Series(text, dtype="string"),
        "categories": pd.Categorical(text, categories=names),
    }
    kinds = {kind: (values, NAMES[k]) for kind, values in result.items()}
    kinds["bytes"] = result["bytes"], names.astype("S")
    kinds["codes of names"] = codes, NAMES[k]
    kinds["numbers"] = 10 - 3 * codes, [10 - 3 * code for code in range(k)]
    kinds["nullable"] = pd.Series(codes + 1, dtype="Int64"), range(1, k + 1)
    kinds["count"] = codes, k
    if k == 2:
        kinds["true first"] = codes == 0, [True, False]
    return kinds


@every
@of_classes
def test_classes_say_the_columns_of_labels(function, k):
    expected = _numbers(function(PROBS[k], CODES[k]))
    for kind, (labels, classes) in _label_types(k).items():
        if function is _add_all and kind == "count":
            continue  # For this function it is the number of columns.
        result = _numbers(function(PROBS[k], labels, classes=classes))
        np.testing.assert_array_equal(result, expected, kind)


@every
@of_classes
def test_without_classes_text_is_sorted(function, k):
    if function is _add_all:
        with pytest.raises(ValueError, match=r"y must be in .*, got the text .*; pass classes="):
            function(PROBS[k], _label_types(k)["text"][0])
        return
    expected = _numbers(function(PROBS[k], k - 1 - CODES[k]))
    for kind in ("list", "bytes", "objects", "pandas text", "categories"):
        result = _numbers(function(PROBS[k], _label_types(k)[kind][0]))
        np.testing.assert_array_equal(result, expected, kind)


def test_labels_in_one_column_are_read_as_in_fits():
    y = CODES[2][:, None]
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        value = metrics.log_loss(PROBS[2], y)
    assert value == metrics.log_loss(PROBS[2], CODES[2])
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        bc.Beta().fit(PROBS[2], y)


def test_rows_of_many_columns_are_as_precise_as_their_type():
    """Check that the tolerance of row sums depends on the dtype, in metrics and in fits."""
    k = 20_000
    probs = np.full((4, k), 1 / k, np.float32) * np.float32(1.0015)
    y = np.array([0, 1, 2, 3])
    assert metrics.log_loss(probs, y) > 0
    assert bc.Temperature(classes=k).fit(probs, y).temperature_ > 0
    for call in (metrics.log_loss, bc.Temperature(classes=k).fit):
        with pytest.raises(ValueError, match="rows that sum to one"):
            call(probs.astype(float), y)


@every
def test_booleans_and_signs_are_two_classes(function):
    expected = _numbers(function(PROBS[2], CODES[2]))
    np.testing.assert_array_equal(_numbers(function(PROBS[2], CODES[2] == 1)), expected)
    np.testing.assert_array_equal(_numbers(function(PROBS[2], (CODES[2] == 1).tolist())), expected)
    if function is not _add_all:
        np.testing.assert_array_equal(_numbers(function(PROBS[2], 2 * CODES[2] - 1)), expected)


@every
@of_classes
def test_logits_stand_for_their_probabilities(function, k):
    p = PROBS[k]
    logits = np.log(p / (1 - p)) if k == 2 else np.log(p) + 7 * np.arange(N)[:, None]
    expected = _numbers(function(p, CODES[k]))
    np.testing.assert_allclose(
        _numbers(function(logits, CODES[k], inputs="logits")), expected, rtol=1e-9, atol=1e-12
    )
    if k == 3:
        frame = pd.DataFrame(logits, columns=NAMES[3])[["fig", "pear", "apple"]]
        labels = _label_types(3)["text"][0]
        result = function(frame, labels, classes=NAMES[3], inputs="logits")
        np.testing.assert_allclose(_numbers(result), expected, rtol=1e-9, atol=1e-12)


@every
def test_columns_named_like_classes_stand_in_any_order(function):
    # Functions that use a loss for each class or that draw labels.
    ordered = "loss_gap", "decision_cost", "report", "interval", "Accumulator", "skce_test"
    labels, classes = _label_types(3)["text"]
    codes = CODES[3]
    expected = _numbers(function(PROBS[3], codes))
    frame = pd.DataFrame(PROBS[3], columns=classes)
    for order in (["fig", "apple", "pear"], classes):
        result = function(frame[order], labels, classes=classes)
        np.testing.assert_array_equal(_numbers(result), expected)
        if function not in map(FUNCTIONS.get, ordered):
            result = _numbers(function(frame[order], labels))
            np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="columns named like all of the classes"):
        function(frame.rename(columns={"fig": "plum"}), labels, classes=classes)


def _named_columns(labels):
    """Return a frame-like dict of two columns, second class first, for labels of two types."""
    return {name: p for name, p in zip(labels, (PROBS[2], 1 - PROBS[2]), strict=True)}


@pytest.mark.parametrize(
    ("names", "dtype"),
    [
        ((1, 0), float),
        ((1.0, 0.0), float),
        ((True, False), bool),
        (("True", "False"), bool),
        (("p_1", "p_0"), int),
        (("p_True", "p_False"), bool),
        (("1 (model)", "0 (model)"), int),
        ((1, -1), "minus"),
        (("p_yes", "p_no"), "text"),
        (("yes.prob", "no.prob"), "text"),
        (("2021-01-01", "2020-01-01"), "M8[ns]"),
        ((pd.Timestamp("2021-01-01"), pd.Timestamp("2020-01-01")), "M8[ns]"),
        ((900000000000207009, 900000000000207008), "long"),
    ],
)
def test_metrics_and_fits_read_one_name_alike(names, dtype):
    kinds = {
        "text": ["no", "yes"],
        "minus": [-1, 1],
        "M8[ns]": np.array(["2020-01-01", "2021-01-01"], "M8[ns]"),
        "long": [900000000000207008, 900000000000207009],
    }
    pair = np.asarray(kinds[dtype]) if dtype in kinds else np.arange(2).astype(dtype)
    y, frame = pair[CODES[2]], pd.DataFrame(_named_columns(names))
    expected = metrics.log_loss(PROBS[2], CODES[2])
    known = [{"classes": pair}] if dtype == "long" else [{}, {"classes": pair}]
    for options in known:
        assert metrics.log_loss(frame, y, **options) == pytest.approx(expected, rel=1e-12)
    fitted = bc.Beta().fit(PROBS[2], CODES[2]).predict_proba(PROBS[2])
    named = bc.Beta().fit(frame, y)
    for given in (frame, frame.iloc[:, ::-1]):
        np.testing.assert_allclose(named.predict_proba(given), fitted, rtol=1e-12)


def test_a_batch_of_minus_one_alone():
    p, y = PROBS[2], np.array([-1, 1])[CODES[2]]
    expected = metrics.log_loss(p, y)
    total = metrics.Accumulator(["log_loss"], classes=(-1, 1))
    for label in (-1, 1):
        total.add(p[y == label], y[y == label])
    assert total.result()["log_loss"] == pytest.approx(expected, rel=1e-12)
    alone = metrics.log_loss(p[y == -1], y[y == -1], classes=(-1, 1))
    assert alone == metrics.log_loss(p[y == -1], np.zeros((y == -1).sum(), int))
    for wrong in (
        lambda: metrics.log_loss(p[y == -1], y[y == -1]),
        lambda: metrics.Accumulator(["log_loss"]).add(p[y == -1], y[y == -1]),
        lambda: metrics.Accumulator(["log_loss"]).add(p, y),
    ):
        with pytest.raises(ValueError, match=r"got -1; pass classes=\(-1, 1\) for labels -1 and 1"):
            wrong()


def test_names_that_are_equal_as_text_are_refused():
    given = {1: PROBS[2], "1": 1 - PROBS[2]}
    for function in (
        lambda: metrics.report(given, CODES[2]),
        lambda: bc.evaluate(given, CODES[2]),
        lambda: bc.plots.reliability(given, CODES[2]),
    ):
        with pytest.raises(ValueError, match="probs must have names that differ as text"):
            function()


DAYS = np.array(["2020-01-01", "2021-01-01"], "M8[D]")


@pytest.mark.parametrize(
    "dates",
    [
        DAYS[CODES[2]],
        DAYS[CODES[2]].astype("M8[ns]"),
        DAYS[CODES[2]].tolist(),
        pd.Series(DAYS[CODES[2]]),
        list(pd.Series(DAYS[CODES[2]])),
    ],
    ids=["days", "nanoseconds", "dates", "series", "timestamps"],
)
def test_dates_are_labels_as_all_others(dates, tmp_path):
    p, y = PROBS[2], CODES[2]
    expected = metrics.log_loss(p, y)
    for classes in (None, [*DAYS], DAYS.tolist(), DAYS.astype("M8[ns]")):
        assert metrics.log_loss(p, dates, classes=classes) == expected
    total = metrics.Accumulator(["log_loss"], classes=DAYS)
    total.add(p, dates)
    assert total.result()["log_loss"] == pytest.approx(expected, rel=1e-12)
    blocks = bc.Blocks(lambda: iter([(p, dates), (p, dates)]))
    assert metrics.log_loss(blocks) == pytest.approx(expected, rel=1e-12)
    fitted = bc.Isotonic().fit(p, dates)
    q = fitted.predict_proba(p)
    np.testing.assert_array_equal(q, bc.Isotonic().fit(p, y).predict_proba(p))
    assert metrics.scorer("neg_brier_score")(fitted, p, dates) == pytest.approx(
        -metrics.brier_score(q[:, 1], y), rel=1e-12
    )
    bc.save(fitted, tmp_path / "dates")
    again = bc.load(tmp_path / "dates").classes_
    assert again.dtype == fitted.classes_.dtype
    np.testing.assert_array_equal(again, fitted.classes_)
    named = bc.evaluate({"model": fitted}, p, dates, replicates=20)
    assert named.classes == ("2020-01-01", "2021-01-01")
    line = bc.plots.reliability(fitted, p, dates).lines[-1]
    plain = bc.plots.reliability(q[:, 1], y).lines[-1]
    np.testing.assert_array_equal(line.get_xydata(), plain.get_xydata())


def test_columns_that_pandas_counts_down():
    frame = pd.DataFrame(PROBS[3], columns=[1, 2, 3])
    down = pd.DataFrame({label: frame[label] for label in (3, 2, 1)})
    assert isinstance(down.columns, pd.RangeIndex)
    for given in (down, frame, frame.iloc[:, ::-1]):
        result = metrics.log_loss(given, CODES[3] + 1, classes=[1, 2, 3])
        assert result == metrics.log_loss(PROBS[3], CODES[3])
    # Slices of a frame without column names have other names, which are not guessed.
    with pytest.raises(ValueError, match="in the order of the classes pass an array"):
        metrics.log_loss(frame, CODES[3])


def test_labels_in_columns_that_pandas_counts_down():
    probs, y = MANY
    frame, labels = pd.DataFrame(probs), pd.DataFrame(y)
    expected = metrics.multilabel_ece(probs, y)
    fitted = bc.MultiLabel(bc.Isotonic()).fit(probs, y).predict_proba(probs)
    for one in (frame, frame.iloc[:, ::-1]):
        for other in (labels, labels.iloc[:, ::-1]):
            assert metrics.multilabel_ece(one, other) == pytest.approx(expected, rel=1e-12)
            fit = bc.MultiLabel(bc.Isotonic()).fit(one, other)
            order = [*other.columns]
            for new in (frame, frame.iloc[:, ::-1]):
                np.testing.assert_array_equal(fit.predict_proba(new), fitted[:, order])


@pytest.mark.parametrize("kind", ["i8", "u8", "list", "object", "Int64", "UInt64"])
def test_labels_of_eighteen_digits(kind):
    codes = np.array([900000000000207008, 900000000000207009])
    y = codes[CODES[2]]
    if kind in ("Int64", "UInt64"):
        y = pd.Series(y).astype(kind)
    else:
        y = y.tolist() if kind == "list" else y.astype(kind)
    expected = metrics.log_loss(PROBS[2], CODES[2])
    assert metrics.log_loss(PROBS[2], y, classes=codes.tolist()) == expected
    fitted = bc.Isotonic().fit(PROBS[2], y)
    assert fitted.classes_.tolist() == codes.tolist()
    np.testing.assert_array_equal(fitted.predict([0.0, 1.0]), codes)


@every
@of_classes
def test_cases_of_weight_zero_may_lack_labels(function, k):
    if function is FUNCTIONS["skce_test"]:
        return  # It draws pairs of rows.
    (labels, classes), codes = _label_types(k)["objects"], CODES[k]
    probs, labels = np.append(PROBS[k], PROBS[k][:1], axis=0), np.append(labels, None)
    weights = np.append(np.ones(N), 0)
    result = _numbers(function(probs, labels, classes=classes, weights=weights))
    codes = np.append(codes, 0)
    np.testing.assert_array_equal(result, _numbers(function(probs, codes, weights=weights)))


def test_nullable_booleans_of_weight_zero_may_lack_labels():
    weights = np.append(np.ones(N), 0)
    labels = pd.array([*CODES[2].astype(bool), None], dtype="boolean")
    probs = np.append(PROBS[2], 0.5)
    expected = metrics.log_loss(PROBS[2], CODES[2])
    assert metrics.log_loss(probs, labels, weights=weights) == expected


@pytest.mark.parametrize("k", [2, 3])
def test_strings_of_any_length(k):
    (names, classes), strings = _label_types(k)["text"], np.dtypes.StringDType
    labels = np.asarray(names, str).astype(strings())
    expected = metrics.log_loss(PROBS[k], names)
    assert metrics.log_loss(PROBS[k], labels) == expected
    named = np.array(classes, str).astype(strings())
    assert metrics.log_loss(PROBS[k], labels, classes=named) == metrics.log_loss(
        PROBS[k], names, classes=classes
    )
    fitted = bc.Temperature().fit(PROBS[k], labels)
    other = bc.Temperature().fit(PROBS[k], names)
    np.testing.assert_array_equal(fitted.classes_, other.classes_)
    np.testing.assert_array_equal(fitted.predict_proba(PROBS[k]), other.predict_proba(PROBS[k]))
    missing = labels.astype(strings(na_object=None))
    missing[3] = None
    for read in (metrics.log_loss, bc.Temperature().fit):
        with pytest.raises(ValueError, match="missing labels, got None in row 3"):
            read(PROBS[k], missing)


@pytest.mark.parametrize(
    "names", [["a", "b", "c"], ["2", "0", "1"], [0, 2, 1], ["p_x", "p_z", "p_y"]]
)
def test_two_frames_go_by_their_names(names):
    """Check that columns are matched by name, whether or not the names are classes."""
    probs, other = (pd.DataFrame(rows, columns=names) for rows in (PROBS[3], PROBS[3][::-1]))
    turned = other[[names[2], names[0], names[1]]]
    y = CODES[3]
    calls = [
        lambda p, q: metrics.true_calibration_error(p, q, kind="classwise"),
        lambda p, q: metrics.variational_ece(p, y, q, kind="classwise"),
        lambda p, q: metrics.loss_gap(p, q, functions=20),
    ]
    for call in calls:
        assert call(probs, turned) == pytest.approx(call(probs, other), rel=1e-12)
        assert call(probs, turned) != pytest.approx(call(probs, turned.to_numpy()), rel=1e-3)


def test_two_frames_with_repeated_names_keep_their_order():
    probs, other = (pd.DataFrame(rows, columns=list("aab")) for rows in (PROBS[3], PROBS[3][::-1]))
    expected = metrics.true_calibration_error(PROBS[3], PROBS[3][::-1])
    assert metrics.true_calibration_error(probs, other) == expected


@pytest.mark.parametrize("k", [2, 3])
def test_batches_of_arrow_have_names(k):
    arrow = pytest.importorskip("pyarrow")
    rows = PROBS[k] if k > 2 else np.stack([1 - PROBS[2], PROBS[2]], axis=1)
    names = sorted(NAMES[k])
    labels = np.array(names)[CODES[k]]
    batch = arrow.record_batch({names[j]: rows[:, j] for j in reversed(range(k))})
    expected = metrics.log_loss(rows, labels)
    assert metrics.log_loss(batch, labels) == pytest.approx(expected, rel=1e-12)
    fitted = bc.Temperature().fit(batch, labels)
    probs = bc.Temperature().fit(rows, labels).predict_proba(rows)
    np.testing.assert_allclose(fitted.predict_proba(batch), probs, rtol=1e-9)


NO_CLASSES = [
    (["a"] * N, {}, r"pass classes=\("),
    (["a", "b", "c"] * 20, {}, r"two classes, got 3|pass classes=\("),
    ([1, 2] * 30, {}, r"y must be in \{0, 1\}, got 2; pass classes=\("),
    (["a", 1] * 30, {"classes": "ab"}, "classes must|one kind"),
    (["a", None] * 30, {}, "missing labels, got None in row 1"),
    (["a", np.nan] * 30, {}, "missing labels, got NaN in row 1"),
    ([0.0, np.nan] * 30, {}, "missing labels, got NaN in row 1"),
    (pd.Series(["a", pd.NA] * 30, dtype=object), {}, "missing labels, got <NA> in row 1"),
    (["a", "c"] * 30, {"classes": ["a", "b"]}, "only the classes .*, got 'c'"),
    ([0, 1] * 30, {"classes": [3, 4]}, "only the classes .*, got 0"),
    (["0", "1"] * 30, {"classes": [0, 1]}, "got the text '0'"),
    ([0, 1] * 30, {"classes": ["a", "b", "c"]}, "classes must be two|shape"),
    ([0, 1] * 30, {"classes": ["a", "a"]}, "classes must be .*different labels"),
    ([0, 1] * 30, {"inputs": "scores"}, "inputs must be 'probs' or 'logits'"),
    ([0, 1] * 30, {"inputs": "odds"}, "inputs must be one of"),
]


@every
def test_labels_that_say_no_classes(function):
    for labels, options, message in NO_CLASSES:
        kinds = (TypeError, ValueError) if "one kind" in message else ValueError
        with pytest.raises(kinds, match=message):
            function(PROBS[2], labels, **options)


@every
def test_logits_must_be_finite(function):
    for k, first in ((2, np.inf), (3, [0, np.nan, 1])):
        logits = np.log(PROBS[k])
        logits[4] = first
        with pytest.raises(ValueError, match="probs must be finite"):
            function(logits, CODES[k], inputs="logits")


@every
@of_classes
def test_the_order_of_scikit_learn_is_answered(function, k):
    name = {"log_loss": r"log_loss\(y_prob, y_true\)", "interval": r"interval\(metric, y_prob, y_"}
    known = next(key for key, other in FUNCTIONS.items() if other is function)
    match = "probs must come first, then y: " + name.get(known, r"\w+\(")
    for labels in (CODES[k], _label_types(k)["text"][0], CODES[k] == 1 if k == 2 else CODES[k]):
        if function is _with_costs and k == 3:
            continue  # It takes costs for two classes.
        with pytest.raises(ValueError, match=match):
            function(labels, PROBS[k])


def test_what_may_be_the_right_order_is_judged_as_such():
    with pytest.raises(ValueError, match=r"y must be in \{0, 1\}, got 0.5"):
        metrics.log_loss([0.5, 1.0], [0.5, 1.0])
    with pytest.raises(ValueError, match=r"y must have shape \(3,\) to match probs"):
        metrics.log_loss([0, 1, 1], [0.5, 0.2])
    # A worker thread reads the blocks, so the message names no function that users call.
    match = r"block 0: probs must come first, then y: \(y_prob, y_true\); got labels"
    with pytest.raises(ValueError, match=match):
        metrics.log_loss(bc.Blocks([([0, 1], [0.5, 0.2])]))
    assert metrics.log_loss([0, 1, 1], [0, 1, 1]) == pytest.approx(0, abs=1e-12)


STREAMED = [name for name, entry in METRICS.items() if entry.make and entry.streams]
IN_BLOCKS = {
    name: METRICS[name].function for name in STREAMED if "binary" in METRICS[name].shapes
} | {name: FUNCTIONS[name] for name in ("report", "interval")}


def _blocks(*rows, size=7):
    return bc.Blocks([tuple(values[i : i + size] for values in rows) for i in range(0, N, size)])


@pytest.mark.parametrize("function", IN_BLOCKS.values(), ids=IN_BLOCKS.keys())
@of_classes
def test_blocks(function, k):
    order = np.argsort(CODES[k], kind="stable")  # Few blocks contain all classes.
    p, codes = PROBS[k][order], CODES[k][order]
    expected = _numbers(function(p, codes))
    text = np.array(NAMES[k])[codes]
    for labels in (text, text.astype(object)):
        result = _numbers(function(_blocks(p, labels), classes=NAMES[k]))
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
        result = _numbers(function(_blocks(p, labels)))
        reverse = _numbers(function(p, k - 1 - codes))
        np.testing.assert_allclose(result, reverse, rtol=1e-9, atol=1e-12)
    logits = np.log(p / (1 - p)) if k == 2 else np.log(p)
    result = _numbers(function(_blocks(logits, codes), inputs="logits"))
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
    if k == 3:
        frame = pd.DataFrame(p, columns=NAMES[3])[["fig", "pear", "apple"]]
        result = _numbers(function(_blocks(frame, text), classes=NAMES[3]))
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


def test_blocks_have_classes_of_all_rows():
    p = np.full(6, 0.3)
    weights = np.array([1, 1, 1, 1, 1, 0])

    def blocks(y, weights=weights):
        return bc.Blocks([(p[i : i + 2], y[i : i + 2], weights[i : i + 2]) for i in (0, 2, 4)])

    result = metrics.log_loss(blocks(np.array(["a", "a", "a", "b", "b", "c"])))
    assert result == metrics.log_loss(p[:5], [0, 0, 0, 1, 1])
    with pytest.raises(ValueError, match="two classes, got 3"):
        metrics.log_loss(blocks(np.array(["a", "a", "a", "b", "b", "c"]), np.ones(6)))
    with pytest.raises(ValueError, match="got only one class, 'a'; .* pass classes="):
        metrics.log_loss(blocks(np.array(["a"] * 6)))
    with pytest.raises(TypeError, match="block 1: y must hold labels of one kind"):
        metrics.log_loss(blocks(np.array(["a", "b", 0, 1, 0, 1], object)))
    with pytest.raises(ValueError, match="block 1: y must be in .* got the text 'a'; pass classes"):
        metrics.log_loss(blocks(np.array([0, 1, "a", "b", "a", "b"], object)))
    # A block with a single sign suggests other classes.
    with pytest.raises(ValueError, match=r"block 0: y must be in \{0, 1\}, got -1; pass classes="):
        metrics.log_loss(blocks(np.array([-1, 1, -1, -1, 1, 1])))
    result = metrics.log_loss(blocks(np.array([-1, 1, -1, -1, 1, 1])), classes=(-1, 1))
    assert result == metrics.log_loss(p[:5], [0, 1, 0, 0, 1])


@pytest.mark.parametrize("labels", [[0, 1], ["a", "b"]], ids=["codes", "text"])
def test_a_block_without_weight_says_nothing(labels):
    nothing = [0.9, np.nan], labels[:1] * 2, [0, 0]
    blocks = bc.Blocks([nothing, ([0.2, 0.3], labels, [1, 1]), nothing])
    assert metrics.log_loss(blocks) == pytest.approx(metrics.log_loss([0.2, 0.3], [0, 1]))
    assert metrics.log_loss(blocks, classes=labels) == metrics.log_loss(blocks)


def test_codes_in_blocks_take_one_pass():
    blocks = _blocks(PROBS[2], CODES[2])
    metrics.log_loss(blocks)
    assert blocks.passes == 1
    blocks = _blocks(PROBS[2], np.array(NAMES[2])[CODES[2]])
    metrics.log_loss(blocks, classes=NAMES[2])
    assert blocks.passes == 1


@pytest.mark.parametrize(
    "name", [n for n, metric in METRICS.items() if metric.shapes == ("multilabel",)]
)
def test_many_labels(name):
    (p, y), function = MANY, METRICS[name].function
    expected = function(p, y)
    assert function(p, y == 1) == expected
    logits = np.log(p / (1 - p))
    assert function(logits, y, inputs="logits") == pytest.approx(expected, rel=1e-9)
    blocks = bc.Blocks([(logits[:20], y[:20]), (logits[20:], y[20:] == 1)])
    assert function(blocks, inputs="logits") == pytest.approx(expected, rel=1e-9)
    names = list("abc")
    frame, labels = pd.DataFrame(p, columns=names), pd.DataFrame(y, columns=names)
    assert function(frame[["c", "a", "b"]], y, classes=names) == expected
    assert function(p, labels[["c", "a", "b"]], classes=names) == expected
    total = metrics.Accumulator([name], classes=names)
    total.add(frame[["b", "c", "a"]], labels)
    assert total.result()[name] == pytest.approx(expected, rel=1e-9)
    if name == "multilabel_ece":
        for average in ("total", "mean"):
            how = {"average": average, "binning": "equal_mass"}
            total = metrics.Accumulator([(name, how)], classes=3)
            total.add(p, y)
            exact = function(p, y, **how)
            cut = bc.Blocks([(p[:20], y[:20]), (p[20:], y[20:])])
            assert function(cut, **how) == pytest.approx(exact, rel=1e-9)
            assert abs(total.result()[name] - exact) <= total.bounds()[name] + 1e-12
    one = function(frame[["a"]], labels[["a"]])
    assert one == function(frame[["a"]], y[:, :1], classes=["a"]) == function(p[:, :1], y[:, :1])
    with pytest.raises(ValueError, match=rf"probs must come first, then y: {name}\(y_prob, y_true"):
        function(y, p)
    with pytest.raises(TypeError, match="y must be numeric"):
        function(p, np.where(y == 1, "on", "off"))


def test_functions_without_labels_know_the_columns():
    p, truth = PROBS[3], PROBS[3][::-1]
    frames = [pd.DataFrame(values, columns=NAMES[3]) for values in (p, truth)]
    turned = frames[0][["fig", "apple", "pear"]]
    for options in ({}, {"kind": "classwise"}):
        expected = metrics.true_calibration_error(p, truth, **options)
        for first, second in ((turned, truth), (turned, frames[1][["apple", "fig", "pear"]])):
            result = metrics.true_calibration_error(first, second, classes=NAMES[3], **options)
            assert result == expected
        result = metrics.true_calibration_error(np.log(p), truth, inputs="logits", **options)
        assert result == pytest.approx(expected, rel=1e-9)
    losses = np.random.default_rng(0).normal(size=(5, 3, 2))
    expected = metrics.loss_gap(p, truth, losses=losses)
    result = metrics.loss_gap(turned, frames[1], losses=losses, classes=NAMES[3])
    assert result == expected
    costs = np.array([[1.0, 5.0], [3.0, 1.0], [4.0, 0.0]])
    expected = metrics.decision_cost(p, costs=costs).expected
    result = metrics.decision_cost(turned, costs=costs, classes=NAMES[3]).expected
    np.testing.assert_array_equal(result, expected)
    result = metrics.decision_cost(np.log(p), costs=costs, inputs="logits").expected
    np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_scikit_learn_agrees():
    labels = np.array(["spam", "ham"])[CODES[2]]
    p = PROBS[2]
    assert metrics.log_loss(p, labels) == pytest.approx(sklearn_log_loss(labels, p), rel=1e-12)
    expected = brier_score_loss(labels, p, pos_label="spam")
    assert metrics.brier_score(p, labels) == pytest.approx(expected, rel=1e-12)
    expected = brier_score_loss(labels, p, pos_label="ham")
    result = metrics.brier_score(p, labels, classes=["spam", "ham"])
    assert result == pytest.approx(expected, rel=1e-12)
    labels = np.array(NAMES[3])[CODES[3]]
    expected = sklearn_log_loss(labels, PROBS[3])
    assert metrics.log_loss(PROBS[3], labels) == pytest.approx(expected, rel=1e-12)
    few = labels == "fig"
    expected = sklearn_log_loss(labels[few], PROBS[3][few], labels=sorted(NAMES[3]))
    result = metrics.log_loss(PROBS[3][few], labels[few], classes=sorted(NAMES[3]))
    assert result == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a"] * 30,
        [True, False] * 30,
        [-1, 1] * 30,
        pd.Categorical(["v", "u"] * 30),
        [1, 0] * 30,
    ],
    ids=["text", "booleans", "signs", "categories", "codes"],
)
def test_calibrators_see_the_same_classes(labels):
    fitted = bc.Beta().fit(PROBS[2], labels)
    places = np.searchsorted(fitted.classes_, np.asarray(labels, fitted.classes_.dtype))
    np.testing.assert_array_equal(as_predictions(PROBS[2], labels).y, places)
    result = fitted.predict_proba(PROBS[2])
    given = metrics.log_loss(result, labels, classes=fitted.classes_)
    assert given == metrics.log_loss(result, places)


def test_an_accumulator_of_named_classes():
    total = metrics.Accumulator(["brier_score"], classes=("no", "yes"))
    total.add([0.2], ["no"])
    total.add([0.7, 0.9], ["yes", "yes"])
    assert total.result()["brier_score"] == metrics.brier_score([0.2, 0.7, 0.9], [0, 1, 1])
    wrong = r"classes must be 3 different labels, got \('no', 'yes'\)"
    with pytest.raises(ValueError, match=wrong):
        total.add([[0.2, 0.7, 0.1]], ["no"])
    with pytest.raises(ValueError, match=r"got the text 'no'; pass classes=\(label of each"):
        metrics.Accumulator(["brier_score"]).add([0.2], ["no"])
    with pytest.raises(ValueError, match="only the classes .*, got 'maybe'"):
        total.add([0.2], ["maybe"])
    with pytest.raises(ValueError, match="same metrics, options and classes"):
        total.merge(metrics.Accumulator(["brier_score"], classes=("yes", "no")))
    assert total.cases == 3


@every
@pytest.mark.parametrize("dtype", ["float16", ">f8"])
def test_numbers_of_any_type_count_as_in_double_precision(function, dtype):
    # Keep away from borders of bins, where half precision rounds.
    narrow = (np.floor(20 * PROBS[2]) / 20 + 0.02).astype(dtype)
    result, expected = function(narrow, CODES[2]), function(narrow.astype(float), CODES[2])
    np.testing.assert_array_equal(_numbers(result), _numbers(expected))
    logits = (8 * PROBS[3]).astype(dtype)
    result = function(logits, CODES[3], inputs="logits")
    expected = function(logits.astype(float), CODES[3], inputs="logits")
    np.testing.assert_array_equal(_numbers(result), _numbers(expected))


@pytest.mark.parametrize("function", OF_TWO.values(), ids=OF_TWO.keys())
def test_functions_of_two_classes_take_labels_of_any_kind(function):
    test_classes_say_the_columns_of_labels(function, 2)
    test_without_classes_text_is_sorted(function, 2)


def test_every_public_function_has_the_options():
    for name in metrics.__all__:
        public = getattr(metrics, name)
        options = inspect.signature(public).parameters
        if name == "Accumulator" or "probs" in options or "first" in options:
            assert {"classes", "inputs"} <= set(options), name
            known = {*FUNCTIONS, *METRICS, *OF_TWO}
            assert name in known, name


# --- outcomes in columns, and shares of them ----------------------------------------------------

ONE_HOT = {k: np.eye(k)[CODES[k]] for k in CODES}


@every
@of_classes
def test_a_one_in_the_column_of_the_class(function, k):
    if function is FUNCTIONS.get("loss_gap"):
        return  # Its columns are true probabilities.
    expected = _numbers(function(PROBS[k], CODES[k]))
    for y in (ONE_HOT[k], ONE_HOT[k].astype(bool), scipy.sparse.csr_matrix(ONE_HOT[k])):
        np.testing.assert_array_equal(_numbers(function(PROBS[k], y)), expected)
        if function is FUNCTIONS["Accumulator"]:
            break  # It splits rows.


def test_columns_of_outcomes_go_by_names():
    names, codes = NAMES[3], CODES[3]
    probs = pd.DataFrame(PROBS[3], columns=names)
    y = pd.DataFrame(ONE_HOT[3], columns=names)
    expected = metrics.log_loss(PROBS[3], codes)
    for order in (names, names[::-1], [names[1], names[0], names[2]]):
        for options in ({}, {"classes": names}, {"classes": names[::-1]}):
            result = metrics.log_loss(probs, y[order], **options)
            assert result == pytest.approx(expected, rel=1e-12)
    numbered = pd.DataFrame(ONE_HOT[3]).iloc[:, ::-1]
    assert metrics.log_loss(PROBS[3], numbered) == expected


@pytest.mark.parametrize("weighted", [False, True])
def test_shares_of_outcomes(weighted):
    rng = np.random.default_rng(1)
    p, y = PROBS[2], rng.choice([0, 0.5, 1], N)
    probs, shares = PROBS[3], rng.dirichlet(np.ones(3), N)
    w = rng.integers(0, 3, N) + 0.5 if weighted else np.ones(N)
    how = {"weights": w if weighted else None, "outcomes": "fractional"}

    def mean(values):
        return np.average(values, weights=w)

    square, entropy = (p - y) ** 2, -(y * np.log(p) + (1 - y) * np.log1p(-p))
    for given in (y, np.stack([1 - y, y], axis=1)):
        assert metrics.brier_score(p, given, **how) == pytest.approx(mean(square), rel=1e-12)
        assert metrics.log_loss(p, given, **how) == pytest.approx(mean(entropy), rel=1e-12)
        bin_index = np.ceil(p * 15)
        gaps = [abs((w * (p - y))[bin_index == b].sum()) for b in range(1, 16)]
        assert metrics.ece(p, given, **how) == pytest.approx(sum(gaps) / w.sum(), rel=1e-9)
        pair = np.stack([1 - p, p], axis=1)
        assert metrics.brier_score(pair, given, **how) == pytest.approx(mean(square), rel=1e-12)
    square = ((probs - shares) ** 2).sum(axis=1)
    assert metrics.brier_score(probs, shares, **how) == pytest.approx(mean(square), rel=1e-12)
    entropy = -(shares * np.log(probs)).sum(axis=1)
    assert metrics.log_loss(probs, shares, **how) == pytest.approx(mean(entropy), rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, y, P, S: metrics.log_loss(p, y), "proportions of outcomes pass outcomes='frac"),
        (lambda p, y, P, S: metrics.log_loss(P, S), "pass outcomes='fractional', which log_loss"),
        (lambda p, y, P, S: metrics.interval("log_loss", P, S), "pass outcomes='fractional'"),
        (lambda p, y, P, S: metrics.log_loss(P, 2 * S), "that sum to one.*multilabel_ece"),
        (lambda p, y, P, S: metrics.log_loss(P, y, outcomes="fractional"), "must have shape"),
        (lambda p, y, P, S: metrics.log_loss(p, 3 * y, outcomes="fractional"), "must lie in"),
        (lambda p, y, P, S: metrics.log_loss(p, y, outcomes="halves"), "outcomes must be one of"),
    ],
)
def test_shares_must_be_asked_for(call, message):
    y = np.tile([0, 0.5, 1], N // 3)
    with pytest.raises(ValueError, match=message):
        call(PROBS[2], y, PROBS[3], PROBS[3][::-1])
