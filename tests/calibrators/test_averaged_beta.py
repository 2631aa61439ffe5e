"""AveragedBeta against a reference implementation with SciPy, and on difficult data."""

from __future__ import annotations

import copy
import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import optimize, stats
from scipy.special import expit, logsumexp

import bayescal.calibrators as bc
from bayescal.calibrators import AveragedBeta
from bayescal.calibrators.base.table import tabulate
from bayescal.calibrators.binary.averaged_beta import calibrator as calibrator_module
from bayescal.calibrators.binary.averaged_beta import regressions as _averaging
from bayescal.calibrators.binary.averaged_beta.points import summarize
from bayescal.data.rows import Rows

Array = np.ndarray


def data_set(n: int, seed: int = 0, slope: float = 0.5, bend: float = 0.0) -> tuple[Array, Array]:
    """Draw over-confident log odds and labels."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 3, n)
    y = (rng.random(n) < expit(slope * z + bend * np.sin(z))).astype(int)
    return z, y


def shapes(z: Array, u: float, e: float) -> tuple[Array, Array]:
    x = np.exp(u) * z
    return np.log((1 - e) * expit(x) + e / 2), np.log((1 - e) * expit(-x) + e / 2)


def kernel(one: Array, two: Array, length: float) -> Array:
    r = np.sqrt(3) * np.abs(one[:, None] - two) / length
    return (1 + r) * np.exp(-r)


def log_prior(u: Any) -> Any:
    """Return the log density of half N(0, 0.35^2) and half N(0, 2^2)."""
    return np.log(0.5 * stats.norm.pdf(u, 0, 0.35) + 0.5 * stats.norm.pdf(u, 0, 2))


def find_scale(z: Array, y: Array) -> tuple[float, float]:
    """Compute the posterior mean and standard deviation of u with Gauss-Legendre quadrature."""

    def log_density(u: Array) -> Array:
        x = np.exp(u)[:, None] * z
        return (y * x - np.logaddexp(0, x)).sum(axis=1) + log_prior(u)

    edges = np.arange(-16, 16, 0.05)
    log = log_density(edges)
    # The density is negligible elsewhere.
    edges = edges[log > log.max() - 60]
    nodes, weights = np.polynomial.legendre.leggauss(10)
    u = (edges[:, None] + 0.025 * (nodes + 1)).ravel()
    mass = np.tile(weights, len(edges)) * np.exp(log_density(u) - log.max())
    mean = mass @ u / mass.sum()
    return float(mean), float(np.sqrt(mass @ (u - mean) ** 2 / mass.sum()))


def fit_one(offset: Array, design: Array, y: Array, precision: Array) -> tuple[Array, float]:
    """Return the mode of a regression and its log evidence."""

    def loss(theta: Array) -> tuple[float, Array]:
        f = offset + design @ theta
        value = np.sum(np.logaddexp(0, f) - y * f) + precision @ theta**2 / 2
        return float(value), design.T @ (expit(f) - y) + precision * theta

    options = {"gtol": 1e-8}
    start = np.zeros(len(precision))
    theta = optimize.minimize(loss, start, jac=True, method="BFGS", options=options).x
    p = expit(offset + design @ theta)
    hessian = (design * (p * (1 - p))[:, None]).T @ design + np.diag(precision)
    log_det = np.log(precision).sum() - np.linalg.slogdet(hessian)[1]
    return theta, log_det / 2 - loss(theta)[0]


def by_definition(z: Array, y: Array, at: Array) -> Array:
    """Predict at new log odds with regressions fitted by SciPy and evidence from slogdet."""
    e, (center, spread) = 1 / (len(z) + 1), find_scale(z, y)
    processes = [(0.0, 1.0), *product((0.3, 1.0), (0.5, 1.5))]
    logs, result, fitted = [], [], []
    for u in center + spread * np.arange(-3, 4):
        offset = np.subtract(*shapes(z, u, e))
        inducing = np.linspace(*np.quantile(offset, [0.005, 0.995]), 14)
        for v, c, (amplitude, length) in product((0.05, 0.5), (0.1, 0.5), processes):
            length *= np.std(offset)
            inner = kernel(inducing, inducing, length) + 1e-6 * np.eye(14)
            lower = amplitude * np.linalg.cholesky(inner)

            def columns(points: Array) -> tuple[Array, Array]:
                one, zero = shapes(points, u, e)  # noqa: B023  called here only
                plain = [one, -zero, np.ones(len(points))]
                if not amplitude:  # noqa: B023
                    return one - zero, np.stack(plain, axis=1)
                held = np.clip(one - zero, inducing[0], inducing[-1])  # noqa: B023
                across = amplitude**2 * kernel(inducing, held, length)  # noqa: B023
                return one - zero, np.stack([*plain, *np.linalg.solve(lower, across)], axis=1)  # noqa: B023

            offset, design = columns(z)
            precision = np.ones(design.shape[1])
            precision[:3] = 1 / v, 1 / v, 1 / c
            theta, evidence = fit_one(offset, design, y, precision)
            logs.append(evidence + log_prior(u) + np.log(0.25 if amplitude else 3.0))
            fitted.append(expit(offset + design @ theta))
            new_offset, design = columns(at)
            result.append(expit(new_offset + design @ theta))
    assert len(logs) == 140
    shares = np.exp(np.array(logs) - logsumexp(logs))
    average = shares @ np.array(result)
    # The prior weights of the regressions sum to 16; their evidence is a sum over scales.
    evidence = logsumexp(logs) - np.log(16) + np.log(spread)
    unchanged = np.log(np.where(y == 1, expit(z), expit(-z))).sum()
    weight = expit(np.log(5 / (len(z) + 20)) + unchanged - evidence)
    p = weight * expit(z) + (1 - weight) * (shares @ np.array(fitted))
    gain = (p * np.log(p / expit(z)) + (1 - p) * np.log((1 - p) / expit(-z))).sum()
    if unchanged - evidence > 1.75 and gain < 1:
        return expit(at)
    return weight * expit(at) + (1 - weight) * average


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("n", [2, 20, 200, 2000])
def test_moments_of_the_scale_are_those_of_quadrature(n: int, slope: float) -> None:
    """Check labels with and without signal, and labels that the scores separate."""
    z, y = data_set(n, seed=n, slope=slope)
    for labels in (y, (z > 0).astype(int)):
        center, spread = _averaging.find_scale(_averaging.Nodes(z, np.ones(n)), labels @ z)
        mean, deviation = find_scale(z, labels)
        assert center == pytest.approx(mean, abs=1e-6 * deviation)
        assert spread == pytest.approx(deviation, rel=1e-6)


@pytest.mark.parametrize(
    ("n", "seed", "slope", "bend", "unchanged"),
    [(25, 0, 0.5, 0.0, 0), (150, 0, 0.5, 2.0, 0), (100, 1, 1.0, 0.0, 1), (30, 1, 3.0, 0.0, 0)],
)
def test_average_is_the_definition(
    n: int, seed: int, slope: float, bend: float, unchanged: int
) -> None:
    z, y = data_set(n, seed, slope, bend)
    at = np.linspace(-9, 9, 31)
    state = AveragedBeta(1.0)._fit(Rows(z, y, np.ones(n)), 0)
    assert state["unchanged"] == unchanged
    np.testing.assert_allclose(
        AveragedBeta(1.0).apply(state, at)[:, 1], by_definition(z, y, at), atol=1e-6
    )


def test_scores_that_the_evidence_favors_are_unchanged() -> None:
    unchanged = 0
    for seed in range(20):
        z, y = data_set(100, seed, slope=1.0)
        model = AveragedBeta(inputs="logits").fit(z, y)
        if not model.unchanged_:
            continue
        unchanged += 1
        at = np.linspace(-30, 30, 61)
        np.testing.assert_allclose(model.predict_proba(at)[:, 1], expit(at), rtol=1e-9)
        report = model.report_
        assert (report.gain, report.helps, report.hurts) == (0, False, False)
        assert report.log_loss == report.uncalibrated
        assert report.members == {"unchanged": 1, "linear": 0, "curved": 0}
    assert unchanged >= 8


def test_scores_are_changed_for_a_gain_or_if_some_are_zero() -> None:
    z, y = data_set(400, 2, slope=0.8)
    model = AveragedBeta(inputs="logits").fit(z, y)
    assert model.log_bayes_factor_ > 1.75 and not model.unchanged_
    p, y = np.append(np.repeat([0.2, 0.8], 50), [0.01, 0.99]), np.tile([0, 1, 0, 0, 0], 21)[:102]
    y[50:] = 1 - y[50:]
    y[-2:] = 0, 1
    model = AveragedBeta().fit(p, y)
    assert model.log_bayes_factor_ > 1.75 and model.unchanged_
    p[-2:] = 0, 1
    model = AveragedBeta().fit(p, y)
    assert model.log_bayes_factor_ > 1.75 and not model.unchanged_


@pytest.mark.parametrize("spread", [0.0, 1e-9, 1.0, 60.0])
@pytest.mark.parametrize("n", [12, 3000])
def test_very_many_scores_are_as_good_as_each_alone(n: int, spread: float) -> None:
    rng = np.random.default_rng(n)
    z = rng.standard_t(2, n)
    y = (rng.random(n) < expit(np.sin(z) + z / 3)).astype(int)
    method = AveragedBeta()
    state = method._fit(Rows(z, y, np.ones(n)), 0)
    at = 1.5 + spread * rng.standard_t(2, 40_000)
    at[:2] = at[:2] if spread < 1 else [-np.inf, np.inf]
    original = at.copy()
    parts = np.array_split(at, 4)
    together, alone = (
        method.apply(state, at)[:, 1],
        [method.apply(state, part)[:, 1] for part in parts],
    )
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-6)
    np.testing.assert_array_equal(at, original)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "spread", "slope"), [(2, 3, 0.0), (20, 20, 0.3), (1000, 0.01, 60), (50_000, 1, 1.5)]
)
def test_table_is_the_average(n: int, spread: float, slope: float) -> None:
    rng = np.random.default_rng(n)
    z = spread * rng.normal(size=n)
    y = (rng.random(n) < expit(slope * z + np.sin(2 * z))).astype(int)
    y[:2] = 0, 1
    fitted = AveragedBeta(0.5, inputs="logits").fit(z, y)
    at = np.concatenate([np.linspace(-87, 87, 5001), spread * rng.normal(size=5000)])
    at = np.concatenate([at, rng.normal(0, 0.02, 2000), z[:1000]])
    exact = fitted._apply(fitted.state_, at)[:, 1]
    probs = fitted.predict_proba(at)[:, 1]
    assert abs(probs - exact).max() < 1e-9
    # Log losses of rare events keep their precision as well.
    assert abs(np.log(probs) - np.log(exact)).max() < 1e-7
    assert_array_equal(probs[:7], fitted.predict_proba(at[:7])[:, 1])


def test_table_is_made_once_for_each_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(*given: Any) -> Any:
        made.append(0)
        return tabulate(*given)

    monkeypatch.setattr(calibrator_module, "tabulate", counted)
    z, y = data_set(200)
    fitted = AveragedBeta(inputs="logits").fit(z, y)
    first = fitted.predict_proba(z)
    fitted.predict_proba(z[:3]), fitted.as_function()(z), fitted.predict(z)
    assert len(made) == 1
    fitted.fit(z, 1 - y)
    assert abs(fitted.predict_proba(z) - first).max() > 0.01
    assert len(made) == 2
    copies = copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))
    for other in copies:
        assert_array_equal(other.predict_proba(z), fitted.predict_proba(z))
    assert len(made) == 4


def test_very_many_intervals_are_as_good_as_each_alone() -> None:
    rng = np.random.default_rng(12)
    z, at = rng.standard_t(2, 12), 1.5 + rng.standard_t(2, 40_000)
    method = AveragedBeta(inputs="logits").fit(z, rng.random(12) < expit(np.sin(z) + z / 3))
    for end, few in zip(
        method.predict_interval(at), method.predict_interval(at[:500]), strict=True
    ):
        np.testing.assert_allclose(end[:500], few, atol=1e-5)


def test_gathered_rows_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = data_set(3000, bend=1.5)
    z[:5] = -90, 40, 41, 60, 87
    weights = np.random.default_rng(1).uniform(0.5, 2, len(z))
    points = summarize(Rows(np.clip(z, -_averaging.FAR, _averaging.FAR), y, weights))
    assert len(points.z) < 1300
    assert points.weights.min() >= 0
    held = np.clip(z, -_averaging.FAR, _averaging.FAR)
    for power in range(4):
        gathered, rows = points.weights @ points.z**power, weights @ held**power
        assert gathered == pytest.approx(rows, rel=1e-9)
        gathered, rows = points.positives @ points.z**power, (weights * y) @ held**power
        assert gathered == pytest.approx(rows, rel=1e-9)
    at = np.linspace(-12, 12, 101)
    few = AveragedBeta().apply(AveragedBeta()._fit(Rows(z, y, weights), 0), at)
    monkeypatch.setattr("bayescal.calibrators.binary.averaged_beta.points._MAX_POINTS", 10_000)
    every = AveragedBeta().apply(AveragedBeta()._fit(Rows(z, y, weights), 0), at)
    np.testing.assert_allclose(few, every, atol=1e-6)


@pytest.mark.parametrize("highest", [1e-3, 1.0])
def test_cells_lose_nothing_where_rows_outweigh_the_priors(
    highest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    p = highest * rng.random(3000)
    y = (rng.random(3000) < np.minimum(30 * p, 0.9)).astype(int)
    weights, at = np.full(3000, 5000.0), np.quantile(p, np.linspace(0, 1, 101))
    cells = bc.AveragedBeta().fit(p, y, weights)
    monkeypatch.setattr("bayescal.calibrators.binary.averaged_beta.points._MAX_POINTS", 10_000)
    rows = bc.AveragedBeta().fit(p, y, weights)
    assert cells.status_ == rows.status_ == "converged"
    given = cells.predict_proba(at), rows.predict_proba(at)
    np.testing.assert_allclose(*given, rtol=1e-4, atol=2e-6)


def test_enormous_weights_count_like_large_ones() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(2000)
    y = (rng.random(2000) < p).astype(int)
    at = np.linspace(0, 1, 101)
    first = bc.AveragedBeta().fit(p, y, np.full(2000, 1e9 / 2000))
    for weight in (1e16, 1e300):
        fitted = bc.AveragedBeta().fit(p, y, np.full(2000, weight))
        np.testing.assert_allclose(fitted.predict_proba(at), first.predict_proba(at), atol=1e-6)
        np.testing.assert_allclose(
            fitted.predict_interval(at), first.predict_interval(at), atol=1e-6
        )
        assert np.isfinite(fitted.losses_left_out()).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("columns", [1, 2])
def test_blocks_of_rows_are_all_rows(
    columns: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check blocks with probabilities of zero in one and the smallest positive one in another."""
    z, y = data_set(3000, bend=1.0)
    p = expit(z)
    p[:40], p[2000] = 0, 1e-3
    p[40:60] = 1
    weights = np.random.default_rng(1).integers(1, 4, 3000) if weighted else None
    scores = np.stack([1 - p, p], axis=1) if columns == 2 else p
    labels = np.array(["no", "yes"])[y]
    whole = AveragedBeta().fit(scores, labels, weights)
    monkeypatch.setattr("bayescal.calibrators.binary.averaged_beta.points.MAX_SORTED_ROWS", 100)
    monkeypatch.setattr("bayescal.calibrators.base.draws._BLOCK", 8 * 700)
    parts = AveragedBeta().fit(scores, labels, weights)
    assert parts.least_probabilities_ == pytest.approx(whole.least_probabilities_)
    assert (parts.classes_ == whole.classes_).all()
    assert (parts.state_["rows"], parts.state_["unit"]) == (3000, 1)
    np.testing.assert_allclose(parts.predict_proba(scores), whole.predict_proba(scores), atol=1e-6)


