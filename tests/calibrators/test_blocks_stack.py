"""Stacks fitted to rows in blocks, compared with stacks fitted to all rows in memory."""

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone

import bayescal as bc
from bayescal.calibrators.multiclass import scale
from bayescal.calibrators.stack import calibrator, kernels
from bayescal.calibrators.stack.folds import fold_rows
from bayescal.data.blocks import reader as _rows
from tests.calibrators.block_rows import agree, cut

STACK = bc.StackedScaling(inputs="logits")
SINGLE = bc.StackedScaling(mode="single", inputs="logits")


@pytest.fixture
def small(monkeypatch):
    """Lower the limits, so that few rows are too many for a single fit and for a kernel."""
    monkeypatch.setattr(_rows, "_SAMPLE", 2000)
    monkeypatch.setattr(calibrator, "_MOST_FOR_KERNEL", 0)


@pytest.fixture
def double(monkeypatch):
    """Fit all rows in memory in double precision as well."""
    monkeypatch.setattr(kernels, "SMALL", np.inf)
    monkeypatch.setattr(scale, "_PART", 1 << 40)


def _several(k, n=None, seed=0):
    """Draw rows; those with positive weight have at least 32,768 scores in total."""
    n = n or -(-54_000 // k)
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(n, k))
    y = np.argmax(0.4 * z + rng.gumbel(size=(n, k)) + np.linspace(0, 1, k), axis=1)
    return z, y, rng.integers(0, 3, n).astype(float)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [3, 10])
def test_fit_is_that_of_all_rows(k, weighted, small, double):
    rows = _several(k) if weighted else _several(k, -(-33_000 // k))[:2]
    for size in (777, len(rows[1])):
        blocks = cut(rows, size)
        fitted, whole = agree(STACK, rows, blocks)
        assert fitted.member_names_ == whole.member_names_
        assert fitted.inverse_ == pytest.approx(whole.inverse_, rel=1e-10)
        for name in ("stack_weights_", "held_out_mean_losses_"):
            np.testing.assert_allclose(getattr(fitted, name), getattr(whole, name), atol=1e-8)
        assert 16 <= blocks.passes <= 24
        # These losses would be as long as the data.
        assert not hasattr(fitted, "held_out_losses_")


@pytest.mark.parametrize("k", [3, 10])
def test_single_precision_of_all_rows_is_what_differs(k, small):
    rows = _several(k)
    agree(STACK, rows, cut(rows, 1500), atol=1e-6)


@pytest.mark.parametrize("k", [3, 40])
def test_single(k, small, double):
    rows = _several(k, 3000 if k == 40 else None)
    blocks = cut(rows, 1000)
    fitted, _ = agree(SINGLE, rows, blocks)
    assert 4 <= blocks.passes <= 10
    assert not hasattr(fitted, "held_out_mean_losses_")


@pytest.mark.slow
@pytest.mark.parametrize("calibrator", [STACK, SINGLE], ids=str)
def test_very_many_classes(calibrator, small, double):
    rows = *_several(320, 4000)[:2], np.ones(4000)
    rows[1][:320] = np.arange(320)
    # Main directions are computed in single precision.
    fitted, whole = agree(calibrator, rows, cut(rows, 1500), atol=1e-7)
    np.testing.assert_allclose(fitted.stack_weights_, whole.stack_weights_, atol=1e-6)


def test_few_rows_are_fitted_at_once():
    rows = _several(4, 1500)
    whole = clone(STACK).fit(*rows)
    blocks = cut(rows, 400)
    fitted = clone(STACK).fit(blocks)
    for name, value in whole.state_.items():
        np.testing.assert_array_equal(fitted.state_[name], value)
    np.testing.assert_array_equal(fitted.held_out_losses_, whole.held_out_losses_)
    assert blocks.passes == 1


def test_few_rows_of_which_the_sample_lacks_some(monkeypatch):
    monkeypatch.setattr(_rows, "_SAMPLE", 1500)
    rows = _several(4, 1400)
    blocks = cut(rows, (*range(10, 300, 10),))
    agree(STACK, rows, blocks, atol=0)
    assert blocks.passes == 2


def test_classes_that_blocks_lack(small, double):
    z, y, w = _several(5)
    order = np.argsort(y, kind="stable")
    z, y, w = z[order], y[order], w[order]
    z = np.insert(z, 2, -1.0, axis=1)
    y = y + (y >= 2)  # label 2 never occurs
    calibrator = clone(STACK).set_params(classes=range(6))
    fitted, _ = agree(calibrator, (z, y, w), cut((z, y, w), 1500))
    assert 0 < fitted.predict_proba(z)[:, 2].max() < 1


def test_few_rows_that_differ_may_leave_folds_empty(small, double):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, 8))[rng.integers(0, 2, 5000)]
    y = np.arange(5000) % 2
    for rows in ((z, y), (np.zeros_like(z), 0 * y)):
        agree(clone(STACK).set_params(classes=range(8)), rows, cut(rows, 1500))


