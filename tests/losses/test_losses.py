"""Losses against formulas in NumPy, finite differences and other libraries."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import log_softmax, softmax

from bayescal import metrics
from bayescal.losses import (
    brier,
    confidence_penalty,
    cross_entropy,
    distillation,
    focal,
    instance_cross_entropy,
    instance_targets,
    mmce,
    smoothed_cross_entropy,
    soft_ece,
)
from bayescal.smoothing import network_instance_targets

ROWS, CLASSES = 6, 3


class Batch(NamedTuple):
    logits: Any
    labels: Any
    soft: Any
    teacher: Any
    weights: Any


class Case(NamedTuple):
    """A loss with a parameter, its NumPy version without weights, and whether it is per row."""

    loss: Callable[..., jax.Array]
    reference: Callable[[Batch, Any], np.ndarray]
    value: float
    of_rows: bool = True


def make_batch(rows: int = ROWS, classes: int = CLASSES, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(rows, classes))
    teacher = 3 * rng.normal(size=(rows, classes))
    soft = rng.dirichlet(np.ones(classes), size=rows)
    weights = rng.integers(1, 4, size=rows).astype(float)
    return Batch(logits, rng.integers(0, classes, size=rows), soft, teacher, weights)


# --- the formulas, in NumPy ---------------------------------------------------------------------


def hot(batch: Batch) -> np.ndarray:
    return np.eye(batch.logits.shape[1])[batch.labels]


def soft_cross_entropy(targets: np.ndarray, logits: np.ndarray) -> np.ndarray:
    return -np.array([sum(t * np.log(softmax(z))) for t, z in zip(targets, logits, strict=True)])


def focal_loss(batch: Batch, gamma: float) -> np.ndarray:
    label_probs = softmax(batch.logits, axis=1)[np.arange(len(batch.labels)), batch.labels]
    return -((1 - label_probs) ** gamma) * np.log(label_probs)


def distillation_loss(batch: Batch, temperature: float) -> np.ndarray:
    soft = soft_cross_entropy(
        softmax(batch.teacher / temperature, axis=1), batch.logits / temperature
    )
    return 0.3 * temperature**2 * soft + 0.7 * soft_cross_entropy(hot(batch), batch.logits)


def confidence_gaps(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    probs = softmax(batch.logits, axis=1)
    return probs.max(axis=1), (probs.argmax(axis=1) == batch.labels) - probs.max(axis=1)


def kernel_error(batch: Batch, bandwidth: float) -> np.ndarray:
    confidence, gap = confidence_gaps(batch)
    total = 0.0
    for i in range(len(gap)):
        for j in range(len(gap)):
            total += gap[i] * gap[j] * math.exp(-abs(confidence[i] - confidence[j]) / bandwidth)
    return np.array(math.sqrt(total) / len(gap))


def binned_error(batch: Batch, temperature: float, bins: int = 4, order: float = 2) -> np.ndarray:
    confidence, gap = confidence_gaps(batch)
    centers = [(2 * j + 1) / (2 * bins) for j in range(bins)]
    share = np.array(
        [softmax([-((r - c) ** 2) / temperature for c in centers]) for r in confidence]
    )
    total = 0.0
    for j in range(bins):
        mass = share[:, j].sum()
        total += mass / len(gap) * abs((share[:, j] * gap).sum() / mass) ** order
    return np.array(total ** (1 / order))


CASES = {
    "cross_entropy": Case(
        lambda b, _, **options: cross_entropy(b.logits, b.labels, **options),
        lambda b, _: soft_cross_entropy(hot(b), b.logits),
        0.0,
    ),
    "cross_entropy_soft": Case(
        lambda b, _, **options: cross_entropy(b.logits, b.soft, **options),
        lambda b, _: soft_cross_entropy(b.soft, b.logits),
        0.0,
    ),
    "smoothed_cross_entropy": Case(
        lambda b, eps, **options: smoothed_cross_entropy(b.logits, b.labels, eps, **options),
        lambda b, eps: soft_cross_entropy((1 - eps) * hot(b) + eps / b.logits.shape[1], b.logits),
        0.2,
    ),
    "instance_cross_entropy": Case(
        lambda b, eps, **options: instance_cross_entropy(
            b.logits, b.labels, b.teacher, eps, **options
        ),
        lambda b, eps: soft_cross_entropy(
            network_instance_targets(b.teacher, b.labels, eps), b.logits
        ),
        0.3,
    ),
    "instance_offset": Case(
        lambda b, offset, **options: instance_cross_entropy(
            b.logits, b.labels, b.teacher, 0.3, offset, **options
        ),
        lambda b, offset: soft_cross_entropy(
            network_instance_targets(b.teacher, b.labels, 0.3, offset), b.logits
        ),
        0.7,
    ),
    "brier": Case(
        lambda b, _, **options: brier(b.logits, b.labels, **options),
        lambda b, _: ((softmax(b.logits, axis=1) - hot(b)) ** 2).sum(axis=1),
        0.0,
    ),
    "brier_soft": Case(
        lambda b, _, **options: brier(b.logits, b.soft, **options),
        lambda b, _: ((softmax(b.logits, axis=1) - b.soft) ** 2).sum(axis=1),
        0.0,
    ),
    "focal": Case(
        lambda b, gamma, **options: focal(b.logits, b.labels, gamma, **options), focal_loss, 1.5
    ),
    "confidence_penalty": Case(
        lambda b, beta, **options: confidence_penalty(b.logits, b.soft, beta, **options),
        lambda b, beta: (
            soft_cross_entropy(b.soft, b.logits)
            - beta * soft_cross_entropy(softmax(b.logits, 1), b.logits)
        ),
        0.1,
    ),
    "distillation": Case(
        lambda b, t, **options: distillation(b.logits, b.labels, b.teacher, t, 0.3, **options),
        distillation_loss,
        3.0,
    ),
    "mmce": Case(
        lambda b, h, **options: mmce(b.logits, b.labels, h, **options), kernel_error, 0.3, False
    ),
    "soft_ece": Case(
        lambda b, t, **options: soft_ece(b.logits, b.labels, 4, t, **options),
        binned_error,
        0.02,
        False,
    ),
}
OF_ROWS = [name for name, case in CASES.items() if case.of_rows]


@functools.cache
def compiled_loss(name: str) -> Any:
    """Compile a scalar loss with its gradients with respect to logits and parameter."""

    def loss(logits: Any, number: Any, batch: Any, weights: Any, mask: Any) -> jax.Array:
        return CASES[name].loss(batch._replace(logits=logits), number, weights=weights, mask=mask)

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))


def evaluate(
    name: str,
    batch: Any,
    weights: Any = None,
    mask: Any = None,
    dtype: Any = float,
    number: Any = None,
) -> tuple[Any, Any, Any]:
    """Compute value and gradients; weights and mask default to all rows."""
    number = jnp.asarray(CASES[name].value if number is None else number, dtype=dtype)
    weights = np.ones(len(batch.labels)) if weights is None else weights
    mask = np.ones(len(batch.labels), bool) if mask is None else mask
    converted = Batch(
        *(jnp.asarray(a, dtype=None if a.dtype.kind == "i" else dtype) for a in batch)
    )
    weights = jnp.asarray(weights, dtype=dtype)
    value, gradients = compiled_loss(name)(
        converted.logits, number, converted, weights, jnp.asarray(mask)
    )
    return value, *gradients


def repeat_rows(batch: Batch) -> Batch:
    return Batch(*(np.repeat(array, batch.weights.astype(int), axis=0) for array in batch))


# --- values and gradients -----------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_are_those_of_the_formula(x64: None, name: str) -> None:
    batch, case = make_batch(), CASES[name]
    value, gradient, slope = evaluate(name, batch, batch.weights)
    many = repeat_rows(batch)
    np.testing.assert_allclose(value, case.reference(many, case.value).mean(), rtol=1e-12)

    def reference(logits: np.ndarray, number: float) -> float:
        moved = batch._replace(logits=logits)
        return float(case.reference(repeat_rows(moved), number).mean())

    step = 1e-5
    expected = np.zeros_like(batch.logits)
    for index in np.ndindex(batch.logits.shape):
        move = np.zeros_like(batch.logits)
        move[index] = step
        rise = reference(batch.logits + move, case.value)
        expected[index] = (rise - reference(batch.logits - move, case.value)) / (2 * step)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-9)
    if case.value:
        rise = reference(batch.logits, case.value + step) - reference(
            batch.logits, case.value - step
        )
        np.testing.assert_allclose(slope, rise / (2 * step), rtol=1e-6, atol=1e-9)
    assert value.dtype == gradient.dtype == np.float64
    eager = case.loss(batch, case.value, weights=batch.weights)
    np.testing.assert_allclose(eager, value, rtol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_in_float32(name: str) -> None:
    batch, case = make_batch(), CASES[name]
    value, gradient, _ = evaluate(name, batch, dtype=jnp.float32)
    np.testing.assert_allclose(value, case.reference(batch, case.value).mean(), rtol=1e-5)
    assert value.dtype == gradient.dtype == np.float32


@pytest.mark.parametrize("name", OF_ROWS)
def test_reductions_and_leading_axes(x64: None, name: str) -> None:
    batch, case = make_batch(), CASES[name]
    losses = case.reference(batch, case.value)
    folded = Batch(*(jnp.asarray(a.reshape(2, ROWS // 2, *a.shape[1:])) for a in batch))

    @jax.jit
    def result(batch: Batch) -> Any:
        weighted = functools.partial(case.loss, batch, case.value, weights=batch.weights)
        per_row = case.loss(batch, case.value, reduction="none")
        single = case.loss(Batch(*(array[0, 0] for array in batch)), case.value)
        return per_row, weighted(reduction="none"), weighted(reduction="sum"), weighted(), single

    per_row, weighted, total, mean, single = result(folded)
    np.testing.assert_allclose(per_row, losses.reshape(2, -1), rtol=1e-12)
    np.testing.assert_allclose(weighted, (batch.weights * losses).reshape(2, -1), rtol=1e-12)
    np.testing.assert_allclose(total, batch.weights @ losses, rtol=1e-12)
    np.testing.assert_allclose(mean, batch.weights @ losses / batch.weights.sum(), rtol=1e-12)
    np.testing.assert_allclose(single, losses[0], rtol=1e-12)


@pytest.mark.parametrize("name", ["mmce", "soft_ece"])
def test_leading_axes_of_batch_level_losses(x64: None, name: str) -> None:
    batch, case = make_batch(), CASES[name]
    folded = Batch(*(a.reshape(2, ROWS // 2, *a.shape[1:]) for a in batch))
    result = jax.jit(case.loss)(folded, case.value)
    np.testing.assert_allclose(result, case.reference(batch, case.value), rtol=1e-12)


# --- rows that do not count ---------------------------------------------------------------------


@pytest.mark.parametrize("way", ["mask", "weights"])
@pytest.mark.parametrize("name", CASES)
def test_rows_left_out_may_hold_anything(x64: None, name: str, way: str) -> None:
    batch = make_batch()
    out = np.array([False, True, False, True, False, False])
    expected, slopes, along = evaluate(
        name, Batch(*(array[~out] for array in batch)), batch.weights[~out]
    )
    spoilt = Batch(*(array.copy() for array in batch))
    spoilt.logits[1], spoilt.logits[3] = math.nan, [math.inf, -math.inf, 0]
    spoilt.teacher[1], spoilt.teacher[3] = math.inf, math.nan
    spoilt.soft[out] = math.nan
    spoilt.labels[out] = -1, 77
    weights = np.where(out, math.nan if way == "mask" else 0.0, batch.weights)
    value, gradient, slope = evaluate(name, spoilt, weights, None if way == "weights" else ~out)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(gradient)[~out], slopes, rtol=1e-9, atol=1e-15)
    np.testing.assert_array_equal(np.asarray(gradient)[out], 0)
    np.testing.assert_allclose(slope, along, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", CASES)
def test_no_rows_at_all(x64: None, name: str) -> None:
    batch = make_batch()._replace(logits=np.full((ROWS, CLASSES), math.nan))
    value, gradient, slope = evaluate(name, batch, mask=np.zeros(ROWS, bool))
    assert float(value) == 0 and float(slope) == 0
    np.testing.assert_array_equal(gradient, 0)
    empty = Batch(*(array[:0] for array in batch))
    if CASES[name].of_rows:
        assert float(CASES[name].loss(empty, CASES[name].value)) == 0


@pytest.mark.parametrize("name", CASES)
def test_label_that_is_no_class_is_seen(x64: None, name: str) -> None:
    batch = make_batch()
    if name in ("cross_entropy_soft", "brier_soft", "confidence_penalty"):
        batch.soft[2, 0] = math.nan
    assert math.isfinite(evaluate(name, make_batch())[0])
    for label in (-1, CLASSES):
        batch.labels[2] = label
        assert math.isnan(evaluate(name, batch)[0])


# --- extremes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, jnp.float32) for name in CASES),
        *((name, jnp.float16) for name in CASES),
        *((name, jnp.bfloat16) for name in ("cross_entropy", "soft_ece")),
    ],
)
def test_large_logits(name: str, dtype: Any) -> None:
    signs = np.array([[1, -1, 0], [-1, 1, 1], [0, 0, -1], [-1, -1, -1], [1, 1, -1], [-1, 0, 1]])
    batch = make_batch()._replace(logits=1e4 * signs, labels=np.array([0, 0, 2, 1, 2, 1]))
    value, gradient, slope = evaluate(name, batch, dtype=dtype)
    assert value.dtype == np.float32 and gradient.dtype == dtype
    assert all(np.isfinite(np.asarray(a, dtype=float)).all() for a in (value, gradient, slope))


def test_large_logits_by_hand() -> None:
    logits = jnp.array([[1e4, -1e4], [1e4, -1e4]])
    labels = jnp.array([0, 1])
    for loss in (cross_entropy, focal):
        np.testing.assert_array_equal(loss(logits, labels, reduction="none"), [0, 2e4])
    np.testing.assert_array_equal(brier(logits, labels, reduction="none"), [0, 2])
    result = smoothed_cross_entropy(logits, labels, 0.5, reduction="none")
    np.testing.assert_array_equal(result, [5e3, 1.5e4])


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_focal_where_the_label_is_nearly_certain(gamma: float) -> None:
    # Float32 cannot tell p = 1 / (1 + exp(-20)) from 1.
    logits, labels = jnp.array([[20.0, 0.0]]), jnp.array([0])
    value, gradient = jax.jit(jax.value_and_grad(lambda z: focal(z, labels, gamma)))(logits)
    rest = 1 / (1 + math.exp(20))
    loss = math.log1p(math.exp(-20))
    np.testing.assert_allclose(value, rest**gamma * loss, rtol=1e-5)
    slope = gamma * rest**gamma * (1 - rest) * loss + rest ** (gamma + 1)
    np.testing.assert_allclose(gradient, [[-slope, slope]], rtol=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_where_all_other_classes_are_impossible(gamma: float) -> None:
    logits = jnp.array([[0.0, -jnp.inf, -jnp.inf], [1.0, 2.0, -jnp.inf]])

    def loss(logits: Any) -> Any:
        return focal(logits, jnp.array([0, 1]), gamma, reduction="sum")

    value, gradient = jax.value_and_grad(loss)(logits)
    p = 1 / (1 + math.exp(-1))
    np.testing.assert_allclose(value, -((1 - p) ** gamma) * math.log(p), rtol=1e-6)
    slope = gamma * (1 - p) ** gamma * p * math.log(p) - (1 - p) ** (gamma + 1)
    np.testing.assert_allclose(gradient, [[0, 0, 0], [-slope, slope, 0]], rtol=1e-5)


@pytest.mark.parametrize("loss", [mmce, soft_ece])
def test_no_error_has_no_gradient(loss: Any) -> None:
    logits, labels = jnp.array([[1e4, 0.0], [0.0, 1e4]]), jnp.array([0, 1])
    value, gradient = jax.jit(jax.value_and_grad(loss))(logits, labels)
    assert float(value) == 0
    np.testing.assert_array_equal(gradient, 0)


def test_classes_shut_out_by_infinite_logits() -> None:
    logits = jnp.array([[1.0, 2.0, -jnp.inf]])
    value, gradient = jax.jit(jax.value_and_grad(cross_entropy))(logits, jnp.array([0]))
    np.testing.assert_allclose(value, -log_softmax([1.0, 2.0])[0], rtol=1e-6)
    expected = softmax([1.0, 2.0]) - [1, 0]
    np.testing.assert_allclose(gradient, [[*expected, 0]], rtol=1e-6)
    soft = jnp.array([[0.25, 0.75, 0.0]])
    expected = -log_softmax([1.0, 2.0]) @ [0.25, 0.75]
    np.testing.assert_allclose(cross_entropy(logits, soft), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8])
def test_narrow_labels_of_many_classes(dtype: Any) -> None:
    logits = np.random.default_rng(0).normal(size=(2, 300))
    expected = -log_softmax(logits, axis=1)[[0, 1], [43, 127]]
    result = cross_entropy(logits, jnp.array([43, 127], dtype), reduction="none")
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("name", list(CASES))
def test_means_take_weights_of_any_size_in_single_precision(name: str) -> None:
    batch, case = make_batch(), CASES[name]
    value, gradient, _ = evaluate(name, batch, batch.weights, dtype=jnp.float32)
    expected = case.reference(repeat_rows(batch), case.value).mean()
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert value.dtype == gradient.dtype == np.float32
    for scale in (1e-37, 2e37, 1e38):
        scaled, slopes, _ = evaluate(name, batch, batch.weights * scale, dtype=jnp.float32)
        np.testing.assert_allclose(scaled, value, rtol=1e-5)
        np.testing.assert_allclose(slopes, gradient, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("weight", [1e-39, 1e39])
def test_weights_beyond_single_precision_are_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weights must have a maximum from 1.2e-38 to 3.4e"):
        cross_entropy(jnp.zeros((2, 3)), jnp.array([0, 1]), weights=np.array([0.0, weight]))


def test_long_integers_do_not_wrap_around() -> None:
    """Without 64-bit types, JAX takes the lower half of NumPy's integers."""
    logits, labels = jnp.asarray([[0.0, 1.0], [2.0, 0.0], [0.5, 0.0]]), np.array([0, 1, 1])
    counts = np.array([3 * 10**9, 1, 4 * 10**9])
    actual = cross_entropy(logits, labels, weights=counts)
    np.testing.assert_array_equal(actual, cross_entropy(logits, labels, weights=counts * 1.0))
    for label in (2**32, np.iinfo(np.int64).min):
        wrong = np.array([0, label, 1])
        assert jnp.isnan(cross_entropy(logits, wrong))
        assert jnp.isnan(instance_targets(logits, wrong, 0.1)[1]).all()


