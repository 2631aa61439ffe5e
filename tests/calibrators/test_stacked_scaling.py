"""StackedScaling: its members against SciPy, its weights, and what it must survive."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize
from scipy.special import log_softmax, softmax

import bayescal.calibrators as bc
from bayescal import metrics
from bayescal._core.folds import content_folds, score_keys
from bayescal.calibrators import StackedScaling
from bayescal.calibrators._member import Member, confidence_features, penalties
from bayescal.calibrators._stack import mix
from bayescal.calibrators.stacked_scaling import MEMBERS, PLAIN
from benchmarks.studies.arena import find_experiments, read_experiment

Array = np.ndarray


def data_set(n: int, k: int, seed: int = 0) -> tuple[Array, Array]:
    """Return over-confident logits of classes that are confused with the next one, and labels."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (n, k))
    true = 0.6 * z + 0.4 * np.roll(z, 1, axis=1) + np.linspace(-0.5, 0.5, k)
    y = (rng.random((n, 1)) > np.cumsum(softmax(true, axis=1), axis=1)).sum(axis=1)
    return z, np.minimum(y, k - 1)


def logits_of(theta: Array, x: Array, member: Member) -> Array:
    return value_and_logits(theta, x, np.ones(len(x)), member)[1]


def objective(theta: Array, x: Array, y: Array, weights: Array, member: Member) -> float:
    """Return n times the published objective, written out."""
    value, z = value_and_logits(theta, x, weights, member)
    losses = -log_softmax(z, axis=1)[np.arange(len(x)), y]
    return float(weights @ losses + weights.sum() * value)


def value_and_logits(theta: Array, x: Array, weights: Array, member: Member) -> tuple[float, Array]:
    """Return the penalty of the mean loss, and the logits."""
    n, k = x.shape
    total = weights.sum()
    q = np.exp(x)
    width = member.width(k)
    matrix, v, t = (
        theta[: k * width].reshape(k, width),
        theta[k * width :][:k],
        theta[k * width + k :],
    )
    b, rest = matrix[:, -1], matrix[:, :-1]
    factor = np.ones((n, k)) + v
    if member.shared is not None:
        entropy = -(q * x).sum(axis=1) / np.log(k)
        two = np.sort(q, axis=1)[:, -2:]
        said = two[:, 1] - 0.5, entropy - 0.3, two[:, 1] - two[:, 0] - 0.5, two[:, 1] ** 2 - 0.3
        factor = factor + (np.stack(said, axis=1) @ t)[:, None]
    z = x * factor + b
    value = member.intercept * k / total * (b @ b) + member.diagonal * k / total * (v @ v)
    value += (member.shared or 0) / total * (t @ t)
    inputs = {"probability": 4 * q, "logarithm": x - x.mean(axis=1, keepdims=True)}
    for name, pair in zip(inputs, (member.probability, member.logarithm), strict=True):
        if pair is not None:
            own, rest = rest[:, :k], rest[:, k:]
            z = z + inputs[name] @ own.T
            d, off = np.diag(own), own - np.diag(np.diag(own))
            value += pair[0] * k / total * (d @ d) + pair[1] * k * (k - 1) / total * (off**2).sum()
    if member.directions is not None:
        u = np.linalg.svd(centered(x, weights), full_matrices=False)[2][: member.rank].T
        z = z + (x - x.mean(axis=1, keepdims=True)) @ u @ rest.T
        value += member.directions[1] * k * (k - 1) / total * (rest**2).sum()
    return float(value), z


def centered(x: Array, weights: Array) -> Array:
    x = x - x.mean(axis=1, keepdims=True)
    return (x - np.average(x, axis=0, weights=weights)) * np.sqrt(weights)[:, None]


@dataclass(eq=False, repr=False)
class Directed(StackedScaling):
    """The members of very many classes, for few."""

    def _members(self, k: int) -> dict[str, Member]:
        return {**PLAIN, "directions": PLAIN["directions"]._replace(directions=(2, 0.01))}


