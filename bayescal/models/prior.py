"""Priors over the parameters of a family: independent distributions, or a NumPyro model.

Both are traversed by ``walk``, which visits the random sites in order, lets a callback choose their
values, and returns the parameters. Drawing, densities and changes of variables are callbacks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from bayescal._core.arrays import ArrayLike, Params
from bayescal._core.execution.threads import RUNNING_MODEL
from bayescal._core.lazy import is_traced, jax, jnp, registered
from bayescal._core.numerics import nan_to_minus_inf
from bayescal._core.random.keys import Seed, as_key
from bayescal._core.warnings import warn
from bayescal.data.checks import as_numpy, check_count
from bayescal.models._family import Family

if TYPE_CHECKING:
    from numpyro.distributions import Distribution
    from typing_extensions import TypeIs

#: Number of draws with which a prior is checked for values that are not positive.
_NUM_CHECKED_DRAWS = 4096
#: Names of distributions that only change the shape of another.
_WRAPPERS = "Independent", "ExpandedDistribution"
#: A parameter as users pass it; None if it is left out.
Parameter: TypeAlias = "Distribution | ArrayLike | None"
#: A function of a site's name and distribution that returns its value.
Choose: TypeAlias = "Callable[[str, Distribution], jax.Array]"


class Site(NamedTuple):
    """A random site visited on a walk: its distribution and the chosen value."""

    name: str
    distribution: Distribution
    value: jax.Array


@registered(
    lambda cls: jax.tree_util.register_dataclass(
        cls, ["values"], ["family", "model", "closed_form"]
    )
)
@dataclass(frozen=True)
class Prior:
    """A family of densities with a prior over its parameters.

    Returned by ``GaussianPrior``, ``BetaPrior``, ``MultivariateGaussianPrior``, ``DirichletPrior``
    and ``NormalInverseGammaPrior``; pass it to ``posterior`` or ``posterior_predict``. It is a
    pytree whose leaves are numbers, so priors that differ only in their numbers share one
    compilation.

    Attributes
    ----------
    family : Family
        The class-conditional densities.
    values : dict
        A NumPyro distribution or a number for each parameter, or the hyperparameters of ``model``.
    model : callable or None
        NumPyro model of a joint prior, called with ``values`` as keyword arguments.
    closed_form : object or None
        Formulas of a conjugate prior, or None.

    Examples
    --------
    >>> from bayescal import GaussianPrior
    >>> GaussianPrior(mu0=-1.0, mu1=1.0, sigma=2.0).family.parameters
    ('mu0', 'mu1', 'sigma')
    """

    family: Family
    values: dict[str, Any]
    model: Callable[..., None] | None = None
    closed_form: Any = None

    def sample(self, num_draws: int, *, key: Seed = 0, dim: int = 1) -> Params:
        """Sample parameters from the prior, for prior predictive checks.

        Parameters
        ----------
        num_draws : int
        key : int, JAX key or NumPy generator
            Seed.
        dim : int
            Number of features, for multivariate families.

        Returns
        -------
        dict of arrays of shape (num_draws, ...)
            Parameters by name, also those that the prior fixes.

        Examples
        --------
        >>> import numpyro.distributions as dist
        >>> from bayescal import GaussianPrior
        >>> draws = GaussianPrior(mu0=dist.Uniform(-2, 0), mu1=1.0, sigma=1.0).sample(1000)
        >>> draws["mu0"].shape, draws["mu0"].mean().round().item(), draws["mu1"][0].item()
        ((1000,), -1.0, 1.0)
        """
        num_draws = check_count(num_draws, "num_draws")
        return draw(fit_shapes(self, dim), as_key(key), num_draws)[0]

    def __repr__(self) -> str:
        """Return the call that makes this prior."""
        inside = [f"{name}={_describe(value)}" for name, value in self.values.items()]
        if self.model is not None and self.closed_form is None:
            inside = [f"model={getattr(self.model, '__name__', self.model)}", *inside]
        name = self.family.name if self.closed_form is None else self.closed_form.name
        return f"{name}({', '.join(inside)})"


def make_prior(
    family: Family,
    values: Mapping[str, Parameter],
    model: Callable[..., None] | None,
    hyperparameters: Mapping[str, object] | None,
    positive: Sequence[str] = (),
) -> Prior:
    """Check a public prior's arguments and build it; ``positive`` names the scale parameters."""
    if model is None:
        if hyperparameters is not None:
            raise ValueError("hyperparameters must come with model")
        checked = {n: _check_value(n, values[n], positive) for n in family.parameters}
        scales = {n: v for n, v in checked.items() if n in positive and is_distribution(v)}
        return Prior(family, checked | {n: cut_at_zero(n, v) for n, v in scales.items()})
    given = [name for name, value in values.items() if value is not None]
    if given:
        raise ValueError(f"model must be the only prior, got {', '.join(given)} as well")
    hyper = dict(hyperparameters or {})
    sites = model_sites(model, hyper)
    missing = [name for name in family.parameters if name not in sites]
    if missing:
        raise ValueError(
            f"model must have sites named {', '.join(family.parameters)}; "
            f"it lacks {', '.join(missing)}"
        )
    made = Prior(family, hyper, model)
    if unsafe := [name for name in positive if sites.get(name)]:
        params = draw(made, jax.random.key(0), _NUM_CHECKED_DRAWS)[0]
        for name in unsafe:
            _warn_of_negative(name, "the model", params[name], cut=False)
    return made


