"""Log probabilities from APIs of language models as truncated logits."""

from __future__ import annotations

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.checks import as_numpy, check_finite, precision

#: How far the probabilities of a row may sum above one, by rounding of the API.
_MAX_EXCESS = 1e-3


def top_logprobs(
    indices: ArrayLike, logprobs: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Convert the top log probabilities of an API to truncated logits, with the mass of the rest.

    APIs of language models return the log probabilities of the few most probable tokens. The
    calibrators of truncated logits also need the log probability of all other tokens together,
    log(1 - sum of exp), which this function computes.

    Parameters
    ----------
    indices : int array of shape (n, m)
        Numbers of the tokens in the vocabulary, different ones in each row.
    logprobs : array of shape (n, m)
        Natural logarithms of their probabilities, as the API returns them, for instance with
        ``top_logprobs=20``.

    Returns
    -------
    indices, logprobs, rest : arrays of shapes (n, m), (n, m) and (n,)
        Scores for ``Temperature(inputs="top_logits", classes=...)``.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, values are not finite, a log probability is positive, or the probabilities
        of a row sum to more than 1.001: then they are logits, not log probabilities.

    See Also
    --------
    tokens : Select the tokens that count.

    Notes
    -----
    Where rounding leaves nothing for the other tokens, they get the rounding error of the sum.

    Examples
    --------
    >>> import numpy as np, bayescal as bc
    >>> logprobs = np.log([[0.6, 0.3], [0.9, 0.05]])
    >>> indices, _, rest = bc.top_logprobs([[17, 4], [4, 11]], logprobs)
    >>> np.exp(rest).round(3).tolist()
    [0.1, 0.05]
    """
    numbers, logs = as_numpy(indices, "indices"), as_numpy(logprobs, "logprobs")
    if logs.ndim != 2 or numbers.shape != logs.shape:
        raise ValueError(
            f"indices and logprobs must both have shape (n, m), got {numbers.shape} and "
            f"{logs.shape}"
        )
    eps = logs.shape[1] * max(precision(logs.dtype), 2.0**-52)
    logs = logs.astype(np.float64)
    check_finite(logs, "logprobs")
    if logs.max(initial=-1.0) > _MAX_EXCESS:
        raise ValueError(
            f"logprobs must not be positive, got {logs.max():g}: log probabilities are logarithms "
            "of numbers up to one; pass logits with their rest to the calibrator as they are"
        )
    mass = np.exp(logs).sum(axis=1)
    row = int(mass.argmax()) if len(mass) else 0
    if len(mass) and mass[row] > 1 + _MAX_EXCESS:
        raise ValueError(
            f"logprobs must have probabilities that sum to at most one, got {mass[row]:g} in row "
            f"{row}; pass logits with their rest to the calibrator as they are"
        )
    return numbers, logs, np.log(np.maximum(1 - mass, eps))
