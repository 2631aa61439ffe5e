"""A grid of priors: each prior has the results of a separate posterior, under its name."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest

import bayescal as bc

pytestmark = [
    pytest.mark.usefixtures("x64"),
    pytest.mark.filterwarnings("ignore::bayescal.SamplingWarning"),
]

POINTS = np.array([-2.0, 0.1, 1.5])
WIDTHS = {"narrow": 0.5, "middling": 2.0, "wide": 8.0}
GRID = {
    name: bc.GaussianPrior(dist.Uniform(-w, 0.0), dist.Uniform(0.0, w), 1.0)
    for name, w in WIDTHS.items()
}
METHODS = ("predictive", "preds", "coeffs", "map")
OPTIONS: dict[str, Any] = {"num_samples": 1000, "key": 3}


def data_set(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.normal(2.0 * y - 1), y


SETS = [data_set(12, 0), data_set(20, 1)]


@functools.cache
def grid_of(integrator: str, batch: bool) -> bc.Posterior:
    data = SETS if batch else SETS[0]
    return bc.posterior(GRID, data, integrator=integrator, **OPTIONS)


def separate_posterior(name: str, number: int, integrator: str) -> bc.Posterior:
    return bc.posterior(GRID[name], SETS[number], integrator=integrator, **OPTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "quadrature"])
def test_each_prior_has_the_numbers_that_it_has_alone(integrator: str) -> None:
    post = grid_of(integrator, batch=False)
    assert list(post.prior) == list(GRID) and post.batch_size is None
    assert np.shape(post.log_evidence) == post.class_prior.shape == (3,)
    for method in METHODS:
        actual = post.predict(POINTS, method=method)
        assert actual.probs.shape == actual.mcse.shape == (3, 3)
        for index, name in enumerate(GRID):
            single = separate_posterior(name, 0, integrator)
            expected = single.predict(POINTS, method=method)
            rtol = 1e-6 if method == "map" else 1e-10
            np.testing.assert_allclose(actual.probs[index], expected.probs, rtol=rtol)
            if method == "preds" and integrator == "montecarlo":
                np.testing.assert_allclose(actual.mcse[index], expected.mcse, rtol=1e-8)
                for ends, other in zip(actual.interval(), expected.interval(), strict=True):
                    np.testing.assert_allclose(ends[index], other, rtol=1e-8)
            assert post.log_evidence[index] == pytest.approx(single.log_evidence, rel=1e-12)
    single = separate_posterior("wide", 0, integrator)
    np.testing.assert_allclose(post.mode["mu0"][2], single.mode["mu0"], rtol=1e-6)
    np.testing.assert_allclose(post.draws("wide")["mu0"], single.draws()["mu0"], rtol=1e-6)


@pytest.mark.slow
def test_a_grid_with_a_batch() -> None:
    post = grid_of("montecarlo", batch=True)
    assert post.batch_size == 2 and post.log_evidence.shape == (3, 2)
    shared = post.predict(POINTS)
    separate = post.predict(np.stack([POINTS, POINTS + 1]))
    at_data = post.predict()
    assert shared.probs.shape == separate.probs.shape == (3, 2, 3)
    assert separate.x.shape == (2, 3) and at_data.probs.shape == (3, 2, 20)
    assert np.isnan(at_data.probs[:, 0, 12:]).all() and not np.isnan(at_data.probs[:, 1]).any()
    for position, name in enumerate(GRID):
        for number in range(2):
            single = separate_posterior(name, number, "montecarlo")
            for actual, x in ((shared, POINTS), (separate, POINTS + number), (at_data, None)):
                expected = single.predict(x).probs
                np.testing.assert_allclose(
                    actual.probs[position, number, : len(expected)], expected, rtol=1e-10
                )
    actual, expected = post.sample(5, index=("narrow", 1)), single.sample(5)
    assert (np.abs(actual["mu1"]) <= 0.5).all() and actual["mu1"].shape == expected["mu1"].shape
    assert "GaussianPrior x 3, 2 data sets of 12 to 20 observations" in repr(post)


def test_points_of_a_grid_at_the_data() -> None:
    result = grid_of("montecarlo", batch=False).predict()
    assert result.probs.shape == (3, 12)
    np.testing.assert_array_equal(result.x, SETS[0][0])


@pytest.mark.slow
def test_named_dimensions() -> None:
    result = bc.posterior_predict(GRID, SETS, POINTS, **OPTIONS)
    actual = result.to_xarray()
    assert dict(actual.sizes) == {"prior": 3, "dataset": 2, "point": 3}
    assert actual.prior.values.tolist() == list(GRID)
    one = actual.sel(prior="wide").isel(dataset=1)
    np.testing.assert_array_equal(one.probs, result.probs[2, 1])
    assert float(one.log_evidence) == result.log_evidence[2, 1]
    np.testing.assert_array_equal(one.x, POINTS)
    plain = bc.posterior_predict(GRID["wide"], SETS[0], POINTS, **OPTIONS).to_xarray()
    assert plain.probs.dims == ("point",) and plain.log_evidence.dims == ()
    three = bc.DirichletPrior([dist.Gamma(5, 1)] * 3)
    x = np.random.default_rng(0).dirichlet([1, 1, 1], 4)
    wide = bc.posterior_predict(three, (x, [0, 1, 2, 0]), **OPTIONS).to_xarray()
    assert wide.probs.dims == ("point", "class") and wide.x.dims == ("point", "feature")


@pytest.mark.slow
def test_draws_of_a_grid_in_arviz() -> None:
    post = grid_of("montecarlo", batch=False)
    tree = post.to_arviz(num_draws=40, key=1)
    mu0 = tree["posterior"]["mu0"]
    assert mu0.dims == ("chain", "draw", "prior") and mu0.shape == (4, 10, 3)
    assert mu0.prior.values.tolist() == list(GRID)
    one = separate_posterior("wide", 0, "montecarlo").to_arviz(num_draws=40, key=1)["posterior"][
        "mu0"
    ]
    np.testing.assert_allclose(mu0.sel(prior="wide"), one, rtol=1e-6)
    np.testing.assert_allclose(
        post.to_arviz(num_draws=40, key=1, index="wide")["posterior"]["mu0"], one, rtol=1e-6
    )


def test_other_numbers_in_a_grid_compile_nothing(compilations: Any) -> None:
    def job(shift: float) -> None:
        grid = {
            str(i): bc.GaussianPrior(dist.Normal(i + shift, 1), dist.Normal(1, i + shift), 1.0)
            for i in range(1, 4)
        }
        bc.posterior(grid, SETS[0], num_samples=1234).predict(POINTS)

    with compilations() as first:
        job(0.0)
    assert first
    with compilations() as more:
        job(0.25)
    assert not more, more


def test_what_is_wrong_with_a_grid() -> None:
    mixed = {"a": GRID["wide"], "b": bc.GaussianPrior(dist.Normal(0, 1), dist.Normal(1, 1), 1.0)}
    with pytest.raises(ValueError, match="one family with the same kinds of distributions"):
        bc.posterior(mixed, SETS[0])
    with pytest.raises(TypeError, match="a list or dict of them, got dict"):
        bc.posterior({}, SETS[0])
    with pytest.raises(ValueError, match="a dict of priors by name combines each prior"):
        bc.posterior(list(GRID.values()), SETS[0])
    with pytest.raises(KeyError, match="'narrow', 'middling', 'wide'.*got 'broad'"):
        grid_of("montecarlo", batch=False).draws("broad")
    with pytest.raises(KeyError, match="there is no grid of priors"):
        separate_posterior("wide", 0, "montecarlo").draws("wide")
    with pytest.raises(IndexError, match=r"a data set in \[0, 1\), got 1"):
        grid_of("montecarlo", batch=False).draws(("wide", 1))
    far = bc.GaussianPrior(dist.Uniform(-2e200, -1e200), dist.Uniform(0.0, 1.0), 1.0)
    excluded = GRID | {"narrow": far}
    with pytest.raises(ValueError, match="every weight is zero .prior 'narrow'."):
        bc.posterior(excluded, SETS[0], **OPTIONS)


def test_a_warning_names_the_prior() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        bc.posterior(GRID, SETS[0], num_samples=110)
    text = str(warned[0].message)
    assert "of 3 posteriors; the worst (prior '" in text


@pytest.mark.slow
def test_each_prior_has_a_rule_of_its_own_size() -> None:
    """Check three parameters, where some priors need far more nodes."""
    grid = {
        str(w): bc.GaussianPrior(
            dist.Uniform(-w, 0.0), dist.Uniform(0.0, w), dist.LogNormal(0.0, 0.3)
        )
        for w in (0.4, 2.5)
    }
    y = np.arange(50) % 2
    data = np.random.default_rng(0).normal(2.0 * y - 1), y
    points = np.stack([POINTS, POINTS - 1])
    many = np.linspace(-3, 3, 600)
    post = bc.posterior(grid, data, integrator="quadrature")
    sizes = {name: len(post.draws(name)["mu0"]) for name in grid}
    assert len(set(sizes.values())) > 1
    actual, curves = post.predict(POINTS), post.predict(many)
    for index, (name, prior) in enumerate(grid.items()):
        single = bc.posterior(prior, data, integrator="quadrature")
        assert len(single.draws()["mu0"]) == sizes[name]
        np.testing.assert_allclose(actual.probs[index], single.predict(POINTS).probs, rtol=1e-12)
        np.testing.assert_allclose(curves.probs[index], single.predict(many).probs, rtol=1e-12)
    several = bc.posterior(list(grid.values()), [data] * 2, integrator="quadrature")
    rows = several.predict(points).probs
    np.testing.assert_allclose(rows[0], actual.probs[0], rtol=1e-12)
    np.testing.assert_allclose(rows[1], post.predict(points[1]).probs[1], rtol=1e-12)
