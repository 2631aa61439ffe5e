"""Methods that a sweep can compare: logistic regressions, informed predictions, estimators."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import AnyModel, Array
from bayescal._core.execution.padding import padded_length
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.optimize import Status
from bayescal._core.numerics import sigmoid
from bayescal._core.warnings import AccuracyWarning, SamplingWarning, ignored
from bayescal.models import Family, Prior
from bayescal.posterior import posterior
from bayescal.regression.binary.choose import CandidateGrid, choose
from bayescal.regression.binary.fit import fit_many
from bayescal.regression.binary.objective import Regression
from bayescal.regression.method import CAUCHY, INTERCEPT, SMOOTHINGS, STRENGTHS
from bayescal.regression.model import as_distribution
from bayescal.smoothing import platt_targets
from bayescal.smoothing.instance import batched_instance_targets
from bayescal.sweeps._cells import Cell, DataSetBlock, describe_estimator, digest_of
from bayescal.sweeps._identity import digest_of_value

if TYPE_CHECKING:
    from bayescal.inference.result import Posterior

LOGISTIC = "normal", "platt", "smoothed", "L1", "L2", "ibls", "cauchy_map"
INFORMED = "predictive", "preds", "coeffs", "map"
OPTIMAL = "optimal"
#: Number of folds of the cross-validated methods.
FOLDS = 10
#: Compiling a fit takes a second, and fitting 1,000 data sets of 128 rows a twentieth of that.
_LEAST_ROWS = 128
#: Largest difference of equal probabilities, some of them in single precision.
_SAME = 1e-6


class Answer(NamedTuple):
    """Log odds (b, m) of the test points of a block of data sets, and statuses (b,) of the fits."""

    log_odds: Array
    status: np.ndarray | Status = Status.CONVERGED


#: Posteriors of known models, for use by all recipes of a block.
Shared: TypeAlias = "dict[Hashable, Posterior]"


class Recipe(ABC):
    """A method; equal recipes give equal answers."""

    #: Whether it handles data sets one by one, and only those that count.
    one_by_one: ClassVar[bool] = False

    @property
    @abstractmethod
    def identity(self) -> list[object]:
        """Return what distinguishes equal recipes from others, as JSON can represent it."""

    @abstractmethod
    def answer(self, cell: Cell, block: DataSetBlock, key: jax.Array, shared: Shared) -> Answer:
        """Fit each training set, and predict at its test points.

        ``shared`` keeps what other recipes for the same block can use.
        """


@dataclass(frozen=True)
class LogisticRecipe(Recipe):
    """A preset of logistic regression."""

    name: str

    @property
    def identity(self) -> list[object]:
        return ["logistic", self.name]

    def answer(self, cell: Cell, block: DataSetBlock, key: jax.Array, shared: Shared) -> Answer:
        lines = fit_lines(self.name, block.x, block.y)
        with float64():
            log_odds = lines.intercept[:, None] + lines.slope[:, None] * block.test_x
        return Answer(log_odds, np.asarray(lines.status))


@dataclass(frozen=True)
class Informed(Recipe):
    """Predictions that know the prior, or assume another one."""

    method: str = "predictive"
    integrator: str = "quadrature"
    num_samples: int = 100_000
    prior: Prior | None = None

    def __post_init__(self) -> None:
        if self.method not in INFORMED:
            raise ValueError(f"method must be one of {', '.join(INFORMED)}, got {self.method!r}")
        if self.prior is not None and not isinstance(self.prior, Prior):
            raise TypeError(f"prior must be a Prior, got {type(self.prior).__name__}")

    @property
    def identity(self) -> list[object]:
        belief = [] if self.prior is None else [digest_of(self.prior)]
        return ["informed", self.method, self.integrator, self.num_samples, *belief]

    def answer(self, cell: Cell, block: DataSetBlock, key: jax.Array, shared: Shared) -> Answer:
        options = {"integrator": self.integrator, "num_samples": self.num_samples, "key": key}
        options["class_prior"] = 0.5  # test sets are balanced, whatever training sets are
        prior = cell.prior if self.prior is None else self.prior
        cache_key = ("posterior", digest_of(prior), self.integrator, self.num_samples)
        # Some of thousands of data sets are hard; statuses mark them.
        with ignored(AccuracyWarning), ignored(SamplingWarning):
            if cache_key not in shared:
                x = np.asarray(block.x)
                data = x, np.broadcast_to(block.y, x.shape)
                shared[cache_key] = posterior(prior, data, **options)
            with float64():
                prediction = shared[cache_key].predict(block.test_x, method=self.method)
        return Answer(prediction.log_odds)


@dataclass(frozen=True)
class Optimal(Recipe):
    """Predictions that know the parameters of each data set: no method can do better."""

    @property
    def identity(self) -> list[object]:
        return ["optimal"]

    def answer(self, cell: Cell, block: DataSetBlock, key: jax.Array, shared: Shared) -> Answer:
        with float64():
            log_odds = _known(cell.prior.family, block.parameters, block.test_x)
        return Answer(log_odds)


@dataclass(eq=False)
class EstimatorRecipe(Recipe):
    """A scikit-learn classifier or a calibrator of raw scores, fitted to each data set in turn."""

    estimator: AnyModel
    one_by_one = True

    @property
    def identity(self) -> list[object]:
        return ["estimator", *describe_estimator(self.estimator)]

    def answer(self, cell: Cell, block: DataSetBlock, key: jax.Array, shared: Shared) -> Answer:
        from sklearn.base import clone

        x, test = np.asarray(block.x), np.asarray(block.test_x)
        log_odds, status = np.zeros(test.shape), np.zeros(len(x), int)
        for i, scores in enumerate(x[: block.wanted]):
            model = _seeded(clone(self.estimator), scores)
            with ignored():
                model.fit(scores[:, None], block.y)
            status[i] = Status[str(getattr(model, "status_", "converged")).upper()]
            log_odds[i] = _log_odds_of(model, test[i][:, None])
        return Answer(log_odds, status)


@dataclass(eq=False)
class Function(Recipe):
    """A user's function of training scores, labels and test scores that returns log odds."""

    function: Callable[..., object]
    one_by_one = True

    @property
    def identity(self) -> list[object]:
        call = type(self.function).__call__
        code = [digest_of_value(call)] if isinstance(call, FunctionType) else []
        return ["function", digest_of_value(self.function), *code]

    def answer(self, cell: Cell, block: DataSetBlock, key: jax.Array, shared: Shared) -> Answer:
        x, test = np.asarray(block.x), np.asarray(block.test_x)
        results = [
            np.asarray(self.function(scores, block.y, points), float)
            for scores, points in zip(x[: block.wanted], test, strict=False)
        ]
        if any(result.shape != test.shape[1:] for result in results):
            raise ValueError(
                f"{getattr(self.function, '__name__', self.function)} must return log odds of "
                f"shape {test.shape[1:]}, got {results[0].shape}"
            )
        log_odds = np.zeros(test.shape)
        log_odds[: block.wanted] = results
        return Answer(log_odds)