@pytest.mark.parametrize(("power", "n", "tolerance"), [(0.5, 20, 0.012), (1.0, 60, 0.004)])
def test_losses_of_rows_left_out(power: float, n: int, tolerance: float) -> None:
    """Compare leave-one-out losses with fits that leave out each row."""
    z, y = data_set(n, seed=n)
    method = AveragedBeta(power, inputs="logits").fit(z, y)
    result = method.losses_left_out()[y, np.searchsorted(np.sort(z), z)]
    truth = np.empty(n)
    for i in range(n):
        rest = np.arange(n) != i
        state = method._fit(Rows(z[rest], y[rest], np.ones(n - 1)), 0)
        truth[i] = -np.log(method.apply(state, z[i : i + 1])[0, y[i]])
    assert result.mean() == pytest.approx(truth.mean(), abs=tolerance)
    assert np.corrcoef(result, truth)[0, 1] > 0.98


@pytest.mark.parametrize("power", [1e-4, 1e3])
def test_extreme_powers_have_finite_losses(power: float) -> None:
    z, y = data_set(40)
    method = AveragedBeta(power, inputs="logits").fit(z, y)
    losses = method.losses_left_out()
    assert np.isfinite(losses).all() and (losses > 0).all()


def test_points_on_both_sides_of_a_gap_stay_there() -> None:
    z = np.concatenate([np.linspace(-5, -4.9, 500), np.linspace(4.9, 5, 500)])
    points = summarize(Rows(z, np.zeros(1000, int), np.ones(1000)))
    assert len(points.z) < 500
    assert points.weights[points.z < 0].sum() == pytest.approx(500)


