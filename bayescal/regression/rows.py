"""Regressions of the rows of a source: in memory, on an accelerator or in blocks.

For rows in blocks, each step of Newton's method is a pass that accumulates sums.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.execution.chunks import slices
from bayescal._core.minimization.newton_cg import Curvature, Point, newton_cg
from bayescal._core.minimization.optimize import Minimum, QuadraticModel, Status
from bayescal._core.shapes import Bool, Float, Shaped
from bayescal.data.rows import Designs, Rows, Source, Sums, add, greatest
from bayescal.regression.binary.fit import fit_single
from bayescal.regression.binary.host import (
    corrected_step,
    descend,
    design_of,
    fit_on_host,
    is_settled,
    span_of_gram,
)
from bayescal.regression.binary.objective import (
    NOISE,
    BinaryDesign,
    Regression,
    add_penalties,
    cross_entropy_on_host,
    movement,
    products,
    start,
    uncentered,
    units,
)
from bayescal.regression.softmax.fit import MAX_PRODUCTS, fit, is_long
from bayescal.regression.softmax.fit import fit_on_host as fit_softmax_on_host
from bayescal.regression.softmax.objective import Design, HostEvaluator
from bayescal.regression.softmax.precondition import WHOLE, choices

#: Arrays by their axes.
Theta: TypeAlias = 'Float[np.ndarray, " parameters"]'
Gamma: TypeAlias = 'Float[np.ndarray, " combinations"]'
PerFeature: TypeAlias = 'Float[np.ndarray, " features"]'
Beta: TypeAlias = 'Float[np.ndarray, " 1+features"]'

#: Numbers in a part of the rows.
_NUMBERS = 1 << 17
#: Inverse units between which columns need not be divided by them first.
_MILD = 1e-60, 1e60
#: Scores whose design is made at once, so that it fits in the processor's cache.
_DESIGN_NUMBERS = 1 << 14


def binary_fit(
    rows: Source,
    make: Callable[[Rows], BinaryDesign[Any]],
    sample: BinaryDesign[Any],
    penalty: Float[np.ndarray, " features"],
) -> Callable[[Shaped[np.ndarray, " 1+features"]], Minimum[np.ndarray]]:
    """Prepare a logistic regression on the designs that ``make`` returns for rows and for a sample.

    The returned function fits the intercept and the coefficients that a mask declares free.
    """
    sampled = sample.columns[1:].T, sample.targets, sample.weights
    designs = None if isinstance(rows, Rows) else rows.designs(make, _DESIGN_NUMBERS)

    def fit_free(free: Shaped[np.ndarray, " parameters"]) -> Minimum[np.ndarray]:
        problem = Regression(*sampled, 0.0, penalty, free)
        if designs is None:
            return fit_single(problem)
        with single_threaded_blas():
            return fit_binary(problem, rows.weight, designs)

    return fit_free


def softmax_fit(
    rows: Source,
    make: Callable[[Rows], Design[Any]],
    penalty: Float[np.ndarray, " parameters"],
    start: Float[np.ndarray, " parameters"],
) -> Minimum[np.ndarray]:
    """Fit a multinomial regression on the designs that ``make`` returns for rows."""
    if isinstance(rows, Rows):
        return fit(make(rows), penalty, start)
    designs = rows.designs(make, _DESIGN_NUMBERS)
    return fit_softmax(make(rows.sample), penalty, start, rows.weight, designs)


def fit_binary(
    problem: Regression[np.ndarray], total: float, designs: Designs
) -> Minimum[np.ndarray]:
    """Fit a regression to all rows; the rows of ``problem`` are a sample of them.

    Its penalties and free coefficients are those of all rows, whose total weight is ``total``.
    The ``designs`` of parts of the rows are :class:`BinaryDesign`.
    """
    design, _, mean = design_of(problem)
    # A column that is constant in the sample may vary in other rows.
    x = np.where(design.columns[1:].any(axis=1), problem.x - mean, 0.0)
    problem = problem._replace(x=x)
    size = np.maximum(x.max(axis=0), -x.min(axis=0))
    unit, inverse = units(np.where(size > 0, size, 1.0), np)
    # Start from the fit to the sample, with its fraction of the penalties.
    fraction = float(problem.weights.sum()) / total
    minimum = fit_on_host(problem._replace(l2=np.asarray(problem.l2) * fraction))
    begin = minimum.x if minimum.status == Status.CONVERGED else start(problem, np)
    begin = begin * unit
    first = designs.total(_binary_sums, mean, inverse, begin, True, merge=_join)
    largest = first["largest"]
    kept = largest > NOISE * np.finfo(float).eps * (np.append(0.0, abs(mean)) / unit + largest)
    if not kept.all():
        # Variation within rounding counts as constant, as in memory.
        inverse = inverse * kept[1:]
        pairs = np.outer(kept, kept)
        first |= {name: first[name] * pairs for name in ("hessian", "gram")}
        first["gradient"] = first["gradient"] * kept
    gram = first["gram"]
    span = None if is_settled(problem, len(gram)) else span_of_gram(gram, total)
    # Linearly dependent columns share their effect.
    turn = np.eye(len(gram)) if span is None else span
    bound = 0.25 * np.diagonal(turn.T @ gram @ turn)

    part = design_of(problem, center=False)[0]
    weights = part.weights * (total / part.weights.sum())
    part = part._replace(columns=turn.T @ part.columns, weights=weights)
    first_step = partial(corrected_step, part)

    def evaluate(gamma: Gamma) -> QuadraticModel[np.ndarray]:
        beta = turn @ gamma
        sums = first
        if not np.array_equal(beta, begin):
            sums = designs.total(_binary_sums, mean, inverse, beta, False)
        hessian = turn.T @ sums["hessian"] @ turn
        return QuadraticModel(sums["value"], turn.T @ sums["gradient"], hessian)

    def penalized(loss: QuadraticModel[np.ndarray], gamma: Gamma) -> QuadraticModel[np.ndarray]:
        # Without a penalty to decide between dependent columns there is none at all.
        return add_penalties(problem, unit, None, loss, gamma, np) if span is None else loss

    def moved(gamma: Gamma, step: Gamma) -> Float[np.ndarray, ""]:
        # Cheap upper bound; rows are read only if it is large.
        beta, step = turn @ gamma, turn @ step
        bound_on_move = np.abs(step) @ largest
        if bound_on_move < 0.01:
            return bound_on_move
        return designs.total(_largest_move, mean, inverse, beta, step, merge=greatest)["moved"]

    gamma = begin if span is None else np.linalg.lstsq(span, begin)[0]
    minimum = descend(evaluate, penalized, gamma, first_step, total, bound, moved)
    return minimum._replace(x=uncentered(turn @ minimum.x / unit, mean, np))


def _binary_sums(
    mean: PerFeature, inverse: PerFeature, beta: Beta, first: bool, design: BinaryDesign[np.ndarray]
) -> Sums:
    """Compute the loss and its derivatives; the first time also products of columns."""
    design, scale = _moved(design, mean), np.append(1.0, inverse)
    if not np.all(inverse == np.clip(inverse, *_MILD)):
        design, scale = _scaled(design, inverse), np.ones_like(scale)
    # Units are powers of two, so that sums can be divided instead of columns, unless squares of
    # these over- or underflow.
    value, gradient, hessian = cross_entropy_on_host(design, beta * scale)
    squares = np.outer(scale, scale)
    sums = {"value": value, "gradient": gradient * scale, "hessian": hessian * squares}
    if not first:
        return sums
    gram = products(*design[::2]) * squares
    return {**sums, "gram": gram, "largest": np.abs(design.columns).max(axis=1) * scale}


def _largest_move(
    mean: PerFeature, inverse: PerFeature, beta: Beta, step: Beta, design: BinaryDesign[np.ndarray]
) -> Sums:
    columns = _scaled(_moved(design, mean), inverse).columns
    return {"moved": movement(beta @ columns, step @ columns, design.weights, np)}


def _moved(design: BinaryDesign[np.ndarray], mean: PerFeature) -> BinaryDesign[np.ndarray]:
    if not mean.any():
        return design
    return design._replace(columns=design.columns - np.append(0.0, mean)[:, None])


def _scaled(design: BinaryDesign[np.ndarray], inverse: PerFeature) -> BinaryDesign[np.ndarray]:
    if (inverse == 1).all():
        return design
    return design._replace(columns=design.columns * np.append(1.0, inverse)[:, None])


def _join(first: Sums, second: Sums) -> Sums:
    sums = add(first, second)
    if "largest" in sums:
        sums["largest"] = np.maximum(first["largest"], second["largest"])
    return sums


def fit_softmax(
    sample: Design[np.ndarray], penalty: Theta, begin: Theta, total: float, designs: Designs
) -> Minimum[np.ndarray]:
    """Fit a softmax regression to all rows; the rows of ``sample`` are a sample of them.

    With few parameters the Hessian is added up in each pass. With more, every product with the
    Hessian is a pass; the Hessian is approximated from the sample, so that few passes are needed.
    """
    sizes, fraction = sample.sizes, float(sample.weights.sum()) / total
    approximate = fit_softmax_on_host(sample, penalty * fraction, begin)[0]
    # The labels of a sample may be separable although those of all rows are not. They are separable
    # if each is more probable than not.
    separable = approximate.value < np.log(2) * sample.weights.min() and not penalty.all()
    if not separable and approximate.status != Status.UNBOUNDED:
        begin = approximate.x
    heavy = sample._replace(weights=sample.weights / fraction)
    method = choices(sample, penalty)[-1]
    whole = method is WHOLE
    nothing = np.zeros_like(penalty)

    def evaluate(theta: Theta) -> Point[np.ndarray, np.ndarray]:
        sums = designs.total(_softmax_sums, theta, whole)
        value = sums["value"] + 0.5 * penalty @ theta**2
        state = sums["hessian"] if whole else theta
        return Point(value, sums["gradient"] + penalty * theta, state)

    def product(state: Float[np.ndarray, " ..."], vector: Theta) -> Theta:
        if whole:
            return state @ vector + penalty * vector
        image = designs.total(_softmax_products, state, vector)["image"]
        return image + penalty * vector

    def probs_of_sample(theta: np.ndarray) -> np.ndarray:
        with HostEvaluator(heavy, nothing) as host:
            return host.evaluate(theta).state

    def prepare(state: np.ndarray) -> object:
        data = state if whole else method.measure(heavy, probs_of_sample(state))
        return method.invert(data, penalty, sizes)

    def unbounded(theta: Theta, here: Point[np.ndarray, np.ndarray]) -> Bool[np.ndarray, ""]:
        # If rows of the sample would move, other rows would move as well.
        return is_long(heavy, theta, method.apply(prepare(here.state), -here.gradient, sizes))

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
            begin,
            scale=total,
            unbounded=None if penalty.all() else unbounded,
            xp=np,
        )[0]


def _softmax_sums(theta: Theta, whole: bool, design: Design[np.ndarray]) -> Sums:
    """Compute cross-entropy, gradient and, for few parameters, the Hessian, without penalties."""
    nothing = np.zeros_like(theta)
    value, gradient = np.zeros(()), nothing
    hessian = np.zeros((len(theta), len(theta)) if whole else 0)
    for part in _parts(design):
        with HostEvaluator(part, nothing) as host:
            point = host.evaluate(theta)
        value, gradient = value + point.value, gradient + point.gradient
        if whole:
            hessian += WHOLE.measure(part, point.state)
    return {"value": value, "gradient": gradient, "hessian": hessian}


def _softmax_products(theta: Theta, vector: Theta, design: Design[np.ndarray]) -> Sums:
    """Multiply the Hessian, without penalties, by a vector."""
    nothing = np.zeros_like(theta)
    image = nothing
    for part in _parts(design):
        with HostEvaluator(part, nothing) as host:
            image = image + host.multiply(host.evaluate(theta).state, vector)
    return {"image": image}


def _parts(design: Design[np.ndarray]) -> list[Design[np.ndarray]]:
    """Split the rows into parts that fit in the processor's cache, each for one thread."""
    n, k = design.offset.shape
    return [design.rows(part) for part in slices(n, max(1, _NUMBERS // k))]
