"""Calibration by groups with partial pooling, against SciPy, quadrature and NUTS."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import bayescal as bc
from bayescal.calibrators.combine.pooling import deviations as _deviations
from bayescal.calibrators.combine.pooling import effects as _effects
from bayescal.calibrators.combine.pooling.columns import cross, make_column
from bayescal.calibrators.combine.pooling.deviations import fit_effects
from bayescal.calibrators.combine.pooling.effects import COMMON, HALF_NORMAL, fit_at, make_effects


def simulate(n: int, groups: int, tau: float, seed: int) -> tuple[np.ndarray, ...]:
    """Draw log odds, labels, groups with shifted log odds, and the shifts."""
    rng = np.random.default_rng(seed)
    z, group = 1.5 * rng.normal(size=n), rng.integers(0, groups, n)
    group[:groups] = np.arange(groups)
    shift = tau * rng.normal(size=groups)
    return z, (rng.random(n) < expit(z + shift[group])).astype(int), group, shift


def crossed(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, pd.DataFrame, np.ndarray]:
    """Draw log odds, labels, three group columns (one numeric), and the true probabilities."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(99)
    z = 1.5 * rng.normal(size=n)
    region, device = rng.integers(0, 5, n), rng.integers(0, 4, n)
    age = rng.normal(size=n)
    a, b = fixed.normal(0, 0.3, 5), fixed.normal(0, 0.3, 4)
    both, by_age = fixed.normal(0, 0.4, (5, 4)), fixed.normal(0, 0.4, (5, 2))
    slope = 1 + fixed.normal(0, 0.15, 5)
    old = (age > 0).astype(int)
    p = expit(
        z * slope[region] + a[region] + b[device] + both[region, device] + by_age[region, old]
    )
    frame = pd.DataFrame({"region": np.array([*"abcde"])[region], "device": device, "age": age})
    return z, (rng.random(n) < p).astype(int), frame, p


def log_loss(p: np.ndarray, truth: np.ndarray) -> float:
    return float(-(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean())


def test_effects_are_the_optimum_of_scipy() -> None:
    """Check the optimum at the fitted deviations, with indicator columns built by the test.

    Levels have so many rows that none is integrated by quadrature.
    """
    n = 8000
    z, y, frame, _ = crossed(n, 0)
    frame = frame.drop(columns="age")
    w = np.random.default_rng(0).integers(1, 4, n).astype(float)
    fitted = bc.PartialPooling(inputs="logits").fit(z, y, w, groups=frame)
    center = np.average(z, weights=w)
    x = (z - center) / np.sqrt(np.average((z - center) ** 2, weights=w))
    pair = frame["region"] + frame["device"].astype(str)
    spread = np.std(np.repeat(z, w.astype(int)))
    columns, precision = [np.ones(n), x], [COMMON[0] ** -2, COMMON[1] ** -2]
    for values, (offset, slope) in zip(
        (frame["region"], frame["device"], pair), fitted.deviations_.values(), strict=True
    ):
        for level in np.unique(values):
            inside = np.asarray(values == level, float)
            columns.append(inside)
            precision.append(offset**-2)
            if slope:
                columns.append(inside * x)
                precision.append((slope * spread) ** -2)
    design, strength = np.stack(columns, axis=1), np.array(precision)

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        eta = z + design @ theta
        value = w @ (np.logaddexp(0, eta) - y * eta) + 0.5 * strength @ theta**2
        return float(value), design.T @ (w * (expit(eta) - y)) + strength * theta

    best = minimize(objective, np.zeros(len(strength)), jac=True, method="L-BFGS-B", tol=1e-14,
                    options={"maxiter": 20_000, "maxfun": 20_000})  # fmt: skip
    expected = z + design @ best.x
    hessian = design.T @ (design * (w * expit(expected) * expit(-expected))[:, None])
    covariance = np.linalg.inv(hessian + np.diag(strength))
    variance = np.einsum("ij,jk,ik->i", design, covariance, design)
    middle, deviation = fitted._log_odds(z, frame, fitted._learned.fit)
    np.testing.assert_allclose(middle, expected, atol=2e-5)
    np.testing.assert_allclose(deviation, np.sqrt(variance), rtol=1e-5)


def test_evidence_is_that_of_quadrature() -> None:
    """Check two groups that differ only in their offsets, an integral over three numbers."""
    z, y, group, _ = simulate(300, 2, 0.5, 1)
    weights, codes = np.ones(300), np.array([[0, 1]])
    effects = make_effects(z, y.astype(float), weights, group, codes, [False], 0.0, 1e6)
    tau = np.array([0.7])
    result = fit_at(effects, tau, np.zeros(effects.layout.length))
    # The common slope has no effect: scores are divided by a million.
    nodes, mass = np.polynomial.hermite_e.hermegauss(60)
    mass = mass / mass.sum()
    logs = np.zeros((60, 60, 2))
    for level in (0, 1):
        rows = group == level
        eta = z[rows] + (nodes[:, None] * COMMON[0] + nodes * tau[0])[..., None]
        logs[..., level] = (y[rows] * eta - np.logaddexp(0, eta)).sum(axis=2)
    top = logs.max(axis=(0, 1))
    inner = np.exp(logs - top)
    # Groups are independent given the common offset.
    exact = np.log(mass @ np.prod(np.einsum("abl,b->al", inner, mass), axis=1)) + top.sum()
    exact -= 0.5 * (tau[0] / HALF_NORMAL[0]) ** 2
    assert result.log_evidence == pytest.approx(exact, abs=0.02)


def test_deviations_are_the_mode_of_the_evidence() -> None:
    z, y, group, _ = simulate(3000, 20, 0.5, 3)
    fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=group)
    tau = fitted._learned.fit.tau
    weights, codes = np.ones(len(z)), np.arange(20)[None]
    args = fitted._center, fitted._spread
    effects = make_effects(z, y.astype(float), weights, group, codes, [True], *args)
    grid = np.geomspace(0.1, 2, 61)
    values = [
        fit_at(effects, np.array([candidate, tau[1]]), np.zeros(effects.layout.length)).log_evidence
        for candidate in grid
    ]
    # The update ignores how the curvature at the mode depends on the deviation.
    assert tau[0] == pytest.approx(grid[int(np.argmax(values))], rel=0.05)
    assert 0.3 < tau[0] < 0.7


