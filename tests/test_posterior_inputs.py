"""Inputs of posterior and posterior_predict: arrays of all kinds, unusual data, every error."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats

import bayescal as bc
from bayescal import posterior as condition

# Sizes, kinds of priors and numbers of draws are shared, so that compilations are too.
DRAWS = 2000
PRIOR = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=1.0)
PLANE = bc.MultivariateGaussianPrior(mu0=dist.Normal(-1, 0.5), mu1=dist.Normal(1, 0.5), cov=2.0)
# Exact in single precision, so the numbers are equal in every container.
SCORES = np.array([-1.25, -0.5, 0.25, -1.75, 0.5, 1.5, 0.75, 2.25])
LABELS = np.array([0, 0, 0, 0, 1, 1, 1, 1])
POINTS = np.linspace(-3, 3, 16)


def exact_match(text: str) -> str:
    """Return a pattern for ``pytest.raises`` that matches exactly ``text``."""
    return f"^{re.escape(text)}$"


def conjugate_reference(
    scores: np.ndarray, labels: np.ndarray, at: np.ndarray, means: tuple[float, float] = (-1, 1)
) -> tuple[np.ndarray, float]:
    """Compute predictive log odds and log evidence under PRIOR with formulas and SciPy."""
    log_density, log_evidence = [], 0.0
    for y, mean in enumerate(means):
        of_class = scores[labels == y]
        variance = 1 / (1 + len(of_class))
        center = variance * (mean + of_class.sum())
        log_density.append(scipy.stats.norm.logpdf(at, center, np.sqrt(1 + variance)))
        if len(of_class):
            covariance = np.eye(len(of_class)) + 1
            log_evidence += scipy.stats.multivariate_normal(
                np.full(len(of_class), mean), covariance
            ).logpdf(of_class)
    return log_density[1] - log_density[0], log_evidence


# --- containers ---------------------------------------------------------------------------------


def torch_tensor(values: np.ndarray) -> Any:
    import torch

    tensor = torch.tensor(values)
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


def read_only(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flags.writeable = False
    return values


CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda v: v.tolist(),
    "tuple": lambda v: tuple(v.tolist()),
    "series": lambda v: pd.Series(v, index=range(10, 10 + len(v))),
    "nullable series": lambda v: pd.Series(v).convert_dtypes(),
    "objects": lambda v: v.astype(object),
    "jax": jnp.asarray,
    "torch": torch_tensor,
    "read-only": read_only,
    "strided": lambda v: np.repeat(v, 2)[::2],
    "big endian": lambda v: v.astype(v.dtype.newbyteorder(">")),
}
NEEDS_TORCH = pytest.param("torch", marks=pytest.mark.parity("torch"))
EACH = [NEEDS_TORCH if name == "torch" else name for name in CONTAINERS]


@pytest.fixture(scope="module")
def reference() -> bc.Prediction:
    return bc.posterior_predict(PRIOR, (SCORES, LABELS), POINTS, num_samples=DRAWS)


def assert_same(result: bc.Prediction, reference: bc.Prediction) -> None:
    np.testing.assert_array_equal(result.log_odds, reference.log_odds)
    assert result.log_evidence == reference.log_evidence
    assert result.ess == reference.ess


@pytest.mark.parametrize("name", EACH)
def test_data_and_points_in_any_container(name: str, reference: bc.Prediction) -> None:
    make = CONTAINERS[name]
    data, points = (make(SCORES), make(LABELS)), POINTS if name == "jax" else make(POINTS)
    assert_same(bc.posterior_predict(PRIOR, data, points, num_samples=DRAWS), reference)


def test_points_in_single_precision() -> None:
    narrow = POINTS.astype(np.float32)
    post = condition(PRIOR, (SCORES, LABELS), num_samples=DRAWS)
    expected = post.predict(narrow).log_odds
    np.testing.assert_array_equal(post.predict(jnp.asarray(narrow)).log_odds, expected)
    np.testing.assert_array_equal(post.predict(pd.Series(narrow)).log_odds, expected)
    # Evaluated in single precision, with the worst-case rounding of a sum over this many draws.
    wide = post.predict(narrow.astype(np.float64)).log_odds
    np.testing.assert_allclose(expected, wide, rtol=0, atol=DRAWS * np.finfo(np.float32).eps)


@pytest.mark.parity("torch")
def test_points_as_torch_in_single_precision() -> None:
    import torch

    narrow = POINTS.astype(np.float32)
    post = condition(PRIOR, (SCORES, LABELS), num_samples=DRAWS)
    actual = post.predict(torch.tensor(narrow)).log_odds
    np.testing.assert_array_equal(actual, post.predict(narrow).log_odds)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.float32, np.float64])
def test_labels_of_any_type(dtype: type, reference: bc.Prediction) -> None:
    data = SCORES, LABELS.astype(dtype)
    assert_same(bc.posterior_predict(PRIOR, data, POINTS, num_samples=DRAWS), reference)


@pytest.mark.slow
def test_features_in_frames_and_tensors() -> None:
    x = np.stack([SCORES, SCORES[::-1] / 2], axis=1)
    frame = pd.DataFrame(x, columns=["a", "b"], index=list("stuvwxyz"))
    expected = bc.posterior_predict(PLANE, (x, LABELS), num_samples=DRAWS)
    actual = bc.posterior_predict(PLANE, (frame, pd.Series(LABELS)), frame, num_samples=DRAWS)
    assert_same(actual, expected)
    actual = bc.posterior_predict(PLANE, (jnp.asarray(x), LABELS.tolist()), num_samples=DRAWS)
    assert_same(actual, expected)


def test_features_of_data_frames_go_by_name() -> None:
    rows = np.stack([SCORES, SCORES[::-1] / 4], axis=1)
    frame = pd.DataFrame(rows, columns=["a", "b"])
    turned, unnamed = frame[["b", "a"]], pd.DataFrame(rows)
    others = frame.set_axis(["c", "d"], axis=1)
    prior = bc.MultivariateGaussianPrior(mu0=[-1.0, 0.5], mu1=[1.0, 0.0], cov=np.eye(2))
    log_odds = rows @ [2.0, -0.5] + (1.25 - 1.0) / 2
    expected = 1 / (1 + np.exp(-log_odds))
    post = condition(prior, (frame, LABELS), integrator="quadrature")
    for points in (rows, frame, turned, unnamed, others, None):
        np.testing.assert_allclose(post.predict(points).probs, expected, atol=1e-6)
    sets = [(frame, LABELS), (turned, LABELS), (unnamed, LABELS)]
    batch = condition(prior, sets, integrator="quadrature")
    np.testing.assert_allclose(batch.predict(turned).probs, [expected] * 3, atol=1e-6)
    np.testing.assert_allclose(batch.log_evidence, [post.log_evidence] * 3, rtol=1e-9)


def test_probabilities_of_data_frames_go_by_class() -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.dirichlet([2.0, 1.0, 1.0], 9), np.array(["no", "maybe", "yes"] * 3)
    names = sorted(labels[:3])
    prior = bc.DirichletPrior([[4.0, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, 5.0]])
    expected = condition(prior, (rows, labels), class_prior=np.full(3, 1 / 3)).predict(rows[:4])
    frame = pd.DataFrame(rows, columns=[f"p_{name}" for name in names])
    turned = frame[["p_yes", "p_maybe", "p_no"]]
    post = condition(prior, (turned, labels), class_prior=np.full(3, 1 / 3))
    for points in (turned[:4], frame[:4], rows[:4]):
        np.testing.assert_array_equal(post.predict(points).probs, expected.probs)


@pytest.mark.parity("torch")
def test_features_in_tensors() -> None:
    import torch

    x = np.stack([SCORES, SCORES[::-1] / 2], axis=1)
    expected = bc.posterior_predict(PLANE, (x, LABELS), num_samples=DRAWS)
    data = torch.tensor(x), torch.tensor(LABELS)
    assert_same(bc.posterior_predict(PLANE, data, num_samples=DRAWS), expected)


def test_keys_of_all_kinds(reference: bc.Prediction) -> None:
    for key in (0, np.int64(0), jax.random.key(0), jax.random.PRNGKey(0)):
        result = bc.posterior_predict(PRIOR, (SCORES, LABELS), POINTS, num_samples=DRAWS, key=key)
        assert_same(result, reference)
    other = bc.posterior_predict(PRIOR, (SCORES, LABELS), POINTS, num_samples=DRAWS, key=1)
    assert other.log_evidence != reference.log_evidence


def test_masked_entries_may_hold_anything(reference: bc.Prediction) -> None:
    x = np.concatenate([[np.nan, np.inf], SCORES[:4], [1e300], SCORES[4:]])
    y = np.concatenate([[5, np.nan], LABELS[:4], [-1], LABELS[4:]])
    mask = np.isfinite(x) & (np.abs(x) < 10)
    for kind in (mask, mask.astype(int), mask.tolist(), pd.Series(mask), None):
        data = (SCORES, LABELS, None) if kind is None else (x, y, kind)
        result = bc.posterior_predict(PRIOR, data, POINTS, num_samples=DRAWS)
        np.testing.assert_allclose(result.log_odds, reference.log_odds, rtol=1e-6, atol=1e-6)
        assert result.log_evidence == pytest.approx(reference.log_evidence, rel=1e-12)
    at_data = bc.posterior_predict(PRIOR, (x, y, mask), num_samples=DRAWS).probs
    np.testing.assert_array_equal(np.isnan(at_data), ~mask)


# --- odd data, against formulas -----------------------------------------------------------------

ODD = {
    "one observation": ([0.75], [1]),
    "one of each": ([-0.5, 1.0], [0, 1]),
    "class 1 missing": ([-0.5, 0.25, -3.0], [0, 0, 0]),
    "class 0 missing": ([-0.5, 0.25, 3.0], [1, 1, 1]),
    "duplicated rows": ([-1.0, -1.0, -1.0, 2.0, 2.0, -1.0], [0, 0, 1, 1, 1, 0]),
    "constant scores": ([0.5] * 6, [0, 1, 0, 1, 1, 1]),
    "far from the prior": ([30.0, 31.0, 40.0], [0, 0, 1]),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_data_against_conjugate_formulas(x64: None, name: str) -> None:
    scores, labels = (np.array(v) for v in ODD[name])
    # Points near the posterior class means.
    at = POINTS + np.mean([(scores[labels == y].sum() + 2 * y - 1) / 3 for y in (0, 1)])
    log_odds, log_evidence = conjugate_reference(scores, labels, at)
    options = {"integrator": "quadrature", "class_prior": 0.5}
    result = bc.posterior_predict(PRIOR, (scores, labels), at, **options)
    assert result.log_evidence == pytest.approx(log_evidence, rel=1e-9)
    np.testing.assert_allclose(result.log_odds, log_odds, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1e6, 1e-6])
def test_extreme_scores_are_a_matter_of_units(x64: None, scale: float) -> None:
    prior = bc.GaussianPrior(
        mu0=dist.Normal(-scale, scale), mu1=dist.Normal(scale, scale), sigma=scale
    )
    data = SCORES * scale, LABELS
    result = bc.posterior_predict(prior, data, POINTS * scale, integrator="quadrature")
    log_odds, log_evidence = conjugate_reference(SCORES, LABELS, POINTS)
    np.testing.assert_allclose(result.log_odds, log_odds, rtol=1e-9, atol=1e-9)
    expected = log_evidence - len(SCORES) * np.log(scale)
    assert result.log_evidence == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("integrator", "warning", "text"),
    [
        ("montecarlo", bc.SamplingWarning, "^few draws carry the weight: "),
        pytest.param(
            "quadrature",
            bc.AccuracyWarning,
            "^quadrature may be off by a relative ",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_extreme_scores_that_contradict_the_prior_warn(
    integrator: str, warning: type[Warning], text: str
) -> None:
    data = [-1e6, 1e6, -1e6, 1e6, 1e6], [0, 1, 0, 1, 1]
    with pytest.warns(warning, match=text):
        post = condition(PRIOR, data, integrator=integrator, num_samples=DRAWS)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert np.isfinite(post.predict(POINTS).probs).all()
    unknown = ["log odds are unknown at 16 of 16 points"] if integrator == "quadrature" else []
    assert [str(w.message).partition(",")[0] for w in warned] == unknown


@pytest.mark.parametrize("shift", [1e3, 1e6])
def test_far_away_data_lose_no_digits(x64: None, shift: float) -> None:
    prior = bc.GaussianPrior(
        mu0=dist.Normal(shift - 1, 1), mu1=dist.Normal(shift + 1, 1), sigma=1.0
    )
    data = SCORES + shift, LABELS
    result = bc.posterior_predict(prior, data, POINTS + shift, integrator="quadrature")
    log_odds, log_evidence = conjugate_reference(SCORES, LABELS, POINTS)
    # Points are rounded to eps * shift, and slopes are below 2.
    lost = 10 * np.finfo(float).eps * shift
    np.testing.assert_allclose(result.log_odds, log_odds, rtol=1e-9, atol=1e-9 + lost)
    assert result.log_evidence == pytest.approx(log_evidence, rel=1e-9, abs=1e-9 + lost)


@pytest.mark.slow
@pytest.mark.parametrize("present", [0, 1])
def test_missing_class_against_scipy_quadrature(x64: None, present: int) -> None:
    # The only class informs the shared sigma; the prior determines the rest.
    scores = np.array([0.25, 1.5, 0.5, 2.25, 1.0])
    means = -1.0, 1.0
    prior = bc.GaussianPrior(
        mu0=dist.Normal(means[0], 1), mu1=dist.Normal(means[1], 1), sigma=dist.Uniform(0.5, 2)
    )
    at = np.array([-2.0, 0.0, 0.5, 3.0])
    labels = np.full(len(scores), present)
    options = {"integrator": "quadrature", "class_prior": 0.5}
    result = bc.posterior_predict(prior, (scores, labels), at, **options)

    def normal(x: Any, mean: Any, sd: Any) -> Any:
        # SciPy's version spends most of the time checking its arguments.
        return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))

    def over_mean(sigma: float) -> np.ndarray:
        """Integrate over the mean of the present class; the absent class has a closed form."""

        def density(mu: float) -> np.ndarray:
            likelihood = normal(mu, means[present], 1) * normal(scores, mu, sigma).prod()
            return likelihood * np.concatenate([[1.0], normal(at, mu, sigma)])

        total, *points = scipy.integrate.quad_vec(density, -8, 10, epsabs=0, epsrel=1e-11)[0]
        absent = normal(at, means[1 - present], np.sqrt(1 + sigma**2))
        return np.concatenate([[total], points, total * absent]) / 1.5

    joint = scipy.integrate.quad_vec(over_mean, 0.5, 2, epsabs=0, epsrel=1e-11)[0]
    evidence, observed, missing = joint[0], joint[1:5], joint[5:]
    log_odds = np.log(observed / missing) * (1 if present else -1)
    assert result.log_evidence == pytest.approx(np.log(evidence), rel=1e-9)
    np.testing.assert_allclose(result.log_odds, log_odds, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_a_missing_class_of_three() -> None:
    prior = bc.DirichletPrior([dist.Gamma(5, 1)] * 3)
    x = np.random.default_rng(0).dirichlet([4, 5, 6], size=5)
    result = bc.posterior_predict(prior, (x, [0, 2, 2, 0, 0]), num_samples=DRAWS)
    assert result.probs.shape == (5, 3)
    np.testing.assert_allclose(result.probs.sum(axis=1), 1, atol=1e-6)
    assert np.all(np.asarray(result.probs) > 0)


# --- errors in the data -------------------------------------------------------------------------

ABSENT = "; where the data lack a class, pass the positions 0, ..., 1 of the classes"
EMPTY = "data must not be empty: every data set needs at least one observation"
WRONG_DATA: list[tuple[Any, str]] = [
    ((SCORES, [0, 1, 2, 0, 1, 0, 1, 1]), "labels must be in {0, 1}, got 2"),
    ((SCORES, [-1, 0, 1, 1, -1, 0, 1, 1]), "labels must be in {0, 1}, got -1"),
    ((SCORES, LABELS * 0.75), "labels must be in {0, 1}, got 0.75"),
    (
        (SCORES, ["no", "yes", "perhaps", "yes"] * 2),
        f"labels must be 2 different ones, got ['no', 'perhaps', 'yes']{ABSENT}",
    ),
    ((SCORES, pd.Series(["0"] * 8)), f"labels must be 2 different ones, got ['0']{ABSENT}"),
    ((SCORES, [np.nan, *LABELS[1:]]), "labels must be finite, got NaN at position 0 (1 in all)"),
    (
        ([0.5, np.nan, 1.0, np.nan], [0, 1, 1, 0]),
        "x must be finite, got NaN at position 1 (2 in all)",
    ),
    (([0.5, 1.0, -np.inf], [0, 1, 1]), "x must be finite, got infinity at position 2 (1 in all)"),
    (([0.5, None, 1.0], [0, 1, 1]), "x must be finite, got NaN at position 1 (1 in all)"),
    ((["a", "b"], [0, 1]), "x must be numeric, got dtype <U1"),
    (
        (SCORES, [*LABELS.tolist(), 1]),
        "labels must have shape (8,) to match x of shape (8,), got (9,)",
    ),
    ((SCORES, LABELS[:, None]), "labels must have shape (8,) to match x of shape (8,), got (8, 1)"),
    (
        (np.ones((2, 3, 4)), np.ones((2, 3, 4))),
        "x must have shape (n,) or (batch, n) for this family, got (2, 3, 4)",
    ),
    (([], []), EMPTY),
    ((SCORES, LABELS, np.zeros(8, bool)), EMPTY),
    ((SCORES, LABELS, [True]), "mask must have shape (8,) to match x, got (1,)"),
    ((SCORES, LABELS, SCORES), "mask must hold only True and False"),
    (
        SCORES,
        "data must be a tuple (x, y), a tuple (x, y, mask) or a list of tuples (x, y), got ndarray",
    ),
]


def test_wrong_data() -> None:
    for data, message in WRONG_DATA:
        kind = TypeError if "numeric" in message or "tuple" in message else ValueError
        with pytest.raises(kind, match=exact_match(message)):
            condition(PRIOR, data, num_samples=DRAWS)


def test_beta_scores_outside_the_unit_interval() -> None:
    prior = bc.BetaPrior(alpha0=1.0, beta0=2.0, alpha1=dist.Gamma(3, 1), beta1=1.0)
    advice = "; clip the scores or use logits with GaussianPrior"
    must = "x must lie strictly between 0 and 1 for beta densities, got "
    with pytest.raises(ValueError, match=exact_match(f"{must}1 (2 outside){advice}")):
        condition(prior, ([0.5, 1.0, 0.25, 0.0], [0, 1, 0, 0]), num_samples=DRAWS)
    # Masked scores may be anything.
    data = [0.5, 0.75, 0.25, 1.5], [0, 1, 0, 1], [True, True, True, False]
    post = condition(prior, data, num_samples=DRAWS)
    with pytest.raises(ValueError, match=exact_match(f"{must}-0.5 (1 outside){advice}")):
        post.predict([0.5, -0.5])


def test_dirichlet_rows_outside_the_simplex() -> None:
    prior = bc.DirichletPrior([dist.Gamma(5, 1)] * 3)
    labels = [0, 1]
    for x, message in (
        ([[0.5, 0.5], [0.2, 0.8]], "x must have 3 probabilities in each row, got 2"),
        (
            [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]],
            "x must be positive for Dirichlet densities, got 0; clip the probabilities and "
            "normalize them",
        ),
        (
            [[0.5, 0.25, 0.25], [0.2, 0.3, 0.4]],
            "x must have rows that sum to one, got a sum of 0.9 in row 1",
        ),
    ):
        with pytest.raises(ValueError, match=exact_match(message)):
            condition(prior, (x, labels), num_samples=DRAWS)


def test_wrong_points() -> None:
    plane = np.stack([SCORES, SCORES / 2], axis=1)
    for prior, scores, x, message in (
        (PLANE, plane, np.ones((4, 3)), "x must have 2 features as in training, got 3"),
        (PLANE, plane, np.ones(4), "x must have 2 features as in training, got 4"),
        (PLANE, plane, np.ones(2), "x must have shape (m, d), got (2,)"),
        (PLANE, plane, np.ones((1, 4, 2)), "x must have shape (m, d), got (1, 4, 2)"),
        (PLANE, plane, np.ones((0, 2)), "x must not be empty"),
        (PRIOR, SCORES, [0, np.nan], "x must be finite, got NaN at position (0, 1) (1 in all)"),
        (
            PRIOR,
            SCORES,
            [np.inf, 0],
            "x must be finite, got infinity at position (0, 0) (1 in all)",
        ),
        (PRIOR, SCORES, [[0.0, 1.0]], "x must have shape (m,), got (1, 2)"),
        (PRIOR, SCORES, 0.0, "x must have shape (m,), got ()"),
        (PRIOR, SCORES, [], "x must not be empty"),
    ):
        with pytest.raises(ValueError, match=exact_match(message)):
            bc.posterior_predict(prior, (scores, LABELS), x, num_samples=DRAWS)


# --- errors in the other arguments --------------------------------------------------------------


SEED = "key must be an integer seed or one JAX key, got "
INTEGRATORS = "'montecarlo', 'sobol', 'importance', 'quadrature', 'nuts', 'closed_form'"
WRONG_OPTIONS: list[tuple[dict, str]] = [
    ({"class_prior": 0.0}, "class_prior must lie strictly between 0 and 1, got 0"),
    ({"class_prior": 1.5}, "class_prior must lie strictly between 0 and 1, got 1.5"),
    ({"class_prior": [0.2, 0.3, 0.5]}, "class_prior must have shape (2,), got (3,)"),
    ({"class_prior": [0.5, 0.6]}, "class_prior must sum to one, got 1.1"),
    ({"num_samples": 0}, "num_samples must be at least 1, got 0"),
    ({"num_samples": 1.5}, "num_samples must be an integer, got 1.5"),
    ({"num_samples": True}, "num_samples must be an integer, got True"),
    ({"integrator": "mcmc"}, f"integrator must be one of {INTEGRATORS}, got 'mcmc'"),
    (
        {"method": "mean"},
        "method must be one of 'predictive', 'preds', 'coeffs', 'map', got 'mean'",
    ),
    ({"key": -3}, "key must be non-negative, got -3"),
    ({"key": "seed"}, f"{SEED}str"),
    ({"key": 0.5}, f"{SEED}float"),
    ({"key": None}, f"{SEED}NoneType"),
]


def test_wrong_options() -> None:
    for options, message in WRONG_OPTIONS:
        kind = TypeError if "integer" in message else ValueError
        with pytest.raises(kind, match=exact_match(message)):
            bc.posterior_predict(
                PRIOR, (SCORES, LABELS), POINTS, **{"num_samples": DRAWS} | options
            )


@pytest.mark.parametrize("prior", [None, "gaussian", {}, [], dist.Normal(0, 1), bc.GaussianPrior])
def test_prior_of_the_wrong_type(prior: Any) -> None:
    message = (
        "prior must be a prior such as GaussianPrior(...), or a list or dict of them, got "
        f"{type(prior).__name__}"
    )
    with pytest.raises(TypeError, match=exact_match(message)):
        condition(prior, (SCORES, LABELS), num_samples=DRAWS)


def test_list_of_priors_that_does_not_fit() -> None:
    one = [(SCORES, LABELS)]
    with pytest.raises(TypeError, match=exact_match("prior[1] must be a prior, got str")):
        condition([PRIOR, "other"], one * 2, num_samples=DRAWS)
    message = (
        "a list of priors must hold one family with the same kinds of distributions, differing "
        "in numbers alone"
    )
    other = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Uniform(0, 2), sigma=1.0)
    for wrong in (other, PLANE):
        with pytest.raises(ValueError, match=exact_match(message)):
            condition([PRIOR, wrong], one * 2, num_samples=DRAWS)
    must = "a list of 2 priors must come with as many data sets: "
    remedy = "; a dict of priors by name combines each prior with each data set"
    with pytest.raises(ValueError, match=exact_match(must + "3 data sets" + remedy)):
        condition([PRIOR, PRIOR], one * 3, num_samples=DRAWS)
    with pytest.raises(ValueError, match=exact_match(must + "one data set" + remedy)):
        condition([PRIOR, PRIOR], (SCORES, LABELS), num_samples=DRAWS)


GIVEN = "must be given: a number or a NumPyro distribution"
CONTINUOUS = "must be a continuous distribution, got "
WRONG_PARAMETERS: list[tuple[dict, str]] = [
    (
        {"mu0": dist.Normal(np.zeros(3), 1)},
        "mu0 must be a distribution without batch dimensions, got batch shape (3,): use "
        ".to_event() for a vector-valued parameter, or give a list of priors for a batch of "
        "data sets",
    ),
    ({"mu1": dist.Poisson(2.0)}, f"mu1 {CONTINUOUS}Poisson(rate=2)"),
    ({"mu0": dist.Bernoulli(0.5)}, f"mu0 {CONTINUOUS}BernoulliProbs(probs=0.5)"),
    (
        {"mu0": dist.Delta(-1.0)},
        "mu0 must be a number if it is fixed, got Delta(v=-1, log_density=0)",
    ),
    ({"mu1": None}, f"mu1 {GIVEN}"),
    ({"sigma": None}, f"sigma {GIVEN}"),
    ({"sigma": None, "sigma0": 1.0}, f"sigma1 {GIVEN}"),
    ({"sigma1": 1.0}, "sigma must not be given together with sigma0 or sigma1"),
    ({"mu0": "low"}, "mu0 must be a number or a NumPyro distribution, got str"),
    ({"mu0": np.nan}, "mu0 must be finite, got nan"),
    ({"sigma": -1.0}, "sigma must be positive, got -1.0"),
]


def test_wrong_parameters_of_a_prior() -> None:
    for changes, message in WRONG_PARAMETERS:
        arguments: dict[str, Any] = {"mu0": 0.0, "mu1": 1.0, "sigma": 1.0, **changes}
        arguments = {name: value for name, value in arguments.items() if value is not None}
        kind = TypeError if "given:" in message or "got str" in message else ValueError
        with pytest.raises(kind, match=exact_match(message)):
            bc.GaussianPrior(**arguments)


def test_parameters_that_do_not_fit_the_features() -> None:
    prior = bc.MultivariateGaussianPrior(mu0=np.zeros(3), mu1=dist.Normal(1, 1), cov=1.0)
    x = np.stack([SCORES, SCORES / 2], axis=1)
    message = "mu0 must have shape (2,) for these data, got (3,)"
    with pytest.raises(ValueError, match=exact_match(message)):
        condition(prior, (x, LABELS), num_samples=DRAWS)


@pytest.mark.parametrize(
    "integrator",
    [
        "montecarlo",
        "sobol",
        pytest.param("importance", marks=pytest.mark.slow),
        pytest.param("quadrature", marks=pytest.mark.slow),
        pytest.param("nuts", marks=pytest.mark.slow),
    ],
)
def test_prior_that_excludes_the_data(integrator: str) -> None:
    prior = bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=dist.Uniform(-2, -1))
    with pytest.raises(ValueError, match=r"^the prior must allow the data, .*; check its support$"):
        condition(prior, (SCORES, LABELS), integrator=integrator, num_samples=DRAWS)


def test_prior_of_a_batch_that_excludes_the_data() -> None:
    def prior(low: float, high: float) -> bc.Prior:
        return bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=dist.Uniform(low, high))

    priors = [prior(0.0, 1.0), prior(-2.0, -1.0), prior(0.0, 1.0)]
    with pytest.raises(ValueError, match=r"every weight is zero \(data set 1\): "):
        condition(priors, [(SCORES, LABELS)] * 3, num_samples=DRAWS)
