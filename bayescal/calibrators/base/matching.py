"""Match a sample of rows to all rows: weights with which a fit has the gradients of all rows.

A fit to a sample has sampling error. Near its optimum, however, a fit depends on the rows only
through sums of gradients of the loss. These sums are computed from all rows while they are in
memory, and the weights of the sample are adjusted slightly until its sums are equal (calibration
weighting, as in surveys). The optimum of the sample is then that of all rows, up to the square of
the distance that it moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, to_host
from bayescal._core.execution.chunks import slices
from bayescal.data.history import History
from bayescal.data.rows import Rows, Source, Sums

#: Numbers in the scores of the rows whose gradients are computed at once.
_NUMBERS = 1 << 17
#: Rows from which second moments of gradients are computed.
_MOMENT_ROWS = 1 << 16
#: Largest number of classes for which gradients with respect to matrices are matched.
_MAX_MATRIX_CLASSES = 16
#: The largest change of the logarithm of a weight.
_LARGEST_CHANGE = 1.0
_RIDGE = 1e-9


class Stages(NamedTuple):
    """Inputs of the gradients of a fit at rows.

    The probabilities (n, k) of the fit, the features (n, k) that its slopes or its matrix multiply,
    and the probabilities of an earlier temperature fit, if there was one.
    """

    probs: np.ndarray
    features: np.ndarray
    first: np.ndarray | None = None


def match_gradients(
    history: History,
    past: History | None,
    rows: Source,
    evaluate: Callable[[np.ndarray], Stages],
    domain: str,
    num_parameters: int,
) -> History:
    """Change the weights of a sample so that gradients at a fit are those of all rows.

    ``history`` is the sample at each of q rates of forgetting, ``past`` that before ``rows`` were
    added, and ``evaluate`` evaluates the fit at scores (n, k) in the domain. More than 2 k
    parameters mean a matrix.
    """
    matrix = num_parameters > 2 * rows.k + 1 and rows.k <= _MAX_MATRIX_CLASSES
    gradients = partial(_gradients, evaluate, matrix)
    target = rows.total(partial(_new_sums, gradients))["sums"]
    if past is not None:
        target = target + _sums(gradients, past, domain)
    missing = target - _sums(gradients, history, domain)
    stride = -(-len(history.y) // _MOMENT_ROWS)
    sampled = gradients(history.filled(domain)[0][::stride], history.y[::stride])
    steps = []
    for weights, difference in zip(history.represented()[::stride].T, missing, strict=True):
        moments = (sampled.T * (weights * stride)) @ sampled
        scale = np.sqrt(np.maximum(np.diag(moments), np.finfo(float).tiny))
        scaled = moments / scale[:, None] / scale + _RIDGE * np.eye(len(scale))
        steps.append(np.linalg.solve(scaled, difference / scale) / scale)
    step = np.stack(steps, axis=1)
    changes = np.concatenate([part @ step for _, part in _parts(gradients, history, domain)])
    factors = history.factors * np.exp(np.clip(changes, -_LARGEST_CHANGE, _LARGEST_CHANGE))
    return history._replace(factors=factors)


def _gradients(
    evaluate: Callable[[np.ndarray], Stages], matrix: bool, scores: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """Compute gradients (n, p) of losses: constants, offsets, slopes or a matrix, temperature.

    The constants are ones, so that the weights of a sample add up to those of all rows.
    """
    (probs, features, first), n = evaluate(scores), len(y)
    index = np.arange(n), y
    error = np.array(probs)
    error[index] -= 1
    slopes = error * features
    if matrix:
        slopes = (error[:, :, None] * features[:, None, :]).reshape(n, -1)
    temperature = np.zeros(n)
    if first is not None:
        temperature = (first * scores).sum(axis=1) - scores[index]
    return np.column_stack([np.ones(n), error, slopes, temperature])


def _new_sums(gradients: Callable[..., np.ndarray], rows: Rows) -> Sums:
    scores, y, weights = np.asarray(to_host(rows.scores), float), rows.y, rows.weights
    parts = slices(len(y), max(1, _NUMBERS // scores.shape[1]))
    sums = [weights[part] @ gradients(scores[part], y[part]) for part in parts]
    return {"sums": np.sum(sums, axis=0)}


def _parts(
    gradients: Callable[..., np.ndarray], history: History, domain: str
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield slices of the rows of a history, and their gradients."""
    scores = history.filled(domain)[0]
    for part in slices(len(history.y), max(1, _NUMBERS // scores.shape[1])):
        yield part, gradients(scores[part], history.y[part])


def _sums(gradients: Callable[..., np.ndarray], history: History, domain: str) -> AnyArray:
    """Compute sums (q, p) of gradients at each of q rates."""
    weights = history.represented()
    return sum(weights[part].T @ values for part, values in _parts(gradients, history, domain))