@pytest.mark.parametrize("rows", [2, 5])
def test_levels_with_few_rows_against_quadrature(rows: int) -> None:
    """Check 1,000 levels, where Laplace alone would find 0.6 and 0.8 of the deviation."""
    z, y, group, _ = simulate(1000 * rows, 1000, 1.5, rows)
    order = np.argsort(group)
    z, y, group = z[order], y[order], group[order]
    starts, spread = np.searchsorted(group, np.arange(1000)), float(np.std(z))
    weights, codes = np.ones(len(z)), np.arange(1000)[None]
    args = weights, group, codes, [False], 0.0, spread
    effects = make_effects(z, y.astype(float), *args)
    nodes = np.linspace(-6.0, 6.0, 81)

    def logs(theta: np.ndarray) -> np.ndarray:
        """Compute the joint log density (levels, nodes) of labels and standardized offsets."""
        tau, offset, slope = theta
        eta = (z * (1 + slope) + offset)[:, None] + np.exp(tau) * nodes
        total = np.add.reduceat(y[:, None] * eta - np.logaddexp(0, eta), starts)
        return total - 0.5 * nodes**2

    def objective(theta: np.ndarray) -> float:
        prior = np.exp(2 * theta[0]) + theta[1] ** 2 + (theta[2] * spread / 0.5) ** 2
        return float(0.5 * prior - logsumexp(logs(theta), axis=1).sum())

    best = minimize(objective, [0.3, 0.0, 0.0]).x
    # The common effects are still approximated.
    assert fit_effects(effects).tau == pytest.approx(np.exp(best[:1]), rel=0.01)
    result = fit_at(effects, np.exp(best[:1]), np.zeros(effects.layout.length))
    common = [best[1], best[2] * spread]
    np.testing.assert_allclose(result.theta[effects.layout.kept], common, atol=2e-3)
    share = softmax(logs(best), axis=1)
    mean = np.exp(best[0]) * share @ nodes
    deviation = np.sqrt(np.exp(2 * best[0]) * share @ nodes**2 - mean**2)
    index = effects.layout.eliminated[:, 0]
    np.testing.assert_allclose(result.theta[index], mean, atol=5e-3)
    stated = np.sqrt(result.covariance.diagonal(effects.layout)[index])
    # The reported deviation includes the uncertainty of the common effects.
    np.testing.assert_allclose(stated, deviation, rtol=0.01)


