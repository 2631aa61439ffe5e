"""Temperature scaling."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.numerics import scaled_softmax
from bayescal.calibrators.base.calibrator import Keeps, State
from bayescal.calibrators.base.parametric import ParametricCalibrator
from bayescal.calibrators.multiclass.binwise import best_inverse_temperature
from bayescal.calibrators.multiclass.scale import (
    LOG_SCALE,
    differences,
    fit_inverse,
    named_inverse,
    sample_inverse,
)
from bayescal.calibrators.multiclass.top_logits.temperature import TopTemperature
from bayescal.data.checks import check_choice
from bayescal.data.given import EVERYWHERE, MEMORY
from bayescal.data.rows import Rows, Source
from bayescal.regression.draws import Draws
from bayescal.regression.numpyro_models import Flat, Model, as_model

__all__ = ["Temperature"]


@dataclass(eq=False, repr=False)
class Temperature(ParametricCalibrator):
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
    _sources: ClassVar[frozenset[str]] = EVERYWHERE
    _by_inputs: ClassVar[Any] = {"top_logits": TopTemperature}

    @property
    def sources(self) -> frozenset[str]:
        """Where the rows of a fit may be: a grid of temperatures needs them in memory."""
        return super().sources if self.objective == "log_loss" else MEMORY

    def _check_options(self) -> None:
        check_choice(self.objective, "objective", ("log_loss", "adaptive_ece"))
        if self.objective != "log_loss" and self.inference != "map":
            raise ValueError(
                f"inference must be 'map' for objective={self.objective!r}, which has no "
                f"likelihood, got {self.inference!r}"
            )

    def _fit(self, rows: Source, seed: int) -> State:
        if self.objective == "log_loss":
            return named_inverse(fit_inverse(rows), rows.weight)
        inverse, value = best_inverse_temperature(*rows.all())
        state = {**self._describe({}, theta := np.array([inverse])), "theta": theta}
        return {**state, "objective": np.asarray(value), "status": np.asarray(0)}

    def _describe(self, state: State, theta: np.ndarray) -> State:
        with np.errstate(divide="ignore"):
            return {"temperature": 1 / theta[..., 0]}

    def _curves(self, state: State, theta: Any, scores: Any) -> Any:
        return scaled_softmax(scores, theta[..., :1, None])

    def _sample(self, state: State, rows: Source, seed: int) -> Draws:
        return sample_inverse(rows.all(), self.inference, self.num_samples, seed)

    def _model(self, state: State, rows: Rows) -> Model:
        from numpyro.distributions import LogNormal

        if self.objective != "log_loss":
            return super()._model(state, rows)
        below, y, weights = rows._replace(scores=differences(rows.scores))
        own = below[np.arange(len(y)), y]
        flat = self.inference == "map"

        def loss(values: dict[str, Any]) -> jax.Array:
            s = values["inverse_temperature"]
            log_sums = jax.nn.logsumexp(s * jnp.asarray(below), axis=1)
            return jnp.asarray(weights) @ (log_sums - s * jnp.asarray(own))

        law = Flat(positive=True) if flat else partial(LogNormal, 0.0, LOG_SCALE)
        sites = {"inverse_temperature": law}
        return as_model(sites, loss, lambda v: {"temperature": 1 / v["inverse_temperature"]})
