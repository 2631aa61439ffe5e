"""Vector scaling of truncated logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import namespace
from bayescal._core.newton_cg import Curvature, Point, newton_cg
from bayescal._core.numerics import softmax, unit_of
from bayescal._core.optimise import Minimum
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.multiclass.top_logits.calibrator import TopLogitsCalibrator
from bayescal.calibrators.multiclass.top_logits.temperature import fit_top_inverse
from bayescal.data.rows import Source, Sums, greatest
from bayescal.data.top_logits import Top, offsets, places, top_probabilities, unpack

__all__ = ["TopVector"]

#: Numbers of packed rows at work.
_NUMBERS = 1 << 18
#: Parameters, and the diagonal blocks (3, c) of the Hessian there.
At: TypeAlias = tuple[np.ndarray, np.ndarray]
_MAX_PRODUCTS, _MAX_SLOW, _TOLERANCE = 400, 12, 1e-13


@dataclass(eq=False, repr=False)
class TopVector(TopLogitsCalibrator):
    """What :class:`Vector` does where ``inputs="top_logits"``."""

    coef_: np.ndarray = field(init=False)
    intercept_: np.ndarray = field(init=False)
    gradient_norm_: float = field(init=False)

    _public_name = "Vector"

    def _fit_top(self, rows: Source, k: int) -> State:
        labels = rows.total(partial(_hits, k), numbers=_NUMBERS)
        present, shared = labels["hits"] > 0, bool(labels["misses"] > 0)
        own = int(present.sum())
        # Classes without labels among the top share the parameters of all others.
        group = np.where(present, np.cumsum(present) - 1, own)
        unit = float(np.clip(unit_of(rows.largest, 1e4), 2.0**-500, 2.0**500))
        inverse = fit_top_inverse(rows, k).x
        found = _fit_factors(rows, Layout(group, own + 1, shared, unit), inverse)
        intercept, more = found.x.reshape(2, -1)
        place = np.append(group, own)
        state = {
            "coef": ((1 + more) / unit)[place],
            "intercept": (intercept - intercept[: own + shared].mean())[place],
            "objective": np.asarray(found.value / rows.weight),
            "gradient_norm": np.asarray(np.abs(np.asarray(found.gradient)).max() / rows.weight),
            "n_iter": np.asarray(int(found.iterations)),
            "status": np.asarray(int(found.status)),
        }
        if shared:
            return state
        mass = rows.total(partial(_expected, inverse, k), numbers=_NUMBERS)["expected"]
        factor = np.where(np.append(present, False), 0.0, 1 / (1 + mass))
        return {**state, "missing_inverse": np.asarray(inverse), "missing_factor": factor}

    def _apply_top(self, state: State, rows: Any, k: int) -> Any:
        top, xp = unpack(rows, k), namespace(rows)
        (n, c), m = top.x.shape, top.indices.shape[1]
        others = xp.full_like(top.indices[:, : c - m], k)
        places = xp.reshape(xp.concat([top.indices, others], axis=1), (-1,))

        def each(name: str) -> Any:
            return xp.reshape(xp.take(state[name], places, axis=0), (n, c))

        logits = top.x * each("coef") + each("intercept") + offsets(top)
        if "missing_factor" not in state:
            return softmax(logits)
        factor = each("missing_factor")
        present = factor == 0
        known = softmax(xp.where(present, logits, xp.full_like(logits, -1e30)))
        lost = top_probabilities(top, state["missing_inverse"]) * factor
        left = xp.sum(lost, axis=1, keepdims=True)
        some = xp.any(present, axis=1, keepdims=True)
        # Rows all of whose classes lacked labels.
        lost = lost / xp.where(some, xp.ones_like(left), left)
        return xp.where(present, known * (1 - left), lost)


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


def _hits(k: int, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Sums:
    """Return the weight of labels that are in the top, by class (k,), and of the others."""
    hit = (unpack(scores, k).indices == y[:, None]).any(axis=1)
    return {"hits": np.bincount(y[hit], weights[hit], k), "misses": weights[~hit].sum()}


def _expected(
    inverse: float, k: int, scores: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> Sums:
    """Return how many labels temperature scaling expects, by class, and last outside the top."""
    top, m = unpack(scores, k), scores.shape[1] // 2
    mass = top_probabilities(top, inverse) * weights[:, None]
    by_class = np.bincount(top.indices.ravel(), mass[:, :m].ravel(), k)
    return {"expected": np.append(by_class, mass[:, m:].sum())}


def _fit_factors(rows: Source, layout: Layout, inverse: float) -> Minimum[np.ndarray]:
    """Fit intercepts and deviations of factors from one: theta (2 c,), from a temperature."""
    c = layout.size
    begin = np.concatenate([np.zeros(c), np.full(c, min(inverse * layout.unit, 10.0) - 1)])

    def evaluate(theta: np.ndarray) -> Point[np.ndarray, At]:
        found = rows.total(partial(_factor_sums, layout, theta), numbers=_NUMBERS)
        return Point(found["value"], found["gradient"], (theta, found["diagonal"]))

    def product(state: At, vector: np.ndarray) -> np.ndarray:
        product = partial(_factor_products, layout, state[0], vector)
        return rows.total(product, numbers=_NUMBERS)["image"]

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
        moved = rows.total(partial(_movement, layout, theta, step), greatest, _NUMBERS)["moved"]
        return bool(moved > 0.01)

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
