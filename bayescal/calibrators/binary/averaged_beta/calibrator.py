"""A Bayesian average of regressions of two classes' scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import matmul, namespace, on_host
from bayescal._core.blas import single_threaded_blas
from bayescal._core.numerics import FLOOR, ignoring_underflow, sigmoid
from bayescal._core.optimise import Status
from bayescal.calibrators.base.calibrator import Calibrator, State
from bayescal.calibrators.base.draws import map_rows, mixture_quantile
from bayescal.calibrators.base.report import (
    Expected,
    Report,
    class_losses,
    make_report,
    point_losses_of_scores,
    variances,
)
from bayescal.calibrators.binary.averaged_beta.points import condense, gather
from bayescal.calibrators.binary.averaged_beta.regressions import (
    COLUMNS,
    FAR,
    LINEAR,
    Basis,
    Points,
    find_scale,
    fit,
    make_columns,
)
from bayescal.data.checks import check_level
from bayescal.data.given import EVERYWHERE
from bayescal.data.rows import Source
from bayescal.data.scores import transform, two_columns

__all__ = ["AveragedBeta"]

#: With more points than this a fit begins with cells of such a share and width.
_FEW, _ROUGH = 100, (1 / 40, 0.2)
#: Regressions of less weight change no digit of the average.
_NEGLIGIBLE = 1e-14
#: And those of less than this no digit of an interval that anyone reads.
_SLIGHT = 1e-6
#: Of intervals: the power of the evidence, at most, and what variances are multiplied by.
_BAND_POWER, _WIDER = 0.5, 1.75
#: Of its curvature a regression keeps at least this share without a row.
_LEAST_LEFT = 0.02
#: With more scores than this, only as many knots are computed.
_VERY_MANY, _KNOTS = 1 << 15, 1 << 14


@dataclass(eq=False, repr=False)
class AveragedBeta(Calibrator):
    r"""Regressions on scaled scores, averaged by their evidence.

    A good choice for two classes and any number of rows; nothing is to be tuned.

    Let z be log odds, and for an inverse temperature :math:`e^u`, with
    :math:`u \sim \tfrac12 N(0, 0.35^2) + \tfrac12 N(0, 2^2)`,

    .. math:: a = \ln\bigl((1 - e)\, \sigma(e^u z) + \tfrac e2\bigr), \qquad
              b = \ln\bigl((1 - e)\, \sigma(-e^u z) + \tfrac e2\bigr), \qquad e = \frac{1}{n + 1}.

    A regression says that the log odds of class 1 are

    .. math:: f = (a - b) + w_1 a - w_0 b + c + g(a - b)

    with :math:`w_1, w_0 \sim N(0, V)`, V one of 0.05 and 0.5, :math:`c \sim N(0, B)`, B one of 0.1
    and 0.5, and g either zero or a Gaussian process with Matérn's covariance (3/2), standard
    deviation 0.3 or 1, and length 0.5 or 1.5 standard deviations of a - b. There are seven values
    of u, evenly spaced within three standard deviations of its posterior mean, and 20 regressions
    at each, zero processes with a prior weight of 3 and others of 1/4. Each is fitted by maximum
    posterior; the probability is the average of theirs, weighted by Laplace's approximation of the
    evidence.

    Parameters
    ----------
    power : float
        Of the evidence: one is Bayes' rule, less hedges against models that are all a little wrong.

    Attributes
    ----------
    inverse_, length_ : arrays of shape (d,)
        Inverse temperatures, and lengths of the Gaussian processes, that have weight.
    cell_weights_ : array of shape (d, 10)
        Posterior weights of the regressions at each.
    linear_weight_ : float
        Posterior weight of all regressions without a Gaussian process.

    Notes
    -----
    So few rows get little more than a shrunk temperature, many rows beta calibration and curves
    beyond it, and how strong each is follows from the data.

    The process has 14 inducing inputs, evenly spaced between the 0.5 % and 99.5 % quantiles of
    a - b; beyond them it goes on at its last value. More than 256 distinct scores are gathered in
    cells, and each cell of a class in two points with the same sums of cubic functions, which
    changes probabilities by less than 1e-6. Log odds beyond 87.3 count as that.

    O(n log n) time to fit, for sorting; beyond 32,768 rows O(n), without sorting: these are counted
    in 131,072 bins, block by block. Rows that come in blocks are read once if they are so few, else
    twice, and once more if some probabilities are zero. O(m) to apply, with 48 exponentials for
    each score and scale that has weight. Between 16,384 knots more than 32,768 scores are
    interpolated, which changes probabilities by less than 1e-6, and ends of intervals by less than
    1e-5.

    The state keeps the scales and lengths (d,) of weight, ``coef`` (d, 10, 17) of the regressions,
    their covariances as ``factor`` (d, 10, 17, 17) times its transpose, and ``cell_weights``
    (d, 10); and the ``points`` (3, m) that stand for the rows: log odds, and the weights of both
    classes.

    References
    ----------
    M. Kull, T. Silva Filho and P. Flach (2017), Beyond sigmoids, for beta calibration;
    C. Rasmussen and C. Williams (2006), Gaussian processes for machine learning, for processes and
    evidence.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> calibrator = bc.AveragedBeta().fit(p, y)
    >>> calibrator.predict_proba([0.2, 0.9])[:, 1].round(2).tolist()
    [0.33, 0.71]
    >>> lower, upper = calibrator.predict_interval([0.9])
    >>> bool(lower[0] < 0.71 < upper[0])
    True
    """

    power: float = 1.0

    inverse_: np.ndarray = field(init=False)
    length_: np.ndarray = field(init=False)
    cell_weights_: np.ndarray = field(init=False)
    linear_weight_: float = field(init=False)

    binary: ClassVar[bool] = True
    _report_of_rows: ClassVar[bool] = False
    _sources: ClassVar[frozenset[str]] = EVERYWHERE
    _domain = "log_odds"

    def _check_options(self) -> None:
        if not 0 < self.power < np.inf:
            raise ValueError(f"power must be positive and finite, got {self.power}")

    def _fit(self, rows: Source, seed: int) -> State:
        unit = 1.0 if rows.whole else rows.squares / rows.weight
        state = self._fit_points(gather(rows))
        return {**state, "rows": np.asarray(rows.n), "unit": np.asarray(unit)}

    def _fit_points(self, points: Points) -> State:
        """Fit 140 regressions, and keep those of weight."""
        rough = condense(points, *_ROUGH) if len(points.z) > _FEW else None
        with np.errstate(under="ignore"), single_threaded_blas():
            fitted = fit(points, rough=rough)
            evidence = fitted.log_evidence - fitted.log_evidence.max()
            share = np.exp(self.power * evidence)
        share /= share.sum()
        kept = share.sum(axis=-1) > _NEGLIGIBLE
        scale, length = np.nonzero(kept)
        basis = fitted.basis
        status = Status.CONVERGED if np.isfinite(fitted.decrement) else Status.LIMIT
        return {
            "inverse": basis.inverse[scale],
            "smoothing": np.asarray(basis.smoothing),
            "inducing": basis.inducing[scale],
            "length": basis.length[scale, length],
            "coef": fitted.coef[kept],
            "factor": fitted.factor[kept],
            "cell_weights": share[kept] / share[kept].sum(),
            "linear_weight": share[..., LINEAR:].sum(),
            "points": np.stack([points.z, points.weights - points.positives, points.positives]),
            "status": np.asarray(int(status)),
        }

    def _apply_in_blocks(self, state: State, scores: Any) -> Any:
        whole = super()._apply_in_blocks
        # Of very many scores at knots, between which it interpolates.
        return two_columns(_between_knots(lambda *at: whole(*at)[:, 1:], state, scores)[:, 0])

    def _width(self, state: State, scores: Any) -> int:
        return COLUMNS * math.prod(state["cell_weights"].shape)

    def _apply(self, state: State, scores: Any) -> Any:
        xp, (line, _) = namespace(scores), self._lines(state, scores)
        share = xp.reshape(state["cell_weights"], (-1,))
        return two_columns(matmul(share, xp.reshape(sigmoid(line), (share.shape[0], -1))))

    @ignoring_underflow
    def predict_interval(self, scores: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return central credible intervals of the calibrated probability of the second class.

        Quantiles of the mixture, over regressions, of normal distributions of the log odds, with
        half of the evidence at most, and variances 1.75 times as large: Bayes' rule trusts
        regressions too much that are all a little wrong. So at least 88 % of a bent truth lay in
        intervals of level 0.9, and of a straight one 93 % and more, in simulations of 20 to 1,000
        rows.

        Parameters
        ----------
        scores : array-like of shape (m,), (m, 1) or (m, 2)
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (m,)
        """
        level, values = check_level(level), self._values(scores)
        with np.errstate(over="ignore", under="ignore"):
            lower, upper = self._ends(self.state_, values, level).T
        return lower, upper

    def _has_ends(self, state: State) -> bool:
        return True

    def _map_ends(self, state: State, scores: Any, level: float) -> Any:
        """Return lower and upper ends (m, 2) at scores as users give them."""
        least = state.get("least_probabilities")
        return self._ends(state, transform(scores, self.inputs, self.domain, least), level)

    def _ends(self, state: State, scores: Any, level: float) -> Any:
        """Return lower and upper ends (m, 2)."""
        xp = namespace(scores)
        share = state["cell_weights"] ** min(1, _BAND_POWER / self.power)
        share = xp.reshape(share / xp.sum(share), (-1,))

        def some(state: State, z: Any) -> Any:
            line, columns = self._lines(state, z)
            spread = xp.sqrt(_WIDER * self._variances(state, columns))
            mean, spread = (xp.reshape(own, (share.shape[0], -1)) for own in (line, spread))
            kept = slice(None)
            if on_host(z):
                kept = share >= _SLIGHT
            tails = (1 - level) / 2, (1 + level) / 2
            return xp.stack(
                [
                    sigmoid(mixture_quantile(share[kept], mean[kept, :], spread[kept, :], tail))
                    for tail in tails
                ],
                axis=1,
            )

        def blocks(state: State, z: Any) -> Any:
            return map_rows(lambda part: some(state, part), z, self._width(state, z))

        return _between_knots(blocks, state, scores)

    @cached_property
    @ignoring_underflow
    def report_(self) -> Report:
        """What to expect of new rows, from the points that stand for those of the fit."""
        check_is_fitted(self)
        state = self.state_
        z, weights, rows = state["points"][0], state["points"][1:], int(state["rows"])
        held = self.losses_left_out() if np.count_nonzero(weights) > 1 else None
        plain = point_losses_of_scores(z, state.get("least_probabilities"))
        names, squares = (self._title(), "two classes"), state["unit"] * weights
        probs, members = self._apply(state, z), self._member_weights()
        own = class_losses(probs)
        each = (variances(probs, values) for values in (own, plain.T - own))
        expected = Expected(own.T, *each)
        return make_report(names, (rows, 2), members, held, plain, weights, squares, expected)

    def _member_weights(self) -> dict[str, float]:
        return {"linear": float(self.linear_weight_), "curved": 1 - float(self.linear_weight_)}

    def losses_left_out(self) -> np.ndarray:
        """Return the log loss (2, n) at each point, of a row of either class that is left out.

        O(n) for n points, with no further fit: Newton's step without the row, and what this does
        to Laplace's evidence. With the row moves the range of scales, and so the ends of it gain
        or lose weight.
        """
        z, *each = self.state_["points"]
        unit, share = self.state_["unit"], self.state_["cell_weights"][..., None]
        line, columns = self._lines(self.state_, z)
        spread = self._variances(self.state_, columns)
        p, (center, width) = sigmoid(line), find_scale(z, sum(each), each[1])
        step = np.rint((np.log(self.state_["inverse"]) - center) / width)[:, None, None]
        x = np.exp(center) * z
        plain = sigmoid(x)
        left = np.maximum(1 - unit * p * (1 - p) * spread, _LEAST_LEFT)
        losses = []
        for label, sign in enumerate((-1, 1)):
            away = spread / left * (p - label)
            log_evidence = np.logaddexp(0, -sign * line) + unit * away * (p - label) / 2
            log_share = self.power * (unit * log_evidence - np.log(left) / 2)
            slope = (plain - label) * x
            rest = 1 - unit * width**2 * (plain * (1 - plain) * x**2 + slope)
            shift = np.clip(unit * width * slope / np.maximum(rest, 0.25), -1, 1)
            weight = share * np.exp(log_share - log_share.max(axis=(0, 1)))
            weight = weight * (1 + shift * ((step == 3) * 1.0 - (step == -3)))
            found = (weight * sigmoid(sign * (line + unit * away))).sum(axis=(0, 1))
            losses.append(-np.log(np.maximum(found / weight.sum(axis=(0, 1)), FLOOR)))
        return np.stack(losses)

    def _lines(self, state: State, scores: Any) -> tuple[Any, Any]:
        """Return log odds (d, 10, m) of the regressions, and the columns (d, 1, 17, m)."""
        basis = Basis(
            state["inverse"], state["smoothing"], state["inducing"], state["length"][:, None]
        )
        xp = namespace(scores)
        offset, columns = make_columns(basis, xp.clip(scores, -FAR, FAR), xp)
        return matmul(state["coef"], columns[:, 0, ...]) + offset[:, None, :], columns

    def _variances(self, state: State, columns: Any) -> Any:
        """Return the posterior variances (d, 10, m) of the log odds of the regressions."""
        xp = namespace(columns)
        return xp.sum(matmul(xp.matrix_transpose(state["factor"]), columns) ** 2, axis=2)


def _between_knots(function: Callable[[State, Any], Any], state: State, z: Any) -> Any:
    """Return probabilities (m, r), of very many z by linear interpolation of their log odds.

    Of NumPy's arrays alone: accelerators have many processors.
    """
    if not on_host(z) or len(z) <= _VERY_MANY:
        return function(state, z)
    z = np.clip(z, -FAR, FAR)
    first, last = np.arcsinh(z.min()), np.arcsinh(z.max())
    knots = np.unique(np.sinh(np.linspace(first, last, _KNOTS)))
    with np.errstate(divide="ignore"):
        probs = function(state, knots)
        lines = np.clip(np.log(probs) - np.log1p(-probs), -FAR, FAR)
    return np.stack([sigmoid(np.interp(z, knots, line)) for line in lines.T], axis=1)