def test_neither_order_nor_repetition_matters(small, double):
    z, y, w = _several(6)
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(len(y)), w.astype(int)))
    agree(STACK, (cut((z, y, w), 1500),), cut((z[rows], y[rows]), 900), z)


def test_logits_of_any_size(small, double):
    z, y, w = _several(3)
    for unit in (1e-100, 1e290):
        rows = unit * z, y, w
        agree(STACK, rows, cut(rows, 5000))


def test_folds_of_many_rows_depend_on_what_rows_hold(small):
    z, y, w = _several(5)
    folds, some, counts = fold_rows(z, y, w, 4)
    assert np.bincount(folds.fold).min() > 0.8 * len(y) / 4
    assert counts.sum() == pytest.approx(w.sum())
    order = np.random.default_rng(0).permutation(len(y))
    moved, others, again = fold_rows(z[order], y[order], w[order], 4)
    np.testing.assert_array_equal(moved.fold, folds.fold[order])
    np.testing.assert_array_equal(order[others], some)
    np.testing.assert_allclose(again, counts)
    classes = np.random.default_rng(1).permutation(5)
    permuted, others, _ = fold_rows(z[:, classes], np.argsort(classes)[y], w, 4)
    np.testing.assert_array_equal(permuted.fold, folds.fold)
    np.testing.assert_array_equal(others, some)


@pytest.mark.parametrize("inputs", ["probs", "logits"])
def test_what_auto_expects(inputs, small, double):
    z, y, w = _several(4)
    if inputs == "probs":
        z = np.exp(z - z.max(axis=1, keepdims=True))
        z[z < 1e-3] = 0
        z /= z.sum(axis=1, keepdims=True)
    fitted, whole = agree(bc.Auto(inputs=inputs), (z, y, w), cut((z, y, w), 1500))
    assert fitted.report_.calibrator == "StackedScaling" and fitted.report_.helps
    assert (fitted.report_.rows, fitted.report_.classes) == (np.count_nonzero(w), 4)
    for name in ("log_loss", "log_loss_error", "uncalibrated", "gain", "gain_error"):
        result, expected = getattr(fitted.report_, name), getattr(whole.report_, name)
        # In blocks, standard errors count separately the parts of a row that is split between
        # folds.
        tolerance = 1e-5 if name.endswith("error") else 1e-6
        assert result == pytest.approx(expected, rel=tolerance)


def test_auto_of_few_rows_and_of_a_single_fit(small):
    z, y, w = _several(4, 1500)
    blocks, auto = cut((z, y, w), 400), bc.Auto(inputs="logits")
    whole, fitted = clone(auto).fit(z, y, w), clone(auto).fit(blocks)
    assert str(fitted.report_) == str(whole.report_)
    single = clone(auto).set_params(mode="single").fit(blocks)
    assert single.report_.log_loss is None and "none left out" in str(single.report_)


def test_dask_and_an_interrupted_fit(small, tmp_path):
    array = pytest.importorskip("dask.array")
    z, y, _ = _several(5)
    ours = clone(STACK).fit(cut((z, y), 1500))
    lazy = clone(STACK).fit(array.from_array(z, chunks=(1500, 5)), array.from_array(y, chunks=1500))
    np.testing.assert_allclose(lazy.predict_proba(z), ours.predict_proba(z), atol=1e-12)
    path, reads = tmp_path / "fit", []

    def make(limit):
        reads.append(1)
        if len(reads) == limit:
            raise KeyboardInterrupt
        return iter([(z[:4000], y[:4000]), (z[4000:], y[4000:])])

    with pytest.raises(KeyboardInterrupt):
        clone(STACK).fit(bc.Blocks(partial(make, 8), checkpoint=path))
    reads.clear()
    blocks = bc.Blocks(partial(make, 0), checkpoint=path)
    resumed = clone(STACK).fit(blocks)
    # Seven passes are read from the checkpoint, and one block is read first to inspect it.
    assert len(reads) == blocks.passes - 7 + 1 and not path.exists()
    np.testing.assert_allclose(resumed.predict_proba(z), ours.predict_proba(z), atol=1e-12)
