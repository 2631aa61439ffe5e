"""Logistic calibration of log odds or of raw scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.arrays import XArray, namespace
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.online import OnlineCalibrator
from bayescal.calibrators.binary.log_odds import LogOddsCalibrator
from bayescal.data.checks import check_choice
from bayescal.data.given import MEMORY
from bayescal.data.rows import Rows, Source
from bayescal.smoothing import instance_targets, platt_targets


@dataclass(eq=False, repr=False)
class Logistic(OnlineCalibrator, LogOddsCalibrator):
    r"""Logistic calibration: log odds that are linear in the score z.

    .. math:: \operatorname{logit} \hat p = w z + c

    Scores may be log odds or arbitrary real numbers. On log odds, without smoothing, this is beta
    calibration with a = b. Fitting is O(n), or O(n^2) with instance-based targets. More than
    262,144 log odds in memory are counted in 65,536 bins of each class, unless they are far apart
    or the slope is above 4; this changes probabilities by less than 1e-8.

    Parameters
    ----------
    smoothing : None, "platt", float or "instance"
        Targets of the fit: the labels; Platt's targets, which give Platt scaling (``"sigmoid"`` in
        scikit-learn); labels moved by a constant in [0, 1/2); or the targets of
        :func:`bayescal.smoothing.instance_targets`.

    Attributes
    ----------
    slope_, intercept_ : float

    See Also
    --------
    LogisticRegression : A classifier of features, with penalties, priors and presets.

    Notes
    -----
    Intervals assume that the true log odds are a line: with 1,000 rows, intervals of level 0.9
    covered 29 % of bent log odds (``benchmarks/coverage_bands.py``).

    References
    ----------
    J. Platt (1999), Probabilistic outputs for support vector machines.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.Logistic().fit(p, y).predict_proba([0.2, 0.7])[:, 1].round(2).tolist()
    [0.32, 0.6]
    """

    smoothing: float | Literal["platt", "instance"] | None = None

    slope_: float = field(init=False)
    intercept_: float = field(init=False)

    _steep_by_coefficients: ClassVar[bool] = True
    _domain = "real"

    def _check_options(self) -> None:
        if isinstance(self.smoothing, str):
            check_choice(self.smoothing, "smoothing", ("platt", "instance"))
        elif self.smoothing is not None and not 0 <= self.smoothing < 0.5:
            raise ValueError(f"smoothing must lie in [0, 0.5), got {self.smoothing}")

    def _check_learns_on(self) -> None:
        if self.smoothing == "instance":
            raise ValueError(
                "smoothing must not be 'instance' for partial_fit, which needs all rows at once"
            )

    def _columns(self, state: State, scores: XArray) -> XArray:
        xp, z = namespace(scores), self._standardized_scores(state, scores)
        return xp.stack([xp.ones_like(z), z])

    @property
    def sources(self) -> frozenset[str]:
        """Kinds of sources that ``fit`` accepts; "instance" needs rows in memory."""
        return MEMORY if self.smoothing == "instance" else super().sources

    def _with_targets(self, rows: Source) -> Source:
        if not self.smoothing:
            return rows
        if self.smoothing == "instance":
            in_memory = rows.all()
            return in_memory._replace(y=instance_targets(*in_memory))
        labels = np.array([0, 1])
        if self.smoothing == "platt":
            targets = platt_targets(labels, rows.mass)
        else:
            targets = labels + self.smoothing * (1.0 - 2 * labels)
        return rows.mapped(partial(_replace_labels, targets), rows.largest)

    def _describe(self, state: State, theta: np.ndarray) -> State:
        slope = theta[..., 1] / state.get("scale", 1.0)
        return {"intercept": theta[..., 0] - slope * state.get("center", 0.0), "slope": slope}


def _replace_labels(targets: np.ndarray, rows: Rows) -> Rows:
    """Replace labels by the targets of the two classes."""
    return rows._replace(y=targets[rows.y])
