"""Calibrators in sequence."""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, AnyModel, ArrayLike, UserData, XArray
from bayescal.calibrators.combine.base import Several, State


@dataclass(eq=False, repr=False)
class Composition(Several):
    """A sequence of calibrators, in which each is fitted to the probabilities of its predecessor.

    Parameters
    ----------
    calibrators : list of calibrators
        All but the first have ``inputs="probs"``.
    classes : sequence of k labels, optional
        Option of all calibrators.

    Attributes
    ----------
    calibrators_ : list of fitted calibrators
    classes_ : array of shape (k,)
    status_ : str
        "converged", or the status of the first fit that did not converge.

    See Also
    --------
    compose : a shorter notation.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> both = bc.Composition([bc.Temperature(), bc.KNN(6)]).fit(p, y)
    >>> both.predict_proba(p[:1]).round(2).tolist()
    [[0.67, 0.24, 0.08]]
    """

    def _fit_parts(
        self, parts: list[AnyModel], scores: UserData, y: UserData, weights: ArrayLike | None
    ) -> list[AnyModel]:
        for part in parts[1:]:
            if part.inputs != "probs":
                raise ValueError(
                    "calibrators must have inputs='probs' after the first, got "
                    f"{part.inputs!r} of {type(part).__name__}"
                )
        fitted = []
        for part in parts:
            fitted.append(self._clone(part).fit(scores, y, weights))
            scores = fitted[-1].predict_proba(scores)
        return fitted

    def predict_proba(self, scores: UserData) -> AnyArray:
        check_is_fitted(self)
        for part in self.calibrators_:
            scores = part.predict_proba(scores)
        return scores

    def _member_weights(self) -> dict[str, float]:
        return self.calibrators_[-1]._member_weights()

    def _map(self, state: State, scores: XArray) -> AnyArray:
        for part, part_state in self._with_states(state):
            scores = part._map(part_state, scores)
        return scores


def compose(*calibrators: object) -> Composition:
    """Compose calibrators in sequence: ``compose(Temperature(), KNN())``.

    Parameters
    ----------
    *calibrators : calibrators
        All but the first have ``inputs="probs"``.

    Returns
    -------
    Composition

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> both = bc.compose(bc.Temperature(), bc.Histogram(2)).fit(p, y)
    >>> both.predict_proba([0.2, 0.7])[:, 1].round(2).tolist()
    [0.33, 0.67]
    """
    return Composition(list(calibrators))
