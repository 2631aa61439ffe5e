"""Dirichlet calibration: matrix scaling of log probabilities."""

from __future__ import annotations

from dataclasses import dataclass

from bayescal.calibrators.multiclass.matrix import Matrix


@dataclass(eq=False, repr=False)
class Dirichlet(Matrix):
    r"""Dirichlet calibration: matrix scaling of the logarithms of probabilities.

    .. math:: \hat p = \operatorname{softmax}(W \ln p + b)

    The map is exact if the probabilities of each class have a Dirichlet distribution. Logits are
    normalized first, so adding a constant to a row changes nothing, unlike for :class:`Matrix`.
    Parameters, attributes, penalties and complexity are those of :class:`Matrix`.

    References
    ----------
    M. Kull et al. (2019), Beyond temperature scaling: obtaining well-calibrated multi-class
    probabilities with Dirichlet calibration.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 0, 2, 1, 1, 1, 2, 0, 0]
    >>> calibrator = bc.Dirichlet(off_diagonal=1.0, intercept=1.0).fit(p, y)
    >>> calibrator.predict_proba(p[:1]).round(2).tolist()
    [[0.57, 0.27, 0.16]]
    """

    _domain = "log_probabilities"
