"""What a fit reports: what was fitted, and what to expect of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.arrays import namespace, on_host
from bayescal._core.numerics import FLOOR, ignoring_underflow, log_softmax
from bayescal.calibrators.base.draws import row_blocks
from bayescal.data.scores import Inputs, convert

#: A gain of more standard errors than this is no chance: a test of one side at 5 %.
_CLEAR = 1.645


@dataclass(frozen=True)
class Report:
    """What a fit says of itself: what was fitted, and what it gains in log loss.

    Losses are means over rows, each predicted without itself or without its fold, so that they
    estimate the loss on new rows. Where ``in_sample`` is true, they are losses of the rows of the
    fit instead, and so are too low. For several labels, losses are means over labels. Differences
    are paired.

    The errors say how far the estimates are from what this very fit loses and gains on new rows.
    In simulations of 30, 100 and 1,000 rows and 2 and 3 classes (calibrated scores, half the log
    odds, and bent log odds), gains ± 1.645 errors held the gain of the fit in 88 to 97 % of data
    sets, and losses ± 1.645 errors its loss in 82 to 92 % (``benchmarks/coverage_gain.py``).

    Attributes
    ----------
    calibrator : str
        What was fitted or chosen, and in ``reason`` for what.
    rows, classes : int
        Rows of positive weight, and classes or labels.
    members : dict of str to float
        What is averaged, and its weight; empty where nothing is. Of several labels, means over
        these.
    log_loss, log_loss_error : float or None
        The mean, and its standard error, in nats; None if it is not known. The error is at least
        what the calibrated probabilities say of it: losses of rows that the scores separate hardly
        differ, but those of new rows may.
    uncalibrated, gain, gain_error : float or None
        The loss of the scores as they are, what calibration gains, and the standard error of that.
        None for raw scores and features.
    helps, hurts : bool or None
        Whether the gain is above zero, or below it, by more than 1.645 standard errors, which by
        chance happens in at most 5 % of data sets. If neither is, the rows are too few to tell:
        most calibrators that help are not told from 100 rows. None in sample, where flexible
        calibrators always gain.
    in_sample : bool
        Whether losses are of rows that the calibrator was fitted to.
    rows_judged : int or None
        So many of the rows losses are of, drawn evenly; None for all.
    effective_rows : float or None
        As many rows of equal weight would say as much. Whole weights are counts.
    parameters : int or None
        Numbers that were fitted, of calibrators with parameters.
    status : str
        How the fit ended, as ``status_``.
    """

    calibrator: str
    reason: str
    rows: int
    classes: int
    members: dict[str, float]
    log_loss: float | None
    log_loss_error: float | None
    uncalibrated: float | None
    gain: float | None
    gain_error: float | None
    helps: bool | None
    in_sample: bool = False
    rows_judged: int | None = None
    effective_rows: float | None = None
    parameters: int | None = None
    status: str = "converged"
    hurts: bool | None = None

    def __str__(self) -> str:
        facts = [f"{self.reason}, {self.rows:,} rows"]
        if self.effective_rows is not None and abs(self.effective_rows - self.rows) >= 0.5:
            facts.append(f"effectively {self.effective_rows:,.0f}")
        if self.parameters is not None:
            facts.append(f"{self.parameters:,} parameter{'s' * (self.parameters != 1)}")
        if self.status != "converged":
            facts.append(self.status)
        lines = [f"{self.calibrator}: {', '.join(facts)}"]
        if self.members:
            members = ", ".join(f"{name} {weight:.2f}" for name, weight in self.members.items())
            lines.append(f"weights: {members}")
        if self.log_loss is None and not self.in_sample:
            lines.append("too few different rows, or none left out, to say what to expect")
        elif self.log_loss is not None:
            what = "in-sample" if self.in_sample else "expected"
            of = "" if self.rows_judged is None else f" of {self.rows_judged:,} rows"
            lines.append(f"{what} log loss{of}: {self.log_loss:.4f} ± {self.log_loss_error:.4f}")
        if self.gain is not None:
            verdict = "in sample: new rows gain less"
            if not self.in_sample:
                verdict = "whether it helps is not clear"
                if self.helps or self.hurts:
                    verdict = "it helps" if self.helps else "it hurts"
            lines.append(
                f"uncalibrated: {self.uncalibrated:.4f}; gain {self.gain:+.4f} ± "
                f"{self.gain_error:.4f}: {verdict}"
            )
        return "\n".join(lines)


class Expected(NamedTuple):
    """What a fit says of rows that it was fitted to.

    Their losses, and the variances of their losses, and of what they gain, if labels follow the
    calibrated probabilities. The last is None if the scores are none.
    """

    losses: np.ndarray
    loss_variance: np.ndarray
    gain_variance: np.ndarray | None


@ignoring_underflow
def row_losses(probs: Any, codes: np.ndarray) -> np.ndarray:
    """Return log losses (n,), of several labels (n, labels) their means."""
    return _of_labels(class_losses(_of_classes(probs, codes)), codes)


@ignoring_underflow
def row_losses_of_scores(rows: Any, codes: np.ndarray, inputs: Inputs) -> np.ndarray:
    """Return the log losses (n,) of scores (n, k) or (n, labels) as they are."""
    return _of_labels(_losses_of_scores(rows, codes, inputs), codes)


def class_losses(probs: Any) -> Any:
    """Return the log losses of all classes."""
    xp = namespace(probs)
    return -xp.log(xp.maximum(probs, FLOOR))


def variances(probs: Any, values: Any) -> Any:
    """Return variances (...) of values (..., k) of classes with probabilities (..., k)."""
    xp = namespace(probs)
    mean = xp.sum(probs * values, axis=-1)[..., None]
    return xp.sum(probs * (values - mean) ** 2, axis=-1)


@ignoring_underflow
def expect(
    predict: Callable[[Any], Any], rows: Any, codes: np.ndarray, inputs: str | None
) -> Expected:
    """Return what a fit, which predicts probabilities, says of rows that it was fitted to."""
    parts = []
    for part in row_blocks(len(codes), 8 * rows.shape[1]):
        plain = None
        if inputs == "probs" or inputs == "logits":
            plain = _losses_of_scores(rows[part], codes[part], inputs)
        parts.append(expect_of(predict(rows[part]), codes[part], plain))
    return join(parts)


@ignoring_underflow
def expect_of(probs: Any, codes: np.ndarray, plain: Any) -> Expected:
    """Return what a fit says of rows with calibrated probabilities, and losses as they are."""
    probs = _of_classes(probs, codes)
    own = class_losses(probs)

    def variance(values: Any) -> np.ndarray:
        each = np.asarray(variances(probs, values))
        # Of independent labels the variance of a mean is the mean variance by their number.
        return each if codes.ndim == 1 else each.mean(axis=1) / each.shape[1]

    scores = None if plain is None else namespace(own).asarray(plain, dtype=own.dtype)
    gains = None if scores is None else variance(scores - own)
    return Expected(_of_labels(own, codes), variance(own), gains)


def join(parts: Sequence[Expected]) -> Expected:
    """Return what is said of all rows, from parts of them."""
    losses, of_losses, of_gains = zip(*parts, strict=True)
    gains = None if of_gains[0] is None else np.concatenate(of_gains)
    return Expected(np.concatenate(losses), np.concatenate(of_losses), gains)


def _of_classes(probs: Any, codes: np.ndarray) -> Any:
    """Return probabilities (n, k), of several labels (n, labels, 2)."""
    return probs if codes.ndim == 1 else np.stack([1 - probs, probs], axis=2)


def _losses_of_scores(rows: Any, codes: np.ndarray, inputs: Inputs) -> Any:
    """Return the log losses (n, k) or (n, labels, 2) of all classes, of scores as they are."""
    if codes.ndim == 2:
        return np.stack([_losses_of_scores(z[:, None], codes[:, 0], inputs) for z in rows.T], 1)
    least = np.full(max(2, rows.shape[1]), FLOOR)
    rows = rows if on_host(rows) else rows.astype(float)
    logs = convert(rows, inputs, "log_probabilities", least)[0]
    return namespace(logs).minimum(-logs, float(-np.log(FLOOR)))


def _of_labels(losses: Any, codes: np.ndarray) -> np.ndarray:
    """Return the losses (n,) of what was seen, of several labels their means."""
    if codes.ndim == 1:
        return np.asarray(losses[np.arange(len(codes)), codes])
    return np.where(codes == 1, losses[:, :, 1], losses[:, :, 0]).mean(axis=1)


@ignoring_underflow
def row_losses_of_logits(z: np.ndarray, y: np.ndarray, least: np.ndarray | None) -> np.ndarray:
    """Return the same of logits, or logarithms of probabilities that were raised to the least."""
    return class_losses_of_logits(z, least)[np.arange(len(y)), y]


def class_losses_of_logits(z: np.ndarray, least: np.ndarray | None) -> np.ndarray:
    """Return those (n, k) of all classes."""
    logs = np.clip(z.astype(float), -1e300, 1e300)
    if least is not None:
        # The next probability is at least twice as much.
        logs = np.where(logs < np.log(least) + 0.35, np.log(FLOOR), logs)
    return np.minimum(-log_softmax(logs), -np.log(FLOOR))


def point_losses_of_scores(z: np.ndarray, least: np.ndarray | None) -> np.ndarray:
    """Return the log losses (2, n) of log odds (n,), of a row of either class, as they are.

    Log odds of probabilities of zero, which stand below all others, count as those of the floor.
    """
    losses = np.logaddexp(0, np.stack([z, -z]))
    if least is not None:
        # The next probability is at least twice as much.
        zero = np.stack([-z, z]) < np.log(least)[:, None] + 0.35
        losses = np.where(zero, -np.log(FLOOR), np.where(zero[::-1], 0.0, losses))
    return np.minimum(losses, -np.log(FLOOR))


def moments_of(
    held: np.ndarray, plain: np.ndarray, weights: np.ndarray, squares: np.ndarray
) -> np.ndarray:
    """Return moments (4, 3) of rows, which add up: all that a report needs of their losses.

    Of one, losses without the row, and those of scores as they are: the sums, and in three rows
    those of products, with squared weights.
    """
    values = np.stack([np.ones_like(held), held, plain])
    return np.concatenate([(values @ weights)[None], (values * squares) @ values.T])


def sums_of(expected: Expected, weights: np.ndarray, squares: np.ndarray) -> list[float]:
    """Return the sums (3,) of what is expected, which add up: a fifth row of moments."""
    variance = 0.0 if expected.gain_variance is None else expected.gain_variance
    each = weights * expected.losses, squares * expected.loss_variance, squares * variance
    return [float(own.sum()) for own in each]


def report_of_moments(
    names: tuple[str, str],
    sizes: tuple[int, int],
    members: dict[str, float],
    moments: np.ndarray | None,
) -> Report:
    """Return the same as :func:`make_report`, from moments; without these, what is known."""
    if moments is None:
        return _report(names, sizes, members, [_NOTHING] * 3)
    total = moments[0, 0]

    def mean_and_error(*direction: float) -> tuple[float, float]:
        mean = float(moments[0] @ direction) / total
        centered = np.array(direction) - [mean, 0, 0]
        return mean, float(np.sqrt(max(centered @ moments[1:4] @ centered, 0.0)) / total)

    found = [mean_and_error(*own) for own in ((0, 1, 0), (0, 0, 1), (0, -1, 1))]
    if len(moments) == 5:
        return _report(names, sizes, members, found, (total, moments[1, 0]), moments[4].tolist())
    # What is not known is at most as much again: see ``_report``.
    gain, spread = found[2]
    found[2] = gain, float(np.sqrt(2)) * spread
    return _report(names, sizes, members, found, (total, moments[1, 0]))


def make_report(
    names: tuple[str, str],
    sizes: tuple[int, int],
    members: dict[str, float],
    held: np.ndarray | None,
    plain: np.ndarray | None,
    weights: np.ndarray,
    squares: np.ndarray,
    expected: Expected | None = None,
) -> Report:
    """Return what was chosen and why, of how many rows and classes, and what it costs.

    ``held`` are losses without the row, ``plain`` those of scores as they are, of so much weight,
    ``squares`` the sums of squared weights of rows, and ``expected`` what the fit says of them,
    unless ``held`` are losses in sample.
    """

    def mean_and_error(values: np.ndarray | None) -> tuple[float | None, float | None]:
        if values is None or sizes[0] < 2:
            return None, None
        total = weights.sum()
        mean = (weights * values).sum() / total
        return float(mean), float(np.sqrt((squares * (values - mean) ** 2).sum()) / total)

    gain = None if held is None or plain is None else plain - held
    found = [mean_and_error(own) for own in (held, plain, gain)]
    sums = None if expected is None else sums_of(expected, weights, squares)
    return _report(names, sizes, members, found, (weights.sum(), squares.sum()), sums)


#: The mean and the standard error of what is not known.
_NOTHING = None, None


def _report(
    names: tuple[str, str],
    sizes: tuple[int, int],
    members: dict[str, float],
    found: Sequence[tuple[float | None, float | None]],
    mass: tuple[float, float] | None = None,
    sums: Sequence[float] | None = None,
) -> Report:
    """Return a report from means and errors of losses, those of scores as they are, and gains.

    ``mass`` are sums of weights and of their squares, ``sums`` of what is expected.

    Let d be the error of the p parameters, and H the curvature of a row's loss. The gain of the fit
    is below that of the best parameters by d'Hd / 2, what is left out loses p / n - d'Hd / 2 more
    than these: so by chance the estimate is too high where the fit is bad. The difference, d'Hd -
    p / n, has the variance 2p / n^2. Half of that is in the variance of the rows' differences; the
    other half is added, p / n being the difference to losses in sample.
    """
    (loss, error), (uncalibrated, _), (gain, spread) = found
    if sums is not None and mass is not None and loss is not None and error is not None:
        mean, *roots = sums[0] / mass[0], *(np.sqrt(own) / mass[0] for own in sums[1:])
        error = max(error, float(roots[0]))
        if spread is not None:
            chance = max(loss - mean, 0.0) * mass[1] / mass[0] ** 2
            spread = float(np.sqrt(max(spread, roots[1]) ** 2 + chance))
    helps = hurts = None
    if gain is not None and spread is not None:
        helps, hurts = gain > _CLEAR * spread, gain < -_CLEAR * spread
    return Report(
        calibrator=names[0],
        reason=names[1],
        rows=sizes[0],
        classes=sizes[1],
        members=members,
        log_loss=loss,
        log_loss_error=error,
        uncalibrated=uncalibrated,
        gain=gain,
        gain_error=spread,
        helps=helps,
        hurts=hurts,
        effective_rows=None if mass is None else float(mass[0] ** 2 / mass[1]),
    )
