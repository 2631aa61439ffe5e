"""Correct calibrated probabilities for class proportions that differ from the calibration rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, AnyModel, ArrayLike, UserData, XArray, to_host
from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.keywords import ConstructorSignature, new_with_other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.random.keys import seed_of
from bayescal._core.warnings import AccuracyWarning, warn
from bayescal.calibrators.base.dispatch import published_at_once
from bayescal.calibrators.base.draws import mean_of_draws
from bayescal.calibrators.base.function import PredictFunction, Tree
from bayescal.data.blocks.stream import Blocks, as_blocks, map_blocks
from bayescal.data.checks import as_numpy, check_finite, check_level
from bayescal.data.label_names import Classes, class_array, column_names, in_order
from bayescal.data.labels import label_array, read_labels
from bayescal.data.scores import check_rows, transform
from bayescal.data.weights import check_weights
from bayescal.deployment.assumption import MAX_CLASSES, ShiftCheck, check_mixture, score_cells
from bayescal.deployment.recalibration import (
    as_rows,
    draw_recalibrations,
    ends_of_few,
    exact,
    shifted,
    warn_of_few_rows,
)
from bayescal.deployment.rows import (
    CalibrationRows,
    NewRows,
    block_predictor,
    compress,
    find_populations,
    kept_rows,
    read_probabilities,
    shift_block,
    snapshot,
)
from bayescal.deployment.shares import LEVELS, Population, integrate_shares, known_shares
from bayescal.inference import read_class_prior

if TYPE_CHECKING:
    from numpyro.distributions import Distribution

#: Number of classes above which the check is computed on first access.
_QUICK_CLASSES = 20
#: Probabilities below this are rounding errors.
_TINY = 1e-12
#: Assumed number of errors among calibration rows whose predicted probability is zero.
_ERRORS = 0.1


@dataclass(eq=False, repr=False)
class PriorShift(ClassifierMixin, BaseEstimator):
    r"""Correct calibrated probabilities for label shift: changed class proportions.

    Use it when classes are more or less frequent in new data than in the calibration data, but the
    features within each class are unchanged: for example, a disease is rarer in this hospital, or
    fraud is more frequent this month. The new class proportions (shares) are known, or are
    estimated from scores without labels.

    If the densities of the scores within each class are unchanged,

    .. math:: p'(y \mid x) \propto p(y \mid x)\, \rho_y / \pi_y

    with the calibrated probabilities p, the class proportions :math:`\pi` of the calibration data
    and the new proportions :math:`\rho`. New rows without labels have the likelihood :math:`\prod_i
    \sum_y p(y \mid x_i) \rho_y / \pi_y`, and :math:`\rho` has a Dirichlet prior. Predictions are
    averages over the posterior of :math:`\rho`, of :math:`\pi` and of the calibrator; credible
    intervals include all three uncertainties.

    Parameters
    ----------
    calibrator : fitted calibrator or classifier, optional
        None means that the scores are calibrated probabilities.
    class_prior : float, array of shape (k,) or NumPyro distribution, optional
        The new class proportions, as in :func:`posterior_predict`. Pass probabilities if they are
        known (a single number for the second of two classes; a dictionary or a series by class
        may have any order), or a ``Beta`` or ``Dirichlet`` of ``numpyro.distributions`` as the
        prior from which they are estimated. The default is a uniform prior.
    calibration_shares : float or array of shape (k,), optional
        Class proportions of the calibration data, or a dictionary or a series by class. Pass them
        if no calibration rows are available; the calibrator is then treated as exact, and intervals
        are too narrow unless it was fitted to many more rows than there are new rows.
    classes : sequence of k labels or int, optional
        Labels of the columns, if there is no calibrator.
    random_state : int, RandomState or None, default 0
        Seed of the 40 draws of the calibrator. None uses a fresh seed for every fit.

    Attributes
    ----------
    classes_ : array of shape (k,)
    shares_ : array of shape (k,) or (populations, k)
        Posterior means of the new class proportions.
    calibration_shares_ : array of shape (k,)
        Posterior means of the class proportions of the calibration data.
    populations_ : array of shape (populations,), or None
        Labels of the populations, sorted.
    clipped_ : int
        Number of new rows with a probability of zero. The calibrator is assumed to have made 0.1
        such errors among all calibration rows.
    check_ : ShiftCheck, or a list with one for each population
        Test of the label-shift assumption. Needs calibration rows and at most 100 classes.
    calibrator_ : fitted calibrator
    state_ : dict of arrays

    Notes
    -----
    The uncertainty of any calibrator is represented by 40 draws from the posterior of a small
    recalibration of its probabilities, given the calibration rows: slope, offset and curvature of
    the log odds for two classes, a slope and one offset per class for more. Each draw also
    determines the class proportions :math:`\pi`, because the two errors are strongly correlated.
    New rows do not reweight these draws, because misfit of the calibrator would count as evidence.
    If the uncertainty of the calibrator is ignored, 90 % intervals of the proportions contain the
    truth in as few as 40 % of data sets with 5,000 new rows.

    For each draw, the posterior of the proportions is integrated by quadrature for two classes, and
    by importance sampling for more. Rows of two classes are merged into cells of 0.05 of the log
    odds, so the time hardly depends on their number.

    Calibration rows that the scores nearly separate hardly determine the slope. Then
    :meth:`predict_interval` warns: in simulations of 30 and 100 rows, 90 % intervals contained
    probabilities that are close to neither 0 nor 1 in 39 % (``Logistic``) and 51 %
    (``Temperature``), those of ``Auto`` the probabilities of new rows, often within 1e-4 of 0 or 1,
    in 46 %. Intervals of proportions contained the truth in 90 to 95 %.

    References
    ----------
    M. Saerens, P. Latinne and C. Decaestecker (2002), Adjusting the outputs of a classifier to new
    a priori probabilities: the mode of the posterior. C. Elkan (2001), The foundations of
    cost-sensitive learning. A. Alexandari, A. Kundaje and A. Shrikumar (2020), Maximum likelihood
    with bias-corrected calibration is hard-to-beat at label shift adaptation. A. Ziegler and
    P. Czyż (2024), Bayesian quantification with black-box estimators.

    See Also
    --------
    posterior_predict : class shares of known generative models.

    Examples
    --------
    A model calibrated on balanced classes meets data with 10 % of class 1:

    >>> import numpy as np
    >>> import bayescal as bc
    >>> def draw(n, share, rng):
    ...     y = (rng.random(n) < share).astype(int)
    ...     return 2.4 * (rng.normal(size=n) + 2.4 * (y - 0.5)), y
    >>> rng = np.random.default_rng(0)
    >>> calibrator = bc.Auto(inputs="logits").fit(*draw(2000, 0.5, rng))
    >>> scores, y = draw(1000, 0.1, rng)
    >>> shift = bc.PriorShift(calibrator).fit(scores)
    >>> shift.shares_.round(2).tolist()
    [0.89, 0.11]
    >>> lower, upper = shift.shares_interval(0.9)
    >>> bool(lower[1] < y.mean() < upper[1])
    True
    >>> loss = [bc.metrics.log_loss(f.predict_proba(scores), y) for f in (calibrator, shift)]
    >>> bool(loss[1] < 0.7 * loss[0])
    True
    """

    __new__ = new_with_other_words
    __signature__ = ConstructorSignature()

    calibrator: AnyModel = None
    class_prior: ArrayLike | Distribution | None = None
    calibration_shares: ArrayLike | None = field(default=None, kw_only=True)
    classes: Classes = field(default=None, kw_only=True)
    random_state: int | np.random.RandomState | None = field(default=0, kw_only=True)

    classes_: np.ndarray = field(init=False)
    shares_: np.ndarray = field(init=False)
    calibration_shares_: np.ndarray = field(init=False)
    populations_: np.ndarray | None = field(init=False)
    clipped_: int = field(init=False)
    calibrator_: AnyModel = field(init=False)
    state_: dict[str, np.ndarray] = field(init=False)

    @property
    def inputs(self) -> str:
        """Kind of the scores, as for the calibrator."""
        return getattr(self.calibrator, "inputs", "probs")

    @published_at_once
    @ignoring_underflow
    @single_threaded_blas()
    def fit(
        self,
        scores: ArrayLike | Blocks | None = None,
        y: None = None,
        *,
        sample_weight: ArrayLike | None = None,
        populations: ArrayLike | None = None,
        calibration: Sequence[object] | None = None,
    ) -> Self:
        """Estimate the class proportions of new rows from their scores.

        Parameters
        ----------
        scores : array-like of shape (m, k), or (m,) or (m, 1) for two classes, or Blocks, optional
            New scores of the kind that the calibrator takes. Optional if ``class_prior`` contains
            known proportions. :class:`Blocks` and other sources that are read in blocks take one
            pass; their labels are ignored.
        y : None
            Ignored; labels are not needed.
        sample_weight : array-like of shape (m,), optional
            Non-negative; an integer weight equals repeating the row.
        populations : array-like of shape (m,), optional
            Labels of the populations (such as sites or days) of the rows. Proportions are estimated
            for each population, all in one compiled program.
        calibration : (scores, y) or (scores, y, sample_weight), optional
            The calibration rows, by default those that the calibrator keeps of its fit: at most
            2,048, a random sample if there were more. A calibrator read from a file has none.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If neither calibration rows nor ``calibration_shares`` are available, if a class is
            absent from the calibration rows, or if scores, weights, shares or populations are
            invalid.
        sklearn.exceptions.NotFittedError
            If the calibrator is not fitted.

        Warns
        -----
        AccuracyWarning
            If ``check_`` rejects the label-shift assumption (p < 0.01). With several populations or
            more than 20 classes, it is only computed when accessed.
        """
        for name in ("_checks", "n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
        seed = seed_of(self.random_state)
        rng = np.random.default_rng(seed)
        self.calibrator_ = snapshot(self.calibrator)
        known = self._read_calibration(calibration)
        k = len(self.classes_)
        estimated, alpha = read_class_prior(self.class_prior, self.classes_)
        if scores is None and estimated:
            raise ValueError(
                "scores must be given to estimate the class shares; or pass known shares as "
                "class_prior"
            )
        floors = np.array([_TINY, _TINY])
        if known is not None:
            floors[1] = min(_ERRORS / as_rows(known.weights).sum(), _ERRORS / k)
        new = self._read_new(scores, sample_weight, populations, floors)
        zero = (new.probs == 0).any() or (known is not None and (known.probs == 0).any())
        floor = float(floors[int(zero)])
        if known is None:
            recalibration = exact(self.calibration_shares, self.classes_)
        else:
            logs = np.log(np.maximum(known.probs, floor))
            recalibration = draw_recalibrations(logs, known.codes, known.weights, rng)
        count = 1 if self.populations_ is None else len(self.populations_)
        if estimated:
            logs = np.log(np.maximum(new.probs, floor))
            groups = [new.index == group for group in range(count)]
            parts = [Population(logs[rows], new.counts(rows)) for rows in groups]
            shares = integrate_shares(parts, recalibration, alpha, rng)
        else:
            shares = known_shares(alpha, count, len(recalibration.theta))
        log_calibration = recalibration.log_shares
        self.shares_ = shares.mean[0] if self.populations_ is None else shares.mean
        self.calibration_shares_ = np.exp(log_calibration).mean(axis=0)
        self.clipped_ = int(new.clipped[int(zero)])
        self.state_ = {
            "theta": recalibration.theta,
            "log_ratio": shares.log_points - log_calibration[:, None, :],
            "floor": np.array(floor),
            "share_quantiles": shares.quantiles,
            "share_at_zero": shares.at_zero,
            "seed": np.array(seed),
        }
        if known is not None and len(new.probs) and k <= MAX_CLASSES:
            self._keep_cells(known, new, count)
            quick = self.populations_ is None and k <= _QUICK_CLASSES
            check = self.check_ if quick else None
            if isinstance(check, ShiftCheck) and check.p_value < 0.01:
                warn(str(check), AccuracyWarning)
        return self

    @property
    def check_(self) -> ShiftCheck | list[ShiftCheck]:
        """Test of the assumption that only the class proportions differ."""
        check_is_fitted(self)
        if "cells" not in self.state_:
            raise AttributeError(
                "check_ needs new scores, calibration rows and at most 100 classes; pass "
                "calibration=(scores, y) to fit"
            )
        if "_checks" not in vars(self):
            known, seed = self.state_["class_cells"], int(self.state_["seed"])
            pairs = zip(self.state_["cells"], np.atleast_2d(self.shares_), strict=True)
            with single_threaded_blas():
                self._checks = [check_mixture(known, cells, share, seed) for cells, share in pairs]
        return self._checks[0] if self.populations_ is None else self._checks

    def shares_interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Compute credible intervals of the class proportions.

        Parameters
        ----------
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (k,) or (populations, k)
            Central intervals. If the density of a proportion is largest at zero, its interval
            begins at zero, and all remaining probability is above the interval. The interval of
            the other one of two classes then ends at one.
        """
        check_is_fitted(self)
        level = check_level(level)
        table, at_zero = self.state_["share_quantiles"], self.state_["share_at_zero"]
        lower, central, upper = (
            np.apply_along_axis(lambda row, at=at: np.interp(at, LEVELS, row), -1, table)
            for at in ((1 - level) / 2, (1 + level) / 2, level)
        )
        ends = np.stack([np.where(at_zero, 0.0, lower), np.where(at_zero, upper, central)])
        if len(self.classes_) == 2:
            ends = np.where(at_zero[:, ::-1], 1 - ends[::-1, :, ::-1], ends)
        return (ends[0], ends[1]) if self.populations_ is not None else (ends[0][0], ends[1][0])

    @ignoring_underflow
    def predict_proba(
        self, scores: ArrayLike | Blocks, populations: ArrayLike | None = None
    ) -> AnyArray:
        """Compute the probabilities of all classes under the new class proportions.

        Parameters
        ----------
        scores : array-like of shape (m, k), or (m,) or (m, 1) for two classes, or Blocks
        populations : array-like of shape (m,), optional
            Populations of the rows, as in the fit; needed if the fit had populations.

        Returns
        -------
        array of shape (m, k), float64
            Blocks and sources that are read in blocks give :class:`Blocks`, computed when they are
            read; Dask arrays give Dask arrays.
        """
        if (blocks := as_blocks(scores)) is not None:
            check_is_fitted(self)
            group = int(self._index_of(populations, 1)[0])
            predict = block_predictor(self.calibrator_, blocks.names, self.classes_)
            shift = partial(shift_block, self._arrays(group), predict)
            return map_blocks(shift, blocks, scores, len(self.classes_))
        return self._predict(scores, populations, mean_of_draws)

    @ignoring_underflow
    def predict_interval(
        self, scores: ArrayLike, level: float = 0.9, populations: ArrayLike | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute central credible intervals of the probabilities under the new class proportions.

        Parameters
        ----------
        scores, populations
            As for :meth:`predict_proba`.
        level : float
            Posterior probability, in (0, 1). If shares are known, too narrow from 0.975 on.

        Returns
        -------
        lower, upper : arrays of shape (m, k); (m,) for the second of two classes

        Warns
        -----
        AccuracyWarning
            If the calibration rows hardly determine the slope of the recalibration; see the notes.
        """
        level = check_level(level)
        ends = self._predict(scores, populations, partial(ends_of_few, level=level))
        warn_of_few_rows(self.state_["theta"])
        if len(self.classes_) == 2:
            ends = ends[..., 1]
        return ends[:, 0, ...], ends[:, 1, ...]

    def predict(self, scores: ArrayLike, populations: ArrayLike | None = None) -> np.ndarray:
        """Return the most probable class (m,) of each row under the new class proportions."""
        codes = np.argmax(self.predict_proba(scores, populations), axis=1)
        return self.classes_[codes]

    def as_function(self, population: object = None) -> PredictFunction:
        """Return the calibrator and the shift as one pure function of arrays of any library.

        Parameters
        ----------
        population : label, optional
            Needed if the fit had populations.

        Returns
        -------
        PredictFunction
            ``f(scores)`` computes ``predict_proba``, and ``f.interval(scores)``
            ``predict_interval``.

        Raises
        ------
        TypeError
            If the calibrator is a classifier of another library.
        """
        check_is_fitted(self)
        given = None if population is None else [population]
        group = int(self._index_of(given, 1)[0])
        return PredictFunction(*self._as_parts(group), self._columns())

    def __sklearn_clone__(self) -> Self:
        # A clone of the calibrator would not be fitted.
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "state_")

    def _read_calibration(self, calibration: Sequence[object] | None) -> CalibrationRows | None:
        """Read the calibration rows, if there are any, and set the classes."""
        calibrator = self.calibrator_
        if calibration is not None and self.calibration_shares is not None:
            raise ValueError("calibration_shares must be None if calibration rows are given")
        if calibrator is not None:
            self.classes_ = np.asarray(calibrator.classes_)
        if calibration is not None:
            return self._read_rows(calibration)
        if self.calibration_shares is None:
            kept = kept_rows(calibrator)
            if kept is None:
                raise ValueError(
                    "calibration must be given, because no calibration rows are available: pass "
                    "calibration=(scores, y) to fit, or calibration_shares"
                )
            return self._with_all_classes(kept)
        if calibrator is None:
            given = self.calibration_shares
            by_class = isinstance(given, Mapping)
            k = max(2, len(given) if by_class else np.size(as_numpy(given, "calibration_shares")))
            self.classes_ = class_array(k if self.classes is None else self.classes)
        return None

    def _read_rows(self, calibration: Sequence[UserData]) -> CalibrationRows:
        if not isinstance(calibration, Sequence) or len(calibration) not in (2, 3):
            raise ValueError(
                "calibration must be (scores, y) or (scores, y, sample_weight), got "
                f"{type(calibration).__name__}"
            )
        scores, y, *rest = calibration
        given = rest[0] if rest else None
        if self.calibrator_ is None:
            n, *columns = np.shape(scores)
            weights = check_weights(given, n)
            self.classes_ = read_labels(y, n, self.classes, max(2, *columns, 2), weights)[0]
        probs = self._probabilities(scores, reset=True)
        weights, classes = check_weights(given, len(probs)), self.classes_.tolist()
        codes = read_labels(y, len(probs), classes, len(classes), weights)[1]
        used = weights > 0
        return self._with_all_classes(CalibrationRows(probs[used], codes[used], weights[used]))

    def _with_all_classes(self, rows: CalibrationRows) -> CalibrationRows:
        """Raise if a class has no calibration row, because its scores are then unknown."""
        absent = np.setdiff1d(np.arange(len(self.classes_)), rows.codes)
        if len(absent):
            raise ValueError(
                "calibration rows must hold all classes, got none of "
                f"{self.classes_[absent].tolist()}; pass calibration=(scores, y) with more rows"
            )
        return rows

    def _read_new(
        self, scores: UserData, sample_weight: UserData, populations: UserData, floors: np.ndarray
    ) -> NewRows:
        """Read new rows of positive weight; count those below the floors."""
        self.populations_, k = None, len(self.classes_)
        if scores is None:
            return NewRows(np.empty((0, k)), np.empty(0), np.empty(0, int), np.zeros(2))
        if (blocks := as_blocks(scores, None, sample_weight)) is not None:
            if populations is not None:
                raise ValueError(
                    "populations must be None for scores in blocks; fit one PriorShift to the "
                    "blocks of each"
                )
            predict = block_predictor(self.calibrator_, blocks.names, self.classes_)
            return compress(blocks.mapped(predict), k, floors)
        first = self.calibrator_ is None and "n_features_in_" not in vars(self)
        probs = self._probabilities(scores, reset=first)
        weights = check_weights(sample_weight, len(probs), match="scores")
        used = weights > 0
        index = np.zeros(len(probs), int)
        if populations is not None:
            labels = label_array(populations, len(probs), name="populations")[used]
            self.populations_, index[used] = np.unique(labels, return_inverse=True)
        probs = probs[used]
        clipped = (probs.min(axis=1)[:, None] < floors).sum(axis=0)
        return NewRows(probs, weights[used], index[used], clipped)

    def _probabilities(self, scores: UserData, reset: bool = False) -> np.ndarray:
        """Return calibrated probabilities (m, k) of scores."""
        if self.calibrator_ is not None:
            probs = to_host(self.calibrator_.predict_proba(scores))
            if not isinstance(probs, np.ndarray):
                raise TypeError(
                    f"scores must be an array in memory, got {type(scores).__name__}; fit and "
                    "predict_proba take blocks"
                )
            check_finite(probs, "probabilities of the calibrator")
            return probs
        names = column_names(scores)
        given = scores if names is None else as_numpy(scores, "scores")
        # Fits without rows in memory do not say how many columns two classes have.
        free = not reset and "n_features_in_" not in vars(self)
        rows = check_rows(PriorShift() if free else self, given, "probs", reset or free)
        rows = in_order(rows, names, self.classes_, "scores")
        return read_probabilities(rows, len(self.classes_))

    def _keep_cells(self, known: CalibrationRows, new: NewRows, count: int) -> None:
        """Keep the counts in cells of scores that the check needs."""
        first, second, size = score_cells(known.probs, known.weights, new.probs)
        classes = len(self.classes_)
        cells = known.codes * size + first
        counts = np.bincount(cells, as_rows(known.weights), classes * size)
        self.state_["class_cells"] = counts.reshape(classes, size)
        counts = np.bincount(new.index * size + second, new.counts(), count * size)
        self.state_["cells"] = counts.reshape(count, size)

    def _predict(
        self, scores: UserData, populations: UserData, reduce: Callable[[AnyArray], XArray]
    ) -> np.ndarray:
        check_is_fitted(self)
        probs = self._probabilities(scores)
        index = self._index_of(populations, len(probs))
        groups = np.unique(index)
        result = np.empty(0)
        for group in groups:
            members = index == group if len(groups) > 1 else slice(None)
            part = shifted(self._arrays(int(group)), probs[members], reduce)
            if not result.size:
                result = np.empty((len(probs), *part.shape[1:]))
            result[members] = part
        return result

    def _index_of(self, populations: UserData, m: int) -> np.ndarray:
        """Return the position of the population of each of m rows."""
        fitted = self.populations_
        if (populations is None) != (fitted is None):
            state = "without populations" if fitted is None else "with populations"
            raise ValueError(f"populations must be passed as in the fit, which was {state}")
        if fitted is None:
            return np.zeros(m, int)
        given = label_array(populations, m, name="populations")
        return find_populations(given, fitted)

    def _arrays(self, group: int) -> dict[str, np.ndarray]:
        arrays = {name: self.state_[name] for name in ("theta", "log_ratio", "floor")}
        return arrays | {"log_ratio": arrays["log_ratio"][group]}

    def _columns(self) -> int:
        source = self if self.calibrator_ is None else self.calibrator_
        return vars(source).get("n_features_in_", len(self.classes_))

    def _as_parts(self, group: int = 0) -> tuple[AnyModel, Tree]:
        """Return the unfitted estimator and its fitted state."""
        bare: AnyModel = object.__new__(type(self))
        bare.calibrators_, state = [], dict[str, object](self._arrays(group))
        if self.calibrator_ is not None:
            if not hasattr(self.calibrator_, "_as_parts"):
                kind = type(self.calibrator_).__name__
                raise TypeError(f"as_function needs a calibrator of bayescal, got {kind}")
            part, state["0"] = self.calibrator_._as_parts()
            bare.calibrators_ = [part]
        return bare, state

    def _map(self, state: Tree, scores: XArray) -> AnyArray:
        return shifted(state, self._calibrated(state, scores), mean_of_draws)

    def _map_ends(self, state: Tree, scores: XArray, level: float) -> XArray:
        probs = self._calibrated(state, scores)
        ends = shifted(state, probs, partial(ends_of_few, level=level))
        return ends[..., 1] if ends.shape[-1] == 2 else ends

    def _calibrated(self, state: Tree, scores: XArray) -> AnyArray:
        for part in vars(self)["calibrators_"]:
            return part._map(state["0"], scores)
        return transform(scores, "probs", "probabilities", None)

    def _has_ends(self, state: Tree) -> bool:
        return True
