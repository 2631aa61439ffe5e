"""Fits of the members of a stack, weights of their mixture, and posterior draws of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, XArray, namespace, on_host
from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.execution.threads import MapFunction, in_turn, threads
from bayescal._core.minimization.optimize import Status, newton_on_interval
from bayescal._core.numerics import differences, softmax
from bayescal._core.shapes import Float, Int
from bayescal.calibrators.base.draws import row_blocks
from bayescal.calibrators.multiclass.basis import (
    Basis,
    kernel_basis,
    main_directions,
    no_directions,
)
from bayescal.calibrators.multiclass.members import (
    Member,
    make_design,
    member_logits,
    penalties,
    smooth,
)
from bayescal.calibrators.multiclass.scale import ScaleLoss, sample_inverse
from bayescal.calibrators.stack.designs import (
    ALL,
    InMemory,
    Job,
    Plan,
    StackDesigns,
    make_blocks,
)
from bayescal.calibrators.stack.folds import fold_rows
from bayescal.calibrators.stack.kernels import (
    SMALL,
    FeatureBlock,
    Losses,
    Scale,
    design_and_probabilities,
    logits,
    make_block,
    smooth_columns,
    working_type,
)
from bayescal.calibrators.stack.metric import (
    Approximation,
    Metric,
    Parts,
    approximation,
    plain_approximation,
)
from bayescal.calibrators.stack.mixture import mix
from bayescal.calibrators.stack.on_device import OnDevice
from bayescal.calibrators.stack.search import Descent, InverseHessian, Objective, descend
from bayescal.data.folds.deal import FoldedRows
from bayescal.data.rows import Rows
from bayescal.regression.binary.posterior import Draws
from bayescal.regression.softmax.objective import Parameters, split
from bayescal.regression.softmax.posterior import sample

#: A fit ends if the next step would gain at most this proportion of the objective; the smaller
#: value is for fewer than ``SMALL`` scores, which take little time.
TOLERANCE, FEW_TOLERANCE = 1e-5, 1e-6
#: A fit without a fold also ends if the next step would gain at most this proportion of the first.
#: The smaller value is for fits with a kernel, whose start may have memorized rows of the fold.
FOLD_SHARE, KERNEL_FOLD_SHARE = 1e-2, 1e-3
#: Number of classes from which a stack has tens of thousands of parameters, and its tolerance: a
#: fit to the optimum takes several times as long and is no better on new rows.
MANY, ROUGH = 30, 1e-2
#: Range of log inverse temperatures, whose prior is standard normal.
_MOST = 4.0
#: Difference to the largest logit from which a class has probability zero at any scale.
FAR = 1e5
#: Number of main directions for very many classes.
_RANK = 50
#: Largest number of centers of a kernel, and of centers times classes; length of the kernel.
_CENTERS, _CENTERS_OF_CLASSES, _RELATIVE_LENGTH = 100, 1500, 0.5
#: Number of resamples of the rows that represent the uncertainty of the weights.
_RESAMPLES = 200


class Stack(NamedTuple):
    """A scale, the features of members, and the parameters of each member."""

    scale: Scale
    basis: Basis
    thetas: list[np.ndarray]


class FittedStack(NamedTuple):
    """A stack fitted to rows in memory, and statistics of these rows."""

    stack: Stack
    folds: FoldedRows
    #: Held-out log probabilities (m, members) of labels, if there are several folds.
    held: AnyArray
    #: At most 1,250 rows that represent all rows.
    sample: Rows


def fit_scale(scores: AnyArray, y: np.ndarray, weights: np.ndarray, start: float = 1.0) -> Scale:
    """Fit the scale to a sample of rows, with the prior N(0, 1) of the log inverse temperature.

    The proportion of the uniform distribution is 0.5 / (n + 1).
    """
    if max(scores.max(), -scores.min()) > FAR:
        scores = differences(scores, -FAR)
    loss = ScaleLoss(Rows(scores, y, weights))
    return best_scale(loss, loss.total, start)


def best_scale(
    loss: Callable[[float], tuple[float, float, float]], total: float, start: float
) -> Scale:
    """Find the scale from a loss with its first two derivatives, and the sum of weights."""

    def objective(t: float) -> tuple[float, float, float]:
        """Compute the objective and its derivatives by log temperature."""
        s = float(np.exp(-t))
        value, slope, curvature = loss(s)
        return value + t * t / 2, t - s * slope, s * (slope + s * curvature) + 1

    with np.errstate(under="ignore"):
        minimum = newton_on_interval(
            objective, -np.log(start), scale=total, lower=-_MOST, tolerance=1e-12
        )
    # A last step without a line search, so that the result depends little on the start.
    converged = minimum.status == Status.CONVERGED and minimum.curvature > 0
    last = minimum.x - (minimum.slope / minimum.curvature if converged else 0.0)
    return Scale(float(np.exp(-np.clip(last, -_MOST, _MOST))), 0.5 / (total + 1))


def find_basis(members: Sequence[Member], rows: Rows, scale: Scale) -> Basis:
    """Find main directions and kernel features of a sample of rows, if members use them."""
    k = rows.scores.shape[1]
    if any(member.kernel is not None for member in members):
        x = smooth_columns(rows.scores, scale, np.float64)[0].T
        count = min(_CENTERS, _CENTERS_OF_CLASSES // k)
        return kernel_basis(x, rows.weights, count, _RELATIVE_LENGTH)
    if any(member.directions is not None for member in members):
        x = smooth_columns(rows.scores, scale, np.float32)[0].T
        return Basis.of_directions(main_directions(x, _RANK))
    return Basis.of_directions(no_directions(k))


def fit_stack(
    members: Sequence[Member], scores: XArray, y: np.ndarray, weights: np.ndarray, count: int
) -> FittedStack:
    """Fit all members to all rows, and to the rows outside each of ``count`` folds."""
    host = on_host(scores)
    with single_threaded_blas() if host else nullcontext():
        folds, chosen, counts = fold_rows(scores, y, weights, count)
        rows = Rows(*folds.take(scores, y))
        sample = Rows(np.asarray(scores[chosen]), y[chosen], counts)
        start = fit_scale(*sample).inverse
        scale = fit_scale(*rows, start)
        scales = [scale] * folds.count
        if rows.scores.size < SMALL and folds.count > 1:
            # A scale fitted to few rows would reveal the labels of a fold.
            left = [_leave_out(rows, folds.fold == fold) for fold in range(folds.count)]
            scales = [fit_scale(*part, start) for part in left]
        plan = Plan.make(members, scale, find_basis(members, sample, scale))
        with threads(scores.size >= SMALL) if host else nullcontext(in_turn) as map_fn:
            given = rows, folds.fold, scales, plan
            designs = InMemory(*given, map_fn) if host else OnDevice(*given)
            dtype = working_type(scores.size) if host else np.float64
            thetas, without = fit_members(
                designs, plan, sample, count_units(weights), dtype, map_fn
            )
            held = designs.held_out(without) if folds.count > 1 else None
    return FittedStack(Stack(scale, plan.basis, thetas), folds, held, sample)


def count_units(weights: np.ndarray) -> float:
    """Count rows; integer weights are counts."""
    whole = bool((weights == np.floor(weights)).all())
    return float(weights.sum()) if whole else float(len(weights))


def fit_members(
    designs: StackDesigns,
    plan: Plan,
    sample: Rows,
    units: float,
    dtype: type[np.floating],
    map_fn: MapFunction,
) -> tuple[list[np.ndarray], dict[Job, np.ndarray]]:
    """Fit all members to all rows and, starting from these fits, to the rows outside each fold.

    For many classes they are fitted only without each fold, from zero, because results short of the
    optimum depend on the start; members are means over folds. The curvature is computed from the
    sample. Returns the parameters of members and of jobs without a fold.
    """
    blocks = make_blocks(sample, plan.scale, plan, dtype)
    fits = Fits(designs, plan, blocks, first_metrics(plan, blocks, map_fn))
    count, members = designs.count, range(len(plan.members))
    zero, zeros = np.zeros(plan.plain.length), [np.zeros(len(s.positions)) for s in plan.slots]
    if count > 1 and plan.layout.k >= MANY:
        begin = designs.without_folds([zero], ALL)
        fitted = fits.run(fits.at_zero(begin), zeros, ROUGH)
        without = {job: theta for job, (theta, _) in fitted.items()}
        folds = [[without[Job(i, fold)] for fold in range(count)] for i in members]
        return [np.mean(thetas, axis=0) for thetas in folds], without
    tolerance = FEW_TOLERANCE if units * plan.layout.k < SMALL else TOLERANCE
    whole = fits.run(fits.at_zero(designs.losses({Job(ALL): zero})), zeros, tolerance)
    starts = {i: plan.extend(i, whole) for i in members if plan.members[i].kernel is not None}
    if starts:
        begin = designs.losses({Job(i): start for i, start in starts.items()})
        measured = {
            i: InverseHessian(measure(plan, blocks, i, start), 1.0) for i, start in starts.items()
        }
        fits = fits._replace(curvatures=fits.curvatures | measured)
        whole |= fits.run(begin, starts, tolerance)
    thetas = [whole[Job(i)][0] for i in members]
    if count == 1:
        return thetas, {}
    curvatures = {i: whole[Job(i)][1] for i in members}
    fits = fits._replace(curvatures=curvatures)
    fitted = fits.run(designs.without_folds(thetas), thetas, tolerance)
    return thetas, {job: theta for job, (theta, _) in fitted.items()}


class Fits(NamedTuple):
    """Common inputs of the fits of members: rows, a sample of rows, and initial curvatures."""

    designs: StackDesigns
    plan: Plan
    sample: list[FeatureBlock]
    curvatures: dict[int, InverseHessian]

    def at_zero(self, common: Mapping[Job, Losses]) -> dict[Job, Losses]:
        """Select the losses of members at zero from the losses of a member with all features.

        Members with a kernel are omitted.
        """
        return {
            job._replace(member=i): (value, slope[self.plan.slots[i].positions])
            for job, (value, slope) in common.items()
            for i, member in enumerate(self.plan.members)
            if member.kernel is None
        }

    def run(
        self,
        begin: Mapping[Job, Losses],
        thetas: Sequence[np.ndarray] | Mapping[int, np.ndarray],
        tolerance: float,
    ) -> dict[Job, tuple[np.ndarray, InverseHessian]]:
        """Fit jobs from the parameters of their members, at which the losses are known."""
        searches = {
            job: self._search(job, thetas[job.member], losses, tolerance)
            for job, losses in begin.items()
        }
        return self.designs.run(searches)

    def _search(self, job: Job, start: np.ndarray, begin: Losses, tolerance: float) -> Descent:
        plan, i = self.plan, job.member
        method = approximation(plan.members[i], plan.plain, plan.layout.dimensions)
        objective = Objective(
            penalties(plan.members[i], plan.layout.dimensions),
            self.designs.total,
            self.designs.rounding,
            partial(measure, plan, self.sample, i),
            method.patience,
        )
        if job.fold == ALL:
            share = method.promise
            return descend(objective, start, begin, self.curvatures[i], share * tolerance)
        # Scale rows and penalties by the proportion of rows in the job.
        share = 1 - 1 / self.designs.count
        given = objective.divided(share), start, begin, self.curvatures[i].divided(share)
        curved = plan.members[i].kernel is not None
        return descend(*given, tolerance, KERNEL_FOLD_SHARE if curved else FOLD_SHARE)


def first_metrics(
    plan: Plan, blocks: Sequence[FeatureBlock], map_fn: MapFunction
) -> dict[int, InverseHessian]:
    """Compute the curvature of members without a kernel at zero, from one Hessian."""
    method, slot = plain_approximation(plan.plain), plan.slots[ALL]
    zero = split(np.zeros(plan.plain.length, blocks[0].x.dtype), slot.sizes)

    total = _total(method, blocks, zero, slot.part, map_fn)
    plain = [i for i, member in enumerate(plan.members) if member.kernel is None]
    metrics = map_fn(lambda i: method.invert(total, plan.members[i]), plain)
    rough = isinstance(method, Parts)
    return {
        i: InverseHessian(metric, 0.5 if rough and plan.slots[i].sizes[1] > 1 else 1.0)
        for i, metric in zip(plain, metrics, strict=True)
    }


def measure(
    plan: Plan, blocks: Sequence[FeatureBlock], member: int, theta: Float[np.ndarray, " parameters"]
) -> Metric:
    """Compute the inverse Hessian of a member at its parameters."""
    chosen, slot = plan.members[member], plan.slots[member]
    method = approximation(chosen, plan.plain, plan.layout.dimensions)
    parameters = split(theta.astype(blocks[0].x.dtype), slot.sizes)
    return method.invert(_total(method, blocks, parameters, slot.part), chosen)


def _total(
    method: Approximation,
    blocks: Sequence[FeatureBlock],
    parameters: Parameters,
    part: slice,
    map_fn: MapFunction = in_turn,
) -> list[np.ndarray]:
    """Sum what an approximation of the Hessian needs over blocks of rows."""

    def sums(block: FeatureBlock) -> tuple[np.ndarray, ...]:
        return method.sums(*design_and_probabilities(block, parameters, part))

    return [np.sum(parts, axis=0) for parts in zip(*map_fn(sums, blocks), strict=True)]


def _leave_out(rows: Rows, out: np.ndarray) -> Rows:
    """Take the other rows; off the host all, some with weight zero, as sizes are compiled."""
    if on_host(rows.scores):
        return rows.take(~out)
    return rows._replace(weights=np.where(out, 0, rows.weights))


def mixture(members: Sequence[Member], stack: Stack, share: XArray, scores: XArray) -> np.ndarray:
    """Mix the probabilities (n, k) of members by their weights, for arrays of any library."""
    x = smooth(scores, *stack.scale)
    total = sum(
        share[i] * softmax(member_logits(member, theta, x, stack.basis))
        for i, (member, theta) in enumerate(zip(members, stack.thetas, strict=True))
    )
    return total / namespace(total).sum(total, axis=1, keepdims=True)


def mixture_on_host(
    members: Sequence[Member],
    stack: Stack,
    share: Float[np.ndarray, " members"],
    scores: Float[np.ndarray, "rows classes"],
) -> Float[np.ndarray, "rows classes"]:
    """Mix the probabilities (n, k) of members with NumPy, several times faster."""
    layout = Plan.make(members, stack.scale, stack.basis).layout
    if layout.kernel:
        stack = _without_whitening(members, stack)
    probs = np.empty(scores.shape)

    def mix_rows(part: slice) -> None:
        chunk = scores[part]
        unlabeled = Rows(chunk, np.zeros(len(chunk), int), np.zeros(len(chunk)))
        block = make_block(unlabeled, stack.scale, layout, stack.basis, np.float64)
        total = np.zeros(chunk.shape[::-1])
        for member, theta, weight in zip(members, stack.thetas, share, strict=True):
            parameters = split(theta, member.sizes(layout.dimensions))
            z = logits(block, parameters, layout.part(member))
            np.exp(z - z.max(axis=0), out=z)
            z *= weight / z.sum(axis=0)
            total += z
        probs[part] = (total / total.sum(axis=0)).T

    with single_threaded_blas(), threads(scores.size >= SMALL) as map_fn:
        list(map_fn(mix_rows, row_blocks(len(scores), layout.k)))
    return probs


def _without_whitening(members: Sequence[Member], stack: Stack) -> Stack:
    """Multiply kernel features by parameters that contain the matrix that whitens them."""
    basis, thetas = stack.basis, []
    for member, theta in zip(members, stack.thetas, strict=True):
        if member.kernel is not None:
            theta = theta.copy()
            matrix = split(theta, member.sizes(basis.dimensions)).matrix
            matrix[:, -len(basis.centers) :] = matrix[:, -len(basis.centers) :] @ basis.whiten.T
        thetas.append(theta)
    return stack._replace(basis=basis._replace(whiten=None), thetas=thetas)


def sample_stack(
    members: Sequence[Member],
    stack: Stack,
    held: tuple[np.ndarray, np.ndarray] | None,
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    inference: str,
    num_samples: int,
    seed: int,
) -> Draws:
    """Draw (chains, draws, p): all members' parameters, the weights, the scale, a member.

    The parameters of a member are drawn from its posterior at the best scale, with the penalties as
    prior. The weights are drawn by a Bayesian bootstrap of the rows, with at most 200 resamples.
    The scale has the posterior of temperature scaling, which is somewhat too wide because members
    can also scale. The last entry is the index of a member, drawn by the weights: members are
    fitted to the same rows, so means over draws from all members would vary too little. ``held``
    are log probabilities (m, members) of held-out labels, and their weights (m,).
    """
    scores, y, weights = rows
    x = smooth(scores, *stack.scale)
    posteriors = [
        sample(
            make_design(member, x, y, weights, stack.basis),
            penalties(member, stack.basis.dimensions),
            theta,
            inference,
            num_samples,
            seed + i,
        )
        for i, (member, theta) in enumerate(zip(members, stack.thetas, strict=True))
    ]
    chains, draws = posteriors[0].coefficients.shape[:2]
    share = np.ones((1, len(members)))
    if held is not None:
        rng = np.random.default_rng(seed)
        logs, mass = held
        resampled = rng.gamma(mass, size=(min(_RESAMPLES, chains * draws), len(mass)))
        best = mix(logs, mass)
        share = np.stack([mix(logs, drawn, best) for drawn in resampled])
    share = np.resize(share, (chains * draws, len(members))).reshape(chains, draws, -1)
    at = Rows(scores, y, weights), stack.scale.inverse
    scale = sample_inverse(*at, "laplace", chains * draws, seed).coefficients
    scale = np.random.default_rng(seed).permutation(scale.ravel()).reshape(chains, draws, 1)
    chosen = choose(share.reshape(-1, len(members)), seed).reshape(chains, draws, 1)
    number, ones = (np.full(len(members) + 2, value) for value in (float(chains * draws), 1.0))
    return Draws(
        np.concatenate(
            [*(part.coefficients for part in posteriors), share, scale, chosen], axis=-1
        ),
        np.concatenate([*(part.ess for part in posteriors), number]),
        np.concatenate([*(part.r_hat for part in posteriors), ones]),
        sum(part.divergences for part in posteriors),
        max(part.status for part in posteriors),
    )


def choose(share: Float[np.ndarray, "draws members"], seed: int) -> Int[np.ndarray, " draws"]:
    """Choose a member (s,) for each draw by its weights (s, members), spread evenly."""
    order = np.random.default_rng(seed).permutation(len(share))
    level = (order[:, None] + 0.5) / len(share)
    return np.minimum((np.cumsum(share, axis=1) < level).sum(axis=1), share.shape[1] - 1)
