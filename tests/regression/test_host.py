"""Single fits, on the host and compiled, against SciPy and NumPyro in float64."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.special import expit

from bayescal._core.minimization.optimize import Minimum, Status
from bayescal.data.rows import Rows
from bayescal.regression.binary.fit import Fit, fit_many, fit_single
from bayescal.regression.binary.host import MANY, fit_on_host
from bayescal.regression.binary.objective import BinaryDesign, CoefficientPrior, Regression
from bayescal.regression.rows import fit_binary
from tests.regression.problems import loss, slope

pytestmark = pytest.mark.usefixtures("x64")

Array = np.ndarray


def make_rows(n: int, d: int, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * rng.uniform(0.01, 30, d) + rng.normal(size=d)
    line = (x[:, 0] - x[:, 0].mean()) / x[:, 0].std()
    t = (rng.random(n) < expit(1.5 * line - 0.3)).astype(float)
    return x, t, rng.uniform(0.1, 2.0, n)


def scipy_minimum(x: Array, t: Array, w: Array, l2: Any, free: Array) -> float:
    """Minimize with SciPy over the free coefficients, in units of one standard deviation."""
    unit = np.concatenate([[1.0], x.std(axis=0)])[free]

    def full(part: Array) -> Array:
        beta = np.zeros(len(free))
        beta[free] = part / unit
        return beta

    actual = optimize.minimize(
        lambda part: loss(full(part), x, t, w, l2),
        np.zeros(free.sum()),
        jac=lambda part: slope(full(part), x, t, w, l2)[free] / unit,
        method="BFGS",
        options={"gtol": 1e-9, "maxiter": 10_000},
    )
    return float(actual.fun)


def fit_compiled(problem: Regression) -> tuple[Array, Fit]:
    """Fit a problem with JAX as a batch of one."""
    *arrays, prior, intercept_prior = problem
    leaves = [None if a is None else jnp.asarray(a, jnp.float64)[None] for a in arrays]
    result = fit_many(Regression(*leaves, prior, intercept_prior))
    return np.concatenate([result.intercept, result.coef[0]]), result


def check_same(actual: Minimum, problem: Regression) -> None:
    beta, result = fit_compiled(problem)
    assert int(actual.status) == int(result.status[0])
    assert float(actual.value) == pytest.approx(float(result.value[0]), rel=1e-11)
    np.testing.assert_allclose(actual.x, beta, rtol=1e-5, atol=1e-7)


MASKS = {"all": None, "no intercept": [0, 1, 1], "no second": [1, 1, 0], "intercept": [1, 0, 0]}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("l2", [0.0, 3.0, [0.01, 40.0]], ids=["none", "one", "each"])
def test_host_reaches_scipys_optimum_and_does_as_the_compiled_fit(l2: Any, mask: str) -> None:
    x, t, w = make_rows(300, 2)
    t = 0.9 * t + 0.02
    free = None if MASKS[mask] is None else np.array(MASKS[mask], float)
    problem = Regression(x, t, w, 0.0, np.array(l2), free)
    actual = fit_single(problem)
    assert int(actual.status) == Status.CONVERGED
    moves = np.ones(3, bool) if free is None else free > 0
    assert (actual.x[~moves] == 0).all()
    best = scipy_minimum(x, t, w, l2, moves)
    assert float(actual.value) == pytest.approx(loss(actual.x, x, t, w, l2), rel=1e-12)
    assert float(actual.value) <= best * (1 + 1e-10)
    scale = np.concatenate([[1.0], x.std(axis=0)])
    assert np.abs(slope(actual.x, x, t, w, l2) / scale)[moves].max() < 1e-5
    if np.ndim(l2):
        check_same(actual, problem)


def test_nothing_free_is_the_loss_of_one_half() -> None:
    x, t, w = make_rows(50, 2)
    actual = fit_single(Regression(x, t, w, 0.0, 1.0, np.zeros(3)))
    assert int(actual.status) == Status.CONVERGED
    assert actual.x.tolist() == [0.0, 0.0, 0.0]
    assert float(actual.value) == pytest.approx(w.sum() * np.log(2), rel=1e-14)


def test_rows_without_weight_are_left_out_and_whole_weights_are_repetitions() -> None:
    x, t, _ = make_rows(60, 2)
    counts = np.random.default_rng(1).integers(0, 4, 60)
    x[counts == 0] = 1e200
    actual = fit_single(Regression(x, t, counts.astype(float), 0.0, 0.5))
    rows = np.arange(60).repeat(counts)
    again = fit_single(Regression(x[rows], t[rows], np.ones(len(rows)), 0.0, 0.5))
    np.testing.assert_allclose(actual.x, again.x, rtol=1e-9)
    assert float(actual.value) == pytest.approx(float(again.value), rel=1e-13)


LAWS = {
    "cauchy": (CoefficientPrior(0.0, 2.5, 1.0), dist.Cauchy(0.0, 2.5), stats.cauchy(0, 2.5)),
    "normal": (CoefficientPrior(-1.0, 0.3, 0.0), dist.Normal(-1.0, 0.3), stats.norm(-1, 0.3)),
    "wide": (CoefficientPrior(4.0, 10.0, 1.0), dist.Cauchy(4.0, 10.0), stats.cauchy(4, 10)),
}


@pytest.mark.parametrize("name", LAWS)
def test_written_priors_are_numpyros_with_their_derivatives(name: str) -> None:
    written, law, scipys = LAWS[name]
    b = np.array([-1e3, -30.0, -2.5, -1.0, 0.0, 1e-9, 0.7, 3.999, 4.0, 5.0, 1e3])
    slopes = jax.vmap(jax.grad(law.log_prob))(jnp.asarray(b))
    bends = jax.vmap(jax.grad(jax.grad(law.log_prob)))(jnp.asarray(b))
    value, first, second = written.loss(b)
    np.testing.assert_allclose(value, -scipys.logpdf(b), rtol=1e-12)
    np.testing.assert_allclose(value, -law.log_prob(jnp.asarray(b)), rtol=1e-12)
    np.testing.assert_allclose(first, -slopes, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(second, -bends, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", LAWS)
def test_fits_under_written_priors_against_scipy_and_numpyro(name: str) -> None:
    x, t, w = make_rows(30, 2, seed=3)
    x = x / x.std(axis=0)
    written, law, scipys = LAWS[name]
    wide, numpyros, scipys_wide = LAWS["wide"]

    def total(b: Array) -> float:
        return loss(b, x, t, w) - scipys_wide.logpdf(b[0]) - scipys.logpdf(b[1:]).sum()

    actual = fit_single(Regression(x, t, w, 0.0, 0.0, None, written, wide))
    starts = [np.zeros(3), np.ones(3), -np.ones(3)]
    best = min(optimize.minimize(total, s, options={"gtol": 1e-7}).fun for s in starts)
    assert int(actual.status) == Status.CONVERGED
    assert float(actual.value) == pytest.approx(total(actual.x), rel=1e-12)
    assert total(actual.x) <= best + 1e-9 * abs(best)
    # JAX fits priors given as distributions, with padded rows.
    theirs = fit_single(Regression(x, t, w, 0.0, 0.0, None, law, numpyros))
    assert int(theirs.status) == Status.CONVERGED
    assert float(theirs.value) == pytest.approx(float(actual.value), rel=1e-11)
    np.testing.assert_allclose(theirs.x, actual.x, rtol=1e-5)


N_MANY = 150_000


@pytest.mark.parametrize(
    "kind", ["mixed", "part is separable", "part is one class", "part is flat", "part is zero"]
)
def test_a_part_of_many_rows_changes_nothing(kind: str) -> None:
    """Check subsets of rows on which a fit starts and which improve its first step."""
    rng = np.random.default_rng(0)
    stride = N_MANY >> 14
    assert N_MANY > 1 << 17
    x = rng.normal(size=(N_MANY, 1)) * 3 + 5
    t = (rng.random(N_MANY) < expit(x[:, 0] - 4)).astype(float)
    part = slice(None, None, stride)
    if kind == "part is separable":
        t[part] = x[part, 0] > 4
    elif kind == "part is one class":
        t[part] = 1
    elif kind == "part is flat":
        x[part] = 2.0
    elif kind == "part is zero":
        x[part] = 0.0
    w = rng.uniform(0.5, 1.5, N_MANY)
    sample = Regression(x[part], t[part], w[part], 0.0, 0.0)
    designs = Rows(x[:, 0], t, w).designs(_design, 1 << 14)
    problem = Regression(x, t, w, 0.0, 0.0)
    for actual in (fit_single(problem), fit_binary(sample, w.sum(), designs)):
        assert int(actual.status) == Status.CONVERGED
        assert float(actual.value) == pytest.approx(loss(actual.x, x, t, w), rel=1e-12)
        # Newton's step from this point would gain next to nothing.
        gradient = slope(actual.x, x, t, w)
        p = expit(actual.x[0] + x[:, 0] * actual.x[1])
        design = np.stack([np.ones(N_MANY), x[:, 0]])
        hessian = (design * (w * p * (1 - p))) @ design.T
        assert gradient @ np.linalg.solve(hessian, gradient) < 1e-10 * float(actual.value)


def test_labels_may_have_the_period_of_a_part() -> None:
    """Check every fifth row of another class, where a part of the rows has every fifth row."""
    n = 90_000
    assert n >> 14 == 5
    x, t, w = np.zeros((n, 1)), np.ones(n), np.ones(n)
    x[1::9000], t[::5] = 1, 0
    priors = None, CoefficientPrior(0.0, 2.5, 1.0), CoefficientPrior(0.0, 10.0, 1.0)
    order = np.random.default_rng(0).permutation(n)
    fit, other = (
        fit_single(Regression((x - x.mean())[rows], t[rows], w, 0.0, 0.0, *priors))
        for rows in (np.arange(n), order)
    )
    assert int(fit.status) == int(other.status) == Status.CONVERGED
    assert float(fit.value) == pytest.approx(float(other.value), rel=1e-12)


def _design(rows: Rows) -> BinaryDesign[np.ndarray]:
    return BinaryDesign(np.stack([np.ones(rows.n), rows.scores]), rows.y, rows.weights)


@pytest.mark.parametrize("seed", [0, 10])
def test_a_fit_that_only_rounding_stops_has_converged(seed: int) -> None:
    """Check a nearly dependent column, whose large coefficient makes objective values noisy."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(3, 12))
    x = rng.normal(size=(60, d))
    x[:, -1] = x[:, :-1].sum(axis=1) + 1e-4 * rng.normal(size=60)
    t, w, l2 = (rng.random(60) < expit(x[:, 0])).astype(float), np.ones(60), 10.0 ** -(8 + seed % 7)
    actual = fit_single(Regression(x, t, w, 0.0, l2))
    assert int(actual.status) == Status.CONVERGED and int(actual.iterations) < 30
    gradient = slope(actual.x, x, t, w, l2)
    p = expit(actual.x[0] + x @ actual.x[1:])
    design = np.column_stack([np.ones(60), x]).T
    hessian = (design * (p * (1 - p))) @ design.T + np.diag([0.0] + d * [l2])
    assert gradient @ np.linalg.solve(hessian, gradient) < 1e-10 * float(actual.value)


