"""Fits of all members of a stack to the complements of folds: few steps with a strong metric."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.optimise import Search, run_together
from bayescal.calibrators.multiclass.members import (
    Layout,
    Member,
    confidence_rows,
    feature_rows,
    penalties,
)
from bayescal.calibrators.stack.metric import Metric
from bayescal.data.rows import Rows
from bayescal.regression.softmax.objective import Design, Parameters, Sizes, split

#: Numbers of a block of rows, of very many classes rows.
_BLOCK, _LEAST_ROWS = 1 << 16, 128
#: So few scores are worth neither threads nor single precision.
SMALL = 1 << 15
#: Steps of members with matrices of logarithms, and in folds of those without.
_STEPS, _FEW_STEPS = 4, 2
#: What a step must gain of what its slope promises.
_SUFFICIENT = 1e-4
#: Relative digits of a sum of losses that may be lost.
ROUNDING = {np.dtype(np.float32): 1e-7, np.dtype(np.float64): 1e-13}
_SHORTEST = 1e-3
#: Logits within this have exponentials whose sums neither overflow nor vanish.
_MILD = 60.0
#: Bounds of the scale that the first step finds for the metric.
_SCALES = 0.05, 2.0
Losses = tuple[float, np.ndarray]


class Scale(NamedTuple):
    """The inverse temperature, and the proportion of the uniform distribution."""

    inverse: float
    smoothing: float


class Block(NamedTuple):
    """Features (m, n), log probabilities (k, n) and confidence (4, n): rows are columns here."""

    features: np.ndarray
    x: np.ndarray
    shared: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    @property
    def design(self) -> Design:
        """The same as rows."""
        x = self.x.T
        return Design(x, self.y, self.weights, self.features.T, x, self.shared.T)


def working_type(size: int) -> Any:
    """Return the type in which so many scores are fitted on the host."""
    return np.float64 if size < SMALL else np.float32


@contextmanager
def threads(size: int) -> Iterator[Any]:
    """Give a map that works in threads if so many scores are worth it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if cores == 1 or size < SMALL:
        yield map
        return
    with ThreadPoolExecutor(cores) as pool:
        yield pool.map


