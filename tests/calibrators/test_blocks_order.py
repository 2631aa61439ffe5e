"""Block fits of calibrators that sort or search scores, compared with fits to all rows."""

import numpy as np
import pytest
from sklearn.base import clone

import bayescal as bc
from bayescal.data.blocks import reader as _rows
from bayescal.data.blocks import survey as _survey
from bayescal.data.order import ranking as _ranking
from bayescal.data.order.cells import quantile_cells
from bayescal.data.order.ranking import Ranking, distinct_scores
from bayescal.data.rows import Rows
from tests.calibrators.block_rows import agree, cut

ORDERED = [
    bc.Isotonic(),
    bc.Isotonic(bounds="laplace"),
    bc.CenteredIsotonic(),
    bc.CenteredIsotonic(bounds="laplace"),
    bc.Histogram(15),
    bc.Histogram(15, "equal_mass"),
    bc.ScalingBinning(),
    bc.VennAbers(),
]
#: Calibrators that keep all distinct scores.
DISTINCT = [bc.CDFSpline(), bc.BBQ(), bc.Spline(knots=20, folds=3)]
KINDS = ["plain", "ties", "single", "skewed", "weights", "fractions", "zeros"]


def _rows_of(kind, n=6000, seed=0):
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-2 * rng.normal(size=n)))
    weights = np.ones(n)
    chance = p**1.5
    if kind == "ties":
        p = p.round(2)
    elif kind == "single":
        p = p.astype(np.float32)
    elif kind == "saturated":
        # Just below one, few numbers of single precision are left.
        p = (1 / (1 + np.exp(-8 * rng.normal(size=n)))).astype(np.float32)
        chance = 0.2 + 0.3 * p
    elif kind == "skewed":
        p = chance = 2e-2 * p**3
        p[:20] = 1 - p[:20]
    elif kind == "weights":
        weights = rng.integers(0, 4, n).astype(float)
    elif kind == "fractions":
        weights = rng.uniform(0.1, 3, n)
    elif kind == "zeros":
        p[rng.uniform(size=n) < 0.3] = 0
        p[:40] = 1
    return p, (rng.uniform(size=n) < chance).astype(int), weights


def _few_at_once(monkeypatch, most=500, cells=1 << 10):
    """Lower the limits, so that few rows are counted and split in cells as many rows would be."""
    monkeypatch.setattr(_ranking, "_MAX_DISTINCT", most)
    monkeypatch.setattr(_ranking, "_MAX_CELLS", cells)


def _points(rows):
    """Return the scores of the rows and other scores, at which predictions are compared."""
    p = np.unique(rows[0].astype(float))
    return np.concatenate([[0, 1], p, (p[1:] + p[:-1]) / 2, np.linspace(0, 1, 201)])


def _agree(calibrator, rows, blocks, atol):
    return agree(calibrator, rows, blocks, _points(rows), atol)


@pytest.mark.parametrize("kind", [*KINDS, "saturated"])
@pytest.mark.parametrize("calibrator", [*ORDERED, *DISTINCT], ids=str)
def test_rows_that_are_sorted_at_once(calibrator, kind):
    rows = _rows_of(kind, 1500)
    # One block is larger than the rest, and one is a single row.
    blocks = cut(rows, (100, 101, 900, 1000))
    # Splines iterate until the next step gains next to nothing.
    _agree(calibrator, rows, blocks, 1e-7 if isinstance(calibrator, bc.Spline) else 1e-9)
    if not isinstance(calibrator, bc.ScalingBinning):
        assert blocks.passes == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("calibrator", ORDERED, ids=str)
def test_rows_that_are_counted_in_cells(monkeypatch, calibrator, kind):
    rows = _rows_of(kind)
    _few_at_once(monkeypatch)
    # Where some cells remain unsorted, two values may differ by 1e-6.
    atol = 2e-6 if isinstance(calibrator, bc.VennAbers) else 1e-9
    fitted, whole = _agree(calibrator, rows, cut(rows, (500, 501, 2000, 5500)), atol)
    if isinstance(calibrator, bc.Isotonic):
        np.testing.assert_array_equal(fitted.thresholds_, whole.thresholds_)


@pytest.mark.parametrize("most", [60, 300, 2000])
def test_any_limit_leaves_isotonic_regression_exact(monkeypatch, most):
    rows = _rows_of("plain")
    whole = bc.Isotonic().fit(*rows)
    _few_at_once(monkeypatch, most, 1 << 8)
    for ends in (3000, 777):
        fitted = bc.Isotonic().fit(cut(rows, ends))
        np.testing.assert_array_equal(fitted.thresholds_, whole.thresholds_)
        np.testing.assert_allclose(fitted.values_, whole.values_, rtol=1e-12)