def test_intervals_of_thousands_of_levels_cover_their_offsets() -> None:
    """Check 10,000 levels in one compact matrix; the standard error of coverage 0.9 is 0.003."""
    z, y, group, shift = simulate(50_000, 10_000, 1.0, 0)
    fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=group)
    effects = fitted.group_effects(0.9)
    assert [effect.level for effect in effects] == [(level,) for level in range(10_000)]
    inside = [
        effect.lower <= value <= effect.upper for effect, value in zip(effects, shift, strict=True)
    ]
    assert 0.88 < np.mean(inside) < 0.92
    lower, upper = fitted.predict_interval(np.ones(10_000), groups=np.arange(10_000))
    truth = expit(1.0 + shift)
    assert 0.88 < np.mean((lower <= truth) & (truth <= upper)) < 0.92


def test_crossings_and_numbers() -> None:
    """Compare with log losses 0.4999 (true probabilities), 0.527 (raw), 0.513 (main effects)."""
    z, y, frame, _ = crossed(20_000, 7)
    new, _, groups, truth = crossed(100_000, 1234)
    fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=frame)
    assert log_loss(fitted.predict_proba(new, groups=groups)[:, 1], truth) < 0.5015
    assert ("region", "age") in fitted.groupings_
    alone = bc.PartialPooling(1, inputs="logits").fit(z, y, groups=frame)
    assert log_loss(alone.predict_proba(new, groups=groups)[:, 1], truth) > 0.51
    assert fitted.log_evidence_ > alone.log_evidence_ + 50


def test_weights_orders_and_names() -> None:
    z, y, frame, _ = crossed(500, 2)
    w = np.random.default_rng(2).integers(0, 4, 500)
    new, _, groups, _ = crossed(50, 3)
    fitted = bc.PartialPooling(inputs="logits").fit(z, y, w, groups=frame)
    expected = fitted.predict_proba(new, groups=groups)
    repeated = np.repeat(np.arange(500), w)
    order = np.random.default_rng(0).permutation(500)
    others = [
        bc.PartialPooling(inputs="logits").fit(
            z[repeated], y[repeated], groups=frame.iloc[repeated]
        ),
        bc.PartialPooling(inputs="logits").fit(
            z[order], y[order], w[order], groups=frame.iloc[order]
        ),
        bc.PartialPooling().fit(expit(z), y, w, groups=frame),
        bc.PartialPooling(inputs="logits").fit(z, y, w, groups=pl.from_pandas(frame)),
    ]
    for i, other in enumerate(others):
        at = expit(new) if i == 2 else new
        np.testing.assert_allclose(other.predict_proba(at, groups=groups), expected, atol=1e-7)
    columns = frame[["age", "region", "device"]]
    turned = bc.PartialPooling(inputs="logits").fit(z, y, w, groups=columns)
    np.testing.assert_allclose(turned.predict_proba(new, groups=groups), expected, atol=1e-4)
    # Columns of frames are matched by name.
    again = fitted.predict_proba(new, groups=groups[["device", "age", "region"]])
    np.testing.assert_array_equal(again, expected)
    swapped = bc.PartialPooling(inputs="logits").fit(-z, 1 - y, w, groups=frame)
    np.testing.assert_allclose(
        swapped.predict_proba(-new, groups=groups)[:, ::-1], expected, atol=1e-6
    )


def test_columns_of_new_scores_may_have_another_order() -> None:
    z, y, group, _ = simulate(100, 2, 1.0, 0)
    labels = np.array(["no", "yes"])[y]
    frame = pd.DataFrame({"p_yes": expit(z), "p_no": expit(-z)})
    expected = bc.PartialPooling().fit(expit(z), labels, groups=group)
    fitted = bc.PartialPooling().fit(frame, labels, groups=group)
    for scores in (frame, frame[["p_no", "p_yes"]]):
        actual = fitted.predict_proba(scores, groups=group)
        np.testing.assert_allclose(actual, expected.predict_proba(expit(z), groups=group), 1e-6)


