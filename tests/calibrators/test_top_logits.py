"""Very many classes: labels as indices, truncated logits, and no copies of all logits."""

import tracemalloc
from functools import partial
from typing import Any, NamedTuple

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import bayescal as bc
from bayescal._core.execution.precision import float64
from bayescal.data.labels import read_labels
from tests.calibrators.cases import DEFAULTS, Array, Case, each

BOTH = pytest.mark.parametrize("cls", [bc.Temperature, bc.Vector])


class Data(NamedTuple):
    """Full logits (n, k), labels (n,) and weights (n,)."""

    z: Array
    y: Array
    w: Array


def make_logits(n: int = 3000, k: int = 12, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(n, k))
    y = np.argmax(0.5 * z + 0.1 * np.arange(k) + rng.gumbel(size=(n, k)), axis=1)
    return Data(z, y, rng.integers(0, 3, n).astype(float))


def truncate(z: Array, m: int) -> tuple[Array, Array, Array]:
    """Return indices and values of the m largest logits, and the log-sum-exp of the rest."""
    order = np.argsort(-z, axis=1)
    ordered = np.take_along_axis(z, order, axis=1)
    none = np.full(len(z), -np.inf)
    rest = logsumexp(ordered[:, m:], axis=1) if m < z.shape[1] else none
    return order[:, :m], ordered[:, :m], rest


def fill_rest(scores: tuple[Array, Array, Array], k: int) -> Array:
    """Return full logits whose remaining classes have equal logits."""
    indices, logits, rest = scores
    z = np.repeat(rest[:, None] - np.log(k - logits.shape[1]), k, axis=1)
    np.put_along_axis(z, indices, logits, axis=1)
    return z


def split_into_blocks(scores: Any, *beside: Array, size: int = 700) -> bc.Blocks:
    parts = [slice(i, i + size) for i in range(0, len(scores[1]), size)]
    return bc.Blocks([(tuple(s[i] for s in scores), *(b[i] for b in beside)) for i in parts])


# --- labels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [1000, range(1000), np.arange(1000), [*range(1000)]], ids=type)
def test_classes_may_be_a_number(classes: Any) -> None:
    y = np.array([3, 999, 3, 0])
    result, position = read_labels(y, 4, classes, 1000)
    np.testing.assert_array_equal(result, np.arange(1000))
    np.testing.assert_array_equal(position, y)
    with pytest.raises(ValueError, match="y must hold only the classes 0, ..., 999, got"):
        read_labels(np.array([1000]), 1, classes, 1000)
    with pytest.raises(ValueError, match="classes must be 999 different labels"):
        read_labels(y, 4, classes, 999)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, bool])
def test_whole_labels_are_counted_as_they_would_be_sorted(dtype: Any) -> None:
    y = np.random.default_rng(0).integers(-100, 100, 500).astype(dtype)
    k = len(np.unique(y))
    result, position = read_labels(y, 500, None, k)
    expected, inverse = np.unique(y, return_inverse=True)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == dtype
    np.testing.assert_array_equal(position, inverse)


def test_labels_far_apart() -> None:
    y = np.array([5, 10**12, -(10**12), 5])
    result, position = read_labels(y, 4, None, 3)
    np.testing.assert_array_equal(result, [-(10**12), 5, 10**12])
    np.testing.assert_array_equal(position, [1, 2, 0, 1])


def test_a_million_classes_take_memory_for_the_labels_alone() -> None:
    k, y = 1_000_000, np.array([7, 999_999, 7])
    tracemalloc.start()
    result, _ = read_labels(y, 3, k, k)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(result) == k
    assert peak < 4 * result.nbytes


# --- memory -------------------------------------------------------------------------------------


def _generated(k: int, rows: int, count: int) -> Any:
    """Yield blocks of logits, each row being the previous one shifted by one place."""
    base = np.random.default_rng(0).standard_normal(k + rows * count, dtype=np.float32)
    for number in range(count):
        first = number * rows
        z = 3 * np.lib.stride_tricks.sliding_window_view(base[first : first + k + rows - 1], k)
        y = (np.arange(first, first + rows) * 37) % 1000
        z[np.arange(rows), y] += 14 * (np.arange(rows) % 3 > 0)
        yield z, y