def test_few_passes_find_isotonic_regression(monkeypatch):
    rows = _rows_of("plain", 100_000)
    _few_at_once(monkeypatch, 1 << 14, 1 << 12)
    for calibrator, passes in ((bc.Isotonic(), 4), (bc.Histogram(15, "equal_mass"), 4)):
        blocks = cut(rows, 9000)
        fitted, whole = clone(calibrator).fit(blocks), clone(calibrator).fit(*rows)
        np.testing.assert_allclose(fitted.values_, whole.values_, rtol=1e-12)
        assert blocks.passes <= passes


def test_cells_are_divided_before_too_many_rows_are_sorted(monkeypatch):
    rows = _rows_of("ties")
    rows = (rows[0] + np.repeat([0, 1e-9], 3000), *rows[1:])
    _few_at_once(monkeypatch, 50, 16)
    ranking = Ranking(_survey.survey(cut(rows, (1000, 2000)), "scores", "order", None, True))
    assert ranking.groups.whole.all() and len(ranking.groups.weight) <= 16
    expected = distinct_scores(Rows(*rows), "Isotonic")
    ranking.refine(ranking.groups.whole)
    assert 16 < len(ranking.groups.weight) < len(expected.weight)
    inside = ranking.groups
    assert (inside.highest[:-1] < inside.lowest[1:]).all()
    for _ in range(20):
        if not ranking.groups.whole.any():
            break
        ranking.refine(ranking.groups.whole)
    for wanted, name in ((expected.lowest, "lowest"), (expected.weight, "weight")):
        np.testing.assert_array_equal(getattr(ranking.groups, name), wanted)
    np.testing.assert_array_equal(ranking.groups.positive, expected.positive)


@pytest.mark.parametrize("kind", ["even", "skewed", "huge", "tiny", "tied"])
def test_cells_never_decrease(kind):
    rng = np.random.default_rng(2)
    scores = {
        "even": rng.uniform(size=4000),
        "skewed": rng.beta(0.01, 3, 4000),
        "huge": rng.uniform(-1, 1, 4000) * 1.7e308,
        "tiny": rng.integers(0, 99, 4000) * 5e-324,
        "tied": np.append(np.repeat(0.1, 3999), 0.1 + 2**-55 * 8),
    }[kind]
    scores = np.sort(np.concatenate([scores, np.nextafter(scores, 9)]))
    cells = quantile_cells(scores[::7], scores[0], scores[-1], 500)
    assert cells is not None
    for _ in range(3):
        assigned = cells.assign(scores)
        assert (np.diff(assigned) >= 0).all()
        assert assigned.min() >= 0 and assigned.max() < cells.count
        divided = cells.divided(assigned[::50], 2 * cells.count)
        if divided is None:
            break
        finer, parent = divided
        np.testing.assert_array_equal(parent[finer.assign(scores)], assigned)
        cells = finer
    assert quantile_cells(scores, 1.0, 1.0, 500) is None


def test_what_holds_all_distinct_scores_says_so(monkeypatch):
    rows = _rows_of("plain", 2000)
    _few_at_once(monkeypatch)
    for calibrator in DISTINCT:
        with pytest.raises(ValueError, match=f"distinct values.*{type(calibrator).__name__}"):
            clone(calibrator).fit(cut(rows, 700))
    # Rounded scores have few distinct values, so the number of rows does not matter.
    rows = _rows_of("ties", 2000)
    _agree(bc.CDFSpline(), rows, cut(rows, 700), 1e-12)


def test_raw_scores_of_any_size():
    z, y, w = _rows_of("plain")
    for unit in (1e-300, 1e307):
        rows = (z - 0.4) * unit, y, w
        for calibrator in (bc.Isotonic(), bc.CenteredIsotonic(), bc.VennAbers()):
            agree(calibrator.set_params(inputs="scores"), rows, cut(rows, 999))


def test_sorting_some_of_the_rows_is_asked_for_once(monkeypatch):
    """Check that sorted cells stay sorted, also in memory."""
    monkeypatch.setattr(_ranking, "_MAX_SORTED_ROWS", 100)
    p, y, w = _rows_of("plain", 3000)
    ranking = Ranking(Rows(p, y, w))
    while ranking.groups.whole.any():
        before = int(ranking.groups.whole.sum())
        ranking.refine(np.arange(len(ranking.groups.weight)) % 3 == 0)
        if int(ranking.groups.whole.sum()) == before:
            ranking.refine(ranking.groups.whole)
    for result, expected in zip(
        ranking.groups, distinct_scores(Rows(p, y, w), "Isotonic"), strict=True
    ):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kind", ["plain", "ties", "weights", "fractions", "zeros"])
