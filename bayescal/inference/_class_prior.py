"""Class probabilities in the population to predict for: known, or estimated from the labels.

Given the labels, the class probabilities are independent of the parameters of the densities. An
average over both needs no joint sampler: class probabilities are drawn, or integrated by a rule,
separately from the parameters.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.execution.padding import pad_axis
from bayescal._core.lazy import jax, jnp, registered, special
from bayescal._core.random.gamma import log_gamma
from bayescal._core.random.keys import repeat_key
from bayescal._core.shapes import Float
from bayescal.data import checks
from bayescal.models.prior import is_distribution

if TYPE_CHECKING:
    from numpyro.distributions import Distribution

#: An array by its axes.
PerClass: TypeAlias = 'Float[jax.Array, "*sets classes"]'
#: Rules of data sets: log class probabilities and log weights of their nodes.
_Rules: TypeAlias = (
    'list[tuple[Float[np.ndarray, "sets nodes classes"], Float[np.ndarray, "sets nodes"]]]'
)

#: For each least concentration, the numbers of Gauss nodes of a rule and of its coarser companion:
#: the first is accurate to 1e-12, the last to 1e-8 for a single observation. Smaller concentrations
#: have equal steps.
_NODES = (6.0, 24, 16), (3.0, 48, 32), (1.0, 64, 42)
#: Quasi-random points for more than two classes, and the number of them in the coarser rule.
_NUM_POINTS, _NUM_COARSE = 512, 256
#: Number of equidistant points, from which Gauss rules are computed.
_FINE = 513
#: Largest distance of log odds from their center; the mass beyond is moved there.
_MAX_REACH = 300.0


class ClassProbRule(NamedTuple):
    """A rule that integrates over the class probabilities; each node is combined with all draws.

    For ``preds``, there is one column for each draw of parameters, paired with a draw of class
    probabilities, or a single one; for ``predictive``, one for each data set, or a single one.
    """

    log_probs: Float[jax.Array, "*stacked nodes classes columns"]
    log_weights: Float[jax.Array, "*stacked nodes"]

    @classmethod
    def at(cls, log_probs: Float[jax.Array, "classes columns"]) -> ClassProbRule:
        """Return the rule with a single node (classes, n)."""
        return cls(log_probs[None], jnp.zeros(1, log_probs.dtype))


class ClassPrior(abc.ABC):
    """The class probabilities in the population to predict for; a pytree."""

    #: Whether leaves have a leading axis of data sets.
    per_data_set: bool

    @property
    @abc.abstractmethod
    def log_mean(self) -> PerClass:
        """Log of the mean class probabilities ([batch,] classes)."""

    @property
    @abc.abstractmethod
    def mean_log(self) -> PerClass:
        """Mean of the log class probabilities ([batch,] classes)."""

    @abc.abstractmethod
    def drawn(self, n: int) -> Float[jax.Array, "classes columns"]:
        """Return log probabilities (classes, n) for the draws of one data set, or (classes, 1)."""

    def fixed(self, method: str) -> PerClass:
        """Return log class probabilities ([batch,] classes) for one vector of parameters.

        ``coeffs`` averages coefficients, which include the log class probabilities. ``map`` takes
        the mode of their density in log odds, which is their mean and never 0 or 1.
        """
        return self.mean_log if method == "coeffs" else self.log_mean

    def rule(self, method: str, n: int, coarse: bool = False) -> ClassProbRule:
        """Return the rule to average over, for ``n`` draws or nodes of one data set."""
        by_draw = method == "preds"
        return ClassProbRule.at(self.drawn(n) if by_draw else jnp.atleast_2d(self.log_mean).T)


@registered(lambda cls: jax.tree_util.register_dataclass(cls, ["log_probs"], []))
@dataclass(frozen=True)
class Known(ClassPrior):
    """Class probabilities (classes,) that the user passed."""

    log_probs: Float[jax.Array, " classes"]
    per_data_set = False

    @property
    def log_mean(self) -> Float[jax.Array, " classes"]:
        return self.log_probs

    @property
    def mean_log(self) -> Float[jax.Array, " classes"]:
        return self.log_probs

    def drawn(self, n: int) -> Float[jax.Array, "classes 1"]:
        return self.log_probs[:, None]


@registered(
    lambda cls: jax.tree_util.register_dataclass(
        cls, ["concentration", "key", "nodes", "coarse"], []
    )
)
@dataclass(frozen=True)
class Estimated(ClassPrior):
    """Class probabilities with a Dirichlet posterior (batch, classes).

    ``concentration`` is the prior's concentration plus the counts of labels. For deterministic
    rules, ``nodes`` and ``coarse`` are rules over the probabilities with a leading axis of data
    sets; otherwise they are None and probabilities are drawn with ``key`` (batch,).
    """

    concentration: Float[jax.Array, "*sets classes"]
    key: jax.Array
    nodes: ClassProbRule | None = None
    coarse: ClassProbRule | None = None
    per_data_set = True

    @property
    def log_mean(self) -> PerClass:
        return jnp.log(self.concentration / self.concentration.sum(axis=-1, keepdims=True))

    @property
    def mean_log(self) -> PerClass:
        total = self.concentration.sum(-1, keepdims=True)
        return special.digamma(self.concentration) - special.digamma(total)

    def drawn(self, n: int) -> Float[jax.Array, "classes draws"]:
        alpha = self.concentration
        # Use a separate stream of random numbers from the parameters.
        key = jax.random.fold_in(self.key, 0x5A5E)
        logs = log_gamma(key, alpha, (n, alpha.shape[0]))
        return jax.nn.log_softmax(logs, axis=1).T

    def rule(self, method: str, n: int, coarse: bool = False) -> ClassProbRule:
        nodes = self.coarse if coarse else self.nodes
        return nodes if nodes is not None and method == "preds" else super().rule(method, n)


def read_class_prior(
    value: ArrayLike | Distribution | None, classes: np.ndarray
) -> tuple[bool, Float[np.ndarray, " classes"]]:
    """Return whether to estimate class probabilities, and concentrations or the probabilities."""
    k = len(classes)
    if value is None:
        return True, np.ones(k)
    if not is_distribution(value):
        return False, checks.check_class_prior(value, classes)
    import numpyro.distributions as dist

    if isinstance(value, dist.Beta):
        concentrations = np.stack(np.broadcast_arrays(value.concentration0, value.concentration1))
    elif isinstance(value, dist.Dirichlet):
        concentrations = np.asarray(value.concentration)
    else:
        raise TypeError(
            "class_prior must be a Beta or Dirichlet distribution, probabilities, or None, got "
            f"{type(value).__name__}"
        )
    if concentrations.shape != (k,):
        raise ValueError(
            f"class_prior must be a distribution over {k} classes without batch dimensions, "
            f"got concentrations of shape {concentrations.shape}"
        )
    return True, concentrations.astype(np.float64)


def make_class_prior(
    estimated: bool,
    values: Float[np.ndarray, " classes"],
    labels: checks.Batch,
    padded: int,
    key: jax.Array,
    by_rule: bool,
) -> ClassPrior:
    """Make the class probabilities of a batch padded to ``padded`` data sets, in float64."""
    if not estimated:
        return Known(jax.device_put(np.log(values)))
    member = (labels.y[..., None] == np.arange(len(values))) & labels.mask[..., None]
    alpha = pad_axis(values + member.sum(axis=1), padded, 0)
    rules: list[ClassProbRule] = []
    if by_rule:
        different, index = np.unique(alpha, axis=0, return_inverse=True)
        index = index.ravel()
        for logs, weights in (_gauss if len(values) == 2 else _quasi_random)(different):
            arrays = jax.device_put((logs[index][..., None], weights[index]))
            rules.append(ClassProbRule(*arrays))
    return Estimated(jax.device_put(alpha), repeat_key(key, padded), *rules)


def _gauss(alpha: Float[np.ndarray, "sets 2"]) -> _Rules:
    """Return Gauss rules for the log odds of a Beta variable, or equal steps if its tails are long.

    They hold log class probabilities (b, j, 2) and log weights (b, j). Predictions are analytic in
    these log odds in a strip of width pi, but vary only near one of them.
    """
    from scipy.special import log_expit

    zero, one = alpha.T[..., None]
    center = np.log(one / zero)

    def height(u: Float[np.ndarray, "*ends sets points"]) -> Float[np.ndarray, "*ends sets points"]:
        return one * log_expit(u) + zero * log_expit(-u)

    # The range ends where the density has fallen by e**-40; beyond, it falls faster.
    low, high = np.zeros((2, len(alpha), 1)), np.full((2, len(alpha), 1), _MAX_REACH)
    side = np.array([-1.0, 1.0])[:, None, None]
    for _ in range(60):
        middle = (low + high) / 2
        inside = height(center + side * middle) > height(center) - 40
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    u = np.linspace(center[:, 0] - high[0, :, 0], center[:, 0] + high[1, :, 0], _FINE, axis=1)
    mass = np.exp(height(u) - height(center))
    mass /= mass.sum(axis=1, keepdims=True)
    rules = []
    if alpha.min() < _NODES[-1][0]:
        for step in (1, 2):
            nodes, part = u[:, ::step], mass[:, ::step].copy()
            # Beyond the ends the density is exponential.
            part[:, [0, -1]] *= 0.5 + 1 / ((nodes[:, 1:2] - nodes[:, :1]) * alpha[:, ::-1])
            rules.append((_log_probs(nodes), np.log(part / part.sum(axis=1, keepdims=True))))
        return rules
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
    for size in sizes:
        index = np.arange(size)
        matrix = np.zeros((len(t), size, size))
        matrix[:, index, index] = np.stack(diagonal[:size], 1)
        matrix[:, index[1:], index[:-1]] = np.stack(beside[: size - 1], 1)
        values, vectors = np.linalg.eigh(matrix)
        nodes = mean + scale * values
        with np.errstate(divide="ignore"):
            weights = 2 * np.log(np.abs(vectors[:, 0]))
        rules.append((_log_probs(nodes), weights))
    return rules


def _log_probs(log_odds: Float[np.ndarray, "sets nodes"]) -> Float[np.ndarray, "sets nodes 2"]:
    """Return the logarithms of both probabilities."""
    from scipy.special import log_expit

    return np.stack([log_expit(-log_odds), log_expit(log_odds)], axis=2)


def _quasi_random(alpha: Float[np.ndarray, "sets classes"]) -> _Rules:
    """Map Sobol points to Dirichlet variables: log probabilities (b, j, k), weights (b, j)."""
    from scipy.special import betaincinv
    from scipy.stats import qmc

    k = alpha.shape[1]
    points = qmc.Sobol(k - 1, rng=0).random(_NUM_POINTS)
    rest = np.cumsum(alpha[:, ::-1], axis=1)[:, ::-1]
    # The parts of a stick that each break takes and leaves; both may be tiny.
    before, after = alpha[:, None, :-1], rest[:, None, 1:]
    parts = betaincinv(before, after, points), betaincinv(after, before, 1 - points)
    logs, left = (np.log(np.maximum(part, np.finfo(float).tiny)) for part in parts)
    left = np.cumsum(left, axis=2)
    log_probs = np.concatenate([logs, np.zeros_like(logs[..., :1])], axis=2)
    log_probs[..., 1:] += left
    return [
        (log_probs[:, :n], np.full((len(alpha), n), -np.log(n))) for n in (_NUM_POINTS, _NUM_COARSE)
    ]
