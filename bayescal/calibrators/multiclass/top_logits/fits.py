"""Fits to truncated logits, from sums over rows: a temperature, or factors and intercepts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from bayescal._core.chunks import slices
from bayescal._core.newton_cg import Curvature, Point, newton_cg
from bayescal._core.numerics import softmax, unit_of
from bayescal._core.optimise import IntervalMinimum, Minimum, Status, newton_on_interval
from bayescal.data.blocks.stream import add
from bayescal.data.rows import Rows, Sums
from bayescal.data.top_logits import Top, offsets, places, top_probabilities, unpack

__all__ = ["InMemory", "Layout", "TopRows", "expected", "fit_factors", "fit_top_inverse", "hits"]

#: Numbers of packed rows at work, and rows at least from which fits start.
_NUMBERS, _SAMPLE = 1 << 18, 1 << 12
#: Parameters, and the diagonal blocks (3, c) of the Hessian there.
At: TypeAlias = tuple[np.ndarray, np.ndarray]
_MAX_PRODUCTS, _MAX_SLOW, _TOLERANCE = 400, 12, 1e-13


class TopRows(Protocol):
    """Packed rows: their total weight, greatest size of a logit, some of them, and sums."""

    @property
    def weight(self) -> float: ...
    @property
    def largest(self) -> float: ...
    @property
    def sample(self) -> Rows: ...
    def total(
        self, function: Callable[..., Sums], merge: Callable[[Sums, Sums], Sums] = add
    ) -> Sums: ...


class InMemory(NamedTuple):
    """Packed rows that are in memory."""

    rows: Rows
    k: int

    @property
    def weight(self) -> float:
        return float(self.rows.weights.sum())

    @property
    def largest(self) -> float:
        x = unpack(self.rows.scores, self.k).x
        return float(max(x.max(), -x.min()))

    @property
    def sample(self) -> Rows:
        return self.rows.take(slice(None, None, max(1, len(self.rows.y) // _SAMPLE)))

    def total(
        self, function: Callable[..., Sums], merge: Callable[[Sums, Sums], Sums] = add
    ) -> Sums:
        sums = None
        size = max(1, _NUMBERS // self.rows.scores.shape[1])
        with np.errstate(all="ignore"):
            for part in slices(len(self.rows.y), size):
                found = function(*self.rows.take(part))
                sums = found if sums is None else merge(sums, found)
        assert sums is not None
        return sums


def fit_top_inverse(rows: TopRows, k: int) -> IntervalMinimum:
    """Minimize the cross-entropy over s >= 0, of softmax(s x + log(k - m) [others])."""
    unit = unit_of(rows.largest, 1e6)

    def loss(s: float, of: TopRows) -> tuple[float, float, float]:
        value, slope, curvature = of.total(partial(_scale_sums, s, k, unit))["terms"].tolist()
        return value, slope, curvature

    sample = InMemory(rows.sample, k)
    begin = 1.0 if unit == 1 else 0.0
    near = newton_on_interval(partial(loss, of=sample), begin, scale=sample.weight)
    found = newton_on_interval(partial(loss, of=rows), near.x, scale=rows.weight)
    if found.status == Status.CONVERGED and found.curvature > 0:
        # The step that gains nothing, but some digits.
        step = min(found.slope / found.curvature, found.x)
        found = found._replace(x=found.x - step, value=found.value - found.slope * step / 2)
    return found._replace(x=found.x / unit)


def _scale_sums(
    s: float, k: int, unit: float, scores: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> Sums:
    """Return the loss and its first two derivatives at s."""
    top = unpack(scores, k, unit)
    below = top.x - top.x.max(axis=1, keepdims=True)
    own = below[np.arange(len(y)), places(top, y)]
    small = np.exp(s * below + offsets(top))
    total = small.sum(axis=1)
    small *= below
    first = small.sum(axis=1) / total
    second = np.einsum("ij,ij->i", small, below) / total
    terms = [np.log(total) - s * own, first - own, second - first**2]
    return {"terms": np.array([weights @ own for own in terms])}


class Layout(NamedTuple):
    """Which classes have which of the parameters: the last are those of all others."""

    #: The place of each class's parameters (k,), and how many there are.
    group: np.ndarray
    size: int
    #: Whether classes of the last parameters have labels; else they are left out.
    shared: bool
    unit: float

    def columns(self, scores: np.ndarray) -> tuple[Top, np.ndarray, np.ndarray]:
        """Return rows, the places (n, c) of their columns' parameters, and what is added."""
        top = unpack(scores, len(self.group), self.unit)
        n, c = top.x.shape
        group = np.full((n, c), self.size - 1)
        group[:, : top.indices.shape[1]] = self.group[top.indices]
        added = np.broadcast_to(offsets(top), (n, c))
        if not self.shared:
            added = np.where(group < self.size - 1, added, -np.inf)
        return top, group, added


