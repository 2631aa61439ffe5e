"""Several structured fits to the same rows, mixed: fits, weights of the mixture, their draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.numerics import log_softmax, softmax
from bayescal._core.optimise import Status
from bayescal.calibrators._member import (
    Member,
    change_many,
    main_directions,
    make_design,
    penalties,
    smooth,
)
from bayescal.calibrators._posterior import row_blocks
from bayescal.calibrators.temperature import fit_inverse_temperature, sample_inverse
from bayescal.regression.posterior import Draws
from bayescal.regression.softmax_fit import Prepared, fit_on_host
from bayescal.regression.softmax_objective import change
from bayescal.regression.softmax_posterior import sample

#: Prior weight of each member of the stack, in rows: that of Dirichlet(2).
_PRIOR = 1.0
_ROUNDS, _FURTHER = 500, 60
#: Of log inverse temperatures.
_MOST = 4.0
#: So many resamples of the rows say how uncertain the weights of a stack are.
_RESAMPLES = 200
_TOLERANCE = 1e-6
#: What decides between members need not be known to more digits.
_ROUGH = 1e-4


class Stack(NamedTuple):
    """A scale, main directions (k, r), and the parameters of each member."""

    inverse: float
    smoothing: float
    basis: np.ndarray
    thetas: list[np.ndarray]
    prepared: list[Prepared | None]
    status: Status


def fit_members(
    members: Sequence[Member],
    scores: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    near: Stack | None = None,
) -> Stack:
    """Fit the scale and all members; roughly, from those of about the same rows, if given."""
    most = np.exp(_MOST)
    inverse = float(np.clip(fit_inverse_temperature(scores, y, weights).inverse, 1 / most, most))
    smoothing = 1 / (weights.sum() + 1)
    x = smooth(scores, inverse, smoothing)
    basis = main_directions(members, x, weights) if near is None else near.basis
    thetas, prepared, status = [], [], Status.CONVERGED
    for place, member in enumerate(members):
        design = make_design(member, x, y, weights, basis)
        penalty = penalties(member, x.shape[1])
        if near is not None:
            start, ready, precise = near.thetas[place], near.prepared[place], _ROUGH
        else:
            start = thetas[-1] if thetas else None
            if start is not None:
                start = member.enlarge(start, members[place - 1], x.shape[1])
            ready, precise = None, _TOLERANCE
        best, ready = fit_on_host(design, penalty, start, ready, precise, limits=False)
        thetas.append(best.x)
        prepared.append(ready)
        status = max(status, Status(int(best.status)))
    return Stack(inverse, smoothing, basis, thetas, prepared, status)


def log_probabilities(members: Sequence[Member], stack: Stack, scores: np.ndarray) -> np.ndarray:
    """Return log probabilities (n, members, k)."""
    x = smooth(scores, stack.inverse, stack.smoothing)
    logs = np.empty((len(x), len(members), x.shape[1]))
    nobody = np.zeros(len(x), int)
    for place, (member, theta) in enumerate(zip(members, stack.thetas, strict=True)):
        design = make_design(member, x, nobody, nobody, stack.basis)
        logs[:, place] = log_softmax(x + change(design, theta))
    return logs


def label_log_probabilities(
    members: Sequence[Member], stack: Stack, scores: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """Return log probabilities (n, members) of the labels, in blocks of rows."""
    found = np.empty((len(y), len(members)))
    for part in row_blocks(len(y), len(members) * scores.shape[1]):
        logs = log_probabilities(members, stack, scores[part])
        found[part] = np.take_along_axis(logs, y[part][:, None, None], axis=2)[:, :, 0]
    return found


def log_mean(logs: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return log(exp(logs) @ share) (n,) of logs (n, q)."""
    top = logs.max(axis=1)
    return top + np.log(np.exp(logs - top[:, None]) @ share)


def mix(
    held: np.ndarray,
    weights: np.ndarray,
    start: Any = None,
    rounds: int = _ROUNDS,
    prior: float = _PRIOR,
) -> np.ndarray:
    """Return weights (..., q) of mixtures of the log probabilities (n, q) of what was seen.

    They maximize the likelihood of rows of weight (..., n) with the prior Dirichlet(1 + prior), by
    expectation maximization.
    """
    parts = np.exp(held - held.max(axis=1, keepdims=True))
    count = parts.shape[1]
    share = np.full((*weights.shape[:-1], count), 1 / count) if start is None else start
    total = weights.sum(axis=-1, keepdims=True) + prior * count
    for _ in range(rounds):
        mixed = share @ parts.T
        share = (share * ((weights / mixed) @ parts) + prior) / total
    return share


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
    x = smooth(scores, stack.inverse, stack.smoothing)
    found = [
        sample(
            make_design(member, x, y, weights, stack.basis),
            penalties(member, x.shape[1]),
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
        share = mix(held, resampled, np.broadcast_to(best, (len(resampled), len(best))), _FURTHER)
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
    members: Sequence[Member],
    stack: Stack,
    chosen: np.ndarray,
    inverse: np.ndarray,
    scores: np.ndarray,
) -> np.ndarray:
    """Return probabilities (s, n, k): each draw's by the member that was chosen, and its scale.

    The members' parameters in ``stack`` are draws (s, p).
    """
    probs = np.empty((len(chosen), *scores.shape))
    for place, (member, theta) in enumerate(zip(members, stack.thetas, strict=True)):
        own = chosen == place
        x = smooth(scores, inverse[own, None, None], stack.smoothing)
        probs[own] = softmax(x + change_many(member, theta[own], x, stack.basis))
    return probs
