"""A stack of structured fits to multi-class scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, XArray, matmul, namespace, on_host
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.estimator import report_of_rows
from bayescal.calibrators.base.parametric import ParametricCalibrator
from bayescal.calibrators.base.report import (
    Report,
    class_losses_of_logits,
    expected_sums_of_probs,
    loss_moments,
    report_of_moments,
    row_losses_of_logits,
)
from bayescal.calibrators.multiclass.basis import Basis
from bayescal.calibrators.multiclass.members import Member
from bayescal.calibrators.stack.draws import apply_draws, draw_jointly
from bayescal.calibrators.stack.fit import (
    MANY,
    Stack,
    count_units,
    fit_stack,
    mixture,
    mixture_on_host,
    sample_stack,
)
from bayescal.calibrators.stack.in_blocks import fit_stack_of_blocks
from bayescal.calibrators.stack.kernels import SMALL, Scale
from bayescal.calibrators.stack.mixture import cross_fitted_losses, mix
from bayescal.data.checks import check_choice, check_count
from bayescal.data.given import EVERYWHERE
from bayescal.data.kept_rows import KeptRows
from bayescal.data.rows import Rows, Source, Sums
from bayescal.regression.binary.posterior import Draws

#: State entries: log probabilities (m, members) of held-out labels, and their weights.
_HELD_OUT, _HELD_OUT_WEIGHTS = "held_out", "held_out_weights"
#: State entries: scores (m, k) of a sample of rows, and their weights.
_SAMPLE, _SAMPLE_WEIGHTS = "sample_scores", "sample_weights"
#: State entry: whether draws contain steps of the log scale instead of scales.
_STEPS = "scale_steps"
#: State entries from which kernel features are computed.
_KERNEL = "centers", "whiten", "length"
_OF_ROWS = _HELD_OUT, _HELD_OUT_WEIGHTS, "held_out_losses"
#: Members, the most strongly penalized first.
MEMBERS = {
    "temperature": Member(30, 30),
    "vector": Member(3, 3),
    "certainty": Member(3, 3, 1),
    "firm": Member(3, 3, 3, (3, 3)),
    "probability": Member(3, 3, 1, (1, 0.3)),
    "logarithm": Member(3, 3, None, None, (3, 0.3)),
    "both": Member(3, 3, 1, (1, 0.3), (3, 3)),
    "middle": Member(1, 1, 0.3, (0.1, 0.05), (0.3, 0.3)),
    "weak": Member(0.3, 0.3, 0.1, (0.01, 0.01), (0.1, 0.03)),
    "weaker": Member(0.1, 0.1, 0.03, (0.001, 0.001), (0.01, 0.003)),
    "curved": Member(0.3, 0.3, 0.1, (0.01, 0.01), (0.1, 0.03), kernel=0.2),
    "wavy": Member(0.3, 0.3, 0.1, (0.01, 0.01), (0.1, 0.03), kernel=0.01),
    "directions": Member(0.3, 0.3, 0.1, directions=0.01),
    "loose": Member(0.01, 0.01, 0.0033, directions=0.01),
}
VERY_MANY = 300
#: Number of rows below which the member "weaker" makes the stack worse.
_ENOUGH_FOR_WEAKER = 100
#: Number of rows from which members with a kernel help, and of scores above which they are slow.
_ENOUGH_FOR_KERNEL, _MOST_FOR_KERNEL = 300, 1 << 18


def _plan(n: float, k: int) -> tuple[list[str], int]:
    """Choose the names of members for n rows of k classes, and the number of folds."""
    if k > VERY_MANY:  # no matrices but for a few directions
        return ["temperature", "directions", "loose"], 2
    if k >= MANY:  # k (k - 1) makes penalties off the diagonal of others very strong
        return ["temperature", "probability", "weak", "weaker"], 3
    curved = ["curved", "wavy"] if n >= _ENOUGH_FOR_KERNEL and n * k <= _MOST_FOR_KERNEL else []
    if n * k < SMALL:
        several = ["temperature", "vector", "firm", "probability", "logarithm", "both", "weak"]
        return [*several, *(["weaker"] if n >= _ENOUGH_FOR_WEAKER else []), *curved], 5
    return ["temperature", "both", "middle", "weak", *curved], 4


@dataclass(eq=False, repr=False)
class StackedScaling(ParametricCalibrator):
    r"""A cross-validated stack of structured fits, from strongly to weakly shrunk.

    :class:`Auto` uses it for three and more classes. Use it directly to set the number of folds, or
    to draw its parameters with ``inference``.

    Let x be the logarithms of temperature-scaled probabilities, mixed with the uniform distribution
    with weight :math:`e = 1 / (2 n + 2)`, and q their exponentials. The logits of a member are

    .. math:: x \circ (1 + v + T(x) \cdot t) + b + 4 W q + U (x - \bar x) + H \phi(x)

    where T consists of the largest probability, its square, its difference from the second largest,
    and the entropy, each minus a constant, and :math:`\phi` are kernel features (below). The log
    temperature u minimizes the sum of losses plus :math:`u^2 / 2`. A member minimizes the sum of
    losses plus

    .. math:: k \Bigl(c_b \|b\|^2 + c_v \|v\|^2 + d_W \sum_i W_{ii}^2 + d_U \sum_i U_{ii}^2
              \Bigr) + c_t \|t\|^2 + k (k - 1) \sum_{i \ne j}
              \bigl(o_W W_{ij}^2 + o_U U_{ij}^2\bigr) + h \sum_{ij} H_{ij}^2.

    ============= ===== ===== ===== ========= ========= ======= ======= ======= =======
    member        c_b   c_v   c_t   d_W, o_W  d_U, o_U  n k < N k < 30  k < 301 others
    ============= ===== ===== ===== ========= ========= ======= ======= ======= =======
    temperature   30    30                              x       x       x       x
    vector        3     3                               x
    firm          3     3     3     3, 3                x
    probability   3     3     1     1, 0.3              x               x
    logarithm     3     3                     3, 0.3    x
    both          3     3     1     1, 0.3    3, 3      x       x
    middle        1     1     0.3   0.1, .05  0.3, 0.3          x
    weak          0.3   0.3   0.1   .01, .01  .1, .03   x       x       x
    weaker        0.1   0.1   .03   1e-3 each .01, 3e-3 x               x
    curved        0.3   0.3   0.1   .01, .01  .1, .03   x       x
    wavy          0.3   0.3   0.1   .01, .01  .1, .03   x       x
    directions    0.3   0.3   0.1             o = .01                           x
    loose         .01   .01   .0033           o = .01                           x
    ============= ===== ===== ===== ========= ========= ======= ======= ======= =======

    The last four columns mark the members of the stack. The first of them is for fewer than 30
    classes and fewer than N = 32,768 scores. "weaker" needs 100 rows; "curved" and "wavy" need 300
    rows and at most 262,144 scores. For more than 300 classes, U is a matrix (k, 50) for the main
    directions of :math:`x - \bar x`.

    "curved" (h = 0.2) and "wavy" (h = 0.01) add smooth functions of all log probabilities, from a
    Gaussian process with the rational quadratic kernel :math:`1 / (1 + d^2 / 2)`. Here d is the
    distance between two rows in units of half the standard deviation of the rows. The features
    :math:`\phi` are whitened kernel values at up to 100 centers (1,500 / k from 16 classes on),
    chosen from the rows by a pivoted Cholesky factorization of the kernel. These members correct
    errors that are not linear in the logarithms, such as a wave in one class. If there are none,
    their weights are small.

    Members are fitted to all rows and, from there, to the rows outside each fold, with
    proportionally smaller penalties. A fit takes L-BFGS steps until the next step would gain less
    than a millionth of the objective (1e-5 for N scores or more) or, without a fold, less than a
    hundredth of the gain expected from the first step. The initial metric is a Hessian from at most
    1,250 rows, which is recomputed if convergence is slow. For members with a kernel and more than
    500 parameters it is approximated, and the tolerances are a hundred times smaller. For 30 or
    more classes, members are fitted only without each fold, from zero until a step would gain less
    than a hundredth of the objective, and predict with the means of their parameters over folds.
    More steps did not help on new rows.

    The weights of the mixture maximize the likelihood of held-out labels with the prior
    Dirichlet(2), so the data determine how much structure n rows of k classes support.

    Parameters
    ----------
    mode : {"stack", "single"}
        "single" fits only the member "probability" to all rows, without cross-validation. For more
        than 300 classes it fits "certainty", with strengths 3, 3, 1 and no matrix.
    folds : int, optional
        The number of folds. Rows are assigned by content, independently of their order. Rows with
        equal scores are spread over the folds, and a row of weight 2 counts as two rows. More than
        262,144 rows, or 4,194,304 scores, are assigned by a hash of their scores, so rows with rare
        equal scores share a fold. The default is 5 if n k < 32,768, otherwise 4; 3 for 30 or more
        classes, and 2 for more than 300.

    Attributes
    ----------
    member_names_ : list of str
    stack_weights_ : array of shape (members,)
        Weights of the members, in the order of their names.
    has_interval_ : bool
        Whether ``predict_interval`` is available.
    held_out_mean_losses_ : array of shape (members,)
        Mean held-out log loss of each member; not for "single".
    held_out_losses_ : array of shape (n,)
        Held-out log loss of each row of positive weight, by members and weights that were fitted
        without its fold. Not for "single" or many rows in blocks. Files do not contain it, because
        it is as long as the data.
    inverse_ : float
        Inverse temperature.

    Notes
    -----
    O(n k^2) time for each of a few products, for each member and fold; for more than 300 classes
    O(n k). Fits to 32,768 or more scores use single precision. Besides the scores, they need 12 n k
    bytes of memory, and 400 n bytes for kernel features; for more than 300 classes, 4 n k bytes and
    some hundred numbers per class. Fits with kernel features take 2 to 5 times as long.

    Scores on an accelerator stay on device. The host receives keys of rows for the folds, a sample
    of rows for the curvature, losses of rows, and sums, and takes the steps. Everything is computed
    in double precision, except main directions. For fewer than 32,768 scores, probabilities equal
    those of the host to 1e-8 for at most 300 classes, and to 1e-6 for more. With more scores the
    host uses single precision, so probabilities may differ by 1e-3, and mean losses by 1e-5. Device
    memory is 8 n k bytes for the scores, and several times that plus twice the number of features
    during the fit.

    Rows in blocks are read once and fitted in memory if there are at most 262,144 rows and
    4,194,304 scores. With more rows, all members and folds take their steps together: blocks are
    read 17 to 24 times, up to 60 times for 16 to 29 classes, and up to 10 times for "single". These
    fits use double precision: probabilities equal a double-precision fit to all rows in memory to
    1e-9, or to 1e-7 for more than 300 classes, whose main directions are in single precision. Fits
    in single precision differ by about 1e-5, and by up to 1e-3 for 30 or more classes, because they
    stop a step earlier.

    Fits of fewer than 30 classes always have credible intervals, which cost nothing until they are
    computed. For this purpose at most 1,250 rows of scores are kept, without labels, also in files.
    An interval contains the central part of 400 draws, each from one member chosen by the weights.
    The parameters of the member and the scale are normal around the fit, with the penalties as
    prior; parameters of kernel features are fixed. In simulations with 50 to 1,000 rows of 3 and 10
    classes, 90 % intervals covered the truth in 88 to 100 % of cases, mostly in 94 to 98 %.
    Coverage was highest if the scores were already calibrated, especially with few rows of many
    classes. Waves in one of three classes were covered in 85 to 93 % of cases.

    With ``inference="laplace"`` or "nuts", the penalties are the prior, and the weights are drawn
    by a Bayesian bootstrap of the rows. If a member has more than 3,000 parameters, each draw is
    the solution of a linear system: with 100 classes, a draw takes about a tenth of a second.
    Parameters of kernel features are also drawn, with a weak prior: 90 % intervals from 400 rows of
    three classes covered 98 %.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 0, 2, 1, 1, 1, 2, 0, 0]
    >>> bc.StackedScaling().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.57, 0.25, 0.17]]
    """

    mode: Literal["stack", "single"] = "stack"
    folds: int | None = None

    stack_weights_: np.ndarray = field(init=False)
    held_out_mean_losses_: np.ndarray = field(init=False)
    held_out_losses_: np.ndarray = field(init=False)
    inverse_: float = field(init=False)

    _domain = "logits"
    _sources: ClassVar[frozenset[str]] = EVERYWHERE

    def _check_options(self) -> None:
        check_choice(self.mode, "mode", ("stack", "single"))
        if self.folds is not None:
            check_count(self.folds, "folds", 2)

    @property
    def member_names_(self) -> list[str]:
        """Names of the members, in the order of their weights."""
        check_is_fitted(self)
        return _names(self.state_)

    @property
    def has_interval_(self) -> bool:
        """Whether ``predict_interval`` is available."""
        check_is_fitted(self)
        return _SAMPLE in self.state_ or "theta_draws" in self.state_

    def _choose(self, n: float, k: int) -> tuple[list[str], int]:
        """Choose the names of members for n rows of k classes, and the number of folds."""
        names, count = _plan(n, k)
        if self.mode == "single":
            return ["probability" if k <= VERY_MANY else "certainty"], 1
        return names, count if self.folds is None else self.folds

    def _fit(self, rows: Source, seed: int) -> State:
        return self._fit_rows(rows) if isinstance(rows, Rows) else self._fit_blocks(rows)

    def _fit_rows(self, rows: Rows) -> State:
        scores, y, weights = rows
        names, count = self._choose(count_units(weights), scores.shape[1])
        members = [MEMBERS[name] for name in names]
        stack, folds, held, sample = fit_stack(members, scores, y, weights, count)
        state = _state(names, stack, sample)
        if held is not None:
            mass = folds.weights
            share = mix(held, mass)
            state["stack_weights"] = share
            mean = matmul(namespace(held).asarray(mass), held) / mass.sum()
            state["held_out_mean_losses"] = -np.asarray(mean)
            losses = cross_fitted_losses(held, folds.fold, mass, share)
            state["held_out_losses"] = folds.of_rows(losses)
            if on_host(held):
                state |= {_HELD_OUT: held, _HELD_OUT_WEIGHTS: mass}
        return state

    def _fit_blocks(self, rows: Any) -> State:
        source, whole, least = rows, rows.whole, rows.reader.least
        if rows.few:
            source = rows.all()
            state = self._fit_rows(source)
            if "held_out_losses" in state:
                squares = source.weights if whole else source.weights**2
                plain = row_losses_of_logits(source.scores, source.y, least)
                given = state["held_out_losses"], plain, source.weights, squares
                state["held_out_moments"] = loss_moments(*given)
        else:
            names, count = self._choose(rows.units, rows.k)
            members = [MEMBERS[name] for name in names]
            stack, mixed, sample = fit_stack_of_blocks(members, rows, count)
            state = {**_state(names, stack, sample), **mixed}
        if "held_out_moments" in state:
            expected = source.total(partial(_add_expected, state, whole, least))
            moments = state["held_out_moments"], expected["sums"]
            state["held_out_moments"] = np.concatenate(moments)
        return {**state, "rows": np.asarray(rows.n)}

    def _publish(self, state: State) -> None:
        super()._publish(state)
        # Not kept in files, because it is as long as the data.
        self.state_ = {name: value for name, value in state.items() if name not in _OF_ROWS}

    def _apply_in_blocks(self, state: State, scores: XArray) -> XArray:
        if on_host(scores) and "theta_draws" not in state:
            # Predict in threads, with rows as columns.
            members, stack = _stack(state)
            return mixture_on_host(members, stack, state["stack_weights"], scores)
        return super()._apply_in_blocks(state, scores)

    def _member_weights(self) -> dict[str, float]:
        weights = np.atleast_1d(self.stack_weights_).tolist()
        return dict(zip(self.member_names_, weights, strict=True))

    def _make_report(self, kept: KeptRows) -> Report:
        """Make the report from held-out losses, or from in-sample losses for "single"."""
        if "held_out_moments" in self.state_:
            sizes = kept.n, len(self.classes_)
            names, members = (self._title(), f"{sizes[1]} classes"), self._member_weights()
            return report_of_moments(names, sizes, members, self.state_["held_out_moments"])
        held = vars(self).get("held_out_losses_")
        if held is not None:
            # The fit has checked the rows.
            return report_of_rows(kept, self, held[kept.row_numbers], self._probabilities_at)
        return super()._make_report(kept)

    def _width(self, state: State, scores: XArray) -> int:
        # Each draw is from one member.
        members = 1 if "theta_draws" in state else len(_names(state))
        return 4 * scores.shape[1] * members

    def _apply(self, state: State, scores: XArray) -> XArray:
        if "theta_draws" in state:
            return super()._apply(state, scores)
        members, stack = _stack(state)
        return mixture(members, stack, state["stack_weights"], scores)

    def _precompute(self, state: State) -> State:
        """Sort draws by their member."""
        if "theta_draws" not in state:
            return state
        draws = state["theta_draws"].reshape(-1, state["theta_draws"].shape[-1])
        chosen = draws[:, -1].astype(int)
        counts = np.bincount(chosen, minlength=len(_names(state)))
        counted = {f"draws_of_{i}": np.asarray(count) for i, count in enumerate(counts)}
        return state | counted | {"theta_draws": draws[np.argsort(chosen, kind="stable")]}

    def _describe(self, state: State, theta: AnyArray) -> State:
        """Split draws into parameters of members, the weights, the scale, and the drawn member."""
        members, stack = _stack(state)
        names = [f"theta_{name}" for name in _names(state)]
        parts, start = [], 0
        for member in members:
            end = start + member.length(stack.basis.dimensions)
            parts.append(theta[..., start:end])
            start = end
        rest = theta[..., start:]
        return dict(zip(names, parts, strict=True)) | {
            "stack_weights": rest[..., :-2],
            "inverse": rest[..., -2],
            "member": rest[..., -1],
        }

    def _sample(self, state: State, rows: Source, seed: int) -> Draws:
        members, stack = _stack(state)
        held = (state[_HELD_OUT], state[_HELD_OUT_WEIGHTS]) if _HELD_OUT in state else None
        return sample_stack(
            members, stack, held, rows.all(), self.inference, self.num_samples, seed
        )

    def _state_of_intervals(self) -> State:
        if "theta_draws" in self.state_ or _SAMPLE not in self.state_:
            return super()._state_of_intervals()
        return self._computed_once("intervals", self.state_, self._draw)

    def _draw(self, state: State) -> State:
        members, stack = _stack(state)
        scores, weights = state[_SAMPLE], state[_SAMPLE_WEIGHTS]
        sample = Rows(scores, np.zeros(len(scores), int), weights)
        draws = draw_jointly(members, stack, np.atleast_1d(state["stack_weights"]), sample)
        return self._precompute({**state, "theta_draws": draws, _STEPS: np.asarray(True)})

    def _curves(self, state: State, theta: XArray, scores: XArray) -> XArray:
        """Compute probabilities (s, m, k) of draws, which are sorted by their members."""
        drawn, (members, stack) = self._describe(state, theta), _stack(state)
        counts = [int(state[f"draws_of_{i}"]) for i in range(len(members))]
        thetas = [drawn[f"theta_{name}"] for name in _names(state)]
        given = thetas, drawn["inverse"], counts, scores
        return apply_draws(members, stack, *given, linear=_STEPS in state)


def _names(state: State) -> list[str]:
    return [name for name in MEMBERS if f"theta_{name}" in state]


def _state(names: list[str], stack: Stack, sample: Rows) -> State:
    """Make the state of members with equal weights; keep the sample if there are few classes."""
    kept = {}
    if stack.basis.dimensions.k < MANY:
        kept = {_SAMPLE: np.asarray(sample.scores), _SAMPLE_WEIGHTS: np.asarray(sample.weights)}
    if stack.basis.dimensions.kernel:
        kept |= {f"kernel_{name}": getattr(stack.basis, name) for name in _KERNEL}
    return {
        **kept,
        "inverse": np.asarray(stack.scale.inverse),
        "smoothing": np.asarray(stack.scale.smoothing),
        "basis": stack.basis.directions,
        "stack_weights": np.full(len(names), 1 / len(names)),
        **{f"theta_{name}": theta for name, theta in zip(names, stack.thetas, strict=True)},
    }


def _add_expected(state: State, whole: bool, least: np.ndarray | None, rows: Rows) -> Sums:
    """Compute sums (1, 3) of the losses that the fit expects of some of its rows, for moments."""
    scores, y, weights = rows
    members, stack = _stack(state)
    probs = mixture_on_host(members, stack, state["stack_weights"], scores)
    given = class_losses_of_logits(scores, least), weights, weights if whole else weights**2
    return {"sums": expected_sums_of_probs(probs, y, *given)[None]}


def _stack(state: State) -> tuple[list[Member], Stack]:
    names = _names(state)
    values: dict[str, Any] = state
    scale = Scale(values["inverse"], values["smoothing"])
    thetas = [state[f"theta_{name}"] for name in names]
    basis = Basis.of_directions(values["basis"])
    if "kernel_centers" in state:
        basis = basis._replace(**{name: values[f"kernel_{name}"] for name in _KERNEL})
    return [MEMBERS[name] for name in names], Stack(scale, basis, thetas)