SPECIAL: dict[str, tuple[Any, Any]] = {
    "two points": ([-1.0, 1.0], [0, 1]),
    "gap": ([-2.0, -1.0, 0.5, 3.0], [0, 0, 1, 1]),
    "ties at the border": ([-2.0, 0.0, 0.0, 3.0], [0, 0, 1, 1]),
    "large scores": ([1e6, 2e6, 3e6], [0, 1, 1]),
    "one class": ([0.3, 0.5], [1, 1]),
    "constant": ([7.0, 7.0, 7.0], [0, 1, 1]),
    "zero": ([0.0, 0.0, 0.0], [0, 1, 1]),
    "tiny": ([1e-120, 3e-120, 2e-120, 5e-120], [0, 1, 0, 0]),
    "huge": ([1e120, 3e120, 2e120, 5e120], [0, 1, 0, 0]),
    "one row": ([2.0], [0.25]),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_data_end_as_in_the_compiled_fit(name: str) -> None:
    x, t = (np.array(part, float) for part in SPECIAL[name])
    problem = Regression(x[:, None], t, np.ones(len(t)), 0.0, 0.0)
    actual = fit_single(problem)
    # Pad with rows of weight zero, so that all cases share a program.
    rows = [np.pad(part, (0, 4 - len(t))) for part in (x, t, np.ones(len(t)))]
    beta, result = fit_compiled(Regression(rows[0][:, None], *rows[1:], 0.0, 0.0))
    unbounded = [*SPECIAL].index(name) < 5
    assert int(actual.status) == (Status.UNBOUNDED if unbounded else Status.CONVERGED)
    assert int(actual.status) == int(result.status[0])
    ours, theirs = (expit(b[0] + x * b[1]) for b in (actual.x, beta))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    if unbounded:
        assert not np.where(t == 1, ours < 0.4999, ours > 0.5001).any()
    if name in ("constant", "zero", "one row"):
        np.testing.assert_allclose(ours, t.mean(), rtol=1e-8)


ROWS = st.lists(
    st.tuples(
        st.floats(-1e3, 1e3, width=32),
        st.sampled_from([0.0, 0.25, 1.0]),
        st.sampled_from([1e-2, 1.0, 1e2]),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(ROWS, st.sampled_from([0.0, 1e-3, 10.0]))
def test_host_and_compiled_fits_agree(rows: list[tuple[float, float, float]], l2: float) -> None:
    padded = np.zeros((12, 3))
    padded[: len(rows)] = rows
    x, t, w = padded[:, :1], padded[:, 1], padded[:, 2]
    problem = Regression(x, t, w, 0.0, l2)
    actual = fit_single(problem)
    with jax.enable_x64(True):
        beta, result = fit_compiled(problem)
    assert np.isfinite(actual.x).all() and np.isfinite(actual.value)
    ended = (int(actual.status), int(result.status[0]))
    assert set(ended) <= {Status.CONVERGED, Status.UNBOUNDED}
    # Without an optimum, both stop where nothing more is gained.
    assert float(actual.value) == pytest.approx(
        float(result.value[0]), rel=1e-7, abs=1e-7 * w.sum()
    )
    if ended == (Status.CONVERGED, Status.CONVERGED):
        line = np.stack([np.ones(12), x[:, 0]])[:, w > 0]
        np.testing.assert_allclose(expit(actual.x @ line), expit(beta @ line), atol=1e-4)


def test_many_columns_meet_the_conditions_of_optimality() -> None:
    x, t, w = make_rows(150, MANY + 3)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    actual = fit_on_host(Regression(x, t, w, 0.0, 5.0))
    assert actual.status == Status.CONVERGED
    gradient = slope(actual.x, x, t, w, 5.0)
    # A step along the gradient would change the loss by a negligible amount.
    assert np.abs(gradient).max() < 1e-3
    few = fit_on_host(Regression(x[:, :MANY], t, w, 0.0, 5.0))
    assert np.abs(slope(few.x, x[:, :MANY], t, w, 5.0)).max() < 1e-6
