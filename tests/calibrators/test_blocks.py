"""Fits to rows in blocks, compared with fits to all rows in memory."""

import re
import warnings
from inspect import Parameter, signature
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB

import bayescal as bc
from bayescal._core.minimization.optimize import Status
from bayescal.calibrators.binary.averaged_beta import points as _points
from bayescal.data.blocks import reader as _rows
from bayescal.data.blocks import survey as _survey
from bayescal.regression import rows as _regressions
from tests.calibrators.block_rows import agree, cut
from tests.calibrators.cases import all_calibrators

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"

BINARY = [
    bc.Temperature(),
    bc.Logistic(),
    bc.Logistic(smoothing="platt"),
    bc.Logistic(smoothing=0.05),
    bc.Beta(),
    bc.Beta(2),
    bc.Beta(1),
    bc.Quadratic(),
]
SEVERAL = [
    bc.Temperature(),
    bc.Vector(),
    bc.Matrix(),
    bc.Matrix(off_diagonal=0.1, intercept=0.1),
    bc.Dirichlet(),
    bc.StructuredVector(),
    bc.StructuredMatrix(),
]


def _binary(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=n)
    p = 1 / (1 + np.exp(-z))
    return p, (rng.uniform(size=n) < p**1.5).astype(int), rng.integers(0, 3, n).astype(float)


def _several(n=6000, k=4, seed=0):
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(n, k))
    y = np.argmax(0.4 * z + rng.gumbel(size=(n, k)) + 0.3 * np.arange(k), axis=1)
    return z, y, rng.integers(0, 3, n).astype(float)


@pytest.mark.parametrize("calibrator", BINARY, ids=str)
def test_two_classes(calibrator):
    rows = _binary()
    at = np.concatenate([[0, 1], np.linspace(0.001, 0.999, 99)])
    fitted, whole = agree(calibrator, rows, cut(rows, 1777), at)
    assert fitted.status_ == whole.status_
    np.testing.assert_allclose(fitted.objective_, whole.objective_, rtol=1e-12)


@pytest.mark.parametrize("calibrator", SEVERAL, ids=str)
def test_several_classes(calibrator):
    rows = _several()
    calibrator = clone(calibrator).set_params(inputs="logits")
    # In-memory fits iterate until the next step gains next to nothing.
    fitted, whole = agree(calibrator, rows, cut(rows, 1777), atol=5e-6)
    assert fitted.objective_ <= whole.objective_ * (1 + 1e-12)
    assert fitted.status_ == whole.status_


@pytest.mark.parametrize("calibrator", [bc.Logistic(), bc.Temperature()])
def test_four_passes_find_temperature_and_logistic(calibrator):
    p, y, w = _binary(200_000)
    blocks = cut((np.log(p) - np.log1p(-p), y, w), 30_000)
    clone(calibrator).set_params(inputs="logits").fit(blocks)
    assert blocks.passes <= 4


@pytest.mark.parametrize("parameters", [1, 2, 3])
def test_three_passes_find_beta_of_more_rows_than_the_sample(monkeypatch, parameters):
    monkeypatch.setattr(_rows, "_SAMPLE", 3000)
    rows = _binary(60_000)
    whole, blocks = bc.Beta(parameters).fit(*rows), cut(rows, 7000)
    fitted = bc.Beta(parameters).fit(blocks)
    assert blocks.passes == 3
    for name in ("a_", "b_", "c_"):
        assert getattr(fitted, name) == pytest.approx(getattr(whole, name), abs=1e-9)


@pytest.mark.parametrize(
    ("calibrator", "seed"), [(bc.Matrix, 22), (bc.Matrix, 33), (bc.Vector, 50)]
)
def test_labels_that_are_separable_in_the_sample_only(monkeypatch, calibrator, seed):
    monkeypatch.setattr(_rows, "_SAMPLE", 30)
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(90, 3))
    rows = z, (z + 0.5 * rng.gumbel(size=z.shape)).argmax(axis=1)
    fitted, whole = agree(calibrator(inputs="logits"), rows, cut(rows, 22), atol=5e-6)
    assert fitted.status_ == whole.status_ == "converged"


