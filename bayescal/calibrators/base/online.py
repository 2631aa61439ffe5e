"""Incremental fits: ``partial_fit`` from a compressed history of the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from sklearn.base import clone

from bayescal._core.arrays import AnyModel, ArrayLike, to_host
from bayescal.calibrators.base.calibrator import Calibrator, State
from bayescal.calibrators.base.dispatch import as_fitted
from bayescal.calibrators.base.matching import Stages, match_gradients
from bayescal.data.blocks.reader import RowBlocks
from bayescal.data.blocks.stream import Blocks
from bayescal.data.given import BLOCKS, Given, as_source
from bayescal.data.history import History
from bayescal.data.kept_rows import KeptRows, keep_rows
from bayescal.data.label_names import Classes, class_array
from bayescal.data.rows import Rows, Sums
from bayescal.data.scores import convert

#: The arrays of a history, with past losses and weights of rates, and the kind of scores.
Entries: TypeAlias = dict[str, Any]
#: Rates of forgetting that "auto" compares, and the factor by which it forgets their past losses.
RATES = np.array([1.0, 0.97, 0.9, 0.8, 0.6, 0.4])
_LOSS_MEMORY = 0.9
#: Maximal number of rounds that match the gradients of a sample with those of all rows, and the
#: relative change of weights below which rounds end.
_MATCHES, _SMALL_CHANGE = 5, 5e-3
#: Largest weights, from and below which no weights were scaled.
_WEIGHTS = 2.0**-40, 2.0**159


@dataclass(kw_only=True, eq=False, repr=False)
class OnlineCalibrator(Calibrator):
    """A calibrator that can be fitted incrementally.

    Attributes
    ----------
    history_ : dict of arrays
        Only after ``partial_fit``: the compressed rows so far.
    forgetting_weights_ : array of shape (6,)
        Only after ``partial_fit(forgetting="auto")``: the weights of the rates of forgetting 1,
        0.97, 0.9, 0.8, 0.6 and 0.4.
    """

    history_: Entries = field(init=False)
    forgetting_weights_: np.ndarray = field(init=False)

    def _check_learns_on(self) -> None:
        """Raise if an option needs all rows at once."""

    def partial_fit(
        self,
        scores: ArrayLike | Blocks,
        y: ArrayLike | None = None,
        classes: Classes = None,
        sample_weight: ArrayLike | None = None,
        forgetting: float | Literal["auto"] = 1.0,
    ) -> Self:
        """Fit the calibrator to further rows together with those of earlier calls.

        Without forgetting the result is that of one fit to all rows, to 0.001 in probability,
        whatever the batches. Use ``partial_fit`` from the first rows on. ``fit`` starts over, and
        keeps its rows for a later ``partial_fit`` only if there are at most 2,048, until the
        calibrator is copied or saved.

        Parameters
        ----------
        scores : array-like of shape (n,), (n, 1) or (n, k), or Blocks
            Scores of further rows, as in ``fit``.
        y : array-like of shape (n,) or (n, k)
            Labels of the further rows, as in ``fit``.
        classes : sequence of k labels or int, optional
            All classes, in the first call only; needed if its rows may lack a class and the option
            ``classes`` is not set.
        sample_weight : array-like of shape (n,), optional
            Non-negative; an integer weight equals repeated rows. The largest weight of each batch
            must lie in [1e-12, 1e47], because all batches have one scale.
        forgetting : float or "auto"
            Before the rows are added, the weights of all earlier rows are multiplied by this number
            in (0, 1]. Batches of equal size then count as about 1 / (1 - forgetting) batches.
            Pass ``rate ** len(y)`` to forget by rows. "auto" fits with six rates side by side and
            weights them by their past log losses of the next rows.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the rows of an earlier ``fit`` are no longer available, the classes or the kind of
            scores have changed, or an option needs all rows at once. The calibrator is then
            unchanged.

        Notes
        -----
        The history contains at most 2,048 cells of binary scores (about 0.01 wide in log odds) or
        65,536 cells of three classes, at the weighted means of their scores. For k > 3 classes it
        contains all rows up to max(4,194,304 / k, 16,384), then a sample of this size, whose
        weights are changed until a fit has the gradients of all rows; this takes two or more
        further fits. Matrices of more than 16 classes then have sampling error. ``history_`` is
        part of files and copies; delete it if they must not contain scores and labels. ``report_``
        describes the rows of the history.

        Examples
        --------
        >>> import bayescal as bc
        >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
        >>> calibrator = bc.Temperature().partial_fit(p[:3], y[:3], classes=[0, 1])
        >>> temperature = calibrator.partial_fit(p[3:], y[3:]).temperature_
        >>> round(temperature, 6) == round(bc.Temperature().fit(p, y).temperature_, 6)
        True
        """
        if self.inputs == "top_logits":
            raise ValueError("inputs must not be 'top_logits' for partial_fit")
        self._check_inputs()
        self._check_options()
        self._check_learns_on()
        auto = forgetting == "auto"
        rates = RATES if auto else np.array([_check_rate(forgetting)])
        earlier = vars(self).get("history_") or self._history_of_fit()
        data = self._read_further(scores, y, classes, sample_weight, earlier)
        k = data.rows.k
        batch = History(**data.rows.total(partial(_compress, data.least), partial(_join, k)))
        past, losses = _restore(earlier, len(rates))
        if past is None:
            history = batch.repeated(len(rates))
        else:
            if auto:
                losses = _LOSS_MEMORY * losses + self._predictive_losses(past, batch)
            past = past.forget(rates)
            history = past.join(batch, k)
        mix = None
        if auto:
            mix = np.exp(losses.min() - losses)
            mix /= mix.sum()
        seed = self._seed()
        if history.threshold > 0:
            history = self._match(history, past, data, mix, seed)
        state = self._fit_state(*history.rows(self.domain, mix), seed)
        self.classes_ = data.classes
        given = history.given(self.inputs, self.n_features_in_, mix)
        self._conclude(state, data, keep_rows(*given))
        self.history_ = _kept(history, losses, np.ones(1) if mix is None else mix, self.inputs)
        if mix is not None:
            self.forgetting_weights_ = mix
        return self

    def _match(
        self, history: History, past: History | None, data: Given, mix: np.ndarray | None, seed: int
    ) -> History:
        """Change the weights of a sample until a fit has the gradients of all rows."""
        for _ in range(_MATCHES):
            state = self._fit(history.rows(self.domain, mix)[0], seed)
            size = int(np.size(state.get("theta", ())))
            evaluate = partial(self._stages, state)
            before = history.factors
            history = match_gradients(history, past, data.rows, evaluate, self.domain, size)
            if np.abs(history.factors / before - 1).max() < _SMALL_CHANGE:
                break
        return history

    def _stages(self, state: State, scores: np.ndarray) -> Stages:
        """Evaluate a fit at scores (n, k), for the gradients of its parameters."""
        return Stages(self.apply(state, scores), scores)

    def _history_of_fit(self) -> dict[str, np.ndarray] | None:
        """Return the history of the rows of a fit, if there was one."""
        if not hasattr(self, "state_"):
            return None
        kept: KeptRows | None = vars(self).get("_kept_rows")
        if kept is None or not kept.all:
            raise ValueError(
                "partial_fit must follow partial_fit, or a fit of up to 2,048 rows that was not "
                f"copied or saved since; start a new {type(self).__name__} with partial_fit of all "
                "rows so far"
            )
        inputs = as_fitted(self).inputs
        values, least = convert(kept.rows, inputs, self.domain)
        history = History.of_rows(Rows(values, kept.codes, kept.weights), least)
        return _kept(history, np.zeros(1), np.ones(1), inputs)

    def _read_further(
        self,
        scores: object,
        y: object,
        classes: Classes,
        sample_weight: object,
        earlier: Entries | None,
    ) -> Given:
        """Read rows; those after the first call must be like the earlier ones."""
        reader: AnyModel = clone(self)
        if earlier is not None:
            known = self.classes_
            if classes is not None and not np.array_equal(class_array(classes), known):
                raise ValueError(
                    f"classes must be those of the first call to partial_fit, {known.tolist()}, "
                    f"got {class_array(classes).tolist()}"
                )
            if earlier["inputs"] != self.inputs:
                raise ValueError(
                    f"inputs must be {earlier['inputs']!r} as in earlier calls to partial_fit, got "
                    f"{self.inputs!r}"
                )
            if hasattr(scores, "shape") or isinstance(scores, list | tuple):
                self._check_rows(scores, reset=False)
            classes = known
        reader.classes = self.classes if classes is None else classes
        data = as_source(reader, scores, y, sample_weight, BLOCKS)
        _check_scale(data)
        features, names = reader.n_features_in_, vars(reader).get("feature_names_in_")
        if earlier is None:
            self.n_features_in_ = features
            vars(self).pop("feature_names_in_", None)
            if names is not None:
                self.feature_names_in_ = names
        elif features != self.n_features_in_:
            raise ValueError(
                f"scores must have {self.n_features_in_} columns as in earlier calls to "
                f"partial_fit, got {features}"
            )
        return data

    def _predictive_losses(self, history: History, batch: History) -> np.ndarray:
        """Compute the log loss (q,) of new rows after a fit for each rate of forgetting."""
        losses, rows = np.zeros(len(RATES)), batch.rows(self.domain)[0]
        for i, selected in enumerate(np.eye(len(RATES))):
            state = self._fit(history.rows(self.domain, selected)[0], 0)
            probs = self.apply(state, rows.scores)[np.arange(rows.n), rows.y]
            losses[i] = rows.weights @ -np.log(np.maximum(probs, np.finfo(float).tiny))
        return losses


def _check_scale(data: Given) -> None:
    """Raise if the weights of a batch were scaled, as all batches must have one scale."""
    rows = data.rows
    if isinstance(rows, Rows):
        scaled = not _WEIGHTS[0] <= rows.weights.max() < _WEIGHTS[1]
    else:
        assert isinstance(rows, RowBlocks)
        scaled = rows.reader.power != 0
    if scaled:
        raise ValueError(
            "sample_weight must have a maximum from 1e-12 to 1e47 in each call to partial_fit; "
            "multiply the weights of all batches by one number"
        )


def _check_rate(forgetting: float | str) -> float:
    if isinstance(forgetting, str) or not 0 < forgetting <= 1:
        raise ValueError(f'forgetting must lie in (0, 1] or be "auto", got {forgetting!r}')
    return float(forgetting)


def _kept(history: History, losses: np.ndarray, mix: np.ndarray, inputs: str) -> Entries:
    """Return a history, past losses (q,) and weights (q,) of rates as entries of a dictionary."""
    return {**history._asdict(), "losses": losses, "mix": mix, "inputs": inputs}


def _restore(earlier: Entries | None, num_rates: int) -> tuple[History | None, np.ndarray]:
    """Return the history, with a column of weights for each rate, and the past losses (q,)."""
    if earlier is None:
        return None, np.zeros(num_rates)
    history = History(**{name: earlier[name] for name in History._fields})
    if history.weights.shape[1] == num_rates:
        return history, earlier["losses"]
    return history.mixed(earlier["mix"]).repeated(num_rates), np.zeros(num_rates)


def _compress(least: np.ndarray | None, rows: Rows) -> Sums:
    return History.of_rows(rows._replace(scores=to_host(rows.scores)), least)._asdict()


def _join(k: int, first: Sums, second: Sums) -> Sums:
    return History(**first).join(History(**second), k)._asdict()