def cut_at_zero(name: str, value: Distribution) -> Distribution:
    """Truncate the prior of a positive parameter at zero, with a warning, if it is not positive."""
    if not _may_be_negative(value.support):
        return value
    import numpyro.distributions as dist

    cut, draws = value, value.sample(jax.random.key(0), (_NUM_CHECKED_DRAWS,))
    if type(value) is dist.Uniform:
        cut = dist.Uniform(0.0, value.high)
    elif type(value) in (dist.Normal, dist.Cauchy, dist.Laplace, dist.Logistic):
        cut = dist.LeftTruncatedDistribution(value, 0.0)
    return cut if _warn_of_negative(name, _describe(value), draws, cut is not value) else value


def _may_be_negative(support: object) -> bool:
    """Return whether a support may contain numbers that are not positive."""
    while hasattr(support, "base_constraint"):
        support = getattr(support, "base_constraint", None)
    kind, low = type(support).__name__.lower(), getattr(support, "lower_bound", None)
    if "positive" in kind or "unitinterval" in kind or "simplex" in kind:
        return False
    return low is None or is_traced(low) or not bool(np.all(np.asarray(low) >= 0))


def _warn_of_negative(name: str, what: str, draws: ArrayLike, cut: bool) -> bool:
    """Warn about draws that are not positive; return whether there are any."""
    fraction = float(np.mean(np.asarray(draws) <= 0))
    # If no draw is positive, conditioning reports that the prior excludes the data.
    if not 0 < fraction < 1:
        return False
    done = "is cut off at zero" if cut else "counts for nothing there, which lowers the evidence"
    warn(
        f"{name} must be positive, but {fraction:.1%} of the draws from {what} are not: the prior "
        f"{done}; use a distribution of positive numbers, such as HalfNormal or LogNormal"
    )
    return True


def _check_value(name: str, value: Parameter, positive: Sequence[str]) -> object:
    """Check the distribution, finite number or array that was passed for a parameter."""
    if value is None:
        raise TypeError(f"{name} must be given: a number or a NumPyro distribution")
    if is_distribution(value):
        if value.batch_shape != ():
            raise ValueError(
                f"{name} must be a distribution without batch dimensions, got batch shape "
                f"{value.batch_shape}: use .to_event() for a vector-valued parameter, or give a "
                "list of priors for a batch of data sets"
            )
        if getattr(value.support, "is_discrete", False):
            raise ValueError(f"{name} must be a continuous distribution, got {_describe(value)}")
        if type(value).__name__ == "Delta":
            raise ValueError(f"{name} must be a number if it is fixed, got {_describe(value)}")
        check_density(name, value)
        return value
    try:
        array = as_numpy(value, name).astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must be a number or a NumPyro distribution, got {type(value).__name__}"
        ) from None
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {value}")
    if name in positive and not (array > 0).all():
        raise ValueError(f"{name} must be positive, got {value}")
    return float(array) if array.ndim == 0 else array


def is_distribution(value: object) -> TypeIs[Distribution]:
    """Whether ``value`` is a NumPyro distribution; imports nothing."""
    return callable(getattr(value, "log_prob", None)) and hasattr(value, "batch_shape")


