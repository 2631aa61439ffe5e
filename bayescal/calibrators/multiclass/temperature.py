"""Temperature scaling."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core import numerics
from bayescal._core.arrays import on_host
from bayescal._core.chunks import slices
from bayescal._core.numerics import scaled_softmax, unit_of
from bayescal._core.optimise import IntervalMinimum, Status, newton_on_interval
from bayescal.calibrators.base.calibrator import Keeps, State
from bayescal.calibrators.multiclass.binwise import best_inverse_temperature
from bayescal.calibrators.multiclass.top_logits.calibrator import TopLogitsCalibrator
from bayescal.calibrators.multiclass.top_logits.fits import TopRows, fit_top_inverse
from bayescal.data.blocks.reader import RowBlocks
from bayescal.data.checks import check_choice
from bayescal.data.rows import Sums
from bayescal.data.top_logits import top_probabilities, unpack
from bayescal.regression.binary.posterior import sample_whitened
from bayescal.regression.draws import Draws, one_chain
from bayescal.regression.numpyro_models import Flat, Model, as_model

__all__ = [
    "ScaleLoss",
    "ScaleLossThere",
    "Temperature",
    "fit_inverse_of_blocks",
    "fit_inverse_temperature",
    "power_unit",
    "sample_inverse",
    "scaled_softmax",
    "unit_of",
]

#: Elements of a block: several arrays of this size stay in the processor's cache.
_BLOCK = 1 << 15
#: Beyond so many logits, a part of the rows of this size finds where to start: at least so many.
_PART, _PART_ROWS = 1 << 14, 64
#: Up to so many logits are copied.
_KEPT = 1 << 24
#: Of the logarithm of the inverse temperature: most lie between 1/20 and 20.
LOG_SCALE = 1.5
#: Multiplied by any usual scale these stay finite.
differences = partial(numerics.differences, lowest=-1e100)


@dataclass(eq=False, repr=False)
class Temperature(TopLogitsCalibrator):
    r"""Temperature scaling: logits divided by one temperature, which is never negative.

    .. math:: \hat p = \operatorname{softmax}(z / T)

    Of two classes these are log odds divided by T. Scores that predict labels no better than
    chance, or worse, get an infinite temperature: all classes are equally probable.

    Of very many classes, as the tokens of a language model, truncated logits do
    (``inputs="top_logits"``, ``classes=k``): scores are a tuple of the indices (n, m) of each row's
    m largest logits, these (n, m), and the log-sum-exp r (n,) of all other logits, -inf if m = k.
    The others are taken as equal:

    .. math:: \hat p_j \propto e^{z_j / T}, \qquad
       \hat p_{rest} \propto (k - m)\, e^{(r - \ln(k - m)) / T}

    This is exact at T = 1. If others differ, it makes the rest too probable for T > 1, and for
    T < 1 not probable enough, by Jensen's inequality. A label outside the top has the probability
    of the rest divided by k - m. ``predict_proba`` returns :class:`TopProbs`; an example is there.

    Parameters
    ----------
    objective : {"log_loss", "adaptive_ece"}
        What is minimized: the log loss, which has one minimum; or the expected calibration error
        of the confidence in 15 bins of equal mass, as ``metrics.ece`` reports it, which is rough,
        over a grid of temperatures, and has no posterior.

    Attributes
    ----------
    temperature_ : float

    Notes
    -----
    By log loss O(n k) for each of about five iterations, of which all but two see a part of many
    rows; more than 16,384 logits are used in single precision, but for the last step. Blocks are
    read four times. Beside the scores up to 16 million numbers are held; of blocks as many in each
    thread, and as a sample.
    The posterior's prior is log T ~ N(0, 1.5^2).

    References
    ----------
    C. Guo et al. (2017), On calibration of modern neural networks.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bool(bc.Temperature().fit(p, y).temperature_ > 1)  # over-confident
    True
    >>> logits, y = [[4.0, 0, 0]] * 4, [0, 0, 1, 2]
    >>> calibrator = bc.Temperature(inputs="logits").fit(logits, y)
    >>> round(calibrator.temperature_, 3)  # exp(4 / T) = 2
    5.771
    >>> calibrator.predict_proba(logits[:1]).round(2).tolist()
    [[0.5, 0.25, 0.25]]
    """

    objective: Literal["log_loss", "adaptive_ece"] = "log_loss"

    temperature_: float = field(init=False)

    keeps: ClassVar[Keeps] = "argmax"
    monotone: ClassVar[bool] = True
    _domain = "logits"

    @property
    def _fits_there(self) -> bool:
        return self.inference == "map" and self.objective == "log_loss"

    def _check_options(self) -> None:
        check_choice(self.objective, "objective", ("log_loss", "adaptive_ece"))
        if self.objective != "log_loss" and self.inference != "map":
            raise ValueError(
                f"inference must be 'map' for objective={self.objective!r}, which has no "
                f"likelihood, got {self.inference!r}"
            )
        if self.objective != "log_loss" and self._truncated:
            raise ValueError(
                f"objective must be 'log_loss' for inputs='top_logits', got {self.objective!r}"
            )

    @property
    def _fits_blocks(self) -> bool:
        return self._fits_there

    def _fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        if self.objective == "log_loss":
            return self._found(fit_inverse_temperature(scores, y, weights), weights.sum())
        inverse, value = best_inverse_temperature(scores, y, weights)
        return self._named(inverse, value, Status.CONVERGED)

    def _fit_blocks(self, rows: RowBlocks, seed: int) -> State:
        if self._truncated:
            return self._fit_top(rows, rows.k)
        return self._found(fit_inverse_of_blocks(rows), rows.weight)

    def _fit_top(self, rows: TopRows, k: int) -> State:
        return {**self._found(fit_top_inverse(rows, k), rows.weight), "k": np.asarray(k)}

    def _apply_top(self, state: State, rows: Any, k: int) -> Any:
        return top_probabilities(unpack(rows, k), state["theta"][0])

    def _found(self, found: IntervalMinimum, total: float) -> State:
        state = self._named(found.x, found.value / total, found.status)
        return {**state, "n_iter": np.asarray(found.iterations)}

    def _named(self, inverse: float, value: float, status: Status) -> State:
        theta = np.array([inverse])
        return {
            **self._describe({}, theta),
            "theta": theta,
            "objective": np.asarray(value),
            "status": np.asarray(int(status)),
        }

    def _describe(self, state: State, theta: np.ndarray) -> State:
        with np.errstate(divide="ignore"):
            return {"temperature": 1 / theta[..., 0]}

    def _curves(self, state: State, theta: Any, scores: Any) -> Any:
        return scaled_softmax(scores, theta[..., :1, None])

    def _sample(
        self, state: State, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int
    ) -> Draws:
        return sample_inverse(scores, y, weights, self.inference, self.num_samples, seed)

    def _model(self, state: State, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Model:
        from numpyro.distributions import LogNormal

        if self.objective != "log_loss":
            return super()._model(state, scores, y, weights)
        below = differences(scores)
        own = below[np.arange(len(y)), y]
        flat = self.inference == "map"

        def loss(values: dict[str, Any]) -> jax.Array:
            s = values["inverse_temperature"]
            log_sums = jax.nn.logsumexp(s * jnp.asarray(below), axis=1)
            return jnp.asarray(weights) @ (log_sums - s * jnp.asarray(own))

        law = Flat(positive=True) if flat else partial(LogNormal, 0.0, LOG_SCALE)
        sites = {"inverse_temperature": law}
        return as_model(sites, loss, lambda v: {"temperature": 1 / v["inverse_temperature"]})


class ScaleLoss:
    """The weighted cross-entropy of softmax(s * logits), as a function of s.

    Logits are kept below their row's greatest, in blocks; in single precision where there are many.
    Where there are more than 16 million, or ``single`` says the precision, since the loss is then
    wanted once, nothing is kept: some 100,000 numbers, or a row, are at work.
    """

    def __init__(
        self, logits: np.ndarray, y: np.ndarray, weights: np.ndarray, single: bool | None = None
    ) -> None:
        n, k = logits.shape
        many = logits.size > _PART
        self._type = np.float32 if (many if single is None else single) else np.float64
        self.total = float(weights.sum())
        self._rows = logits, y, weights
        self._parts = slices(n, max(1, _BLOCK // k))
        keep = single is None and logits.size <= _KEPT
        self._kept = [*map(self._prepared, self._parts)] if keep else None

    def _prepared(self, rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return some rows' logits below their greatest, those of the labels, and weights."""
        logits, y, weights = (own[rows] for own in self._rows)
        # Classes come first: sums over them are then sums of long vectors.
        part = np.ascontiguousarray(logits.T)
        below = part - part.max(axis=0)
        own = below[y, np.arange(below.shape[1])].astype(float)
        return below.astype(self._type, copy=False), own, weights

    def __call__(self, s: float) -> tuple[float, float, float]:
        """Return the loss and its first two derivatives at s."""
        value = slope = curvature = 0.0
        kept = map(self._prepared, self._parts) if self._kept is None else self._kept
        for below, own, weights in kept:
            small = below * below.dtype.type(s)
            np.exp(small, out=small)
            total = small.sum(axis=0).astype(float)
            small *= below
            first = small.sum(axis=0) / total
            small *= below
            second = small.sum(axis=0) / total
            value += weights @ (np.log(total) - s * own)
            slope += weights @ (first - own)
            curvature += weights @ (second - first**2)
        return float(value), float(slope), float(curvature)


