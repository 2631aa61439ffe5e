"""Gaussian-process calibration: one curve for the logits of all classes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bayescal._core.arrays import AnyArray, XArray, matmul, namespace, on_host
from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.numerics import softmax
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.draws import map_rows
from bayescal.calibrators.base.parametric import Inference, ParametricCalibrator
from bayescal.calibrators.multiclass.gaussian_process.likelihood import (
    NODES,
    FittedProcesses,
    Likelihood,
    best_inverse,
    draw,
    fit_cells,
    hats,
    place_nodes,
    sample_nuts,
)
from bayescal.calibrators.multiclass.members import smooth
from bayescal.data.rows import Rows, Source
from bayescal.regression.draws import Draws, one_chain

_FOR_DRAWS = ("scales", "weights", "modes", "factors", "iterations")


@dataclass(eq=False, repr=False)
class GaussianProcess(ParametricCalibrator):
    r"""Gaussian-process calibration: one curve near the identity for the logits of all classes.

    .. math:: \hat p = \operatorname E[\operatorname{softmax}(g(x_1), \dots, g(x_k))], \qquad
              g(x) = x + h(x), \qquad h \sim \operatorname{GP}(0, c)

    with the logarithms of temperature-scaled probabilities, mixed with the uniform distribution,

    .. math:: x = \ln\bigl((1 - e) \operatorname{softmax}(s z) + \tfrac ek\bigr), \qquad
              e = \frac{0.1}{n + 1},

    and the covariance :math:`c(x, x') = a^2 \exp(-(x - x')^2 / (2 l^2)) + x x'`, of a smooth curve
    and a slope. A few parameters suffice for any number of classes, which are exchangeable. With
    few rows the map is close to temperature scaling, but it can bend where a temperature cannot. A
    shared curve cannot correct differences between classes, such as shifts.

    The curve is linear between 25 nodes, evenly spaced from :math:`\ln(e / k)` to 0. The inverse
    temperature s is the most probable one, with :math:`\ln s \sim N(0, 1.5^2)`. The standard
    deviations a (0.1, 0.3, 1) and lengths l (0.5, 1.5, 4.5) have equal prior probabilities, so the
    posterior is a mixture of nine components.

    Parameters
    ----------
    inference : {"laplace", "nuts", "map"}
        Method for the expectation E. "laplace" averages over draws of h from normal approximations
        at the nine modes, weighted by their evidence; "nuts" over four chains of the no-U-turn
        sampler. "map" takes no expectation, and uses the mean of the nine modes as h.
    num_samples : int
        Number of draws of h. The time of predictions is proportional to it.
    random_state : int, RandomState or None
        A fixed seed by default, so that fits to equal data are equal.

    Attributes
    ----------
    temperature_ : float
        1 / s.
    amplitude_, length_ : float
        The standard deviation a and the length l, in nats: exponentials of the posterior means of
        their logarithms.
    nodes_, deviation_ : arrays of shape (25,)
        The nodes, and the posterior mean of h at the nodes, by Laplace's approximation.
    log_evidence_ : float
        Log marginal likelihood of the labels given the temperature, by Laplace's approximation.

    Notes
    -----
    In the paper, the mean is the identity without a temperature, the kernel has one length and
    amplitude, and these and the posterior maximize a variational bound. O(n k) time for each of
    about thirty sums over rows, and for each draw in predictions.

    The temperature is treated as known. In simulations with true maps drawn from this model,
    intervals of level 0.9 covered 79 to 86 % after 2 rows, and 88 to 94 % after 20 and 200.

    Intervals do not cover maps that no shared curve can express, and more rows make this worse:
    with 1,000 rows, intervals of level 0.9 covered 94 to 97 % of calibrated true maps, but 7 % of
    maps with an intercept of 0.3 for two classes, or with shifts of 0.5, 0 and -0.5 for three
    (``benchmarks/coverage_bands.py``). Use :class:`AveragedBeta` for two classes, and
    :class:`Vector` or :class:`StackedScaling` with ``inference="laplace"`` if classes differ. If
    few rows give a skewed posterior, Laplace's intervals can be twice as wide as those of "nuts".

    References
    ----------
    J. Wenger, H. Kjellström and R. Triebel (2020), Non-parametric calibration for classification;
    C. Rasmussen and C. Williams (2006), Gaussian processes for machine learning, section 3.5.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 0, 2, 1, 1, 1, 2, 0, 0]
    >>> calibrator = bc.GaussianProcess().fit(p, y)
    >>> calibrator.predict_proba(p[:1]).round(1).tolist()
    [[0.5, 0.3, 0.2]]
    >>> lower, upper = calibrator.predict_interval(p[:1])
    >>> bool(lower[0, 0] < 0.5 < upper[0, 0])
    True
    """

    inference: Inference = field(default="laplace", kw_only=True)
    num_samples: int = field(default=256, kw_only=True)
    random_state: int | np.random.RandomState | None = field(default=0, kw_only=True)

    temperature_: float = field(init=False)
    amplitude_: float = field(init=False)
    length_: float = field(init=False)
    nodes_: np.ndarray = field(init=False)
    deviation_: np.ndarray = field(init=False)
    log_evidence_: float = field(init=False)

    _domain = "logits"

    def _fit(self, rows: Source, seed: int) -> State:
        scores, y, weights = rows.all()
        inverse, smoothing = best_inverse(scores, y, weights), 0.1 / (weights.sum() + 1)
        nodes = place_nodes(smoothing, scores.shape[1])
        with np.errstate(all="ignore"), single_threaded_blas():
            x = _smoothed(scores, inverse, smoothing)
            cells = fit_cells(Likelihood(nodes, Rows(x, y, weights)))
        amplitude, length = np.exp(cells.weights @ np.log(cells.scales))
        mean = cells.weights @ cells.modes
        return {
            **{name: np.asarray(value) for name, value in cells._asdict().items()},
            "theta": mean,
            "deviation": mean,
            "nodes": nodes,
            "inverse": np.asarray(inverse),
            "smoothing": np.asarray(smoothing),
            "temperature": np.asarray(1 / inverse),
            "amplitude": amplitude,
            "length": length,
            "n_iter": np.asarray(cells.iterations),
        }

    def _publish(self, state: State) -> None:
        # Some entries are needed only for draws.
        kept = {name: value for name, value in state.items() if name not in _FOR_DRAWS}
        super()._publish(kept)

    def _describe(self, state: State, theta: AnyArray) -> State:
        return {"deviation": theta}

    def _curves(self, state: State, theta: XArray, scores: XArray) -> XArray:
        x = smooth(scores, state["inverse"], state["smoothing"])
        xp = namespace(scores)
        flat = xp.reshape(hats(state["nodes"], x), (-1, NODES))
        h = matmul(theta, xp.matrix_transpose(flat))
        return softmax(x + xp.reshape(h, (*theta.shape[:-1], -1, x.shape[1])))

    def _apply_in_blocks(self, state: State, scores: XArray) -> XArray:
        with single_threaded_blas() if on_host(scores) else nullcontext():
            return super()._apply_in_blocks(state, scores)

    def _width(self, state: State, scores: XArray) -> int:
        # Basis functions, or for each draw logits and probabilities.
        return (2 if "theta_draws" in state else NODES) * scores.shape[1]

    def _sample(self, state: State, rows: Source, seed: int) -> Draws:
        scores, y, weights = rows.all()
        values: dict[str, Any] = state
        cells = FittedProcesses(*(values[name] for name in FittedProcesses._fields))
        if self.inference == "laplace":
            return one_chain(draw(cells, self.num_samples, seed), int(state["status"]))
        with np.errstate(all="ignore"):
            x = _smoothed(scores, state["inverse"], state["smoothing"])
        return sample_nuts(state["nodes"], Rows(x, y, weights), cells, self.num_samples, seed)


def _smoothed(scores: np.ndarray, inverse: XArray | float, smoothing: XArray | float) -> np.ndarray:
    return map_rows(lambda rows: smooth(rows, inverse, smoothing), scores, scores.shape[1])
