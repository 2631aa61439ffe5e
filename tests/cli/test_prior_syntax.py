"""Priors as text: values, arithmetic, and errors with positions."""

from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import scipy.stats

from bayescal.cli._errors import CommandError
from bayescal.cli.priors.syntax import parse_prior
from bayescal.models import Prior


def parse(value: str) -> object:
    """Parse the value of one parameter."""
    return parse_prior(f"gaussian:mu0={value},mu1=0,sigma=1").values["mu0"]


def test_all_parameters_arrive() -> None:
    prior = parse_prior("gaussian:mu0=uniform(-2.5,0),mu1=uniform(0,2.5),sigma=1")
    assert repr(prior) == (
        "GaussianPrior(mu0=Uniform(low=-2.5, high=0), mu1=Uniform(low=0, high=2.5), sigma=1.0)"
    )


def test_unequal_spreads_and_beta_family() -> None:
    prior = parse_prior(" Gaussian : sigma1 = 3 , sigma0=2, mu1=1, mu0=-1 ")
    assert prior.values == {"mu0": -1, "mu1": 1, "sigma0": 2, "sigma1": 3}
    prior = parse_prior("beta:alpha0=1,beta0=gamma(2,1),alpha1=gamma(2,1),beta1=1")
    assert prior.family.name == "BetaPrior"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("3", 3), ("-3", -3), ("+-+3", -3), ("1e-3", 0.001), ("-1.5E+2", -150), (".5", 0.5)),
        *(("2.", 2), ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("1 - 2 - 3", -4), ("8 / 2 / 4", 1)),
        ("-2 * -(1 - 4)", -6),
    ],
)
def test_numbers(text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("uniform(-2, 3)", scipy.stats.uniform(-2, 5)),
        ("normal(1, 2)", scipy.stats.norm(1, 2)),
        ("normal(scale=2, loc=1)", scipy.stats.norm(1, 2)),
        ("halfnormal(2)", scipy.stats.halfnorm(0, 2)),
        ("Half_Normal(2)", scipy.stats.halfnorm(0, 2)),
        ("lognormal(0.5, 0.3)", scipy.stats.lognorm(0.3, scale=np.exp(0.5))),
        ("gamma(2, 3)", scipy.stats.gamma(2, scale=1 / 3)),
        ("inversegamma(2, 3)", scipy.stats.invgamma(2, scale=3)),
        ("exponential(3)", scipy.stats.expon(scale=1 / 3)),
        ("beta(2, 5)", scipy.stats.beta(2, 5)),
        ("cauchy(1, 2)", scipy.stats.cauchy(1, 2)),
        ("halfcauchy(2)", scipy.stats.halfcauchy(0, 2)),
        ("studentt(4)", scipy.stats.t(4)),
        ("studentt(4, 1, 2)", scipy.stats.t(4, 1, 2)),
        ("truncatednormal(1, 2, 0)", scipy.stats.truncnorm(-0.5, np.inf, 1, 2)),
        ("truncatednormal(1, 2, high=0)", scipy.stats.truncnorm(-np.inf, -0.5, 1, 2)),
        ("truncatednormal(1, 2, 0, 3)", scipy.stats.truncnorm(-0.5, 1, 1, 2)),
        ("3 + beta(2, 5)", scipy.stats.beta(2, 5, 3)),
        ("beta(2, 5) - 3", scipy.stats.beta(2, 5, -3)),
        ("1 + 2 * (beta(2, 5) / 4 + 1)", scipy.stats.beta(2, 5, 3, 0.5)),
        ("normal(-(1 + 1), 1 / 2)", scipy.stats.norm(-2, 0.5)),
    ],
)
def test_distributions(text: str, reference: Any) -> None:
    value = parse(text)
    points = reference.ppf(np.linspace(0.05, 0.95, 7)).astype(np.float32)
    expected = reference.logpdf(points.astype(np.float64))
    with jax.numpy_dtype_promotion("standard"):
        np.testing.assert_allclose(value.log_prob(points), expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("text", "positive"),
    [
        ("-1 - gamma(2, 1)", "gamma(2, 1)"),
        ("-1 - beta(2, 5)", "beta(2, 5)"),
        ("-1 - truncatednormal(0, 1, 0, 3)", "truncatednormal(0, 1, 0, 3)"),
        ("-1 - halfnormal(2)", "halfnormal(2)"),
    ],
)
def test_mirrored_distributions(text: str, positive: str) -> None:
    mirrored, original = parse(text), parse(positive)
    values = np.array([0.2, 0.7], np.float32)
    with jax.numpy_dtype_promotion("standard"):
        log_prob = jax.jit(lambda distribution, x: distribution.log_prob(x))(mirrored, -1 - values)
        np.testing.assert_allclose(log_prob, original.log_prob(values), rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown family ''; known: gaussian or beta"),
        ("gauss:mu0=1", "unknown family 'gauss'; known: gaussian or beta"),
        ("gaussian", "expected ':' after the family gaussian"),
        ("gaussian:", "sigma0, sigma1; got none"),
        ("gaussian:mu=1", "unknown parameter 'mu' of the family gaussian; known: mu0, mu1, sigma"),
        ("gaussian:mu0", "expected the name of a parameter and '=' (character 10)"),
        ("gaussian:mu0=", "(character 14)"),
        ("gaussian:mu0=1,mu0=2", "parameter 'mu0' is given twice (character 16)"),
        ("gaussian:mu0=1 mu1=2", "(character 14)"),
        ("gaussian:mu0=1,", "must have the parameters mu0, mu1, sigma or mu0, mu1, sigma0, s"),
        ("gaussian:mu0=1,mu1=1", "must have the parameters mu0, mu1, sigma or mu0, mu1, sigma0, s"),
        ("gaussian:mu0=1,mu1=1,sigma=1,sigma0=1,sigma1=1", "must have the parameters"),
        ("gaussian:mu0=1,mu1=1,sigma=-1", "sigma must be positive"),
        ("gaussian:mu0=__import__(1)", "unknown distribution '__import__'"),
        ("gaussian:mu0=os.system", "expected a number, or a distribution with its arguments"),
        ("gaussian:mu0=1;mu1=2", "(character 15)"),
        ("gaussian:mu0=poisson(1)", "unknown distribution 'poisson'; known: uniform, normal"),
        ("gaussian:mu0=normal(1", "'(' was never closed"),
        ("gaussian:mu0=1,mu1=1,sigma=1)", "unmatched ')'"),
        ("gaussian:mu0=1)(mu1=2", "')' closes no bracket"),
        ("gaussian:mu0=1)+f(mu1=2", "')' closes no bracket"),
        ("gaussian:**mu0", "unknown parameter None"),
        ("gaussian:mu0=True", "expected a number, or a distribution with its arguments"),
        ("gaussian:mu0=1e400", "numbers must be finite"),
        ("gaussian:mu0=1" + "0" * 400, "numbers must be finite"),
        ("gaussian:mu0=\0", "null bytes"),
        ("gaussian:mu0=normal()", "normal(loc, scale) lacks loc, scale (character 14)"),
        ("gaussian:mu0=normal(1)", "normal(loc, scale) lacks scale (character 14)"),
        ("gaussian:mu0=normal(1,2,3)", "normal(loc, scale) has 2 arguments, got 3 (character 14)"),
        ("gaussian:mu0=normal(1,-2)", "scale of normal(loc, scale) must be positive, got -2"),
        ("gaussian:mu0=normal(1,sd=2)", "normal(loc, scale) has no argument 'sd' (character 14)"),
        ("gaussian:mu0=normal(1,loc=2)", "argument 'loc' of normal(loc, scale) is given twice"),
        ("gaussian:mu0=normal(loc=1,loc=2)", "argument 'loc' is given twice (character 27)"),
        ("gaussian:mu0=normal(loc=1,2)", "argument follows keyword argument (character 28)"),
        ("gaussian:mu0=normal(normal(0,1),1)", "arguments of normal must be numbers (character 14"),
        ("gaussian:mu0=uniform(1,0)", "low must be below high in uniform(low, high), got 1 and 0"),
        ("gaussian:mu0=normal(0,1)+beta(1,1)", "a distribution can be added to a number, not to"),
        ("gaussian:mu0=normal(0,1)*beta(1,1)", "a distribution can be multiplied by a number"),
        ("gaussian:mu0=0*beta(1,1)", "a distribution must not be multiplied by 0 (character 14)"),
        ("gaussian:mu0=1/beta(1,1)", "division must be by a number other than 0 (character 14)"),
        ("gaussian:mu0=1/0", "division must be by a number other than 0 (character 14)"),
        ("gaussian:mu0=(1", "'(' was never closed"),
        ("gaussian:mu0=1e999", "numbers must be finite (character 14)"),
        ("gaussian:mu0=1e200*1e200", "numbers must be finite (character 14)"),
        ("gaussian:mu0=" + "(" * 9999, "too many nested parentheses"),
        ("gaussian:mu0=" + "-" * 9999, "too many nested brackets or signs"),
    ],
)
def test_errors_say_what_and_where(text: str, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_prior(text)
    assert str(caught.value).startswith("--prior: ")
    assert message in str(caught.value)


@hypothesis.given(
    st.lists(
        st.sampled_from(
            [*":=,()-+*/ é'", "gaussian", "mu0", "mu1", "sigma", "1", "2.5", "1e3", "normal"]
            + 2 * ["uniform(", "low", "scale", ",mu1=1,sigma=2", "__import__"]
        )
    )
)
def test_no_text_ends_otherwise_than_in_a_prior_or_an_error(pieces: list[str]) -> None:
    try:
        result = parse_prior("gaussian:mu0=" + "".join(pieces))
    except CommandError:
        return
    assert isinstance(result, Prior)