def _describe(value: Any) -> str:
    """Describe a distribution or a number briefly."""
    if not is_distribution(value):
        if np.ndim(value) == 0:
            return f"{float(value):g}" if float(value) != int(value) else f"{float(value)}"
        return f"array{np.shape(value)}"
    value = cast(Any, value)  # attributes of particular distributions follow
    if type(value).__name__ == "TransformedDistribution":
        steps = ", ".join(type(t).__name__ for t in value.transforms)
        return f"{steps}({_describe(value.base_dist)})"
    if type(value).__name__ in _WRAPPERS:
        shape = value.event_shape or value.batch_shape
        while type(value).__name__ in _WRAPPERS:
            value = value.base_dist
        return f"{_describe(value)}^{shape}"
    base = getattr(value, "base_dist", None)
    inside = [_describe(base)] if is_distribution(base) else []
    for name in value.arg_constraints:
        argument = getattr(value, name, None)
        if argument is not None and np.ndim(argument) == 0:
            inside.append(f"{name}={np.asarray(argument).item():g}")
    return f"{type(value).__name__}({', '.join(inside)})"


def walk(prior: Prior, choose: Choose) -> tuple[Params, list[Site]]:
    """Visit the random sites; return all parameters and the sites with their chosen values.

    ``choose(name, distribution)`` returns the value of a site.  Works under any JAX transformation.
    """
    with jax.numpy_dtype_promotion("standard"):
        if prior.model is not None:
            return _walk_model(prior, choose)
        params, sites = {}, []
        for name, value in prior.values.items():
            if is_distribution(value):
                chosen = choose(name, value)
                sites.append(Site(name, value, chosen))
                params[name] = chosen
            else:
                params[name] = jnp.asarray(value, jnp.result_type(float))
        return params, sites


def _walk_model(prior: Prior, choose: Choose) -> tuple[Params, list[Site]]:
    """Run the NumPyro model with the values that ``choose`` returns."""
    from numpyro import handlers
    from numpyro.primitives import Messenger

    class Chooser(Messenger):
        def process_message(self, msg: dict[str, Any]) -> None:
            if msg["type"] == "sample" and msg["value"] is None:
                distribution = msg["fn"]
                if _is_fixed(distribution):
                    msg["value"] = distribution.sample(jax.random.key(0))
                else:
                    msg["value"] = choose(msg["name"], distribution)

    assert prior.model is not None
    # Block the sites, so that a sampler that runs this model inside another does not see them.
    with RUNNING_MODEL, handlers.block(), handlers.trace() as trace, Chooser():
        prior.model(**prior.values)
    sites, params = [], {}
    for name, entry in trace.items():
        if entry["type"] == "sample" and not _is_fixed(entry["fn"]):
            sites.append(Site(name, entry["fn"], entry["value"]))
        if entry["type"] in ("sample", "deterministic") and name in prior.family.parameters:
            params[name] = jnp.asarray(entry["value"], jnp.result_type(float))
    return params, sites


def _kind(distribution: object) -> str:
    """Return the class name of a distribution, without wrappers that only change its shape."""
    while type(distribution).__name__ in _WRAPPERS:
        distribution = getattr(distribution, "base_dist", None)
    return type(distribution).__name__


def _is_fixed(distribution: object) -> bool:
    """Return whether a distribution has a single value."""
    return _kind(distribution) == "Delta"


def has_point_masses(distribution: object) -> bool:
    """Whether single values have positive probability, as in a mixture of ``Delta`` and others."""
    parts = [getattr(distribution, name, None) for name in ("base_dist", "component_distribution")]
    parts += getattr(distribution, "component_distributions", ())
    inside = any(has_point_masses(part) for part in parts if is_distribution(part))
    return inside or type(distribution).__name__ == "Delta"


def check_density(name: str, distribution: object, scale: object = None) -> None:
    """Check that the density of a site is that of its draws."""
    kind = _kind(distribution)
    if kind == "MaskedDistribution" or kind.endswith("CensoredDistribution") or scale is not None:
        raise ValueError(
            f"{name} must have the density of its draws: a mask, numpyro.handlers.scale and "
            "censoring change it"
        )


def model_sites(
    model: Callable[..., None], hyperparameters: Mapping[str, object]
) -> dict[str, bool]:
    """List a model's sites, and whether they may be negative, without computing values."""
    from numpyro import handlers

    if not callable(model):
        raise TypeError(f"model must be callable, got {type(model).__name__}")
    if texts := [name for name, value in hyperparameters.items() if isinstance(value, str)]:
        raise TypeError(f"hyperparameters must be numbers or arrays, got text: {', '.join(texts)}")
    names: dict[str, bool] = {}

    def run(key: jax.Array) -> int:
        with RUNNING_MODEL, handlers.trace() as trace, handlers.seed(rng_seed=key):
            model(**hyperparameters)
        for name, site in trace.items():
            if site["type"] == "sample" and site["is_observed"]:
                raise ValueError(
                    f"model must be a prior without observations or factors, got site {name!r}"
                )
            if site["type"] == "sample":
                check_density(name, site["fn"], site["scale"])
            names[name] = site["type"] != "sample" or _may_be_negative(site["fn"].support)
        return 0

    with jax.numpy_dtype_promotion("standard"):
        jax.eval_shape(run, jax.random.key(0))
    return names