@pytest.mark.parametrize("name", MEMBERS)
def test_members_reach_the_optimum(name: str) -> None:
    z, y = data_set(150, 4)
    weights = np.random.default_rng(1).uniform(0.5, 2, 150)
    state = StackedScaling()._fit(z, y, weights, 0)
    scale = optimize.minimize_scalar(
        lambda s: -weights @ log_softmax(s * z, axis=1)[np.arange(150), y],
        bounds=(0.02, 50),
        method="bounded",
        options={"xatol": 1e-12},
    ).x
    assert state["inverse"] == pytest.approx(scale, rel=1e-5)
    e = 1 / (weights.sum() + 1)
    x = np.log((1 - e) * softmax(float(state["inverse"]) * z, axis=1) + e / 4)
    theta = state[f"theta_{name}"]
    own = objective(theta, x, y, weights, MEMBERS[name])
    found = optimize.minimize(
        objective, 0 * theta, (x, y, weights, MEMBERS[name]), method="BFGS", options={"gtol": 1e-6}
    )
    assert own <= found.fun * (1 + 1e-6)
    assert own == pytest.approx(found.fun, rel=1e-6)


def test_members_of_very_many_classes_reach_the_optimum() -> None:
    z, y = data_set(150, 4)
    weights = np.random.default_rng(1).uniform(0.5, 2, 150)
    method = Directed(inference="laplace", num_samples=200)
    state = method._fit(z, y, weights, 0)
    e = 1 / (weights.sum() + 1)
    x = np.log((1 - e) * softmax(float(state["inverse"]) * z, axis=1) + e / 4)
    losses = {}
    for name, member in method._members(4).items():
        theta = state[f"theta_{name}"]
        # Directions have any sign.
        turn = np.linalg.svd(centered(x, weights), full_matrices=False)[2][: member.rank]
        own = theta.copy()
        matrix = own[: 4 * (member.rank + 1)].reshape(4, -1)
        matrix[:, :-1] *= np.sign(np.sum(turn * state["basis"].T[: member.rank], axis=1))
        losses[name] = objective(own, x, y, weights, member)
        found = optimize.minimize(
            objective, 0 * theta, (x, y, weights, member), method="BFGS", options={"gtol": 1e-6}
        )
        assert losses[name] <= found.fun * (1 + 1e-6)
        assert losses[name] == pytest.approx(found.fun, rel=1e-6)
    assert losses["directions"] < losses["loose"]
    probs = method.apply(state, z)
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)
    draws = method._sample(state, z, y, weights, 0).coefficients
    mean, lower, upper = method._summary({**state, "theta_draws": draws}, z[:20], 0.9)
    assert np.abs(mean - probs[:20]).max() < 0.05
    assert ((lower < mean) & (mean < upper)).all()


def test_many_classes_confused_along_few_directions() -> None:
    """What matrices would learn, a few directions do."""
    rng = np.random.default_rng(0)
    k, n = 320, 4000
    place = rng.normal(size=(k, 3))
    z = rng.normal(size=(n, 3)) @ place.T * 2 + rng.normal(size=(n, k))
    true = z + (z @ place / k) @ rng.normal(size=(3, 3)) @ place.T
    y = (true + rng.gumbel(size=(n, k))).argmax(axis=1)
    state = StackedScaling()._fit(z[:2000], y[:2000], np.ones(2000), 0)
    names = list(PLAIN)
    assert state["basis"].shape == (k, PLAIN["directions"].rank)
    held = dict(zip(names, state["held_out_mean_losses"], strict=True))
    assert held["directions"] < held["loose"] - 0.01
    probs = StackedScaling().apply(state, z[2000:])
    best = log_softmax(true[2000:], axis=1)[np.arange(2000), y[2000:]].mean()
    loss = -np.log(probs[np.arange(2000), y[2000:]]).mean()
    assert loss < held["loose"]
    assert loss > -best


def test_confidence_features_are_about_zero_on_average() -> None:
    z, _ = data_set(2000, 5)
    x = log_softmax(z, axis=1)
    assert np.abs(confidence_features(x, np.exp(x)).mean(axis=0)).max() < 0.3