def test_optax_agrees(x64: None) -> None:
    batch = make_batch(rows=20)

    def pairs(logits: jax.Array, labels: jax.Array, soft: jax.Array) -> Any:
        smooth = optax.smooth_labels(jax.nn.one_hot(labels, CLASSES), 0.2)
        two = jnp.stack([jnp.zeros(20), logits[:, 0]], axis=1)
        alone: Any = {"reduction": "none"}
        return {
            "hard": (
                cross_entropy(logits, labels, **alone),
                optax.softmax_cross_entropy_with_integer_labels(logits, labels),
            ),
            "soft": (
                cross_entropy(logits, soft, **alone),
                optax.softmax_cross_entropy(logits, soft),
            ),
            "smoothed": (
                smoothed_cross_entropy(logits, labels, 0.2, **alone),
                optax.softmax_cross_entropy(logits, smooth),
            ),
            "focal": (
                focal(two, labels % 2, 1.5, **alone),
                optax.sigmoid_focal_loss(logits[:, 0], labels % 2, gamma=1.5),
            ),
        }

    result = jax.jit(pairs)(batch.logits, batch.labels, batch.soft)
    for ours, theirs in result.values():
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


# --- constant teachers, and metrics of the package ----------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0.0, 2.5])
def test_instance_targets_agree(offset: float) -> None:
    batch = make_batch(rows=30, classes=4, seed=3)
    batch.teacher[:4] = [[7, 7, 7, 7], [5, 2, 2, 2], [0, 9, 9, 9], [-1e30, 0, 1e30, 3e38]]
    batch.labels[:4] = 2, 0, 0, 3
    expected = network_instance_targets(batch.teacher, batch.labels, 0.3, offset)
    logits = jnp.asarray(batch.teacher)
    result = instance_targets(logits, batch.labels, 0.3, offset)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-7)
    folded = instance_targets(
        logits.reshape(2, 15, 4), batch.labels.reshape(2, 15).astype(np.uint8), 0.3, offset
    )
    np.testing.assert_array_equal(folded.reshape(30, 4), result)
    assert np.isnan(np.asarray(instance_targets(logits[:1], np.array([4]), 0.3))).all()