def sample_sites(
    prior: Prior, key: jax.Array, shape: tuple[int, ...] = ()
) -> tuple[Params, list[Site]]:
    """Visit the random sites with values, each of ``shape``, drawn from their distributions."""
    count = itertools.count()

    def choose(name: str, distribution: Distribution) -> jax.Array:
        value = distribution.sample(jax.random.fold_in(key, next(count)), shape)
        return jnp.asarray(value, jnp.result_type(float))

    return walk(prior, choose)


def draw(prior: Prior, key: jax.Array, num_samples: int) -> tuple[Params, jax.Array]:
    """Draw parameters, with a leading axis of ``num_samples``, and their log prior density."""

    def draw_once(key: jax.Array) -> tuple[Params, jax.Array]:
        params, sites = sample_sites(prior, key)
        return params, log_density(sites)

    if prior.model is not None:
        return jax.vmap(draw_once)(jax.random.split(key, num_samples))
    # Draw all independent sites at once, which compiles to less.
    params, sites = sample_sites(prior, key, (num_samples,))
    params = repeat_fixed(params, sites, num_samples)
    log_prior = jnp.zeros(num_samples)
    with jax.numpy_dtype_promotion("standard"):
        for site in sites:
            log_prior = log_prior + site.distribution.log_prob(site.value)
    return params, nan_to_minus_inf(log_prior)


def repeat_fixed(params: Params, sites: Sequence[Site], n: int) -> Params:
    """Repeat the parameters that no site samples ``n`` times, so that they match the others."""
    sampled = {site.name for site in sites}
    return {
        name: value if name in sampled else jnp.broadcast_to(value, (n, *jnp.shape(value)))
        for name, value in params.items()
    }


def log_density(sites: Sequence[Site]) -> jax.Array:
    """Compute the log prior density at the chosen values; ``-inf`` outside the support."""
    with jax.numpy_dtype_promotion("standard"):
        total = jnp.zeros(())
        for site in sites:
            total = total + jnp.sum(site.distribution.log_prob(site.value))
        return nan_to_minus_inf(total)


def fit_shapes(prior: Prior, dim: int) -> Prior:
    """Give every parameter the shape that ``dim`` features require.

    A scalar distribution for a vector parameter means independent, identically distributed entries.
    """
    if prior.model is not None:
        return prior
    values = {}
    for name, shapes in prior.family.event_shapes(dim).items():
        value, shape = prior.values[name], shapes[0]
        if is_distribution(value):
            if value.event_shape == () and () not in shapes:
                value = value.expand(shape).to_event(len(shape))
            got = value.event_shape
        else:
            value = np.full(shape, value) if np.ndim(value) == 0 and () not in shapes else value
            got = np.shape(value)
        if got not in shapes:
            allowed = " or ".join(str(s) for s in shapes)
            raise ValueError(f"{name} must have shape {allowed} for these data, got {got}")
        values[name] = value
    return Prior(prior.family, values, None, prior.closed_form)


def widen(prior: Prior) -> Prior:
    """Convert the numbers of a prior to float64, so that densities are computed in float64.

    Distributions built without 64-bit types store some of their arguments as float32 arrays.
    """

    def cast(leaf: object) -> object:
        dtype = getattr(leaf, "dtype", None)
        if dtype is not None and jnp.issubdtype(dtype, jnp.floating):
            return np.asarray(leaf, np.float64)
        return leaf

    return jax.tree.map(cast, prior)


def stack_priors(priors: Sequence[Prior]) -> Prior:
    """Stack priors that differ only in their numbers into one with a leading axis on its leaves."""
    for i, prior in enumerate(priors):
        if not isinstance(prior, Prior):
            raise TypeError(f"prior[{i}] must be a prior, got {type(prior).__name__}")
    structures = {jax.tree.structure(prior) for prior in priors}
    shapes = {tuple(np.shape(leaf) for leaf in jax.tree.leaves(prior)) for prior in priors}
    if len(structures) > 1 or len(shapes) > 1:
        raise ValueError(
            "a list of priors must hold one family with the same kinds of distributions, "
            "differing in numbers alone"
        )
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(v) for v in leaves]), *priors)
