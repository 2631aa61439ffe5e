"""Reports of fits: what was fitted, and the log loss to expect on new rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from bayescal._core.arrays import AnyArray, Array, X, XArray, namespace, on_host
from bayescal._core.display.tables import html_table
from bayescal._core.numerics import FLOOR, log_softmax
from bayescal.calibrators.base.draws import row_blocks
from bayescal.data.folds.deal import FoldedRows
from bayescal.data.scores import convert

if TYPE_CHECKING:
    import pandas as pd

#: Standard errors from which a gain is significant: a one-sided test at 5 %.
_SIGNIFICANT_ERRORS = 1.645


@dataclass(frozen=True)
class Report:
    """Report of a fit: what was fitted, and how much log loss it gains.

    Losses are means over rows. Every row is predicted by a fit without this row or without its
    fold, so the means estimate the loss on new rows. If ``in_sample`` is true, they are losses of
    the rows of the fit instead, which are too low. For multi-label problems, losses are means over
    labels. Differences are paired.

    Standard errors measure the distance of the estimates from the loss and the gain of this fit on
    new rows. In simulations of 30, 100 and 1,000 rows and 2 and 3 classes (calibrated scores, half
    the log odds, and bent log odds), intervals of ± 1.645 errors covered the gain of the fit in
    88 to 97 % of data sets, and its loss in 82 to 92 % (``benchmarks/coverage_gain.py``).

    Attributes
    ----------
    calibrator : str
        The fitted or chosen calibrator; ``reason`` names the problem it was chosen for.
    rows, classes : int
        Rows of positive weight, and classes or labels.
    members : dict of str to float
        Weights of the averaged calibrators, by name; empty if nothing is averaged. Means over
        labels for multi-label problems.
    log_loss, log_loss_error : float or None
        The mean and its standard error, in nats; None if unknown. The error is at least the one
        that the calibrated probabilities imply: if the scores separate the rows, their losses
        hardly differ, but losses of new rows may.
    uncalibrated, gain, gain_error : float or None
        The loss before calibration, the gain of calibration, and the standard error of the gain.
        None for raw scores and features.
    helps, hurts : bool or None
        Whether the gain is above (below) zero by more than 1.645 standard errors, which happens by
        chance in at most 5 % of data sets. If both are false, the rows are too few to decide; 100
        rows are too few for most calibrators that help. None in sample, where flexible calibrators
        always gain.
    in_sample : bool
        Whether the losses are those of the rows that the calibrator was fitted to.
    rows_judged : int or None
        Number of evenly drawn rows that the losses are means of; None for all rows.
    effective_rows : float or None
        Number of rows of equal weight with the same information. Integer weights are counts.
    parameters : int or None
        Number of fitted parameters, for parametric calibrators.
    status : str
        How the fit ended; equal to ``status_``.
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

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a data frame of pandas with one row; unknown ones are missing."""
        import pandas as pd

        row = {field.name: getattr(self, field.name) for field in fields(self)}
        members = row.pop("members")
        row |= {f"weight_{name}": weight for name, weight in members.items()}
        return pd.DataFrame([row]).set_index("calibrator")

    def to_markdown(self) -> str:
        """Return the report in Markdown, for documents and code hosts."""
        head, *rest = str(self).splitlines()
        return "\n".join([f"**{head}**", "", *(f"- {line}" for line in rest), ""])

    def _repr_html_(self) -> str:
        head, *rest = str(self).splitlines()
        rows = [line.split(": ", 1) for line in rest]
        return html_table(([*row, ""][:2] for row in rows), caption=head)

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
            kind = "in-sample" if self.in_sample else "expected"
            sample = "" if self.rows_judged is None else f" of {self.rows_judged:,} rows"
            mean = f"{self.log_loss:.4f} ± {self.log_loss_error:.4f}"
            lines.append(f"{kind} log loss{sample}: {mean}")
        if self.gain is not None:
            verdict = " in sample; expect less on new rows"
            if not self.in_sample:
                verdict = ": whether it helps is not clear"
                if self.helps or self.hurts:
                    verdict = ": it helps" if self.helps else ": it hurts"
            lines.append(
                f"uncalibrated: {self.uncalibrated:.4f}; gain {self.gain:+.4f} ± "
                f"{self.gain_error:.4f}{verdict}"
            )
        return "\n".join(lines)


def row_losses(probs: XArray, codes: np.ndarray) -> np.ndarray:
    """Compute log losses (n,); for multi-label codes (n, labels), means over labels."""
    return _of_observed(class_losses(_by_class(probs, codes)), codes)


def losses_left_out(
    folds: FoldedRows,
    rows: AnyArray,
    codes: np.ndarray,
    fit: Callable[[np.ndarray, np.ndarray], Callable[[AnyArray], AnyArray]],
) -> np.ndarray | None:
    """Compute the losses (n,) of rows by fits without their fold; None for a single row.

    ``fit`` takes the positions and the weights of the other rows, and returns a function that
    computes probabilities.
    """
    if folds.count == 1:
        return None
    losses = np.empty(len(folds.fold))
    for fold in range(folds.count):
        out = folds.fold == fold
        predict, test = fit(folds.index[~out], folds.weights[~out]), folds.index[out]
        losses[out] = row_losses(predict(rows[test]), codes[test])
    return folds.of_rows(losses)


def uncalibrated_losses(rows: AnyArray, codes: np.ndarray, inputs: str | None) -> np.ndarray | None:
    """Compute the log losses (n,) of scores (n, k) or (n, labels); None for raw scores."""
    losses = _losses_of_scores(rows, codes, inputs)
    return None if losses is None else _of_observed(losses, codes)


def class_losses(probs: XArray) -> XArray:
    """Compute the log losses of all classes."""
    xp = namespace(probs)
    return -xp.log(xp.maximum(probs, FLOOR))


def variances(probs: X, values: X) -> X:
    """Compute the variances (...) of values (..., k) under class probabilities (..., k)."""
    xp = namespace(probs)
    mean = xp.sum(probs * values, axis=-1)[..., None]
    return xp.sum(probs * (values - mean) ** 2, axis=-1)


def expected_sums(
    predict: Callable[[AnyArray], AnyArray],
    rows: AnyArray,
    codes: np.ndarray,
    inputs: str | None,
    weights: np.ndarray,
    squares: np.ndarray,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Sum (3,) the losses of the rows of a fit, and variances under its probabilities.

    The second result is that of :func:`uncalibrated_losses`.
    """
    sums, observed = np.zeros(3), []
    for part in row_blocks(len(codes), 8 * rows.shape[1]):
        uncalibrated = _losses_of_scores(rows[part], codes[part], inputs)
        given = codes[part], uncalibrated, weights[part], squares[part]
        sums += expected_sums_of_probs(predict(rows[part]), *given)
        if uncalibrated is not None:
            observed.append(_of_observed(uncalibrated, codes[part]))
    return sums, np.concatenate(observed) if observed else None


