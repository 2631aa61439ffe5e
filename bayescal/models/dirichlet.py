"""The family of Dirichlet densities on the simplex, with the log odds of Dirichlet calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from bayescal._core.arrays import Array, ArrayT, Params
from bayescal._core.lazy import jax, jnp, special
from bayescal.data.checks import check_row_sums
from bayescal.models._family import Family, log_positive
from bayescal.models.prior import Parameter, Prior, make_prior


@dataclass(frozen=True)
class DirichletFamily(Family):
    """x | y ~ Dirichlet(alpha_y) for k classes; features 1, log x_1, ..., log x_k."""

    classes: int = 2
    name = "DirichletPrior"
    univariate = False
    of_classes = True

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the concentration vectors, one for each class."""
        return tuple(f"alpha{y}" for y in range(self.classes))

    def features(self, x: ArrayT, origin: Array, xp: ModuleType) -> ArrayT:
        logs = log_positive(x, xp) - xp.log(x.sum(axis=-1, keepdims=True))  # rows may be rounded
        return xp.concatenate([xp.ones_like(x[..., :1]), logs], axis=-1)

    def natural(self, params: Params, origin: jax.Array) -> jax.Array:
        alpha = jnp.stack([params[name] for name in self.parameters])
        alpha = jnp.where(alpha > 0, alpha, jnp.nan)
        constant = special.gammaln(alpha.sum(axis=-1)) - special.gammaln(alpha).sum(axis=-1)
        return jnp.concatenate([constant[:, None], alpha - 1], axis=-1)

    def sample(self, params: Params, labels: jax.Array, key: jax.Array) -> jax.Array:
        alpha = jnp.stack([params[name] for name in self.parameters])
        # Draws are rounded to numbers at which the densities are finite.
        return jnp.maximum(jax.random.dirichlet(key, alpha[labels]), jnp.finfo(alpha.dtype).tiny)

    def check_support(self, x: np.ndarray, name: str) -> None:
        if x.shape[-1] != self.classes:
            raise ValueError(
                f"{name} must have {self.classes} probabilities in each row, got {x.shape[-1]}"
            )
        if (x <= 0).any():
            raise ValueError(
                f"{name} must be positive for Dirichlet densities, got {x.min():g}; clip the "
                "probabilities and normalize them"
            )
        check_row_sums(x.reshape(-1, self.classes), name)

    def event_shapes(self, dim: int) -> dict[str, tuple[tuple[int, ...], ...]]:
        return {name: ((self.classes,),) for name in self.parameters}


def DirichletPrior(
    alpha: Sequence[Parameter] | np.ndarray | None = None,
    *,
    classes: int | None = None,
    model: Callable[..., None] | None = None,
    hyperparameters: Mapping[str, object] | None = None,
) -> Prior:
    r"""Prior for k Dirichlet-distributed classes of probability vectors.

    Use it for probabilities of two or more classes. Class y has
    :math:`x \mid y \sim \mathrm{Dirichlet}(\alpha_y)` on the simplex of k classes. For known
    parameters the Bayes-optimal prediction is :math:`\mathrm{softmax}(W \ln x + b)`, the map of
    Dirichlet calibration.

    Parameters
    ----------
    alpha : sequence of k entries
        For each class a NumPyro distribution of event shape (k,), a scalar distribution (k
        independent entries), an array of shape (k,) or a number; all positive.
    classes : int, optional
        Number of classes; required with ``model``, otherwise the length of ``alpha``.
    model : callable, optional
        A NumPyro model with sites ``alpha0``, ``alpha1``, ..., each of shape (k,).
    hyperparameters : mapping, optional
        Keyword arguments of ``model``.

    Returns
    -------
    Prior
        To be passed to ``posterior`` or ``posterior_predict``, whose predictions are then (m, k).

    Raises
    ------
    TypeError, ValueError
        If an entry is missing or of the wrong kind, or there are fewer than two classes.

    See Also
    --------
    BetaPrior : For the scores of class 1 of two classes.
    Dirichlet : The calibrator with this map, for scores whose generative model is unknown.

    References
    ----------
    M. Kull et al. (2019), Beyond temperature scaling: Dirichlet calibration.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> prior = DirichletPrior([dist.Gamma(2, 1)] * 3)
    >>> prior.family.classes
    3
    """
    if alpha is None and model is None:
        raise TypeError("alpha must be given: one entry for each class")
    if alpha is not None and not isinstance(alpha, (list, tuple, np.ndarray)):
        raise TypeError(f"alpha must be a sequence with one entry per class, got {alpha!r}")
    k = len(alpha) if alpha is not None else classes
    if k is None:
        raise TypeError("classes must be given with model")
    if k < 2 or (classes is not None and classes != k):
        raise ValueError(f"alpha must have one entry for each of {classes or 2} classes, got {k}")
    family = DirichletFamily(k)
    values = dict(zip(family.parameters, alpha if alpha is not None else [None] * k, strict=True))
    return make_prior(family, values, model, hyperparameters, positive=family.parameters)
