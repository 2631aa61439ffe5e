"""What a fit reports: what was fitted, and what to expect of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayescal._core.arrays import on_host
from bayescal._core.numerics import FLOOR, ignoring_underflow, log_softmax
from bayescal.calibrators._inputs import Inputs, convert


@dataclass(frozen=True)
class Report:
    """What a fit says of itself: what was fitted, and what it gains in log loss.

    Losses are means over rows, each predicted without itself or without its fold, so that they are
    what to expect of new data; but ``in_sample`` says where they are of the very rows of the fit,
    and so are too good. Of several labels they are means over these, too. Differences are paired.

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
        The mean, and its standard error, in nats; None if it is not known.
    uncalibrated, gain, gain_error : float or None
        The loss of the scores as they are, what calibration gains, and the standard error of that.
        None for raw scores and features.
    helps : bool or None
        Whether the gain exceeds twice its standard error. Where it does not, the calibrator may be
        near the identity. None in sample, where flexible calibrators always gain.
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
                verdict = "it helps" if self.helps else "whether it helps is not clear"
            lines.append(
                f"uncalibrated: {self.uncalibrated:.4f}; gain {self.gain:+.4f} ± "
                f"{self.gain_error:.4f}: {verdict}"
            )
        return "\n".join(lines)


@ignoring_underflow
def row_losses(probs: Any, codes: np.ndarray) -> np.ndarray:
    """Return log losses (n,), of several labels (n, labels) their means."""
    if codes.ndim == 1:
        return -np.log(np.maximum(np.asarray(probs[np.arange(len(codes)), codes]), FLOOR))
    own = np.where(codes == 1, probs, 1 - probs)
    return -np.log(np.maximum(own, FLOOR)).mean(axis=1)


@ignoring_underflow
def row_losses_of_scores(rows: Any, codes: np.ndarray, inputs: Inputs) -> np.ndarray:
    """Return the log losses (n,) of scores (n, k) or (n, labels) as they are."""
    if codes.ndim == 2:
        columns = zip(rows.T, codes.T, strict=True)
        return np.mean([row_losses_of_scores(z[:, None], y, inputs) for z, y in columns], axis=0)
    least = np.full(max(2, rows.shape[1]), FLOOR)
    rows = rows if on_host(rows) else rows.astype(float)
    logs = convert(rows, inputs, "log_probabilities", least)[0]
    return np.minimum(-np.asarray(logs[np.arange(len(codes)), codes]), -np.log(FLOOR))


@ignoring_underflow
def row_losses_of_logits(z: np.ndarray, y: np.ndarray, least: np.ndarray | None) -> np.ndarray:
    """Return the same of logits, or logarithms of probabilities that were raised to the least."""
    logs = np.clip(z.astype(float), -1e300, 1e300)
    if least is not None:
        # The next probability is at least twice as much.
        logs = np.where(logs < np.log(least) + 0.35, np.log(FLOOR), logs)
    return np.minimum(-log_softmax(logs)[np.arange(len(y)), y], -np.log(FLOOR))


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


def report_of_moments(
    names: tuple[str, str],
    sizes: tuple[int, int],
    members: dict[str, float],
    moments: np.ndarray | None,
) -> Report:
    """Return the same as :func:`make_report`, from moments; without these, what is known."""
    if moments is None:
        return _report(names, sizes, members, [_NOTHING] * 3, None)
    total = moments[0, 0]

    def mean_and_error(*direction: float) -> tuple[float, float]:
        mean = float(moments[0] @ direction) / total
        centered = np.array(direction) - [mean, 0, 0]
        return mean, float(np.sqrt(max(centered @ moments[1:] @ centered, 0.0)) / total)

    found = [mean_and_error(*own) for own in ((0, 1, 0), (0, 0, 1), (0, -1, 1))]
    return _report(names, sizes, members, found, float(total**2 / moments[1, 0]))


def make_report(
    names: tuple[str, str],
    sizes: tuple[int, int],
    members: dict[str, float],
    held: np.ndarray | None,
    plain: np.ndarray | None,
    weights: np.ndarray,
    squares: np.ndarray,
) -> Report:
    """Return what was chosen and why, of how many rows and classes, and what it costs.

    ``held`` are losses without the row, ``plain`` those of scores as they are, of so much weight,
    and ``squares`` the sums of squared weights of rows.
    """

    def mean_and_error(values: np.ndarray | None) -> tuple[float | None, float | None]:
        if values is None or sizes[0] < 2:
            return None, None
        total = weights.sum()
        mean = (weights * values).sum() / total
        return float(mean), float(np.sqrt((squares * (values - mean) ** 2).sum()) / total)

    gain = None if held is None or plain is None else plain - held
    found = [mean_and_error(own) for own in (held, plain, gain)]
    return _report(names, sizes, members, found, float(weights.sum() ** 2 / squares.sum()))


#: The mean and the standard error of what is not known.
_NOTHING = None, None


def _report(
    names: tuple[str, str],
    sizes: tuple[int, int],
    members: dict[str, float],
    found: Sequence[tuple[float | None, float | None]],
    effective: float | None,
) -> Report:
    """Return a report from means and errors of losses, those of scores as they are, and gains."""
    (loss, error), (uncalibrated, _), (gain, spread) = found
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
        helps=None if gain is None or spread is None else gain > 2 * spread,
        effective_rows=effective,
    )