class Lines(NamedTuple):
    """Log odds intercept + slope x, and the status of each fit; all of shape (b,)."""

    intercept: jax.Array
    slope: jax.Array
    status: jax.Array


def fit_lines(name: str, x: jax.Array, y: np.ndarray) -> Lines:
    """Fit a preset of logistic regression to scores (b, n), all with the labels (n,).

    Rows without weight are added, so that training sets of several sizes share a compilation.
    """
    length = padded_length(len(y), _LEAST_ROWS)

    def padded(rows: jax.Array) -> jax.Array:
        missing = [(0, 0)] * (rows.ndim - 1) + [(0, length - len(y))]
        return jnp.pad(rows, missing, mode="edge")

    with float64():
        weights = jnp.asarray(np.arange(length) < len(y), float)
        if name in ("smoothed", "L1", "L2"):
            grid = _grid(name, y)
            grid = grid._replace(targets=padded(grid.targets))
            labels = padded(jnp.asarray(y, float))
            return _cross_validated(padded(x), labels, weights, grid, name == "L1")
        scores, mean, scale = _standardize(x) if name == "cauchy_map" else (x, 0.0, 1.0)
        if name == "ibls":
            labels = jnp.broadcast_to(jnp.asarray(y), x.shape)
            targets = _instance(x[..., None], labels, jnp.ones(x.shape))
        else:
            row_targets = platt_targets(y) if name == "platt" else y.astype(float)
            targets = jnp.broadcast_to(jnp.asarray(row_targets), x.shape)
        zero, every = jnp.zeros(len(x)), jnp.broadcast_to(weights, (len(x), length))
        problem = Regression(padded(scores)[..., None], padded(targets), every, zero, zero)
        if name == "cauchy_map":
            laws = as_distribution(CAUCHY), as_distribution(INTERCEPT)
            problem = problem._replace(prior=laws[0], intercept_prior=laws[1])
        fits = fit_many(problem)
        slope = fits.coef[:, 0] / scale
        return Lines(fits.intercept - slope * mean, slope, fits.status)


def _grid(name: str, y: np.ndarray) -> CandidateGrid:
    if name == "smoothed":
        zero = jnp.zeros(len(SMOOTHINGS))
        return CandidateGrid(jnp.asarray(y + SMOOTHINGS[:, None] * (1.0 - 2 * y)), zero, zero)
    strengths, zero = jnp.asarray(STRENGTHS), jnp.zeros(len(STRENGTHS))
    penalties = (strengths, zero) if name == "L1" else (zero, strengths)
    return CandidateGrid(jnp.asarray(y, float)[None], *penalties)