@pytest.mark.slow
def test_a_fit_to_blocks_holds_few_of_them() -> None:
    """Check peak memory for 800 MB of logits in blocks of 20 MB: three blocks, a sample, 64 MB."""
    k, rows = 100_000, 50
    blocks = bc.Blocks(partial(_generated, k, rows, 40), threads=1)
    calibrator = bc.Temperature(inputs="logits", classes=range(k))
    bc.Temperature(inputs="logits").fit(np.eye(3), [0, 2, 1])  # imports
    tracemalloc.start()
    calibrator.fit(blocks)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert blocks.passes <= 5
    assert peak < 3 * rows * k * 4 + 64e6


@pytest.mark.slow
def test_fits_and_predictions_in_memory_copy_no_logits() -> None:
    k = 100_000
    z, y = map(np.concatenate, zip(*_generated(k, 50, 8), strict=True))
    calibrator = bc.Temperature(inputs="logits", classes=k)
    calibrator.fit(z[:2], y[:2])  # imports
    tracemalloc.start()
    calibrator.fit(z, y)
    fit = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    probs = calibrator.predict_proba(z[:50])
    predict = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fit < 40e6 < z.nbytes / 3  # the search starts with a part of 64 rows
    assert predict < probs.nbytes + 40e6
    # In double precision the loss has zero slope at this temperature.
    inverse, slope, curvature = 1 / calibrator.temperature_, 0.0, 0.0
    for row, label in zip(z.astype(float), y, strict=True):
        p = softmax(inverse * row)
        slope += p @ row - row[label]
        curvature += p @ row**2 - (p @ row) ** 2
    assert abs(slope / curvature) < 1e-8


