"""Bayesian average of regressions of binary scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, Array, UserData, XArray, matmul, namespace, on_host
from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.minimization.optimize import Status
from bayescal._core.numerics import FLOOR, clip, ignoring_underflow, sigmoid, sigmoids
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.draws import map_rows, mixture_quantile
from bayescal.calibrators.base.online import OnlineCalibrator
from bayescal.calibrators.base.report import (
    Report,
    class_losses,
    make_report,
    point_losses_of_scores,
    variances,
)
from bayescal.calibrators.base.table import look_up, tabulate
from bayescal.calibrators.binary.averaged_beta.points import make_nodes, summarize
from bayescal.calibrators.binary.averaged_beta.regressions import (
    COLUMNS,
    FAR,
    LINEAR,
    FeatureBasis,
    Nodes,
    Points,
    find_scale,
    fit,
    log_bayes_factor,
    make_columns,
)
from bayescal.data.checks import check_level
from bayescal.data.given import EVERYWHERE
from bayescal.data.rows import Source, weight_of_row
from bayescal.data.scores import transform

#: The prior odds of the unchanged scores are 5 / (n + 20).
_UNCHANGED_ROWS, _OTHER_ROWS = 5.0, 20.0
#: Scores are unchanged if their log Bayes factor exceeds the first of these, in nats, while the
#: average expects to gain less than the second.
_FAVORED, _SLIGHT_GAIN = 1.75, 1.0
#: Largest total weight of a fit. Beyond, rounding errors of sums exceed the prior's curvature.
_LARGEST_WEIGHT = 1e9
#: Weight below which a regression changes no digit of the average.
_NEGLIGIBLE = 1e-14
#: Weight below which a regression changes no relevant digit of an interval.
_SLIGHT = 1e-6
#: Largest power of the evidence for intervals, and factor of variances.
_INTERVAL_POWER, _VARIANCE_FACTOR = 0.5, 1.75
#: Least proportion of its curvature that a regression keeps without a row.
_MIN_REMAINING = 0.02
#: Largest change of the weight of an outer scale by a row; some weight must remain.
_SHIFT = 1 - 1e-9
#: Amount of numbers that a look-up in a table holds per row.
_TABLE_WIDTH = 8
#: With more scores than this, intervals are interpolated between knots.
_MAX_EXACT_SCORES, _KNOTS = 1 << 15, 1 << 14


@dataclass(eq=False, repr=False)
class AveragedBeta(OnlineCalibrator):
    r"""Beta regressions on scaled scores, averaged by their evidence.

    A good choice for binary scores and any number of rows; nothing needs tuning.

    Let z be log odds, and for an inverse temperature :math:`e^u`, with
    :math:`u \sim \tfrac12 N(0, 0.35^2) + \tfrac12 N(0, 2^2)`,

    .. math:: a = \ln\bigl((1 - e)\, \sigma(e^u z) + \tfrac e2\bigr), \qquad
              b = \ln\bigl((1 - e)\, \sigma(-e^u z) + \tfrac e2\bigr), \qquad e = \frac{1}{n + 1}.

    The log odds of class 1 in a regression are

    .. math:: f = (a - b) + w_1 a - w_0 b + c + g(a - b)

    with :math:`w_1, w_0 \sim N(0, V)` for V in {0.05, 0.5}, :math:`c \sim N(0, B)` for B in
    {0.1, 0.5}, and g either zero or a Gaussian process with Matérn covariance (3/2), standard
    deviation 0.3 or 1, and length 0.5 or 1.5 standard deviations of a - b. There are seven values
    of u, evenly spaced within three standard deviations of its posterior mean, with 20 regressions
    at each value. Regressions without a process have a prior weight of 3, and others of 1/4. All
    are fitted by maximum posterior. Probabilities are averages over regressions, weighted by
    Laplace's approximation of the evidence.

    The unchanged scores also belong to the average, which therefore does as little as the data
    demand. Their prior odds, 5 / (n + 20), are multiplied by a power of the Bayes factor, the ratio
    of their likelihood to the evidence of all regressions.

    If the log Bayes factor is above 1.75, and the average expects to gain less than 1 nat of log
    loss, summed over all rows, the scores are returned unchanged, unless some are zero.

    Parameters
    ----------
    power : float
        Exponent of the evidence and of the Bayes factor. One is Bayes' rule; smaller values hedge
        against regressions that are all slightly wrong.

    Attributes
    ----------
    inverse_, length_ : arrays of shape (d,)
        Inverse temperatures and lengths of the Gaussian processes that have weight.
    cell_weights_ : array of shape (d, 10)
        Posterior weights of the regressions at each of them, without the unchanged scores.
    linear_weight_ : float
        Their sum over regressions without a Gaussian process.
    log_bayes_factor_ : float
        Log likelihood of the unchanged scores minus the log evidence of all regressions.
    unchanged_ : float
        1 if scores are returned unchanged, else 0.

    Notes
    -----
    The data determine the flexibility of the map: few rows give little more than a shrunk
    temperature, many rows beta calibration and curves beyond it.

    The process has 14 inducing inputs, evenly spaced between the 0.5 % and 99.5 % quantiles of
    a - b; it is constant beyond them. More than 256 distinct scores are summarized by cells, each
    by two points with equal sums of cubic functions; with a million rows this changes probabilities
    by less than 2e-6. Larger total weights than 1e9 count like 1e9. Log odds are clipped to ± 87.3.

    O(n log n) time to fit, for sorting. More than 32,768 rows take O(n): they are counted in
    131,072 bins. At most 32,768 rows in blocks are read once, more rows twice, and once more if
    some probabilities are zero. The first prediction tabulates the map in milliseconds, with errors
    below 1e-10; all predictions, functions and exports use this table. Intervals of more than
    32,768 scores are interpolated, which changes their ends by less than 1e-5.

    Besides the attributes, the state has the coefficients ``coef`` (d, 10, 17) of the regressions,
    factors ``factor`` (d, 10, 17, 17) of their covariances, ``log_prior_odds`` of the unchanged
    scores, and ``points`` (3, m) that summarize the rows: log odds, and weights of both classes.

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
    [0.29, 0.76]
    >>> lower, upper = calibrator.predict_interval([0.9])
    >>> bool(lower[0] < 0.76 < upper[0])
    True
    """

    power: float = 0.5

    inverse_: np.ndarray = field(init=False)
    length_: np.ndarray = field(init=False)
    cell_weights_: np.ndarray = field(init=False)
    linear_weight_: float = field(init=False)
    log_bayes_factor_: float = field(init=False)
    unchanged_: float = field(init=False)

    binary: ClassVar[bool] = True
    _report_of_rows: ClassVar[bool] = False
    _sources: ClassVar[frozenset[str]] = EVERYWHERE
    _domain = "log_odds"

    def _check_options(self) -> None:
        if not 0 < self.power < np.inf:
            raise ValueError(f"power must be positive and finite, got {self.power}")

    def _fit(self, rows: Source, seed: int) -> State:
        state = self._fit_points(summarize(rows))
        return {**state, "rows": np.asarray(rows.n), "unit": np.asarray(weight_of_row(rows))}

    def _fit_points(self, points: Points) -> State:
        """Fit 140 regressions, and keep those that have weight."""
        scale = _scale_of_weights(points.weights)
        scaled = points._replace(weights=scale * points.weights, positives=scale * points.positives)
        with np.errstate(under="ignore"), single_threaded_blas():
            fitted = fit(scaled, *make_nodes(scaled))
            log_factor = log_bayes_factor(scaled, fitted)
            evidence = fitted.log_evidence - fitted.log_evidence.max()
            weights = np.exp(self.power * evidence)
        weights /= weights.sum()
        used = weights.sum(axis=-1) > _NEGLIGIBLE
        scale, length = np.nonzero(used)
        basis = fitted.basis
        status = Status.CONVERGED if np.isfinite(fitted.decrement) else Status.LIMIT
        state = {
            "inverse": basis.inverse[scale],
            "smoothing": np.asarray(basis.smoothing),
            "inducing": basis.inducing[scale],
            "length": basis.length[scale, length],
            "coef": fitted.coef[used],
            "factor": fitted.factor[used],
            "cell_weights": weights[used] / weights[used].sum(),
            "linear_weight": weights[..., LINEAR:].sum(),
            "log_prior_odds": np.log(_UNCHANGED_ROWS / (_OTHER_ROWS + points.weights.sum())),
            "log_bayes_factor": np.asarray(log_factor),
            "points": np.stack([points.z, points.weights - points.positives, points.positives]),
            "status": np.asarray(int(status)),
        }
        unchanged = log_factor > _FAVORED and self._expected_gain(state) < _SLIGHT_GAIN
        return {**state, "unchanged": np.asarray(float(unchanged))}

    def _publish(self, state: State) -> None:
        # Scores of zero, which are replaced, cannot be returned unchanged.
        if np.any(state.get("least_probabilities", FLOOR) > FLOOR):
            state["unchanged"] = np.asarray(0.0)
        super()._publish(state)

    def _expected_gain(self, state: State) -> float:
        """Compute the log loss, summed over rows, that the average expects to gain."""
        z, zeros, ones = state["points"]
        with np.errstate(under="ignore"):
            line = self._log_odds(state, z)
            gain = sigmoid(line) * (line - z) + np.logaddexp(0, z) - np.logaddexp(0, line)
        return float((zeros + ones) @ gain)

    def _precompute(self, state: State) -> State:
        if not on_host(state["inverse"]) or _is_unchanged(state):
            return state
        used = state["cell_weights"].sum(axis=-1) > _SLIGHT
        smoothing, inducing = state["smoothing"], state["inducing"][used]
        # Scores whose offsets are inducing inputs, from their smoothed probabilities.
        one, zero = (np.maximum(sigmoid(a) - smoothing / 2, FLOOR) for a in (inducing, -inducing))
        kinks = (np.log(one) - np.log(zero)) / state["inverse"][used][:, None]

        def log_odds(z: np.ndarray) -> np.ndarray:
            return map_rows(lambda part: self._log_odds(state, part), z, self._width(state, z))

        with np.errstate(under="ignore"):
            return {**state, **tabulate(log_odds, kinks.ravel(), FAR)[0]}

    def _apply_in_blocks(self, state: State, scores: AnyArray) -> AnyArray:
        if "table_first" not in state:
            return super()._apply_in_blocks(state, scores)
        return map_rows(lambda rows: sigmoids(look_up(state, rows)), scores, _TABLE_WIDTH)

    def _width(self, state: State, scores: XArray) -> int:
        return COLUMNS * math.prod(state["cell_weights"].shape)

    def _apply(self, state: State, scores: AnyArray) -> AnyArray:
        return sigmoids(self._log_odds(state, scores))

    def _log_odds(self, state: State, scores: Array) -> AnyArray:
        """Compute the log odds (m,) of the average of all members, to all digits."""
        z = clip(scores, -FAR, FAR)
        if _is_unchanged(state):
            return z
        xp, (line, _) = namespace(scores), self._lines(state, scores)
        unchanged = unchanged_weight(state, self.power)
        weights = xp.reshape(state["cell_weights"], (-1,))
        line = xp.reshape(line, (weights.shape[0], -1))
        # Neither may vanish where weights of rows are so large that log odds exceed 700.
        least = float(np.finfo(np.float64).tiny if line.dtype == xp.float64 else FLOOR)

        def log_mean(line: XArray, z: XArray) -> XArray:
            average = matmul(weights, sigmoid(line))
            return xp.log(xp.maximum((1 - unchanged) * average + unchanged * sigmoid(z), least))

        return log_mean(line, z) - log_mean(-line, -z)

    @ignoring_underflow
    def predict_interval(
        self, scores: UserData, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute central credible intervals of the calibrated probability of the second class.

        The ends are quantiles of a mixture, over regressions, of normal distributions of the log
        odds; they are widened to contain scores that are returned unchanged. The evidence has a
        power of at most 1/2 and variances are multiplied by 1.75, because Bayes' rule trusts
        regressions that are all slightly wrong too much. In simulations of 20 to 1,000 rows,
        intervals of level 0.9 covered at least 88 % of bent and 93 % of straight true log odds.

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

    def _map_ends(self, state: State, scores: Array, level: float) -> AnyArray:
        """Compute lower and upper ends (m, 2) at scores in the user's units."""
        least = state.get("least_probabilities")
        return self._ends(state, transform(scores, self.inputs, self.domain, least), level)

    def _ends(self, state: State, scores: AnyArray, level: float) -> np.ndarray:
        """Compute ends (m, 2) of intervals; interpolate their log odds for very many scores."""
        xp = namespace(scores)
        weights = state["cell_weights"] ** min(1, _INTERVAL_POWER / self.power)
        weights = xp.reshape(weights / xp.sum(weights), (-1,))

        def ends_at(z: Array) -> XArray:
            line, columns = self._lines(state, z)
            spread = xp.sqrt(_VARIANCE_FACTOR * self._variances(state, columns))
            mean, spread = (xp.reshape(a, (weights.shape[0], -1)) for a in (line, spread))
            used = slice(None)
            if on_host(z):
                used = weights >= _SLIGHT
            lower, upper = (
                sigmoid(mixture_quantile(weights[used], mean[used, :], spread[used, :], tail))
                for tail in ((1 - level) / 2, (1 + level) / 2)
            )
            # Intervals contain scores that are returned unchanged.
            if "unchanged" in state:
                unchanged, score = state["unchanged"] > 0, sigmoids(clip(z, -FAR, FAR))[:, 1]
                lower = xp.where(unchanged & (score < lower), score, lower)
                upper = xp.where(unchanged & (score > upper), score, upper)
            return xp.stack([lower, upper], axis=1)

        def in_blocks(z: AnyArray) -> AnyArray:
            return map_rows(ends_at, z, self._width(state, z))

        # Accelerators compute all probabilities in parallel.
        if not on_host(scores) or len(scores) <= _MAX_EXACT_SCORES:
            return in_blocks(scores)
        z = np.clip(scores, -FAR, FAR)
        first, last = np.arcsinh(z.min()), np.arcsinh(z.max())
        knots = np.unique(np.sinh(np.linspace(first, last, _KNOTS)))
        with np.errstate(divide="ignore"):
            probs = in_blocks(knots)
            lines = np.clip(np.log(probs) - np.log1p(-probs), -FAR, FAR)
        return np.stack([sigmoid(np.interp(z, knots, line)) for line in lines.T], axis=1)

    @cached_property
    @ignoring_underflow
    def report_(self) -> Report:
        """Report of the expected log loss on new rows, from points that summarize the fit."""
        check_is_fitted(self)
        state = self.state_
        z, weights, rows = state["points"][0], state["points"][1:], int(state["rows"])
        uncalibrated = point_losses_of_scores(z, state.get("least_probabilities"))
        held_out = None
        if np.count_nonzero(weights) > 1:
            held_out = uncalibrated if _is_unchanged(state) else self.losses_left_out()
        names, squares = (self._title(), "two classes"), state["unit"] * weights
        probs, members = self._apply(state, z), self._member_weights()
        losses = class_losses(probs)
        spread = [variances(probs, values) for values in (losses, uncalibrated.T - losses)]
        terms = weights * losses.T, *(squares * variance for variance in spread)
        sums = np.array([term.sum() for term in terms])
        return make_report(
            names, (rows, 2), members, held_out, uncalibrated, weights, squares, sums
        )

    def _member_weights(self) -> dict[str, float]:
        unchanged = float(unchanged_weight(self.state_, self.power))
        linear = (1 - unchanged) * float(self.linear_weight_)
        return {"unchanged": unchanged, "linear": linear, "curved": 1 - unchanged - linear}

    def losses_left_out(self) -> np.ndarray:
        """Compute leave-one-out log losses (2, n): of a row of each class, at each of n points.

        It takes no further fits: one Newton step without the row, and its effect on Laplace's
        evidence. Without the row the range of scales moves, so that the scales at its ends gain or
        lose weight.
        """
        z, *class_weights = self.state_["points"]
        weights = self.state_["cell_weights"][..., None]
        scale = _scale_of_weights(class_weights[0] + class_weights[1])
        unit, class_weights = scale * self.state_["unit"], [scale * w for w in class_weights]
        line, columns = self._lines(self.state_, z)
        spread = self._variances(self.state_, columns)
        nodes = Nodes(z, class_weights[0] + class_weights[1])
        p, (center, width) = sigmoid(line), find_scale(nodes, class_weights[1] @ z)
        step = np.rint((np.log(self.state_["inverse"]) - center) / width)[:, None, None]
        x = np.exp(center) * z
        scaled_prob = sigmoid(x)
        remaining = np.maximum(1 - unit * p * (1 - p) * spread, _MIN_REMAINING)
        losses, state = [], self.state_
        with np.errstate(divide="ignore"):
            logs = np.log(weights / weights.max())
        bayes_total = np.exp(logs / self.power).sum()
        for label, sign in enumerate((-1, 1)):
            influence = spread / remaining * (p - label)
            log_evidence = np.logaddexp(0, -sign * line) + unit * influence * (p - label) / 2
            log_evidence = unit * log_evidence - np.log(remaining) / 2
            log_weights = logs + self.power * log_evidence
            slope = (scaled_prob - label) * x
            rest = 1 - unit * width**2 * (scaled_prob * (1 - scaled_prob) * x**2 + slope)
            shift = np.clip(unit * width * slope / np.maximum(rest, 0.25), -_SHIFT, _SHIFT)
            weight = np.exp(log_weights - log_weights.max(axis=(0, 1)))
            weight = weight * (1 + shift * ((step == 3) * 1.0 - (step == -3)))
            prob = (weight * sigmoid(sign * (line + unit * influence))).sum(axis=(0, 1))
            prob = prob / weight.sum(axis=(0, 1))
            if "log_bayes_factor" in state:
                # The Bayes factor without the row.
                left = logs / self.power + log_evidence
                largest = left.max(axis=(0, 1))
                total = np.exp(left - largest).sum(axis=(0, 1)) / bayes_total
                loss = np.logaddexp(0, -sign * z)
                factor = state["log_bayes_factor"] + unit * loss - largest - np.log(total)
                unchanged = unchanged_weight({**state, "log_bayes_factor": factor}, self.power)
                prob = (1 - unchanged) * prob + unchanged * np.exp(-loss)
            losses.append(-np.log(np.maximum(prob, FLOOR)))
        return np.stack(losses)

    def _lines(self, state: State, scores: XArray) -> tuple[XArray, XArray]:
        """Compute the log odds (d, 10, m) of the regressions, and the columns (d, 1, 17, m)."""
        basis = FeatureBasis(
            state["inverse"], state["smoothing"], state["inducing"], state["length"][:, None]
        )
        xp = namespace(scores)
        offset, columns = make_columns(basis, clip(scores, -FAR, FAR), xp)
        return matmul(state["coef"], columns[:, 0, ...]) + offset[:, None, :], columns

    def _variances(self, state: State, columns: XArray) -> XArray:
        """Compute the posterior variances (d, 10, m) of the log odds of the regressions."""
        xp = namespace(columns)
        return xp.sum(matmul(xp.matrix_transpose(state["factor"]), columns) ** 2, axis=2)


def _scale_of_weights(weights: np.ndarray) -> float:
    """Return the factor of weights that makes their sum at most the largest."""
    return min(1.0, _LARGEST_WEIGHT / float(weights.sum()))


def _is_unchanged(state: State) -> bool:
    """Return whether a state on the host says that scores are unchanged."""
    return on_host(state["inverse"]) and float(state.get("unchanged", 0)) > 0


def unchanged_weight(state: State, power: float) -> AnyArray:
    """Compute the posterior weight of the unchanged scores, which the oldest files lack."""
    if "log_bayes_factor" not in state:
        return 0 * state["smoothing"]
    weight = sigmoid(state["log_prior_odds"] + power * state["log_bayes_factor"])
    return weight if "unchanged" not in state else weight + (1 - weight) * state["unchanged"]