def expected_sums_of_probs(
    probs: XArray,
    codes: np.ndarray,
    uncalibrated: XArray | None,
    weights: np.ndarray,
    squares: np.ndarray,
) -> np.ndarray:
    """Sum (3,) losses, and the variances of losses and gains, with weights and squared weights.

    Labels that follow the calibrated probabilities give losses and gains these variances. That of
    gains is zero if the scores are neither probabilities nor logits. The sums are a fifth row of
    moments.
    """
    probs = _by_class(probs, codes)
    losses = class_losses(probs)

    def variance(values: XArray) -> np.ndarray:
        variance_by_label = np.asarray(variances(probs, values))
        # The variance of a mean of independent labels: the mean variance over their number.
        if codes.ndim == 1:
            return variance_by_label
        return variance_by_label.mean(axis=1) / variance_by_label.shape[1]

    gains = np.zeros(len(codes))
    if uncalibrated is not None:
        before = namespace(losses).asarray(uncalibrated, dtype=losses.dtype)
        gains = variance(before - losses)
    observed = _of_observed(losses, codes)
    return np.array([weights @ observed, squares @ variance(losses), squares @ gains])


def _by_class(probs: AnyArray, codes: np.ndarray) -> Array:
    """Return probabilities (n, k), or (n, labels, 2) for multi-label codes."""
    return probs if codes.ndim == 1 else np.stack([1 - probs, probs], axis=2)


