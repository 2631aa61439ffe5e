"""StackedScaling: its members against SciPy, its weights, and difficult data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy.spatial.distance import cdist
from scipy.special import log_softmax, softmax

import bayescal
import bayescal.calibrators as bc
from bayescal.calibrators.multiclass.basis import (
    Basis,
    Dimensions,
    kernel_basis,
    kernel_features,
    main_directions,
)
from bayescal.calibrators.multiclass.members import Member, penalties
from bayescal.calibrators.stack import draws as _draws
from bayescal.calibrators.stack import fit as _stack
from bayescal.calibrators.stack import folds as _stack_rows
from bayescal.calibrators.stack import search as _search_module
from bayescal.calibrators.stack.calibrator import MEMBERS
from bayescal.calibrators.stack.fit import Stack, fit_stack
from bayescal.calibrators.stack.mixture import mix
from bayescal.regression.softmax.fit import fit_on_host

Array = np.ndarray


def data_set(n: int, k: int, seed: int = 0) -> tuple[Array, Array]:
    """Draw over-confident logits of classes that are confused with the next class, and labels."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (n, k))
    true = 0.6 * z + 0.4 * np.roll(z, 1, axis=1) + np.linspace(-0.5, 0.5, k)
    y = (rng.random((n, 1)) > np.cumsum(softmax(true, axis=1), axis=1)).sum(axis=1)
    return z, np.minimum(y, k - 1)


def logits_of(theta: Array, x: Array, member: Member) -> Array:
    return value_and_logits(theta, x, member)[1]


def objective(
    theta: Array, x: Array, y: Array, weights: Array, member: Member, basis: Basis | None = None
) -> float:
    """Compute the published objective."""
    value, z = value_and_logits(theta, x, member, basis)
    losses = -log_softmax(z, axis=1)[np.arange(len(x)), y]
    return float(weights @ losses + value)


def value_and_logits(
    theta: Array, x: Array, member: Member, basis: Basis | None = None
) -> tuple[float, Array]:
    """Return the penalty and the logits."""
    n, k = x.shape
    q = np.exp(x)
    _, width, _, shared = member.sizes(Dimensions(k) if basis is None else basis.dimensions)
    first = k * (member.probability is not None)
    matrix = theta[: k * width].reshape(k, width)
    v, t = np.split(theta[k * width :], [k])
    b = matrix[:, first]
    factor = np.ones((n, k)) + v
    if shared:
        entropy = -(q * x).sum(axis=1) / np.log(k)
        two = np.sort(q, axis=1)[:, -2:]
        features = two[:, 1] - 0.5, entropy - 0.3, two[:, 1] - two[:, 0] - 0.5, two[:, 1] ** 2 - 0.3
        factor = factor + (np.stack(features, axis=1) @ t)[:, None]
    z = x * factor + b
    value = member.intercept * k * (b @ b) + member.diagonal * k * (v @ v)
    value += (member.shared or 0) * (t @ t)
    centered = x - x.mean(axis=1, keepdims=True)
    for pair, inputs, block in (
        (member.probability, 4 * q, matrix[:, :first]),
        (member.logarithm, centered, matrix[:, first + 1 :][:, :k]),
    ):
        if pair is not None:
            z = z + inputs @ block.T
            d, off = np.diag(block), block - np.diag(np.diag(block))
            value += pair[0] * k * (d @ d) + pair[1] * k * (k - 1) * (off**2).sum()
    if member.directions is not None:
        assert basis is not None
        z = z + centered @ basis.directions @ matrix[:, 1:].T
        value += member.directions * k * (k - 1) * (matrix[:, 1:] ** 2).sum()
    if member.kernel is not None:
        assert basis is not None
        block = matrix[:, 2 * k + 1 :]
        z = z + kernel(x / basis.length, basis.centers) @ basis.whiten @ block.T
        value += member.kernel * (block**2).sum()
    return float(value), z


