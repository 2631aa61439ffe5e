"""Several structured fits to the same rows, mixed: fits, weights of the mixture, their draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.arrays import namespace
from bayescal._core.blas import single_threaded_blas
from bayescal._core.numerics import differences, softmax
from bayescal._core.optimise import Search, Status, newton_on_interval, run_together
from bayescal.calibrators._fold_fits import (
    SMALL,
    Scale,
    block_rows,
    fit_folds,
    logits,
    make_block,
    smooth_columns,
    threads,
)
from bayescal.calibrators._member import (
    Layout,
    Member,
    Rows,
    main_directions,
    make_design,
    member_logits,
    penalties,
    smooth,
)
from bayescal.calibrators._metric import measure
from bayescal.calibrators._posterior import row_blocks
from bayescal.calibrators._stack_rows import choose_rows
from bayescal.calibrators.temperature import ScaleLoss, sample_inverse
from bayescal.regression.posterior import Draws
from bayescal.regression.softmax_objective import Design, split
from bayescal.regression.softmax_posterior import sample

#: Prior weight of each member of the stack, in rows: that of Dirichlet(2).
_PRIOR = 1.0
#: Of log inverse temperatures, whose prior is standard normal.
_MOST = 4.0
#: Logits that are so much smaller than the greatest have no probability, at whatever scale.
FAR = 1e5
#: Of main directions of very many classes.
_RANK = 50
#: So many resamples of the rows say how uncertain the weights of a stack are.
_RESAMPLES = 200
_MIX_STEPS = 50


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


def fit_scale(scores: np.ndarray, y: np.ndarray, weights: np.ndarray, start: float = 1.0) -> Scale:
    """Return the best scale, if log inverse temperatures are N(0, 1), and what is smoothed by it.

    The proportion of the uniform distribution is 0.5 / (n + 1).
    """
    if max(scores.max(), -scores.min()) > FAR:
        scores = differences(scores, -FAR)
    loss = ScaleLoss(scores, y, weights)
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


def find_basis(members: Sequence[Member], scores: np.ndarray, scale: Scale) -> np.ndarray:
    """Return main directions (k, r) of some of the rows, or none if no member takes them."""
    if not any(member.directions is not None for member in members):
        return np.empty((scores.shape[1], 0), np.float32)
    return main_directions(smooth_columns(scores, scale, np.float32)[0].T, _RANK)


def fit_stack(
    members: Sequence[Member], scores: np.ndarray, y: np.ndarray, weights: np.ndarray, count: int
) -> tuple[Stack, np.ndarray, np.ndarray | None]:
    """Fit all members to the complements of so many folds; their means over folds are the stack.

    Returns also the folds (n,) and, if there are more than one, log probabilities (n, members) of
    labels by fits to the other folds.
    """
    rows = Rows(scores, y, weights)
    k = scores.shape[1]
    with single_threaded_blas():
        folds, some, counts = choose_rows(scores, y, weights, count)
        groups = [np.flatnonzero(folds == fold) for fold in range(folds.max() + 1)]
        start = fit_scale(scores[some], y[some], counts).inverse
        scale = fit_scale(*rows, start)
        scales = [scale] * len(groups)
        if scores.size < SMALL and len(groups) > 1:
            # A scale that knows a label says something of it: of few rows, what matters.
            scales = [fit_scale(*rows.take(folds != own), start) for own in range(len(groups))]
        basis = find_basis(members, scores[some], scale)
        stack = Stack(scale, basis, [])
        layout = stack.layout(members)
        dtype = np.float64 if scores.size < SMALL else np.float32

        def design(part: slice) -> Design:
            own = Rows(scores[some[part]], y[some[part]], counts[part])
            return make_block(own, scale, layout, basis, dtype).design

        with threads(scores.size) as each:
            metric = measure(members, design, block_rows(len(some), k), layout, each)
        thetas, held = fit_folds(members, rows, groups, scales, layout, basis, *metric)
    return stack._replace(thetas=thetas), folds, held if len(groups) > 1 else None


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


def log_mean(logs: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return log(exp(logs) @ share) (n,) of logs (n, q)."""
    top = logs.max(axis=1)
    return top + np.log(np.exp(logs - top[:, None]) @ share)


def mix(held: np.ndarray, weights: np.ndarray, start: Any = None) -> np.ndarray:
    """Return weights (q,) of a mixture of the log probabilities (n, q) of what was seen.

    They maximize the likelihood of rows of weight (n,) with the prior Dirichlet(2).
    """
    parts = np.exp(held - held.max(axis=1, keepdims=True))
    count = parts.shape[1]
    search = climb(np.full(count, 1 / count) if start is None else start, float(weights.sum()))
    return run_together({0: search}, lambda at: {0: mix_terms(weights, parts, at[0])})[0]


def climb(share: np.ndarray, weight: float, small: float = 1e-16) -> Search:
    """Return the same for rows of so much weight, by Newton's steps from other weights.

    It yields weights, and is to be sent what :func:`mix_terms` returns. As the objective is the
    same for all multiples of the weights but for their sum, that is a term of its own, and not a
    bound. The last step was to gain less than ``small``.
    """
    total = weight + _PRIOR * len(share)
    here, value, step, length = share, np.inf, np.zeros_like(share), 1.0
    for _ in range(_MIX_STEPS):
        likelihood, pull, gram = yield share
        there = total * share.sum() - likelihood - _PRIOR * np.log(share).sum()
        if there > value + 1e-12 * abs(value):
            length /= 4
            share = here + length * step
            continue
        here, value = share, there
        slope = total - pull - _PRIOR / share
        # Members that agree, and no prior beside huge weights: a step where none is defined.
        hessian = gram + np.diag(_PRIOR / share**2 + 1e-14 * total)
        step = -np.linalg.solve(hessian, slope)
        # No weight becomes negative.
        length = min(1.0, 0.9 / max(float((-step / share).max()), 1e-300))
        share = here + length * step
        if length == 1 and -slope @ step < small:
            break
    return share / share.sum()


def mix_terms(
    weights: np.ndarray, parts: np.ndarray, share: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the log likelihood of a mixture, its gradient (q,), and minus its Hessian (q, q)."""
    mixed = parts @ share
    ratio = parts / mixed[:, None]
    weighted = ratio * weights[:, None]
    return float(weights @ np.log(mixed)), weighted.sum(axis=0), weighted.T @ ratio


def cross_fitted_losses(
    held: np.ndarray, folds: np.ndarray, weights: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Return the log loss (n,) of each row by a mixture whose weights do not know its fold."""
    losses = np.empty(len(held))
    for fold in range(folds.max() + 1):
        out = folds == fold
        losses[out] = -log_mean(held[out], mix(held[~out], weights[~out], start))
    return losses


def sample_stack(
    members: Sequence[Member],
    stack: Stack,
    held: np.ndarray | None,
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
    mean of draws from each would vary too little.
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
        resampled = rng.gamma(weights, size=(min(_RESAMPLES, chains * draws), len(y)))
        best = mix(held, weights)
        share = np.stack([mix(held, own, best) for own in resampled])
    share = np.resize(share, (chains * draws, len(members))).reshape(chains, draws, -1)
    scale = sample_inverse(scores, y, weights, "laplace", chains * draws, seed).coefficients
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
