"""The predictions of a posterior as a pure function of points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bayescal._core.arrays import Array, ArrayLike, Params
from bayescal._core.execution.precision import default_dtype, float64
from bayescal._core.lazy import jax, jnp, registered
from bayescal._core.shapes import Float
from bayescal.inference._class_prior import ClassProbRule
from bayescal.inference._uncertainty import weighted_draws
from bayescal.inference.engine.averages import Densities, in_chunks, linear
from bayescal.inference.engine.condition import Setup
from bayescal.inference.integrators.base import Problem
from bayescal.models import Family

if TYPE_CHECKING:
    from bayescal.inference._conditioned import Conditioned
    from bayescal.inference.engine.layout import Index


@registered(
    lambda cls: jax.tree_util.register_dataclass(
        cls,
        ["weighted", "natural", "exact", "log_class_probs", "origin"],
        ["family", "method", "setup"],
    )
)
@dataclass(frozen=True, repr=False, eq=False)
class PosteriorFunction:
    """Predictions of a posterior as a pure function, as returned by ``Posterior.as_function()``.

    ``f(x)`` computes the probabilities of ``Posterior.predict`` with JAX alone, so it works inside
    ``jax.jit``, ``jax.vmap``, ``jax.grad`` and ``jax.export``. It is a pytree whose leaves are the
    draws and their weights. Only shapes are checked. Points far from the data are not integrated
    again, unlike in ``predict`` with quadrature.

    Examples
    --------
    >>> import bayescal as bc, jax
    >>> prior = bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=1.0)
    >>> f = bc.posterior(prior, ([-1.0, 1.0], [0, 1]), integrator="quadrature").as_function()
    >>> jax.vmap(f)(jax.numpy.array([0.0, 1.0])).round(2).tolist()
    [0.5, 0.879...]
    >>> jax.grad(f)(0.0).round(2).item()
    0.5
    """

    family: Family
    method: str
    setup: Setup | None
    #: Draws of the parameters and their log weights (n,), for "predictive" and "preds".
    weighted: tuple[Params, jax.Array] | None
    #: Coefficients (classes, p), for "coeffs" and "map".
    natural: jax.Array | None
    #: The conjugate problem, for closed forms.
    exact: Problem | None
    log_class_probs: ClassProbRule
    origin: jax.Array

    def __call__(self, x: ArrayLike) -> jax.Array:
        """Compute class probabilities.

        Parameters
        ----------
        x : array of shape (...), or (..., d) for multivariate families
            Points.

        Returns
        -------
        array of shape (...), or (..., k) for more than two classes
            Probability of the second class, or of every class.
        """
        points = jnp.asarray(x)
        given = points.dtype
        lead = points.shape if self.family.univariate else points.shape[:-1]
        dtype = self.log_class_probs.log_probs.dtype
        points = points.astype(dtype).reshape((-1, *points.shape[len(lead) :]))
        log_probs = in_chunks(self._log_probs, points)
        out = given if jnp.issubdtype(given, jnp.floating) else dtype
        if self.family.classes == 2:
            return jax.nn.sigmoid(log_probs[1] - log_probs[0]).astype(out).reshape(lead)
        return jax.nn.softmax(log_probs, axis=0).T.astype(out).reshape((*lead, -1))

    def _log_probs(
        self, x: Float[jax.Array, " points *dimensions"]
    ) -> Float[jax.Array, "classes points"]:
        """Compute unnormalized log class probabilities (classes, m)."""
        rule, dtype = self.log_class_probs, self.log_class_probs.log_probs.dtype
        densities = Densities(self.family, self.origin)
        if self.exact is not None:
            assert self.setup is not None
            log_density = self.setup.integrator.log_predictive(self.exact, x)
            assert log_density is not None
            return log_density + rule.log_probs[0]
        if self.natural is not None:
            phi = densities.features(x, dtype)
            return linear(self.natural - self.natural[:1], phi) + rule.log_probs[0]
        assert self.weighted is not None
        params, log_weights = self.weighted
        return densities.mixture(self.method, params, log_weights[None], x, rule, dtype)[:, 0]

    def __repr__(self) -> str:
        return f"PosteriorFunction({self.family.name}, {self.method})"


def function_of(post: Conditioned, method: str, natural: object, index: Index) -> PosteriorFunction:
    """Make the function of one data set; ``natural`` are coefficients of "coeffs" and "map"."""
    setup, problem = post.alone(index, method)
    family, out = problem.prior.family, default_dtype()
    with float64():
        weighted = exact = None
        if method in ("coeffs", "map"):
            rule = ClassProbRule.at(jnp.reshape(problem.class_prior.fixed(method), (-1, 1)))
        else:
            closed = method == "predictive" and setup.integrator.name == "closed_form"
            weighted = None if closed else weighted_draws(setup, problem)
            exact = problem if closed else None
            n = 1 if weighted is None else weighted[1].shape[0]
            rule = problem.class_prior.rule(method, n)

        def cast(leaf: Array) -> Array:
            floating = jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
            return jnp.asarray(leaf).astype(out) if floating else leaf

        leaves = jax.tree.map(cast, (weighted, natural, exact, rule, problem.origin))
    return PosteriorFunction(family, method, setup if exact is not None else None, *leaves)
