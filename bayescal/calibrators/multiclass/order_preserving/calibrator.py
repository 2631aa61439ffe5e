"""Functions of logits that preserve their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.arrays import AnyArray, XArray, namespace, take_in_rows
from bayescal._core.minimization.optimize import Status
from bayescal._core.numerics import softplus
from bayescal._core.shapes import Float, Int
from bayescal.calibrators.base.calibrator import Calibrator, Keeps, State
from bayescal.calibrators.binary.monotone.pooling import interpolate
from bayescal.calibrators.multiclass.binwise import softmax_below
from bayescal.calibrators.multiclass.order_preserving import network
from bayescal.calibrators.multiclass.order_preserving.network import Family, Nets, Parameters
from bayescal.calibrators.multiclass.scale import fit_inverse
from bayescal.data.checks import check_choice, check_count
from bayescal.data.folds.deal import fold_scores
from bayescal.data.order.classes import canonical_order
from bayescal.data.rows import Rows, Source
from bayescal.data.scores import bounded

_SIZES = {"diagonal": ((4, 4), (10, 10), (20, 20)), "full": ((4, 4), (10, 10))}
_FOLDS = 5
#: Number of points at which the increasing function is tabulated.
_KNOTS = 512
_LEAST_SLOPE = 1e-100


@dataclass(eq=False, repr=False)
class OrderPreserving(Calibrator):
    r"""Networks with two hidden layers that preserve the ranking of the classes in every row.

    .. math:: \hat p = \operatorname{softmax}(g(z_1), \dots, g(z_k))

    with one continuous, strictly increasing g for all classes ("diagonal"), or

    .. math:: \hat p_{(i)} \propto \exp \sum_{j \ge i} (z_{(j)} - z_{(j+1)})\, m_j(z),
        \qquad z_{(1)} \ge \dots \ge z_{(k)}

    with positive continuous factors m, which depend on all logits ("full"). Both families contain
    temperature scaling, from which training starts. Adam minimizes the log loss of all rows. The
    sizes of the layers and the number of iterations (possibly zero) minimize the log loss in 5
    stratified folds.

    Parameters
    ----------
    family : {"diagonal", "full"}
        The full family is larger, and needs more data.
    hidden : "cv" or pair of int
        Units of the two hidden layers; "cv" chooses from (4, 4), (10, 10) and, for the diagonal
        family, (20, 20).
    random_state : int, RandomState or None
        Seed of the initial weights.

    Attributes
    ----------
    hidden_ : array of shape (2,)
        Units of the two hidden layers.

    Notes
    -----
    The ranking is preserved exactly in every row: equal logits have equal probabilities, and a
    larger logit never has a smaller probability. Positive probabilities do not fall below 1e-304.

    The network of the diagonal family is :math:`a z + v \cdot \tanh(B \tanh(c z + d) + e)` with
    non-negative a, v, B and c. It is tabulated at up to 512 points, which are dense where logits
    are dense; between them g is linear, also in training, and beyond them its slope is a. Both
    families depend on constants that are added to all logits of a row.

    Initial weights of the full family are drawn for the classes in the order of weighted means of
    their logits and labels: permuting the columns changes nothing unless these are equal for two
    classes.

    The state is ``inverse`` of the initial temperature, ``hidden`` (2,), ``n_iter``, and
    ``objective``, the mean log loss; ``cv_hidden`` (s, 2), and ``cv_losses`` (s, checks) after
    every ten iterations; ``knots``, ``values`` and ``slope`` for "diagonal", and the weights for
    "full". ``status`` is LIMIT if the best number of iterations is the maximum, 600. Six networks
    of each size are trained together, in O(n k) per iteration and network, or O(n k h + n h**2) for
    "full" with h units. Memory is O(n k), times the number of networks that fit in 32 MiB.

    References
    ----------
    A. Rahimi et al. (2020), Intra order-preserving functions for calibration of multi-class neural
    networks.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 1, 2, 1, 2, 0, 2, 0, 1]
    >>> network = bc.OrderPreserving(hidden=(2, 2), random_state=0).fit(p, y)
    >>> network.predict(p[:3]).tolist()
    [0, 1, 2]
    """

    family: Family = "diagonal"
    hidden: Literal["cv"] | tuple[int, int] = "cv"
    random_state: int | np.random.RandomState | None = field(default=None, kw_only=True)

    hidden_: np.ndarray = field(init=False)

    keeps: ClassVar[Keeps] = "order"
    _domain = "logits"

    def _check_options(self) -> None:
        check_choice(self.family, "family", ("diagonal", "full"))
        if isinstance(self.hidden, str):
            check_choice(self.hidden, "hidden", ("cv",))
        elif not isinstance(self.hidden, tuple | list) or len(self.hidden) != 2:
            raise TypeError(f"hidden must be 'cv' or two integers, got {self.hidden!r}")
        else:
            for units in self.hidden:
                check_count(units, "hidden")

    def _fit(self, rows: Source, seed: int) -> State:
        scores, y, weights = rows.all()
        folds = fold_scores(scores, y, weights, _FOLDS)
        return self._fit_folds(*folds.take(scores, y), seed, folds.fold)

    def _fit_folds(
        self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int, folds: np.ndarray
    ) -> State:
        """Fit with these folds (n,); a single fold means no training."""
        z = bounded(scores)
        order = canonical_order(z, y, weights)
        column = np.argsort(order)
        z, y = z[:, order], column[y]
        sizes = _SIZES[self.family] if isinstance(self.hidden, str) else (self.hidden,)
        nets = _nets(sizes, weights, folds)
        distinct = np.unique(z)
        low, center, high = distinct[[int(q * (len(distinct) - 1)) for q in (0.05, 0.5, 0.95)]]
        scale = (high - low) / 2 or 1.0
        training_weights = nets.train.T[: nets.train.shape[1] // len(sizes)]
        fits = [fit_inverse(Rows(z, y, w).take(w > 0)) for w in training_weights]
        inverses = np.array([minimum.x for minimum in fits])
        log_slopes = np.log(np.maximum(inverses, np.finfo(float).tiny)) + np.log(scale)
        log_slopes = np.maximum(np.tile(log_slopes, len(sizes)), np.log(_LEAST_SLOPE))
        unit: State = {"center": np.asarray(center), "scale": np.asarray(scale)}
        knots = _knots(z, distinct)
        if self.family == "diagonal":
            start = network.start_diagonal(nets.hidden, log_slopes, seed)
            data = _tabulated(z, y, knots, center, scale)
        else:
            start = network.start_full(nets.hidden, log_slopes, seed, z.shape[1])
            data = _sorted_rows(z, y, center, scale)
        history = network.train(self.family, start, data, nets)
        tried_sizes, sums = network.by_size(history.held, nets)
        # The first of equally good fits has the fewest iterations and the smallest size.
        check, size = np.unravel_index(
            np.argmin(np.where(np.isnan(sums), np.inf, sums)), sums.shape
        )
        full = np.flatnonzero(~nets.held.any(axis=0))
        net = int(np.argmax((nets.hidden[full] == tried_sizes[size]).all(axis=1)))
        chosen = {name: value[net] for name, value in history.parameters[check].items()}
        if self.family == "diagonal":
            unit |= _table(chosen, tried_sizes[size], knots, center, scale)
        else:
            unit |= _trimmed(chosen, tried_sizes[size], column)
        limit = check == network.MAX_CHECKS
        return {
            **unit,
            "inverse": np.asarray(inverses[-1]),
            "hidden": tried_sizes[size],
            "n_iter": np.asarray(int(check) * network.EVERY),
            "objective": np.asarray(history.train[check, full[net]]),
            "cv_hidden": tried_sizes,
            "cv_losses": sums.T / weights.sum(),
            "status": np.asarray(int(Status.LIMIT if limit else Status.CONVERGED)),
        }

    def _apply(self, state: State, scores: AnyArray) -> AnyArray:
        xp, z = namespace(scores), bounded(scores)
        order = xp.argsort(-z, axis=1, stable=True)
        descending = take_in_rows(z, order)
        steps = descending[:, :-1] - descending[:, 1:]
        if self.family == "diagonal":
            knots, values = state["knots"], state["values"]
            flat = xp.reshape(descending, (-1,))
            inside = xp.reshape(interpolate(flat, knots, values), (-1, scores.shape[1]))
            beyond = descending - xp.clip(descending, knots[0], knots[-1])
            calibrated = inside + state["slope"] * beyond
            falls = calibrated[:, :-1] - calibrated[:, 1:]
        else:
            rows = _unit(z, state["center"], state["scale"])
            stretched = network.stretching(state, rows, xp.tanh)
            factors = softplus(stretched)
            falls = steps * (xp.exp(state["log_slope"]) / state["scale"] * factors)
        # Rounding must not change the ranking or separate equal logits.
        falls = xp.where(steps > 0, xp.maximum(falls, 0.0), 0.0)
        below = [_fallen(differences) for differences in (falls, steps)]
        return take_in_rows(softmax_below(*below), xp.argsort(order, axis=1, stable=True))


def _nets(
    sizes: tuple[tuple[int, int], ...],
    weights: Float[np.ndarray, " rows"],
    folds: Int[np.ndarray, " rows"],
) -> Nets:
    """Make networks of each size, trained without each fold, and finally on all rows."""
    count = folds.max() + 1 if folds.max() > 0 else 0
    out = folds[:, None] == np.append(np.arange(count), -1)
    held, train = weights[:, None] * out, weights[:, None] * ~out
    hidden = np.repeat(np.array(sizes), count + 1, axis=0)
    return Nets(hidden, np.tile(train, len(sizes)), np.tile(held, len(sizes)))


# --- the diagonal family ------------------------------------------------------------------------


def _knots(z: np.ndarray, distinct: np.ndarray) -> np.ndarray:
    """Choose ascending points, half from all logits and half from the largest logits of rows.

    Neither repeated rows nor the order of rows matter.
    """
    parts = [distinct, np.unique(z.max(axis=1))]
    half = _KNOTS // 2
    picked = [part[np.linspace(0, len(part) - 1, half).round().astype(int)] for part in parts]
    return np.unique(np.concatenate(picked))


def _tabulated(
    z: np.ndarray, y: np.ndarray, knots: np.ndarray, center: float, scale: float
) -> tuple[np.ndarray, ...]:
    """Return the points of the network, and the positions of logits and of labels' logits."""
    index = np.clip(np.searchsorted(knots, z, side="right") - 1, 0, max(0, len(knots) - 2))
    wide = np.append(np.diff(knots), 1.0)
    part = (z - knots[index]) / wide[index]
    label = np.arange(len(y)), y
    points = np.resize((knots - center) / scale, _KNOTS)
    points[len(knots) :] = points[len(knots) - 1]
    index = index.astype(np.int32)
    return points, index, part, index[label], part[label]