def test_a_share_of_zero_or_one_leaves_the_other_part_out() -> None:
    student = jnp.array([[0.5, -jnp.inf, 1.5], [0.1, 0.2, 0.3]])
    teacher = jnp.array([[1.0, 2.0, 0.5], [0.4, 0.1, 0.2]])
    labels = jnp.array([0, 2])
    both = jax.jit(jax.value_and_grad(distillation))
    value, gradient = both(student, labels, teacher, 2.0, 0.0)
    expected = jax.value_and_grad(cross_entropy)(student, labels)
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)
    np.testing.assert_allclose(gradient, expected[1], atol=1e-6)

    teacher = teacher.at[0, 1].set(-jnp.inf)
    value, gradient = both(student, jnp.array([1, 2]), teacher, 1.0, 1.0)  # an impossible label
    z, v = np.asarray(student, float), np.asarray(teacher, float)
    expected_value = 0.0
    for row, guess in zip(z, v, strict=True):
        possible = np.isfinite(row)
        expected_value -= softmax(guess)[possible] @ log_softmax(row)[possible] / 2
    np.testing.assert_allclose(value, expected_value, rtol=1e-6)
    expected_gradient = (softmax(z, axis=1) - softmax(v, axis=1)) / 2
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)


def test_teacher_is_constant() -> None:
    batch = make_batch()
    labels = jnp.asarray(batch.labels)

    def both(logits: jax.Array) -> jax.Array:
        soft = distillation(logits, labels, logits)
        return soft + instance_cross_entropy(logits, labels, logits, 0.2)

    def separate(logits: jax.Array, teacher: jax.Array) -> jax.Array:
        soft = distillation(logits, labels, teacher)
        return soft + instance_cross_entropy(logits, labels, teacher, 0.2)

    logits = jnp.asarray(batch.logits)
    expected = jax.jit(jax.grad(separate))(logits, logits)
    np.testing.assert_allclose(jax.jit(jax.grad(both))(logits), expected, rtol=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3.5])
