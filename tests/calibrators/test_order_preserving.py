"""Order-preserving networks: exact order, and losses and training against plain code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayescal import metrics
from bayescal._core.minimization.optimize import Status
from bayescal._core.numerics import log_softmax, softmax
from bayescal.calibrators import OrderPreserving, Temperature
from bayescal.calibrators.multiclass.order_preserving import network
from bayescal.calibrators.multiclass.order_preserving.calibrator import _tabulated
from bayescal.calibrators.multiclass.order_preserving.network import Family, Nets
from bayescal.calibrators.multiclass.scale import fit_inverse
from bayescal.data.folds.deal import fold_scores
from bayescal.data.rows import Rows

FAMILIES: tuple[Family, Family] = ("diagonal", "full")


def draw_logits(n: int, k: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw logits, labels from a curved function of them, and weights."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, k)) * 4
    y = (curved(z) + rng.gumbel(size=(n, k))).argmax(axis=1)
    return z, y, rng.uniform(0.2, 3, n)


def curved(z: np.ndarray) -> np.ndarray:
    return 0.05 * z + 2 * np.tanh(z - 3)


def loss(p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    return float(np.average(-np.log(p[np.arange(len(y)), y]), weights=weights))


@functools.cache
def fit(family: Family) -> tuple[OrderPreserving, dict[str, np.ndarray]]:
    chosen = OrderPreserving(family, (5, 4))
    state = chosen._fit(Rows(*draw_logits(500)), seed=0)
    assert state["n_iter"] > 0
    return chosen, state


@pytest.fixture(scope="module", params=FAMILIES)
def fitted(request: pytest.FixtureRequest) -> tuple[OrderPreserving, dict[str, np.ndarray]]:
    return fit(request.param)


# --- order --------------------------------------------------------------------------------------

numbers = st.one_of(
    st.floats(-1e300, 1e300),
    st.floats(-10, 10),
    st.sampled_from([0.0, -0.0, 1.0, 1 + 2**-52, 1 - 2**-53, 5e-324, -5e-324, 1e-300, 1e50, 1e51]),
)


@given(data=st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=1, max_size=6))
def test_order_is_kept_exactly(
    fitted: tuple[OrderPreserving, dict[str, np.ndarray]], data: list[list[float]]
) -> None:
    z = np.array(data)
    p = fitted[0].apply(fitted[1], z)
    assert np.isfinite(p).all() and (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    first, second = z[:, :, None], z[:, None, :]
    assert (p[:, :, None] >= p[:, None, :])[first >= second].all()
    assert (p[:, :, None] == p[:, None, :])[first == second].all()


@pytest.mark.parametrize("spread", [1e-6, 1.0, 5.0])
def test_distinct_logits_stay_distinct(
    fitted: tuple[OrderPreserving, dict[str, np.ndarray]], spread: float
) -> None:
    z = np.random.default_rng(0).normal(size=(3000, 4)) * spread
    z[0] = [0.3, 0.1, 0.3, -2]
    p = fitted[0].apply(fitted[1], z)
    np.testing.assert_array_equal(np.argsort(p, axis=1)[1:], np.argsort(z, axis=1)[1:])
    assert p[0, 0] == p[0, 2]
    assert (np.diff(np.sort(p[1:], axis=1), axis=1) > 0).all()


# --- functions ----------------------------------------------------------------------------------


def test_diagonal_function_is_the_same_for_all_classes() -> None:
    chosen, state = fit("diagonal")
    knots, values, slope = state["knots"], state["values"], float(state["slope"])
    assert (np.diff(knots) > 0).all() and (np.diff(values) > 0).all() and slope > 0

    def g(x: float) -> float:
        if x <= knots[0]:
            return values[0] + slope * (x - knots[0])
        if x >= knots[-1]:
            return values[-1] + slope * (x - knots[-1])
        i = np.flatnonzero(knots <= x)[-1]
        part = (x - knots[i]) / (knots[i + 1] - knots[i])
        return float((1 - part) * values[i] + part * values[i + 1])

    z = np.random.default_rng(1).normal(size=(40, 4)) * 12
    expected = softmax(np.array([[g(x) for x in row] for row in z]))
    np.testing.assert_allclose(chosen.apply(state, z), expected, rtol=1e-10)


def test_full_function_against_its_matrices() -> None:
    chosen, state = fit("full")
    z = np.random.default_rng(1).normal(size=(30, 4)) * 5
    result = chosen.apply(state, z)
    for row, p in zip(z, result, strict=True):
        u = (row - state["center"]) / state["scale"]
        inner = np.tanh(u @ state["first"] + state["first_bias"])
        inner = np.tanh(inner @ state["second"] + state["second_bias"])
        factors = np.log1p(np.exp(inner @ state["last"] + state["last_bias"] + network.UNIT))
        sorting = np.eye(4)[np.argsort(-row)]
        differences = -np.diff(sorting @ row)
        w = np.append(differences * factors * np.exp(state["log_slope"]) / state["scale"], 0)
        logits = np.linalg.inv(sorting) @ np.triu(np.ones((4, 4))) @ w
        np.testing.assert_allclose(p, softmax(logits[None])[0], rtol=1e-9)


# --- training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_objective_is_the_log_loss_of_predictions(family: Family) -> None:
    z, y, weights = draw_logits(500)
    chosen, state = fit(family)
    assert state["objective"] == pytest.approx(loss(chosen.apply(state, z), y, weights), rel=1e-9)


def test_logits_are_interpolated_between_the_knots_beside_them() -> None:
    z = np.array([[-1.0, 2.0, 3.0], [-0.5, 0.0, 0.25]])
    knots = np.array([-1.0, 0.0, 0.5, 3.0])
    *_, index, part, index_of_label, part_of_label = _tabulated(z, np.array([1, 0]), knots, 0, 1)
    np.testing.assert_array_equal(index, [[0, 2, 2], [0, 1, 1]])
    np.testing.assert_allclose(part, [[0, 0.6, 1], [0.5, 0, 0.5]])
    np.testing.assert_array_equal(index_of_label, [2, 0])
    np.testing.assert_allclose(part_of_label, [0.6, 0.5])


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_training_starts_at_temperature_scaling(family: Family) -> None:
    z, y, weights = draw_logits(300)
    state = OrderPreserving(family, (3, 3))._fit(Rows(z, y, weights), seed=2)
    folds, total = fold_scores(z, y, weights, 5).fold, 0.0
    for f in range(5):
        kept = folds != f
        inverse = fit_inverse(Rows(z[kept], y[kept], weights[kept])).x
        scaled = log_softmax(inverse * z[~kept])
        total -= weights[~kept] @ scaled[np.arange(len(scaled)), y[~kept]]
    assert state["cv_losses"][0, 0] == pytest.approx(total / weights.sum(), rel=1e-9)
    temperature = Temperature()._fit(Rows(z, y, weights), seed=0)
    best = fit_inverse(Rows(z, y, weights)).x
    assert state["inverse"] == pytest.approx(best, rel=1e-9)
    # Without held-out rows no network of any size is trained.
    chosen = OrderPreserving(family)
    state = chosen._fit_folds(z, y, weights, 2, np.zeros(300, int))
    assert state["n_iter"] == 0
    np.testing.assert_allclose(
        chosen.apply(state, z), Temperature().apply(temperature, z), rtol=1e-9, atol=1e-300
    )


@pytest.mark.slow
@pytest.mark.computes
@pytest.mark.parametrize("family", FAMILIES)
def test_a_curved_function_is_found(family: Family) -> None:
    z, y, _ = draw_logits(3000, 3)
    test, labels, _ = draw_logits(20_000, 3, seed=1)
    ones = np.ones(len(labels))
    chosen = OrderPreserving(family)
    state = chosen._fit(Rows(z, y, np.ones(3000)), seed=0)
    result = loss(chosen.apply(state, test), labels, ones)
    truth = loss(softmax(curved(test)), labels, ones)
    scaled = Temperature().apply(Temperature()._fit(Rows(z, y, np.ones(3000)), seed=0), test)
    gained = (loss(scaled, labels, ones) - result) / (loss(scaled, labels, ones) - truth)
    assert gained > (0.9 if family == "diagonal" else 0.6)
    assert (state["status"] == Status.LIMIT) == (state["n_iter"] == 10 * network.MAX_CHECKS)
    assert state["cv_losses"].shape[0] == len(state["cv_hidden"])
    best = np.unravel_index(np.argmin(state["cv_losses"]), state["cv_losses"].shape)
    np.testing.assert_array_equal(state["hidden"], state["cv_hidden"][best[0]])
    assert state["n_iter"] == 10 * best[1]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_masked_units_change_nothing(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    original = network.train

    def listen(*arguments: Any) -> Any:
        calls.append((arguments, original(*arguments)))
        return calls[-1][1]

    monkeypatch.setattr(network, "train", listen)
    monkeypatch.setattr(
        "bayescal.calibrators.multiclass.order_preserving.calibrator._SIZES",
        {family: ((2, 3), (5, 4))},
    )
    OrderPreserving(family)._fit(Rows(*draw_logits(150)), seed=0)
    (_, start, data, nets), looks = calls[0]
    small = (nets.hidden == (2, 3)).all(axis=1)
    narrow = {name: value[small] for name, value in start.items()}
    narrow["first"], narrow["first_bias"] = narrow["first"][..., :2], narrow["first_bias"][..., :2]
    narrow["second"], narrow["second_bias"] = (
        narrow["second"][:, :2, :3],
        narrow["second_bias"][:, :3],
    )
    narrow["last"] = narrow["last"][:, :3]
    alone = Nets(nets.hidden[small], nets.train[:, small], nets.held[:, small])
    expected = original(family, narrow, data, alone)
    common = min(len(looks.train), len(expected.train))
    np.testing.assert_allclose(looks.train[:common, small], expected.train[:common], rtol=1e-6)
    np.testing.assert_allclose(looks.held[:common, small], expected.held[:common], rtol=1e-6)
    # The number of networks in memory may be limited as well.
    monkeypatch.setattr(network, "_ELEMENTS", 2 * 256 * 4)
    again = original(family, start, data, nets)
    np.testing.assert_allclose(again.train, looks.train, rtol=1e-6)


@pytest.mark.slow
def test_similar_sizes_share_a_compilation(compilations: Callable[[], Any]) -> None:
    for family in FAMILIES:
        OrderPreserving(family, (2, 2))._fit(Rows(*draw_logits(200)), seed=0)
        with compilations() as names:
            OrderPreserving(family, (2, 2))._fit(Rows(*draw_logits(256, seed=1)), seed=1)
        assert not [name for name in names if "advance" in name]


# --- input --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.realdata
def test_published_figures_of_densenet(shared_data: Path) -> None:
    data = np.load(shared_data / "predictions" / "kull_densenet40_c10.npz")
    chosen = OrderPreserving()
    state = chosen._fit(Rows(data["logits_val"], data["y_val"].astype(int), np.ones(5000)), seed=0)
    result = chosen.apply(state, data["logits_test"])
    # Published: log loss 0.225, ECE 0.80 %. Which size and how many iterations are best depends on
    # the folds: three partitions gave 0.2254, 0.2264 and 0.2268.
    assert metrics.log_loss(result, data["y_test"]) == pytest.approx(0.225, abs=2e-3)
    error = 100 * metrics.ece(result, data["y_test"], bins=15, binning="equal_mass")
    assert error == pytest.approx(0.80, abs=0.1)
    top = data["logits_test"].argmax(axis=1)
    np.testing.assert_array_equal(result.argmax(axis=1), top)


def test_training_is_settled_where_losses_are_no_numbers_or_nothing_is_held_out() -> None:
    nets = network.Nets(np.array([[2, 0], [3, 0]]), np.ones((4, 2)), np.ones((4, 2)))
    falling = np.linspace(5, 4, 3)[:, None] * np.ones(2)
    assert not network._settled(falling, nets)
    assert network._settled(np.where(falling == 4, np.nan, falling), nets)
    assert network._settled(falling, nets._replace(held=np.zeros((4, 2))))
    long = np.r_[np.linspace(5, 4, 3), np.full(network._PATIENCE + 1, 4.0)][:, None] * np.ones(2)
    assert network._settled(long, nets)
