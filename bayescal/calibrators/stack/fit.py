"""Several structured fits to the same rows, mixed: fits, weights of the mixture, their draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.arrays import namespace, on_host
from bayescal._core.blas import single_threaded_blas
from bayescal._core.numerics import differences, softmax
from bayescal._core.optimise import Status, newton_on_interval
from bayescal.calibrators.base.draws import row_blocks
from bayescal.calibrators.multiclass.members import (
    Layout,
    Member,
    main_directions,
    make_design,
    member_logits,
    penalties,
    smooth,
)
from bayescal.calibrators.multiclass.scale import ScaleLoss, sample_inverse
from bayescal.calibrators.stack import fold_fits_on_device as there
from bayescal.calibrators.stack.fold_fits import (
    SMALL,
    Folds,
    Scale,
    block_rows,
    fit_folds,
    logits,
    make_block,
    smooth_columns,
    threads,
    working_type,
)
from bayescal.calibrators.stack.folds import fold_rows
from bayescal.calibrators.stack.metric import measure
from bayescal.calibrators.stack.mixture import mix
from bayescal.data.folds.deal import FoldedRows
from bayescal.data.rows import Rows
from bayescal.regression.binary.posterior import Draws
from bayescal.regression.softmax.objective import split
from bayescal.regression.softmax.posterior import sample

#: Of log inverse temperatures, whose prior is standard normal.
_MOST = 4.0
#: Logits that are so much smaller than the greatest have no probability, at whatever scale.
FAR = 1e5
#: Of main directions of very many classes.
_RANK = 50
#: So many resamples of the rows say how uncertain the weights of a stack are.
_RESAMPLES = 200


class Stack(NamedTuple):
    """A scale, main directions (k, r), and the parameters of each member."""

    scale: Scale
    basis: np.ndarray
    thetas: list[np.ndarray]

    def layout(self, members: Sequence[Member]) -> Layout:
        """Return which features members take."""
        k, rank = self.basis.shape
        each = [[own is not None for own in (m.probability, m.logarithm)] for m in members]
        probability, logarithm = (any(own) for own in zip(*each, strict=True))
        return Layout(k, probability, logarithm, rank)


def fit_scale(scores: Any, y: np.ndarray, weights: np.ndarray, start: float = 1.0) -> Scale:
    """Return the best scale, if log inverse temperatures are N(0, 1), and what is smoothed by it.

    The proportion of the uniform distribution is 0.5 / (n + 1).
    """
    if max(scores.max(), -scores.min()) > FAR:
        scores = differences(scores, -FAR)
    loss = ScaleLoss(Rows(scores, y, weights))
    return best_scale(loss, loss.total, start)


def best_scale(
    loss: Callable[[float], tuple[float, float, float]], total: float, start: float
) -> Scale:
    """Return the same of a loss and its first two derivatives, and the sum of weights."""

    def objective(t: float) -> tuple[float, float, float]:
        """Return it as a function of log temperature, with its derivatives."""
        s = float(np.exp(-t))
        value, slope, curvature = loss(s)
        return value + t * t / 2, t - s * slope, s * (slope + s * curvature) + 1

    with np.errstate(under="ignore"):
        found = newton_on_interval(
            objective, -np.log(start), scale=total, lower=-_MOST, tolerance=1e-12
        )
    # A last step without looking where it leads: so it hardly matters where the first began.
    sure = found.status == Status.CONVERGED and found.curvature > 0
    last = found.x - (found.slope / found.curvature if sure else 0.0)
    return Scale(float(np.exp(-np.clip(last, -_MOST, _MOST))), 0.5 / (total + 1))


def find_basis(members: Sequence[Member], scores: Any, scale: Scale) -> np.ndarray:
    """Return main directions (k, r) of some of the rows, or none if no member takes them."""
    if not any(member.directions is not None for member in members):
        return np.empty((scores.shape[1], 0), np.float32)
    if not on_host(scores):
        return np.asarray(there.directions(scores, scale, rank=_RANK))
    return main_directions(smooth_columns(scores, scale, np.float32)[0].T, _RANK)


def fit_stack(
    members: Sequence[Member], scores: Any, y: np.ndarray, weights: np.ndarray, count: int
) -> tuple[Stack, FoldedRows, Any]:
    """Fit all members to the complements of so many folds; their means over folds are the stack.

    Returns also the rows with their folds and, if there is more than one fold, log probabilities
    (m, members) of their labels by fits to the other folds: where the scores are.
    """
    k, host = scores.shape[1], on_host(scores)
    with single_threaded_blas() if host else nullcontext():
        folds, some, counts = fold_rows(scores, y, weights, count)
        rows = Rows(*folds.take(scores, y))
        groups = [np.flatnonzero(folds.fold == fold) for fold in range(folds.count)]
        sample = Rows(scores[some], y[some], counts)
        start = fit_scale(*sample).inverse
        scale = fit_scale(*rows, start)
        scales = [scale] * len(groups)
        if scores.size < SMALL and len(groups) > 1:
            # A scale that knows a label says something of it: of few rows, what matters.
            left = [_leave_out(rows, folds.fold == own) for own in range(len(groups))]
            scales = [fit_scale(*own, start) for own in left]
        basis = find_basis(members, sample.scores, scale)
        stack = Stack(scale, basis, [])
        layout = stack.layout(members)
        dtype = working_type(scores.size)

        def sums(method: Any, part: slice) -> Any:
            own = sample.take(part)
            if not host:
                return [np.asarray(found) for found in there.curvature(method, own, scale, basis)]
            return method.sums(make_block(own, scale, layout, basis, dtype).design)

        with threads(scores.size) if host else nullcontext(map) as each:
            parts = block_rows(len(some), k) if host else [slice(None)]
            metric = measure(members, sums, parts, layout, each)
            if host:
                data: Any = Folds(rows, groups, scales, layout, basis, each)
            else:
                data = there.FoldsThere(rows, folds.fold, scales, layout, basis)
            thetas, held = fit_folds(members, data, layout, *metric, each)
    return stack._replace(thetas=thetas), folds, held


def _leave_out(rows: Rows, out: np.ndarray) -> Rows:
    """Return the other rows; elsewhere all, some without weight, as sizes are compiled."""
    if on_host(rows.scores):
        return rows.take(~out)
    return rows._replace(weights=np.where(out, 0, rows.weights))


def mixture(members: Sequence[Member], stack: Stack, share: Any, scores: Any) -> Any:
    """Return probabilities (n, k), of members mixed by their weights, for arrays of any library."""
    x = smooth(scores, *stack.scale)
    each = enumerate(zip(members, stack.thetas, strict=True))
    total: Any = sum(
        share[place] * softmax(member_logits(member, theta, x, stack.basis))
        for place, (member, theta) in each
    )
    return total / namespace(total).sum(total, axis=1, keepdims=True)


def mixture_on_host(
    members: Sequence[Member], stack: Stack, share: np.ndarray, scores: np.ndarray
) -> np.ndarray:
    """Return the same with NumPy, several times faster."""
    layout = stack.layout(members)
    probs = np.empty(scores.shape)

    def one(part: slice) -> None:
        own = scores[part]
        nobody = Rows(own, np.zeros(len(own), int), np.zeros(len(own)))
        block = make_block(nobody, stack.scale, layout, stack.basis, np.float64)
        total = np.zeros(own.shape[::-1])
        for member, theta, weight in zip(members, stack.thetas, share, strict=True):
            parameters = split(theta, member.sizes(layout.k, layout.rank))
            z = logits(block, parameters, layout.part(member))
            np.exp(z - z.max(axis=0), out=z)
            z *= weight / z.sum(axis=0)
            total += z
        probs[part] = (total / total.sum(axis=0)).T

    with single_threaded_blas(), threads(scores.size) as each:
        list(each(one, row_blocks(len(scores), layout.k)))
    return probs


def sample_stack(
    members: Sequence[Member],
    stack: Stack,
    held: tuple[np.ndarray, np.ndarray] | None,
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    inference: str,
    num_samples: int,
    seed: int,
) -> Draws:
    """Return draws (chains, draws, p): all members' parameters, the weights, the scale, a member.

    Those of a member are from its posterior at the best scale, its penalties being the prior. The
    weights are those of resampled rows: a Bayesian bootstrap, with at most 200 resamples. The scale
    has the posterior of temperature scaling: as members may also scale, that says rather too much.
    The last is the place of a member, drawn by the weights: members know the same rows, so that the
    mean of draws from each would vary too little. ``held`` are log probabilities (m, members) of
    held-out labels, and their weights (m,).
    """
    scores, y, weights = rows
    x = smooth(scores, *stack.scale)
    rank = stack.basis.shape[1]
    found = [
        sample(
            make_design(member, x, y, weights, stack.basis),
            penalties(member, x.shape[1], rank),
            theta,
            inference,
            num_samples,
            seed + place,
        )
        for place, (member, theta) in enumerate(zip(members, stack.thetas, strict=True))
    ]
    chains, draws = found[0].coefficients.shape[:2]
    share = np.ones((1, len(members)))
    if held is not None:
        rng = np.random.default_rng(seed)
        logs, mass = held
        resampled = rng.gamma(mass, size=(min(_RESAMPLES, chains * draws), len(mass)))
        best = mix(logs, mass)
        share = np.stack([mix(logs, own, best) for own in resampled])
    share = np.resize(share, (chains * draws, len(members))).reshape(chains, draws, -1)
    scale = sample_inverse(Rows(scores, y, weights), "laplace", chains * draws, seed).coefficients
    scale = np.random.default_rng(seed).permutation(scale.ravel()).reshape(chains, draws, 1)
    chosen = choose(share.reshape(-1, len(members)), seed).reshape(chains, draws, 1)
    number, one = (np.full(len(members) + 2, value) for value in (float(chains * draws), 1.0))
    return Draws(
        np.concatenate([*(own.coefficients for own in found), share, scale, chosen], axis=-1),
        np.concatenate([*(own.ess for own in found), number]),
        np.concatenate([*(own.r_hat for own in found), one]),
        sum(own.divergences for own in found),
        max(own.status for own in found),
    )


def choose(share: np.ndarray, seed: int) -> np.ndarray:
    """Return a member (s,) for each draw, by its weights (s, members): spread evenly."""
    order = np.random.default_rng(seed).permutation(len(share))
    level = (order[:, None] + 0.5) / len(share)
    return np.minimum((np.cumsum(share, axis=1) < level).sum(axis=1), share.shape[1] - 1)


def apply_draws(
    members: Sequence[Member], stack: Stack, counts: Sequence[int], inverse: Any, scores: Any
) -> Any:
    """Return probabilities (s, n, k): each draw's by its member, and its scale.

    The members' parameters in ``stack`` are draws (s, p), of which the first so many are of the
    first member, the next of the second, and so on.
    """
    probs, start = [], 0
    for member, theta, count in zip(members, stack.thetas, counts, strict=True):
        own = slice(start, start + count)
        if count:
            x = smooth(scores, inverse[own][:, None, None], stack.scale.smoothing)
            probs.append(softmax(member_logits(member, theta[own, :], x, stack.basis)))
        start += count
    return namespace(scores).concat(probs, axis=0)