def kernel(a: Array, b: Array) -> Array:
    """Compute the rational quadratic kernel with SciPy's distances."""
    return 1 / (1 + cdist(a, b, "sqeuclidean") / 2)


def weighted_set(n: int = 150, k: int = 4) -> tuple[Array, Array, Array]:
    return *data_set(n, k), np.random.default_rng(1).uniform(0.5, 2, n)


def smoothed(result: Stack, z: Array) -> Array:
    inverse, e = result.scale
    return np.log((1 - e) * softmax(inverse * z, axis=1) + e / z.shape[1])


def test_scale_is_the_most_probable_one() -> None:
    z, y, weights = weighted_set()

    def loss(t: float) -> float:
        logs = log_softmax(np.exp(t) * z, axis=1)[np.arange(150), y]
        return -weights @ logs + t * t / 2

    result: Any = optimize.minimize_scalar(
        loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-9}
    )
    inverse, e = _stack.fit_scale(z, y, weights)
    assert inverse == pytest.approx(np.exp(result.x), rel=1e-6)
    assert e == pytest.approx(0.5 / (weights.sum() + 1))
    for far in (1e-300, 1e30, 1e300):
        assert np.exp(-4) <= _stack.fit_scale(far * z, y, weights).inverse <= np.exp(4)


def test_one_far_row_that_is_right_hardly_moves_the_scale() -> None:
    """Check a row with zero loss at any scale, so that the rest decides."""
    z, y, weights = weighted_set()
    inverse = _stack.fit_scale(z, y, weights).inverse
    far = np.zeros((1, z.shape[1]))
    far[0, 0] = 2e5
    more = _stack.fit_scale(np.vstack([z, far]), np.append(y, 0), np.append(weights, 1.0))
    assert more.inverse == pytest.approx(inverse, rel=1e-3)