@partial(jax.jit, static_argnames="lasso")
def _cross_validated(
    x: jax.Array, y: jax.Array, weights: jax.Array, grid: CandidateGrid, lasso: bool
) -> Lines:
    # Spread the classes evenly over the folds; rows of a class are exchangeable.
    fold = jnp.arange(x.shape[1]) % FOLDS

    def fit_row(row: jax.Array) -> Lines:
        fit = choose(row[:, None], y, weights, fold, grid, FOLDS, lasso).fit
        return Lines(fit.intercept[0], fit.coef[0, 0], fit.status[0])

    return jax.lax.map(fit_row, x)


@jax.jit
def _instance(x: jax.Array, y: jax.Array, weights: jax.Array) -> jax.Array:
    return batched_instance_targets(x, y, weights, jnp.zeros(()), "silverman", "pooled")


@jax.jit
def _standardize(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Scale scores to mean 0 and standard deviation 1/2; return also both scaling constants."""
    mean = x.mean(axis=1)
    scale = 2 * x.std(axis=1)
    scale = jnp.where(scale > 0, scale, 1)
    return (x - mean[:, None]) / scale[:, None], mean, scale


def as_recipes(methods: Sequence[object] | Mapping[str, object]) -> dict[str, Recipe]:
    """Check the methods and return them by name."""
    if isinstance(methods, str):
        raise TypeError(f"methods must be in a sequence or mapping, got the text {methods!r}")
    pairs = methods.items() if isinstance(methods, Mapping) else [(_name(m), m) for m in methods]
    if not pairs:
        raise ValueError("methods must not be empty")
    recipes = {}
    for name, method in pairs:
        if not isinstance(name, str):
            raise TypeError(
                f"methods must be a mapping from names if not all are names, got {name!r}"
            )
        if name in recipes:
            raise ValueError(f"methods must differ, got {name!r} twice")
        recipes[name] = _as_recipe(method)
    return recipes


def _name(method: object) -> object:
    """Name an estimator after its class and a function after itself; others need a name."""
    if hasattr(method, "fit"):
        return type(method).__name__
    named = callable(method) and getattr(method, "__name__", "<lambda>") != "<lambda>"
    return getattr(method, "__name__", method) if named else method


def _calibrator(name: str) -> EstimatorRecipe:
    """Make the recipe of a calibrator by name, for raw scores or for log odds."""
    from bayescal.calibrators.names import make_calibrator

    calibrator = make_calibrator(name, argument="methods")
    raw = getattr(calibrator, "domain", "real") in ("real", "order")
    return EstimatorRecipe(calibrator.set_params(inputs="scores" if raw else "logits"))


def _as_recipe(method: object) -> Recipe:
    if isinstance(method, str):
        if method in LOGISTIC:
            return LogisticRecipe(method)
        if method in INFORMED:
            return Informed(method)
        if method == OPTIMAL:
            return Optimal()
        try:
            return _calibrator(method)
        except ValueError as error:
            known = ", ".join((*LOGISTIC, *INFORMED, OPTIMAL))
            raise ValueError(f"{error}; methods may also be {known}") from None
    if isinstance(method, Mapping):
        options = [option.name for option in fields(Informed)]
        if strange := [name for name in method if name not in options]:
            raise ValueError(
                f"a method that is a dict must have options among {', '.join(options)}, got "
                f"{strange[0]!r}"
            )
        return Informed(**method)
    if isinstance(method, Prior):
        return Informed(prior=method)
    if hasattr(method, "fit") and hasattr(method, "predict_proba"):
        return EstimatorRecipe(method)
    if callable(method):
        return Function(method)
    raise TypeError(
        "a method must be a name, options of informed predictions, a prior, an estimator or a "
        f"function, got {type(method).__name__}"
    )


def _seeded(model: AnyModel, x: np.ndarray) -> AnyModel:
    """Set unset seeds from the training scores, so that results depend on no other randomness."""
    seed = int.from_bytes(hashlib.sha256(x.tobytes()).digest()[:4], "little")
    options = model.get_params().items()
    unset = [n for n, v in options if n.split("__")[-1] == "random_state" and v is None]
    return model.set_params(**dict.fromkeys(unset, seed))


def _log_odds_of(model: AnyModel, x: np.ndarray) -> np.ndarray:
    """Compute log odds (m,), from the decision function if they are, since it keeps digits."""
    p = np.asarray(model.predict_proba(x), float)
    if hasattr(model, "decision_function"):
        decision = np.asarray(model.decision_function(x), float)
        # That of a support vector machine, for example, is a distance.
        if np.allclose(sigmoid(decision), p[:, 1], rtol=0, atol=_SAME, equal_nan=True):
            return decision
    with np.errstate(divide="ignore"):
        return np.log(p[:, 1]) - np.log(p[:, 0])


@partial(jax.jit, static_argnums=0)
def _known(family: Family, parameters: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Compute log odds (b, m) for known parameters."""

    def log_odds_of(item: tuple[dict[str, jax.Array], jax.Array]) -> jax.Array:
        row, points = item
        origin = points.mean()
        natural = family.natural(row, origin)
        return family.features(points, origin, jax.numpy) @ (natural[1] - natural[0])

    return jax.lax.map(log_odds_of, (parameters, x))
