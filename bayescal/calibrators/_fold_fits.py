"""Fits of all members of a stack to the complements of folds: few steps with a strong metric."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bayescal.calibrators._member import Member, confidence_rows, feature_rows, penalties
from bayescal.calibrators._metric import Layout, Metric
from bayescal.regression.softmax_objective import Design, Parameters, split

#: Numbers of a block of rows, of very many classes rows.
_BLOCK, _LEAST_ROWS = 1 << 16, 128
#: So few scores are worth neither threads nor single precision.
SMALL = 1 << 15
#: Steps of members with matrices, and of those without.
_STEPS, _FEW_STEPS = 4, 2
#: What a step must gain of what its slope promises.
_SUFFICIENT = 1e-4
#: Relative digits of a sum of losses that may be lost.
_ROUNDING = {np.dtype(np.float32): 1e-7, np.dtype(np.float64): 1e-13}
_SHORTEST = 1e-3
#: Bounds of the scale that the first step finds for the metric.
_SCALES = 0.05, 2.0


class Scale(NamedTuple):
    """The inverse temperature, and the proportion of the uniform distribution."""

    inverse: float
    smoothing: float


class Block(NamedTuple):
    """Some rows as columns, so that sums over classes are sums of long vectors."""

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


class Rows(NamedTuple):
    """Scores (n, k), labels (n,) and weights (n,)."""

    scores: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    def take(self, part: Any) -> Rows:
        """Return some of them."""
        return Rows(*(own[part] for own in self))


@contextmanager
def threads(size: int) -> Iterator[Any]:
    """Give a map that works in threads if it is worth it."""
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
    features = feature_rows(x, probs, layout.probability, layout.logarithm, basis)
    shared = confidence_rows(x, probs)
    return Block(features, x, shared, rows.y, rows.weights.astype(dtype, copy=False))


def block_rows(count: int, k: int) -> list[slice]:
    """Return slices of so many rows of k classes."""
    step = max(_LEAST_ROWS, _BLOCK // k)
    edges = np.linspace(0, count, -(-count // step) + 1).astype(int)
    return [slice(*pair) for pair in pairwise(edges)]


def logits(block: Block, own: Parameters, part: slice) -> np.ndarray:
    """Return the logits (k, n) of a member."""
    factor = 1 + own.diagonal[:, None]
    if len(own.shared):
        factor = factor + own.shared @ block.shared
    found = factor * block.x
    features = block.features[part]
    found += own.matrix @ features if len(features) > 1 else own.matrix
    return found


def label_logs(block: Block, own: Parameters, part: slice) -> np.ndarray:
    """Return the log probabilities (n,) of the labels."""
    z = logits(block, own, part)
    z -= z.max(axis=0)
    label = z[block.y, np.arange(len(block.y))]
    return label - np.log(np.exp(z, out=z).sum(axis=0))


def losses(
    blocks: Sequence[Block], theta: np.ndarray, sizes: tuple[int, int, int, int], part: slice
) -> tuple[float, np.ndarray]:
    """Return the sum of losses, and its gradient (p,)."""
    value, gradient = 0.0, np.zeros(len(theta))
    into = split(gradient, sizes)
    own = split(theta.astype(blocks[0].x.dtype), sizes)
    zero = not theta.any()
    for block in blocks:
        z = block.x.copy() if zero else logits(block, own, part)
        z -= z.max(axis=0)
        row = np.arange(len(block.y))
        label = z[block.y, row]
        np.exp(z, out=z)
        total = z.sum(axis=0)
        value += float(block.weights @ (np.log(total) - label))
        z *= block.weights / total
        z[block.y, row] -= block.weights
        features = block.features[part]
        into.matrix[:] += z @ features.T if len(features) > 1 else z.sum(axis=1)[:, None]
        z *= block.x
        into.diagonal[:] += z.sum(axis=1)
        if len(into.shared):
            into.shared[:] += block.shared @ z.sum(axis=0)
    return value, gradient


def minimize(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]],
    begin: tuple[float, np.ndarray],
    metric: Metric,
    first: float,
    iterations: int,
    rounding: float,
) -> np.ndarray:
    """Return parameters (p,) after so many steps of the L-BFGS method from zero.

    ``begin`` is value and gradient there; ``metric`` about the inverse of the Hessian, of which the
    first step takes ``first``, and ``rounding`` what may be lost of the value's digits.
    """
    value, gradient = begin
    theta, scale = np.zeros(len(gradient)), first
    pairs: list[tuple[np.ndarray, np.ndarray, float]] = []
    for _ in range(iterations):
        step, factors = gradient.copy(), []
        for moved, turned, product in reversed(pairs):
            factors.append(moved @ step / product)
            step -= factors[-1] * turned
        step = -scale * metric(step)
        for (moved, turned, product), factor in zip(pairs, reversed(factors), strict=True):
            step -= (factor + turned @ step / product) * moved
        slope, slack = float(gradient @ step), rounding * abs(value)
        if not slope < -slack:
            break
        length = 1.0
        while True:
            there, new = evaluate(theta + length * step)
            if there <= value + _SUFFICIENT * length * slope + slack or length < _SHORTEST:
                break
            best = -slope * length**2 / (2 * (there - value - slope * length))
            length = min(max(best, 0.1 * length), 0.6 * length)
        if not there <= value + slack:
            break
        moved, turned = length * step, new - gradient
        product = float(moved @ turned)
        if product > 0:
            if not pairs:
                scale = float(np.clip(product / (turned @ metric(turned)), *_SCALES))
            pairs.append((moved, turned, product))
        theta, value, gradient = theta + moved, there, new
    return theta


class Fold(NamedTuple):
    """Blocks of rows to fit to, their losses with all parameters zero, and blocks left out."""

    train: list[Block]
    begin: tuple[float, np.ndarray]
    held: list[Block]


def make_folds(
    rows: Rows, groups: list[np.ndarray], scales: list[Scale], layout: Layout, basis: np.ndarray
) -> list[Fold]:
    """Return what is fitted to the complement of each group of rows, or to all if there is but one.

    With a single scale all folds share their blocks.
    """
    dtype = np.float64 if rows.scores.size < SMALL else np.float32
    k, m, _, r = layout.sizes
    zero = np.zeros(k * m + k + r)

    def make(job: tuple[np.ndarray, Scale]) -> Block:
        return make_block(rows.take(job[0]), job[1], layout, basis, dtype)

    def at_zero(blocks: list[Block]) -> tuple[float, np.ndarray]:
        return losses(blocks, zero, layout.sizes, slice(None))

    with threads(rows.scores.size) as each:

        def blocks_of(parts: list[np.ndarray]) -> list[list[Block]]:
            own = scales * (len(parts) // len(scales))
            jobs = [
                [(part[rows], scale) for rows in block_rows(len(part), k)]
                for part, scale in zip(parts, own, strict=True)
            ]
            made = iter(each(make, [job for several in jobs for job in several]))
            return [[next(made) for _ in several] for several in jobs]

        held = blocks_of(groups)
        if len(groups) == 1:
            return [Fold(held[0], at_zero(held[0]), [])]
        if len(scales) == 1:
            train = [[b for own in held if own is not left for b in own] for left in held]
            parts = list(each(at_zero, held))
            value, slope = (sum(own) for own in zip(*parts, strict=True))
            begin = [(value - a, slope - b) for a, b in parts]
        else:
            every = np.arange(len(rows.y))
            train = blocks_of([np.delete(every, own) for own in groups])
            begin = [at_zero(blocks) for blocks in train]
    return [Fold(*own) for own in zip(train, begin, held, strict=True)]


def fit_members(
    members: Sequence[Member],
    folds: list[Fold],
    layout: Layout,
    metrics: list[Metric],
    first: float,
) -> list[list[np.ndarray]]:
    """Return parameters (p,) of each member for each fold, from zero in few steps.

    ``metrics`` are about the inverses of the Hessians for all rows, of which the first step of
    members with a matrix takes ``first``.
    """
    share = 1 - 1 / len(folds) if len(folds) > 1 else 1.0
    every = split(np.arange(len(folds[0].begin[1])), layout.sizes)

    def one(job: tuple[int, int]) -> np.ndarray:
        member, fold, metric = members[job[0]], folds[job[1]], metrics[job[0]]
        sizes, part = member.sizes(layout.k, layout.rank), layout.part(member)
        penalty = share * penalties(member, layout.k, layout.rank)

        def evaluate(theta: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = losses(fold.train, theta, sizes, part)
            return value + 0.5 * float(penalty @ theta**2), gradient + penalty * theta

        wide = sizes[1] > 1
        long = member.logarithm is not None or member.directions is not None
        parameters = every.matrix[:, part].ravel(), every.diagonal, every.shared[: sizes[3]]
        return minimize(
            evaluate,
            (fold.begin[0], fold.begin[1][np.concatenate(parameters)]),
            lambda gradient: metric(gradient) / share,
            first if wide else 1.0,
            _STEPS if long else _FEW_STEPS,
            _ROUNDING[fold.train[0].x.dtype],
        )

    jobs = [(i, f) for i in range(len(members)) for f in range(len(folds))]
    # The longest first, so that none is waited for.
    order = sorted(jobs, key=lambda job: -members[job[0]].count(layout.k, layout.rank))
    with threads(sum(block.x.size for block in folds[0].train)) as each:
        found = dict(zip(order, each(one, order), strict=True))
    return [[found[i, f] for f in range(len(folds))] for i in range(len(members))]


def held_out_logs(
    members: Sequence[Member],
    folds: list[Fold],
    layout: Layout,
    thetas: list[list[np.ndarray]],
    groups: list[np.ndarray],
) -> np.ndarray:
    """Return log probabilities (n, members) of labels by the fits to the other folds."""
    found = np.empty((sum(map(len, groups)), len(members)))

    def one(job: tuple[int, int]) -> None:
        i, f = job
        sizes, part = members[i].sizes(layout.k, layout.rank), layout.part(members[i])
        own = split(thetas[i][f].astype(folds[f].held[0].x.dtype), sizes)
        found[groups[f], i] = np.concatenate([label_logs(b, own, part) for b in folds[f].held])

    jobs = [(i, f) for i in range(len(members)) for f in range(len(folds))]
    with threads(found.shape[0] * layout.k) as each:
        list(each(one, jobs))
    return found