def _table(
    parameters: Parameters, hidden: np.ndarray, knots: np.ndarray, center: float, scale: float
) -> State:
    a, b = hidden
    masked = dict(parameters)
    masked["second"] = masked["second"] * ((np.arange(len(masked["second"])) < a)[:, None])
    masked["last"] = masked["last"] * (np.arange(len(masked["last"])) < b)
    values = network.rising(masked, (knots - center) / scale, np.tanh, np.exp)
    return {
        "knots": knots,
        "values": np.maximum.accumulate(values),
        "slope": np.asarray(np.exp(masked["log_slope"]) / scale),
    }


# --- the full family ----------------------------------------------------------------------------


def _unit(z: XArray, center: XArray | float, scale: XArray | float) -> AnyArray:
    """Standardize logits (m, k) of any size by the units of the fit."""
    return namespace(z).clip((z - center) / scale, -1e30, 1e30)


def _sorted_rows(
    z: Float[np.ndarray, "rows classes"], y: Int[np.ndarray, " rows"], center: float, scale: float
) -> tuple[np.ndarray, ...]:
    """Return rows of the network, differences of sorted logits, and a mask above the label."""
    order = np.argsort(-z, axis=1, kind="stable")
    steps = -np.diff(np.take_along_axis(z, order, axis=1), axis=1) / scale
    rank = np.argmax(order == y[:, None], axis=1)
    above = np.arange(z.shape[1] - 1) < rank[:, None]
    return _unit(z, center, scale), steps, above.astype(float)


def _trimmed(parameters: Parameters, hidden: np.ndarray, column: np.ndarray) -> State:
    """Return the weights of used units, with classes in the order of ``column`` (k,)."""
    a, b = hidden
    return {
        "first": parameters["first"][column, :a],
        "first_bias": parameters["first_bias"][:a],
        "second": parameters["second"][:a, :b],
        "second_bias": parameters["second_bias"][:b],
        "last": parameters["last"][:b],
        "last_bias": parameters["last_bias"],
        "log_slope": np.asarray(parameters["log_slope"]),
    }


def _fallen(falls: XArray) -> XArray:
    """Compute logits (m, k) relative to the first from their differences (m, k - 1)."""
    xp = namespace(falls)
    return -xp.cumulative_sum(falls, axis=1, include_initial=True)