def fit_inverse_temperature(logits: Any, y: np.ndarray, weights: np.ndarray) -> IntervalMinimum:
    """Minimize the weighted sum of the cross-entropies of softmax(s * logits) over s >= 0.

    Logits (n, k) may be of any floating type; more than 16,384 are used in single precision, but
    for the last step.
    """
    if not on_host(logits):
        return _fit_there(logits, y, weights)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        unit = power_unit(logits, 1e6)
        scaled = logits / unit if unit != 1 else logits
        start = 1.0 if unit == 1 else 0.0
        stride = min(logits.size // _PART, len(y) // _PART_ROWS)
        if stride > 2:
            part = slice(None, None, stride)
            loss = ScaleLoss(scaled[part], y[part], weights[part])
            start = newton_on_interval(loss, start, scale=loss.total).x
        loss = ScaleLoss(scaled, y, weights)
        found = newton_on_interval(loss, start, scale=loss.total)
        if logits.size > _PART and found.status == Status.CONVERGED:
            found = _polish(found, scaled, y, weights)
    return found._replace(x=found.x / unit)


def _polish(
    found: IntervalMinimum, logits: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> IntervalMinimum:
    """Return a minimum that single precision found after a last step in double precision."""
    value, slope, curvature = ScaleLoss(logits, y, weights, single=False)(found.x)
    step = slope / curvature if curvature > 0 else 0.0
    return found._replace(x=max(found.x - step, 0.0), value=value - slope * step / 2)


def fit_inverse_of_blocks(rows: RowBlocks) -> IntervalMinimum:
    """Do the same with rows that come in blocks: a pass for each s, from that of the sample on."""
    unit = unit_of(rows.largest, 1e6)
    rows = rows.divided(unit)

    def loss(s: float) -> tuple[float, float, float]:
        value, slope, curvature = rows.total(partial(_scale_sums, s))["terms"].tolist()
        return value, slope, curvature

    found = newton_on_interval(loss, fit_inverse_temperature(*rows.sample).x, scale=rows.weight)
    return found._replace(x=found.x / unit)


def _scale_sums(s: float, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Sums:
    return {"terms": np.array(ScaleLoss(scores, y, weights, single=False)(s))}


def _fit_there(logits: jax.Array, y: np.ndarray, weights: np.ndarray) -> IntervalMinimum:
    """Do the same with the logits where they are: one program, called with each s."""
    unit = power_unit(logits, 1e6)
    loss = ScaleLossThere(logits, y, weights, unit)
    found = newton_on_interval(loss, 1.0 if unit == 1 else 0.0, scale=loss.total)
    return found._replace(x=found.x / unit)


class ScaleLossThere:
    """The same as :class:`ScaleLoss` of logits divided by a unit, where they are."""

    def __init__(
        self, logits: jax.Array, y: np.ndarray, weights: np.ndarray, unit: float = 1.0
    ) -> None:
        self.total = float(weights.sum())
        self._data = *_scale_data(logits, y, unit), jnp.asarray(weights)

    def __call__(self, s: float) -> tuple[float, float, float]:
        """Return the loss and its first two derivatives at s."""
        value, slope, curvature = _scale_terms(s, *self._data).tolist()
        return value, slope, curvature


@jax.jit
def _scale_data(logits: jax.Array, y: np.ndarray, unit: float) -> tuple[jax.Array, jax.Array]:
    single = logits.size > _PART and logits.dtype != np.float64
    scaled = logits.astype(np.float32 if single else np.float64) / unit
    below = scaled - jnp.max(scaled, axis=1, keepdims=True)
    own = jnp.take_along_axis(below, jnp.asarray(y)[:, None], axis=1)[:, 0]
    return below, own.astype(float)


@jax.jit
def _scale_terms(s: float, below: jax.Array, own: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the loss and its first two derivatives (3,) at s."""
    small = jnp.exp(below * jnp.asarray(s, below.dtype))
    once = small * below
    total, first, second = (
        jnp.sum(part, axis=1, dtype=float) for part in (small, once, once * below)
    )
    first, second = first / total, second / total
    return jnp.stack([jnp.log(total) - s * own, first - own, second - first**2]) @ weights


def power_unit(logits: Any, mild: float) -> float:
    """Return by what to divide logits that are all huge or tiny, or 1."""
    return unit_of(float(max(logits.max(initial=0), -logits.min(initial=0))), mild)


def sample_inverse(
    logits: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    inference: str,
    num_samples: int,
    seed: int,
) -> Draws:
    """Return draws (chains, draws, 1) of the inverse temperature s, where log s ~ N(0, 1.5**2)."""
    from scipy.optimize import minimize_scalar

    below = differences(logits)
    loss = ScaleLoss(below, y, weights)

    def negative_log_posterior(u: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            value = loss(float(np.exp(u)))[0] + 0.5 * (u / LOG_SCALE) ** 2
        return value if np.isfinite(value) else np.inf

    grid = np.linspace(-10, 10, 41)
    best = grid[int(np.argmin([negative_log_posterior(u) for u in grid]))]
    found: Any = minimize_scalar(
        negative_log_posterior,
        bounds=(best - 0.5, best + 0.5),
        method="bounded",
        options={"xatol": 1e-9},
    )
    u = float(found.x)
    s = float(np.exp(u))
    _, slope, curvature = loss(s)
    mode = np.array([u])
    factor = np.array([[(curvature * s**2 + slope * s + 1 / LOG_SCALE**2) ** -0.5]])
    if inference == "laplace":
        # Of one parameter the distribution function is known, as a sum over a grid.
        z = np.sinh(np.linspace(-4, 4, 65))
        log_density = -np.array([negative_log_posterior(v) for v in u + factor[0, 0] * z])
        density = np.exp(log_density - log_density.max())
        total = np.r_[0, np.cumsum(np.diff(z) * (density[1:] + density[:-1]))]
        rng = np.random.default_rng(seed)
        levels = (rng.permutation(num_samples) + rng.random(num_samples)) / num_samples
        drawn = u + factor[0, 0] * np.interp(levels, total / total[-1], z)
        return one_chain(np.exp(drawn)[:, None], int(Status.CONVERGED))
    own = below[np.arange(len(y)), y]
    given = below, own, np.asarray(weights, float)
    drawn = sample_whitened(_loss, given, mode, factor, num_samples, seed)
    return drawn._replace(coefficients=np.exp(drawn.coefficients))


def _loss(u: jax.Array, below: jax.Array, own: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the negative log posterior of u = (log s,)."""
    s = jnp.exp(u[0])
    losses = jax.nn.logsumexp(s * below, axis=1) - s * own
    return weights @ losses + 0.5 * (u[0] / LOG_SCALE) ** 2
