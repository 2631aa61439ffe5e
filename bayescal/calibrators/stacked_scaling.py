"""A stack of structured fits to the scores of several classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal._core.blas import single_threaded_blas
from bayescal._core.checks import check_choice, check_count
from bayescal._core.folds import content_folds, score_keys
from bayescal._core.numerics import log_softmax
from bayescal._core.optimise import Status
from bayescal.calibrators._base import State
from bayescal.calibrators._inputs import Domain
from bayescal.calibrators._member import Member
from bayescal.calibrators._parametric import ParametricCalibrator
from bayescal.calibrators._posterior import row_blocks
from bayescal.calibrators._stack import (
    Stack,
    apply_draws,
    fit_members,
    label_log_probabilities,
    log_mean,
    log_probabilities,
    mix,
    sample_stack,
)
from bayescal.regression.posterior import Draws

__all__ = ["StackedScaling"]

#: Of what is learned, the log probabilities (n, members) of held-out labels: never kept.
_HELD_OUT = "held_out"
MEMBERS = {
    "temperature": Member(30, 30),
    "vector": Member(3, 3),
    "probability": Member(3, 3, 1, (1, 0.3)),
    "both": Member(3, 3, 1, (1, 0.3), (3, 3)),
    "weak": Member(0.3, 0.3, 0.1, (0.01, 0.01), (0.1, 0.03)),
}
#: Of many classes: k (k - 1) makes penalties off the diagonal of the others very strong.
WEAKER = {"weaker": Member(0.1, 0.1, 0.03, (0.001, 0.001), (0.01, 0.003))}
#: Of very many, no matrices but for a few directions.
PLAIN = {
    "temperature": Member(30, 30),
    "vector": Member(3, 3),
    "certainty": Member(3, 3, 1),
    "loose": Member(0.3, 0.3, 0.1),
    "directions": Member(0.3, 0.3, 0.1, directions=(50, 0.01)),
}
MANY, VERY_MANY = 30, 300
_SINGLE = "probability"
#: So many scores are worth threads for folds.
_LARGE = 20_000


@dataclass(eq=False, repr=False)
class StackedScaling(ParametricCalibrator):
    r"""Structured fits from strongly to weakly shrunk, mixed by weights from cross-validation.

    With x the logarithms of temperature-scaled probabilities, mixed with the uniform distribution
    in the proportion :math:`e = 1 / (n + 1)` as in :class:`StructuredVector`, and q their
    exponentials, the logits of a member are

    .. math:: x \circ (1 + v + T(x) \cdot t) + b + 4 W q + U (x - \bar x)

    where T are the greatest probability, its square, its distance from the second and the entropy,
    all less a constant. A member minimizes the mean cross-entropy plus

    .. math:: \frac kn \Bigl(c_b \|b\|^2 + c_v \|v\|^2 + d_W \sum_i W_{ii}^2 + d_U \sum_i U_{ii}^2
              \Bigr) + \frac{c_t}{n} \|t\|^2 + \frac{k (k - 1)}{n} \sum_{i \ne j}
              \bigl(o_W W_{ij}^2 + o_U U_{ij}^2\bigr).

    ============= ===== ===== ===== ========= =========
    member        c_b   c_v   c_t   d_W, o_W  d_U, o_U
    ============= ===== ===== ===== ========= =========
    temperature   30    30
    vector        3     3
    probability   3     3     1     1, 0.3
    both          3     3     1     1, 0.3    3, 3
    weak          0.3   0.3   0.1   .01, .01  .1, .03
    weaker        0.1   0.1   .03   1e-3 each .01, 3e-3
    ============= ===== ===== ===== ========= =========

    The last stands for "both" if there are 30 classes or more. For more than 300 there are no
    such matrices, whose k^2 coefficients would take minutes: beside the first two there are
    "certainty" with (3, 3, 1), "loose" with (.3, .3, .1), and "directions", which is "loose" and
    a matrix, with o = .01, for the 50 main directions of :math:`x - \bar x`.

    The prediction is a mixture of theirs. Its weights maximize the likelihood of the labels by
    members fitted without the fold of each, with the prior Dirichlet(2): so the stack learns how
    much structure n rows of k classes can bear.

    Parameters
    ----------
    mode : {"stack", "single"}
        "single" is the member "probability", or "certainty", alone, without cross-validation.
    folds : int, optional
        Of the stack: stratified, and made from the content of rows, whatever their order.
        By default 5, or 3 if there are 30 classes or more, where a fit takes longer.

    Attributes
    ----------
    stack_weights_ : array of shape (members,)
    held_out_mean_losses_ : array of shape (members,)
        Mean log loss of each member on rows left out; not of "single".
    held_out_losses_ : array of shape (n,)
        Log loss of each row of positive weight by the mixture of fits without its fold; not of
        "single", and not kept in files, as it is as long as the data.
    inverse_ : float
        Inverse temperature.

    Notes
    -----
    O(n k^2) time for each of some tens of products, for each member and fold; for more than 300
    classes O(n k). What the directions cost there can be seen with fewer: on three networks of 100
    classes, with 5,000 rows, log losses are by .0009 to .0071 greater than with whole matrices, and
    without directions by .0070 to .0414.

    Of a posterior, penalties are the prior, and the weights are those of resampled rows, a Bayesian
    bootstrap. Of more than 3,000 parameters of a member each draw is the solution of a linear
    system: with 100 classes a draw takes about a tenth of a second.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 0, 2, 1, 1, 1, 2, 0, 0]
    >>> bc.StackedScaling().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.53, 0.27, 0.19]]
    """

    mode: Literal["stack", "single"] = "stack"
    folds: int | None = None

    stack_weights_: np.ndarray = field(init=False)
    held_out_mean_losses_: np.ndarray = field(init=False)
    held_out_losses_: np.ndarray = field(init=False)
    inverse_: float = field(init=False)

    def _check_options(self) -> None:
        check_choice(self.mode, "mode", ("stack", "single"))
        if self.folds is not None and check_count(self.folds, "folds") < 2:
            raise ValueError(f"folds must be at least 2, got {self.folds}")

    @property
    def domain(self) -> Domain:
        return "logits"

    @property
    def member_names_(self) -> list[str]:
        """The names of the members, in the order of their weights."""
        check_is_fitted(self)
        return list(self._members(len(self.classes_)))

    def _members(self, k: int) -> dict[str, Member]:
        """Return the members by name, the strongest penalties first."""
        if self.mode == "single":
            name = _SINGLE if k <= VERY_MANY else "certainty"
            return {name: {**MEMBERS, **PLAIN}[name]}
        if k > VERY_MANY:
            return PLAIN
        if k < MANY:
            return MEMBERS
        return {name: own for name, own in MEMBERS.items() if name != "both"} | WEAKER

    def _fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        names, members = self._listed(scores.shape[1])
        with single_threaded_blas():
            found = fit_members(members, scores, y, weights)
        state: State = {
            "inverse": np.asarray(found.inverse),
            "smoothing": np.asarray(found.smoothing),
            "basis": found.basis,
            "stack_weights": np.ones(1),
            "status": np.asarray(int(found.status)),
        }
        for name, theta in zip(names, found.thetas, strict=True):
            state[f"theta_{name}"] = theta
        if self.mode == "stack":
            held = self._held_out(members, scores, y, weights, found)
            if held is None:
                state["stack_weights"] = np.full(len(members), 1 / len(members))
                return state
            state["stack_weights"] = mix(held, weights)
            state["held_out_mean_losses"] = -(weights @ held) / weights.sum()
            state[_HELD_OUT] = held
        return state

    def _publish(self, state: State) -> None:
        super()._publish({name: own for name, own in state.items() if name != _HELD_OUT})
        if _HELD_OUT in state:
            self.held_out_losses_ = -log_mean(state[_HELD_OUT], state["stack_weights"])

    def _best(self, state: State, scores: np.ndarray) -> np.ndarray:
        names, members = self._listed(scores.shape[1])
        found = _stack(state, [state[f"theta_{name}"] for name in names])
        probs = np.empty(scores.shape)
        for part in row_blocks(len(scores), len(members) * scores.shape[1]):
            logs = log_probabilities(members, found, scores[part])
            probs[part] = np.einsum("m,nmk->nk", state["stack_weights"], np.exp(logs))
        return probs

    def _describe(self, state: State, theta: np.ndarray) -> State:
        """Return each member's parameters, the weights, the scale, and the member of a draw."""
        k = len(state["basis"])
        names, members = self._listed(k)
        ends = np.cumsum([member.count(k) for member in members])
        parts = np.split(theta, ends, axis=-1)
        return {f"theta_{name}": own for name, own in zip(names, parts[:-1], strict=True)} | {
            "stack_weights": parts[-1][..., :-2],
            "inverse": parts[-1][..., -2],
            "member": parts[-1][..., -1],
        }

    def _sample(
        self, state: State, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int
    ) -> Draws:
        names, members = self._listed(scores.shape[1])
        found = _stack(state, [state[f"theta_{name}"] for name in names])
        rows = scores, y, weights
        held = state.get(_HELD_OUT)
        return sample_stack(members, found, held, rows, self.inference, self.num_samples, seed)

    def _curves(self, state: State, theta: np.ndarray, scores: np.ndarray) -> np.ndarray:
        names, members = self._listed(scores.shape[1])
        drawn = self._describe(state, theta)
        found = _stack(state, [drawn[f"theta_{name}"] for name in names])
        return apply_draws(members, found, drawn["member"], drawn["inverse"], scores)

    def _listed(self, k: int) -> tuple[tuple[str, ...], tuple[Member, ...]]:
        names, members = zip(*self._members(k).items(), strict=True)
        return names, members

    def _held_out(
        self,
        members: Sequence[Member],
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        whole: Stack,
    ) -> np.ndarray | None:
        """Return log probabilities (n, members) of the labels, each by fits to the other folds.

        None if all rows are equal: they share a fold.
        """
        held = np.empty((len(y), len(members)))
        count = self.folds or (5 if scores.shape[1] < MANY else 3)
        folds = content_folds(score_keys(log_softmax(scores), y), y, count)
        if folds.max() == 0:
            return None

        def one(fold: int) -> None:
            out = folds == fold
            found = fit_members(members, scores[~out], y[~out], weights[~out], whole)
            held[out] = label_log_probabilities(members, found, scores[out], y[out])

        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        with single_threaded_blas(), ThreadPoolExecutor(cores) as pool:
            each = pool.map if scores.size >= _LARGE and cores > 1 else map
            list(each(one, range(folds.max() + 1)))
        return held


def _stack(state: State, thetas: list[np.ndarray]) -> Stack:
    scale, smoothing = float(state["inverse"]), float(state["smoothing"])
    return Stack(scale, smoothing, state["basis"], thetas, [], Status.CONVERGED)