def test_unknown_and_missing_levels() -> None:
    z, y, group, _ = simulate(3000, 6, 1.0, 5)
    labels = np.array(["a", "b", "c", "d", "e", None], object)[group]
    fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=labels)
    at = fitted.predict_proba(np.zeros(3), groups=np.array(["a", None, "new"], object))[:, 1]
    missing = fitted.predict_proba(np.zeros(1), groups=[np.nan])[:, 1]
    assert missing[0] == at[1] and len({*at.round(6)}) == 3
    lower, upper = fitted.predict_interval(np.zeros(2), groups=np.array(["a", "new"], object))
    assert (upper - lower)[1] > 2 * (upper - lower)[0]
    # The effects of unknown levels are drawn from their prior.
    numbers = bc.PartialPooling(inputs="logits").fit(z, y, groups=np.where(group == 0, np.nan, z))
    assert np.isfinite(numbers.predict_proba([0.0, 0.0], groups=[np.nan, 0.3])).all()


def test_numbers_may_be_nullable_later() -> None:
    groups = np.linspace(0, 3, 40).round()
    scores, y = np.linspace(-2, 2, 40), np.arange(40) % 3 == 0
    fitted = bc.PartialPooling(inputs="logits").fit(scores, y, groups=groups)
    nullable = fitted.predict_proba([0.0, 0.0], groups=pd.array([2, None], dtype="Int64"))
    expected = fitted.predict_proba([0.0, 0.0], groups=np.array([2.0, np.nan]))
    np.testing.assert_array_equal(nullable, expected)


@pytest.mark.parametrize(
    ("given", "other"),
    [([1, 2], ["3", "1"]), (["1", "2"], [2, 3]), ([True, False], ["yes", "True"])],
)
def test_labels_of_another_type_are_not_unknown(given: list[Any], other: list[Any]) -> None:
    groups = np.array(given, object)[np.arange(40) % 2]
    scores, y = np.linspace(-2, 2, 40), np.arange(40) % 3 == 0
    fitted = bc.PartialPooling(inputs="logits").fit(scores, y, groups=groups)
    with pytest.raises(ValueError, match="same type as in the fit, got .* in place of"):
        fitted.predict_proba([0.0, 0.0], groups=np.array(other, object))
    unknown = fitted.predict_proba([0.0, 0.0], groups=np.array([None, "none of these"], object))
    np.testing.assert_array_equal(unknown[0], unknown[1])


@pytest.mark.parametrize("make", [lambda g: pd.Series(g, dtype="Int64"), pl.Series])
def test_nullable_integers_are_labels_if_some_are_missing(make: Any) -> None:
    z, y, group, _ = simulate(2000, 12, 1.0, 5)
    labels = [None if g == 3 else int(g) for g in group]
    expected = bc.PartialPooling(inputs="logits").fit(z, y, groups=np.array(labels, object))
    column = make(labels)
    frame = pd.DataFrame({"g": column}) if isinstance(column, pd.Series) else column.to_frame()
    for groups in (column, frame):
        fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=groups)
        assert len(fitted.group_effects()) == len(expected.group_effects()) == 12
        probs = expected.predict_proba(z, groups=np.array(labels, object))
        np.testing.assert_allclose(fitted.predict_proba(z, groups=groups), probs, rtol=1e-9)


@pytest.mark.parametrize("kind", ["ns", "D", "date", "zone"])
def test_dates_are_the_same_levels_in_every_form(kind: str, tmp_path: Path) -> None:
    z, y, group, _ = simulate(200, 4, 2.0, 0)
    days = np.datetime64("2024-02-28") + group
    forms = {unit: days.astype(f"M8[{unit}]") for unit in ("D", "s", "us", "ns")}
    forms |= {"date": days.astype(object), "list": list(days)}
    forms |= {"zone": pd.Series(forms["ns"]).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")}
    fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=forms[kind])
    bc.save(fitted, tmp_path / "fitted")
    expected = (
        bc.PartialPooling(inputs="logits").fit(z, y, groups=group).predict_proba(z, groups=group)
    )
    for groups in forms.values():
        for model in (fitted, bc.load(tmp_path / "fitted")):
            np.testing.assert_allclose(model.predict_proba(z, groups=groups), expected, 1e-12)
    noon = fitted.predict_proba([0.0], groups=days[:1] + np.timedelta64(12, "h"))
    np.testing.assert_array_equal(noon, fitted.predict_proba([0.0], groups=["unknown"]))