@pytest.mark.parametrize("calibrator", [bc.Vector, bc.Matrix])
@pytest.mark.parametrize("inputs", ["logits", "probs"])
def test_a_sample_in_which_all_predictions_are_right(monkeypatch, calibrator, inputs):
    """Check a start from the temperature of all rows: that of the sample saturates them."""
    monkeypatch.setattr(_rows, "_SAMPLE", 200)
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 2000)
    z = 15 * np.eye(3)[y] + rng.normal(size=(2000, 3))
    wrong = rng.choice(2000, 7, replace=False)
    y[wrong] = (y[wrong] + 1 + np.arange(7) % 2) % 3
    scores = z if inputs == "logits" else softmax(z, axis=1)
    blocks = cut((scores, y), 250)
    fitted, whole = agree(calibrator(inputs=inputs), (scores, y), blocks, atol=5e-6)
    assert fitted.status_ == whole.status_ == "converged"


@pytest.mark.parametrize("seed", [59, 162])
def test_all_rows_tell_whether_there_is_an_optimum(monkeypatch, seed):
    """Check a sample with so little curvature that a step to its optimum would be long."""
    monkeypatch.setattr(_rows, "_SAMPLE", 20)
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(60, 2))
    rows = z, (z + 0.5 * rng.gumbel(size=z.shape)).argmax(axis=1)
    fitted, whole = agree(bc.Vector(inputs="logits"), rows, cut(rows, 15), atol=5e-6)
    assert fitted.status_ == whole.status_ == "converged"


def test_a_sample_without_loss_is_no_start(monkeypatch):
    """Check a fit to a sample that ends far out, and does not notice that nothing is best."""
    fit = _regressions.fit_softmax_on_host

    def fit_far(sample, penalty, begin):
        minimum, prepared = fit(sample, penalty, begin)
        far = np.linspace(-1e5, 2e5, len(begin))
        return minimum._replace(x=far, value=np.zeros(()), status=Status.CONVERGED), prepared

    monkeypatch.setattr(_regressions, "fit_softmax_on_host", fit_far)
    z, y, w = _several(600)
    agree(bc.Vector(inputs="logits"), (z, y, w), cut((z, y, w), 200), atol=5e-6)


@pytest.mark.parametrize("calibrator", [*BINARY[1:5], bc.Quadratic()], ids=str)
def test_equal_scores_show_no_slope(monkeypatch, calibrator):
    """Check scores that are equal, also if only up to rounding, and in the sample alone."""
    p, y = np.full(300, 0.3), np.arange(300) % 4 == 0
    near = np.where(np.arange(300) == 7, 0.1 + 0.2, p)
    at = [0.0, 0.1, 0.9]
    for scores in (p, near):
        expected = clone(calibrator).fit(scores, y).predict_proba(at)
        assert np.ptp(expected[:, 1]) == 0
        for sample in (1 << 18, 30):
            monkeypatch.setattr(_rows, "_SAMPLE", sample)
            fitted = clone(calibrator).fit(cut((scores, y), 100))
            np.testing.assert_allclose(fitted.predict_proba(at), expected, atol=1e-12)
    rng = np.random.default_rng(0)
    varied = np.where(np.arange(300) < 20, rng.choice([0.1, 0.5, 0.6], 300), p)
    agree(calibrator, (varied, y), cut((varied, y), 100), at, atol=1e-6)


def test_draws_for_a_sample_are_as_many_as_wanted_and_even():
    rng, counts = np.random.default_rng(0), np.zeros(1000)
    for _ in range(400):
        draws, places = _survey._drawn(rng, 1000, 0.25)
        assert len(draws) == len(np.unique(places)) and draws.max() < 0.25
        counts[places] += 1
    # Binomial counts of mean 100 and variance 75.
    assert counts.mean() == pytest.approx(100, abs=1.5)
    assert 60 < counts.var() < 90 and np.abs(counts - 100).max() < 45
    assert len(_survey._drawn(rng, 1000, 1.0)[1]) == 1000


@pytest.mark.parametrize("size", [1, 7])
def test_how_rows_are_cut_does_not_matter(size):
    rows = tuple(values[:50] for values in _binary())
    agree(bc.Beta(), rows, cut(rows, size))