def test_interval_is_that_of_draws() -> None:
    """Compare with draws for square-rooted weights and variances scaled by 1.75."""
    z, y = data_set(80, bend=1.0)
    method = AveragedBeta(1.0)
    state = method._fit(Rows(z, y, np.ones(80)), 0)
    at = np.array([-6.0, -1.0, 0.5, 4.0])
    rng = np.random.default_rng(0)
    share = np.sqrt(state["cell_weights"].ravel())
    share /= share.sum()
    cells = rng.choice(len(share), 40_000, p=share)
    offset, columns = _averaging.make_columns(
        _averaging.FeatureBasis(
            state["inverse"], state["smoothing"], state["inducing"], state["length"][:, None]
        ),
        at,
    )
    coef = state["coef"].reshape(-1, 17)[cells]
    factor = state["factor"].reshape(-1, 17, 17)[cells]
    theta = coef + np.einsum(
        "spq,sq->sp", np.sqrt(1.75) * factor, rng.normal(size=(len(cells), 17))
    )
    design = cells // 10
    lines = offset[design] + np.einsum("sp,spm->sm", theta, columns[design, 0])
    for level in (0.5, 0.9):
        lower, upper = method._ends(state, at, level).T
        inside = (lines > np.log(lower / (1 - lower))) & (lines < np.log(upper / (1 - upper)))
        assert inside.mean(axis=0) == pytest.approx(level, abs=5 * 0.5 / np.sqrt(len(cells)))
        below = (lines < np.log(lower / (1 - lower))).mean(axis=0)
        assert below == pytest.approx((1 - level) / 2, abs=5 * 0.5 / np.sqrt(len(cells)))