@pytest.mark.parametrize("n", [3000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_averaged_beta_and_auto(kind, n):
    rows = _rows_of(kind, n)
    blocks = cut(rows, (100, n // 2, n - 70))
    _agree(bc.AveragedBeta(), rows, blocks, 1e-9)
    # A sample holds all of few rows of positive weight. For many rows, an extra pass finds the ends
    # where all rows determine the stand-in for zeros.
    many = int((rows[2] > 0).sum()) > 32768
    assert blocks.passes == 1 + many * (1 + (kind in ("zeros", "ties")))
    fitted, whole = bc.Auto().fit(blocks), bc.Auto().fit(*rows)
    assert str(fitted.report_) == str(whole.report_)
    np.testing.assert_allclose(fitted.report_.log_loss, whole.report_.log_loss, rtol=1e-9)


def test_raw_scores_pass_through_platt_scaling_first():
    p, y, w = _rows_of("plain", 2000)
    rows = 3 * (p - 0.3), y, w
    blocks = cut(rows, 600)
    fitted, whole = agree(bc.Auto(inputs="scores"), rows, blocks)
    result, expected = fitted.report_, whole.report_
    assert (result.calibrator, result.rows) == (expected.calibrator, expected.rows)
    assert result.gain is None and result.uncalibrated is None
    # Fits without folds, which would use fewer rows.
    assert result.log_loss == pytest.approx(expected.log_loss, abs=expected.log_loss_error / 2)
    parts = fitted.predict_proba(blocks).each(lambda block: block.scores)
    np.testing.assert_allclose(np.concatenate([*parts]), fitted.predict_proba(rows[0]), atol=1e-14)


def test_several_labels_in_blocks_are_refused():
    p, y, _ = _rows_of("plain", 100)
    pair = np.stack([p, 1 - p], 1), np.stack([y, 1 - y], 1)
    with pytest.raises(ValueError, match="y must be one column in blocks"):
        bc.Auto().fit(bc.Blocks([pair]))


def _several(n=3000, k=3):
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(n, k))
    y = np.argmax(0.5 * z + rng.gumbel(size=z.shape) + 0.4 * np.arange(k), axis=1)
    p = np.exp(z)
    return p / p.sum(axis=1, keepdims=True), y, rng.integers(0, 3, n).astype(float)


@pytest.mark.parametrize(
    "options", [{"steps": 4}, {"decisions": 3, "steps": 3}, {"tolerance": 0.02}], ids=str
)
def test_decision_calibration(options):
    rows = _several()
    blocks = cut(rows, (10, 2000))
    # A search amplifies rounding errors, but does not jump.
    fitted, whole = agree(bc.Decision(random_state=0, **options), rows, blocks)
    np.testing.assert_allclose(fitted.briers_, whole.briers_, rtol=1e-12)
    np.testing.assert_allclose(fitted.violations_, whole.violations_, rtol=1e-9)
    assert fitted.status_ == whole.status_
    assert blocks.passes == len(whole.briers_) + 2


def test_decision_calibration_of_all_rows_is_found_on_some(monkeypatch):
    monkeypatch.setattr(_rows, "_SAMPLE", 500)
    rows = _several()
    p, y, w = rows
    fitted = bc.Decision(steps=3, random_state=0).fit(cut(rows, (1000, 1100)))
    whole = bc.Decision(steps=3, random_state=0).fit(*rows)
    share = w / w.sum()
    hot = np.eye(3)[y]
    moved = p.copy()
    steps = zip(
        *(fitted.state_[name] for name in ("directions", "offsets", "adjustments")), strict=True
    )
    for t, (directions, offsets, adjustments) in enumerate(steps):
        brier = share @ ((hot - moved) ** 2).sum(axis=1)
        np.testing.assert_allclose(fitted.briers_[t], brier, rtol=1e-12)
        logits = moved @ directions.T + offsets
        member = np.exp(logits - logits.max(axis=1, keepdims=True))
        member /= member.sum(axis=1, keepdims=True)
        means = member.T @ (share[:, None] * (hot - moved))
        np.testing.assert_allclose(adjustments, means / (share @ member)[:, None], atol=1e-12)
        np.testing.assert_allclose(fitted.violations_[t], np.linalg.norm(means, axis=1).sum())
        moved += member @ adjustments
    assert fitted.briers_[-1] < fitted.briers_[0]
    # Blocks gain most of what a search on all rows gains.
    assert whole.briers_[0] - fitted.briers_[-1] > 0.9 * (whole.briers_[0] - whole.briers_[-1])


def test_arrays_of_dask(monkeypatch):
    array = pytest.importorskip("dask.array")
    p, y, w = _rows_of("weights", 3000)
    _few_at_once(monkeypatch)
    whole = bc.Isotonic().fit(p, y, w)
    fitted = bc.Isotonic().fit(array.from_array(p, chunks=700), y, w)
    np.testing.assert_array_equal(fitted.thresholds_, whole.thresholds_)