def test_the_sample_stays_small_whatever_the_number_of_blocks(monkeypatch):
    held, join = [], _survey._join

    def watched(first, second):
        result = join(first, second)
        held.append(
            sum(len(values) for name, values in result.items() if name.startswith("draws/"))
        )
        return result

    rows = _binary(6000)
    whole = _survey.survey(cut(rows, 100), "probs", "log_odds", None, True)
    monkeypatch.setattr(_rows, "_SAMPLE", 150)
    monkeypatch.setattr(_survey, "_join", watched)
    result = _survey.survey(cut(rows, 100), "probs", "log_odds", None, True).sample
    assert max(held) <= 300 and 110 < len(result.y) <= 150
    assert np.isin(result.scores, whole.sample.scores).all()
    monkeypatch.setattr(_survey, "_thinned", lambda rows, columns: rows)
    expected = _survey.survey(cut(rows, 100), "probs", "log_odds", None, True).sample
    for actual, wanted in zip(result, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


def test_a_sample_of_blocks_of_different_sizes_is_even(monkeypatch):
    monkeypatch.setattr(_rows, "_SAMPLE", 2000)
    p, y = np.repeat([0.2, 0.8], [2000, 50_000]), np.arange(52_000) % 8 > 0
    blocks = cut((p, y), (*range(50, 2001, 50), *range(7000, 52_000, 5000)))
    sample = _survey.survey(blocks, "probs", "log_odds", None, True).sample
    assert np.mean(sample.scores < 0) == pytest.approx(2000 / 52_000, abs=0.03)
    assert 300 < len(sample.y) <= 2000
    report = bc.Beta().fit(blocks).report_
    assert report.uncalibrated == pytest.approx(bc.metrics.log_loss(p, y), abs=0.1)


def test_zeros_of_all_blocks_count_alike():
    p, y, _ = _binary(1000)
    p[:10], p[990:] = 0, 1
    fitted, whole = agree(bc.Beta(), (p, y), cut((p, y), 100))
    np.testing.assert_array_equal(fitted.least_probabilities_, whole.least_probabilities_)


def test_classes_that_blocks_or_all_of_them_lack():
    z, y, w = _several()
    order = np.argsort(y, kind="stable")
    rows = z[order], np.array(list("abcd"))[y[order]], w[order]
    calibrator = bc.Vector(inputs="logits")
    fitted, whole = agree(calibrator, rows, cut(rows, 1777), atol=5e-6)
    np.testing.assert_array_equal(fitted.classes_, whole.classes_)
    few = y < 3
    rows = z[few], y[few], w[few]
    agree(calibrator.set_params(classes=range(4)), rows, cut(rows, 1777), z, atol=5e-6)


def test_columns_named_like_classes_may_stand_in_any_order():
    pd = pytest.importorskip("pandas")
    z, y, w = _several()
    labels = np.array(list("abcd"))[y]
    rows = pd.DataFrame(z[:, [2, 0, 3, 1]], columns=list("cadb")), labels, w
    fitted, whole = agree(bc.Vector(inputs="logits"), rows, cut(rows, 3000), atol=5e-6)
    np.testing.assert_allclose(fitted.coef_, whole.coef_, atol=1e-5)


def test_one_column_of_a_table_is_a_feature_and_a_series_is_none():
    pa = pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    p, y, _ = _binary(500)
    labels = np.array(["no", "yes"])[y]
    frame = pd.DataFrame({"p": p, "y": labels})
    lazy = frames.from_pandas(frame, npartitions=3)
    new = frame[["p"]][:20]

    def parts():
        yield from ((frame[["p"]][a : a + 100], labels[a : a + 100]) for a in range(0, 500, 100))

    whole = bc.Beta().fit(frame[["p"]], labels)
    for given in ((pa.table(frame), "y"), (lazy, "y"), (bc.Blocks(parts),)):
        fitted = bc.Beta().fit(*given)
        assert [*fitted.feature_names_in_] == [*whole.feature_names_in_] == ["p"]
        np.testing.assert_allclose(fitted.predict_proba(new), whole.predict_proba(new), atol=1e-9)
    fitted = bc.Beta().fit(lazy["p"], lazy["y"])
    assert not hasattr(fitted, "feature_names_in_")
    np.testing.assert_allclose(
        fitted.predict_proba(p), whole.predict_proba(frame[["p"]]), atol=1e-9
    )


def test_weights_and_logits_of_any_size():
    p, y, w = _binary(2000)
    for factor in (1e-250, 1e250):
        rows = p, y, w * factor
        agree(bc.Beta(), rows, cut(rows, 300), atol=1e-8)
    z, y, _ = _several(500)
    for unit in (1e-200, 1e200):
        rows = z * unit, y
        agree(bc.Temperature(inputs="logits"), rows, cut(rows, 90), atol=1e-8)


@pytest.mark.parametrize("scale", [1e-6, 1.0])
@pytest.mark.parametrize("calibrator", [bc.Logistic(), bc.Beta(), bc.Quadratic()])
def test_separable_labels_are_said_to_be(calibrator, scale):
    """Check the warning for separable labels, also where columns are nearly dependent."""
    z = np.random.default_rng(0).normal(size=4000) * scale
    y = (z > 0).astype(int)
    calibrator.set_params(inputs="logits")
    with pytest.warns(match="separate"):
        fitted = calibrator.fit(cut((z, y), 1000))
    assert fitted.status_ == "unbounded"
    assert bc.metrics.log_loss(fitted.predict_proba(z), y) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("calibrator", [bc.Logistic(), bc.Beta(), bc.Quadratic()])
def test_a_score_that_few_rows_have(calibrator):
    """Check that predictions equal proportions when there are as many coefficients as scores."""
    rng = np.random.default_rng(0)
    p = np.full(400_000, 0.3)
    rare = rng.permutation(len(p))[:12]
    p[rare] = 0.9
    y = (rng.random(len(p)) < p).astype(int)
    y[rare] = np.arange(12) < 9
    for fitted in (clone(calibrator).fit(p, y), clone(calibrator).fit(cut((p, y), 50_000))):
        expected = y[p < 0.5].mean(), 0.75
        np.testing.assert_allclose(fitted.predict_proba([0.3, 0.9])[:, 1], expected, atol=1e-8)
        assert fitted.status_ == "converged"


def test_predictions_are_blocks_again():
    p, y, w = _binary()
    calibrator = bc.Beta().fit(p, y, w)
    result = calibrator.predict_proba(cut((p, y, w), 1777))
    parts = [*result.each(lambda block: block)]
    probs = np.concatenate([part.scores for part in parts])
    np.testing.assert_allclose(probs, calibrator.predict_proba(p), rtol=1e-15)
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), y)
    np.testing.assert_array_equal(np.concatenate([part.weights for part in parts]), w)


