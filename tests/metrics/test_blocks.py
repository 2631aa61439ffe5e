"""Metrics of predictions in blocks, compared with metrics of all rows in memory."""

from itertools import product

import numpy as np
import pytest

import bayescal as bc
from bayescal import metrics
from bayescal.data.order import equal_mass
from bayescal.metrics.uncertainty import measured_blocks

CHOICES = [
    ("ece", {}),
    ("ece", {"kind": "classwise", "bins": 7}),
    ("ece", {"binning": "equal_mass"}),
    ("ece", {"binning": "equal_mass", "kind": "classwise", "norm": 2}),
    ("ece", {"binning": "equal_mass", "kind": "top_label", "bins": 4}),
    ("debiased_ece", {}),
    ("debiased_ece", {"binning": "equal_width"}),
    ("ecce", {}),
    ("ecce", {"kind": "range"}),
    ("smooth_ece", {}),
    ("kde_ece", {}),
    ("loss_gap", {}),
]


def _cases(kind, n=4000):
    rng = np.random.default_rng(0)
    if kind == "classes":
        p = rng.dirichlet(np.full(4, 0.3), n)
        return p, (rng.uniform(size=(n, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, 3)
    p = rng.uniform(size=n) ** 3
    p = {"two": p, "ties": p.round(2), "rare": p * 1e-3, "certain": 1 - p * 1e-9}[kind]
    return p, (rng.uniform(size=n) < p**1.2).astype(int)


def _weights(kind, n=4000):
    rng = np.random.default_rng(1)
    return {"counts": rng.integers(0, 3, n), "real": rng.uniform(0.5, 2, n)}.get(kind)


def _cut(rows, size):
    n = len(rows[0])
    return bc.Blocks([tuple(values[i : i + size] for values in rows) for i in range(0, n, size)])


def _pairs(first, second):
    """Pair the values of two lists, and assign the kinds of weights in turn."""
    weights = ("none", "counts", "real")
    return [(a, b, weights[(i + j) % 3]) for i, a in enumerate(first) for j, b in enumerate(second)]


SUMS = [("log_loss", {"eps": 1e-3}), ("brier_score", {}), ("accuracy", {})]


@pytest.mark.parametrize(
    ("choice", "kind", "weighted"),
    _pairs(SUMS, ["rare", "classes"])
    + _pairs(CHOICES, ["two", "ties", "rare", "certain", "classes"]),
    ids=str,
)
def test_blocks_give_what_all_cases_do(choice, kind, weighted):
    name, options = choice
    (p, y), weights = _cases(kind), _weights(weighted)
    metric = getattr(metrics, name)
    if options.get("kind") in ("classwise", "top_label") and p.ndim == 1:
        p = np.stack([1 - p, p], axis=1)
    whole = metric(p, y, weights=weights, **options)
    rows = (p, y) if weights is None else (p, y, weights)
    size = 3999 if weighted == "counts" else 500
    np.testing.assert_allclose(metric(_cut(rows, size), **options), whole, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("kind", ["two", "ties", "rare", "certain", "classes"])
def test_cells_with_many_cases_are_divided(kind, monkeypatch):
    monkeypatch.setattr(equal_mass, "_ROWS", 3)
    monkeypatch.setattr(equal_mass, "_SHIFT", 58)
    p, y = _cases(kind)
    blocks = _cut((p, y), 999)
    result = metrics.ece(blocks, binning="equal_mass")
    whole = metrics.ece(p, y, binning="equal_mass")
    np.testing.assert_allclose(result, whole, rtol=1e-10, atol=1e-14)
    assert blocks.passes > 2


def test_equal_mass_takes_two_passes_and_sums_one():
    blocks = _cut(_cases("two"), 500)
    metrics.log_loss(blocks)
    assert blocks.passes == 1
    metrics.ece(blocks, binning="equal_mass")
    assert blocks.passes == 3


def test_what_calibrators_predict_is_judged_in_blocks():
    p, y = _cases("two")
    calibrator = bc.Beta().fit(p, y)
    result = metrics.log_loss(calibrator.predict_proba(_cut((p, y), 700)))
    np.testing.assert_allclose(result, metrics.log_loss(calibrator.predict_proba(p), y), rtol=1e-12)


def test_arrays_of_dask_and_data_sets():
    array, pa = pytest.importorskip("dask.array"), pytest.importorskip("pyarrow")
    p, y = _cases("classes")
    whole = metrics.ece(p, y)
    lazy = array.from_array(p, chunks=(900, 2))
    np.testing.assert_allclose(
        metrics.ece(lazy, array.from_array(y, chunks=500)), whole, rtol=1e-12
    )
    # Columns named like the classes may be in any order.
    table = pa.table({"2": p[:, 2], "0": p[:, 0], "label": y, "3": p[:, 3], "1": p[:, 1]})
    np.testing.assert_allclose(metrics.ece(table, "label"), whole, rtol=1e-12)


def test_what_is_wrong_is_said():
    p, y = _cases("two", 100)
    p[70] = np.nan
    with pytest.raises(ValueError, match="block 1: probs must be finite"):
        metrics.log_loss(_cut((p, y), 50))
    with pytest.raises(ValueError, match="must hold labels"):
        metrics.log_loss(bc.Blocks([(p,)]))
    with pytest.raises(ValueError, match="y must be given"):
        metrics.log_loss(p)
    with pytest.raises(TypeError, match="needs all cases at once"):
        metrics.skce(_cut(_cases("two"), 500), None)
    with pytest.raises(TypeError, match="needs all cases at once"):
        metrics.canonical_ece(_cut(_cases("classes"), 500), None)


class TestIntervals:
    """Intervals from one pass over blocks, compared with intervals from all rows."""

    N = 120_000

    def _rows(self):
        (p, y), w = _cases("two", self.N), _weights("real", self.N)
        return p, p**1.2, y, w

    @pytest.mark.parametrize("name", ["log_loss", "debiased_ece"])
    def test_intervals_are_those_of_all_cases(self, name):
        p, _, y, _ = self._rows()
        blocks = _cut((p, y), 25_000)
        result, whole = metrics.interval(name, blocks), metrics.interval(name, p, y)
        np.testing.assert_allclose(result.value, whole.value, rtol=1e-10)
        # The groups differ, and the random part of their deviations is 1 / sqrt(2 * 1,024).
        assert result.standard_error == pytest.approx(whole.standard_error, rel=0.15)
        assert result.lower < whole.estimate < result.upper

    def test_squared_errors_in_bins_of_equal_width(self, monkeypatch):
        monkeypatch.setattr(measured_blocks, "MANY", 1000)
        p, y = _cases("two", 4000)
        how = {"binning": "equal_width", "norm": 2, "bins": 5}
        result = metrics.interval("debiased_ece", _cut((p, y), 900), **how)
        whole = metrics.interval("debiased_ece", p, y, **how)
        np.testing.assert_allclose(result.value, whole.value, rtol=1e-9)
        np.testing.assert_allclose(result.estimate, whole.estimate, rtol=1e-2)
        assert result.standard_error == pytest.approx(whole.standard_error, rel=0.3)

    @pytest.mark.parametrize(
        ("n", "name", "weighted"),
        _pairs([2, 300], ["log_loss", "accuracy", "ece", "debiased_ece", "smooth_ece"]),
    )
    def test_few_cases_have_the_intervals_of_memory(self, n, name, weighted):
        (p, y), weights = _cases("two", n), _weights(weighted, n)
        if weights is not None:
            weights[0] = 1
        rows = (p, y) if weights is None else (p, y, weights)
        result = metrics.interval(name, _cut(rows, n // 4 + 1), replicates=20)
        assert result == metrics.interval(name, p, y, weights=weights, replicates=20)

    @pytest.mark.parametrize("name", ["hamming_loss", "multilabel_ece"])
    def test_intervals_of_several_labels(self, monkeypatch, name):
        rng = np.random.default_rng(0)
        p, w = rng.random((1500, 3)), rng.integers(1, 4, 1500).astype(float)
        q, y = np.sqrt(p), (rng.random(p.shape) < p).astype(int)
        blocks = [_cut((probs, y, w), 400) for probs in (p, q)]
        options = {"replicates": 30}
        whole = metrics.interval(name, p, y, weights=w, **options)
        gap = metrics.difference(name, p, q, y, weights=w, **options)
        assert metrics.interval(name, blocks[0], **options) == whole
        assert metrics.difference(name, *blocks, **options) == gap
        monkeypatch.setattr(measured_blocks, "MANY", 1000)
        result = metrics.interval(name, blocks[0], **options)
        assert result.value == pytest.approx(whole.value, abs=2e-4)
        assert result.standard_error == pytest.approx(whole.standard_error, rel=0.4)
        assert metrics.difference(name, *blocks, **options).value < 0

    def test_differences_pair_the_cases(self):
        p, q, y, _ = self._rows()
        result = metrics.difference("brier_score", _cut((p, y), 25_000), _cut((q, y), 25_000))
        whole = metrics.difference("brier_score", p, q, y)
        np.testing.assert_allclose(result.value, whole.value, rtol=1e-10)
        assert result.standard_error == pytest.approx(whole.standard_error, rel=0.15)
        with pytest.raises(ValueError, match="cut into the same blocks"):
            metrics.difference("brier_score", _cut((p, y), 25_000), _cut((q, y), 24_000))

    @pytest.mark.slow
    def test_a_report_takes_one_pass_and_two_for_bins_of_equal_mass(self):
        p, q, y, w = self._rows()
        w[:60_000] = 1  # the first weights are integers
        blocks = {"raw": _cut((p, y, w), 25_000), "calibrated": _cut((q, y, w), 25_000)}
        result = metrics.report(blocks)
        whole = metrics.report({"raw": p, "calibrated": q}, y, weights=w)
        assert result.cases == self.N and blocks["raw"].passes <= 4
        for model in ("raw", "calibrated"):
            np.testing.assert_allclose(result.tests[model].statistic, whole.tests[model].statistic)
            for title, interval in whole.intervals[model].items():
                np.testing.assert_allclose(
                    result.intervals[model][title].value, interval.value, rtol=1e-9
                )
        with pytest.raises(TypeError, match="needs all cases at once"):
            metrics.report(blocks, metrics=["skce"])


def _pieces(*rows, size=500):
    return [tuple(values[i : i + size] for values in rows) for i in range(0, len(rows[0]), size)]


@pytest.mark.parametrize(
    "use",
    [metrics.log_loss, metrics.ece, metrics.report, bc.evaluate, bc.Auto().fit],
    ids=["log_loss", "ece", "report", "evaluate", "fit"],
)
def test_blocks_of_other_columns_or_other_kinds_of_labels_are_an_error(use):
    p, y = _cases("classes", 1000)
    three = np.full((500, 3), 1 / 3)
    with pytest.raises(ValueError, match="columns in all blocks, got (3|4) (after|and) (3|4)"):
        use(bc.Blocks([(p[:500], y[:500]), (three, y[500:] % 3)]))
    p, y = _cases("two", 1000)
    for pair in ((y[:500], y[500:].astype(str)), (y[:500].astype(str), y[500:])):
        for kind in (str, object):
            pair = [values.astype(kind) if values.dtype.kind == "U" else values for values in pair]
            blocks = bc.Blocks([(p[:500], pair[0]), (p[500:], pair[1])])
            with pytest.raises((TypeError, ValueError), match="y must (hold|be)"):
                use(blocks)


def test_names_of_classes_and_codes_do_not_mix():
    p, y = _cases("two", 1000)
    names = np.array(["no", "yes"])
    blocks = bc.Blocks([(p[:500], y[:500]), (p[500:], names[y[500:]])])
    with pytest.raises(TypeError, match="block 1: y must hold labels of one kind in all blocks"):
        metrics.log_loss(blocks, classes=["no", "yes"])


@pytest.mark.parametrize("label", [int, str])
def test_blocks_without_rows_or_of_zero_weight_add_nothing(label):
    p, y = _cases("two", 2000)
    y, weights = y.astype(label), np.ones(2000)
    some = _pieces(p, y, weights)
    nothing = [(p[:0], y[:0], weights[:0]), (p[:9], y[:9], np.zeros(9)), ([], [], [])]
    blocks = bc.Blocks([*nothing, *some[:2], *nothing, *some[2:], *nothing])
    for use in (metrics.log_loss, metrics.ece, lambda *x: metrics.ece(*x, binning="equal_mass")):
        assert use(blocks) == pytest.approx(use(p, y), rel=1e-12)
    result, wanted = (bc.evaluate(source, replicates=20) for source in (blocks, bc.Blocks(some)))
    assert result.report.intervals == wanted.report.intervals
    theta = [bc.Beta().fit(rows).state_["theta"] for rows in (blocks, bc.Blocks(some))]
    np.testing.assert_allclose(*theta, rtol=1e-9)
    for none in ([(p[:0], y[:0])], [(p, y, np.zeros(2000))]):
        for use in (metrics.log_loss, metrics.report, bc.evaluate, bc.Beta().fit):
            with pytest.raises(ValueError, match="must"):
                use(bc.Blocks(none))


def test_one_column_of_scores_of_a_data_frame_of_dask():
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    p, y = _cases("two", 1000)
    frame = frames.from_pandas(pandas.DataFrame({"p": p, "y": y, "w": y + 1.0}), npartitions=3)
    assert metrics.ece(frame, "y", weights="w") == pytest.approx(metrics.ece(p, y, weights=y + 1.0))
    result = bc.evaluate(frame, "y", weights="w", replicates=20).report.intervals["model"]
    wanted = bc.evaluate(p, y, weights=y + 1.0, replicates=20).report.intervals["model"]
    assert [interval.value for interval in result.values()] == [
        interval.value for interval in wanted.values()
    ]


@pytest.mark.parametrize(
    ("size", "name"),
    [
        *product([1e-300, 1e-160, 1e160, 1e300], ["log_loss", "debiased_ece"]),
        *((1e-160, "kde_ece"), (1e300, "kde_ece"), (1e-300, "ecce"), (1e160, "ecce")),
    ],
)
def test_weights_of_any_size(name, size):
    """Check weights whose squares underflow or overflow; large ones are counts, like integers."""
    p, y = _cases("two", 200)
    weights = np.random.default_rng(1).uniform(0.5, 2, 200) * size
    moderate = np.round(weights / size * 2.0**60) if size > 1 else weights / size
    blocks = _cut((p, y, weights), 80)
    value = getattr(metrics, name)(p, y, weights=moderate)
    assert getattr(metrics, name)(blocks) == pytest.approx(value, rel=1e-9)
    result, expected = (
        metrics.interval(name, blocks, replicates=20),
        metrics.interval(name, p, y, weights=moderate, replicates=20),
    )
    np.testing.assert_allclose(result[:5], expected[:5], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["log_loss", "ece", "kde_ece", "debiased_ece", "ecce"])
@pytest.mark.parametrize("first", [0.0, 1e-200, 1e200])
def test_weights_of_the_first_block_may_be_far_from_those_of_others(name, first):
    p, y = _cases("two", 300)
    for others in (1e-200, 1.0, 1e200):
        w = others * np.random.default_rng(2).uniform(size=300)
        w[:100] = first
        if first <= 0 < others or first * others != 1e200:
            value = getattr(metrics, name)(_cut((p, y, w), 100))
            assert value == pytest.approx(getattr(metrics, name)(p, y, weights=w), rel=1e-9)
    w[:100] = 1.0
    with pytest.raises(ValueError, match=r"block 1: weights must be below 2e\+75 if those of the"):
        getattr(metrics, name)(_cut((p, y, w), 100))
