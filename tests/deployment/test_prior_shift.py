"""Changed class proportions, against quadrature, grids, formulas and simulated truth."""

import pickle
import warnings
from copy import copy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit, log_expit, log_softmax, logit, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import bayescal as bc
from bayescal.data import history

SEPARATION = 2.4


def draw(n: int, share: float, seed: int, width: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Draw log odds that are calibrated for balanced classes, with labels."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    return SEPARATION * (width * rng.normal(size=n) + SEPARATION * (y - 0.5)), y


def draw_many(n: int, shares: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw logits that are calibrated for equal class proportions, with labels."""
    rng = np.random.default_rng(seed)
    k = len(shares)
    y = rng.choice(k, n, p=shares)
    return 2 * (rng.normal(size=(n, k)) + 2 * np.eye(k)[y]), y


def fitted_calibrator(n: int = 400, seed: int = 0) -> Any:
    return bc.Logistic(inputs="logits").fit(*draw(n, 0.5, seed))


# --- the posterior ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "share", "alpha"),
    [(1, 0.5, (1.0, 1.0)), (40, 0.2, (2.0, 5.0)), (280, 0.01, (1.0, 1.0)), (3000, 0.3, (2.0, 5.0))],
)
def test_two_classes_are_integrated_exactly(
    m: int, share: float, alpha: tuple[float, float]
) -> None:
    scores, _ = draw(m, share, 1)
    p, pi = expit(scores), 0.4
    prior = dist.Beta(alpha[1], alpha[0])
    shift = bc.PriorShift(class_prior=prior, calibration_shares=pi).fit(p)

    def log_density(rho: float) -> float:
        mixed = (1 - rho) * (1 - p) / (1 - pi) + rho * p / pi
        powers = (alpha[0] - 1) * np.log(1 - rho) + (alpha[1] - 1) * np.log(rho)
        return float(np.log(mixed).sum() + powers)

    grid = np.linspace(1e-6, 1 - 1e-6, 4001)
    heights = np.array([log_density(rho) for rho in grid])
    top, mode = heights.max(), grid[heights.argmax()]

    def integral(low: float, high: float, power: int = 0) -> float:
        inside = [mode] if low < mode < high else None
        density = lambda rho: rho**power * np.exp(log_density(rho) - top)  # noqa: E731
        return quad(density, low, high, points=inside, limit=400)[0]

    total = integral(0, 1)
    mean = integral(0, 1, 1) / total
    spread = np.sqrt(integral(0, 1, 2) / total - mean**2)
    assert shift.shares_[1] == pytest.approx(mean, abs=2e-3 * spread)
    lower, upper = (bounds[1] for bounds in shift.shares_interval(0.9))
    below = 0.0 if lower == 0 else 0.05
    assert integral(0, lower) / total == pytest.approx(below, abs=2e-3)
    assert integral(upper, 1) / total == pytest.approx(0.1 if lower == 0 else 0.05, abs=2e-3)


@pytest.mark.parametrize(("m", "alpha"), [(5, (0.05, 0.05)), (60, (0.1, 1.0))])
def test_means_and_predictions_of_two_classes(m: int, alpha: tuple[float, float]) -> None:
    """Check also concentrations with which much of the density lies at zero and one."""
    p, pi, points = expit(draw(m, 0.05, 2)[0]), 0.4, np.array([0.3, 0.9])
    prior = dist.Beta(alpha[1], alpha[0])
    plain = bc.PriorShift(class_prior=prior, calibration_shares=pi).fit(p)
    two = bc.PriorShift(class_prior=prior, calibration_shares=pi)
    two.fit(np.append(p, p), populations=np.repeat([0, 1], m))
    t = np.linspace(-600, 600, 100_001)
    share, rest = log_expit(t), log_expit(-t)
    density = alpha[0] * rest + alpha[1] * share
    for row in p:
        density += np.logaddexp(rest + np.log((1 - row) / (1 - pi)), share + np.log(row / pi))
    mass = np.exp(density - density.max())
    mass /= mass.sum()
    expected = [mass @ expit(t + logit(point) - logit(pi)) for point in points]
    for shares in (plain.shares_, *two.shares_):
        assert shares[1] == pytest.approx(mass @ expit(t), rel=1e-3)
    probs = plain.predict_proba(points)[:, 1], two.predict_proba(points, [0, 1])[:, 1]
    for second in probs:
        np.testing.assert_allclose(second, expected, rtol=0.006)


def test_small_concentrations_of_three_classes() -> None:
    """Compare with a grid of softmax coordinates, where the density has long tails."""
    logits, _ = draw_many(30, np.array([0.0, 0.2, 0.8]), 3)
    probs, alpha = softmax(logits, axis=1), np.array([0.1, 0.1, 0.1])
    shift = bc.PriorShift(
        class_prior=dist.Dirichlet(alpha), calibration_shares=np.full(3, 1 / 3)
    ).fit(probs)
    steps = np.linspace(-100, 100, 801)
    first, second = np.meshgrid(steps, steps)
    logs = log_softmax(np.stack([first, second, 0 * first], axis=-1).reshape(-1, 3), axis=1)
    density = logs @ alpha + np.log(np.exp(logs) @ probs.T).sum(axis=1)
    mass = np.exp(density - density.max())
    mass /= mass.sum()
    mean = mass @ np.exp(logs)
    spread = np.sqrt(mass @ np.exp(2 * logs) - mean**2)
    np.testing.assert_array_less(np.abs(shift.shares_ - mean), 0.1 * spread)


def test_three_classes_agree_with_a_grid() -> None:
    logits, _ = draw_many(60, np.array([0.1, 0.3, 0.6]), 0)
    probs, pi = softmax(logits, axis=1), np.array([0.3, 0.3, 0.4])
    shift = bc.PriorShift(calibration_shares=pi).fit(probs)
    steps = np.arange(0.5, 300) / 300
    first, second = (share.ravel() for share in np.meshgrid(steps, steps))
    inside = first + second < 1
    rho = np.stack([first, second, 1 - first - second], axis=1)[inside]
    density = np.log(rho @ (probs / pi).T).sum(axis=1)
    mass = np.exp(density - density.max())
    mass /= mass.sum()
    mean = mass @ rho
    spread = np.sqrt(mass @ rho**2 - mean**2)
    # 40 times 32 proposals.
    np.testing.assert_array_less(np.abs(shift.shares_ - mean), 0.15 * spread)
    lower, upper = shift.shares_interval(0.9)
    outside = [
        mass[(share < a) | (share > b)].sum()
        for share, a, b in zip(rho.T, lower, upper, strict=True)
    ]
    np.testing.assert_allclose(outside, 0.1, atol=0.03)


def test_known_shares_follow_the_formula() -> None:
    logits, _ = draw_many(20, np.full(3, 1 / 3), 0)
    probs, old, new = softmax(logits, axis=1), np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.1, 0.8])
    shift = bc.PriorShift(class_prior=new, calibration_shares=old).fit()
    expected = probs * new / old
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shift.predict_proba(probs), expected, atol=1e-12)
    np.testing.assert_array_equal(shift.shares_, new)
    np.testing.assert_array_equal(shift.shares_interval()[0], new)
    by_class: dict = {"c": 0.2, "a": 0.5, "b": 0.3}
    named = bc.PriorShift(class_prior=new, calibration_shares=by_class, classes=["a", "b", "c"])
    np.testing.assert_allclose(named.fit().predict_proba(probs), expected, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3])
def test_intervals_of_any_seed_hold_nine_tenths_of_the_posterior(k: int) -> None:
    """Compare intervals of 40 draws each with the 2,400 draws of all seeds together."""
    logits, y = draw_many(300, np.full(k, 1 / k), 0)
    probs, new = softmax(logits, axis=1), softmax(draw_many(40, np.full(k, 1 / k), 1)[0], axis=1)
    fits = [
        bc.PriorShift(class_prior=np.full(k, 1 / k), classes=k, random_state=seed).fit(
            calibration=(probs, y)
        )
        for seed in range(60)
    ]
    draws = []
    for fit in fits:
        theta, (ratio,) = fit.state_["theta"], fit.state_["log_ratio"]
        if k == 2:
            base = np.log(new[:, 1] / new[:, 0])
            terms = np.stack([base, 1 + 0 * base, np.tanh(base / 2) ** 2])
            log_odds = base + theta @ terms
            moved = np.stack([0 * log_odds, log_odds], axis=2)
        else:
            moved = (1 + theta[:, None, :1]) * np.log(new) + theta[:, None, 1:]
        draws.append(softmax(moved + ratio, axis=2))
    curves = np.concatenate(draws)[..., 1 if k == 2 else slice(None)]
    inside = []
    for fit in fits:
        lower, upper = fit.predict_interval(new, 0.9)
        inside.append(((lower <= curves) & (curves <= upper)).mean(axis=0))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)
    # Intervals of independent draws spread by 0.05.
    assert np.std(inside, axis=0).mean() < 0.035


@pytest.mark.parametrize("k", [2, 3])
def test_a_weight_repeats_the_row(k: int) -> None:
    rng = np.random.default_rng(0)
    shares = np.full(k, 1 / k)
    logits, y = draw_many(200, shares, 0)
    new = draw_many(100, shares, 1)[0]
    counts, new_counts = rng.integers(0, 4, 200), rng.integers(0, 4, 100)
    probs, others = (softmax(values, axis=1) for values in (logits, new))
    warnings.simplefilter("ignore", bc.AccuracyWarning)
    weighted = bc.PriorShift().fit(others, sample_weight=new_counts, calibration=(probs, y, counts))
    index, new_index = np.repeat(np.arange(200), counts), np.repeat(np.arange(100), new_counts)
    repeated = bc.PriorShift().fit(others[new_index], calibration=(probs[index], y[index]))
    # Bootstrap weights are different draws from one distribution.
    spread = repeated.shares_interval()[1] - repeated.shares_interval()[0]
    assert (np.abs(weighted.shares_ - repeated.shares_) < 0.15 * spread).all()
    known: Any = bc.PriorShift(calibration_shares=shares)
    one = copy(known).fit(others, sample_weight=new_counts).shares_
    np.testing.assert_allclose(one, copy(known).fit(others[new_index]).shares_, atol=2e-4)


@pytest.mark.parametrize("k", [2, 4])
def test_populations_equal_separate_fits(k: int) -> None:
    shares = np.full(k, 1 / k)
    logits, y = draw_many(300, shares, 0)
    calibrator = bc.Temperature(inputs="logits").fit(logits, y)
    sizes = {"a": 60, "b": 200, "c": 7}
    parts = {
        name: draw_many(size, np.random.default_rng(size).dirichlet(shares * k), size)[0]
        for name, size in sizes.items()
    }
    names = np.repeat([*sizes], [*sizes.values()])
    rows = np.concatenate([*parts.values()])
    order = np.random.default_rng(0).permutation(len(rows))
    together = bc.PriorShift(calibrator).fit(rows[order], populations=names[order])
    assert together.populations_.tolist() == [*sizes]
    assert len(together.check_) == 3
    predicted = together.predict_proba(rows[order], names[order])
    lower, upper = together.predict_interval(rows[order], 0.9, names[order])
    assert lower.shape == upper.shape == ((len(rows), k) if k > 2 else (len(rows),))
    for group, (name, part) in enumerate(parts.items()):
        alone = bc.PriorShift(calibrator).fit(part)
        np.testing.assert_allclose(together.shares_[group], alone.shares_, atol=1e-3)
        for one, other in zip(together.shares_interval(), alone.shares_interval(), strict=True):
            np.testing.assert_allclose(one[group], other, atol=5e-3)
        f = together.as_function(name)
        np.testing.assert_allclose(f(part), predicted[np.argsort(order)][names == name], atol=1e-9)


@pytest.mark.parametrize(
    ("labels", "turned"),
    [
        (("no", "yes"), ["yes", "no"]),
        ((0, 1), pd.RangeIndex(1, -1, -1)),  # as in pd.Series({1: 0.1, 0: 0.9}) of pandas 3
    ],
    ids=str,
)
def test_shares_and_costs_are_named_by_class(labels: tuple[Any, Any], turned: Any) -> None:
    p = np.linspace(0.05, 0.95, 40)
    y = np.array(labels)[(np.arange(40) % 3 > 0).astype(int)]
    calibrator = bc.Beta().fit(p, y)
    for shares in (pd.Series([0.1, 0.9], turned), dict(zip(turned, [0.1, 0.9], strict=True))):
        shift = bc.PriorShift(calibrator, shares).fit()
        np.testing.assert_allclose(shift.shares_, [0.9, 0.1])
    shift = bc.PriorShift(classes=labels, calibration_shares=pd.Series([0.3, 0.7], turned)).fit(p)
    np.testing.assert_allclose(shift.calibration_shares_, [0.7, 0.3])
    named = pd.DataFrame([[0, 1], [5, 0]], turned)
    plain = named.loc[[*labels]].to_numpy()
    actual, expected = (
        (
            bc.expected_performance(calibrator, p, costs=costs).cost,
            bc.metrics.decision_cost(p, y, costs=costs).realized,
        )
        for costs in (named, plain)
    )
    assert actual == expected
    costs = dict(zip(turned, named.to_numpy().tolist(), strict=True))
    assert bc.expected_performance(calibrator, p, costs=costs).cost == expected[0]
    for wrong in ({turned[0]: 0.2, "x": 0.8}, {turned[0]: 0.2, "x": 0.3, "z": 0.5}):
        with pytest.raises(ValueError, match=r"class_prior must have the classes .*, got .*'x'"):
            bc.PriorShift(calibrator, wrong).fit()
    prior = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=1.0)
    data = np.linspace(-1, 1, 40), y
    actual, expected = (
        bc.posterior_predict(prior, data, [0.0], class_prior=given, integrator="quadrature").probs
        for given in (pd.Series([0.1, 0.9], turned), 0.1)
    )
    np.testing.assert_array_equal(actual, expected)


def test_populations_may_be_dates_in_any_unit() -> None:
    scores = draw(50, 0.5, 0)[0]
    days = np.datetime64("2024-02-28") + np.arange(50) % 2
    shift = bc.PriorShift(fitted_calibrator()).fit(scores, populations=days)
    expected = shift.predict_proba(scores, days)
    probs = shift.predict_proba(scores, days.astype("M8[ns]"))
    np.testing.assert_array_equal(probs, expected)
    with pytest.raises(ValueError, match="with populations"):
        shift.predict_proba(scores)
    with pytest.raises(ValueError, match="populations must be passed"):
        shift.as_function()
    with pytest.raises(ValueError, match="without populations"):
        bc.PriorShift(fitted_calibrator()).fit(scores).predict_proba(scores, np.zeros(50))
    with pytest.raises(ValueError, match="among those of the fit, got .*2024-02-28T12"):
        shift.predict_proba(scores[:1], days[:1] + np.timedelta64(12, "h"))


# --- predictions --------------------------------------------------------------------------------


def test_the_loss_falls_to_that_of_the_true_shares() -> None:
    losses = []
    for seed in range(5):
        calibrator = bc.Auto(inputs="logits").fit(*draw(2000, 0.5, seed))
        scores, y = draw(4000, 0.1, 100 + seed)
        shift = bc.PriorShift(calibrator).fit(scores)
        truth = expit(scores + logit(0.1))
        models = calibrator.predict_proba(scores), shift.predict_proba(scores), truth
        losses.append([bc.metrics.log_loss(probs, y) for probs in models])
    before, after, best = np.mean(losses, axis=0)
    assert before > 1.5 * after
    assert after < best + 0.004


@pytest.mark.parametrize("k", [2, 3])
def test_functions_predict_the_same(k: int) -> None:
    logits, y = draw_many(300, np.full(k, 1 / k), 0)
    new = draw_many(50, np.array([0.7, 0.3, 0.0][:k]), 1)[0]
    shift = bc.PriorShift(bc.Vector(inputs="logits").fit(logits, y)).fit(new)
    probs, ends = shift.predict_proba(new), shift.predict_interval(new, 0.8)
    f = shift.as_function()
    np.testing.assert_allclose(f(new), probs, atol=1e-12)
    np.testing.assert_allclose(f.interval(new, 0.8), ends, atol=1e-12)
    both = jax.jit(lambda rows: (f(rows), jnp.stack(f.interval(rows, 0.8))))
    result, bounds = both(jnp.asarray(new))
    np.testing.assert_allclose(result, probs, atol=1e-4)
    np.testing.assert_allclose(bounds, ends, atol=1e-3)
    assert (ends[0] <= ends[1]).all()
    assert probs.sum(axis=1) == pytest.approx(1)
    rows = softmax(new, axis=1)
    plain = bc.PriorShift(calibration_shares=np.full(k, 1 / k)).fit(rows)
    np.testing.assert_allclose(plain.as_function()(rows), plain.predict_proba(rows), atol=1e-12)
    assert plain.predict(rows).shape == (50,)


@pytest.mark.parity("torch")
@pytest.mark.parametrize("k", [2, 3])
def test_functions_predict_the_same_in_torch(k: int) -> None:
    import torch

    logits, y = draw_many(300, np.full(k, 1 / k), 0)
    new = draw_many(50, np.array([0.7, 0.3, 0.0][:k]), 1)[0]
    shift = bc.PriorShift(bc.Vector(inputs="logits").fit(logits, y)).fit(new)
    f = shift.as_function()
    np.testing.assert_allclose(f(torch.tensor(new)), shift.predict_proba(new), atol=1e-9)
    lower = f.interval(torch.tensor(new), 0.8)[0]
    np.testing.assert_allclose(lower, shift.predict_interval(new, 0.8)[0], atol=1e-9)


def test_combinations_and_names() -> None:
    logits, codes = draw(400, 0.5, 0)
    y = np.array(["no", "yes"])[codes]
    frame = pd.DataFrame({"yes": expit(logits), "no": expit(-logits)})
    calibrator = bc.compose(bc.Temperature(), bc.Histogram(5)).fit(frame, y)
    shift = bc.PriorShift(calibrator).fit(frame)
    assert shift.classes_.tolist() == ["no", "yes"]
    probs = shift.predict_proba(frame)
    swapped = shift.predict_proba(frame[["no", "yes"]])
    np.testing.assert_array_equal(probs, swapped)
    np.testing.assert_allclose(shift.as_function()(frame[["yes", "no"]].to_numpy()), probs, atol=1)
    assert set(shift.predict(frame)) == {"no", "yes"}
    plain = bc.PriorShift().fit(frame, calibration=(frame, y))
    assert plain.classes_.tolist() == ["no", "yes"]
    turned = plain.predict_proba(frame[["no", "yes"]])
    np.testing.assert_array_equal(plain.predict_proba(frame), turned)


def test_classifiers_of_other_libraries_need_rows() -> None:
    X, y = draw(400, 0.5, 0)
    model = LogisticRegression().fit(X[:200, None], y[:200])
    with pytest.raises(ValueError, match="calibration must be given"):
        bc.PriorShift(model).fit(X[:, None])
    shift = bc.PriorShift(model).fit(X[:, None], calibration=(X[200:, None], y[200:]))
    assert shift.predict_proba(X[:3, None]).shape == (3, 2)
    with pytest.raises(TypeError, match="as_function needs a calibrator of bayescal"):
        shift.as_function()


# --- habits -------------------------------------------------------------------------------------


def test_habits_of_estimators() -> None:
    calibrator, (scores, _) = fitted_calibrator(), draw(100, 0.2, 1)
    shift = bc.PriorShift(calibrator, dist.Beta(1, 3))
    assert shift.get_params(deep=False)["calibrator"] is calibrator
    unfitted = bc.PriorShift(bc.Logistic())
    calls = shift.predict_proba, shift.predict, lambda _: shift.shares_interval(), unfitted.fit
    for call in calls:
        with pytest.raises(NotFittedError):
            call(scores)
    assert shift.fit(scores) is shift
    again: Any = clone(shift)
    assert not hasattr(again, "state_")
    np.testing.assert_array_equal(again.fit(scores).shares_, shift.shares_)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(shift)).predict_proba(scores), shift.predict_proba(scores)
    )
    before = shift.predict_proba(scores)
    calibrator.fit(*draw(500, 0.9, 7))
    np.testing.assert_array_equal(shift.predict_proba(scores), before)


def test_a_failed_fit_changes_nothing() -> None:
    calibrator, (scores, _) = fitted_calibrator(), draw(100, 0.2, 1)
    shift = bc.PriorShift(calibrator).fit(scores)
    before, state = shift.predict_proba(scores), shift.state_
    for wrong in (
        {"scores": [np.nan, 0.0]},
        {"scores": scores, "sample_weight": [-1.0]},
        {"scores": scores, "calibration": (scores, np.zeros(100))},
        {"scores": scores, "populations": [1, 2]},
        {"scores": None},
    ):
        with pytest.raises(ValueError, match="must"):
            shift.fit(**wrong)
        assert shift.state_ is state
    np.testing.assert_array_equal(shift.predict_proba(scores), before)


@pytest.mark.parametrize("populations", [False, True])
def test_files(populations: bool, tmp_path: Path) -> None:
    scores = draw(100, 0.2, 1)[0]
    calibrator = fitted_calibrator()
    bc.save(calibrator, tmp_path / "calibrator")
    pickle.dumps(calibrator)
    names = np.array(["east", "west"])[np.arange(100) % 2] if populations else None
    shift = bc.PriorShift(calibrator).fit(scores, populations=names)  # keeps its rows
    print(shift.check_)
    bc.save(shift, tmp_path / "shift")
    again = bc.load(tmp_path / "shift")
    np.testing.assert_array_equal(
        again.predict_proba(scores, names), shift.predict_proba(scores, names)
    )
    np.testing.assert_array_equal(again.shares_interval(), shift.shares_interval())
    assert again.check_ == shift.check_
    loaded = bc.load(tmp_path / "calibrator")
    with pytest.raises(ValueError, match="no calibration rows are available"):
        bc.PriorShift(loaded).fit(scores)
    bc.PriorShift(loaded, calibration_shares=0.5).fit(scores)


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"calibration_shares": 1.5}, {}, "calibration_shares must lie strictly between 0 and 1"),
        ({"calibration_shares": [0.5, 0.2]}, {}, "calibration_shares must sum to one"),
        ({"calibration_shares": [0.5, 0.2, 0.3]}, {}, "scores must have 3 columns, .* got 1"),
        ({"calibration_shares": [0.2, 0.8]}, {"scores": np.eye(3)}, "2 columns, .* got 3"),
        (
            {"calibration_shares": [0.2, 0.8]},
            {"scores": bc.Blocks([(np.eye(3),)])},
            "scores must have 2 columns, .* got 3",
        ),
        ({"calibration_shares": 0.5}, {"populations": ["a"]}, "populations must have shape"),
        ({"calibration_shares": 0.5}, {"populations": [None, "a"]}, "populations must not have"),
        ({"class_prior": [0.2, 0.3, 0.5], "calibration_shares": 0.5}, {}, r"shape \(2,\)"),
        ({"class_prior": dist.Dirichlet(np.ones(3)), "calibration_shares": 0.5}, {}, "2 classes"),
        ({"calibration_shares": 0.5}, {"calibration": ([0.5], [1])}, "must be None"),
        ({}, {"calibration": [0.5]}, "must be .scores, y."),
        ({}, {"calibration": ([0.5, 0.4], [1, 1])}, "y must|must hold|classes"),
        ({}, {}, "calibration must be given"),
    ],
)
def test_errors(options: dict[str, Any], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bc.PriorShift(**options).fit(**{"scores": [0.2, 0.3], **arguments})


@pytest.mark.parametrize("how", ["known", "blocks"])
def test_fits_without_rows_in_memory_predict_one_column_or_two(how: str) -> None:
    p = np.array([0.2, 0.4, 0.9])
    shift = bc.PriorShift(class_prior=0.3, calibration_shares=0.5)
    shift = shift.fit() if how == "known" else shift.fit(in_blocks(p, count=2))
    odds = p / (1 - p) * 0.3 / 0.7
    for given in (p, p[:, None], np.stack([1 - p, p], axis=1)):
        np.testing.assert_allclose(shift.predict_proba(given)[:, 1], odds / (1 + odds))
    with pytest.raises(ValueError, match="scores must have 2 columns"):
        shift.predict_proba(np.eye(3))


def _fit_truncated(calibrator: Any) -> Any:
    logits = np.random.default_rng(0).normal(size=(50, 9))
    top = np.sort(np.argsort(-logits, axis=1)[:, :3], axis=1)
    rest = np.log(np.exp(logits).sum(axis=1) - np.exp(np.take_along_axis(logits, top, 1)).sum(1))
    y = np.random.default_rng(1).integers(0, 9, 50)
    return calibrator.fit((top, np.take_along_axis(logits, top, 1), rest), y)


def test_what_is_no_calibrator_of_classes() -> None:
    labels = np.array([[0, 1], [1, 0], [1, 1], [0, 0]])
    truncated = bc.Temperature(inputs="top_logits", classes=9)
    with pytest.raises(TypeError, match="do not say how the rest of a row is divided"):
        bc.PriorShift(_fit_truncated(truncated)).fit(np.eye(3))
    several = bc.MultiLabel(bc.Auto()).fit(labels * 0.5 + 0.2, labels)
    for wrong in (several, bc.Beta, 3):
        with pytest.raises(TypeError, match="calibrator must"):
            bc.PriorShift(wrong).fit(labels * 0.5)


@pytest.mark.parametrize("scores", [[0.5], [0.0, 1.0], [0.0], [1.0] * 50, [1e-300, 0.5]])
def test_extreme_scores(scores: list[float]) -> None:
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("ignore", bc.AccuracyWarning)
        shift = bc.PriorShift().fit(scores, calibration=([0.1, 0.9, 0.5, 0.5], [0, 1, 1, 0]))
        probs = shift.predict_proba(scores)
        lower, upper = shift.shares_interval(0.99)
    assert np.isfinite(probs).all()
    assert (lower <= shift.shares_).all()
    assert (shift.shares_ <= upper).all()


def test_a_share_may_be_zero() -> None:
    scores = draw(2000, 0.0, 3)[0]
    lower, upper = bc.PriorShift(calibration_shares=0.5).fit(expit(scores)).shares_interval()
    assert lower[1] == 0 or lower[1] < 0.003
    assert upper[1] < 0.02
    logits = draw_many(2000, np.array([0.5, 0.5, 0.0]), 0)[0]
    shift = bc.PriorShift(calibration_shares=np.full(3, 1 / 3)).fit(softmax(logits, 1))
    lower, upper = shift.shares_interval()
    assert lower[2] < 0.003 < upper[2] < 0.02


def test_intervals_of_two_shares_complement_each_other() -> None:
    scores, sites = np.repeat([0.1, 0.9, 0.5], 20), np.repeat([0, 1, 2], 20)
    shift = bc.PriorShift(calibration_shares=0.5).fit(scores, populations=sites)
    lower, upper = shift.shares_interval(0.8)
    np.testing.assert_allclose(lower, 1 - upper[:, ::-1], atol=1e-12)
    np.testing.assert_array_equal(lower == 0, [[False, True], [True, False], [False, False]])


# --- the check ----------------------------------------------------------------------------------


def test_the_check_passes_other_shares_and_fails_other_scores() -> None:
    calibrator = bc.Logistic(inputs="logits").fit(*draw(2000, 0.5, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", bc.AccuracyWarning)
        shift = bc.PriorShift(calibrator).fit(draw(2000, 0.1, 1)[0])
    assert not shift.check_.fails
    assert "may be a mixture" in str(shift.check_)
    with pytest.warns(bc.AccuracyWarning, match="not a mixture"):
        shift = bc.PriorShift(calibrator).fit(draw(2000, 0.5, 1, width=0.3)[0])
    assert shift.check_.fails
    many = bc.Temperature(inputs="logits").fit(*draw_many(2000, np.full(4, 0.25), 0))
    shifted = draw_many(2000, np.array([0.7, 0.1, 0.1, 0.1]), 1)[0]
    assert not bc.PriorShift(many).fit(shifted).check_.fails
    with pytest.warns(bc.AccuracyWarning, match="not a mixture"):
        bc.PriorShift(many).fit(shifted / 3)
    plain = bc.PriorShift(calibration_shares=0.5).fit([0.2, 0.3])
    with pytest.raises(AttributeError, match="check_ needs"):
        plain.check_  # noqa: B018


@pytest.mark.parametrize(
    "k", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(25, marks=pytest.mark.slow)]
)
def test_the_check_rejects_as_seldom_as_it_says(k: int) -> None:
    shares = np.full(k, 1 / k)
    rejected = 0
    for seed in range(40):
        logits, y = draw_many(600, shares, seed)
        new = draw_many(400, np.random.default_rng(seed).dirichlet(shares * k), seed + 1000)[0]
        shift = bc.PriorShift(random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bc.AccuracyWarning)
            shift.fit(softmax(new, 1), calibration=(softmax(logits, 1), y))
        rejected += shift.check_.fails
    assert rejected <= 6  # of 40 at level 5 %: probability 0.003


# --- coverage -----------------------------------------------------------------------------------


def coverage(k: int, n: int, m: int, sets: int) -> float:
    hits = []
    for seed in range(sets):
        rng = np.random.default_rng((k, n, seed))
        shares = rng.dirichlet(np.full(k, 2.0))
        logits, y = draw_many(n, np.full(k, 1 / k), int(rng.integers(1 << 30)))
        new = draw_many(m, shares, int(rng.integers(1 << 30)))[0]
        # The scores are wrong by a slope and an offset, which the calibrator must learn.
        bend = lambda values: log_softmax(0.5 * values + np.arange(k) / k, axis=1)  # noqa: E731
        calibrator = bc.Vector(inputs="logits").fit(bend(logits), y)
        lower, upper = bc.PriorShift(calibrator).fit(bend(new)).shares_interval(0.9)
        hits.append((lower <= shares) & (shares <= upper))
    return float(np.mean(hits))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("k", [2, 3])
def test_scores_that_separate_the_classes_count_them(k: int) -> None:
    """Check that no draw of the calibrator exchanges the classes; intervals reached 0.99."""
    rng = np.random.default_rng(0)
    shares = np.append(np.full(k - 1, 0.1), 1 - 0.1 * (k - 1))
    y = rng.choice(k, 3000, p=shares)
    known = np.arange(100) % k

    def logits(codes: np.ndarray) -> np.ndarray:
        return 6 * (rng.normal(size=(len(codes), k)) + 6 * np.eye(k)[codes])

    calibrator = bc.Temperature(inputs="logits").fit(logits(known), known)
    new = logits(y)
    shift = bc.PriorShift(calibrator).fit(new)
    # The posterior for labels that are known.
    counts = np.bincount(y, minlength=k)
    exact = stats.beta(counts + 1, 3000 + k - counts - 1)
    np.testing.assert_allclose(shift.shares_, exact.mean(), atol=0.005)
    lower, upper = shift.shares_interval(0.9)
    np.testing.assert_allclose(upper - lower, exact.ppf(0.95) - exact.ppf(0.05), atol=0.01)
    assert bc.expected_performance(calibrator, new).accuracy.value > 0.98


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("separation", "rows"), [(4.0, 40), (1.5, 400)])
def test_intervals_that_miss_the_true_probabilities_warn(separation: float, rows: int) -> None:
    """Compare intervals with the true probabilities, and those that miss them with the warnings.

    Parameters
    ----------
    separation : float
        Distance of the class means of the normal scores, in standard deviations.
    rows : int
        Number of calibration rows, half of each class.
    """
    truth = np.linspace(0.1, 0.9, 9)
    covered, warned = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y = np.arange(rows) % 2
        scores = rng.normal(size=rows) + separation * (y - 0.5)
        calibrator = bc.Logistic(inputs="scores").fit(scores, y)
        shift = bc.PriorShift(calibrator, class_prior=[0.5, 0.5]).fit()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lower, upper = shift.predict_interval(logit(truth) / separation)
        covered.append(np.mean((lower <= truth) & (truth <= upper)))
        warned.append(any(w.category is bc.AccuracyWarning for w in caught))
    if separation < 2:
        assert np.mean(covered) > 0.8
        assert not any(warned)
    else:
        assert np.mean(covered) < 0.7
        assert np.mean(warned) > 0.7


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayescal.AccuracyWarning")  # raised for 1 % of the data sets
@pytest.mark.parametrize(("k", "n", "m"), [(2, 200, 2000), (2, 2000, 200), (3, 300, 1000)])
def test_intervals_contain_the_true_shares(k: int, n: int, m: int) -> None:
    assert 0.83 < coverage(k, n, m, 100) < 0.97


# --- rows in blocks -----------------------------------------------------------------------------


def in_blocks(scores: np.ndarray, weights: np.ndarray | None = None, count: int = 7) -> bc.Blocks:
    parts = np.array_split(np.arange(len(scores)), count)
    if weights is None:
        return bc.Blocks([(scores[part],) for part in parts])
    return bc.Blocks([(scores[part], None, weights[part]) for part in parts])


@pytest.mark.parametrize(("k", "weighting"), [(2, "counts"), (3, "none"), (5, "fractions")])
def test_blocks_equal_all_rows(k: int, weighting: str) -> None:
    shares = np.full(k, 1 / k)
    fit_scores, y = draw_many(600, shares, 1)
    scores, _ = draw_many(1500, np.append(0.6, np.full(k - 1, 0.4 / (k - 1))), 2)
    scores[:40] = scores[40:80]  # ties
    if k == 2:
        fit_scores, scores = (z[:, 1] - z[:, 0] for z in (fit_scores, scores))
    rng = np.random.default_rng(3)
    weights = {
        "none": None,
        "counts": rng.integers(0, 4, len(scores)).astype(float),
        "fractions": rng.random(len(scores)),
    }[weighting]
    calibrator = bc.Auto(inputs="logits").fit(fit_scores, y)
    whole = bc.PriorShift(calibrator).fit(scores, sample_weight=weights)
    blocks = bc.PriorShift(calibrator).fit(in_blocks(scores, weights))
    np.testing.assert_allclose(blocks.shares_, whole.shares_, atol=1e-9)
    np.testing.assert_allclose(blocks.shares_interval(), whole.shares_interval(), atol=1e-6)
    assert blocks.clipped_ == whole.clipped_
    assert blocks.check_.statistic == pytest.approx(whole.check_.statistic, rel=1e-9)
    predicted = blocks.predict_proba(bc.Blocks([(scores, np.zeros(len(scores), int))]))
    result = next(iter(predicted.each(lambda block: block.scores)))
    np.testing.assert_array_equal(result, blocks.predict_proba(scores))


@pytest.mark.filterwarnings("ignore:The scores are not a mixture")
@pytest.mark.parametrize("zeros", [False, True])
def test_blocks_of_many_rows_are_merged_in_cells(zeros: bool) -> None:
    calibrator: Any = (bc.Isotonic if zeros else bc.Beta)(inputs="logits").fit(*draw(500, 0.5, 1))
    scores, _ = draw(40_000, 0.1, 2)
    whole = bc.PriorShift(calibrator).fit(scores)
    blocks = bc.PriorShift(calibrator).fit(in_blocks(scores))
    np.testing.assert_allclose(blocks.shares_, whole.shares_, atol=2e-5)
    np.testing.assert_allclose(blocks.shares_interval(), whole.shares_interval(), atol=2e-4)
    assert blocks.clipped_ == whole.clipped_
    assert (blocks.clipped_ > 0) == zeros
    assert 0.05 < whole.shares_[1] < 0.2 and (whole.predict_proba(scores[:500]) > 0).all()


def test_a_sample_of_blocks_counts_as_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a sample of many rows gives an interval as wide as its own size implies."""
    monkeypatch.setattr(history, "_ROW_NUMBERS", 5 * 400)
    monkeypatch.setattr(history, "_MIN_ROWS", 400)
    probs = softmax(draw_many(8000, np.full(5, 0.2), 1)[0], axis=1)
    options: Any = {"calibration_shares": np.full(5, 0.2)}
    sample = bc.PriorShift(**options).fit(in_blocks(probs, count=20))
    few, all_rows = (bc.PriorShift(**options).fit(rows) for rows in (probs[:400], probs))
    width = [np.mean(np.subtract(*fit.shares_interval()[::-1])) for fit in (sample, few, all_rows)]
    assert width[0] == pytest.approx(width[1], rel=0.1)
    assert width[0] > 3 * width[2]
    low, high = sample.shares_interval(0.999)
    assert ((low < all_rows.shares_) & (all_rows.shares_ < high)).all()


def test_sources_that_are_read_in_blocks(tmp_path: Path) -> None:
    da = pytest.importorskip("dask.array")
    scores, _ = draw(3000, 0.1, 2)
    calibrator = fitted_calibrator()
    whole = bc.PriorShift(calibrator).fit(scores)
    chunks = da.from_array(scores, chunks=700)
    shift = bc.PriorShift(calibrator).fit(chunks)
    np.testing.assert_allclose(shift.shares_, whole.shares_, atol=1e-5)
    predicted = shift.predict_proba(chunks)
    assert isinstance(predicted, da.Array) and predicted.shape == (3000, 2)
    np.testing.assert_allclose(predicted.compute(), shift.predict_proba(scores), atol=1e-12)


def test_blocks_of_plain_probabilities_and_of_classifiers() -> None:
    scores, _ = draw(2000, 0.1, 2)
    options: Any = {"calibration_shares": [0.5, 0.5], "classes": ["no", "yes"]}
    p = expit(scores)
    frame = pd.DataFrame({"yes": p, "no": 1 - p})
    whole = bc.PriorShift(**options).fit(frame)
    for parts in ([(p[:900],), (p[900:],)], [(frame[:900],), (frame[900:],)]):
        blocks = bc.PriorShift(**options).fit(bc.Blocks(parts))
        np.testing.assert_allclose(blocks.shares_, whole.shares_, atol=1e-9)
    rows, y = draw(500, 0.5, 1)
    model = LogisticRegression().fit(rows[:, None], y)
    given: Any = {"calibration": (rows[:, None], y)}
    result = [
        bc.PriorShift(model).fit(new, **given).shares_
        for new in (scores[:, None], in_blocks(scores[:, None]))
    ]
    np.testing.assert_allclose(*result, atol=1e-9)


def test_errors_of_blocks() -> None:
    shift = bc.PriorShift(fitted_calibrator())
    blocks = in_blocks(draw(100, 0.1, 2)[0])
    with pytest.raises(ValueError, match="populations must be None for scores in blocks"):
        shift.fit(blocks, populations=np.zeros(100))
    with pytest.raises(ValueError, match="blocks must hold rows"):
        shift.fit(bc.Blocks([(np.zeros(5), None, np.zeros(5))]))
    with pytest.raises(ValueError, match="block 0: "):
        shift.fit(bc.Blocks([(np.zeros((5, 3)),)]))
