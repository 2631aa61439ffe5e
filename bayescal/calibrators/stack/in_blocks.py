"""Fits of a stack to rows in blocks: in each pass, all members and folds take a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.execution.threads import in_turn
from bayescal._core.minimization.optimize import run_together
from bayescal._core.numerics import differences
from bayescal.calibrators.base.draws import row_blocks
from bayescal.calibrators.base.report import loss_moments, row_losses_of_logits
from bayescal.calibrators.multiclass.members import Member
from bayescal.calibrators.multiclass.scale import ScaleLoss
from bayescal.calibrators.stack.designs import ALL, Job, Plan, StackDesigns
from bayescal.calibrators.stack.fit import (
    FAR,
    Stack,
    best_scale,
    find_basis,
    fit_members,
    fit_scale,
)
from bayescal.calibrators.stack.folds import bucket_mass, row_keys, sample_hashes
from bayescal.calibrators.stack.kernels import (
    ROUNDING,
    FeatureBlock,
    Losses,
    Scale,
    block_rows,
    label_logs,
    losses,
    make_block,
)
from bayescal.calibrators.stack.mixture import climb, log_mean, mix, mix_terms
from bayescal.data.blocks.reader import RowBlocks
from bayescal.data.folds.buckets import Buckets, key_hashes, with_labels
from bayescal.data.order.classes import class_moments, order_by_moments
from bayescal.data.rows import Rows, Sums
from bayescal.regression.softmax.objective import split

#: Largest gain of the last step of weights; the next step would gain about its square.
_SMALL = 2e-7
#: Parts of the evaluation of a mixture: its log likelihood, the gradient and minus the Hessian.
_PARTS = "value", "pull", "gram"


@dataclass(frozen=True)
class Folded:
    """A plan, and the folds by hashes of rows in a canonical order of the classes."""

    plan: Plan
    order: np.ndarray
    buckets: Buckets

    def blocks(self, rows: Rows) -> Iterator[tuple[int, Rows, np.ndarray, FeatureBlock]]:
        """Yield for parts of the rows: the fold, the rows, their unit weights, and inputs of fits.

        A row of weight w that is divided between folds, or merged with equal rows, keeps the
        variance of rows of its unit weight.
        """
        scores, y, weights = rows
        folds, units = np.zeros(len(y), int), weights
        if self.buckets.count > 1:
            folded = self.buckets.assign(_hashes(self.order, scores), *rows)
            folds, rows = folded.fold, Rows(*folded.take(scores, y))
            squares = np.bincount(folded.sets, weights**2) / np.bincount(folded.sets, weights)
            units = squares[folded.members]
        for fold in range(self.buckets.count):
            index = np.flatnonzero(folds == fold)
            for part in block_rows(len(index), self.plan.layout.k) if len(index) else []:
                part_rows = rows.take(index[part])
                block = make_block(
                    part_rows, self.plan.scale, self.plan.layout, self.plan.basis, np.float64
                )
                yield fold, part_rows, units[index[part]], block

    def held_out(
        self, thetas: Mapping[Job, np.ndarray], fold: int, block: FeatureBlock
    ) -> np.ndarray:
        """Compute log probabilities (n, members) of labels by fits without the fold."""
        logs = [
            label_logs(block, split(thetas[Job(i, fold)], slot.sizes), slot.part)
            for i, slot in enumerate(self.plan.slots[:ALL])
        ]
        return np.stack(logs, axis=1)


class InBlocks(StackDesigns):
    """Rows that are read anew for each step of all members and folds."""

    rounding = ROUNDING[np.dtype(np.float64)]
    one_scale = True

    def __init__(self, rows: RowBlocks, folded: Folded) -> None:
        self.count, self.total = folded.buckets.count, rows.weight
        self._rows, self._folded = rows, folded

    def losses(self, points: Mapping[Job, np.ndarray]) -> dict[Job, Losses]:
        sums = self._rows.total(partial(_losses, self._folded, points))
        return {job: (float(sums[_name(job)][0]), sums[_name(job)][1:]) for job in points}


def fit_stack_of_blocks(
    members: Sequence[Member], rows: RowBlocks, count: int
) -> tuple[Stack, Sums, Rows]:
    """Fit all members to many rows that come in blocks, and mix them if there are several folds.

    Returns the stack, entries of the state about the mixture, and at most 1,250 rows that represent
    all rows.

    Everything is in double precision, except main directions. The first pass determines the order
    of classes and the first step of the scale; the second, the folds, a sample and the second step
    of the scale (a third may follow). Further passes compute the initial gradients, each step of
    all members, the contribution of each fold, each step without a fold, and each step of the
    weights of all mixtures (three or slightly more).
    """
    with single_threaded_blas():
        scale, sample, order, mass = _survey(rows)
        buckets = Buckets.deal(mass, rows.units, count)
        plan = Plan.make(members, scale, find_basis(members, sample, scale))
        folded = Folded(plan, order, buckets)
        designs = InBlocks(rows, folded)
        thetas, without = fit_members(designs, plan, sample, rows.units, np.float64, in_turn)
        several = buckets.count > 1
        mixed = _mix(folded, rows, without, buckets.fold_mass(mass)) if several else {}
        return Stack(scale, plan.basis, thetas), mixed, sample


def _hashes(order: np.ndarray, scores: np.ndarray) -> np.ndarray:
    parts = row_blocks(*scores.shape)
    return key_hashes(np.concatenate([row_keys(order, scores[part]) for part in parts]))


def _survey(rows: RowBlocks) -> tuple[Scale, Rows, np.ndarray, np.ndarray]:
    """Find the scale, a sample of rows, an order of the classes, and weights of buckets."""
    start = fit_scale(*rows.sample).inverse
    far = rows.largest > FAR
    first = rows.total(partial(_begin_scale, start, far, rows.weight, rows.largest))
    order = order_by_moments(first["moments"])
    passes = [first]

    def look(s: float) -> Sums:
        passes.append(rows.total(partial(_look, s, far, order, rows.units), _join))
        return passes[1]

    steps: Iterator[Callable[[float], Sums]] = iter([lambda s: first, look])

    def loss(s: float) -> tuple[float, float, float]:
        step = next(steps, lambda s: rows.total(partial(_scale_sums, s, far)))
        value, slope, curvature = step(s)["terms"].tolist()
        return value, slope, curvature

    scale = best_scale(loss, rows.weight, start)
    sums = passes[1] if len(passes) > 1 else look(start)
    counts = sums["counts"] * (rows.weight / sums["counts"].sum())
    return scale, Rows(sums["scores"], sums["y"], counts), order, sums["mass"]


def _begin_scale(start: float, far: bool, total: float, largest: float, rows: Rows) -> Sums:
    return {**_scale_sums(start, far, rows), **class_moments(total, largest, rows)}


def _look(s: float, far: bool, order: np.ndarray, units: float, rows: Rows) -> Sums:
    scores, y, weights = rows
    hashes = _hashes(order, scores)
    both = with_labels(hashes, np.argsort(order)[y])
    chosen, counts = sample_hashes(both, weights)
    return {
        **_scale_sums(s, far, rows),
        "mass": bucket_mass(hashes, y, weights, units, scores.shape[1]),
        "hashes": both[chosen],
        "counts": counts,
        "scores": scores[chosen],
        "y": y[chosen],
    }


def _join(first: Sums, second: Sums) -> Sums:
    """Add the sums of two parts, and choose a sample from both samples."""
    sums = {name: first[name] + second[name] for name in ("terms", "mass")}
    both = {
        name: np.concatenate([first[name], part])
        for name, part in second.items()
        if name not in sums
    }
    chosen, counts = sample_hashes(both["hashes"], both["counts"])
    return {name: values[chosen] for name, values in both.items()} | {**sums, "counts": counts}


def _scale_sums(s: float, far: bool, rows: Rows) -> Sums:
    if far:
        rows = rows._replace(scores=differences(rows.scores, -FAR))
    return {"terms": np.array(ScaleLoss(rows, single=False, keep=False)(s))}


def _name(job: Job) -> str:
    return "/".join(map(str, job))


def _losses(folded: Folded, points: Mapping[Job, np.ndarray], rows: Rows) -> Sums:
    """Compute value and gradient (1 + p,) of each job."""
    sums = {_name(job): np.zeros(1 + len(theta)) for job, theta in points.items()}
    for fold, _, _, block in folded.blocks(rows):
        for job, theta in points.items():
            if job.takes(fold):
                slot = folded.plan.slots[job.member]
                sums[_name(job)] += np.append(*losses([block], theta, slot.sizes, slot.part))
    return sums


def _mix(folded: Folded, rows: RowBlocks, thetas: dict[Job, np.ndarray], mass: np.ndarray) -> Sums:
    """Compute weights of the mixture, and losses of rows by weights fitted without their fold.

    Weights start from the weights for the sample.
    """
    sample = [
        (folded.held_out(thetas, fold, block), block.weights / rows.share, fold)
        for fold, _, _, block in folded.blocks(rows.sample)
    ]
    shares = {name: mix(*_without(sample, name)) for name in (ALL, *range(folded.buckets.count))}
    masses = {ALL: rows.weight} | {i: rows.weight - of_fold for i, of_fold in enumerate(mass)}
    moments: dict[int, np.ndarray] = {}
    last: Sums = {}

    def evaluate(points: dict[int, np.ndarray]) -> dict[int, list[np.ndarray]]:
        least = rows.reader.least
        sums = rows.total(partial(_mix_sums, folded, thetas, points, rows.whole, least))
        last.update(sums)
        # The weights have nearly converged.
        moments.update({fold: sums[f"moments/{fold}"] for fold in points if fold != ALL})
        return {name: [sums[f"{part}/{name}"] for part in _PARTS] for name in points}

    searches = {name: climb(start, masses[name], _SMALL) for name, start in shares.items()}
    share = run_together(searches, evaluate)[ALL]
    return {
        "stack_weights": share,
        "held_out_mean_losses": -last["held"] / rows.weight,
        "held_out_moments": np.sum([*moments.values()], axis=0),
    }


def _without(
    sample: list[tuple[np.ndarray, np.ndarray, int]], fold: int
) -> tuple[np.ndarray, np.ndarray]:
    """Collect log probabilities and weights of rows outside a fold, if there are any."""
    kept = [part for part in sample if part[2] != fold] or sample
    held, weights, _ = zip(*kept, strict=True)
    return np.concatenate(held), np.concatenate(weights)


def _mix_sums(
    folded: Folded,
    thetas: Mapping[Job, np.ndarray],
    shares: Mapping[int, np.ndarray],
    whole: bool,
    least: np.ndarray | None,
    rows: Rows,
) -> Sums:
    """Compute log likelihoods of mixtures of held-out predictions, their gradients and curvatures.

    A mixture fitted without a fold has sums over the rows of the other folds; the moments are of
    the losses in that fold.
    """
    q = len(folded.plan.members)
    empty = {"value": np.zeros(()), "pull": np.zeros(q), "gram": np.zeros((q, q))}
    sums = {f"{part}/{name}": zero for name in shares for part, zero in empty.items()}
    sums |= {f"moments/{name}": np.zeros((4, 3)) for name in shares if name != ALL}
    sums["held"] = np.zeros(q)
    for fold, part, units, block in folded.blocks(rows):
        held = folded.held_out(thetas, fold, block)
        parts = np.exp(held - held.max(axis=1, keepdims=True))
        here = {"held": part.weights @ held}
        for name, share in shares.items():
            if name == fold:
                logs = log_mean(held, share)
                plain = row_losses_of_logits(part.scores, part.y, least)
                squares = part.weights if whole else part.weights * units
                here[f"moments/{name}"] = loss_moments(-logs, plain, part.weights, squares)
                continue
            terms = mix_terms(part.weights, parts, share)
            here |= {f"{key}/{name}": term for key, term in zip(_PARTS, terms, strict=True)}
        for name, term in here.items():
            sums[name] = sums[name] + term
    return sums
