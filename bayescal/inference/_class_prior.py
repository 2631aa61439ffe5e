"""Shares of the classes where predictions are wanted: known, or estimated from the labels.

Given the labels, the shares are independent of the densities' parameters. So what is averaged over
both needs no joint sampler: shares are drawn, or integrated by a rule, beside the parameters.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma

from bayescal._core.padding import pad_axis
from bayescal.data import checks
from bayescal.models.prior import is_distribution

__all__ = ["ClassPrior", "Estimated", "Known", "Shares", "make_class_prior", "read_class_prior"]

#: The least concentration from which so many Gauss nodes, and so many of a coarser rule, serve:
#: the first miss 1e-12, the last 1e-8 for a single observation.
_NODES = (6.0, 24, 16), (3.0, 48, 32), (0.0, 64, 42)
#: Quasi-random points for more than two classes, and how many of them stand for a coarser rule.
_POINTS, _FEWER = 512, 256
_FINE = 512


class Shares(NamedTuple):
    """A rule over the shares of the classes.

    Attributes
    ----------
    log_probs : array of shape (j, classes, n)
        For ``preds`` n is the number of draws of parameters, each with its own shares, or one; for
        ``predictive`` the number of data sets, or one.
    log_weights : array of shape (j,)
        Of nodes, to each of which all draws go.
    """

    log_probs: jax.Array
    log_weights: jax.Array

    @classmethod
    def at(cls, log_probs: jax.Array) -> Shares:
        """Return the rule of one node (classes, n)."""
        return cls(log_probs[None], jnp.zeros(1, log_probs.dtype))


class ClassPrior(abc.ABC):
    """The shares of the classes; a pytree."""

    #: Whether leaves have a leading axis of data sets.
    each: bool

    @property
    @abc.abstractmethod
    def log_mean(self) -> jax.Array:
        """Log of the mean shares ([batch,] classes)."""

    @property
    @abc.abstractmethod
    def mean_log(self) -> jax.Array:
        """Mean of the log shares ([batch,] classes)."""

    @abc.abstractmethod
    def drawn(self, n: int) -> jax.Array:
        """Return log shares (classes, n) for the draws of one data set, or (classes, 1)."""

    def fixed(self, method: str) -> jax.Array:
        """Return log shares ([batch,] classes) that go with one vector of parameters.

        ``coeffs`` averages coefficients, and log shares are among these. ``map`` takes the mode of
        the density of the log odds between shares, which is their mean, and never 0 or 1.
        """
        return self.mean_log if method == "coeffs" else self.log_mean

    def rule(self, method: str, n: int, coarse: bool = False) -> Shares:
        """Return the shares to average over, for ``n`` draws or nodes of one data set."""
        if method == "preds":
            return self._for_preds(n, coarse)
        return Shares.at(jnp.atleast_2d(self.log_mean).T)

    def _for_preds(self, n: int, coarse: bool) -> Shares:
        return Shares.at(self.drawn(n))


@partial(jax.tree_util.register_dataclass, data_fields=["log_probs"], meta_fields=[])
@dataclass(frozen=True)
class Known(ClassPrior):
    """Shares (classes,) that the user says."""

    log_probs: jax.Array
    each = False

    @property
    def log_mean(self) -> jax.Array:
        return self.log_probs

    @property
    def mean_log(self) -> jax.Array:
        return self.log_probs

    def drawn(self, n: int) -> jax.Array:
        return self.log_probs[:, None]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["concentration", "key", "nodes", "coarse"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Estimated(ClassPrior):
    """Shares with a Dirichlet posterior (batch, classes): concentrations and counts of labels.

    For deterministic rules ``nodes`` and ``coarse`` are rules over the shares, with a leading axis
    of data sets; else they are None, and shares are drawn with ``key`` (batch,).
    """

    concentration: jax.Array
    key: jax.Array
    nodes: Shares | None = None
    coarse: Shares | None = None
    each = True

    @property
    def log_mean(self) -> jax.Array:
        return jnp.log(self.concentration / self.concentration.sum(axis=-1, keepdims=True))

    @property
    def mean_log(self) -> jax.Array:
        return digamma(self.concentration) - digamma(self.concentration.sum(-1, keepdims=True))

    def drawn(self, n: int) -> jax.Array:
        alpha = self.concentration
        logs = jax.random.loggamma(self.key, alpha, (n, alpha.shape[0]), alpha.dtype)
        return jax.nn.log_softmax(logs, axis=1).T

    def _for_preds(self, n: int, coarse: bool) -> Shares:
        nodes = self.coarse if coarse else self.nodes
        return Shares.at(self.drawn(n)) if nodes is None else nodes


def read_class_prior(value: Any, classes: int) -> tuple[bool, np.ndarray]:
    """Return whether shares are to be estimated, and concentrations or the shares (classes,)."""
    if value is None:
        return True, np.ones(classes)
    if not is_distribution(value):
        return False, checks.check_class_prior(value, classes)
    import numpyro.distributions as dist

    if isinstance(value, dist.Beta):
        found = np.stack(np.broadcast_arrays(value.concentration0, value.concentration1))
    elif isinstance(value, dist.Dirichlet):
        found = np.asarray(value.concentration)
    else:
        raise TypeError(
            "class_prior must be a Beta or Dirichlet distribution, probabilities, or None, got "
            f"{type(value).__name__}"
        )
    if found.shape != (classes,):
        raise ValueError(
            f"class_prior must be a distribution over {classes} classes without batch dimensions, "
            f"got concentrations of shape {found.shape}"
        )
    return True, found.astype(np.float64)


def make_class_prior(
    estimated: bool,
    values: np.ndarray,
    labels: checks.Batch,
    padded: int,
    key: jax.Array,
    by_rule: bool,
) -> ClassPrior:
    """Return the shares for a batch, padded to so many data sets; in double precision."""
    if not estimated:
        return Known(jax.device_put(np.log(values)))
    member = (labels.y[..., None] == np.arange(len(values))) & labels.mask[..., None]
    alpha = pad_axis(values + member.sum(axis=1), padded, 0)
    rules: list[Shares] = []
    if by_rule:
        different, place = np.unique(alpha, axis=0, return_inverse=True)
        place = place.ravel()
        for logs, weights in (_gauss if len(values) == 2 else _quasi_random)(different):
            rules.append(Shares(*jax.device_put((logs[place][..., None], weights[place]))))
    # Other numbers than those of the parameters.
    keys = jnp.broadcast_to(jax.random.fold_in(key, 0x5A5E), (padded,))
    return Estimated(jax.device_put(alpha), keys, *rules)


def _gauss(alpha: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return Gauss rules for the log odds of a Beta variable: log shares (b, j, 2), weights (b, j).

    Predictions are analytic in these log odds in a strip of width pi.
    """
    from scipy.special import log_expit

    zero, one = alpha.T[..., None]
    centre = np.log(one / zero)

    def height(u: np.ndarray) -> np.ndarray:
        return one * log_expit(u) + zero * log_expit(-u)

    # Where the density has fallen by e**-40; it falls the faster the farther out.
    low, high = np.zeros((2, len(alpha), 1)), np.full((2, len(alpha), 1), 1e4)
    side = np.array([-1.0, 1.0])[:, None, None]
    for _ in range(60):
        middle = (low + high) / 2
        inside = height(centre + side * middle) > height(centre) - 40
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    u = np.linspace(centre[:, 0] - high[0, :, 0], centre[:, 0] + high[1, :, 0], _FINE, axis=1)
    mass = np.exp(height(u) - height(centre))
    mass /= mass.sum(axis=1, keepdims=True)
    mean = (mass * u).sum(axis=1, keepdims=True)
    scale = np.sqrt((mass * (u - mean) ** 2).sum(axis=1, keepdims=True))
    t = (u - mean) / scale
    sizes = next(nodes for least, *nodes in _NODES if alpha.min() >= least)
    # The recurrence of the orthogonal polynomials (Stieltjes), then eigenvalues (Golub, Welsch).
    before, now, norm = np.zeros_like(t), np.ones_like(t), np.zeros((len(t), 1))
    diagonal, beside = [], []
    for _ in range(sizes[0]):
        diagonal.append((mass * t * now**2).sum(axis=1))
        new = (t - diagonal[-1][:, None]) * now - norm * before
        norm = np.sqrt((mass * new**2).sum(axis=1, keepdims=True))
        beside.append(norm[:, 0])
        before, now = now, new / norm
    rules = []
    for size in sizes:
        index = np.arange(size)
        matrix = np.zeros((len(t), size, size))
        matrix[:, index, index] = np.stack(diagonal[:size], 1)
        matrix[:, index[1:], index[:-1]] = np.stack(beside[: size - 1], 1)
        values, vectors = np.linalg.eigh(matrix)
        nodes = mean + scale * values
        with np.errstate(divide="ignore"):
            weights = 2 * np.log(np.abs(vectors[:, 0]))
        rules.append((np.stack([log_expit(-nodes), log_expit(nodes)], axis=2), weights))
    return rules


def _quasi_random(alpha: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return Dirichlet variables made of Sobol points: log shares (b, j, k), weights (b, j)."""
    from scipy.special import betaincinv
    from scipy.stats import qmc

    k = alpha.shape[1]
    points = qmc.Sobol(k - 1, rng=0).random(_POINTS)
    rest = np.cumsum(alpha[:, ::-1], axis=1)[:, ::-1]
    # What remains of a stick after each break.
    taken = betaincinv(alpha[:, None, :-1], rest[:, None, 1:], points)
    tiny = np.finfo(float).tiny
    logs = np.log(np.maximum(taken, tiny))
    left = np.cumsum(np.log1p(-np.minimum(taken, 1 - np.finfo(float).epsneg)), axis=2)
    found = np.concatenate([logs, np.zeros_like(logs[..., :1])], axis=2)
    found[..., 1:] += left
    return [(found[:, :n], np.full((len(alpha), n), -np.log(n))) for n in (_POINTS, _FEWER)]
