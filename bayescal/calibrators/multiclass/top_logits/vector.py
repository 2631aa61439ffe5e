"""Vector scaling of truncated logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import AnyArray, Array, XArray, namespace
from bayescal._core.minimization.newton_cg import Curvature, Point, newton_cg
from bayescal._core.minimization.optimize import Minimum
from bayescal._core.numerics import softmax, unit_of
from bayescal._core.shapes import Float
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.multiclass.top_logits.calibrator import TopLogitsCalibrator
from bayescal.calibrators.multiclass.top_logits.temperature import fit_top_inverse
from bayescal.data.language_models.top_logits import (
    Top,
    label_columns,
    offsets,
    top_probabilities,
    unpack,
)
from bayescal.data.rows import Rows, Source, Sums, greatest

#: Arrays by their axes.
Theta: TypeAlias = 'Float[np.ndarray, " parameters"]'

#: Numbers in the packed rows that are processed at once.
_NUMBERS = 1 << 18
#: Parameters, and the diagonal blocks (3, c) of the Hessian at them.
_HessianState: TypeAlias = tuple[np.ndarray, np.ndarray]
_MAX_PRODUCTS, _MAX_SLOW, _TOLERANCE = 400, 12, 1e-13


@dataclass(eq=False, repr=False)
class TopVector(TopLogitsCalibrator):
    """The implementation of :class:`Vector` for ``inputs="top_logits"``."""

    coef_: np.ndarray = field(init=False)
    intercept_: np.ndarray = field(init=False)
    gradient_norm_: float = field(init=False)

    _public_name = "Vector"

    def _fit_top(self, rows: Source, k: int) -> State:
        labels = rows.total(partial(_hits, k), numbers=_NUMBERS)
        present, shared = labels["hits"] > 0, bool(labels["misses"] > 0)
        count = int(present.sum())
        # Classes that are never a label among the top share one pair of parameters.
        group = np.where(present, np.cumsum(present) - 1, count)
        unit = float(np.clip(unit_of(rows.largest, 1e4), 2.0**-500, 2.0**500))
        inverse = fit_top_inverse(rows, k).x
        minimum = _fit_factors(rows, ClassGroups(group, count + 1, shared, unit), inverse)
        intercept, deviation = minimum.x.reshape(2, -1)
        group_of_column = np.append(group, count)
        state = {
            "coef": ((1 + deviation) / unit)[group_of_column],
            "intercept": (intercept - intercept[: count + shared].mean())[group_of_column],
            "objective": np.asarray(minimum.value / rows.weight),
            "gradient_norm": np.asarray(np.abs(np.asarray(minimum.gradient)).max() / rows.weight),
            "n_iter": np.asarray(int(minimum.iterations)),
            "status": np.asarray(int(minimum.status)),
        }
        if shared:
            return state
        mass = rows.total(partial(_expected, inverse, k), numbers=_NUMBERS)["expected"]
        factor = np.where(np.append(present, False), 0.0, 1 / (1 + mass))
        return {**state, "missing_inverse": np.asarray(inverse), "missing_factor": factor}

    def _apply_top(self, state: State, rows: AnyArray, k: int) -> XArray:
        top, xp = unpack(rows, k), namespace(rows)
        (n, c), m = top.x.shape, top.indices.shape[1]
        others = xp.full_like(top.indices[:, : c - m], k)
        flat = xp.reshape(xp.concat([top.indices, others], axis=1), (-1,))

        def entries(name: str) -> Array:
            return xp.reshape(xp.take(state[name], flat, axis=0), (n, c))

        logits = top.x * entries("coef") + entries("intercept") + offsets(top)
        if "missing_factor" not in state:
            return softmax(logits)
        factor = entries("missing_factor")
        present = factor == 0
        known = softmax(xp.where(present, logits, xp.full_like(logits, -1e30)))
        missing = top_probabilities(top, state["missing_inverse"]) * factor
        missing_total = xp.sum(missing, axis=1, keepdims=True)
        any_present = xp.any(present, axis=1, keepdims=True)
        # Normalize rows in which all classes lack labels.
        missing = missing / xp.where(any_present, xp.ones_like(missing_total), missing_total)
        return xp.where(present, known * (1 - missing_total), missing)


class ClassGroups(NamedTuple):
    """Groups of classes that share parameters; the last group is that of all other classes."""

    #: Group of each class (k,), and number of groups.
    group: np.ndarray
    size: int
    #: Whether classes of the last group have labels; otherwise it is omitted from the fit.
    shared: bool
    unit: float

    def columns(self, scores: np.ndarray) -> tuple[Top, np.ndarray, np.ndarray]:
        """Return unpacked rows, and the groups and offsets (n, c) of their columns."""
        top = unpack(scores, len(self.group), self.unit)
        n, c = top.x.shape
        group = np.full((n, c), self.size - 1)
        group[:, : top.indices.shape[1]] = self.group[top.indices]
        offset = np.broadcast_to(offsets(top), (n, c))
        if not self.shared:
            offset = np.where(group < self.size - 1, offset, -np.inf)
        return top, group, offset


def _hits(k: int, rows: Rows) -> Sums:
    """Sum the weights of labels among the top, by class (k,), and of other labels."""
    scores, y, weights = rows
    hit = (unpack(scores, k).indices == y[:, None]).any(axis=1)
    return {"hits": np.bincount(y[hit], weights[hit], k), "misses": weights[~hit].sum()}


def _expected(inverse: float, k: int, rows: Rows) -> Sums:
    """Sum the labels that temperature scaling expects, by class, and outside the top."""
    top, m = unpack(rows.scores, k), rows.scores.shape[1] // 2
    mass = top_probabilities(top, inverse) * rows.weights[:, None]
    by_class = np.bincount(top.indices.ravel(), mass[:, :m].ravel(), k)
    return {"expected": np.append(by_class, mass[:, m:].sum())}


def _fit_factors(rows: Source, groups: ClassGroups, inverse: float) -> Minimum[np.ndarray]:
    """Fit intercepts and deviations of factors from one: theta (2 c,), from a temperature."""
    c = groups.size
    begin = np.concatenate([np.zeros(c), np.full(c, min(inverse * groups.unit, 10.0) - 1)])

    def evaluate(theta: np.ndarray) -> Point[np.ndarray, _HessianState]:
        sums = rows.total(partial(_factor_sums, groups, theta), numbers=_NUMBERS)
        return Point(sums["value"], sums["gradient"], (theta, sums["diagonal"]))

    def product(state: _HessianState, vector: Theta) -> Theta:
        product = partial(_factor_products, groups, state[0], vector)
        return rows.total(product, numbers=_NUMBERS)["image"]

    def prepare(state: _HessianState) -> Float[np.ndarray, "groups 2 2"]:
        """Invert the blocks (c, 2, 2) of the Hessian for intercepts and factors."""
        m0, m1, m2 = state[1]
        ridge = 1e-12 * (1 + max(m0.max(), m2.max()))
        blocks = np.stack([np.stack([m0 + ridge, m1], 1), np.stack([m1, m2 + ridge], 1)], 1)
        return np.linalg.inv(blocks)

    def precondition(inverses: np.ndarray, vector: np.ndarray) -> np.ndarray:
        return np.einsum("cij,jc->ic", inverses, vector.reshape(2, c)).ravel()

    def unbounded(theta: np.ndarray, point: Point[np.ndarray, _HessianState]) -> bool:
        step = precondition(prepare(point.state), -point.gradient)
        moved = rows.total(partial(_movement, groups, theta, step), greatest, _NUMBERS)["moved"]
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


def _affine(x: np.ndarray, group: np.ndarray, theta: np.ndarray) -> np.ndarray:
    b, a = theta.reshape(2, -1)
    return a[group] * x + b[group]


def _sum_by_group(group: np.ndarray, c: int, *parts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.bincount(group.ravel(), part.ravel(), c) for part in parts])


def _factor_sums(groups: ClassGroups, theta: Theta, rows: Rows) -> Sums:
    """Compute the loss, its gradient, and diagonal blocks of a bound of its Hessian."""
    scores, y, weights = rows
    top, group, offset = groups.columns(scores)
    calibrated = top.x + _affine(top.x, group, theta)
    logits = calibrated + offset
    largest = logits.max(axis=1, keepdims=True)
    probs = np.exp(logits - largest)
    total = probs.sum(axis=1, keepdims=True)
    probs /= total
    label = np.arange(len(y)), label_columns(top, y)
    value = weights @ (np.log(total[:, 0]) + largest[:, 0] - calibrated[label])
    residual = probs * weights[:, None]
    spread = residual * (1 - probs)
    residual[label] -= weights
    c, weighted = groups.size, spread * top.x
    return {
        "value": np.asarray(value),
        "gradient": _sum_by_group(group, c, residual, residual * top.x),
        "diagonal": _sum_by_group(group, c, spread, weighted, weighted * top.x).reshape(3, c),
    }


def _factor_products(groups: ClassGroups, theta: Theta, vector: Theta, rows: Rows) -> Sums:
    """Multiply the Hessian by a vector."""
    top, group, offset = groups.columns(rows.scores)
    probs = softmax(top.x + _affine(top.x, group, theta) + offset)
    moved = _affine(top.x, group, vector)
    residual = probs * (moved - np.einsum("ij,ij->i", probs, moved)[:, None])
    residual *= rows.weights[:, None]
    return {"image": _sum_by_group(group, groups.size, residual, residual * top.x)}


def _movement(groups: ClassGroups, theta: Theta, step: Theta, rows: Rows) -> Sums:
    """Compute the largest change of logits by a step, relative to their size."""
    top, group, offset = groups.columns(rows.scores)
    used = np.isfinite(offset)
    logits = top.x + _affine(top.x, group, theta)
    moved = _affine(top.x, group, step)
    logits = logits - logits.max(axis=1, keepdims=True, where=used, initial=-np.inf)
    moved = moved - moved.mean(axis=1, keepdims=True, where=used)
    return {"moved": np.max(np.abs(moved) / (1 + np.abs(logits)), where=used, initial=0.0)}