def smooth_columns(scores: np.ndarray, scale: Scale, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return smoothed log probabilities and probabilities (k, n) of scores (n, k)."""
    with np.errstate(over="ignore"):
        x = np.ascontiguousarray(scores.T)
        x = (x - x.max(axis=0)).astype(dtype, copy=False)
        x *= dtype(scale.inverse)
    np.exp(x, out=x)
    x *= (1 - scale.smoothing) / x.sum(axis=0)
    x += dtype(scale.smoothing / len(x))
    return np.log(x), x


def make_block(rows: Rows, scale: Scale, layout: Layout, basis: np.ndarray, dtype: Any) -> Block:
    """Return rows as they are used in fits."""
    x, probs = smooth_columns(rows.scores, scale, dtype)
    features = feature_rows(x, probs, layout, basis)
    weights = rows.weights.astype(dtype, copy=False)
    return Block(features, x, confidence_rows(x, probs), rows.y, weights)


def block_rows(count: int, k: int) -> list[slice]:
    """Return slices of so many rows of k classes, about equal."""
    parts = -(-count // max(_LEAST_ROWS, _BLOCK // k))
    return [slice(*pair) for pair in pairwise(np.arange(parts + 1) * count // parts)]


def logits(block: Block, own: Parameters, part: slice) -> np.ndarray:
    """Return the logits (k, n) of a member, which takes a part of the features."""
    factor = 1 + own.diagonal[:, None]
    if len(own.shared):
        factor = factor + own.shared @ block.shared
    found = factor * block.x
    features = block.features[part]
    found += own.matrix @ features if len(features) > 1 else own.matrix
    return found


def label_logs(block: Block, own: Parameters, part: slice) -> np.ndarray:
    """Return the log probabilities (n,) of labels by a member."""
    z = logits(block, own, part)
    z -= z.max(axis=0)
    label = z[block.y, np.arange(len(block.y))]
    return label - np.log(np.exp(z, out=z).sum(axis=0))


def losses(blocks: Sequence[Block], theta: np.ndarray, sizes: Any, part: slice) -> Losses:
    """Return the weighted sum of losses, and its gradient (p,)."""
    value, gradient = 0.0, np.zeros(len(theta))
    into, own = split(gradient, sizes), split(theta.astype(blocks[0].x.dtype), sizes)
    zero = not theta.any()
    # Products with ones are several times faster than sums.
    classes = np.ones(len(blocks[0].x), blocks[0].x.dtype)
    for block in blocks:
        z = block.x.copy() if zero else logits(block, own, part)
        if not (-_MILD < z.min() and z.max() < _MILD):
            z -= z.max(axis=0)
        row = np.arange(len(block.y))
        ones = np.ones(len(row), z.dtype)
        label = z[block.y, row]
        np.exp(z, out=z)
        total = classes @ z
        value += float(block.weights @ (np.log(total) - label))
        z *= block.weights / total
        z[block.y, row] -= block.weights
        into.matrix[:] += z @ block.features[part].T
        z *= block.x
        into.diagonal[:] += z @ ones
        if len(into.shared):
            into.shared[:] += block.shared @ (classes @ z)
    return value, gradient


def descend(
    begin: Losses,
    penalty: np.ndarray,
    metric: Metric,
    first: float,
    iterations: int,
    rounding: float,
) -> Search:
    """Return parameters (p,) after so many steps of the L-BFGS method from zero.

    ``begin`` is value and gradient there; ``metric`` about the inverse of the Hessian, of which the
    first step takes ``first``, and ``rounding`` what may be lost of the value's digits. It yields
    parameters, and is to be sent value and gradient of the losses there, without the penalty.
    """

    def evaluate(theta: np.ndarray) -> Search:
        value, gradient = yield theta
        return value + 0.5 * float(penalty @ theta**2), gradient + penalty * theta

    value, gradient = begin
    theta, scale = np.zeros(len(gradient)), first
    pairs: list[tuple[np.ndarray, np.ndarray, float]] = []
    for _ in range(iterations):
        step, factors = -gradient, []
        for moved, turned, curvature in reversed(pairs):
            factors.append(moved @ step / curvature)
            step -= factors[-1] * turned
        step = scale * metric(step)
        for (moved, turned, curvature), factor in zip(pairs, reversed(factors), strict=True):
            step += (factor - turned @ step / curvature) * moved
        slope, slack = float(gradient @ step), rounding * abs(value)
        if not slope < -slack:
            break
        length = 1.0
        there, new = yield from evaluate(theta + step)
        while not there <= value + _SUFFICIENT * length * slope + slack and length > _SHORTEST:
            best = -slope * length**2 / (2 * (there - value - slope * length))
            length = min(max(best, 0.1 * length), 0.6 * length)
            there, new = yield from evaluate(theta + length * step)
        if not there <= value + slack:
            break
        moved, turned = length * step, new - gradient
        curvature = float(moved @ turned)
        if curvature > 0:
            if not pairs:
                scale = float(np.clip(curvature / (turned @ metric(turned)), *_SCALES))
            pairs.append((moved, turned, curvature))
        theta, value, gradient = theta + moved, there, new
    return theta


def search_member(
    member: Member,
    layout: Layout,
    count: int,
    begin: Losses,
    metric: Metric,
    first: float,
    rounding: float,
) -> Search:
    """Return the parameters (p,) of a member without one of so many folds, if there are several.

    It yields parameters, and is to be sent value and gradient of the losses there; ``begin`` are
    those at zero, the gradient of all features. ``metric`` is for all rows, and ``first`` what the
    first step of matrices takes of it.
    """
    share = max(1 - 1 / count, 1 / count)
    long = member.logarithm is not None or member.directions is not None
    return descend(
        (begin[0], begin[1][layout.places(member)]),
        share * penalties(member, layout.k, layout.rank),
        lambda gradient: metric(gradient) / share,
        first if member.sizes(layout.k, layout.rank)[1] > 1 else 1.0,
        _STEPS if long or count == 1 else _FEW_STEPS,
        rounding,
    )


class Place(NamedTuple):
    """A member's sizes, its range of features, and places of its parameters among those of all."""

    sizes: Sizes
    part: slice
    own: np.ndarray


class Folds:
    """Rows in blocks, by the group whose fits leave them out; if there is but one, none does."""

    def __init__(
        self,
        rows: Rows,
        groups: list[np.ndarray],
        scales: list[Scale],
        layout: Layout,
        basis: np.ndarray,
        each: Any,
    ) -> None:
        dtype = working_type(rows.scores.size)
        self.count, self.rounding = len(groups), ROUNDING[np.dtype(dtype)]
        self._groups, self._dtype = groups, dtype

        def blocks_of(own: np.ndarray, scale: Scale) -> list[Block]:
            parts = (own[part] for part in block_rows(len(own), layout.k))
            return [make_block(rows.take(part), scale, layout, basis, dtype) for part in parts]

        self._out = out = list(each(blocks_of, groups, scales))
        self._train = out
        if self.count > 1 and scales[0] == scales[-1]:
            self._train = [[b for own in out if own is not left for b in own] for left in out]
        elif self.count > 1:
            others = [np.delete(np.arange(len(rows.y)), own) for own in groups]
            self._train = list(each(blocks_of, others, scales))

    def losses(self, fold: int, theta: np.ndarray, place: Place) -> Losses:
        """Return the sum of losses of the other groups, and its gradient."""
        return losses(self._train[fold], theta, place.sizes, place.part)

    def held_out(self, fold: int, theta: np.ndarray, place: Place) -> np.ndarray:
        """Return the log probabilities of labels of the group."""
        own = split(theta.astype(self._dtype), place.sizes)
        return np.concatenate([label_logs(block, own, place.part) for block in self._out[fold]])

    def together(self, logs: list[list[np.ndarray]]) -> np.ndarray:
        """Return those (n, members) of all rows, from those of members and folds."""
        held = np.empty((sum(map(len, self._groups)), len(logs)))
        for i, own in enumerate(logs):
            held[np.concatenate(self._groups), i] = np.concatenate(own)
        return held


def fit_folds(
    members: Sequence[Member],
    folds: Any,
    layout: Layout,
    metrics: list[Metric],
    first: float,
    each: Any,
) -> tuple[list[np.ndarray], Any]:
    """Fit all members to the complement of each group of rows, or to all if there is but one.

    Returns their parameters, means over groups, and log probabilities (n, members) of labels by
    fits without them, if there are several. ``folds`` are :class:`Folds`, or what does the same
    elsewhere; ``metrics`` are of members for all rows, and ``first`` what first steps of matrices
    take.
    """
    k, rank, count = layout.k, layout.rank, folds.count
    places = [Place(own.sizes(k, rank), layout.part(own), layout.places(own)) for own in members]

    def fit(job: tuple[int, int]) -> tuple[np.ndarray, Any]:
        (i, fold), place = job, places[job[0]]
        given = members[i], layout, count, begin[fold], metrics[i], first, folds.rounding
        theta = run_together(
            {0: search_member(*given)}, lambda at: {0: folds.losses(fold, at[0], place)}
        )[0]
        return theta, folds.held_out(fold, theta, place) if count > 1 else None

    zero = np.zeros(layout.length)
    whole = Place(layout.sizes, slice(None), np.arange(len(zero)))
    begin = list(each(lambda fold: folds.losses(fold, zero, whole), range(count)))
    # The longest first, so that none is waited for.
    jobs = sorted(
        product(range(len(members)), range(count)), key=lambda job: -len(places[job[0]].own)
    )
    found = dict(zip(jobs, each(fit, jobs), strict=True))
    fits = [[found[i, fold] for fold in range(count)] for i in range(len(members))]
    means = [np.mean([theta for theta, _ in own], axis=0) for own in fits]
    return means, folds.together([[logs for _, logs in own] for own in fits]) if count > 1 else None