def hits(k: int, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Sums:
    """Return the weight of labels that are in the top, by class (k,), and of the others."""
    hit = (unpack(scores, k).indices == y[:, None]).any(axis=1)
    return {"hits": np.bincount(y[hit], weights[hit], k), "misses": weights[~hit].sum()}


def expected(
    inverse: float, k: int, scores: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> Sums:
    """Return how many labels temperature scaling expects, by class, and last outside the top."""
    top, m = unpack(scores, k), scores.shape[1] // 2
    mass = top_probabilities(top, inverse) * weights[:, None]
    by_class = np.bincount(top.indices.ravel(), mass[:, :m].ravel(), k)
    return {"expected": np.append(by_class, mass[:, m:].sum())}


def fit_factors(rows: TopRows, layout: Layout, inverse: float) -> Minimum[np.ndarray]:
    """Fit intercepts and deviations of factors from one: theta (2 c,), from a temperature."""
    c = layout.size
    begin = np.concatenate([np.zeros(c), np.full(c, min(inverse * layout.unit, 10.0) - 1)])

    def evaluate(theta: np.ndarray) -> Point[np.ndarray, At]:
        found = rows.total(partial(_factor_sums, layout, theta))
        return Point(found["value"], found["gradient"], (theta, found["diagonal"]))

    def product(state: At, vector: np.ndarray) -> np.ndarray:
        return rows.total(partial(_factor_products, layout, state[0], vector))["image"]

    def prepare(state: At) -> np.ndarray:
        """Return the inverses (c, 2, 2) of what an intercept and its factor have together."""
        zero, one, two = state[1]
        ridge = 1e-12 * (1 + max(zero.max(), two.max()))
        blocks = np.stack([np.stack([zero + ridge, one], 1), np.stack([one, two + ridge], 1)], 1)
        return np.linalg.inv(blocks)

    def precondition(ready: np.ndarray, vector: np.ndarray) -> np.ndarray:
        return np.einsum("cij,jc->ic", ready, vector.reshape(2, c)).ravel()

    def unbounded(theta: np.ndarray, here: Point[np.ndarray, At]) -> bool:
        step = precondition(prepare(here.state), -here.gradient)
        return bool(rows.total(partial(_movement, layout, theta, step), _greatest)["moved"] > 0.01)

    curvature = Curvature(product, prepare, precondition, 0, _MAX_PRODUCTS)
    with np.errstate(all="ignore"):
        return newton_cg(
            evaluate,
            curvature,
            begin,
            scale=rows.weight,
            unbounded=unbounded,
            tolerance=_TOLERANCE,
            max_slow=_MAX_SLOW,
            xp=np,
        )[0]


def _changed(x: np.ndarray, group: np.ndarray, theta: np.ndarray) -> np.ndarray:
    b, a = theta.reshape(2, -1)
    return a[group] * x + b[group]


def _gathered(group: np.ndarray, c: int, *parts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.bincount(group.ravel(), part.ravel(), c) for part in parts])


def _factor_sums(
    layout: Layout, theta: np.ndarray, scores: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> Sums:
    """Return the loss, its gradient, and the diagonal blocks of an upper bound of its Hessian."""
    top, group, added = layout.columns(scores)
    changed = top.x + _changed(top.x, group, theta)
    logits = changed + added
    most = logits.max(axis=1, keepdims=True)
    probs = np.exp(logits - most)
    total = probs.sum(axis=1, keepdims=True)
    probs /= total
    own = np.arange(len(y)), places(top, y)
    value = weights @ (np.log(total[:, 0]) + most[:, 0] - changed[own])
    residual = probs * weights[:, None]
    spread = residual * (1 - probs)
    residual[own] -= weights
    c, once = layout.size, spread * top.x
    return {
        "value": np.asarray(value),
        "gradient": _gathered(group, c, residual, residual * top.x),
        "diagonal": _gathered(group, c, spread, once, once * top.x).reshape(3, c),
    }


def _factor_products(
    layout: Layout,
    theta: np.ndarray,
    vector: np.ndarray,
    scores: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
) -> Sums:
    """Return the Hessian times a vector."""
    top, group, added = layout.columns(scores)
    probs = softmax(top.x + _changed(top.x, group, theta) + added)
    moved = _changed(top.x, group, vector)
    residual = probs * (moved - np.einsum("ij,ij->i", probs, moved)[:, None]) * weights[:, None]
    return {"image": _gathered(group, layout.size, residual, residual * top.x)}


def _movement(
    layout: Layout,
    theta: np.ndarray,
    step: np.ndarray,
    scores: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
) -> Sums:
    """Return the largest change of a row's logits, relative to their size."""
    top, group, added = layout.columns(scores)
    used = np.isfinite(added)
    logits = top.x + _changed(top.x, group, theta)
    moved = _changed(top.x, group, step)
    logits = logits - logits.max(axis=1, keepdims=True, where=used, initial=-np.inf)
    moved = moved - moved.mean(axis=1, keepdims=True, where=used)
    return {"moved": np.max(np.abs(moved) / (1 + np.abs(logits)), where=used, initial=0.0)}


def _greatest(first: Sums, second: Sums) -> Sums:
    return {name: np.maximum(own, second[name]) for name, own in first.items()}