def test_arrays_of_dask_give_arrays_of_dask():
    array = pytest.importorskip("dask.array")
    z, y, _ = _several()
    lazy = array.from_array(z, chunks=(1000, 3))
    calibrator = bc.Vector(inputs="logits").fit(lazy, array.from_array(y, chunks=700))
    whole = bc.Vector(inputs="logits").fit(z, y)
    result = calibrator.predict_proba(lazy)
    assert isinstance(result, array.Array) and result.shape == z.shape
    np.testing.assert_allclose(result.compute(), whole.predict_proba(z), atol=5e-6)


def test_mapped_files_are_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("bayescal.data.blocks.stream._IN_MEMORY", 0)
    p, y, w = _binary()
    np.save(tmp_path / "p.npy", p)
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r")
    whole, fitted = bc.Beta().fit(p, y, w), bc.Beta().fit(mapped, y, w)
    result = fitted.predict_proba(mapped)
    assert type(result) is np.ndarray
    np.testing.assert_allclose(result, whole.predict_proba(p), atol=1e-9)
    # A calibrator that needs all rows at once receives them.
    bc.KNN(k=20).fit(mapped, y)


def test_rows_of_weight_zero_may_hold_anything():
    p, y, w = _binary(100)
    unused = np.where(w == 0, np.nan, p)
    assert np.isnan(unused).any()
    expected = bc.Beta().fit(p, y, w).predict_proba(p)
    for rows in ((unused, y, w), (cut((unused, y, w), 40),)):
        np.testing.assert_allclose(bc.Beta().fit(*rows).predict_proba(p), expected, atol=1e-9)


def test_what_is_wrong_is_said_with_the_block():
    p, y, w = _binary(100)
    for position, wrong, message in (
        (0, np.nan, "finite"),
        (0, 1.5, "lie in"),
        (2, -1, "negative"),
    ):
        rows = [np.array(values, float) for values in (p, y, w + 1)]
        rows[position][80] = wrong
        with pytest.raises(ValueError, match=f"block 2: .*{message}"):
            bc.Beta().fit(cut(rows, 40))
    with pytest.raises(ValueError, match="one class"):
        bc.Beta().fit(cut((p, np.zeros(100)), 40))
    with pytest.raises(ValueError, match="as many columns in all blocks"):
        bc.Temperature().fit(bc.Blocks([(p, y), (np.stack([1 - p, p], 1), y)]))
    with pytest.raises(ValueError, match="y to be passed"):
        bc.Beta().fit(bc.Blocks([(p,)]))


@pytest.mark.parametrize(
    "estimator",
    [
        bc.KNN(),
        bc.Beta(inference="laplace"),
        bc.Matrix(off_diagonal="cv"),
        bc.Decision(steps="cv"),
        bc.StackedScaling(inference="laplace"),
        bc.LogisticRegression(),
        bc.CalibratedClassifier(GaussianNB()),
        bc.Multicalibration(),
        bc.PartialPooling(),
        bc.MultiLabel(bc.Logistic()),
    ],
    ids=str,
)
def test_what_needs_all_rows_is_refused_by_name(estimator):
    p, y, w = _binary(100)
    blocks = cut((np.stack([1 - p, p], 1), y, w), 50)
    # Some require labels, which blocks contain.
    required = signature(type(estimator).fit).parameters["y"].default is Parameter.empty
    for given in [(blocks,), (blocks, y)][: 1 + required]:
        with pytest.raises(
            TypeError, match=f"^{type(estimator).__name__}.* needs all rows at once, so it cannot"
        ):
            estimator.fit(*given)