def skewed_set(n: int = 150, k: int = 4) -> tuple[Array, Array, Array]:
    """Return far too confident logits that separate most labels, where convergence is slow."""
    z, y = data_set(n, k, seed=3)
    z[np.arange(n), y] += 3
    return 6 * z, y, np.ones(n)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        *((name, weighted_set) for name in MEMBERS),
        *((name, skewed_set) for name in ("temperature", "probability", "both", "weaker")),
    ],
)
def test_members_are_at_the_optimum(name: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with SciPy's optimum of the objective, to a relative 1e-6."""
    z, y, weights = make()
    member = MEMBERS[name]
    monkeypatch.setattr(_stack, "_RANK", 2)
    monkeypatch.setattr(_stack, "_CENTERS", 8)
    result, *_ = fit_stack([member], z, y, weights, 1)
    theta = result.thetas[0]
    given = smoothed(result, z), y, weights, member, result.basis
    options = {"gtol": 1e-6, "maxiter": 1000}
    value = objective(theta, *given)
    # The objective is convex, so any start leads to its minimum.
    start = theta + 0.1 * np.random.default_rng(0).normal(size=len(theta))
    best: Any = optimize.minimize(objective, start, given, method="BFGS", options=options)
    assert value < best.fun * (1 + 1e-6)
    assert best.fun > value * (1 - 1e-6)
    assert objective(0 * theta, *given) > value


@pytest.mark.parametrize("k", [16, 29, 40])
def test_members_of_many_parameters_are_at_the_optimum(k: int) -> None:
    """Compare with another solver, to a relative 1e-6, or 1e-5 with many scores."""
    z, y, weights = weighted_set(1500, k)
    share = 1e-6 if z.size < 32768 else 1e-5
    names = ["temperature", "probability", "logarithm", "both", "middle", "weak", "curved", "wavy"]
    for name in names[: 8 if k < 30 else 6]:
        result, *_ = fit_stack([MEMBERS[name]], z, y, weights, 1)
        x, member = smoothed(result, z), MEMBERS[name]
        penalty = penalties(member, result.basis.dimensions)
        design = _stack.make_design(member, x, y, weights, result.basis)
        best = fit_on_host(design, penalty, limits=False)[0].x
        given = x, y, weights, member, result.basis
        value, least = (objective(at, *given) for at in (result.thetas[0], best))
        assert least * (1 - 1e-6) < value < least * (1 + share)


def test_fits_without_a_fold_hardly_know_its_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that less than a tenth of the gain from starting with all labels remains."""
    z, y, weights = skewed_set()
    members, means = [MEMBERS["weaker"]], []
    for share in (_stack.FOLD_SHARE, 0.0):
        monkeypatch.setattr(_stack, "FOLD_SHARE", share)
        stack, _, held, _ = fit_stack(members, z, y, weights, 5)
        means.append(held.mean())
    probs = _stack.mixture(members, stack, np.ones(1), z)
    known, (few, none) = np.log(probs[np.arange(len(y)), y]).mean(), means
    assert known > none
    assert abs(few - none) < 0.1 * (known - none)


def test_main_directions() -> None:
    rng = np.random.default_rng(0)
    positions = rng.normal(size=(60, 3))
    x = 5 * rng.normal(size=(400, 3)) @ positions.T + 0.1 * rng.normal(size=(400, 60))
    basis = main_directions(x, 3)
    x = x - x.mean(axis=1, keepdims=True)
    truth = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][:3].T
    np.testing.assert_allclose(basis @ basis.T, truth @ truth.T, atol=1e-6)
    order = rng.permutation(60)
    again = main_directions(x[:, order], 3)
    np.testing.assert_allclose(again @ again.T, (basis @ basis.T)[order][:, order], atol=1e-9)


def test_kernel_features_are_those_of_the_kernel() -> None:
    """Check that products of features equal the kernel on rows that the centers span."""
    rng = np.random.default_rng(0)
    x = log_softmax(rng.normal(size=(60, 3))[rng.integers(0, 60, 200)], axis=1)
    weights = rng.uniform(0.5, 2, 200)
    basis = kernel_basis(x, weights, 200, 0.5)
    mean = np.average(x, axis=0, weights=weights)
    variance = np.average((x - mean) ** 2, axis=0, weights=weights)
    assert basis.length == pytest.approx(0.5 * np.sqrt(variance.sum()))
    assert 10 < len(basis.centers) <= 60
    features = kernel_features(x, basis)
    expected = kernel(x / basis.length, x / basis.length)
    np.testing.assert_allclose(features @ features.T, expected, atol=2e-3)
    few = kernel_basis(x, weights, 7, 0.5)
    assert few.centers.shape == (7, 3)
    same = kernel_basis(np.ones((5, 3)), np.ones(5), 7, 0.5)
    assert same.dimensions == (3, 0, 0)


def test_kernels_of_nearly_uniform_rows_in_single_precision() -> None:
    """Check rows whose distances from each other are much smaller than those from zero."""
    rng = np.random.default_rng(0)
    z = 0.2 * rng.normal(size=(1000, 3))
    y = (0.1 * z + rng.gumbel(size=z.shape)).argmax(axis=1)
    rows = softmax(z, axis=1).astype(np.float32)
    fitted = bc.StackedScaling().fit(rows.astype(float), y)
    result = np.asarray(fitted.as_function()(jnp.asarray(rows)))
    np.testing.assert_allclose(result, fitted.predict_proba(rows.astype(float)), atol=1e-5)


def test_kernels_do_not_know_the_order_of_classes_and_rows() -> None:
    z, y = data_set(320, 4)
    order, rows = np.array([2, 0, 3, 1]), np.random.default_rng(0).permutation(320)
    model = bc.StackedScaling(inputs="logits").fit(z, y)
    assert "wavy" in model.member_names_
    expected, bands = model.predict_proba(z)[:, order], model.predict_interval(z[:5])
    model.fit(z[rows][:, order], np.argsort(order)[y][rows])
    np.testing.assert_allclose(model.predict_proba(z[:, order]), expected, atol=1e-8)
    again = model.predict_interval(z[:5, order])
    np.testing.assert_allclose(again, np.asarray(bands)[..., order], atol=1e-7)


@pytest.mark.parametrize("kind", ["one-hot", "constant", "four rows", "far"])
def test_kernels_of_odd_scores(kind: str) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 330)
    z = {
        "one-hot": np.where(np.eye(3)[np.where(rng.random(330) < 0.7, y, 0)] > 0, 0.0, -60.0),
        "constant": np.zeros((330, 3)),
        "four rows": rng.normal(size=(4, 3))[rng.integers(0, 4, 330)],
        "far": 1e200 * rng.normal(size=(330, 3)),
    }[kind]
    model = bc.StackedScaling(inputs="logits").fit(z, y)
    probs, (lower, upper) = model.predict_proba(z), model.predict_interval(z)
    assert np.isfinite(probs).all() and (probs > 0).all()
    assert (lower <= probs).all() and (probs <= upper).all()
    if kind != "far":
        shares = [np.mean(y[(z == row).all(axis=1)] == 0) for row in z]
        np.testing.assert_allclose(probs[:, 0], shares, atol=0.1)


def test_weights_of_the_stack_maximize_their_posterior() -> None:
    rng = np.random.default_rng(0)
    held = np.log(rng.uniform(0.05, 0.95, (300, 3)) * [1, 0.9, 0.5])
    weights = rng.uniform(0.5, 2, 300)

    def loss(free: Array) -> float:
        share = softmax(free)
        return float(-weights @ np.log(np.exp(held) @ share) - np.log(share).sum())

    best = softmax(optimize.minimize(loss, np.zeros(3), options={"gtol": 1e-9}).x)
    np.testing.assert_allclose(mix(held, weights), best, atol=1e-6)


def test_weights_of_many_rows_and_a_poor_start() -> None:
    """Check that at the optimum the gradient with the prior is equal for all weights."""
    rng = np.random.default_rng(0)
    truth = rng.normal(-3.9, 1, 100_000)
    held = truth[:, None] + rng.normal(0, [0.3, 0.1, 0.4, 0.9], (100_000, 4)) - [0.1, 0, 0.1, 0.5]
    weights = rng.integers(1, 3, 100_000).astype(float)
    for start in (None, np.array([1.0, 1e-7, 1e-7, 1e-7])):
        share = mix(held, weights, start)
        parts = np.exp(held)
        slope = weights @ (parts / (parts @ share)[:, None]) + 1 / share
        np.testing.assert_allclose(slope, weights.sum() + 4, rtol=1e-9)


def test_posterior_of_a_stack() -> None:
    """Check that members' draws have Laplace covariances, and weights those of resampled rows."""
    z, y = data_set(120, 3)
    model = bc.StackedScaling(inputs="logits", inference="laplace", random_state=0).fit(z, y)
    draws = model.posterior_.draws
    assert draws["stack_weights"].shape == (1, 1000, 8)
    np.testing.assert_allclose(draws["stack_weights"].sum(axis=-1), 1)
    mean = draws["stack_weights"].mean(axis=(0, 1))
    np.testing.assert_allclose(mean, model.stack_weights_, atol=0.05)
    name, e = "vector", 0.5 / 121
    x = np.log((1 - e) * softmax(model.inverse_ * z, axis=1) + e / 3)
    rows = x, y, np.ones(120), MEMBERS[name]
    theta = optimize.minimize(objective, np.zeros(6), rows, options={"gtol": 1e-7}).x
    np.testing.assert_allclose(draws["theta_vector"].mean(axis=(0, 1)), theta, atol=1e-4)
    step = 1e-4
    hessian = np.empty((6, 6))
    for i in range(6):
        for j in range(6):
            up, over = step * np.eye(6)[i], step * np.eye(6)[j]
            signs = ((1, up + over), (-1, up - over), (-1, over - up), (1, -up - over))
            total = sum(s * objective(theta + d, *rows) for s, d in signs)
            hessian[i, j] = total / (4 * step**2)
    expected = np.sqrt(np.diag(np.linalg.inv(hessian)))
    result = draws["theta_vector"].std(axis=(0, 1))
    np.testing.assert_allclose(result, expected, rtol=0.12)
    counts = np.bincount(draws["member"][0].astype(int), minlength=8)
    np.testing.assert_allclose(counts / 1000, mean, atol=0.05)
    names, by_hand = model.member_names_, []
    for s in range(1000):
        member = names[int(draws["member"][0, s])]
        at = (1 - e) * softmax(draws["inverse"][0, s] * z[:4], axis=1) + e / 3
        member_theta = draws[f"theta_{member}"][0, s]
        by_hand.append(softmax(logits_of(member_theta, np.log(at), MEMBERS[member]), axis=1))
    np.testing.assert_allclose(model.predict_proba(z[:4]), np.mean(by_hand, axis=0), atol=1e-9)
    ends = np.quantile(by_hand, [0.05, 0.95], axis=0)
    np.testing.assert_allclose(model.predict_interval(z[:4]), ends, atol=1e-9)


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_posterior_of_directions() -> None:
    """Check few draws, where some members have none."""
    z, y = data_set(400, 320)
    model = bc.StackedScaling(inputs="logits", classes=range(320))
    best = model.fit(z, y).predict_proba(z[:20])
    assert model.member_names_ == ["temperature", "directions", "loose"]
    model.set_params(inference="laplace", num_samples=20, random_state=0).fit(z, y)
    mean, (lower, upper) = model.predict_proba(z[:20]), model.predict_interval(z[:20])
    assert ((lower <= mean) & (mean <= upper)).mean() > 0.95
    np.testing.assert_allclose(mean, best, atol=0.05)


@pytest.mark.slow
def test_intervals_cover_the_truth() -> None:
    """Check over-coverage: kernel features have a weak prior, and the truth needs none."""
    inside = []
    for seed in range(6):
        z, y = data_set(400, 3, seed)
        model = bc.StackedScaling(inputs="logits", inference="laplace", random_state=0).fit(z, y)
        at, _ = data_set(50, 3, seed + 100)
        lower, upper = model.predict_interval(at)
        truth = softmax(0.6 * at + 0.4 * np.roll(at, 1, axis=1) + [-0.5, 0, 0.5], axis=1)
        inside.append(((lower < truth) & (truth < upper)).mean())
    print(np.mean(inside), inside)
    assert 0.9 < np.mean(inside) < 0.99


def true_log_probabilities(kind: str, logs: Array) -> Array:
    """Return the true logits for the log probabilities of a model."""
    k = logs.shape[1]
    if kind == "vector":
        return logs * np.linspace(0.4, 1, k) + np.linspace(-0.5, 0.5, k)
    if kind == "matrix":
        mix = 0.6 * np.eye(k) + 0.4 * np.random.default_rng(7).normal(size=(k, k)) / np.sqrt(k)
        return (logs - logs.mean(axis=1, keepdims=True)) @ mix
    if kind == "wave":
        return logs + np.sin(1.5 * logs) * np.eye(k)[0]
    return logs / 2 if kind == "scale" else logs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "k", "tied", "kind"),
    [
        (50, 3, False, "wave"),
        (50, 10, True, "vector"),
        (200, 3, True, "scale"),
        (1000, 3, True, "matrix"),
        (1000, 10, True, "calibrated"),
    ],
)
def test_intervals_without_asking_cover_the_truth(n: int, k: int, tied: bool, kind: str) -> None:
    """Check a few of the cases that benchmarks/coverage_bands.py simulates."""
    inside = []
    for seed in range(20):
        rng = np.random.default_rng([seed, n, k])
        rows = n + 200
        logs = rng.normal(0, 1.6, (rows, k))
        logs[np.arange(rows), rng.integers(0, k, rows)] += 2
        if tied:
            logs = logs[rng.integers(0, 12, rows)]
        logs = log_softmax(logs, axis=1)
        truth = softmax(true_log_probabilities(kind, logs), axis=1)
        y = (rng.random((rows, 1)) > np.cumsum(truth, axis=1)[:, :-1]).sum(axis=1)
        model = bc.StackedScaling(classes=range(k)).fit(np.exp(logs[:n]), y[:n])
        lower, upper = model.predict_interval(np.exp(logs[n:]))
        inside.append(((lower <= truth[n:]) & (truth[n:] <= upper)).mean())
    print(np.mean(inside))
    assert np.mean(inside) > 0.84