@pytest.mark.parametrize("cls", [bc.Temperature, bc.Vector])
def test_wide_rows_are_worked_on_in_parts(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    z, y, w = make_logits(500)
    whole = cls(inputs="logits").fit(bc.Blocks([(z, y, w)]))
    monkeypatch.setattr("bayescal.data.blocks.reader.AT_WORK", 500)
    monkeypatch.setattr("bayescal.data.blocks.reader._NUMBERS", 400)
    parts = cls(inputs="logits").fit(bc.Blocks([(z, y, w)]))
    np.testing.assert_allclose(parts.predict_proba(z), whole.predict_proba(z), atol=1e-9)


# --- truncated logits ---------------------------------------------------------------------------


def test_all_logits_of_a_row_are_the_plain_fit() -> None:
    z, y, w = make_logits()
    top = truncate(z, 12)
    whole = bc.Temperature(inputs="logits").fit(z, y, w)
    ours = bc.Temperature(inputs="top_logits", classes=12).fit(top, y, w)
    np.testing.assert_allclose(ours.temperature_, whole.temperature_, rtol=1e-9)
    probs = ours.predict_proba(top)
    expected = np.take_along_axis(whole.predict_proba(z), top[0], axis=1)
    np.testing.assert_allclose(probs.probs, expected, atol=1e-9)
    assert probs.others == 0
    assert not probs.rest.any()
    np.testing.assert_array_equal(ours.predict(top), whole.predict(z))


@pytest.mark.parametrize("m", [1, 3, 11])
def test_equal_others_are_the_plain_fit(m: int) -> None:
    z, y, w = make_logits()
    top = truncate(z, m)
    z = fill_rest(top, 12)
    whole = bc.Temperature(inputs="logits").fit(z, y, w)
    ours = bc.Temperature(inputs="top_logits", classes=12).fit(top, y, w)
    np.testing.assert_allclose(ours.temperature_, whole.temperature_, rtol=1e-9)
    expected = whole.predict_proba(z)
    probs = ours.predict_proba(top)
    np.testing.assert_allclose(probs.of(y), expected[np.arange(len(y)), y], atol=1e-9)
    np.testing.assert_allclose(probs.probs.sum(axis=1) + probs.rest, 1, rtol=1e-12)
    np.testing.assert_allclose(ours.objective_, probs.log_loss(y, w), rtol=1e-12)
    np.testing.assert_allclose(
        probs.log_loss(y, w), bc.metrics.log_loss(expected, y, weights=w), rtol=1e-9
    )


def test_the_temperature_is_that_of_scipy() -> None:
    z, y, w = make_logits(20_000, 40)
    indices, logits, rest = top = truncate(z, 4)
    others = rest - np.log(36)
    hit = indices == y[:, None]
    label_logits = np.where(hit.any(axis=1), (logits * hit).sum(axis=1), others)

    def loss(s: float) -> float:
        parts = np.concatenate([s * logits, (s * others + np.log(36))[:, None]], axis=1)
        return float(w @ (logsumexp(parts, axis=1) - s * label_logits)) / w.sum()

    result: Any = minimize_scalar(
        loss, bounds=(0.01, 5), method="bounded", options={"xatol": 1e-10}
    )
    for ours in (
        bc.Temperature(inputs="top_logits", classes=40).fit(top, y, w),
        bc.Temperature(inputs="top_logits", classes=40).fit(split_into_blocks(top, y, w)),
    ):
        # Function values determine the minimum only to the square root of their precision.
        np.testing.assert_allclose(1 / ours.temperature_, result.x, atol=1e-7)
        assert ours.objective_ <= result.fun + 1e-14


def test_vector_with_all_logits_is_that_of_scipy_and_of_the_plain_fit() -> None:
    z, y, w = make_logits(k=5)
    top = truncate(z, 5)

    def loss(theta: Array) -> tuple[float, Array]:
        log_p = log_softmax(z * theta[:5] + theta[5:], axis=1)
        residual = w[:, None] * (np.exp(log_p) - np.eye(5)[y])
        slope = np.concatenate([(residual * z).sum(axis=0), residual.sum(axis=0)])
        return -(w @ log_p[np.arange(len(y)), y]), slope

    result = minimize(loss, np.repeat([0.5, 0.0], 5), jac=True, method="BFGS")
    result = minimize(loss, result.x, jac=True, method="BFGS", options={"gtol": 1e-9})
    ours = bc.Vector(inputs="top_logits", classes=5).fit(top, y, w)
    np.testing.assert_allclose(ours.coef_[:5], result.x[:5], atol=1e-7)
    best = result.x[5:] - result.x[5:].mean()
    np.testing.assert_allclose(ours.intercept_[:5], best, atol=1e-7)
    plain = bc.Vector(inputs="logits").fit(bc.Blocks([(z, y, w)]))
    expected = np.take_along_axis(plain.predict_proba(z), top[0], axis=1)
    np.testing.assert_allclose(ours.predict_proba(top).probs, expected, atol=1e-7)


def test_vector_with_a_rest_is_that_of_scipy() -> None:
    z, y, w = make_logits(k=6)
    indices, logits, rest = top = truncate(z, 2)
    x = np.concatenate([logits, (rest - np.log(4))[:, None]], axis=1)
    columns = np.concatenate([indices, np.full((len(y), 1), 6)], axis=1)
    hit = indices == y[:, None]
    label_position = np.where(hit.any(axis=1), hit.argmax(axis=1), 2)

    def loss(theta: Array) -> tuple[float, Array]:
        f = x * theta[columns] + theta[7 + columns]
        log_p = log_softmax(f + np.array([0, 0, np.log(4)]), axis=1)
        residual = np.exp(log_p)
        residual[np.arange(len(y)), label_position] -= 1
        residual *= w[:, None]
        slope = [np.bincount(columns.ravel(), r.ravel(), 7) for r in (residual * x, residual)]
        return -(
            w @ (log_p[np.arange(len(y)), label_position] - np.log(4) * (label_position == 2))
        ), np.concatenate(slope)

    result = minimize(loss, np.repeat([0.5, 0.0], 7), jac=True, method="BFGS")
    result = minimize(loss, result.x, jac=True, method="BFGS", options={"gtol": 1e-9})
    for ours in (
        bc.Vector(inputs="top_logits", classes=6).fit(top, y, w),
        bc.Vector(inputs="top_logits", classes=6).fit(split_into_blocks(top, y, w)),
    ):
        np.testing.assert_allclose(ours.coef_, result.x[:7], atol=1e-6)
        np.testing.assert_allclose(ours.intercept_, result.x[7:] - result.x[7:].mean(), atol=1e-6)
        np.testing.assert_allclose(ours.objective_, result.fun / w.sum(), rtol=1e-12)
        np.testing.assert_allclose(ours.predict_proba(top).log_loss(y, w), ours.objective_)


def test_classes_without_labels_are_as_in_the_plain_fit() -> None:
    z, y, w = make_logits(k=5)
    y = np.where(y == 3, 1, y)
    top = truncate(z, 5)
    plain = bc.Vector(inputs="logits", classes=5).fit(bc.Blocks([(z, y, w)]))
    ours = bc.Vector(inputs="top_logits", classes=5).fit(top, y, w)
    expected = np.take_along_axis(plain.predict_proba(z), top[0], axis=1)
    np.testing.assert_allclose(ours.predict_proba(top).probs, expected, atol=1e-7)
    assert ours.status_ == plain.status_ == "converged"


def test_separable_labels_name_a_remedy_that_there_is() -> None:
    """Check the suggested remedy, since truncated logits have no posterior."""
    z, _, _ = make_logits(400, 5)
    y = z.argmax(axis=1)
    with pytest.warns(ConvergenceWarning, match="are kept; use more data"):
        bc.Temperature(inputs="top_logits", classes=5).fit(truncate(z, 3), y)
    with pytest.warns(ConvergenceWarning, match="use inference='laplace'"):
        bc.Temperature(inputs="logits").fit(z, y)


def test_no_label_outside_the_top() -> None:
    z, _, _ = make_logits(400)
    top = truncate(z, 2)
    y = top[0][np.arange(400), np.random.default_rng(0).integers(0, 2, 400)]
    probs = bc.Vector(inputs="top_logits", classes=12).fit(top, y).predict_proba(top)
    assert (probs.rest > 0).all()
    np.testing.assert_allclose(probs.probs.sum(axis=1) + probs.rest, 1, rtol=1e-12)
    new = np.array([[0, 1]]), np.array([[2.0, 1.0]]), np.array([0.0])
    # A label of one of these classes may be missing as well.
    few = bc.Vector(inputs="top_logits", classes=12).fit(
        tuple(values[(top[0] > 1).all(axis=1)] for values in top), y[(top[0] > 1).all(axis=1)]
    )
    probs = few.predict_proba(new)
    np.testing.assert_allclose(probs.probs.sum() + probs.rest, 1, rtol=1e-12)


@BOTH
def test_a_weight_is_the_row_repeated(cls: Any) -> None:
    z, y, w = make_logits(1000, 8)
    top, times = truncate(z, 3), w.astype(int)
    calibrator = cls(inputs="top_logits", classes=8)
    weighted = clone(calibrator).fit(top, y, w).predict_proba(top)
    repeated = clone(calibrator).fit(
        tuple(np.repeat(t, times, 0) for t in top), np.repeat(y, times)
    )
    np.testing.assert_allclose(weighted.probs, repeated.predict_proba(top).probs, atol=1e-9)


@BOTH
def test_blocks(cls: Any) -> None:
    z, y, w = make_logits()
    top = truncate(z, 4)
    calibrator = cls(inputs="top_logits", classes=12)
    whole, blocks = clone(calibrator).fit(top, y, w), split_into_blocks(top, y, w)
    parts = clone(calibrator).fit(blocks)
    expected = whole.predict_proba(top)
    np.testing.assert_allclose(parts.predict_proba(top).probs, expected.probs, atol=1e-9)
    read = [*parts.predict_proba(split_into_blocks(top)).each(lambda block: block.scores)]
    np.testing.assert_allclose(np.concatenate([p.rest for p in read]), expected.rest, atol=1e-9)
    # Any number of top classes is allowed.
    fewer = parts.predict_proba(tuple(values[:5] for values in truncate(z, 2)))
    assert fewer.probs.shape == (5, 2)
    assert fewer.others == 10


@BOTH
@pytest.mark.parametrize("m", [2, 12])
def test_functions_of_other_libraries(cls: Any, m: int) -> None:
    z, y, w = make_logits()
    top = truncate(z, m)
    calibrator = cls(inputs="top_logits", classes=12).fit(top, np.where(y == 5, 4, y), w)
    f, expected = calibrator.as_function(), calibrator.predict_proba(top)
    np.testing.assert_array_equal(f(top).probs, expected.probs)
    strict = f(tuple(map(array_api_strict.asarray, top)))
    np.testing.assert_allclose(np.asarray(strict.probs), expected.probs, atol=1e-12)
    with float64():
        result = jax.jit(lambda f, top: f(top))(f, tuple(map(jnp.asarray, top)))
        np.testing.assert_allclose(np.asarray(result.probs), expected.probs, atol=1e-12)
    single = tuple(jnp.asarray(values) for values in top)
    result = jax.jit(f)(single)
    assert isinstance(result, bc.TopProbs)
    assert result.rest.dtype == np.float32
    np.testing.assert_allclose(np.asarray(result.rest), expected.rest, atol=1e-6)
    half = f((single[0], single[1].astype(jnp.bfloat16), single[2].astype(jnp.bfloat16)))
    assert half.probs.dtype == jnp.bfloat16
    with pytest.raises(TypeError, match="scores must be a tuple"):
        f(jnp.asarray(z))
    with pytest.raises(ValueError, match="scores must be a tuple .* got shapes"):
        f((single[0][:, :1], single[1], single[2]))


@BOTH
def test_indices_of_large_vocabularies_are_exact_in_half_precision(cls: Any) -> None:
    k = 100_000
    logits = np.tile([2.0, 1.0], (40, 1))
    indices = np.stack([np.full(40, k - 2), np.full(40, 3)], axis=1)
    y = np.where(np.arange(40) % 3 == 0, 3, k - 2)
    y[:4] = 9
    calibrator = cls(inputs="top_logits", classes=k).fit((indices, logits, np.zeros(40)), y)
    one = jnp.asarray(indices[:1]), jnp.asarray(logits[:1], jnp.bfloat16), jnp.zeros(1)
    expected = calibrator.predict_proba((indices[:1], logits[:1], np.zeros(1)))
    np.testing.assert_allclose(
        np.asarray(calibrator.as_function()(one).probs, float), expected.probs, atol=4e-3
    )


@BOTH
def test_huge_and_tiny_logits(cls: Any) -> None:
    z, y, w = make_logits(500)
    indices, logits, rest = truncate(z, 3)
    calibrator = cls(inputs="top_logits", classes=12)
    expected = clone(calibrator).fit((indices, logits, rest), y, w)
    expected = expected.predict_proba((indices, logits, rest)).probs
    # The remaining classes have equal logits at any scale.
    per_class = rest - np.log(9)
    for unit in (2.0**60, 2.0**-60):
        top = indices, unit * logits, unit * per_class + np.log(9)
        result = clone(calibrator).fit(top, y, w).predict_proba(top).probs
        if unit > 1:
            np.testing.assert_allclose(result, expected, atol=1e-7)
        assert np.isfinite(result).all()


def test_labels_may_have_names() -> None:
    z, y, _ = make_logits(300, 4)
    names = np.array(["d", "b", "c", "a"])
    top = truncate(z, 2)
    named = bc.Temperature(inputs="top_logits", classes=names).fit(top, names[y])
    plain = bc.Temperature(inputs="top_logits", classes=4).fit(top, y)
    assert named.temperature_ == plain.temperature_
    np.testing.assert_array_equal(named.predict(top), names[plain.predict(top)])


INDICES = np.array([[3, 1], [0, 2]])
LOGITS = np.array([[2.0, 1.0], [3.0, 0.5]])
REST = np.array([0.5, -1.0])
NAN = np.array([0.5, np.nan])


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        (LOGITS, TypeError, "scores must be a tuple .* got ndarray"),
        ((INDICES, LOGITS), TypeError, "scores must be a tuple .* got tuple of 2"),
        ((INDICES[:, :1], LOGITS, REST), ValueError, "scores must be a tuple .* got shapes"),
        ((INDICES, LOGITS, REST[:1]), ValueError, "scores must be a tuple .* got shapes"),
        ((INDICES, LOGITS[0], REST), ValueError, r"logits must have shape \(n, m\)"),
        ((INDICES[:0], LOGITS[:0], REST[:0]), ValueError, "(logits|blocks) must .* rows"),
        ((INDICES + 0.0, LOGITS, REST), TypeError, "indices must be integers, got float64"),
        ((INDICES + 5, LOGITS, REST), ValueError, "indices must be different ones of 0, ..., 7"),
        ((INDICES - 1, LOGITS, REST), ValueError, "indices must be different ones .* got -1"),
        ((INDICES * 0, LOGITS, REST), ValueError, "indices must be different ones in each row"),
        ((INDICES, LOGITS * np.inf, REST), ValueError, "logits must be finite, got infinity"),
        ((INDICES, LOGITS * np.nan, REST), ValueError, "logits must be finite, got NaN"),
        ((INDICES, LOGITS, NAN), ValueError, "rest must be finite, got NaN"),
        ((INDICES, LOGITS, REST - np.inf), ValueError, "rest must be finite unless all 8 classes"),
        ((INDICES, LOGITS, REST + 9), ValueError, "logits must hold the largest of each row"),
    ],
)
@pytest.mark.parametrize("in_blocks", [False, True])
def test_what_contradicts_is_an_error(
    scores: Any, error: type[Exception], message: str, in_blocks: bool
) -> None:
    calibrator = bc.Temperature(inputs="top_logits", classes=8)
    with pytest.raises(error, match=message):
        if in_blocks:
            calibrator.fit(bc.Blocks([(scores, np.array([3, 2]))]))
        else:
            calibrator.fit(scores, [3, 2])
    fitted = clone(calibrator).fit((INDICES, LOGITS, REST), [3, 2])
    with pytest.raises(error, match=message):
        fitted.predict_proba(scores)


