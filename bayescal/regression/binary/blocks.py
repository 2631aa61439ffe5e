"""Fits to rows that come in blocks: each step of Newton's method is a pass that adds sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.chunks import slices
from bayescal._core.directions import newton_step
from bayescal._core.newton_cg import Curvature, Point, newton_cg
from bayescal._core.optimise import Minimum, Quadratic, Status, newton
from bayescal.data.rows import Designs, Sums, add, greatest
from bayescal.regression.binary.host import (
    design_of,
    fit_on_host,
    is_settled,
    span_of_gram,
    units_of,
)
from bayescal.regression.binary.objective import (
    BinaryDesign,
    Regression,
    add_penalties,
    cross_entropy_on_host,
    movement,
    products,
    start,
)
from bayescal.regression.softmax.fit import MAX_PRODUCTS, is_unbounded
from bayescal.regression.softmax.fit import fit_on_host as fit_softmax_on_host
from bayescal.regression.softmax.objective import Design, Host
from bayescal.regression.softmax.precondition import WHOLE, choices

__all__ = ["fit_binary", "fit_softmax"]

#: Numbers of some rows at work.
_NUMBERS = 1 << 17
#: Units of columns that need not be divided by them first, in inverse.
_MILD = 1e-60, 1e60


class _Last(NamedTuple):
    at: np.ndarray
    sums: Sums


def fit_binary(
    problem: Regression[np.ndarray], total: float, designs: Designs
) -> Minimum[np.ndarray]:
    """Fit a regression of which the rows of ``problem`` are a sample.

    Its penalties, and what is free, are those of all rows, whose weights are ``total``, and whose
    ``designs`` are of :class:`BinaryDesign`.
    """
    unit, inverse = units_of(problem)
    begin = _start(problem, total) * unit
    last: list[_Last] = []

    def sums(beta: np.ndarray) -> Sums:
        if not last or not np.array_equal(last[-1].at, beta):
            found = designs.total(_binary_sums, inverse, beta, not last, merge=_join)
            last[:] = [_Last(beta, found)]
        return last[-1].sums

    first = sums(begin)
    gram, largest = first["gram"], first["largest"]
    span = None if is_settled(problem, len(gram)) else span_of_gram(gram, total)
    # Columns that depend on each other share their effect.
    turn = np.eye(len(gram)) if span is None else span
    bound = 0.25 * np.diagonal(turn.T @ gram @ turn)

    def reduced(loss: Quadratic[np.ndarray], beta: np.ndarray) -> Quadratic[np.ndarray]:
        value, slope, hessian = add_penalties(problem, unit, None, loss, beta, np)
        return Quadratic(value, turn.T @ slope, turn.T @ hessian @ turn)

    def objective(gamma: np.ndarray) -> Quadratic[np.ndarray]:
        return reduced(_loss(sums(turn @ gamma)), turn @ gamma)

    def direction(
        hessian: np.ndarray, gradient: np.ndarray, gamma: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        step, decrement = newton_step(hessian, gradient, gamma, xp=np)
        if last[-1].sums is not first:
            return step, decrement
        # The sample says how the curvature of all rows changes: its minimum, with what slope and
        # curvature lack here, is a step that saves a pass.
        near = _corrected(problem, total, last[-1].at, _loss(first))
        found = newton(
            lambda own: reduced(near(turn @ own), turn @ own),
            gamma,
            scale=total,
            bound=bound,
            xp=np,
        )
        return gamma - found.x if found.status == Status.CONVERGED else step, decrement

    def moved(gamma: np.ndarray, step: np.ndarray) -> np.ndarray:
        # Hardly ever is there need to look at the rows.
        beta, step = turn @ gamma, turn @ step
        most = np.abs(step) @ largest
        if most < 0.01:
            return most
        return designs.total(_largest_move, inverse, beta, step, merge=greatest)["moved"]

    found = newton(
        objective,
        begin if span is None else np.linalg.lstsq(span, begin)[0],
        scale=total,
        bound=bound,
        direction=direction,
        movement=moved,
        foresee=True,
        xp=np,
    )
    return found._replace(x=turn @ found.x / unit)


def _loss(sums: Sums) -> Quadratic[np.ndarray]:
    return Quadratic(sums["value"], sums["gradient"], sums["hessian"])


def _corrected(
    problem: Regression[np.ndarray],
    total: float,
    at: np.ndarray,
    whole: Quadratic[np.ndarray],
) -> Callable[[np.ndarray], Quadratic[np.ndarray]]:
    """Return the loss of the sample as a function that at a point has the derivatives of all."""
    design = design_of(problem)[0]
    design = design._replace(weights=design.weights * (total / design.weights.sum()))
    part = cross_entropy_on_host(design, at)
    slope, curvature = whole.gradient - part.gradient, whole.hessian - part.hessian

    def near(beta: np.ndarray) -> Quadratic[np.ndarray]:
        value, gradient, hessian = cross_entropy_on_host(design, beta)
        move = beta - at
        turn = curvature @ move
        value = value + move @ (slope + turn / 2)
        return Quadratic(value, gradient + slope + turn, hessian + curvature)

    return near


def _start(problem: Regression[np.ndarray], total: float) -> np.ndarray:
    """Return the coefficients of the sample, with its share of the penalties."""
    share = float(problem.weights.sum()) / total
    part = problem._replace(l2=np.asarray(problem.l2) * share)
    found = fit_on_host(part)
    return found.x if found.status == Status.CONVERGED else start(problem, np)


def _binary_sums(inverse: np.ndarray, beta: np.ndarray, first: bool, design: BinaryDesign) -> Sums:
    """Return the loss with its derivatives, and at first products of columns (1 + d, n)."""
    scale = np.append(1.0, inverse)
    if not np.all(inverse == np.clip(inverse, *_MILD)):
        design, scale = _scaled(design, inverse), np.ones_like(scale)
    # Powers of two: it is the same to divide sums as columns, where no square of these is wild.
    value, gradient, hessian = cross_entropy_on_host(design, beta * scale)
    squares = np.outer(scale, scale)
    found = {"value": value, "gradient": gradient * scale, "hessian": hessian * squares}
    if not first:
        return found
    gram = products(*design[::2]) * squares
    return {**found, "gram": gram, "largest": np.abs(design.columns).max(axis=1) * scale}


def _largest_move(
    inverse: np.ndarray, beta: np.ndarray, step: np.ndarray, design: BinaryDesign
) -> Sums:
    columns = _scaled(design, inverse).columns
    return {"moved": movement(beta @ columns, step @ columns, design.weights, np)}


def _scaled(design: BinaryDesign, inverse: np.ndarray) -> BinaryDesign:
    if (inverse == 1).all():
        return design
    return design._replace(columns=design.columns * np.append(1.0, inverse)[:, None])


def _join(first: Sums, second: Sums) -> Sums:
    sums = add(first, second)
    if "largest" in sums:
        sums["largest"] = np.maximum(first["largest"], second["largest"])
    return sums


def fit_softmax(
    sample: Design[np.ndarray],
    penalty: np.ndarray,
    begin: np.ndarray,
    total: float,
    designs: Designs,
) -> Minimum[np.ndarray]:
    """Fit a regression of two and more classes of whose rows there is a sample.

    Few parameters have their Hessian added up in each pass. Of more, each product with it is a
    pass, and it is approximated from the sample, so that few are needed.
    """
    sizes, share = sample.sizes, float(sample.weights.sum()) / total
    near = fit_softmax_on_host(sample, penalty * share, begin)[0]
    heavy = sample._replace(weights=sample.weights / share)
    method = choices(sample, penalty)[-1]
    whole = method is WHOLE
    nothing = np.zeros_like(penalty)

    def evaluate(theta: np.ndarray) -> Point[np.ndarray, Any]:
        found = designs.total(_softmax_sums, theta, whole)
        value = found["value"] + 0.5 * penalty @ theta**2
        state = found["hessian"] if whole else theta
        return Point(value, found["gradient"] + penalty * theta, state)

    def product(state: np.ndarray, vector: np.ndarray) -> np.ndarray:
        if whole:
            return state @ vector + penalty * vector
        image = designs.total(_softmax_products, state, vector)["image"]
        return image + penalty * vector

    def prepare(state: np.ndarray) -> Any:
        if whole:
            return method.invert(state, penalty, sizes)
        with Host(heavy, nothing) as host:
            data = method.measure(heavy, host.evaluate(state).state)
        return method.invert(data, penalty, sizes)

    def unbounded(theta: np.ndarray, here: Point[np.ndarray, Any]) -> Any:
        # Of the sample: that some of its rows would move is as true of the others.
        with Host(heavy, nothing) as host:
            probs = host.evaluate(theta).state
        return is_unbounded(heavy, penalty, theta, here._replace(state=probs))

    with np.errstate(all="ignore"):
        return newton_cg(
            evaluate,
            Curvature(
                product,
                prepare,
                lambda ready, vector: method.apply(ready, vector, sizes),
                0 if whole else method.patience,
                MAX_PRODUCTS,
            ),
            near.x,
            scale=total,
            unbounded=None if penalty.all() else unbounded,
            xp=np,
        )[0]


def _softmax_sums(theta: np.ndarray, whole: bool, design: Design[np.ndarray]) -> Sums:
    """Return cross-entropy, gradient and, of few parameters, the Hessian, without penalties."""
    nothing = np.zeros_like(theta)
    value, gradient = np.zeros(()), nothing
    hessian = np.zeros((len(theta), len(theta)) if whole else 0)
    for part in _parts(design):
        with Host(part, nothing) as host:
            point = host.evaluate(theta)
        value, gradient = value + point.value, gradient + point.gradient
        if whole:
            hessian += WHOLE.measure(part, point.state)
    return {"value": value, "gradient": gradient, "hessian": hessian}


def _softmax_products(theta: np.ndarray, vector: np.ndarray, design: Design[np.ndarray]) -> Sums:
    """Return the Hessian, without penalties, times a vector."""
    nothing = np.zeros_like(theta)
    image = nothing
    for part in _parts(design):
        with Host(part, nothing) as host:
            image = image + host.multiply(host.evaluate(theta).state, vector)
    return {"image": image}


def _parts(design: Design[np.ndarray]) -> list[Design[np.ndarray]]:
    """Return some rows at a time, which one thread works on in the processor's cache."""
    n, k = design.offset.shape
    return [design.rows(part) for part in slices(n, max(1, _NUMBERS // k))]