def test_draws_for_intervals_have_the_covariance_of_the_objective(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compare with the inverse of J' (diag p - p p') J plus penalties, for a numerical J."""
    monkeypatch.setattr(_draws, "_DRAWS", 40_000)
    z, y = data_set(90, 3)
    weights = np.random.default_rng(2).integers(1, 4, 90)
    model = bc.StackedScaling("single", inputs="logits").fit(z, y, weights)
    (member,) = (MEMBERS[name] for name in model.member_names_)
    theta, e = model.state_["theta_probability"], float(model.state_["smoothing"])

    def logits(parameters: Array) -> Array:
        inverse = model.inverse_ * np.exp(parameters[-1])
        x = np.log((1 - e) * softmax(inverse * z, axis=1) + e / 3)
        return logits_of(parameters[:-1], x, member)

    fit, step = np.append(theta, 0.0), 1e-5
    jacobian = np.stack(
        [(logits(fit + d) - logits(fit - d)) / (2 * step) for d in step * np.eye(len(fit))], axis=2
    )
    p = softmax(logits(fit), axis=1)
    spread = np.einsum("ni,ij->nij", p, np.eye(3)) - np.einsum("ni,nj->nij", p, p)
    hessian = np.einsum("n,nia,nij,njb->ab", weights, jacobian, spread, jacobian)
    expected = np.linalg.inv(hessian + np.diag(np.append(penalties(member, Dimensions(3)), 1.0)))
    draws = model._state_of_intervals()["theta_draws"]
    steps = np.column_stack([draws[:, : len(theta)] - theta, draws[:, -2]])
    np.testing.assert_allclose(steps.mean(axis=0), 0, atol=1e-9)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(steps.T @ steps / len(steps) / scale, expected / scale, atol=0.03)


def test_intervals_are_quantiles_of_the_draws() -> None:
    z, y = data_set(120, 3)
    model = bc.StackedScaling(inputs="logits").fit(z, y)
    draws = model._state_of_intervals()["theta_draws"]
    e, h, names = float(model.state_["smoothing"]), 1e-6, model.member_names_

    def logits(theta: Array, name: str, step: float = 0.0) -> Array:
        x = np.log((1 - e) * softmax(model.inverse_ * np.exp(step) * z[:7], axis=1) + e / 3)
        return logits_of(theta, x, MEMBERS[name])

    ends = np.cumsum([0, *(len(model.state_[f"theta_{name}"]) for name in names)])
    probs = []
    for draw in draws:
        i = int(draw[-1])
        fit = model.state_[f"theta_{names[i]}"]
        slope = (logits(fit, names[i], h) - logits(fit, names[i], -h)) / (2 * h)
        drawn = logits(draw[ends[i] : ends[i + 1]], names[i])
        probs.append(softmax(drawn + draw[-2] * slope, axis=1))
    expected = np.quantile(probs, [0.1, 0.9], axis=0)
    np.testing.assert_allclose(model.predict_interval(z[:7], 0.8), expected, atol=1e-7)


def test_intervals_know_no_order_and_are_kept_in_files(tmp_path: Path) -> None:
    z, y = data_set(300, 4)
    model = bc.StackedScaling(inputs="logits").fit(z, y)
    expected = model.predict_interval(z)
    order = np.random.default_rng(0).permutation(300)
    again = bc.StackedScaling(inputs="logits").fit(z[order], y[order]).predict_interval(z)
    np.testing.assert_allclose(again, expected, atol=1e-5)
    classes = np.array([2, 0, 3, 1])
    moved = bc.StackedScaling(inputs="logits").fit(z[:, classes], np.argsort(classes)[y])
    result = moved.predict_interval(z[:, classes])
    np.testing.assert_allclose(result, np.asarray(expected)[:, :, classes], atol=1e-8)
    bayescal.save(model, tmp_path / "stack.npz")
    loaded = bayescal.load(tmp_path / "stack.npz")
    np.testing.assert_array_equal(loaded.predict_interval(z), expected)


def test_missing_classes_keep_a_shrunk_probability() -> None:
    z, y = data_set(60, 4)
    y[y == 3] = 0
    model = bc.StackedScaling(inputs="logits", classes=range(4), random_state=0).fit(z, y)
    p, before = model.predict_proba(z), softmax(z, axis=1)
    assert (p[:, 3] > 1e-4).all()
    assert p[:, 3].mean() < before[:, 3].mean()


@pytest.mark.parametrize(("n", "k"), [(3500, 12), (2600, 40)])
def test_many_rows_know_no_order_and_weights_are_repetition(n: int, k: int) -> None:
    """Check order and repetition to five digits, in single precision with sampled curvature."""
    z, y = data_set(n, k)
    rng = np.random.default_rng(1)
    weights, order, classes = rng.integers(1, 3, n), rng.permutation(n), rng.permutation(k)
    model = bc.StackedScaling(inputs="logits")
    expected = model.fit(z, y, weights).predict_proba(z)
    rows = np.repeat(order, weights[order])
    result = model.fit(z[rows], y[rows]).predict_proba(z)
    np.testing.assert_allclose(result, expected, atol=1e-5)
    moved = model.fit(z[:, classes], np.argsort(classes)[y], weights).predict_proba(z[:, classes])
    np.testing.assert_allclose(moved, expected[:, classes], atol=1e-5)


def scale_penalties(member: Member, share: float) -> Member:
    """Scale the penalties of a member by a factor."""
    pairs = (None if penalty is None else np.multiply(penalty, share) for penalty in member)
    return Member(*pairs)  # type: ignore[arg-type]


def test_held_out_losses_are_of_mixtures_without_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that members, weights and the scale do not use the held-out row."""
    # The last steps depend on the start of a fit.
    monkeypatch.setattr(_stack, "FOLD_SHARE", 0.0)
    monkeypatch.setattr(_stack, "FEW_TOLERANCE", 1e-12)
    z, y = data_set(60, 3)
    model = bc.StackedScaling(inputs="logits", folds=3).fit(z, y)
    assert model.held_out_losses_.shape == (60,) and "held_out_losses" not in model.state_
    folds = _stack_rows.fold_rows(z, y, np.ones(60), 3)[0].fold
    members = [scale_penalties(MEMBERS[name], 2 / 3) for name in model.member_names_]
    held = np.empty((60, len(members)))
    for fold in range(3):
        out = folds == fold
        stack = fit_stack(members, z[~out], y[~out], np.ones((~out).sum()), 1).stack
        for i in range(len(members)):
            probs = _stack.mixture(members, stack, np.eye(len(members))[i], z[out])
            held[out, i] = np.log(probs[np.arange(out.sum()), y[out]])
    np.testing.assert_allclose(model.held_out_mean_losses_, -held.mean(axis=0), rtol=1e-6)
    for fold in range(3):
        out = folds == fold
        label_probs = np.exp(held[out]) @ mix(held[~out], np.ones((~out).sum()))
        np.testing.assert_allclose(model.held_out_losses_[out], -np.log(label_probs), rtol=1e-5)
    model.set_params(mode="single").fit(z, y)
    assert not hasattr(model, "held_out_losses_") and model.member_names_ == ["probability"]