def _losses_of_scores(rows: AnyArray, codes: np.ndarray, inputs: str | None) -> AnyArray:
    """Compute the log losses (n, k) or (n, labels, 2) of all classes before calibration.

    None for scores that are neither probabilities nor logits.
    """
    if inputs != "probs" and inputs != "logits":
        return None
    if codes.ndim == 2:
        return np.stack([_losses_of_scores(z[:, None], codes[:, 0], inputs) for z in rows.T], 1)
    least = np.full(max(2, rows.shape[1]), FLOOR)
    rows = rows if on_host(rows) else rows.astype(float)
    logs = convert(rows, inputs, "log_probabilities", least)[0]
    return namespace(logs).minimum(-logs, float(-np.log(FLOOR)))


def _of_observed(losses: XArray, codes: np.ndarray) -> np.ndarray:
    """Select the losses (n,) of the observed labels; average over several labels."""
    if codes.ndim == 1:
        return np.asarray(losses[np.arange(len(codes)), codes])
    return np.where(codes == 1, losses[:, :, 1], losses[:, :, 0]).mean(axis=1)


def row_losses_of_logits(z: np.ndarray, y: np.ndarray, least: np.ndarray | None) -> np.ndarray:
    """Compute log losses (n,) of logits, or of log probabilities raised to ``least``."""
    return class_losses_of_logits(z, least)[np.arange(len(y)), y]


def class_losses_of_logits(z: np.ndarray, least: np.ndarray | None) -> np.ndarray:
    """Compute log losses (n, k) of all classes from logits or log probabilities."""
    logs = np.clip(z.astype(float), -1e300, 1e300)
    if least is not None:
        # The next larger probability is at least twice as large.
        logs = np.where(logs < np.log(least) + 0.35, np.log(FLOOR), logs)
    return np.minimum(-log_softmax(logs), -np.log(FLOOR))


def point_losses_of_scores(z: np.ndarray, least: np.ndarray | None) -> np.ndarray:
    """Compute the uncalibrated log losses (2, n) of both classes from log odds (n,).

    Log odds that stand for a probability of zero count as those of the smallest probability.
    """
    losses = np.logaddexp(0, np.stack([z, -z]))
    if least is not None:
        # The next larger probability is at least twice as large.
        zero = np.stack([-z, z]) < np.log(least)[:, None] + 0.35
        losses = np.where(zero, -np.log(FLOOR), np.where(zero[::-1], 0.0, losses))
    return np.minimum(losses, -np.log(FLOOR))


def loss_moments(
    held_out: np.ndarray, uncalibrated: np.ndarray, weights: np.ndarray, squares: np.ndarray
) -> np.ndarray:
    """Compute additive moments (4, 3) of losses, from which a report is made.

    The columns are one, held-out losses, and losses before calibration. The first row holds
    weighted sums; the other three hold sums of products with squared weights.
    """
    values = np.stack([np.ones_like(held_out), held_out, uncalibrated])
    return np.concatenate([(values @ weights)[None], (values * squares) @ values.T])