def test_parameters_of_a_smaller_member_say_the_same_in_a_larger_one() -> None:
    k, small, large = 3, MEMBERS["probability"], MEMBERS["both"]
    theta = np.random.default_rng(0).normal(size=len(penalties(small, k)))
    bigger = large.enlarge(theta, small, k)
    assert bigger.shape == penalties(large, k).shape
    z, y = data_set(50, k)
    x = log_softmax(z, axis=1)
    none = large._replace(
        intercept=0, diagonal=0, shared=0, probability=(0, 0), logarithm=(0, 0)
    )  # fmt: skip
    free = small._replace(intercept=0, diagonal=0, shared=0, probability=(0, 0))
    ones = np.ones(50)
    assert objective(bigger, x, y, ones, none) == pytest.approx(objective(theta, x, y, ones, free))


def test_weights_of_the_stack_maximize_their_posterior() -> None:
    rng = np.random.default_rng(0)
    held = np.log(rng.uniform(0.05, 0.95, (300, 3)) * [1, 0.9, 0.5])
    weights = rng.uniform(0.5, 2, 300)

    def loss(free: Array) -> float:
        share = softmax(free)
        return float(-weights @ np.log(np.exp(held) @ share) - np.log(share).sum())

    best = softmax(optimize.minimize(loss, np.zeros(3), options={"gtol": 1e-9}).x)
    np.testing.assert_allclose(mix(held, weights), best, atol=1e-4)


def test_posterior_of_a_stack() -> None:
    """Members' draws have their Laplace covariances; weights those of resampled rows."""
    z, y = data_set(120, 3)
    model = bc.StackedScaling(inputs="logits", inference="laplace", random_state=0).fit(z, y)
    draws = model.posterior_.draws
    assert draws["stack_weights"].shape == (1, 1000, 5)
    np.testing.assert_allclose(draws["stack_weights"].sum(axis=-1), 1)
    mean = draws["stack_weights"].mean(axis=(0, 1))
    np.testing.assert_allclose(mean, model.stack_weights_, atol=0.05)
    theta, name = model.state_["theta_vector"], "vector"
    np.testing.assert_allclose(draws["theta_vector"].mean(axis=(0, 1)), theta, atol=1e-4)
    e = 1 / 121
    x = np.log((1 - e) * softmax(model.inverse_ * z, axis=1) + e / 3)
    step, ones = 1e-4, np.ones(120)
    hessian = np.empty((6, 6))
    for i in range(6):
        for j in range(6):
            up, over = step * np.eye(6)[i], step * np.eye(6)[j]
            signs = ((1, up + over), (-1, up - over), (-1, over - up), (1, -up - over))
            total = sum(s * objective(theta + d, x, y, ones, MEMBERS[name]) for s, d in signs)
            hessian[i, j] = total / (4 * step**2)
    expected = np.sqrt(np.diag(np.linalg.inv(hessian)))
    found = draws["theta_vector"].std(axis=(0, 1))
    np.testing.assert_allclose(found, expected, rtol=0.12)
    counts = np.bincount(draws["member"][0].astype(int), minlength=5)
    np.testing.assert_allclose(counts / 1000, mean, atol=0.05)
    names, by_hand = list(MEMBERS), []
    for s in range(1000):
        member = names[int(draws["member"][0, s])]
        at = (1 - e) * softmax(draws["inverse"][0, s] * z[:4], axis=1) + e / 3
        own = draws[f"theta_{member}"][0, s]
        by_hand.append(softmax(logits_of(own, np.log(at), MEMBERS[member]), axis=1))
    np.testing.assert_allclose(model.predict_proba(z[:4]), np.mean(by_hand, axis=0), atol=1e-9)
    ends = np.quantile(by_hand, [0.05, 0.95], axis=0)
    np.testing.assert_allclose(model.predict_interval(z[:4]), ends, atol=1e-9)


@pytest.mark.slow
def test_intervals_cover_the_truth() -> None:
    """About nine in ten, and not all, as truth is drawn from no prior."""
    inside = []
    for seed in range(15):
        z, y = data_set(400, 3, seed)
        model = bc.StackedScaling(inputs="logits", inference="laplace", random_state=0).fit(z, y)
        at, _ = data_set(50, 3, seed + 100)
        lower, upper = model.predict_interval(at)
        truth = softmax(0.6 * at + 0.4 * np.roll(at, 1, axis=1) + [-0.5, 0, 0.5], axis=1)
        inside.append(((lower < truth) & (truth < upper)).mean())
    print(np.mean(inside), inside)
    assert 0.8 < np.mean(inside) < 0.97


