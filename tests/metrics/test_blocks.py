"""Metrics of predictions that come in blocks: those of all cases at once."""

import numpy as np
import pytest

import bayescal as bc
from bayescal import metrics
from bayescal.metrics import _mass_blocks

CHOICES = [
    ("log_loss", {}),
    ("log_loss", {"eps": 1e-3}),
    ("brier_score", {}),
    ("accuracy", {}),
    ("ece", {}),
    ("ece", {"kind": "classwise", "bins": 7}),
    ("ece", {"binning": "equal_mass"}),
    ("ece", {"binning": "equal_mass", "kind": "classwise", "norm": 2}),
    ("ece", {"binning": "equal_mass", "kind": "top_label", "bins": 4}),
    ("debiased_ece", {}),
    ("debiased_ece", {"binning": "equal_width"}),
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
    return bc.Blocks([tuple(own[i : i + size] for own in rows) for i in range(0, n, size)])


@pytest.mark.parametrize("weighted", ["none", "counts", "real"])
@pytest.mark.parametrize("kind", ["two", "ties", "rare", "certain", "classes"])
@pytest.mark.parametrize(("name", "options"), CHOICES, ids=lambda own: str(own))
def test_blocks_give_what_all_cases_do(name, options, kind, weighted):
    (p, y), weights = _cases(kind), _weights(weighted)
    metric = getattr(metrics, name)
    if options.get("kind") in ("classwise", "top_label") and p.ndim == 1:
        p = np.stack([1 - p, p], axis=1)
    whole = metric(p, y, weights=weights, **options)
    rows = (p, y) if weights is None else (p, y, weights)
    for size in (333, 3999):
        np.testing.assert_allclose(
            metric(_cut(rows, size), **options), whole, rtol=1e-10, atol=1e-14
        )


@pytest.mark.parametrize("kind", ["two", "ties", "rare", "certain", "classes"])
def test_cells_with_many_cases_are_divided(kind, monkeypatch):
    monkeypatch.setattr(_mass_blocks, "_ROWS", 3)
    monkeypatch.setattr(_mass_blocks, "_SHIFT", 58)
    p, y = _cases(kind)
    blocks = _cut((p, y), 999)
    found = metrics.ece(blocks, binning="equal_mass")
    whole = metrics.ece(p, y, binning="equal_mass")
    np.testing.assert_allclose(found, whole, rtol=1e-10, atol=1e-14)
    assert blocks.passes > 2


def test_equal_mass_takes_two_passes_and_sums_one():
    blocks = _cut(_cases("two"), 500)
    metrics.log_loss(blocks)
    assert blocks.passes == 1
    metrics.ece(blocks, binning="equal_mass")
    assert blocks.passes == 3


def test_many_labels():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=(500, 3))
    y = (rng.uniform(size=p.shape) < p**2).astype(int)
    for metric, options in (
        (metrics.multilabel_ece, {}),
        (metrics.multilabel_ece, {"binning": "equal_mass"}),
        (metrics.hamming_loss, {}),
    ):
        whole = metric(p, y, **options)
        np.testing.assert_allclose(metric(_cut((p, y), 120), **options), whole, rtol=1e-12)


def test_what_calibrators_predict_is_judged_in_blocks():
    p, y = _cases("two")
    calibrator = bc.Beta().fit(p, y)
    found = metrics.log_loss(calibrator.predict_proba(_cut((p, y), 700)))
    np.testing.assert_allclose(found, metrics.log_loss(calibrator.predict_proba(p), y), rtol=1e-12)


def test_arrays_of_dask_and_data_sets():
    array, pa = pytest.importorskip("dask.array"), pytest.importorskip("pyarrow")
    p, y = _cases("classes")
    whole = metrics.ece(p, y)
    lazy = array.from_array(p, chunks=(900, 2))
    np.testing.assert_allclose(
        metrics.ece(lazy, array.from_array(y, chunks=500)), whole, rtol=1e-12
    )
    # Columns named like the classes may stand in any order.
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
    """From one pass over blocks, as from all cases."""

    N = 120_000

    def _rows(self):
        (p, y), w = _cases("two", self.N), _weights("real", self.N)
        return p, p**1.2, y, w

    @pytest.mark.parametrize("name", ["log_loss", "accuracy", "ece", "debiased_ece"])
    def test_intervals_are_those_of_all_cases(self, name):
        p, _, y, _ = self._rows()
        blocks = _cut((p, y), 25_000)
        found, whole = metrics.interval(name, blocks), metrics.interval(name, p, y)
        np.testing.assert_allclose(found.value, whole.value, rtol=1e-10)
        # Groups of other cases: what is random of their deviations is 1 / sqrt(2 * 1,024).
        assert found.standard_error == pytest.approx(whole.standard_error, rel=0.15)
        assert found.lower < whole.estimate < found.upper

    @pytest.mark.parametrize("weighted", ["none", "counts", "real"])
    @pytest.mark.parametrize("name", ["log_loss", "accuracy", "ece", "debiased_ece", "smooth_ece"])
    @pytest.mark.parametrize("n", [2, 12, 300])
    def test_few_cases_have_the_intervals_of_memory(self, n, name, weighted):
        (p, y), weights = _cases("two", n), _weights(weighted, n)
        if weights is not None:
            weights[0] = 1
        rows = (p, y) if weights is None else (p, y, weights)
        found = metrics.interval(name, _cut(rows, 5), replicates=50)
        assert found == metrics.interval(name, p, y, weights=weights, replicates=50)

    def test_differences_pair_the_cases(self):
        p, q, y, _ = self._rows()
        found = metrics.difference("brier_score", _cut((p, y), 25_000), _cut((q, y), 25_000))
        whole = metrics.difference("brier_score", p, q, y)
        np.testing.assert_allclose(found.value, whole.value, rtol=1e-10)
        assert found.standard_error == pytest.approx(whole.standard_error, rel=0.15)
        with pytest.raises(ValueError, match="cut into blocks alike"):
            metrics.difference("brier_score", _cut((p, y), 25_000), _cut((q, y), 24_000))

    def test_a_report_takes_one_pass_and_two_for_bins_of_equal_mass(self):
        p, q, y, w = self._rows()
        w[:60_000] = 1  # whole weights come first
        blocks = {"raw": _cut((p, y, w), 25_000), "calibrated": _cut((q, y, w), 25_000)}
        found = metrics.report(blocks)
        whole = metrics.report({"raw": p, "calibrated": q}, y, weights=w)
        assert found.cases == self.N and blocks["raw"].passes <= 4
        for model in ("raw", "calibrated"):
            np.testing.assert_allclose(found.tests[model].statistic, whole.tests[model].statistic)
            for title, own in whole.intervals[model].items():
                np.testing.assert_allclose(
                    found.intervals[model][title].value, own.value, rtol=1e-9
                )
        with pytest.raises(TypeError, match="needs all cases at once"):
            metrics.report(blocks, metrics=["skce"])