def test_all_classes_have_no_rest() -> None:
    with pytest.raises(ValueError, match="rest must be -inf if all 2 classes are given"):
        bc.Temperature(inputs="top_logits", classes=2).fit((INDICES % 2, LOGITS, REST), [0, 1])


def test_options_that_contradict() -> None:
    scores = INDICES, LOGITS, REST
    for options, message in (
        ({}, "classes must be set"),
        ({"classes": 8, "inference": "laplace"}, "inference must be 'map'"),
        ({"classes": 8, "objective": "adaptive_ece"}, "objective must be 'log_loss'"),
    ):
        with pytest.raises(ValueError, match=message):
            bc.Temperature(inputs="top_logits", **options).fit(scores, [3, 2])
    fitted = bc.Temperature(inputs="top_logits", classes=8).fit(scores, [3, 2])
    with pytest.raises(ValueError, match="y must hold only the classes"):
        clone(fitted).fit(scores, [3, 8])
    with pytest.raises(ValueError, match="got inputs='top_logits'"):
        bc.export(fitted, "top.onnx")
    with pytest.raises(ValueError, match="must not be .top_logits. for numpyro_model"):
        fitted.numpyro_model(scores, [3, 2])
    with pytest.raises(ValueError, match="whole rows to be combined"):
        bc.compose(clone(fitted), bc.KNN()).fit(scores, [3, 2])
    probs = fitted.predict_proba(scores)
    with pytest.raises(ValueError, match="y must be 2 indices of classes"):
        probs.of([1.0, 2.0])
    with pytest.raises(ValueError, match=r"y must be in \{0, ..., \d\}, got 8"):
        probs.of([1, 8])


@each(DEFAULTS)
def test_other_calibrators_refuse(case: Case) -> None:
    if case.calibrator in (bc.Temperature, bc.Vector) or not hasattr(case.calibrator, "inputs"):
        pytest.skip("takes truncated logits, or no inputs")
    with pytest.raises(ValueError, match="'top_logits', which Temperature and Vector take"):
        case(inputs="top_logits").fit((INDICES, LOGITS, REST), [3, 2])