@pytest.mark.parametrize("n", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_expected_loss_is_not_too_good(n: int) -> None:
    """Check with random labels that the mean expected loss is not optimistic."""
    gaps = []
    for seed in range(40):
        z = 2 * np.random.default_rng(seed).normal(size=(n, 4))
        y = np.random.default_rng(seed + 1000).integers(4, size=n)
        model = bc.StackedScaling(inputs="logits", classes=range(4)).fit(z, y)
        at = 2 * np.random.default_rng(seed + 2000).normal(size=(2000, 4))
        truth = -np.log(model.predict_proba(at)).mean()
        gaps.append(model.held_out_losses_.mean() - truth)
    assert np.mean(gaps) > -2 * np.std(gaps) / np.sqrt(len(gaps))


def _quadratic(theta: np.ndarray) -> tuple[float, np.ndarray]:
    matrix = np.diag([1.0, 10.0])
    return 5 + 0.5 * float(theta @ matrix @ theta), matrix @ theta


def _search(answers: Any, start: Any, most: int = 200) -> tuple[np.ndarray, list[np.ndarray], int]:
    """Return where a search ends, the points that it asked for, and the number of measurements."""
    measured: list[np.ndarray] = []

    def measure(theta: np.ndarray) -> Any:
        measured.append(theta)
        return lambda gradient: 0.05 * gradient

    objective = _search_module.Objective(np.zeros(2), 1.0, 1e-15, measure, np.inf)
    begin = _quadratic(np.asarray(start, float))
    curvature = _search_module.InverseHessian(lambda gradient: 0.05 * gradient, 1.0)
    search = _search_module.descend(objective, np.asarray(start, float), begin, curvature, 1e-12)
    asked = []
    try:
        theta = next(search)
        while True:
            asked.append(theta)
            theta = search.send(answers(len(asked), theta))
    except StopIteration as stop:
        return stop.value[0], asked, len(measured)


def test_a_search_ends_at_the_minimum_and_where_it_begins_there() -> None:
    theta, asked, _ = _search(lambda _, at: _quadratic(at), [3.0, -2.0])
    np.testing.assert_allclose(theta, 0, atol=1e-5)
    assert len(asked) < 30
    theta, asked, measured = _search(lambda _, at: _quadratic(at), [0.0, 0.0])
    assert (theta.tolist(), asked, measured) == ([0.0, 0.0], [], 0)


def test_a_search_where_steps_run_out_is_nearer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_search_module, "_MAX_STEPS", 2)
    theta, asked, _ = _search(lambda _, at: _quadratic(at), [3.0, -2.0])
    assert 5 < _quadratic(theta)[0] < _quadratic(np.array([3.0, -2.0]))[0]
    assert len(asked) <= 6


def test_a_search_that_gets_no_further_measures_once_more() -> None:
    """Check that after two good steps only worse answers trigger one measurement, then the end."""

    def answers(number: int, at: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _quadratic(at)
        return (value, gradient) if number <= 2 else (value + 100, gradient)

    theta, asked, measured = _search(answers, [3.0, -2.0])
    np.testing.assert_array_equal(theta, asked[1])
    assert measured == 1


def test_pairs_of_no_curvature_are_not_learned() -> None:
    curvature = _search_module.InverseHessian(lambda gradient: gradient, 1.0)
    moved = np.array([1.0, -2.0])
    assert curvature.learn(moved, -moved) is curvature
    assert curvature.learn(moved, np.zeros(2)) is curvature
    learned = curvature.learn(moved, 4 * moved)
    # Along the pair the step uses a curvature of four.
    np.testing.assert_allclose(learned.step(4 * moved), -moved)