def test_group_effects() -> None:
    z, y, group, shift = simulate(20_000, 4, 1.0, 6)
    names = np.array(["north", "south", "east", "west"])[group]
    frame = pd.DataFrame({"region": names})
    result = bc.PartialPooling(inputs="logits").fit(z, y, groups=frame).group_effects()
    assert [effect.level for effect in result] == [("east",), ("north",), ("south",), ("west",)]
    assert all(
        effect.columns == ("region",) and effect.lower < effect.offset < effect.upper
        for effect in result
    )
    assert [effect.weight for effect in result] == [float((group == i).sum()) for i in (2, 0, 1, 3)]
    offsets = np.array([effect.offset for effect in result])
    # Offsets are determined up to a constant shared by all groups.
    expected = shift[[2, 0, 1, 3]]
    np.testing.assert_allclose(offsets - offsets.mean(), expected - expected.mean(), atol=0.12)


def test_numbers_are_cut_at_weighted_quantiles() -> None:
    values = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9, np.nan])
    column = make_column(values, np.ones(10), 3)
    assert column.cuts is not None and column.cuts.tolist() == [3.5, 6.5]
    assert column.codes(values).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    heavy = make_column(values, np.r_[9.0, np.ones(9)], 2)
    assert heavy.cuts is not None and heavy.cuts.tolist() == [1.5]
    heavy_end = make_column(values, np.r_[np.ones(8), 20.0, 1.0], 3)
    assert heavy_end.cuts is not None and heavy_end.cuts.tolist() == []
    few = make_column(np.array([0.0, 1.0, 0.5, 1.0]), np.ones(4), 2)
    assert few.cuts is not None and few.cuts.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("offset", [[1.5, -1.5, 1.5, -1.5, 1.5], [1.0, -1.0]])
def test_the_evidence_chooses_into_how_many_groups_numbers_are_cut(offset: list[float]) -> None:
    rng = np.random.default_rng(0)
    age, z = rng.permutation(4000) / 4000, rng.normal(scale=1.5, size=4000)
    y = (rng.random(4000) < expit(z + np.array(offset)[(len(offset) * age).astype(int)])).astype(
        int
    )
    effects = bc.PartialPooling(inputs="logits").fit(z, y, groups=age).group_effects()
    result = np.array([effect.offset for effect in effects])
    assert len(result) == len(offset)
    np.testing.assert_allclose(result - result.mean(), offset - np.mean(offset), atol=0.25)


