"""Temperature scaling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from bayescal._core.arrays import XArray
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import scaled_softmax
from bayescal.calibrators.base.calibrator import Calibrator, Keeps, State
from bayescal.calibrators.base.online import OnlineCalibrator
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
from bayescal.regression.model import Values, flat
from bayescal.regression.numpyro_models import Model, as_model

if TYPE_CHECKING:
    from numpyro.distributions import Distribution


@dataclass(eq=False, repr=False)
class Temperature(OnlineCalibrator, ParametricCalibrator):
    r"""Temperature scaling: divide all logits by one positive number T.

    .. math:: \hat p = \operatorname{softmax}(z / T)

    Temperature scaling is the simplest calibrator for neural networks. It corrects over-confidence
    (T > 1) or under-confidence (T < 1), and never changes which class is most probable. For two
    classes, log odds are divided by T. If the scores predict labels no better than chance, T is
    infinite and all classes are equally probable. Use :class:`Vector`, :class:`Dirichlet` or
    :class:`Auto` if errors differ between classes.

    With very many classes, such as the tokens of a language model, truncated logits suffice
    (``inputs="top_logits"``, ``classes=k``). Scores are then a tuple of the indices (n, m) of the m
    largest logits of each row, these logits (n, m), and the log-sum-exp r (n,) of all other logits,
    -inf if m = k. The other logits are treated as equal:

    .. math:: \hat p_j \propto e^{z_j / T}, \qquad
       \hat p_{rest} \propto (k - m)\, e^{(r - \ln(k - m)) / T}

    This is exact at T = 1. If the other logits differ, the probability of the rest is too high for
    T > 1 and too low for T < 1, by Jensen's inequality. A label outside the top has the probability
    of the rest divided by k - m. ``predict_proba`` returns :class:`TopProbs`, which has an example.

    Parameters
    ----------
    objective : {"log_loss", "adaptive_ece"}
        The minimized objective: the log loss, which has one minimum; or the expected calibration
        error of the confidence in 15 bins of equal mass, as reported by ``metrics.ece`` with
        ``kind="confidence"``, but with equal parts of a row for its most probable classes if there
        are several. The latter is not smooth: it is minimized over a grid of temperatures and has
        no posterior.

    Attributes
    ----------
    temperature_ : float
        Infinite if the scores predict no better than chance.

    Notes
    -----
    The log loss is minimized by Newton's method on 1 / T: about five iterations of O(n k). If there
    are many rows, all but two iterations use a part of the rows. More than 16,384 logits are used
    in single precision, except in the last step. Blocks are read up to four times. A fit needs
    memory for up to 16 million numbers besides the scores; a fit to blocks needs as much in each
    thread and for a sample. The prior of the posterior is log T ~ N(0, 1.5^2).

    See Also
    --------
    EnsembleTemperature : Mix scaled, original and uniform probabilities.
    Vector : A factor and an intercept for each class.
    Auto : The default calibrator, which also corrects errors that differ between classes.

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
    _smooth: ClassVar[bool] = True
    _sources: ClassVar[frozenset[str]] = EVERYWHERE
    _by_inputs: ClassVar[Mapping[str, type[Calibrator]]] = {"top_logits": TopTemperature}

    @property
    def sources(self) -> frozenset[str]:
        """Kinds of sources that ``fit`` accepts; the grid of "adaptive_ece" needs memory."""
        return super().sources if self.objective == "log_loss" else MEMORY

    def _check_options(self) -> None:
        check_choice(self.objective, "objective", ("log_loss", "adaptive_ece"))
        if self.objective != "log_loss" and self.inference != "map":
            raise ValueError(
                f"inference must be 'map' for objective={self.objective!r}, which has no "
                f"likelihood, got {self.inference!r}"
            )

    def _check_learns_on(self) -> None:
        if self.objective != "log_loss":
            raise ValueError(
                f"objective must be 'log_loss' for partial_fit, got {self.objective!r}, which "
                "needs all rows at once"
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

    def _curves(self, state: State, theta: XArray, scores: XArray) -> XArray:
        return scaled_softmax(scores, theta[..., :1, None])

    def _sample(self, state: State, rows: Source, seed: int) -> Draws:
        inverse = float(state["theta"][0])
        return sample_inverse(rows.all(), inverse, self.inference, self.num_samples, seed)

    def _model(self, state: State, rows: Rows) -> Model:
        if self.objective != "log_loss":
            return super()._model(state, rows)
        below, y, weights = rows._replace(scores=differences(rows.scores))
        label = below[np.arange(len(y)), y]

        def loss(values: Values) -> jax.Array:
            s = values["inverse_temperature"]
            log_sums = jax.nn.logsumexp(s * jnp.asarray(below), axis=1)
            return jnp.asarray(weights) @ (log_sums - s * jnp.asarray(label))

        def make_laws() -> dict[str, Distribution]:
            from numpyro.distributions import LogNormal

            sampled = self.inference != "map"
            law = LogNormal(0.0, LOG_SCALE) if sampled else flat(positive=True)
            return {"inverse_temperature": law}

        return as_model(make_laws, loss, lambda v: {"temperature": 1 / v["inverse_temperature"]})