def test_structure_is_learnt_where_rows_suffice() -> None:
    z, y = data_set(6000, 5)
    at, truth = data_set(20_000, 5, seed=9)
    losses = {
        name: metrics.log_loss(model.fit(z, y).predict_proba(at), truth)
        for name, model in {
            "stack": bc.StackedScaling(inputs="logits", random_state=0),
            "single": bc.StackedScaling("single", inputs="logits"),
            "temperature": bc.Temperature(inputs="logits"),
        }.items()
    }
    assert losses["stack"] < losses["single"] < losses["temperature"] - 0.02


def test_missing_classes_keep_a_shrunk_probability() -> None:
    z, y = data_set(60, 4)
    y[y == 3] = 0
    model = bc.StackedScaling(inputs="logits", classes=range(4), random_state=0).fit(z, y)
    p, before = model.predict_proba(z), softmax(z, axis=1)
    assert (p[:, 3] > 1e-4).all()
    assert p[:, 3].mean() < before[:, 3].mean()


def test_a_stack_knows_no_order_and_weights_are_repetition() -> None:
    z, y = data_set(200, 3)
    weights = np.random.default_rng(0).integers(1, 4, 200)
    order = np.random.default_rng(1).permutation(200)
    model = bc.StackedScaling(inputs="logits", random_state=0)
    found = [
        model.fit(z[rows], y[rows], own).predict_proba(z)
        for rows, own in (
            (np.arange(200), weights),
            (order, weights[order]),
            (np.repeat(order, weights[order]), None),
        )
    ]
    np.testing.assert_allclose(found[1:], [found[0]] * 2, atol=1e-6)


def test_permuted_classes_permute_the_stack() -> None:
    z, y = data_set(80, 4)
    order = np.array([2, 0, 3, 1])
    model = bc.StackedScaling(inputs="logits")
    expected = model.fit(z, y).predict_proba(z)[:, order]
    found = model.fit(z[:, order], np.argsort(order)[y]).predict_proba(z[:, order])
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_held_out_losses_are_of_the_mixture_without_the_fold() -> None:
    z, y = data_set(60, 3)
    model = bc.StackedScaling(inputs="logits", folds=2).fit(z, y)
    assert model.held_out_losses_.shape == (60,) and "held_out" not in model.state_
    folds = content_folds(score_keys(log_softmax(z, axis=1), y), y, 2)
    for fold in range(2):
        out = folds == fold
        state = bc.StackedScaling()._fit(z[~out], y[~out], np.ones((~out).sum()), 0)
        state["stack_weights"] = model.stack_weights_
        own = model.apply(state, z[out])[np.arange(out.sum()), y[out]]
        np.testing.assert_allclose(model.held_out_losses_[out], -np.log(own), atol=2e-2)
    model.set_params(mode="single").fit(z, y)
    assert not hasattr(model, "held_out_losses_") and model.member_names_ == ["probability"]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows(n: int) -> None:
    z, y = data_set(n, 3)
    model = bc.StackedScaling(inputs="logits", classes=range(3), random_state=0).fit(z, y)
    p = model.predict_proba(z)
    assert np.isfinite(p).all()
    assert (p > 1e-3).all()


@pytest.mark.realdata
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["kull_densenet40_c10", "gupta_resnet50_c10", "sctl_densenet40_c10_LT"]
)
def test_losses_are_those_of_the_prototype(arena: Path, shared_data: Path, name: str) -> None:
    with (arena / "reference.csv").open() as stream:
        rows = {row["experiment"]: row for row in csv.DictReader(stream)}
    paths = find_experiments([shared_data / "predictions"])
    data = read_experiment(f"cnn-{name}", paths[f"cnn-{name}"])
    model = bc.StackedScaling(inputs="logits", random_state=0).fit(data.scores, data.y)
    loss = metrics.log_loss(model.predict_proba(data.test_scores), data.test_y, eps=1e-15)
    assert loss == pytest.approx(float(rows[f"cnn-{name}"]["log_loss"]), abs=5e-4)