def test_what_is_wrong_is_said() -> None:
    z, y, group, _ = simulate(60, 3, 0.5, 0)
    model = bc.PartialPooling(inputs="logits")
    for wrong, message in (
        (dict(groups=group[:-1]), "groups must have 60 rows"),
        (dict(groups=np.zeros((60, 2, 2))), r"shape \(n,\) or \(n, g\)"),
        (dict(groups=[[1, {}]] * 60), "hashable"),
        (dict(groups=np.arange(60), sample_weight=-np.ones(60)), "sample_weight"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            model.fit(z, y, **wrong)
    many = np.random.default_rng(0).integers(0, 2500, (6000, 2))
    with pytest.raises(ValueError, match=r"\(4,546\) must be at most 4,000"):
        model.fit(np.zeros(6000), np.arange(6000) % 2, groups=many)
    with pytest.raises(ValueError, match="interactions must be at least 1"):
        bc.PartialPooling(0).fit(expit(z), y, groups=group)
    fitted = model.fit(z, y, groups=pd.DataFrame({"a": group}))
    with pytest.raises(ValueError, match="columns"):
        fitted.predict_proba(z, groups=pd.DataFrame({"b": group}))
    with pytest.raises(ValueError, match="1 columns as in the fit"):
        fitted.predict_proba(z, groups=np.stack([group, group], axis=1))
    with pytest.raises(ValueError, match="level"):
        fitted.predict_interval(z, 1.0, groups=group)


def test_a_fit_that_fails_leaves_the_earlier_one() -> None:
    z, y, frame, _ = crossed(300, 0)
    fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=frame)
    expected, kept = fitted.predict_proba(z, groups=frame), dict(vars(fitted))
    wrong: Any = (
        (np.full(300, np.nan), y, frame),
        (z, np.arange(300), frame),
        (z, y, frame[:200]),
        (z, y, [[{}]] * 300),
    )
    for scores, labels, groups in wrong:
        with pytest.raises((ValueError, TypeError)):
            fitted.fit(scores, labels, groups=groups)
        now = vars(fitted)
        assert now.keys() == kept.keys() and all(now[name] is kept[name] for name in kept)
    fitted.set_params(inputs="probs", interactions=1)  # for the next fit
    np.testing.assert_array_equal(fitted.predict_proba(z, groups=frame), expected)


def test_numbers_of_single_and_double_precision_are_in_the_same_groups() -> None:
    rng = np.random.default_rng(0)
    for values in (rng.integers(0, 7, 600) / 10, rng.integers(0, 100, 600) / 100):
        single = make_column(values.astype(np.float32), np.ones(600), 5)
        double = make_column(values, np.ones(600), 5)
        for given in (values, values.astype(np.float32)):
            np.testing.assert_array_equal(single.codes(given), double.codes(values))


def test_equal_scores() -> None:
    """Check that other scores get the group's shift, without a slope caused by rounding."""
    _, _, group, shift = simulate(4000, 4, 1.0, 3)
    p = np.full(4000, 0.7)
    y = (np.random.default_rng(1).random(4000) < expit(np.log(7 / 3) + shift[group])).astype(int)
    # Equal up to rounding, like sums in different orders.
    p *= 1 + 1e-15 * np.random.default_rng(2).integers(-2, 3, 4000)
    fitted = bc.PartialPooling().fit(p, y, groups=group)
    rates = [y[group == i].mean() for i in range(4)]
    np.testing.assert_allclose(fitted.predict_proba(p[:4], groups=range(4))[:, 1], rates, atol=0.02)
    elsewhere = fitted.predict_proba(np.full(4, 0.3), groups=range(4))[:, 1]
    expected = expit(np.log(3 / 7) + shift)
    np.testing.assert_allclose(elsewhere, expected, atol=0.25)


def test_one_row_alone_is_as_among_others() -> None:
    z, y, frame, _ = crossed(400, 5)
    fitted = bc.PartialPooling(inputs="logits").fit(z.astype(np.float32), y, groups=frame)
    together = fitted.predict_proba(z, groups=frame)
    for i in range(0, 400, 57):
        alone = fitted.predict_proba(z[i : i + 1], groups=frame[i : i + 1])
        np.testing.assert_allclose(alone[0], together[i], rtol=1e-14)


def test_it_must_be_fitted_first() -> None:
    for name in ("predict_proba", "predict_interval", "predict"):
        with pytest.raises(NotFittedError):
            getattr(bc.PartialPooling(), name)([0.5], groups=["a"])
    with pytest.raises(NotFittedError):
        bc.Multicalibration().predict([0.5], [[True]])
    with pytest.raises(NotFittedError):
        bc.PartialPooling().group_effects()


@pytest.mark.parametrize("rows", ["one class", "two rows", "far scores", "one group each"])
def test_extreme_rows(rows: str) -> None:
    z, y, group, _ = simulate(40, 4, 0.5, 1)
    classes: Any = (0, 1)
    if rows == "one class":
        y = np.ones_like(y)
    elif rows == "two rows":
        z, y, group = z[:2], np.array([0, 1]), group[:2]
    elif rows == "far scores":
        z = 700 * z
    else:
        group = np.arange(40)
    fitted = bc.PartialPooling(inputs="logits", classes=classes).fit(z, y, groups=group)
    p = fitted.predict_proba(z, groups=group)
    lower, upper = fitted.predict_interval(z, groups=group)
    assert fitted.status_ == "converged" and np.isfinite(p).all()
    assert (lower <= upper).all() and (lower >= 0).all() and (upper <= 1).all()


@pytest.mark.parametrize("seed", [5, 19])
def test_far_scores_of_crossed_groups_give_numbers(seed: int) -> None:
    """Check several group columns, whose loss is nearly piecewise linear."""
    z, y, group, _ = simulate(400, 12, 0.5, seed)
    z, other = 50 * z, np.random.default_rng(seed).integers(0, 3, len(z))
    columns = np.stack([group, other], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=columns)
    p = fitted.predict_proba(z, groups=columns)[:, 1]
    assert np.isfinite(list(fitted.deviations_.values())).all()
    before = np.logaddexp(0, np.where(y == 1, -z, z)).mean()
    assert bc.metrics.log_loss(p, y) < 0.5 * before


def test_rare_events_in_many_groups() -> None:
    """Compare intervals with rules that are exact enough for the widest of the averaged priors."""
    rng = np.random.default_rng(0)
    z, group = rng.normal(-5, 1.2, 1000), rng.integers(100, size=1000)
    y = rng.random(1000) < expit(z + rng.normal(0, 0.7, 100)[group])
    fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=group)
    assert fitted.status_ == "converged"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_effects, "_RULES", {1: _effects._rule(31), 2: _effects._rule(31, 9)})
        exact = bc.PartialPooling(inputs="logits").fit(z, y, groups=group)
    for ends, expected in zip(
        fitted.predict_interval(z, groups=group),
        exact.predict_interval(z, groups=group),
        strict=True,
    ):
        np.testing.assert_allclose(ends, expected, rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "groups", "tau"), [(300, 8, 0.3), (2500, 25, 0.7)])