def test_soft_bins_become_hard(x64: None, order: float) -> None:
    batch = make_batch(rows=60, seed=4)
    probs = softmax(batch.logits, axis=1)
    far = abs(probs.max(axis=1) * 15 - np.round(probs.max(axis=1) * 15)) > 0.02
    batch = Batch(*(array[far] for array in batch))
    assert len(batch.labels) > 50
    options = {"bins": 15, "norm": order, "weights": batch.weights}
    expected = metrics.ece(probs[far], batch.labels, kind="confidence", **options)
    arrays = batch.logits, batch.labels
    small = functools.partial(soft_ece, temperature=1e-6, order=order, weights=batch.weights)
    value, gradient = jax.jit(jax.value_and_grad(small))(*arrays)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0
    result = jax.jit(functools.partial(soft_ece, bins=4, temperature=0.02, order=order))(*arrays)
    np.testing.assert_allclose(result, binned_error(batch, 0.02, 4, order), rtol=1e-12)


# --- errors -------------------------------------------------------------------------------------

LOGITS, LABELS = jnp.zeros((2, 3)), jnp.array([0, 2])
ANY: Any = "max"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cross_entropy(LABELS, LABELS), TypeError, "logits must be floating-point, got"),
        (lambda: cross_entropy(LOGITS[:, :1], LABELS), ValueError, r"2, got \(2, 1\)"),
        (lambda: cross_entropy(jnp.zeros(()), LABELS), ValueError, r"with k at least 2, got \(\)"),
        (lambda: cross_entropy(LOGITS, LOGITS[:, 0]), TypeError, "targets must be integers, got"),
        (lambda: cross_entropy(LOGITS, LABELS == 0), TypeError, "integers, got dtype bool"),
        (lambda: cross_entropy(LOGITS, LOGITS.astype(int)), TypeError, "soft targets must be"),
        (lambda: cross_entropy(LOGITS, LABELS[:1]), ValueError, r"targets must .* got \(1,\)"),
        (lambda: brier(LOGITS, LOGITS[:, :2]), ValueError, r"targets must .* got \(2, 2\)"),
        (lambda: focal(LOGITS, LOGITS), ValueError, r"labels must have shape \(2,\) .* \(2, 3\)"),
        (lambda: brier(LOGITS, LABELS, weights=jnp.ones(3)), ValueError, r"weights .* \(3,\)"),
        (lambda: brier(LOGITS, LABELS, weights=LABELS == 0), TypeError, "weights must be real"),
        (lambda: brier(LOGITS, LABELS, mask=jnp.ones(2)), TypeError, "mask must be boolean, or"),
        (lambda: brier(LOGITS, LABELS, mask=LOGITS == 0), ValueError, r"mask must .* \(2,\)"),
        (lambda: brier(LOGITS, LABELS, reduction=ANY), ValueError, "'none', got 'max'"),
        (lambda: distillation(LOGITS, LABELS, LOGITS[:1]), ValueError, "teacher_logits must have"),
        (lambda: instance_targets(LOGITS, LABELS[:1], 0.1), ValueError, r"labels .* \(1,\)"),
        (lambda: instance_targets(LOGITS, LOGITS[:, 0], 0.1), TypeError, "labels must be int"),
        (lambda: soft_ece(LOGITS, LABELS, bins=0), ValueError, "bins must be at least 1, got 0"),
        (lambda: soft_ece(LOGITS, LABELS, order=0.5), ValueError, "order .* finite, got 0.5"),
        (lambda: soft_ece(LOGITS, LABELS, order=ANY), TypeError, "order must be a number"),
    ],
)
def test_wrong_arrays(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        jax.eval_shape(call)


SHARE, POSITIVE, WHOLE = r"lie in \[0, 1\]", "be finite and positive", "be finite and not negative"


@pytest.mark.parametrize(
    ("name", "call", "bad", "message"),
    [
        ("smoothing", lambda n: smoothed_cross_entropy(LOGITS, LABELS, n), (1, -0.1), r"\[0, 1\)"),
        ("smoothing", lambda n: instance_cross_entropy(LOGITS, LABELS, LOGITS, n), (2,), "lie"),
        ("offset", lambda n: instance_targets(LOGITS, LABELS, 0.1, n), (-1, math.inf), WHOLE),
        ("gamma", lambda n: focal(LOGITS, LABELS, n), (-1.0, math.nan), WHOLE),
        ("strength", lambda n: confidence_penalty(LOGITS, LABELS, n), (-1,), WHOLE),
        ("temperature", lambda n: distillation(LOGITS, LABELS, LOGITS, n), (0, -2.0), POSITIVE),
        ("share", lambda n: distillation(LOGITS, LABELS, LOGITS, share=n), (1.1, -0.1), SHARE),
        ("bandwidth", lambda n: mmce(LOGITS, LABELS, n), (0,), POSITIVE),
        ("temperature", lambda n: soft_ece(LOGITS, LABELS, temperature=n), (0.0,), POSITIVE),
    ],
)
def test_wrong_numbers(name: str, call: Any, bad: tuple[Any, ...], message: str) -> None:
    for number in bad:
        with pytest.raises(ValueError, match=f"{name} .*{message}.*, got "):
            call(number)
    for number in ("a", None, True):
        with pytest.raises(TypeError, match=f"{name} must be a number, got {number!r}"):
            call(number)
    with pytest.raises(TypeError, match=f"{name} must be a number, got dtype bool"):
        call(jnp.array(True))
    with pytest.raises(ValueError, match=rf"{name} must be a scalar, got shape \(2,\)"):
        call(jnp.array([0.1, 0.2]))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, jnp.int32])
def test_masks_of_zeros_and_ones_are_those_of_tokenizers(dtype: Any) -> None:
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 3)), jnp.float32)
    labels = jnp.zeros((2, 5), int)
    mask = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]])
    expected = cross_entropy(logits, labels, mask=mask == 1)
    given = mask.astype(dtype)
    assert cross_entropy(logits, labels, mask=given) == expected
    compiled = jax.jit(lambda m: cross_entropy(logits, labels, mask=m))(given)
    assert float(compiled) == pytest.approx(float(expected), rel=1e-6)
    assert brier(logits, labels, mask=given) == brier(logits, labels, mask=mask == 1)
    with pytest.raises(ValueError, match="1 where a row counts and 0 elsewhere"):
        cross_entropy(logits, labels, mask=given + 1)