def report_of_moments(
    names: tuple[str, str],
    sizes: tuple[int, int],
    members: dict[str, float],
    moments: np.ndarray | None,
) -> Report:
    """Make a report from moments of losses; without moments, losses are unknown."""
    if moments is None:
        return _report(names, sizes, members, [_UNKNOWN] * 3)
    total = moments[0, 0]

    def mean_and_error(*direction: float) -> tuple[float, float]:
        mean = float(moments[0] @ direction) / total
        centered = np.array(direction) - [mean, 0, 0]
        return mean, float(np.sqrt(max(centered @ moments[1:4] @ centered, 0.0)) / total)

    estimates = [mean_and_error(*direction) for direction in ((0, 1, 0), (0, 0, 1), (0, -1, 1))]
    sums = moments[4] if len(moments) == 5 else None
    if sums is None:
        # The unknown part of the variance is at most as large as the known part: see ``_report``.
        gain, spread = estimates[2]
        estimates[2] = gain, float(np.sqrt(2)) * spread
    return _report(names, sizes, members, estimates, (total, moments[1, 0]), sums)


def make_report(
    names: tuple[str, str],
    sizes: tuple[int, int],
    members: dict[str, float],
    held_out: np.ndarray | None,
    uncalibrated: np.ndarray | None,
    weights: np.ndarray,
    squares: np.ndarray,
    sums: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> Report:
    """Make a report from losses of rows.

    ``names`` are the calibrator and the reason for its choice, ``sizes`` the numbers of rows and
    classes. ``held_out`` are losses of rows left out of the fit, ``uncalibrated`` those before
    calibration, and ``squares`` the sums of squared weights of the rows. ``sums`` are those of
    ``expected_sums``, or None if ``held_out`` are losses in sample. ``groups`` number the groups of
    rows that depend on each other.
    """

    def mean_and_error(values: np.ndarray | None) -> tuple[float | None, float | None]:
        if values is None or sizes[0] < 2:
            return None, None
        total = weights.sum()
        mean = (weights * values).sum() / total
        if groups is None:
            variance = (squares * (values - mean) ** 2).sum()
        else:
            variance = (np.bincount(groups, weights * (values - mean)) ** 2).sum()
        return float(mean), float(np.sqrt(variance) / total)

    gain = None if held_out is None or uncalibrated is None else uncalibrated - held_out
    estimates = [mean_and_error(values) for values in (held_out, uncalibrated, gain)]
    return _report(names, sizes, members, estimates, (weights.sum(), squares.sum()), sums)


#: The mean and the standard error of an unknown loss.
_UNKNOWN = None, None


def _report(
    names: tuple[str, str],
    sizes: tuple[int, int],
    members: dict[str, float],
    estimates: Sequence[tuple[float | None, float | None]],
    mass: tuple[float, float] | None = None,
    sums: np.ndarray | None = None,
) -> Report:
    """Make a report from means and errors of losses, uncalibrated losses, and gains.

    ``mass`` are the sums of weights and of squared weights, ``sums`` those of ``expected_sums``.

    Let d be the error of the p parameters, and H the curvature of a row's loss. The gain of the fit
    is smaller than that of the best parameters by d'Hd / 2. Held-out losses exceed those of the
    best parameters by p / n - d'Hd / 2, so the estimate is by chance too optimistic if the fit is
    bad. The difference, d'Hd - p / n, has the variance 2p / n^2. Half of it is contained in the
    variance of the rows' differences. The other half is added here, with p / n estimated by the
    difference between held-out and in-sample losses.
    """
    (loss, error), (uncalibrated, _), (gain, spread) = estimates
    if sums is not None and mass is not None and loss is not None and error is not None:
        mean, *roots = sums[0] / mass[0], *(np.sqrt(variance) / mass[0] for variance in sums[1:])
        error = max(error, float(roots[0]))
        if spread is not None:
            chance = max(loss - mean, 0.0) * mass[1] / mass[0] ** 2
            spread = float(np.sqrt(max(spread, roots[1]) ** 2 + chance))
    helps = hurts = None
    if gain is not None and spread is not None:
        helps, hurts = gain > _SIGNIFICANT_ERRORS * spread, gain < -_SIGNIFICANT_ERRORS * spread
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
