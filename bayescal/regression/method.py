"""A method of logistic regression: its options, targets, fit and posterior."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.execution.padding import pad_axis, padded_length
from bayescal._core.execution.precision import float64
from bayescal._core.minimization.optimize import Minimum, Status
from bayescal._core.shapes import Float, Shaped
from bayescal.data.checks import check_choice, check_count, check_real, check_strength
from bayescal.data.folds.deal import fold_features
from bayescal.models.prior import check_density, has_point_masses
from bayescal.regression.binary.choose import CandidateGrid, choose, choose_on_host
from bayescal.regression.binary.fit import fit_single, on_host
from bayescal.regression.binary.objective import (
    BinaryDesign,
    CoefficientPrior,
    Distribution,
    Regression,
)
from bayescal.regression.binary.posterior import Draws, Kinked, Target, find_mode, sample
from bayescal.regression.model import regression_sites
from bayescal.smoothing import instance_targets, platt_targets

#: Arrays by their axes.
Features: TypeAlias = 'Float[np.ndarray, "rows features"]'
PerRow: TypeAlias = 'Float[np.ndarray, " rows"]'
Labels: TypeAlias = 'Shaped[np.ndarray, " rows"]'

#: Options of the study's methods, by the names that the study uses.
PRESETS: dict[str, dict[str, str]] = {
    "normal": {},
    "platt": {"smoothing": "platt"},
    "smoothed": {"smoothing": "cv"},
    "L1": {"penalty": "l1", "strength": "cv"},
    "L2": {"penalty": "l2", "strength": "cv"},
    "ibls": {"smoothing": "instance"},
    "cauchy_map": {"coef_prior": "cauchy"},
    "cauchy": {"coef_prior": "cauchy", "inference": "nuts"},
}
#: Candidates of cross-validation.
STRENGTHS = np.geomspace(1e-5, 1e3, 9)
SMOOTHINGS = np.geomspace(1e-5, 1e-1, 40)
#: Gelman et al. (2008).
CAUCHY = CoefficientPrior(0.0, 2.5, 1.0)
INTERCEPT = CoefficientPrior(0.0, 10.0, 1.0)


class Scaling(NamedTuple):
    """Center that is subtracted from features, and scale that they are divided by."""

    mean: Float[np.ndarray, " features"]
    scale: Float[np.ndarray, " features"]

    def apply(self, x: Features) -> Features:
        """Scale features."""
        same = not self.mean.any() and (self.scale == 1).all()
        return x if same else (x - self.mean) / self.scale

    def back(
        self, beta: Float[np.ndarray, "*draws 1+features"]
    ) -> Float[np.ndarray, "*draws 1+features"]:
        """Convert intercept and coefficients to those of the unscaled features."""
        beta = np.array(beta)
        beta[..., 1:] /= self.scale
        beta[..., 0] -= beta[..., 1:] @ self.mean
        return beta


class Settled(NamedTuple):
    """Inputs of the fit once targets and strengths are chosen or given."""

    targets: Float[np.ndarray, " rows"]
    l1: float
    l2: float
    smoothing: float | None
    strength: float | None
    #: Mean log losses of the held-out rows.
    losses: Float[np.ndarray, "candidates folds"] | None


@dataclass(frozen=True)
class Method:
    """Options of logistic regression, as documented in ``bayescal.LogisticRegression``."""

    smoothing: float | Literal["platt", "cv", "instance"] | None = None
    penalty: Literal["l1", "l2", "elasticnet"] | None = None
    strength: float | Literal["cv"] = "cv"
    l1_ratio: float = 0.5
    coef_prior: Literal["cauchy"] | Distribution | None = None
    inference: Literal["map", "laplace", "nuts"] = "map"
    folds: int = 10
    num_samples: int = 1000

    def __post_init__(self) -> None:
        check_choice(self.penalty, "penalty", (None, "l1", "l2", "elasticnet"))
        check_choice(self.inference, "inference", ("map", "laplace", "nuts"))
        check_count(self.num_samples, "num_samples")
        check_count(self.folds, "folds", 2)
        if isinstance(self.smoothing, str):
            check_choice(self.smoothing, "smoothing", ("platt", "cv", "instance"))
        elif self.smoothing is not None:
            check_real(self.smoothing, "smoothing", "a number, 'platt', 'cv' or 'instance'")
            if not 0 <= self.smoothing < 0.5:
                raise ValueError(f"smoothing must lie in [0, 0.5), got {self.smoothing}")
        check_strength(self.strength)
        check_real(self.l1_ratio, "l1_ratio")
        if not 0 <= self.l1_ratio <= 1:
            raise ValueError(f"l1_ratio must lie in [0, 1], got {self.l1_ratio}")
        if isinstance(self.coef_prior, str):
            check_choice(self.coef_prior, "coef_prior", ("cauchy",))
        elif self.coef_prior is not None and not hasattr(self.coef_prior, "log_prob"):
            raise TypeError(
                f"coef_prior must be 'cauchy' or a distribution of NumPyro, got {self.coef_prior!r}"
            )
        support = getattr(self.coef_prior, "support", None)
        if support is not None and support is not _real_numbers():
            raise ValueError(
                "coef_prior must be a distribution over all real numbers, got "
                f"{type(self.coef_prior).__name__}"
            )
        check_density("coef_prior", self.coef_prior)
        if has_point_masses(self.coef_prior):
            raise ValueError(
                "coef_prior must be without point masses, which have no density: a scale mixture, "
                "such as Laplace or StudentT, also shrinks small coefficients"
            )
        if self.coef_prior is not None and self.penalty is not None:
            raise ValueError("penalty must be None beside coef_prior, got both")
        if self.smoothing == "cv" and self.penalty is not None and self.strength == "cv":
            raise ValueError("strength must be a number beside smoothing='cv', got 'cv' for both")
        improper = self.coef_prior is None and (self.penalty != "l2" or self.strength == 0)
        if self.inference != "map" and improper:
            raise ValueError(
                f"inference={self.inference!r} must have a prior; pass coef_prior='cauchy' "
                "or penalty='l2' with a positive strength"
            )

    def settle(self, x: Features, y: Labels, weights: PerRow) -> Settled:
        """Determine the targets and the strength of the penalty; cross-validate if requested."""
        shape, d = getattr(self.coef_prior, "batch_shape", ()), x.shape[1]
        if shape not in ((), (1,), (d,)):
            raise ValueError(
                f"coef_prior must have batch shape () or ({d},) to match X, got {shape}"
            )
        if self.smoothing in ("instance", "cv") or self.penalty is not None:
            x = scaling_for(x, weights, "centered").apply(x)
        smoothing = self.smoothing if isinstance(self.smoothing, int | float) else None
        targets = self._targets(x, y, weights)[None]
        strengths = np.zeros(1)
        if self.penalty is not None:
            strengths = STRENGTHS if self.strength == "cv" else np.array([float(self.strength)])
        if self.smoothing == "cv":
            targets = y + SMOOTHINGS[:, None] * (1 - 2 * y)
            strengths = np.repeat(strengths, len(SMOOTHINGS))
        l1_fraction = {"l1": 1.0, "elasticnet": self.l1_ratio}.get(self.penalty or "", 0.0)
        best, losses = 0, None
        if len(strengths) > 1:
            grid = CandidateGrid(targets, l1_fraction * strengths, (1 - l1_fraction) * strengths)
            best, losses = self._cross_validate(x, y, weights, grid)
        if self.smoothing == "cv":
            smoothing = float(SMOOTHINGS[best])
        strength = float(strengths[best])
        return Settled(
            targets[min(best, len(targets) - 1)],
            l1_fraction * strength,
            (1 - l1_fraction) * strength,
            smoothing,
            None if self.penalty is None else strength,
            losses,
        )

    def _targets(self, x: Features, y: Labels, weights: PerRow) -> PerRow:
        if self.smoothing == "platt":
            return platt_targets(y, weights)
        if self.smoothing == "instance":
            return instance_targets(x, y, weights, scale="pooled")
        constant = self.smoothing if isinstance(self.smoothing, int | float) else 0.0
        return y + constant * (1.0 - 2 * y)

    def _cross_validate(
        self, x: Features, y: Labels, weights: PerRow, grid: CandidateGrid[np.ndarray]
    ) -> tuple[int, Float[np.ndarray, "candidates folds"]]:
        """Return the best candidate, and the held-out losses of all candidates."""
        folds = fold_features(x, y, weights, self.folds)
        fold, grid = folds.fold, grid._replace(targets=np.asarray(grid.targets)[:, folds.index])
        x, y, weights = folds.take(x, y)
        if on_host(x, newton=True):
            return choose_on_host(x, y, weights, fold, grid, self.folds)
        length = padded_length(len(x))
        with float64():
            choice = choose(
                pad_axis(x, length, 0),
                pad_axis(y.astype(float), length, 0),
                np.pad(weights, (0, length - len(x))),
                pad_axis(fold, length, 0),
                grid._replace(targets=pad_axis(grid.targets, length, 1)),
                self.folds,
                lasso=bool(np.any(grid.l1)),
            )
            return int(choice.best), np.asarray(choice.losses)

    def fit(self, x: Features, weights: PerRow, settled: Settled) -> Minimum[np.ndarray]:
        """Find the optimum, with coefficients for the unscaled features."""
        sampled = self.inference != "map"
        scaling = scaling_for(x, weights, self.coef_prior or ("centered" if sampled else None))
        minimum = self._fit_scaled(scaling.apply(x), weights, settled)
        return minimum._replace(x=scaling.back(np.asarray(minimum.x)))

    def _fit_scaled(self, x: Features, weights: PerRow, settled: Settled) -> Minimum[np.ndarray]:
        """Find the optimum for scaled features."""
        problem = Regression(x, settled.targets, weights, settled.l1, settled.l2)
        if self.inference == "map" and self.coef_prior is None:
            return fit_single(problem, lasso=settled.l1 > 0)
        problem = problem._replace(intercept_prior=INTERCEPT)
        laplace = _laplace_parameters(self.coef_prior, x.shape[1])
        if laplace is None:
            written = self.coef_prior is None or isinstance(self.coef_prior, str)
            prior = CAUCHY if isinstance(self.coef_prior, str) else self.coef_prior
            minimum = fit_single(problem._replace(prior=prior))
            if minimum.status == Status.LIMIT and not written:
                # The search on the host goes on from a saddle point.
                minimum = find_mode(self._target(x, weights, settled))[0]
            return minimum
        # Newton's method stops where the density has a kink; the absolute penalty knows it.
        center, rate = laplace
        minimum = fit_single(problem._replace(l1=rate, center=center), lasso=True)
        return minimum._replace(value=minimum.value + np.log(2 / rate).sum())

    def sample(self, x: Features, weights: PerRow, settled: Settled, seed: int) -> Draws:
        """Draw coefficients for the unscaled features."""
        scaling = scaling_for(x, weights, self.coef_prior or "centered")
        x, d = scaling.apply(x), x.shape[1]
        laplace, kinked = _laplace_parameters(self.coef_prior, d), None
        if laplace is not None:
            kink, rate = (np.append(0.0, part) for part in laplace)
            kinked = Kinked(self._fit_scaled(x, weights, settled), kink, rate**2 / 2)
        target = self._target(x, weights, settled)
        draws = sample(target, self.inference, self.num_samples, seed, kinked=kinked)
        return draws._replace(coefficients=scaling.back(draws.coefficients))

    def _target(self, x: Features, weights: PerRow, settled: Settled) -> Target:
        """Make the posterior for scaled features."""
        n, d = x.shape
        columns = np.concatenate([np.ones((1, n)), x.T])
        # The prior of the coefficients: Cauchy, or the normal one that equals the squared penalty.
        spread = CAUCHY.scale if settled.l2 == 0 else settled.l2**-0.5
        heavy = 1.0 if settled.l2 == 0 else 0.0
        prior = CoefficientPrior(
            np.zeros(1 + d),
            np.r_[INTERCEPT.scale, np.full(d, spread)],
            np.concatenate([[1.0], np.full(d, heavy)]),
        )
        target = Target(BinaryDesign(columns, settled.targets, weights), np.zeros(1 + d), prior)
        coef_prior: CoefficientPrior | Distribution = CoefficientPrior(0.0, spread, heavy)
        if self.coef_prior is not None and not isinstance(self.coef_prior, str):
            coef_prior = self.coef_prior
            is_coefficient = np.concatenate([[0.0], np.ones(d)])
            target = target._replace(distribution=self.coef_prior, distributed=is_coefficient)
        return target._replace(sites=partial(regression_sites, INTERCEPT, coef_prior, d))


def _real_numbers() -> object:
    from numpyro.distributions import constraints

    return constraints.real


def _laplace_parameters(
    prior: str | Distribution | None, d: int
) -> tuple[Float[np.ndarray, " features"], Float[np.ndarray, " features"]] | None:
    """Return the center and strengths of absolute penalties that equal a prior, if any do."""
    if prior is None or isinstance(prior, str):
        return None
    from numpyro.distributions import Laplace

    if not isinstance(prior, Laplace):
        return None
    center, scale = (np.broadcast_to(np.asarray(a, float), d) for a in (prior.loc, prior.scale))
    return center, 1 / scale


def scaling_for(x: Features, weights: PerRow, prior: str | Distribution | None) -> Scaling:
    """Choose the scaling of features for a prior.

    None leaves them unchanged. "cauchy" centers them and makes their standard deviation 1/2, or the
    range of features with two values 1. Any other prior has them centered.
    """
    d = x.shape[1]
    if prior is None:
        return Scaling(np.zeros(d), np.ones(d))
    low, high = x.min(axis=0), x.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    proportion = weights / weights.sum()
    inside = (x - low) / spread
    middle = proportion @ inside
    mean = low + spread * middle
    if not isinstance(prior, str) or prior != "cauchy":
        return Scaling(mean, np.ones(d))
    sd = np.sqrt(proportion @ (inside - middle) ** 2)
    two = ((inside == 0) | (inside == 1)).all(axis=0)
    return Scaling(mean, spread * np.where(two | (sd == 0), 1.0, 2 * sd))
