"""Draws from an approximate posterior of a stack, given a sample of the fitted rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import solve_triangular

from bayescal._core.arrays import AnyArray, Array, XArray, namespace
from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.numerics import softmax
from bayescal._core.shapes import Float, Int
from bayescal.calibrators.multiclass.basis import Dimensions
from bayescal.calibrators.multiclass.members import (
    Layout,
    Member,
    make_features,
    member_logits,
    penalties,
    smooth,
)
from bayescal.calibrators.stack.designs import Plan
from bayescal.calibrators.stack.fit import Stack, choose, mixture
from bayescal.data.order.classes import order_by_moments
from bayescal.data.rows import Rows
from bayescal.regression.softmax.objective import Design, full_hessian, logit_vjp, split

#: The number of draws, half of which mirror the others at the best parameters.
_DRAWS = 400
#: Half the difference of log scales from which derivatives are computed.
_DIFFERENCE = 1e-4


def draw_jointly(
    members: Sequence[Member], stack: Stack, share: np.ndarray, sample: Rows
) -> np.ndarray:
    """Draw (draws, p): the parameters of all members, their weights, a step of the scale, a member.

    Each draw is from one member, chosen by the weights of the stack. Its parameters and the
    logarithm of the scale are jointly normal around the fit, with the inverse Hessian of the
    member's objective as covariance. The information of the rows is computed once for all members,
    at the probabilities of the mixture: O(m k^4) for m rows.

    Parameters of kernel features are fixed. If they were drawn with their weak prior, 90 %
    intervals would cover 97 to 98 % where the true map has no curvature.
    """
    layout = Plan.make(members, stack.scale, stack.basis).plain
    chosen = choose(np.tile(share, (_DRAWS, 1)), 0)
    rng = np.random.default_rng(0)
    thetas = [np.tile(theta, (_DRAWS, 1)) for theta in stack.thetas]
    scale_steps = np.zeros(_DRAWS)
    with single_threaded_blas(), np.errstate(under="ignore"):
        x = smooth(sample.scores, *stack.scale)
        features, shared = make_features(x, layout, stack.basis)
        design = Design(x, sample.y, sample.weights, features, x, shared)
        probs = mixture(members, stack, share, sample.scores)
        information = full_hessian(design, probs, np)
        canonical = _canonical_parameters(layout, x, sample.weights)
        for i, member in enumerate(members):
            drawn = np.flatnonzero(chosen == i)
            if not len(drawn):
                continue
            slope = slope_by_log_scale(member, stack, stack.thetas[i], sample.scores)
            centered = slope - np.sum(probs * slope, axis=1, keepdims=True)
            pull = sample.weights[:, None] * probs * centered
            plain = member._replace(kernel=None)
            positions, penalty = layout.columns(plain), penalties(plain, layout.dimensions)
            index = canonical[positions]
            hessian = np.diag(np.append(penalty, 1.0))  # the prior of the scale is N(0, 1)
            hessian[:-1, :-1] += information[np.ix_(index, index)]
            hessian[-1, :-1] = hessian[:-1, -1] = logit_vjp(design, pull, np)[index]
            hessian[-1, -1] += np.sum(pull * slope)
            factor = np.linalg.cholesky(hessian)
            half = rng.standard_normal((len(hessian), -(-len(drawn) // 2)))
            step = solve_triangular(factor, half, lower=True, trans=1)
            steps = np.concatenate([step, -step], axis=1).T[: len(drawn)]
            columns = np.argsort(positions)[np.searchsorted(np.sort(positions), index)]
            if member.kernel is not None:
                columns = _plain_positions(member, stack.basis.dimensions)[columns]
            thetas[i][np.ix_(drawn, columns)] += steps[:, :-1]
            scale_steps[drawn] = steps[:, -1]
    return np.column_stack([*thetas, np.tile(share, (_DRAWS, 1)), scale_steps, chosen])


def _plain_positions(member: Member, dimensions: Dimensions) -> Int[np.ndarray, " parameters"]:
    """Find the positions (p,) of a member's parameters, except those of kernel features."""
    sizes = member.sizes(dimensions)
    parts = split(np.arange(member.length(dimensions)), sizes)
    matrix = parts.matrix[:, : sizes[1] - dimensions.kernel]
    return np.concatenate([matrix.ravel(), parts.diagonal, parts.shared])


def _canonical_parameters(
    layout: Layout, x: Float[np.ndarray, "rows classes"], weights: Float[np.ndarray, " rows"]
) -> Int[np.ndarray, " parameters"]:
    """Order the parameters for all features by a canonical order of the classes."""
    share, none = weights / weights.sum(), np.zeros(layout.k)
    order = order_by_moments(np.stack([share @ x, none, none, share @ x**2]))
    first = layout.first
    columns = [*order[:first], first, *(first + 1 + order if layout.logarithm else [])]
    parts = split(np.arange(layout.length), layout.sizes)
    matrix = parts.matrix[np.ix_(order, columns)]
    return np.concatenate([matrix.ravel(), parts.diagonal[order], parts.shared])


def slope_by_log_scale(member: Member, stack: Stack, theta: np.ndarray, scores: XArray) -> XArray:
    """Compute the derivative (n, k) of a member's logits by the logarithm of the scale."""
    ends = []
    for step in (_DIFFERENCE, -_DIFFERENCE):
        x = smooth(scores, stack.scale.inverse * np.exp(step), stack.scale.smoothing)
        ends.append(member_logits(member, theta, x, stack.basis))
    return (ends[0] - ends[1]) / (2 * _DIFFERENCE)


def apply_draws(
    members: Sequence[Member],
    stack: Stack,
    thetas: Sequence[XArray],
    scales: Array,
    counts: Sequence[int],
    scores: AnyArray,
    linear: bool,
) -> Array:
    """Compute probabilities (s, n, k) of draws, by their members and scales.

    Draws (s, p) of the parameters are sorted by member; ``counts`` are the numbers of draws of each
    member. Scales (s,) are inverse temperatures or, if logits are ``linear`` in them, steps of
    their logarithms: the factors of a member can compensate for a step, so both may be far from the
    fit, where exact logits are not linear.
    """
    x = smooth(scores, *stack.scale)
    probs, start = [], 0
    for member, fit, theta, count in zip(members, stack.thetas, thetas, counts, strict=True):
        part = slice(start, start + count)
        start += count
        if not count:
            continue
        scale = scales[part][:, None, None]
        at = x if linear else smooth(scores, scale, stack.scale.smoothing)
        logits = member_logits(member, theta[part, :], at, stack.basis)
        if linear:
            logits = logits + scale * slope_by_log_scale(member, stack, fit, scores)
        probs.append(softmax(logits))
    return namespace(scores).concat(probs, axis=0)