def test_intervals_hold_the_truth(n: int, groups: int, tau: float) -> None:
    inside = []
    for seed in range(120):
        z, y, group, shift = simulate(n, groups, tau, seed)
        fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=group)
        ends = [(effect.lower, effect.upper) for effect in fitted.group_effects()]
        lower, upper = np.array(ends).T
        inside.append(((lower <= shift) & (shift <= upper)).mean())
    error = np.std(inside) / np.sqrt(len(inside))
    assert 0.86 - 2 * error < np.mean(inside) < 0.93 + 2 * error


@pytest.mark.slow
def test_effects_are_those_of_nuts() -> None:
    """Compare with NUTS on the same NumPyro model, including the standard deviations."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    z, y, group, _ = simulate(1500, 12, 0.6, 8)
    x = (z - z.mean()) / z.std()
    center, labels = float(z.mean() / z.std()), jnp.asarray(y, jnp.float32)
    scores, standard = jnp.asarray(z, jnp.float32), jnp.asarray(x, jnp.float32)

    def model() -> Any:
        tau: Any = numpyro.sample("tau", dist.HalfNormal(HALF_NORMAL[0]))
        turn: Any = numpyro.sample("turn", dist.HalfNormal(HALF_NORMAL[1]))
        a0: Any = numpyro.sample("a0", dist.Normal(0, COMMON[0]))
        a1: Any = numpyro.sample("a1", dist.Normal(0, COMMON[1]))
        with numpyro.plate("groups", 12):
            beta: Any = numpyro.sample("beta", dist.Normal(0, 1))
            beta = tau * beta
            alpha: Any = numpyro.sample("alpha", dist.Normal(0, 1))
            alpha = turn * alpha
        eta = scores + a0 + a1 * standard + beta[group] + alpha[group] * standard
        numpyro.deterministic("at_zero", a0 + beta - (a1 + alpha) * center)
        numpyro.factor("likelihood", jnp.sum(labels * eta - jnp.logaddexp(0.0, eta)))

    sampler = MCMC(NUTS(model), num_warmup=1000, num_samples=4000, progress_bar=False)
    with jax.numpy_dtype_promotion("standard"):
        sampler.run(jax.random.key(0))
    draws = np.asarray(sampler.get_samples()["at_zero"])
    fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=group)
    lower, upper = fitted.predict_interval(np.zeros(12), groups=np.arange(12))
    low, high = expit(np.quantile(draws, [0.05, 0.95], axis=0))
    np.testing.assert_allclose(lower, low, atol=0.025)
    np.testing.assert_allclose(upper, high, atol=0.025)
    mean = fitted.predict_proba(np.zeros(12), groups=np.arange(12))[:, 1]
    np.testing.assert_allclose(mean, expit(draws).mean(axis=0), atol=0.015)


@pytest.mark.parametrize("interactions", [1, 2])
def test_files(interactions: int, tmp_path: Path) -> None:
    z, y, frame, _ = crossed(800, 3)
    frame["region"] = frame["region"].where(frame.index % 7 > 0, None)
    y = np.where(y == 1, "yes", "no")
    fitted = bc.PartialPooling(interactions, inputs="logits").fit(z, y, groups=frame)
    bc.save(fitted, tmp_path / "pooled.safetensors")
    again = bc.load(tmp_path / "pooled.safetensors")
    new = frame.assign(device=frame["device"] + (frame.index % 5 == 0) * 9)
    for method in ("predict_proba", "predict_interval", "predict"):
        a, b = (getattr(model, method)(z, groups=new) for model in (fitted, again))
        assert np.array_equal(a, b)
    assert again.deviations_ == fitted.deviations_
    assert again.groupings_ == fitted.groupings_
    assert [e[:4] for e in again.group_effects()] == [e[:4] for e in fitted.group_effects()]
    for one in ([0.3], np.array([0.3])):
        alone = bc.PartialPooling().fit([0.2, 0.7, 0.4], [0, 1, 0], groups=[True, False, True])
        bc.save(alone, tmp_path / "alone.safetensors")
        loaded = bc.load(tmp_path / "alone.safetensors")
        same = loaded.predict_proba(one, groups=[True]) == alone.predict_proba(one, groups=[True])
        assert same.all()


def test_weights_that_are_no_counts_have_no_unit() -> None:
    """Check that fractional weights count by their effective number of rows, and counts as rows."""
    z, y, group, _ = simulate(200, 4, 0.5, 3)
    w = np.random.default_rng(0).uniform(0.5, 2, 200)

    def fit(weights: np.ndarray) -> np.ndarray:
        model = bc.PartialPooling(inputs="logits").fit(z, y, groups=group, sample_weight=weights)
        return model.predict_proba(z, groups=group)

    np.testing.assert_allclose(fit(w), fit(7.3 * w), atol=1e-12)
    ones = np.ones(200)
    twice = bc.PartialPooling(inputs="logits").fit(
        *(np.tile(a, 2) for a in (z, y)), groups=np.tile(group, 2)
    )
    np.testing.assert_allclose(fit(2 * ones), twice.predict_proba(z, groups=group), atol=1e-6)
    assert np.abs(fit(ones) - fit(2 * ones)).max() > 1e-3


def test_a_number_that_never_changes_is_one_level() -> None:
    z, y, _, _ = simulate(100, 4, 0.5, 3)
    effects = bc.PartialPooling(inputs="logits").fit(z, y, groups=np.full(100, 1.5)).group_effects()
    assert [effect.level for effect in effects] == [("all",)]
    assert make_column(np.array([1.0, 2.0]), np.ones(2), 5).names() == [
        "<= 1.5",
        "> 1.5",
        "missing",
    ]


def test_columns_with_too_many_levels_to_number_are_not_crossed() -> None:
    codes = np.random.default_rng(0).integers(0, 3, (3, 50))
    result, levels = cross(codes, [2**40, 3, 2**40], 2)
    assert [grouping.columns for grouping in result] == [(0,), (1,), (2,), (0, 1), (1, 2)]
    for grouping, level_codes in zip(result, levels, strict=True):
        pairs = np.unique(codes[list(grouping.columns)], axis=1, return_inverse=True)[1]
        assert len({*zip(level_codes, pairs.ravel(), strict=True)}) == len(np.unique(level_codes))


def test_fits_whose_rounds_run_out_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    z, y, group, _ = simulate(400, 6, 0.8, 1)
    model = bc.PartialPooling(inputs="logits")
    expected = model.fit(z, y, groups=group).predict_proba(z, groups=group)
    monkeypatch.setattr(_deviations, "_ROUNDS", 0)
    with pytest.warns(ConvergenceWarning, match="stopped before its optimum"):
        few = model.fit(z, y, groups=group).predict_proba(z, groups=group)
    assert model.status_ == "limit"
    assert np.abs(few - expected).max() > 0.01


@pytest.mark.parametrize("spread", [0.02, 0.3, 2.0])
def test_probabilities_are_means_over_the_posterior_far_from_the_scores(spread: float) -> None:
    """Check far scores, whose log odds may have standard deviations of 100."""
    rng = np.random.default_rng(0)
    z = spread * rng.normal(size=60)
    y, group = (rng.random(60) < expit(z)).astype(int), rng.integers(0, 3, 60)
    fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=group)
    at = np.linspace(-60, 60, 81)
    groups = np.resize([0, 7], len(at))
    middle, deviation = fitted._log_odds(at, groups, fitted._learned.fit)
    node = np.linspace(-12, 12, 20_001)
    mass = np.exp(-(node**2) / 2)
    mass /= mass.sum()
    exact = np.stack([expit(s * (middle + deviation * node[:, None])) for s in (-1, 1)], axis=2)
    expected = np.einsum("n,nmk->mk", mass, exact)
    result = fitted.predict_proba(at, groups=groups)
    np.testing.assert_allclose(result, expected, atol=5e-6)
    assert deviation.max() > (100 if spread == 0.02 else 5)
    assert result.min() > 0
    # Small probabilities are not computed as one minus the other.
    tiny = expected < 1e-18
    np.testing.assert_allclose(np.log(result[tiny]), np.log(expected[tiny]), rtol=0.01)