def test_an_interrupted_fit_goes_on(tmp_path):
    rows, path = _binary(), tmp_path / "fit"
    parts = [tuple(values[i : i + 1000] for values in rows) for i in range(0, 6000, 1000)]
    reads = 0

    def make():
        nonlocal reads
        reads += 1
        for number, part in enumerate(parts):
            if reads == 2 and number == 3:
                raise KeyboardInterrupt
            yield part

    with pytest.raises(KeyboardInterrupt):
        bc.Beta().fit(bc.Blocks(make, checkpoint=path))
    assert path.exists()
    theta = bc.Beta().fit(bc.Blocks(parts, checkpoint=path)).state_["theta"]
    np.testing.assert_array_equal(theta, bc.Beta().fit(bc.Blocks(parts)).state_["theta"])
    assert not path.exists()


def test_many_parameters_take_products_with_the_hessian():
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(4000, 30))
    y = np.argmax(0.5 * z + rng.gumbel(size=z.shape), axis=1)
    calibrator = bc.Dirichlet(off_diagonal=0.5, intercept=0.5, inputs="logits")
    fitted, whole = agree(calibrator, (z, y), cut((z, y), 1500), atol=1e-6)
    np.testing.assert_allclose(fitted.objective_, whole.objective_, rtol=1e-10)


def test_labels_of_a_block_may_be_mostly_different():
    """Check many classes with few rows, where scikit-learn would warn about continuous targets."""
    z = _several(900, 40)[0]
    y = np.argmax(z + np.random.default_rng(1).gumbel(size=z.shape), axis=1)
    for labels in (y, np.array([f"class {number:02}" for number in range(40)])[y]):
        rows = z, labels
        agree(bc.Temperature(inputs="logits"), rows, cut(rows, 45), atol=1e-8)


@pytest.mark.parametrize(("scale", "separable"), [(1e-100, False), (1.0, True), (1e40, False)])
def test_raw_scores_of_any_size(scale, separable):
    rng = np.random.default_rng(0)
    z = rng.choice([-1.0, -0.5, 0.5, 1.0], 300)
    y = (z > 0) if separable else rng.random(300) < 1 / (1 + np.exp(-z))
    rows = z * scale, y.astype(int)
    blocks = cut(rows, 100)
    how = {"inputs": "scores"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # separable rows have no finite optimum
        result, expected = bc.Logistic(**how).fit(blocks), bc.Logistic(**how).fit(*rows)
    assert result.status_ == expected.status_
    p = [fitted.predict_proba(rows[0])[:, 1] for fitted in (result, expected)]
    np.testing.assert_allclose(*p, atol=1e-6 if not separable else 1e-3)
    if not separable:
        # Two pairs of scores: at the optimum, predictions match the labels in mean and products.
        assert abs((p[0] - y).sum()) < 1e-5 and abs((p[0] - y) @ z) < 1e-5


def test_ends_of_scores_are_known_before_a_pass_but_for_zeros(monkeypatch):
    """Check that bins reach from the smallest to the largest score, as they do in memory."""
    monkeypatch.setattr(_points, "MAX_SORTED_ROWS", 100)
    rng = np.random.default_rng(0)
    p = rng.random(400)
    y = (rng.random(400) < p**2).astype(int)
    for zeros in (0, 3):
        p[:zeros] = 0.0
        y[:zeros] = 0
        agree(bc.AveragedBeta(), (p, y), cut((p, y), 100), np.linspace(0, 1, 41), atol=1e-6)


def test_the_guide_names_all_that_need_all_rows_in_memory():
    result = re.search(
        r"\n- (`KNN`.*?);\n- `inference=.*?, except of `(\w+)`", GUIDE.read_text(), re.S
    )
    assert result is not None
    named = set(re.findall(r"`(\w+)`", result[1]))
    for cls in all_calibrators():
        assert (cls.__name__ in named) == ("blocks" not in cls().sources), cls
    posterior = [cls for cls in all_calibrators() if "inference" in cls().get_params()]
    kept = {cls.__name__ for cls in posterior if "blocks" in cls(inference="laplace").sources}
    assert kept == {result[2]}