def test_predictions_lie_within_their_intervals() -> None:
    """Check containment, although intervals leave out the member of unchanged scores."""
    at = np.linspace(-20, 20, 101)
    for seed, n in product(range(10), (3, 20, 100)):
        z, y = data_set(n, seed, slope=(0.3, 1.0, 3.0)[seed % 3])
        model = AveragedBeta(inputs="logits", classes=[0, 1]).fit(z, y)
        lower, upper = model.predict_interval(at)
        probs = model.predict_proba(at)[:, 1]
        assert ((lower <= probs) & (probs <= upper)).all()


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("bend", [0.0, 0.8])
def test_intervals_cover_the_truth(n: int, bend: float) -> None:
    """Check mean coverage over scores and 60 data sets, up to three standard errors."""
    at = np.linspace(-6, 6, 41)
    density = np.exp(-(at**2) / 8) / np.exp(-(at**2) / 8).sum()
    truth = expit(at + bend * np.sin(1.5 * at))
    inside = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        z = rng.normal(0, 2, n)
        y = (rng.random(n) < expit(z + bend * np.sin(1.5 * z))).astype(int)
        model = bc.AveragedBeta(inputs="logits", classes=[0, 1]).fit(z, y)
        lower, upper = model.predict_interval(at)
        inside.append(density @ ((lower < truth) & (truth < upper)))
    assert np.mean(inside) > 0.86 - 3 * np.std(inside) / np.sqrt(60)


def test_rounding_does_not_keep_a_fit_from_its_end() -> None:
    """Check convergence with separable labels, where losses are small beside the sums in them."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z = np.concatenate([rng.normal(-12, 8, 40), rng.normal(10, 6, 50)])
        model = bc.AveragedBeta(inputs="logits").fit(z, (z > 0).astype(int))
        assert model.status_ == "converged"
